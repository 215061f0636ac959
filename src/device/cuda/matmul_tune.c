/* matmul_tune.c - times cuBLASLt's proposals for the matmuls that a program has computed, and writes a table of those that are faster than
 * the first one ($PROTRAIN_MATMUL_TUNE, tools/gpu-check tune).
 *
 * The clock of a GPU falls under load, so proposals are timed in turn, several times:
 *
 *     round 0   | 0 | 1 | 2 | ...      each for about TIMED_MS
 *     round 1   | 0 | 1 | 2 | ...
 *
 * One gets a line if it is faster than the first one in every round, by LEAST_GAIN in the median, and if its bits are the same when it
 * runs again and, for a matmul whose rows may be divided, with an eighth of the rows. Operands are random numbers, because a matmul of
 * zeros takes less power and so less time.
 */
#include "device/cuda/matmul_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5, REPEATS_MOST = 200, RANDOM_BYTES = 8 << 20, CHECKED_BYTES = 64 << 20, PARTS = 8 };
static const double TIMED_MS = 2, LEAST_GAIN = 1.03;

typedef struct tuning {
    cuda_matmul *x;
    cudaStream_t stream;
    cudaEvent_t from, to;
    void *random, *checked[2];   /* on the host */
    FILE *out;
    matmul_table known;          /* lines that the file already has */
} tuning;

/* A matmul with its operands, and what each proposal took in each round. */
typedef struct trial {
    op_matmul o;
    void *a, *b, *c, *bias;
    size_t c_bytes;
    cublasLtMatmulAlgo_t algo[CANDIDATES];
    int n;
    double ms[CANDIDATES][ROUNDS];
} trial;

/* ---- operands ---- */

/* Small numbers around 0, as bf16 or as fp32. */
static void fill_random(tuning *t, pt_dtype type)
{
    uint64_t state = 1;
    for (size_t i = 0; i < RANDOM_BYTES / dtype_bytes(type); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const float x = ((float)(state >> 40) - (float)(1 << 23)) * 0x1p-28f;
        if (type == PT_BF16)
            ((bf16 *)t->random)[i] = bf16_from_f32(x);
        else
            ((float *)t->random)[i] = x;
    }
}

static cudaError_t random_operand(tuning *t, size_t bytes, void **out)
{
    cudaError_t error = cudaMalloc(out, bytes);
    for (size_t at = 0; at < bytes && !error; at += RANDOM_BYTES)
        error = cudaMemcpyAsync((char *)*out + at, t->random, bytes - at < RANDOM_BYTES ? bytes - at : RANDOM_BYTES, cudaMemcpyDefault,
                                t->stream);
    return error;
}

static cudaError_t operands_make(tuning *t, trial *y)
{
    op_matmul *o = &y->o;
    const size_t e = dtype_bytes(o->type);
    fill_random(t, o->type);
    y->c_bytes = (size_t)(o->m * o->ldc) * dtype_bytes(o->out_type);
    cudaError_t error = random_operand(t, (size_t)((o->layout == MATMUL_TN ? o->k : o->m) * o->lda) * e, &y->a);
    if (!error)
        error = random_operand(t, (size_t)((o->layout == MATMUL_NT ? o->n : o->k) * o->ldb) * e, &y->b);
    if (!error)
        error = random_operand(t, (size_t)o->n * e, &y->bias);
    if (!error)
        error = cudaMalloc(&y->c, y->c_bytes);
    if (!error)
        error = cudaMemsetAsync(y->c, 0, y->c_bytes, t->stream);
    o->a = y->a, o->b = y->b, o->c = y->c;
    o->bias = o->bias ? y->bias : NULL;
    return error;
}

static void operands_free(trial *y)
{
    cudaFree(y->a);
    cudaFree(y->b);
    cudaFree(y->c);
    cudaFree(y->bias);
}

/* ---- runs ---- */

