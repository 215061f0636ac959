/* Which tokens of a conversation are learned, the token at the beginning, and where templates are found. */
#include "chat/cases.h"
#include "chat/chat.h"

#include "chat/byte_model.h"

typedef struct setup {
    char dir[64];
    tokenizer *t;
    encoder *c;
    chat_source source;
} setup;

static void setup_open(setup *s, const char *template, bool adds_bos)
{
    pt_error e = {0};
    strcpy(s->dir, "/tmp/chat-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    put_tokenizer(s->dir, 256, adds_bos);
    put(s->dir, "tokenizer_config.json", "{\"bos_token\": {\"content\": \"<s>\"}, \"eos_token\": \"</s>\"}");
    put(s->dir, "chat_template.jinja", template);
    if (tokenizer_open(s->dir, &s->t, &e) || encoder_open(s->t, &s->c, &e) || chat_source_open(&s->source, s->dir, NULL, &e))
        fail_msg("%s", e.text);
}

static void setup_close(setup *s)
{
    char command[128];
    chat_source_close(&s->source);
    encoder_close(s->c);
    tokenizer_close(s->t);
    snprintf(command, sizeof command, "rm -r %s", s->dir);
    assert_int_equal(system(command), 0);
}

static bool plain; /* special tokens in contents are plain text */

static int tokenize(setup *s, const char *conversation, chat_tokens *out, pt_error *e)
{
    json_t *json;
    if (json_text_load("conversation", conversation, strlen(conversation), 0, &json, e))
        fail_msg("%s", e->text);
    const chat_wish wish = {.where = "conversation", .now = CASES_NOW, .plain = plain};
    int failed = chat_tokenize(&s->source, s->t, s->c, json, &wish, out, e);
    json_decref(json);
    return failed;
}

/* The texts of what is learned, each followed by '$'. */
static void learned_is(setup *s, const char *conversation, const char *want)
{
    chat_tokens x = {0};
    text_buffer part = {0};
    pt_error e = {0};
    char all[4096];
    size_t n = 0;
    if (tokenize(s, conversation, &x, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < x.ids.n; i++) {
        part.n = 0;
        assert_int_equal(tokenizer_decode(s->t, &x.ids.ids[i], 1, false, &part, &e), 0);
        if (x.learned[i])
            n += (size_t)snprintf(all + n, sizeof all - n, "%.*s", (int)part.n, part.bytes);
        if (x.learned[i] && (i + 1 == x.ids.n || !x.learned[i + 1]))
            n += (size_t)snprintf(all + n, sizeof all - n, "$");
    }
    all[n] = 0;
    assert_string_equal(all, want);
    text_buffer_free(&part);
    chat_tokens_free(&x);
}

static const char two[] = "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"one \\u00e9\"}, "
                          "{\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"two\"}]";

#define TURNS "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
#define PROMPT "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

static void replies_are_learned(const char *template)
{
    setup s;
    setup_open(&s, template, false);
    learned_is(&s, two, "one é<|im_end|>$two<|im_end|>$");
    learned_is(&s, "[{\"role\": \"user\", \"content\": \"a\"}]", "");
    learned_is(&s, "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\"}]", "<|im_end|>$");
    setup_close(&s);
}

static void replies_and_their_ends_are_learned(void **state)
{
    replies_are_learned(TURNS PROMPT);
    /* a tail without the prompt */
    replies_are_learned(TURNS "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}</s>{% endif %}");
    replies_are_learned(TURNS "<|im_start|>assistant\n\n");                                                       /* the prompt, always */
    replies_are_learned(TURNS PROMPT "the end");
    replies_are_learned("{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}{% generation %}{{ "
                        "m.content }}<|im_end|>"
                        "{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}" PROMPT);
}

/* Most templates look at the first message, which the prompt of such a reply does not have. */
static void a_chat_may_begin_with_a_reply(void **state)
{
    static const char chat[] = "[{\"role\": \"assistant\", \"content\": \"one\"}, {\"role\": \"user\", \"content\": \"a\"}, "
                               "{\"role\": \"assistant\", \"content\": \"two\"}]";
    static const char *const templates[] = {
        "{% if messages[0].role == 'system' %}<|im_start|>system\n{% endif %}" TURNS PROMPT,
        "{% if messages[0]['content'] == 'x' %}{{ raise_exception('x') }}{% endif %}" TURNS PROMPT "the end",
        "{% if messages | length == 0 %}{{ raise_exception('no messages') }}{% endif %}" TURNS PROMPT,
        "{% set first = messages[0].role %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{% if m.role == 'assistant' and loop.last %}</s>{% else %}<|im_end|>{% endif %}{% endfor %}" PROMPT};
    for (size_t i = 0; i < sizeof templates / sizeof *templates; i++) {
        setup s;
        setup_open(&s, templates[i], false);
        learned_is(&s, chat, i < 3 ? "one<|im_end|>$two<|im_end|>$" : "one<|im_end|>$two</s>$");
        setup_close(&s);
    }
}

/* Thinking is written for the last reply alone. */
static void earlier_replies_may_be_written_otherwise(void **state)
{
    setup s;
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think>{{ "
                   "m.reasoning_content }}"
                   "</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}" PROMPT, false);
    learned_is(&s, two, "one é<|im_end|>$<think></think>two<|im_end|>$");
    learned_is(&s, "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\", \"thinking\": \"hm\"}, "
                   "{\"role\": \"user\", \"content\": \"<|im_end|>\"}]", "b<|im_end|>$");
    setup_close(&s);
}

static void tool_calls_are_learned(void **state)
{
    setup s;
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}<call>{{ "
                   "c.function | tojson }}{% endfor %}"
                   "<|im_end|>\n{% endfor %}" PROMPT, false);
    learned_is(&s, "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": null, \"tool_calls\": "
                   "[{\"function\": {\"name\": "
                   "\"f\", \"arguments\": {}}}]}, {\"role\": \"tool\", \"content\": \"1\"}, {\"role\": \"assistant\", \"content\": \"x\"}]",
               "<call>{\"name\": \"f\", \"arguments\": {}}<|im_end|>$x<|im_end|>$");
    setup_close(&s);
}

/* How often special token `id` is among the ids. */
static int count_of(setup *s, const char *conversation, uint32_t id)
{
    chat_tokens x = {0};
    pt_error e = {0};
    int n = 0;
    if (tokenize(s, conversation, &x, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < x.ids.n; i++)
        n += x.ids.ids[i] == id;
    chat_tokens_free(&x);
    return n;
}

#define TURN(q, a) "{\"role\": \"user\", \"content\": \"" q "\"}, {\"role\": \"assistant\", \"content\": \"" a "\"}"

static void special_tokens_in_contents_may_be_plain_text(void **state)
{
    static const char text[] =
        "[{\"role\": \"user\", \"content\": \" <|im_end|>a<|im_end|> \\uFDD0<|im_start|>\"}, "
        "{\"role\": \"assistant\", \"content\": \"b<|im_end|>\\uFDD0\"}, {\"role\": \"user\", \"content\": \"c\"}, "
        "{\"role\": \"assistant\", \"content\": \"<|im_end|>\", "
        "\"tool_calls\": [{\"function\": {\"arguments\": {\"<|im_end|>\": \"</s>\"}}}]}]";
    setup s;
    chat_tokens x = {0};
    pt_error e = {0};
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}{% for c in m.tool_calls %}"
                   "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}" PROMPT, false);
    const uint32_t end = (uint32_t)tokenizer_find(s.t, "<|im_end|>"), eos = (uint32_t)tokenizer_find(s.t, "</s>");
    assert_int_equal(count_of(&s, text, end), 9);
    assert_int_equal(count_of(&s, text, eos), 1);
    plain = true;
    assert_int_equal(count_of(&s, text, end), 4);
    assert_int_equal(count_of(&s, text, eos), 0);
    learned_is(&s, text, "b<|im_end|>\xef\xb7\x90<|im_end|>$<|im_end|>{\"<|im_end|>\": \"</s>\"}<|im_end|>$");
    text_buffer shown = {0};
    if (tokenize(&s, text, &x, &e) || tokenizer_decode(s.t, x.ids.ids, x.ids.n, false, &shown, &e))
        fail_msg("%s", e.text);
    assert_int_equal(shown.n, x.rendering.text.n);
    assert_memory_equal(shown.bytes, x.rendering.text.bytes, shown.n);
    text_buffer_free(&shown);
    chat_tokens_free(&x);
    setup_close(&s);
    setup_open(&s, "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}[assistant] "
                   "{% endif %}", false); /* no special token ends a reply */
    learned_is(&s, "[" TURN("a", "</s>") ", " TURN("</s>", "b</s>") ", " TURN("<|im_end|>", "</s>c") ", " TURN("d", "</s></s>") "]",
               "</s>\n$b</s>\n$</s>c\n$</s></s>\n$");
    setup_close(&s);
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" PROMPT, false);
    learned_is(&s, "[" TURN("a", "<|im_end|>") ", " TURN("<|im_end|>", "b") ", " TURN("c", "<|im_end|>\\n<|im_start|>user") ", "
                   TURN("d", "") "]",
               "<|im_end|><|im_end|>$b<|im_end|>$<|im_end|>\n<|im_start|>user<|im_end|>$<|im_end|>$");
    plain = false;
    setup_close(&s);
}

#define ARGUED(calls)                                                                                                                      \
    "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [" calls "]}]"

/* OpenAI's API writes arguments as JSON in a string. */
static void arguments_in_a_string_are_learned_as_values(void **state)
{
    setup s;
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}<call>"
                   "{% set f = c.function or c %}{{ f.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}" PROMPT, false);
    learned_is(&s, ARGUED("{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"b\\\": \\\"\u00e9\\\", \\\"a\\\": [1]}\"}}, "
                          "{\"name\": \"g\", \"arguments\": \"\"}, {\"function\": {\"arguments\": {\"c\": \"{}\"}}}"),
               "<call>{\"b\": \"\u00e9\", \"a\": [1]}<call>{}<call>{\"c\": \"{}\"}<|im_end|>$");
    setup_close(&s);
}

