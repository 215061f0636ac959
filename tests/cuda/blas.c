/* blas.c - cuBLASLt's matmuls for the stand-in of CUDA's runtime (runtime.c): out = alpha op(a) op(b) + beta c, with a bias, columns
 * first.
 *
 * Sums are fp32, over k ascending, or over parts of k, which are added in order. Rows of them lie in the workspace meanwhile, so that two
 * streams that use one workspace at the same time spoil each other's results. Of the algorithms that are proposed the first splits k with
 * atomics and must not be taken; the second splits k in a fixed order, which only a matmul whose number of rows is in its key may do (a
 * weight gradient: both operands lie across k); the third does not; the fourth adds over k descending; the fifth does not give the same
 * bits twice. They remember what they were asked for, and stop the program where they meet another n or k (or, split, m), or operands less
 * aligned.
 *
 *     PT_STANDIN_MATMUL_US     what a matmul takes longer by the first three; by the fourth half as much, by the fifth nothing */
#include <cublasLt.h>

#include "base/dtype.h"
#include "standin.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PARTS = 4, MARK = 0x5eed };
enum { ATOMIC, SPLIT, ASCENDING, DESCENDING, RANDOM, PROPOSALS };

struct standin_blas { int open; };

typedef struct product {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, c, out;
    const void *a_at, *b_at, *c_at;
    void *out_at;
    float alpha, beta, *row; /* of the workspace, and one behind it */
    uint64_t parts, id;
} product;

static void stop(const char *what)
{
    fprintf(stderr, "cuBLASLt stand-in: %s\n", what);
    abort();
}

