/* experts_adapter.c - low-rank adapters of the matrices of experts (model/adapter.h): the stage that makes s x A^T of each expert's rows,
 * and the gradients of A and B, which the stage of the matrix computes. The shared expert with a gate is a mixture of one expert, of which
 * several modules may have an adapter. */
#include "layer/work.h"

#include "model/adapter.h"

static int matrix_index(const layer_stage *stage) { return adapter_matrix(stage->param[0]); }
static bool is_up(const layer_stage *stage) { return stage->param[0] == PARAM_EXPERTS_UP || stage->param[0] == PARAM_SHARED_UP; }
static int64_t experts_n(const layer_work *work, const layer_stage *stage) { return columns(work, stage->in[EXPERTS_ENDS]); }
static int64_t used_n(const layer_work *work, const layer_stage *stage) { return columns(work, stage->in[EXPERTS_WEIGHTS]); }

int experts_modules(const layer_work *work, const layer_stage *stage)
{
    return stage->in[EXPERTS_LOW] == LAYER_NONE ? 0 : adapter_parts(work->c->model, work->block, matrix_index(stage));
}

adapter_part experts_module(const layer_work *work, const layer_stage *stage, int k)
{
    const model *m = work->c->model;
    const param *p = matrix_of(work, stage);
    const int matrix = matrix_index(stage);
    const adapter_module *a = adapter_at(m, work->block, matrix, k);
    const int64_t row0 = adapter_first_output(p, k);
    return (adapter_part){.row0 = row0, .end = row0 + adapter_outputs(m, p, k), .rank = a->rank,
                          .column = adapter_column(m, work->block, matrix, k),
                          .width = block_param(m, &m->blocks[work->block], adapter_a(matrix))->rows / experts_n(work, stage),
                          .scale = a->scale, .b = adapter_b(matrix, k)};
}

/* A grouped matmul over all experts. */
static void grouped(const layer_work *work, const layer_stage *stage, op_grouped_matmul o)
{
    o.range = (expert_range){0, experts_n(work, stage), work->rows * used_n(work, stage), tensor(work, stage->in[EXPERTS_ENDS])};
    o.order = tensor(work, stage->in[EXPERTS_ORDER]);
    o.k = used_n(work, stage);
    o.of.type = work->type;
    queue_submit(work->c->queue, &(op){OP_GROUPED_MATMUL, .grouped_matmul = o});
}

/* low = s x A^T, module by module. */
static void multiply_low(const layer_work *work, const layer_stage *stage, const void *x, row_place x_at, void *low)
{
    const int64_t cols = matrix_of(work, stage)->cols;
    const int modules = adapter_parts(work->c->model, work->block, matrix_index(stage));
    for (int k = 0; k < modules; k++) {
        const adapter_part a = experts_module(work, stage, k);
        if (a.rank)
            grouped(work, stage, (op_grouped_matmul){
                .of = {.layout = MATMUL_NT, .out_type = work->type, .n = a.rank, .k = cols, .lda = cols, .ldb = cols, .ldc = a.width,
                       .alpha = a.scale, .a = x,
                       .b = column(weight_of(work, adapter_a(matrix_index(stage))), a.column * cols, work->type),
                       .c = column(low, a.column, work->type)},
                .a_at = x_at, .b_step = a.width * cols});
    }
}

/* ---- x A^T ---- */

static unsigned touches(const layer_stage *stage, step_pass pass)
{
    return TOUCH_IN(0) | TOUCH_IN(EXPERTS_ORDER) | TOUCH_IN(EXPERTS_ENDS) | TOUCH_OUT(0);
}

/* Of x A^T, and of its product with B in the stage of the matrix. */
static double flops(const stage_site *at)
{
    const param *w = stage_param(at, 0);
    const int matrix = matrix_index(at->stage);
    const param *a = block_param(at->model, &at->model->blocks[at->layer + 1], adapter_a(matrix));
    const double experts = (double)at->program->tensor[at->stage->in[EXPERTS_ENDS]].cols;
    double values = (double)a->rows / experts * (double)a->cols;
    for (int k = 0; k < adapter_parts(at->model, at->layer + 1, matrix); k++)
        values += (double)adapter_at(at->model, at->layer + 1, matrix, k)->rank * (double)adapter_outputs(at->model, w, k);
    return 2 * values * (double)(at->shape->unit_rows * at->program->tensor[at->stage->in[EXPERTS_WEIGHTS]].cols);
}

