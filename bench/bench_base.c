/* bench_base - what it costs to keep a frozen matrix in few bits: decoding alone, beside a copy of what it writes, and matmuls with the
 * matrix, forward and for the gradient of their input, beside matmuls with the same weights in the type that is computed in.
 *
 *     bench_base [threads [bf16|f32 [tokens [outputs inputs]]]]
 *
 * Without outputs and inputs, the matrices of Qwen2.5-0.5B's layers. Each time is the best of several, taken in turn with what it is
 * compared with. Matmuls decode stripe by stripe, as a layer does (src/layer/matrix.c).
 */
#include "device/cpu/isa.h"
#include "device/cpu/ops.h"
#include "model/storage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 7 };

static pool *threads;
static pt_dtype type = PT_BF16;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!p) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return p;
}

/* Numbers from -1 to 1. */
static void *numbers(int64_t n)
{
    uint64_t x = 88172645463325252u;
    void *p = memory((size_t)n * dtype_bytes(type));
    for (int64_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        const float value = (float)(int32_t)x / 2147483648.0f;
        if (type == PT_BF16)
            ((bf16 *)p)[i] = bf16_from_f32(value);
        else
            ((float *)p)[i] = value;
    }
    return p;
}

/* A matrix in few bits, and the same plain. */
typedef struct matrix { param p; param_part part; step_shape shape; char *piece; void *plain, *stripe; } matrix;

static void decode(const matrix *m, int64_t row0, int64_t rows, int64_t col0, int64_t cols, void *out)
{
    op_dequantize o = {.type = type, .cols = cols, .ld = cols, .out = out};
    storage_run(&m->p, storage_all_rows(&m->p), m->piece, row0, rows, &o);
    o.first += col0;
    cpu_dequantize(threads, &o);
}

static void matrix_open(matrix *m, param_storage storage, int64_t rows, int64_t cols)
{
    *m = (matrix){.p = {.rows = rows, .cols = cols, .parts = 1, .storage = storage}, .part = {.rows = rows}, .shape = {.type = type}};
    m->p.part = &m->part;
    m->piece = memory(storage_bytes(&m->p));
    memset(m->piece, 0x3b, storage_bytes(&m->p)); /* scales of 0.003 */
    m->plain = memory((size_t)(rows * cols) * dtype_bytes(type));
    m->stripe = memory((size_t)(stripe_rows(&m->p, &m->shape) * cols + stripe_cols(&m->p, &m->shape) * rows) * dtype_bytes(type));
    decode(m, 0, rows, 0, cols, m->plain);
}

static void matrix_close(matrix *m) { free(m->piece), free(m->plain), free(m->stripe); }

/* c = a . W^T, or a . W, in stripes that are decoded or from the plain matrix. */
static void matmul(const matrix *m, bool few, bool forward, int64_t tokens, const void *a, char *c)
{
    const int64_t n = forward ? m->p.rows : m->p.cols, k = forward ? m->p.cols : m->p.rows;
    const int64_t each = !few ? n : forward ? stripe_rows(&m->p, &m->shape) : stripe_cols(&m->p, &m->shape);
    for (int64_t at = 0; at < n; at += each) {
        const int64_t some = n - at < each ? n - at : each;
        if (few && forward)
            decode(m, at, some, 0, k, m->stripe);
        else if (few)
            decode(m, 0, k, at, some, m->stripe);
        cpu_matmul(threads, &(op_matmul){.layout = forward ? MATMUL_NT : MATMUL_NN, .type = type, .out_type = type, .m = tokens, .n = some,
                                         .k = k, .lda = k, .ldb = forward ? k : some, .ldc = n, .a = a, .b = few ? m->stripe : m->plain,
                                         .c = c + (size_t)at * dtype_bytes(type)});
    }
}

static double best_of(double best, double start)
{
    const double took = now() - start;
    return took < best ? took : best;
}

static void measure_decoding(const matrix *m, const char *name)
{
    const size_t bytes = (size_t)(m->p.rows * m->p.cols) * dtype_bytes(type);
    char *from = memory(bytes), *to = memory(bytes);
    double few = 1e9, copied = 1e9;
    memset(from, 1, bytes);
    for (int i = 0; i < TURNS; i++) {
        double start = now();
        decode(m, 0, m->p.rows, 0, m->p.cols, to);
        few = best_of(few, start);
        start = now();
        memcpy(to, from, bytes);
        copied = best_of(copied, start);
    }
    const double values = (double)(m->p.rows * m->p.cols);
    printf("%-5s %6lld x %-6lld decoding %7.2f Gvalues/s, %.2f of a thread's copy of as many\n", name, (long long)m->p.rows,
           (long long)m->p.cols,
           1e-9 * values / few, copied / few);
    free(from), free(to);
}

static void measure_matmuls(const matrix *m, const char *name, int64_t tokens)
{
    const int64_t most = m->p.rows > m->p.cols ? m->p.rows : m->p.cols;
    void *a = numbers(tokens * most);
    char *c = memory((size_t)(tokens * most) * dtype_bytes(type));
    for (int forward = 1; forward >= 0; forward--) {
        double times[2] = {1e9, 1e9}; /* plain, few */
        for (int i = 0; i < TURNS; i++)
            for (int few = 0; few < 2; few++) {
                const double start = now();
                matmul(m, few, forward, tokens, a, c);
                times[few] = best_of(times[few], start);
            }
        printf("%-5s %6lld x %-6lld %s plain %8.2f ms, few bits %8.2f ms: %.3f of its speed\n", name, (long long)m->p.rows,
               (long long)m->p.cols,
               forward ? "x W^T" : "dy W ", 1e3 * times[0], 1e3 * times[1], times[0] / times[1]);
    }
    free(a), free(c);
}

static void measure(int64_t rows, int64_t cols, int64_t tokens)
{
    for (param_storage s = STORAGE_NF4; s < STORAGES; s++) {
        matrix m;
        matrix_open(&m, s, rows, cols);
        measure_decoding(&m, storage_format_of(s)->name);
        measure_matmuls(&m, storage_format_of(s)->name, tokens);
        matrix_close(&m);
    }
}

int main(int argc, char **argv)
{
    static const int64_t qwen[][2] = {{1152, 896}, {896, 896}, {9728, 896}, {896, 4864}};
    const int count = argc > 1 ? atoi(argv[1]) : 2;
    if (argc > 2 && !strcmp(argv[2], "f32"))
        type = PT_F32;
    const long tokens = argc > 3 ? atol(argv[3]) : 2048, rows = argc > 5 ? atol(argv[4]) : 0, cols = argc > 5 ? atol(argv[5]) : 0;
    pt_error e = {0};
    if (tokens < 1 || rows < 0 || cols < 0 || pool_open(count, &threads, &e)) {
        fprintf(stderr, "bench_base: %s\n", e.text[0] ? e.text : "tokens, outputs and inputs are above 0");
        return 2;
    }
    printf("%s, %d threads, %s, %ld tokens\n", cpu_isa_name(), count, type == PT_BF16 ? "bf16" : "fp32", tokens);
    for (size_t i = 0; i < sizeof qwen / sizeof *qwen && !rows; i++)
        measure(qwen[i][0], qwen[i][1], tokens);
    if (rows && cols)
        measure(rows, cols, tokens);
    pool_close(threads);
    return 0;
}
