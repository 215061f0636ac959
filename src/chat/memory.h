/* memory.h - the arena of one template or one rendering, and the way out of it on an error. */
#ifndef PT_CHAT_MEMORY_H
#define PT_CHAT_MEMORY_H

#include "base/error.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena_chunk arena_chunk;

typedef struct arena {
    arena_chunk *chunks; /* the newest first */
    size_t taken, limit; /* bytes of all chunks */
    struct { char *end, *limit; } growing[2]; /* the last string that was extended, a short one and a long one, and the room behind it */
    const char *name;    /* of the template, for messages */
    int line;            /* being parsed or run */
    int depth;           /* of nested expressions and macros */
    uint64_t steps;      /* left */
    jmp_buf *escape;     /* where arena_fail goes */
    pt_error *error;
} arena;

enum { ARENA_MOST_DEPTH = 400, ARENA_MOST_STEPS = 20000000 };

/* Never returns NULL: at the limit, and without memory, it fails. Aligned for any value. */
void *arena_take(arena *a, size_t n);
/* A string of old_n + extra bytes that begins with `old`: in its place where it is one of those extended last, else a copy with room to
 * grow, so that a value that is appended to again and again is copied few times. */
char *arena_extend(arena *a, const char *old, size_t old_n, size_t extra);
void arena_free(arena *a);

/* "NAME, line N: ..." to the error, and out. */
_Noreturn void arena_fail(arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_step(arena *a, size_t n); /* counts n steps, or fails where none are left */
void arena_enter(arena *a);          /* one step, and one level deeper, or fails */

#endif
