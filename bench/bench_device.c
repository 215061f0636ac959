/* bench_device - what a device's ops reach, through the seam that the program uses.
 *
 *     bench_device [cpu|cuda|cuda:N [hidden [inner [vocabulary]]]]
 *
 * One unit's worth of rows (2,048) at Llama-2-7B's widths, bf16. A line gives the median of several runs, timed by
 * marks on the queue: the time, and for what memory bounds the bytes that the op must read and write and that rate
 * beside a copy's within the device; for matmuls and attention their operations. Inputs are random; the
 * largest tensors are beyond a cache of 50 MB, small ones may come out of it. On a GPU, norms, activations and biases
 * of 16,384 rows follow, at the widths of GPT-2 124M and Llama 3.2 1B, and GPT-2 124M's matmuls of 8,192.
 */
#include "base/rng.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 2048, LARGE_ROWS = 16384, SEQ = 1024, HEAD = 128, RUNS = 11, REPEATS = 10 };

static struct bench {
    device *device, *host;
    queue *queue;
    char *arena, *staging;
    size_t used, size, staging_size;
    double copy_rate;
    int64_t hidden, inner, vocabulary;
} b;

static void stop(const pt_error *e)
{
    fprintf(stderr, "bench_device: %s\n", e->text);
    exit(1);
}

static void sync(void)
{
    pt_error e = {0};
    if (queue_sync(b.queue, queue_signal(b.queue), &e))
        stop(&e);
}

static void *take(size_t bytes)
{
    char *p = b.arena + b.used;
    b.used += (bytes + 255) / 256 * 256;
    if (b.used > b.size) {
        fprintf(stderr, "bench_device: the arena of %zu bytes is too small\n", b.size);
        exit(1);
    }
    return p;
}

/* n numbers around 0 in the device's memory; small ones, as gradients and weights are. */
static void *random_tensor(pt_dtype type, int64_t n)
{
    size_t bytes = (size_t)n * dtype_bytes(type);
    char *to = take(bytes);
    for (size_t at = 0; at < bytes; at += b.staging_size) {
        size_t part = bytes - at < b.staging_size ? bytes - at : b.staging_size;
        queue_submit(b.queue, &(op){OP_COPY, .copy = {to + at, b.staging + (type == PT_BF16 ? b.staging_size : 0), part}});
    }
    sync();
    return to;
}

static int32_t *random_ids(int64_t n, int64_t below)
{
    int32_t *ids = (int32_t *)(b.staging + 2 * b.staging_size), *to = take((size_t)n * sizeof *to);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_uniform(1, RNG_TEST, 7, (uint64_t)i) * (double)below);
    queue_submit(b.queue, &(op){OP_COPY, .copy = {to, ids, (size_t)n * sizeof *to}});
    sync();
    return to;
}

static int by_size(const void *x, const void *y)
{
    double a = *(const double *)x, c = *(const double *)y;
    return (a > c) - (a < c);
}

static double seconds_of(const op *o)
{
    double seconds[RUNS];
    for (int run = -1; run < RUNS; run++) { /* the first warms up */
        int64_t begin, end;
        queue_mark(b.queue, &begin);
        for (int i = 0; i < REPEATS; i++)
            queue_submit(b.queue, o);
        queue_mark(b.queue, &end);
        sync();
        if (run >= 0)
            seconds[run] = 1e-9 * (double)(end - begin) / REPEATS;
    }
    qsort(seconds, RUNS, sizeof *seconds, by_size);
    return seconds[RUNS / 2];
}

static void memory_bound(const char *name, double bytes, op o)
{
    double seconds = seconds_of(&o), rate = bytes / seconds;
    printf("%-28s %9.1f us  %8.1f GB/s  %4.0f%% of a copy\n", name, 1e6 * seconds, 1e-9 * rate, 100 * rate / b.copy_rate);
}

/* "name rows x cols", until the next call. */
static const char *sized(const char *name, int64_t rows, int64_t cols)
{
    static char text[64];
    snprintf(text, sizeof text, "%s %lld x %lld", name, (long long)rows, (long long)cols);
    return text;
}

