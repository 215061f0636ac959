#include "model/support.h"

#include "base/rng.h"
#include "model/weights.h"
#include "seed.h"

#include <math.h>

static const char gpt2_small[] =
    "{'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 3, 'n_head': 4, 'vocab_size': 301, 'n_positions': 50,"
    " 'initializer_range': 0.05}";
static const char llama_small[] =
    "{'model_type': 'llama', 'hidden_size': 64, 'num_hidden_layers': 2, 'num_attention_heads': 4,"
    " 'num_key_value_heads': 2, 'intermediate_size': 150, 'vocab_size': 301, 'pad_token_id': 7,"
    " 'attention_bias': true}";
static uint64_t seed;

static float *param_init_whole(const model *m, uint64_t s, int index)
{
    const param *p = &m->params[index];
    float *w = malloc(sizeof *w * (size_t)(p->rows * p->cols));
    assert_non_null(w);
    weights_init(m, s, index, 0, p->rows, w);
    return w;
}

static int find_param(const model *m, int block, param_role role)
{
    int i = m->blocks[block].param_of_role[role];
    assert_true(i >= 0);
    return i;
}

static void moments(const float *w, int64_t n, double *mean, double *deviation)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) {
        sum += w[i];
        squares += (double)w[i] * w[i];
    }
    *mean = sum / (double)n;
    *deviation = sqrt(squares / (double)n - *mean * *mean);
}

static double expected_deviation(const model *m, param_role role)
{
    bool residual = role == PARAM_OUT || role == PARAM_DOWN;
    return m->config.initializer_range / (residual && !strcmp(m->config.model_type, "gpt2") ? sqrt(2.0 * (double)m->config.layers) : 1);
}

/* Of normals with this deviation, but for biases, norms (1, or 0 where 1 is added to them) and the padding row. */
static void check_init(const char *json, double range, int64_t padding)
{
    model *m = config_open(json);
    const bool norms_from_one = !strncmp(m->config.model_type, "gemma", 5) || !strcmp(m->config.model_type, "nemotron");
    assert_true(m->config.initializer_range == range);
    assert_int_equal(m->config.padding, padding);
    for (int i = 0; i < m->params_n; i++) {
        const param *p = &m->params[i];
        int64_t n = p->rows * p->cols;
        float *w = param_init_whole(m, seed, i);
        if (p->part[0].vector) {
            bool norm = strstr(p->part[0].name, "norm.weight") || strstr(p->part[0].name, "ln_1.weight") ||
                        strstr(p->part[0].name, "ln_2.weight") || strstr(p->part[0].name, "ln_f.weight");
            for (int64_t k = 0; k < n; k++)
                assert_true(w[k] == (norm && !norms_from_one ? 1 : 0));
        } else {
            double mean, deviation, std = expected_deviation(m, p->role);
            int64_t zeros = p->role == PARAM_TOKENS && padding >= 0 ? p->cols : 0;
            for (int64_t c = 0; c < zeros; c++)
                assert_true(w[padding * p->cols + c] == 0);
            moments(w, n, &mean, &deviation);
            deviation *= sqrt((double)n / (double)(n - zeros));
            if (!(fabs(mean) <= 6 * std / sqrt((double)n) && fabs(deviation / std - 1) <= 6 / sqrt(2.0 * (double)n)))
                fail_msg("%s: mean %g, deviation %g instead of %g", p->part[0].name, mean, deviation, std);
        }
        free(w);
    }
    model_close(m);
}

