#include "schedule/checker.h"

#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

/* ---- messages ---- */

static int describe(char *out, size_t n, const char *name, int block, int micro, int chunk)
{
    int used = snprintf(out, n, "%s", name);
    if (block >= 0)
        used += snprintf(out + used, n - (size_t)used, ", block %d", block);
    if (micro >= 0)
        used += snprintf(out + used, n - (size_t)used, ", micro-batch %d", micro);
    if (chunk >= 0)
        used += snprintf(out + used, n - (size_t)used, ", chunk %d", chunk);
    return used;
}

int check_fail(const checker *checker, int task_index, int buffer_index, const char *fmt, ...)
{
    char where[320] = "the schedule", what[160], sentence[512];
    if (task_index >= 0) {
        const task *t = &checker->s->tasks[task_index];
        const char *name = (unsigned)t->kind < TASK_KINDS ? task_names[t->kind] : "unknown";
        describe(what, sizeof what, name, t->block, t->micro, t->chunk);
        snprintf(where, sizeof where, "task %d (%s)", task_index, what);
    }
    if (buffer_index >= 0) {
        const buffer *b = &checker->s->buffers[buffer_index];
        bool chunk = is_of_chunk(b->kind);
        const char *name = (unsigned)b->kind < OBJECT_KINDS ? object_names[b->kind] : "unknown";
        describe(what, sizeof what, name, chunk ? -1 : b->index, b->micro, chunk ? b->index : -1);
        size_t used = strlen(where);
        snprintf(where + used, sizeof where - used, ", buffer %d (%s, on %s)", buffer_index, what,
                 (unsigned)b->tier < TIERS ? tier_names[b->tier] : "unknown");
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, args);
    va_end(args);
    return pt_fail(checker->e, PT_FAILED, "schedule check: %s: %s", where, sentence);
}

/* ---- the list ---- */

static int check_queue(const checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    bool compute = true;
    switch (t->kind) {
    case TASK_INPUT: case TASK_OUTPUT: case TASK_COPY: case TASK_READ: case TASK_WRITE: case TASK_UPDATE: case TASK_LOOK_UP:
    case TASK_SCATTER: case TASK_SCATTER_TIED: case TASK_HEADS: case TASK_GATHER: compute = false; break;
    default: break;
    }
    if (compute && t->queue != QUEUE_COMPUTE)
        return check_fail(checker, i, -1, "stands in queue %s; blocks are computed in queue compute", queue_names[t->queue]);
    return 0;
}

static int check_task_fields(const checker *checker, int i)
{
    const schedule *sched = checker->s;
    const task *t = &sched->tasks[i];
    if ((unsigned)t->kind >= TASK_KINDS || (unsigned)t->queue >= QUEUES)
        return check_fail(checker, i, -1, "kind %d or queue %d does not exist", (int)t->kind, (int)t->queue);
    if (t->block < -1 || t->block > checker->layers + 1 || t->micro < -1 || t->micro >= checker->micro_n || t->chunk < -1 ||
        t->chunk >= checker->chunks_n)
        return check_fail(checker, i, -1, "there is no such block, micro-batch or chunk");
    if (t->operand0 < 0 || t->operands_n < 0 || t->operand0 > sched->operands_n - t->operands_n)
        return check_fail(checker, i, -1, "its operands %d .. are not in the list of %d", t->operand0, sched->operands_n);
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++)
        if (sched->operands[o].buffer < 0 || sched->operands[o].buffer >= sched->buffers_n)
            return check_fail(checker, i, -1, "operand %d is buffer %d, which does not exist", o - t->operand0, sched->operands[o].buffer);
    for (int q = 0; q < QUEUES; q++) {
        int w = t->wait[q];
        if (w == -1)
            continue;
        if (w < 0 || w >= i)
            return check_fail(checker, i, -1, "waits for task %d, which does not come before it", w);
        if (sched->tasks[w].queue != (queue_kind)q || t->queue == (queue_kind)q)
            return check_fail(checker, i, -1, "waits in queue %s for task %d, which stands in queue %s", queue_names[q], w,
                              queue_names[sched->tasks[w].queue]);
    }
    return check_queue(checker, i);
}

/* ---- objects ---- */

