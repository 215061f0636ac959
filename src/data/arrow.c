#include "data/arrow_parts.h"

#include "base/json.h"
#include "io/files.h"

#include <stdlib.h>

enum { SCHEMA = 1, DICTIONARY, BATCH, METADATA_MAX = 256 << 20 };

typedef struct reader {
    arrow_table table;
    int fd;
    uint64_t at, size;         /* the next byte of the file, and its end */
    text_buffer schema, metadata;
    arrow_batch batch;
} reader;

int arrow_damaged(const arrow_table *table, const char *what, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: %s of this Arrow file is damaged near row %llu: get the file again", table->path, what,
                   (unsigned long long)table->row + 1);
}

static int cut_off(const reader *r, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: this Arrow file ends too early, at byte %llu: it is cut off: get it again", r->table.path,
                   (unsigned long long)r->size);
}

static int read_part(reader *r, text_buffer *b, uint64_t n, pt_error *e)
{
    if (n > r->size - r->at)
        return cut_off(r, e);
    b->n = 0;
    int rc = text_buffer_reserve(b, (size_t)n + 1, e);
    if (rc == 0)
        rc = fd_pread_all(r->fd, b->bytes, (size_t)n, r->at, r->table.path, e);
    b->n = (size_t)n;
    r->at += n;
    return rc;
}

/* ---- batches ---- */

static int give_batch(reader *r, flat *f, size_t at, uint64_t body, const row_sink *sink, pt_error *e)
{
    arrow_batch *b = &r->batch;
    text_buffer kept = b->body;
    b->body = (text_buffer){0};
    arrow_batch_free(b);
    *b = (arrow_batch){.fields = r->table.fields, .body = kept, .room = ARROW_UNPACKED_MAX};
    int rc = read_part(r, &b->body, body, e);
    if (rc == 0)
        rc = arrow_take_batch(&r->table, f, at, b, e);
    for (uint64_t i = 0; i < b->length && rc == 0; i++) {
        rc = arrow_write_row(&r->table, i, e);
        if (rc == 0)
            rc = sink->row(sink->arg, r->table.row + 1, &r->table.json, r->at, e);
        r->table.row++;
    }
    return rc;
}

static void drop_batches(arrow_dictionary *d)
{
    for (size_t i = 0; i < d->batches_n; i++) {
        arrow_batch_free(&d->batches[i]);
        free(d->batches[i].fields);
    }
    free(d->batches);
    d->batches = NULL;
    d->batches_n = 0;
}

/* One more batch of a dictionary, a struct of its values alone. */
static arrow_batch *add_batch(arrow_dictionary *d)
{
    arrow_batch *list = realloc(d->batches, (d->batches_n + 1) * sizeof *list);
    if (!list)
        return NULL;
    d->batches = list;
    arrow_batch *b = &list[d->batches_n], *last = d->batches_n ? b - 1 : NULL;
    *b = (arrow_batch){.fields = calloc(1 + d->values->size, sizeof *b->fields), .first = last ? last->first + last->length : 0};
    if (!b->fields)
        return NULL;
    b->fields[0] = (arrow_field){.name = "", .kind = A_STRUCT, .children = 1, .size = 1 + d->values->size};
    memcpy(b->fields + 1, d->values, d->values->size * sizeof *b->fields);
    d->batches_n++;
    return b;
}

/* What all dictionaries may still unpack to. */
static uint64_t room_of_dictionaries(const arrow_table *table)
{
    uint64_t room = ARROW_UNPACKED_MAX;
    for (size_t i = 0; i < table->dictionaries_n; i++)
        for (size_t k = 0; k < table->dictionaries[i].batches_n; k++)
            room -= table->dictionaries[i].batches[k].unpacked_bytes;
    return room;
}

