/* estimate.c - estimates time and memory of a candidate from sums.
 *
 * Time. The work of each queue is added up separately for the forward and the backward half of the step: layers and updates for the
 * device and the host, and all transfers. A chunk that is not on the device is fetched once per pass over the layers, except those
 * that are still in their buffers when the direction turns. The time of a half is the longest of
 *   - the sums of the queues, each stretched by contention with the others
 *   - computation plus the transfers that nothing hides: without a spare slot, a fetch waits until the slot's last user is done, and
 *     the next user waits for the fetch
 *   - the updates that pass through n_update slots: each slot is in use from the first byte in to the last byte out
 * The work of the computation and of the host over both halves is a lower bound.
 *
 * Memory. The estimate adds the fixed part (placements, slots) and the largest need of a block during backward. The real layout needs
 * little more. Gradients that wait for their updates use the memory of saved tensors that backward has consumed. So a tier holds little
 * more than the larger of both, plus the chunk that backward is at.
 */
#include "search/space.h"

#include <math.h>
#include <string.h>

/* The work of each queue in one half of the step, and what cannot be hidden behind it. */
typedef struct load {
    double ns[QUEUES];
    double exposed;  /* transfers that computation waits for */
    double pipeline; /* time that updates need to pass through their slots */
} load;

/* Values that depend only on the micro-batch and the layers, not on where chunks live. */
typedef struct block_part {
    load forward, backward;
    uint64_t peak;                /* most memory on the device for saved tensors, accumulators, streams and workspace, in the layers */
    uint64_t peak_head;           /* the same at the head, before any gradients are finished */
    uint64_t saved[TIERS];        /* saved tensors in their placements */
    uint64_t rows, embed;         /* rows that are looked up of a micro-batch; what else the embedding has on the device */
    uint64_t swapped, swapped_disk; /* largest saved set that lives elsewhere; that lives on the disk */
    int swapped_n;                  /* number of saved sets elsewhere at one time */
} block_part;

static int least_int(int a, int b) { return a < b ? a : b; }

static double between(const chunking *g, chunk_sum k, int first, int end) { return g->sum[k][end] - g->sum[k][first]; }

/* Weights that are kept: all of whole chunks, and the shards of others. */
static double kept_between(const chunking *g, const candidate *cand, chunk_sum weight, chunk_sum shard, int first, int end)
{
    const int cut = cand->whole < first ? first : cand->whole > end ? end : cand->whole;
    return between(g, weight, first, cut) + between(g, shard, cut, end);
}

static int micros_of(const space *space, const candidate *cand) { return (int)(space->in->shape->batch / cand->micro_batch); }

/* Chunks first..end all live on `placement`; `loads`: how often their weights are fetched. The next chunks of a layer can be fetched during
 * it as far as there are spare slots. */
static void weights_in(const space *space, const candidate *cand, tier placement, int first, int end, double loads, load *l)
{
    const chunking *g = &space->chunkings[cand->chunking];
    double read = placement == TIER_DISK ? loads * kept_between(g, cand, SUM_WEIGHT_READ, SUM_SHARD_READ, first, end) : 0;
    bool staged = placement == TIER_HOST || space->in->host_tier;
    double in = staged ? loads * kept_between(g, cand, SUM_WEIGHT_IN, SUM_SHARD_IN, first, end) : 0;
    int spare = cand->n_buffer - g->per_layer;
    l->ns[QUEUE_READ] += read;
    l->ns[QUEUE_TO_DEVICE] += in;
    if (spare < g->per_layer)
        l->exposed += (in > 0 ? in : read) * (g->per_layer - (spare > 0 ? spare : 0)) / g->per_layer;
}

/* How often the shards first..end are gathered. */
static void gathered(const candidate *cand, const chunking *g, int first, int end, double loads, load *l)
{
    const double ns = loads * between(g, SUM_GATHER, first, end);
    const int spare = cand->n_buffer - g->per_layer;
    l->ns[QUEUE_RANKS] += ns;
    if (spare < g->per_layer)
        l->exposed += ns * (g->per_layer - (spare > 0 ? spare : 0)) / g->per_layer;
}

