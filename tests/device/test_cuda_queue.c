/* The queues of a GPU, beside each other and beside those of the CPU: order, waits, marks, failures, memory. On the device that
 * PROTRAIN_TEST_DEVICE names, if it is a GPU, or the stand-in for one (cuda/runtime.c), which can be lost. */
#include "random_plan.h"
#include "test_device.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

#include "cuda/lose.h"

enum { WORDS = 1024 };

typedef struct gpu { device *d, *host; queue *q[3], *cpu; uint32_t *at_device[3], *at_host; } gpu;

static bool is_gpu(void) { return !strncmp(test_device_name(), "cuda", 4); }

static void must(int failed, const pt_error *e)
{
    if (failed)
        fail_msg("%s", e->text);
}

static void *memory_open(device *d, memory_kind kind, size_t bytes)
{
    void *p;
    pt_error e = {0};
    must(d->table->memory_open(d, kind, bytes, &p, &e), &e);
    return p;
}

static void gpu_open(gpu *g)
{
    pt_error e = {0};
    if (!is_gpu())
        skip();
    must(test_device_named(test_device_name(), 2, &g->d, &g->host, &e), &e);
    for (int i = 0; i < 3; i++) {
        must(g->d->table->queue_open(g->d, "test", 0, &g->q[i], &e), &e);
        g->at_device[i] = memory_open(g->d, MEMORY_DEVICE, WORDS * 4);
    }
    must(g->host->table->queue_open(g->host, "cpu", 1, &g->cpu, &e), &e);
    g->at_host = memory_open(g->d, MEMORY_HOST, WORDS * 4);
}

static void queues_close(gpu *g)
{
    for (int i = 0; i < 3; i++)
        g->d->table->queue_close(g->q[i]);
    g->host->table->queue_close(g->cpu);
}

static void memory_close(gpu *g)
{
    for (int i = 0; i < 3; i++)
        g->d->table->memory_close(g->d, MEMORY_DEVICE, g->at_device[i], WORDS * 4);
    g->d->table->memory_close(g->d, MEMORY_HOST, g->at_host, WORDS * 4);
    device_close(g->d, g->host);
}

static void gpu_close(gpu *g)
{
    queues_close(g);
    memory_close(g);
}

static void copy(queue *q, void *to, const void *from, size_t bytes) { queue_submit(q, &(op){.kind = OP_COPY, .copy = {to, from, bytes}}); }

static void end_of(queue *q)
{
    pt_error e = {0};
    must(queue_sync(q, queue_signal(q), &e), &e);
}

/* A word walks from place to place through queues that wait for each other, more often than a queue has events: a copy that comes too early
 * or too late leaves another trail. */
static void copies_run_in_the_order_that_waits_make(void **state)
{
    (void)state;
    enum { STEPS = 1500 };
    gpu g;
    random_source r = random_open();
    gpu_open(&g);
    uint32_t *trail = memory_open(g.d, MEMORY_HOST, (STEPS + 1) * 4), *seed = memory_open(g.d, MEMORY_HOST, (STEPS + 1) * 4);
    queue *const all[] = {g.q[0], g.q[1], g.q[2], g.cpu};
    queue *before = NULL;
    uint64_t reached = 0;
    int place = 0;
    for (int i = 0; i <= STEPS; i++)
        seed[i] = random_bits(&r);
    for (int i = 0; i < STEPS; i++) { /* the next seed goes beside the word, both go to the next place, and from there into the trail */
        queue *q = all[random_below(&r, i % 7 ? 3 : 4)];
        const int next = (place + 1) % 3;
        if (before && before != q)
            queue_wait(q, before, reached);
        if (q == g.cpu) { /* it cannot reach the device's memory on a real GPU */
            copy(q, &trail[i], &seed[i], 4);
        } else {
            copy(q, g.at_device[place], &seed[i], 4);
            copy(q, g.at_device[next], g.at_device[place], 4);
            copy(q, &trail[i], g.at_device[next], 4);
            place = next;
        }
        reached = queue_signal(q);
        before = q;
        if (random_one_in(&r, 50)) {
            pt_error e = {0};
            must(queue_sync(before, reached, &e), &e);
            assert_int_equal(trail[i], seed[i]);
        }
    }
    for (int i = 0; i < 3; i++)
        end_of(g.q[i]);
    end_of(g.cpu);
    assert_memory_equal(trail, seed, STEPS * 4);
    g.d->table->memory_close(g.d, MEMORY_HOST, trail, (STEPS + 1) * 4);
    g.d->table->memory_close(g.d, MEMORY_HOST, seed, (STEPS + 1) * 4);
    gpu_close(&g);
}

