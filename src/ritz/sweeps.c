/* sweeps.c - the four sweeps over a unit, a group of stages at a time, as ops on a queue (network.h). */
#include "ritz/sweeps.h"

#include "ritz/ansatz.h"

static uint64_t bytes_of(const ritz_unit *u, int64_t rows, int64_t cols) { return (uint64_t)(rows * cols) * dtype_bytes(u->net->type); }
static int begin_of(const ritz_unit *u) { return u->net->group0[u->group]; }
static int end_of(const ritz_unit *u) { return u->net->group0[u->group + 1]; }
static bool is_kept(const ritz_unit *u) { return u->layout->kept[u->group]; }

static char *values(const ritz_unit *u, int tensor) { return ritz_at(u, u->layout->tensor[tensor]); }
static char *adjoint(const ritz_unit *u, int tensor) { return ritz_at(u, u->layout->adjoint[tensor]); }
static int64_t columns(const ritz_unit *u, int tensor) { return tensor ? u->net->stages[tensor - 1].rows : u->net->input; }
static char *tangents(const ritz_unit *u, int tensor) { return values(u, tensor) + bytes_of(u, u->rows, columns(u, tensor)); }
static char *ones(const ritz_unit *u) { return u->own + u->layout->ones_at; }

static const char *weights(const ritz_unit *u, int stage) { return u->weights[stage - begin_of(u)]; }
static uint64_t bias_at(const ritz_unit *u, int stage) { return bytes_of(u, u->net->stages[stage].rows, u->net->stages[stage].cols); }

static void copy(const ritz_unit *u, void *to, const void *from, uint64_t bytes)
{
    queue_submit(u->queue, &(op){OP_COPY, .copy = {to, from, bytes}});
}

void ritz_linear(const ritz_unit *u, int stage, const char *from, bool bias, char *to)
{
    const ritz_stage *s = &u->net->stages[stage];
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NT, .type = u->net->type, .out_type = u->net->type, .m = u->rows, .n = s->rows, .k = s->cols, .lda = s->cols,
        .ldb = s->cols, .ldc = s->rows, .a = from, .b = weights(u, stage), .bias = bias ? weights(u, stage) + bias_at(u, stage) : NULL,
        .c = to}});
}

void ritz_transposed(const ritz_unit *u, int stage, const char *from, const char *residual, char *to)
{
    const ritz_stage *s = &u->net->stages[stage];
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NN, .type = u->net->type, .out_type = u->net->type, .m = u->rows, .n = s->cols, .k = s->rows, .lda = s->rows,
        .ldb = s->cols, .ldc = s->cols, .a = from, .b = weights(u, stage), .residual = residual, .c = to}});
}

static void jet(const ritz_unit *u, const ritz_stage *s, op_jet o)
{
    o.kind = u->net->activation;
    o.type = u->net->type;
    o.n = u->rows * s->rows;
    queue_submit(u->queue, &(op){OP_JET, .jet = o});
}

/* Only gradient sums combine the rows of different points. */
void ritz_rows_begin(const ritz_unit *u) { queue_submit(u->queue, &(op){OP_ROWS, .rows = {u->rows}}); }
void ritz_rows_end(const ritz_unit *u) { queue_submit(u->queue, &(op){OP_ROWS, .rows = {0}}); }

/* ---- sweeps of a group; again: recompute its inner tensors, its neighbours have theirs ---- */

static void forward_group(const ritz_unit *u, bool again)
{
    for (int i = begin_of(u); i < end_of(u); i++) {
        const ritz_stage *s = &u->net->stages[i];
        const bool there = again && i + 1 == end_of(u);
        if (there && !s->activated)
            continue;
        char *z = s->activated ? ritz_at(u, u->layout->z[i]) : values(u, i + 1);
        ritz_linear(u, i, values(u, i), true, z);
        if (s->activated)
            jet(u, s, (op_jet){.pass = JET_VALUE, .z = z, .residual = s->residual < 0 ? NULL : values(u, s->residual),
                               .out = there ? NULL : values(u, i + 1)});
    }
}

int ritz_adds(const ritz_unit *u, int tensor)
{
    for (int i = tensor + 1; i < u->net->stages_n && i < tensor + 2; i++)
        if (u->net->stages[i].residual == tensor)
            return i;
    return -1;
}

static void adjoint_group(const ritz_unit *u, bool again)
{
    for (int i = end_of(u) - 1; i >= begin_of(u) + again; i--) {
        const ritz_stage *s = &u->net->stages[i];
        const char *p = i + 1 == u->net->stages_n ? ones(u) : adjoint(u, i + 1);
        const int later = ritz_adds(u, i);
        if (s->activated) {
            char *pz = u->work + u->layout->pair_at;
            jet(u, s, (op_jet){.pass = JET_SLOPE, .z = ritz_at(u, u->layout->z[i]), .a = p, .out = pz});
            p = pz;
        }
        ritz_transposed(u, i, p, later < 0 ? NULL : adjoint(u, later + 1), adjoint(u, i));
    }
}

static void tangent_group(const ritz_unit *u, bool again)
{
    for (int i = begin_of(u); i < end_of(u) && i + 1 < u->net->stages_n; i++) {
        const ritz_stage *s = &u->net->stages[i];
        const bool there = again && i + 1 == end_of(u);
        if (there && !s->activated)
            continue;
        char *dz = s->activated ? ritz_at(u, u->layout->dz[i]) : tangents(u, i + 1);
        ritz_linear(u, i, tangents(u, i), false, dz);
        if (s->activated && !there)
            jet(u, s, (op_jet){.pass = JET_SLOPE, .z = ritz_at(u, u->layout->z[i]), .a = dz,
                               .residual = s->residual < 0 ? NULL : tangents(u, s->residual), .out = tangents(u, i + 1)});
    }
}

