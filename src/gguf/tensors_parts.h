/* tensors_parts.h - shared by the files that list the tensors of a GGUF file. */
#ifndef PT_GGUF_TENSORS_PARTS_H
#define PT_GGUF_TENSORS_PARTS_H

#include "gguf/tensors.h"

typedef struct gguf_lister {
    gguf_tensors *t;
    const model *m;
    const gguf_family *f;
    pt_error *e;
    int failed;
} gguf_lister;

/* Adds rows [row0, row0 + rows) of parameter i, or elements of a vector; rows = 0: all. NULL: no memory. */
gguf_tensor *gguf_add_part(gguf_lister *l, int i, int layer, const char *kind, int64_t row0, int64_t rows);

/* Multiplies the next n rows, or elements of a vector. t may be NULL. */
void gguf_multiply(gguf_tensor *t, int64_t n, float times);

/* The parameters of a layer with experts beside its norms and attention; false: it is another one (experts.c). */
bool gguf_add_sparse(gguf_lister *l, int i, int layer);

#endif
