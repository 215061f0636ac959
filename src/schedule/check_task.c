/* check_task.c - what each kind of task reads and writes, from the model alone. */
#include "schedule/checker.h"

#include <string.h>

/* ---- wants ---- */

static want *add(checker *checker, object_kind kind, int index, int micro)
{
    want *w = &checker->wants[checker->wants_n++];
    *w = (want){.kind = kind, .index = index, .micro = micro, .tier = TIER_DEVICE};
    return w;
}

static void reads(checker *checker, object_kind kind, int index, int micro, int version)
{
    want *w = add(checker, kind, index, micro);
    w->read = true;
    w->before = version;
}

static void writes(checker *checker, object_kind kind, int index, int micro, int version)
{
    want *w = add(checker, kind, index, micro);
    w->write = true;
    w->after = version;
}

/* Reads version `before`; 0: nothing was written yet, so it does not read. */
static void changes(checker *checker, object_kind kind, int index, int micro, int before, int after)
{
    want *w = add(checker, kind, index, micro);
    w->read = before != 0;
    w->write = true;
    w->before = before;
    w->after = after;
}

static void workspace(checker *checker, uint64_t bytes)
{
    if (!bytes)
        return;
    want *w = add(checker, OBJECT_WORKSPACE, -1, -1);
    w->write = true;
    w->bytes = bytes;
}

/* part NULL: all that the block reads. */
static int block_weights(checker *checker, int i, int block, const layer_part *part)
{
    const block_facts *f = &checker->blocks[block];
    for (int k = f->chunks0; k < f->chunks0 + f->chunks_n; k++) {
        int chunk = checker->chunk_list[k];
        if (part && !schedule_part_reads(checker->in, part, chunk))
            continue;
        if (checker->s->kind == SCHEDULE_STEP_UPDATE && !checker->weights[chunk] && checker->chunk_blocks[chunk])
            return check_fail(checker, i, -1, "reads the weights of chunk %d before their waiting update", chunk);
        if (checker->weights[chunk] && checker->weights[chunk] != whole_weights(checker))
            return check_fail(checker, i, -1, "reads the weights of chunk %d before those of other ranks' shards have come", chunk);
        reads(checker, OBJECT_WEIGHTS, chunk, -1, checker->weights[chunk]);
    }
    return 0;
}

/* ---- blocks ---- */

/* The fp32 stream, if the run has one. before 0: it is not read. */
static void residual(checker *checker, int micro, int before, int after)
{
    if (residual_bytes(checker->in->model, checker->in->shape))
        changes(checker, OBJECT_STREAM, -1, micro, before, after);
}

/* What layers hand on, and with `gradient` its gradients: versions count who has written or used it. */
static void carried(checker *checker, int block, int micro, unsigned use, bool gradient, int part)
{
    const object_kind kind = gradient ? OBJECT_CARRIED_GRADIENT : OBJECT_CARRIED;
    const int before = (gradient ? checker->carried_gradient : checker->carried)[micro];
    if (!use)
        return;
    want *w = add(checker, kind, -1, micro);
    w->read = use & CARRIED_READ && !(gradient && !part && carried_begins(checker->in->model, block));
    w->write = use & CARRIED_WRITE;
    w->before = before;
    w->after = before + 1;
}

static void rope(checker *checker)
{
    if (checker->in->model->config.ropes_n)
        reads(checker, OBJECT_ROPE, -1, -1, 0);
}

/* Micro-batches must be added in ascending order, those of a visit in each part of a layer before its next part; if sequences are divided,
 * each in all parts. A block without trained parameters has no sums. */
static int sum_up(checker *checker, int i, int block, int micro, int part)
{
    const int visit = is_divided(checker) ? 1 : checker->in->plan->visit, parts = sums_n(checker, block);
    const int before = parts > 1 ? parts_before(&checker->blocks[block].backward, part) : 0;
    const int in = parts > 1 ? micro / visit * visit * parts + before * visit + micro % visit : micro;
    if (!has_accumulator(checker, block))
        return 0;
    if (checker->accumulator[block] != in)
        return check_fail(checker, i, -1, "gradients are summed in ascending order, and %d micro-batches are in",
                          checker->accumulator[block]);
    changes(checker, OBJECT_ACCUMULATOR, block, -1, in, in + 1);
    return 0;
}

