/* least.c - the plan that needs the least memory. */
#include "search/space.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least memory on the device for a size of chunk, a tier of the saved inputs, a time of update and a visit. One visit holds the inputs
 * of all micro-batches, several hold the gradients of all layers. */
static void economical(const space *space, candidate *cand, int chunking, bool sharded, tier place, update_time update, int visit)
{
    candidate_init(space, cand, chunking);
    cand->whole = sharded ? 0 : cand->whole;
    candidate_blocks(space, cand, 0, space->layers, SAVE_INPUT, place);
    cand->n_update = 1;
    cand->n_swap = 2;
    cand->update = update;
    cand->visit = visit;
}

/* Bytes beyond the budgets. A tier without a budget must not be used: that is worse than any other excess. */
static double overshoot(const space *space, const uint64_t bytes[TIERS])
{
    double over = 0;
    for (int t = 0; t < TIERS; t++)
        over += !bytes[t] || bytes[t] <= space->budget[t] ? 0 : space->budget[t] ? (double)(bytes[t] - space->budget[t]) : 1e18;
    return over;
}

/* May it fit, if the estimate of each tier is too high by this share of its budget? */
static bool is_near(const space *space, const uint64_t bytes[TIERS], double share)
{
    const double little = 16 << 20;
    bool near = true;
    for (int t = 0; t < TIERS; t++)
        near = near && (bytes[t] <= space->budget[t] ||
                        (space->budget[t] && (double)(bytes[t] - space->budget[t]) <= share * (double)space->budget[t] + little));
    return near;
}

static void count_tasks(space *space, const candidate *cand)
{
    space->least_tasks -= space->chunkings[cand->chunking].layer_tasks * (double)(space->in->shape->batch / cand->micro_batch);
}

/* All memory that the candidate needs, whatever the budgets are. */
static int measure(space *space, const candidate *cand, priced *out, pt_error *e)
{
    const uint64_t any[TIERS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    plan plan;
    int fits = candidate_plan(space, cand, &plan, e);
    if (!fits) {
        fits = price_plan(space->in, &space->chunkings[cand->chunking].packing, &plan, any, 0, out, e);
        plan_free(&plan);
        space->tried++;
        space->work += out->work;
        count_tasks(space, cand);
    }
    out->candidate = *cand;
    return fits;
}

typedef struct entry { candidate candidate; double over /* bytes beyond the budgets */; uint64_t bytes[TIERS]; } entry;

static bool is_less(const entry *a, const entry *b)
{
    return a->over != b->over ? a->over < b->over : a->bytes[TIER_DEVICE] < b->bytes[TIER_DEVICE];
}

enum { ENTRIES = SPACE_CHUNKINGS * TIERS * 2 * 2 * 2, HOPEFUL = 3, SURE = 10 };

static void insert(entry *list, int *n, const entry *x)
{
    int at = (*n)++;
    while (at > 0 && is_less(x, &list[at - 1])) {
        list[at] = list[at - 1];
        at--;
    }
    list[at] = *x;
}

/* Without a disk everything is in memory, even if the estimate says that it does not fit: it may be too high. */
static void keep_off_disk(const space *space, candidate *cand, estimate *about)
{
    if (space->in->host_tier)
        cand->on_host = candidate_chunks(space, cand) - cand->persist;
    else
        cand->persist = candidate_chunks(space, cand);
    candidate_normalise(space, cand);
    candidate_estimate(space, cand, about);
}

static int collect(const space *space, entry *list)
{
    const update_time times[] = {search_first_update(space->in), UPDATE_END};
    const split *last = &space->splits[0]; /* the smallest micro-batch, and the whole step in one visit */
    int n = 0;
    for (int i = 0; i < space->splits_n; i++)
        if (space->splits[i].micro_batch < last->micro_batch || (space->splits[i].micro_batch == last->micro_batch &&
                                                             space->splits[i].visit > last->visit))
            last = &space->splits[i];
    for (int g = 0; g < space->chunkings_n; g++)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++)
            for (int k = 0; k < (space->in->training ? space_is_shared(space) ? 8 : 4 : 1); k++) {
                entry x;
                estimate about;
                if (!space_has(space, place) || (place != TIER_DEVICE && !space->in->training) || (k & 2 && last->visit == 1))
                    continue;
                economical(space, &x.candidate, g, k & 4, place, times[k & 1], k & 2 ? 1 : last->visit);
                candidate_fill(space, &x.candidate, space->budget, &about);
                if (about.bytes[TIER_DISK] && !space->budget[TIER_DISK])
                    keep_off_disk(space, &x.candidate, &about);
                x.over = overshoot(space, about.bytes);
                memcpy(x.bytes, about.bytes, sizeof x.bytes);
                insert(list, &n, &x);
            }
    return n;
}

