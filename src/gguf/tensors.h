/* tensors.h - a model's parameters as llama.cpp's tensors: which rows of which parameter each is, and what is done to them on the way. */
#ifndef PT_GGUF_TENSORS_H
#define PT_GGUF_TENSORS_H

#include "gguf/family.h"

typedef struct gguf_tensor {
    char name[64];
    gguf_type type;
    int param;            /* -1: `values`, or zeros where there are none */
    int64_t row0, rows, cols; /* of the parameter; of a vector, one row: col0 = row0, and cols of them */
    bool vector;
    int64_t head;         /* rows of a head, to be put pair by pair; 0: as they are */
    int64_t scaled;       /* its first rows (of a vector: elements) are multiplied by `scale` */
    float scale, offset;
    const float *values;
} gguf_tensor;

typedef struct gguf_tensors {
    gguf_tensor *list;
    int n, capacity;
    float *factors;       /* what `values` point to */
    int unblocked;        /* tensors that were to be Q8_0 and are F16: their rows are no whole blocks */
} gguf_tensors;

int gguf_tensors_list(gguf_tensors *t, const model *m, const gguf_family *f, gguf_type type, pt_error *e);
void gguf_tensors_free(gguf_tensors *t);

struct safetensors;
/* Appends all of them, in order. `done` (may be NULL) is called with bytes of the file. Memory: some MiB, and one matrix of a model that
 * stores them transposed. */
int gguf_tensors_write(gguf_writer *w, const gguf_tensors *t, const model *m, const struct safetensors *st,
                       void (*done)(void *arg, uint64_t bytes), void *arg, pt_error *e);

#endif
