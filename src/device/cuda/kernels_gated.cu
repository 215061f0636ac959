/* kernels_gated.cu - the gates of a scan, a thread per row and head; norms with a gate, a team of threads per row and head. */
#include "device/cuda/activation.h"

enum { GATES_THREADS = 256, GATED_THREADS = 256, GATED_WIDE = 256 /* dim from which a block is a head's team, else a warp */ };

/* ---- the gates of a scan ---- */

DEVICE float softplus(float x) { return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x))); }
DEVICE float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

typedef struct gate_values { float rate, step, open; } gate_values;

DEVICE gate_values gate_values_of(const op_gates &o, float a, int64_t head)
{
    gate_values v;
    a += o.step_bias[head];
    v.rate = -expf(o.a_log[head]);
    v.step = softplus(a);
    v.open = sigmoid(a);
    if (o.kind != SCAN_SSD)
        return v;
    const bool low = v.step < o.least, high = o.most > 0 && v.step > o.most;
    v.open = low || high ? 0.0f : v.open;
    v.step = low ? o.least : high ? o.most : v.step;
    return v;
}

template <pt_dtype T> __global__ void __launch_bounds__(GATES_THREADS) gates_kernel(op_gates o)
{
    const int64_t i = (int64_t)blockIdx.x * GATES_THREADS + threadIdx.x, row = i / o.heads, head = i % o.heads;
    if (row >= o.rows)
        return;
    const gate_values v = gate_values_of(o, element_load<T>(o.a, row * o.ld + head), head);
    o.g[i] = v.rate * v.step;
    o.beta[i] = o.kind == SCAN_SSD ? v.step : sigmoid(element_load<T>(o.b, row * o.ld + head));
}

int cuda_gates(const op_gates *o, cudaStream_t s)
{
    const int64_t blocks = blocks_of(o->rows * o->heads, GATES_THREADS);
    return o->type == PT_BF16 ? launch(gates_kernel<PT_BF16>, blocks, GATES_THREADS, s, *o)
                              : launch(gates_kernel<PT_F32>, blocks, GATES_THREADS, s, *o);
}

/* A block has GATES_BLOCK_ROWS rows and one head; its sums are those of the threads, in a tree. */
template <pt_dtype T> __global__ void __launch_bounds__(GATES_BLOCK_ROWS) gates_backward_kernel(op_gates_backward b)
{
    const op_gates &o = b.forward;
    const int64_t block = blockIdx.x / o.heads, head = blockIdx.x % o.heads, row = block * GATES_BLOCK_ROWS + threadIdx.x;
    float by_rate = 0.0f, da = 0.0f;
    if (row < o.rows) {
        const gate_values v = gate_values_of(o, element_load<T>(o.a, row * o.ld + head), head);
        const float dg = b.dg[row * o.heads + head], dbeta = b.dbeta[row * o.heads + head];
        da = (o.kind == SCAN_SSD ? fmaf(dg, v.rate, dbeta) : dg * v.rate) * v.open;
        by_rate = dg * (v.rate * v.step);
        element_store<T>(b.da, row * b.ldd + head, da);
        if (o.kind == SCAN_DELTA) {
            const float beta = sigmoid(element_load<T>(o.b, row * o.ld + head));
            element_store<T>(b.db, row * b.ldd + head, dbeta * beta * (1.0f - beta));
        }
    }
    by_rate = block_sum(by_rate);
    da = block_sum(da);
    if (threadIdx.x == 0) {
        float *sums = (float *)b.scratch + block * 2 * o.heads + head;
        sums[0] = by_rate, sums[o.heads] = da;
    }
}

/* out[i] (+)= the sum over blocks of sums[block * stride + i] */
__global__ void __launch_bounds__(GATES_THREADS) blocks_add_kernel(const float *sums, int64_t stride, int64_t blocks, int64_t n,
                                                                   bool accumulate, float *out)
{
    const int64_t i = (int64_t)blockIdx.x * GATES_THREADS + threadIdx.x;
    float sum = 0.0f;
    for (int64_t block = 0; i < n && block < blocks; block++)
        sum += sums[block * stride + i];
    if (i < n)
        out[i] = accumulate ? out[i] + sum : sum;
}

