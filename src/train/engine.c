#include "train/engine.h"

#include <string.h>

int engine_open(engine *g, const executor_options *o, pt_error *e)
{
    memset(&g->measured, 0, sizeof g->measured);
    int failed = executor_open(o, &g->x, e);
    if (!failed)
        g->state = ENGINE_EMPTY;
    return failed;
}

void engine_loaded(engine *g) { g->state = ENGINE_CURRENT; }

int engine_run(engine *g, schedule_kind kind, float loss_scale, const costs *costs, pt_error *e)
{
    if (g->state == ENGINE_TORN)
        return pt_fail(e, PT_FAILED, "an earlier step failed half-way, so that the model in memory is neither that before the step nor "
                                     "that after it");
    int failed = executor_run(g->x, kind, loss_scale, &g->update, e);
    g->state = failed ? ENGINE_TORN : kind == SCHEDULE_DRAIN ? ENGINE_CURRENT : ENGINE_STEPPED;
    if (!failed)
        measured_run(&g->measured, executor_input_of(g->x), costs, g->x, kind);
    return failed;
}

void engine_accept(engine *g, const update_params *u)
{
    if (u)
        g->update = *u;
    g->state = u ? ENGINE_WAITING : ENGINE_CURRENT;
}

bool engine_reject(engine *g, update_time update)
{
    g->state = update == UPDATE_BACKWARD ? ENGINE_TORN : ENGINE_CURRENT;
    return g->state == ENGINE_CURRENT;
}

void engine_tear(engine *g) { g->state = ENGINE_TORN; }

void engine_close(engine *g)
{
    executor_close(g->x);
    g->x = NULL;
    g->state = ENGINE_CLOSED;
}
