#include "device/cpu/kernels/scan_chunk.h"

/* A head's state, of those of all heads at `index`. */
static float *state_at(const op_scan *o, float *states, int64_t index, int64_t head)
{
    return states + (index * o->heads + head) * o->key_dim * o->dim;
}

/* The states at the starts of segments but the first. */
static float *segment_state(const op_scan *o, int64_t seq, int64_t row, int64_t head)
{
    const int64_t rows = CHUNK * scan_segment(o->key_dim, o->dim), segments = scan_segments(o->len, o->key_dim, o->dim);
    if (!o->states || row == 0 || row % rows)
        return NULL;
    return state_at(o, o->states, seq * (segments - 1) + row / rows - 1, head);
}

/* A head's rows of a chunk; known: the state is not 0. */
static void head_rows(const chunk *c, int64_t head, bool known, float *state, float *rows, float *u, float *out)
{
    const op_scan *o = c->o;
    chunk_gates(c, head);
    chunk_squares(c);
    chunk_u(c, head, known ? state : NULL, rows, u);
    if (known) {
        for (int64_t i = 0; i < c->n; i++)
            scale_row(c->q + i * o->key_dim, c->since[i], false, o->key_dim, rows + i * o->key_dim);
        product(c, MATMUL_NN, c->n, o->dim, o->key_dim, rows, o->key_dim, state, o->dim, out, o->dim, false);
    }
    product(c, MATMUL_NN, c->n, o->dim, c->n, c->p, CHUNK, u, o->dim, out, o->dim, known);
    chunk_state(c, known ? state : NULL, u, rows, state);
    for (int64_t i = 0; i < c->n; i++) {
        if (o->skip) {
            load_row(o->type, o->v, row_of(c, i) * o->ld + head * o->dim, o->skip[head], o->dim, u);
            scale_row(u, 1, true, o->dim, out + i * o->dim);
        }
        store_row(o->type, o->out, row_of(c, i) * o->ldo + head * o->dim, out + i * o->dim, o->dim);
    }
}

void KERNEL(scan_heads)(const op_scan *o, scan_part part, void *scratch)
{
    const int64_t keys = CHUNK * o->key_dim, values = CHUNK * o->dim, of_state = o->key_dim * o->dim;
    float *free = scratch_begin(scratch), *state[SCAN_HEADS];
    chunk c = {.o = o, .seq = part.seq, .q = take(&free, keys), .k = take(&free, keys), .qk = take(&free, SQUARE),
               .kk = take(&free, SQUARE), .decay = take(&free, SQUARE), .p = take(&free, SQUARE), .less = take(&free, SQUARE),
               .a = take(&free, CHUNK), .since = take(&free, CHUNK), .beta = take(&free, CHUNK), .narrow = scratch};
    float *rows = take(&free, keys), *u = take(&free, values), *out = take(&free, values);
    for (int64_t h = 0; h < part.heads; h++) {
        state[h] = o->after ? state_at(o, o->after, part.seq, part.head + h) : take(&free, of_state);
        if (o->before && o->before != o->after)
            memcpy(state[h], o->before + (part.seq * o->heads + part.head + h) * of_state, (size_t)of_state * sizeof(float));
    }
    for (c.row0 = 0; c.row0 < o->len; c.row0 += CHUNK) {
        c.n = o->len - c.row0 < CHUNK ? o->len - c.row0 : CHUNK;
        chunk_keys(&c, key_head_of(o, part.head));
        for (int64_t h = 0; h < part.heads; h++) {
            float *keep = segment_state(o, part.seq, c.row0, part.head + h);
            if (keep)
                memcpy(keep, state[h], (size_t)of_state * sizeof(float));
            head_rows(&c, part.head + h, o->before || c.row0 > 0, state[h], rows, u, out);
        }
    }
}
