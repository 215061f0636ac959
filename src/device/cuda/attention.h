/* attention.h - shared by the attention kernels: masks, and the layout of rows.
 *
 * There are three sets of kernels. The plain ones (attention_plain.cu) support every type, head size and stride; a warp has one row. The
 * tiled ones (attention_forward.cu, attention_backward.cu) need bf16 in rows of 16-byte words, and use the tensor cores. Their operands are
 * bf16: probabilities, and in backward the gradients of the scores, are rounded to bf16 before they are multiplied; scores, softmax and all
 * sums are fp32. The Hopper kernels (attention_hopper_*.cu) do the same with warpgroup matmuls, for heads of at most 128. The choice
 * depends only on the shape and the kind of GPU.
 *
 * Capped scores (softcap) have their own copies of the tiled kernels (CAPPED); values after the cap are in units of scaled scores.
 *
 * No sum uses atomics: backward computes dq in one kernel, per query row (tile), and dk and dv in another, per key row (tile), each in
 * ascending order of its sum. So the scores are computed twice.
 */
#ifndef PT_CUDA_ATTENTION_H
#define PT_CUDA_ATTENTION_H

#include "device/cuda/primitives.h"

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

enum { ATTENTION_MOST_DIM = 512, ATTENTION_TILED_DIM = 256, ATTENTION_TILED_ROWS = 16 };
enum { ATTENTION_HOPPER_DIM = 128, ATTENTION_HOPPER_ROWS = 64 };

/* The keys lo .. hi that query i of sequence seq sees. */
typedef struct key_range { int64_t lo, hi; } key_range;

DEVICE key_range keys_from(const op_attention &o, int64_t i, int64_t first)
{
    key_range r = {first, o.kv_len - o.q_len + i};
    if (o.window > 0 && r.hi - o.window + 1 > r.lo)
        r.lo = r.hi - o.window + 1;
    return r;
}

DEVICE key_range keys_of(const op_attention &o, int64_t seq, int64_t i)
{
    return keys_from(o, i, o.first ? o.first[seq * o.q_len + i] : 0);
}

/* tanh from the fast functions, with an error of about 2^-22. */
DEVICE float tanh_fast(float x) { return 1.0f - 2.0f * reciprocal_fast(1.0f + exp2_fast(2.0f * LOG2_E * x)); }

/* From products to scores: scale * product, or cap * tanh(times * product). */
typedef struct score_map { float scale, cap, times; } score_map;

template <bool CAPPED> DEVICE score_map score_map_of(const op_attention &o)
{
    score_map m = {o.scale, 0.0f, 0.0f};
    if (CAPPED)
        m.scale = 1.0f, m.cap = o.softcap, m.times = o.scale / o.softcap;
    return m;
}

/* The score before it is multiplied by the map's scale. */
template <bool CAPPED> DEVICE float score_from(const score_map &m, float product)
{
    return CAPPED ? m.cap * tanh_fast(m.times * product) : product;
}

/* The derivative of the cap at a capped score of `score`. */
DEVICE float cap_slope(float cap, float score)
{
    float t = score / cap;
    return fmaf(-t, t, 1.0f);
}

/* A key's position in the tile that begins at j0, clamped to -1 .. keys, so that masks compare small numbers. */
DEVICE int place_in_tile(int64_t j, int64_t j0, int keys)
{
    int64_t place = j - j0;
    return place < -1 ? -1 : place > keys ? keys : (int)place;
}

/* The tile of a block. The tiles of a head are consecutive, so that they find its keys and values in the cache. */
typedef struct attention_block { unsigned seq, head, tile; } attention_block;

DEVICE attention_block block_of(unsigned tiles, unsigned heads)
{
    unsigned row = blockIdx.x / tiles;
    attention_block b = {row / heads, row % heads, blockIdx.x % tiles};
    return b;
}

/* Element offsets of row 0 of a head. */
DEVICE int64_t query_offset(const op_attention &o, int64_t seq, int64_t head, int64_t ld) { return seq * o.q_len * ld + head * o.dim; }
DEVICE int64_t key_offset(const op_attention &o, int64_t seq, int64_t kv_head)
{
    return seq * (o.kv_seq_stride ? o.kv_seq_stride : o.kv_len * o.ldkv) + kv_head * o.dim;
}
DEVICE int64_t lse_offset(const op_attention &o, int64_t seq, int64_t head) { return (seq * o.heads + head) * o.q_len; }

int attention_plain(const op_attention *o, cudaStream_t s);
int attention_plain_backward(const op_attention_backward *b, cudaStream_t s);
int attention_tiled(const op_attention *o, cudaStream_t s);
int attention_tiled_backward(const op_attention_backward *b, cudaStream_t s);
/* The scale must be above 0. */
int attention_hopper(const op_attention *o, cudaStream_t s);
int attention_hopper_backward(const op_attention_backward *b, cudaStream_t s);
/* scratch (rows, heads): the sum over a head of dout * out. */
int attention_delta(const op_attention_backward *b, cudaStream_t s);

#endif
