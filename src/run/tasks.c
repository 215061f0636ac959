#include "run/tasks.h"

#include "comm/comm.h"
#include "io/disk_rows.h"
#include "layer/block.h"
#include "model/lanes.h"
#include "run/exchanges.h"

#include <stdlib.h>
#include <string.h>

int task_runner_open(task_runner *r, const schedule_input *in, const walker *w, const outcome_place *at, pt_error *e)
{
    *r = (task_runner){.in = in, .walker = w, .outcome = *at};
    r->pieces = calloc((size_t)in->packing->pieces_n, sizeof *r->pieces);
    if (!r->pieces)
        return pt_fail(e, PT_FAILED, "out of memory");
    carried_layout_init(&r->carries, in->model, in->shape);
    const uint64_t row_bytes = schedule_rows_bytes(in->model, in->shape) / (uint64_t)in->shape->unit_rows;
    const int64_t most = in->plan->micro_batch * in->shape->seq_len;
    int failed = schedule_looks_up(in, TIER_DISK) ? disk_rows_open(w->reader, row_bytes, most, &r->rows, e) : 0;
    if (!failed && r->rows && w->slot_reader)
        failed = disk_rows_open(w->slot_reader, row_bytes, most, &r->slot_rows, e);
    if (!failed)
        failed = listed_rows_open(&r->listed, in->model, in->shape, e);
    return failed ? failed : layer_set_init(&r->layers, in->model, in->shape, e);
}

void task_runner_close(task_runner *r)
{
    free(r->pieces);
    disk_rows_close(r->rows);
    disk_rows_close(r->slot_rows);
    listed_rows_close(&r->listed);
    layer_set_free(&r->layers);
    exchanges_close(r);
}

/* ---- addresses ---- */

static char *address(const task_runner *r, const schedule *s, int buffer) { return walker_address(r->walker, s, buffer); }

char *operand_of(const task_runner *r, const schedule *s, const task *t, object_kind kind, int index, int micro)
{
    return walker_operand(r->walker, s, t, kind, index, micro);
}

static char *workspace_of(const task_runner *r, const schedule *s, const task *t)
{
    return operand_of(r, s, t, OBJECT_WORKSPACE, -1, -1);
}

/* Sets the addresses of the weights that the task reads, wherever their chunks lie. */
static block_weights weights_of(task_runner *r, const schedule *s, const task *t)
{
    const packing *k = r->in->packing;
    const model *m = r->in->model;
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &s->buffers[s->operands[i].buffer];
        if (b->kind != OBJECT_WEIGHTS)
            continue;
        for (int j = 0; j < k->chunks[b->index].pieces_n; j++) {
            const piece *p = chunk_piece(k, b->index, j);
            r->pieces[p - k->pieces] = address(r, s, s->operands[i].buffer) + (size_t)p->offset * dtype_bytes(k->type);
        }
    }
    block_weights w = {0};
    const block *b = &m->blocks[t->block];
    for (int role = 0; role < PARAM_ROLES; role++) {
        int index = b->param_of_role[role];
        if (index < 0)
            continue;
        int first = k->piece_of_param[index];
        w.param[role] = r->pieces[first];
        const int pieces = k->piece_of_param[index + 1] - first;
        const expert_pieces experts = {(const void *const *)r->pieces + first,
                                       pieces > 1 ? k->pieces[first].rows * m->config.experts / m->params[index].rows : 0};
        if (role == PARAM_LAYER_TOKENS)
            w.input_slices = r->pieces + first, w.input_slices_n = pieces;
        else if (m->params[index].kind->use == USE_VOCABULARY)
            w.slices = r->pieces + first, w.slices_n = pieces;
        else if (role == PARAM_EXPERTS_UP)
            w.up = experts;
        else if (role == PARAM_EXPERTS_DOWN)
            w.down = experts;
    }
    return w;
}

