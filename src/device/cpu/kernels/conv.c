/* conv.c - the last CONV_TAPS_MOST rows of p, widened to fp32, are in a ring of lines:
 *
 *     row s is line s mod 8      sum[s] = bias + weight[0] line[s - taps + 1] + ... + weight[taps - 1] line[s]
 *
 * Backward goes down the rows, too. Row s adds to the gradients of the lines that it read, which are in a second ring; line s - taps + 1 is
 * complete then. A part begins with the gradients of its first row, and continues past its last row until that row's line is complete. */
#include "device/cpu/kernels/conv.h"

#include "device/cpu/kernels/activation_function.h"
#include "device/cpu/kernels/isa.h"

#include <string.h>

enum { RING = CONV_TAPS_MOST };

typedef float line[CONV_COLUMNS];
typedef struct lines {
    line p[RING], weight[CONV_TAPS_MOST], bias;
    line dp[RING], dweight[CONV_TAPS_MOST], dbias; /* of backward */
} lines;

static INLINE int64_t lanes_at(const conv_part *part, int64_t i) { return part->n - i < VEC_LANES ? part->n - i : VEC_LANES; }
static INLINE vf get(const float *from, int64_t i) { return f32_load(from + i, VEC_LANES); }
static INLINE void put(float *to, int64_t i, vf x) { f32_store(to + i, x, VEC_LANES); }
static INLINE int64_t row_of(const op_conv *o, const conv_part *part, int64_t s) { return part->seq * o->len + s; }

/* Elements i .. i + lanes of the part's columns in row s of a matrix with stride ld; 1 without a matrix. */
static INLINE vf factor(pt_dtype type, const void *base, int64_t row, int64_t ld, const conv_part *part, int64_t i, int64_t lanes)
{
    return base ? load(type, base, row * ld + part->column + i, lanes) : vec_set(1);
}

/* p of row s, which may be before the sequence. */
static INLINE void product_row(pt_dtype type, const op_conv *o, const conv_part *part, int64_t s, float *p)
{
    const float *past = o->past ? o->past + (part->seq * (o->taps - 1) + o->taps - 1 + s) * o->channels + part->column : NULL;
    for (int64_t i = 0; i < part->n; i += VEC_LANES) {
        const int64_t lanes = lanes_at(part, i), at = row_of(o, part, s) * o->ldx + part->column + i;
        vf x = {0};
        if (s >= 0) {
            x = load(type, o->x, at, lanes);
            x = o->before ? load(type, o->before, at, lanes) * x : x;
        } else if (past) {
            x = f32_load(past + i, lanes);
        }
        put(p, i, x);
    }
}

/* The first tap that reads the row's document. */
static INLINE int first_tap(const op_conv *o, const conv_part *part, int64_t s)
{
    const int64_t begin = o->first ? o->first[row_of(o, part, s)] : 0, there = s - begin + 1;
    return there >= o->taps || (begin == 0 && o->past) ? 0 : (int)(o->taps - there);
}

static void lines_begin(const op_conv *o, const conv_part *part, lines *l)
{
    for (int64_t j = 0; j < o->taps; j++)
        for (int64_t c = 0; c < CONV_COLUMNS; c++)
            l->weight[j][c] = c < part->n ? o->weight[(part->column + c) * o->taps + j] : 0;
    for (int64_t c = 0; c < CONV_COLUMNS; c++)
        l->bias[c] = c < part->n && o->bias ? o->bias[part->column + c] : 0;
}

/* The lines that the taps of row s read. */
static INLINE void lines_of(line *ring, int taps, int64_t s, float *out[CONV_TAPS_MOST])
{
    for (int j = 0; j < taps; j++)
        out[j] = ring[(s - taps + 1 + j) & (RING - 1)];
}

/* taps and, mostly, tap are constants where this is inlined. */
static INLINE vf sum_at(const lines *l, float *const from[CONV_TAPS_MOST], int taps, int tap, int64_t i)
{
    vf sum = get(l->bias, i);
#pragma GCC unroll 8
    for (int j = tap; j < taps; j++)
        sum = vec_fma(get(l->weight[j], i), get(from[j], i), sum);
    return sum;
}

/* act(sum) and its derivative. */
static INLINE vf act(pt_dtype type, bool silu, vf sum, vf *derivative)
{
    *derivative = vec_set(1);
    return silu ? activation(ACT_SILU, type, sum, derivative) : sum;
}

static INLINE void forward_row(pt_dtype type, bool silu, int taps, int tap, const op_conv *o, const conv_part *part, lines *l, int64_t s)
{
    const int64_t row = row_of(o, part, s);
    float *from[CONV_TAPS_MOST];
    lines_of(l->p, taps, s, from);
    for (int64_t i = 0; i < part->n; i += VEC_LANES) {
        const int64_t lanes = lanes_at(part, i);
        vf derivative, y = act(type, silu, sum_at(l, from, taps, tap, i), &derivative);
        if (o->after)
            y = factor(type, o->after, row, o->ldx, part, i, lanes) * y;
        store(type, o->y, row * o->ldy + part->column + i, y, lanes);
    }
}

static INLINE void forward(pt_dtype type, bool silu, int taps, const op_conv *o, const conv_part *part)
{
    lines l;
    lines_begin(o, part, &l);
    for (int64_t s = part->row0 - taps + 1; s < part->row1; s++) {
        product_row(type, o, part, s, l.p[s & (RING - 1)]);
        if (s < part->row0)
            continue;
        const int tap = first_tap(o, part, s);
        if (tap == 0)
            forward_row(type, silu, taps, 0, o, part, &l, s);
        else
            forward_row(type, silu, taps, tap, o, part, &l, s);
    }
}

