/* tensors.h - a model's parameters as llama.cpp's tensors: the rows of a parameter that each tensor consists of, and how they are
 * changed. */
#ifndef PT_GGUF_TENSORS_H
#define PT_GGUF_TENSORS_H

#include "gguf/family.h"
#include "model/weights.h"

/* Rows (or elements of a vector, or columns) in another order: from `first` on, blocks of slow x fast runs of `run` become blocks of fast x
 * slow ones. A block begins every `period` rows, and those between blocks stay; 0: there are none. slow 0: the same order. */
typedef struct gguf_turn { int64_t first, slow, fast, run, period; } gguf_turn;

/* Rows (or elements of a vector) before `end`, and behind those of the factor before it, are multiplied by `times`. */
typedef struct gguf_factor { int64_t end; float times; } gguf_factor;
enum { GGUF_FACTORS = 5 }; /* of a tensor; what is behind the last one has none */

typedef struct gguf_tensor {
    char name[64];
    int layer;            /* -1: of none */
    gguf_type type;
    bool whole;           /* F32 in every file */
    bool plain;           /* never in blocks: F16 beside them */
    int param;            /* -1: `values`, or zeros if that is NULL */
    int64_t row0, rows, cols; /* of the parameter; for a vector: elements [row0, row0 + cols) */
    bool vector;
    int64_t experts;      /* one matrix of rows / experts for each; 0: no dimension of experts */
    int64_t skipped;      /* rows of the parameter between those of two experts, which are of another tensor */
    int64_t stride;       /* from one row of the tensor to the next in the parameter */
    gguf_turn turn;
    bool columns;         /* `turn` is of columns, not of rows or elements */
    int64_t split;        /* a vector's elements are rows of so many; 0: one dimension */
    bool negative_exp;    /* -exp(x) */
    gguf_factor factor[GGUF_FACTORS]; /* end 0: no further one */
    float offset;         /* added afterwards */
    const float *values;
} gguf_tensor;

typedef struct gguf_tensors {
    gguf_tensor *list;
    int n, capacity;
    float *factors;       /* owns what `values` point to */
    int unblocked;        /* tensors whose rows are not whole blocks of the type that they would have */
} gguf_tensors;

/* Of no type yet: mixture.h chooses that of all that are not F32 in every file. */
int gguf_tensors_list(gguf_tensors *t, const model *m, const gguf_family *f, pt_error *e);
void gguf_tensors_free(gguf_tensors *t);

/* Writes all tensors, in order, of rows that `get` gives. `done` (may be NULL) is called with the bytes written so far. Needs a few MiB of
 * memory, plus one matrix if the model stores matrices transposed. */
int gguf_tensors_write(gguf_writer *writer, const gguf_tensors *t, const model *m, weights_getter get, void *get_arg,
                       void (*done)(void *arg, uint64_t bytes), void *arg, pt_error *e);

#endif
