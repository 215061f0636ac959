/* engine.h - the executor of a run's plan, and the state of the weights in its memory.
 *
 *                                              engine_run(drain, or a step that updates first)
 *                                             +---------------------------------------------------+
 *              engine_open   engine_loaded    v       engine_run(step)            engine_accept   |
 *   CLOSED -------> EMPTY -------> CURRENT ------------------------> STEPPED -------------> WAITING
 *      ^                             |  ^                               |
 *      |          engine_close       |  | engine_accept, engine_reject  |      any state: engine_tear, or a run that fails --> TORN
 *      +-----------------------------+  +-------------------------------+
 *
 * Invariants, with k the number of completed steps (counters.step):
 *
 *   CLOSED    1. There is no executor.
 *   EMPTY     2. The executor is the plan's. The contents of its memory are undefined.
 *   CURRENT   3. Weights and optimizer states are those after the update of step k; gradients are undefined. Weights and states may be read
 *                and saved.
 *   STEPPED   4. Losses and gradient of step k + 1 are computed but not checked yet.
 *             5. Weights are as in CURRENT; if the plan updates during backward, they are those of step k + 1.
 *   WAITING   6. Weights and states are those of step k - 1; the gradient of step k waits, and `update` says how to apply it. Nothing may
 *                be read before that. The next step's schedule applies it before the weights are needed; a drain applies it at once.
 *             7. The plan does not update during backward.
 *   TORN      8. Some weights may be updated and others not, or the memory could not be allocated again. Nothing may be read, and every
 *                run is refused. Only engine_close leaves this state.
 *
 * A completed step is counted after engine_accept and before anything reads the weights. No result depends on when waiting updates run. An
 * evaluation runs in CURRENT and leaves it unchanged.
 */
#ifndef PT_ENGINE_H
#define PT_ENGINE_H

#include "run/executor.h"
#include "train/measured.h"

typedef enum engine_state { ENGINE_CLOSED, ENGINE_EMPTY, ENGINE_CURRENT, ENGINE_STEPPED, ENGINE_WAITING, ENGINE_TORN } engine_state;

typedef struct engine {
    executor *x;
    engine_state state;
    update_params update; /* parameters of the next update: in WAITING that of step k, with updates during backward that of step k + 1 */
    measured measured;    /* since engine_open */
    schedule_kind last;   /* the schedule of the last step */
    bool last_whole;      /* it succeeded, including its updates if the plan has them at its end */
} engine;

int engine_open(engine *g, const executor_options *o, pt_error *e);
void engine_loaded(engine *g);
/* Any kind except evaluation. In WAITING a drain or the step that updates first, in CURRENT the step without updates. */
int engine_run(engine *g, schedule_kind kind, float loss_scale, const costs *costs, pt_error *e);
/* Accepts a step with finite losses and gradient. u: its update, which waits; NULL: it has already run. */
void engine_accept(engine *g, const update_params *u);
/* Rejects a step that is not finite. Returns true if the weights before it are intact. */
bool engine_reject(engine *g, update_time update);
void engine_tear(engine *g);
void engine_close(engine *g);

#endif
