#include "train/metrics.h"

#include "base/error.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file's leading lines whose step is at most `step`, without an incomplete last line. */
static int lines_until(const char *path, int64_t step, metrics_kept *kept, off_t *bytes, pt_error *e)
{
    FILE *f = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    *kept = (metrics_kept){0};
    if (!f)
        return errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    while ((n = getline(&line, &capacity, f)) > 0) {
        kept->there = true;
        json_t *object = line[n - 1] == '\n' ? json_loads(line, 0, NULL) : NULL;
        json_int_t at = json_integer_value(json_object_get(object, "step"));
        bool good = object && at >= 1 && at <= step, evaluated = json_object_get(object, "eval_loss") != NULL;
        json_decref(object);
        if (!good)
            break;
        *kept = (metrics_kept){at, evaluated, true};
        *bytes += n;
    }
    const bool unreadable = ferror(f);
    if (unreadable)
        pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    free(line);
    fclose(f);
    return unreadable ? PT_FAILED : 0;
}

int metrics_open(metrics *m, const char *out, int64_t step, metrics_kept *kept, pt_error *e)
{
    int failed = path_join(m->path, out, "metrics.jsonl", e);
    off_t bytes = 0;
    if (!failed)
        failed = lines_until(m->path, step, kept, &bytes, e);
    if (failed)
        return failed;
    m->file = fopen(m->path, "ae");
    if (!m->file)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be written", m->path);
    if (ftruncate(fileno(m->file), bytes) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot truncate the file after step %lld", m->path, (long long)step);
    return 0;
}

static void put_evaluation(FILE *f, const pt_step *s)
{
    if (isfinite(s->eval_loss))
        fprintf(f, ",\"eval_loss\":%.17g", s->eval_loss);
    else
        fputs(",\"eval_loss\":null", f); /* JSON has no infinity */
    if (s->pairs && isfinite(s->eval_reward_margin))
        fprintf(f, ",\"eval_reward_chosen\":%.9g,\"eval_reward_rejected\":%.9g,\"eval_reward_margin\":%.17g,\"eval_reward_accuracy\":%.9g",
                s->eval_reward_chosen, s->eval_reward_rejected, s->eval_reward_margin, s->eval_reward_accuracy);
    fputs("}\n", f);
}

/* Writes the buffer. On failure nothing of it remains, neither in the file, which was `bytes` long (-1: unknown), nor in the buffer. */
static int metrics_flush(const metrics *m, off_t bytes, pt_error *e)
{
    if (!fflush(m->file) && !ferror(m->file))
        return 0;
    int failed = pt_fail_errno(e, PT_FAILED, "%s cannot be written", m->path);
    __fpurge(m->file);
    clearerr(m->file);
    if (bytes >= 0 && ftruncate(fileno(m->file), bytes))
        return failed; /* the line is incomplete, and a resumed run removes it */
    return failed;
}

static off_t metrics_length(const metrics *m)
{
    struct stat st;
    return fstat(fileno(m->file), &st) || !S_ISREG(st.st_mode) ? -1 : st.st_size;
}

/* Overwrites the line's "}"; the file is open for appending. */
int metrics_add_evaluation(const metrics *m, const pt_step *s, pt_error *e)
{
    const off_t bytes = metrics_length(m) - 2;
    if (bytes < 0)
        return pt_fail(e, PT_FAILED, "%s: the last line is missing", m->path);
    if (ftruncate(fileno(m->file), bytes))
        return pt_fail_errno(e, PT_FAILED, "%s cannot be changed", m->path);
    put_evaluation(m->file, s);
    int failed = metrics_flush(m, bytes, e);
    if (failed)
        (void)!write(fileno(m->file), "}\n", 2); /* the line was complete without it */
    return failed;
}

/* The file may be a pipe, which cannot be synced. */
int metrics_sync(const metrics *m, pt_error *e)
{
    bool failed = m->file && (fflush(m->file) || (fsync(fileno(m->file)) && errno != EINVAL && errno != EROFS));
    return failed ? pt_fail_errno(e, PT_FAILED, "%s cannot be synced to the disk", m->path) : 0;
}

/* A step must not allocate, so the line is not made by the JSON library. */
int metrics_write(const metrics *m, const pt_step *s, const pt_memory *memory, int memory_n, pt_error *e)
{
    const off_t bytes = metrics_length(m);
    FILE *f = m->file;
    fprintf(f, "{\"step\":%lld,\"loss\":%.17g,\"grad_norm\":%.17g,\"lr\":%.17g,\"tokens\":%lld,"
               "\"learned_tokens\":%lld,\"step_s\":%.9g,"
               "\"predicted_step_s\":%.9g,\"tokens_per_s\":%.9g",
            (long long)s->step, s->loss, s->grad_norm, s->lr, (long long)s->tokens, (long long)s->learned_tokens,
            s->step_s, s->predicted_step_s, s->tokens_per_s);
    if (s->pairs)
        fprintf(f, ",\"reward_chosen\":%.9g,\"reward_rejected\":%.9g,\"reward_margin\":%.17g,\"reward_accuracy\":%.9g", s->reward_chosen,
                s->reward_rejected, s->reward_margin, s->reward_accuracy);
    for (int i = 0; i < memory_n; i++) {
        const pt_memory *at = &memory[i];
        fprintf(f, ",\"%s_peak_bytes\":%llu,\"%s_predicted_bytes\":%llu,\"%s_budget_bytes\":%llu", at->tier,
                (unsigned long long)at->peak_bytes, at->tier, (unsigned long long)at->predicted_bytes, at->tier,
                (unsigned long long)at->budget_bytes);
    }
    if (s->evaluated)
        put_evaluation(f, s);
    else
        fputs("}\n", f);
    return metrics_flush(m, bytes, e);
}

void metrics_close(metrics *m)
{
    if (m->file)
        fclose(m->file);
    m->file = NULL;
}
