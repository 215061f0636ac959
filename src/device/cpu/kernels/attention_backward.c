/* attention_backward.c - the gradients of tiles of queries and of the keys that they see.
 *
 * With P = exp(scale Q K^T - lse) recomputed and delta = rowsum(dO * O), all transposed (keys by queries, see attention_tile.h):
 *
 *     dP^T = V dO^T      dS^T = P^T * (dP^T - delta)
 *     dV += P^T dO       dK += dS^T (scale Q)       dQ^T = scale (K^T dS^T)
 *
 * The copies that multiply pairs of bf16 (attention_operand.h) scale dS instead of Q and dQ. If scores are capped, P comes from the capped
 * scores, and dS is multiplied by the derivative of the cap, 1 - tanh^2.
 *
 * Each element of dK and dV is one chain of fma over the heads of the group and their queries, each element of dQ one over the keys, both
 * in ascending order (with AMX, of blocks of 32). So the bits are the same whether one task does a whole sequence (five matmuls per tile),
 * or some tasks do spans of keys and others dQ (seven); the caller can choose by the number of threads.
 */
#include "device/cpu/kernels/attention_tile.h"
#include "device/cpu/kernels/isa.h"

typedef struct backward_tile {
    tile_queries queries;
    int64_t dim, padded;
    float scale;           /* for dS, if not in the operands */
    score_cap cap;
    operand *q, *dout;     /* (ATT_QUERIES, dim), columns */
    operand *q_t, *dout_t; /* (dim, ATT_QUERIES), rows transposed */
    float *dq_t;           /* (dim, ATT_QUERIES) */
    packed_keys keys;      /* slots of k, v, and of k_factor unless that is k */
    rows_ahead ahead;
    operand *k, *v;        /* (ATT_KEYS, dim), rows */
    operand *k_factor;     /* k's columns for a left factor; k itself where rows and columns are the same */
    operand *spare;        /* the spare slot, and scratch for a tile of columns */
    float *p, *ds;         /* (ATT_KEYS, ATT_QUERIES), the probabilities then rows of operands */
    operand ds_columns[OPERAND_ELEMENTS > 1 ? ATT_KEYS / OPERAND_ELEMENTS * PANEL : 1]; /* of a panel, where rows and columns differ */
    float lse[ATT_QUERIES], delta[ATT_QUERIES];
} backward_tile;

enum { SLOT_FORMS = OPERAND_ELEMENTS > 1 ? 3 : 2 };

static void backward_layout(backward_tile *t, int64_t dim, float *scratch, int64_t floats)
{
    int64_t p = attention_padded(dim);
    t->dim = dim, t->padded = p;
    t->q = (operand *)scratch;
    t->dout = t->q + p * ATT_QUERIES;
    t->q_t = t->dout + p * ATT_QUERIES;
    t->dout_t = t->q_t + p * ATT_QUERIES;
    t->dq_t = (float *)(t->dout_t + p * ATT_QUERIES);
    t->spare = (operand *)(t->dq_t + p * ATT_QUERIES);
    t->p = (float *)(t->spare + 2 * p * ATT_KEYS);
    t->ds = t->p + ATT_KEYS * ATT_QUERIES;
    float *rest = t->ds + ATT_KEYS * ATT_QUERIES;
    keys_open(&t->keys, SLOT_FORMS * operands(ATT_KEYS) * p, t->spare, rest, floats - (rest - scratch));
}

_Static_assert((int)ATT_QUERIES <= 2 * (int)ATT_KEYS * (int)OPERAND_ELEMENTS, "backward_delta transposes out in the spare slot");

/* delta = rowsum(dout * out), by the same chain as dP (except with AMX): if a query sees only one key, out is v, and dS is exactly 0. Uses
 * dq_t and the spare slot. */
