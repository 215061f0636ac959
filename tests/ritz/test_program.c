/* Schedules of Deep Ritz runs: random plans are built and proved, and what is damaged is found. */
#include "ritz/program.h"
#include "schedule/check.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct sample { ritz_network net; ritz_space space; plan plan; ritz_program what; schedule s; } sample;

/* Two chunks or more, everything on all tiers; the caller frees it. */
static void draw(sample *x)
{
    pt_error e = {0};
    x->net = (ritz_network){.dim = 1 + rand() % 5, .width = 400 + rand() % 300, .blocks = 3 + rand() % 3, .plain = rand() % 2,
                            .type = rand() % 2 ? PT_F64 : PT_F32};
    assert_int_equal(ritz_network_describe(&x->net, &e), 0);
    x->net.jets = rand() % 3 ? 0 : x->net.dim + 2;
    x->space = (ritz_space){.net = &x->net, .unit_rows = 256, .training = true, .host_tier = rand() % 2, .has_mean = rand() % 2,
                            .has_faces = true};
    ritz_space_init(&x->space);
    assert_true(x->space.chunks_n > 1);
    assert_int_equal(ritz_plan_init(&x->space, &x->plan, &e), 0);
    plan *p = &x->plan;
    for (int c = 0; c < p->chunks_n; c++) {
        p->chunks[c].placement = rand() % 3 == 0 ? TIER_DEVICE : rand() % 2 && x->space.host_tier ? TIER_HOST : TIER_DISK;
        p->chunks[c].update = x->space.host_tier && rand() % 2 && p->chunks[c].placement != TIER_DEVICE ? TIER_HOST : TIER_DEVICE;
    }
    for (int g = 0; g < p->blocks_n; g++) {
        p->blocks[g].level = rand() % 2 ? SAVE_ALL : SAVE_INPUT;
        p->blocks[g].place = rand() % 2 ? TIER_DEVICE : rand() % 2 && x->space.host_tier ? TIER_HOST : TIER_DISK;
    }
    p->n_buffer = 2 + rand() % 3;
    p->n_update = 1 + rand() % 2;
    p->n_swap = 2 + rand() % 3;
    p->visit = 1 + rand() % 4;
    x->what = (ritz_program)(rand() % RITZ_PROGRAMS);
    if (ritz_schedule_build(&x->space, p, x->what, &x->s, &e))
        fail_msg("%s", e.text);
}

static void drop(sample *x)
{
    schedule_free(&x->s);
    plan_free(&x->plan);
}

static int check(const sample *x, const uint64_t *budget, pt_error *e)
{
    return schedule_check_moves(&x->s, SWEEPS * x->net.groups_n, x->space.chunks_n, budget, e);
}

static void random_schedules_are_proved(void **state)
{
    for (int turn = 0; turn < 200; turn++) {
        sample x;
        pt_error e = {0};
        draw(&x);
        uint64_t budget[TIERS];
        memcpy(budget, x.s.bytes, sizeof budget);
        if (check(&x, budget, &e))
            fail_msg("program %d: %s", x.what, e.text);
        const int tight = budget[TIER_DEVICE] ? TIER_DEVICE : TIER_HOST;
        budget[tight]--;
        assert_int_equal(check(&x, budget, &e), PT_DOES_NOT_FIT);
        drop(&x);
    }
}

static bool is_transfer(const task *t) { return t->kind == TASK_COPY || t->kind == TASK_READ || t->kind == TASK_WRITE; }

/* One of the waits is left out. */
static bool forget_a_wait(sample *x)
{
    int n = 0;
    for (int pass = 0, chosen = -1; pass < 2; pass++) {
        int at = 0;
        for (int i = 0; i < x->s.tasks_n; i++)
            for (int q = 0; q < QUEUES; q++)
                if (x->s.tasks[i].wait[q] >= 0 && at++ == chosen)
                    x->s.tasks[i].wait[q] = -1;
        n = at;
        chosen = n ? rand() % n : -1;
    }
    return n > 0;
}

/* A transfer whose contents are read later, or have to be there at the end. What goes to the disk and is found on the host after all is
 * neither. */
static bool is_needed(const schedule *s, int i)
{
    if (!is_transfer(&s->tasks[i]))
        return false;
    const int to = s->operands[s->tasks[i].operand0 + 1].buffer;
    if (to < s->placements_n && s->kind != SCHEDULE_EVAL)
        return true;
    for (int o = s->tasks[i].operand0 + s->tasks[i].operands_n; o < s->operands_n; o++)
        if (s->operands[o].buffer == to)
            return s->operands[o].read;
    return false;
}

/* A transfer is marked as done, and moves nothing. */
static bool forget_a_transfer(sample *x)
{
    int n = 0;
    for (int i = 0; i < x->s.tasks_n; i++)
        n += is_needed(&x->s, i);
    for (int i = 0, at = n ? rand() % n : -1; i < x->s.tasks_n && n; i++)
        if (is_needed(&x->s, i) && at-- == 0)
            x->s.operands[x->s.tasks[i].operand0 + 1].write = false;
    return n > 0;
}

/* A transfer takes its contents to another object's buffer. */
static bool mix_up_a_transfer(sample *x)
{
    for (int tries = 0; tries < 1000; tries++) {
        const task *t = &x->s.tasks[rand() % x->s.tasks_n];
        const int other = rand() % x->s.buffers_n;
        if (!is_transfer(t) || x->s.buffers[other].kind == x->s.buffers[x->s.operands[t->operand0].buffer].kind)
            continue;
        x->s.operands[t->operand0 + 1].buffer = other;
        return true;
    }
    return false;
}

/* A buffer lies beyond the arena's end. */
static bool move_a_buffer(sample *x)
{
    buffer *b = &x->s.buffers[rand() % x->s.buffers_n];
    if (!b->bytes)
        return false;
    b->offset = x->s.bytes[b->tier];
    return true;
}

static void damaged_schedules_are_found(void **state)
{
    static bool (*const damages[])(sample *) = {forget_a_wait, forget_a_transfer, mix_up_a_transfer, move_a_buffer};
    int done[4] = {0};
    for (int turn = 0; turn < 400; turn++) {
        sample x;
        pt_error e = {0};
        draw(&x);
        if (damages[turn % 4](&x)) {
            done[turn % 4]++;
            if (!check(&x, NULL, &e))
                fail_msg("turn %d: damage %d of program %d is not found", turn, turn % 4, x.what);
        }
        drop(&x);
    }
    for (int k = 0; k < 4; k++)
        assert_true(done[k] > 20);
}

int main(void)
{
    const unsigned seed = (unsigned)test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_schedules_are_proved),
        cmocka_unit_test(damaged_schedules_are_found),
    };
    srand(seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
