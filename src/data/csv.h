/* csv.h - rows of CSV by RFC 4180, strictly: a quoted field that does not end as it should is an error with its line, never a guess. Bytes
 * come in pieces of any size; a row is returned when its end has been seen.
 *
 *     csv_reader c = {.line = 1};
 *     while ((rc = csv_take(&c, p, n, &used, e)) > 0) ...   a row: csv_field(&c, i); `used` bytes of p belong to it
 *     if (rc == 0 && (rc = csv_end(&c, e)) > 0) ...         the last row, which no newline ends
 *
 * A field that begins with a quote ends with the next quote that is not doubled, and may contain commas and newlines; any other field
 * has no quotes. A row ends with LF or CR LF. Empty lines are not rows. */
#ifndef PT_DATA_CSV_H
#define PT_DATA_CSV_H

#include "text/buffer.h"

enum { CSV_ROW_MAX = 256 << 20, CSV_FIELDS_MAX = 4096 };

typedef enum csv_state { CSV_START, CSV_BARE, CSV_QUOTED, CSV_QUOTE, CSV_RETURN } csv_state;

typedef struct csv_reader { /* zero but for line = 1; free with csv_free */
    csv_state state;
    bool done, quoted;   /* the row was returned; it has a quoted field */
    text_buffer text;    /* of the fields, concatenated */
    size_t *ends;        /* of each field in the text */
    size_t fields_n, capacity;
    uint64_t line;       /* of the next byte */
    uint64_t row_line, quote_line; /* where the row began, and the quoted field */
} csv_reader;

typedef struct csv_slice { const char *p; size_t n; } csv_slice;

/* 1: a complete row; 0: all n bytes are used, and more are needed; else an error, which names the line but not the file. */
int csv_take(csv_reader *c, const char *p, size_t n, size_t *used, pt_error *e);
int csv_end(csv_reader *c, pt_error *e); /* end of the file: 1: a last row; 0: none */
csv_slice csv_field(const csv_reader *c, size_t i);
void csv_free(csv_reader *c);

#endif
