/* attention_forward.cu - attention in tiles, on the tensor cores.
 *
 * A block has QUERIES rows of one head, 16 per warp, and loops over the keys that any of them sees, KEYS at a time, ascending. Scores stay
 * in registers; the four lanes that share a row keep its running maximum and sum.
 *
 *     shared      | Q: QUERIES rows | K: KEYS rows | V: KEYS rows |      each row D + 8 bf16
 *
 *     K(0) -> [ scores ] -> [ softmax, out += P V(0) ] -> [ scores ] -> ...
 *              loads V(0)      loads K(1)                  loads V(1)
 *
 * The last queries, which see the most keys, come first.
 */
#include "device/cuda/attention.h"
#include "device/cuda/mma.h"

template <int D> struct forward_shape {
    static const int QUERIES = D > 128 ? 64 : 128, KEYS = D > 128 ? 32 : 64, WARPS = QUERIES / 16, THREADS = WARPS * WARP,
    LD = D + TILE_PAD;
    static const int SHARED = (QUERIES + 2 * KEYS) * LD * 2;
};

/* The two rows of a lane, g and g + 8 of its warp's 16. */
typedef struct row_state {
    int64_t lo[2], hi[2]; /* keys that they see; none for rows past the end */
    float most[2], total[2];
} row_state;

DEVICE row_state rows_begin(const op_attention &o, int64_t seq, int64_t row)
{
    row_state r;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        key_range seen = {INT64_MAX, -1};
        if (row + 8 * h < o.q_len)
            seen = keys_of(o, seq, row + 8 * h);
        r.lo[h] = seen.lo;
        r.hi[h] = seen.hi;
        r.most[h] = -INFINITY;
        r.total[h] = 0;
    }
    return r;
}

/* scores (16, KEYS) of a warp, in tiles of 8 columns, for Q's rows from `row` on. */
template <int D, int KEYS> DEVICE void scores_of(float scores[KEYS / 8][4], const uint16_t *q, const uint16_t *k, int row)
{
    const int LD = D + TILE_PAD;
    for (int n = 0; n < KEYS / 8; n++)
        for (int c = 0; c < 4; c++)
            scores[n][c] = 0;
#pragma unroll
    for (int d = 0; d < D; d += 16) {
        uint32_t a[4], b[4];
        load_a<LD>(a, q, row, d);
#pragma unroll
        for (int n = 0; n < KEYS; n += 16) {
            load_b<LD>(b, k, d, n);
            mma(scores[n / 8], a, b);
            mma(scores[n / 8 + 1], a, b + 2);
        }
    }
}

/* Scores of the keys from j0 on become probabilities relative to the new maximum (base 2). shrink: the factor for the previous sums. */
template <int KEYS, bool CAPPED>
DEVICE void softmax_step(float scores[KEYS / 8][4], row_state *r, int64_t j0, const score_map &m, float shrink[2])
{
    const float scale = m.scale * LOG2_E;
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int low = place_in_tile(r->lo[h], j0, KEYS), high = place_in_tile(r->hi[h], j0, KEYS);
        float most = r->most[h], sum = 0;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 2 * h; c < 2 * h + 2; c++) {
                int j = column + n * 8 + c % 2;
                scores[n][c] = j >= low && j <= high ? score_from<CAPPED>(m, scores[n][c]) * scale : -INFINITY;
                most = fmaxf(most, scores[n][c]);
            }
        most = quad_max(most);
        float base = most == -INFINITY ? 0.0f : most;
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int c = 2 * h; c < 2 * h + 2; c++) {
                scores[n][c] = exp2f(scores[n][c] - base);
                sum += scores[n][c];
            }
        shrink[h] = exp2f(r->most[h] - base);
        r->total[h] = r->total[h] * shrink[h] + sum;
        r->most[h] = most;
    }
}

/* out (16, D) = out * shrink + P (16, KEYS) . V (KEYS, D) */
template <int D, int KEYS> DEVICE void output_step(float out[D / 8][4], float p[KEYS / 8][4], const float shrink[2], const uint16_t *v)
{
    const int LD = D + TILE_PAD;
#pragma unroll
    for (int n = 0; n < D / 8; n++)
#pragma unroll
        for (int c = 0; c < 4; c++)
            out[n][c] *= shrink[c / 2];
#pragma unroll
    for (int k = 0; k < KEYS; k += 16) {
        float *low = p[k / 8], *high = p[k / 8 + 1];
        uint32_t a[4] = {bf16_pair(low[0], low[1]), bf16_pair(low[2], low[3]), bf16_pair(high[0], high[1]), bf16_pair(high[2], high[3])};
#pragma unroll
        for (int n = 0; n < D; n += 16) {
            uint32_t b[4];
            load_b_transposed<LD>(b, v, k, n);
            mma(out[n / 8], a, b);
            mma(out[n / 8 + 1], a, b + 2);
        }
    }
}