static int blocks_add(const float *sums, int64_t stride, int64_t blocks, int64_t n, bool accumulate, float *out, cudaStream_t s)
{
    return out ? launch(blocks_add_kernel, blocks_of(n, GATES_THREADS), GATES_THREADS, s, sums, stride, blocks, n, accumulate, out) : 0;
}

int cuda_gates_backward(const op_gates_backward *b, cudaStream_t s)
{
    const int64_t heads = b->forward.heads, blocks = blocks_of(b->forward.rows, GATES_BLOCK_ROWS);
    const float *sums = (const float *)b->scratch;
    int failed = b->forward.type == PT_BF16 ? launch(gates_backward_kernel<PT_BF16>, blocks * heads, GATES_BLOCK_ROWS, s, *b)
                                            : launch(gates_backward_kernel<PT_F32>, blocks * heads, GATES_BLOCK_ROWS, s, *b);
    if (!failed)
        failed = blocks_add(sums, 2 * heads, blocks, heads, b->accumulate, b->da_log, s);
    return failed ? failed : blocks_add(sums + heads, 2 * heads, blocks, heads, b->accumulate, b->dstep_bias, s);
}

/* ---- norms with a gate ---- */

/* WIDE: the block is a head's team, else each warp is. All threads of a block call it. */
template <bool WIDE> DEVICE float team_sum(float x) { return WIDE ? block_sum(x) : warp_sum(x); }

template <pt_dtype T> DEVICE float gate(bool with_sigmoid, float z, float *derivative)
{
    const float x = activation<ACT_SILU, T>(z, derivative);
    if (!with_sigmoid)
        return x;
    const float s = sigmoid(z);
    *derivative = s * (1.0f - s);
    return s;
}

typedef struct gated_head { int64_t x, z; const float *weight; float rstd; } gated_head; /* where they begin, in elements */

DEVICE gated_head head_at(const op_gated_norm &o, int64_t row, int64_t head)
{
    gated_head h = {row * o.ldx + head * o.dim, row * o.ldz + head * (o.z_step ? o.z_step : o.dim),
                    o.weight ? o.weight + head * o.weight_step : NULL, 1.0f};
    return h;
}

template <pt_dtype T> DEVICE float normalized(const op_gated_norm &o, const gated_head &h, int64_t i)
{
    float derivative;
    const float x = element_load<T>(o.x, h.x + i);
    return o.kind == GATED_GATE_FIRST ? x * gate<T>(o.sigmoid, element_load<T>(o.z, h.z + i), &derivative) : x;
}

template <pt_dtype T, bool WIDE> DEVICE float rstd_of(const op_gated_norm &o, const gated_head &h, int lane, int lanes)
{
    float sum = 0.0f;
    for (int64_t i = lane; i < o.dim && o.kind != GATED_ONLY; i += lanes) {
        const float p = normalized<T>(o, h, i);
        sum += p * p;
    }
    return 1.0f / sqrtf(team_sum<WIDE>(sum) / (float)o.dim + o.eps);
}

DEVICE float output(const op_gated_norm &o, float n, float weight, float act)
{
    return o.kind == GATED_NORM_FIRST ? n * weight * act : n * weight;
}

template <pt_dtype T, bool WIDE> __global__ void __launch_bounds__(GATED_THREADS) gated_norm_kernel(op_gated_norm o)
{
    const int lanes = WIDE ? (int)GATED_THREADS : (int)WARP, lane = threadIdx.x % lanes;
    const int64_t vector = (int64_t)blockIdx.x * (GATED_THREADS / lanes) + threadIdx.x / lanes;
    const bool there = vector < o.rows * o.heads;
    const int64_t row = there ? vector / o.heads : 0, head = there ? vector % o.heads : 0;
    gated_head h = head_at(o, row, head);
    h.rstd = rstd_of<T, WIDE>(o, h, lane, lanes);
    for (int64_t i = lane; there && i < o.dim; i += lanes) {
        float derivative, act = gate<T>(o.sigmoid, element_load<T>(o.z, h.z + i), &derivative);
        const float x = normalized<T>(o, h, i);
        element_store<T>(o.y, row * o.ldy + head * o.dim + i, o.kind == GATED_ONLY ? x * act : output(o, x * h.rstd, h.weight[i], act));
    }
}

