#include "infer/sample.h"

#include "base/rng.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { VOCAB = 300 };

static candidate room[VOCAB];
static uint64_t seed;

static int set_up(void **state)
{
    seed = test_seed();
    return 0;
}

static void random_logits(float *logits, int n, double spread, uint32_t stream)
{
    for (int i = 0; i < n; i++)
        logits[i] = (float)(spread * rng_normal(seed, RNG_TEST, stream, (uint64_t)i));
}

static int32_t draw(const sampler *s, const float *logits, int n, uint64_t position)
{
    pt_error e = {0};
    int32_t id;
    if (sample(s, logits, n, position, &id, &e))
        fail_msg("%s", e.text);
    assert_in_range(id, 0, n - 1);
    return id;
}

static int best_of(const float *logits, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

static void temperature_zero_top_k_one_and_a_tiny_top_p_take_the_best(void **state)
{
    float logits[VOCAB];
    for (uint32_t t = 0; t < 200; t++) {
        random_logits(logits, VOCAB, 3, t);
        int best = best_of(logits, VOCAB);
        assert_int_equal(draw(&(sampler){0, 0, 1, seed, room}, logits, VOCAB, t), best);
        assert_int_equal(draw(&(sampler){2, 1, 1, seed, room}, logits, VOCAB, t), best);
        assert_int_equal(draw(&(sampler){2, 0, 1e-9, seed, room}, logits, VOCAB, t), best);
    }
}

static void equal_logits_count_in_the_order_of_their_ids(void **state)
{
    float logits[6] = {1, 5, 5, 1, 5, 0};
    bool seen[6] = {0};
    assert_int_equal(draw(&(sampler){0, 0, 1, seed, room}, logits, 6, 0), 1);
    for (uint64_t i = 0; i < 300; i++)
        seen[draw(&(sampler){1, 2, 1, seed, room}, logits, 6, i)] = true;
    assert_true(seen[1] && seen[2] && !seen[4]);
}

/* The probabilities that temperature, top-k and top-p leave, by their definitions. */
static void probabilities(const sampler *s, const float *logits, int n, double *p)
{
    bool taken[VOCAB] = {0};
    double weight[VOCAB], kept = 0, sum = 0, total = 0;
    int order[VOCAB], k = s->top_k && s->top_k < n ? (int)s->top_k : n;
    for (int i = 0; i < n; i++) {
        int best = -1;
        for (int j = 0; j < n; j++)
            if (!taken[j] && (best < 0 || logits[j] > logits[best]))
                best = j;
        taken[best] = true;
        order[i] = best;
        p[i] = 0;
    }
    for (int i = 0; i < k; i++)
        kept += weight[i] = exp(logits[order[i]] / s->temperature);
    int end = 0;
    while (end < k && (end == 0 || sum < s->top_p * kept))
        sum += weight[end++];
    for (int i = 0; i < end; i++)
        total += weight[i];
    for (int i = 0; i < end; i++)
        p[order[i]] = weight[i] / total;
}

static void draws_have_the_probabilities_that_they_should(void **state)
{
    enum { DRAWS = 20000 };
    const sampler samplers[] = {{1, 0, 1, seed, room}, {0.5, 0, 1, seed, room}, {1, 7, 1, seed, room}, {1.5, 0, 0.8, seed, room},
                                {0.8, 40, 0.9, seed, room}, {20, 0, 0.5, seed, room}, {1, 5000, 0.95, seed, room}};
    for (size_t k = 0; k < sizeof samplers / sizeof *samplers; k++) {
        float logits[VOCAB];
        double p[VOCAB];
        int counts[VOCAB] = {0};
        random_logits(logits, VOCAB, 2, (uint32_t)(1000 + k));
        probabilities(&samplers[k], logits, VOCAB, p);
        for (uint64_t i = 0; i < DRAWS; i++)
            counts[draw(&samplers[k], logits, VOCAB, i)]++;
        for (int i = 0; i < VOCAB; i++) {
            double expected = DRAWS * p[i], allowed = 6 * sqrt(expected * (1 - p[i])) + (p[i] > 0 ? 4 : 0);
            if (fabs(counts[i] - expected) > allowed)
                fail_msg("sampler %zu, token %d: drawn %d times, expected %.1f", k, i, counts[i], expected);
        }
    }
}

static void the_draw_depends_on_seed_and_position_alone(void **state)
{
    float logits[VOCAB];
    int differ = 0;
    random_logits(logits, VOCAB, 1, 5);
    for (uint64_t i = 0; i < 50; i++) {
        int32_t first = draw(&(sampler){1, 0, 0.95, seed, room}, logits, VOCAB, i);
        assert_int_equal(draw(&(sampler){1, 0, 0.95, seed, room}, logits, VOCAB, i), first);
        differ += draw(&(sampler){1, 0, 0.95, seed + 1, room}, logits, VOCAB, i) != first;
    }
    assert_true(differ > 10);
}

static void logits_that_are_no_numbers_are_refused(void **state)
{
    for (int i = 0; i < 2; i++) {
        float logits[4] = {0, 1, i ? NAN : INFINITY, 2};
        int32_t id;
        pt_error e = {0};
        assert_int_equal(sample(&(sampler){1, 0, 1, seed, room}, logits, 4, 0, &id, &e), PT_FAILED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(temperature_zero_top_k_one_and_a_tiny_top_p_take_the_best),
        cmocka_unit_test(equal_logits_count_in_the_order_of_their_ids),
        cmocka_unit_test(draws_have_the_probabilities_that_they_should),
        cmocka_unit_test(the_draw_depends_on_seed_and_position_alone),
        cmocka_unit_test(logits_that_are_no_numbers_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
