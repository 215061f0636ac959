/* codes.c - activations in codes of 8 bits and back, a group of columns at a time.
 *
 * A number is rounded to a multiple of 2^k by adding 1.5 * 2^(23 + k): the last bits of the sum are then the multiple, as an integer in
 * two's complement. */
#include "device/cpu/kernels/codes.h"

#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

#include <math.h>
#include <string.h>

typedef int8_t vc __attribute__((vector_size(VEC_LANES))); /* a code in each lane */

enum { E4M3_BITS_SHIFT = 20, E4M3_EXPONENT = 120 /* the difference of the biases */ };

static const float INTEGERS = 12582912.0f, /* 1.5 * 2^23 */ FP8_DENORMALS = 24576.0f /* 1.5 * 2^(23 - 9) */, FP8_NORMAL = 0x1p-6f;

static INLINE vi e4m3_code(vf t)
{
    const vf a = vec_abs(t);
    const vu u = (vu)a, rounded = u + 0x7ffffu + ((u >> E4M3_BITS_SHIFT) & 1);
    const vi normal = (vi)(rounded >> E4M3_BITS_SHIFT) - (E4M3_EXPONENT << 3), small = (vi)(a + FP8_DENORMALS) & 0xf;
    return (vi)vec_select(a < FP8_NORMAL, (vf)small, (vf)normal) | (vi)(((vu)t >> 24) & 0x80u);
}

static INLINE vf e4m3_value(vi code)
{
    const vi bits = code & 0x7f;
    const vf normal = (vf)((bits << E4M3_BITS_SHIFT) + (E4M3_EXPONENT << 23)), small = __builtin_convertvector(bits, vf) * 0x1p-9f;
    return (vf)((vi)vec_select(bits < 8, small, normal) | ((code & 0x80) << 24));
}

static INLINE vi code_of(code_kind kind, vf t) { return kind == CODES_FP8 ? e4m3_code(t) : (vi)(t + INTEGERS); }

/* Of a code, whatever is in the upper bits of its lane. */
static INLINE vf value_of(code_kind kind, vi code)
{
    return kind == CODES_FP8 ? e4m3_value(code) : __builtin_convertvector((code << 24) >> 24, vf);
}

static INLINE float step_of(code_kind kind, float largest) { return largest * (kind == CODES_FP8 ? CODE_FP8_STEP : CODE_INT8_STEP); }

static INLINE int64_t lanes_at(int64_t i, int64_t end) { return end - i < VEC_LANES ? end - i : VEC_LANES; }

/* The largest magnitude of a group. As integers, magnitudes are in the same order, and NaN is the largest. */
static INLINE float largest_of(pt_dtype type, const void *x, int64_t begin, int64_t end)
{
    vi most = {0};
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        const vi a = (vi)vec_abs(load(type, x, i, lanes_at(i, end)));
        most = (vi)vec_select(a > most, (vf)a, (vf)most);
    }
    int32_t all = 0;
    for (int j = 0; j < VEC_LANES; j++)
        all = most[j] > all ? most[j] : all;
    float largest;
    memcpy(&largest, &all, sizeof largest);
    return largest;
}

static INLINE void store_codes(uint8_t *codes, vi code, int64_t lanes)
{
    const vc bytes = __builtin_convertvector(code, vc);
    memcpy(codes, &bytes, (size_t)lanes);
}

static INLINE vi load_codes(const uint8_t *codes, int64_t lanes)
{
    vc bytes = {0};
    memcpy(&bytes, codes, (size_t)lanes);
    return __builtin_convertvector(bytes, vi);
}

static INLINE void encode_group(code_kind kind, pt_dtype type, const op_encode *o, int64_t row, int64_t begin, int64_t end)
{
    const void *x = at(type, o->x, row * o->cols);
    const float largest = largest_of(type, x, begin, end), most = kind == CODES_FP8 ? 448 : 127;
    const bool codable = largest >= CODE_LEAST && largest < INFINITY;
    const vf inverse = vec_set(codable ? most / largest : 0), step = vec_set(step_of(kind, largest));
    if (o->codes)
        store(type, o->largest, row * code_groups(o->cols) + begin / CODE_GROUP, vec_set(largest), 1);
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        const int64_t lanes = lanes_at(i, end);
        const vi code = codable ? code_of(kind, load(type, x, i, lanes) * inverse) : (vi){0};
        if (o->codes)
            store_codes(o->codes + row * o->cols + i, code, lanes);
        if (o->out)
            store(type, at_mutable(type, o->out, row * o->cols), i, value_of(kind, code) * step, lanes);
    }
}

static INLINE void decode_group(code_kind kind, pt_dtype type, const op_decode *o, int64_t row, int64_t begin, int64_t end)
{
    const float largest = load(type, o->largest, row * code_groups(o->cols) + begin / CODE_GROUP, 1)[0];
    const vf step = vec_set(step_of(kind, largest));
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        const int64_t lanes = lanes_at(i, end);
        store(type, at_mutable(type, o->out, row * o->cols), i, value_of(kind, load_codes(o->codes + row * o->cols + i, lanes)) * step,
              lanes);
    }
}

static INLINE void encode(code_kind kind, pt_dtype type, const op_encode *o, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        for (int64_t i = 0; i < o->cols; i += CODE_GROUP)
            encode_group(kind, type, o, row, i, o->cols - i < CODE_GROUP ? o->cols : i + CODE_GROUP);
}

static INLINE void decode(code_kind kind, pt_dtype type, const op_decode *o, int64_t begin, int64_t end)
{
    for (int64_t row = begin; row < end; row++)
        for (int64_t i = 0; i < o->cols; i += CODE_GROUP)
            decode_group(kind, type, o, row, i, o->cols - i < CODE_GROUP ? o->cols : i + CODE_GROUP);
}

void KERNEL(encode_rows)(const op_encode *o, int64_t begin, int64_t end)
{
    const bool is_bf16 = o->type == PT_BF16;
    if (o->kind == CODES_FP8)
        is_bf16 ? encode(CODES_FP8, PT_BF16, o, begin, end) : encode(CODES_FP8, PT_F32, o, begin, end);
    else
        is_bf16 ? encode(CODES_INT8, PT_BF16, o, begin, end) : encode(CODES_INT8, PT_F32, o, begin, end);
}

void KERNEL(decode_rows)(const op_decode *o, int64_t begin, int64_t end)
{
    const bool is_bf16 = o->type == PT_BF16;
    if (o->kind == CODES_FP8)
        is_bf16 ? decode(CODES_FP8, PT_BF16, o, begin, end) : decode(CODES_FP8, PT_F32, o, begin, end);
    else
        is_bf16 ? decode(CODES_INT8, PT_BF16, o, begin, end) : decode(CODES_INT8, PT_F32, o, begin, end);
}
