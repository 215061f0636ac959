/* attention_plain.cu - attention with a warp per row, for fp32 and for rows without 16-byte alignment.
 *
 * In a step of 32 keys (for dk and dv, 32 queries) lane l computes the score of the l-th, summing over the head's dimensions in order. Then
 * the lanes divide the dimensions (lane, lane + 32, ...), and each sums over the 32 in ascending order.
 *
 *     scores          lane 0: key j0   lane 1: key j0 + 1   ...            no exchange
 *     out += p v      lane 0: dims 0, 32, 64 ...   lane 1: dims 1, 33 ...  p by a shuffle
 */
#include "device/cuda/attention.h"

enum { PLAIN_WARPS = 4 };

template <pt_dtype T> DEVICE float dot(const void *a, int64_t at, const void *b, int64_t bt, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum = fmaf(element_load<T>(a, at + i), element_load<T>(b, bt + i), sum);
    return sum;
}

template <pt_dtype T> DEVICE float plain_score(const op_attention &o, int64_t q, int64_t key)
{
    float score = dot<T>(o.q, q, o.k, key, o.dim) * o.scale;
    return o.softcap != 0.0f ? o.softcap * tanhf(score / o.softcap) : score;
}

/* acc[] += x * row, for the lane's dimensions. */
template <pt_dtype T, int SLOTS> DEVICE void add_row(float acc[SLOTS], float x, const void *base, int64_t at, int64_t dim)
{
    for (int s = 0; s < SLOTS; s++) {
        int64_t d = s * WARP + threadIdx.x % WARP;
        if (d < dim)
            acc[s] = fmaf(x, element_load<T>(base, at + d), acc[s]);
    }
}

template <pt_dtype T, int SLOTS> DEVICE void store_row(const float acc[SLOTS], float scale, void *base, int64_t at, int64_t dim)
{
    for (int s = 0; s < SLOTS; s++) {
        int64_t d = s * WARP + threadIdx.x % WARP;
        if (d < dim)
            element_store<T>(base, at + d, acc[s] * scale);
    }
}

/* The warp's row of (sequences, heads, rows). */
typedef struct warp_row { int64_t seq, head, row; } warp_row;

DEVICE bool row_of_warp(int64_t seqs, int64_t heads, int64_t rows, warp_row *w)
{
    int64_t at = (int64_t)blockIdx.x * PLAIN_WARPS + threadIdx.x / WARP;
    *w = {at / rows / heads, at / rows % heads, at % rows};
    return w->seq < seqs;
}

template <pt_dtype T, int SLOTS> __global__ void plain_kernel(op_attention o)
{
    warp_row w;
    if (!row_of_warp(o.seqs, o.heads, o.q_len, &w))
        return;
    int64_t q = query_offset(o, w.seq, w.head, o.ldq) + w.row * o.ldq, kv = key_offset(o, w.seq, w.head / (o.heads / o.kv_heads));
    key_range seen = keys_of(o, w.seq, w.row);
    float most = -INFINITY, total = 0, acc[SLOTS] = {0};
    for (int64_t j0 = seen.lo; j0 <= seen.hi; j0 += WARP) {
        int64_t j = j0 + threadIdx.x % WARP;
        float score = j <= seen.hi ? plain_score<T>(o, q, kv + j * o.ldkv) : -INFINITY;
        float higher = fmaxf(most, warp_max(score)), p = expf(score - higher), shrink = expf(most - higher);
        total = total * shrink + warp_sum(p);
        most = higher;
        for (int s = 0; s < SLOTS; s++)
            acc[s] *= shrink;
        for (int i = 0; i < WARP && j0 + i <= seen.hi; i++)
            add_row<T, SLOTS>(acc, __shfl_sync(FULL_WARP, p, i), o.v, kv + (j0 + i) * o.ldkv, o.dim);
    }
    store_row<T, SLOTS>(acc, 1.0f / total, o.out, query_offset(o, w.seq, w.head, o.ldo) + w.row * o.ldo, o.dim);
    if (o.lse && threadIdx.x % WARP == 0)
        o.lse[lse_offset(o, w.seq, w.head) + w.row] = most + logf(total);
}

/* The terms of backward for (query, key): the probability, and the gradient of the scaled score. */
typedef struct pair_terms { float p, ds; } pair_terms;

template <pt_dtype T>
DEVICE pair_terms terms_of(const op_attention_backward &b, int64_t seq, int64_t head, int64_t i, int64_t q, int64_t dout, int64_t key)
{
    const op_attention &o = b.forward;
    float score = plain_score<T>(o, q, key), dp = dot<T>(b.dout, dout, o.v, key, o.dim);
    float p = expf(score - o.lse[lse_offset(o, seq, head) + i]);
    float ds = p * (dp - ((const float *)b.scratch)[(seq * o.q_len + i) * o.heads + head]);
    return {p, o.softcap != 0.0f ? ds * cap_slope(o.softcap, score) : ds};
}

