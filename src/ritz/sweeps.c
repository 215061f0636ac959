/* sweeps.c - the four sweeps of a unit, as ops on its queue (network.h). */
#include "ritz/network.h"

static uint64_t bytes_of(const ritz_unit *u, int64_t rows, int64_t cols) { return (uint64_t)(rows * cols) * dtype_bytes(u->net->type); }
static const char *parameter(const ritz_unit *u, int64_t at) { return u->weights + (uint64_t)at * dtype_bytes(u->net->type); }
static char *accumulator(const ritz_unit *u, int64_t at) { return u->accumulators + (uint64_t)at * dtype_bytes(u->net->type); }

static char *values(const ritz_unit *u, int tensor) { return ritz_at(u, u->layout->tensor_at[tensor]); }
static char *adjoint(const ritz_unit *u, int tensor) { return ritz_at(u, u->layout->adjoint_at[tensor]); }
static int64_t columns(const ritz_unit *u, int tensor) { return tensor ? u->net->stages[tensor - 1].rows : u->net->input; }
static char *tangents(const ritz_unit *u, int tensor) { return values(u, tensor) + bytes_of(u, u->rows, columns(u, tensor)); }

static void copy(const ritz_unit *u, void *to, const void *from, uint64_t bytes)
{
    queue_submit(u->queue, &(op){OP_COPY, .copy = {to, from, bytes}});
}

/* to (rows, W's rows) = from . W^T + bias */
static void linear(const ritz_unit *u, const ritz_stage *s, const char *from, bool bias, char *to)
{
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NT, .type = u->net->type, .out_type = u->net->type, .m = u->rows, .n = s->rows, .k = s->cols, .lda = s->cols,
        .ldb = s->cols, .ldc = s->rows, .a = from, .b = parameter(u, s->weight_at), .bias = bias ? parameter(u, s->bias_at) : NULL,
        .c = to}});
}

/* to (rows, W's columns) = from . W + residual */
static void transposed(const ritz_unit *u, const ritz_stage *s, const char *from, const char *residual, char *to)
{
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NN, .type = u->net->type, .out_type = u->net->type, .m = u->rows, .n = s->cols, .k = s->rows, .lda = s->rows,
        .ldb = s->cols, .ldc = s->cols, .a = from, .b = parameter(u, s->weight_at), .residual = residual, .c = to}});
}

static void jet(const ritz_unit *u, const ritz_stage *s, op_jet o)
{
    o.kind = u->net->activation;
    o.type = u->net->type;
    o.n = u->rows * s->rows;
    queue_submit(u->queue, &(op){OP_JET, .jet = o});
}

/* ---- a group of stages ---- */

static void forward_group(const ritz_unit *u, int group)
{
    for (int i = u->net->group0[group]; i < u->net->group0[group + 1]; i++) {
        const ritz_stage *s = &u->net->stages[i];
        char *z = s->activated ? ritz_at(u, u->layout->z_at[i]) : values(u, i + 1);
        linear(u, s, values(u, i), true, z);
        if (s->activated)
            jet(u, s, (op_jet){.pass = JET_VALUE, .z = z, .residual = s->residual < 0 ? NULL : values(u, s->residual),
                               .out = values(u, i + 1)});
    }
}

/* The stage that adds the tensor to its output, -1: none. */
static int adds(const ritz_unit *u, int tensor)
{
    for (int i = tensor + 1; i < u->net->stages_n && i < tensor + 2; i++)
        if (u->net->stages[i].residual == tensor)
            return i;
    return -1;
}

static void adjoint_group(const ritz_unit *u, int group)
{
    for (int i = u->net->group0[group + 1] - 1; i >= u->net->group0[group]; i--) {
        const ritz_stage *s = &u->net->stages[i];
        const char *p = i + 1 == u->net->stages_n ? u->ones : adjoint(u, i + 1);
        const int later = adds(u, i);
        if (s->activated) {
            char *pz = ritz_at(u, u->layout->pair_at);
            jet(u, s, (op_jet){.pass = JET_SLOPE, .z = ritz_at(u, u->layout->z_at[i]), .a = p, .out = pz});
            p = pz;
        }
        transposed(u, s, p, later < 0 ? NULL : adjoint(u, later + 1), adjoint(u, i));
    }
}

static void tangent_group(const ritz_unit *u, int group)
{
    for (int i = u->net->group0[group]; i < u->net->group0[group + 1] && i + 1 < u->net->stages_n; i++) {
        const ritz_stage *s = &u->net->stages[i];
        char *dz = s->activated ? ritz_at(u, u->layout->dz_at[i]) : tangents(u, i + 1);
        linear(u, s, tangents(u, i), false, dz);
        if (s->activated)
            jet(u, s, (op_jet){.pass = JET_SLOPE, .z = ritz_at(u, u->layout->z_at[i]), .a = dz,
                               .residual = s->residual < 0 ? NULL : tangents(u, s->residual), .out = tangents(u, i + 1)});
    }
}

