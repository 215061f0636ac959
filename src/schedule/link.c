/* link.c - derives the waits from what the tasks read and write.
 *
 * A task waits for the last writer of what it reads, and for the last writer and all later readers of what it writes. If it is the
 * first to use a buffer (or the first to write one that was empty: buffer_can_idle), it also waits for all users of the buffers that
 * had its memory before. For each queue only the latest such task counts. A wait is left out if the task's own queue, or a task that
 * it waits for, has already waited for it.
 */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct history { int writer; int users[QUEUES]; } history; /* users: the latest task of each queue, over all uses */

static void wait_for(task *t, const task *tasks, int index)
{
    if (index >= 0 && tasks[index].queue != t->queue && index > t->wait[tasks[index].queue])
        t->wait[tasks[index].queue] = index;
}

/* ---- memory ---- */

/* The last buffer of each range of a tier, in order of offset, without overlaps. Earlier buffers need no wait: that buffer's first task
 * waited for them. */
typedef struct span { uint64_t offset, end; int buffer; } span;
typedef struct occupancy { span *spans; int n; } occupancy;

/* The first span that ends after `offset`. */
static int find_span(const occupancy *m, uint64_t offset)
{
    int low = 0, high = m->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (m->spans[middle].end <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The buffer takes its memory, and the task waits for the users of the buffers that had it before. */
static void take_memory(schedule *sched, const history *h, occupancy *m, task *t, int index)
{
    const buffer *b = &sched->buffers[index];
    uint64_t start = b->offset, end = b->offset + b->bytes;
    int first = find_span(m, start), past = first, n = 0;
    span replaced[3];
    for (; past < m->n && m->spans[past].offset < end; past++)
        for (int q = 0; q < QUEUES; q++)
            wait_for(t, sched->tasks, h[m->spans[past].buffer].users[q]);
    if (past > first && m->spans[first].offset < start)
        replaced[n++] = (span){m->spans[first].offset, start, m->spans[first].buffer};
    replaced[n++] = (span){start, end, index};
    if (past > first && m->spans[past - 1].end > end)
        replaced[n++] = (span){end, m->spans[past - 1].end, m->spans[past - 1].buffer};
    memmove(m->spans + first + n, m->spans + past, (size_t)(m->n - past) * sizeof *m->spans);
    memcpy(m->spans + first, replaced, (size_t)n * sizeof *replaced);
    m->n += n - (past - first);
}

/* At the start of the list, waiting gradients occupy their placements. */
static void begin_memory(const schedule *sched, occupancy memory[TIERS])
{
    for (int i = 0; i < sched->placements_n; i++) {
        const buffer *b = &sched->buffers[i];
        occupancy *m = &memory[b->tier];
        if (buffer_can_idle(b) && b->bytes)
            m->spans[m->n++] = (span){b->offset, b->offset + b->bytes, i};
    }
}

/* ---- tasks ---- */

static void link_task(schedule *sched, history *h, occupancy *memory, int index)
{
    task *t = &sched->tasks[index];
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const operand *o = &sched->operands[i];
        const buffer *b = &sched->buffers[o->buffer];
        history *past = &h[o->buffer];
        bool anew = buffer_can_idle(b) ? o->write && !o->read : !b->placement && b->first == index;
        if (anew && past->users[t->queue] != index && b->bytes)
            take_memory(sched, h, &memory[b->tier], t, o->buffer);
        wait_for(t, sched->tasks, past->writer);
        for (int q = 0; o->write && q < QUEUES; q++)
            wait_for(t, sched->tasks, past->users[q]);
        past->users[t->queue] = index;
        if (o->write)
            past->writer = index;
    }
}

/* clock[i][q]: the latest task of queue q that has surely ended when task i ends. */
static void drop_known_waits(schedule *sched, int (*clock)[QUEUES])
{
    int last_of_queue[QUEUES];
    memset(last_of_queue, -1, sizeof last_of_queue);
    for (int i = 0; i < sched->tasks_n; i++) {
        task *t = &sched->tasks[i];
        int before = last_of_queue[t->queue];
        for (int q = 0; q < QUEUES; q++)
            clock[i][q] = before < 0 ? -1 : clock[before][q];
        for (int pass = 0; pass < 2; pass++) /* latest first: its wait may make the others redundant */
            for (int q = QUEUES - 1; q >= 0; q--) {
                int w = t->wait[q];
                if (w < 0)
                    continue;
                if (pass == 0) {
                    for (int r = 0; r < QUEUES; r++)
                        if (r != q && t->wait[r] >= 0 && clock[w][r] >= t->wait[r])
                            t->wait[r] = -1;
                } else if (clock[i][q] >= w) {
                    t->wait[q] = -1;
                } else {
                    for (int r = 0; r < QUEUES; r++)
                        clock[i][r] = clock[w][r] > clock[i][r] ? clock[w][r] : clock[i][r];
                }
            }
        clock[i][t->queue] = i;
        last_of_queue[t->queue] = i;
    }
}

int schedule_add_waits(schedule *sched, pt_error *e)
{
    size_t buffers = (size_t)sched->buffers_n + 1;
    history *h = malloc(buffers * sizeof *h);
    occupancy memory[TIERS] = {0};
    int failed = !h;
    for (int t = 0; t < TIERS; t++) {
        memory[t].spans = malloc(3 * buffers * sizeof(span)); /* a buffer adds at most two spans, a placement once more */
        failed |= !memory[t].spans;
    }
    if (!failed) {
        memset(h, -1, buffers * sizeof *h);
        for (int i = 0; i < sched->tasks_n; i++)
            memset(sched->tasks[i].wait, -1, sizeof sched->tasks[i].wait);
        begin_memory(sched, memory);
        for (int i = 0; i < sched->tasks_n; i++)
            link_task(sched, h, memory, i);
    }
    free(h);
    for (int t = 0; t < TIERS; t++)
        free(memory[t].spans);
    return failed ? pt_fail(e, PT_FAILED, "out of memory while linking a schedule") : 0;
}

int schedule_link(schedule *sched, pt_error *e)
{
    int failed = schedule_add_waits(sched, e);
    if (failed)
        return failed;
    int(*clock)[QUEUES] = malloc(((size_t)sched->tasks_n + 1) * sizeof *clock);
    if (!clock)
        return pt_fail(e, PT_FAILED, "out of memory while linking a schedule");
    drop_known_waits(sched, clock);
    free(clock);
    return 0;
}
