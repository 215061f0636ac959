#include "text/word_cache.h"

#include <stdlib.h>

int word_cache_init(word_cache *c, pt_error *e)
{
    size_t bytes = 2 * WORD_CACHE_SETS * sizeof *c->entries;
    c->memory = calloc(1, bytes + 64); /* zero pages: unused ones take no memory */
    if (!c->memory)
        return pt_fail(e, PT_FAILED, "no memory for the %zu bytes of a tokenizer's word cache; free some memory", bytes);
    c->entries = (word_entry *)(((uintptr_t)c->memory + 63) & ~(uintptr_t)63);
    return 0;
}

void word_cache_free(word_cache *c)
{
    free(c->memory);
    c->memory = NULL;
    c->entries = NULL;
}

void word_cache_put(word_cache *c, const word_key *key, const uint32_t *ids, size_t n)
{
    if (n > WORD_CACHE_IDS)
        return;
    word_entry *set = &c->entries[2 * key->set];
    set[1] = set[0];
    memcpy(set->key, key->key, sizeof set->key);
    set->n_bytes = key->n_bytes;
    set->n_ids = (uint8_t)n;
    set->kind = key->kind;
    memcpy(set->ids, ids, n * sizeof *ids);
}
