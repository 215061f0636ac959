/* AdamW with moments in 8 bits: the map of the codes, codes that are nearest, and updates equal to the bit to a scalar loop. */
#include "device/reference.h"

#include "device/moment_map.h"

enum { BLOCK = ADAMW8BIT_BLOCK };

/* ---- the map ---- */

/* The definition, in fp64: of decade d, from 0.1 to 1 times 10^(d - 6), the centres of 2^d equal parts, of second moments twice as many. */
static int defined_values(bool is_signed, double out[MOMENT_CODES])
{
    int n = 0;
    for (int d = 0; d < 7; d++) {
        const int parts = (is_signed ? 1 : 2) << d;
        for (int i = 0; i < parts; i++) {
            out[n++] = pow(10, d - 6) * (0.1 + 0.9 * (i + 0.5) / parts);
            if (is_signed)
                out[n] = -out[n - 1], n++;
        }
    }
    out[n++] = 0;
    out[n++] = 1;
    return n;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void the_map_is_the_published_one(void **state)
{
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const moment_map *m = moment_map_get(is_signed);
        double want[MOMENT_CODES];
        assert_int_equal(defined_values(is_signed, want), MOMENT_CODES);
        qsort(want, MOMENT_CODES, sizeof *want, by_value);
        for (int i = 0; i < MOMENT_CODES; i++)
            assert_true(fabs((double)m->value[i] - want[i]) <= 3e-7 * fabs(want[i]));
        assert_true(is_signed ? m->value[0] < -0.99f : m->value[0] == 0);
        assert_true(m->value[MOMENT_CODES - 1] == 1);
    }
}

/* create_dynamic_map() of bitsandbytes 0.50.2, PyTorch 2.15: FNV-1a of the bytes of its 256 fp32. */
static void the_map_has_the_bits_of_bitsandbytes(void **state)
{
    static const uint64_t want[2] = {0x43811b16730a873e, 0xd677f22a96665bc4};
    for (int is_signed = 0; is_signed < 2; is_signed++) {
        const unsigned char *p = (const unsigned char *)moment_map_get(is_signed)->value;
        uint64_t hash = 0xcbf29ce484222325u;
        for (size_t i = 0; i < MOMENT_CODES * sizeof(float); i++)
            hash = (hash ^ p[i]) * 0x100000001b3u;
        assert_true(hash == want[is_signed]);
    }
}

static int nearest(const moment_map *m, double x)
{
    int best = 0;
    for (int i = 1; i < MOMENT_CODES; i++)
        if (fabs(m->value[i] - x) < fabs(m->value[best] - x))
            best = i;
    return best;
}

/* ---- updates ---- */

typedef struct states {
    pt_dtype type;
    int64_t n;
    float *w, *m_scale, *v_scale; /* w of fp32; of bf16 in hi and lo */
    bf16 *hi;
    uint16_t *lo;
    uint8_t *m, *v;
    void *g;
} states;

static states random_states(pt_dtype type, int64_t n, double size)
{
    const int64_t blocks = (n + BLOCK - 1) / BLOCK;
    states s = {.type = type, .n = n, .w = tensor_random(PT_F32, n, 0, size).data, .m_scale = tensor_random(PT_F32, blocks, 0, size).data,
                .v_scale = tensor_random(PT_F32, blocks, 0, size * size).data, .hi = test_alloc((size_t)n * 2),
                .lo = test_alloc((size_t)n * 2), .m = test_alloc((size_t)n), .v = test_alloc((size_t)n),
                .g = tensor_random(type, n, 0, size).data};
    for (int64_t i = 0; i < n; i++) {
        master_split(s.w[i], &s.hi[i], &s.lo[i]);
        s.m[i] = (uint8_t)random_below(256);
        s.v[i] = (uint8_t)random_below(256);
    }
    for (int64_t i = 0; i < blocks; i++) {
        s.m_scale[i] = random_below(9) ? fabsf(s.m_scale[i]) : 0;
        s.v_scale[i] = random_below(9) ? fabsf(s.v_scale[i]) : 0;
    }
    return s;
}

