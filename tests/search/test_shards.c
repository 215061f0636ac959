/* Which chunks several ranks keep in shards: those that have no room whole; and where gathering is slow and there is room, none is gathered
 * twice a step. */
#include "search/check_priced_plan.h"

#include "search/random_problem.h"

#include "predict/forecast.h"
#include "sanitized.h"

enum { PROBLEMS = SANITIZED ? 3 : 12, RANKS_MOST = 6 };

/* A rank's part of a problem's step, with exchanges that take so many times as long as a layer for its weights. */
static void share_problem(random_source *r, int layers, problem *p, double slower)
{
    problem_open(r, layers, p);
    p->shape.ranks = random_from(r, 2, RANKS_MOST);
    p->in.training = true;
    p->in.effort = 1;
    const double bytes = layer_elements(p->model) * (double)dtype_bytes(p->shape.type);
    const double each = slower * p->costs.layer[0].forward_ns[0] / bytes;
    p->costs.gather = p->costs.scatter = (cost_curve){2, {1, 1e9}, {each, 1e9 * each}};
}

static int sharded_chunks(const plan *p)
{
    int n = 0;
    for (int i = 0; i < p->chunks_n; i++)
        n += p->chunks[i].sharded;
    return n;
}

/* On the device alone. */
static void device_only(problem *p, uint64_t bytes)
{
    p->in.host_tier = false;
    p->in.budget[TIER_DEVICE] = bytes;
    p->in.budget[TIER_HOST] = p->in.budget[TIER_DISK] = 0;
}

static void plans_of_ranks_keep_what_they_say(void **state)
{
    (void)state;
    random_source all = random_open();
    int shards = 0, mixed = 0;
    for (uint64_t i = 0; i < PROBLEMS; i++) {
        random_source r = random_fork(&all, i);
        problem p;
        search_result found;
        pt_error e = {0};
        share_problem(&r, random_from(&r, 2, 6), &p, random_ns(&r, 0.01, 2));
        if (!search_plan(&p.in, &found, &e)) {
            check_priced_plan(&p.in, &found.best);
            for (int k = 0; k < found.others_n; k++)
                check_priced_plan(&p.in, &found.others[k]);
            const int n = sharded_chunks(&found.best.plan);
            shards += n > 0;
            mixed += n > 0 && n < found.best.plan.chunks_n;
        }
        search_result_free(&found);
        model_close(p.model);
    }
    printf("%d of %d plans have shards, %d of them only of some chunks\n", shards, PROBLEMS, mixed);
    assert_true(shards > 0);
}

/* The time of a step of the plan with every chunk whole on every rank. */
static double whole_step_ns(const search_input *in, const priced_plan *c)
{
    plan whole = c->plan;
    pt_error e = {0};
    double ns = 0;
    for (int i = 0; i < whole.chunks_n; i++)
        whole.chunks[i].sharded = false;
    whole.n_buffer = 0;
    const schedule_input x = search_schedules(in, &c->packing, &whole);
    if (simulate_plan(&x, in->costs, &ns, &e))
        fail_msg("%s", e.text);
    return ns;
}

/* Where there is room, a shard remains only where its second gather hides behind something else. The search ends within 1% of the best. */
static void no_step_waits_for_a_second_gather_where_there_is_room(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < PROBLEMS; i++) {
        random_source r = random_fork(&all, i);
        problem p;
        search_result found;
        pt_error e = {0};
        share_problem(&r, random_from(&r, 2, 6), &p, 10);
        device_only(&p, UINT64_C(1) << 40);
        if (search_plan(&p.in, &found, &e))
            fail_msg("%s", e.text);
        assert_true(found.best.step_ns <= whole_step_ns(&p.in, &found.best) * 1.01);
        search_result_free(&found);
        model_close(p.model);
    }
}

/* The least is less than with all weights whole, and a plan within it is found. */
static void weights_are_sharded_where_there_is_no_room(void **state)
{
    (void)state;
    random_source r = random_open();
    problem p;
    search_result found;
    pt_error e = {0};
    share_problem(&r, random_from(&r, 10, 14), &p, 1);
    device_only(&p, 0);
    assert_int_equal(search_plan(&p.in, &found, &e), PT_DOES_NOT_FIT);
    const uint64_t least = found.least[TIER_DEVICE];
    search_result_free(&found);
    device_only(&p, least);
    if (search_plan(&p.in, &found, &e))
        fail_msg("%s", e.text);
    assert_true(sharded_chunks(&found.best.plan) > 0);
    check_priced_plan(&p.in, &found.best);
    search_result_free(&found);
    model_close(p.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_ranks_keep_what_they_say),
        cmocka_unit_test(no_step_waits_for_a_second_gather_where_there_is_room),
        cmocka_unit_test(weights_are_sharded_where_there_is_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
