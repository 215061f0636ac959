/* documents.h - reads the documents of a .txt, .jsonl, .json, .csv, .parquet or .arrow file in order, in memory that does not grow with the
 * file.
 *
 *   .txt     the whole file, byte for byte, is one document
 *   .jsonl   each line is an object, which is a record. Empty lines are skipped
 *   .json    one array of such objects; a scanner of strings, escapes and brackets finds its elements; each is parsed separately
 *   .csv     the first row has the names; each further row is an object of strings (csv.h)
 *   .parquet each row is an object (parquet.h), whose line is its number; so in .arrow (arrow.h)
 *
 * A document is the "text" of a record, or the record itself as JSON, if the caller wants records. A record may have at most
 * DOCUMENT_RECORD_MAX bytes.
 */
#ifndef PT_DATA_DOCUMENTS_H
#define PT_DATA_DOCUMENTS_H

#include "data/columns.h"
#include "data/files.h"
#include "text/buffer.h"

#include <jansson.h>

enum { DOCUMENT_RECORD_MAX = 256 << 20 };

/* Where a record begins, from 1. Line 0: a .txt has no records. Column 0: a record of a .csv or of a table */
typedef struct record_place {
    uint64_t line, column;
} record_place;

typedef enum document_form { DOCUMENT_TEXT, DOCUMENT_RECORD } document_form;

/* Receives the documents. Records that are passed on as JSON have their own keys. A negative code from a callback ends the reading with
 * it. */
typedef struct document_sink {
    void *arg;
    int (*begin)(void *arg, record_place at, pt_error *e);
    /* The next bytes of the document. file_bytes: bytes of the file read so far. */
    int (*text)(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e);
    int (*end)(void *arg, pt_error *e);
    /* Before begin, of a record whose "text" is the document: its other keys, and that text. May be NULL. */
    int (*record)(void *arg, record_place at, const json_t *rest, const text_buffer *text, pt_error *e);
    double share;                /* of the records, evenly spread, the first included; 0: all */
    const column_names *columns; /* other names of keys, before "text" is looked for; NULL: none */
} document_sink;

/* Reads fd from its position to its end; what path, by its end, says is compressed is unpacked (unpack.h). Errors name path, line and
 * column. Records of .jsonl and .json are passed on unparsed. */
int documents_read(int fd, const char *path, data_kind kind, document_form form, const document_sink *sink, pt_error *e);

/* Parses a record into an object, a new reference. Invalid JSON, or another type than an object, is an error with line and column. */
int record_parse(const char *path, record_place at, const char *p, size_t n, json_t **out, pt_error *e);

/* "a, b, c" for messages: the first keys of a record, without control characters. */
void record_keys(json_t *record, char *out, size_t size);

#endif
