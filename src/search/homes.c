/* homes.c - homes out of order.
 *
 * A recipe keeps the first chunks on the device, the next on the host and the rest on the disk: few numbers say where all are. But
 * chunks differ in size, and in what they are for. At the end single chunks of the best plan are therefore sent elsewhere, two
 * are exchanged, and one takes the place of as many as it needs, as long as that makes it faster and there is time:
 *
 *     device, disk, disk               the second chunk does not fit the device, the third, which is smaller, does:
 *     device, disk, device
 *
 *     device, device, device, disk     the embedding, which is large, takes the place of the layers' chunks:
 *     disk, disk, disk, device
 */
#include "search/walk.h"

#include <string.h>

enum { PAIRS_MOST = 48 }; /* chunks: of more a single one matters little, and there are many pairs */

/* 1: the plan as it is now is faster than before, by so much that it is no rounding. */
static int is_faster(walk *w, candidate *c)
{
    priced p;
    int fits = price_plan(w->s.in, &c->packing, &c->plan, w->s.budget, c->step_ns * 0.999, 0, &p, w->e);
    w->s.tried++;
    if (fits > 0) {
        c->step_ns = p.step_ns;
        memcpy(c->bytes, p.bytes, sizeof c->bytes);
    }
    return fits;
}

static int turn_one(walk *w, candidate *c, int i)
{
    static const plan_chunk places[] = {
        {TIER_DEVICE, TIER_DEVICE}, {TIER_HOST, TIER_HOST}, {TIER_HOST, TIER_DEVICE}, {TIER_DISK, TIER_HOST}, {TIER_DISK, TIER_DEVICE}};
    const plan_chunk before = c->plan.chunks[i];
    for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
        const plan_chunk x = places[k];
        bool same = x.home == before.home && x.update == before.update;
        if (same || !space_has(&w->s, x.home) || (x.update == TIER_HOST && !w->s.in->host_tier))
            continue;
        c->plan.chunks[i] = x;
        int faster = is_faster(w, c);
        if (faster)
            return faster;
    }
    c->plan.chunks[i] = before;
    return 0;
}

static void exchange(plan *p, int i, int j)
{
    const plan_chunk x = p->chunks[i];
    p->chunks[i] = p->chunks[j];
    p->chunks[j] = x;
}

static int turn_two(walk *w, candidate *c, int i, int j)
{
    const plan_chunk *x = &c->plan.chunks[i], *y = &c->plan.chunks[j];
    if (x->home == y->home && x->update == y->update)
        return 0;
    exchange(&c->plan, i, j);
    int faster = is_faster(w, c);
    if (!faster)
        exchange(&c->plan, i, j);
    return faster;
}

static uint64_t chunk_bytes(const packing *k, int i) { return 2 * chunk_weight_bytes(k, i) + chunk_state_bytes(k, i); }

/* Chunk i comes to the device, and the first or the last chunks that live there go where it was, until `share` of what it takes is free. */
static int turn_against(walk *w, candidate *c, int i, bool last, double share)
{
    const int n = c->plan.chunks_n;
    plan_chunk before[PAIRS_MOST], *at = c->plan.chunks;
    double need = share * (double)chunk_bytes(&c->packing, i), gone = 0;
    memcpy(before, at, (size_t)n * sizeof *before);
    at[i] = (plan_chunk){TIER_DEVICE, TIER_DEVICE};
    for (int k = 0; k < n && gone < need; k++) {
        int j = last ? n - 1 - k : k;
        if (j == i || at[j].home != TIER_DEVICE)
            continue;
        at[j] = before[i];
        gone += (double)chunk_bytes(&c->packing, j);
    }
    int faster = is_faster(w, c);
    if (!faster)
        memcpy(at, before, (size_t)n * sizeof *before);
    return faster;
}

static bool all_on_device(const plan *p)
{
    bool all = true;
    for (int i = 0; i < p->chunks_n; i++)
        all = all && p->chunks[i].home == TIER_DEVICE;
    return all;
}

/* Everything that can be done with chunk i: how much of it was a gain. */
static int turn(walk *w, candidate *c, int i)
{
    const int n = c->plan.chunks_n;
    int found = turn_one(w, c, i);
    for (int k = 0; k < 6 && found >= 0 && n <= PAIRS_MOST && c->plan.chunks[i].home != TIER_DEVICE; k++) {
        int faster = turn_against(w, c, i, k % 2, 0.25 * (1 << k / 2)); /* slots become smaller too where the largest comes */
        found = faster < 0 ? faster : found + faster;
    }
    for (int j = i + 1; j < n && found >= 0 && n <= PAIRS_MOST && !walk_is_over(w); j++) {
        int faster = turn_two(w, c, i, j);
        found = faster < 0 ? faster : found + faster;
    }
    return found;
}

int walk_turn_homes(walk *w, candidate *c)
{
    for (int found = !all_on_device(&c->plan); found;) {
        found = 0;
        for (int i = 0; i < c->plan.chunks_n && !walk_is_over(w); i++) {
            int faster = turn(w, c, i);
            if (faster < 0)
                return faster;
            found += faster;
        }
    }
    return 0;
}
