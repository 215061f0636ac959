/* reference.h - what the tests of ops share: random tensors whose elements are known exactly in
 * fp64, the device under test with queues of 1 to 4 threads, and comparisons.
 *
 * PROTRAIN_TEST_DEVICE names the device whose ops are run (test_device.h). On the shim, 1 to 4 "threads" are
 * orders in which blocks and threads run.
 *
 * A tensor holds `data` in its type and `value`, the same numbers in fp64. References are computed
 * in fp64 from `value`; near() then allows one rounding to the result's type, plus a slack for
 * what fp32 loses inside.
 */
#ifndef PT_TEST_REFERENCE_H
#define PT_TEST_REFERENCE_H

#include "base/rng.h"
#include "sanitized.h"
#include "test_device.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TEST_THREADS = SANITIZED ? 3 : 4, PINNED_BYTES = 512 << 20 };

typedef struct tensor {
    pt_dtype type;
    int64_t n;
    void *data;
    double *value;
} tensor;

typedef struct test_state {
    uint64_t seed;
    uint32_t stream; /* of random numbers: one per tensor */
    device *device, *host;
    char *pinned; /* where the device cannot reach malloc's memory: PINNED_BYTES that it can */
    size_t pinned_used;
    queue *queues[TEST_THREADS + 1]; /* [n]: n threads run an op together */
    void **blocks; /* what test_alloc gave out since the test began */
    size_t block_count;
} test_state;

static test_state the_test;

/* ---- set up and take down ---- */

static inline int test_device_open(device **out, pt_error *e)
{
    void *pinned;
    int failed = test_device_named(test_device_name(), 1, out, &the_test.host, e);
    if (!failed && !(*out)->info.host_addressable && !(failed = (*out)->table->memory_open(*out, MEMORY_HOST, PINNED_BYTES, &pinned, e)))
        the_test.pinned = pinned;
    if (!failed && the_test.pinned && test_device_noticed)
        failed = pt_fail(e, PT_FAILED, "see the notice: tests of ops need host memory that the device reaches");
    return failed;
}

/* The kernels under test are those of CUDA, on a GPU or emulated. */
static inline bool device_is_cuda(void)
{
    return strcmp(test_device_name(), "cpu") != 0;
}

static inline int group_setup(void **state)
{
    the_test.seed = test_seed();
    pt_error e = {0};
    int code = test_device_open(&the_test.device, &e);
    for (int threads = 1; threads <= TEST_THREADS && !code; threads++)
        code = the_test.device->table->queue_open(the_test.device, "test", threads, &the_test.queues[threads], &e);
    if (code)
        fprintf(stderr, "%s\n", e.text);
    return code;
}

static inline int group_teardown(void **state)
{
    for (int threads = 1; threads <= TEST_THREADS; threads++)
        the_test.device->table->queue_close(the_test.queues[threads]);
    the_test.device->table->memory_close(the_test.device, MEMORY_HOST, the_test.pinned, PINNED_BYTES);
    device_close(the_test.device, the_test.host);
    return 0;
}

static inline int test_teardown(void **state)
{
    for (size_t i = 0; i < the_test.block_count; i++)
        free(the_test.blocks[i]);
    free(the_test.blocks);
    the_test.blocks = NULL;
    the_test.block_count = 0;
    the_test.pinned_used = 0;
    return 0;
}

#define OP_TEST(name) cmocka_unit_test_teardown(name, test_teardown)

/* Filled with a pattern, so that what an op leaves alone is seen. */
static inline void *test_alloc(size_t bytes)
{
    if (the_test.pinned) {
        char *base = the_test.pinned + the_test.pinned_used;
        the_test.pinned_used += (bytes + 255) / 256 * 256;
        assert_true(the_test.pinned_used <= PINNED_BYTES);
        return memset(base, 0x5a, bytes);
    }
    void *block = malloc(bytes ? bytes : 1);
    the_test.blocks = realloc(the_test.blocks, (the_test.block_count + 1) * sizeof block);
    assert_non_null(block);
    assert_non_null(the_test.blocks);
    the_test.blocks[the_test.block_count++] = block;
    memset(block, 0x5a, bytes);
    return block;
}