/* With the first m rows. */
static bool run(tuning *t, const trial *y, int i, int64_t m)
{
    const op_matmul *o = &y->o;
    const float alpha = 1, beta = o->accumulate;
    problem problem;
    return !problem_make(o, m, &problem) &&
           !cublasLtMatmul(t->x->handle, &problem.desc, &alpha, o->b, &problem.a, o->a, &problem.b, &beta, o->c, &problem.c, o->c,
                           &problem.c, &y->algo[i], t->x->workspace, WORKSPACE_BYTES, t->stream);
}

/* Milliseconds of one of `repeats` runs; 0: it failed. */
static double time_one(tuning *t, const trial *y, int i, int repeats)
{
    float ms = 0;
    bool good = !cudaEventRecord(t->from, t->stream);
    for (int r = 0; r < repeats && good; r++)
        good = run(t, y, i, y->o.m);
    good = good && !cudaEventRecord(t->to, t->stream) && !cudaEventSynchronize(t->to) && !cudaEventElapsedTime(&ms, t->from, t->to);
    return good ? (double)ms / repeats : 0;
}

/* Removes proposals that the library does not run. */
static void time_all(tuning *t, trial *y)
{
    int repeats[CANDIDATES], n = 0;
    for (int i = 0; i < y->n; i++) {
        time_one(t, y, i, 1); /* loads its code */
        const double ms = time_one(t, y, i, 1);
        if (ms <= 0)
            continue;
        y->algo[n] = y->algo[i];
        repeats[n++] = ms * REPEATS_MOST < TIMED_MS ? REPEATS_MOST : ms < TIMED_MS ? (int)(TIMED_MS / ms) : 1;
    }
    y->n = n;
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < n; i++)
            y->ms[i][round] = time_one(t, y, i, repeats[i]);
}

static int by_size(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(const double ms[ROUNDS])
{
    double sorted[ROUNDS];
    memcpy(sorted, ms, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, by_size);
    return sorted[ROUNDS / 2];
}

static bool always_faster(const trial *y, int i)
{
    for (int round = 0; round < ROUNDS; round++)
        if (y->ms[i][round] <= 0 || y->ms[i][round] >= y->ms[0][round])
            return false;
    return true;
}

/* The first rows of c, at most CHECKED_BYTES, of a run with m rows on a c of zeros. */
static bool result_of(tuning *t, const trial *y, int i, int64_t m, size_t bytes, void *to)
{
    return !cudaMemsetAsync(y->c, 0, y->c_bytes, t->stream) && run(t, y, i, m) &&
           !cudaMemcpyAsync(to, y->c, bytes, cudaMemcpyDefault, t->stream) && !cudaStreamSynchronize(t->stream);
}

static bool has_same_bits(tuning *t, const trial *y, int i)
{
    const int64_t m = y->o.layout == MATMUL_TN || y->o.m < PARTS ? y->o.m : y->o.m / PARTS;
    const size_t part = (size_t)(m * y->o.ldc) * dtype_bytes(y->o.out_type), bytes = part < CHECKED_BYTES ? part : CHECKED_BYTES;
    return result_of(t, y, i, y->o.m, bytes, t->checked[0]) && result_of(t, y, i, y->o.m, bytes, t->checked[1]) &&
           !memcmp(t->checked[0], t->checked[1], bytes) && result_of(t, y, i, m, bytes, t->checked[1]) &&
           !memcmp(t->checked[0], t->checked[1], bytes);
}

/* The fastest one that may have a line; 0: none. */
static int best_of(tuning *t, const trial *y)
{
    bool tried[CANDIDATES] = {true};
    for (;;) {
        int best = 0;
        for (int i = 1; i < y->n; i++)
            if (!tried[i] && always_faster(y, i) && median(y->ms[i]) * LEAST_GAIN <= median(y->ms[0]) &&
                (!best || median(y->ms[i]) < median(y->ms[best])))
                best = i;
        if (!best || has_same_bits(t, y, best))
            return best;
        tried[best] = true;
    }
}

/* ---- the table ---- */

static int attribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t what, size_t bytes)
{
    uint32_t value = 0;
    size_t written;
    cublasLtMatmulAlgoConfigGetAttribute(algo, what, &value, bytes, &written);
    return (int)value;
}

