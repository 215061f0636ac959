/* check_task.c - what each kind of task reads and writes, from the model alone. */
#include "schedule/checker.h"

#include <string.h>

/* ---- wants ---- */

static want *add(checker *c, object_kind kind, int index, int micro)
{
    want *w = &c->wants[c->wants_n++];
    *w = (want){.kind = kind, .index = index, .micro = micro, .tier = TIER_DEVICE};
    return w;
}

static void reads(checker *c, object_kind kind, int index, int micro, int version)
{
    want *w = add(c, kind, index, micro);
    w->read = true;
    w->before = version;
}

static void writes(checker *c, object_kind kind, int index, int micro, int version)
{
    want *w = add(c, kind, index, micro);
    w->write = true;
    w->after = version;
}

/* Reads version `before`; 0: nothing was written yet, so it does not read. */
static void changes(checker *c, object_kind kind, int index, int micro, int before, int after)
{
    want *w = add(c, kind, index, micro);
    w->read = before != 0;
    w->write = true;
    w->before = before;
    w->after = after;
}

static void workspace(checker *c, uint64_t bytes)
{
    if (!bytes)
        return;
    want *w = add(c, OBJECT_WORKSPACE, -1, -1);
    w->write = true;
    w->bytes = bytes;
}

/* part NULL: all that the block reads. */
static int block_weights(checker *c, int i, int block, const layer_part *part)
{
    const block_facts *f = &c->blocks[block];
    for (int k = f->chunks0; k < f->chunks0 + f->chunks_n; k++) {
        int chunk = c->chunk_list[k];
        if (part && !schedule_part_reads(c->in, part, chunk))
            continue;
        if (c->s->kind == SCHEDULE_STEP_UPDATE && !c->weights[chunk] && c->chunk_blocks[chunk])
            return check_fail(c, i, -1, "reads the weights of chunk %d before their waiting update", chunk);
        if (c->weights[chunk] && c->weights[chunk] != whole_weights(c))
            return check_fail(c, i, -1, "reads the weights of chunk %d before those of other ranks' shards have come", chunk);
        reads(c, OBJECT_WEIGHTS, chunk, -1, c->weights[chunk]);
    }
    return 0;
}

/* ---- blocks ---- */

/* The fp32 stream, if the run has one. before 0: it is not read. */
static void residual(checker *c, int micro, int before, int after)
{
    if (residual_bytes(c->in->model, c->in->shape))
        changes(c, OBJECT_STREAM, -1, micro, before, after);
}

/* What layers hand on, and with `gradient` its gradients: versions count who has written or used it. */
static void carried(checker *c, int block, int micro, unsigned use, bool gradient)
{
    const object_kind kind = gradient ? OBJECT_CARRIED_GRADIENT : OBJECT_CARRIED;
    const int before = (gradient ? c->carried_gradient : c->carried)[micro];
    if (!use)
        return;
    want *w = add(c, kind, -1, micro);
    w->read = use & CARRIED_READ && !(gradient && carried_begins(c->in->model, block));
    w->write = use & CARRIED_WRITE;
    w->before = before;
    w->after = before + 1;
}

static void rope(checker *c)
{
    if (c->in->model->config.ropes_n)
        reads(c, OBJECT_ROPE, -1, -1, 0);
}

/* Micro-batches must be added in ascending order, those of a visit in each part of a layer before its next part. A block without trained
 * parameters has no sums. */
static int sum_up(checker *c, int i, int block, int micro, int part)
{
    const int visit = c->in->plan->visit, parts = parts_n(c, block, true);
    const int in = parts > 1 ? micro / visit * visit * parts + part * visit + micro % visit : micro;
    if (!has_accumulator(c, block))
        return 0;
    if (c->accumulator[block] != in)
        return check_fail(c, i, -1, "gradients are summed in ascending order, and %d micro-batches are in", c->accumulator[block]);
    changes(c, OBJECT_ACCUMULATOR, block, -1, in, in + 1);
    return 0;
}