/* A long way round: what the last queue copies is right only if every wait held. */
static void a_chain_of_queues_is_as_long_as_one_likes(void **state)
{
    (void)state;
    gpu g;
    gpu_open(&g);
    uint32_t *source = memory_open(g.d, MEMORY_HOST, WORDS * 4);
    for (int round = 0; round < 600; round++) {
        for (int i = 0; i < WORDS; i++)
            source[i] = (uint32_t)(round * WORDS + i);
        copy(g.q[0], g.at_device[0], source, WORDS * 4);
        queue_wait(g.q[1], g.q[0], queue_signal(g.q[0]));
        copy(g.q[1], g.at_device[1], g.at_device[0], WORDS * 4);
        queue_wait(g.q[2], g.q[1], queue_signal(g.q[1]));
        copy(g.q[2], g.at_device[2], g.at_device[1], WORDS * 4);
        copy(g.q[2], g.at_host, g.at_device[2], WORDS * 4);
        queue_wait(g.q[0], g.q[2], queue_signal(g.q[2]));
        end_of(g.q[2]);
        assert_memory_equal(g.at_host, source, WORDS * 4);
    }
    g.d->table->memory_close(g.d, MEMORY_HOST, source, WORDS * 4);
    gpu_close(&g);
}

static void marks_tell_when_the_work_before_them_ended(void **state)
{
    (void)state;
    enum { MARKS = 2600 };
    static int64_t at[2][MARKS];
    gpu g;
    gpu_open(&g);
    const int64_t from = (int64_t)(clock_s() * 1e9);
    for (int i = 0; i < MARKS; i++) { /* more than a queue holds at a time */
        copy(g.q[i % 2], g.at_device[i % 2], g.at_host, WORDS * 4);
        queue_mark(g.q[i % 2], &at[i % 2][i / 2]);
    }
    end_of(g.q[0]);
    end_of(g.q[1]);
    const int64_t to = (int64_t)(clock_s() * 1e9), off = 1000000; /* fp32 milliseconds from the queue's start */
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < MARKS / 2; i++) {
            assert_true(at[k][i] >= from - off && at[k][i] <= to + off);
            assert_true(!i || at[k][i] + 2000 >= at[k][i - 1]);
        }
    gpu_close(&g);
}

static void the_time_between_marks_is_that_of_the_work(void **state)
{
    (void)state;
    enum { BYTES = 32 << 20, COPIES = 16 };
    gpu g;
    int64_t at[2];
    gpu_open(&g);
    char *to = memory_open(g.d, MEMORY_DEVICE, BYTES), *from = memory_open(g.d, MEMORY_HOST, BYTES);
    for (int turn = 0; turn < 3; turn++) {
        const double start = clock_s();
        queue_mark(g.q[0], &at[0]);
        for (int i = 0; i < COPIES; i++)
            copy(g.q[0], to, from, BYTES);
        queue_mark(g.q[0], &at[1]);
        end_of(g.q[0]);
        const double wall_ns = (clock_s() - start) * 1e9, work_ns = (double)(at[1] - at[0]);
        if (turn) /* the first opens the marks */
            assert_true(work_ns > wall_ns / 3 && work_ns < wall_ns + 1e5);
    }
    g.d->table->memory_close(g.d, MEMORY_DEVICE, to, BYTES);
    g.d->table->memory_close(g.d, MEMORY_HOST, from, BYTES);
    gpu_close(&g);
}

/* Also if the thread that reads the clock for the first mark gets no processor for a while. */
static void no_mark_lies_in_the_future(void **state)
{
    (void)state;
    int64_t at[8];
    gpu g;
    if (!test_device_is_standin())
        skip();
    gpu_open(&g);
    lose_fn *delay = find_in_standin("standin_delay");
    delay(20000000);
    for (int i = 0; i < 8; i++) {
        copy(g.q[0], g.at_device[0], g.at_host, WORDS * 4);
        queue_mark(g.q[0], &at[i]);
        if (i % 2)
            continue;
        end_of(g.q[0]);
        const int64_t now = (int64_t)(clock_s() * 1e9) + 1000;
        assert_true(at[i] <= now && (!i || (at[i - 1] <= at[i] && at[i - 2] <= at[i - 1])));
    }
    end_of(g.q[0]);
    delay(0);
    gpu_close(&g);
}

static void a_failure_passes_on_to_those_who_wait_and_to_nobody_else(void **state)
{
    (void)state;
    gpu g;
    pt_error e = {0};
    gpu_open(&g);
    const uint64_t before = queue_signal(g.q[0]);
    must(queue_sync(g.q[0], before, &e), &e);
    queue_submit(g.q[0], &(op){.kind = OP_KINDS}); /* there is no such op */
    const uint64_t after = queue_signal(g.q[0]);
    queue_wait(g.q[1], g.q[0], after);
    copy(g.q[1], g.at_host, g.at_device[1], 4);
    queue_wait(g.cpu, g.q[1], queue_signal(g.q[1]));
    assert_int_equal(queue_sync(g.q[0], after, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "does not exist"));
    e.text[0] = 0;
    assert_int_equal(queue_sync(g.q[1], queue_signal(g.q[1]), &e), PT_FAILED);
    assert_non_null(strstr(e.text, "does not exist"));
    assert_int_equal(queue_sync(g.cpu, queue_signal(g.cpu), &e), PT_FAILED);
    queue_wait(g.q[2], g.q[0], before); /* reached before anything failed */
    copy(g.q[2], g.at_device[2], g.at_host, 4);
    end_of(g.q[2]);
    gpu_close(&g);
}

