/* Token by token with cached keys and values is the same as the whole sequence at once: against the losses that
 * PyTorch computes for the fixtures, and against itself, however the tokens are cut into parts. */
#include "base/rng.h"
#include "infer/inference.h"
#include "model/adapter.h"
#include "model/storage.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "test_device.h"
#include "train/fixture.h"
#include "seed.h"

static double nll_of(const float *logits, int64_t n, int32_t target)
{
    double best = logits[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        best = logits[i] > best ? logits[i] : best;
    for (int64_t i = 0; i < n; i++)
        sum += exp(logits[i] - best);
    return log(sum) + best - logits[target];
}

static inference *open_loaded(const model *m, device *d, pt_dtype type, const safetensors *st, uint64_t seed)
{
    pt_error e = {0};
    inference *x;
    must(inference_open(m, d, type, 2, 0, NULL, &x, &e), &e);
    must(inference_load(x, st, NULL, seed, NULL, NULL, &e), &e);
    return x;
}

static device *host; /* of the device that is open */

static device *open_device(void)
{
    pt_error e = {0};
    device *d;
    const char *name = getenv("PROTRAIN_TEST_DEVICE");
    must(test_device_named(name ? name : "shielded", 2, &d, &host, &e), &e);
    return d;
}

/* The logits of a window at once are those of its tokens, one at a time. */
static void check_all_logits(const fixture *f, inference *x)
{
    pt_error e = {0};
    const int64_t len = (int64_t)fixture_setting(f, "seq_len"), vocab = f->model->config.vocab;
    const float *logits;
    float *all = malloc((size_t)(len * vocab) * sizeof *all);
    int32_t *ids = malloc((size_t)len * sizeof *ids);
    must(safetensors_read(f->reference, safetensors_find(f->reference, "inputs"), 0, (uint64_t)len * sizeof *ids, ids, &e), &e);
    must(inference_begin(x, len, (cache_plan){0}, NULL, &e), &e);
    must(inference_feed_all(x, ids, len, all, &e), &e);
    must(inference_begin(x, len, (cache_plan){0}, NULL, &e), &e);
    for (int64_t i = 0; i < len; i++) {
        must(inference_feed(x, ids + i, 1, &logits, &e), &e);
        for (int64_t v = 0; v < vocab; v++)
            if (!(fabsf(all[i * vocab + v] - logits[v]) <= 1e-4f * (1 + fabsf(logits[v]))))
                fail_msg("token %d, logit %d: %.9g and %.9g", (int)i, (int)v, all[i * vocab + v], logits[v]);
    }
    free(ids);
    free(all);
}

/* Mean loss of the reference's first step, its windows fed one token at a time. */
static double first_loss(const fixture *f, inference *x)
{
    pt_error e = {0};
    int64_t batch = (int64_t)fixture_setting(f, "batch_size"), len = (int64_t)fixture_setting(f, "seq_len"), n = batch * len, counted = 0;
    int32_t *ids = malloc((size_t)n * sizeof *ids), *targets = malloc((size_t)n * sizeof *targets);
    const float *logits;
    double sum = 0;
    must(safetensors_read(f->reference, safetensors_find(f->reference, "inputs"), 0, (uint64_t)n * sizeof *ids, ids, &e), &e);
    must(safetensors_read(f->reference, safetensors_find(f->reference, "targets"), 0, (uint64_t)n * sizeof *ids, targets, &e), &e);
    for (int64_t i = 0; i < n; i++) {
        if (i % len == 0)
            must(inference_begin(x, len, (cache_plan){0}, NULL, &e), &e);
        must(inference_feed(x, ids + i, 1, &logits, &e), &e);
        if (targets[i] < 0)
            continue;
        sum += nll_of(logits, f->model->config.vocab, targets[i]);
        counted++;
    }
    free(ids);
    free(targets);
    return sum / (double)counted;
}

static void each_fixture(pt_dtype type, double tolerance)
{
    char path[600];
    snprintf(path, sizeof path, "%s/models", fixtures_root());
    DIR *list = opendir(path);
    assert_non_null(list);
    device *d = open_device();
    int seen = 0;
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.')
            continue;
        fixture f;
        fixture_open(&f, "models", entry->d_name);
        inference *x = open_loaded(f.model, d, type, f.weights, 0);
        double expected = fixture_of_step(&f, "loss_fp64", 0), got = first_loss(&f, x);
        if (!(fabs(got - expected) <= tolerance * expected))
            fail_msg("%s: loss %.9g token by token, %.9g by PyTorch in float64", f.name, got, expected);
        if (type == PT_F32)
            check_all_logits(&f, x);
        inference_close(x);
        fixture_close(&f);
        seen++;
    }
    closedir(list);
    device_close(d, host);
    assert_true(seen > 0);
}

