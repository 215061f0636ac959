/* The CPU's attention kernels of each instruction set, called directly. */
#include "device/attention_case.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/attention.h"

static void test_exp_is_within_two_ulp(void **state)
{
    double worst = 0;
    for (uint64_t i = 0; i < 1000000; i++) {
        float x = (float)(rng_uniform(the_test.seed, RNG_TEST, 50, i) * 175.6 - 87.3), y = x;
        if (x > 88.37f)
            continue;
        KERNEL_BEST(attention_exp)(&y, 1, 0);
        double e = exp((double)x);
        int power;
        frexp(e, &power);
        worst = fmax(worst, fabs((double)y - e) / ldexp(1, power - 24));
    }
    print_message("exp: at most %.3f ulp\n", worst);
    assert_true(worst < 2);
    float special[] = {-INFINITY, -1e30f, -87.34f, 0.0f, -0.0f, 89.0f, INFINITY, NAN, -NAN};
    KERNEL_BEST(attention_exp)(special, 9, 0);
    assert_true(special[0] == 0 && special[1] == 0 && special[2] == 0);
    assert_true(special[3] == 1 && special[4] == 1);
    assert_true(isinf(special[5]) && isinf(special[6]) && isnan(special[7]) && isnan(special[8]));
}

#if defined(__x86_64__)

void exp2_vector_v4exp2(const float x[16], float y[16]); /* exp2_kernel.c */

static void test_power_of_two_is_within_two_ulp(void **state)
{
    if (cpu_isa() < 4)
        skip();
    double worst = 0;
    for (uint64_t i = 0; i < 1000000; i += 16) {
        float x[16], y[16];
        for (uint64_t k = 0; k < 16; k++)
            x[k] = (float)(rng_uniform(the_test.seed, RNG_TEST, 51, i + k) * 253.9 - 125.95);
        exp2_vector_v4exp2(x, y);
        for (int k = 0; k < 16; k++) {
            double e = exp2((double)x[k]);
            int power;
            frexp(e, &power);
            worst = fmax(worst, fabs((double)y[k] - e) / ldexp(1, power - 24));
        }
    }
    print_message("exp2: at most %.3f ulp\n", worst);
    assert_true(worst < 2);
    float special[16] = {-INFINITY, -1e30f, -126.5f, 0.0f, -0.0f, -1, 7, 129, INFINITY, NAN, -NAN, -126}, y[16];
    exp2_vector_v4exp2(special, y);
    assert_true(y[0] == 0 && y[1] == 0 && y[2] == 0);
    assert_true(y[3] == 1 && y[4] == 1 && y[5] == 0.5f && y[6] == 128 && y[11] == 0x1p-126f);
    assert_true(isinf(y[7]) && isinf(y[8]) && isnan(y[9]) && isnan(y[10]));
}

#endif

typedef struct copies {
    void (*forward)(const op_attention *, const attention_task *, float *, int64_t);
    void (*backward)(const op_attention_backward *, const attention_backward_task *, float *, int64_t);
    void (*store)(pt_dtype, const float *, int64_t, int64_t, void *, int64_t);
    int64_t queries; /* of a tile */
} copies;

#define COPY(isa, queries) {attention_tiles_##isa, attention_backward_tiles_##isa, attention_store_##isa, queries}
#if defined(__x86_64__)
enum { LEAST_ISA = 2 };
static const copies COPIES[] = {COPY(v2, ATT_VECTOR_QUERIES), COPY(v3, ATT_VECTOR_QUERIES), COPY(v4, ATT_VECTOR_QUERIES)},
                    PAIRS = COPY(v3pairs, ATT_VECTOR_QUERIES), TILES = COPY(v3tiles, ATT_AMX_QUERIES),
                    BF16 = COPY(v4bf16, ATT_VECTOR_QUERIES), AMX = COPY(v4amx, ATT_AMX_QUERIES);