/* A dictionary: what it had before is replaced, unless this is added. */
static int take_dictionary(reader *r, flat *f, size_t at, uint64_t body, pt_error *e)
{
    const uint64_t id = flat_number(f, at, 0, 8, 0);
    const bool added = flat_number(f, at, 2, 1, 0);
    const size_t data = flat_table(f, at, 1);
    size_t i = 0;
    while (i < r->table.dictionaries_n && r->table.dictionaries[i].id != id)
        i++;
    if (f->failed || !data || i == r->table.dictionaries_n)
        return arrow_damaged(&r->table, "a dictionary", e);
    arrow_dictionary *d = &r->table.dictionaries[i];
    if (!added)
        drop_batches(d);
    const uint64_t room = room_of_dictionaries(&r->table);
    arrow_batch *b = add_batch(d);
    if (!b)
        return pt_fail(e, PT_FAILED, "out of memory: a dictionary of %s", r->table.path);
    b->room = room;
    const int rc = read_part(r, &b->body, body, e);
    return rc < 0 ? rc : arrow_take_batch(&r->table, f, data, b, e);
}

/* ---- messages ---- */

/* The size of the next message's metadata; 0: the end. */
static int next_size(reader *r, uint32_t *n, pt_error *e)
{
    text_buffer *b = &r->metadata;
    int rc = read_part(r, b, 4, e);
    if (rc == 0 && !memcmp(b->bytes, "\xff\xff\xff\xff", 4)) /* before version 0.15 there was no such mark */
        rc = read_part(r, b, 4, e);
    if (rc == 0)
        memcpy(n, b->bytes, 4);
    if (rc == 0 && *n > METADATA_MAX)
        rc = arrow_damaged(&r->table, "a message", e);
    return rc;
}

/* *more: it was not the end. */
static int read_message(reader *r, const row_sink *sink, bool *more, pt_error *e)
{
    uint32_t n;
    int rc = next_size(r, &n, e);
    *more = rc == 0 && n;
    if (!*more)
        return rc;
    text_buffer *metadata = r->table.fields ? &r->metadata : &r->schema;
    if ((rc = read_part(r, metadata, n, e)) < 0)
        return rc;
    flat f = {.p = (uint8_t *)metadata->bytes, .n = metadata->n};
    const size_t message = flat_follow(&f, 0);
    const uint64_t type = flat_number(&f, message, 1, 1, 0), body = flat_number(&f, message, 3, 8, 0);
    const size_t header = flat_table(&f, message, 2);
    if (f.failed || !header)
        return arrow_damaged(&r->table, "a message", e);
    if (type == SCHEMA && !body)
        return arrow_take_schema(&r->table, &f, header, e);
    if (type == DICTIONARY && r->table.fields)
        return take_dictionary(r, &f, header, body, e);
    return type == BATCH && r->table.fields ? give_batch(r, &f, header, body, sink, e) : arrow_damaged(&r->table, "a message", e);
}

/* A file is a stream between two marks. */
static int skip_mark(reader *r, pt_error *e)
{
    char begin[128] = "", end[6];
    struct stat st;
    if (fstat(r->fd, &st) < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot examine this file", r->table.path);
    r->size = (uint64_t)st.st_size;
    const size_t n = r->size < sizeof begin ? (size_t)r->size : sizeof begin;
    int rc = fd_pread_all(r->fd, begin, n, 0, r->table.path, e);
    if (rc < 0)
        return rc;
    if (text_is_lfs_pointer(begin, n))
        return pt_fail(e, PT_FAILED, LFS_POINTER_TEXT, r->table.path);
    if (n < 14 || memcmp(begin, "ARROW1", 6))
        return 0;
    rc = fd_pread_all(r->fd, end, 6, r->size - 6, r->table.path, e);
    if (rc == 0 && memcmp(end, "ARROW1", 6))
        return cut_off(r, e);
    r->at = 8;
    return rc;
}

int arrow_read(int fd, const char *path, const row_sink *sink, pt_error *e)
{
    reader r = {.table.path = path, .fd = fd};
    bool more = true;
    int rc = skip_mark(&r, e);
    while (rc == 0 && more)
        rc = read_message(&r, sink, &more, e);
    if (rc == 0 && !r.table.fields)
        rc = arrow_damaged(&r.table, "the schema", e);
    arrow_batch_free(&r.batch);
    for (size_t i = 0; i < r.table.dictionaries_n; i++)
        drop_batches(&r.table.dictionaries[i]);
    free(r.table.dictionaries);
    text_buffer_free(&r.schema);
    text_buffer_free(&r.metadata);
    text_buffer_free(&r.table.json);
    free(r.table.fields);
    return rc;
}