/* The workspace of a layer: of a task, or kept from part to part. */
static void layer_workspace(checker *c, int block, int micro, bool backward, int part)
{
    const block_facts *f = &c->blocks[block];
    const uint64_t bytes = backward ? f->backward_bytes : f->forward_bytes;
    if (parts_n(c, block, backward) == 1) {
        workspace(c, bytes);
        return;
    }
    changes(c, OBJECT_OPEN, block, micro, part, part + 1);
    c->wants[c->wants_n - 1].bytes = align_up(bytes, 4096) * (uint64_t)c->micro_units;
}

/* What all parts of a layer change: the version before a part, and after it. */
static int before_part(int block, int part, bool backward, int first)
{
    return part ? check_partial(block, part - 1, backward) : first;
}
static int after_part(const checker *c, int block, int part, bool backward, int last)
{
    return part < parts_n(c, block, backward) - 1 ? check_partial(block, part, backward) : last;
}

static int residual_gradient(const checker *c, int block) { return 2 * (c->layers + 2) - block; }

static int tiers_looked_up(const checker *c) { return schedule_looks_up(c->in, TIER_HOST) + schedule_looks_up(c->in, TIER_DISK); }

static int look_up_wants(checker *c, int i, int micro)
{
    const queue_kind q = c->s->tasks[i].queue;
    const tier t = q == QUEUE_HOST ? TIER_HOST : TIER_DISK;
    if (q != QUEUE_HOST && q != QUEUE_READ)
        return check_fail(c, i, -1, "stands in queue %s; rows are looked up in queue host or read", queue_names[q]);
    if (!schedule_looks_up(c->in, t) || (t == TIER_HOST && c->rows[micro] + 1 < tiers_looked_up(c)))
        return check_fail(c, i, -1, "looks up nothing on the %s, or too early", tier_names[t]);
    changes(c, OBJECT_ROWS, -1, micro, c->rows[micro], c->rows[micro] + 1);
    c->wants[c->wants_n - 1].tier = schedule_memory(c->in);
    for (int k = 0; k < c->chunks_n; k++)
        if (plan_looks_up(&c->in->plan->chunks[k], &c->in->packing->chunks[k]) && c->in->plan->chunks[k].placement == t) {
            if (c->s->kind == SCHEDULE_STEP_UPDATE && !c->weights[k] && c->chunk_blocks[k])
                return check_fail(c, i, -1, "looks up rows of chunk %d before its waiting update", k);
            reads(c, OBJECT_WEIGHTS, k, -1, c->weights[k]);
            c->wants[c->wants_n - 1].tier = t;
        }
    return 0;
}

static int forward_wants(checker *c, int i, int block, int micro, int part)
{
    const block_facts *f = &c->blocks[block];
    const bool last = part == parts_n(c, block, false) - 1, writes_saved = f->complete != 1;
    const int saved = writes_saved ? before_part(block, part, false, 1) : 1;
    if (c->saved[saved_at(c, block + 1, micro)])
        return check_fail(c, i, -1, "the micro-batch has passed the block already");
    if (block > 0 && (c->saved[saved_at(c, block, micro)] != saved || c->ahead[saved_at(c, block, micro)] != part))
        return check_fail(c, i, -1, "the block's input is not there yet, or another part of it comes next");
    if (block > 0) {
        changes(c, OBJECT_SAVED, block, micro, saved, writes_saved ? after_part(c, block, part, false, f->complete) : 1);
        c->wants[c->wants_n - 1].write = writes_saved;
        layer_workspace(c, block, micro, false, part);
        rope(c);
    }
    if (block == 0 && tiers_looked_up(c))
        reads(c, OBJECT_ROWS, -1, micro, tiers_looked_up(c));
    if (last)
        writes(c, OBJECT_SAVED, block + 1, micro, 1);
    if (is_step(c) && has_experts(c, block))
        writes(c, OBJECT_ROUTING, -1, -1, c->routed + 1);
    residual(c, micro, before_part(block, part, false, block), after_part(c, block, part, false, block + 1));
    carried(c, block, micro, carried_use_of(c->in->model, block).forward, false);
    reads(c, OBJECT_BATCH, -1, -1, 1);
    return block_weights(c, i, block, block > 0 ? &f->forward.part[part] : NULL);
}