/* As DeepSeek's: it joins text and arguments. */
static void a_template_that_needs_arguments_in_a_string_gets_it(void **state)
{
    setup s;
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.content }}{% for c in m.tool_calls %}{{ '<call>' + c.function.arguments }}"
                   "{% endfor %}<|im_end|>{% endfor %}" PROMPT, false);
    learned_is(&s, ARGUED("{\"function\": {\"arguments\": \"{ \\\"a\\\":1}\"}}"), "<call>{ \"a\":1}<|im_end|>$");
    setup_close(&s);
}

static void arguments_that_are_no_object_are_refused(void **state)
{
    setup s;
    chat_tokens x = {0};
    static const char *const bad[][2] = {{ARGUED("{\"function\": {\"arguments\": \"{\\\"a\\\":\"}}"), "JSON"},
                                         {ARGUED("{\"arguments\": \"[1]\"}"), "a list"}};
    setup_open(&s, "{% for m in messages %}{{ m.content }}{{ m.tool_calls }}<|im_end|>{% endfor %}" PROMPT, false);
    for (int i = 0; i < 2; i++) {
        pt_error e = {0};
        assert_int_equal(tokenize(&s, bad[i][0], &x, &e), PT_FAILED);
        if (!strstr(e.text, "conversation") || !strstr(e.text, "message 2") || !strstr(e.text, "arguments") || !strstr(e.text, bad[i][1]))
            fail_msg("%s", e.text);
    }
    chat_tokens_free(&x);
    setup_close(&s);
}