/* The rows from those of piece `*j` of a chunk on that lie one behind the other; *j becomes the next piece. */
static int64_t adjacent_rows(const packing *k, int chunk, int64_t cols, int *j)
{
    const piece *first = chunk_piece(k, chunk, *j);
    int64_t rows = first->rows;
    for (++*j; *j < k->chunks[chunk].pieces_n; ++*j) {
        const piece *next = chunk_piece(k, chunk, *j);
        if (next->offset != first->offset + rows * cols)
            break;
        rows += next->rows;
    }
    return rows;
}

/* Of the tables that are looked up, the rows of the micro-batch's tokens. The ids are in the loader's memory. */
static void run_look_up(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const packing *k = r->in->packing;
    const int64_t rows = s->micro_units * r->in->shape->unit_rows;
    const int32_t *ids = (const int32_t *)r->walker->mailbox + t->micro * rows;
    char *out = operand_of(r, s, t, OBJECT_ROWS, -1, t->micro);
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &s->buffers[s->operands[i].buffer];
        if (b->kind != OBJECT_WEIGHTS)
            continue;
        const op_disk place = b->tier == TIER_DISK ? walker_disk(r->walker, false, b, NULL) : (op_disk){0};
        struct disk_rows *from = place.channel == r->walker->reader ? r->rows : r->slot_rows;
        for (int j = 0; j < k->chunks[b->index].pieces_n;) {
            const piece *p = chunk_piece(k, b->index, j);
            const int64_t cols = r->in->model->params[p->param].cols, all = adjacent_rows(k, b->index, cols, &j);
            const uint64_t at = (uint64_t)p->offset * dtype_bytes(k->type);
            if (b->tier == TIER_DISK)
                queue_submit(q, &(op){OP_DISK_ROWS, .disk_rows = {from, place.offset + at, rows, p->row0, all, ids, out}});
            else
                queue_submit(q, &(op){OP_EMBEDDING, .embedding = {
                    .type = k->type, .rows = rows, .cols = cols, .row0 = p->row0, .table_rows = all, .ids = ids,
                    .table = address(r, s, s->operands[i].buffer) + at, .out = out}});
        }
    }
}

/* Unit `i` of the task's micro-batch. */
static block_unit unit_of(const task_runner *r, const schedule *s, const task *t, int64_t unit)
{
    const step_shape *h = r->in->shape;
    int64_t tokens = h->batch * h->seq_len, row = unit * h->unit_rows;
    const int32_t *batch = (const int32_t *)operand_of(r, s, t, OBJECT_BATCH, -1, -1);
    char *residual = operand_of(r, s, t, OBJECT_STREAM, -1, t->micro);
    block_unit u = {.ids = batch + row, .targets = batch + tokens + row, .first = h->documents ? batch + 2 * tokens + row : NULL,
                        .positions = batch + 3 * tokens + row,
                        .weights = h->weighted ? (const float *)batch + 4 * tokens + row : NULL,
                        .baseline = r->baseline, .dropout = s->kind == SCHEDULE_EVAL ? 0 : r->dropout, .row = h->rank * tokens + row,
                        .stream = residual ? (float *)(residual + (uint64_t)(unit % s->micro_units) * residual_bytes(r->in->model, h))
                                           : NULL};
    char *carried = operand_of(r, s, t, OBJECT_CARRIED, -1, t->micro), *of = operand_of(r, s, t, OBJECT_CARRIED_GRADIENT, -1, t->micro);
    u.carried = carried ? carried + (uint64_t)(unit % s->micro_units) * r->carries.bytes : NULL;
    const char *rows = operand_of(r, s, t, OBJECT_ROWS, -1, t->micro);
    u.rows = rows ? rows + (uint64_t)(unit % s->micro_units) * schedule_rows_bytes(r->in->model, h) : NULL;
    u.carried_gradient = of ? of + (uint64_t)(unit % s->micro_units) * r->carries.gradient_bytes : NULL;
    block_unit_ropes(&u, &r->in->model->config, (const float *)operand_of(r, s, t, OBJECT_ROPE, -1, -1), h->seq_len);
    return u;
}

