/* Evaluations during a run, which are ended when the caller asks for it: without a loss, and without a trace in the weights. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/run.h"
#include "train/same_end.h"

static const setting llama = {"llama_tied_bias", PT_PRECISION_BF16, 1, true, PT_OPTIMIZER_ADAMW};

enum { EVERY = 2, ALWAYS = 1000 };

/* Says stop to question number `from` (from 1) and the `times` - 1 after it. */
typedef struct asked { int questions, from, times; } asked;

static bool stop(void *arg)
{
    asked *a = arg;
    a->questions++;
    return a->questions >= a->from && a->questions < a->from + a->times;
}

static pt_trainer *open_evaluating(run *r, const char *out, asked *a)
{
    pt_trainer *t;
    pt_error e = {0};
    run_make(r, &llama, out);
    r->o.eval_data = r->data;
    r->o.eval_data_n = 1;
    r->o.eval_every = EVERY;
    r->o.stop = stop;
    r->o.arg = a;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    return t;
}

static pt_step step(pt_trainer *t)
{
    pt_step s;
    pt_error e = {0};
    if (pt_trainer_step(t, &s, &e) != 1)
        fail_msg("%s", e.text);
    return s;
}

static void save_and_close(pt_trainer *t)
{
    pt_error e = {0};
    must(pt_trainer_save(t, &e), &e);
    pt_trainer_close(t);
}

/* A run that nobody stops; its evaluation losses by step. Returns the questions of one evaluation. */
static int straight_run(run *r, double eval_loss[STEPS])
{
    pt_error e = {0};
    asked a = {.from = 0};
    snprintf(r->out, sizeof r->out, "%s/straight", scratch);
    must(tree_remove(r->out, &e), &e);
    pt_trainer *t = open_evaluating(r, "straight", &a);
    for (int i = 0; i < STEPS; i++) {
        pt_step s = step(t);
        assert_int_equal(s.evaluated, (i + 1) % EVERY == 0);
        eval_loss[i] = s.eval_loss;
    }
    save_and_close(t);
    return a.questions / (STEPS / EVERY);
}

static bool has_eval_loss(const run *r, int step)
{
    json_t *lines[STEPS];
    int n = read_metrics(r, lines, STEPS);
    assert_true(step <= n);
    bool has = json_object_get(lines[step - 1], "eval_loss") != NULL;
    for (int i = 0; i < n; i++)
        json_decref(lines[i]);
    return has;
}

static void a_stopped_evaluation_has_no_loss_and_the_run_goes_on(void **state)
{
    (void)state;
    run straight, r;
    double expected[STEPS];
    int whole = straight_run(&straight, expected);
    assert_true(whole > 2);
    asked a = {.from = 2, .times = 1}; /* amid the first evaluation */
    pt_trainer *t = open_evaluating(&r, "goes-on", &a);
    for (int i = 0; i < STEPS; i++) {
        pt_step s = step(t);
        assert_int_equal(s.evaluated, i + 1 > EVERY && (i + 1) % EVERY == 0);
        if (i + 1 == EVERY)
            assert_int_equal(a.questions, 2); /* no window more */
        if (s.evaluated)
            assert_true(s.eval_loss == expected[i]);
    }
    save_and_close(t);
    assert_false(has_eval_loss(&r, EVERY));
    assert_true(has_eval_loss(&r, 2 * EVERY));
    assert_same_checkpoint(straight.out, r.out, STEPS);
    run_free(&r);
    run_free(&straight);
}

static void after_a_stopped_evaluation_the_run_is_saved_and_resumed(void **state)
{
    (void)state;
    run straight, r;
    double expected[STEPS], loss;
    int64_t tokens;
    pt_error e = {0};
    straight_run(&straight, expected);
    asked a = {.from = 1, .times = ALWAYS};
    pt_trainer *t = open_evaluating(&r, "is-saved", &a);
    for (int i = 0; i < EVERY; i++)
        assert_false(step(t).evaluated);
    assert_int_equal(pt_trainer_evaluate(t, &loss, &tokens, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "stopped"));
    save_and_close(t);
    r.o.resume = true;
    r.o.stop = NULL;
    must(run_until(&r, STEPS, &e), &e);
    assert_int_equal(r.first_step, EVERY);
    assert_same_checkpoint(straight.out, r.out, STEPS);
    run_free(&r);
    run_free(&straight);
}

