#include "text/string_table.h"

#include "text/buffer.h"
#include "text/hash.h"

#include <stdlib.h>
#include <string.h>

int string_table_init(string_table *t, uint32_t n_ids, pt_error *e)
{
    memset(t, 0, sizeof *t);
    size_t n_slots = 16;
    while (n_slots < (size_t)n_ids * 2)
        n_slots *= 2;
    t->n_ids = n_ids;
    t->mask = n_slots - 1;
    t->spans = malloc((n_ids ? n_ids : 1) * sizeof *t->spans);
    t->slots = malloc(n_slots * sizeof *t->slots);
    if (!t->spans || !t->slots) {
        string_table_free(t);
        return pt_fail(e, PT_FAILED, "no memory for a vocabulary of %u tokens; free some memory", n_ids);
    }
    for (uint32_t i = 0; i < n_ids; i++)
        t->spans[i] = (string_span){0, NO_ID};
    memset(t->slots, 0xff, n_slots * sizeof *t->slots);
    return 0;
}

/* The string's slot, or the empty slot where it would go. */
static size_t find_slot(const string_table *t, const char *s, size_t n)
{
    size_t slot = hash_bytes(s, n) & t->mask;
    for (;; slot = (slot + 1) & t->mask) {
        uint32_t id = t->slots[slot];
        if (id == NO_ID)
            return slot;
        const string_span *span = &t->spans[id];
        if (span->n == n && (n == 0 || memcmp(t->bytes.bytes + span->at, s, n) == 0))
            return slot;
    }
}

int string_table_add(string_table *t, uint32_t id, const char *s, size_t n, pt_error *e)
{
    size_t at = t->bytes.n;
    int status = text_buffer_append(&t->bytes, s, n, e);
    if (status)
        return status;
    t->slots[find_slot(t, s, n)] = id;
    t->spans[id] = (string_span){at, (uint32_t)n};
    if (n > t->longest)
        t->longest = (uint32_t)n;
    return 0;
}

uint32_t string_table_find(const string_table *t, const char *s, size_t n)
{
    return t->slots ? t->slots[find_slot(t, s, n)] : NO_ID;
}

const char *string_table_get(const string_table *t, uint32_t id, size_t *n)
{
    if (id >= t->n_ids || t->spans[id].n == NO_ID)
        return NULL;
    *n = t->spans[id].n;
    return *n ? t->bytes.bytes + t->spans[id].at : "";
}

void string_table_free(string_table *t)
{
    text_buffer_free(&t->bytes);
    free(t->spans);
    free(t->slots);
    memset(t, 0, sizeof *t);
}
