/* bench_experts - the matmuls of a layer of experts, beside dense matmuls of as much work, and the sort of tokens.
 *
 *     bench_experts [threads [bf16|f32 [WIDTHxINNERxEXPERTSxSLOTS [wall|cpu]]]]           default: Qwen3-30B-A3B's, 2048x768x128x8
 *
 * For 16, 64, 128 and 512 rows per expert in the mean, routed at random: GFLOP/s of the six matmuls of experts in a step, each the best of
 * some runs. Timed in turn with it: a dense matmul of one matrix with as many rows as all experts together, and a matmul of its own for
 * each expert's rows. With `cpu` the clock is the processor time over the threads, so that other programs count less.
 */
#include "huge_pages.h"

#include "device/cpu/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 5 };
static const int64_t ROWS[] = {16, 64, 128, 512};

static int64_t width = 2048, inner = 768, experts = 128, slots = 8;
static pt_dtype type = PT_BF16;
static pool *threads;

static bool by_processor;

static double now(void)
{
    struct timespec t;
    clock_gettime(by_processor ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / (by_processor ? pool_threads(threads) : 1);
}

static void *matrix(int64_t n, pt_dtype of)
{
    uint32_t x = 1;
    char *p = huge_pages((size_t)n * dtype_bytes(of));
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        const float value = (float)(int32_t)x * 0x1p-31f;
        if (of == PT_BF16)
            ((bf16 *)p)[i] = bf16_from_f32(value);
        else
            ((float *)p)[i] = value;
    }
    return p;
}

/* Tokens, each to `slots` different experts. */
typedef struct routing { int64_t tokens, rows; int32_t *ids, *order, *place, *ends; } routing;

static routing route(int64_t each)
{
    routing r = {each * experts / slots, 0, NULL, NULL, NULL, NULL};
    uint64_t x = 88172645463325252u;
    r.rows = r.tokens * slots;
    r.ids = malloc((size_t)r.rows * 4), r.order = malloc((size_t)r.rows * 4), r.place = malloc((size_t)r.rows * 4);
    r.ends = malloc((size_t)experts * 4);
    for (int64_t t = 0; t < r.tokens; t++) {
        int64_t left = slots;
        for (int64_t e = 0; e < experts && left; e++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            if ((int64_t)(x >> 16) % (experts - e) < left)
                r.ids[t * slots + slots - left--] = (int32_t)e;
        }
    }
    double best = 1e9;
    for (int turn = 0; turn < 2 * TURNS; turn++) {
        const double start = now();
        cpu_dispatch(threads, &(op_dispatch){r.rows, experts, r.ids, r.order, r.place, r.ends});
        best = now() - start < best ? now() - start : best;
    }
    printf("\n%" PRId64 " rows per expert: %" PRId64 " tokens, sorted in %.3f ms\n", each, r.tokens, 1e3 * best);
    return r;
}

static double seconds_of(const op_grouped_matmul *o, const op_matmul *dense, const routing *r, bool apart)
{
    const double start = now();
    if (o)
        cpu_grouped_matmul(threads, o);
    else if (!apart)
        cpu_matmul(threads, dense);
    for (int64_t e = 0; apart && e < experts; e++) {
        const int64_t first = e ? r->ends[e - 1] : 0, rows = r->ends[e] - first, size = (int64_t)dtype_bytes(type);
        op_matmul m = *dense;
        *(m.layout == MATMUL_TN ? &m.k : &m.m) = rows;
        m.a = (const char *)m.a + first * m.lda * size;
        if (m.layout == MATMUL_TN)
            m.b = (const char *)m.b + first * m.ldb * size, m.c = (float *)m.c + e * m.m * m.n;
        else
            m.b = (const char *)m.b + e * m.n * m.k * size, m.c = (char *)m.c + first * m.ldc * size;
        if (rows)
            cpu_matmul(threads, &m);
    }
    return now() - start;
}

