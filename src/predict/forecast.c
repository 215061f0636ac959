#include "predict/forecast.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const part_names[MEMORY_PARTS] = {"weights", "optimizer", "gradients", "activations", "workspace", "room"};

void steady_schedules(update_time update, schedule_kind *first, int *second)
{
    *first = update == UPDATE_NEXT_FORWARD ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP;
    *second = update == UPDATE_END ? SCHEDULE_DRAIN : -1;
}

double forecast_known_to(const forecast *f, const costs *costs)
{
    double most = 0;
    if (!(f->step_ns > 0)) /* in the loop's condition it fails GCC 12 for ARM64 */
        return 0;
    for (int q = 0; q < QUEUES; q++)
        most = fmax(most, f->busy_ns[q] / f->step_ns * (q == QUEUE_COMPUTE ? costs->spread : costs->curves_spread));
    return most;
}

bool forecast_needs_disk(const forecast *f)
{
    return f->busy_ns[QUEUE_READ] + f->busy_ns[QUEUE_WRITE] > 0.2 * f->step_ns;
}

const char *forecast_sure_words(const forecast *f, const costs *costs, char out[FORECAST_SURE_BYTES])
{
    const double spread = forecast_known_to(f, costs), nine_of_ten = COST_NINE_OF_TEN * spread, off = hypot(FORECAST_OFF, nine_of_ten);
    out[0] = 0;
    if (off > 0.5)
        snprintf(out, FORECAST_SURE_BYTES, ", roughly (the machine was busy while measuring)");
    else if (spread > 0 && f->step_ns < FORECAST_SHORT_S * 1e9)
        snprintf(out, FORECAST_SURE_BYTES, ", roughly (so short a step is not predicted well)");
    else if (spread > 0)
        snprintf(out, FORECAST_SURE_BYTES, ", within %.0f%% %s", 100 * off,
                 forecast_needs_disk(f) ? "if the disk keeps its pace" : "in most runs");
    return out;
}

const char *forecast_wear(const forecast *f, char out[FORECAST_WEAR_BYTES])
{
    const double tera_a_day = (double)f->written_bytes * 86400e-3 / f->step_ns, days = 600 / tera_a_day;
    const bool years = days >= 1000;
    char much[32];
    snprintf(much, sizeof much, tera_a_day < 999 ? "%.3g" : "%.0f", tera_a_day);
    snprintf(out, FORECAST_WEAR_BYTES, "without a pause, %s TB per day: a 1 TB disk rated for 600 TB would last %.*f %s", much,
             days < 10 || (years && days < 3650) ? 1 : 0, years ? days / 365 : days, years ? "years" : "days");
    return out;
}

const char *forecast_written(const forecast *f, char out[FORECAST_WRITTEN_BYTES])
{
    char size[32], wear[FORECAST_WEAR_BYTES];
    out[0] = 0;
    if (f->written_bytes && f->step_ns > 0)
        snprintf(out, FORECAST_WRITTEN_BYTES, "; %s written to the disk per step, %s", size_format(size, f->written_bytes),
                 forecast_wear(f, wear));
    return out;
}

/* ---- memory ---- */

/* The states of a frozen chunk are the low halves of its weights and count as weights. */
static memory_part part_of(const schedule_input *in, const buffer *b)
{
    switch (b->kind) {
    case OBJECT_WEIGHTS: case OBJECT_SHARD: return PART_WEIGHTS;
    case OBJECT_STATES: return in->packing->chunks[b->index].trained ? PART_OPTIMIZER : PART_WEIGHTS;
    case OBJECT_GRADIENT: case OBJECT_ROWS_GRADIENT: case OBJECT_ACCUMULATOR: case OBJECT_ROWS_SUMS: return PART_GRADIENTS;
    case OBJECT_SAVED: case OBJECT_STREAM_GRADIENT: case OBJECT_STREAM: case OBJECT_CARRIED:
    case OBJECT_CARRIED_GRADIENT: return PART_ACTIVATIONS;
    default: return PART_WORKSPACE;
    }
}

