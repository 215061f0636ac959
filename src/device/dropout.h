/* dropout.h - which values dropout keeps, and the noise of embeddings; shared by all backends.
 *
 * A value's 32 random bits follow from a key, its row and its column alone, as SplitMix64 (Steele et al., 2014) at a position: it is kept
 * if they are at least p * 2^32. So the choice does not depend on who computes the row, when, and how often. Noise is uniform: the bits are
 * a signed integer, rounded to fp32, times a factor.
 */
#ifndef PT_DEVICE_DROPOUT_H
#define PT_DEVICE_DROPOUT_H

#include "device/call.h"

#include <stdint.h>

/* A bijection: different values stay different. */
DEVICE_CALL uint64_t dropout_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The key of a part of what `key` is for. */
DEVICE_CALL uint64_t dropout_key(uint64_t key, uint64_t part) { return dropout_mix(key + (part + 1) * 0x9e3779b97f4a7c15u); }

/* The bits of the values of two columns, `pair` times two and the next, in the lower and the upper half. */
DEVICE_CALL uint64_t dropout_bits(uint64_t key, int64_t row, int64_t pair)
{
    return dropout_mix(key + ((uint64_t)row << 32 | (uint64_t)pair) * 0x9e3779b97f4a7c15u);
}

DEVICE_CALL uint32_t dropout_threshold(double p) { return (uint32_t)(p * 4294967296.0); }
DEVICE_CALL float dropout_factor(double p) { return (float)(1 / (1 - p)); }

/* Of noise from -`most` to `most`. */
DEVICE_CALL float noise_factor(float most) { return most * 0x1p-31f; }
DEVICE_CALL float noise_value(uint32_t bits, float factor) { return (float)(int32_t)bits * factor; }

#endif
