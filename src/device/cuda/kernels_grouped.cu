/* kernels_grouped.cu - what experts need beside matmuls: activations and sums over rows. A block has a row, or columns of an expert. */
#include "device/cuda/activation.h"
#include "device/cuda/columns.h"
#include "device/cuda/experts.h"

enum { GROUPED_THREADS = 128 };

/* ---- activations ---- */

/* out, and its derivatives by gate and up. */
typedef struct gated_value { float out, by_gate, by_up; } gated_value;

template <activation_kind K, pt_dtype T> DEVICE gated_value plain_value(bool gated, float gate, float up)
{
    float derivative, y = activation<K, T>(gate, &derivative);
    return {gated ? y * up : y, gated ? up * derivative : derivative, y};
}

/* Comparisons with NaN are false: it stays. */
template <pt_dtype T> DEVICE gated_value clamped_value(float alpha, float limit, float gate, float up)
{
    const float g = gate > limit ? limit : gate, u = (up > limit ? limit : up < -limit ? -limit : up) + 1.0f;
    float slope, s = logistic<T>(exponential<T>(alpha * g, -1.0f), &slope), y = g * s;
    return {u * y, gate > limit ? 0.0f : u * fmaf(alpha * g, slope, s), fabsf(up) > limit ? 0.0f : y};
}

/* Elements i .. i + 7 of gate and up; clamped: they alternate in memory. */
template <pt_dtype T>
DEVICE void load_gated(const void *row, int64_t i, int64_t cols, bool gated, bool clamped, bool wide, pack *gate, pack *up)
{
    if (!clamped) {
        *gate = pack_load<T>(row, i, cols, wide);
        *up = gated ? pack_load<T>(element_at<T>(row, cols), i, cols, wide) : *gate;
        return;
    }
    const pack low = pack_load<T>(row, 2 * i, 2 * cols, wide), high = pack_load<T>(row, 2 * i + PACK, 2 * cols, wide);
    for (int j = 0; j < PACK / 2; j++) {
        gate->x[j] = low.x[2 * j], gate->x[j + PACK / 2] = high.x[2 * j];
        up->x[j] = low.x[2 * j + 1], up->x[j + PACK / 2] = high.x[2 * j + 1];
    }
}

template <pt_dtype T>
DEVICE void store_gated(void *row, int64_t i, int64_t cols, bool gated, bool clamped, bool wide, const pack &gate, const pack &up)
{
    if (!clamped) {
        pack_store<T>(row, i, cols, wide, gate);
        if (gated)
            pack_store<T>(element_at<T>(row, cols), i, cols, wide, up);
        return;
    }
    pack low, high;
    for (int j = 0; j < PACK / 2; j++) {
        low.x[2 * j] = gate.x[j], high.x[2 * j] = gate.x[j + PACK / 2];
        low.x[2 * j + 1] = up.x[j], high.x[2 * j + 1] = up.x[j + PACK / 2];
    }
    pack_store<T>(row, 2 * i, 2 * cols, wide, low);
    pack_store<T>(row, 2 * i + PACK, 2 * cols, wide, high);
}

template <activation_kind K, pt_dtype T>
__global__ void __launch_bounds__(GROUPED_THREADS) grouped_activation_kernel(op_grouped_activation o, int blocks, bool wide)
{
    const int64_t cols = o.of.cols, width = (o.of.gated ? 2 : 1) * cols, begin = range_begin(o.range), end = range_end(o.range);
    const bool clamped = o.limit > 0;
    for (int64_t row = begin + blockIdx.x; row < end; row += blocks) {
        const void *from = element_at<T>(o.of.up, place_of_row(o.up_at, NULL, 1, begin, row) * width);
        void *to = element_at<T>(o.of.out, place_of_row(o.out_at, NULL, 1, begin, row) * cols);
        for (int64_t i = threadIdx.x * PACK; i < cols; i += GROUPED_THREADS * PACK) {
            pack gate, up;
            load_gated<T>(from, i, cols, o.of.gated, clamped, wide, &gate, &up);
            for (int j = 0; j < PACK; j++)
                gate.x[j] = (clamped ? clamped_value<T>(o.alpha, o.limit, gate.x[j], up.x[j])
                                     : plain_value<K, T>(o.of.gated, gate.x[j], up.x[j])).out;
            pack_store<T>(to, i, cols, wide, gate);
        }
    }
}

