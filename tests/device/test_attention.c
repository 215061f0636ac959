/* Attention on the device under test: against a float64 reference, finite differences, and itself. */
#include "device/attention_case.h"
#include "device/cpu/isa.h"
#include "sanitized.h"

static void compute(problem *p, int threads)
{
    run_op(threads, &(op){OP_ATTENTION, .attention = p->op.forward});
    if (p->s.q_len == p->s.kv_len)
        run_op(threads, &(op){OP_ATTENTION_BACKWARD, .attention_backward = p->op});
}

static void check(shape s)
{
    problem p = problem_open(s);
    compute(&p, 2);
    assert_correct(&p, device_is_cuda(), s.type == PT_BF16 && (device_is_cuda() || cpu_gains_by_bf16() || attention_by_amx(s.dim)));
    test_teardown(NULL);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Of a list of cases those from *first on that are tried: one of so many. */
static size_t some(int emulated, int sanitized, size_t *first)
{
    const int one_in = (test_device_is_emulated() ? emulated : 1) * (SANITIZED ? sanitized : 1);
    *first = (size_t)random_below(one_in);
    return (size_t)one_in;
}

static void test_odd_sizes_match_a_float64_reference(void **state)
{
    static const int dims[] = {1, 2, 5, 8, 40, 64, 80, 96, 128, 256}, lengths[] = {1, 7, 33, 8, 131, 205};
    size_t d, step = some(3, 2, &d);
    for (; d < sizeof(dims) / sizeof(*dims); d += step)
        for (size_t t = 0; t < sizeof(lengths) / sizeof(*lengths); t += test_device_is_emulated() ? 2 : 1) {
            shape s = {PT_F32, 2, lengths[t], lengths[t], 2, 1, dims[d], 0, false, true, 0};
            check(s);
            s.type = PT_BF16;
            check(s);
        }
}

static void test_query_heads_share_key_heads(void **state)
{
    static const int heads[][2] = {{8, 4}, {9, 3}, {8, 1}, {3, 3}};
    size_t i, step = some(1, 2, &i);
    for (; i < 4; i += step) {
        check((shape){PT_F32, 2, 101, 101, heads[i][0], heads[i][1], 24, 0, 0, true, 0});
        const int length = test_device_is_emulated() ? 140 : 300;
        check((shape){PT_BF16, 1, length, length, heads[i][0], heads[i][1], 64, 0, 0, false, 0});
    }
}

static void test_window_and_documents_bound_what_is_seen(void **state)
{
    static const int windows[] = {0, 1, 3, 50, 64, 97, 1000}, dims[] = {64, 8, 40, 128, 80, 256, 96};
    size_t w, step = some(2, 2, &w);
    for (; w < sizeof(windows) / sizeof(*windows); w += step)
        for (int documents = 0; documents < 2; documents++) {
            check((shape){PT_F32, 2, 333, 333, 2, 2, 16, windows[w], 20 * documents, false, 0});
            check((shape){PT_BF16, 1, 5, 5, 2, 2, 16, windows[w], 20 * documents, false, 0});
            check((shape){PT_BF16, 1, 150, 150, 2, 1, dims[w], windows[w], 20 * documents, false, 0});
            check((shape){PT_F32, 2, 2, 700, 4, 2, 32, windows[w], 20 * documents, false, 0});
        }
}

static void test_few_queries_against_many_keys(void **state)
{
    static const int keys[] = {8, 9, 64, 65, 513, 5000, 9000};
    size_t k, step = some(1, 3, &k);
    for (; k < sizeof(keys) / sizeof(*keys) - (test_device_is_emulated() ? 2 : 0); k += step)
        for (int q = 1; q <= 9; q += SANITIZED ? 4 : 2 - (q == 7)) {
            int kv = keys[k] < q ? q : keys[k];
            check((shape){PT_BF16, 2, q, kv, 4, 2, 40, 0, 0, true, 77});
            check((shape){PT_F32, 1, q, kv, 3, 1, 64, 600, 0, false, 0});
        }
    if (test_device_is_emulated())
        return;
    check((shape){PT_F32, 3, 7, 8200, 32, 4, 32, 0, 0, false, 0}); /* several runs of the pool */
    check((shape){PT_F32, 2, 7, 300, 80, 40, 256, 0, 0, false, 0}); /* heads in several tasks */
    check((shape){PT_F32, 1, 7, 70, 90, 1, 256, 0, 0, false, 0});   /* too many rows for one task */
}

static void test_prompt_after_a_cache(void **state)
{
    check((shape){PT_F32, 2, 50, 177, 4, 2, 64, 0, 0, true, 33});
    check((shape){PT_BF16, 1, 120, 250, 4, 2, 64, 90, 20, false, 0});
}

/* Several sequences in rows of whole 16-byte words, of a GPU's widest tiles too, and with other strides. */
static void test_several_sequences_in_aligned_rows(void **state)
{
    check((shape){PT_BF16, 2, 70, 70, 4, 2, 256, 40, 20, false, 0});
    check((shape){PT_BF16, 2, 70, 70, 2, 1, 128, 0, 0, false, 16});
    check((shape){PT_BF16, 3, 65, 65, 2, 2, 64, 0, 20, false, 8});
}

/* Documents that begin behind keys which the queries before them see, and end further on than a tile. */
static void test_documents_longer_than_a_tile(void **state)
{
    const int length = test_device_is_emulated() ? 300 : 700;
    for (int dim = 64; dim <= 128; dim *= 2)
        check((shape){PT_BF16, 1, length, length, 2, 2, dim, 0, 100, false, 0});
}

/* Several blocks of a GPU's keys and queries, of which a window or a document leaves some out. */
static void test_windows_and_documents_over_several_blocks(void **state)
{
    static const int windows[] = {0, 20, 97, 250};
    size_t w, step = some(2, 2, &w);
    for (; w < sizeof(windows) / sizeof(*windows); w += step)
        for (int dim = 64; dim <= 128; dim *= 2)
            check((shape){PT_BF16, 1, test_device_is_emulated() ? 300 : 450, test_device_is_emulated() ? 300 : 450, 2, 1, dim, windows[w],
                          w % 2 == 0 ? 20 : 0, false, 0});
}

/* By every way to compute them: few queries, vectors or tiles of them, rows of whole 16-byte words or not. */
static void test_capped_scores_match_a_float64_reference(void **state)
{
    static const float caps[] = {0.7f, 2, 30};
    static const int windows[] = {0, 50, 97}, dims[] = {64, 128, 256};
    size_t c, step = some(2, 2, &c);
    for (; c < sizeof(caps) / sizeof(*caps); c += step) {
        const int length = test_device_is_emulated() ? 140 : 333;
        the_softcap = caps[c];
        check((shape){PT_F32, 2, length, length, 4, 2, 24, windows[c], 20, true, 0});
        check((shape){PT_BF16, 1, 77, 77, 2, 1, 40, 0, 0, true, 0});
        for (int d = 0; d < 3; d++)
            check((shape){PT_BF16, 2, length, length, 2, 1, dims[d], windows[(c + (size_t)d) % 3], d == 1 ? 60 : 0, false, 0});
        check((shape){PT_BF16, 2, 1 + (int)random_below(7), 300, 4, 2, 64, 0, 0, true, 77});
        check((shape){PT_F32, 1, 3, 9, 2, 1, 16, 0, 0, false, 0});
        check((shape){PT_BF16, 1, 120, 250, 4, 2, 64, 90, 20, false, 0});
    }
    the_softcap = 0;
}

/* Where scores are large and the largest comes early, what is summed so far is multiplied by 1 again and again. */
static void test_sums_over_many_keys_do_not_drift(void **state)
{
    const shape s = {PT_BF16, 1, 64, 6000, 1, 1, 64, 0, false, false, 0};
    problem p = problem_open(s);
    void *q = (void *)p.op.forward.q, *k = (void *)p.op.forward.k;
    for (int64_t i = 0; i < s.q_len * s.dim; i++)
        element_set(s.type, q, i, 10 + (double)(i / s.dim) / 8);
    for (int64_t i = 0; i < s.dim; i++)
        element_set(s.type, k, i, 1);
    compute(&p, 1);
    assert_correct(&p, device_is_cuda(), device_is_cuda() || cpu_gains_by_bf16() || attention_by_amx(s.dim));
}

/* q, k and v side by side in one buffer, and their gradients in another. */
static void check_interleaved(pt_dtype type, int64_t len, int64_t dim)
{
    problem p = problem_open((shape){type, 2, (int)len, (int)len, 4, 2, (int)dim, 0, 0, false, 0});
    op_attention *o = &p.op.forward;
    const size_t e = dtype_bytes(type), q = 4 * e * (size_t)dim, kv = q / 2, row = q + 2 * kv, rows = 2 * (size_t)len;
    char *qkv = test_alloc(rows * row), *dqkv = test_alloc(rows * row);
    for (size_t r = 0; r < rows; r++) {
        memcpy(qkv + r * row, (const char *)o->q + r * q, q);
        memcpy(qkv + r * row + q, (const char *)o->k + r * kv, kv);
        memcpy(qkv + r * row + q + kv, (const char *)o->v + r * kv, kv);
    }
    compute(&p, 2);
    problem inter = p;
    op_attention *i = &inter.op.forward;
    i->q = qkv, i->k = qkv + q, i->v = qkv + q + kv, i->ldq = i->ldkv = 8 * dim;
    inter.op.dq = dqkv, inter.op.dk = dqkv + q, inter.op.dv = dqkv + q + kv;
    compute(&inter, 2);
    for (size_t r = 0; r < rows; r++) {
        assert_memory_equal(dqkv + r * row, (char *)p.op.dq + r * q, q);
        assert_memory_equal(dqkv + r * row + q, (char *)p.op.dk + r * kv, kv);
        assert_memory_equal(dqkv + r * row + q + kv, (char *)p.op.dv + r * kv, kv);
    }
}

static void test_interleaved_qkv(void **state)
{
    check_interleaved(PT_F32, 150, 24);
    check_interleaved(PT_BF16, 70, 64);
}

static double weighted_output(problem *p)
{
    run_op(1, &(op){OP_ATTENTION, .attention = p->op.forward});
    double sum = 0;
    for (size_t i = 0; i < p->out_bytes / sizeof(float); i++)
        sum += (double)((float *)p->op.forward.out)[i] * ((const float *)p->op.dout)[i];
    return sum;
}

static void check_finite_differences(void)
{
    problem p = problem_open((shape){PT_F32, 1, 40, 40, 4, 2, 12, 25, 20, false, 0});
    compute(&p, 1);
    float *inputs[] = {(float *)p.op.forward.q, (float *)p.op.forward.k, (float *)p.op.forward.v};
    float *grads[] = {p.op.dq, p.op.dk, p.op.dv};
    size_t counts[] = {p.q_bytes / 4, p.kv_bytes / 4, p.kv_bytes / 4};
    const float h = 0x1p-6f;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < counts[t]; i += test_device_is_emulated() ? 29 : 7) {
            float x = inputs[t][i];
            inputs[t][i] = x + h;
            double up = weighted_output(&p);
            inputs[t][i] = x - h;
            double down = weighted_output(&p);
            inputs[t][i] = x;
            assert_true(fabs((up - down) / (2 * h) - grads[t][i]) < 2e-3);
        }
    }

