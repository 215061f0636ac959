/* Training some layers at a time: each pass takes every group once, in an order of its own; a run is the same as runs one after another
 * that train only one group each, bit for bit, under every budget and number of ranks and after every resume; what every turn trains is
 * trained as in PyTorch; and what it refuses. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "train/block_turns.h"
#include "train/same_end.h"
#include "program.h"
#include "sanitized.h"
#include "seed.h"

enum { EVERY = 2, TURNS = 4 };

static uint64_t seed, draws;

static int64_t below(int64_t n)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 77, draws++, w);
    return (int64_t)(w[0] % (uint32_t)n);
}

/* ---- the order ---- */

static void a_pass_takes_every_group_once(void **state)
{
    (void)state;
    model m = {.blocks_n = 0};
    for (int turn = 0; turn < 200; turn++) {
        m.config.layers = 1 + (int)below(70);
        pt_train_options o = {.train_blocks = 1 + below(m.config.layers), .switch_every = 1 + below(5), .seed = seed + (uint64_t)turn};
        const int groups = block_turns_groups(&o, &m);
        assert_int_equal(groups, (m.config.layers + o.train_blocks - 1) / o.train_blocks);
        for (int64_t pass = 0, last = -1; pass < 6; pass++) {
            bool seen[128] = {false};
            for (int64_t i = 0; i < groups; i++) {
                const int64_t first = (pass * groups + i) * o.switch_every;
                const int group = block_turns_group(&o, &m, first);
                assert_int_equal(group, block_turns_group(&o, &m, first + o.switch_every - 1));
                assert_true(group >= 0 && group < groups && !seen[group] && (group != last || groups == 1));
                seen[group] = true;
                last = group;
            }
        }
    }
}

static void seeds_and_passes_have_orders_of_their_own(void **state)
{
    (void)state;
    model m = {.config = {.layers = 24}};
    pt_train_options o = {.train_blocks = 1, .switch_every = 1, .seed = seed}, other = o;
    other.seed++;
    int passes = 0, seeds = 0;
    for (int i = 0; i < 24; i++) {
        passes += block_turns_group(&o, &m, i) != block_turns_group(&o, &m, 24 + i);
        seeds += block_turns_group(&o, &m, i) != block_turns_group(&other, &m, i);
    }
    assert_true(passes > 8 && seeds > 8); /* of 24; 23 are to be expected */
}

/* ---- bits ---- */

/* One window, which every step takes. */
static const char *one_window(const fixture *f, int64_t tokens)
{
    static char path[300];
    uint16_t ids[256];
    for (int64_t i = 0; i < tokens; i++)
        ids[i] = (uint16_t)(1 + below(f->model->config.vocab - 1));
    snprintf(path, sizeof path, "%s/window.npy", scratch);
    write_npy(path, ids, (size_t)tokens);
    return path;
}

static void turn_options(const fixture *f, const char *const *data, const char *out, pt_train_options *o)
{
    fixture_options(f, data, out, o);
    o->batch_size = 1;
    o->lr_schedule = PT_LR_CONSTANT;
    o->warmup_steps = 0;
    o->keep = 0;
    o->seed = seed;
}

/* The names of what a group has. */
static int names_of(const model *m, const pt_train_options *o, int group, const char *names[512])
{
    int n = 0;
    for (int i = 0; i < m->params_n; i++) {
        const int layer = m->params[i].block - 1;
        const bool of_group = m->params[i].kind->block == BLOCK_LAYER && layer / o->train_blocks == group;
        for (int k = 0; k < m->params[i].parts && of_group; k++)
            names[n++] = m->params[i].part[k].name;
    }
    assert_true(n > 0 && n <= 512);
    return n;
}

static void compare_with_runs(const char *kind, const char *name, pt_precision precision, pt_save_type type, int64_t layers)
{
    fixture f;
    pt_train_options o, one;
    pt_error e = {0};
    char out[200], step[TURNS][200];
    const char *names[512];
    fixture_open(&f, kind, name);
    const char *data[] = {one_window(&f, (int64_t)fixture_setting(&f, "seq_len") + 1)};
    snprintf(out, sizeof out, "%s/%s-turns", scratch, name);
    turn_options(&f, data, out, &o);
    o.precision = precision;
    o.save_type = type;
    o.train_blocks = layers;
    o.switch_every = EVERY;
    o.steps = TURNS * EVERY - 1;
    must(train_to(&o, o.steps, &e), &e);
    for (int turn = 0; turn < TURNS; turn++) {
        snprintf(step[turn], sizeof step[turn], "%s/%s-turn-%d", scratch, name, turn);
        turn_options(&f, data, step[turn], &one);
        one.model = turn ? step[turn - 1] : f.folder;
        one.precision = precision;
        one.save_type = type;
        one.steps = EVERY - (turn == TURNS - 1);
        one.train_only_n = names_of(f.model, &o, block_turns_group(&o, f.model, turn * EVERY), names);
        one.train_only = names;
        must(train_to(&one, one.steps, &e), &e);
    }
    assert_same_file(out, step[TURNS - 1], "model.safetensors");
    fixture_close(&f);
}

