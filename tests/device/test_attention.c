/* Attention on the CPU: against a float64 reference, finite differences, and itself. */
#include "base/rng.h"
#include "device/cpu/kernels/attention.h"
#include "device/cpu/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed;

typedef struct shape {
    pt_dtype type;
    int seqs, q_len, kv_len, heads, kv_heads, dim, window;
    bool documents, padded; /* padded: rows further apart than they are long */
    int seq_gap;            /* elements between the keys of two sequences, beyond kv_len * ldkv */
} shape;

/* All tensors of one call. Buffers are filled with a pattern first, so that what must not be written
 * can be checked. */
typedef struct problem {
    shape s;
    op_attention_backward op; /* op.forward is the forward op */
    size_t q_bytes, kv_bytes, out_bytes, dout_bytes;
} problem;

static void *filled(size_t bytes)
{
    void *p = malloc(bytes + 64);
    assert_non_null(p);
    memset(p, 0x3c, bytes + 64);
    return p;
}

static float get(pt_dtype t, const void *p, int64_t i)
{
    return t == PT_BF16 ? bf16_to_f32(((const bf16 *)p)[i]) : ((const float *)p)[i];
}

static void put(pt_dtype t, void *p, int64_t i, float x)
{
    if (t == PT_BF16)
        ((bf16 *)p)[i] = bf16_from_f32(x);
    else
        ((float *)p)[i] = x;
}

static void randomize(pt_dtype t, void *p, size_t bytes, uint32_t stream)
{
    for (size_t i = 0; i < bytes / dtype_bytes(t); i++)
        put(t, p, (int64_t)i, (float)rng_normal(seed, RNG_TEST, stream, i));
}

static int32_t *random_documents(const shape *s)
{
    int32_t *first = filled(sizeof(int32_t) * (size_t)(s->seqs * s->q_len));
    for (int b = 0; b < s->seqs; b++)
        for (int i = 0, start = 0; i < s->q_len; i++) {
            int position = s->kv_len - s->q_len + i;
            if (rng_uniform(seed, RNG_TEST, 90, (uint64_t)(b * s->q_len + i)) < 0.05)
                start = position;
            first[b * s->q_len + i] = start;
        }
    return first;
}

static problem problem_open(shape s)
{
    problem p = {.s = s};
    op_attention *o = &p.op.forward;
    size_t e = dtype_bytes(s.type);
    *o = (op_attention){.type = s.type, .seqs = s.seqs, .q_len = s.q_len, .kv_len = s.kv_len,
        .heads = s.heads, .kv_heads = s.kv_heads, .dim = s.dim, .window = s.window,
        .ldq = s.heads * s.dim + (s.padded ? 5 : 0), .ldkv = s.kv_heads * s.dim + (s.padded ? 3 : 0),
        .ldo = s.heads * s.dim + (s.padded ? 7 : 0), .scale = (float)(1.3 / sqrt(s.dim))};
    p.op.lddo = s.heads * s.dim + (s.padded ? 1 : 0);
    o->kv_seq_stride = s.seq_gap ? s.kv_len * o->ldkv + s.seq_gap : 0;
    p.q_bytes = e * (size_t)(s.seqs * s.q_len * o->ldq);
    p.kv_bytes = e * (size_t)(s.seqs * (s.kv_len * o->ldkv + s.seq_gap));
    p.out_bytes = e * (size_t)(s.seqs * s.q_len * o->ldo);
    p.dout_bytes = e * (size_t)(s.seqs * s.q_len * p.op.lddo);
    void *q = filled(p.q_bytes), *k = filled(p.kv_bytes), *v = filled(p.kv_bytes);
    void *dout = filled(p.dout_bytes);
    randomize(s.type, q, p.q_bytes, 1), randomize(s.type, k, p.kv_bytes, 2);
    randomize(s.type, v, p.kv_bytes, 3), randomize(s.type, dout, p.dout_bytes, 4);
    o->q = q, o->k = k, o->v = v, o->out = filled(p.out_bytes);
    o->lse = filled(sizeof(float) * (size_t)(s.seqs * s.heads * s.q_len));
    o->first = s.documents ? random_documents(&s) : NULL;
    p.op.dout = dout, p.op.dq = filled(p.q_bytes);
    p.op.dk = filled(p.kv_bytes), p.op.dv = filled(p.kv_bytes);
    p.op.scratch = filled(attention_backward_scratch_bytes(s.seqs * s.q_len, s.heads));
    return p;
}

