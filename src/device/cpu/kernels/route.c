#include "device/cpu/kernels/route.h"

#include "base/target.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vmath.h"

#include <math.h>
#include <string.h>

/* p of a token: for softmax, e^(logit - the largest one), and its sum over all experts. */
typedef struct row_values { float p[EXPERTS_MOST], sum; } row_values;

static INLINE vf value_at(const void *values, int64_t i, int64_t lanes) { return f32_load((const float *)values + i, lanes); }

static INLINE float largest_of(const float *x, int64_t n)
{
    float most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most; /* passes over NaN */
    return most;
}

static void values_of(route_kind kind, const op_route *o, const float *logits, row_values *v)
{
    const vf most = vec_set(kind == ROUTE_SOFTMAX ? largest_of(logits, o->experts) : 0);
    for (int64_t i = 0; i < o->experts; i += VEC_LANES) {
        const int64_t lanes = o->experts - i < VEC_LANES ? o->experts - i : VEC_LANES;
        const vf x = f32_load(logits + i, lanes);
        vf slope;
        f32_store(v->p + i, kind == ROUTE_SOFTMAX ? vec_exp_negative(x - most) : vec_logistic(x, &slope), lanes);
    }
    v->sum = kind == ROUTE_SOFTMAX ? row_sum(value_at, v->p, o->experts) : 1;
}

static void find_values(const op_route *o, const float *logits, row_values *v) { values_of(o->kind, o, logits, v); }

/* ---- which experts ---- */

/* Integers in the order of numbers; below them NaN and, last, experts of groups that are not eligible. */
enum { KEY_NAN = INT32_MIN + 1, KEY_NEVER = INT32_MIN };

static int32_t key_of(float x)
{
    int32_t bits;
    x += 0.0f; /* -0 equals 0 */
    memcpy(&bits, &x, sizeof bits);
    return x != x ? KEY_NAN : bits ^ (int32_t)((uint32_t)(bits >> 31) & 0x7fffffffu);
}

/* The numbers of the k largest of n, in descending order, of equal ones the first before the others. */
static void choose(const int32_t *keys, int64_t n, int64_t k, int32_t *out)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++) {
        if (found == k && keys[i] <= keys[out[k - 1]])
            continue;
        int64_t at = found < k ? found++ : k - 1;
        for (; at && keys[i] > keys[out[at - 1]]; at--)
            out[at] = out[at - 1];
        out[at] = (int32_t)i;
    }
}

static void drop_groups(const op_route *o, const float *choice, int32_t *keys)
{
    const int64_t size = o->experts / o->groups;
    int32_t scores[EXPERTS_MOST], best[EXPERTS_MOST];
    for (int64_t g = 0; g < o->groups; g++) {
        int32_t two[2];
        choose(keys + g * size, size, size < 2 ? size : 2, two);
        scores[g] = key_of(choice[g * size + two[0]] + (size < 2 ? 0 : choice[g * size + two[1]]));
    }
    choose(scores, o->groups, o->groups_used, best);
    for (int64_t g = 0; g < o->groups; g++)
        scores[g] = 0;
    for (int64_t i = 0; i < o->groups_used; i++)
        scores[best[i]] = 1;
    for (int64_t e = 0; e < o->experts; e++)
        keys[e] = scores[e / size] ? keys[e] : KEY_NEVER;
}

static void find_ids(const op_route *o, const float *logits, const row_values *v, int32_t *ids)
{
    float choice[EXPERTS_MOST];
    int32_t keys[EXPERTS_MOST];
    for (int64_t e = 0; e < o->experts; e++) {
        const float p = o->kind == ROUTE_SOFTMAX && !o->bias ? logits[e] : v->p[e] / v->sum;
        choice[e] = o->bias ? p + o->bias[e] : p;
        keys[e] = key_of(choice[e]);
    }
    if (o->groups > 1)
        drop_groups(o, choice, keys);
    choose(keys, o->experts, o->k, ids);
    for (int64_t i = 1; i < o->k; i++) { /* ascending */
        const int32_t id = ids[i];
        int64_t at = i;
        for (; at && ids[at - 1] > id; at--)
            ids[at] = ids[at - 1];
        ids[at] = id;
    }
}

/* ---- weights ---- */

/* Shares of the chosen experts, p[id] / D; each times a factor is its weight. */
typedef struct shares {
    float of[SLOTS_MOST], divisor;
    bool relative;  /* D is the sum of p[id], up to eps: it has a gradient of its own */
} shares;

static shares shares_of(const op_route *o, const row_values *v, const int32_t *ids)
{
    const bool by_sum = o->kind == ROUTE_SOFTMAX && o->norm && o->least == 0 && o->eps == 0; /* the sum over all experts does not matter */
    shares s = {.divisor = 0};
    for (int64_t j = 0; j < o->k; j++) {
        s.of[j] = by_sum ? v->p[ids[j]] : v->p[ids[j]] / v->sum;
        s.divisor += s.of[j];
    }
    s.relative = o->norm && s.divisor > o->least;
    s.divisor = o->norm ? (s.divisor < o->least ? o->least : s.divisor) + o->eps : 1;
    for (int64_t j = 0; j < o->k; j++)
        s.of[j] = s.of[j] / s.divisor;
    s.divisor = by_sum ? 1 : s.divisor;
    return s;
}

/* ---- the balance of experts ---- */

static bool is_padding(const op_route *o, int64_t row) { return o->targets && o->targets[row] == TARGET_PADDING; }

