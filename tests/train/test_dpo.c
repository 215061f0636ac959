/* Preferences: step for step what TRL's trainers compute; packed or not; resumed; and what it is refused for. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "task/task.h"
#include "train/fixture.h"
#include "train/heard.h"
#include "train/same_end.h"

enum { STEPS = 10 };

static char pairs[600], held[600], model_folder[600], adapter[600];
static const char *data_paths[] = {pairs}, *held_paths[] = {held};
static const char *labels_paths[] = {PT_FIXTURES "/dpo/labels.jsonl"}, *labels_held_paths[] = {PT_FIXTURES "/dpo/labels_held.jsonl"};

static pt_train_options options_for(const char *out)
{
    pt_train_options o = compared_options(out);
    o.model = model_folder;
    o.data = data_paths;
    o.task = PT_TASK_DPO;
    o.seq_len = 160;
    return o;
}

static pt_train_options options_for_labels(const char *out)
{
    pt_train_options o = options_for(out);
    o.task = PT_TASK_KTO;
    o.data = labels_paths;
    return o;
}

static pt_trainer *open_run(const pt_train_options *o)
{
    pt_error e = {0};
    pt_trainer *t;
    must(pt_trainer_open(o, &t, &e), &e);
    return t;
}

static pt_step take_step(pt_trainer *t)
{
    pt_error e = {0};
    pt_step s;
    int took = pt_trainer_step(t, &s, &e);
    if (took != 1)
        fail_msg("%d: %s", took, e.text);
    return s;
}

static void near_value(const char *name, int step, double got, double want, double allowed)
{
    if (!(fabs(got - want) <= allowed))
        fail_msg("step %d: %s %.9g, TRL has %.9g", step, name, got, want);
}

static double expected_value(const json_t *rows, int row, int column)
{
    const json_t *value = json_array_get(json_array_get(rows, (size_t)row), (size_t)column);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* After steps 5 and 10. */
static void check_held(const pt_step *s, const json_t *rows, double allowed)
{
    const int row = (int)s->step / 5 - 1;
    near_value("evaluation loss", (int)s->step, s->eval_loss, expected_value(rows, row, 0),
               allowed * expected_value(rows, row, 0));
    near_value("evaluation's margin", (int)s->step, s->eval_reward_margin, expected_value(rows, row, 1),
               allowed + 10 * allowed * fabs(expected_value(rows, row, 1)));
    near_value("evaluation's rewards", (int)s->step, s->eval_reward_chosen - s->eval_reward_rejected, s->eval_reward_margin,
               1e-9 + 1e-9 * fabs(s->eval_reward_chosen));
    near_value("evaluation's accuracy", (int)s->step, s->eval_reward_accuracy, expected_value(rows, row, 2), 1e-6);
}

/* One run of TRL's. */
typedef struct trl_run { const char *name; pt_task task; pt_dpo_loss loss; const char *from; double allowed, smoothing, cut; } trl_run;

static void check_step(const pt_step *s, const trl_run *run, const json_t *rows)
{
    const int i = (int)s->step;
    const double loss = expected_value(rows, i - 1, 0), norm = expected_value(rows, i - 1, 1), margin = expected_value(rows, i - 1, 2);
    assert_int_equal(s->pairs, 4);
    near_value("loss", i, s->loss, loss, run->allowed * loss);
    near_value("gradient norm", i, s->grad_norm, norm, 10 * run->allowed * norm);
    near_value("reward margin", i, s->reward_margin, margin, run->allowed + 10 * run->allowed * fabs(margin));
    near_value("reward accuracy", i, s->reward_accuracy, expected_value(rows, i - 1, 3), 1e-6);
    near_value("rewards", i, s->reward_chosen - s->reward_rejected, s->reward_margin, 1e-9 + 1e-9 * fabs(s->reward_chosen));
    if (i == 1 && run->task == PT_TASK_DPO)
        assert_true(s->reward_margin == 0); /* to the bit: the model is its own reference */
}