/* As Mistral writes them: no content beside calls, and the tools before the last message of a user, so that no beginning is how the whole
 * begins. */
static void calls_without_their_content_are_found(void **state)
{
    setup s;
    setup_open(&s, "{% set users = messages | selectattr('role', 'equalto', 'user') | list %}{% for m in messages %}"
                   "{% if m.role == 'user' %}{% if m == users[-1] %}<tools>{% endif %}[{{ m.content }}]"
                   "{% elif m.tool_calls %}<calls>{{ m.tool_calls | length }}</s>"
                   "{% elif m.role == 'tool' %}<tool>{{ m.content }}{% else %} {{ m.content }}</s>{% endif %}{% endfor %}", false);
#define CALL "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [1]}, {\"role\": \"tool\", \"content\": \"1\"}, "
    learned_is(&s, "[{\"role\": \"user\", \"content\": \"a\"}, " CALL "{\"role\": \"assistant\", \"content\": \"x\"}, {\"role\": \"user\", "
                   "\"content\": \"b\"}, " CALL "{\"role\": \"assistant\", \"content\": \"y\"}]",
               "<calls>1</s>$x</s>$<calls>1</s>$ y</s>$");
    setup_close(&s);
}

/* As Cohere writes it. Another such token that the end of the conversation alone has is not the reply's. */
static void several_tokens_may_end_a_reply(void **state)
{
    setup s;
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|><|end|>{% endfor %}"
                   "{% if add_generation_prompt %}<|im_start|>assistant {% else %}</s>{% endif %}", false);
    learned_is(&s, two, "one é<|im_end|><|end|>$two<|im_end|><|end|>$");
    setup_close(&s);
}

