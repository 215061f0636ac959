#include "../../fuzz/fuzz_labels.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

static void damaged_labels_and_tokens_are_refused_or_whole(void **state)
{
    (void)state;
    static const char *const seeds[] = {
        "0{\"id2label\": {\"0\": \"bad\", \"1\": \"fair\", \"2\": \"good\"}, \"label2id\": {\"bad\": 0, \"fair\": 1, \"good\": 2}}",
        "0{\"architectures\": [\"LlamaForSequenceClassification\"], \"id2label\": {\"1\": \"\", \"0\": \"\\u00e9\"}, \"num_labels\": 2}",
        "1{\"text\": \"a\", \"label\": \"bad\"}\n{\"text\": \"b\", \"label\": \"good\"}\n{\"label\": \"bad\", \"text\": \"c\"}\n",
        "1{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 3}\n{\"text\": \"\", \"label\": true}\n",
        "2<|tool|>\n<think>\r\n\xc3\xa9\xc3\xa9\nab",
        "2\xef\xbb\xbf<a>\n<a >\n <a>\n",
        "31{\"text\": \"abcaa\", \"label\": \"fair\"}",
        "32{\"text\": \"aaa\", \"label\": 2}",
        "33{\"text\": \"ab\\u0000\", \"label\": null}",
    };
    enum { SEEDS = sizeof seeds / sizeof seeds[0] };
    const uint64_t seed = test_seed();
    size_t lengths[SEEDS];
    for (int i = 0; i < SEEDS; i++) {
        lengths[i] = strlen(seeds[i]);
        assert_int_equal(LLVMFuzzerTestOneInput((const uint8_t *)seeds[i], lengths[i]), 0);
    }
    mutate_run(seeds, lengths, SEEDS, seed, 2000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(damaged_labels_and_tokens_are_refused_or_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
