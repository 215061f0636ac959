/* memory.h - the prices of candidates, by their hash. Thread-safe. */
#ifndef PT_MEMORY_H
#define PT_MEMORY_H

#include "plan/plan.h"

/* A price has two parts: the schedules of a steady step, which are timed, and the others that a run needs, which must fit, too. The second
 * is known only if someone wanted a proof. */
enum { PRICE_TIMED, PRICE_OTHERS, PRICE_PARTS };

typedef struct memory_entry {
    uint64_t hash;                        /* not 0 */
    bool known[PRICE_PARTS], fits[PRICE_PARTS];
    double step_ns, work[PRICE_PARTS];    /* work: see search.h */
    uint64_t bytes[PRICE_PARTS][TIERS];   /* of all schedules up to this part */
    uint64_t written;
} memory_entry;

typedef struct memory memory;
memory *memory_open(void); /* NULL: out of memory */
void memory_close(memory *m);
bool memory_find(memory *m, uint64_t hash, memory_entry *out);
void memory_add(memory *m, const memory_entry *e); /* adds or replaces; without effect if there is no memory */
/* Is it the first time that someone asks this for that part of an entry? */
bool memory_is_first(memory *m, uint64_t hash, int part);

#endif
