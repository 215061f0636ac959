/* memory.h - what recipes were priced at, by their hash. */
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

memory *memory_open(void); /* NULL: out of memory; to be freed */
memory_entry *memory_find(memory *m, uint64_t hash); /* NULL: not there */
void memory_add(memory *m, const memory_entry *e);   /* or replaces */

#endif
