/* metrics_file.h - metrics.jsonl as a run wrote it: an object a line, a line a step. What does not hold (no JSON, a wrong type, a
 * number out of range, steps that do not ascend) is PT_FAILED with file, line and key. */
#ifndef PT_METRICS_FILE_H
#define PT_METRICS_FILE_H

#include "base/error.h"
#include "plan/plan.h"

enum { METRICS_LINE_BYTES = 1 << 16 };
#define METRICS_MAX 1e30 /* of any number */

typedef struct metrics_line {
    int64_t step;                                  /* from 1 */
    double loss;                                   /* nats a token */
    int64_t tokens, learned_tokens;                /* seen so far, and targets of them; 0 where the line does not say */
    double grad_norm, lr, step_s, predicted_step_s, tokens_per_s, eval_loss; /* NAN where the line does not say */
    double chosen, rejected, margin, accuracy, eval_margin, eval_accuracy;   /* the same: of pairs, rewards and what follows from them */
    uint64_t peak[TIERS], predicted[TIERS], budget[TIERS]; /* bytes; 0 where it does not say: there is no such tier */
} metrics_line;

/* Calls `take` for each line; what it returns other than 0 ends the reading and is returned. Takes any length of file, in the memory
 * of a line. A last line that ends in its middle, as a kill leaves it, is left out: *torn is then its number, else 0. */
int metrics_file_read(const char *path, int (*take)(void *arg, const metrics_line *line, pt_error *e), void *arg, uint64_t *torn,
                      pt_error *e);

/* One line, without its newline. */
int metrics_line_read(const char *path, uint64_t number, const char *text, size_t n, metrics_line *out, pt_error *e);

#endif
