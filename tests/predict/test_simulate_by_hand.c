/* The simulator on a few tasks whose times are given. */
#include "predict/simulate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "predict/near.h"

/* ---- by hand: tasks whose times are given ---- */

enum { HAND_TASKS = 8 };

typedef struct hand {
    task tasks[HAND_TASKS];
    buffer buffers[HAND_TASKS];
    operand operands[2 * HAND_TASKS];
    chunk_t chunks[HAND_TASKS];
    int piece_of_chunk[HAND_TASKS];
    piece pieces[HAND_TASKS]; /* a row of a parameter of one column each */
    param param;
    model model;
    packing packing;
    schedule s;
    schedule_input in;
    costs costs;
} hand;

static void hand_open(hand *h)
{
    memset(h, 0, sizeof *h);
    costs_init(&h->costs);
    cost_curve ns = {1, {1}, {1}};
    h->costs.update_device = h->costs.update_host = h->costs.to_device = h->costs.from_device = h->costs.read = h->costs.write = ns;
    h->param = (param){.cols = 1, .trainable = true};
    h->model.params = &h->param;
    h->packing = (packing){.chunks = h->chunks, .pieces = h->pieces, .piece_of_chunk = h->piece_of_chunk, .optimizer = &optimizer_adamw};
    h->in.packing = &h->packing;
    h->in.model = &h->model;
    h->s = (schedule){.tasks = h->tasks, .operands = h->operands, .buffers = h->buffers};
}

/* A task of `ns` that waits for tasks a and b (-1: none). */
static int hand_task(hand *h, queue_kind q, int ns, int a, int b)
{
    int i = h->s.tasks_n++;
    bool copies = q != QUEUE_COMPUTE && q != QUEUE_HOST;
    h->tasks[i] = (task){.kind = copies ? TASK_COPY : TASK_UPDATE, .queue = q, .chunk = i, .share = 1,
                         .operand0 = 2 * i, .operands_n = copies ? 2 : 0};
    h->chunks[i] = (chunk_t){.piece0 = i, .pieces_n = 1, .trained = true};
    h->piece_of_chunk[i] = i;
    h->pieces[i].rows = h->pieces[i].own_rows = ns;
    h->buffers[i].bytes = (uint64_t)ns;
    h->operands[2 * i].buffer = h->operands[2 * i + 1].buffer = i;
    for (int k = 0; k < QUEUES; k++)
        h->tasks[i].wait[k] = -1;
    if (a >= 0)
        h->tasks[i].wait[h->tasks[a].queue] = a;
    if (b >= 0)
        h->tasks[i].wait[h->tasks[b].queue] = b;
    return i;
}

static simulation hand_run(hand *h)
{
    simulation out;
    pt_error e = {0};
    if (simulate(&h->in, &h->s, &h->costs, true, &out, &e))
        fail_msg("%s", e.text);
    return out;
}

static void queues_run_side_by_side_and_waits_are_named(void **state)
{
    (void)state;
    hand h;
    hand_open(&h);
    int read = hand_task(&h, QUEUE_READ, 30, -1, -1);
    int fetch = hand_task(&h, QUEUE_TO_DEVICE, 20, read, -1);
    hand_task(&h, QUEUE_COMPUTE, 10, -1, -1);
    int computed = hand_task(&h, QUEUE_COMPUTE, 100, fetch, read);
    hand_task(&h, QUEUE_FROM_DEVICE, 40, computed, -1);
    hand_task(&h, QUEUE_COMPUTE, 5, -1, -1);
    h.costs.step_ns = 1000;
    simulation r = hand_run(&h);
    assert_true(near(r.total_ns, 1190)); /* 30 + 20 + 100 + 40, and the step's own */
    assert_true(near(r.start_ns[1], 30) && near(r.start_ns[2], 0) && near(r.start_ns[3], 50) && near(r.end_ns[5], 155));
    assert_true(near(r.wait_ns[QUEUE_COMPUTE][QUEUE_TO_DEVICE], 40) && near(r.wait_ns[QUEUE_COMPUTE][QUEUE_READ], 0));
    assert_true(near(r.wait_ns[QUEUE_TO_DEVICE][QUEUE_READ], 30) && near(r.wait_ns[QUEUE_FROM_DEVICE][QUEUE_COMPUTE], 150));
    assert_true(near(r.busy_ns[QUEUE_COMPUTE], 115) && near(r.busy_ns[QUEUE_READ], 30) && near(r.phase_ns[PHASE_UPDATE], 115));
    simulation_free(&r);
}

