#include "ritz/planner.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the time of a step ---- */

/* full: the points of a unit beside those of the unit that was timed, on average over the program's runs. */
typedef struct priced { const ritz_prices *prices; const ritz_space *space; const plan *plan; ritz_program what; double full; } priced;

static int kind_of(const ritz_space *s, int group)
{
    return group == 0 ? GROUP_FIRST : group + 1 == s->net->groups_n ? GROUP_LAST : GROUP_MIDDLE;
}

static double transfer_ns(const ritz_prices *p, const schedule *sched, const task *t)
{
    const double bytes = (double)sched->buffers[sched->operands[t->operand0].buffer].bytes;
    return bytes * (t->kind == TASK_READ ? p->read : t->kind == TASK_WRITE ? p->write : p->copy);
}

static double part_ns(const void *of, const schedule *sched, const task *t)
{
    const priced *x = of;
    const ritz_prices *p = x->prices;
    const int groups = x->space->net->groups_n, group = t->block < 0 ? 0 : t->block % groups, kind = kind_of(x->space, group);
    const bool kept = x->what != RITZ_MEAN && x->plan->blocks[group].level == SAVE_ALL;
    switch (t->kind) {
    case TASK_LAYER: return p->sweep[t->block / groups][kind][kept];
    case TASK_LAYER_BACKWARD: return x->what == RITZ_FACES ? p->reverse_flat[kind][kept] : p->reverse[kind][kept];
    case TASK_HEAD: return p->energy;
    case TASK_UPDATE: return p->update * (double)x->space->chunks[t->chunk].values;
    case TASK_INPUT: return p->copy * x->full * (double)(p->rows * x->space->net->input) * (double)dtype_bytes(x->space->net->type);
    case TASK_OUTPUT: return 0;
    default: return transfer_ns(p, sched, t);
    }
}

static double task_ns(const void *of, const schedule *sched, const task *t)
{
    const priced *x = of;
    const bool of_unit = t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD || t->kind == TASK_HEAD;
    return part_ns(of, sched, t) * (of_unit ? x->prices->together * x->full : 1);
}

/* The part of a task's time that recomputes. */
static double again_ns(const priced *x, const task *t)
{
    const int groups = x->space->net->groups_n, group = t->block < 0 ? 0 : t->block % groups, kind = kind_of(x->space, group);
    const ritz_prices *p = x->prices;
    double more = 0;
    if (x->what == RITZ_MEAN || x->plan->blocks[group].level == SAVE_ALL)
        return 0;
    if (t->kind == TASK_LAYER && t->block >= groups)
        more = p->sweep[t->block / groups][kind][0] - p->sweep[t->block / groups][kind][1];
    if (t->kind == TASK_LAYER_BACKWARD)
        more = x->what == RITZ_FACES ? p->reverse_flat[kind][0] - p->reverse_flat[kind][1] : p->reverse[kind][0] - p->reverse[kind][1];
    return fmax(more, 0) * p->together * x->full;
}

static void count_tasks(const priced *x, const schedule *sched, double runs, ritz_step_forecast *out)
{
    for (int i = 0; i < sched->tasks_n; i++) {
        const task *t = &sched->tasks[i];
        const uint64_t bytes = t->operands_n ? sched->buffers[sched->operands[t->operand0].buffer].bytes : 0;
        out->again_ns += runs * again_ns(x, t);
        out->read_bytes += t->kind == TASK_READ ? (uint64_t)runs * bytes : 0;
        out->written_bytes += t->kind == TASK_WRITE ? (uint64_t)runs * bytes : 0;
    }
}

static double runs_of(const ritz_planning *p, const plan *plan, ritz_program what)
{
    const double visit = plan->visit;
    switch (what) {
    case RITZ_MEAN: return p->space->has_mean ? ceil((double)p->inside_units / visit) : 0;
    case RITZ_TURN: return ceil((double)p->inside_units / visit) + (p->space->net->jets ? ceil((double)p->face_units / visit) : 0);
    case RITZ_FACES: return ceil((double)p->face_units / visit);
    case RITZ_UPDATE: return 1;
    case RITZ_POINTS: return p->evaluates ? (double)(p->inside_units + p->face_units) : 0;
    default: return 0;
    }
}

