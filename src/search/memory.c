#include "search/memory.h"

#include <pthread.h>
#include <stdlib.h>

enum { PLACES = 1 << 14 }; /* far more than a search prices; once full, nothing new is stored */

struct memory { pthread_mutex_t lock; memory_entry places[PLACES]; int n; };

memory *memory_open(void)
{
    memory *m = calloc(1, sizeof *m);
    if (m)
        pthread_mutex_init(&m->lock, NULL);
    return m;
}

void memory_close(memory *m)
{
    if (m)
        pthread_mutex_destroy(&m->lock);
    free(m);
}

/* The entry's place, or where it would go. */
static memory_entry *place_of(memory *m, uint64_t hash)
{
    uint64_t i = hash % PLACES;
    while (m->places[i].hash && m->places[i].hash != hash)
        i = (i + 1) % PLACES;
    return &m->places[i];
}

bool memory_find(memory *m, uint64_t hash, memory_entry *out)
{
    pthread_mutex_lock(&m->lock);
    *out = *place_of(m, hash);
    pthread_mutex_unlock(&m->lock);
    return out->hash == hash;
}

void memory_add(memory *m, const memory_entry *e)
{
    pthread_mutex_lock(&m->lock);
    memory_entry *place = place_of(m, e->hash);
    if (place->hash || m->n < PLACES / 2) {
        m->n += !place->hash;
        *place = *e;
    }
    pthread_mutex_unlock(&m->lock);
}