/* What unit `unit` keeps of the choice of experts; NULL: nothing. */
static int32_t *routing_of(const task_runner *r, const schedule *s, const task *t, int64_t unit)
{
    const model *m = r->in->model;
    int32_t *all = (int32_t *)operand_of(r, s, t, OBJECT_ROUTING, -1, -1);
    return all ? all + unit * routing_offset(m, r->in->shape, (int)m->config.layers) : NULL;
}

static uint64_t x_bytes(const step_shape *h, const model *m)
{
    return (uint64_t)(h->unit_rows * m->config.hidden) * dtype_bytes(h->type);
}

static const layer_layout *layout_of(const task_runner *r, int block)
{
    return layer_set_layout(&r->layers, block - 1, r->in->plan->blocks[block - 1].level);
}

/* Bytes from one unit to the next in the block's saved tensors. */
static uint64_t saved_stride(const task_runner *r, int block)
{
    return block <= r->in->model->config.layers ? layout_of(r, block)->saved_bytes
                                                : align_up(x_bytes(r->in->shape, r->in->model), 4096);
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
static layer_part part_of(const task_runner *r, const task *t)
{
    layer_parts parts;
    schedule_parts(r->in, layout_of(r, t->block), t->block, t->kind == TASK_LAYER_BACKWARD, &parts);
    return parts.part[t->part];
}

/* Of a layer's unit `i`: that of the task, or what is kept from part to part. */
static char *layer_workspace(const task_runner *r, const schedule *s, const task *t, int64_t i)
{
    char *open = operand_of(r, s, t, OBJECT_OPEN, t->block, t->micro);
    return open ? open + (uint64_t)i * schedule_open_bytes(layout_of(r, t->block), t->kind == TASK_LAYER_BACKWARD) : workspace_of(r, s, t);
}

static void run_embed(task_runner *r, const schedule *s, const task *t, const block_context *c)
{
    block_weights w = weights_of(r, s, t);
    char *out = operand_of(r, s, t, OBJECT_SAVED, 1, t->micro);
    for (int64_t i = 0; i < s->micro_units; i++) {
        block_unit u = unit_of(r, s, t, t->micro * s->micro_units + i);
        embedding_forward(c, &w, &u, out + (uint64_t)i * saved_stride(r, 1));
    }
}

static void run_forward(task_runner *r, const schedule *s, const task *t, const block_context *c)
{
    const layer_part part = part_of(r, t);
    block_weights w = weights_of(r, s, t);
    char *saved = operand_of(r, s, t, OBJECT_SAVED, t->block, t->micro);
    char *out = operand_of(r, s, t, OBJECT_SAVED, t->block + 1, t->micro); /* NULL: not the last part */
    for (int64_t i = 0; i < s->micro_units; i++) {
        block_unit u = unit_of(r, s, t, t->micro * s->micro_units + i);
        u.routing = routing_of(r, s, t, t->micro * s->micro_units + i);
        layer_forward_part(c, t->block, layout_of(r, t->block), &part, &w, &u, saved + (uint64_t)i * saved_stride(r, t->block),
                           layer_workspace(r, s, t, i), out ? out + (uint64_t)i * saved_stride(r, t->block + 1) : NULL);
    }
}

static void run_head(task_runner *r, const schedule *s, const task *t, const block_context *c)
{
    const step_shape *h = r->in->shape;
    block_weights w = weights_of(r, s, t);
    char *x = operand_of(r, s, t, OBJECT_SAVED, t->block, t->micro), *dx = operand_of(r, s, t, OBJECT_STREAM_GRADIENT, -1, t->micro);
    float *loss = (float *)operand_of(r, s, t, OBJECT_LOSS, -1, -1), *right = loss + h->batch * h->seq_len;
    float *scores = h->scores ? right + h->batch * h->seq_len : NULL;
    float *accumulators = (float *)operand_of(r, s, t, OBJECT_ACCUMULATOR, t->block, -1);
    const int64_t elements = accumulator_elements(r->in->model, t->block);
    for (int64_t i = 0; i < s->micro_units; i++) {
        int64_t unit = t->micro * s->micro_units + i;
        block_unit u = unit_of(r, s, t, unit);
        const lane_place lane = lane_place_of_unit(h, unit);
        head_forward_backward(c, &w, &u, x + (uint64_t)i * saved_stride(r, t->block), workspace_of(r, s, t),
                              (head_output){loss + unit * h->unit_rows, right + unit * h->unit_rows,
                                            scores ? scores + unit * h->unit_rows * h->scores : NULL},
                              dx ? dx + (uint64_t)i * x_bytes(h, r->in->model) : NULL,
                              accumulators ? accumulators + lane.plane * elements : NULL, lane.first, r->loss_scale);
        if (accumulators && t->kind == TASK_HEAD)
            merge_lanes(c->queue, lane, accumulators, elements, elements);
    }
}

static void run_backward(task_runner *r, const schedule *s, const task *t, const block_context *c)
{
    const layer_part part = part_of(r, t);
    block_weights w = weights_of(r, s, t);
    char *saved = operand_of(r, s, t, OBJECT_SAVED, t->block, t->micro), *dx = operand_of(r, s, t, OBJECT_STREAM_GRADIENT, -1, t->micro);
    float *accumulators = (float *)operand_of(r, s, t, OBJECT_ACCUMULATOR, t->block, -1);
    const int64_t elements = accumulator_elements(r->in->model, t->block);
    for (int64_t i = 0; i < s->micro_units; i++) {
        block_unit u = unit_of(r, s, t, t->micro * s->micro_units + i);
        u.routing = routing_of(r, s, t, t->micro * s->micro_units + i);
        const lane_place lane = lane_place_of_unit(r->in->shape, t->micro * s->micro_units + i);
        layer_backward_part(c, t->block, layout_of(r, t->block), &part, &w, &u, saved + (uint64_t)i * saved_stride(r, t->block),
                            layer_workspace(r, s, t, i), dx + (uint64_t)i * x_bytes(r->in->shape, r->in->model),
                            accumulators ? accumulators + lane.plane * elements : NULL, lane.first);
        if (accumulators)
            merge_lanes(c->queue, lane, accumulators, elements, elements);
    }
}

/* ---- gradients and updates ---- */

typedef struct finish { char *gradient; double *sumsq; queue *queue; pt_dtype type; const packing *packing; const model *model; } finish;

static finish finish_of(const task_runner *r, const schedule *s, const task *t, queue *q)
{
    return (finish){operand_of(r, s, t, OBJECT_GRADIENT, t->chunk, -1), (double *)operand_of(r, s, t, OBJECT_SUMSQ, -1, -1), q,
                    r->in->shape->type, r->in->packing, r->in->model};
}

/* `rows` rows from row0 of a piece's parameter. */
static void finish_rows(const finish *f, const piece *p, int64_t row0, int64_t rows, const float *acc, const float *acc2)
{
    const param *a = &f->model->params[p->param];
    int64_t cols = a->cols;
    pt_dtype type = param_type(a, f->type);
    int64_t begin = p->offset - shard_start(f->packing, p->chunk, f->packing->rank);
    int64_t at = begin * (int64_t)dtype_bytes(f->type) + (row0 - p->row0) * cols * (int64_t)dtype_bytes(type);
    queue_submit(f->queue, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
        .type = type, .rows = rows, .cols = cols, .acc = acc, .acc2 = acc2, .g = f->gradient + at,
        .sumsq = f->sumsq + sumsq_index(f->model, p->param) + row0 / SUMSQ_ROWS}});
}

