#include "random_problem.h"

#include "search/space.h"

#include <math.h>

/* What the search throws away unpriced, it throws away by an estimate's `least_ns`. What is said of all plans holds for each, within no
 * more memory than it takes. */

typedef struct one { random_source *r; int seen; candidate candidate; } one;

/* Any of the neighbours, each as likely. */
static bool take_any(void *arg, const candidate *r, const estimate *about)
{
    one *x = arg;
    (void)about;
    if (random_one_in(x->r, ++x->seen))
        x->candidate = *r;
    return false;
}

/* What every plan computes: each layer at its cheapest level, all weights in the cache. */
static double needed_ns(const space *s)
{
    const costs *c = s->in->costs;
    double unit = c->embed_ns + c->head_ns;
    for (int i = 0; i < s->layers; i++) {
        const layer_cost *l = &c->layer[c->kind_of_layer[i]];
        double least = INFINITY;
        for (int k = 0; k < (i < s->passing ? 1 : SAVE_LEVELS); k++) {
            const double ahead = fmax(l->forward_ns[k] - l->warm_forward_ns, 0), back = fmax(l->backward_ns[k] - l->warm_backward_ns[k], 0);
            least = fmin(least, ahead + (i < s->passing ? 0 : back));
        }
        unit += least;
    }
    return unit * (double)s->in->shape->units_n;
}

/* The bound of all plans within the memory of this one, which a time that is much longer leaves room to be wrong. Gives its share of
 * the plan's time. */
static double share_of_all(const space *s, const priced *x)
{
    search_input in = *s->in;
    pt_error e = {0};
    double least;
    memcpy(in.budget, x->bytes, sizeof in.budget);
    in.layouts = NULL;
    if (search_bound(&in, 8 * x->step_ns, &least, &e))
        fail_msg("%s", e.text);
    if (least > x->step_ns * (1 + 1e-9))
        fail_msg("no plan takes less than %.0f ns, it is said, but one takes %.0f", least, x->step_ns);
    if (s->in->training && shape_ranks(s->in->shape) == 1 && least < needed_ns(s) * (1 - 1e-9))
        fail_msg("a plan may take %.0f ns, it is said, but its computation takes %.0f", least, needed_ns(s));
    return least / x->step_ns;
}

static double assert_bound(space *s, const candidate *r)
{
    const uint64_t any[TIERS] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    pt_error e = {0};
    estimate about;
    priced x;
    plan p;
    candidate_estimate(s, r, &about);
    if (candidate_plan(s, r, &p, &e) || price_plan(s->in, &s->chunkings[r->chunking].packing, &p, any, 0, &x, &e) != 1)
        fail_msg("%s", e.text);
    plan_free(&p);
    assert_true(about.least_ns > 0);
    if (r->stride <= 1 && about.least_ns > x.step_ns * (1 + 1e-9)) /* else it has the mean of the chunks, not those that are updated */
        fail_msg("%.0f ns at least, it is said, but %.0f", about.least_ns, x.step_ns);
    return share_of_all(s, &x);
}

static void no_plan_is_faster_than_its_bound(void **state)
{
    (void)state;
    enum { PROBLEMS = 24, CANDIDATES = 24 };
    double shares = 0;
    random_source all = random_open();
    for (uint64_t i = 0; i < PROBLEMS; i++) {
        random_source r = random_fork(&all, i);
        pt_error e = {0};
        problem p;
        space s;
        problem_open_with(&r, random_from(&r, 1, 14), true, &p);
        problem_more(&r, &p);
        if (space_open(&s, &p.in, &e))
            fail_msg("%s", e.text);
        one x = {.r = &r};
        candidate_init(&s, &x.candidate, random_below(&r, s.chunkings_n));
        candidate_normalise(&s, &x.candidate);
        for (int k = 0; k < CANDIDATES; k++) {
            candidate from = x.candidate;
            shares += assert_bound(&s, &from) / (PROBLEMS * CANDIDATES);
            x.seen = 0;
            candidate_moves(&s, &from, k % 4 == 0, take_any, &x);
        }
        space_close(&s);
        model_close(p.model);
    }
    print_message("the bound of all plans is %.0f%% of a random plan's time\n", 100 * shares);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_plan_is_faster_than_its_bound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
