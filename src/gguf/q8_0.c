#include "gguf/q8_0.h"

#include "base/dtype.h"

#include <math.h>

/* Rounds to nearest, halves away from zero. Truncation is faster than a call of roundf. */
static int round_away(float x)
{
    const int whole = (int)x;
    const float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

static void encode_block(const float *x, unsigned char *out)
{
    float most = 0;
    for (int i = 0; i < Q8_0_VALUES; i++)
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    const float unit = most / 127;
    const uint16_t stored = f16_from_f32(unit);
    float inverse = unit != 0 ? 1 / unit : 0;
    inverse = isinf(inverse) ? 0 : inverse;
    out[0] = (unsigned char)stored;
    out[1] = (unsigned char)(stored >> 8);
    for (int i = 0; i < Q8_0_VALUES; i++)
        out[2 + i] = (unsigned char)round_away(x[i] * inverse);
}

void q8_0_encode(const float *values, int64_t n, unsigned char *out)
{
    for (int64_t i = 0; i < n; i += Q8_0_VALUES, out += Q8_0_BYTES)
        encode_block(values + i, out);
}
