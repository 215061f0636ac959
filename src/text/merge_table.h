/* merge_table.h - a hash table from (left id, right id) to a 64-bit value: open addressing, linear probing, 16 bytes per entry. It has the
 * merges of a BPE (rank and id of the result), and the pairs of characters that some merge can join. */
#ifndef PT_MERGE_TABLE_H
#define PT_MERGE_TABLE_H

#include "text/hash.h"
#include "text/tokenizer.h"

#define NO_MERGE UINT64_MAX

typedef struct merge_entry {
    uint64_t key, value; /* value NO_MERGE: free */
} merge_entry;

typedef struct merge_table {
    merge_entry *entries;
    size_t mask;
} merge_table;

int merge_table_init(merge_table *t, size_t n_pairs, pt_error *e); /* room for n_pairs */
void merge_table_put(merge_table *t, uint32_t left, uint32_t right, uint64_t value); /* replaces an existing value */
void merge_table_free(merge_table *t);

static inline merge_entry *merge_table_slot(const merge_table *t, uint32_t left, uint32_t right)
{
    uint64_t key = (uint64_t)left << 32 | right;
    size_t slot = hash_mix(key, 0) & t->mask;
    while (t->entries[slot].value != NO_MERGE && t->entries[slot].key != key)
        slot = (slot + 1) & t->mask;
    return &t->entries[slot];
}

static inline uint64_t merge_table_find(const merge_table *t, uint32_t left, uint32_t right)
{
    return merge_table_slot(t, left, right)->value;
}

#endif
