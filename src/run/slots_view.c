/* slots_view.c - reads a file of slots: what stands in it may be torn, damaged or of another program. */
#include "run/slots_parts.h"

#include "base/sum.h"
#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 16 * DISK_SUM_BYTES };

struct slots_view {
    int fd;
    char path[FILE_PATH_BYTES];
    slots_header header;
    char *data;          /* of the record */
    slots_record record;
    slots_map map;       /* slots_view_map */
    char *mapped;
};

/* ---- parsing ---- */

bool slots_header_parse(const char data[DISK_ALIGN], uint64_t size, slots_header *out)
{
    slots_header h;
    memcpy(&h, data, sizeof h);
    const uint64_t least = sizeof(record_head) + h.regions_n * sizeof(record_region) + sizeof(uint64_t);
    *out = h;
    return h.magic == SLOTS_MAGIC && h.sum == sum_bytes(SLOTS_MAGIC, 0, &h, offsetof(slots_header, sum)) &&
           h.regions_n <= SLOTS_REGIONS_MOST && h.record_bytes % DISK_ALIGN == 0 && h.record_bytes >= least &&
           h.record_bytes <= size / 2 && h.file_bytes <= size && h.file_bytes >= DISK_ALIGN + 2 * h.record_bytes &&
           h.chunk_bytes >= PLAN_MIN_CHUNK_BYTES && h.chunk_bytes <= (uint64_t)PLAN_MAX_CHUNK_BYTES && h.slice_rows &&
           h.slice_rows <= INT32_MAX;
}

record_region slots_region_at(const slots_record *r, uint64_t i)
{
    record_region x;
    memcpy(&x, r->regions + i * sizeof x, sizeof x);
    return x;
}

/* Slots of possible numbers and sizes, which fill the file. */
static bool regions_agree(const slots_record *r, const slots_header *h)
{
    uint64_t end = DISK_ALIGN + 2 * h->record_bytes;
    for (uint64_t i = 0; i < h->regions_n; i++) {
        const record_region x = slots_region_at(r, i);
        if (x.slot > 1 || x.bytes % DISK_ALIGN || x.bytes > (h->file_bytes - end) / 2)
            return false;
        end += 2 * x.bytes;
    }
    return end == h->file_bytes;
}

bool slots_record_parse(const char *data, const slots_header *h, slots_record *out)
{
    record_head head;
    uint64_t sum;
    memcpy(&head, data, sizeof head);
    const uint64_t regions = h->regions_n * sizeof(record_region), room = h->record_bytes - sizeof head - regions - sizeof sum;
    if (head.magic != COMMIT_MAGIC || head.layout != h->layout || head.text_bytes > SLOTS_TEXT_MOST || head.text_bytes > room ||
        head.step > (uint64_t)INT64_MAX)
        return false;
    const uint64_t used = sizeof head + regions + head.text_bytes;
    memcpy(&sum, data + used, sizeof sum);
    *out = (slots_record){.sequence = head.sequence, .text_bytes = head.text_bytes, .step = (int64_t)head.step,
                          .regions = data + sizeof head, .text = data + sizeof head + regions};
    return sum == slots_record_sum(data, used) && regions_agree(out, h);
}

/* ---- comparing checksums ---- */

static int compare_region(const slots_view *v, uint64_t offset, const record_region *x, char *buffer, bool *same, pt_error *e)
{
    uint64_t sum = 0;
    int failed = 0;
    for (uint64_t done = 0; done < x->bytes && !failed; done += READ_BYTES) {
        const size_t n = x->bytes - done < READ_BYTES ? (size_t)(x->bytes - done) : READ_BYTES;
        failed = fd_pread_all(v->fd, buffer, n, offset + done, v->path, e);
        sum += failed ? 0 : disk_sum(offset + done, buffer, n);
    }
    *same = !failed && sum == x->sum;
    return failed;
}

/* Are all regions what the record says? */
static int compare_regions(const slots_view *v, const slots_record *r, bool *same, pt_error *e)
{
    uint64_t offset = DISK_ALIGN + 2 * v->header.record_bytes;
    char *buffer = malloc(READ_BYTES);
    int failed = buffer ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    *same = true;
    for (uint64_t i = 0; i < v->header.regions_n && *same && !failed; i++) {
        const record_region x = slots_region_at(r, i);
        failed = compare_region(v, offset + x.slot * x.bytes, &x, buffer, same, e);
        offset += 2 * x.bytes;
    }
    free(buffer);
    return failed;
}

/* ---- life ---- */

/* *good: there is a header of this version. */
static int read_header(slots_view *v, bool *good, pt_error *e)
{
    struct stat st;
    char block[DISK_ALIGN];
    *good = false;
    v->fd = open(v->path, O_RDONLY | O_CLOEXEC);
    if (v->fd < 0 && errno == ENOENT)
        return 0;
    if (v->fd < 0 || fstat(v->fd, &st))
        return pt_fail_errno(e, PT_FAILED, "%.400s: the states that steps commit cannot be read", v->path);
    if (!S_ISREG(st.st_mode) || st.st_size < DISK_ALIGN)
        return 0;
    const int failed = fd_pread_all(v->fd, block, sizeof block, 0, v->path, e);
    *good = !failed && slots_header_parse(block, (uint64_t)st.st_size, &v->header);
    return failed;
}