typedef struct outcome { priced filled, plain; double filled_over, plain_over; } outcome; /* the smallest excess of each kind; -1: none */

static int note(space *space, const candidate *cand, priced *least, double *over, pt_error *e)
{
    priced one;
    int fits = measure(space, cand, &one, e);
    double now = fits > 0 ? overshoot(space, one.bytes) : 0;
    if (fits > 0 && (*over < 0 || now < *over)) {
        *over = now;
        *least = one;
    }
    return fits > 0 ? now == 0 : fits;
}

/* Plans for steps of very many micro-batches take long to lay out. After this many tasks, the best plan so far is taken. Tasks are counted
 * instead of time, so that every machine finds the same plan; it takes about 4 s on one core. */
static const double LEAST_TASKS = 1.5e6;

static bool is_late(const space *space, const outcome *o) { return (o->filled_over >= 0 || o->plain_over >= 0) && space->least_tasks <= 0; }

/* All chunks on the disk, or a part of them on the device and the others on the host. The need of such plans does not depend on the
 * budgets. */
static int try_plain(space *space, const entry *x, outcome *o, pt_error *e)
{
    enum { PARTS = 8 };
    int chunks = candidate_chunks(space, &x->candidate), fits = 0;
    for (int part = space_has(space, TIER_DISK) ? -1 : 0; part <= PARTS && !fits && !is_late(space, o); part++) {
        candidate cand;
        estimate about;
        economical(space, &cand, x->candidate.chunking, x->candidate.whole < chunks, (tier)x->candidate.place[space_first_saving(space)],
                   x->candidate.update, x->candidate.visit);
        cand.persist = part < 0 ? 0 : (chunks * part + PARTS - 1) / PARTS;
        cand.on_host = part < 0 ? 0 : chunks - cand.persist;
        candidate_normalise(space, &cand);
        candidate_estimate(space, &cand, &about);
        if ((part < 0 || space->in->host_tier || cand.persist == chunks) && (o->plain_over < 0 || is_near(space, about.bytes, 0.1)))
            fits = note(space, &cand, &o->plain, &o->plain_over, e);
    }
    return fits;
}

/* 1: fits, and is in o->filled or o->plain with no excess. Schedules by ranges are long: if only asked whether one fits, few are tried. */
static int try_entries(space *space, entry *list, int n, bool hopeful, outcome *o, pt_error *e)
{
    int fits = 0;
    for (int plain = 0; plain < (hopeful ? 1 : 2) && !fits; plain++)
        for (int i = 0; i < n && !fits && !is_late(space, o); i++) {
            if (hopeful ? i >= HOPEFUL || !is_near(space, list[i].bytes, 0.2) : i >= SURE && !is_near(space, list[i].bytes, 0.1))
                break;
            if (!hopeful && space->in->no_least && !is_near(space, list[i].bytes, 0.3))
                break;
            if (space->in->no_least && space->in->by_ranges && i >= (plain ? HOPEFUL : SURE))
                break;
            if (plain) {
                fits = try_plain(space, &list[i], o, e);
                continue;
            }
            fits = candidate_price_filled(space, &list[i].candidate, 0, 0, &o->filled, e);
            count_tasks(space, &list[i].candidate);
            o->filled_over = fits > 0 ? 0 : o->filled_over;
            if (!fits)
                fits = note(space, &list[i].candidate, &o->filled, &o->filled_over, e);
        }
    return fits;
}

static int solve(space *space, bool hopeful, outcome *o, pt_error *e)
{
    *o = (outcome){.filled_over = -1, .plain_over = -1};
    entry *list = malloc(ENTRIES * sizeof *list);
    if (!list)
        return pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    int fits = try_entries(space, list, collect(space, list), hopeful, o, e);
    free(list);
    return fits;
}

static bool is_mixed(const outcome *o) { return o->filled_over >= 0 && (o->plain_over < 0 || o->filled_over < o->plain_over); }

/* Will a search with the memory of *x as its budgets find a plan? Other budgets are filled differently, and full tiers may fail. If not,
 * *next gets the least plan found with those budgets, which needs more. */
