/* memory.h - the arena of one template or one rendering; errors leave it by longjmp. */
#ifndef PT_CHAT_MEMORY_H
#define PT_CHAT_MEMORY_H

#include "base/error.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>

typedef struct arena_chunk arena_chunk;

typedef struct arena {
    arena_chunk *chunks; /* newest first */
    size_t taken, limit; /* bytes of all chunks */
    struct { char *end, *limit; } growing[2]; /* the short and the long string that were extended last, and the room after them */
    const char *name;    /* of the template, for errors */
    int line;            /* line being parsed or run */
    int depth;           /* nesting of expressions and macros */
    uint64_t steps;      /* left */
    jmp_buf *escape;     /* target of arena_fail */
    pt_error *error;
} arena;

enum { ARENA_MOST_DEPTH = 400, ARENA_MOST_STEPS = 20000000 };

/* Bytes that are compared, counted or hashed, searched or classified, in the time of one step (up to 60 ns). What allocates memory for its
 * result is limited by that memory, and needs no steps. */
enum { STEP_COMPARES = 64, STEP_COUNTS = 32, STEP_SEARCHES = 8 };
enum { NUMBER_STEPS = 32 }; /* of writing or rounding a decimal number */

/* Never returns NULL: at the limit, or without memory, arena_fail is called. Aligned for any value. */
void *arena_take(arena *a, size_t n);
/* A string of old_n + extra bytes that begins with `old`. If `old` was extended last, it grows in place; else it is copied with room to
 * grow, so that a string that is appended to repeatedly is copied few times. */
char *arena_extend(arena *a, const char *old, size_t old_n, size_t extra);
void arena_free(arena *a);

/* Sets the error, "NAME, line N: ...", and jumps out. */
_Noreturn void arena_fail(arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void arena_step(arena *a, size_t n); /* counts n steps; fails if none are left */
void arena_enter(arena *a);          /* counts a step and enters a level; fails at the limits */

#endif
