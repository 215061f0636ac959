/* least.c - the plan that needs the least memory. */
#include "search/space.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The least memory on the device for a size of chunk, a tier of the saved inputs, a time of update and a visit. One visit holds the inputs
 * of all micro-batches, several hold the gradients of all layers. */
static void economical(const space *s, candidate *r, int chunking, bool sharded, tier place, update_time update, int visit)
{
    candidate_init(s, r, chunking);
    r->whole = sharded ? 0 : r->whole;
    candidate_blocks(s, r, 0, s->layers, SAVE_INPUT, place);
    r->n_update = 1;
    r->n_swap = 2;
    r->update = update;
    r->visit = visit;
}

/* Bytes beyond the budgets. A tier without a budget must not be used: that is worse than any other excess. */
static double overshoot(const space *s, const uint64_t bytes[TIERS])
{
    double over = 0;
    for (int t = 0; t < TIERS; t++)
        over += !bytes[t] || bytes[t] <= s->budget[t] ? 0 : s->budget[t] ? (double)(bytes[t] - s->budget[t]) : 1e18;
    return over;
}

/* May it fit, if the estimate of each tier is too high by this share of its budget? */
static bool is_near(const space *s, const uint64_t bytes[TIERS], double share)
{
    const double little = 16 << 20;
    bool near = true;
    for (int t = 0; t < TIERS; t++)
        near = near && (bytes[t] <= s->budget[t] ||
                        (s->budget[t] && (double)(bytes[t] - s->budget[t]) <= share * (double)s->budget[t] + little));
    return near;
}

static void count_tasks(space *s, const candidate *r)
{
    s->least_tasks -= s->chunkings[r->chunking].layer_tasks * (double)(s->in->shape->batch / r->micro_batch);
}

