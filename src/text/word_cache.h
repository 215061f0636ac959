/* word_cache.h - a cache of the ids of recent words, one per thread.
 *
 *   set = hash(word, kind) mod n_sets        a set: 2 entries of 64 bytes, the more recent one first
 *   entry: 24 bytes of word, zero-padded | n_bytes | n_ids, kind | up to 9 ids
 *
 * The size is fixed: a new word evicts the older one of its set. Words that are longer or have more ids are not cached. */
#ifndef PT_WORD_CACHE_H
#define PT_WORD_CACHE_H

#include "text/hash.h"
#include "text/tokenizer.h"

enum { WORD_CACHE_BYTES = 24, WORD_CACHE_IDS = 9, WORD_CACHE_SETS = 1 << 15 };

typedef struct word_entry {
    uint64_t key[WORD_CACHE_BYTES / 8];
    uint8_t n_bytes; /* 0: free */
    uint8_t n_ids;
    uint16_t kind;
    uint32_t ids[WORD_CACHE_IDS];
} word_entry;

typedef struct word_cache {
    void *memory;
    word_entry *entries; /* in `memory`, aligned to cache lines */
} word_cache;

typedef struct word_key {
    uint64_t key[WORD_CACHE_BYTES / 8];
    uint8_t n_bytes;
    uint16_t kind;
    size_t set;
} word_key;

int word_cache_init(word_cache *c, pt_error *e);
void word_cache_free(word_cache *c);
void word_cache_put(word_cache *c, const word_key *key, const uint32_t *ids, size_t n);

/* 1 <= n <= WORD_CACHE_BYTES; reads no byte past s + n. `kind` separates words whose ids were computed by different rules. */
static inline word_key word_cache_key(const char *s, size_t n, uint16_t kind)
{
    word_key k = {{0, 0, 0}, (uint8_t)n, kind, 0};
    uint64_t tail;
    uint32_t head4, tail4;
    if (n >= 16) {
        memcpy(k.key, s, 16);
        memcpy(&tail, s + n - 8, 8);
        k.key[2] = n > 16 ? tail >> (8 * (24 - n)) : 0;
    } else if (n >= 8) {
        memcpy(k.key, s, 8);
        memcpy(&tail, s + n - 8, 8);
        k.key[1] = n > 8 ? tail >> (8 * (16 - n)) : 0;
    } else if (n >= 4) {
        memcpy(&head4, s, 4);
        memcpy(&tail4, s + n - 4, 4);
        k.key[0] = head4 | (uint64_t)tail4 << (8 * (n - 4));
    } else {
        const unsigned char *u = (const unsigned char *)s;
        k.key[0] = u[0] | (uint64_t)u[n / 2] << (8 * (n / 2)) | (uint64_t)u[n - 1] << (8 * (n - 1));
    }
    uint64_t h = hash_mix(k.key[0] ^ n, k.key[1] ^ (k.key[2] * 0xa0761d6478bd642fu) ^ kind);
    k.set = (h >> 20) & (WORD_CACHE_SETS - 1);
    return k;
}

static inline bool word_entry_is(const word_entry *w, const word_key *k)
{
    return w->key[0] == k->key[0] && w->n_bytes == k->n_bytes && w->key[1] == k->key[1] &&
           w->key[2] == k->key[2] && w->kind == k->kind;
}

static inline const word_entry *word_cache_find(const word_cache *c, const word_key *k)
{
    const word_entry *set = &c->entries[2 * k->set];
    if (word_entry_is(set, k))
        return set;
    return word_entry_is(set + 1, k) ? set + 1 : NULL;
}

#endif