static void the_last_of_several_waits_is_blamed(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        hand h;
        hand_open(&h);
        int a = hand_task(&h, QUEUE_TO_DEVICE, i ? 70 : 30, -1, -1), b = hand_task(&h, QUEUE_HOST, i ? 30 : 70, -1, -1);
        hand_task(&h, QUEUE_COMPUTE, 1, a, b);
        simulation r = hand_run(&h);
        assert_true(near(r.wait_ns[QUEUE_COMPUTE][i ? QUEUE_TO_DEVICE : QUEUE_HOST], 70));
        assert_true(near(r.wait_ns[QUEUE_COMPUTE][i ? QUEUE_HOST : QUEUE_TO_DEVICE], 0));
        simulation_free(&r);
    }
}

static void neighbours_slow_each_other_while_both_run(void **state)
{
    (void)state;
    hand h;
    hand_open(&h);
    hand_task(&h, QUEUE_COMPUTE, 60, -1, -1);
    hand_task(&h, QUEUE_HOST, 30, -1, -1);
    h.costs.slow[COST_MEMORY][COST_HOST] = 2; /* an update on the device while the host updates */
    simulation r = hand_run(&h);
    assert_true(near(r.end_ns[1], 30) && near(r.end_ns[0], 75)); /* 30 ns at half speed, then 45 */
    assert_true(near(r.busy_ns[QUEUE_COMPUTE], 75));
    simulation_free(&r);
    h.costs.slow[COST_HOST][COST_MEMORY] = 3;
    r = hand_run(&h);
    assert_true(near(r.end_ns[1], 90) && near(r.end_ns[0], 105)); /* 90 ns at half speed, then 15 */
    simulation_free(&r);
}

static void several_neighbours_add_up(void **state)
{
    (void)state;
    hand h;
    hand_open(&h);
    hand_task(&h, QUEUE_READ, 10, -1, -1);
    hand_task(&h, QUEUE_TO_DEVICE, 1000, -1, -1);
    hand_task(&h, QUEUE_HOST, 1000, -1, -1);
    h.costs.slow[COST_READ][COST_TO_DEVICE] = 2;
    h.costs.slow[COST_READ][COST_HOST] = 1.5;
    simulation r = hand_run(&h);
    assert_true(near(r.end_ns[0], 25) && near(r.total_ns, 1000));
    simulation_free(&r);
}

static void the_disk_is_slowed_at_the_pace_that_its_other_way_leaves(void **state)
{
    (void)state;
    hand h;
    hand_open(&h);
    hand_task(&h, QUEUE_READ, 10, -1, -1);
    hand_task(&h, QUEUE_WRITE, 1000, -1, -1);
    hand_task(&h, QUEUE_TO_DEVICE, 1000, -1, -1);
    hand_task(&h, QUEUE_HOST, 1000, -1, -1);
    h.costs.slow[COST_READ][COST_WRITE] = 3;
    h.costs.slow[COST_READ][COST_TO_DEVICE] = 1.25;
    h.costs.slow[COST_READ][COST_HOST] = 1.5;
    simulation r = hand_run(&h);
    assert_true(near(r.end_ns[0], 10 * 3 * 1.75) && near(r.total_ns, 1000));
    simulation_free(&r);
}

/* Two processors' time in each 1000 ns, of which the host takes half a one while it reads. */
static void all_stands_still_where_a_period_is_used_up(void **state)
{
    (void)state;
    hand h;
    hand_open(&h);
    h.costs.quota = (cost_quota){1000, 2, {[COST_MEMORY] = 2, [COST_READ] = 0.5}};
    int computed = hand_task(&h, QUEUE_COMPUTE, 700, -1, -1); /* 800 ns beside the read use it up */
    hand_task(&h, QUEUE_READ, 2000, -1, -1);
    hand_task(&h, QUEUE_COMPUTE, 200, computed, -1);
    simulation r = hand_run(&h);
    assert_true(near(r.end_ns[0], 700) && near(r.end_ns[2], 1100)); /* 100 of 200, 200 stood still, 100 more */
    assert_true(near(r.end_ns[1], 2200));
    assert_true(near(r.busy_ns[QUEUE_COMPUTE], 1100) && near(r.busy_ns[QUEUE_READ], 2200));
    simulation_free(&r);
    hand_open(&h);
    h.costs.quota = (cost_quota){1000, 2, {[COST_MEMORY] = 2, [COST_READ] = 0.5}};
    hand_task(&h, QUEUE_COMPUTE, 4100, -1, -1); /* five whole periods of 800, and 100 */
    hand_task(&h, QUEUE_READ, 4100, -1, -1);
    r = hand_run(&h);
    assert_true(near(r.total_ns, 4100 * 2.5 / 2)); /* 5100, and 25 that the next step would have to wait for */
    assert_true(near(r.end_ns[0], 5100));
    simulation_free(&r);
    h.costs.slow[COST_READ][COST_MEMORY] = 2; /* a quarter of one: 8 / 9 of each period */
    r = hand_run(&h);
    assert_true(near(r.end_ns[0], 4000 + (4100 - 4 * 8000. / 9))); /* then it reads alone, and nothing stands still */
    simulation_free(&r);
}

