/* moment_map.h - numbers from -1 to 1 (or from 0 to 1) in 8 bits, most of them small: the "dynamic" data type of Dettmers et al., "8-bit
 * Optimizers via Block-wise Quantization" (2021).
 *
 * Of each decade from 1e-7 .. 1e-6 to 0.1 .. 1 it has twice as many numbers as of the one below: the centres of as many equal parts of
 * it. Beside these there are 0 and 1.
 *
 *     1e-6         1e-5             1e-4      ...    0.1                                                     1
 *      |     .      |   .    .       |  .  .  .  .    | . . . . . . . . . . . . . . . . . . . . . . . . . . . .|
 *
 * A number becomes the code of the nearest one, of two as near the lower. A negative number never becomes 0, so that a first moment
 * keeps its sign. Computed in fp32, the same on every machine.
 */
#ifndef PT_MOMENT_MAP_H
#define PT_MOMENT_MAP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MOMENT_CODES = 256 };
/* The upper halves of fp32 from 2^-24, below which there is 0 alone, to 1: of each sign. Within one the code changes once at most. */
enum { MOMENT_BUCKET_LEAST = 0x3380, MOMENT_BUCKETS = 0x3f80 - MOMENT_BUCKET_LEAST + 1 };

typedef struct moment_map {
    float value[MOMENT_CODES];  /* ascending */
    float middle[MOMENT_CODES]; /* what is above middle[i] has a code above i; the last is above all */
    uint8_t zero;               /* the code of 0 */
    uint8_t start[2][MOMENT_BUCKETS + 3]; /* code of a bucket's lowest number; [1]: of negative ones. 4 bytes can be read of the last */
} moment_map;

/* Of first moments, signed, and of second ones. */
const moment_map *moment_map_get(bool is_signed);

/* The code of the value that is nearest; NaN has code 0. */
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
