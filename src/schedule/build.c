/* build.c - the program of a step, item by item, in the order in which the device computes it.
 *
 *   for each group of `visit` micro-batches
 *       for each block, for each micro-batch of the group: forward   (first group: after its chunks' updates)
 *       for each micro-batch: head, forward and backward
 *       for each layer from the last down to the first trained block, for each micro-batch: backward
 *           last group: the layer's gradients are finished (and, without clipping, its chunks updated)
 *   the embedding's gradients, if it is trained, from the stream gradients of all micro-batches; of the table of layers' inputs a list of
 *   rows
 *
 * Frozen chunks are fetched like others, but never written or updated.
 *
 * With several ranks, each rank computes its own lanes and updates its shard of each chunk:
 *
 *   a block's accumulators -> scatter, while the next block is computed -> finish, of all ranks' sums for this rank's shard
 *   update of the shard -> gather, while the block before is computed
 *
 * A tied table has sums of the head and of the embedding. The head's are complete first: they are sent while the layers are computed, some
 * chunks after each layer, so that they do not delay the layers' own sums.
 *
 * The weights of a sharded chunk are gathered before each use that does not find them in a buffer, not after the update.
 *
 * If sequences are divided, a layer is several items, too: the parts around attention, and between them the exchanges among the ranks that
 * share a sequence (layer/sequence.h), for one micro-batch after the other.
 *
 * With plan.ranges, a layer with experts is several items for each micro-batch, its parts: a part of all micro-batches of the group comes
 * before the next part, so that each range of experts is fetched once for all of them.
 *
 * The caches (cache.c) decide where the objects of an item come from and where they go.
 */
#include "schedule/builder.h"

#include <stdlib.h>
#include <string.h>

typedef struct program {
    builder b;
    const model *model;
    const step_shape *shape;
    const packing *packing;
    const plan *plan;
    int layers, micro_n, groups_n;
    int first_trained;            /* block where backward ends */
    const layer_set *layouts;
    kept_parts parts_forward, parts_backward;
    layer_set own_layouts;
    int *block0, *block_chunk;    /* chunks that block b reads: block_chunk[block0[b] .. block0[b + 1]) */
    int *piece0, *piece_chunk;    /* chunks that hold the block's own trained parameters, in the same way */
    unsigned char *chunk_updated; /* forward: its update has run */
    int *chunk_blocks;            /* number of blocks whose gradients are still missing */
    int *accumulator;             /* buffer of each block, -1: not yet */
    int *stream;                  /* buffer of each micro-batch's stream gradient, -1: not yet */
    int *residual;                /* the same for its fp32 stream */
    int *open;                    /* and for the workspace of a layer in parts */
    int *carried, *carried_gradient; /* and for what layers hand on, and its gradients */
    carried_layout carries;
    int rows_gradient[TIERS];     /* buffers; -1: no update there reads it, or not yet */
    int batch, loss, sumsq, routing, rope; /* placements; routing, rope -1: the model has no experts, no rotary embedding */
    int *partial, *scattered;     /* several ranks: unfinished partial sums: their buffers, blocks and chunks */
    int *scattered_block, scattered_n;
    int *tied, *tied_chunk;       /* chunks with rows of a tied table, and the head's sums for each (chunk's buffer, -1: none yet) */
    int tied_n, tied_sent;
} program;

static int object_weights(const program *p, int chunk) { (void)p; return chunk; }
static int object_states(const program *p, int chunk) { return p->packing->chunks_n + chunk; }
static int object_gradient(const program *p, int chunk) { return 2 * p->packing->chunks_n + chunk; }
static int object_shard(const program *p, int chunk) { return 3 * p->packing->chunks_n + chunk; }
static int object_saved(const program *p, int block, int micro)
{
    return 4 * p->packing->chunks_n + (block - 1) * p->micro_n + micro;
}

/* ---- items ---- */

/* A workspace on the host; only updates have one there. */
static void item_host_workspace(builder *b, uint64_t bytes)
{
    if (bytes && !b->recording)
        item_operand(b, builder_buffer(b, OBJECT_WORKSPACE, -1, -1, TIER_HOST, bytes), USE_WRITE);
}

/* part NULL: all that the block reads. */
static void needs_weights(program *p, int block, const layer_part *part)
{
    for (int i = p->block0[block]; i < p->block0[block + 1]; i++)
        if (!part || schedule_part_reads(p->b.in, part, p->block_chunk[i]))
            item_needs(&p->b, TIER_DEVICE, object_weights(p, p->block_chunk[i]), USE_READ);
}

/* ---- updates ---- */

static bool is_shared(const program *p) { return p->packing->ranks > 1; }

/* Sends each rank's part of the weights to all others, directly after the update. */
static void gather_chunk(program *p, int chunk)
{
    const int64_t updated = p->b.item.key;
    item_begin(&p->b, updated);
    item_needs(&p->b, p->plan->chunks[chunk].update, object_weights(p, chunk), USE_READ | USE_WRITE);
    item_end(&p->b, TASK_GATHER, QUEUE_RANKS, -1, -1, chunk, false);
}