#else
enum { LEAST_ISA = 1 };
static const copies COPIES[] = {COPY(neon, ATT_VECTOR_QUERIES)}, BF16 = COPY(neonbf16, ATT_VECTOR_QUERIES);
#endif
enum { COPIES_COUNT = sizeof COPIES / sizeof *COPIES };

/* COPIES[0 .. this) run on this processor. */
static int copies_that_run(void) { return cpu_isa() - LEAST_ISA < COPIES_COUNT ? cpu_isa() - LEAST_ISA + 1 : COPIES_COUNT; }

/* One sequence, one kv head, in exactly the scratch that the header names and `more` floats, which holds NaN before each call. */
typedef struct workspace { float *scratch, *dk, *dv; int64_t forward, backward; } workspace;

enum { GUARD = 16 };

static float *spoiled(const workspace *w, int64_t floats)
{
    memset(w->scratch, 0xff, (size_t)floats * sizeof(float));
    for (int i = 0; i < GUARD; i++)
        w->scratch[floats + i] = 1234.5f;
    return w->scratch;
}

static void assert_kept(const workspace *w, int64_t floats)
{
    for (int i = 0; i < GUARD; i++)
        assert_true(w->scratch[floats + i] == 1234.5f);
}

static workspace workspace_open(const copies *c, const op_attention *o, int64_t more)
{
    int64_t sums = (o->kv_len + ATT_KEYS - 1) / ATT_KEYS * ATT_KEYS * attention_padded(o->dim), most;
    workspace w = {.forward = attention_forward_floats(o->dim, c->queries), .backward = attention_backward_floats(o->dim, c->queries)};
    assert_true(w.backward + 2 * ATT_SPAN * attention_padded(o->dim) <= ATT_SCRATCH_FLOATS && w.forward <= ATT_SCRATCH_FLOATS);
    w.forward += more, w.backward += more;
    most = w.forward > w.backward ? w.forward : w.backward;
    w.scratch = aligned_alloc(64, (size_t)(most + GUARD) * sizeof(float));
    w.dk = calloc((size_t)sums, sizeof(float)), w.dv = calloc((size_t)sums, sizeof(float));
    return w;
}

static void workspace_close(workspace *w, const copies *c, problem *p)
{
    const op_attention *o = &p->op.forward;
    c->store(o->type, w->dk, o->kv_len, o->dim, p->op.dk, o->ldkv);
    c->store(o->type, w->dv, o->kv_len, o->dim, p->op.dv, o->ldkv);
    free(w->scratch), free(w->dk), free(w->dv);
}

static int64_t tiles(const copies *c, const problem *p) { return (p->op.forward.q_len + c->queries - 1) / c->queries; }

static attention_task one_tile(int64_t head, int64_t tile) { return (attention_task){0, head, 1, tile, tile + 1, -1, -1}; }

static attention_task whole(const copies *c, const problem *p) { return (attention_task){0, 0, p->op.forward.heads, 0, tiles(c, p), 0, 0}; }

static void forward(const copies *c, const workspace *w, const problem *p, attention_task task)
{
    c->forward(&p->op.forward, &task, spoiled(w, w->forward), w->forward);
    assert_kept(w, w->forward);
}

/* Tile by tile, from the last one on. */
static void forward_by_tiles(const copies *c, const workspace *w, const problem *p)
{
    for (int64_t t = tiles(c, p) - 1; t >= 0; t--)
        for (int64_t head = 0; head < p->op.forward.heads; head++)
            forward(c, w, p, one_tile(head, t));
}

static void backward(const copies *c, const workspace *w, const problem *p, const attention_backward_task *task)
{
    c->backward(&p->op, task, spoiled(w, w->backward), w->backward);
    assert_kept(w, w->backward);
}

/* All queries at once, with room to keep none of the packed keys, some or all. */
static void compute_with(const copies *c, problem *p)
{
    static const int rows_kept[] = {0, 150, 1500};
    const op_attention *o = &p->op.forward;
    int pick = (int)(3 * rng_uniform(the_test.seed, RNG_TEST, 52, (uint64_t)(o->dim + o->q_len)));
    workspace w = workspace_open(c, o, rows_kept[pick] * attention_padded(o->dim));
    attention_backward_task task = {.queries = whole(c, p), .to = o->kv_len, .dk = w.dk, .dv = w.dv, .want_dq = true};
    forward(c, &w, p, whole(c, p));
    backward(c, &w, p, &task);
    workspace_close(&w, c, p);
}

