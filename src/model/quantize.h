/* quantize.h - values of a matrix into few bits, row by row as they are read, and back. Which slabs there are: storage.h. */
#ifndef PT_QUANTIZE_H
#define PT_QUANTIZE_H

#include "model/storage.h"

/* Rows of parameter `index` as fp32 (weights.h, weights_getter), and where bytes of its piece go. */
typedef struct quantize_io {
    int (*rows)(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e);
    int (*put)(void *arg, uint64_t at, const void *bytes, size_t n, pt_error *e);
    int (*take)(void *arg, int index, int part, pt_error *e); /* 1: puts the part as it is stored; 0: cannot. NULL: never can */
    void *arg;
} quantize_io;

/* The whole parameter. room: floats to work in, at least 64 rows of them. Besides it takes 1/16 byte a value of its largest part, which
 * the magnitudes of NF4's blocks have to wait in for their mean. */
int quantize(const model *m, int index, const quantize_io *io, float *room, size_t room_floats, pt_error *e);

/* Blocks of NF4, as bitsandbytes' own code makes them (docs/numerics.md). n values begin at a block; `codes` may lie over the values.
 * absmax: of each block. */
void nf4_encode(const float *values, int64_t n, uint8_t *codes, float *absmax);
/* Magnitudes into 8 bits, 256 with a scale each; they are less *offset, their mean. `codes` may lie over the magnitudes. */
float nf4_mean(const float *absmax, int64_t n);
void nf4_encode_absmax(const float *absmax, int64_t n, float offset, uint8_t *codes, float *nested);
/* A row. */
void int8_encode(const float *values, int64_t n, uint8_t *codes, float *scale);

/* What OP_DEQUANTIZE makes, in fp32, one value after the other: for checks, and where speed is nothing. */
void dequantize_rows(const param *p, const char *piece, int64_t row0, int64_t n_rows, float *out);

#endif