template <activation_kind K, pt_dtype T>
__global__ void __launch_bounds__(GROUPED_THREADS)
grouped_activation_backward_kernel(op_grouped_activation_backward o, int blocks, bool wide)
{
    const int64_t cols = o.of.cols, width = (o.of.gated ? 2 : 1) * cols, begin = range_begin(o.range), end = range_end(o.range);
    const bool clamped = o.limit > 0;
    for (int64_t row = begin + blockIdx.x; row < end; row += blocks) {
        const void *from = element_at<T>(o.of.up, place_of_row(o.up_at, NULL, 1, begin, row) * width);
        const int64_t at = place_of_row(o.dout_at, NULL, 1, begin, row) * cols;
        void *to = element_at<T>(o.of.dup, place_of_row(o.dup_at, NULL, 1, begin, row) * width);
        void *out = o.of.out ? element_at<T>(o.of.out, at) : NULL;
        const float weight = o.weights ? o.weights[o.order[row]] : 1.0f;
        float dot = 0;
        for (int64_t i = threadIdx.x * PACK; i < cols; i += GROUPED_THREADS * PACK) {
            pack gate, up, dout = pack_load<T>(element_at<T>(o.of.dout, at), i, cols, wide), y;
            load_gated<T>(from, i, cols, o.of.gated, clamped, wide, &gate, &up);
            for (int j = 0; j < PACK; j++) {
                const gated_value v = clamped ? clamped_value<T>(o.alpha, o.limit, gate.x[j], up.x[j])
                                              : plain_value<K, T>(o.of.gated, gate.x[j], up.x[j]);
                const float value = element_round<T>(v.out), d = dout.x[j] * weight;
                dot = i + j < cols ? fmaf(value, dout.x[j], dot) : dot;
                y.x[j] = value * weight;
                gate.x[j] = d * v.by_gate;
                up.x[j] = d * v.by_up;
            }
            store_gated<T>(to, i, cols, o.of.gated, clamped, wide, gate, up);
            if (out)
                pack_store<T>(out, i, cols, wide, y);
        }
        if (!o.weights)
            continue;
        dot = block_sum(dot);
        if (threadIdx.x == 0)
            o.dweights[o.order[row]] = dot;
    }
}

template <activation_kind K, pt_dtype T> static int activation_launch(const op_grouped_activation *o, cudaStream_t s)
{
    int blocks, error = blocks_over_work(BLOCKS_EACH, &blocks);
    const bool wide = is_wide(T, o->of.up, o->of.cols) && is_wide(T, o->of.out, 0);
    return error ? error : launch(grouped_activation_kernel<K, T>, blocks, GROUPED_THREADS, s, *o, blocks, wide);
}

template <activation_kind K, pt_dtype T> static int activation_backward_launch(const op_grouped_activation_backward *o, cudaStream_t s)
{
    int blocks, error = blocks_over_work(BLOCKS_EACH, &blocks);
    const bool wide = is_wide(T, o->of.up, o->of.cols) && is_wide(T, o->of.dup, 0) && is_wide(T, o->of.dout, 0) && is_wide(T, o->of.out, 0);
    return error ? error : launch(grouped_activation_backward_kernel<K, T>, blocks, GROUPED_THREADS, s, *o, blocks, wide);
}

/* run<kind, type>(o, s) */
#define FOR_KIND_AND_TYPE(run, o, s)                                \
    switch ((o)->of.kind) {                                         \
    case ACT_GELU_TANH: return FOR_TYPE(run, ACT_GELU_TANH, o, s);  \
    case ACT_GELU_ERF: return FOR_TYPE(run, ACT_GELU_ERF, o, s);    \
    case ACT_SILU: return FOR_TYPE(run, ACT_SILU, o, s);            \
    case ACT_RELU2: return FOR_TYPE(run, ACT_RELU2, o, s);          \
    default: return FOR_TYPE(run, ACT_RELU, o, s);                  \
    }
#define FOR_TYPE(run, kind, o, s) (o)->of.type == PT_BF16 ? run<kind, PT_BF16>(o, s) : run<kind, PT_F32>(o, s)

int cuda_grouped_activation(const op_grouped_activation *o, cudaStream_t s) { FOR_KIND_AND_TYPE(activation_launch, o, s) }

int cuda_grouped_activation_backward(const op_grouped_activation_backward *o, cudaStream_t s)
{
    FOR_KIND_AND_TYPE(activation_backward_launch, o, s)
}

/* ---- sums over a token's rows ---- */

template <pt_dtype T> __global__ void __launch_bounds__(GROUPED_THREADS) combine_kernel(op_combine o, bool wide)
{
    const int64_t token = blockIdx.x, begin = o.range.ends ? range_begin(o.range) : 0, at = token * o.cols;
    const int64_t end = o.range.ends ? range_end(o.range) : INT64_MAX;
    for (int64_t i = threadIdx.x * PACK; i < o.cols; i += GROUPED_THREADS * PACK) {
        pack sum = {{0}};
        if (o.continues)
            sum = pack_load<PT_F32>(o.sums + at, i, o.cols, wide);
        for (int64_t slot = token * o.k; slot < (token + 1) * o.k; slot++) {
            const int64_t row = o.place ? o.place[slot] : slot;
            if (row < begin || row >= end)
                continue;
            const float weight = o.weights ? o.weights[slot] : 1.0f;
            const pack y = pack_load<T>(element_at<T>(o.y, (o.y_at == AT_ROW ? row : row - begin) * o.cols), i, o.cols, wide);
            for (int j = 0; j < PACK; j++)
                sum.x[j] = fmaf(weight, y.x[j], sum.x[j]);
        }
        if (!o.out) {
            pack_store<PT_F32>(o.sums + at, i, o.cols, wide, sum);
            continue;
        }
        if (o.stream) {
            pack stream = pack_load<PT_F32>(o.stream + at, i, o.cols, wide);
            for (int j = 0; j < PACK; j++)
                stream.x[j] += sum.x[j];
            pack_store<PT_F32>(o.stream + at, i, o.cols, wide, stream);
            sum = o.residual ? sum : stream;
        }
        if (o.residual) {
            const pack residual = pack_load<T>(element_at<T>(o.residual, at), i, o.cols, wide);
            for (int j = 0; j < PACK; j++)
                sum.x[j] = residual.x[j] + sum.x[j];
        }
        pack_store<T>(element_at<T>(o.out, at), i, o.cols, wide, sum);
    }
}

