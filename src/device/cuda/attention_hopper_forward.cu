/* attention_hopper_forward.cu - attention with warpgroup matmuls.
 *
 * A block has two warpgroups of 64 queries each, of one head. They loop over the keys that any of the block's queries sees, 64 at a time,
 * ascending. K and V are double buffered, so that a tile is loaded while another is in use, and a tile's scores are computed while the
 * values of the previous one are summed:
 *
 *     shared     | Q: 128 rows | K, K: 64 rows each | V, V: 64 rows each |
 *
 *     matmuls   S(0)   S(1)  out += P(0) V(0)   S(2)  out += P(1) V(1)  ...
 *     threads      softmax(0)         softmax(1)             softmax(2)
 *
 * Scores and probabilities stay in registers.
 */
#include "device/cuda/attention.h"
#include "device/cuda/hopper.h"

enum { GROUPS = 2, QUERIES = GROUPS * GROUP_ROWS, KEYS = 64, THREADS = GROUPS * GROUP };

template <int D> struct forward_shape {
    static const int SHARED = (QUERIES + 4 * KEYS) * D * 2 + PANEL_ALIGN;
};

/* The two rows of a lane, g and g + 8 of its warp's 16. Keys count from the block's first. */
typedef struct row_state {
    int low[2], high[2];       /* the keys that they see */
    int low_most, high_least;  /* the keys that all rows of the warp see */
    float most[2], total[2];   /* maximum score, before the map's scale; the lane's part of the sum of probabilities */
} row_state;

DEVICE int warp_least(int x)
{
    for (int distance = WARP / 2; distance; distance /= 2) {
        int other = __shfl_xor_sync(FULL_WARP, x, distance);
        x = other < x ? other : x;
    }
    return x;
}

/* The first key tile that any query of the block sees; past 2^24 keys perhaps one tile earlier. */
DEVICE int64_t first_key(const op_attention &o, int64_t seq, int64_t i0)
{
    int64_t i = i0 + threadIdx.x % QUERIES;
    float start = i < o.q_len ? __ll2float_rd(keys_of(o, seq, i).lo) : INFINITY;
    return (int64_t)-block_max(-start) / KEYS * KEYS;
}

/* Rows past the end see nothing. */
DEVICE row_state rows_begin(const op_attention &o, int64_t seq, int64_t row, int64_t first)
{
    row_state r;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        key_range seen = {first + 1, first};
        if (row + 8 * h < o.q_len)
            seen = keys_of(o, seq, row + 8 * h);
        r.low[h] = (int)(seen.lo - first);
        r.high[h] = (int)(seen.hi - first);
        r.most[h] = -INFINITY;
        r.total[h] = 0;
    }
    r.low_most = -warp_least(r.low[0] > r.low[1] ? -r.low[0] : -r.low[1]);
    r.high_least = warp_least(r.high[0] < r.high[1] ? r.high[0] : r.high[1]);
    return r;
}

/* Masks the keys of j .. j + 63 that a row does not see. */
DEVICE void scores_mask(float s[32], const row_state &r, int j)
{
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int h = i / 2 % 2, key = j + i / 4 * 8 + i % 2 + column;
        if (key < r.low[h] || key > r.high[h])
            s[i] = -INFINITY;
    }
}

/* Scores of the keys from j on become probabilities relative to the new maximum. shrink: the factor for the previous sums. */
template <bool CAPPED> DEVICE void softmax_step(float s[32], row_state &r, int j, const score_map &m, float shrink[2])
{
    const float scale = m.scale * LOG2_E;
    if (CAPPED)
#pragma unroll
        for (int i = 0; i < 32; i++)
            s[i] = score_from<CAPPED>(m, s[i]);
    if (j < r.low_most || j + KEYS - 1 > r.high_least)
        scores_mask(s, r, j);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float most = r.most[h], sum = 0;
#pragma unroll
        for (int i = 2 * h; i < 32; i += i % 2 ? 3 : 1)
            most = fmaxf(most, s[i]);
        most = quad_max(most);
        float base = most == -INFINITY ? 0.0f : most * scale;
#pragma unroll
        for (int i = 2 * h; i < 32; i += i % 2 ? 3 : 1) {
            s[i] = exp2_fast(fmaf(s[i], scale, -base));
            sum += s[i];
        }
        shrink[h] = exp2_fast(r.most[h] * scale - base); /* exactly 1 if the maximum stays; fused, rounding errors would accumulate */
        r.total[h] = fmaf(r.total[h], shrink[h], sum);
        r.most[h] = most;
    }
}

