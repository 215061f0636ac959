/* Cross-entropy: loss against fp64, gradient against finite differences, in place or not. */
#include "device/reference.h"

/* What becomes of the logits. */
typedef struct logit_map { float scale, cap; } logit_map;
static logit_map the_map;
static float the_smoothing;
static bool linear; /* the loss is minus the target's logit */

static double mapped(double x)
{
    const double z = (the_map.scale ? (double)the_map.scale : 1) * x;
    return the_map.cap ? the_map.cap * tanh(z / the_map.cap) : z;
}

static double map_slope(double x)
{
    const double scale = the_map.scale ? the_map.scale : 1, t = the_map.cap ? tanh(scale * x / the_map.cap) : 0;
    return scale * (1 - t * t);
}

static void cross_entropy(int threads, pt_dtype type, int64_t rows, int64_t vocab, int64_t ld, int64_t lddl, float scale,
                          const void *logits, const int32_t *targets, float *loss, void *dlogits)
{
    op_cross_entropy o = {type, rows, vocab, ld, lddl, scale, logits, targets, loss, dlogits, the_map.scale, the_map.cap, NULL, NULL,
                          the_smoothing, linear};
    run_op(threads, &(op){OP_CROSS_ENTROPY, .cross_entropy = o});
}

static double log_sum(const double *x, int64_t n)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, x[i]);
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - largest);
    return largest + log(sum);
}

static double mean_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

static void check_rows(pt_dtype type, int64_t rows, int64_t vocab, double spread)
{
    int64_t ld = vocab + (vocab & 1) + (random_below(2) ? 2 : 8);
    float scale = 1.0f / 77;
    tensor logits = tensor_random(PT_F32, rows * ld, 3, spread);
    double *z = test_alloc((size_t)(rows * ld) * sizeof *z), most = 0;
    for (int64_t i = 0; i < rows * ld; i++) {
        z[i] = mapped(logits.value[i]);
        most = fmax(most, fabs(z[i]));
    }
    const double map_error = the_map.cap ? 9e-7 * most : the_map.scale ? 0x1p-22 * most : 0;
    int32_t *targets = random_ids(rows, vocab);
    if (rows > 2)
        targets[1] = -100;
    float *loss = test_alloc((size_t)rows * 4);
    size_t bytes = (size_t)(rows * ld) * dtype_bytes(type);
    void *d = test_alloc(bytes);
    cross_entropy(1, type, rows, vocab, ld, ld, scale, logits.data, targets, loss, d);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = z + r * ld;
        const double lse = log_sum(x, vocab), smoothing = the_smoothing, share = smoothing / (double)vocab;
        const double above = linear ? 0 : lse - smoothing * mean_of(x, vocab);
        const double want = targets[r] == -100 ? 0 : above - (1 - smoothing) * x[targets[r]];
        near(PT_F32, loss[r], want, 1e-6 + 3e-7 * fabs(want) + map_error, "loss", r);
        for (int64_t i = 0; i < vocab; i++) {
            const double p = (linear ? 0 : exp(x[i] - lse)) - share - (i == targets[r] ? 1 - smoothing : 0), size = fabs(p) + 2 * share;
            double exponent = 0x1p-23 * fabs(x[i] - lse); /* what its rounding makes of exp */
            double factor = map_slope(logits.value[r * ld + i]) * scale, steep = op_factor(the_map.scale) * scale;
            near(type, element(type, d, r * ld + i), targets[r] == -100 ? 0 : p * factor,
                 (1e-6 + exponent + map_error) * size * factor + 8e-7 * (i == targets[r]) * scale /* p - 1 near 0 */ +
                     2e-38 * steep /* below the normal numbers: 0 */ +
                     (the_map.cap ? 1e-6 * size * steep : 0) /* where 1 - tanh^2 cancels */,
                 "dlogits", r * ld + i);
        }
    }
    for (int threads = 2; threads <= TEST_THREADS; threads++) {
        float *loss2 = test_alloc((size_t)rows * 4);
        void *d2 = test_alloc(bytes);
        cross_entropy(threads, type, rows, vocab, ld, ld, scale, logits.data, targets, loss2, d2);
        same_bits(loss, loss2, (size_t)rows * 4, "loss with more threads");
        same_bits(d, d2, bytes, "dlogits with more threads");
        char *over = test_copy(logits.data, (size_t)(rows * ld) * 4);
        int64_t lddl = ld * 4 / (int64_t)dtype_bytes(type);
        cross_entropy(threads, type, rows, vocab, ld, lddl, scale, over, targets, loss2, over);
        same_bits(loss, loss2, (size_t)rows * 4, "loss in place");
        for (int64_t r = 0; r < rows; r++)
            same_bits((char *)d + (size_t)(r * ld) * dtype_bytes(type), over + r * ld * 4,
                      (size_t)vocab * dtype_bytes(type), "dlogits over logits");
        cross_entropy(threads, type, rows, vocab, ld, ld, scale, logits.data, targets, loss2, NULL);
        same_bits(loss, loss2, (size_t)rows * 4, "loss alone");
    }
}