static int is_enough(space *s, const priced *x, priced *next, pt_error *e)
{
    space wider = *s;
    outcome o;
    for (int t = 0; t < TIERS; t++)
        wider.budget[t] = x->bytes[t] > s->budget[t] ? x->bytes[t] : s->budget[t];
    int fits = solve(&wider, false, &o, e);
    s->least_tasks = wider.least_tasks;
    s->work = wider.work;
    s->tried = wider.tried;
    if (!fits)
        *next = is_mixed(&o) ? o.filled : o.plain;
    return fits;
}

int least_price(space *space, bool hopeful, priced *out, pt_error *e)
{
    enum { TRIES = 6 };
    outcome o;
    priced next;
    space->least_tasks = LEAST_TASKS;
    int fits = solve(space, hopeful, &o, e), enough = 0;
    if (fits > 0)
        *out = o.filled_over == 0 ? o.filled : o.plain;
    if (fits || hopeful || space->in->no_least)
        return fits;
    *out = is_mixed(&o) ? o.filled : o.plain;
    for (int i = 0; i < TRIES && !enough && space->least_tasks > 0; i++) {
        enough = is_enough(space, out, &next, e);
        if (!enough)
            *out = i == 0 && is_mixed(&o) && o.plain_over >= 0 ? o.plain : next;
    }
    return enough < 0 ? enough : 0;
}

/* ---- with as little as possible on the device ---- */

typedef struct lean { candidate candidate; double device; bool found; } lean;

/* By the estimate, which a tier has some room for. */
static bool has_room(const space *space, candidate *cand, int on_host, tier t, estimate *about)
{
    cand->persist = 0;
    cand->on_host = on_host;
    candidate_normalise(space, cand);
    candidate_estimate(space, cand, about);
    return (double)about->bytes[t] <= 0.98 * (double)space->budget[t];
}

/* As many chunks on the host as it has room for, the others on the disk. */
static void consider_lean(const space *space, const candidate *like, lean *best)
{
    candidate cand = *like;
    estimate about;
    int most = space->in->host_tier ? candidate_chunks(space, &cand) : 0;
    for (int fits = 0; fits < most;) {
        const int half = (fits + most + 1) / 2;
        const bool room = has_room(space, &cand, half, TIER_HOST, &about);
        fits = room ? half : fits;
        most = room ? most : half - 1;
    }
    if (!has_room(space, &cand, most, TIER_DISK, &about) || (about.bytes[TIER_HOST] && about.bytes[TIER_HOST] > space->budget[TIER_HOST]))
        return;
    if (!best->found || (double)about.bytes[TIER_DEVICE] < best->device)
        *best = (lean){cand, (double)about.bytes[TIER_DEVICE], true};
}

/* 1: there is one, and it fits. */
static int price_lean(space *space, const lean *best, uint64_t bytes[TIERS], double *step_ns, pt_error *e)
{
    priced p;
    const int found = best->found ? measure(space, &best->candidate, &p, e) : 0;
    if (found <= 0 || overshoot(space, p.bytes) > 0)
        return found < 0 ? found : 0;
    memcpy(bytes, p.bytes, sizeof p.bytes);
    *step_ns = p.step_ns;
    return 1;
}

static int leanest_of(const search_input *in, uint64_t bytes[TIERS], double *step_ns, pt_error *e)
{
    space space;
    lean best = {.found = false};
    const int failed = space_open(&space, in, e);
    if (failed)
        return failed;
    entry *list = malloc(ENTRIES * sizeof *list);
    const int n = list ? collect(&space, list) : 0;
    for (int i = 0; i < n; i++)
        consider_lean(&space, &list[i].candidate, &best);
    const int found = list ? price_lean(&space, &best, bytes, step_ns, e)
                           : pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    free(list);
    space_close(&space);
    return found;
}

int search_leanest(const search_input *in, uint64_t bytes[TIERS], double *step_ns, pt_error *e)
{
    const int found = leanest_of(in, bytes, step_ns, e);
    uint64_t less[TIERS];
    double ns;
    if (found < 0 || in->by_ranges || !search_has_ranges(in))
        return found;
    search_input ranges = *in;
    ranges.by_ranges = true;
    const int other = leanest_of(&ranges, less, &ns, e);
    if (other <= 0 || (found && bytes[TIER_DEVICE] <= less[TIER_DEVICE]))
        return other < 0 ? other : found;
    memcpy(bytes, less, sizeof less);
    *step_ns = ns;
    return 1;
}
