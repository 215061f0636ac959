/* kernels_scan.cu - scans, forward: a block per sequence, value head, and 32 columns of v, whose state is in shared memory. */
#include "device/cuda/scan.h"

enum { SCAN_COLUMNS = WARP };

/* Where a head's state is, of those at `index`. */
DEVICE float *state_at(const op_scan &o, float *states, int64_t index, int64_t head, int column)
{
    return states + (index * o.heads + head) * o.key_dim * o.dim + column;
}

/* Copies the block's columns between its state and one in memory. */
DEVICE void state_store(const op_scan &o, const scan_block &b, const float *state, float *to)
{
    for (int x = threadIdx.x / WARP; x < b.key_dim; x += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < b.columns; d += WARP)
            to[x * o.dim + d] = state[x * SCAN_COLUMNS + d];
}
DEVICE void state_load(const op_scan &o, const scan_block &b, float *state, const float *from)
{
    for (int x = threadIdx.x / WARP; x < b.key_dim; x += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < b.columns; d += WARP)
            state[x * SCAN_COLUMNS + d] = from[x * o.dim + d];
}

template <pt_dtype T> DEVICE void store_out(const op_scan &o, const scan_block &b, const float *state, bool known)
{
    for (int i = threadIdx.x / WARP; i < b.n; i += SCAN_WARPS)
        for (int d = threadIdx.x % WARP; d < b.columns; d += WARP) {
            const int64_t row = scan_row(o, b, i), at = b.head * o.dim + b.column + d;
            float out = 0.0f;
            for (int x = 0; x < b.key_dim && known; x++)
                out = fmaf(b.q[i * b.keys + x], state[x * SCAN_COLUMNS + d], out);
            out *= b.since[i];
            for (int j = 0; j <= i; j++)
                out = fmaf(b.p[i * SCAN_ROWS + j], b.u[j * b.columns + d], out);
            if (o.skip)
                out = fmaf(o.skip[b.head], element_load<T>(o.v, row * o.ld + at), out);
            element_store<T>(o.out, row * o.ldo + at, out);
        }
    __syncthreads();
}

template <pt_dtype T> __global__ void __launch_bounds__(SCAN_THREADS) scan_kernel(op_scan o, int slices)
{
    SHARED_BYTES(shared);
    float *free = (float *)shared, *state = scan_take(&free, (int)o.key_dim * SCAN_COLUMNS);
    scan_block b = scan_block_of(o, &free, SCAN_COLUMNS);
    b.seq = blockIdx.x / slices / o.heads, b.head = blockIdx.x / slices % o.heads, b.key_head = b.head / (o.heads / o.key_heads);
    b.column = (int)(blockIdx.x % slices) * SCAN_COLUMNS;
    b.columns = o.dim - b.column < SCAN_COLUMNS ? (int)o.dim - b.column : (int)SCAN_COLUMNS;
    const int64_t rows = SCAN_CHUNK * scan_segment(o.key_dim, o.dim), segments = scan_segments(o.len, o.key_dim, o.dim);
    if (o.before)
        state_load(o, b, state, state_at(o, (float *)o.before, b.seq, b.head, b.column));
    for (b.row0 = 0; b.row0 < o.len; b.row0 += SCAN_ROWS) {
        const bool known = o.before || b.row0 > 0;
        b.n = o.len - b.row0 < SCAN_ROWS ? (int)(o.len - b.row0) : (int)SCAN_ROWS;
        if (o.states && b.row0 > 0 && b.row0 % rows == 0)
            state_store(o, b, state, state_at(o, o.states, b.seq * (segments - 1) + b.row0 / rows - 1, b.head, b.column));
        scan_load_keys<T>(o, b);
        scan_gates(o, b);
        scan_find_u<T>(o, b, state, SCAN_COLUMNS, known);
        store_out<T>(o, b, state, known);
        scan_next_state(b, state, state, SCAN_COLUMNS, known);
    }
    if (o.after)
        state_store(o, b, state, state_at(o, o.after, b.seq, b.head, b.column));
}

int cuda_scan(const op_scan *o, cudaStream_t s)
{
    const int64_t slices = blocks_of(o->dim, SCAN_COLUMNS);
    const int bytes = (int)sizeof(float) * ((int)o->key_dim * SCAN_COLUMNS + scan_block_floats(o->key_dim, SCAN_COLUMNS));
    return o->type == PT_BF16 ? launch_shared(scan_kernel<PT_BF16>, o->seqs * o->heads * slices, SCAN_THREADS, bytes, s, *o, (int)slices)
                              : launch_shared(scan_kernel<PT_F32>, o->seqs * o->heads * slices, SCAN_THREADS, bytes, s, *o, (int)slices);
}