static void test_gradients_match_finite_differences(void **state)
{
    check_finite_differences();
    the_softcap = 1.5f;
    check_finite_differences();
    the_softcap = 0;
}

/* Each thread sweeps as many whole sequences and kv heads backward, what is left is split. Two of the shapes do not fit a thread's
 * scratch and are swept in the op's sums. */
static void test_bits_do_not_depend_on_the_number_of_threads(void **state)
{
    if (test_device_is_emulated())
        NOT_SANITIZED();
    static const shape shapes[] = {{PT_F32, 1, 700, 700, 3, 1, 40, 0, true, true, 0},
                                   {PT_BF16, 1, 1000, 1000, 2, 1, 64, 300, false, false, 0},
                                   {PT_BF16, 2, 1, 6000, 8, 2, 64, 0, false, false, 0},
                                   {PT_BF16, 1, 3800, 3800, 2, 2, 128, 100, false, false, 0},
                                   {PT_BF16, 1, 3800, 3800, 3, 3, 128, 40, false, false, 0},
                                   {PT_BF16, 1, 600, 600, 9, 3, 64, 0, false, true, 0},
                                   {PT_F32, 3, 400, 400, 1, 1, 80, 0, false, false, 0}};
    for (size_t i = test_device_is_emulated() ? 6 : 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        the_softcap = i % 2 ? 3 : 0;
        problem one = problem_open(shapes[i]);
        compute(&one, 1);
        for (int threads = 2; threads <= (test_device_is_emulated() ? 2 : TEST_THREADS); threads++) {
            problem more = problem_open(shapes[i]);
            compute(&more, threads);
            assert_same_results(&one, &more);
        }
    }
    the_softcap = 0;
}

