/* attention_backward.c - what one tile of queries gives back to the keys that it saw, and to itself.
 *
 * With P = exp(scale Q K^T - lse) computed again, delta = rowsum(dO * O), all transposed (keys by
 * queries, see attention_tile.h):
 *
 *     dP^T = V dO^T      dS^T = P^T * (dP^T - delta)
 *     dV += P^T dO       dK += dS^T (scale Q)       dQ^T = scale (K^T dS^T)
 *
 * Each element of dK and dV is one chain of fma over the heads of the group and their queries, each
 * of dQ one over the keys, both ascending. So it does not matter whether one task sweeps a whole
 * sequence (five products a tile) or several take a span of keys each and others dQ (seven): the
 * bits are the same, and the caller may choose by the number of threads.
 */
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/isa.h"

typedef struct backward_tile {
    tile_queries queries;
    int64_t dim, padded;
    float *q, *dout;       /* (ATT_QUERIES, dim); q holds scale * q */
    float *q_t, *dout_t;   /* the same, transposed */
    float *dq_t;           /* (dim, ATT_QUERIES), before the scale */
    float *k, *v;          /* (ATT_KEYS, dim) */
    float *p, *ds;         /* (ATT_KEYS, ATT_QUERIES) */
    float lse[ATT_QUERIES], delta[ATT_QUERIES];
} backward_tile;

static void backward_layout(backward_tile *t, int64_t dim, float *scratch)
{
    int64_t p = attention_padded(dim);
    t->dim = dim, t->padded = p;
    t->q = scratch;
    t->dout = t->q + p * ATT_QUERIES;
    t->q_t = t->dout + p * ATT_QUERIES;
    t->dout_t = t->q_t + p * ATT_QUERIES;
    t->dq_t = t->dout_t + p * ATT_QUERIES;
    t->k = t->dq_t + p * ATT_QUERIES;
    t->v = t->k + p * ATT_KEYS;
    t->p = t->v + p * ATT_KEYS;
    t->ds = t->p + ATT_KEYS * ATT_QUERIES;
}

/* delta = rowsum(dout * out), by the same chain as dP: where a query sees one key, out is v, and
 * dS comes out as an exact 0. Uses dq_t and the room of k and v (2 * ATT_KEYS >= ATT_QUERIES). */
static void backward_delta(backward_tile *t, const op_attention *o, int64_t at)
{
    int64_t p = t->padded, lanes = t->queries.vecs * VEC;
    load_rows(o->type, row_of(o->type, o->out, at), o->ldo, t->queries.count, t->dim, t->dq_t, p, lanes);
    float *out_t = t->k;
    transpose(t->dq_t, p, lanes, p, out_t, ATT_QUERIES);
    for (int64_t i = 0; i < lanes; i += VEC) {
        vec sum = {0};
        for (int64_t d = 0; d < t->dim; d++)
            sum = vec_fma(vec_load(out_t + d * ATT_QUERIES + i), vec_load(t->dout_t + d * ATT_QUERIES + i), sum);
        vec_store(t->delta + i, sum);
    }
}

/* Packs the queries and what came back to them. */
static void backward_open(backward_tile *t, const op_attention_backward *b, int64_t seq, int64_t head,
                          int64_t tile, float *scratch)
{
    const op_attention *o = &b->forward;
    backward_layout(t, o->dim, scratch);
    tile_queries_set(&t->queries, o, seq, head, tile);
    int64_t p = t->padded, n = t->queries.count, lanes = t->queries.vecs * VEC;
    int64_t row = seq * o->q_len + t->queries.start, column = head * o->dim;
    load_rows(o->type, row_of(o->type, o->q, row * o->ldq + column), o->ldq, n, o->dim, t->q, p, lanes);
    load_rows(o->type, row_of(o->type, b->dout, row * b->lddo + column), b->lddo, n, o->dim, t->dout, p,
              lanes);
    for (int64_t i = 0; i < lanes * p; i++)
        t->q[i] *= o->scale;
    transpose(t->q, p, lanes, p, t->q_t, ATT_QUERIES);
    transpose(t->dout, p, lanes, p, t->dout_t, ATT_QUERIES);
    backward_delta(t, o, row * o->ldo + column);
    const float *lse = o->lse + (seq * o->heads + head) * o->q_len + t->queries.start;
    for (int64_t i = 0; i < lanes; i++)
        t->lse[i] = i < n ? lse[i] : 0;
    memset(t->dq_t, 0, (size_t)(p * ATT_QUERIES) * sizeof(float));
}

