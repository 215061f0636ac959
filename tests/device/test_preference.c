/* Pairs of examples: what a row weighs is the slope of its pair's loss, whatever the lengths, and padding weighs nothing. */
#include "device/preference.h"
#include "device/reference.h"

typedef struct pairs_case {
    preference_rule rule;
    int64_t seq_len;
    int32_t *first, *targets;
    double *loss; /* changed by slope() */
    const double *given;
} pairs_case;

/* Of the example that begins at row `begin`, *rows of which count; *next: where the one after it does. *own: adds the rows' own losses. */
static double score_of(const pairs_case *c, int64_t begin, int64_t *next, int64_t *rows, double *own)
{
    const preference_kind kind = c->rule.kind;
    const bool sums = kind == PREFERENCE_SIGMOID || kind == PREFERENCE_KTO || kind == PREFERENCE_REWARD;
    double sum = 0;
    int64_t n = 0, r = begin;
    do {
        const bool target = c->targets[r] >= 0, counts = target && (kind != PREFERENCE_ORPO || c->given[r] >= 0);
        *own += target && kind == PREFERENCE_ORPO ? fabs(c->given[r]) * c->loss[r] : target && kind == PREFERENCE_REWARD ? c->given[r] : 0;
        const double cut = c->rule.cut, given = cut > 0 ? fabs(c->given[r]) : c->given[r], tail = cut > 0 && c->given[r] < 0 ? 1 - cut : 1;
        sum += counts ? tail * ((kind <= PREFERENCE_NORM || kind == PREFERENCE_KTO ? given : 0) - c->loss[r]) : 0;
        n += counts;
        r++;
    } while (r < c->seq_len && c->first[r] != r);
    *next = r;
    *rows = n;
    return !sums && n > 0 ? sum / (double)n : sum;
}

static double log_odds(double score)
{
    const double p = exp(score < -1e-12 ? score : -1e-12);
    return log(p / (1 - p));
}

static double utility_loss(double weight, double x) { return weight * (1 - 1 / (1 + exp(-x))); }

static double pair_loss(const pairs_case *c, double chosen, double rejected, double own, const int64_t rows[2])
{
    const double beta = c->rule.beta, margin = chosen - rejected, baseline = c->rule.baseline, wrong = c->rule.smoothing;
    switch (c->rule.kind) {
    case PREFERENCE_IPO: return pow(margin - 0.5 / beta, 2);
    case PREFERENCE_SIMPO:
        return (1 - wrong) * log(1 + exp(-beta * margin + c->rule.gamma)) + wrong * log(1 + exp(beta * margin - c->rule.gamma));
    case PREFERENCE_ORPO: return own - beta * log(1 / (1 + exp(log_odds(rejected) - log_odds(chosen))));
    case PREFERENCE_REWARD: return log(1 + exp(own - margin)) + (double)c->rule.center * pow(chosen + rejected, 2);
    case PREFERENCE_KTO:
        return (rows[0] ? utility_loss(c->rule.desirable, beta * (chosen - baseline)) : 0) +
               (rows[1] ? utility_loss(c->rule.undesirable, beta * (baseline - rejected)) : 0);
    default: return (1 - wrong) * log(1 + exp(-beta * margin)) + wrong * log(1 + exp(beta * margin));
    }
}

static double loss_of_pairs(const void *ctx)
{
    const pairs_case *c = ctx;
    double sum = 0;
    for (int64_t r = 0; r < c->seq_len;) {
        double own = 0;
        int64_t rows[2];
        const double chosen = score_of(c, r, &r, &rows[0], &own);
        if (r == c->seq_len)
            break;
        const double rejected = score_of(c, r, &r, &rows[1], &own);
        sum += pair_loss(c, chosen, rejected, own, rows);
    }
    return sum;
}

/* Examples of 1 to `most` rows, their prompts without targets; `lacks`: some without any target. Returns the first row of padding. */
static int64_t random_examples(int64_t seq_len, int64_t most, bool lacks, int32_t *first, int32_t *targets)
{
    int64_t r = 0, pair = 0;
    for (;;) {
        const int64_t n[2] = {1 + random_below(most), 1 + random_below(most)};
        if (r + n[0] + n[1] > seq_len)
            break;
        for (int i = 0; i < 2; i++) {
            const int64_t begin = r, prompt = lacks && random_below(3) == 0 ? n[i] : random_below(n[i]);
            for (; r < begin + n[i]; r++) {
                first[r] = (int32_t)begin;
                targets[r] = r < begin + prompt ? -100 : (int32_t)random_below(50000);
            }
        }
        pair++;
    }
    for (int64_t i = r; i < seq_len; i++) {
        first[i] = (int32_t)r;
        targets[i] = -100;
    }
    return pair > 0 ? r : 0;
}