static void backward_delta(backward_tile *t, const op_attention *o, int64_t at)
{
    int64_t width = operands(t->padded), lanes = t->queries.vecs * VEC;
    operand *rows = (operand *)t->dq_t, *out_t = t->spare;
    load_rows(o->type, row_of(o->type, o->out, at), o->ldo, t->queries.count, t->dim, rows, t->padded, lanes);
    transpose_operands(rows, width, lanes, width, out_t, ATT_QUERIES);
    for (int64_t i = 0; i < lanes; i += VEC) {
        vec sum = {0};
        for (int64_t d = 0; d < operands(t->dim); d += TOGETHER)
            sum = operands_fma(out_t + d * ATT_QUERIES + i, t->dout_t + d * ATT_QUERIES + i, ATT_QUERIES, sum);
        vec_store(t->delta + i, sum);
    }
}

/* Makes both forms of the tile's rows of q or dout, multiplied by `scale` if operands are fp32. Uses dq_t. */
static void backward_load(backward_tile *t, pt_dtype type, const void *src, int64_t ld, float scale, operand *columns,
                          operand *transposed)
{
    int64_t p = t->padded, width = operands(p), lanes = t->queries.vecs * VEC;
    operand *rows = OPERAND_ELEMENTS > 1 ? (operand *)t->dq_t : columns;
    load_rows(type, src, ld, t->queries.count, t->dim, rows, p, lanes);
    scale_queries(rows, lanes * width, scale);
    transpose_operands(rows, width, lanes, width, transposed, ATT_QUERIES);
    if (OPERAND_ELEMENTS > 1)
        load_columns(type, src, ld, t->queries.count, t->dim, columns, p, lanes);
}

/* Packs the queries, dout and delta. */
static void backward_open(backward_tile *t, const op_attention_backward *b)
{
    const op_attention *o = &b->forward;
    int64_t seq = t->queries.seq, head = t->queries.head;
    t->scale = o->scale, t->cap = score_cap_of(o);
    int64_t n = t->queries.count, lanes = t->queries.vecs * VEC;
    int64_t row = seq * o->q_len + t->queries.start, column = head * o->dim;
    backward_load(t, o->type, row_of(o->type, o->q, row * o->ldq + column), o->ldq, o->scale, t->q, t->q_t);
    backward_load(t, o->type, row_of(o->type, b->dout, row * b->lddo + column), b->lddo, 1, t->dout, t->dout_t);
    backward_delta(t, o, row * o->ldo + column);
    const float *lse = o->lse + (seq * o->heads + head) * o->q_len + t->queries.start;
    for (int64_t i = 0; i < lanes; i++)
        t->lse[i] = i < n ? lse[i] : 0;
    memset(t->dq_t, 0, (size_t)(t->padded * ATT_QUERIES) * sizeof(float));
}

/* Values per query of one vector of lanes. */
typedef struct lane_values { vec shift, delta; ivec lo, hi; float scale, power_scale; score_cap cap; } lane_values;

/* Turns a key's scores and dp into probabilities and gradients of the scores, exactly 0 where the key is masked. */
ATT_INLINE void probability(const lane_values *q, bool capped, int64_t key, bool masked, vec *p, vec *ds)
{
    vec score = *p, tanh = {0};
    if (capped) {
        tanh = vec_tanh(score * q->cap.times);
        score = tanh * q->cap.cap;
    }
    vec x = probability_of(score, q->power_scale, q->shift);
    vec y = scale_scores(x * (*ds - q->delta), q->scale);
    if (capped)
        y = y * vec_fma(-tanh, tanh, vec_all(1.0f));
    if (masked) {
        ivec at = ivec_all((int32_t)key);
        x = vec_in_range(x, at, q->lo, q->hi, (vec){0});
        y = vec_in_range(y, at, q->lo, q->hi, (vec){0});
    }
    *p = x, *ds = y;
}

/* One vector of lanes: `keys` rows of scores and dp become p = exp(score - lse) and ds = p (dp - delta), as operands. They replace the rows
 * just read, because a row of operands is never longer. */
