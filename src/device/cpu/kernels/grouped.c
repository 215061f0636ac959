#include "device/cpu/kernels/grouped.h"

#include "device/cpu/kernels/activation_function.h"
#include "device/cpu/kernels/isa.h"

/* ---- activations ---- */

/* out, and its derivatives by gate and up. */
typedef struct gated_value { vf out, by_gate, by_up; } gated_value;

static INLINE gated_value plain_value(activation_kind kind, bool gated, pt_dtype type, vf gate, vf up)
{
    vf derivative, y = activation(kind, type, gate, &derivative);
    return gated ? (gated_value){y * up, up * derivative, y} : (gated_value){y, derivative, y};
}

/* Comparisons with NaN are false: it stays. */
static INLINE gated_value clamped_value(pt_dtype type, float alpha, float limit, vf gate, vf up)
{
    const vf g = vec_min(vec_set(limit), gate), u = vec_max(vec_set(-limit), vec_min(vec_set(limit), up)) + 1.0f;
    vf slope, s = logistic(ACT_SILU, type, alpha * g, &slope), y = g * s;
    return (gated_value){u * y, vec_keep(~(gate > limit), u * vec_fma(alpha * g, slope, s)), vec_keep(~(vec_abs(up) > limit), y)};
}

/* Elements i .. i + lanes of gate and up, whose elements alternate in memory. */
static INLINE void load_alternate(pt_dtype type, const void *base, int64_t i, int64_t lanes, vf x[2])
{
    const int64_t both = 2 * lanes, low = both < VEC_LANES ? both : VEC_LANES;
    x[0] = load(type, base, 2 * i, low);
    x[1] = both > low ? load(type, base, 2 * i + low, both - low) : (vf){0};
    order_split(x);
}

static INLINE void store_alternate(pt_dtype type, void *base, int64_t i, int64_t lanes, vf x[2])
{
    const int64_t both = 2 * lanes, low = both < VEC_LANES ? both : VEC_LANES;
    order_join(x);
    store(type, base, 2 * i, x[0], low);
    if (both > low)
        store(type, base, 2 * i + low, x[1], both - low);
}

static INLINE void clamped(pt_dtype type, const op_grouped_activation *o, const void *up, void *out)
{
    for (int64_t i = 0; i < o->of.cols; i += VEC_LANES) {
        const int64_t lanes = o->of.cols - i < VEC_LANES ? o->of.cols - i : VEC_LANES;
        vf x[2];
        load_alternate(type, up, i, lanes, x);
        store(type, out, i, clamped_value(type, o->alpha, o->limit, x[0], x[1]).out, lanes);
    }
}

void KERNEL(clamped_row)(const op_grouped_activation *o, const void *up, void *out)
{
    if (o->of.type == PT_BF16)
        clamped(PT_BF16, o, up, out);
    else
        clamped(PT_F32, o, up, out);
}

typedef struct weighted_part { const void *up, *dout; void *dup, *out; float weight; sums dot; } weighted_part;

/* Elements i .. i + lanes; sum: their place among the dot's sums. */
static INLINE void weighted_step(activation_kind kind, pt_dtype type, const op_grouped_activation_backward *o, weighted_part *p, int64_t i,
                                 int64_t lanes, vf *sum)
{
    const int64_t cols = o->of.cols;
    const vf dout = load(type, p->dout, i, lanes), weighted = dout * p->weight;
    gated_value v;
    vf x[2];
    if (o->limit > 0) {
        load_alternate(type, p->up, i, lanes, x);
        v = clamped_value(type, o->alpha, o->limit, x[0], x[1]);
    } else {
        x[0] = load(type, p->up, i, lanes);
        x[1] = o->of.gated ? load(type, p->up, cols + i, lanes) : x[0];
        v = plain_value(kind, o->of.gated, type, x[0], x[1]);
    }
    const vf out = vec_round(type, v.out);
    *sum = vec_fma(out, vec_keep(first_lanes(lanes), dout), *sum);
    if (p->out)
        store(type, p->out, i, out * p->weight, lanes);
    x[0] = weighted * v.by_gate, x[1] = weighted * v.by_up;
    if (o->limit > 0) {
        store_alternate(type, p->dup, i, lanes, x);
        return;
    }
    store(type, p->dup, i, x[0], lanes);
    if (o->of.gated)
        store(type, p->dup, cols + i, x[1], lanes);
}