static void loss_and_gradient_match_fp64(void **state)
{
    static const int64_t shapes[][2] = {{1, 50257}, {7, 257}, {40, 40}, {1, 1}, {7, 3}, {3, 2048}};
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = 0; t < TYPES; t++) {
            check_rows(types[t], shapes[s][0], shapes[s][1], 2);
            check_rows(types[t], shapes[s][0], shapes[s][1], 30);
            the_smoothing = 0.1f;
            check_rows(types[t], shapes[s][0], shapes[s][1], 2);
            the_smoothing = 0;
            linear = true;
            check_rows(types[t], shapes[s][0], shapes[s][1], 2);
            linear = false;
            test_teardown(NULL);
        }
}

/* A row that fits into a GPU's shared memory is read once if its addresses allow it, else twice: the bits are the same. More rows than
 * the shim has multiprocessors; rows that are ignored before, between and behind others. */
static void rows_that_are_read_once_have_the_same_bits(void **state)
{
    enum { ROWS = 7, LANE = 16 };
    static const int64_t vocabularies[] = {8193, 24571, 32768, 32769, 50257, 57344, 57345};
    static const logit_map maps[] = {{0, 0}, {0, 0}, {0.5f, 30}};
    const int64_t turns = SANITIZED ? 3 : (int64_t)(sizeof vocabularies / sizeof *vocabularies);
    for (int64_t turn = 0; turn < turns; turn++) {
        const int64_t vocab = vocabularies[SANITIZED ? 1 + 2 * turn : turn], ld = (vocab + LANE - 1) / LANE * LANE, apart = ld + 1;
        int32_t *targets = random_ids(ROWS, vocab);
        the_map = maps[turn % 3];
        targets[random_below(2)] = targets[3] = -100;
        if (turn % 2)
            targets[ROWS - 1] = -100;
        targets[4] = (int32_t)vocab - 1;
        tensor logits = tensor_random(PT_F32, ROWS * ld, 0, 4);
        float *spread = test_alloc((size_t)(ROWS * apart) * 4), *loss = test_alloc(ROWS * 4), *loss2 = test_alloc(ROWS * 4);
        float *right = test_alloc(ROWS * 4), *right2 = test_alloc(ROWS * 4), *weights = test_alloc(ROWS * 4);
        bf16 *want = test_alloc((size_t)(ROWS * apart) * 2), *got = test_alloc((size_t)(ROWS * ld) * 2);
        for (int r = 0; r < ROWS; r++) {
            memcpy(spread + r * apart, (float *)logits.data + r * ld, (size_t)vocab * 4);
            weights[r] = 1 + 0.25f * (float)r;
        }
        op_cross_entropy o = {PT_BF16, ROWS, vocab, apart, apart, 0.01f, spread, targets, loss, want, the_map.scale, the_map.cap, weights,
                              right, 0, false};
        run_op(1, &(op){OP_CROSS_ENTROPY, .cross_entropy = o});
        for (int in_place = 0; in_place < 2; in_place++) {
            o.ld = ld, o.logits = in_place ? logits.data : test_copy(logits.data, (size_t)(ROWS * ld) * 4);
            o.lddl = in_place ? 2 * ld : ld, o.dlogits = in_place ? logits.data : got;
            o.loss = loss2, o.right = right2;
            run_op(1 + (int)turn % TEST_THREADS, &(op){OP_CROSS_ENTROPY, .cross_entropy = o});
            same_bits(loss, loss2, ROWS * 4, "loss");
            same_bits(right, right2, ROWS * 4, "right");
            for (int r = 0; r < ROWS; r++)
                same_bits(want + r * apart, (bf16 *)o.dlogits + r * o.lddl, (size_t)vocab * 2, "dlogits");
        }
        test_teardown(NULL);
    }
    the_map = (logit_map){0};
}

