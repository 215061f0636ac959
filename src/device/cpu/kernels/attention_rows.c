/* attention_rows.c - forward for few queries: the inner loop of text generation.
 *
 * With one query per head, a tile of keys is multiplied with only a few rows, and most of the time is spent reading K and V, once. The
 * heads of a token are adjacent in memory:
 *
 *     key 0    | head 0 | head 1 | head 2 | ...        so a task has all kv heads of a sequence
 *     key 1    | head 0 | head 1 | head 2 | ...        over a part of the keys: 64 keys at a time,
 *     ...                                              four rows together, from left to right
 *
 * For each 64 keys it computes the scores of all query rows (reading K once), their softmax, and their sums of p * v (reading V once).
 * attention_combine combines the parts in ascending order.
 *
 * Sums over lanes are 16 partial sums and a fixed tree, whatever the width of a vector, so that the copies of this file with fma have the
 * same bits.
 */
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/isa.h"

#include <float.h>
#include <math.h>

enum {
    LANES = 16,          /* partial sums of a dot product */
    PARTS = LANES / VEC  /* vectors of partial sums */
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

/* Four rows of K or V of one head, which are widened when read. */
typedef struct four_rows { pt_dtype type; const void *at; int64_t ld; } four_rows;

/* Missing rows and elements past dim must be 0; if there are any, the rows are copied to `staging` first. */
static inline four_rows take_four(const op_attention *o, const void *tensor, int64_t at, int64_t rows,
                                  int64_t padded, float *staging)
{
    const void *src = row_of(o->type, tensor, at);
    if (rows >= 4 && o->dim == padded)
        return (four_rows){o->type, src, o->ldkv};
    load_rows(o->type, src, o->ldkv, least(rows, 4), o->dim, staging, padded, 4);
    return (four_rows){PT_F32, staging, padded};
}

ATT_INLINE vec load_wide(pt_dtype type, const void *p, int64_t i)
{
    return type == PT_BF16 ? vec_load_bf16((const bf16 *)p + i) : vec_load((const float *)p + i);
}

/* scores[0 .. 4) = the dot products of q with four rows of k; n is a multiple of LANES. */
ATT_INLINE void dot_four_of(pt_dtype type, const float *q, const four_rows *k, int64_t n, float *scores)
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
                sum[r][i] = vec_fma(x, load_wide(type, k->at, r * k->ld + d + i * VEC), sum[r][i]);
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

static void dot_four(const float *q, const four_rows *k, int64_t n, float *scores)
{
    if (k->type == PT_BF16)
        dot_four_of(PT_BF16, q, k, n, scores);
    else
        dot_four_of(PT_F32, q, k, n, scores);
}

/* out[d] += p[j] * v[j][d] for four rows, ascending j within each d. */
ATT_INLINE void add_four_of(pt_dtype type, const float *p, const four_rows *v, int64_t n, float *out)
{
    vec p0 = vec_all(p[0]), p1 = vec_all(p[1]), p2 = vec_all(p[2]), p3 = vec_all(p[3]);
    for (int64_t d = 0; d < n; d += VEC) {
        vec x = vec_fma(p0, load_wide(type, v->at, d), vec_load(out + d));
        x = vec_fma(p1, load_wide(type, v->at, v->ld + d), x);
        x = vec_fma(p2, load_wide(type, v->at, 2 * v->ld + d), x);
        x = vec_fma(p3, load_wide(type, v->at, 3 * v->ld + d), x);
        vec_store(out + d, x);
    }
}

static void add_four(const float *p, const four_rows *v, int64_t n, float *out)
{
    if (v->type == PT_BF16)
        add_four_of(PT_BF16, p, v, n, out);
    else
        add_four_of(PT_F32, p, v, n, out);
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

/* A query row's keys are lo .. hi. */
typedef struct row_state { float max, sum; int32_t lo, hi; } row_state;

/* Scores of the keys [key, key + keys) become exp(score - max), the rest up to ATT_KEYS 0. Updates max, sum and out. */
static void row_softmax(row_state *row, float *s, float *out, int64_t key, int64_t keys, int64_t padded)
{
    int64_t from = most(row->lo - key, 0), to = least(row->hi - key + 1, keys);
    if (from >= to) {
        memset(s, 0, ATT_KEYS * sizeof(float));
        return;
    }
    for (int64_t j = 0; j < from; j++)
        s[j] = -INFINITY;
    for (int64_t j = to; j < ATT_KEYS; j++)
        s[j] = -INFINITY;
    vec top = vec_all(row->max);
    for (int64_t j = 0; j < ATT_KEYS; j += VEC)
        top = vec_max(top, vec_load(s + j));
    float max = top[0];
    for (int i = 1; i < VEC; i++)
        max = max > top[i] ? max : top[i];
    float shrink = row->max - max;
    KERNEL(attention_exp)(&shrink, 1, 0);
    KERNEL(attention_exp)(s, ATT_KEYS, max);
    vec total[PARTS] = {0};
    for (int64_t j = 0; j < ATT_KEYS; j += LANES)
        for (int i = 0; i < PARTS; i++)
            total[i] += vec_load(s + j + i * VEC);
    row->sum = row->sum * shrink + tree_sum(total);
    row->max = max;
    for (int64_t d = 0; d < padded; d += VEC)
        vec_store(out + d, vec_load(out + d) * shrink);
}

/* Caps scaled scores; the buffer has room for ATT_KEYS. */
static void row_cap(const score_cap *cap, float *s, int64_t keys)
{
    for (int64_t j = 0; j < keys; j += VEC)
        vec_store(s + j, capped(cap, vec_load(s + j)));
}

/* The scratch of a task. */
typedef struct rows_task {
    const op_attention *o;
    int64_t padded, rows, rows_per_kv_head;
    float *staging;         /* (4, dim) */
    float *q, *out;         /* (rows, dim): scale * q, and the sums of p * v */
    float *scores;          /* (rows, ATT_KEYS) */
    row_state *row;         /* (rows) */
} rows_task;

static void rows_open(rows_task *t, const op_attention *o, int64_t seq, int64_t kv_head,
                      int64_t kv_heads, float *scratch)
{
    int64_t p = attention_padded(o->dim), group = o->heads / o->kv_heads;
    int64_t rows = kv_heads * group * o->q_len;
    *t = (rows_task){.o = o, .padded = p, .rows = rows, .rows_per_kv_head = group * o->q_len};
    t->staging = scratch;
    t->q = t->staging + 4 * p;
    t->out = t->q + rows * p;
    t->scores = t->out + rows * p;
    t->row = (row_state *)(t->scores + rows * ATT_KEYS);
    memset(t->out, 0, (size_t)(rows * p) * sizeof(float));
    for (int64_t r = 0; r < rows; r++) {
        int64_t head = kv_head * group + r / o->q_len, i = r % o->q_len;
        attention_range(o, seq, i, &t->row[r].lo, &t->row[r].hi);
        t->row[r].max = -FLT_MAX, t->row[r].sum = 0;
        load_rows(o->type, row_of(o->type, o->q, (seq * o->q_len + i) * o->ldq + head * o->dim), 0, 1,
                  o->dim, t->q + r * p, p, 1);
        for (int64_t d = 0; d < p; d++)
            t->q[r * p + d] *= o->scale;
    }
}

/* Computes all rows with the keys [key, key + keys); `at` is the offset of key 0 of the first head in k and v. */
static void rows_visit(rows_task *t, int64_t at, int64_t key, int64_t keys)
{
    const op_attention *o = t->o;
    const score_cap cap = score_cap_of(o);
    int64_t p = t->padded, n = t->rows_per_kv_head, kv_heads = t->rows / n;
    at += key * o->ldkv;
    for (int64_t j = 0; j < keys; j += 4)
        for (int64_t h = 0; h < kv_heads; h++) {
            four_rows k = take_four(o, o->k, at + j * o->ldkv + h * o->dim, keys - j, p, t->staging);
            for (int64_t r = h * n; r < (h + 1) * n; r++)
                dot_four(t->q + r * p, &k, p, t->scores + r * ATT_KEYS + j);
        }
    for (int64_t r = 0; r < t->rows && cap.cap != 0; r++)
        row_cap(&cap, t->scores + r * ATT_KEYS, keys);
    for (int64_t r = 0; r < t->rows; r++)
        row_softmax(&t->row[r], t->scores + r * ATT_KEYS, t->out + r * p, key, keys, p);
    for (int64_t j = 0; j < keys; j += 4)
        for (int64_t h = 0; h < kv_heads; h++) {
            four_rows v = take_four(o, o->v, at + j * o->ldkv + h * o->dim, keys - j, p, t->staging);
            for (int64_t r = h * n; r < (h + 1) * n; r++)
                add_four(t->scores + r * ATT_KEYS + j, &v, p, t->out + r * p);
        }
}

void KERNEL(attention_rows)(const op_attention *o, int64_t seq, int64_t kv_head, int64_t kv_heads,
                            int64_t from, int64_t to, float *partial, float *scratch)
{
    rows_task t;
    rows_open(&t, o, seq, kv_head, kv_heads, scratch);
    int64_t at = attention_kv_offset(o, seq, kv_head);
    for (int64_t key = from; key < to; key += ATT_KEYS)
        rows_visit(&t, at, key, least(ATT_KEYS, to - key));
    for (int64_t r = 0; r < t.rows; r++) {
        float *out = partial + r * (o->dim + 2);
        out[0] = t.row[r].max, out[1] = t.row[r].sum;
        memcpy(out + 2, t.out + r * t.padded, (size_t)o->dim * sizeof(float));
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