static void problem_close(problem *p)
{
    op_attention *o = &p->op.forward;
    free((void *)o->q), free((void *)o->k), free((void *)o->v), free(o->out), free(o->lse);
    free((void *)o->first), free((void *)p->op.dout);
    free(p->op.dq), free(p->op.dk), free(p->op.dv), free(p->op.scratch);
}

static void compute(problem *p, int threads)
{
    pool *pool;
    assert_int_equal(pool_open(threads, &pool, NULL), 0);
    cpu_attention(pool, &p->op.forward);
    if (p->s.q_len == p->s.kv_len)
        cpu_attention_backward(pool, &p->op);
    pool_close(pool);
}

/* ---- the reference --------------------------------------------------------------------------- */

/* Results in float64, in the layout of the op's tensors. */
typedef struct reference { double *out, *lse, *dq, *dk, *dv; } reference;

static int64_t q_at(const problem *p, int b, int i, int h) { return (int64_t)(b * p->s.q_len + i) * p->op.forward.ldq + h * p->s.dim; }
static int64_t o_at(const problem *p, int b, int i, int h) { return (int64_t)(b * p->s.q_len + i) * p->op.forward.ldo + h * p->s.dim; }
static int64_t g_at(const problem *p, int b, int i, int h) { return (int64_t)(b * p->s.q_len + i) * p->op.lddo + h * p->s.dim; }
static int64_t kv_at(const problem *p, int b, int j, int h)
{
    const op_attention *o = &p->op.forward;
    int64_t stride = o->kv_seq_stride ? o->kv_seq_stride : o->kv_len * o->ldkv;
    return b * stride + j * o->ldkv + h / (p->s.heads / p->s.kv_heads) * p->s.dim;
}

static void reference_gradient(const problem *p, reference *r, int b, int h, int i, int lo, int hi,
                               const double *prob)
{
    const op_attention *o = &p->op.forward;
    pt_dtype t = p->s.type;
    double delta = 0;
    for (int d = 0; d < p->s.dim; d++)
        delta += (double)get(t, p->op.dout, g_at(p, b, i, h) + d) * get(t, o->out, o_at(p, b, i, h) + d);
    for (int j = lo; j <= hi; j++) {
        double dp = 0;
        for (int d = 0; d < p->s.dim; d++)
            dp += (double)get(t, p->op.dout, g_at(p, b, i, h) + d) * get(t, o->v, kv_at(p, b, j, h) + d);
        double ds = prob[j] * (dp - delta) * o->scale;
        for (int d = 0; d < p->s.dim; d++) {
            r->dv[kv_at(p, b, j, h) + d] += prob[j] * get(t, p->op.dout, g_at(p, b, i, h) + d);
            r->dk[kv_at(p, b, j, h) + d] += ds * get(t, o->q, q_at(p, b, i, h) + d);
            r->dq[q_at(p, b, i, h) + d] += ds * get(t, o->k, kv_at(p, b, j, h) + d);
        }
    }
}

static void reference_row(const problem *p, reference *r, int b, int h, int i, double *prob)
{
    const op_attention *o = &p->op.forward;
    int hi = p->s.kv_len - p->s.q_len + i, lo = 0;
    if (p->s.window && hi - p->s.window + 1 > lo)
        lo = hi - p->s.window + 1;
    if (o->first && o->first[b * p->s.q_len + i] > lo)
        lo = o->first[b * p->s.q_len + i];
    double max = -INFINITY, sum = 0;
    for (int j = lo; j <= hi; j++) {
        prob[j] = 0;
        for (int d = 0; d < p->s.dim; d++)
            prob[j] += (double)get(p->s.type, o->q, q_at(p, b, i, h) + d) *
                       get(p->s.type, o->k, kv_at(p, b, j, h) + d);
        prob[j] *= o->scale;
        max = fmax(max, prob[j]);
    }
    for (int j = lo; j <= hi; j++)
        sum += prob[j] = exp(prob[j] - max);
    for (int j = lo; j <= hi; j++) {
        prob[j] /= sum;
        for (int d = 0; d < p->s.dim; d++)
            r->out[o_at(p, b, i, h) + d] += prob[j] * get(p->s.type, o->v, kv_at(p, b, j, h) + d);
    }
    r->lse[(b * p->s.heads + h) * p->s.q_len + i] = max + log(sum);
    if (p->s.q_len == p->s.kv_len)
        reference_gradient(p, r, b, h, i, lo, hi, prob);
}

