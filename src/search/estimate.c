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
static double kept_between(const chunking *g, const candidate *r, chunk_sum weight, chunk_sum shard, int first, int end)
{
    const int cut = r->whole < first ? first : r->whole > end ? end : r->whole;
    return between(g, weight, first, cut) + between(g, shard, cut, end);
}

static int micros_of(const space *s, const candidate *r) { return (int)(s->in->shape->batch / r->micro_batch); }

/* Chunks first..end all live on `placement`; `loads`: how often their weights are fetched. The next chunks of a layer can be fetched during
 * it as far as there are spare slots. */
static void weights_in(const space *s, const candidate *r, tier placement, int first, int end, double loads, load *l)
{
    const chunking *g = &s->chunkings[r->chunking];
    double read = placement == TIER_DISK ? loads * kept_between(g, r, SUM_WEIGHT_READ, SUM_SHARD_READ, first, end) : 0;
    bool staged = placement == TIER_HOST || s->in->host_tier;
    double in = staged ? loads * kept_between(g, r, SUM_WEIGHT_IN, SUM_SHARD_IN, first, end) : 0;
    int spare = r->n_buffer - g->per_layer;
    l->ns[QUEUE_READ] += read;
    l->ns[QUEUE_TO_DEVICE] += in;
    if (spare < g->per_layer)
        l->exposed += (in > 0 ? in : read) * (g->per_layer - (spare > 0 ? spare : 0)) / g->per_layer;
}

/* How often the shards first..end are gathered. */
static void gathered(const candidate *r, const chunking *g, int first, int end, double loads, load *l)
{
    const double ns = loads * between(g, SUM_GATHER, first, end);
    const int spare = r->n_buffer - g->per_layer;
    l->ns[QUEUE_RANKS] += ns;
    if (spare < g->per_layer)
        l->exposed += ns * (g->per_layer - (spare > 0 ? spare : 0)) / g->per_layer;
}

/* The transfers and work of the updates themselves; backward counts the transfer of gradients to their placement. */
static void updates(const space *s, const candidate *r, const chunking *g, tier placement, int first, int end, load *forward,
                    load *backward)
{
    bool waits = r->update != UPDATE_BACKWARD, staged = placement == TIER_HOST || s->in->host_tier, disk = placement == TIER_DISK;
    double device = r->stride ? 1.0 / r->stride : 0, host = 1 - device;
    load *u = waits ? forward : backward;
    double passing = device * between(g, SUM_UPDATE_DEVICE, first, end) + host * between(g, SUM_UPDATE_HOST, first, end) * disk;
    u->ns[QUEUE_COMPUTE] += device * between(g, SUM_UPDATE_DEVICE, first, end);
    u->ns[QUEUE_HOST] += host * between(g, SUM_UPDATE_HOST, first, end);
    if (staged) {
        double grads = between(g, SUM_GRADIENT_IN, first, end), states_in = between(g, SUM_STATE_IN, first, end);
        u->ns[QUEUE_TO_DEVICE] += device * (states_in + (waits ? grads : 0));
        u->ns[QUEUE_FROM_DEVICE] += device * (between(g, SUM_STATE_OUT, first, end) +
                                                kept_between(g, r, SUM_WEIGHT_OUT, SUM_SHARD_OUT, first, end));
        backward->ns[QUEUE_FROM_DEVICE] += (waits ? 1 : host) * between(g, SUM_GRADIENT_OUT, first, end);
        passing += device * (states_in + (waits ? grads : 0) + between(g, SUM_STATE_OUT, first, end));
    }
    if (disk) {
        u->ns[QUEUE_READ] += between(g, SUM_STATE_READ, first, end) + (waits ? between(g, SUM_GRADIENT_READ, first, end) : 0);
        u->ns[QUEUE_WRITE] += between(g, SUM_STATE_WRITE, first, end) +
                              kept_between(g, r, SUM_WEIGHT_WRITE, SUM_SHARD_WRITE, first, end);
        backward->ns[QUEUE_WRITE] += waits ? between(g, SUM_GRADIENT_WRITE, first, end) : 0;
        passing += between(g, SUM_STATE_READ, first, end) + (waits ? between(g, SUM_GRADIENT_READ, first, end) : 0) +
                   between(g, SUM_STATE_WRITE, first, end) + kept_between(g, r, SUM_WEIGHT_WRITE, SUM_SHARD_WRITE, first, end);
    }
    u->pipeline += passing / (r->n_update > 1 ? r->n_update - 0.5 : 1); /* slots do not alternate evenly */
}

