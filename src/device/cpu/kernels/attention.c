/* attention.c - forward: one tile of queries against all keys that it sees.
 *
 *              queries (lanes) ->
 *            +--------+--------+-
 *   keys     | S^T    |        |      A panel is up to three vectors of queries. For each tile of keys:
 *    |       | panel  | panel  |      its scores (keys x lanes). Over all tiles: the maximum m and
 *    v       +--------+--------+-     sum l of each lane, and O^T (dim x lanes).
 *
 * A key that is not seen has the score -inf, which exp() makes an exact 0; m starts at the lowest
 * finite number. So a tile in which a query sees nothing leaves this query's bits alone, and its
 * result does not depend on what else is in its tile. (Only NaN and infinity in V can reach a query
 * that does not see them, as 0 * inf, from keys that its vector sees (with AMX its panel) or that share an operand or a tile
 * with them; a run stops at them anyway.)
 */
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/isa.h"

#include <float.h>
#include <math.h>

/* Of a tile. By AMX a product that adds to O^T takes less time than reading and writing O^T: more keys at once. */
#ifdef PT_TILES
enum { TILE_KEYS = 2 * ATT_KEYS };
#else
enum { TILE_KEYS = ATT_KEYS };
#endif

typedef struct forward_tile {
    tile_queries queries;
    int64_t padded;                /* elements of a row of k and v */
    float scale;
    operand *q;                    /* (dim, ATT_QUERIES), rows of operands transposed */
    float *out;                    /* (dim, ATT_QUERIES), transposed */
    operand *k, *v;                /* (TILE_KEYS, dim): rows; columns, as a first factor */
    float *scores;                 /* (TILE_KEYS, PANEL), transposed; then the probabilities, columns of operands */
    float max[ATT_QUERIES], sum[ATT_QUERIES];
} forward_tile;

static void forward_open(forward_tile *t, const op_attention *o, int64_t seq, int64_t head,
                         int64_t tile, float *scratch)
{
    int64_t p = attention_padded(o->dim), width = operands(p);
    tile_queries_set(&t->queries, o, seq, head, tile);
    t->padded = p, t->scale = o->scale;
    t->q = (operand *)scratch;
    t->out = scratch + p * ATT_QUERIES;
    t->k = (operand *)(t->out + p * ATT_QUERIES);
    t->v = t->k + p * TILE_KEYS;
    t->scores = (float *)(t->v + p * TILE_KEYS);
    int64_t row = seq * o->q_len + t->queries.start, lanes = t->queries.vecs * VEC;
    operand *rows = (operand *)t->out;
    load_rows(o->type, row_of(o->type, o->q, row * o->ldq + head * o->dim), o->ldq, t->queries.count,
              o->dim, rows, p, lanes);
    scale_queries(rows, lanes * width, o->scale);
    transpose(rows, width, lanes, width, t->q, ATT_QUERIES);
    memset(t->out, 0, (size_t)(p * ATT_QUERIES) * sizeof(float));
    for (int i = 0; i < ATT_QUERIES; i++)
        t->max[i] = -FLT_MAX, t->sum[i] = 0;
}

/* One vector of lanes: scores (keys, stride PANEL) become exp(score - max), as columns of operands; max and
 * sum go on, and *shrink is what the sums so far are to be multiplied with. */
static ATT_APART void softmax_lanes(const forward_tile *t, const panel_view *view, int64_t lane, int64_t key,
                                    float *scores, float *max, float *sum, float *shrink)
{
    const int64_t seen = least(view->keys, view->rows[(lane - view->lane) / VEC]);
    const float scale = t->scale;
    vec before = vec_load(max), top = before;
    if (view->masked) {
        ivec lo = ivec_load(t->queries.lo + lane), hi = ivec_load(t->queries.hi + lane);
        for (int64_t j = 0; j < seen; j++) {
            vec x = vec_in_range(vec_load(scores + j * PANEL), ivec_all((int32_t)(key + j)), lo, hi,
                                 vec_all(-INFINITY));
            vec_store(scores + j * PANEL, x);
            top = vec_max(top, scale_scores(x, scale));
        }
    } else {
        for (int64_t j = 0; j < seen; j++)
            top = vec_max(top, scale_scores(vec_load(scores + j * PANEL), scale));
    }
    vec factor = vec_exp(before - top), total = vec_load(sum) * factor;
    for (int64_t j = 0; j < depth_of(seen) * OPERAND_ELEMENTS; j += OPERAND_ELEMENTS) {
        vec p[OPERAND_ELEMENTS];
        for (int i = 0; i < OPERAND_ELEMENTS; i++) {
            p[i] = j + i < seen ? probability_of(vec_load(scores + (j + i) * PANEL), scale, top) : (vec){0};
            total = total + p[i];
        }
        store_column_operands((operand *)scores + j / OPERAND_ELEMENTS * PANEL, p);
    }
    vec_store(max, top);
    vec_store(sum, total);
    vec_store(shrink, factor);
}

