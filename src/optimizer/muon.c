/* muon.c - Muon as in torch.optim.Muon: a layer's matrix moves by its momentum, made approximately orthogonal by five Newton-Schulz steps
 * in bf16. Embeddings, head, norms and biases use AdamW.
 *
 * Each Hugging Face tensor is made orthogonal by itself, also q, k and v; of one with several experts, the matrices of each. With g the
 * smaller of its sides and k the other one:
 *
 *   X (rows, cols) = momentum / norm        5 times:   G (g, g) = X . X^T, of a tall one X^T . X
 *                                                      P (g, g) = b G + c G . G
 *                                                      X        = a X + P . X, of a tall one a X + X . P
 *
 * so nothing is transposed, whichever way Hugging Face stores the matrix. Sums of matmuls, with the matrix added to them, are fp32 and
 * rounded once; they are computed in slices of the result. The memory of a matrix beside its states:
 *
 *   workspace  [X bf16][G bf16][P bf16][a slice of sums fp32][partial sums of squares fp64]
 */
#include "optimizer/optimizer.h"

#include <math.h>

enum { STEPS = 5, SLICE_VALUES = 1 << 20, SLICE_ALIGN = 64, ALIGN = 64 };
static const float a = 3.4445f, b = -4.7750f, c = 2.0315f, least_norm = 1e-7f;

/* A tensor, and the parts of the workspace. */
typedef struct shape { int64_t rows, cols, small, large, slice; uint64_t gram, step, sums, squares, bytes; } shape;

static int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

static shape shape_of(int64_t rows, int64_t cols)
{
    shape s = {.rows = rows, .cols = cols, .small = least(rows, cols), .large = rows < cols ? cols : rows};
    const int64_t most = SLICE_VALUES / s.small / SLICE_ALIGN * SLICE_ALIGN;
    const uint64_t square = align_up((uint64_t)(s.small * s.small) * sizeof(bf16), ALIGN);
    s.slice = least(most < SLICE_ALIGN ? SLICE_ALIGN : most, s.large);
    s.gram = align_up((uint64_t)(rows * cols) * sizeof(bf16), ALIGN);
    s.step = s.gram + square;
    s.sums = s.step + square;
    s.squares = s.sums + align_up((uint64_t)(s.small * s.slice) * sizeof(float), ALIGN);
    s.bytes = s.squares + align_up((uint64_t)muon_sums(rows * cols) * sizeof(double), ALIGN);
    return s;
}

/* ---- Newton-Schulz ---- */

typedef struct iteration { queue *q; shape s; uint16_t *x, *gram, *step; float *sums; } iteration;

static void multiply(const iteration *i, op_matmul o)
{
    o.type = PT_BF16;
    queue_submit(i->q, &(op){OP_MATMUL, .matmul = o});
}

static void make_gram(const iteration *i)
{
    const shape *s = &i->s;
    multiply(i, (op_matmul){.layout = s->rows <= s->cols ? MATMUL_NT : MATMUL_TN, .out_type = PT_BF16, .m = s->small, .n = s->small,
                            .k = s->large, .lda = s->cols, .ldb = s->cols, .ldc = s->small, .a = i->x, .b = i->x, .c = i->gram});
}

static void make_step(const iteration *i)
{
    const int64_t n = i->s.small;
    for (int64_t row = 0; row < n; row += i->s.slice) {
        const int64_t rows = least(n - row, i->s.slice);
        multiply(i, (op_matmul){.layout = MATMUL_NN, .out_type = PT_F32, .m = rows, .n = n, .k = n, .lda = n, .ldb = n, .ldc = n,
                                .a = i->gram + row * n, .b = i->gram, .c = i->sums});
        queue_submit(i->q, &(op){OP_MUON_COMBINE, .muon_combine = {.rows = rows, .cols = n, .ldx = n, .lds = n, .ldo = n,
                                 .x = i->gram + row * n, .s = i->sums, .out = i->step + row * n, .a = b, .b = c}});
    }
}

