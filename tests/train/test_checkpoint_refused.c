/* What a run does not resume from: other settings or another model, a damaged checkpoint, a folder of something else; the message names the
 * key or the file. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/checkpoint_settings.h"
#include "train/run.h"
#include "train/same_end.h"

#include <limits.h>

/* ---- other settings, another model ---- */

static void expect_refusal(run *r, const char *option, const char *before, const char *now)
{
    pt_error e = {0};
    int failed = run_until(r, STEPS, &e);
    if (failed != PT_FAILED || !strstr(e.text, option) || !strstr(e.text, before) || !strstr(e.text, now))
        fail_msg("%s from %s to %s: %d \"%s\"", option, before, now, failed, e.text);
}

static void settings_that_change_the_result_are_refused_with_both_values(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    const setting *s = &settings[1];
    const char *other[1];
    run r, other_run;
    pt_error e = {0};
    run_make(&r, s, "refused");
    must(run_until(&r, 2, &e), &e);
    r.o.resume = true;
    const pt_train_options good = r.o;
#define REFUSED(field, value, option, before, now) \
    r.o = good;                                     \
    r.o.field = value;                              \
    expect_refusal(&r, option, before, now)
    REFUSED(lr, 0.25, "`lr`", "0.001", "0.25");
    REFUSED(seed, 77, "`seed`", "0", "77");
    REFUSED(batch_size, 1, "`batch_size`", "3", "1");
    REFUSED(seq_len, 9, "`seq_len`", "16", "9");
    REFUSED(precision, PT_PRECISION_BF16, "`precision`", "fp32", "bf16");
    REFUSED(optimizer, PT_OPTIMIZER_ADAMW8BIT, "`optimizer`", "\"adamw\"", "\"adamw8bit\"");
    REFUSED(shuffle, false, "`no_shuffle`", "without", "with it");
    REFUSED(document_mask, true, "`document_mask`", "without", "with it");
    REFUSED(weight_decay, 0.5, "`weight_decay`", "0.1", "0.5");
    REFUSED(beta1, 0.5, "`beta1`", "0.9", "0.5");
    REFUSED(beta2, 0.5, "`beta2`", "0.999", "0.5");
    REFUSED(eps, 0.5, "`eps`", "1e-8", "0.5");
    REFUSED(max_grad_norm, 4, "`max_grad_norm`", "0", "4");
    REFUSED(lr_schedule, PT_LR_COSINE, "`lr_schedule`", "linear", "cosine");
    REFUSED(warmup_steps, 5, "`warmup_steps`", "0", "5");
    REFUSED(min_lr_ratio, 0.5, "`min_lr_ratio`", "0", "0.5");
    REFUSED(save_type, PT_SAVE_BF16, "`save_type`", "F32", "BF16");
    r.o = good;
    r.o.lora_rank = 4;
    r.o.lr = 2e-4; /* what follows from it is not what is said */
    expect_refusal(&r, "without `lora_rank`", "this run has 4", "leave it out");
    run_make(&other_run, &settings[3], "unused");
    other[0] = other_run.f.tokens;
    REFUSED(data, other, "`data`", "", "");
    REFUSED(model, other_run.f.folder, "gpt2", "llama", "");
    REFUSED(steps, 1, "`steps`", "1", "2");
    REFUSED(steps, 5, "`steps`", "8", "5");
#undef REFUSED
    r.o = good;
    r.o.steps = STEPS + 3;
    must(run_until(&r, STEPS + 3, &e), &e);
    run_free(&other_run);
    run_free(&r);
}

/* As before there was the option. */
static void forget_document_mask(const run *r, int step)
{
    char path[FILE_PATH_BYTES];
    json_t *all;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/checkpoint-%d/trainer/trainer.json", r->out, step);
    must(json_file_load(path, 0, &all, &e), &e);
    assert_int_equal(json_object_del(json_object_get(all, "settings"), "document-mask"), 0);
    must(file_write_json(path, all, &e), &e);
    json_decref(all);
}