static void compute_bound(const char *name, double flop, op o)
{
    double seconds = seconds_of(&o);
    printf("%-28s %9.1f us  %8.1f TFLOP/s\n", name, 1e6 * seconds, 1e-12 * flop / seconds);
}

static void bench_copy(void)
{
    size_t bytes = (size_t)512 << 20, used = b.used;
    void *from = random_tensor(PT_F32, (int64_t)bytes / 4), *to = take(bytes);
    b.copy_rate = 2 * (double)bytes / seconds_of(&(op){OP_COPY, .copy = {to, from, bytes}});
    printf("%-28s %9s     %8.1f GB/s, read and written\n", "copy", "", 1e-9 * b.copy_rate);
    b.used = used;
}

static void bench_norms(norm_kind kind, const char *name, int64_t rows, int64_t dim)
{
    int64_t n = rows * dim;
    void *x = random_tensor(PT_BF16, n), *dy = random_tensor(PT_BF16, n), *y = take((size_t)n * 2);
    float *w = random_tensor(PT_F32, dim), *dw = random_tensor(PT_F32, dim), *stream = random_tensor(PT_F32, n);
    float *bias = kind == NORM_LAYER ? random_tensor(PT_F32, dim) : NULL, *db = kind == NORM_LAYER ? random_tensor(PT_F32, dim) : NULL;
    memory_bound(sized(name, rows, dim), 4.0 * (double)n, (op){OP_NORM, .norm = {
        .kind = kind, .type = PT_BF16, .rows = rows, .heads = 1, .dim = dim, .ldx = dim, .ldy = dim, .eps = 1e-5f, .x = x, .weight = w,
        .bias = bias, .y = y}});
    memory_bound("    backward", 14.0 * (double)n, (op){OP_NORM_BACKWARD, .norm_backward = {
        .kind = kind, .type = PT_BF16, .accumulate = true, .rows = rows, .heads = 1, .dim = dim, .ldx = dim, .lddy = dim, .lddx = dim,
        .eps = 1e-5f, .x = x, .weight = w, .dy = dy, .dx = y, .stream_add = stream, .stream = stream, .dweight = dw, .dbias = db,
        .scratch = take(norm_backward_scratch_bytes(rows, 1, dim))}});
}

static void bench_activation(activation_kind kind, bool gated, const char *name, int64_t rows, int64_t cols)
{
    int64_t n = rows * cols;
    void *up = random_tensor(PT_BF16, gated ? 2 * n : n), *dout = random_tensor(PT_BF16, n), *out = take((size_t)n * (gated ? 4 : 2));
    memory_bound(sized(name, rows, cols), (gated ? 6.0 : 4.0) * (double)n, (op){OP_ACTIVATION, .activation = {
        kind, gated, PT_BF16, rows, cols, up, out}});
    memory_bound("    backward", (gated ? 10.0 : 6.0) * (double)n, (op){OP_ACTIVATION_BACKWARD, .activation_backward = {
        kind, gated, PT_BF16, rows, cols, up, dout, out}});
}

static void bench_bias(int64_t rows, int64_t cols)
{
    memory_bound(sized("bias backward", rows, cols), 2.0 * (double)(rows * cols), (op){OP_BIAS_BACKWARD, .bias_backward = {
        PT_BF16, true, rows, cols, cols, random_tensor(PT_BF16, rows * cols), random_tensor(PT_F32, cols)}});
}

static void bench_elementwise(void)
{
    int64_t heads = b.hidden / HEAD;
    bench_activation(ACT_SILU, true, "silu, gated", ROWS, b.inner);
    bench_activation(ACT_GELU_TANH, false, "gelu", ROWS, b.inner);
    memory_bound("rope", 4.0 * ROWS * (double)b.hidden, (op){OP_ROPE, .rope = {
        PT_BF16, false, ROWS, heads, HEAD, b.hidden, random_tensor(PT_F32, SEQ * HEAD), random_ids(ROWS, SEQ),
        random_tensor(PT_BF16, ROWS * b.hidden)}});
    bench_bias(ROWS, b.inner);
}

