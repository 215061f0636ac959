/* head.c - final norm, logits, loss and their gradients, head_rows tokens at a time, so that the logits of a batch never exist together.
 * For such rows the vocabulary is processed in slices, in order: the data gradient is summed over the slices in fp32, however the table
 * is packed into chunks. A slice is one matmul, except the last one on a GPU (odd_words). */
#include "layer/block.h"
#include "layer/row_blocks.h"

#include <math.h>

typedef struct head {
    const block_context *c;
    const model_config *config;
    const step_shape *shape;
    const block_weights *w;
    pt_dtype type;
    int64_t rows, row0;  /* of the current part */
    char *normed, *dn;   /* (rows, C) of the current part */
    float *dn32, *logits;
    int64_t ld, ldd;     /* strides of the logits and of their gradient, which overwrites them */
} head;

/* Rows start .. start + n of the vocabulary, which are one matmul. */
typedef struct span { int64_t start, n; const void *weights; } span;

enum { EVEN = 64, LINE = 64 };

/* Rows of the vocabulary in a separate matmul: on a GPU, those that make the number of rows odd, because matmuls whose K is not a multiple
 * of 8 are slow there, with any stride. */
static int64_t odd_words(const head *h)
{
    const int64_t last = model_outputs(h->config) - (h->w->slices_n - 1) * h->shape->slice_rows;
    return h->shape->gpu && last > EVEN ? last % EVEN : 0;
}

static int spans_n(const head *h) { return h->w->slices_n + (odd_words(h) > 0); }

static span span_of(const head *h, int i)
{
    const int64_t slice = h->shape->slice_rows, even = model_outputs(h->config) - odd_words(h);
    const int last = h->w->slices_n - 1;
    const size_t row_bytes = (size_t)h->config->hidden * dtype_bytes(h->type);
    if (i > last)
        return (span){even, odd_words(h), (const char *)h->w->slices[last] + (size_t)(even - last * slice) * row_bytes};
    return (span){i * slice, i < last ? slice : even - last * slice, h->w->slices[i]};
}

static op_norm final_norm(const block_context *ctx, const block_weights *w, int64_t rows, const void *x, void *y)
{
    const model_config *m = &ctx->model->config;
    return (op_norm){.kind = m->norm, .type = ctx->shape->type, .rows = rows, .heads = 1, .dim = m->hidden, .ldx = m->hidden,
                     .ldy = m->hidden,
                     .eps = m->norm_eps, .offset = m->norm_offset, .x = x, .weight = w->param[PARAM_NORMF],
                     .bias = w->param[PARAM_NORMF_BIAS], .y = y};
}

static void logits(const head *h)
{
    for (int i = 0; i < spans_n(h); i++) {
        const span s = span_of(h, i);
        queue_submit(h->c->queue, &(op){OP_MATMUL, .matmul = {
            .layout = MATMUL_NT, .type = h->type, .out_type = PT_F32, .m = h->rows, .n = s.n, .k = h->config->hidden,
            .lda = h->config->hidden, .ldb = h->config->hidden, .ldc = h->ld, .a = h->normed, .b = s.weights, .c = h->logits + s.start}});
    }
}

/* Gradients of the table, if it is trained, and of the normed rows, if anything before them is. */
static void gradients(const head *h, float *table, bool rows, bool first)
{
    int64_t hidden = h->config->hidden;
    for (int i = 0; i < spans_n(h); i++) {
        const span s = span_of(h, i);
        const char *d = (const char *)h->logits + (size_t)s.start * dtype_bytes(h->type);
        if (table)
            queue_submit(h->c->queue, &(op){OP_MATMUL, .matmul = {
                .layout = MATMUL_TN, .type = h->type, .out_type = PT_F32, .accumulate = !first || h->row0 > 0, .m = s.n, .n = hidden,
                .k = h->rows, .lda = h->ldd, .ldb = hidden, .ldc = hidden, .a = d, .b = h->normed, .c = table + s.start * hidden}});
        if (rows)
            queue_submit(h->c->queue, &(op){OP_MATMUL, .matmul = {
                .layout = MATMUL_NN, .type = h->type, .out_type = PT_F32, .accumulate = i > 0, .m = h->rows, .n = hidden, .k = s.n,
                .lda = h->ldd, .ldb = hidden, .ldc = hidden, .a = d, .b = s.weights, .c = h->dn32}});
    }
    if (!rows)
        return;
    queue_submit(h->c->queue, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
        .type = h->type, .rows = h->rows, .cols = hidden, .acc = h->dn32, .g = h->dn}});
}

/* Processes a unit's normed rows part by part. */
typedef struct head_unit {
    const block_unit *u;
    head_layout l;
    char *workspace;
    head_output result;
    float *table;                /* destination of its gradient, or NULL */
    const float *weights;        /* of the targets, or NULL */
    float scale;
    bool first, rows;            /* rows: compute the gradients of the normed rows */
} head_unit;

