#include "ritz/jets.h"

#include "ritz/residual.h"
#include "ritz/sweeps.h"

#include <math.h>
#include <string.h>

/* ---- activations ---- */

void jets_of(jet_kind kind, double z, double s[4])
{
    const double t = kind == JET_TANH || kind == JET_TANH3 ? tanh(z) : 0, d = 1 - t * t;
    const double logistic = kind == JET_SOFTPLUS || kind == JET_SILU ? 1 / (1 + exp(-z)) : 0, slope = logistic * (1 - logistic);
    const double even = 1 - 2 * logistic, x = fmax(z, 0);
    switch (kind) {
    case JET_TANH: s[0] = t, s[1] = d, s[2] = -2 * t * d, s[3] = d * (6 * t * t - 2); break;
    case JET_TANH3:
        s[0] = t * t * t, s[1] = 3 * t * t * d, s[2] = 6 * t * d * (d - t * t);
        s[3] = 6 * d * (d * d - 7 * t * t * d + 2 * t * t * t * t);
        break;
    case JET_RELU3: s[0] = x * x * x, s[1] = 3 * x * x, s[2] = 6 * x, s[3] = z > 0 ? 6 : 0; break;
    case JET_SOFTPLUS: s[0] = x + log1p(exp(-fabs(z))), s[1] = logistic, s[2] = slope, s[3] = slope * even; break;
    case JET_SILU:
        s[0] = z * logistic, s[1] = logistic + z * slope, s[2] = slope * (2 + z * even);
        s[3] = slope * (even * (3 + z * even) - 2 * z * slope);
        break;
    default: s[0] = sin(z), s[1] = cos(z), s[2] = -s[0], s[3] = -s[1]; break;
    }
}

enum { COLS = 32 }; /* at a time */

static void get(pt_dtype type, const char *base, int64_t at, int n, double *out)
{
    for (int i = 0; i < n && type == PT_F64; i++)
        out[i] = ((const double *)base)[at + i];
    for (int i = 0; i < n && type != PT_F64; i++)
        out[i] = ((const float *)base)[at + i];
}

static void put(pt_dtype type, char *base, int64_t at, int n, const double *x)
{
    for (int i = 0; i < n && type == PT_F64; i++)
        ((double *)base)[at + i] = x[i];
    for (int i = 0; i < n && type != PT_F64; i++)
        ((float *)base)[at + i] = (float)x[i];
}

static void jets_at(jet_kind kind, int n, const double *z, double s[4][COLS])
{
    for (int i = 0; i < n; i++) {
        double one[4];
        jets_of(kind, z[i], one);
        for (int k = 0; k < 4; k++)
            s[k][i] = one[k];
    }
}

static void put_sum(const jets_call *c, int64_t at, int n, double *x)
{
    double residual[COLS];
    if (c->residual)
        get(c->type, c->residual, at, n, residual);
    for (int i = 0; i < n && c->residual; i++)
        x[i] += residual[i];
    put(c->type, c->out, at, n, x);
}

/* Columns at .. at + n of a row of the first block. */
static void activate(const jets_call *c, int64_t at, int n)
{
    const int64_t block = c->rows * c->cols, last = c->blocks - 1;
    double z[COLS], s[4][COLS], squares[COLS] = {0}, out[COLS] = {0};
    get(c->type, c->z, at, n, z);
    jets_at(c->kind, n, z, s);
    memcpy(out, s[0], (size_t)n * sizeof *out);
    put_sum(c, at, n, out);
    for (int64_t j = 1; j <= last; j++) {
        get(c->type, c->z, at + j * block, n, z);
        for (int i = 0; i < n; i++) {
            out[i] = s[1][i] * z[i] + (j == last ? s[2][i] * squares[i] : 0);
            squares[i] += z[i] * z[i];
        }
        put_sum(c, at + j * block, n, out);
    }
}

static void activate_back(const jets_call *c, int64_t at, int n)
{
    const int64_t block = c->rows * c->cols, last = c->blocks - 1;
    double z[COLS], s[4][COLS], squares[COLS] = {0}, along[COLS] = {0}, q[COLS], of_last[COLS], out[COLS];
    get(c->type, c->z, at, n, z);
    jets_at(c->kind, n, z, s);
    get(c->type, c->q, at + last * block, n, of_last);
    for (int64_t j = 1; j < last; j++) {
        get(c->type, c->z, at + j * block, n, z);
        get(c->type, c->q, at + j * block, n, q);
        for (int i = 0; i < n; i++) {
            out[i] = s[1][i] * q[i] + 2 * s[2][i] * z[i] * of_last[i];
            squares[i] += z[i] * z[i];
            along[i] += z[i] * q[i];
        }
        put(c->type, c->out, at + j * block, n, out);
    }
    get(c->type, c->z, at + last * block, n, z);
    get(c->type, c->q, at, n, q);
    for (int i = 0; i < n; i++)
        out[i] = s[1][i] * q[i] + s[2][i] * along[i] + (s[2][i] * z[i] + s[3][i] * squares[i]) * of_last[i];
    put(c->type, c->out, at, n, out);
    for (int i = 0; i < n; i++)
        out[i] = s[1][i] * of_last[i];
    put(c->type, c->out, at + last * block, n, out);
}