ATT_INLINE void probability_lanes_of(bool capped, backward_tile *t, const panel_view *view, int64_t lane, int64_t key, int64_t keys)
{
    const float scale = capped ? 1 : t->scale;
    const lane_values q = {vec_load(t->lse + lane) * power_scale(1), vec_load(t->delta + lane), ivec_load(t->queries.lo + lane),
                           ivec_load(t->queries.hi + lane), t->scale, power_scale(scale), t->cap};
    for (int64_t j = 0; j < keys; j += COLUMN_ROWS) {
        float *p_rows = t->p + j * ATT_QUERIES, *ds_rows = t->ds + j * ATT_QUERIES;
        vec p[COLUMN_ROWS], ds[COLUMN_ROWS];
        for (int i = 0; i < COLUMN_ROWS; i++) {
            p[i] = vec_load(p_rows + i * ATT_QUERIES + lane), ds[i] = vec_load(ds_rows + i * ATT_QUERIES + lane);
            probability(&q, capped, key + j + i, view->masked, &p[i], &ds[i]);
        }
        for (int i = 0; i < COLUMN_ROWS; i += TOGETHER) {
            store_row_operands((operand *)(p_rows + i * ATT_QUERIES) + row_offset(operands(lane)), p + i);
            store_row_operands((operand *)(ds_rows + i * ATT_QUERIES) + row_offset(operands(lane)), ds + i);
        }
        if (OPERAND_ELEMENTS > 1)
            store_column_operands(t->ds_columns + j / OPERAND_ELEMENTS * PANEL + lane - view->lane, PANEL, ds);
    }
}

static ATT_APART void probability_lanes(backward_tile *t, const panel_view *view, int64_t lane, int64_t key, int64_t keys)
{
    probability_lanes_of(false, t, view, lane, key, keys);
}

static ATT_APART void probability_lanes_capped(backward_tile *t, const panel_view *view, int64_t lane, int64_t key, int64_t keys)
{
    probability_lanes_of(true, t, view, lane, key, keys);
}

/* c (keys, ATT_QUERIES) = a (keys, dim) . b (dim, ATT_QUERIES), for the lanes of a panel and the rows that each vector sees: S^T from K and
 * Q, dP^T from V and dO. */
static ATT_APART void panel_scores(backward_tile *t, const panel_view *view, const operand *a,
                                   const operand *b, float *c)
{
    const int64_t width = operands(t->padded);
    for (int64_t v = 0, row = 0; v < view->vecs; row = view->rows[v++]) {
        int64_t lane = view->lane + v * VEC;
        if (view->rows[v] > row)
            matmul(MATMUL_SET, a + row * width, width, 1, b + lane, ATT_QUERIES, c + row * ATT_QUERIES + lane, ATT_QUERIES,
                    view->rows[v] - row, view->vecs - v, depth_of(t->dim), NULL, &t->ahead);
    }
}

/* dQ^T += K^T dS^T: (dim, ATT_QUERIES). Operands past the visible keys have gradients of 0. */
static ATT_APART void panel_add_dq(backward_tile *t, const panel_view *view)
{
    const operand *ds = OPERAND_ELEMENTS > 1 ? t->ds_columns : (const operand *)t->ds + view->lane;
    const int64_t stride = factor_depth_stride(t->padded), ldb = OPERAND_ELEMENTS > 1 ? PANEL : ATT_QUERIES;
    for (int64_t v = 0, from = 0; v < view->vecs; v++) {
        int64_t end = depth_of(least(view->keys, view->rows[v]));
        if (end > from)
            matmul(MATMUL_ADD, t->k_factor + from * stride, factor_row_stride(t->padded, ATT_KEYS), stride,
                    ds + from * ldb + v * VEC, ldb, t->dq_t + view->lane + v * VEC, ATT_QUERIES, t->dim, view->vecs - v,
                    end - from, NULL, &t->ahead);
        from = end;
    }
}

/* sums (keys, dim) += a (keys, lanes) . b (lanes, dim), for the key rows [row, end) that the queries [lane, count) of the tile see: dV from
 * P^T and dO, dK from dS^T and Q. */
