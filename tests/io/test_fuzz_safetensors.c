#include "../../fuzz/fuzz_safetensors.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

#define HEADER "{\"__metadata__\":{\"format\":\"pt\"}," \
    "\"a\":{\"dtype\":\"F32\",\"shape\":[1,2],\"data_offsets\":[0,8]}," \
    "\"b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[8,16]}}"

static void damaged_files_are_refused_or_readable(void **state)
{
    (void)state;
    static const char whole[] = "\0\x8e\0\0\0\0\0\0\0" HEADER "0123456789abcdef";
    static const char header[] = "\1" HEADER;
    static const char index[] = "\2{\"metadata\":{\"total_size\":4},\"weight_map\":{\"a\":\"s\"}}";
    static const char *const seeds[] = {whole, header, index};
    static const size_t lengths[] = {sizeof whole - 1, sizeof header - 1, sizeof index - 1};
    assert_int_equal(sizeof HEADER - 1, 0x8e); /* the seeds themselves are good */
    for (int i = 0; i < 3; i++)
        LLVMFuzzerTestOneInput((const uint8_t *)seeds[i], lengths[i]);
    uint64_t seed = test_seed();
    mutate_run(seeds, lengths, 3, seed, 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_files_are_refused_or_readable)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
