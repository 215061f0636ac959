/* link.c - who waits for whom, derived from what the tasks read and write.
 *
 * A task waits for the last writer of what it reads, for the last writer and all readers since of what
 * it writes, and, where it is the first to use a buffer, for all users of the buffers that had its memory
 * before. Of each queue only the latest such task counts, and it is left out where the
 * task's own queue, or one that it waits for, has already waited for it.
 */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

typedef struct history { int writer; int users[QUEUES]; } history; /* users: latest of each queue, all uses */

static void wait_for(task *t, const task *tasks, int index)
{
    if (index >= 0 && tasks[index].queue != t->queue && index > t->wait[tasks[index].queue])
        t->wait[tasks[index].queue] = index;
}

static bool share_memory(const buffer *a, const buffer *b)
{
    return a->tier == b->tier && a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* The first task of a buffer waits for those that used its memory before. */
static void wait_for_memory(schedule *s, history *h, const int *starting, int n, task *t, int index)
{
    const buffer *b = &s->buffers[index];
    for (int i = 0; i < n; i++) {
        const buffer *old = &s->buffers[starting[i]];
        if (old->last < b->first && share_memory(old, b))
            for (int q = 0; q < QUEUES; q++)
                wait_for(t, s->tasks, h[starting[i]].users[q]);
    }
}

static void link_task(schedule *s, history *h, int *started, int *started_n, int index)
{
    task *t = &s->tasks[index];
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const operand *o = &s->operands[i];
        history *past = &h[o->buffer];
        if (o->buffer >= s->homes_n && s->buffers[o->buffer].first == index && past->users[t->queue] != index) {
            wait_for_memory(s, h, started, *started_n, t, o->buffer);
            started[(*started_n)++] = o->buffer;
        }
        wait_for(t, s->tasks, past->writer);
        for (int q = 0; o->write && q < QUEUES; q++)
            wait_for(t, s->tasks, past->users[q]);
        past->users[t->queue] = index;
        if (o->write)
            past->writer = index;
    }
}

/* clock[i][q]: the latest task of queue q that is surely done when task i ends. */
static void drop_known_waits(schedule *s, int (*clock)[QUEUES])
{
    int last_of_queue[QUEUES];
    memset(last_of_queue, -1, sizeof last_of_queue);
    for (int i = 0; i < s->tasks_n; i++) {
        task *t = &s->tasks[i];
        int before = last_of_queue[t->queue];
        for (int q = 0; q < QUEUES; q++)
            clock[i][q] = before < 0 ? -1 : clock[before][q];
        for (int pass = 0; pass < 2; pass++) /* latest first: it may cover the others */
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

int schedule_link(schedule *s, pt_error *e)
{
    history *h = malloc(((size_t)s->buffers_n + 1) * sizeof *h);
    int *started = malloc(((size_t)s->buffers_n + 1) * sizeof *started), started_n = 0;
    int(*clock)[QUEUES] = malloc(((size_t)s->tasks_n + 1) * sizeof *clock);
    int failed = !h || !started || !clock;
    if (!failed) {
        memset(h, -1, ((size_t)s->buffers_n + 1) * sizeof *h);
        for (int i = 0; i < s->tasks_n; i++)
            memset(s->tasks[i].wait, -1, sizeof s->tasks[i].wait);
        for (int i = 0; i < s->tasks_n; i++)
            link_task(s, h, started, &started_n, i);
        drop_known_waits(s, clock);
    }
    free(h);
    free(started);
    free(clock);
    return failed ? pt_fail(e, PT_FAILED, "out of memory while linking a schedule") : 0;
}
