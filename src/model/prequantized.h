/* prequantized.h - matrices that a checkpoint has in few bits already, as bitsandbytes writes them:
 *
 *   4 bits   X.weight              codes, two a byte, the first in its upper half; of any dtype and shape
 *            X.weight.absmax       the largest magnitude of each block: F32, or codes of 8 bits where these are quantized once more
 *            X.weight.quant_map    what the 16 codes stand for
 *            X.weight.nested_absmax, X.weight.nested_quant_map     scales and values of the magnitudes' codes
 *            X.weight.quant_state.bitsandbytes__nf4 (or __fp4)     JSON, a byte an entry: sizes of blocks, shape, dtype
 *   8 bits   X.weight (I8)         codes from -127 to 127
 *            X.SCB                 the largest magnitude of each row, F32
 *            X.weight_format       a byte: 0, rows follow each other
 *
 * Values are in the order (outputs, inputs), also of GPT-2, whose matrices are stored the other way round where they are whole. What a
 * matrix stands for is its decoded values, rounded to the dtype that it was made from: that is what Transformers computes with.
 *
 * Every size is a claim, and is checked when a matrix is opened. Inside model/ and for whoever fills a base (run/state.c).
 */
#ifndef PT_PREQUANTIZED_H
#define PT_PREQUANTIZED_H

#include "io/safetensors.h"
#include "model/storage.h"

enum { PREQUANTIZED_LEVELS = 16, PREQUANTIZED_NESTED_LEVELS = 256 };

typedef struct prequantized {
    const safetensors *st;
    const safetensors_tensor *codes, *absmax, *nested; /* nested NULL: the magnitudes are F32 */
    bool bytes;                                        /* a code is a byte; else half of one */
    int64_t rows, cols, block, nested_block;
    float level[PREQUANTIZED_LEVELS], nested_level[PREQUANTIZED_NESTED_LEVELS], offset;
    pt_dtype dtype;       /* F32, BF16 or F16: values are rounded to it */
    param_storage format; /* that of ours which has the same codes and scales; STORAGE_PLAIN: none has */
} prequantized;

/* 1: tensor `t` is such a matrix; 0: it is whole; PT_FAILED: what belongs to it is missing or does not fit. of_bytes: the dtype of
 * matrices in 8 bits, which do not say it. */
int prequantized_open(const safetensors *st, const safetensors_tensor *t, pt_dtype of_bytes, prequantized *out, pt_error *e);

/* out[0 .. n) = values from the first-th on. Thread-safe, with 48 KiB of stack. */
int prequantized_read(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e);

/* out = bytes [from, from + n) of a slab of q->format, as it is stored here. Refused: scales that are not finite. */
int prequantized_take(const prequantized *q, int slab, uint64_t from, uint64_t n, void *out, pt_error *e);

/* Does the tensor belong to such a matrix, which is there too? */
bool prequantized_belongs(const safetensors *st, const safetensors_tensor *t);

#endif