static void check_against_trl(const trl_run *run, const json_t *expected)
{
    char out[300], held_name[40];
    snprintf(out, sizeof out, "%s/%s", scratch, run->name);
    snprintf(held_name, sizeof held_name, "%s_held", run->name);
    const json_t *rows = json_object_get(expected, run->name), *held_rows = json_object_get(expected, held_name);
    pt_train_options o = options_for(out);
    o.task = run->task;
    o.dpo_loss = run->loss;
    o.adapter = run->from;
    o.label_smoothing = run->smoothing;
    o.ld_alpha = 1 - run->cut;
    o.eval_data = held_paths;
    o.eval_data_n = held_rows ? 1 : 0;
    o.eval_every = held_rows ? 5 : 0;
    pt_trainer *t = open_run(&o);
    for (int i = 0; i < STEPS; i++) {
        const pt_step s = take_step(t);
        check_step(&s, run, rows);
        assert_int_equal(s.evaluated, held_rows && s.step % 5 == 0);
        if (s.evaluated)
            check_held(&s, held_rows, run->allowed);
    }
    pt_trainer_close(t);
}

static json_t *load_expected(const char *name)
{
    char path[600];
    json_t *expected;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/dpo/%s", fixtures_root(), name);
    must(json_file_load(path, 0, &expected, &e), &e);
    return expected;
}

static void steps_are_those_of_trl(void **state)
{
    const trl_run runs[] = {{"sigmoid", PT_TASK_DPO, PT_DPO_SIGMOID, NULL, 1e-4, 0, 0}, {"ipo", PT_TASK_DPO, PT_DPO_IPO, NULL, 1e-4, 0, 0},
                            {"lora", PT_TASK_DPO, PT_DPO_SIGMOID, adapter, 1e-4, 0, 0}};
    json_t *expected = load_expected("expected.json");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        check_against_trl(&runs[i], expected);
    json_decref(expected);
}

static void steps_without_a_reference_are_those_of_trl(void **state)
{
    const trl_run runs[] = {{"orpo", PT_TASK_ORPO, 0, NULL, 1e-5, 0, 0}, {"orpo_lora", PT_TASK_ORPO, 0, adapter, 1e-5, 0, 0},
                            {"simpo", PT_TASK_SIMPO, 0, NULL, 1e-5, 0, 0}, {"simpo_lora", PT_TASK_SIMPO, 0, adapter, 1e-5, 0, 0},
                            {"smoothed", PT_TASK_SIMPO, 0, NULL, 1e-5, 0.2, 0}};
    json_t *expected = load_expected("more.json");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        check_against_trl(&runs[i], expected);
    json_decref(expected);
}

/* Of a mixture of experts with latent attention. */
static void steps_of_experts_are_those_of_trl(void **state)
{
    (void)state;
    json_t *expected = load_expected("experts.json");
    const size_t whole = strlen(model_folder);
    strcat(model_folder, "/experts");
    check_against_trl(&(trl_run){"experts", PT_TASK_DPO, PT_DPO_SIGMOID, NULL, 1e-4, 0, 0}, expected);
    model_folder[whole] = 0;
    json_decref(expected);
}

/* Less weight for tokens beyond the shorter reply, and the loss of means. */
static void steps_that_weigh_lengths_are_those_of_trl(void **state)
{
    const trl_run runs[] = {{"ld", PT_TASK_DPO, PT_DPO_SIGMOID, NULL, 1e-4, 0, 0.6}, {"ld_ipo", PT_TASK_DPO, PT_DPO_IPO, NULL, 1e-4, 0, 1},
                            {"norm", PT_TASK_DPO, PT_DPO_SIGMOID_NORM, NULL, 1e-4, 0, 0}};
    json_t *expected = load_expected("lengths.json");
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        check_against_trl(&runs[i], expected);
    json_decref(expected);
}

/* Replies alone: smoothed targets, and noise on the embeddings. */
static void steps_of_replies_are_those_of_transformers(void **state)
{
    (void)state;
    static const char *const names[] = {"smoothed", "noisy"};
    json_t *expected = load_expected("sft.json");
    for (int k = 0; k < 2; k++) {
        char out[300];
        snprintf(out, sizeof out, "%s/sft_%s", scratch, names[k]);
        const json_t *rows = json_object_get(expected, names[k]);
        pt_train_options o = options_for(out);
        o.task = PT_TASK_SFT;
        o.columns = "completion=chosen,other=rejected";
        o.label_smoothing = k ? 0 : 0.1;
        o.neftune_alpha = k ? 5 : 0;
        pt_trainer *t = open_run(&o);
        for (int i = 0; i < STEPS; i++) {
            const pt_step s = take_step(t);
            near_value("loss", i + 1, s.loss, expected_value(rows, i, 0), 1e-5 * expected_value(rows, i, 0));
            near_value("gradient norm", i + 1, s.grad_norm, expected_value(rows, i, 1), 1e-4 * expected_value(rows, i, 1));
        }
        pt_trainer_close(t);
    }
    json_decref(expected);
}