/* The workspace of a layer: of a task, or kept from part to part. */
static void layer_workspace(checker *checker, int block, int micro, bool backward, int part)
{
    const block_facts *f = &checker->blocks[block];
    const uint64_t bytes = backward ? f->backward_bytes : f->forward_bytes;
    if (parts_n(checker, block, backward) == 1) {
        workspace(checker, bytes);
        return;
    }
    changes(checker, OBJECT_OPEN, block, micro, part, part + 1);
    checker->wants[checker->wants_n - 1].bytes = (backward ? f->backward_open : f->forward_open) * (uint64_t)checker->micro_units;
}

/* Rows for heads, or back, between two parts of a layer. */
static int heads_wants(checker *checker, int i, const task *t)
{
    const int *parts = t->backward ? checker->back : checker->ahead;
    if (parts[saved_at(checker, t->block, t->micro)] != t->part)
        return check_fail(checker, i, -1, "another part of the layer comes next");
    layer_workspace(checker, t->block, t->micro, t->backward, t->part);
    return 0;
}

/* What all parts of a layer change: the version before a part, and after it. */
static int before_part(const checker *checker, int block, int part, bool backward, int first)
{
    const layer_parts *parts = backward ? &checker->blocks[block].backward : &checker->blocks[block].forward;
    while (part > 0 && parts->part[part - 1].kind == PART_EXCHANGE)
        part--;
    return part ? check_partial(block, part - 1, backward) : first;
}
static int after_part(const checker *checker, int block, int part, bool backward, int last)
{
    return part < parts_n(checker, block, backward) - 1 ? check_partial(block, part, backward) : last;
}

static int residual_gradient(const checker *checker, int block) { return 2 * (checker->layers + 2) - block; }

static int tiers_looked_up(const checker *checker)
{
    return schedule_looks_up(checker->in, TIER_HOST) + schedule_looks_up(checker->in, TIER_DISK);
}

static int look_up_wants(checker *checker, int i, int micro)
{
    const queue_kind q = checker->s->tasks[i].queue;
    const tier t = q == QUEUE_HOST ? TIER_HOST : TIER_DISK;
    if (q != QUEUE_HOST && q != QUEUE_READ)
        return check_fail(checker, i, -1, "stands in queue %s; rows are looked up in queue host or read", queue_names[q]);
    if (!schedule_looks_up(checker->in, t) || (t == TIER_HOST && checker->rows[micro] + 1 < tiers_looked_up(checker)))
        return check_fail(checker, i, -1, "looks up nothing on the %s, or too early", tier_names[t]);
    changes(checker, OBJECT_ROWS, -1, micro, checker->rows[micro], checker->rows[micro] + 1);
    checker->wants[checker->wants_n - 1].tier = schedule_memory(checker->in);
    for (int k = 0; k < checker->chunks_n; k++)
        if (plan_looks_up(&checker->in->plan->chunks[k], &checker->in->packing->chunks[k]) && checker->in->plan->chunks[k].placement == t) {
            if (checker->s->kind == SCHEDULE_STEP_UPDATE && !checker->weights[k] && checker->chunk_blocks[k])
                return check_fail(checker, i, -1, "looks up rows of chunk %d before its waiting update", k);
            reads(checker, OBJECT_WEIGHTS, k, -1, checker->weights[k]);
            checker->wants[checker->wants_n - 1].tier = t;
        }
    return 0;
}

