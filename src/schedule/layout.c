/* layout.c - an address for every buffer.
 *
 * Placements come first, one after another, so that they have the same address in all schedules of a plan; gradients are the last
 * of them. Each other buffer, or slot with all buffers that pass through it, is a rectangle of bytes and time, from its first task to
 * its last. The rectangles are placed largest first, each at the lowest address where it overlaps no placed one. They may use the
 * gradients' placements while those are empty:
 *
 *     address    placements of weights, states   ################################   not to scale
 *        |       gradient of chunk 0        #                              #   #: contents that are needed
 *        |       gradient of chunk 1        ###   [ activations of layer ] #   updates first, backward at the end
 *        v       gradient of chunk 2        #####   [ 1 ][ layer 2 ]     ###
 *                transient                     [ workspace ][ workspace ]
 *                                           tasks ->
 *
 * So a step whose updates wait for the next one needs little more than the larger of its gradients and its activations.
 */
#include "schedule/shelf.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

static void find_lifetimes(schedule *sched)
{
    for (int i = 0; i < sched->tasks_n; i++)
        for (int o = sched->tasks[i].operand0; o < sched->tasks[i].operand0 + sched->tasks[i].operands_n; o++) {
            const operand *access = &sched->operands[o];
            buffer *b = &sched->buffers[access->buffer];
            if (buffer_can_idle(b) && b->idle < 0 && access->write && !access->read) {
                b->idle = b->last + 1;
                b->idle_end = i;
            }
            if (b->first < 0)
                b->first = i;
            b->last = i;
        }
    for (int i = 0; i < sched->placements_n && sched->kind == SCHEDULE_EVAL; i++)
        if (buffer_can_idle(&sched->buffers[i])) { /* no update waits */
            sched->buffers[i].idle = 0;
            sched->buffers[i].idle_end = sched->tasks_n;
        }
}

static void place_placements(schedule *sched)
{
    for (int gradients = 0; gradients < 2; gradients++) {
        memcpy(sched->lasting_bytes, sched->placement_bytes, sizeof sched->lasting_bytes);
        for (int i = 0; i < sched->placements_n; i++) {
            buffer *b = &sched->buffers[i];
            if (buffer_can_idle(b) != gradients)
                continue;
            b->offset = sched->placement_bytes[b->tier];
            sched->placement_bytes[b->tier] += align_up(b->bytes, PAGE);
            b->first = 0;
            b->last = sched->tasks_n;
        }
    }
    for (int t = 0; t < TIERS; t++)
        sched->bytes[t] = sched->placement_bytes[t];
}

static int by_size(const void *a, const void *b)
{
    const region *x = *(region *const *)a, *y = *(region *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x < y ? -1 : x > y);
}

/* The gradients' placements while they hold a gradient. */
static int place_occupied_placements(const schedule *sched, tier t, shelf *placed, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < sched->placements_n && !failed; i++) {
        const buffer *b = &sched->buffers[i];
        if (b->tier != t || !buffer_can_idle(b))
            continue;
        region r = {.bytes = align_up(b->bytes, PAGE), .offset = b->offset, .last = sched->tasks_n, .tier = t};
        if (b->idle != b->idle_end) {
            if (b->idle > 0)
                failed = shelf_add(placed, &(region){.bytes = r.bytes, .offset = r.offset, .last = b->idle - 1, .tier = t}, e);
            r.first = b->idle_end;
        }
        failed = failed ? failed : shelf_add(placed, &r, e);
    }
    return failed;
}

static int place_regions(schedule *sched, tier t, region **order, int n, shelf *placed, pt_error *e)
{
    shelf_clear(placed);
    int failed = place_occupied_placements(sched, t, placed, e);
    for (int i = 0; i < n && !failed; i++) {
        region *r = order[i];
        if (r->tier != t)
            continue;
        r->offset = shelf_find(placed, r, sched->lasting_bytes[t]);
        failed = shelf_add(placed, r, e);
        if (r->offset + r->bytes > sched->bytes[t])
            sched->bytes[t] = r->offset + r->bytes;
    }
    return failed;
}

/* The region of buffer i: that of its slot, or its own, after those of the slots. */
static int region_of(const schedule *sched, int i)
{
    return sched->buffers[i].slot >= 0 ? sched->buffers[i].slot : sched->slots_n + i - sched->placements_n;
}

static void collect_regions(const schedule *sched, region *regions)
{
    for (int i = sched->placements_n; i < sched->buffers_n; i++) {
        const buffer *b = &sched->buffers[i];
        region *r = &regions[region_of(sched, i)];
        uint64_t bytes = b->within + align_up(b->bytes, PAGE);
        if (b->first < 0)
            continue;
        if (!r->bytes)
            *r = (region){.bytes = bytes, .first = b->first, .last = b->last, .tier = b->tier};
        r->bytes = bytes > r->bytes ? bytes : r->bytes;
        r->first = b->first < r->first ? b->first : r->first;
        r->last = b->last > r->last ? b->last : r->last;
    }
}

static int place_all(schedule *sched, region *regions, int n, region **order, shelf *placed, pt_error *e)
{
    int used = 0, failed = 0;
    for (int i = 0; i < n; i++)
        if (regions[i].bytes)
            order[used++] = &regions[i];
    qsort(order, (size_t)used, sizeof *order, by_size);
    for (int t = 0; t < TIERS && !failed; t++)
        failed = place_regions(sched, (tier)t, order, used, placed, e);
    for (int i = sched->placements_n; i < sched->buffers_n; i++)
        sched->buffers[i].offset = regions[region_of(sched, i)].offset + sched->buffers[i].within;
    return failed;
}

int schedule_layout(schedule *sched, pt_error *e)
{
    int n = sched->slots_n + sched->buffers_n - sched->placements_n;
    find_lifetimes(sched);
    place_placements(sched);
    region *regions = calloc((size_t)n + 1, sizeof *regions);
    region **order = malloc(((size_t)n + 1) * sizeof *order);
    shelf placed = {0};
    int failed = regions && order ? 0 : pt_fail(e, PT_FAILED, "out of memory while laying out a schedule of %d tasks", sched->tasks_n);
    if (!failed) {
        collect_regions(sched, regions);
        failed = shelf_open(&placed, sched->tasks_n, regions, n, n + 2 * sched->placements_n, e);
    }
    if (!failed)
        failed = place_all(sched, regions, n, order, &placed, e);
    free(regions);
    free(order);
    shelf_close(&placed);
    return failed;
}
