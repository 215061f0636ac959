/* Checkpoints: a run that was stopped and resumed, under whatever plan, ends in the same bits as one that was not; what does not
 * belong together is refused; a full disk loses nothing. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/run.h"
#include "train/same_end.h"

#include "train/plan_file.h"

#include <limits.h>

/* Of each setting, at other steps each time. */
enum { STOPS = SANITIZED ? 1 : 4 };

static const setting settings[] = {{"llama_tied_bias", PT_PRECISION_BF16, 1, true, PT_OPTIMIZER_ADAMW},
                                   {"gpt2", PT_PRECISION_FP32, 0, true, PT_OPTIMIZER_ADAMW},
                                   {"qwen3_window", PT_PRECISION_BF16, 0, false, PT_OPTIMIZER_ADAMW8BIT},
                                   {"llama_bf16", PT_PRECISION_BF16, 2, true, PT_OPTIMIZER_ADAMW},
                                   {"gpt2", PT_PRECISION_FP32, 1, false, PT_OPTIMIZER_MUON}};

/* ---- runs ---- */

/* Any plan for the run, in a file, and any number of threads. */
static void random_circumstances(run *r, random_source *random)
{
    plan_case c = {.type = r->o.precision == PT_PRECISION_BF16 ? PT_BF16 : PT_F32, .batch = r->o.batch_size, .seq_len = r->o.seq_len,
                   .clipping = r->o.max_grad_norm > 0, .optimizer = optimizers[r->o.optimizer], .host_tier = !random_one_in(random, 3)};
    snprintf(r->plan_path, sizeof r->plan_path, "%s.plan.json", r->out);
    write_random_plan(random, r->f.model, &c, r->plan_path);
    r->o.plan_file = r->plan_path;
    r->o.host_memory = c.host_tier ? 64 << 20 : PT_AUTO;
    r->o.threads = random_from(random, 1, 4);
}

/* ---- comparing ---- */

static void assert_same_metrics(const run *a, const run *b)
{
    static const char *const keys[] = {"loss", "grad_norm", "lr", "tokens"};
    json_t *x[STEPS], *y[STEPS];
    assert_int_equal(read_metrics(a, x, STEPS), STEPS);
    assert_int_equal(read_metrics(b, y, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            assert_true(json_equal(json_object_get(x[i], keys[k]), json_object_get(y[i], keys[k])));
        json_decref(x[i]);
        json_decref(y[i]);
    }
}

/* ---- tests ---- */

/* Stops after a random number of steps, several times, each time under another plan. */
static void stop_and_go(const setting *s, random_source *random, const run *straight, int number)
{
    char name[32];
    run r;
    pt_error e = {0};
    int64_t at = 0;
    snprintf(name, sizeof name, "resumed-%d", number);
    run_make(&r, s, name);
    while (at < STEPS) {
        int64_t until = at + random_from(random, 1, STEPS - (int)at);
        random_circumstances(&r, random);
        must(run_until(&r, until, &e), &e);
        r.o.resume = true;
        at = until;
    }
    assert_same_checkpoint(straight->out, r.out, STEPS);
    assert_same_metrics(straight, &r);
    run_free(&r);
}

static void a_resumed_run_ends_in_the_same_bits_under_any_plan(void **state)
{
    (void)state;
    random_source random = random_open();
    const size_t n = sizeof settings / sizeof *settings, one = (size_t)random_below(&random, (int)n);
    for (size_t i = THREADS_SANITIZED ? one : 0; i < (THREADS_SANITIZED ? one + 1 : n); i++) {
        run straight;
        pt_error e = {0};
        char name[32];
        snprintf(name, sizeof name, "straight-%zu", i);
        run_make(&straight, &settings[i], name);
        must(run_until(&straight, STEPS, &e), &e);
        for (int k = 0; k < STOPS; k++)
            stop_and_go(&settings[i], &random, &straight, (int)i * STOPS + k);
        run_free(&straight);
    }
}

/* With the least memory: the refusal of 1 byte says how much that is. */
static void a_run_resumes_on_a_machine_with_less_memory(void **state)
{
    (void)state;
    run straight, r;
    pt_error e = {0};
    run_make(&straight, &settings[0], "roomy");
    must(run_until(&straight, STEPS, &e), &e);
    run_make(&r, &settings[0], "tight");
    must(run_until(&r, 3, &e), &e);
    r.o.resume = true;
    r.o.device_memory = 1;
    r.o.threads = 1;
    assert_int_equal(run_until(&r, 5, &e), PT_DOES_NOT_FIT);
    const uint64_t least = r.o.device_memory = advised(&e, "`device_memory`", 0);
    int failed = run_until(&r, 5, &e);
    if (failed == PT_DOES_NOT_FIT && on_gpu()) { /* so little that measuring transfers takes more than the plan */
        r.o.device_memory = advised(&e, "`device_memory`", 0);
        failed = run_until(&r, 5, &e);
    }
    must(failed, &e);
    char path[200], *json;
    size_t n;
    snprintf(path, sizeof path, "%s/plan.json", r.out);
    must(file_read_all(path, 1 << 20, &json, &n, &e), &e);
    assert_non_null(strstr(json, on_gpu() ? "\"host\"" : "\"disk\""));
    free(json);
    const uint64_t enough = r.o.device_memory;
    r.o.device_memory = least - size_granule(least);
    assert_int_equal(run_until(&r, 6, &e), PT_DOES_NOT_FIT);
    r.o.device_memory = enough;
    r.o.host_memory = 16 << 20;
    must(run_until(&r, STEPS, &e), &e);
    assert_same_checkpoint(straight.out, r.out, STEPS);
    assert_same_metrics(&straight, &r);
    run_free(&r);
    run_free(&straight);
}

static void keep_notice(void *arg, const char *sentence)
{
    if (strstr(sentence, "learning rate"))
        snprintf(arg, 512, "%s", sentence);
}

/* To its end, of this many steps. */
static void finish(run *r, int64_t steps)
{
    pt_error e = {0};
    pt_trainer *t;
    pt_step s;
    r->o.steps = steps;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    while (pt_trainer_step(t, &s, &e) > 0)
        ;
    must(e.code, &e);
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
}

/* Though no checkpoint was asked for; the rates so far were those of the shorter run, which is said where they change. */
static void a_run_that_finished_goes_on_with_more_steps(void **state)
{
    (void)state;
    static const struct { pt_lr_schedule schedule; const char *said; } each[] = {
        {PT_LR_CONSTANT, ""},
        {PT_LR_LINEAR, "the run now has 6 steps instead of 3: the learning rate of step 4 is 0.0005, after 0.000333 in step 3"}};
    if (disk_is_memory(scratch))
        skip(); /* no room was kept for it there */
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        char said[512] = "", name[32], path[200];
        run r;
        snprintf(name, sizeof name, "extended-%zu", i);
        run_make(&r, &settings[0], name);
        r.o.save_every = 0;
        r.o.lr = 1e-3;
        r.o.lr_schedule = each[i].schedule;
        r.o.warmup_steps = 0;
        r.o.min_lr_ratio = 0;
        r.o.notice = keep_notice;
        r.o.arg = said;
        finish(&r, 3);
        snprintf(path, sizeof path, "%s/checkpoint-3", r.out);
        assert_true(path_exists(path));
        r.o.resume = true;
        finish(&r, 3); /* nothing is left to do */
        assert_string_equal(said, "");
        finish(&r, 6);
        assert_string_equal(said, each[i].said);
        snprintf(path, sizeof path, "%s/checkpoint-6", r.out);
        assert_true(path_exists(path));
        run_free(&r);
    }
}

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