static void update_chunk(program *p, int chunk)
{
    const plan_chunk *c = &p->plan->chunks[chunk];
    bool on_device = c->update == TIER_DEVICE;
    tier t = c->update;
    const bool has_rows = chunk_has_rows(p->packing, chunk);
    if (!on_device && c->placement == TIER_HOST && !has_rows)
        cache_flush_object(&p->b, object_gradient(p, chunk)); /* the update works on the placements */
    const bool after = has_rows && p->plan->update == UPDATE_BACKWARD; /* their task: no cache keeps that order */
    item_begin(&p->b, on_device || after ? p->b.now : 0);
    item_needs(&p->b, t, c->sharded ? object_shard(p, chunk) : object_weights(p, chunk), USE_READ | USE_WRITE);
    item_needs(&p->b, t, object_states(p, chunk), USE_READ | USE_WRITE);
    if (has_rows)
        item_operand(&p->b, p->rows_gradient[t], USE_READ);
    else
        item_needs(&p->b, t, object_gradient(p, chunk), USE_READ);
    (on_device ? item_workspace : item_host_workspace)(&p->b, p->packing->chunks[chunk].update_bytes);
    item_end(&p->b, TASK_UPDATE, on_device ? QUEUE_COMPUTE : QUEUE_HOST, -1, -1, chunk, false);
    if (is_shared(p) && !c->sharded)
        gather_chunk(p, chunk);
}

/* The waiting updates of the chunks that this block is about to read. */
static void update_before(program *p, int block)
{
    if (block >= p->model->blocks_n)
        return;
    for (int i = p->block0[block]; i < p->block0[block + 1]; i++) {
        int c = p->block_chunk[i];
        if (!p->chunk_updated[c] && p->packing->chunks[c].trained)
            update_chunk(p, c);
        p->chunk_updated[c] = 1;
    }
}

/* The same of the chunks of a table that it looks up. */
static void update_looked_up(program *p)
{
    for (int c = 0; c < p->packing->chunks_n; c++) {
        if (!chunk_has_rows(p->packing, c))
            continue;
        if (!p->chunk_updated[c])
            update_chunk(p, c);
        p->chunk_updated[c] = 1;
    }
}

/* ---- forward and backward ---- */

static int stream_buffer(program *p, int micro)
{
    if (p->stream[micro] < 0 && !p->b.recording) {
        uint64_t bytes = (uint64_t)(p->b.s->micro_units * p->shape->unit_rows * p->model->config.hidden) * dtype_bytes(p->shape->type);
        p->stream[micro] = builder_buffer(&p->b, OBJECT_STREAM_GRADIENT, -1, micro, TIER_DEVICE, bytes);
    }
    return p->stream[micro];
}

static void item_micro(program *p, object_kind kind, int *buffer, int micro, uint64_t unit_bytes, unsigned use)
{
    if (!use || !unit_bytes)
        return;
    if (buffer[micro] < 0 && !p->b.recording)
        buffer[micro] = builder_buffer(&p->b, kind, -1, micro, TIER_DEVICE, unit_bytes * (uint64_t)p->b.s->micro_units);
    item_operand(&p->b, buffer[micro], use);
}

static void item_residual(program *p, int micro, unsigned use)
{
    item_micro(p, OBJECT_STREAM, p->residual, micro, residual_bytes(p->model, p->shape), use);
}

/* What the block reads and writes of what layers hand on. */
static void item_carried(program *p, int block, int micro, bool backward, int part)
{
    if (!p->carries.bytes)
        return;
    const carried_use use = carried_use_of(p->model, block);
    item_micro(p, OBJECT_CARRIED, p->carried, micro, p->carries.bytes, backward ? use.backward : use.forward);
    if (backward)
        item_micro(p, OBJECT_CARRIED_GRADIENT, p->carried_gradient, micro, p->carries.gradient_bytes,
                   carried_begins(p->model, block) && !part ? use.gradient & ~(unsigned)CARRIED_READ : use.gradient);
}

/* Does nothing for a block without trained parameters. */
static void item_accumulator(program *p, int block, bool begins)
{
    if (p->b.recording)
        return;
    const uint64_t bytes = p->accumulator[block] < 0 ? accumulator_bytes(p->model, p->shape, block) : 0;
    if (bytes)
        p->accumulator[block] = builder_buffer(&p->b, OBJECT_ACCUMULATOR, block, -1, TIER_DEVICE, bytes);
    if (p->accumulator[block] >= 0)
        item_operand(&p->b, p->accumulator[block], begins ? USE_WRITE : USE_READ | USE_WRITE);
}

static void item_rope(program *p)
{
    if (p->rope >= 0)
        item_operand(&p->b, p->rope, USE_READ);
}

static const layer_layout *layout_of(const program *p, int block)
{
    return layer_set_layout(p->layouts, block - 1, p->plan->blocks[block - 1].level);
}

/* The workspace of a layer: of a task, or kept from part to part. */
static void item_layer_workspace(program *p, int block, int micro, bool backward, const layer_parts *parts, int part)
{
    const layer_layout *layout = layout_of(p, block);
    const uint64_t bytes = schedule_open_bytes(layout, backward) * (uint64_t)p->b.s->micro_units;
    if (parts->n == 1) { /* a layer with an attention that is divided always has more */
        item_workspace(&p->b, backward ? layout->backward_workspace : layout->forward_workspace);
        return;
    }
    if (!part && !p->b.recording)
        p->open[micro] = builder_buffer(&p->b, OBJECT_OPEN, block, micro, TIER_DEVICE, bytes);
    item_operand(&p->b, p->open[micro], part ? USE_READ | USE_WRITE : USE_WRITE);
}

static bool has_experts(const program *p, int block) { return block > 0 && block <= p->layers && p->model->config.sparse[block - 1]; }

/* ---- rows that are looked up ---- */

static int rows_buffer(program *p, int micro, tier t)
{
    const uint64_t bytes = schedule_rows_bytes(p->model, p->shape) * (uint64_t)p->b.s->micro_units;
    return p->b.recording ? -1 : builder_buffer(&p->b, OBJECT_ROWS, -1, micro, t, bytes);
}

