/* cut.h - where parameters are cut into pieces: the vocabulary's tables between the slices of the loss head, and the matrices of a layer's
 * experts, if they are larger than a chunk, between experts, into at most 8 ranges of equally many (the last may have fewer). */
#ifndef PT_CUT_H
#define PT_CUT_H

#include "plan/pack.h"

enum { CUT_VALUES = 256 }; /* values in a block of states */
_Static_assert(CUT_VALUES % ADAMW8BIT_BLOCK == 0, "blocks of states do not cross shards");

/* Rows between two places where trained values may be cut: partial sums of squares and blocks of states end there. */
int64_t cut_rows(const param *a);
/* Rows of each piece of a parameter but the last; limit: elements of a chunk. */
int64_t cut_piece_rows(const packing *packing, const model *m, const step_shape *shape, const param *a, int64_t limit);

#endif
