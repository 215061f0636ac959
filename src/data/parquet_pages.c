#include "data/parquet_parts.h"

#include <stdlib.h>
#include <zlib.h>

enum { PAGE_DATA, PAGE_INDEX, PAGE_DICTIONARY, PAGE_DATA_2, HEADER_FIRST = 8192, HEADER_MAX = 16 << 20 };

typedef struct page_header {
    int64_t type, unpacked, packed, crc;
    bool has_crc;
    int64_t values, encoding, definition_encoding, repeat_encoding; /* the last two: of version 1 */
    int64_t definition_bytes, repeat_bytes;                        /* of version 2 */
    bool is_packed;                                                /* version 2: the values are compressed */
} page_header;

int parquet_damaged(const parquet_column *c, const char *why, pt_error *e)
{
    const parquet_node *n = c->node;
    return pt_fail(e, PT_FAILED, "%s: column \"%.*s\" is damaged near row %llu: %s: get the file again", c->file->path,
                   (int)(n->name_bytes < 80 ? n->name_bytes : 80), n->name, (unsigned long long)c->file->row + 1, why);
}

/* ---- headers ---- */

static void take_data_header(thrift *t, page_header *h)
{
    unsigned type;
    for (int id = 0; thrift_field(t, &id, &type);)
        switch (id) {
        case 1: h->values = thrift_int(t, type); break;
        case 2: h->encoding = thrift_int(t, type); break;
        case 3: h->definition_encoding = thrift_int(t, type); break;
        case 4: h->repeat_encoding = thrift_int(t, type); break;
        default: thrift_skip(t, type);
        }
}

static void take_dictionary_header(thrift *t, page_header *h)
{
    unsigned type;
    for (int id = 0; thrift_field(t, &id, &type);)
        if (id == 1)
            h->values = thrift_int(t, type);
        else
            thrift_skip(t, type);
}

static void take_data_header_2(thrift *t, page_header *h)
{
    unsigned type;
    for (int id = 0; thrift_field(t, &id, &type);)
        switch (id) {
        case 1: h->values = thrift_int(t, type); break;
        case 4: h->encoding = thrift_int(t, type); break;
        case 5: h->definition_bytes = thrift_int(t, type); break;
        case 6: h->repeat_bytes = thrift_int(t, type); break;
        case 7: h->is_packed = thrift_bool(t, type); break;
        default: thrift_skip(t, type);
        }
}

static void take_header(thrift *t, page_header *h)
{
    unsigned type;
    *h = (page_header){.type = -1, .is_packed = true, .encoding = -1, .definition_encoding = E_RLE, .repeat_encoding = E_RLE};
    for (int id = 0; thrift_field(t, &id, &type);)
        switch (id) {
        case 1: h->type = thrift_int(t, type); break;
        case 2: h->unpacked = thrift_int(t, type); break;
        case 3: h->packed = thrift_int(t, type); break;
        case 4: h->crc = thrift_int(t, type); h->has_crc = true; break;
        case 5: case 7: case 8:
            if (type != THRIFT_STRUCT)
                t->failed = true;
            else
                (id == 5 ? take_data_header : id == 7 ? take_dictionary_header : take_data_header_2)(t, h);
            break;
        default: thrift_skip(t, type);
        }
}

/* Reads n bytes of the column's part of the file into b. */
static int read_part(parquet_column *c, text_buffer *b, size_t n, pt_error *e)
{
    b->n = 0;
    int rc = text_buffer_reserve(b, n + 1, e);
    if (rc == 0)
        rc = parquet_read_at(c->file, b->bytes, n, c->at, e);
    b->n = n;
    return rc;
}

/* A header says nowhere how long it is: its first bytes are read, and more if it does not end in them. */
static int read_header(parquet_column *c, page_header *h, pt_error *e)
{
    for (uint64_t want = HEADER_FIRST;; want *= 8) {
        const uint64_t there = c->end - c->at, n = want < there ? want : there;
        const int rc = read_part(c, &c->packed, (size_t)n, e);
        if (rc < 0)
            return rc;
        thrift t = {.p = (uint8_t *)c->packed.bytes, .end = (uint8_t *)c->packed.bytes + n};
        take_header(&t, h);
        if (t.failed && n < there && want < HEADER_MAX)
            continue;
        if (t.failed || h->packed < 0 || h->unpacked < 0 || h->values < 0)
            return parquet_damaged(c, "a page's header", e);
        c->at += (uint64_t)(t.p - (uint8_t *)c->packed.bytes);
        return 0;
    }
}

static int read_page(parquet_column *c, page_header *h, pt_error *e)
{
    int rc = read_header(c, h, e);
    if (rc < 0)
        return rc;
    if (h->packed > PARQUET_PAGE_MAX || h->unpacked > PARQUET_PAGE_MAX)
        return parquet_damaged(c, "a page of more than 1 GiB", e);
    if ((uint64_t)h->packed > c->end - c->at)
        return parquet_damaged(c, "a page goes beyond the end of the column", e);
    rc = read_part(c, &c->packed, (size_t)h->packed, e);
    c->at += (uint64_t)h->packed;
    c->file->read += (uint64_t)h->packed;
    if (rc == 0 && h->has_crc && (uint32_t)h->crc != crc32(0, (unsigned char *)c->packed.bytes, (uInt)c->packed.n))
        return parquet_damaged(c, "the checksum of a page is wrong", e);
    return rc;
}

