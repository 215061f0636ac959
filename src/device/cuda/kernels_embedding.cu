/* kernels_embedding.cu - looks up rows of a table, and adds gradients to them.
 *
 * Backward adds in the order of the tokens, without atomics and without scratch memory. A block has one token and EMBEDDING_TILE columns.
 * It reads all ids, EMBEDDING_THREADS at a time: if an earlier token has the same id, another block does the work; else this one adds the
 * rows of all later tokens with this id.
 *
 *     ids      7  3  7  9  3  7             block 0: rows 0, 2, 5     block 1: rows 1, 4     block 3: row 3
 *     first    x  x     x                   blocks 2, 4, 5: nothing
 *
 * Reading the ids is quadratic in the number of tokens, but a unit has only some thousands. Their ids fit the L1 cache, and are small
 * compared with rows of thousands of elements.
 */
#include "device/cuda/primitives.h"
#include "device/dropout.h"

enum { EMBEDDING_THREADS = 128, EMBEDDING_TILE = EMBEDDING_THREADS * PACK, ID_WORDS = EMBEDDING_THREADS / WARP };

static int64_t embedding_blocks(int64_t rows, int64_t cols) { return rows * blocks_of(cols, EMBEDDING_TILE); }

DEVICE int64_t embedding_row(int64_t cols) { return blockIdx.x / (unsigned)((cols + EMBEDDING_TILE - 1) / EMBEDDING_TILE); }

DEVICE int64_t embedding_column(int64_t cols)
{
    unsigned tiles = (unsigned)((cols + EMBEDDING_TILE - 1) / EMBEDDING_TILE);
    return (int64_t)(blockIdx.x % tiles) * EMBEDDING_TILE + threadIdx.x * PACK;
}

/* row: its number in the step. */
DEVICE void noise_add(pack *p, const op_embedding &o, int64_t row, int64_t column)
{
    const float factor = noise_factor(o.noise);
    for (int j = 0; j < PACK; j += 2) {
        const uint64_t bits = dropout_bits(o.key, row, (column + j) / 2);
        p->x[j] += noise_value((uint32_t)bits, factor);
        p->x[j + 1] += noise_value((uint32_t)(bits >> 32), factor);
    }
}

template <pt_dtype T> __global__ void embedding_kernel(op_embedding o, float scale, bool wide)
{
    int64_t row = embedding_row(o.cols), i = embedding_column(o.cols), id = (o.ids ? o.ids[row] : row) - o.row0;
    if (id < 0 || id >= o.table_rows || i >= o.cols)
        return;
    pack x = pack_load<T>(element_at<T>(o.table, id * o.cols), i, o.cols, wide);
    for (int j = 0; j < PACK; j++)
        x.x[j] *= scale;
    if (o.noise > 0)
        noise_add(&x, o, o.first + row, i);
    if (o.position_table) {
        pack p = pack_load<T>(element_at<T>(o.position_table, o.positions[row] * o.cols), i, o.cols, wide);
        for (int j = 0; j < PACK; j++)
            x.x[j] += p.x[j];
    }
    if (o.stream)
        pack_store<PT_F32>(o.stream + row * o.cols, i, o.cols, wide, x);
    pack_store<T>(element_at<T>(o.out, row * o.cols), i, o.cols, wide, x);
}

template <pt_dtype T> static int embedding_launch(const op_embedding *o, cudaStream_t s)
{
    bool wide = is_wide(T, o->table, o->cols) && is_wide(T, o->out, 0) && is_wide(T, o->position_table, 0) &&
                is_wide(PT_F32, o->stream, 0);
    return launch(embedding_kernel<T>, embedding_blocks(o->rows, o->cols), EMBEDDING_THREADS, s, *o, op_factor(o->scale), wide);
}

int cuda_embedding(const op_embedding *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? embedding_launch<PT_BF16>(o, s) : embedding_launch<PT_F32>(o, s);
}

/* ---- backward ---- */

/* Compares ids[from ..] with `id`, one per thread: bit l of word w is for id from + 32 w + l. All threads of the block must call it. */
DEVICE void ids_compare(const op_embedding_backward &o, int64_t from, int32_t id, unsigned *words)
{
    int64_t r = from + threadIdx.x;
    unsigned word = __ballot_sync(FULL_WARP, r < o.rows && o.ids[r] == id);
    __syncthreads(); /* the previous call's words have been read */
    if (threadIdx.x % WARP == 0)
        words[threadIdx.x / WARP] = word;
    __syncthreads();
}

/* Clears the lowest bit of *word and returns its index. */
DEVICE int bit_take(unsigned *word)
{
    int bit = __ffs((int)*word) - 1;
    *word &= *word - 1;
    return bit;
}

template <pt_dtype T> __global__ void embedding_backward_kernel(op_embedding_backward o, float scale, bool wide)
{
    __shared__ unsigned words[ID_WORDS];
    int64_t row = embedding_row(o.cols), i = embedding_column(o.cols);
    int32_t id = o.ids[row];
    if (id < o.row0 || id >= o.row0 + o.table_rows || id == o.skip)
        return;
    float *acc = o.acc + (id - o.row0) * o.cols;
    pack sum = pack_load<PT_F32>(acc, i, o.cols, wide);
    for (int64_t from = 0; from < o.rows; from += EMBEDDING_THREADS) {
        ids_compare(o, from, id, words);
        for (int w = 0; w < ID_WORDS; w++)
            for (unsigned word = words[w]; word;) {
                int64_t r = from + w * WARP + bit_take(&word);
                if (r < row)
                    return; /* the whole block returns: the block of token r adds this id's rows */
                pack dy = pack_load<T>(element_at<T>(o.dy, r * o.cols), i, o.cols, wide);
                for (int j = 0; j < PACK; j++)
                    sum.x[j] += scale * dy.x[j];
            }
    }
    pack_store<PT_F32>(acc, i, o.cols, wide, sum);
}

template <pt_dtype T> static int embedding_backward_launch(const op_embedding_backward *o, cudaStream_t s)
{
    bool wide = is_wide(T, o->dy, o->cols) && is_wide(PT_F32, o->acc, o->cols);
    if (!o->accumulate) {
        int status = cudaMemsetAsync(o->acc, 0, (size_t)(o->table_rows * o->cols) * sizeof *o->acc, s);
        if (status)
            return status;
    }
    return launch(embedding_backward_kernel<T>, embedding_blocks(o->rows, o->cols), EMBEDDING_THREADS, s, *o, op_factor(o->scale),
                  wide);
}

int cuda_embedding_backward(const op_embedding_backward *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? embedding_backward_launch<PT_BF16>(o, s) : embedding_backward_launch<PT_F32>(o, s);
}
