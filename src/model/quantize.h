/* quantize.h - quantizes a matrix into few bits, row by row as it is read, and decodes it. storage.h has the slabs. */
#ifndef PT_QUANTIZE_H
#define PT_QUANTIZE_H

#include "model/storage.h"

/* Source of rows of parameter `index` as fp32 (weights.h, weights_getter), and destination of bytes of its piece. */
typedef struct quantize_io {
    int (*rows)(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e);
    int (*put)(void *arg, uint64_t at, const void *bytes, size_t n, pt_error *e);
    int (*take)(void *arg, int index, int part, pt_error *e); /* 1: writes the part as it is stored; 0: cannot. NULL: never can */
    void *arg;
} quantize_io;

/* Quantizes the whole parameter. room: scratch floats, at least 64 rows of them. It also allocates 1/16 byte per value of the largest part,
 * for the magnitudes of NF4's blocks, which need their mean. */
int quantize(const model *m, int index, const quantize_io *io, float *room, size_t room_floats, pt_error *e);

/* Quantizes blocks of NF4, as bitsandbytes' own code does (docs/numerics.md). n values from a block's beginning; `codes` may overlap the
 * values. absmax: one per block. */
void nf4_encode(const float *values, int64_t n, uint8_t *codes, float *absmax);
/* Quantizes magnitudes, less their mean *offset, to 8 bits, with a scale per 256. `codes` may overlap the magnitudes. */
float nf4_mean(const float *absmax, int64_t n);
void nf4_encode_absmax(const float *absmax, int64_t n, float offset, uint8_t *codes, float *nested);
/* Quantizes blocks of MXFP4: the exponent is that of the largest magnitude less 2. n values from a block's beginning, finite; `codes` may
 * overlap the values. scales: one per block, at most MXFP4_MOST_SCALE, above which values would overflow. */
enum { MXFP4_MOST_SCALE = 252 };
void mxfp4_encode(const float *values, int64_t n, uint8_t *codes, uint8_t *scales);
/* Quantizes a row. */
void int8_encode(const float *values, int64_t n, uint8_t *codes, float *scale);

/* The result of OP_DEQUANTIZE in fp32, value by value: for checks, and where speed does not matter. */
void dequantize_rows(const param *p, const char *piece, int64_t row0, int64_t n_rows, float *out);

#endif
