/* kernels_grouped_matmul.cu - matmuls of experts. A block computes tiles of c, every `blocks`-th of the list of all experts' tiles, which
 * it derives from the ends of their rows:
 *
 *     expert 0: its rows in tiles, times the tiles of columns | expert 1 | ...            a tail tile masks what is not there
 *
 * bf16 with 16-byte lines runs on the tensor cores: a tile is 128 x 128, of which each of eight warps has 64 x 32. Blocks of 32 k of both
 * operands pass through a ring of three stages in shared memory, loaded from where rows are. All else is summed by a thread per result.
 * Sums go along k in order, so a row's bits depend on nothing but the row. */
#include "device/cuda/experts.h"

enum { TILE = 128, TILE_K = 32, STAGES = 3, MATMUL_THREADS = 256, SIDE = 16, SIDE_THREADS = SIDE * SIDE };

/* ---- the list of tiles ---- */

typedef struct tile_list { int *begin /* of each expert's tiles, and the end */, experts; int64_t across; } tile_list;

DEVICE int64_t rows_of(const op_grouped_matmul &o, int64_t expert)
{
    return expert_begin(o.range, o.range.first + expert + 1) - expert_begin(o.range, o.range.first + expert);
}

/* For all threads of the block. begin: EXPERTS_MOST + 1 ints in shared memory. */
DEVICE tile_list list_tiles(const op_grouped_matmul &o, int *begin, int side)
{
    __shared__ int totals[MATMUL_THREADS];
    const int experts = (int)o.range.experts, threads = blockDim.x, each = (experts + threads - 1) / threads;
    const int first = (int)threadIdx.x * each, end = first + each < experts ? first + each : experts;
    tile_list l = {begin, experts, (o.of.n + side - 1) / side};
    int sum = 0;
    for (int e = first; e < end; e++) {
        const int64_t rows = rows_of(o, e), height = o.of.layout != MATMUL_TN ? rows : rows || !o.of.accumulate ? o.of.m : 0;
        begin[e] = sum;
        sum += (int)((height + side - 1) / side * l.across);
    }
    totals[threadIdx.x] = sum;
    __syncthreads();
    int before = 0;
    for (int i = 0; i < (int)threadIdx.x; i++)
        before += totals[i];
    for (int e = first; e < end; e++)
        begin[e] += before;
    if ((int)threadIdx.x == threads - 1)
        begin[experts] = before + sum;
    __syncthreads();
    return l;
}

/* A tile: of the expert, rows (TN: of c; else of the expert) and columns from there on. */
typedef struct tile_place { int64_t expert, row, col; } tile_place;

DEVICE tile_place tile_at(const tile_list &l, int tile, int side)
{
    int low = 0, high = l.experts;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (l.begin[middle] <= tile)
            low = middle;
        else
            high = middle;
    }
    const int64_t i = tile - l.begin[low];
    return {low, i / l.across * side, i % l.across * side};
}

/* ---- operands of a tile ---- */

/* Line i lies at base + row * ld, where row is i, or order[first + i] / k. */
typedef struct lines { const void *base; int64_t ld, first; const int32_t *order; int k; } lines;

DEVICE int64_t line_row(const lines &l, int64_t i) { return l.order ? l.order[l.first + i] / l.k : i; }

template <pt_dtype T> DEVICE lines lines_at(const op_grouped_matmul &o, row_place place, const void *base, int64_t ld, int64_t row)
{
    if (place == AT_TOKEN)
        return {base, ld, row, o.order, (int)o.k};
    return {element_at<T>(base, place_of_row(place, NULL, 1, range_begin(o.range), row) * ld), ld, 0, NULL, 1};
}

/* A part of a tile's sum: a has rows lines of m (TN: of k), b lines of n (NT) or of k. */
typedef struct operands { lines a, b; int64_t rows, cols, k; } operands;

/* The first or the second part of an expert's sum over k, for a tile of its rows. */
template <pt_dtype T> DEVICE operands operands_of(const op_grouped_matmul &o, const tile_place &t, bool more, int side)
{
    const op_matmul &m = o.of;
    const int64_t row = expert_begin(o.range, o.range.first + t.expert) + t.row, left = rows_of(o, t.expert) - t.row;
    const int64_t ldb = more ? m.more_ldb : m.ldb, at = m.layout == MATMUL_NT ? t.col * ldb : t.col;
    operands x;
    x.a = more ? lines_at<T>(o, o.c_at, m.more_a, m.more_lda, row) : lines_at<T>(o, o.a_at, m.a, m.lda, row);
    x.b = {element_at<T>(more ? m.more_b : m.b, t.expert * (more ? o.more_b_step : o.b_step) + at), ldb, 0, NULL, 1};
    x.rows = left < side ? left : side;
    x.cols = m.n - t.col < side ? m.n - t.col : side;
    x.k = more ? m.more_k : m.k;
    return x;
}

