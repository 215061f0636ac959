#include "../../fuzz/fuzz_adapter.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

static void damaged_configs_are_refused_or_whole(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16, \"target_modules\": [\"q_proj\"], \"use_dora\": true, \"bias\": \"none\"}",
        "{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1.5, \"use_rslora\": true, \"lora_dropout\": 0.05, \"init_lora_weights\": "
        "true,"
        " \"rank_pattern\": {\"layers\\\\.1\\\\.self_attn\\\\.q_proj\": 3, \"q_proj\": 7}, \"alpha_pattern\": {\"q_proj\": 2}}",
        "{\"peft_type\": \"LORA\", \"target_modules\": [\"q_proj\", \"o_proj\"], \"exclude_modules\": \"model.layers.1.*\", "
        "\"layers_to_transform\": [0, 1], \"layers_pattern\": [\"h\", \"layers\"]}",
        "{\"peft_type\": \"LORA\", \"target_modules\": \".*(q|v)_proj\", \"alpha_pattern\": {\"none\": 2}, \"task_type\": \"CAUSAL_LM\"}",
        "{\"peft_type\": \"LORA\", \"modules_to_save\": [], \"layer_replication\": null, \"init_lora_weights\": \"gaussian\"}",
    };
    enum { SEEDS = sizeof seeds / sizeof seeds[0] };
    const uint64_t seed = test_seed();
    size_t lengths[SEEDS];
    for (int i = 0; i < SEEDS; i++) {
        lengths[i] = strlen(seeds[i]);
        assert_int_equal(LLVMFuzzerTestOneInput((const uint8_t *)seeds[i], lengths[i]), 0);
    }
    mutate_run(seeds, lengths, SEEDS, seed, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_configs_are_refused_or_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
