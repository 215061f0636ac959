/* placements.c - placements in any order.
 *
 * A candidate has the first chunks on the device, the next on the host and the rest on the disk, so that few numbers describe it. But
 * chunks differ in size and use. At the end of the search, single chunks of the best plan are moved to another tier, two chunks are
 * exchanged, one takes the place of as many as it needs, or leaves its place to as many as fit; as long as the plan becomes faster and
 * there is time:
 *
 *     device, disk, disk               the second chunk does not fit the device, but the third, smaller one does:
 *     device, disk, device
 *
 *     device, device, device, disk     the large embedding takes the place of the layers' chunks:
 *     disk, disk, disk, device
 *
 * If there are very few chunks, every arrangement is tried first (arrange.c). In the time that is left, a slot more or less, and another
 * save level or tier of single layers, are tried (`tune`), because other numbers may suit the new placements better.
 */
#include "search/placements.h"

#include <string.h>

enum { PAIRS_MOST = 48 }; /* with more chunks a single one matters little, and there are many pairs */

/* Does each tier have space for the placements? A cheap necessary condition. */
static bool placements_fit(const space *space, const packing *packing, const plan *plan)
{
    const bool training = space->in->training, gradients = training && plan->update != UPDATE_BACKWARD;
    uint64_t bytes[TIERS] = {0};
    bool fit = true;
    for (int i = 0; i < plan->chunks_n; i++)
        bytes[plan->chunks[i].placement] += (plan->chunks[i].sharded ? chunk_shard_bytes(packing, i) : chunk_weight_bytes(packing, i)) +
                                            (training ? chunk_state_bytes(packing, i) : 0) +
                                            (gradients ? chunk_gradient_bytes(packing, i) : 0);
    for (int t = 0; t < TIERS; t++)
        fit = fit && bytes[t] <= space->budget[t];
    return fit;
}

int placements_are_faster(turning *t)
{
    priced p;
    priced_plan *c = t->c;
    t->ns = 0;
    if (!placements_fit(&t->w->s, &c->packing, &c->plan))
        return 0;
    int fits = price_plan(t->w->s.in, &c->packing, &c->plan, t->w->s.budget, c->step_ns * 0.999, &p, t->w->e);
    t->w->s.tried++;
    t->w->s.work += p.work;
    t->ns = p.step_ns;
    if (fits <= 0)
        return fits;
    if (p.written > *t->written && p.step_ns > c->step_ns * WORTH_WRITING)
        return 0;
    *t->written = p.written;
    c->step_ns = p.step_ns;
    memcpy(c->bytes, p.bytes, sizeof c->bytes);
    return 1;
}

int placements_places(const space *space, plan_chunk out[PLACES])
{
    static const struct { tier placement, update; } places[] = {
        {TIER_DEVICE, TIER_DEVICE}, {TIER_HOST, TIER_HOST}, {TIER_HOST, TIER_DEVICE}, {TIER_DISK, TIER_HOST}, {TIER_DISK, TIER_DEVICE}};
    int n = 0;
    for (int sharded = 0; sharded < (space_is_shared(space) ? 2 : 1); sharded++)
        for (size_t k = 0; k < sizeof places / sizeof *places; k++)
            if (space_has(space, places[k].placement) && (places[k].update != TIER_HOST || space_updates_on_host(space)))
                out[n++] = (plan_chunk){places[k].placement, places[k].update, sharded};
    return n;
}

/* Do the saved tensors of a layer leave the device? */
static bool swaps(const plan *plan)
{
    bool any = false;
    for (int i = 0; i < plan->blocks_n; i++)
        any = any || plan->blocks[i].place != TIER_DEVICE;
    return any;
}

/* ---- one chunk, two, several ---- */

static int turn_one(turning *t, int i)
{
    plan_chunk places[PLACES], *at = &t->c->plan.chunks[i];
    const int places_n = placements_places(&t->w->s, places);
    const plan_chunk before = *at;
    for (int k = 0; k < places_n && !walk_is_over(t->w); k++) {
        const plan_chunk x = places[k];
        if (plan_chunk_same(&x, &before))
            continue;
        *at = x;
        int faster = placements_are_faster(t);
        if (faster)
            return faster;
    }
    *at = before;
    return 0;
}

static void exchange(plan *plan, int i, int j)
{
    const plan_chunk x = plan->chunks[i];
    plan->chunks[i] = plan->chunks[j];
    plan->chunks[j] = x;
}

static int turn_two(turning *t, int i, int j)
{
    plan *plan = &t->c->plan;
    const plan_chunk *x = &plan->chunks[i], *y = &plan->chunks[j];
    if (plan_chunk_same(x, y))
        return 0;
    exchange(plan, i, j);
    int faster = placements_are_faster(t);
    if (!faster)
        exchange(plan, i, j);
    return faster;
}

static uint64_t chunk_bytes(const packing *packing, int i)
{
    return chunk_weight_bytes(packing, i) + chunk_gradient_bytes(packing, i) + chunk_state_bytes(packing, i);
}

/* Moves chunk i to the device, and the first or last chunks there to its old place, until `share` of its size is free. */
static void come(priced_plan *c, int i, bool last, double share)
{
    plan_chunk *at = c->plan.chunks;
    const plan_chunk before = at[i];
    const int n = c->plan.chunks_n;
    double need = share * (double)chunk_bytes(&c->packing, i), gone = 0;
    at[i] = (plan_chunk){TIER_DEVICE, TIER_DEVICE, before.sharded};
    for (int k = 0; k < n && gone < need; k++) {
        int j = last ? n - 1 - k : k;
        if (j == i || at[j].placement != TIER_DEVICE)
            continue;
        at[j] = before;
        gone += (double)chunk_bytes(&c->packing, j);
    }
}