/* run(type, silu, taps, ...) with constants for what models have: 4 taps with SiLU, and 3 without. */
#define FOR_TYPE_AND_TAPS(run, type, o, ...)                                                  \
    ((type) == PT_BF16 ? FOR_TAPS(run, PT_BF16, o, __VA_ARGS__) : FOR_TAPS(run, PT_F32, o, __VA_ARGS__))
#define FOR_TAPS(run, type, o, ...)                                                           \
    ((o)->silu && (o)->taps == 4    ? run(type, true, 4, __VA_ARGS__)                         \
     : !(o)->silu && (o)->taps == 3 ? run(type, false, 3, __VA_ARGS__)                        \
                                    : run(type, (o)->silu, (int)(o)->taps, __VA_ARGS__))

void KERNEL(conv_rows)(const op_conv *o, conv_part part) { FOR_TYPE_AND_TAPS(forward, o->type, o, o, &part); }

/* A row of last replaces no row of past that a later one needs: it takes one behind its own place. */
void KERNEL(conv_last)(const op_conv *o, conv_part part)
{
    line p;
    for (int64_t j = 0; j < o->taps - 1; j++) {
        const int64_t s = o->len - o->taps + 1 + j;
        if (o->type == PT_BF16)
            product_row(PT_BF16, o, &part, s, p);
        else
            product_row(PT_F32, o, &part, s, p);
        memcpy(o->last + (part.seq * (o->taps - 1) + j) * o->channels + part.column, p, (size_t)part.n * sizeof *p);
    }
}

/* ---- backward ---- */

/* Row s: its gradient goes to the rows that it read; `counts` if the row is the part's. */
static INLINE void backward_row(pt_dtype type, bool silu, int taps, int tap, const op_conv_backward *b, const conv_part *part, lines *l,
                                int64_t s, bool counts)
{
    const op_conv *o = &b->forward;
    const int64_t row = row_of(o, part, s);
    float *from[CONV_TAPS_MOST], *to[CONV_TAPS_MOST];
    lines_of(l->p, taps, s, from);
    lines_of(l->dp, taps, s, to);
    for (int64_t i = 0; i < part->n; i += VEC_LANES) {
        const int64_t lanes = lanes_at(part, i);
        vf derivative, y = act(type, silu, sum_at(l, from, taps, tap, i), &derivative);
        const vf dy = load(type, b->dy, row * b->lddy + part->column + i, lanes);
        const vf d = (o->after ? dy * factor(type, o->after, row, o->ldx, part, i, lanes) : dy) * derivative;
        if (counts && b->dafter)
            store(type, b->dafter, row * b->lddx + part->column + i, dy * y, lanes);
#pragma GCC unroll 8
        for (int j = tap; j < taps; j++) {
            put(to[j], i, vec_fma(get(l->weight[j], i), d, get(to[j], i)));
            if (counts)
                put(l->dweight[j], i, vec_fma(d, get(from[j], i), get(l->dweight[j], i)));
        }
        if (counts)
            put(l->dbias, i, get(l->dbias, i) + d);
    }
}

/* The gradients of row s from that of its p. */
static INLINE void finish_row(pt_dtype type, const op_conv_backward *b, const conv_part *part, const float *dp, int64_t s)
{
    const op_conv *o = &b->forward;
    const int64_t row = row_of(o, part, s);
    for (int64_t i = 0; i < part->n; i += VEC_LANES) {
        const int64_t lanes = lanes_at(part, i), to = row * b->lddx + part->column + i;
        const vf x = load(type, o->x, row * o->ldx + part->column + i, lanes);
        const vf before = factor(type, o->before, row, o->ldx, part, i, lanes), d = get(dp, i);
        store(type, b->dx, to, d * before, lanes);
        if (b->dbefore)
            store(type, b->dbefore, to, d * x, lanes);
    }
}

static INLINE void backward(pt_dtype type, bool silu, int taps, const op_conv_backward *b, const conv_part *part, float *sums)
{
    const op_conv *o = &b->forward;
    const int64_t past_end = part->row1 + taps - 1, end = past_end < o->len ? past_end : o->len;
    lines l;
    lines_begin(o, part, &l);
    memset(l.dp, 0, sizeof l.dp), memset(l.dweight, 0, sizeof l.dweight), memset(l.dbias, 0, sizeof l.dbias);
    for (int64_t s = part->row0 - taps + 1; s < past_end; s++) {
        const int64_t done = s - taps + 1;
        if (s < end)
            product_row(type, o, part, s, l.p[s & (RING - 1)]);
        if (s >= part->row0 && s < end) {
            const int tap = first_tap(o, part, s);
            if (tap == 0 && s < part->row1)
                backward_row(type, silu, taps, 0, b, part, &l, s, true);
            else
                backward_row(type, silu, taps, tap, b, part, &l, s, s < part->row1);
        }
        if (done >= part->row0)
            finish_row(type, b, part, l.dp[done & (RING - 1)], done);
        memset(l.dp[(s + 1) & (RING - 1)], 0, sizeof(line));
    }
    for (int64_t j = 0; sums && j <= o->taps; j++)
        for (int64_t c = 0; c < part->n; c++)
            sums[j * o->channels + part->column + c] += j < o->taps ? l.dweight[j][c] : l.dbias[c];
}

void KERNEL(conv_backward_rows)(const op_conv_backward *b, conv_part part, float *sums)
{
    FOR_TYPE_AND_TAPS(backward, b->forward.type, &b->forward, b, &part, sums);
}
