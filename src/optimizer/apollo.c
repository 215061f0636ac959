/* apollo.c - APOLLO and APOLLO-Mini (Zhu et al., 2024): a layer's matrix moves by its gradient, whose rows or columns are scaled as Adam
 * would scale them, judged in few dimensions. With G (m, n), or its transpose if m > n; P (rank, m), random with variance 1 / rank; and t
 * the step:
 *
 *   R = P G (rank, n)       M, V: Adam's moments of R       N = M / (sqrt(V) + eps)
 *   s = |N| / (|R| + 1e-8)  of each column, or (scale_type tensor) of all together
 *   U = s G                 U /= max(|U| / |U before|, 1.01) / 1.01, from the second step on
 *   w = (w - lr sqrt(1 - beta2^t) / (1 - beta1^t) sqrt(scale) U) (1 - lr weight_decay)
 *
 * P is drawn again every update_proj_gap steps. It is a function of the seed, the tensor's name, and the number of the draw: it is made
 * where it is needed, and never kept. Embeddings, head, norms and biases use AdamW. Experts' matrices are matrices of their own.
 * apollo8bit keeps M and V in 8 bits, as adamw8bit does.
 */
#include "optimizer/low_rank.h"

#include <math.h>

enum { LIMIT_BYTES = 64 };
#define LARGEST_GROWTH 1.01f

static const char *const scale_types[] = {"channel", "tensor", NULL};

static const arg_row args[] = {
    ARG(rank, INT, 128, 1, 65536), ARG(update_proj_gap, INT, 200, 1, 1e9), ARG(scale, REAL, 1, 1e-6, 1e6),
    {"scale_type", ARG_CHOICE, offsetof(optimizer_args, scale_type), 0, 0, 1, scale_types}, {.key = NULL}};
static const arg_row mini_args[] = {
    ARG(rank, INT, 1, 1, 65536), ARG(update_proj_gap, INT, 200, 1, 1e9), ARG(scale, REAL, 128, 1e-6, 1e6),
    {"scale_type", ARG_CHOICE, offsetof(optimizer_args, scale_type), 1, 0, 1, scale_types}, {.key = NULL}};

/* P, R, the sums of N and of R by channel, the channels' scales, the sums of the update by row, its limit, moments
 * that are kept in codes. */
typedef struct places { char *projection; float *r, *scales, *limit, *decoded; double *moved, *given, *sums; } places;