static void call_rows(void *arg, int64_t first, int64_t end, void *scratch)
{
    const jets_call *c = arg;
    for (int64_t row = first; row < end; row++)
        for (int64_t i = 0; i < c->cols; i += COLS)
            (c->q ? activate_back : activate)(c, row * c->cols + i, c->cols - i < COLS ? (int)(c->cols - i) : COLS);
}

/* ---- sweeps ---- */

static int64_t blocks_of(const ritz_unit *u) { return u->net->jets; }
static char *block(const ritz_unit *u, const void *base, int64_t cols, int64_t k)
{
    return (char *)base + (uint64_t)(k * u->rows * cols) * dtype_bytes(u->net->type);
}

/* number: of the call in the unit's. */
static void call(const ritz_unit *u, int number, const ritz_stage *s, jets_call c)
{
    jets_call *kept = &u->calls[number];
    c.kind = u->net->activation;
    c.type = u->net->type;
    c.blocks = blocks_of(u);
    c.rows = u->rows;
    c.cols = s->rows;
    *kept = c;
    queue_submit(u->queue, &(op){OP_CALL, .call = {call_rows, kept, u->rows}});
}

static void input_rows(void *arg, int64_t first, int64_t end, void *scratch)
{
    const jets_call *c = arg;
    const size_t each = dtype_bytes(c->type), row = (size_t)c->cols * each;
    for (int64_t j = 1; j < c->blocks; j++)
        for (int64_t i = first; i < end; i++) {
            char *to = c->out + (size_t)(j * c->rows + i) * row;
            memset(to, 0, row);
            if (j < c->blocks - 1)
                put(c->type, to, j - 1, 1, (const double[]){1});
        }
}

void jets_input(const ritz_unit *u)
{
    jets_call *c = &u->calls[3 * u->net->stages_n];
    *c = (jets_call){.type = u->net->type, .blocks = blocks_of(u), .rows = u->rows, .cols = u->net->input,
                     .out = ritz_at(u, u->layout->tensor[0])};
    queue_submit(u->queue, &(op){OP_CALL, .call = {input_rows, c, u->rows}});
}

/* again: recomputes inner tensors; the neighbours have theirs. */
static void forward(const ritz_unit *u, bool again)
{
    const ritz_network *n = u->net;
    const int end = n->group0[u->group + 1];
    for (int i = n->group0[u->group]; i < end; i++) {
        const ritz_stage *s = &n->stages[i];
        const bool there = again && i + 1 == end;
        const char *from = ritz_at(u, u->layout->tensor[i]);
        if (there && !s->activated)
            continue;
        char *z = ritz_at(u, s->activated ? u->layout->z[i] : u->layout->tensor[i + 1]);
        for (int64_t k = 0; k < blocks_of(u); k++)
            ritz_linear(u, i, block(u, from, s->cols, k), k == 0, block(u, z, s->rows, k));
        if (s->activated && !there)
            call(u, i + again * n->stages_n, s,
                 (jets_call){.z = z, .residual = s->residual < 0 ? NULL : ritz_at(u, u->layout->tensor[s->residual]),
                             .out = ritz_at(u, u->layout->tensor[i + 1])});
    }
}

void jets_forward(const ritz_unit *u)
{
    ritz_rows_begin(u);
    forward(u, false);
    ritz_rows_end(u);
}

void jets_loss(const ritz_unit *u)
{
    const ritz_layout *l = u->layout;
    residual_loss *loss = u->residual;
    loss->type = u->net->type;
    loss->dim = u->net->dim;
    loss->ld = u->net->input;
    loss->rows = u->rows;
    loss->x = ritz_at(u, l->tensor[0]);
    loss->jets = ritz_u(u);
    loss->terms = (const double *)(u->own + l->terms_at);
    loss->value = (double *)(u->own + l->value_at);
    loss->seed = u->own + l->seed_at;
    ritz_rows_begin(u);
    queue_submit(u->queue, &(op){OP_CALL, .call = {residual_rows, loss, u->rows}});
    ritz_rows_end(u);
}

/* The derivatives by a stage's z, from those by its output. */
static const char *of_z(const ritz_unit *u, int i, const char *q)
{
    const ritz_stage *s = &u->net->stages[i];
    char *out = u->work + u->layout->pair_at;
    if (i + 1 == u->net->stages_n)
        return u->own + u->layout->seed_at;
    if (!s->activated)
        return q;
    call(u, i + 2 * u->net->stages_n, s, (jets_call){.z = ritz_at(u, u->layout->z[i]), .q = q, .out = out});
    return out;
}

void jets_reverse(const ritz_unit *u)
{
    const ritz_network *n = u->net;
    char *outer = u->stream, *inner = u->work + u->layout->inner_at;
    const int begin = n->group0[u->group], end = n->group0[u->group + 1];
    ritz_rows_begin(u);
    if (!u->layout->kept[u->group])
        forward(u, true);
    for (int i = end - 1; i >= begin; i--) {
        const ritz_stage *s = &n->stages[i];
        const char *q = of_z(u, i, i == end - 1 ? outer : inner);
        char *to = i == begin ? outer : inner;
        for (int64_t k = 0; i > 0 && k < blocks_of(u); k++)
            ritz_transposed(u, i, block(u, q, s->rows, k), ritz_adds(u, i) < 0 ? NULL : block(u, outer, s->cols, k),
                            block(u, to, s->cols, k));
        ritz_accumulate(u, i, q, blocks_of(u) * u->rows);
    }
    ritz_rows_end(u);
}