/* Of the last chunks, those that are looked up on the host and on the disk. */
static void chunks_looked_up(const space *s, const candidate *r, int *on_host, int *on_disk)
{
    const chunking *g = &s->chunkings[r->chunking];
    const int chunks = g->packing.chunks_n, first = chunks - g->looked_up, host_end = r->persist + r->on_host;
    *on_disk = least_int(chunks - host_end, g->looked_up);
    *on_host = chunks - *on_disk - (r->persist > first ? r->persist : first);
    *on_host = *on_host > 0 ? *on_host : 0;
}

static bool updates_rows_on_host(const space *s, const candidate *r)
{
    return s->rows_gradient_bytes && r->stride != 1 && r->persist < s->chunkings[r->chunking].packing.chunks_n;
}

static void look_ups(const space *s, const candidate *r, load *forward)
{
    const costs *c = s->in->costs;
    const double micros = micros_of(s, r);
    const int64_t units = r->micro_batch / s->in->shape->unit_seqs;
    int on_host, on_disk;
    chunks_looked_up(s, r, &on_host, &on_disk);
    if (on_host)
        forward->ns[QUEUE_HOST] += micros * (rows_look_up_ns(c, s->in->model, s->in->shape, units, false) + c->task_ns);
    if (on_disk)
        forward->ns[QUEUE_READ] += micros * (rows_look_up_ns(c, s->in->model, s->in->shape, units, true) + c->task_ns);
    if (s->in->host_tier && (on_host || on_disk))
        forward->ns[QUEUE_TO_DEVICE] += micros * (cost_at(&c->to_device, (double)(s->rows_bytes * (uint64_t)units)) + c->task_ns);
}

static double resident_updates(const candidate *r, const chunking *g) { return between(g, SUM_UPDATE_DEVICE, 0, r->persist); }

static void chunk_loads(const space *s, const candidate *r, load *forward, load *backward)
{
    const chunking *g = &s->chunkings[r->chunking];
    int chunks = g->packing.chunks_n, host_end = r->persist + r->on_host, away = candidate_passing(s, r);
    int groups = micros_of(s, r) / r->visit;
    if (s->in->training) {
        load *u = r->update == UPDATE_BACKWARD ? backward : forward;
        u->ns[QUEUE_COMPUTE] += resident_updates(r, g);
        u->ns[QUEUE_RANKS] += between(g, SUM_GATHER, 0, r->whole);
        backward->ns[QUEUE_COMPUTE] += between(g, SUM_FINISH, 0, chunks) + s->rows_finish_ns;
        if (updates_rows_on_host(s, r))
            backward->ns[QUEUE_FROM_DEVICE] += cost_at(&s->in->costs->from_device, (double)s->rows_gradient_bytes) + s->in->costs->task_ns;
        backward->ns[QUEUE_RANKS] += between(g, SUM_SCATTER, 0, chunks);
    }
    look_ups(s, r, forward);
    if (candidate_resident(r) == chunks)
        return;
    double stays = r->n_buffer < away ? (double)r->n_buffer / away : 1, in = 1, out = 0; /* share still in a buffer at the turn */
    if (s->in->training) {
        in = 1 + (groups - 1) * (1 - stays);
        out = groups * (1 - stays);
    } else {
        in = 1 + (groups - 1) * (1 - (r->n_buffer < away ? (r->n_buffer - 1.0) / away : 1));
    }
    gathered(r, g, r->whole, chunks, in, forward);
    gathered(r, g, r->whole > g->back0 ? r->whole : least_int(g->back0, chunks), chunks, out, backward);
    for (tier placement = TIER_HOST; placement <= TIER_DISK; placement++) {
        int first = placement == TIER_HOST ? r->persist : host_end, end = placement == TIER_HOST ? host_end : chunks;
        weights_in(s, r, placement, first, end, in, forward);
        if (end > g->back0)
            weights_in(s, r, placement, first > g->back0 ? first : g->back0, end, out, backward);
        if (s->in->training)
            updates(s, r, g, placement, first, end, forward, backward);
    }
}

