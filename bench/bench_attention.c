/* bench_attention.c - attention forward and backward beside the processor's rate of fma.
 *
 *     bench_attention [threads [seconds per line [SEQSxTxDIM ...]]]
 *
 * GFLOP/s count what causal attention needs: 2 matmuls of T (T + 1) / 2 x dim multiply-adds a head
 * forward, 5 backward, whatever the kernels compute beyond that. The peak (threads x a loop of
 * independent fma in registers, of vdpbf16ps for bf16 where it is what multiplies it) is timed in turn
 * with them, so that a shared machine is fair to both; the best of each line counts. The last lines are generation: one query against many
 * keys, in GB/s of K and V.
 */
#include "huge_pages.h"

#include "base/rng.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/attention.h"
#include "device/cpu/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CHAINS = 12, TURNS = 1 << 18, RANDOM = 65521 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double larger(double a, double b) { return a > b ? a : b; }

#define SUM(op, reg, n) op " %%" reg "0, %%" reg "1, %%" reg #n "\n\t"
#define SUMS(op, reg)                                                                              \
    SUM(op, reg, 2) SUM(op, reg, 3) SUM(op, reg, 4) SUM(op, reg, 5) SUM(op, reg, 6) SUM(op, reg, 7) \
    SUM(op, reg, 8) SUM(op, reg, 9) SUM(op, reg, 10) SUM(op, reg, 11) SUM(op, reg, 12) SUM(op, reg, 13)
#define SUM_LOOP(op, reg)                                                                          \
    __asm__ volatile("vzeroall\n" ::: "memory");                                                   \
    for (int i = 0; i < TURNS; i++)                                                                \
        __asm__ volatile(SUMS(op, reg) ::: "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", \
                         "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13")

static bool by_pairs(pt_dtype type) { return type == PT_BF16 && cpu_gains_by_bf16(); }

static void peak_tile(void *arg, int64_t tile, int thread)
{
    if (by_pairs(*(const pt_dtype *)arg)) {
        SUM_LOOP("vdpbf16ps", "zmm");
    } else if (cpu_isa() == 4) {
        SUM_LOOP("vfmadd231ps", "zmm");
    } else {
        SUM_LOOP("vfmadd231ps", "ymm");
    }
}

/* GFLOP/s of one pass of the loop for this type on all threads. */
static double peak(pool *p, pt_dtype type)
{
    double start = now(), flops = by_pairs(type) ? 64 : cpu_isa() == 4 ? 32 : 16;
    pool_run(p, pool_threads(p), peak_tile, &type);
    return pool_threads(p) * flops * CHAINS * TURNS / (now() - start) * 1e-9;
}

static void *tensor(pt_dtype type, int64_t n, uint32_t stream)
{
    static float random[RANDOM];
    void *p = huge_pages((size_t)n * dtype_bytes(type));
    for (uint64_t i = 0; i < RANDOM; i++)
        random[i] = (float)rng_uniform(1, RNG_TEST, stream, i) - 0.5f;
    for (int64_t i = 0; i < n; i++) {
        float x = random[i % RANDOM];
        if (type == PT_BF16)
            ((bf16 *)p)[i] = bf16_from_f32(x);
        else
            ((float *)p)[i] = x;
    }
    return p;
}

/* q, k and v lie in one buffer of rows [q | k | v], as after a fused projection. */
static op_attention_backward open_op(pt_dtype type, int64_t seqs, int64_t t, int64_t heads, int64_t dim)
{
    int64_t rows = seqs * t, width = heads * dim, ld = 3 * width;
    char *qkv = tensor(type, rows * ld, 1), *dqkv = tensor(type, rows * ld, 2);
    size_t step = (size_t)width * dtype_bytes(type), sums = attention_accumulator_bytes(seqs, t, heads, dim);
    op_attention f = {.type = type, .seqs = seqs, .q_len = t, .kv_len = t, .heads = heads, .kv_heads = heads,
        .dim = dim, .ldq = ld, .ldkv = ld, .ldo = width, .scale = 0.125f, .q = qkv, .k = qkv + step,
        .v = qkv + 2 * step, .out = tensor(type, rows * width, 3), .lse = tensor(PT_F32, rows * heads, 4)};
    return (op_attention_backward){.forward = f, .lddo = width, .dout = tensor(type, rows * width, 5),
        .dq = dqkv, .dk = dqkv + step, .dv = dqkv + 2 * step,
        .scratch = malloc(attention_backward_scratch_bytes(rows, heads)),
        .sums = sums ? huge_pages(sums) : NULL};
}

