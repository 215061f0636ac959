/* adafactor.c - Adafactor as Transformers has it (Shazeer and Stern, 2018), without a first moment: the second moment of a matrix is kept
 * as the means of its rows and columns. Vectors keep it value by value. With g the gradient and t the step, for each tensor:
 *
 *   keep = 1 - t^decay_rate         row = keep row + (1 - keep) mean of g^2 + 1e-30 over the row;  col likewise
 *   u    = g / sqrt(row col / mean of row)                                      u /= max(1, RMS of u / clip_threshold)
 *   w    = w - lr weight_decay w - lr u
 *
 * scale_parameter: lr is multiplied by max(1e-3, RMS of w). relative_step and warmup_init make lr (optimizer_relative_lr).
 *
 * Tables of tokens use AdamW, because their slices lie in several chunks, and a column of a table is all of them. Of a layer's experts,
 * each matrix has means of its own, and the experts that one tensor holds share the RMS. Workspace:
 *
 *   [partial sums of columns fp32][factors of rows][factors of columns][sums of rows fp64][sums of the weights fp64][limit]
 */
#include "optimizer/optimizer.h"

#include <math.h>

#define EPS 1e-30f
#define LEAST_RMS 1e-3f
enum { LIMIT_BYTES = 64 };

static const arg_row args[] = {ARG(scale_parameter, BOOL, 0, 0, 1), ARG(relative_step, BOOL, 0, 0, 1), ARG(warmup_init, BOOL, 0, 0, 1),
                               ARG(clip_threshold, REAL, 1, 1e-6, 1e6), ARG(decay_rate, REAL, -0.8, -10, -1e-6), {.key = NULL}};

typedef struct places { float *partial, *row, *col, *limit; double *sums, *weights; } places;

/* Addresses in a workspace; returns its bytes. */
static uint64_t places_of(const part_matrix *m, char *w, places *out)
{
    uint64_t at = 0;
    out->partial = (float *)(w + workspace_take(&at, factor_blocks(m->rows) * m->cols, sizeof(float)));
    out->row = (float *)(w + workspace_take(&at, m->n * m->rows, sizeof(float)));
    out->col = (float *)(w + workspace_take(&at, m->n * m->cols, sizeof(float)));
    out->sums = (double *)(w + workspace_take(&at, m->n * m->rows, sizeof(double)));
    out->weights = (double *)(w + workspace_take(&at, m->n * m->rows, sizeof(double)));
    out->limit = (float *)(w + workspace_take(&at, LIMIT_BYTES, 1));
    return at;
}

static uint64_t part_bytes(const param *p, int k)
{
    static char none[1];
    places unused;
    const part_matrix m = part_matrix_of(p, k);
    return places_of(&m, none, &unused);
}

static uint64_t workspace(const param *p) { return workspace_of_parts(p, part_bytes); }

/* ---- a tensor ---- */

/* Values of part k begin here; row NULL: a vector, which keeps col alone. */
typedef struct tensor { part_matrix m; char *hi; uint16_t *lo; const char *g; float *row, *col; places at; } tensor;

static void moments(queue *q, const update *u, const tensor *t, int64_t i)
{
    const update_params *p = u->params;
    const int64_t rows = t->m.rows, cols = t->m.cols, n = rows * cols;
    const float keep = (float)(1 - pow((double)p->step, p->args.decay_rate));
    const char *g = t->g + (uint64_t)(i * n) * dtype_bytes(u->type);
    float *row = t->row ? t->row + i * rows : NULL;
    queue_submit(q, &(op){OP_FACTOR_SUMS, .factor_sums = {u->type, rows, cols, g, p->grad_scale, keep, EPS, row, t->at.partial}});
    queue_submit(q, &(op){OP_FACTOR_FOLD, .factor_fold = {rows, cols, row, t->at.partial, keep, EPS, t->col + i * cols,
                          t->at.row + i * rows, t->at.col + i * cols}});
    queue_submit(q, &(op){OP_SCALED_SQUARES, .scaled_squares = {u->type, rows, cols, g, p->grad_scale, t->at.row + i * rows,
                          t->at.col + i * cols, t->at.sums + i * rows}});
}