/* The share of swapped sets that leave their slots: the last ones of a visit are still there when backward needs them. */
static double leaving(const candidate *r, double sets) { return r->n_swap >= sets ? 0 : 1 - (r->n_swap - 1) / sets; }

/* The end of the run of layers that equal layer `first`. */
static int run_end(const space *s, const candidate *r, int first)
{
    const unsigned char *kind = s->in->costs->kind_of_layer;
    int end = first + 1;
    while (end < s->layers && end != s->passing && r->level[end] == r->level[first] && r->place[end] == r->place[first] &&
           kind[end] == kind[first] && s->layouts.kind[end] == s->layouts.kind[first])
        end++;
    return end;
}

/* Moves `bytes` of saved tensors to a tier and back, so many times; `again`: the share that forward fetches once more. */
static void saved_moves(const space *s, const candidate *r, tier place, double bytes, double times, double again, load *forward,
                        load *backward)
{
    const costs *c = s->in->costs;
    bool staged = place == TIER_HOST || s->in->host_tier;
    double from = staged ? times * (cost_at(&c->from_device, bytes) + c->task_ns) : 0;
    double to = staged ? times * (cost_at(&c->to_device, bytes) + c->task_ns) : 0;
    double write = place == TIER_DISK ? times * (cost_at(&c->write, bytes) + c->task_ns) : 0;
    double read = place == TIER_DISK ? times * (cost_at(&c->read, bytes) + c->task_ns) : 0;
    forward->ns[QUEUE_FROM_DEVICE] += from * (1 + again);
    forward->ns[QUEUE_WRITE] += write * (1 + again);
    forward->ns[QUEUE_TO_DEVICE] += to * again;
    forward->ns[QUEUE_READ] += read * again;
    backward->ns[QUEUE_TO_DEVICE] += to;
    backward->ns[QUEUE_READ] += read;
    if (r->n_swap < 3) /* one for a layer's input and one for its output: none to spare */
        forward->exposed += staged ? from : write;
    if (r->n_swap < 2)
        backward->exposed += staged ? to : read;
}

static void block_loads(const space *s, const candidate *r, load *forward, load *backward)
{
    unsigned moved[LAYER_SET_KINDS][SAVE_LEVELS][TIERS], swapped = 0; /* layers */
    const costs *c = s->in->costs;
    double units = (double)s->in->shape->units_n, micros = micros_of(s, r), per_micro = units / micros, ahead = 0, back = 0;
    double warm_ahead = 0, warm_back = 0, following = units - micros / r->visit; /* units that follow another unit of their visit */
    memset(moved, 0, (size_t)s->layouts.kinds_n * sizeof *moved);
    for (int i = 0, end; i < s->layers; i = end) {
        const layer_cost *l = &c->layer[c->kind_of_layer[i]];
        end = run_end(s, r, i);
        unsigned n = (unsigned)(end - i);
        ahead += n * l->forward_ns[r->level[i]];
        back += i < s->passing ? 0 : n * l->backward_ns[r->level[i]];
        warm_ahead += n * fmin(l->warm_forward_ns, l->forward_ns[r->level[i]]);
        warm_back += i < s->passing ? 0 : n * fmin(l->warm_backward_ns[r->level[i]], l->backward_ns[r->level[i]]);
        moved[s->layouts.kind[i]][r->level[i]][r->place[i]] += n;
        swapped += r->place[i] != TIER_DEVICE ? n : 0;
    }
    /* The layer before makes a layer's inputs for the whole visit; inputs that have no slot are fetched once more. */
    double leave = leaving(r, (double)swapped * r->visit);
    double again = r->visit > 1 && r->n_swap - 2 < r->visit ? 1 - (r->n_swap - 2.0) / r->visit : 0;
    for (int kind = 0; kind < s->layouts.kinds_n && s->in->training; kind++)
        for (int level = 0; level < SAVE_LEVELS; level++)
            for (tier place = TIER_HOST; place <= TIER_DISK; place++)
                if (moved[kind][level][place])
                    saved_moves(s, r, place, (double)s->layouts.layout[kind][level].saved_bytes * per_micro,
                                micros * moved[kind][level][place] * leave, again, forward, backward);
    forward->ns[QUEUE_COMPUTE] += units * (ahead + c->embed_ns) - following * warm_ahead + micros * (s->layers + 1) * c->task_ns;
    if (s->in->training)
        backward->ns[QUEUE_COMPUTE] += units * (back + c->head_ns) - following * warm_back +
                                      micros * (s->layers - s->passing + 1) * c->task_ns;
    else
        forward->ns[QUEUE_COMPUTE] += units * c->head_eval_ns + micros * c->task_ns;
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
static double longest(const costs *c, const chunking *g, const load *l)
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
    most = fmax(most, fmax(alone, quota_ns(&c->quota, l)));
    return l->pipeline > most ? l->pipeline : most;
}