/* Addresses in a workspace; returns its bytes. */
static uint64_t places_of(const low_shape *s, bool in_codes, char *w, places *out)
{
    uint64_t at = 0;
    out->projection = w + workspace_take(&at, s->rank * s->small, sizeof(float));
    out->r = (float *)(w + workspace_take(&at, s->rank * s->large, sizeof(float)));
    out->moved = (double *)(w + workspace_take(&at, s->large, sizeof(double)));
    out->given = (double *)(w + workspace_take(&at, s->large, sizeof(double)));
    out->scales = (float *)(w + workspace_take(&at, s->large, sizeof(float)));
    out->sums = (double *)(w + workspace_take(&at, s->rows, sizeof(double)));
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

/* ---- a matrix ---- */

typedef struct matrix { low_matrix of; low_moments moments; float *last; places at; } matrix;

static void find_scales(queue *q, const update *u, const matrix *x)
{
    const update_params *p = u->params;
    const low_shape *s = &x->of.s;
    const uint32_t draw = (uint32_t)((p->step - 1) / (int64_t)p->args.update_proj_gap);
    const float by = (float)((double)p->grad_scale / sqrt((double)RANDOM_VARIANCE * (double)s->rank));
    queue_submit(q, &(op){OP_RANDOM_MATRIX, .random_matrix = {u->type, s->rank * s->small, p->seed, x->of.stream, draw, x->at.projection}});
    low_project(q, u->type, PT_F32, s, x->at.projection, x->of.g, x->at.r);
    queue_submit(q, &(op){OP_LOW_MOMENTS, .low_moments = {
        .channels = s->large, .rank = s->rank, .by_rows = s->by_rows, .r = x->at.r, .scale = by, .beta1 = p->beta1, .beta2 = p->beta2,
        .eps = p->eps, .m = x->moments.m, .v = x->moments.v, .moved = x->at.moved, .given = x->at.given}});
    queue_submit(q, &(op){OP_CHANNEL_SCALE, .channel_scale = {s->large, p->args.scale_type != 0, x->at.moved, x->at.given, x->at.scales}});
}

static void apply(queue *q, const update *u, const matrix *x)
{
    const update_params *p = u->params;
    const low_shape *s = &x->of.s;
    const float *row = s->by_rows ? x->at.scales : NULL, *col = row ? NULL : x->at.scales;
    const double decay = u->param->decay ? (double)p->lr * (double)p->weight_decay : 0, lr = low_rate(p) * sqrt(p->args.scale);
    queue_submit(q, &(op){OP_SCALED_SQUARES, .scaled_squares = {u->type, s->rows, s->cols, x->of.g, p->grad_scale, row, col, x->at.sums}});
    queue_submit(q, &(op){OP_UPDATE_LIMIT, .update_limit = {
        .kind = LIMIT_GROWTH, .sums_n = s->rows, .values = s->rows * s->cols, .sums = x->at.sums, .lr = (float)lr, .decay = (float)decay,
        .most = LARGEST_GROWTH, .last = x->last, .out = x->at.limit}});
    queue_submit(q, &(op){OP_SCALED_APPLY, .scaled_apply = {u->type, u->type, s->rows, s->cols, x->of.hi, x->of.lo, x->of.g, p->grad_scale,
                          row, col, x->at.limit}});
}

static void submit_by(queue *q, const update *u, const update_rule *r)
{
    const int norm = rule_find(r, "update_norm");
    for (int k = 0; k < u->param->parts; k++)
        for (int64_t i = 0; i < part_matrices(u->param, k); i++) {
            matrix x = {.of = low_matrix_of(u, k, i)};
            places_of(&x.of.s, low_is_in_codes(r), u->workspace, &x.at);
            x.last = (float *)u->slab[norm] + low_entries_before(u, &r->slabs[norm], k, i);
            x.moments = low_moments_open(q, u, r, k, i, x.at.decoded);
            find_scales(q, u, &x);
            low_moments_close(q, &x.moments);
            apply(q, u, &x);
        }
}

/* ---- the rule ---- */

static int64_t matrices_of(const param *p, int k) { return part_matrices(p, k); }

static const update_rule scaled, in_codes;
static void submit(queue *q, const update *u) { submit_by(q, u, &scaled); }
static void submit_in_codes(queue *q, const update *u) { submit_by(q, u, &in_codes); }

static const update_rule scaled = {.title = "APOLLO", .submit = submit, .whole = true, .by_device = true, .workspace = workspace,
                                   .flops = low_flops, .slabs = {{"low_exp_avg", PT_F32, 1, low_moments_of},
                                                                 {"low_exp_avg_sq", PT_F32, 1, low_moments_of},
                                                                 {"update_norm", PT_F32, 1, matrices_of}}};
static const update_rule in_codes = {.title = "APOLLO in 8 bits", .submit = submit_in_codes, .whole = true, .by_device = true,
                                     .workspace = workspace_in_codes, .flops = low_flops,
                                     .slabs = {{"low_exp_avg", PT_U8, 1, low_codes_of}, {"low_exp_avg_sq", PT_U8, 1, low_codes_of},
                                               {"low_absmax", PT_F32, 1, low_scales_of}, {"update_norm", PT_F32, 1, matrices_of}}};

static bool is_scaled(const param *p) { return p->kind->use == USE_MATRIX || p->kind->use == USE_EXPERTS; }
static const update_rule *rule_of(const param *p) { return is_scaled(p) ? &scaled : &adamw_rule; }

static const update_rule *rule_in_codes_of(const param *p)
{
    return !is_scaled(p) ? &adamw_rule : low_fits_codes(p) ? &in_codes : &scaled;
}

const optimizer optimizer_apollo = {.name = "apollo", .rules = {&adamw_rule, &scaled}, .rule_of = rule_of, .of_matrices = true,
                                    .args = args};
const optimizer optimizer_apollo8bit = {.name = "apollo8bit", .rules = {&adamw_rule, &scaled, &in_codes}, .rule_of = rule_in_codes_of,
                                        .of_matrices = true, .args = args};
const optimizer optimizer_apollo_mini = {.name = "apollo_mini", .rules = {&adamw_rule, &scaled}, .rule_of = rule_of, .of_matrices = true,
                                         .args = mini_args};
