/* New tokens: ids, first rows and steps as Transformers and PEFT have them; runs that go on, and what takes their models. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "seed.h"
#include "text/new_tokens.h"
#include "train/fixture.h"
#include "train/same_end.h"
#include "train/adapted.h"

#define TOKENS PT_FIXTURES "/tokens"

enum { STEPS = 6, OLD = 257, NEW = 5, HIDDEN = 32 };

static const char *const data_paths[] = {TOKENS "/data.jsonl"};
static json_t *expected;

static int open_expected(void **state)
{
    pt_error e = {0};
    must(json_file_load(TOKENS "/expected.json", 0, &expected, &e), &e);
    return scratch_make(state);
}

static int close_expected(void **state)
{
    json_decref(expected);
    return scratch_remove(state);
}

static pt_train_options options_for(char out[300], const char *name)
{
    snprintf(out, 300, "%s/%s", scratch, name);
    pt_train_options o = compared_options(out);
    o.model = PT_FIXTURES "/dpo";
    o.add_tokens = TOKENS "/tokens.txt";
    o.data = data_paths;
    o.seq_len = 96;
    o.steps = STEPS;
    return o;
}

static void compare_steps(const pt_train_options *o, const char *name)
{
    const json_t *rows = json_object_get(expected, name);
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    must(pt_trainer_open(o, &t, &e), &e);
    for (int i = 0; i < STEPS; i++) {
        const json_t *row = json_array_get(rows, (size_t)i);
        const double loss = json_real_value(json_array_get(row, 0)), norm = json_real_value(json_array_get(row, 1));
        if (pt_trainer_step(t, &s, &e) != 1)
            fail_msg("%s", e.text);
        if (!(fabs(s.loss - loss) <= 1e-5 * loss && fabs(s.grad_norm - norm) <= 1e-4 * norm))
            fail_msg("%s, step %d: loss %.9f and norm %.9f, PyTorch has %.9f and %.9f", name, i + 1, s.loss, s.grad_norm, loss, norm);
    }
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
}

/* Prompts and completions have the ids of Transformers' tokenizer. */
static void compare_ids(const char *folder)
{
    pt_tokenizer *t;
    pt_error e = {0};
    char line[1000];
    FILE *f = fopen(data_paths[0], "r");
    must(pt_tokenizer_open(folder, &t, &e), &e);
    assert_non_null(f);
    for (size_t i = 0; fgets(line, sizeof line, f); i++) {
        json_t *record = json_loads(line, 0, NULL);
        const char *const keys[] = {"prompt", "completion"};
        for (size_t k = 0; k < 2; k++) {
            const json_t *ids = json_array_get(json_array_get(json_object_get(expected, "records"), i), k);
            const char *text = json_string_value(json_object_get(record, keys[k]));
            uint32_t *got;
            size_t n;
            must(pt_tokenizer_encode(t, text, strlen(text), false, &got, &n, &e), &e);
            assert_int_equal(n, json_array_size(ids));
            for (size_t at = 0; at < n; at++)
                assert_int_equal(got[at], json_integer_value(json_array_get(ids, at)));
            free(got);
        }
        json_decref(record);
    }
    fclose(f);
    pt_tokenizer_close(t);
}

/* The rows that a run of one step at no rate begins with. */
static void compare_rows(const char *folder, const char *file, const char *tensor, const char *name)
{
    char path[400];
    safetensors *st;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, file);
    must(safetensors_open(path, &st, &e), &e);
    const safetensors_tensor *t = safetensors_find(st, tensor);
    assert_true(t && t->shape[0] == OLD + NEW && t->shape[1] == HIDDEN);
    float *values = values_of(st, t);
    for (size_t i = 0; i < NEW; i++)
        for (size_t k = 0; k < HIDDEN; k++) {
            const json_t *wanted = json_array_get(json_array_get(json_object_get(expected, name), i), k);
            assert_true(fabs((double)values[(OLD + i) * HIDDEN + k] - json_real_value(wanted)) <= 1e-6);
        }
    free(values);
    safetensors_close(st);
}

static void steps_of_all_parameters_are_those_of_transformers(void **state)
{
    (void)state;
    char out[300], still[300];
    pt_train_options o = options_for(out, "full");
    compare_steps(&o, "full");
    compare_ids(out);
    o = options_for(still, "still");
    o.steps = 1;
    o.lr = 1e-30;
    pt_error e = {0};
    must(train_to(&o, 1, &e), &e);
    compare_rows(still, "model.safetensors", "model.embed_tokens.weight", "embed_tokens");
    compare_rows(still, "model.safetensors", "lm_head.weight", "lm_head");
}

static void an_adapter_of_peft_has_its_tokens(void **state)
{
    (void)state;
    char out[300];
    pt_train_options o = options_for(out, "peft");
    o.add_tokens = NULL;
    o.adapter = TOKENS "/adapter";
    compare_steps(&o, "lora");
}