static double full_of(const ritz_planning *p, const plan *plan, const ritz_prices *prices, ritz_program what)
{
    const bool faces = what != RITZ_MEAN && (what != RITZ_TURN || p->space->net->jets);
    const double units = runs_of(p, plan, what) * (what == RITZ_POINTS ? 1 : plan->visit),
        points = (double)((what == RITZ_FACES ? 0 : p->inside_n) + (faces ? p->face_n : 0));
    return units > 0 && prices ? points / (units * (double)prices->rows) : 1;
}

static int add_program(const ritz_planning *p, const plan *plan, const ritz_prices *prices, ritz_program what, ritz_step_forecast *out,
                       pt_error *e)
{
    const priced x = {prices, p->space, plan, what, full_of(p, plan, prices, what)};
    const double runs = runs_of(p, plan, what);
    schedule sched;
    simulation one = {0};
    costs costs;
    int failed = ritz_schedule_place(p->space, plan, what, &sched, e);
    if (failed)
        return failed;
    for (int t = 0; t < TIERS; t++)
        out->bytes[t] = sched.bytes[t] > out->bytes[t] ? sched.bytes[t] : out->bytes[t];
    if (prices && runs > 0) {
        costs_init(&costs);
        costs.network_ns = task_ns;
        costs.network = &x;
        failed = schedule_add_waits(&sched, e);
        if (!failed)
            failed = simulate(NULL, &sched, &costs, false, &one, e);
        out->step_ns += runs * one.total_ns;
        for (int q = 0; q < QUEUES; q++)
            out->busy_ns[q] += runs * one.busy_ns[q];
        count_tasks(&x, &sched, runs, out);
    }
    schedule_free(&sched);
    return failed;
}

/* One thread makes the points of a visit while the visit before it computes. */
static void add_points(const ritz_planning *p, const plan *plan, const ritz_prices *prices, ritz_step_forecast *out)
{
    const double *points = prices->points, rows = (double)prices->rows, units = (double)(p->inside_n + p->face_n) / rows,
        inside = (double)p->inside_n / rows * (points[1] + (p->space->has_mean ? points[0] : 0)),
        faces = (double)p->face_n / rows * points[1];
    out->step_ns += p->evaluates ? inside + faces : 0;
    if (p->makes_in_threads)
        out->step_ns = fmax(out->step_ns + inside / fmax(1, p->device->info.threads), faces);
    else
        out->step_ns = fmax(out->step_ns, inside + faces) + fmin(units, plan->visit) * points[!p->space->has_mean];
}

int ritz_plan_forecast(const ritz_planning *p, const plan *plan, const ritz_prices *prices, ritz_step_forecast *out, pt_error *e)
{
    int failed = 0;
    *out = (ritz_step_forecast){0};
    for (int k = 0; k < RITZ_PROGRAMS && !failed; k++)
        if (ritz_has_program(p->space, (ritz_program)k))
            failed = add_program(p, plan, prices, (ritz_program)k, out, e);
    out->bytes[p->mailbox_tier] += p->mailbox_bytes(p->arg, plan->visit);
    if (prices) {
        add_points(p, plan, prices, out);
        out->step_ns += prices->sync * (2 + p->space->has_mean + runs_of(p, plan, RITZ_POINTS)); /* 2: after the gradient and the update */
    }
    return failed;
}

/* ---- shapes: what the search varies ---- */

/* The first `again` groups are recomputed; the last `away` chunks and the first `saved` sets are not on the device. tight: as few buffers
 * as possible. host_eighths: the part of host memory that chunks may take, as buffers need the rest. */
typedef struct shape { int visit, again, away, saved; tier saved_at; bool tight; int host_eighths; } shape;

typedef struct search {
    const ritz_planning *p;
    const ritz_prices *prices;
    bool disk;
    plan best;
    bool found;
    ritz_step_forecast about;
    uint64_t least[TIERS];       /* bytes of the plan that comes closest to fitting */
    uint64_t excess;             /* bytes by which it does not fit */
    int tried;
} search;

