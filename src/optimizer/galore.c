/* galore.c - GaLore (Zhao et al., 2024): Adam's moments of a layer's gradient where it is largest. With G (m, n), or its transpose if
 * m > n, and t the step:
 *
 *   P (rank, m), of orthonormal rows: the largest directions of G, found again every update_proj_gap steps
 *   R = P G        M, V: Adam's moments of R, which stay when P changes        N = M / (sqrt(V) + eps)
 *   w = (w - lr sqrt(1 - beta2^t) / (1 - beta1^t) scale P^T N) (1 - lr weight_decay)
 *
 * P comes from STEPS steps of subspace iteration, from random rows on: Y = (P G) G^T, and the rows of Y made orthonormal. It spans the
 * space of the largest singular vectors, nearly; within the space it may be turned against them. P is kept in fp32; matmuls read it in the
 * compute type. The update is multiplied in slices. Embeddings, head, norms and biases use AdamW. Experts' matrices are matrices of their
 * own. galore8bit keeps M and V in
 * 8 bits, as adamw8bit does.
 */
#include "optimizer/low_rank.h"

enum { STEPS = 4, SLICE_VALUES = 1 << 20, LIMIT_BYTES = 64 };

static const arg_row args[] = {ARG(rank, INT, 128, 1, 65536), ARG(update_proj_gap, INT, 200, 1, 1e9), ARG(scale, REAL, 0.25, 1e-6, 1e6),
                               {.key = NULL}};

/* P in the compute type; R, which becomes N; P G or N in the compute type; Y; random numbers; a slice of the update; step and decay;
 * moments that are kept in codes. */
typedef struct places { char *projection, *half; float *r, *y, *noise, *slice, *limit, *decoded; int64_t slice_rows; } places;

/* Addresses in a workspace; returns its bytes. */
static uint64_t places_of(const low_shape *s, bool in_codes, char *w, places *out)
{
    uint64_t at = 0;
    const int64_t rows = SLICE_VALUES / s->cols;
    out->slice_rows = rows < 1 ? 1 : rows < s->rows ? rows : s->rows;
    out->projection = w + workspace_take(&at, s->rank * s->small, sizeof(float));
    out->half = w + workspace_take(&at, s->rank * s->large, sizeof(float));
    out->r = (float *)(w + workspace_take(&at, s->rank * s->large, sizeof(float)));
    out->y = (float *)(w + workspace_take(&at, s->rank * s->small, sizeof(float)));
    out->noise = (float *)(w + workspace_take(&at, s->rank * s->small, sizeof(float)));
    out->slice = (float *)(w + workspace_take(&at, out->slice_rows * s->cols, sizeof(float)));
    out->limit = (float *)(w + workspace_take(&at, LIMIT_BYTES, 1));
    out->decoded = (float *)(w + workspace_take(&at, low_decoded(s, in_codes), sizeof(float)));
    return at;
}

static uint64_t bytes_of(const param *p, int k, bool in_codes)
{
    static char none[1];
    places unused;
    const low_shape s = low_shape_of(p, k);
    return places_of(&s, in_codes, none, &unused);
}

static uint64_t part_bytes(const param *p, int k) { return bytes_of(p, k, false); }
static uint64_t part_bytes_in_codes(const param *p, int k) { return bytes_of(p, k, true); }
static uint64_t workspace(const param *p) { return workspace_of_parts(p, part_bytes); }
static uint64_t workspace_in_codes(const param *p) { return workspace_of_parts(p, part_bytes_in_codes); }

/* ---- the projection ---- */

typedef struct matrix { low_matrix of; pt_dtype type; low_moments moments; float *p; places at; } matrix;

static void round_to(queue *q, pt_dtype type, const float *from, int64_t rows, int64_t cols, void *to)
{
    queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {.type = type, .rows = rows, .cols = cols, .acc = from, .g = to}});
}

