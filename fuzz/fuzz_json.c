/* fuzz_json.c - any bytes as a config file: parsed or refused with a sentence, and read by every
 * typed getter without harm. */
#include "base/json.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void getters_try(const json_source *s, int depth)
{
    static const char *const keys[] = {"model_type", "n_layer", "hidden_size", "rms_norm_eps", "tie_word_embeddings",
                                       "rope_scaling", "layer_types", "a", ""};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        pt_error e = {0};
        int64_t integer = 5;
        double real = 0.5;
        bool flag;
        const char *text;
        json_t *list;
        json_source child = {0};
        int status = json_get_int(s, keys[i], JSON_OPTIONAL, 1, 1000, &integer, &e);
        assert(status ? e.text[0] != 0 && integer == 5 : integer >= 1 && integer <= 1000);
        status = json_get_double(s, keys[i], JSON_OPTIONAL, 0, 1, &real, &e);
        assert(real >= 0 && real <= 1 && (!status || real == 0.5));
        json_get_bool(s, keys[i], JSON_REQUIRED, &flag, &e);
        if (!json_get_string(s, keys[i], JSON_REQUIRED, &text, &e))
            assert(strlen(text) < (size_t)JSON_FILE_MAX_BYTES);
        json_get_array(s, keys[i], JSON_REQUIRED, &list, &e);
        if (!json_get_object(s, keys[i], JSON_REQUIRED, &child, &e) && depth < 4)
            getters_try(&child, depth + 1);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    pt_error e = {0};
    json_source s = {.where = "fuzz/config.json"};
    if (json_text_load(s.where, (const char *)data, n, n & 1 ? JSON_REJECT_DUPLICATES : 0, &s.object, &e)) {
        assert(e.code == PT_FAILED && strstr(e.text, "fuzz/config.json"));
        return 0;
    }
    if (json_is_object(s.object))
        getters_try(&s, 0);
    json_source_close(&s);
    return 0;
}
