/* policies.c - the policies of other systems as plans for this machine: for comparison, and as starts of the search.
 *
 * Each policy is expressed as a plan, so that one executor runs them all. Each gets what its users would tune by hand: the largest
 * micro-batch that fits and, if the policy does not define the size of chunks, one layer per chunk. With clipping, updates run at the
 * end of the step, unless the system is known to do better.
 */
#include "search/space.h"

#include <math.h>
#include <string.h>

const char *const policy_names[POLICIES] = {"all resident", "all recompute", "ZeRO-Offload", "ZeRO-Infinity", "FSDP",
                                            "Deep Optimizer States k=2", "GreedySnake", "MegaTrain", "ProTrain"};

/* Where a policy that offloads states keeps them; with several ranks, each its shards. */
static void away(const space *s, candidate *r, tier placement)
{
    r->persist = r->whole = 0;
    r->on_host = placement == TIER_HOST ? candidate_chunks(s, r) : 0;
    r->stride = s->in->host_tier ? UPDATE_STRIDE_NONE : 1;
}

/* false: this machine lacks what the policy needs. */
static bool policy_candidate(const space *s, policy p, candidate *r)
{
    const chunking *g = &s->chunkings[r->chunking];
    tier near = s->in->host_tier ? TIER_HOST : TIER_DISK;
    r->update = s->in->clipping ? UPDATE_END : UPDATE_BACKWARD;
    candidate_blocks(s, r, 0, s->layers, SAVE_INPUT, TIER_DEVICE);
    switch (p) {
    case POLICY_RESIDENT: candidate_blocks(s, r, 0, s->layers, s->in->training ? SAVE_ALL : SAVE_INPUT, TIER_DEVICE); return true;
    case POLICY_RECOMPUTE: return s->in->training;
    case POLICY_ZERO_OFFLOAD: /* weights are on the device from their update to the next */
        away(s, r, TIER_HOST);
        r->n_buffer = g->packing.chunks_n;
        return s->in->host_tier && s->in->training;
    case POLICY_ZERO_INFINITY:
        away(s, r, TIER_DISK);
        r->n_buffer = g->at_once + 2;
        candidate_blocks(s, r, 0, s->layers, SAVE_INPUT, s->in->host_tier ? TIER_HOST : TIER_DEVICE);
        return space_has(s, TIER_DISK);
    case POLICY_FSDP: /* several ranks: shards, gathered for each use; one rank: all weights are fetched from the nearest tier with room */
        if (!space_is_shared(s))
            away(s, r, near);
        r->whole = 0;
        r->n_buffer = g->at_once + 1;
        return space_is_shared(s) || space_has(s, near);
    case POLICY_DOS2:
        away(s, r, TIER_HOST);
        r->stride = 2;
        r->n_buffer = g->packing.chunks_n;
        return s->in->host_tier && s->in->training;
    case POLICY_GREEDY_SNAKE:
        away(s, r, TIER_DISK);
        r->n_buffer = g->at_once + 1;
        r->visit = (int)(s->in->shape->batch / r->micro_batch);
        r->update = search_first_update(s->in);
        return space_has(s, TIER_DISK) && s->in->training;
    case POLICY_MEGATRAIN:
        away(s, r, TIER_HOST);
        r->n_buffer = 2 * g->at_once;
        return s->in->host_tier;
    default: return s->in->training;
    }
}

/* Is it near enough to its budgets to be worth building? */
static bool may_fit(const space *s, const candidate *r)
{
    estimate about;
    candidate_estimate(s, r, &about);
    for (int t = 0; t < TIERS; t++)
        if ((double)about.bytes[t] > 1.1 * (double)s->budget[t] + (1 << 20))
            return false;
    return true;
}

/* ---- ProTrain ---- */

/* The size of chunks that wastes least memory, as in the paper, where each chunk is as large as the largest. Only sizes that give at least
 * one chunk per layer: the whole model in one chunk wastes nothing and leaves nothing to choose. */
static int least_waste(const space *s)
{
    int best = 0;
    double least = -1;
    for (int i = 0; i < s->chunkings_n; i++) {
        const chunking *g = &s->chunkings[i];
        int n = g->packing.chunks_n;
        double waste = (double)g->largest[0][0] * n - g->sum[SUM_WEIGHT_BYTES][n];
        if (n >= s->layers && (least < 0 || waste < least)) {
            least = waste;
            best = i;
        }
    }
    return best;
}

