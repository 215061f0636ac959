/* What is measured beside each other, on a device whose queues keep their own time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "profile/support.h"

#include <math.h>

/* ---- queues that keep time ---- */

enum { QUEUES_MOST = 16, LONG_COPY = 8 << 20 };
static const int64_t math_ns = 20000000;

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

/* Of copies beside others the long ones alone take longer, twice as long. */
static void timed_submit(queue *q, const op *o)
{
    int64_t *at = time_of(q);
    const bool copy = o->kind == OP_COPY, disk = o->kind == OP_DISK_READ || o->kind == OP_DISK_WRITE;
    const bool held_up = copy && o->copy.bytes > LONG_COPY && others_work(q, *at);
    *at += copy ? (int64_t)o->copy.bytes * (held_up ? 2 : 1) : disk ? (int64_t)o->disk.bytes : math_ns;
    real_table->submit(q, o);
}

static void timed_mark(queue *q, int64_t *ns) { *ns = *time_of(q); }

static int timed_sync(queue *q, uint64_t value, pt_error *e)
{
    int64_t at = *time_of(q);
    waited = waited > at ? waited : at;
    return real_table->sync(q, value, e);
}

/* ---- copies ---- */

static void long_copies_lose_more_beside_computation_and_are_noted_apart(void **state)
{
    (void)state;
    static const char config[] = "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 3, \"n_head\": 4, \"n_positions\": 64, "
                                 "\"vocab_size\": 6000}"; /* large enough for copies of 16 MiB */
    const double bytes[2] = {4 << 20, 16 << 20};
    setup s;
    profile_result p;
    setup_open(&s, config, PT_F32, 4, 16);
    counting_table.submit = timed_submit;
    counting_table.mark = timed_mark;
    counting_table.sync = timed_sync;
    s.device->info.quota = 0; /* under one they are timed copy after copy */
    for (int t = 0; t < TIERS; t++)
        s.r.budget[t] = 512 << 20;
    profile_must(&s, &p);
    const costs *c = &p.costs;
    for (int copy = COST_TO_DEVICE; copy <= COST_FROM_DEVICE; copy++) {
        for (int i = 0; i < 2; i++)
            assert_true(fabs(c->slow_ns[copy][i] - bytes[i]) <= 0.01 * bytes[i]);
        for (int beside = 0; beside < COST_CLASSES; beside++) {
            const bool computes = beside == COST_MATH || beside == COST_MEMORY || beside == COST_HOST;
            const double slow = c->slow[copy][beside], more = c->slow_more[copy][beside];
            if (fabs(more - computes) > 0.01 || (computes && fabs(slow - 1) > 0.01))
                fail_msg("%s beside %s: %g, long ones %g more", cost_class_names[copy], cost_class_names[beside], slow, more);
        }
    }
    assert_true(c->slow_ns[COST_READ][1] == 0 && c->slow_more[COST_READ][COST_MATH] == 0);
    setup_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_copies_lose_more_beside_computation_and_are_noted_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
