/* patience.h - decides whether steps have differed from the prediction for long enough to plan again.
 *
 * A look compares the median of PATIENCE_WINDOW steady steps with the prediction. It is off if they differ by more than a tenth, else calm;
 * steps below 50 ms are always calm. The second look in a row that is off asks for a decision, if the last decision was long enough ago:
 *
 *     at first                     2 looks
 *     the plan stayed              twice as long as before, up to 128 looks, so that a machine of varying speed is not planned for
 *                                  again and again
 *     the plan changed             2 looks
 *     calm for 8 such waits        half as long
 *
 * No wait applies if the steps are off by more than half and the difference has added up to 10 s: a search takes up to 1 s. Steps of 12 s
 * instead of 1.6 s lead to a decision at the second look, steps of 0.6 s instead of 0.2 s after 25 of them.
 */
#ifndef PT_PATIENCE_H
#define PT_PATIENCE_H

#include <stdbool.h>
#include <stdint.h>

enum { PATIENCE_WINDOW = 5 };

/* All zero at the start of a run. */
typedef struct patience {
    int64_t looked_at;  /* steady steps at the last look */
    int64_t off, calm;  /* looks in a row; one of the two is 0 */
    int64_t since;      /* looks since the last decision */
    int doubled;        /* how often the wait was doubled */
    double lost_s;      /* while looks are off by more than half */
} patience;

typedef enum patience_answer {
    PATIENCE_NOTHING, /* no look was due, or it was calm */
    PATIENCE_WATCH,   /* off: time the tasks of the next steps */
    PATIENCE_DECIDE
} patience_answer;

/* Will the next look compare? `steady` as below. */
bool patience_is_due(const patience *p, int64_t steady);
/* Call it after each step. steady: number of steady steps, from 0 again after a change of plan; is_s: median of the newest
 * PATIENCE_WINDOW. */
patience_answer patience_look(patience *p, int64_t steady, double predicted_s, double is_s);
/* Call it after a decision. */
void patience_decided(patience *p, bool moved);

/* The step times that a user was told. All zero at the start of a run. */
typedef struct telling { double told_s, now_s; int steps; } telling;
/* Should the decision to keep the plan, while steps take is_s, be told? Only the first is. */
bool telling_is_first(telling *t, double is_s);
/* Call it after each step with the median of the newest steps. Returns whether a later decision should be told: TELLING_STEPS consecutive
 * steps differed by a quarter from the told time. So there are few notices on a machine whose speed fluctuates. */
enum { TELLING_STEPS = 40 };
bool telling_is_due(telling *t, double is_s);

#endif
