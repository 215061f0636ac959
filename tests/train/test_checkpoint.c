/* Checkpoints: a run that was stopped and resumed, under whatever plan, ends in the same bits as one that was not. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/checkpoint_settings.h"
#include "train/heard.h"
#include "train/run.h"
#include "train/same_end.h"

#include "train/plan_file.h"

#include <limits.h>

/* Of each setting, at other steps each time. */
enum { STOPS = SANITIZED ? 1 : 4 };

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

static void two_checkpoints_are_kept_by_default_and_more_are_told_before_they_go(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    run r;
    heard h = {0};
    pt_error e = {0};
    pt_train_options defaults;
    pt_train_defaults(&defaults);
    assert_int_equal(defaults.keep, 2);
    run_make(&r, &settings[0], "kept-by-default");
    r.o.save_every = 1;
    must(run_until(&r, 4, &e), &e);
    for (int step = 1; step <= 4; step++)
        assert_true(has_checkpoint(&r, step)); /* `keep` is 0 in tests */
    r.o.keep = defaults.keep;
    r.o.resume = true;
    r.o.notice = hear;
    r.o.arg = &h;
    must(run_until(&r, 5, &e), &e);
    if (!strstr(h.text, "has 4 checkpoints") || !strstr(h.text, "`keep` 0"))
        fail_msg("%s", h.text);
    for (int step = 1; step <= 5; step++)
        assert_int_equal(has_checkpoint(&r, step), step > 3);
    h = (heard){0};
    must(run_until(&r, 6, &e), &e);
    assert_null(strstr(h.text, "`keep`"));
    run_free(&r);
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

static void keep_all(void *arg, const char *sentence)
{
    const size_t n = strlen(arg);
    snprintf((char *)arg + n, 2048 - n, "%s\n", sentence);
}

/* As where there was no room for a checkpoint of the last step. */
static void finish_without_checkpoint(run *r, const char *name, int64_t lora)
{
    char path[200];
    pt_error e = {0};
    run_make(r, &settings[0], name);
    r->o.save_every = 0;
    r->o.lora_rank = lora;
    r->o.save_type = PT_SAVE_AS_STORED;
    finish(r, 3);
    snprintf(path, sizeof path, "%s/checkpoint-3", r->out);
    must(tree_remove(path, &e), &e);
    r->o.resume = true;
}

static void a_run_that_ended_without_a_checkpoint_is_complete(void **state)
{
    (void)state;
    for (int lora = 0; lora < 3; lora += 2) {
        char said[2048] = "";
        run r;
        pt_trainer *t;
        pt_step s;
        pt_summary m;
        pt_error e = {0};
        finish_without_checkpoint(&r, lora ? "complete-adapter" : "complete-model", lora);
        r.o.notice = keep_all;
        r.o.arg = said;
        const uint64_t before = hash_of_folder(r.out);
        must(pt_trainer_open(&r.o, &t, &e), &e);
        pt_trainer_summary(t, &m);
        assert_true(m.complete && m.steps == 3 && m.first_step == 3);
        assert_true(strstr(said, r.out) && strstr(said, "complete") && strstr(said, lora ? "adapter" : "model"));
        assert_int_equal(pt_trainer_step(t, &s, &e), 0);
        must(pt_trainer_finish(t, &e), &e);
        assert_int_equal(pt_trainer_save(t, &e), PT_FAILED);
        assert_null(pt_trainer_plan_json(t));
        pt_timing times[PT_TIMINGS];
        assert_int_equal(pt_trainer_timings(t, times), 0);
        pt_trainer_close(t);
        assert_true(hash_of_folder(r.out) == before);
        run_free(&r);
    }
}

static void another_run_than_the_one_that_ended_is_refused(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    char path[200];
    finish_without_checkpoint(&r, "ended", 0);
    const uint64_t before = hash_of_folder(r.out);
    r.o.steps = 6;
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_true(strstr(e.text, r.out) && strstr(e.text, "step 3") && strstr(e.text, "step 6") && strstr(e.text, "`out`"));
    r.o.steps = 3;
    r.o.lr *= 2;
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_true(strstr(e.text, "finished.json") && strstr(e.text, "`lr`"));
    r.o.lr /= 2;
    assert_true(hash_of_folder(r.out) == before);
    snprintf(path, sizeof path, "%s/finished.json", r.out);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_true(strstr(e.text, "holds a trained model but no checkpoint"));
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_resumed_run_ends_in_the_same_bits_under_any_plan),
        cmocka_unit_test(a_run_that_finished_goes_on_with_more_steps),
        cmocka_unit_test(a_run_that_ended_without_a_checkpoint_is_complete),
        cmocka_unit_test(another_run_than_the_one_that_ended_is_refused),
        cmocka_unit_test(a_run_resumes_on_a_machine_with_less_memory),
        cmocka_unit_test(metrics_are_cut_back_to_the_checkpoint),
        cmocka_unit_test(only_the_newest_checkpoints_are_kept),
        cmocka_unit_test(two_checkpoints_are_kept_by_default_and_more_are_told_before_they_go),
        cmocka_unit_test(resuming_without_a_checkpoint_starts_at_the_first_step),
        cmocka_unit_test(a_checkpoint_that_was_put_aside_is_gone_on_from),
        cmocka_unit_test(what_goes_with_a_model_is_saved_as_it_was_when_the_run_began),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
