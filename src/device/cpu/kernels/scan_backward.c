/* scan_backward.c - the gradients of a scan, segment by segment from the last one. A head's states at the starts of a segment's chunks, and
 * its u, are computed again from the state at the segment's start; then its chunks are taken from the last one. With the names of
 * scan_chunk.h, z the gradient of the right side of u's equations, and G that of the state after the chunk:
 *
 *     z = (1 - less^T)^-1 (p^T dout + (decay[n - 1] k) . G)
 *     w = since dout . S^T      y = -beta since z . S^T      e = decay[n - 1] u . G^T
 *     dp = dout . u^T           dless = z . u^T
 *     dq = (dp decay) . k + w
 *     dk = (m + m^T) . k + (dp decay)^T . q + y + e          m = -beta decay dless
 *     dv = beta z + skip dout
 *     dbeta = z v + (y k) / beta - the rows' sums of dless decay (k . k^T)
 *     G before = since[n - 1] G + (since q)^T . dout - (beta since k)^T . z
 *
 * The gradient of g[i] is the sum over all rows j >= i of that of log since[j], where element (i, j) of x = dp p + dless less counts for
 * row i and against row j. */
#include "device/cpu/kernels/scan_chunk.h"

typedef struct work {
    const op_scan_backward *b;
    scan_part part;
    int64_t most;                  /* chunks of a segment */
    float *q, *k, *qk, *kk;        /* of the segment's chunks */
    float *dq, *dk;
    float *states, *u;             /* of the head's chunks */
    float *gradient[SCAN_HEADS];   /* G of each head */
    float *dout_z;                 /* dout (n, dim), then z (n, dim) */
    float *w_y;                    /* w (n, key_dim), then y (n, key_dim) */
    float *keys;                   /* (n, key_dim), of any use */
    float *since_q, *beta_k;       /* (n, key_dim) */
    float *products;               /* dp, then dless; dp becomes dp decay */
    float *both;                   /* m + m^T */
    float *dgamma, *dbeta, *column, *end; /* (n) */
    float *room;                   /* two rows of q, k or v */
    chunk c;
} work;

/* What work_of() takes, at most. */
#define WORK_FLOATS(chunks, keys, values)                                                                                      \
    ((chunks) * (4 * CHUNK * (keys) + 2 * SQUARE + (keys) * (values) + CHUNK * (values)) + SCAN_HEADS * (keys) * (values) +    \
     2 * CHUNK * (values) + 5 * CHUNK * (keys) + 6 * SQUARE + 16 * CHUNK)
_Static_assert(NARROW_OWN_BYTES + 4 * WORK_FLOATS(SCAN_SEGMENT, 128, 128) <= POOL_SCRATCH_BYTES &&
                   NARROW_OWN_BYTES + 4 * WORK_FLOATS(2, SCAN_DIM_MOST, SCAN_DIM_MOST) <= POOL_SCRATCH_BYTES,
               "a task must fit a thread's scratch space");

static work work_of(const op_scan_backward *b, scan_part part, void *scratch)
{
    const op_scan *o = &b->forward;
    const int64_t chunks = (o->len + CHUNK - 1) / CHUNK, segment = scan_segment(o->key_dim, o->dim), keys = CHUNK * o->key_dim;
    float *free = scratch_begin(scratch);
    work w = {.b = b, .part = part, .most = chunks < segment ? chunks : segment};
    w.q = take(&free, w.most * keys), w.k = take(&free, w.most * keys);
    w.dq = take(&free, w.most * keys), w.dk = take(&free, w.most * keys);
    w.qk = take(&free, w.most * SQUARE), w.kk = take(&free, w.most * SQUARE);
    w.states = take(&free, w.most * o->key_dim * o->dim), w.u = take(&free, w.most * CHUNK * o->dim);
    for (int64_t h = 0; h < part.heads; h++)
        w.gradient[h] = take(&free, o->key_dim * o->dim);
    w.dout_z = take(&free, 2 * CHUNK * o->dim), w.w_y = take(&free, 2 * keys);
    w.keys = take(&free, keys), w.since_q = take(&free, keys), w.beta_k = take(&free, keys);
    w.products = take(&free, 2 * SQUARE), w.both = take(&free, SQUARE);
    w.dgamma = take(&free, CHUNK), w.dbeta = take(&free, CHUNK), w.column = take(&free, CHUNK), w.end = take(&free, CHUNK);
    w.room = take(&free, 2 * SCAN_DIM_MOST);
    w.c = (chunk){.o = o, .seq = part.seq, .decay = take(&free, SQUARE), .p = take(&free, SQUARE), .less = take(&free, SQUARE),
                  .a = take(&free, CHUNK), .since = take(&free, CHUNK), .beta = take(&free, CHUNK), .narrow = scratch};
    return w;
}