static states copy_of(const states *s)
{
    states c = *s;
    const size_t n = (size_t)s->n, blocks = (n + BLOCK - 1) / BLOCK;
    c.w = test_copy(s->w, n * 4), c.hi = test_copy(s->hi, n * 2), c.lo = test_copy(s->lo, n * 2);
    c.m = test_copy(s->m, n), c.v = test_copy(s->v, n);
    c.m_scale = test_copy(s->m_scale, blocks * 4), c.v_scale = test_copy(s->v_scale, blocks * 4);
    return c;
}

static op_adamw8bit op_of(const states *s)
{
    const bool half = s->type == PT_BF16;
    return (op_adamw8bit){.adamw = {.type = s->type, .n = s->n, .hi = half ? (void *)s->hi : s->w, .lo = half ? s->lo : NULL, .g = s->g,
                                    .grad_scale = 0.37f, .decay = 1 - 3e-4f * 0.1f, .beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f,
                                    .step_size = 3e-4f / 0.271f, .sqrt_correction2 = 0.3776f},
                          .m = s->m, .v = s->v, .m_scale = s->m_scale, .v_scale = s->v_scale};
}

static float tidy(float x) { return fabsf(x) < 0x1p-126f ? 0 : x; }

static uint8_t code_of(const moment_map *m, float x, float scale)
{
    const int code = moment_nearest(m->middle, x / (scale > 0 ? scale : 1));
    return (uint8_t)(x > 0 && m->value[code] <= 0 && m == moment_map_get(false) ? 1 : code);
}

/* One block: AdamW on decoded moments, then the codes. */
static void scalar_block(const op_adamw8bit *o, int64_t from, int64_t n)
{
    const moment_map *first = moment_map_get(true), *second = moment_map_get(false);
    const op_adamw *a = &o->adamw;
    float m[BLOCK], v[BLOCK], *m_scale = &o->m_scale[from / BLOCK], *v_scale = &o->v_scale[from / BLOCK], m_most = 0, v_most = 0;
    for (int64_t k = 0; k < n; k++) {
        const int64_t i = from + k;
        float g = (float)element(a->type, a->g, i) * a->grad_scale;
        float w = a->lo ? master_join(((bf16 *)a->hi)[i], a->lo[i]) : ((float *)a->hi)[i];
        w = w * a->decay;
        m[k] = first->value[o->m[i]] * *m_scale;
        m[k] = tidy(fmaf(1 - a->beta1, g - m[k], m[k]));
        float kept = second->value[o->v[i]] * *v_scale, square = g * g;
        kept = a->beta2 * kept;
        v[k] = tidy(fmaf(1 - a->beta2, square, kept));
        w = fmaf(-a->step_size, m[k] / (sqrtf(v[k]) / a->sqrt_correction2 + a->eps), w);
        if (a->lo)
            master_split(w, &((bf16 *)a->hi)[i], &a->lo[i]);
        else
            ((float *)a->hi)[i] = w;
        m_most = fabsf(m[k]) > m_most ? fabsf(m[k]) : m_most;
        v_most = v[k] > v_most ? v[k] : v_most;
    }
    *m_scale = m_most, *v_scale = v_most;
    for (int64_t k = 0; k < n; k++) {
        o->m[from + k] = code_of(first, m[k], m_most);
        o->v[from + k] = code_of(second, v[k], v_most);
    }
}

static void scalar_update(const op_adamw8bit *o)
{
    for (int64_t i = 0; i < o->adamw.n; i += BLOCK)
        scalar_block(o, i, o->adamw.n - i < BLOCK ? o->adamw.n - i : (int64_t)BLOCK);
}

static void same_states(const states *a, const states *b)
{
    const size_t n = (size_t)a->n, blocks = (n + BLOCK - 1) / BLOCK;
    same_bits(a->w, b->w, n * 4, "w");
    same_bits(a->hi, b->hi, n * 2, "hi");
    same_bits(a->lo, b->lo, n * 2, "lo");
    same_bits(a->m, b->m, n, "m");
    same_bits(a->v, b->v, n, "v");
    same_bits(a->m_scale, b->m_scale, blocks * 4, "scales of m");
    same_bits(a->v_scale, b->v_scale, blocks * 4, "scales of v");
}

