#include "run/tasks.h"

#include "comm/comm.h"
#include "io/disk_rows.h"
#include "layer/block.h"
#include "layer/sequence.h"
#include "model/lanes.h"
#include "run/exchanges.h"

#include <stdlib.h>
#include <string.h>

int task_runner_open(task_runner *runner, const schedule_input *in, const walker *w, const outcome_place *at, pt_error *e)
{
    *runner = (task_runner){.in = in, .walker = w, .outcome = *at};
    runner->pieces = calloc((size_t)in->packing->pieces_n, sizeof *runner->pieces);
    if (!runner->pieces)
        return pt_fail(e, PT_FAILED, "out of memory");
    carried_layout_init(&runner->carries, in->model, in->shape);
    const uint64_t row_bytes = schedule_rows_bytes(in->model, in->shape) / (uint64_t)in->shape->unit_rows;
    const int64_t most = in->plan->micro_batch * in->shape->seq_len;
    int failed = schedule_looks_up(in, TIER_DISK) ? disk_rows_open(w->reader, row_bytes, most, &runner->rows, e) : 0;
    if (!failed && runner->rows && w->slot_reader)
        failed = disk_rows_open(w->slot_reader, row_bytes, most, &runner->slot_rows, e);
    if (!failed)
        failed = listed_rows_open(&runner->listed, in->model, in->shape, e);
    return failed ? failed : layer_set_init(&runner->layers, in->model, in->shape, e);
}

void task_runner_close(task_runner *runner)
{
    free(runner->pieces);
    disk_rows_close(runner->rows);
    disk_rows_close(runner->slot_rows);
    listed_rows_close(&runner->listed);
    layer_set_free(&runner->layers);
    exchanges_close(runner);
}

/* ---- addresses ---- */

static char *address(const task_runner *runner, const schedule *sched, int buffer) { return walker_address(runner->walker, sched, buffer); }

char *operand_of(const task_runner *runner, const schedule *sched, const task *t, object_kind kind, int index, int micro)
{
    return walker_operand(runner->walker, sched, t, kind, index, micro);
}

static char *workspace_of(const task_runner *runner, const schedule *sched, const task *t)
{
    return operand_of(runner, sched, t, OBJECT_WORKSPACE, -1, -1);
}

/* Sets the addresses of the weights that the task reads, wherever their chunks lie. */
static block_weights weights_of(task_runner *runner, const schedule *sched, const task *t)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &sched->buffers[sched->operands[i].buffer];
        if (b->kind != OBJECT_WEIGHTS)
            continue;
        for (int j = 0; j < packing->chunks[b->index].pieces_n; j++) {
            const piece *piece = chunk_piece(packing, b->index, j);
            runner->pieces[piece - packing->pieces] =
                address(runner, sched, sched->operands[i].buffer) + (size_t)piece->offset * dtype_bytes(packing->type);
        }
    }
    block_weights w = {0};
    const block *b = &m->blocks[t->block];
    for (int role = 0; role < PARAM_ROLES; role++) {
        int index = b->param_of_role[role];
        if (index < 0)
            continue;
        int first = packing->piece_of_param[index];
        w.param[role] = runner->pieces[first];
        const int pieces = packing->piece_of_param[index + 1] - first;
        const expert_pieces experts = {(const void *const *)runner->pieces + first,
                                       pieces > 1 ? packing->pieces[first].rows * m->config.experts / m->params[index].rows : 0};
        if (role == PARAM_LAYER_TOKENS)
            w.input_slices = runner->pieces + first, w.input_slices_n = pieces;
        else if (m->params[index].kind->use == USE_VOCABULARY)
            w.slices = runner->pieces + first, w.slices_n = pieces;
        else if (role == PARAM_EXPERTS_UP)
            w.up = experts;
        else if (role == PARAM_EXPERTS_DOWN)
            w.down = experts;
    }
    return w;
}

/* The rows from those of piece `*j` of a chunk on that lie one behind the other; *j becomes the next piece. */
static int64_t adjacent_rows(const packing *packing, int chunk, int64_t cols, int *j)
{
    const piece *first = chunk_piece(packing, chunk, *j);
    int64_t rows = first->rows;
    for (++*j; *j < packing->chunks[chunk].pieces_n; ++*j) {
        const piece *next = chunk_piece(packing, chunk, *j);
        if (next->offset != first->offset + rows * cols)
            break;
        rows += next->rows;
    }
    return rows;
}