/* A number, or what must be nan. */
static void near_or_nan(const char *name, int step, double got, const json_t *rows, int row, int column, double allowed)
{
    if (!json_is_null(json_array_get(json_array_get(rows, (size_t)row), (size_t)column)))
        near_value(name, step, got, expected_value(rows, row, column), allowed * (1 + fabs(expected_value(rows, row, column))));
    else if (!isnan(got))
        fail_msg("step %d: %s %.9g, TRL has none", step, name, got);
}

static void check_labelled_step(const pt_step *s, const json_t *rows)
{
    const int i = (int)s->step, row = i - 1;
    assert_int_equal(s->pairs, 4);
    near_value("loss", i, s->loss, expected_value(rows, row, 0), 1e-5 * expected_value(rows, row, 0));
    near_value("gradient norm", i, s->grad_norm, expected_value(rows, row, 1), 1e-4 * expected_value(rows, row, 1));
    near_or_nan("reward margin", i, s->reward_margin, rows, row, 2, 1e-4);
    near_or_nan("KL", i, s->kl, rows, row, 3, 1e-4);
    assert_true(i > 1 || (s->reward_margin == 0 && s->kl == 0)); /* to the bit: the model is its own reference */
}

/* All parameters; an adapter, both kinds of replies weighed differently. */
static void steps_of_labels_are_those_of_trl(void **state)
{
    (void)state;
    static const char *const names[][2] = {{"kto", "kto_held"}, {"kto_lora", "kto_lora_held"}};
    json_t *expected = load_expected("kto.json");
    for (int k = 0; k < 2; k++) {
        char out[300];
        snprintf(out, sizeof out, "%s/%s", scratch, names[k][0]);
        const json_t *held_rows = json_object_get(expected, names[k][1]);
        pt_train_options o = options_for_labels(out);
        o.adapter = k ? adapter : NULL;
        o.desirable_weight = k ? 1.25 : 1;
        o.undesirable_weight = k ? 0.75 : 1;
        o.eval_data = labels_held_paths;
        o.eval_data_n = 1;
        o.eval_every = 5;
        pt_trainer *t = open_run(&o);
        for (int i = 0; i < STEPS; i++) {
            const pt_step s = take_step(t);
            check_labelled_step(&s, json_object_get(expected, names[k][0]));
            if (!s.evaluated)
                continue;
            near_or_nan("evaluation loss", i, s.eval_loss, held_rows, i / 5, 0, 1e-5);
            near_or_nan("evaluation's margin", i, s.eval_reward_margin, held_rows, i / 5, 1, 1e-4);
            near_or_nan("evaluation's KL", i, s.eval_kl, held_rows, i / 5, 2, 1e-4);
        }
        pt_trainer_close(t);
    }
    json_decref(expected);
}

/* The second of two steps on four replies, in a window each or all in one: either way each prompt gets the reply before it. */
static pt_step four_replies(bool alone, const char *name)
{
    char out[300];
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    const char *paths[] = {scratch_path("four.jsonl")};
    pt_train_options o = options_for_labels(out);
    o.data = paths;
    o.no_packing = alone;
    o.batch_size = alone ? 4 : 1;
    o.seq_len = alone ? 80 : 256;
    o.steps = 2;
    pt_trainer *t = open_run(&o);
    take_step(t);
    const pt_step s = take_step(t);
    pt_trainer_close(t);
    return s;
}

