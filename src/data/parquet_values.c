#include "data/parquet_parts.h"

#include "data/documents.h"

#include <stdlib.h>

/* `width` bits (up to 64) from the bit `at` on, the lowest first. The bytes must be there. */
static uint64_t bits_at(const uint8_t *p, uint64_t at, unsigned width)
{
    uint64_t value = 0;
    const uint8_t *byte = p + at / 8;
    unsigned have = 0, skip = (unsigned)(at % 8);
    while (have < width) {
        value |= (uint64_t)(*byte++ >> skip) << have;
        have += 8 - skip;
        skip = 0;
    }
    return width < 64 ? value & ((UINT64_C(1) << width) - 1) : value;
}

/* ---- runs ---- */

static bool varint(const uint8_t **p, const uint8_t *end, uint64_t *out)
{
    thrift t = {.p = *p, .end = end};
    *out = thrift_varint(&t);
    *p = t.p;
    return !t.failed;
}

static bool begin_run(bit_runs *r)
{
    uint64_t header;
    if (!varint(&r->p, r->end, &header))
        return false;
    r->packed = header & 1;
    r->run = r->packed ? header >> 1 << 3 : header >> 1;
    if (header >> 1 > UINT32_MAX)
        return false;
    if (!r->packed) {
        const size_t n = (r->width + 7) / 8;
        if ((size_t)(r->end - r->p) < n)
            return false;
        r->value = (uint32_t)bits_at(r->p, 0, r->width);
        r->p += n;
        return true;
    }
    const uint64_t bytes = (header >> 1) * r->width, there = (uint64_t)(r->end - r->p) < bytes ? (uint64_t)(r->end - r->p) : bytes;
    if (r->width && r->run > there * 8 / r->width) /* some writers cut the last group off */
        r->run = there * 8 / r->width;
    r->from = r->p;
    r->bit = 0;
    r->p += there;
    return true;
}

bool bit_runs_next(bit_runs *r, uint32_t *value)
{
    while (!r->run)
        if (r->p == r->end || !begin_run(r))
            return false;
    r->run--;
    *value = r->packed ? (uint32_t)bits_at(r->from, r->bit, r->width) : r->value;
    r->bit += r->width;
    return true;
}

/* ---- deltas ---- */

static int64_t zigzag(uint64_t v) { return (int64_t)(v >> 1 ^ -(v & 1)); }

delta_run delta_open(const uint8_t *p, const uint8_t *end)
{
    delta_run d = {.p = p, .end = end};
    uint64_t block, first;
    d.failed = !varint(&d.p, end, &block) || !varint(&d.p, end, &d.miniblocks) || !varint(&d.p, end, &d.left) || !varint(&d.p, end, &first);
    d.failed = d.failed || block > 1 << 24 || !d.miniblocks || d.miniblocks > 4096 || block % d.miniblocks || block / d.miniblocks % 8 ||
               !block || d.left > UINT32_MAX;
    d.value = d.failed ? 0 : zigzag(first);
    d.per_miniblock = d.failed ? 0 : block / d.miniblocks;
    d.miniblock = d.miniblocks;
    return d;
}

static bool begin_miniblock(delta_run *d)
{
    uint64_t least;
    if (d->miniblock == d->miniblocks) {
        if (!varint(&d->p, d->end, &least) || (uint64_t)(d->end - d->p) < d->miniblocks)
            return false;
        d->least = zigzag(least);
        d->widths = d->p;
        d->p += d->miniblocks;
        d->miniblock = 0;
    }
    const uint64_t width = d->widths[d->miniblock++], bytes = d->per_miniblock / 8 * width;
    if (width > 64 || (uint64_t)(d->end - d->p) < bytes)
        return false;
    d->bits = d->p;
    d->bit = 0;
    d->p += bytes;
    d->in_miniblock = d->per_miniblock;
    return true;
}

bool delta_next(delta_run *d, int64_t *value)
{
    if (d->failed || !d->left)
        return false;
    d->left--;
    if (d->begun) {
        if (!d->in_miniblock && !begin_miniblock(d)) {
            d->failed = true;
            return false;
        }
        const unsigned width = d->widths[d->miniblock - 1];
        d->value = (int64_t)((uint64_t)d->value + (uint64_t)d->least + bits_at(d->bits, d->bit, width));
        d->bit += width;
        d->in_miniblock--;
    }
    d->begun = true;
    *value = d->value;
    return true;
}

