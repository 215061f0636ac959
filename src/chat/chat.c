#include "chat/chat.h"

#include "text/buffer.h"

#include <stdlib.h>
#include <string.h>

typedef struct chat_call {
    const chat_template *template;
    const tokenizer *tokenizer;
    encoder *encoder;
    json_t *variables;
    const chat_wish *wish;
    chat_tokens *out;
    pt_error *error;
} chat_call;

static size_t common(const text_buffer *x, const text_buffer *y)
{
    size_t n = 0;
    while (n < x->n && n < y->n && x->bytes[n] == y->bytes[n])
        n++;
    return n;
}

/* ---- where the replies are ---- */

static int render(const chat_call *c, const json_t *variables, chat_rendering *out)
{
    int failed = chat_template_render(c->template, variables, c->wish->now, out, c->error);
    return failed ? pt_error_prefix(c->error, "%.300s", c->wish->where) : 0;
}

/* The first n messages, with or without the prompt for a reply. */
static int render_first(const chat_call *c, size_t n, bool prompt, chat_rendering *out)
{
    json_t *all = json_object_get(c->variables, "messages"), *some = json_array(), *variables = json_copy(c->variables);
    for (size_t i = 0; i < n; i++)
        json_array_append(some, json_array_get(all, i));
    json_object_set_new(variables, "messages", some);
    json_object_set_new(variables, "add_generation_prompt", json_boolean(prompt));
    int failed = render(c, variables, out);
    json_decref(variables);
    return failed;
}

static bool is_reply(const chat_call *c, size_t i)
{
    const char *role = json_string_value(json_object_get(json_array_get(json_object_get(c->variables, "messages"), i), "role"));
    return role && !strcmp(role, "assistant");
}

static bool is_special(const tokenizer *t, uint32_t id)
{
    const char *bytes;
    size_t shown = 0, hidden = 0;
    pt_error ignored;
    return !tokenizer_id_bytes(t, id, false, false, &bytes, &shown, &ignored) &&
           !tokenizer_id_bytes(t, id, false, true, &bytes, &hidden, &ignored) && shown && !hidden;
}

/* The special token with which a text begins, after white space: where it ends, or 0. */
static int first_special(const chat_call *c, const char *s, size_t n, size_t *behind)
{
    enum { LONGEST = 256 };
    id_list ids = {0};
    size_t blank = 0, length = 0;
    const char *bytes;
    *behind = 0;
    while (blank < n && strchr(" \t\r\n", s[blank]) && s[blank])
        blank++;
    size_t looked = n - blank < LONGEST ? n - blank : LONGEST;
    while (looked < n - blank && (s[blank + looked] & 0xc0) == 0x80)
        looked--;
    int failed = encoder_run(c->encoder, s + blank, looked, 0, &ids, c->error);
    if (!failed && ids.n && is_special(c->tokenizer, ids.ids[0])) {
        failed = tokenizer_id_bytes(c->tokenizer, ids.ids[0], false, false, &bytes, &length, c->error);
        *behind = blank + length;
    }
    id_list_free(&ids);
    return failed;
}

typedef struct reply_search {
    chat_rendering prompted, with, other; /* up to a reply and its prompt; the whole with two other replies */
    const char *token;                    /* that ended another reply, in the whole; NULL: none is known */
    size_t token_n;
} reply_search;

static int fail_reply(const chat_call *c, size_t i, const char *what)
{
    return pt_fail(c->error, PT_FAILED,
                   "%.300s: %s of the reply in message %zu cannot be found, because the template writes the reply differently within the "
                   "conversation: mark the replies with {%% generation %%} in a copy of the template and give it with `chat_template`",
                   c->wish->where, what, i + 1);
}

/* The whole conversation with `content` as reply i. */
static int render_other(const chat_call *c, size_t i, const char *content, chat_rendering *out)
{
    json_t *variables = json_copy(c->variables), *messages = json_copy(json_object_get(variables, "messages"));
    json_t *reply = json_copy(json_array_get(messages, i));
    const bool parts = json_is_array(json_object_get(reply, "content"));
    json_object_set_new(reply, "content", parts ? json_pack("[{s:s, s:s}]", "type", "text", "text", content) : json_string(content));
    json_array_set_new(messages, i, reply);
    json_object_set_new(variables, "messages", messages);
    json_object_set_new(variables, "add_generation_prompt", json_false());
    int failed = render(c, variables, out);
    json_decref(variables);
    return failed;
}

static size_t common_end(const text_buffer *x, const text_buffer *y)
{
    size_t n = 0;
    while (n < x->n && n < y->n && x->bytes[x->n - 1 - n] == y->bytes[y->n - 1 - n])
        n++;
    return n;
}