/* Of the tables that are looked up, the rows of the micro-batch's tokens. The ids are in the loader's memory. */
static void run_look_up(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const packing *packing = runner->in->packing;
    const int64_t rows = sched->micro_units * runner->in->shape->unit_rows;
    const int32_t *ids = (const int32_t *)runner->walker->mailbox + t->micro * rows;
    char *out = operand_of(runner, sched, t, OBJECT_ROWS, -1, t->micro);
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &sched->buffers[sched->operands[i].buffer];
        if (b->kind != OBJECT_WEIGHTS)
            continue;
        const op_disk place = b->tier == TIER_DISK ? walker_disk(runner->walker, false, b, NULL) : (op_disk){0};
        struct disk_rows *from = place.channel == runner->walker->reader ? runner->rows : runner->slot_rows;
        for (int j = 0; j < packing->chunks[b->index].pieces_n;) {
            const piece *piece = chunk_piece(packing, b->index, j);
            const int64_t cols = runner->in->model->params[piece->param].cols, all = adjacent_rows(packing, b->index, cols, &j);
            const uint64_t at = (uint64_t)piece->offset * dtype_bytes(packing->type);
            if (b->tier == TIER_DISK)
                queue_submit(q, &(op){OP_DISK_ROWS, .disk_rows = {from, place.offset + at, rows, piece->row0, all, ids, out}});
            else
                queue_submit(q, &(op){OP_EMBEDDING, .embedding = {
                    .type = packing->type, .rows = rows, .cols = cols, .row0 = piece->row0, .table_rows = all, .ids = ids,
                    .table = address(runner, sched, sched->operands[i].buffer) + at, .out = out}});
        }
    }
}

/* Unit `i` of the task's micro-batch. */
static block_unit unit_of(const task_runner *runner, const schedule *sched, const task *t, int64_t unit)
{
    const step_shape *h = runner->in->shape;
    int64_t tokens = h->batch * h->seq_len, row = unit * h->unit_rows;
    const int32_t *batch = (const int32_t *)operand_of(runner, sched, t, OBJECT_BATCH, -1, -1);
    char *residual = operand_of(runner, sched, t, OBJECT_STREAM, -1, t->micro);
    block_unit u = {.ids = batch + row,
                    .targets = batch + tokens + row,
                    .first = h->documents ? batch + 2 * tokens + row : NULL,
                    .positions = batch + 3 * tokens + row,
                    .weights = h->weighted ? (const float *)batch + 4 * tokens + row : NULL,
                    .baseline = runner->baseline,
                    .dropout = sched->kind == SCHEDULE_EVAL ? 0 : runner->dropout,
                    .no_backward = sched->kind == SCHEDULE_EVAL,
                    .row = h->rank * tokens + row,
                    .stream = residual ? (float *)(residual + (uint64_t)(unit % sched->micro_units) * residual_bytes(runner->in->model, h))
                                       : NULL};
    char *carried = operand_of(runner, sched, t, OBJECT_CARRIED, -1, t->micro),
         *of = operand_of(runner, sched, t, OBJECT_CARRIED_GRADIENT, -1, t->micro);
    u.carried = carried ? carried + (uint64_t)(unit % sched->micro_units) * runner->carries.bytes : NULL;
    const char *rows = operand_of(runner, sched, t, OBJECT_ROWS, -1, t->micro);
    u.rows = rows ? rows + (uint64_t)(unit % sched->micro_units) * schedule_rows_bytes(runner->in->model, h) : NULL;
    u.carried_gradient = of ? of + (uint64_t)(unit % sched->micro_units) * runner->carries.gradient_bytes : NULL;
    block_unit_ropes(&u, &runner->in->model->config, (const float *)operand_of(runner, sched, t, OBJECT_ROPE, -1, -1), shape_length(h));
    return u;
}

/* What unit `unit` keeps of the choice of experts; NULL: nothing. */
static int32_t *routing_of(const task_runner *runner, const schedule *sched, const task *t, int64_t unit)
{
    const model *m = runner->in->model;
    int32_t *all = (int32_t *)operand_of(runner, sched, t, OBJECT_ROUTING, -1, -1);
    return all ? all + unit * routing_offset(m, runner->in->shape, (int)m->config.layers) : NULL;
}

static uint64_t x_bytes(const step_shape *h, const model *m)
{
    return (uint64_t)(h->unit_rows * m->config.hidden) * dtype_bytes(h->type);
}

static const layer_layout *layout_of(const task_runner *runner, int block)
{
    return layer_set_layout(&runner->layers, block - 1, runner->in->plan->blocks[block - 1].level);
}

/* Bytes from one unit to the next in the block's saved tensors. */
static uint64_t saved_stride(const task_runner *runner, int block)
{
    return block <= runner->in->model->config.layers ? layout_of(runner, block)->saved_bytes
                                                : align_up(x_bytes(runner->in->shape, runner->in->model), 4096);
}

/* ---- lanes ---- */

