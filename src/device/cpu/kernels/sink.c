#include "device/cpu/kernels/sink.h"

#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vmath.h"

#include <string.h>

/* ---- forward ---- */

/* out (dim) of a query and a head, times its factor. */
static INLINE void scale(pt_dtype type, const op_sink *o, int64_t row, int64_t head, float factor)
{
    const int64_t first = row * o->ldo + head * o->dim;
    for (int64_t i = 0; i < o->dim; i += VEC_LANES) {
        const int64_t lanes = o->dim - i < VEC_LANES ? o->dim - i : VEC_LANES;
        store(type, o->out, first + i, load(type, o->out, first + i, lanes) * vec_set(factor), lanes);
    }
}

/* Of a head, vectors of queries: exp(lse - lse') is the logistic function of lse - sink. */
static INLINE void head_queries(pt_dtype type, const op_sink *o, int64_t seq, int64_t head, int64_t begin, int64_t end)
{
    const vf sink = vec_set(o->sinks[head]);
    float factor[VEC_LANES];
    for (int64_t i = begin; i < end; i += VEC_LANES) {
        const int64_t lanes = end - i < VEC_LANES ? end - i : VEC_LANES;
        float *at = o->lse + (seq * o->heads + head) * o->q_len + i;
        vf slope, lse = f32_load(at, lanes);
        f32_store(factor, vec_logistic(lse - sink, &slope), VEC_LANES);
        f32_store(at, lse + vec_softplus(sink - lse), lanes);
        for (int64_t k = 0; k < lanes; k++)
            scale(type, o, seq * o->q_len + i + k, head, factor[k]);
    }
}

void KERNEL(sink_queries)(const op_sink *o, int64_t seq, int64_t begin, int64_t end)
{
    for (int64_t head = 0; head < o->heads; head++)
        if (o->type == PT_BF16)
            head_queries(PT_BF16, o, seq, head, begin, end);
        else
            head_queries(PT_F32, o, seq, head, begin, end);
}

/* ---- backward ---- */

typedef struct product { const void *a, *b; int64_t at_a, at_b; } product;

static INLINE vf product_term(pt_dtype type, const product *p, int64_t i, int64_t lanes)
{
    return load(type, p->a, p->at_a + i, lanes) * load(type, p->b, p->at_b + i, lanes);
}
static INLINE vf product_f32(const void *ctx, int64_t i, int64_t lanes) { return product_term(PT_F32, ctx, i, lanes); }
static INLINE vf product_bf16(const void *ctx, int64_t i, int64_t lanes) { return product_term(PT_BF16, ctx, i, lanes); }

static INLINE float dot_of(const op_sink_backward *b, int64_t row, int64_t head)
{
    const op_sink *o = &b->forward;
    const product p = {b->dout, o->out, row * b->lddo + head * o->dim, row * o->ldo + head * o->dim};
    return row_sum(o->type == PT_BF16 ? product_bf16 : product_f32, &p, o->dim);
}

void KERNEL(sink_backward_rows)(const op_sink_backward *b, int64_t row0, int64_t row1, float *sums)
{
    const op_sink *o = &b->forward;
    memset(sums, 0, (size_t)o->heads * sizeof *sums);
    for (int64_t row = row0; row < row1; row++)
        for (int64_t head = 0; head < o->heads; head++) {
            const float lse = o->lse[(row / o->q_len * o->heads + head) * o->q_len + row % o->q_len];
            const float share = vec_exp_negative(vec_set(o->sinks[head] - lse))[0];
            sums[head] -= share * dot_of(b, row, head);
        }
}