/* Queries that follow keys which came before. */
static void check_later_queries(const copies *c, pt_dtype type, bool rounded, int dim)
{
    for (int window = 0; window <= 77; window += 77) {
        problem p = problem_open((shape){type, 1, 120, 251, 1, 1, dim, window, 0, true, 0});
        workspace w = workspace_open(c, &p.op.forward, 0);
        forward_by_tiles(c, &w, &p);
        workspace_close(&w, c, &p);
        assert_correct(&p, false, rounded);
    }
}

/* dk and dv span by span, and dq by itself, a tile of queries at a time. */
static void compute_in_spans(const copies *c, problem *p)
{
    const op_attention *o = &p->op.forward;
    workspace w = workspace_open(c, o, 0);
    forward_by_tiles(c, &w, p);
    for (int64_t from = 0; from < o->kv_len; from += ATT_KEYS)
        for (int64_t head = 0; head < o->heads; head++)
            for (int64_t t = from / c->queries; t < tiles(c, p); t++) {
                int64_t to = from + ATT_KEYS < o->kv_len ? from + ATT_KEYS : o->kv_len, at = from * attention_padded(o->dim);
                backward(c, &w, p, &(attention_backward_task){one_tile(head, t), from, to, w.dk + at, w.dv + at, false});
            }
    for (int64_t head = 0; head < o->heads; head++)
        for (int64_t t = 0; t < tiles(c, p); t++)
            backward(c, &w, p, &(attention_backward_task){.queries = one_tile(head, t), .to = o->kv_len, .want_dq = true});
    workspace_close(&w, c, p);
}

/* Heads of the dimensions that `multiple` divides. */
static void check_copy(const copies *c, pt_dtype type, bool rounded, int multiple)
{
    static const int dims[] = {5, 32, 40, 64, 80, 96, 128, ATT_MAX_DIM}, lengths[] = {19, 209, 210, 211};
    check_later_queries(c, type, rounded, 64);
    for (size_t d = 0; d < sizeof(dims) / sizeof(*dims); d++)
        for (size_t i = SANITIZED ? d % 2 : 0; i < sizeof(lengths) / sizeof(*lengths) && dims[d] % multiple == 0; i += SANITIZED ? 2 : 1) {
            int t = lengths[i];
            the_softcap = (i + d) % 3 == 1 ? 2 : 0;
            problem p = problem_open((shape){type, 1, t, t, t == 211 ? 3 : 1, 1, dims[d], d % 2 ? 70 : 0, t == 210 ? 20 : 0, true, 0});
            compute_with(c, &p);
            assert_correct(&p, false, rounded);
            problem apart = problem_open(p.s);
            compute_in_spans(c, &apart);
            assert_same_results(&p, &apart);
        }
    the_softcap = 0;
}

static void test_every_instruction_set_is_correct_and_stays_in_its_scratch(void **state)
{
    for (int i = 0; i < copies_that_run(); i++)
        for (int type = PT_F32; type <= PT_BF16; type++)
            check_copy(&COPIES[i], type, false, 1);
}

static void test_pairs_of_bf16_are_multiplied(void **state)
{
    print_message("this processor multiplies bf16 by %s\n", cpu_has_amx() ? "AMX" : cpu_has_bf16() ? "pairs" : "neither");
    if (cpu_has_bf16())
        check_copy(&BF16, PT_BF16, true, 1);
#if defined(__x86_64__)
    if (cpu_isa() >= 3) {
        check_copy(&PAIRS, PT_BF16, true, 1);
        check_copy(&TILES, PT_BF16, true, 32);
    }
    if (cpu_has_amx())
        check_copy(&AMX, PT_BF16, true, 32);
#endif
}