/* sum = a + b; it may be a. */
static void add_accumulators(queue *q, float *sum, const float *a, const float *b, int64_t n)
{
    enum { COLS = 256 };
    const int64_t rows = n / COLS;
    const op_gradient_finish part[] = {{.type = PT_F32, .rows = rows, .cols = COLS, .acc = a, .acc2 = b, .g = sum},
                                       {.type = PT_F32, .rows = 1, .cols = n % COLS, .acc = a + rows * COLS, .acc2 = b + rows * COLS,
                                        .g = sum + rows * COLS}};
    for (int i = rows ? 0 : 1; i < (n % COLS ? 2 : 1); i++)
        queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = part[i]});
}

/* Adds lanes that are complete after a unit. `sums`: the first accumulator; accumulators have n elements and are `plane` elements apart. */
static void merge_lanes(queue *q, lane_place p, float *sums, int64_t plane, int64_t n)
{
    for (int i = p.plane; i > p.plane - p.merges; i--)
        add_accumulators(q, sums + (i - 1) * plane, sums + (i - 1) * plane, sums + i * plane, n);
}

/* ---- blocks ---- */

/* The part of its layer that a task computes. */
static layer_part part_of(const task_runner *runner, const task *t)
{
    layer_parts parts;
    schedule_parts(runner->in, layout_of(runner, t->block), t->block, t->kind == TASK_LAYER_BACKWARD, &parts);
    return parts.part[t->part];
}

/* Of a layer's unit `i`: that of the task, or what is kept from part to part. */
static char *layer_workspace(const task_runner *runner, const schedule *sched, const task *t, int64_t i)
{
    char *open = operand_of(runner, sched, t, OBJECT_OPEN, t->block, t->micro);
    const uint64_t together = (uint64_t)shape_together(runner->in->shape), first = (uint64_t)i / together * together;
    const layer_layout *layout = layout_of(runner, t->block);
    const bool backward = t->kind == TASK_LAYER_BACKWARD;
    return !open ? workspace_of(runner, sched, t)
                 : open + first * schedule_open_bytes(layout, backward) + ((uint64_t)i - first) * schedule_own_bytes(layout, backward);
}

/* A unit of a layer in parts. */
static block_unit layer_unit(const task_runner *runner, const schedule *sched, const task *t, int64_t i)
{
    const int64_t unit = t->micro * sched->micro_units + i, together = shape_together(runner->in->shape), first = i / together * together;
    block_unit u = unit_of(runner, sched, t, unit);
    u.routing = routing_of(runner, sched, t, unit);
    u.part = i - first;
    u.heads = shape_parts(runner->in->shape) == 1 ? NULL
              : layer_workspace(runner, sched, t, first) +
                    (uint64_t)together * schedule_own_bytes(layout_of(runner, t->block), t->kind == TASK_LAYER_BACKWARD);
    return u;
}

static void run_embed(task_runner *runner, const schedule *sched, const task *t, const block_context *ctx)
{
    block_weights w = weights_of(runner, sched, t);
    char *out = operand_of(runner, sched, t, OBJECT_SAVED, 1, t->micro);
    for (int64_t i = 0; i < sched->micro_units; i++) {
        block_unit u = unit_of(runner, sched, t, t->micro * sched->micro_units + i);
        embedding_forward(ctx, &w, &u, out + (uint64_t)i * saved_stride(runner, 1));
    }
}

static void run_forward(task_runner *runner, const schedule *sched, const task *t, const block_context *ctx)
{
    const layer_part part = part_of(runner, t);
    block_weights w = weights_of(runner, sched, t);
    char *saved = operand_of(runner, sched, t, OBJECT_SAVED, t->block, t->micro);
    char *out = operand_of(runner, sched, t, OBJECT_SAVED, t->block + 1, t->micro); /* NULL: not the last part */
    for (int64_t i = 0; i < sched->micro_units; i++) {
        const block_unit u = layer_unit(runner, sched, t, i);
        layer_forward_part(ctx, t->block, layout_of(runner, t->block), &part, &w, &u, saved + (uint64_t)i * saved_stride(runner, t->block),
                           layer_workspace(runner, sched, t, i), out ? out + (uint64_t)i * saved_stride(runner, t->block + 1) : NULL);
    }
}

static void run_head(task_runner *runner, const schedule *sched, const task *t, const block_context *ctx)
{
    const step_shape *h = runner->in->shape;
    block_weights w = weights_of(runner, sched, t);
    char *x = operand_of(runner, sched, t, OBJECT_SAVED, t->block, t->micro),
         *dx = operand_of(runner, sched, t, OBJECT_STREAM_GRADIENT, -1, t->micro);
    float *loss = (float *)operand_of(runner, sched, t, OBJECT_LOSS, -1, -1), *right = loss + h->batch * h->seq_len;
    float *scores = h->scores ? right + h->batch * h->seq_len : NULL;
    float *accumulators = (float *)operand_of(runner, sched, t, OBJECT_ACCUMULATOR, t->block, -1);
    const int64_t elements = accumulator_elements(runner->in->model, t->block);
    for (int64_t i = 0; i < sched->micro_units; i++) {
        int64_t unit = t->micro * sched->micro_units + i;
        block_unit u = unit_of(runner, sched, t, unit);
        const lane_place lane = lane_place_of_unit(h, unit);
        head_forward_backward(ctx, &w, &u, x + (uint64_t)i * saved_stride(runner, t->block), workspace_of(runner, sched, t),
                              (head_output){loss + unit * h->unit_rows, right + unit * h->unit_rows,
                                            scores ? scores + unit * h->unit_rows * h->scores : NULL},
                              dx ? dx + (uint64_t)i * x_bytes(h, runner->in->model) : NULL,
                              accumulators ? accumulators + lane.plane * elements : NULL, lane.first, runner->loss_scale);
        if (accumulators && t->kind == TASK_HEAD)
            merge_lanes(ctx->queue, lane, accumulators, elements, elements);
    }
}