template <pt_dtype T> static int combine_launch(const op_combine *o, cudaStream_t s)
{
    const bool wide = is_wide(T, o->y, o->cols) && is_wide(PT_F32, o->sums, o->cols) && is_wide(T, o->residual, 0) &&
                      is_wide(PT_F32, o->stream, 0) && is_wide(T, o->out, 0);
    return launch(combine_kernel<T>, o->rows, GROUPED_THREADS, s, *o, wide);
}

int cuda_combine(const op_combine *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? combine_launch<PT_BF16>(o, s) : combine_launch<PT_F32>(o, s);
}

/* ---- biases ---- */

template <pt_dtype T> __global__ void __launch_bounds__(COLUMN_THREADS) grouped_bias_kernel(op_grouped_bias_backward o, bool wide)
{
    const column_place at = column_place_of(o.cols, (int)o.range.experts);
    const int64_t begin = range_begin(o.range), expert = o.range.first + at.part, end = expert_begin(o.range, expert + 1);
    int64_t block = expert_begin(o.range, expert);
    float *acc = o.acc + at.part * o.cols;
    bool accumulate = o.accumulate;
    do { /* once without rows, for the zeros */
        const int64_t last = end - block < EXPERT_BLOCK_ROWS ? end : block + EXPERT_BLOCK_ROWS;
        pack sum = {{0}};
        for (int64_t row = block + at.slot; at.column < o.cols && row < last; row += COLUMN_SLOTS) {
            const float weight = o.weights ? o.weights[o.order[row]] : 1.0f;
            const void *from = element_at<T>(o.dy, place_of_row(o.dy_at, o.order, (int)o.k, begin, row) * o.ld);
            const pack dy = pack_load<T>(from, at.column, o.cols, wide);
            for (int j = 0; j < PACK; j++)
                sum.x[j] = fmaf(weight, dy.x[j], sum.x[j]);
        }
        column_store(at, sum, acc, o.cols, accumulate);
        accumulate = true;
        block += EXPERT_BLOCK_ROWS;
    } while (block < end);
}

template <pt_dtype T>
__global__ void __launch_bounds__(GROUPED_THREADS) grouped_dots_kernel(op_grouped_bias_backward o, int blocks, bool wide)
{
    const int64_t begin = range_begin(o.range), end = range_end(o.range);
    int64_t e = 0;
    for (int64_t row = begin + blockIdx.x; row < end; row += blocks) {
        while (row >= expert_begin(o.range, o.range.first + e + 1))
            e++;
        const void *dy = element_at<T>(o.dy, place_of_row(o.dy_at, o.order, (int)o.k, begin, row) * o.ld);
        const void *bias = element_at<T>(o.bias, e * o.cols);
        float dot = 0;
        for (int64_t i = threadIdx.x * PACK; i < o.cols; i += GROUPED_THREADS * PACK) {
            const pack x = pack_load<T>(dy, i, o.cols, wide), y = pack_load<T>(bias, i, o.cols, wide);
            for (int j = 0; j < PACK; j++)
                dot = fmaf(x.x[j], y.x[j], dot);
        }
        dot = block_sum(dot);
        if (threadIdx.x == 0)
            o.dots[o.order[row]] += dot;
    }
}

template <pt_dtype T> static int grouped_bias_launch(const op_grouped_bias_backward *o, cudaStream_t s)
{
    int blocks, error = blocks_over_work(BLOCKS_EACH, &blocks);
    const bool wide = is_wide(T, o->dy, o->ld);
    if (!error && o->acc)
        error = launch(grouped_bias_kernel<T>, o->range.experts * blocks_of(o->cols, COLUMN_TILE), COLUMN_THREADS, s, *o, wide);
    if (error || !o->bias)
        return error;
    return launch(grouped_dots_kernel<T>, blocks, GROUPED_THREADS, s, *o, blocks, wide && is_wide(T, o->bias, o->cols));
}

int cuda_grouped_bias_backward(const op_grouped_bias_backward *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? grouped_bias_launch<PT_BF16>(o, s) : grouped_bias_launch<PT_F32>(o, s);
}
