/* matmul_choose.c - describes matmuls to cuBLASLt, and chooses their algorithms (matmul.c). */
#include "device/cuda/matmul_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- the problem ---- */

static cudaDataType_t blas_type(pt_dtype t) { return t == PT_BF16 ? CUDA_R_16BF : CUDA_R_32F; }

cublasStatus_t problem_make(const op_matmul *o, int64_t m, problem *problem)
{
    cudaDataType_t in = blas_type(o->type), out = blas_type(o->out_type);
    cublasOperation_t yes = CUBLAS_OP_T, no = CUBLAS_OP_N;
    bool b_transposed = o->layout == MATMUL_NT, a_transposed = o->layout == MATMUL_TN;
    cublasStatus_t s = cublasLtMatmulDescInit(&problem->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    if (!s)
        s = cublasLtMatmulDescSetAttribute(&problem->desc, CUBLASLT_MATMUL_DESC_TRANSA, b_transposed ? &yes : &no, sizeof no);
    if (!s)
        s = cublasLtMatmulDescSetAttribute(&problem->desc, CUBLASLT_MATMUL_DESC_TRANSB, a_transposed ? &yes : &no, sizeof no);
    if (!s && o->bias) {
        cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        s = cublasLtMatmulDescSetAttribute(&problem->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        if (!s)
            s = cublasLtMatmulDescSetAttribute(&problem->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->bias, sizeof o->bias);
        if (!s)
            s = cublasLtMatmulDescSetAttribute(&problem->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &out, sizeof out);
    }
    if (!s)
        s = cublasLtMatrixLayoutInit(&problem->a, in, (uint64_t)(b_transposed ? o->k : o->n), (uint64_t)(b_transposed ? o->n : o->k),
                                     o->ldb);
    if (!s)
        s = cublasLtMatrixLayoutInit(&problem->b, in, (uint64_t)(a_transposed ? m : o->k), (uint64_t)(a_transposed ? o->k : m), o->lda);
    return s ? s : cublasLtMatrixLayoutInit(&problem->c, out, (uint64_t)o->n, (uint64_t)m, o->ldc);
}

/* ---- the choice ---- */

/* The largest power of two, at most ALIGN_MOST, that divides the address and the stride in bytes. */
static int64_t alignment(const void *p, int64_t ld, pt_dtype type)
{
    uint64_t bits = (uint64_t)(uintptr_t)p | (uint64_t)ld * dtype_bytes(type) | MATMUL_ALIGN_MOST;
    return (int64_t)(bits & -bits);
}

matmul_key matmul_key_of(const op_matmul *o, bool few)
{
    return (matmul_key){o->layout, o->type, o->out_type, o->bias != NULL, o->accumulate, few, o->layout == MATMUL_TN ? o->m : 0, o->n, o->k,
                        alignment(o->a, o->lda, o->type), alignment(o->b, o->ldb, o->type), alignment(o->c, o->ldc, o->out_type)};
}

/* The allowed reductions of partial sums over K. Weight gradients: in the workspace, in an order that depends only on the key, which has
 * all of their sizes. Other matmuls: none. */
static uint32_t schemes_of(const matmul_key *key)
{
    return key->layout == MATMUL_TN ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
}

static bool keeps_to_rules(const matmul_key *key, const cublasLtMatmulAlgo_t *algo)
{
    int32_t parts = 0;
    uint32_t scheme = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &parts, sizeof parts, &written);
    cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &written);
    return parts == 0 || parts == 1 ? scheme == CUBLASLT_REDUCTION_SCHEME_NONE /* -2: stream-K, which splits K depending on M */
                                    : parts > 1 && scheme && scheme == schemes_of(key);
}

static cublasStatus_t preference_make(const matmul_key *key, cublasLtMatmulPreferenceOpaque_t *p)
{
    uint64_t workspace = WORKSPACE_BYTES;
    uint32_t a = (uint32_t)key->align_b, b = (uint32_t)key->align_a, c = (uint32_t)key->align_c, schemes = schemes_of(key);
    cublasStatus_t s = cublasLtMatmulPreferenceInit(p);
    if (!s)
        s = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    if (!s)
        s = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes);
    if (!s)
        s = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a);
    if (!s)
        s = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b);
    if (!s)
        s = cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c);
    return s ? s : cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c);
}

/* The smallest stride of rows of `width` elements with this alignment. */
static int64_t least_stride(int64_t width, int64_t align, pt_dtype type)
{
    int64_t elements = align > (int64_t)dtype_bytes(type) ? align / (int64_t)dtype_bytes(type) : 1;
    return (width + elements - 1) / elements * elements;
}