static void a_checkpoint_that_says_nothing_of_documents_was_written_without_a_mask(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run straight, r;
    pt_error e = {0};
    run_make(&straight, &settings[1], "says-all");
    must(run_until(&straight, STEPS, &e), &e);
    run_make(&r, &settings[1], "says-nothing");
    must(run_until(&r, 2, &e), &e);
    forget_document_mask(&r, 2);
    r.o.resume = r.o.document_mask = true;
    expect_refusal(&r, "`document_mask`", "without", "with it");
    r.o.document_mask = false;
    must(run_until(&r, STEPS, &e), &e);
    assert_int_equal(r.first_step, 2);
    assert_same_checkpoint(straight.out, r.out, STEPS);
    run_free(&straight);
    run_free(&r);
}

static void a_model_that_computes_otherwise_is_refused_by_its_key(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const struct { const char *fixture, *key, *value, *word; } cases[] = {
        {"llama_tied_bias", "rope_parameters", "{\"rope_type\": \"default\", \"rope_theta\": 50.5}", "rope_theta"},
        {"llama_tied_bias", "rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 2, \"rope_theta\": 50}", "rope_type"},
        {"llama_tied_bias", "rms_norm_eps", "0.125", "norm eps"},
        {"llama_tied_bias", "hidden_act", "\"gelu\"", "activation"},
        {"llama_tied_bias", "pad_token_id", "3", "pad_token_id"},
        {"qwen3_window", "sliding_window", "3", "sliding_window"},
        {"gpt2", "layer_norm_epsilon", "0.125", "norm eps"},
        {"gpt2", "activation_function", "\"relu\"", "activation"},
        {"gpt2", "scale_attn_weights", "false", "attention scale"},
        {"gpt2", "scale_attn_by_inverse_layer_idx", "true", "attention scale by layer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        char name[32], folder[160];
        pt_error e = {0};
        const setting s = {cases[i].fixture, PT_PRECISION_FP32, 1, true, PT_OPTIMIZER_ADAMW};
        snprintf(name, sizeof name, "computes-%zu", i);
        run_make(&r, &s, name);
        must(run_until(&r, 2, &e), &e);
        snprintf(folder, sizeof folder, "%s/model-%zu", scratch, i);
        fixture_copy(&r.f, folder, cases[i].key, json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        r.o.resume = true;
        r.o.model = folder;
        int failed = run_until(&r, STEPS, &e);
        if (failed != PT_FAILED || !strstr(e.text, cases[i].word) || !strstr(e.text, "checkpoint-2"))
            fail_msg("%s %s: %d \"%s\"", cases[i].key, cases[i].value, failed, e.text);
        fixture_copy(&r.f, folder, "initializer_range", json_real(0.5)); /* of the start only */
        must(run_until(&r, 3, &e), &e);
        run_free(&r);
    }
}

/* A checkpoint from when there was one optimizer does not name it. */
static void a_checkpoint_that_names_no_optimizer_is_adamws(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run r;
    pt_error e = {0};
    json_t *all;
    char path[300];
    run_make(&r, &settings[1], "unnamed");
    must(run_until(&r, 2, &e), &e);
    snprintf(path, sizeof path, "%s/checkpoint-2/trainer/trainer.json", r.out);
    must(json_file_load(path, 0, &all, &e), &e);
    assert_int_equal(json_object_del(json_object_get(all, "settings"), "optimizer"), 0);
    assert_int_equal(json_dump_file(all, path, 0), 0);
    json_decref(all);
    r.o.resume = true;
    r.o.optimizer = PT_OPTIMIZER_MUON;
    expect_refusal(&r, "`optimizer`", "\"adamw\"", "\"muon\"");
    r.o.optimizer = PT_OPTIMIZER_ADAMW;
    must(run_until(&r, 3, &e), &e);
    run_free(&r);
}

/* The first moments of a checkpoint, with those of one tensor in another type: as of a version in which it had another rule. */
static void write_moments_as(const char *folder, const char *name, pt_dtype type)
{
    char path[340];
    safetensors *st;
    safetensors_writer *w;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/exp_avg.safetensors", folder);
    must(safetensors_open(path, &st, &e), &e);
    must(safetensors_writer_open(folder, "exp_avg", 0, &w, &e), &e);
    for (size_t i = 0; i < safetensors_count(st); i++) {
        const safetensors_tensor *t = safetensors_at(st, i);
        const pt_dtype as = strcmp(t->name, name) ? t->dtype : type;
        assert_int_equal(safetensors_declare(w, t->name, as, t->rank, t->shape, &e), i);
    }
    must(safetensors_begin(w, &e), &e);
    for (size_t i = 0; i < safetensors_count(st); i++) {
        const safetensors_tensor *t = safetensors_at(st, i);
        float *values = calloc(t->elements, sizeof *values);
        must(safetensors_append_f32(w, (int)i, values, t->elements, &e), &e);
        free(values);
    }
    must(safetensors_finish(w, &e), &e);
    safetensors_writer_close(w);
    safetensors_close(st);
}

static void states_of_another_rule_are_refused_by_tensor_and_type(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    char folder[300];
    run r;
    pt_error e = {0};
    run_make(&r, &settings[2], "other-rule");
    must(run_until(&r, 2, &e), &e);
    snprintf(folder, sizeof folder, "%s/checkpoint-2/trainer", r.out);
    write_moments_as(folder, "model.embed_tokens.weight", PT_U8);
    r.o.resume = true;
    expect_refusal(&r, "exp_avg.safetensors has \"model.embed_tokens.weight\" in U8", "F32 for `optimizer` adamw8bit", "as `model`");
    run_free(&r);
}

/* ---- damage ---- */

/* It was cut off, as by a copy that was not finished: states, or the counters. */
static void a_damaged_checkpoint_names_the_one_before(void **state)
{
    (void)state;
    static const struct { const char *run, *file; off_t bytes; } each[] = {{"cut-off", "exp_avg.safetensors", 2000},
        {"cut", "trainer.json", 40}};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char file[240], older[200];
        run r;
        pt_error e = {0};
        run_make(&r, &settings[0], each[i].run);
        must(run_until(&r, 2, &e), &e);
        r.o.resume = true;
        must(run_until(&r, 4, &e), &e);
        snprintf(file, sizeof file, "%s/checkpoint-4/trainer/%s", r.out, each[i].file);
        assert_int_equal(truncate(file, each[i].bytes), 0);
        assert_int_equal(run_until(&r, 6, &e), PT_FAILED);
        snprintf(older, sizeof older, "continue from an older one with `resume_from` '%s/checkpoint-2'", r.out);
        if (!strstr(e.text, older) || !strstr(e.text, each[i].file) || strstr(e.text, "get it again"))
            fail_msg("%s", e.text);
        snprintf(older, sizeof older, "%s/checkpoint-2", r.out);
        r.o.resume_from = older;
        must(run_until(&r, 6, &e), &e);
        run_free(&r);
    }
}

/* The newest lost the file that makes it one. */
static void a_checkpoint_without_its_counters_names_the_one_before(void **state)
{
    (void)state;
    char file[240], moved[260];
    run r;
    pt_error e = {0};
    run_make(&r, &settings[0], "no-counters");
    must(run_until(&r, 2, &e), &e);
    r.o.resume = true;
    must(run_until(&r, 4, &e), &e);
    snprintf(file, sizeof file, "%s/checkpoint-4/trainer/trainer.json", r.out);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(run_until(&r, 6, &e), PT_FAILED);
    if (!strstr(e.text, "checkpoint-4 has no trainer/trainer.json") || !strstr(e.text, "`resume` continues from checkpoint-2"))
        fail_msg("%s", e.text);
    snprintf(file, sizeof file, "%s/checkpoint-4", r.out);
    snprintf(moved, sizeof moved, "%s/away", r.out);
    assert_int_equal(rename(file, moved), 0);
    must(run_until(&r, 6, &e), &e);
    run_free(&r);
}

static void checkpoint_file(const run *r, const char *name, char path[300])
{
    snprintf(path, 300, "%s/checkpoint-4/%s", r->out, name);
}

/* Puts the first `n` bytes of a file and `more` into its place, tries to resume, and puts it back. */
static void damaged(run *r, const char *name, size_t keep, const char *more, const char *word)
{
    char path[300], *whole, *part;
    size_t n;
    pt_error e = {0};
    checkpoint_file(r, name, path);
    must(file_read_all(path, 1u << 30, &whole, &n, &e), &e);
    keep = keep < n ? keep : n - 1;
    part = malloc(keep + strlen(more));
    memcpy(part, whole, keep);
    memcpy(part + keep, more, strlen(more));
    must(file_write_atomic(path, part, keep + strlen(more), &e), &e);
    int failed = run_until(r, STEPS, &e);
    if (failed != PT_FAILED || !strstr(e.text, word) || strchr(e.text, '\n'))
        fail_msg("%s cut to %zu bytes: %d \"%s\"", name, keep, failed, e.text);
    must(file_write_atomic(path, whole, n, &e), &e);
    free(part);
    free(whole);
}

static void a_damaged_checkpoint_is_refused_by_the_name_of_the_file(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char *const tensors[] = {"model.safetensors", "trainer/exp_avg.safetensors", "trainer/exp_avg_sq.safetensors",
                                          "trainer/master.safetensors"};
    run r;
    pt_error e = {0};
    char path[300];
    run_make(&r, &settings[3], "damaged");
    must(run_until(&r, 4, &e), &e);
    r.o.resume = true;
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        if (i > 0) { /* of a bf16 model the master weights are what is read */
            damaged(&r, tensors[i], SIZE_MAX, "", tensors[i]);
            damaged(&r, tensors[i], 100, "", tensors[i]);
            damaged(&r, tensors[i], 0, "", tensors[i]);
            damaged(&r, tensors[i], 7, "\x7f{", tensors[i]);
            checkpoint_file(&r, tensors[i], path);
            char aside[320];
            snprintf(aside, sizeof aside, "%s.aside", path);
            assert_int_equal(rename(path, aside), 0);
            assert_int_equal(run_until(&r, STEPS, &e), PT_FAILED);
            assert_non_null(strstr(e.text, tensors[i]));
            assert_int_equal(rename(aside, path), 0);
        }
    }
    damaged(&r, "trainer/trainer.json", 200, "", "trainer.json");
    damaged(&r, "trainer/trainer.json", 0, "[]", "trainer.json");
    damaged(&r, "trainer/trainer.json", 0, "{\"version\": 99}", "version");
    damaged(&r, "trainer/trainer.json", 0, "{\"version\": 3, \"model\": {}, \"settings\": {}}", "checkpoint-4");
    must(run_until(&r, STEPS, &e), &e);
    run_free(&r);
}

