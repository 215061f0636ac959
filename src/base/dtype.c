#include "base/dtype.h"

const char *dtype_name(pt_dtype t)
{
    static const char *const names[] = {"F32", "BF16", "F16", "F64", "U8", "U16", "I32", "U32", "I64"};
    return names[t];
}

float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ff;
    if (exponent == 31)
        return f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f;
    return sign ? -tiny : tiny;
}

uint16_t f16_from_f32(float x)
{
    uint32_t u = f32_bits(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) /* 2^16 and above */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: a subnormal half */
        float scaled = f32_from_bits(magnitude) * 0x1p24f;
        uint32_t whole = (uint32_t)scaled;
        float rest = scaled - (float)whole;
        if (rest > 0.5f || (rest == 0.5f && (whole & 1)))
            whole++;
        return (uint16_t)(sign | whole);
    }
    uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1);
    return (uint16_t)(sign | rounded >> 13);
}