static bool has_calls(const chat_call *c, size_t i)
{
    return json_array_size(json_object_get(json_array_get(json_object_get(c->variables, "messages"), i), "tool_calls")) > 0;
}

/* *start: where the prompt for it ends, or what stands before any reply here. */
static int start_of_reply(const chat_call *c, reply_search *s, size_t i, size_t *start)
{
    const text_buffer *whole = &c->out->rendering.text;
    int failed = render_first(c, i, true, &s->prompted);
    if (failed)
        return failed;
    *start = s->prompted.text.n;
    if (common(&s->prompted.text, whole) == *start)
        return 0;
    *start = common(&s->with.text, &s->other.text);
    return common(&s->with.text, whole) >= *start ? 0 : fail_reply(c, i, "the start");
}

/* Of a reply without tool calls: what follows any reply here is how the whole ends; a special token in front of that ends the reply.
 * *end stays where that is not so. */
static int end_by_rest(const chat_call *c, reply_search *s, size_t start, size_t *end)
{
    const text_buffer *whole = &c->out->rendering.text;
    const size_t rest = common_end(&s->with.text, &s->other.text);
    size_t behind;
    if (common_end(&s->with.text, whole) < rest || whole->n - rest < start)
        return 0;
    int failed = first_special(c, whole->bytes + whole->n - rest, rest, &behind);
    if (failed || !behind)
        return failed;
    *end = whole->n - rest + behind;
    s->token = whole->bytes + whole->n - rest;
    s->token_n = behind;
    return 0;
}

/* Where the conversation up to and with the reply ends, if that is how the whole begins; its last special token, with white space behind
 * it alone, ends the reply. */
static int end_by_prefix(const chat_call *c, reply_search *s, size_t i, size_t start, size_t *end)
{
    const text_buffer *whole = &c->out->rendering.text;
    int failed = render_first(c, i + 1, false, &s->prompted);
    const size_t n = s->prompted.text.n;
    if (failed || n < start || common(&s->prompted.text, whole) < n)
        return failed;
    size_t at = n;
    *end = n;
    while (at > start && strchr(" \t\r\n", whole->bytes[at - 1]) && whole->bytes[at - 1])
        at--;
    for (size_t from = at; from-- > start && at - from < 64;) {
        size_t behind;
        if ((whole->bytes[from] & 0xc0) == 0x80)
            continue;
        if ((failed = first_special(c, whole->bytes + from, at - from, &behind)))
            return failed;
        if (behind == at - from) {
            *end = at;
            return 0;
        }
    }
    return 0;
}

static int end_of_reply(const chat_call *c, reply_search *s, size_t i, size_t start, size_t *end)
{
    const text_buffer *whole = &c->out->rendering.text;
    *end = SIZE_MAX;
    int failed = has_calls(c, i) ? 0 : end_by_rest(c, s, start, end);
    if (!failed && *end == SIZE_MAX)
        failed = end_by_prefix(c, s, i, start, end);
    if (failed || *end != SIZE_MAX)
        return failed;
    const char *found = s->token ? memmem(whole->bytes + start, whole->n - start, s->token, s->token_n) : NULL;
    if (!found)
        return fail_reply(c, i, "the end");
    *end = (size_t)(found - whole->bytes) + s->token_n;
    return 0;
}

static int render_others(const chat_call *c, reply_search *s, size_t i, size_t *start)
{
    int failed = render_other(c, i, "q1w", &s->with);
    if (!failed)
        failed = render_other(c, i, "z2k", &s->other);
    return failed ? failed : start_of_reply(c, s, i, start);
}

/* The token that ends the first reply without tool calls: of those with calls it may be needed before. */
static int learn_token(const chat_call *c, reply_search *s, size_t n)
{
    int failed = 0;
    for (size_t i = 0, start, end; i < n && !failed && !s->token; i++)
        if (is_reply(c, i) && !has_calls(c, i) && !(failed = render_others(c, s, i, &start)))
            failed = end_by_rest(c, s, start, &end);
    return failed;
}

static int search_replies(const chat_call *c, reply_search *s, size_t n)
{
    chat_rendering *all = &c->out->rendering;
    int failed = learn_token(c, s, n);
    for (size_t i = 0, before = 0; i < n && !failed; i++) {
        size_t start = 0, end = 0;
        if (!is_reply(c, i))
            continue;
        failed = render_others(c, s, i, &start);
        if (!failed)
            failed = end_of_reply(c, s, i, start, &end);
        if (!failed && (start < before || end < start))
            failed = fail_reply(c, i, "the start");
        if (!failed)
            all->spans[all->n_spans++] = (chat_span){start, before = end};
    }
    return failed;
}