/* Sets `out` to the page's bytes from `skip` on as they are, and then the unpacked rest. */
static int unpack_page(parquet_column *c, const page_header *h, size_t skip, bool packed, text_buffer *out, pt_error *e)
{
    const size_t n = (size_t)h->unpacked;
    if (skip > n || skip > c->packed.n)
        return parquet_damaged(c, "the levels of a page", e);
    out->n = 0;
    int rc = text_buffer_reserve(out, n + 1, e);
    if (rc < 0)
        return rc;
    memcpy(out->bytes, c->packed.bytes, skip);
    out->n = n;
    const block_packing codec = packed ? c->codec : BLOCK_PLAIN;
    const char *why = unpack_block(codec, c->packed.bytes + skip, c->packed.n - skip, out->bytes + skip, n - skip);
    return why ? parquet_damaged(c, why, e) : 0;
}

/* ---- pages ---- */

static unsigned bits_for(unsigned most)
{
    unsigned bits = 0;
    while (most >> bits)
        bits++;
    return bits;
}

/* The levels of a page of version 1 begin with their length. Advances *p. */
static bool take_levels(bit_runs *r, unsigned most, const uint8_t **p, const uint8_t *end)
{
    uint32_t n;
    *r = (bit_runs){.width = bits_for(most)};
    if (!most)
        return true;
    if (end - *p < 4 || (memcpy(&n, *p, 4), n > (size_t)(end - *p - 4)))
        return false;
    r->p = *p + 4;
    r->end = *p += 4 + n;
    return true;
}

static int begin_values(parquet_column *c, const page_header *h, const uint8_t *p, const uint8_t *end, pt_error *e)
{
    const char *why = parquet_values_open(&c->values, (parquet_encoding)h->encoding, p, (size_t)(end - p));
    c->page_left = (uint64_t)h->values;
    c->left -= (uint64_t)h->values;
    return why ? parquet_damaged(c, why, e) : 0;
}

static int begin_page(parquet_column *c, const page_header *h, pt_error *e)
{
    const parquet_node *n = c->node;
    int rc = unpack_page(c, h, 0, true, &c->page, e);
    if (rc < 0)
        return rc;
    const uint8_t *p = (uint8_t *)c->page.bytes, *end = p + c->page.n;
    if ((n->repeats && h->repeat_encoding != E_RLE) || (n->definition && h->definition_encoding != E_RLE))
        return parquet_damaged(c, "levels in an encoding that this reader does not know", e);
    if (!take_levels(&c->repeats, n->repeats, &p, end) || !take_levels(&c->definitions, n->definition, &p, end))
        return parquet_damaged(c, "the levels of a page", e);
    return begin_values(c, h, p, end, e);
}

static int begin_page_2(parquet_column *c, const page_header *h, pt_error *e)
{
    const uint64_t repeats = (uint64_t)h->repeat_bytes, definitions = (uint64_t)h->definition_bytes;
    if (h->repeat_bytes < 0 || h->definition_bytes < 0 || repeats > c->packed.n || definitions > c->packed.n - repeats)
        return parquet_damaged(c, "the levels of a page", e);
    int rc = unpack_page(c, h, (size_t)(repeats + definitions), h->is_packed, &c->page, e);
    if (rc < 0)
        return rc;
    const uint8_t *p = (uint8_t *)c->page.bytes, *end = p + c->page.n;
    c->repeats = (bit_runs){.width = bits_for(c->node->repeats), .p = p, .end = p + repeats};
    c->definitions = (bit_runs){.width = bits_for(c->node->definition), .p = p + repeats, .end = p + repeats + definitions};
    return begin_values(c, h, p + repeats + definitions, end, e);
}

static int begin_dictionary(parquet_column *c, const page_header *h, pt_error *e)
{
    int rc = unpack_page(c, h, 0, true, &c->dictionary.bytes, e);
    if (rc < 0)
        return rc;
    const char *why = parquet_dictionary_open(&c->dictionary, c->node, (uint64_t)h->values);
    return why ? parquet_damaged(c, why, e) : 0;
}

static int next_page(parquet_column *c, pt_error *e)
{
    page_header h;
    if (c->at == c->end)
        return parquet_damaged(c, "it has fewer values than it should", e);
    const int rc = read_page(c, &h, e);
    if (rc < 0 || h.type == PAGE_INDEX)
        return rc;
    if (h.type == PAGE_DICTIONARY)
        return begin_dictionary(c, &h, e);
    if (h.type != PAGE_DATA && h.type != PAGE_DATA_2)
        return parquet_damaged(c, "a page of a type that this reader does not know", e);
    if ((uint64_t)h.values > c->left)
        return parquet_damaged(c, "it has more values than it should", e);
    return h.type == PAGE_DATA ? begin_page(c, &h, e) : begin_page_2(c, &h, e);
}

static bool take_level(bit_runs *r, unsigned most, uint32_t *level)
{
    *level = 0;
    return !most || (bit_runs_next(r, level) && *level <= most);
}

int parquet_column_next(parquet_column *c, pt_error *e)
{
    c->values.node = c->node;
    c->values.dictionary = &c->dictionary;
    while (!c->page_left) {
        if (!c->left) {
            c->ended = true;
            return 0;
        }
        const int rc = next_page(c, e);
        if (rc < 0)
            return rc;
    }
    c->page_left--;
    if (!take_level(&c->repeats, c->node->repeats, &c->repeat) || !take_level(&c->definitions, c->node->definition, &c->definition))
        return parquet_damaged(c, "the levels of a page", e);
    return 0;
}

int parquet_column_value(parquet_column *c, byte_slice *out, pt_error *e)
{
    const char *why = parquet_value(&c->values, out);
    return why ? parquet_damaged(c, why, e) : 0;
}

void parquet_column_free(parquet_column *c)
{
    text_buffer_free(&c->packed);
    text_buffer_free(&c->page);
    text_buffer_free(&c->values.last);
    parquet_dictionary_free(&c->dictionary);
}