/* Places the chunks that are not on the device: on the host while it has room. */
static void place_chunks(const search *x, const shape *h, plan *out)
{
    const ritz_planning *p = x->p;
    uint64_t room = p->space->host_tier ? p->budget[TIER_HOST] : 0, used = p->mailbox_bytes(p->arg, h->visit);
    for (int c = p->space->chunks_n - 1, i = 0; i < h->away; i++, c--) {
        const uint64_t bytes = 4 * ritz_slab_bytes(p->space, c);
        used += bytes;
        out->chunks[c].placement = used <= room / 8 * (uint64_t)h->host_eighths ? TIER_HOST : x->disk ? TIER_DISK : TIER_HOST;
        out->chunks[c].update = p->space->host_tier ? TIER_HOST : TIER_DEVICE;
    }
}

int ritz_chunks_at_once(const ritz_space *s)
{
    int most = 1;
    for (int g = 0; g < s->net->groups_n; g++) {
        const int n = s->chunk_of_stage[s->net->group0[g + 1] - 1] - s->chunk_of_stage[s->net->group0[g]] + 1;
        most = n > most ? n : most;
    }
    return most;
}

static int make_plan(const search *x, const shape *h, plan *out, pt_error *e)
{
    int failed = ritz_plan_init(x->p->space, out, e);
    if (failed)
        return failed;
    for (int g = 0; g < h->again; g++)
        out->blocks[g].level = SAVE_INPUT;
    for (int g = 0; g < h->saved; g++)
        out->blocks[g].place = h->saved_at;
    place_chunks(x, h, out);
    out->visit = h->visit;
    out->micro_batch = h->visit * x->p->space->unit_rows;
    out->n_buffer = (h->tight ? 1 : 2) * ritz_chunks_at_once(x->p->space);
    out->n_update = h->tight ? 1 : 2;
    out->n_swap = h->tight ? 2 : 4;
    return 0;
}

/* 1: the shape fits. keep: it becomes the best plan if it is the fastest so far. */
static int try_shape(search *x, const shape *h, bool keep, pt_error *e)
{
    plan one;
    ritz_step_forecast f;
    int failed = make_plan(x, h, &one, e);
    if (failed)
        return failed;
    failed = ritz_plan_forecast(x->p, &one, keep ? x->prices : NULL, &f, e);
    uint64_t excess = 0;
    for (int t = 0; t < TIERS && !failed; t++)
        excess += f.bytes[t] > x->p->budget[t] ? f.bytes[t] - x->p->budget[t] : 0;
    const bool fits = !failed && !excess;
    if (!failed && !fits && excess < x->excess) {
        memcpy(x->least, f.bytes, sizeof f.bytes);
        x->excess = excess;
    }
    x->tried += keep && fits;
    if (fits && keep && (!x->found || f.step_ns < x->about.step_ns)) {
        if (x->found)
            plan_free(&x->best);
        x->best = one;
        x->about = f;
        x->found = true;
    } else
        plan_free(&one);
    return failed ? failed : fits;
}

/* Finds the least value up to `most` of one of the shape's numbers that fits, and tries it. 0: none fits. */
static int least_of(search *x, shape *h, int *number, int most, pt_error *e)
{
    int low = 0, high = most;
    *number = most;
    int fits = try_shape(x, h, false, e);
    while (fits > 0 && low < high) {
        *number = (low + high) / 2;
        const int code = try_shape(x, h, false, e);
        if (code < 0)
            return code;
        if (code)
            high = *number;
        else
            low = *number + 1;
    }
    *number = low;
    return fits > 0 ? try_shape(x, h, true, e) : fits;
}

/* With h.again groups recomputed: everything on the device; else chunks elsewhere, or saved sets, or both. */
static int search_again(search *x, shape h, pt_error *e)
{
    const int chunks = x->p->space->chunks_n, groups = x->p->space->net->groups_n;
    int code = try_shape(x, &h, true, e);
    if (code || !(x->p->space->host_tier || x->disk))
        return code;
    h.saved_at = x->p->space->host_tier ? TIER_HOST : TIER_DISK;
    if ((code = least_of(x, &h, &h.away, chunks, e)))
        return code;
    h.away = 0;
    if ((code = least_of(x, &h, &h.saved, groups, e)))
        return code;
    h.away = chunks;
    return least_of(x, &h, &h.saved, groups, e);
}