/* Losses, and gradients if `trains`. */
static void parts(const head *all, const head_unit *y, bool trains)
{
    const step_shape *shape = all->shape;
    const size_t row_bytes = (size_t)all->config->hidden * dtype_bytes(shape->type);
    for (int64_t row = 0; row < shape->unit_rows; row += shape->head_rows) {
        head h = *all;
        h.row0 = row;
        h.rows = shape->unit_rows - row < shape->head_rows ? shape->unit_rows - row : shape->head_rows;
        h.normed = y->workspace + y->l.normed + (size_t)row * row_bytes;
        h.dn = y->workspace + y->l.dn + (size_t)row * row_bytes;
        logits(&h);
        if (y->result.scores)
            queue_submit(h.c->queue, &(op){OP_COPY, .copy = {y->result.scores + row * h.ld, h.logits,
                                                             (size_t)(h.rows * h.ld) * sizeof(float)}});
        queue_submit(h.c->queue, &(op){OP_CROSS_ENTROPY, .cross_entropy = {
            .type = shape->type, .rows = h.rows, .vocab = model_outputs(h.config), .ld = h.ld, .lddl = h.ldd, .scale = y->scale,
            .logits = h.logits, .targets = y->u->targets + row, .loss = y->result.loss + row, .dlogits = trains ? h.logits : NULL,
            .logit_scale = h.config->logit_scale, .softcap = h.config->logit_softcap, .weights = y->weights ? y->weights + row : NULL,
            .right = y->result.right ? y->result.right + row : NULL,
            .smoothing = trains ? shape->smoothing : 0, .linear = shape->linear}});
        if (trains)
            gradients(&h, y->table, y->rows, y->first);
    }
}

/* The weight of a row depends on the losses of its whole pair, so all losses are computed once before. */
static void compare_pairs(const head *all, head_unit *y)
{
    const step_shape *shape = all->shape;
    float *weights = (float *)(y->workspace + y->l.weights);
    preference_rule rule = shape->compare;
    rule.baseline = y->u->baseline;
    y->weights = NULL;
    parts(all, y, false);
    queue_submit(all->c->queue, &(op){OP_PREFERENCE, .preference = {
        .rule = rule, .sequences = shape->unit_seqs, .seq_len = shape->seq_len, .targets = y->u->targets, .first = y->u->first,
        .loss = y->result.loss, .given = y->u->weights, .weights = weights}});
    y->weights = weights;
}

void head_forward_backward(const block_context *ctx, const block_weights *w, const block_unit *u, const void *x,
                           char *workspace, head_output result, void *dx, float *accumulators, bool first, float scale)
{
    const step_shape *shape = ctx->shape;
    const model_config *m = &ctx->model->config;
    head_unit y = {.u = u, .workspace = workspace, .result = result, .weights = u->weights, .scale = scale, .first = first};
    head_layout_init(&y.l, ctx->model, shape);
    const int block = ctx->model->blocks_n - 1;
    const struct block *b = &ctx->model->blocks[block];
    const op_norm n = final_norm(ctx, w, shape->unit_rows, x, workspace + y.l.normed);
    queue_submit(ctx->queue, &(op){OP_NORM, .norm = n});
    float *of_role[PARAM_ROLES] = {0};
    for (int r = 0; accumulators && r < PARAM_ROLES; r++)
        if (b->param_of_role[r] >= 0 && ctx->model->params[b->param_of_role[r]].trainable)
            of_role[r] = accumulators + accumulator_offset(ctx->model, block, r);
    y.table = of_role[m->tied ? PARAM_TOKENS : PARAM_HEAD];
    y.rows = dx || of_role[PARAM_NORMF] || of_role[PARAM_NORMF_BIAS];
    const head all = {.c = ctx, .config = m, .shape = shape, .w = w, .type = shape->type, .dn32 = (float *)(workspace + y.l.dn32),
                      .logits = (float *)(workspace + y.l.logits), .ld = y.l.ld,
                      .ldd = y.l.ld * (int64_t)(sizeof(float) / dtype_bytes(shape->type))};
    const bool trains = dx || accumulators;
    if (trains && shape_compares(shape))
        compare_pairs(&all, &y);
    parts(&all, &y, trains);
    if (y.rows)
        submit_norm_backward(ctx->queue, shape, (op_norm_backward){
            .kind = m->norm, .type = shape->type, .accumulate = !first, .rows = shape->unit_rows, .heads = 1, .dim = m->hidden,
            .ldx = m->hidden, .lddy = m->hidden, .lddx = m->hidden, .eps = n.eps, .offset = n.offset, .x = x, .weight = n.weight,
            .dy = workspace + y.l.dn, .dx = dx ? dx : workspace + y.l.dn, .stream = dx ? u->stream : NULL,
            .dweight = of_role[PARAM_NORMF], .dbias = of_role[PARAM_NORMF_BIAS],
            .scratch = workspace + y.l.scratch});
}

void head_logits(const block_context *ctx, const block_weights *w, const void *x, void *normed, float *out)
{
    const op_norm n = final_norm(ctx, w, 1, x, normed);
    /* one row needs no stride, but cuBLASLt asks for its alignment */
    const head h = {.c = ctx,
                    .config = &ctx->model->config,
                    .shape = ctx->shape,
                    .w = w,
                    .type = ctx->shape->type,
                    .rows = 1,
                    .normed = normed,
                    .logits = out,
                    .ld = (int64_t)align_up((uint64_t)model_outputs(&ctx->model->config), LINE / sizeof(float))};
    queue_submit(ctx->queue, &(op){OP_NORM, .norm = n});
    logits(&h);
}

void head_finish_logits(const model_config *m, float *logits)
{
    const float cap = m->logit_softcap;
    for (int64_t i = 0; i < m->vocab && (cap > 0 || m->logit_scale != 1); i++) {
        const float z = logits[i] * m->logit_scale;
        logits[i] = cap > 0 ? cap * tanhf(z / cap) : z;
    }
}