static void look_up(program *p, int micro, tier t, int rows, unsigned use)
{
    for (int c = 0; c < p->packing->chunks_n; c++)
        if (chunk_has_rows(p->packing, c)) /* rows are looked up in the placements */
            cache_flush_object(&p->b, object_weights(p, c));
    item_begin(&p->b, p->b.now);
    for (int c = 0; c < p->packing->chunks_n; c++)
        if (plan_looks_up(&p->plan->chunks[c], &p->packing->chunks[c]) && p->plan->chunks[c].placement == t)
            item_needs(&p->b, t, object_weights(p, c), USE_READ);
    if (!p->b.recording)
        item_operand(&p->b, rows, use);
    item_end(&p->b, TASK_LOOK_UP, t == TIER_HOST ? QUEUE_HOST : QUEUE_READ, 0, micro, -1, false);
}

/* The buffer on the device with the rows of a micro-batch; -1: none are looked up. */
static int looked_up(program *p, int micro)
{
    const bool from_disk = schedule_looks_up(p->b.in, TIER_DISK), from_host = schedule_looks_up(p->b.in, TIER_HOST);
    if (!from_disk && !from_host)
        return -1;
    const tier memory = schedule_memory(p->b.in);
    const int rows = rows_buffer(p, micro, memory);
    if (from_disk)
        look_up(p, micro, TIER_DISK, rows, USE_WRITE);
    if (from_host)
        look_up(p, micro, TIER_HOST, rows, from_disk ? USE_READ | USE_WRITE : USE_WRITE);
    if (memory == TIER_DEVICE)
        return rows;
    const int on_device = rows_buffer(p, micro, TIER_DEVICE);
    item_begin(&p->b, p->b.now);
    if (!p->b.recording) {
        item_operand(&p->b, rows, USE_READ);
        item_operand(&p->b, on_device, USE_WRITE);
    }
    item_end(&p->b, TASK_COPY, QUEUE_TO_DEVICE, -1, micro, -1, false);
    return on_device;
}

static void embed(program *p, int micro)
{
    const int rows = looked_up(p, micro);
    item_begin(&p->b, p->b.now);
    needs_weights(p, 0, NULL);
    if (rows >= 0)
        item_operand(&p->b, rows, USE_READ);
    item_needs(&p->b, TIER_DEVICE, object_saved(p, 1, micro), USE_WRITE);
    item_residual(p, micro, USE_WRITE);
    item_carried(p, 0, micro, false, 0);
    item_operand(&p->b, p->batch, USE_READ);
    item_end(&p->b, TASK_EMBED, QUEUE_COMPUTE, 0, micro, -1, false);
}

/* Between two parts of a layer, with the ranks that share its sequences. */
static void exchange_heads(program *p, int block, int micro, bool backward, const layer_parts *parts, int part)
{
    item_begin(&p->b, p->b.now);
    item_operand(&p->b, p->open[micro], USE_READ | USE_WRITE);
    item_end(&p->b, TASK_HEADS, QUEUE_RANKS, block, micro, -1, false);
    item_is_part(&p->b, part, 1);
    item_exchanges(&p->b, backward, parts->part[part].bytes * (uint64_t)p->b.s->micro_units);
}

static void forward_part(program *p, int block, int micro, bool eval, const layer_parts *parts, int part)
{
    const unsigned change = p->plan->blocks[block - 1].level == SAVE_INPUT ? 0 : USE_WRITE; /* the layer's input is already in it */
    item_begin(&p->b, p->b.now);
    needs_weights(p, block, &parts->part[part]);
    item_needs(&p->b, TIER_DEVICE, object_saved(p, block, micro), USE_READ | change);
    item_layer_workspace(p, block, micro, false, parts, part);
    item_rope(p);
    if (part == parts->n - 1)
        item_needs(&p->b, TIER_DEVICE, object_saved(p, block + 1, micro), USE_WRITE);
    item_residual(p, micro, USE_READ | USE_WRITE);
    item_carried(p, block, micro, false, part);
    item_operand(&p->b, p->batch, USE_READ);
    if (!eval && has_experts(p, block))
        item_operand(&p->b, p->routing, USE_WRITE);
    item_end(&p->b, TASK_LAYER, QUEUE_COMPUTE, block, micro, -1, false);
    item_is_part(&p->b, part, parts->part[part].share);
}

/* The micro-batches first .. end. */
static void forward(program *p, int block, int first, int end, bool eval)
{
    for (int m = first; m < end && !block; m++)
        embed(p, m);
    if (!block)
        return;
    const layer_parts *parts = schedule_kept_parts(p->b.in, layout_of(p, block), block, false, &p->parts_forward);
    const int together = shape_parts(p->shape) > 1 ? 1 : end - first; /* micro-batches in a part before its next */
    for (; first < end; first += together)
        for (int part = 0; part < parts->n; part++)
            for (int m = first; m < first + together; m++)
                if (parts->part[part].kind == PART_EXCHANGE)
                    exchange_heads(p, block, m, false, parts, part);
                else
                    forward_part(p, block, m, eval, parts, part);
}

static void head(program *p, int micro, bool eval)
{
    int block = p->layers + 1;
    head_layout h;
    head_layout_init(&h, p->model, p->shape);
    item_begin(&p->b, p->b.now);
    needs_weights(p, block, NULL);
    item_needs(&p->b, TIER_DEVICE, object_saved(p, block, micro), USE_READ);
    item_operand(&p->b, p->batch, USE_READ);
    item_operand(&p->b, p->loss, USE_WRITE);
    item_workspace(&p->b, h.bytes);
    if (!eval && p->first_trained < block) {
        item_operand(&p->b, stream_buffer(p, micro), USE_WRITE);
        item_residual(p, micro, USE_WRITE);
    }
    if (!eval)
        item_accumulator(p, block, micro == 0);
    item_end(&p->b, eval ? TASK_HEAD_EVAL : TASK_HEAD, QUEUE_COMPUTE, block, micro, -1, micro == 0);
}

