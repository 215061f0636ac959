/* unpack.h - the bytes of a file in order; of a .gz or .zst file (RFC 1952, RFC 8878), the bytes that it holds. In memory that does not
 * grow with the file. Several streams one after the other, as `cat a.gz b.gz` writes them, are one. */
#ifndef PT_DATA_UNPACK_H
#define PT_DATA_UNPACK_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef enum data_packing { PACKING_NONE, PACKING_GZIP, PACKING_ZSTD } data_packing;

/* By the end of a name; *length: of the name without it. */
data_packing packing_of_name(const char *name, size_t *length);

typedef struct unpack unpack;

/* Reads fd from its position on; `path` is for errors and must outlive the reader. */
int unpack_open(int fd, const char *path, data_packing packing, unpack **out, pt_error *e);
/* *n = up to `room` bytes at p; 0 only at the end. PT_FAILED: the file cannot be read, or is damaged or cut off. */
int unpack_read(unpack *u, void *p, size_t room, size_t *n, pt_error *e);
uint64_t unpack_file_bytes(const unpack *u); /* read from the file so far */
void unpack_close(unpack *u);

/* ---- blocks in memory, of a known size when unpacked ---- */

typedef enum block_packing { BLOCK_PLAIN, BLOCK_SNAPPY, BLOCK_GZIP, BLOCK_ZSTD, BLOCK_BROTLI, BLOCK_LZ4, BLOCK_LZ4_FRAME } block_packing;

/* Fills the m bytes at `out`. NULL, or what is wrong. */
const char *unpack_block(block_packing packing, const void *p, size_t n, void *out, size_t m);

#endif
