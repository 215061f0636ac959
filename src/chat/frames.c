/* frames.c - what a template writes between the contents of messages (replies.h). */
#include "chat/replies.h"

#include "text/buffer.h"

#include <stdlib.h>
#include <string.h>

enum { MARK_MOST = 32 };

static size_t mark_text(size_t i, char mark[MARK_MOST]) { return (size_t)snprintf(mark, MARK_MOST, "q1w%zuz", i); }

static const json_t *content_of(const chat_call *call, size_t i)
{
    return json_object_get(json_array_get(json_object_get(call->variables, "messages"), i), "content");
}

/* Templates often omit empty content beside tool calls, with its surroundings. */
static bool is_marked(const chat_call *call, size_t i)
{
    const json_t *content = content_of(call, i);
    return json_is_string(content) && (json_string_length(content) || !chat_has_calls(call, i));
}

static int render_marked(const chat_call *call, const chat_frames *f, chat_rendering *out)
{
    json_t *variables = json_copy(call->variables), *messages = json_copy(json_object_get(variables, "messages"));
    pt_error ignored = {0};
    chat_call quiet = *call;
    quiet.error = &ignored;
    for (size_t k = 0; k < f->marks; k++) {
        char mark[MARK_MOST];
        json_t *message = json_copy(json_array_get(messages, f->message[k]));
        json_object_set_new(message, "content", json_stringn(mark, mark_text(k, mark)));
        json_array_set_new(messages, f->message[k], message);
    }
    json_object_set_new(variables, "messages", messages);
    json_object_set_new(variables, "add_generation_prompt", json_false());
    const int failed = chat_render(&quiet, variables, out);
    json_decref(variables);
    return failed;
}

typedef struct slice { const char *s; size_t n; } slice;

static slice behind(slice x, size_t n) { return (slice){x.s + n, x.n - n}; }
static bool begins(slice x, slice with) { return x.n >= with.n && (!with.n || !memcmp(x.s, with.s, with.n)); }
static bool ends(slice x, slice with) { return x.n >= with.n && begins(behind(x, x.n - with.n), with); }
static bool equal(slice x, slice y) { return x.n == y.n && begins(x, y); }

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static slice stripped(slice x)
{
    while (x.n && is_blank(x.s[0]))
        x = behind(x, 1);
    while (x.n && is_blank(x.s[x.n - 1]))
        x.n--;
    return x;
}

/* The length of the content, unchanged or stripped, with which `rest` begins before `frame`; SIZE_MAX: it begins otherwise. */
static size_t content_before(slice rest, slice content, slice frame)
{
    for (int strip = 0; strip < 2; strip++) {
        const slice x = strip ? stripped(content) : content;
        if (begins(rest, x) && begins(behind(rest, x.n), frame))
            return x.n;
    }
    return SIZE_MAX;
}

/* The frame from mark k, at `at` in the marked rendering, to the next mark or the end. */
static bool frame_behind(const chat_frames *f, slice marked, size_t k, slice *frame)
{
    char mark[MARK_MOST];
    *frame = marked;
    if (k + 1 == f->marks)
        return true;
    const char *next = memmem(marked.s, marked.n, mark, mark_text(k + 1, mark));
    frame->n = next ? (size_t)(next - marked.s) : 0;
    return next;
}

/* Is the whole rendering frame, content, frame ... to its end? */
static bool walk(const chat_call *call, chat_frames *f, slice marked, slice whole)
{
    char mark[MARK_MOST];
    slice rest = whole, frame;
    const char *first = memmem(marked.s, marked.n, mark, mark_text(0, mark));
    if (!first || !begins(rest, (slice){marked.s, (size_t)(first - marked.s)}))
        return false;
    size_t at = (size_t)(first - marked.s);
    for (size_t k = 0; k < f->marks; k++) {
        const json_t *content = content_of(call, f->message[k]);
        const slice text = {json_string_value(content), json_string_length(content)};
        marked = behind(marked, at + mark_text(k, mark));
        rest = behind(rest, at);
        if (!frame_behind(f, marked, k, &frame))
            return false;
        const size_t n = content_before(rest, text, frame);
        if (n == SIZE_MAX)
            return false;
        f->begin[k] = (size_t)(rest.s - whole.s);
        f->end[k] = f->begin[k] + n;
        rest = behind(rest, n);
        at = frame.n;
    }
    return rest.n == at;
}

