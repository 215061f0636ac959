#include "data/thrift.h"

enum { DEEPEST = 32 };

static unsigned take(thrift *t)
{
    if (t->failed || t->p == t->end) {
        t->failed = true;
        return 0;
    }
    return *t->p++;
}

uint64_t thrift_varint(thrift *t)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        const unsigned byte = take(t);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    t->failed = true;
    return 0;
}

static int64_t zigzag(uint64_t v) { return (int64_t)(v >> 1 ^ -(v & 1)); }

int64_t thrift_int(thrift *t, unsigned type)
{
    if (type == THRIFT_BYTE)
        return (int8_t)take(t);
    if (type >= THRIFT_I16 && type <= THRIFT_I64)
        return zigzag(thrift_varint(t));
    t->failed = true;
    return 0;
}

bool thrift_bool(thrift *t, unsigned type)
{
    if (type != THRIFT_TRUE && type != THRIFT_FALSE)
        t->failed = true;
    return type == THRIFT_TRUE;
}

bool thrift_field(thrift *t, int *id, unsigned *type)
{
    const unsigned byte = take(t);
    *type = byte & 15;
    if (!*type || t->failed)
        return false;
    const int64_t next = byte >> 4 ? *id + (int64_t)(byte >> 4) : zigzag(thrift_varint(t));
    if (next < 0 || next > INT16_MAX)
        t->failed = true;
    *id = (int)next;
    return !t->failed;
}

const char *thrift_binary(thrift *t, unsigned type, size_t *n)
{
    const uint64_t size = type == THRIFT_BINARY ? thrift_varint(t) : 0;
    const char *p = (const char *)t->p;
    *n = 0;
    if (type != THRIFT_BINARY || t->failed || size > (uint64_t)(t->end - t->p)) {
        t->failed = true;
        return "";
    }
    *n = (size_t)size;
    t->p += size;
    return p;
}

size_t thrift_list(thrift *t, unsigned type, unsigned *element)
{
    const unsigned byte = type == THRIFT_LIST || type == THRIFT_SET ? take(t) : 0;
    *element = byte & 15;
    const uint64_t n = byte >> 4 == 15 ? thrift_varint(t) : byte >> 4;
    if (!*element || t->failed || n > (uint64_t)(t->end - t->p)) {
        t->failed = true;
        return 0;
    }
    return (size_t)n;
}

static void skip(thrift *t, unsigned type, int depth);

/* An element of a list or map, whose booleans take a byte. */
static void skip_element(thrift *t, unsigned type, int depth)
{
    if (type == THRIFT_TRUE || type == THRIFT_FALSE)
        take(t);
    else
        skip(t, type, depth);
}

static void skip_elements(thrift *t, unsigned type, int depth)
{
    unsigned element;
    for (size_t n = thrift_list(t, type, &element); n && !t->failed; n--)
        skip_element(t, element, depth);
}

static void skip_map(thrift *t, int depth)
{
    const uint64_t n = thrift_varint(t);
    const unsigned types = n ? take(t) : 0;
    for (uint64_t i = 0; i < n && !t->failed; i++) {
        skip_element(t, types >> 4, depth);
        skip_element(t, types & 15, depth);
    }
}

static void skip_bytes(thrift *t, size_t n)
{
    if (n > (size_t)(t->end - t->p))
        t->failed = true;
    else
        t->p += n;
}

static void skip(thrift *t, unsigned type, int depth)
{
    int id = 0;
    size_t n;
    if (depth == DEEPEST)
        t->failed = true;
    if (t->failed)
        return;
    switch (type) {
    case THRIFT_TRUE: case THRIFT_FALSE: break;
    case THRIFT_BYTE: take(t); break;
    case THRIFT_I16: case THRIFT_I32: case THRIFT_I64: thrift_varint(t); break;
    case THRIFT_DOUBLE: skip_bytes(t, 8); break;
    case THRIFT_BINARY: thrift_binary(t, type, &n); break;
    case THRIFT_LIST: case THRIFT_SET: skip_elements(t, type, depth + 1); break;
    case THRIFT_MAP: skip_map(t, depth + 1); break;
    case THRIFT_STRUCT:
        while (thrift_field(t, &id, &type))
            skip(t, type, depth + 1);
        break;
    default: t->failed = true;
    }
}

void thrift_skip(thrift *t, unsigned type) { skip(t, type, 0); }
