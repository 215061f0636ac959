/* id_file.h - files that contain token ids.
 *
 *   .npy   NumPy's format 1.0, 2.0 or 3.0, one dimension, little-endian uint16, uint32, int32 or
 *          int64:   "\x93NUMPY" major minor header_length {'descr': ..., 'shape': (n,), } ids
 *   .bin   llm.c's token files: 256 int32 of header, then ids.
 *            header[0] = 20240520, header[1] = 1: uint16 ids (GPT-2)
 *            header[0] = 20240801, header[1] = 7: uint32 ids (Llama 3)
 *            header[2] = number of ids
 *
 * The size of the file must be exactly what the header says.
 */
#ifndef PT_DATA_ID_FILE_H
#define PT_DATA_ID_FILE_H

#include "data/files.h"

#include <stdbool.h>

typedef struct id_file {
    int fd;             /* owned by the caller */
    const char *path;   /* for messages */
    unsigned id_bytes;  /* 2, 4 or 8 */
    bool is_signed;
    bool marked;        /* the top bit of each id says that it is learned */
    uint64_t offset, n; /* byte of the first id; number of ids */
} id_file;

/* Reads and checks the header. kind: DATA_NPY or DATA_BIN. */
int id_file_open(int fd, const char *path, data_kind kind, id_file *out, pt_error *e);

#define ID_LEARNED (UINT32_C(1) << 31) /* flag of an id read from a marked file */

/* Reads ids [start, start + n). An id that is negative or >= vocab is an error with its index. */
int id_file_read(const id_file *f, uint64_t start, size_t n, int64_t vocab, uint32_t *out, pt_error *e);

#endif
