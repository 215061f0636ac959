/* kernels_norm.cu - normalisation and its backward, each row read from memory once.
 *
 * A vector (a row of one head) belongs to a team of threads: some lanes of a warp, or whole warps, so that each thread has one pack of it,
 * or two of a long one. The team keeps the vector in registers between its sums and the result. If vectors are short, a block has several
 * teams, which have vectors of their own:
 *
 *     dim 128     16 lanes per vector             16 teams, two per warp
 *     dim 768     3 warps                         4 teams
 *     dim 2048    8 warps                         1 team
 *     dim 4096    8 warps, two packs per thread   1 team
 *
 * The number of threads of a vector and the tree of its sums depend only on dim. While a team sums a vector, its next one is being loaded:
 * a multiprocessor has 40 to 60 KB of reads in flight, more than enough for the latency of its memory, with a third of the threads that it
 * could have.
 *
 * Backward divides the vectors into parts, one per block, by their number alone. A thread sums dweight and dbias of its columns over the
 * vectors of its team; then the block adds its teams' sums, ascending, and writes them to the scratch. A second kernel adds the parts in a
 * fixed tree:
 *
 *     scratch   | part 0: dweight (dim), dbias (dim) | part 1: ... |
 *
 * For a vector of more than 2 * NORM_THREADS_MOST packs, a block reads it again for each sum, and keeps its sums over vectors in the
 * scratch.
 */
#include "device/cuda/primitives.h"

enum { NORM_THREADS = 384 /* the most of a block with several teams */, NORM_THREADS_MOST = 512, NORM_WARPS = NORM_THREADS_MOST / WARP };
enum { ONE_PACK = 2048 /* the longest vector with one pack per thread */, TWO_PACKS = 2 * PACK * NORM_THREADS_MOST };
enum { FORWARD_TURNS = 4 /* vectors per team in the forward pass */ };
enum { VECTORS_MOST = 1 << 30 };
enum { TOTAL_COLUMNS = WARP, TOTAL_SLOTS = 32 };

/* How vectors are assigned to threads: `lanes` lanes of a warp share a vector, or all lanes of several warps. */
typedef struct norm_teams {
    int lanes, warps, threads /* per team */, teams /* per block */, vectors /* per block */, all /* vectors of the op */, dim;
    float share; /* 1 / dim */
} norm_teams;

static norm_teams norm_teams_of(int64_t dim, int64_t vectors)
{
    norm_teams g = {WARP, 1, WARP, 1, 0, (int)vectors, (int)dim, 1.0f / (float)dim};
    int64_t packs = dim <= ONE_PACK ? blocks_of(dim, PACK) : blocks_of(dim, 2 * PACK);
    if (packs <= WARP)
        g.threads = g.lanes = packs <= WARP / 4 ? WARP / 4 : packs <= WARP / 2 ? WARP / 2 : WARP;
    else
        g.warps = dim > TWO_PACKS ? (int)NORM_WARPS : (int)blocks_of(packs, WARP), g.threads = g.warps * WARP;
    if (dim <= ONE_PACK)
        g.teams = packs <= WARP ? 256 / g.threads : g.threads < NORM_THREADS ? NORM_THREADS / g.threads : 1;
    return g;
}

/* The offset of vector v in x, y, dy or dx. */
DEVICE int64_t vector_at(int v, int64_t heads, int64_t dim, int64_t ld)
{
    if (heads == 1)
        return v * ld;
    int row = v / (int)heads; /* there are no more heads than vectors */
    return row * ld + (v - row * (int)heads) * dim;
}

/* A thread's team, the column of its first pack, the step to its next pack, and the half of the shared memory for the next sums. */
typedef struct norm_place { int team, column, step, turn; } norm_place;

DEVICE norm_place norm_place_of(const norm_teams &g)
{
    norm_place p = {(int)threadIdx.x / g.threads, (int)threadIdx.x % g.threads * PACK, g.threads * PACK, 0};
    return p;
}