static void turns_are_runs_one_after_another(void **state)
{
    static const char *const drawn[] = {"bamba", "qwen3_moe", "gemma4", "olmo3", "qwen3_5", "lfm2", "granitemoehybrid", "cohere2", "gpt2"};
    (void)state;
    compare_with_runs("models", "llama_bf16", PT_PRECISION_BF16, PT_SAVE_AS_STORED, 1);
    compare_with_runs("models", drawn[below(sizeof drawn / sizeof *drawn)], PT_PRECISION_FP32, PT_SAVE_F32, 1);
    compare_with_runs("prequantized", "llama_nf4", PT_PRECISION_BF16, PT_SAVE_AS_STORED, 1); /* from the decoded values */
}

/* ---- what every turn trains ---- */

static float *trained_parameter(void *arg, int index)
{
    const fixture *after = arg;
    return read_parameter(after->model, after->weights, index);
}

/* The states of both tables go on over the turns (make_turns.py). */
static void tables_are_trained_in_every_turn_as_in_pytorch(void **state)
{
    (void)state;
    fixture f, turns, after;
    pt_train_options o;
    pt_error e = {0};
    pt_trainer *t;
    pt_step s;
    int more, done = 0;
    fixture_open(&f, "models", "llama");
    turns = f;
    must(json_file_load(PT_FIXTURES "/turns/llama/reference.json", 0, &turns.json, &e), &e);
    must(safetensors_open(PT_FIXTURES "/turns/llama/reference.safetensors", &turns.reference, &e), &e);
    fixture_options(&turns, (const char *const[]){f.tokens}, scratch_path("tables"), &o);
    o.train_blocks = 1;
    o.switch_every = (int64_t)fixture_setting(&turns, "switch_every");
    o.train_also = json_string_value(json_object_get(turns.json, "train_also"));
    must(pt_trainer_open(&o, &t, &e), &e);
    while ((more = pt_trainer_step(t, &s, &e)) > 0) {
        const double loss = fixture_of_step(&turns, "loss_fp64", done), norm = fixture_of_step(&turns, "grad_norm_fp64", done);
        if (!(fabs(s.loss / loss - 1) <= 1e-5) || !(fabs(s.grad_norm / norm - 1) <= 1e-4))
            fail_msg("step %d: loss %.9f, norm %.9f, in fp64 %.9f, %.9f", done + 1, s.loss, s.grad_norm, loss, norm);
        done++;
    }
    must(more, &e);
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
    assert_int_equal(done, 5);
    after = f;
    must(safetensors_open(o.out, &after.weights, &e), &e);
    print_message("update %.1e\n", worst_update(&turns, trained_parameter, &after, 1e-3));
    safetensors_close(after.weights);
    json_decref(turns.json);
    safetensors_close(turns.reference);
    fixture_close(&f);
}

/* As much memory as each group's leanest plan takes, and states on the disk. */
static void leanest(pt_train_options *o, int64_t steps)
{
    pt_error e = {0};
    o->disk_memory = 64u << 20;
    o->device_memory = 1 << 10;
    for (int tries = 0; tries < 8; tries++) {
        const int failed = train_to(o, steps, &e);
        if (failed != PT_DOES_NOT_FIT) {
            must(failed, &e);
            return;
        }
        const uint64_t more = advised(&e, "`device_memory`", 0);
        if (more <= o->device_memory)
            fail_msg("%s", e.text);
        o->device_memory = more;
    }
    fail_msg("%s", e.text);
}

