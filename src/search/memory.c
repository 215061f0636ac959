#include "search/memory.h"

#include <stdlib.h>

enum { PLACES = 1 << 14 }; /* far more than a search prices; once full, nothing new is remembered */

struct memory { memory_entry places[PLACES]; int n; };

memory *memory_open(void) { return calloc(1, sizeof(memory)); }

memory_entry *memory_find(memory *m, uint64_t hash)
{
    uint64_t i = hash % PLACES;
    while (m->places[i].hash && m->places[i].hash != hash)
        i = (i + 1) % PLACES;
    return m->places[i].hash ? &m->places[i] : NULL;
}

void memory_add(memory *m, const memory_entry *e)
{
    uint64_t i = e->hash % PLACES;
    while (m->places[i].hash && m->places[i].hash != e->hash)
        i = (i + 1) % PLACES;
    if (!m->places[i].hash && m->n >= PLACES / 2)
        return;
    m->n += !m->places[i].hash;
    m->places[i] = *e;
}
