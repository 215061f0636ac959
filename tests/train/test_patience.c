/* When steps that are off their prediction are planned for again. After each decision the prediction is what is measured, as in a
 * run. */
#include "train/patience.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct history { patience p; int64_t steps; int decisions; double predicted_s; bool moves; } history;

static history start(double predicted_s) { return (history){.predicted_s = predicted_s}; }

/* So many steps of so many seconds. */
static void take(history *h, int64_t n, double step_s)
{
    for (int64_t i = 0; i < n; i++)
        if (patience_look(&h->p, ++h->steps, h->predicted_s, step_s) == PATIENCE_DECIDE) {
            h->decisions++;
            h->predicted_s = step_s;
            patience_decided(&h->p, h->moves);
        }
}

/* Steps until the next decision, at most `most`; 0: there was none. */
static int64_t until_decision(history *h, double step_s, int64_t most)
{
    int64_t from = h->steps;
    int before = h->decisions;
    while (h->decisions == before && h->steps - from < most)
        take(h, 1, step_s);
    return h->decisions > before ? h->steps - from : 0;
}

/* Decisions that changed nothing, one as soon as the other may be, until the wait is as long as it gets. */
static history tired(double step_s)
{
    history h = start(step_s);
    for (int i = 0; i < 12; i++)
        assert_true(until_decision(&h, h.predicted_s * (i % 2 ? 1 / 1.3 : 1.3), 1000) > 0);
    return h;
}

static void the_second_look_that_is_off_decides(void **state)
{
    (void)state;
    const double slower[] = {1.12, 0.88, 3, 0.2};
    for (int i = 0; i < 4; i++) {
        history h = start(1);
        take(&h, 20, 1.09);
        assert_int_equal(h.decisions, 0);
        assert_int_equal(until_decision(&h, slower[i], 100), 10);
    }
}

static void a_single_look_that_is_off_does_not(void **state)
{
    (void)state;
    history h = start(1);
    for (int i = 0; i < 100; i++) {
        take(&h, 5, 5);
        take(&h, 5, 1);
    }
    assert_int_equal(h.decisions, 0);
}

static void short_steps_are_left_alone(void **state)
{
    (void)state;
    history h = start(0.001);
    take(&h, 100000, 0.049);
    assert_int_equal(h.decisions, 0);
    assert_int_equal(until_decision(&h, 0.06, 10000), 10);
}

static void a_wandering_speed_is_decided_on_ever_more_rarely(void **state)
{
    (void)state;
    for (int half = 10; half <= 150; half += 35) { /* steps at a speed */
        history h = start(1);
        int before = 0;
        for (int64_t step = 0; step < 40000; step += half) {
            before = step < 20000 ? h.decisions : before;
            take(&h, half, step / half % 2 ? 1.2 : 1);
        }
        assert_in_range(before, 1, 40);
        assert_in_range(h.decisions - before, 0, 20000 / 640 + 1);
    }
}

static void noise_is_decided_on_ever_more_rarely(void **state)
{
    (void)state;
    uint32_t random = 1;
    history h = start(1);
    for (int i = 0; i < 8000; i++) {
        random = random * 1664525u + 1013904223u;
        take(&h, 5, 0.8 + 0.4 * (random >> 8) / (1 << 24)); /* medians of 20% up and down */
    }
    assert_in_range(h.decisions, 6, 6 + 40000 / 640);
}

static void a_large_loss_waits_for_nothing(void **state)
{
    (void)state;
    static const struct { double step_s, by; int64_t steps; } cases[] = {
        {1.6, 7.5, 10}, {12, 1 / 7.5, 10}, /* a disk that was throttled, and is no longer */
        {0.2, 3.1, 25}, {0.05, 3.1, 100},  /* 10 s lost */
        {1.6, 1.3, 640}};                  /* ups and downs */
    for (int i = 0; i < 5; i++) {
        history h = tired(cases[i].step_s);
        assert_int_equal(until_decision(&h, h.predicted_s * cases[i].by, 2000), cases[i].steps);
    }
}

static void a_loss_that_is_made_good_again_and_again_is_none(void **state)
{
    (void)state;
    history h = tired(1);
    int before = h.decisions;
    for (int i = 0; i < 20; i++) {
        take(&h, 10, 1.8);
        take(&h, 5, 1);
    }
    assert_int_equal(h.decisions, before);
}

static void a_move_begins_anew(void **state)
{
    (void)state;
    history h = tired(1);
    h.moves = true;
    assert_int_equal(until_decision(&h, h.predicted_s * 1.3, 1000), 640);
    for (int i = 0; i < 5; i++)
        assert_int_equal(until_decision(&h, h.predicted_s * 1.3, 1000), 10);
}

static void after_a_move_steps_are_counted_from_0(void **state)
{
    (void)state;
    history h = start(1);
    take(&h, 1000, 1);
    h.steps = 0;
    assert_int_equal(until_decision(&h, 1.3, 1000), 10);
}

static void a_long_calm_begins_anew(void **state)
{
    (void)state;
    history h = tired(1);
    take(&h, 12000, h.predicted_s);
    assert_int_equal(until_decision(&h, h.predicted_s * 1.3, 1000), 10);
    assert_int_equal(until_decision(&h, h.predicted_s * 1.3, 1000), 20);
    assert_int_equal(until_decision(&h, h.predicted_s * 1.3, 1000), 40);
}

/* Steps of so many seconds, after a decision at each change of speed; returns how often something was told. */
static int told(telling *t, int steps, double step_s)
{
    int times = telling_is_first(t, step_s);
    for (int i = 0; i < steps; i++)
        times += telling_is_due(t, step_s);
    return times;
}

static void a_speed_that_wanders_is_told_once(void **state)
{
    (void)state;
    telling t = {0};
    assert_int_equal(told(&t, 200, 2), 1);
    for (int i = 0; i < 50; i++)
        assert_int_equal(told(&t, TELLING_STEPS - 1, i % 2 ? 1.1 : 3.3), 0);
    telling_is_first(&t, 3);
    for (int i = 0; i < 200; i++) /* it is never the same for long */
        assert_false(telling_is_due(&t, i % 20 ? 3 : 1.5));
}

static void a_speed_that_stays_is_told_of_once(void **state)
{
    (void)state;
    telling t = {0};
    assert_int_equal(told(&t, 1000, 2), 1);
    assert_int_equal(told(&t, 1000, 1.3), 1);
    assert_int_equal(told(&t, 1000, 1.5), 0); /* about as long */
    assert_int_equal(told(&t, 1000, 2), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_look_that_is_off_decides),
        cmocka_unit_test(a_single_look_that_is_off_does_not),
        cmocka_unit_test(short_steps_are_left_alone),
        cmocka_unit_test(a_wandering_speed_is_decided_on_ever_more_rarely),
        cmocka_unit_test(noise_is_decided_on_ever_more_rarely),
        cmocka_unit_test(a_large_loss_waits_for_nothing),
        cmocka_unit_test(a_loss_that_is_made_good_again_and_again_is_none),
        cmocka_unit_test(a_move_begins_anew),
        cmocka_unit_test(after_a_move_steps_are_counted_from_0),
        cmocka_unit_test(a_long_calm_begins_anew),
        cmocka_unit_test(a_speed_that_wanders_is_told_once),
        cmocka_unit_test(a_speed_that_stays_is_told_of_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