static INLINE void weighted(activation_kind kind, pt_dtype type, const op_grouped_activation_backward *o, weighted_part *p)
{
    const int64_t cols = o->of.cols;
    for (int64_t i = 0, v = 0; i < cols; i += VEC_LANES, v = v + 1 < SUM_VECS ? v + 1 : 0)
        weighted_step(kind, type, o, p, i, cols - i < VEC_LANES ? cols - i : VEC_LANES, &p->dot.part[v]);
}

float KERNEL(weighted_row)
(const op_grouped_activation_backward *o, const void *up, const void *dout, float weight, void *dup, void *out)
{
    weighted_part p = {.up = up, .dout = dout, .dup = dup, .out = out, .weight = weight};
    FOR_KIND_AND_TYPE(weighted, o->of.kind, o->of.type, o, &p)
    return sums_total(p.dot);
}

/* ---- sums ---- */

/* The rows of y that a token adds, and their weights. */
typedef struct terms { const void *row[SLOTS_MOST]; float weight[SLOTS_MOST]; int n; } terms;

static INLINE terms terms_of(pt_dtype type, const op_combine *o, int64_t token, int64_t begin, int64_t end)
{
    terms t = {.n = 0};
    for (int64_t slot = token * o->k; slot < (token + 1) * o->k; slot++) {
        const int64_t row = o->place ? o->place[slot] : slot;
        if (end >= 0 && (row < begin || row >= end))
            continue;
        t.row[t.n] = at(type, o->y, (o->y_at == AT_ROW ? row : row - begin) * o->cols);
        t.weight[t.n++] = o->weights ? o->weights[slot] : 1;
    }
    return t;
}

static INLINE void combine_step(pt_dtype type, const op_combine *o, const terms *t, int64_t at, int64_t i, int64_t lanes)
{
    vf sum = o->continues ? f32_load(o->sums + at, lanes) : (vf){0};
    for (int j = 0; j < t->n; j++)
        sum = vec_fma(vec_set(t->weight[j]), load(type, t->row[j], i, lanes), sum);
    if (!o->out) {
        f32_store(o->sums + at, sum, lanes);
        return;
    }
    if (o->stream) {
        const vf stream = f32_load(o->stream + at, lanes) + sum;
        f32_store(o->stream + at, stream, lanes);
        sum = o->residual ? sum : stream;
    }
    store(type, o->out, at, o->residual ? load(type, o->residual, at, lanes) + sum : sum, lanes);
}

static INLINE void combine(pt_dtype type, const op_combine *o, int64_t row0, int64_t row1, int64_t begin, int64_t end)
{
    for (int64_t row = row0; row < row1; row++) {
        const terms t = terms_of(type, o, row, begin, end);
        int64_t i = 0;
        for (; i + VEC_LANES <= o->cols; i += VEC_LANES)
            combine_step(type, o, &t, row * o->cols + i, i, VEC_LANES);
        if (i < o->cols)
            combine_step(type, o, &t, row * o->cols + i, i, o->cols - i);
    }
}

void KERNEL(combine_rows)(const op_combine *o, int64_t row0, int64_t row1, int64_t begin, int64_t end)
{
    if (o->type == PT_BF16)
        combine(PT_BF16, o, row0, row1, begin, end);
    else
        combine(PT_F32, o, row0, row1, begin, end);
}

static INLINE void add_row(pt_dtype type, float weight, const void *row, int64_t n, float *sum)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        const int64_t lanes = n - i < VEC_LANES ? n - i : VEC_LANES;
        f32_store(sum + i, vec_fma(vec_set(weight), load(type, row, i, lanes), f32_load(sum + i, lanes)), lanes);
    }
}

void KERNEL(add_weighted)(pt_dtype type, float weight, const void *row, int64_t n, float *sum)
{
    if (type == PT_BF16)
        add_row(PT_BF16, weight, row, n, sum);
    else
        add_row(PT_F32, weight, row, n, sum);
}

typedef struct two_rows { const void *a, *b; } two_rows;
static INLINE vf product_f32(const void *of, int64_t i, int64_t lanes)
{
    const two_rows *r = of;
    return load(PT_F32, r->a, i, lanes) * load(PT_F32, r->b, i, lanes);
}
static INLINE vf product_bf16(const void *of, int64_t i, int64_t lanes)
{
    const two_rows *r = of;
    return load(PT_BF16, r->a, i, lanes) * load(PT_BF16, r->b, i, lanes);
}

float KERNEL(dot_rows)(pt_dtype type, const void *a, const void *b, int64_t n)
{
    const two_rows r = {a, b};
    return type == PT_BF16 ? row_sum(product_bf16, &r, n) : row_sum(product_f32, &r, n);
}
