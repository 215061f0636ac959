/* bench_scan - scans, forward and backward, beside a dense fp32 matmul.
 *
 *     bench_scan [threads [delta|ssd [LENxKEYHEADSxHEADSxKEYDIMxDIM [wall|cpu]]]]         default: Qwen3.5-4B's, 2048x16x32x128x128
 *
 * GFLOP/s, counting the matmuls that a scan consists of (predict/op_costs.c), each the best of some runs, timed in turn. With `cpu` the
 * clock is the processor time over the threads, so that other programs count less.
 */
#include "huge_pages.h"

#include "device/cpu/ops.h"
#include "predict/op_costs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TURNS = 7, DENSE = 1024 };

static pool *threads;
static bool by_processor;

static double now(void)
{
    struct timespec t;
    clock_gettime(by_processor ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return ((double)t.tv_sec + 1e-9 * (double)t.tv_nsec) / (by_processor ? pool_threads(threads) : 1);
}

/* Between low and high. */
static void *numbers(int64_t n, pt_dtype of, float low, float high)
{
    uint32_t x = 1;
    char *p = huge_pages((size_t)n * dtype_bytes(of));
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        const float value = low + (high - low) * (float)x * 0x1p-32f;
        if (of == PT_BF16)
            ((bf16 *)p)[i] = bf16_from_f32(value);
        else
            ((float *)p)[i] = value;
    }
    return p;
}

static double best_of(const op *o, double best)
{
    const double start = now();
    if (o->kind == OP_SCAN)
        cpu_scan(threads, &o->scan);
    else if (o->kind == OP_SCAN_BACKWARD)
        cpu_scan_backward(threads, &o->scan_backward);
    else
        cpu_matmul(threads, &o->matmul);
    const double seconds = now() - start;
    return seconds < best ? seconds : best;
}

int main(int argc, char **argv)
{
    const int count = argc > 1 ? atoi(argv[1]) : 1;
    const scan_kind kind = argc > 2 && !strcmp(argv[2], "ssd") ? SCAN_SSD : SCAN_DELTA;
    int64_t len = 2048, keys = 16, heads = 32, key_dim = 128, dim = 128;
    const char *shape = "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64 "x%" SCNd64;
    if ((argc > 3 && sscanf(argv[3], shape, &len, &keys, &heads, &key_dim, &dim) != 5) || pool_open(count, &threads, NULL)) {
        fprintf(stderr, "usage: bench_scan [threads [delta|ssd [LENxKEYHEADSxHEADSxKEYDIMxDIM [wall|cpu]]]]\n");
        return 2;
    }
    pool_spread(threads);
    by_processor = argc > 4 && !strcmp(argv[4], "cpu");
    const int64_t wide = keys * key_dim, ld = 2 * wide + heads * dim, gates = len * heads;
    bf16 *qkv = numbers(len * ld, PT_BF16, -1, 1), *dqkv = numbers(len * ld, PT_BF16, 0, 0);
    op_scan o = {.kind = kind, .type = PT_BF16, .seqs = 1, .len = len, .key_heads = keys, .heads = heads, .key_dim = key_dim, .dim = dim,
                 .ld = ld, .ldo = heads * dim, .norm_eps = kind == SCAN_DELTA ? 1e-6f : 0, .q = qkv, .k = qkv + wide, .v = qkv + 2 * wide,
                 .g = numbers(gates, PT_F32, -0.2f, 0), .beta = numbers(gates, PT_F32, 0, 1),
                 .states = numbers((int64_t)scan_states_bytes(1, len, heads, key_dim, dim) / 4 + 1, PT_F32, 0, 0),
                 .out = numbers(len * heads * dim, PT_BF16, 0, 0)};
    const op_scan_backward b = {
        .forward = o, .lddo = o.ldo, .ldd = ld, .dout = numbers(len * o.ldo, PT_BF16, -1, 1), .dq = dqkv, .dk = dqkv + wide,
        .dv = dqkv + 2 * wide, .dg = numbers(gates, PT_F32, 0, 0), .dbeta = numbers(gates, PT_F32, 0, 0),
        .scratch = numbers((int64_t)scan_backward_scratch_bytes(1, len, keys, heads, key_dim, dim, false) / 4, PT_F32, 0, 0)};
    const op_matmul dense = {.layout = MATMUL_NN, .type = PT_F32, .out_type = PT_F32, .m = DENSE, .n = DENSE, .k = DENSE, .lda = DENSE,
                             .ldb = DENSE, .ldc = DENSE, .a = numbers(DENSE * DENSE, PT_F32, -1, 1),
                             .b = numbers(DENSE * DENSE, PT_F32, -1, 1), .c = numbers(DENSE * DENSE, PT_F32, 0, 0)};
    const op ops[] = {{OP_SCAN, .scan = o}, {OP_SCAN_BACKWARD, .scan_backward = b}, {OP_MATMUL, .matmul = dense}};
    double best[] = {1e9, 1e9, 1e9};
    for (int turn = 0; turn < TURNS; turn++)
        for (int i = 0; i < 3; i++)
            best[i] = best_of(&ops[i], best[i]);
    const double rate = op_cost_of(&ops[2], 1).flops * 1e-9 / best[2];
    static const char *const names[] = {"forward", "backward"};
    for (int i = 0; i < 2; i++) {
        const double own = op_cost_of(&ops[i], 1).flops * 1e-9 / best[i];
        printf("%-9s %8.2f ms, %6.1f GFLOP/s, %3.0f%% of a dense matmul's %.1f\n", names[i], 1e3 * best[i], own, 100 * own / rate, rate);
    }
    return 0;
}