int chat_frames_find(const chat_call *call, chat_frames *f)
{
    const size_t n = json_array_size(json_object_get(call->variables, "messages"));
    const text_buffer *whole = &call->out->rendering.text;
    chat_rendering marked = {0};
    f->marks = 0;
    f->message = malloc(3 * (n + 1) * sizeof *f->message);
    if (!f->message)
        return pt_fail(call->error, PT_FAILED, "out of memory for %zu messages", n);
    f->begin = f->message + n + 1;
    f->end = f->begin + n + 1;
    for (size_t i = 0; i < n; i++)
        if (is_marked(call, i))
            f->message[f->marks++] = i;
    if (f->marks && (render_marked(call, f, &marked) ||
                     !walk(call, f, (slice){marked.text.bytes, marked.text.n}, (slice){whole->bytes, whole->n})))
        f->marks = 0;
    chat_rendering_free(&marked);
    return 0;
}

void chat_frames_free(chat_frames *f) { free(f->message); }

/* ---- a reply between its frames ---- */

typedef struct surroundings {
    bool marked;
    size_t from, begin, end, to; /* positions in the whole rendering: frame, content, frame. Without a mark, begin = from and end = to */
    bool alone;                  /* between from and to there is no other message without a mark */
    bool first, last;            /* from is the beginning, to the end of the whole rendering */
} surroundings;

static surroundings surroundings_of(const chat_call *call, const chat_frames *f, size_t i)
{
    size_t low = 0, high = f->marks;
    while (low < high) { /* the first mark of message i or a later one */
        const size_t middle = (low + high) / 2;
        if (f->message[middle] < i)
            low = middle + 1;
        else
            high = middle;
    }
    surroundings x = {.marked = low < f->marks && f->message[low] == i};
    const size_t next = low + x.marked, before = low ? f->message[low - 1] + 1 : 0;
    const size_t messages = json_array_size(json_object_get(call->variables, "messages"));
    x.first = low == 0;
    x.last = next == f->marks;
    x.from = x.first ? 0 : f->end[low - 1];
    x.to = x.last ? call->out->rendering.text.n : f->begin[next];
    x.begin = x.marked ? f->begin[low] : x.from;
    x.end = x.marked ? f->end[low] : x.to;
    x.alone = before == i && (x.last ? messages : f->message[next]) == i + 1;
    return x;
}

static slice part(const chat_call *call, size_t from, size_t to) { return (slice){call->out->rendering.text.bytes + from, to - from}; }

/* Is the text before the reply the same? With a mark, this is the frame. Without one, it is the frame's beginning and some of the reply
 * itself, which distinguishes tool calls from thinking that a prompt may contain. */
static bool same_start(const chat_call *call, const surroundings *x, const surroundings *y, const chat_span *found, size_t *out)
{
    enum { SOME = 8 };
    const size_t start = found->first, some = found->end - start < SOME ? found->end - start : SOME;
    if (start < x->from || start > (x->marked ? x->begin : x->to) || x->first != y->first)
        return false;
    if (!x->marked) {
        *out = y->from + (start - x->from);
        return start > x->from && begins(part(call, y->from, y->to), part(call, x->from, start + some));
    }
    *out = y->begin - (x->begin - start);
    return equal(part(call, x->from, x->begin), part(call, y->from, y->begin));
}

/* Is the text after the reply the same? This is a frame, including tool calls, or its rest from the token that ends the reply. */
static bool same_end(const chat_call *call, const surroundings *x, const surroundings *y, const chat_reply *found, bool calls, size_t *out)
{
    const size_t end = found->span.end, token = end - found->ended_n;
    if (end > x->to || end < x->begin || x->last != y->last)
        return false;
    if (!calls) {
        *out = y->end + (end - x->end);
        return end >= x->end && equal(part(call, x->end, x->to), part(call, y->end, y->to));
    }
    *out = y->to - (x->to - end);
    return found->ended_n && token >= (x->marked ? x->end : x->from) &&
           ends(part(call, y->marked ? y->end : y->from, y->to), part(call, token, x->to));
}

bool chat_frames_same(const chat_call *call, const chat_frames *f, const chat_reply *found, size_t i, chat_span *span)
{
    const bool calls = chat_has_calls(call, i);
    if (!f->marks || calls != chat_has_calls(call, found->message))
        return false;
    const surroundings x = surroundings_of(call, f, found->message), y = surroundings_of(call, f, i);
    return x.marked == y.marked && x.alone && y.alone && (x.marked || calls) &&
           same_start(call, &x, &y, &found->span, &span->first) && same_end(call, &x, &y, found, calls, &span->end) &&
           span->first <= span->end;
}