/* Replaces each of s[] by its sum over the team. All threads of the block must call it. Calls alternate between two halves of the shared
 * memory, so that results are not overwritten while they are read. */
template <int N> DEVICE void team_sums(const norm_teams &g, norm_place *p, float *s)
{
    __shared__ float4 of_warp[2][NORM_WARPS];
    for (int distance = WARP / 2; distance; distance /= 2)
        if (distance < g.lanes)
            for (int k = 0; k < N; k++)
                s[k] += __shfl_xor_sync(FULL_WARP, s[k], distance);
    if (g.warps == 1)
        return;
    float4 *half = of_warp[p->turn];
    p->turn ^= 1;
    if (threadIdx.x % WARP == 0) {
        float4 *to = &half[threadIdx.x / WARP];
        to->x = s[0], to->y = N > 1 ? s[N > 1] : 0.0f, to->z = N > 2 ? s[N > 2 ? 2 : 0] : 0.0f, to->w = 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < N; k++)
        s[k] = 0.0f;
#pragma unroll 2
    for (int w = p->team * g.warps; w < (p->team + 1) * g.warps; w++) {
        float4 x = half[w];
        float part[4] = {x.x, x.y, x.z, x.w};
        for (int k = 0; k < N; k++)
            s[k] += part[k];
    }
}

DEVICE float rstd_of(float variance, float eps) { return __frcp_rn(__fsqrt_rn(variance + eps)); }

/* x - mean; zeros past the row (with WIDE there are no partial packs). */
template <bool WIDE> DEVICE pack centred(pack x, float mean, int at, int dim)
{
    for (int j = 0; j < PACK; j++)
        x.x[j] = WIDE || at + j < dim ? x.x[j] - mean : 0.0f;
    return x;
}

DEVICE float pack_squares(pack p)
{
    for (int j = 0; j < PACK; j++)
        p.x[j] = p.x[j] * p.x[j];
    return pack_sum(p);
}

/* A thread's packs of a vector, at column, column + step, ... . With WIDE dim is a multiple of PACK. */
template <pt_dtype T, int PACKS> struct packed_set { packed<T> of[PACKS]; };

template <pt_dtype T, bool WIDE> DEVICE packed<T> part_load(const void *row, int64_t at, int64_t end)
{
    return WIDE ? packed_whole<T>(row, at) : packed_load<T>(row, at, end, false);
}

template <pt_dtype T, bool WIDE> DEVICE void part_store(void *row, int64_t at, int64_t end, pack p)
{
    if (WIDE)
        pack_whole_store<T>(row, at, p);
    else
        pack_store<T>(row, at, end, false, p);
}

template <bool WIDE> DEVICE pack floats_load(const float *row, int64_t at, int64_t end)
{
    return packed_values<PT_F32>(part_load<PT_F32, WIDE>(row, at, end));
}

template <pt_dtype T, bool WIDE, int PACKS>
DEVICE packed_set<T, PACKS> set_load(const void *row, bool there, const norm_place &p, int dim)
{
    packed_set<T, PACKS> set = {};
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int at = p.column + k * p.step;
        if (there && at < dim)
            set.of[k] = part_load<T, WIDE>(row, at, dim);
    }
    return set;
}

template <pt_dtype T, int PACKS> DEVICE void set_hide(packed_set<T, PACKS> *set)
{
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        packed_hide<T>(&set->of[k]);
}

/* The mean of the vector. */
template <pt_dtype T, int PACKS> DEVICE float set_mean(const norm_teams &g, norm_place *p, packed_set<T, PACKS> x)
{
    float sum = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; k++)
        sum += pack_sum(packed_values<T>(x.of[k])); /* zeros past the row */
    team_sums<1>(g, p, &sum);
    return sum * g.share;
}

/* Launch bounds: this many blocks of NORM_THREADS per multiprocessor if threads have one pack. Otherwise registers allow four blocks of 256
 * forward, and two backward. */