static void measure(const char *name, const op_grouped_matmul *o, const routing *r)
{
    op_matmul dense = o->of;
    *(dense.layout == MATMUL_TN ? &dense.k : &dense.m) = r->rows;
    double best[3] = {1e9, 1e9, 1e9};
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < 3; i++) {
            const double seconds = seconds_of(i ? NULL : o, &dense, r, i == 2);
            best[i] = seconds < best[i] ? seconds : best[i];
        }
    const double flops = 2e-9 * (double)dense.m * (double)dense.n * (double)dense.k;
    printf("  %-22s %7.1f   dense %7.1f (%3.0f%%)   a matmul for each %7.1f (%3.0f%%)\n", name, flops / best[0], flops / best[1],
           100 * best[1] / best[0], flops / best[2], 100 * best[2] / best[0]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 1;
    type = argc > 2 && !strcmp(argv[2], "f32") ? PT_F32 : PT_BF16;
    if ((argc > 3 && sscanf(argv[3], "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64, &width, &inner, &experts, &slots) != 4) ||
        pool_open(count, &threads, NULL)) {
        fprintf(stderr, "usage: bench_experts [threads [bf16|f32 [WIDTHxINNERxEXPERTSxSLOTS [wall|cpu]]]]\n");
        return 2;
    }
    pool_spread(threads);
    by_processor = argc > 4 && !strcmp(argv[4], "cpu");
    const int64_t up = experts * 2 * inner * width, most = ROWS[3] * experts;
    void *w_up = matrix(up, type), *w_down = matrix(up / 2, type), *x = matrix(most * width, type), *u = matrix(most * 2 * inner, type);
    void *y = matrix(most * width, type);
    float *sums = matrix(up, PT_F32);
    printf("GFLOP/s of %d threads, %s\n", count, type == PT_F32 ? "fp32" : "bf16");
    for (int i = 0; i < 4; i++) {
        const routing r = route(ROWS[i]);
        const expert_range range = {0, experts, r.rows, r.ends};
        const op_matmul nt = {.layout = MATMUL_NT, .type = type, .out_type = type};
        const op_matmul nn = {.layout = MATMUL_NN, .type = type, .out_type = type};
        const op_matmul tn = {.layout = MATMUL_TN, .type = type, .out_type = PT_F32, .accumulate = true};
        op_grouped_matmul o = {.of = nt, .range = range, .order = r.order, .k = slots, .b_step = 2 * inner * width};
#define SHAPE(rows, n_, k_, a_, lda_, b_, ldb_, c_) \
    o.of.m = rows, o.of.n = n_, o.of.k = k_, o.of.a = a_, o.of.lda = lda_, o.of.b = b_, o.of.ldb = ldb_, o.of.c = c_, o.of.ldc = n_
        SHAPE(0, 2 * inner, width, x, width, w_up, width, u);
        o.a_at = AT_TOKEN;
        measure("gate and up", &o, &r);
        SHAPE(0, width, inner, u, inner, w_down, inner, y);
        o.a_at = AT_ROW, o.b_step = inner * width;
        measure("down", &o, &r);
        o.of = nn;
        SHAPE(0, inner, width, x, width, w_down, inner, u);
        o.a_at = AT_TOKEN;
        measure("down, data gradient", &o, &r);
        SHAPE(0, width, 2 * inner, u, 2 * inner, w_up, width, y);
        o.a_at = AT_ROW, o.b_step = 2 * inner * width;
        measure("up, data gradient", &o, &r);
        o.of = tn;
        SHAPE(width, inner, 0, x, width, u, inner, sums);
        o.a_at = AT_TOKEN, o.b_at = AT_ROW, o.c_step = inner * width;
        measure("down, weight gradient", &o, &r);
        SHAPE(2 * inner, width, 0, u, 2 * inner, x, width, sums);
        o.a_at = AT_ROW, o.b_at = AT_TOKEN, o.c_step = 2 * inner * width;
        measure("up, weight gradient", &o, &r);
        free(r.ids), free(r.order), free(r.place), free(r.ends);
    }
    return 0;
}
