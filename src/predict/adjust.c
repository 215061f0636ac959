#include "predict/adjust.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 3 }; /* contention depends on which tasks run together, which changes with the costs */

static int work_of_layer(const schedule_input *in, const costs *c, int block)
{
    return WORK_LAYERS + (c->kind_of_layer[block - 1] * SAVE_LEVELS + (int)in->plan->blocks[block - 1].level) * 2;
}

static int work_of(const schedule_input *in, const costs *c, const task *t)
{
    switch (t->kind) {
    case TASK_EMBED: return WORK_EMBED;
    case TASK_LAYER: return work_of_layer(in, c, t->block);
    case TASK_LAYER_BACKWARD: return work_of_layer(in, c, t->block) + 1;
    case TASK_HEAD: return WORK_HEAD;
    case TASK_HEAD_EVAL: return WORK_HEAD_EVAL;
    case TASK_FINISH: return WORK_FINISH;
    case TASK_EMBED_FINISH: case TASK_ROWS_FINISH: case TASK_EMBED_BACKWARD: return WORK_EMBED_FINISH;
    case TASK_LOOK_UP: return WORK_LOOK_UP; /* few bytes, priced by curves of larger moves, which it does not correct */
    case TASK_GATHER: return WORK_GATHER;
    case TASK_SCATTER: case TASK_SCATTER_TIED: return WORK_SCATTER;
    case TASK_UPDATE: return t->queue == QUEUE_HOST ? WORK_UPDATE_HOST : WORK_UPDATE_DEVICE;
    default: break;
    }
    static const int moves[QUEUES] = {[QUEUE_TO_DEVICE] = WORK_TO_DEVICE, [QUEUE_FROM_DEVICE] = WORK_FROM_DEVICE,
                                      [QUEUE_READ] = WORK_READ, [QUEUE_WRITE] = WORK_WRITE};
    return moves[t->queue];
}

void work_times_add(work_times *w, const schedule_input *in, const schedule *s, const costs *c, const task_time *times)
{
    w->runs++;
    for (int i = 0; i < s->tasks_n; i++)
        w->ns[work_of(in, c, &s->tasks[i])] += (double)(times[i].end_ns - times[i].start_ns);
}

static void scale(double *ns, int n, double by)
{
    for (int i = 0; i < n; i++)
        ns[i] *= by;
}

/* A layer's levels that ran are corrected by their own ratios, the others by the ratio of all levels of the kind. */
static void scale_layers(costs *c, const double predicted[WORK_KINDS], const double measured[WORK_KINDS], const double ratio[WORK_KINDS])
{
    for (int k = 0; k < c->kinds_n; k++)
        for (int backward = 0; backward < 2; backward++) {
            double *ns = backward ? c->layer[k].backward_ns : c->layer[k].forward_ns, before = 0, now = 0;
            for (int level = 0; level < SAVE_LEVELS; level++) {
                before += predicted[WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward];
                now += measured[WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward];
            }
            if (before > 0 && now > 0) {
                scale(&c->layer[k].warm_forward_ns, !backward, now / before);
                scale(c->layer[k].warm_backward_ns, backward * SAVE_LEVELS, now / before);
                scale(&c->layer[k].first_accumulators_ns, backward, now / before);
                scale(&c->layer[k].cold_accumulators_ns, backward, now / before);
            }
            for (int level = 0; level < SAVE_LEVELS; level++) {
                int at = WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward;
                ns[level] *= predicted[at] > 0 ? ratio[at] : before > 0 && now > 0 ? now / before : 1;
            }
        }
}