/* The same for a part of a layer, of what it has summed. */
static void merge_part(queue *q, const model *m, int block, lane_place p, float *sums, const bool summed[PARAM_ROLES])
{
    for (int role = 0; role < PARAM_ROLES; role++) {
        const param *a = summed[role] ? block_param(m, &m->blocks[block], role) : NULL;
        if (a)
            merge_lanes(q, p, sums + accumulator_offset(m, block, role), accumulator_elements(m, block), a->rows * a->cols);
    }
}

static void run_backward(task_runner *runner, const schedule *sched, const task *t, const block_context *ctx)
{
    const layer_part part = part_of(runner, t);
    block_weights w = weights_of(runner, sched, t);
    char *saved = operand_of(runner, sched, t, OBJECT_SAVED, t->block, t->micro),
         *dx = operand_of(runner, sched, t, OBJECT_STREAM_GRADIENT, -1, t->micro);
    float *accumulators = (float *)operand_of(runner, sched, t, OBJECT_ACCUMULATOR, t->block, -1);
    const int64_t elements = accumulator_elements(runner->in->model, t->block);
    bool summed[PARAM_ROLES] = {false};
    for (int64_t i = 0; i < sched->micro_units; i++) {
        const block_unit u = layer_unit(runner, sched, t, i);
        const lane_place lane = lane_place_of_unit(runner->in->shape, t->micro * sched->micro_units + i);
        layer_backward_part(ctx, t->block, layout_of(runner, t->block), &part, &w, &u, saved + (uint64_t)i * saved_stride(runner, t->block),
                            layer_workspace(runner, sched, t, i), dx + (uint64_t)i * x_bytes(runner->in->shape, runner->in->model),
                            accumulators ? accumulators + lane.plane * elements : NULL, lane.first, summed);
        if (accumulators && (!part.whole || u.heads))
            merge_part(ctx->queue, runner->in->model, t->block, lane, accumulators, summed);
        else if (accumulators)
            merge_lanes(ctx->queue, lane, accumulators, elements, elements);
    }
}

/* ---- gradients and updates ---- */

typedef struct finish { char *gradient; double *sumsq; queue *queue; pt_dtype type; const packing *packing; const model *model; } finish;

static finish finish_of(const task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    return (finish){operand_of(runner, sched, t, OBJECT_GRADIENT, t->chunk, -1),
                    (double *)operand_of(runner, sched, t, OBJECT_SUMSQ, -1, -1),
                    q,
                    runner->in->shape->type,
                    runner->in->packing,
                    runner->in->model};
}

/* `rows` rows from row0 of a piece's parameter. */
static void finish_rows(const finish *f, const piece *piece, int64_t row0, int64_t rows, const float *acc, const float *acc2)
{
    const param *a = &f->model->params[piece->param];
    int64_t cols = a->cols;
    pt_dtype type = param_type(a, f->type);
    int64_t begin = piece->offset - shard_start(f->packing, piece->chunk, f->packing->rank);
    int64_t at = begin * (int64_t)dtype_bytes(f->type) + (row0 - piece->row0) * cols * (int64_t)dtype_bytes(type);
    queue_submit(f->queue, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
        .type = type, .rows = rows, .cols = cols, .acc = acc, .acc2 = acc2, .g = f->gradient + at,
        .sumsq = f->sumsq + sumsq_index(f->model, piece->param) + row0 / SUMSQ_ROWS}});
}

static void run_finish(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    const float *acc = (const float *)operand_of(runner, sched, t, OBJECT_ACCUMULATOR, t->block, -1);
    finish f = finish_of(runner, sched, t, q);
    for (int i = 0; i < packing->chunks[t->chunk].pieces_n; i++) {
        const piece *piece = chunk_piece(packing, t->chunk, i);
        const param *a = &m->params[piece->param];
        if (a->block == t->block)
            finish_rows(&f, piece, piece->row0, piece->rows, acc + accumulator_offset(m, t->block, a->role) + piece->row0 * a->cols, NULL);
    }
}

