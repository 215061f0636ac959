/* kernels_scan_backward.cu - the gradients of a scan: a block per sequence and up to SCAN_HEADS value heads of one key head, with the
 * algorithm of the CPU (cpu/kernels/scan_backward.c). A block takes one such task after the other, and has memory in the op's scratch for
 *
 *     states at the starts of a segment's chunks (key_dim, dim)... | G of each head | dq and dk of the segment's rows (.., key_dim)
 */
#include "device/cuda/scan.h"

enum { TILE = WARP, TILE_LD = TILE + 1 };

/* What a block has beside a chunk. */
typedef struct work {
    float *dout, *z;              /* (n, dim) */
    float *dp, *dless, *both;     /* (n, n) */
    float *dgamma, *dbeta;        /* (n) */
    float *state_tile, *gradient_tile;
    float *states, *gradient, *dq, *dk; /* in the scratch; gradient: of the head */
} work;

static inline int work_floats(int64_t dim)
{
    return (int)(2 * SCAN_ROWS * (dim + 3) + 3 * SCAN_SQUARE + 2 * SCAN_ROWS + 2 * TILE * TILE_LD);
}

DEVICE work work_of(const op_scan &o, float **free)
{
    work w;
    w.dout = scan_take(free, SCAN_ROWS * (int)o.dim), w.z = scan_take(free, SCAN_ROWS * (int)o.dim);
    w.dp = scan_take(free, SCAN_SQUARE), w.dless = scan_take(free, SCAN_SQUARE), w.both = scan_take(free, SCAN_SQUARE);
    w.dgamma = scan_take(free, SCAN_ROWS), w.dbeta = scan_take(free, SCAN_ROWS);
    w.state_tile = scan_take(free, TILE * TILE_LD), w.gradient_tile = scan_take(free, TILE * TILE_LD);
    return w;
}

/* The gradient of a row of q or of k, by a warp, from that of the normed and scaled row: the sum of `parts` rows of d, `step` apart. */
template <pt_dtype T>
DEVICE void finish(const op_scan &o, const void *x, int64_t at, float scale, const float *d, int64_t step, int parts, void *to,
                   int64_t to_at)
{
    const int lane = threadIdx.x % WARP;
    const float r = scan_norm_factor<T>(o, x, at);
    float along = 0.0f;
    for (int pass = 0; pass < 2; pass++) {
        along = warp_sum(along);
        for (int64_t i = lane; i < o.key_dim; i += WARP) {
            float sum = 0.0f;
            for (int part = 0; part < parts; part++)
                sum += d[part * step + i];
            const float unit = element_load<T>(x, at + i) * r, dx = sum * scale * r;
            if (pass)
                element_store<T>(to, to_at + i, o.norm_eps > 0 ? fmaf(-unit, along, dx) : dx);
            else
                along = fmaf(unit, dx, along);
        }
    }
}

template <pt_dtype T>
DEVICE void finish_row(const op_scan_backward &b, int64_t row, int64_t key_head, const float *dq, const float *dk, int64_t step, int parts)
{
    const op_scan &o = b.forward;
    const int64_t at = row * o.ld + key_head * o.key_dim, to = row * b.ldd + key_head * o.key_dim;
    finish<T>(o, o.q, at, scan_scale(o), dq, step, parts, b.dq, to);
    finish<T>(o, o.k, at, 1.0f, dk, step, parts, b.dk, to);
}

/* dout of the chunk, and z from it. known: G is not 0. */
template <pt_dtype T> DEVICE void find_z(const op_scan_backward &b, const scan_block &c, const work &w, bool known)
{
    const op_scan &o = b.forward;
    const int dim = (int)o.dim;
    for (int i = threadIdx.x / WARP; i < c.n; i += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < dim; d += WARP)
            w.dout[i * dim + d] = element_load<T>(b.dout, scan_row(o, c, i) * b.lddo + c.head * o.dim + d);
    __syncthreads();
    for (int i = threadIdx.x / WARP; i < c.n; i += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < dim; d += WARP) {
            float sum = 0.0f, after = 0.0f;
            for (int j = i; j < c.n; j++)
                sum = fmaf(c.p[j * SCAN_ROWS + i], w.dout[j * dim + d], sum);
            for (int x = 0; x < c.key_dim && known; x++)
                after = fmaf(c.k[i * c.keys + x], w.gradient[x * dim + d], after);
            w.z[i * dim + d] = fmaf(scan_until_end(c, i), after, sum);
        }
    __syncthreads();
    for (int d = threadIdx.x; d < dim && o.kind == SCAN_DELTA; d += SCAN_THREADS)
        for (int i = c.n - 2; i >= 0; i--) {
            float z = w.z[i * dim + d];
            for (int j = i + 1; j < c.n; j++)
                z = fmaf(c.less[j * SCAN_ROWS + i], w.z[j * dim + d], z);
            w.z[i * dim + d] = z;
        }
    __syncthreads();
}