/* Scaled, capped, both; logits far below the cap, about it, and beyond it. */
static void scaled_and_capped_logits_match_fp64(void **state)
{
    static const logit_map maps[] = {{0.125f, 0}, {3, 0}, {0, 30}, {0.5f, 30}, {1, 0.9f}, {1, 500}};
    static const int64_t shapes[][2] = {{1, 9001}, {7, 257}, {40, 40}, {1, 1}, {7, 3}};
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int t = 0; t < TYPES; t++) {
                the_map = maps[m];
                the_smoothing = s % 2 ? 0.2f : 0;
                check_rows(types[t], shapes[s][0], shapes[s][1], s % 2 ? 2 : 30);
                test_teardown(NULL);
            }
    the_smoothing = 0;
    the_map = (logit_map){0};
}

/* A weight is a factor of the scale, and a target is right where no logit is above it, or it is one of several that are the largest. */
static void weights_scale_gradients_and_right_targets_are_told(void **state)
{
    enum { ROWS = 6, VOCAB = 77, LD = 80 };
    static const float factors[ROWS] = {1, 0.25f, 0, -2, 8, 0.5f};
    for (int turn = 0; turn < TYPES * 4; turn++) {
        const pt_dtype type = types[turn % TYPES];
        the_map = turn % 4 < 2 ? (logit_map){0} : (logit_map){0.5f, 3};
        tensor logits = tensor_random(PT_F32, ROWS * LD, 0, 3);
        int32_t *targets = random_ids(ROWS, VOCAB);
        float *loss = test_alloc(ROWS * 4), *plain = test_alloc(ROWS * 4), *right = test_alloc(ROWS * 4);
        float *weights = test_copy(factors, sizeof factors), scale = 0.125f;
        const size_t bytes = ROWS * LD * dtype_bytes(type);
        char *d = test_alloc(bytes), *one = test_alloc(bytes);
        targets[5] = -100;
        tensor_set(&logits, targets[0], 50); /* right */
        tensor_set(&logits, LD + targets[1], 50);
        tensor_set(&logits, LD + (targets[1] + 1) % VOCAB, 50); /* right too */
        tensor_set(&logits, 2 * LD + (targets[2] + 1) % VOCAB, 50);
        op_cross_entropy o = {type, ROWS, VOCAB, LD, LD, scale, logits.data, targets, loss, d, the_map.scale, the_map.cap, weights,
                              right, 0, false};
        run_op(1 + turn % TEST_THREADS, &(op){OP_CROSS_ENTROPY, .cross_entropy = o});
        assert_true(right[0] == 1 && right[1] == 1 && right[2] == 0 && right[5] == 0);
        for (int r = 0; r < ROWS; r++) {
            cross_entropy(1, type, ROWS, VOCAB, LD, LD, scale * factors[r], logits.data, targets, plain, one);
            same_bits(&loss[r], &plain[r], sizeof *loss, "a weighted loss");
            for (int64_t i = 0; i < VOCAB; i++) /* -0 is 0 */
                assert_true(element(type, d, r * LD + i) == element(type, one, r * LD + i));
        }
        test_teardown(NULL);
    }
    the_map = (logit_map){0};
}

enum { LOSS_VOCAB = 301 };
typedef struct loss_row { const double *x; int64_t n, target; } loss_row;
static double row_loss(const void *ctx)
{
    const loss_row *r = ctx;
    double z[LOSS_VOCAB];
    double mean = 0;
    for (int64_t i = 0; i < r->n; i++)
        mean += (z[i] = mapped(r->x[i])) / (double)r->n;
    return log_sum(z, r->n) - (1 - (double)the_smoothing) * z[r->target] - (double)the_smoothing * mean;
}