static void backward_part(program *p, int block, int micro, const layer_parts *parts, int part)
{
    item_begin(&p->b, p->b.now);
    needs_weights(p, block, &parts->part[part]);
    item_needs(&p->b, TIER_DEVICE, object_saved(p, block, micro), USE_READ);
    item_layer_workspace(p, block, micro, true, parts, part);
    item_operand(&p->b, stream_buffer(p, micro), USE_READ | USE_WRITE);
    item_residual(p, micro, USE_READ | USE_WRITE);
    item_carried(p, block, micro, true, part);
    item_accumulator(p, block, micro == 0 && part == 0);
    item_operand(&p->b, p->batch, USE_READ);
    item_rope(p);
    if (p->shape->router_aux > 0 && has_experts(p, block))
        item_operand(&p->b, p->routing, USE_READ);
    item_end(&p->b, TASK_LAYER_BACKWARD, QUEUE_COMPUTE, block, micro, -1, micro == 0);
    item_is_part(&p->b, part, parts->part[part].share);
}

static void backward(program *p, int block, int first, int end)
{
    const layer_parts *parts = schedule_kept_parts(p->b.in, layout_of(p, block), block, true, &p->parts_backward);
    const int together = shape_parts(p->shape) > 1 ? 1 : end - first;
    for (; first < end; first += together)
        for (int part = 0; part < parts->n; part++)
            for (int m = first; m < first + together; m++)
                if (parts->part[part].kind == PART_EXCHANGE)
                    exchange_heads(p, block, m, true, parts, part);
                else
                    backward_part(p, block, m, parts, part);
}

/* ---- gradients ---- */

/* Of all micro-batches, what the gradients of the embedding's tables are summed from. Those of layers' inputs have a task of their own
 * (sum_rows). */
static void item_gradients(program *p)
{
    for (int m = 0; m < p->micro_n; m++)
        item_operand(&p->b, p->stream[m], USE_READ);
}

/* partial -1: there is one rank. With several, the accumulator is held until then, so that what is computed while it is sent lies
 * elsewhere. */
static void finish_chunk(program *p, int block, int chunk, int partial)
{
    item_begin(&p->b, p->b.now);
    unsigned use = p->chunk_blocks[chunk] < 0 ? USE_WRITE : USE_READ | USE_WRITE;
    item_needs(&p->b, TIER_DEVICE, object_gradient(p, chunk), use);
    item_operand(&p->b, p->sumsq, USE_WRITE);
    if (is_shared(p)) {
        item_operand(&p->b, p->accumulator[block], USE_READ);
        item_operand(&p->b, partial, USE_READ | USE_WRITE);
        if (block == 0 && p->tied[chunk] >= 0)
            item_operand(&p->b, p->tied[chunk], USE_READ | USE_WRITE);
    } else if (block > 0) {
        item_operand(&p->b, p->accumulator[block], USE_READ);
    } else {
        item_workspace(&p->b, embedding_sums_bytes(p->model, p->shape));
        item_operand(&p->b, p->batch, USE_READ);
        item_gradients(p);
        if (head_adds_to_embedding(p->model))
            item_operand(&p->b, p->accumulator[p->layers + 1], USE_READ);
    }
    item_end(&p->b, block || is_shared(p) ? TASK_FINISH : TASK_EMBED_FINISH, QUEUE_COMPUTE, block, -1, chunk, false);
}

/* chunk_blocks[c] = -n: n blocks have pieces in the chunk and none is finished; n > 0: n are still missing. */
static void count_chunk_blocks(program *p)
{
    memset(p->chunk_blocks, 0, (size_t)p->packing->chunks_n * sizeof *p->chunk_blocks);
    for (int i = 0; i < p->piece0[p->model->blocks_n]; i++)
        p->chunk_blocks[p->piece_chunk[i]]--;
}

static void finish_and_count(program *p, int block, int c, int partial)
{
    finish_chunk(p, block, c, partial);
    int left = p->chunk_blocks[c];
    p->chunk_blocks[c] = left < 0 ? -left - 1 : left - 1;
    if (p->chunk_blocks[c] == 0 && p->plan->update == UPDATE_BACKWARD)
        update_chunk(p, c);
}

static int rows_gradient_buffer(program *p, tier t)
{
    if (p->rows_gradient[t] < 0 && !p->b.recording)
        p->rows_gradient[t] = builder_buffer(&p->b, OBJECT_ROWS_GRADIENT, -1, -1, t, schedule_rows_gradient_bytes(p->model, p->shape));
    return p->rows_gradient[t];
}

/* The gradients of the rows of the table that is looked up; with several ranks, this rank's sums for them. */
static void sum_rows(program *p, int to)
{
    item_begin(&p->b, p->b.now);
    item_operand(&p->b, to, USE_WRITE);
    item_operand(&p->b, p->sumsq, USE_WRITE);
    item_workspace(&p->b, embedding_sums_bytes(p->model, p->shape));
    item_operand(&p->b, p->batch, USE_READ);
    for (int m = 0; m < p->micro_n; m++)
        item_operand(&p->b, p->carried_gradient[m], USE_READ);
    item_end(&p->b, TASK_ROWS_FINISH, QUEUE_COMPUTE, 0, -1, -1, false);
}