/* Elements of no row (the padding between rows and between sequences) are marked NaN. */
static double *blank(size_t bytes, const shape *s, int64_t rows, int64_t ld, int64_t width)
{
    int64_t n = (int64_t)(bytes / dtype_bytes(s->type)), stride = n / s->seqs;
    double *x = malloc(sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[i] = i % stride / ld < rows && i % stride % ld < width ? 0 : NAN;
    return x;
}

static reference reference_open(const problem *p)
{
    const op_attention *o = &p->op.forward;
    const shape *s = &p->s;
        reference r = {.out = blank(p->out_bytes, s, s->q_len, o->ldo, s->heads * s->dim),
                   .dq = blank(p->q_bytes, s, s->q_len, o->ldq, s->heads * s->dim),
                   .dk = blank(p->kv_bytes, s, s->kv_len, o->ldkv, s->kv_heads * s->dim),
                   .dv = blank(p->kv_bytes, s, s->kv_len, o->ldkv, s->kv_heads * s->dim),
                   .lse = calloc((size_t)(s->seqs * s->q_len * s->heads), sizeof(double))};
    double *prob = malloc(sizeof(double) * (size_t)s->kv_len);
    for (int b = 0; b < s->seqs; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->q_len; i++)
                reference_row(p, &r, b, h, i, prob);
    free(prob);
    return r;
}

static void reference_close(reference *r)
{
    free(r->out), free(r->lse), free(r->dq), free(r->dk), free(r->dv);
}

/* |x - y| <= relative * |y| + absolute * max |y|; where y is NaN, x still has the pattern. */
static void assert_near(const char *what, const shape *s, pt_dtype t, const void *x, const double *y,
                        size_t n, double relative, double absolute)
{
    double largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, isnan(y[i]) ? 0 : fabs(y[i]));
    for (size_t i = 0; i < n; i++) {
        double got = get(t, x, (int64_t)i);
        bool good = isnan(y[i]) ? !memcmp((const char *)x + i * dtype_bytes(t), "\x3c\x3c\x3c\x3c", dtype_bytes(t))
                                : fabs(got - y[i]) <= relative * fabs(y[i]) + absolute * largest;
        if (!good)
            fail_msg("%s[%zu] = %.9g, expected %.9g (T %d/%d heads %d/%d dim %d window %d, seed %llu)",
                     what, i, got, y[i], s->q_len, s->kv_len, s->heads, s->kv_heads, s->dim, s->window,
                     (unsigned long long)seed);
    }
}

static void assert_correct(const problem *p)
{
    const op_attention *o = &p->op.forward;
    const shape *s = &p->s;
    reference r = reference_open(p);
    size_t e = dtype_bytes(s->type);
    double relative = s->type == PT_BF16 ? 0x1.01p-8 : 1e-6;
    assert_near("out", s, s->type, o->out, r.out, p->out_bytes / e, relative, 2e-6);
    assert_near("lse", s, PT_F32, o->lse, r.lse, (size_t)(s->seqs * s->heads * s->q_len), 1e-6, 1e-6);
    if (s->q_len == s->kv_len) {
        assert_near("dq", s, s->type, p->op.dq, r.dq, p->q_bytes / e, relative, 5e-6);
        assert_near("dk", s, s->type, p->op.dk, r.dk, p->kv_bytes / e, relative, 5e-6);
        assert_near("dv", s, s->type, p->op.dv, r.dv, p->kv_bytes / e, relative, 5e-6);
    }
    reference_close(&r);
}