/* The i-th chunk from row0 on. */
static void chunk_at(work *w, int64_t row0, int64_t i)
{
    const op_scan *o = w->c.o;
    w->c.row0 = row0 + i * CHUNK;
    w->c.n = o->len - w->c.row0 < CHUNK ? o->len - w->c.row0 : CHUNK;
    w->c.q = w->q + i * CHUNK * o->key_dim, w->c.k = w->k + i * CHUNK * o->key_dim;
    w->c.qk = w->qk + i * SQUARE, w->c.kk = w->kk + i * SQUARE;
}

/* The states at the starts of the segment's chunks and u. */
static void head_again(work *w, int64_t head, int64_t row0, int64_t chunks)
{
    const op_scan *o = w->c.o;
    const int64_t of_state = o->key_dim * o->dim, segments = scan_segments(o->len, o->key_dim, o->dim), at = row0 / (CHUNK * w->most) - 1;
    if (row0 > 0)
        memcpy(w->states, o->states + ((w->part.seq * (segments - 1) + at) * o->heads + head) * of_state, (size_t)of_state * sizeof(float));
    for (int64_t i = 0; i < chunks; i++) {
        const float *state = row0 + i > 0 ? w->states + i * of_state : NULL;
        float *u = w->u + i * CHUNK * o->dim;
        chunk_at(w, row0, i);
        chunk_gates(&w->c, head);
        chunk_squares(&w->c);
        chunk_u(&w->c, head, state, w->keys, u);
        if (i + 1 < chunks)
            chunk_state(&w->c, state, u, w->keys, w->states + (i + 1) * of_state);
    }
}

/* From dp and dless: dp decay in place, m + m^T, and what x and dless add to the gradients of g and beta. */
static void square_gradients(work *w)
{
    const chunk *c = &w->c;
    const bool delta = c->o->kind == SCAN_DELTA;
    float *dp = w->products, *dless = dp + c->n * CHUNK;
    memset(w->column, 0, CHUNK * sizeof(float));
    for (int64_t i = 0; i < c->n; i++) {
        parts row = {0}, by_beta = {0};
        for (int64_t j = 0; j <= i; j += VEC_LANES) {
            const int64_t at = i * CHUNK + j, part = j / VEC_LANES % PART_VECS;
            const vi column = (vi)VEC_INDEX + (int32_t)j;
            const vf decay = vec_keep(column <= (int32_t)i, f32_load(c->decay + at, VEC_LANES));
            const vf d = vec_keep(column <= (int32_t)i, f32_load(dp + at, VEC_LANES));
            vf x = d * f32_load(c->p + at, VEC_LANES);
            if (delta) {
                const vf z = vec_keep(column < (int32_t)i, f32_load(dless + at, VEC_LANES) * decay);
                const vf kk = vec_keep(column < (int32_t)i, f32_load(c->kk + at, VEC_LANES));
                x = vec_fma(z * kk, vec_set(-c->beta[i]), x);
                by_beta.of[part] = vec_fma(z, kk, by_beta.of[part]);
                f32_store(dless + at, z * -c->beta[i], VEC_LANES);
            }
            f32_store(dp + at, d * decay, VEC_LANES);
            f32_store(w->column + j, f32_load(w->column + j, VEC_LANES) + x, VEC_LANES);
            row.of[part] = row.of[part] + x;
        }
        w->dgamma[i] = parts_total(row);
        w->dbeta[i] = -parts_total(by_beta);
        for (int64_t j = 0; j < i && delta; j++)
            w->both[i * CHUNK + j] = w->both[j * CHUNK + i] = dless[i * CHUNK + j];
        w->both[i * CHUNK + i] = 0;
        for (int64_t j = i + 1; j < c->n; j++)
            dp[i * CHUNK + j] = 0;
    }
    for (int64_t i = 0; i < c->n; i++)
        w->dgamma[i] -= w->column[i];
}

/* z, from dout. gradient NULL: 0. */
static void find_z(work *w, int64_t head, const float *gradient)
{
    const chunk *c = &w->c;
    const op_scan *o = c->o;
    float *z = w->dout_z + c->n * o->dim;
    for (int64_t i = 0; i < c->n; i++)
        load_row(o->type, w->b->dout, row_of(c, i) * w->b->lddo + head * o->dim, 1, o->dim, w->dout_z + i * o->dim);
    product(c, MATMUL_TN, c->n, o->dim, c->n, c->p, CHUNK, w->dout_z, o->dim, z, o->dim, false);
    if (gradient) {
        for (int64_t i = 0; i < c->n; i++)
            scale_row(c->k + i * o->key_dim, until_end(c, i), false, o->key_dim, w->keys + i * o->key_dim);
        product(c, MATMUL_NN, c->n, o->dim, o->key_dim, w->keys, o->key_dim, gradient, o->dim, z, o->dim, true);
    }
    if (o->kind == SCAN_DELTA)
        solve_transposed(c, z);
}

