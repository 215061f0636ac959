/* The search beside the fixed policies, on models of 8 to 100 layers: no policy that fits is faster than what it finds.
 *
 * PT_POLICY_CASES=n looks at n models; PT_VERBOSE=1 prints each. */
#include "search/check_priced_plan.h"

#include "random_plan.h"
#include "sanitized.h"
#include "search_case.h"

#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CASES = SANITIZED ? 9 : 20, CLOCKED = SANITIZED ? 1 : 3, LAYERS_MOST = SANITIZED ? 48 : 100 };

/* ---- the clock: this program's own jumps ahead at each look, as on a machine that is busy with other work ---- */

static long look_ms; /* what each look at the clock takes; 0: the system's own is shown */

int clock_gettime(clockid_t id, struct timespec *out)
{
    static atomic_llong ms; /* threads that help look too */
    if (!look_ms)
        return (int)syscall(SYS_clock_gettime, id, out);
    const long long now = atomic_fetch_add(&ms, look_ms) + look_ms;
    *out = (struct timespec){(time_t)(now / 1000), (long)(now % 1000) * 1000000};
    return 0;
}

/* ---- cases ---- */

static void random_rates(random_source *r, rates *out)
{
    *out = rates_gpu;
    double *each[] = {&out->flops, &out->device_memory, &out->host_memory, &out->link, &out->read, &out->write};
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        *each[i] *= 0.25 * (1 << random_below(r, 5));
    out->task_ns = random_from(r, 0, 20000);
}

/* Device, host and disk, or without one of the latter, or without both; what is not there is made up for by what is. */
static search_case tiers_of(random_source *r, search_case x)
{
    const bool host = random_below(r, 4) > 0, disk = random_below(r, 2) > 0;
    const double gib = case_states_gib(&x);
    x.host_gib = !host ? 0 : gib * random_from(r, disk ? 3 : 7, 20) / 8;
    x.disk_gib = disk ? 3 * gib : 0;
    if (!host)
        x.device_gib = gib * random_from(r, disk ? 1 : 8, 16) / 8 + 2;
    return x;
}

static search_case draw_case(random_source *r, rates *own)
{
    static const int layers[] = {8, 12, 13, 16, 24, 32, 48, 64, 80, 100};
    case_source source = {random_bits(r), 0};
    search_case x = case_random(&source);
    do
        x.layers = layers[random_below(r, sizeof layers / sizeof *layers)];
    while (x.layers > LAYERS_MOST);
    random_rates(r, own);
    x.rates = own;
    return tiers_of(r, x);
}

/* ---- the search beside the policies ---- */

/* Where everything fits into memory the disk is left alone, whatever is estimated before. */
static void check_disk(const search_input *in, const search_result *x, uint64_t number)
{
    search_input without = *in;
    without.budget[TIER_DISK] = 0;
    for (policy p = POLICY_RESIDENT; p <= POLICY_RECOMPUTE && x->best.bytes[TIER_DISK]; p++) {
        priced_plan c;
        pt_error e = {0};
        int fits = policy_plan(&without, p, &c, &e);
        if (fits)
            fail_msg("case %llu: the disk is used, and %s fits without", (unsigned long long)number, policy_names[p]);
        priced_plan_free(&c);
    }
}

/* How many policies fit. `found`: something was. */
static int compare(const search_input *in, const search_result *x, bool found, uint64_t number)
{
    int fitting = 0;
    search_input same = *in;
    if (!x->least[TIER_DISK]) /* where memory suffices the disk is left alone */
        same.budget[TIER_DISK] = 0;
    for (policy p = 0; p < POLICIES; p++) {
        priced_plan c;
        pt_error e = {0};
        int fits = policy_plan(&same, p, &c, &e);
        if (fits < 0)
            fail_msg("case %llu, %s: %s", (unsigned long long)number, policy_names[p], e.text);
        if (!fits)
            continue;
        if (!found)
            fail_msg("case %llu: nothing was found, but %s fits", (unsigned long long)number, policy_names[p]);
        if (c.step_ns * (1 + 1e-9) < x->best.step_ns)
            fail_msg("case %llu: %g ms was found, and %s takes %g", (unsigned long long)number, x->best.step_ns * 1e-6, policy_names[p],
                     c.step_ns * 1e-6);
        fitting++;
        priced_plan_free(&c);
    }
    return fitting;
}

static void no_policy_is_faster_than_what_is_found(void **state)
{
    (void)state;
    const char *given = getenv("PT_POLICY_CASES");
    const int wanted = given ? atoi(given) : CASES;
    random_source all = random_open();
    int found = 0, refused = 0, fitting = 0;
    for (uint64_t i = 0; found < wanted; i++) {
        random_source r = random_fork(&all, i);
        rates own;
        search_problem p;
        search_result x;
        pt_error e = {0};
        const search_case one = draw_case(&r, &own);
        if (search_problem_open(&one, &p, &e))
            fail_msg("%s", e.text);
        p.in.clipping = random_one_in(&r, 2);
        p.in.training = !random_one_in(&r, 6);
        p.in.evaluates = random_one_in(&r, 2);
        int failed = search_plan(&p.in, &x, &e);
        if (failed && failed != PT_DOES_NOT_FIT)
            fail_msg("case %llu: %s", (unsigned long long)i, e.text);
        if (!failed) {
            check_priced_plan(&p.in, &x.best);
            check_disk(&p.in, &x, i);
        }
        const int n = compare(&p.in, &x, !failed, i);
        if (getenv("PT_VERBOSE"))
            print_message("case %llu: %d layers, %d x %d, GiB %.0f %.0f %.0f: %s, %d tried, %.1f ms, %d policies fit\n",
                          (unsigned long long)i, one.layers, (int)one.batch, (int)one.seq_len, one.device_gib, one.host_gib, one.disk_gib,
                          failed ? "refused" : "found", x.tried, x.best.step_ns * 1e-6, n);
        fitting += n;
        found += !failed;
        refused += failed != 0;
        search_result_free(&x);
        search_problem_close(&p);
    }
    print_message("%d plans, %d refused, compared with %d\n", found, refused, fitting);
    assert_true(fitting > 0);
}

