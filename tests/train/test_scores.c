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
    snprintf(out, 300, "%s/%s", scratch, name);
    pt_train_options o = compared_options(out);
    o.task = task;
    o.model = task == PT_TASK_REWARD ? SCORES "/reward" : SCORES "/classify";
    o.data = task == PT_TASK_REWARD ? pairs : classes;
    o.seq_len = 160;
    o.steps = STEPS;
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
        if (o->task != PT_TASK_REWARD) {
            near_value("accuracy", i + 1, s.accuracy, number(rows, i, 2), 1e-6);
            continue;
        }
        assert_true(isnan(s.accuracy));
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

static pt_evaluation predicted(const char *model, const char *adapter, const char *const *data, int64_t seq_len, const char *predictions)
{
    pt_evaluate_options o;
    pt_evaluation v;
    pt_error e = {0};
    pt_evaluate_defaults(&o);
    o.predictions = predictions;
    o.model = model;
    o.adapter = adapter;
    o.data = data;
    o.data_n = 1;
    o.seq_len = seq_len;
    o.precision = PT_PRECISION_FP32;
    o.device = "cpu";
    o.device_memory = 64u << 20;
    o.disk_memory = 0;
    must(pt_evaluate(&o, &v, &e), &e);
    return v;
}

static pt_evaluation evaluated(const char *model, const char *adapter, const char *const *data)
{
    return predicted(model, adapter, data, 160, NULL);
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

/* The lines of a file, each changed by `change`. */
static void write_changed(const char *from_path, const char *path, void (*change)(json_t *record, int i, int arg), int arg)
{
    char line[4096];
    FILE *from = fopen(from_path, "r"), *to = fopen(path, "w");
    assert_true(from && to);
    for (int i = 0; fgets(line, sizeof line, from); i++) {
        json_t *record = json_loads(line, 0, NULL);
        change(record, i, arg);
        assert_int_equal(json_dumpf(record, to, 0), 0);
        fputc('\n', to);
        json_decref(record);
    }
    fclose(from);
    fclose(to);
}

/* make_scores.py's MARGINS. A margin of 0 may be missing. */
static void add_margin(json_t *record, int i, int arg)
{
    static const double margins[] = {0, 0.5, -0.25, 2.125};
    if (i % 4 || arg)
        json_object_set_new(record, "margin", json_real(margins[i % 4]));
}

static void margins_and_centering_are_those_of_trl(void **state)
{
    (void)state;
    char out[300], parts[300], data[300], held_data[300];
    const char *const paths[] = {data}, *const held_paths[] = {held_data};
    pt_error e = {0};
    snprintf(data, sizeof data, "%s/margins.jsonl", scratch);
    snprintf(held_data, sizeof held_data, "%s/margins_held.jsonl", scratch);
    write_changed(pairs[0], data, add_margin, 1);
    write_changed(held[0], held_data, add_margin, 0);
    pt_train_options o = options_for(out, "margins", PT_TASK_REWARD);
    o.data = paths;
    o.eval_data = held_paths;
    o.eval_data_n = 1;
    o.eval_every = 3;
    o.center_rewards = 0.01;
    take_steps(&o, json_object_get(expected, "margins"), json_object_get(expected, "margins_held"));
    snprintf(parts, sizeof parts, "%s/margins_parts", scratch);
    o.out = parts;
    o.save_every = 2;
    must(train_to(&o, 2, &e), &e);
    o.resume = true;
    o.micro_batch = 1;
    must(train_to(&o, STEPS, &e), &e);
    assert_same_file(out, parts, "model.safetensors");
}

/* ---- predictions ---- */

/* Line i + 1 of a file. */
static json_t *read_line(const char *path, int i)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int n = 0; n <= i; n++)
        if (!fgets(line, sizeof line, f))
            fail_msg("%s: line %d is missing", path, i + 1);
    fclose(f);
    json_t *record = json_loads(line, 0, NULL);
    assert_non_null(record);
    assert_int_equal(json_integer_value(json_object_get(record, "record")), i + 1);
    return record;
}

static double score_of(const json_t *record, const char *key)
{
    const json_t *value = json_object_get(record, key);
    if (!json_is_real(value))
        fail_msg("there is no %s", key);
    return json_real_value(value);
}

static void check_class(const json_t *record, int i)
{
    static const char *const labels[] = {"bad", "fair", "good"};
    const json_t *want = json_array_get(json_object_get(expected, "logits"), (size_t)i), *got = json_object_get(record, "logits");
    double sum = 0, z[3];
    int best = 0;
    for (int k = 0; k < 3; k++) {
        z[k] = json_real_value(json_array_get(want, (size_t)k));
        near_value("logit", i, json_real_value(json_array_get(got, (size_t)k)), z[k], 1e-5);
        sum += exp(z[k]);
        best = z[k] > z[best] ? k : best;
    }
    assert_string_equal(json_string_value(json_object_get(record, "label")), labels[best]);
    near_value("probability", i, score_of(record, "probability"), exp(z[best]) / sum, 1e-5);
    for (int k = 0; k < 3; k++)
        near_value("probability", i, score_of(json_object_get(record, "probabilities"), labels[k]), exp(z[k]) / sum, 1e-5);
}

/* Every `each`-th keeps its label. */
static void remove_label(json_t *record, int i, int each)
{
    if (!each || i % each)
        json_object_del(record, "label");
}