/* Rows block .. block + k of the expert, of a sum over them. */
template <pt_dtype T> DEVICE operands operands_of_sum(const op_grouped_matmul &o, const tile_place &t, int64_t block, int side)
{
    const op_matmul &m = o.of;
    const int64_t row = expert_begin(o.range, o.range.first + t.expert) + block, left = rows_of(o, t.expert) - block;
    operands x = {lines_at<T>(o, o.a_at, m.a, m.lda, row), lines_at<T>(o, o.b_at, m.b, m.ldb, row), m.m - t.row, m.n - t.col,
                  left < EXPERT_BLOCK_ROWS ? left : (int64_t)EXPERT_BLOCK_ROWS};
    x.a.base = element_at<T>(x.a.base, t.row);
    x.b.base = element_at<T>(x.b.base, t.col);
    x.rows = x.rows < side ? x.rows : side;
    x.cols = x.cols < side ? x.cols : side;
    return x;
}

/* Where an expert's bias and the tile's c are. */
typedef struct result { const void *bias; void *c; int64_t ld; bool accumulate; } result;

template <pt_dtype T, pt_dtype OUT> DEVICE result result_of(const op_grouped_matmul &o, const tile_place &t)
{
    const op_matmul &m = o.of;
    const bool sums = m.layout == MATMUL_TN;
    const int64_t row = expert_begin(o.range, o.range.first + t.expert) + t.row;
    const int64_t line = sums ? t.row : place_of_row(o.c_at, NULL, 1, range_begin(o.range), row);
    return {m.bias ? element_at<T>(m.bias, t.expert * m.n + t.col) : NULL,
            element_at<OUT>(m.c, (sums ? t.expert * o.c_step : 0) + line * m.ldc + t.col), m.ldc, m.accumulate};
}

template <pt_dtype T, pt_dtype OUT> DEVICE void result_put(const result &r, int64_t row, int64_t col, float sum, float alpha)
{
    const int64_t at = row * r.ld + col;
    sum = alpha * sum;
    if (r.bias)
        sum += element_load<T>(r.bias, col);
    element_store<OUT>(r.c, at, r.accumulate ? element_load<OUT>(r.c, at) + sum : sum);
}

/* ---- tensor cores ---- */

/* INSIDE: k is inside lines. A tile has TILE lines of TILE_K, or TILE_K of TILE. */
template <bool INSIDE> struct side_shape {
    static const int LINES = INSIDE ? (int)TILE : (int)TILE_K, LENGTH = INSIDE ? (int)TILE_K : (int)TILE, LD = LENGTH + TILE_PAD;
    static const int BYTES = LINES * LD * 2;
};
template <matmul_layout L> struct stage_shape {
    typedef side_shape<L != MATMUL_TN> A;
    typedef side_shape<L == MATMUL_NT> B;
    static const int BYTES = A::BYTES + B::BYTES, SHARED = STAGES * BYTES;
};

/* Starts copying k .. k + TILE_K of an operand with n lines across k. */
template <bool INSIDE> DEVICE void side_copy(uint16_t *tile, const lines &l, int64_t n, int64_t k, int64_t all_k)
{
    typedef side_shape<INSIDE> S;
    const int64_t count = INSIDE ? n : all_k - k, length = INSIDE ? all_k - k : n;
    for (int i = threadIdx.x; i < S::LINES * S::LENGTH / PACK; i += MATMUL_THREADS) {
        const int line = i / (S::LENGTH / PACK), at = i % (S::LENGTH / PACK) * PACK;
        const bool there = line < count && at < length;
        const uint16_t *from = (const uint16_t *)l.base;
        if (there)
            from += line_row(l, INSIDE ? line : k + line) * l.ld + (INSIDE ? k : 0) + at;
        copy_async(tile + line * S::LD + at, from, there);
    }
}

template <matmul_layout L> DEVICE void stage_load(unsigned char *shared, const operands &x, int64_t step)
{
    typedef stage_shape<L> S;
    unsigned char *at = shared + step % STAGES * S::BYTES;
    if (step * TILE_K < x.k) {
        side_copy<L != MATMUL_TN>((uint16_t *)at, x.a, x.rows, step * TILE_K, x.k);
        side_copy<L == MATMUL_NT>((uint16_t *)(at + S::A::BYTES), x.b, x.cols, step * TILE_K, x.k);
    }
    copies_commit();
}

enum { WARP_ROWS = 64, WARP_COLS = 32, ROW_TILES = WARP_ROWS / 16, COL_TILES = WARP_COLS / 8 };
typedef struct warp_sums { float of[ROW_TILES][COL_TILES][4]; } warp_sums;

