/* attention_hopper_backward.cu - gradients of attention with warpgroup matmuls.
 *
 * Two kernels, as in attention_backward.cu, which both recompute the scores. A warpgroup owns 64 rows (of keys or of queries), and loops
 * over the rows of the other kind ("passing rows"), 64 at a time, ascending, with double buffering. P and dS stay in registers, in the
 * layout of the next matmul's left operand:
 *
 *     keys and values:  S^T = K Q^T     dP^T = V dO^T     dS^T = P^T (dP^T - delta)      dV += P^T dO     dK += dS^T Q
 *     queries:          S = Q K^T       dP = dO V^T       dS = P (dP - delta)            dQ += dS K
 *
 *     shared    | own rows of two matrices | passing rows: 64 of two matrices, twice | their lse, delta, first, twice |
 *
 * The scale of the scores is applied at the end, to dQ and dK. If scores are capped, dS is also multiplied by the derivative of the cap. No
 * registers keep the scores until then; they are recomputed as the logarithm of P.
 */
#include "device/cuda/attention.h"
#include "device/cuda/hopper.h"

enum { PASSING = 64 };

/* The shared memory of a block of GROUPS warpgroups. */
template <int D, int GROUPS> struct backward_memory {
    static const int THREADS = GROUPS * GROUP, OWN = GROUPS * GROUP_ROWS;
    static const int BYTES = 2 * (OWN + 2 * PASSING) * D * 2 + 3 * 2 * PASSING * 4 + PANEL_ALIGN;
    uint16_t *own[2], *passing[2];
    float *lse, *delta;
    int32_t *first; /* starts of their documents, ascending; NULL if the op has none */
    __device__ backward_memory(unsigned char *memory)
    {
        own[0] = panels_begin(memory);
        own[1] = own[0] + OWN * D;
        passing[0] = own[1] + OWN * D;
        passing[1] = passing[0] + 2 * PASSING * D;
        lse = (float *)(passing[1] + 2 * PASSING * D);
        delta = lse + 2 * PASSING;
        first = (int32_t *)(delta + 2 * PASSING);
    }
};

/* Two matrices with the same rows: queries and dout, or keys and values. */
typedef struct rows_pair { const uint16_t *x, *y; int64_t ldx, ldy, rows; int dim; } rows_pair;

DEVICE rows_pair queries_of(const op_attention_backward &b, int64_t seq, int64_t head)
{
    const op_attention &o = b.forward;
    rows_pair r = {(const uint16_t *)o.q + query_offset(o, seq, head, o.ldq), (const uint16_t *)b.dout + query_offset(o, seq, head, b.lddo),
                   o.ldq, b.lddo, o.q_len, (int)o.dim};
    return r;
}

DEVICE rows_pair keys_and_values(const op_attention &o, int64_t seq, int64_t kv_head)
{
    int64_t at = key_offset(o, seq, kv_head);
    rows_pair r = {(const uint16_t *)o.k + at, (const uint16_t *)o.v + at, o.ldkv, o.ldkv, o.kv_len, (int)o.dim};
    return r;
}

template <int D, int GROUPS> DEVICE void own_begin(const backward_memory<D, GROUPS> &m, const rows_pair &r, int64_t row)
{
    typedef backward_memory<D, GROUPS> M;
    panels_copy<M::OWN, D, M::THREADS>(m.own[0], r.x, r.ldx, row, r.rows, r.dim);
    panels_copy<M::OWN, D, M::THREADS>(m.own[1], r.y, r.ldy, row, r.rows, r.dim);
}

template <int D, int GROUPS> DEVICE void passing_begin(const backward_memory<D, GROUPS> &m, const rows_pair &r, int64_t row, int place)
{
    typedef backward_memory<D, GROUPS> M;
    panels_copy<PASSING, D, M::THREADS>(m.passing[0] + place * PASSING * D, r.x, r.ldx, row, r.rows, r.dim);
    panels_copy<PASSING, D, M::THREADS>(m.passing[1] + place * PASSING * D, r.y, r.ldy, row, r.rows, r.dim);
}

