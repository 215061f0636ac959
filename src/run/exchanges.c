#include "run/exchanges.h"

#include "comm/comm.h"
#include "layer/sequence.h"

#include <stdlib.h>

bool piece_is_tied(const model *m, const piece *piece)
{
    return piece->param == m->blocks[0].param_of_role[PARAM_TOKENS] && head_adds_to_embedding(m);
}

float *task_partial(const task_runner *runner, const schedule *sched, const task *t, bool tied, int rank)
{
    const packing *packing = runner->in->packing;
    float *all = (float *)(tied ? operand_of(runner, sched, t, OBJECT_PARTIAL_TIED, t->chunk, -1)
                                : operand_of(runner, sched, t, OBJECT_PARTIAL, t->chunk, t->block));
    return all ? all + rank * partial_floats(packing, runner->in->model, tied ? 0 : t->block, t->chunk) : NULL;
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

static sums sums_of(const task_runner *runner, const schedule *sched, const task *t, const piece *piece, int peer)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    float *own = (float *)operand_of(runner, sched, t, OBJECT_ACCUMULATOR, t->block, -1);
    return (sums){piece, own + accumulator_offset(m, t->block, m->params[piece->param].role),
                  task_partial(runner, sched, t, t->kind == TASK_SCATTER_TIED, peer) + partial_offset(packing, m, piece, packing->rank),
                  m->params[piece->param].cols};
}

static size_t bytes_of(const sums *of, int64_t rows) { return (size_t)(rows * of->cols) * sizeof(float); }

static void add_whole(const task_runner *runner, const sums *of, int peer, shared_task *out)
{
    const piece_share there = packing_share(runner->in->packing, runner->in->model, of->p, peer);
    add_move(out, (comm_move){peer, of->from + there.row0 * of->cols, bytes_of(of, there.rows), of->to, bytes_of(of, of->p->own_rows),
                              true, true}); /* accumulators and partial sums have no other tier */
}

/* The rows of `peer` that this rank's tokens touch, and this rank's rows that the peer's tokens touch: a move for each run. */
static void add_touched(const task_runner *runner, const sums *of, int peer, shared_task *out)
{
    const packing *packing = runner->in->packing;
    const piece_share there = packing_share(packing, runner->in->model, of->p, peer);
    const int64_t own0 = of->p->own_row0, own_end = own0 + of->p->own_rows;
    int64_t first, rows;
    for (int64_t at = there.row0; touched_next(&runner->touched, packing->rank, at, there.row0 + there.rows, &first, &rows);
         at = first + rows)
        add_move(out, comm_send(peer, of->from + first * of->cols, bytes_of(of, rows)));
    for (int64_t at = own0; touched_next(&runner->touched, peer, at, own_end, &first, &rows); at = first + rows)
        add_move(out, comm_receive(peer, of->to + (first - own0) * of->cols, bytes_of(of, rows)));
}

static bool is_table(const task_runner *runner, const piece *piece)
{
    return piece->param == runner->in->model->blocks[0].param_of_role[PARAM_TOKENS];
}

/* Only rows of a table are touched by tokens, and the head's sums of it are of all rows. */
static bool sends_touched(const task_runner *runner, const task *t, const piece *piece)
{
    return runner->touched.bits && t->kind == TASK_SCATTER && is_table(runner, piece);
}

/* ---- listed rows ---- */

static bool sends_listed(const task_runner *runner, const task *t)
{
    return t->kind == TASK_SCATTER && !t->block && chunk_has_rows(runner->in->packing, t->chunk);
}

/* The next entries of `of` from *at on that a rank's tokens touch; all of them where whole shards are sent. n 0: there are none. */
static row_entries next_entries(const task_runner *runner, row_entries of, int rank, int64_t *at)
{
    const int32_t *ids = runner->listed.of_step.ids;
    const int64_t end = of.first + of.n;
    const bool all = !runner->touched.bits;
    int64_t first = *at, past;
    while (first < end && !all && !touched_has(&runner->touched, rank, ids[first]))
        first++;
    for (past = first; past < end && (all || touched_has(&runner->touched, rank, ids[past])); past++) {
    }
    *at = past;
    return (row_entries){first, past - first};
}