typedef struct layer_matmuls { op_matmul forward, data, weight; } layer_matmuls;

/* (rows, k) by (n, k) turned, and both gradients. */
static layer_matmuls matmuls_of(int64_t rows, int64_t n, int64_t k)
{
    void *x = random_tensor(PT_BF16, rows * k), *w = random_tensor(PT_BF16, n * k), *y = random_tensor(PT_BF16, rows * n);
    float *dw = random_tensor(PT_F32, n * k);
    return (layer_matmuls){
        .forward = {.layout = MATMUL_NT, .type = PT_BF16, .out_type = PT_BF16, .m = rows, .n = n, .k = k, .lda = k, .ldb = k, .ldc = n,
                    .a = x, .b = w, .c = y},
        .data = {.layout = MATMUL_NN, .type = PT_BF16, .out_type = PT_BF16, .m = rows, .n = k, .k = n, .lda = n, .ldb = k, .ldc = k,
                 .a = y, .b = w, .c = x},
        .weight = {.layout = MATMUL_TN, .type = PT_BF16, .out_type = PT_F32, .accumulate = true, .m = n, .n = k, .k = rows, .lda = n,
                   .ldb = k, .ldc = k, .a = y, .b = x, .c = dw}};
}

/* A weight gradient of few columns has few tiles, however many rows there are. */
static void bench_layer(int64_t rows, int64_t n, int64_t k)
{
    const double flop = 2.0 * (double)rows * (double)n * (double)k;
    const layer_matmuls p = matmuls_of(rows, n, k);
    compute_bound(sized("matmul", n, k), flop, (op){OP_MATMUL, .matmul = p.forward});
    compute_bound("    data gradient", flop, (op){OP_MATMUL, .matmul = p.data});
    compute_bound("    weight gradient", flop, (op){OP_MATMUL, .matmul = p.weight});
}

/* Units as GPT-2 124M and Llama 3.2 1B have them on a GPU. */
static void bench_large(void)
{
    if (!device_is_gpu(b.device))
        return;
    bench_norms(NORM_LAYER, "layernorm", LARGE_ROWS, 768);
    bench_norms(NORM_RMS, "rmsnorm", LARGE_ROWS, 2048);
    bench_activation(ACT_GELU_TANH, false, "gelu", LARGE_ROWS, 3072);
    bench_activation(ACT_SILU, true, "silu, gated", LARGE_ROWS, 8192);
    bench_bias(LARGE_ROWS, 768);
    bench_bias(LARGE_ROWS, 3072);
    bench_layer(LARGE_ROWS / 2, 768, 768);
    bench_layer(LARGE_ROWS / 2, 2304, 768);
    bench_layer(LARGE_ROWS / 2, 3072, 768);
}

/* In place, in rows of whole lines; a logit must be read once, and its gradient written. */
static void bench_cross_entropy(const char *name, int64_t vocabulary)
{
    const int64_t ld = (vocabulary + 15) / 16 * 16;
    int32_t *targets = random_ids(ROWS, vocabulary);
    float *logits = random_tensor(PT_F32, ROWS * ld);
    memory_bound(name, 6.0 * ROWS * (double)vocabulary, (op){OP_CROSS_ENTROPY, .cross_entropy = {
        PT_BF16, ROWS, vocabulary, ld, 2 * ld, 1e-3f, logits, targets, take(ROWS * 4), logits}});
}

static void bench_tables(void)
{
    const size_t used = b.used;
    int64_t n = ROWS * b.hidden, table = b.vocabulary * b.hidden;
    int32_t *ids = random_ids(ROWS, b.vocabulary);
    void *x = random_tensor(PT_BF16, n);
    memory_bound("embedding", 4.0 * (double)n, (op){OP_EMBEDDING, .embedding = {
        .type = PT_BF16, .rows = ROWS, .cols = b.hidden, .table_rows = b.vocabulary, .ids = ids, .table = random_tensor(PT_BF16, table),
        .out = x}});
    memory_bound("embedding backward", 10.0 * (double)n, (op){OP_EMBEDDING_BACKWARD, .embedding_backward = {
        PT_BF16, true, ROWS, b.hidden, 0, b.vocabulary, -1, ids, x, random_tensor(PT_F32, table)}});
    bench_cross_entropy("cross-entropy, in place", b.vocabulary);
    b.used = used;
    bench_cross_entropy("cross-entropy of 50,257", 50257);
}