/* What a tool says stands between the calls and the first token that ends replies elsewhere, and calls are written otherwise once their
 * results are there. */
static void what_a_tool_says_is_never_learned(void **state)
{
    setup s;
    chat_tokens x = {0};
    pt_error e = {0};
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.tool_calls and loop.last %}later"
                   "{% elif m.tool_calls %}calls{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}" PROMPT, false);
    assert_int_equal(tokenize(&s, "[{\"role\": \"user\", \"content\": \"a\"}, " CALL "{\"role\": \"assistant\", \"content\": \"x\"}]",
                              &x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "conversation: the end of the reply in message 2"));
    chat_tokens_free(&x);
    setup_close(&s);
}

/* Turns of all kinds, many more than are looked for one by one. */
static void many_replies_are_found(void **state)
{
    enum { TURNS_N = 300 };
    setup s;
    chat_tokens x = {0};
    pt_error e = {0};
    json_t *messages = json_array();
    char text[64], wanted[64];
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' and loop.last %}<think></think>"
                   "{% endif %}{{ m.content | trim }}{% for c in m.tool_calls %}<call>{{ c }}{% endfor %}<|im_end|>\n{% endfor %}" PROMPT,
               false);
    for (int i = 0; i < TURNS_N; i++) {
        snprintf(text, sizeof text, "%*s%d", i % 3, "", i);
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user", "content", text));
        if (i % 5 == 0) {
            json_array_append_new(messages, json_pack("{s:s, s:s, s:[s]}", "role", "assistant", "content", i % 10 ? text : "",
                                                      "tool_calls", text));
            json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "tool", "content", "<|im_end|>"));
        }
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "assistant", "content", text));
    }
    const chat_wish wish = {.where = "conversation", .now = CASES_NOW};
    if (chat_tokenize(&s.source, s.t, s.c, messages, &wish, &x, &e))
        fail_msg("%s", e.text);
    assert_int_equal(x.rendering.n_spans, TURNS_N + TURNS_N / 5);
    const chat_span *span = x.rendering.spans;
    for (int i = 0; i < TURNS_N; i++) {
        if (i % 5 == 0) {
            snprintf(wanted, sizeof wanted, "%.0d<call>%*s%d<|im_end|>", i % 10 ? i : 0, i % 3, "", i);
            assert_int_equal(span->end - span->first, strlen(wanted));
            assert_memory_equal(x.rendering.text.bytes + span->first, wanted, strlen(wanted));
            span++;
        }
        snprintf(wanted, sizeof wanted, "%s%d<|im_end|>", i + 1 == TURNS_N ? "<think></think>" : "", i);
        assert_int_equal(span->end - span->first, strlen(wanted));
        assert_memory_equal(x.rendering.text.bytes + span->first, wanted, strlen(wanted));
        span++;
    }
    json_decref(messages);
    chat_tokens_free(&x);
    setup_close(&s);
}