static void check_sequences(preference_kind kind, int64_t sequences, int64_t seq_len, int64_t most)
{
    const int64_t n = sequences * seq_len;
    const preference_rule rule = {.kind = kind, .beta = (float)(0.05 + (double)random_below(100) / 100),
                                  .gamma = kind == PREFERENCE_SIMPO ? 0.4F : 0, .smoothing = random_below(2) ? 0.2F : 0,
                                  .desirable = 1.5F, .undesirable = 0.75F, .baseline = 0.3F,
                                  .cut = kind <= PREFERENCE_NORM && random_below(2) ? 0.7F : 0,
                                  .center = random_below(2) ? 0.01F : 0};
    int32_t *first = test_alloc((size_t)n * 4), *targets = test_alloc((size_t)n * 4);
    tensor loss = tensor_random(PT_F32, n, kind == PREFERENCE_ORPO ? 1.5 : 0, 0.3), given = tensor_random(PT_F32, n, 0, 1);
    int64_t padding[8];
    for (int64_t s = 0; s < sequences; s++) {
        padding[s] = random_examples(seq_len, most, kind == PREFERENCE_KTO, first + s * seq_len, targets + s * seq_len);
        for (int64_t r = s * seq_len + padding[s]; r < (s + 1) * seq_len; r++)
            ((float *)given.data)[r] = 0;
    }
    float *weights = test_alloc((size_t)n * 4);
    op_preference o = {rule, sequences, seq_len, targets, first, loss.data, kind == PREFERENCE_SIMPO ? NULL : given.data, weights};
    run_op(1, &(op){OP_PREFERENCE, .preference = o});
    for (int64_t s = 0; s < sequences; s++) {
        const int64_t at = s * seq_len;
        pairs_case c = {rule, seq_len, first + at, targets + at, loss.value + at, given.value + at};
        for (int64_t r = 0; r < seq_len; r++) {
            if (r >= padding[s])
                near(PT_F32, weights[at + r], 0, 0, "padding", at + r);
            else if (targets[at + r] >= 0) {
                const double want = slope(loss_of_pairs, &c, &loss.value[at + r]);
                near(PT_F32, weights[at + r], want, 1e-6 + 1e-6 * fabs(want), "weight", at + r);
            }
        }
    }
    for (int threads = 2; threads <= TEST_THREADS; threads++) {
        o.weights = test_alloc((size_t)n * 4);
        run_op(threads, &(op){OP_PREFERENCE, .preference = o});
        same_bits(weights, o.weights, (size_t)n * 4, "with more threads");
    }
}

static void a_weight_is_the_slope_of_the_pairs_loss(void **state)
{
    static const int64_t shapes[][3] = {{1, 2, 1}, {3, 40, 6}, {5, 257, 90}, {2, 600, 280}, {1, 7, 30} /* mostly no pair at all */};
    for (int kind = PREFERENCE_SIGMOID; kind <= PREFERENCE_REWARD; kind++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            check_sequences(kind, shapes[i][0], shapes[i][1], shapes[i][2]);
            test_teardown(NULL);
        }
}

/* Margins that overflow e^x; one that is no number. */
static void extreme_margins_are_finite_and_nan_is_seen(void **state)
{
    enum { N = 4 };
    const int32_t first[N] = {0, 0, 2, 2}, targets[N] = {-100, 1, -100, 1};
    for (int i = 0; i < 3; i++) {
        const float chosen = i == 0 ? 1e30f : i == 1 ? -1e30f : NAN, loss[N] = {0, chosen, 0, 1}, given[N] = {0};
        float *weights = test_alloc(sizeof loss);
        op_preference o = {{.kind = PREFERENCE_SIGMOID, .beta = 0.5f}, 1, N, test_copy(targets, sizeof targets),
                           test_copy(first, sizeof first),
                           test_copy(loss, sizeof loss), test_copy(given, sizeof given), weights};
        run_op(1, &(op){OP_PREFERENCE, .preference = o});
        if (i < 2)
            assert_true(weights[1] == (i == 0 ? 0.5f : 0.0f) && weights[3] == -weights[1]);
        else
            assert_true(isnan(weights[1]) && isnan(weights[3]));
    }
    const preference_rule sigmoid = {.kind = PREFERENCE_SIGMOID, .beta = 1}, odds = {.kind = PREFERENCE_ORPO, .beta = 0.5f};
    const preference_rule utility = {.kind = PREFERENCE_KTO, .beta = 1, .desirable = 1, .undesirable = 1};
    assert_true(preference_loss(sigmoid, -1e30, 0, 0) == 1e30 && preference_loss(sigmoid, 1e30, 0, 0) == 0);
    for (int certain = 0; certain < 2; certain++) { /* one of the replies has the probability 1 */
        const double chosen = certain ? -1 : 0, rejected = certain ? 0 : -1;
        assert_true(isfinite(preference_loss(odds, chosen, rejected, 0)));
        assert_true(isfinite(preference_slope(odds, chosen, rejected, 0, 0)) && isfinite(preference_slope(odds, chosen, rejected, 0, 1)));
    }
    assert_true(isnan(preference_slope(odds, NAN, -1, 0, 0)) && isnan(preference_utility_slope(utility, NAN, 1)));
    assert_true(preference_utility_loss(utility, 1e30, 0) == 0 && preference_utility_loss(utility, 1e30, 1) == 1);
    assert_true(preference_utility_slope(utility, 1e30, 0) == 0 && preference_utility_slope(utility, -1e30, 1) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(a_weight_is_the_slope_of_the_pairs_loss),
        OP_TEST(extreme_margins_are_finite_and_nan_is_seen),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