/* The task during which most of the tier is in use, and how much that is. `change`: tasks_n + 2 numbers. */
static int fullest_moment(const schedule *sched, tier t, int64_t *change, uint64_t *most)
{
    memset(change, 0, ((size_t)sched->tasks_n + 2) * sizeof *change);
    for (int i = 0; i < sched->buffers_n; i++) {
        const buffer *b = &sched->buffers[i];
        const int64_t bytes = (int64_t)b->bytes;
        if (b->tier != t || b->first < 0)
            continue;
        change[b->first] += bytes;
        change[b->last + 1] -= bytes;
        if (b->idle != b->idle_end) {
            change[b->idle] -= bytes;
            change[b->idle_end] += bytes;
        }
    }
    int64_t now = 0;
    int at = 0;
    *most = 0;
    for (int i = 0; i < sched->tasks_n; i++) {
        now += change[i];
        if ((uint64_t)now > *most) {
            *most = (uint64_t)now;
            at = i;
        }
    }
    return at;
}

/* Records the fullest moment of the schedule, if it is fuller than those before. */
static int raise_parts(const schedule_input *in, const schedule *sched, uint64_t full[TIERS], forecast *f, pt_error *e)
{
    int64_t *change = malloc(((size_t)sched->tasks_n + 2) * sizeof *change);
    if (!change)
        return pt_fail(e, PT_FAILED, "out of memory for a schedule of %d tasks", sched->tasks_n);
    for (int t = 0; t < TIERS; t++) {
        uint64_t most;
        int at = fullest_moment(sched, t, change, &most);
        if (most <= full[t])
            continue;
        full[t] = most;
        memset(f->part[t], 0, sizeof f->part[t]);
        for (int i = 0; i < sched->buffers_n; i++) {
            const buffer *b = &sched->buffers[i];
            bool idle = b->idle <= at && at < b->idle_end;
            if (b->tier == (tier)t && b->first >= 0 && b->first <= at && at <= b->last && !idle)
                f->part[t][part_of(in, b)] += b->bytes;
        }
    }
    free(change);
    return 0;
}

/* ---- time ---- */

/* The part of a task's time that would not be there if everything had been saved, which forward takes slightly longer to do. */
static double time_again(const costs *costs, const schedule_input *in, const schedule *sched, const task *t)
{
    if (t->kind != TASK_LAYER_BACKWARD)
        return 0;
    const layer_cost *l = &costs->layer[costs->kind_of_layer[t->block - 1]];
    const save_level level = in->plan->blocks[t->block - 1].level;
    const double forward = (l->forward_ns[SAVE_ALL] - l->forward_ns[level]) * (double)sched->micro_units * t->share;
    return fmax(layer_task_ns(costs, in, sched, t, level) - layer_task_ns(costs, in, sched, t, SAVE_ALL) - forward, 0);
}

static void add_tasks(const schedule_input *in, const schedule *sched, const costs *costs, forecast *f)
{
    for (int i = 0; i < sched->tasks_n; i++) {
        const task *t = &sched->tasks[i];
        double alone = costs_task_ns(costs, in, sched, t), again = time_again(costs, in, sched, t);
        f->alone_ns[t->queue] += alone;
        if (t->queue == QUEUE_COMPUTE) {
            f->again_ns += again;
            f->needed_ns += alone - again;
        }
        const operand *o = &sched->operands[t->operand0];
        if (t->kind == TASK_READ)
            f->read_bytes += sched->buffers[o[0].buffer].bytes;
        if (t->kind == TASK_WRITE) {
            f->written_bytes += sched->buffers[o[1].buffer].bytes;
            f->written[part_of(in, &sched->buffers[o[1].buffer])] += sched->buffers[o[1].buffer].bytes;
        }
    }
}

/* The task directly after which this one began: the last to end among those that it waits for and its predecessor. -1: none. */
static int begun_by(const schedule *sched, const simulation *sim, const int *before, int i)
{
    int last = before[i];
    for (int q = 0; q < QUEUES; q++) {
        const int other = sched->tasks[i].wait[q];
        last = other >= 0 && (last < 0 || sim->end_ns[other] > sim->end_ns[last]) ? other : last;
    }
    return last;
}