static void predictions_are_those_of_transformers(void **state)
{
    (void)state;
    char file[300], texts[300];
    const char *const data[] = {texts};
    snprintf(file, sizeof file, "%s/predictions.jsonl", scratch);
    snprintf(texts, sizeof texts, "%s/texts.jsonl", scratch);
    for (int each = 0; each <= 3; each++) {
        write_changed(classes[0], texts, remove_label, each);
        const pt_evaluation v = predicted(SCORES "/classify", NULL, data, 160, file);
        const json_t *before = json_object_get(expected, "before");
        assert_int_equal(v.predictions, STEPS * 4);
        assert_int_equal(v.learned_tokens, each ? STEPS * 4 / each : 0);
        assert_true(each ? isfinite(v.loss) : isnan(v.loss));
        if (each == 1)
            near_value("loss", 0, v.loss, json_real_value(json_array_get(before, 0)), 1e-5);
        for (int i = 0; i < STEPS * 4; i++) {
            json_t *record = read_line(file, i);
            check_class(record, i);
            json_decref(record);
        }
    }
}

static void predicted_rewards_are_those_of_transformers(void **state)
{
    (void)state;
    enum { HELD = 12 };
    char file[300], out[300];
    double margin = 0;
    snprintf(file, sizeof file, "%s/scores.jsonl", scratch);
    pt_evaluation v = predicted(SCORES "/reward", NULL, classes, 160, file);
    assert_true(isnan(v.loss) && v.predictions == STEPS * 4);
    for (int i = 0; i < STEPS * 4; i++) {
        json_t *record = read_line(file, i);
        near_value("score", i, score_of(record, "score"), number(json_object_get(expected, "scores"), i, 0), 1e-5);
        json_decref(record);
    }
    const pt_train_options o = options_for(out, "rewarded", PT_TASK_REWARD);
    const json_t *held_row = json_object_get(expected, "reward_held");
    take_steps(&o, json_object_get(expected, "reward"), NULL);
    v = predicted(out, NULL, held, 160, file);
    near_value("loss", STEPS, v.loss, number(held_row, 1, 0), 1e-5);
    for (int i = 0; i < HELD; i++) {
        json_t *record = read_line(file, i);
        margin += (score_of(record, "chosen") - score_of(record, "rejected")) / HELD;
        json_decref(record);
    }
    near_value("margin", STEPS, margin, number(held_row, 1, 1), 1e-5);
}

/* What is cut keeps its first tokens; what is left out has no score. */
static void long_texts_are_cut_to_their_first_tokens(void **state)
{
    (void)state;
    char file[300];
    static const char texts[] = "{\"text\": \"abcdefgh,abc\", \"label\": \"bad\"}\n{\"text\": \"hg\", \"label\": \"good\"}\n"
                                "{\"text\": \"abcdefgh\", \"label\": \"fair\"}\n";
    scratch_put("long.jsonl", texts, sizeof texts - 1);
    snprintf(file, sizeof file, "%s/long.jsonl", scratch);
    char path[300];
    snprintf(path, sizeof path, "%s/cut.jsonl", scratch);
    const pt_evaluation v = predicted(SCORES "/classify", NULL, (const char *const[]){file}, 8, path);
    assert_int_equal(v.learned_tokens, 3);
    json_t *cut = read_line(path, 0), *whole = read_line(path, 2);
    assert_true(json_equal(json_object_get(cut, "logits"), json_object_get(whole, "logits")));
    json_decref(cut);
    json_decref(whole);
    pt_evaluate_options o;
    pt_evaluation dropped;
    pt_error e = {0};
    pt_evaluate_defaults(&o);
    o.model = SCORES "/classify";
    o.data = (const char *const[]){file};
    o.data_n = 1;
    o.seq_len = 8;
    o.device = "cpu";
    o.predictions = path;
    o.long_examples = PT_LONG_DROP;
    must(pt_evaluate(&o, &dropped, &e), &e);
    assert_true(dropped.learned_tokens == 2 && dropped.predictions == 3);
    cut = read_line(path, 0);
    assert_true(json_is_null(json_object_get(cut, "label")));
    json_decref(cut);
    o.long_examples = PT_LONG_ERROR;
    assert_int_equal(pt_evaluate(&o, &dropped, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "line 1: an example has 12 tokens, but a window has 8: give `seq_len` 12"));
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
    pt_evaluation v;
    pt_evaluate_options u;
    pt_evaluate_defaults(&u);
    u.model = PT_FIXTURES "/dpo";
    u.data = classes;
    u.data_n = 1;
    u.predictions = out;
    assert_int_equal(pt_evaluate(&u, &v, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "predicts tokens: leave the option out"));
    u.model = SCORES "/classify";
    u.predictions = classes[0];
    assert_int_equal(pt_evaluate(&u, &v, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "is not a file of predictions"));
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
        cmocka_unit_test(predictions_are_those_of_transformers),
        cmocka_unit_test(margins_and_centering_are_those_of_trl),
        cmocka_unit_test(long_texts_are_cut_to_their_first_tokens),
        cmocka_unit_test(predicted_rewards_are_those_of_transformers),
        cmocka_unit_test(new_heads_go_on_to_the_same_bits),
        cmocka_unit_test(other_uses_are_refused),
    };
    return cmocka_run_group_tests(tests, open_expected, close_expected);
}
