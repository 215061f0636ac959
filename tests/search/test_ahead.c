/* Threads that help a search: what they find is what one finds alone. */
#include "search/random_problem.h"
#include "sanitized.h"

#include "report/explain.h"
#include "search/ahead.h"

#include <stdatomic.h>

enum { JOBS = 1000, PROBLEMS = THREADS_SANITIZED ? 1 : SANITIZED ? 2 : 6 };

static void count(void *arg, int i) { atomic_fetch_add((atomic_int *)arg + i, 1); }

static void every_job_is_done_once(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 6; threads++) {
        const search_input in = {.threads = threads};
        space s = {.in = &in};
        static atomic_int done[JOBS];
        ahead *a = ahead_open(&s);
        assert_true(!a == (threads == 1));
        for (int round = 0; round < 5; round++) {
            const int n = round * JOBS / 5 + 1;
            for (int i = 0; i < JOBS; i++)
                done[i] = 0;
            ahead_all(a, n, count, done);
            for (int i = 0; i < JOBS; i++)
                assert_int_equal(done[i], i < n);
        }
        ahead_close(a);
    }
}

static void open_problem(random_source *all, uint64_t i, problem *p)
{
    random_source r = random_fork(all, i);
    problem_open(&r, random_from(&r, 13, 18), p);
    problem_more(&r, p);
    p->in.training = true;
    p->in.effort = i % 2 ? 0.3 : THREADS_SANITIZED ? 10 : 1000; /* cut short or not */
}

static void many_threads_find_what_one_finds(void **state)
{
    (void)state;
    random_source all = random_open();
    int same = 0;
    for (uint64_t i = 0; i < PROBLEMS || !same; i++) {
        problem p;
        search_result x[3];
        pt_error e = {0};
        int failed[3];
        open_problem(&all, i, &p);
        for (int k = 0; k < 3; k++) {
            p.in.threads = (int[]){1, 2, 5}[k];
            failed[k] = search_plan(&p.in, &x[k], &e);
            assert_int_equal(failed[k], failed[0]);
            if (!failed[k]) {
                assert_same_result(&p, &x[0], &x[k]);
                assert_int_equal(x[0].tried, x[k].tried);
            }
        }
        same += !failed[0];
        for (int k = 0; k < 3; k++)
            search_result_free(&x[k]);
        model_close(p.model);
    }
}

/* Several searches at a time do not disturb each other. */
static void what_would_help_is_looked_for_at_once(void **state)
{
    (void)state;
    random_source all = random_open();
    int helped = 0;
    for (uint64_t i = 0; i < PROBLEMS || !helped; i++) {
        problem p;
        search_result x = {0};
        pt_error e = {0};
        help found[EXPLAIN_HELPS];
        int n = 0;
        open_problem(&all, i, &p);
        p.in.threads = 3;
        if (!search_plan(&p.in, &x, &e)) {
            const explain_input in = {.search = &p.in, .best = &x.best};
            const double little = 1; /* tokens a second: whatever fits helps */
            assert_int_equal(explain_helps(&in, little, found, &n, &e), 0);
            helped += n;
            for (int k = 0; k < n; k++)
                assert_true(found[k].what[0] && found[k].gain > 0 && (!k || found[k].gain <= found[k - 1].gain));
        }
        search_result_free(&x);
        model_close(p.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_job_is_done_once),
        cmocka_unit_test(many_threads_find_what_one_finds),
        cmocka_unit_test(what_would_help_is_looked_for_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