template <matmul_layout L> DEVICE void stage_multiply(warp_sums *s, const unsigned char *at, int row, int col)
{
    typedef stage_shape<L> S;
    const uint16_t *a_tile = (const uint16_t *)at, *b_tile = (const uint16_t *)(at + S::A::BYTES);
#pragma unroll
    for (int k = 0; k < TILE_K; k += 16) {
        uint32_t a[ROW_TILES][4], b[COL_TILES / 2][4];
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++)
            if (L != MATMUL_TN)
                load_a<S::A::LD>(a[i], a_tile, row + i * 16, k);
            else
                load_a_transposed<S::A::LD>(a[i], a_tile, row + i * 16, k);
#pragma unroll
        for (int j = 0; j < COL_TILES / 2; j++)
            if (L == MATMUL_NT)
                load_b<S::B::LD>(b[j], b_tile, k, col + j * 16);
            else
                load_b_transposed<S::B::LD>(b[j], b_tile, k, col + j * 16);
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
            for (int j = 0; j < COL_TILES; j++)
                mma(s->of[i][j], a[i], b[j / 2] + j % 2 * 2);
    }
}

/* Adds a part of the sum. */
template <matmul_layout L> DEVICE void add_part(warp_sums *s, unsigned char *shared, const operands &x, int row, int col)
{
    const int64_t steps = (x.k + TILE_K - 1) / TILE_K;
    for (int step = 0; step < STAGES - 1; step++)
        stage_load<L>(shared, x, step);
    for (int64_t step = 0; step < steps; step++) {
        copies_wait<STAGES - 2>();
        __syncthreads();
        stage_load<L>(shared, x, step + STAGES - 1);
        stage_multiply<L>(s, shared + step % STAGES * stage_shape<L>::BYTES, row, col);
    }
    copies_wait<0>();
    __syncthreads();
}

template <pt_dtype OUT> DEVICE void put_sums(const result &r, const warp_sums &s, int row, int col, int64_t rows, int64_t cols, float alpha)
{
    const int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int j = 0; j < COL_TILES; j++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const int y = row + i * 16 + g + c / 2 * 8, x = col + j * 8 + t + c % 2;
                if (y < rows && x < cols)
                    result_put<PT_BF16, OUT>(r, y, x, s.of[i][j][c], alpha);
            }
}

DEVICE void clear_sums(warp_sums *s)
{
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int j = 0; j < COL_TILES; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                s->of[i][j][c] = 0;
}

template <matmul_layout L, pt_dtype OUT>
__global__ void __launch_bounds__(MATMUL_THREADS) grouped_tiles_kernel(op_grouped_matmul o, int blocks, float alpha)
{
    SHARED_BYTES(shared);
    __shared__ int begin[EXPERTS_MOST + 1];
    const tile_list list = list_tiles(o, begin, TILE);
    const int warp = threadIdx.x / WARP, row = warp / 4 * WARP_ROWS, col = warp % 4 * WARP_COLS;
    for (int tile = blockIdx.x; tile < begin[list.experts]; tile += blocks) {
        const tile_place t = tile_at(list, tile, TILE);
        result r = result_of<PT_BF16, OUT>(o, t);
        const int64_t last = L == MATMUL_TN ? rows_of(o, t.expert) : 1;
        int64_t block = 0;
        do {
            const operands x = L == MATMUL_TN ? operands_of_sum<PT_BF16>(o, t, block, TILE) : operands_of<PT_BF16>(o, t, false, TILE);
            warp_sums sums;
            clear_sums(&sums);
            add_part<L>(&sums, shared, x, row, col);
            if (L != MATMUL_TN && o.of.more_k)
                add_part<L>(&sums, shared, operands_of<PT_BF16>(o, t, true, TILE), row, col);
            put_sums<OUT>(r, sums, row, col, x.rows, x.cols, alpha);
            r.accumulate = true;
            block += EXPERT_BLOCK_ROWS;
        } while (block < last);
    }
}

/* ---- a thread per result ---- */

template <pt_dtype T> DEVICE float side_load(const lines &l, bool inside, int64_t i, int64_t k)
{
    return inside ? element_load<T>(l.base, line_row(l, i) * l.ld + k) : element_load<T>(l.base, line_row(l, k) * l.ld + i);
}