/* Sentences are put after each other. */
static void note(void *arg, const char *sentence)
{
    const size_t used = strlen(arg);
    snprintf((char *)arg + used, 2048 - used, "%s\n", sentence);
}

static void metrics_are_cut_back_to_the_checkpoint(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run straight, r;
    pt_error e = {0};
    pt_trainer *t;
    pt_step s;
    char noted[2048] = "", from[400];
    run_make(&straight, &settings[3], "all-metrics");
    must(run_until(&straight, STEPS, &e), &e);
    run_make(&r, &settings[3], "cut-metrics");
    r.o.save_every = 4;
    must(pt_trainer_open(&r.o, &t, &e), &e);
    for (int i = 0; i < 6; i++)
        assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    pt_trainer_close(t); /* as if killed after step 6, within a line */
    char path[200];
    snprintf(path, sizeof path, "%s/metrics.jsonl", r.out);
    FILE *f = fopen(path, "a");
    assert_true(f && fputs("{\"step\": 7, \"lo", f) >= 0 && fclose(f) == 0);
    r.o.resume = true;
    r.o.notice = note;
    r.o.arg = noted;
    must(run_until(&r, STEPS, &e), &e);
    snprintf(from, sizeof from, "continuing from %s/checkpoint-4, after step 4\n", r.out);
    if (!strstr(noted, from) || strstr(noted, "random weights"))
        fail_msg("not \"%s\": %s", from, noted);
    assert_same_metrics(&straight, &r);
    run_free(&r);
    run_free(&straight);
}

static void only_the_newest_checkpoints_are_kept(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run r;
    pt_error e = {0};
    run_make(&r, &settings[0], "kept");
    r.o.save_every = 2;
    r.o.keep = 2;
    must(run_until(&r, STEPS, &e), &e);
    for (int step = 1; step <= STEPS; step++)
        assert_int_equal(has_checkpoint(&r, step), step > 4 && step % 2 == 0);
    char from[200];
    snprintf(from, sizeof from, "%s/checkpoint-6", r.out);
    r.o.resume = true;
    r.o.resume_from = from;
    r.o.keep = 1;
    must(run_until(&r, 7, &e), &e); /* what it writes itself is not the one to go */
    assert_true(has_checkpoint(&r, 7) && !has_checkpoint(&r, 8) && !has_checkpoint(&r, 6));
    run_free(&r);
}

