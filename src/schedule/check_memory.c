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

static int open_tier(checker *c, tier t, uint64_t *borders)
{
    const schedule *s = c->s;
    int n = 0, unique = 0;
    for (int i = 0; i < s->buffers_n; i++)
        if (s->buffers[i].tier == t) {
            borders[n++] = s->buffers[i].offset;
            borders[n++] = s->buffers[i].offset + s->buffers[i].bytes;
        }
    qsort(borders, (size_t)n, sizeof *borders, by_value);
    for (int i = 0; i < n; i++)
        if (!unique || borders[unique - 1] != borders[i])
            borders[unique++] = borders[i];
    c->segments[t] = malloc(((size_t)unique + 1) * sizeof(segment));
    if (!c->segments[t])
        return pt_fail(c->e, PT_FAILED, "out of memory while checking a schedule");
    memset(c->segments[t], -1, ((size_t)unique + 1) * sizeof(segment));
    for (int i = 0; i < s->buffers_n; i++)
        if (s->buffers[i].tier == t) {
            c->segment0[i] = find_border(borders, unique, s->buffers[i].offset);
            c->segment1[i] = find_border(borders, unique, s->buffers[i].offset + s->buffers[i].bytes);
        }
    return 0;
}

static int claim_placements(checker *c)
{
    for (int i = 0; i < c->s->placements_n; i++) {
        segment *all = c->segments[c->s->buffers[i].tier];
        for (int k = c->segment0[i]; k < c->segment1[i]; k++) {
            if (all[k].owner >= 0)
                return check_fail(c, -1, i, "overlaps another placement, buffer %d", all[k].owner);
            all[k].owner = i;
        }
        c->contents[i].alive = true;
    }
    return 0;
}

/* The latest tasks that have ended: those of the task before in its queue, and those of the tasks that it waits for. */
static void order_tasks(checker *c)
{
    const schedule *s = c->s;
    int last[QUEUES];
    memset(last, -1, sizeof last);
    for (int i = 0; i < s->tasks_n; i++) {
        const task *t = &s->tasks[i];
        memset(c->done[i], -1, sizeof c->done[i]);
        for (int q = 0; q < QUEUES; q++) {
            int earlier = q == (int)t->queue ? last[q] : t->wait[q];
            for (int r = 0; earlier >= 0 && r < QUEUES; r++)
                if (c->done[earlier][r] > c->done[i][r])
                    c->done[i][r] = c->done[earlier][r];
            if (earlier > c->done[i][q])
                c->done[i][q] = earlier;
        }
        last[t->queue] = i;
    }
}

int check_memory_open(checker *c)
{
    uint64_t *borders = malloc(((size_t)c->s->buffers_n * 2 + 1) * sizeof *borders);
    int failed = borders ? 0 : pt_fail(c->e, PT_FAILED, "out of memory while checking a schedule");
    for (int t = 0; t < TIERS && !failed; t++)
        failed = open_tier(c, (tier)t, borders);
    free(borders);
    if (!failed)
        failed = claim_placements(c);
    if (!failed)
        order_tasks(c);
    return failed;
}

/* ---- accesses ---- */

static bool is_over(const checker *c, int earlier, int i)
{
    return earlier < 0 || c->done[i][c->s->tasks[earlier].queue] >= earlier;
}

static int read_buffer(checker *c, int i, int b)
{
    segment *all = c->segments[c->s->buffers[b].tier];
    for (int k = c->segment0[b]; k < c->segment1[b]; k++) {
        if (!is_over(c, all[k].writer, i))
            return check_fail(c, i, b, "reads what task %d writes, and nothing makes it wait for that", all[k].writer);
        all[k].reader[c->s->tasks[i].queue] = i;
    }
    return 0;
}

static int write_segment(checker *c, int i, int b, segment *g)
{
    int queue = c->s->tasks[i].queue;
    const buffer *owner = g->owner >= 0 ? &c->s->buffers[g->owner] : NULL;
    if (owner && owner->placement && g->owner != b && !buffer_can_idle(owner))
        return check_fail(c, i, b, "overlaps buffer %d, a placement", g->owner);
    if (g->owner != b && (g->writer == i || g->reader[queue] == i))
        return check_fail(c, i, b, "overlaps buffer %d, which the same task uses", g->owner);
    if (g->writer != i && !is_over(c, g->writer, i))
        return check_fail(c, i, b, "writes where task %d writes, and nothing makes it wait for that", g->writer);
    for (int q = 0; q < QUEUES; q++)
        if (g->reader[q] != i && !is_over(c, g->reader[q], i))
            return check_fail(c, i, b, "writes where task %d reads, and nothing makes it wait for that", g->reader[q]);
    if (g->owner >= 0 && g->owner != b)
        c->contents[g->owner].alive = false;
    memset(g, -1, sizeof *g);
    g->owner = b;
    g->writer = i;
    return 0;
}

int check_memory(checker *c, int i)
{
    const task *t = &c->s->tasks[i];
    const operand *all = c->s->operands + t->operand0;
    int failed = 0;
    for (int o = 0; o < t->operands_n && !failed; o++)
        if (all[o].read)
            failed = read_buffer(c, i, all[o].buffer);
    for (int o = 0; o < t->operands_n && !failed; o++) {
        int b = all[o].buffer;
        segment *of_tier = c->segments[c->s->buffers[b].tier];
        for (int k = c->segment0[b]; all[o].write && k < c->segment1[b] && !failed; k++)
            failed = write_segment(c, i, b, &of_tier[k]);
    }
    return failed;
}
