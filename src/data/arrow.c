#include "data/arrow_parts.h"

#include "base/json.h"
#include "data/unpack.h"
#include "io/files.h"

#include <stdlib.h>

enum { SCHEMA = 1, DICTIONARY, BATCH, METADATA_MAX = 256 << 20, NODE = 16, BUFFER = 16 };

typedef struct reader {
    arrow_table table;
    int fd;
    uint64_t at, size;         /* the next byte of the file, and its end */
    text_buffer schema, metadata, body;
    text_buffer *unpacked; size_t unpacked_n; /* buffers of the batch that were compressed */
} reader;

/* The parts of a record batch that have not been taken. */
typedef struct batch {
    flat *f;
    size_t nodes, nodes_left, buffers, buffers_left;
    bool packed;
} batch;

int arrow_damaged(const arrow_table *t, const char *what, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: %s of this Arrow file is damaged near row %llu: get the file again", t->path, what,
                   (unsigned long long)t->row + 1);
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

/* ---- the buffers of a batch ---- */

static int unpack_buffer(reader *r, arrow_slice *s, pt_error *e)
{
    int64_t size;
    if (!s->n)
        return 0;
    if (s->n < 8)
        return arrow_damaged(&r->table, "a buffer", e);
    memcpy(&size, s->p, 8);
    *s = (arrow_slice){s->p + 8, s->n - 8};
    if (size == -1) /* as it is */
        return 0;
    if (size < 0 || size > ARROW_BUFFER_MAX)
        return arrow_damaged(&r->table, "a buffer", e);
    text_buffer *b = &r->unpacked[r->unpacked_n++];
    const int rc = text_buffer_reserve(b, (size_t)size + 1, e);
    if (rc < 0)
        return rc;
    if (unpack_block(BLOCK_ZSTD, s->p, (size_t)s->n, b->bytes, (size_t)size))
        return arrow_damaged(&r->table, "compressed data", e);
    *s = (arrow_slice){(uint8_t *)b->bytes, (uint64_t)size};
    return 0;
}

/* The next buffer; none: PT_FAILED. */
static int take_buffer(reader *r, batch *b, arrow_slice *s, pt_error *e)
{
    if (!b->buffers_left)
        return arrow_damaged(&r->table, "a record batch", e);
    const uint64_t at = flat_at(b->f, b->buffers, 8), n = flat_at(b->f, b->buffers + 8, 8);
    b->buffers += BUFFER;
    b->buffers_left--;
    if (at > r->body.n || n > r->body.n - at)
        return arrow_damaged(&r->table, "a record batch", e);
    *s = (arrow_slice){(uint8_t *)r->body.bytes + at, n};
    return b->packed ? unpack_buffer(r, s, e) : 0;
}

/* Whether the buffers have what `length` values need. Products: both are below 2^32 and 2^31. */
static bool is_enough(const arrow_field *a)
{
    const uint64_t n = a->length;
    const bool offsets = a->kind == A_TEXT || a->kind == A_BINARY || a->kind == A_LIST;
    if (n > UINT32_MAX || (a->valid.n && a->valid.n < (n + 7) / 8))
        return false;
    if (offsets)
        return !n || a->offsets.n / a->width >= n + 1;
    return a->kind == A_BOOL ? a->data.n >= (n + 7) / 8 : a->kind > A_HIDDEN || a->kind == A_NULL || a->data.n >= n * a->width;
}

