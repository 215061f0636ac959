/* kernels_cross_entropy.cu - losses of rows of logits, and their gradients: a block per row.
 *
 * A row of 100,000 logits is larger than a multiprocessor's memory, so it is read twice: once for both the largest logit and the sum of
 * exponentials, where each thread rescales its sum when it finds a larger logit, and once for dlogits. A row of up to 57,344 logits fits
 * into the shared memory of a Hopper or a data center's Blackwell GPU, and is read once: 6 bytes a logit instead of 10, in bf16.
 *
 * dlogits may replace logits. Its elements are never wider and its rows start at the same bytes, so what a block writes for its packs k
 * overwrites only logits that it has read, after a barrier:
 *
 *     logits (fp32)   |    packs 0    |    packs 1    |    packs 2    | ...
 *     dlogits (bf16)  | packs 0 | packs 1 | packs 2 | ...
 */
#include "device/cuda/mma.h"

enum { LONG_ROW = 8192 };

/* Scales logits, and caps them if cap is not 0 (over_cap: scale / cap). Without MAPPED logits are unchanged. */
typedef struct logit_map { float scale, cap, over_cap; } logit_map;

template <bool MAPPED> DEVICE float mapped(const logit_map &m, float x)
{
    return !MAPPED ? x : m.cap != 0.0f ? m.cap * tanhf(x * m.over_cap) : x * m.scale;
}

/* From the gradient of the mapped logit x to that of the logit. */
template <bool MAPPED> DEVICE float by_logit(const logit_map &m, float x, float gradient)
{
    if (!MAPPED)
        return gradient;
    float t = m.cap != 0.0f ? tanhf(x * m.over_cap) : 0.0f;
    return gradient * m.scale * fmaf(-t, t, 1.0f);
}

/* The largest logit so far, and the sum of e^(x - largest). */
typedef struct softmax_sum { float largest, sum; } softmax_sum;

/* e^(x - largest); 0 if all logits so far, and so largest, are -infinity. */
DEVICE float exponential(float x, float largest) { return expf(x - (largest == -INFINITY ? 0.0f : largest)); }

/* fmaxf ignores NaN, but the sum becomes NaN. */
DEVICE void softmax_add(softmax_sum *s, pack p, int n)
{
    float largest = s->largest;
    for (int j = 0; j < PACK; j++)
        largest = j < n ? fmaxf(largest, p.x[j]) : largest;
    for (int j = 0; j < PACK; j++)
        p.x[j] = j < n ? exponential(p.x[j], largest) : 0.0f;
    s->sum = s->sum * exponential(s->largest, largest) + pack_sum(p);
    s->largest = largest;
}

template <bool MAPPED> DEVICE softmax_sum row_softmax(const logit_map &m, const float *logits, int64_t vocab, bool wide)
{
    softmax_sum s = {-INFINITY, 0.0f}, row;
    for (int64_t i = threadIdx.x * PACK; i < vocab; i += blockDim.x * PACK) {
        int64_t left = vocab - i;
        pack p = pack_load<PT_F32>(logits, i, vocab, wide);
        for (int j = 0; j < PACK; j++)
            p.x[j] = mapped<MAPPED>(m, p.x[j]);
        softmax_add(&s, p, left < PACK ? (int)left : PACK);
    }
    row.largest = block_max(s.largest);
    row.sum = block_sum(s.sum * exponential(s.largest, row.largest));
    return row;
}

/* The mean of what the logits are below the largest. */
template <bool MAPPED> DEVICE float row_mean(const logit_map &m, const float *logits, int64_t vocab, float largest, bool wide)
{
    float sum = 0.0f;
    for (int64_t i = threadIdx.x * PACK; i < vocab; i += blockDim.x * PACK) {
        pack p = pack_load<PT_F32>(logits, i, vocab, wide);
        for (int j = 0; j < PACK; j++)
            p.x[j] = i + j < vocab ? mapped<MAPPED>(m, p.x[j]) - largest : 0.0f;
        sum += pack_sum(p);
    }
    return __fdiv_rn(block_sum(sum), (float)vocab);
}

/* What the gradient of a row subtracts from its probabilities: `share` everywhere, `target` from the target's. */
typedef struct expected_row { float share, target; } expected_row;

