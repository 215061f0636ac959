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

typedef struct copies {
    void (*tile)(const op_attention *, int64_t, int64_t, int64_t, float *);
    void (*rows)(const op_attention *, int64_t, int64_t, int64_t, int64_t, int64_t, float *, float *);
    void (*sweep)(const op_attention_backward *, int64_t, int64_t, int64_t, int64_t, int64_t, float *,
                  float *, bool, float *);
    void (*store)(pt_dtype, const float *, int64_t, int64_t, void *, int64_t);
} copies;

static const copies COPIES[] = {
    {attention_tile_v2, attention_rows_v2, attention_backward_sweep_v2, attention_store_v2},
    {attention_tile_v3, attention_rows_v3, attention_backward_sweep_v3, attention_store_v3},
    {attention_tile_v4, attention_rows_v4, attention_backward_sweep_v4, attention_store_v4}};

/* One sequence, one head, in exactly the scratch that the header names. */
static void compute_with(const copies *c, problem *p)
{
    const op_attention *o = &p->op.forward;
    int64_t tiles = (o->q_len + ATT_QUERIES - 1) / ATT_QUERIES;
    int64_t sums = (o->kv_len + ATT_KEYS - 1) / ATT_KEYS * ATT_KEYS * attention_padded(o->dim);
    int64_t floats = attention_backward_floats(o->dim);
    assert_true(floats + 2 * ATT_SPAN * attention_padded(o->dim) <= ATT_SCRATCH_FLOATS);
    float *scratch = aligned_alloc(64, (size_t)(floats + 16) * sizeof(float));
    float *dk = calloc((size_t)sums, sizeof(float)), *dv = calloc((size_t)sums, sizeof(float));
    for (int i = 0; i < 16; i++)
        scratch[floats + i] = 1234.5f;
    for (int64_t t = 0; t < tiles; t++)
        c->tile(o, 0, 0, t, scratch);
    for (int64_t t = 0; t < tiles; t++)
        c->sweep(&p->op, 0, 0, t, 0, o->kv_len, dk, dv, true, scratch);
    c->store(o->type, dk, o->kv_len, o->dim, p->op.dk, o->ldkv);
    c->store(o->type, dv, o->kv_len, o->dim, p->op.dv, o->ldkv);
    for (int i = 0; i < 16; i++)
        assert_true(scratch[floats + i] == 1234.5f);
    free(scratch), free(dk), free(dv);
}

static void test_every_instruction_set_is_correct_and_stays_in_its_scratch(void **state)
{
    static const int dims[] = {3, 40, 64, 80, 128, ATT_MAX_DIM};
    for (int isa = 2; isa <= cpu_isa(); isa++)
        for (size_t d = 0; d < sizeof(dims) / sizeof(*dims); d++)
            for (int type = PT_F32; type <= PT_BF16; type++) {
                problem p = problem_open((shape){type, 1, 210, 210, 1, 1, dims[d], d % 2 ? 70 : 0, true, true, 0});
                compute_with(&COPIES[isa - 2], &p);
                assert_correct(&p, false);
            }
}

static void test_copies_with_fma_agree(void **state)
{
    if (cpu_isa() < 4)
        skip();
    shape s = {PT_F32, 1, 310, 310, 1, 1, 72, 100, true, true, 0};
    problem a = problem_open(s), b = problem_open(s);
    compute_with(&COPIES[1], &a);
    compute_with(&COPIES[2], &b);
    assert_same_results(&a, &b);
}

static void test_row_kernel_leaves_half_of_the_scratch_alone(void **state)
{
    static const int sizes[][2] = {{36, ATT_MAX_DIM}, {292, 64}}; /* heads, dim: as many rows as a task takes */
    enum { HALF = ATT_SCRATCH_FLOATS / 2 };
    for (int isa = 2; isa <= cpu_isa(); isa++)
        for (int n = 0; n < 2; n++) {
            int heads = sizes[n][0], dim = sizes[n][1];
            assert_true(heads * 7 * dim <= ATT_ROW_FLOATS && (heads + 1) * 7 * dim > ATT_ROW_FLOATS);
            problem p = problem_open((shape){PT_F32, 1, 7, 100, heads, heads, dim, 0, false, false, 0});
            float *scratch = aligned_alloc(64, (HALF + 16) * sizeof(float));
            float *partial = malloc(sizeof(float) * (size_t)(7 * heads * (dim + 2)));
            for (int i = 0; i < 16; i++)
                scratch[HALF + i] = 1234.5f;
            COPIES[isa - 2].rows(&p.op.forward, 0, 0, heads, 0, 100, partial, scratch);
            for (int i = 0; i < 16; i++)
                assert_true(scratch[HALF + i] == 1234.5f);
            free(scratch), free(partial);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_exp_is_within_two_ulp),
        OP_TEST(test_every_instruction_set_is_correct_and_stays_in_its_scratch),
        OP_TEST(test_copies_with_fma_agree),
        OP_TEST(test_row_kernel_leaves_half_of_the_scratch_alone),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