#define NORM_BOUNDS(T, WIDE, PACKS, blocks) \
    __launch_bounds__(PACKS == 1 ? NORM_THREADS : NORM_THREADS_MOST, PACKS == 1 && T == PT_BF16 && WIDE ? blocks : 1)

/* ---- vectors too long for registers: a block reads them again for each sum ---- */

template <pt_dtype T> DEVICE float long_mean(const norm_teams &g, norm_place *p, const void *x)
{
    float sum = 0.0f;
    for (int i = threadIdx.x * PACK; i < g.dim; i += blockDim.x * PACK)
        sum += pack_sum(pack_load<T>(x, i, g.dim, false));
    team_sums<1>(g, p, &sum);
    return sum * g.share;
}

/* ---- forward ---- */

/* offset + weight, computed as weight - (0 - offset), so that without an offset even a weight of -0 keeps its bits. OFFSET false: there is
 * no offset; backward has no register to spare for it. */
template <bool WIDE, bool OFFSET, typename OP> DEVICE pack factors_load(const OP &o, int at)
{
    pack w = {{0}};
    if (!OFFSET || o.weight)
        w = floats_load<WIDE>(o.weight, at, o.dim);
    const float away = 0.0f - o.offset;
    for (int j = 0; j < PACK && OFFSET; j++)
        w.x[j] = w.x[j] - away;
    return w;
}

/* A pack of y from x - mean, also for backward. */
template <bool WIDE, bool OFFSET, typename OP> DEVICE pack normed(const OP &o, pack c, float rstd, int at)
{
    pack w = factors_load<WIDE, OFFSET>(o, at), b = {{0}};
    if (o.bias)
        b = floats_load<WIDE>(o.bias, at, o.dim);
    for (int j = 0; j < PACK; j++)
        c.x[j] = fmaf(c.x[j] * rstd, w.x[j], b.x[j]);
    return c;
}

DEVICE pack pack_plus(pack a, pack b)
{
    for (int j = 0; j < PACK; j++)
        a.x[j] = a.x[j] + b.x[j];
    return a;
}

/* A pack of y, at `at` of row v: the norm's result d plus stream and residual. */
template <pt_dtype T, bool WIDE> DEVICE pack added(const op_norm &o, int v, int at, pack d)
{
    pack sum = {{0}};
    if (o.stream) {
        float *stream = o.stream + v * o.ldy;
        sum = pack_plus(floats_load<WIDE>(stream, at, o.dim), d);
        part_store<PT_F32, WIDE>(stream, at, o.dim, sum);
    }
    return o.residual ? pack_plus(d, packed_values<T>(part_load<T, WIDE>(element_at<T>(o.residual, v * o.ldy), at, o.dim))) : sum;
}

template <pt_dtype T, bool WIDE, int PACKS>
DEVICE float set_rstd(const op_norm &o, const norm_teams &g, norm_place *p, packed_set<T, PACKS> x, float mean)
{
    float squares = 0.0f;
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int at = p->column + k * p->step;
        if (at < g.dim)
            squares += pack_squares(centred<WIDE>(packed_values<T>(x.of[k]), mean, at, g.dim));
    }
    team_sums<1>(g, p, &squares);
    return rstd_of(squares * g.share, o.eps);
}