static int find_replies(const chat_call *c)
{
    const size_t n = json_array_size(json_object_get(c->variables, "messages"));
    reply_search s = {0};
    free(c->out->rendering.spans);
    c->out->rendering.n_spans = 0;
    c->out->rendering.spans = malloc((n + 1) * sizeof *c->out->rendering.spans);
    if (!c->out->rendering.spans)
        return pt_fail(c->error, PT_FAILED, "out of memory");
    int failed = search_replies(c, &s, n);
    chat_rendering_free(&s.prompted);
    chat_rendering_free(&s.with);
    chat_rendering_free(&s.other);
    return failed;
}

/* ---- from bytes to tokens ---- */

/* Where each id's bytes end in the text; false: the tokenizer changes texts, so that they are not these bytes. */
static bool ends_of_tokens(const chat_call *c, size_t *ends)
{
    const text_buffer *text = &c->out->rendering.text;
    size_t at = 0;
    for (size_t i = 0; i < c->out->ids.n; i++) {
        const char *bytes;
        size_t n;
        pt_error ignored;
        if (tokenizer_id_bytes(c->tokenizer, c->out->ids.ids[i], i == 0, false, &bytes, &n, &ignored) || text->n - at < n ||
            memcmp(text->bytes + at, bytes, n))
            return false;
        ends[i] = at += n;
    }
    return at == text->n;
}

/* How many ids the text's first n bytes have in common with the whole; *exact: all of them. */
static int ids_before(const chat_call *c, size_t n, size_t *count, bool *exact)
{
    id_list ids = {0};
    int failed = encoder_run(c->encoder, c->out->rendering.text.bytes, n, 0, &ids, c->error);
    *count = 0;
    while (*count < ids.n && *count < c->out->ids.n && ids.ids[*count] == c->out->ids.ids[*count])
        ++*count;
    *exact = *count == ids.n;
    id_list_free(&ids);
    return failed;
}

static int mark_by_prefixes(const chat_call *c)
{
    const chat_rendering *r = &c->out->rendering;
    int failed = 0;
    for (size_t k = 0; k < r->n_spans && !failed; k++) {
        size_t first, end;
        bool exact;
        failed = ids_before(c, r->spans[k].first, &first, &exact);
        if (!failed)
            failed = ids_before(c, r->spans[k].end, &end, &exact);
        for (size_t i = first; !failed && i < end + !exact && i < c->out->ids.n; i++)
            c->out->learned[i] = r->spans[k].first < r->spans[k].end;
    }
    return failed;
}

/* An id is learned where its bytes overlap a span. */
static int mark_learned(const chat_call *c)
{
    const chat_rendering *r = &c->out->rendering;
    const size_t n = c->out->ids.n;
    size_t *ends = malloc((n + 1) * sizeof *ends);
    free(c->out->learned);
    c->out->learned = calloc(n + 1, 1);
    if (!ends || !c->out->learned) {
        free(ends);
        return pt_fail(c->error, PT_FAILED, "out of memory for %zu ids", n);
    }
    int failed = 0;
    if (!ends_of_tokens(c, ends))
        failed = mark_by_prefixes(c);
    else
        for (size_t i = 0, k = 0; i < n && k < r->n_spans; i++) {
            const size_t start = i ? ends[i - 1] : 0;
            while (k < r->n_spans && start >= r->spans[k].end)
                k++;
            c->out->learned[i] = k < r->n_spans && ends[i] > r->spans[k].first;
        }
    free(ends);
    return failed;
}

/* The tokenizer's own token at the beginning, where the template has not written it. */
static int add_bos(const tokenizer *t, chat_tokens *out, pt_error *e)
{
    id_list *ids = &out->ids;
    const int64_t bos = tokenizer_bos(t);
    if (!tokenizer_template_adds_bos(t) || bos < 0 || (ids->n && ids->ids[0] == bos))
        return 0;
    uint8_t *learned = realloc(out->learned, ids->n + 2);
    if (!learned)
        return pt_fail(e, PT_FAILED, "out of memory for %zu ids", ids->n);
    out->learned = learned;
    int failed = id_list_push(ids, 0, e);
    if (failed)
        return failed;
    memmove(ids->ids + 1, ids->ids, (ids->n - 1) * sizeof *ids->ids);
    memmove(learned + 1, learned, ids->n - 1);
    ids->ids[0] = (uint32_t)bos;
    learned[0] = 0;
    return 0;
}

