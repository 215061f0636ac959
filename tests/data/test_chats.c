/* Records of each format to windows: what is learned, what is refused, and the cache of it. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/target.h"
#include "data/dataset.h"

#include "chat/byte_model.h"
#include "scratch.h"

enum { LEN = 120, WIDE = 400, VOCAB = 300, EOS = 257, BOS = 256 };

static tokenizer *the_tokenizer;
static int built; /* how often the tokens were made */

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    built = 1;
}

static int open_file(const char *name, const char *content, dataset_options o, dataset **d, pt_error *e)
{
    const char *paths[] = {content ? scratch_text(name, content) : scratch_path(name)};
    o.paths = paths;
    o.paths_n = 1;
    o.tokenizer = the_tokenizer;
    o.model_dir = scratch_dir;
    o.cache_dir = scratch_path("cache");
    o.tokenizer_fingerprint = "bytes";
    o.vocab = VOCAB;
    o.progress = on_progress;
    o.seq_len = o.seq_len ? o.seq_len : LEN;
    built = 0;
    return dataset_open(&o, d, e);
}

static dataset *open_good(const char *name, const char *content, dataset_options o)
{
    dataset *d;
    pt_error e = {0};
    if (open_file(name, content, o, &d, &e))
        fail_msg("%s", e.text);
    return d;
}

