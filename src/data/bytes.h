/* bytes.h - a growing buffer of bytes. Zero-initialise; free `p`. */
#ifndef PT_DATA_BYTES_H
#define PT_DATA_BYTES_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    char *p;
    size_t n, capacity;
} bytes;

/* Makes room for `more` bytes after the first n. */
static inline int bytes_reserve(bytes *b, size_t more, pt_error *e)
{
    if (b->capacity - b->n >= more)
        return 0;
    size_t capacity = b->capacity ? b->capacity : 1024;
    while (capacity - b->n < more) {
        if (capacity > SIZE_MAX / 2)
            return pt_fail(e, PT_FAILED, "out of memory: a buffer of %zu + %zu bytes", b->n, more);
        capacity *= 2;
    }
    char *p = realloc(b->p, capacity);
    if (!p)
        return pt_fail(e, PT_FAILED, "out of memory: a buffer of %zu bytes", capacity);
    b->p = p;
    b->capacity = capacity;
    return 0;
}

static inline int bytes_append(bytes *b, const char *p, size_t n, pt_error *e)
{
    int rc = bytes_reserve(b, n, e);
    if (rc < 0 || n == 0)
        return rc;
    memcpy(b->p + b->n, p, n);
    b->n += n;
    return 0;
}

#endif