/* The transfers and work of the updates themselves; backward counts the transfer of gradients to their placement. */
static void updates(const space *space, const candidate *cand, const chunking *g, tier placement, int first, int end, load *forward,
                    load *backward)
{
    bool waits = cand->update != UPDATE_BACKWARD, staged = placement == TIER_HOST || space->in->host_tier, disk = placement == TIER_DISK;
    double device = cand->stride ? 1.0 / cand->stride : 0, host = 1 - device;
    load *u = waits ? forward : backward;
    double passing = device * between(g, SUM_UPDATE_DEVICE, first, end) + host * between(g, SUM_UPDATE_HOST, first, end) * disk;
    u->ns[QUEUE_COMPUTE] += device * between(g, SUM_UPDATE_DEVICE, first, end);
    u->ns[QUEUE_HOST] += host * between(g, SUM_UPDATE_HOST, first, end);
    if (staged) {
        double grads = between(g, SUM_GRADIENT_IN, first, end), states_in = between(g, SUM_STATE_IN, first, end);
        u->ns[QUEUE_TO_DEVICE] += device * (states_in + (waits ? grads : 0));
        u->ns[QUEUE_FROM_DEVICE] += device * (between(g, SUM_STATE_OUT, first, end) +
                                                kept_between(g, cand, SUM_WEIGHT_OUT, SUM_SHARD_OUT, first, end));
        backward->ns[QUEUE_FROM_DEVICE] += (waits ? 1 : host) * between(g, SUM_GRADIENT_OUT, first, end);
        passing += device * (states_in + (waits ? grads : 0) + between(g, SUM_STATE_OUT, first, end));
    }
    if (disk) {
        u->ns[QUEUE_READ] += between(g, SUM_STATE_READ, first, end) + (waits ? between(g, SUM_GRADIENT_READ, first, end) : 0);
        u->ns[QUEUE_WRITE] += between(g, SUM_STATE_WRITE, first, end) +
                              kept_between(g, cand, SUM_WEIGHT_WRITE, SUM_SHARD_WRITE, first, end);
        backward->ns[QUEUE_WRITE] += waits ? between(g, SUM_GRADIENT_WRITE, first, end) : 0;
        passing += between(g, SUM_STATE_READ, first, end) + (waits ? between(g, SUM_GRADIENT_READ, first, end) : 0) +
                   between(g, SUM_STATE_WRITE, first, end) + kept_between(g, cand, SUM_WEIGHT_WRITE, SUM_SHARD_WRITE, first, end);
    }
    u->pipeline += passing / (cand->n_update > 1 ? cand->n_update - 0.5 : 1); /* slots do not alternate evenly */
}

/* Of the last chunks, those that are looked up on the host and on the disk. */
static void chunks_looked_up(const space *space, const candidate *cand, int *on_host, int *on_disk)
{
    const chunking *g = &space->chunkings[cand->chunking];
    const int chunks = g->packing.chunks_n, first = chunks - g->looked_up, host_end = cand->persist + cand->on_host;
    *on_disk = least_int(chunks - host_end, g->looked_up);
    *on_host = chunks - *on_disk - (cand->persist > first ? cand->persist : first);
    *on_host = *on_host > 0 ? *on_host : 0;
}

static bool updates_rows_on_host(const space *space, const candidate *cand)
{
    return space->rows_gradient_bytes && cand->stride != 1 && cand->persist < space->chunkings[cand->chunking].packing.chunks_n;
}

static void look_ups(const space *space, const candidate *cand, load *forward)
{
    const costs *costs = space->in->costs;
    const double micros = micros_of(space, cand);
    const int64_t units = cand->micro_batch / space->in->shape->unit_seqs;
    int on_host, on_disk;
    chunks_looked_up(space, cand, &on_host, &on_disk);
    if (on_host)
        forward->ns[QUEUE_HOST] += micros * (rows_look_up_ns(costs, space->in->model, space->in->shape, units, false) + costs->task_ns);
    if (on_disk)
        forward->ns[QUEUE_READ] += micros * (rows_look_up_ns(costs, space->in->model, space->in->shape, units, true) + costs->task_ns);
    if (space->in->host_tier && (on_host || on_disk))
        forward->ns[QUEUE_TO_DEVICE] +=
            micros * (cost_at(&costs->to_device, (double)(space->rows_bytes * (uint64_t)units)) + costs->task_ns);
}