static size_t put_id(char *out, int32_t id)
{
    static const char *const names[] = {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|end|>"};
    return id >= 256 ? (size_t)sprintf(out, "%s", names[id - 256]) : (size_t)sprintf(out, "%c", (char)id);
}

/* What window 0 learns: texts of targets that follow each other, each with '$' behind it. */
static void learns(const char *name, const char *content, dataset_options o, const char *want)
{
    dataset *d = open_good(name, content, o);
    int32_t ids[WIDE], targets[WIDE], first[WIDE];
    char got[2048];
    size_t n = 0;
    dataset_counts counts = {0};
    assert_int_equal(dataset_sample(d, 0, 1, &(dataset_row){ids, targets, first, NULL}, &counts, NULL), 0);
    const int length = o.seq_len ? (int)o.seq_len : LEN;
    for (int t = 0; t < length; t++) {
        if (targets[t] >= 0)
            n += put_id(got + n, targets[t]);
        if (targets[t] >= 0 && (t + 1 == length || targets[t + 1] < 0))
            got[n++] = '$';
    }
    got[n] = 0;
    assert_string_equal(got, want);
    dataset_close(d);
}

/* The text of window 0, to its last target. */
static void reads(const char *name, const char *content, dataset_options o, const char *want)
{
    dataset *d = open_good(name, content, o);
    int32_t ids[LEN], targets[LEN], first[LEN];
    char got[2048] = "";
    size_t n = 0;
    dataset_counts counts = {0};
    assert_int_equal(dataset_sample(d, 0, 1, &(dataset_row){ids, targets, first, NULL}, &counts, NULL), 0);
    for (int t = 0; t < counts.tokens; t++)
        n += put_id(got + n, ids[t]);
    if (strcmp(got, want))
        fail_msg("%s was read as\n%s\ninstead of\n%s", content, got, want);
    dataset_close(d);
}

static void refused(const char *name, const char *content, dataset_options o, const char *because)
{
    dataset *d;
    pt_error e = {0};
    assert_true(open_file(name, content, o, &d, &e) < 0);
    if (!strstr(e.text, because) || !strstr(e.text, name))
        fail_msg("the message should name %s and say \"%s\": %s", name, because, e.text);
}

#define USER(q) "{\"role\": \"user\", \"content\": \"" q "\"}"
#define REPLY(a) "{\"role\": \"assistant\", \"content\": \"" a "\"}"

static const dataset_options usual = {.seed = 3};

static void the_replies_of_every_format_are_learned(void **state)
{
    (void)state;
    const char *two = "{\"messages\": [" USER("q") ", " REPLY("one") ", " USER("r") ", " REPLY("two") "]}\n";
    learns("messages.jsonl", two, usual, "one<|im_end|>$two<|im_end|>$");
    learns("last.jsonl", two, (dataset_options){.train_on = PT_TRAIN_ON_LAST}, "two<|im_end|>$");
    learns("completion.jsonl", two, (dataset_options){.train_on = PT_TRAIN_ON_COMPLETION}, "two<|im_end|>$");
    learns("sharegpt.json",
           "[{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"one\"}]}]",
           usual, "one<|im_end|>$");
    learns("alpaca.json", "[{\"instruction\": \"i\", \"input\": \"x\", \"output\": \"o\", \"history\": [[\"a\", \"b\"]]}]", usual,
           "b<|im_end|>$o<|im_end|>$");
    learns("pair.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}", usual, "cd</s>$");
    learns("question.jsonl", "{\"question\": \"ab\", \"answer\": \"cd\"}", usual, "cd</s>$");
    learns("question_all.jsonl", "{\"question\": \"ab\", \"answer\": \"cd\"}", (dataset_options){.train_on = PT_TRAIN_ON_ALL},
           "ab\ncd</s>$");
    learns("question_text.jsonl", "{\"question\": \"ab\", \"answer\": \"cd\", \"instruction\": \"i\", \"output\": \"o\"}", usual,
           "o<|im_end|>$");
    learns("turns.jsonl", "{\"prompt\": [" USER("q") "], \"completion\": [" REPLY("a") "]}", usual, "a<|im_end|>\n$");
    learns("parts.jsonl",
           "{\"messages\": [" USER("q") ", {\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
           "\"text\", \"value\": \"b\"}]}]}", usual, "ab<|im_end|>$");
    learns("all.jsonl", "{\"prompt\": \"ab\", \"completion\": \"cd\"}", (dataset_options){.train_on = PT_TRAIN_ON_ALL}, "abcd</s>$");
    learns("pair.csv", "prompt,completion\r\n\"a,\"\"b\",c\r\n", usual, "c</s>$");
    learns("chat.csv", "messages\n\"[{\"\"role\"\": \"\"user\"\", \"\"content\"\": \"\"q\"\"}, {\"\"role\"\": \"\"assistant\"\", "
                       "\"\"content\"\": \"\"a\"\"}]\"\n",
           usual, "a<|im_end|>$");
    learns("texts.jsonl", "{\"text\": \"ab\"}", (dataset_options){.alone = true}, "ab</s>$");
}

/* Each record is read and learned as its own format says. */
static void conversations_and_prompts_may_be_mixed(void **state)
{
    (void)state;
    static const char all[] = "{\"prompt\": \"p\", \"completion\": \"b\"}\n{\"messages\": [" USER("q") ", " REPLY("a") ", " USER("r") ", "
                              REPLY("c") "]}\n{\"instruction\": \"i\", \"output\": \"o\"}\n"
                              "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"g\"}]}\n"
                              "{\"prompt\": [" USER("q") "], \"completion\": [" REPLY("t") "]}\n";
    const dataset_options wide = {.seed = 3, .seq_len = WIDE};
    learns("mix.jsonl", all, wide, "b</s>$a<|im_end|>$c<|im_end|>$o<|im_end|>$g<|im_end|>$t<|im_end|>\n$");
    learns("mix_last.jsonl", all, (dataset_options){.seq_len = WIDE, .train_on = PT_TRAIN_ON_LAST},
           "b</s>$c<|im_end|>$o<|im_end|>$g<|im_end|>$t<|im_end|>$");
}

/* All of a text is learned, whichever of the files comes first. */
static void texts_may_be_among_conversations(void **state)
{
    (void)state;
    const dataset_options wide = {.seed = 3, .seq_len = WIDE};
    learns("texts_among.jsonl", "{\"prompt\": \"p\", \"completion\": \"b\"}\n{\"text\": \"plain\"}\n{\"messages\": [" USER("q") ", "
           REPLY("a") "]}", wide, "b</s>plain</s>$a<|im_end|>$");
    learns("text_first.jsonl", "{\"text\": \"plain\"}\n{\"messages\": [" USER("q") ", " REPLY("a") "]}", wide, "plain</s>$a<|im_end|>$");
    scratch_folder("texts_first");
    scratch_text("texts_first/a.jsonl", "{\"text\": \"plain\"}\n{\"text\": \"more\"}\n");
    scratch_text("texts_first/b.jsonl", "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n");
    learns("texts_first", NULL, wide, "plain</s>more</s>$a<|im_end|>$");
}

#define TURN(role, text) "<|im_start|>" role "\n" text "<|im_end|>"
#define REPLIED(before, text) "<s>" before TURN("assistant", text)
#define BOTH(before) REPLIED(before, "a") REPLIED(before, "b")
#define ASKED(text) TURN("user", text) "\n"
#define TOLD(text) TURN("system", text) "\n"
#define CHOSEN "\"chosen\": \"a\", \"rejected\": \"b\"}"

/* The window's last id is a target alone. */
static void questions_are_read_under_all_their_names(void **state)
{
    (void)state;
    reads("dolly.jsonl", "{\"instruction\": \"i\", \"context\": \"c\", \"response\": \"r\", \"category\": \"x\"}", usual,
          "<s>" ASKED("i\nc") "<|im_start|>assistant\nr");
    reads("query.jsonl", "{\"query\": \"q\", \"response\": \"r\", \"history\": [[\"a\", \"b\"]]}", usual,
          "<s>" ASKED("a") TURN("assistant", "b") "\n" ASKED("q") "<|im_start|>assistant\nr");
    reads("input.jsonl", "{\"input\": \"q\", \"output\": \"r\"}", usual, "<s>" ASKED("q") "<|im_start|>assistant\nr");
    reads("orca.jsonl", "{\"system_prompt\": \"s\", \"question\": \"q\", \"response\": \"r\"}", usual,
          "<s>" TOLD("s") ASKED("q") "<|im_start|>assistant\nr");
    reads("index.csv", ",instruction,input,output\n0,i,x,o\n", usual, "<s>" ASKED("i\nx") "<|im_start|>assistant\no");
}

static void a_system_message_is_read_beside_every_format(void **state)
{
    (void)state;
    const char *want = "<s>" TOLD("s") ASKED("q") "<|im_start|>assistant\na";
    reads("system.jsonl", "{\"system\": \"s\", \"messages\": [" USER("q") ", " REPLY("a") "]}", usual, want);
    reads("system_first.jsonl", "{\"system\": \"other\", \"messages\": [{\"role\": \"system\", \"content\": \"s\"}, " USER("q") ", "
          REPLY("a") "]}", usual, want);
    reads("system_text.jsonl", "{\"system\": \"s\", \"prompt\": \"q\", \"completion\": \"a\"}", usual,
          "<s>" TOLD("s") ASKED("q") TURN("assistant", "a"));
    reads("system_none.jsonl", "{\"system\": \"\", \"prompt\": \"q\", \"completion\": \"a\"}", usual,
          "<s>" ASKED("q") TURN("assistant", "a"));
    reads("system_list.jsonl", "{\"system\": \"s\", \"prompt\": [" USER("q") "], \"completion\": [" REPLY("a") "]}", usual,
          "<s>" TOLD("s") ASKED("q") TURN("assistant", "a"));
    refused("system_number.jsonl", "{\"system\": 3, \"messages\": [" USER("q") "]}", usual, "\"system\" is an integer");
}

static void pairs_keep_their_prompt(void **state)
{
    (void)state;
    const dataset_options pairs = {.pairs = true};
    reads("text.jsonl", "{\"prompt\": \"q\", " CHOSEN, pairs, "<s>qa<s>qb");
    reads("question.jsonl", "{\"system\": \"s\", \"question\": \"q\", " CHOSEN, pairs, BOTH(TOLD("s") ASKED("q")));
    reads("instruction.jsonl", "{\"instruction\": \"q\", \"input\": \"x\", " CHOSEN, pairs, BOTH(ASKED("q\nx")));
    reads("system.jsonl", "{\"system\": \"s\", \"prompt\": \"q\", " CHOSEN, pairs, BOTH(TOLD("s") ASKED("q")));
    reads("turns.jsonl", "{\"system\": \"s\", \"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], " CHOSEN, pairs,
          BOTH(TOLD("s") ASKED("q")));
    reads("messages.jsonl", "{\"messages\": [" USER("q") "], " CHOSEN, pairs, BOTH(ASKED("q")));
    reads("objects.jsonl",
          "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}], \"chosen\": {\"from\": \"gpt\", \"value\": \"a\"}, "
          "\"rejected\": " REPLY("b") "}", pairs, BOTH(ASKED("q")));
    reads("prompt_list.jsonl", "{\"prompt\": [" USER("q") "], " CHOSEN, pairs, BOTH(ASKED("q")));
    reads("replies.jsonl", "{\"prompt\": \"q\", \"chosen\": [" REPLY("a") "], \"rejected\": [" REPLY("b") "]}", pairs, BOTH(ASKED("q")));
    reads("brackets.jsonl", "{\"prompt\": \"q\", \"chosen\": \"[1]\", \"rejected\": \"[2]\"}", pairs, "<s>q[1]<s>q[2]");
}

#define WHOLE "\"chosen\": [" USER("q") ", " REPLY("a") "], \"rejected\": [" USER("q") ", " REPLY("b") "]}"

/* As TRL takes it; the other keys repeat it. */
static void a_prompt_in_both_lists_is_read_from_them(void **state)
{
    (void)state;
    static const char *const beside[] = {"", "\"prompt\": \"q\", ", "\"prompt\": [" USER("q") "], ",
                                         "\"prompt\": \"q\", \"messages\": [" USER("q") ", " REPLY("a") "], ", "\"question\": \"q\", "};
    char record[600];
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(record, sizeof record, "{%s%s", beside[i], WHOLE);
        reads("whole.jsonl", record, (dataset_options){.pairs = true}, BOTH(ASKED("q")));
        dataset *d = open_good("whole.jsonl", record, (dataset_options){.pairs = true});
        assert_null(dataset_notice(d));
        dataset_close(d);
    }
    refused("apart.jsonl", "{\"chosen\": [" USER("q") ", " REPLY("a") "], \"rejected\": [" USER("r") ", " REPLY("b") "]}",
            (dataset_options){.pairs = true}, "line 1: there is no prompt");
}