/* The gradients of the rows of a table of the embedding that a unit's tokens have looked up, and their factor. */
static const char *looked_up(const task_runner *runner, const schedule *sched, const task *t, const param *a, int64_t unit, float *factor)
{
    const model_config *config = &runner->in->model->config;
    const int micro = (int)(unit / sched->micro_units);
    const uint64_t place = (uint64_t)(unit % sched->micro_units);
    *factor = a->kind->use == USE_POSITIONS ? 1 : a->role == PARAM_LAYER_TOKENS ? model_input_scale(config) : config->embedding_scale;
    if (a->role == PARAM_LAYER_TOKENS)
        return operand_of(runner, sched, t, OBJECT_CARRIED_GRADIENT, -1, micro) + place * runner->carries.gradient_bytes +
               runner->carries.inputs_gradient;
    return operand_of(runner, sched, t, OBJECT_STREAM_GRADIENT, -1, micro) + place * x_bytes(runner->in->shape, runner->in->model);
}

/* Rows of a table, or of a list of its rows: the number of each token's row (NULL: its id or position), the first and how many of them, and
 * the number that gets no gradient, -1: each gets one. */
typedef struct summed_rows { const int32_t *of_token; int64_t row0, rows, skip; } summed_rows;

/* The padding token's row gets no gradient as an input. */
static summed_rows rows_of_table(const task_runner *runner, const param *a, int64_t row0, int64_t rows)
{
    const model_config *config = &runner->in->model->config;
    const bool positions = a->kind->use == USE_POSITIONS;
    return (summed_rows){NULL, positions ? row0 - config->position_offset : row0, rows, positions ? -1 : config->padding};
}

/* `plane`: elements from one lane's accumulator to the next. Rows are summed over the tokens of each lane in order. */
static void embedding_rows(const task_runner *runner, const schedule *sched, const task *t, queue *q, const param *a, const summed_rows *of,
                           float *acc, int64_t plane)
{
    const step_shape *h = runner->in->shape;
    const bool positions = a->kind->use == USE_POSITIONS;
    for (int64_t unit = 0; unit < h->units_n; unit++) {
        float factor;
        block_unit u = unit_of(runner, sched, t, unit);
        const char *dy = looked_up(runner, sched, t, a, unit, &factor);
        const lane_place lane = lane_place_of_unit(h, unit);
        queue_submit(q, &(op){OP_EMBEDDING_BACKWARD, .embedding_backward = {
            .type = h->type, .accumulate = !lane.first, .rows = h->unit_rows, .cols = a->cols,
            .row0 = of->row0, .table_rows = of->rows, .skip = of->skip, .scale = factor,
            .ids = of->of_token ? of->of_token + unit * h->unit_rows : positions ? u.positions : u.ids, .dy = dy,
            .acc = acc + lane.plane * plane}});
        merge_lanes(q, lane, acc, plane, of->rows * a->cols);
    }
}

static void run_embed_finish(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    int head = m->blocks_n - 1;
    const float *tied =
        (const float *)operand_of(runner, sched, t, OBJECT_ACCUMULATOR, head, -1); /* NULL: the head adds nothing to this table */
    float *acc = (float *)workspace_of(runner, sched, t);
    finish f = finish_of(runner, sched, t, q);
    for (int i = 0; i < packing->chunks[t->chunk].pieces_n; i++) {
        const piece *piece = chunk_piece(packing, t->chunk, i);
        const param *a = &m->params[piece->param];
        if (a->block != 0)
            continue;
        const bool adds = tied && a->role == PARAM_TOKENS;
        for (int64_t done = 0; done < piece->rows; done += runner->in->shape->slice_rows) {
            int64_t row0 = piece->row0 + done, left = piece->rows - done;
            int64_t rows = left < runner->in->shape->slice_rows ? left : runner->in->shape->slice_rows;
            const summed_rows of = rows_of_table(runner, a, row0, rows);
            embedding_rows(runner, sched, t, q, a, &of, acc, runner->in->shape->slice_rows * a->cols);
            finish_rows(&f, piece, row0, rows, acc,
                        adds ? tied + accumulator_offset(m, head, PARAM_TOKENS) + row0 * a->cols : NULL);
        }
    }
}

/* The gradients of the rows of the table that is looked up, or with several ranks this rank's sums for them: of a slice of the list at a
 * time, summed over each lane's tokens in order. */