/* dW += pair^T [T; T'], db += the sum of q_z's rows. */
static void accumulate(const ritz_unit *u, int stage, const char *pair)
{
    const ritz_stage *s = &u->net->stages[stage];
    const int64_t stacked = u->flat ? u->rows : 2 * u->rows;
    op_matmul o = {.layout = MATMUL_TN, .type = u->net->type, .out_type = u->net->type, .accumulate = !u->first, .m = s->rows, .n = s->cols,
                   .k = stacked, .lda = s->rows, .ldb = s->cols, .ldc = s->cols, .a = pair, .b = values(u, stage),
                   .c = accumulator(u, s->weight_at)};
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = o});
    o.m = 1, o.n = s->rows, o.k = u->rows, o.lda = 1, o.ldb = s->rows, o.ldc = s->rows;
    o.a = u->ones, o.b = pair, o.c = accumulator(u, s->bias_at);
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = o});
}

/* [q_z; p_z] of a stage, from q of its output. */
static char *pair_of(const ritz_unit *u, int stage, const char *q)
{
    const ritz_stage *s = &u->net->stages[stage];
    if (stage + 1 == u->net->stages_n)
        return ritz_at(u, u->layout->seed_at);
    char *pair = ritz_at(u, u->layout->pair_at), *other = pair + bytes_of(u, u->rows, s->rows);
    const char *z = ritz_at(u, u->layout->z_at[stage]), *p = adjoint(u, stage + 1);
    if (!s->activated) {
        copy(u, pair, q, bytes_of(u, u->rows, s->rows));
        if (!u->flat)
            copy(u, other, p, bytes_of(u, u->rows, s->rows));
    } else if (u->flat)
        jet(u, s, (op_jet){.pass = JET_SLOPE, .z = z, .a = q, .out = pair});
    else
        jet(u, s, (op_jet){.pass = JET_REVERSE, .z = z, .a = q, .b = ritz_at(u, u->layout->dz_at[stage]), .c = p, .out = pair,
                           .other = other});
    return pair;
}

/* q of the group's output lies in `outer`, and in the end q of its input. */
static void reverse_group(const ritz_unit *u, int group)
{
    char *outer = ritz_at(u, u->layout->outer_at), *inner = ritz_at(u, u->layout->inner_at);
    const int begin = u->net->group0[group], end = u->net->group0[group + 1];
    for (int i = end - 1; i >= begin; i--) {
        const char *pair = pair_of(u, i, i == end - 1 ? outer : inner);
        accumulate(u, i, pair);
        if (i > 0)
            transposed(u, &u->net->stages[i], pair, adds(u, i) < 0 ? NULL : outer, i == begin ? outer : inner);
    }
}

/* ---- sweeps ---- */

static bool again(const ritz_unit *u, int group) { return group < u->layout->again; }

void ritz_forward(const ritz_unit *u)
{
    for (int g = 0; g < u->net->groups_n; g++)
        forward_group(u, g);
}

void ritz_adjoint(const ritz_unit *u)
{
    for (int g = u->net->groups_n - 1; g >= 0; g--) {
        if (again(u, g))
            forward_group(u, g);
        adjoint_group(u, g);
    }
}

/* [a; 1] of the last stage, and b into T0's tangents. */
void ritz_energy(const ritz_unit *u)
{
    char *seed = ritz_at(u, u->layout->seed_at);
    queue_submit(u->queue, &(op){OP_QUADRATIC, .quadratic = {
        .type = u->net->type, .rows = u->rows, .dim = u->net->dim, .ld = u->net->input, .u = ritz_u(u),
        .g = u->flat ? NULL : ritz_gradient(u),
        .terms = (const double *)ritz_at(u, u->layout->terms_at), .value = (double *)ritz_at(u, u->layout->value_at), .du = seed,
        .dg = u->flat ? NULL : tangents(u, 0)}});
    copy(u, seed + bytes_of(u, u->rows, 1), u->ones, bytes_of(u, u->rows, 1));
}

void ritz_tangent(const ritz_unit *u)
{
    for (int g = 0; g < u->net->groups_n; g++) {
        if (again(u, g))
            forward_group(u, g);
        tangent_group(u, g);
    }
}

void ritz_reverse(const ritz_unit *u)
{
    for (int g = u->net->groups_n - 1; g >= 0; g--) {
        if (again(u, g)) {
            forward_group(u, g);
            if (!u->flat) {
                adjoint_group(u, g);
                tangent_group(u, g);
            }
        }
        reverse_group(u, g);
    }
}
