/* When measuring stops, and what it makes of its times: a queue whose marks say what the test wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "measure/measure.h"
#include "measure/measure_parts.h"

#include <math.h>

/* ---- medians and quartiles ---- */

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

static void the_median_is_in_the_middle_whatever_the_order(void **state)
{
    (void)state;
    assert_true(samples_median(&(samples){.n = 0}) == 0);
    assert_true(samples_median(&(samples){.n = 1, .ns = {7}}) == 7);
    assert_true(samples_median(&(samples){.n = 3, .ns = {9, 1, 5}}) == 5);
    assert_true(samples_median(&(samples){.n = 4, .ns = {8, 1, 4, 2}}) == 3);
}

/* The quartiles of n values in ascending order stand at (n - 1) / 4 and 3 (n - 1) / 4, counted from 0. */
static void the_spread_is_half_the_distance_of_the_quartiles(void **state)
{
    (void)state;
    assert_true(samples_spread(&(samples){.n = 0}) == 0);
    assert_true(near(samples_spread(&(samples){.n = 5, .ns = {120, 90, 100, 1000, 10}}), (120 - 90) / 2.0 / 100));
    assert_true(near(samples_spread(&(samples){.n = 4, .ns = {10, 20, 30, 40}}), (32.5 - 17.5) / 2 / 25));
    assert_true(near(samples_spread(&(samples){.n = 3, .ns = {10, 20, 40}}), (30 - 15) / 2.0 / 20));
}

static void only_what_ran_often_enough_tells_a_spread(void **state)
{
    (void)state;
    double spread = 0.25;
    samples_tell(&(samples){.n = 2, .ns = {10, 20}}, &spread);
    assert_true(spread == 0.25);
    samples_tell(&(samples){.n = 3, .ns = {10, 20, 40}}, &spread);
    assert_true(near(spread, 0.375));
}

/* Two points on 5 + 3n; a line flatter than half of what is in proportion, or steeper, is not believed. */
static void few_and_many_rows_tell_what_more_take(void **state)
{
    (void)state;
    assert_true(near(ns_at_rows(2, 11, 4, 17, 10), 35));
    assert_true(near(ns_at_rows(4, 17, 4, 17, 8), 34));
    assert_true(near(ns_at_rows(2, 16, 4, 16, 10), 16 + 6 * 2));
    assert_true(near(ns_at_rows(2, 1, 4, 16, 10), 40));
    assert_true(near(ns_at_rows(2, 11, 10, 35, 10), 35));
}

/* ---- a part of a long sequence ---- */

static step_shape part_of(const char *window, int64_t seq_len, double seconds, double *pairs)
{
    char json[400];
    model *m;
    pt_error e = {0};
    step_shape s;
    const int n = snprintf(json, sizeof json, "{\"model_type\": \"mistral\", \"vocab_size\": 50, \"hidden_size\": 16, "
                           "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"num_hidden_layers\": 1, "
                           "\"intermediate_size\": 24, \"sliding_window\": %s}",
                           window);
    if (model_from_json("test", json, (size_t)n, NULL, NULL, &m, &e))
        fail_msg("%s", e.text);
    step_shape_init(&s, m, PT_BF16, 1, seq_len);
    const step_shape few = shape_cut(&s, 8192), part = attention_part(m, 1, &s, few, 1, seconds);
    *pairs = attention_pairs(m, 1, &s) / attention_pairs(m, 1, &part);
    model_close(m);
    return part;
}

/* Four times as long for twice the tokens, or twice as long if a window bounds the keys. */
static void as_much_of_a_long_sequence_is_run_as_there_is_time_for(void **state)
{
    (void)state;
    double pairs;
    assert_int_equal(part_of("null", 1 << 20, 3, &pairs).seq_len, 8192);
    assert_int_equal(part_of("null", 1 << 20, 20, &pairs).seq_len, 32768);
    assert_true(fabs(pairs - 1024) < 0.1);
    assert_int_equal(part_of("null", 1 << 20, 1e9, &pairs).seq_len, 65536); /* all heads at once */
    assert_int_equal(part_of("null", 20000, 1e9, &pairs).seq_len, 20000);
    assert_true(pairs == 1);
    assert_int_equal(part_of("64", 1 << 20, 3, &pairs).seq_len, 16384);
    assert_true(fabs(pairs - 64) < 0.2);
}