const uint8_t *delta_end(delta_run d)
{
    int64_t value;
    while (delta_next(&d, &value))
        ;
    return d.failed ? NULL : d.p;
}

/* ---- values ---- */

/* The bytes of a value of fixed width; 0: of P_BYTES and P_GROUP. */
static uint32_t width_of(const parquet_node *n)
{
    static const uint32_t widths[] = {[P_BOOLEAN] = 1, [P_INT32] = 4, [P_INT64] = 8, [P_INT96] = 12, [P_FLOAT] = 4, [P_DOUBLE] = 8};
    return n->type == P_FIXED ? n->width : n->type < P_BYTES ? widths[n->type] : 0;
}

static const char MISFIT[] = "an encoding that its type does not have";
static const char SHORT[] = "a page has fewer values than it should";

static const char *open_deltas(parquet_values *v)
{
    v->numbers = delta_open(v->p, v->end);
    if (v->encoding == E_DELTA)
        return v->numbers.failed ? SHORT : NULL;
    const uint8_t *next = v->encoding == E_DELTA_BYTES ? delta_end(v->numbers) : v->p;
    v->lengths = next ? delta_open(next, v->end) : (delta_run){.failed = true};
    v->p = next ? delta_end(v->lengths) : NULL;
    v->last.n = 0;
    return v->p ? NULL : "a page's lengths";
}

/* Runs behind their length in four bytes. */
static const char *open_booleans(parquet_values *v)
{
    uint32_t n;
    if (v->end - v->p < 4 || (memcpy(&n, v->p, 4), n > (size_t)(v->end - v->p - 4)))
        return SHORT;
    v->runs = (bit_runs){.p = v->p + 4, .end = v->p + 4 + n, .width = 1};
    return NULL;
}

static const char *open_split(parquet_values *v)
{
    const uint32_t width = width_of(v->node);
    if (width > sizeof v->number)
        return "an encoding for wider values than this reader knows";
    v->stride = (uint64_t)(v->end - v->p) / width; /* nulls have no values */
    return NULL;
}

static const char *open_indices(parquet_values *v)
{
    const unsigned width = v->p < v->end ? *v->p++ : 0; /* a page of nulls may be empty */
    if (!v->dictionary->bytes.n && !v->dictionary->n && v->p < v->end)
        return "a page refers to a dictionary, but there is none";
    v->runs = (bit_runs){.p = v->p, .end = v->end, .width = width};
    return width > 32 ? "the width of a page's indices" : NULL;
}

const char *parquet_values_open(parquet_values *v, parquet_encoding encoding, const uint8_t *p, size_t n)
{
    const parquet_type type = v->node->type;
    const bool bytes = type == P_BYTES, whole = type == P_INT32 || type == P_INT64, number = whole || type == P_FLOAT || type == P_DOUBLE;
    v->encoding = encoding;
    v->p = p;
    v->end = p + n;
    v->bit = v->at = 0;
    switch (encoding) {
    case E_PLAIN: return NULL;
    case E_DICTIONARY: case E_PLAIN_DICTIONARY: v->encoding = E_DICTIONARY; return open_indices(v);
    case E_RLE: return type == P_BOOLEAN ? open_booleans(v) : MISFIT;
    case E_DELTA: return whole ? open_deltas(v) : MISFIT;
    case E_DELTA_LENGTH: return bytes ? open_deltas(v) : MISFIT;
    case E_DELTA_BYTES: return bytes || type == P_FIXED ? open_deltas(v) : MISFIT;
    case E_SPLIT: return number || type == P_FIXED ? open_split(v) : MISFIT;
    default: return "an encoding that this reader does not know";
    }
}

static bool take(parquet_values *v, uint64_t n, byte_slice *out)
{
    if (n > (uint64_t)(v->end - v->p))
        return false;
    *out = (byte_slice){v->p, (size_t)n};
    v->p += n;
    return true;
}

static bool take_plain(parquet_values *v, byte_slice *out)
{
    byte_slice length;
    uint32_t n;
    if (v->node->type == P_BOOLEAN) {
        if (v->bit >= 8 * (uint64_t)(v->end - v->p))
            return false;
        v->number[0] = (uint8_t)bits_at(v->p, v->bit++, 1);
        *out = (byte_slice){v->number, 1};
        return true;
    }
    if (v->node->type != P_BYTES)
        return take(v, width_of(v->node), out);
    return take(v, 4, &length) && (memcpy(&n, length.p, 4), take(v, n, out));
}

