#include "profile/adjust.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 3 }; /* the tasks beside a task change with the costs, and with them what they take from it */

static int work_of(const schedule_input *in, const costs *c, const task *t)
{
    int layer = t->block > 0 ? WORK_LAYERS + c->kind_of_layer[t->block - 1] * SAVE_LEVELS * 2 : -1;
    switch (t->kind) {
    case TASK_EMBED: return WORK_EMBED;
    case TASK_LAYER: return layer + (int)in->plan->blocks[t->block - 1].level * 2;
    case TASK_LAYER_BACKWARD: return layer + (int)in->plan->blocks[t->block - 1].level * 2 + 1;
    case TASK_HEAD: return WORK_HEAD;
    case TASK_HEAD_EVAL: return WORK_HEAD_EVAL;
    case TASK_FINISH: return WORK_FINISH;
    case TASK_EMBED_FINISH: return WORK_EMBED_FINISH;
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

/* A layer's levels that ran by their own ratios, the others by that of all of its kind. */
static void scale_layers(costs *c, const double predicted[WORK_KINDS], const double measured[WORK_KINDS], const double ratio[WORK_KINDS])
{
    for (int k = 0; k < c->kinds_n; k++)
        for (int backward = 0; backward < 2; backward++) {
            double *ns = backward ? c->layer[k].backward_ns : c->layer[k].forward_ns, before = 0, now = 0;
            for (int level = 0; level < SAVE_LEVELS; level++) {
                before += predicted[WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward];
                now += measured[WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward];
            }
            for (int level = 0; level < SAVE_LEVELS; level++) {
                int at = WORK_LAYERS + (k * SAVE_LEVELS + level) * 2 + backward;
                ns[level] *= predicted[at] > 0 ? ratio[at] : before > 0 && now > 0 ? now / before : 1;
            }
        }
}

static void apply(costs *c, const double predicted[WORK_KINDS], const double measured[WORK_KINDS])
{
    cost_curve *const curves[] = {[WORK_FINISH] = &c->finish,         [WORK_EMBED_FINISH] = &c->embed_finish,
                                  [WORK_UPDATE_DEVICE] = &c->update_device, [WORK_UPDATE_HOST] = &c->update_host,
                                  [WORK_TO_DEVICE] = &c->to_device,   [WORK_FROM_DEVICE] = &c->from_device,
                                  [WORK_READ] = &c->read,             [WORK_WRITE] = &c->write};
    double ratio[WORK_KINDS], all = 0;
    for (int i = 0; i < WORK_KINDS; i++)
        all += fmax(predicted[i], measured[i]);
    for (int i = 0; i < WORK_KINDS; i++) {
        bool counts = predicted[i] > 0 && measured[i] > 0 && fmax(predicted[i], measured[i]) >= 0.01 * all;
        ratio[i] = counts ? measured[i] / predicted[i] : 1;
    }
    scale(&c->embed_ns, 1, ratio[WORK_EMBED]);
    scale(&c->head_ns, 1, ratio[WORK_HEAD]);
    scale(&c->head_eval_ns, 1, predicted[WORK_HEAD_EVAL] > 0 ? ratio[WORK_HEAD_EVAL] : ratio[WORK_HEAD]);
    for (int i = WORK_FINISH; i <= WORK_WRITE; i++)
        scale(curves[i]->ns, curves[i]->n, ratio[i]);
    scale_layers(c, predicted, measured, ratio);
}

int costs_adjust(costs *c, const schedule_input *in, const schedule *s, const work_times *w, pt_error *e)
{
    double measured[WORK_KINDS];
    for (int i = 0; i < WORK_KINDS; i++)
        measured[i] = w->runs ? w->ns[i] / w->runs : 0;
    for (int round = 0; round < ROUNDS && w->runs; round++) {
        double predicted[WORK_KINDS] = {0};
        simulation sim;
        int failed = simulate(in, s, c, true, &sim, e);
        if (failed)
            return failed;
        for (int i = 0; i < s->tasks_n; i++)
            predicted[work_of(in, c, &s->tasks[i])] += sim.end_ns[i] - sim.start_ns[i];
        simulation_free(&sim);
        apply(c, predicted, measured);
    }
    return 0;
}

void costs_scale(costs *c, double by)
{
    cost_curve *const curves[] = {&c->finish,      &c->embed_finish, &c->update_device, &c->update_host,
                                  &c->to_device,   &c->from_device,  &c->read,          &c->write,
                                  &c->gather,      &c->scatter};
    double *const single[] = {&c->embed_ns, &c->head_ns, &c->head_eval_ns, &c->task_ns, &c->step_ns};
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        scale(curves[i]->ns, curves[i]->n, by);
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        scale(single[i], 1, by);
    for (int k = 0; k < c->kinds_n; k++) {
        scale(c->layer[k].forward_ns, SAVE_LEVELS, by);
        scale(c->layer[k].backward_ns, SAVE_LEVELS, by);
    }
}