template <int D> DEVICE void output_store(const op_attention &o, int64_t seq, int64_t head, int64_t row, float out[D / 8][4], row_state *r)
{
    int column = threadIdx.x % 4 * 2;
#pragma unroll /* keeps arrays indexed by h in registers */
    for (int h = 0; h < 2; h++) {
        float total = quad_sum(r->total[h]), scale = 1.0f / total;
        int64_t i = row + 8 * h;
        if (i >= o.q_len)
            continue;
        uint16_t *to = (uint16_t *)o.out + query_offset(o, seq, head, o.ldo) + i * o.ldo + column;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (n * 8 < o.dim)
                *(uint32_t *)(to + n * 8) = bf16_pair(out[n][2 * h] * scale, out[n][2 * h + 1] * scale);
        if (o.lse && column == 0)
            o.lse[lse_offset(o, seq, head) + i] = (r->most[h] + log2f(total)) * LN_2;
    }
}

template <int D, bool CAPPED> __global__ void __launch_bounds__(forward_shape<D>::THREADS) forward_kernel(op_attention o, int64_t tiles)
{
    typedef forward_shape<D> S;
    SHARED_BYTES(memory);
    uint16_t *q = (uint16_t *)memory, *k = q + S::QUERIES * S::LD, *v = k + S::KEYS * S::LD;
    const attention_block at = block_of((unsigned)tiles, (unsigned)o.heads);
    int64_t seq = at.seq, head = at.head, i0 = (tiles - 1 - at.tile) * S::QUERIES;
    int row = threadIdx.x / WARP * 16;
    row_state r = rows_begin(o, seq, i0 + row + threadIdx.x % WARP / 4);
    float start = __ll2float_rd(r.lo[0] < r.lo[1] ? r.lo[0] : r.lo[1]); /* rounded down: past 2^24 perhaps a masked tile more */
    int64_t first = (int64_t)-block_max(-start) / S::KEYS * S::KEYS;
    int64_t end = o.kv_len - o.q_len + (i0 + S::QUERIES < o.q_len ? i0 + S::QUERIES : o.q_len);
    const uint16_t *keys = (const uint16_t *)o.k + key_offset(o, seq, head / (o.heads / o.kv_heads));
    const uint16_t *values = (const uint16_t *)o.v + key_offset(o, seq, head / (o.heads / o.kv_heads));
    tile_copy<S::QUERIES, D, S::THREADS>(q, (const uint16_t *)o.q + query_offset(o, seq, head, o.ldq), o.ldq, i0, o.q_len, (int)o.dim);
    tile_copy<S::KEYS, D, S::THREADS>(k, keys, o.ldkv, first, end, (int)o.dim);
    copies_commit();
    float out[D / 8][4] = {{0}}, scores[S::KEYS / 8][4], shrink[2];
    for (int64_t j0 = first; j0 < end; j0 += S::KEYS) {
        copies_wait<0>();
        __syncthreads(); /* K has arrived, and V is no longer in use */
        tile_copy<S::KEYS, D, S::THREADS>(v, values, o.ldkv, j0, end, (int)o.dim);
        copies_commit();
        scores_of<D, S::KEYS>(scores, q, k, row);
        __syncthreads(); /* K is no longer in use */
        if (j0 + S::KEYS < end)
            tile_copy<S::KEYS, D, S::THREADS>(k, keys, o.ldkv, j0 + S::KEYS, end, (int)o.dim);
        copies_commit();
        softmax_step<S::KEYS, CAPPED>(scores, &r, j0, score_map_of<CAPPED>(o), shrink);
        copies_wait<1>();
        __syncthreads(); /* V has arrived */
        output_step<D, S::KEYS>(out, scores, shrink, v);
    }
    output_store<D>(o, seq, head, i0 + row + threadIdx.x % WARP / 4, out, &r);
}

template <int D> static int forward_launch(const op_attention *o, cudaStream_t s)
{
    typedef forward_shape<D> S;
    int64_t tiles = blocks_of(o->q_len, S::QUERIES);
    void (*kernel)(op_attention, int64_t) = o->softcap != 0 ? forward_kernel<D, true> : forward_kernel<D, false>;
    return launch_shared(kernel, tiles * o->seqs * o->heads, S::THREADS, S::SHARED, s, *o, tiles);
}

int attention_tiled(const op_attention *o, cudaStream_t s)
{
    return o->dim <= 64 ? forward_launch<64>(o, s) : o->dim <= 128 ? forward_launch<128>(o, s) : forward_launch<256>(o, s);
}
