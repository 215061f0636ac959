#include "../../fuzz/fuzz_prequantized.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

static void damaged_descriptions_are_refused_or_whole(void **state)
{
    (void)state;
    static const char nested[] = "\1{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [10, 13], "
                                 "\"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": 0.2}";
    static const char plain[] = "\2{\"quant_type\": \"fp4\", \"blocksize\": 64, \"dtype\": \"float16\", \"shape\": [130, 1]}";
    static const char *const seeds[] = {nested, plain};
    static const size_t lengths[] = {sizeof nested - 1, sizeof plain - 1};
    const uint64_t seed = test_seed();
    for (int i = 0; i < 2; i++)
        assert_int_equal(LLVMFuzzerTestOneInput((const uint8_t *)seeds[i], lengths[i]), 0);
    mutate_run(seeds, lengths, 2, seed, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_descriptions_are_refused_or_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