/* ADDS: adds to a residual, a stream or both. */
template <pt_dtype T, bool WIDE, int PACKS, bool ADDS>
__global__ void NORM_BOUNDS(T, WIDE, PACKS, ADDS ? 2 : 3) norm_kernel(op_norm o, norm_teams g)
{
    norm_place p = norm_place_of(g);
    int begin = (int)blockIdx.x * g.vectors, end = begin + g.vectors < g.all ? begin + g.vectors : g.all;
    packed_set<T, PACKS> next;
    auto fetch = [&](int v) {
        next = set_load<T, WIDE, PACKS>(element_at<T>(o.x, vector_at(v, o.heads, g.dim, o.ldx)), v < end, p, g.dim);
    };
    fetch(begin + p.team);
#pragma unroll 1
    for (int v = begin + p.team; v - p.team < end; v += g.teams) { /* all teams loop equally often, because of barriers */
        packed_set<T, PACKS> x = next;
        fetch(v + g.teams);
        float mean = o.kind == NORM_LAYER ? set_mean<T, PACKS>(g, &p, x) : 0.0f;
        float rstd = set_rstd<T, WIDE, PACKS>(o, g, &p, x, mean);
        void *y = element_at<T>(o.y, vector_at(v, o.heads, g.dim, o.ldy));
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int at = p.column + k * p.step;
            if (v >= end || at >= g.dim)
                continue;
            pack d = normed<WIDE, true>(o, centred<WIDE>(packed_values<T>(x.of[k]), mean, at, g.dim), rstd, at);
            part_store<T, WIDE>(y, at, g.dim, ADDS ? added<T, WIDE>(o, v, at, d) : d);
        }
    }
}

template <pt_dtype T> __global__ void norm_long(op_norm o, norm_teams g)
{
    int64_t v = blockIdx.x;
    const void *x = element_at<T>(o.x, vector_at(v, o.heads, g.dim, o.ldx));
    void *y = element_at<T>(o.y, vector_at(v, o.heads, g.dim, o.ldy));
    norm_place p = norm_place_of(g);
    float squares = 0.0f, mean = o.kind == NORM_LAYER ? long_mean<T>(g, &p, x) : 0.0f;
    for (int at = threadIdx.x * PACK; at < g.dim; at += blockDim.x * PACK)
        squares += pack_squares(centred<false>(pack_load<T>(x, at, g.dim, false), mean, at, g.dim));
    team_sums<1>(g, &p, &squares);
    float rstd = rstd_of(squares * g.share, o.eps);
    for (int at = threadIdx.x * PACK; at < g.dim; at += blockDim.x * PACK) {
        pack c = centred<false>(pack_load<T>(x, at, g.dim, false), mean, at, g.dim);
        pack d = normed<false, true>(o, c, rstd, at);
        pack_store<T>(y, at, g.dim, false, o.residual || o.stream ? added<T, false>(o, (int)v, at, d) : d);
    }
}

template <pt_dtype T, bool WIDE, bool ADDS> static int teams_launch(const op_norm *o, norm_teams g, cudaStream_t s)
{
    int64_t blocks = blocks_of(g.all, g.vectors);
    return o->dim > ONE_PACK ? launch(norm_kernel<T, WIDE, 2, ADDS>, blocks, g.threads * g.teams, s, *o, g)
                             : launch(norm_kernel<T, WIDE, 1, ADDS>, blocks, g.threads * g.teams, s, *o, g);
}

template <pt_dtype T> static int norm_launch(const op_norm *o, cudaStream_t s)
{
    bool wide = is_wide(T, o->x, o->ldx) && is_wide(T, o->y, o->ldy) && is_wide(PT_F32, o->weight, 0) && is_wide(PT_F32, o->bias, 0) &&
                is_wide(T, o->residual, 0) && is_wide(PT_F32, o->stream, o->stream ? o->ldy : 0) && o->dim % PACK == 0;
    bool adds = o->residual || o->stream;
    norm_teams g = norm_teams_of(o->dim, o->rows * o->heads);
    g.vectors = g.teams * FORWARD_TURNS;
    if (o->rows * o->heads > VECTORS_MOST)
        return cudaErrorInvalidConfiguration;
    if (o->dim > TWO_PACKS)
        return launch(norm_long<T>, o->rows * o->heads, NORM_THREADS_MOST, s, *o, g);
    if (adds)
        return wide ? teams_launch<T, true, true>(o, g, s) : teams_launch<T, false, true>(o, g, s);
    return wide ? teams_launch<T, true, false>(o, g, s) : teams_launch<T, false, false>(o, g, s);
}

