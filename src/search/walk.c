/* walk.c - steps from a priced plan to its neighbours by simulation, and what they teach. See search.c. */
#include "search/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BRISK = 24 /* neighbours */ };
#define KEPT_ABOVE 1.005 /* times the requested price */

double walk_now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#ifndef PT_SEARCH_WORK
#define PT_SEARCH_WORK 1 /* less where a sanitizer makes everything slow (CMakePresets.json) */
#endif
#define WORK_OF_SEARCH (6e8 * PT_SEARCH_WORK) /* about half a second on two cores */

double search_effort(const search_input *in) { return in->effort > 0 ? in->effort : 1; }

void walk_allow(walk *w, double share)
{
    const double part = w->s.in->part;
    w->limit = w->before + (part > 0 && part < share ? part : share) * search_effort(w->s.in) * WORK_OF_SEARCH;
}

bool walk_is_over(const walk *w) { return w->s.work > w->limit; }

double walk_best_ns(const walk *w) { return w->kept_n ? w->kept[0].step_ns : 0; }

static bool is_near(const candidate *a, const candidate *b)
{
    return a->chunking == b->chunking && a->micro_batch == b->micro_batch && a->visit == b->visit && a->update == b->update;
}

/* Of equally fast ones, the one that needs least memory: it leaves most room for chunks on the device (placements.c). */
static bool is_better(const priced *x, const priced *known)
{
    const double ratio = x->step_ns / known->step_ns;
    return ratio < 0.9995 || (ratio < 1.0005 && x->bytes[TIER_DEVICE] < known->bytes[TIER_DEVICE]);
}

static void keep_apart(walk *w, const priced *x)
{
    int at = 0, slowest = 0;
    for (; at < w->apart_n && !is_near(&w->apart[at].candidate, &x->candidate); at++)
        slowest = w->apart[at].step_ns > w->apart[slowest].step_ns ? at : slowest;
    if (at == APART)
        at = slowest;
    if (at == w->apart_n || is_better(x, &w->apart[at]))
        w->apart[at] = *x;
    w->apart_n += at == w->apart_n;
}

void walk_keep(walk *w, const priced *x)
{
    keep_apart(w, x);
    if (!w->less && (!w->kept_n || x->step_ns < w->kept[0].step_ns)) {
        if (w->better_n == 256)
            memmove(w->better, w->better + 1, (size_t)--w->better_n * sizeof *w->better);
        w->better[w->better_n].at_s = walk_now_s() - w->begun_s;
        w->better[w->better_n++].ns = x->step_ns;
    }
    for (int i = 0; i < w->kept_n; i++)
        if (candidate_hash(&w->s, &w->kept[i].candidate) == candidate_hash(&w->s, &x->candidate))
            return;
    if (w->kept_n == KEPT && x->step_ns >= w->kept[KEPT - 1].step_ns)
        return;
    int at = w->kept_n < KEPT ? w->kept_n++ : KEPT - 1;
    while (at > 0 && x->step_ns < w->kept[at - 1].step_ns) {
        w->kept[at] = w->kept[at - 1];
        at--;
    }
    w->kept[at] = *x;
}

int walk_each_kind(walk *w, int (*fn)(walk *w, const candidate *from, void *arg), void *arg)
{
    const update_time first = search_first_update(w->s.in);
    int failed = 0;
    for (int g = 0; g < w->s.chunkings_n && !failed; g++)
        for (int i = 0; i < w->s.splits_n && !failed; i++)
            for (update_time u = first; u <= (w->s.in->training ? UPDATE_END : first) && !failed && !walk_is_over(w); u++) {
                candidate cand;
                if (!search_may_update(w->s.in, u))
                    continue;
                candidate_init(&w->s, &cand, g);
                cand.micro_batch = w->s.splits[i].micro_batch;
                cand.visit = w->s.splits[i].visit;
                cand.update = u;
                failed = fn(w, &cand, arg);
            }
    return failed;
}

/* ---- simulation ---- */