static void budgets_and_resumes_change_no_bit(void **state)
{
    static const char *const drawn[] = {"llama_bf16", "llama", "bamba", "gemma4", "qwen3_moe"};
    const char *also[] = {NULL, "embed_tokens", "embed_tokens,norm"};
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    char straight[200], lean[200];
    (void)state;
    fixture_open(&f, "models", drawn[below(sizeof drawn / sizeof *drawn)]);
    also[2] = strcmp(f.name, "bamba") ? also[2] : "embed_tokens,final_layernorm";
    const char *data[] = {f.tokens};
    snprintf(straight, sizeof straight, "%s/straight", scratch);
    snprintf(lean, sizeof lean, "%s/lean", scratch);
    turn_options(&f, data, straight, &o);
    o.precision = below(2) ? PT_PRECISION_BF16 : PT_PRECISION_FP32;
    o.save_type = below(2) ? PT_SAVE_AS_STORED : PT_SAVE_F32;
    o.train_blocks = 1;
    o.switch_every = 1 + below(3);
    o.train_also = also[below(3)];
    o.optimizer = below(2) ? PT_OPTIMIZER_ADAMW : PT_OPTIMIZER_ADAMW8BIT;
    o.batch_size = 2;
    o.steps = 9;
    o.save_every = 9;
    must(train_to(&o, 9, &e), &e);
    o.out = lean;
    const int64_t first = 1 + below(4), second = first + 1 + below(4);
    leanest(&o, first);
    o.resume = true;
    must(train_to(&o, second, &e), &e);
    must(train_to(&o, 9, &e), &e);
    print_message("%s, %s, %s: turns of %lld, beside %s, resumed after %lld and %lld, %llu bytes: the same bits\n", f.name,
                  o.precision == PT_PRECISION_BF16 ? "bf16" : "fp32", o.optimizer ? "8-bit states" : "adamw", (long long)o.switch_every,
                  o.train_also ? o.train_also : "nothing", (long long)first, (long long)second, (unsigned long long)o.device_memory);
    assert_same_end(straight, lean, 9);
    fixture_close(&f);
}

/* A model in bf16 whose checkpoints are in fp32: what a turn has trained is rounded when it is frozen, also for its next turn, wherever the
 * run was interrupted. */
static void a_frozen_layer_goes_on_as_it_was_rounded(void **state)
{
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    char straight[200], resumed[200];
    (void)state;
    fixture_open(&f, "models", "llama_bf16");
    const char *data[] = {f.tokens};
    snprintf(straight, sizeof straight, "%s/fp32-straight", scratch);
    snprintf(resumed, sizeof resumed, "%s/fp32-resumed", scratch);
    turn_options(&f, data, straight, &o);
    o.precision = PT_PRECISION_BF16;
    o.save_type = PT_SAVE_F32;
    o.train_blocks = 1;
    o.switch_every = 2;
    o.steps = o.save_every = 8;
    must(train_to(&o, 8, &e), &e);
    o.out = resumed;
    for (int64_t after = 1; after < 8; after++) {
        o.resume = false;
        must(train_to(&o, after, &e), &e);
        o.resume = true;
        must(train_to(&o, 8, &e), &e);
        assert_same_end(straight, resumed, 8);
        must(tree_remove(resumed, &e), &e);
    }
    fixture_close(&f);
}