static void test_a_sequence_does_not_depend_on_the_others(void **state)
{
    if (test_device_is_emulated())
        NOT_SANITIZED();
    static const shape shapes[] = {{PT_F32, 4, 290, 290, 2, 1, 40, 0, true, true, 0},
                                   {PT_BF16, 3, 2, 3000, 4, 2, 64, 0, false, false, 0}};
    for (int n = 0; n < 2; n++) {
        problem all = problem_open(shapes[n]);
        compute(&all, 2);
        op_attention *o = &all.op.forward;
        size_t e = dtype_bytes(o->type), q = all.q_bytes / (size_t)o->seqs, kv = all.kv_bytes / (size_t)o->seqs;
        size_t out = all.out_bytes / (size_t)o->seqs, lse = (size_t)(o->heads * o->q_len);
        for (int b = 0; b < o->seqs; b++) {
            shape s = shapes[n];
            s.seqs = 1;
            problem one = problem_open(s);
            op_attention *i = &one.op.forward;
            memcpy((void *)i->q, (const char *)o->q + (size_t)b * q, q);
            memcpy((void *)i->k, (const char *)o->k + (size_t)b * kv, kv);
            memcpy((void *)i->v, (const char *)o->v + (size_t)b * kv, kv);
            memcpy((void *)one.op.dout, (const char *)all.op.dout + e * (size_t)(b * s.q_len * all.op.lddo), one.dout_bytes);
            if (o->first)
                memcpy((void *)i->first, o->first + b * s.q_len, sizeof(int32_t) * (size_t)s.q_len);
            compute(&one, 1);
            assert_memory_equal(i->out, (char *)o->out + (size_t)b * out, out);
            assert_memory_equal(i->lse, o->lse + (size_t)b * lse, lse * sizeof(float));
            assert_memory_equal(one.op.dq, (char *)all.op.dq + (size_t)b * q, q);
            assert_memory_equal(one.op.dk, (char *)all.op.dk + (size_t)b * kv, kv);
            assert_memory_equal(one.op.dv, (char *)all.op.dv + (size_t)b * kv, kv);
        }
    }
}

