/* memory.h - the prices of candidates, by their hash. Thread-safe. */
#ifndef PT_MEMORY_H
#define PT_MEMORY_H

#include "plan/plan.h"

typedef struct memory memory;
typedef struct memory_entry {
    uint64_t hash; /* not 0 */
    int fits;
    bool proven;
    double step_ns;
    uint64_t bytes[TIERS], written;
} memory_entry;

memory *memory_open(void); /* NULL: out of memory */
void memory_close(memory *m);
bool memory_find(memory *m, uint64_t hash, memory_entry *out);
void memory_add(memory *m, const memory_entry *e); /* adds or replaces */

#endif