static void run_finish(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const packing *k = r->in->packing;
    const model *m = r->in->model;
    const float *acc = (const float *)operand_of(r, s, t, OBJECT_ACCUMULATOR, t->block, -1);
    finish f = finish_of(r, s, t, q);
    for (int i = 0; i < k->chunks[t->chunk].pieces_n; i++) {
        const piece *p = chunk_piece(k, t->chunk, i);
        const param *a = &m->params[p->param];
        if (a->block == t->block)
            finish_rows(&f, p, p->row0, p->rows, acc + accumulator_offset(m, t->block, a->role) + p->row0 * a->cols, NULL);
    }
}

/* The gradients of the rows of a table of the embedding that a unit's tokens have looked up, and their factor. */
static const char *looked_up(const task_runner *r, const schedule *s, const task *t, const param *a, int64_t unit, float *factor)
{
    const model_config *c = &r->in->model->config;
    const int micro = (int)(unit / s->micro_units);
    const uint64_t place = (uint64_t)(unit % s->micro_units);
    *factor = a->kind->use == USE_POSITIONS ? 1 : a->role == PARAM_LAYER_TOKENS ? model_input_scale(c) : c->embedding_scale;
    if (a->role == PARAM_LAYER_TOKENS)
        return operand_of(r, s, t, OBJECT_CARRIED_GRADIENT, -1, micro) + place * r->carries.gradient_bytes + r->carries.inputs_gradient;
    return operand_of(r, s, t, OBJECT_STREAM_GRADIENT, -1, micro) + place * x_bytes(r->in->shape, r->in->model);
}

