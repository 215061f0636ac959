/* What is measured while other programs have the processors: it is uncertain, relations hold, and it does not replace what was measured on
 * an idle machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cores.h"
#include "base/rng.h"
#include "profile/lies.h"
#include "seed.h"

#include <math.h>

/* ---- a clock beside other programs ---- */

/* An op works as long as clocked.h says, and its threads wait up to three times that, at random, where there are others. */
static bool others;
static uint64_t seed;
static uint64_t drawn;
static int64_t work_ns, waited_ns;

static void disturbed_submit(queue *q, const op *o)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 0, drawn++, w);
    const int64_t ns = op_ns(o), waits = others ? (int64_t)(3.0 * (double)ns * w[0] / UINT32_MAX) : 0;
    clock_ns += ns + waits;
    work_ns += ns;
    waited_ns += waits;
    real_table->submit(q, o);
}

static void disturbed_mark_work(queue *q, int64_t *ns) { *ns = work_ns * q->threads; }
static void disturbed_mark_waited(queue *q, int64_t *ns) { *ns = waited_ns * q->threads; }

static char said[8192];

static void open_setup(setup *s)
{
    if (cores_allowed() < 2) /* the device's two threads would wait for each other */
        skip();
    clocked_open(s, 1, 16);
    counting_table.submit = disturbed_submit;
    counting_table.mark_work = disturbed_mark_work;
    counting_table.mark_waited = disturbed_mark_waited;
    s->r.transfers = s->r.host_tier = false;
    s->r.notice = keep_notice;
    s->r.arg = said;
}

static void get(setup *s, bool beside_others, profile_result *p)
{
    others = beside_others;
    said[0] = 0;
    profile_must(s, p);
}

/* ---- tests ---- */

static void what_layers_cost_relative_to_each_other_holds(void **state)
{
    (void)state;
    setup s;
    profile_result idle, busy;
    open_setup(&s);
    s.r.fresh = true;
    get(&s, false, &idle);
    assert_string_equal(said, "");
    get(&s, true, &busy);
    const layer_cost *a = &idle.costs.layer[0], *b = &busy.costs.layer[0];
    const double by = b->forward_ns[SAVE_ALL] / a->forward_ns[SAVE_ALL];
    for (int level = 0; level < SAVE_LEVELS; level++)
        if (fabs(b->forward_ns[level] / a->forward_ns[level] / by - 1) > 1e-4 ||
            fabs(b->backward_ns[level] / a->backward_ns[level] / by - 1) > 1e-4)
            fail_msg("level %d: forward %g, idle %g; backward %g, idle %g; all forward %g times as long", level, b->forward_ns[level],
                     a->forward_ns[level], b->backward_ns[level], a->backward_ns[level], by);
    assert_true(a->backward_ns[SAVE_INPUT] > a->backward_ns[SAVE_ALL]);
    setup_close(&s);
}

static void what_was_disturbed_is_uncertain_and_says_so(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    open_setup(&s);
    get(&s, true, &p);
    for (int part = 0; part < PROFILE_PARTS; part++)
        assert_true(p.others[part] > 0.2 && p.others[part] < 0.8);
    assert_true(p.costs.spread >= p.others[PROFILE_BLOCKS] * 0.99 && p.costs.curves_spread >= p.others[PROFILE_MACHINE] * 0.99);
    if (!strstr(said, "other programs kept the processors busy for ") || strstr(strstr(said, "other") + 1, "other"))
        fail_msg("%s", said);
    setup_close(&s);
}

static void what_was_disturbed_serves_until_the_machine_is_idle(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    open_setup(&s);
    get(&s, true, &p);
    assert_false(p.cached);
    get(&s, true, &p);
    assert_true(p.cached && p.others[PROFILE_BLOCKS] > PROFILE_DISTURBED);
    get(&s, false, &p);
    assert_true(!p.cached && p.others[PROFILE_BLOCKS] == 0 && p.others[PROFILE_MACHINE] == 0 && p.costs.spread < 0.01);
    assert_string_equal(said, "");
    get(&s, false, &p);
    assert_true(p.cached);
    setup_close(&s);
}

static const check *slowed;
static void slow_down_twice(const char *path) { slow_down(path, slowed, 2); }

/* What takes twice as long beside others is no other machine; on an idle one it is. */
static void what_was_measured_idle_serves_beside_others(void **state)
{
    (void)state;
    setup s;
    profile_result first, p;
    open_setup(&s);
    for (slowed = checks; slowed < checks + 2; slowed++) {
        s.r.fresh = true;
        get(&s, false, &first);
        s.r.fresh = false;
        each_file(slow_down_twice);
        get(&s, true, &p);
        assert_true(p.cached && p.others_now > PROFILE_DISTURBED);
        assert_memory_equal(&p.costs, &first.costs, sizeof p.costs);
        assert_non_null(strstr(said, "steps take longer than predicted"));
        get(&s, false, &p);
        assert_false(p.cached);
    }
    setup_close(&s);
}

static void what_is_disturbed_does_not_replace_what_is_not(void **state)
{
    (void)state;
    setup s;
    profile_result first, p;
    open_setup(&s);
    get(&s, false, &first);
    s.r.fresh = true;
    get(&s, true, &p);
    assert_true(!p.cached && p.others[PROFILE_BLOCKS] > PROFILE_DISTURBED);
    s.r.fresh = false;
    get(&s, false, &p);
    assert_true(p.cached);
    assert_memory_equal(&p.costs, &first.costs, sizeof p.costs);
    setup_close(&s);
}

static void ranks_without_processors_of_their_own_do_not_disturb(void **state)
{
    (void)state;
    setup s;
    profile_result p;
    open_setup(&s);
    s.r.ranks = 4096;
    get(&s, true, &p);
    assert_true(p.others[PROFILE_BLOCKS] == 0 && p.others[PROFILE_MACHINE] == 0);
    assert_string_equal(said, "");
    setup_close(&s);
}

static void a_file_keeps_what_others_took(void **state)
{
    (void)state;
    setup s;
    profile_result p, read;
    pt_error e = {0};
    open_setup(&s);
    get(&s, true, &p);
    char *text = profile_to_json(&s.r, &p);
    assert_non_null(text);
    if (profile_from_json("p", text, strlen(text), &s.r, &read, &e))
        fail_msg("%s", e.text);
    for (int part = 0; part < PROFILE_PARTS; part++)
        assert_true(fabs(read.others[part] - p.others[part]) < 0.01);
    free(text);
    setup_close(&s);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_layers_cost_relative_to_each_other_holds),
        cmocka_unit_test(what_was_disturbed_is_uncertain_and_says_so),
        cmocka_unit_test(what_was_disturbed_serves_until_the_machine_is_idle),
        cmocka_unit_test(what_was_measured_idle_serves_beside_others),
        cmocka_unit_test(what_is_disturbed_does_not_replace_what_is_not),
        cmocka_unit_test(ranks_without_processors_of_their_own_do_not_disturb),
        cmocka_unit_test(a_file_keeps_what_others_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