/* One vector of lanes: p = exp(score - lse) and ds = p (dp - delta), exactly 0 where a key is not
 * seen. p comes in as scores, ds as dp; `keys` rows of stride ATT_QUERIES. */
static ATT_APART void probability_lanes(const backward_tile *t, int64_t lane, int64_t key, int64_t keys,
                              bool masked, float *p, float *ds)
{
    vec lse = vec_load(t->lse + lane), delta = vec_load(t->delta + lane);
    ivec lo = ivec_load(t->queries.lo + lane), hi = ivec_load(t->queries.hi + lane);
    for (int64_t j = 0; j < keys; j++, p += ATT_QUERIES, ds += ATT_QUERIES) {
        vec x = vec_exp(vec_load(p) - lse);
        vec y = x * (vec_load(ds) - delta);
        if (masked) {
            ivec at = ivec_all((int32_t)(key + j));
            x = vec_in_range(x, at, lo, hi, (vec){0});
            y = vec_in_range(y, at, lo, hi, (vec){0});
        }
        vec_store(p, x);
        vec_store(ds, y);
    }
}

/* c (keys, ATT_QUERIES) = a (keys, dim) . b (dim, ATT_QUERIES), the lanes of a panel, whole blocks of
 * rows: S^T from K and Q, dP^T from V and dO. */
static ATT_APART void panel_scores(const backward_tile *t, const panel_view *view, const float *a,
                                   const float *b, float *c)
{
    product(PRODUCT_SET, a, t->padded, 1, b + view->lane, ATT_QUERIES, c + view->lane, ATT_QUERIES,
            round_up(view->keys, BLOCK_ROWS), view->vecs, t->dim, NULL);
}

/* dQ^T += K^T dS^T: (dim, ATT_QUERIES) */
static ATT_APART void panel_add_dq(const backward_tile *t, const panel_view *view)
{
    product(PRODUCT_ADD, t->k, 1, t->padded, t->ds + view->lane, ATT_QUERIES, t->dq_t + view->lane,
            ATT_QUERIES, t->dim, view->vecs, view->keys, NULL);
}

/* sums (keys, dim) += a (keys, lanes) . b (lanes, dim) for the key rows [row, end), which the queries
 * [lane, count) of the tile see: dV from P^T and dO, dK from dS^T and Q. */
static ATT_APART void add_to_keys(const backward_tile *t, int64_t row, int64_t end, int64_t lane,
                                  const float *a, const float *b, float *sums)
{
    int64_t p = t->padded;
    product(PRODUCT_ADD, a + row * ATT_QUERIES + lane, ATT_QUERIES, 1, b + lane * p, p, sums + row * p, p,
            end - row, round_up(t->dim, VEC) / VEC, t->queries.count - lane, NULL);
}

/* P and dS of a panel, in whole blocks of rows. */
static void backward_panel(backward_tile *t, const panel_view *view, int64_t key)
{
    int64_t rows = round_up(view->keys, BLOCK_ROWS);
    panel_scores(t, view, t->k, t->q_t, t->p);
    panel_scores(t, view, t->v, t->dout_t, t->ds);
    for (int64_t v = 0; v < view->vecs; v++) {
        int64_t at = view->lane + v * VEC;
        probability_lanes(t, at, key, rows, view->masked, t->p + at, t->ds + at);
    }
}