/* Rows of a table, or of a list of its rows: the number of each token's row (NULL: its id or position), the first and how many of them, and
 * the number that gets no gradient, -1: each gets one. */
typedef struct summed_rows { const int32_t *of_token; int64_t row0, rows, skip; } summed_rows;

/* The padding token's row gets no gradient as an input. */
static summed_rows rows_of_table(const task_runner *r, const param *a, int64_t row0, int64_t rows)
{
    const model_config *c = &r->in->model->config;
    const bool positions = a->kind->use == USE_POSITIONS;
    return (summed_rows){NULL, positions ? row0 - c->position_offset : row0, rows, positions ? -1 : c->padding};
}

/* `plane`: elements from one lane's accumulator to the next. Rows are summed over the tokens of each lane in order. */
static void embedding_rows(const task_runner *r, const schedule *s, const task *t, queue *q, const param *a, const summed_rows *of,
                           float *acc, int64_t plane)
{
    const step_shape *h = r->in->shape;
    const bool positions = a->kind->use == USE_POSITIONS;
    for (int64_t unit = 0; unit < h->units_n; unit++) {
        float factor;
        block_unit u = unit_of(r, s, t, unit);
        const char *dy = looked_up(r, s, t, a, unit, &factor);
        const lane_place lane = lane_place_of_unit(h, unit);
        queue_submit(q, &(op){OP_EMBEDDING_BACKWARD, .embedding_backward = {
            .type = h->type, .accumulate = !lane.first, .rows = h->unit_rows, .cols = a->cols,
            .row0 = of->row0, .table_rows = of->rows, .skip = of->skip, .scale = factor,
            .ids = of->of_token ? of->of_token + unit * h->unit_rows : positions ? u.positions : u.ids, .dy = dy,
            .acc = acc + lane.plane * plane}});
        merge_lanes(q, lane, acc, plane, of->rows * a->cols);
    }
}

static void run_embed_finish(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const packing *k = r->in->packing;
    const model *m = r->in->model;
    int head = m->blocks_n - 1;
    const float *tied = (const float *)operand_of(r, s, t, OBJECT_ACCUMULATOR, head, -1); /* NULL: the head adds nothing to this table */
    float *acc = (float *)workspace_of(r, s, t);
    finish f = finish_of(r, s, t, q);
    for (int i = 0; i < k->chunks[t->chunk].pieces_n; i++) {
        const piece *p = chunk_piece(k, t->chunk, i);
        const param *a = &m->params[p->param];
        if (a->block != 0)
            continue;
        const bool adds = tied && a->role == PARAM_TOKENS;
        for (int64_t done = 0; done < p->rows; done += r->in->shape->slice_rows) {
            int64_t row0 = p->row0 + done, left = p->rows - done;
            int64_t rows = left < r->in->shape->slice_rows ? left : r->in->shape->slice_rows;
            const summed_rows of = rows_of_table(r, a, row0, rows);
            embedding_rows(r, s, t, q, a, &of, acc, r->in->shape->slice_rows * a->cols);
            finish_rows(&f, p, row0, rows, acc,
                        adds ? tied + accumulator_offset(m, head, PARAM_TOKENS) + row0 * a->cols : NULL);
        }
    }
}

