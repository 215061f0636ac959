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
static void away(const space *space, candidate *cand, tier placement)
{
    cand->persist = cand->whole = 0;
    cand->on_host = placement == TIER_HOST ? candidate_chunks(space, cand) : 0;
    cand->stride = space->in->host_tier ? UPDATE_STRIDE_NONE : 1;
}

/* false: this machine lacks what the policy needs. */
static bool policy_candidate(const space *space, policy p, candidate *cand)
{
    const chunking *g = &space->chunkings[cand->chunking];
    tier near = space->in->host_tier ? TIER_HOST : TIER_DISK;
    cand->update = space->in->clipping ? UPDATE_END : UPDATE_BACKWARD;
    candidate_blocks(space, cand, 0, space->layers, SAVE_INPUT, TIER_DEVICE);
    switch (p) {
    case POLICY_RESIDENT:
        candidate_blocks(space, cand, 0, space->layers, space->in->training ? SAVE_ALL : SAVE_INPUT, TIER_DEVICE);
        return true;
    case POLICY_RECOMPUTE: return space->in->training;
    case POLICY_ZERO_OFFLOAD: /* weights are on the device from their update to the next */
        away(space, cand, TIER_HOST);
        cand->n_buffer = g->packing.chunks_n;
        return space->in->host_tier && space->in->training;
    case POLICY_ZERO_INFINITY:
        away(space, cand, TIER_DISK);
        cand->n_buffer = g->at_once + 2;
        candidate_blocks(space, cand, 0, space->layers, SAVE_INPUT, space->in->host_tier ? TIER_HOST : TIER_DEVICE);
        return space_has(space, TIER_DISK);
    case POLICY_FSDP: /* several ranks: shards, gathered for each use; one rank: all weights are fetched from the nearest tier with room */
        if (!space_is_shared(space))
            away(space, cand, near);
        cand->whole = 0;
        cand->n_buffer = g->at_once + 1;
        return space_is_shared(space) || space_has(space, near);
    case POLICY_DOS2:
        away(space, cand, TIER_HOST);
        cand->stride = 2;
        cand->n_buffer = g->packing.chunks_n;
        return space->in->host_tier && space->in->training;
    case POLICY_GREEDY_SNAKE:
        away(space, cand, TIER_DISK);
        cand->n_buffer = g->at_once + 1;
        cand->visit = (int)(space->in->shape->batch / cand->micro_batch);
        cand->update = search_first_update(space->in);
        return space_has(space, TIER_DISK) && space->in->training;
    case POLICY_MEGATRAIN:
        away(space, cand, TIER_HOST);
        cand->n_buffer = 2 * g->at_once;
        return space->in->host_tier;
    default: return space->in->training;
    }
}

/* Is it near enough to its budgets to be worth building? */
static bool may_fit(const space *space, const candidate *cand)
{
    estimate about;
    candidate_estimate(space, cand, &about);
    for (int t = 0; t < TIERS; t++)
        if ((double)about.bytes[t] > 1.1 * (double)space->budget[t] + (1 << 20))
            return false;
    return true;
}

/* ---- ProTrain ---- */

/* The size of chunks that wastes least memory, as in the paper, where each chunk is as large as the largest. Only sizes that give at least
 * one chunk per layer: the whole model in one chunk wastes nothing and leaves nothing to choose. */
static int least_waste(const space *space)
{
    int best = 0;
    double least = -1;
    for (int i = 0; i < space->chunkings_n; i++) {
        const chunking *g = &space->chunkings[i];
        int n = g->packing.chunks_n;
        double waste = (double)g->largest[0][0] * n - g->sum[SUM_WEIGHT_BYTES][n];
        if (n >= space->layers && (least < 0 || waste < least)) {
            least = waste;
            best = i;
        }
    }
    return best;
}

/* Of the layers and levels that save most. */
static uint64_t most_saved(const space *space)
{
    uint64_t most = 0;
    for (int kind = 0; kind < space->layouts.kinds_n; kind++)
        for (int level = 0; level < SAVE_LEVELS; level++) {
            const uint64_t bytes = space->layouts.layout[kind][level].saved_bytes;
            most = bytes > most ? bytes : most;
        }
    return most;
}

/* How many layers are computed while the saved tensors of one leave the device. */
static int swap_interval(const space *space, const candidate *cand)
{
    const costs *costs = space->in->costs;
    double units = (double)(cand->micro_batch / space->in->shape->unit_seqs), bytes = (double)most_saved(space) * units;
    double compute = costs->layer[0].forward_ns[SAVE_ALL] * units;
    double moved = space->in->host_tier ? cost_at(&costs->from_device, bytes) : cost_at(&costs->write, bytes);
    return compute > 0 && moved > compute ? (int)ceil(moved / compute) : 1;
}