static int forward_wants(checker *checker, int i, int block, int micro, int part)
{
    const block_facts *f = &checker->blocks[block];
    const bool last = part == parts_n(checker, block, false) - 1, writes_saved = f->complete != 1;
    const int saved = writes_saved ? before_part(checker, block, part, false, 1) : 1;
    if (checker->saved[saved_at(checker, block + 1, micro)])
        return check_fail(checker, i, -1, "the micro-batch has passed the block already");
    if (block > 0 && (checker->saved[saved_at(checker, block, micro)] != saved || checker->ahead[saved_at(checker, block, micro)] != part))
        return check_fail(checker, i, -1, "the block's input is not there yet, or another part of it comes next");
    if (block > 0) {
        changes(checker, OBJECT_SAVED, block, micro, saved, writes_saved ? after_part(checker, block, part, false, f->complete) : 1);
        checker->wants[checker->wants_n - 1].write = writes_saved;
        layer_workspace(checker, block, micro, false, part);
        rope(checker);
    }
    if (block == 0 && tiers_looked_up(checker))
        reads(checker, OBJECT_ROWS, -1, micro, tiers_looked_up(checker));
    if (last)
        writes(checker, OBJECT_SAVED, block + 1, micro, 1);
    if (is_step(checker) && has_experts(checker, block))
        writes(checker, OBJECT_ROUTING, -1, -1, checker->routed + 1);
    residual(checker, micro, before_part(checker, block, part, false, block), after_part(checker, block, part, false, block + 1));
    carried(checker, block, micro, carried_use_of(checker->in->model, block).forward, false, part);
    reads(checker, OBJECT_BATCH, -1, -1, 1);
    return block_weights(checker, i, block, block > 0 ? &f->forward.part[part] : NULL);
}

static int head_wants(checker *checker, int i, int micro, bool eval)
{
    int block = checker->layers + 1;
    if (checker->head_done[micro])
        return check_fail(checker, i, -1, "the micro-batch has passed the head already");
    reads(checker, OBJECT_SAVED, block, micro, 1);
    reads(checker, OBJECT_BATCH, -1, -1, 1);
    writes(checker, OBJECT_LOSS, -1, -1, checker->losses + 1);
    workspace(checker, checker->blocks[block].forward_bytes);
    if (!eval && checker->first_trained < block) {
        writes(checker, OBJECT_STREAM_GRADIENT, -1, micro, block);
        residual(checker, micro, 0, residual_gradient(checker, block));
    }
    int failed = eval ? 0 : sum_up(checker, i, block, micro, 0);
    return failed ? failed : block_weights(checker, i, block, NULL);
}

static int backward_wants(checker *checker, int i, int block, int micro, int part)
{
    const block_facts *f = &checker->blocks[block];
    if (checker->back[saved_at(checker, block, micro)] != part)
        return check_fail(checker, i, -1, "another part of the layer comes next");
    if (checker->stream[micro] != block + 1)
        return check_fail(checker, i, -1, "the gradient of the block's output is not what the micro-batch has got to");
    if (block < checker->first_trained)
        return check_fail(checker, i, -1, "nothing is trained in the block or before it");
    reads(checker, OBJECT_SAVED, block, micro, f->complete);
    layer_workspace(checker, block, micro, true, part);
    changes(checker, OBJECT_STREAM_GRADIENT, -1, micro, before_part(checker, block, part, true, block + 1),
            after_part(checker, block, part, true, block));
    residual(checker, micro, before_part(checker, block, part, true, residual_gradient(checker, block + 1)),
             after_part(checker, block, part, true, residual_gradient(checker, block)));
    carried(checker, block, micro, carried_use_of(checker->in->model, block).backward, false, part);
    carried(checker, block, micro, carried_use_of(checker->in->model, block).gradient, true, part);
    reads(checker, OBJECT_BATCH, -1, -1, 1);
    rope(checker);
    if (checker->in->shape->router_aux > 0 && has_experts(checker, block))
        reads(checker, OBJECT_ROUTING, -1, -1, checker->routed);
    int failed = sum_up(checker, i, block, micro, part);
    return failed ? failed : block_weights(checker, i, block, &f->backward.part[part]);
}

/* ---- chunks ---- */

static bool has_tied_rows(const checker *checker, int chunk)
{
    return chunk_has_tied_rows(checker->in->packing, checker->in->model, chunk);
}

/* Tasks of backward that have changed the gradients of what layers hand on, when all have. */
static int all_carried(const checker *checker)
{
    int n = 0;
    for (int block = 1; block <= checker->layers; block++)
        n += carried_use_of(checker->in->model, block).gradient & CARRIED_WRITE ? sums_n(checker, block) : 0;
    return n;
}

/* What the gradients of the embedding's tables are summed from. */
static void gradients(checker *checker)
{
    for (int m = 0; m < checker->micro_n; m++)
        reads(checker, OBJECT_STREAM_GRADIENT, -1, m, 1);
}