/* dp decay and m + m^T; what x and dless add to the gradients of g and beta. */
DEVICE void square_gradients(const op_scan &o, const scan_block &c, const work &w)
{
    const int i = threadIdx.x / SCAN_ROWS, j = threadIdx.x % SCAN_ROWS, dim = (int)o.dim, at = threadIdx.x;
    const bool there = j <= i && i < c.n, less = j < i && i < c.n && o.kind == SCAN_DELTA;
    float dp = 0.0f, dless = 0.0f, decay = there ? c.decay[at] : 0.0f;
    for (int d = 0; d < dim && there; d++) {
        dp = fmaf(w.dout[i * dim + d], c.u[j * dim + d], dp);
        dless = less ? fmaf(w.z[i * dim + d], c.u[j * dim + d], dless) : 0.0f;
    }
    const float by_beta = less ? dless * decay * c.kk[at] : 0.0f, beta = i < c.n ? c.beta[i] : 0.0f;
    w.dless[at] = by_beta;
    w.both[at] = there ? fmaf(-beta, by_beta, dp * c.p[at]) : 0.0f; /* x */
    __syncthreads();
    if (threadIdx.x < (unsigned)c.n) {
        float sum = 0.0f, of_beta = 0.0f;
        for (int t = 0; t < c.n; t++) {
            sum += w.both[threadIdx.x * SCAN_ROWS + t] - w.both[t * SCAN_ROWS + threadIdx.x];
            of_beta -= w.dless[threadIdx.x * SCAN_ROWS + t];
        }
        w.dgamma[threadIdx.x] = sum;
        w.dbeta[threadIdx.x] = of_beta;
    }
    __syncthreads();
    w.dp[at] = dp * decay;
    if (j <= i)
        w.both[at] = w.both[j * SCAN_ROWS + i] = less ? -beta * dless * decay : 0.0f;
    __syncthreads();
}

/* Adds the head's part to dq and dk of the chunk's rows, from `at` on; first: sets it. A thread has one column of a tile and SCAN_TWO rows.
 * before and after: the state and G are not 0. */