int cuda_norm(const op_norm *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? norm_launch<PT_BF16>(o, s) : norm_launch<PT_F32>(o, s);
}

/* ---- backward ---- */

/* With u = (x - mean) rstd and d = dy * weight. */
typedef struct norm_means { float mean, rstd, d, du; } norm_means;

/* Adds a pack to the sums s: of squares of c = x - mean, of d c, and of d. */
template <bool WIDE, bool FULL, bool OFFSET>
DEVICE void pack_sums(const op_norm_backward &o, pack x, pack d, float mean, int at, float s[3])
{
    pack w = factors_load<WIDE, OFFSET>(o, at), c = centred<WIDE>(x, mean, at, (int)o.dim), dc;
    for (int j = 0; j < PACK; j++) {
        d.x[j] = d.x[j] * w.x[j]; /* past the row both are 0 */
        dc.x[j] = d.x[j] * c.x[j];
    }
    s[0] += pack_squares(c);
    s[1] += pack_sum(dc);
    s[2] += FULL ? pack_sum(d) : 0.0f;
}

template <bool FULL> DEVICE norm_means means_from(const op_norm_backward &o, const norm_teams &g, norm_place *p, float mean, float s[3])
{
    team_sums<FULL ? 3 : 2>(g, p, s);
    norm_means m = {mean, rstd_of(s[0] * g.share, o.eps), 0.0f, 0.0f};
    m.du = s[1] * g.share * m.rstd;
    if (FULL && o.kind == NORM_LAYER)
        m.d = s[2] * g.share;
    return m;
}

template <pt_dtype T, bool WIDE, int PACKS, bool FULL, bool OFFSET>
DEVICE norm_means means_of(const op_norm_backward &o, const norm_teams &g, norm_place *p, packed_set<T, PACKS> x, packed_set<T, PACKS> dy)
{
    float s[3] = {0.0f, 0.0f, 0.0f}, mean = FULL && o.kind == NORM_LAYER ? set_mean<T, PACKS>(g, p, x) : 0.0f;
    set_hide<T, PACKS>(&x);
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int at = p->column + k * p->step;
        if (at < g.dim)
            pack_sums<WIDE, FULL, OFFSET>(o, packed_values<T>(x.of[k]), packed_values<T>(dy.of[k]), mean, at, s);
    }
    return means_from<FULL>(o, g, p, mean, s);
}

template <pt_dtype T>
DEVICE norm_means long_means(const op_norm_backward &o, const norm_teams &g, norm_place *p, const void *x, const void *dy)
{
    float s[3] = {0.0f, 0.0f, 0.0f}, mean = o.kind == NORM_LAYER ? long_mean<T>(g, p, x) : 0.0f;
    for (int at = threadIdx.x * PACK; at < g.dim; at += blockDim.x * PACK)
        pack_sums<false, true, true>(o, pack_load<T>(x, at, g.dim, false), pack_load<T>(dy, at, g.dim, false), mean, at, s);
    return means_from<true>(o, g, p, mean, s);
}

/* Computes a pack of dx, at `at` of its row and dx_at of its tensor, and adds its terms to dweight and dbias. stream: the pack of
 * stream_add. */
template <pt_dtype T, bool WIDE, bool FULL, bool OFFSET>
DEVICE void dx_pack(const op_norm_backward &o, norm_means m, int64_t dx_at, int at, pack x, pack dy, pack stream, pack *dweight,
                    pack *dbias)
{
    pack dx, w = factors_load<WIDE, OFFSET>(o, at);
    int64_t left = o.dim - at;
    for (int j = 0; j < PACK; j++) {
        float u = (x.x[j] - m.mean) * m.rstd, d = dy.x[j] * w.x[j] - m.d;
        dx.x[j] = fmaf(-u, m.du, d) * m.rstd;
        dweight->x[j] = fmaf(dy.x[j], u, dweight->x[j]);
        if (FULL)
            dbias->x[j] += dy.x[j];
    }
    if (o.dx_add)
        dx = pack_plus(dx, packed_values<T>(part_load<T, WIDE>(element_at<T>(o.dx_add, dx_at), 0, left)));
    if (o.stream_add)
        dx = pack_plus(dx, stream);
    if (o.stream)
        part_store<PT_F32, WIDE>(o.stream + dx_at, 0, left, dx);
    part_store<T, WIDE>(element_at<T>(o.dx, dx_at), 0, left, dx);
}