static void bench_optimizer(void)
{
    int64_t n = b.hidden * b.inner;
    float *acc = random_tensor(PT_F32, n), *m = random_tensor(PT_F32, n), *v = random_tensor(PT_F32, n);
    void *g = random_tensor(PT_BF16, n), *hi = random_tensor(PT_BF16, n), *lo = random_tensor(PT_BF16, n);
    memory_bound("gradient, with its sums", 6.0 * (double)n, (op){OP_GRADIENT_FINISH, .gradient_finish = {
        PT_BF16, b.inner, b.hidden, acc, NULL, g, take((size_t)(b.inner / SUMSQ_ROWS + 1) * 8)}});
    memory_bound("gradient, rounded only", 6.0 * (double)n, (op){OP_GRADIENT_FINISH, .gradient_finish = {
        PT_BF16, b.inner, b.hidden, acc, NULL, g, NULL}});
    memory_bound("AdamW", 26.0 * (double)n, (op){OP_ADAMW, .adamw = {
        PT_BF16, n, hi, lo, m, v, g, 1.0f, 1.0f, 0.9f, 0.999f, 1e-8f, 1e-4f, 0.5f}});
}

static void bench_matmuls(void)
{
    int64_t n = b.inner, k = b.hidden;
    const double flop = 2.0 * ROWS * (double)n * (double)k;
    const layer_matmuls p = matmuls_of(ROWS, n, k);
    const op_matmul forward = p.forward;
    compute_bound("matmul, forward", flop, (op){OP_MATMUL, .matmul = forward});
    op_matmul biased = forward, logits = forward, one = forward;
    biased.bias = random_tensor(PT_BF16, n);
    logits.out_type = PT_F32;
    logits.c = take((size_t)(ROWS * n) * 4);
    one.m = 1;
    compute_bound("matmul, with a bias", flop, (op){OP_MATMUL, .matmul = biased});
    compute_bound("matmul, fp32 sums", flop, (op){OP_MATMUL, .matmul = logits});
    memory_bound("matmul of one row", 2.0 * (double)n * (double)k, (op){OP_MATMUL, .matmul = one});
    compute_bound("matmul, data gradient", flop, (op){OP_MATMUL, .matmul = p.data});
    compute_bound("matmul, weight gradient", flop, (op){OP_MATMUL, .matmul = p.weight});
    op_matmul stream = {.layout = MATMUL_NT, .type = PT_BF16, .out_type = PT_BF16, .m = ROWS, .n = k, .k = n, .lda = n, .ldb = n, .ldc = k,
                        .a = forward.c, .b = forward.b, .bias = biased.bias, .residual = forward.a,
                        .stream = random_tensor(PT_F32, ROWS * k), .c = p.data.c};
    compute_bound("matmul, into the stream", flop, (op){OP_MATMUL, .matmul = stream});
    float *a = random_tensor(PT_F32, ROWS * k), *weights = random_tensor(PT_F32, n * k);
    op_matmul single = forward;
    single.type = single.out_type = PT_F32;
    single.a = a, single.b = weights, single.c = logits.c;
    compute_bound("matmul in fp32", flop, (op){OP_MATMUL, .matmul = single});
}

/* Training always says where documents begin; here each sequence is one. */
static const int32_t *documents(int64_t rows)
{
    const size_t bytes = (size_t)rows * sizeof(int32_t);
    void *first = take(bytes);
    queue_submit(b.queue, &(op){OP_ZERO, .copy = {.dst = first, .bytes = bytes}});
    return first;
}