DEVICE void key_gradients(const op_scan &o, const scan_block &c, const work &w, const float *state, bool before, bool after, bool first,
                          int64_t at)
{
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, dim = (int)o.dim, key_dim = c.key_dim;
    const bool delta = o.kind == SCAN_DELTA;
    float by_since[SCAN_TWO] = {0}, by_y[SCAN_TWO] = {0}, by_end[SCAN_TWO] = {0}, whole = 0.0f;
    for (int x0 = 0; x0 < key_dim; x0 += TILE) {
        float out[SCAN_TWO] = {0}, back[SCAN_TWO] = {0}, end[SCAN_TWO] = {0};
        const int x = x0 + lane;
        for (int d0 = 0; d0 < dim && (before || after); d0 += TILE) {
            __syncthreads();
            for (int r = warp; r < TILE; r += SCAN_WARPS) {
                const bool there = x0 + r < key_dim && d0 + lane < dim;
                const float s = there && before ? state[(x0 + r) * dim + d0 + lane] : 0.0f;
                const float g = there && after ? w.gradient[(x0 + r) * dim + d0 + lane] : 0.0f;
                w.state_tile[r * TILE_LD + lane] = s, w.gradient_tile[r * TILE_LD + lane] = g;
                whole = fmaf(s, g, whole);
            }
            __syncthreads();
            for (int d = 0; d < TILE && d0 + d < dim; d++)
                for (int t = 0; t < SCAN_TWO; t++) {
                    const int i = warp + t * SCAN_WARPS, from = i * dim + d0 + d;
                    if (i >= c.n)
                        continue;
                    out[t] = fmaf(w.dout[from], w.state_tile[lane * TILE_LD + d], out[t]);
                    back[t] = fmaf(w.z[from], w.state_tile[lane * TILE_LD + d], back[t]);
                    end[t] = fmaf(c.u[from], w.gradient_tile[lane * TILE_LD + d], end[t]);
                }
        }
        for (int t = 0; t < SCAN_TWO; t++) {
            const int i = warp + t * SCAN_WARPS;
            if (i >= c.n || x >= key_dim)
                continue;
            const float since = c.since[i] * out[t], y = delta ? -c.since[i] * back[t] : 0.0f, to_end = scan_until_end(c, i) * end[t];
            by_since[t] = fmaf(c.q[i * c.keys + x], since, by_since[t]);
            by_y[t] = fmaf(c.k[i * c.keys + x], y, by_y[t]);
            by_end[t] = fmaf(c.k[i * c.keys + x], to_end, by_end[t]);
            float dq = since, dk = fmaf(c.beta[i], y, to_end);
            for (int j = 0; j < c.n; j++) {
                dq = fmaf(w.dp[i * SCAN_ROWS + j], c.k[j * c.keys + x], dq);
                dk = fmaf(w.dp[j * SCAN_ROWS + i], c.q[j * c.keys + x], dk);
                dk = fmaf(w.both[i * SCAN_ROWS + j], c.k[j * c.keys + x], dk);
            }
            const int64_t to = (at + i) * key_dim + x;
            w.dq[to] = first ? dq : w.dq[to] + dq;
            w.dk[to] = first ? dk : w.dk[to] + dk;
        }
    }
    float ends = 0.0f;
    for (int t = 0; t < SCAN_TWO; t++) {
        const int i = warp + t * SCAN_WARPS;
        const float since = warp_sum(by_since[t]), y = warp_sum(by_y[t]), end = warp_sum(by_end[t]);
        if (lane == 0 && i < c.n) {
            w.dgamma[i] += since + c.beta[i] * y - end;
            w.dbeta[i] += y;
            ends += end;
        }
    }
    whole = block_sum(whole);
    ends = block_sum(ends);
    if (threadIdx.x == 0 && after)
        w.dgamma[c.n - 1] += fmaf(c.since[c.n - 1], whole, ends);
    __syncthreads();
}

/* G before the chunk, in place of that after it. */
DEVICE void gradient_before(const op_scan &o, const scan_block &c, const work &w, bool after)
{
    const int dim = (int)o.dim;
    for (int x = threadIdx.x / WARP; x < c.key_dim; x += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < dim; d += WARP) {
            float sum = after ? c.since[c.n - 1] * w.gradient[x * dim + d] : 0.0f;
            for (int i = 0; i < c.n; i++) {
                sum = fmaf(c.since[i] * c.q[i * c.keys + x], w.dout[i * dim + d], sum);
                if (o.kind == SCAN_DELTA)
                    sum = fmaf(-c.beta[i] * c.since[i] * c.k[i * c.keys + x], w.z[i * dim + d], sum);
            }
            w.gradient[x * dim + d] = sum;
        }
}

/* dv, dbeta and dg; returns what the chunk adds to dskip, in lane 0 of each warp. */
template <pt_dtype T> DEVICE float store_head(const op_scan_backward &b, const scan_block &c, const work &w)
{
    const op_scan &o = b.forward;
    const int lane = threadIdx.x % WARP, dim = (int)o.dim;
    float skips = 0.0f;
    for (int i = threadIdx.x / WARP; i < c.n; i += SCAN_WARPS) {
        const int64_t row = scan_row(o, c, i);
        float by_beta = 0.0f, by_skip = 0.0f;
        for (int d = lane; d < dim; d += WARP) {
            const float v = element_load<T>(o.v, row * o.ld + c.head * o.dim + d), z = w.z[i * dim + d], dout = w.dout[i * dim + d];
            by_beta = fmaf(z, v, by_beta);
            by_skip = fmaf(dout, v, by_skip);
            element_store<T>(b.dv, row * b.ldd + c.head * o.dim + d, o.skip ? fmaf(o.skip[c.head], dout, c.beta[i] * z) : c.beta[i] * z);
        }
        by_beta = warp_sum(by_beta);
        skips += warp_sum(by_skip);
        if (lane == 0)
            b.dbeta[row * o.heads + c.head] = w.dbeta[i] + by_beta;
    }
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = c.n - 1; i >= 0; i--) {
            sum += w.dgamma[i];
            b.dg[scan_row(o, c, i) * o.heads + c.head] = scan_starts(o, c, i) || c.row0 + i == 0 ? 0.0f : sum;
        }
    }
    __syncthreads();
    return lane == 0 ? skips : 0.0f;
}

