/* pt_ranks_run: this program starts itself once per rank, and each rank ends as its argument says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/join.h"
#include "protrain.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3 };

/* endings: a letter per rank: '0' to '9', the exit status; 'k', killed. */
static int end_as(const char *endings)
{
    const char how = endings[atoi(getenv(JOIN_RANK))];
    if (how == 'k')
        raise(SIGKILL);
    return how - '0';
}

static int run(const char *endings, int *status, pt_error *e)
{
    char *const arguments[] = {"test", (char *)endings, NULL};
    *e = (pt_error){0};
    return pt_ranks_run(RANKS, arguments, status, e);
}

static void the_status_is_that_of_rank_0(void **state)
{
    (void)state;
    pt_error e;
    int status;
    assert_int_equal(run("000", &status, &e), 0);
    assert_int_equal(status, 0);
    assert_int_equal(run("700", &status, &e), 0);
    assert_int_equal(status, 7);
}

static void a_rank_that_fails_is_named(void **state)
{
    (void)state;
    static const struct { const char *endings, *why; } cases[] = {
        {"030", "rank 1: ended with exit status 3"}, {"00k", "rank 2: was ended by signal 9"}, {"k00", "rank 0: was ended by signal 9"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pt_error e;
        int status;
        assert_int_equal(run(cases[i].endings, &status, &e), PT_FAILED);
        if (!strstr(e.text, cases[i].why))
            fail_msg("%s: %s", cases[i].endings, e.text);
    }
}

static void a_number_of_ranks_that_no_machine_runs_is_refused(void **state)
{
    (void)state;
    static const int numbers[] = {-1, 0, 100000};
    char *const arguments[] = {"test", NULL};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        pt_error e = {0};
        int status;
        assert_int_equal(pt_ranks_run(numbers[i], arguments, &status, &e), PT_USAGE);
        assert_non_null(strstr(e.text, "`ranks`"));
    }
}

static void a_process_that_nobody_started_is_alone(void **state)
{
    (void)state;
    pt_train_options o;
    pt_error e = {0};
    double ago_s = -1;
    bool told = true;
    int rank = 5;
    pt_train_defaults(&o);
    o.device = "cpu";
    assert_int_equal(pt_ranks_find(&o, &rank, &e), 0);
    assert_int_equal(rank, -1);
    assert_int_equal(o.ranks, 0);
    assert_null(pt_ranks_launcher(&rank, &rank));
    assert_false(pt_ranks_ended(&e, &ago_s, &told));
    assert_true(ago_s == 0 && !told);
}

int main(int argc, char **argv)
{
    if (argc > 1 && getenv(JOIN_RANK))
        return end_as(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_status_is_that_of_rank_0),
        cmocka_unit_test(a_rank_that_fails_is_named),
        cmocka_unit_test(a_number_of_ranks_that_no_machine_runs_is_refused),
        cmocka_unit_test(a_process_that_nobody_started_is_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