static void notes(const char *name, const char *content, dataset_options o, const char *want)
{
    dataset *d = open_good(name, content, o);
    const char *said = dataset_notice(d);
    if (want ? !said || !strstr(said, want) : said != NULL)
        fail_msg("%s: %s", name, said ? said : "no note");
    dataset_close(d);
}

static void content_that_is_not_read_is_named(void **state)
{
    (void)state;
    const char *chat = "{\"context\": \"c\", \"messages\": [" USER("q") ", " REPLY("a") "], \"id\": \"one two three\"}\n";
    char twice[600];
    snprintf(twice, sizeof twice, "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n%s%s", chat, chat);
    notes("context.jsonl", twice, usual, "\"context\" (in 2 records)");
    notes("context.jsonl", twice, usual, "context.jsonl: line 2");
    notes("pair.jsonl", "{\"prompt\": \"z\", " WHOLE, (dataset_options){.pairs = true}, "\"prompt\" (in 1 record)");
    notes("tools.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\", \"tools\": [{}]}", usual, "\"tools\"");
    notes("list.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\", \"turns\": [" USER("other") "]}", usual, "\"turns\"");
    notes("long.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\", \"why\": \"This is a text of so many words that it must be one which "
          "someone has written to be read.\"}", usual, "\"why\"");
    notes("class.jsonl", "{\"text\": \"a b\", \"label\": 3}", (dataset_options){.alone = true}, "\"label\"");
    notes("stream.jsonl", "{\"text\": \"a b c d\", \"input\": \"x\"}", (dataset_options){.seq_len = 4}, "\"input\"");
    notes("metadata.jsonl",
          "{\"prompt\": \"q\", \"completion\": \"a\", \"question\": \" q \", \"source\": \"the web\", \"tools\": \"[]\", "
          "\"system\": null, \"context\": null, \"score\": 0.5, \"label\": true, \"response\": \"\"}", usual, NULL);
}

static void records_with_a_false_label_are_refused(void **state)
{
    (void)state;
    static const char *const labels[] = {"\"label\": false", "\"kto_tag\": false", "\"label\": 0", "\"label\": \"False\""};
    char content[600];
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        snprintf(content, sizeof content, "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": true}\n"
                 "{\"prompt\": \"q\", \"completion\": \"a\", %s}", labels[i]);
        refused("kto.jsonl", content, usual, "line 2: ");
        snprintf(content, sizeof content, "{\"messages\": [" USER("q") ", " REPLY("a") "], %s}", labels[i]);
        refused("kto_chat.jsonl", content, usual, "label");
    }
}

static void reasoning_in_parts_is_what_templates_read(void **state)
{
    (void)state;
    const char *parts = "{\"messages\": [" USER("q") ", {\"role\": \"assistant\", \"content\": [{\"type\": \"%s\", \"%s\": \"t\"}, "
                        "{\"type\": \"text\", \"text\": \"a\"}]}]}";
    char content[400], path[300];
    put(scratch_dir, "thinks.jinja",
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}<t>{{ m.reasoning_content }}</t>{% endif %}"
        "{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}");
    snprintf(path, sizeof path, "%s", scratch_path("thinks.jinja"));
    const dataset_options thinks = {.chat_template = path};
    snprintf(content, sizeof content, parts, "reasoning", "text");
    learns("reasoning.jsonl", content, thinks, "<t>t</t>a<|im_end|>$");
    snprintf(content, sizeof content, parts, "thinking", "thinking");
    learns("thinking.jsonl", content, thinks, "<t>t</t>a<|im_end|>$");
    refused("no_text.jsonl", "{\"messages\": [" USER("q") ", {\"role\": \"assistant\", \"content\": [{\"type\": \"reasoning\"}]}]}", usual,
            "line 1: message 2 has a part of type \"reasoning\"");
}

/* An end that is the padding token too is a target like any other, and padding none. */
static void windows_hold_whole_examples_that_begin_anew(void **state)
{
    (void)state;
    dataset *d = open_good("two.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n{\"prompt\": \"x\", \"completion\": \"yz\"}\n",
                           (dataset_options){.seq_len = 10});
    const int32_t want[] = {BOS, 'a', 'b', 'c', BOS, 'x', 'y', 'z', 0, 0}, targets[] = {-100, -100, 'c', EOS, -100, 'y', 'z', EOS,
        TARGET_PADDING, TARGET_PADDING};
    const int32_t starts[] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8};
    const float weigh[] = {0, 0, 0.5f, 0.5f, 0, 1 / 3.f, 1 / 3.f, 1 / 3.f, 0, 0};
    int32_t ids[10], out[10], first[10];
    float weights[10];
    dataset_counts counts = {0};
    assert_int_equal(dataset_windows(d), 1);
    assert_int_equal(dataset_sample(d, 0, 1, &(dataset_row){ids, out, first, weights}, &counts, NULL), 0);
    assert_memory_equal(ids, want, sizeof want);
    assert_memory_equal(out, targets, sizeof targets);
    assert_memory_equal(first, starts, sizeof starts);
    assert_memory_equal(weights, weigh, sizeof weigh);
    assert_true(counts.tokens == 8 && counts.learned == 5 && counts.examples == 2);
    assert_string_equal(dataset_summary(d), "format prompt: 2 of 2 records in 1 window, 80% full; 5 of 8 tokens (62%) are learned");
    dataset_close(d);
}

