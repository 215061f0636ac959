/* Activations in codes of 8 bits: every code and value has the bits of a scalar loop, whatever the instruction set; how far values are. */
#include "device/reference.h"

/* The number of a byte of e4m3: sign, four bits of exponent, three of mantissa. 0x7f and 0xff are NaN. */
static float e4m3(int code)
{
    const int e = code >> 3 & 15, m = code & 7;
    const float a = e ? ldexpf(1 + (float)m / 8, e - 7) : ldexpf((float)m, -9);
    return code & 0x80 ? -a : a;
}

/* The nearest of all numbers of the sign; of two the even code. */
static int nearest_e4m3(float t)
{
    const int sign = signbit(t) ? 0x80 : 0;
    int best = sign;
    for (int code = sign; code < sign + 0x7f; code++) {
        const double d = fabs((double)e4m3(code) - (double)t), least = fabs((double)e4m3(best) - (double)t);
        if (d < least || (d == least && code % 2 == 0))
            best = code;
    }
    return best;
}

typedef struct codes { uint8_t *code; void *largest, *out; } codes;

static float get(pt_dtype type, const void *p, int64_t i) { return (float)element(type, p, i); }

static void put(pt_dtype type, void *p, int64_t i, float x)
{
    if (type == PT_BF16)
        ((bf16 *)p)[i] = bf16_from_f32(x);
    else
        ((float *)p)[i] = x;
}

/* By the definition in device.h. */
static void scalar_group(code_kind kind, pt_dtype type, const void *x, int64_t first, int64_t n, int64_t group, codes *to)
{
    float largest = 0;
    bool codable = true;
    for (int64_t i = first; i < first + n; i++) {
        const float a = fabsf(get(type, x, i));
        codable = codable && isfinite(a);
        largest = isnan(a) || a > largest ? a : largest;
        if (isnan(largest))
            break;
    }
    codable = codable && largest >= CODE_LEAST;
    put(type, to->largest, group, largest);
    for (int64_t i = first; i < first + n; i++) {
        const float t = codable ? get(type, x, i) * ((kind == CODES_FP8 ? 448.0f : 127.0f) / largest) : 0;
        const int code = kind == CODES_FP8 ? codable ? nearest_e4m3(t) : 0 : (int)nearbyintf(t);
        to->code[i] = (uint8_t)code;
        put(type, to->out, i, kind == CODES_FP8 ? e4m3(code) * (largest * CODE_FP8_STEP) : (float)code * (largest * CODE_INT8_STEP));
    }
}

static codes alloc_codes(pt_dtype type, int64_t rows, int64_t cols)
{
    const size_t e = dtype_bytes(type);
    return (codes){test_alloc((size_t)(rows * cols)), test_alloc((size_t)(rows * code_groups(cols)) * e),
                   test_alloc((size_t)(rows * cols) * e)};
}

/* Groups of ordinary numbers, of zeros, of tiny and of huge numbers, of numbers halfway between codes, and some with infinity. */
static tensor random_rows(pt_dtype type, int64_t rows, int64_t cols)
{
    tensor x = tensor_random(type, rows * cols, 0, 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < code_groups(cols); g++) {
            const int what = random_below(12);
            for (int64_t i = g * CODE_GROUP; i < cols && i < (g + 1) * CODE_GROUP; i++) {
                const int64_t at = r * cols + i;
                const float old = get(type, x.data, at);
                const float of[] = {0, old * 1e-33f, old * 1e-20f, old * 1e30f, (float)random_below(509) / 2 - 127,
                                    i == g * CODE_GROUP ? INFINITY : old};
                if (what < 6)
                    put(type, x.data, at, what == 4 && i % CODE_GROUP == 3 ? 127 : of[what]);
            }
        }
    return x;
}