/* Of the right length and form, but not what was saved: a bit that flipped, or the file of another step. */
static void values_that_were_not_saved_together_are_refused(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char *const files[] = {"model.safetensors", "trainer/exp_avg.safetensors", "trainer/exp_avg_sq.safetensors"};
    run r;
    pt_error e = {0};
    run_make(&r, &settings[0], "exchanged");
    r.o.save_every = 2;
    must(run_until(&r, 4, &e), &e);
    r.o.resume = true;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[300], other[300], *whole, *earlier;
        size_t n, earlier_n;
        checkpoint_file(&r, files[i], path);
        snprintf(other, sizeof other, "%s/checkpoint-2/%s", r.out, files[i]);
        must(file_read_all(path, 1u << 30, &whole, &n, &e), &e);
        must(file_read_all(other, 1u << 30, &earlier, &earlier_n, &e), &e);
        for (int flipped = 0; flipped < 2; flipped++) {
            if (flipped) {
                memcpy(earlier, whole, n);
                earlier[n - 1 - (size_t)rand() % 1000] ^= (char)(1 << rand() % 8);
            }
            assert_int_equal(n, earlier_n);
            must(file_write_atomic(path, earlier, earlier_n, &e), &e);
            assert_int_equal(run_until(&r, STEPS, &e), PT_FAILED);
            if (!strstr(e.text, files[i]) || !strstr(e.text, "saved"))
                fail_msg("%s", e.text);
        }
        must(file_write_atomic(path, whole, n, &e), &e);
        free(whole);
        free(earlier);
    }
    must(run_until(&r, STEPS, &e), &e);
    run_free(&r);
}