template <int D>
DEVICE void output_store(const op_attention &o, const score_map &m, int64_t seq, int64_t head, int64_t row, float out[D / PANEL][32],
                         const row_state &r)
{
    int column = threadIdx.x % 4 * 2;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float total = quad_sum(r.total[h]), scale = 1.0f / total;
        int64_t i = row + 8 * h;
        if (i >= o.q_len)
            continue;
        uint16_t *to = (uint16_t *)o.out + query_offset(o, seq, head, o.ldo) + i * o.ldo + column;
#pragma unroll
        for (int n = 0; n < D / 8; n++)
            if (n * 8 < o.dim) {
                const float *x = &out[n / 8][n % 8 * 4 + 2 * h];
                *(uint32_t *)(to + n * 8) = bf16_pair(x[0] * scale, x[1] * scale);
            }
        if (o.lse && column == 0)
            o.lse[lse_offset(o, seq, head) + i] = fmaf(r.most[h], m.scale, log2f(total) * LN_2);
    }
}

/* The tensors that a block copies from. */
typedef struct sources { const uint16_t *k, *v; int64_t ld, first, end; int dim; } sources;

/* Starts copying tile t of K or V to one of its two buffers. */
template <int D> DEVICE void tile_begin(uint16_t *places, const uint16_t *from, const sources &x, int t)
{
    panels_copy<KEYS, D, THREADS>(places + t % 2 * KEYS * D, from, x.ld, x.first + (int64_t)t * KEYS, x.end, x.dim);
}

/* Waits until all copies have arrived and the previous tiles are no longer in use; then starts copying the next ones. */
template <int D> DEVICE void next_tiles(uint16_t *k, uint16_t *v, const sources &x, int t, int tiles)
{
    copies_wait<0>();
    group_publish();
    __syncthreads();
    if (t + 2 < tiles)
        tile_begin<D>(k, x.k, x, t + 2);
    if (t + 1 < tiles)
        tile_begin<D>(v, x.v, x, t + 1);
    copies_commit();
}

/* Tells the compiler that the sums and probabilities pass between matmuls and threads. */
template <int D> DEVICE void walk_settle(float out[D / PANEL][32], uint32_t p[4][4])
{
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        group_settle(out[panel]);
    group_settle_left(p);
}

/* The loop of one warpgroup over `own` of the block's `tiles` tiles. */
template <int D, bool CAPPED>
DEVICE void walk(float out[D / PANEL][32], row_state &r, const uint16_t *q, uint16_t *k, uint16_t *v, const sources &x, int own, int tiles,
                 const score_map &m)
{
    float s[32], shrink[2];
    uint32_t p[4][4];
    if (own > 0) {
        group_begin();
        group_products<D, QUERIES, KEYS>(s, q, k);
        group_end();
        group_wait<0>();
        group_settle(s);
        softmax_step<CAPPED>(s, r, 0, m, shrink);
        group_round(p, s);
    }
    for (int t = 0; t < own - 1; t++) {
        next_tiles<D>(k, v, x, t, tiles);
        walk_settle<D>(out, p);
        group_begin();
        group_products<D, QUERIES, KEYS>(s, q, k + (t + 1) % 2 * KEYS * D);
        group_end();
        group_sums<D, KEYS>(out, p, v + t % 2 * KEYS * D);
        group_end();
        group_wait<1>();
        group_settle(s);
        softmax_step<CAPPED>(s, r, (t + 1) * KEYS, m, shrink);
        group_wait<0>();
        walk_settle<D>(out, p);
#pragma unroll
        for (int i = 0; i < D / PANEL * 32; i++)
            out[i / 32][i % 32] *= shrink[i / 2 % 2];
        group_round(p, s);
    }
    if (own > 0) {
        next_tiles<D>(k, v, x, own - 1, tiles);
        walk_settle<D>(out, p);
        group_begin();
        group_sums<D, KEYS>(out, p, v + (own - 1) % 2 * KEYS * D);
        group_end();
        group_wait<0>();
        walk_settle<D>(out, p);
    }
    for (int t = own; t < tiles; t++)
        next_tiles<D>(k, v, x, t, tiles);
}

