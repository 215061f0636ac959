/* attention_rows.c - forward for few queries: the inner loop of text generation.
 *
 * With one query a head there is nothing to multiply a key tile with but a handful of rows, and the
 * time goes into reading K and V once. A task is (sequence, kv head, span of keys): each key tile is
 * widened to fp32 and then visited by every query row of the heads that share it. Spans are joined
 * by attention_combine, in ascending order.
 *
 * Sums over a vector's lanes are taken as 16 partial sums and a fixed tree, whatever the width of a
 * vector, so that the copies of this file with fma agree.
 */
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/isa.h"

#include <float.h>
#include <math.h>

enum {
    LANES = 16,          /* partial sums of a dot product */
    PARTS = LANES / VEC, /* vectors that hold them */
    ROWS_AT_ONCE = 32    /* query rows that share a pass over the keys */
};

static float tree_sum(const vec part[PARTS])
{
    float x[LANES];
    for (int i = 0; i < PARTS; i++)
        vec_store(x + i * VEC, part[i]);
    for (int w = LANES / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            x[i] += x[i + w];
    return x[0];
}

/* scores[0 .. 4) = the dot products of q with four rows of k; n is a multiple of LANES. */
static inline void dot_four(const float *q, const float *k, int64_t n, float *scores)
{
    typedef float quad __attribute__((vector_size(16)));
    typedef int32_t pick __attribute__((vector_size(16)));
    vec sum[4][PARTS] = {0};
    for (int64_t d = 0; d < n; d += LANES)
#pragma GCC unroll 4
        for (int i = 0; i < PARTS; i++) {
            vec x = vec_load(q + d + i * VEC);
#pragma GCC unroll 4
            for (int r = 0; r < 4; r++)
                sum[r][i] = vec_fma(x, vec_load(k + r * n + d + i * VEC), sum[r][i]);
        }
    quad four[4];
    for (int r = 0; r < 4; r++) {
        quad x[4];
        memcpy(x, sum[r], sizeof(x));
        four[r] = (x[0] + x[2]) + (x[1] + x[3]);
    }
    const pick left = {0, 1, 4, 5}, right = {2, 3, 6, 7}, even = {0, 2, 4, 6}, odd = {1, 3, 5, 7};
    quad a = __builtin_shuffle(four[0], four[1], left) + __builtin_shuffle(four[0], four[1], right);
    quad b = __builtin_shuffle(four[2], four[3], left) + __builtin_shuffle(four[2], four[3], right);
    quad all = __builtin_shuffle(a, b, even) + __builtin_shuffle(a, b, odd);
    memcpy(scores, &all, sizeof(all));
}

/* out[d] += p[j] * v[j][d], ascending j within each d; keys is a multiple of 4. */
static void add_rows(const float *p, const float *v, int64_t keys, int64_t n, float *out)
{
    for (int64_t j = 0; j < keys; j += 4, v += 4 * n) {
        vec p0 = vec_all(p[j]), p1 = vec_all(p[j + 1]), p2 = vec_all(p[j + 2]), p3 = vec_all(p[j + 3]);
        for (int64_t d = 0; d < n; d += VEC) {
            vec x = vec_fma(p0, vec_load(v + d), vec_load(out + d));
            x = vec_fma(p1, vec_load(v + n + d), x);
            x = vec_fma(p2, vec_load(v + 2 * n + d), x);
            x = vec_fma(p3, vec_load(v + 3 * n + d), x);
            vec_store(out + d, x);
        }
    }
}

void KERNEL(attention_exp)(float *x, int64_t n, float shift)
{
    int64_t i = 0;
    for (; i + VEC <= n; i += VEC)
        vec_store(x + i, vec_exp(vec_load(x + i) - vec_all(shift)));
    if (i < n) {
        float rest[VEC] = {0};
        memcpy(rest, x + i, (size_t)(n - i) * sizeof(float));
        vec_store(rest, vec_exp(vec_load(rest) - vec_all(shift)));
        memcpy(x + i, rest, (size_t)(n - i) * sizeof(float));
    }
}

typedef struct row_state { float max, sum; int32_t lo, hi; float *q, *out; } row_state;

/* The row's keys among [key, key + keys), whose widened K and V are given. */
static void row_visit(row_state *row, const float *k, const float *v, int64_t key, int64_t keys,
                      int64_t padded)
{
    int64_t from = most(row->lo - key, 0), to = least(row->hi - key + 1, keys);
    if (from >= to)
        return;
    float s[ATT_KEYS];
    int64_t count = round_up(keys, LANES);
    for (int64_t j = 0; j < count; j += 4)
        dot_four(row->q, k + j * padded, padded, s + j);
    for (int64_t j = 0; j < from; j++)
        s[j] = -INFINITY;
    for (int64_t j = to; j < count; j++)
        s[j] = -INFINITY;
    vec top = vec_all(row->max);
    for (int64_t j = 0; j < count; j += VEC)
        top = vec_max(top, vec_load(s + j));
    float max = top[0];
    for (int i = 1; i < VEC; i++)
        max = max > top[i] ? max : top[i];
    float shrink = row->max - max;
    KERNEL(attention_exp)(&shrink, 1, 0);
    KERNEL(attention_exp)(s, count, max);
    vec total[PARTS] = {0};
    for (int64_t j = 0; j < count; j += LANES)
        for (int i = 0; i < PARTS; i++)
            total[i] += vec_load(s + j + i * VEC);
    row->sum = row->sum * shrink + tree_sum(total);
    row->max = max;
    for (int64_t d = 0; d < padded; d += VEC)
        vec_store(row->out + d, vec_load(row->out + d) * shrink);
    add_rows(s, v, count, padded, row->out);
}

static void row_open(row_state *row, const op_attention *o, int64_t seq, int64_t head, int64_t i,
                     int64_t padded)
{
    attention_range(o, seq, i, &row->lo, &row->hi);
    row->max = -FLT_MAX, row->sum = 0;
    load_rows(o->type, row_of(o->type, o->q, (seq * o->q_len + i) * o->ldq + head * o->dim), 0, 1,
              o->dim, row->q, padded, 1);
    for (int64_t d = 0; d < padded; d++)
        row->q[d] *= o->scale, row->out[d] = 0;
}

void KERNEL(attention_rows)(const op_attention *o, int64_t seq, int64_t kv_head, int64_t from,
                            int64_t to, float *partial, float *scratch)
{
    int64_t p = attention_padded(o->dim), group = o->heads / o->kv_heads, all = group * o->q_len;
    float *k = scratch, *v = k + ATT_KEYS * p, *rows = v + ATT_KEYS * p;
    int64_t base = attention_kv_offset(o, seq, kv_head);
    for (int64_t first = 0; first < all; first += ROWS_AT_ONCE) {
        int64_t count = least(ROWS_AT_ONCE, all - first);
        row_state row[ROWS_AT_ONCE];
        for (int64_t r = 0; r < count; r++) {
            row[r].q = rows + 2 * r * p, row[r].out = row[r].q + p;
            row_open(&row[r], o, seq, kv_head * group + (first + r) / o->q_len,
                     (first + r) % o->q_len, p);
        }
        for (int64_t key = from; key < to; key += ATT_KEYS) {
            int64_t keys = least(ATT_KEYS, to - key), at = base + key * o->ldkv;
            load_rows(o->type, row_of(o->type, o->k, at), o->ldkv, keys, o->dim, k, p,
                      round_up(keys, LANES));
            load_rows(o->type, row_of(o->type, o->v, at), o->ldkv, keys, o->dim, v, p,
                      round_up(keys, LANES));
            for (int64_t r = 0; r < count; r++)
                row_visit(&row[r], k, v, key, keys, p);
        }
        for (int64_t r = 0; r < count; r++) {
            float *out = partial + (first + r) * (o->dim + 2);
            out[0] = row[r].max, out[1] = row[r].sum;
            memcpy(out + 2, row[r].out, (size_t)o->dim * sizeof(float));
        }
    }
}

void KERNEL(attention_combine)(const op_attention *o, int64_t seq, int64_t head, int64_t i,
                               float *partial, int64_t parts, int64_t stride)
{
    float max = partial[0], sum = 0, *out = partial + 2;
    for (int64_t s = 1; s < parts; s++)
        max = partial[s * stride] > max ? partial[s * stride] : max;
    for (int64_t s = 0; s < parts; s++) {
        float *part = partial + s * stride, weight = part[0];
        KERNEL(attention_exp)(&weight, 1, max);
        sum += part[1] * weight;
        for (int64_t d = 0; d < o->dim; d++)
            out[d] = (s ? out[d] : 0) + part[2 + d] * weight;
    }
    float inverse = 1.0f / sum;
    for (int64_t d = 0; d < o->dim; d++)
        out[d] *= inverse;
    store_row(o->type, out, o->dim,
              (void *)row_of(o->type, o->out, (seq * o->q_len + i) * o->ldo + head * o->dim));
    if (o->lse)
        o->lse[(seq * o->heads + head) * o->q_len + i] = max + logf(sum);
}