/* ---- a queue ---- */

/* Marks come in pairs, before and after a run; runs last what `times` says, and really take `real_ns`. The threads work all the
 * time, but for moments of more than a second, or as `works` says. */
typedef struct fake {
    queue queue;
    const double *times;
    int times_n, marks, runs, index; /* index: of the stage that runs */
    bool by_stage, rested, first;    /* times are by stage, but a third of that for the first that runs after it stood still */
    int64_t now, real_ns, worked, waited;
    const double *works;             /* by stage, what its threads work each; they wait for a processor for the rest of the time */
} fake;

static void fake_mark(queue *q, int64_t *ns)
{
    fake *f = (fake *)q;
    if (f->marks % 2) {
        int64_t took = (int64_t)f->times[f->by_stage ? f->index : f->marks / 2 % f->times_n];
        took /= f->by_stage && f->first ? 3 : 1;
        const int64_t work = f->works ? (int64_t)f->works[f->index] : took % 1000000000, threads = q->threads > 1 ? q->threads : 1;
        f->now += took;
        f->worked += work * threads;
        f->waited += f->works ? (took - work) * threads : 0;
    }
    *ns = f->now;
    f->marks++;
}

static void fake_mark_work(queue *q, int64_t *ns) { *ns = ((fake *)q)->worked; }

static void fake_mark_waited(queue *q, int64_t *ns) { *ns = ((fake *)q)->waited; }

static uint64_t fake_signal(queue *q) { return 1; }
static int fake_sync(queue *q, uint64_t value, pt_error *e)
{
    ((fake *)q)->rested = true;
    return 0;
}

static void fake_run(queue *q, void *arg, int index, int turn)
{
    fake *f = arg;
    struct timespec pause = {0, f->real_ns};
    nanosleep(&pause, NULL);
    f->index = index;
    f->first = f->rested;
    f->rested = false;
    f->runs++;
}

static const device_table fake_table = {.mark = fake_mark, .mark_work = fake_mark_work, .mark_waited = fake_mark_waited,
                                        .signal = fake_signal, .sync = fake_sync};

/* Runs of these times one after the other, over and over; 2 ms each, so that no more than a few are submitted at a time. */
static samples measured(const double *times, int n, int least, double seconds)
{
    device d = {.table = &fake_table};
    fake f = {.queue = {&d}, .times = times, .times_n = n, .real_ns = 2000000};
    samples s = {0};
    stage one = {fake_run, 0, &s};
    assert_int_equal(measure_rounds(&f.queue, &one, 1, &f, 0, least, seconds, NULL), 0);
    assert_true(f.runs >= s.n);
    return s;
}

static void it_stops_soon_after_the_median_has_settled(void **state)
{
    (void)state;
    static const double steady[] = {1000, 1001, 999, 1002};
    samples s = measured(steady, 4, 1, 60);
    assert_in_range(s.n, 5, 12); /* a round, then at most 10 ms at a time */
    assert_true(samples_spread(&s) <= 0.01);
    assert_true(fabs(samples_median(&s) - 1000) <= 2);
}

/* One of the quartiles stays away, so that it goes on until there is no room for more. */
static void it_goes_on_while_the_median_has_not_settled_and_there_is_time(void **state)
{
    (void)state;
    static const double above[] = {1100, 1000, 1100, 1000, 1000}, below[] = {900, 1000, 900, 1000, 1000};
    samples s = measured(above, 5, 1, 60);
    assert_true(s.n >= SAMPLES);
    s = measured(below, 5, 1, 60);
    assert_true(s.n >= SAMPLES);
}

static void it_stops_when_the_time_is_used_up_but_not_before_the_least(void **state)
{
    (void)state;
    static const double restless[] = {1000, 1500};
    double start = clock_s();
    samples s = measured(restless, 2, 1, 0.02);
    assert_true(s.n >= 1 && s.n < SAMPLES);
    assert_true(clock_s() - start < 30);
    assert_int_equal(measured(restless, 2, 1, 0).n, 1);
    assert_in_range(measured(restless, 2, TELLING, 0).n, TELLING, 2 + 5);
}