static int send_rows(program *p, int sums, int chunk)
{
    const int partial = p->b.recording ? -1 : builder_buffer(&p->b, OBJECT_PARTIAL, chunk, 0, TIER_DEVICE,
                                                             partial_bytes(p->packing, p->model, 0, chunk));
    item_begin(&p->b, p->b.now);
    item_operand(&p->b, sums, USE_READ);
    item_operand(&p->b, partial, USE_WRITE);
    item_end(&p->b, TASK_SCATTER, QUEUE_RANKS, 0, -1, chunk, false);
    return partial;
}

static void finish_sent_rows(program *p, int sums, int chunk, int partial, int to, bool first)
{
    item_begin(&p->b, p->b.now);
    item_operand(&p->b, to, first ? USE_WRITE : USE_READ | USE_WRITE);
    item_operand(&p->b, p->sumsq, USE_WRITE);
    item_operand(&p->b, sums, USE_READ);
    item_operand(&p->b, partial, USE_READ | USE_WRITE);
    item_operand(&p->b, p->batch, USE_READ);
    item_end(&p->b, TASK_FINISH, QUEUE_COMPUTE, 0, -1, chunk, false);
}

/* Each chunk's rows are sent while those of the chunk before are finished. */
static void share_rows(program *p, int to)
{
    const int sums = p->b.recording ? -1 : builder_buffer(&p->b, OBJECT_ROWS_SUMS, -1, -1, TIER_DEVICE,
                                                          schedule_rows_sums_bytes(p->model, p->shape));
    int before = -1, partial_before = -1, finished = 0;
    sum_rows(p, sums);
    for (int c = 0; c < p->packing->chunks_n; c++) {
        if (!chunk_has_rows(p->packing, c))
            continue;
        const int partial = send_rows(p, sums, c);
        if (before >= 0)
            finish_sent_rows(p, sums, before, partial_before, to, !finished++);
        before = c;
        partial_before = partial;
    }
    finish_sent_rows(p, sums, before, partial_before, to, !finished);
}

/* The gradients of the rows of the table that is looked up, to each tier whose updates read them. */
static void finish_rows(program *p)
{
    const int on_device = rows_gradient_buffer(p, TIER_DEVICE);
    (is_shared(p) ? share_rows : sum_rows)(p, on_device);
    if (schedule_updates_rows(p->b.in, TIER_HOST)) {
        const int on_host = rows_gradient_buffer(p, TIER_HOST);
        item_begin(&p->b, p->b.now);
        item_operand(&p->b, on_device, USE_READ);
        item_operand(&p->b, on_host, USE_WRITE);
        item_end(&p->b, TASK_COPY, QUEUE_FROM_DEVICE, -1, -1, -1, false);
    }
    for (int c = 0; c < p->packing->chunks_n && p->plan->update == UPDATE_BACKWARD; c++)
        if (chunk_has_rows(p->packing, c))
            update_chunk(p, c);
}

/* Finishes the gradients of the previous block, whose sums were sent while this block was computed. */
static void finish_scattered(program *p)
{
    for (int i = 0; i < p->scattered_n; i++)
        finish_and_count(p, p->scattered_block[i], p->scattered[i], p->partial[i]);
    p->scattered_n = 0;
}

/* The embedding's sums of the whole step. */
static void embed_backward(program *p)
{
    item_begin(&p->b, p->b.now);
    item_accumulator(p, 0, true);
    item_operand(&p->b, p->batch, USE_READ);
    item_gradients(p);
    item_end(&p->b, TASK_EMBED_BACKWARD, QUEUE_COMPUTE, 0, -1, -1, false);
}

static void scatter_chunk(program *p, int block, int chunk)
{
    const int at = p->scattered_n++;
    p->scattered[at] = chunk;
    p->scattered_block[at] = block;
    p->partial[at] = p->b.recording ? -1 : builder_buffer(&p->b, OBJECT_PARTIAL, chunk, block, TIER_DEVICE,
                                                          partial_bytes(p->packing, p->model, block, chunk));
    item_begin(&p->b, p->b.now);
    item_operand(&p->b, p->accumulator[block], USE_READ);
    item_operand(&p->b, p->partial[at], USE_WRITE);
    item_end(&p->b, TASK_SCATTER, QUEUE_RANKS, block, -1, chunk, false);
}

/* Sends the head's sums of a tied table, spread evenly over the blocks from the head down to the second layer: after the first layer, only
 * its own sums are left. */
static void scatter_tied(program *p, int block)
{
    const int blocks = p->layers, passed = p->layers + 2 - block;
    for (; p->tied_sent < p->tied_n && p->tied_sent * blocks < p->tied_n * passed; p->tied_sent++) {
        const int chunk = p->tied_chunk[p->tied_sent];
        if (!p->b.recording)
            p->tied[chunk] = builder_buffer(&p->b, OBJECT_PARTIAL_TIED, chunk, -1, TIER_DEVICE,
                                            partial_bytes(p->packing, p->model, 0, chunk));
        item_begin(&p->b, p->b.now);
        item_operand(&p->b, p->accumulator[p->layers + 1], USE_READ);
        item_operand(&p->b, p->tied[chunk], USE_WRITE);
        item_end(&p->b, TASK_SCATTER_TIED, QUEUE_RANKS, p->layers + 1, -1, chunk, false);
    }
}

/* Finishes the block before first, so that it need not wait for what this block sends. */
static void share_block(program *p, int block)
{
    if (block == 0 && p->piece0[1] > p->piece0[0])
        embed_backward(p);
    finish_scattered(p);
    for (int i = p->piece0[block + 1] - 1; i >= p->piece0[block]; i--)
        scatter_chunk(p, block, p->piece_chunk[i]);
    scatter_tied(p, block);
    if (block == 0)
        finish_scattered(p);
}