static void replies_of_a_window_are_mismatched_with_each_other(void **state)
{
    (void)state;
    static const char four[] = "{\"prompt\": \"ab\", \"completion\": \"cdefg\", \"label\": true}\n"
                               "{\"prompt\": \"gah\", \"completion\": \"b\", \"kto_tag\": false}\n"
                               "{\"prompt\": \"\", \"completion\": \"ddadb\", \"label\": \"True\"}\n"
                               "{\"prompt\": \"cab cab\", \"completion\": \"hag\", \"label\": 0}\n";
    scratch_put("four.jsonl", four, sizeof four - 1);
    const pt_step alone = four_replies(true, "four-alone"), together = four_replies(false, "four-together");
    assert_int_equal(together.pairs, 4);
    assert_true(together.kl > 0);
    near_value("KL", 2, together.kl, alone.kl, 1e-5 * alone.kl);
    near_value("loss", 2, together.loss, alone.loss, 1e-5);
    near_value("gradient norm", 2, together.grad_norm, alone.grad_norm, 1e-4 * alone.grad_norm);
}

/* The second of two steps that take all pairs each. */
static pt_step all_at_once(pt_task task, bool alone, const char *name)
{
    char out[300], all[320];
    pt_summary m;
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    snprintf(all, sizeof all, "%s-all", out);
    pt_train_options o = options_for(out);
    o.task = task;
    o.no_packing = alone;
    o.batch_size = 1;
    pt_trainer *t = open_run(&o);
    pt_trainer_summary(t, &m);
    pt_trainer_close(t);
    o.out = all;
    o.batch_size = m.windows;
    o.steps = 2;
    t = open_run(&o);
    take_step(t);
    const pt_step s = take_step(t);
    pt_trainer_close(t);
    return s;
}

static void packed_pairs_are_as_if_alone(void **state)
{
    NO_OTHER_THREADS();
    for (int task = 1; task < train_tasks_n; task++) {
        if (!train_tasks[task]->pairs || train_tasks[task]->labels) /* the baseline is of examples that share a window */
            continue;
        char name[2][20];
        for (int i = 0; i < 2; i++)
            snprintf(name[i], sizeof name[i], "%s-%d", i ? "alone" : "packed", task);
        const pt_step packed = all_at_once((pt_task)task, false, name[0]), alone = all_at_once((pt_task)task, true, name[1]);
        assert_int_equal(packed.pairs, alone.pairs);
        assert_int_equal(packed.learned_tokens, alone.learned_tokens);
        assert_true(fabs(packed.loss - alone.loss) <= 1e-4 * alone.loss && packed.reward_margin != 0);
        assert_true(fabs(packed.grad_norm - alone.grad_norm) <= 1e-3 * alone.grad_norm);
    }
}

/* A run that is ended and resumed, with other micro-batches; it compares with the model that it began with, not with what it found. */
static void check_resumed(const train_task *task, pt_task number)
{
    enum { RESUMED = 8 };
    char whole[300], parts[300];
    pt_error e = {0};
    double losses[2][RESUMED];
    snprintf(whole, sizeof whole, "%s/whole-%s", scratch, task->name);
    snprintf(parts, sizeof parts, "%s/parts-%s", scratch, task->name);
    pt_train_options o = options_for(whole);
    o.task = number;
    o.steps = RESUMED;
    o.no_packing = false;
    pt_trainer *t = open_run(&o);
    for (int i = 0; i < RESUMED; i++)
        losses[0][i] = take_step(t).loss;
    pt_trainer_close(t);
    o.out = parts;
    for (int i = 0; i < RESUMED; i++) {
        if (i % 3 == 0) {
            o.resume = i > 0;
            o.micro_batch = i == 3 ? 1 : 0;
            t = open_run(&o);
        }
        losses[1][i] = take_step(t).loss;
        if (i % 3 == 2 || i == RESUMED - 1) {
            must(pt_trainer_save(t, &e), &e);
            pt_trainer_close(t);
        }
    }
    assert_memory_equal(losses[0], losses[1], sizeof losses[0]);
}

static void a_resumed_run_has_the_same_losses(void **state)
{
    (void)state;
    for (int i = 1; i < train_tasks_n; i++)
        if (train_tasks[i]->pairs)
            check_resumed(train_tasks[i], (pt_task)i);
}

/* ---- a file that is lost, damaged or of another run ---- */

typedef enum harm { LOST, CUT, FLIPPED, FLIPPED_COUNT, OF_ANOTHER_MODEL, HARMS } harm;

