/* Schedules that the checker accepts are damaged, one thing at a time at random places, and must then be refused. Where a
 * damage changes the list, lifetimes and waits are made anew, so that only the meaning is wrong and no trace of the
 * hand that did it gives it away. */
#include "random_plan.h"
#include "schedule/check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* ---- tools ---- */

static void *copied(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);
    assert_non_null(to);
    memcpy(to, from, bytes);
    return to;
}

static schedule schedule_copied(const schedule *from)
{
    schedule s = *from;
    s.tasks = copied(from->tasks, (size_t)from->tasks_n * sizeof *s.tasks);
    s.operands = copied(from->operands, (size_t)from->operands_n * sizeof *s.operands);
    s.buffers = copied(from->buffers, (size_t)from->buffers_n * sizeof *s.buffers);
    return s;
}

/* Lifetimes and waits as the list now has them. */
static void mend(schedule *s)
{
    pt_error e = {0};
    for (int i = 0; i < s->buffers_n; i++) {
        s->buffers[i].first = s->buffers[i].placement ? 0 : -1;
        s->buffers[i].last = s->buffers[i].placement ? s->tasks_n : -1;
    }
    for (int i = 0; i < s->tasks_n; i++)
        for (int o = s->tasks[i].operand0; o < s->tasks[i].operand0 + s->tasks[i].operands_n; o++) {
            buffer *b = &s->buffers[s->operands[o].buffer];
            if (b->placement)
                continue;
            b->first = b->first < 0 ? i : b->first;
            b->last = i;
        }
    assert_int_equal(schedule_link(s, &e), 0);
}

static const operand *operand_of(const schedule *s, const task *t, int buffer)
{
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++)
        if (s->operands[o].buffer == buffer)
            return &s->operands[o];
    return NULL;
}

/* Of a sharded chunk a gather fills a buffer. */
static bool is_copy(const task *t)
{
    return t->kind == TASK_COPY || t->kind == TASK_READ || t->kind == TASK_WRITE || (t->kind == TASK_GATHER && t->operands_n == 2);
}
static task *any_task(random_source *r, schedule *s) { return &s->tasks[random_below(r, s->tasks_n)]; }

static operand *any_operand(random_source *r, schedule *s)
{
    const task *t = any_task(r, s);
    return &s->operands[t->operand0 + random_below(r, t->operands_n)];
}

/* ---- damages: each returns false where it found no place for itself ---- */

typedef struct damaged { random_source *r; random_case *c; schedule *s; uint64_t budget[TIERS]; } damaged;

/* Whether the buffer's contents are read at task `from` or the next time that it is used at all. */
static bool is_read_next(const schedule *s, int buffer, int from)
{
    for (int i = from; i < s->tasks_n; i++) {
        const operand *o = operand_of(s, &s->tasks[i], buffer);
        if (o)
            return o->read || i == from;
    }
    return false;
}

/* Onto another buffer, while one of the two holds what will still be read. */
static bool buffer_moved_onto_another(damaged *d)
{
    schedule *s = d->s;
    buffer *a = &s->buffers[random_below(d->r, s->buffers_n)];
    const buffer *b = &s->buffers[random_below(d->r, s->buffers_n)];
    if (a == b || a->first < 0 || b->first < 0 || a->tier != b->tier || a->offset == b->offset || a->last < b->first || b->last < a->first)
        return false;
    const buffer *earlier = a->first < b->first ? a : b, *later = earlier == a ? b : a;
    if (!is_read_next(s, (int)(earlier - s->buffers), later->first))
        return false;
    a->offset = b->offset;
    mend(s);
    return true;
}

/* A passing buffer onto a placement that is never empty: what is constant is not read again before the schedule ends, but in the next. */
static bool buffer_moved_onto_a_placement(damaged *d)
{
    schedule *s = d->s;
    buffer *a = &s->buffers[random_below(d->r, s->buffers_n)];
    const buffer *b = &s->buffers[random_below(d->r, s->placements_n)];
    if (a->placement || a->first < 0 || a->tier != b->tier || b->kind == OBJECT_GRADIENT || b->kind == OBJECT_ROWS_GRADIENT)
        return false;
    a->offset = b->offset;
    mend(s);
    return true;
}

static bool buffer_shifted_off_its_page(damaged *d)
{
    d->s->buffers[random_below(d->r, d->s->buffers_n)].offset += 1u << random_below(d->r, 12);
    return true;
}

