/* string_table.h - token strings, by id and by content.
 *
 *   spans[id] -> (at, n) into one run of bytes       slots[hash] -> id, open addressing, linear probing
 *
 * Strings are added while a tokenizer is opened and never removed; after that any thread may read. */
#ifndef PT_STRING_TABLE_H
#define PT_STRING_TABLE_H

#include "text/tokenizer.h"

#define NO_ID UINT32_MAX
enum { MAX_TOKEN_ID = 0x1fffff }; /* several times the largest vocabulary in use */

typedef struct string_span {
    size_t at;
    uint32_t n; /* NO_ID: no string has this id */
} string_span;

typedef struct string_table {
    text_buffer bytes;
    string_span *spans;
    uint32_t n_ids;
    uint32_t *slots;
    size_t mask;
    uint32_t longest; /* bytes of the longest string */
} string_table;

/* Room for ids 0 .. n_ids-1. */
int string_table_init(string_table *t, uint32_t n_ids, pt_error *e);
/* `id` < n_ids must be free and the string new. */
int string_table_add(string_table *t, uint32_t id, const char *s, size_t n, pt_error *e);
uint32_t string_table_find(const string_table *t, const char *s, size_t n); /* NO_ID if absent */
const char *string_table_get(const string_table *t, uint32_t id, size_t *n); /* NULL if none */
void string_table_free(string_table *t);

#endif
