/* attention_case.h - one call of attention, forward and backward, with random tensors, and what it should give in float64. */
#ifndef PT_TEST_ATTENTION_CASE_H
#define PT_TEST_ATTENTION_CASE_H

#include "device/cpu/kernels/attention.h"
#include "device/reference.h"

typedef struct shape {
    pt_dtype type;
    int seqs, q_len, kv_len, heads, kv_heads, dim, window;
    int documents; /* 0: none; else about so many tokens each */
    bool padded;   /* rows further apart than they are long */
    int seq_gap;            /* elements between the keys of two sequences, beyond kv_len * ldkv */
} shape;

static float the_softcap; /* of every case that is opened; 0: none */

/* All tensors of one call. Buffers are filled with a pattern first, so that what must not be written
 * can be checked. */
typedef struct problem {
    shape s;
    op_attention_backward op; /* op.forward is the forward op */
    size_t q_bytes, kv_bytes, out_bytes, dout_bytes;
} problem;

static inline void randomize(pt_dtype t, void *p, size_t bytes, uint32_t stream)
{
    for (size_t i = 0; i < bytes / dtype_bytes(t); i++)
        element_set(t, p, (int64_t)i, rng_normal(the_test.seed, RNG_TEST, stream, i));
}

static inline int32_t *random_documents(const shape *s)
{
    int32_t *first = test_alloc(sizeof(int32_t) * (size_t)(s->seqs * s->q_len));
    for (int b = 0; b < s->seqs; b++)
        for (int i = 0, start = 0; i < s->q_len; i++) {
            int position = s->kv_len - s->q_len + i;
            if (rng_uniform(the_test.seed, RNG_TEST, 90, (uint64_t)(b * s->q_len + i)) * s->documents < 1)
                start = position;
            first[b * s->q_len + i] = start;
        }
    return first;
}

static inline problem problem_open(shape s)
{
    problem p = {.s = s};
    op_attention *o = &p.op.forward;
    size_t e = dtype_bytes(s.type);
    *o = (op_attention){.type = s.type, .seqs = s.seqs, .q_len = s.q_len, .kv_len = s.kv_len,
        .heads = s.heads, .kv_heads = s.kv_heads, .dim = s.dim, .window = s.window,
        .ldq = s.heads * s.dim + (s.padded ? 5 : 0), .ldkv = s.kv_heads * s.dim + (s.padded ? 3 : 0),
        .ldo = s.heads * s.dim + (s.padded ? 7 : 0), .scale = (float)(1.3 / sqrt(s.dim)), .softcap = the_softcap};
    p.op.lddo = s.heads * s.dim + (s.padded ? 1 : 0);
    o->kv_seq_stride = s.seq_gap ? s.kv_len * o->ldkv + s.seq_gap : 0;
    p.q_bytes = e * (size_t)(s.seqs * s.q_len * o->ldq);
    p.kv_bytes = e * (size_t)(s.seqs * (s.kv_len * o->ldkv + s.seq_gap));
    p.out_bytes = e * (size_t)(s.seqs * s.q_len * o->ldo);
    p.dout_bytes = e * (size_t)(s.seqs * s.q_len * p.op.lddo);
    void *q = test_alloc(p.q_bytes), *k = test_alloc(p.kv_bytes), *v = test_alloc(p.kv_bytes);
    void *dout = test_alloc(p.dout_bytes);
    randomize(s.type, q, p.q_bytes, 1), randomize(s.type, k, p.kv_bytes, 2);
    randomize(s.type, v, p.kv_bytes, 3), randomize(s.type, dout, p.dout_bytes, 4);
    o->q = q, o->k = k, o->v = v, o->out = test_alloc(p.out_bytes);
    o->lse = test_alloc(sizeof(float) * (size_t)(s.seqs * s.heads * s.q_len));
    o->first = s.documents ? random_documents(&s) : NULL;
    p.op.dout = dout, p.op.dq = test_alloc(p.q_bytes);
    p.op.dk = test_alloc(p.kv_bytes), p.op.dv = test_alloc(p.kv_bytes);
    p.op.scratch = test_alloc(attention_backward_scratch_bytes(s.seqs * s.q_len, s.heads));
    size_t sums = attention_accumulator_bytes(s.seqs, s.q_len, s.kv_heads, s.dim);
    p.op.sums = sums ? test_alloc(sums) : NULL;
    return p;
}