static void apply(costs *c, const double predicted[WORK_KINDS], const double measured[WORK_KINDS], double least_share)
{
    cost_curve *const curves[] = {[WORK_FINISH] = &c->finish,         [WORK_EMBED_FINISH] = &c->embed_finish,
                                  [WORK_UPDATE_DEVICE] = &c->update_device, [WORK_UPDATE_HOST] = &c->update_host,
                                  [WORK_TO_DEVICE] = &c->to_device,   [WORK_FROM_DEVICE] = &c->from_device,
                                  [WORK_READ] = &c->read,             [WORK_WRITE] = &c->write,
                                  [WORK_GATHER] = &c->gather,         [WORK_SCATTER] = &c->scatter};
    double ratio[WORK_KINDS], all = 0;
    for (int i = 0; i < WORK_KINDS; i++)
        all += fmax(predicted[i], measured[i]);
    for (int i = 0; i < WORK_KINDS; i++) {
        bool counts = predicted[i] > 0 && measured[i] > 0 && fmax(predicted[i], measured[i]) >= least_share * all;
        ratio[i] = counts ? measured[i] / predicted[i] : 1;
    }
    scale(&c->embed_ns, 1, ratio[WORK_EMBED]);
    scale(&c->head_ns, 1, ratio[WORK_HEAD]);
    scale(&c->head_cold_accumulators_ns, 1, ratio[WORK_HEAD]);
    scale(&c->head_eval_ns, 1, predicted[WORK_HEAD_EVAL] > 0 ? ratio[WORK_HEAD_EVAL] : ratio[WORK_HEAD]);
    for (int i = WORK_FINISH; i <= WORK_SCATTER; i++)
        scale(curves[i]->ns, curves[i]->n, ratio[i]);
    scale(c->whole_device.ns, c->whole_device.n, ratio[WORK_UPDATE_DEVICE]);
    scale(c->whole_host.ns, c->whole_host.n, ratio[WORK_UPDATE_HOST]);
    scale(c->slow_ns[COST_TO_DEVICE], 2, ratio[WORK_TO_DEVICE]); /* for transfers of the usual length; contention keeps its share */
    scale(c->slow_ns[COST_FROM_DEVICE], 2, ratio[WORK_FROM_DEVICE]);
    scale(c->slow_ns[COST_READ], 2, ratio[WORK_READ]);
    scale(c->slow_ns[COST_WRITE], 2, ratio[WORK_WRITE]);
    c->quota.busy[COST_READ] /= ratio[WORK_READ]; /* a byte takes the host as much work as before */
    c->quota.busy[COST_WRITE] /= ratio[WORK_WRITE];
    scale_layers(c, predicted, measured, ratio);
}

/* The timed marks enclose a task's work but not its fixed cost. */
static int add_predicted(const schedule_input *in, const schedule *s, const costs *c, double predicted[WORK_KINDS], pt_error *e)
{
    simulation sim;
    int failed = simulate(in, s, c, true, &sim, e);
    if (failed)
        return failed;
    for (int i = 0; i < s->tasks_n; i++)
        predicted[work_of(in, c, &s->tasks[i])] += fmax(sim.end_ns[i] - sim.start_ns[i] - c->task_ns, 0);
    simulation_free(&sim);
    return 0;
}

int costs_adjust(costs *c, const schedule_input *in, const work_run *runs, int n, double least_share, pt_error *e)
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
                failed = add_predicted(in, runs[r].s, c, predicted, e);
        if (failed)
            return failed;
        apply(c, predicted, measured, least_share);
    }
    return 0;
}

void costs_scale(costs *c, double by)
{
    cost_curve *const curves[] = {&c->finish,      &c->embed_finish, &c->update_device, &c->update_host,
                                  &c->to_device,   &c->from_device,  &c->read,          &c->write,
                                  &c->gather,      &c->scatter,      &c->wake_latency,        &c->whole_device, &c->whole_host};
    double *const single[] = {&c->embed_ns, &c->head_ns, &c->head_eval_ns, &c->head_cold_accumulators_ns, &c->task_ns, &c->step_ns};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        scale(curves[i]->ns, curves[i]->n, by);
    scale(c->wake_latency.amount, c->wake_latency.n, by); /* a pause takes as much longer as the work after it */
    scale(&c->quota.period_ns, 1, by);        /* and the processor stands still for the same share of it */
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        scale(single[i], 1, by);
    scale(c->slow_ns[0], 2 * COST_CLASSES, by);
    for (int k = 0; k < c->kinds_n; k++) {
        scale(c->layer[k].forward_ns, SAVE_LEVELS, by);
        scale(c->layer[k].backward_ns, SAVE_LEVELS, by);
        scale(&c->layer[k].first_accumulators_ns, 1, by);
        scale(&c->layer[k].cold_accumulators_ns, 1, by);
        scale(&c->layer[k].warm_forward_ns, 1, by);
        scale(c->layer[k].warm_backward_ns, SAVE_LEVELS, by);
    }
}