static void finish_block(program *p, int block)
{
    if (is_shared(p))
        share_block(p, block);
    if (block == 0 && inputs_are_trained(p->model))
        finish_rows(p);
    for (int i = p->piece0[block + 1] - 1; i >= p->piece0[block] && !is_shared(p); i--)
        finish_and_count(p, block, p->piece_chunk[i], -1);
}

/* ---- programs ---- */

/* Of a step (not an evaluation), all that it ends with. */
static void input_output(program *p, bool input, bool step)
{
    item_begin(&p->b, input ? 0 : p->b.now);
    item_operand(&p->b, input ? p->batch : p->loss, input ? USE_WRITE : USE_READ);
    if (step)
        item_operand(&p->b, p->sumsq, USE_READ);
    if (step && p->routing >= 0)
        item_operand(&p->b, p->routing, USE_READ);
    item_end(&p->b, input ? TASK_INPUT : TASK_OUTPUT, input ? QUEUE_TO_DEVICE : QUEUE_FROM_DEVICE, -1, -1, -1, false);
}

static void program_step(program *p, bool updates)
{
    memset(p->chunk_updated, !updates, (size_t)p->packing->chunks_n);
    count_chunk_blocks(p);
    input_output(p, true, false);
    for (int g = 0; g < p->groups_n; g++) {
        int first = g * p->plan->visit, end = first + p->plan->visit;
        for (int block = 0; block <= p->layers; block++) {
            update_before(p, block);
            if (block == 0)
                update_looked_up(p);
            if (is_shared(p)) /* they are gathered while this block is computed */
                update_before(p, block + 1);
            forward(p, block, first, end, false);
        }
        update_before(p, p->layers + 1);
        for (int m = first; m < end; m++)
            head(p, m, false);
        if (g == p->groups_n - 1)
            finish_block(p, p->layers + 1);
        for (int block = p->layers; block > 0 && block >= p->first_trained; block--) {
            backward(p, block, first, end);
            if (g == p->groups_n - 1)
                finish_block(p, block);
        }
    }
    finish_block(p, 0);
    input_output(p, false, true);
}

static void program_drain(program *p)
{
    for (int c = 0; c < p->packing->chunks_n; c++)
        if (p->packing->chunks[c].trained)
            update_chunk(p, c);
}

static void program_eval(program *p)
{
    input_output(p, true, false);
    for (int m = 0; m < p->micro_n; m++) {
        for (int block = 0; block <= p->layers; block++)
            forward(p, block, m, m + 1, true);
        head(p, m, true);
    }
    input_output(p, false, false);
}

static void run_program(program *p, schedule_kind kind)
{
    p->b.serial = 0;
    p->b.now = 1;
    for (int i = 0; i < p->model->blocks_n; i++)
        p->accumulator[i] = -1;
    for (int i = 0; i < p->micro_n; i++)
        p->stream[i] = p->residual[i] = p->carried[i] = p->carried_gradient[i] = -1;
    p->scattered_n = p->tied_sent = 0;
    switch (kind) {
    case SCHEDULE_STEP: program_step(p, false); break;
    case SCHEDULE_STEP_UPDATE: program_step(p, true); break;
    case SCHEDULE_DRAIN: program_drain(p); break;
    default: program_eval(p); break;
    }
}

/* ---- set-up ---- */

static int placement(program *p, object_kind kind, int index, tier t, uint64_t bytes)
{
    int at = builder_buffer(&p->b, kind, index, -1, t, bytes);
    if (at >= 0)
        p->b.s->buffers[at].placement = true;
    return at;
}

static void make_chunk_objects(program *p, schedule_kind kind)
{
    bool training = p->b.in->training, waits = p->plan->update != UPDATE_BACKWARD;
    for (int c = 0; c < p->packing->chunks_n; c++) {
        tier t = p->plan->chunks[c].placement;
        object *w = &p->b.objects[object_weights(p, c)], *s = &p->b.objects[object_states(p, c)];
        object *g = &p->b.objects[object_gradient(p, c)], *h = &p->b.objects[object_shard(p, c)];
        const bool sharded = p->plan->chunks[c].sharded;
        *w = (object){.kind = OBJECT_WEIGHTS, .bytes = chunk_weight_bytes(p->packing, c), .keep = !sharded};
        *h = (object){.kind = OBJECT_SHARD, .bytes = chunk_shard_bytes(p->packing, c), .keep = sharded};
        *s = (object){.kind = OBJECT_STATES, .bytes = chunk_state_bytes(p->packing, c), .keep = true};
        *g = (object){.kind = OBJECT_GRADIENT, .bytes = chunk_gradient_bytes(p->packing, c),
                      .keep = waits && kind != SCHEDULE_DRAIN};
        w->placement = sharded ? -1 : placement(p, OBJECT_WEIGHTS, c, t, w->bytes);
        h->placement = sharded ? placement(p, OBJECT_SHARD, c, t, h->bytes) : -1;
        s->placement = training && s->bytes ? placement(p, OBJECT_STATES, c, t, s->bytes) : -1;
        g->placement = training && waits && g->bytes ? placement(p, OBJECT_GRADIENT, c, t, g->bytes) : -1;
        object *all[] = {w, s, g, h};
        for (int i = 0; i < 4; i++) {
            all[i]->index = c;
            all[i]->micro = -1;
            all[i]->placement_tier = t;
            all[i]->placement_slot = all[i]->partner = -1;
        }
        if (sharded) {
            w->placement_tier = TIERS;
            w->partner = object_shard(p, c);
            h->partner = object_weights(p, c);
        }
    }
}

/* The saved tensors of a visit to a block lie side by side, because backward needs all of them. Those of different groups of micro-batches
 * are used at different times. In an evaluation, and before the first block of backward, only two neighbours are used at a time. */
