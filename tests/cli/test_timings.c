/* The table at the end of a run: how a time compares with its prediction, and whether other programs had the processors. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "timings.h"

#include "base/clock.h"
#include "base/cores.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void check(double predicted_s, double measured_s, const char *expected)
{
    char out[TIMING_TEXT];
    assert_string_equal(timing_compare(predicted_s, measured_s, out), expected);
}

static void a_time_is_compared_in_percent_or_as_a_factor(void **state)
{
    (void)state;
    check(1, 1.017, " (+1.7%)");
    check(1, 0.2, " (-80.0%)");
    check(0.5, 0.999, " (+99.8%)");
    check(0.5, 1.22, " (2.4x)");
    check(0.01, 0.18, " (18x)");
    check(1e-3, 4, " (4000x)");
}

static void too_short_a_time_is_not_compared(void **state)
{
    (void)state;
    check(2e-6, 0.04, "");
    check(0.04, 2e-6, "");
    check(0, 1, "");
    check(1, NAN, "");
}

static void spin(double seconds)
{
    for (const double end = clock_s() + seconds; clock_s() < end;) {}
}

static void waiting_for_other_programs_is_counted(void **state)
{
    (void)state;
    enum { MOST = 64 };
    pid_t others[MOST];
    int n = 2 * cores_allowed();
    n = n < MOST ? n : MOST;
    spin(0.05);
    const processor_use before = processor_use_now();
    if (!before.work_ns)
        skip(); /* this kernel does not count it */
    for (int i = 0; i < n; i++) {
        others[i] = fork();
        if (!others[i]) {
            alarm(20);
            for (;;) {}
        }
    }
    spin(0.5);
    const processor_use after = processor_use_now();
    for (int i = 0; i < n; i++) {
        kill(others[i], SIGKILL);
        waitpid(others[i], NULL, 0);
    }
    assert_true(after.work_ns > before.work_ns && after.waited_ns - before.waited_ns > 50000000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_time_is_compared_in_percent_or_as_a_factor),
                                       cmocka_unit_test(too_short_a_time_is_not_compared),
                                       cmocka_unit_test(waiting_for_other_programs_is_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