/* ---- the reference --------------------------------------------------------------------------- */

/* Results in float64, in the layout of the op's tensors. */
typedef struct reference { double *out, *lse, *dq, *dk, *dv; } reference;

REFERENCE static inline int64_t row_at(const problem *p, int b, int i, int h, int64_t ld)
{
    return (int64_t)(b * p->s.q_len + i) * ld + h * p->s.dim;
}

REFERENCE static inline int64_t q_at(const problem *p, int b, int i, int h) { return row_at(p, b, i, h, p->op.forward.ldq); }
REFERENCE static inline int64_t o_at(const problem *p, int b, int i, int h) { return row_at(p, b, i, h, p->op.forward.ldo); }
REFERENCE static inline int64_t g_at(const problem *p, int b, int i, int h) { return row_at(p, b, i, h, p->op.lddo); }
REFERENCE static inline int64_t kv_at(const problem *p, int b, int j, int h)
{
    const op_attention *o = &p->op.forward;
    int64_t stride = o->kv_seq_stride ? o->kv_seq_stride : o->kv_len * o->ldkv;
    return b * stride + j * o->ldkv + h / (p->s.heads / p->s.kv_heads) * p->s.dim;
}

REFERENCE static inline void reference_gradient(const problem *p, reference *r, int b, int h, int i, int lo, int hi,
                                         const double *prob, const double *cap_slope)
{
    const op_attention *o = &p->op.forward;
    pt_dtype t = p->s.type;
    double delta = 0;
    for (int d = 0; d < p->s.dim; d++)
        delta += (double)element(t, p->op.dout, g_at(p, b, i, h) + d) * element(t, o->out, o_at(p, b, i, h) + d);
    for (int j = lo; j <= hi; j++) {
        double dp = 0;
        for (int d = 0; d < p->s.dim; d++)
            dp += (double)element(t, p->op.dout, g_at(p, b, i, h) + d) * element(t, o->v, kv_at(p, b, j, h) + d);
        double ds = prob[j] * (dp - delta) * cap_slope[j] * o->scale;
        for (int d = 0; d < p->s.dim; d++) {
            r->dv[kv_at(p, b, j, h) + d] += prob[j] * element(t, p->op.dout, g_at(p, b, i, h) + d);
            r->dk[kv_at(p, b, j, h) + d] += ds * element(t, o->q, q_at(p, b, i, h) + d);
            r->dq[q_at(p, b, i, h) + d] += ds * element(t, o->k, kv_at(p, b, j, h) + d);
        }
    }
}

REFERENCE static inline void reference_row(const problem *p, reference *r, int b, int h, int i, double *prob, double *cap_slope)
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
            prob[j] += (double)element(p->s.type, o->q, q_at(p, b, i, h) + d) *
                       element(p->s.type, o->k, kv_at(p, b, j, h) + d);
        prob[j] *= o->scale;
        cap_slope[j] = 1;
        if (o->softcap) {
            const double t = tanh(prob[j] / o->softcap);
            prob[j] = o->softcap * t, cap_slope[j] = 1 - t * t;
        }
        max = fmax(max, prob[j]);
    }
    for (int j = lo; j <= hi; j++)
        sum += prob[j] = exp(prob[j] - max);
    for (int j = lo; j <= hi; j++) {
        prob[j] /= sum;
        for (int d = 0; d < p->s.dim; d++)
            r->out[o_at(p, b, i, h) + d] += prob[j] * element(p->s.type, o->v, kv_at(p, b, j, h) + d);
    }
    r->lse[(b * p->s.heads + h) * p->s.q_len + i] = max + log(sum);
    if (p->s.q_len == p->s.kv_len)
        reference_gradient(p, r, b, h, i, lo, hi, prob, cap_slope);
}

/* Elements of no row (the padding between rows and between sequences) are marked NaN. */
static inline double *blank(size_t bytes, const shape *s, int64_t rows, int64_t ld, int64_t width)
{
    int64_t n = (int64_t)(bytes / dtype_bytes(s->type)), stride = n / s->seqs;
    double *x = malloc(sizeof(double) * (size_t)n);
    for (int64_t i = 0; i < n; i++)
        x[i] = i % stride / ld < rows && i % stride % ld < width ? 0 : NAN;
    return x;
}