/* Rows' gradients are written when no update waits for those before. */
static int rows_are_free(checker *checker, int i)
{
    for (int k = 0; k < checker->chunks_n && checker->s->kind == SCHEDULE_STEP_UPDATE; k++)
        if (chunk_has_rows(checker->in->packing, k) && !checker->weights[k])
            return check_fail(checker, i, -1, "overwrites the gradients that wait for the update of chunk %d", k);
    return 0;
}

static int rows_finish_wants(checker *checker, int i)
{
    if (checker->rows_gradient || checker->rows_sums)
        return check_fail(checker, i, -1, "the gradients of rows are finished already");
    if (rows_are_free(checker, i))
        return PT_FAILED;
    writes(checker, is_shared(checker) ? OBJECT_ROWS_SUMS : OBJECT_ROWS_GRADIENT, -1, -1, 1);
    writes(checker, OBJECT_SUMSQ, -1, -1, checker->sums + 1);
    workspace(checker, embedding_sums_bytes(checker->in->model, checker->in->shape));
    reads(checker, OBJECT_BATCH, -1, -1, 1);
    for (int m = 0; m < checker->micro_n; m++)
        reads(checker, OBJECT_CARRIED_GRADIENT, -1, m, all_carried(checker));
    return 0;
}

static bool has_listed_rows(const checker *checker, int block, int chunk)
{
    return block == 0 && chunk >= 0 && is_shared(checker) && chunk_has_rows(checker->in->packing, chunk);
}

/* Of a chunk's rows that all ranks have sent. */
static int finish_listed_wants(checker *checker, int i, int chunk)
{
    if (checker->finished[piece_at(checker, 0, chunk)])
        return check_fail(checker, i, -1, "the gradient is finished already");
    if (!checker->scattered[piece_at(checker, 0, chunk)])
        return check_fail(checker, i, -1, "the sums of other ranks have not come");
    if (rows_are_free(checker, i))
        return PT_FAILED;
    changes(checker, OBJECT_ROWS_GRADIENT, -1, -1, checker->rows_gradient, checker->rows_gradient + 1);
    writes(checker, OBJECT_SUMSQ, -1, -1, checker->sums + 1);
    reads(checker, OBJECT_ROWS_SUMS, -1, -1, 1);
    changes(checker, OBJECT_PARTIAL, chunk, 0, 1, 2);
    reads(checker, OBJECT_BATCH, -1, -1, 1);
    return 0;
}

static int finish_wants(checker *checker, int i, int block, int chunk)
{
    const schedule_input *in = checker->in;
    if (has_listed_rows(checker, block, chunk))
        return finish_listed_wants(checker, i, chunk);
    if (!checker->pieces_of[piece_at(checker, block, chunk)])
        return check_fail(checker, i, -1, "the chunk has nothing of the block that is trained");
    if (checker->finished[piece_at(checker, block, chunk)])
        return check_fail(checker, i, -1, "the gradient is finished already");
    if (checker->s->kind == SCHEDULE_STEP_UPDATE && !checker->weights[chunk])
        return check_fail(checker, i, -1, "overwrites the gradient that waits for its update");
    changes(checker, OBJECT_GRADIENT, chunk, -1, checker->gradient[chunk], checker->gradient[chunk] + 1);
    writes(checker, OBJECT_SUMSQ, -1, -1, checker->sums + 1);
    if (is_shared(checker)) {
        if (!checker->scattered[piece_at(checker, block, chunk)])
            return check_fail(checker, i, -1, "the sums of other ranks have not come");
        if (block == 0 && has_tied_rows(checker, chunk) && !checker->tied_scattered[chunk])
            return check_fail(checker, i, -1, "the head's sums of other ranks have not come");
        changes(checker, OBJECT_PARTIAL, chunk, block, 1, 2);
        if (block == 0 && has_tied_rows(checker, chunk))
            changes(checker, OBJECT_PARTIAL_TIED, chunk, -1, 1, 2);
        reads(checker, OBJECT_ACCUMULATOR, block, -1, all_sums(checker, block));
        return 0;
    }
    if (block > 0) {
        reads(checker, OBJECT_ACCUMULATOR, block, -1, all_sums(checker, block));
        return 0;
    }
    workspace(checker, embedding_sums_bytes(in->model, in->shape));
    reads(checker, OBJECT_BATCH, -1, -1, 1);
    gradients(checker);
    if (head_adds_to_embedding(in->model))
        reads(checker, OBJECT_ACCUMULATOR, checker->layers + 1, -1, checker->micro_n);
    return 0;
}

