#include "train/metrics.h"

#include "base/error.h"

#include <math.h>
#include <unistd.h>

/* Its text has nothing that JSON escapes. */
static void put_warning(FILE *f, const char *key, const watch *w, watch_kind kind, int64_t step)
{
    if (w->at[kind] == step)
        fprintf(f, ",\"%s\":\"%s\"", key, w->text[kind]);
}

/* What is not a number is left out. */
static void put_number(FILE *f, const char *before, const char *key, int digits, double value)
{
    if (isfinite(value))
        fprintf(f, ",\"%s%s\":%.*g", before, key, digits, value);
}

static void put_evaluation(FILE *f, const pt_step *step, const watch *w)
{
    if (isfinite(step->eval_loss))
        fprintf(f, ",\"eval_loss\":%.17g", step->eval_loss);
    else
        fputs(",\"eval_loss\":null", f); /* JSON has no infinity */
    if (step->pairs) {
        put_number(f, "eval_", "reward_chosen", 9, step->eval_reward_chosen);
        put_number(f, "eval_", "reward_rejected", 9, step->eval_reward_rejected);
        put_number(f, "eval_", "reward_margin", 17, step->eval_reward_margin);
        put_number(f, "eval_", "reward_accuracy", 17, step->eval_reward_accuracy);
        put_number(f, "eval_", "kl", 17, step->eval_kl);
    }
    put_number(f, "eval_", "accuracy", 17, step->eval_accuracy);
    put_warning(f, "eval_warning", w, WATCH_EVALUATION, step->step);
    fputs("}\n", f);
}

/* Overwrites the line's "}"; the file is open for appending. */
int metrics_add_evaluation(const step_lines *m, const pt_step *step, const watch *w, pt_error *e)
{
    const off_t bytes = step_lines_length(m) - 2;
    if (bytes < 0)
        return pt_fail(e, PT_FAILED, "%s: the last line is missing", m->path);
    if (ftruncate(fileno(m->file), bytes))
        return pt_fail_errno(e, PT_FAILED, "%s cannot be changed", m->path);
    put_evaluation(m->file, step, w);
    int failed = step_lines_flush(m, bytes, e);
    if (failed)
        (void)!write(fileno(m->file), "}\n", 2); /* the line was complete without it */
    return failed;
}

/* A step must not allocate, so the line is not made by the JSON library. */
int metrics_write(const step_lines *m, const pt_step *step, const pt_memory *memory, int memory_n, const watch *w, pt_error *e)
{
    const off_t bytes = step_lines_length(m);
    FILE *f = m->file;
    fprintf(f, "{\"step\":%lld,\"loss\":%.17g,\"grad_norm\":%.17g,\"lr\":%.17g,\"tokens\":%lld,"
               "\"learned_tokens\":%lld,\"step_s\":%.9g,"
               "\"predicted_step_s\":%.9g,\"tokens_per_s\":%.9g",
            (long long)step->step, step->loss, step->grad_norm, step->lr, (long long)step->tokens, (long long)step->learned_tokens,
            step->step_s, step->predicted_step_s, step->tokens_per_s);
    if (step->pairs) {
        put_number(f, "", "reward_chosen", 9, step->reward_chosen);
        put_number(f, "", "reward_rejected", 9, step->reward_rejected);
        put_number(f, "", "reward_margin", 17, step->reward_margin);
        put_number(f, "", "reward_accuracy", 9, step->reward_accuracy);
        put_number(f, "", "kl", 17, step->kl);
    }
    put_number(f, "", "accuracy", 17, step->accuracy);
    if (step->first_layer >= 0)
        fprintf(f, ",\"first_layer\":%lld", (long long)step->first_layer);
    put_number(f, "", "expert_load_max", 17, step->expert_load_max);
    put_number(f, "", "experts_idle", 17, step->experts_idle);
    put_number(f, "", "aux_loss", 17, step->aux_loss);
    for (int i = 0; i < memory_n; i++) {
        const pt_memory *at = &memory[i];
        fprintf(f, ",\"%s_peak_bytes\":%llu,\"%s_predicted_bytes\":%llu,\"%s_budget_bytes\":%llu", at->tier,
                (unsigned long long)at->peak_bytes, at->tier, (unsigned long long)at->predicted_bytes, at->tier,
                (unsigned long long)at->budget_bytes);
    }
    put_warning(f, "loss_warning", w, WATCH_LOSS, step->step);
    put_warning(f, "grad_norm_warning", w, WATCH_NORM, step->step);
    if (step->evaluated)
        put_evaluation(f, step, w);
    else
        fputs("}\n", f);
    return step_lines_flush(m, bytes, e);
}