/* Its line, or without one its first proposal's time, as a comment. */
static void write_trial(tuning *t, const trial *y, const matmul_key *key, int best)
{
    char line[MATMUL_LINE_BYTES];
    uint64_t words[MATMUL_WORDS] = {0};
    const cublasLtMatmulAlgo_t *algo = &y->algo[best];
    const double flop = 2.0 * (double)y->o.m * (double)y->o.n * (double)y->o.k, ms = median(y->ms[best]);
    memcpy(words, algo, sizeof words);
    matmul_line_write(key, words, line);
    fprintf(t->out, "%s%s # %.1f us, %.0f TFLOP/s, proposal %d of %d, %.2f x the first; algorithm %d, tile %d, stages %d, cluster %d, "
                    "parts %d\n",
            best ? "" : "# ", line, 1e3 * ms, 1e-9 * flop / ms, best, y->n, median(y->ms[0]) / ms,
            attribute(algo, CUBLASLT_ALGO_CONFIG_ID, sizeof(int32_t)), attribute(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, sizeof(uint32_t)),
            attribute(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, sizeof(uint32_t)),
            attribute(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, sizeof(uint16_t)),
            attribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, sizeof(int32_t)));
    fflush(t->out);
}

static void tune_one(tuning *t, const matmul_key *key)
{
    trial y = {.o = matmul_of_key(key)};
    if (matmul_table_find(&t->known, key) || matmul_proposals(t->x, key, y.algo, &y.n) || !y.n)
        return;
    if (!operands_make(t, &y)) {
        time_all(t, &y);
        if (y.n)
            write_trial(t, &y, key, best_of(t, &y));
    } else {
        cudaGetLastError();
        fprintf(t->out, "# the GPU has no memory for %lld x %lld x %lld\n", (long long)y.o.m, (long long)y.o.n, (long long)y.o.k);
    }
    cudaStreamSynchronize(t->stream);
    operands_free(&y);
}

static int open_tuning(tuning *t, const char *file, pt_error *e)
{
    FILE *before = fopen(file, "re");
    if (before)
        fclose(before);
    if (before && matmul_table_read(&t->known, file, t->x->gpu, e))
        return PT_FAILED;
    t->out = fopen(file, "ae");
    t->random = malloc(RANDOM_BYTES);
    t->checked[0] = malloc(CHECKED_BYTES);
    t->checked[1] = malloc(CHECKED_BYTES);
    if (!t->out || !t->random || !t->checked[0] || !t->checked[1])
        return pt_fail(e, PT_FAILED, "%.200s: the table of matmul algorithms cannot be written", file);
    cudaError_t error = cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking);
    if (!error)
        error = cudaEventCreate(&t->from);
    if (!error)
        error = cudaEventCreate(&t->to);
    return error ? cuda_fail(e, error, "timing matmuls") : 0;
}

int matmul_tune(cuda_matmul *x, const char *file, pt_error *e)
{
    tuning t = {.x = x};
    int failed = open_tuning(&t, file, e);
    if (!failed) {
        fprintf(t.out, "gpu %s\n", x->gpu);
        for (int i = 0; i < x->choices_n; i++)
            tune_one(&t, &x->choices[i].key);
    }
    if (t.from)
        cudaEventDestroy(t.from);
    if (t.to)
        cudaEventDestroy(t.to);
    if (t.stream)
        cudaStreamDestroy(t.stream);
    if (t.out)
        fclose(t.out);
    free(t.random);
    free(t.checked[0]);
    free(t.checked[1]);
    matmul_table_close(&t.known);
    return failed;
}
