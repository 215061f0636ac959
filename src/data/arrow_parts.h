/* arrow_parts.h - shared by the files of the reader of Arrow. */
#ifndef PT_DATA_ARROW_PARTS_H
#define PT_DATA_ARROW_PARTS_H

#include "data/arrow.h"
#include "data/flat.h"

enum { ARROW_DEEPEST = 40, ARROW_FIELDS_MAX = 16384, ARROW_BUFFER_MAX = 1 << 30 };

typedef enum arrow_kind { /* of A_HIDDEN nothing is shown */
    A_NULL, A_SIGNED, A_UNSIGNED, A_REAL, A_BOOL, A_TEXT, A_BINARY, A_FIXED, A_HIDDEN, A_LIST, A_FIXED_LIST, A_STRUCT
} arrow_kind;

typedef struct arrow_slice { const uint8_t *p; uint64_t n; } arrow_slice;

/* A field of the schema, and its array in the current batch. After a field its children, each with its own. */
typedef struct arrow_field {
    const char *name;
    size_t name_bytes;
    arrow_kind kind;
    uint64_t width;          /* bytes of a value; of an offset (A_TEXT, A_BINARY, A_LIST); elements of an A_FIXED_LIST */
    uint32_t children, size; /* children; fields below, with itself */
    uint64_t length;
    arrow_slice valid, offsets, data; /* valid.n 0: all are */
} arrow_field;

typedef struct arrow_table {
    const char *path;
    arrow_field *fields; size_t fields_n; /* the first is the whole row */
    uint64_t row;                         /* rows given */
    text_buffer json;
} arrow_table;

int arrow_damaged(const arrow_table *t, const char *what, pt_error *e);
/* Reads the fields of the schema at a place of its message, whose bytes must stay. */
int arrow_take_schema(arrow_table *t, flat *f, size_t schema, pt_error *e);
/* Writes row i of the batch to t->json. */
int arrow_write_row(arrow_table *t, uint64_t i, pt_error *e);

#endif
