/* The fuzz targets of the data files, fed with mutations of good files: a short run of what
 * libFuzzer does at length. They abort on a broken promise, and sanitizers see the rest. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"

#define LLVMFuzzerTestOneInput fuzz_jsonl
#include "../../fuzz/fuzz_jsonl.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_ids
#include "../../fuzz/fuzz_ids.c"
#include "seed.h"
#undef LLVMFuzzerTestOneInput


enum { RUNS = 20000, SIZE = 2048 };

static uint64_t seed, drawn;

static uint32_t draw(uint32_t below)
{
    return (uint32_t)(rng_uniform(seed, RNG_TEST, 9, drawn++) * below);
}

/* Flips, overwrites, deletes, repeats or cuts, one to six times. */
static size_t mutate(uint8_t *p, size_t n)
{
    static const uint8_t telling[] = {0, 0xff, 0x7f, 0x80, '{', '}', '[', ']', '"', '\\', ',', '(', ')', '\n', '9', '\''};
    for (uint32_t k = 1 + draw(6); k > 0 && n > 2; k--) {
        size_t at = draw((uint32_t)n), len = 1 + draw(8);
        if (len > n - at)
            len = n - at;
        switch (draw(5)) {
        case 0: p[at] ^= (uint8_t)(1 << draw(8)); break;
        case 1: p[at] = telling[draw(sizeof telling)]; break;
        case 2: memmove(p + at, p + at + len, n - at - len); n -= len; break;
        case 3:
            if (n + len <= SIZE) {
                memmove(p + at + len, p + at, n - at);
                n += len;
            }
            break;
        default: n = draw(8) ? n : at; break;
        }
    }
    return n;
}

static void run(int (*target)(const uint8_t *, size_t), const void *good, size_t n)
{
    uint8_t input[SIZE];
    for (int i = 0; i < RUNS; i++) {
        memcpy(input, good, n);
        size_t mutated = mutate(input, n);
        target(input, mutated);
    }
}

static void mutated_jsonl_is_read_or_refused(void **state)
{
    static const char good[] = "\0{\"text\": \"one \\u00e9\\n\"}\n\n{\"n\": [1, {\"x\": -2.5e3}], \"text\": \"two\"}\r\n{\"text\":\"\"}";
    run(fuzz_jsonl, good, sizeof good - 1);
}

static void mutated_json_is_read_or_refused(void **state)
{
    static const char good[] = "\1[{\"text\": \"one \\u00e9]\"},\n {\"n\": [1, {\"x\": \"}\"}], \"text\": \"two\"},{\"text\":\"\"} ]\n";
    run(fuzz_jsonl, good, sizeof good - 1);
}

static void mutated_npy_is_read_or_refused(void **state)
{
    static const char good[] = "\0\x93NUMPY\1\0\x3d\0{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }    "
                               "\n\1\0\2\0\3\0\4\0\5\0\6\0";
    run(fuzz_ids, good, sizeof good - 1);
}

static void mutated_token_files_are_read_or_refused(void **state)
{
    uint8_t good[1 + 1024 + 12] = {1};
    const int32_t header[] = {20240520, 1, 6};
    memcpy(good + 1, header, sizeof header);
    run(fuzz_ids, good, sizeof good);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mutated_jsonl_is_read_or_refused),
        cmocka_unit_test(mutated_json_is_read_or_refused),
        cmocka_unit_test(mutated_npy_is_read_or_refused),
        cmocka_unit_test(mutated_token_files_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