/* OUT/reference.bin; `other`: that of a run of another model. */
static void do_harm(harm h, const char *out, const char *other)
{
    enum { SAMPLES_AT = 24, HEADER = 96 };
    char path[340], *bytes;
    size_t n;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/reference.bin", h == OF_ANOTHER_MODEL ? other : out);
    must(file_read_all(path, 1 << 24, &bytes, &n, &e), &e);
    snprintf(path, sizeof path, "%s/reference.bin", out);
    size_t at = HEADER;
    while (!bytes[at] && at + 1 < n)
        at++;
    bytes[h == FLIPPED_COUNT ? SAMPLES_AT : at] ^= h == FLIPPED || h == FLIPPED_COUNT ? 4 : 0;
    if (h == LOST)
        assert_int_equal(unlink(path), 0);
    else
        must(file_write_atomic(path, bytes, h == CUT ? n - 5 : n, &e), &e);
    free(bytes);
}

/* The model with one bit of one weight flipped; its folder. */
static const char *other_model(void)
{
    const char *other = scratch_path("other_model");
    char path[400], *bytes;
    size_t n;
    pt_error e = {0};
    fixture f = {0};
    if (path_exists(other))
        return other;
    snprintf(f.folder, sizeof f.folder, "%.500s", model_folder);
    fixture_copy(&f, other, NULL, NULL);
    snprintf(path, sizeof path, "%s/model.safetensors", other);
    must(file_read_all(path, 1 << 24, &bytes, &n, &e), &e);
    bytes[n - 3] ^= 1;
    must(file_write_atomic(path, bytes, n, &e), &e);
    free(bytes);
    return other;
}

/* Four steps with checkpoints, in the folder `out`. */
static pt_train_options options_for_four(const char *out)
{
    pt_train_options o = options_for(out);
    o.steps = 4;
    o.save_every = 2;
    return o;
}

/* A resumed run ends in the bits of one whose file stayed as it was, and says that losses were computed again. */
static void losses_that_are_not_the_run_s_are_computed_again(void **state)
{
    NO_OTHER_THREADS();
    char straight[200], other[200], out[200], from[340];
    pt_error e = {0};
    snprintf(straight, sizeof straight, "%s/unharmed", scratch);
    snprintf(other, sizeof other, "%s/other-reference", scratch);
    pt_train_options o = options_for_four(straight);
    must(train_to(&o, 4, &e), &e);
    o = options_for_four(other);
    o.model = other_model();
    must(train_to(&o, 2, &e), &e);
    for (int k = 0; k <= HARMS; k++) {
        heard h = {0};
        snprintf(out, sizeof out, "%s/harm-%d", scratch, k);
        o = options_for_four(out);
        must(train_to(&o, 2, &e), &e);
        if (k < HARMS)
            do_harm((harm)k, out, other);
        snprintf(from, sizeof from, "%s/checkpoint-2", out);
        if (k == HARMS) { /* it stays where it is, and the run goes on in another folder */
            snprintf(out, sizeof out, "%s/elsewhere", scratch);
            o.resume_from = from;
        }
        o.resume = true;
        o.notice = hear;
        o.arg = &h;
        must(train_to(&o, 4, &e), &e);
        if (!strstr(h.text, "reference.bin") || !strstr(h.text, "computed again"))
            fail_msg("harm %d: %s", k, h.text);
        assert_same_end(straight, out, 4);
        assert_same_file(straight, out, "reference.bin");
    }
}

/* A file that changes while a run reads it, and a model that is not the one that the run began with. */
static void losses_of_anything_else_end_the_run(void **state)
{
    char out[200], from[340];
    pt_error e = {0};
    pt_step s;
    snprintf(out, sizeof out, "%s/harmed-later", scratch);
    pt_train_options o = options_for_four(out);
    pt_trainer *t = open_run(&o);
    take_step(t);
    take_step(t);
    char *bytes, path[340];
    size_t n;
    snprintf(path, sizeof path, "%s/reference.bin", out);
    must(file_read_all(path, 1 << 24, &bytes, &n, &e), &e);
    for (size_t i = 96; i < n; i++)
        bytes[i] ^= 1;
    FILE *f = fopen(path, "r+b");
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    free(bytes);
    assert_true(pt_trainer_step(t, &s, &e) < 0);
    if (!strstr(e.text, "reference.bin is damaged"))
        fail_msg("%s", e.text);
    pt_trainer_close(t);
    snprintf(from, sizeof from, "%s/checkpoint-2", out);
    snprintf(out, sizeof out, "%s/harmed-elsewhere", scratch);
    o.resume = true;
    o.resume_from = from;
    o.model = other_model();
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    if (!strstr(e.text, "other_model") || !strstr(e.text, "not the model that the run began with"))
        fail_msg("%s", e.text);
    o.model = model_folder;
    must(train_to(&o, 4, &e), &e);
}

