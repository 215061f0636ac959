#include "../../fuzz/fuzz_tokenizer.c"

#include "io/mutate.h"
#include "text/support.h"
#include "seed.h"

static uint64_t seed;

/* The fixtures as files, shortened to a small model, each with a text behind. */
static void damaged_files_are_refused_or_encode(void **state)
{
    static const char *const names[] = {"gpt2", "llama3", "qwen2", "digits", "llama2", "over_spaces", "metaspace"};
    enum { N = sizeof names / sizeof *names };
    char *seeds[N];
    size_t lengths[N];
    for (int i = 0; i < N; i++) {
        json_t *root = fixture_open(names[i]), *file = json_object_get(root, "tokenizer");
        json_t *model = json_object_get(file, "model"), *small = json_object(), *value;
        const char *token;
        json_array_clear(json_object_get(model, "merges"));
        json_object_foreach(json_object_get(model, "vocab"), token, value)
            if (json_integer_value(value) < 20)
                json_object_set(small, token, value);
        json_object_set_new(model, "vocab", small);
        char *text = json_dumps(file, JSON_COMPACT);
        lengths[i] = strlen(text) + 40;
        seeds[i] = calloc(1, lengths[i]);
        memcpy(seeds[i], text, strlen(text));
        memcpy(seeds[i] + strlen(text) + 1, "ba <s> ko<|end|> 12 [LR] \xe6\x97\xa5\xff  tu", 33);
        free(text);
        json_decref(root);
    }
    mutate_run((const char *const *)seeds, lengths, N, seed, 4000);
    for (int i = 0; i < N; i++)
        free(seeds[i]);
}

static void any_text_keeps_its_promises(void **state)
{
    uint64_t counter = 0;
    for (int i = 0; i < 8000; i++) {
        char text[512];
        text[0] = (char)(i % FIXED);
        size_t n = 1 + random_text(seed, &counter, text + 1, sizeof text - 1, i & 4);
        LLVMFuzzerTestOneInput((const uint8_t *)text, n);
    }
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damaged_files_are_refused_or_encode),
        cmocka_unit_test(any_text_keeps_its_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