uint64_t check_object_bytes(const checker *checker, object_kind kind, int index, int micro)
{
    const step_shape *shape = checker->in->shape;
    const model_config *m = &checker->in->model->config;
    uint64_t tokens = (uint64_t)(shape->batch * shape->seq_len);
    switch (kind) {
    case OBJECT_WEIGHTS: return chunk_weight_bytes(checker->in->packing, index);
    case OBJECT_STATES: return chunk_state_bytes(checker->in->packing, index);
    case OBJECT_GRADIENT: return chunk_gradient_bytes(checker->in->packing, index);
    case OBJECT_SHARD: return chunk_shard_bytes(checker->in->packing, index);
    case OBJECT_SAVED: return checker->blocks[index].saved_bytes * (uint64_t)checker->micro_units;
    case OBJECT_ACCUMULATOR: return checker->blocks[index].accumulator_bytes;
    case OBJECT_STREAM_GRADIENT: return (uint64_t)(checker->micro_units * shape->unit_rows * m->hidden) * dtype_bytes(shape->type);
    case OBJECT_STREAM: return residual_bytes(checker->in->model, shape) * (uint64_t)checker->micro_units;
    case OBJECT_CARRIED: return checker->carries.bytes * (uint64_t)checker->micro_units;
    case OBJECT_CARRIED_GRADIENT: return checker->carries.gradient_bytes * (uint64_t)checker->micro_units;
    case OBJECT_ROWS: return schedule_rows_bytes(checker->in->model, shape) * (uint64_t)checker->micro_units;
    case OBJECT_BATCH: return tokens * batch_token_bytes(checker->in->model, shape);
    case OBJECT_ROWS_GRADIENT: return schedule_rows_gradient_bytes(checker->in->model, shape);
    case OBJECT_LOSS: return loss_bytes(shape);
    case OBJECT_SUMSQ: return (uint64_t)sumsq_count(checker->in->model) * sizeof(double);
    case OBJECT_ROUTING: return routing_bytes(checker->in->model, shape);
    case OBJECT_ROWS_SUMS: return schedule_rows_sums_bytes(checker->in->model, shape);
    case OBJECT_PARTIAL: return partial_bytes(checker->in->packing, checker->in->model, micro, index);
    case OBJECT_PARTIAL_TIED: return partial_bytes(checker->in->packing, checker->in->model, 0, index);
    case OBJECT_ROPE: return (uint64_t)model_rope_offset(m, m->ropes_n, shape_length(shape)) * sizeof(float);
    default: return 0;
    }
}

static bool identity_exists(const checker *checker, const buffer *b)
{
    bool chunk = b->index >= 0 && b->index < checker->chunks_n, micro = b->micro >= 0 && b->micro < checker->micro_n;
    switch (b->kind) {
    case OBJECT_WEIGHTS: return chunk && b->micro == -1;
    case OBJECT_STATES: case OBJECT_GRADIENT: return chunk && b->micro == -1 && check_object_bytes(checker, b->kind, b->index, b->micro);
    case OBJECT_SHARD: return chunk && b->micro == -1 && checker->in->plan->chunks[b->index].sharded;
    case OBJECT_SAVED: return b->index >= 1 && b->index <= checker->layers + 1 && micro;
    case OBJECT_ACCUMULATOR: return has_accumulator(checker, b->index) && b->micro == -1;
    case OBJECT_STREAM_GRADIENT: return b->index == -1 && micro && checker->first_trained <= checker->layers;
    case OBJECT_OPEN: return is_layer(checker, b->index) && micro &&
        (is_divided(checker) || (has_experts(checker, b->index) && checker->in->plan->ranges));
    case OBJECT_STREAM: return b->index == -1 && micro && residual_bytes(checker->in->model, checker->in->shape);
    case OBJECT_CARRIED: case OBJECT_CARRIED_GRADIENT: return b->index == -1 && micro && check_object_bytes(checker, b->kind, -1, b->micro);
    case OBJECT_ROWS:
        return b->index == -1 && micro && (schedule_looks_up(checker->in, TIER_HOST) || schedule_looks_up(checker->in, TIER_DISK));
    case OBJECT_ROWS_GRADIENT: return b->index == -1 && b->micro == -1 && inputs_are_trained(checker->in->model);
    case OBJECT_ROWS_SUMS: return b->index == -1 && b->micro == -1 && inputs_are_trained(checker->in->model) && is_shared(checker);
    case OBJECT_PARTIAL: return chunk && b->micro >= 0 && b->micro <= checker->layers + 1 && is_shared(checker) &&
        check_object_bytes(checker, b->kind, b->index, b->micro);
    case OBJECT_PARTIAL_TIED:
        return chunk && b->micro == -1 && is_shared(checker) && chunk_has_tied_rows(checker->in->packing, checker->in->model, b->index);
    case OBJECT_ROPE: return b->index == -1 && b->micro == -1 && checker->in->model->config.ropes_n;
    case OBJECT_ROUTING: return b->index == -1 && b->micro == -1 && checker->routed_needed;
    default: return (unsigned)b->kind < OBJECT_KINDS && b->index == -1 && b->micro == -1;
    }
}