/* A tokenizer that changes texts before it looks for its tokens. */
static void set_normalizer(setup *s, json_t *normalizer)
{
    pt_error e = {0};
    json_t *json, *token;
    size_t i;
    char path[128];
    snprintf(path, sizeof path, "%s/tokenizer.json", s->dir);
    if (json_file_load(path, 0, &json, &e))
        fail_msg("%s", e.text);
    json_object_set_new(json, "normalizer", normalizer);
    json_array_foreach(json_object_get(json, "added_tokens"), i, token)
        json_object_set_new(token, "normalized", json_true());
    assert_int_equal(json_dump_file(json, path, 0), 0);
    json_decref(json);
    encoder_close(s->c);
    tokenizer_close(s->t);
    if (tokenizer_open(s->dir, &s->t, &e) || encoder_open(s->t, &s->c, &e))
        fail_msg("%s", e.text);
}

/* Ids do not have the text's bytes then. */
static void tokenizers_may_normalize(void **state)
{
    setup s;
    setup_open(&s, TURNS PROMPT, false);
    set_normalizer(&s, json_pack("{s:s}", "type", "NFC"));
    learned_is(&s, "[{\"role\": \"user\", \"content\": \"e\\u0301\"}, {\"role\": \"assistant\", \"content\": \"a e\\u0301\"}, "
                   "{\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"e\\u0301 c\"}]",
               "a \u00e9<|im_end|>$\u00e9 c<|im_end|>$");
    setup_close(&s);
}

/* A special token may stand for less text than it has: a reply ends no further than its text. */
static void a_token_that_is_longer_than_its_text_ends_with_it(void **state)
{
    setup s;
    setup_open(&s, "{% for m in messages %}{% if m.role == 'user' %}Q{{ m.content }}\n{% else %}A{{ m.content }}}{% endif %}{% endfor %}"
                   "{% if add_generation_prompt %}A{% endif %}", false);
    set_normalizer(&s, json_pack("{s:s, s:{s:s}, s:s}", "type", "Replace", "pattern", "String", "}", "content", "<|end|>"));
    learned_is(&s, "[{\"role\": \"user\", \"content\": \"b\"}, {\"role\": \"assistant\", \"content\": \"a\"}]", "a<|end|>$");
    setup_close(&s);
}

static void what_cannot_be_found_is_refused(void **state)
{
    setup s;
    chat_tokens x = {0};
    pt_error e = {0};
    /* The number of messages stands in front of them, and nothing ends a reply. */
    setup_open(&s, "{{ messages | length }}{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}", false);
    assert_int_equal(tokenize(&s, two, &x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "conversation: the end of the reply in message 2"));
    assert_null(strstr(e.text, "has no token"));
    assert_int_equal(tokenize(&s, "[]", &x, &e), PT_FAILED);
    assert_int_equal(tokenize(&s, "{\"messages\": 1}", &x, &e), PT_FAILED);
    assert_int_equal(tokenize(&s, "[{\"content\": \"a\"}]", &x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "message 1"));
    assert_int_equal(tokenize(&s, "{\"messages\": [{\"role\": \"user\"}], \"tools\": \"{\"}", &x, &e), PT_FAILED);
    chat_tokens_free(&x);
    setup_close(&s);
}

/* With the template of another model. */
static void a_token_that_is_none_is_named(void **state)
{
    (void)state;
    setup s;
    chat_tokens x = {0};
    pt_error e = {0};
    setup_open(&s, "{% for m in messages %}<|im_start|>{{ m.role }}: {{ m.content }}{{ '<|return|>' if loop.last else '<|stop|>' }}"
                   "{% endfor %}", false);
    assert_int_equal(tokenize(&s, two, &x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "the end of the reply in message 2 cannot be found, and the tokenizer has no token <|stop|>"));
    chat_tokens_free(&x);
    setup_close(&s);
}

