/* A run that moves to another plan between two steps, also when memory cannot be had, ends in the bits of one that did not. */
#include "train/ranks.h"
#include "train/replan.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "io/filter_call.h"
#include "train/apart.h"
#include "train/group.h"
#include "train/same_end.h"

#include "base/units.h"
#include "random_plan.h"
#include "sanitized.h"
#include "test_device.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

enum { STEPS = 10, BUDGET = 64 << 20 };

typedef struct setting { const char *fixture; pt_precision precision; double max_grad_norm; bool host_tier; pt_optimizer optimizer;
                        } setting;

static const setting settings[] = {{"llama_tied_bias", PT_PRECISION_BF16, 1, true, PT_OPTIMIZER_ADAMW8BIT},
                                   {"gpt2", PT_PRECISION_FP32, 0, true, PT_OPTIMIZER_MUON},
                                   {"qwen3_window", PT_PRECISION_BF16, 0, false, PT_OPTIMIZER_MUON},
                                   {"llama_bf16", PT_PRECISION_BF16, 2, false, PT_OPTIMIZER_ADAMW}};

typedef struct run {
    fixture f;
    const char *data[1];
    char out[128];
    pt_train_options o;
    double loss[STEPS];
} run;

static void run_make(run *r, const setting *s, const char *out)
{
    memset(r, 0, sizeof *r);
    fixture_open(&r->f, "models", s->fixture);
    r->data[0] = r->f.tokens;
    snprintf(r->out, sizeof r->out, "%s/%s", scratch, out);
    fixture_options(&r->f, r->data, r->out, &r->o);
    r->o.precision = s->precision;
    r->o.max_grad_norm = s->max_grad_norm;
    r->o.optimizer = s->optimizer;
    r->o.steps = STEPS;
    r->o.save_type = PT_SAVE_AS_STORED;
    r->o.device_memory = BUDGET;
    r->o.host_memory = s->host_tier ? BUDGET : PT_AUTO;
}

static pt_trainer *open_run(run *r)
{
    pt_trainer *t;
    pt_error e = {0};
    must(pt_trainer_open(&r->o, &t, &e), &e);
    return t;
}

static void step(run *r, pt_trainer *t)
{
    pt_step s;
    pt_error e = {0};
    if (pt_trainer_step(t, &s, &e) != 1)
        fail_msg("%s", e.text);
    r->loss[s.step - 1] = s.loss;
}

static void finish(run *r, pt_trainer *t)
{
    pt_error e = {0};
    must(pt_trainer_save(t, &e), &e);
    pt_trainer_close(t);
    fixture_close(&r->f);
}

/* Any plan whose schedules can be built, as a search would give it. */
static search_result any_plan(random_source *random, const pt_trainer *t)
{
    const planning *p = &t->planning;
    search_result r = {0};
    pt_error e = {0};
    for (int fits = 0; !fits;) {
        priced_plan *c = &r.best;
        priced_plan_free(c);
        memset(c, 0, sizeof *c);
        must(random_packing(random, p->model, p->shape, &c->packing, &e), &e);
        must(random_plan(random, p->model, p->shape, &c->packing, p->search.clipping, p->host_tier, &c->plan, &e), &e);
        fits = search_price(&p->search, c, &e);
        if (fits < 0)
            fail_msg("%s", e.text);
    }
    return r;
}

static void move(pt_trainer *t, search_result *next)
{
    bool moved;
    pt_error e = {0};
    must(replan_move(t, next, &moved, &e), &e);
    assert_true(moved);
    search_result_free(next);
}

static void compare(const run *a, const run *b)
{
    for (int i = 0; i < STEPS; i++)
        if (a->loss[i] != b->loss[i])
            fail_msg("%s: the losses of step %d differ: %.17g and %.17g", a->f.name, i + 1, a->loss[i], b->loss[i]);
    assert_same_checkpoint(a->out, b->out, STEPS);
}

static int checkpoints_in(const char *out)
{
    char path[300];
    int n = 0;
    for (int i = 0; i <= STEPS; i++) {
        snprintf(path, sizeof path, "%s/checkpoint-%d", out, i);
        n += path_exists(path);
    }
    return n;
}