/* Columns of a wide matrix depend only on the same columns, rows of a tall one on the same rows. */
static void move(const iteration *i)
{
    const shape *s = &i->s;
    const bool is_wide = s->rows <= s->cols;
    for (int64_t at = 0; at < s->large; at += s->slice) {
        const int64_t some = least(s->large - at, s->slice), rows = is_wide ? s->rows : some, cols = is_wide ? some : s->cols;
        uint16_t *x = i->x + (is_wide ? at : at * s->cols);
        const op_matmul wide = {.layout = MATMUL_NN, .out_type = PT_F32, .m = rows, .n = cols, .k = rows, .lda = rows, .ldb = s->cols,
                                .ldc = cols, .a = i->step, .b = x, .c = i->sums};
        const op_matmul tall = {.layout = MATMUL_NN, .out_type = PT_F32, .m = rows, .n = cols, .k = cols, .lda = cols, .ldb = cols,
                                .ldc = cols, .a = x, .b = i->step, .c = i->sums};
        multiply(i, is_wide ? wide : tall);
        queue_submit(i->q, &(op){OP_MUON_COMBINE, .muon_combine = {.rows = rows, .cols = cols, .ldx = s->cols, .lds = cols, .ldo = s->cols,
                                 .x = x, .s = i->sums, .out = x, .a = a, .b = 1}});
    }
}

/* ---- a tensor ---- */

static int64_t matrix_rows(const param *p, int k) { return p->part[k].rows / part_matrices(p, k); }

/* torch.optim.Muon's adjust_lr_fn, for the sides as Hugging Face stores them. */
static double adjusted(const update_params *p, double rows, double cols)
{
    switch (p->lr_adjust) {
    case LR_ADJUST_RMS: return (double)p->lr * 0.2 * sqrt(fmax(rows, cols));
    case LR_ADJUST_SPECTRAL: return (double)p->lr * sqrt(rows / cols);
    default: return (double)p->lr * sqrt(fmax(1, rows / cols));
    }
}

/* Matrix number `matrix` of part k, if it is among the values. */
static void update_matrix(queue *q, const update *u, int k, int64_t matrix)
{
    const update_params *p = u->params;
    const param_part *part = &u->param->part[k];
    const int64_t rows = matrix_rows(u->param, k), cols = u->param->cols, n = rows * cols;
    const int64_t first = part_first(u->param, k) + matrix * n - u->before;
    if (first < 0 || first >= u->n)
        return;
    const uint64_t e = dtype_bytes(u->type);
    const shape s = shape_of(rows, cols);
    char *w = u->workspace;
    const iteration i = {q, s, (uint16_t *)w, (uint16_t *)(w + s.gram), (uint16_t *)(w + s.step), (float *)(w + s.sums)};
    double *squares = (double *)(w + s.squares);
    queue_submit(q, &(op){OP_MUON_MOMENTUM, .muon_momentum = {.type = u->type, .n = n, .g = (const char *)u->g + (uint64_t)first * e,
                          .m = (float *)u->slab[0] + first, .x = i.x, .sums = squares, .grad_scale = p->grad_scale, .keep = p->momentum}});
    queue_submit(q, &(op){OP_MUON_SCALE, .muon_scale = {n, i.x, squares, least_norm}});
    for (int step = 0; step < STEPS; step++) {
        make_gram(&i);
        make_step(&i);
        move(&i);
    }
    const double lr = adjusted(p, (double)(part->transposed ? cols : rows), (double)(part->transposed ? rows : cols));
    queue_submit(q, &(op){OP_MUON_APPLY, .muon_apply = {.type = u->type, .n = n, .hi = (char *)u->hi + (uint64_t)first * e,
                          .lo = u->lo ? u->lo + first : NULL, .x = i.x, .decay = (float)(1.0 - (double)p->lr * (double)p->weight_decay),
                          .step = (float)lr}});
}

static void submit(queue *q, const update *u)
{
    for (int k = 0; k < u->param->parts; k++)
        for (int64_t i = 0; i < part_matrices(u->param, k); i++)
            update_matrix(q, u, k, i);
}

static uint64_t workspace(const param *p)
{
    uint64_t most = 0;
    for (int k = 0; k < p->parts; k++) {
        const uint64_t bytes = shape_of(matrix_rows(p, k), p->cols).bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

static double flops(const param *p)
{
    double all = 0;
    for (int k = 0; k < p->parts; k++) {
        const int64_t rows = matrix_rows(p, k);
        const double g = (double)least(rows, p->cols), n = (double)(rows * p->cols) / g;
        all += (double)part_matrices(p, k) * STEPS * (4 * g * g * n + 2 * g * g * g);
    }
    return all;
}

static const update_rule orthogonal = {.title = "Muon", .slabs = {{"momentum_buffer", PT_F32, 1}}, .submit = submit, .workspace = workspace,
                                       .flops = flops, .whole = true, .by_matrix = true, .by_device = true};

static const update_rule *rule_of(const param *p)
{
    return p->kind->use == USE_MATRIX || p->kind->use == USE_EXPERTS ? &orthogonal : &adamw_rule;
}

const optimizer optimizer_muon = {.name = "muon", .rules = {&adamw_rule, &orthogonal}, .rule_of = rule_of, .reads_momentum = true,
                                  .of_matrices = true};