/* Heads of 128 and of 64, of a model of this width; four times the rows, so that the shorter ones fill the device too. */
static void bench_attention(int64_t dim, const char *forward, const char *backward)
{
    int64_t heads = b.hidden / dim, rows = 4 * ROWS, n = rows * b.hidden;
    op_attention o = {.type = PT_BF16, .seqs = rows / SEQ, .q_len = SEQ, .kv_len = SEQ, .heads = heads, .kv_heads = heads, .dim = dim,
                      .ldq = b.hidden, .ldkv = b.hidden, .ldo = b.hidden, .scale = 0.1f, .q = random_tensor(PT_BF16, n),
                      .k = random_tensor(PT_BF16, n), .v = random_tensor(PT_BF16, n), .out = take((size_t)n * 2),
                      .lse = take((size_t)(rows * heads) * 4), .first = documents(rows)};
    double flop = 2.0 * SEQ * (double)rows * (double)b.hidden; /* two matmuls, of which causality leaves half */
    compute_bound(forward, flop, (op){OP_ATTENTION, .attention = o});
    compute_bound(backward, 2.5 * flop, (op){OP_ATTENTION_BACKWARD, .attention_backward = {
        o, b.hidden, random_tensor(PT_BF16, n), take((size_t)n * 2), take((size_t)n * 2), take((size_t)n * 2),
        take(attention_backward_scratch_bytes(rows, heads))}});
}

/* Random numbers on the host: a piece of fp32, one of bf16, and room for ids. */
static void fill_staging(void)
{
    pt_error e = {0};
    void *base;
    b.staging_size = (size_t)4 << 20;
    if (b.device->table->memory_open(b.device, MEMORY_HOST, 3 * b.staging_size, &base, &e))
        stop(&e);
    b.staging = base;
    float *x = base;
    bf16 *h = (bf16 *)(b.staging + b.staging_size);
    for (size_t i = 0; i < b.staging_size / 2; i++) {
        float value = (float)(0.02 * rng_normal(1, RNG_TEST, 3, i));
        h[i] = bf16_from_f32(value);
        if (i < b.staging_size / 4)
            x[i] = value;
    }
}

/* What works, but slower than it should: a benchmark must not pass over it. */
static void tell(void *arg, const char *sentence)
{
    fprintf(stderr, "bench_device: %s\n", sentence);
    *(bool *)arg = true;
}

int main(int argc, char **argv)
{
    pt_error e = {0};
    bool slow = false;
    void *base;
    setlinebuf(stdout); /* what was measured stays, if this is ended */
    const char *name = argc > 1 ? argv[1] : "cpu";
    b.hidden = argc > 2 ? atoll(argv[2]) : 4096;
    b.inner = argc > 3 ? atoll(argv[3]) : 11008;
    b.vocabulary = argc > 4 ? atoll(argv[4]) : 32000;
    b.size = (size_t)4 << 30;
    if (device_open(name, &(device_options){.notice = tell, .arg = &slow}, &b.device, &b.host, &e) ||
        b.device->table->memory_open(b.device, MEMORY_DEVICE, b.size, &base, &e) ||
        b.device->table->queue_open(b.device, "bench", 0, &b.queue, &e))
        stop(&e);
    b.arena = base;
    printf("%s: %s\n%d rows, hidden %lld, inner %lld, vocabulary %lld, bf16\n", b.device->info.name, b.device->info.arithmetic, ROWS,
           (long long)b.hidden, (long long)b.inner, (long long)b.vocabulary);
    fill_staging();
    void (*const groups[])(void) = {bench_copy, bench_elementwise, bench_tables, bench_optimizer, bench_matmuls};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        b.used = 0;
        groups[i]();
    }
    b.used = 0;
    bench_attention(128, "attention, of 128", "attention, of 128, backward");
    b.used = 0;
    bench_attention(64, "attention, of 64", "attention, of 64, backward");
    b.used = 0;
    bench_norms(NORM_RMS, "rmsnorm", ROWS, b.hidden);
    bench_norms(NORM_LAYER, "layernorm", ROWS, b.hidden);
    b.used = 0;
    bench_large();
    b.device->table->queue_close(b.queue);
    b.device->table->memory_close(b.device, MEMORY_HOST, b.staging, 3 * b.staging_size);
    b.device->table->memory_close(b.device, MEMORY_DEVICE, b.arena, b.size);
    device_close(b.device, b.host);
    return slow;
}