/* ---- damage ---- */

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

static void resuming_without_a_checkpoint_starts_at_the_first_step(void **state)
{
    (void)state;
    run straight, r;
    pt_error e = {0};
    pt_trainer *t;
    pt_step s;
    run_make(&straight, &settings[0], "from-the-start");
    must(run_until(&straight, STEPS, &e), &e);
    run_make(&r, &settings[0], "early-end");
    must(pt_trainer_open(&r.o, &t, &e), &e);
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    pt_trainer_close(t);
    assert_int_equal(run_until(&r, STEPS, &e), PT_FAILED); /* not over a run that is there */
    assert_non_null(strstr(e.text, "`resume`"));
    r.o.resume = true;
    must(run_until(&r, STEPS, &e), &e);
    assert_same_checkpoint(straight.out, r.out, STEPS);
    assert_same_metrics(&straight, &r);
    run_free(&r);
    run_free(&straight);
}

/* A file system that cannot exchange two names: the run was killed while its checkpoint had none. */
static void a_checkpoint_that_was_put_aside_is_gone_on_from(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run r;
    char from[200], aside[220];
    pt_error e = {0};
    run_make(&r, &settings[1], "aside");
    must(run_until(&r, 3, &e), &e);
    snprintf(from, sizeof from, "%s/checkpoint-3", r.out);
    snprintf(aside, sizeof aside, "%s.before-12", from);
    assert_int_equal(rename(from, aside), 0);
    r.o.resume = true;
    must(run_until(&r, 5, &e), &e);
    assert_int_equal(r.first_step, 3);
    assert_true(path_exists(from) && !path_exists(aside));
    run_free(&r);
}

/* The model's folder is only read when a run begins: what becomes of it later is not what is saved. */
static void what_goes_with_a_model_is_saved_as_it_was_when_the_run_began(void **state)
{
    (void)state;
    static const char *const files[] = {"config.json", "model.safetensors"}, tokenizer_config[] = "{\"eos_token\": \"<end>\"}";
    char folder[200], from[700], to[300], *text;
    size_t n;
    run r;
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    run_make(&r, &settings[1], "moved");
    snprintf(folder, sizeof folder, "%s/model-that-goes", scratch);
    must(dir_make(folder, &e), &e);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%s/%s", r.f.folder, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        must(file_copy_atomic(from, to, &e), &e);
    }
    snprintf(to, sizeof to, "%s/tokenizer_config.json", folder);
    must(file_write_atomic(to, tokenizer_config, strlen(tokenizer_config), &e), &e);
    r.o.model = folder;
    must(pt_trainer_open(&r.o, &t, &e), &e);
    must(pt_trainer_step(t, &s, &e) < 0, &e);
    must(file_write_atomic(to, "{}", 2, &e), &e);
    must(pt_trainer_save(t, &e), &e);
    must(tree_remove(folder, &e), &e);
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);

    static const char *const saved[] = {"checkpoint-1/", ""};
    for (int i = 0; i < 2; i++) {
        json_t *config;
        snprintf(to, sizeof to, "%s/%stokenizer_config.json", r.out, saved[i]);
        must(file_read_all(to, 1000, &text, &n, &e), &e);
        assert_string_equal(text, tokenizer_config);
        free(text);
        snprintf(to, sizeof to, "%s/%sconfig.json", r.out, saved[i]);
        must(json_file_load(to, 0, &config, &e), &e);
        assert_int_equal(json_integer_value(json_object_get(config, "vocab_size")), r.f.model->config.vocab);
        json_decref(config);
    }
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_ends_in_the_same_bits_under_any_plan),
        cmocka_unit_test(a_damaged_checkpoint_names_the_one_before),
        cmocka_unit_test(a_run_that_finished_goes_on_with_more_steps),
        cmocka_unit_test(a_run_resumes_on_a_machine_with_less_memory),
        cmocka_unit_test(settings_that_change_the_result_are_refused_with_both_values),
        cmocka_unit_test(a_checkpoint_that_names_no_optimizer_is_adamws),
        cmocka_unit_test(a_checkpoint_that_says_nothing_of_documents_was_written_without_a_mask),
        cmocka_unit_test(a_model_that_computes_otherwise_is_refused_by_its_key),
        cmocka_unit_test(metrics_are_cut_back_to_the_checkpoint),
        cmocka_unit_test(only_the_newest_checkpoints_are_kept),
        cmocka_unit_test(a_damaged_checkpoint_is_refused_by_the_name_of_the_file),
        cmocka_unit_test(values_that_were_not_saved_together_are_refused),
        cmocka_unit_test(a_folder_that_is_no_checkpoint_is_refused),
        cmocka_unit_test(going_on_from_elsewhere_never_writes_over_another_run),
        cmocka_unit_test(resuming_without_a_checkpoint_starts_at_the_first_step),
        cmocka_unit_test(a_checkpoint_that_was_put_aside_is_gone_on_from),
        cmocka_unit_test(what_goes_with_a_model_is_saved_as_it_was_when_the_run_began),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