static void each_architecture_starts_by_its_own_rule(void **state)
{
    (void)state;
    check_init(gpt2_small, 0.05, -1);
    check_init(llama_small, 0.02, 7);
    check_init(
        "{'model_type': 'qwen3', 'hidden_size': 64, 'num_hidden_layers': 1, 'num_attention_heads': 4,"
        " 'num_key_value_heads': 2, 'head_dim': 10, 'intermediate_size': 150, 'vocab_size': 301}", 0.02, -1);
#define SMALL ", 'hidden_size': 64, 'num_hidden_layers': 1, 'num_attention_heads': 4, 'vocab_size': 301, 'pad_token_id': 3}"
#define SMALL_GROUPED ", 'num_key_value_heads': 2, 'intermediate_size': 150, 'initializer_range': 0.05" SMALL
    check_init("{'model_type': 'opt', 'ffn_dim': 150, 'max_position_embeddings': 33, 'init_std': 0.05" SMALL, 0.05, 3);
    check_init("{'model_type': 'opt', 'ffn_dim': 150, 'max_position_embeddings': 33, 'init_std': 0.07, 'initializer_range': 0.05"
               SMALL, 0.05, 3);
    check_init("{'model_type': 'gemma', 'head_dim': 16, 'attention_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'gemma2', 'head_dim': 16, 'tie_word_embeddings': false" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'gemma3_text', 'head_dim': 16" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'phi3'" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'starcoder2', 'num_key_value_heads': 2, 'intermediate_size': 150, 'hidden_size': 64, 'num_hidden_layers': 1,"
               " 'num_attention_heads': 4, 'vocab_size': 301}", 0.018042, -1);
    check_init("{'model_type': 'gpt_neox', 'intermediate_size': 150, 'initializer_range': 0.05" SMALL, 0.05, -1);
    check_init("{'model_type': 'olmo2', 'attention_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'olmo3'" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'smollm3', 'mlp_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'granite', 'attention_bias': true, 'mlp_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'seed_oss', 'head_dim': 16, 'mlp_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'exaone4', 'head_dim': 16" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'stablelm', 'use_qkv_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'arcee', 'mlp_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'nemotron', 'num_key_value_heads': 2, 'intermediate_size': 150, 'hidden_size': 64, 'num_hidden_layers': 1,"
               " 'num_attention_heads': 4, 'vocab_size': 301}", 0.0134, -1);
    check_init("{'model_type': 'glm4', 'head_dim': 16" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'ernie4_5', 'head_dim': 16, 'use_bias': true" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'cohere2', 'tie_word_embeddings': false" SMALL_GROUPED, 0.05, 3);
    check_init("{'model_type': 'ministral3', 'head_dim': 16" SMALL_GROUPED, 0.05, 3);
}

/* Of four words in turn: radius and angle of two numbers, twice. */
static double box_muller(uint64_t s, uint32_t stream, uint64_t i)
{
    uint32_t w[4];
    rng_words(s, RNG_INIT, stream, i / 4, w);
    const uint32_t *v = w + i % 4 / 2 * 2;
    double radius = sqrt(-2 * log(((double)v[0] + 0.5) * 0x1p-32)), angle = 2 * M_PI * ((double)v[1] * 0x1p-32);
    return radius * (i % 2 ? sin(angle) : cos(angle));
}

static void numbers_are_those_of_the_c_library(void **state)
{
    (void)state;
    model *m = config_open("{'model_type': 'gpt2', 'n_embd': 64, 'n_layer': 1, 'n_head': 4, 'vocab_size': 6007, 'n_positions': 50}");
    const int64_t n = m->params[0].rows * m->params[0].cols;
    float *w = param_init_whole(m, seed, 0);
    const uint32_t stream = PARAM_TOKENS * MODEL_MAX_PARTS;
    for (int64_t i = 0; i < n; i++) {
        double want = 0.02 * box_muller(seed, stream, (uint64_t)i);
        if (!(fabs(w[i] - want) <= 1e-7 * fabs(want) + 1e-12))
            fail_msg("number %lld is %.9g instead of %.9g", (long long)i, w[i], want);
    }
    free(w);
    model_close(m);
}

static void the_padding_row_starts_at_zero(void **state)
{
    (void)state;
    model *m = config_open(llama_small);
    float *w = param_init_whole(m, seed, 0), row[64], next[128];
    for (int c = 0; c < 64; c++)
        assert_true(w[7 * 64 + c] == 0 && w[6 * 64 + c] != 0 && w[8 * 64 + c] != 0);
    weights_init(m, seed, 0, 7, 1, row);
    assert_memory_equal(row, w + 7 * 64, sizeof row);
    weights_init(m, seed, 0, 8, 2, next);
    assert_memory_equal(next, w + 8 * 64, sizeof next);
    free(w);
    model_close(m);
}

