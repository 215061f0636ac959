/* moment_map.h - the "dynamic" 8-bit data type of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2021), for numbers from
 * -1 to 1 (or from 0 to 1).
 *
 * Each decade from 1e-7 .. 1e-6 to 0.1 .. 1 has twice as many numbers as the previous one: the centres of equal parts of the decade. 0 and
 * 1 are added.
 *
 *     1e-6         1e-5             1e-4      ...    0.1                                                     1
 *      |     .      |   .    .       |  .  .  .  .    | . . . . . . . . . . . . . . . . . . . . . . . . . . . .|
 *
 * A number gets the code of the nearest value; ties go to the lower one. A positive second moment never gets the code of 0, because the
 * update would divide by eps alone. The map is computed in fp32, and is the same on every machine.
 */
#ifndef PT_MOMENT_MAP_H
#define PT_MOMENT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MOMENT_CODES = 256 };
/* Buckets: the upper halves of fp32 from 2^-24, below which there is only 0, to 1, for each sign. Within a bucket the code changes at most
 * once. */
enum { MOMENT_BUCKET_LEAST = 0x3380, MOMENT_BUCKETS = 0x3f80 - MOMENT_BUCKET_LEAST + 1 };

typedef struct moment_map {
    float value[MOMENT_CODES];  /* ascending */
    float middle[MOMENT_CODES]; /* numbers above middle[i] have a code above i; the last is above all numbers */
    uint8_t start[2][MOMENT_BUCKETS + 3]; /* code of a bucket's lowest number; [1]: negative numbers. Padded for 4-byte reads */
} moment_map;

/* The map of first moments (signed) or of second moments. */
const moment_map *moment_map_get(bool is_signed);

/* The code of the nearest value; 0 for NaN. */
static inline int moment_nearest(const float middle[MOMENT_CODES], float x)
{
    int low = 0;
    for (int step = MOMENT_CODES / 2; step; step /= 2)
        low += x > middle[low + step - 1] ? step : 0;
    return low;
}

#ifdef __cplusplus
}
#endif

#endif