static void check(shape s)
{
    problem p = problem_open(s);
    compute(&p, 2);
    assert_correct(&p);
    problem_close(&p);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_odd_sizes_match_a_float64_reference(void **state)
{
    static const int dims[] = {1, 2, 5, 8, 40, 64, 80, 96, 128, 256}, lengths[] = {1, 7, 8, 33, 131, 205};
    for (size_t d = 0; d < sizeof(dims) / sizeof(*dims); d++)
        for (size_t t = 0; t < sizeof(lengths) / sizeof(*lengths); t++) {
            shape s = {PT_F32, 2, lengths[t], lengths[t], 2, 1, dims[d], 0, false, true, 0};
            check(s);
            s.type = PT_BF16;
            check(s);
        }
}

static void test_query_heads_share_key_heads(void **state)
{
    static const int heads[][2] = {{8, 4}, {9, 3}, {8, 1}, {3, 3}};
    for (size_t i = 0; i < 4; i++) {
        check((shape){PT_F32, 2, 101, 101, heads[i][0], heads[i][1], 24, 0, false, true, 0});
        check((shape){PT_BF16, 1, 300, 300, heads[i][0], heads[i][1], 64, 0, false, false, 0});
    }
}

static void test_window_and_documents_bound_what_is_seen(void **state)
{
    static const int windows[] = {0, 1, 3, 50, 64, 97, 1000};
    for (size_t w = 0; w < sizeof(windows) / sizeof(*windows); w++)
        for (int documents = 0; documents < 2; documents++) {
            check((shape){PT_F32, 2, 333, 333, 2, 2, 16, windows[w], documents, false, 0});
            check((shape){PT_BF16, 1, 5, 5, 2, 2, 16, windows[w], documents, false, 0});
            check((shape){PT_F32, 2, 2, 700, 4, 2, 32, windows[w], documents, false, 0});
        }
}

static void test_few_queries_against_many_keys(void **state)
{
    static const int keys[] = {8, 9, 64, 65, 513, 5000, 9000};
    for (size_t k = 0; k < sizeof(keys) / sizeof(*keys); k++)
        for (int q = 1; q <= 9; q += 2 - (q == 7)) {
            int kv = keys[k] < q ? q : keys[k];
            check((shape){PT_BF16, 2, q, kv, 4, 2, 40, 0, false, true, 77});
            check((shape){PT_F32, 1, q, kv, 3, 1, 64, 600, false, false, 0});
        }
    check((shape){PT_F32, 3, 7, 8200, 32, 4, 32, 0, false, false, 0}); /* several runs of the pool */
    check((shape){PT_F32, 2, 7, 300, 80, 40, 256, 0, false, false, 0}); /* heads in several tasks */
    check((shape){PT_F32, 1, 7, 70, 90, 1, 256, 0, false, false, 0});   /* too many rows for one task */
}

static void test_prompt_after_a_cache(void **state)
{
    check((shape){PT_F32, 2, 50, 177, 4, 2, 64, 0, false, true, 33});
    check((shape){PT_BF16, 1, 120, 250, 4, 2, 64, 90, true, false, 0});
}

/* q, k and v side by side in one buffer, and their gradients in another. */
static void test_interleaved_qkv(void **state)
{
    problem p = problem_open((shape){PT_F32, 2, 150, 150, 4, 2, 24, 0, false, false, 0});
    op_attention *o = &p.op.forward;
    int64_t rows = 2 * 150, ld = 8 * 24;
    float *qkv = filled(sizeof(float) * (size_t)(rows * ld)), *dqkv = filled(sizeof(float) * (size_t)(rows * ld));
    for (int64_t r = 0; r < rows; r++) {
        memcpy(qkv + r * ld, (const float *)o->q + r * 96, 96 * sizeof(float));
        memcpy(qkv + r * ld + 96, (const float *)o->k + r * 48, 48 * sizeof(float));
        memcpy(qkv + r * ld + 144, (const float *)o->v + r * 48, 48 * sizeof(float));
    }
    compute(&p, 2);
    problem inter = p;
    op_attention *i = &inter.op.forward;
    i->q = qkv, i->k = qkv + 96, i->v = qkv + 144, i->ldq = i->ldkv = ld;
    inter.op.dq = dqkv, inter.op.dk = dqkv + 96, inter.op.dv = dqkv + 144;
    compute(&inter, 2);
    for (int64_t r = 0; r < rows; r++) {
        assert_memory_equal(dqkv + r * ld, (float *)p.op.dq + r * 96, 96 * sizeof(float));
        assert_memory_equal(dqkv + r * ld + 96, (float *)p.op.dk + r * 48, 48 * sizeof(float));
        assert_memory_equal(dqkv + r * ld + 144, (float *)p.op.dv + r * 48, 48 * sizeof(float));
    }
    free(qkv), free(dqkv);
    problem_close(&p);
}

static double weighted_output(problem *p, pool *pool)
{
    cpu_attention(pool, &p->op.forward);
    double sum = 0;
    for (size_t i = 0; i < p->out_bytes / sizeof(float); i++)
        sum += (double)((float *)p->op.forward.out)[i] * ((const float *)p->op.dout)[i];
    return sum;
}

static void test_gradients_match_finite_differences(void **state)
{
    problem p = problem_open((shape){PT_F32, 1, 40, 40, 4, 2, 12, 25, true, false, 0});
    compute(&p, 1);
    pool *pool;
    assert_int_equal(pool_open(1, &pool, NULL), 0);
    float *inputs[] = {(float *)p.op.forward.q, (float *)p.op.forward.k, (float *)p.op.forward.v};
    float *grads[] = {p.op.dq, p.op.dk, p.op.dv};
    size_t counts[] = {p.q_bytes / 4, p.kv_bytes / 4, p.kv_bytes / 4};
    const float h = 0x1p-6f;
    for (int t = 0; t < 3; t++)
        for (size_t i = 0; i < counts[t]; i += 7) {
            float x = inputs[t][i];
            inputs[t][i] = x + h;
            double up = weighted_output(&p, pool);
            inputs[t][i] = x - h;
            double down = weighted_output(&p, pool);
            inputs[t][i] = x;
            assert_true(fabs((up - down) / (2 * h) - grads[t][i]) < 2e-3);
        }
    pool_close(pool);
    problem_close(&p);
}

static void assert_same_results(const problem *a, const problem *b)
{
    assert_memory_equal(a->op.forward.out, b->op.forward.out, a->out_bytes);
    assert_memory_equal(a->op.forward.lse, b->op.forward.lse, sizeof(float) * (size_t)(a->s.seqs * a->s.heads * a->s.q_len));
    assert_memory_equal(a->op.dq, b->op.dq, a->q_bytes);
    assert_memory_equal(a->op.dk, b->op.dk, a->kv_bytes);
    assert_memory_equal(a->op.dv, b->op.dv, a->kv_bytes);
}

/* With one thread the backward pass sweeps whole sequences, with more it is split. */
static void test_bits_do_not_depend_on_the_number_of_threads(void **state)
{
    static const shape shapes[] = {{PT_F32, 1, 700, 700, 3, 1, 40, 0, true, true, 0},
                                   {PT_BF16, 1, 1000, 1000, 2, 1, 64, 300, false, false, 0},
                                   {PT_BF16, 2, 1, 6000, 8, 2, 64, 0, false, false, 0},
                                   {PT_F32, 3, 400, 400, 1, 1, 80, 0, false, false, 0}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        problem one = problem_open(shapes[i]);
        compute(&one, 1);
        for (int threads = 2; threads <= 4; threads++) {
            problem more = problem_open(shapes[i]);
            compute(&more, threads);
            assert_same_results(&one, &more);
            problem_close(&more);
        }
        problem_close(&one);
    }
}

static void test_a_sequence_does_not_depend_on_the_others(void **state)
{
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
            problem_close(&one);
        }
        problem_close(&all);
    }
}