static void estimate_time(const space *s, const candidate *r, const block_part *b, estimate *out)
{
    const chunking *g = &s->chunkings[r->chunking];
    load forward = b->forward, backward = b->backward;
    chunk_loads(s, r, &forward, &backward);
    double compute = forward.ns[QUEUE_COMPUTE] + backward.ns[QUEUE_COMPUTE], host = forward.ns[QUEUE_HOST] + backward.ns[QUEUE_HOST];
    out->least_ns = (compute > host ? compute : host) + s->in->costs->step_ns; /* transfers depend on a guess */
    if (s->in->training && r->update == UPDATE_END) { /* the updates run alone, after backward */
        int chunks = g->packing.chunks_n, host_end = r->persist + r->on_host;
        load work = {0}, unused = {0};
        work.ns[QUEUE_COMPUTE] += resident_updates(r, g);
        work.ns[QUEUE_RANKS] += between(g, SUM_GATHER, 0, r->whole);
        updates(s, r, g, TIER_HOST, r->persist, host_end, &work, &unused);
        updates(s, r, g, TIER_DISK, host_end, chunks, &work, &unused);
        for (int q = 0; q < QUEUES; q++)
            forward.ns[q] -= work.ns[q];
        forward.pipeline = 0;
        out->ns = longest(s->in->costs, g, &work);
    } else {
        out->ns = 0;
    }
    out->ns += longest(s->in->costs, g, &forward) + longest(s->in->costs, g, &backward) + s->in->costs->step_ns;
}

/* ---- memory ---- */

static uint64_t max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t least_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

static const layer_layout *layout_of(const space *s, const candidate *r, int layer)
{
    return layer_set_layout(&s->layouts, layer, r->level[layer]);
}

/* The workspace of a layer: of one unit, or in parts of all units of a visit. */
static uint64_t workspace_of(const space *s, const candidate *r, int layer, bool backward, uint64_t group)
{
    const layer_layout *l = layout_of(s, r, layer);
    const uint64_t bytes = backward ? l->backward_workspace : l->forward_workspace;
    return s->chunkings[r->chunking].ranges && layer_parts_are_possible(s->in->model, layer, s->in->shape) ? bytes * group : bytes;
}

