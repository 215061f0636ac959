/* merged.h - the rows of a model's parameters with adapters merged into them.
 *
 *     W' = W + sum of weight s B A        with magnitudes m (DoRA, one adapter): each row of that times m / its norm
 *
 * in fp32. A few rows at a time are in memory, and A and B of one matrix of each adapter. The head and the embedding have no adapter
 * (model/adapter.h), so a tied model stays tied; modules that were trained in full beside the adapter are the adapter's. */
#ifndef PT_INFER_MERGED_H
#define PT_INFER_MERGED_H

#include "base/dtype.h"
#include "base/error.h"
#include "model/model.h"

struct safetensors;

typedef struct merged_adapter {
    const model *m;             /* the base with this adapter */
    const struct safetensors *weights;
    const char *folder;
    float weight;               /* of its part in the sum; 1 with magnitudes */
    int index;                  /* the matrix (of m) whose adapter is in memory; -1: none */
    float *a, *b[MODEL_MAX_PARTS], *magnitude;
} merged_adapter;

typedef struct merged {
    const model *m;             /* with the first adapter, if there is one: parameters have its numbers */
    const struct safetensors *base;
    merged_adapter *of;
    int n;
    pt_dtype type;              /* to which rows are rounded later: they must be finite in it */
    char *read;
} merged;

int merged_open(merged *x, pt_error *e); /* with all but `read` set, and of each adapter the first four fields */
void merged_close(merged *x);
/* A weights_getter (model/weights.h) of a `merged`. */
int merged_rows(void *x, int index, int64_t row0, int64_t n, float *out, pt_error *e);

#endif
