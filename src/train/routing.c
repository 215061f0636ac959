#include "train/routing.h"

#include "run/executor.h"

#include <math.h>

/* Of a step: entries of a unit, of a layer. */
typedef struct routing { const int32_t *ends; int64_t units, stride, entries, experts; } routing;

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

/* As in layer/experts.c: of a unit. */
static double balance_of(const routing *r, const int32_t *unit, int64_t k)
{
    double products = 0, slots = 0;
    for (int64_t i = 0; i < r->experts; i++) {
        double used = 0, probabilities = 0;
        for (const int32_t *ends = unit; ends < unit + r->stride; ends += r->entries) {
            used += (double)((const float *)(ends + r->experts))[i];
            probabilities += (double)((const float *)(ends + 2 * r->experts))[i];
        }
        products += used * probabilities;
        slots += used;
    }
    const double n = slots / (double)k;
    return n > 0 ? (double)r->experts * products / n / n : 0;
}

/* The mean over the units. */
static double mean_balance(const routing *r, int64_t k)
{
    double sum = 0;
    for (int64_t unit = 0; unit < r->units; unit++)
        sum += balance_of(r, r->ends + unit * r->stride, k);
    return sum / (double)r->units;
}

void routing_measure(const trainer *trainer, pt_step *step)
{
    const model *m = trainer->job.model;
    const model_config *config = &m->config;
    const step_shape *all = &trainer->job.shape, *own = trainer_shape(trainer);
    const routing r = {executor_routing(trainer->engine.x), own->units_n * shape_ranks(own), routing_offset(m, all, (int)config->layers),
                       routing_entries(m, all), config->experts};
    int64_t most = 0, idle = 0;
    for (int64_t first = 0; first < r.stride; first += r.entries)
        for (int64_t i = 0; i < r.experts; i++) {
            const int64_t rows = rows_of(&r, first, i);
            most = rows > most ? rows : most;
            idle += rows == 0;
        }
    const double rows = (double)(all->batch * all->seq_len * config->experts_used);
    step->expert_load_max = r.stride ? (double)most / rows * (double)config->experts : NAN;
    step->experts_idle = r.stride ? (double)idle / (double)(r.stride / r.entries * config->experts) : NAN;
    step->aux_loss = r.stride && all->router_aux > 0 ? mean_balance(&r, config->experts_used) : NAN;
}