static double resident_updates(const candidate *cand, const chunking *g) { return between(g, SUM_UPDATE_DEVICE, 0, cand->persist); }

static void chunk_loads(const space *space, const candidate *cand, load *forward, load *backward)
{
    const chunking *g = &space->chunkings[cand->chunking];
    int chunks = g->packing.chunks_n, host_end = cand->persist + cand->on_host, away = candidate_passing(space, cand);
    int groups = micros_of(space, cand) / cand->visit;
    if (space->in->training) {
        load *u = cand->update == UPDATE_BACKWARD ? backward : forward;
        u->ns[QUEUE_COMPUTE] += resident_updates(cand, g);
        u->ns[QUEUE_RANKS] += between(g, SUM_GATHER, 0, cand->whole) + between(g, SUM_GATHER_ROWS, 0, chunks);
        backward->ns[QUEUE_COMPUTE] += between(g, SUM_FINISH, 0, chunks) + space->rows_finish_ns;
        if (updates_rows_on_host(space, cand))
            backward->ns[QUEUE_FROM_DEVICE] +=
                cost_at(&space->in->costs->from_device, (double)space->rows_gradient_bytes) + space->in->costs->task_ns;
        backward->ns[QUEUE_RANKS] += between(g, SUM_SCATTER, 0, chunks);
    }
    look_ups(space, cand, forward);
    if (candidate_resident(cand) == chunks)
        return;
    double stays = cand->n_buffer < away ? (double)cand->n_buffer / away : 1, in = 1, out = 0; /* share still in a buffer at the turn */
    if (space->in->training) {
        in = 1 + (groups - 1) * (1 - stays);
        out = groups * (1 - stays);
    } else {
        in = 1 + (groups - 1) * (1 - (cand->n_buffer < away ? (cand->n_buffer - 1.0) / away : 1));
    }
    gathered(cand, g, cand->whole, chunks, in, forward);
    gathered(cand, g, cand->whole > g->back0 ? cand->whole : least_int(g->back0, chunks), chunks, out, backward);
    for (tier placement = TIER_HOST; placement <= TIER_DISK; placement++) {
        int first = placement == TIER_HOST ? cand->persist : host_end, end = placement == TIER_HOST ? host_end : chunks;
        weights_in(space, cand, placement, first, end, in, forward);
        if (end > g->back0)
            weights_in(space, cand, placement, first > g->back0 ? first : g->back0, end, out, backward);
        if (space->in->training)
            updates(space, cand, g, placement, first, end, forward, backward);
    }
}

/* The share of swapped sets that leave their slots: the last ones of a visit are still there when backward needs them. */
static double leaving(const candidate *cand, double sets) { return cand->n_swap >= sets ? 0 : 1 - (cand->n_swap - 1) / sets; }

/* The end of the run of layers that equal layer `first`. */
static int run_end(const space *space, const candidate *cand, int first)
{
    const unsigned char *kind = space->in->costs->kind_of_layer;
    int end = first + 1;
    while (end < space->layers && end != space->passing && cand->level[end] == cand->level[first] &&
           cand->place[end] == cand->place[first] && kind[end] == kind[first] && space->layouts.kind[end] == space->layouts.kind[first])
        end++;
    return end;
}

/* Moves `bytes` of saved tensors to a tier and back, so many times; `again`: the share that forward fetches once more. */
static void saved_moves(const space *space, const candidate *cand, tier place, double bytes, double times, double again, load *forward,
                        load *backward)
{
    const costs *costs = space->in->costs;
    bool staged = place == TIER_HOST || space->in->host_tier;
    double from = staged ? times * (cost_at(&costs->from_device, bytes) + costs->task_ns) : 0;
    double to = staged ? times * (cost_at(&costs->to_device, bytes) + costs->task_ns) : 0;
    double write = place == TIER_DISK ? times * (cost_at(&costs->write, bytes) + costs->task_ns) : 0;
    double read = place == TIER_DISK ? times * (cost_at(&costs->read, bytes) + costs->task_ns) : 0;
    forward->ns[QUEUE_FROM_DEVICE] += from * (1 + again);
    forward->ns[QUEUE_WRITE] += write * (1 + again);
    forward->ns[QUEUE_TO_DEVICE] += to * again;
    forward->ns[QUEUE_READ] += read * again;
    backward->ns[QUEUE_TO_DEVICE] += to;
    backward->ns[QUEUE_READ] += read;
    if (cand->n_swap < 3) /* one for a layer's input and one for its output: none to spare */
        forward->exposed += staged ? from : write;
    if (cand->n_swap < 2)
        backward->exposed += staged ? to : read;
}