static int head_wants(checker *c, int i, int micro, bool eval)
{
    int block = c->layers + 1;
    if (c->head_done[micro])
        return check_fail(c, i, -1, "the micro-batch has passed the head already");
    reads(c, OBJECT_SAVED, block, micro, 1);
    reads(c, OBJECT_BATCH, -1, -1, 1);
    writes(c, OBJECT_LOSS, -1, -1, c->losses + 1);
    workspace(c, c->blocks[block].forward_bytes);
    if (!eval && c->first_trained < block) {
        writes(c, OBJECT_STREAM_GRADIENT, -1, micro, block);
        residual(c, micro, 0, residual_gradient(c, block));
    }
    int failed = eval ? 0 : sum_up(c, i, block, micro, 0);
    return failed ? failed : block_weights(c, i, block, NULL);
}

static int backward_wants(checker *c, int i, int block, int micro, int part)
{
    const block_facts *f = &c->blocks[block];
    if (c->back[saved_at(c, block, micro)] != part)
        return check_fail(c, i, -1, "another part of the layer comes next");
    if (c->stream[micro] != block + 1)
        return check_fail(c, i, -1, "the gradient of the block's output is not what the micro-batch has got to");
    if (block < c->first_trained)
        return check_fail(c, i, -1, "nothing is trained in the block or before it");
    reads(c, OBJECT_SAVED, block, micro, f->complete);
    layer_workspace(c, block, micro, true, part);
    changes(c, OBJECT_STREAM_GRADIENT, -1, micro, before_part(block, part, true, block + 1), after_part(c, block, part, true, block));
    residual(c, micro, before_part(block, part, true, residual_gradient(c, block + 1)),
             after_part(c, block, part, true, residual_gradient(c, block)));
    carried(c, block, micro, carried_use_of(c->in->model, block).backward, false);
    carried(c, block, micro, carried_use_of(c->in->model, block).gradient, true);
    reads(c, OBJECT_BATCH, -1, -1, 1);
    rope(c);
    if (c->in->shape->router_aux > 0 && has_experts(c, block))
        reads(c, OBJECT_ROUTING, -1, -1, c->routed);
    int failed = sum_up(c, i, block, micro, part);
    return failed ? failed : block_weights(c, i, block, &f->backward.part[part]);
}

/* ---- chunks ---- */

static bool has_tied_rows(const checker *c, int chunk) { return chunk_has_tied_rows(c->in->packing, c->in->model, chunk); }

/* What the gradients of the embedding's tables are summed from. */
static void gradients(checker *c)
{
    for (int m = 0; m < c->micro_n; m++) {
        reads(c, OBJECT_STREAM_GRADIENT, -1, m, 1);
        if (inputs_are_trained(c->in->model) && is_shared(c))
            reads(c, OBJECT_CARRIED_GRADIENT, -1, m, c->layers);
    }
}

static int rows_finish_wants(checker *c, int i)
{
    if (c->rows_gradient)
        return check_fail(c, i, -1, "the gradients of rows are finished already");
    for (int k = 0; k < c->chunks_n && c->s->kind == SCHEDULE_STEP_UPDATE; k++)
        if (chunk_has_rows(c->in->packing, k) && !c->weights[k])
            return check_fail(c, i, -1, "overwrites the gradients that wait for the update of chunk %d", k);
    writes(c, OBJECT_ROWS_GRADIENT, -1, -1, 1);
    writes(c, OBJECT_SUMSQ, -1, -1, c->sums + 1);
    workspace(c, embedding_sums_bytes(c->in->model, c->in->shape));
    reads(c, OBJECT_BATCH, -1, -1, 1);
    for (int m = 0; m < c->micro_n; m++)
        reads(c, OBJECT_CARRIED_GRADIENT, -1, m, c->layers);
    return 0;
}

