/* attention_backward.cu - gradients of attention in tiles, on the tensor cores.
 *
 * For a tile of queries and a tile of keys, both kernels compute the probabilities P from the scores and lse, and the gradient of the
 * scores dS = P (dP - delta), with dP = dO V^T. The warps divide the tile of scores into DOWN x ACROSS parts. P and dS go through shared
 * memory, in bf16, as operands of the accumulating matmuls:
 *
 *     dkv: a block has KEYS rows of a kv head, and loops over its query heads and their query tiles, ascending:
 *              dV (KEYS, D) += P^T dO           dK (KEYS, D) += dS^T Q
 *     dq:  a block has QUERIES rows of a head, and loops over tiles of keys, ascending:
 *              dQ (QUERIES, D) += dS K
 *
 *     shared   | Q | dO | K | V |  P | dS | lse, delta of the queries |
 *
 * The scale of the scores is applied at the end, to dQ and dK.
 */
#include "device/cuda/attention.h"
#include "device/cuda/mma.h"

template <int D> struct backward_shape {
    static const int QUERIES = D > 128 ? 32 : 64, KEYS = QUERIES, WARPS = D > 128 ? 4 : 8, THREADS = WARPS * WARP;
    static const int DOWN = QUERIES / 16, ACROSS = WARPS / DOWN; /* layout of the warps */
    static const int LD = D + TILE_PAD, LDP = KEYS + TILE_PAD;
    static const int COLUMNS = KEYS / ACROSS, DIMS = D / ACROSS; /* a warp's part of the scores, of a sum */
    static const int SHARED = (2 * QUERIES + 2 * KEYS) * LD * 2 + 2 * QUERIES * LDP * 2 + 2 * QUERIES * 4;
};

template <int D> struct backward_memory {
    typedef backward_shape<D> S;
    uint16_t *q, *dout, *k, *v, *p, *ds;
    float *lse, *delta;
    __device__ backward_memory(unsigned char *base)
    {
        q = (uint16_t *)base;
        dout = q + S::QUERIES * S::LD;
        k = dout + S::QUERIES * S::LD;
        v = k + S::KEYS * S::LD;
        p = v + S::KEYS * S::LD;
        ds = p + S::QUERIES * S::LDP;
        lse = (float *)(ds + S::QUERIES * S::LDP);
        delta = lse + S::QUERIES;
    }
};

/* Starts copying queries from i0 on, with their statistics; does not wait. */
template <int D>
DEVICE void queries_begin(const op_attention_backward &b, backward_memory<D> m, int64_t seq, int64_t head, int64_t i0)
{
    typedef backward_shape<D> S;
    const op_attention &o = b.forward;
    tile_copy<S::QUERIES, D, S::THREADS>(m.q, (const uint16_t *)o.q + query_offset(o, seq, head, o.ldq), o.ldq, i0, o.q_len, (int)o.dim);
    tile_copy<S::QUERIES, D, S::THREADS>(m.dout, (const uint16_t *)b.dout + query_offset(o, seq, head, b.lddo), b.lddo, i0, o.q_len,
                                         (int)o.dim);
    for (int i = threadIdx.x; i < S::QUERIES; i += S::THREADS) {
        bool there = i0 + i < o.q_len;
        m.lse[i] = there ? o.lse[lse_offset(o, seq, head) + i0 + i] * LOG2_E : 0.0f;
        m.delta[i] = there ? ((const float *)b.scratch)[(seq * o.q_len + i0 + i) * o.heads + head] : 0.0f;
    }
}

template <int D>
DEVICE void keys_begin(const op_attention &o, backward_memory<D> m, int64_t seq, int64_t kv_head, int64_t j0)
{
    typedef backward_shape<D> S;
    int64_t at = key_offset(o, seq, kv_head);
    tile_copy<S::KEYS, D, S::THREADS>(m.k, (const uint16_t *)o.k + at, o.ldkv, j0, o.kv_len, (int)o.dim);
    tile_copy<S::KEYS, D, S::THREADS>(m.v, (const uint16_t *)o.v + at, o.ldkv, j0, o.kv_len, (int)o.dim);
}