static void forward(const layer_work *work, const layer_stage *stage)
{
    multiply_low(work, stage, tensor(work, stage->in[0]), is_up(stage) ? AT_TOKEN : AT_ROW, tensor(work, stage->out[0]));
}

const stage_type stage_experts_low = {.name = "experts_low", .touches = touches, .flops = flops, .pass = {forward}};

/* ---- parts of the stages of matrices ---- */

op_matmul experts_add_low(const layer_work *work, const layer_stage *stage, op_matmul o, const adapter_part *a)
{
    o.more_k = a->rank;
    o.more_lda = a->width, o.more_ldb = a->rank;
    o.more_a = a->rank ? column(tensor(work, stage->in[EXPERTS_LOW]), a->column, work->type) : NULL;
    o.more_b = a->rank ? weight_of(work, a->b) : NULL;
    return o;
}

int64_t experts_low_gradient(const layer_work *work, const layer_stage *stage, const void *dy, row_place dy_at, bool anew)
{
    const int64_t rows = matrix_of(work, stage)->rows / experts_n(work, stage);
    int64_t width = 0;
    for (int k = 0; k < experts_modules(work, stage); k++) {
        const adapter_part a = experts_module(work, stage, k);
        width = a.width;
        if (a.rank && anew)
            grouped(work, stage, (op_grouped_matmul){
                .of = {.layout = MATMUL_NN, .out_type = work->type, .n = a.rank, .k = a.end - a.row0, .lda = rows, .ldb = a.rank,
                       .ldc = a.width, .alpha = a.scale, .a = column(dy, a.row0, work->type), .b = weight_of(work, a.b),
                       .c = column(gradient(work, stage->in[EXPERTS_LOW]), a.column, work->type)},
                .a_at = dy_at, .b_step = (a.end - a.row0) * a.rank});
    }
    return width;
}

/* Of (rows of dy)^T . (rows of x), for the accumulator of a parameter. */
static void add_gradient(const layer_work *work, const layer_stage *stage, int64_t m, int64_t n, int64_t lda, int64_t ldb, const void *dy,
                         row_place dy_at, const void *x, row_place x_at, param_role role)
{
    grouped(work, stage, (op_grouped_matmul){
        .of = {.layout = MATMUL_TN, .out_type = PT_F32, .accumulate = !work->first, .m = m, .n = n, .lda = lda, .ldb = ldb, .ldc = n,
               .a = dy, .b = x, .c = accumulator(work, role)},
        .a_at = dy_at, .b_at = x_at, .c_step = m * n});
}

void experts_adapter_gradients(const layer_work *work, const layer_stage *stage, const void *dy, row_place dy_at, void *weighted_low)
{
    const param *w = matrix_of(work, stage);
    const int64_t rows = w->rows / experts_n(work, stage);
    const row_place x_at = is_up(stage) ? AT_TOKEN : AT_ROW;
    if (!experts_modules(work, stage))
        return;
    if (weighted_low)
        multiply_low(work, stage, operand(work, stage), x_at, weighted_low);
    const void *low = weighted_low ? weighted_low : tensor(work, stage->in[EXPERTS_LOW]);
    const int64_t width = experts_module(work, stage, 0).width;
    add_gradient(work, stage, width, w->cols, width, w->cols, gradient(work, stage->in[EXPERTS_LOW]), AT_ROW, operand(work, stage), x_at,
                 adapter_a(matrix_index(stage)));
    for (int k = 0; k < experts_modules(work, stage); k++) {
        const adapter_part a = experts_module(work, stage, k);
        if (a.rank)
            add_gradient(work, stage, a.end - a.row0, a.rank, rows, a.width, column(dy, a.row0, work->type), dy_at,
                         column(low, a.column, work->type), AT_ROW, a.b);
    }
}
