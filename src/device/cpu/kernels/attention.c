/* attention.c - forward: tiles of queries against all keys that they see.
 *
 *              queries (lanes) ->
 *            +--------+--------+-
 *   keys     | S^T    |        |      A panel is up to three vectors of queries. For each tile of keys:
 *    |       | panel  | panel  |      its scores (keys x lanes). Over all tiles: the maximum m and
 *    v       +--------+--------+-     sum l of each lane, and O^T (dim x lanes).
 *
 * A masked key has the score -inf, and exp() of it is exactly 0; m starts at the lowest finite number. So a tile of which a query sees
 * nothing does not change that query's bits, and a result does not depend on the other queries of its tile. (Exception: NaN and infinity in
 * V reach queries that do not see them, as 0 * inf, from keys that other lanes of their vector (AMX: panel) see, or that share an operand
 * or tile with these. A run stops at such values anyway.)
 */
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/isa.h"

#include <float.h>
#include <math.h>

/* Keys of a tile. With AMX, adding to O^T takes less time than reading and writing it, so tiles have more keys. */
#ifdef PT_TILES
enum { TILE_KEYS = 2 * ATT_KEYS };
#else
enum { TILE_KEYS = ATT_KEYS };
#endif

typedef struct forward_tile {
    tile_queries queries;
    packed_keys keys;              /* slots of k and v */
    rows_ahead ahead;
    int64_t padded;                /* row length of k and v */
    float scale, power_scale;      /* of the scores, after the cap, if any */
    score_cap cap;
    operand *q;                    /* (dim, ATT_QUERIES), rows of operands transposed */
    float *out;                    /* (dim, ATT_QUERIES), transposed */
    operand *k, *v;                /* (TILE_KEYS, dim): k as rows, v as columns for a left factor */
    operand *room;                 /* scratch for a tile of columns */
    float *scores;                 /* (TILE_KEYS, PANEL), transposed; then the probabilities, columns of operands */
    float max[ATT_QUERIES], sum[ATT_QUERIES];
} forward_tile;

static void forward_layout(forward_tile *t, const op_attention *o, float *scratch, int64_t floats)
{
    int64_t p = attention_padded(o->dim), tile = operands(TILE_KEYS) * p;
    t->padded = p, t->scale = score_scale(o), t->power_scale = power_scale(t->scale), t->cap = score_cap_of(o);
    t->q = (operand *)scratch;
    t->out = scratch + p * ATT_QUERIES;
    t->scores = t->out + p * ATT_QUERIES;
    t->room = (operand *)(t->scores + TILE_KEYS * PANEL);
    operand *spare = t->room + tile;
    float *rest = (float *)(spare + 2 * tile);
    keys_open(&t->keys, 2 * tile, spare, rest, floats - (rest - scratch));
}

/* Loads the keys [key, key + keys), which begin at element `at` of k and v. */
static void forward_keys(forward_tile *t, const op_attention *o, int64_t at, int64_t key, int64_t keys)
{
    bool packed;
    t->k = keys_slot(&t->keys, key / TILE_KEYS, &packed);
    t->v = t->k + operands(TILE_KEYS) * t->padded;
    if (packed)
        return;
    load_left_rows(o->type, row_of(o->type, o->k, at), o->ldkv, keys, o->dim, t->k, t->padded, round_up(keys, BLOCK_ROWS));
    load_factor(o->type, row_of(o->type, o->v, at), o->ldkv, keys, TILE_KEYS, o->dim, t->v, t->room, t->padded);
}

static void forward_open(forward_tile *t, const op_attention *o, int64_t seq, int64_t head, int64_t tile)
{
    int64_t p = t->padded, width = operands(p);
    tile_queries_set(&t->queries, o, seq, head, tile);
    int64_t row = seq * o->q_len + t->queries.start, lanes = t->queries.vecs * VEC;
    operand *rows = (operand *)t->out;
    load_rows(o->type, row_of(o->type, o->q, row * o->ldq + head * o->dim), o->ldq, t->queries.count,
              o->dim, rows, p, lanes);
    scale_queries(rows, lanes * width, o->scale);
    transpose_operands(rows, width, lanes, width, t->q, ATT_QUERIES);
    memset(t->out, 0, (size_t)(p * ATT_QUERIES) * sizeof(float));
    for (int i = 0; i < ATT_QUERIES; i++)
        t->max[i] = -FLT_MAX, t->sum[i] = 0;
}

/* One vector of lanes: scores (keys, stride PANEL) become exp(score - max), as columns of operands. Updates max and sum; *shrink is the
 * factor for the previous sums. */
static ATT_APART void softmax_lanes(const forward_tile *t, const panel_view *view, int64_t lane, int64_t key,
                                    float *scores, float *max, float *sum, float *shrink)
{
    const int64_t seen = least(view->keys, view->rows[(lane - view->lane) / VEC]);
    const float power = t->power_scale;
    vec before = vec_load(max), top = before;
    if (view->masked) {
        ivec lo = ivec_load(t->queries.lo + lane), hi = ivec_load(t->queries.hi + lane);
        for (int64_t j = 0; j < seen; j++) {
            vec x = vec_in_range(vec_load(scores + j * PANEL), ivec_all((int32_t)(key + j)), lo, hi,
                                 vec_all(-INFINITY));
            vec_store(scores + j * PANEL, x);
            top = vec_max(top, x);
        }
    } else {
        for (int64_t j = 0; j < seen; j++)
            top = vec_max(top, vec_load(scores + j * PANEL));
    }
    vec factor = power_of(before - top, power), total = vec_load(sum) * factor;
    for (int64_t j = 0; j < depth_of(seen) * OPERAND_ELEMENTS; j += COLUMN_ROWS) {
        vec p[COLUMN_ROWS];
        for (int i = 0; i < COLUMN_ROWS; i++) {
            p[i] = j + i < seen ? power_of(vec_load(scores + (j + i) * PANEL) - top, power) : (vec){0};
            total = total + p[i];
        }
        store_column_operands((operand *)scores + j / OPERAND_ELEMENTS * PANEL, PANEL, p);
    }
    vec_store(max, top);
    vec_store(sum, total);
    vec_store(shrink, factor);
}

