/* matmul.c - matmuls with cuBLASLt.
 *
 * cuBLASLt is column-major, so a row-major matrix (R, C) with stride ld is a (C, R) matrix to it. It computes the transposed matmul, (N,
 * M):
 *
 *     c^T (N, M)  =  op(b^T) . op(a^T)          MATMUL_NT: op(b^T) = b, transposed;  op(a^T) as it is
 *                                               MATMUL_NN: both as they are          MATMUL_TN: op(a^T) transposed
 *
 * so that adding a bias (N) to every column is one of its epilogues.
 *
 * It has no epilogue for a residual, the fp32 stream, a scale, the second part of a sum (a matmul that adds to the first), a bf16 bias on
 * an fp32 result, or an unaligned bias. Then the matmul's result is fp32, for as many rows at a time as `sums` holds, which stay in the L2
 * cache, and another pass adds the rest and rounds once. The matmul is the same with and without a stream, so that recomputation in
 * backward has the bits of forward.
 *
 * The algorithm is chosen once per key: layout, types, what is added, N, K (for TN, a weight gradient, also M), and the alignment of
 * strides and addresses, up to 16 bytes, which all tensors have under every plan. The library is queried for an op that is made from the
 * key, so the choice does not depend on which matmul comes first. M is not in the key: the query has REFERENCE_ROWS rows (FEW_ROWS for
 * matmuls of at most that, as in generation), so a row's bits do not depend on the number of rows. Algorithms that split K are allowed only
 * for TN, whose few tiles would leave most of a GPU idle, and only without atomics. fp32 never uses TF32.
 *
 *     key ──> choices[] ──> algorithm            filled on first use, the same in every run: from a table (matmul_table.h), or the
 *                                                library's first proposal that is allowed
 *
 * If the library has no algorithm, or refuses it for the actual number of rows, the kernel of matmul_plain.cu computes the matmul. (A row's
 * bits then depend on the number of rows, which a plan does not change.)
 *
 * Workspace and sums are allocated at open, and belong to one stream at a time; a matmul on another stream waits for the previous one. The
 * environment can change what the library computes (NVIDIA_TF32_OVERRIDE).
 */
#include "device/cuda/kernels.h"
#include "device/cuda/matmul_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUMS_BYTES = 32 << 20 };

static void note_missing(cuda_matmul *x, const op_matmul *o, const char *why)
{
    if (!x->missing[0])
        snprintf(x->missing, sizeof x->missing,
                 "cuBLASLt refused matmuls of layout %d, M %lld, N %lld, K %lld (%s): a slow kernel computed them", o->layout,
                 (long long)o->m, (long long)o->n, (long long)o->k, why);
}

/* The library does not support the matmul, or the algorithm for this number of rows. Any other status is an error, not a reason for another
 * algorithm: it may not happen in another run, which would then have other bits. */
static bool refused(cublasStatus_t s) { return s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE; }

static int blas_fail(pt_error *e, cublasStatus_t status, const op_matmul *o)
{
    return pt_fail(e, PT_FAILED,
                   "cuBLASLt reports \"%s\" while multiplying matrices (layout %d, %lld x %lld x %lld); if the GPU is not out of "
                   "memory, this is a bug in protrain", cublasLtGetStatusString(status), o->layout, (long long)o->m, (long long)o->n,
                   (long long)o->k);
}

/* ---- life ---- */