/* Adds w, y and e to dq and dk, and what they add to the gradients of g and beta. */
static void add_state_terms(work *w, const float *state, const float *u, const float *gradient, float *dq, float *dk)
{
    const chunk *c = &w->c;
    const op_scan *o = c->o;
    const int64_t n = c->n, key_dim = o->key_dim, rows = o->kind == SCAN_DELTA ? 2 * n : n;
    if (state)
        product(c, MATMUL_NT, rows, key_dim, o->dim, w->dout_z, o->dim, state, o->dim, w->w_y, key_dim, false);
    if (gradient)
        product(c, MATMUL_NT, n, key_dim, o->dim, u, o->dim, gradient, o->dim, w->keys, key_dim, false);
    for (int64_t i = 0; i < n; i++) {
        const float *q = c->q + i * key_dim, *k = c->k + i * key_dim, *out = w->w_y + i * key_dim, *z = out + n * key_dim;
        w->end[i] = 0;
        if (state) {
            scale_row(out, c->since[i], true, key_dim, dq + i * key_dim);
            w->dgamma[i] += c->since[i] * dot(q, out, key_dim);
        }
        if (state && o->kind == SCAN_DELTA) {
            const float y = -c->since[i] * dot(k, z, key_dim);
            scale_row(z, -c->beta[i] * c->since[i], true, key_dim, dk + i * key_dim);
            w->dbeta[i] += y;
            w->dgamma[i] += c->beta[i] * y;
        }
        if (gradient) {
            scale_row(w->keys + i * key_dim, until_end(c, i), true, key_dim, dk + i * key_dim);
            w->end[i] = until_end(c, i) * dot(k, w->keys + i * key_dim, key_dim);
            w->dgamma[i] -= w->end[i];
        }
    }
}

/* dv, dbeta, dg of a head's rows; adds to *dskip. */
static void store_head(work *w, int64_t head, float *dskip)
{
    const chunk *c = &w->c;
    const op_scan *o = c->o;
    float *v = w->room, sum = 0;
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t row = row_of(c, i);
        float *dout = w->dout_z + i * o->dim, *z = dout + c->n * o->dim;
        load_row(o->type, o->v, row * o->ld + head * o->dim, 1, o->dim, v);
        w->b->dbeta[row * o->heads + head] = w->dbeta[i] + dot(z, v, o->dim);
        scale_row(z, c->beta[i], false, o->dim, z);
        if (o->skip)
            scale_row(dout, o->skip[head], true, o->dim, z);
        if (dskip)
            *dskip += dot(dout, v, o->dim);
        store_row(o->type, w->b->dv, row * w->b->ldd + head * o->dim, z, o->dim);
    }
    for (int64_t i = c->n - 1; i >= 0; i--) {
        sum += w->dgamma[i];
        w->b->dg[row_of(c, i) * o->heads + head] = starts(c, i) || c->row0 + i == 0 ? 0 : sum;
    }
}

static void head_chunk(work *w, int64_t h, int64_t i, bool last, float *dskip)
{
    const op_scan *o = w->c.o;
    const chunk *c = &w->c;
    const int64_t n = c->n, key_dim = o->key_dim, dim = o->dim;
    const float *state = c->row0 > 0 ? w->states + i * key_dim * dim : NULL, *u = w->u + i * CHUNK * dim;
    float *gradient = w->gradient[h], *dq = w->dq + i * CHUNK * key_dim, *dk = w->dk + i * CHUNK * key_dim;
    const float *after = last ? NULL : gradient, *z = w->dout_z + n * dim;
    const bool delta = o->kind == SCAN_DELTA;
    chunk_gates(c, w->part.head + h);
    chunk_squares(c);
    find_z(w, w->part.head + h, after);
    product(c, MATMUL_NT, delta ? 2 * n : n, n, dim, w->dout_z, dim, u, dim, w->products, CHUNK, false);
    square_gradients(w);
    product(c, MATMUL_NN, n, key_dim, n, w->products, CHUNK, c->k, key_dim, dq, key_dim, h > 0);
    product(c, MATMUL_TN, n, key_dim, n, w->products, CHUNK, c->q, key_dim, dk, key_dim, h > 0);
    if (delta)
        product(c, MATMUL_NN, n, key_dim, n, w->both, CHUNK, c->k, key_dim, dk, key_dim, true);
    add_state_terms(w, state, u, after, dq, dk);
    if (after) {
        float whole = state ? c->since[n - 1] * dot(state, gradient, key_dim * dim) : 0;
        for (int64_t j = 0; j < n; j++)
            whole += w->end[j];
        w->dgamma[n - 1] += whole;
    }
    if (state) {
        for (int64_t j = 0; j < n; j++) {
            scale_row(c->q + j * key_dim, c->since[j], false, key_dim, w->since_q + j * key_dim);
            if (delta)
                scale_row(c->k + j * key_dim, -c->beta[j] * c->since[j], false, key_dim, w->beta_k + j * key_dim);
        }
        if (after)
            scale_row(gradient, c->since[n - 1], false, key_dim * dim, gradient);
        product(c, MATMUL_TN, key_dim, dim, n, w->since_q, key_dim, w->dout_z, dim, gradient, dim, after != NULL);
        if (delta)
            product(c, MATMUL_TN, key_dim, dim, n, w->beta_k, key_dim, z, dim, gradient, dim, true);
    }
    store_head(w, w->part.head + h, dskip);
}