/* The examples of window w, each with '|' before it and '[' before what is learned. */
static void window_reads(dataset *d, uint64_t w, int64_t examples, const char *want)
{
    enum { MOST = 64 };
    int32_t ids[MOST] = {0}, targets[MOST] = {0}, first[MOST];
    char got[400];
    size_t n = 0;
    dataset_counts counts = {0};
    for (int t = 0; t < MOST; t++)
        first[t] = t;
    assert_int_equal(dataset_eval_window(d, w, &(dataset_row){ids, targets, first, NULL}, &counts, NULL), 0);
    assert_int_equal(counts.examples, examples);
    for (int t = 0; first[t] != t || ids[t]; t++) { /* to the padding */
        if (first[t] == t)
            got[n++] = '|';
        n += put_id(got + n, ids[t]);
        if (targets[t] >= 0 && (first[t] == t || targets[t - 1] < 0))
            got[n++] = '[';
        if (targets[t] >= 0 && first[t + 1] == t + 1)
            n += put_id(got + n, targets[t]);
    }
    got[n] = 0;
    assert_string_equal(got, want);
}

/* A label says which of a pair the reply is; in place of the other there is one id. Windows are there once more, each prompt with another
 * reply: of its window, or of another one, as far as there is room. */
static void labelled_replies_are_pairs_and_read_mismatched_too(void **state)
{
    (void)state;
    static const char three[] = "{\"prompt\": \"abcd\", \"completion\": \"c\", \"label\": true}\n"
                                "{\"prompt\": \"x\", \"completion\": \"yz\", \"label\": false}\n"
                                "{\"prompt\": \"q\", \"completion\": \"longreply\", \"kto_tag\": 1}\n";
    dataset_options o = {.seq_len = 40, .pairs = true, .labels = true, .mismatched = 1};
    dataset *d = open_good("labels.jsonl", three, o);
    assert_true(dataset_windows(d) == 1 && dataset_all_windows(d) == 2);
    window_reads(d, 0, 3, "|<s>abcd[c</s>|<s>|<s>|<s>x[yz</s>|<s>q[longreply</s>|<s>");
    window_reads(d, 1, 3, "|<s>abcd[longreply</s>|<s>x[c</s>|<s>q[yz</s>");
    window_reads(d, NO_WINDOW, 0, "");
    dataset_close(d);
    o.seq_len = 9;
    o.alone = true;
    o.mismatched = 2;
    d = open_good("labels.jsonl", three, o);
    assert_int_equal(dataset_windows(d), 3);
    window_reads(d, 2, 1, "|<s>q[longrep|<s>");
    window_reads(d, 3, 1, "|<s>abcd[yz</s>");
    window_reads(d, 4, 1, "|<s>x[c</s>");
    window_reads(d, 5, 1, "|<s>q[longrep");
    dataset_close(d);
    o.mismatched = 3;
    d = open_good("labels.jsonl", three, o);
    window_reads(d, 3, 1, "|<s>abcd[longr");
    dataset_close(d);
    refused("unlabelled.jsonl", "{\"prompt\": \"q\", \"completion\": \"a\", \"label\": 2}", o, "line 1: there is no label");
}

static void records_without_a_reply_are_counted_and_left_out(void **state)
{
    (void)state;
    dataset *d = open_good("some.jsonl", "{\"messages\": [" USER("q") "]}\n{\"messages\": [" USER("q") ", " REPLY("a") "]}\n", usual);
    assert_int_equal(dataset_windows(d), 1);
    assert_non_null(strstr(dataset_notice(d), "1 of 2 records has no token to learn"));
    assert_non_null(strstr(dataset_summary(d), "format messages: 1 of 2 records in 1 window, "));
    assert_non_null(strstr(dataset_summary(d), "full; 2 of "));
    dataset_close(d);
    refused("none.jsonl", "{\"messages\": [" USER("q") "]}\n", usual, "would be trained on");
    refused("none.jsonl", "{\"messages\": [" USER("q") "]}\n", (dataset_options){.evaluation = true}, "would be evaluated");
}

/* ---- weights ---- */

#define WEIGHED(role, text, key, weight) "{\"role\": \"" role "\", \"content\": \"" text "\", \"" key "\": " weight "}"
#define NO_REPLY WEIGHED("assistant", "one", "weight", "0")

static void a_reply_of_weight_0_is_not_trained_on(void **state)
{
    (void)state;
    const char *two = "{\"messages\": [" USER("q") ", " NO_REPLY ", " USER("r") ", " WEIGHED("assistant", "two", "weight", "1") "]}";
    learns("weights.jsonl", two, usual, "two<|im_end|>$");
    learns("weights_last.jsonl", two, (dataset_options){.train_on = PT_TRAIN_ON_LAST}, "two<|im_end|>$");
    learns("loss_weight.jsonl",
           "{\"messages\": [" USER("q") ", " REPLY("one") ", " USER("r") ", " WEIGHED("assistant", "two", "loss_weight", "false") "]}",
           usual, "one<|im_end|>$");
    learns("sharegpt_weight.jsonl",
           "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}, {\"from\": \"gpt\", \"value\": \"one\", \"weight\": 0.0}, "
           "{\"from\": \"human\", \"value\": \"r\"}, {\"from\": \"gpt\", \"value\": \"two\", \"weight\": null}]}", usual,
           "two<|im_end|>$");
    put(scratch_dir, "marks.jinja",
        "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}</s>{% endgeneration %}"
        "{% else %}{{ m.content }}{% endif %}{% endfor %}");
    learns("marks.jsonl", two, (dataset_options){.chat_template = scratch_path("marks.jinja")}, "two</s>$");
    put(scratch_dir, "split.jinja",
        "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}-{% generation %}</s>"
        "{% endgeneration %}{% endif %}{% endfor %}");
    refused("split.jsonl", two, (dataset_options){.chat_template = scratch_path("split.jinja")}, "marks 4 ranges for 2 replies");
}

