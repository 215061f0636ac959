/* Weights in few bits: the codes and scales of bitsandbytes (fixtures/make_few_bits.py), tensor by tensor whatever a parameter is made of,
 * and however many rows are read at a time. */
#include "model/support.h"

#include "base/rng.h"
#include "device/fewbit.h"
#include "few_bits.h"
#include "io/safetensors.h"
#include "model/rows.h"
#include "seed.h"

#include <math.h>

/* ---- beside bitsandbytes ---- */

static safetensors *fixture;

static int open_fixture(void **state)
{
    return safetensors_open(PT_FIXTURES "/few_bits/bitsandbytes.safetensors", &fixture, NULL);
}

static int close_fixture(void **state)
{
    safetensors_close(fixture);
    return 0;
}

static const safetensors_tensor *find(const char *name, const char *what)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, what);
    const safetensors_tensor *t = safetensors_find(fixture, full);
    if (!t)
        fail_msg("no %s", full);
    return t;
}

static float *floats(const char *name, const char *what, int64_t *n)
{
    const safetensors_tensor *t = find(name, what);
    float *values = malloc(sizeof *values * t->elements);
    assert_non_null(values);
    assert_int_equal(safetensors_read_f32(fixture, t, 0, t->elements, values, NULL), 0);
    *n = (int64_t)t->elements;
    return values;
}

static void same_bytes(const char *name, const char *what, const void *got)
{
    const safetensors_tensor *t = find(name, what);
    unsigned char *want = malloc(t->bytes);
    assert_non_null(want);
    assert_int_equal(safetensors_read(fixture, t, 0, t->bytes, want, NULL), 0);
    for (uint64_t i = 0; i < t->bytes; i++)
        if (want[i] != ((const unsigned char *)got)[i])
            fail_msg("%s.%s: byte %llu is %d, not %d", name, what, (unsigned long long)i, ((const unsigned char *)got)[i], want[i]);
    free(want);
}

static const char *const cases[] = {"blocks", "odd", "few", "column"};
enum { CASES = sizeof cases / sizeof *cases };

/* Whose mean it is: PyTorch adds in an order of its own, in fp32. */
static void near_mean(float got, float want)
{
    if (fabsf(got - want) > 1e-6f * fabsf(want))
        fail_msg("the mean is %.9g, not %.9g", (double)got, (double)want);
}

static void nf4_has_the_bits_of_bitsandbytes(void **state)
{
    for (int i = 0; i < CASES; i++) {
        int64_t n, one;
        float *w = floats(cases[i], "weight", &n), *offset = floats(cases[i], "offset", &one);
        const int64_t blocks = (n + NF4_BLOCK - 1) / NF4_BLOCK;
        uint8_t *codes = malloc((size_t)n), *absmax_codes = malloc((size_t)blocks);
        float *absmax = malloc((size_t)blocks * sizeof *absmax), *nested = malloc((size_t)blocks * sizeof *nested);
        assert_true(codes && absmax_codes && absmax && nested);
        nf4_encode(w, n, codes, absmax);
        same_bytes(cases[i], "codes", codes);
        same_bytes(cases[i], "absmax", absmax);
        near_mean(nf4_mean(absmax, blocks), *offset);
        nf4_encode_absmax(absmax, blocks, *offset, absmax_codes, nested);
        same_bytes(cases[i], "absmax_codes", absmax_codes);
        same_bytes(cases[i], "nested", nested);
        free(w), free(offset), free(codes), free(absmax_codes), free(absmax), free(nested);
    }
}

static void int8_has_the_bits_of_bitsandbytes(void **state)
{
    for (int i = 0; i < CASES; i++) {
        int64_t n;
        float *w = floats(cases[i], "weight", &n);
        const int64_t rows = find(cases[i], "weight")->shape[0], cols = n / rows;
        uint8_t *codes = malloc((size_t)n);
        float *scales = malloc((size_t)rows * sizeof *scales);
        assert_true(codes && scales);
        for (int64_t r = 0; r < rows; r++)
            int8_encode(w + r * cols, cols, codes + r * cols, scales + r);
        same_bytes(cases[i], "int8", codes);
        same_bytes(cases[i], "scales", scales);
        free(w), free(codes), free(scales);
    }
}

