#include "data/arrow_parts.h"

#include "data/unpack.h"

#include <stdlib.h>

enum { NODE = 16, BUFFER = 16, COUNT = 8 };

/* What has not been taken of a record batch. */
typedef struct parts {
    const arrow_table *t;
    arrow_batch *b;
    flat *f;
    size_t nodes, nodes_left, buffers, buffers_left, counts, counts_left; /* counts: of the buffers of views */
    bool packed;
    block_packing codec;
} parts;

static int damaged(const parts *p, pt_error *e) { return arrow_damaged(p->t, "a record batch", e); }

/* What n bytes can stand for: a byte of LZ4 adds 255 to a length, and a block of Zstandard is 4 bytes or more for up to 128 KiB. */
static uint64_t most_unpacked(block_packing codec, uint64_t n) { return codec == BLOCK_ZSTD ? (n / 4 + 1) << 17 : 255 * (n + 1); }

static int check_room(const parts *p, uint64_t size, pt_error *e)
{
    const arrow_batch *b = p->b;
    const uint64_t all = b->unpacked_bytes + size, packed = b->body.n;
    if (all <= b->room && (all <= ARROW_UNPACKED_FREE || all / ARROW_UNPACKED_TIMES <= packed))
        return 0;
    return pt_fail(e, PT_FAILED,
                   "%s: the compressed batch near row %llu, %llu bytes in the file, unpacks to more than %llu MiB: write the file with "
                   "fewer rows in a batch, or uncompressed", p->t->path, (unsigned long long)p->t->row + 1, (unsigned long long)packed,
                   (unsigned long long)((all <= b->room ? ARROW_UNPACKED_FREE : b->room) >> 20));
}

static int unpack_buffer(parts *p, arrow_slice *s, pt_error *e)
{
    int64_t size;
    if (!s->n)
        return 0;
    if (s->n < 8)
        return arrow_damaged(p->t, "a buffer", e);
    memcpy(&size, s->p, 8);
    *s = (arrow_slice){s->p + 8, s->n - 8};
    if (size == -1) /* as it is */
        return 0;
    if (size < 0 || size > ARROW_BUFFER_MAX || (uint64_t)size > most_unpacked(p->codec, s->n))
        return arrow_damaged(p->t, "a buffer", e);
    int rc = check_room(p, (uint64_t)size, e);
    if (rc < 0)
        return rc;
    text_buffer *out = &p->b->unpacked[p->b->unpacked_n++];
    rc = text_buffer_reserve(out, (size_t)size + 1, e);
    if (rc < 0)
        return rc;
    p->b->unpacked_bytes += (uint64_t)size;
    if (unpack_block(p->codec, s->p, (size_t)s->n, out->bytes, (size_t)size))
        return arrow_damaged(p->t, "compressed data", e);
    *s = (arrow_slice){(uint8_t *)out->bytes, (uint64_t)size};
    return 0;
}

static int take_buffer(parts *p, arrow_slice *s, pt_error *e)
{
    if (!p->buffers_left)
        return damaged(p, e);
    const uint64_t at = flat_at(p->f, p->buffers, 8), n = flat_at(p->f, p->buffers + 8, 8);
    p->buffers += BUFFER;
    p->buffers_left--;
    if (at > p->b->body.n || n > p->b->body.n - at)
        return damaged(p, e);
    *s = (arrow_slice){(uint8_t *)p->b->body.bytes + at, n};
    return p->packed ? unpack_buffer(p, s, e) : 0;
}

static int take_views(parts *p, arrow_field *a, pt_error *e)
{
    if (!p->counts_left)
        return damaged(p, e);
    const uint64_t n = flat_at(p->f, p->counts, COUNT);
    p->counts += COUNT;
    p->counts_left--;
    if (n > p->buffers_left)
        return damaged(p, e);
    a->views = p->b->views + p->b->views_n;
    a->views_n = (size_t)n;
    int rc = 0;
    for (uint64_t i = 0; i < n && rc == 0; i++)
        rc = take_buffer(p, &p->b->views[p->b->views_n++], e);
    return rc;
}

static bool has_offsets(arrow_kind kind) { return kind == A_TEXT || kind == A_BINARY || kind == A_LIST || kind == A_LIST_VIEW; }
static bool is_view(arrow_kind kind) { return kind == A_TEXT_VIEW || kind == A_BINARY_VIEW; }
static bool has_data(arrow_kind kind)
{
    return kind != A_NULL && (kind < A_LIST || is_view(kind) || kind == A_LIST_VIEW || kind == A_INDEX);
}