/* Sizes from numbers of every day down to denormals, several steps, 1 to 4 threads. */
static void it_is_the_scalar_loop_to_the_bit(void **state)
{
    static const int64_t sizes[] = {1, 256, 40, 257, 70000};
    for (int turn = 0; turn < 40; turn++) {
        const double magnitude = exp2(-(double)random_below(60) * (turn & 2));
        states start = random_states(types[turn & 1], sizes[turn % 5], magnitude), want = copy_of(&start);
        op_adamw8bit o = op_of(&want);
        for (int step = 0; step < 3; step++)
            scalar_update(&o);
        for (int threads = 1; threads <= TEST_THREADS; threads++) {
            states got = copy_of(&start);
            o = op_of(&got);
            for (int step = 0; step < 3; step++)
                run_op(threads, &(op){OP_ADAMW8BIT, .adamw8bit = o});
            same_states(&want, &got);
        }
        test_teardown(NULL);
    }
}

static void scalar_codes(const moment_map *map, const float *values, int64_t n, uint8_t *codes, float *scale)
{
    *scale = 0;
    for (int64_t i = 0; i < n; i++)
        *scale = fabsf(values[i]) > *scale ? fabsf(values[i]) : *scale;
    for (int64_t i = 0; i < n; i++)
        codes[i] = code_of(map, values[i], *scale);
}

static void check_codes(op_moment_codes o, int threads)
{
    const moment_map *first = moment_map_get(true), *second = moment_map_get(false);
    o.encode = true;
    run_op(threads, &(op){OP_MOMENT_CODES, .moment_codes = o});
    for (int64_t i = 0; i < o.n; i += BLOCK) {
        const int64_t n = o.n - i < BLOCK ? o.n - i : (int64_t)BLOCK;
        uint8_t m[BLOCK], v[BLOCK];
        float scale[2];
        scalar_codes(first, o.m + i, n, m, &scale[0]);
        scalar_codes(second, o.v + i, n, v, &scale[1]);
        same_bits(m, o.m_code + i, (size_t)n, "codes of m");
        same_bits(v, o.v_code + i, (size_t)n, "codes of v");
        same_bits(scale, o.scale + 2 * (i / BLOCK), sizeof scale, "scales");
    }
    o.encode = false;
    run_op(threads, &(op){OP_MOMENT_CODES, .moment_codes = o});
    for (int64_t i = 0; i < o.n; i++) {
        assert_true(o.m[i] == first->value[o.m_code[i]] * o.scale[2 * (i / BLOCK)]);
        assert_true(o.v[i] == second->value[o.v_code[i]] * o.scale[2 * (i / BLOCK) + 1]);
    }
}

static void codes_alone_are_those_of_a_scalar_loop(void **state)
{
    static const int64_t sizes[] = {1, 256, 40, 257, 20000};
    for (int turn = 0; turn < 20; turn++) {
        const int64_t n = sizes[turn % 5];
        states s = random_states(PT_F32, n, exp2(-(double)random_below(40) * (turn & 1)));
        float *v = test_copy(s.w, (size_t)n * 4), *scale = test_alloc((size_t)(n / BLOCK + 1) * 8);
        for (int64_t i = 0; i < n; i++)
            v[i] = v[i] * v[i];
        check_codes((op_moment_codes){false, n, s.w, v, s.m, s.v, scale}, 1 + turn % TEST_THREADS);
        test_teardown(NULL);
    }
}

/* What is kept of each moment is the nearest value that there is, but that a positive second one stays above 0. */
static void codes_are_of_the_nearest_values(void **state)
{
    enum { N = 1 << 16 };
    const moment_map *first = moment_map_get(true), *second = moment_map_get(false);
    states s = random_states(PT_F32, N, 1);
    float *g = s.g;
    for (int64_t i = 0; i < N; i++)
        g[i] = ldexpf(g[i], -random_below(30));
    memset(s.m_scale, 0, N / BLOCK * sizeof(float));
    memset(s.v_scale, 0, N / BLOCK * sizeof(float));
    op_adamw8bit o = op_of(&s);
    o.adamw.beta1 = o.adamw.beta2 = 0, o.adamw.grad_scale = 1; /* moments are the gradient and its square */
    run_op(2, &(op){OP_ADAMW8BIT, .adamw8bit = o});
    int apart = 0;
    for (int64_t i = 0; i < N; i++) {
        const float x = g[i] / s.m_scale[i / BLOCK], square = g[i] * g[i], y = square / s.v_scale[i / BLOCK];
        const int m = nearest(first, x), v = nearest(second, y);
        assert_true(s.m[i] == m || fabs(fabs(first->value[s.m[i]] - (double)x) - fabs(first->value[m] - (double)x)) < 1e-8);
        assert_true(s.v[i] == v || (v == 0 && s.v[i] == 1 && square > 0) ||
                    fabs(fabs(second->value[s.v[i]] - (double)y) - fabs(second->value[v] - (double)y)) < 1e-8);
        assert_true(!(square > 0) || s.v[i] > 0);
        apart += s.v[i] != v;
    }
    assert_true(apart > 0); /* small ones were met */
}

