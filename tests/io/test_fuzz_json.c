#include "../../fuzz/fuzz_json.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

static void damaged_configs_are_refused_or_readable(void **state)
{
    (void)state;
    static const char llama[] = "{\"model_type\": \"llama\", \"hidden_size\": 64, \"rms_norm_eps\": 1e-05, \"a\": null, "
        "\"tie_word_embeddings\": true, \"rope_scaling\": {\"a\": 8.0, \"rope_scaling\": {\"a\": [1, 2]}}, "
        "\"layer_types\": [\"full_attention\", \"\\u00e9\\n\"]}";
    static const char gpt2[] = "{\"model_type\": \"gpt2\", \"n_layer\": 12, \"n_layer\": 1e2, \"\": -0.5}";
    static const char *const seeds[] = {llama, gpt2};
    static const size_t lengths[] = {sizeof llama - 1, sizeof gpt2 - 1};
    uint64_t seed = test_seed();
    mutate_run(seeds, lengths, 2, seed, 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_configs_are_refused_or_readable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
