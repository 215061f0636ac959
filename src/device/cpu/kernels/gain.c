#include "device/cpu/kernels/gain.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#include <math.h>

enum { GAIN_ROWS = 4 /* rows at a time: each value of a is read once for all of them */ };

/* part[] += the squares of 32 values of each of `rows` rows, from column i on; `left`: columns left. */
static INLINE void add_squares(pt_dtype type, const op_gain *o, int64_t row, int rows, int64_t i, int64_t left, sums part[GAIN_ROWS])
{
#pragma GCC unroll 8
    for (int v = 0; v < SUM_VECS; v++) {
        const int64_t at = i + v * VEC_LANES, lanes = left - v * VEC_LANES < VEC_LANES ? left - v * VEC_LANES : VEC_LANES;
        vf x[GAIN_ROWS];
        if (lanes <= 0)
            break;
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            x[r] = load(type, o->w, (row + r) * o->cols + at, lanes);
        for (int64_t j = 0; j < o->rank; j++) {
            const vf a = load(type, o->a, j * o->cols + at, lanes);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                x[r] = vec_fma(vec_set(o->scale * load(type, o->b, (row + r) * o->rank + j, 1)[0]), a, x[r]);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            part[r].part[v] = vec_fma(x[r], x[r], part[r].part[v]);
    }
}

static INLINE void some_rows(pt_dtype type, const op_gain *o, int64_t row, int rows)
{
    sums part[GAIN_ROWS] = {0};
    for (int64_t i = 0; i < o->cols; i += SUM_LANES)
        add_squares(type, o, row, rows, i, o->cols - i, part);
    for (int r = 0; r < rows; r++) {
        const float norm = sqrtf(sums_total(part[r]));
        o->inverse[row + r] = norm > 0 ? 1 / norm : 0;
        o->gain[row + r] = o->magnitude[row + r] * o->inverse[row + r];
    }
}

static INLINE void all_rows(pt_dtype type, const op_gain *o, int64_t row0, int64_t row1)
{
    for (; row0 + GAIN_ROWS <= row1; row0 += GAIN_ROWS)
        some_rows(type, o, row0, GAIN_ROWS);
    for (; row0 < row1; row0++)
        some_rows(type, o, row0, 1);
}

void KERNEL(gain_rows)(const op_gain *o, int64_t row0, int64_t row1)
{
    if (o->type == PT_BF16)
        all_rows(PT_BF16, o, row0, row1);
    else
        all_rows(PT_F32, o, row0, row1);
}

static INLINE void back_rows(pt_dtype type, const op_gain_backward *o, int64_t row0, int64_t row1, int64_t column, int64_t columns,
                             float *sum)
{
    for (int64_t row = row0; row < row1; row++)
        for (int64_t i = 0; i < columns; i += VEC_LANES) {
            const int64_t lanes = columns - i < VEC_LANES ? columns - i : VEC_LANES, at = row * o->ld + column + i;
            const vf dy = load(type, o->dy, at, lanes);
            f32_store(sum + i, vec_fma(dy, load(type, o->sums, at, lanes), f32_load(sum + i, lanes)), lanes);
            store(type, o->sums, at, dy * f32_load(o->gain + column + i, lanes), lanes);
        }
}

void KERNEL(gain_back_rows)(const op_gain_backward *o, int64_t row0, int64_t row1, int64_t column, int64_t columns, float *sum)
{
    if (o->type == PT_BF16)
        back_rows(PT_BF16, o, row0, row1, column, columns, sum);
    else
        back_rows(PT_F32, o, row0, row1, column, columns, sum);
}
