/* storage.h - how matrices are kept in few bits: the slabs of each format, and where they lie.
 *
 * A matrix of ours is made of one or more Hugging Face tensors (model.h), and each is quantized by itself, as it would be alone: its values
 * in the order (outputs, inputs) of its rows as they are stored there, blocks counted from its first value.
 *
 *     piece   [part 0: slab 0 | slab 1 | ...][part 1: slab 0 | slab 1 | ...]...     each slab begins at a multiple of 64 bytes
 *
 * A format is a row of the table; whatever counts bytes reads it. Products decode a matrix in stripes of rows (x . W^T) or of columns
 * (dy . W) into a buffer of the layer's workspace; where stripes begin follows from the matrix and the kind of device alone.
 */
#ifndef PT_STORAGE_H
#define PT_STORAGE_H

#include "model/shape.h"

enum { STORAGE_SLABS = 4, STORAGE_LINE = 64 };

typedef enum storage_unit { PER_VALUES, PER_ROW, PER_TENSOR } storage_unit;
typedef struct storage_slab {
    const char *name;
    int bits;           /* of an entry; 0 ends the slabs */
    storage_unit unit;
    int64_t values;     /* PER_VALUES: that share an entry */
} storage_slab;
typedef struct storage_format {
    const char *name;   /* --base */
    fewbit_kind kind;
    storage_slab slabs[STORAGE_SLABS];
} storage_format;

enum { NF4_CODES, NF4_ABSMAX, NF4_NESTED, NF4_OFFSET };
enum { INT8_CODES, INT8_SCALES };
const storage_format *storage_format_of(param_storage s); /* NULL of PLAIN */

/* Whether a parameter may be kept in few bits: a frozen matrix of a layer. */
static inline bool storage_fits(const param *p) { return !p->trainable && p->kind->use == USE_MATRIX && p->kind->block == BLOCK_LAYER; }
/* Keeps every such matrix so. PT_USAGE: there is none. */
int model_store(model *m, param_storage s, pt_error *e);
param_storage model_storage(const model *m); /* in which some of it is kept; PLAIN: none is */

/* Of a parameter that is not PLAIN. */
uint64_t storage_slab_bytes(const param *p, int part, int slab);
uint64_t storage_slab_at(const param *p, int part, int slab); /* bytes from the piece's beginning; part p->parts, slab 0: its end */
static inline uint64_t storage_bytes(const param *p) { return storage_slab_at(p, p->parts, 0); }

/* Rows of x . W^T, or columns of dy . W, that are decoded at a time: multiples of 64, or all. */
int64_t stripe_rows(const param *p, const step_shape *s);
int64_t stripe_cols(const param *p, const step_shape *s);
/* The buffer that a stage with this weight needs in any layer; 0: the weight is PLAIN in all of them. */
uint64_t stripe_bytes(const model *m, const step_shape *s, param_role weight);

/* The values of rows row0 .. that the op decodes beside each other, at most n: how many, and the op's place of the first (its out, ld, type
 * and cols are the caller's). `piece` is where the matrix lies. */
int64_t storage_run(const param *p, const char *piece, int64_t row0, int64_t n, op_dequantize *out);

#endif
