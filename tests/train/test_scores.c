/* Heads that score whole texts: steps as those of TRL, Transformers and PEFT; runs that go on; what reads their models, what refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"
#include "train/same_end.h"
#include "train/adapted.h"

#define SCORES PT_FIXTURES "/scores"

enum { STEPS = 6 };

static const char *const pairs[] = {PT_FIXTURES "/dpo/pairs.jsonl"}, *const held[] = {PT_FIXTURES "/dpo/held.jsonl"};
static const char *const classes[] = {SCORES "/classes.jsonl"};
static json_t *expected;

static int open_expected(void **state)
{
    pt_error e = {0};
    must(json_file_load(SCORES "/expected.json", 0, &expected, &e), &e);
    return scratch_make(state);
}

static int close_expected(void **state)
{
    json_decref(expected);
    return scratch_remove(state);
}

static pt_train_options options_for(char out[300], const char *name, pt_task task)
{
    pt_train_options o;
    snprintf(out, 300, "%s/%s", scratch, name);
    pt_train_defaults(&o);
    o.task = task;
    o.model = task == PT_TASK_REWARD ? SCORES "/reward" : SCORES "/classify";
    o.data = task == PT_TASK_REWARD ? pairs : classes;
    o.data_n = 1;
    o.out = out;
    o.seq_len = 160;
    o.batch_size = 4;
    o.steps = STEPS;
    o.no_packing = true;
    o.shuffle = false;
    o.precision = PT_PRECISION_FP32;
    o.lr = 2e-3;
    o.lr_schedule = PT_LR_CONSTANT;
    o.device = "cpu";
    o.threads = 2;
    o.device_memory = 64u << 20;
    o.disk_memory = 0;
    return o;
}

static double number(const json_t *rows, int row, int column)
{
    const json_t *value = json_array_get(json_array_get(rows, (size_t)row), (size_t)column);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void near_value(const char *name, int step, double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed))
        fail_msg("step %d: %s %.9g, not %.9g", step, name, got, want);
}

static void take_steps(const pt_train_options *o, const json_t *rows, const json_t *held_rows)
{
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    must(pt_trainer_open(o, &t, &e), &e);
    for (int i = 0; i < STEPS; i++) {
        if (pt_trainer_step(t, &s, &e) != 1)
            fail_msg("%s", e.text);
        near_value("loss", i + 1, s.loss, number(rows, i, 0), 1e-5 * number(rows, i, 0));
        near_value("gradient norm", i + 1, s.grad_norm, number(rows, i, 1), 1e-4 * number(rows, i, 1));
        if (o->task != PT_TASK_REWARD)
            continue;
        near_value("margin", i + 1, s.reward_margin, number(rows, i, 2), 1e-5);
        near_value("accuracy", i + 1, s.reward_accuracy, number(rows, i, 3), 1e-6);
        if (!s.evaluated)
            continue;
        near_value("evaluation loss", i + 1, s.eval_loss, number(held_rows, i / 3, 0), 1e-5);
        near_value("evaluation's margin", i + 1, s.eval_reward_margin, number(held_rows, i / 3, 1), 1e-5);
        near_value("evaluation's accuracy", i + 1, s.eval_reward_accuracy, number(held_rows, i / 3, 2), 1e-6);
    }
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
}

static pt_evaluation evaluated(const char *model, const char *adapter, const char *const *data)
{
    pt_evaluate_options o;
    pt_evaluation v;
    pt_error e = {0};
    pt_evaluate_defaults(&o);
    o.model = model;
    o.adapter = adapter;
    o.data = data;
    o.data_n = 1;
    o.seq_len = 160;
    o.precision = PT_PRECISION_FP32;
    o.device = "cpu";
    o.device_memory = 64u << 20;
    o.disk_memory = 0;
    must(pt_evaluate(&o, &v, &e), &e);
    return v;
}

static void rewards_are_those_of_trl(void **state)
{
    (void)state;
    static const char *const names[] = {"reward", "reward_lora"}, *const held_names[] = {"reward_held", "reward_lora_held"};
    for (int lora = 0; lora < 2; lora++) {
        char out[300];
        pt_train_options o = options_for(out, names[lora], PT_TASK_REWARD);
        o.adapter = lora ? SCORES "/adapter" : NULL;
        o.eval_data = held;
        o.eval_data_n = 1;
        o.eval_every = 3;
        const json_t *rows = json_object_get(expected, held_names[lora]);
        take_steps(&o, json_object_get(expected, names[lora]), rows);
        const pt_evaluation v = evaluated(lora ? o.model : out, lora ? out : NULL, held);
        near_value("loss of eval", STEPS, v.loss, number(rows, 1, 0), 1e-5);
        near_value("accuracy of eval", STEPS, v.accuracy, number(rows, 1, 2), 1e-6);
    }
}

static void classes_are_those_of_transformers(void **state)
{
    (void)state;
    char out[300], path[400];
    json_t *config;
    pt_error e = {0};
    pt_train_options o = options_for(out, "classes", PT_TASK_CLASSIFY);
    const json_t *before = json_object_get(expected, "before");
    const pt_evaluation v = evaluated(o.model, NULL, classes);
    near_value("loss", 0, v.loss, json_real_value(json_array_get(before, 0)), 1e-5);
    near_value("accuracy", 0, v.accuracy, json_number_value(json_array_get(before, 1)), 1e-6);
    take_steps(&o, json_object_get(expected, "classify"), NULL);
    snprintf(path, sizeof path, "%s/config.json", out);
    must(json_file_load(path, 0, &config, &e), &e);
    assert_string_equal(json_string_value(json_array_get(json_object_get(config, "architectures"), 0)), "Qwen2ForSequenceClassification");
    assert_string_equal(json_string_value(json_object_get(json_object_get(config, "id2label"), "1")), "fair");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(config, "label2id"), "good")), 2);
    json_decref(config);
}

/* A model of tokens gets a head; its run goes on to the same bits in other micro-batches, packed or not; its adapter is read again. */
static void new_heads_go_on_to_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const bool lora = i % 2, classify = i / 2;
        char whole[300], parts[300], name[40];
        pt_error e = {0};
        snprintf(name, sizeof name, "whole%d", i);
        pt_train_options o = options_for(whole, name, classify ? PT_TASK_CLASSIFY : PT_TASK_REWARD);
        o.model = PT_FIXTURES "/dpo";
        o.lora_rank = lora ? 2 : 0;
        o.no_packing = classify;
        must(train_to(&o, STEPS, &e), &e);
        snprintf(name, sizeof name, "parts%d", i);
        snprintf(parts, sizeof parts, "%s/%s", scratch, name);
        o.out = parts;
        must(train_to(&o, 2, &e), &e);
        o.resume = true;
        o.micro_batch = 1;
        must(train_to(&o, STEPS, &e), &e);
        assert_same_file(whole, parts, lora ? "adapter_model.safetensors" : "model.safetensors");
        const pt_evaluation v = evaluated(lora ? o.model : whole, lora ? whole : NULL, classify ? classes : held);
        assert_true(isfinite(v.loss) && v.loss > 0);
    }
}

