#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/kernels/adamw.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/squares.h"

#include <math.h>

static INLINE int64_t lanes_at(int64_t i, int64_t end) { return end - i < VEC_LANES ? end - i : (int64_t)VEC_LANES; }

/* x and y of op_low_moments at entry `at`. */
typedef struct moved { vf x, y; } moved;

static INLINE moved moments_at(const op_low_moments *o, int64_t at, int64_t lanes)
{
    const uint32_t least = o->eps >= 1e-9f ? MOMENT_LEAST : 0;
    const vf x = f32_load(o->r + at, lanes) * o->scale;
    vf m = f32_load(o->m + at, lanes), v = f32_load(o->v + at, lanes);
    m = moment_tidy(vec_fma(vec_set(1.0f - o->beta1), x - m, m), MOMENT_LEAST);
    v = moment_tidy(vec_fma(vec_set(1.0f - o->beta2), x * x, o->beta2 * v), least);
    f32_store(o->m + at, m, lanes);
    f32_store(o->v + at, v, lanes);
    const vf y = m / (vec_sqrt(v) + o->eps);
    if (o->n)
        f32_store(o->n + at, y, lanes);
    return (moved){x, y};
}

/* Adds the squares of as many values as there are lanes. */
static INLINE void add_squares(double *sums, vf x, int64_t lanes)
{
    double part[VEC_LANES] = {0};
    vd sum[2];
    memcpy(part, sums, (size_t)lanes * sizeof *sums);
    memcpy(sum, part, sizeof sum);
    squares_add(sum, x);
    memcpy(part, sum, sizeof sum);
    memcpy(sums, part, (size_t)lanes * sizeof *sums);
}

void KERNEL(low_columns_part)(const op_low_moments *o, int64_t i, int64_t n)
{
    for (int64_t j = i; j < i + n && o->moved; j++)
        o->moved[j] = o->given[j] = 0;
    for (int64_t row = 0; row < o->rank; row++)
        for (int64_t j = i; j < i + n; j += VEC_LANES) {
            const int64_t lanes = lanes_at(j, i + n);
            const moved k = moments_at(o, row * o->channels + j, lanes);
            if (!o->moved)
                continue;
            add_squares(o->moved + j, k.y, lanes);
            add_squares(o->given + j, k.x, lanes);
        }
}

void KERNEL(low_row_part)(const op_low_moments *o, int64_t row)
{
    squares moved_sum = {0}, given_sum = {0};
    for (int64_t j = 0, k = 0; j < o->rank; j += VEC_LANES, k = (k + 1) % SQUARE_VECS) {
        const int64_t lanes = lanes_at(j, o->rank);
        const moved x = moments_at(o, row * o->rank + j, lanes);
        squares_add(&moved_sum.part[2 * k], vec_keep(first_lanes(lanes), x.y));
        squares_add(&given_sum.part[2 * k], vec_keep(first_lanes(lanes), x.x));
    }
    if (!o->moved)
        return;
    o->moved[row] = squares_total(moved_sum);
    o->given[row] = squares_total(given_sum);
}

/* ---- orthonormal rows ---- */

static INLINE double product(const float *a, const float *b, int64_t n)
{
    squares s = {0};
    for (int64_t j = 0, k = 0; j < n; j += VEC_LANES, k = (k + 1) % SQUARE_VECS) {
        const vf x = f32_load(a + j, lanes_at(j, n)), y = f32_load(b + j, lanes_at(j, n));
        s.part[2 * k] += vec_low_double(x) * vec_low_double(y);
        s.part[2 * k + 1] += vec_high_double(x) * vec_high_double(y);
    }
    return squares_total(s);
}

static INLINE void subtract(float *a, const float *b, float by, int64_t n)
{
    for (int64_t j = 0; j < n; j += VEC_LANES) {
        const int64_t lanes = lanes_at(j, n);
        f32_store(a + j, vec_fma(vec_set(-by), f32_load(b + j, lanes), f32_load(a + j, lanes)), lanes);
    }
}

static INLINE void divide(float *a, float by, int64_t n)
{
    for (int64_t j = 0; j < n; j += VEC_LANES)
        f32_store(a + j, f32_load(a + j, lanes_at(j, n)) / by, lanes_at(j, n));
}

static void begin(const op_orthonormal *o, float norm)
{
    for (int64_t i = 0, n = o->rows * o->cols; i < n; i += VEC_LANES) {
        const int64_t lanes = lanes_at(i, n);
        const vf y = norm > 0 ? f32_load(o->y + i, lanes) / norm : (vf){0};
        f32_store(o->out + i, vec_fma(vec_set(ORTHONORMAL_NOISE), f32_load(o->noise + i, lanes), y), lanes);
    }
}

void KERNEL(orthonormal_all)(const op_orthonormal *o)
{
    double all = 0;
    for (int64_t row = 0; row < o->rows; row++)
        all += product(o->y + row * o->cols, o->y + row * o->cols, o->cols);
    begin(o, (float)sqrt(all));
    for (int64_t row = 0; row < o->rows; row++) {
        float *x = o->out + row * o->cols;
        for (int64_t k = 0; k < 2 * row; k++)
            subtract(x, o->out + k % row * o->cols, (float)product(x, o->out + k % row * o->cols, o->cols), o->cols);
        divide(x, (float)sqrt(product(x, x, o->cols)), o->cols);
    }
}

/* ---- Adam by rows ---- */

static INLINE void row_of(pt_dtype type, op_row_adam o, int64_t row)
{
    const float by = sqrtf(o.v[row]) / o.sqrt_correction2 + o.eps;
    for (int64_t j = 0; j < o.cols; j += VEC_LANES) {
        const int64_t lanes = lanes_at(j, o.cols), at = row * o.cols + j;
        const vf g = load(type, o.g, at, lanes) * o.grad_scale, w = master_load(type, o.hi, o.lo, at, lanes) * o.decay;
        vf m = f32_load(o.m + at, lanes);
        m = moment_tidy(vec_fma(vec_set(1.0f - o.beta1), g - m, m), MOMENT_LEAST);
        f32_store(o.m + at, m, lanes);
        master_store(type, o.hi, o.lo, at, vec_fma(vec_set(-o.step_size), m / by, w), lanes);
    }
}

void KERNEL(row_adam_part)(const op_row_adam *o, int64_t row)
{
    if (o->type == PT_BF16)
        row_of(PT_BF16, *o, row);
    else
        row_of(PT_F32, *o, row);
}