/* S^T = K Q^T: (keys, PANEL) */
static ATT_APART void panel_scores(const forward_tile *t, int64_t dim, const panel_view *view)
{
    const int64_t width = operands(t->padded);
    for (int64_t v = 0, row = 0; v < view->vecs; row = view->rows[v++])
        if (view->rows[v] > row)
            product(PRODUCT_SET, t->k + row * width, width, 1, t->q + view->lane + v * VEC, ATT_QUERIES, t->scores + row * PANEL + v * VEC,
                    PANEL, view->rows[v] - row, view->vecs - v, depth_of(dim), NULL);
}

/* O^T = O^T * shrink + V^T P^T: (dim, ATT_QUERIES) */
static ATT_APART void panel_add_values(const forward_tile *t, int64_t dim, const panel_view *view,
                                       const float *shrink)
{
    const int64_t stride = factor_depth_stride(t->padded);
    for (int64_t v = 0, from = 0; v < view->vecs; v++) {
        int64_t end = depth_of(least(view->keys, view->rows[v]));
        if (end > from)
            product(from ? PRODUCT_ADD : PRODUCT_SCALED, t->v + from * stride, factor_row_stride(t->padded, TILE_KEYS), stride,
                    (const operand *)t->scores + from * PANEL + v * VEC, PANEL, t->out + view->lane + v * VEC, ATT_QUERIES, dim,
                    view->vecs - v, end - from, shrink + v * VEC);
        from = end;
    }
}

static void forward_panel(forward_tile *t, int64_t dim, const panel_view *view, int64_t key)
{
    float shrink[PANEL];
    panel_scores(t, dim, view);
    for (int64_t v = 0; v < view->vecs; v++)
        if (view->rows[v])
            softmax_lanes(t, view, view->lane + v * VEC, key, t->scores + v * VEC,
                          t->max + view->lane + v * VEC, t->sum + view->lane + v * VEC, shrink + v * VEC);
    panel_add_values(t, dim, view, shrink);
}

static void forward_store(forward_tile *t, const op_attention *o)
{
    const tile_queries *q = &t->queries;
    int64_t p = t->padded, lanes = q->vecs * VEC, row = q->seq * o->q_len + q->start;
    for (int64_t v = 0; v < q->vecs; v++) {
        vec inverse = vec_all(1.0f) / vec_load(t->sum + v * VEC);
        for (int64_t d = 0; d < o->dim; d++) {
            float *at = t->out + d * ATT_QUERIES + v * VEC;
            vec_store(at, vec_load(at) * inverse);
        }
    }
    float *rows = (float *)t->q;
    transpose(t->out, ATT_QUERIES, p, lanes, rows, p);
    for (int64_t i = 0; i < q->count; i++)
        store_row(o->type, rows + i * p, o->dim,
                  (void *)row_of(o->type, o->out, (row + i) * o->ldo + q->head * o->dim));
    if (o->lse)
        for (int64_t i = 0; i < q->count; i++)
            o->lse[(q->seq * o->heads + q->head) * o->q_len + q->start + i] =
                t->max[i] + logf(t->sum[i]);
}

/* Beside a panel's work against the keys before `key`: asks for the keys from there on, or at the end for where the results go. */
static void forward_ahead(const forward_tile *t, const op_attention *o, int64_t base, int64_t key, share s)
{
    const tile_queries *q = &t->queries;
    if (key <= q->hi_max) {
        int64_t keys = least(TILE_KEYS, o->kv_len - key), at = base + key * o->ldkv;
        prefetch_rows(o->type, row_of(o->type, o->k, at), o->ldkv, keys, o->dim, s);
        prefetch_rows(o->type, row_of(o->type, o->v, at), o->ldkv, keys, o->dim, s);
    } else {
        int64_t at = (q->seq * o->q_len + q->start) * o->ldo + q->head * o->dim;
        prefetch_rows(o->type, row_of(o->type, o->out, at), o->ldo, q->count, o->dim, s);
    }
}

void KERNEL(attention_tile)(const op_attention *o, int64_t seq, int64_t head, int64_t tile,
                            float *scratch)
{
    forward_tile t;
    tiles_open();
    forward_open(&t, o, seq, head, tile, scratch);
    int64_t base = attention_kv_offset(o, seq, head / (o->heads / o->kv_heads));
    for (int64_t key = t.queries.lo_min / TILE_KEYS * TILE_KEYS; key <= t.queries.hi_max;
         key += TILE_KEYS) {
        int64_t keys = least(TILE_KEYS, o->kv_len - key), padded_keys = round_up(keys, BLOCK_ROWS);
        int64_t at = base + key * o->ldkv;
        load_rows(o->type, row_of(o->type, o->k, at), o->ldkv, keys, o->dim, t.k, t.padded, padded_keys);
        load_factor(o->type, row_of(o->type, o->v, at), o->ldkv, keys, TILE_KEYS, o->dim, t.v, t.v + operands(TILE_KEYS) * t.padded,
                    t.padded);
        for (int64_t lane = 0; lane < t.queries.vecs * VEC;) {
            panel_view view = panel_see(&t.queries, lane, key, keys);
            forward_ahead(&t, o, base, key + TILE_KEYS, (share){lane / VEC, lane / VEC + view.vecs, t.queries.vecs});
            if (view.keys)
                forward_panel(&t, o->dim, &view, key);
            lane += view.vecs * VEC;
        }
    }
    forward_store(&t, o);
    tiles_close();
}
