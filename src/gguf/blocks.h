/* blocks.h - the types of a GGUF file's values, and its blocks: consecutive values of a row that share scales. Blocks are byte for byte
 * what ggml's reference makes of the values. */
#ifndef PT_GGUF_BLOCKS_H
#define PT_GGUF_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

typedef enum gguf_type {
    GGUF_F32 = 0, GGUF_F16 = 1, GGUF_Q4_0 = 2, GGUF_Q5_0 = 6, GGUF_Q5_1 = 7, GGUF_Q8_0 = 8, GGUF_Q4_K = 12, GGUF_Q5_K = 13, GGUF_Q6_K = 14,
    GGUF_BF16 = 30
} gguf_type;

const char *gguf_type_name(gguf_type t);
/* A block is this many values, in this many bytes. F32, F16 and BF16: one value. */
int64_t gguf_block_values(gguf_type t);
int64_t gguf_block_bytes(gguf_type t);
static inline bool gguf_is_blocks(gguf_type t) { return gguf_block_values(t) > 1; }

/* n: whole blocks of finite values, whose magnitude F16 can hold. */
void gguf_encode_blocks(gguf_type t, const float *values, int64_t n, unsigned char *out);

/* Blocks of 256 values (k_blocks.c). */
enum { K_VALUES = 256, Q4_K_BYTES = 144, Q5_K_BYTES = 176, Q6_K_BYTES = 210 };
void gguf_encode_q4_k(const float *x, unsigned char *out);
void gguf_encode_q5_k(const float *x, unsigned char *out);
void gguf_encode_q6_k(const float *x, unsigned char *out);

static inline unsigned char *gguf_put_16(unsigned char *out, uint16_t bits)
{
    out[0] = (unsigned char)bits;
    out[1] = (unsigned char)(bits >> 8);
    return out + 2;
}

#endif