static void share_slot(const program *p, schedule_kind kind, object *saved)
{
    bool eval = kind == SCHEDULE_EVAL, passing = eval || saved->index < p->first_trained;
    saved->placement_slot = passing ? (saved->index - 1) % 2 : saved->index - 1;
    saved->within = eval ? 0 : (uint64_t)(saved->micro % p->plan->visit) * saved->bytes;
}

static void make_saved_objects(program *p, schedule_kind kind)
{
    p->b.s->slots_n = kind == SCHEDULE_EVAL ? 2 : p->layers + 1;
    for (int block = 1; block <= p->layers + 1; block++) {
        uint64_t bytes = align_up((uint64_t)(p->shape->unit_rows * p->model->config.hidden) * dtype_bytes(p->shape->type), 4096);
        tier place = TIER_DEVICE;
        if (block <= p->layers) {
            bytes = layout_of(p, block)->saved_bytes;
            if (kind != SCHEDULE_EVAL)
                place = p->plan->blocks[block - 1].place;
        }
        for (int m = 0; m < p->micro_n; m++) {
            object *saved = &p->b.objects[object_saved(p, block, m)];
            *saved = (object){.kind = OBJECT_SAVED, .index = block, .micro = m, .placement_tier = place, .placement = -1, .partner = -1,
                              .bytes = bytes * (uint64_t)p->b.s->micro_units};
            share_slot(p, kind, saved);
        }
    }
}

/* Lists the chunks that each block reads, and those whose gradients it makes. A tied head reads the embedding's table without owning it. */
static int list_chunks(program *p)
{
    const packing *packing = p->packing;
    size_t most = 2 * (size_t)packing->pieces_n + 1;
    /* latest block + 1 */
    int read = 0, own = 0, *read_by = calloc(2 * (size_t)packing->chunks_n, sizeof *read_by), *owned_by = read_by + packing->chunks_n;
    p->piece0 = p->block0 + p->model->blocks_n + 1;
    p->block_chunk = malloc(most * sizeof *p->block_chunk);
    p->piece_chunk = malloc(most * sizeof *p->piece_chunk);
    for (int b = 0; b < p->model->blocks_n && read_by && p->block_chunk && p->piece_chunk; b++) {
        p->block0[b] = read;
        p->piece0[b] = own;
        for (int role = 0; role < PARAM_ROLES; role++) {
            int a = p->model->blocks[b].param_of_role[role];
            for (int i = a < 0 ? 0 : packing->piece_of_param[a]; a >= 0 && i < packing->piece_of_param[a + 1]; i++) {
                int c = packing->pieces[i].chunk;
                if (read_by[c] != b + 1 && !plan_looks_up(&p->plan->chunks[c], &packing->chunks[c]))
                    p->block_chunk[read++] = c;
                read_by[c] = b + 1;
                if (p->model->params[a].block != b || !packing->chunks[c].trained || packing->chunks[c].looked_up)
                    continue;
                if (owned_by[c] != b + 1)
                    p->piece_chunk[own++] = c;
                owned_by[c] = b + 1;
            }
        }
    }
    for (int i = p->piece0[1] - 1; i >= 0 && read_by && p->piece_chunk; i--)
        if (p->packing->ranks > 1 && chunk_has_tied_rows(packing, p->model, p->piece_chunk[i]))
            p->tied_chunk[p->tied_n++] = p->piece_chunk[i];
    p->block0[p->model->blocks_n] = read;
    p->piece0[p->model->blocks_n] = own;
    free(read_by);
    return read_by && p->block_chunk && p->piece_chunk ? 0 : -1;
}

static int make_caches(program *p)
{
    const int n[CACHES] = {p->plan->n_buffer, p->plan->n_update, p->plan->n_update, p->plan->n_update, p->plan->n_swap};
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
        for (int k = 0; k < CACHES; k++) {
            int slots = t == TIER_HOST && k == CACHE_WEIGHTS ? p->plan->n_update : n[k];
            cache *c = &p->b.caches[t][k];
            *c = (cache){.tier = (tier)t, .slots_n = slots, .slots = calloc((size_t)slots + 1, sizeof(slot))};
            if (!c->slots)
                return -1;
            for (int i = 0; i < slots; i++)
                c->slots[i] = (slot){.object = -1, .buffer = -1, .id = -1, .pinned = -1};
        }
    return 0;
}

static void make_placements(program *p, schedule_kind kind)
{
    const model_config *config = &p->model->config;
    uint64_t tokens = (uint64_t)(p->shape->batch * p->shape->seq_len);
    p->batch = placement(p, OBJECT_BATCH, -1, TIER_DEVICE, tokens * batch_token_bytes(p->model, p->shape));
    p->loss = placement(p, OBJECT_LOSS, -1, TIER_DEVICE, loss_bytes(p->shape));
    p->sumsq = placement(p, OBJECT_SUMSQ, -1, TIER_DEVICE, (uint64_t)sumsq_count(p->model) * sizeof(double));
    p->routing = !routing_bytes(p->model, p->shape) ? -1
                                                    : placement(p, OBJECT_ROUTING, -1, TIER_DEVICE, routing_bytes(p->model, p->shape));
    p->rope = !config->ropes_n ? -1 : placement(p, OBJECT_ROPE, -1, TIER_DEVICE,
                                     (uint64_t)model_rope_offset(config, config->ropes_n, shape_length(p->shape)) * sizeof(float));
    make_chunk_objects(p, kind);
    for (tier t = TIER_DEVICE; t <= TIER_HOST; t++)
        p->rows_gradient[t] = p->plan->update == UPDATE_BACKWARD || !schedule_updates_rows(p->b.in, t) ? -1
            : placement(p, OBJECT_ROWS_GRADIENT, -1, t, schedule_rows_gradient_bytes(p->model, p->shape));
    p->b.s->placements_n = p->b.s->buffers_n;
    make_saved_objects(p, kind);
}

