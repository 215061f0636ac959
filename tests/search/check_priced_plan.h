/* check_candidate.h - a plan that a search hands out keeps what it says. */
#ifndef PT_CHECK_PRICED_PLAN_H
#define PT_CHECK_PRICED_PLAN_H

#include "schedule/check.h"
#include "search/search.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Every schedule of the plan passes the checker inside the budgets. */
static inline void check_priced_plan(const search_input *asked, const priced_plan *c)
{
    pt_error e = {0};
    const schedule_input in = search_schedules(asked, &c->packing, &c->plan);
    unsigned kinds = search_kinds(asked, c->plan.update);
    if (plan_validate(&c->plan, asked->model, asked->shape, &c->packing, asked->clipping, &e))
        fail_msg("%s: %s", c->name, e.text);
    for (int k = 0; k < SCHEDULE_KINDS; k++) {
        schedule s;
        if (!(kinds & 1u << k))
            continue;
        if (schedule_build(&in, (schedule_kind)k, &s, &e) || schedule_check(&in, &s, asked->budget, &e))
            fail_msg("%s, schedule kind %d: %s", c->name, k, e.text);
        schedule_free(&s);
    }
    uint64_t bytes[TIERS];
    double ns = 0;
    assert_int_equal(schedule_plan_bytes(&in, kinds, bytes, &e), 0);
    for (int t = 0; t < TIERS; t++) {
        assert_true(bytes[t] == c->bytes[t]);
        assert_true(bytes[t] <= asked->budget[t]);
    }
    assert_int_equal(simulate_plan(&in, asked->costs, &ns, &e), 0);
    assert_true(ns >= c->step_ns * 0.999999 && ns <= c->step_ns * 1.000001);
}

#endif
