#include "random_plan.h"
#include "schedule/check.h"
#include "schedule/in_use.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static bool overlap(const buffer *a, const buffer *b)
{
    return a->tier == b->tier && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Whether b has come and gone while nothing is kept in a. */
static bool while_idle(const buffer *a, const buffer *b) { return b->first >= a->idle && b->last < a->idle_end; }

static bool at_one_time(const buffer *a, const buffer *b)
{
    return a->first >= 0 && b->first >= 0 && a->first <= b->last && b->first <= a->last && !while_idle(a, b) && !while_idle(b, a);
}

static bool is_gradient(const buffer *b) { return b->kind == OBJECT_GRADIENT || b->kind == OBJECT_ROWS_GRADIENT; }

/* Only a gradient's placement: it is used before and after, and what comes first after it is written anew. */
static void check_idle(const schedule *s, int index)
{
    const buffer *b = &s->buffers[index];
    if (b->idle == b->idle_end)
        return;
    assert_true(b->placement && is_gradient(b) && b->idle >= 0 && b->idle < b->idle_end);
    assert_true(b->idle_end < s->tasks_n || (s->kind == SCHEDULE_EVAL && b->idle_end == s->tasks_n));
    for (int i = b->idle; i <= b->idle_end && i < s->tasks_n; i++)
        for (int o = s->tasks[i].operand0; o < s->tasks[i].operand0 + s->tasks[i].operands_n; o++) {
            const operand *x = &s->operands[o];
            assert_true(x->buffer != index || (i == b->idle_end && x->write && !x->read));
        }
}

static void check_layout(const schedule *s)
{
    uint64_t top[TIERS] = {0};
    for (int i = 0; i < s->buffers_n; i++) {
        const buffer *a = &s->buffers[i];
        if (a->first < 0)
            continue;
        assert_int_equal(a->offset % 4096, 0);
        check_idle(s, i);
        top[a->tier] = a->offset + a->bytes > top[a->tier] ? a->offset + a->bytes : top[a->tier];
        for (int j = 0; j < i; j++) {
            const buffer *b = &s->buffers[j];
            if (at_one_time(a, b) && overlap(a, b))
                fail_msg("buffers %d (tasks %d .. %d) and %d (tasks %d .. %d) share memory at one time", i, a->first, a->last, j, b->first,
                         b->last);
        }
    }
    for (int t = 0; t < TIERS; t++) { /* the arena ends with its last buffer */
        assert_true(s->bytes[t] >= top[t]);
        assert_true(s->bytes[t] < top[t] + 4096);
    }
}

static void no_two_buffers_share_memory_at_one_time(void **state)
{
    (void)state;
    random_source all = random_open();
    int built = 0;
    for (uint64_t i = 0; built < 300; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e) || (random_one_in(&r, 3) && random_share(&r, &c, &e)))
            fail_msg("%s", e.text);
        int failed = schedule_build(&c.input, random_kind(&r, &c), &s, &e);
        if (failed && failed != PT_DOES_NOT_FIT)
            fail_msg("%s", e.text);
        if (!failed) {
            check_layout(&s);
            schedule_free(&s);
            built++;
        }
        random_case_close(&c);
    }
}

/* Of what never makes room. */
static uint64_t fixed_bytes(const schedule *s, tier t)
{
    uint64_t bytes = s->placement_bytes[t];
    for (int i = 0; i < s->placements_n; i++)
        bytes -= s->buffers[i].tier == t && is_gradient(&s->buffers[i]) ? align_up(s->buffers[i].bytes, 4096) : 0;
    return bytes;
}

static void memory_is_reused_nearly_as_well_as_possible(void **state)
{
    (void)state;
    random_source all = random_open();
    double used = 0, least = 0;
    for (uint64_t i = 0; i < 200; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        for (int b = 0; b < c.plan.blocks_n; b++)
            c.plan.blocks[b].place = TIER_DEVICE;
        for (int k = 0; k < c.plan.chunks_n; k++)
            c.plan.chunks[k] = (plan_chunk){.placement = TIER_DEVICE, .update = TIER_DEVICE};
        if (schedule_build(&c.input, SCHEDULE_STEP, &s, &e))
            fail_msg("%s", e.text);
        uint64_t bound = most_in_use(&s, TIER_DEVICE, 4096), fixed = fixed_bytes(&s, TIER_DEVICE);
        assert_true(s.bytes[TIER_DEVICE] >= bound);
        used += (double)(s.bytes[TIER_DEVICE] - fixed);
        least += (double)(bound - fixed);
        schedule_free(&s);
        random_case_close(&c);
    }
    print_message("transient memory and gradients: %.1f%% above the bound\n", 100 * (used / least - 1));
    assert_true(used < 1.25 * least);
}

/* Updates wait, everything is on the device: activations lie where the gradients do, which come as those go, and are not there during an
 * evaluation. */
