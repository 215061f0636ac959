#include "random_plan.h"
#include "schedule/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* How many random schedules: PT_TEST_SCHEDULES=n asks for more. */
static int schedules_wanted(int by_default)
{
    const char *given = getenv("PT_TEST_SCHEDULES");
    return given ? atoi(given) : by_default;
}

static void random_schedules_are_accepted(void **state)
{
    (void)state;
    random_source all = random_open();
    int wanted = schedules_wanted(10000), built = 0, refused = 0, of_kind[SCHEDULE_KINDS] = {0};
    for (uint64_t i = 0; built < wanted; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e) || (random_one_in(&r, 3) && random_share(&r, &c, &e)) ||
            plan_validate(&c.plan, c.model, &c.shape, &c.packing, c.clipping && c.plan.update != UPDATE_BACKWARD, &e))
            fail_msg("case %llu: %s", (unsigned long long)i, e.text);
        schedule_kind kind = random_kind(&r, &c);
        c.input.training = kind != SCHEDULE_EVAL || random_one_in(&r, 2);
        int failed = schedule_build(&c.input, kind, &s, &e);
        if (failed == PT_DOES_NOT_FIT) {
            refused++;
        } else if (failed) {
            fail_msg("case %llu: %s", (unsigned long long)i, e.text);
        } else {
            if (schedule_check(&c.input, &s, s.bytes, &e))
                fail_msg("case %llu, schedule kind %d: %s", (unsigned long long)i, (int)kind, e.text);
            schedule_free(&s);
            of_kind[kind]++;
            built++;
        }
        random_case_close(&c);
    }
    print_message("%d accepted (step %d, step with updates %d, drain %d, eval %d); %d plans had too few buffers\n", built,
                  of_kind[SCHEDULE_STEP], of_kind[SCHEDULE_STEP_UPDATE], of_kind[SCHEDULE_DRAIN], of_kind[SCHEDULE_EVAL], refused);
    assert_true(refused < built);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
