/* random_costs.h - random costs for tests: everything finite, curves ascending, transfers a few times faster or slower than the
 * blocks. */
#ifndef PT_RANDOM_COSTS_H
#define PT_RANDOM_COSTS_H

#include "random_plan.h"
#include "predict/costs.h"

static inline double random_ns(random_source *r, double low, double high)
{
    return low + (high - low) * (random_below(r, 1 << 20) / 1048576.0);
}

static inline cost_curve random_curve(random_source *r, double ns_per_unit)
{
    cost_curve c = {.n = random_from(r, 1, COST_POINTS)};
    double amount = random_from(r, 1, 3000), ns = random_ns(r, 0, 2000);
    for (int i = 0; i < c.n; i++) {
        c.amount[i] = amount;
        c.ns[i] = ns;
        double more = random_from(r, 1, 40000);
        amount += more;
        ns += more * ns_per_unit * random_ns(r, 0.2, 1.5);
    }
    return c;
}

static inline costs random_costs(random_source *r, const model *m, bool contention)
{
    costs c;
    costs_init(&c);
    c.kinds_n = random_from(r, 1, COST_LAYER_KINDS);
    for (int i = 0; i < (int)m->config.layers; i++)
        c.kind_of_layer[i] = (unsigned char)random_below(r, c.kinds_n);
    for (int k = 0; k < c.kinds_n; k++)
        for (int level = 0; level < SAVE_LEVELS; level++) {
            c.layer[k].forward_ns[level] = random_ns(r, 1000, 20000);
            c.layer[k].backward_ns[level] = random_ns(r, 2000, 50000);
        }
    for (int k = 0; k < c.kinds_n; k++) {
        c.layer[k].cold_accumulators_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 5000);
        c.layer[k].warm_forward_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 5000);
        c.layer[k].first_accumulators_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 5000);
        for (int level = 0; level < SAVE_LEVELS; level++)
            c.layer[k].warm_backward_ns[level] = random_one_in(r, 2) ? 0 : random_ns(r, 0, 5000);
    }
    c.embed_ns = random_ns(r, 0, 3000);
    c.head_ns = random_ns(r, 1000, 50000);
    c.head_eval_ns = random_ns(r, 1000, 20000);
    c.head_cold_accumulators_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 5000);
    cost_curve *curves[] = {&c.finish,    &c.embed_finish, &c.update_device, &c.update_host, &c.whole_device, &c.whole_host,
                            &c.to_device, &c.from_device,  &c.read,          &c.write,       &c.gather,       &c.scatter};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        *curves[i] = random_curve(r, random_ns(r, 0.05, 2));
    c.task_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 1000);
    c.step_ns = random_one_in(r, 2) ? 0 : random_ns(r, 0, 100000);
    for (int a = 0; a < COST_CLASSES && contention; a++)
        for (int b = 0; b < COST_CLASSES; b++)
            c.slow[a][b] = random_one_in(r, 3) ? 1 : random_ns(r, 1, 2);
    for (int a = 0; a < COST_CLASSES && contention; a++) {
        if (random_one_in(r, 2))
            continue;
        const double shorter = random_ns(r, 0, 5000), longer = 1 + shorter * random_ns(r, COST_LENGTHS_LEAST, 6);
        const bool longer_first = random_one_in(r, 2) && shorter > 0; /* the second is what another length loses more */
        c.slow_ns[a][0] = longer_first ? longer : shorter;
        c.slow_ns[a][1] = longer_first ? shorter : longer;
        for (int b = 0; b < COST_CLASSES; b++)
            c.slow_more[a][b] = random_one_in(r, 2) ? 0 : random_ns(r, (1 - c.slow[a][b]) / costs_length_most(&c, (cost_class)a), 2);
    }
    if (contention && random_one_in(r, 2))
        c.wake_latency = random_curve(r, random_ns(r, 0, 0.5));
    if (contention && random_one_in(r, 2))
        c.quota = (cost_quota){random_ns(r, 1e6, 2e6), random_ns(r, 1, 3), {[COST_READ] = random_ns(r, 0, 3),
            [COST_WRITE] = random_ns(r, 0, 3)}};
    for (int a = 0; a < COST_READ && c.quota.period_ns > 0; a++)
        c.quota.busy[a] = random_below(r, 3); /* none: a GPU's */
    return c;
}

#endif
