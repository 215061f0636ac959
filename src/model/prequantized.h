/* prequantized.h - matrices that a checkpoint already has in few bits, as bitsandbytes writes them:
 *
 *   4 bits   X.weight              codes, two per byte, the first in its upper half; of any dtype and shape
 *            X.weight.absmax       the largest magnitude of each block: F32, or 8-bit codes with double quantization
 *            X.weight.quant_map    the values of the 16 codes
 *            X.weight.nested_absmax, X.weight.nested_quant_map     scales and values of the magnitudes' codes
 *            X.weight.quant_state.bitsandbytes__nf4 (or __fp4)     JSON, one byte per entry: sizes of blocks, shape, dtype
 *   8 bits   X.weight (I8)         codes from -127 to 127
 *            X.SCB                 the largest magnitude of each row, F32
 *            X.weight_format       a byte: 0, rows are contiguous
 *
 * and the experts of gpt-oss in MXFP4:
 *
 *   X_blocks (U8)                  (experts, outputs, blocks, 16): codes of 32 values, two per byte, the first in its lower half
 *   X_scales (U8)                  (experts, outputs, blocks): exponents of two plus 127
 *
 * and FP8 of DeepSeek and others ("quant_method": "fp8"):
 *
 *   X.weight (F8_E4M3)             numbers of 4 bits of exponent and 3 of mantissa
 *   X.weight_scale_inv             what the numbers of a block are multiplied by: a matrix of F32, BF16 or F16, or of exponents (U8,
 *                                  F8_E8M0); or one for all. Blocks have the sizes of "weight_block_size", powers of two, and are shorter
 *                                  at the ends
 *
 * Values are in the order (outputs, inputs), also for GPT-2, whose unquantized matrices are stored transposed. The value of a weight is its
 * decoded value, rounded to the dtype from which it was quantized, as in Transformers.
 *
 * Every size is checked when a matrix is opened. For model/ and for the loading of a base (run/state.c).
 */
#ifndef PT_PREQUANTIZED_H
#define PT_PREQUANTIZED_H

#include "io/safetensors.h"
#include "model/storage.h"

#define PREQUANTIZED_BLOCKS "_blocks"

enum { PREQUANTIZED_LEVELS = 16, PREQUANTIZED_NESTED_LEVELS = 256 };

typedef struct prequantized {
    const safetensors *st;
    const safetensors_tensor *codes, *absmax, *nested; /* nested NULL: the magnitudes are F32 */
    bool bytes;                                        /* a code is a byte; else half a byte */
    bool mx;                                           /* MXFP4 */
    bool fp8;                                          /* absmax: the scales of blocks of block_rows x block */
    int64_t rows, cols, block, nested_block, block_rows;
    int64_t rows_each;                                 /* FP8: of one matrix, of which rows are several */
    float level[PREQUANTIZED_LEVELS], nested_level[PREQUANTIZED_NESTED_LEVELS], offset;
    pt_dtype dtype;       /* F32, BF16 or F16: values are rounded to it */
    param_storage format; /* the format of model/storage.h with the same codes and scales; STORAGE_PLAIN: none */
} prequantized;

/* 1: tensor `t` is such a matrix; 0: it is not quantized; PT_FAILED: a tensor that belongs to it is missing or does not fit. of_bytes: the
 * dtype of matrices of 8 bits, whose files do not give it. */
int prequantized_open(const safetensors *st, const safetensors_tensor *tensor, pt_dtype of_bytes, prequantized *out, pt_error *e);

/* out[0 .. n) = values from the first-th on. Thread-safe, with 128 KiB of stack. */
int prequantized_read(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e);

/* out = bytes [from, from + n) of a slab of q->format. Refused: scales that are not finite, or with which values are not. */
int prequantized_take(const prequantized *q, int slab, uint64_t from, uint64_t n, void *out, pt_error *e);

/* Does the tensor belong to such a matrix, and does the file have that matrix? */
bool prequantized_belongs(const safetensors *st, const safetensors_tensor *tensor);

#endif