static ATT_APART void add_to_keys(backward_tile *t, int64_t row, int64_t end, int64_t lane,
                                  const float *a, const operand *b, float *sums)
{
    int64_t p = t->padded, from = operands(lane);
    matmul(MATMUL_ADD, (const operand *)(a + row * ATT_QUERIES) + row_offset(from), ATT_QUERIES, 1, b + from * p, p, sums + row * p, p,
            end - row, round_up(t->dim, VEC) / VEC, depth_of(t->queries.count - lane), NULL, &t->ahead);
}

/* Computes P and dS of a panel, in whole blocks of rows. */
static void backward_panel(backward_tile *t, const panel_view *view, int64_t key)
{
    panel_scores(t, view, t->k, t->q_t, t->p);
    panel_scores(t, view, t->v, t->dout_t, t->ds);
    for (int64_t v = 0; v < view->vecs; v++)
        if (t->cap.cap != 0)
            probability_lanes_capped(t, view, view->lane + v * VEC, key, view->rows[v]);
        else
            probability_lanes(t, view, view->lane + v * VEC, key, view->rows[v]);
}

/* Clears a panel's operands in TOGETHER rows of keys that it does not see. */
static void clear_rows(float *rows, const panel_view *view)
{
    memset((operand *)rows + row_offset(operands(view->lane)), 0, (size_t)row_offset(operands(view->vecs * VEC)) * sizeof(operand));
}

/* Computes the gradients of all queries of the tile with the keys [key, key + keys), whose K and V are in t. Positions ascend with the
 * lanes, so a panel sees at least as many of the keys as the previous one. */
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
        for (int64_t r = rows; r < rows_done; r += TOGETHER) { /* no longer in the window */
            clear_rows(t->p + r * ATT_QUERIES, &view);
            clear_rows(t->ds + r * ATT_QUERIES, &view);
        }
        rows_done = most(rows_done, rows);
        lane += view.vecs * VEC;
    }
    rows_done = 0;
    for (int64_t lane = 0; dk && lane < lanes;) {
        panel_view view = panel_see(&t->queries, lane, key, keys);
        for (int64_t v = 0; v < view.vecs; v++, lane += VEC)
            if (view.rows[v] > rows_done) {
                add_to_keys(t, rows_done, view.rows[v], lane, t->p, t->dout, dv);
                add_to_keys(t, rows_done, view.rows[v], lane, t->ds, t->q, dk);
                rows_done = view.rows[v];
            }
    }
}

static void backward_store_dq(backward_tile *t, const op_attention_backward *b)
{
    const op_attention *o = &b->forward;
    const tile_queries *q = &t->queries;
    int64_t p = t->padded, lanes = q->vecs * VEC;
    float *rows = (float *)t->q;
    transpose(t->dq_t, ATT_QUERIES, p, lanes, rows, p);
    for (int64_t i = 0; i < lanes * p && OPERAND_ELEMENTS == 1; i++)
        rows[i] *= o->scale;
    int64_t at = (q->seq * o->q_len + q->start) * o->ldq + q->head * o->dim;
    KERNEL(attention_store)(o->type, rows, q->count, o->dim, (void *)row_of(o->type, b->dq, at), o->ldq);
}

/* Loads a tile of the task's keys, `keys` keys from element `at` of k and v on. */
static void backward_keys(backward_tile *t, const op_attention *o, int64_t at, int64_t tile_of_keys, int64_t keys, bool want_dq)
{
    const int64_t tile = operands(ATT_KEYS) * t->padded, padded_keys = round_up(keys, BLOCK_ROWS);
    bool packed;
    t->k = keys_slot(&t->keys, tile_of_keys, &packed);
    t->v = t->k + tile;
    t->k_factor = OPERAND_ELEMENTS > 1 ? t->v + tile : t->k;
    if (packed)
        return;
    load_left_rows(o->type, row_of(o->type, o->k, at), o->ldkv, keys, o->dim, t->k, t->padded, padded_keys);
    if (OPERAND_ELEMENTS > 1 && want_dq)
        load_factor(o->type, row_of(o->type, o->k, at), o->ldkv, keys, ATT_KEYS, o->dim, t->k_factor, t->spare + SLOT_FORMS * tile,
                    t->padded);
    load_left_rows(o->type, row_of(o->type, o->v, at), o->ldkv, keys, o->dim, t->v, t->padded, padded_keys);
}