/* Swapped layers come first, at an interval, so that the transfer of each is hidden behind the layers up to the next. Recomputed layers lie
 * between and after them; the others are saved. */
static void interleave(const space *space, candidate *cand, int interval, int swapped, int recomputed)
{
    tier place = space->in->host_tier ? TIER_HOST : TIER_DISK;
    candidate_blocks(space, cand, 0, space->layers, SAVE_ALL, TIER_DEVICE);
    for (int i = 0; i < space->layers && (swapped || recomputed); i++) {
        bool swap = swapped && i % interval == 0;
        if (swap || recomputed)
            candidate_blocks(space, cand, i, i + 1, swap ? SAVE_ALL : SAVE_INPUT, swap ? place : TIER_DEVICE);
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
static void keep_whole(const space *space, candidate *cand, estimate *about)
{
    candidate x = *cand;
    estimate e;
    x.whole = x.persist;
    candidate_normalise(space, &x);
    candidate_estimate(space, &x, &e);
    if (e.bytes[TIER_DEVICE] > space->fill[TIER_DEVICE])
        return;
    *cand = x;
    *about = e;
}

/* The paper's search over its four numbers with closed forms of time and memory. For given blocks and buffers, memory grows with the number
 * of persistent chunks, so the first that does not fit ends the loop. */
static bool four_numbers(const space *space, candidate *cand)
{
    const chunking *g = &space->chunkings[cand->chunking];
    int chunks = g->packing.chunks_n, step = space->layers > 24 ? space->layers / 24 : 1, interval = swap_interval(space, cand);
    tier near = space->in->host_tier ? TIER_HOST : TIER_DISK;
    candidate best;
    double least = -1;
    int most_swapped = space_has(space, near) ? (space->layers + interval - 1) / interval : 0;
    for (int swapped = 0; swapped <= most_swapped; swapped += most_swapped > 24 ? most_swapped / 24 : 1)
        for (int recomputed = 0; swapped + recomputed <= space->layers; recomputed += step) {
            candidate x = *cand;
            estimate about;
            interleave(space, &x, interval, swapped, recomputed);
            for (int buffers = g->at_once; buffers <= chunks; buffers = more_buffers(buffers, chunks)) {
                x.n_buffer = buffers;
                x.whole = 0;
                if (!candidate_fill(space, &x, space->fill, &about)) /* time falls with every persistent chunk: take as many as fit */
                    break;
                keep_whole(space, &x, &about);
                if (least < 0 || about.ns < least) {
                    least = about.ns;
                    best = x;
                }
            }
        }
    if (least < 0)
        return false;
    *cand = best;
    return true;
}

/* The numbers that need least memory: everything recomputed, nothing swapped, few buffers, as many persistent chunks as fit. */
static int price_least(space *space, candidate *cand, priced *out, pt_error *e)
{
    estimate about;
    memcpy(space->fill, space->budget, sizeof space->fill);
    candidate_fill(space, cand, space->fill, &about);
    return may_fit(space, cand) ? candidate_price_filled(space, cand, 0, 0, out, e) : 0;
}

/* Closed forms are approximate. If their plan does not fit, they choose again, with budgets corrected by their error. */
static int price_four_numbers(space *space, candidate *least, priced *out, pt_error *e)
{
    enum { TRIES = 6 };
    memcpy(space->fill, space->budget, sizeof space->fill);
    for (int i = 0; i < TRIES; i++) {
        candidate cand = *least;
        if (!four_numbers(space, &cand))
            break;
        candidate_normalise(space, &cand);
        int fits = candidate_price(space, &cand, 0, 0, out, e);
        if (fits)
            return fits;
        space_correct(space, &cand, out->bytes);
    }
    return price_least(space, least, out, e);
}

/* ---- all ---- */

static int price_as_it_is(space *space, candidate *cand, priced *out, pt_error *e)
{
    candidate_normalise(space, cand);
    return may_fit(space, cand) ? candidate_price(space, cand, 0, 0, out, e) : 0;
}

int policy_price(space *space, policy p, priced *out, pt_error *e)
{
    for (int i = 0; i < space->splits_n; i++) {
        bool snake = p == POLICY_GREEDY_SNAKE; /* small micro-batches, all of them in one visit */
        const split *cut = &space->splits[snake ? space->splits_n - 1 - i : i];
        candidate cand;
        candidate_init(space, &cand, p == POLICY_PROTRAIN ? least_waste(space) : 0);
        cand.micro_batch = cut->micro_batch;
        cand.visit = 1;
        if (cut->visit != 1)
            continue;
        if (!policy_candidate(space, p, &cand))
            return 0;
        int fits = p == POLICY_PROTRAIN ? price_four_numbers(space, &cand, out, e) : price_as_it_is(space, &cand, out, e);
        if (fits)
            return fits;
    }
    return 0;
}
