/* disk_rows.h - rows of a table in the disk tier's file, read by their numbers: few rows of a table that is too large to be read whole.
 *
 * A row lies anywhere among the file's blocks, so the blocks around it are read first, many rows at once, and the row is copied from there.
 * A number that comes again is copied from the first. Nothing allocates after open.
 */
#ifndef PT_DISK_ROWS_H
#define PT_DISK_ROWS_H

#include "io/disk.h"

typedef struct disk_rows disk_rows;

/* Rows row0 .. row0 + rows of a table, in the file from `offset` on, without gaps. */
typedef struct disk_table { uint64_t offset; int64_t row0, rows; } disk_table;

/* Reads by a channel, which must stay open; up to `most` numbers at a time. */
int disk_rows_open(disk_channel *channel, size_t row_bytes, int64_t most, disk_rows **out, pt_error *e);
void disk_rows_close(disk_rows *r);
/* out[i] = the row ids[i], for those that are among the table's rows; the others are left as they are. Blocking. */
int disk_rows_read(disk_rows *r, const disk_table *t, const int32_t *ids, int64_t n, void *out, pt_error *e);
/* Bytes of the blocks around a row, at most. */
size_t disk_row_blocks(size_t row_bytes);

#endif