void ritz_accumulate(const ritz_unit *u, int stage, const char *pair, int64_t stacked)
{
    const ritz_stage *s = &u->net->stages[stage];
    char *sums = u->sums[stage - begin_of(u)];
    op_matmul o = {.layout = MATMUL_TN, .type = u->net->type, .out_type = u->net->type, .accumulate = !u->first, .m = s->rows, .n = s->cols,
                   .k = stacked, .lda = s->rows, .ldb = s->cols, .ldc = s->cols, .a = pair, .b = values(u, stage), .c = sums};
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = o});
    o.m = 1, o.n = s->rows, o.k = u->rows, o.lda = 1, o.ldb = s->rows, o.ldc = s->rows;
    o.a = ones(u), o.b = pair, o.c = sums + bias_at(u, stage);
    queue_submit(u->queue, &(op){OP_MATMUL, .matmul = o});
}

/* Computes [q_z; p_z] of a stage from q of its output. */
static char *pair_of(const ritz_unit *u, int stage, const char *q)
{
    const ritz_stage *s = &u->net->stages[stage];
    if (stage + 1 == u->net->stages_n)
        return u->own + u->layout->seed_at;
    char *pair = u->work + u->layout->pair_at, *other = pair + bytes_of(u, u->rows, s->rows);
    const char *p = adjoint(u, stage + 1);
    char *z = ritz_at(u, u->layout->z[stage]);
    if (!s->activated) {
        copy(u, pair, q, bytes_of(u, u->rows, s->rows));
        if (!u->flat)
            copy(u, other, p, bytes_of(u, u->rows, s->rows));
    } else if (u->flat)
        jet(u, s, (op_jet){.pass = JET_SLOPE, .z = z, .a = q, .out = pair});
    else
        jet(u, s, (op_jet){.pass = JET_REVERSE, .z = z, .a = q, .b = ritz_at(u, u->layout->dz[stage]), .c = p, .out = pair,
                           .other = other});
    return pair;
}

static void reverse_group(const ritz_unit *u)
{
    char *outer = u->stream, *inner = u->work + u->layout->inner_at;
    const int begin = begin_of(u), end = end_of(u);
    for (int i = end - 1; i >= begin; i--) {
        const char *pair = pair_of(u, i, i == end - 1 ? outer : inner);
        if (i > 0)
            ritz_transposed(u, i, pair, ritz_adds(u, i) < 0 ? NULL : outer, i == begin ? outer : inner);
        ritz_accumulate(u, i, pair, u->flat ? u->rows : 2 * u->rows);
    }
}

/* ---- sweeps ---- */

void ritz_forward(const ritz_unit *u)
{
    ritz_rows_begin(u);
    forward_group(u, false);
    ritz_rows_end(u);
}

void ritz_adjoint(const ritz_unit *u)
{
    ritz_rows_begin(u);
    if (!is_kept(u))
        forward_group(u, true);
    adjoint_group(u, false);
    ritz_rows_end(u);
}

/* The energy of a solution that is composed of the network's. */
static void composed_energy(const ritz_unit *u)
{
    ansatz_energy *a = u->composed;
    a->type = u->net->type;
    a->dim = u->net->dim;
    a->ld = u->net->input;
    a->x = values(u, 0);
    a->n = ritz_u(u);
    a->g = u->flat ? NULL : ritz_gradient(u);
    a->terms = (const double *)(u->own + u->layout->terms_at);
    a->value = (double *)(u->own + u->layout->value_at);
    a->du = u->own + u->layout->seed_at;
    a->dg = u->flat ? NULL : tangents(u, 0);
    queue_submit(u->queue, &(op){OP_CALL, .call = {ansatz_energy_rows, a, u->rows}});
}

void ritz_energy(const ritz_unit *u)
{
    char *seed = u->own + u->layout->seed_at;
    ritz_rows_begin(u);
    if (u->composed)
        composed_energy(u);
    else
        queue_submit(u->queue, &(op){OP_QUADRATIC, .quadratic = {
            .type = u->net->type, .rows = u->rows, .dim = u->net->dim, .ld = u->net->input, .u = ritz_u(u),
            .g = u->flat ? NULL : ritz_gradient(u),
            .terms = (const double *)(u->own + u->layout->terms_at), .value = (double *)(u->own + u->layout->value_at), .du = seed,
            .dg = u->flat ? NULL : tangents(u, 0)}});
    copy(u, seed + bytes_of(u, u->rows, 1), ones(u), bytes_of(u, u->rows, 1));
    ritz_rows_end(u);
}

void ritz_tangent(const ritz_unit *u)
{
    ritz_rows_begin(u);
    if (!is_kept(u))
        forward_group(u, true);
    tangent_group(u, false);
    ritz_rows_end(u);
}

void ritz_reverse(const ritz_unit *u)
{
    ritz_rows_begin(u);
    if (!is_kept(u)) {
        forward_group(u, true);
        if (!u->flat) {
            adjoint_group(u, true);
            tangent_group(u, true);
        }
    }
    reverse_group(u);
    ritz_rows_end(u);
}