/* The gradients of the rows of the table that is looked up: of a slice of the list at a time, summed over each lane's tokens in order. */
static void run_rows_finish(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const step_shape *h = r->in->shape;
    const model_config *c = &r->in->model->config;
    const int table = r->in->model->blocks[0].param_of_role[PARAM_LAYER_TOKENS];
    const param *a = &r->in->model->params[table];
    const int32_t *places = (const int32_t *)operand_of(r, s, t, OBJECT_BATCH, -1, -1) + BATCH_PLANES * h->batch * h->seq_len;
    const int32_t *numbers = places + h->batch * h->seq_len;
    const row_list *list = &r->listed.of_step;
    double *sums = (double *)operand_of(r, s, t, OBJECT_SUMSQ, -1, -1) + sumsq_index(r->in->model, table);
    char *out = operand_of(r, s, t, OBJECT_ROWS_GRADIENT, -1, -1);
    float *acc = (float *)workspace_of(r, s, t);
    const int64_t padding = c->padding >= 0 ? listed_rows_from(list, c->padding) : -1;
    const bool pads = padding >= 0 && padding < list->n && list->ids[padding] == c->padding;
    queue_submit(q, &(op){OP_ZERO, .copy = {.dst = sums, .bytes = (size_t)((a->rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS) * sizeof *sums}});
    for (int64_t first = 0, end; first < list->n; first = end) {
        end = listed_rows_slice(list, first, h->slice_rows);
        embedding_rows(r, s, t, q, a, &(summed_rows){places, first, end - first, pads ? padding : -1}, acc, h->slice_rows * a->cols);
        queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
            .type = h->type, .rows = end - first, .cols = a->cols, .acc = acc, .ids = numbers + first, .sumsq = sums,
            .g = out + (uint64_t)(first * a->cols) * dtype_bytes(h->type)}});
    }
}

/* ---- several ranks ---- */

static void run_embed_backward(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const model *m = r->in->model;
    const int64_t step = r->in->shape->slice_rows;
    float *acc = (float *)operand_of(r, s, t, OBJECT_ACCUMULATOR, 0, -1);
    for (int i = 0; i < m->params_n; i++) {
        const param *a = &m->params[i];
        if (a->block != 0 || !a->trainable)
            continue;
        for (int64_t row0 = 0; row0 < a->rows; row0 += step) {
            const summed_rows of = rows_of_table(r, a, row0, a->rows - row0 < step ? a->rows - row0 : step);
            embedding_rows(r, s, t, q, a, &of, acc + accumulator_offset(m, 0, a->role) + row0 * a->cols, accumulator_elements(m, 0));
        }
    }
}

/* A node of the tree of lanes: the partial sums of a rank, or (own) this rank's, which are in its accumulators. */
typedef struct partial_sum { float *at; bool own; } partial_sum;

static const float *rows_of(const task_runner *r, const task *t, const piece *p, const partial_sum *sum, const float *accumulators)
{
    const param *a = &r->in->model->params[p->param];
    return sum->own ? accumulators + accumulator_offset(r->in->model, t->block, a->role) + p->own_row0 * a->cols
                    : sum->at + partial_offset(r->in->packing, r->in->model, p, r->in->packing->rank);
}

static bool finishes(const task_runner *r, const task *t, const piece *p)
{
    return r->in->model->params[p->param].block == t->block && p->own_rows;
}

