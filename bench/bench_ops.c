/* bench_ops - what the memory-bound ops of the CPU reach beside a plain copy in the same run, and what the loss head takes
 * beside its matmuls.
 *
 *     bench_ops [threads [bf16|f32 [tokens]]]
 *
 * Each op runs on GPT-2's shapes (2,048 tokens of width 768; with more, nothing fits a cache). A line gives the best of several
 * runs: time, the bytes that the op must read and write, and that rate against memcpy's, which is
 * timed in turn with it, on the same threads: over as many bytes (so a small op and its copy both run out of the cache),
 * and, before and after, over 512 MB, which no cache holds.
 */
#include "huge_pages.h"

#include "device/cpu/isa.h"
#include "device/cpu/ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 768, INNER = 4 * WIDTH, VOCAB = 50257, LOSS_ROWS = 512, PARAMETERS = 16 << 20, TURNS = 15, LOSS_TURNS = 5 };

static size_t tokens = 2048;
static pool *threads;
static pt_dtype type = PT_BF16;
static char *source, *target; /* of copies */
static const size_t room = (size_t)512 << 20;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct copy_job { size_t bytes, part; } copy_job;

static void copy_tile(void *arg, int64_t tile, int thread)
{
    const copy_job *job = arg;
    size_t at = (size_t)tile * job->part, left = job->bytes - at;
    memcpy(target + at % room, source + at % room, left < job->part ? left : job->part);
}

static double copy_seconds(size_t moved)
{
    copy_job job = {moved / 2, 1 << 18};
    double start = now();
    pool_run(threads, (int64_t)((job.bytes + job.part - 1) / job.part), copy_tile, &job);
    return now() - start;
}

typedef void (*run_fn)(const void *op);

/* Over so much that no cache holds it; best of some. */
static double copy_from_memory(double best)
{
    for (int turn = 0; turn < 3; turn++) {
        double seconds = copy_seconds(room);
        best = seconds < best ? seconds : best;
    }
    return best;
}

static void measure(const char *name, run_fn run, const void *op, double bytes)
{
    double best = 1e9, copy = 1e9, far = copy_from_memory(1e9);
    for (int turn = 0; turn < TURNS; turn++) {
        double start = now();
        run(op);
        double seconds = now() - start;
        best = seconds < best ? seconds : best;
        seconds = copy_seconds((size_t)bytes);
        copy = seconds < copy ? seconds : copy;
    }
    far = copy_from_memory(far) / (double)room;
    printf("%-36s %8.2f ms %8.1f MB %7.1f GB/s   copy %6.1f GB/s   %4.0f%%   from memory %6.1f GB/s   %4.0f%%\n", name, 1e3 * best,
           bytes / 1e6, bytes / best / 1e9, bytes / copy / 1e9, 100 * copy / best, 1e-9 / far, 100 * bytes * far / best);
}

/* Random bits of moderate size in either type. */
static void *numbers(size_t elements, pt_dtype of)
{
    void *data = huge_pages(elements * 4);
    for (size_t i = 0; i < elements; i++) {
        float x = (float)((i * 2654435761u >> 8) & 0xffff) / 16384.0f - 2.0f;
        if (of == PT_BF16)
            ((bf16 *)data)[i] = bf16_from_f32(x);
        else
            ((float *)data)[i] = x;
    }
    return data;
}