/* y = (P G) G^T, by rows (G P^T)^T G: (rank, small). */
static void multiply_twice(queue *q, const matrix *x)
{
    const low_shape *s = &x->of.s;
    op_matmul o = {.layout = MATMUL_NT, .type = x->type, .out_type = PT_F32, .m = s->rank, .n = s->rows, .k = s->cols, .lda = s->cols,
                   .ldb = s->cols, .ldc = s->rows, .a = x->at.half, .b = x->of.g, .c = x->at.y};
    if (s->by_rows)
        o = (op_matmul){.layout = MATMUL_TN, .type = x->type, .out_type = PT_F32, .m = s->rank, .n = s->cols, .k = s->rows, .lda = s->rank,
                        .ldb = s->cols, .ldc = s->cols, .a = x->at.half, .b = x->of.g, .c = x->at.y};
    low_project(q, x->type, x->type, s, x->at.projection, x->of.g, x->at.half);
    queue_submit(q, &(op){OP_MATMUL, .matmul = o});
}

static void find_directions(queue *q, const update_params *p, const matrix *x)
{
    const low_shape *s = &x->of.s;
    const int64_t n = s->rank * s->small;
    const uint32_t draw = (uint32_t)((p->step - 1) / (int64_t)p->args.update_proj_gap);
    queue_submit(q, &(op){OP_RANDOM_MATRIX, .random_matrix = {PT_F32, n, p->seed, x->of.stream, draw, x->at.noise}});
    round_to(q, x->type, x->at.noise, s->rank, s->small, x->at.projection);
    for (int i = 0; i < STEPS; i++) {
        multiply_twice(q, x);
        queue_submit(q, &(op){OP_ORTHONORMAL, .orthonormal = {s->rank, s->small, x->at.y, x->at.noise, x->p}});
        round_to(q, x->type, x->p, s->rank, s->small, x->at.projection);
    }
}

/* ---- the update ---- */

static void find_update(queue *q, const update_params *p, const matrix *x)
{
    const low_shape *s = &x->of.s;
    low_project(q, x->type, PT_F32, s, x->at.projection, x->of.g, x->at.r);
    queue_submit(q, &(op){OP_LOW_MOMENTS, .low_moments = {
        .channels = s->large, .rank = s->rank, .by_rows = s->by_rows, .r = x->at.r, .scale = p->grad_scale, .beta1 = p->beta1,
        .beta2 = p->beta2, .eps = p->eps, .m = x->moments.m, .v = x->moments.v, .n = x->at.r}});
    round_to(q, x->type, x->at.r, s->rank, s->large, x->at.half);
}

/* Rows first .. first + n of P^T N, by rows N P. */
static void apply_slice(queue *q, const matrix *x, int64_t first, int64_t n)
{
    const low_shape *s = &x->of.s;
    const uint64_t e = dtype_bytes(x->type), at = (uint64_t)(first * s->cols) * e;
    op_matmul o = {.layout = MATMUL_TN, .type = x->type, .out_type = PT_F32, .m = n, .n = s->cols, .k = s->rank, .lda = s->rows,
                   .ldb = s->cols, .ldc = s->cols, .a = x->at.projection + (uint64_t)first * e, .b = x->at.half, .c = x->at.slice};
    if (s->by_rows)
        o = (op_matmul){.layout = MATMUL_NN, .type = x->type, .out_type = PT_F32, .m = n, .n = s->cols, .k = s->rank, .lda = s->rank,
                        .ldb = s->cols, .ldc = s->cols, .a = x->at.half + (uint64_t)(first * s->rank) * e, .b = x->at.projection,
                        .c = x->at.slice};
    queue_submit(q, &(op){OP_MATMUL, .matmul = o});
    queue_submit(q, &(op){OP_SCALED_APPLY, .scaled_apply = {
        .type = x->type, .g_type = PT_F32, .rows = n, .cols = s->cols, .hi = x->of.hi + at,
        .lo = x->of.lo ? x->of.lo + first * s->cols : NULL, .g = x->at.slice, .grad_scale = 1, .limit = x->at.limit}});
}