/* All of this model fits into one chunk, in which nothing is left empty. */
static void protrain_has_chunks_to_choose_from(void **state)
{
    (void)state;
    const search_case small = {"small", 512, 8, 8, 8, 1536, 1000, 4, 512, &rates_gpu, 1, 1, 0};
    search_problem p;
    priced_plan c;
    pt_error e = {0};
    assert_int_equal(search_problem_open(&small, &p, &e), 0);
    assert_int_equal(policy_plan(&p.in, POLICY_PROTRAIN, &c, &e), 1);
    assert_true(c.plan.chunks_n >= small.layers);
    priced_plan_free(&c);
    search_problem_close(&p);
}

/* The device has room for what the host lacks beside a schedule that streams everything: for some persistent chunks. */
static void protrain_finds_the_room_that_there_is(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < CASES; i++) {
        random_source r = random_fork(&all, i);
        rates own;
        search_problem p;
        priced_plan c;
        pt_error e = {0};
        search_case one = draw_case(&r, &own);
        one.host_gib = 1;
        if (search_problem_open(&one, &p, &e))
            fail_msg("%s", e.text);
        p.in.clipping = random_one_in(&r, 2);
        p.in.budget[TIER_DEVICE] = p.in.budget[TIER_HOST] = (uint64_t)1 << 50;
        p.in.budget[TIER_DISK] = 0;
        assert_int_equal(policy_plan(&p.in, POLICY_FSDP, &c, &e), 1);
        const uint64_t lacks = c.bytes[TIER_HOST] / (8 << random_below(&r, 4));
        p.in.budget[TIER_HOST] = c.bytes[TIER_HOST] - lacks;
        p.in.budget[TIER_DEVICE] = c.bytes[TIER_DEVICE] + lacks + 2 * c.bytes[TIER_HOST] / (uint64_t)c.plan.chunks_n;
        priced_plan_free(&c);
        if (policy_plan(&p.in, POLICY_PROTRAIN, &c, &e) != 1)
            fail_msg("case %llu: no room for %d layers", (unsigned long long)i, one.layers);
        priced_plan_free(&c);
        search_problem_close(&p);
    }
}

static void memory_that_just_suffices_needs_no_disk(void **state)
{
    (void)state;
    enum { JUST = CASES / 2 };
    random_source all = random_open();
    for (uint64_t i = 0; i < JUST; i++) {
        random_source r = random_fork(&all, i);
        rates own;
        search_problem p;
        search_result x;
        priced_plan c;
        pt_error e = {0};
        search_case one = draw_case(&r, &own);
        one.host_gib = 0;
        if (search_problem_open(&one, &p, &e))
            fail_msg("%s", e.text);
        p.in.clipping = random_one_in(&r, 2);
        p.in.budget[TIER_DEVICE] = p.in.budget[TIER_DISK] = (uint64_t)1 << 50;
        assert_int_equal(policy_plan(&p.in, POLICY_RECOMPUTE, &c, &e), 1);
        p.in.budget[TIER_DEVICE] = c.bytes[TIER_DEVICE];
        p.in.effort = 0.04;
        priced_plan_free(&c);
        if (search_plan(&p.in, &x, &e))
            fail_msg("case %llu: %s", (unsigned long long)i, e.text);
        check_disk(&p.in, &x, i);
        search_result_free(&x);
        search_problem_close(&p);
    }
}

static void the_clock_changes_nothing(void **state)
{
    (void)state;
    random_source all = random_open();
    int same = 0;
    for (uint64_t i = 0; same < CLOCKED; i++) {
        random_source r = random_fork(&all, i);
        rates own;
        search_problem p;
        search_result x[2];
        pt_error e = {0};
        int failed[2];
        const search_case one = draw_case(&r, &own);
        if (search_problem_open(&one, &p, &e))
            fail_msg("%s", e.text);
        for (int k = 0; k < 2; k++) {
            look_ms = k * 1000;
            failed[k] = search_plan(&p.in, &x[k], &e);
            look_ms = 0;
        }
        assert_int_equal(failed[0], failed[1]);
        assert_int_equal(x[0].tried, x[1].tried);
        assert_true(x[0].best.step_ns == x[1].best.step_ns);
        same += !failed[0];
        search_result_free(&x[0]);
        search_result_free(&x[1]);
        search_problem_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_policy_is_faster_than_what_is_found),
                                       cmocka_unit_test(the_clock_changes_nothing),
                                       cmocka_unit_test(memory_that_just_suffices_needs_no_disk),
                                       cmocka_unit_test(protrain_has_chunks_to_choose_from),
                                       cmocka_unit_test(protrain_finds_the_room_that_there_is)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
