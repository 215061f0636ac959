/* fuzz_profile.c - any bytes as profile.json, or a good one with any changes: refused with a sentence that names the file, or costs
 * that make sense, written and read back the same.
 *
 * A first byte below 128: the rest is the file. Else the rest are changes to a good one, one after the other: where (2 bytes), how
 * many bytes go, how many of the following come in their place. */
#include "profile/profile.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char config[] =
    "{\"model_type\": \"mistral\", \"vocab_size\": 300, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"num_hidden_layers\": 3, \"intermediate_size\": 48, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"sliding_window\": "
    "8, "
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

static const cost_curve points = {3, {1024, 4096, 65536}, {10, 20, 400.5}};

static char *good_profile(const profile_request *r)
{
    profile_result p = {.measured_at = 1763719500, .layer = {4, 1000}, .update = {16384, 12000}};
    costs *c = &p.costs;
    costs_init(c);
    for (int level = 0; level < SAVE_LEVELS; level++) {
        c->layer[0].forward_ns[level] = 100 + level;
        c->layer[0].backward_ns[level] = 300 - level;
    }
    c->embed_ns = c->head_ns = c->head_eval_ns = c->task_ns = c->step_ns = 50;
    c->finish = c->embed_finish = c->update_device = c->update_host = c->to_device = c->from_device = c->read = c->write = points;
    c->quota = (cost_quota){1e8, 2, {2, 2, 1, 1, 2, 0.75, 0.5}};
    return profile_to_json(r, &p);
}

/* The good text with the changes that `data` asks for; free() it. */
static char *change(const char *text, const uint8_t *data, size_t n, size_t *out_n)
{
    size_t length = strlen(text);
    char *out = malloc(length + n + 1);
    assert(out);
    memcpy(out, text, length + 1);
    while (n >= 4) {
        size_t at = ((size_t)data[0] << 8 | data[1]) % (length + 1), gone = data[2], come = data[3];
        data += 4;
        n -= 4;
        gone = gone > length - at ? length - at : gone;
        come = come > n ? n : come;
        memmove(out + at + come, out + at + gone, length - at - gone);
        memcpy(out + at, data, come);
        length += come - gone;
        data += come;
        n -= come;
    }
    *out_n = length;
    return out;
}

static void try_text(const profile_request *r, const char *text, size_t n)
{
    pt_error e = {0};
    profile_result p;
    if (profile_from_json("fuzz/profile.json", text, n, r, &p, &e)) {
        assert(e.code == PT_FAILED && strstr(e.text, "fuzz/profile.json"));
        return;
    }
    assert(!costs_validate(&p.costs, r->model, "fuzz", &e));
    write_and_read(r, &p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static model *m;
    static step_shape s;
    static device d = {.info = {.name = "fuzz", .arithmetic = "fuzz", .threads = 2}};
    static char *good;
    pt_error e = {0};
    if (!m) {
        if (model_from_json("fuzz/config.json", config, strlen(config), NULL, NULL, &m, &e))
            abort();
        step_shape_init(&s, m, PT_F32, 4, 8);
    }
    const profile_request r = {.device = &d, .host = &d, .model = m, .shape = &s, .host_tier = true, .transfers = true};
    if (!good) {
        good = good_profile(&r);
        assert(good);
        profile_result p;
        if (profile_from_json("good", good, strlen(good), &r, &p, &e))
            abort();
    }
    if (n && data[0] >= 128) {
        char *text = change(good, data + 1, n - 1, &n);
        try_text(&r, text, n);
        free(text);
    } else if (n) {
        try_text(&r, (const char *)data + 1, n - 1);
    }
    return 0;
}