DEVICE void chunk_at(const op_scan &o, scan_block *c, int64_t row)
{
    c->row0 = row;
    c->n = o.len - row < SCAN_ROWS ? (int)(o.len - row) : (int)SCAN_ROWS;
}

/* A head's rows begin .. end of a segment; returns what they add to dskip, in lane 0 of each warp. */
template <pt_dtype T>
DEVICE float head_segment(const op_scan_backward &b, scan_block *c, const work &w, int64_t begin, int64_t end, bool first)
{
    const op_scan &o = b.forward;
    const int64_t of_state = o.key_dim * o.dim, rows = SCAN_CHUNK * scan_segment(o.key_dim, o.dim);
    const int64_t chunks = (end - begin + SCAN_ROWS - 1) / SCAN_ROWS, saved = c->seq * (scan_segments(o.len, o.key_dim, o.dim) - 1);
    float skips = 0.0f;
    for (int64_t i = threadIdx.x; begin > 0 && i < of_state; i += SCAN_THREADS)
        w.states[i] = o.states[((saved + begin / rows - 1) * o.heads + c->head) * of_state + i];
    for (int64_t i = 0; i + 1 < chunks; i++) {
        chunk_at(o, c, begin + i * SCAN_ROWS);
        scan_load_keys<T>(o, *c);
        scan_gates(o, *c);
        scan_find_u<T>(o, *c, w.states + i * of_state, (int)o.dim, c->row0 > 0);
        scan_next_state(*c, w.states + i * of_state, w.states + (i + 1) * of_state, (int)o.dim, c->row0 > 0);
    }
    for (int64_t i = chunks - 1; i >= 0; i--) {
        const float *state = w.states + i * of_state;
        chunk_at(o, c, begin + i * SCAN_ROWS);
        const bool before = c->row0 > 0, after = c->row0 + c->n < o.len;
        scan_load_keys<T>(o, *c);
        scan_gates(o, *c);
        scan_find_u<T>(o, *c, state, (int)o.dim, before);
        find_z<T>(b, *c, w, after);
        square_gradients(o, *c, w);
        key_gradients(o, *c, w, state, before, after, first, i * SCAN_ROWS);
        if (before)
            gradient_before(o, *c, w, after);
        skips += store_head<T>(b, *c, w);
    }
    return skips;
}

/* The sums of tasks, behind those of dskip in the scratch; NULL: a key head has one task. */
DEVICE float *key_sums(const op_scan_backward &b, int64_t tasks)
{
    return tasks > b.forward.key_heads ? (float *)b.scratch + b.forward.seqs * b.forward.heads : NULL;
}

/* dq and dk of the rows of a segment, which `task` of the sequence has summed. */
template <pt_dtype T> DEVICE void store_segment(const op_scan_backward &b, const scan_block &c, const work &w, int64_t begin, int64_t end,
                                                int64_t task, int64_t tasks)
{
    const op_scan &o = b.forward;
    float *sums = key_sums(b, tasks);
    __syncthreads();
    for (int64_t i = threadIdx.x / WARP; i < end - begin; i += SCAN_WARPS) {
        const int64_t row = c.seq * o.len + begin + i, to = (row * tasks + task) * o.key_dim;
        const int64_t apart = o.seqs * o.len * tasks * o.key_dim;
        if (!sums)
            finish_row<T>(b, row, c.key_head, w.dq + i * o.key_dim, w.dk + i * o.key_dim, 0, 1);
        for (int64_t x = threadIdx.x % WARP; x < o.key_dim && sums; x += WARP) {
            sums[to + x] = w.dq[i * o.key_dim + x];
            sums[to + apart + x] = w.dk[i * o.key_dim + x];
        }
    }
    __syncthreads();
}