bool walk_within(const space *space, const estimate *x, double slack)
{
    for (int t = 0; t < TIERS; t++)
        if ((double)x->bytes[t] > slack * (double)space->fill[t])
            return false;
    return true;
}

double walk_memory_slack(const walk *w) { return !space_has_few_layers(&w->s) ? 1.02 : w->wide ? 1.3 : 1.08; }
double walk_time_slack(const walk *w) { return !space_has_few_layers(&w->s) ? 1.05 : w->wide ? 2 : 1.3; }

static bias *find_bias(walk *w, uint64_t kind)
{
    uint64_t i = kind % KINDS;
    while (w->biases[i].kind && w->biases[i].kind != kind)
        i = (i + 1) % KINDS;
    return &w->biases[i];
}

static void learn(walk *w, const priced *x)
{
    estimate about;
    candidate_estimate(&w->s, &x->candidate, &about);
    bias *b = find_bias(w, candidate_kind(&x->candidate));
    double factor = x->step_ns / about.ns;
    if (x->step_ns <= 0 || (!b->kind && w->biases_n >= KINDS / 2))
        return;
    if (!b->kind || factor < b->factor) {
        w->biases_n += !b->kind;
        *b = (bias){candidate_kind(&x->candidate), factor};
    }
}

/* The expected time, as far as is known. Kinds without a known error get the best known one, so that each is tried once and early. */
static double expected_ns(walk *w, const candidate *cand, double estimated_ns)
{
    const bias *b = find_bias(w, candidate_kind(cand));
    return estimated_ns * (b->kind ? b->factor : 1);
}

int walk_try(walk *w, const candidate *cand, double than, priced *out)
{
    candidate x = *cand;
    priced p;
    int fits = candidate_price_filled(&w->s, &x, than * KEPT_ABOVE, than, &p, w->e);
    if (fits >= 0 && !space_has_few_layers(&w->s))
        learn(w, &p);
    if (fits <= 0)
        return fits;
    walk_keep(w, &p);
    if (than > 0 && p.step_ns >= than * (w->brisk ? 0.997 : 0.9999))
        return 0;
    *out = p;
    return 1;
}

static int by_ns(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->ns != y->ns ? (x->ns < y->ns ? -1 : 1) : x->number - y->number;
}

typedef struct collection { walk *w; double limit, least, expected; int n, number; } collection;

/* Candidates that may be faster than the current one. */
static bool collect(void *arg, const candidate *cand, const estimate *about)
{
    collection *c = arg;
    if (c->n == MOVES) {
        qsort(c->w->order, MOVES, sizeof *c->w->order, by_ns);
        c->n = MOVES / 2;
        c->limit = c->expected = c->w->order[c->n].ns;
    }
    double ns = space_has_few_layers(&c->w->s) ? about->ns : expected_ns(c->w, cand, about->ns);
    if (about->ns < c->limit && about->least_ns < c->least && ns < c->expected && walk_within(&c->w->s, about, walk_memory_slack(c->w)))
        c->w->order[c->n++] = (ranked){*cand, ns, c->number++};
    return false;
}

/* A candidate as numbers that can be subtracted, without those that filling derives. */
enum { ASPECTS = SAVE_LEVELS + TIERS + 3 };

static void count_aspects(const space *space, const candidate *cand, double out[ASPECTS])
{
    memset(out, 0, ASPECTS * sizeof *out);
    for (int i = 0; i < space->layers; i++) {
        out[cand->level[i]]++;
        out[SAVE_LEVELS + cand->place[i]]++;
    }
    out[ASPECTS - 3] = cand->n_buffer;
    out[ASPECTS - 2] = cand->n_update;
    out[ASPECTS - 1] = cand->n_swap;
}

