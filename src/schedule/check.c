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

int check_fail(const checker *c, int task_index, int buffer_index, const char *fmt, ...)
{
    char where[320] = "the schedule", what[160], sentence[512];
    if (task_index >= 0) {
        const task *t = &c->s->tasks[task_index];
        const char *name = (unsigned)t->kind < TASK_KINDS ? task_names[t->kind] : "unknown";
        describe(what, sizeof what, name, t->block, t->micro, t->chunk);
        snprintf(where, sizeof where, "task %d (%s)", task_index, what);
    }
    if (buffer_index >= 0) {
        const buffer *b = &c->s->buffers[buffer_index];
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
    return pt_fail(c->e, PT_FAILED, "schedule check: %s: %s", where, sentence);
}

/* ---- the list ---- */

static int check_queue(const checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    bool compute = true;
    switch (t->kind) {
    case TASK_INPUT: case TASK_OUTPUT: case TASK_COPY: case TASK_READ: case TASK_WRITE: case TASK_UPDATE: case TASK_LOOK_UP:
    case TASK_SCATTER: case TASK_SCATTER_TIED: case TASK_GATHER: compute = false; break;
    default: break;
    }
    if (compute && t->queue != QUEUE_COMPUTE)
        return check_fail(c, i, -1, "stands in queue %s; blocks are computed in queue compute", queue_names[t->queue]);
    return 0;
}

static int check_task_fields(const checker *c, int i)
{
    const schedule *s = c->s;
    const task *t = &s->tasks[i];
    if ((unsigned)t->kind >= TASK_KINDS || (unsigned)t->queue >= QUEUES)
        return check_fail(c, i, -1, "kind %d or queue %d does not exist", (int)t->kind, (int)t->queue);
    if (t->block < -1 || t->block > c->layers + 1 || t->micro < -1 || t->micro >= c->micro_n || t->chunk < -1 || t->chunk >= c->chunks_n)
        return check_fail(c, i, -1, "there is no such block, micro-batch or chunk");
    if (t->operand0 < 0 || t->operands_n < 0 || t->operand0 > s->operands_n - t->operands_n)
        return check_fail(c, i, -1, "its operands %d .. are not in the list of %d", t->operand0, s->operands_n);
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++)
        if (s->operands[o].buffer < 0 || s->operands[o].buffer >= s->buffers_n)
            return check_fail(c, i, -1, "operand %d is buffer %d, which does not exist", o - t->operand0, s->operands[o].buffer);
    for (int q = 0; q < QUEUES; q++) {
        int w = t->wait[q];
        if (w == -1)
            continue;
        if (w < 0 || w >= i)
            return check_fail(c, i, -1, "waits for task %d, which does not come before it", w);
        if (s->tasks[w].queue != (queue_kind)q || t->queue == (queue_kind)q)
            return check_fail(c, i, -1, "waits in queue %s for task %d, which stands in queue %s", queue_names[q], w,
                              queue_names[s->tasks[w].queue]);
    }
    return check_queue(c, i);
}

/* ---- objects ---- */

uint64_t check_object_bytes(const checker *c, object_kind kind, int index, int micro)
{
    const step_shape *shape = c->in->shape;
    const model_config *m = &c->in->model->config;
    uint64_t tokens = (uint64_t)(shape->batch * shape->seq_len);
    switch (kind) {
    case OBJECT_WEIGHTS: return chunk_weight_bytes(c->in->packing, index);
    case OBJECT_STATES: return chunk_state_bytes(c->in->packing, index);
    case OBJECT_GRADIENT: return chunk_gradient_bytes(c->in->packing, index);
    case OBJECT_SHARD: return chunk_shard_bytes(c->in->packing, index);
    case OBJECT_SAVED: return c->blocks[index].saved_bytes * (uint64_t)c->micro_units;
    case OBJECT_ACCUMULATOR: return c->blocks[index].accumulator_bytes;
    case OBJECT_STREAM_GRADIENT: return (uint64_t)(c->micro_units * shape->unit_rows * m->hidden) * dtype_bytes(shape->type);
    case OBJECT_STREAM: return residual_bytes(c->in->model, shape) * (uint64_t)c->micro_units;
    case OBJECT_CARRIED: return c->carries.bytes * (uint64_t)c->micro_units;
    case OBJECT_CARRIED_GRADIENT: return c->carries.gradient_bytes * (uint64_t)c->micro_units;
    case OBJECT_ROWS: return schedule_rows_bytes(c->in->model, shape) * (uint64_t)c->micro_units;
    case OBJECT_BATCH: return tokens * batch_token_bytes(c->in->model, shape);
    case OBJECT_ROWS_GRADIENT: return schedule_rows_gradient_bytes(c->in->model, shape);
    case OBJECT_LOSS: return loss_bytes(shape);
    case OBJECT_SUMSQ: return (uint64_t)sumsq_count(c->in->model) * sizeof(double);
    case OBJECT_ROUTING: return routing_bytes(c->in->model, shape);
    case OBJECT_PARTIAL: return partial_bytes(c->in->packing, c->in->model, micro, index);
    case OBJECT_PARTIAL_TIED: return partial_bytes(c->in->packing, c->in->model, 0, index);
    case OBJECT_ROPE: return (uint64_t)model_rope_offset(m, m->ropes_n, shape->seq_len) * sizeof(float);
    default: return 0;
    }
}