static int32_t *ids(size_t n, int32_t below)
{
    int32_t *x = malloc(n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = (int32_t)((i * 2654435761u >> 4) % (uint32_t)below);
    return x;
}

static void run_norm(const void *o) { cpu_norm(threads, o); }
static void run_norm_backward(const void *o) { cpu_norm_backward(threads, o); }
static void run_activation(const void *o) { cpu_activation(threads, o); }
static void run_activation_backward(const void *o) { cpu_activation_backward(threads, o); }
static void run_rope(const void *o) { cpu_rope(threads, o); }
static void run_embedding(const void *o) { cpu_embedding(threads, o); }
static void run_embedding_backward(const void *o) { cpu_embedding_backward(threads, o); }
static void run_bias_backward(const void *o) { cpu_bias_backward(threads, o); }
static void run_cross_entropy(const void *o) { cpu_cross_entropy(threads, o); }
static void run_gradient_finish(const void *o) { cpu_gradient_finish(threads, o); }
static void run_adamw(const void *o) { cpu_adamw(threads, o); }

static void measure_norms(void)
{
    size_t n = tokens * WIDTH, b = dtype_bytes(type);
    void *x = numbers(n, type), *y = numbers(n, type), *dx = numbers(n, type), *w = numbers(WIDTH, PT_F32);
    float *sums = numbers(2 * WIDTH, PT_F32);
    for (int kind = NORM_LAYER; kind <= NORM_RMS; kind++) {
        op_norm o = {kind, type, (int64_t)tokens, 1, WIDTH, WIDTH, WIDTH, 1e-5f, x, w, kind == NORM_LAYER ? w : NULL, y, 0, NULL, NULL};
        measure(kind ? "rmsnorm" : "layernorm", run_norm, &o, 2.0 * (double)(n * b));
        op_norm_backward back = {kind, type, true, (int64_t)tokens, 1, WIDTH, WIDTH, WIDTH, WIDTH, 1e-5f, x, w, y, dx, dx, NULL, NULL, sums,
                                 kind == NORM_LAYER ? sums + WIDTH : NULL, NULL, o.bias, NULL, 0};
        measure(kind ? "rmsnorm backward" : "layernorm backward", run_norm_backward, &back, 4.0 * (double)(n * b));
        back.y = y; /* over dy, as a layer has it */
        measure(kind ? "rmsnorm backward, y again" : "layernorm backward, y again", run_norm_backward, &back, 5.0 * (double)(n * b));
    }
    free(x), free(y), free(dx), free(w), free(sums);
}

static void measure_activations(void)
{
    static const char *const names[] = {"gelu tanh", "gelu erf", "silu", "relu", "relu squared"};
    size_t n = tokens * INNER, b = dtype_bytes(type);
    void *up = numbers(2 * n, type), *out = numbers(n, type), *dup = numbers(2 * n, type);
    for (int kind = ACT_GELU_TANH; kind <= ACT_RELU2; kind++)
        for (int gated = 0; gated < 2; gated++) {
            char name[64];
            op_activation o = {kind, gated, type, (int64_t)tokens, INNER, up, out};
            snprintf(name, sizeof name, "%s%s", names[kind], gated ? " gated" : "");
            measure(name, run_activation, &o, (gated ? 3.0 : 2.0) * (double)(n * b));
            op_activation_backward back = {kind, gated, type, (int64_t)tokens, INNER, up, out, dup, NULL};
            strcat(name, " backward");
            measure(name, run_activation_backward, &back, (gated ? 5.0 : 3.0) * (double)(n * b));
            back.out = out; /* over dout, as a layer has it */
            strcat(name, ", out again");
            measure(name, run_activation_backward, &back, (gated ? 6.0 : 4.0) * (double)(n * b));
        }
    free(up), free(out), free(dup);
}

static void measure_tokens(void)
{
    size_t n = tokens * WIDTH, b = dtype_bytes(type);
    void *x = numbers(3 * n, type), *table = numbers((size_t)VOCAB * WIDTH, type);
    float *acc = numbers((size_t)VOCAB * WIDTH, PT_F32), *angles = numbers(1024 * 64 + tokens * 64, PT_F32),
        *sums = numbers(3 * WIDTH, PT_F32);
    int32_t *words = ids(tokens, VOCAB), *positions = ids(tokens, 1024);
    op_rope rope = {type, false, (int64_t)tokens, WIDTH / 64, 64, WIDTH, angles, positions, x, 0, false};
    measure("rope", run_rope, &rope, 2.0 * (double)(n * b));
    op_embedding look = {type, (int64_t)tokens, WIDTH, 0, VOCAB, words, positions, table, table, x, NULL, 0, 0, 0, 0};
    measure("embedding", run_embedding, &look, 3.0 * (double)(n * b));
    op_embedding_backward add = {type, true, (int64_t)tokens, WIDTH, 0, VOCAB, -1, words, x, acc, 0};
    measure("embedding backward", run_embedding_backward, &add, (double)(n * b) + 8.0 * (double)n);
    add.accumulate = false;
    measure("embedding backward, zeroed", run_embedding_backward, &add, (double)(n * b) + 8.0 * (double)n + 4.0 * VOCAB * WIDTH);
    op_bias_backward bias = {type, true, (int64_t)tokens, 3 * WIDTH, 3 * WIDTH, x, sums};
    measure("bias backward", run_bias_backward, &bias, 3.0 * (double)(n * b));
    free(x), free(table), free(acc), free(angles), free(sums), free(words), free(positions);
}

static void measure_loss(void)
{
    size_t n = (size_t)LOSS_ROWS * VOCAB, b = dtype_bytes(type);
    float *logits = numbers(n, PT_F32), *loss = numbers(LOSS_ROWS, PT_F32);
    void *d = numbers(n, type);
    int32_t *targets = ids(LOSS_ROWS, VOCAB);
    op_cross_entropy o = {type, LOSS_ROWS, VOCAB, VOCAB, VOCAB, 1e-3f, logits, targets, loss, d, 0, 0, NULL, NULL, 0};
    measure("cross-entropy", run_cross_entropy, &o, (double)(n * (4 + b)));
    free(logits), free(loss), free(d), free(targets);
}

/* The matmuls of the loss head in block/head.c, LOSS_ROWS tokens, forward and backward. */
typedef struct head { void *x, *table, *logits; float *dx, *dtable; op_cross_entropy loss; } head;

static void head_matmuls(const head *h, int pass)
{
    const int64_t slice = (4 << 20) / WIDTH / 64 * 64;
    for (int64_t at = 0; at < VOCAB; at += slice) {
        int64_t n = VOCAB - at < slice ? VOCAB - at : slice;
        const char *w = (const char *)h->table + (size_t)(at * WIDTH) * dtype_bytes(type),
            *d = (char *)h->logits + (size_t)at * dtype_bytes(type);
        int64_t ldd = VOCAB * (int64_t)(sizeof(float) / dtype_bytes(type));
        op_matmul o = {.layout = MATMUL_NT, .type = type, .out_type = PT_F32, .m = LOSS_ROWS, .n = n, .k = WIDTH, .lda = WIDTH,
                       .ldb = WIDTH,
                       .ldc = VOCAB, .a = h->x, .b = w, .c = (float *)h->logits + at};
        if (pass == MATMUL_NN)
            o = (op_matmul){.layout = MATMUL_NN, .type = type, .out_type = PT_F32, .accumulate = at > 0, .m = LOSS_ROWS, .n = WIDTH, .k = n,
                            .lda = ldd, .ldb = WIDTH, .ldc = WIDTH, .a = d, .b = w, .c = h->dx};
        else if (pass == MATMUL_TN)
            o = (op_matmul){.layout = MATMUL_TN, .type = type, .out_type = PT_F32, .accumulate = true, .m = n, .n = WIDTH, .k = LOSS_ROWS,
                            .lda = ldd, .ldb = WIDTH, .ldc = WIDTH, .a = d, .b = h->x, .c = h->dtable + at * WIDTH};
        cpu_matmul(threads, &o);
    }
}

static void measure_head(void)
{
    size_t n = (size_t)LOSS_ROWS * WIDTH, table = (size_t)VOCAB * WIDTH;
    int32_t *targets = ids(LOSS_ROWS, VOCAB);
    float *loss = numbers(LOSS_ROWS, PT_F32);
    head h = {numbers(n, type), numbers(table, type), numbers((size_t)LOSS_ROWS * VOCAB, PT_F32), numbers(n, PT_F32),
              numbers(table, PT_F32), {0}};
    h.loss = (op_cross_entropy){type, LOSS_ROWS, VOCAB, VOCAB, VOCAB * (int64_t)(sizeof(float) / dtype_bytes(type)), 1e-3f, h.logits,
                                targets,
                                loss, h.logits, 0, 0, NULL, NULL, 0};
    double best[2] = {1e9, 1e9}; /* the matmuls; and the cross-entropy between them */
    for (int turn = 0; turn < LOSS_TURNS; turn++) {
        double start = now();
        head_matmuls(&h, MATMUL_NT);
        double forward = now();
        cpu_cross_entropy(threads, &h.loss);
        double between = now();
        head_matmuls(&h, MATMUL_TN);
        head_matmuls(&h, MATMUL_NN);
        double end = now(), matmuls = forward - start + (end - between);
        best[0] = matmuls < best[0] ? matmuls : best[0];
        best[1] = end - start < best[1] ? end - start : best[1];
    }
    printf("%-36s %8.2f ms, %.3f of its matmuls alone (%.0f GFLOP/s)\n", "loss head", 1e3 * best[1], best[1] / best[0],
           6e-9 * (double)table * LOSS_ROWS / best[0]);
    free(h.x), free(h.table), free(h.logits), free(h.dx), free(h.dtable), free(loss), free(targets);
}

static void measure_step(void)
{
    size_t n = PARAMETERS, b = dtype_bytes(type);
    float *acc = numbers(n, PT_F32), *m = numbers(n, PT_F32), *v = numbers(n, PT_F32);
    void *g = numbers(n, type), *w = numbers(n, type);
    uint16_t *lo = numbers(n, PT_BF16);
    double *sumsq = malloc(n / WIDTH / SUMSQ_ROWS * sizeof *sumsq + 64);
    for (size_t i = 0; i < n; i++)
        v[i] *= v[i];
    op_gradient_finish finish = {type, (int64_t)n / WIDTH, WIDTH, acc, NULL, g, sumsq};
    measure("gradient finish", run_gradient_finish, &finish, (double)(n * (4 + b)));
    op_adamw adamw = {type, (int64_t)n, w, type == PT_BF16 ? lo : NULL, m, v, g, 1, 0.9999f, 0.9f, 0.999f, 1e-8f, 1e-4f, 0.5f};
    measure("adamw", run_adamw, &adamw, (double)n * (type == PT_BF16 ? 26 : 28));
    free(acc), free(m), free(v), free(g), free(w), free(lo), free(sumsq);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 2;
    if (argc > 2 && !strcmp(argv[2], "f32"))
        type = PT_F32;
    long wanted = argc > 3 ? atol(argv[3]) : 2048;
    if (wanted < 1 || wanted > 1 << 20) {
        fprintf(stderr, "bench_ops: tokens are 1 to 1048576\n");
        return 2;
    }
    tokens = (size_t)wanted;
    pt_error e = {0};
    if (pool_open(count, &threads, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    pool_spread(threads);
    source = huge_pages(room), target = huge_pages(room);
    memset(source, 1, room), memset(target, 2, room);
    printf("%s, %d threads, %s\n", cpu_isa_name(), count, type == PT_BF16 ? "bf16" : "fp32");
    measure_norms();
    measure_activations();
    measure_tokens();
    measure_loss();
    measure_head();
    measure_step();
    pool_close(threads);
    free(source), free(target);
    return 0;
}
