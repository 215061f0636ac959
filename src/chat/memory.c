#include "chat/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arena_chunk {
    arena_chunk *older;
    size_t used, size;
    _Alignas(16) char bytes[];
};

enum { SMALLEST_CHUNK = 16 << 10, ALIGNMENT = 16, LONG_STRING = 4096 };

static void add_chunk(arena *a, size_t n)
{
    size_t size = n < SMALLEST_CHUNK ? SMALLEST_CHUNK : n;
    if (a->chunks && size < 2 * a->chunks->size && a->chunks->size < (1 << 20))
        size = 2 * a->chunks->size;
    if (n > a->limit || a->taken > a->limit - n)
        arena_fail(a, "the template needs more than %zu MiB of memory: shorten the conversation, or correct a loop of the template that "
                      "grows a value",
                   a->limit >> 20);
    arena_chunk *chunk = malloc(sizeof *chunk + size);
    if (!chunk)
        arena_fail(a, "out of memory");
    *chunk = (arena_chunk){.older = a->chunks, .size = size};
    a->chunks = chunk;
    a->taken += size;
}

void *arena_take(arena *a, size_t n)
{
    if (n > a->limit)
        add_chunk(a, n); /* fails */
    n = (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (!a->chunks || a->chunks->size - a->chunks->used < n)
        add_chunk(a, n);
    void *p = a->chunks->bytes + a->chunks->used;
    a->chunks->used += n;
    return p;
}

char *arena_extend(arena *a, const char *old, size_t old_n, size_t extra)
{
    if (extra > a->limit || old_n > a->limit)
        add_chunk(a, a->limit + 1);
    const size_t n = old_n + extra;
    for (int i = 0; i < 2; i++)
        if (old_n && old + old_n == a->growing[i].end && (size_t)(a->growing[i].limit - a->growing[i].end) >= extra) {
            a->growing[i].end += extra;
            return a->growing[i].end - n;
        }
    char *moved = arena_take(a, 2 * n);
    if (old_n)
        memcpy(moved, old, old_n);
    const int slot = n > LONG_STRING;
    a->growing[slot].end = moved + n;
    a->growing[slot].limit = moved + 2 * n;
    return moved;
}

void arena_free(arena *a)
{
    while (a->chunks) {
        arena_chunk *older = a->chunks->older;
        free(a->chunks);
        a->chunks = older;
    }
}

void arena_fail(arena *a, const char *fmt, ...)
{
    char sentence[768];
    va_list ap;
    va_start(ap, fmt);
    text_format(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    pt_fail(a->error, PT_FAILED, "%.200s, line %d: %s", a->name, a->line, sentence);
    longjmp(*a->escape, 1);
}

void arena_step(arena *a, size_t n)
{
    if (a->steps < n)
        arena_fail(a, "the template does not finish within %d million steps: correct its loops", ARENA_MOST_STEPS / 1000000);
    a->steps -= n;
}

void arena_enter(arena *a)
{
    arena_step(a, 1);
    if (++a->depth > ARENA_MOST_DEPTH)
        arena_fail(a, "expressions or macros nest deeper than %d levels", ARENA_MOST_DEPTH);
}