/* ---- a parameter ---- */

/* Room for the parts of one of the latest few parameters. */
static param_part *parts_of_one(void)
{
    static param_part parts[8][MODEL_MAX_PARTS];
    static int used;
    return parts[used++ % 8];
}

/* A matrix of a layer as it is kept: of one tensor. */
static param matrix_of(int64_t rows, int64_t cols, param_storage storage)
{
    param p = {.rows = rows, .cols = cols, .parts = 1, .storage = storage, .part = parts_of_one()};
    p.part[0] = (param_part){.rows = rows};
    return p;
}

static void decoding_gives_the_values_of_bitsandbytes(void **state)
{
    for (int i = 0; i < CASES; i++)
        for (int s = STORAGE_NF4; s <= STORAGE_INT8; s++) {
            int64_t n;
            float *w = floats(cases[i], "weight", &n), *want = floats(cases[i], s == STORAGE_NF4 ? "decoded" : "int8_decoded", &n);
            const int64_t rows = find(cases[i], "weight")->shape[0];
            param p = matrix_of(rows, n / rows, (param_storage)s);
            model m = {.params_n = 1, .params = &p};
            char *piece = few_bits_piece(&m, 0, w, NF4_BLOCK, NULL);
            assert_non_null(piece);
            if (s == STORAGE_NF4) { /* its own mean, of which ours is the rounding of another sum */
                int64_t one;
                float *offset = floats(cases[i], "offset", &one);
                memcpy(piece + storage_slab_at(&p, 0, NF4_OFFSET), offset, sizeof *offset);
                free(offset);
            }
            dequantize_rows(&p, piece, 0, rows, w);
            for (int64_t k = 0; k < n; k++) {
                const float got = s == STORAGE_NF4 ? bf16_to_f32(bf16_from_f32(w[k])) : w[k];
                if (f32_bits(got) != f32_bits(want[k]))
                    fail_msg("%s, format %d, value %lld: %.9g, not %.9g", cases[i], s, (long long)k, (double)got, (double)want[k]);
            }
            free(w), free(want), free(piece);
        }
}

/* ---- MXFP4 ---- */

/* Values with an exact half between two levels, signed zeros and numbers near the ends of fp32. */
static float mx_value(int64_t i)
{
    const float near_ends = i / MXFP4_BLOCK % 5 == 3 ? 5e37f : i / MXFP4_BLOCK % 5 == 4 ? 1e-38f : 1;
    return (float)(i * 29 % 65 - 32) * 0.125f * near_ends * (i / MXFP4_BLOCK == 2 ? 0 : 1);
}

/* Every code is the nearest that its block's scale has, of two the even one; decoded values become the same codes. */
static void mxfp4_is_nearest_and_idempotent(void **state)
{
    enum { N = 30 * MXFP4_BLOCK + 7 };
    float values[N], decoded[N], again[N];
    uint8_t codes[N], scales[N / MXFP4_BLOCK + 1];
    const param p = matrix_of(1, N, STORAGE_MXFP4);
    model m = {.params_n = 1, .params = (param *)&p};
    for (int64_t i = 0; i < N; i++)
        values[i] = mx_value(i);
    mxfp4_encode(values, N, codes, scales);
    char *piece = few_bits_piece(&m, 0, values, NF4_BLOCK, NULL);
    assert_non_null(piece);
    assert_memory_equal(piece, codes, (N + 1) / 2);
    dequantize_rows(&p, piece, 0, 1, decoded);
    for (int64_t i = 0; i < N; i++) {
        const double scale = ldexp(1, scales[i / MXFP4_BLOCK] - 127), x = fabs((double)values[i]) / scale;
        const int code = codes[i / 2] >> (i % 2 ? 4 : 0) & 7;
        assert_true(scales[i / MXFP4_BLOCK] <= MXFP4_MOST_SCALE && fabs((double)decoded[i]) == (double)mxfp4_levels[code] * scale);
        for (int k = 0; k < 8; k++) {
            const double there = fabs(x - (double)mxfp4_levels[k]), here = fabs(x - (double)mxfp4_levels[code]);
            assert_true(here < there || (here == there && (k == code || code % 2 == 0)));
        }
    }
    free(piece);
    piece = few_bits_piece(&m, 0, decoded, NF4_BLOCK, NULL);
    assert_non_null(piece);
    dequantize_rows(&p, piece, 0, 1, again);
    assert_memory_equal(again, decoded, sizeof again);
    free(piece);
}

