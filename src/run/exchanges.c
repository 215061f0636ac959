#include "run/exchanges.h"

#include "comm/comm.h"

#include <stdlib.h>

bool piece_is_tied(const model *m, const piece *p)
{
    return p->param == m->blocks[0].param_of_role[PARAM_TOKENS] && head_adds_to_embedding(m);
}

float *task_partial(const task_runner *r, const schedule *s, const task *t, bool tied, int rank)
{
    const packing *k = r->in->packing;
    float *all = (float *)(tied ? operand_of(r, s, t, OBJECT_PARTIAL_TIED, t->chunk, -1)
                                : operand_of(r, s, t, OBJECT_PARTIAL, t->chunk, t->block));
    return all ? all + rank * partial_floats(k, r->in->model, tied ? 0 : t->block, t->chunk) : NULL;
}

static void add_move(shared_task *x, comm_move m)
{
    const int room = x->n < x->room ? x->room : 2 * x->room + 8;
    comm_move *larger = room > x->room ? realloc(x->moves, (size_t)room * sizeof *larger) : x->moves;
    x->failed = x->failed || !larger;
    if (!larger)
        return;
    x->moves = larger;
    x->room = room;
    x->moves[x->n++] = m;
}

/* ---- sums ---- */

/* This rank's sums of a piece's parameter, and the place for those that a peer has of the piece. */
typedef struct sums { const piece *p; float *from, *to; int64_t cols; } sums;

static sums sums_of(const task_runner *r, const schedule *s, const task *t, const piece *p, int peer)
{
    const packing *k = r->in->packing;
    const model *m = r->in->model;
    float *own = (float *)operand_of(r, s, t, OBJECT_ACCUMULATOR, t->block, -1);
    return (sums){p, own + accumulator_offset(m, t->block, m->params[p->param].role),
                  task_partial(r, s, t, t->kind == TASK_SCATTER_TIED, peer) + partial_offset(k, m, p, k->rank), m->params[p->param].cols};
}

static size_t bytes_of(const sums *of, int64_t rows) { return (size_t)(rows * of->cols) * sizeof(float); }

static void add_whole(const task_runner *r, const sums *of, int peer, shared_task *out)
{
    const piece_share there = packing_share(r->in->packing, r->in->model, of->p, peer);
    add_move(out, (comm_move){peer, of->from + there.row0 * of->cols, bytes_of(of, there.rows), of->to, bytes_of(of, of->p->own_rows),
                              true, true}); /* accumulators and partial sums have no other tier */
}

/* The rows of `peer` that this rank's tokens touch, and this rank's rows that the peer's tokens touch: a move for each run. */
static void add_touched(const task_runner *r, const sums *of, int peer, shared_task *out)
{
    const packing *k = r->in->packing;
    const piece_share there = packing_share(k, r->in->model, of->p, peer);
    const int64_t own0 = of->p->own_row0, own_end = own0 + of->p->own_rows;
    int64_t first, rows;
    for (int64_t at = there.row0; touched_next(&r->touched, k->rank, at, there.row0 + there.rows, &first, &rows); at = first + rows)
        add_move(out, comm_send(peer, of->from + first * of->cols, bytes_of(of, rows)));
    for (int64_t at = own0; touched_next(&r->touched, peer, at, own_end, &first, &rows); at = first + rows)
        add_move(out, comm_receive(peer, of->to + (first - own0) * of->cols, bytes_of(of, rows)));
}

static bool is_table(const task_runner *r, const piece *p) { return p->param == r->in->model->blocks[0].param_of_role[PARAM_TOKENS]; }

/* Only rows of a table are touched by tokens, and the head's sums of it are of all rows. */
static bool sends_touched(const task_runner *r, const task *t, const piece *p)
{
    return r->touched.bits && t->kind == TASK_SCATTER && is_table(r, p);
}

/* A rank's own sums are taken from its accumulators (tasks.c), but those of the head, whose accumulators are reused before. */
static void list_scatter(const task_runner *r, const schedule *s, const task *t, shared_task *out)
{
    const packing *k = r->in->packing;
    const model *m = r->in->model;
    for (int i = 0; i < k->chunks[t->chunk].pieces_n; i++) {
        const piece *p = chunk_piece(k, t->chunk, i);
        if (t->kind == TASK_SCATTER_TIED ? !piece_is_tied(m, p) : m->params[p->param].block != t->block)
            continue;
        for (int peer = 0; peer < k->ranks; peer++) {
            const sums of = sums_of(r, s, t, p, peer);
            if (peer != k->rank)
                (sends_touched(r, t, p) ? add_touched : add_whole)(r, &of, peer, out);
            else if (t->kind == TASK_SCATTER_TIED)
                add_whole(r, &of, peer, out);
        }
    }
}

