#include "model/support.h"

#include <math.h>

/* inv_freq in float32 of Transformers 5.23, heads of 16:
 *   LlamaRotaryEmbedding(LlamaConfig(hidden_size=16, num_attention_heads=1, rope_parameters=P)).inv_freq
 */
static const struct { const char *rope; double frequency[8]; } known[] = {
    {"{'rope_type': 'default', 'rope_theta': 500000.0}",
     {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.00141421345, 0.000274248188, 5.31829573e-05, 1.03133852e-05}},
    {"{'rope_type': 'linear', 'rope_theta': 10000.0, 'factor': 4.0}",
     {0.25, 0.079056941, 0.0250000004, 0.00790569466, 0.00249999994, 0.000790569466, 0.000250000012, 7.90569466e-05}},
    {"{'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 32.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,"
     " 'original_max_position_embeddings': 8192}",
     {1.0, 0.193922758, 0.0376060307, 0.00729266508, 0.000429556705, 8.57025589e-06, 1.66196742e-06, 3.22293289e-07}},
    {"{'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0,"
     " 'original_max_position_embeddings': 2048}",
     {1.0, 0.193922758, 0.0376060307, 0.00384058291, 0.000176776681, 3.42810235e-05, 6.64786967e-06, 1.28917316e-06}},
};
enum { KNOWN = sizeof known / sizeof known[0], POSITIONS = 3000, PAIRS = 8 };

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
        model_rope_table(&m->config.rope[0], POSITIONS, 0, POSITIONS, table);
        for (int p = 0; p < POSITIONS; p++)
            for (int i = 0; i < PAIRS; i++) {
                double angle = p * known[k].frequency[i], bound = 5e-7 * angle + 7e-8; /* their float32, our rounding */
                const float *at = table + (p * PAIRS + i) * 2;
                if (fabs(at[0] - cos(angle)) > bound || fabs(at[1] - sin(angle)) > bound)
                    fail_msg("rope %d, position %d, pair %d: %.9g %.9g, expected %.9g %.9g", k, p, i, (double)at[0],
                             (double)at[1], cos(angle), sin(angle));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(angles_are_those_of_transformers),
        cmocka_unit_test(far_positions_keep_their_precision),
        cmocka_unit_test(llama3_takes_the_models_positions_where_the_original_ones_are_not_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
