#include "device/cpu/kernels/activation.h"
#include "device/cpu/kernels/activation_function.h"
#include "device/cpu/kernels/isa.h"

typedef struct act_row {
    const void *gate, *up, *dout; /* up: NULL if not gated, then gate is x */
    void *out, *dgate, *dup;
    bool past; /* write past the caches */
} act_row;

static INLINE void forward_step(activation_kind kind, pt_dtype type, const act_row *r, int64_t i, int64_t lanes)
{
    vf derivative, y = activation(kind, type, load(type, r->gate, i, lanes), &derivative);
    if (r->up)
        y = y * load(type, r->up, i, lanes);
    store(type, r->out, i, y, lanes);
}

static INLINE void backward_step(activation_kind kind, pt_dtype type, const act_row *r, int64_t i, int64_t lanes)
{
    vf derivative, y = activation(kind, type, load(type, r->gate, i, lanes), &derivative);
    vf dout = load(type, r->dout, i, lanes);
    if (r->up) {
        vf up = load(type, r->up, i, lanes);
        store(type, r->dup, i, dout * y, lanes);
        dout = dout * up;
        y = y * up;
    }
    store(type, r->dgate, i, dout * derivative, lanes);
    if (r->out)
        store(type, r->out, i, y, lanes);
}

static INLINE void put_result(activation_kind kind, pt_dtype type, void *base, int64_t i, const vf x[2], bool past)
{
    if (kind == ACT_RELU) /* keeps the bits of a NaN, unlike the others */
        put_pair(type, base, i, x, past);
    else
        put_pair_tame(type, base, i, x, past);
}

/* Prefetches data that is read soon: the hardware prefetcher stops at the end of a page. */
static INLINE void prefetch_ahead(pt_dtype type, const void *base, int64_t i)
{
    const int64_t ahead = 2048; /* bytes */
    __builtin_prefetch((const char *)at(type, base, i) + ahead);
}

/* 2 * VEC_LANES elements, in the order of load_pair(). */
static INLINE void forward_pair(activation_kind kind, bool gated, pt_dtype type, const act_row *r, int64_t i)
{
    vf x[2], up[2];
    prefetch_ahead(type, r->gate, i);
    if (gated)
        prefetch_ahead(type, r->up, i);
    load_pair(type, r->gate, i, x);
    if (gated)
        load_pair(type, r->up, i, up);
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        vf derivative, y = activation(kind, type, x[k], &derivative);
        x[k] = gated ? y * up[k] : y;
    }
    put_result(kind, type, r->out, i, x, r->past);
}

static INLINE void backward_pair(activation_kind kind, bool gated, pt_dtype type, const act_row *r, int64_t i)
{
    vf x[2], dout[2], up[2], dup[2], y[2], derivative;
    prefetch_ahead(type, r->gate, i);
    prefetch_ahead(type, r->dout, i);
    if (gated)
        prefetch_ahead(type, r->up, i);
    load_pair(type, r->gate, i, x);
    load_pair(type, r->dout, i, dout);
    if (gated)
        load_pair(type, r->up, i, up);
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        y[k] = activation(kind, type, x[k], &derivative);
        if (gated) {
            dup[k] = dout[k] * y[k];
            dout[k] = dout[k] * up[k];
            y[k] = y[k] * up[k];
        }
        x[k] = dout[k] * derivative;
    }
    if (gated)
        put_result(kind, type, r->dup, i, dup, r->past);
    put_result(kind, type, r->dgate, i, x, r->past);
    if (r->out) /* in cache: it replaces dout, or is read next */
        put_result(kind, type, r->out, i, y, false);
}

static INLINE void forward_row(activation_kind kind, pt_dtype type, const act_row *r, int64_t i, int64_t end)
{
    for (; r->up && i + 2 * VEC_LANES <= end; i += 2 * VEC_LANES)
        forward_pair(kind, true, type, r, i);
    for (; i + 2 * VEC_LANES <= end; i += 2 * VEC_LANES)
        forward_pair(kind, false, type, r, i);
    for (; i < end; i += VEC_LANES)
        forward_step(kind, type, r, i, end - i < VEC_LANES ? end - i : VEC_LANES);
}

static INLINE void backward_row(activation_kind kind, pt_dtype type, const act_row *r, int64_t i, int64_t end)
{
    for (; r->up && i + 2 * VEC_LANES <= end; i += 2 * VEC_LANES)
        backward_pair(kind, true, type, r, i);
    for (; i + 2 * VEC_LANES <= end; i += 2 * VEC_LANES)
        backward_pair(kind, false, type, r, i);
    for (; i < end; i += VEC_LANES)
        backward_step(kind, type, r, i, end - i < VEC_LANES ? end - i : VEC_LANES);
}

void KERNEL(activation_part)(const op_activation *o, int64_t row, int64_t col0, int64_t col1, bool past)
{
    int64_t width = o->gated ? 2 * o->cols : o->cols;
    const void *gate = at(o->type, o->up, row * width);
    act_row r = {
        .gate = gate,
        .up = o->gated ? at(o->type, gate, o->cols) : NULL,
        .out = at_mutable(o->type, o->out, row * o->cols),
    };
    r.past = past && past_fits((uintptr_t)at(o->type, r.out, col0));
    FOR_KIND_AND_TYPE(forward_row, o->kind, o->type, &r, col0, col1)
    if (r.past)
        past_end();
}

void KERNEL(activation_backward_part)(const op_activation_backward *o, int64_t row, int64_t col0, int64_t col1, bool past)
{
    int64_t width = o->gated ? 2 * o->cols : o->cols;
    const void *gate = at(o->type, o->up, row * width);
    void *dgate = at_mutable(o->type, o->dup, row * width);
    act_row r = {
        .gate = gate,
        .up = o->gated ? at(o->type, gate, o->cols) : NULL,
        .dout = at(o->type, o->dout, row * o->cols),
        .dgate = dgate,
        .dup = at_mutable(o->type, dgate, o->cols),
        .out = o->out ? at_mutable(o->type, o->out, row * o->cols) : NULL,
    };
    r.past = past && past_fits((uintptr_t)at(o->type, r.dgate, col0) | (r.up ? (uintptr_t)at(o->type, r.dup, col0) : 0));
    FOR_KIND_AND_TYPE(backward_row, o->kind, o->type, &r, col0, col1)
    if (r.past)
        past_end();
}
