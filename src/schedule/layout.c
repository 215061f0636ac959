/* layout.c - an address for every buffer.
 *
 * Homes come first, one after the other, so that they are at the same place in all schedules of a plan; gradients last of
 * them. Each other buffer, or slot with all the buffers that pass through it, is a rectangle: its bytes high, and as wide as
 * the list from its first task to its last. The rectangles are placed largest first, each at the lowest address
 * where it overlaps none that is placed, from the gradients' homes on, which are idle for a part of the list:
 *
 *     address    homes of weights, states   ################################   not to scale
 *        |       gradient of chunk 0        #                              #   #: contents that are wanted
 *        |       gradient of chunk 1        ###   [ activations of layer ] #   updates first, backward at the end
 *        v       gradient of chunk 2        #####   [ 1 ][ layer 2 ]     ###
 *                transient                     [ workspace ][ workspace ]
 *                                           tasks ->
 *
 * So a step whose updates wait for the next one needs hardly more than the larger of its gradients and its activations.
 */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096 };

typedef struct region { uint64_t bytes, offset; int first, last; tier tier; } region;

static void find_lifetimes(schedule *s)
{
    for (int i = 0; i < s->tasks_n; i++)
        for (int o = s->tasks[i].operand0; o < s->tasks[i].operand0 + s->tasks[i].operands_n; o++) {
            const operand *access = &s->operands[o];
            buffer *b = &s->buffers[access->buffer];
            if (buffer_can_idle(b) && b->idle < 0 && access->write && !access->read) {
                b->idle = b->last + 1;
                b->idle_end = i;
            }
            if (b->first < 0)
                b->first = i;
            b->last = i;
        }
    for (int i = 0; i < s->homes_n && s->kind == SCHEDULE_EVAL; i++)
        if (buffer_can_idle(&s->buffers[i])) { /* no update waits */
            s->buffers[i].idle = 0;
            s->buffers[i].idle_end = s->tasks_n;
        }
}

static void place_homes(schedule *s)
{
    for (int gradients = 0; gradients < 2; gradients++) {
        memcpy(s->lasting_bytes, s->home_bytes, sizeof s->lasting_bytes);
        for (int i = 0; i < s->homes_n; i++) {
            buffer *b = &s->buffers[i];
            if (buffer_can_idle(b) != gradients)
                continue;
            b->offset = s->home_bytes[b->tier];
            s->home_bytes[b->tier] += align_up(b->bytes, PAGE);
            b->first = 0;
            b->last = s->tasks_n;
        }
    }
    for (int t = 0; t < TIERS; t++)
        s->bytes[t] = s->home_bytes[t];
}

static int by_size(const void *a, const void *b)
{
    const region *x = *(region *const *)a, *y = *(region *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x < y ? -1 : x > y);
}

/* Where a region at `offset` belongs in `placed`, which is in order of offset. */
static int find_position(const region *placed, int n, uint64_t offset)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (placed[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The lowest address at which r overlaps none of `placed`. */
static uint64_t find_place(const region *r, const region *placed, int n, uint64_t base)
{
    uint64_t at = base;
    for (int i = 0; i < n; i++) {
        const region *p = &placed[i];
        if (p->last < r->first || r->last < p->first || p->offset + p->bytes <= at)
            continue;
        if (p->offset >= at + r->bytes)
            break;
        at = p->offset + p->bytes;
    }
    return at;
}

/* The gradients' homes while they are not idle. */
static int occupied_homes(const schedule *s, tier t, region *out)
{
    int n = 0;
    for (int i = 0; i < s->homes_n; i++) {
        const buffer *b = &s->buffers[i];
        if (b->tier != t || !buffer_can_idle(b))
            continue;
        region r = {.bytes = align_up(b->bytes, PAGE), .offset = b->offset, .last = s->tasks_n, .tier = t};
        if (b->idle != b->idle_end) {
            if (b->idle > 0)
                out[n++] = (region){.bytes = r.bytes, .offset = r.offset, .last = b->idle - 1, .tier = t};
            r.first = b->idle_end;
        }
        out[n++] = r;
    }
    return n;
}

/* `placed` is room for copies: they are read again and again, in order. */
static void place_regions(schedule *s, tier t, region **order, int n, region *placed)
{
    int placed_n = occupied_homes(s, t, placed);
    for (int i = 0; i < n; i++) {
        region *r = order[i];
        if (r->tier != t)
            continue;
        r->offset = find_place(r, placed, placed_n, s->lasting_bytes[t]);
        int position = find_position(placed, placed_n, r->offset);
        memmove(placed + position + 1, placed + position, (size_t)(placed_n++ - position) * sizeof *placed);
        placed[position] = *r;
        if (r->offset + r->bytes > s->bytes[t])
            s->bytes[t] = r->offset + r->bytes;
    }
}

/* Region of buffer i: of its slot, or its own behind the slots'. */
static int region_of(const schedule *s, int i)
{
    return s->buffers[i].slot >= 0 ? s->buffers[i].slot : s->slots_n + i - s->homes_n;
}

static void collect_regions(const schedule *s, region *regions)
{
    for (int i = s->homes_n; i < s->buffers_n; i++) {
        const buffer *b = &s->buffers[i];
        region *r = &regions[region_of(s, i)];
        uint64_t bytes = (b->within + align_up(b->bytes, PAGE)) * buffer_copies(s, b);
        if (b->first < 0)
            continue;
        if (!r->bytes)
            *r = (region){.bytes = bytes, .first = b->first, .last = b->last, .tier = b->tier};
        r->bytes = bytes > r->bytes ? bytes : r->bytes;
        r->first = b->first < r->first ? b->first : r->first;
        r->last = b->last > r->last ? b->last : r->last;
    }
}

int schedule_layout(schedule *s, pt_error *e)
{
    int n = s->slots_n + s->buffers_n - s->homes_n;
    find_lifetimes(s);
    place_homes(s);
    region *regions = calloc((size_t)n + 1, sizeof *regions);
    region **order = malloc(((size_t)n + 1) * sizeof *order);
    region *placed = malloc(((size_t)n + 2 * (size_t)s->homes_n + 1) * sizeof *placed);
    int failed = !regions || !order || !placed;
    if (!failed) {
        collect_regions(s, regions);
        int used = 0;
        for (int i = 0; i < n; i++)
            if (regions[i].bytes)
                order[used++] = &regions[i];
        qsort(order, (size_t)used, sizeof *order, by_size);
        for (int t = 0; t < TIERS; t++)
            place_regions(s, (tier)t, order, used, placed);
        for (int i = s->homes_n; i < s->buffers_n; i++)
            s->buffers[i].offset = regions[region_of(s, i)].offset + s->buffers[i].within;
    }
    free(regions);
    free(order);
    free(placed);
    return failed ? pt_fail(e, PT_FAILED, "out of memory while laying out a schedule") : 0;
}