/* Of a diverged run: scores that single rounding errors of would make infinite. */
static void check_scores_in_the_billions(const copies *c)
{
    problem p = problem_open((shape){PT_BF16, 1, 130, 130, 1, 1, 64, 0, 0, false, 0});
    op_attention *o = &p.op.forward;
    for (int64_t i = 0; i < o->q_len * o->ldq; i++) {
        element_set(PT_BF16, (void *)o->q, i, 3e5f * bf16_to_f32(((const bf16 *)o->q)[i]));
        element_set(PT_BF16, (void *)o->k, i, 3e5f * bf16_to_f32(((const bf16 *)o->k)[i]));
    }
    compute_with(c, &p);
    for (int64_t i = 0; i < o->q_len; i++)
        for (int64_t d = 0; d < o->dim; d++) {
            assert_true(isfinite(bf16_to_f32(((const bf16 *)o->out)[i * o->ldo + d])));
            assert_true(isfinite(bf16_to_f32(((const bf16 *)p.op.dv)[i * o->ldkv + d])));
        }
}

static void test_scores_in_the_billions_stay_finite(void **state)
{
#if defined(__x86_64__)
    if (cpu_isa() >= 3) {
        check_scores_in_the_billions(&PAIRS);
        check_scores_in_the_billions(&TILES);
    }
#endif
    if (cpu_has_bf16())
        check_scores_in_the_billions(&BF16);
}

#if defined(__x86_64__)

static void test_copies_with_fma_agree(void **state)
{
    if (cpu_isa() < 4)
        skip();
    shape s = {PT_F32, 1, 310, 310, 1, 1, 72, 100, true, true, 0};
    for (int capped = 0; capped < 2; capped++) {
        the_softcap = capped ? 2 : 0;
        problem a = problem_open(s), b = problem_open(s);
        compute_with(&COPIES[1], &a);
        compute_with(&COPIES[2], &b);
        assert_same_results(&a, &b);
    }
    the_softcap = 0;
}

#endif

static void test_row_kernel_leaves_half_of_the_scratch_alone(void **state)
{
    static const int sizes[][2] = {{36, ATT_MAX_DIM}, {292, 64}}; /* heads, dim: as many rows as a task takes */
    static void (*const rows[])(const op_attention *, int64_t, int64_t, int64_t, int64_t, int64_t, float *, float *) = {
#if defined(__x86_64__)
        attention_rows_v2, attention_rows_v3, attention_rows_v4};
#else
        attention_rows_neon};
#endif
    enum { HALF = ATT_SCRATCH_FLOATS / 2 };
    for (int i = 0; i < copies_that_run(); i++)
        for (int n = 0; n < 2; n++) {
            int heads = sizes[n][0], dim = sizes[n][1];
            assert_true(heads * 7 * dim <= ATT_ROW_FLOATS && (heads + 1) * 7 * dim > ATT_ROW_FLOATS);
            problem p = problem_open((shape){PT_F32, 1, 7, 100, heads, heads, dim, 0, false, false, 0});
            float *scratch = aligned_alloc(64, (HALF + 16) * sizeof(float));
            float *partial = malloc(sizeof(float) * (size_t)(7 * heads * (dim + 2)));
            for (int k = 0; k < 16; k++)
                scratch[HALF + k] = 1234.5f;
            rows[i](&p.op.forward, 0, 0, heads, 0, 100, partial, scratch);
            for (int k = 0; k < 16; k++)
                assert_true(scratch[HALF + k] == 1234.5f);
            free(scratch), free(partial);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_exp_is_within_two_ulp),
        OP_TEST(test_every_instruction_set_is_correct_and_stays_in_its_scratch),
        OP_TEST(test_pairs_of_bf16_are_multiplied),
        OP_TEST(test_scores_in_the_billions_stay_finite),
#if defined(__x86_64__)
        OP_TEST(test_power_of_two_is_within_two_ulp),
        OP_TEST(test_copies_with_fma_agree),
#endif
        OP_TEST(test_row_kernel_leaves_half_of_the_scratch_alone),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