/* With an adapter of adapters/, beside PEFT. */
static void check_adapter(device *d, const char *name)
{
    char folder[600], path[700];
    fixture f;
    json_t *json;
    safetensors *adapter;
    inference *x;
    pt_error e = {0};
    snprintf(folder, sizeof folder, PT_FIXTURES "/adapters/%s", name);
    snprintf(path, sizeof path, "%s/reference.json", folder);
    must(json_file_load(path, 0, &json, &e), &e);
    fixture_open(&f, "models", json_string_value(json_object_get(json, "model")));
    json_decref(f.json);
    safetensors_close(f.reference);
    f.json = json;
    snprintf(path, sizeof path, "%s/reference.safetensors", folder);
    must(safetensors_open(path, &f.reference, &e), &e);
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, folder);
    must(safetensors_open(path, &adapter, &e), &e);
    must(model_adapt_like(f.model, folder, NULL, NULL, &e), &e);
    must(inference_open(f.model, d, PT_F32, 2, 0, NULL, &x, &e), &e);
    must(inference_load(x, f.weights, adapter, 0, NULL, NULL, &e), &e);
    const double expected = fixture_of_step(&f, "loss_fp64", 0), got = first_loss(&f, x);
    if (!(fabs(got - expected) <= 1e-5 * expected))
        fail_msg("%s: loss %.9g token by token, %.9g by PEFT in float64", name, got, expected);
    inference_close(x);
    safetensors_close(adapter);
    fixture_close(&f);
}

static void losses_with_adapters_are_pefts(void **state)
{
    static const char *const names[] = {"llama", "llama_dora", "llama_patterns", "gpt2", "gpt_neox_dora", "phi3"};
    device *d = open_device();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_adapter(d, names[i]);
    device_close(d, host);
}

static void losses_token_by_token_are_pytorchs(void **state) { each_fixture(PT_F32, 1e-5); }

static void losses_in_bf16_are_near_them(void **state) { each_fixture(PT_BF16, 2e-2); }

/* ---- however the tokens are cut ---- */

static const char *const configs[] = {
    "{\"model_type\": \"llama\", \"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 700}",
    "{\"model_type\": \"mistral\", \"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 1, \"max_position_embeddings\": 700, \"sliding_window\": 100}",
    "{\"model_type\": \"qwen3\", \"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 16, \"max_position_embeddings\": 700}",
    "{\"model_type\": \"gpt2\", \"vocab_size\": 61, \"n_embd\": 40, \"n_layer\": 2, \"n_head\": 1, \"n_positions\": 700}"};

/* Logits behind each of n tokens, fed in parts of at most `most`; only those at the ends of parts are there. */
static void feed_in_parts(inference *x, const int32_t *ids, int64_t n, int64_t most, uint64_t seed, float *all, bool *there, int64_t vocab)
{
    pt_error e = {0};
    const float *logits;
    uint32_t w[4];
    must(inference_begin(x, n, (cache_plan){0}, NULL, &e), &e);
    for (int64_t at = 0; at < n;) {
        rng_words(seed, RNG_TEST, 7, (uint64_t)at, w);
        int64_t part = 1 + w[0] % most;
        part = part < n - at ? part : n - at;
        must(inference_feed(x, ids + at, part, &logits, &e), &e);
        at += part;
        there[at - 1] = true;
        memcpy(all + (at - 1) * vocab, logits, (size_t)vocab * sizeof *all);
    }
}

static void compare_parts(inference *x, const model *m, uint64_t seed)
{
    enum { TOKENS = 640 };
    int64_t vocab = m->config.vocab;
    int32_t ids[TOKENS];
    bool single[TOKENS] = {0}, parts[TOKENS] = {0};
    float *a = malloc((size_t)(TOKENS * vocab) * sizeof *a), *b = malloc((size_t)(TOKENS * vocab) * sizeof *b);
    for (int i = 0; i < TOKENS; i++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 1, (uint64_t)i, w);
        ids[i] = (int32_t)(w[0] % (uint32_t)vocab);
    }
    feed_in_parts(x, ids, TOKENS, 1, seed, a, single, vocab);
    feed_in_parts(x, ids, TOKENS, 600, seed, b, parts, vocab);
    double largest = 0, apart = 0;
    for (int64_t i = 0; i < TOKENS * vocab; i++)
        if (parts[i / vocab]) {
            largest = fmax(largest, fabs((double)a[i]));
            apart = fmax(apart, fabs((double)a[i] - (double)b[i]));
        }
    if (!(apart <= 1e-5 * largest))
        fail_msg("%s, seed %llu: logits up to %g differ by %g", m->config.model_type, (unsigned long long)seed, largest, apart);
    free(a);
    free(b);
}

