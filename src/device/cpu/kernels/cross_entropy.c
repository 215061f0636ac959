/* cross_entropy.c - three passes over a row: the largest logit, the sum of exponentials, dlogits.
 *
 * dlogits may replace logits. Its elements are never wider and its rows start at the same bytes, so a vector of dlogits replaces only
 * logits that have been read:
 *
 *     logits (fp32)   | 0 | 1 | 2 | 3 | 4 | 5 | ...
 *     dlogits (bf16)  |0|1|2|3| ...
 *
 * The target's logit is saved first, because its element of dlogits is written last. The second pass stores the exponentials for the third:
 * over the logits if dlogits replace them, else in the thread's scratch. (If that is too small, the third pass recomputes them with the
 * same bits.) Both passes prefetch half of the next row each, and the second also the destination of the results.
 *
 * For logits that are scaled or capped (`mapped`) nothing is stored: each pass maps them again, because the third needs them besides the
 * exponentials. The map is increasing, so the largest logit stays the largest.
 */
#include "device/cpu/kernels/cross_entropy.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vmath.h"

#include <math.h>

enum { MAX_VECS = 4 };

typedef struct logits_row {
    const f32_at *x, *next; /* the row after it */
    const char *out;        /* where the results go, or NULL */
    int64_t out_bytes;      /* of one */
    float *kept;            /* for the exponentials, or NULL */
    float largest;          /* after the map */
    bool mapped;
    float logit_scale, cap, over_cap; /* over_cap: logit_scale / cap; cap 0: none */
} logits_row;

static INLINE vf row_map(const logits_row *r, vf x)
{
    if (!r->mapped)
        return x;
    return r->cap != 0 ? r->cap * vec_tanh(x * r->over_cap) : x * r->logit_scale;
}

static INLINE vf row_at(const logits_row *r, int64_t i, int64_t lanes) { return row_map(r, f32_load(r->x + i, lanes)); }

/* From the gradient of the mapped logits to that of the logits. */
static INLINE vf row_slope(const logits_row *r, vf x, vf gradient)
{
    if (!r->mapped)
        return gradient;
    if (r->cap == 0)
        return gradient * r->logit_scale;
    vf t = vec_tanh(x * r->over_cap);
    return gradient * r->logit_scale * vec_fma(-t, t, vec_set(1.0f));
}

/* Ignores NaN, which the sum then detects. */
static INLINE float row_largest(const f32_at *x, int64_t n)
{
    vf m[MAX_VECS];
    for (int j = 0; j < MAX_VECS; j++)
        m[j] = vec_set(-INFINITY);
    int64_t i = 0;
    for (; i + MAX_VECS * VEC_LANES <= n; i += MAX_VECS * VEC_LANES)
#pragma GCC unroll 4
        for (int j = 0; j < MAX_VECS; j++)
            m[j] = vec_max(f32_load(x + i + j * VEC_LANES, VEC_LANES), m[j]);
    float largest = vec_largest(vec_max(vec_max(m[0], m[1]), vec_max(m[2], m[3])));
    for (; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    return largest;
}

static INLINE vf exponential(const void *ctx, int64_t i, int64_t lanes)
{
    const logits_row *r = ctx;
    vf e = vec_exp_negative(row_at(r, i, lanes) - r->largest);
    return lanes < VEC_LANES ? vec_keep(first_lanes(lanes), e) : e;
}

static INLINE vf exponential_first(const void *ctx, int64_t i, int64_t lanes)
{
    const logits_row *r = ctx;
    __builtin_prefetch(r->next + i, 0, 2);
    return exponential(ctx, i, lanes);
}

static INLINE vf exponential_kept(const void *ctx, int64_t i, int64_t lanes)
{
    const logits_row *r = ctx;
    __builtin_prefetch(r->next + i / 2, 0, 2);
    __builtin_prefetch(r->out + i * r->out_bytes, 0, 2);
    vf e = exponential(ctx, i, lanes);
    f32_store(r->kept + i, e, lanes);
    return e;
}

static INLINE vf exponential_read(const void *ctx, int64_t i, int64_t lanes)
{
    const logits_row *r = ctx;
    return f32_load(r->kept + i, lanes);
}

/* tame: there is no NaN. */
static INLINE void gradient_row(pt_dtype type, bool tame, sum_term term, const logits_row *r, float inverse, float scale, void *out,
                                int64_t n)
{
    int64_t i = 0;
    for (; type == PT_BF16 && tame && i + 2 * VEC_LANES <= n; i += 2 * VEC_LANES) {
        __builtin_prefetch(r->next + (n + i) / 2, 0, 2);
        vf first = term(r, i, VEC_LANES) * inverse * scale, second = term(r, i + VEC_LANES, VEC_LANES) * inverse * scale;
        upper_store_two((uint16_t *)out + i, bf16_upper_tame(first), bf16_upper_tame(second));
    }
    for (; i + VEC_LANES <= n; i += VEC_LANES)
        store(type, out, i, term(r, i, VEC_LANES) * inverse * scale, VEC_LANES);
    if (i < n)
        store(type, out, i, term(r, i, n - i) * inverse * scale, n - i);
}

static INLINE void gradient_row_mapped(pt_dtype type, const logits_row *r, float inverse, float scale, void *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        int64_t lanes = n - i < VEC_LANES ? n - i : VEC_LANES;
        vf x = f32_load(r->x + i, lanes), e = vec_exp_negative(row_map(r, x) - r->largest);
        store(type, out, i, row_slope(r, x, e * inverse * scale), lanes);
    }
}

