/* `keep_best`: the checkpoint of the best evaluation stays and its model is exported. `patience`: the run ends. Resumed runs, too. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/run.h"
#include "train/same_end.h"

enum { EVERY = 2 };

static const setting llama = {"llama_tied_bias", PT_PRECISION_FP32, 1, true, PT_OPTIMIZER_ADAMW};
static char heard[4096];

static void hear(void *arg, const char *sentence)
{
    (void)arg;
    strncat(heard, sentence, sizeof heard - strlen(heard) - 1);
}

/* The rate rises in all steps, and the evaluation loss falls until it has become too high: in fp32 at the same step with every kernel. */
static void make(run *r, const char *out, bool keep_best, int64_t patience)
{
    run_make(r, &llama, out);
    r->o.eval_data = r->data;
    r->o.eval_data_n = 1;
    r->o.eval_every = EVERY;
    r->o.lr_schedule = PT_LR_CONSTANT;
    r->o.warmup_steps = STEPS;
    r->o.lr = 0.4;
    r->o.weight_decay = 0;
    r->o.beta1 = 0.9, r->o.beta2 = 0.999, r->o.eps = 1e-8;
    r->o.seq_len = 16;
    r->o.batch_size = 4;
    r->o.keep = 1;
    r->o.keep_best = keep_best ? PT_KEEP_BEST_EVAL_LOSS : PT_KEEP_BEST_NO;
    r->o.patience = patience;
    r->o.notice = hear;
    heard[0] = 0;
}

/* Every evaluation is worse than the one before. */
static void make_worse(run *r, const char *out)
{
    make(r, out, true, 1);
    r->o.lr = 0.3;
    r->o.weight_decay = 9;
    r->o.warmup_steps = 0;
}

/* To the end; returns the last step. */
static int64_t finish(run *r, pt_summary *m)
{
    pt_trainer *t;
    pt_step s = {0};
    pt_error e = {0};
    int more;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    while ((more = pt_trainer_step(t, &s, &e)) > 0)
        ;
    must(more, &e);
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_summary(t, m);
    pt_trainer_close(t);
    return s.step;
}

/* Of the evaluations so far. */
static int step_of_least(const run *r)
{
    json_t *lines[STEPS];
    double least = INFINITY;
    int best = 0;
    for (int i = 0, n = read_metrics(r, lines, STEPS); i < n; i++) {
        const json_t *loss = json_object_get(lines[i], "eval_loss");
        if (loss && json_number_value(loss) < least) {
            least = json_number_value(loss);
            best = i + 1;
        }
        json_decref(lines[i]);
    }
    return best;
}

static void assert_exported(const run *r, int step)
{
    char checkpoint[200];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-%d", r->out, step);
    assert_same_file(checkpoint, r->out, "model.safetensors");
    assert_same_file(checkpoint, r->out, "config.json");
}

static void the_best_model_is_kept_and_exported(void **state)
{
    (void)state;
    run whole, cut;
    pt_summary m;
    pt_error e = {0};
    make(&whole, "whole", true, 0);
    assert_int_equal(finish(&whole, &m), STEPS);
    const int best = step_of_least(&whole);
    assert_true(best > EVERY && best < STEPS); /* neither the first nor the last */
    assert_true(m.best_step == best && m.model_step == best && m.best_value == m.best_eval_loss);
    assert_true(has_checkpoint(&whole, best) && has_checkpoint(&whole, STEPS) && !has_checkpoint(&whole, EVERY));
    assert_exported(&whole, best);

    make(&cut, "cut", true, 0);
    must(run_until(&cut, best + 1, &e), &e);
    assert_true(has_checkpoint(&cut, best) && has_checkpoint(&cut, best + 1));
    cut.o.resume = true;
    finish(&cut, &m);
    assert_true(cut.first_step == 0 && m.first_step == best + 1 && m.best_step == best && m.model_step == best);
    assert_exported(&cut, best);
    assert_same_file(whole.out, cut.out, "model.safetensors");
    assert_same_checkpoint(whole.out, cut.out, STEPS);
    run_free(&cut);
    run_free(&whole);
}

static void a_lost_checkpoint_is_told_and_the_last_model_exported(void **state)
{
    (void)state;
    run r;
    pt_summary m;
    char command[300];
    make(&r, "lost", true, 0);
    finish(&r, &m);
    const int best = step_of_least(&r);
    snprintf(command, sizeof command, "rm -r '%s/checkpoint-%d' '%s/model.safetensors'", r.out, best, r.out);
    assert_int_equal(system(command), 0);
    r.o.resume = true;
    finish(&r, &m);
    assert_non_null(strstr(heard, "of the best evaluation, is not in"));
    assert_int_equal(m.model_step, STEPS);
    assert_exported(&r, STEPS);
    run_free(&r);
}

static void patience_ends_the_run_and_is_counted_after_resuming(void **state)
{
    (void)state;
    run r, cut;
    pt_summary m;
    pt_error e = {0};
    make_worse(&r, "patient");
    const int64_t last = finish(&r, &m);
    const int best = step_of_least(&r);
    assert_int_equal(best, EVERY);
    assert_true(last == best + EVERY && last < STEPS);
    assert_non_null(strstr(heard, "the last 1 evaluation was not better"));
    assert_exported(&r, best);

    make_worse(&cut, "patient-cut");
    must(run_until(&cut, best, &e), &e);
    cut.o.resume = true;
    assert_int_equal(finish(&cut, &m), last);
    assert_same_file(r.out, cut.out, "model.safetensors");
    heard[0] = 0;
    assert_int_equal(finish(&cut, &m), 0); /* it is over: no step more */
    assert_int_equal(m.model_step, best);
    cut.o.patience = 0;
    assert_int_equal(finish(&cut, &m), STEPS);
    run_free(&cut);
    run_free(&r);
}

/* 8 steps are too few for more than the evaluation at their end. */
static void evaluations_are_chosen(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    make(&r, "chosen", false, 0);
    r.o.eval_every = 0;
    must(pt_trainer_open(&r.o, &t, &e), &e);
    assert_null(strstr(heard, "evaluates every"));
    pt_trainer_close(t);
    snprintf(r.out, sizeof r.out, "%s/chosen-more", scratch);
    r.o.steps = 20000;
    must(pt_trainer_open(&r.o, &t, &e), &e);
    assert_non_null(strstr(heard, "evaluates every 2000 steps"));
    pt_trainer_close(t);
    run_free(&r);
}

static void what_cannot_be_compared_is_refused(void **state)
{
    (void)state;
    run r;
    pt_trainer *t;
    pt_error e = {0};
    make(&r, "refused", true, 0);
    r.o.keep_best = PT_KEEP_BEST_REWARD_MARGIN;
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`task` sft has no rewards"));
    r.o.keep_best = PT_KEEP_BEST_NO;
    r.o.patience = 2;
    r.o.eval_data_n = 0;
    r.o.eval_every = 0;
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`patience` is given, but there are no data to evaluate on"));
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_model_is_kept_and_exported), cmocka_unit_test(a_lost_checkpoint_is_told_and_the_last_model_exported),
        cmocka_unit_test(patience_ends_the_run_and_is_counted_after_resuming), cmocka_unit_test(evaluations_are_chosen),
        cmocka_unit_test(what_cannot_be_compared_is_refused)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