/* All memory that the candidate needs, whatever the budgets are. */
static int measure(space *s, const candidate *r, priced *out, pt_error *e)
{
    const uint64_t any[TIERS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    plan p;
    int fits = candidate_plan(s, r, &p, e);
    if (!fits) {
        fits = price_plan(s->in, &s->chunkings[r->chunking].packing, &p, any, 0, out, e);
        plan_free(&p);
        s->tried++;
        s->work += out->work;
        count_tasks(s, r);
    }
    out->candidate = *r;
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
static void keep_off_disk(const space *s, candidate *r, estimate *about)
{
    if (s->in->host_tier)
        r->on_host = candidate_chunks(s, r) - r->persist;
    else
        r->persist = candidate_chunks(s, r);
    candidate_normalise(s, r);
    candidate_estimate(s, r, about);
}

static int collect(const space *s, entry *list)
{
    const update_time times[] = {search_first_update(s->in), UPDATE_END};
    const split *last = &s->splits[0]; /* the smallest micro-batch, and the whole step in one visit */
    int n = 0;
    for (int i = 0; i < s->splits_n; i++)
        if (s->splits[i].micro_batch < last->micro_batch || (s->splits[i].micro_batch == last->micro_batch &&
                                                             s->splits[i].visit > last->visit))
            last = &s->splits[i];
    for (int g = 0; g < s->chunkings_n; g++)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++)
            for (int k = 0; k < (s->in->training ? space_is_shared(s) ? 8 : 4 : 1); k++) {
                entry x;
                estimate about;
                if (!space_has(s, place) || (place != TIER_DEVICE && !s->in->training) || (k & 2 && last->visit == 1))
                    continue;
                economical(s, &x.candidate, g, k & 4, place, times[k & 1], k & 2 ? 1 : last->visit);
                candidate_fill(s, &x.candidate, s->budget, &about);
                if (about.bytes[TIER_DISK] && !s->budget[TIER_DISK])
                    keep_off_disk(s, &x.candidate, &about);
                x.over = overshoot(s, about.bytes);
                memcpy(x.bytes, about.bytes, sizeof x.bytes);
                insert(list, &n, &x);
            }
    return n;
}

typedef struct outcome { priced filled, plain; double filled_over, plain_over; } outcome; /* the smallest excess of each kind; -1: none */

static int note(space *s, const candidate *r, priced *least, double *over, pt_error *e)
{
    priced one;
    int fits = measure(s, r, &one, e);
    double now = fits > 0 ? overshoot(s, one.bytes) : 0;
    if (fits > 0 && (*over < 0 || now < *over)) {
        *over = now;
        *least = one;
    }
    return fits > 0 ? now == 0 : fits;
}

/* Plans for steps of very many micro-batches take long to lay out. After this many tasks, the best plan so far is taken. Tasks are counted
 * instead of time, so that every machine finds the same plan; it takes about 4 s on one core. */
static const double LEAST_TASKS = 1.5e6;

static bool is_late(const space *s, const outcome *o) { return (o->filled_over >= 0 || o->plain_over >= 0) && s->least_tasks <= 0; }

/* All chunks on the disk, or a part of them on the device and the others on the host. The need of such plans does not depend on the
 * budgets. */
static int try_plain(space *s, const entry *x, outcome *o, pt_error *e)
{
    enum { PARTS = 8 };
    int chunks = candidate_chunks(s, &x->candidate), fits = 0;
    for (int part = space_has(s, TIER_DISK) ? -1 : 0; part <= PARTS && !fits && !is_late(s, o); part++) {
        candidate r;
        estimate about;
        economical(s, &r, x->candidate.chunking, x->candidate.whole < chunks, (tier)x->candidate.place[space_first_saving(s)],
                   x->candidate.update, x->candidate.visit);
        r.persist = part < 0 ? 0 : (chunks * part + PARTS - 1) / PARTS;
        r.on_host = part < 0 ? 0 : chunks - r.persist;
        candidate_normalise(s, &r);
        candidate_estimate(s, &r, &about);
        if ((part < 0 || s->in->host_tier || r.persist == chunks) && (o->plain_over < 0 || is_near(s, about.bytes, 0.1)))
            fits = note(s, &r, &o->plain, &o->plain_over, e);
    }
    return fits;
}

/* 1: fits, and is in o->filled or o->plain with no excess. Schedules by ranges are long: if only asked whether one fits, few are tried. */
static int try_entries(space *s, entry *list, int n, bool hopeful, outcome *o, pt_error *e)
{
    int fits = 0;
    for (int plain = 0; plain < (hopeful ? 1 : 2) && !fits; plain++)
        for (int i = 0; i < n && !fits && !is_late(s, o); i++) {
            if (hopeful ? i >= HOPEFUL || !is_near(s, list[i].bytes, 0.2) : i >= SURE && !is_near(s, list[i].bytes, 0.1))
                break;
            if (!hopeful && s->in->no_least && !is_near(s, list[i].bytes, 0.3))
                break;
            if (s->in->no_least && s->in->by_ranges && i >= (plain ? HOPEFUL : SURE))
                break;
            if (plain) {
                fits = try_plain(s, &list[i], o, e);
                continue;
            }
            fits = candidate_price_filled(s, &list[i].candidate, 0, 0, &o->filled, e);
            count_tasks(s, &list[i].candidate);
            o->filled_over = fits > 0 ? 0 : o->filled_over;
            if (!fits)
                fits = note(s, &list[i].candidate, &o->filled, &o->filled_over, e);
        }
    return fits;
}

static int solve(space *s, bool hopeful, outcome *o, pt_error *e)
{
    *o = (outcome){.filled_over = -1, .plain_over = -1};
    entry *list = malloc(ENTRIES * sizeof *list);
    if (!list)
        return pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    int fits = try_entries(s, list, collect(s, list), hopeful, o, e);
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

int least_price(space *s, bool hopeful, priced *out, pt_error *e)
{
    enum { TRIES = 6 };
    outcome o;
    priced next;
    s->least_tasks = LEAST_TASKS;
    int fits = solve(s, hopeful, &o, e), enough = 0;
    if (fits > 0)
        *out = o.filled_over == 0 ? o.filled : o.plain;
    if (fits || hopeful || s->in->no_least)
        return fits;
    *out = is_mixed(&o) ? o.filled : o.plain;
    for (int i = 0; i < TRIES && !enough && s->least_tasks > 0; i++) {
        enough = is_enough(s, out, &next, e);
        if (!enough)
            *out = i == 0 && is_mixed(&o) && o.plain_over >= 0 ? o.plain : next;
    }
    return enough < 0 ? enough : 0;
}

/* ---- with as little as possible on the device ---- */

typedef struct lean { candidate candidate; double device; bool found; } lean;

/* By the estimate, which a tier has some room for. */
static bool has_room(const space *s, candidate *r, int on_host, tier t, estimate *about)
{
    r->persist = 0;
    r->on_host = on_host;
    candidate_normalise(s, r);
    candidate_estimate(s, r, about);
    return (double)about->bytes[t] <= 0.98 * (double)s->budget[t];
}

/* As many chunks on the host as it has room for, the others on the disk. */
static void consider_lean(const space *s, const candidate *like, lean *best)
{
    candidate r = *like;
    estimate about;
    int most = s->in->host_tier ? candidate_chunks(s, &r) : 0;
    for (int fits = 0; fits < most;) {
        const int half = (fits + most + 1) / 2;
        const bool room = has_room(s, &r, half, TIER_HOST, &about);
        fits = room ? half : fits;
        most = room ? most : half - 1;
    }
    if (!has_room(s, &r, most, TIER_DISK, &about) || (about.bytes[TIER_HOST] && about.bytes[TIER_HOST] > s->budget[TIER_HOST]))
        return;
    if (!best->found || (double)about.bytes[TIER_DEVICE] < best->device)
        *best = (lean){r, (double)about.bytes[TIER_DEVICE], true};
}

/* 1: there is one, and it fits. */
static int price_lean(space *s, const lean *best, uint64_t bytes[TIERS], double *step_ns, pt_error *e)
{
    priced p;
    const int found = best->found ? measure(s, &best->candidate, &p, e) : 0;
    if (found <= 0 || overshoot(s, p.bytes) > 0)
        return found < 0 ? found : 0;
    memcpy(bytes, p.bytes, sizeof p.bytes);
    *step_ns = p.step_ns;
    return 1;
}

static int leanest_of(const search_input *in, uint64_t bytes[TIERS], double *step_ns, pt_error *e)
{
    space s;
    lean best = {.found = false};
    const int failed = space_open(&s, in, e);
    if (failed)
        return failed;
    entry *list = malloc(ENTRIES * sizeof *list);
    const int n = list ? collect(&s, list) : 0;
    for (int i = 0; i < n; i++)
        consider_lean(&s, &list[i].candidate, &best);
    const int found = list ? price_lean(&s, &best, bytes, step_ns, e)
                           : pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    free(list);
    space_close(&s);
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
