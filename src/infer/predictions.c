#include "infer/predictions.h"

#include "text/buffer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIRST_BYTES "{\"record\": "

/* Of each record: scores of its classes, or one, or those of a pair. */
static int64_t values_of(const predictions *p) { return dataset_pairs(p->data) ? 2 : p->names->n; }
static size_t row_bytes(const predictions *p) { return (size_t)(1 + values_of(p)) * sizeof(float); }

int predictions_may_write(const char *path, pt_error *e)
{
    return file_may_replace(path, "predictions", FIRST_BYTES, "file of predictions", e);
}

int predictions_open(predictions *p, pt_error *e)
{
    int failed = file_stage_begin(&p->file, p->path, e);
    if (failed)
        return failed;
    p->row = malloc(row_bytes(p));
    if (!p->row) {
        file_stage_abort(&p->file);
        return pt_fail(e, PT_FAILED, "out of memory");
    }
    p->fd = file_unnamed(NULL, e);
    if (p->fd >= 0 && ftruncate(p->fd, (off_t)(dataset_records(p->data) * row_bytes(p))))
        return pt_fail_errno(e, PT_FAILED, "%s: cannot write a temporary file of %llu bytes here", dir_temporary(),
                             (unsigned long long)(dataset_records(p->data) * row_bytes(p)));
    return p->fd < 0 ? PT_FAILED : 0;
}

void predictions_close(predictions *p)
{
    if (p->row && p->fd >= 0)
        close(p->fd);
    if (p->row)
        file_stage_abort(&p->file);
    free(p->row);
    p->row = NULL;
}

/* ---- taking scores ---- */

typedef struct window { const predictions *p; const float *scores; } window;

static int take_example(void *arg, const scored_example *x, pt_error *e)
{
    const window *w = arg;
    const predictions *p = w->p;
    const int64_t n = values_of(p), stride = executor_input_of(p->x)->shape->scores;
    const bool pair = dataset_pairs(p->data);
    p->row[0] = 1;
    for (int64_t i = 0; i < n; i++) {
        const float score = pair ? w->scores[x->row[i] * stride] : w->scores[x->row[0] * stride + i];
        if (!isfinite(score))
            return pt_fail(e, PT_FAILED, "record %llu of the data: its score is not finite: the weights are damaged, or too large for bf16 "
                                         "(try `precision` fp32)", (unsigned long long)x->record + 1);
        p->row[1 + i] = score;
    }
    return fd_pwrite_all(p->fd, p->row, row_bytes(p), x->record * row_bytes(p), "a temporary file of predictions", e);
}

int predictions_take(void *arg, uint64_t first, uint64_t n, pt_error *e)
{
    const predictions *p = arg;
    const step_shape *shape = executor_input_of(p->x)->shape;
    int failed = 0;
    for (uint64_t i = 0; i < n && !failed; i++) {
        window w = {p, executor_scores(p->x) + (int64_t)i * shape->seq_len * shape->scores};
        failed = dataset_scored(p->data, first + i, take_example, &w, e);
    }
    return failed;
}

/* ---- writing lines ---- */

/* Lines, of which `quoted` has the names in JSON. */
typedef struct lines {
    predictions *p;
    char **quoted;
    text_buffer text;
    pt_error *e;
    int failed;
} lines;

static void put(lines *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void put(lines *l, const char *fmt, ...)
{
    char number[64];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(number, sizeof number, fmt, ap);
    va_end(ap);
    if (!l->failed)
        l->failed = text_buffer_append(&l->text, number, (size_t)n, l->e);
}

static void put_name(lines *l, int64_t label)
{
    if (!l->failed)
        l->failed = text_buffer_append(&l->text, l->quoted[label], strlen(l->quoted[label]), l->e);
}

/* Names as those of config.json; without any those that Transformers gives. */
static int quote_names(lines *l, pt_error *e)
{
    const label_names *names = l->p->names;
    l->quoted = calloc((size_t)names->n, sizeof *l->quoted);
    for (int64_t i = 0; l->quoted && i < names->n; i++) {
        json_t *name = names->name ? json_string(names->name[i]) : json_sprintf("LABEL_%lld", (long long)i);
        l->quoted[i] = name ? json_dumps(name, JSON_ENCODE_ANY) : NULL;
        json_decref(name);
        if (!l->quoted[i])
            return pt_fail(e, PT_FAILED, "out of memory");
    }
    return l->quoted ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

static void free_names(lines *l)
{
    for (int64_t i = 0; l->quoted && i < l->p->names->n; i++)
        free(l->quoted[i]);
    free(l->quoted);
}

static int64_t highest(const float *score, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = score[i] > score[best] ? i : best;
    return best;
}

static void put_classes(lines *l, const float *score)
{
    const int64_t n = l->p->names->n, best = highest(score, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)score[i] - (double)score[best]);
    put(l, "\"label\": ");
    put_name(l, best);
    put(l, ", \"probability\": %.9g, \"probabilities\": {", 1 / sum);
    for (int64_t i = 0; i < n; i++) {
        put(l, "%s", i ? ", " : "");
        put_name(l, i);
        put(l, ": %.9g", exp((double)score[i] - (double)score[best]) / sum);
    }
    put(l, "}, \"logits\": [");
    for (int64_t i = 0; i < n; i++)
        put(l, "%s%.9g", i ? ", " : "", (double)score[i]);
    put(l, "]");
}

static void put_record(lines *l, uint64_t record, const float *row)
{
    const bool pair = dataset_pairs(l->p->data), classes = !pair && l->p->names->n > 1;
    const float *score = row + 1;
    put(l, FIRST_BYTES "%llu, ", (unsigned long long)record);
    if (row[0] == 0)
        put(l, "%s", pair ? "\"chosen\": null, \"rejected\": null" : classes ? "\"label\": null" : "\"score\": null");
    else if (pair)
        put(l, "\"chosen\": %.9g, \"rejected\": %.9g", (double)score[0], (double)score[1]);
    else if (classes)
        put_classes(l, score);
    else
        put(l, "\"score\": %.9g", (double)score[0]);
    put(l, "}\n");
}

static int write_lines(lines *l, pt_error *e)
{
    predictions *p = l->p;
    const uint64_t records = dataset_records(p->data);
    int failed = 0;
    for (uint64_t i = 0; i < records && !failed; i++) {
        failed = fd_pread_all(p->fd, p->row, row_bytes(p), i * row_bytes(p), "a temporary file of predictions", e);
        if (!failed)
            put_record(l, i + 1, p->row);
        failed = failed ? failed : l->failed;
        if (!failed && (l->text.n > 1 << 16 || i + 1 == records)) {
            failed = file_stage_write(&p->file, l->text.bytes, l->text.n, e);
            l->text.n = 0;
        }
    }
    return failed;
}

int predictions_write(predictions *p, int64_t *n, pt_error *e)
{
    lines l = {.p = p, .e = e};
    int failed = quote_names(&l, e);
    if (!failed)
        failed = write_lines(&l, e);
    if (!failed)
        failed = file_stage_commit(&p->file, e);
    free_names(&l);
    text_buffer_free(&l.text);
    *n = (int64_t)dataset_records(p->data);
    return failed;
}