/* All ids from the n-th on, and the text from `byte` on. */
static int mark_from(chat_tokens *out, size_t n, size_t byte, pt_error *e)
{
    free(out->learned);
    free(out->rendering.spans);
    out->learned = calloc(out->ids.n + 1, 1);
    out->rendering.spans = malloc(sizeof *out->rendering.spans);
    out->rendering.n_spans = 0;
    if (!out->learned || !out->rendering.spans)
        return pt_fail(e, PT_FAILED, "out of memory for %zu ids", out->ids.n);
    out->rendering.spans[out->rendering.n_spans++] = (chat_span){byte, out->rendering.text.n};
    for (size_t i = n; i < out->ids.n; i++)
        out->learned[i] = 1;
    return 0;
}

/* What follows a prompt: whatever the ids of the whole have behind those that it has in common with the prompt. */
static int mark_behind(encoder *encoder, const text_buffer *prompt, chat_tokens *out, pt_error *e)
{
    id_list ids = {0};
    size_t n = 0;
    int failed = encoder_run(encoder, prompt->bytes, prompt->n, 0, &ids, e);
    while (n < ids.n && n < out->ids.n && ids.ids[n] == out->ids.ids[n])
        n++;
    id_list_free(&ids);
    return failed ? failed : mark_from(out, n, common(prompt, &out->rendering.text), e);
}

static int mark_completion(const chat_call *c)
{
    chat_rendering prompt = {0};
    int failed = render_first(c, c->wish->prompt_messages, true, &prompt);
    if (!failed)
        failed = mark_behind(c->encoder, &prompt.text, c->out, c->error);
    chat_rendering_free(&prompt);
    return failed;
}

static int mark(const chat_call *c)
{
    chat_rendering *r = &c->out->rendering;
    if (c->wish->learned == CHAT_ALL)
        return mark_from(c->out, 0, 0, c->error);
    if (c->wish->learned == CHAT_COMPLETION)
        return mark_completion(c);
    int failed = r->n_spans ? 0 : find_replies(c);
    if (!failed && c->wish->learned == CHAT_LAST && r->n_spans) {
        r->spans[0] = r->spans[r->n_spans - 1];
        r->n_spans = 1;
    }
    return failed ? failed : mark_learned(c);
}

static int tokenize(const chat_call *c)
{
    const size_t n = json_array_size(json_object_get(c->variables, "messages"));
    int failed = render_first(c, n, false, &c->out->rendering);
    c->out->ids.n = 0;
    if (!failed)
        failed = encoder_run(c->encoder, c->out->rendering.text.bytes, c->out->rendering.text.n, 0, &c->out->ids, c->error);
    if (!failed)
        failed = mark(c);
    return failed ? failed : add_bos(c->tokenizer, c->out, c->error);
}

int chat_tokenize(const chat_source *s, const tokenizer *t, encoder *encoder, const json_t *conversation, const chat_wish *wish,
                  chat_tokens *out, pt_error *e)
{
    chat_call c = {.tokenizer = t, .encoder = encoder, .wish = wish, .out = out, .error = e};
    int failed = chat_variables(conversation, wish->where, &c.variables, e);
    if (failed)
        return failed;
    json_object_update_missing(c.variables, s->special_tokens);
    const bool tools = !json_is_null(json_object_get(c.variables, "tools"));
    c.template = tools || !s->plain ? s->with_tools : s->plain;
    failed = tokenize(&c);
    json_decref(c.variables);
    return failed;
}

static int end_pair(const tokenizer *t, chat_tokens *out, pt_error *e)
{
    const int64_t eos = tokenizer_eos(t);
    if (eos < 0 || (out->ids.n && out->ids.ids[out->ids.n - 1] == eos))
        return 0;
    return id_list_push(&out->ids, (uint32_t)eos, e);
}

int chat_tokenize_pair(const tokenizer *t, encoder *c, const chat_pair *p, chat_learned learned, chat_tokens *out, pt_error *e)
{
    const text_buffer prompt = {(char *)p->prompt, p->prompt_n, 0};
    text_buffer *text = &out->rendering.text;
    text->n = out->ids.n = 0;
    int failed = text_buffer_append(text, p->prompt, p->prompt_n, e);
    if (!failed)
        failed = text_buffer_append(text, p->completion, p->completion_n, e);
    if (!failed)
        failed = encoder_run(c, text->bytes, text->n, 0, &out->ids, e);
    if (!failed)
        failed = end_pair(t, out, e);
    if (!failed)
        failed = learned == CHAT_ALL ? mark_from(out, 0, 0, e) : mark_behind(c, &prompt, out, e);
    return failed ? failed : add_bos(t, out, e);
}

void chat_tokens_free(chat_tokens *x)
{
    chat_rendering_free(&x->rendering);
    id_list_free(&x->ids);
    free(x->learned);
    *x = (chat_tokens){0};
}