/* ---- only what the run sees ---- */

static double last_evaluated(const pt_train_options *o, int64_t until)
{
    pt_error e = {0};
    pt_step s = {0};
    pt_trainer *t = open_run(o);
    while (s.step < until)
        s = take_step(t);
    must(pt_trainer_save(t, &e), &e);
    pt_trainer_close(t);
    return s.evaluated ? s.eval_loss : 0;
}

/* Windows of which losses are there. */
static int windows_there(const char *out, int64_t seq_len)
{
    enum { HEADER = 96 };
    char path[340], *bytes;
    size_t n;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/reference.bin", out);
    must(file_read_all(path, 1 << 24, &bytes, &n, &e), &e);
    const size_t row = (size_t)seq_len * sizeof(float), sum = sizeof(uint64_t);
    int there = 0;
    for (size_t at = HEADER; at + row <= n; at += row + sum) {
        bool any = false;
        for (size_t i = 0; i < row; i++)
            any = any || bytes[at + i];
        there += any;
    }
    free(bytes);
    return there;
}

/* Two steps see 8 windows of 40; four more, and data to evaluate on that were not there, ask the model that the run began with. */
static void check_extended(const char *name, const char *from, int lora_rank, pt_precision precision)
{
    char whole[300], parts[300];
    pt_error e = {0};
    pt_trainer *t;
    snprintf(whole, sizeof whole, "%s/%s_straight", scratch, name);
    snprintf(parts, sizeof parts, "%s/%s_extended", scratch, name);
    pt_train_options o = options_for(whole);
    o.adapter = from;
    o.lora_rank = lora_rank;
    o.precision = precision;
    o.shuffle = true;
    o.steps = 6;
    o.eval_data = held_paths;
    o.eval_data_n = 1;
    const double straight = last_evaluated(&o, 6);
    assert_int_equal(windows_there(whole, o.seq_len), 24);
    o.out = parts;
    o.steps = 2;
    o.eval_data_n = 0;
    last_evaluated(&o, 2);
    assert_int_equal(windows_there(parts, o.seq_len), 8);
    o.resume = true;
    o.steps = 6;
    o.eval_data_n = 1;
    o.micro_batch = 1;
    assert_true(last_evaluated(&o, 6) == straight && straight != 0);
    assert_same_file(whole, parts, "reference.bin");
    assert_same_file(whole, parts, "reference-eval.bin");
    o.steps = 7;
    o.model = other_model();
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_FAILED);
    if (!strstr(e.text, "other_model"))
        fail_msg("%s", e.text);
}

static void the_reference_is_of_what_the_run_sees(void **state)
{
    check_extended("full", NULL, 0, PT_PRECISION_BF16);
    check_extended("new_adapter", NULL, 2, PT_PRECISION_BF16);
    check_extended("adapter", adapter, 0, PT_PRECISION_FP32);
}

/* A share of the pairs is held out. */
static void pairs_are_held_out(void **state)
{
    char out[300];
    snprintf(out, sizeof out, "%s/split", scratch);
    pt_train_options o = options_for(out);
    o.steps = 2;
    o.eval_split = 0.2;
    o.eval_every = 1;
    pt_trainer *t = open_run(&o);
    for (int i = 0; i < 2; i++) {
        const pt_step s = take_step(t);
        assert_true(s.evaluated && s.eval_loss > 0 && s.eval_reward_margin != 0);
        assert_true(s.eval_reward_accuracy >= 0 && s.eval_reward_accuracy <= 1);
    }
    pt_trainer_close(t);
}

static void put_data(const char *text) { scratch_put("other.jsonl", text, strlen(text)); }

