#include "model/prequantized_parts.h"

#include <math.h>
#include <string.h>

enum { CODES = 1 << 14, SCALES = 1 << 13 }; /* read at a time; the scales of a row of blocks */
enum { NO_NUMBER = 0x7f, SIGN = 0x80, EXPONENT_BIAS = 127 };

const char prequantized_fp8_scales[] = "_scale_inv";

/* Scales of activations, which are computed with as they are. */
static const char *const of_activations[] = {".activation_scale", ".input_scale"};

bool prequantized_fp8_belongs(const safetensors *st, const safetensors_tensor *tensor)
{
    bool belongs = prequantized_beside(st, tensor->name, prequantized_fp8_scales, "") != NULL;
    for (size_t i = 0; i < sizeof of_activations / sizeof *of_activations && !belongs; i++)
        belongs = prequantized_beside(st, tensor->name, of_activations[i], ".weight") != NULL;
    return belongs;
}

/* ---- opening ---- */

/* The smallest power of two in so many blocks of which a side fits. If the true block is another, it makes the same blocks. */
static int64_t block_of(int64_t side, int64_t blocks)
{
    int64_t block = 1;
    while ((side + block - 1) / block > blocks)
        block *= 2;
    return block;
}

static bool fits(int64_t side, int64_t block, int64_t blocks) { return (side + block - 1) / block == blocks; }

static bool is_exponent(const safetensors_tensor *tensor)
{
    return !strcmp(tensor->dtype_text, "U8") || !strcmp(tensor->dtype_text, "F8_E8M0");
}

static bool is_number(const safetensors_tensor *tensor)
{
    return tensor->dtype_is_known && (tensor->dtype == PT_F32 || tensor->dtype == PT_BF16 || tensor->dtype == PT_F16);
}

/* A matrix, or several of equal size, and a matrix of scales for each. */
int prequantized_fp8_open(prequantized *q, pt_dtype dtype, pt_error *e)
{
    const safetensors_tensor *tensor = q->codes, *s = q->absmax;
    const int several = tensor->rank - 2;
    if (strcmp(tensor->dtype_text, "F8_E4M3") || several < 0 || several > 1 || tensor->elements < 1)
        return prequantized_damaged(q, tensor, "has scales of FP8 and is no matrix of F8_E4M3", e);
    if (!is_exponent(s) && !is_number(s))
        return prequantized_damaged(q, s, "is neither F32, BF16 nor F16, nor exponents (U8, F8_E8M0)", e);
    const int64_t rows = tensor->shape[several], cols = tensor->shape[several + 1], each = several ? tensor->shape[0] : 1;
    const bool one = s->elements == 1;
    const int64_t down = one ? 1 : s->rank == tensor->rank ? s->shape[several] : 0, across = one ? 1 : down ? s->shape[several + 1] : 0;
    if (down < 1 || across < 1 || (several && !one && s->shape[0] != each) || (several && one && each > 1))
        return prequantized_damaged(q, s, "has not a matrix of scales for each matrix, nor one scale", e);
    q->fp8 = true;
    q->bytes = true;
    q->rows = rows * each;
    q->rows_each = rows;
    q->cols = cols;
    q->block_rows = block_of(rows, down);
    q->block = block_of(cols, across);
    q->dtype = dtype;
    q->format = STORAGE_PLAIN;
    return fits(rows, q->block_rows, down) && fits(cols, q->block, across) && across <= SCALES
               ? 0
               : prequantized_damaged(q, s, "has not a scale for each block of a power of two of rows and columns", e);
}

/* ---- values ---- */

/* Scales first .. first + n. */
static int read_scales(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e)
{
    uint8_t exponents[SCALES];
    if (!is_exponent(q->absmax)) {
        const int failed = safetensors_read_f32(q->st, q->absmax, (uint64_t)first, (uint64_t)n, out, e);
        bool finite = true;
        for (int64_t i = 0; i < n && !failed; i++)
            finite = finite && isfinite(out[i]);
        return failed ? failed : finite ? 0 : prequantized_damaged(q, q->absmax, "has a value that is not finite", e);
    }
    const int failed = safetensors_read_stored(q->st, q->absmax, (uint64_t)first, (uint64_t)n, exponents, e);
    bool finite = true;
    for (int64_t i = 0; i < n && !failed; i++) {
        finite = finite && exponents[i] < 255;
        out[i] = ldexpf(1, exponents[i] - EXPONENT_BIAS);
    }
    return failed ? failed : finite ? 0 : prequantized_damaged(q, q->absmax, "has an exponent that is no number", e);
}

static float value_of(uint8_t code)
{
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float x = exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    return (code & NO_NUMBER) == NO_NUMBER ? NAN : code & SIGN ? -x : x;
}

/* A part of the values, read in order. */
typedef struct part { float value[1 << 8], scale[SCALES]; int64_t line; } part; /* line: the row of blocks that `scale` is of; -1: none */

/* Values first .. first + n of a row, from their codes. */
static int decode_row(const prequantized *q, part *p, int64_t first, int64_t n, const uint8_t *codes, float *out, pt_error *e)
{
    const int64_t row = first / q->cols, col = first % q->cols, across = (q->cols + q->block - 1) / q->block;
    const int64_t down = (q->rows_each + q->block_rows - 1) / q->block_rows;
    const int64_t line = row / q->rows_each * down + row % q->rows_each / q->block_rows;
    const int failed = line == p->line ? 0 : read_scales(q, line * across, across, p->scale, e);
    bool finite = true;
    if (failed)
        return failed;
    p->line = line;
    for (int64_t i = 0; i < n; i++) {
        out[i] = prequantized_rounded(q->dtype, p->value[codes[i]] * p->scale[(col + i) / q->block]);
        finite = finite && isfinite(out[i]);
    }
    return finite ? 0 : prequantized_damaged(q, q->codes, "has a value that is not finite", e);
}

int prequantized_fp8_read(const prequantized *q, int64_t first, int64_t n, float *out, pt_error *e)
{
    uint8_t codes[CODES];
    part p = {.line = -1};
    int failed = 0;
    for (int i = 0; i < 1 << 8; i++)
        p.value[i] = value_of((uint8_t)i);
    for (int64_t done = 0, here; done < n && !failed; done += here) {
        here = n - done < CODES ? n - done : CODES;
        failed = safetensors_read_stored(q->st, q->codes, (uint64_t)(first + done), (uint64_t)here, codes, e);
        for (int64_t at = 0, some; at < here && !failed; at += some) {
            const int64_t row_left = q->cols - (first + done + at) % q->cols;
            some = here - at < row_left ? here - at : row_left;
            failed = decode_row(q, &p, first + done + at, some, codes + at, out + done + at, e);
        }
    }
    return failed;
}