/* How many times the step from `before` to `here` leads from there to `next`; 0: another direction. */
static double steps_on(const space *space, const candidate *before, const candidate *here, const candidate *next)
{
    double a[ASPECTS], b[ASPECTS], c[ASPECTS], aa = 0, ab = 0, bb = 0;
    count_aspects(space, before, a);
    count_aspects(space, here, b);
    count_aspects(space, next, c);
    for (int i = 0; i < ASPECTS; i++) {
        double step = b[i] - a[i], more = c[i] - b[i];
        aa += step * step;
        ab += step * more;
        bb += more * more;
    }
    return ab > 0 && ab * ab > 0.9 * aa * bb ? ab / aa : 0;
}

/* A successful step is tried again at about twice the length, before anything else: wrong estimates prefer the shortest steps in a
 * direction. */
static void prefer_ahead(walk *w, int n, const candidate *before, const candidate *here)
{
    for (int i = 0; i < n; i++) {
        double steps = steps_on(&w->s, before, here, &w->order[i].candidate);
        if (steps > 1.2 && steps < 5)
            w->order[i].ns = fabs(steps - 2) - 5;
    }
    qsort(w->order, (size_t)n, sizeof *w->order, by_ns);
}

/* The neighbours in the order of their expected times. */
static int rank_moves(walk *w, const priced *from)
{
    estimate here;
    candidate cand = from->candidate;
    space_correct(&w->s, &cand, from->bytes);
    candidate_estimate(&w->s, &cand, &here);
    bool all = w->wide || space_has_few_layers(&w->s);
    collection c = {w, here.ns * walk_time_slack(w), from->step_ns, all ? INFINITY : from->step_ns * walk_time_slack(w), 0, 0};
    w->s.work += candidate_moves(&w->s, &cand, true, collect, &c);
    qsort(w->order, (size_t)c.n, sizeof *w->order, by_ns);
    return c.n;
}

/* Try other neighbours although this one is faster? Walks over many layers that always take the first take thousands of steps. */
static bool is_little(const walk *w, const priced *here, const priced *next)
{
    return w->wide || (!space_has_few_layers(&w->s) && next->step_ns > here->step_ns * 0.999);
}

/* 1: one of the first `most` ranked neighbours is faster, and is in *next. */
static int try_in_order(walk *w, const priced *here, int most, priced *next)
{
    int found = 0, one = 0;
    ahead_post(w->ahead, w->order, most, here->step_ns * KEPT_ABOVE, here->step_ns);
    for (int i = 0; i < most && one >= 0 && (!found || is_little(w, here, next)) && !walk_is_over(w); i++) {
        ahead_reach(w->ahead, i);
        one = walk_try(w, &w->order[i].candidate, found ? next->step_ns : here->step_ns, next);
        found = found || one > 0;
    }
    ahead_post(w->ahead, NULL, 0, 0, 0);
    return one < 0 ? one : found;
}

int walk_improve(walk *w, priced here)
{
    candidate before;
    bool moved = false;
    for (int found = 1; found > 0 && !walk_is_over(w);) {
        priced next;
        int n = rank_moves(w, &here);
        if (moved && !space_has_few_layers(&w->s))
            prefer_ahead(w, n, &before, &here.candidate);
        found = try_in_order(w, &here, w->brisk && n > BRISK ? BRISK : n, &next);
        if (found < 0)
            return found;
        moved = found;
        before = here.candidate;
        if (found)
            here = next;
    }
    return 0;
}

typedef struct crowd { candidate *all; int n, of; } crowd;

static bool gather(void *arg, const candidate *cand, const estimate *about)
{
    (void)about;
    crowd *c = arg;
    if (c->n < c->of)
        c->all[c->n++] = *cand;
    return false;
}

enum { SEEN = 1 << 16 };

typedef struct pairs { collection c; uint64_t *seen; int seen_n; } pairs;

/* Each pair only once: most can be made in two orders, many in more. */
static bool collect_new(void *arg, const candidate *cand, const estimate *about)
{
    pairs *p = arg;
    if (about->ns >= p->c.limit || p->seen_n > SEEN / 2)
        return false;
    uint64_t hash = candidate_hash(&p->c.w->s, cand), i = hash % SEEN;
    while (p->seen[i] && p->seen[i] != hash)
        i = (i + 1) % SEEN;
    if (p->seen[i])
        return false;
    p->seen[i] = hash;
    p->seen_n++;
    return collect(&p->c, cand, about);
}

