/* q8_0.h - 8-bit values in blocks of 32: the scale, the largest magnitude / 127 as F16, then the values / scale. */
#ifndef PT_GGUF_Q8_0_H
#define PT_GGUF_Q8_0_H

#include <stdint.h>

enum { Q8_0_VALUES = 32, Q8_0_BYTES = 34 };

/* n: a multiple of 32. The same bytes as llama.cpp's reference if the scale is at least 2^-127; below that all are 0. */
void q8_0_encode(const float *values, int64_t n, unsigned char *out);

#endif