/* Whether the buffers have what `length` values need. Products: both are below 2^32 and 2^31. */
static bool is_enough(const arrow_field *a)
{
    const uint64_t n = a->length;
    if (n > UINT32_MAX || (a->valid.n && a->valid.n < (n + 7) / 8))
        return false;
    if (has_offsets(a->kind) && n && a->offsets.n / a->width < n + (a->kind != A_LIST_VIEW))
        return false;
    if (a->kind == A_BOOL)
        return a->data.n >= (n + 7) / 8;
    return a->kind == A_TEXT || a->kind == A_BINARY || !has_data(a->kind) || a->data.n >= n * (is_view(a->kind) ? ARROW_VIEW : a->width);
}

static int take_array(parts *p, arrow_field *a, pt_error *e);

/* An A_INDEX has its children in the dictionary. */
static int take_children(parts *p, arrow_field *a, pt_error *e)
{
    const uint64_t need = a->kind == A_STRUCT ? a->length : a->kind == A_FIXED_LIST ? a->length * a->width : 0;
    arrow_field *child = a + 1;
    int rc = 0;
    for (uint32_t k = 0; a->kind != A_INDEX && k < a->children && rc == 0; k++, child += child->size) {
        rc = take_array(p, child, e);
        if (rc == 0 && child->length < need)
            rc = damaged(p, e);
    }
    return rc;
}

static int take_array(parts *p, arrow_field *a, pt_error *e)
{
    const bool validity = a->kind != A_NULL && a->kind != A_RUNS;
    int rc = 0;
    if (!p->nodes_left)
        return damaged(p, e);
    a->length = flat_at(p->f, p->nodes, 8);
    const uint64_t nulls = flat_at(p->f, p->nodes + 8, 8);
    p->nodes += NODE;
    p->nodes_left--;
    a->valid = a->offsets = a->data = (arrow_slice){0};
    if (validity)
        rc = take_buffer(p, &a->valid, e);
    if (!nulls)
        a->valid.n = 0;
    if (rc == 0 && has_offsets(a->kind))
        rc = take_buffer(p, &a->offsets, e);
    if (rc == 0 && has_data(a->kind))
        rc = take_buffer(p, &a->data, e);
    if (rc == 0 && is_view(a->kind))
        rc = take_views(p, a, e);
    if (rc == 0 && (!is_enough(a) || (nulls && a->length && validity && !a->valid.n)))
        rc = damaged(p, e);
    return rc < 0 ? rc : take_children(p, a, e);
}

static int open_codec(parts *p, size_t packing, pt_error *e)
{
    const uint64_t codec = packing ? flat_number(p->f, packing, 0, 1, 0) : 0, method = packing ? flat_number(p->f, packing, 1, 1, 0) : 0;
    p->packed = packing != 0;
    p->codec = codec ? BLOCK_ZSTD : BLOCK_LZ4_FRAME;
    if (codec > 1 || method)
        return pt_fail(e, PT_FAILED, "%s: this Arrow file is compressed by an unknown codec: write it by LZ4, Zstandard, or uncompressed",
                       p->t->path);
    return 0;
}

void arrow_batch_free(arrow_batch *b)
{
    for (size_t i = 0; i < b->unpacked_n; i++)
        text_buffer_free(&b->unpacked[i]);
    free(b->unpacked);
    free(b->views);
    text_buffer_free(&b->body);
    b->unpacked = NULL;
    b->views = NULL;
    b->unpacked_n = b->views_n = 0;
}

int arrow_take_batch(const arrow_table *table, flat *f, size_t at, arrow_batch *b, pt_error *e)
{
    parts p = {.t = table, .b = b, .f = f};
    b->length = flat_number(f, at, 0, 8, 0);
    p.nodes = flat_vector(f, at, 1, NODE, &p.nodes_left);
    p.buffers = flat_vector(f, at, 2, BUFFER, &p.buffers_left);
    p.counts = flat_vector(f, at, 4, COUNT, &p.counts_left);
    int rc = open_codec(&p, flat_table(f, at, 3), e);
    if (f->failed)
        return damaged(&p, e);
    if (rc < 0)
        return rc;
    b->unpacked = calloc(p.buffers_left + 1, sizeof *b->unpacked);
    b->views = calloc(p.buffers_left + 1, sizeof *b->views);
    if (!b->unpacked || !b->views)
        return pt_fail(e, PT_FAILED, "out of memory: the buffers of %s", table->path);
    arrow_field *whole = b->fields, *column = whole + 1;
    for (uint32_t k = 0; k < whole->children && rc == 0; k++, column += column->size) {
        rc = take_array(&p, column, e);
        if (rc == 0 && column->length < b->length)
            rc = damaged(&p, e);
    }
    return rc;
}