/* ---- parameters of several tensors ---- */

static uint64_t seed;
static uint32_t stream;

static int random_from(int low, int high)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, 0, stream++, w);
    return low + (int)(w[0] % (uint32_t)(high - low + 1));
}

/* Up to four parts, or one whose rows are stored head by head. */
static param random_matrix(param_storage storage)
{
    param p = {.cols = random_from(1, 200), .parts = random_from(1, MODEL_MAX_PARTS), .storage = storage,
               .part = parts_of_one()};
    p.cols = random_from(0, 1) ? p.cols : p.cols / 64 * 64 + 64;
    const int64_t head = random_from(0, 2) ? 0 : random_from(1, 9);
    p.parts = head ? 1 : p.parts;
    for (int k = 0; k < p.parts; k++) {
        p.part[k] = (param_part){.row0 = p.rows, .rows = random_from(1, 90)};
        if (head) {
            param_part *part = &p.part[k];
            part->heads = random_from(1, 5);
            for (int i = 0, segments = random_from(1, 4); i < segments; i++)
                part->segment[i] = random_from(0, 1) ? head : 2 * head;
            part->rows = part->heads * (part->segment[0] + part->segment[1] + part->segment[2] + part->segment[3]);
        }
        p.rows += p.part[k].rows;
    }
    return p;
}

/* A part by itself, its rows in the order of its file: what bitsandbytes would be given. */
static void check_part(const param *p, int k, const float *values, const char *piece, const float *decoded)
{
    const param_part *part = &p->part[k];
    param alone = matrix_of(part->rows, p->cols, p->storage);
    model m = {.params_n = 1, .params = &alone};
    float *stored = malloc(sizeof *stored * (size_t)(part->rows * p->cols)), *want = malloc(sizeof *want * (size_t)(part->rows * p->cols));
    assert_true(stored && want);
    for (int64_t r = 0, row; r < part->rows; r++) {
        part_stored_run(part, r, 1, &row);
        memcpy(stored + r * p->cols, values + (part->row0 + row) * p->cols, (size_t)p->cols * sizeof *stored);
    }
    char *want_piece = few_bits_piece(&m, 0, stored, NF4_BLOCK, NULL);
    assert_non_null(want_piece);
    for (int s = 0; s < STORAGE_SLABS; s++)
        assert_memory_equal(piece + storage_slab_at(p, k, s), want_piece + storage_slab_at(&alone, 0, s), storage_slab_bytes(&alone, 0, s));
    dequantize_rows(&alone, want_piece, 0, part->rows, want);
    for (int64_t r = 0, row; r < part->rows; r++) {
        part_stored_run(part, r, 1, &row);
        assert_memory_equal(decoded + (part->row0 + row) * p->cols, want + r * p->cols, (size_t)p->cols * sizeof *want);
    }
    free(stored), free(want), free(want_piece);
}