/* a += b; into the partial sums, if `a` is in the accumulators. */
static void add_sums(const task_runner *r, const task *t, queue *q, partial_sum *a, const partial_sum *b, const float *accumulators)
{
    const packing *k = r->in->packing;
    const model *m = r->in->model;
    if (!a->own && !b->own)
        add_accumulators(q, a->at, a->at, b->at, partial_floats(k, m, t->block, t->chunk));
    for (int i = 0; i < k->chunks[t->chunk].pieces_n && (a->own || b->own); i++) {
        const piece *p = chunk_piece(k, t->chunk, i);
        if (finishes(r, t, p))
            add_accumulators(q, a->at + partial_offset(k, m, p, k->rank), rows_of(r, t, p, a, accumulators),
                             rows_of(r, t, p, b, accumulators), p->own_rows * m->params[p->param].cols);
    }
    a->own = false;
}

/* The ranks' sums in the tree of lanes. With `last`, those that the tree's last sum has on its right are left there (.at NULL: none). */
static partial_sum sum_ranks(task_runner *r, const schedule *s, const task *t, queue *q, bool tied, const float *accumulators,
                             partial_sum *last)
{
    const int ranks = r->in->packing->ranks;
    partial_sum plane[32] = {0};
    for (int i = 0; i < ranks; i++) {
        const lane_place p = lane_place_of(ranks, i);
        plane[p.plane] = (partial_sum){task_partial(r, s, t, tied, i), !tied && i == r->in->packing->rank};
        for (int n = p.plane; n > p.plane - p.merges; n--)
            if (last && i == ranks - 1 && n == 1)
                *last = plane[n];
            else
                add_sums(r, t, q, &plane[n - 1], &plane[n], accumulators);
    }
    return plane[0];
}

/* Adds the ranks' sums in the tree of lanes and rounds this rank's rows. The rounding does the last addition, except in a chunk with tied
 * rows, where it adds the head's sums. */
static void run_finish_shared(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const packing *k = r->in->packing;
    const model *m = r->in->model;
    const bool tied = task_partial(r, s, t, true, 0);
    const float *accumulators = (const float *)operand_of(r, s, t, OBJECT_ACCUMULATOR, t->block, -1);
    const finish f = finish_of(r, s, t, q);
    partial_sum last = {0}, head = {0};
    const partial_sum sum = sum_ranks(r, s, t, q, false, accumulators, tied ? NULL : &last);
    if (tied)
        head = sum_ranks(r, s, t, q, true, NULL, NULL);
    for (int i = 0; i < k->chunks[t->chunk].pieces_n; i++) {
        const piece *p = chunk_piece(k, t->chunk, i);
        const partial_sum *second = tied ? piece_is_tied(m, p) ? &head : NULL : &last;
        if (finishes(r, t, p))
            finish_rows(&f, p, p->own_row0, p->own_rows, rows_of(r, t, p, &sum, accumulators),
                        second ? rows_of(r, t, p, second, accumulators) : NULL);
    }
}

static void run_exchange(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const shared_task *x = &r->shared[s->kind][t - s->tasks];
    for (int i = 0; i < 2; i++)
        if (x->zeros[i].bytes)
            queue_submit(q, &(op){OP_ZERO, .copy = {.dst = x->zeros[i].at, .bytes = x->zeros[i].bytes}});
    queue_submit(q, &(op){OP_EXCHANGE, .exchange = {r->comm, x->moves, x->n}});
}

/* Writes out the gradient of a chunk whose rows are listed: those rows, and 0 elsewhere. */
static void write_rows(const task_runner *r, const schedule *s, const task *t, queue *q, char *out)
{
    const packing *k = r->in->packing;
    const row_list *list = listed_rows_of(&r->listed, s->kind);
    const char *rows = operand_of(r, s, t, OBJECT_ROWS_GRADIENT, -1, -1);
    queue_submit(q, &(op){OP_ZERO, .copy = {.dst = out, .bytes = update_gradient_bytes(k, t->chunk)}});
    for (int i = 0; i < k->chunks[t->chunk].pieces_n; i++) {
        const piece *p = chunk_piece(k, t->chunk, i);
        const size_t row = (size_t)r->in->model->params[p->param].cols * dtype_bytes(k->type);
        const int64_t end = listed_rows_from(list, p->row0 + p->rows);
        for (int64_t at = listed_rows_from(list, p->row0), n; at < end; at += n) {
            n = 1;
            while (at + n < end && list->ids[at + n] == list->ids[at] + n)
                n++;
            queue_submit(q, &(op){OP_COPY, .copy = {
                .dst = out + (size_t)p->offset * dtype_bytes(k->type) + (size_t)(list->ids[at] - p->row0) * row,
                .src = rows + (size_t)at * row, .bytes = (size_t)n * row}});
        }
    }
}

