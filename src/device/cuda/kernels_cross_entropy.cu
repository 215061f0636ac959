/* kernels_cross_entropy.cu - losses of rows of logits, and their gradients: a block per row.
 *
 * A row of 100,000 logits is larger than a multiprocessor's share of the caches, so it is read only twice: once for both the largest logit
 * and the sum of exponentials, where each thread rescales its sum when it finds a larger logit, and once for dlogits.
 *
 * dlogits may replace logits. Its elements are never wider and its rows start at the same bytes, so what a block writes for its packs k
 * overwrites only logits that it has read, after a barrier:
 *
 *     logits (fp32)   |    packs 0    |    packs 1    |    packs 2    | ...
 *     dlogits (bf16)  | packs 0 | packs 1 | packs 2 | ...
 */
#include "device/cuda/primitives.h"

enum { IGNORED = -100, LONG_ROW = 8192 };

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

/* dlogits of a row. All threads of the block run the loop equally often, because of its barrier. */
template <pt_dtype T, bool MAPPED>
DEVICE void row_gradient(const op_cross_entropy &o, const logit_map &m, const float *logits, void *out, softmax_sum s, int64_t target,
                         float scale, bool wide)
{
    float inverse = __fdiv_rn(1.0f, s.sum);
    for (int64_t from = 0; from < o.vocab; from += blockDim.x * PACK) {
        int64_t i = from + threadIdx.x * PACK;
        pack p = pack_load<PT_F32>(logits, i, o.vocab, wide);
        for (int j = 0; j < PACK; j++) {
            float probability = exponential(mapped<MAPPED>(m, p.x[j]), s.largest) * inverse;
            p.x[j] = by_logit<MAPPED>(m, p.x[j], (i + j == target ? probability - 1.0f : probability) * scale);
        }
        __syncthreads(); /* the logits that these packs overwrite have been read */
        pack_store<T>(out, i, o.vocab, wide, p);
    }
}

template <pt_dtype T, bool MAPPED> __global__ void __launch_bounds__(1024) cross_entropy_kernel(op_cross_entropy o, logit_map m, bool wide)
{
    int64_t row = blockIdx.x, target = o.targets[row];
    const float *logits = o.logits + row * o.ld;
    void *out = o.dlogits ? element_at<T>(o.dlogits, row * o.lddl) : NULL;
    if (target == IGNORED) {
        pack zero = {{0}};
        for (int64_t i = threadIdx.x * PACK; out && i < o.vocab; i += blockDim.x * PACK)
            pack_store<T>(out, i, o.vocab, wide, zero);
        if (threadIdx.x == 0) {
            o.loss[row] = 0.0f;
            if (o.right)
                o.right[row] = 0.0f;
        }
        return;
    }
    softmax_sum s = row_softmax<MAPPED>(m, logits, o.vocab, wide);
    if (threadIdx.x == 0) { /* before the barrier after which dlogits may overwrite this logit */
        const float wanted = mapped<MAPPED>(m, logits[target]) - s.largest;
        o.loss[row] = (float)log((double)s.sum) - wanted;
        if (o.right)
            o.right[row] = wanted >= 0.0f ? 1.0f : 0.0f;
    }
    if (out)
        row_gradient<T, MAPPED>(o, m, logits, out, s, target, o.weights ? o.scale * o.weights[row] : o.scale, wide);
}

template <pt_dtype T> static int cross_entropy_launch(const op_cross_entropy *o, cudaStream_t s)
{
    bool wide = is_wide(PT_F32, o->logits, o->ld) && is_wide(T, o->dlogits, o->dlogits ? o->lddl : 0);
    const int threads = o->vocab > LONG_ROW ? 1024 : 256;
    const float scale = op_factor(o->logit_scale);
    const logit_map m = {scale, o->softcap, o->softcap != 0 ? scale / o->softcap : 0};
    return scale != 1 || o->softcap != 0 ? launch(cross_entropy_kernel<T, true>, o->rows, threads, s, *o, m, wide)
                                         : launch(cross_entropy_kernel<T, false>, o->rows, threads, s, *o, m, wide);
}

int cuda_cross_entropy(const op_cross_entropy *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? cross_entropy_launch<PT_BF16>(o, s) : cross_entropy_launch<PT_F32>(o, s);
}
