/* patience.h - whether steps have been off their prediction for long enough to plan again.
 *
 * Steps are looked at by the median of PATIENCE_WINDOW steady ones. A look is off by more than a tenth of the prediction, else
 * calm, as steps below 50 ms always are; the second off in a row asks for a decision, if the last one was long enough ago:
 *
 *     at first             2 looks
 *     nothing moved        twice as long, up to 128 looks: a machine whose speed wanders is not planned for again and again
 *     the plan moved       2 looks again
 *     calm for long        half as long, each time that 8 such waits have passed without a look that was off
 *
 * No wait holds where the steps are more than half off and have been so for 10 s in all, counted as what they took more or less
 * than predicted: a search takes up to 1 s. Steps of 12 s instead of 1.6 s are decided at the second look, steps of 0.6 s
 * instead of 0.2 s after 25 of them.
 */
#ifndef PT_PATIENCE_H
#define PT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_WINDOW = 5 };

/* All zero: a run that begins. */
typedef struct patience {
    int64_t looked_at;  /* steady steps at the last look */
    int64_t off, calm;  /* looks in a row; one of them is 0 */
    int64_t since;      /* looks since the last decision */
    int doubled;        /* how many times the wait was */
    double lost_s;      /* while looks are far off */
} patience;

typedef enum patience_answer {
    PATIENCE_NOTHING, /* no look yet, or a calm one */
    PATIENCE_WATCH,   /* off: the tasks of the next steps should be timed */
    PATIENCE_DECIDE
} patience_answer;

/* After a step. steady: how many steady ones there were, from 0 again after a move; is_s: the median of the newest PATIENCE_WINDOW. */
patience_answer patience_look(patience *p, int64_t steady, double predicted_s, double is_s);
/* After a decision. */
void patience_decided(patience *p, bool moved);

#endif