/* The newest record whose regions have their checksums; v gets its data. */
static int find_record(slots_view *v, char *data[2], bool *found, pt_error *e)
{
    slots_record r[2];
    bool good[2];
    int failed = 0;
    *found = false;
    for (int i = 0; i < 2 && !failed; i++) {
        failed = fd_pread_all(v->fd, data[i], v->header.record_bytes, slots_record_at(v->header.record_bytes, (uint64_t)i), v->path, e);
        good[i] = !failed && slots_record_parse(data[i], &v->header, &r[i]) && r[i].sequence % 2 == (uint64_t)i;
    }
    if (failed)
        return failed;
    const int newest = good[0] && (!good[1] || r[0].sequence > r[1].sequence) ? 0 : 1;
    for (int i = 0; i < 2 && !*found && !failed; i++) {
        const int k = i ? !newest : newest;
        failed = good[k] ? compare_regions(v, &r[k], found, e) : 0;
        if (*found) {
            v->record = r[k];
            v->data = data[k];
            data[k] = NULL;
        }
    }
    return failed;
}

static int find_commit(slots_view *v, bool *found, pt_error *e)
{
    char *data[2] = {NULL, NULL};
    int failed = read_header(v, found, e);
    if (failed || !*found)
        return failed;
    for (int i = 0; i < 2 && !failed; i++)
        if (!(data[i] = malloc(v->header.record_bytes)))
            failed = pt_fail(e, PT_FAILED, "out of memory for a record of %llu bytes", (unsigned long long)v->header.record_bytes);
    if (!failed)
        failed = find_record(v, data, found, e);
    free(data[0]);
    free(data[1]);
    return failed;
}

int slots_view_open(const char *path, slots_view **out, pt_error *e)
{
    bool found = false;
    *out = NULL;
    slots_view *v = calloc(1, sizeof *v);
    if (!v)
        return pt_fail(e, PT_FAILED, "out of memory");
    v->fd = -1;
    snprintf(v->path, sizeof v->path, "%s", path);
    const int failed = find_commit(v, &found, e);
    if (failed || !found)
        slots_view_close(v);
    else
        *out = v;
    return failed;
}

void slots_view_close(slots_view *v)
{
    if (!v)
        return;
    if (v->mapped)
        munmap(v->mapped, v->header.file_bytes);
    if (v->fd >= 0)
        close(v->fd);
    slots_map_close(&v->map);
    free(v->data);
    free(v);
}

int64_t slots_view_step(const slots_view *v) { return v->record.step; }
const char *slots_view_path(const slots_view *v) { return v->path; }
int64_t slots_view_chunk_bytes(const slots_view *v) { return (int64_t)v->header.chunk_bytes; }
int64_t slots_view_slice_rows(const slots_view *v) { return (int64_t)v->header.slice_rows; }
uint64_t slots_view_layout(const slots_view *v) { return v->header.layout; }
uint64_t slots_view_bytes(const slots_view *v) { return v->header.file_bytes; }

const char *slots_view_text(const slots_view *v, size_t *n)
{
    *n = v->record.text_bytes;
    return v->record.text;
}

void slots_view_committed(const slots_view *v, signed char *committed, signed char *newest, uint64_t (*sums)[2], uint64_t *sequence)
{
    for (uint64_t i = 0; i < v->header.regions_n; i++) {
        const record_region x = slots_region_at(&v->record, i);
        committed[i] = newest[i] = (signed char)x.slot;
        sums[i][x.slot] = x.sum;
    }
    *sequence = v->record.sequence + 1;
}

/* ---- contents ---- */

int slots_view_map(slots_view *v, const packing *packing, pt_error *e)
{
    int failed = slots_map_open(&v->map, packing, e);
    if (failed)
        return failed;
    if (v->map.layout != v->header.layout || v->map.file_bytes != v->header.file_bytes || (uint64_t)v->map.regions_n != v->header.regions_n)
        return pt_fail(e, PT_FAILED,
                       "%.400s: these states were written for another model, optimizer or version of this program: continue from a "
                       "checkpoint with `resume_from` DIR", v->path);
    v->mapped = mmap(NULL, v->header.file_bytes, PROT_READ, MAP_SHARED, v->fd, 0);
    if (v->mapped == MAP_FAILED) {
        v->mapped = NULL;
        return pt_fail_errno(e, PT_FAILED, "%.400s: the states that a step committed cannot be read", v->path);
    }
    return 0;
}

const char *slots_view_at(const slots_view *v, object_kind kind, int chunk)
{
    const int r = slots_map_find(&v->map, kind, chunk);
    const record_region x = slots_region_at(&v->record, (uint64_t)r);
    return v->mapped + v->map.regions[r].offset + x.slot * x.bytes;
}
