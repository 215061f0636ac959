/* parquet.h - reads Parquet files (Apache Parquet format, versions 1 and 2) row by row, in memory for one page of each column.
 *
 *   parquet_meta.c     the footer: the schema, and the row groups one after the other
 *   parquet_pages.c    a column of a row group: pages, dictionary, repetition and definition levels (Melnik et al. 2010)
 *   parquet_values.c   the encodings of values
 *   parquet_rows.c     from the columns' levels to rows
 *
 * Read are pages of both versions; the codecs Snappy, gzip, Brotli, Zstandard, LZ4 (not in Hadoop's frames) and none; the encodings plain,
 * dictionary, RLE, the three deltas and byte stream split; all physical types; lists (also as older writers nest them), maps (as lists of
 * "key" and "value") and structs. Dates and times are the integers that the file stores. Decimals, half-precision numbers, and bytes that
 * are not UTF-8 read as null. */
#ifndef PT_DATA_PARQUET_H
#define PT_DATA_PARQUET_H

#include "data/row_text.h"

/* Errors name path, row and column. */
int parquet_read(int fd, const char *path, const row_sink *sink, pt_error *e);

#endif
