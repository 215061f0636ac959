/* The learning rate of every step, beside the formulas of protrain-train(1), and the default of Muon's matrices. */
#include "train/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "train/fixture.h"
#include "train/same_end.h"

static double by_the_page(const pt_train_options *o, int64_t s, int64_t S)
{
    const double lr = o->lr, r = o->min_lr_ratio, p = (double)(s - 1 - o->warmup_steps) / (double)(S - o->warmup_steps);
    if (s <= o->warmup_steps)
        return lr * (double)s / (double)o->warmup_steps;
    return o->lr_schedule == PT_LR_CONSTANT ? lr
         : o->lr_schedule == PT_LR_LINEAR   ? lr * (1 - (1 - r) * p)
                                            : lr * (r + (1 - r) * (1 + cos(acos(-1) * p)) / 2);
}

static void every_rate_is_that_of_the_page(void **state)
{
    (void)state;
    static const int64_t warmups[] = {0, 1, 4, 9, 10, 25};
    static const double ratios[] = {0, 0.1, 1};
    pt_train_options o;
    pt_train_defaults(&o);
    o.lr = 3e-4;
    for (int schedule = PT_LR_CONSTANT; schedule <= PT_LR_COSINE; schedule++)
        for (size_t w = 0; w < sizeof warmups / sizeof *warmups; w++)
            for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++) {
                o.lr_schedule = (pt_lr_schedule)schedule;
                o.warmup_steps = warmups[w];
                o.min_lr_ratio = ratios[r];
                for (int64_t s = 1; s <= 10; s++) {
                    const double is = lr_of_step(&o, s, 10), by = by_the_page(&o, s, 10);
                    if (!(fabs(is - by) <= 1e-12 * o.lr))
                        fail_msg("schedule %d, warm-up %d, ratio %g: step %d has %.17g, not %.17g", schedule, (int)o.warmup_steps,
                                 o.min_lr_ratio, (int)s, is, by);
                }
            }
}

/* "Step S + 1 would have it; the last step is one step of the schedule above it." */
static void the_ratio_is_that_of_the_step_behind_the_last(void **state)
{
    (void)state;
    pt_train_options o;
    pt_train_defaults(&o);
    o.lr = 1;
    o.warmup_steps = 2;
    o.min_lr_ratio = 0.25;
    for (int schedule = PT_LR_LINEAR; schedule <= PT_LR_COSINE; schedule++) {
        o.lr_schedule = (pt_lr_schedule)schedule;
        assert_true(fabs(by_the_page(&o, 11, 10) - 0.25) < 1e-12 && fabs(lr_of_step(&o, 11, 10) - 0.25) < 1e-12);
        assert_true(lr_of_step(&o, 10, 10) > 0.25 && lr_of_step(&o, 3, 10) == 1);
    }
}

/* Of get_cosine_with_hard_restarts_schedule_with_warmup(o, 4, 20, 3) and get_wsd_schedule(o, 4, 6, 20, decay_type=..., min_lr_ratio=0.1)
 * of Transformers 5, lr 1: steps 5 to 20, of wsd steps 15 to 20. */
static const double restarts[] = {1, 0.915734806151273, 0.691341716182545, 0.402454838991936, 0.146446609406726, 0.00960735979838478,
                                  0.961939766255643, 0.777785116509801, 0.5, 0.222214883490199, 0.0380602337443566, 0.990392640201615,
                                  0.853553390593274, 0.597545161008064, 0.308658283817455, 0.0842651938487273};
static const double decays[][6] = {
    [PT_LR_DECAY_COSINE] = {1, 0.939711431702997, 0.775, 0.55, 0.325, 0.160288568297003},
    [PT_LR_DECAY_LINEAR] = {1, 0.85, 0.7, 0.55, 0.4, 0.25},
    [PT_LR_DECAY_ROOT] = {1, 0.632576538582523, 0.480384757729337, 0.363603896932107, 0.265153077165047, 0.178416163742251}};

static void assert_rate(const pt_train_options *o, int64_t step, double expected)
{
    const double is = lr_of_step(o, step, 20);
    if (!(fabs(is - expected) <= 1e-14))
        fail_msg("schedule %d, decay %d: step %d has %.17g, not %.17g", o->lr_schedule, o->lr_decay, (int)step, is, expected);
}