static bool identity_exists(const checker *c, const buffer *b)
{
    bool chunk = b->index >= 0 && b->index < c->chunks_n, micro = b->micro >= 0 && b->micro < c->micro_n;
    switch (b->kind) {
    case OBJECT_WEIGHTS: return chunk && b->micro == -1;
    case OBJECT_STATES: case OBJECT_GRADIENT: return chunk && b->micro == -1 && check_object_bytes(c, b->kind, b->index, b->micro);
    case OBJECT_SHARD: return chunk && b->micro == -1 && c->in->plan->chunks[b->index].sharded;
    case OBJECT_SAVED: return b->index >= 1 && b->index <= c->layers + 1 && micro;
    case OBJECT_ACCUMULATOR: return has_accumulator(c, b->index) && b->micro == -1;
    case OBJECT_STREAM_GRADIENT: return b->index == -1 && micro && c->first_trained <= c->layers;
    case OBJECT_OPEN: return has_experts(c, b->index) && micro && c->in->plan->ranges;
    case OBJECT_STREAM: return b->index == -1 && micro && residual_bytes(c->in->model, c->in->shape);
    case OBJECT_CARRIED: case OBJECT_CARRIED_GRADIENT: return b->index == -1 && micro && check_object_bytes(c, b->kind, -1, b->micro);
    case OBJECT_ROWS: return b->index == -1 && micro && (schedule_looks_up(c->in, TIER_HOST) || schedule_looks_up(c->in, TIER_DISK));
    case OBJECT_ROWS_GRADIENT: return b->index == -1 && b->micro == -1 && gradient_has_rows(c->in->model, c->in->shape);
    case OBJECT_PARTIAL: return chunk && b->micro >= 0 && b->micro <= c->layers + 1 && is_shared(c) &&
        check_object_bytes(c, b->kind, b->index, b->micro);
    case OBJECT_PARTIAL_TIED: return chunk && b->micro == -1 && is_shared(c) && chunk_has_tied_rows(c->in->packing, c->in->model, b->index);
    case OBJECT_ROPE: return b->index == -1 && b->micro == -1 && c->in->model->config.ropes_n;
    case OBJECT_ROUTING: return b->index == -1 && b->micro == -1 && c->routed_needed;
    default: return (unsigned)b->kind < OBJECT_KINDS && b->index == -1 && b->micro == -1;
    }
}

static int check_place(const checker *c, int i)
{
    const schedule *s = c->s;
    const buffer *b = &s->buffers[i];
    if (b->offset % PAGE)
        return check_fail(c, -1, i, "offset %llu is not a multiple of 4096", (unsigned long long)b->offset);
    if (b->bytes > s->bytes[b->tier] || b->offset > s->bytes[b->tier] - b->bytes)
        return check_fail(c, -1, i, "lies at %llu + %llu, outside of the arena of %llu bytes", (unsigned long long)b->offset,
                          (unsigned long long)b->bytes, (unsigned long long)s->bytes[b->tier]);
    uint64_t placements = s->placement_bytes[b->tier];
    if (b->placement && b->offset + b->bytes > placements)
        return check_fail(c, -1, i, "placements lie in the first %llu bytes of a tier", (unsigned long long)placements);
    return 0;
}

