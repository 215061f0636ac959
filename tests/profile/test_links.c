/* What is measured beside each other, on a device whose queues keep their own time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "profile/support.h"

#include <math.h>

/* ---- queues that keep time ---- */

enum { QUEUES_MOST = 16, LONG_COPY = 8 << 20, SHORT_TRANSFER = 4 << 20 };
static int64_t math_ns = 20000000;
static int disk_speed; /* times that of copies, which move a byte a nanosecond */
static int64_t stands_ns; /* of each PERIOD_NS at its end, for who computes beside a disk and for the disk */
static bool always;       /* and for who computes alone */
static int held_up_times = 2; /* as long a long copy takes beside others */
static int64_t late_ns;       /* that a copy beside others begins later */
enum { PERIOD_NS = 100000000 };
static bool submitted[2]; /* what computes, what the disk does, since somebody waited */

/* Every op takes as long as it says here, and a queue's begin behind one another, but not before what was waited for last. */
static struct { const queue *q; int64_t at; } times[QUEUES_MOST];
static int64_t waited; /* until then */

static int64_t *time_of(const queue *q)
{
    int i = 0;
    while (i < QUEUES_MOST - 1 && times[i].q && times[i].q != q)
        i++;
    times[i].q = q;
    times[i].at = times[i].at > waited ? times[i].at : waited;
    return &times[i].at;
}

/* Whether some other queue has work beyond that moment. */
static bool others_work(const queue *q, int64_t at)
{
    bool any = false;
    for (int i = 0; i < QUEUES_MOST; i++)
        any |= times[i].q && times[i].q != q && times[i].at > at;
    return any;
}

/* When `ns` of work are over that begin at that moment, if nothing goes on at the end of each period. */
static int64_t without_ends(int64_t from, int64_t ns)
{
    const int64_t works = PERIOD_NS - stands_ns;
    for (;;) {
        const int64_t of_period = from % PERIOD_NS, left = of_period < works ? works - of_period : 0;
        if (ns <= left)
            return from + ns;
        ns -= left;
        from += PERIOD_NS - of_period;
    }
}

/* Of copies beside others the long ones alone take longer, usually twice as long; of disk transfers beside disk transfers the short ones,
 * three times as long. */
static void timed_submit(queue *q, const op *o)
{
    int64_t *at = time_of(q);
    const bool copy = o->kind == OP_COPY, disk = o->kind == OP_DISK_READ || o->kind == OP_DISK_WRITE;
    const bool held_up = copy && o->copy.bytes > LONG_COPY && others_work(q, *at);
    const bool behind = disk && o->disk.bytes <= SHORT_TRANSFER && others_work(q, *at);
    const int64_t before = *at;
    *at += copy && others_work(q, *at) ? late_ns : 0;
    *at += copy ? (int64_t)o->copy.bytes * (held_up ? held_up_times : 1)
           : disk ? (int64_t)o->disk.bytes / disk_speed * (behind ? 3 : 1) : math_ns;
    submitted[disk] |= !copy;
    if (stands_ns && !copy && (submitted[!disk] || (always && !disk)))
        *at = without_ends(before, *at - before);
    if (copy || disk) /* what would be computed nobody looks at */
        real_table->submit(q, o);
}

static void timed_mark(queue *q, int64_t *ns) { *ns = *time_of(q); }

static int timed_sync(queue *q, uint64_t value, pt_error *e)
{
    int64_t at = *time_of(q);
    waited = waited > at ? waited : at;
    submitted[0] = submitted[1] = false;
    return real_table->sync(q, value, e);
}

/* ---- lengths ---- */

/* Of a model that is large enough for transfers of 16 MiB. */
static void timed_profile(int speed, costs *out)
{
    static const char config[] = "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 3, \"n_head\": 4, \"n_positions\": 64, "
                                 "\"vocab_size\": 6000}";
    setup s;
    profile_result p;
    disk_speed = speed;
    memset(times, 0, sizeof times); /* queues that are no more */
    waited = 0;
    setup_open(&s, config, PT_F32, 4, 16);
    counting_table.submit = timed_submit;
    counting_table.mark = timed_mark;
    counting_table.sync = timed_sync;
    s.device->info.quota = 0; /* under one they are timed copy after copy */
    for (int t = 0; t < TIERS; t++)
        s.r.budget[t] = 512 << 20;
    profile_must(&s, &p);
    *out = p.costs;
    setup_close(&s);
}

static void assert_lengths(const costs *c, int class, double usual, double other)
{
    const double *ns = c->slow_ns[class];
    if (fabs(ns[0] - usual) > 0.01 * usual || fabs(ns[1] - other) > 0.01 * other)
        fail_msg("%s: %g and %g ns, not %g and %g", cost_class_names[class], ns[0], ns[1], usual, other);
}

static void long_copies_lose_more_beside_computation_and_are_noted_apart(void **state)
{
    (void)state;
    costs c;
    timed_profile(1, &c);
    for (int copy = COST_TO_DEVICE; copy <= COST_FROM_DEVICE; copy++) {
        assert_lengths(&c, copy, 4 << 20, 16 << 20);
        for (int beside = 0; beside < COST_CLASSES; beside++) {
            const bool computes = beside == COST_MATH || beside == COST_MEMORY || beside == COST_HOST;
            const double slow = c.slow[copy][beside], more = c.slow_more[copy][beside];
            if (fabs(more - computes) > 0.01 || (computes && fabs(slow - 1) > 0.01))
                fail_msg("%s beside %s: %g, long ones %g more", cost_class_names[copy], cost_class_names[beside], slow, more);
        }
    }
    assert_true(c.slow_ns[COST_READ][1] == 0 && c.slow_more[COST_READ][COST_WRITE] == 0); /* the usual ones are as short here */
}

