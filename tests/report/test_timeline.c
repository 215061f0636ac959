/* trace.json as a page shows it: shares of columns of time, and what is no trace of a step. */
#include "report/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_event(const char *start, const char *length, timeline **out, pt_error *e)
{
    char text[512];
    snprintf(text, sizeof text, "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"%s\", \"pid\": 2, \"tid\": 0, \"ts\": %s, \"dur\": %s}]}",
             task_names[TASK_LAYER], start, length);
    return timeline_from_json("a/trace.json", text, strlen(text), out, e);
}

static void a_trace_too_short_for_columns_is_refused(void **state)
{
    (void)state;
    static const char *const times[][2] = {{"0", "0"},           {"0", "1e-320"}, {"1e-320", "0"},
                                            {"4e-324", "4e-324"}, {"0", "1e-306"}, {"0", "1e-4"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        timeline *t;
        pt_error e = {0};
        assert_int_equal(read_event(times[i][0], times[i][1], &t, &e), PT_FAILED);
        assert_null(t);
        if (!strstr(e.text, "a/trace.json: no task of a step is in it; train again with `trace`"))
            fail_msg("from %s for %s: %s", times[i][0], times[i][1], e.text);
    }
}

/* From the shortest that is drawn to the longest. */
static void an_event_fills_the_columns_that_it_takes(void **state)
{
    (void)state;
    static const char *const lengths[] = {"0.002", "1", "1e6", "1e13"};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int late = 0; late < 2; late++) {
            timeline *t;
            pt_error e = {0};
            if (read_event(late ? lengths[i] : "0", lengths[i], &t, &e))
                fail_msg("%s", e.text);
            assert_true(fabs(t->seconds - (late + 1) * 1e-6 * strtod(lengths[i], NULL)) <= 1e-12 * t->seconds);
            for (int k = 0; k < TIMELINE_COLUMNS; k++) {
                const float share = t->busy[TIMELINE_MEASURED][QUEUE_COMPUTE][TIMELINE_FORWARD][k];
                assert_true(fabsf(share - (float)(!late || k >= TIMELINE_COLUMNS / 2)) < 1e-4f);
            }
            timeline_free(t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trace_too_short_for_columns_is_refused),
        cmocka_unit_test(an_event_fills_the_columns_that_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
