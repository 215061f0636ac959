/* mutate.h - runs a fuzz target on random mutations of good inputs, for a short while. */
#ifndef TEST_MUTATE_H
#define TEST_MUTATE_H

#include "base/rng.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static inline void mutate_run(const char *const *seeds, const size_t *lengths, int n_seeds, uint64_t seed, int rounds)
{
    static const char *const words[] = {"{", "}", "[", "]", "\"", ":", ",", "-1", "0", "1e999", "null", "true", "NaN",
                                        "18446744073709551615", "9223372036854775807", "\\u0000", "\xff", "F32"};
    enum { WORDS = sizeof words / sizeof words[0] };
    for (int round = 0; round < rounds; round++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 0, (uint64_t)round, w);
        int which = (int)(w[0] % (uint32_t)n_seeds), edits = 1 + (int)(w[1] % 4);
        size_t n = lengths[which];
        uint8_t *data = malloc(n + (size_t)edits * 32); /* exact, so that ASan sees a read behind it */
        memcpy(data, seeds[which], n);
        for (int k = 0; k < edits && n; k++) {
            rng_words(seed, RNG_TEST, (uint32_t)k + 1, (uint64_t)round, w);
            size_t at = w[1] % n, length = strlen(words[w[2] % WORDS]), run = 1 + w[2] % 16;
            if (run > n - at)
                run = n - at;
            switch (w[0] % 5) {
            case 0: data[at] ^= (uint8_t)(1u << (w[2] & 7)); break;
            case 1: data[at] = (uint8_t)w[2]; break;
            case 2: n = at; break;
            case 3: /* remove a run */
                memmove(data + at, data + at + run, n - at - run);
                n -= run;
                break;
            default: /* insert a word */
                memmove(data + at + length, data + at, n - at);
                memcpy(data + at, words[w[2] % WORDS], length);
                n += length;
            }
        }
        uint8_t *exact = realloc(data, n ? n : 1);
        LLVMFuzzerTestOneInput(exact, n);
        free(exact);
    }
}

#endif
