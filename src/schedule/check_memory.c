/* check_memory.c - two accesses to the same byte, of which one writes, must be ordered.
 *
 * The borders of all buffers cut each tier into segments; a buffer is a range of them. A segment knows the last task that wrote it
 * and, for each queue, the last task that read it since; all older accesses precede those. A task ends before another starts if a
 * chain of queue order and waits leads from one to the other. `done` holds, for each task and queue, the latest task for which that
 * is true (a vector clock).
 *
 * A write makes the writer's buffer the owner of its segments; the contents of earlier owners are lost.
 */
#include "schedule/checker.h"

#include <stdlib.h>
#include <string.h>

/* ---- set-up ---- */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static int find_border(const uint64_t *borders, int n, uint64_t value)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (borders[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int open_tier(checker *checker, tier t, uint64_t *borders)
{
    const schedule *sched = checker->s;
    int n = 0, unique = 0;
    for (int i = 0; i < sched->buffers_n; i++)
        if (sched->buffers[i].tier == t) {
            borders[n++] = sched->buffers[i].offset;
            borders[n++] = sched->buffers[i].offset + sched->buffers[i].bytes;
        }
    qsort(borders, (size_t)n, sizeof *borders, by_value);
    for (int i = 0; i < n; i++)
        if (!unique || borders[unique - 1] != borders[i])
            borders[unique++] = borders[i];
    checker->segments[t] = malloc(((size_t)unique + 1) * sizeof(segment));
    if (!checker->segments[t])
        return pt_fail(checker->e, PT_FAILED, "out of memory while checking a schedule");
    memset(checker->segments[t], -1, ((size_t)unique + 1) * sizeof(segment));
    for (int i = 0; i < sched->buffers_n; i++)
        if (sched->buffers[i].tier == t) {
            checker->segment0[i] = find_border(borders, unique, sched->buffers[i].offset);
            checker->segment1[i] = find_border(borders, unique, sched->buffers[i].offset + sched->buffers[i].bytes);
        }
    return 0;
}

static int claim_placements(checker *checker)
{
    for (int i = 0; i < checker->s->placements_n; i++) {
        segment *all = checker->segments[checker->s->buffers[i].tier];
        for (int k = checker->segment0[i]; k < checker->segment1[i]; k++) {
            if (all[k].owner >= 0)
                return check_fail(checker, -1, i, "overlaps another placement, buffer %d", all[k].owner);
            all[k].owner = i;
        }
        checker->contents[i].alive = true;
    }
    return 0;
}

/* The latest tasks that have ended: those of the task before in its queue, and those of the tasks that it waits for. */
static void order_tasks(checker *checker)
{
    const schedule *sched = checker->s;
    int last[QUEUES];
    memset(last, -1, sizeof last);
    for (int i = 0; i < sched->tasks_n; i++) {
        const task *t = &sched->tasks[i];
        memset(checker->done[i], -1, sizeof checker->done[i]);
        for (int q = 0; q < QUEUES; q++) {
            int earlier = q == (int)t->queue ? last[q] : t->wait[q];
            for (int r = 0; earlier >= 0 && r < QUEUES; r++)
                if (checker->done[earlier][r] > checker->done[i][r])
                    checker->done[i][r] = checker->done[earlier][r];
            if (earlier > checker->done[i][q])
                checker->done[i][q] = earlier;
        }
        last[t->queue] = i;
    }
}

int check_memory_open(checker *checker)
{
    uint64_t *borders = malloc(((size_t)checker->s->buffers_n * 2 + 1) * sizeof *borders);
    int failed = borders ? 0 : pt_fail(checker->e, PT_FAILED, "out of memory while checking a schedule");
    for (int t = 0; t < TIERS && !failed; t++)
        failed = open_tier(checker, (tier)t, borders);
    free(borders);
    if (!failed)
        failed = claim_placements(checker);
    if (!failed)
        order_tasks(checker);
    return failed;
}

/* ---- accesses ---- */

static bool is_over(const checker *checker, int earlier, int i)
{
    return earlier < 0 || checker->done[i][checker->s->tasks[earlier].queue] >= earlier;
}

static int read_buffer(checker *checker, int i, int b)
{
    segment *all = checker->segments[checker->s->buffers[b].tier];
    for (int k = checker->segment0[b]; k < checker->segment1[b]; k++) {
        if (!is_over(checker, all[k].writer, i))
            return check_fail(checker, i, b, "reads what task %d writes, and nothing makes it wait for that", all[k].writer);
        all[k].reader[checker->s->tasks[i].queue] = i;
    }
    return 0;
}

static int write_segment(checker *checker, int i, int b, segment *g)
{
    int queue = checker->s->tasks[i].queue;
    const buffer *owner = g->owner >= 0 ? &checker->s->buffers[g->owner] : NULL;
    if (owner && owner->placement && g->owner != b && !buffer_can_idle(owner))
        return check_fail(checker, i, b, "overlaps buffer %d, a placement", g->owner);
    if (g->owner != b && (g->writer == i || g->reader[queue] == i))
        return check_fail(checker, i, b, "overlaps buffer %d, which the same task uses", g->owner);
    if (g->writer != i && !is_over(checker, g->writer, i))
        return check_fail(checker, i, b, "writes where task %d writes, and nothing makes it wait for that", g->writer);
    for (int q = 0; q < QUEUES; q++)
        if (g->reader[q] != i && !is_over(checker, g->reader[q], i))
            return check_fail(checker, i, b, "writes where task %d reads, and nothing makes it wait for that", g->reader[q]);
    if (g->owner >= 0 && g->owner != b)
        checker->contents[g->owner].alive = false;
    memset(g, -1, sizeof *g);
    g->owner = b;
    g->writer = i;
    return 0;
}

int check_memory(checker *checker, int i)
{
    const task *t = &checker->s->tasks[i];
    const operand *all = checker->s->operands + t->operand0;
    int failed = 0;
    for (int o = 0; o < t->operands_n && !failed; o++)
        if (all[o].read)
            failed = read_buffer(checker, i, all[o].buffer);
    for (int o = 0; o < t->operands_n && !failed; o++) {
        int b = all[o].buffer;
        segment *of_tier = checker->segments[checker->s->buffers[b].tier];
        for (int k = checker->segment0[b]; all[o].write && k < checker->segment1[b] && !failed; k++)
            failed = write_segment(checker, i, b, &of_tier[k]);
    }
    return failed;
}
