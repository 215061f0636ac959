/* arrow.h - reads Arrow's IPC files and streams row by row, in memory for one record batch and the dictionaries. The file's own index is
 * not needed: its batches are a stream.
 *
 *   arrow_schema.c    the schema (flat.h)
 *   arrow.c           messages: record batches, and the dictionaries that they refer to
 *   arrow_batch.c     the buffers of a record batch
 *   arrow_rows.c      from buffers to rows
 *
 * Read are all types but unions, uncompressed, by LZ4 or by Zstandard. Values are as from Parquet (parquet.h). */
#ifndef PT_DATA_ARROW_H
#define PT_DATA_ARROW_H

#include "data/row_text.h"

/* Errors name path, row and column. */
int arrow_read(int fd, const char *path, const row_sink *sink, pt_error *e);

#endif
