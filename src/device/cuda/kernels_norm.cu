/* kernels_norm.cu - normalisation: a warp for a short row, a block for a long one.
 *
 * A row is read three times (mean, variance, result); only the first comes from memory, the others from the
 * nearest cache, so no bound on its length is needed.
 *
 * Backward is two kernels. The first leaves four numbers for each vector (a row of one head) in the scratch;
 * with them, what remains is elementwise, and the second can go down the columns, which the sums dweight and
 * dbias want, while it writes dx over dy:
 *
 *     scratch   | mean, 1/deviation, mean(d), mean(d u) of vector 0 | of vector 1 | ... | partial sums |
 *
 *     columns   0 .. 15   16 .. 31   ...           a block takes 16 columns of one part of the vectors;
 *     part 0    block 0    block 1                 short vectors, of which there are many, are cut into
 *     part 1    block k    ...                     several parts, whose sums a third kernel adds up
 */
#include "device/cuda/columns.h"
#include "device/cuda/primitives.h"

enum { SHORT_ROW = 1024 /* elements that a warp takes */, NORM_THREADS = 256 };

/* What `threads` consecutive threads, a warp or a block, do with one vector. */
typedef struct row_team { int64_t vector; int index, threads; } row_team;

template <bool BLOCK> DEVICE row_team row_team_of(void)
{
    row_team t;
    t.vector = BLOCK ? (int64_t)blockIdx.x : (int64_t)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
    t.threads = BLOCK ? (int)blockDim.x : WARP;
    t.index = (int)threadIdx.x % t.threads;
    return t;
}

template <bool BLOCK> DEVICE float team_sum(float x) { return BLOCK ? block_sum(x) : warp_sum(x); }

/* Blocks of NORM_THREADS for this many vectors. */
static int64_t team_blocks(int64_t vectors, int64_t dim)
{
    return dim > SHORT_ROW ? vectors : blocks_of(vectors, NORM_THREADS / WARP);
}

typedef struct moments { float mean, rstd; } moments;

template <pt_dtype T, bool BLOCK>
DEVICE moments row_moments(row_team t, const void *x, int64_t dim, norm_kind kind, float eps, bool wide)
{
    moments m = {0.0f, 0.0f};
    float sum = 0.0f;
    if (kind == NORM_LAYER) {
        for (int64_t i = t.index * PACK; i < dim; i += t.threads * PACK)
            sum += pack_sum(pack_load<T>(x, i, dim, wide));
        m.mean = __fdiv_rn(team_sum<BLOCK>(sum), (float)dim);
    }
    sum = 0.0f;
    for (int64_t i = t.index * PACK; i < dim; i += t.threads * PACK) {
        pack p = pack_load<T>(x, i, dim, wide);
        for (int j = 0; j < PACK; j++) {
            float d = i + j < dim ? p.x[j] - m.mean : 0.0f;
            p.x[j] = d * d;
        }
        sum += pack_sum(p);
    }
    float variance = __fdiv_rn(team_sum<BLOCK>(sum), (float)dim);
    m.rstd = __fdiv_rn(1.0f, __fsqrt_rn(variance + eps));
    return m;
}

template <pt_dtype T, bool BLOCK> __global__ void norm_kernel(op_norm o, bool wide)
{
    row_team t = row_team_of<BLOCK>();
    if (t.vector >= o.rows * o.heads)
        return;
    int64_t row = t.vector / o.heads, column = t.vector % o.heads * o.dim;
    const void *x = element_at<T>(o.x, row * o.ldx + column);
    void *y = element_at<T>(o.y, row * o.ldy + column);
    moments m = row_moments<T, BLOCK>(t, x, o.dim, o.kind, o.eps, wide);
    for (int64_t i = t.index * PACK; i < o.dim; i += t.threads * PACK) {
        pack p = pack_load<T>(x, i, o.dim, wide), w = pack_load<PT_F32>(o.weight, i, o.dim, wide), b = {{0}};
        if (o.bias)
            b = pack_load<PT_F32>(o.bias, i, o.dim, wide);
        for (int j = 0; j < PACK; j++)
            p.x[j] = fmaf((p.x[j] - m.mean) * m.rstd, w.x[j], b.x[j]);
        pack_store<T>(y, i, o.dim, wide, p);
    }
}