static inline reference reference_open(const problem *p)
{
    const op_attention *o = &p->op.forward;
    const shape *s = &p->s;
        reference r = {.out = blank(p->out_bytes, s, s->q_len, o->ldo, s->heads * s->dim),
                   .dq = blank(p->q_bytes, s, s->q_len, o->ldq, s->heads * s->dim),
                   .dk = blank(p->kv_bytes, s, s->kv_len, o->ldkv, s->kv_heads * s->dim),
                   .dv = blank(p->kv_bytes, s, s->kv_len, o->ldkv, s->kv_heads * s->dim),
                   .lse = calloc((size_t)(s->seqs * s->q_len * s->heads), sizeof(double))};
    double *prob = malloc(2 * sizeof(double) * (size_t)s->kv_len);
    for (int b = 0; b < s->seqs; b++)
        for (int h = 0; h < s->heads; h++)
            for (int i = 0; i < s->q_len; i++)
                reference_row(p, &r, b, h, i, prob, prob + s->kv_len);
    free(prob);
    return r;
}

static inline void reference_close(reference *r)
{
    free(r->out), free(r->lse), free(r->dq), free(r->dk), free(r->dv);
}

/* |x - y| <= relative * |y| + absolute * max(|y|, least) over all y; where y is NaN, x still has the pattern. */
static inline void assert_near(const char *what, const shape *s, pt_dtype t, const void *x, const double *y,
                        size_t n, double relative, double absolute, double least)
{
    double largest = least;
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, isnan(y[i]) ? 0 : fabs(y[i]));
    for (size_t i = 0; i < n; i++) {
        double got = element(t, x, (int64_t)i);
        bool good = isnan(y[i]) ? !memcmp((const char *)x + i * dtype_bytes(t), "\x5a\x5a\x5a\x5a", dtype_bytes(t))
                                : fabs(got - y[i]) <= relative * fabs(y[i]) + absolute * largest;
        if (!good)
            fail_msg("%s[%zu] = %.9g, expected %.9g (T %d/%d heads %d/%d dim %d window %d, seed %llu)",
                     what, i, got, y[i], s->q_len, s->kv_len, s->heads, s->kv_heads, s->dim, s->window,
                     (unsigned long long)the_test.seed);
    }
}

/* CUDA's fp32 kernel adds thousands of keys one by one. Rounded: tensor cores, and the processor's products of bf16 pairs, take
 * probabilities and gradients of the scores that are rounded to bf16; not where a processor goes row by row. */
static inline void assert_correct(const problem *p, bool cuda, bool rounded)
{
    const op_attention *o = &p->op.forward;
    const shape *s = &p->s;
    reference r = reference_open(p);
    size_t e = dtype_bytes(s->type);
    double relative = s->type == PT_BF16 ? 0x1.01p-8 : 1e-6;
    double term = 2; /* a gradient that is zero is a difference of terms of this size */
    double slack = rounded && (cuda || s->q_len >= ATT_FEW) ? 6e-3 : cuda ? 6e-6 : 2e-6, gradient_slack = rounded ? 1.2e-2 : 5e-6;
    assert_near("out", s, s->type, o->out, r.out, p->out_bytes / e, relative, slack, 0);
    const double capped = cuda ? the_softcap * 0x1p-21 : 0; /* a GPU's fast tanh */
    assert_near("lse", s, PT_F32, o->lse, r.lse, (size_t)(s->seqs * s->heads * s->q_len), 1e-6, 1e-6, capped / 1e-6);
    if (s->q_len == s->kv_len) {
        assert_near("dq", s, s->type, p->op.dq, r.dq, p->q_bytes / e, relative, gradient_slack, term);
        assert_near("dk", s, s->type, p->op.dk, r.dk, p->kv_bytes / e, relative, gradient_slack, term);
        assert_near("dv", s, s->type, p->op.dv, r.dv, p->kv_bytes / e, relative, gradient_slack, term);
    }
    reference_close(&r);
}

static inline void assert_same_results(const problem *a, const problem *b)
{
    assert_memory_equal(a->op.forward.out, b->op.forward.out, a->out_bytes);
    assert_memory_equal(a->op.forward.lse, b->op.forward.lse, sizeof(float) * (size_t)(a->s.seqs * a->s.heads * a->s.q_len));
    assert_memory_equal(a->op.dq, b->op.dq, a->q_bytes);
    assert_memory_equal(a->op.dk, b->op.dk, a->kv_bytes);
    assert_memory_equal(a->op.dv, b->op.dv, a->kv_bytes);
}

#endif