static void gradient_is_the_slope_of_the_loss(void **state)
{
    static const logit_map maps[] = {{0, 0}, {0.3f, 0}, {0, 4}, {1.5f, 2}};
    enum { VOCAB = LOSS_VOCAB };
    for (size_t m = 0; m < 2 * sizeof maps / sizeof *maps; m++) {
        tensor logits = tensor_random(PT_F32, VOCAB, 0, 2);
        int32_t *target = random_ids(1, VOCAB);
        float *loss = test_alloc(sizeof *loss), *d = test_alloc(VOCAB * sizeof *d);
        the_map = maps[m / 2];
        the_smoothing = m % 2 ? 0.15f : 0;
        cross_entropy(1, PT_F32, 1, VOCAB, VOCAB, VOCAB, 1, logits.data, target, loss, d);
        loss_row row = {logits.value, VOCAB, *target};
        near(PT_F32, *loss, row_loss(&row), 1e-5, "loss", 0);
        for (int64_t i = 0; i < VOCAB; i++)
            near(PT_F32, d[i], slope(row_loss, &row, &logits.value[i]), 1e-6, "dlogits", i);
    }
    the_smoothing = 0;
    the_map = (logit_map){0};
}

/* More exponentials than a thread's scratch holds. */
static void a_vocabulary_of_more_than_a_million_is_computed_twice(void **state)
{
    check_rows(PT_BF16, 1, (1 << 20) + 5, 2);
}

static void not_finite_logits_are_seen(void **state)
{
    for (int turn = 0; turn < 60; turn++) {
        int64_t vocab = 1 + random_below(200), i = random_below(vocab);
        tensor logits = tensor_random(PT_F32, vocab, 0, 2);
        int32_t *target = random_ids(1, vocab);
        tensor_set(&logits, i, turn & 1 ? NAN : INFINITY);
        float *loss = test_alloc(sizeof *loss);
        bf16 *d = test_alloc((size_t)vocab * 2);
        cross_entropy(1, PT_BF16, 1, vocab, vocab, vocab, 1, logits.data, target, loss, d);
        assert_false(isfinite(*loss));
        assert_false(isfinite(bf16_to_f32(d[*target])));
        test_teardown(NULL);
    }
}

/* Rounded by adding to its bits, this one would become -0. */
static void no_gradient_of_a_row_with_any_nan_is_a_number(void **state)
{
    static const uint32_t bits = 0x7fffffff;
    for (int turn = 0; turn < 60; turn++) {
        int64_t vocab = 1 + random_below(200);
        tensor logits = tensor_random(PT_F32, vocab, 0, 2);
        memcpy((float *)logits.data + random_below(vocab), &bits, sizeof bits);
        float *loss = test_alloc(sizeof *loss);
        bf16 *d = test_alloc((size_t)vocab * 2);
        cross_entropy(1, PT_BF16, 1, vocab, vocab, vocab, 1, logits.data, random_ids(1, vocab), loss, d);
        assert_true(isnan(*loss));
        for (int64_t i = 0; i < vocab; i++)
            assert_true(isnan(bf16_to_f32(d[i])));
        test_teardown(NULL);
    }
}

static void logits_far_apart_neither_overflow_nor_vanish(void **state)
{
    static const float row[5] = {-3e38f, 88.0f, 3e38f, -INFINITY, 3e38f};
    static const int32_t third = 2;
    float *logits = test_copy(row, sizeof row), *loss = test_alloc(sizeof *loss), *d = test_alloc(sizeof row);
    cross_entropy(1, PT_F32, 1, 5, 5, 5, 1, logits, test_copy(&third, sizeof third), loss, d);
    near(PT_F32, *loss, log(2), 1e-7, "loss", 0);
    static const double want[5] = {0, 0, -0.5, 0, 0.5};
    for (int i = 0; i < 5; i++)
        assert_true(d[i] == want[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(loss_and_gradient_match_fp64),
        OP_TEST(rows_that_are_read_once_have_the_same_bits),
        OP_TEST(scaled_and_capped_logits_match_fp64),
        OP_TEST(weights_scale_gradients_and_right_targets_are_told),
        OP_TEST(gradient_is_the_slope_of_the_loss),
        OP_TEST(a_vocabulary_of_more_than_a_million_is_computed_twice),
        OP_TEST(not_finite_logits_are_seen),
        OP_TEST(no_gradient_of_a_row_with_any_nan_is_a_number),
        OP_TEST(logits_far_apart_neither_overflow_nor_vanish),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