/* Starts copying the statistics of queries i0 .. i0 + 63. */
template <int D, int GROUPS>
DEVICE void statistics_begin(const op_attention_backward &b, const backward_memory<D, GROUPS> &m, int64_t seq, int64_t head, int64_t i0,
                             int place)
{
    const op_attention &o = b.forward;
    int at = threadIdx.x % PASSING;
    bool there = i0 + at < o.q_len, lse = threadIdx.x < PASSING;
    if (threadIdx.x >= 2 * PASSING) {
        const int32_t *starts = o.first + seq * o.q_len;
        if (o.first && threadIdx.x < 3 * PASSING)
            copy_word_async(m.first + place * PASSING + at, there ? starts + (i0 + at) : starts, there);
        return;
    }
    const float *from = lse ? o.lse + lse_offset(o, seq, head) : (const float *)b.scratch + seq * o.q_len * o.heads + head;
    copy_word_async((lse ? m.lse : m.delta) + place * PASSING + at, there ? from + (i0 + at) * (lse ? 1 : o.heads) : from, there);
}

DEVICE void tiles_wait()
{
    copies_wait<0>();
    group_publish();
    __syncthreads();
}

/* Starts both matmuls of a tile: first the scores, then dP. */
template <int D, int GROUPS> DEVICE void products_begin(float s[32], float dp[32], const backward_memory<D, GROUPS> &m, int place)
{
    int group = threadIdx.x / GROUP * GROUP_ROWS * PANEL;
    group_begin();
    group_products<D, backward_memory<D, GROUPS>::OWN, PASSING>(s, m.own[0] + group, m.passing[0] + place * PASSING * D);
    group_end();
    group_products<D, backward_memory<D, GROUPS>::OWN, PASSING>(dp, m.own[1] + group, m.passing[1] + place * PASSING * D);
    group_end();
}

/* Stores rows `row` and row + 8 of a sum (64, D), unless they are past `rows`. */
template <int D> DEVICE void sum_store(float sum[D / PANEL][32], float scale, void *base, int64_t ld, int64_t row, int64_t rows, int dim)
{
#pragma unroll
    for (int h = 0; h < 2; h++)
        if (row + 8 * h < rows) {
            uint16_t *to = (uint16_t *)base + (row + 8 * h) * ld + threadIdx.x % 4 * 2;
#pragma unroll
            for (int n = 0; n < D / 8; n++)
                if (n * 8 < dim) {
                    const float *x = &sum[n / 8][n % 8 * 4 + 2 * h];
                    *(uint32_t *)(to + n * 8) = bf16_pair(x[0] * scale, x[1] * scale);
                }
        }
}

template <int D> DEVICE void sum_clear(float sum[D / PANEL][32])
{
#pragma unroll
    for (int i = 0; i < D / PANEL * 32; i++)
        sum[i / 32][i % 32] = 0;
}

template <int D> DEVICE void sum_settle(float sum[D / PANEL][32])
{
#pragma unroll
    for (int panel = 0; panel < D / PANEL; panel++)
        group_settle(sum[panel]);
}

/* The first of the lane's two rows, in its group's 64. */
DEVICE int own_row() { return threadIdx.x % GROUP / WARP * 16 + threadIdx.x % WARP / 4; }

/* ---- keys and values ---- */

/* Clears probabilities where the query (column, from i0 on) does not see the key (row, from j0 on). */
DEVICE void unseen_clear(float p[32], const op_attention &o, const int32_t *first, int64_t i0, int64_t j0)
{
    if (o.window <= 0 && !o.first) {
        int row = own_row() - (int)(i0 - j0), column = threadIdx.x % 4 * 2; /* queries and keys count from i0 */
        int64_t left = o.q_len - i0;
#pragma unroll
        for (int i = 0; i < 32; i++) {
            int query = i / 4 * 8 + i % 2 + column;
            if (row + i / 2 % 2 * 8 > query || query >= left)
                p[i] = 0;
        }
        return;
    }
#pragma unroll
    for (int column = 0; column < 16; column++) {
        int at = column / 2 * 8 + column % 2 + threadIdx.x % 4 * 2;
        key_range seen = {0, -1};
        if (i0 + at < o.q_len)
            seen = keys_from(o, i0 + at, o.first ? first[at] : 0);
        int low = place_in_tile(seen.lo, j0, GROUP_ROWS), high = place_in_tile(seen.hi, j0, GROUP_ROWS);
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (own_row() + 8 * h < low || own_row() + 8 * h > high)
                p[column / 2 * 4 + column % 2 + 2 * h] = 0;
    }
}