static void run_rows_finish(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const step_shape *h = runner->in->shape;
    const model_config *config = &runner->in->model->config;
    const int table = runner->in->model->blocks[0].param_of_role[PARAM_LAYER_TOKENS];
    const param *a = &runner->in->model->params[table];
    const int32_t *places = (const int32_t *)operand_of(runner, sched, t, OBJECT_BATCH, -1, -1) + BATCH_PLANES * h->batch * h->seq_len;
    const int32_t *numbers = places + h->batch * h->seq_len;
    const row_list *list = &runner->listed.of_step;
    double *sums = (double *)operand_of(runner, sched, t, OBJECT_SUMSQ, -1, -1) + sumsq_index(runner->in->model, table);
    char *out = operand_of(runner, sched, t, OBJECT_ROWS_GRADIENT, -1, -1), *own = operand_of(runner, sched, t, OBJECT_ROWS_SUMS, -1, -1);
    float *acc = (float *)workspace_of(runner, sched, t);
    const int64_t padding = config->padding >= 0 ? listed_rows_from(list, config->padding) : -1;
    const bool pads = padding >= 0 && padding < list->n && list->ids[padding] == config->padding;
    queue_submit(q, &(op){OP_ZERO, .copy = {.dst = sums, .bytes = (size_t)((a->rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS) * sizeof *sums}});
    for (int64_t first = 0, end; first < list->n; first = end) {
        end = listed_rows_slice(list, first, h->slice_rows);
        embedding_rows(runner, sched, t, q, a, &(summed_rows){places, first, end - first, pads ? padding : -1}, acc,
                       h->slice_rows * a->cols);
        if (own)
            queue_submit(q, &(op){OP_COPY, .copy = {own + (uint64_t)(first * a->cols) * sizeof *acc, acc,
                                                    (uint64_t)((end - first) * a->cols) * sizeof *acc}});
        else
            queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
                .type = h->type, .rows = end - first, .cols = a->cols, .acc = acc, .ids = numbers + first, .sumsq = sums,
                .g = out + (uint64_t)(first * a->cols) * dtype_bytes(h->type)}});
    }
}

/* ---- several ranks ---- */

static void run_embed_backward(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const model *m = runner->in->model;
    const int64_t step = runner->in->shape->slice_rows;
    float *acc = (float *)operand_of(runner, sched, t, OBJECT_ACCUMULATOR, 0, -1);
    for (int i = 0; i < m->params_n; i++) {
        const param *a = &m->params[i];
        if (a->block != 0 || !a->trainable || a->role == PARAM_LAYER_TOKENS)
            continue;
        for (int64_t row0 = 0; row0 < a->rows; row0 += step) {
            const summed_rows of = rows_of_table(runner, a, row0, a->rows - row0 < step ? a->rows - row0 : step);
            embedding_rows(runner, sched, t, q, a, &of, acc + accumulator_offset(m, 0, a->role) + row0 * a->cols,
                           accumulator_elements(m, 0));
        }
    }
}

/* A node of the tree of lanes: the partial sums of a rank, or (own) this rank's, which are in its accumulators. */
typedef struct partial_sum { float *at; bool own; } partial_sum;

static const float *rows_of(const task_runner *runner, const task *t, const piece *piece, const partial_sum *sum, const float *accumulators)
{
    const param *a = &runner->in->model->params[piece->param];
    return sum->own ? accumulators + accumulator_offset(runner->in->model, t->block, a->role) + piece->own_row0 * a->cols
                    : sum->at + partial_offset(runner->in->packing, runner->in->model, piece, runner->in->packing->rank);
}

static bool finishes(const task_runner *runner, const task *t, const piece *piece)
{
    return runner->in->model->params[piece->param].block == t->block && piece->own_rows;
}

/* a += b; into the partial sums, if `a` is in the accumulators. */
static void add_sums(const task_runner *runner, const task *t, queue *q, partial_sum *a, const partial_sum *b, const float *accumulators)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    if (!a->own && !b->own)
        add_accumulators(q, a->at, a->at, b->at, partial_floats(packing, m, t->block, t->chunk));
    for (int i = 0; i < packing->chunks[t->chunk].pieces_n && (a->own || b->own); i++) {
        const piece *piece = chunk_piece(packing, t->chunk, i);
        if (finishes(runner, t, piece))
            add_accumulators(q, a->at + partial_offset(packing, m, piece, packing->rank), rows_of(runner, t, piece, a, accumulators),
                             rows_of(runner, t, piece, b, accumulators), piece->own_rows * m->params[piece->param].cols);
    }
    a->own = false;
}

/* The ranks' sums in the tree of lanes. With `last`, those that the tree's last sum has on its right are left there (.at NULL: none). */
static partial_sum sum_ranks(task_runner *runner, const schedule *sched, const task *t, queue *q, bool tied, const float *accumulators,
                             partial_sum *last)
{
    const int ranks = runner->in->packing->ranks;
    partial_sum plane[32] = {0};
    for (int i = 0; i < ranks; i++) {
        const lane_place p = lane_place_of(ranks, i);
        plane[p.plane] = (partial_sum){task_partial(runner, sched, t, tied, i), !tied && i == runner->in->packing->rank};
        for (int n = p.plane; n > p.plane - p.merges; n--)
            if (last && i == ranks - 1 && n == 1)
                *last = plane[n];
            else
                add_sums(runner, t, q, &plane[n - 1], &plane[n], accumulators);
    }
    return plane[0];
}

