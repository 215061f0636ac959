/* watch.h - tells when training goes wrong: from the losses, gradient norms and evaluation losses alone, so that a resumed run, which reads
 * the lines of its metrics again, goes on as if it had not stopped.
 *
 *     loss         high above its start for WATCH_ROW steps in a row
 *     norm         the gradient's, WATCH_STEEP times what it was, for as many steps
 *     evaluation   rises twice in a row, while the training loss falls
 *
 * Each is told once. Single batches may be hard; so nothing is told of one step, and small losses may double.
 */
#ifndef PT_WATCH_H
#define PT_WATCH_H

#include <stdbool.h>
#include <stdint.h>

enum { WATCH_ROW = 9, WATCH_FIRST = 16, WATCH_STEEP = 20, WATCH_TEXT = 160 };
typedef enum watch_kind { WATCH_LOSS, WATCH_NORM, WATCH_EVALUATION, WATCH_KINDS } watch_kind;

typedef struct watch {
    double guess;                      /* loss of a model that knows nothing; INFINITY: unknown */
    int64_t first_n;                   /* so many steps tell the loss at the start: enough sequences for a mean */
    int64_t steps;                     /* seen */
    double first, first_norm;          /* of the first step, before any update */
    double start;                      /* mean loss of the first ones, which may have risen already */
    double norms[WATCH_FIRST], usual;  /* their median */
    int high, steep;                   /* steps in a row */
    double sum; int64_t n;             /* training losses since the last evaluation */
    double best, best_train, last;     /* evaluation losses: the lowest, with the training loss before it, and the last */
    int64_t best_step;                 /* 0: none yet */
    int rises;                         /* evaluations in a row that were worse than the one before */
    int64_t at[WATCH_KINDS];           /* step of the warning, 0: there is none */
    char text[WATCH_KINDS][WATCH_TEXT];
} watch;

/* batch: sequences of a step. */
void watch_open(watch *w, double guess, int64_t batch);
/* Both take a step's values, and say whether there is a new warning about it (a kind with at[kind] == step). */
bool watch_step(watch *w, int64_t step, double loss, double grad_norm);
bool watch_evaluation(watch *w, int64_t step, double eval_loss);

#endif
