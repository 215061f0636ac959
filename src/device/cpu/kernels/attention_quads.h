/* attention_quads.h - operands for BFMMLA.
 *
 * BFMMLA multiplies two operands along the depth of each of two rows by those of two lanes. To the 2 x 2 block of sums it adds the first
 * operands' products, then the second ones': the bits of two BFDOT. A vector holds two operands of a row or lane, then two of the next one.
 * So the forms of attention_operand.h become, for even i and k:
 *
 *     rows      of a left factor: rows i and i + 1 alternate, two operands at a time, in the place of both
 *     columns   of each four columns c: in row k the operands k and k + 1 of column c, then of c + 1; in row k + 1 those of c + 2 and c + 3
 *
 * An odd depth is padded with 0. That changes a sum of -0 to 0, and no other.
 */
#ifndef PT_ATTENTION_QUADS_H
#define PT_ATTENTION_QUADS_H

typedef uint16x8_t eight; /* bf16 */

/* The elements [0, n) at p, then 0. */
static inline eight load_eight(const bf16 *p, int64_t n)
{
    bf16 some[8] = {0};
    if (n >= 8)
        return vld1q_u16(p);
    for (int64_t i = 0; i < n; i++)
        some[i] = p[i];
    return vld1q_u16(some);
}

static inline void store_eight(operand *p, eight x) { vst1q_u16((half *)p, x); }
static inline eight first_halves(eight a, eight b) { return (eight)vzip1q_u64((uint64x2_t)a, (uint64x2_t)b); }
static inline eight second_halves(eight a, eight b) { return (eight)vzip2q_u64((uint64x2_t)a, (uint64x2_t)b); }

/* Stores four columns of the operands of rows k and k + 1. */
static inline void store_columns(operand *dst, int64_t ld, eight k, eight next)
{
    store_eight(dst, (eight)vzip1q_u32((uint32x4_t)k, (uint32x4_t)next));
    store_eight(dst + ld, (eight)vzip2q_u32((uint32x4_t)k, (uint32x4_t)next));
}

static inline eight rounded(vec low, vec high)
{
    return (eight)vcvtq_high_bf16_f32(vcvtq_low_bf16_f32((float32x4_t)low), (float32x4_t)high);
}

static inline void store_column_operands(operand *dst, int64_t ld, const vec x[OPERAND_ELEMENTS * TOGETHER])
{
    const eight a = rounded(x[0], x[1]), b = rounded(x[2], x[3]); /* row by row */
    store_columns(dst, ld, vzip1q_u16(a, (eight)vextq_u16(a, a, 4)), vzip1q_u16(b, (eight)vextq_u16(b, b, 4)));
}

static inline void store_row_operands(operand *dst, const vec x[TOGETHER]) { store_eight(dst, rounded(x[0], x[1])); }

/* Loads rows as a left factor. padded_rows is even. */
static inline void load_left_rows(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim, operand *dst, int64_t padded,
                                  int64_t padded_rows)
{
    const bf16 *from = src;
    for (int64_t r = 0; r < padded_rows; r += 2, from += 2 * ld, dst += padded) {
        const int64_t n = r < rows ? dim : 0, next = r + 1 < rows ? dim : 0;
        for (int64_t i = ROWS_AHEAD; i < least(ROWS_AHEAD + 2, rows - r); i++)
            prefetch_row(PT_BF16, from + i * ld, dim);
        for (int64_t d = 0; d < padded; d += 8) {
            const eight x = load_eight(from + d, n - d), y = load_eight(from + ld + d, next - d);
            store_eight(dst + d, first_halves(x, y));
            store_eight(dst + d + 4, second_halves(x, y));
        }
    }
}

/* Loads columns (stride padded). padded_rows is a multiple of 4. */
static inline void load_columns(pt_dtype type, const void *src, int64_t ld, int64_t rows, int64_t dim, operand *dst, int64_t padded,
                                int64_t padded_rows)
{
    const bf16 *from = src;
    for (int64_t r = 0; r < padded_rows; r += 4, from += 4 * ld, dst += 2 * padded) {
        for (int64_t i = ROWS_AHEAD; i < least(ROWS_AHEAD + 4, rows - r); i++)
            prefetch_row(PT_BF16, from + i * ld, dim);
        for (int64_t d = 0; d < padded; d += 8) {
            eight x[4];
            for (int i = 0; i < 4; i++)
                x[i] = load_eight(from + i * ld + d, r + i < rows ? dim - d : 0);
            store_columns(dst + d, padded, vzip1q_u16(x[0], x[1]), vzip1q_u16(x[2], x[3]));
            store_columns(dst + d + 4, padded, vzip2q_u16(x[0], x[1]), vzip2q_u16(x[2], x[3]));
        }
    }
}

/* Rows that do not alternate become columns; rows and cols are multiples of 4. */
static inline void transpose_operands(const operand *src, int64_t lds, int64_t rows, int64_t cols, operand *dst, int64_t ldd)
{
    for (int64_t r = 0; r < rows; r += 4)
        for (int64_t c = 0; c < cols; c += 4) {
            operand *to = dst + c * ldd + r;
            eight x[4];
            for (int i = 0; i < 4; i++)
                x[i] = vld1q_u16((const half *)(src + (r + i) * lds + c));
            store_eight(to, first_halves(x[0], x[1])), store_eight(to + ldd, first_halves(x[2], x[3]));
            store_eight(to + 2 * ldd, second_halves(x[0], x[1])), store_eight(to + 3 * ldd, second_halves(x[2], x[3]));
        }
}

/* c + the products of the operands k and k + 1 of a vector of columns. */
static inline vec operands_fma(const operand *a, const operand *b, int64_t ld, vec c)
{
    const uint32x4_t a0 = vld1q_u32(a), a1 = vld1q_u32(a + ld), b0 = vld1q_u32(b), b1 = vld1q_u32(b + ld);
    c = operand_fma((operand_vec)vuzp1q_u32(a0, a1), (operand_vec)vuzp1q_u32(b0, b1), c);
    return operand_fma((operand_vec)vuzp2q_u32(a0, a1), (operand_vec)vuzp2q_u32(b0, b1), c);
}

#endif
