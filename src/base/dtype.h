/* dtype.h - element types, and the conversions of bf16 and fp16 on which numerics depend. */
#ifndef PT_DTYPE_H
#define PT_DTYPE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum pt_dtype { PT_F32, PT_BF16, PT_F16, PT_F64, PT_U8, PT_U16, PT_I32, PT_U32, PT_I64 } pt_dtype;

static inline size_t dtype_bytes(pt_dtype t)
{
    switch (t) {
    case PT_U8: return 1;
    case PT_BF16: case PT_F16: case PT_U16: return 2;
    case PT_F64: case PT_I64: return 8;
    default: return 4;
    }
}

const char *dtype_name(pt_dtype t); /* "F32", "BF16", ... as in safetensors */

typedef uint16_t bf16; /* the upper half of an fp32 */

static inline uint32_t f32_bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static inline float f32_from_bits(uint32_t u) { float x; memcpy(&x, &u, 4); return x; }

static inline float bf16_to_f32(bf16 h) { return f32_from_bits((uint32_t)h << 16); }

/* Rounds to nearest, ties to even; a NaN becomes a quiet NaN. For activations and gradients. */
static inline bf16 bf16_from_f32(float x)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (bf16)((u >> 16) | 0x40);
    return (bf16)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

/* A master weight is two halves: `hi`, the fp32 bits rounded half up to bf16, which computation reads, and `lo`, the 16 low bits. Together
 * they hold the exact fp32 value: hi was rounded up if and only if the top bit of lo is set. A NaN becomes 0x7fc00000: a GPU's NaN,
 * 0x7fffffff, would be rounded to -0. */
static inline void master_split(float x, bf16 *hi, uint16_t *lo)
{
    uint32_t u = f32_bits(x);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        u = 0x7fc00000u;
    *lo = (uint16_t)u;
    *hi = (bf16)((u + 0x8000u) >> 16);
}
static inline float master_join(bf16 hi, uint16_t lo)
{
    return f32_from_bits((((uint32_t)hi - (lo >> 15)) << 16) | lo);
}

float f16_to_f32(uint16_t h);
uint16_t f16_from_f32(float x); /* round to nearest even, overflow to infinity */

#endif
