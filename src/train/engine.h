/* engine.h - the executor of a run's plan, and of which step the weights in its memory are.
 *
 *                                              engine_run(drain, or a step that updates first)
 *                                             +---------------------------------------------------+
 *              engine_open   engine_loaded    v       engine_run(step)            engine_accept   |
 *   CLOSED -------> EMPTY -------> CURRENT ------------------------> STEPPED -------------> WAITING
 *      ^                             |  ^                               |
 *      |          engine_close       |  | engine_accept, engine_reject  |      any state: engine_tear, or a run that fails --> TORN
 *      +-----------------------------+  +-------------------------------+
 *
 * What holds, with k the number of steps that are done (counters.step):
 *
 *   CLOSED    1. There is no executor.
 *   EMPTY     2. The executor is the plan's. Nothing in its memory counts yet.
 *   CURRENT   3. Weights and optimizer states are those after the update of step k; no gradient counts. They may be read and saved.
 *   STEPPED   4. Losses and gradient of step k + 1 are there, and nobody has looked whether they are finite.
 *             5. Weights are as in CURRENT, but where the plan updates during backward: then those of step k + 1.
 *   WAITING   6. Weights and states are those of step k - 1; the gradient of step k is there, and `update` says how it is applied. Nothing
 *                may be read before that has happened. The next step's schedule does it before the weights are needed, a drain at once.
 *             7. The plan does not update during backward.
 *   TORN      8. Some weights may be updated and others not, or their memory could not be taken again: nothing is read any more, and every
 *                run is refused. Only engine_close leaves it.
 *
 * A step that is done is counted between engine_accept and whatever reads the weights next. Nothing that a step computes depends on when
 * waiting updates run. An evaluation runs on CURRENT and leaves it.
 */
#ifndef PT_ENGINE_H
#define PT_ENGINE_H

#include "run/executor.h"
#include "train/measured.h"

typedef enum engine_state { ENGINE_CLOSED, ENGINE_EMPTY, ENGINE_CURRENT, ENGINE_STEPPED, ENGINE_WAITING, ENGINE_TORN } engine_state;

typedef struct engine {
    executor *x;
    engine_state state;
    update_params update; /* of the next update: in WAITING of step k, with updates during backward of step k + 1 */
    measured measured;    /* since it was opened */
    schedule_kind last;   /* what the last step ran */
    bool last_whole;      /* it ended well, its updates too where the plan has them at its end */
} engine;

int engine_open(engine *g, const executor_options *o, pt_error *e);
void engine_loaded(engine *g);
/* Any kind but evaluation's. In WAITING that is a drain or the step that updates first, in CURRENT the step without updates. */
int engine_run(engine *g, schedule_kind kind, float loss_scale, const costs *c, pt_error *e);
/* A step whose losses and gradient are finite. u: its update, which waits; NULL: it has happened. */
void engine_accept(engine *g, const update_params *u);
/* One that is not finite. Returns whether the weights before it are still there. */
bool engine_reject(engine *g, update_time update);
void engine_tear(engine *g);
void engine_close(engine *g);

#endif
