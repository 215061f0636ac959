#include "chat/replies.h"

#include "text/buffer.h"
#include "text/plain_mark.h"

#include <stdlib.h>
#include <string.h>

/* ---- learned tokens ---- */

/* Whether these bytes are the text's from *at on, without its marks; moves *at behind them. */
static bool takes(const chat_call *c, const char *bytes, size_t n, size_t *at)
{
    const text_buffer *text = &c->out->rendering.text;
    if (!c->wish->plain) {
        const bool same = text->n - *at >= n && !memcmp(text->bytes + *at, bytes, n);
        *at += same ? n : 0;
        return same;
    }
    for (size_t i = 0; i < n; i++, ++*at) {
        *at += plain_mark_at(text->bytes, text->n, *at);
        if (*at >= text->n || text->bytes[*at] != bytes[i])
            return false;
    }
    return true;
}

/* Finds the end of each id's bytes in the text. False if the tokenizer normalizes text, so that ids do not decode to these bytes. */
static bool ends_of_tokens(const chat_call *c, size_t *ends)
{
    const text_buffer *text = &c->out->rendering.text;
    size_t at = 0;
    for (size_t i = 0; i < c->out->ids.n; i++) {
        const char *bytes;
        size_t n;
        pt_error ignored;
        if (tokenizer_id_bytes(c->tokenizer, c->out->ids.ids[i], i == 0, false, &bytes, &n, &ignored) || !takes(c, bytes, n, &at))
            return false;
        ends[i] = at;
    }
    return at + (c->wish->plain ? plain_mark_at(text->bytes, text->n, at) : 0) == text->n;
}

/* A position where tokenization restarts independent of its surroundings: the beginning, or the end of a special token. */
typedef struct anchor { size_t byte, id; } anchor;

/* Counts the ids that the text's first n bytes share with the whole text; those before the anchor are known. *exact: all ids are shared. */
static int ids_from(const chat_call *c, anchor from, size_t n, size_t *count, bool *exact)
{
    const id_list *whole = &c->out->ids;
    id_list ids = {0};
    int failed = chat_encode(c->encoder, chat_flags(c), c->wish->where, c->out->rendering.text.bytes + from.byte, n - from.byte, &ids,
                             c->error);
    size_t same = 0;
    while (same < ids.n && from.id + same < whole->n && ids.ids[same] == whole->ids[from.id + same])
        same++;
    *count = from.id + same;
    *exact = same == ids.n;
    id_list_free(&ids);
    return failed;
}

/* Starts from the beginning of the text if the tokenizer treats it otherwise than text after a special token. */
static int ids_before(const chat_call *c, anchor from, size_t n, size_t *count, bool *exact)
{
    int failed = ids_from(c, from, n, count, exact);
    if (!failed && from.id && !*exact && *count == from.id)
        failed = ids_from(c, (anchor){0}, n, count, exact);
    return failed;
}

static int mark_by_prefixes(const chat_call *c)
{
    const chat_rendering *r = &c->out->rendering;
    anchor from = {0};
    int failed = 0;
    for (size_t k = 0; k < r->n_spans && !failed; k++) {
        size_t first, end;
        bool exact;
        failed = ids_before(c, from, r->spans[k].first, &first, &exact);
        if (!failed)
            failed = ids_before(c, from, r->spans[k].end, &end, &exact);
        for (size_t i = first; !failed && i < end + !exact && i < c->out->ids.n; i++)
            c->out->learned[i] = r->spans[k].first < r->spans[k].end;
        if (!failed && exact && end > from.id && chat_is_special(c->tokenizer, c->out->ids.ids[end - 1]))
            from = (anchor){r->spans[k].end, end};
    }
    return failed;
}

/* An id is learned if its bytes overlap a span. */
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

/* Adds the tokenizer's BOS if the template has not written it. */
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

/* Marks all ids from the n-th on, and the text from `byte` on. */
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

/* Marks what follows a prompt: the ids of the whole after those that it shares with the prompt. */
static int mark_behind(encoder *encoder, unsigned flags, const char *where, const text_buffer *prompt, chat_tokens *out, pt_error *e)
{
    id_list ids = {0};
    size_t n = 0;
    int failed = chat_encode(encoder, flags, where, prompt->bytes, prompt->n, &ids, e);
    while (n < ids.n && n < out->ids.n && ids.ids[n] == out->ids.ids[n])
        n++;
    id_list_free(&ids);
    return failed ? failed : mark_from(out, n, chat_common(prompt, &out->rendering.text), e);
}

