#include "report/metrics_file.h"

#include "base/json.h"
#include "io/files.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES (INT64_C(1) << 60)

static const struct { const char *key; json_need need; size_t at; double least; } numbers[] = {
    {"loss", JSON_REQUIRED, offsetof(metrics_line, loss), 0},
    {"grad_norm", JSON_OPTIONAL, offsetof(metrics_line, grad_norm), 0},
    {"lr", JSON_OPTIONAL, offsetof(metrics_line, lr), 0},
    {"step_s", JSON_OPTIONAL, offsetof(metrics_line, step_s), 0},
    {"predicted_step_s", JSON_OPTIONAL, offsetof(metrics_line, predicted_step_s), 0},
    {"tokens_per_s", JSON_OPTIONAL, offsetof(metrics_line, tokens_per_s), 0},
    {"eval_loss", JSON_OPTIONAL, offsetof(metrics_line, eval_loss), 0},
    {"reward_chosen", JSON_OPTIONAL, offsetof(metrics_line, chosen), -METRICS_MAX},
    {"reward_rejected", JSON_OPTIONAL, offsetof(metrics_line, rejected), -METRICS_MAX},
    {"reward_margin", JSON_OPTIONAL, offsetof(metrics_line, margin), -METRICS_MAX},
    {"reward_accuracy", JSON_OPTIONAL, offsetof(metrics_line, accuracy), 0},
    {"accuracy", JSON_OPTIONAL, offsetof(metrics_line, right), 0},
    {"eval_accuracy", JSON_OPTIONAL, offsetof(metrics_line, eval_right), 0},
    {"kl", JSON_OPTIONAL, offsetof(metrics_line, kl), 0},
    {"eval_kl", JSON_OPTIONAL, offsetof(metrics_line, eval_kl), 0},
    {"expert_load_max", JSON_OPTIONAL, offsetof(metrics_line, expert_load), 0},
    {"aux_loss", JSON_OPTIONAL, offsetof(metrics_line, aux_loss), 0},
    {"experts_idle", JSON_OPTIONAL, offsetof(metrics_line, experts_idle), 0},
    {"eval_reward_margin", JSON_OPTIONAL, offsetof(metrics_line, eval_margin), -METRICS_MAX},
    {"eval_reward_accuracy", JSON_OPTIONAL, offsetof(metrics_line, eval_accuracy), 0},
};

static int read_bytes(const json_source *src, tier t, const char *what, uint64_t *out, pt_error *e)
{
    char key[40];
    int64_t bytes = 0;
    snprintf(key, sizeof key, "%s_%s_bytes", tier_names[t], what);
    int failed = json_get_int(src, key, JSON_OPTIONAL, 0, MAX_BYTES, &bytes, e);
    *out = (uint64_t)bytes;
    return failed;
}

static int read_warnings(const json_source *src, metrics_line *out, pt_error *e)
{
    static const char *const keys[] = {"loss_warning", "grad_norm_warning", "eval_warning"};
    int failed = 0;
    for (int i = 0; i < 3 && !failed; i++) {
        const char *text = "";
        failed = json_get_string(src, keys[i], JSON_OPTIONAL, &text, e);
        snprintf(out->warnings[i], METRICS_WARNING_BYTES, "%s", text);
    }
    return failed;
}