static void every_stage_of_a_round_gets_its_own_times(void **state)
{
    (void)state;
    static const double times[] = {10, 0, 300};
    device d = {.table = &fake_table};
    fake f = {.queue = {&d}, .times = times, .by_stage = true, .real_ns = 1000000};
    samples a = {0}, b = {0};
    const stage stages[] = {{fake_run, 0, &a}, {fake_run, 1, NULL}, {fake_run, 2, &b}};
    assert_int_equal(measure_rounds(&f.queue, stages, 3, &f, 0, 1, 60, NULL), 0);
    assert_true(a.n >= 5 && a.n == b.n);
    assert_true(samples_median(&a) == 10 && samples_median(&b) == 300);
}

/* Here each batch is a round, and its first run takes a third of its time. */
static void what_comes_first_after_a_pause_is_another_stage_each_time(void **state)
{
    (void)state;
    static const double times[] = {300, 300, 300};
    device d = {.table = &fake_table};
    fake f = {.queue = {&d}, .times = times, .by_stage = true, .rested = true, .real_ns = 6000000};
    samples s[3] = {{0}};
    const stage stages[] = {{fake_run, 0, &s[0]}, {fake_run, 1, &s[1]}, {fake_run, 2, &s[2]}};
    assert_int_equal(measure_rounds(&f.queue, stages, 3, &f, 0, 9, 0, NULL), 0);
    for (int i = 0; i < 3; i++)
        assert_true(s[i].n == 9 && samples_median(&s[i]) == 300 && samples_spread(&s[i]) > 0.3);
}

static void a_first_run_does_not_count_and_the_least_is_the_shortest(void **state)
{
    (void)state;
    static const double cold_first[] = {9000, 1000, 1003, 1002, 1001, 1000, 1000, 1002};
    device d = {.table = &fake_table};
    fake f = {.queue = {&d}, .times = cold_first, .times_n = 8, .real_ns = 20000000};
    samples s = {0};
    double ns;
    assert_int_equal(measure_stage(&f.queue, fake_run, &f, 0, 0.07, &s, NULL), 0);
    assert_true(s.n >= 1 && s.ns[0] == 1000);
    f.marks = 0;
    assert_int_equal(measure_least(&f.queue, fake_run, &f, 0, &ns, NULL), 0);
    assert_true(ns == 1000);
}

static void turn_run(queue *q, void *arg, int index, int turn)
{
    fake *f = arg;
    if (turn != f->runs)
        fail_msg("run %d has turn %d", f->runs, turn);
    fake_run(q, arg, index, turn);
}

/* Also those that only warm up or wake threads: what is visited in turn is never that which was just visited. */
static void every_run_has_a_turn_of_its_own(void **state)
{
    (void)state;
    static const double restless[] = {1000, 1500};
    device d = {.table = &fake_table};
    fake f = {.queue = {&d}, .times = restless, .times_n = 2, .real_ns = 1000000};
    samples s = {0};
    assert_int_equal(measure_stage(&f.queue, turn_run, &f, 0, 0.06, &s, NULL), 0);
    assert_true(f.runs > 3);
}

/* Medians of runs by so many threads that get the time of 1.5 processors. */
static double under_quota(int threads, const double *times, int n)
{
    device d = {.table = &fake_table, .info = {.quota = 1.5}};
    fake f = {.queue = {&d, threads}, .times = times, .times_n = n, .real_ns = 2000000};
    samples s = {0};
    stage one = {fake_run, 0, &s};
    assert_int_equal(measure_rounds(&f.queue, &one, 1, &f, 0, 10, 0, NULL), 0);
    return samples_median(&s);
}

/* Of short runs few fall into the pause that each period ends with, of longer ones most: by no more than they hold of it in the mean. */
static void under_a_quota_a_run_takes_what_its_work_is_of_it(void **state)
{
    (void)state;
    static const double seldom[] = {3e6, 3e6, 3e6, 3e6 + 1e9, 3e6}, often[] = {8e8, 8e8 + 1e9, 8e8 + 1e9, 8e8 + 1e9, 8e8};
    static const double waits[] = {3e6 + 1e9};
    assert_true(near(under_quota(2, seldom, 5), 4e6));
    assert_true(near(under_quota(1, seldom, 5), 3e6)); /* less than the quota */
    assert_true(near(under_quota(3, often, 5), 16e8));
    assert_true(near(under_quota(2, waits, 1), 3e6 + 1e9)); /* for a disk, say */
}