static void a_weight_that_cannot_be_obeyed_is_refused(void **state)
{
    (void)state;
    refused("half.jsonl", "{\"messages\": [" USER("q") ", " WEIGHED("assistant", "a", "weight", "0.5") "]}", usual,
            "line 1: message 2: \"weight\" must be 0");
    refused("every.jsonl", "{\"messages\": [" USER("q") ", " NO_REPLY "]}", (dataset_options){.train_on = PT_TRAIN_ON_ALL},
            "message 2 has weight 0, but `train_on` all");
    refused("whole.jsonl", "{\"prompt\": [" USER("q") "], \"completion\": [" NO_REPLY ", " REPLY("two") "]}", usual,
            "message 2 has weight 0, but a completion is trained on as a whole");
    refused("nothing_left.jsonl", "{\"messages\": [" USER("q") ", " NO_REPLY "]}", usual, "would be trained on");
    const char *pair = "{\"prompt\": [" USER("q") "], \"chosen\": [" NO_REPLY "], \"rejected\": [" REPLY("b") "]}";
    char path[300];
    snprintf(path, sizeof path, "%s: line 1: chosen: message 2 has weight 0", scratch_path("pair.jsonl"));
    refused("pair.jsonl", pair, (dataset_options){.pairs = true}, path);
}

static void a_weight_that_nothing_obeys_is_told(void **state)
{
    (void)state;
    dataset *d = open_good("odd.jsonl",
                           "{\"messages\": [" WEIGHED("user", "q", "weight", "0") ", " REPLY("a") "]}\n"
                           "{\"messages\": [" WEIGHED("user", "q", "weight", "1") ", " REPLY("a") "]}\n"
                           "{\"messages\": [" USER("q") ", " REPLY("a") "], \"weight\": 0.3}\n", usual);
    assert_non_null(strstr(dataset_notice(d), "2 of 3 records have a weight that has no effect"));
    assert_non_null(strstr(dataset_notice(d), "odd.jsonl: line 2: "));
    dataset_close(d);
}

/* ---- what teaches nothing ---- */

#define EXAMPLES PT_FIXTURES "/../../examples/"

static void the_templates_for_base_models_mark_replies(void **state)
{
    (void)state;
    const char *two = "{\"messages\": [" USER("q") ", " REPLY("one") ", " USER("r") ", " REPLY("two") "]}\n";
    learns("chatml.jsonl", two, (dataset_options){.chat_template = EXAMPLES "chatml.jinja"}, "one<|im_end|>$two<|im_end|>$");
    learns("turns.jsonl", two, (dataset_options){.chat_template = EXAMPLES "turns.jinja"}, "one</s>$two</s>$");
}

static void a_template_that_fails_names_file_line_and_reply(void **state)
{
    (void)state;
    const char *good = "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n", *bad = "{\"messages\": [" USER("boom") ", " REPLY("a") "]}\n";
    char both[400], path[512];
    snprintf(path, sizeof path, "%s", scratch_path("raises.jinja"));
    put(scratch_dir, "raises.jinja", BYTE_MODEL_TEMPLATE "{% if 'boom' in messages[-1].content + messages[0].content %}\n"
                                     "{{ raise_exception('no boom') }}{% endif %}");
    dataset_options o = {.chat_template = path};
    snprintf(both, sizeof both, "%s%s", good, bad);
    refused("raises.jsonl", both, o, "raises.jsonl: line 2: ");
    refused("raises.jsonl", both, o, "raises.jinja, line 5: the template refuses: no boom");
    o.pairs = true;
    const char *pair = "{\"prompt\": [" USER("q") "], \"chosen\": [" REPLY("a") "], \"rejected\": [" REPLY("boom") "]}\n";
    refused("raises_pair.jsonl", pair, o, "raises_pair.jsonl: line 1: rejected: ");
}

static void pairs_of_equal_replies_are_told(void **state)
{
    (void)state;
    dataset *d = open_good("same.jsonl",
                           "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
                           "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"a\"}\n", (dataset_options){.pairs = true});
    assert_non_null(strstr(dataset_notice(d), "1 of 2 records has the same chosen and rejected reply"));
    assert_non_null(strstr(dataset_notice(d), "same.jsonl: line 2: "));
    dataset_close(d);
    refused("all_same.jsonl", "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"a\"}\n", (dataset_options){.pairs = true},
            "the same in all records");
    d = open_good("other.jsonl", "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"ab\"}\n", (dataset_options){.pairs = true});
    assert_null(dataset_notice(d));
    dataset_close(d);
}

/* The last message is a reply, however far both lists are alike. */
static void lists_with_their_prompt_have_a_reply_each(void **state)
{
    (void)state;
    dataset *d = open_good("lists.jsonl",
                           "{\"chosen\": [" USER("q") ", " REPLY("a") "], \"rejected\": [" USER("q") ", " REPLY("b") "]}\n"
                           "{\"chosen\": [" USER("q") ", " REPLY("a") "], \"rejected\": [" USER("q") ", " REPLY("a") "]}\n"
                           "{\"chosen\": [" USER("q") ", " REPLY("a") "], \"rejected\": [" USER("q") ", " REPLY("a") ", " USER("r") ", "
                           REPLY("b") "]}\n", (dataset_options){.pairs = true});
    assert_non_null(strstr(dataset_notice(d), "1 of 3 records has the same chosen and rejected reply"));
    assert_non_null(strstr(dataset_notice(d), "lists.jsonl: line 2: "));
    dataset_close(d);
    refused("list_text.jsonl", "{\"prompt\": \"q\", \"chosen\": [" REPLY("a") "], \"rejected\": \"b\"}", (dataset_options){.pairs = true},
            "\"chosen\" is a list and \"rejected\" a string");
}

static void count_notice(void *arg, const char *sentence) { ++*(int *)arg; }

/* Of data that are read twice, to train and to evaluate. */
static void what_was_told_is_not_told_again(void **state)
{
    (void)state;
    int alone = 0, again = 0, other = 0;
    const char *same = "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"b\"}\n"
                       "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"a\"}\n";
    dataset *d = open_good("twice.jsonl", same, (dataset_options){.pairs = true});
    dataset *e = open_good("else.jsonl", same, (dataset_options){.pairs = true});
    dataset_tell(d, NULL, "", count_notice, &alone);
    dataset_tell(d, d, "", count_notice, &again);
    dataset_tell(e, d, "", count_notice, &other);
    assert_true(alone == 1 && again == 0 && other == 1);
    dataset_close(d);
    dataset_close(e);
}

/* A template given for a model whose tokenizer does not know what it writes; of the model's own nothing is said. */
static void a_template_of_another_model_is_told(void **state)
{
    (void)state;
    static const char foreign[] = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
                                  "{% if add_generation_prompt %}<|assistant|>{% endif %}";
    const char *chat = "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n";
    put(scratch_dir, "foreign.jinja", foreign);
    put(scratch_dir, "fits.jinja", "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}");
    dataset *d = open_good("foreign.jsonl", chat, (dataset_options){.chat_template = scratch_path("foreign.jinja")});
    assert_non_null(dataset_notice(d));
    assert_non_null(strstr(dataset_notice(d), "foreign.jinja: the template writes <|user|>, for which the tokenizer has no token"));
    dataset_close(d);
    d = open_good("fits.jsonl", chat, (dataset_options){.chat_template = scratch_path("fits.jinja")});
    assert_null(dataset_notice(d));
    dataset_close(d);
    put(scratch_dir, "chat_template.jinja", foreign);
    d = open_good("own.jsonl", chat, (dataset_options){.chat_template = scratch_path("foreign.jinja")});
    assert_null(dataset_notice(d));
    dataset_close(d);
    put(scratch_dir, "chat_template.jinja", BYTE_MODEL_TEMPLATE);
}