/* A queue was idle from `from` until task `at` ended, at `to`. Goes back along the tasks after which each began, and charges each task for
 * the time in which everything waited for it. */
static void add_wait(const schedule *sched, const simulation *sim, const int *before, int at, double from, double to,
                     double wait_ns[QUEUES])
{
    for (; at >= 0 && to > from; at = begun_by(sched, sim, before, at)) {
        const double begin = fmax(sim->start_ns[at], from);
        wait_ns[sched->tasks[at].queue] += fmax(to - begin, 0);
        to = fmin(begin, to);
    }
}

static int add_waits(const schedule *sched, const simulation *sim, forecast *f, pt_error *e)
{
    int *before = malloc(((size_t)sched->tasks_n + 1) * sizeof *before), last[QUEUES], end = -1;
    if (!before)
        return pt_fail(e, PT_FAILED, "out of memory for a schedule of %d tasks", sched->tasks_n);
    for (int q = 0; q < QUEUES; q++)
        last[q] = -1;
    for (int i = 0; i < sched->tasks_n; i++) {
        const int q = sched->tasks[i].queue;
        before[i] = last[q];
        last[q] = i;
        end = end < 0 || sim->end_ns[i] > sim->end_ns[end] ? i : end;
    }
    for (int i = 0; i < sched->tasks_n; i++)
        add_wait(sched, sim, before, begun_by(sched, sim, before, i), before[i] < 0 ? 0 : sim->end_ns[before[i]], sim->start_ns[i],
                 f->wait_ns[sched->tasks[i].queue]);
    const int computed = last[QUEUE_COMPUTE];
    if (end >= 0)
        add_wait(sched, sim, before, end, computed < 0 ? 0 : sim->end_ns[computed], sim->end_ns[end], f->wait_ns[QUEUE_COMPUTE]);
    free(before);
    return 0;
}

static int add_simulation(const schedule_input *in, const schedule *sched, const costs *costs, forecast *f, pt_error *e)
{
    simulation sim;
    int failed = simulate(in, sched, costs, true, &sim, e);
    if (!failed)
        failed = add_waits(sched, &sim, f, e);
    if (failed) {
        simulation_free(&sim);
        return failed;
    }
    f->step_ns += sim.total_ns - (f->step_ns > 0 ? costs->step_ns : 0); /* once per step */
    for (int q = 0; q < QUEUES; q++)
        f->busy_ns[q] += sim.busy_ns[q];
    for (int p = 0; p < PHASES; p++)
        f->phase_ns[p] += sim.phase_ns[p];
    simulation_free(&sim);
    add_tasks(in, sched, costs, f);
    return 0;
}

int forecast_make(const schedule_input *in, unsigned kinds, const costs *costs, forecast *out, pt_error *e)
{
    uint64_t full[TIERS] = {0};
    schedule_kind first;
    int second, failed = 0;
    *out = (forecast){0};
    steady_schedules(in->plan->update, &first, &second);
    for (int kind = 0; kind < SCHEDULE_KINDS && !failed; kind++) {
        schedule sched;
        if (!(kinds & 1u << kind))
            continue;
        failed = schedule_build(in, kind, &sched, e);
        if (failed)
            return failed;
        schedule_raise_bytes(in, &sched, out->bytes);
        failed = raise_parts(in, &sched, full, out, e);
        if (!failed && (kind == (int)first || kind == second || !in->training ||
                        (kind == SCHEDULE_EVAL && shape_has_baseline(in->shape))))
            failed = add_simulation(in, &sched, costs, out, e);
        schedule_free(&sched);
    }
    for (int t = 0; t < TIERS; t++)
        out->part[t][PART_ROOM] = out->bytes[t] - full[t];
    for (int q = 0; q < QUEUES; q++)
        out->bound_ns = out->alone_ns[q] > out->bound_ns ? out->alone_ns[q] : out->bound_ns;
    out->bound_ns += costs->step_ns;
    return failed;
}