/* ---- other programs ---- */

/* Two stages in turn, of runs of these times and of this work. */
static void measured_beside_others(const double *times, int n, const double works[2], double quota, samples out[2])
{
    device d = {.table = &fake_table, .info = {.quota = quota}};
    fake f = {.queue = {&d, 2}, .times = times, .times_n = n, .real_ns = 2000000, .works = works};
    const stage stages[] = {{fake_run, 0, &out[0]}, {fake_run, 1, &out[1]}};
    out[0] = out[1] = (samples){0};
    assert_int_equal(measure_rounds(&f.queue, stages, 2, &f, 0, 7, 0, NULL), 0);
}

static void what_others_disturb_takes_what_its_threads_work(void **state)
{
    (void)state;
    static const double disturbed[] = {22e6, 36e6, 50e6, 21e6, 31e6, 29e6, 13e6, 44e6, 27e6, 18e6, 40e6}, works[] = {10e6, 12e6};
    samples s[2];
    measured_beside_others(disturbed, 11, works, 0, s);
    assert_true(s[0].by_work && s[1].by_work && s[0].n >= 7 && s[1].n == s[0].n);
    assert_true(near(samples_median(&s[1]), 12e6));
    assert_true(near(samples_median(&s[0]), 10e6)); /* threads that never slept */
    assert_true(samples_spread(&s[0]) < 1e-9);
}

/* By a moment now and then, or where the threads have only a share of the processors in any case. */
static void what_is_hardly_disturbed_takes_what_the_clock_says(void **state)
{
    (void)state;
    static const double calm[] = {10.2e6, 10.1e6, 10.3e6}, busy[] = {20e6, 24e6}, works[] = {10e6, 10e6};
    samples s[2];
    measured_beside_others(calm, 3, works, 0, s);
    assert_true(!s[0].by_work && fabs(samples_median(&s[0]) - 10.2e6) <= 0.1e6); /* of an even number of runs, also between two */
    measured_beside_others(busy, 2, works, 1.5, s);
    assert_true(!s[0].by_work);
}

/* A disk's thread sleeps most of the time. */
static void what_hardly_computes_takes_what_the_clock_says(void **state)
{
    (void)state;
    static const double times[] = {9e4}, works[] = {3e4, 3e4};
    samples s[2];
    measured_beside_others(times, 1, works, 0, s);
    assert_true(!s[0].by_work && near(samples_median(&s[0]), 9e4));
}

static void the_share_of_others_is_of_the_time_that_was_wanted(void **state)
{
    (void)state;
    const processor_time from = {100, 50}, to = {400, 150}, none = {400, 50};
    assert_true(near(processor_share_of_others(&from, &to), 0.25));
    assert_true(processor_share_of_others(&from, &none) == 0);
    assert_true(processor_share_of_others(&from, &from) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_median_is_in_the_middle_whatever_the_order),
        cmocka_unit_test(the_spread_is_half_the_distance_of_the_quartiles),
        cmocka_unit_test(only_what_ran_often_enough_tells_a_spread),
        cmocka_unit_test(few_and_many_rows_tell_what_more_take),
        cmocka_unit_test(as_much_of_a_long_sequence_is_run_as_there_is_time_for),
        cmocka_unit_test(it_stops_soon_after_the_median_has_settled),
        cmocka_unit_test(it_goes_on_while_the_median_has_not_settled_and_there_is_time),
        cmocka_unit_test(it_stops_when_the_time_is_used_up_but_not_before_the_least),
        cmocka_unit_test(every_stage_of_a_round_gets_its_own_times),
        cmocka_unit_test(what_comes_first_after_a_pause_is_another_stage_each_time),
        cmocka_unit_test(every_run_has_a_turn_of_its_own),
        cmocka_unit_test(under_a_quota_a_run_takes_what_its_work_is_of_it),
        cmocka_unit_test(what_others_disturb_takes_what_its_threads_work),
        cmocka_unit_test(what_is_hardly_disturbed_takes_what_the_clock_says),
        cmocka_unit_test(what_hardly_computes_takes_what_the_clock_says),
        cmocka_unit_test(the_share_of_others_is_of_the_time_that_was_wanted),
        cmocka_unit_test(a_first_run_does_not_count_and_the_least_is_the_shortest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