/* ---- several ranks ---- */

static int embed_backward_wants(checker *checker, int i)
{
    if (checker->accumulator[0])
        return check_fail(checker, i, -1, "the embedding's gradients are summed up already");
    writes(checker, OBJECT_ACCUMULATOR, 0, -1, checker->micro_n);
    reads(checker, OBJECT_BATCH, -1, -1, 1);
    gradients(checker);
    return 0;
}

static int scatter_wants(checker *checker, int i, int block, int chunk)
{
    const bool rows = has_listed_rows(checker, block, chunk);
    if (rows && !checker->rows_sums)
        return check_fail(checker, i, -1, "the sums of rows are not there yet");
    if (!rows && !checker->pieces_of[piece_at(checker, block, chunk)])
        return check_fail(checker, i, -1, "the chunk has nothing of the block that is trained");
    if (checker->scattered[piece_at(checker, block, chunk)])
        return check_fail(checker, i, -1, "the sums were sent already");
    if (rows)
        reads(checker, OBJECT_ROWS_SUMS, -1, -1, 1);
    else
        reads(checker, OBJECT_ACCUMULATOR, block, -1, all_sums(checker, block));
    writes(checker, OBJECT_PARTIAL, chunk, block, 1);
    return 0;
}

static int scatter_tied_wants(checker *checker, int i, int chunk)
{
    if (!has_tied_rows(checker, chunk))
        return check_fail(checker, i, -1, "the chunk has no rows of a tied table that is trained");
    if (checker->tied_scattered[chunk])
        return check_fail(checker, i, -1, "the sums were sent already");
    reads(checker, OBJECT_ACCUMULATOR, checker->layers + 1, -1, checker->micro_n);
    writes(checker, OBJECT_PARTIAL_TIED, chunk, -1, 1);
    return 0;
}

static bool is_sharded(const checker *checker, int chunk) { return checker->in->plan->chunks[chunk].sharded; }

static int gather_wants(checker *checker, int i, int chunk)
{
    if (is_sharded(checker, chunk)) {
        reads(checker, OBJECT_SHARD, chunk, -1, checker->weights[chunk]);
        writes(checker, OBJECT_WEIGHTS, chunk, -1, checker->weights[chunk]);
        return 0;
    }
    if (checker->weights[chunk] != 1)
        return check_fail(checker, i, -1, "the chunk's shard is not updated, or its weights have come already");
    changes(checker, OBJECT_WEIGHTS, chunk, -1, 1, 2);
    checker->wants[checker->wants_n - 1].tier = checker->in->plan->chunks[chunk].update;
    return 0;
}

static int update_wants(checker *checker, int i, int chunk)
{
    tier t = checker->in->plan->chunks[chunk].update;
    bool backward = checker->s->kind == SCHEDULE_STEP;
    if (checker->s->kind == SCHEDULE_EVAL || (backward && checker->waits))
        return check_fail(checker, i, -1, "this schedule updates nothing");
    if (checker->weights[chunk] || !checker->chunk_blocks[chunk])
        return check_fail(checker, i, -1, "the chunk is %s", checker->weights[chunk] ? "updated already" : "frozen");
    if (checker->s->tasks[i].queue != (t == TIER_HOST ? QUEUE_HOST : QUEUE_COMPUTE))
        return check_fail(checker, i, -1, "stands in queue %s, and the plan updates the chunk on the %s",
                          queue_names[checker->s->tasks[i].queue], tier_names[t]);
    const bool rows = chunk_has_rows(checker->in->packing, chunk);
    const int has = rows ? checker->rows_gradient : checker->gradient[chunk],
              needs = rows && is_shared(checker) ? checker->rows_chunks : checker->chunk_blocks[chunk];
    if (backward && has != needs)
        return check_fail(checker, i, -1, "the gradient has the pieces of %d %s of %d", has, rows ? "chunks" : "blocks", needs);
    want *w[3] = {add(checker, kept_weights(checker->in, chunk), chunk, -1), add(checker, OBJECT_STATES, chunk, -1),
                  rows ? add(checker, OBJECT_ROWS_GRADIENT, -1, -1) : add(checker, OBJECT_GRADIENT, chunk, -1)};
    for (int k = 0; k < 3; k++) {
        w[k]->tier = t;
        w[k]->read = true;
        w[k]->write = k < 2;
        w[k]->after = 1;
    }
    w[0]->after = is_sharded(checker, chunk) ? whole_weights(checker) : 1;
    w[2]->before = rows ? checker->rows_gradient : checker->gradient[chunk];
    workspace(checker, checker->in->packing->chunks[chunk].update_bytes);
    checker->wants[checker->wants_n - 1].tier = t;
    return 0;
}