/* Exchanges of heads, which nothing overlaps. */
static void exchange_loads(const space *space, const candidate *cand, double micros, double units, load *forward, load *backward)
{
    for (int i = 0; i < space->layers && space->heads; i++) {
        const heads_bytes *b = &space->heads[space->layouts.kind[i]][cand->level[i]];
        for (int k = 0; k < b->n; k++) {
            load *l = b->backward[k] ? backward : forward;
            if (b->backward[k] && (i < space->passing || !space->in->training))
                continue;
            l->exposed += micros * (heads_exchange_ns(space->in->costs, space->in->shape, (double)b->bytes[k] * units) +
                                    space->in->costs->task_ns);
        }
    }
}

static void block_loads(const space *space, const candidate *cand, load *forward, load *backward)
{
    unsigned moved[LAYER_SET_KINDS][SAVE_LEVELS][TIERS], swapped = 0; /* layers */
    const costs *costs = space->in->costs;
    double units = (double)space->in->shape->units_n, micros = micros_of(space, cand), per_micro = units / micros, ahead = 0, back = 0;
    double warm_ahead = 0, warm_back = 0, following = units - micros / cand->visit; /* units that follow another unit of their visit */
    memset(moved, 0, (size_t)space->layouts.kinds_n * sizeof *moved);
    for (int i = 0, end; i < space->layers; i = end) {
        const layer_cost *l = &costs->layer[costs->kind_of_layer[i]];
        end = run_end(space, cand, i);
        unsigned n = (unsigned)(end - i);
        ahead += n * l->forward_ns[cand->level[i]];
        back += i < space->passing ? 0 : n * l->backward_ns[cand->level[i]];
        warm_ahead += n * fmin(l->warm_forward_ns, l->forward_ns[cand->level[i]]);
        warm_back += i < space->passing ? 0 : n * fmin(l->warm_backward_ns[cand->level[i]], l->backward_ns[cand->level[i]]);
        moved[space->layouts.kind[i]][cand->level[i]][cand->place[i]] += n;
        swapped += cand->place[i] != TIER_DEVICE ? n : 0;
    }
    /* The layer before makes a layer's inputs for the whole visit; inputs that have no slot are fetched once more. */
    double leave = leaving(cand, (double)swapped * cand->visit);
    double again = cand->visit > 1 && cand->n_swap - 2 < cand->visit ? 1 - (cand->n_swap - 2.0) / cand->visit : 0;
    for (int kind = 0; kind < space->layouts.kinds_n && space->in->training; kind++)
        for (int level = 0; level < SAVE_LEVELS; level++)
            for (tier place = TIER_HOST; place <= TIER_DISK; place++)
                if (moved[kind][level][place])
                    saved_moves(space, cand, place, (double)space->layouts.layout[kind][level].saved_bytes * per_micro,
                                micros * moved[kind][level][place] * leave, again, forward, backward);
    exchange_loads(space, cand, micros, per_micro, forward, backward);
    forward->ns[QUEUE_COMPUTE] +=
        units * (ahead + costs->embed_ns) - following * warm_ahead + micros * (space->layers + 1) * costs->task_ns;
    if (space->in->training)
        backward->ns[QUEUE_COMPUTE] += units * (back + costs->head_ns) - following * warm_back +
                                      micros * (space->layers - space->passing + 1) * costs->task_ns;
    else
        forward->ns[QUEUE_COMPUTE] += units * costs->head_eval_ns + micros * costs->task_ns;
}

