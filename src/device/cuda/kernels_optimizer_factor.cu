/* kernels_optimizer_factor.cu - second moments by rows and columns, and scaled updates, with the same bits as on the CPU. Rows have a block
 * each, columns a thread. */
#include "device/cuda/adamw.h"
#include "device/cuda/lanes.h"

enum { THREADS = 256, LANES = SUMSQ_LANES };

/* u of op_scaled_squares. */
template <pt_dtype T> DEVICE float scaled(const void *g, int64_t at, int64_t j, float grad_scale, float row, const float *col)
{
    const float u = __fmul_rn(__fmul_rn(element_load<T>(g, at + j), grad_scale), row);
    return col ? __fmul_rn(u, col[j]) : u;
}

template <pt_dtype T> DEVICE double row_squares(const void *g, int64_t at, int64_t n, float grad_scale, float row, const float *col)
{
    double sum = 0.0;
    for (int64_t j = threadIdx.x; j < n; j += LANES) {
        const double u = (double)scaled<T>(g, at, j, grad_scale, row, col);
        sum = __fma_rn(u, u, sum);
    }
    return lanes_total(sum);
}

/* The sum of n numbers, number i in lane i mod LANES. */
template <typename number> DEVICE double total_of(const number *x, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = threadIdx.x; i < n && threadIdx.x < LANES; i += LANES)
        sum = __dadd_rn(sum, (double)x[i]);
    return lanes_total(sum);
}

/* ---- moments ---- */

DEVICE float averaged(float old, float keep, float eps, double sum, int64_t n)
{
    const float mean = __fadd_rn((float)(sum / (double)n), eps);
    return __fmaf_rn(__fsub_rn(1.0f, keep), mean, __fmul_rn(keep, old));
}

template <pt_dtype T> __global__ void rows_kernel(op_factor_sums o)
{
    const int64_t row = blockIdx.x;
    const double sum = row_squares<T>(o.g, row * o.cols, o.cols, o.grad_scale, 1.0f, NULL);
    if (threadIdx.x == 0)
        o.row[row] = averaged(o.row[row], o.keep, o.eps, sum, o.cols);
}

template <pt_dtype T> __global__ void cols_kernel(op_factor_sums o, int64_t tiles)
{
    const int64_t block = blockIdx.x / tiles, j = (blockIdx.x % tiles) * THREADS + threadIdx.x;
    const int64_t first = block * FACTOR_ROWS, end = first + FACTOR_ROWS < o.rows ? first + FACTOR_ROWS : o.rows;
    if (j >= o.cols)
        return;
    float sum = 0.0f;
    for (int64_t row = first; row < end; row++) {
        const float g = __fmul_rn(element_load<T>(o.g, row * o.cols + j), o.grad_scale);
        sum = __fmaf_rn(g, g, sum);
    }
    o.partial[block * o.cols + j] = sum;
}

template <pt_dtype T> static int sums_launch(const op_factor_sums *o, cudaStream_t s)
{
    const int64_t tiles = blocks_of(o->cols, THREADS);
    const int status = o->row ? launch(rows_kernel<T>, o->rows, LANES, s, *o) : 0;
    return status || !o->partial ? status : launch(cols_kernel<T>, factor_blocks(o->rows) * tiles, THREADS, s, *o, tiles);
}

int cuda_factor_sums(const op_factor_sums *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? sums_launch<PT_BF16>(o, s) : sums_launch<PT_F32>(o, s);
}

__global__ void fold_rows_kernel(op_factor_fold o)
{
    const float mean = o.row ? (float)(total_of(o.row, o.rows) / (double)o.rows) : 1.0f;
    for (int64_t i = threadIdx.x; i < o.rows; i += THREADS)
        o.row_factor[i] = o.row ? __fdiv_rn(1.0f, __fsqrt_rn(__fdiv_rn(o.row[i], mean))) : 1.0f;
}

__global__ void fold_cols_kernel(op_factor_fold o, int64_t blocks)
{
    const int64_t j = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    double sum = 0.0;
    if (j >= o.cols)
        return;
    for (int64_t b = 0; b < blocks; b++)
        sum = __dadd_rn(sum, (double)o.partial[b * o.cols + j]);
    o.col[j] = averaged(o.col[j], o.keep, o.eps, sum, o.rows);
    o.col_factor[j] = __fdiv_rn(1.0f, __fsqrt_rn(o.col[j]));
}

int cuda_factor_fold(const op_factor_fold *o, cudaStream_t s)
{
    const int status = launch(fold_rows_kernel, 1, THREADS, s, *o);
    return status ? status : launch(fold_cols_kernel, blocks_of(o->cols, THREADS), THREADS, s, *o, factor_blocks(o->rows));
}

/* ---- updates ---- */