/* Whether all of these queries see all of the group's keys. */
DEVICE bool all_seen(const op_attention &o, const int32_t *first, int64_t i0, int64_t j0)
{
    int64_t last = i0 + PASSING - 1;
    return last < o.q_len && j0 + GROUP_ROWS - 1 <= i0 && (o.window <= 0 || last - o.window + 1 <= j0) &&
           (!o.first || first[PASSING - 1] <= j0);
}

/* Whether any of these queries sees any of the group's keys. */
DEVICE bool any_seen(const op_attention &o, const int32_t *first, int64_t i0, int64_t j0)
{
    return i0 + PASSING > j0 && j0 < o.kv_len && (o.window <= 0 || i0 - o.window + 1 < j0 + GROUP_ROWS) &&
           (!o.first || first[0] < j0 + GROUP_ROWS);
}

/* A probability from a product; base: the query's lse, base 2. */
template <bool CAPPED> DEVICE float probability(const score_map &m, float product, float base)
{
    return exp2_fast(fmaf(score_from<CAPPED>(m, product), m.scale * LOG2_E, -base));
}

/* The gradient of a scaled score before the cap, from the gradient after it. If p is 0, so is the gradient, whatever the derivative of the
 * cap. */
template <bool CAPPED> DEVICE float before_cap(const score_map &m, float gradient, float p, float base)
{
    if (!CAPPED)
        return gradient;
    float score = (log2f(p) + base) * LN_2;
    return gradient * cap_slope(m.cap, fminf(fmaxf(score, -m.cap), m.cap));
}

template <int D, int GROUPS, bool CAPPED>
DEVICE void keys_step(float dk[D / PANEL][32], float dv[D / PANEL][32], const op_attention &o, const backward_memory<D, GROUPS> &m,
                      int64_t i0, int64_t j0, int place)
{
    float s[32], dp[32];
    const score_map map = score_map_of<CAPPED>(o);
    const int32_t *first = m.first + place * PASSING;
    const float *lse = m.lse + place * PASSING + threadIdx.x % 4 * 2, *delta = m.delta + place * PASSING + threadIdx.x % 4 * 2;
    uint32_t p[4][4], ds[4][4];
    products_begin(s, dp, m, place);
    group_wait<1>();
    group_settle(s);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            float base = lse[8 * n + c] * LOG2_E;
            s[4 * n + c] = probability<CAPPED>(map, s[4 * n + c], base);
            s[4 * n + c + 2] = probability<CAPPED>(map, s[4 * n + c + 2], base);
        }
    if (!all_seen(o, first, i0, j0))
        unseen_clear(s, o, first, i0, j0);
    group_round(p, s);
    group_settle_left(p);
    group_begin();
    group_sums<D, PASSING>(dv, p, m.passing[1] + place * PASSING * D);
    group_end();
    group_wait<1>();
    group_settle(dp);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int c = 0; c < 2; c++) {
            dp[4 * n + c] = s[4 * n + c] * (dp[4 * n + c] - delta[8 * n + c]);
            dp[4 * n + c + 2] = s[4 * n + c + 2] * (dp[4 * n + c + 2] - delta[8 * n + c]);
            if (CAPPED) {
                float base = lse[8 * n + c] * LOG2_E;
                dp[4 * n + c] = before_cap<CAPPED>(map, dp[4 * n + c], s[4 * n + c], base);
                dp[4 * n + c + 2] = before_cap<CAPPED>(map, dp[4 * n + c + 2], s[4 * n + c + 2], base);
            }
        }
    group_round(ds, dp);
    group_settle_left(ds);
    group_begin();
    group_sums<D, PASSING>(dk, ds, m.passing[0] + place * PASSING * D);
    group_end();
    group_wait<0>();
    sum_settle<D>(dv);
    sum_settle<D>(dk);
}