static int finish_wants(checker *c, int i, int block, int chunk)
{
    const schedule_input *in = c->in;
    if (!c->pieces_of[piece_at(c, block, chunk)])
        return check_fail(c, i, -1, "the chunk has nothing of the block that is trained");
    if (c->finished[piece_at(c, block, chunk)])
        return check_fail(c, i, -1, "the gradient is finished already");
    if (c->s->kind == SCHEDULE_STEP_UPDATE && !c->weights[chunk])
        return check_fail(c, i, -1, "overwrites the gradient that waits for its update");
    changes(c, OBJECT_GRADIENT, chunk, -1, c->gradient[chunk], c->gradient[chunk] + 1);
    writes(c, OBJECT_SUMSQ, -1, -1, c->sums + 1);
    if (is_shared(c)) {
        if (!c->scattered[piece_at(c, block, chunk)])
            return check_fail(c, i, -1, "the sums of other ranks have not come");
        if (block == 0 && has_tied_rows(c, chunk) && !c->tied_scattered[chunk])
            return check_fail(c, i, -1, "the head's sums of other ranks have not come");
        changes(c, OBJECT_PARTIAL, chunk, block, 1, 2);
        if (block == 0 && has_tied_rows(c, chunk))
            changes(c, OBJECT_PARTIAL_TIED, chunk, -1, 1, 2);
        reads(c, OBJECT_ACCUMULATOR, block, -1, all_sums(c, block));
        return 0;
    }
    if (block > 0) {
        reads(c, OBJECT_ACCUMULATOR, block, -1, all_sums(c, block));
        return 0;
    }
    workspace(c, embedding_sums_bytes(in->model, in->shape));
    reads(c, OBJECT_BATCH, -1, -1, 1);
    gradients(c);
    if (head_adds_to_embedding(in->model))
        reads(c, OBJECT_ACCUMULATOR, c->layers + 1, -1, c->micro_n);
    return 0;
}

/* ---- several ranks ---- */

static int embed_backward_wants(checker *c, int i)
{
    if (c->accumulator[0])
        return check_fail(c, i, -1, "the embedding's gradients are summed up already");
    writes(c, OBJECT_ACCUMULATOR, 0, -1, c->micro_n);
    reads(c, OBJECT_BATCH, -1, -1, 1);
    gradients(c);
    return 0;
}

static int scatter_wants(checker *c, int i, int block, int chunk)
{
    if (!c->pieces_of[piece_at(c, block, chunk)])
        return check_fail(c, i, -1, "the chunk has nothing of the block that is trained");
    if (c->scattered[piece_at(c, block, chunk)])
        return check_fail(c, i, -1, "the sums were sent already");
    reads(c, OBJECT_ACCUMULATOR, block, -1, all_sums(c, block));
    writes(c, OBJECT_PARTIAL, chunk, block, 1);
    return 0;
}

static int scatter_tied_wants(checker *c, int i, int chunk)
{
    if (!has_tied_rows(c, chunk))
        return check_fail(c, i, -1, "the chunk has no rows of a tied table that is trained");
    if (c->tied_scattered[chunk])
        return check_fail(c, i, -1, "the sums were sent already");
    reads(c, OBJECT_ACCUMULATOR, c->layers + 1, -1, c->micro_n);
    writes(c, OBJECT_PARTIAL_TIED, chunk, -1, 1);
    return 0;
}

static bool is_sharded(const checker *c, int chunk) { return c->in->plan->chunks[chunk].sharded; }

static int gather_wants(checker *c, int i, int chunk)
{
    if (is_sharded(c, chunk)) {
        reads(c, OBJECT_SHARD, chunk, -1, c->weights[chunk]);
        writes(c, OBJECT_WEIGHTS, chunk, -1, c->weights[chunk]);
        return 0;
    }
    if (c->weights[chunk] != 1)
        return check_fail(c, i, -1, "the chunk's shard is not updated, or its weights have come already");
    changes(c, OBJECT_WEIGHTS, chunk, -1, 1, 2);
    c->wants[c->wants_n - 1].tier = c->in->plan->chunks[chunk].update;
    return 0;
}

