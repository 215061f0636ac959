/* tiles.h - divides ops into tiles, by their shape alone, so that sums over a tile do not depend on the number of threads. */
#ifndef PT_CPU_TILES_H
#define PT_CPU_TILES_H

#include <stdint.h>

enum { TILE_ELEMENTS = 16384 }; /* large compared with the cost of taking a tile, small compared with a cache */

static inline int64_t tiles_of(int64_t n, int64_t size) { return (n + size - 1) / size; }

static inline int64_t tile_end(int64_t n, int64_t size, int64_t tile)
{
    int64_t end = (tile + 1) * size;
    return end < n ? end : n;
}

/* The number of rows of this many elements in a tile; at least one. */
static inline int64_t rows_per_tile(int64_t elements)
{
    return elements < TILE_ELEMENTS ? TILE_ELEMENTS / (elements ? elements : 1) : 1;
}

#endif