/* Adds the ranks' sums in the tree of lanes and rounds this rank's rows. The rounding does the last addition, except in a chunk with tied
 * rows, where it adds the head's sums. */
static void run_finish_shared(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    const bool tied = task_partial(runner, sched, t, true, 0);
    const float *accumulators = (const float *)operand_of(runner, sched, t, OBJECT_ACCUMULATOR, t->block, -1);
    const finish f = finish_of(runner, sched, t, q);
    partial_sum last = {0}, head = {0};
    const partial_sum sum = sum_ranks(runner, sched, t, q, false, accumulators, tied ? NULL : &last);
    if (tied)
        head = sum_ranks(runner, sched, t, q, true, NULL, NULL);
    for (int i = 0; i < packing->chunks[t->chunk].pieces_n; i++) {
        const piece *piece = chunk_piece(packing, t->chunk, i);
        const partial_sum *second = tied ? piece_is_tied(m, piece) ? &head : NULL : &last;
        if (finishes(runner, t, piece))
            finish_rows(&f, piece, piece->own_row0, piece->own_rows, rows_of(runner, t, piece, &sum, accumulators),
                        second ? rows_of(runner, t, piece, second, accumulators) : NULL);
    }
}

/* The same of the rows of a chunk that are listed. All ranks' sums are added before the rounding. */
static void run_finish_listed(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const packing *packing = runner->in->packing;
    const model *m = runner->in->model;
    const step_shape *h = runner->in->shape;
    const int table = m->blocks[0].param_of_role[PARAM_LAYER_TOKENS];
    const int64_t cols = m->params[table].cols;
    const row_entries own = listed_rows_of_shard(&runner->listed.of_step, packing, m, t->chunk, packing->rank);
    const int32_t *batch = (const int32_t *)operand_of(runner, sched, t, OBJECT_BATCH, -1, -1);
    const int32_t *numbers = batch + (BATCH_PLANES + 1) * h->batch * h->seq_len;
    const float *sums = (const float *)operand_of(runner, sched, t, OBJECT_ROWS_SUMS, -1, -1) + own.first * cols, *at[32];
    float *partial = task_partial(runner, sched, t, false, 0), *place[32];
    for (int i = 0; i < packing->ranks && own.n; i++) {
        const lane_place p = lane_place_of(packing->ranks, i);
        place[p.plane] = partial + i * own.n * cols;
        at[p.plane] = i == packing->rank ? sums : place[p.plane];
        for (int n = p.plane; n > p.plane - p.merges; n--) {
            add_accumulators(q, place[n - 1], at[n - 1], at[n], own.n * cols);
            at[n - 1] = place[n - 1];
        }
    }
    if (own.n)
        queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
            .type = h->type, .rows = own.n, .cols = cols, .acc = at[0], .ids = numbers + own.first,
            .g = operand_of(runner, sched, t, OBJECT_ROWS_GRADIENT, -1, -1) + (uint64_t)(own.first * cols) * dtype_bytes(h->type),
            .sumsq = (double *)operand_of(runner, sched, t, OBJECT_SUMSQ, -1, -1) + sumsq_index(m, table)}});
}

static void run_finish_of_ranks(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const bool listed = !t->block && chunk_has_rows(runner->in->packing, t->chunk);
    (listed ? run_finish_listed : run_finish_shared)(runner, sched, t, q);
}

static void run_exchange(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const shared_task *x = &runner->shared[sched->kind][t - sched->tasks];
    for (int i = 0; i < 2; i++)
        if (x->zeros[i].bytes)
            queue_submit(q, &(op){OP_ZERO, .copy = {.dst = x->zeros[i].at, .bytes = x->zeros[i].bytes}});
    queue_submit(q, &(op){OP_EXCHANGE, .exchange = {runner->comm, x->moves, x->n}});
}

/* Writes out the gradient of this rank's shard of a chunk whose rows are listed: those rows, and 0 elsewhere. */
static void write_rows(const task_runner *runner, const schedule *sched, const task *t, queue *q, char *out)
{
    const packing *packing = runner->in->packing;
    const row_list *list = listed_rows_of(&runner->listed, sched->kind);
    const char *rows = operand_of(runner, sched, t, OBJECT_ROWS_GRADIENT, -1, -1);
    const int64_t start = shard_start(packing, t->chunk, packing->rank);
    queue_submit(q, &(op){OP_ZERO, .copy = {.dst = out, .bytes = update_gradient_bytes(packing, t->chunk)}});
    for (int i = 0; i < packing->chunks[t->chunk].pieces_n; i++) {
        const piece *piece = chunk_piece(packing, t->chunk, i);
        const size_t row = (size_t)runner->in->model->params[piece->param].cols * dtype_bytes(packing->type);
        const int64_t first = (piece->offset - start) * (int64_t)dtype_bytes(packing->type); /* < 0: before the shard */
        const int64_t end = listed_rows_from(list, piece->own_row0 + piece->own_rows);
        for (int64_t at = listed_rows_from(list, piece->own_row0), n; at < end; at += n) {
            n = 1;
            while (at + n < end && list->ids[at + n] == list->ids[at] + n)
                n++;
            queue_submit(q, &(op){OP_COPY, .copy = {
                .dst = out + (first + (list->ids[at] - piece->row0) * (int64_t)row),
                .src = rows + (size_t)at * row, .bytes = (size_t)n * row}});
        }
    }
}