/* A token's output has the same bits whatever follows it. */
static void check_earlier_bits(pt_dtype type, int dim)
{
    enum { LENGTH = 230, EARLIER = 101 };
    const shape s = {type, 1, LENGTH, LENGTH, 1, 1, dim, 0, false, false, 0};
    problem a = problem_open(s);
    compute(&a, 1);
    problem b = problem_open(s);
    void *k = (void *)b.op.forward.k, *v = (void *)b.op.forward.v;
    for (int64_t i = EARLIER * dim; i < LENGTH * dim; i++) {
        element_set(type, k, i, 3 * element(type, k, i));
        element_set(type, v, i, element(type, v, i) - 1);
    }
    compute(&b, 1);
    assert_memory_equal(a.op.forward.out, b.op.forward.out, (size_t)(EARLIER * dim) * dtype_bytes(type));
    assert_true(memcmp(a.op.forward.out, b.op.forward.out, a.out_bytes));
}

static void test_later_tokens_leave_earlier_bits_alone(void **state)
{
    if (test_device_is_emulated())
        NOT_SANITIZED();
    check_earlier_bits(PT_F32, 48);
    check_earlier_bits(PT_BF16, 64);
}

/* A NaN or an infinity in q, k, v or dout reaches what it should reach. */
static void test_nan_and_infinity_do_not_vanish(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const int lengths[] = {5, 130};
    for (int n = 0; n < 2; n++)
        for (int x = 0; x < 3; x++)
            for (int where = 0; where < 4; where++) {
                int t = lengths[n], at = 3;
                problem p = problem_open((shape){PT_F32, 1, t, t, 1, 1, 16, 0, 0, false, 0});
                op_attention *o = &p.op.forward;
                const void *tensors[] = {o->q, o->k, o->v, p.op.dout};
                ((float *)tensors[where])[at * 16 + 2] = bad[x];
                compute(&p, 2);
                /* a key's infinity may make its score -inf, which is a weight of 0 in all rows */
                const float *out = o->out, *dq = p.op.dq, *dv = p.op.dv;
                if (where == 0)
                    assert_false(isfinite(out[at * 16]) && isfinite(dq[at * 16]));
                if (where == 1 && isnan(bad[x]))
                    assert_true(isnan(out[(t - 1) * 16]));
                if (where == 2)
                    assert_false(isfinite(out[(t - 1) * 16 + 2]));
                if (where == 3)
                    assert_false(isfinite(dv[2]) || isfinite(dq[at * 16 + 2]));
                            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(test_odd_sizes_match_a_float64_reference),
        OP_TEST(test_query_heads_share_key_heads),
        OP_TEST(test_window_and_documents_bound_what_is_seen),
        OP_TEST(test_few_queries_against_many_keys),
        OP_TEST(test_prompt_after_a_cache),
        OP_TEST(test_several_sequences_in_aligned_rows),
        OP_TEST(test_documents_longer_than_a_tile),
        OP_TEST(test_windows_and_documents_over_several_blocks),
        OP_TEST(test_capped_scores_match_a_float64_reference),
        OP_TEST(test_sums_over_many_keys_do_not_drift),
        OP_TEST(test_interleaved_qkv),
        OP_TEST(test_gradients_match_finite_differences),
        OP_TEST(test_bits_do_not_depend_on_the_number_of_threads),
        OP_TEST(test_a_sequence_does_not_depend_on_the_others),
        OP_TEST(test_later_tokens_leave_earlier_bits_alone),
        OP_TEST(test_nan_and_infinity_do_not_vanish),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