static void activations_lie_in_the_gradients_placements(void **state)
{
    (void)state;
    random_source all = random_open();
    int built[SCHEDULE_KINDS] = {0}, shared[SCHEDULE_KINDS] = {0};
    for (uint64_t i = 0; i < 200; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule s;
        pt_error e = {0};
        uint64_t passing = 0;
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        static const schedule_kind kinds[] = {SCHEDULE_STEP, SCHEDULE_STEP_UPDATE, SCHEDULE_EVAL};
        const schedule_kind kind = kinds[random_below(&r, 3)];
        c.plan.update = kind == SCHEDULE_STEP ? UPDATE_END : UPDATE_NEXT_FORWARD;
        for (int b = 0; b < c.plan.blocks_n; b++)
            c.plan.blocks[b].place = TIER_DEVICE;
        for (int k = 0; k < c.plan.chunks_n; k++)
            c.plan.chunks[k] = (plan_chunk){.placement = TIER_DEVICE, .update = TIER_DEVICE};
        if (schedule_build(&c.input, kind, &s, &e))
            fail_msg("%s", e.text);
        for (int k = s.placements_n; k < s.buffers_n; k++) {
            const buffer *b = &s.buffers[k];
            passing += b->kind == OBJECT_SAVED && b->offset < s.placement_bytes[TIER_DEVICE];
        }
        built[kind]++;
        shared[kind] += passing > 0;
        schedule_free(&s);
        random_case_close(&c);
    }
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        print_message("%d of %d\n", shared[kind], built[kind]);
        assert_true(kind == SCHEDULE_DRAIN || shared[kind] > built[kind] / 4);
    }
}

static void placements_lie_at_the_same_place_in_all_schedules_of_a_plan(void **state)
{
    (void)state;
    random_source all = random_open();
    int compared = 0;
    for (uint64_t i = 0; i < 100; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        schedule s[SCHEDULE_KINDS];
        bool built[SCHEDULE_KINDS];
        for (int k = 0; k < SCHEDULE_KINDS; k++)
            built[k] = !schedule_build(&c.input, (schedule_kind)k, &s[k], &e);
        for (int k = 1; k < SCHEDULE_KINDS && built[0]; k++) {
            if (!built[k])
                continue;
            assert_int_equal(s[k].placements_n, s[0].placements_n);
            for (int b = 0; b < s[0].placements_n; b++) {
                const buffer *x = &s[0].buffers[b], *y = &s[k].buffers[b];
                assert_true(x->kind == y->kind && x->index == y->index && x->tier == y->tier && x->offset == y->offset &&
                            x->bytes == y->bytes);
            }
            compared++;
        }
        for (int k = 0; k < SCHEDULE_KINDS; k++)
            if (built[k])
                schedule_free(&s[k]);
        random_case_close(&c);
    }
    assert_true(compared > 50);
}

static void building_twice_gives_the_same_schedule(void **state)
{
    (void)state;
    random_source all = random_open();
    for (uint64_t i = 0; i < 50; i++) {
        random_source r = random_fork(&all, i);
        random_case c;
        schedule a, b;
        pt_error e = {0};
        if (random_case_open(&r, &c, &e))
            fail_msg("%s", e.text);
        schedule_kind kind = random_kind(&r, &c);
        int failed = schedule_build(&c.input, kind, &a, &e);
        assert_int_equal(schedule_build(&c.input, kind, &b, &e), failed);
        if (!failed) {
            assert_int_equal(a.tasks_n, b.tasks_n);
            assert_int_equal(a.buffers_n, b.buffers_n);
            for (int k = 0; k < a.tasks_n; k++)
                assert_true(a.tasks[k].kind == b.tasks[k].kind && a.tasks[k].operand0 == b.tasks[k].operand0 &&
                            !memcmp(a.tasks[k].wait, b.tasks[k].wait, sizeof a.tasks[k].wait));
            for (int k = 0; k < a.buffers_n; k++)
                assert_true(a.buffers[k].offset == b.buffers[k].offset && a.buffers[k].bytes == b.buffers[k].bytes);
            schedule_free(&a);
            schedule_free(&b);
        }
        random_case_close(&c);
    }
}

static void a_plan_without_a_place_is_refused_with_a_sentence(void **state)
{
    (void)state;
    random_source r = random_open();
    random_case c;
    schedule s;
    pt_error e = {0};
    if (random_case_open(&r, &c, &e))
        fail_msg("%s", e.text);
    c.input.host_tier = false;
    c.plan.update = UPDATE_BACKWARD;
    c.plan.chunks[0] = (plan_chunk){.placement = TIER_HOST, .update = TIER_HOST};
    assert_int_equal(schedule_build(&c.input, SCHEDULE_STEP, &s, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "chunk 0"));
    for (int k = 0; k < c.plan.chunks_n; k++)
        c.plan.chunks[k] = (plan_chunk){.placement = TIER_DEVICE, .update = TIER_DEVICE};
    c.plan.blocks[0].place = TIER_HOST;
    assert_int_equal(schedule_build(&c.input, SCHEDULE_STEP, &s, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "layer 0"));
    for (int b = 0; b < c.plan.blocks_n; b++)
        c.plan.blocks[b].place = TIER_DEVICE;
    assert_int_equal(schedule_build(&c.input, SCHEDULE_DRAIN, &s, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "backward"));
    c.input.training = false;
    assert_int_equal(schedule_build(&c.input, SCHEDULE_STEP, &s, &e), PT_FAILED);
    assert_int_equal(schedule_build(&c.input, SCHEDULE_EVAL, &s, &e), 0);
    schedule_free(&s);
    random_case_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_buffers_share_memory_at_one_time),
        cmocka_unit_test(activations_lie_in_the_gradients_placements),
        cmocka_unit_test(memory_is_reused_nearly_as_well_as_possible),
        cmocka_unit_test(placements_lie_at_the_same_place_in_all_schedules_of_a_plan),
        cmocka_unit_test(building_twice_gives_the_same_schedule),
        cmocka_unit_test(a_plan_without_a_place_is_refused_with_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