/* A token's output has the same bits whatever follows it. */
static void test_later_tokens_leave_earlier_bits_alone(void **state)
{
    problem a = problem_open((shape){PT_F32, 1, 230, 230, 1, 1, 48, 0, false, false, 0});
    compute(&a, 1);
    problem b = problem_open((shape){PT_F32, 1, 230, 230, 1, 1, 48, 0, false, false, 0});
    float *k = (float *)b.op.forward.k, *v = (float *)b.op.forward.v;
    for (int i = 101 * 48; i < 230 * 48; i++)
        k[i] *= 3, v[i] -= 1;
    compute(&b, 1);
    assert_memory_equal(a.op.forward.out, b.op.forward.out, 101 * 48 * sizeof(float));
    assert_true(memcmp(a.op.forward.out, b.op.forward.out, a.out_bytes));
    problem_close(&a), problem_close(&b);
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
                problem p = problem_open((shape){PT_F32, 1, t, t, 1, 1, 16, 0, false, false, 0});
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
                problem_close(&p);
            }
}

static void test_exp_is_within_two_ulp(void **state)
{
    double worst = 0;
    for (uint64_t i = 0; i < 1000000; i++) {
        float x = (float)(rng_uniform(seed, RNG_TEST, 50, i) * 175.6 - 87.3), y = x;
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

/* ---- the kernels of each instruction set, called directly ------------------------------------ */

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
                assert_correct(&p);
                problem_close(&p);
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
    problem_close(&a), problem_close(&b);
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
            problem_close(&p);
        }
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_sizes_match_a_float64_reference),
        cmocka_unit_test(test_query_heads_share_key_heads),
        cmocka_unit_test(test_window_and_documents_bound_what_is_seen),
        cmocka_unit_test(test_few_queries_against_many_keys),
        cmocka_unit_test(test_prompt_after_a_cache),
        cmocka_unit_test(test_interleaved_qkv),
        cmocka_unit_test(test_gradients_match_finite_differences),
        cmocka_unit_test(test_bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(test_a_sequence_does_not_depend_on_the_others),
        cmocka_unit_test(test_later_tokens_leave_earlier_bits_alone),
        cmocka_unit_test(test_nan_and_infinity_do_not_vanish),
        cmocka_unit_test(test_exp_is_within_two_ulp),
        cmocka_unit_test(test_every_instruction_set_is_correct_and_stays_in_its_scratch),
        cmocka_unit_test(test_copies_with_fma_agree),
        cmocka_unit_test(test_row_kernel_leaves_half_of_the_scratch_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
