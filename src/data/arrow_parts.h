/* arrow_parts.h - shared by the files of the reader of Arrow. */
#ifndef PT_DATA_ARROW_PARTS_H
#define PT_DATA_ARROW_PARTS_H

#include "data/arrow.h"
#include "data/flat.h"

enum { ARROW_DEEPEST = 40, ARROW_DICTIONARIES_DEEPEST = 8, ARROW_FIELDS_MAX = 16384, ARROW_BUFFER_MAX = 1 << 30, ARROW_VIEW = 16 };

/* What compressed buffers of a batch, or of all dictionaries that are held, unpack to: at most; whatever they take in the file; and beyond
 * that, how many times what the batch takes. A small file that claims gigabytes is refused before they are allocated. */
#define ARROW_UNPACKED_MAX ((uint64_t)4 << 30)
#define ARROW_UNPACKED_FREE ((uint64_t)256 << 20)
#define ARROW_UNPACKED_TIMES ((uint64_t)1024)

typedef enum arrow_kind { /* of A_HIDDEN nothing is shown */
    A_NULL, A_SIGNED, A_UNSIGNED, A_REAL, A_BOOL, A_TEXT, A_BINARY, A_FIXED, A_HIDDEN, A_LIST, A_FIXED_LIST, A_STRUCT,
    A_TEXT_VIEW, A_BINARY_VIEW, A_LIST_VIEW, A_RUNS, A_INDEX
} arrow_kind;

typedef struct arrow_slice { const uint8_t *p; uint64_t n; } arrow_slice;

/* A field of the schema, and its array in a batch. After a field its children, each with its own: the element of a list; of A_RUNS the ends
 * of the runs and their values; of A_INDEX the values, whose arrays are in the dictionary's batches. */
typedef struct arrow_field {
    const char *name;
    size_t name_bytes;
    arrow_kind kind;
    uint64_t width;          /* bytes of a value or index; of an offset (texts, binary, lists); elements of an A_FIXED_LIST */
    uint32_t children, size; /* children; fields below, with itself */
    uint32_t dictionary;     /* of an A_INDEX */
    uint64_t length;
    arrow_slice valid, offsets, data;        /* valid.n 0: all are. data: of A_LIST_VIEW the lengths */
    const arrow_slice *views; size_t views_n; /* of A_TEXT_VIEW and A_BINARY_VIEW: what long values lie in */
} arrow_field;

/* Arrays, and the memory that they lie in. */
typedef struct arrow_batch {
    arrow_field *fields;
    uint64_t first, length;                   /* of a dictionary: its first index. Rows, or values */
    text_buffer body;
    text_buffer *unpacked; size_t unpacked_n; /* buffers that were compressed */
    uint64_t unpacked_bytes, room;            /* of these; how many there may be */
    arrow_slice *views; size_t views_n;
} arrow_batch;

typedef struct arrow_dictionary {
    uint64_t id;
    const arrow_field *values;                /* in the schema */
    arrow_batch *batches; size_t batches_n;   /* the first, and what was added to it */
} arrow_dictionary;

typedef struct arrow_table {
    const char *path;
    arrow_field *fields; size_t fields_n; /* the first is the whole row */
    arrow_dictionary *dictionaries; size_t dictionaries_n;
    uint64_t row;                         /* rows given */
    int dictionaries_deep;                /* of the value that is being written */
    text_buffer json;
} arrow_table;

int arrow_damaged(const arrow_table *table, const char *what, pt_error *e);

/* Reads the fields of the schema at a place of its message, whose bytes must stay. */
int arrow_take_schema(arrow_table *table, flat *f, size_t schema, pt_error *e);

/* Sets the arrays of b->fields[0] and what is below by the record batch at a place of its message; b->body is read, b->room set. */
int arrow_take_batch(const arrow_table *table, flat *f, size_t at, arrow_batch *b, pt_error *e);
void arrow_batch_free(arrow_batch *b); /* not b->fields */

/* Writes row i of the batch to table->json. */
int arrow_write_row(arrow_table *table, uint64_t i, pt_error *e);

#endif