static void run_update(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const packing *k = r->in->packing;
    char *weights = operand_of(r, s, t, kept_weights(r->in, t->chunk), t->chunk, -1);
    char *states = operand_of(r, s, t, OBJECT_STATES, t->chunk, -1);
    char *workspace = workspace_of(r, s, t), *gradient = operand_of(r, s, t, OBJECT_GRADIENT, t->chunk, -1);
    const uint64_t e = dtype_bytes(k->type);
    if (chunk_has_rows(k, t->chunk)) {
        gradient = workspace;
        workspace += update_gradient_bytes(k, t->chunk);
        write_rows(r, s, t, q, gradient);
    }
    const int64_t start = shard_start(k, t->chunk, k->rank), first = kept_weight_start(r->in, t->chunk);
    update_params always = r->update;
    update_span one;
    always.step = always.step_always;
    for (int at = k->chunks[t->chunk].piece0; update_span_next(r->in->model, k, t->chunk, &at, &one);) {
        const pt_dtype type = param_type(one.param, k->type);
        update u = {.params = one.param->always ? &always : &r->update, .param = one.param, .type = type, .n = one.values,
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

static void run_input(task_runner *r, const schedule *s, const task *t, queue *q)
{
    int to = s->operands[t->operand0].buffer;
    queue_submit(q, &(op){OP_COPY, .copy = {address(r, s, to), r->walker->mailbox, s->buffers[to].bytes}});
}

static void run_output(task_runner *r, const schedule *s, const task *t, queue *q)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        int from = s->operands[i].buffer;
        const object_kind kind = s->buffers[from].kind;
        const size_t at = kind == OBJECT_LOSS ? r->outcome.loss : kind == OBJECT_SUMSQ ? r->outcome.sumsq : r->outcome.routing;
        queue_submit(q, &(op){OP_COPY, .copy = {r->walker->mailbox + at, address(r, s, from), s->buffers[from].bytes}});
    }
}

void task_run(task_runner *r, const schedule *s, const task *t, queue *q)
{
    const block_context c = {r->in->model, r->in->shape, q};
    switch (t->kind) {
    case TASK_INPUT: run_input(r, s, t, q); break;
    case TASK_OUTPUT: run_output(r, s, t, q); break;
    case TASK_COPY: case TASK_READ: case TASK_WRITE: walker_transfer(r->walker, s, t, q); break;
    case TASK_LOOK_UP: run_look_up(r, s, t, q); break;
    case TASK_EMBED: run_embed(r, s, t, &c); break;
    case TASK_LAYER: run_forward(r, s, t, &c); break;
    case TASK_HEAD: case TASK_HEAD_EVAL: run_head(r, s, t, &c); break;
    case TASK_LAYER_BACKWARD: run_backward(r, s, t, &c); break;
    case TASK_FINISH: (r->in->packing->ranks > 1 ? run_finish_shared : run_finish)(r, s, t, q); break;
    case TASK_EMBED_FINISH: run_embed_finish(r, s, t, q); break;
    case TASK_ROWS_FINISH: run_rows_finish(r, s, t, q); break;
    case TASK_EMBED_BACKWARD: run_embed_backward(r, s, t, q); break;
    case TASK_SCATTER: case TASK_SCATTER_TIED: case TASK_GATHER: run_exchange(r, s, t, q); break;
    default: run_update(r, s, t, q); break;
    }
}
