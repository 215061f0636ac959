/* merged.h - the rows of a model's parameters with an adapter merged into them.
 *
 *     W' = W + s B A               with magnitudes m (DoRA): each row of that times m / its norm
 *
 * in fp32. A few rows at a time are in memory, and A and B of one matrix. The head and the embedding have no adapter (model/adapter.h), so
 * a tied model stays tied. */
#ifndef PT_INFER_MERGED_H
#define PT_INFER_MERGED_H

#include "base/dtype.h"
#include "base/error.h"
#include "model/model.h"

struct safetensors;

typedef struct merged {
    const model *m;
    const struct safetensors *base, *adapter; /* adapter NULL: none */
    const char *folder;         /* of the adapter */
    pt_dtype type;              /* to which rows are rounded later: they must be finite in it */
    char *read;
    int index;                  /* the matrix whose adapter is in memory; -1: none */
    float *a, *b[MODEL_MAX_PARTS], *magnitude;
} merged;

int merged_open(merged *x, pt_error *e); /* with the first five fields set */
void merged_close(merged *x);
/* A weights_getter (model/weights.h) of a `merged`. */
int merged_rows(void *x, int index, int64_t row0, int64_t n, float *out, pt_error *e);

#endif