static int program_init(program *p, const schedule_input *in, schedule_kind kind, schedule *sched, pt_error *e)
{
    *p = (program){.model = in->model, .shape = in->shape, .packing = in->packing, .plan = in->plan};
    int64_t micro_units = in->plan->micro_batch / in->shape->unit_seqs;
    p->layers = (int)in->model->config.layers;
    p->first_trained = model_first_trained(in->model);
    carried_layout_init(&p->carries, in->model, in->shape);
    p->layouts = in->layouts ? in->layouts : &p->own_layouts;
    if (!in->layouts && layer_set_init(&p->own_layouts, in->model, in->shape, e))
        return PT_FAILED;
    p->micro_n = (int)(in->shape->units_n / micro_units);
    p->groups_n = p->micro_n / in->plan->visit;
    *sched = (schedule){.kind = kind, .micro_n = p->micro_n, .micro_units = micro_units};
    size_t chunks = (size_t)in->packing->chunks_n, blocks = (size_t)in->model->blocks_n, micros = (size_t)p->micro_n;
    p->b = (builder){.in = in, .s = sched, .e = e, .objects_n = (int)(4 * chunks + (blocks - 1) * micros)};
    p->b.objects = calloc((size_t)p->b.objects_n, sizeof *p->b.objects);
    p->block0 = calloc(2 * (blocks + 1), sizeof *p->block0);
    p->chunk_updated = calloc(chunks, 1);
    p->chunk_blocks = calloc(chunks, sizeof *p->chunk_blocks);
    p->accumulator = calloc(blocks, sizeof *p->accumulator);
    p->stream = calloc(micros, sizeof *p->stream);
    p->residual = calloc(micros, sizeof *p->residual);
    p->carried = calloc(2 * micros, sizeof *p->carried);
    p->open = calloc(micros, sizeof *p->open);
    p->carried_gradient = p->carried + micros;
    p->partial = calloc(8 * chunks + 6, sizeof *p->partial);
    p->scattered = p->partial + 2 * chunks + 2;
    p->scattered_block = p->scattered + 2 * chunks + 2;
    p->tied = p->scattered_block + 2 * chunks + 2;
    p->tied_chunk = p->tied + chunks;
    for (size_t c = 0; c < chunks && p->partial; c++)
        p->tied[c] = -1;
    if (!p->b.objects || !p->block0 || !p->chunk_updated || !p->chunk_blocks || !p->accumulator || !p->stream || !p->residual ||
        !p->carried || !p->open || !p->partial || list_chunks(p) < 0 || make_caches(p) < 0)
        return pt_fail(e, PT_FAILED, "out of memory while building a schedule");
    make_placements(p, kind);
    builder_start(&p->b);
    return p->b.failed;
}

static void program_close(program *p)
{
    builder_close(&p->b);
    free(p->block0);
    free(p->block_chunk);
    free(p->piece_chunk);
    free(p->chunk_updated);
    free(p->chunk_blocks);
    free(p->accumulator);
    free(p->stream);
    free(p->residual);
    free(p->carried);
    free(p->open);
    free(p->partial);
    layer_set_free(&p->own_layouts);
}

/* Does such a plan have such a schedule? */
static int check_kind(const schedule_input *in, schedule_kind kind, pt_error *e)
{
    bool step = kind == SCHEDULE_STEP || kind == SCHEDULE_STEP_UPDATE;
    bool waiting = kind == SCHEDULE_STEP_UPDATE || kind == SCHEDULE_DRAIN;
    if ((step || waiting) && !in->training)
        return pt_fail(e, PT_FAILED, "a model that is only evaluated has no training step; open it for training");
    if (waiting && in->plan->update == UPDATE_BACKWARD)
        return pt_fail(e, PT_FAILED, "the plan updates during backward, so no update ever waits: run the plain step");
    for (int c = 0; c < in->packing->chunks_n && !in->host_tier; c++)
        if (in->plan->chunks[c].placement == TIER_HOST || in->plan->chunks[c].update == TIER_HOST)
            return pt_fail(e, PT_FAILED,
                           "the plan's chunk %d uses the host tier, but this run has none: use device or disk, or give `host_memory`",
                           c);
    for (int b = 0; b < in->plan->blocks_n && !in->host_tier; b++)
        if (in->plan->blocks[b].place == TIER_HOST)
            return pt_fail(e, PT_FAILED,
                           "the plan's layer %d saves to the host tier, but this run has none: use device or disk, or give `host_memory`",
                           b);
    return 0;
}

int schedule_place(const schedule_input *in, schedule_kind kind, schedule *out, pt_error *e)
{
    program p;
    *out = (schedule){.kind = kind};
    if (check_kind(in, kind, e))
        return PT_FAILED;
    int failed = program_init(&p, in, kind, out, e);
    if (!failed) {
        p.b.recording = true;
        run_program(&p, kind);
        p.b.recording = false;
        run_program(&p, kind);
        cache_flush(&p.b);
        failed = p.b.failed;
    }
    if (!failed)
        failed = builder_sort(&p.b);
    program_close(&p);
    if (!failed)
        failed = schedule_layout(out, e);
    if (failed)
        schedule_free(out);
    return failed;
}

int schedule_build(const schedule_input *in, schedule_kind kind, schedule *out, pt_error *e)
{
    int failed = schedule_place(in, kind, out, e);
    if (!failed && (failed = schedule_link(out, e)))
        schedule_free(out);
    return failed;
}