static int check_buffer(const checker *c, int i)
{
    const buffer *b = &c->s->buffers[i];
    if (!identity_exists(c, b) || (unsigned)b->tier >= TIERS)
        return check_fail(c, -1, i, "there is no such object or tier");
    if (b->tier == TIER_HOST && !c->in->host_tier)
        return check_fail(c, -1, i, "lies on the host, and there is none");
    const bool is_of_update = b->kind == OBJECT_WORKSPACE && b->tier == TIER_HOST; /* its task decides the tier */
    const bool is_of_rows = (b->kind == OBJECT_ROWS || b->kind == OBJECT_ROWS_GRADIENT) && b->tier == TIER_HOST;
    if (b->tier != TIER_DEVICE && b->kind > OBJECT_SAVED && !is_of_update && !is_of_rows)
        return check_fail(c, -1, i, "such an object is only ever on the device");
    uint64_t bytes = check_object_bytes(c, b->kind, b->index, b->micro);
    if (b->kind != OBJECT_WORKSPACE && b->kind != OBJECT_OPEN && b->bytes != bytes)
        return check_fail(c, -1, i, "has %llu bytes, and the object has %llu", (unsigned long long)b->bytes, (unsigned long long)bytes);
    if (b->placement != (i < c->s->placements_n))
        return check_fail(c, -1, i, "placements are the first %d buffers, and only they", c->s->placements_n);
    return check_place(c, i);
}

static int check_lifetimes(const checker *c)
{
    const schedule *s = c->s;
    int(*life)[2] = malloc(((size_t)s->buffers_n + 1) * sizeof *life);
    if (!life)
        return pt_fail(c->e, PT_FAILED, "out of memory while checking a schedule");
    for (int i = 0; i < s->buffers_n; i++)
        life[i][0] = life[i][1] = s->buffers[i].placement ? 0 : -1;
    for (int i = 0; i < s->tasks_n; i++)
        for (int o = s->tasks[i].operand0; o < s->tasks[i].operand0 + s->tasks[i].operands_n; o++) {
            int at = s->operands[o].buffer;
            life[at][0] = life[at][0] < 0 ? i : life[at][0];
            life[at][1] = i;
        }
    int failed = 0;
    for (int i = 0; i < s->buffers_n && !failed; i++) {
        const buffer *b = &s->buffers[i];
        int last = b->placement ? s->tasks_n : life[i][1];
        if (b->first != life[i][0] || b->last != last)
            failed = check_fail(c, -1, i, "its life is said to be %d .. %d, and is %d .. %d", b->first, b->last, life[i][0], last);
    }
    free(life);
    return failed;
}

/* Does this object of a chunk keep a placement? */
static bool outlives(const checker *c, object_kind kind, int chunk)
{
    const bool sharded = c->in->plan->chunks[chunk].sharded;
    switch (kind) {
    case OBJECT_WEIGHTS: return !sharded;
    case OBJECT_SHARD: return sharded;
    case OBJECT_STATES: return c->in->training && check_object_bytes(c, kind, chunk, -1);
    default: return c->in->training && c->waits && check_object_bytes(c, kind, chunk, -1);
    }
}

/* Do updates of the tier read gradients of rows that wait for them? */
static bool rows_wait(const checker *c, tier t) { return c->waits && schedule_updates_rows(c->in, t); }

/* Each object that must outlive the schedule has exactly one placement, on the tier that the plan gives. */
static int check_placements(const checker *c)
{
    const int kinds = OBJECT_SHARD + 1;
    size_t n = (size_t)c->chunks_n * (size_t)kinds + OBJECT_KINDS;
    unsigned char *seen = calloc(n, 1);
    if (!seen)
        return pt_fail(c->e, PT_FAILED, "out of memory while checking a schedule");
    int failed = 0, missing = 3 + (c->in->model->config.ropes_n > 0) + (c->routed_needed > 0);
    for (int i = 0; i < kinds * c->chunks_n; i++)
        missing += outlives(c, (object_kind)(i / c->chunks_n), i % c->chunks_n);
    for (tier t = TIER_DEVICE; t <= TIER_HOST; t++)
        missing += rows_wait(c, t);
    for (int i = 0; i < c->s->placements_n && !failed; i++) {
        const buffer *b = &c->s->buffers[i];
        bool of_chunk = is_of_chunk(b->kind);
        const bool rows = b->kind == OBJECT_ROWS_GRADIENT; /* one on each tier whose updates read it */
        tier t = of_chunk ? c->in->plan->chunks[b->index].placement : rows ? b->tier : TIER_DEVICE;
        size_t at = of_chunk ? OBJECT_KINDS + (size_t)b->kind * (size_t)c->chunks_n + (size_t)b->index
                             : (size_t)(rows && b->tier == TIER_HOST ? OBJECT_WORKSPACE : b->kind); /* no placement has that kind */
        if (of_chunk ? !outlives(c, b->kind, b->index)
                     : b->kind < OBJECT_BATCH || b->kind >= OBJECT_PARTIAL || (rows && !rows_wait(c, b->tier)))
            failed = check_fail(c, -1, i, "such an object does not outlive the schedule");
        else if (seen[at]++)
            failed = check_fail(c, -1, i, "the object has a placement already");
        else if (b->tier != t)
            failed = check_fail(c, -1, i, "the plan's placement of it is the %s", tier_names[t]);
        missing--;
    }
    free(seen);
    if (!failed && missing)
        failed = check_fail(c, -1, -1, "%d objects that must outlive it have no placement", missing);
    return failed;
}