static const cost_class usual_class[QUEUES] = {
    [QUEUE_COMPUTE] = COST_MATH, [QUEUE_TO_DEVICE] = COST_TO_DEVICE, [QUEUE_FROM_DEVICE] = COST_FROM_DEVICE,
    [QUEUE_HOST] = COST_HOST, [QUEUE_READ] = COST_READ, [QUEUE_WRITE] = COST_WRITE,
    [QUEUE_RANKS] = COST_FROM_DEVICE,
};

/* The time for which the processor quota suffices. The machine's own processors cannot use more than they are; the host's come in
 * addition. */
static double quota_ns(const cost_quota *q, const load *l)
{
    double own = 0, most = 0, host = 0;
    if (!(q->period_ns > 0))
        return 0;
    for (int i = 0; i < QUEUES; i++) {
        const double work = q->busy[usual_class[i]] * l->ns[i];
        const bool disk = i == QUEUE_READ || i == QUEUE_WRITE;
        host += disk ? work : 0;
        own += disk ? 0 : work;
        most = fmax(most, disk ? 0 : l->ns[i]);
    }
    return (fmin(own, q->processors * most) + host) / q->processors;
}

/* The longest queue, each stretched by those that run beside it. */
static double longest(const costs *costs, const chunking *g, const load *l)
{
    double most = 0;
    for (int q = 0; q < QUEUES; q++) {
        double ns = l->ns[q];
        for (int o = 0; o < QUEUES; o++)
            if (o != q && l->ns[o] > 0)
                ns += (g->slow[usual_class[q]][usual_class[o]] - 1) * (l->ns[o] < l->ns[q] ? l->ns[o] : l->ns[q]);
        most = ns > most ? ns : most;
    }
    double alone = l->ns[QUEUE_COMPUTE] + l->exposed;
    most = fmax(most, fmax(alone, quota_ns(&costs->quota, l)));
    return l->pipeline > most ? l->pipeline : most;
}

static void estimate_time(const space *space, const candidate *cand, const block_part *b, estimate *out)
{
    const chunking *g = &space->chunkings[cand->chunking];
    load forward = b->forward, backward = b->backward;
    chunk_loads(space, cand, &forward, &backward);
    double compute = forward.ns[QUEUE_COMPUTE] + backward.ns[QUEUE_COMPUTE], host = forward.ns[QUEUE_HOST] + backward.ns[QUEUE_HOST];
    out->least_ns = (compute > host ? compute : host) + space->in->costs->step_ns; /* transfers depend on a guess */
    if (space->in->training && cand->update == UPDATE_END) { /* the updates run alone, after backward */
        int chunks = g->packing.chunks_n, host_end = cand->persist + cand->on_host;
        load work = {0}, unused = {0};
        work.ns[QUEUE_COMPUTE] += resident_updates(cand, g);
        work.ns[QUEUE_RANKS] += between(g, SUM_GATHER, 0, cand->whole) + between(g, SUM_GATHER_ROWS, 0, chunks);
        updates(space, cand, g, TIER_HOST, cand->persist, host_end, &work, &unused);
        updates(space, cand, g, TIER_DISK, host_end, chunks, &work, &unused);
        for (int q = 0; q < QUEUES; q++)
            forward.ns[q] -= work.ns[q];
        forward.pipeline = 0;
        out->ns = longest(space->in->costs, g, &work);
    } else {
        out->ns = 0;
    }
    out->ns += longest(space->in->costs, g, &forward) + longest(space->in->costs, g, &backward) + space->in->costs->step_ns;
}

/* ---- memory ---- */

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t least_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static const layer_layout *layout_of(const space *space, const candidate *cand, int layer)
{
    return layer_set_layout(&space->layouts, layer, cand->level[layer]);
}

/* The workspace of a layer: of one unit; in parts of all units of a visit; of divided sequences those of a micro-batch. */
static uint64_t workspace_of(const space *space, const candidate *cand, int layer, bool backward, uint64_t group)
{
    const layer_layout *layout = layout_of(space, cand, layer);
    const uint64_t bytes = backward ? layout->backward_workspace : layout->forward_workspace;
    if (shape_parts(space->in->shape) > 1)
        return schedule_open_bytes(layout, backward) * (uint64_t)(cand->micro_batch / space->in->shape->unit_seqs);
    return space->chunkings[cand->chunking].ranges && layer_parts_are_possible(space->in->model, layer) ? bytes * group
                                                                                                                          : bytes;
}