template <pt_dtype T> __global__ void squares_kernel(op_scaled_squares o)
{
    const int64_t row = blockIdx.x;
    const double sum = row_squares<T>(o.g, row * o.cols, o.cols, o.grad_scale, o.row ? o.row[row] : 1.0f, o.col);
    if (threadIdx.x == 0)
        o.sums[row] = sum;
}

int cuda_scaled_squares(const op_scaled_squares *o, cudaStream_t s)
{
    return launch(o->type == PT_BF16 ? squares_kernel<PT_BF16> : squares_kernel<PT_F32>, o->rows, LANES, s, *o);
}

template <pt_dtype T> DEVICE float master_at(const void *hi, const uint16_t *lo, int64_t i)
{
    return master_load<T>(element_at<T>(hi, i), lo + (T == PT_BF16 ? i : 0), 0, 1, false).x[0];
}

template <pt_dtype T> __global__ void masters_kernel(op_master_squares o)
{
    double sum = 0.0;
    for (int64_t j = threadIdx.x; j < o.cols; j += LANES) {
        const double w = (double)master_at<T>(o.hi, o.lo, blockIdx.x * o.cols + j);
        sum = __fma_rn(w, w, sum);
    }
    sum = lanes_total(sum);
    if (threadIdx.x == 0)
        o.sums[blockIdx.x] = sum;
}

int cuda_master_squares(const op_master_squares *o, cudaStream_t s)
{
    return launch(o->type == PT_BF16 ? masters_kernel<PT_BF16> : masters_kernel<PT_F32>, o->rows, LANES, s, *o);
}

DEVICE float larger(float x, float least) { return x < least ? least : x; }

DEVICE float root_mean(double total, int64_t n) { return (float)sqrt(total / (double)n); }

__global__ void limit_kernel(op_update_limit o)
{
    const double total = o.kind == LIMIT_NONE ? 0.0 : total_of(o.sums, o.sums_n), weights = o.weights ? total_of(o.weights, o.sums_n) : 0.0;
    if (threadIdx.x)
        return;
    if (o.kind == LIMIT_RMS) {
        const float part = __fdiv_rn(root_mean(total, o.values), o.most);
        const float lr = o.weights ? __fmul_rn(o.lr, larger(root_mean(weights, o.values), o.least)) : o.lr;
        o.out[0] = __fdiv_rn(lr, larger(part, 1.0f));
        o.out[1] = __fmaf_rn(-o.decay, lr, 1.0f);
        return;
    }
    const float norm = (float)sqrt(total), last = o.last ? *o.last : 0.0f;
    const float by = last > 0 ? __fdiv_rn(larger(__fdiv_rn(norm, __fadd_rn(last, 1e-8f)), o.most), o.most) : 1.0f;
    if (o.last)
        *o.last = __fdiv_rn(norm, by);
    o.out[1] = __fsub_rn(1.0f, o.decay);
    o.out[0] = __fmul_rn(__fdiv_rn(o.lr, by), __fsub_rn(1.0f, o.decay));
}

int cuda_update_limit(const op_update_limit *o, cudaStream_t s) { return launch(limit_kernel, 1, LANES, s, *o); }

template <pt_dtype T, pt_dtype G> __global__ void apply_kernel(op_scaled_apply o, bool wide)
{
    const int64_t packs = (o.cols + PACK - 1) / PACK, pack_at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    const int64_t row = pack_at / packs, i = pack_at % packs * PACK;
    if (row >= o.rows)
        return;
    void *hi = element_at<T>(o.hi, row * o.cols);
    uint16_t *lo = T == PT_BF16 ? o.lo + row * o.cols : NULL;
    const float by = o.row ? o.row[row] : 1.0f, step = o.limit[0], decay = o.limit[1];
    pack w = master_load<T>(hi, lo, i, o.cols, wide);
    for (int j = 0; j < PACK && i + j < o.cols; j++)
        w.x[j] = __fmaf_rn(-step, scaled<G>(o.g, row * o.cols, i + j, o.grad_scale, by, o.col), __fmul_rn(w.x[j], decay));
    master_store<T>(hi, lo, i, o.cols, wide, w);
}

int cuda_scaled_apply(const op_scaled_apply *o, cudaStream_t s)
{
    const bool wide = is_wide(o->type, o->hi, o->cols) && is_wide(o->type, o->lo, o->cols);
    const int64_t blocks = blocks_of(o->rows * blocks_of(o->cols, PACK), THREADS);
    if (o->type == PT_F32)
        return launch(apply_kernel<PT_F32, PT_F32>, blocks, THREADS, s, *o, wide);
    return launch(o->g_type == PT_BF16 ? apply_kernel<PT_BF16, PT_BF16> : apply_kernel<PT_BF16, PT_F32>, blocks, THREADS, s, *o, wide);
}