template <pt_dtype T, int SLOTS> __global__ void plain_dq_kernel(op_attention_backward b)
{
    const op_attention &o = b.forward;
    warp_row w;
    if (!row_of_warp(o.seqs, o.heads, o.q_len, &w))
        return;
    int64_t q = query_offset(o, w.seq, w.head, o.ldq) + w.row * o.ldq, kv = key_offset(o, w.seq, w.head / (o.heads / o.kv_heads));
    int64_t dout = query_offset(o, w.seq, w.head, b.lddo) + w.row * b.lddo;
    key_range seen = keys_of(o, w.seq, w.row);
    float acc[SLOTS] = {0};
    for (int64_t j0 = seen.lo; j0 <= seen.hi; j0 += WARP) {
        int64_t j = j0 + threadIdx.x % WARP;
        float ds = j <= seen.hi ? terms_of<T>(b, w.seq, w.head, w.row, q, dout, kv + j * o.ldkv).ds : 0.0f;
        for (int i = 0; i < WARP && j0 + i <= seen.hi; i++)
            add_row<T, SLOTS>(acc, __shfl_sync(FULL_WARP, ds, i), o.k, kv + (j0 + i) * o.ldkv, o.dim);
    }
    store_row<T, SLOTS>(acc, o.scale, b.dq, q, o.dim);
}

template <pt_dtype T, int SLOTS> __global__ void plain_dkv_kernel(op_attention_backward b)
{
    const op_attention &o = b.forward;
    warp_row w; /* a row of keys */
    if (!row_of_warp(o.seqs, o.kv_heads, o.kv_len, &w))
        return;
    int64_t key = key_offset(o, w.seq, w.head) + w.row * o.ldkv, group = o.heads / o.kv_heads;
    int64_t last = o.window > 0 && w.row + o.window < o.q_len ? w.row + o.window - 1 : o.q_len - 1;
    float dk[SLOTS] = {0}, dv[SLOTS] = {0};
    for (int64_t head = w.head * group; head < (w.head + 1) * group; head++) {
        int64_t q = query_offset(o, w.seq, head, o.ldq), dout = query_offset(o, w.seq, head, b.lddo);
        for (int64_t i0 = w.row; i0 <= last; i0 += WARP) {
            int64_t i = i0 + threadIdx.x % WARP;
            pair_terms t = {0, 0};
            if (i <= last && keys_of(o, w.seq, i).lo <= w.row)
                t = terms_of<T>(b, w.seq, head, i, q + i * o.ldq, dout + i * b.lddo, key);
            for (int k = 0; k < WARP && i0 + k <= last; k++) {
                add_row<T, SLOTS>(dv, __shfl_sync(FULL_WARP, t.p, k), b.dout, dout + (i0 + k) * b.lddo, o.dim);
                add_row<T, SLOTS>(dk, __shfl_sync(FULL_WARP, t.ds, k), o.q, q + (i0 + k) * o.ldq, o.dim);
            }
        }
    }
    store_row<T, SLOTS>(dk, o.scale, b.dk, key, o.dim);
    store_row<T, SLOTS>(dv, 1.0f, b.dv, key, o.dim);
}

/* ---- launching ---- */

template <pt_dtype T, int SLOTS> static int forward_launch(const op_attention *o, cudaStream_t s)
{
    return launch(plain_kernel<T, SLOTS>, blocks_of(o->seqs * o->heads * o->q_len, PLAIN_WARPS), PLAIN_WARPS * WARP, s, *o);
}

template <pt_dtype T, int SLOTS> static int backward_launch(const op_attention_backward *b, cudaStream_t s)
{
    const op_attention *o = &b->forward;
    int64_t queries = blocks_of(o->seqs * o->heads * o->q_len, PLAIN_WARPS);
    int error = launch(plain_dq_kernel<T, SLOTS>, queries, PLAIN_WARPS * WARP, s, *b);
    if (error)
        return error;
    return launch(plain_dkv_kernel<T, SLOTS>, blocks_of(o->seqs * o->kv_heads * o->kv_len, PLAIN_WARPS), PLAIN_WARPS * WARP, s, *b);
}

/* Chooses the smallest number of dimensions per lane for the head. */
#define BY_DIM(fn, T, dim, ...)                                                                                                   \
    ((dim) <= 64 ? fn<T, 2>(__VA_ARGS__) : (dim) <= 128 ? fn<T, 4>(__VA_ARGS__) : (dim) <= 256 ? fn<T, 8>(__VA_ARGS__)            \
     : (dim) <= ATTENTION_MOST_DIM ? fn<T, 16>(__VA_ARGS__) : (int)cudaErrorInvalidConfiguration)

int attention_plain(const op_attention *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? BY_DIM(forward_launch, PT_BF16, o->dim, o, s) : BY_DIM(forward_launch, PT_F32, o->dim, o, s);
}

int attention_plain_backward(const op_attention_backward *b, cudaStream_t s)
{
    return b->forward.type == PT_BF16 ? BY_DIM(backward_launch, PT_BF16, b->forward.dim, b, s)
                                      : BY_DIM(backward_launch, PT_F32, b->forward.dim, b, s);
}