/* What finishing the gradients of listed rows takes; of several ranks, two chunks' sums are on their way. */
static uint64_t rows_memory(const space *space, const candidate *cand)
{
    const uint64_t work = embedding_sums_bytes(space->in->model, space->in->shape);
    const uint64_t sent = 2 * space->chunkings[cand->chunking].listed_bytes;
    return space->rows_gradient_bytes + space->rows_sums_bytes + max_u64(work, sent);
}

static void block_memory(const space *space, const candidate *cand, block_part *b)
{
    const step_shape *shape = space->in->shape;
    uint64_t units = (uint64_t)(cand->micro_batch / shape->unit_seqs), group = units * (uint64_t)cand->visit, most = 0, saved = 0;
    b->rows = space->rows_bytes * units;
    b->embed = (space->input_bytes + space->residual_bytes + space->carries.bytes) * group;
    if (!space->in->training) {
        for (int i = 0; i < space->layers; i++) {
            saved = max_u64(saved, layout_of(space, cand, i)->saved_bytes);
            most = max_u64(most, workspace_of(space, cand, i, false, units));
        }
        b->peak = (2 * saved + space->residual_bytes + space->carries.bytes) * units + max_u64(most, space->head.bytes);
        return;
    }
    bool grouped = micros_of(space, cand) > cand->visit;
    uint64_t accumulated = grouped ? space->accumulator_all : head_adds_to_embedding(space->in->model) ? space->accumulator_head : 0;
    uint64_t layer = accumulated + (grouped ? 0 : space->accumulator_layer),
             head = grouped ? space->accumulator_all : space->accumulator_head;
    if (space_is_shared(space)) /* the sums of the block before are being sent, and as much arrives */
        layer += space->accumulator_layer * (grouped ? 1 : 2);
    for (int i = 0, end; i < space->layers; i = end) {
        const layer_layout *layout = layout_of(space, cand, i);
        end = run_end(space, cand, i);
        if (i < space->passing) {
            most = max_u64(most, 2 * space->input_bytes * group + workspace_of(space, cand, i, false, group));
            continue;
        }
        b->saved[cand->place[i]] += (uint64_t)(end - i) * layout->saved_bytes * group;
        if (cand->place[i] != TIER_DEVICE) {
            b->swapped = max_u64(b->swapped, layout->saved_bytes * units);
            b->swapped_n += (end - i) * cand->visit;
        }
        if (cand->place[i] == TIER_DISK)
            b->swapped_disk = max_u64(b->swapped_disk, layout->saved_bytes * units);
        most = max_u64(most, b->saved[TIER_DEVICE] + workspace_of(space, cand, i, true, group) + layer);
    }
    for (tier t = TIER_HOST; t <= TIER_DISK; t++)
        b->saved[t] = (uint64_t)((double)b->saved[t] * leaving(cand, b->swapped_n));
    saved = b->saved[TIER_DEVICE] + space->input_bytes * group;
    /* the embedding's gradients need all streams, layers those of their visit */
    const uint64_t back = space->first_trained == 0 ? (uint64_t)shape->units_n : space->first_trained <= space->layers ? group : 0;
    uint64_t streams = space->input_bytes * back + (space->residual_bytes + space->carries.bytes) * group +
                       space->carries.gradient_bytes * (inputs_are_trained(space->in->model) ? back : group) +
                       (grouped && space->passing ? 2 * space->input_bytes * group : 0);
    if (space->rows_gradient_bytes)
        b->embed = max_u64(b->embed, streams + rows_memory(space, cand));
    b->peak = most + streams;
    b->peak_head = saved + space->head.bytes + head + streams;
}

static void block_part_of(const space *space, const candidate *cand, block_part *b)
{
    memset(b, 0, sizeof *b);
    block_loads(space, cand, &b->forward, &b->backward);
    block_memory(space, cand, b);
}