/* The template ends replies with an end-of-text token that the tokenizer reads as text; one that ends them otherwise is as good. */
static void an_end_that_is_read_as_text_is_told(void **state)
{
    (void)state;
    const char *chat = "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n";
    put(scratch_dir, "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"[stop]\"}");
    put(scratch_dir, "ends.jinja", "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}");
    put(scratch_dir, "marks.jinja", "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}");
    dataset *d = open_good("ends.jsonl", chat, (dataset_options){.chat_template = scratch_path("ends.jinja")});
    assert_non_null(dataset_notice(d));
    assert_non_null(strstr(dataset_notice(d), "the template ends replies with [stop], which the tokenizer does not recognize"));
    dataset_close(d);
    d = open_good("marks.jsonl", chat, (dataset_options){.chat_template = scratch_path("marks.jinja")});
    assert_null(dataset_notice(d));
    dataset_close(d);
    put(scratch_dir, "tokenizer_config.json", "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
}

/* A tokenizer that knows a few letters: of the template's tokens it has none. */
static void text_without_tokens_is_told(void **state)
{
    (void)state;
    static const char few[] = "{\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"vocab\": {\"<unk>\": 0, \"a\": 1, \"b\": 2, "
                              "\"user\": 3, \"\\n\": 4, \" \": 5}, \"merges\": []}, \"added_tokens\": [{\"id\": 6, \"content\": "
                              "\"<|im_end|>\", \"special\": true}]}";
    tokenizer *bytes = the_tokenizer;
    pt_error e = {0};
    if (tokenizer_open_memory("few", few, strlen(few), &the_tokenizer, &e))
        fail_msg("%s", e.text);
    dataset *d = open_good("unknown.jsonl", "{\"messages\": [" USER("ab") ", " REPLY("a") "]}\n", usual);
    const char *said = dataset_notice(d);
    assert_non_null(said);
    if (!strstr(said, "are the unknown token") || !strstr(said, "is in \"<|im_start|>user\"") || !strstr(said, "unknown.jsonl: line 1)") ||
        !strstr(said, "give a `chat_template`"))
        fail_msg("%s", said);
    dataset_close(d);
    char text[2 * 600 + 64] = "";
    for (int i = 0; i < 600; i++)
        strcat(text, "a ");
    strcat(text, "ab\303\251\302\205b ab");
    d = open_good("unknown.txt", text, usual);
    if (!strstr(dataset_notice(d), "2 of 12") || !strstr(dataset_notice(d), "is in \"ab\303\251?b\"") ||
        !strstr(dataset_notice(d), "use a model whose tokenizer fits"))
        fail_msg("%s", dataset_notice(d));
    dataset_close(d);
    d = open_good("known.txt", "ab ab ab ab", (dataset_options){.seq_len = 4});
    assert_true(!dataset_notice(d) || !strstr(dataset_notice(d), "unknown token"));
    dataset_close(d);
    tokenizer_close(the_tokenizer);
    the_tokenizer = bytes;
}

static void bad_records_are_named(void **state)
{
    (void)state;
    refused("empty.jsonl", "{\"messages\": []}\n", usual, "line 1: the conversation is empty");
    refused("role.jsonl", "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n{\"messages\": [{\"role\": \"gpt\", \"content\": \"\"}]}",
            usual,
            "line 2: message 1: unknown role \"gpt\": write \"assistant\"");
    refused("from.jsonl", "{\"conversations\": [{\"from\": \"me\", \"value\": \"\"}]}", usual, "unknown \"from\": \"me\"");
    refused("image.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}", usual, "type \"image\"");
    refused("number.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", usual, "\"content\" is an integer");
    refused("spelling.jsonl", "{\"messages\": [" USER("q") ", {\"role\": \"Assistant \", \"content\": \"\"}]}", usual,
            "message 2: unknown role \"Assistant \": write \"assistant\"");
    refused("nothing.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": null}, " REPLY("a") "]}", usual,
            "message 1 (user) has no \"content\"");
    refused("calls.jsonl", "{\"messages\": [" USER("q") ", {\"role\": \"assistant\", \"tool_calls\": [\"f\"]}]}", usual,
            "message 2: one of its \"tool_calls\" is a string");
    refused("list.jsonl", "[{\"messages\": []}]", usual, "line 1: a list instead of an object");
    refused("lines.jsonl", "[\n{\"messages\": []}\n]", usual, "name a file that is one list of objects .json");
    refused("pretty.jsonl", "{\n\"messages\": []\n}", usual, "write each record as one line");
    refused("string.jsonl", "{\"messages\": \"hello\"}", usual, "line 1: \"messages\" is a string, but a list is needed");
    refused("window.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}", (dataset_options){.seq_len = 1},
            "in the part that fits a window of 1 token;");
    refused("wide.jsonl", "\xff\xfe{", usual, "this is UTF-16");
    refused("semicolons.csv", "prompt;completion\na;b\n", usual, "line 1, field 1: one name with semicolons");
    refused("mixed.jsonl", "{\"text\": \"a\"}\n{\"chosen\": \"a\", \"rejected\": \"b\"}", usual, "line 2: the object has no \"text\"");
    refused("mixed_no_text.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"text\": \"\"}", usual, "line 2: the text is empty");
    refused("mixed_label.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": true}\n{\"text\": \"a\", \"label\": true}",
            (dataset_options){.labels = true}, "line 2: a record with \"text\"");
    refused("mixed_pair.jsonl", "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n{\"prompt\": \"a\", \"chosen\": \"b\", "
            "\"rejected\": \"c\"}", usual, "line 2: a record with \"chosen\"");
    refused("mixed_asked.jsonl", "{\"messages\": [" USER("q") ", " REPLY("a") "]}\n{\"prompt\": \"a\", \"completion\": \"b\"}",
            (dataset_options){.format = PT_DATA_MESSAGES}, "line 2: a record with \"prompt\"");
    refused("keys.jsonl", "{\"ask\": \"a\", \"reply\": \"b\"}", usual, "its keys: ask, reply");
    refused("answer.jsonl", "{\"question\": \"a\", \"answer\": 3}", usual, "\"answer\" is an integer");
    refused("pair2.jsonl", "{\"prompt\": 3, \"completion\": [" REPLY("b") "]}", usual, "\"prompt\" is an integer");
    refused("names2.csv", "a,\n1,2\n", usual, "line 1, field 2: a column has no name");
    refused("index2.csv", ",text\nb,c\n", usual, "line 2, field 1: a column has no name");
    refused("output.json", "[{\"instruction\": \"a\", \"output\": 3}]", usual, "\"output\" is an integer");
    refused("names.csv", "a,a\n1,2\n", usual, "two columns have this name");
    refused("fields.csv", "prompt,completion\na,b,c\n", usual, "line 2: 3 fields");
    refused("quote.csv", "prompt,completion\na,\"b\n", usual, "line 2: the quote that begins a field is never closed");
    refused("utf8.csv", "prompt,completion\na,\xff\n", usual, "line 2, field 2: this is not UTF-8");
    refused("json.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": oops}", usual, "line 2, column 15: not valid JSON");
    refused("format.jsonl", "{\"text\": \"a\"}", (dataset_options){.format = PT_DATA_MESSAGES}, "but `data_format` is messages");
    refused("long.jsonl", "{\"prompt\": \"a\", \"completion\": \"bcdefgh\"}", (dataset_options){.seq_len = 4, .longer = PT_LONG_ERROR},
            "line 1: an example has 10 tokens, but a window has 4: give `seq_len` 9");
    refused("text.jsonl", "{\"text\": \"abcdefgh\"}", (dataset_options){.seq_len = 4, .longer = PT_LONG_ERROR, .alone = true},
            "text.jsonl: an example has ");
    refused("longer.jsonl",
            "{\"prompt\": \"a\", \"completion\": \"bcd\"}\n"
            "{\"prompt\": \"a\", \"completion\": \"bcdefgh\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}",
            (dataset_options){.seq_len = 4, .longer = PT_LONG_ERROR},
            "line 2: an example has 10 tokens, but a window has 4 (2 are longer than that; this is the longest): give `seq_len` 9");
}