static bool take_of_dictionary(parquet_values *v, byte_slice *out)
{
    const parquet_dictionary *d = v->dictionary;
    const uint8_t *bytes = (const uint8_t *)d->bytes.bytes;
    uint32_t i, n = width_of(v->node);
    if (!bit_runs_next(&v->runs, &i) || i >= d->n)
        return false;
    if (d->starts)
        memcpy(&n, bytes + d->starts[i] - 4, 4);
    *out = (byte_slice){bytes + (d->starts ? d->starts[i] : (size_t)i * n), n};
    return true;
}

/* In the bytes of its physical type: those of the lowest 32 bits are the first four. */
static bool take_number(parquet_values *v, byte_slice *out)
{
    int64_t value;
    if (!delta_next(&v->numbers, &value))
        return false;
    memcpy(v->number, &value, sizeof value);
    *out = (byte_slice){v->number, width_of(v->node)};
    return true;
}

static bool take_behind_prefix(parquet_values *v, byte_slice *out)
{
    int64_t prefix, n;
    byte_slice rest;
    if (!delta_next(&v->numbers, &prefix) || !delta_next(&v->lengths, &n) || n < 0 || prefix < 0 || (uint64_t)prefix > v->last.n ||
        !take(v, (uint64_t)n, &rest) || prefix + n > DOCUMENT_RECORD_MAX)
        return false;
    v->last.n = (size_t)prefix;
    if (text_buffer_append(&v->last, rest.p, rest.n, NULL))
        return false;
    *out = (byte_slice){v->last.n ? (const uint8_t *)v->last.bytes : v->end, v->last.n};
    return v->node->type != P_FIXED || out->n == v->node->width;
}

static bool take_split(parquet_values *v, byte_slice *out)
{
    const uint32_t width = width_of(v->node);
    if (v->at == v->stride)
        return false;
    for (uint32_t i = 0; i < width; i++)
        v->number[i] = v->p[i * v->stride + v->at];
    v->at++;
    *out = (byte_slice){v->number, width};
    return true;
}

static bool take_value(parquet_values *v, byte_slice *out)
{
    int64_t n;
    uint32_t bit;
    switch (v->encoding) {
    case E_PLAIN: return take_plain(v, out);
    case E_DICTIONARY: return take_of_dictionary(v, out);
    case E_DELTA: return take_number(v, out);
    case E_DELTA_LENGTH: return delta_next(&v->lengths, &n) && n >= 0 && take(v, (uint64_t)n, out);
    case E_DELTA_BYTES: return take_behind_prefix(v, out);
    case E_SPLIT: return take_split(v, out);
    default:
        if (!bit_runs_next(&v->runs, &bit))
            return false;
        v->number[0] = (uint8_t)bit;
        *out = (byte_slice){v->number, 1};
        return true;
    }
}

const char *parquet_value(parquet_values *v, byte_slice *out) { return take_value(v, out) ? NULL : SHORT; }

const char *parquet_dictionary_open(parquet_dictionary *d, const parquet_node *node, uint64_t n)
{
    const uint32_t width = width_of(node);
    const size_t most = d->bytes.n / (width ? width : 4);
    parquet_values v = {.node = node, .p = (uint8_t *)d->bytes.bytes, .end = (uint8_t *)d->bytes.bytes + d->bytes.n};
    byte_slice value;
    if (node->type == P_BOOLEAN)
        return MISFIT;
    if (n > most)
        return "its dictionary has fewer values than it should";
    d->n = (size_t)n;
    if (node->type != P_BYTES)
        return NULL;
    free(d->starts);
    d->starts = malloc((d->n + 1) * sizeof *d->starts);
    if (!d->starts)
        return "there is too little memory for its dictionary";
    for (size_t i = 0; i < d->n; i++) {
        if (!take_plain(&v, &value))
            return "its dictionary has fewer values than it should";
        d->starts[i] = (uint32_t)(value.p - (const uint8_t *)d->bytes.bytes);
    }
    return NULL;
}

void parquet_dictionary_free(parquet_dictionary *d)
{
    text_buffer_free(&d->bytes);
    free(d->starts);
    *d = (parquet_dictionary){0};
}