/* The gradients of a block span more than codes and fp32 do. None of the weights may then move further than AdamW's by much, as it would if
 * its first moment were kept and its second were not. */
static void small_gradients_beside_large_ones_move_nothing_far(void **state)
{
    enum { N = 4 * BLOCK, STEPS = 40 };
    for (int turn = 0; turn < 8; turn++) {
        states s = random_states(types[turn & 1], N, 1);
        memset(s.m_scale, 0, N / BLOCK * sizeof(float));
        memset(s.v_scale, 0, N / BLOCK * sizeof(float));
        op_adamw8bit o = op_of(&s);
        o.adamw.decay = o.adamw.grad_scale = 1;
        for (int step = 1; step <= STEPS; step++) {
            for (int i = 0; i < N; i++) {
                const int exponent = i % 5 ? -random_below(turn < 4 ? 12 : 70) : turn < 4 ? 0 : 40;
                const float g = step > 1 && random_below(3) ? 0 : ldexpf(random_below(2) ? 1.0f : -1.0f, exponent);
                if (s.type == PT_BF16)
                    ((bf16 *)s.g)[i] = bf16_from_f32(g);
                else
                    ((float *)s.g)[i] = g;
            }
            states before = copy_of(&s);
            o.adamw.step_size = 1e-3f / (1 - powf(0.9f, (float)step));
            o.adamw.sqrt_correction2 = sqrtf(1 - powf(0.95f, (float)step));
            run_op(1 + turn % 2, &(op){OP_ADAMW8BIT, .adamw8bit = o});
            for (int i = 0; i < N; i++) {
                const float was = s.type == PT_BF16 ? master_join(before.hi[i], before.lo[i]) : before.w[i];
                const float is = s.type == PT_BF16 ? master_join(s.hi[i], s.lo[i]) : s.w[i];
                if (fabsf(is - was) > 1e-3f * 20)
                    fail_msg("turn %d, step %d: weight %d moves by %g", turn, step, i, (double)(is - was));
            }
        }
        test_teardown(NULL);
    }
}

/* A gradient that is no number spoils its own weight and moments, and no other. */
static void what_is_no_number_stays_where_it_is(void **state)
{
    enum { N = 2 * BLOCK, AT = 77 };
    states s = random_states(PT_F32, N, 1), other = copy_of(&s);
    other.g = test_copy(s.g, N * 4);
    ((float *)s.g)[AT] = NAN;
    ((float *)other.g)[AT] = 0;
    op_adamw8bit o = op_of(&s), p = op_of(&other);
    run_op(1, &(op){OP_ADAMW8BIT, .adamw8bit = o});
    run_op(1, &(op){OP_ADAMW8BIT, .adamw8bit = p});
    assert_true(isnan(s.w[AT]));
    for (int i = 0; i < N; i++)
        assert_true(i == AT || memcmp(&s.w[i], &other.w[i], 4) == 0);
    assert_int_equal(s.m[AT], 0);
    assert_true(isfinite(s.m_scale[0]) && isfinite(s.v_scale[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {OP_TEST(the_map_is_the_published_one), OP_TEST(the_map_has_the_bits_of_bitsandbytes),
                                       OP_TEST(codes_alone_are_those_of_a_scalar_loop), OP_TEST(it_is_the_scalar_loop_to_the_bit),
                                       OP_TEST(codes_are_of_the_nearest_values),
                                       OP_TEST(small_gradients_beside_large_ones_move_nothing_far),
                                       OP_TEST(what_is_no_number_stays_where_it_is)};
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