/* sums[columns] = the sum over the teams of the block, ascending. All threads of the block must call it. */
template <bool WIDE, int PACKS>
DEVICE void teams_store(const norm_teams &g, const pack *sum, float *sums, const norm_place &p, int dim)
{
    __shared__ float of_thread[PACKS == 1 ? PACK : 1][NORM_THREADS];
    pack total = sum[0];
    if (PACKS == 1 && g.teams > 1) {
        __syncthreads(); /* the previous call's sums have been read */
        for (int j = 0; j < PACK; j++)
            of_thread[j % (PACKS == 1 ? PACK : 1)][threadIdx.x] = total.x[j];
        __syncthreads();
        if ((int)threadIdx.x >= g.threads)
            return;
        for (int team = 1; team < g.teams; team++)
            for (int j = 0; j < PACK; j++)
                total.x[j] += of_thread[j % (PACKS == 1 ? PACK : 1)][threadIdx.x + team * g.threads];
    }
#pragma unroll
    for (int k = 0; k < PACKS; k++) {
        int at = p.column + k * p.step;
        if (at < dim)
            part_store<PT_F32, WIDE>(sums, at, dim, k ? sum[k] : total);
    }
}

/* FULL: false only for an rmsnorm without bias. */
template <pt_dtype T, bool WIDE, int PACKS, bool FULL, bool OFFSET>
__global__ void NORM_BOUNDS(T, WIDE, PACKS, 2) norm_backward_kernel(op_norm_backward o, norm_teams g, float *sums)
{
    const bool ahead = PACKS == 1 || (WIDE && T == PT_BF16); /* otherwise there are not enough registers */
    norm_place p = norm_place_of(g);
    int begin = (int)blockIdx.x * g.vectors, end = begin + g.vectors < g.all ? begin + g.vectors : g.all;
    pack dweight[PACKS] = {}, dbias[PACKS] = {};
    packed_set<T, PACKS> next_x, next_dy;
    auto fetch = [&](int v) {
        next_x = set_load<T, WIDE, PACKS>(element_at<T>(o.x, vector_at(v, o.heads, g.dim, o.ldx)), v < end, p, g.dim);
        next_dy = set_load<T, WIDE, PACKS>(element_at<T>(o.dy, vector_at(v, o.heads, g.dim, o.lddy)), v < end, p, g.dim);
    };
    if (ahead)
        fetch(begin + p.team);
#pragma unroll 1
    for (int v = begin + p.team; v - p.team < end; v += g.teams) { /* all teams loop equally often, because of barriers */
        if (!ahead)
            fetch(v);
        packed_set<T, PACKS> x = next_x, dy = next_dy;
        int64_t dx_at = vector_at(v, o.heads, g.dim, o.lddx) + p.column;
        packed_set<PT_F32, PACKS> stream = {};
        if (ahead) {
            stream = set_load<PT_F32, WIDE, PACKS>(o.stream_add + dx_at - p.column, v < end && o.stream_add, p, g.dim);
            fetch(v + g.teams);
        }
        norm_means m = means_of<T, WIDE, PACKS, FULL, OFFSET>(o, g, &p, x, dy);
        set_hide<T, PACKS>(&x);
        set_hide<T, PACKS>(&dy);
        void *y = o.y ? element_at<T>(o.y, vector_at(v, o.heads, g.dim, o.lddy)) : NULL;
#pragma unroll
        for (int k = 0; k < PACKS; k++) {
            int at = p.column + k * p.step;
            if (v >= end || at >= g.dim)
                continue;
            if (!ahead)
                stay_in_order();
            if (!ahead && o.stream_add)
                stream.of[k] = part_load<PT_F32, WIDE>(o.stream_add + dx_at + k * p.step, 0, g.dim - at);
            dx_pack<T, WIDE, FULL, OFFSET>(o, m, dx_at + k * p.step, at, packed_values<T>(x.of[k]), packed_values<T>(dy.of[k]),
                                           packed_values<PT_F32>(stream.of[k]), &dweight[k], &dbias[k]);
            if (!y)
                continue;
            pack c = centred<WIDE>(packed_values<T>(x.of[k]), m.mean, at, g.dim);
            part_store<T, WIDE>(y, at, g.dim, normed<WIDE, OFFSET>(o, c, m.rstd, at));
        }
    }
    sums += (int64_t)blockIdx.x * 2 * g.dim;
    teams_store<WIDE, PACKS>(g, dweight, sums, p, g.dim);
    if (FULL)
        teams_store<WIDE, PACKS>(g, dbias, sums + g.dim, p, g.dim);
}