/* Lists what to prefetch while a query tile is computed: the destination of its dq, then the inputs of the next tile. */
static void list_next(backward_tile *t, const op_attention_backward *b, const attention_backward_task *task)
{
    const op_attention *o = &b->forward;
    const tile_queries *q = &t->queries;
    const next_tile n = task_next(&task->queries, q);
    const int64_t from = n.tile * ATT_QUERIES, row = n.seq * o->q_len + from, column = n.head * o->dim;
    const int64_t count = n.head < 0 ? 0 : least(ATT_QUERIES, o->q_len - from);
    if (n.head >= 0 && n.new_keys)
        keys_add_ahead(&t->ahead, o, attention_kv_offset(o, n.seq, n.head / (o->heads / o->kv_heads)), 0, ATT_KEYS);
    rows_add_ahead(&t->ahead, o->type, o->out, row * o->ldo + column, o->ldo, count, o->dim);
    rows_add_ahead(&t->ahead, o->type, b->dout, row * b->lddo + column, b->lddo, count, o->dim);
    rows_add_ahead(&t->ahead, o->type, o->q, row * o->ldq + column, o->ldq, count, o->dim);
    if (task->want_dq)
        rows_add_ahead(&t->ahead, o->type, b->dq, (q->seq * o->q_len + q->start) * o->ldq + q->head * o->dim, o->ldq, q->count, o->dim);
}

/* Computes the gradients of a query tile with the task's keys. */
static void backward_sweep(backward_tile *t, const op_attention_backward *b, const attention_backward_task *task)
{
    const op_attention *o = &b->forward;
    int64_t base = attention_kv_offset(o, task->queries.seq, task->queries.head / (o->heads / o->kv_heads));
    int64_t first = most(task->from, t->queries.lo_min / ATT_KEYS * ATT_KEYS), end = least(task->to, t->queries.hi_max + 1);
    if (first >= end)
        return;
    backward_open(t, b);
    list_next(t, b, task);
    for (int64_t key = first, next = key + ATT_KEYS; key < end; key = next, next += ATT_KEYS) {
        int64_t keys = least(ATT_KEYS, o->kv_len - key), row = (key - task->from) * t->padded, later = t->ahead.count;
        backward_keys(t, o, base + key * o->ldkv, (key - task->from) / ATT_KEYS, keys, task->want_dq);
        if (next < end && !keys_are_packed(&t->keys, (next - task->from) / ATT_KEYS))
            keys_add_ahead(&t->ahead, o, base, next, ATT_KEYS);
        backward_visit(t, key, keys, task->dk ? task->dk + row : NULL, task->dv ? task->dv + row : NULL, task->want_dq);
        rows_prefetch_down_to(&t->ahead, later);
    }
    rows_prefetch_down_to(&t->ahead, 0);
    if (task->want_dq)
        backward_store_dq(t, b);
}

void KERNEL(attention_backward_tiles)(const op_attention_backward *b, const attention_backward_task *task, float *scratch, int64_t floats)
{
    const attention_task *a = &task->queries;
    backward_tile t;
    t.ahead.count = 0;
    tiles_open();
    backward_layout(&t, b->forward.dim, scratch, task_has_one_tile(a) ? 0 : floats);
    for (int64_t head = a->head; head < a->head + a->heads; head++)
        for (int64_t tile = a->from; tile < a->end; tile++) {
            tile_queries_set(&t.queries, &b->forward, a->seq, head, tile);
            backward_sweep(&t, b, task);
        }
    tiles_close();
}

void KERNEL(attention_store)(pt_dtype type, const float *sums, int64_t rows, int64_t dim, void *dst,
                             int64_t ld)
{
    for (int64_t r = 0; r < rows; r++)
        store_row(type, sums + r * attention_padded(dim), dim, (void *)row_of(type, dst, r * ld));
}