/* ---- q and k before their norm ---- */

/* Writes the gradient of x from d, that of scale * x / |x|. room: for two rows. */
static void finish(const op_scan *o, const void *x, int64_t at, float scale, const float *d, void *to, int64_t to_at, float *room)
{
    float *unit = room, *dx = room + SCAN_DIM_MOST, r = 1;
    if (o->norm_eps > 0) {
        load_row(o->type, x, at, 1, o->key_dim, unit);
        r = norm_factor(o, unit);
        scale_row(unit, r, false, o->key_dim, unit);
        scale_row(d, scale * r, false, o->key_dim, dx);
        scale_row(unit, -dot(unit, dx, o->key_dim), true, o->key_dim, dx);
    } else {
        scale_row(d, scale, false, o->key_dim, dx);
    }
    store_row(o->type, to, to_at, dx, o->key_dim);
}

static void finish_row(const op_scan_backward *b, int64_t row, int64_t key_head, const float *dq, const float *dk, float *room)
{
    const op_scan *o = &b->forward;
    const int64_t at = row * o->ld + key_head * o->key_dim, to = row * b->ldd + key_head * o->key_dim;
    finish(o, o->q, at, op_factor(o->scale), dq, b->dq, to, room);
    finish(o, o->k, at, 1, dk, b->dk, to, room);
}

void KERNEL(scan_finish_row)(const op_scan_backward *b, int64_t row, int64_t key_head, scan_sums from, int64_t n, void *scratch)
{
    float *sum[2] = {scratch, (float *)scratch + SCAN_DIM_MOST};
    for (int64_t i = 0; i < n; i++) {
        scale_row(from.q + i * from.step, 1, i > 0, b->forward.key_dim, sum[0]);
        scale_row(from.k + i * from.step, 1, i > 0, b->forward.key_dim, sum[1]);
    }
    finish_row(b, row, key_head, sum[0], sum[1], (float *)scratch + 2 * SCAN_DIM_MOST);
}

void KERNEL(scan_backward_heads)(const op_scan_backward *b, scan_part part, scan_sums to, float *dskip, void *scratch)
{
    const op_scan *o = &b->forward;
    work w = work_of(b, part, scratch);
    const int64_t rows = w.most * CHUNK, key_head = key_head_of(o, part.head);
    if (dskip)
        memset(dskip, 0, (size_t)part.heads * sizeof *dskip);
    for (int64_t row0 = (o->len - 1) / rows * rows; row0 >= 0; row0 -= rows) {
        const int64_t left = o->len - row0 < rows ? o->len - row0 : rows, chunks = (left + CHUNK - 1) / CHUNK;
        for (int64_t i = 0; i < chunks; i++) {
            chunk_at(&w, row0, i);
            chunk_keys(&w.c, key_head);
        }
        for (int64_t h = 0; h < part.heads; h++) {
            head_again(&w, part.head + h, row0, chunks);
            for (int64_t i = chunks - 1; i >= 0; i--) {
                chunk_at(&w, row0, i);
                head_chunk(&w, h, i, w.c.row0 + w.c.n == o->len, dskip ? dskip + h : NULL);
            }
        }
        for (int64_t i = 0; i < left; i++) {
            const int64_t row = part.seq * o->len + row0 + i;
            const float *of_q = w.dq + i * o->key_dim, *of_k = w.dk + i * o->key_dim;
            if (!to.q) {
                finish_row(b, row, key_head, of_q, of_k, w.room);
                continue;
            }
            memcpy(to.q + row * to.step, of_q, (size_t)o->key_dim * sizeof *of_q);
            memcpy(to.k + row * to.step, of_k, (size_t)o->key_dim * sizeof *of_k);
        }
    }
}