static void put_use(const op_route *o, const float *logits, float *use)
{
    const op_route by_logits = {.experts = o->experts, .k = o->k};
    int32_t ids[SLOTS_MOST];
    row_values v;
    values_of(ROUTE_SOFTMAX, o, logits, &v);
    find_ids(&by_logits, logits, &v, ids);
    memset(use, 0, (size_t)o->experts * sizeof *use);
    for (int64_t j = 0; j < o->k; j++)
        use[ids[j]] = 1;
    for (int64_t e = 0; e < o->experts; e++)
        use[o->experts + e] = v.p[e] / v.sum;
}

/* The gradient of each expert's probability. */
static void find_push(const op_route_backward *b, float *push)
{
    const op_route *o = &b->forward;
    float slots = 0;
    for (int64_t e = 0; e < o->experts; e++)
        slots += b->used[e];
    const float n = slots / (float)o->k, factor = n > 0 ? b->balance / n / n : 0;
    for (int64_t e = 0; e < o->experts; e++)
        push[e] = factor * b->used[e];
}

static void add_balance(const op_route *o, const float *logits, const float *push, float *dlogits)
{
    row_values v;
    float mean = 0;
    values_of(ROUTE_SOFTMAX, o, logits, &v);
    for (int64_t e = 0; e < o->experts; e++)
        mean += v.p[e] / v.sum * push[e];
    for (int64_t e = 0; e < o->experts; e++)
        dlogits[e] += v.p[e] / v.sum * (push[e] - mean);
}

/* ---- forward ---- */

static float factor_of(const op_route *o, int32_t id) { return op_factor(o->scale) * (o->expert_scale ? o->expert_scale[id] : 1); }

void KERNEL(route_rows)(const op_route *o, int64_t row0, int64_t row1)
{
    for (int64_t row = row0; row < row1; row++) {
        const float *logits = o->logits + row * o->experts;
        int32_t *ids = o->ids + row * o->k;
        row_values v;
        find_values(o, logits, &v);
        if (!o->given)
            find_ids(o, logits, &v, ids);
        float *use = o->use ? o->use + row * 2 * o->experts : NULL;
        if (use && is_padding(o, row))
            memset(use, 0, (size_t)(2 * o->experts) * sizeof *use);
        else if (use)
            put_use(o, logits, use);
        const shares s = shares_of(o, &v, ids);
        for (int64_t j = 0; j < o->k; j++)
            o->weights[row * o->k + j] = s.of[j] * factor_of(o, ids[j]);
    }
}

/* ---- backward ---- */

/* d[j]: the gradient of p[ids[j]], or, where `relative` softmax makes p's sum not matter, p times it. Returns whether it is that. */
static bool value_gradients(const op_route *o, const shares *s, const float *dshare, float d[SLOTS_MOST])
{
    float mean = 0;
    for (int64_t j = 0; j < o->k; j++)
        mean += dshare[j] * s->of[j];
    const bool times_p = o->kind == ROUTE_SOFTMAX && s->relative && o->eps == 0;
    for (int64_t j = 0; j < o->k; j++) {
        const float difference = s->relative ? dshare[j] - mean : dshare[j];
        d[j] = times_p ? s->of[j] * difference : difference / s->divisor;
    }
    return times_p;
}

/* dlogits of the token from d. */
static void logit_gradients(const op_route *o, const row_values *v, const int32_t *ids, const float *d, bool times_p, float *dlogits)
{
    float mean = 0;
    memset(dlogits, 0, (size_t)o->experts * sizeof *dlogits);
    for (int64_t j = 0; j < o->k; j++) {
        const float p = v->p[ids[j]] / v->sum;
        dlogits[ids[j]] = times_p ? d[j] : o->kind == ROUTE_SIGMOID ? d[j] * p * (1 - p) : d[j];
        mean += p * d[j];
    }
    for (int64_t e = 0; e < o->experts && o->kind == ROUTE_SOFTMAX && !times_p; e++)
        dlogits[e] = v->p[e] / v->sum * (dlogits[e] - mean);
}

static void put_row(pt_dtype type, const float *from, void *base, int64_t at, int64_t n)
{
    for (int64_t i = 0; i < n; i += VEC_LANES) {
        const int64_t lanes = n - i < VEC_LANES ? n - i : VEC_LANES;
        if (type == PT_BF16)
            store(PT_BF16, base, at + i, f32_load(from + i, lanes), lanes);
        else
            store(PT_F32, base, at + i, f32_load(from + i, lanes), lanes);
    }
}

void KERNEL(route_backward_rows)(const op_route_backward *b, int64_t row0, int64_t row1)
{
    const op_route *o = &b->forward;
    float push[EXPERTS_MOST];
    if (b->used)
        find_push(b, push);
    for (int64_t row = row0; row < row1; row++) {
        const int32_t *ids = o->ids + row * o->k;
        float dshare[SLOTS_MOST], d[SLOTS_MOST], dlogits[EXPERTS_MOST];
        row_values v;
        find_values(o, o->logits + row * o->experts, &v);
        const shares s = shares_of(o, &v, ids);
        for (int64_t j = 0; j < o->k; j++) {
            const float dweight = b->dweights[row * o->k + j];
            dshare[j] = dweight * factor_of(o, ids[j]);
            if (b->dexpert_scale)
                b->dexpert_scale[row * o->k + j] = dweight * (s.of[j] * op_factor(o->scale));
        }
        const bool times_p = value_gradients(o, &s, dshare, d);
        logit_gradients(o, &v, ids, d, times_p, dlogits);
        if (b->used && !is_padding(o, row))
            add_balance(o, o->logits + row * o->experts, push, dlogits);
        put_row(b->type, dlogits, b->dlogits, row * o->experts, o->experts);
    }
}