static void memory_that_is_not_there_is_refused(void **state)
{
    (void)state;
    gpu g;
    void *p;
    pt_error e = {0};
    gpu_open(&g);
    assert_int_equal(g.d->table->memory_open(g.d, MEMORY_DEVICE, g.d->info.memory_bytes + 1, &p, &e), PT_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "`device_memory`"));
    char *base = memory_open(g.d, MEMORY_DEVICE, 100000), *host = memory_open(g.d, MEMORY_HOST, 100000), plain[64] = "not pinned";
    assert_true((uintptr_t)base % 4096 == 0 && (uintptr_t)host % 4096 == 0);
    memset(host, 1, 100000);
    copy(g.q[0], host, base, 100000);
    queue_submit(g.q[0], &(op){.kind = OP_ZERO, .copy = {plain, NULL, sizeof plain}});
    end_of(g.q[0]);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(host[i], 0); /* a new arena is clear */
    for (size_t i = 0; i < sizeof plain; i++)
        assert_int_equal(plain[i], 0);
    g.d->table->memory_close(g.d, MEMORY_DEVICE, base, 100000);
    g.d->table->memory_close(g.d, MEMORY_HOST, host, 100000);
    gpu_close(&g);
}

static lose_fn *gpu_open_to_lose(gpu *g)
{
    if (!test_device_is_standin())
        skip();
    gpu_open(g);
    return find_lose();
}

/* From one call on, in the middle of others: every queue says so, nobody hangs, and all of it can be closed. */
static void a_lost_gpu_is_named(void **state)
{
    (void)state;
    random_source r = random_open();
    for (int turn = 0; turn < 20; turn++) {
        gpu g;
        pt_error e = {0};
        lose_fn *lose = gpu_open_to_lose(&g);
        lose(random_from(&r, 0, 400));
        int failed = 0;
        for (int i = 0; i < 1000; i++) {
            queue *q = g.q[random_below(&r, 3)], *other = g.q[random_below(&r, 3)];
            const int place = q == g.q[0] ? 0 : q == g.q[1] ? 1 : 2;
            copy(q, g.at_device[place], g.at_host, WORDS * 4);
            if (q != other)
                queue_wait(q, other, queue_signal(other));
            if (random_one_in(&r, 20))
                failed |= queue_sync(q, queue_signal(q), &e);
        }
        for (int i = 0; i < 3; i++)
            failed |= queue_sync(g.q[i], queue_signal(g.q[i]), &e);
        assert_int_equal(failed, PT_FAILED);
        assert_non_null(strstr(e.text, "the GPU was lost"));
        gpu_close(&g);
        lose(-1);
    }
}

/* After the last launch: only who asks for the end can notice. */
static void a_gpu_that_is_lost_while_it_computes_is_named(void **state)
{
    (void)state;
    enum { BYTES = 64 << 20 };
    gpu g;
    pt_error e = {0};
    lose_fn *lose = gpu_open_to_lose(&g);
    char *to = memory_open(g.d, MEMORY_DEVICE, BYTES), *from = memory_open(g.d, MEMORY_HOST, BYTES);
    queue_wait(g.q[0], g.q[1], queue_signal(g.q[1]));
    end_of(g.q[0]);
    for (int i = 0; i < 20; i++)
        copy(g.q[0], to, from, BYTES);
    const uint64_t end = queue_signal(g.q[0]);
    usleep(20000);
    lose(0);
    assert_int_equal(queue_sync(g.q[0], end, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "the GPU was lost while computing"));
    queues_close(&g); /* before the memory that they work on */
    lose(-1);
    g.d->table->memory_close(g.d, MEMORY_DEVICE, to, BYTES);
    g.d->table->memory_close(g.d, MEMORY_HOST, from, BYTES);
    memory_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_run_in_the_order_that_waits_make), cmocka_unit_test(a_chain_of_queues_is_as_long_as_one_likes),
        cmocka_unit_test(marks_tell_when_the_work_before_them_ended),
        cmocka_unit_test(no_mark_lies_in_the_future),
        cmocka_unit_test(a_failure_passes_on_to_those_who_wait_and_to_nobody_else),
        cmocka_unit_test(the_time_between_marks_is_that_of_the_work),
        cmocka_unit_test(memory_that_is_not_there_is_refused), cmocka_unit_test(a_lost_gpu_is_named),
        cmocka_unit_test(a_gpu_that_is_lost_while_it_computes_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
