/* What a run refuses, and what it leaves behind when it does. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "test_device.h"
#include "train/fixture.h"
#include "seed.h"

#include <sys/stat.h>

typedef struct run {
    fixture f;
    const char *data[1];
    char out[128];
    pt_train_options o;
} run;

static void run_make(run *r, const char *out)
{
    memset(r, 0, sizeof *r);
    fixture_open(&r->f, "models", "llama_bf16");
    r->data[0] = r->f.tokens;
    snprintf(r->out, sizeof r->out, "%s/%s", scratch, out);
    fixture_options(&r->f, r->data, r->out, &r->o);
    r->o.steps = 20;
}

static pt_trainer *run_open(run *r)
{
    pt_error e = {0};
    pt_trainer *t;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    return t;
}

typedef struct blob { char *bytes; size_t n; } blob;

static void note_micro_batch(void *arg, const char *sentence)
{
    if (strstr(sentence, "`micro_batch`"))
        snprintf(arg, 300, "%s", sentence);
}

/* A GPU computes as many times more of these small models' tokens together: 8192, not 2048. */
static int64_t times_more(void) { return on_gpu() ? 4 : 1; }

/* So many tokens would be measured, and computed, for minutes where kernels are emulated. */
static bool takes_minutes(const run *r) { return test_device_is_emulated() && r->o.batch_size * r->o.seq_len > 1000; }
static const char *machine_of_a_gpu(void) { return on_gpu() ? PT_FIXTURES "/../../machines/rtx3090.json" : NULL; }

/* A file of random ids below `below`. */
static void write_tokens(const char *path, int below)
{
    static uint16_t ids[20000];
    uint64_t seed = test_seed();
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        ids[i] = (uint16_t)(rng_uniform(seed, RNG_TEST, 0, i) * below);
    write_npy(path, ids, sizeof ids / sizeof *ids);
}

static void a_run_that_cannot_begin_leaves_no_folder(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    run_make(&r, "never");
    const pt_train_options good = r.o;
    r.o.model = "no/such/model";
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_false(path_exists(r.out));
    r.o = good;
    r.data[0] = "no/such/data.txt";
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_false(path_exists(r.out));
    must(dir_make(r.out, &e), &e); /* one that was there stays */
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_true(path_exists(r.out));
    fixture_close(&r.f);
}

/* Whatever is refused late: nothing is left that would refuse the next try. */
static void a_run_that_is_refused_late_leaves_nothing_in_the_way(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    char path[160], aside[160];
    run_make(&r, "late");
    must(dir_make(r.out, &e), &e);
    snprintf(path, sizeof path, "%s/plan.json", r.out);
    snprintf(aside, sizeof aside, "%s/plan.json.tmp", r.out); /* a folder of this name: plan.json cannot be written */
    must(dir_make(aside, &e), &e);
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "plan.json"));
    must(tree_remove(aside, &e), &e);
    pt_trainer_close(run_open(&r));
    assert_true(path_exists(path));
    fixture_close(&r.f);
}

static void a_disk_tiers_folder_goes_with_the_run(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    char path[160];
    run_make(&r, "disk");
    snprintf(path, sizeof path, "%s/disk", r.out);
    r.o.device_memory = 1;
    r.o.host_memory = on_gpu() ? 1 : PT_AUTO; /* there always is one beside a GPU */
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_DOES_NOT_FIT);
    assert_false(path_exists(path));
    r.o.device_memory = advised(&e, "`device_memory`", 1);
    r.o.host_memory = on_gpu() ? advised(&e, "`host_memory`", 1) : PT_AUTO;
    t = run_open(&r);
    pt_summary s;
    pt_trainer_summary(t, &s);
    assert_string_equal(s.memory[s.memory_n - 1].tier, "disk");
    assert_true(path_exists(path));
    pt_trainer_close(t);
    assert_false(path_exists(path));
    fixture_close(&r.f);
}