/* What the gradient of a row subtracts from its probabilities: `share` everywhere, `target` from the target's. */
typedef struct expected_row { float share, target; } expected_row;

static INLINE expected_row row_expected(const op_cross_entropy *o)
{
    const float share = o->smoothing / (float)o->vocab;
    return (expected_row){share, 1.0f - o->smoothing + share};
}

static INLINE vf below_largest(const void *ctx, int64_t i, int64_t lanes)
{
    const logits_row *r = ctx;
    vf x = row_at(r, i, lanes) - r->largest;
    return lanes < VEC_LANES ? vec_keep(first_lanes(lanes), x) : x;
}

static INLINE void gradient_row_smoothed(pt_dtype type, const logits_row *r, float inverse, float share, float scale, void *out, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        int64_t lanes = n - i < VEC_LANES ? n - i : VEC_LANES;
        vf x = r->mapped ? f32_load(r->x + i, lanes) : vec_set(0);
        vf e = r->kept ? exponential_read(r, i, lanes) : exponential(r, i, lanes);
        store(type, out, i, row_slope(r, x, (e * inverse - share) * scale), lanes);
    }
}

/* The loss is minus the target's logit. */
static INLINE void linear_row(pt_dtype type, const op_cross_entropy *o, const logits_row *r, int64_t row, int64_t target, void *out)
{
    const vf asked = vec_set(r->x[target]);
    const float largest = row_map(r, vec_set(row_largest(r->x, o->vocab)))[0], wanted = row_map(r, asked)[0];
    const float scale = o->weights ? o->scale * o->weights[row] : o->scale;
    o->loss[row] = -wanted;
    if (o->right)
        o->right[row] = wanted >= largest;
    if (!out)
        return;
    memset(out, 0, (size_t)o->vocab * dtype_bytes(type));
    store(type, out, target, row_slope(r, asked, vec_set(-scale)), 1);
}

/* mapped: logits have a scale or a cap. */
static INLINE void row_of(pt_dtype type, bool mapped, const op_cross_entropy *o, int64_t row, int64_t next, float *scratch)
{
    int64_t target = o->targets[row];
    void *out = o->dlogits ? at_mutable(type, o->dlogits, row * o->lddl) : NULL;
    if (target < 0) {
        o->loss[row] = 0.0f;
        if (o->right)
            o->right[row] = 0.0f;
        if (out)
            memset(out, 0, (size_t)o->vocab * dtype_bytes(type));
        return;
    }
    const float logit_scale = op_factor(o->logit_scale);
    logits_row r = {.x = o->logits + row * o->ld, .next = o->logits + next * o->ld, .out = out, .out_bytes = (int64_t)dtype_bytes(type),
                    .mapped = mapped, .logit_scale = logit_scale, .cap = o->softcap};
    r.over_cap = r.cap != 0 ? logit_scale / r.cap : 0;
    if (o->linear) {
        linear_row(type, o, &r, row, target, out);
        return;
    }
    if (out && !mapped)
        r.kept = out == r.x ? out : o->vocab * (int64_t)sizeof(float) <= POOL_SCRATCH_BYTES ? scratch : NULL;
    r.largest = row_map(&r, vec_set(row_largest(r.x, o->vocab)))[0];
    const vf asked = vec_set(r.x[target]);
    float wanted = row_map(&r, asked)[0] - r.largest;
    const float mean = o->smoothing > 0 ? row_sum(below_largest, &r, o->vocab) / (float)o->vocab : 0;
    float sum = r.kept ? row_sum(exponential_kept, &r, o->vocab) : row_sum(exponential_first, &r, o->vocab);
    o->loss[row] = (float)log((double)sum) - wanted;
    if (o->smoothing > 0)
        o->loss[row] += o->smoothing * (wanted - mean);
    if (o->right)
        o->right[row] = wanted >= 0;
    if (!out)
        return;
    const float inverse = 1.0f / sum, scale = o->weights ? o->scale * o->weights[row] : o->scale;
    const expected_row expected = row_expected(o);
    if (o->smoothing > 0)
        gradient_row_smoothed(type, &r, inverse, expected.share, scale, out, o->vocab);
    else if (mapped)
        gradient_row_mapped(type, &r, inverse, scale, out, o->vocab);
    else if (!r.kept)
        gradient_row(type, false, exponential, &r, inverse, scale, out, o->vocab);
    else if (isnan(sum * scale))
        gradient_row(type, false, exponential_read, &r, inverse, scale, out, o->vocab);
    else
        gradient_row(type, true, exponential_read, &r, inverse, scale, out, o->vocab);
    vf probability = vec_exp_negative(vec_set(wanted)) * inverse;
    store(type, out, target, row_slope(&r, asked, (probability - expected.target) * scale), 1);
}

void KERNEL(cross_entropy_row)(const op_cross_entropy *o, int64_t row, int64_t next, float *scratch)
{
    const bool mapped = op_factor(o->logit_scale) != 1 || o->softcap != 0;
    if (o->type == PT_BF16 && mapped)
        row_of(PT_BF16, true, o, row, next, scratch);
    else if (o->type == PT_BF16)
        row_of(PT_BF16, false, o, row, next, scratch);
    else if (mapped)
        row_of(PT_F32, true, o, row, next, scratch);
    else
        row_of(PT_F32, false, o, row, next, scratch);
}