static int update_wants(checker *c, int i, int chunk)
{
    tier t = c->in->plan->chunks[chunk].update;
    bool backward = c->s->kind == SCHEDULE_STEP;
    if (c->s->kind == SCHEDULE_EVAL || (backward && c->waits))
        return check_fail(c, i, -1, "this schedule updates nothing");
    if (c->weights[chunk] || !c->chunk_blocks[chunk])
        return check_fail(c, i, -1, "the chunk is %s", c->weights[chunk] ? "updated already" : "frozen");
    if (c->s->tasks[i].queue != (t == TIER_HOST ? QUEUE_HOST : QUEUE_COMPUTE))
        return check_fail(c, i, -1, "stands in queue %s, and the plan updates the chunk on the %s", queue_names[c->s->tasks[i].queue],
                          tier_names[t]);
    if (backward && (chunk_has_rows(c->in->packing, chunk) ? c->rows_gradient : c->gradient[chunk]) != c->chunk_blocks[chunk])
        return check_fail(c, i, -1, "the gradient has the pieces of %d blocks of %d", c->gradient[chunk], c->chunk_blocks[chunk]);
    const bool rows = chunk_has_rows(c->in->packing, chunk);
    want *w[3] = {add(c, kept_weights(c->in, chunk), chunk, -1), add(c, OBJECT_STATES, chunk, -1),
                  rows ? add(c, OBJECT_ROWS_GRADIENT, -1, -1) : add(c, OBJECT_GRADIENT, chunk, -1)};
    for (int k = 0; k < 3; k++) {
        w[k]->tier = t;
        w[k]->read = true;
        w[k]->write = k < 2;
        w[k]->after = 1;
    }
    w[0]->after = is_sharded(c, chunk) ? whole_weights(c) : 1;
    w[2]->before = rows ? c->rows_gradient : c->gradient[chunk];
    workspace(c, c->in->packing->chunks[chunk].update_bytes);
    c->wants[c->wants_n - 1].tier = t;
    return 0;
}

/* ---- copies ---- */

static int newest(const checker *c, const buffer *b)
{
    switch (b->kind) {
    case OBJECT_WEIGHTS: case OBJECT_SHARD: return c->weights[b->index];
    case OBJECT_STATES: return c->states[b->index];
    case OBJECT_GRADIENT: return c->gradient[b->index];
    case OBJECT_ROWS: return c->rows[b->micro];
    case OBJECT_ROWS_GRADIENT: return c->rows_gradient;
    default: return c->saved[saved_at(c, b->index, b->micro)];
    }
}

static bool copy_reaches(const checker *c, const task *t, tier from, tier to)
{
    const tier memory = schedule_memory(c->in);
    switch (t->kind) {
    case TASK_READ: return t->queue == QUEUE_READ && from == TIER_DISK && to == memory;
    case TASK_WRITE: return t->queue == QUEUE_WRITE && from == memory && to == TIER_DISK;
    default:
        return (t->queue == QUEUE_TO_DEVICE && from == TIER_HOST && to == TIER_DEVICE) ||
               (t->queue == QUEUE_FROM_DEVICE && from == TIER_DEVICE && to == TIER_HOST);
    }
}

static int copy_wants(checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    if (t->operands_n != 2)
        return check_fail(c, i, -1, "a copy has a source and a destination, not %d operands", t->operands_n);
    const operand *o = c->s->operands + t->operand0;
    const buffer *from = &c->s->buffers[o[0].buffer], *to = &c->s->buffers[o[1].buffer];
    if (!o[0].read || o[0].write || o[1].read || !o[1].write)
        return check_fail(c, i, -1, "a copy reads its first operand and writes its second");
    const bool is_moved = from->kind <= OBJECT_SAVED || from->kind == OBJECT_ROWS || from->kind == OBJECT_ROWS_GRADIENT;
    if (!is_moved || from->kind != to->kind || from->index != to->index || from->micro != to->micro)
        return check_fail(c, i, o[1].buffer, "is not the place for what buffer %d holds", o[0].buffer);
    bool saved = from->kind == OBJECT_SAVED;
    if (t->block != (saved ? from->index : -1) || t->micro != from->micro || t->chunk != (saved ? -1 : from->index))
        return check_fail(c, i, o[0].buffer, "is not what the task says it moves");
    if (!copy_reaches(c, t, from->tier, to->tier))
        return check_fail(c, i, o[1].buffer, "cannot be copied from the %s in queue %s", tier_names[from->tier], queue_names[t->queue]);
    int version = newest(c, from);
    reads(c, from->kind, from->index, from->micro, version);
    writes(c, to->kind, to->index, to->micro, version);
    c->wants[0].tier = from->tier;
    c->wants[1].tier = to->tier;
    return 0;
}