/* A rank's own sums stay where they are; those of other ranks arrive beside each other, as many rows of each. */
static void list_rows(const task_runner *runner, const schedule *sched, const task *t, shared_task *out)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    const row_list *list = &runner->listed.of_step;
    const int64_t cols = m->config.layers * m->config.input_width;
    const row_entries own = listed_rows_of_shard(list, packing, m, t->chunk, packing->rank);
    float *sums = (float *)operand_of(runner, sched, t, OBJECT_ROWS_SUMS, -1, -1), *partial = task_partial(runner, sched, t, false, 0);
    for (int peer = 0; peer < packing->ranks; peer++) {
        const row_entries there = listed_rows_of_shard(list, packing, m, t->chunk, peer);
        int64_t sent = there.first, come = own.first;
        row_entries send, receive;
        do {
            send = peer == packing->rank ? (row_entries){0} : next_entries(runner, there, packing->rank, &sent);
            receive = peer == packing->rank ? (row_entries){0} : next_entries(runner, own, peer, &come);
            if (send.n || receive.n)
                add_move(out, (comm_move){peer, sums + send.first * cols, (size_t)(send.n * cols) * sizeof *sums,
                                          partial + (peer * own.n + receive.first - own.first) * cols,
                                          (size_t)(receive.n * cols) * sizeof *sums, true, true});
        } while (send.n || receive.n);
    }
}

/* A rank's own sums are taken from its accumulators (tasks.c), but those of the head, whose accumulators are reused before. */
static void list_scatter(const task_runner *runner, const schedule *sched, const task *t, shared_task *out)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    for (int i = 0; i < packing->chunks[t->chunk].pieces_n; i++) {
        const piece *piece = chunk_piece(packing, t->chunk, i);
        if (t->kind == TASK_SCATTER_TIED ? !piece_is_tied(m, piece) : m->params[piece->param].block != t->block)
            continue;
        for (int peer = 0; peer < packing->ranks; peer++) {
            const sums of = sums_of(runner, sched, t, piece, peer);
            if (peer != packing->rank)
                (sends_touched(runner, t, piece) ? add_touched : add_whole)(runner, &of, peer, out);
            else if (t->kind == TASK_SCATTER_TIED)
                add_whole(runner, &of, peer, out);
        }
    }
}

/* ---- weights ---- */

static bool is_on_device(const schedule *sched, const task *t, object_kind kind)
{
    const int found = task_find(sched, t, kind, t->chunk, -1);
    return found >= 0 && sched->buffers[found].tier == TIER_DEVICE;
}

/* This rank's own shard, if it is stored separately, is copied to its place in the buffer, too. */
static void list_gather(const task_runner *runner, const schedule *sched, const task *t, shared_task *out)
{
    const packing *packing = runner->in->packing;
    char *weights = operand_of(runner, sched, t, OBJECT_WEIGHTS, t->chunk, -1),
         *shard = operand_of(runner, sched, t, OBJECT_SHARD, t->chunk, -1);
    const size_t e = dtype_bytes(packing->type);
    const int64_t begin = shard_start(packing, t->chunk, packing->rank), end = shard_start(packing, t->chunk, packing->rank + 1);
    const char *own = shard ? shard : weights + (size_t)begin * e;
    const bool to_device = is_on_device(sched, t, OBJECT_WEIGHTS), from_device = shard ? is_on_device(sched, t, OBJECT_SHARD) : to_device;
    for (int peer = 0; peer < packing->ranks; peer++) {
        const int64_t from = shard_start(packing, t->chunk, peer), to = shard_start(packing, t->chunk, peer + 1);
        if (shard || peer != packing->rank)
            add_move(out, (comm_move){peer, own, (size_t)(end - begin) * e, weights + (size_t)from * e, (size_t)(to - from) * e,
                                      from_device, to_device});
    }
}

/* ---- heads of divided sequences ---- */

typedef struct heads_list { shared_task *out; int first_rank; } heads_list;

static void add_heads(void *arg, sequence_move m)
{
    const heads_list *list = arg;
    comm_move move = m.sends ? comm_send(list->first_rank + m.sharer, m.at, m.bytes)
                             : comm_receive(list->first_rank + m.sharer, m.at, m.bytes);
    move.send_on_device = move.receive_on_device = true;
    add_move(list->out, move);
}

