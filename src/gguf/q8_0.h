/* q8_0.h - values in 8 bits, 32 to a block: the largest magnitude over 127 in F16, then each value in units of it. */
#ifndef PT_GGUF_Q8_0_H
#define PT_GGUF_Q8_0_H

#include <stdint.h>

enum { Q8_0_VALUES = 32, Q8_0_BYTES = 34 };

/* n: a multiple of 32. The bytes are those of llama.cpp's reference, where the unit is at least 2^-127; below, all are 0. */
void q8_0_encode(const float *values, int64_t n, unsigned char *out);

#endif
