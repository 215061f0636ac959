#include "sanitized.h"
#include "search/check_candidate.h"
#include "search/random_problem.h"

/* Models that are searched, searched twice, and too large. */
enum { FOUND = SANITIZED ? 6 : 24, TWICE = SANITIZED ? 1 : 3, MENDED = SANITIZED ? 4 : 12 };

static bool is_policy(const candidate *c)
{
    for (policy q = 0; q < POLICIES; q++)
        if (!strcmp(c->name, policy_names[q]))
            return true;
    return false;
}

/* 1 for one that the search came by itself: its name says all in which it differs from the best, and nothing else. */
static int check_other(const candidate *best, const candidate *c)
{
    const plan *a = &best->plan, *b = &c->plan;
    if (is_policy(c))
        return 0;
    bool other_chunks = a->chunk_bytes != b->chunk_bytes, other_cut = a->micro_batch != b->micro_batch || a->visit != b->visit;
    if (other_chunks != !!strstr(c->name, "chunks of ") || other_cut != !!strstr(c->name, "micro-batches of ") ||
        (a->update != b->update) != !!strstr(c->name, "updates ") || !c->name[0])
        fail_msg("\"%s\" is not what it differs by", c->name);
    return 1;
}

static int check_others(const problem *p, const search_result *x)
{
    int searched = 0;
    for (int k = 0; k < x->others_n; k++) {
        check_candidate(&p->in, &x->others[k]);
        assert_true(!k || x->others[k].step_ns >= x->others[k - 1].step_ns);
        searched += check_other(&x->best, &x->others[k]);
    }
    return searched;
}

static void what_is_found_is_valid_and_as_fast_as_any_policy(void **state)
{
    (void)state;
    random_source all = random_open();
    int found = 0, refused = 0, beaten = 0, others = 0;
    for (uint64_t i = 0; found < FOUND; i++) {
        random_source r = random_fork(&all, i);
        problem p;
        search_result x;
        pt_error e = {0};
        problem_open(&r, random_from(&r, 1, 5), &p);
        problem_more(&r, &p);
        int failed = search_plan(&p.in, &x, &e);
        if (failed && failed != PT_DOES_NOT_FIT)
            fail_msg("case %llu: %s", (unsigned long long)i, e.text);
        if (!failed) {
            check_candidate(&p.in, &x.best);
            others += check_others(&p, &x);
        }
        for (policy q = 0; q < POLICIES; q++) {
            candidate c;
            int fits = policy_plan(&p.in, q, &c, &e);
            if (fits < 0)
                fail_msg("case %llu, %s: %s", (unsigned long long)i, policy_names[q], e.text);
            if (fits > 0 && failed)
                fail_msg("case %llu: nothing was found, but %s fits", (unsigned long long)i, policy_names[q]);
            if (fits > 0 && c.step_ns * 1.005 < x.best.step_ns)
                fail_msg("case %llu: %g ms was found, and %s takes %g", (unsigned long long)i, x.best.step_ns, policy_names[q], c.step_ns);
            if (fits > 0) {
                beaten++;
                check_candidate(&p.in, &c);
                candidate_free(&c);
            }
        }
        found += !failed;
        refused += failed != 0;
        search_result_free(&x);
        model_close(p.model);
    }
    print_message("%d plans, %d refused, compared with %d, %d others\n", found, refused, beaten, others);
    assert_true(others > 0);
}

static void the_same_question_gets_the_same_answer(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < TWICE; i++) {
        random_source r = random_fork(&all, i);
        problem p;
        search_result x[2];
        pt_error e = {0};
        problem_open(&r, random_from(&r, 1, SANITIZED ? 2 : 4), &p);
        problem_more(&r, &p);
        p.in.seconds = 600; /* it comes to its end */
        int failed[2];
        for (int k = 0; k < 2; k++)
            failed[k] = search_plan(&p.in, &x[k], &e);
        assert_int_equal(failed[0], failed[1]);
        if (!failed[0]) {
            assert_int_equal(x[0].tried, x[1].tried);
            assert_same_result(&p, &x[0], &x[1]);
        }
        for (int k = 0; k < 2; k++)
            search_result_free(&x[k]);
        model_close(p.model);
    }
}

static void a_refusal_names_what_is_missing_and_that_is_enough(void **state)
{
    (void)state;
    random_source all = random_open();
    int mended = 0;
    for (uint64_t i = 0; mended < MENDED; i++) {
        random_source r = random_fork(&all, i);
        problem p;
        search_result x;
        pt_error e = {0};
        problem_open(&r, random_from(&r, 1, 5), &p);
        problem_more(&r, &p);
        for (int t = 0; t < TIERS; t++)
            p.in.budget[t] /= (uint64_t)random_from(&r, 2, 8);
        int failed = search_plan(&p.in, &x, &e);
        if (failed == PT_DOES_NOT_FIT) {
            bool short_of = false;
            for (int t = 0; t < TIERS; t++) {
                short_of |= x.least[t] > p.in.budget[t];
                p.in.budget[t] = x.least[t] > p.in.budget[t] ? x.least[t] : p.in.budget[t];
            }
            assert_true(short_of);
            assert_non_null(strstr(e.text, "give --"));
            p.in.seconds = 0.01;
            if (search_plan(&p.in, &x, &e))
                fail_msg("case %llu: with what was missing: %s", (unsigned long long)i, e.text);
            mended++;
        } else if (failed) {
            fail_msg("%s", e.text);
        }
        search_result_free(&x);
        model_close(p.model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_found_is_valid_and_as_fast_as_any_policy),
        cmocka_unit_test(the_same_question_gets_the_same_answer),
        cmocka_unit_test(a_refusal_names_what_is_missing_and_that_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
