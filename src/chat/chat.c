#include "chat/replies.h"

#include "text/buffer.h"
#include "text/plain_mark.h"

#include <stdlib.h>
#include <string.h>

/* ---- learned tokens ---- */

/* Whether these bytes are the text's from *at on, without its marks; moves *at behind them. */
static bool takes(const chat_call *call, const char *bytes, size_t n, size_t *at)
{
    const text_buffer *text = &call->out->rendering.text;
    if (!call->wish->plain) {
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
static bool ends_of_tokens(const chat_call *call, size_t *ends)
{
    const text_buffer *text = &call->out->rendering.text;
    size_t at = 0;
    for (size_t i = 0; i < call->out->ids.n; i++) {
        const char *bytes;
        size_t n;
        pt_error ignored;
        if (tokenizer_id_bytes(call->tokenizer, call->out->ids.ids[i], i == 0, false, &bytes, &n, &ignored) || !takes(call, bytes, n, &at))
            return false;
        ends[i] = at;
    }
    return at + (call->wish->plain ? plain_mark_at(text->bytes, text->n, at) : 0) == text->n;
}

/* A position where tokenization restarts independent of its surroundings: the beginning, or the end of a special token. */
typedef struct anchor { size_t byte, id; } anchor;

/* Counts the ids that the text's first n bytes share with the whole text; those before the anchor are known. *exact: all ids are shared. */
static int ids_from(const chat_call *call, anchor from, size_t n, size_t *count, bool *exact)
{
    const id_list *whole = &call->out->ids;
    id_list ids = {0};
    int failed = chat_encode(call->encoder, chat_flags(call), call->wish->where, call->out->rendering.text.bytes + from.byte, n - from.byte,
                             &ids, call->error);
    size_t same = 0;
    while (same < ids.n && from.id + same < whole->n && ids.ids[same] == whole->ids[from.id + same])
        same++;
    *count = from.id + same;
    *exact = same == ids.n;
    id_list_free(&ids);
    return failed;
}

/* Starts from the beginning of the text if the tokenizer treats it otherwise than text after a special token. */
static int ids_before(const chat_call *call, anchor from, size_t n, size_t *count, bool *exact)
{
    int failed = ids_from(call, from, n, count, exact);
    if (!failed && from.id && !*exact && *count == from.id)
        failed = ids_from(call, (anchor){0}, n, count, exact);
    return failed;
}

static int mark_by_prefixes(const chat_call *call)
{
    const chat_rendering *r = &call->out->rendering;
    anchor from = {0};
    int failed = 0;
    for (size_t k = 0; k < r->n_spans && !failed; k++) {
        size_t first, end;
        bool exact;
        failed = ids_before(call, from, r->spans[k].first, &first, &exact);
        if (!failed)
            failed = ids_before(call, from, r->spans[k].end, &end, &exact);
        for (size_t i = first; !failed && i < end + !exact && i < call->out->ids.n; i++)
            call->out->learned[i] = r->spans[k].first < r->spans[k].end;
        if (!failed && exact && end > from.id && chat_is_special(call->tokenizer, call->out->ids.ids[end - 1]))
            from = (anchor){r->spans[k].end, end};
    }
    return failed;
}

/* An id is learned if its bytes overlap a span. */
static int mark_learned(const chat_call *call)
{
    const chat_rendering *r = &call->out->rendering;
    const size_t n = call->out->ids.n;
    size_t *ends = malloc((n + 1) * sizeof *ends);
    free(call->out->learned);
    call->out->learned = calloc(n + 1, 1);
    if (!ends || !call->out->learned) {
        free(ends);
        return pt_fail(call->error, PT_FAILED, "out of memory for %zu ids", n);
    }
    int failed = 0;
    if (!ends_of_tokens(call, ends))
        failed = mark_by_prefixes(call);
    else
        for (size_t i = 0, k = 0; i < n && k < r->n_spans; i++) {
            const size_t start = i ? ends[i - 1] : 0;
            while (k < r->n_spans && start >= r->spans[k].end)
                k++;
            call->out->learned[i] = k < r->n_spans && ends[i] > r->spans[k].first;
        }
    free(ends);
    return failed;
}

/* Adds the tokenizer's BOS if the template has not written it. */
static int add_bos(const tokenizer *tok, chat_tokens *out, pt_error *e)
{
    id_list *ids = &out->ids;
    const int64_t bos = tokenizer_bos(tok);
    if (!tokenizer_template_adds_bos(tok) || bos < 0 || (ids->n && ids->ids[0] == bos))
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

static int mark_completion(const chat_call *call)
{
    chat_rendering prompt = {0};
    int failed = chat_render_first(call, call->wish->prompt_messages, true, &prompt);
    if (!failed)
        failed = mark_behind(call->encoder, chat_flags(call), call->wish->where, &prompt.text, call->out, call->error);
    chat_rendering_free(&prompt);
    return failed;
}

/* Removes the spans of replies that are not learned. */
static int drop_skipped(const chat_call *call)
{
    chat_rendering *r = &call->out->rendering;
    const json_t *messages = json_object_get(call->variables, "messages");
    const bool last = call->wish->learned == CHAT_LAST;
    size_t replies = 0, kept = 0, at = 0;
    for (size_t i = 0; i < json_array_size(messages); i++)
        replies += chat_is_reply(call, i);
    if (!last && replies != r->n_spans)
        return pt_fail(call->error, PT_FAILED,
                       "%.300s: the template marks %zu ranges for %zu replies, so that their weights cannot be obeyed: remove the weights",
                       call->wish->where, r->n_spans, replies);
    for (size_t i = 0, k = 0; i < json_array_size(messages); i++) {
        if (!chat_is_reply(call, i) || (k++ + 1 < replies && last))
            continue;
        if (at < r->n_spans && !call->wish->skipped[i])
            r->spans[kept++] = r->spans[at];
        at++;
    }
    r->n_spans = kept;
    return 0;
}

static int mark(const chat_call *call)
{
    chat_rendering *r = &call->out->rendering;
    if (call->wish->learned == CHAT_ALL)
        return mark_from(call->out, 0, 0, call->error);
    if (call->wish->learned == CHAT_COMPLETION)
        return mark_completion(call);
    int failed = r->n_spans ? 0 : chat_find_replies(call);
    if (!failed && call->wish->learned == CHAT_LAST && r->n_spans) {
        r->spans[0] = r->spans[r->n_spans - 1];
        r->n_spans = 1;
    }
    if (!failed && call->wish->skipped)
        failed = drop_skipped(call);
    return failed ? failed : mark_learned(call);
}

static int tokenize(const chat_call *call)
{
    const size_t n = json_array_size(json_object_get(call->variables, "messages"));
    if (call->wish->plain)
        chat_mark_messages(call->tokenizer, call->variables);
    int failed = chat_render_first(call, n, false, &call->out->rendering);
    call->out->ids.n = 0;
    if (!failed)
        failed = chat_encode(call->encoder, chat_flags(call), call->wish->where, call->out->rendering.text.bytes,
                             call->out->rendering.text.n, &call->out->ids, call->error);
    if (!failed)
        failed = mark(call);
    if (!failed && call->wish->plain)
        failed = chat_drop_marks(&call->out->rendering, call->error);
    return failed ? failed : add_bos(call->tokenizer, call->out, call->error);
}

/* With arguments of tool calls as values. A few templates join them to text, and fail unless they are strings: these get them as they are
 * in the record. */
static int tokenize_decoded(chat_call *call)
{
    json_t *given = json_incref(json_object_get(call->variables, "messages"));
    bool decoded;
    int failed = chat_decode_arguments(call->variables, call->wish->where, &decoded, call->error);
    if (!failed)
        failed = tokenize(call);
    if (failed && decoded) {
        pt_error *first = call->error;
        json_object_set(call->variables, "messages", given);
        call->error = NULL;
        failed = tokenize(call) ? failed : 0;
        call->error = first;
    }
    json_decref(given);
    return failed;
}

int chat_tokenize(const chat_source *s, const tokenizer *tok, encoder *encoder, const json_t *conversation, const chat_wish *wish,
                  chat_tokens *out, pt_error *e)
{
    chat_call call = {.tokenizer = tok, .encoder = encoder, .wish = wish, .out = out, .error = e};
    int failed = chat_variables(conversation, wish->where, &call.variables, e);
    if (failed)
        return failed;
    json_object_update_missing(call.variables, s->special_tokens);
    const bool tools = !json_is_null(json_object_get(call.variables, "tools"));
    call.template = tools || !s->plain ? s->with_tools : s->plain;
    if (wish->plain)
        chat_mark_tools(tok, call.variables);
    failed = tokenize_decoded(&call);
    json_decref(call.variables);
    return failed;
}

static int end_pair(const tokenizer *tok, chat_tokens *out, pt_error *e)
{
    const int64_t eos = tokenizer_eos(tok);
    if (eos < 0 || (out->ids.n && out->ids.ids[out->ids.n - 1] == eos))
        return 0;
    return id_list_push(&out->ids, (uint32_t)eos, e);
}

int chat_tokenize_pair(const tokenizer *tok, encoder *encoder, const chat_pair *p, chat_learned learned, chat_tokens *out, pt_error *e)
{
    const text_buffer prompt = {(char *)p->prompt, p->prompt_n, 0};
    const unsigned flags = p->plain ? ENCODE_PLAIN : 0;
    text_buffer *text = &out->rendering.text;
    text->n = out->ids.n = 0;
    int failed = text_buffer_append(text, p->prompt, p->prompt_n, e);
    if (!failed)
        failed = text_buffer_append(text, p->completion, p->completion_n, e);
    if (!failed)
        failed = chat_encode(encoder, flags, p->where, text->bytes, text->n, &out->ids, e);
    if (!failed)
        failed = end_pair(tok, out, e);
    if (!failed)
        failed = learned == CHAT_ALL ? mark_from(out, 0, 0, e) : mark_behind(encoder, flags, p->where, &prompt, out, e);
    return failed ? failed : add_bos(tok, out, e);
}

void chat_tokens_free(chat_tokens *x)
{
    chat_rendering_free(&x->rendering);
    id_list_free(&x->ids);
    free(x->learned);
    *x = (chat_tokens){0};
}
