/* metrics.c - metrics.jsonl, a line a step. A resumed run cuts it back to the step that it starts from. */
#include "train/trainer.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct kept_lines {
    off_t bytes;
    int64_t last;   /* step of the last one, 0: there is none */
    bool evaluated; /* in the last one */
    bool there;     /* the file has lines, be they kept or not */
} kept_lines;

/* The file's leading lines whose step is at most `step`; a torn last line is not among them. */
static int lines_until(const char *path, int64_t step, kept_lines *keep, pt_error *e)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    *keep = (kept_lines){0};
    if (!f)
        return errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    while ((n = getline(&line, &capacity, f)) > 0) {
        keep->there = true;
        json_t *object = line[n - 1] == '\n' ? json_loads(line, 0, NULL) : NULL;
        json_int_t at = json_integer_value(json_object_get(object, "step"));
        bool good = object && at >= 1 && at <= step, evaluated = json_object_get(object, "eval_loss") != NULL;
        json_decref(object);
        if (!good)
            break;
        *keep = (kept_lines){keep->bytes + n, at, evaluated, true};
    }
    const bool unreadable = ferror(f);
    if (unreadable)
        pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    free(line);
    fclose(f);
    return unreadable ? PT_FAILED : 0;
}

int metrics_open(trainer *t, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    kept_lines keep;
    int failed = path_join(path, t->out, "metrics.jsonl", e);
    if (!failed)
        failed = lines_until(path, t->step, &keep, e);
    if (failed)
        return failed;
    t->metrics = fopen(path, "ae");
    if (!t->metrics)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be written", path);
    if (ftruncate(fileno(t->metrics), keep.bytes) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be cut back to step %lld", path, (long long)t->step);
    if (keep.there && keep.last < t->step)
        trainer_notice(t, "%s has no lines for the steps %lld to %lld", path, (long long)keep.last + 1, (long long)t->step);
    t->owes_evaluation = keep.last && keep.last == t->step && !keep.evaluated && trainer_evaluates(t);
    return 0;
}

static void put_evaluation(FILE *f, double loss)
{
    if (isfinite(loss))
        fprintf(f, ",\"eval_loss\":%.17g", loss);
    else
        fputs(",\"eval_loss\":null", f); /* JSON has no infinity */
    fputs("}\n", f);
}

/* Writes what was put; where that fails, no part of it stays: neither in the file, which was `bytes` long (-1: not known), nor for the next
 * line to stand behind. */
static int metrics_flush(const trainer *t, off_t bytes, pt_error *e)
{
    if (!fflush(t->metrics) && !ferror(t->metrics))
        return 0;
    int failed = pt_fail_errno(e, PT_FAILED, "%s/metrics.jsonl cannot be written", t->out);
    __fpurge(t->metrics);
    clearerr(t->metrics);
    if (bytes >= 0 && ftruncate(fileno(t->metrics), bytes))
        return failed; /* the line is torn, and is cut when the run is resumed */
    return failed;
}

static off_t metrics_length(const trainer *t)
{
    struct stat st;
    return fstat(fileno(t->metrics), &st) || !S_ISREG(st.st_mode) ? -1 : st.st_size;
}

/* The line's "}" makes room; the file is open for appending. */
int metrics_add_evaluation(trainer *t, double loss, pt_error *e)
{
    const off_t bytes = metrics_length(t) - 2;
    if (bytes < 0)
        return pt_fail(e, PT_FAILED, "%s/metrics.jsonl has lost its last line", t->out);
    if (ftruncate(fileno(t->metrics), bytes))
        return pt_fail_errno(e, PT_FAILED, "%s/metrics.jsonl cannot be changed", t->out);
    put_evaluation(t->metrics, loss);
    int failed = metrics_flush(t, bytes, e);
    if (failed)
        (void)!write(fileno(t->metrics), "}\n", 2); /* the line was whole without it */
    return failed;
}

/* A pipe that somebody put there cannot be synced. */
int metrics_sync(const trainer *t, pt_error *e)
{
    bool failed = t->metrics && (fflush(t->metrics) || (fsync(fileno(t->metrics)) && errno != EINVAL && errno != EROFS));
    return failed ? pt_fail_errno(e, PT_FAILED, "%s/metrics.jsonl cannot be synced to the disk", t->out) : 0;
}

/* A step allocates nothing, so the line is not made by the JSON library. */
int metrics_write(trainer *t, const pt_step *s, pt_error *e)
{
    pt_memory memory[TIERS];
    int memory_n = trainer_memory(t, memory);
    const off_t bytes = metrics_length(t);
    FILE *f = t->metrics;
    fprintf(f, "{\"step\":%lld,\"loss\":%.17g,\"grad_norm\":%.17g,\"lr\":%.17g,\"tokens\":%lld,\"learned_tokens\":%lld,"
               "\"step_s\":%.9g,"
               "\"predicted_step_s\":%.9g,\"tokens_per_s\":%.9g",
            (long long)s->step, s->loss, s->grad_norm, s->lr, (long long)s->tokens, (long long)s->learned_tokens, s->step_s, s->predicted_step_s, s->tokens_per_s);
    for (int i = 0; i < memory_n; i++) {
        const pt_memory *m = &memory[i];
        fprintf(f, ",\"%s_peak_bytes\":%llu,\"%s_predicted_bytes\":%llu,\"%s_budget_bytes\":%llu", m->tier,
                (unsigned long long)m->peak_bytes, m->tier, (unsigned long long)m->predicted_bytes, m->tier,
                (unsigned long long)m->budget_bytes);
    }
    if (s->evaluated)
        put_evaluation(f, s->eval_loss);
    else
        fputs("}\n", f);
    return metrics_flush(t, bytes, e);
}