static int check_place(const checker *checker, int i)
{
    const schedule *sched = checker->s;
    const buffer *b = &sched->buffers[i];
    if (b->offset % PAGE)
        return check_fail(checker, -1, i, "offset %llu is not a multiple of 4096", (unsigned long long)b->offset);
    if (b->bytes > sched->bytes[b->tier] || b->offset > sched->bytes[b->tier] - b->bytes)
        return check_fail(checker, -1, i, "lies at %llu + %llu, outside of the arena of %llu bytes", (unsigned long long)b->offset,
                          (unsigned long long)b->bytes, (unsigned long long)sched->bytes[b->tier]);
    uint64_t placements = sched->placement_bytes[b->tier];
    if (b->placement && b->offset + b->bytes > placements)
        return check_fail(checker, -1, i, "placements lie in the first %llu bytes of a tier", (unsigned long long)placements);
    return 0;
}

static int check_buffer(const checker *checker, int i)
{
    const buffer *b = &checker->s->buffers[i];
    if (!identity_exists(checker, b) || (unsigned)b->tier >= TIERS)
        return check_fail(checker, -1, i, "there is no such object or tier");
    if (b->tier == TIER_HOST && !checker->in->host_tier)
        return check_fail(checker, -1, i, "lies on the host, and there is none");
    const bool is_of_update = b->kind == OBJECT_WORKSPACE && b->tier == TIER_HOST; /* its task decides the tier */
    const bool is_of_rows = (b->kind == OBJECT_ROWS || b->kind == OBJECT_ROWS_GRADIENT) && b->tier == TIER_HOST;
    if (b->tier != TIER_DEVICE && b->kind > OBJECT_SAVED && !is_of_update && !is_of_rows)
        return check_fail(checker, -1, i, "such an object is only ever on the device");
    uint64_t bytes = check_object_bytes(checker, b->kind, b->index, b->micro);
    if (b->kind != OBJECT_WORKSPACE && b->kind != OBJECT_OPEN && b->bytes != bytes)
        return check_fail(checker, -1, i, "has %llu bytes, and the object has %llu", (unsigned long long)b->bytes,
                          (unsigned long long)bytes);
    if (b->placement != (i < checker->s->placements_n))
        return check_fail(checker, -1, i, "placements are the first %d buffers, and only they", checker->s->placements_n);
    return check_place(checker, i);
}

static int check_lifetimes(const checker *checker)
{
    const schedule *sched = checker->s;
    int(*life)[2] = malloc(((size_t)sched->buffers_n + 1) * sizeof *life);
    if (!life)
        return pt_fail(checker->e, PT_FAILED, "out of memory while checking a schedule");
    for (int i = 0; i < sched->buffers_n; i++)
        life[i][0] = life[i][1] = sched->buffers[i].placement ? 0 : -1;
    for (int i = 0; i < sched->tasks_n; i++)
        for (int o = sched->tasks[i].operand0; o < sched->tasks[i].operand0 + sched->tasks[i].operands_n; o++) {
            int at = sched->operands[o].buffer;
            life[at][0] = life[at][0] < 0 ? i : life[at][0];
            life[at][1] = i;
        }
    int failed = 0;
    for (int i = 0; i < sched->buffers_n && !failed; i++) {
        const buffer *b = &sched->buffers[i];
        int last = b->placement ? sched->tasks_n : life[i][1];
        if (b->first != life[i][0] || b->last != last)
            failed = check_fail(checker, -1, i, "its life is said to be %d .. %d, and is %d .. %d", b->first, b->last, life[i][0], last);
    }
    free(life);
    return failed;
}

