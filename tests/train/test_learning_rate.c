/* The learning rate of every step, beside the formulas of protrain-train(1). */
#include "train/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rate_is_that_of_the_page),
        cmocka_unit_test(the_ratio_is_that_of_the_step_behind_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
