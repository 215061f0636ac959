/* lattice_table.h - the generating vector of the rank-1 lattices. */
#ifndef PT_LATTICE_TABLE_H
#define PT_LATTICE_TABLE_H

#include <stdint.h>

enum { LATTICE_DIMENSIONS = 256, LATTICE_POINTS_LOG2 = 18 }; /* for more than 2^18 points it is a vector like any other */
extern const uint32_t lattice_vector[LATTICE_DIMENSIONS];

#endif