static void absurd_options_are_refused(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    run_make(&r, "absurd");
    const pt_train_options good = r.o;
#define REFUSED(field, value, code, word)                                       \
    r.o = good;                                                                 \
    r.o.field = value;                                                          \
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), code);                      \
    if (!strstr(e.text, word))                                                  \
        fail_msg("%s: \"%s\"", word, e.text)
    REFUSED(device, NULL, PT_USAGE, "`device`");
    REFUSED(device, "abacus", PT_USAGE, "abacus");
    REFUSED(precision, (pt_precision)7, PT_USAGE, "`precision`");
    REFUSED(optimizer, (pt_optimizer)99, PT_USAGE, "`optimizer`");
    REFUSED(momentum, 0.9, PT_USAGE, "`momentum`");
    REFUSED(lr_adjust, PT_LR_ADJUST_RMS, PT_USAGE, "`lr_adjust`");
    REFUSED(lr_adjust, PT_LR_ADJUST_ORIGINAL, PT_USAGE, "`lr_adjust`");
    REFUSED(lr_adjust, (pt_lr_adjust)4, PT_USAGE, "`lr_adjust`");
    REFUSED(lr_schedule, (pt_lr_schedule)-1, PT_USAGE, "`lr_schedule`");
    REFUSED(save_type, (pt_save_type)4, PT_USAGE, "`save_type`");
    REFUSED(eval_data_n, 1, PT_USAGE, "`eval_data`");
    REFUSED(lr, -1, PT_USAGE, "`lr`");
    REFUSED(host_memory, UINT64_MAX - 5, PT_DOES_NOT_FIT, "`host_memory`");
    r.o = good;
    r.o.device_memory = 1ull << 63; /* the sum of both is small again */
    r.o.host_memory = (1ull << 63) + (1 << 20);
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_DOES_NOT_FIT);
#undef REFUSED
    fixture_close(&r.f);
}

static void an_option_that_contradicts_the_plan_is_refused(void **state)
{
    (void)state;
    run r;
    char path[160], tokens[160], said[2][48];
    pt_trainer *t;
    pt_error e = {0};
    const int64_t unit = 8 * times_more();
    run_make(&r, "micro");
    snprintf(tokens, sizeof tokens, "%s.npy", r.out);
    write_tokens(tokens, 61);
    r.data[0] = tokens;
    r.o.batch_size = 2 * unit;
    r.o.seq_len = 256;
    r.o.micro_batch = unit;
    r.o.machine_file = machine_of_a_gpu();
    t = run_open(&r);
    char *json = pt_trainer_plan_json(t);
    pt_trainer_close(t);
    snprintf(path, sizeof path, "%s.plan.json", r.out);
    must(file_write_atomic(path, json, strlen(json), &e), &e);
    free(json);
    snprintf(r.out, sizeof r.out, "%s/micro2", scratch);
    r.o.plan_file = path;
    r.o.micro_batch = 2 * unit;
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_USAGE);
    snprintf(said[0], sizeof said[0], "`micro_batch` is %lld,", (long long)(2 * unit));
    snprintf(said[1], sizeof said[1], "\"micro_batch\" is %lld ", (long long)unit);
    assert_non_null(strstr(e.text, said[0]));
    assert_non_null(strstr(e.text, said[1]));
    r.o.micro_batch = unit;
    pt_trainer_close(run_open(&r));
    fixture_close(&r.f);
}

/* Trains so far, and gives the weights. */
static blob weights_after(run *r, int steps)
{
    char path[200];
    blob b;
    pt_error e = {0};
    pt_step s;
    pt_trainer *t = run_open(r);
    for (int i = 0; i < steps; i++)
        assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
    snprintf(path, sizeof path, "%s/model.safetensors", r->out);
    must(file_read_all(path, 1 << 24, &b.bytes, &b.n, &e), &e);
    return b;
}

static blob nothing_after(run *r)
{
    pt_trainer_close(run_open(r));
    return (blob){0};
}

static void longer_sequences_than_positions_are_refused(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    run_make(&r, "long");
    r.o.seq_len = 130;
    r.o.rope_scaling = NULL;
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`seq_len` is 130, more than the model's 128 positions: a larger factor in its config.json extends "
                                   "them"));
    fixture_close(&r.f);
}