static int check_budget(const checker *c, const uint64_t *budget)
{
    const schedule *s = c->s;
    char need[32], have[32];
    for (int t = 0; t < TIERS && budget; t++)
        if (s->bytes[t] > budget[t])
            return pt_fail(c->e, PT_DOES_NOT_FIT, "the schedule needs %s of %s memory and the budget is %s; raise the budget or plan again",
                           size_format(need, s->bytes[t]), tier_names[t], size_format(have, budget[t]));
    return 0;
}

/* ---- set-up ---- */

static int facts_of_block(checker *c, int block, int chunks0)
{
    const schedule_input *in = c->in;
    block_facts *f = &c->blocks[block];
    f->saved_bytes = align_up((uint64_t)(in->shape->unit_rows * in->model->config.hidden) * dtype_bytes(in->shape->type), PAGE);
    f->complete = 1;
    if (block >= 1 && block <= c->layers) {
        layer_layout l;
        layer_layout_init(&l, in->model, block - 1, in->shape, in->plan->blocks[block - 1].level);
        f->saved_bytes = l.saved_bytes;
        f->forward_bytes = l.forward_workspace;
        f->backward_bytes = l.backward_workspace;
        f->complete = in->plan->blocks[block - 1].level == SAVE_INPUT ? 1 : 2;
        schedule_parts(in, &l, block, false, &f->forward);
        schedule_parts(in, &l, block, true, &f->backward);
    } else if (block == c->layers + 1) {
        head_layout h;
        head_layout_init(&h, in->model, in->shape);
        f->forward_bytes = h.bytes;
    }
    f->accumulator_bytes = accumulator_bytes(in->model, in->shape, block);
    f->chunks0 = chunks0;
    unsigned char *needed = c->finished; /* free at this point */
    block_chunks(in->model, in->packing, block, needed);
    for (int k = 0; k < c->chunks_n; k++)
        if (needed[k] || (block == 0 && in->packing->chunks[k].looked_up && !plan_looks_up(&in->plan->chunks[k], &in->packing->chunks[k])))
            c->chunk_list[chunks0 + f->chunks_n++] = k;
    memset(needed, 0, (size_t)c->chunks_n);
    return chunks0 + f->chunks_n;
}

static void facts(checker *c)
{
    const packing *k = c->in->packing;
    for (int block = 0, at = 0; block < c->layers + 2; block++)
        at = facts_of_block(c, block, at);
    for (int i = 0; i < k->pieces_n; i++) {
        int block = c->in->model->params[k->pieces[i].param].block, chunk = k->pieces[i].chunk;
        if (!c->in->model->params[k->pieces[i].param].trainable)
            continue;
        if (k->chunks[chunk].looked_up) { /* it is updated, but has no gradient of its own */
            c->chunk_blocks[chunk] = 1;
            continue;
        }
        if (!c->pieces_of[piece_at(c, block, chunk)]++)
            c->chunk_blocks[chunk]++, c->sums_needed++;
        c->pieces_of[piece_at(c, block, chunk)] = 1;
    }
    c->sums_needed += gradient_has_rows(c->in->model, c->in->shape);
    for (int m = 0; m < c->micro_n; m++)
        c->stream[m] = c->layers + 2;
    for (int block = 1; block <= c->layers; block++)
        c->routed_needed += has_experts(c, block) ? c->micro_n * parts_n(c, block, false) : 0;
}

