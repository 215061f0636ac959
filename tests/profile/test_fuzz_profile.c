#include "../../fuzz/fuzz_profile.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "seed.h"

static uint64_t seed;

/* Some changes to a good profile: a number, a sign, a bracket, a word in the place of some bytes. */
static void changed_profiles_are_refused_or_valid(void **state)
{
    (void)state;
    static const char *const words[] = {"-", "0", "9", "1e999", "-1", "null", "[]", "{}", "[[1, 2]]", ",", "]", "}", "\"", "true", "",
                                        "NaN", "e308", "e30", "."};
    enum { WORDS = sizeof words / sizeof *words };
    for (uint64_t round = 0; round < 20000; round++) {
        uint8_t data[128] = {128};
        size_t n = 1;
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 0, round, w);
        for (uint32_t edits = 1 + w[0] % 4; edits; edits--) {
            rng_words(seed, RNG_TEST, edits, round, w);
            const char *word = words[w[1] % WORDS];
            data[n++] = (uint8_t)(w[0] >> 8);
            data[n++] = (uint8_t)w[0];
            data[n++] = (uint8_t)(w[2] % 6);
            data[n++] = (uint8_t)strlen(word);
            memcpy(data + n, word, strlen(word));
            n += strlen(word);
        }
        LLVMFuzzerTestOneInput(data, n);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(changed_profiles_are_refused_or_valid)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