/* x (16, COLUMNS) of a warp = rows of one tile times rows of another, summed over the head's dimensions. */
template <int D> DEVICE void products_of(float x[][4], const uint16_t *rows, const uint16_t *columns, int row, int column)
{
    typedef backward_shape<D> S;
#pragma unroll
    for (int n = 0; n < S::COLUMNS / 8; n++)
        for (int c = 0; c < 4; c++)
            x[n][c] = 0;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t a[4], y[4];
        load_a<S::LD>(a, rows, row, d);
#pragma unroll
        for (int n = 0; n < S::COLUMNS; n += 16) {
            load_b<S::LD>(y, columns, d, column + n);
            mma(x[n / 8], a, y);
            mma(x[n / 8 + 1], a, y + 2);
        }
    }
}

/* Writes P and dS of the queries from i0 on and the keys from j0 on to shared memory. */
template <int D, bool CAPPED> DEVICE void terms_of(const op_attention &o, backward_memory<D> m, int64_t seq, int64_t i0, int64_t j0)
{
    typedef backward_shape<D> S;
    int warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, row = warp / S::ACROSS * 16, column = warp % S::ACROSS * S::COLUMNS;
    float p[S::COLUMNS / 8][4], dp[S::COLUMNS / 8][4];
    const score_map map = score_map_of<CAPPED>(o);
    const float scale = map.scale * LOG2_E;
    products_of<D>(p, m.q, m.k, row, column);
    products_of<D>(dp, m.dout, m.v, row, column);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int i = row + lane / 4 + 8 * h;
        key_range seen = {0, -1};
        if (i0 + i < o.q_len)
            seen = keys_of(o, seq, i0 + i);
        int low = place_in_tile(seen.lo, j0, S::KEYS), high = place_in_tile(seen.hi, j0, S::KEYS);
        float lse = m.lse[i], delta = m.delta[i];
#pragma unroll
        for (int n = 0; n < S::COLUMNS / 8; n++) {
            int at = column + n * 8 + lane % 4 * 2;
            float x[2], y[2];
#pragma unroll
            for (int c = 0; c < 2; c++) {
                float score = score_from<CAPPED>(map, p[n][2 * h + c]);
                x[c] = at + c >= low && at + c <= high ? exp2f(score * scale - lse) : 0.0f;
                y[c] = x[c] * (dp[n][2 * h + c] - delta);
                if (CAPPED)
                    y[c] *= cap_slope(map.cap, score);
            }
            *(uint32_t *)(m.p + i * S::LDP + at) = bf16_pair(x[0], x[1]);
            *(uint32_t *)(m.ds + i * S::LDP + at) = bf16_pair(y[0], y[1]);
        }
    }
}

/* sum (16, DIMS) of a warp += left (rows from `row` on; TRANSPOSED: columns) . right (all rows, dimensions from `dim` on) */
template <int D, int DEPTH, bool TRANSPOSED>
DEVICE void sum_step(float sum[][4], const uint16_t *left, const uint16_t *right, int row, int dim)
{
    typedef backward_shape<D> S;
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
        uint32_t a[4], y[4];
        if (TRANSPOSED)
            load_a_transposed<S::LDP>(a, left, row, k);
        else
            load_a<S::LDP>(a, left, row, k);
#pragma unroll
        for (int n = 0; n < S::DIMS; n += 16) {
            load_b_transposed<S::LD>(y, right, k, dim + n);
            mma(sum[n / 8], a, y);
            mma(sum[n / 8 + 1], a, y + 2);
        }
    }
}

/* Stores a sum as rows row0 .., without those past `rows`. */
template <int D> DEVICE void sum_store(float sum[][4], float scale, void *base, int64_t ld, int64_t row0, int64_t rows, int dim, int dims)
{
    typedef backward_shape<D> S;
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t row = row0 + lane / 4 + 8 * h;
#pragma unroll
        for (int n = 0; n < S::DIMS / 8; n++) {
            int d = dim + n * 8;
            if (row < rows && d < dims)
                *(uint32_t *)((uint16_t *)base + row * ld + d + lane % 4 * 2) = bf16_pair(sum[n][2 * h] * scale, sum[n][2 * h + 1] * scale);
        }
    }
}

