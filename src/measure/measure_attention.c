/* measure_attention.c - attention alone, as a layer calls it, with all heads, or with some of them if all would take too long. Of a long
 * sequence only so many tokens are run as take no longer, because a pair of a query and a key takes the same time at any such length. */
#include "measure/measure_parts.h"

#include <math.h>

typedef struct attention_bench {
    const model *model;
    const step_shape *shape;
    int block;
    int64_t kv_heads; /* the number that is run */
    char *qkv, *att, *datt, *dqkv, *scratch;
    float *lse, *sums;
} attention_bench;

static attention_heads heads_of(const attention_bench *y) { return model_heads(&y->model->config, y->block - 1); }
static int64_t qkv_cols(const attention_heads *h) { return h->q_wide + 2 * h->kv_wide; }

static void layout(area *a, void *arg)
{
    attention_bench *y = arg;
    const attention_heads h = heads_of(y);
    uint64_t rows = (uint64_t)y->shape->unit_rows, e = dtype_bytes(y->shape->type);
    uint64_t q = rows * (uint64_t)h.q_wide * e, all = rows * (uint64_t)qkv_cols(&h) * e;
    y->qkv = area_take(a, all, PATTERN_VALUES);
    y->att = area_take(a, q, PATTERN_VALUES);
    y->datt = area_take(a, q, PATTERN_GRADIENTS);
    y->dqkv = area_take(a, all, PATTERN_NONE);
    y->lse = area_take(a, rows * (uint64_t)h.heads * sizeof(float), PATTERN_NONE);
    y->scratch = area_take(a, attention_backward_scratch_bytes(y->shape->unit_rows, h.heads), PATTERN_NONE);
    uint64_t sums = attention_accumulator_bytes(y->shape->unit_seqs, y->shape->seq_len, h.kv_heads, h.dim);
    y->sums = sums ? area_take(a, sums, PATTERN_NONE) : NULL;
}

static op_attention op_of(const attention_bench *y)
{
    const model_config *m = &y->model->config;
    const attention_heads h = heads_of(y);
    int layer = y->model->blocks[y->block].layer;
    int64_t e = (int64_t)dtype_bytes(y->shape->type);
    return (op_attention){
        .type = y->shape->type, .seqs = y->shape->unit_seqs, .q_len = y->shape->seq_len, .kv_len = y->shape->seq_len,
        .heads = h.heads / h.kv_heads * y->kv_heads, .kv_heads = y->kv_heads, .dim = h.dim, .window = m->window[layer],
        .ldq = qkv_cols(&h), .ldkv = qkv_cols(&h), .ldo = h.q_wide, .scale = m->attention_scale * m->layer_scale[layer],
        .q = y->qkv, .k = y->qkv + h.q_wide * e, .v = y->qkv + (h.q_wide + h.kv_wide) * e, .out = y->att,
        .lse = y->lse};
}

static void forward(queue *q, void *arg, int index, int turn)
{
    queue_submit(q, &(op){OP_ATTENTION, .attention = op_of(arg)});
}

static void backward(queue *q, void *arg, int index, int turn)
{
    const attention_bench *y = arg;
    const attention_heads h = heads_of(y);
    int64_t e = (int64_t)dtype_bytes(y->shape->type);
    queue_submit(q, &(op){OP_ATTENTION_BACKWARD, .attention_backward = {
        .forward = op_of(y), .lddo = h.q_wide, .dout = y->datt, .dq = y->dqkv, .dk = y->dqkv + h.q_wide * e,
        .dv = y->dqkv + (h.q_wide + h.kv_wide) * e, .scratch = y->scratch, .sums = y->sums}});
}

/* Enough heads to occupy all threads: with fewer, a device may choose a slower algorithm. */
static int64_t heads_for_threads(const profile_request *req, int64_t all)
{
    int64_t threads = req->threads ? req->threads : req->device->info.threads;
    return threads < 1 ? 1 : threads < all ? threads : all;
}

static int measure_length(bench *b, int block, const step_shape *shape, double seconds, attention_ns *out, pt_error *e)
{
    attention_bench y = {.model = b->r->model, .shape = shape, .block = block};
    const int64_t all = heads_of(&y).kv_heads;
    *out = (attention_ns){0};
    if (!model_attends(&y.model->config, block - 1)) /* its work is in proportion to the rows */
        return 0;
    const int64_t few = heads_for_threads(b->r, all);
    y.kv_heads = few;
    area a;
    samples f = {0}, g = {0};
    stage stages[] = {{forward, 0, &f}, {backward, 0, &g}};
    int failed = area_open(b, TIER_DEVICE, &a, "attention", layout, &y, e);
    if (failed)
        return failed;
    failed = measure_rounds(b->compute, stages, 2, &y, 0, 1, 0, e);
    double one = (f.ns[0] + g.ns[0]) * 1e-9, times = one > 0 ? seconds / one : INFINITY;
    if (times > 1)
        y.kv_heads = times * (double)few < (double)all ? (int64_t)times * few : all;
    if (y.kv_heads > few) {
        f.n = g.n = 0;
        if (!failed)
            failed = measure_rounds(b->compute, stages, 2, &y, 0, 1, seconds - one, e);
    }
    area_close(&a);
    double heads = (double)all / (double)y.kv_heads;
    *out = (attention_ns){samples_median(&f) * heads, samples_median(&g) * heads};
    return failed;
}

double attention_pairs(const model *m, int block, const step_shape *shape)
{
    return model_average_keys(m->config.window[m->blocks[block].layer], shape_length(shape)) * (double)shape->unit_rows;
}

step_shape attention_part(const model *m, int block, const step_shape *shape, step_shape part, double took, double seconds)
{
    const double of_part = attention_pairs(m, block, &part);
    for (int64_t rows = 2 * part.unit_rows; rows <= shape->whole_heads && rows < 2 * shape->seq_len; rows *= 2) {
        const step_shape more = shape_cut(shape, rows);
        if (took * attention_pairs(m, block, &more) / of_part > seconds)
            break;
        part = more;
    }
    return part;
}

int measure_attention(bench *b, int block, const step_shape *shape, double seconds, attention_ns *out, pt_error *e)
{
    enum { FEW = 8192 };
    const model *m = b->r->model;
    step_shape part = shape_cut(shape, shape->seq_len > 2 * FEW ? FEW : shape->unit_rows);
    int failed = measure_length(b, block, &part, seconds, out, e);
    if (!failed && part.seq_len < shape_length(shape)) {
        part = attention_part(m, block, shape, part, (out->forward + out->backward) * 1e-9, seconds);
        failed = part.seq_len > FEW ? measure_length(b, block, &part, seconds, out, e) : 0;
    }
    const double times = attention_pairs(m, block, shape) / attention_pairs(m, block, &part);
    *out = (attention_ns){out->forward * times, out->backward * times};
    return failed;
}