/* ---- weights ---- */

static bool is_on_device(const schedule *s, const task *t, object_kind kind)
{
    const int found = task_find(s, t, kind, t->chunk, -1);
    return found >= 0 && s->buffers[found].tier == TIER_DEVICE;
}

/* This rank's own shard, if it is stored separately, is copied to its place in the buffer, too. */
static void list_gather(const task_runner *r, const schedule *s, const task *t, shared_task *out)
{
    const packing *k = r->in->packing;
    char *weights = operand_of(r, s, t, OBJECT_WEIGHTS, t->chunk, -1), *shard = operand_of(r, s, t, OBJECT_SHARD, t->chunk, -1);
    const size_t e = dtype_bytes(k->type);
    const int64_t begin = shard_start(k, t->chunk, k->rank), end = shard_start(k, t->chunk, k->rank + 1);
    const char *own = shard ? shard : weights + (size_t)begin * e;
    const bool to_device = is_on_device(s, t, OBJECT_WEIGHTS), from_device = shard ? is_on_device(s, t, OBJECT_SHARD) : to_device;
    for (int peer = 0; peer < k->ranks; peer++) {
        const int64_t from = shard_start(k, t->chunk, peer), to = shard_start(k, t->chunk, peer + 1);
        if (shard || peer != k->rank)
            add_move(out, (comm_move){peer, own, (size_t)(end - begin) * e, weights + (size_t)from * e, (size_t)(to - from) * e,
                                      from_device, to_device});
    }
}

/* ---- all of a schedule ---- */

static int list(const task_runner *r, const schedule *s, const task *t, shared_task *out, pt_error *e)
{
    out->n = 0;
    (t->kind == TASK_GATHER ? list_gather : list_scatter)(r, s, t, out);
    return out->failed ? pt_fail(e, PT_FAILED, "out of memory") : 0;
}

int exchanges_open(task_runner *r, comm *c, bool by_host, pt_error *e)
{
    r->comm = c;
    return by_host ? touched_open(&r->touched, r->in->model, r->in->shape, e) : 0;
}

int exchanges_list(task_runner *r, const schedule *s, pt_error *e)
{
    if (r->in->packing->ranks < 2)
        return 0;
    r->shared_n[s->kind] = s->tasks_n;
    shared_task *all = r->shared[s->kind] = calloc((size_t)s->tasks_n + 1, sizeof *all);
    int failed = all ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < s->tasks_n && !failed; i++)
        failed = s->tasks[i].queue == QUEUE_RANKS ? list(r, s, &s->tasks[i], &all[i], e) : 0;
    return failed;
}

/* Zeroes the memory where other ranks' sums arrive, before and after the place of this rank's own sums. */
static void list_zeros(const task_runner *r, const schedule *s, const task *t, shared_task *out)
{
    const packing *k = r->in->packing;
    float *begin = task_partial(r, s, t, false, 0), *own = task_partial(r, s, t, false, k->rank);
    float *after = task_partial(r, s, t, false, k->rank + 1), *end = task_partial(r, s, t, false, k->ranks);
    out->zeros[0].at = begin;
    out->zeros[0].bytes = (size_t)(own - begin) * sizeof *own;
    out->zeros[1].at = after;
    out->zeros[1].bytes = (size_t)(end - after) * sizeof *own;
}

static bool has_table(const task_runner *r, int chunk)
{
    bool has = false;
    for (int i = 0; i < r->in->packing->chunks[chunk].pieces_n; i++)
        has = has || is_table(r, chunk_piece(r->in->packing, chunk, i));
    return has;
}

int exchanges_of_step(task_runner *r, const schedule *s, comm *c, const int32_t *ids, int64_t n, pt_error *e)
{
    if (!r->touched.bits || (s->kind != SCHEDULE_STEP && s->kind != SCHEDULE_STEP_UPDATE))
        return 0;
    int failed = touched_share(&r->touched, c, ids, n, e);
    for (int i = 0; i < s->tasks_n && !failed; i++) {
        const task *t = &s->tasks[i];
        if (t->kind != TASK_SCATTER || t->block || !has_table(r, t->chunk))
            continue;
        list_zeros(r, s, t, &r->shared[s->kind][i]);
        failed = list(r, s, t, &r->shared[s->kind][i], e);
    }
    return failed;
}

void exchanges_close(task_runner *r)
{
    touched_close(&r->touched);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        for (int i = 0; r->shared[kind] && i < r->shared_n[kind]; i++)
            free(r->shared[kind][i].moves);
        free(r->shared[kind]);
    }
}