/* The same for vectors too long for registers, with one block per part. */
template <pt_dtype T> __global__ void norm_backward_long(op_norm_backward o, norm_teams g, float *sums)
{
    int begin = (int)blockIdx.x * g.vectors, end = begin + g.vectors < g.all ? begin + g.vectors : g.all;
    norm_place p = norm_place_of(g);
    sums += (int64_t)blockIdx.x * 2 * g.dim;
    for (int v = begin; v < end; v++) {
        const void *x = element_at<T>(o.x, vector_at(v, o.heads, g.dim, o.ldx));
        const void *dy = element_at<T>(o.dy, vector_at(v, o.heads, g.dim, o.lddy));
        norm_means m = long_means<T>(o, g, &p, x, dy);
        for (int at = threadIdx.x * PACK; at < g.dim; at += blockDim.x * PACK) {
            int64_t dx_at = vector_at(v, o.heads, g.dim, o.lddx) + at;
            pack dweight = {{0}}, dbias = {{0}}, stream = {{0}};
            if (v > begin) {
                dweight = pack_load<PT_F32>(sums, at, g.dim, false);
                dbias = pack_load<PT_F32>(sums + g.dim, at, g.dim, false);
            }
            if (o.stream_add)
                stream = pack_load<PT_F32>(o.stream_add + dx_at, 0, g.dim - at, false);
            dx_pack<T, false, true, true>(o, m, dx_at, at, pack_load<T>(x, at, g.dim, false), pack_load<T>(dy, at, g.dim, false), stream,
                                    &dweight, &dbias);
            if (o.y) {
                pack c = centred<false>(pack_load<T>(x, at, g.dim, false), m.mean, at, g.dim);
                pack_store<T>(element_at<T>(o.y, vector_at(v, o.heads, g.dim, o.lddy)), at, g.dim, false,
                              normed<false, true>(o, c, m.rstd, at));
            }
            pack_store<PT_F32>(sums, at, g.dim, false, dweight);
            pack_store<PT_F32>(sums + g.dim, at, g.dim, false, dbias);
        }
    }
}