static int search_visit(search *x, int visit, bool tight, pt_error *e)
{
    const int groups = x->p->space->net->groups_n;
    static const int eighths[] = {7, 5, 3, 0};
    shape h = {.visit = visit, .tight = tight, .host_eighths = 7};
    int code = least_of(x, &h, &h.again, groups, e);
    const bool kept = code == 1 && h.again == 0;
    for (int k = 0; k <= 2 && code >= 0 && !kept; k++)
        for (int i = 0; i < (x->disk && x->p->space->host_tier ? 4 : 1) && code >= 0; i++) {
            h.again = k * groups / 2;
            h.host_eighths = eighths[i];
            code = search_again(x, h, e);
        }
    return code < 0 ? code : 0;
}

static int search_all(search *x, pt_error *e)
{
    const ritz_planning *p = x->p;
    const int64_t units = p->inside_units > p->face_units ? p->inside_units : p->face_units;
    int failed = 0;
    for (int tight = 0; tight < 2 && !x->found && !failed; tight++) {
        failed = search_visit(x, p->visit ? p->visit : 1, tight, e);
        const bool simple = x->found && x->about.again_ns <= 0 && x->best.chunks[p->space->chunks_n - 1].placement == TIER_DEVICE;
        for (int v = 2; v <= RITZ_VISIT_MOST && v < 2 * units && !p->visit && !simple && !failed; v *= 2)
            failed = search_visit(x, v, tight, e);
    }
    return failed;
}

/* The budgets that would suffice, as options of the program. */
static void find_change(const search *x, pt_ritz_misfit *out)
{
    *out = (pt_ritz_misfit){.missing_bytes = x->excess};
    for (int t = 0; t < TIERS; t++) {
        const size_t used = strlen(out->change);
        char size[32];
        if (x->least[t] > x->p->budget[t])
            snprintf(out->change + used, sizeof out->change - used, "%s--%s-memory %s", used ? " " : "", tier_names[t],
                     size_option(size, x->least[t]));
    }
}

static int say_misfit(const search *x, pt_error *e)
{
    char least[32], has[32];
    pt_ritz_misfit found;
    pt_ritz_misfit *m = x->p->misfit ? x->p->misfit : &found;
    find_change(x, m);
    for (int t = TIER_HOST; t < TIERS; t++)
        if (x->least[t] > x->p->budget[t] && x->least[TIER_DEVICE] <= x->p->budget[TIER_DEVICE])
            return pt_fail(e, PT_DOES_NOT_FIT, "the run needs %s of %s memory, but the budget is %s: give %s, or more of another tier",
                           size_format(least, x->least[t]), tier_names[t], size_format(has, x->p->budget[t]), m->change);
    const uint64_t of_points = x->p->mailbox_bytes(x->p->arg, 1);
    return pt_fail(e, PT_DOES_NOT_FIT,
                   "the run needs %s even with everything recomputed, but the budget is %s: give %s, or lower %s",
                   size_format(least, x->least[TIER_DEVICE]), size_format(has, x->p->budget[TIER_DEVICE]), m->change,
                   of_points > x->least[TIER_DEVICE] / 2 ? "`n` or the dimension"
                   : x->p->visit > 1                     ? "`width` or `micro_batch`"
                                                         : "`width` or `blocks`");
}

int ritz_plan_choose(const ritz_planning *p, plan *out, ritz_step_forecast *about, pt_error *e)
{
    search x = {.p = p, .excess = UINT64_MAX};
    ritz_prices prices;
    const shape all = {.visit = p->visit ? p->visit : 1};
    const bool has_disk = p->budget[TIER_DISK] > 0;
    ritz_planning without = *p;
    without.budget[TIER_DISK] = 0;
    x.p = &without;
    int code = try_shape(&x, &all, true, e);
    if (code >= 0 && (code == 0 || p->price)) {
        if (x.found)
            plan_free(&x.best);
        x.found = false;
        code = ritz_prices_measure(p->price && code ? &without : p, &prices, e);
        x.prices = &prices;
        if (!code)
            code = search_all(&x, e);
        if (!code && !x.found && has_disk) { /* writing wears a disk, so it is used only if nothing else fits */
            x.p = p;
            x.disk = true;
            code = search_all(&x, e);
        }
    }
    if (code < 0) {
        if (x.found)
            plan_free(&x.best);
        return code;
    }
    if (!x.found)
        return say_misfit(&x, e);
    *out = x.best;
    *about = x.about;
    about->tried = x.tried;
    return 0;
}