size_t cublasLtGetVersion(void) { return 0; }
const char *cublasLtGetStatusString(cublasStatus_t status) { return status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "an error"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    *out = calloc(1, sizeof **out);
    return *out ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_INITIALIZED;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    free(h);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptions ---- */

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t d, cublasComputeType_t compute, cudaDataType_t scale)
{
    *d = (cublasLtMatmulDescOpaque_t){.epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return compute == CUBLAS_COMPUTE_32F && scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

static cublasStatus_t take(void *to, size_t room, const void *value, size_t bytes)
{
    if (bytes != room)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what, const void *value, size_t bytes)
{
    switch (what) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return take(&d->turn_a, sizeof d->turn_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return take(&d->turn_b, sizeof d->turn_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(&d->epilogue, sizeof d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(&d->bias, sizeof d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return take(&d->bias_type, sizeof d->bias_type, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t l, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld)
{
    *l = (cublasLtMatrixLayoutOpaque_t){type, rows, cols, ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t p)
{
    *p = (cublasLtMatmulPreferenceOpaque_t){.schemes = ~0u, .align = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p, cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    switch (what) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return take(&p->workspace, sizeof p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return take(&p->schemes, sizeof p->schemes, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return take(&p->align[0], sizeof *p->align, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return take(&p->align[1], sizeof *p->align, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return take(&p->align[2], sizeof *p->align, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return take(&p->align[3], sizeof *p->align, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

static uint64_t rows_of(const cublasLtMatrixLayoutOpaque_t *l, cublasOperation_t turn) { return turn == CUBLAS_OP_T ? l->cols : l->rows; }
static uint64_t cols_of(const cublasLtMatrixLayoutOpaque_t *l, cublasOperation_t turn) { return turn == CUBLAS_OP_T ? l->rows : l->cols; }

static bool sizes_agree(const cublasLtMatmulDescOpaque_t *d, const cublasLtMatrixLayoutOpaque_t *a, const cublasLtMatrixLayoutOpaque_t *b,
                        const cublasLtMatrixLayoutOpaque_t *c)
{
    return rows_of(a, d->turn_a) == c->rows && cols_of(b, d->turn_b) == c->cols && cols_of(a, d->turn_a) == rows_of(b, d->turn_b) &&
           a->ld >= (int64_t)a->rows && b->ld >= (int64_t)b->rows && c->ld >= (int64_t)c->rows && a->type == b->type;
}

/* ---- the choice ---- */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out, cublasLtMatmulPreference_t p,
                                              int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *found)
{
    *found = 0;
    if (!sizes_agree(d, a, b, c) || memcmp(c, out, sizeof *c))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (int i = 0; i < PROPOSALS && i < wanted; i++) {
        static const uint32_t schemes[PROPOSALS] = {[ATOMIC] = CUBLASLT_REDUCTION_SCHEME_INPLACE,
                                                    [SPLIT] = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE};
        cublasLtMatmulAlgo_t algo = {.parts = schemes[i] ? PARTS : 1, .scheme = schemes[i], .n = c->rows, .m = c->cols,
                                     .k = cols_of(a, d->turn_a), .id = (uint64_t)i, .mark = MARK};
        memcpy(algo.align, p->align, sizeof algo.align);
        results[(*found)++] = (cublasLtMatmulHeuristicResult_t){algo, 2 * (size_t)c->rows * sizeof(float), CUBLAS_STATUS_SUCCESS};
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what,
                                                    void *value_out,
                                                    size_t bytes, size_t *written)
{
    const int32_t value = what == CUBLASLT_ALGO_CONFIG_SPLITK_NUM         ? algo->parts
                          : what == CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME ? (int32_t)algo->scheme
                                                                          : (int32_t)algo->id;
    const size_t size = what == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID ? sizeof(uint16_t) : sizeof value;
    *written = size;
    if (bytes != size)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value_out, &value, size);
    return CUBLAS_STATUS_SUCCESS;
}

/* Leaves the result's state alone, as the real one may. */
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t h, cublasLtMatmulDesc_t d, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out, const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    if (algo->mark != MARK || !sizes_agree(d, a, b, c) || algo->n != c->rows || algo->k != cols_of(a, d->turn_a))
        return CUBLAS_STATUS_INVALID_VALUE;
    result->workspaceSize = 2 * (size_t)c->rows * sizeof(float);
    return CUBLAS_STATUS_SUCCESS;
}

static void check_alignment(const void *p, const cublasLtMatrixLayoutOpaque_t *l, uint32_t align)
{
    const uint64_t stride = (uint64_t)l->ld * (l->type == CUDA_R_16BF ? 2 : 4);
    if (((uint64_t)(uintptr_t)p | stride) % align)
        stop("an operand is less aligned than its algorithm was chosen for");
}

/* ---- the matmul ---- */

static float value_at(const void *base, cudaDataType_t type, uint64_t i)
{
    return type == CUDA_R_16BF ? bf16_to_f32(((const uint16_t *)base)[i]) : ((const float *)base)[i];
}

static void store(void *base, cudaDataType_t type, uint64_t i, float x)
{
    if (type == CUDA_R_16BF)
        ((uint16_t *)base)[i] = bf16_from_f32(x);
    else
        ((float *)base)[i] = x;
}

/* op(x) as fp32, its rows (or, `across`, its columns) one behind the other. */
static float *turned(const void *base, const cublasLtMatrixLayoutOpaque_t *l, cublasOperation_t turn, bool across)
{
    const uint64_t rows = rows_of(l, turn), cols = cols_of(l, turn), ld = (uint64_t)l->ld;
    float *out = malloc(rows * cols * sizeof *out + 1);
    if (!out)
        stop("no memory");
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            out[across ? c * rows + r : r * cols + c] = value_at(base, l->type, turn == CUBLAS_OP_T ? c + r * ld : r + c * ld);
    return out;
}

/* A row's sums over k from `at` to `end`. */
static void add_part(const product *p, const float *a, const float *b, uint64_t at, uint64_t end)
{
    const uint64_t n = p->out.rows;
    float *sums = p->row + n;
    memset(sums, 0, n * sizeof *sums);
    for (uint64_t left = end - at; left; left--) {
        const uint64_t k = p->id == DESCENDING ? at + left - 1 : end - left;
        for (uint64_t i = 0; i < n; i++)
            sums[i] += a[k * n + i] * b[k];
    }
    for (uint64_t i = 0; i < n; i++)
        p->row[i] += sums[i];
}

static void nap(uint64_t id)
{
    const char *given = getenv("PT_STANDIN_MATMUL_US");
    const long us = given ? strtol(given, NULL, 10) : 0, mine = id == RANDOM ? 0 : id == DESCENDING ? us / 2 : us;
    if (mine)
        nanosleep(&(struct timespec){.tv_sec = mine / 1000000, .tv_nsec = mine % 1000000 * 1000}, NULL);
}

static void run_product(void *arg)
{
    static atomic_uint runs;
    product *p = arg;
    const float noise = p->id == RANDOM ? (float)(runs++ % 16) * 1e-3f : 0;
    nap(p->id);
    const uint64_t n = p->out.rows, m = p->out.cols, k = cols_of(&p->a, p->desc.turn_a), ld = (uint64_t)p->out.ld;
    float *a = turned(p->a_at, &p->a, p->desc.turn_a, true), *b = turned(p->b_at, &p->b, p->desc.turn_b, true);
    for (uint64_t j = 0; j < m; j++) {
        memset(p->row, 0, n * sizeof *p->row);
        for (uint64_t part = 0; part < p->parts; part++)
            add_part(p, a, b + j * k, k * part / p->parts, k * (part + 1) / p->parts);
        for (uint64_t i = 0; i < n; i++) {
            float x = p->alpha * p->row[i] + noise;
            x += p->beta != 0 ? p->beta * value_at(p->c_at, p->c.type, j * ld + i) : 0;
            x += p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS ? value_at(p->desc.bias, p->desc.bias_type, i) : 0;
            store(p->out_at, p->out.type, j * ld + i, x);
        }
    }
    free(a);
    free(b);
    free(p);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha, const void *a, cublasLtMatrixLayout_t layout_a,
                              const void *b, cublasLtMatrixLayout_t layout_b, const void *beta, const void *c,
                              cublasLtMatrixLayout_t layout_c,
                              void *out, cublasLtMatrixLayout_t layout_out, const cublasLtMatmulAlgo_t *algo, void *workspace,
                              size_t workspace_bytes, cudaStream_t s)
{
    if (!sizes_agree(d, layout_a, layout_b, layout_c) || 2 * layout_out->rows * sizeof(float) > workspace_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (algo->scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE)
        stop("an algorithm was taken that splits k with atomics");
    if (algo->parts != 1 && (d->turn_a != CUBLAS_OP_N || d->turn_b != CUBLAS_OP_T || algo->m != layout_out->cols))
        stop("an algorithm was taken that splits k where m is not known before");
    if (algo->n != layout_out->rows || algo->k != cols_of(layout_a, d->turn_a))
        stop("an algorithm meets another n or k than it was chosen for");
    check_alignment(a, layout_a, algo->align[0]);
    check_alignment(b, layout_b, algo->align[1]);
    check_alignment(c, layout_c, algo->align[2]);
    check_alignment(out, layout_out, algo->align[3]);
    product *p = malloc(sizeof *p);
    if (!p)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *p = (product){*d, *layout_a, *layout_b, *layout_c, *layout_out, a, b, c, out, *(const float *)alpha, *(const float *)beta, workspace,
                   (uint64_t)algo->parts, algo->id};
    standin_run(s, run_product, p);
    return CUBLAS_STATUS_SUCCESS;
}