static void block_memory(const space *s, const candidate *r, block_part *b)
{
    const step_shape *shape = s->in->shape;
    uint64_t units = (uint64_t)(r->micro_batch / shape->unit_seqs), group = units * (uint64_t)r->visit, most = 0, saved = 0;
    b->rows = s->rows_bytes * units;
    b->embed = (s->input_bytes + s->residual_bytes + s->carries.bytes) * group;
    if (!s->in->training) {
        for (int i = 0; i < s->layers; i++) {
            saved = max_u64(saved, layout_of(s, r, i)->saved_bytes);
            most = max_u64(most, workspace_of(s, r, i, false, units));
        }
        b->peak = (2 * saved + s->residual_bytes + s->carries.bytes) * units + max_u64(most, s->head.bytes);
        return;
    }
    bool grouped = micros_of(s, r) > r->visit;
    uint64_t accumulated = grouped ? s->accumulator_all : head_adds_to_embedding(s->in->model) ? s->accumulator_head : 0;
    uint64_t layer = accumulated + (grouped ? 0 : s->accumulator_layer), head = grouped ? s->accumulator_all : s->accumulator_head;
    if (space_is_shared(s)) /* the sums of the block before are being sent, and as much arrives */
        layer += s->accumulator_layer * (grouped ? 1 : 2);
    for (int i = 0, end; i < s->layers; i = end) {
        const layer_layout *l = layout_of(s, r, i);
        end = run_end(s, r, i);
        if (i < s->passing) {
            most = max_u64(most, 2 * s->input_bytes * group + workspace_of(s, r, i, false, group));
            continue;
        }
        b->saved[r->place[i]] += (uint64_t)(end - i) * l->saved_bytes * group;
        if (r->place[i] != TIER_DEVICE) {
            b->swapped = max_u64(b->swapped, l->saved_bytes * units);
            b->swapped_n += (end - i) * r->visit;
        }
        if (r->place[i] == TIER_DISK)
            b->swapped_disk = max_u64(b->swapped_disk, l->saved_bytes * units);
        most = max_u64(most, b->saved[TIER_DEVICE] + workspace_of(s, r, i, true, group) + layer);
    }
    for (tier t = TIER_HOST; t <= TIER_DISK; t++)
        b->saved[t] = (uint64_t)((double)b->saved[t] * leaving(r, b->swapped_n));
    saved = b->saved[TIER_DEVICE] + s->input_bytes * group;
    /* the embedding's gradients need all streams, layers those of their visit */
    const uint64_t back = s->first_trained == 0 ? (uint64_t)shape->units_n : s->first_trained <= s->layers ? group : 0;
    uint64_t streams = s->input_bytes * back + (s->residual_bytes + s->carries.bytes) * group +
                       s->carries.gradient_bytes * (inputs_are_trained(s->in->model) ? back : group) +
                       (grouped && s->passing ? 2 * s->input_bytes * group : 0);
    if (s->rows_gradient_bytes)
        b->embed = max_u64(b->embed, streams + s->rows_gradient_bytes + embedding_sums_bytes(s->in->model, shape));
    b->peak = most + streams;
    b->peak_head = saved + s->head.bytes + head + streams;
}

static void block_part_of(const space *s, const candidate *r, block_part *b)
{
    memset(b, 0, sizeof *b);
    block_loads(s, r, &b->forward, &b->backward);
    block_memory(s, r, b);
}

/* Gradients of the chunks first..end that wait for their updates. */
static uint64_t waiting_bytes(const space *s, const candidate *r, int first, int end)
{
    bool waits = s->in->training && r->update != UPDATE_BACKWARD;
    return waits ? (uint64_t)between(&s->chunkings[r->chunking], SUM_GRADIENT_BYTES, first, end) : 0;
}

/* The part of them that shares memory with `saved` bytes. */
static uint64_t shared_bytes(const space *s, const candidate *r, int first, int end, uint64_t saved)
{
    const chunking *g = &s->chunkings[r->chunking];
    uint64_t gradients = waiting_bytes(s, r, first, end), at_once = (uint64_t)((double)g->trained[first][0] * g->gradients);
    return least_u64(gradients > at_once ? gradients - at_once : 0, saved);
}

/* Bytes of placements of the chunks first..end. */
static uint64_t placements(const space *s, const candidate *r, int first, int end)
{
    const chunking *g = &s->chunkings[r->chunking];
    double weights = kept_between(g, r, SUM_WEIGHT_BYTES, SUM_SHARD_BYTES, first, end), states = between(g, SUM_STATE_BYTES, first, end);
    if (!s->in->training)
        return (uint64_t)weights;
    return (uint64_t)(weights + states) + waiting_bytes(s, r, first, end);
}

/* Weight bytes of the n largest chunks; the largest are listed. */
static uint64_t largest_chunks(const uint64_t largest[SPACE_LARGEST], int n)
{
    uint64_t sum = 0;
    for (int k = 0; k < n && k < SPACE_LARGEST; k++)
        sum += largest[k];
    return sum + (n > SPACE_LARGEST ? (uint64_t)(n - SPACE_LARGEST) * largest[SPACE_LARGEST - 1] : 0);
}