template <pt_dtype T> DEVICE float side_sum(matmul_layout layout, const operands &x, float sum)
{
    __shared__ float a[SIDE][SIDE + 1], b[SIDE][SIDE + 1];
    const int i = threadIdx.x % SIDE, j = threadIdx.x / SIDE;
    for (int64_t k = 0; k < x.k; k += SIDE) {
        a[j][i] = j < x.rows && k + i < x.k ? side_load<T>(x.a, layout != MATMUL_TN, j, k + i) : 0.0f;
        b[j][i] = k + j < x.k && i < x.cols ? side_load<T>(x.b, layout == MATMUL_NT, i, k + j) : 0.0f;
        __syncthreads();
        for (int l = 0; l < SIDE; l++)
            sum = fmaf(a[j][l], b[l][i], sum);
        __syncthreads();
    }
    return sum;
}

template <pt_dtype T, pt_dtype OUT>
__global__ void __launch_bounds__(SIDE_THREADS) grouped_plain_kernel(op_grouped_matmul o, int blocks, float alpha)
{
    __shared__ int begin[EXPERTS_MOST + 1];
    const tile_list list = list_tiles(o, begin, SIDE);
    const bool sums = o.of.layout == MATMUL_TN;
    for (int tile = blockIdx.x; tile < begin[list.experts]; tile += blocks) {
        const tile_place t = tile_at(list, tile, SIDE);
        result r = result_of<T, OUT>(o, t);
        const int64_t last = sums ? rows_of(o, t.expert) : 1;
        int64_t block = 0;
        do {
            const operands x = sums ? operands_of_sum<T>(o, t, block, SIDE) : operands_of<T>(o, t, false, SIDE);
            float sum = side_sum<T>(o.of.layout, x, 0);
            if (!sums && o.of.more_k)
                sum = side_sum<T>(o.of.layout, operands_of<T>(o, t, true, SIDE), sum);
            if ((int)threadIdx.x / SIDE < x.rows && (int)threadIdx.x % SIDE < x.cols)
                result_put<T, OUT>(r, threadIdx.x / SIDE, threadIdx.x % SIDE, sum, alpha);
            r.accumulate = true;
            block += EXPERT_BLOCK_ROWS;
        } while (block < last);
    }
}

/* ---- launches ---- */

static bool whole_words(int64_t n) { return n % PACK == 0; }

/* Whether all lines begin and end at 16 bytes. */
static bool by_tiles(const op_grouped_matmul *o)
{
    const op_matmul *m = &o->of;
    const bool words = whole_words(m->layout == MATMUL_TN ? m->m : m->k) && whole_words(m->more_k) &&
                       (m->layout == MATMUL_NT || whole_words(m->n)) && whole_words(o->b_step) && whole_words(o->more_b_step);
    return m->type == PT_BF16 && words && is_wide(PT_BF16, m->a, m->lda) && is_wide(PT_BF16, m->b, m->ldb) &&
           (!m->more_k || (is_wide(PT_BF16, m->more_a, m->more_lda) && is_wide(PT_BF16, m->more_b, m->more_ldb)));
}

template <matmul_layout L> static int tiles_launch(const op_grouped_matmul *o, int blocks, cudaStream_t s)
{
    const float alpha = op_factor(o->of.alpha);
    const int shared = stage_shape<L>::SHARED;
    return o->of.out_type == PT_F32 ? launch_shared(grouped_tiles_kernel<L, PT_F32>, blocks, MATMUL_THREADS, shared, s, *o, blocks, alpha)
                                    : launch_shared(grouped_tiles_kernel<L, PT_BF16>, blocks, MATMUL_THREADS, shared, s, *o, blocks, alpha);
}

static int plain_launch(const op_grouped_matmul *o, int blocks, cudaStream_t s)
{
    const float alpha = op_factor(o->of.alpha);
    if (o->of.type == PT_F32)
        return launch(grouped_plain_kernel<PT_F32, PT_F32>, blocks, SIDE_THREADS, s, *o, blocks, alpha);
    return o->of.out_type == PT_F32 ? launch(grouped_plain_kernel<PT_BF16, PT_F32>, blocks, SIDE_THREADS, s, *o, blocks, alpha)
                                    : launch(grouped_plain_kernel<PT_BF16, PT_BF16>, blocks, SIDE_THREADS, s, *o, blocks, alpha);
}

int cuda_grouped_matmul(const op_grouped_matmul *o, cudaStream_t s)
{
    const bool tiles = by_tiles(o);
    int blocks, error = blocks_over_work(tiles ? 1 : (int)BLOCKS_EACH, &blocks);
    if (error)
        return error;
    if (!tiles)
        return plain_launch(o, blocks, s);
    switch (o->of.layout) {
    case MATMUL_NT: return tiles_launch<MATMUL_NT>(o, blocks, s);
    case MATMUL_NN: return tiles_launch<MATMUL_NN>(o, blocks, s);
    default: return tiles_launch<MATMUL_TN>(o, blocks, s);
    }
}