/* All of the tile's queries against the keys [key, key + keys), whose K and V are in t. Positions
 * ascend with the lanes, so that a panel sees at least as many of the keys as the one before. */
static void backward_visit(backward_tile *t, int64_t key, int64_t keys, float *dk, float *dv,
                           bool want_dq)
{
    int64_t lanes = t->queries.vecs * VEC, rows_done = 0;
    for (int64_t lane = 0; lane < lanes;) {
        panel_view view = panel_see(&t->queries, lane, key, keys);
        int64_t rows = round_up(view.keys, BLOCK_ROWS);
        if (view.keys)
            backward_panel(t, &view, key);
        if (view.keys && want_dq)
            panel_add_dq(t, &view);
        for (int64_t r = rows; r < rows_done; r++) { /* out of the window by now */
            memset(t->p + r * ATT_QUERIES + lane, 0, (size_t)view.vecs * sizeof(vec));
            memset(t->ds + r * ATT_QUERIES + lane, 0, (size_t)view.vecs * sizeof(vec));
        }
        rows_done = most(rows_done, rows);
        lane += view.vecs * VEC;
    }
    rows_done = 0;
    for (int64_t lane = 0; dk && lane < lanes;) {
        panel_view view = panel_see(&t->queries, lane, key, keys);
        int64_t rows = round_up(view.keys, BLOCK_ROWS);
        if (rows > rows_done) {
            add_to_keys(t, rows_done, rows, lane, t->p, t->dout, dv);
            add_to_keys(t, rows_done, rows, lane, t->ds, t->q, dk);
            rows_done = rows;
        }
        lane += view.vecs * VEC;
    }
}

static void backward_store_dq(backward_tile *t, const op_attention_backward *b)
{
    const op_attention *o = &b->forward;
    const tile_queries *q = &t->queries;
    int64_t p = t->padded, lanes = q->vecs * VEC;
    transpose(t->dq_t, ATT_QUERIES, p, lanes, t->q, p);
    for (int64_t i = 0; i < lanes * p; i++)
        t->q[i] *= o->scale;
    int64_t at = (q->seq * o->q_len + q->start) * o->ldq + q->head * o->dim;
    KERNEL(attention_store)(o->type, t->q, q->count, o->dim, (void *)row_of(o->type, b->dq, at), o->ldq);
}

void KERNEL(attention_backward_sweep)(const op_attention_backward *b, int64_t seq, int64_t head,
                                      int64_t tile, int64_t from, int64_t to, float *dk, float *dv,
                                      bool want_dq, float *scratch)
{
    const op_attention *o = &b->forward;
    backward_tile t;
    tile_queries_set(&t.queries, o, seq, head, tile);
    int64_t first = most(from, t.queries.lo_min / ATT_KEYS * ATT_KEYS);
    int64_t end = least(to, t.queries.hi_max + 1);
    if (first >= end)
        return;
    backward_open(&t, b, seq, head, tile, scratch);
    int64_t base = attention_kv_offset(o, seq, head / (o->heads / o->kv_heads));
    for (int64_t key = first; key < end; key += ATT_KEYS) {
        int64_t keys = least(ATT_KEYS, o->kv_len - key), padded_keys = round_up(keys, BLOCK_ROWS);
        int64_t at = base + key * o->ldkv, row = (key - from) * t.padded;
        load_rows(o->type, row_of(o->type, o->k, at), o->ldkv, keys, o->dim, t.k, t.padded, padded_keys);
        load_rows(o->type, row_of(o->type, o->v, at), o->ldkv, keys, o->dim, t.v, t.padded, padded_keys);
        backward_visit(&t, key, keys, dk ? dk + row : NULL, dv ? dv + row : NULL, want_dq);
    }
    if (want_dq)
        backward_store_dq(&t, b);
}

void KERNEL(attention_store)(pt_dtype type, const float *sums, int64_t rows, int64_t dim, void *dst,
                             int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        store_row(type, sums + r * attention_padded(dim), dim, (void *)row_of(type, dst, r * ld));
}