/* ---- copies ---- */

static int newest(const checker *checker, const buffer *b)
{
    switch (b->kind) {
    case OBJECT_WEIGHTS: case OBJECT_SHARD: return checker->weights[b->index];
    case OBJECT_STATES: return checker->states[b->index];
    case OBJECT_GRADIENT: return checker->gradient[b->index];
    case OBJECT_ROWS: return checker->rows[b->micro];
    case OBJECT_ROWS_GRADIENT: return checker->rows_gradient;
    default: return checker->saved[saved_at(checker, b->index, b->micro)];
    }
}

static bool copy_reaches(const checker *checker, const task *t, tier from, tier to)
{
    const tier memory = schedule_memory(checker->in);
    switch (t->kind) {
    case TASK_READ: return t->queue == QUEUE_READ && from == TIER_DISK && to == memory;
    case TASK_WRITE: return t->queue == QUEUE_WRITE && from == memory && to == TIER_DISK;
    default:
        return (t->queue == QUEUE_TO_DEVICE && from == TIER_HOST && to == TIER_DEVICE) ||
               (t->queue == QUEUE_FROM_DEVICE && from == TIER_DEVICE && to == TIER_HOST);
    }
}

static int copy_wants(checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    if (t->operands_n != 2)
        return check_fail(checker, i, -1, "a copy has a source and a destination, not %d operands", t->operands_n);
    const operand *o = checker->s->operands + t->operand0;
    const buffer *from = &checker->s->buffers[o[0].buffer], *to = &checker->s->buffers[o[1].buffer];
    if (!o[0].read || o[0].write || o[1].read || !o[1].write)
        return check_fail(checker, i, -1, "a copy reads its first operand and writes its second");
    const bool is_moved = from->kind <= OBJECT_SAVED || from->kind == OBJECT_ROWS || from->kind == OBJECT_ROWS_GRADIENT;
    if (!is_moved || from->kind != to->kind || from->index != to->index || from->micro != to->micro)
        return check_fail(checker, i, o[1].buffer, "is not the place for what buffer %d holds", o[0].buffer);
    bool saved = from->kind == OBJECT_SAVED;
    if (t->block != (saved ? from->index : -1) || t->micro != from->micro || t->chunk != (saved ? -1 : from->index))
        return check_fail(checker, i, o[0].buffer, "is not what the task says it moves");
    if (!copy_reaches(checker, t, from->tier, to->tier))
        return check_fail(checker, i, o[1].buffer, "cannot be copied from the %s in queue %s", tier_names[from->tier],
                          queue_names[t->queue]);
    int version = newest(checker, from);
    reads(checker, from->kind, from->index, from->micro, version);
    writes(checker, to->kind, to->index, to->micro, version);
    checker->wants[0].tier = from->tier;
    checker->wants[1].tier = to->tier;
    return 0;
}

static int input_output_wants(checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    bool input = t->kind == TASK_INPUT;
    if (t->queue != (input ? QUEUE_TO_DEVICE : QUEUE_FROM_DEVICE))
        return check_fail(checker, i, -1, "stands in queue %s", queue_names[t->queue]);
    if (checker->s->kind == SCHEDULE_DRAIN || (input ? checker->inputs : checker->outputs))
        return check_fail(checker, i, -1, "is not wanted, or is there already");
    if (input) {
        writes(checker, OBJECT_BATCH, -1, -1, 1);
        return 0;
    }
    reads(checker, OBJECT_LOSS, -1, -1, checker->micro_n);
    if (is_step(checker))
        reads(checker, OBJECT_SUMSQ, -1, -1, checker->sums_needed);
    if (is_step(checker) && checker->routed_needed)
        reads(checker, OBJECT_ROUTING, -1, -1, checker->routed_needed);
    return 0;
}

