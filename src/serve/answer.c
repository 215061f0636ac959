#include "serve/answer.h"

#include "infer/served.h"

#include <string.h>

typedef struct answer {
    const serve_request *q;
    serve_reply *r;
    const answer_sink *sink;
    text_buffer text;  /* of a stream: what has not been sent yet, because a stop text may begin in it */
    bool stopped;      /* a stop text occurred */
} answer;

/* Where the first stop text begins that the text has whole; n: none. */
static size_t find_stop(const answer *a)
{
    size_t first = a->text.n;
    for (int i = 0; i < a->q->stops_n; i++) {
        const char *found = a->text.n ? memmem(a->text.bytes, a->text.n, a->q->stops[i], strlen(a->q->stops[i])) : NULL;
        if (found && (size_t)(found - a->text.bytes) < first)
            first = (size_t)(found - a->text.bytes);
    }
    return first;
}

/* How many bytes at the end of the text may be the beginning of a stop text. */
static size_t held_back(const answer *a)
{
    size_t most = 0;
    for (int i = 0; i < a->q->stops_n; i++) {
        const size_t n = strlen(a->q->stops[i]);
        for (size_t k = n - 1 < a->text.n ? n - 1 : a->text.n; k > most; k--)
            if (!memcmp(a->text.bytes + a->text.n - k, a->q->stops[i], k))
                most = k;
    }
    return most;
}

/* Bytes before `n` that end with a whole character: stop texts begin with one, so this only cuts the generator's whole characters. */
static int send(answer *a, size_t n)
{
    text_buffer out = {0};
    if (!n)
        return 0;
    int failed = serve_put_piece(&out, a->r, a->text.bytes, n);
    if (!failed)
        failed = a->sink->take(a->sink->arg, out.bytes, out.n);
    text_buffer_free(&out);
    memmove(a->text.bytes, a->text.bytes + n, a->text.n - n);
    a->text.n -= n;
    return failed;
}

/* Nonzero: nothing more is wanted. */
static int add(answer *a, const char *text, size_t n)
{
    if (text_buffer_append(&a->text, text, n, NULL))
        return 1;
    const size_t stop = find_stop(a);
    a->stopped = stop < a->text.n;
    if (a->stopped)
        a->text.n = stop;
    const int failed = a->q->stream ? send(a, a->stopped ? a->text.n : a->text.n - held_back(a)) : 0;
    return failed || a->stopped;
}

static int start(pt_generator *g, const serve_request *q, const serve_reply *r, int64_t most, pt_error *e)
{
    reply_sampling s = generator_sampling(g);
    s.temperature = q->temperature >= 0 ? q->temperature : s.temperature;
    s.top_p = q->top_p >= 0 ? q->top_p : s.top_p;
    s.top_k = q->top_k >= 0 ? q->top_k : s.top_k;
    s.seed = q->seed >= 0 ? (uint64_t)q->seed : s.seed + r->number;
    generator_sample_as(g, s);
    most = q->most_tokens >= 0 && q->most_tokens < most ? q->most_tokens : most;
    const int failed = q->chat ? generator_converse(g, q->messages, most, e) : pt_generator_prompt(g, q->prompt, q->prompt_n, most, e);

    return failed;
}

static int put_end(answer *a, pt_generator *g, bool over)
{
    text_buffer out = {0};
    a->r->tokens = pt_generator_tokens(g, NULL);
    a->r->cut = !a->stopped && (over || generator_is_cut(g));
    int failed = a->q->stream ? send(a, a->text.n) || serve_put_last(&out, a->r, a->q->usage)
                              : serve_put_whole(&out, a->r, a->text.bytes, a->text.n);
    if (!failed)
        a->sink->take(a->sink->arg, out.bytes, out.n);
    text_buffer_free(&out);
    return failed;
}

/* The stream has begun, so its failure is an event. */
static void put_failure(const answer *a, const pt_error *e)
{
    text_buffer out = {0};
    if (!serve_put_error(&out, e->text, true, true))
        a->sink->take(a->sink->arg, out.bytes, out.n);
    text_buffer_free(&out);
}

static int begin_stream(const answer *a)
{
    text_buffer out = {0};
    const int failed = serve_put_first(&out, a->r) || (out.n && a->sink->take(a->sink->arg, out.bytes, out.n));
    text_buffer_free(&out);
    return failed;
}

int serve_answer(pt_generator *g, const serve_request *q, serve_reply *r, int64_t most_tokens, const answer_sink *sink, pt_error *e)
{
    answer a = {.q = q, .r = r, .sink = sink};
    const char *text;
    size_t n;
    int more = 0;
    bool over = false;
    int failed = start(g, q, r, most_tokens, e);
    if (failed)
        return failed;
    pt_generator_tokens(g, &r->prompt_tokens);
    bool unwanted = q->stream && begin_stream(&a);
    while (!unwanted && !(over = sink->is_over(sink->arg)) && (more = pt_generator_next(g, &text, &n, e)) > 0)
        unwanted = add(&a, text, n);
    if (more < 0 && q->stream)
        put_failure(&a, e);
    failed = more < 0 ? more : 0;
    if (!failed && (a.stopped || !unwanted) && put_end(&a, g, over))
        failed = pt_fail(e, PT_FAILED, "out of memory for an answer");
    text_buffer_free(&a.text);
    return q->stream ? 0 : failed;
}