template <int D, bool CAPPED>
__global__ void __launch_bounds__(backward_shape<D>::THREADS) dkv_kernel(op_attention_backward b, int64_t tiles)
{
    typedef backward_shape<D> S;
    SHARED_BYTES(memory);
    const op_attention &o = b.forward;
    backward_memory<D> m(memory);
    const attention_block block = block_of((unsigned)tiles, (unsigned)o.kv_heads);
    int64_t seq = block.seq, kv_head = block.head, group = o.heads / o.kv_heads;
    int64_t j0 = (int64_t)block.tile * S::KEYS; /* the first keys, which the most queries see, come first */
    int64_t end = o.window > 0 && j0 + S::KEYS - 1 + o.window < o.q_len ? j0 + S::KEYS - 1 + o.window : o.q_len;
    int warp = threadIdx.x / WARP, row = warp / S::ACROSS * 16, dim = warp % S::ACROSS * S::DIMS;
    float dk[S::DIMS / 8][4] = {{0}}, dv[S::DIMS / 8][4] = {{0}};
    keys_begin<D>(o, m, seq, kv_head, j0);
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t i0 = j0 / S::QUERIES * S::QUERIES; i0 < end; i0 += S::QUERIES) {
            __syncthreads(); /* the previous queries are no longer in use */
            queries_begin<D>(b, m, seq, head, i0);
            copies_commit();
            copies_wait<0>();
            __syncthreads();
            terms_of<D, CAPPED>(o, m, seq, i0, j0);
            __syncthreads();
            sum_step<D, S::QUERIES, true>(dv, m.p, m.dout, row, dim);
            sum_step<D, S::QUERIES, true>(dk, m.ds, m.q, row, dim);
        }
    int64_t at = key_offset(o, seq, kv_head);
    sum_store<D>(dk, o.scale, (uint16_t *)b.dk + at, o.ldkv, j0 + row, o.kv_len, dim, (int)o.dim);
    sum_store<D>(dv, 1.0f, (uint16_t *)b.dv + at, o.ldkv, j0 + row, o.kv_len, dim, (int)o.dim);
}

template <int D, bool CAPPED>
__global__ void __launch_bounds__(backward_shape<D>::THREADS) dq_kernel(op_attention_backward b, int64_t tiles)
{
    typedef backward_shape<D> S;
    SHARED_BYTES(memory);
    const op_attention &o = b.forward;
    backward_memory<D> m(memory);
    const attention_block block = block_of((unsigned)tiles, (unsigned)o.heads);
    int64_t seq = block.seq, head = block.head, i0 = (tiles - 1 - block.tile) * S::QUERIES;
    int64_t end = i0 + S::QUERIES < o.q_len ? i0 + S::QUERIES : o.q_len;
    int warp = threadIdx.x / WARP, row = warp / S::ACROSS * 16, dim = warp % S::ACROSS * S::DIMS;
    int64_t i = i0 + threadIdx.x % S::QUERIES; /* the block starts at the first key that any of its queries sees */
    float start = i < o.q_len ? __ll2float_rd(keys_of(o, seq, i).lo) : INFINITY;
    float dq[S::DIMS / 8][4] = {{0}};
    queries_begin<D>(b, m, seq, head, i0);
    for (int64_t j0 = (int64_t)-block_max(-start) / S::KEYS * S::KEYS; j0 < end; j0 += S::KEYS) {
        __syncthreads(); /* the previous keys are no longer in use */
        keys_begin<D>(o, m, seq, head / (o.heads / o.kv_heads), j0);
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        terms_of<D, CAPPED>(o, m, seq, i0, j0);
        __syncthreads();
        sum_step<D, S::KEYS, false>(dq, m.ds, m.k, row, dim);
    }
    sum_store<D>(dq, o.scale, (uint16_t *)b.dq + query_offset(o, seq, head, o.ldq), o.ldq, i0 + row, o.q_len, dim, (int)o.dim);
}

template <int D, bool CAPPED> static int backward_launch(const op_attention_backward *b, cudaStream_t s)
{
    typedef backward_shape<D> S;
    const op_attention *o = &b->forward;
    int64_t tiles = blocks_of(o->q_len, S::QUERIES);
    int error = launch_shared(dkv_kernel<D, CAPPED>, tiles * o->seqs * o->kv_heads, S::THREADS, S::SHARED, s, *b, tiles);
    if (error)
        return error;
    return launch_shared(dq_kernel<D, CAPPED>, tiles * o->seqs * o->heads, S::THREADS, S::SHARED, s, *b, tiles);
}

template <bool CAPPED> static int backward_by_dim(const op_attention_backward *b, cudaStream_t s)
{
    int64_t dim = b->forward.dim;
    return dim <= 64    ? backward_launch<64, CAPPED>(b, s)
           : dim <= 128 ? backward_launch<128, CAPPED>(b, s)
                        : backward_launch<256, CAPPED>(b, s);
}

int attention_tiled_backward(const op_attention_backward *b, cudaStream_t s)
{
    return b->forward.softcap != 0 ? backward_by_dim<true>(b, s) : backward_by_dim<false>(b, s);
}
