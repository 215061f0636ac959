#include "io/disk_rows.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 }; /* rows of one call; the channel has fewer in flight */

struct disk_rows {
    disk_channel *channel;
    size_t row_bytes, blocks; /* of a row; around it */
    char *around;             /* (AT_ONCE, blocks) */
    int64_t most, slots;      /* slots: a power of two */
    int64_t *first;           /* of the slots: the place of the first id that fell there; -1: none */
    int64_t to[AT_ONCE];      /* the places of the rows that are read */
    disk_part part[AT_ONCE];
    size_t within[AT_ONCE];   /* where a row begins in its blocks */
};

size_t disk_row_blocks(size_t row_bytes) { return disk_align(row_bytes) + DISK_ALIGN; }

int disk_rows_open(disk_channel *channel, size_t row_bytes, int64_t most, disk_rows **out, pt_error *e)
{
    *out = NULL;
    disk_rows *r = calloc(1, sizeof *r);
    if (!r)
        return pt_fail(e, PT_FAILED, "out of memory");
    *r = (disk_rows){.channel = channel, .row_bytes = row_bytes, .blocks = disk_row_blocks(row_bytes), .most = most, .slots = 2};
    while (r->slots < 2 * most)
        r->slots *= 2;
    r->around = aligned_alloc(DISK_ALIGN, AT_ONCE * r->blocks);
    r->first = malloc((size_t)r->slots * sizeof *r->first);
    if (!r->around || !r->first) {
        disk_rows_close(r);
        return pt_fail(e, PT_FAILED, "out of memory for %d rows of %zu bytes", AT_ONCE, row_bytes);
    }
    *out = r;
    return 0;
}

void disk_rows_close(disk_rows *r)
{
    if (!r)
        return;
    free(r->around);
    free(r->first);
    free(r);
}

/* The place of the first of these ids that equals ids[i]; i if it is that one. */
static int64_t first_of(disk_rows *r, const int32_t *ids, int64_t i)
{
    int64_t slot = (int64_t)((uint32_t)ids[i] * UINT32_C(2654435769)) & (r->slots - 1);
    while (r->first[slot] >= 0 && ids[r->first[slot]] != ids[i])
        slot = (slot + 1) & (r->slots - 1);
    if (r->first[slot] < 0)
        r->first[slot] = i;
    return r->first[slot];
}

static void add_row(disk_rows *r, const disk_table *t, int n, int32_t id, int64_t to)
{
    const uint64_t at = t->offset + (uint64_t)(id - t->row0) * r->row_bytes, begin = at / DISK_ALIGN * DISK_ALIGN;
    r->part[n] = (disk_part){begin, r->around + (size_t)n * r->blocks, disk_align(at + r->row_bytes) - begin};
    r->within[n] = at - begin;
    r->to[n] = to;
}

static int read_rows(disk_rows *r, int n, char *out, pt_error *e)
{
    int failed = n ? disk_read_parts(r->channel, r->part, n, e) : 0;
    for (int i = 0; i < n && !failed; i++)
        memcpy(out + (size_t)r->to[i] * r->row_bytes, r->part[i].memory + r->within[i], r->row_bytes);
    return failed;
}

static bool has_row(const disk_table *t, int32_t id) { return id >= t->row0 && id - t->row0 < t->rows; }

int disk_rows_read(disk_rows *r, const disk_table *t, const int32_t *ids, int64_t n, void *out, pt_error *e)
{
    int failed = 0, waiting = 0;
    if (n > r->most)
        return pt_fail(e, PT_USAGE, "%lld rows at once, and %lld were announced", (long long)n, (long long)r->most);
    memset(r->first, 0xff, (size_t)r->slots * sizeof *r->first);
    for (int64_t i = 0; i < n && !failed; i++) {
        if (!has_row(t, ids[i]) || first_of(r, ids, i) != i)
            continue;
        add_row(r, t, waiting++, ids[i], i);
        if (waiting < AT_ONCE)
            continue;
        failed = read_rows(r, waiting, out, e);
        waiting = 0;
    }
    if (!failed)
        failed = read_rows(r, waiting, out, e);
    for (int64_t i = 0; i < n && !failed; i++) {
        const int64_t from = has_row(t, ids[i]) ? first_of(r, ids, i) : i;
        if (from != i)
            memcpy((char *)out + (size_t)i * r->row_bytes, (const char *)out + (size_t)from * r->row_bytes, r->row_bytes);
    }
    return failed;
}
