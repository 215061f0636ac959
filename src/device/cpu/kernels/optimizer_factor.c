#include "device/cpu/kernels/optimizer.h"
#include "device/cpu/kernels/adamw.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/squares.h"

static INLINE int64_t lanes_at(int64_t i, int64_t end) { return end - i < VEC_LANES ? end - i : (int64_t)VEC_LANES; }

/* u of op_scaled_squares; row 1 and col NULL: without. */
static INLINE vf scaled(pt_dtype type, const void *g, int64_t at, int64_t j, int64_t lanes, float grad_scale, float row, const float *col)
{
    const vf u = load(type, g, at + j, lanes) * grad_scale * row;
    return col ? u * f32_load(col + j, lanes) : u;
}

static INLINE double row_squares(pt_dtype type, const void *g, int64_t at, int64_t n, float grad_scale, float row, const float *col)
{
    squares s = {0};
    for (int64_t j = 0, k = 0; j < n; j += VEC_LANES, k = (k + 1) % SQUARE_VECS) {
        const int64_t lanes = lanes_at(j, n);
        squares_add(&s.part[2 * k], vec_keep(first_lanes(lanes), scaled(type, g, at, j, lanes, grad_scale, row, col)));
    }
    return squares_total(s);
}

double KERNEL(factor_row_part)(const op_factor_sums *o, int64_t row)
{
    return o->type == PT_BF16 ? row_squares(PT_BF16, o->g, row * o->cols, o->cols, o->grad_scale, 1, NULL)
                              : row_squares(PT_F32, o->g, row * o->cols, o->cols, o->grad_scale, 1, NULL);
}

static INLINE void cols_of(pt_dtype type, op_factor_sums o, int64_t block)
{
    const int64_t first = block * FACTOR_ROWS, end = first + FACTOR_ROWS < o.rows ? first + FACTOR_ROWS : o.rows;
    float *out = o.partial + block * o.cols;
    for (int64_t row = first; row < end; row++)
        for (int64_t j = 0; j < o.cols; j += VEC_LANES) {
            const int64_t lanes = lanes_at(j, o.cols);
            const vf g = load(type, o.g, row * o.cols + j, lanes) * o.grad_scale;
            f32_store(out + j, vec_fma(g, g, row == first ? (vf){0} : f32_load(out + j, lanes)), lanes);
        }
}

void KERNEL(factor_cols_part)(const op_factor_sums *o, int64_t block)
{
    if (o->type == PT_BF16)
        cols_of(PT_BF16, *o, block);
    else
        cols_of(PT_F32, *o, block);
}

double KERNEL(scaled_squares_row)(const op_scaled_squares *o, int64_t row)
{
    const float by = o->row ? o->row[row] : 1;
    return o->type == PT_BF16 ? row_squares(PT_BF16, o->g, row * o->cols, o->cols, o->grad_scale, by, o->col)
                              : row_squares(PT_F32, o->g, row * o->cols, o->cols, o->grad_scale, by, o->col);
}

double KERNEL(master_squares_row)(const op_master_squares *o, int64_t row)
{
    squares s = {0};
    for (int64_t j = 0, k = 0; j < o->cols; j += VEC_LANES, k = (k + 1) % SQUARE_VECS) {
        const int64_t lanes = lanes_at(j, o->cols);
        squares_add(&s.part[2 * k], vec_keep(first_lanes(lanes), master_load(o->type, o->hi, o->lo, row * o->cols + j, lanes)));
    }
    return squares_total(s);
}

static INLINE void apply_of(pt_dtype type, pt_dtype g_type, op_scaled_apply o, int64_t row)
{
    const float by = o.row ? o.row[row] : 1, step = o.limit[0], decay = o.limit[1];
    for (int64_t j = 0; j < o.cols; j += VEC_LANES) {
        const int64_t lanes = lanes_at(j, o.cols), at = row * o.cols + j;
        const vf w = master_load(type, o.hi, o.lo, at, lanes) * decay;
        const vf u = scaled(g_type, o.g, row * o.cols, j, lanes, o.grad_scale, by, o.col);
        master_store(type, o.hi, o.lo, at, vec_fma(vec_set(-step), u, w), lanes);
    }
}

void KERNEL(scaled_apply_row)(const op_scaled_apply *o, int64_t row)
{
    if (o->type == PT_BF16 && o->g_type == PT_BF16)
        apply_of(PT_BF16, PT_BF16, *o, row);
    else if (o->type == PT_BF16)
        apply_of(PT_BF16, PT_F32, *o, row);
    else
        apply_of(PT_F32, PT_F32, *o, row);
}