/* The host's update beside reads and writes, which take turns: each does half of what it does beside the host alone. */
static void what_slows_each_other_disturbs_less(void **state)
{
    (void)state;
    hand h;
    hand_open(&h);
    hand_task(&h, QUEUE_HOST, 100, -1, -1);
    hand_task(&h, QUEUE_READ, 1000, -1, -1);
    hand_task(&h, QUEUE_WRITE, 1000, -1, -1);
    h.costs.slow[COST_HOST][COST_READ] = 1.5;
    h.costs.slow[COST_HOST][COST_WRITE] = 2;
    simulation r = hand_run(&h);
    assert_true(near(r.end_ns[0], 250));
    simulation_free(&r);
    h.costs.slow[COST_READ][COST_WRITE] = h.costs.slow[COST_WRITE][COST_READ] = 2;
    r = hand_run(&h);
    assert_true(near(r.end_ns[0], 175));
    simulation_free(&r);
    h.costs.slow[COST_READ][COST_HOST] = h.costs.slow[COST_WRITE][COST_HOST] = 3; /* still half of what each does beside the host alone */
    r = hand_run(&h);
    assert_true(near(r.end_ns[0], 175));
    simulation_free(&r);
}

/* Two layers and what runs between them on their queue. */
static double total_with_pause(hand *h, int pause_ns)
{
    hand_open(h);
    h->model.config.layers = 1;
    h->s.micro_units = 1;
    h->costs.layer[0].forward_ns[0] = 1000;
    h->costs.wake_latency = (cost_curve){3, {1, 100, 10000}, {0, 50, 5000}};
    static plan_block block;
    static plan p = {.blocks = &block, .visit = 1};
    h->in.plan = &p;
    for (int i = 0; i < 3; i++) {
        int t = hand_task(h, QUEUE_COMPUTE, pause_ns, -1, -1);
        if (i != 1)
            h->tasks[t].kind = TASK_LAYER, h->tasks[t].block = 1;
    }
    simulation r = hand_run(h);
    double total = r.total_ns;
    simulation_free(&r);
    return total;
}

static void arithmetic_that_has_rested_takes_longer(void **state)
{
    (void)state;
    hand h;
    assert_true(near(total_with_pause(&h, 100), 2000 + 100 + 50));
    assert_true(near(total_with_pause(&h, 1), 2000 + 1));
    assert_true(near(total_with_pause(&h, 50000), 2000 + 50000 + 1000)); /* at most as long again */
}

static void queues_that_wait_for_each_other_are_refused(void **state)
{
    (void)state;
    hand h;
    simulation out;
    pt_error e = {0};
    hand_open(&h);
    hand_task(&h, QUEUE_READ, 10, -1, -1);
    hand_task(&h, QUEUE_WRITE, 10, 0, -1);
    h.tasks[0].wait[QUEUE_WRITE] = 1;
    assert_int_equal(simulate(&h.in, &h.s, &h.costs, false, &out, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "stands still"));
}

static void an_empty_schedule_takes_no_time(void **state)
{
    (void)state;
    hand h;
    hand_open(&h);
    simulation r = hand_run(&h);
    assert_true(r.total_ns == 0);
    simulation_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_run_side_by_side_and_waits_are_named),
        cmocka_unit_test(the_last_of_several_waits_is_blamed),
        cmocka_unit_test(neighbours_slow_each_other_while_both_run),
        cmocka_unit_test(several_neighbours_add_up),
        cmocka_unit_test(the_disk_is_slowed_at_the_pace_that_its_other_way_leaves),
        cmocka_unit_test(all_stands_still_where_a_period_is_used_up),
        cmocka_unit_test(what_slows_each_other_disturbs_less),
        cmocka_unit_test(arithmetic_that_has_rested_takes_longer),
        cmocka_unit_test(queues_that_wait_for_each_other_are_refused),
        cmocka_unit_test(an_empty_schedule_takes_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