static void moving_between_any_plans_changes_no_bit(void **state)
{
    (void)state;
    random_source random = random_open();
    for (int i = 0; i < (int)(sizeof settings / sizeof *settings); i++) {
        char name[32];
        run straight, moving;
        snprintf(name, sizeof name, "straight-%d", i);
        run_make(&straight, &settings[i], name);
        pt_trainer *t = open_run(&straight);
        for (int k = 0; k < STEPS; k++)
            step(&straight, t);
        finish(&straight, t);
        snprintf(name, sizeof name, "moving-%d", i);
        run_make(&moving, &settings[i], name);
        t = open_run(&moving);
        for (int k = 0; k < STEPS; k++) {
            step(&moving, t);
            if (k % 2 == 0) {
                search_result next = any_plan(&random, t);
                move(t, &next);
            }
        }
        assert_int_equal(checkpoints_in(moving.out), 0); /* what the state passed through is gone */
        finish(&moving, t);
        compare(&straight, &moving);
    }
}

/* ---- a kill ---- */

static search_result resident(const pt_trainer *t)
{
    search_result r = {0};
    pt_error e = {0};
    search_input in = t->planning.search;
    in.budget[TIER_DEVICE] = BUDGET;
    assert_int_equal(policy_plan(&in, POLICY_RESIDENT, &r.best, &e), 1);
    return r;
}

/* These stand before the system's: the process is killed by rename number `fatal` from `renames` 0 on; 0: by none. */
static int renames, fatal;

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    if (++renames == fatal)
        raise(SIGKILL);
    return (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}

