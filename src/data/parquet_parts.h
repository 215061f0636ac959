/* parquet_parts.h - shared by the files of the reader of Parquet. */
#ifndef PT_DATA_PARQUET_PARTS_H
#define PT_DATA_PARQUET_PARTS_H

#include "data/parquet.h"
#include "data/thrift.h"
#include "data/unpack.h"

enum { PARQUET_PAGE_MAX = 1 << 30, PARQUET_DEEPEST = 40, PARQUET_NODES_MAX = 16384 };

typedef enum parquet_type { P_BOOLEAN, P_INT32, P_INT64, P_INT96, P_FLOAT, P_DOUBLE, P_BYTES, P_FIXED, P_GROUP } parquet_type;
typedef enum parquet_repetition { P_REQUIRED, P_OPTIONAL, P_REPEATED } parquet_repetition;
typedef enum parquet_meaning { P_PLAIN, P_TEXT, P_UNSIGNED, P_LIST, P_HIDDEN } parquet_meaning; /* P_HIDDEN: not shown */

/* An element of the schema. They lie in the order of the file: after a group its children, each with its own. */
typedef struct parquet_node {
    const char *name; /* in the footer */
    size_t name_bytes;
    parquet_type type;
    parquet_repetition repetition;
    parquet_meaning meaning;
    uint32_t width;           /* of P_FIXED */
    uint32_t children, size;  /* children; nodes below, with itself */
    uint32_t leaf, leaves;    /* the first of its columns, and their number */
    uint8_t definition, repeats; /* the levels of a value that is there */
} parquet_node;

/* ---- parquet_values.c ---- */

typedef struct bit_runs { /* runs of equal values, and bit-packed ones ("RLE/bit-packed hybrid") */
    const uint8_t *p, *end;
    unsigned width;
    uint64_t run, bit; /* values left of the run; the next bit, if it is packed */
    bool packed;
    uint32_t value;
    const uint8_t *from; /* of the packed run */
} bit_runs;
bool bit_runs_next(bit_runs *r, uint32_t *value); /* false: there is none */

typedef struct delta_run { /* DELTA_BINARY_PACKED */
    const uint8_t *p, *end;
    uint64_t left, miniblocks, per_miniblock, in_miniblock;
    uint64_t miniblock;       /* of the block: the next one */
    const uint8_t *widths, *bits;
    uint64_t bit;
    int64_t value, least;     /* the last value, the block's least delta */
    bool begun, failed;
} delta_run;
delta_run delta_open(const uint8_t *p, const uint8_t *end);
bool delta_next(delta_run *d, int64_t *value);
/* Behind its last value, which need not have been read; NULL: damaged. */
const uint8_t *delta_end(delta_run d);

typedef struct byte_slice { const uint8_t *p; size_t n; } byte_slice;

typedef enum parquet_encoding { E_PLAIN = 0, E_PLAIN_DICTIONARY = 2, E_RLE = 3, E_BIT_PACKED = 4, E_DELTA = 5, E_DELTA_LENGTH = 6,
                                E_DELTA_BYTES = 7, E_DICTIONARY = 8, E_SPLIT = 9 } parquet_encoding;

typedef struct parquet_dictionary {
    text_buffer bytes;
    uint32_t *starts; /* of P_BYTES: of each value, behind its length */
    size_t n;
} parquet_dictionary;

typedef struct parquet_values { /* of a page */
    const parquet_node *node;
    const parquet_dictionary *dictionary;
    parquet_encoding encoding;
    const uint8_t *p, *end;
    uint64_t bit;            /* plain booleans: the next */
    bit_runs runs;           /* of indices, or of booleans */
    delta_run numbers, lengths; /* E_DELTA: the values. Else of prefixes and of what follows */
    uint64_t stride, at;     /* E_SPLIT: values of the page, and the next */
    text_buffer last;        /* E_DELTA_BYTES: the value before */
    uint8_t number[64];      /* of a value that does not lie in the page as it is */
} parquet_values;

/* NULL, or what is wrong. */
const char *parquet_values_open(parquet_values *v, parquet_encoding encoding, const uint8_t *p, size_t n);
/* The next value, in the bytes of its physical type (a boolean: one byte); valid until the next call. */
const char *parquet_value(parquet_values *v, byte_slice *out);
/* d->bytes are a dictionary page of n values. */
const char *parquet_dictionary_open(parquet_dictionary *d, const parquet_node *node, uint64_t n);
void parquet_dictionary_free(parquet_dictionary *d);

/* ---- parquet_pages.c ---- */

typedef struct parquet_file {
    int fd;
    const char *path;
    uint64_t size;
    text_buffer footer;
    parquet_node *nodes; size_t nodes_n;
    size_t leaves_n;
    thrift groups;      /* the row groups that have not been read */
    size_t groups_left;
    uint64_t row, read; /* of the file: rows given, bytes read */
} parquet_file;

typedef struct parquet_column {
    parquet_file *file;
    const parquet_node *node;
    block_packing codec;
    uint64_t at, end;   /* the next page, and the end of the column's part of the file */
    uint64_t left;      /* entries of pages to come */
    uint64_t page_left; /* of the page, after the current entry */
    bit_runs repeats, definitions;
    parquet_values values;
    parquet_dictionary dictionary;
    text_buffer packed, page;
    bool ended;         /* there is no current entry */
    uint32_t repeat, definition; /* the levels of the current entry */
} parquet_column;

/* Moves to the next entry, or to the first. */
int parquet_column_next(parquet_column *c, pt_error *e);
int parquet_column_value(parquet_column *c, byte_slice *out, pt_error *e); /* of the current entry */
int parquet_damaged(const parquet_column *c, const char *why, pt_error *e);
void parquet_column_free(parquet_column *c);

/* ---- parquet_meta.c ---- */

int parquet_read_at(parquet_file *f, void *p, size_t n, uint64_t at, pt_error *e); /* bytes within the file */
/* Reads the footer and its schema. */
int parquet_open(parquet_file *f, pt_error *e);
void parquet_close(parquet_file *f);
/* Takes the next row group: sets the columns to its beginning; *rows: its rows. */
int parquet_group(parquet_file *f, parquet_column *columns, uint64_t *rows, pt_error *e);

#endif