static bool buffer_outside_of_the_arena(damaged *d)
{
    buffer *b = &d->s->buffers[random_below(d->r, d->s->buffers_n)];
    static const uint64_t beyond[] = {0, 4096, 1ull << 40, UINT64_MAX / 4096 * 4096 - (1ull << 50)};
    b->offset = d->s->bytes[b->tier] + beyond[random_below(d->r, 4)];
    return true;
}

static bool buffer_of_wrong_size(damaged *d)
{
    buffer *b = &d->s->buffers[random_below(d->r, d->s->buffers_n)];
    static const int64_t by[] = {-1, -4, -4096, 1, 64, 4096};
    int64_t change = by[b->kind == OBJECT_WORKSPACE ? random_below(d->r, 3) : random_below(d->r, 6)];
    if ((int64_t)b->bytes + change < 0)
        return false;
    b->bytes = (uint64_t)((int64_t)b->bytes + change);
    return true;
}

static bool buffer_with_a_false_identity(damaged *d)
{
    buffer *b = &d->s->buffers[random_below(d->r, d->s->buffers_n)];
    switch (random_below(d->r, 6)) {
    case 0: b->index += random_one_in(d->r, 2) ? 1 : -1; break;
    case 1: b->micro += random_one_in(d->r, 2) ? 1 : -1; break;
    case 2: b->kind = (object_kind)((b->kind + (unsigned)random_from(d->r, 1, OBJECT_KINDS - 1)) % OBJECT_KINDS); break;
    case 3: b->tier = (tier)((b->tier + (unsigned)random_from(d->r, 1, 2)) % TIERS); break;
    case 4: b->placement = !b->placement; break;
    default: b->first++; break;
    }
    return true;
}

static int waits_of(const task *t)
{
    int n = 0;
    for (int q = 0; q < QUEUES; q++)
        n += t->wait[q] >= 0;
    return n;
}

static int *any_wait(random_source *r, schedule *s)
{
    task *t = any_task(r, s);
    int at = waits_of(t) ? random_below(r, waits_of(t)) : -1;
    for (int q = 0; q < QUEUES && at >= 0; q++)
        if (t->wait[q] >= 0 && at-- == 0)
            return &t->wait[q];
    return NULL;
}

static bool wait_lost(damaged *d)
{
    int *wait = any_wait(d->r, d->s);
    if (wait)
        *wait = -1;
    return wait;
}

static bool wait_for_the_task_before(damaged *d)
{
    int *wait = any_wait(d->r, d->s);
    if (!wait)
        return false;
    queue_kind q = d->s->tasks[*wait].queue;
    for ((*wait)--; *wait >= 0 && d->s->tasks[*wait].queue != q;)
        (*wait)--;
    return true;
}

static bool wait_in_a_cycle(damaged *d)
{
    int i = random_below(d->r, d->s->tasks_n), later = random_from(d->r, i, d->s->tasks_n - 1);
    d->s->tasks[i].wait[d->s->tasks[later].queue] = later;
    return true;
}

static bool wait_in_the_wrong_queue(damaged *d)
{
    int *wait = any_wait(d->r, d->s);
    if (!wait)
        return false;
    d->s->tasks[*wait].queue = (queue_kind)((d->s->tasks[*wait].queue + (unsigned)random_from(d->r, 1, QUEUES - 1)) % QUEUES);
    return true;
}

/* Whether what a task before `from` wrote there is read, or stays. */
static bool is_wanted(const schedule *s, int buffer, int from)
{
    for (int i = from; i < s->tasks_n; i++) {
        const operand *o = operand_of(s, &s->tasks[i], buffer);
        if (o)
            return o->read;
    }
    return s->buffers[buffer].placement;
}

/* What is saved goes to the disk as soon as it leaves the device, and may be fetched from the host all the same and written once more:
 * the first of these writes is for nothing. */
static bool task_dropped(damaged *d)
{
    int i = random_below(d->r, d->s->tasks_n);
    if (is_copy(&d->s->tasks[i]) && !is_wanted(d->s, d->s->operands[d->s->tasks[i].operand0 + 1].buffer, i + 1))
        return false;
    memmove(d->s->tasks + i, d->s->tasks + i + 1, (size_t)(d->s->tasks_n - i - 1) * sizeof(task));
    d->s->tasks_n--;
    mend(d->s);
    return true;
}