static void the_beginning_is_there_once(void **state)
{
    for (int which = 0; which < 4; which++) {
        setup s;
        chat_tokens x = {0};
        pt_error e = {0};
        setup_open(&s, which & 1 ? "{{ bos_token }}" TURNS PROMPT : TURNS PROMPT, which & 2);
        if (tokenize(&s, two, &x, &e))
            fail_msg("%s", e.text);
        size_t n = 0;
        for (size_t i = 0; i < x.ids.n; i++)
            n += x.ids.ids[i] == 256;
        assert_int_equal(n, which ? 1 : 0);
        assert_int_equal(x.ids.ids[0], which ? 256 : 258);
        assert_int_equal(x.learned[0], 0);
        assert_int_equal(x.learned[x.ids.n - 2], 1); /* the end of the last turn, before a newline */
        assert_int_equal(x.learned[x.ids.n - 1], 0);
        chat_tokens_free(&x);
        setup_close(&s);
    }
}

/* What a folder's template makes of one message, with or without tools. */
static void folder_says(setup *s, const char *conversation, const char *want)
{
    chat_tokens x = {0};
    pt_error e = {0};
    chat_source_close(&s->source);
    if (chat_source_open(&s->source, s->dir, NULL, &e) || tokenize(s, conversation, &x, &e))
        fail_msg("%s", e.text);
    assert_int_equal(x.rendering.text.n, strlen(want));
    assert_memory_equal(x.rendering.text.bytes, want, strlen(want));
    chat_tokens_free(&x);
}

static void templates_are_found(void **state)
{
    static const char plain[] = "[{\"role\": \"user\", \"content\": \"a\"}]", tools[] = "{\"messages\": [{\"role\": \"user\"}], "
                                        "\"tools\": [{}]}";
    setup s;
    char path[128];
    pt_error e = {0};
    setup_open(&s, "jinja{{ eos_token }}", false);
    put(s.dir, "chat_template.json", "{\"chat_template\": \"json\"}");
    put(s.dir, "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"default\", \"template\": \"plain\"}, {\"name\": \"tool_use\", "
                                        "\"template\": \"tools\"}]}");
    put(s.dir, "special_tokens_map.json", "{\"eos_token\": {\"content\": \"<|end|>\"}}");
    folder_says(&s, plain, "jinja<|end|>");
    snprintf(path, sizeof path, "%s/chat_template.jinja", s.dir);
    unlink(path);
    folder_says(&s, plain, "plain");
    folder_says(&s, tools, "tools");
    put(s.dir, "tokenizer_config.json", "{\"chat_template\": \"config\", \"eos_token\": \"</s>\"}");
    folder_says(&s, tools, "config");
    put(s.dir, "tokenizer_config.json", "{}");
    folder_says(&s, plain, "json");
    chat_source_close(&s.source);
    put(s.dir, "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}");
    assert_int_equal(chat_source_open(&s.source, s.dir, NULL, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "default"));
    put(s.dir, "tokenizer_config.json", "{\"chat_template\": \"a\\n{{\"}");
    assert_int_equal(chat_source_open(&s.source, s.dir, NULL, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "chat_template, line 2"));
    put(s.dir, "tokenizer_config.json", "{}");
    put(s.dir, "chat_template.json", "{}");
    assert_int_equal(chat_source_open(&s.source, s.dir, NULL, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`chat_template`"));
    setup_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_and_their_ends_are_learned),
        cmocka_unit_test(a_chat_may_begin_with_a_reply), cmocka_unit_test(earlier_replies_may_be_written_otherwise),
        cmocka_unit_test(tool_calls_are_learned), cmocka_unit_test(arguments_in_a_string_are_learned_as_values),
        cmocka_unit_test(special_tokens_in_contents_may_be_plain_text),
        cmocka_unit_test(a_template_that_needs_arguments_in_a_string_gets_it),
        cmocka_unit_test(arguments_that_are_no_object_are_refused),
        cmocka_unit_test(calls_without_their_content_are_found),
        cmocka_unit_test(several_tokens_may_end_a_reply), cmocka_unit_test(what_a_tool_says_is_never_learned),
        cmocka_unit_test(many_replies_are_found), cmocka_unit_test(tokenizers_may_normalize),
        cmocka_unit_test(a_token_that_is_longer_than_its_text_ends_with_it), cmocka_unit_test(what_cannot_be_found_is_refused),
        cmocka_unit_test(a_token_that_is_none_is_named),
        cmocka_unit_test(the_beginning_is_there_once), cmocka_unit_test(templates_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