/* Moves chunk i from the device to the place of the first or last chunks elsewhere, and as many of those as fit `share` of its size to the
 * device. */
static void leave(priced_plan *c, int i, bool last, double share)
{
    plan_chunk *at = c->plan.chunks;
    const int n = c->plan.chunks_n;
    double room = share * (double)chunk_bytes(&c->packing, i);
    for (int k = 0; k < n; k++) {
        int j = last ? n - 1 - k : k;
        double takes = (double)chunk_bytes(&c->packing, j);
        if (j == i || at[j].placement == TIER_DEVICE || takes > room)
            continue;
        if (at[i].placement == TIER_DEVICE)
            at[i] = at[j];
        at[j] = (plan_chunk){TIER_DEVICE, TIER_DEVICE, at[j].sharded};
        room -= takes;
    }
}

static int turn_many(turning *t, int i, bool last, double share)
{
    plan_chunk before[PAIRS_MOST], *at = t->c->plan.chunks;
    size_t bytes = (size_t)t->c->plan.chunks_n * sizeof *before;
    memcpy(before, at, bytes);
    if (at[i].placement == TIER_DEVICE)
        leave(t->c, i, last, share);
    else
        come(t->c, i, last, share);
    int faster = memcmp(before, at, bytes) ? placements_are_faster(t) : 0;
    if (!faster)
        memcpy(at, before, bytes);
    return faster;
}

static bool all_resident(const plan *plan)
{
    bool all = true;
    for (int i = 0; i < plan->chunks_n; i++)
        all = all && plan->chunks[i].placement == TIER_DEVICE && !plan->chunks[i].sharded;
    return all;
}

/* Tries every move of chunk i. */
static int turn(turning *t, int i)
{
    const int n = t->c->plan.chunks_n;
    int found = turn_one(t, i);
    for (int k = 0; k < 6 && found >= 0 && n <= PAIRS_MOST && !walk_is_over(t->w); k++) {
        int faster = turn_many(t, i, k % 2, 0.25 * (1 << k / 2)); /* slots become smaller, too, if it is the largest */
        found = faster < 0 ? faster : found + faster;
    }
    for (int j = i + 1; j < n && found >= 0 && n <= PAIRS_MOST && !walk_is_over(t->w); j++) {
        int faster = turn_two(t, i, j);
        found = faster < 0 ? faster : found + faster;
    }
    return found;
}

/* ---- slots and layers ---- */

/* Adds this many slots of each kind. */
static int tune_slots(turning *t, const int more[3])
{
    plan *plan = &t->c->plan;
    int *const n[3] = {&plan->n_buffer, &plan->n_update, &plan->n_swap};
    int faster = 1;
    for (int i = 0; i < 3; i++) {
        *n[i] += more[i];
        if (*n[i] < 1 || *n[i] > PLAN_MAX_SLOTS)
            faster = 0;
    }
    faster = faster ? placements_are_faster(t) : 0;
    for (int i = 0; i < 3 && !faster; i++)
        *n[i] -= more[i];
    return faster;
}

enum { SPARE_SLOTS = 2 };

static int tune_layer(turning *t, int i)
{
    plan_block *at = &t->c->plan.blocks[i];
    int *const slots = &t->c->plan.n_swap;
    int found = 0;
    for (int k = 0; k < SAVE_LEVELS * TIERS && found >= 0 && !walk_is_over(t->w); k++) {
        const plan_block before = *at, x = {(save_level)(k / TIERS), (tier)(k % TIERS)};
        if (!space_has(&t->w->s, x.place) || (x.level == before.level && x.place == before.place))
            continue;
        *at = x;
        int faster = placements_are_faster(t);
        if (!faster && x.place != TIER_DEVICE && *slots <= SPARE_SLOTS) { /* with one more, it may leave while the next is computed */
            ++*slots;
            faster = placements_are_faster(t);
            *slots -= faster <= 0;
        }
        if (faster <= 0)
            *at = before;
        found = faster < 0 ? faster : found + faster;
    }
    return found;
}

static int tune(turning *t)
{
    static const int more[][3] = {{1, 0, 0}, {-1, 0, 0}, {0, 1, 0}, {0, -1, 0}, {1, -1, 0}, {-1, 1, 0}, {0, 0, 1}, {0, 0, -1}};
    const size_t n = sizeof more / sizeof *more - (swaps(&t->c->plan) ? 0 : 2);
    int found = 0;
    for (size_t i = 0; i < n && found >= 0 && !walk_is_over(t->w); i++) {
        int faster = tune_slots(t, more[i]);
        found = faster < 0 ? faster : found + faster;
    }
    for (int i = t->w->s.passing; i < t->c->plan.blocks_n && found >= 0 && !walk_is_over(t->w); i++) {
        int faster = tune_layer(t, i);
        found = faster < 0 ? faster : found + faster;
    }
    return found;
}

static int turn_each(turning *t)
{
    int found = 0;
    for (int i = 0; i < t->c->plan.chunks_n && found >= 0 && !walk_is_over(t->w); i++) {
        int faster = turn(t, i);
        found = faster < 0 ? faster : found + faster;
    }
    return found;
}

int walk_turn_placements(walk *w, priced_plan *c, effort how, uint64_t *written)
{
    turning t = {w, c, written, 0};
    int found = how == EFFORT_ARRANGE ? placements_arrange(&t) : 1;
    if (found <= 0)
        return found;
    while (found > 0) {
        found = all_resident(&c->plan) ? 0 : turn_each(&t);
        if (!found && how != EFFORT_TURN)
            found = tune(&t);
    }
    return found;
}