static void list_heads(const task_runner *runner, const schedule *sched, const task *t, shared_task *out)
{
    const step_shape *shape = runner->in->shape;
    const layer_layout *layout = layer_set_layout(&runner->layers, t->block - 1, runner->in->plan->blocks[t->block - 1].level);
    const bool backward = t->backward;
    const uint64_t together = (uint64_t)shape_together(shape), own = together * schedule_own_bytes(layout, backward);
    char *open = operand_of(runner, sched, t, OBJECT_OPEN, t->block, t->micro);
    heads_list list = {out, shape->rank - shape_sharer(shape)};
    layer_parts parts;
    schedule_parts(runner->in, layout, t->block, backward, &parts);
    for (uint64_t unit = 0; unit < (uint64_t)sched->micro_units; unit += together)
        sequence_moves(layout, runner->in->model, t->block - 1, shape, backward, &parts.part[t->part],
                       open + unit * schedule_open_bytes(layout, backward) + own, add_heads, &list);
}

/* ---- all of a schedule ---- */

static int list(const task_runner *runner, const schedule *sched, const task *t, shared_task *out, pt_error *e)
{
    out->n = 0;
    (t->kind == TASK_GATHER ? list_gather : t->kind == TASK_HEADS ? list_heads : sends_listed(runner, t) ? list_rows : list_scatter)(
        runner, sched, t, out);
    return out->failed ? pt_fail(e, PT_FAILED, "out of memory") : 0;
}

int exchanges_open(task_runner *runner, comm *c, bool by_host, pt_error *e)
{
    runner->comm = c;
    return by_host ? touched_open(&runner->touched, runner->in->model, runner->in->shape, e) : 0;
}

int exchanges_list(task_runner *runner, const schedule *sched, pt_error *e)
{
    if (runner->in->packing->ranks < 2)
        return 0;
    runner->shared_n[sched->kind] = sched->tasks_n;
    shared_task *all = runner->shared[sched->kind] = calloc((size_t)sched->tasks_n + 1, sizeof *all);
    int failed = all ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < sched->tasks_n && !failed; i++)
        failed = sched->tasks[i].queue == QUEUE_RANKS ? list(runner, sched, &sched->tasks[i], &all[i], e) : 0;
    return failed;
}

/* Zeroes the memory where other ranks' sums arrive, before and after the place of this rank's own sums. */
static void list_zeros(const task_runner *runner, const schedule *sched, const task *t, shared_task *out)
{
    const packing *packing = runner->in->packing;
    const model_config *config = &runner->in->model->config;
    float *begin = task_partial(runner, sched, t, false, 0);
    int64_t each = partial_floats(packing, runner->in->model, 0, t->chunk);
    if (sends_listed(runner, t))
        each = listed_rows_of_shard(&runner->listed.of_step, packing, runner->in->model, t->chunk, packing->rank).n * config->layers *
               config->input_width;
    out->zeros[0].at = begin;
    out->zeros[0].bytes = (size_t)(packing->rank * each) * sizeof *begin;
    out->zeros[1].at = begin + (packing->rank + 1) * each;
    out->zeros[1].bytes = (size_t)((packing->ranks - packing->rank - 1) * each) * sizeof *begin;
}

static bool has_table(const task_runner *runner, int chunk)
{
    bool has = false;
    for (int i = 0; i < runner->in->packing->chunks[chunk].pieces_n; i++)
        has = has || is_table(runner, chunk_piece(runner->in->packing, chunk, i));
    return has;
}

int exchanges_of_step(task_runner *runner, const schedule *sched, comm *c, const int32_t *ids, int64_t n, pt_error *e)
{
    const bool touches = runner->touched.bits, listed = inputs_are_trained(runner->in->model) && runner->in->packing->ranks > 1;
    if (!(touches || listed) || (sched->kind != SCHEDULE_STEP && sched->kind != SCHEDULE_STEP_UPDATE))
        return 0;
    int failed = touches ? touched_share(&runner->touched, c, ids, n, e) : 0;
    for (int i = 0; i < sched->tasks_n && !failed; i++) {
        const task *t = &sched->tasks[i];
        if (t->kind != TASK_SCATTER || t->block || !(sends_listed(runner, t) || (touches && has_table(runner, t->chunk))))
            continue;
        if (touches)
            list_zeros(runner, sched, t, &runner->shared[sched->kind][i]);
        failed = list(runner, sched, t, &runner->shared[sched->kind][i], e);
    }
    return failed;
}

void exchanges_close(task_runner *runner)
{
    touched_close(&runner->touched);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        for (int i = 0; runner->shared[kind] && i < runner->shared_n[kind]; i++)
            free(runner->shared[kind][i].moves);
        free(runner->shared[kind]);
    }
}