static void close_op(op_attention_backward *b)
{
    free((void *)b->forward.q), free(b->forward.out), free(b->forward.lse);
    free((void *)b->dout), free(b->dq), free(b->scratch), free(b->sums);
}

static void line(pool *p, pt_dtype type, int64_t seqs, int64_t t, int64_t dim, double seconds)
{
    double forward = 0, backward = 0, most = 0;
    const int64_t heads = 12;
    op_attention_backward b = open_op(type, seqs, t, heads, dim);
    double flops = 2.0 * (double)(seqs * heads * dim) * (double)t * (double)(t + 1) / 2 * 1e-9;
    cpu_attention(p, &b.forward);
    double start = now();
    for (int n = 0; n < 3 || now() - start < seconds; n++) {
        most = larger(most, peak(p, type));
        double a = now();
        cpu_attention(p, &b.forward);
        double c = now();
        cpu_attention_backward(p, &b);
        backward = larger(backward, 5 * flops / (now() - c));
        forward = larger(forward, 2 * flops / (c - a));
    }
    printf("%-4s %4ld x %5ld %5ld   %8.1f %5.1f %%   %8.1f %5.1f %%   %8.1f\n", dtype_name(type), (long)seqs,
           (long)t, (long)dim, forward, 100 * forward / most, backward, 100 * backward / most, most);
    close_op(&b);
}

static void generation(pool *p, int64_t kv_len, int64_t heads, int64_t kv_heads, double seconds)
{
    const int64_t dim = 64;
    bf16 *q = tensor(PT_BF16, heads * dim, 1), *out = tensor(PT_BF16, heads * dim, 2);
    bf16 *k = tensor(PT_BF16, kv_len * kv_heads * dim, 3), *v = tensor(PT_BF16, kv_len * kv_heads * dim, 4);
    op_attention o = {.type = PT_BF16, .seqs = 1, .q_len = 1, .kv_len = kv_len, .heads = heads,
        .kv_heads = kv_heads, .dim = dim, .ldq = heads * dim, .ldkv = kv_heads * dim, .ldo = heads * dim,
        .scale = 0.125f, .q = q, .k = k, .v = v, .out = out};
    double start = now(), rate = 0, bytes = (double)(4 * kv_len * kv_heads * dim);
    for (int n = 0; n < 3 || now() - start < seconds; n++) {
        double a = now();
        cpu_attention(p, &o);
        rate = larger(rate, bytes / (now() - a));
    }
    printf("1 query, %6ld keys, heads %2ld/%-2ld   %9.1f us   %6.1f GB/s\n", (long)kv_len, (long)heads,
           (long)kv_heads, bytes / rate * 1e6, rate * 1e-9);
    free(q), free(out), free(k), free(v);
}

/* The lines of one case. */
static void both_types(pool *p, const int64_t c[2], int64_t dim, double seconds)
{
    for (int type = PT_F32; type <= PT_BF16; type++)
        line(p, type, c[0], c[1], dim, seconds);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    pt_error e = {0};
    pool *p;
    if (threads < 1 || cpu_isa() < 3 || pool_open(threads, &p, &e)) {
        fprintf(stderr, "bench_attention: needs at least one thread, and AVX2 for the peak. %s\n", e.text);
        return 1;
    }
    pool_spread(p);
    setlinebuf(stdout);
    printf("%d threads, x86-64-v%d, 12 heads, GFLOP/s and share of the peak of fma in fp32%s\n", threads, cpu_isa(),
           cpu_gains_by_bf16() ? ", of vdpbf16ps in bf16" : "");
    printf("type seqs x     T   dim    forward              backward              peak\n");
    static const int64_t cases[][2] = {{8, 512}, {2, 2048}, {1, 4096}, {1, 8192}, {1, 16384}};
    for (int i = 3; i < argc; i++) {
        int64_t c[2], dim;
        if (sscanf(argv[i], "%" SCNd64 "x%" SCNd64 "x%" SCNd64, &c[0], &c[1], &dim) != 3 || c[0] < 1 || c[1] < 1 || dim < 1 ||
            dim > ATT_MAX_DIM) {
            fprintf(stderr, "%s: want SEQSxTxDIM, DIM up to %d\n", argv[i], ATT_MAX_DIM);
            return 1;
        }
        both_types(p, c, dim, seconds);
    }
    for (int64_t dim = 64; dim <= 128 && argc < 4; dim *= 2)
        for (int c = 0; c < 5; c++)
            both_types(p, cases[c], dim, seconds);
    if (argc < 4) {
        generation(p, 1000, 12, 12, seconds);
        generation(p, 32000, 12, 12, seconds);
        generation(p, 32000, 32, 4, seconds);
    }
    pool_close(p);
    return 0;
}