static int input_output_wants(checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    bool input = t->kind == TASK_INPUT;
    if (t->queue != (input ? QUEUE_TO_DEVICE : QUEUE_FROM_DEVICE))
        return check_fail(c, i, -1, "stands in queue %s", queue_names[t->queue]);
    if (c->s->kind == SCHEDULE_DRAIN || (input ? c->inputs : c->outputs))
        return check_fail(c, i, -1, "is not wanted, or is there already");
    if (input) {
        writes(c, OBJECT_BATCH, -1, -1, 1);
        return 0;
    }
    reads(c, OBJECT_LOSS, -1, -1, c->micro_n);
    if (is_step(c))
        reads(c, OBJECT_SUMSQ, -1, -1, c->sums_needed);
    if (is_step(c) && c->routed_needed)
        reads(c, OBJECT_ROUTING, -1, -1, c->routed_needed);
    return 0;
}

/* ---- */

/* Checks which of block, micro-batch and chunk the task has, and whether such a task may be at this place. */
static bool has_place(const checker *c, const task *t)
{
    bool block, micro, chunk;
    switch (t->kind) {
    case TASK_EMBED: case TASK_LOOK_UP: block = t->block == 0; micro = true; chunk = false; break;
    case TASK_LAYER: case TASK_LAYER_BACKWARD: block = t->block >= 1 && t->block <= c->layers; micro = true; chunk = false; break;
    case TASK_HEAD: case TASK_HEAD_EVAL: block = t->block == c->layers + 1; micro = true; chunk = false; break;
    case TASK_FINISH: block = has_accumulator(c, t->block); micro = false; chunk = true; break;
    case TASK_EMBED_FINISH: block = t->block == 0 && !is_shared(c); micro = false; chunk = true; break;
    case TASK_ROWS_FINISH: block = t->block == 0 && gradient_has_rows(c->in->model, c->in->shape); micro = chunk = false; break;
    case TASK_UPDATE: block = t->block == -1; micro = false; chunk = true; break;
    case TASK_EMBED_BACKWARD: block = t->block == 0 && has_accumulator(c, 0); micro = chunk = false; break;
    case TASK_SCATTER: block = has_accumulator(c, t->block); micro = false; chunk = true; break;
    case TASK_SCATTER_TIED: block = t->block == c->layers + 1; micro = false; chunk = true; break;
    case TASK_GATHER: block = t->block == -1; micro = false; chunk = true; break;
    case TASK_INPUT: case TASK_OUTPUT: block = t->block == -1; micro = chunk = false; break;
    default: return !t->first && !t->part;
    }
    bool forward = t->kind == TASK_EMBED || t->kind == TASK_LOOK_UP || t->kind == TASK_LAYER ||
                   t->kind == TASK_INPUT || t->kind == TASK_OUTPUT;
    const bool of_ranks = t->kind == TASK_EMBED_BACKWARD || t->kind == TASK_SCATTER || t->kind == TASK_SCATTER_TIED ||
                          t->kind == TASK_GATHER;
    if (of_ranks && (!is_shared(c) || (t->kind == TASK_EMBED_BACKWARD) != (t->queue == QUEUE_COMPUTE) ||
                     (t->kind != TASK_EMBED_BACKWARD && t->queue != QUEUE_RANKS)))
        return false;
    bool here = t->kind == TASK_UPDATE || t->kind == TASK_GATHER ||
        (t->kind == TASK_HEAD_EVAL ? c->s->kind == SCHEDULE_EVAL : is_step(c)) ||
                (forward && c->s->kind == SCHEDULE_EVAL);
    const bool of_layer = t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD;
    const bool part = block && t->part >= 0 && t->part < (of_layer ? parts_n(c, t->block, t->kind == TASK_LAYER_BACKWARD) : 1);
    bool first = (t->kind == TASK_HEAD || t->kind == TASK_LAYER_BACKWARD || t->kind == TASK_HEAD_EVAL) && t->micro == 0;
    return block && part && here && (t->micro >= 0) == micro && (t->chunk >= 0) == chunk && t->first == first;
}