#define TOOLED(record, arguments)                                                                                                          \
    "{\"messages\": [" USER("q") ", {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {"             \
    "\"name\": \"f\", \"arguments\": " arguments "}}]}]" record "}\n"

/* As Parquet stores keys that only other records have. */
static void nulls_of_tools_are_told(void **state)
{
    (void)state;
    static const char *const bad[] = {TOOLED("", "{\"a\": null, \"b\": 1}"),
                                      TOOLED(", \"tools\": [{\"parameters\": {\"properties\": {\"a\": null}}}]", "{}")};
    char two[1024];
    for (int i = 0; i < 2; i++) {
        snprintf(two, sizeof two, "%s%s", TOOLED("", "{\"a\": 1}"), bad[i]);
        dataset *d = open_good("nulls.jsonl", two, (dataset_options){.seq_len = 400});
        assert_non_null(strstr(dataset_notice(d), "1 of 2 records has null"));
        assert_non_null(strstr(dataset_notice(d), "nulls.jsonl: line 2"));
        dataset_close(d);
    }
    dataset *d = open_good("defaults.jsonl", TOOLED(", \"tools\": [{\"default\": null, \"enum\": [null]}]", "{\"a\": [null]}"), usual);
    assert_null(dataset_notice(d));
    dataset_close(d);
}

static void special_tokens_in_texts_may_be_plain_text(void **state)
{
    (void)state;
    const char *pair = "{\"prompt\": \"a\", \"completion\": \"b</s>c\"}";
    learns("plain.jsonl", pair, (dataset_options){.plain = true}, "b</s>c</s>$");
    for (int plain = 0; plain < 2; plain++) { /* the same cache folder */
        dataset *d = open_good("plain.jsonl", pair, (dataset_options){.plain = plain});
        assert_int_equal(dataset_tokens(d), plain ? 8 : 5);
        dataset_close(d);
    }
}

static void keys_may_have_other_names(void **state)
{
    (void)state;
    static const char *const none[] = {"prompt", "=a", "a=", "a=b,a=c", "a=b,c=b", "a=b,,"};
    column_names c;
    pt_error e = {0};
    assert_int_equal(columns_parse("prompt=query,completion=response", &c, NULL), 0);
    learns("named.jsonl", "{\"query\": \"a\", \"response\": \"b\", \"n\": 1}", (dataset_options){.columns = &c}, "b</s>$");
    learns("named.csv", "response,query\nb,a\n", (dataset_options){.columns = &c}, "b</s>$");
    refused("named.jsonl", "{\"query\": \"a\"}", (dataset_options){.columns = &c}, "the format of this record is unknown");
    refused("named.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\"}\n", (dataset_options){.columns = &c},
            "none of the first 1 records has the key \"query\", which `columns` names \"prompt\"");
    refused("named.txt", "text", (dataset_options){.columns = &c}, "the data have none");
    assert_int_equal(columns_parse("prompt=completion,completion=prompt", &c, NULL), 0);
    learns("named.jsonl", "{\"prompt\": \"b\", \"completion\": \"a\"}", (dataset_options){.columns = &c}, "b</s>$");
    assert_int_equal(columns_parse("text=content", &c, NULL), 0);
    dataset *d = open_good("named.jsonl", "{\"content\": \"abcdefg\", \"text\": 1}", (dataset_options){.seq_len = 4, .columns = &c});
    assert_int_equal(dataset_tokens(d), 9);
    dataset_close(d);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(columns_parse(none[i], &c, &e), PT_USAGE);
    assert_int_equal(columns_parse(NULL, &c, NULL), 0);
    assert_int_equal(c.n, 0);
}