static int checker_open(checker *c)
{
    size_t blocks = (size_t)c->layers + 2, chunks = (size_t)c->chunks_n, micros = (size_t)c->micro_n;
    size_t buffers = (size_t)c->s->buffers_n + 1, tasks = (size_t)c->s->tasks_n + 1, operands = (size_t)c->s->operands_n + 1;
    c->blocks = calloc(blocks, sizeof *c->blocks);
    c->chunk_list = calloc((size_t)c->in->packing->pieces_n * 2 + 1, sizeof(int)); /* a tied table's pieces are read twice */
    c->pieces_of = calloc(blocks * chunks, 1);
    c->chunk_blocks = calloc(chunks, sizeof(int));
    c->contents = calloc(buffers, sizeof *c->contents);
    c->segment0 = calloc(buffers, sizeof(int));
    c->segment1 = calloc(buffers, sizeof(int));
    c->done = malloc(tasks * sizeof *c->done);
    c->weights = calloc(chunks, sizeof(int));
    c->states = calloc(chunks, sizeof(int));
    c->gradient = calloc(chunks, sizeof(int));
    c->saved = calloc(blocks * micros, sizeof(int));
    c->accumulator = calloc(blocks, sizeof(int));
    c->ahead = calloc(2 * blocks * micros, sizeof(int));
    c->back = c->ahead + blocks * micros;
    c->stream = calloc(micros, sizeof(int));
    c->carried = calloc(micros, sizeof(int));
    c->carried_gradient = calloc(micros, sizeof(int));
    c->rows = calloc(micros, sizeof(int));
    carried_layout_init(&c->carries, c->in->model, c->in->shape);
    c->head_done = calloc(micros, 1);
    c->finished = calloc(blocks * chunks, 1);
    c->scattered = calloc(blocks * chunks, 1);
    c->tied_scattered = calloc(chunks, 1);
    c->wants = calloc(chunks + 2 * micros + 12, sizeof *c->wants);
    c->used = calloc(operands, 1);
    if (!c->blocks || !c->chunk_list || !c->pieces_of || !c->chunk_blocks || !c->contents || !c->segment0 || !c->segment1 || !c->done ||
        !c->weights || !c->states || !c->gradient || !c->saved || !c->ahead || !c->accumulator || !c->stream || !c->carried ||
        !c->carried_gradient || !c->rows || !c->head_done || !c->finished ||
        !c->scattered || !c->tied_scattered || !c->wants || !c->used)
        return pt_fail(c->e, PT_FAILED, "out of memory while checking a schedule");
    facts(c);
    return 0;
}