/* The library ignores addresses of operands, but not the alignment of the bias. */
op_matmul matmul_of_key(const matmul_key *key)
{
    op_matmul o = {.layout = (matmul_layout)key->layout, .type = (pt_dtype)key->type, .out_type = (pt_dtype)key->out_type,
                   .accumulate = key->accumulate, .n = key->n, .k = key->k};
    o.m = o.layout == MATMUL_TN ? key->m : key->few ? FEW_ROWS : REFERENCE_ROWS;
    o.lda = least_stride(o.layout == MATMUL_TN ? o.m : o.k, key->align_a, o.type);
    o.ldb = least_stride(o.layout == MATMUL_NT ? o.k : o.n, key->align_b, o.type);
    o.ldc = least_stride(o.n, key->align_c, o.out_type);
    o.bias = key->bias ? (const void *)(uintptr_t)MATMUL_ALIGN_MOST : NULL;
    return o;
}

static bool is_allowed(const matmul_key *key, const cublasLtMatmulHeuristicResult_t *r, const cublasLtMatmulAlgo_t *algo)
{
    return r->state == CUBLAS_STATUS_SUCCESS && r->workspaceSize <= WORKSPACE_BYTES && keeps_to_rules(key, algo);
}

cublasStatus_t matmul_proposals(cuda_matmul *x, const matmul_key *key, cublasLtMatmulAlgo_t out[CANDIDATES], int *n)
{
    cublasLtMatmulHeuristicResult_t results[CANDIDATES];
    cublasLtMatmulPreferenceOpaque_t preference;
    problem problem;
    int found = 0;
    const op_matmul asked = matmul_of_key(key);
    *n = 0;
    cublasStatus_t status = problem_make(&asked, asked.m, &problem);
    if (!status)
        status = preference_make(key, &preference);
    if (!status)
        status = cublasLtMatmulAlgoGetHeuristic(x->handle, &problem.desc, &problem.a, &problem.b, &problem.c, &problem.c, &preference,
                                                CANDIDATES, results, &found);
    for (int i = 0; i < found && !status; i++)
        if (is_allowed(key, &results[i], &results[i].algo))
            out[(*n)++] = results[i].algo;
    return status;
}

cublasStatus_t matmul_choose(cuda_matmul *x, choice *out)
{
    cublasLtMatmulAlgo_t proposals[CANDIDATES];
    const matmul_line *line = matmul_table_find(&x->table, &out->key);
    int n = line != NULL;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (line)
        memcpy(proposals, line->words, sizeof *proposals);
    else
        status = matmul_proposals(x, &out->key, proposals, &n);
    out->found = n > 0;
    if (n)
        out->algo = proposals[0];
    return status;
}

/* ---- the table ---- */

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == MATMUL_WORDS * sizeof(uint64_t), "a line of the table has an algorithm");

/* Whether the library has the algorithm of a line, and it is one of those that are allowed. */
static int check_line(cuda_matmul *x, const matmul_line *line, pt_error *e)
{
    cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_SUCCESS}; /* which the check leaves alone */
    cublasLtMatmulAlgo_t algo;
    problem problem;
    const op_matmul o = matmul_of_key(&line->key);
    memcpy(&algo, line->words, sizeof algo);
    cublasStatus_t status = problem_make(&o, o.m, &problem);
    if (!status)
        status = cublasLtMatmulAlgoCheck(x->handle, &problem.desc, &problem.a, &problem.b, &problem.c, &problem.c, &algo, &result);
    if (status || !is_allowed(&line->key, &result, &algo))
        return pt_fail(e, PT_FAILED, "%.200s:%d: cuBLASLt cannot multiply with this algorithm (%s): make the table again with "
                                     "tools/gpu-check tune", line->file, line->line,
                       status ? cublasLtGetStatusString(status) : "not one that a row's bits may come from");
    return 0;
}

int matmul_table_open(cuda_matmul *x, pt_error *e)
{
    const char *file = getenv("PROTRAIN_MATMUL_TABLE");
    int failed = 0;
    if (file && *file)
        failed = matmul_table_read(&x->table, file, x->gpu, e);
    else
        for (const matmul_text *t = MATMUL_TEXTS; t->name && !failed; t++)
            failed = matmul_table_add(&x->table, t->text, strlen(t->text), t->name, x->gpu, e);
    for (int i = 0; i < x->table.n && !failed; i++)
        failed = check_line(x, &x->table.lines[i], e);
    return failed;
}
