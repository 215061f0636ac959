/* bench_generate.c - generation, token by token, beside the rate at which the processor reads memory.
 *
 *     bench_generate [MODEL|config.json [tokens [threads [bf16|fp32]]]]
 *
 * Random weights; without a model, GPT-2 124M. A prompt of 512 tokens (or half of the context) is read, then tokens
 * are generated. A token must read every weight once, and the keys and values so far: % is that many bytes in the
 * time of a token, over the best rate at which as many threads only add up memory of that size, taken in turn with
 * the tokens. On a shared machine the median says what was had, the best what the program allows. */
#include "infer/inference.h"

#include "base/units.h"
#include "device/cpu/pool.h"
#include "model/shape.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char gpt2[] = "{\"model_type\": \"gpt2\"}"; /* the defaults are those of the 124M model */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- reading memory ---- */

enum { PIECE_WORDS = 1 << 15 };

typedef struct reader { uint64_t *words; int64_t pieces; uint64_t sum[256]; } reader;

static void read_piece(void *arg, int64_t piece, int thread)
{
    reader *r = arg;
    const uint64_t *at = r->words + piece * PIECE_WORDS;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    for (int i = 0; i < PIECE_WORDS; i += 4) {
        a += at[i];
        b += at[i + 1];
        c += at[i + 2];
        d += at[i + 3];
    }
    r->sum[thread % 256] += a + b + c + d;
}

static double read_rate(pool *p, reader *r)
{
    double start = now();
    pool_run(p, r->pieces, read_piece, r);
    return (double)r->pieces * PIECE_WORDS * sizeof(uint64_t) / (now() - start);
}

/* ---- generating ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run(const model *m, pt_dtype type, int64_t tokens, int threads, pt_error *e)
{
    const model_config *c = &m->config;
    device *d;
    inference *x;
    pool *p;
    const float *logits;
    char size[32];
    int failed = device_cpu_open(&(device_options){.threads = threads}, &d, e);
    if (failed || (failed = inference_open(m, d, type, threads, 0, NULL, &x, e)))
        return failed;
    double start = now(), best = 1e9, rate = 0;
    if ((failed = inference_load(x, NULL, NULL, 0, NULL, NULL, e)) || (failed = pool_open(d->info.threads, &p, e)))
        return failed;
    printf("%s, %s, %d threads, %s of weights a token (made in %.1f s)\n", c->model_type, type == PT_BF16 ? "bf16" : "fp32",
           d->info.threads, size_format(size, inference_weight_bytes(x)), now() - start);
    int64_t prompt = c->max_positions / 2 < 512 ? c->max_positions / 2 : 512;
    tokens = tokens < c->max_positions - prompt ? tokens : c->max_positions - prompt;
    int32_t *ids = calloc((size_t)prompt, sizeof *ids);
    double *times = calloc((size_t)tokens, sizeof *times);
    reader r = {.pieces = (int64_t)(inference_weight_bytes(x) / sizeof(uint64_t) / PIECE_WORDS) + 1};
    r.words = malloc((size_t)r.pieces * PIECE_WORDS * sizeof *r.words);
    if (!ids || !times || !r.words)
        return pt_fail(e, PT_FAILED, "out of memory");
    memset(r.words, 1, (size_t)r.pieces * PIECE_WORDS * sizeof *r.words);
    if ((failed = inference_begin(x, prompt + tokens, (cache_plan){0}, NULL, e)))
        return failed;
    start = now();
    failed = inference_feed(x, ids, prompt, &logits, e);
    double prompt_s = now() - start;
    for (int64_t i = 0; i < tokens && !failed; i++) {
        start = now();
        failed = inference_feed(x, ids, 1, &logits, e);
        times[i] = now() - start;
        best = times[i] < best ? times[i] : best;
        double reading = i % 8 == 0 ? read_rate(p, &r) : 0;
        rate = reading > rate ? reading : rate;
    }
    qsort(times, (size_t)tokens, sizeof *times, compare);
    double cache = (double)((prompt + tokens / 2) * c->layers * 2 * c->kv_heads * c->head_dim) * (double)dtype_bytes(type);
    double bytes = (double)inference_weight_bytes(x) + cache, median = times[tokens / 2];
    printf("prompt   %lld tokens at %.0f tokens/s\n", (long long)prompt, (double)prompt / prompt_s);
    printf("memory   %.2f GB/s read, at best\n", rate * 1e-9);
    printf("median   %.1f tokens/s, %.2f ms, %.2f GB/s, %.0f%%\n", 1 / median, median * 1e3, bytes / median * 1e-9,
           100 * bytes / median / rate);
    printf("best     %.1f tokens/s, %.2f ms, %.2f GB/s, %.0f%%\n", 1 / best, best * 1e3, bytes / best * 1e-9, 100 * bytes / best / rate);
    inference_close(x);
    pool_close(p);
    d->table->close(d);
    free(r.words);
    free(ids);
    free(times);
    return failed;
}

int main(int argc, char **argv)
{
    pt_error e = {0};
    model *m;
    int failed = argc > 1 ? model_open(argv[1], NULL, NULL, &m, &e) : model_from_json("gpt2", gpt2, strlen(gpt2), NULL, NULL, &m, &e);
    if (!failed)
        failed = run(m, argc > 4 && !strcmp(argv[4], "fp32") ? PT_F32 : PT_BF16, argc > 2 ? atoll(argv[2]) : 200,
                     argc > 3 ? atoi(argv[3]) : 0, &e);
    if (failed)
        fprintf(stderr, "%s\n", e.text);
    return failed != 0;
}