/* What is computed together is never cut: a smaller micro-batch is taken, and becomes that. */
static void a_micro_batch_that_cannot_be_becomes_the_next_larger_one(void **state)
{
    (void)state;
    static const struct { int64_t batch, seq_len, asked, together, is; } cases[] = {
        {16, 256, 1, 8, 8}, {8, 8, 1, 8, 8}, {12, 384, 6, 4, 12}, {16, 256, 8, 8, 8}};
    const int64_t n = times_more();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run r;
        blob b[2];
        char noted[300] = "", said[300] = "", tokens[160], name[32];
        if (cases[i].is != cases[i].asked)
            snprintf(said, sizeof said, "`micro_batch` is raised from %lld to %lld: at least %lld sequences are computed together",
                     (long long)(n * cases[i].asked), (long long)(n * cases[i].is), (long long)(n * cases[i].together));
        for (int asks = 0; asks < 2; asks++) {
            snprintf(name, sizeof name, "next-%zu-%d", i, asks);
            run_make(&r, name);
            snprintf(tokens, sizeof tokens, "%s/next.npy", scratch);
            if (!i && !asks)
                write_tokens(tokens, 61);
            r.data[0] = tokens;
            r.o.batch_size = n * cases[i].batch;
            r.o.seq_len = cases[i].seq_len;
            r.o.micro_batch = asks ? n * cases[i].asked : 0;
            r.o.steps = 1;
            r.o.machine_file = machine_of_a_gpu();
            r.o.notice = note_micro_batch;
            r.o.arg = noted;
            b[asks] = takes_minutes(&r) ? nothing_after(&r) : weights_after(&r, 1);
            assert_string_equal(noted, asks ? said : "");
            fixture_close(&r.f);
        }
        assert_true(b[0].n == b[1].n && (!b[0].n || memcmp(b[0].bytes, b[1].bytes, b[0].n) == 0));
        free(b[0].bytes);
        free(b[1].bytes);
    }
}

static void a_micro_batch_that_does_not_divide_the_batch_is_refused(void **state)
{
    (void)state;
    static const struct {
        int64_t asked;
        const char *said;
    } cases[] = {{3, "`micro_batch` 3 does not divide `batch_size` 4: give a divisor, or leave it out"},
                 {8, "`micro_batch` 8 is more than `batch_size` 4: give a divisor of the batch size, or leave it out"}};
    for (int i = 0; i < 2; i++) {
        run r;
        pt_trainer *t;
        pt_error e = {0};
        run_make(&r, "no-part");
        r.o.batch_size = 4;
        r.o.micro_batch = cases[i].asked;
        assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_USAGE);
        assert_string_equal(e.text, cases[i].said);
        fixture_close(&r.f);
    }
}

static void a_given_plan_must_leave_room_for_saving(void **state)
{
    (void)state;
    run r;
    char path[160];
    pt_error e = {0};
    run_make(&r, "room");
    pt_trainer *t = run_open(&r);
    pt_summary s;
    pt_trainer_summary(t, &s);
    uint64_t need = s.memory[0].predicted_bytes;
    char *json = pt_trainer_plan_json(t);
    pt_trainer_close(t);
    snprintf(path, sizeof path, "%s.plan.json", r.out);
    must(file_write_atomic(path, json, strlen(json), &e), &e);
    free(json);
    r.o.plan_file = path;
    snprintf(r.out, sizeof r.out, "%s/room2", scratch);
    for (uint64_t budget = 1 << 20; budget < need; budget += need / 7) {
        r.o.device_memory = budget;
        assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_DOES_NOT_FIT);
    }
    r.o.device_memory = need;
    pt_trainer_close(run_open(&r));
    fixture_close(&r.f);
}

static void a_checkpoint_is_written_once_a_step(void **state)
{
    (void)state;
    run r;
    char path[160];
    struct stat first, second;
    pt_error e = {0};
    pt_step s;
    run_make(&r, "once");
    r.o.save_every = 1;
    pt_trainer *t = run_open(&r);
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    snprintf(path, sizeof path, "%s/checkpoint-1", r.out);
    assert_int_equal(stat(path, &first), 0);
    must(pt_trainer_save(t, &e), &e);
    assert_int_equal(stat(path, &second), 0);
    assert_true(first.st_ino == second.st_ino && first.st_ctim.tv_nsec == second.st_ctim.tv_nsec);
    must(tree_remove(path, &e), &e);
    must(pt_trainer_save(t, &e), &e);
    assert_true(path_exists(path));
    pt_trainer_close(t);
    fixture_close(&r.f);
}

