/* row_text.h - rows of tables (Parquet, Arrow) as JSON, one object a row. */
#ifndef PT_DATA_ROW_TEXT_H
#define PT_DATA_ROW_TEXT_H

#include "text/buffer.h"

#include <stdbool.h>

/* Receives the rows of a table in order, from 1. file_bytes: bytes of the file read so far. A negative code ends the reading with it. */
typedef struct row_sink {
    void *arg;
    int (*row)(void *arg, uint64_t row, const text_buffer *json, uint64_t file_bytes, pt_error *e);
} row_sink;

/* What writing a value returns if nothing was written: null, or what JSON cannot hold. An object then lacks the key, as in JSONL. */
enum { ROW_NOTHING = 1 };

int row_string(text_buffer *out, const char *p, size_t n, pt_error *e); /* UTF-8 */
int row_bytes(text_buffer *out, const char *p, size_t n, pt_error *e);  /* ROW_NOTHING: not UTF-8 */
int row_signed(text_buffer *out, int64_t value, pt_error *e);
int row_unsigned(text_buffer *out, uint64_t value, pt_error *e);
int row_real(text_buffer *out, double value, pt_error *e); /* ROW_NOTHING: infinite, or not a number */
int row_word(text_buffer *out, const char *word, pt_error *e); /* true, false, null, and brackets */
int row_comma(text_buffer *out, pt_error *e); /* unless a bracket has just been opened */

#endif