static void limit(queue *q, const update *u, const tensor *t)
{
    const update_params *p = u->params;
    const bool scales = p->args.scale_parameter != 0;
    const int64_t rows = t->m.n * t->m.rows;
    if (scales)
        queue_submit(q, &(op){OP_MASTER_SQUARES, .master_squares = {u->type, rows, t->m.cols, t->hi, t->lo, t->at.weights}});
    queue_submit(q, &(op){OP_UPDATE_LIMIT, .update_limit = {
        .kind = LIMIT_RMS, .sums_n = rows, .values = rows * t->m.cols, .sums = t->at.sums, .weights = scales ? t->at.weights : NULL,
        .lr = p->lr, .decay = u->param->decay ? p->weight_decay : 0, .most = (float)p->args.clip_threshold, .least = LEAST_RMS,
        .out = t->at.limit}});
}

static void apply(queue *q, const update *u, const tensor *t, int64_t i)
{
    const int64_t rows = t->m.rows, cols = t->m.cols, first = i * rows * cols;
    const uint64_t at = (uint64_t)first * dtype_bytes(u->type);
    queue_submit(q, &(op){OP_SCALED_APPLY, .scaled_apply = {u->type, u->type, rows, cols, t->hi + at, t->lo ? t->lo + first : NULL,
                          t->g + at, u->params->grad_scale, t->at.row + i * rows, t->at.col + i * cols, t->at.limit}});
}

static void update_tensor(queue *q, const update *u, tensor *t, int k)
{
    const int64_t first = part_first(u->param, k);
    const uint64_t at = (uint64_t)first * dtype_bytes(u->type);
    t->hi = (char *)u->hi + at;
    t->lo = u->lo ? u->lo + first : NULL;
    t->g = (const char *)u->g + at;
    places_of(&t->m, u->workspace, &t->at);
    for (int64_t i = 0; i < t->m.n; i++)
        moments(q, u, t, i);
    limit(q, u, t);
    for (int64_t i = 0; i < t->m.n; i++)
        apply(q, u, t, i);
}

/* ---- rules ---- */

static int64_t rows_of(const param *p, int k) { return part_matrix_of(p, k).n * part_matrix_of(p, k).rows; }
static int64_t cols_of(const param *p, int k) { return part_matrix_of(p, k).n * part_matrix_of(p, k).cols; }

static const update_rule factored;

static void submit_factored(queue *q, const update *u)
{
    for (int k = 0; k < u->param->parts; k++) {
        tensor t = {.m = part_matrix_of(u->param, k), .row = (float *)u->slab[0] + slab_first(&factored.slabs[0], u->param, k),
                    .col = (float *)u->slab[1] + slab_first(&factored.slabs[1], u->param, k)};
        update_tensor(q, u, &t, k);
    }
}

static void submit_vector(queue *q, const update *u)
{
    for (int k = 0; k < u->param->parts; k++) {
        tensor t = {.m = part_matrix_of(u->param, k), .col = (float *)u->slab[0] + part_first(u->param, k)};
        update_tensor(q, u, &t, k);
    }
}

static const update_rule factored = {.title = "Adafactor", .submit = submit_factored, .whole = true, .workspace = workspace, .passes = 3,
                                     .slabs = {{"exp_avg_sq_row", PT_F32, 1, rows_of}, {"exp_avg_sq_col", PT_F32, 1, cols_of}}};
static const update_rule of_vectors = {.title = "Adafactor of vectors", .submit = submit_vector, .whole = true, .workspace = workspace,
                                       .passes = 3, .slabs = {{"exp_avg_sq", PT_F32, 1}}};

static const update_rule *rule_of(const param *p)
{
    switch (p->kind->use) {
    case USE_VOCABULARY: return &adamw_rule;
    case USE_MATRIX: case USE_EXPERTS: case USE_ROUTER: case USE_ADAPTER_A: case USE_ADAPTER_B: case USE_POSITIONS: return &factored;
    default: return &of_vectors;
    }
}

const optimizer optimizer_adafactor = {.name = "adafactor", .rules = {&adamw_rule, &factored, &of_vectors}, .rule_of = rule_of,
                                       .args = args};
