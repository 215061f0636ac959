#include "predict/adjust.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 3 }; /* contention depends on which tasks run together, which changes with the costs */

static int work_of_layer(const schedule_input *in, const costs *costs, int block)
{
    return WORK_LAYERS + (costs->kind_of_layer[block - 1] * SAVE_LEVELS + (int)in->plan->blocks[block - 1].level) * 2;
}

static int work_of(const schedule_input *in, const costs *costs, const task *t)
{
    switch (t->kind) {
    case TASK_EMBED: return WORK_EMBED;
    case TASK_LAYER: return work_of_layer(in, costs, t->block);
    case TASK_LAYER_BACKWARD: return work_of_layer(in, costs, t->block) + 1;
    case TASK_HEAD: return WORK_HEAD;
    case TASK_HEAD_EVAL: return WORK_HEAD_EVAL;
    case TASK_FINISH: return WORK_FINISH;
    case TASK_EMBED_FINISH: case TASK_ROWS_FINISH: case TASK_EMBED_BACKWARD: return WORK_EMBED_FINISH;
    case TASK_LOOK_UP: return WORK_LOOK_UP; /* few bytes, priced by curves of larger moves, which it does not correct */
    case TASK_GATHER: case TASK_HEADS: return WORK_GATHER;
    case TASK_SCATTER: case TASK_SCATTER_TIED: return WORK_SCATTER;
    case TASK_UPDATE: return t->queue == QUEUE_HOST ? WORK_UPDATE_HOST : WORK_UPDATE_DEVICE;
    default: break;
    }
    static const int moves[QUEUES] = {[QUEUE_TO_DEVICE] = WORK_TO_DEVICE, [QUEUE_FROM_DEVICE] = WORK_FROM_DEVICE,
                                      [QUEUE_READ] = WORK_READ, [QUEUE_WRITE] = WORK_WRITE};
    return moves[t->queue];
}

void work_times_add(work_times *w, const schedule_input *in, const schedule *sched, const costs *costs, const task_time *times)
{
    w->runs++;
    for (int i = 0; i < sched->tasks_n; i++)
        w->ns[work_of(in, costs, &sched->tasks[i])] += (double)(times[i].end_ns - times[i].start_ns);
}

static void scale(double *ns, int n, double by)
{
    for (int i = 0; i < n; i++)
        ns[i] *= by;
}

/* A layer's levels that ran are corrected by their own ratios, the others by the ratio of all levels of the kind. */
static void scale_layers(costs *costs, const double predicted[WORK_KINDS], const double measured[WORK_KINDS],
                         const double ratio[WORK_KINDS])
{
    for (int k = 0; k < costs->kinds_n; k++)
        for (int backward = 0; backward < 2; backward++) {
            double *ns = backward ? costs->layer[k].backward_ns : costs->layer[k].forward_ns, before = 0, now = 0;
            for (int level = 0; level < SAVE_LEVELS; level++) {
                before += predicted[WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward];
                now += measured[WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward];
            }
            if (before > 0 && now > 0) {
                scale(&costs->layer[k].warm_forward_ns, !backward, now / before);
                scale(costs->layer[k].warm_backward_ns, backward * SAVE_LEVELS, now / before);
                scale(&costs->layer[k].first_accumulators_ns, backward, now / before);
                scale(&costs->layer[k].cold_accumulators_ns, backward, now / before);
            }
            for (int level = 0; level < SAVE_LEVELS; level++) {
                int at = WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward;
                ns[level] *= predicted[at] > 0 ? ratio[at] : before > 0 && now > 0 ? now / before : 1;
            }
        }
}