static void restarts_and_wsd_are_those_of_transformers(void **state)
{
    (void)state;
    pt_train_options o;
    pt_train_defaults(&o);
    o.lr = 1;
    o.warmup_ratio = 0.16; /* 3.2 of 20: rounded up */
    o.lr_schedule = PT_LR_COSINE_RESTARTS;
    o.lr_cycles = 3;
    for (int64_t s = 1; s <= 20; s++)
        assert_rate(&o, s, s <= 4 ? (double)s / 4 : restarts[s - 5]);
    o.lr_schedule = PT_LR_WSD;
    o.min_lr_ratio = 0.1;
    for (int decay = 0; decay < 3; decay++) {
        o.lr_decay = (pt_lr_decay)decay;
        o.lr_decay_steps = 6;
        for (int64_t s = 1; s <= 20; s++)
            assert_rate(&o, s, s <= 4 ? (double)s / 4 : s <= 14 ? 1 : decays[decay][s - 15]);
    }
    o.lr_decay = PT_LR_DECAY_LINEAR;
    o.lr_decay_steps = 0; /* 2 steps */
    assert_rate(&o, 18, 1), assert_rate(&o, 19, 1), assert_rate(&o, 20, 0.55);
    o.lr_decay_steps = 1000; /* all after the warm-up */
    assert_rate(&o, 5, 1), assert_rate(&o, 13, 0.55);
    o.optimizer = PT_OPTIMIZER_ADAFACTOR;
    o.optimizer_args = "relative_step=true";
    assert_rate(&o, 1, 0.01), assert_rate(&o, 10000, 0.01), assert_rate(&o, 1000000, 0.001);
    o.optimizer_args = "relative_step=true,warmup_init=true";
    assert_rate(&o, 100, 1e-4);
}

static int told;

static void hear(void *arg, const char *sentence)
{
    (void)arg;
    told += strstr(sentence, "`lr_adjust` match_rms_adamw") != NULL;
}

/* The folder of a short run. */
static const char *muon_run(const fixture *f, double lr, pt_lr_adjust adjust)
{
    static char out[8][300];
    static int n;
    const char *data[] = {f->tokens};
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    snprintf(out[n], sizeof out[n], "%s/muon%d", scratch, n);
    fixture_options(f, data, out[n], &o);
    o.optimizer = PT_OPTIMIZER_MUON;
    o.lr = lr;
    o.lr_adjust = adjust;
    o.steps = 2;
    o.notice = hear;
    must(pt_trainer_open(&o, &t, &e), &e);
    while (pt_trainer_step(t, &s, &e) > 0) {}
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
    return out[n++];
}

/* The default rates are for steps by AdamW's measure; a rate that was given has its meaning of PyTorch. */
static void muon_has_a_default_of_its_own(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f, "models", "llama");
    const char *name = "model.safetensors";
    assert_same_file(muon_run(&f, 0, PT_LR_ADJUST_AUTO), muon_run(&f, 1e-4, PT_LR_ADJUST_RMS), name);
    assert_int_equal(told, 0);
    assert_same_file(muon_run(&f, 0.02, PT_LR_ADJUST_AUTO), muon_run(&f, 0.02, PT_LR_ADJUST_ORIGINAL), name);
    assert_int_equal(told, 0);
    assert_same_file(muon_run(&f, 5e-5, PT_LR_ADJUST_ORIGINAL), muon_run(&f, 5e-5, PT_LR_ADJUST_AUTO), name);
    assert_int_equal(told, 1);
    fixture_close(&f);
}

static double halved_every_step(void *arg, int64_t step, int64_t steps, double lr)
{
    assert_true(!arg && step >= 1 && step <= steps && lr > 0);
    return step > 2 ? NAN : lr / (double)(1 << step);
}

/* A caller's rates are those of the steps; one that is no rate ends the run, and nothing has happened. */
static void a_function_may_give_the_rates(void **state)
{
    (void)state;
    fixture f;
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    char out[300];
    fixture_open(&f, "models", "llama");
    const char *const data[] = {f.tokens};
    snprintf(out, sizeof out, "%s/rates", scratch);
    fixture_options(&f, data, out, &o);
    o.steps = 3;
    o.lr_schedule = PT_LR_CONSTANT;
    o.warmup_steps = 0;
    o.lr_of_step = halved_every_step;
    must(pt_trainer_open(&o, &t, &e), &e);
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(pt_trainer_step(t, &s, &e), 1);
        assert_true(s.lr == o.lr / (1 << i));
    }
    assert_int_equal(pt_trainer_step(t, &s, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "step 3: `lr_of_step` returned nan: it must be 0 or more"));
    pt_trainer_close(t);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rate_is_that_of_the_page),
        cmocka_unit_test(the_ratio_is_that_of_the_step_behind_the_last),
        cmocka_unit_test(restarts_and_wsd_are_those_of_transformers),
        cmocka_unit_test(muon_has_a_default_of_its_own),
        cmocka_unit_test(a_function_may_give_the_rates),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