static void checker_close(checker *c)
{
    void *all[] = {c->blocks, c->chunk_list, c->pieces_of, c->chunk_blocks, c->contents, c->segment0, c->segment1, c->done, c->weights,
                   c->states, c->gradient, c->saved, c->ahead, c->accumulator, c->stream, c->carried, c->carried_gradient, c->rows,
                   c->head_done, c->finished, c->scattered, c->tied_scattered, c->wants, c->used, c->segments[TIER_DEVICE],
                   c->segments[TIER_HOST], c->segments[TIER_DISK]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static int check_header(const checker *c)
{
    const schedule *s = c->s;
    const plan *p = c->in->plan;
    if ((unsigned)s->kind >= SCHEDULE_KINDS || s->tasks_n < 0 || s->operands_n < 0 || s->placements_n < 0 || s->placements_n > s->buffers_n)
        return check_fail(c, -1, -1, "its kind or its counts are impossible");
    if (s->micro_units != c->micro_units || s->micro_n != c->micro_n)
        return check_fail(c, -1, -1, "it has %d micro-batches of %lld units, and the plan says %d of %lld", s->micro_n,
                          (long long)s->micro_units, c->micro_n, (long long)c->micro_units);
    if (s->kind != SCHEDULE_EVAL && !c->in->training)
        return check_fail(c, -1, -1, "it trains a model that is only evaluated");
    if ((s->kind == SCHEDULE_DRAIN || s->kind == SCHEDULE_STEP_UPDATE) && p->update == UPDATE_BACKWARD)
        return check_fail(c, -1, -1, "it makes waiting updates, and by the plan none waits");
    for (int t = 0; t < TIERS; t++)
        if (s->placement_bytes[t] > s->bytes[t])
            return check_fail(c, -1, -1, "the placements on the %s are larger than the arena", tier_names[t]);
    return 0;
}

/* Each value belongs to one rank, and no shard is larger than the space for it. */
static int check_shards(const checker *c)
{
    const packing *k = c->in->packing;
    for (int i = 0; i < k->pieces_n; i++) {
        const piece *p = &k->pieces[i];
        int64_t next = p->row0;
        for (int r = 0; r < k->ranks; r++) {
            const piece_share s = packing_share(k, c->in->model, p, r);
            if (shard_start(k, p->chunk, r + 1) - shard_start(k, p->chunk, r) > k->chunks[p->chunk].shard_elements)
                return check_fail(c, -1, -1, "the shard of rank %d is larger than the room that chunk %d has for one", r, p->chunk);
            if (c->in->model->params[p->param].storage != STORAGE_PLAIN)
                continue;
            if (s.rows && s.row0 != next)
                return check_fail(c, -1, -1, "rank %d has rows of parameter %d from %lld on, and %lld come next", r, p->param,
                                  (long long)s.row0,
                                  (long long)next);
            next += s.rows;
        }
        if (c->in->model->params[p->param].storage == STORAGE_PLAIN && next != p->row0 + p->rows)
            return check_fail(c, -1, -1, "rows %lld .. of parameter %d belong to no rank", (long long)next, p->param);
    }
    return 0;
}

/* Facts from which the sizes of a chunk's objects follow. */
static int check_chunks(const checker *c)
{
    const packing *k = c->in->packing;
    for (int i = 0; i < k->pieces_n; i++) {
        const piece *p = &k->pieces[i];
        if (k->chunks[p->chunk].trained != c->in->model->params[p->param].trainable)
            return check_fail(c, -1, -1, "chunk %d is %s, and parameter %d in it is not", p->chunk,
                              k->chunks[p->chunk].trained ? "trained" : "frozen", p->param);
    }
    return is_shared(c) ? check_shards(c) : 0;
}

static int check_list(const checker *c)
{
    int failed = check_chunks(c);
    for (int i = 0; i < c->s->buffers_n && !failed; i++)
        failed = check_buffer(c, i);
    for (int i = 0; i < c->s->tasks_n && !failed; i++)
        failed = check_task_fields(c, i);
    if (!failed)
        failed = check_lifetimes(c);
    if (!failed)
        failed = check_placements(c);
    return failed;
}

static int walk(checker *c)
{
    int failed = check_memory_open(c);
    for (int i = 0; i < c->s->tasks_n && !failed; i++) {
        failed = check_task_wants(c, i);
        if (!failed)
            failed = check_contents_before(c, i);
        if (!failed)
            failed = check_memory(c, i);
        if (!failed) {
            check_contents_after(c, i);
            check_task_done(c, i);
        }
    }
    return failed ? failed : check_contents_end(c);
}

int schedule_check(const schedule_input *in, const schedule *s, const uint64_t budget[TIERS], pt_error *e)
{
    checker c = {.in = in, .s = s, .e = e, .layers = (int)in->model->config.layers, .chunks_n = in->packing->chunks_n,
                 .first_trained = model_first_trained(in->model), .micro_units = in->plan->micro_batch / in->shape->unit_seqs,
                 .waits = in->plan->update != UPDATE_BACKWARD};
    if (c.micro_units < 1)
        return check_fail(&c, -1, -1, "the plan's micro-batch is smaller than one unit");
    c.micro_n = (int)(in->shape->units_n / c.micro_units);
    int failed = check_header(&c);
    if (!failed)
        failed = checker_open(&c);
    if (!failed)
        failed = check_list(&c);
    if (!failed)
        failed = walk(&c);
    if (!failed)
        failed = check_budget(&c, budget);
    checker_close(&c);
    return failed;
}

int schedule_check_moves(const schedule *s, int blocks_n, int chunks_n, const uint64_t budget[TIERS], pt_error *e)
{
    checker c = {.s = s, .e = e, .layers = blocks_n - 2, .chunks_n = chunks_n, .micro_n = s->micro_n};
    const size_t buffers = (size_t)s->buffers_n + 1, tasks = (size_t)s->tasks_n + 1;
    c.contents = calloc(buffers, sizeof *c.contents);
    c.segment0 = calloc(buffers, sizeof(int));
    c.segment1 = calloc(buffers, sizeof(int));
    c.done = malloc(tasks * sizeof *c.done);
    int failed = c.contents && c.segment0 && c.segment1 && c.done ? 0 : pt_fail(e, PT_FAILED, "out of memory while checking a schedule");
    for (int i = 0; i < s->buffers_n && !failed; i++)
        failed = (unsigned)s->buffers[i].tier < TIERS ? check_place(&c, i) : check_fail(&c, -1, i, "there is no such tier");
    for (int i = 0; i < s->tasks_n && !failed; i++)
        failed = check_task_fields(&c, i);
    if (!failed)
        failed = check_lifetimes(&c);
    if (!failed)
        failed = check_moves(&c);
    if (!failed)
        failed = check_budget(&c, budget);
    checker_close(&c);
    return failed;
}