static void each_tensor_is_quantized_by_itself_in_the_order_of_its_file(void **state)
{
    seed = test_seed();
    for (int turn = 0; turn < 200; turn++) {
        const param p = random_matrix((param_storage)(STORAGE_NF4 + turn % 3));
        model m = {.params_n = 1, .params = (param *)&p};
        const size_t n = (size_t)(p.rows * p.cols);
        float *values = malloc(n * sizeof *values), *decoded = malloc(n * sizeof *decoded);
        assert_true(values && decoded);
        for (size_t i = 0; i < n; i++)
            values[i] = (float)rng_normal(seed, RNG_TEST, 1 + (uint32_t)turn, i);
        char *piece = few_bits_piece(&m, 0, values, NF4_BLOCK, NULL), *again = few_bits_piece(&m, 0, values, 64 * random_from(2, 5), NULL);
        assert_true(piece && again);
        assert_memory_equal(piece, again, storage_bytes(&p));
        dequantize_rows(&p, piece, 0, p.rows, decoded);
        for (int k = 0; k < p.parts; k++)
            check_part(&p, k, values, piece, decoded);
        const int64_t some = random_from(0, (int)p.rows - 1); /* the rest, by itself */
        dequantize_rows(&p, piece, some, p.rows - some, values);
        assert_memory_equal(values, decoded + some * p.cols, (size_t)((p.rows - some) * p.cols) * sizeof *values);
        free(values), free(decoded), free(piece), free(again);
    }
}

/* ---- sizes, and what is refused ---- */

static void a_matrix_takes_about_half_a_byte_a_value_in_nf4(void **state)
{
    const param p = matrix_of(4864, 896, STORAGE_NF4), q = matrix_of(4864, 896, STORAGE_INT8),
                r = matrix_of(4864, 896, STORAGE_MXFP4);
    const double n = 4864 * 896;
    assert_true((double)storage_bytes(&p) / n < 0.5161 && (double)storage_bytes(&p) / n > 0.5158);
    assert_true((double)storage_bytes(&q) / n < 1.0046);
    assert_true((double)storage_bytes(&r) / n == 17.0 / 32);
}

static void what_is_too_wide_for_the_room_is_refused(void **state)
{
    const param p = matrix_of(2, 1000, STORAGE_NF4);
    model m = {.params_n = 1, .params = (param *)&p};
    static const float values[2000];
    pt_error e = {0};
    assert_null(few_bits_piece(&m, 0, values, 63, &e));
    assert_non_null(strstr(e.text, "64 rows of 1000 values"));
}

static void nothing_frozen_leaves_nothing_to_store(void **state)
{
    model *m = config_open("{'model_type': 'llama', 'vocab_size': 30, 'hidden_size': 16, 'num_attention_heads': 2, 'num_hidden_layers': 2, "
                           "'intermediate_size': 24, 'max_position_embeddings': 64}");
    pt_error e = {0};
    const uint64_t all = model_frozen_hash(m);
    assert_int_equal(model_store(m, STORAGE_NF4, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "`freeze`"));
    assert_true(all == 0 && model_storage(m) == STORAGE_PLAIN);
    for (int i = 0; i < m->params_n; i++)
        m->params[i].trainable = m->params[i].block != 1;
    const uint64_t frozen = model_frozen_hash(m);
    assert_int_equal(model_store(m, STORAGE_NF4, &e), 0);
    assert_true(model_frozen_hash(m) != frozen && model_storage(m) == STORAGE_NF4);
    for (int i = 0; i < m->params_n; i++)
        assert_int_equal(m->params[i].storage, m->params[i].block == 1 &&
                         m->params[i].kind->use == USE_MATRIX ? STORAGE_NF4 : STORAGE_PLAIN);
    model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nf4_has_the_bits_of_bitsandbytes),
                                       cmocka_unit_test(int8_has_the_bits_of_bitsandbytes),
                                       cmocka_unit_test(mxfp4_is_nearest_and_idempotent),
        cmocka_unit_test(decoding_gives_the_values_of_bitsandbytes),
                                       cmocka_unit_test(each_tensor_is_quantized_by_itself_in_the_order_of_its_file),
                                       cmocka_unit_test(a_matrix_takes_about_half_a_byte_a_value_in_nf4),
                                       cmocka_unit_test(what_is_too_wide_for_the_room_is_refused),
                                       cmocka_unit_test(nothing_frozen_leaves_nothing_to_store)};
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