template <pt_dtype T> static int norm_launch(const op_norm *o, cudaStream_t s)
{
    int64_t vectors = o->rows * o->heads, blocks = team_blocks(vectors, o->dim);
    bool wide = is_wide(T, o->x, o->ldx) && is_wide(T, o->y, o->ldy) && is_wide(PT_F32, o->weight, 0) &&
                is_wide(PT_F32, o->bias, 0) && (o->heads == 1 || is_wide(T, o->x, o->dim));
    if (o->dim > SHORT_ROW)
        return launch(norm_kernel<T, true>, blocks, NORM_THREADS, s, *o, wide);
    return launch(norm_kernel<T, false>, blocks, NORM_THREADS, s, *o, wide);
}

int cuda_norm(const op_norm *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? norm_launch<PT_BF16>(o, s) : norm_launch<PT_F32>(o, s);
}

/* ---- backward: rows ---- */

/* With u = (x - mean) rstd and d = dy * weight. */
typedef struct norm_means { float mean, rstd, d, du; } norm_means;

/* Where vector v of x, dy, and dx begins. */
DEVICE int64_t vector_at(int64_t v, int64_t heads, int64_t dim, int64_t ld)
{
    return v / heads * ld + v % heads * dim;
}

template <pt_dtype T, bool BLOCK> __global__ void norm_backward_rows(op_norm_backward o, bool wide)
{
    row_team t = row_team_of<BLOCK>();
    if (t.vector >= o.rows * o.heads)
        return;
    const void *x = element_at<T>(o.x, vector_at(t.vector, o.heads, o.dim, o.ldx));
    const void *dy = element_at<T>(o.dy, vector_at(t.vector, o.heads, o.dim, o.lddy));
    moments m = row_moments<T, BLOCK>(t, x, o.dim, o.kind, o.eps, wide);
    float sum_d = 0.0f, sum_du = 0.0f;
    for (int64_t i = t.index * PACK; i < o.dim; i += t.threads * PACK) {
        pack p = pack_load<T>(x, i, o.dim, wide), d = pack_load<T>(dy, i, o.dim, wide);
        pack w = pack_load<PT_F32>(o.weight, i, o.dim, wide);
        for (int j = 0; j < PACK; j++) { /* beyond the row dy is 0 */
            d.x[j] *= w.x[j];
            p.x[j] = i + j < o.dim ? d.x[j] * ((p.x[j] - m.mean) * m.rstd) : 0.0f;
        }
        sum_d += pack_sum(d);
        sum_du += pack_sum(p);
    }
    norm_means means = {m.mean, m.rstd, 0.0f, 0.0f};
    if (o.kind == NORM_LAYER)
        means.d = __fdiv_rn(team_sum<BLOCK>(sum_d), (float)o.dim);
    means.du = __fdiv_rn(team_sum<BLOCK>(sum_du), (float)o.dim);
    if (t.index == 0)
        ((norm_means *)o.scratch)[t.vector] = means;
}

/* ---- backward: columns ---- */

static int norm_parts(int64_t vectors, int64_t dim)
{
    int64_t parts = NORM_PARTIALS / dim, most = blocks_of(vectors, COLUMN_SLOTS);
    parts = parts < most ? parts : most;
    return parts > 64 ? 64 : parts > 1 ? (int)parts : 1;
}

/* Vector v's part of the columns at `column`: dx, and what it adds to the sums. */
template <pt_dtype T>
DEVICE void norm_backward_pack(op_norm_backward o, int64_t v, int64_t column, pack w, bool wide, pack *dweight, pack *dbias)
{
    int64_t dx_at = vector_at(v, o.heads, o.dim, o.lddx);
    norm_means m = ((const norm_means *)o.scratch)[v];
    pack x = pack_load<T>(element_at<T>(o.x, vector_at(v, o.heads, o.dim, o.ldx)), column, o.dim, wide);
    pack dy = pack_load<T>(element_at<T>(o.dy, vector_at(v, o.heads, o.dim, o.lddy)), column, o.dim, wide);
    pack add, stream, dx;
    if (o.dx_add)
        add = pack_load<T>(element_at<T>(o.dx_add, dx_at), column, o.dim, wide);
    if (o.stream_add)
        stream = pack_load<PT_F32>(o.stream_add + dx_at, column, o.dim, wide);
    for (int j = 0; j < PACK; j++) {
        float u = (x.x[j] - m.mean) * m.rstd, d = dy.x[j] * w.x[j] - m.d;
        dx.x[j] = fmaf(-u, m.du, d) * m.rstd;
        if (o.dx_add)
            dx.x[j] = dx.x[j] + add.x[j];
        if (o.stream_add)
            dx.x[j] = dx.x[j] + stream.x[j];
        dweight->x[j] = fmaf(dy.x[j], u, dweight->x[j]);
        dbias->x[j] += dy.x[j];
    }
    if (o.stream)
        pack_store<PT_F32>(o.stream + dx_at, column, o.dim, wide, dx);
    pack_store<T>(element_at<T>(o.dx, dx_at), column, o.dim, wide, dx);
}