/* S^T = K Q^T: (keys, PANEL) */
static ATT_APART void panel_scores(forward_tile *t, int64_t dim, const panel_view *view)
{
    const int64_t width = operands(t->padded);
    for (int64_t v = 0, row = 0; v < view->vecs; row = view->rows[v++])
        if (view->rows[v] > row)
            matmul(MATMUL_SET, t->k + row * width, width, 1, t->q + view->lane + v * VEC, ATT_QUERIES, t->scores + row * PANEL + v * VEC,
                    PANEL, view->rows[v] - row, view->vecs - v, depth_of(dim), NULL, &t->ahead);
}

/* O^T = O^T * shrink + V^T P^T: (dim, ATT_QUERIES) */
static ATT_APART void panel_add_values(forward_tile *t, int64_t dim, const panel_view *view,
                                       const float *shrink)
{
    const int64_t stride = factor_depth_stride(t->padded);
    for (int64_t v = 0, from = 0; v < view->vecs; v++) {
        int64_t end = depth_of(least(view->keys, view->rows[v]));
        if (end > from)
            matmul(from ? MATMUL_ADD : MATMUL_SCALED, t->v + from * stride, factor_row_stride(t->padded, TILE_KEYS), stride,
                    (const operand *)t->scores + from * PANEL + v * VEC, PANEL, t->out + view->lane + v * VEC, ATT_QUERIES, dim,
                    view->vecs - v, end - from, shrink + v * VEC, &t->ahead);
        from = end;
    }
}

/* Caps the scores of one vector of lanes, before masking. */
static ATT_APART void cap_lanes(const score_cap *cap, float *scores, int64_t rows)
{
    for (int64_t j = 0; j < rows; j++)
        vec_store(scores + j * PANEL, capped(cap, vec_load(scores + j * PANEL)));
}

static void forward_panel(forward_tile *t, int64_t dim, const panel_view *view, int64_t key)
{
    float shrink[PANEL];
    panel_scores(t, dim, view);
    for (int64_t v = 0; v < view->vecs && t->cap.cap != 0; v++)
        cap_lanes(&t->cap, t->scores + v * VEC, least(view->keys, view->rows[v]));
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
        vec_store(t->max + v * VEC, scale_scores(vec_load(t->max + v * VEC), t->scale));
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

/* Lists what to prefetch while a query tile is computed: the destination of its results, then the inputs of the next tile. */
static void list_next(forward_tile *t, const op_attention *o, const attention_task *task)
{
    const tile_queries *q = &t->queries;
    const next_tile n = task_next(task, q);
    const int64_t from = n.tile * ATT_QUERIES, at = (n.seq * o->q_len + from) * o->ldq + n.head * o->dim;
    const int64_t count = n.head < 0 ? 0 : least(ATT_QUERIES, o->q_len - from);
    if (n.head >= 0 && n.new_keys)
        keys_add_ahead(&t->ahead, o, attention_kv_offset(o, n.seq, n.head / (o->heads / o->kv_heads)), 0, TILE_KEYS);
    rows_add_ahead(&t->ahead, o->type, o->q, at, o->ldq, count, o->dim);
    rows_add_ahead(&t->ahead, o->type, o->out, (q->seq * o->q_len + q->start) * o->ldo + q->head * o->dim, o->ldo, q->count, o->dim);
}

/* Computes a tile of queries against all keys that it sees. */
static void forward_sweep(forward_tile *t, const op_attention *o, const attention_task *task)
{
    const tile_queries *q = &t->queries;
    int64_t base = attention_kv_offset(o, task->seq, task->head / (o->heads / o->kv_heads));
    list_next(t, o, task);
    for (int64_t key = q->lo_min / TILE_KEYS * TILE_KEYS, next = key + TILE_KEYS; key <= q->hi_max; key = next, next += TILE_KEYS) {
        int64_t keys = least(TILE_KEYS, o->kv_len - key), later = t->ahead.count;
        forward_keys(t, o, base + key * o->ldkv, key, keys);
        if (next <= q->hi_max && !keys_are_packed(&t->keys, next / TILE_KEYS))
            keys_add_ahead(&t->ahead, o, base, next, TILE_KEYS);
        for (int64_t lane = 0; lane < q->vecs * VEC;) {
            panel_view view = panel_see(q, lane, key, keys);
            if (view.keys)
                forward_panel(t, o->dim, &view, key);
            lane += view.vecs * VEC;
        }
        rows_prefetch_down_to(&t->ahead, later);
    }
    rows_prefetch_down_to(&t->ahead, 0);
}

void KERNEL(attention_tiles)(const op_attention *o, const attention_task *task, float *scratch, int64_t floats)
{
    forward_tile t;
    t.ahead.count = 0;
    tiles_open();
    forward_layout(&t, o, scratch, task_has_one_tile(task) ? 0 : floats);
    for (int64_t head = task->head; head < task->head + task->heads; head++)
        for (int64_t tile = task->from; tile < task->end; tile++) {
            forward_open(&t, o, task->seq, head, tile);
            forward_sweep(&t, o, task);
            forward_store(&t, o);
        }
    tiles_close();
}