static void parts_of_any_size_give_the_same_logits(void **state)
{
    uint64_t seed = test_seed();
    device *d = open_device();
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        pt_error e = {0};
        model *m;
        must(model_from_json("test", configs[i], strlen(configs[i]), NULL, NULL, &m, &e), &e);
        inference *x = open_loaded(m, d, PT_F32, NULL, seed);
        for (uint64_t k = 0; k < 3; k++)
            compare_parts(x, m, seed + k);
        inference_close(x);
        model_close(m);
    }
    device_close(d, host);
}

/* ---- caches in host memory ---- */

static const char *const windows[] = {
    "{\"model_type\": \"gemma3_text\", \"vocab_size\": 61, \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 6,"
    " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"head_dim\": 8, \"max_position_embeddings\": 1500, \"sliding_window\": 70,"
    " \"sliding_window_pattern\": 3, \"query_pre_attn_scalar\": 8}",
    "{\"model_type\": \"llama\", \"vocab_size\": 61, \"hidden_size\": 48, \"intermediate_size\": 48, \"num_hidden_layers\": 3,"
    " \"num_attention_heads\": 12, \"num_key_value_heads\": 6, \"max_position_embeddings\": 1500}"};

/* Feeds ids in parts, then the last ones again behind the first `kept`; `all` has the logits at the ends of parts. */
static void feed_twice(inference *x, cache_plan cache, const int32_t *ids, int64_t n, int64_t kept, uint64_t draw, int64_t vocab,
                       float *all)
{
    pt_error e = {0};
    const float *logits;
    uint32_t w[4];
    for (int again = 0; again < 2; again++) {
        int64_t at = again ? kept : 0;
        must(inference_begin(x, n, cache, again ? &at : NULL, &e), &e);
        while (at < n) {
            rng_words(draw, RNG_TEST, 7, (uint64_t)at, w);
            const int64_t part = w[1] % 4 ? 1 + w[0] % 3 : 1 + w[0] % 500, rows = part < n - at ? part : n - at;
            must(inference_feed(x, ids + at, rows, &logits, &e), &e);
            at += rows;
            memcpy(all + (again * n + at - 1) * vocab, logits, (size_t)vocab * sizeof *all);
        }
    }
}

/* The layers and blocks of `cache` are drawn. */
static void check_away(const model *m, device *d, pt_dtype type, const safetensors *st, uint64_t draw)
{
    const int64_t n = m->config.max_positions < 1300 ? m->config.max_positions : 1300, vocab = m->config.vocab;
    const size_t bytes = (size_t)(2 * n * vocab) * sizeof(float);
    float *here = calloc(1, bytes), *away = calloc(1, bytes);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    uint32_t w[4];
    rng_words(draw, RNG_TEST, 8, 0, w);
    const cache_plan plan = {1 + (int)(w[0] % (uint32_t)inference_cache_layers(m)),
                             (int)(w[1] % (2 + (uint32_t)inference_cache_blocks(m)))};
    const int64_t kept = w[2] % n;
    for (int64_t i = 0; i < n; i++) {
        rng_words(draw, RNG_TEST, 9, (uint64_t)i, w);
        ids[i] = (int32_t)(w[0] % (uint32_t)vocab);
    }
    inference *x = open_loaded(m, d, type, st, draw), *y = open_loaded(m, d, type, st, draw);
    feed_twice(x, (cache_plan){0}, ids, n, kept, draw, vocab, here);
    feed_twice(y, plan, ids, n, kept, draw, vocab, away);
    assert_int_equal(inference_cache(y).away, plan.away);
    for (int64_t i = 0; i < 2 * n * vocab; i++)
        if (memcmp(&here[i], &away[i], sizeof *here))
            fail_msg("%s, seed %llu, %d layers in %d blocks, %lld kept: token %lld has the logit %.9g instead of %.9g",
                     m->config.model_type, (unsigned long long)draw, plan.away, plan.blocks, (long long)kept, (long long)(i / vocab),
                     away[i], here[i]);
    inference_close(x);
    inference_close(y);
    free(here);
    free(away);
    free(ids);
}

static void a_cache_in_host_memory_gives_the_same_bits(void **state)
{
    (void)state;
    const uint64_t seed = test_seed();
    const size_t n = sizeof configs / sizeof *configs, all = n + sizeof windows / sizeof *windows;
    device *d = open_device();
    for (size_t i = 0; i < 2 * all; i++) {
        pt_error e = {0};
        model *m;
        const char *json = i / 2 < n ? configs[i / 2] : windows[i / 2 - n];
        must(model_from_json("test", json, strlen(json), NULL, NULL, &m, &e), &e);
        check_away(m, d, i % 2 ? PT_BF16 : PT_F32, NULL, seed + i);
        model_close(m);
    }
    device_close(d, host);
}