template <int D, bool CAPPED>
__global__ void __launch_bounds__(THREADS, D > 64 ? 1 : 2) hopper_forward_kernel(op_attention o, int64_t blocks)
{
#ifdef HOPPER_CODE
    SHARED_BYTES(memory);
    uint16_t *q = panels_begin(memory), *k = q + QUERIES * D, *v = k + 2 * KEYS * D;
    const attention_block place = block_of((unsigned)blocks, (unsigned)o.heads);
    int64_t seq = place.seq, head = place.head, kv_head = place.head / (unsigned)(o.heads / o.kv_heads);
    int64_t i0 = (blocks - 1 - place.tile) * QUERIES;
    int group = threadIdx.x / GROUP, at = threadIdx.x % GROUP / WARP * 16 + threadIdx.x % WARP / 4;
    int64_t row = i0 + group * GROUP_ROWS, behind = o.kv_len - o.q_len, kv = key_offset(o, seq, kv_head);
    sources x = {(const uint16_t *)o.k + kv, (const uint16_t *)o.v + kv, o.ldkv, first_key(o, seq, i0),
                 behind + (i0 + QUERIES < o.q_len ? i0 + QUERIES : o.q_len), (int)o.dim};
    int64_t end = behind + (row + GROUP_ROWS < o.q_len ? row + GROUP_ROWS : o.q_len);
    int tiles = (int)((x.end - x.first + KEYS - 1) / KEYS), own = row < o.q_len ? (int)((end - x.first + KEYS - 1) / KEYS) : 0;
    panels_copy<QUERIES, D, THREADS>(q, (const uint16_t *)o.q + query_offset(o, seq, head, o.ldq), o.ldq, i0, o.q_len, x.dim);
    tile_begin<D>(k, x.k, x, 0);
    copies_commit();
    if (tiles > 1)
        tile_begin<D>(k, x.k, x, 1);
    tile_begin<D>(v, x.v, x, 0);
    copies_commit();
    row_state r = rows_begin(o, seq, row + at, x.first);
    float out[D / PANEL][32];
#pragma unroll
    for (int i = 0; i < D / PANEL * 32; i++)
        out[i / 32][i % 32] = 0;
    copies_wait<1>();
    group_publish();
    __syncthreads();
    const score_map m = score_map_of<CAPPED>(o);
    walk<D, CAPPED>(out, r, q + group * GROUP_ROWS * PANEL, k, v, x, own, tiles, m);
    output_store<D>(o, m, seq, head, row + at, out, r);
#else
    __trap();
#endif
}

template <int D> static int forward_launch(const op_attention *o, cudaStream_t s)
{
    int64_t blocks = blocks_of(o->q_len, QUERIES);
    void (*kernel)(op_attention, int64_t) = o->softcap != 0 ? hopper_forward_kernel<D, true> : hopper_forward_kernel<D, false>;
    return launch_shared(kernel, blocks * o->seqs * o->heads, THREADS, forward_shape<D>::SHARED, s, *o, blocks);
}

int attention_hopper(const op_attention *o, cudaStream_t s)
{
    return o->dim <= 64 ? forward_launch<64>(o, s) : forward_launch<128>(o, s);
}
