/* low_rank.h - shared by optimizers that keep moments of few dimensions (apollo.c, galore.c). */
#ifndef PT_OPTIMIZER_LOW_RANK_H
#define PT_OPTIMIZER_LOW_RANK_H

#include "optimizer/optimizer.h"

/* Each matrix of part k. Its smaller side is projected onto `rank` dimensions. by_rows: that is the side of the columns, so what is left is
 * (rows, rank), else (rank, cols). A square matrix is by rows as Hugging Face stores it. */
typedef struct low_shape { int64_t rows, cols, small, large, rank; bool by_rows; } low_shape;
low_shape low_shape_of(const param *p, int k);

/* A matrix number of a part: its first value, and the stream of its random numbers, which follows from the tensor's name and the number. */
typedef struct low_matrix { low_shape s; char *hi; uint16_t *lo; const char *g; uint32_t stream; } low_matrix;
low_matrix low_matrix_of(const update *u, int k, int64_t number);
/* Entries of a slab before its own. */
int64_t low_entries_before(const update *u, const slab *slab, int k, int64_t number);

/* r = P g, of a matrix by rows g P^T, in out_type; projection (rank, small) in the type of g. */
void low_project(queue *q, pt_dtype type, pt_dtype out_type, const low_shape *s, const void *projection, const void *g, void *r);

/* The moments of a matrix during its update: its entries of slabs 0 and 1, or in the workspace where these slabs have codes (8 bits, in
 * blocks of ADAMW8BIT_BLOCK values from the matrix's first on, and slab 2 their scales; device.h, op_moment_codes). */
typedef struct low_moments { float *m, *v; op_moment_codes codes; } low_moments;
/* decoded: low_decoded() values. */
low_moments low_moments_open(queue *q, const update *u, const update_rule *r, int k, int64_t number, float *decoded);
void low_moments_close(queue *q, const low_moments *m);
static inline bool low_is_in_codes(const update_rule *r) { return r->slabs[0].type == PT_U8; }
static inline int64_t low_decoded(const low_shape *s, bool in_codes) { return in_codes ? 2 * s->rank * s->large : 0; }
/* Parameters with a matrix of fewer than 1024 moments keep them in fp32. */
bool low_fits_codes(const param *p);

/* Entries of a slab: moments (rank, large), their codes in whole blocks, two scales a block. */
int64_t low_moments_of(const param *p, int k);
int64_t low_codes_of(const param *p, int k);
int64_t low_scales_of(const param *p, int k);
double low_flops(const param *p);              /* of one projection */
double low_rate(const update_params *p);       /* lr sqrt(1 - beta2^t) / (1 - beta1^t) */

#endif