/* ---- */

/* Checks which of block, micro-batch and chunk the task has, and whether such a task may be at this place. */
static bool has_place(const checker *checker, const task *t)
{
    bool block, micro, chunk;
    switch (t->kind) {
    case TASK_EMBED: case TASK_LOOK_UP: block = t->block == 0; micro = true; chunk = false; break;
    case TASK_LAYER: case TASK_LAYER_BACKWARD: block = t->block >= 1 && t->block <= checker->layers; micro = true; chunk = false; break;
    case TASK_HEAD: case TASK_HEAD_EVAL: block = t->block == checker->layers + 1; micro = true; chunk = false; break;
    case TASK_FINISH: case TASK_SCATTER:
        block = has_accumulator(checker, t->block) || has_listed_rows(checker, t->block, t->chunk);
        micro = false;
        chunk = true;
        break;
    case TASK_EMBED_FINISH: block = t->block == 0 && !is_shared(checker); micro = false; chunk = true; break;
    case TASK_ROWS_FINISH: block = t->block == 0 && inputs_are_trained(checker->in->model); micro = chunk = false; break;
    case TASK_UPDATE: block = t->block == -1; micro = false; chunk = true; break;
    case TASK_EMBED_BACKWARD: block = t->block == 0 && has_accumulator(checker, 0); micro = chunk = false; break;
    case TASK_HEADS: block = is_layer(checker, t->block); micro = true; chunk = false; break;
    case TASK_SCATTER_TIED: block = t->block == checker->layers + 1; micro = false; chunk = true; break;
    case TASK_GATHER: block = t->block == -1; micro = false; chunk = true; break;
    case TASK_INPUT: case TASK_OUTPUT: block = t->block == -1; micro = chunk = false; break;
    default: return !t->first && !t->part;
    }
    bool forward = (t->kind == TASK_HEADS && !t->backward) || t->kind == TASK_EMBED || t->kind == TASK_LOOK_UP || t->kind == TASK_LAYER ||
                   t->kind == TASK_INPUT || t->kind == TASK_OUTPUT;
    const bool of_ranks = t->kind == TASK_EMBED_BACKWARD || t->kind == TASK_SCATTER || t->kind == TASK_SCATTER_TIED ||
                          t->kind == TASK_HEADS || t->kind == TASK_GATHER;
    if (of_ranks && (!is_shared(checker) || (t->kind == TASK_EMBED_BACKWARD) != (t->queue == QUEUE_COMPUTE) ||
                     (t->kind != TASK_EMBED_BACKWARD && t->queue != QUEUE_RANKS)))
        return false;
    bool here = t->kind == TASK_UPDATE || t->kind == TASK_GATHER ||
        (t->kind == TASK_HEAD_EVAL ? checker->s->kind == SCHEDULE_EVAL : is_step(checker)) ||
                (forward && checker->s->kind == SCHEDULE_EVAL);
    const bool of_layer = t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD || t->kind == TASK_HEADS;
    const bool backward = t->kind == TASK_LAYER_BACKWARD || (t->kind == TASK_HEADS && t->backward);
    bool part = block && t->part >= 0 && t->part < (of_layer ? parts_n(checker, t->block, backward) : 1);
    if (part && of_layer)
        part = (t->kind == TASK_HEADS) ==
               ((backward ? checker->blocks[t->block].backward : checker->blocks[t->block].forward).part[t->part].kind == PART_EXCHANGE);
    bool first = (t->kind == TASK_HEAD || t->kind == TASK_LAYER_BACKWARD || t->kind == TASK_HEAD_EVAL) && t->micro == 0;
    return block && part && here && (t->micro >= 0) == micro && (t->chunk >= 0) == chunk && t->first == first;
}

