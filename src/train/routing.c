#include "train/routing.h"

#include "run/executor.h"

#include <math.h>

typedef struct routing { const int32_t *ends; int64_t units, stride, experts; } routing;

/* The rows of an expert in a step; `first`: that of its layer among a unit's entries. */
static int64_t rows_of(const routing *r, int64_t first, int64_t expert)
{
    int64_t rows = 0;
    for (int64_t unit = 0; unit < r->units; unit++) {
        const int32_t *ends = r->ends + unit * r->stride + first;
        rows += ends[expert] - (expert ? ends[expert - 1] : 0);
    }
    return rows;
}

void routing_measure(const trainer *t, pt_step *s)
{
    const model *m = t->job.model;
    const model_config *c = &m->config;
    const step_shape *all = &t->job.shape;
    const routing r = {executor_routing(t->engine.x), all->units_n, routing_offset(m, (int)c->layers), c->experts};
    int64_t most = 0, idle = 0;
    for (int64_t first = 0; first < r.stride; first += routing_entries(m))
        for (int64_t i = 0; i < r.experts; i++) {
            const int64_t rows = rows_of(&r, first, i);
            most = rows > most ? rows : most;
            idle += rows == 0;
        }
    const double rows = (double)(all->batch * all->seq_len * c->experts_used);
    s->expert_load_max = r.stride ? (double)most / rows * (double)c->experts : NAN;
    s->experts_idle = r.stride ? (double)idle / (double)(r.stride / routing_entries(m) * c->experts) : NAN;
}