/* A copy may well be made twice; nothing else may. */
static bool task_doubled(damaged *d)
{
    schedule *s = d->s;
    int i = random_below(d->r, s->tasks_n), at = random_from(d->r, i + 1, s->tasks_n);
    if (is_copy(&s->tasks[i]))
        return false;
    task again = s->tasks[i];
    s->tasks = realloc(s->tasks, ((size_t)s->tasks_n + 1) * sizeof *s->tasks);
    assert_non_null(s->tasks);
    memmove(s->tasks + at + 1, s->tasks + at, (size_t)(s->tasks_n - at) * sizeof *s->tasks);
    s->tasks[at] = again;
    s->tasks_n++;
    mend(s);
    return true;
}

static bool update_doubled(damaged *d)
{
    for (int tries = 0; tries < 20; tries++) {
        int i = random_below(d->r, d->s->tasks_n);
        if (d->s->tasks[i].kind != TASK_UPDATE)
            continue;
        task *other = any_task(d->r, d->s);
        if (other == &d->s->tasks[i] || other->kind != TASK_UPDATE)
            continue;
        *other = d->s->tasks[i]; /* in the other's place, which is then missing */
        mend(d->s);
        return true;
    }
    return false;
}

static bool is_finish(const task *t) { return t->kind == TASK_FINISH || t->kind == TASK_EMBED_FINISH; }

/* The second reads what the first writes; but the pieces of a gradient may come in any order. */
static bool tasks_swapped(damaged *d)
{
    schedule *s = d->s;
    if (s->tasks_n < 2)
        return false;
    int last = s->tasks_n - 1, i = random_below(d->r, last), j = random_from(d->r, i + 1, last < i + 40 ? last : i + 40);
    const task *first = &s->tasks[i], *second = &s->tasks[j];
    bool flows = false;
    for (int o = first->operand0; o < first->operand0 + first->operands_n; o++) {
        const operand *later = operand_of(s, second, s->operands[o].buffer);
        flows |= s->operands[o].write && later && later->read;
    }
    if (!flows || (is_finish(first) && is_finish(second)))
        return false;
    task t = s->tasks[i];
    s->tasks[i] = s->tasks[j];
    s->tasks[j] = t;
    mend(s);
    return true;
}

/* A slot is filled before the last user of what was in it has run. */
static bool slot_filled_too_early(damaged *d)
{
    schedule *s = d->s;
    const buffer *b = &s->buffers[random_below(d->r, s->buffers_n)], *before = NULL;
    if (b->slot < 0 || b->first < 0 || b->kind == OBJECT_WORKSPACE) /* computations may trade places */
        return false;
    for (int i = s->placements_n; i < s->buffers_n; i++) {
        const buffer *a = &s->buffers[i];
        bool overlap = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes; /* saved sets lie side by side in theirs */
        if (a->slot == b->slot && overlap && a->first >= 0 && a->last < b->first && (!before || a->last > before->last))
            before = a;
    }
    if (!before)
        return false;
    int from = b->first, to = before->last;
    task fill = s->tasks[from];
    memmove(s->tasks + to + 1, s->tasks + to, (size_t)(from - to) * sizeof *s->tasks);
    s->tasks[to] = fill;
    mend(s);
    return true;
}

/* Another object of the same kind on the same tier. */
static bool wrong_object(damaged *d)
{
    schedule *s = d->s;
    operand *o = any_operand(d->r, s);
    const buffer *is = &s->buffers[o->buffer];
    int at = random_below(d->r, s->buffers_n);
    const buffer *b = &s->buffers[at];
    if (b->kind != is->kind || b->tier != is->tier || (b->index == is->index && b->micro == is->micro))
        return false;
    o->buffer = at;
    mend(s);
    return true;
}

/* A fetch takes what its object was before: the update in between comes after it. */
static bool stale_fetch(damaged *d)
{
    schedule *s = d->s;
    for (int i = 0; i < s->tasks_n; i++) {
        const task *t = &s->tasks[i];
        if (t->kind != TASK_UPDATE || random_one_in(d->r, 3))
            continue;
        for (int j = i + 1; j < s->tasks_n; j++) {
            if (!is_copy(&s->tasks[j]) || s->tasks[j].chunk != t->chunk)
                continue;
            const operand *from = operand_of(s, t, s->operands[s->tasks[j].operand0].buffer);
            if (!from || !from->write)
                continue;
            task copy = s->tasks[j];
            memmove(s->tasks + i + 1, s->tasks + i, (size_t)(j - i) * sizeof *s->tasks);
            s->tasks[i] = copy;
            mend(s);
            return true;
        }
    }
    return false;
}

