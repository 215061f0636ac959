/* columns.h - other names for the keys of records: "prompt=query,completion=response" gives a record's "query" the name "prompt", so that
 * data need not be written anew. All keys are taken before any is named, so that names may be exchanged. */
#ifndef PT_DATA_COLUMNS_H
#define PT_DATA_COLUMNS_H

#include "base/error.h"

#include <jansson.h>

enum { COLUMNS_MAX = 16, COLUMNS_TEXT = 1024 };

typedef struct column_names {
    size_t n; /* 0: none */
    struct { const char *name, *key; } of[COLUMNS_MAX]; /* in text */
    char text[COLUMNS_TEXT];
} column_names;

/* NULL and "": none. *out must stay where it is. PT_USAGE: not NAME=KEY,... */
int columns_parse(const char *text, column_names *out, pt_error *e);
void columns_rename(const column_names *c, json_t *record); /* c may be NULL. Keys that the record lacks are left out */

#endif
