#include "schedule/shelf.h"

#include <stdlib.h>
#include <string.h>

enum { MANY = 1024, BRIEF_PARTS = 8 };

/* About the lifetime of a region in tasks. 0: there are so few regions that lists do not pay. */
static int choose_width(int tasks, const region *regions, int n)
{
    const int most = tasks / 64 + 1;
    int64_t sum = 0, count = 0;
    for (int i = 0; i < n; i++) {
        const int life = regions[i].last - regions[i].first + 1;
        if (regions[i].bytes) {
            sum += life < most ? life : most;
            count++;
        }
    }
    return count < MANY ? 0 : (int)(sum / count) + 1;
}

int shelf_open(shelf *k, int tasks, const region *regions, int n, int most, pt_error *e)
{
    *k = (shelf){.width = choose_width(tasks, regions, n)};
    k->lasting = malloc(((size_t)most + 1) * sizeof *k->lasting);
    bool failed = !k->lasting;
    if (k->width) {
        k->parts = tasks / k->width + 1;
        k->head = malloc((size_t)k->parts * sizeof *k->head);
        k->nodes = malloc((size_t)most * BRIEF_PARTS * sizeof *k->nodes);
        k->brief = malloc((size_t)most * sizeof *k->brief);
        k->near = malloc((size_t)most * sizeof *k->near);
        failed = failed || !k->head || !k->nodes || !k->brief || !k->near;
    }
    if (failed) {
        shelf_close(k);
        return pt_fail(e, PT_FAILED, "out of memory while laying out a schedule of %d tasks", tasks);
    }
    shelf_clear(k);
    return 0;
}

void shelf_clear(shelf *k)
{
    k->nodes_n = k->brief_n = k->lasting_n = 0;
    while (k->columns_n)
        free(k->columns[--k->columns_n].spans);
    for (int i = 0; i < k->parts; i++)
        k->head[i] = -1;
}

void shelf_close(shelf *k)
{
    while (k->columns_n)
        free(k->columns[--k->columns_n].spans);
    free(k->columns);
    free(k->head);
    free(k->nodes);
    free(k->brief);
    free(k->lasting);
    free(k->near);
    *k = (shelf){0};
}

static bool is_brief(const shelf *k, const region *r) { return k->width && r->last / k->width - r->first / k->width < BRIEF_PARTS; }

/* The index of `offset` among regions in order of offset. */
static int find_position(const region *lasting, int n, uint64_t offset)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (lasting[middle].offset <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first column that is not below (offset, bytes). */
static int find_column(const shelf *k, uint64_t offset, uint64_t bytes)
{
    int low = 0, high = k->columns_n;
    while (low < high) {
        const int middle = (low + high) / 2;
        const column *c = &k->columns[middle];
        if (c->offset < offset || (c->offset == offset && c->bytes < bytes))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Makes room for one more item of this size. */
static bool has_room(void **items, int n, int *room, size_t bytes)
{
    if (n < *room)
        return true;
    const int more = *room ? 2 * *room : 16;
    void *p = realloc(*items, (size_t)more * bytes);
    if (p) {
        *items = p;
        *room = more;
    }
    return p != NULL;
}

static bool add_to_column(shelf *k, const region *r)
{
    int at = find_column(k, r->offset, r->bytes);
    if (at == k->columns_n || k->columns[at].offset != r->offset || k->columns[at].bytes != r->bytes) {
        if (!has_room((void **)&k->columns, k->columns_n, &k->columns_room, sizeof *k->columns))
            return false;
        memmove(k->columns + at + 1, k->columns + at, (size_t)(k->columns_n++ - at) * sizeof *k->columns);
        k->columns[at] = (column){.offset = r->offset, .bytes = r->bytes};
    }
    column *c = &k->columns[at];
    if (!has_room((void **)&c->spans, c->n, &c->room, sizeof *c->spans))
        return false;
    int i = c->n++;
    for (; i > 0 && c->spans[i - 1].first > r->first; i--)
        c->spans[i] = c->spans[i - 1];
    c->spans[i].first = r->first;
    c->spans[i].last = r->last;
    return true;
}

int shelf_add(shelf *k, const region *r, pt_error *e)
{
    if (!is_brief(k, r)) {
        const int at = find_position(k->lasting, k->lasting_n, r->offset);
        memmove(k->lasting + at + 1, k->lasting + at, (size_t)(k->lasting_n++ - at) * sizeof *r);
        k->lasting[at] = *r;
        return 0;
    }
    for (int part = r->first / k->width; part <= r->last / k->width; part++) {
        k->nodes[k->nodes_n] = (struct shelf_node){k->brief_n, k->head[part]};
        k->head[part] = k->nodes_n++;
    }
    k->brief[k->brief_n++] = *r;
    return add_to_column(k, r) ? 0 : pt_fail(e, PT_FAILED, "out of memory while laying out a schedule");
}

static bool at_one_time(const region *a, const region *b) { return a->first <= b->last && b->first <= a->last; }

static int by_offset(const void *a, const void *b)
{
    const region *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The short regions that are used at the same time as the short region r, in order of address. Each is visited in the first part that it
 * shares with r. */
static int gather(shelf *k, const region *r)
{
    int n = 0;
    for (int part = r->first / k->width; part <= r->last / k->width; part++)
        for (int i = k->head[part]; i >= 0; i = k->nodes[i].next) {
            const region *x = &k->brief[k->nodes[i].region];
            const int own = x->first / k->width, from = r->first / k->width;
            if (part == (own > from ? own : from) && at_one_time(x, r))
                k->near[n++] = *x;
        }
    if (n > 1)
        qsort(k->near, (size_t)n, sizeof *k->near, by_offset);
    return n;
}

/* Is one region of the column used at the same time as r? The last one that begins before r ends decides. */
static bool column_meets(const column *c, const region *r)
{
    int low = 0, high = c->n;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (c->spans[middle].first <= r->last)
            low = middle + 1;
        else
            high = middle;
    }
    return low && c->spans[low - 1].last >= r->first;
}

/* The columns used at the same time as r, as regions that last as long as r. */
static int gather_columns(shelf *k, const region *r)
{
    int n = 0;
    for (int i = 0; i < k->columns_n; i++)
        if (column_meets(&k->columns[i], r))
            k->near[n++] = (region){.bytes = k->columns[i].bytes, .offset = k->columns[i].offset, .first = r->first, .last = r->last};
    return n;
}

uint64_t shelf_find(shelf *k, const region *r, uint64_t base)
{
    const int near_n = !k->width ? 0 : is_brief(k, r) ? gather(k, r) : gather_columns(k, r);
    uint64_t at = base;
    for (int i = 0, j = 0; i < k->lasting_n || j < near_n;) {
        const bool is_near = i == k->lasting_n || (j < near_n && k->near[j].offset < k->lasting[i].offset);
        const region *p = is_near ? &k->near[j++] : &k->lasting[i++];
        if (!at_one_time(p, r) || p->offset + p->bytes <= at)
            continue;
        if (p->offset >= at + r->bytes)
            break;
        at = p->offset + p->bytes;
    }
    return at;
}
