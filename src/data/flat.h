/* flat.h - reads FlatBuffers, in which Arrow writes its metadata. Tables are named by their place. Nothing is read beyond the n bytes: a
 * place outside, or one that does not lie behind what names it, sets `failed`, and reads as absent. So no table is its own part. */
#ifndef PT_DATA_FLAT_H
#define PT_DATA_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct flat {
    const uint8_t *p;
    size_t n;
    bool failed;
} flat;

/* `bytes` bytes (up to 8) at a place, the lowest first, without a sign. */
static inline uint64_t flat_at(flat *f, size_t at, unsigned bytes)
{
    uint64_t value = 0;
    if (at > f->n || f->n - at < bytes) {
        f->failed = true;
        return 0;
    }
    memcpy(&value, f->p + at, bytes);
    return value;
}

/* What the offset at a place leads to. */
static inline size_t flat_follow(flat *f, size_t at)
{
    const uint64_t offset = flat_at(f, at, 4);
    if (offset < 4 || offset > f->n - at)
        f->failed = true;
    return f->failed ? 0 : at + (size_t)offset;
}

/* The place of a table's field; 0: absent. */
static inline size_t flat_field(flat *f, size_t table, unsigned field)
{
    const int64_t names = (int64_t)table - (int32_t)flat_at(f, table, 4);
    if (!table || names < 0 || (uint64_t)names > f->n)
        f->failed = true;
    if (f->failed || flat_at(f, (size_t)names, 2) < 6 + 2 * field)
        return 0;
    const uint64_t offset = flat_at(f, (size_t)names + 4 + 2 * field, 2);
    return offset && !f->failed ? table + (size_t)offset : 0;
}

static inline uint64_t flat_number(flat *f, size_t table, unsigned field, unsigned bytes, uint64_t otherwise)
{
    const size_t at = flat_field(f, table, field);
    return at ? flat_at(f, at, bytes) : otherwise;
}

static inline size_t flat_table(flat *f, size_t table, unsigned field)
{
    const size_t at = flat_field(f, table, field);
    return at ? flat_follow(f, at) : 0;
}

/* The place of a vector's first element of so many bytes; *n: elements, 0 if it is absent. */
static inline size_t flat_vector(flat *f, size_t table, unsigned field, size_t bytes, size_t *n)
{
    const size_t at = flat_table(f, table, field);
    *n = at ? (size_t)flat_at(f, at, 4) : 0;
    if (*n > (f->n - at) / bytes || (*n && f->n - at - 4 < *n * bytes)) {
        f->failed = true;
        *n = 0;
    }
    return at + 4;
}

#endif