static void pieces_are_the_whole(void **state)
{
    (void)state;
    const char *const configs[] = {gpt2_small, llama_small};
    for (int c = 0; c < 2; c++) {
        model *m = config_open(configs[c]);
        for (int i = 0; i < m->params_n; i++) {
            const param *p = &m->params[i];
            float *w = param_init_whole(m, seed, i),
                  *piece = malloc(sizeof *piece * (size_t)(p->rows * p->cols));
            assert_non_null(piece);
            for (int trial = 0; trial < 8; trial++) {
                uint32_t r[4];
                rng_words(seed, RNG_TEST, (uint32_t)i, (uint64_t)trial, r);
                int64_t row0 = r[0] % p->rows, n = 1 + r[1] % (p->rows - row0);
                weights_init(m, seed, i, row0, n, piece);
                assert_memory_equal(piece, w + row0 * p->cols, sizeof *w * (size_t)(n * p->cols));
            }
            free(w);
            free(piece);
        }
        model_close(m);
    }
}

/* A tensor's values are the same however it lies in our parameters: here k_proj, stacked behind
 * 4 heads of q or behind 2. */
static void values_belong_to_the_hugging_face_tensor(void **state)
{
    (void)state;
    model *a = config_open(
        "{'model_type': 'llama', 'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4,"
        " 'num_key_value_heads': 2, 'head_dim': 8, 'intermediate_size': 50, 'vocab_size': 50}");
    model *b = config_open(
        "{'model_type': 'llama', 'hidden_size': 32, 'num_hidden_layers': 5, 'num_attention_heads': 2,"
        " 'num_key_value_heads': 2, 'head_dim': 8, 'intermediate_size': 70, 'vocab_size': 80}");
    int ia = find_param(a, 2, PARAM_QKV), ib = find_param(b, 2, PARAM_QKV);
    float *wa = param_init_whole(a, seed, ia), *wb = param_init_whole(b, seed, ib);
    assert_memory_equal(wa + 32 * 32, wb + 16 * 32, sizeof(float) * 16 * 32);
    assert_memory_not_equal(wa, wa + 32 * 32, sizeof(float) * 16 * 32);
    free(wa);
    free(wb);
    model_close(a);
    model_close(b);
}

static void tensors_and_seeds_differ(void **state)
{
    (void)state;
    model *m = config_open(gpt2_small);
    static const int at[][2] = {{0, PARAM_TOKENS}, {0, PARAM_POSITIONS}, {1, PARAM_QKV},  {2, PARAM_QKV},
                                {1, PARAM_OUT},    {1, PARAM_UP},        {1, PARAM_DOWN}, {3, PARAM_DOWN}};
    enum { N = sizeof at / sizeof at[0] };
    float *w[N];
    for (int i = 0; i < N; i++) {
        w[i] = param_init_whole(m, seed, find_param(m, at[i][0], (param_role)at[i][1]));
        for (int k = 0; k < i; k++) /* scaled alike, the first elements would be equal if the streams were */
            assert_true(fabs(w[i][0] / expected_deviation(m, (param_role)at[i][1]) -
                             w[k][0] / expected_deviation(m, (param_role)at[k][1])) > 1e-6);
    }
    float *other = param_init_whole(m, seed + 1, find_param(m, 0, PARAM_TOKENS));
    assert_memory_not_equal(other, w[0], sizeof(float) * 301 * 64);
    free(other);
    for (int i = 0; i < N; i++)
        free(w[i]);
    model_close(m);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_architecture_starts_by_its_own_rule),
        cmocka_unit_test(numbers_are_those_of_the_c_library),
        cmocka_unit_test(the_padding_row_starts_at_zero),
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(values_belong_to_the_hugging_face_tensor),
        cmocka_unit_test(tensors_and_seeds_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