/* Does this object of a chunk keep a placement? */
static bool outlives(const checker *checker, object_kind kind, int chunk)
{
    const bool sharded = checker->in->plan->chunks[chunk].sharded;
    switch (kind) {
    case OBJECT_WEIGHTS: return !sharded;
    case OBJECT_SHARD: return sharded;
    case OBJECT_STATES: return checker->in->training && check_object_bytes(checker, kind, chunk, -1);
    default: return checker->in->training && checker->waits && check_object_bytes(checker, kind, chunk, -1);
    }
}

/* Do updates of the tier read gradients of rows that wait for them? */
static bool rows_wait(const checker *checker, tier t) { return checker->waits && schedule_updates_rows(checker->in, t); }

/* Each object that must outlive the schedule has exactly one placement, on the tier that the plan gives. */
static int check_placements(const checker *checker)
{
    const int kinds = OBJECT_SHARD + 1;
    size_t n = (size_t)checker->chunks_n * (size_t)kinds + OBJECT_KINDS;
    unsigned char *seen = calloc(n, 1);
    if (!seen)
        return pt_fail(checker->e, PT_FAILED, "out of memory while checking a schedule");
    int failed = 0, missing = 3 + (checker->in->model->config.ropes_n > 0) + (checker->routed_needed > 0);
    for (int i = 0; i < kinds * checker->chunks_n; i++)
        missing += outlives(checker, (object_kind)(i / checker->chunks_n), i % checker->chunks_n);
    for (tier t = TIER_DEVICE; t <= TIER_HOST; t++)
        missing += rows_wait(checker, t);
    for (int i = 0; i < checker->s->placements_n && !failed; i++) {
        const buffer *b = &checker->s->buffers[i];
        bool of_chunk = is_of_chunk(b->kind);
        const bool rows = b->kind == OBJECT_ROWS_GRADIENT; /* one on each tier whose updates read it */
        tier t = of_chunk ? checker->in->plan->chunks[b->index].placement : rows ? b->tier : TIER_DEVICE;
        size_t at = of_chunk ? OBJECT_KINDS + (size_t)b->kind * (size_t)checker->chunks_n + (size_t)b->index
                             : (size_t)(rows && b->tier == TIER_HOST ? OBJECT_WORKSPACE : b->kind); /* no placement has that kind */
        if (of_chunk ? !outlives(checker, b->kind, b->index)
                     : b->kind < OBJECT_BATCH || b->kind >= OBJECT_PARTIAL || (rows && !rows_wait(checker, b->tier)))
            failed = check_fail(checker, -1, i, "such an object does not outlive the schedule");
        else if (seen[at]++)
            failed = check_fail(checker, -1, i, "the object has a placement already");
        else if (b->tier != t)
            failed = check_fail(checker, -1, i, "the plan's placement of it is the %s", tier_names[t]);
        missing--;
    }
    free(seen);
    if (!failed && missing)
        failed = check_fail(checker, -1, -1, "%d objects that must outlive it have no placement", missing);
    return failed;
}

static int check_budget(const checker *checker, const uint64_t *budget)
{
    const schedule *sched = checker->s;
    char need[32], have[32];
    for (int t = 0; t < TIERS && budget; t++)
        if (sched->bytes[t] > budget[t])
            return pt_fail(checker->e, PT_DOES_NOT_FIT,
                           "the schedule needs %s of %s memory and the budget is %s; raise the budget or plan again",
                           size_format(need, sched->bytes[t]), tier_names[t], size_format(have, budget[t]));
    return 0;
}

/* ---- set-up ---- */