/* NaN may have other bits. */
static void same_values(pt_dtype type, const void *want, const void *got, int64_t n, const char *what)
{
    for (int64_t i = 0; i < n; i++)
        if (f32_bits(get(type, want, i)) != f32_bits(get(type, got, i)) && !(isnan(get(type, want, i)) && isnan(get(type, got, i))))
            fail_msg("%s %lld of %lld: %.9g instead of %.9g", what, (long long)i, (long long)n, (double)get(type, got, i),
                     (double)get(type, want, i));
}

static void check(code_kind kind, pt_dtype type, int64_t rows, int64_t cols, int threads)
{
    const tensor x = random_rows(type, rows, cols);
    const size_t bytes = (size_t)(rows * cols) * dtype_bytes(type);
    codes want = alloc_codes(type, rows, cols), got = alloc_codes(type, rows, cols);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t g = 0; g < code_groups(cols); g++) {
            const int64_t left = cols - g * CODE_GROUP;
            scalar_group(kind, type, x.data, r * cols + g * CODE_GROUP, left < CODE_GROUP ? left : CODE_GROUP,
                         r * code_groups(cols) + g, &want);
        }
    op_encode o = {kind, type, rows, cols, x.data, got.code, got.largest, got.out};
    run_op(threads, &(op){OP_ENCODE, .encode = o});
    same_bits(want.code, got.code, (size_t)(rows * cols), "codes");
    same_values(type, want.largest, got.largest, rows * code_groups(cols), "magnitude");
    same_values(type, want.out, got.out, rows * cols, "value");
    void *again = test_alloc(bytes), *in_place = test_copy(x.data, bytes);
    run_op(threads, &(op){OP_DECODE, .decode = {kind, type, rows, cols, got.code, got.largest, again}});
    same_bits(got.out, again, bytes, "decoded values");
    o.x = o.out = in_place, o.codes = NULL, o.largest = NULL;
    run_op(threads, &(op){OP_ENCODE, .encode = o});
    same_bits(got.out, in_place, bytes, "values in place");
}

static void every_code_has_the_bits_of_a_scalar_loop(void **state)
{
    (void)state;
    for (int turn = 0; turn < 120; turn++) {
        const int64_t cols = turn / 4 % 3 ? 1 + random_below(700) : 64 * (1 + random_below(9));
        check((code_kind)(turn & 1), types[turn / 2 & 1], 1 + random_below(40), cols, 1 + turn % TEST_THREADS);
        test_teardown(NULL);
    }
}

/* int8: half a step of the group. fp8: half a unit in the fourth binary digit, or of the least step. And one rounding to the type. */
static void values_are_as_near_as_codes_can_be(void **state)
{
    for (int turn = 0; turn < 40; turn++) {
        const code_kind kind = (code_kind)(turn & 1);
        const pt_dtype type = types[turn / 2 & 1];
        const int64_t rows = 1 + random_below(20), cols = 1 + random_below(300);
        const tensor x = tensor_random(type, rows * cols, 0.1, 1);
        void *out = test_alloc((size_t)(rows * cols) * dtype_bytes(type));
        run_op(1, &(op){OP_ENCODE, .encode = {kind, type, rows, cols, x.data, NULL, NULL, out}});
        for (int64_t i = 0; i < rows * cols; i++) {
            const int64_t row = i / cols, first = row * cols + i % cols / CODE_GROUP * CODE_GROUP;
            double largest = 0;
            for (int64_t k = first; k < first + CODE_GROUP && k < (row + 1) * cols; k++)
                largest = fmax(largest, fabs(x.value[k]));
            const double half = kind == CODES_FP8 ? fmax(fabs(x.value[i]) / 16, largest / 448 * 0x1p-10) : largest / 254;
            const double error = fabs(element(type, out, i) - x.value[i]), rounding = fabs(x.value[i]) * (type == PT_BF16 ? 0x1p-8 : 0);
            if (!(error <= half * (1 + 1e-5) + rounding))
                fail_msg("value %lld is off by %g, more than %g", (long long)i, error, half);
        }
        test_teardown(state);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(every_code_has_the_bits_of_a_scalar_loop), OP_TEST(values_are_as_near_as_codes_can_be)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