static void apply(costs *costs, const double predicted[WORK_KINDS], const double measured[WORK_KINDS], double least_share)
{
    cost_curve *const curves[] = {[WORK_FINISH] = &costs->finish,         [WORK_EMBED_FINISH] = &costs->embed_finish,
                                  [WORK_UPDATE_DEVICE] = &costs->update_device, [WORK_UPDATE_HOST] = &costs->update_host,
                                  [WORK_TO_DEVICE] = &costs->to_device,   [WORK_FROM_DEVICE] = &costs->from_device,
                                  [WORK_READ] = &costs->read,             [WORK_WRITE] = &costs->write,
                                  [WORK_GATHER] = &costs->gather,         [WORK_SCATTER] = &costs->scatter};
    double ratio[WORK_KINDS], all = 0;
    for (int i = 0; i < WORK_KINDS; i++)
        all += fmax(predicted[i], measured[i]);
    for (int i = 0; i < WORK_KINDS; i++) {
        bool counts = predicted[i] > 0 && measured[i] > 0 && fmax(predicted[i], measured[i]) >= least_share * all;
        ratio[i] = counts ? measured[i] / predicted[i] : 1;
    }
    scale(&costs->embed_ns, 1, ratio[WORK_EMBED]);
    scale(&costs->head_ns, 1, ratio[WORK_HEAD]);
    scale(&costs->head_cold_accumulators_ns, 1, ratio[WORK_HEAD]);
    scale(&costs->head_eval_ns, 1, predicted[WORK_HEAD_EVAL] > 0 ? ratio[WORK_HEAD_EVAL] : ratio[WORK_HEAD]);
    for (int i = WORK_FINISH; i <= WORK_SCATTER; i++)
        scale(curves[i]->ns, curves[i]->n, ratio[i]);
    scale(costs->whole_device.ns, costs->whole_device.n, ratio[WORK_UPDATE_DEVICE]);
    scale(costs->whole_host.ns, costs->whole_host.n, ratio[WORK_UPDATE_HOST]);
    scale(costs->slow_ns[COST_TO_DEVICE], 2, ratio[WORK_TO_DEVICE]); /* for transfers of the usual length; contention keeps its share */
    scale(costs->slow_ns[COST_FROM_DEVICE], 2, ratio[WORK_FROM_DEVICE]);
    scale(costs->slow_ns[COST_READ], 2, ratio[WORK_READ]);
    scale(costs->slow_ns[COST_WRITE], 2, ratio[WORK_WRITE]);
    costs->quota.busy[COST_READ] /= ratio[WORK_READ]; /* a byte takes the host as much work as before */
    costs->quota.busy[COST_WRITE] /= ratio[WORK_WRITE];
    scale_layers(costs, predicted, measured, ratio);
}

/* The timed marks enclose a task's work but not its fixed cost. */
static int add_predicted(const schedule_input *in, const schedule *sched, const costs *costs, double predicted[WORK_KINDS], pt_error *e)
{
    simulation sim;
    int failed = simulate(in, sched, costs, true, &sim, e);
    if (failed)
        return failed;
    for (int i = 0; i < sched->tasks_n; i++)
        predicted[work_of(in, costs, &sched->tasks[i])] += fmax(sim.end_ns[i] - sim.start_ns[i] - costs->task_ns, 0);
    simulation_free(&sim);
    return 0;
}

int costs_adjust(costs *costs, const schedule_input *in, const work_run *runs, int n, double least_share, pt_error *e)
{
    double measured[WORK_KINDS] = {0};
    for (int r = 0; r < n; r++)
        for (int i = 0; i < WORK_KINDS; i++)
            measured[i] += runs[r].times->runs ? runs[r].times->ns[i] / runs[r].times->runs : 0;
    for (int round = 0; round < ROUNDS; round++) {
        double predicted[WORK_KINDS] = {0};
        int failed = 0;
        for (int r = 0; r < n && !failed; r++)
            if (runs[r].times->runs)
                failed = add_predicted(in, runs[r].s, costs, predicted, e);
        if (failed)
            return failed;
        apply(costs, predicted, measured, least_share);
    }
    return 0;
}

void costs_scale(costs *costs, double by)
{
    cost_curve *const curves[] = {&costs->finish,       &costs->embed_finish, &costs->update_device, &costs->update_host, &costs->to_device,
                                  &costs->from_device,  &costs->read,         &costs->write,         &costs->gather,      &costs->scatter,
                                  &costs->wake_latency, &costs->whole_device, &costs->whole_host};
    double *const single[] = {&costs->embed_ns, &costs->head_ns, &costs->head_eval_ns, &costs->head_cold_accumulators_ns,
                              &costs->task_ns,  &costs->step_ns};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        scale(curves[i]->ns, curves[i]->n, by);
    scale(costs->wake_latency.amount, costs->wake_latency.n, by); /* a pause takes as much longer as the work after it */
    scale(&costs->quota.period_ns, 1, by);        /* and the processor stands still for the same share of it */
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        scale(single[i], 1, by);
    scale(costs->slow_ns[0], 2 * COST_CLASSES, by);
    for (int k = 0; k < costs->kinds_n; k++) {
        scale(costs->layer[k].forward_ns, SAVE_LEVELS, by);
        scale(costs->layer[k].backward_ns, SAVE_LEVELS, by);
        scale(&costs->layer[k].first_accumulators_ns, 1, by);
        scale(&costs->layer[k].cold_accumulators_ns, 1, by);
        scale(&costs->layer[k].warm_forward_ns, 1, by);
        scale(costs->layer[k].warm_backward_ns, SAVE_LEVELS, by);
    }
}