static int take_array(reader *r, batch *b, arrow_field *a, pt_error *e)
{
    int rc = 0;
    if (!b->nodes_left)
        return arrow_damaged(&r->table, "a record batch", e);
    a->length = flat_at(b->f, b->nodes, 8);
    const uint64_t nulls = flat_at(b->f, b->nodes + 8, 8);
    b->nodes += NODE;
    b->nodes_left--;
    a->valid = a->offsets = a->data = (arrow_slice){0};
    if (a->kind != A_NULL)
        rc = take_buffer(r, b, &a->valid, e);
    if (!nulls)
        a->valid.n = 0;
    if (rc == 0 && (a->kind == A_TEXT || a->kind == A_BINARY || a->kind == A_LIST))
        rc = take_buffer(r, b, &a->offsets, e);
    if (rc == 0 && a->kind != A_NULL && a->kind < A_LIST)
        rc = take_buffer(r, b, &a->data, e);
    if (rc == 0 && (!is_enough(a) || (nulls && a->length && a->kind != A_NULL && !a->valid.n)))
        rc = arrow_damaged(&r->table, "a record batch", e);
    const arrow_field *parent = a;
    arrow_field *child = a + 1;
    for (uint32_t k = 0; k < parent->children && rc == 0; k++, child += child->size) {
        rc = take_array(r, b, child, e);
        const uint64_t need = a->kind == A_STRUCT ? a->length : a->kind == A_FIXED_LIST ? a->length * a->width : 0;
        if (rc == 0 && child->length < need)
            rc = arrow_damaged(&r->table, "a record batch", e);
    }
    return rc;
}

static void free_unpacked(reader *r)
{
    for (size_t i = 0; i < r->unpacked_n; i++)
        text_buffer_free(&r->unpacked[i]);
    free(r->unpacked);
    r->unpacked = NULL;
    r->unpacked_n = 0;
}

static int take_batch(reader *r, flat *f, size_t at, uint64_t *rows, pt_error *e)
{
    batch b = {.f = f};
    const size_t packing = flat_table(f, at, 3);
    *rows = flat_number(f, at, 0, 8, 0);
    b.nodes = flat_vector(f, at, 1, NODE, &b.nodes_left);
    b.buffers = flat_vector(f, at, 2, BUFFER, &b.buffers_left);
    b.packed = packing != 0;
    const uint64_t codec = packing ? flat_number(f, packing, 0, 1, 0) : 1;
    if (f->failed || !r->table.fields)
        return arrow_damaged(&r->table, "a record batch", e);
    if (codec != 1)
        return pt_fail(e, PT_FAILED, "%s: this Arrow file is compressed by LZ4: write it by Zstandard, or uncompressed", r->table.path);
    free_unpacked(r);
    r->unpacked = calloc(b.buffers_left + 1, sizeof *r->unpacked);
    if (!r->unpacked)
        return pt_fail(e, PT_FAILED, "out of memory: the buffers of %s", r->table.path);
    int rc = 0;
    arrow_field *whole = r->table.fields, *column = whole + 1;
    for (uint32_t k = 0; k < whole->children && rc == 0; k++, column += column->size) {
        rc = take_array(r, &b, column, e);
        if (rc == 0 && column->length < *rows)
            rc = arrow_damaged(&r->table, "a record batch", e);
    }
    return rc;
}

static int give_batch(reader *r, flat *f, size_t at, const row_sink *sink, pt_error *e)
{
    uint64_t rows;
    int rc = take_batch(r, f, at, &rows, e);
    for (uint64_t i = 0; i < rows && rc == 0; i++) {
        rc = arrow_write_row(&r->table, i, e);
        if (rc == 0)
            rc = sink->row(sink->arg, r->table.row + 1, &r->table.json, r->at, e);
        r->table.row++;
    }
    return rc;
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
    if ((rc = read_part(r, &r->body, body, e)) < 0)
        return rc;
    return type == SCHEMA  ? arrow_take_schema(&r->table, &f, header, e)
           : type == BATCH ? give_batch(r, &f, header, sink, e) : arrow_damaged(&r->table, "a message", e);
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
    free_unpacked(&r);
    text_buffer_free(&r.schema);
    text_buffer_free(&r.metadata);
    text_buffer_free(&r.body);
    text_buffer_free(&r.table.json);
    free(r.table.fields);
    return rc;
}