/* The straight line through both lengths is what they take beside it, of any length. */
static void copies_that_begin_late_lose_less_the_longer_they_are(void **state)
{
    (void)state;
    costs c;
    late_ns = 4 << 20;
    held_up_times = 1;
    timed_profile(1, &c);
    late_ns = 0;
    held_up_times = 2;
    for (int copy = COST_TO_DEVICE; copy <= COST_FROM_DEVICE; copy++)
        for (int64_t bytes = 4 << 20; bytes <= 1 << 30; bytes *= 2) {
            const double slow = costs_slow(&c, (cost_class)copy, COST_HOST, (double)bytes);
            const double expected = 1 + (double)(4 << 20) / (double)bytes;
            if (fabs(slow - expected) > 0.01)
                fail_msg("%s of %lld bytes: %g times as long, not %g", cost_class_names[copy], (long long)bytes, slow, expected);
        }
}

/* Longer ones than were run would lose more than a profile may say. */
static void what_no_length_can_lose_is_not_noted(void **state)
{
    (void)state;
    costs c;
    held_up_times = 49;
    math_ns = 2000000000; /* not over before they are */
    timed_profile(1, &c);
    held_up_times = 2;
    math_ns = 20000000;
    for (int copy = COST_TO_DEVICE; copy <= COST_FROM_DEVICE; copy++) {
        const double most = c.slow[copy][COST_MATH] + c.slow_more[copy][COST_MATH] * costs_length_share(&c, (cost_class)copy, INFINITY);
        if (fabs(most - 50) > 0.01)
            fail_msg("%s: the longest beside computation takes %g times as long", cost_class_names[copy], most);
    }
}

/* What a queue begins when all of the other's that was submitted is over is not held up, so that it is less than twice more. */
static void short_disk_transfers_lose_more_beside_the_other_way_and_are_noted_apart(void **state)
{
    (void)state;
    costs c;
    timed_profile(2, &c);
    for (int a = COST_READ; a <= COST_WRITE; a++) {
        assert_lengths(&c, a, 4 << 20, 2 << 20);
        for (int b = 0; b < COST_CLASSES; b++) {
            const double slow = c.slow[a][b], more = c.slow_more[a][b];
            if (b == COST_READ + COST_WRITE - a ? fabs(slow - 1) > 0.01 || more < 0.5 || more > 2.01 : more > 0)
                fail_msg("%s beside %s: %g, short ones %g more", cost_class_names[a], cost_class_names[b], slow, more);
        }
    }
    assert_true(costs_length_share(&c, COST_READ, 4.1 * (1 << 20)) == 0 && costs_length_share(&c, COST_READ, 1 << 20) == 1);
    assert_true(c.quota.busy[COST_READ] == 0 && c.quota.busy[COST_WRITE] == 0); /* nothing stood still */
    const double share = costs_length_share(&c, COST_READ, 3 << 20); /* 3 + more: halfway between 2 * (1 + more) and 4 */
    assert_true(fabs(share - 1. / 3) < 0.01);
}

/* Two threads compute for 70 ms of 100: 140 of 200 ms of processor time. The host takes 60 meanwhile, 6 / 7 of a processor. */
static void a_host_that_works_for_the_disk_is_found_by_what_stands_still(void **state)
{
    (void)state;
    costs c;
    stands_ns = 30000000;
    math_ns = 2000000; /* when one stood still is known by that much */
    timed_profile(2, &c);
    assert_true(c.quota.period_ns == PERIOD_NS && c.quota.processors == 2 && c.quota.busy[COST_MATH] == 2 && c.quota.busy[COST_HOST] >= 1);
    for (int a = COST_READ; a <= COST_WRITE; a++) {
        if (fabs(c.quota.busy[a] - 6. / 7) > 0.05)
            fail_msg("%s keeps %g processors of the host busy", cost_class_names[a], c.quota.busy[a]);
        if (fabs(c.slow[COST_MATH][a] - 1) > 0.05 || fabs(c.slow[a][COST_MATH] - 1) > 0.1) /* while nothing stands still */
            fail_msg("%s: %g and %g times as long beside computation", cost_class_names[a], c.slow[COST_MATH][a], c.slow[a][COST_MATH]);
    }
    always = true; /* without a disk too: something else holds it up */
    timed_profile(2, &c);
    assert_true(c.quota.busy[COST_READ] == 0 && c.quota.busy[COST_WRITE] == 0);
    always = false;
    stands_ns = 0;
    math_ns = 20000000;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_copies_lose_more_beside_computation_and_are_noted_apart),
        cmocka_unit_test(copies_that_begin_late_lose_less_the_longer_they_are),
        cmocka_unit_test(what_no_length_can_lose_is_not_noted),
        cmocka_unit_test(short_disk_transfers_lose_more_beside_the_other_way_and_are_noted_apart),
        cmocka_unit_test(a_host_that_works_for_the_disk_is_found_by_what_stands_still),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