static void refuse(pt_train_options o, const char *because)
{
    pt_error e = {0};
    pt_trainer *t;
    assert_true(pt_trainer_open(&o, &t, &e) < 0);
    if (!strstr(e.text, because))
        fail_msg("'%s' does not say '%s'", e.text, because);
}

static void what_cannot_be_compared_is_refused(void **state)
{
    char out[300], other[300];
    const char *paths[] = {other};
    snprintf(out, sizeof out, "%s/refused", scratch);
    snprintf(other, sizeof other, "%s/other.jsonl", scratch);
    pt_train_options o = options_for(out);
    o.beta = 0;
    refuse(o, "`beta`");
    o = options_for(out);
    o.eval_data = paths;
    o.eval_data_n = 1;
    put_data("{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    refuse(o, "other.jsonl: `task` dpo needs records with \"chosen\"");
    o = options_for(out);
    o.task = PT_TASK_SFT;
    refuse(o, "`task` dpo");
    o = options_for(out);
    o.data = paths;
    put_data("{\"prompt\": \"a\", \"completion\": \"b\"}\n");
    refuse(o, "\"chosen\" and \"rejected\"");
    o.task = PT_TASK_KTO;
    refuse(o, "line 1: there is no label");
    put_data("{\"text\": \"a\"}\n");
    refuse(o, "`task` kto needs");
    o.task = PT_TASK_DPO;
    put_data("{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": [\"c\"]}\n");
    refuse(o, "line 1: \"chosen\" is a string and \"rejected\" a list");
    o.long_examples = PT_LONG_ERROR;
    o.seq_len = 16;
    put_data("{\"prompt\": \"aaaaaaaa\", \"chosen\": \"bbbbbb\", \"rejected\": \"cccccc\"}\n");
    refuse(o, "line 1: a pair has 30 tokens, but a window has 16: give `seq_len` 28");
    o.seq_len = 64;
    o.batch_size = 4;
    o.drop_last = true;
    refuse(o, "1 window of 64 tokens, and a step takes 4");
    o.drop_last = false;
    o.batch_size = 1;
    pt_trainer *t;
    pt_error e = {0};
    must(pt_trainer_open(&o, &t, &e), &e);
    pt_trainer_close(t);
}

static void eval_says_where_pairs_are_evaluated(void **state)
{
    (void)state;
    const char *paths[] = {held};
    pt_evaluate_options o;
    pt_evaluation v;
    pt_error e = {0};
    pt_evaluate_defaults(&o);
    o.model = model_folder;
    o.data = paths;
    o.data_n = 1;
    assert_int_equal(pt_evaluate(&o, &v, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "by the run that trains on such (`task` dpo and others, with `eval_data` or `eval_split`)"));
}

static int open_all(void **state)
{
    snprintf(model_folder, sizeof model_folder, "%s/dpo", fixtures_root());
    snprintf(pairs, sizeof pairs, "%s/dpo/pairs.jsonl", fixtures_root());
    snprintf(held, sizeof held, "%s/dpo/held.jsonl", fixtures_root());
    snprintf(adapter, sizeof adapter, "%s/dpo/adapter", fixtures_root());
    return scratch_make(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_trl), cmocka_unit_test(steps_without_a_reference_are_those_of_trl),
        cmocka_unit_test(steps_of_labels_are_those_of_trl), cmocka_unit_test(steps_that_weigh_lengths_are_those_of_trl),
        cmocka_unit_test(steps_of_experts_are_those_of_trl),
        cmocka_unit_test(steps_of_replies_are_those_of_transformers), cmocka_unit_test(replies_of_a_window_are_mismatched_with_each_other),
        cmocka_unit_test(packed_pairs_are_as_if_alone),
        cmocka_unit_test(a_resumed_run_has_the_same_losses),
        cmocka_unit_test(losses_that_are_not_the_run_s_are_computed_again), cmocka_unit_test(losses_of_anything_else_end_the_run),
        cmocka_unit_test(the_reference_is_of_what_the_run_sees), cmocka_unit_test(pairs_are_held_out),
        cmocka_unit_test(what_cannot_be_compared_is_refused), cmocka_unit_test(eval_says_where_pairs_are_evaluated)};
    return cmocka_run_group_tests(tests, open_all, scratch_remove);
}