static int mark_completion(const chat_call *c)
{
    chat_rendering prompt = {0};
    int failed = chat_render_first(c, c->wish->prompt_messages, true, &prompt);
    if (!failed)
        failed = mark_behind(c->encoder, chat_flags(c), c->wish->where, &prompt.text, c->out, c->error);
    chat_rendering_free(&prompt);
    return failed;
}

/* Removes the spans of replies that are not learned. */
static int drop_skipped(const chat_call *c)
{
    chat_rendering *r = &c->out->rendering;
    const json_t *messages = json_object_get(c->variables, "messages");
    const bool last = c->wish->learned == CHAT_LAST;
    size_t replies = 0, kept = 0, at = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        replies += chat_is_reply(c, i);
    if (!last && replies != r->n_spans)
        return pt_fail(c->error, PT_FAILED,
                       "%.300s: the template marks %zu ranges for %zu replies, so that their weights cannot be obeyed: remove the weights",
                       c->wish->where, r->n_spans, replies);
    for (size_t i = 0, k = 0; i < json_array_size(messages); i++) {
        if (!chat_is_reply(c, i) || (k++ + 1 < replies && last))
            continue;
        if (at < r->n_spans && !c->wish->skipped[i])
            r->spans[kept++] = r->spans[at];
        at++;
    }
    r->n_spans = kept;
    return 0;
}

static int mark(const chat_call *c)
{
    chat_rendering *r = &c->out->rendering;
    if (c->wish->learned == CHAT_ALL)
        return mark_from(c->out, 0, 0, c->error);
    if (c->wish->learned == CHAT_COMPLETION)
        return mark_completion(c);
    int failed = r->n_spans ? 0 : chat_find_replies(c);
    if (!failed && c->wish->learned == CHAT_LAST && r->n_spans) {
        r->spans[0] = r->spans[r->n_spans - 1];
        r->n_spans = 1;
    }
    if (!failed && c->wish->skipped)
        failed = drop_skipped(c);
    return failed ? failed : mark_learned(c);
}

static int tokenize(const chat_call *c)
{
    const size_t n = json_array_size(json_object_get(c->variables, "messages"));
    if (c->wish->plain)
        chat_mark_messages(c->tokenizer, c->variables);
    int failed = chat_render_first(c, n, false, &c->out->rendering);
    c->out->ids.n = 0;
    if (!failed)
        failed = chat_encode(c->encoder, chat_flags(c), c->wish->where, c->out->rendering.text.bytes, c->out->rendering.text.n,
                             &c->out->ids, c->error);
    if (!failed)
        failed = mark(c);
    if (!failed && c->wish->plain)
        failed = chat_drop_marks(&c->out->rendering, c->error);
    return failed ? failed : add_bos(c->tokenizer, c->out, c->error);
}

/* With arguments of tool calls as values. A few templates join them to text, and fail unless they are strings: these get them as they are
 * in the record. */
static int tokenize_decoded(chat_call *c)
{
    json_t *given = json_incref(json_object_get(c->variables, "messages"));
    bool decoded;
    int failed = chat_decode_arguments(c->variables, c->wish->where, &decoded, c->error);
    if (!failed)
        failed = tokenize(c);
    if (failed && decoded) {
        pt_error *first = c->error;
        json_object_set(c->variables, "messages", given);
        c->error = NULL;
        failed = tokenize(c) ? failed : 0;
        c->error = first;
    }
    json_decref(given);
    return failed;
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
    if (wish->plain)
        chat_mark_tools(t, c.variables);
    failed = tokenize_decoded(&c);
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
    const unsigned flags = p->plain ? ENCODE_PLAIN : 0;
    text_buffer *text = &out->rendering.text;
    text->n = out->ids.n = 0;
    int failed = text_buffer_append(text, p->prompt, p->prompt_n, e);
    if (!failed)
        failed = text_buffer_append(text, p->completion, p->completion_n, e);
    if (!failed)
        failed = chat_encode(c, flags, p->where, text->bytes, text->n, &out->ids, e);
    if (!failed)
        failed = end_pair(t, out, e);
    if (!failed)
        failed = learned == CHAT_ALL ? mark_from(out, 0, 0, e) : mark_behind(c, flags, p->where, &prompt, out, e);
    return failed ? failed : add_bos(t, out, e);
}

void chat_tokens_free(chat_tokens *x)
{
    chat_rendering_free(&x->rendering);
    id_list_free(&x->ids);
    free(x->learned);
    *x = (chat_tokens){0};
}