static inline void *test_copy(const void *from, size_t bytes)
{
    return memcpy(test_alloc(bytes), from, bytes);
}

/* Runs one op to its end. */
static inline void run_op(int threads, const op *o)
{
    queue *q = the_test.queues[threads];
    pt_error e = {0};
    queue_submit(q, o);
    if (queue_sync(q, queue_signal(q), &e))
        fail_msg("%s", e.text);
}

/* ---- numbers ---- */

REFERENCE static inline double element(pt_dtype type, const void *data, int64_t i)
{
    if (type == PT_F32)
        return ((const float *)data)[i];
    const uint32_t bits = (uint32_t)((const bf16 *)data)[i] << 16; /* bf16_to_f32() is not marked REFERENCE */
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void element_set(pt_dtype type, void *data, int64_t i, double x)
{
    if (type == PT_BF16)
        ((bf16 *)data)[i] = bf16_from_f32((float)x);
    else
        ((float *)data)[i] = (float)x;
}

static inline size_t tensor_bytes(const tensor *t)
{
    return (size_t)t->n * dtype_bytes(t->type);
}

static inline void tensor_set(tensor *t, int64_t i, double x)
{
    element_set(t->type, t->data, i, x);
    t->value[i] = element(t->type, t->data, i);
}

/* Normal, mean + deviation * z. */
static inline tensor tensor_random(pt_dtype type, int64_t n, double mean, double deviation)
{
    tensor t = {type, n, test_alloc((size_t)n * dtype_bytes(type)), test_alloc((size_t)n * sizeof(double))};
    uint32_t stream = the_test.stream++;
    for (int64_t i = 0; i < n; i++)
        tensor_set(&t, i, mean + deviation * rng_normal(the_test.seed, RNG_TEST, stream, (uint64_t)i));
    return t;
}

static inline int64_t random_below(int64_t n)
{
    return (int64_t)(rng_uniform(the_test.seed, RNG_TEST, the_test.stream++, 0) * (double)n);
}

static inline int32_t *random_ids(int64_t n, int64_t below)
{
    int32_t *ids = test_alloc((size_t)n * sizeof *ids);
    uint32_t stream = the_test.stream++;
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)(rng_uniform(the_test.seed, RNG_TEST, stream, (uint64_t)i) * (double)below);
    return ids;
}

/* ---- comparisons ---- */

#define TYPES 2
static const pt_dtype types[TYPES] = {PT_F32, PT_BF16};

/* Whether `got` is `want` rounded to its type once; `slack` is what may be lost before that. */
static inline void near(pt_dtype type, double got, double want, double slack, const char *what, int64_t i)
{
    double rounding = fabs(want) * (type == PT_BF16 ? 0x1p-8 : 0x1p-23);
    if (!(fabs(got - want) <= rounding + slack))
        fail_msg("%s[%lld] is %.9g and should be %.9g (seed %llu)", what, (long long)i, got, want,
                 (unsigned long long)the_test.seed);
}

static inline void same_bits(const void *a, const void *b, size_t bytes, const char *what)
{
    const unsigned char *x = a, *y = b;
    for (size_t i = 0; i < bytes; i++)
        if (x[i] != y[i])
            fail_msg("%s: byte %zu of %zu differs (seed %llu)", what, i, bytes, (unsigned long long)the_test.seed);
}

/* d loss / d value[i], by a central difference of a function of the whole tensor in fp64. */
typedef double (*loss_of)(const void *ctx);
static inline double slope(loss_of loss, const void *ctx, double *value)
{
    double kept = *value, step = 1e-5 * (1 + fabs(kept));
    *value = kept + step;
    double above = loss(ctx);
    *value = kept - step;
    double below = loss(ctx);
    *value = kept;
    return (above - below) / (2 * step);
}

#endif