static void other_names_are_refused_and_another_order_is_not(void **state)
{
    (void)state;
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    fixture_open(&f, "models", "llama");
    const char *data[] = {f.tokens};
    turn_options(&f, data, scratch_path("order"), &o);
    o.train_blocks = 1;
    o.train_also = "embed_tokens,norm";
    o.steps = 3;
    must(train_to(&o, 1, &e), &e);
    o.resume = true;
    o.train_also = "norm,embed_tokens";
    must(train_to(&o, 2, &e), &e);
    o.train_also = "norm,lm_head";
    assert_int_equal(train_to(&o, 3, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`train_also`"));
    o.train_also = "norm";
    assert_int_equal(train_to(&o, 3, &e), PT_FAILED);
    o.train_also = "embed_tokens,norm,lm_head";
    assert_int_equal(train_to(&o, 3, &e), PT_FAILED);
    fixture_close(&f);
}

/* ---- ranks ---- */

static void run_ranks(const char *out, int ranks, int steps, int every, const char *also)
{
    char n[3][16];
    arguments a = {.n = 0};
    snprintf(n[0], sizeof n[0], "%d", ranks);
    snprintf(n[1], sizeof n[1], "%d", steps);
    snprintf(n[2], sizeof n[2], "%d", every);
    add_arguments(&a, WORDS("train", "--model", PT_FIXTURES "/models/llama_bf16", "--data", PT_FIXTURES "/models/llama_bf16/tokens.npy",
                            "--out", out, "--seq-len", "8", "--batch-size", "2", "--lanes", "2", "--ranks", n[0], "--steps", n[1],
                            "--train-blocks", "1", "--switch-every", n[2], "--save-every", "1", "--device-memory", "64MiB",
                            "--disk-memory", "0", "--lr", "1e-3", "--lr-schedule", "constant", "--warmup-steps", "0", "--threads", "1",
                            "--resume", "--quiet"));
    if (also)
        add_arguments(&a, WORDS("--train-also", also));
    const int status = program_kill_after(program_start(&a, "/dev/null", scratch_path("err")), 120);
    if (status)
        fail_msg("%d ranks: exit status %d: %s", ranks, status, text_of(scratch_path("err")));
}

static void any_number_of_ranks_takes_the_same_turns(void **state)
{
    if (EMULATED)
        skip();
    enum { STEPS = 6 };
    const int every = 1 + (int)below(3), first = 1 + (int)below(STEPS - 1), ranks = 1 + (int)below(2);
    const char *also = below(3) ? "embed_tokens,lm_head" : NULL;
    char one[200], other[200];
    (void)state;
    snprintf(one, sizeof one, "%s/one", scratch);
    snprintf(other, sizeof other, "%s/other", scratch);
    run_ranks(one, 1, STEPS, every, also);
    run_ranks(other, 3 - ranks, first, every, also);
    run_ranks(other, ranks, STEPS, every, also);
    assert_same_end(one, other, STEPS);
    print_message("turns of %d beside %s, %d ranks to step %d, then %d: the same bits\n", every, also ? also : "nothing", 3 - ranks, first,
                  ranks);
}

/* ---- refusals ---- */

static void refuse(void (*change)(pt_train_options *), const char *word)
{
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    pt_trainer *t;
    char out[200];
    fixture_open(&f, "models", "llama");
    const char *data[] = {f.tokens};
    snprintf(out, sizeof out, "%s/refused", scratch);
    turn_options(&f, data, out, &o);
    o.train_blocks = 1;
    change(&o);
    assert_int_equal(pt_trainer_open(&o, &t, &e), PT_USAGE);
    if (!strstr(e.text, word))
        fail_msg("%s", e.text);
    assert_false(path_exists(out));
    fixture_close(&f);
}

static void too_many(pt_train_options *o) { o->train_blocks = 3; }
static void with_lora(pt_train_options *o) { o->lora_rank = 4; }
static void with_base(pt_train_options *o) { o->base = PT_BASE_NF4; }
static void with_plan(pt_train_options *o) { o->plan_file = "plan.json"; }
static void with_head(pt_train_options *o) { o->task = PT_TASK_REWARD; }
static void with_layer(pt_train_options *o) { o->train_also = "embed_tokens,q_proj"; }
static void with_nothing(pt_train_options *o)
{
    static const char *const layers[] = {"model.layers.*"};
    o->train_also = "norm";
    o->freeze = layers;
    o->freeze_n = 1;
}

static void what_has_no_sense_with_turns_is_refused(void **state)
{
    (void)state;
    refuse(too_many, "`train_blocks` is 3, but the model has 2 layers");
    refuse(with_lora, "`train_blocks` trains the model's own layers and `lora_rank`");
    refuse(with_base, "`base` keeps matrices in few bits, and `train_blocks`");
    refuse(with_plan, "`plan_file` has the plan of one set of trained layers, and `train_blocks`");
    refuse(with_head, "`train_blocks` and `task`, which needs the head trained");
    refuse(with_layer, "`train_also`: 'q_proj' is not a module outside the layers");
    refuse(with_nothing, "leave nothing to train in some layers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_pass_takes_every_group_once),
                                       cmocka_unit_test(seeds_and_passes_have_orders_of_their_own),
                                       cmocka_unit_test(turns_are_runs_one_after_another),
                                       cmocka_unit_test(tables_are_trained_in_every_turn_as_in_pytorch),
                                       cmocka_unit_test(budgets_and_resumes_change_no_bit),
                                       cmocka_unit_test(a_frozen_layer_goes_on_as_it_was_rounded),
                                       cmocka_unit_test(other_names_are_refused_and_another_order_is_not),
                                       cmocka_unit_test(any_number_of_ranks_takes_the_same_turns),
                                       cmocka_unit_test(what_has_no_sense_with_turns_is_refused)};
    seed = test_seed();
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
