/* gguf_file.h - a GGUF file in memory, for tests. */
#ifndef TEST_GGUF_FILE_H
#define TEST_GGUF_FILE_H

#include "io/files.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct gguf_file {
    char *bytes;
    size_t n, at;
    uint64_t tensors, pairs;
} gguf_file;

static inline uint64_t gguf_number(gguf_file *f, int bytes)
{
    uint64_t value = 0;
    assert_true(f->at + (size_t)bytes <= f->n);
    memcpy(&value, f->bytes + f->at, (size_t)bytes);
    f->at += (size_t)bytes;
    return value;
}

static inline const char *gguf_text(gguf_file *f, size_t *n)
{
    *n = gguf_number(f, 8);
    assert_true(f->at + *n <= f->n);
    f->at += *n;
    return f->bytes + f->at - *n;
}

static inline void gguf_skip(gguf_file *f, uint32_t kind)
{
    static const int sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    size_t n;
    if (kind == 8)
        gguf_text(f, &n);
    else if (kind == 9) {
        kind = (uint32_t)gguf_number(f, 4);
        for (uint64_t left = gguf_number(f, 8); left; left--)
            gguf_skip(f, kind);
    } else
        gguf_number(f, sizes[kind]);
}

static inline gguf_file gguf_load(const char *path)
{
    gguf_file f = {0};
    pt_error e = {0};
    if (file_read_all(path, 1 << 28, &f.bytes, &f.n, &e))
        fail_msg("%s", e.text);
    assert_memory_equal(f.bytes, "GGUF", 4);
    f.at = 4;
    assert_int_equal(gguf_number(&f, 4), 3);
    f.tensors = gguf_number(&f, 8);
    f.pairs = gguf_number(&f, 8);
    return f;
}

/* f->at is behind the kind of the pair's value; -1: there is none of this key. */
static inline int gguf_find(gguf_file *f, const char *key)
{
    f->at = 24;
    for (uint64_t i = 0; i < f->pairs; i++) {
        size_t n;
        const char *name = gguf_text(f, &n);
        const uint32_t kind = (uint32_t)gguf_number(f, 4);
        if (n == strlen(key) && !memcmp(name, key, n))
            return (int)kind;
        gguf_skip(f, kind);
    }
    return -1;
}

static inline uint32_t gguf_u32(gguf_file *f, const char *key)
{
    const int kind = gguf_find(f, key);
    assert_true(kind == 4 || kind == 7);
    return (uint32_t)gguf_number(f, kind == 4 ? 4 : 1);
}

static inline bool gguf_says(gguf_file *f, const char *key, const char *value)
{
    size_t n;
    if (gguf_find(f, key) != 8)
        return false;
    const char *text = gguf_text(f, &n);
    return n == strlen(value) && !memcmp(text, value, n);
}

/* f->at is at the first of *n values. */
static inline int gguf_array(gguf_file *f, const char *key, uint64_t *n)
{
    assert_int_equal(gguf_find(f, key), 9);
    const int kind = (int)gguf_number(f, 4);
    *n = gguf_number(f, 8);
    return kind;
}

/* A tensor's type, and where its values are; -1: there is none of this name. */
static inline int gguf_tensor_of(gguf_file *f, const char *wanted, const char **values)
{
    uint64_t offset = 0;
    int type = -1;
    gguf_find(f, "");
    for (uint64_t i = 0; i < f->tensors; i++) {
        size_t n;
        const char *name = gguf_text(f, &n);
        const bool is = n == strlen(wanted) && !memcmp(name, wanted, n);
        f->at += 8 * gguf_number(f, 4);
        const int own = (int)gguf_number(f, 4);
        const uint64_t at = gguf_number(f, 8);
        assert_int_equal(at % 32, 0);
        if (is) {
            type = own;
            offset = at;
        }
    }
    *values = f->bytes + (f->at + 31) / 32 * 32 + offset;
    return type;
}

#endif