static void estimate_memory(const space *s, const candidate *r, const block_part *b, estimate *out)
{
    const chunking *g = &s->chunkings[r->chunking];
    int chunks = g->packing.chunks_n, host_end = r->persist + r->on_host, away = chunks - r->persist, resident = candidate_resident(r);
    bool training = s->in->training;
    int rows_on_host, rows_on_disk;
    chunks_looked_up(s, r, &rows_on_host, &rows_on_disk);
    const uint64_t rows = rows_on_host || rows_on_disk ? b->rows : 0;
    uint64_t all = (uint64_t)between(g, SUM_WEIGHT_BYTES, resident, chunks);
    uint64_t trained = (uint64_t)between(g, SUM_GRADIENT_BYTES, r->persist, chunks);
    uint64_t slots = least_u64(largest_chunks(g->largest[resident], r->n_buffer), all);
    uint64_t slot_gradients = (uint64_t)((double)largest_chunks(g->trained[r->persist], r->n_update) * g->gradients);
    uint64_t gradients = training ? least_u64(slot_gradients, trained) : 0;
    int updates_n = training && r->stride ? least_int(r->n_update, away / r->stride) : 0;
    uint64_t updates = (uint64_t)((double)largest_chunks(g->trained[r->persist], updates_n) * g->states);
    if (r->whole < chunks && away)
        slots += (uint64_t)((double)largest_chunks(g->largest[r->persist > r->whole ? r->persist : r->whole], r->n_update) * g->gradients);
    uint64_t swapped = (uint64_t)least_int(r->n_swap, b->swapped_n) * b->swapped;
    const bool backward = r->update == UPDATE_BACKWARD;
    const bool rows_by_host = updates_rows_on_host(s, r), rows_wait = !backward && (r->stride || r->persist > chunks - g->looked_up);
    uint64_t placement = s->placement_bytes + placements(s, r, 0, r->persist) + (rows_wait ? s->rows_gradient_bytes : 0);
    const uint64_t work = training ? g->update_bytes : 0;
    uint64_t finishing = gradients + (backward ? updates + work : 0);
    uint64_t back = slots + swapped + max_u64(max_u64(b->peak + finishing, b->peak_head), b->embed + rows);
    uint64_t ahead = slots + (backward ? 0 : gradients + work) + swapped + updates + b->saved[TIER_DEVICE];
    uint64_t window = g->window[host_end];
    uint64_t moment = max_u64(back, ahead) - shared_bytes(s, r, 0, r->persist, b->saved[TIER_DEVICE]);
    uint64_t scratch = window + (8 << 20), waiting = waiting_bytes(s, r, 0, r->persist);
    out->bytes[TIER_DEVICE] = placement + max_u64(moment, scratch > waiting ? scratch - waiting : 0);
    out->bytes[TIER_HOST] = out->bytes[TIER_DISK] = 0;
    if (s->in->host_tier) {
        double staged = (double)largest_chunks(g->largest[host_end], r->n_update);
        staged += training ? (double)largest_chunks(g->trained[host_end], r->n_update) * (g->gradients + g->states) : 0;
        out->bytes[TIER_HOST] = rows + (rows_by_host ? s->rows_gradient_bytes : 0) + (r->stride != 1 && away ? work : 0) +
                                placements(s, r, r->persist, host_end) + b->saved[TIER_HOST] + (uint64_t)staged +
                                (uint64_t)least_int(r->n_swap, b->swapped_n) * b->swapped_disk -
                                shared_bytes(s, r, r->persist, host_end, b->saved[TIER_HOST]);
    }
    out->bytes[TIER_DISK] = placements(s, r, host_end, chunks) + b->saved[TIER_DISK] -
                            shared_bytes(s, r, host_end, chunks, b->saved[TIER_DISK]);
}

void candidate_estimate(const space *s, const candidate *r, estimate *out)
{
    block_part b;
    block_part_of(s, r, &b);
    estimate_time(s, r, &b, out);
    estimate_memory(s, r, &b, out);
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

bool candidate_fill(const space *s, candidate *r, const uint64_t budget[TIERS], estimate *e)
{
    block_part b;
    const filling f = {s, r, &b, budget, e};
    int guess = r->persist, on_host = r->on_host, all = candidate_chunks(s, r);
    block_part_of(s, r, &b);
    if (!device_fits(&f, all)) {
        r->on_host = on_host;
        device_fits(&f, most_that_fit(&f, device_fits, 0, all, guess));
    }
    candidate_normalise(s, r);
    estimate_time(s, r, &b, e);
    estimate_memory(s, r, &b, e);
    return fits(budget, e, TIER_DEVICE) && fits(budget, e, TIER_HOST) && fits(budget, e, TIER_DISK);
}