/* Gradients of the chunks first..end that wait for their updates. */
static uint64_t waiting_bytes(const space *space, const candidate *cand, int first, int end)
{
    bool waits = space->in->training && cand->update != UPDATE_BACKWARD;
    return waits ? (uint64_t)between(&space->chunkings[cand->chunking], SUM_GRADIENT_BYTES, first, end) : 0;
}

/* The part of them that shares memory with `saved` bytes. */
static uint64_t shared_bytes(const space *space, const candidate *cand, int first, int end, uint64_t saved)
{
    const chunking *g = &space->chunkings[cand->chunking];
    uint64_t gradients = waiting_bytes(space, cand, first, end), at_once = (uint64_t)((double)g->trained[first][0] * g->gradients);
    return least_u64(gradients > at_once ? gradients - at_once : 0, saved);
}

/* Bytes of placements of the chunks first..end. */
static uint64_t placements(const space *space, const candidate *cand, int first, int end)
{
    const chunking *g = &space->chunkings[cand->chunking];
    double weights = kept_between(g, cand, SUM_WEIGHT_BYTES, SUM_SHARD_BYTES, first, end), states = between(g, SUM_STATE_BYTES, first, end);
    if (!space->in->training)
        return (uint64_t)weights;
    return (uint64_t)(weights + states) + waiting_bytes(space, cand, first, end);
}

/* Weight bytes of the n largest chunks; the largest are listed. */
static uint64_t largest_chunks(const uint64_t largest[SPACE_LARGEST], int n)
{
    uint64_t sum = 0;
    for (int k = 0; k < n && k < SPACE_LARGEST; k++)
        sum += largest[k];
    return sum + (n > SPACE_LARGEST ? (uint64_t)(n - SPACE_LARGEST) * largest[SPACE_LARGEST - 1] : 0);
}

static void estimate_memory(const space *space, const candidate *cand, const block_part *b, estimate *out)
{
    const chunking *g = &space->chunkings[cand->chunking];
    int chunks = g->packing.chunks_n, host_end = cand->persist + cand->on_host, away = chunks - cand->persist,
        resident = candidate_resident(cand);
    bool training = space->in->training;
    int rows_on_host, rows_on_disk;
    chunks_looked_up(space, cand, &rows_on_host, &rows_on_disk);
    const uint64_t rows = rows_on_host || rows_on_disk ? b->rows : 0;
    uint64_t all = (uint64_t)between(g, SUM_WEIGHT_BYTES, resident, chunks);
    uint64_t trained = (uint64_t)between(g, SUM_GRADIENT_BYTES, cand->persist, chunks);
    uint64_t slots = least_u64(largest_chunks(g->largest[resident], cand->n_buffer), all);
    uint64_t slot_gradients = (uint64_t)((double)largest_chunks(g->trained[cand->persist], cand->n_update) * g->gradients);
    uint64_t gradients = training ? least_u64(slot_gradients, trained) : 0;
    int updates_n = training && cand->stride ? least_int(cand->n_update, away / cand->stride) : 0;
    uint64_t updates = (uint64_t)((double)largest_chunks(g->trained[cand->persist], updates_n) * g->states);
    if (cand->whole < chunks && away)
        slots += (uint64_t)((double)largest_chunks(g->largest[cand->persist > cand->whole ? cand->persist : cand->whole], cand->n_update) *
                            g->gradients);
    uint64_t swapped = (uint64_t)least_int(cand->n_swap, b->swapped_n) * b->swapped;
    const bool backward = cand->update == UPDATE_BACKWARD;
    const bool rows_by_host = updates_rows_on_host(space, cand),
               rows_wait = !backward && (cand->stride || cand->persist > chunks - g->looked_up);
    uint64_t placement = space->placement_bytes + placements(space, cand, 0, cand->persist) + (rows_wait ? space->rows_gradient_bytes : 0);
    const uint64_t work = training ? g->update_bytes : 0;
    uint64_t finishing = gradients + (backward ? updates + work : 0);
    uint64_t back = slots + swapped + max_u64(max_u64(b->peak + finishing, b->peak_head), b->embed + rows);
    uint64_t ahead = slots + (backward ? 0 : gradients + work) + swapped + updates + b->saved[TIER_DEVICE];
    uint64_t window = g->window[host_end];
    uint64_t moment = max_u64(back, ahead) - shared_bytes(space, cand, 0, cand->persist, b->saved[TIER_DEVICE]);
    uint64_t scratch = window + (8 << 20), waiting = waiting_bytes(space, cand, 0, cand->persist);
    out->bytes[TIER_DEVICE] = placement + max_u64(moment, scratch > waiting ? scratch - waiting : 0);
    out->bytes[TIER_HOST] = out->bytes[TIER_DISK] = 0;
    if (space->in->host_tier) {
        double staged = (double)largest_chunks(g->largest[host_end], cand->n_update);
        staged += training ? (double)largest_chunks(g->trained[host_end], cand->n_update) * (g->gradients + g->states) : 0;
        out->bytes[TIER_HOST] = rows + (rows_by_host ? space->rows_gradient_bytes : 0) + (cand->stride != 1 && away ? work : 0) +
                                placements(space, cand, cand->persist, host_end) + b->saved[TIER_HOST] + (uint64_t)staged +
                                (uint64_t)least_int(cand->n_swap, b->swapped_n) * b->swapped_disk -
                                shared_bytes(space, cand, cand->persist, host_end, b->saved[TIER_HOST]);
    }
    out->bytes[TIER_DISK] = placements(space, cand, host_end, chunks) + b->saved[TIER_DISK] -
                            shared_bytes(space, cand, host_end, chunks, b->saved[TIER_DISK]);
}

