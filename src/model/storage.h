/* storage.h - formats of matrices in few bits: their slabs, and where these lie.
 *
 * A matrix consists of one or more Hugging Face tensors (model.h). Each is quantized by itself: its values as (outputs, inputs), with its
 * rows in stored order, and blocks counted from its first value.
 *
 *     piece   [part 0: slab 0 | slab 1 | ...][part 1: slab 0 | slab 1 | ...]...     each slab begins at a multiple of 64 bytes
 *
 * A piece may hold a range of a matrix's rows, of whole experts: then its slabs have the entries of these rows, as they are in the whole
 * matrix's slabs. What a tensor has once, each of its pieces has.
 *
 * A format is a row of the table, which all code that counts bytes reads. Matmuls decode a matrix in stripes of rows (x . W^T) or columns
 * (dy . W) into a buffer of the layer's workspace; the stripes depend only on the matrix and the kind of device.
 */
#ifndef PT_STORAGE_H
#define PT_STORAGE_H

#include "model/shape.h"

enum { STORAGE_SLABS = 4, STORAGE_LINE = 64 };

typedef enum storage_unit { PER_VALUES, PER_ROW, PER_TENSOR } storage_unit;
typedef struct storage_slab {
    const char *name;
    int bits;           /* per entry; 0 ends the slabs */
    storage_unit unit;
    int64_t values;     /* PER_VALUES: values per entry */
} storage_slab;
typedef struct storage_format {
    const char *name;   /* --base */
    fewbit_kind kind;
    storage_slab slabs[STORAGE_SLABS];
} storage_format;

enum { NF4_CODES, NF4_ABSMAX, NF4_NESTED, NF4_OFFSET };
enum { INT8_CODES, INT8_SCALES };
enum { MXFP4_CODES, MXFP4_SCALES };
const storage_format *storage_format_of(param_storage s); /* NULL for PLAIN */
param_storage storage_named(const char *name);            /* PLAIN: no format has that name */

/* May a parameter be kept in few bits? Yes for a frozen matrix of a layer, and for its experts'. */
static inline bool storage_fits(const param *p)
{
    return !p->trainable && (p->kind->use == USE_MATRIX || p->kind->use == USE_EXPERTS) && p->kind->block == BLOCK_LAYER;
}
/* Sets the format of every such matrix. PT_USAGE: there is none. */
int model_store(model *m, param_storage s, pt_error *e);
param_storage model_storage(const model *m); /* the format of its matrices in few bits; PLAIN: there are none */

/* The rows of a parameter that a piece holds. */
typedef struct storage_rows { int64_t row0, rows; } storage_rows;
static inline storage_rows storage_all_rows(const param *p) { return (storage_rows){0, p->rows}; }

/* A parameter of so many experts may be divided into pieces of multiples of so many of them; 0: it may not. PLAIN: 1. */
int64_t storage_experts_step(const param *p, int64_t experts);

/* For parameters that are not PLAIN: */
uint64_t storage_rows_slab_bytes(const param *p, storage_rows held, int part, int slab);
uint64_t storage_rows_slab_at(const param *p, storage_rows held, int part, int slab);
    /* bytes from the piece's beginning; part p->parts, slab 0: its end */
static inline uint64_t storage_rows_bytes(const param *p, storage_rows held) { return storage_rows_slab_at(p, held, p->parts, 0); }
/* The same of a piece of all rows. */
static inline uint64_t storage_slab_bytes(const param *p, int part, int slab)
{
    return storage_rows_slab_bytes(p, storage_all_rows(p), part, slab);
}
static inline uint64_t storage_slab_at(const param *p, int part, int slab)
{
    return storage_rows_slab_at(p, storage_all_rows(p), part, slab);
}
static inline uint64_t storage_bytes(const param *p) { return storage_slab_at(p, p->parts, 0); }
/* Where the first of these entries is among those of all rows: bytes from the slab's beginning. */
uint64_t storage_rows_skipped(const param *p, storage_rows held, int part, int slab);

/* Rows for x . W^T, or columns for dy . W, that are decoded at a time: multiples of 64, or all. */
int64_t stripe_rows(const param *p, const step_shape *shape);
int64_t stripe_cols(const param *p, const step_shape *shape);
uint64_t stripe_bytes(const param *p, const step_shape *shape); /* of a buffer for either; 0: the parameter is PLAIN */

/* Fills the fields of an op that decodes rows from row0 on, except out, ld, type and cols. Returns how many rows it decodes, at most n,
 * because the rows of an op must be contiguous. `piece`: address of the piece that holds them. */
int64_t storage_run(const param *p, storage_rows held, const char *piece, int64_t row0, int64_t n, op_dequantize *out);

#endif