/* ---- other folders ---- */

static void a_folder_that_is_no_checkpoint_is_refused(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run r;
    pt_error e = {0};
    run_make(&r, &settings[0], "elsewhere");
    r.o.resume = true;
    r.o.resume_from = r.f.folder;
    assert_int_equal(run_until(&r, STEPS, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "is not a checkpoint"));
    run_free(&r);
}

static void going_on_from_elsewhere_never_writes_over_another_run(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run a, b, c;
    pt_error e = {0};
    char from[200], link[160], target[PATH_MAX];
    run_make(&a, &settings[0], "first-run");
    run_make(&b, &settings[0], "second-run");
    run_make(&c, &settings[0], "third-run");
    must(run_until(&a, 3, &e), &e);
    must(run_until(&b, 5, &e), &e);
    snprintf(from, sizeof from, "%s/checkpoint-3", a.out);
    uint64_t before = hash_of_folder(b.out);
    b.o.resume = c.o.resume = a.o.resume = true;
    b.o.resume_from = c.o.resume_from = from;
    for (int gone = 0; gone < 3; gone++) { /* whatever of the other run is still there */
        static const char *const names[] = {NULL, "checkpoint-5", "metrics.jsonl"};
        if (gone) {
            char path[200];
            snprintf(path, sizeof path, "%s/%s", b.out, names[gone]);
            must(tree_remove(path, &e), &e);
            before = hash_of_folder(b.out);
        }
        assert_int_equal(run_until(&b, STEPS, &e), PT_FAILED);
        assert_non_null(strstr(e.text, b.out));
        assert_non_null(strstr(e.text, from));
        assert_true(hash_of_folder(b.out) == before);
    }
    must(run_until(&c, STEPS, &e), &e); /* into a new folder */
    assert_true(realpath(a.out, target) != NULL);
    snprintf(link, sizeof link, "%s/link-to-first", scratch);
    assert_int_equal(symlink(target, link), 0);
    snprintf(from, sizeof from, "%s/checkpoint-3/", link);
    a.o.resume_from = from;
    must(run_until(&a, STEPS, &e), &e); /* the very run, by another name */
    assert_same_checkpoint(a.out, c.out, STEPS);
    run_free(&a);
    run_free(&b);
    run_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_damaged_checkpoint_names_the_one_before),
        cmocka_unit_test(a_checkpoint_without_its_counters_names_the_one_before),
        cmocka_unit_test(settings_that_change_the_result_are_refused_with_both_values),
        cmocka_unit_test(a_checkpoint_that_names_no_optimizer_is_adamws),
        cmocka_unit_test(states_of_another_rule_are_refused_by_tensor_and_type),
        cmocka_unit_test(a_checkpoint_that_says_nothing_of_documents_was_written_without_a_mask),
        cmocka_unit_test(a_model_that_computes_otherwise_is_refused_by_its_key),
        cmocka_unit_test(a_damaged_checkpoint_is_refused_by_the_name_of_the_file),
        cmocka_unit_test(values_that_were_not_saved_together_are_refused),
        cmocka_unit_test(a_folder_that_is_no_checkpoint_is_refused),
        cmocka_unit_test(going_on_from_elsewhere_never_writes_over_another_run),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
