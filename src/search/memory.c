#include "search/memory.h"

#include <pthread.h>
#include <stdlib.h>

enum { PLACES = 1 << 12 }; /* at first; at most half are used */

typedef struct place { memory_entry entry; bool asked[PRICE_PARTS]; } place;

struct memory { pthread_mutex_t lock; place *places; uint64_t places_n; uint64_t n; };

memory *memory_open(void)
{
    memory *m = calloc(1, sizeof *m);
    place *places = calloc(PLACES, sizeof *places);
    if (!m || !places) {
        free(m);
        free(places);
        return NULL;
    }
    pthread_mutex_init(&m->lock, NULL);
    m->places = places;
    m->places_n = PLACES;
    return m;
}

void memory_close(memory *m)
{
    if (!m)
        return;
    pthread_mutex_destroy(&m->lock);
    free(m->places);
    free(m);
}

/* The entry's place, or where it would go. */
static place *place_of(place *places, uint64_t n, uint64_t hash)
{
    uint64_t i = hash % n;
    while (places[i].entry.hash && places[i].entry.hash != hash)
        i = (i + 1) % n;
    return &places[i];
}

static void grow(memory *m)
{
    place *more = calloc(m->places_n * 2, sizeof *more);
    if (!more)
        return;
    for (uint64_t i = 0; i < m->places_n; i++)
        if (m->places[i].entry.hash)
            *place_of(more, m->places_n * 2, m->places[i].entry.hash) = m->places[i];
    free(m->places);
    m->places = more;
    m->places_n *= 2;
}

bool memory_find(memory *m, uint64_t hash, memory_entry *out)
{
    pthread_mutex_lock(&m->lock);
    *out = place_of(m->places, m->places_n, hash)->entry;
    pthread_mutex_unlock(&m->lock);
    return out->hash == hash;
}

void memory_add(memory *m, const memory_entry *e)
{
    pthread_mutex_lock(&m->lock);
    if (m->n >= m->places_n / 2)
        grow(m);
    place *at = place_of(m->places, m->places_n, e->hash);
    if (at->entry.hash || m->n < m->places_n / 2) {
        m->n += !at->entry.hash;
        at->entry = *e;
    }
    pthread_mutex_unlock(&m->lock);
}

bool memory_is_first(memory *m, uint64_t hash, int part)
{
    pthread_mutex_lock(&m->lock);
    place *at = place_of(m->places, m->places_n, hash);
    const bool first = at->entry.hash != hash || !at->asked[part];
    if (at->entry.hash == hash)
        at->asked[part] = true;
    pthread_mutex_unlock(&m->lock);
    return first;
}