DEVICE expected_row row_expected(const op_cross_entropy &o)
{
    const float share = __fdiv_rn(o.smoothing, (float)o.vocab);
    return {share, 1.0f - o.smoothing + share};
}

/* Element `target`, if it is one of the pack's, is that of the row's target. */
template <bool MAPPED>
DEVICE void pack_gradient(const logit_map &m, pack *p, float largest, float inverse, int64_t target, expected_row expected, float scale)
{
    const int at = target >= 0 && target < PACK ? (int)target : PACK;
#pragma unroll
    for (int j = 0; j < PACK; j++) {
        float probability = exponential(mapped<MAPPED>(m, p->x[j]), largest) * inverse;
        p->x[j] = by_logit<MAPPED>(m, p->x[j], (j == at ? probability - expected.target : probability - expected.share) * scale);
    }
}

/* dlogits of a row. All threads of the block run the loop equally often, because of its barrier. */
template <pt_dtype T, bool MAPPED>
DEVICE void row_gradient(const op_cross_entropy &o, const logit_map &m, const float *logits, void *out, softmax_sum s, int64_t target,
                         float scale, bool wide)
{
    float inverse = __fdiv_rn(1.0f, s.sum);
    for (int64_t from = 0; from < o.vocab; from += blockDim.x * PACK) {
        int64_t i = from + threadIdx.x * PACK;
        pack p = pack_load<PT_F32>(logits, i, o.vocab, wide);
        pack_gradient<MAPPED>(m, &p, s.largest, inverse, target - i, row_expected(o), scale);
        __syncthreads(); /* the logits that these packs overwrite have been read */
        pack_store<T>(out, i, o.vocab, wide, p);
    }
}

/* wanted: the target's mapped logit minus the largest one; mean: that of all, with smoothing. */
DEVICE void row_loss(const op_cross_entropy &o, int64_t row, float wanted, float sum, float mean)
{
    o.loss[row] = (float)log((double)sum) - wanted;
    if (o.smoothing > 0.0f)
        o.loss[row] += o.smoothing * (wanted - mean);
    if (o.right)
        o.right[row] = wanted >= 0.0f ? 1.0f : 0.0f;
}

DEVICE void no_loss(const op_cross_entropy &o, int64_t row)
{
    o.loss[row] = 0.0f;
    if (o.right)
        o.right[row] = 0.0f;
}

/* The loss is minus the target's logit. */
template <pt_dtype T, bool MAPPED>
DEVICE void linear_row(const op_cross_entropy &o, const logit_map &m, const float *logits, void *out, int64_t row, int64_t target,
                       bool wide)
{
    const float logit = logits[target], scale = o.weights ? o.scale * o.weights[row] : o.scale;
    const softmax_sum s = row_softmax<MAPPED>(m, logits, o.vocab, wide);
    for (int64_t from = 0; out && from < o.vocab; from += blockDim.x * PACK) {
        const int64_t i = from + threadIdx.x * PACK;
        pack p = {{0}};
        for (int j = 0; j < PACK; j++)
            p.x[j] = i + j == target ? by_logit<MAPPED>(m, logit, -scale) : 0.0f;
        __syncthreads(); /* all have read the logits */
        pack_store<T>(out, i, o.vocab, wide, p);
    }
    if (threadIdx.x)
        return;
    o.loss[row] = -mapped<MAPPED>(m, logit);
    if (o.right)
        o.right[row] = mapped<MAPPED>(m, logit) >= s.largest ? 1.0f : 0.0f;
}

template <pt_dtype T, bool MAPPED> __global__ void __launch_bounds__(1024) cross_entropy_kernel(op_cross_entropy o, logit_map m, bool wide)
{
    int64_t row = blockIdx.x, target = o.targets[row];
    const float *logits = o.logits + row * o.ld;
    void *out = o.dlogits ? element_at<T>(o.dlogits, row * o.lddl) : NULL;
    if (target < 0) {
        pack zero = {{0}};
        for (int64_t i = threadIdx.x * PACK; out && i < o.vocab; i += blockDim.x * PACK)
            pack_store<T>(out, i, o.vocab, wide, zero);
        if (threadIdx.x == 0)
            no_loss(o, row);
        return;
    }
    if (o.linear) {
        linear_row<T, MAPPED>(o, m, logits, out, row, target, wide);
        return;
    }
    softmax_sum s = row_softmax<MAPPED>(m, logits, o.vocab, wide);
    const float mean = o.smoothing > 0.0f ? row_mean<MAPPED>(m, logits, o.vocab, s.largest, wide) : 0.0f;
    if (threadIdx.x == 0) /* before the barrier after which dlogits may overwrite this logit */
        row_loss(o, row, mapped<MAPPED>(m, logits[target]) - s.largest, s.sum, mean);
    if (out)
        row_gradient<T, MAPPED>(o, m, logits, out, s, target, o.weights ? o.scale * o.weights[row] : o.scale, wide);
}