/* Evenly spread, the first included; the same records of .csv and .jsonl, and as documents of text. */
static void a_share_of_the_records_may_be_taken(void **state)
{
    (void)state;
    static const struct { const char *share; int records; } all[] = {{":0.3", 3}, {":0.25", 3}, {":1", 10}, {":.05", 1}, {"", 10}};
    char lines[600] = "", rows[600] = "prompt,completion\n", path[64];
    for (int i = 0; i < 10; i++) {
        snprintf(lines + strlen(lines), 60, "{\"prompt\": \"a\", \"completion\": \"%d\"}\n", i);
        snprintf(rows + strlen(rows), 60, "a,%d\n", i);
    }
    dataset_close(open_good("share.jsonl", lines, (dataset_options){.seq_len = 4}));
    dataset_close(open_good("share.csv", rows, (dataset_options){.seq_len = 4}));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(path, sizeof path, "share.jsonl%s", all[i].share);
        dataset *d = open_good(path, NULL, (dataset_options){.seq_len = 4});
        char fingerprint[64], want[32];
        snprintf(want, sizeof want, "of %d record", all[i].records);
        if (!strstr(dataset_summary(d), want))
            fail_msg("%s: no \"%s\" in \"%s\"", path, want, dataset_summary(d));
        snprintf(fingerprint, sizeof fingerprint, "%s", dataset_fingerprint(d));
        dataset_close(d);
        snprintf(path, sizeof path, "share.csv%s", all[i].share);
        d = open_good(path, NULL, (dataset_options){.seq_len = 4});
        assert_string_equal(dataset_fingerprint(d), fingerprint);
        dataset_close(d);
    }
}

static void the_longest_example_is_named(void **state)
{
    (void)state;
    const char *three = "{\"prompt\": \"a\", \"completion\": \"bcd\"}\n{\"prompt\": \"a\", \"completion\": \"bcdefgh\"}\n"
                        "{\"prompt\": \"a\", \"completion\": \"b\"}";
    const char *pair = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
                       "{\"prompt\": \"a\", \"chosen\": \"bcd\", \"rejected\": \"cd\"}";
    const struct { const char *content, *want; dataset_options o; } all[] = {
        {three, "line 2, needs `seq_len` 9", {.seq_len = 4}},
        {three, "line 2, needs `seq_len` 9", {.seq_len = 4, .longer = PT_LONG_DROP}},
        {pair, "line 2, needs `seq_len` 9", {.seq_len = 6, .pairs = true}},
        {"{\"text\": \"abcdefg\"}", "named.jsonl, needs `seq_len` 8", {.seq_len = 4, .alone = true}},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        dataset *d = open_good("named.jsonl", all[i].content, all[i].o);
        if (!strstr(dataset_notice(d), all[i].want) || !strstr(dataset_notice(d), "named.jsonl"))
            fail_msg("case %zu: no \"%s\" in \"%s\"", i, all[i].want, dataset_notice(d));
        dataset_close(d);
    }
    refused("none.jsonl", three, (dataset_options){.seq_len = 1, .longer = PT_LONG_DROP}, "line 2, needs `seq_len` 9");
}

static void a_cache_is_used_again_for_the_same_rules_alone(void **state)
{
    (void)state;
    const char *chat = "{\"messages\": [" USER("q") ", " REPLY("a") ", " USER("r") ", " REPLY("b") "]}\n";
    char fingerprint[33];
    dataset *d = open_good("cached.jsonl", chat, usual);
    assert_true(built);
    strcpy(fingerprint, dataset_fingerprint(d));
    dataset_close(d);
    d = open_good("cached.jsonl", chat, usual); /* the file is written again, within the same second or not */
    assert_string_equal(dataset_fingerprint(d), fingerprint);
    dataset_close(d);
    const char *paths[] = {scratch_path("cached.jsonl")};
    dataset_options o = {.paths = paths, .paths_n = 1, .tokenizer = the_tokenizer, .model_dir = scratch_dir,
                         .cache_dir = scratch_path("cache"),
                         .tokenizer_fingerprint = "bytes", .vocab = VOCAB, .seq_len = LEN, .progress = on_progress, .seed = 3};
    for (int turn = 0; turn < 4; turn++) { /* as it was; another mask; another template; as it was */
        pt_error e = {0};
        o.train_on = turn == 1 ? PT_TRAIN_ON_LAST : PT_TRAIN_ON_AUTO;
        if (turn == 2)
            put(scratch_dir, "chat_template.jinja", BYTE_MODEL_TEMPLATE " ");
        built = 0;
        if (dataset_open(&o, &d, &e))
            fail_msg("%s", e.text);
        assert_int_equal(built, turn > 0 && turn < 3);
        dataset_close(d);
    }
    put(scratch_dir, "chat_template.jinja", BYTE_MODEL_TEMPLATE);
}

static int open_all(void **state)
{
    (void)state;
    pt_error e = {0};
    scratch_make();
    put_byte_model(scratch_dir, 256, true);
    return tokenizer_open(scratch_dir, &the_tokenizer, &e);
}

static int close_all(void **state)
{
    (void)state;
    tokenizer_close(the_tokenizer);
    scratch_remove();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_are_read_under_all_their_names), cmocka_unit_test(a_system_message_is_read_beside_every_format),
        cmocka_unit_test(pairs_keep_their_prompt), cmocka_unit_test(conversations_and_prompts_may_be_mixed),
        cmocka_unit_test(texts_may_be_among_conversations),
        cmocka_unit_test(labelled_replies_are_pairs_and_read_mismatched_too), cmocka_unit_test(a_prompt_in_both_lists_is_read_from_them),
        cmocka_unit_test(content_that_is_not_read_is_named), cmocka_unit_test(records_with_a_false_label_are_refused),
        cmocka_unit_test(reasoning_in_parts_is_what_templates_read),
        cmocka_unit_test(the_replies_of_every_format_are_learned), cmocka_unit_test(windows_hold_whole_examples_that_begin_anew),
        cmocka_unit_test(records_without_a_reply_are_counted_and_left_out), cmocka_unit_test(a_reply_of_weight_0_is_not_trained_on),
        cmocka_unit_test(what_was_told_is_not_told_again),
        cmocka_unit_test(a_weight_that_cannot_be_obeyed_is_refused), cmocka_unit_test(a_weight_that_nothing_obeys_is_told),
        cmocka_unit_test(the_templates_for_base_models_mark_replies),
        cmocka_unit_test(a_template_that_fails_names_file_line_and_reply),
        cmocka_unit_test(pairs_of_equal_replies_are_told), cmocka_unit_test(lists_with_their_prompt_have_a_reply_each),
        cmocka_unit_test(an_end_that_is_read_as_text_is_told),
        cmocka_unit_test(text_without_tokens_is_told),
        cmocka_unit_test(a_template_of_another_model_is_told),
        cmocka_unit_test(bad_records_are_named), cmocka_unit_test(the_longest_example_is_named),
        cmocka_unit_test(keys_may_have_other_names), cmocka_unit_test(a_share_of_the_records_may_be_taken),
        cmocka_unit_test(special_tokens_in_texts_may_be_plain_text), cmocka_unit_test(nulls_of_tools_are_told),
        cmocka_unit_test(a_cache_is_used_again_for_the_same_rules_alone)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
