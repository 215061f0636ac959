/* row_blocks.h - sums over rows in two steps: each block of rows has its own sums, and blocks_add adds them, ascending. The op's shape
 * alone determines the blocks, so that a sum does not depend on the number of threads. */
#ifndef PT_ROW_BLOCKS_H
#define PT_ROW_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum { TOTAL_COLUMNS = 256 /* the most that one call adds */ };

/* out[i] (+)= sum over blocks of sums[block * stride + i], i = begin .. end */
static inline void blocks_add(const float *sums, int64_t stride, int64_t blocks, int64_t begin, int64_t end, bool accumulate, float *out)
{
    float total[TOTAL_COLUMNS] = {0};
    for (int64_t block = 0; block < blocks; block++)
        for (int64_t i = begin; i < end; i++)
            total[i - begin] += sums[block * stride + i];
    for (int64_t i = begin; i < end; i++)
        out[i] = accumulate ? out[i] + total[i - begin] : total[i - begin];
}

#endif
