/* prequantized_parts.h - what the formats of prequantized.h share. */
#ifndef PT_PREQUANTIZED_PARTS_H
#define PT_PREQUANTIZED_PARTS_H

#include "model/prequantized.h"

/* The tensor whose name ends in `other` where `name` ends in `end`; NULL: there is none. */
const safetensors_tensor *prequantized_beside(const safetensors *st, const char *name, const char *end, const char *other);

/* PT_FAILED: `t`, which belongs to the matrix, `what`. */
int prequantized_damaged(const prequantized *q, const safetensors_tensor *tensor, const char *what, pt_error *e);

/* FP8 (prequantized_fp8.c): like prequantized_open for codes whose scales are out->absmax, prequantized_read and prequantized_belongs. */
extern const char prequantized_fp8_scales[];
int prequantized_fp8_open(prequantized *q, pt_dtype dtype, pt_error *e);
int prequantized_fp8_read(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e);
bool prequantized_fp8_belongs(const safetensors *st, const safetensors_tensor *tensor);

static inline float prequantized_rounded(pt_dtype dtype, float x)
{
    return dtype == PT_BF16 ? bf16_to_f32(bf16_from_f32(x)) : dtype == PT_F16 ? f16_to_f32(f16_from_f32(x)) : x;
}

#endif
