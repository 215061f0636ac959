/* few_bits.h - what values become that are kept in few bits. */
#ifndef PT_TEST_FEW_BITS_H
#define PT_TEST_FEW_BITS_H

#include "model/quantize.h"

#include <stdlib.h>
#include <string.h>

typedef struct few_bits { const param *p; const float *values; char *piece; } few_bits;

static inline int few_bits_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const few_bits *f = arg;
    memcpy(out, f->values + row0 * f->p->cols, (size_t)(n_rows * f->p->cols) * sizeof *out);
    return 0;
}

static inline int few_bits_put(void *arg, uint64_t at, const void *bytes, size_t n, pt_error *e)
{
    memcpy(((few_bits *)arg)->piece + at, bytes, n);
    return 0;
}

/* All values of parameter `index` as a piece of memory, to be freed; `rows` are quantized at a time. NULL: out of memory, or refused. */
static inline char *few_bits_piece(const model *m, int index, const float *values, int64_t rows, pt_error *e)
{
    const param *p = &m->params[index];
    const size_t floats = (size_t)(rows * p->cols);
    few_bits f = {p, values, calloc(1, storage_bytes(p))};
    float *room = malloc(floats * sizeof *room);
    if (!f.piece || !room || quantize(m, index, &(quantize_io){few_bits_rows, few_bits_put, NULL, &f}, room, floats, e)) {
        free(f.piece);
        f.piece = NULL;
    }
    free(room);
    return f.piece;
}

#endif