static bool operand_missing(damaged *d)
{
    task *t = any_task(d->r, d->s);
    t->operands_n--;
    if (random_one_in(d->r, 2))
        t->operand0++;
    mend(d->s);
    return true;
}

static bool operand_beyond_the_list(damaged *d)
{
    task *t = any_task(d->r, d->s);
    switch (random_below(d->r, 4)) {
    case 0: t->operand0 = d->s->operands_n; break;
    case 1: t->operand0 = -1; break;
    case 2: t->operands_n = INT32_MAX; break;
    default: d->s->operands[t->operand0].buffer = random_one_in(d->r, 2) ? -1 : d->s->buffers_n; break;
    }
    return true;
}

static bool wrong_mark_of_use(damaged *d)
{
    operand *o = any_operand(d->r, d->s);
    if (random_one_in(d->r, 2))
        o->read = !o->read;
    else
        o->write = !o->write;
    mend(d->s);
    return true;
}

static bool wrong_mark_of_the_first(damaged *d)
{
    task *t = any_task(d->r, d->s);
    t->first = !t->first;
    return true;
}

static bool wrong_block_micro_or_chunk(damaged *d)
{
    task *t = any_task(d->r, d->s);
    int *field[] = {&t->block, &t->micro, &t->chunk};
    *field[random_below(d->r, 3)] += random_one_in(d->r, 2) ? 1 : -1;
    return true;
}

/* The parts of a layer read other matrices. */
static bool wrong_part(damaged *d)
{
    task *t = any_task(d->r, d->s);
    t->part += t->part && random_one_in(d->r, 2) ? -1 : 1;
    return true;
}

static bool wrong_queue(damaged *d)
{
    task *t = any_task(d->r, d->s);
    t->queue = (queue_kind)((t->queue + (unsigned)random_from(d->r, 1, QUEUES - 1)) % QUEUES);
    mend(d->s);
    return true;
}

static bool wrong_kind_of_task(damaged *d)
{
    task *t = any_task(d->r, d->s);
    t->kind = (task_kind)((t->kind + (unsigned)random_from(d->r, 1, TASK_KINDS - 1)) % TASK_KINDS);
    return true;
}

static bool wrong_kind_of_schedule(damaged *d)
{
    d->s->kind = (schedule_kind)((d->s->kind + (unsigned)random_from(d->r, 1, SCHEDULE_KINDS - 1)) % SCHEDULE_KINDS);
    return true;
}

/* Forward, head and backward of one micro-batch are left out. */
static bool micro_batch_skipped(damaged *d)
{
    schedule *s = d->s;
    int micro = random_below(d->r, s->micro_n), n = 0;
    for (int i = 0; i < s->tasks_n; i++)
        if (s->tasks[i].micro != micro)
            s->tasks[n++] = s->tasks[i];
    if (n == s->tasks_n)
        return false;
    s->tasks_n = n;
    mend(s);
    return true;
}

static bool update_of_another_chunk_dropped(damaged *d)
{
    schedule *s = d->s;
    int n = 0, chunk = random_below(d->r, d->c->packing.chunks_n);
    for (int i = 0; i < s->tasks_n; i++)
        if (s->tasks[i].kind != TASK_UPDATE || s->tasks[i].chunk != chunk)
            s->tasks[n++] = s->tasks[i];
    if (n == s->tasks_n)
        return false;
    s->tasks_n = n;
    mend(s);
    return true;
}

static bool budget_exceeded(damaged *d)
{
    int t = random_below(d->r, TIERS);
    if (!d->s->bytes[t])
        return false;
    d->budget[t] = d->s->bytes[t] - 1;
    return true;
}

static bool arena_too_small(damaged *d)
{
    int t = random_below(d->r, TIERS);
    if (d->s->bytes[t] < 4096)
        return false;
    d->s->bytes[t] -= 4096;
    return true;
}

static bool wrong_micro_batches(damaged *d)
{
    if (random_one_in(d->r, 2))
        d->s->micro_n++;
    else
        d->s->micro_units++;
    return true;
}

/* ---- tests ---- */

