#include "text/merge_table.h"

#include <stdlib.h>

int merge_table_init(merge_table *t, size_t n_pairs, pt_error *e)
{
    size_t n_slots = 16;
    while (n_slots < n_pairs * 2)
        n_slots *= 2;
    t->entries = malloc(n_slots * sizeof *t->entries);
    if (!t->entries)
        return pt_fail(e, PT_FAILED, "no memory for %zu merges; free some memory", n_pairs);
    t->mask = n_slots - 1;
    for (size_t i = 0; i < n_slots; i++)
        t->entries[i].value = NO_MERGE;
    return 0;
}

void merge_table_put(merge_table *t, uint32_t left, uint32_t right, uint64_t value)
{
    merge_entry *entry = merge_table_slot(t, left, right);
    entry->key = (uint64_t)left << 32 | right;
    entry->value = value;
}

void merge_table_free(merge_table *t)
{
    free(t->entries);
    t->entries = NULL;
    t->mask = 0;
}