/* A new adapter begins as the model with the rows, and so does what reads it. */
static void an_adapter_begins_with_the_rows(void **state)
{
    (void)state;
    char out[300], merged[300];
    pt_error e = {0};
    pt_train_options o = options_for(out, "lora");
    pt_merge_options m;
    o.lora_rank = 2;
    o.steps = 1;
    o.lr = 1e-30;
    must(train_to(&o, 1, &e), &e);
    compare_rows(out, "adapter_model.safetensors", "base_model.model.model.embed_tokens.weight", "embed_tokens");
    compare_rows(out, "adapter_model.safetensors", "base_model.model.lm_head.weight", "lm_head");
    snprintf(merged, sizeof merged, "%s/merged", scratch);
    pt_merge_defaults(&m);
    m.model = o.model;
    m.adapter = (const char *const[]){out};
    m.adapter_n = 1;
    m.out = merged;
    must(pt_merge(&m, &e), &e);
    compare_ids(merged);
    const double beside = evaluated_loss(o.model, out, data_paths[0]), alone = evaluated_loss(merged, NULL, data_paths[0]);
    assert_true(fabs(beside - alone) <= 1e-6 * alone);
}

static void runs_go_on_to_the_same_bits(void **state)
{
    (void)state;
    for (int lora = 0; lora < 2; lora++) {
        const char *file = lora ? "adapter_model.safetensors" : "model.safetensors";
        char whole[300], parts[300];
        pt_error e = {0};
        pt_train_options o = options_for(whole, lora ? "whole_lora" : "whole");
        o.lora_rank = lora ? 2 : 0;
        must(train_to(&o, STEPS, &e), &e);
        o = options_for(parts, lora ? "parts_lora" : "parts");
        o.lora_rank = lora ? 2 : 0;
        o.disk_memory = 64u << 20;
        must(train_to(&o, 2, &e), &e);
        o.resume = true;
        o.micro_batch = 1;
        must(train_to(&o, STEPS, &e), &e);
        assert_same_file(whole, parts, file);
        assert_same_file(whole, parts, "tokenizer.json");
    }
}

static void refused(const char *text, size_t n, const char *why)
{
    char out[300];
    pt_trainer *t;
    pt_error e = {0};
    scratch_put("tokens.txt", text, n);
    pt_train_options o = options_for(out, "refused");
    o.add_tokens = scratch_path("tokens.txt");
    assert_true(pt_trainer_open(&o, &t, &e) < 0);
    if (!strstr(e.text, why))
        fail_msg("%s: %s", why, e.text);
}

static void bad_files_are_refused(void **state)
{
    (void)state;
    refused("", 0, "has no tokens");
    refused("\n", 1, "line 1 is empty");
    refused("<x>\r\n\r\n", 7, "line 2 is empty");
    refused("<x>\n<y>\n<x>\n", 12, "line 3 is the same as line 1");
    refused("<x>\n</s>", 8, "line 2: \"</s>\" is a token of the tokenizer already");
    refused("a\n", 2, "is a token of the tokenizer already");
    refused("<\xff>\n", 4, "line 1 is not text in UTF-8");
    refused("<\0>\n", 4, "line 1 is not text in UTF-8");
    char *much = malloc(2000);
    assert_non_null(much);
    memset(much, 'x', 2000);
    refused(much, 2000, "line 1 has 2000 bytes");
    free(much);
    char out[300];
    pt_trainer *t;
    pt_error e = {0};
    pt_train_options o = options_for(out, "refused");
    o.freeze = (const char *const[]){"*embed*"};
    o.freeze_n = 1;
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "model.embed_tokens.weight is frozen"));
    o = options_for(out, "refused");
    o.adapter = TOKENS "/adapter";
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`add_tokens` and `adapter` are both given"));
    o = options_for(out, "refused");
    o.model = PT_FIXTURES "/models/llama";
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "the model has no tokenizer"));
}

/* Bytes of all kinds are taken or refused with a sentence; what is taken has pieces for each line. */
static void any_file_is_taken_or_refused(void **state)
{
    (void)state;
    const uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 300; i++) {
        static const char few[] = "ab\n\r<\xc3\xa9 \0\xff\xef\xbb\xbf";
        char text[24];
        uint32_t w[4];
        const size_t n = (size_t)(i % sizeof text);
        for (size_t k = 0; k < n; k++) {
            rng_words(seed, RNG_TEST, (uint32_t)i, k, w);
            text[k] = w[0] % 8 ? few[w[1] % (sizeof few - 1)] : (char)w[2];
        }
        scratch_put("tokens.txt", text, n);
        new_tokens x;
        pt_error e = {0};
        if (new_tokens_open(&x, PT_FIXTURES "/dpo", scratch_path("tokens.txt"), &e)) {
            assert_true(e.text[0]);
            continue;
        }
        assert_true(x.first == OLD && x.n > 0 && x.end[0] > 0 && x.end[x.n - 1] == x.pieces.n);
        for (size_t k = 0; k < x.pieces.n; k++)
            assert_true(x.pieces.ids[k] < OLD);
        new_tokens_close(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_all_parameters_are_those_of_transformers), cmocka_unit_test(an_adapter_of_peft_has_its_tokens),
        cmocka_unit_test(an_adapter_begins_with_the_rows),                   cmocka_unit_test(runs_go_on_to_the_same_bits),
        cmocka_unit_test(bad_files_are_refused),                             cmocka_unit_test(any_file_is_taken_or_refused),
    };
    return cmocka_run_group_tests(tests, open_expected, close_expected);
}
