/* kernels_activation.cu - activations and their backward, elementwise.
 *
 * Without a gate, all rows are one long row; a gated row has two halves, [gate | up]. A thread has two packs of each, half a tile apart,
 * and loads all of them before it uses the first:
 *
 *     row     |  tile 0: 128 packs | 128 packs  |  tile 1 ...
 *     thread     0  1  2  ...        0  1  2
 *
 * In bf16 the exponential and the reciprocal are single instructions, so that an element takes about a dozen, hidden behind memory
 * accesses. In fp32 they are exact to an ulp or two; the errors are 4 ulp for the logistic function and 5 for the normal distribution,
 * whose polynomial is that of the CPU's vmath.h. In bf16 the error besides rounding is at most 2^-16 of the result, far from 0 where the
 * result almost vanishes.
 */
#include "device/cuda/activation.h"

enum { ACTIVATION_THREADS = 128, ACTIVATION_TILE = 2 * ACTIVATION_THREADS * PACK };

/* The row and column of a thread's first pack. Blocks are numbered by tile, then by row. */
typedef struct element_place { int64_t row, i; } element_place;

DEVICE element_place element_place_of(int64_t cols)
{
    unsigned tiles = (unsigned)((cols + ACTIVATION_TILE - 1) / ACTIVATION_TILE);
    element_place p;
    p.row = blockIdx.x / tiles;
    p.i = (int64_t)(blockIdx.x % tiles) * ACTIVATION_TILE + threadIdx.x * PACK;
    return p;
}

/* The two packs of a thread; zeros past the row. */
template <pt_dtype T> struct packed_pair { packed<T> of[2]; };

template <pt_dtype T> DEVICE packed_pair<T> pair_load(const void *row, int64_t i, int64_t n, bool wide)
{
    packed_pair<T> p;
#pragma unroll
    for (int k = 0; k < 2; k++)
        p.of[k] = packed_load<T>(row, i + k * (ACTIVATION_TILE / 2), n, wide);
    return p;
}

template <activation_kind K, pt_dtype T> __global__ void __launch_bounds__(ACTIVATION_THREADS) activation_kernel(op_activation o, bool wide)
{
    element_place at = element_place_of(o.cols);
    if (at.i >= o.cols)
        return;
    const void *gate = element_at<T>(o.up, at.row * (o.gated ? 2 : 1) * o.cols);
    packed_pair<T> gates = pair_load<T>(gate, at.i, o.cols, wide), ups = gates;
    if (o.gated)
        ups = pair_load<T>(element_at<T>(gate, o.cols), at.i, o.cols, wide);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        pack x = packed_values<T>(gates.of[k]), up = packed_values<T>(ups.of[k]);
        for (int j = 0; j < PACK; j++) {
            float derivative, y = activation<K, T>(x.x[j], &derivative);
            x.x[j] = o.gated ? y * up.x[j] : y;
        }
        pack_store<T>(element_at<T>(o.out, at.row * o.cols), at.i + k * (ACTIVATION_TILE / 2), o.cols, wide, x);
    }
}

template <activation_kind K, pt_dtype T>
__global__ void __launch_bounds__(ACTIVATION_THREADS) activation_backward_kernel(op_activation_backward o, bool wide)
{
    element_place at = element_place_of(o.cols);
    if (at.i >= o.cols)
        return;
    int64_t row = at.row * (o.gated ? 2 : 1) * o.cols;
    const void *gate = element_at<T>(o.up, row);
    void *dgate = element_at<T>(o.dup, row);
    packed_pair<T> gates = pair_load<T>(gate, at.i, o.cols, wide), ups = gates;
    packed_pair<T> douts = pair_load<T>(element_at<T>(o.dout, at.row * o.cols), at.i, o.cols, wide);
    void *out = o.out ? element_at<T>(o.out, at.row * o.cols) : NULL;
    if (o.gated)
        ups = pair_load<T>(element_at<T>(gate, o.cols), at.i, o.cols, wide);
#pragma unroll
    for (int k = 0; k < 2; k++) {
        pack x = packed_values<T>(gates.of[k]), up = packed_values<T>(ups.of[k]), dout = packed_values<T>(douts.of[k]), dup, y;
        for (int j = 0; j < PACK; j++) {
            float derivative, value = activation<K, T>(x.x[j], &derivative), d = dout.x[j];
            dup.x[j] = d * value;
            y.x[j] = o.gated ? value * up.x[j] : value;
            x.x[j] = (o.gated ? d * up.x[j] : d) * derivative;
        }
        int64_t i = at.i + k * (ACTIVATION_TILE / 2);
        if (o.gated)
            pack_store<T>(element_at<T>(dgate, o.cols), i, o.cols, wide, dup);
        pack_store<T>(dgate, i, o.cols, wide, x);
        if (out)
            pack_store<T>(out, i, o.cols, wide, y);
    }
}

static int64_t activation_blocks(int64_t rows, int64_t cols)
{
    return rows * blocks_of(cols, ACTIVATION_TILE);
}

template <activation_kind K, pt_dtype T> static int activation_launch(op_activation o, cudaStream_t s)
{
    if (!o.gated)
        o.cols *= o.rows, o.rows = 1;
    bool wide = is_wide(T, o.up, 0) && is_wide(T, o.out, o.gated ? o.cols : 0);
    return launch(activation_kernel<K, T>, activation_blocks(o.rows, o.cols), ACTIVATION_THREADS, s, o, wide);
}

template <activation_kind K, pt_dtype T> static int activation_backward_launch(op_activation_backward o, cudaStream_t s)
{
    if (!o.gated)
        o.cols *= o.rows, o.rows = 1;
    bool wide = is_wide(T, o.up, 0) && is_wide(T, o.dup, 0) && is_wide(T, o.out, 0) && is_wide(T, o.dout, o.gated ? o.cols : 0);
    return launch(activation_backward_kernel<K, T>, activation_blocks(o.rows, o.cols), ACTIVATION_THREADS, s, o, wide);
}

/* run<kind, type>(o, s) */
#define FOR_KIND_AND_TYPE(run, o, s)                                \
    switch ((o)->kind) {                                            \
    case ACT_GELU_TANH: return FOR_TYPE(run, ACT_GELU_TANH, o, s);  \
    case ACT_GELU_ERF: return FOR_TYPE(run, ACT_GELU_ERF, o, s);    \
    case ACT_SILU: return FOR_TYPE(run, ACT_SILU, o, s);            \
    case ACT_RELU2: return FOR_TYPE(run, ACT_RELU2, o, s);          \
    default: return FOR_TYPE(run, ACT_RELU, o, s);                  \
    }
#define FOR_TYPE(run, kind, o, s) (o)->type == PT_BF16 ? run<kind, PT_BF16>(*(o), s) : run<kind, PT_F32>(*(o), s)

int cuda_activation(const op_activation *o, cudaStream_t s)
{
    FOR_KIND_AND_TYPE(activation_launch, o, s)
}

int cuda_activation_backward(const op_activation_backward *o, cudaStream_t s)
{
    FOR_KIND_AND_TYPE(activation_backward_launch, o, s)
}