static void other_uses_are_refused(void **state)
{
    (void)state;
    char out[300];
    pt_trainer *t;
    pt_generator *g;
    pt_generate_options p;
    pt_export_options x;
    pt_error e = {0};
    pt_train_options o = options_for(out, "refused", PT_TASK_CLASSIFY);
    o.data = pairs;
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "have the format preference"));
    o.model = PT_FIXTURES "/dpo";
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "line 1: \"label\" must be the name of a class"));
    o = options_for(out, "refused", PT_TASK_CLASSIFY);
    o.model = SCORES "/reward";
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "not one of the 1 label"));
    o = options_for(out, "refused", PT_TASK_REWARD);
    o.model = SCORES "/classify";
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "the model's head has 3 labels, but 1 is needed"));
    o.task = PT_TASK_SFT;
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`task` classify or reward trains it"));
    o.task = PT_TASK_REWARD;
    o.sample = (const char *const[]){"a"};
    o.sample_n = 1;
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "leave out `sample`"));
    pt_generate_defaults(&p);
    p.model = SCORES "/classify";
    assert_int_equal(pt_generator_open(&p, &g, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "predicts no tokens"));
    pt_export_defaults(&x);
    x.model = SCORES "/classify";
    x.out = scratch_path("x.gguf");
    assert_int_equal(pt_export(&x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "GGUF files are of models that predict tokens"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewards_are_those_of_trl),
        cmocka_unit_test(classes_are_those_of_transformers),
        cmocka_unit_test(new_heads_go_on_to_the_same_bits),
        cmocka_unit_test(other_uses_are_refused),
    };
    return cmocka_run_group_tests(tests, open_expected, close_expected);
}
