/* fuzz_profile.c - any bytes as profile.json: refused with a sentence that names the file, or costs that make sense, written and
 * read back the same. */
#include "profile/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char config[] =
    "{\"model_type\": \"mistral\", \"vocab_size\": 300, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"num_hidden_layers\": 3, \"intermediate_size\": 48, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"sliding_window\": 8, "
    "\"bos_token_id\": 0, \"eos_token_id\": 0}";

static void write_and_read(const profile_request *r, const profile_result *p)
{
    pt_error e = {0};
    profile_result back;
    char *text = profile_to_json(r, p);
    assert(text);
    if (profile_from_json("fuzz/profile.json", text, strlen(text), r, &back, &e))
        abort();
    char *again = profile_to_json(r, &back);
    assert(again && !strcmp(text, again));
    free(text);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static model *m;
    static step_shape s;
    static device d = {.info = {.name = "fuzz", .arithmetic = "fuzz", .threads = 2}};
    pt_error e = {0};
    if (!m) {
        if (model_from_json("fuzz/config.json", config, strlen(config), NULL, NULL, &m, &e))
            abort();
        step_shape_init(&s, m, PT_F32, 4, 8);
    }
    const profile_request r = {.device = &d, .host = &d, .model = m, .shape = &s, .host_tier = true, .transfers = true};
    profile_result p;
    if (profile_from_json("fuzz/profile.json", (const char *)data, n, &r, &p, &e)) {
        assert(e.code == PT_FAILED && strstr(e.text, "fuzz/profile.json"));
        return 0;
    }
    pt_error invalid;
    assert(!costs_validate(&p.costs, m, "fuzz", &invalid));
    write_and_read(&r, &p);
    return 0;
}