static const struct { const char *name; bool (*apply)(damaged *); } damages[] = {
#define DAMAGE(f) {#f, f}
    DAMAGE(buffer_moved_onto_another), DAMAGE(buffer_moved_onto_a_placement), DAMAGE(buffer_shifted_off_its_page),
        DAMAGE(buffer_outside_of_the_arena),
    DAMAGE(buffer_of_wrong_size), DAMAGE(buffer_with_a_false_identity), DAMAGE(wait_lost), DAMAGE(wait_for_the_task_before),
    DAMAGE(wait_in_a_cycle), DAMAGE(wait_in_the_wrong_queue), DAMAGE(task_dropped), DAMAGE(task_doubled), DAMAGE(update_doubled),
    DAMAGE(tasks_swapped), DAMAGE(slot_filled_too_early), DAMAGE(wrong_object), DAMAGE(stale_fetch), DAMAGE(operand_missing),
    DAMAGE(operand_beyond_the_list), DAMAGE(wrong_mark_of_use), DAMAGE(wrong_mark_of_the_first), DAMAGE(wrong_block_micro_or_chunk),
    DAMAGE(wrong_part), DAMAGE(wrong_queue), DAMAGE(wrong_kind_of_task), DAMAGE(wrong_kind_of_schedule), DAMAGE(micro_batch_skipped),
    DAMAGE(update_of_another_chunk_dropped), DAMAGE(budget_exceeded), DAMAGE(arena_too_small), DAMAGE(wrong_micro_batches),
#undef DAMAGE
};
enum { DAMAGES = sizeof damages / sizeof *damages, TRIES = 40 };

/* Gives false where the case does not build. */
static bool accepted_schedule(random_source *r, random_case *c, schedule *s)
{
    pt_error e = {0};
    if (random_case_open(r, c, &e) || (random_one_in(r, 3) && random_share(r, c, &e)))
        fail_msg("%s", e.text);
    int failed = schedule_build(&c->input, random_kind(r, c), s, &e);
    if (!failed)
        failed = schedule_check(&c->input, s, NULL, &e);
    if (failed && failed != PT_DOES_NOT_FIT)
        fail_msg("%s", e.text);
    if (failed)
        random_case_close(c);
    return !failed;
}

static int cases_wanted(int by_default)
{
    const char *given = getenv("PT_TEST_SCHEDULES");
    return given ? atoi(given) : by_default;
}

static void every_kind_of_damage_is_refused(void **state)
{
    (void)state;
    random_source all = random_open();
    int applied[DAMAGES] = {0}, cases = cases_wanted(1000);
    for (int i = 0; i < cases; i++) {
        random_source r = random_fork(&all, (uint64_t)i);
        random_case c;
        schedule good;
        if (!accepted_schedule(&r, &c, &good))
            continue;
        for (int k = 0; k < DAMAGES; k++) {
            damaged d = {.r = &r, .c = &c, .budget = {UINT64_MAX, UINT64_MAX, UINT64_MAX}};
            bool done = false;
            for (int tries = 0; tries < TRIES && !done; tries++) {
                schedule s = schedule_copied(&good);
                pt_error e = {0};
                d.s = &s;
                done = damages[k].apply(&d);
                if (done && !schedule_check(&c.input, &s, d.budget, &e))
                    fail_msg("case %d, schedule kind %d: %s was not noticed", i, (int)good.kind, damages[k].name);
                if (done)
                    assert_true(strlen(e.text) > 20);
                schedule_free(&s);
            }
            applied[k] += done;
        }
        schedule_free(&good);
        random_case_close(&c);
    }
    for (int k = 0; k < DAMAGES; k++) {
        print_message("%6d %s\n", applied[k], damages[k].name);
        if (applied[k] < cases / 20)
            fail_msg("%s was hardly ever possible", damages[k].name);
    }
}

/* The linker leaves out what follows from other waits, so each that is left must matter. */
static void every_single_wait_matters(void **state)
{
    (void)state;
    random_source all = random_open();
    int waits = 0;
    for (int i = 0; i < cases_wanted(1000) / 4; i++) {
        random_source r = random_fork(&all, (uint64_t)i);
        random_case c;
        schedule s;
        if (!accepted_schedule(&r, &c, &s))
            continue;
        for (int t = 0; t < s.tasks_n; t++)
            for (int q = 0; q < QUEUES; q++) {
                int wait = s.tasks[t].wait[q];
                if (wait < 0)
                    continue;
                s.tasks[t].wait[q] = -1;
                if (!schedule_check(&c.input, &s, NULL, NULL))
                    fail_msg("case %d: task %d need not wait for task %d", i, t, wait);
                s.tasks[t].wait[q] = wait;
                waits++;
            }
        schedule_free(&s);
        random_case_close(&c);
    }
    print_message("%d waits\n", waits);
    assert_true(waits > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_damage_is_refused),
        cmocka_unit_test(every_single_wait_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