static int read_object(const json_source *src, metrics_line *out, pt_error *e)
{
    *out = (metrics_line){0};
    int failed = json_get_int(src, "step", JSON_REQUIRED, 1, INT64_C(1) << 53, &out->step, e);
    if (!failed)
        failed = json_get_int(src, "tokens", JSON_OPTIONAL, 0, INT64_C(1) << 62, &out->tokens, e);
    if (!failed)
        failed = json_get_int(src, "learned_tokens", JSON_OPTIONAL, 0, INT64_C(1) << 62, &out->learned_tokens, e);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && !failed; i++) {
        double value = NAN;
        failed = json_get_double(src, numbers[i].key, numbers[i].need, numbers[i].least, METRICS_MAX, &value, e);
        memcpy((char *)out + numbers[i].at, &value, sizeof value);
    }
    if (!failed)
        failed = read_warnings(src, out, e);
    for (tier t = 0; t < TIERS && !failed; t++) {
        failed = read_bytes(src, t, "peak", &out->peak[t], e);
        if (!failed)
            failed = read_bytes(src, t, "predicted", &out->predicted[t], e);
        if (!failed)
            failed = read_bytes(src, t, "budget", &out->budget[t], e);
    }
    return failed;
}

int metrics_line_read(const char *path, uint64_t number, const char *text, size_t n, metrics_line *out, pt_error *e)
{
    json_error_t bad;
    json_source src;
    char reason[JSON_REASON_BYTES];
    snprintf(src.where, sizeof src.where, "%.400s: line %llu", path, (unsigned long long)number);
    if (json_text_check(src.where, text, n, e))
        return PT_FAILED;
    src.object = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &bad);
    if (!src.object)
        return pt_fail(e, PT_FAILED, "%s, column %d: not valid JSON: %s; remove the line", src.where, bad.column,
                       json_reason(&bad, reason));
    int failed = json_is_object(src.object) ? read_object(&src, out, e)
                                          : pt_fail(e, PT_FAILED, "%s: the line is %s, but must be an object {\"step\": ...}: remove it",
                                                    src.where, json_type_name(src.object));
    json_source_close(&src);
    return failed;
}

/* Reads the next line without its newline; 0 at the end of the file. *whole: it had a newline. */
static int next_line(FILE *f, const char *path, uint64_t number, char text[METRICS_LINE_BYTES], size_t *n, bool *whole, pt_error *e)
{
    int c = 0;
    for (*n = 0; (c = getc_unlocked(f)) != EOF && c != '\n'; text[(*n)++] = (char)c)
        if (*n == METRICS_LINE_BYTES)
            return pt_fail(e, PT_FAILED, "%.400s: line %llu has more than %d bytes: this is not the metrics.jsonl of a run", path,
                           (unsigned long long)number, METRICS_LINE_BYTES);
    *whole = c == '\n';
    if (ferror(f))
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot be read", path);
    return *whole || *n;
}

static int read_lines(FILE *f, const char *path, int (*take)(void *, const metrics_line *, pt_error *), void *arg, uint64_t *torn,
                      pt_error *e)
{
    char text[METRICS_LINE_BYTES];
    int64_t step = 0;
    size_t n;
    bool whole = false;
    for (uint64_t number = 1;; number++) {
        int more = next_line(f, path, number, text, &n, &whole, e), failed = 0;
        metrics_line line;
        if (more <= 0)
            return more;
        failed = metrics_line_read(path, number, text, n, &line, e);
        if (failed && !whole) {
            *torn = number;
            return 0;
        }
        if (!failed && line.step <= step)
            failed = pt_fail(e, PT_FAILED,
                             "%.400s: line %llu: step %lld follows step %lld, but steps must ascend: remove the lines of one of the two "
                             "runs", path, (unsigned long long)number, (long long)line.step, (long long)step);
        if (!failed)
            failed = take(arg, &line, e);
        if (failed)
            return failed;
        step = line.step;
    }
}

int metrics_file_read(const char *path, int (*take)(void *, const metrics_line *, pt_error *), void *arg, uint64_t *torn, pt_error *e)
{
    struct stat st;
    int fd = file_open_regular(path, &st, e);
    *torn = 0;
    if (fd < 0)
        return PT_FAILED;
    FILE *f = fdopen(fd, "rb");
    if (!f) {
        close(fd);
        return pt_fail(e, PT_FAILED, "out of memory");
    }
    int failed = read_lines(f, path, take, arg, torn, e);
    fclose(f);
    return failed;
}