template <int D, int GROUPS, bool CAPPED>
__global__ void __launch_bounds__(GROUPS *GROUP, 1) hopper_keys_kernel(op_attention_backward b, int64_t blocks)
{
#ifdef HOPPER_CODE
    SHARED_BYTES(memory);
    const op_attention &o = b.forward;
    typedef backward_memory<D, GROUPS> M;
    M m(memory);
    const attention_block at = block_of((unsigned)blocks, (unsigned)o.kv_heads);
    int64_t seq = at.seq, kv_head = at.head, group = o.heads / o.kv_heads;
    int64_t block = (int64_t)at.tile * M::OWN; /* the first keys, which the most queries see, come first */
    int64_t end = o.window > 0 && block + M::OWN - 1 + o.window < o.q_len ? block + M::OWN - 1 + o.window : o.q_len;
    int64_t i0 = block / PASSING * PASSING, tiles = (end - i0 + PASSING - 1) / PASSING, j0 = block + threadIdx.x / GROUP * GROUP_ROWS;
    float dk[D / PANEL][32], dv[D / PANEL][32];
    sum_clear<D>(dk);
    sum_clear<D>(dv);
    own_begin(m, keys_and_values(o, seq, kv_head), block);
    passing_begin(m, queries_of(b, seq, kv_head * group), i0, 0);
    statistics_begin(b, m, seq, kv_head * group, i0, 0);
    copies_commit();
    int place = 0;
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t t = 0; t < tiles; t++, place ^= 1) {
            int64_t next = t + 1 < tiles ? head : head + 1, next_i0 = t + 1 < tiles ? i0 + (t + 1) * PASSING : i0;
            tiles_wait(); /* this tile has arrived, and the previous one is no longer in use */
            if (next < (kv_head + 1) * group) {
                passing_begin(m, queries_of(b, seq, next), next_i0, place ^ 1);
                statistics_begin(b, m, seq, next, next_i0, place ^ 1);
            }
            copies_commit();
            if (any_seen(o, m.first + place * PASSING, i0 + t * PASSING, j0))
                keys_step<D, GROUPS, CAPPED>(dk, dv, o, m, i0 + t * PASSING, j0, place);
        }
    int64_t to = key_offset(o, seq, kv_head);
    sum_store<D>(dk, o.scale, (uint16_t *)b.dk + to, o.ldkv, j0 + own_row(), o.kv_len, (int)o.dim);
    sum_store<D>(dv, 1.0f, (uint16_t *)b.dv + to, o.ldkv, j0 + own_row(), o.kv_len, (int)o.dim);
#else
    __trap();
#endif
}

/* ---- queries ---- */

/* The two rows of a lane; rows past the end see nothing. */
typedef struct query_state { int64_t lo[2], hi[2]; float base[2], delta[2]; } query_state;

DEVICE query_state queries_begin(const op_attention_backward &b, int64_t seq, int64_t head, int64_t row)
{
    const op_attention &o = b.forward;
    query_state r;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t i = row + 8 * h;
        bool there = i < o.q_len;
        key_range seen = {0, -1};
        if (there)
            seen = keys_of(o, seq, i);
        r.lo[h] = seen.lo;
        r.hi[h] = seen.hi;
        r.base[h] = there ? o.lse[lse_offset(o, seq, head) + i] * LOG2_E : 0.0f;
        r.delta[h] = there ? ((const float *)b.scratch)[(seq * o.q_len + i) * o.heads + head] : 0.0f;
    }
    return r;
}

template <int D, int GROUPS, bool CAPPED>
DEVICE void queries_step(float dq[D / PANEL][32], const op_attention &o, const backward_memory<D, GROUPS> &m, const query_state &r,
                         int64_t j0, int place)
{
    float s[32], dp[32];
    const score_map map = score_map_of<CAPPED>(o);
    uint32_t ds[4][4];
    int column = threadIdx.x % 4 * 2;
    products_begin(s, dp, m, place);
    group_wait<1>();
    group_settle(s);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int low = place_in_tile(r.lo[h], j0, PASSING), high = place_in_tile(r.hi[h], j0, PASSING);
#pragma unroll
        for (int i = 2 * h; i < 32; i += i % 2 ? 3 : 1)
            s[i] = probability<CAPPED>(map, s[i], r.base[h]);
        if (low > 0 || high < PASSING - 1)
#pragma unroll
            for (int i = 2 * h; i < 32; i += i % 2 ? 3 : 1) {
                int key = i / 4 * 8 + i % 2 + column;
                s[i] = key >= low && key <= high ? s[i] : 0.0f;
            }
    }
    group_wait<0>();
    group_settle(dp);