static void update_matrix(queue *q, const update *u, const matrix *x)
{
    const update_params *p = u->params;
    const int64_t rows = x->of.s.rows, step = x->at.slice_rows;
    const double decay = u->param->decay ? (double)p->lr * (double)p->weight_decay : 0;
    if ((p->step - 1) % (int64_t)p->args.update_proj_gap == 0)
        find_directions(q, p, x);
    else
        round_to(q, x->type, x->p, x->of.s.rank, x->of.s.small, x->at.projection);
    find_update(q, p, x);
    queue_submit(q, &(op){OP_UPDATE_LIMIT, .update_limit = {.kind = LIMIT_NONE, .lr = (float)(low_rate(p) * p->args.scale),
                          .decay = (float)decay, .out = x->at.limit}});
    for (int64_t row = 0; row < rows; row += step)
        apply_slice(q, x, row, rows - row < step ? rows - row : step);
}

static void submit_by(queue *q, const update *u, const update_rule *r)
{
    const int projector = rule_find(r, "projector");
    for (int k = 0; k < u->param->parts; k++)
        for (int64_t i = 0; i < part_matrices(u->param, k); i++) {
            matrix x = {.of = low_matrix_of(u, k, i), .type = u->type};
            places_of(&x.of.s, low_is_in_codes(r), u->workspace, &x.at);
            x.p = (float *)u->slab[projector] + low_entries_before(u, &r->slabs[projector], k, i);
            x.moments = low_moments_open(q, u, r, k, i, x.at.decoded);
            update_matrix(q, u, &x);
            low_moments_close(q, &x.moments);
        }
}

/* ---- the rule ---- */

static int64_t projectors_of(const param *p, int k)
{
    const low_shape s = low_shape_of(p, k);
    return part_matrices(p, k) * s.rank * s.small;
}

/* What is projected is multiplied back. */
static double flops(const param *p) { return 2 * low_flops(p); }

static const update_rule projected, in_codes;
static void submit(queue *q, const update *u) { submit_by(q, u, &projected); }
static void submit_in_codes(queue *q, const update *u) { submit_by(q, u, &in_codes); }

static const update_rule projected = {.title = "GaLore", .submit = submit, .whole = true, .by_device = true, .workspace = workspace,
                                      .flops = flops, .slabs = {{"low_exp_avg", PT_F32, 1, low_moments_of},
                                                                {"low_exp_avg_sq", PT_F32, 1, low_moments_of},
                                                                {"projector", PT_F32, 1, projectors_of}}};
static const update_rule in_codes = {.title = "GaLore in 8 bits", .submit = submit_in_codes, .whole = true, .by_device = true,
                                     .workspace = workspace_in_codes, .flops = flops,
                                     .slabs = {{"low_exp_avg", PT_U8, 1, low_codes_of}, {"low_exp_avg_sq", PT_U8, 1, low_codes_of},
                                               {"low_absmax", PT_F32, 1, low_scales_of}, {"projector", PT_F32, 1, projectors_of}}};

static bool is_projected(const param *p) { return p->kind->use == USE_MATRIX || p->kind->use == USE_EXPERTS; }
static const update_rule *rule_of(const param *p) { return is_projected(p) ? &projected : &adamw_rule; }

static const update_rule *rule_in_codes_of(const param *p)
{
    return !is_projected(p) ? &adamw_rule : low_fits_codes(p) ? &in_codes : &projected;
}

const optimizer optimizer_galore = {.name = "galore", .rules = {&adamw_rule, &projected}, .rule_of = rule_of, .of_matrices = true,
                                    .args = args};
const optimizer optimizer_galore8bit = {.name = "galore8bit", .rules = {&adamw_rule, &projected, &in_codes}, .rule_of = rule_in_codes_of,
                                        .of_matrices = true, .args = args};
