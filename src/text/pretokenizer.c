#include "text/pretokenizer.h"

#include "text/buffer.h"

#include <string.h>

typedef struct span {
    size_t at, end;
    bool match;
} span;

static int run_steps(const pre_run *run, size_t step, const char *text, size_t n, span_start start, pt_error *e);

/* A split holds back one span, because the next may be joined to it. */
typedef struct splitter {
    const pre_run *run;
    size_t next_step;
    const char *text;
    span_start start;
    split_behavior behavior;
    bool invert, pending, after_match;
    span held;
} splitter;

static int flush_span(splitter *s, pt_error *e)
{
    span h = s->held;
    if (!s->pending || h.at == h.end || (s->behavior == SPLIT_REMOVED && h.match))
        return 0;
    return run_steps(s->run, s->next_step, s->text + h.at, h.end - h.at, h.at == 0 ? s->start : START_INSIDE, e);
}

static int add_span(splitter *s, size_t at, size_t end, bool match, pt_error *e)
{
    match ^= s->invert;
    bool join = false;
    if (s->behavior == SPLIT_WITH_PREVIOUS)
        join = s->pending && match && !s->after_match;
    else if (s->behavior == SPLIT_WITH_NEXT)
        join = s->pending && s->held.match && !match;
    else if (s->behavior == SPLIT_CONTIGUOUS)
        join = s->pending && match == s->after_match;
    s->after_match = match;
    if (join) {
        s->held.end = end;
        s->held.match = match;
        return 0;
    }
    int status = flush_span(s, e);
    s->held = (span){at, end, match};
    s->pending = true;
    return status;
}

static int run_split(const pre_run *run, size_t step, const char *text, size_t n, span_start start, pt_error *e)
{
    const pre_step *p = &run->pre->steps[step];
    splitter s = {.run = run, .next_step = step + 1, .text = text, .start = start, .behavior = p->behavior,
                  .invert = p->invert};
    pattern_search search = {0};
    size_t done = 0;
    int found, status = 0;
    while ((found = pattern_next(&p->search, run->patterns, text, n, &search, e)) > 0) {
        size_t match = search.match, end = search.match_end;
        if (match > done)
            status = add_span(&s, done, match, false, e);
        if (!status)
            status = add_span(&s, match, end, true, e);
        if (status)
            return status;
        done = end;
    }
    if (found < 0)
        return found;
    if (done < n && (status = add_span(&s, done, n, false, e)))
        return status;
    return flush_span(&s, e);
}

static int run_metaspace(const pre_run *run, size_t step, const char *text, size_t n, span_start start, pt_error *e)
{
    const pre_step *p = &run->pre->steps[step];
    text_buffer *out = &run->buffers[step];
    bool marked = n > 0 && (text[0] == ' ' || (n >= p->n_mark && memcmp(text, p->mark, p->n_mark) == 0));
    bool prepend = !marked && ((p->prepend == PREPEND_ALWAYS && start != START_CONTINUES) ||
                               (p->prepend == PREPEND_FIRST && start == START_OF_TEXT));
    out->n = 0;
    int status = prepend ? text_buffer_append(out, p->mark, p->n_mark, e) : 0;
    for (size_t i = 0; i < n && !status;) {
        const char *space = memchr(text + i, ' ', n - i);
        size_t length = space ? (size_t)(space - text) - i : n - i;
        status = text_buffer_append(out, text + i, length, e);
        if (space && !status)
            status = text_buffer_append(out, p->mark, p->n_mark, e);
        i += length + 1;
    }
    return status ? status : run_steps(run, step + 1, out->bytes, out->n, start, e);
}

static int run_prefix_space(const pre_run *run, size_t step, const char *text, size_t n, span_start start, pt_error *e)
{
    text_buffer *out = &run->buffers[step];
    if (text[0] == ' ' || start == START_CONTINUES)
        return run_steps(run, step + 1, text, n, start, e);
    out->n = 0;
    int status = text_buffer_append(out, " ", 1, e);
    if (!status)
        status = text_buffer_append(out, text, n, e);
    return status ? status : run_steps(run, step + 1, out->bytes, out->n, start, e);
}

static int run_steps(const pre_run *run, size_t step, const char *text, size_t n, span_start start, pt_error *e)
{
    if (n == 0)
        return 0;
    if (step == run->pre->n)
        return run->word(run->context, text, n, e);
    switch (run->pre->steps[step].kind) {
    case PRE_SPLIT: return run_split(run, step, text, n, start, e);
    case PRE_METASPACE: return run_metaspace(run, step, text, n, start, e);
    case PRE_PREFIX_SPACE: break;
    }
    return run_prefix_space(run, step, text, n, start, e);
}

int pretokenizer_run(const pre_run *run, const char *text, size_t n, span_start start, pt_error *e)
{
    return run_steps(run, 0, text, n, start, e);
}