#pragma unroll
    for (int i = 0; i < 32; i++)
        dp[i] = before_cap<CAPPED>(map, s[i] * (dp[i] - r.delta[i / 2 % 2]), s[i], r.base[i / 2 % 2]);
    group_round(ds, dp);
    group_settle_left(ds);
    group_begin();
    group_sums<D, PASSING>(dq, ds, m.passing[0] + place * PASSING * D);
    group_end();
    group_wait<0>();
    sum_settle<D>(dq);
}

template <int D, int GROUPS, bool CAPPED>
__global__ void __launch_bounds__(GROUPS *GROUP, D > 64 ? 1 : 2) hopper_queries_kernel(op_attention_backward b, int64_t blocks)
{
#ifdef HOPPER_CODE
    SHARED_BYTES(memory);
    const op_attention &o = b.forward;
    typedef backward_memory<D, GROUPS> M;
    M m(memory);
    const attention_block at = block_of((unsigned)blocks, (unsigned)o.heads);
    int64_t seq = at.seq, head = at.head, kv_head = at.head / (unsigned)(o.heads / o.kv_heads);
    int64_t block = (blocks - 1 - at.tile) * M::OWN, row = block + threadIdx.x / GROUP * GROUP_ROWS;
    int64_t i = block + threadIdx.x % M::OWN; /* the block starts at the first key that any of its queries sees */
    float start = i < o.q_len ? __ll2float_rd(keys_of(o, seq, i).lo) : INFINITY;
    int64_t j0 = (int64_t)-block_max(-start) / PASSING * PASSING, end = block + M::OWN < o.q_len ? block + M::OWN : o.q_len;
    const rows_pair keys = keys_and_values(o, seq, kv_head);
    float dq[D / PANEL][32];
    sum_clear<D>(dq);
    own_begin(m, queries_of(b, seq, head), block);
    passing_begin(m, keys, j0, 0);
    copies_commit();
    query_state r = queries_begin(b, seq, head, row + own_row());
    int place = 0;
    for (; j0 < end; j0 += PASSING, place ^= 1) {
        tiles_wait(); /* this tile has arrived, and the previous one is no longer in use */
        if (j0 + PASSING < end)
            passing_begin(m, keys, j0 + PASSING, place ^ 1);
        copies_commit();
        if (j0 < row + GROUP_ROWS && row < o.q_len)
            queries_step<D, GROUPS, CAPPED>(dq, o, m, r, j0, place);
    }
    sum_store<D>(dq, o.scale, (uint16_t *)b.dq + query_offset(o, seq, head, o.ldq), o.ldq, row + own_row(), o.q_len, (int)o.dim);
#else
    __trap();
#endif
}

template <int D, int GROUPS, bool CAPPED> static int keys_launch(const op_attention_backward *b, cudaStream_t s)
{
    typedef backward_memory<D, GROUPS> M;
    const op_attention *o = &b->forward;
    int64_t blocks = blocks_of(o->kv_len, M::OWN);
    return launch_shared(hopper_keys_kernel<D, GROUPS, CAPPED>, blocks * o->seqs * o->kv_heads, M::THREADS, M::BYTES, s, *b, blocks);
}

template <int D, int GROUPS, bool CAPPED> static int queries_launch(const op_attention_backward *b, cudaStream_t s)
{
    typedef backward_memory<D, GROUPS> M;
    const op_attention *o = &b->forward;
    int64_t blocks = blocks_of(o->q_len, M::OWN);
    return launch_shared(hopper_queries_kernel<D, GROUPS, CAPPED>, blocks * o->seqs * o->heads, M::THREADS, M::BYTES, s, *b, blocks);
}

/* The number of warpgroups per multiprocessor is limited by registers: for heads of 64, one block of three or two blocks of two. */
template <bool CAPPED> static int backward_by_dim(const op_attention_backward *b, cudaStream_t s)
{
    bool small = b->forward.dim <= 64;
    int error = small ? keys_launch<64, 3, CAPPED>(b, s) : keys_launch<128, 2, CAPPED>(b, s);
    return error ? error : small ? queries_launch<64, 2, CAPPED>(b, s) : queries_launch<128, 2, CAPPED>(b, s);
}

int attention_hopper_backward(const op_attention_backward *b, cudaStream_t s)
{
    return b->forward.softcap != 0 ? backward_by_dim<true>(b, s) : backward_by_dim<false>(b, s);
}