int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* In a child: killed at a rename of a move; 0: when the first folder of the checkpoint goes that the state has passed through. */
static int move_and_be_killed(run *r, int at)
{
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* what fails here must not go on with the tests */
        pt_trainer *t = open_run(r);
        bool moved;
        step(r, t);
        search_result next = resident(t);
        if (!at && !filter_call(SYS_unlinkat, 2, AT_REMOVEDIR, SECCOMP_RET_KILL_PROCESS))
            _exit(77);
        renames = 0;
        fatal = at;
        replan_move(t, &next, &moved, NULL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void a_kill_while_the_checkpoint_of_a_move_goes_leaves_no_half_of_it(void **state)
{
    (void)state;
    run r;
    run_make(&r, &settings[2], "killed");
    int status = move_and_be_killed(&r, 0);
    if (status == 77)
        skip(); /* no filters here */
    assert_int_equal(status, 256 + SIGSYS);
    assert_int_equal(checkpoints_in(r.out), 0);
    r.o.resume = true;
    pt_trainer *t = open_run(&r);
    step(&r, t);
    finish(&r, t);
}

static void a_kill_at_any_rename_of_a_move_changes_no_bit(void **state)
{
    (void)state;
    run straight, r;
    run_make(&straight, &settings[2], "never-killed");
    pt_trainer *t = open_run(&straight);
    for (int k = 0; k < STEPS; k++)
        step(&straight, t);
    finish(&straight, t);
    run_make(&r, &settings[2], "killed-at-a-rename");
    int at = 1;
    for (pt_error e = {0}; move_and_be_killed(&r, at) == 256 + SIGKILL; at++) {
        r.o.resume = true;
        t = open_run(&r);
        for (int k = (int)t->at.step; k < STEPS; k++)
            step(&r, t);
        must(pt_trainer_save(t, &e), &e);
        pt_trainer_close(t);
        assert_same_checkpoint(straight.out, r.out, STEPS);
        must(tree_remove(r.out, &e), &e);
        r.o.resume = false;
    }
    assert_true(at > 4); /* of files of the checkpoint, of it, of the plan, of the checkpoint that goes */
    fixture_close(&r.f);
}

/* ---- memory that somebody else has taken ---- */

/* What the most economical plan needs of the device. */
static uint64_t least_device(const pt_trainer *t)
{
    search_input in = t->planning.search;
    search_result r = {0};
    pt_error e = {0};
    in.budget[TIER_DEVICE] = 1;
    in.budget[TIER_DISK] = t->planning.budget[TIER_DISK]; /* which this run does not want */
    assert_int_equal(search_plan(&in, &r, &e), PT_DOES_NOT_FIT);
    uint64_t least = r.least[TIER_DEVICE];
    search_result_free(&r);
    return least;
}

/* Where there is little device memory: to the disk; on a GPU chunks to the host, of which each plan takes some. */
static bool leaves_device(const pt_trainer *t)
{
    const plan *p = trainer_plan(t);
    bool leaves = false;
    if (!on_gpu())
        return executor_bytes(t->engine.x, TIER_DISK) > 0;
    for (int c = 0; c < p->chunks_n; c++)
        leaves |= p->chunks[c].placement != TIER_DEVICE;
    return leaves;
}

static bool transfers_are_priced(const pt_trainer *t)
{
    const costs *c = &t->planning.profile.costs;
    const double *busy = t->predicted.now.busy_ns;
    return on_gpu() ? c->to_device.n && c->from_device.n && busy[QUEUE_TO_DEVICE] > 0 : c->read.n && c->write.n && busy[QUEUE_READ] > 0;
}

/* Steps, and in the middle a move to a resident plan, when the device has only so much left. 1: moved, 0: it could not. */
static int run_with_less(run *r, uint64_t budget, uint64_t left, bool *left_before, bool *left_after, pt_error *e)
{
    r->o.device_memory = budget;
    pt_trainer *t = open_run(r);
    int failed = 0;
    for (int k = 0; k < STEPS && !failed; k++) {
        step(r, t);
        if (k != STEPS / 2)
            continue;
        search_result next = resident(t);
        bool moved;
        *left_before = leaves_device(t);
        t->planning.budget[TIER_DEVICE] = t->planning.search.budget[TIER_DEVICE] = left;
        failed = replan_move(t, &next, &moved, e);
        assert_true(moved);
        *left_after = !failed && leaves_device(t);
        if (*left_after && !transfers_are_priced(t))
            fail_msg("transfers that were never measured cost nothing");
        search_result_free(&next);
    }
    if (failed) {
        pt_step s;
        pt_error again = {0};
        assert_true(pt_trainer_step(t, &s, &again) < 0);
        pt_trainer_close(t);
        return 0;
    }
    finish(r, t);
    return 1;
}

static uint64_t straight_run(run *r, const char *out)
{
    run_make(r, &settings[2], out);
    pt_trainer *t = open_run(r);
    uint64_t least = least_device(t);
    for (int k = 0; k < STEPS; k++)
        step(r, t);
    finish(r, t);
    return least;
}

static void a_plan_without_memory_gives_way_to_the_old_one(void **state)
{
    (void)state;
    run straight, moving;
    bool before, after;
    pt_error e = {0};
    uint64_t least = straight_run(&straight, "roomy");
    run_make(&moving, &settings[2], "tight");
    assert_int_equal(run_with_less(&moving, least, least, &before, &after, &e), 1);
    assert_true(before && after);
    compare(&straight, &moving);
}

static void where_the_old_plan_has_no_memory_either_one_for_what_is_left_is_made(void **state)
{
    (void)state;
    run straight, moving;
    bool before, after;
    pt_error e = {0};
    uint64_t least = straight_run(&straight, "roomy-2");
    run_make(&moving, &settings[2], "shrinking");
    assert_int_equal(run_with_less(&moving, BUDGET, least, &before, &after, &e), 1);
    assert_true((!before || on_gpu()) && after); /* a GPU's host may be of use where nothing lacks */
    compare(&straight, &moving);
}

static void where_nothing_fits_any_more_the_state_stands_in_a_checkpoint(void **state)
{
    (void)state;
    run straight, moving;
    bool before, after;
    pt_error e = {0};
    straight_run(&straight, "roomy-3");
    run_make(&moving, &settings[2], "starved");
    assert_int_equal(run_with_less(&moving, BUDGET, 1, &before, &after, &e), 0);
    assert_non_null(strstr(e.text, "checkpoint-6"));
    assert_non_null(strstr(e.text, "`resume`"));
    moving.o.resume = true;
    moving.o.device_memory = BUDGET;
    pt_trainer *t = open_run(&moving);
    for (int k = STEPS / 2 + 1; k < STEPS; k++)
        step(&moving, t);
    finish(&moving, t);
    compare(&straight, &moving);
}

/* ---- a run that moves by itself ---- */

enum { MANY = 100000 }; /* steps that a better plan would still be good for */

static void keep_notice(void *arg, const char *sentence)
{
    if (strstr(sentence, "steps take"))
        snprintf(arg, 1024, "%s", sentence);
}

/* Planned when there was little memory. There is more now, and the steps are not what was predicted of them. */
static void steps_that_are_off_move_the_run_to_a_better_plan(void **state)
{
    (void)state;
    run straight, moving;
    char said[1024] = "";
    pt_error e = {0};
    if (SANITIZED || test_device_is_standin())
        skip(); /* computing hides the disk there, and no plan is worth the move */
    uint64_t least = straight_run(&straight, "roomy-4");
    run_make(&moving, &settings[2], "off");
    moving.o.device_memory = least;
    moving.o.notice = keep_notice;
    moving.o.arg = said;
    pt_trainer *t = open_run(&moving);
    assert_true(leaves_device(t));
    t->planning.budget[TIER_DEVICE] = t->planning.search.budget[TIER_DEVICE] = BUDGET;
    t->job.steps = MANY;
    t->predicted.now.step_ns = 1e9;
    t->engine.measured.steady.n = PATIENCE_WINDOW; /* as if it had been looked once */
    must(replan_look(t, &e), &e);
    for (int k = 0; k < STEPS; k++)
        step(&moving, t);
    assert_true(!leaves_device(t) || on_gpu());
    assert_non_null(strstr(said, "a new plan is used"));
    assert_int_equal(checkpoints_in(moving.out), 0);
    t->job.steps = STEPS;
    finish(&moving, t);
    compare(&straight, &moving);
}

/* As if steps had taken so long for as long as it takes to be sure, and others had been predicted. */
static void look_at_steps(pt_trainer *t, double taken_s, double said_s)
{
    pt_error e = {0};
    t->engine.measured.steady.n = PATIENCE_WINDOW;
    for (int i = 0; i < PATIENCE_WINDOW; i++)
        t->engine.measured.steady.s[i] = taken_s;
    t->predicted.now.step_ns = said_s * 1e9;
    t->predicted.patience = (patience){.off = 1, .since = 1};
    must(replan_look(t, &e), &e);
}

/* A plan that was given is kept, and one line says what was predicted of its steps and what they take. */
static void the_steps_of_a_given_plan_are_named_with_their_times(void **state)
{
    (void)state;
    run r;
    char said[1024] = "", plan_path[160], expected[96], was[32], is[32];
    run_make(&r, &settings[2], "given");
    pt_trainer *t = open_run(&r);
    pt_error e = {0};
    snprintf(plan_path, sizeof plan_path, "%s/given.plan.json", scratch);
    char *json = pt_trainer_plan_json(t);
    must(file_write_atomic(plan_path, json, strlen(json), &e), &e);
    free(json);
    pt_trainer_close(t);
    must(tree_remove(r.out, &e), &e);
    r.o.plan_file = plan_path;
    r.o.notice = keep_notice;
    r.o.arg = said;
    t = open_run(&r);
    for (int k = 0; k < PATIENCE_WINDOW; k++)
        step(&r, t);
    assert_string_equal(said, "");
    look_at_steps(t, 0.123, 2);
    snprintf(expected, sizeof expected, "steps take %s instead of %s (", seconds_format(is, 0.123), seconds_format(was, 2));
    if (strncmp(said, expected, strlen(expected)) || !strstr(said, "`plan_file`"))
        fail_msg("\"%s\" does not begin with \"%s\"", said, expected);
    finish(&r, t);
}

/* ---- several ranks ---- */

enum { RANKS = 2 };

/* A rank: moves between random plans, which are rank 0's, and once looks at steps that are off. Its folder is `out`, below its own. */
static void move_as_rank(const char *out, int rank, uint64_t seed)
{
    random_source random = {.seed = seed};
    char said[1024] = "";
    run r;
    run_make(&r, &settings[2], "of-ranks");
    snprintf(r.out, sizeof r.out, "%s", out);
    r.o.lanes = r.o.ranks = RANKS;
    r.o.notice = keep_notice;
    r.o.arg = said;
    pt_trainer *t = open_run(&r);
    for (int k = 0; k < STEPS; k++) {
        step(&r, t);
        if (k == PATIENCE_WINDOW) {
            look_at_steps(t, rank ? 9 : 0.123, 2); /* rank 0's times count */
        } else if (k % 3 == 0) {
            search_result next = rank ? (search_result){0} : any_plan(&random, t);
            pt_error e = {0};
            must(ranks_take_next(t, &next, &e), &e);
            move(t, &next);
        }
    }
    if (!rank && strncmp(said, "steps take 123.0 ms instead of 2.00 s (", 39))
        fail_msg("\"%s\"", said);
    finish(&r, t);
}

/* Each rank is a process in a folder of its own; an absolute `out` is that of all. */
static void run_ranks(const char *out)
{
    pid_t of[RANKS];
    char folder[160];
    const random_source random = random_open();
    group_begin(RANKS);
    fflush(NULL);
    for (int rank = 0; rank < RANKS; rank++) {
        of[rank] = fork();
        if (of[rank])
            continue;
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* what fails here must not go on with the tests */
        set_number("RANK", rank);
        snprintf(folder, sizeof folder, "%s/machine%d", scratch, rank);
        if (chdir(folder))
            _exit(99);
        move_as_rank(out, rank, random.seed);
        _exit(0);
    }
    group_end();
    for (int rank = 0; rank < RANKS; rank++) {
        int status;
        waitpid(of[rank], &status, 0);
        if (status)
            fail_msg("rank %d ended with %d", rank, status);
    }
}

static void several_ranks_move_together(void **state)
{
    (void)state;
    run straight;
    char shared[128], folder[200], out[160];
    pt_error e = {0};
    run_make(&straight, &settings[2], "of-one");
    straight.o.lanes = RANKS;
    straight.o.ranks = 1;
    pt_trainer *t = open_run(&straight);
    for (int k = 0; k < STEPS; k++)
        step(&straight, t);
    finish(&straight, t);
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(folder, sizeof folder, "%s/machine%d", scratch, rank);
        must(dir_make(folder, &e), &e);
    }
    snprintf(shared, sizeof shared, "%s/shared", scratch);
    run_ranks(shared);
    assert_same_checkpoint(straight.out, shared, STEPS);
    run_ranks("apart");
    for (int rank = 0; rank < RANKS; rank++) {
        snprintf(out, sizeof out, "%s/machine%d/apart", scratch, rank);
        for (int i = 1; i < STEPS; i++) {
            snprintf(folder, sizeof folder, "%s/checkpoint-%d", out, i);
            assert_false(path_exists(folder));
        }
        if (!rank)
            assert_same_checkpoint(straight.out, out, STEPS);
    }
}

/* A look at tasks that were timed so and said to take 1 / times[q] of it. */
static void expect_words(pt_trainer *t, char *said, const double times[QUEUES], const char *words)
{
    const measured before = t->engine.measured;
    const step_times taken = measured_times(&before, trainer_plan(t)->update);
    for (int q = 0; q < QUEUES; q++)
        t->predicted.now.busy_ns[q] = taken.busy_ns[q] / times[q];
    said[0] = 0;
    t->predicted.told_off = false;
    look_at_steps(t, 1, 2);
    if (!strstr(said, words))
        fail_msg("\"%s\" does not have \"%s\"", said, words);
    t->engine.measured = before; /* a look forgets them */
}

/* Of the queues the one that is furthest off in its time, and none that is off by little. */
static void what_differs_is_named(void **state)
{
    (void)state;
    run straight, r;
    char said[1024] = "", words[96];
    uint64_t least = straight_run(&straight, "roomy-5");
    run_make(&r, &settings[2], "named");
    r.o.device_memory = least;
    r.o.notice = keep_notice;
    r.o.arg = said;
    pt_trainer *t = open_run(&r);
    for (int k = 0; k < PATIENCE_WINDOW; k++)
        step(&r, t);
    t->job.o.plan_file = "none"; /* it stays */
    const step_times taken = measured_times(&t->engine.measured, trainer_plan(t)->update);
    const double reads = taken.busy_ns[QUEUE_READ], computed = taken.busy_ns[QUEUE_COMPUTE];
    assert_true(taken.runs > 0 && computed > 0 && (reads > 0 || on_gpu()));
    expect_words(t, said, (double[QUEUES]){1, 1, 1, 1, 1, 1}, "(the tasks take as long as predicted");
    expect_words(t, said, (double[QUEUES]){1.04, 1, 1, 1, 0.97, 1}, "(the tasks take as long as predicted");
    expect_words(t, said, (double[QUEUES]){3.1, 1, 1, 1, 1, 1}, "(computation takes 3.1 times as long)");
    expect_words(t, said, (double[QUEUES]){0.5, 1, 1, 1, 1, 1}, "(computation takes 0.5 times as long)");
    if (reads > 0) {
        expect_words(t, said, (double[QUEUES]){1, 1, 1, 1, 4, 1}, "(disk reads take 4 times as long)");
        const bool more = computed > reads; /* both take half: that which is more by the clock */
        snprintf(words, sizeof words, "(%s 0.5 times as long)", more ? "computation takes" : "disk reads take");
        expect_words(t, said, (double[QUEUES]){0.5, 1, 1, 1, 0.5, 1}, words);
    }
    t->job.o.plan_file = NULL;
    finish(&r, t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moving_between_any_plans_changes_no_bit),
        cmocka_unit_test(a_kill_while_the_checkpoint_of_a_move_goes_leaves_no_half_of_it),
        cmocka_unit_test(a_kill_at_any_rename_of_a_move_changes_no_bit),
        cmocka_unit_test(a_plan_without_memory_gives_way_to_the_old_one),
        cmocka_unit_test(where_the_old_plan_has_no_memory_either_one_for_what_is_left_is_made),
        cmocka_unit_test(where_nothing_fits_any_more_the_state_stands_in_a_checkpoint),
        cmocka_unit_test(steps_that_are_off_move_the_run_to_a_better_plan),
        cmocka_unit_test(the_steps_of_a_given_plan_are_named_with_their_times),
        cmocka_unit_test(several_ranks_move_together),
        cmocka_unit_test(what_differs_is_named),
    };
    return RUN_APART(tests, scratch_make, scratch_remove);
}
