/* metrics_file.h - reads metrics.jsonl, an object per line, a line per step. Invalid JSON, a wrong type, a number out of range or steps
 * that do not ascend are PT_FAILED with file, line and key. */
#ifndef PT_METRICS_FILE_H
#define PT_METRICS_FILE_H

#include "base/error.h"
#include "plan/plan.h"

enum { METRICS_LINE_BYTES = 1 << 16, METRICS_WARNING_BYTES = 200 };
#define METRICS_MAX 1e30 /* of any number */

typedef struct metrics_line {
    int64_t step;                                  /* from 1 */
    double loss;                                   /* nats a token */
    int64_t tokens, learned_tokens;                /* seen so far, and how many were targets; 0: not in the line */
    double grad_norm, lr, step_s, predicted_step_s, tokens_per_s, eval_loss; /* NAN: not in the line */
    double chosen, rejected, margin, accuracy, eval_margin, eval_accuracy;   /* the same: rewards of pairs, and their statistics */
    double right, eval_right;                      /* the same: accuracy of classification */
    double kl, eval_kl;                            /* the same: of labelled replies */
    double expert_load, experts_idle, aux_loss;    /* the same: of a model with experts */
    char warnings[3][METRICS_WARNING_BYTES];       /* about the loss, the gradient norm, the evaluation; "": none */
    uint64_t peak[TIERS], predicted[TIERS], budget[TIERS]; /* bytes; 0: not in the line, because there is no such tier */
} metrics_line;

/* Calls `take` for each line; a nonzero result ends the reading and is returned. Files of any length, in the memory of one line. An
 * incomplete last line, left by a killed run, is ignored: *torn is its number, else 0. */
int metrics_file_read(const char *path, int (*take)(void *arg, const metrics_line *line, pt_error *e), void *arg, uint64_t *torn,
                      pt_error *e);

/* Parses one line, without its newline. */
int metrics_line_read(const char *path, uint64_t number, const char *text, size_t n, metrics_line *out, pt_error *e);

#endif
