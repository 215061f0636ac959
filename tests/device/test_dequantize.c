/* Weights from few bits: every value has the bits of a scalar loop, whole matrices and parts of them, whatever the instruction set. */
#include "device/reference.h"

#include "device/fewbit.h"
#include "device/moment_map.h"

#include <math.h>

/* A tensor (rows, cols) in few bits, of random codes. */
typedef struct few { int64_t rows, cols; op_dequantize op; } few;

static void *random_bytes(int64_t n)
{
    uint8_t *b = test_alloc((size_t)n);
    for (int64_t i = 0; i < n; i++)
        b[i] = (uint8_t)random_below(256);
    return b;
}

static few random_few(fewbit_kind kind, int64_t rows, int64_t cols)
{
    const int64_t n = rows * cols, blocks = (n + NF4_BLOCK - 1) / NF4_BLOCK;
    few f = {rows, cols, {.kind = kind, .stride = cols, .codes = random_bytes(kind == FEWBIT_INT8 ? n : (n + 1) / 2)}};
    if (kind == FEWBIT_INT8) {
        f.op.scales = tensor_random(PT_F32, rows, 0.1, 0.02).data;
        return f;
    }
    if (kind == FEWBIT_MXFP4) {
        uint8_t *scales = random_bytes((n + MXFP4_BLOCK - 1) / MXFP4_BLOCK);
        for (int64_t i = 0; i < (n + MXFP4_BLOCK - 1) / MXFP4_BLOCK; i++)
            scales[i] = (uint8_t)(scales[i] % 253);
        f.op.absmax = scales;
        return f;
    }
    f.op.absmax = random_bytes(blocks);
    f.op.nested = tensor_random(PT_F32, (blocks + NF4_NESTED_BLOCK - 1) / NF4_NESTED_BLOCK, 0.05, 0.01).data;
    f.op.offset = tensor_random(PT_F32, 1, 0.06, 0.001).data;
    return f;
}

static float scalar(const op_dequantize *o, int64_t i)
{
    if (o->kind == FEWBIT_INT8)
        return (float)(int8_t)o->codes[i] * o->scales[i / o->stride] * INT8_STEP;
    if (o->kind == FEWBIT_MXFP4) {
        const int code = o->codes[i / 2] >> (i % 2 ? 4 : 0) & 15, e = code >> 1 & 3; /* sign, two bits of exponent, one of mantissa */
        const float magnitude = e ? ldexpf(1 + 0.5f * (float)(code & 1), e - 1) : 0.5f * (float)(code & 1);
        return ldexpf(code & 8 ? -magnitude : magnitude, o->absmax[i / 32] - 127);
    }
    const float scale = moment_map_get(true)->value[o->absmax[i / 64]] * o->nested[i / 64 / 256] + *o->offset;
    return nf4_levels[o->codes[i / 2] >> (i % 2 ? 0 : 4) & 15] * scale;
}

/* Rows and columns of it, into rows that are `more` values longer, which stay. */
static void check(const few *f, pt_dtype type, int64_t row0, int64_t rows, int64_t col0, int64_t cols, int64_t more, int threads)
{
    const int64_t ld = cols + more, e = (int64_t)dtype_bytes(type);
    uint8_t *want = random_bytes(rows * ld * e), *got = test_copy(want, (size_t)(rows * ld * e));
    op_dequantize o = f->op;
    o.type = type, o.rows = rows, o.cols = cols, o.ld = ld, o.first = row0 * f->cols + col0, o.out = got;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++) {
            const float x = scalar(&o, o.first + r * o.stride + c);
            if (type == PT_BF16)
                ((bf16 *)want)[r * ld + c] = bf16_from_f32(x);
            else
                ((float *)want)[r * ld + c] = x;
        }
    run_op(threads, &(op){OP_DEQUANTIZE, .dequantize = o});
    same_bits(want, got, (size_t)(rows * ld * e), "weights");
}

static void every_value_has_the_bits_of_a_scalar_loop(void **state)
{
    for (int turn = 0; turn < 180; turn++) {
        const int64_t rows = 1 + random_below(70), cols = turn / 3 % 3 ? 64 * (1 + random_below(6)) : 1 + random_below(400);
        const few f = random_few((fewbit_kind)(turn % 3), rows, cols);
        const int64_t row0 = random_below(rows), col0 = turn / 3 % 4 == 1 ? cols / 128 * 64 : random_below(cols);
        check(&f, types[turn / 2 & 1], 0, rows, 0, cols, 0, 1 + turn % TEST_THREADS);
        check(&f, types[turn / 2 & 1], row0, 1 + random_below(rows - row0), col0, 1 + random_below(cols - col0), random_below(9),
              1 + turn % TEST_THREADS);
        test_teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(every_value_has_the_bits_of_a_scalar_loop)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