template <pt_dtype T> static int gated_norm_launch(const op_gated_norm *o, cudaStream_t s)
{
    const int64_t vectors = o->rows * o->heads;
    return o->dim >= GATED_WIDE ? launch(gated_norm_kernel<T, true>, vectors, GATED_THREADS, s, *o)
                                : launch(gated_norm_kernel<T, false>, blocks_of(vectors, GATED_THREADS / WARP), GATED_THREADS, s, *o);
}

int cuda_gated_norm(const op_gated_norm *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? gated_norm_launch<PT_BF16>(o, s) : gated_norm_launch<PT_F32>(o, s);
}

/* What backward computes for an element from what it reads. */
typedef struct gated_values { float dy, x, act, derivative, n /* normalized, or x */, dn; } gated_values;

template <pt_dtype T> DEVICE gated_values gated_values_of(const op_gated_norm_backward &b, const gated_head &h, int64_t dy, int64_t i)
{
    const op_gated_norm &o = b.forward;
    gated_values v;
    v.dy = element_load<T>(b.dy, dy + i), v.x = element_load<T>(o.x, h.x + i);
    v.act = gate<T>(o.sigmoid, element_load<T>(o.z, h.z + i), &v.derivative);
    v.n = (o.kind == GATED_GATE_FIRST ? v.x * v.act : v.x) * h.rstd;
    v.dn = o.kind == GATED_ONLY ? v.dy : v.dy * h.weight[i] * (o.kind == GATED_NORM_FIRST ? v.act : 1.0f);
    return v;
}

/* dx, dz and y of a head; the weights' gradients are another kernel's, which runs before. */
template <pt_dtype T, bool WIDE> __global__ void __launch_bounds__(GATED_THREADS) gated_norm_backward_kernel(op_gated_norm_backward b)
{
    const op_gated_norm &o = b.forward;
    const int lanes = WIDE ? (int)GATED_THREADS : (int)WARP, lane = threadIdx.x % lanes;
    const int64_t vector = (int64_t)blockIdx.x * (GATED_THREADS / lanes) + threadIdx.x / lanes;
    const bool there = vector < o.rows * o.heads;
    const int64_t row = there ? vector / o.heads : 0, head = there ? vector % o.heads : 0, column = head * o.dim;
    const int64_t dy = row * b.lddy + column, dx = row * b.lddx + column, dz = row * b.lddz + head * (o.z_step ? o.z_step : o.dim);
    gated_head h = head_at(o, row, head);
    float sum = 0.0f;
    h.rstd = o.kind == GATED_ONLY ? 1.0f : rstd_of<T, WIDE>(o, h, lane, lanes);
    for (int64_t i = lane; i < o.dim && o.kind != GATED_ONLY; i += lanes) {
        const gated_values v = gated_values_of<T>(b, h, dy, i);
        sum += v.dn * v.n;
    }
    const float mean = team_sum<WIDE>(sum) / (float)o.dim;
    for (int64_t i = lane; there && i < o.dim; i += lanes) {
        const gated_values v = gated_values_of<T>(b, h, dy, i);
        const float weight = o.weight ? h.weight[i] : 1.0f, dp = o.kind == GATED_ONLY ? 0.0f : fmaf(-v.n, mean, v.dn) * h.rstd;
        const float by_x = o.kind == GATED_NORM_FIRST ? dp : (o.kind == GATED_ONLY ? v.dy : dp) * v.act;
        const float by_act = o.kind == GATED_NORM_FIRST ? v.dy * weight * v.n : (o.kind == GATED_ONLY ? v.dy : dp) * v.x;
        element_store<T>(b.dx, dx + i, by_x);
        element_store<T>(b.dz, dz + i, by_act * v.derivative);
        if (b.y)
            element_store<T>(b.y, dy + i, o.kind == GATED_ONLY ? v.x * v.act : output(o, v.n, weight, v.act));
    }
}

