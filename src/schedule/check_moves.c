/* check_moves.c - properties of any schedule, whatever its blocks compute.
 *
 * Buffers with the same kind, index and micro-batch are copies of one object. A task that writes such a buffer makes the newest version
 * of the object; a transfer copies a version. Tasks read only the newest version, and placements hold it when the schedule ends. */
#include "schedule/checker.h"

#include <stdlib.h>
#include <string.h>

typedef struct moves { checker *c; int *object; int *newest; int *version; } moves; /* per buffer; per object; per buffer */

static int by_identity(const void *a, const void *b)
{
    const buffer *x = *(const buffer *const *)a, *y = *(const buffer *const *)b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->index != y->index)
        return x->index < y->index ? -1 : 1;
    if (x->micro != y->micro)
        return x->micro < y->micro ? -1 : 1;
    return x < y ? -1 : x > y;
}

static bool is_same(const buffer *x, const buffer *y) { return x->kind == y->kind && x->index == y->index && x->micro == y->micro; }

static int name_objects(moves *m)
{
    const schedule *sched = m->c->s;
    const buffer **order = malloc(((size_t)sched->buffers_n + 1) * sizeof *order);
    if (!order)
        return pt_fail(m->c->e, PT_FAILED, "out of memory while checking a schedule");
    for (int i = 0; i < sched->buffers_n; i++)
        order[i] = &sched->buffers[i];
    qsort(order, (size_t)sched->buffers_n, sizeof *order, by_identity);
    for (int i = 0, n = -1; i < sched->buffers_n; i++) {
        n += i == 0 || !is_same(order[i - 1], order[i]);
        m->object[order[i] - sched->buffers] = n;
    }
    free(order);
    return 0;
}

static int check_reads(moves *m, int i)
{
    const checker *checker = m->c;
    const task *t = &checker->s->tasks[i];
    for (int o = t->operand0; o < t->operand0 + t->operands_n; o++) {
        const int b = checker->s->operands[o].buffer;
        if (!checker->s->operands[o].read)
            continue;
        if (!checker->contents[b].alive)
            return check_fail(checker, i, b, "is read, but nothing was written there, or something else since");
        if (m->version[b] != m->newest[m->object[b]])
            return check_fail(checker, i, b, "holds version %d, and %d is the newest", m->version[b], m->newest[m->object[b]]);
    }
    return 0;
}

static bool is_transfer(const task *t) { return t->kind == TASK_COPY || t->kind == TASK_READ || t->kind == TASK_WRITE; }

static int note_writes(moves *m, int i)
{
    const checker *checker = m->c;
    const task *t = &checker->s->tasks[i];
    const operand *all = checker->s->operands + t->operand0;
    if (is_transfer(t) && (t->operands_n != 2 || m->object[all[0].buffer] != m->object[all[1].buffer]))
        return check_fail(checker, i, -1, "is no transfer from one copy of an object to another");
    for (int o = 0; o < t->operands_n; o++) {
        const int b = all[o].buffer;
        if (!all[o].write)
            continue;
        checker->contents[b].alive = true;
        m->version[b] = is_transfer(t) ? m->version[all[0].buffer] : ++m->newest[m->object[b]];
    }
    return 0;
}

static int check_end(const moves *m)
{
    const schedule *sched = m->c->s;
    for (int i = 0; i < sched->placements_n; i++)
        if (sched->kind != SCHEDULE_EVAL && (!m->c->contents[i].alive || m->version[i] != m->newest[m->object[i]]))
            return check_fail(m->c, -1, i, "is not in its placement when the schedule ends: version %d is there, and %d is the newest",
                              m->version[i], m->newest[m->object[i]]);
    return 0;
}

int check_moves(checker *checker)
{
    const size_t n = (size_t)checker->s->buffers_n + 1;
    int *all = calloc(3 * n, sizeof *all);
    moves m = {checker, all, all + n, all + 2 * n};
    int failed = all ? name_objects(&m) : pt_fail(checker->e, PT_FAILED, "out of memory while checking a schedule");
    if (!failed)
        failed = check_memory_open(checker);
    for (int i = 0; i < checker->s->tasks_n && !failed; i++) {
        failed = check_reads(&m, i);
        if (!failed)
            failed = check_memory(checker, i);
        if (!failed)
            failed = note_writes(&m, i);
    }
    if (!failed)
        failed = check_end(&m);
    free(all);
    return failed;
}