/* Sums of part p of the vectors go to dweight and dbias where there is but one part, else to sums[p]. */
template <pt_dtype T> __global__ void norm_backward_columns(op_norm_backward o, int parts, float *sums, bool wide)
{
    column_place at = column_place_of(o.dim, parts);
    int64_t vectors = o.rows * o.heads, size = (vectors + parts - 1) / parts;
    int64_t end = (at.part + 1) * size < vectors ? (at.part + 1) * size : vectors;
    pack dweight = {{0}}, dbias = {{0}};
    if (at.column < o.dim) {
        pack w = pack_load<PT_F32>(o.weight, at.column, o.dim, wide);
        for (int64_t v = at.part * size + at.slot; v < end; v += COLUMN_SLOTS)
            norm_backward_pack<T>(o, v, at.column, w, wide, &dweight, &dbias);
    }
    if (parts > 1) {
        column_store(at, dweight, sums + at.part * 2 * o.dim, o.dim, false);
        column_store(at, dbias, sums + (at.part * 2 + 1) * o.dim, o.dim, false);
        return;
    }
    column_store(at, dweight, o.dweight, o.dim, o.accumulate);
    column_store(at, dbias, o.dbias, o.dim, o.accumulate);
}

/* out[i] (+)= the parts' sums[part][i], in ascending order. */
__global__ void norm_backward_total(op_norm_backward o, int parts, const float *sums)
{
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    float *out = i < o.dim ? o.dweight : o.dbias;
    int64_t at = i < o.dim ? i : i - o.dim;
    if (i >= 2 * o.dim || !out)
        return;
    float total = 0.0f;
    for (int part = 0; part < parts; part++)
        total += sums[part * 2 * o.dim + i];
    out[at] = o.accumulate ? out[at] + total : total;
}

template <pt_dtype T> static int norm_backward_launch(const op_norm_backward *o, cudaStream_t s)
{
    int64_t vectors = o->rows * o->heads;
    bool wide = is_wide(T, o->x, o->ldx) && is_wide(T, o->dy, o->lddy) && is_wide(T, o->dx, o->lddx) &&
                is_wide(T, o->dx_add, 0) && is_wide(PT_F32, o->stream_add, 0) && is_wide(PT_F32, o->stream, 0) &&
                is_wide(PT_F32, o->weight, 0) && (o->heads == 1 || is_wide(T, o->x, o->dim));
    int64_t blocks = team_blocks(vectors, o->dim);
    int status = o->dim > SHORT_ROW ? launch(norm_backward_rows<T, true>, blocks, NORM_THREADS, s, *o, wide)
                                    : launch(norm_backward_rows<T, false>, blocks, NORM_THREADS, s, *o, wide);
    if (status)
        return status;
    int parts = norm_parts(vectors, o->dim);
    float *sums = (float *)((norm_means *)o->scratch + vectors);
    status = launch(norm_backward_columns<T>, parts * blocks_of(o->dim, COLUMN_TILE), COLUMN_THREADS, s, *o, parts, sums, wide);
    if (status || parts == 1 || (!o->dweight && !o->dbias))
        return status;
    return launch(norm_backward_total, blocks_of(2 * o->dim, NORM_THREADS), NORM_THREADS, s, *o, parts, (const float *)sums);
}

int cuda_norm_backward(const op_norm_backward *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? norm_backward_launch<PT_BF16>(o, s) : norm_backward_launch<PT_F32>(o, s);
}