/* ---- rows that fit into shared memory ----
 *
 * A block has several rows, one after another. A thread copies its packs of a row to places that only it uses, asynchronously, so that no
 * barrier is needed between copying and use, and it refills a place for the next row as soon as it has used it for dlogits:
 *
 *     copies        | row 0            |           row 1           |           row 2     ...
 *     sums              | row 0        |           | row 1 |                   | row 2 |
 *     dlogits                          | row 0     |               | row 1     |
 *
 * The packs of a thread, and so all bits, are those of cross_entropy_kernel with 1024 threads.
 */

enum { KEPT_THREADS = 1024, KEPT_FEW = 4, KEPT_MOST = 7 /* packs of a thread */, KEPT_BYTES = KEPT_THREADS * PACK * 4 };

/* Half a pack. Those of neighbouring threads are neighbours, so that a warp uses all banks. */
DEVICE float *kept_half(unsigned char *memory, int k, int half, int thread)
{
    return (float *)memory + ((k * 2 + half) * KEPT_THREADS + thread) * 4;
}

DEVICE void keep_pack(unsigned char *memory, int k, const float *logits, int vocab)
{
    const int i = (k * KEPT_THREADS + (int)threadIdx.x) * PACK;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float *to = kept_half(memory, k, half, (int)threadIdx.x);
        const float *from = logits + i + 4 * half;
        if (i + PACK <= vocab)
            copy_async((uint16_t *)to, (const uint16_t *)from, true);
        else if (i < vocab)
            for (int j = 0; j < 4; j++)
                copy_word_async(to + j, i + 4 * half + j < vocab ? from + j : logits, i + 4 * half + j < vocab);
    }
}

DEVICE pack kept_pack(unsigned char *memory, int k)
{
    const float4 a = *(const float4 *)kept_half(memory, k, 0, (int)threadIdx.x);
    const float4 b = *(const float4 *)kept_half(memory, k, 1, (int)threadIdx.x);
    return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

/* n is known when the code is compiled. */
DEVICE void copies_wait_for_all_but(int n)
{
    switch (n) {
    case 0: copies_wait<0>(); break;
    case 1: copies_wait<1>(); break;
    case 2: copies_wait<2>(); break;
    case 3: copies_wait<3>(); break;
    case 4: copies_wait<4>(); break;
    case 5: copies_wait<5>(); break;
    default: copies_wait<6>(); break;
    }
}

template <int PACKS, bool MAPPED> DEVICE softmax_sum kept_softmax(const logit_map &m, unsigned char *memory, int vocab)
{
    softmax_sum s = {-INFINITY, 0.0f}, row;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        const int left = vocab - (k * KEPT_THREADS + (int)threadIdx.x) * PACK;
        copies_wait_for_all_but(PACKS - 1 - k);
        if (left <= 0)
            continue;
        pack p = kept_pack(memory, k);
        for (int j = 0; j < PACK; j++)
            p.x[j] = mapped<MAPPED>(m, p.x[j]);
        softmax_add(&s, p, left < PACK ? left : PACK);
    }
    row.largest = block_max(s.largest);
    row.sum = block_sum(s.sum * exponential(s.largest, row.largest));
    return row;
}