static double eval_loss_of(const run *r, int step)
{
    json_t *lines[STEPS];
    int n = read_metrics(r, lines, STEPS);
    assert_int_equal(n, STEPS);
    double loss = json_number_value(json_object_get(lines[step - 1], "eval_loss"));
    for (int i = 0; i < n; i++)
        json_decref(lines[i]);
    return loss;
}

/* Resumed, and stopped once more while it makes up for what was stopped: no step is taken, and it is owed still. */
static void stop_again(run *r, int steps)
{
    pt_error e = {0};
    pt_step s;
    pt_trainer *t;
    asked once = {.from = 1, .times = 1};
    void *before = r->o.arg;
    r->o.arg = &once;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    assert_int_equal(pt_trainer_step(t, &s, &e), 1);
    assert_true(s.step == steps && s.step_s == 0 && !s.evaluated);
    save_and_close(t);
    assert_false(has_eval_loss(r, steps));
    r->o.arg = before;
}

/* Stopped after `steps` steps, the last of which is followed by an evaluation, and resumed. */
static void check_made_up(const run *straight, int questions, int steps, const char *out)
{
    run r;
    pt_error e = {0};
    pt_step s;
    asked a = {.from = 1 + (steps / EVERY - 1) * questions, .times = ALWAYS};
    pt_trainer *t = open_evaluating(&r, out, &a);
    for (int i = 0; i < steps; i++)
        step(t);
    save_and_close(t);
    assert_false(has_eval_loss(&r, steps));
    r.o.resume = true;
    stop_again(&r, steps);
    r.o.stop = NULL;
    must(pt_trainer_open(&r.o, &t, &e), &e);
    for (int i = steps; i < STEPS; i++)
        step(t);
    assert_int_equal(pt_trainer_step(t, &s, &e), 0);
    save_and_close(t);
    assert_true(eval_loss_of(&r, steps) == eval_loss_of(straight, steps));
    assert_same_checkpoint(straight->out, r.out, STEPS);
    run_free(&r);
}

static void a_stopped_evaluation_is_made_up_when_the_run_goes_on(void **state)
{
    (void)state;
    run straight;
    double expected[STEPS];
    int questions = straight_run(&straight, expected);
    check_made_up(&straight, questions, EVERY, "made-up");
    check_made_up(&straight, questions, STEPS, "made-up-at-the-end");
    run_free(&straight);
}

/* The evaluation loss after the first step. */
static double loss_of_first_step(run *r, const char *out, pt_summary *m, char files[2][512])
{
    pt_trainer *t;
    pt_error e = {0};
    snprintf(r->out, sizeof r->out, "%s/%s", scratch, out);
    must(pt_trainer_open(&r->o, &t, &e), &e);
    const pt_step s = step(t);
    assert_true(s.evaluated);
    pt_trainer_summary(t, m);
    snprintf(files[0], sizeof files[0], "%s", m->files);
    snprintf(files[1], sizeof files[1], "%s", m->eval_files);
    pt_trainer_close(t);
    return s.eval_loss;
}

static void a_folder_with_splits_evaluates_on_its_validation(void **state)
{
    (void)state;
    char folder[300], train[340], valid[340], command[3072], named[2][512], found[2][512];
    pt_summary m;
    run r;
    run_make(&r, &llama, "named");
    snprintf(folder, sizeof folder, "%s/splits", scratch);
    snprintf(train, sizeof train, "%s/train.npy", folder);
    snprintf(valid, sizeof valid, "%s/valid.npy", folder);
    snprintf(command, sizeof command, "mkdir '%s' && cp '%s' '%s' && cp '%s' '%s'", folder, r.f.tokens, train, r.f.tokens, valid);
    assert_int_equal(system(command), 0);
    r.o.eval_every = 1;
    r.o.data = (const char *const[]){train};
    r.o.eval_data = (const char *const[]){valid};
    r.o.eval_data_n = 1;
    const double loss = loss_of_first_step(&r, "named", &m, named);
    r.o.data = (const char *const[]){folder};
    r.o.eval_data = NULL;
    r.o.eval_data_n = 0;
    assert_true(loss_of_first_step(&r, "found", &m, found) == loss);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(named[i], found[i]);
        assert_non_null(strstr(found[i], i ? "valid.npy" : "train.npy"));
    }
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stopped_evaluation_has_no_loss_and_the_run_goes_on),
                                       cmocka_unit_test(after_a_stopped_evaluation_the_run_is_saved_and_resumed),
                                       cmocka_unit_test(a_stopped_evaluation_is_made_up_when_the_run_goes_on),
                                       cmocka_unit_test(a_folder_with_splits_evaluates_on_its_validation)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