int cuda_matmul_open(const device_options *o, const char *gpu, cuda_matmul **out, pt_error *e)
{
    *out = NULL;
    cuda_matmul *x = calloc(1, sizeof *x);
    if (!x)
        return pt_fail(e, PT_FAILED, "no memory for the table of matmul algorithms");
    x->options = *o;
    snprintf(x->gpu, sizeof x->gpu, "%s", gpu);
    pthread_mutex_init(&x->lock, NULL);
    cublasStatus_t status = cublasLtCreate(&x->handle);
    cudaError_t error = status ? cudaSuccess : cudaMalloc(&x->workspace, WORKSPACE_BYTES);
    if (!status && !error)
        error = cudaMalloc((void **)&x->sums, SUMS_BYTES);
    if (!status && !error)
        error = cudaEventCreateWithFlags(&x->done, cudaEventDisableTiming);
    int failed = status  ? pt_fail(e, PT_FAILED, "cuBLASLt cannot be opened: %s", cublasLtGetStatusString(status))
                 : error ? cuda_fail(e, error, "opening cuBLASLt")
                         : matmul_table_open(x, e);
    if (failed)
        cuda_matmul_close(x);
    else
        *out = x;
    return failed;
}

uint32_t cuda_matmul_table(const cuda_matmul *x) { return matmul_table_checksum(&x->table); }

/* The proposals are timed when the program has ended its work. */
static void tune(cuda_matmul *x)
{
    const char *file = getenv("PROTRAIN_MATMUL_TUNE");
    pt_error e = {0};
    if (file && *file && x->choices_n && matmul_tune(x, file, &e) && x->options.notice)
        x->options.notice(x->options.arg, e.text);
}

void cuda_matmul_close(cuda_matmul *x)
{
    if (!x)
        return;
    if (x->missing[0] && x->options.notice)
        x->options.notice(x->options.arg, x->missing);
    tune(x);
    matmul_table_close(&x->table);
    if (x->done)
        cudaEventDestroy(x->done);
    cudaFree(x->sums);
    cudaFree(x->workspace);
    if (x->handle)
        cublasLtDestroy(x->handle);
    pthread_mutex_destroy(&x->lock);
    free(x);
}

void cuda_matmul_leave(cuda_matmul *x, cudaStream_t s)
{
    pthread_mutex_lock(&x->lock);
    if (x->user == s)
        x->user = NULL;
    pthread_mutex_unlock(&x->lock);
}

/* *out = NULL: the table is full, which no program should reach. */
static int choice_of(cuda_matmul *x, const op_matmul *o, bool few, const choice **out, pt_error *e)
{
    matmul_key key = matmul_key_of(o, few);
    *out = NULL;
    for (int i = 0; i < x->choices_n && !*out; i++)
        if (!memcmp(&x->choices[i].key, &key, sizeof key))
            *out = &x->choices[i];
    if (*out)
        return 0;
    if (x->choices_n == CHOICES) {
        note_missing(x, o, "the table of algorithms is full");
        return 0;
    }
    choice *c = &x->choices[x->choices_n];
    c->key = key;
    cublasStatus_t status = matmul_choose(x, c);
    if (status && !refused(status))
        return blas_fail(e, status, o);
    if (!c->found)
        note_missing(x, o, status ? cublasLtGetStatusString(status) : "no algorithm that keeps to the rules");
    x->choices_n++;
    *out = c;
    return 0;
}

/* ---- launching ---- */

static cudaError_t take_workspace(cuda_matmul *x, cudaStream_t s)
{
    cudaError_t error = cudaSuccess;
    if (x->user && x->user != s) {
        error = cudaEventRecord(x->done, x->user);
        if (!error)
            error = cudaStreamWaitEvent(s, x->done, 0);
    }
    x->user = s;
    return error;
}

/* One call of the library, without residual and stream. *found: there is an algorithm, and it was launched. */
static int launch(cuda_matmul *x, const op_matmul *o, bool few, cudaStream_t s, bool *found, pt_error *e)
{
    const choice *c;
    problem problem;
    float alpha = op_factor(o->alpha), beta = o->accumulate;
    int failed = choice_of(x, o, few, &c, e);
    *found = !failed && c && c->found;
    if (!*found)
        return failed;
    cublasStatus_t status = problem_make(o, o->m, &problem);
    if (!status)
        status = cublasLtMatmul(x->handle, &problem.desc, &alpha, o->b, &problem.a, o->a, &problem.b, &beta, o->c, &problem.c, o->c,
                                &problem.c, &c->algo, x->workspace, WORKSPACE_BYTES, s);
    if (refused(status)) {
        note_missing(x, o, cublasLtGetStatusString(status));
        *found = false;
        return 0;
    }
    return status ? blas_fail(e, status, o) : 0;
}