/* blocks: of the grid. */
template <int PACKS, bool MAPPED>
__global__ void __launch_bounds__(KEPT_THREADS, 1) kept_kernel(op_cross_entropy o, logit_map m, int64_t blocks)
{
    SHARED_BYTES(memory);
    const int vocab = (int)o.vocab;
    bool kept = o.targets[blockIdx.x] >= 0;
    for (int k = 0; k < PACKS; k++) {
        if (kept)
            keep_pack(memory, k, o.logits + blockIdx.x * o.ld, vocab);
        copies_commit();
    }
    for (int64_t row = blockIdx.x; row < o.rows; row += blocks) {
        const int target = o.targets[row];
        const bool ours = kept, more = row + blocks < o.rows && o.targets[row + blocks] >= 0;
        const float scale = o.weights ? o.scale * o.weights[row] : o.scale;
        softmax_sum s = {0.0f, 1.0f};
        if (ours) {
            s = kept_softmax<PACKS, MAPPED>(m, memory, vocab);
            if (target / PACK % KEPT_THREADS == (int)threadIdx.x) {
                const float logit = kept_half(memory, target / PACK / KEPT_THREADS, target / 4 % 2, (int)threadIdx.x)[target % 4];
                row_loss(o, row, mapped<MAPPED>(m, logit) - s.largest, s.sum, 0.0f);
            }
        } else if (threadIdx.x == 0) {
            no_loss(o, row);
        }
        const float inverse = __fdiv_rn(1.0f, s.sum);
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            const int i = (k * KEPT_THREADS + (int)threadIdx.x) * PACK;
            pack p = {{0}};
            if (ours && i < vocab) {
                p = kept_pack(memory, k);
                pack_gradient<MAPPED>(m, &p, s.largest, inverse, target - i, {0.0f, 1.0f}, scale);
            }
            if (more)
                keep_pack(memory, k, o.logits + (row + blocks) * o.ld, vocab);
            copies_commit();
            if (i < vocab)
                pack_store<PT_BF16>(element_at<PT_BF16>(o.dlogits, row * o.lddl), i, vocab, true, p);
        }
        kept = more;
    }
}

template <int PACKS, bool MAPPED> static int kept_launch(const op_cross_entropy *o, const logit_map &m, int multiprocessors, cudaStream_t s)
{
    const int64_t blocks = o->rows < multiprocessors ? o->rows : multiprocessors;
    return launch_shared(kept_kernel<PACKS, MAPPED>, blocks, KEPT_THREADS, PACKS * KEPT_BYTES, s, *o, m, blocks);
}

template <bool MAPPED> static int kept_launch_any(const op_cross_entropy *o, const logit_map &m, int multiprocessors, cudaStream_t s)
{
    return o->vocab <= KEPT_FEW * KEPT_THREADS * PACK ? kept_launch<KEPT_FEW, MAPPED>(o, m, multiprocessors, s)
                                                      : kept_launch<KEPT_MOST, MAPPED>(o, m, multiprocessors, s);
}

/* Rows are kept if there is a second use for them, their targets are not smoothed, and the block's own sums have room beside them. */
static bool is_kept(const op_cross_entropy *o, bool wide, const shared_limits *l)
{
    const int packs = o->vocab <= KEPT_FEW * KEPT_THREADS * PACK ? KEPT_FEW : KEPT_MOST;
    return wide && o->smoothing == 0 && !o->linear && o->dlogits && o->type == PT_BF16 && o->vocab > LONG_ROW &&
           o->vocab <= packs * KEPT_THREADS * PACK && packs * KEPT_BYTES + 1024 <= l->bytes;
}

/* ---- launches ---- */

template <pt_dtype T> static int cross_entropy_launch(const op_cross_entropy *o, cudaStream_t s)
{
    bool wide = is_wide(PT_F32, o->logits, o->ld) && is_wide(T, o->dlogits, o->dlogits ? o->lddl : 0);
    const int threads = o->vocab > LONG_ROW ? 1024 : 256;
    const float scale = op_factor(o->logit_scale);
    const logit_map m = {scale, o->softcap, o->softcap != 0 ? scale / o->softcap : 0};
    const bool is_mapped = scale != 1 || o->softcap != 0;
    shared_limits limits = {0, 0};
    const int error = shared_limits_get(&limits);
    if (error)
        return error;
    if (T == PT_BF16 && is_kept(o, wide, &limits))
        return is_mapped ? kept_launch_any<true>(o, m, limits.multiprocessors, s) : kept_launch_any<false>(o, m, limits.multiprocessors, s);
    return is_mapped ? launch(cross_entropy_kernel<T, true>, o->rows, threads, s, *o, m, wide)
                     : launch(cross_entropy_kernel<T, false>, o->rows, threads, s, *o, m, wide);
}

int cuda_cross_entropy(const op_cross_entropy *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? cross_entropy_launch<PT_BF16>(o, s) : cross_entropy_launch<PT_F32>(o, s);
}