/* What a head adds to dweight[i]. */
template <pt_dtype T> DEVICE float weight_term(const op_gated_norm_backward &b, const gated_head &h, int64_t dy, int64_t i)
{
    const gated_values v = gated_values_of<T>(b, h, dy, i);
    return v.dy * (b.forward.kind == GATED_NORM_FIRST ? v.n * v.act : v.n);
}

/* The sum of dweight over the rows of a block, for one head or, of weights that heads share, for all. A team takes every so many-th head
 * and adds to its own sums, a thread to those of its columns; then the teams' are added in order. */
template <pt_dtype T, bool WIDE>
__global__ void __launch_bounds__(GATED_THREADS) gated_norm_weights_kernel(op_gated_norm_backward b, int64_t each)
{
    __shared__ float shared[WIDE ? 1 : GATED_THREADS / WARP][GATED_WIDE];
    const op_gated_norm &o = b.forward;
    const int lanes = WIDE ? (int)GATED_THREADS : (int)WARP, lane = threadIdx.x % lanes, team = threadIdx.x / lanes;
    const int teams = GATED_THREADS / lanes;
    const int64_t own = o.weight_step ? o.heads : 1, block = blockIdx.x / own, only = blockIdx.x % own, heads = o.heads / own;
    const int64_t end = (block + 1) * each < o.rows ? (block + 1) * each : o.rows, vectors = (end - block * each) * heads;
    float *out = (float *)b.scratch + (block * own + only) * o.dim, *sums = WIDE ? out : shared[team];
    for (int64_t i = lane; i < o.dim; i += lanes)
        sums[i] = 0.0f;
    for (int64_t v = team; v < vectors; v += teams) {
        const int64_t row = block * each + v / heads, head = only + v % heads;
        gated_head h = head_at(o, row, head);
        h.rstd = rstd_of<T, WIDE>(o, h, lane, lanes);
        for (int64_t i = lane; i < o.dim; i += lanes)
            sums[i] += weight_term<T>(b, h, row * b.lddy + head * o.dim, i);
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < o.dim && !WIDE; i += GATED_THREADS) {
        float sum = 0.0f;
        for (int k = 0; k < teams; k++)
            sum += shared[k % (WIDE ? 1 : GATED_THREADS / WARP)][i];
        out[i] = sum;
    }
}

template <pt_dtype T> static int gated_norm_backward_launch(const op_gated_norm_backward *b, cudaStream_t s)
{
    const op_gated_norm *o = &b->forward;
    const int64_t vectors = o->rows * o->heads, each = gated_norm_block_rows(o->rows), blocks = blocks_of(o->rows, each);
    const int64_t own = o->weight_step ? o->heads : 1;
    const bool wide = o->dim >= GATED_WIDE;
    int failed = !b->dweight ? 0
                 : wide     ? launch(gated_norm_weights_kernel<T, true>, blocks * own, GATED_THREADS, s, *b, each)
                            : launch(gated_norm_weights_kernel<T, false>, blocks * own, GATED_THREADS, s, *b, each);
    if (!failed)
        failed = blocks_add((const float *)b->scratch, own * o->dim, blocks, own * o->dim, b->accumulate, b->dweight, s);
    if (failed)
        return failed;
    return wide ? launch(gated_norm_backward_kernel<T, true>, vectors, GATED_THREADS, s, *b)
                : launch(gated_norm_backward_kernel<T, false>, blocks_of(vectors, GATED_THREADS / WARP), GATED_THREADS, s, *b);
}

int cuda_gated_norm_backward(const op_gated_norm_backward *b, cudaStream_t s)
{
    return b->forward.type == PT_BF16 ? gated_norm_backward_launch<PT_BF16>(b, s) : gated_norm_backward_launch<PT_F32>(b, s);
}