static void *advance(const void *p, int64_t elements, pt_dtype type)
{
    return p ? (char *)p + (size_t)elements * dtype_bytes(type) : NULL;
}

/* Rows row0 .. row0 + rows of the op: of c and, unless transposed, of a. */
static op_matmul rows_of(const op_matmul *o, int64_t row0, int64_t rows)
{
    op_matmul part = *o;
    part.m = rows;
    part.a = advance(o->a, row0 * (o->layout == MATMUL_TN ? 1 : o->lda), o->type);
    part.c = advance(o->c, row0 * o->ldc, o->out_type);
    part.residual = advance(o->residual, row0 * o->ldc, o->type);
    part.stream = advance(o->stream, row0 * o->ldc, PT_F32);
    part.more_a = advance(o->more_a, row0 * o->more_lda, o->type);
    return part;
}

/* Computes the matmul into `sums`, then the epilogue, in parts. The plain kernel computes a part that the library refuses, because earlier
 * parts may already be in c. *found: there is room for a part. */
static int launch_in_parts(cuda_matmul *x, const op_matmul *o, bool few, cudaStream_t s, bool *found, pt_error *e)
{
    enum { TILES = 256 }; /* rows of the library's largest tiles, so that parts end with full tiles */
    const int64_t most = SUMS_BYTES / (int64_t)sizeof(float) / o->n, step = most > TILES ? most / TILES * TILES : most;
    int failed = 0;
    cudaError_t error = cudaSuccess;
    *found = step > 0;
    for (int64_t row = 0; row < o->m && *found && !failed && !error; row += step) {
        bool taken;
        op_matmul part = rows_of(o, row, o->m - row < step ? o->m - row : step), matmul = part;
        matmul.out_type = PT_F32;
        matmul.bias = matmul.residual = NULL;
        matmul.stream = NULL;
        matmul.scale = NULL;
        matmul.accumulate = false;
        matmul.c = x->sums;
        matmul.ldc = o->n;
        failed = launch(x, &matmul, few, s, &taken, e);
        if (!failed && taken && o->more_k) {
            matmul = matmul_more(&matmul);
            matmul.accumulate = true;
            failed = launch(x, &matmul, few, s, &taken, e);
        }
        if (!failed)
            error = (cudaError_t)(taken ? cuda_matmul_finish(&part, x->sums, s) : cuda_matmul_plain(&part, s));
    }
    return error ? cuda_fail(e, error, "multiplying matrices") : failed;
}

int cuda_matmul_launch(cuda_matmul *x, const op_matmul *o, cudaStream_t s, pt_error *e)
{
    if (o->m == 0 || o->n == 0)
        return 0;
    bool bias_apart = o->bias && (o->type != o->out_type || o->accumulate || (uintptr_t)o->bias % MATMUL_ALIGN_MOST);
    bool found = false, in_parts = o->residual || o->stream || o->scale || o->more_k || bias_apart;
    bool few = o->layout != MATMUL_TN && o->m <= FEW_ROWS;
    int failed = 0;
    if (o->k) {
        pthread_mutex_lock(&x->lock);
        cudaError_t error = take_workspace(x, s);
        failed = error ? cuda_fail(e, error, "waiting for another matmul") : 0;
        if (!failed)
            failed = in_parts ? launch_in_parts(x, o, few, s, &found, e) : launch(x, o, few, s, &found, e);
        pthread_mutex_unlock(&x->lock);
    }
    if (failed || found)
        return failed;
    cudaError_t error = (cudaError_t)cuda_matmul_plain(o, s);
    return error ? cuda_fail(e, error, "multiplying matrices") : 0;
}