static void run_update(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const packing *packing = runner->in->packing;
    char *weights = operand_of(runner, sched, t, kept_weights(runner->in, t->chunk), t->chunk, -1);
    char *states = operand_of(runner, sched, t, OBJECT_STATES, t->chunk, -1);
    char *workspace = workspace_of(runner, sched, t), *gradient = operand_of(runner, sched, t, OBJECT_GRADIENT, t->chunk, -1);
    const uint64_t e = dtype_bytes(packing->type);
    if (chunk_has_rows(packing, t->chunk)) {
        gradient = workspace;
        workspace += update_gradient_bytes(packing, t->chunk);
        write_rows(runner, sched, t, q, gradient);
    }
    const int64_t start = shard_start(packing, t->chunk, packing->rank), first = kept_weight_start(runner->in, t->chunk);
    update_params always = runner->update;
    update_span one;
    always.step = always.step_always;
    for (int at = packing->chunks[t->chunk].piece0; update_span_next(runner->in->model, packing, t->chunk, &at, &one);) {
        const pt_dtype type = param_type(one.param, packing->type);
        update u = {.params = one.param->always ? &always : &runner->update, .param = one.param, .type = type, .n = one.values,
                    .before = one.rule->by_matrix ? one.piece->own_row0 * one.param->cols : 0,
                    .hi = weights + (uint64_t)(one.offset - first) * e,
                    .lo = type == PT_BF16 ? (uint16_t *)(states + one.piece->low) : NULL,
                    .g = gradient + (uint64_t)(one.offset - start) * e};
        for (int i = 0; i < rule_slabs(one.rule); i++)
            u.slab[i] = states + one.piece->slab[i];
        u.workspace = workspace;
        one.rule->submit(q, &u);
    }
}

/* ---- transfers ---- */

static void run_input(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    int to = sched->operands[t->operand0].buffer;
    queue_submit(q, &(op){OP_COPY, .copy = {address(runner, sched, to), runner->walker->mailbox, sched->buffers[to].bytes}});
}

static void run_output(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        int from = sched->operands[i].buffer;
        const object_kind kind = sched->buffers[from].kind;
        const size_t at = kind == OBJECT_LOSS    ? runner->outcome.loss
                          : kind == OBJECT_SUMSQ ? runner->outcome.sumsq
                                                 : runner->outcome.routing;
        queue_submit(q, &(op){OP_COPY, .copy = {runner->walker->mailbox + at, address(runner, sched, from), sched->buffers[from].bytes}});
    }
}

void task_run(task_runner *runner, const schedule *sched, const task *t, queue *q)
{
    const block_context ctx = {runner->in->model, runner->in->shape, q};
    switch (t->kind) {
    case TASK_INPUT: run_input(runner, sched, t, q); break;
    case TASK_OUTPUT: run_output(runner, sched, t, q); break;
    case TASK_COPY: case TASK_READ: case TASK_WRITE: walker_transfer(runner->walker, sched, t, q); break;
    case TASK_LOOK_UP: run_look_up(runner, sched, t, q); break;
    case TASK_EMBED: run_embed(runner, sched, t, &ctx); break;
    case TASK_LAYER: run_forward(runner, sched, t, &ctx); break;
    case TASK_HEAD: case TASK_HEAD_EVAL: run_head(runner, sched, t, &ctx); break;
    case TASK_LAYER_BACKWARD: run_backward(runner, sched, t, &ctx); break;
    case TASK_FINISH: (runner->in->packing->ranks > 1 ? run_finish_of_ranks : run_finish)(runner, sched, t, q); break;
    case TASK_EMBED_FINISH: run_embed_finish(runner, sched, t, q); break;
    case TASK_ROWS_FINISH: run_rows_finish(runner, sched, t, q); break;
    case TASK_EMBED_BACKWARD: run_embed_backward(runner, sched, t, q); break;
    case TASK_SCATTER: case TASK_SCATTER_TIED: case TASK_HEADS: case TASK_GATHER: run_exchange(runner, sched, t, q); break;
    default: run_update(runner, sched, t, q); break;
    }
}
