/* low_rank.h - shared by optimizers that keep moments of few dimensions (apollo.c, galore.c). */
#ifndef PT_OPTIMIZER_LOW_RANK_H
#define PT_OPTIMIZER_LOW_RANK_H

#include "optimizer/optimizer.h"

/* Each matrix of part k. Its smaller side is projected onto `rank` dimensions. by_rows: that is the side of the columns, so what is left is
 * (rows, rank), else (rank, cols). A square matrix is by rows as Hugging Face stores it. */
typedef struct low_shape { int64_t rows, cols, small, large, rank; bool by_rows; } low_shape;
low_shape low_shape_of(const param *p, int k);

/* A matrix number of a part: its first value, and the stream of its random numbers, which follows from the tensor's name and the number. */
typedef struct low_matrix { low_shape s; char *hi; uint16_t *lo; const char *g; int64_t entries; uint32_t stream; } low_matrix;
/* entries: of this slab before it. */
low_matrix low_matrix_of(const update *u, const slab *s, int k, int64_t number);

/* r = P g, of a matrix by rows g P^T, in out_type; projection (rank, small) in the type of g. */
void low_project(queue *q, pt_dtype type, pt_dtype out_type, const low_shape *s, const void *projection, const void *g, void *r);

int64_t low_moments_of(const param *p, int k); /* entries of a slab (rank, large) */
double low_flops(const param *p);              /* of one projection */
double low_rate(const update_params *p);       /* lr sqrt(1 - beta2^t) / (1 - beta1^t) */

#endif