template <pt_dtype T>
__global__ void __launch_bounds__(SCAN_THREADS) scan_backward_kernel(op_scan_backward b, int64_t blocks, float *memory)
{
    SHARED_BYTES(shared);
    const op_scan &o = b.forward;
    float *free = (float *)shared;
    scan_block c = scan_block_of(o, &free, (int)o.dim);
    work w = work_of(o, &free);
    const int64_t most = SCAN_CHUNK * scan_segment(o.key_dim, o.dim), rows = o.len < most ? o.len : most, of_state = o.key_dim * o.dim;
    const int64_t tasks = scan_tasks(o.key_heads, o.heads), group = o.heads / o.key_heads, parts = tasks / o.key_heads;
    w.states = memory + blockIdx.x * scan_gpu_floats(o.len, o.key_dim, o.dim);
    float *gradients = w.states + (rows + SCAN_ROWS - 1) / SCAN_ROWS * of_state;
    w.dq = gradients + SCAN_HEADS * of_state, w.dk = w.dq + rows * o.key_dim;
    for (int64_t task = blockIdx.x; task < o.seqs * tasks; task += blocks) {
        const int64_t part = task % parts, head0 = part * SCAN_HEADS;
        const int heads = group - head0 < SCAN_HEADS ? (int)(group - head0) : (int)SCAN_HEADS;
        float skips[SCAN_HEADS] = {0};
        c.seq = task / tasks, c.key_head = task % tasks / parts;
        for (int64_t begin = (o.len - 1) / most * most; begin >= 0; begin -= most) {
            const int64_t end = begin + most < o.len ? begin + most : o.len;
            for (int h = 0; h < heads; h++) {
                c.head = c.key_head * group + head0 + h;
                w.gradient = gradients + h * of_state;
                skips[h] += head_segment<T>(b, &c, w, begin, end, h == 0);
            }
            store_segment<T>(b, c, w, begin, end, task % tasks, tasks);
        }
        for (int h = 0; h < heads && b.dskip; h++) {
            const float sum = block_sum(skips[h]);
            if (threadIdx.x == 0)
                ((float *)b.scratch)[c.seq * o.heads + c.key_head * group + head0 + h] = sum;
        }
    }
}

/* A warp per row and key head: adds its tasks' sums. */
template <pt_dtype T> __global__ void __launch_bounds__(SCAN_THREADS) scan_finish_kernel(op_scan_backward b)
{
    const op_scan &o = b.forward;
    const int64_t tasks = scan_tasks(o.key_heads, o.heads), parts = tasks / o.key_heads, rows = o.seqs * o.len;
    const int64_t at = (int64_t)blockIdx.x * SCAN_WARPS + threadIdx.x / WARP, row = at / o.key_heads, key_head = at % o.key_heads;
    if (row >= rows)
        return;
    const float *sums = key_sums(b, tasks) + (row * tasks + key_head * parts) * o.key_dim;
    finish_row<T>(b, row, key_head, sums, sums + rows * tasks * o.key_dim, o.key_dim, (int)parts);
}

__global__ void __launch_bounds__(SCAN_THREADS) skip_kernel(op_scan_backward b)
{
    const op_scan &o = b.forward;
    const int64_t head = (int64_t)blockIdx.x * SCAN_THREADS + threadIdx.x;
    float sum = 0.0f;
    for (int64_t seq = 0; seq < o.seqs && head < o.heads; seq++)
        sum += ((const float *)b.scratch)[seq * o.heads + head];
    if (head < o.heads)
        b.dskip[head] = b.accumulate ? b.dskip[head] + sum : sum;
}

template <pt_dtype T> static int scan_backward_launch(const op_scan_backward *b, cudaStream_t s)
{
    const op_scan *o = &b->forward;
    const int64_t tasks = scan_tasks(o->key_heads, o->heads), all = o->seqs * tasks;
    const int64_t blocks = all < SCAN_GPU_BLOCKS ? all : (int64_t)SCAN_GPU_BLOCKS, rows = o->seqs * o->len;
    const int bytes = (int)sizeof(float) * (scan_block_floats(o->key_dim, o->dim) + work_floats(o->dim));
    float *memory = (float *)b->scratch + o->seqs * o->heads + (tasks > o->key_heads ? 2 * rows * tasks * o->key_dim : 0);
    int failed = launch_shared(scan_backward_kernel<T>, blocks, SCAN_THREADS, bytes, s, *b, blocks, memory);
    if (!failed && tasks > o->key_heads)
        failed = launch(scan_finish_kernel<T>, blocks_of(rows * o->key_heads, SCAN_WARPS), SCAN_THREADS, s, *b);
    return failed || !b->dskip ? failed : launch(skip_kernel, blocks_of(o->heads, SCAN_THREADS), SCAN_THREADS, s, *b);
}

int cuda_scan_backward(const op_scan_backward *b, cudaStream_t s)
{
    return b->forward.type == PT_BF16 ? scan_backward_launch<PT_BF16>(b, s) : scan_backward_launch<PT_F32>(b, s);
}
