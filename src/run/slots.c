#include "run/slots_parts.h"

#include "base/sum.h"
#include "io/files.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct slots {
    slots_map map;
    disk_file *file;
    disk_channel *channel;
    char path[FILE_PATH_BYTES];
    uint64_t sequence;          /* of the next commit */
    signed char *committed, *newest; /* the slot of each region; -1: none */
    uint64_t (*sums)[2];
    char *record;               /* record_bytes */
};

/* ---- layout ---- */

static uint64_t pages(uint64_t n) { return align_up(n, DISK_ALIGN); }

static int count_regions(const packing *packing)
{
    int n = 0;
    for (int c = 0; c < packing->chunks_n; c++)
        n += 2 * packing->chunks[c].trained;
    return n;
}

static uint64_t record_bytes_of(int regions_n)
{
    return pages(sizeof(record_head) + (uint64_t)regions_n * sizeof(record_region) + SLOTS_TEXT_MOST + sizeof(uint64_t));
}

static uint64_t region_bytes(const packing *packing, int chunk, bool states)
{
    return pages(states ? chunk_state_bytes(packing, chunk) : chunk_weight_bytes(packing, chunk));
}

uint64_t slots_bytes(const packing *packing)
{
    uint64_t bytes = DISK_ALIGN + 2 * record_bytes_of(count_regions(packing));
    for (int c = 0; c < packing->chunks_n; c++)
        if (packing->chunks[c].trained)
            bytes += 2 * (region_bytes(packing, c, false) + region_bytes(packing, c, true));
    return bytes;
}

uint64_t slots_layout(const packing *packing)
{
    uint64_t sum =
        sum_bytes((uint64_t)packing->chunk_bytes, (uint64_t)packing->type, packing->optimizer->name, strlen(packing->optimizer->name));
    for (int c = 0; c < packing->chunks_n; c++) {
        const uint64_t of[] = {(uint64_t)c, packing->chunks[c].trained, region_bytes(packing, c, false), region_bytes(packing, c, true)};
        sum = sum_bytes(sum, (uint64_t)packing->chunks_n, of, sizeof of);
    }
    for (int i = 0; i < packing->pieces_n; i++) {
        const piece *piece = &packing->pieces[i];
        const uint64_t of[] = {(uint64_t)piece->param, (uint64_t)piece->row0,   (uint64_t)piece->rows,
                               (uint64_t)piece->chunk, (uint64_t)piece->offset, piece->low};
        sum = sum_bytes(sum, (uint64_t)i, of, sizeof of);
        sum = sum_bytes(sum, (uint64_t)i, piece->slab, sizeof piece->slab);
    }
    return sum;
}

int slots_map_open(slots_map *m, const packing *packing, pt_error *e)
{
    const int n = count_regions(packing);
    *m = (slots_map){.layout = slots_layout(packing), .record_bytes = record_bytes_of(n), .regions_n = n,
                     .of_chunk = malloc(((size_t)packing->chunks_n + 1) * sizeof *m->of_chunk),
                     .regions = malloc(((size_t)n + 1) * sizeof *m->regions)};
    if (!m->of_chunk || !m->regions) {
        slots_map_close(m);
        return pt_fail(e, PT_FAILED, "out of memory for the slots of %d chunks", packing->chunks_n);
    }
    m->file_bytes = DISK_ALIGN + 2 * m->record_bytes;
    for (int c = 0, at = 0; c < packing->chunks_n; c++) {
        m->of_chunk[c] = packing->chunks[c].trained ? at : -1;
        for (int states = 0; states < 2 && packing->chunks[c].trained; states++, at++) {
            m->regions[at] = (slots_region){m->file_bytes, region_bytes(packing, c, states)};
            m->file_bytes += 2 * m->regions[at].bytes;
        }
    }
    return 0;
}

void slots_map_close(slots_map *m)
{
    free(m->of_chunk);
    free(m->regions);
    *m = (slots_map){0};
}

int slots_map_find(const slots_map *m, object_kind kind, int chunk)
{
    if (kind != OBJECT_WEIGHTS && kind != OBJECT_SHARD && kind != OBJECT_STATES)
        return -1;
    return m->of_chunk[chunk] < 0 ? -1 : m->of_chunk[chunk] + (kind == OBJECT_STATES);
}

void slots_count(const schedule_input *in, uint64_t *on_disk, uint64_t *elsewhere)
{
    const packing *packing = in->packing;
    *on_disk = *elsewhere = 0;
    for (int c = 0; c < packing->chunks_n; c++)
        if (packing->chunks[c].trained)
            *(in->plan->chunks[c].placement == TIER_DISK ? on_disk : elsewhere) +=
                region_bytes(packing, c, false) + region_bytes(packing, c, true);
}

uint64_t slots_record_sum(const void *record, uint64_t bytes) { return sum_bytes(COMMIT_MAGIC, bytes, record, bytes); }

/* ---- the file ---- */