int check_task_wants(checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    c->wants_n = 0;
    if (!has_place(c, t))
        return check_fail(c, i, -1, "has no place in this schedule, or a wrong block, micro-batch, chunk or mark of the first");
    switch (t->kind) {
    case TASK_INPUT: case TASK_OUTPUT: return input_output_wants(c, i);
    case TASK_COPY: case TASK_READ: case TASK_WRITE: return copy_wants(c, i);
    case TASK_LOOK_UP: return look_up_wants(c, i, t->micro);
    case TASK_EMBED: case TASK_LAYER: return forward_wants(c, i, t->block, t->micro, t->part);
    case TASK_HEAD: case TASK_HEAD_EVAL: return head_wants(c, i, t->micro, t->kind == TASK_HEAD_EVAL);
    case TASK_LAYER_BACKWARD: return backward_wants(c, i, t->block, t->micro, t->part);
    case TASK_FINISH: case TASK_EMBED_FINISH: return finish_wants(c, i, t->block, t->chunk);
    case TASK_ROWS_FINISH: return rows_finish_wants(c, i);
    case TASK_EMBED_BACKWARD: return embed_backward_wants(c, i);
    case TASK_SCATTER: return scatter_wants(c, i, t->block, t->chunk);
    case TASK_SCATTER_TIED: return scatter_tied_wants(c, i, t->chunk);
    case TASK_GATHER: return gather_wants(c, i, t->chunk);
    default: return update_wants(c, i, t->chunk);
    }
}

void check_task_done(checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    switch (t->kind) {
    case TASK_INPUT: c->inputs++; break;
    case TASK_OUTPUT: c->outputs++; break;
    case TASK_LOOK_UP: c->rows[t->micro]++; break;
    case TASK_EMBED: case TASK_LAYER:
        if (c->blocks[t->block].complete != 1)
            c->saved[saved_at(c, t->block, t->micro)] = after_part(c, t->block, t->part, false, c->blocks[t->block].complete);
        else
            c->saved[saved_at(c, t->block, t->micro)] = 1;
        c->ahead[saved_at(c, t->block, t->micro)]++;
        c->saved[saved_at(c, t->block + 1, t->micro)] = t->part == parts_n(c, t->block, false) - 1;
        c->routed += has_experts(c, t->block);
        c->carried[t->micro] += (carried_use_of(c->in->model, t->block).forward & CARRIED_WRITE) != 0;
        break;
    case TASK_HEAD:
        c->stream[t->micro] = c->first_trained < t->block ? t->block : c->stream[t->micro];
        c->accumulator[t->block]++;
        /* fall through */
    case TASK_HEAD_EVAL:
        c->head_done[t->micro] = 1;
        c->losses++;
        break;
    case TASK_LAYER_BACKWARD:
        c->back[saved_at(c, t->block, t->micro)]++;
        c->stream[t->micro] = t->part == parts_n(c, t->block, true) - 1 ? t->block : c->stream[t->micro];
        c->carried_gradient[t->micro] += (carried_use_of(c->in->model, t->block).gradient & CARRIED_WRITE) != 0;
        c->accumulator[t->block]++;
        break;
    case TASK_FINISH: case TASK_EMBED_FINISH:
        c->finished[piece_at(c, t->block, t->chunk)] = 1;
        c->gradient[t->chunk]++;
        c->sums++;
        break;
    case TASK_ROWS_FINISH:
        c->rows_gradient = 1;
        c->sums++;
        break;
    case TASK_UPDATE:
        c->weights[t->chunk] = is_sharded(c, t->chunk) ? whole_weights(c) : 1;
        c->states[t->chunk] = 1;
        break;
    case TASK_EMBED_BACKWARD: c->accumulator[0] = c->micro_n; break;
    case TASK_SCATTER: c->scattered[piece_at(c, t->block, t->chunk)] = 1; break;
    case TASK_SCATTER_TIED: c->tied_scattered[t->chunk] = 1; break;
    case TASK_GATHER: c->weights[t->chunk] = is_sharded(c, t->chunk) ? c->weights[t->chunk] : whole_weights(c); break;
    default: break;
    }
}