/* Of the layers and levels that save most. */
static uint64_t most_saved(const space *s)
{
    uint64_t most = 0;
    for (int kind = 0; kind < s->layouts.kinds_n; kind++)
        for (int level = 0; level < SAVE_LEVELS; level++) {
            const uint64_t bytes = s->layouts.layout[kind][level].saved_bytes;
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* How many layers are computed while the saved tensors of one leave the device. */
static int swap_interval(const space *s, const candidate *r)
{
    const costs *c = s->in->costs;
    double units = (double)(r->micro_batch / s->in->shape->unit_seqs), bytes = (double)most_saved(s) * units;
    double compute = c->layer[0].forward_ns[SAVE_ALL] * units;
    double moved = s->in->host_tier ? cost_at(&c->from_device, bytes) : cost_at(&c->write, bytes);
    return compute > 0 && moved > compute ? (int)ceil(moved / compute) : 1;
}

/* Swapped layers come first, at an interval, so that the transfer of each is hidden behind the layers up to the next. Recomputed layers lie
 * between and after them; the others are saved. */
static void interleave(const space *s, candidate *r, int interval, int swapped, int recomputed)
{
    tier place = s->in->host_tier ? TIER_HOST : TIER_DISK;
    candidate_blocks(s, r, 0, s->layers, SAVE_ALL, TIER_DEVICE);
    for (int i = 0; i < s->layers && (swapped || recomputed); i++) {
        bool swap = swapped && i % interval == 0;
        if (swap || recomputed)
            candidate_blocks(s, r, i, i + 1, swap ? SAVE_ALL : SAVE_INPUT, swap ? place : TIER_DEVICE);
        swapped -= swap;
        recomputed -= !swap && recomputed;
    }
}

/* Grows by half each time, and ends with all of them. */
static int more_buffers(int buffers, int chunks)
{
    int more = buffers * 3 / 2 + 1;
    return buffers < chunks && more > chunks ? chunks : more;
}

/* With several ranks, each has whole persistent chunks, if there is room, and shards of the others. */
static void keep_whole(const space *s, candidate *r, estimate *about)
{
    candidate x = *r;
    estimate e;
    x.whole = x.persist;
    candidate_normalise(s, &x);
    candidate_estimate(s, &x, &e);
    if (e.bytes[TIER_DEVICE] > s->fill[TIER_DEVICE])
        return;
    *r = x;
    *about = e;
}

/* The paper's search over its four numbers with closed forms of time and memory. For given blocks and buffers, memory grows with the number
 * of persistent chunks, so the first that does not fit ends the loop. */
static bool four_numbers(const space *s, candidate *r)
{
    const chunking *g = &s->chunkings[r->chunking];
    int chunks = g->packing.chunks_n, step = s->layers > 24 ? s->layers / 24 : 1, interval = swap_interval(s, r);
    tier near = s->in->host_tier ? TIER_HOST : TIER_DISK;
    candidate best;
    double least = -1;
    int most_swapped = space_has(s, near) ? (s->layers + interval - 1) / interval : 0;
    for (int swapped = 0; swapped <= most_swapped; swapped += most_swapped > 24 ? most_swapped / 24 : 1)
        for (int recomputed = 0; swapped + recomputed <= s->layers; recomputed += step) {
            candidate x = *r;
            estimate about;
            interleave(s, &x, interval, swapped, recomputed);
            for (int buffers = g->at_once; buffers <= chunks; buffers = more_buffers(buffers, chunks)) {
                x.n_buffer = buffers;
                x.whole = 0;
                if (!candidate_fill(s, &x, s->fill, &about)) /* time falls with every persistent chunk: take as many as fit */
                    break;
                keep_whole(s, &x, &about);
                if (least < 0 || about.ns < least) {
                    least = about.ns;
                    best = x;
                }
            }
        }
    if (least < 0)
        return false;
    *r = best;
    return true;
}

/* The numbers that need least memory: everything recomputed, nothing swapped, few buffers, as many persistent chunks as fit. */
static int price_least(space *s, candidate *r, priced *out, pt_error *e)
{
    estimate about;
    memcpy(s->fill, s->budget, sizeof s->fill);
    candidate_fill(s, r, s->fill, &about);
    return may_fit(s, r) ? candidate_price_filled(s, r, 0, 0, out, e) : 0;
}

/* Closed forms are approximate. If their plan does not fit, they choose again, with budgets corrected by their error. */
static int price_four_numbers(space *s, candidate *least, priced *out, pt_error *e)
{
    enum { TRIES = 6 };
    memcpy(s->fill, s->budget, sizeof s->fill);
    for (int i = 0; i < TRIES; i++) {
        candidate r = *least;
        if (!four_numbers(s, &r))
            break;
        candidate_normalise(s, &r);
        int fits = candidate_price(s, &r, 0, 0, out, e);
        if (fits)
            return fits;
        space_correct(s, &r, out->bytes);
    }
    return price_least(s, least, out, e);
}

/* ---- all ---- */

static int price_as_it_is(space *s, candidate *r, priced *out, pt_error *e)
{
    candidate_normalise(s, r);
    return may_fit(s, r) ? candidate_price(s, r, 0, 0, out, e) : 0;
}

int policy_price(space *s, policy p, priced *out, pt_error *e)
{
    for (int i = 0; i < s->splits_n; i++) {
        bool snake = p == POLICY_GREEDY_SNAKE; /* small micro-batches, all of them in one visit */
        const split *cut = &s->splits[snake ? s->splits_n - 1 - i : i];
        candidate r;
        candidate_init(s, &r, p == POLICY_PROTRAIN ? least_waste(s) : 0);
        r.micro_batch = cut->micro_batch;
        r.visit = 1;
        if (cut->visit != 1)
            continue;
        if (!policy_candidate(s, p, &r))
            return 0;
        int fits = p == POLICY_PROTRAIN ? price_four_numbers(s, &r, out, e) : price_as_it_is(s, &r, out, e);
        if (fits)
            return fits;
    }
    return 0;
}