/* Candidates two moves away, in the order of their estimates. */
static int rank_pairs(walk *w, const priced *from, crowd *near, uint64_t *seen)
{
    estimate here;
    candidate cand = from->candidate;
    memset(seen, 0, SEEN * sizeof *seen);
    space_correct(&w->s, &cand, from->bytes);
    candidate_estimate(&w->s, &cand, &here);
    pairs p = {{w, here.ns * 1.1, from->step_ns, INFINITY, 0, 0}, seen, 0};
    near->n = 0;
    w->s.work += candidate_moves(&w->s, &cand, true, gather, near);
    for (int i = 0; i < near->n && !walk_is_over(w); i++)
        w->s.work += candidate_moves(&w->s, &near->all[i], true, collect_new, &p);
    qsort(w->order, (size_t)p.c.n, sizeof *w->order, by_ns);
    return p.c.n;
}

/* Scratch memory of a walk over pairs. */
typedef struct pair_room { crowd near; uint64_t *seen; } pair_room;

/* 1: a pair of moves from here leads to something faster than the best. */
static int pairs_from(walk *w, const priced *here, pair_room *room)
{
    priced next;
    int n = rank_pairs(w, here, &room->near, room->seen), found = 0;
    for (int i = 0; i < n && !found && !walk_is_over(w); i++)
        found = walk_try(w, &w->order[i].candidate, walk_best_ns(w), &next);
    int failed = found > 0 ? walk_improve(w, next) : 0;
    return failed < 0 ? failed : found;
}

static bool is_same_kind(const walk *w, const candidate *a, const candidate *b)
{
    return a->chunking == b->chunking && a->micro_batch == b->micro_batch && a->visit == b->visit &&
           (space_has_few_layers(&w->s) || a->stride == b->stride);
}

/* The fastest of each size of chunk and division, and for many layers of each stride. */
static int fastest_of_each(const walk *w, priced *out, int most)
{
    int n = 0;
    for (int i = 0; i < w->kept_n && n < most; i++) {
        const candidate *cand = &w->kept[i].candidate;
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = is_same_kind(w, &out[k].candidate, cand);
        if (!known)
            out[n++] = w->kept[i];
    }
    return n;
}

int walk_improve_others(walk *w)
{
    enum { OTHERS = 4 };
    priced kinds[OTHERS];
    int n = fastest_of_each(w, kinds, OTHERS), failed = 0;
    for (int i = 1; i < n && !failed && kinds[i].step_ns < walk_best_ns(w) * 1.03; i++)
        failed = walk_improve(w, kinds[i]);
    return failed;
}

int walk_improve_briskly(walk *w)
{
    w->brisk = true;
    int failed = walk_improve(w, w->kept[0]);
    if (!failed)
        failed = walk_improve_others(w);
    w->brisk = false;
    return failed;
}

int walk_improve_by_pairs(walk *w)
{
    enum { CROWD = 1024, KINDS = 4 };
    pair_room room = {{malloc(CROWD * sizeof(candidate)), 0, CROWD}, malloc(SEEN * sizeof(uint64_t))};
    priced *kinds = malloc(KINDS * sizeof *kinds);
    int found = room.near.all && room.seen && kinds ? 1 : pt_fail(w->e, PT_FAILED, "out of memory while searching for a plan");
    while (found > 0 && !walk_is_over(w)) {
        priced here = w->kept[0];
        found = pairs_from(w, &here, &room);
    }
    int n = w->wide && !found ? fastest_of_each(w, kinds, KINDS) : 0;
    for (int i = 1; i < n && found >= 0 && !walk_is_over(w); i++)
        found = pairs_from(w, &kinds[i], &room);
    free(room.near.all);
    free(room.seen);
    free(kinds);
    return found < 0 ? found : 0;
}