int check_task_wants(checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    checker->wants_n = 0;
    if (!has_place(checker, t))
        return check_fail(checker, i, -1, "has no place in this schedule, or a wrong block, micro-batch, chunk or mark of the first");
    switch (t->kind) {
    case TASK_INPUT: case TASK_OUTPUT: return input_output_wants(checker, i);
    case TASK_COPY: case TASK_READ: case TASK_WRITE: return copy_wants(checker, i);
    case TASK_LOOK_UP: return look_up_wants(checker, i, t->micro);
    case TASK_EMBED: case TASK_LAYER: return forward_wants(checker, i, t->block, t->micro, t->part);
    case TASK_HEAD: case TASK_HEAD_EVAL: return head_wants(checker, i, t->micro, t->kind == TASK_HEAD_EVAL);
    case TASK_LAYER_BACKWARD: return backward_wants(checker, i, t->block, t->micro, t->part);
    case TASK_FINISH: case TASK_EMBED_FINISH: return finish_wants(checker, i, t->block, t->chunk);
    case TASK_ROWS_FINISH: return rows_finish_wants(checker, i);
    case TASK_EMBED_BACKWARD: return embed_backward_wants(checker, i);
    case TASK_SCATTER: return scatter_wants(checker, i, t->block, t->chunk);
    case TASK_SCATTER_TIED: return scatter_tied_wants(checker, i, t->chunk);
    case TASK_HEADS: return heads_wants(checker, i, t);
    case TASK_GATHER: return gather_wants(checker, i, t->chunk);
    default: return update_wants(checker, i, t->chunk);
    }
}

void check_task_done(checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    switch (t->kind) {
    case TASK_INPUT: checker->inputs++; break;
    case TASK_OUTPUT: checker->outputs++; break;
    case TASK_LOOK_UP: checker->rows[t->micro]++; break;
    case TASK_EMBED: case TASK_LAYER:
        if (checker->blocks[t->block].complete != 1)
            checker->saved[saved_at(checker, t->block, t->micro)] =
                after_part(checker, t->block, t->part, false, checker->blocks[t->block].complete);
        else
            checker->saved[saved_at(checker, t->block, t->micro)] = 1;
        checker->ahead[saved_at(checker, t->block, t->micro)]++;
        checker->saved[saved_at(checker, t->block + 1, t->micro)] = t->part == parts_n(checker, t->block, false) - 1;
        checker->routed += has_experts(checker, t->block);
        checker->carried[t->micro] += (carried_use_of(checker->in->model, t->block).forward & CARRIED_WRITE) != 0;
        break;
    case TASK_HEAD:
        checker->stream[t->micro] = checker->first_trained < t->block ? t->block : checker->stream[t->micro];
        checker->accumulator[t->block]++;
        /* fall through */
    case TASK_HEAD_EVAL:
        checker->head_done[t->micro] = 1;
        checker->losses++;
        break;
    case TASK_LAYER_BACKWARD:
        checker->back[saved_at(checker, t->block, t->micro)]++;
        checker->stream[t->micro] = t->part == parts_n(checker, t->block, true) - 1 ? t->block : checker->stream[t->micro];
        checker->carried_gradient[t->micro] += (carried_use_of(checker->in->model, t->block).gradient & CARRIED_WRITE) != 0;
        checker->accumulator[t->block]++;
        break;
    case TASK_FINISH: case TASK_EMBED_FINISH:
        checker->finished[piece_at(checker, t->block, t->chunk)] = 1;
        ++*(has_listed_rows(checker, t->block, t->chunk) ? &checker->rows_gradient : &checker->gradient[t->chunk]);
        checker->sums++;
        break;
    case TASK_ROWS_FINISH:
        *(is_shared(checker) ? &checker->rows_sums : &checker->rows_gradient) = 1;
        checker->sums++;
        break;
    case TASK_UPDATE:
        checker->weights[t->chunk] = is_sharded(checker, t->chunk) ? whole_weights(checker) : 1;
        checker->states[t->chunk] = 1;
        break;
    case TASK_EMBED_BACKWARD: checker->accumulator[0] = checker->micro_n; break;
    case TASK_SCATTER: checker->scattered[piece_at(checker, t->block, t->chunk)] = 1; break;
    case TASK_SCATTER_TIED: checker->tied_scattered[t->chunk] = 1; break;
    case TASK_HEADS: (t->backward ? checker->back : checker->ahead)[saved_at(checker, t->block, t->micro)]++; break;
    case TASK_GATHER:
        checker->weights[t->chunk] = is_sharded(checker, t->chunk) ? checker->weights[t->chunk] : whole_weights(checker);
        break;
    default: break;
    }
}