void candidate_estimate(const space *space, const candidate *cand, estimate *out)
{
    block_part b;
    block_part_of(space, cand, &b);
    estimate_time(space, cand, &b, out);
    estimate_memory(space, cand, &b, out);
}

/* ---- filling ---- */

static bool fits(const uint64_t budget[TIERS], const estimate *e, tier t) { return e->bytes[t] <= budget[t]; }

typedef struct filling {
    const space *s;
    candidate *r;
    const block_part *b;
    const uint64_t *budget;
    estimate *e;
} filling;

typedef bool (*fits_fn)(const filling *f, int n);

/* The largest n from low to below high for which fits(n), at least low. Starts from a near guess, with steps that double. */
static int most_that_fit(const filling *f, fits_fn fits_n, int low, int high, int guess)
{
    int n = guess <= low ? low + 1 : guess >= high ? high - 1 : guess;
    for (int step = 1; high - low > 1; step *= 2) {
        bool fit = fits_n(f, n);
        *(fit ? &low : &high) = n;
        n += fit ? step : -step;
        if (n <= low || n >= high)
            break;
    }
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        *(fits_n(f, middle) ? &low : &high) = middle;
    }
    return low;
}

static bool host_fits(const filling *f, int on_host)
{
    f->r->on_host = on_host;
    estimate_memory(f->s, f->r, f->b, f->e);
    return fits(f->budget, f->e, TIER_HOST);
}

/* The largest number of chunks after the persistent ones that fit the host. All may fit although all but one do not: then nothing passes
 * through the host on its way to the disk. */
static void fill_host(const filling *f)
{
    int guess = f->r->on_host, all = f->s->in->host_tier ? candidate_chunks(f->s, f->r) - f->r->persist : 0;
    if (!host_fits(f, all) && all)
        host_fits(f, most_that_fit(f, host_fits, 0, all, guess));
}

static bool device_fits(const filling *f, int persist)
{
    f->r->persist = persist;
    fill_host(f);
    return fits(f->budget, f->e, TIER_DEVICE);
}

bool candidate_fill(const space *space, candidate *cand, const uint64_t budget[TIERS], estimate *e)
{
    block_part b;
    const filling f = {space, cand, &b, budget, e};
    int guess = cand->persist, on_host = cand->on_host, all = candidate_chunks(space, cand);
    block_part_of(space, cand, &b);
    if (!device_fits(&f, all)) {
        cand->on_host = on_host;
        device_fits(&f, most_that_fit(&f, device_fits, 0, all, guess));
    }
    candidate_normalise(space, cand);
    estimate_time(space, cand, &b, e);
    estimate_memory(space, cand, &b, e);
    return fits(budget, e, TIER_DEVICE) && fits(budget, e, TIER_HOST) && fits(budget, e, TIER_DISK);
}