static int facts_of_block(checker *checker, int block, int chunks0)
{
    const schedule_input *in = checker->in;
    block_facts *f = &checker->blocks[block];
    f->saved_bytes = align_up((uint64_t)(in->shape->unit_rows * in->model->config.hidden) * dtype_bytes(in->shape->type), PAGE);
    f->complete = 1;
    if (block >= 1 && block <= checker->layers) {
        layer_layout layout;
        layer_layout_init(&layout, in->model, block - 1, in->shape, in->plan->blocks[block - 1].level);
        f->saved_bytes = layout.saved_bytes;
        f->forward_bytes = layout.forward_workspace;
        f->backward_bytes = layout.backward_workspace;
        f->forward_open = align_up(layout.forward_workspace, PAGE) + layout.forward_sequence;
        f->backward_open = align_up(layout.backward_workspace, PAGE) + layout.backward_sequence;
        f->complete = in->plan->blocks[block - 1].level == SAVE_INPUT ? 1 : 2;
        schedule_parts(in, &layout, block, false, &f->forward);
        schedule_parts(in, &layout, block, true, &f->backward);
    } else if (block == checker->layers + 1) {
        head_layout h;
        head_layout_init(&h, in->model, in->shape);
        f->forward_bytes = h.bytes;
    }
    f->accumulator_bytes = accumulator_bytes(in->model, in->shape, block);
    f->chunks0 = chunks0;
    unsigned char *needed = checker->finished; /* free at this point */
    block_chunks(in->model, in->packing, block, needed);
    for (int k = 0; k < checker->chunks_n; k++)
        if (needed[k] || (block == 0 && in->packing->chunks[k].looked_up && !plan_looks_up(&in->plan->chunks[k], &in->packing->chunks[k])))
            checker->chunk_list[chunks0 + f->chunks_n++] = k;
    memset(needed, 0, (size_t)checker->chunks_n);
    return chunks0 + f->chunks_n;
}

static void facts(checker *checker)
{
    const packing *packing = checker->in->packing;
    for (int block = 0, at = 0; block < checker->layers + 2; block++)
        at = facts_of_block(checker, block, at);
    for (int i = 0; i < packing->pieces_n; i++) {
        int block = checker->in->model->params[packing->pieces[i].param].block, chunk = packing->pieces[i].chunk;
        if (!checker->in->model->params[packing->pieces[i].param].trainable)
            continue;
        if (packing->chunks[chunk].looked_up) { /* it is updated, but has no gradient of its own */
            checker->rows_chunks += !checker->chunk_blocks[chunk];
            checker->chunk_blocks[chunk] = 1;
            continue;
        }
        if (!checker->pieces_of[piece_at(checker, block, chunk)]++)
            checker->chunk_blocks[chunk]++, checker->sums_needed++;
        checker->pieces_of[piece_at(checker, block, chunk)] = 1;
    }
    checker->sums_needed += inputs_are_trained(checker->in->model) + (is_shared(checker) ? checker->rows_chunks : 0);
    for (int m = 0; m < checker->micro_n; m++)
        checker->stream[m] = checker->layers + 2;
    for (int block = 1; block <= checker->layers; block++)
        checker->routed_needed +=
            has_experts(checker, block) ? checker->micro_n * schedule_computed_parts(&checker->blocks[block].forward) : 0;
}

static int checker_open(checker *checker)
{
    size_t blocks = (size_t)checker->layers + 2, chunks = (size_t)checker->chunks_n, micros = (size_t)checker->micro_n;
    size_t buffers = (size_t)checker->s->buffers_n + 1, tasks = (size_t)checker->s->tasks_n + 1,
           operands = (size_t)checker->s->operands_n + 1;
    checker->blocks = calloc(blocks, sizeof *checker->blocks);
    checker->chunk_list = calloc((size_t)checker->in->packing->pieces_n * 2 + 1, sizeof(int)); /* a tied table's pieces are read twice */
    checker->pieces_of = calloc(blocks * chunks, 1);
    checker->chunk_blocks = calloc(chunks, sizeof(int));
    checker->contents = calloc(buffers, sizeof *checker->contents);
    checker->segment0 = calloc(buffers, sizeof(int));
    checker->segment1 = calloc(buffers, sizeof(int));
    checker->done = malloc(tasks * sizeof *checker->done);
    checker->weights = calloc(chunks, sizeof(int));
    checker->states = calloc(chunks, sizeof(int));
    checker->gradient = calloc(chunks, sizeof(int));
    checker->saved = calloc(blocks * micros, sizeof(int));
    checker->accumulator = calloc(blocks, sizeof(int));
    checker->ahead = calloc(2 * blocks * micros, sizeof(int));
    checker->back = checker->ahead + blocks * micros;
    checker->stream = calloc(micros, sizeof(int));
    checker->carried = calloc(micros, sizeof(int));
    checker->carried_gradient = calloc(micros, sizeof(int));
    checker->rows = calloc(micros, sizeof(int));
    carried_layout_init(&checker->carries, checker->in->model, checker->in->shape);
    checker->head_done = calloc(micros, 1);
    checker->finished = calloc(blocks * chunks, 1);
    checker->scattered = calloc(blocks * chunks, 1);
    checker->tied_scattered = calloc(chunks, 1);
    checker->wants = calloc(chunks + 2 * micros + 12, sizeof *checker->wants);
    checker->used = calloc(operands, 1);
    if (!checker->blocks || !checker->chunk_list || !checker->pieces_of || !checker->chunk_blocks || !checker->contents ||
        !checker->segment0 || !checker->segment1 || !checker->done || !checker->weights || !checker->states || !checker->gradient ||
        !checker->saved || !checker->ahead || !checker->accumulator || !checker->stream || !checker->carried ||
        !checker->carried_gradient || !checker->rows || !checker->head_done || !checker->finished || !checker->scattered ||
        !checker->tied_scattered || !checker->wants || !checker->used)
        return pt_fail(checker->e, PT_FAILED, "out of memory while checking a schedule");
    facts(checker);
    return 0;
}