/* The plan that the run finds, with updates during backward: at another time none has run when a step turns out to be bad. */
static void update_during_backward(run *r, const char *path)
{
    pt_error e = {0};
    pt_trainer *t = run_open(r);
    char *json = pt_trainer_plan_json(t);
    json_t *plan = json_loads(json, 0, NULL);
    pt_trainer_close(t);
    free(json);
    assert_int_equal(json_object_set_new(plan, "update", json_string("backward")), 0);
    json = json_dumps(plan, 0);
    must(file_write_atomic(path, json, strlen(json), &e), &e);
    free(json);
    json_decref(plan);
    must(tree_remove(r->out, &e), &e);
    r->o.plan_file = path;
}

static void weights_that_a_bad_step_may_have_changed_are_not_saved(void **state)
{
    (void)state;
    run r;
    char path[160], plan[160];
    pt_error e = {0};
    pt_step s = {0};
    run_make(&r, "broken");
    r.o.max_grad_norm = 0;
    snprintf(plan, sizeof plan, "%s/broken.plan.json", scratch);
    update_during_backward(&r, plan);
    r.o.lr = 1e3;
    r.o.steps = 200;
    r.o.beta2 = 0;
    pt_trainer *t = run_open(&r);
    int more = 1;
    while (more > 0)
        more = pt_trainer_step(t, &s, &e);
    assert_int_equal(more, PT_FAILED);
    assert_int_equal(pt_trainer_save(t, &e), PT_FAILED);
    assert_int_equal(pt_trainer_finish(t, &e), PT_FAILED);
    snprintf(path, sizeof path, "%s/model.safetensors", r.out);
    assert_false(path_exists(path));
    pt_trainer_close(t);
    fixture_close(&r.f);
}

static void note(void *arg, const char *sentence) { snprintf(arg, 300, "%s", sentence); }

/* Of a token that training never meets the embedding is no number after an update by 0 / (0 + 0). */
static void an_evaluation_that_is_not_finite_does_not_vanish(void **state)
{
    (void)state;
    run r;
    pt_error e = {0};
    pt_step s;
    char path[200], tokens[2][160], noted[300] = "", *metrics;
    size_t n;
    run_make(&r, "not-finite");
    snprintf(tokens[0], sizeof tokens[0], "%s-train.npy", r.out);
    snprintf(tokens[1], sizeof tokens[1], "%s-eval.npy", r.out);
    write_tokens(tokens[0], 60);
    write_tokens(tokens[1], 61);
    r.data[0] = tokens[0];
    r.o.eps = 0;
    r.o.eval_data = (const char *const[]){tokens[1]};
    r.o.eval_data_n = 1;
    r.o.eval_every = 1;
    r.o.notice = note;
    r.o.arg = noted;
    pt_trainer *t = run_open(&r);
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    assert_true(isfinite(s.loss) && s.evaluated && !isfinite(s.eval_loss));
    assert_non_null(strstr(noted, "step 1"));
    pt_trainer_close(t);
    snprintf(path, sizeof path, "%s/metrics.jsonl", r.out);
    must(file_read_all(path, 1 << 20, &metrics, &n, &e), &e);
    json_t *line = json_loads(metrics, 0, NULL);
    assert_true(json_is_null(json_object_get(line, "eval_loss")) && json_is_real(json_object_get(line, "loss")));
    json_decref(line);
    free(metrics);
    fixture_close(&r.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_cannot_begin_leaves_no_folder),
        cmocka_unit_test(a_run_that_is_refused_late_leaves_nothing_in_the_way),
        cmocka_unit_test(a_disk_tiers_folder_goes_with_the_run),
        cmocka_unit_test(absurd_options_are_refused),
        cmocka_unit_test(an_option_that_contradicts_the_plan_is_refused),
        cmocka_unit_test(longer_sequences_than_positions_are_refused),
        cmocka_unit_test(a_micro_batch_that_cannot_be_becomes_the_next_larger_one),
        cmocka_unit_test(a_micro_batch_that_does_not_divide_the_batch_is_refused),
        cmocka_unit_test(an_evaluation_that_is_not_finite_does_not_vanish),
        cmocka_unit_test(a_given_plan_must_leave_room_for_saving),
        cmocka_unit_test(a_checkpoint_is_written_once_a_step),
        cmocka_unit_test(weights_that_a_bad_step_may_have_changed_are_not_saved),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
