#include "model/support.h"

#include <math.h>

/* inv_freq in float32 of Transformers 5.23, heads of 16:
 *   LlamaRotaryEmbedding(LlamaConfig(hidden_size=16, num_attention_heads=1, rope_parameters=P)).inv_freq
 * and, from yarn on, frequencies and the factor of cos and sin by 5.24: ROPE_INIT_FUNCTIONS[type](that config, "cpu", seq_len=length)
 */
enum { POSITIONS = 3000, PAIRS = 8 };
static const struct { const char *rope; int length; double factor, frequency[PAIRS]; } known[] = {
    {"{'rope_type': 'default', 'rope_theta': 500000.0}", POSITIONS, 1,
     {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.00141421345, 0.000274248188, 5.31829573e-05, 1.03133852e-05}},
    {"{'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 4.0}", POSITIONS, 1,
     {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
    {"{'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,"
     " 'original_max_position_embeddings': 8192}", POSITIONS, 1,
     {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.000429556705, 8.57025589e-06, 1.66196742e-06, 3.22293289e-07}},
    {"{'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,"
     " 'original_max_position_embeddings': 2048}", POSITIONS, 1,
     {1.0, 0.193922758, 0.0376060307, 0.00384058291, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}},
    {"{'rope_type': 'yarn', 'rope_theta': 10000.0, 'factor': 4.0, 'original_max_position_embeddings': 512}", POSITIONS, 1.13862944,
     {1, 0.25693506, 0.0625, 0.0138349654, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
    {"{'rope_type': 'yarn', 'rope_theta': 500000.0, 'factor': 16.0,"
     " 'original_max_position_embeddings': 4096, 'beta_fast': 20.0, 'beta_slow': 2.0, 'truncate': false}", POSITIONS, 1.27725887,
     {1, 0.193922758, 0.0376060307, 0.00302670477, 8.83883404e-05, 1.71405118e-05, 3.32393483e-06, 6.44586578e-07}},
    {"{'rope_type': 'yarn', 'rope_theta': 10000.0, 'factor': 40.0,"
     " 'original_max_position_embeddings': 1024, 'mscale': 0.7, 'mscale_all_dim': 1.2}", POSITIONS, 0.872150566,
     {1, 0.316227764, 0.0756250024, 0.0162066743, 0.00268749986, 7.90569466e-05, 2.49999994e-05, 7.90569447e-06}},
    {"{'rope_type': 'yarn', 'rope_theta': 10000.0, 'factor': 4.0, 'original_max_position_embeddings': 64,"
     " 'attention_factor': 0.8}", POSITIONS, 0.8,
     {1, 0.237170815, 0.049999997, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
    {"{'rope_type': 'longrope', 'rope_theta': 10000.0, 'factor': 8.0,"
     " 'original_max_position_embeddings': 256, 'short_factor': [1, 1, 1.1, 1.2, 1.5, 2, 2.5, 3],"
     " 'long_factor': [1, 1.5, 2, 4, 8, 16, 20, 32]}", 256, 1.17260394,
     {1, 0.316227764, 0.0909090936, 0.0263523124, 0.00666666683, 0.00158113893, 0.00039999999, 0.000105409257}},
    {"{'rope_type': 'longrope', 'rope_theta': 10000.0, 'factor': 8.0,"
     " 'original_max_position_embeddings': 256, 'short_factor': [1, 1, 1.1, 1.2, 1.5, 2, 2.5, 3],"
     " 'long_factor': [1, 1.5, 2, 4, 8, 16, 20, 32]}", 257, 1.17260394,
     {1, 0.210818499, 0.0500000007, 0.00790569466, 0.00124999997, 0.000197642366, 4.99999987e-05, 9.88211832e-06}},
    {"{'rope_type': 'longrope', 'rope_theta': 10000.0, 'original_max_position_embeddings': 512,"
     " 'attention_factor': 1.5, 'short_factor': [1, 1, 1, 1, 1, 1, 1, 1], 'long_factor': [1, 1.5, 2, 4,"
     " 8, 16, 20, 32]}", POSITIONS, 1.5,
     {1, 0.210818499, 0.0500000007, 0.00790569466, 0.00124999997, 0.000197642366, 4.99999987e-05, 9.88211832e-06}},
    {"{'rope_type': 'dynamic', 'rope_theta': 10000.0, 'factor': 2.0}", 2048, 1,
     {1, 0.316227764, 0.100000001, 0.0316227786, 0.00999999978, 0.00316227786, 0.00100000005, 0.000316227786}},
    {"{'rope_type': 'dynamic', 'rope_theta': 10000.0, 'factor': 2.0}", POSITIONS, 1,
     {1, 0.287883073, 0.0828766674, 0.0238587912, 0.00686854264, 0.00197733706, 0.000569241878, 0.000163875127}},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static model *rope_model(const char *rope)
{
    char json[1024];
    snprintf(json, sizeof json, "{'model_type': 'llama', 'hidden_size': 16, 'num_attention_heads': 1, 'rope_parameters': %s}", rope);
    return config_open(json);
}

static void angles_are_those_of_transformers(void **state)
{
    (void)state;
    float *table = malloc(sizeof *table * POSITIONS * PAIRS * 2);
    assert_non_null(table);
    for (int k = 0; k < KNOWN; k++) {
        model *m = rope_model(known[k].rope);
        model_rope_table(&m->config.rope[0], known[k].length, 0, known[k].length, table);
        for (int p = 0; p < known[k].length; p++)
            for (int i = 0; i < PAIRS; i++) {
                double angle = p * known[k].frequency[i], bound = known[k].factor * (5e-7 * angle + 7e-8); /* their float32, our rounding */
                double x = known[k].factor * cos(angle), y = known[k].factor * sin(angle);
                const float *at = table + (p * PAIRS + i) * 2;
                if (fabs(at[0] - x) > bound || fabs(at[1] - y) > bound)
                    fail_msg("rope %d, position %d, pair %d: %.9g %.9g, expected %.9g %.9g", k, p, i, (double)at[0], (double)at[1], x, y);
            }
        model_close(m);
    }
    free(table);
}

typedef struct received { char *table; size_t bytes; int parts; } received;

static int receive(void *arg, size_t at, const float *part, size_t bytes, pt_error *e)
{
    received *r = arg;
    (void)e;
    assert_int_equal(at, r->bytes);
    memcpy(r->table + at, part, bytes);
    r->bytes += bytes;
    r->parts++;
    return 0;
}

/* The angle in double is exact enough that only the rounding to fp32 is seen, however far the position. */
static void far_positions_keep_their_precision(void **state)
{
    (void)state;
    model *m = rope_model(known[0].rope);
    enum { FAR = 131072 };
    float *table = malloc(sizeof *table * FAR * PAIRS * 2);
    assert_non_null(table);
    model_rope_table(&m->config.rope[0], FAR, 0, FAR, table);
    for (int i = 0; i < PAIRS; i++) {
        long double angle = (long double)(FAR - 1) * powl(500000.0L, -(long double)i / PAIRS);
        const float *at = table + ((int64_t)(FAR - 1) * PAIRS + i) * 2;
        assert_true(fabsl(at[0] - cosl(angle)) < 6.5e-8L && fabsl(at[1] - sinl(angle)) < 6.5e-8L);
    }
    received in_parts = {malloc(sizeof *table * FAR * PAIRS * 2), 0, 0};
    pt_error e = {0};
    assert_int_equal(model_rope_send(&m->config, FAR, receive, &in_parts, &e), 0);
    assert_true(in_parts.parts > 1 && in_parts.bytes == sizeof *table * FAR * PAIRS * 2);
    assert_memory_equal(in_parts.table, table, in_parts.bytes);
    free(in_parts.table);
    free(table);
    model_close(m);
}

static void llama3_takes_the_models_positions_where_the_original_ones_are_not_given(void **state)
{
    (void)state;
#define SCALING "'rope_scaling': {'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 1, 'high_freq_factor': 4"
    model *m = config_open("{'model_type': 'llama', 'max_position_embeddings': 777, " SCALING "}}");
    assert_true(m->config.rope[0].original_positions == 777);
    model_close(m);
    m = config_open("{'model_type': 'llama', 'original_max_position_embeddings': 555, " SCALING "}}");
    assert_true(m->config.rope[0].original_positions == 555);
    model_close(m);
}

/* A config with the scaling that is asked for, beside one that has it. */
static void check_scaling(const char *before, const char *asked, const char *after)
{
    pt_error e = {0};
    char json[1024];
    snprintf(json, sizeof json, "{'model_type': 'llama', 'hidden_size': 16, 'num_attention_heads': 1, %s}", after);
    model *scaled = NULL, *given = config_open(json);
    snprintf(json, sizeof json, "{\"model_type\": \"llama\", \"hidden_size\": 16, \"num_attention_heads\": 1, %s}", before);
    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    json_t *config = json_loads(json, 0, NULL);
    assert_non_null(config);
    if (model_scale_rope(config, "test", asked, &e))
        fail_msg("%s", e.text);
    char *text = json_dumps(config, 0);
    assert_int_equal(model_from_json("test", text, strlen(text), NULL, NULL, &scaled, &e), 0);
    assert_int_equal(scaled->config.max_positions, given->config.max_positions);
    assert_memory_equal(&scaled->config.rope[0], &given->config.rope[0], sizeof given->config.rope[0]);
    free(text);
    json_decref(config);
    model_close(scaled);
    model_close(given);
}

static void scaling_extends_the_positions(void **state)
{
    (void)state;
    check_scaling("'max_position_embeddings': 100", "yarn:4",
                  "'max_position_embeddings': 400, 'rope_scaling': {'type': 'yarn', 'factor': 4, 'original_max_position_embeddings': 100}");
    check_scaling("'max_position_embeddings': 100, 'rope_parameters': {'rope_theta': 5e5, 'rope_type': 'default'}", "linear:2.5",
                  "'max_position_embeddings': 250, 'rope_parameters': {'rope_theta': 5e5, 'rope_type': 'linear', 'factor': 2.5}");
    check_scaling("'max_position_embeddings': 100, 'rope_scaling': null, 'rope_theta': 3e4", "dynamic:3",
                  "'max_position_embeddings': 100, 'rope_theta': 3e4, 'rope_scaling': {'type': 'dynamic', 'factor': 3}");
    check_scaling("'max_position_embeddings': 100", "llama3:8",
                  "'max_position_embeddings': 800, 'rope_scaling': {'type': 'llama3', 'factor': 8, 'low_freq_factor': 1, "
                  "'high_freq_factor': 4, 'original_max_position_embeddings': 100}");
}

static void scaling_is_refused(void **state)
{
    (void)state;
    static const struct { const char *config, *asked; int status; const char *says; } cases[] = {
        {"{\"max_position_embeddings\": 9}", "yarn", PT_USAGE, "factor"},
        {"{\"max_position_embeddings\": 9}", "yarn:1", PT_USAGE, "factor"},
        {"{\"max_position_embeddings\": 9}", "yarn:4x", PT_USAGE, "factor"},
        {"{\"max_position_embeddings\": 9}", "ntk:4", PT_USAGE, "\"ntk:4\""},
        {"{\"max_position_embeddings\": 9}", "longrope:4", PT_USAGE, "list"},
        {"{}", "yarn:4", PT_FAILED, "max_position_embeddings"},
        {"{\"max_position_embeddings\": 9, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}", "yarn:4", PT_FAILED, "linear"},
        {"{\"max_position_embeddings\": 9, \"rope_parameters\": {\"full_attention\": {}}}", "yarn:4", PT_FAILED, "rope_parameters"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pt_error e = {0};
        json_t *config = json_loads(cases[i].config, 0, NULL);
        assert_int_equal(model_scale_rope(config, "test", cases[i].asked, &e), cases[i].status);
        assert_non_null(strstr(e.text, cases[i].says));
        json_decref(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(angles_are_those_of_transformers),
        cmocka_unit_test(far_positions_keep_their_precision),
        cmocka_unit_test(llama3_takes_the_models_positions_where_the_original_ones_are_not_given),
        cmocka_unit_test(scaling_extends_the_positions),
        cmocka_unit_test(scaling_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