static void checker_close(checker *checker)
{
    void *all[] = {checker->blocks,
                   checker->chunk_list,
                   checker->pieces_of,
                   checker->chunk_blocks,
                   checker->contents,
                   checker->segment0,
                   checker->segment1,
                   checker->done,
                   checker->weights,
                   checker->states,
                   checker->gradient,
                   checker->saved,
                   checker->ahead,
                   checker->accumulator,
                   checker->stream,
                   checker->carried,
                   checker->carried_gradient,
                   checker->rows,
                   checker->head_done,
                   checker->finished,
                   checker->scattered,
                   checker->tied_scattered,
                   checker->wants,
                   checker->used,
                   checker->segments[TIER_DEVICE],
                   checker->segments[TIER_HOST],
                   checker->segments[TIER_DISK]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static int check_header(const checker *checker)
{
    const schedule *sched = checker->s;
    const plan *plan = checker->in->plan;
    if ((unsigned)sched->kind >= SCHEDULE_KINDS || sched->tasks_n < 0 || sched->operands_n < 0 || sched->placements_n < 0 ||
        sched->placements_n > sched->buffers_n)
        return check_fail(checker, -1, -1, "its kind or its counts are impossible");
    if (sched->micro_units != checker->micro_units || sched->micro_n != checker->micro_n)
        return check_fail(checker, -1, -1, "it has %d micro-batches of %lld units, and the plan says %d of %lld", sched->micro_n,
                          (long long)sched->micro_units, checker->micro_n, (long long)checker->micro_units);
    if (sched->kind != SCHEDULE_EVAL && !checker->in->training)
        return check_fail(checker, -1, -1, "it trains a model that is only evaluated");
    if ((sched->kind == SCHEDULE_DRAIN || sched->kind == SCHEDULE_STEP_UPDATE) && plan->update == UPDATE_BACKWARD)
        return check_fail(checker, -1, -1, "it makes waiting updates, and by the plan none waits");
    for (int t = 0; t < TIERS; t++)
        if (sched->placement_bytes[t] > sched->bytes[t])
            return check_fail(checker, -1, -1, "the placements on the %s are larger than the arena", tier_names[t]);
    return 0;
}

/* Each value belongs to one rank, and no shard is larger than the space for it. */
static int check_shards(const checker *checker)
{
    const packing *packing = checker->in->packing;
    for (int i = 0; i < packing->pieces_n; i++) {
        const piece *piece = &packing->pieces[i];
        int64_t next = piece->row0;
        for (int r = 0; r < packing->ranks; r++) {
            const piece_share s = packing_share(packing, checker->in->model, piece, r);
            if (shard_start(packing, piece->chunk, r + 1) - shard_start(packing, piece->chunk, r) >
                packing->chunks[piece->chunk].shard_elements)
                return check_fail(checker, -1, -1, "the shard of rank %d is larger than the room that chunk %d has for one", r,
                                  piece->chunk);
            if (checker->in->model->params[piece->param].storage != STORAGE_PLAIN)
                continue;
            if (s.rows && s.row0 != next)
                return check_fail(checker, -1, -1, "rank %d has rows of parameter %d from %lld on, and %lld come next", r, piece->param,
                                  (long long)s.row0,
                                  (long long)next);
            next += s.rows;
        }
        if (checker->in->model->params[piece->param].storage == STORAGE_PLAIN && next != piece->row0 + piece->rows)
            return check_fail(checker, -1, -1, "rows %lld .. of parameter %d belong to no rank", (long long)next, piece->param);
    }
    return 0;
}

/* Facts from which the sizes of a chunk's objects follow. */
static int check_chunks(const checker *checker)
{
    const packing *packing = checker->in->packing;
    for (int i = 0; i < packing->pieces_n; i++) {
        const piece *piece = &packing->pieces[i];
        if (packing->chunks[piece->chunk].trained != checker->in->model->params[piece->param].trainable)
            return check_fail(checker, -1, -1, "chunk %d is %s, and parameter %d in it is not", piece->chunk,
                              packing->chunks[piece->chunk].trained ? "trained" : "frozen", piece->param);
    }
    return is_shared(checker) ? check_shards(checker) : 0;
}

static int check_list(const checker *checker)
{
    int failed = check_chunks(checker);
    for (int i = 0; i < checker->s->buffers_n && !failed; i++)
        failed = check_buffer(checker, i);
    for (int i = 0; i < checker->s->tasks_n && !failed; i++)
        failed = check_task_fields(checker, i);
    if (!failed)
        failed = check_lifetimes(checker);
    if (!failed)
        failed = check_placements(checker);
    return failed;
}

static int walk(checker *checker)
{
    int failed = check_memory_open(checker);
    for (int i = 0; i < checker->s->tasks_n && !failed; i++) {
        failed = check_task_wants(checker, i);
        if (!failed)
            failed = check_contents_before(checker, i);
        if (!failed)
            failed = check_memory(checker, i);
        if (!failed) {
            check_contents_after(checker, i);
            check_task_done(checker, i);
        }
    }
    return failed ? failed : check_contents_end(checker);
}

int schedule_check(const schedule_input *in, const schedule *sched, const uint64_t budget[TIERS], pt_error *e)
{
    checker checker = {.in = in, .s = sched, .e = e, .layers = (int)in->model->config.layers, .chunks_n = in->packing->chunks_n,
                 .first_trained = model_first_trained(in->model), .micro_units = in->plan->micro_batch / in->shape->unit_seqs,
                 .waits = in->plan->update != UPDATE_BACKWARD};
    if (checker.micro_units < 1)
        return check_fail(&checker, -1, -1, "the plan's micro-batch is smaller than one unit");
    checker.micro_n = (int)(in->shape->units_n / checker.micro_units);
    int failed = check_header(&checker);
    if (!failed)
        failed = checker_open(&checker);
    if (!failed)
        failed = check_list(&checker);
    if (!failed)
        failed = walk(&checker);
    if (!failed)
        failed = check_budget(&checker, budget);
    checker_close(&checker);
    return failed;
}

int schedule_check_moves(const schedule *sched, int blocks_n, int chunks_n, const uint64_t budget[TIERS], pt_error *e)
{
    checker checker = {.s = sched, .e = e, .layers = blocks_n - 2, .chunks_n = chunks_n, .micro_n = sched->micro_n};
    const size_t buffers = (size_t)sched->buffers_n + 1, tasks = (size_t)sched->tasks_n + 1;
    checker.contents = calloc(buffers, sizeof *checker.contents);
    checker.segment0 = calloc(buffers, sizeof(int));
    checker.segment1 = calloc(buffers, sizeof(int));
    checker.done = malloc(tasks * sizeof *checker.done);
    int failed = checker.contents && checker.segment0 && checker.segment1 && checker.done
                     ? 0
                     : pt_fail(e, PT_FAILED, "out of memory while checking a schedule");
    for (int i = 0; i < sched->buffers_n && !failed; i++)
        failed = (unsigned)sched->buffers[i].tier < TIERS ? check_place(&checker, i) : check_fail(&checker, -1, i, "there is no such tier");
    for (int i = 0; i < sched->tasks_n && !failed; i++)
        failed = check_task_fields(&checker, i);
    if (!failed)
        failed = check_lifetimes(&checker);
    if (!failed)
        failed = check_moves(&checker);
    if (!failed)
        failed = check_budget(&checker, budget);
    checker_close(&checker);
    return failed;
}