static int write_header(slots *s, const schedule_input *in, pt_error *e)
{
    const slots_map *m = &s->map;
    slots_header h = {SLOTS_MAGIC, m->layout, (uint64_t)in->packing->chunk_bytes, (uint64_t)in->shape->slice_rows,
                      (uint64_t)m->regions_n, m->record_bytes, m->file_bytes, 0};
    h.sum = sum_bytes(SLOTS_MAGIC, 0, &h, offsetof(slots_header, sum));
    memset(s->record, 0, m->record_bytes);
    int failed = disk_write(s->channel, slots_record_at(m->record_bytes, 0), s->record, m->record_bytes, e); /* of an earlier run */
    if (!failed)
        failed = disk_write(s->channel, slots_record_at(m->record_bytes, 1), s->record, m->record_bytes, e);
    if (!failed)
        failed = disk_sync(s->file, e);
    memcpy(s->record, &h, sizeof h);
    if (!failed)
        failed = disk_write(s->channel, 0, s->record, DISK_ALIGN, e);
    return failed ? failed : disk_sync(s->file, e);
}

static int open_parts(slots *s, const packing *packing, const disk_options *options, pt_error *e)
{
    int failed = slots_map_open(&s->map, packing, e);
    if (failed)
        return failed;
    const size_t n = (size_t)s->map.regions_n + 1;
    s->committed = malloc(n);
    s->newest = malloc(n);
    s->sums = calloc(n, sizeof *s->sums);
    s->record = aligned_alloc(DISK_ALIGN, s->map.record_bytes);
    if (!s->committed || !s->newest || !s->sums || !s->record)
        return pt_fail(e, PT_FAILED, "out of memory for the slots of %d chunks", packing->chunks_n);
    memset(s->committed, -1, n);
    memset(s->newest, -1, n);
    failed = disk_open_named(s->path, s->map.file_bytes, options, &s->file, e);
    return failed ? failed : disk_channel_open(s->file, &s->channel, e);
}

int slots_open(const char *path, const schedule_input *in, const slots_view *from, const disk_options *options, slots **out,
               pt_error *e)
{
    *out = NULL;
    slots *s = calloc(1, sizeof *s);
    if (!s)
        return pt_fail(e, PT_FAILED, "out of memory");
    snprintf(s->path, sizeof s->path, "%s", path);
    int failed = open_parts(s, in->packing, options, e);
    if (!failed && from)
        slots_view_committed(from, s->committed, s->newest, s->sums, &s->sequence);
    else if (!failed)
        failed = write_header(s, in, e);
    if (failed) {
        slots_close(s);
        return failed;
    }
    *out = s;
    return 0;
}

void slots_close(slots *s)
{
    if (!s)
        return;
    disk_channel_close(s->channel);
    disk_close(s->file);
    slots_map_close(&s->map);
    free(s->committed);
    free(s->newest);
    free(s->sums);
    free(s->record);
    free(s);
}

disk_file *slots_file(slots *s) { return s->file; }
const char *slots_path(const slots *s) { return s->path; }

/* ---- transfers ---- */

bool slots_place(slots *s, bool write, object_kind kind, int chunk, uint64_t *offset, uint64_t **sum)
{
    const int r = s ? slots_map_find(&s->map, kind, chunk) : -1;
    if (r < 0)
        return false;
    if (write)
        s->newest[r] = s->committed[r] == 0;
    const int slot = s->newest[r] > 0;
    *offset = s->map.regions[r].offset + (uint64_t)slot * s->map.regions[r].bytes;
    *sum = write ? &s->sums[r][slot] : NULL;
    return true;
}

int slots_write(slots *s, uint64_t offset, uint64_t at, const void *memory, size_t bytes, uint64_t *sum, pt_error *e)
{
    uint64_t part;
    int failed = disk_write_summed(s->channel, offset + at, memory, bytes, &part, e);
    *sum = at ? *sum + part : part;
    return failed;
}

/* ---- commits ---- */

int slots_commit(slots *s, int64_t step, const char *text, size_t n, pt_error *e)
{
    const size_t regions = (size_t)s->map.regions_n * sizeof(record_region);
    const record_head head = {COMMIT_MAGIC, s->map.layout, s->sequence, (uint64_t)step, n};
    if (n > SLOTS_TEXT_MOST)
        return pt_fail(e, PT_FAILED, "the record of a step takes %zu bytes, more than %d", n, SLOTS_TEXT_MOST);
    char *at = s->record;
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (int r = 0; r < s->map.regions_n; r++, at += sizeof(record_region)) {
        if (s->newest[r] < 0)
            return pt_fail(e, PT_FAILED, "%.400s: region %d of the states was never written", s->path, r);
        const record_region of = {(uint64_t)s->newest[r], s->sums[r][(int)s->newest[r]], s->map.regions[r].bytes};
        memcpy(at, &of, sizeof of);
    }
    memcpy(at, text, n);
    const size_t used = sizeof head + regions + n, whole = pages(used + sizeof(uint64_t));
    const uint64_t sum = slots_record_sum(s->record, used);
    memcpy(s->record + used, &sum, sizeof sum);
    memset(s->record + used + sizeof sum, 0, whole - used - sizeof sum);
    int failed = disk_write(s->channel, slots_record_at(s->map.record_bytes, s->sequence), s->record, whole, e);
    if (!failed)
        failed = disk_sync(s->file, e);
    if (failed)
        return failed;
    s->sequence++;
    memcpy(s->committed, s->newest, (size_t)s->map.regions_n);
    return 0;
}
