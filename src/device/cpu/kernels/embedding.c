#include "device/cpu/kernels/embedding.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"
#include "device/dropout.h"

typedef struct embedding_row {
    const void *token, *position, *next; /* next: the next row's token, to prefetch */
    void *out;
    float *stream, scale;
    bool past;
    float noise; /* noise_factor(), 0: none */
    uint64_t key;
    int64_t row;
} embedding_row;

static INLINE vf embedding_noise(const embedding_row *r, int64_t i)
{
    float of[VEC_LANES];
    for (int64_t k = 0; k < VEC_LANES; k += 2) {
        const uint64_t bits = dropout_bits(r->key, r->row, (i + k) / 2);
        of[k] = noise_value((uint32_t)bits, r->noise);
        of[k + 1] = noise_value((uint32_t)(bits >> 32), r->noise);
    }
    return f32_load(of, VEC_LANES);
}

static INLINE void embedding_part(pt_dtype type, const embedding_row *r, int64_t i, int64_t lanes)
{
    vf x = load(type, r->token, i, lanes) * r->scale;
    if (r->noise > 0)
        x = x + embedding_noise(r, i);
    if (r->position)
        x = x + load(type, r->position, i, lanes);
    if (r->stream)
        f32_store(r->stream + i, x, lanes);
    store(type, r->out, i, x, lanes);
}

static INLINE void embedding_pair(pt_dtype type, const embedding_row *r, int64_t i)
{
    vf x[2], position[2];
    __builtin_prefetch(at(type, r->next, i));
    load_pair(type, r->token, i, x);
    x[0] = x[0] * r->scale, x[1] = x[1] * r->scale;
    if (r->position) {
        load_pair(type, r->position, i, position);
        x[0] = x[0] + position[0], x[1] = x[1] + position[1];
    }
    put_pair(type, r->out, i, x, r->past);
    if (!r->stream)
        return;
    if (type == PT_BF16)
        order_join(x);
    put_pair(PT_F32, r->stream, i, x, r->past);
}

static INLINE void embedding_row_of(pt_dtype type, const embedding_row *r, int64_t cols)
{
    int64_t i = 0;
    for (; r->noise == 0 && i + 2 * VEC_LANES <= cols; i += 2 * VEC_LANES)
        embedding_pair(type, r, i);
    for (; i + VEC_LANES <= cols; i += VEC_LANES)
        embedding_part(type, r, i, VEC_LANES);
    if (i < cols)
        embedding_part(type, r, i, cols - i);
}

static INLINE int64_t embedding_id(const op_embedding *o, int64_t row) { return o->ids ? o->ids[row] : row; }

void KERNEL(embedding_rows)(const op_embedding *o, int64_t row0, int64_t row1, bool past)
{
    past = past && o->noise == 0 &&
           past_fits((uintptr_t)o->out | (uintptr_t)o->stream | (uintptr_t)(o->cols * (int64_t)dtype_bytes(o->type)));
    for (int64_t row = row0; row < row1; row++) {
        const int64_t id = embedding_id(o, row) - o->row0;
        if (id < 0 || id >= o->table_rows)
            continue;
        const int64_t other = row + 1 < row1 ? embedding_id(o, row + 1) - o->row0 : id;
        const int64_t next = other < 0 || other >= o->table_rows ? id : other;
        embedding_row r = {at(o->type, o->table, id * o->cols), NULL, at(o->type, o->table, next * o->cols),
                           at_mutable(o->type, o->out, row * o->cols), NULL, op_factor(o->scale), past, noise_factor(o->noise), o->key,
                           o->first + row};
        if (o->position_table)
            r.position = at(o->type, o->position_table, o->positions[row] * o->cols);
        if (o->stream)
            r.stream = o->stream + row * o->cols;
        if (o->type == PT_BF16)
            embedding_row_of(PT_BF16, &r, o->cols);
        else
            embedding_row_of(PT_F32, &r, o->cols);
    }
    if (past)
        past_end();
}

enum { ADD_ROWS = 4 /* rows at a time: their sum is loaded and stored once */ };

static INLINE void row_add_of(pt_dtype type, const void *row, float *sum, int64_t cols)
{
    int64_t i = 0;
    for (; i + VEC_LANES <= cols; i += VEC_LANES)
        f32_store(sum + i, f32_load(sum + i, VEC_LANES) + load(type, row, i, VEC_LANES), VEC_LANES);
    if (i < cols)
        f32_store(sum + i, f32_load(sum + i, cols - i) + load(type, row, i, cols - i), cols - i);
}

/* Adds ADD_ROWS rows. */
static INLINE void rows_add_of(pt_dtype type, const void *rows, int64_t ld, float *sum, int64_t cols)
{
    int64_t i = 0;
    for (; i + 2 * VEC_LANES <= cols; i += 2 * VEC_LANES) {
        vf total[2], x[2];
        load_pair(PT_F32, sum, i, total);
        if (type == PT_BF16)
            order_split(total);
#pragma GCC unroll 4
        for (int r = 0; r < ADD_ROWS; r++) {
            load_pair(type, at(type, rows, r * ld), i, x);
            __builtin_prefetch(at(type, rows, (r + ADD_ROWS) * ld + i)); /* the next rows */
            total[0] += x[0], total[1] += x[1];
        }
        if (type == PT_BF16)
            order_join(total);
        store_pair(PT_F32, sum, i, total);
    }
    for (int r = 0; r < ADD_ROWS; r++)
        row_add_of(type, at(type, rows, r * ld + i), sum + i, cols - i);
}

static INLINE void all_rows_add_of(pt_dtype type, const void *dy, int64_t ld, int64_t rows, float *sum, int64_t cols)
{
    int64_t r = 0;
    for (; r + ADD_ROWS <= rows; r += ADD_ROWS)
        rows_add_of(type, at(type, dy, r * ld), ld, sum, cols);
    for (; r < rows; r++)
        row_add_of(type, at(type, dy, r * ld), sum, cols);
}

static INLINE void row_add_scaled_of(pt_dtype type, float scale, const void *row, float *sum, int64_t cols)
{
    for (int64_t i = 0; i < cols; i += VEC_LANES) {
        int64_t lanes = cols - i < VEC_LANES ? cols - i : VEC_LANES;
        f32_store(sum + i, f32_load(sum + i, lanes) + load(type, row, i, lanes) * scale, lanes);
    }
}

void KERNEL(row_add_scaled)(pt_dtype type, float scale, const void *row, float *sum, int64_t cols)
{
    if (type == PT_BF16)
        row_add_scaled_of(PT_BF16, scale, row, sum, cols);
    else
        row_add_scaled_of(PT_F32, scale, row, sum, cols);
}

void KERNEL(rows_add)(pt_dtype type, const void *dy, int64_t ld, int64_t rows, float *sum, int64_t cols)
{
    if (type == PT_BF16)
        all_rows_add_of(PT_BF16, dy, ld, rows, sum, cols);
    else
        all_rows_add_of(PT_F32, dy, ld, rows, sum, cols);
}