/* out[i] (+)= the sum over parts of sums[part][i]: slot s adds parts s, s + TOTAL_SLOTS, ...; then a tree adds the slots. */
__global__ void __launch_bounds__(TOTAL_COLUMNS * TOTAL_SLOTS) norm_backward_total(op_norm_backward o, int64_t parts, const float *sums)
{
    __shared__ float of_slot[TOTAL_SLOTS][TOTAL_COLUMNS];
    int64_t tiles = (o.dim + TOTAL_COLUMNS - 1) / TOTAL_COLUMNS;
    int lane = threadIdx.x % TOTAL_COLUMNS, slot = threadIdx.x / TOTAL_COLUMNS;
    bool bias = blockIdx.x >= tiles;
    int64_t column = (blockIdx.x - (bias ? tiles : 0)) * TOTAL_COLUMNS + lane;
    float *out = bias ? o.dbias : o.dweight, total = 0.0f;
    if (!out)
        return;
    sums += (bias ? o.dim : 0) + column;
#pragma unroll 8
    for (int64_t part = slot; part < parts && column < o.dim; part += TOTAL_SLOTS)
        total += sums[part * 2 * o.dim];
    of_slot[slot][lane] = total;
    for (int distance = TOTAL_SLOTS / 2; distance; distance /= 2) {
        __syncthreads();
        if (slot < distance)
            of_slot[slot][lane] += of_slot[slot + distance][lane];
    }
    if (slot == 0 && column < o.dim)
        out[column] = o.accumulate ? out[column] + of_slot[0][lane] : of_slot[0][lane];
}

template <pt_dtype T, bool WIDE, bool FULL, bool OFFSET>
static int parts_launch(const op_norm_backward *o, norm_teams g, int64_t parts, float *sums, cudaStream_t s)
{
    int threads = g.threads * g.teams;
    return o->dim > ONE_PACK ? launch(norm_backward_kernel<T, WIDE, 2, FULL, OFFSET>, parts, threads, s, *o, g, sums)
                             : launch(norm_backward_kernel<T, WIDE, 1, FULL, OFFSET>, parts, threads, s, *o, g, sums);
}

template <pt_dtype T> static int norm_backward_launch(const op_norm_backward *o, cudaStream_t s)
{
    int64_t vectors = o->rows * o->heads, parts = norm_parts(o->rows, o->heads);
    bool wide = is_wide(T, o->x, o->ldx) && is_wide(T, o->dy, o->lddy) && is_wide(T, o->dx, o->lddx) && is_wide(T, o->dx_add, 0) &&
                is_wide(T, o->y, 0) && is_wide(PT_F32, o->stream_add, 0) && is_wide(PT_F32, o->stream, 0) &&
                is_wide(PT_F32, o->weight, 0) &&
                is_wide(PT_F32, o->bias, 0) && is_wide(PT_F32, o->scratch, 0) && o->dim % PACK == 0;
    if (vectors == 0)
        return 0;
    if (vectors > VECTORS_MOST)
        return cudaErrorInvalidConfiguration;
    norm_teams g = norm_teams_of(o->dim, vectors);
    g.vectors = (int)blocks_of(blocks_of(vectors, parts), g.teams) * g.teams;
    parts = blocks_of(vectors, g.vectors);
    float *sums = (float *)o->scratch;
    bool full = o->kind == NORM_LAYER || o->dbias, offset = o->offset != 0;
    int status = o->dim > TWO_PACKS ? launch(norm_backward_long<T>, parts, NORM_THREADS_MOST, s, *o, g, sums)
                 : !wide            ? parts_launch<T, false, true, true>(o, g, parts, sums, s)
                 : full && offset   ? parts_launch<T, true, true, true>(o, g, parts, sums, s)
                 : full             ? parts_launch<T, true, true, false>(o, g, parts, sums, s)
                 : offset           ? parts_launch<T, true, false, true>(o, g, parts, sums, s)
                                    : parts_launch<T, true, false, false>(o, g, parts, sums, s);
    if (status || (!o->dweight && !o->dbias))
        return status;
    return launch(norm_backward_total, (o->dbias ? 2 : 1) * blocks_of(o->dim, TOTAL_COLUMNS), TOTAL_COLUMNS * TOTAL_SLOTS, s, *o, parts,
                  (const float *)sums);
}

int cuda_norm_backward(const op_norm_backward *o, cudaStream_t s)
{
    return o->type == PT_BF16 ? norm_backward_launch<PT_BF16>(o, s) : norm_backward_launch<PT_F32>(o, s);
}