/* Of every architecture. */
static void caches_of_all_architectures_may_be_in_host_memory(void **state)
{
    (void)state;
    const uint64_t seed = test_seed();
    char path[600];
    int seen = 0;
    snprintf(path, sizeof path, "%s/models", fixtures_root());
    DIR *list = opendir(path);
    assert_non_null(list);
    device *d = open_device();
    for (struct dirent *entry; (entry = readdir(list));) {
        if (entry->d_name[0] == '.')
            continue;
        fixture f;
        fixture_open(&f, "models", entry->d_name);
        if (inference_cache_layers(f.model)) {
            check_away(f.model, d, PT_F32, f.weights, seed + (uint64_t)seen);
            seen++;
        }
        fixture_close(&f);
    }
    closedir(list);
    device_close(d, host);
    assert_true(seen > 10);
}

/* ---- a trained model ---- */

static void every_token_of_tinystories_has_its_loss(void **state)
{
    pt_error e = {0};
    json_t *vector;
    model *m;
    safetensors *st;
    if (!path_exists(PT_SHARED_DATA "/vectors/tinystories656k_nll.json")) {
        print_message("skipped: the shared data are not there\n");
        skip();
    }
    const char *folder = PT_SHARED_DATA "/checkpoints/TinyStories-656K";
    must(json_file_load(PT_SHARED_DATA "/vectors/tinystories656k_nll.json", 0, &vector, &e), &e);
    must(model_open(folder, NULL, NULL, &m, &e), &e);
    must(safetensors_open(folder, &st, &e), &e);
    device *d = open_device();
    inference *x = open_loaded(m, d, PT_F32, st, 0);
    const json_t *ids = json_object_get(vector, "ids"), *nll = json_object_get(vector, "nll_next_token");
    double sum = 0;
    size_t n = json_array_size(nll);
    assert_int_equal(n, 116);
    must(inference_begin(x, (int64_t)n, (cache_plan){0}, NULL, &e), &e);
    for (size_t i = 0; i < n; i++) {
        const float *logits;
        int32_t id = (int32_t)json_integer_value(json_array_get(ids, i)), next = (int32_t)json_integer_value(json_array_get(ids, i + 1));
        must(inference_feed(x, &id, 1, &logits, &e), &e);
        double got = nll_of(logits, m->config.vocab, next), expected = json_real_value(json_array_get(nll, i));
        if (fabs(got - expected) > 1e-4)
            fail_msg("token %zu: loss %.7f instead of %.7f", i + 1, got, expected);
        sum += got;
    }
    assert_true(fabs(sum / (double)n - json_real_value(json_object_get(vector, "mean_nll"))) < 1e-5);
    inference_close(x);
    device_close(d, host);
    safetensors_close(st);
    model_close(m);
    json_decref(vector);
}

/* They are quantized into memory that the host does not write. */
static void a_base_in_few_bits_is_the_same_on_any_device(void **state)
{
    (void)state;
    for (param_storage s = STORAGE_NF4; s < STORAGES; s++) {
        fixture f;
        pt_error e = {0};
        device *cpu;
        fixture_open(&f, "models", "llama_odd");
        for (int i = 0; i < f.model->params_n; i++)
            f.model->params[i].trainable = false;
        must(model_store(f.model, s, &e), &e);
        device *d = open_device(), *of_d = host;
        must(device_cpu_open(&(device_options){.threads = 1}, &cpu, &e), &e);
        inference *x = open_loaded(f.model, d, PT_F32, f.weights, 0), *y = open_loaded(f.model, cpu, PT_F32, f.weights, 0);
        const double a = first_loss(&f, x), b = first_loss(&f, y), plain = fixture_of_step(&f, "loss_fp64", 0);
        if (!(fabs(a - b) <= 1e-5 * b && fabs(b - plain) < 0.2 * plain && fabs(b - plain) > 1e-6 * plain))
            fail_msg("loss %.9g, on the CPU %.9g, of the plain weights %.9g", a, b, plain);
        inference_close(x);
        inference_close(y);
        device_close(d, of_d);
        device_close(cpu, cpu);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_token_by_token_are_pytorchs),
        cmocka_unit_test(losses_in_bf16_are_near_them),
        cmocka_unit_test(losses_with_adapters_are_pefts),
        cmocka_unit_test(parts_of_any_size_give_the_same_logits),
        cmocka_unit_test(a_cache_in_host_memory_gives_the_same_bits),
        cmocka_unit_test(caches_of_all_architectures_may_be_in_host_memory),
        cmocka_unit_test(every_token_of_tinystories_has_its_loss),
        cmocka_unit_test(a_base_in_few_bits_is_the_same_on_any_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
