#include "device/cpu/kernels/rope.h"
#include "device/cpu/kernels/isa.h"
#include "device/cpu/kernels/vec.h"

/* Cosines and sines of a row, dim / 2 of each, in the order of load_pair() where elements are processed in pairs. */
typedef struct rope_angles { float *cosine, *sine; } rope_angles;

static INLINE int64_t rope_paired(int64_t half) { return half / (2 * VEC_LANES) * (2 * VEC_LANES); }

static INLINE void rope_angles_pair(pt_dtype type, const rope_angles *r, const float *table, bool inverse, int64_t i)
{
    vf c[2], s[2];
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) {
        vf both[2];
        load_pair(PT_F32, table, 2 * (i + k * VEC_LANES), both);
        order_split(both);
        c[k] = both[0], s[k] = inverse ? -both[1] : both[1];
        if (type == PT_BF16)
            c[k] = vec_tame(c[k]), s[k] = vec_tame(s[k]);
    }
    if (type == PT_BF16) {
        order_split(c);
        order_split(s);
    }
    store_pair(PT_F32, r->cosine, i, c);
    store_pair(PT_F32, r->sine, i, s);
}

static INLINE void rope_angles_of(pt_dtype type, const rope_angles *r, const float *table, bool inverse, int64_t half)
{
    int64_t i = 0;
    for (; i < rope_paired(half); i += 2 * VEC_LANES)
        rope_angles_pair(type, r, table, inverse, i);
    for (; i < half; i++) {
        r->cosine[i] = table[2 * i];
        r->sine[i] = inverse ? -table[2 * i + 1] : table[2 * i + 1];
    }
}

/* next: the same elements of the next row, to prefetch. */
static INLINE void rope_pair(pt_dtype type, void *x, const void *next, int64_t half, const rope_angles *r, int64_t i)
{
    vf a[2], b[2], c[2], s[2], rotated[2];
    __builtin_prefetch(at(type, next, i));
    __builtin_prefetch(at(type, next, half + i));
    load_pair(type, x, i, a);
    load_pair(type, x, half + i, b);
    load_pair(PT_F32, r->cosine, i, c);
    load_pair(PT_F32, r->sine, i, s);
    rotated[0] = a[0] * c[0] - b[0] * s[0], rotated[1] = a[1] * c[1] - b[1] * s[1];
    b[0] = b[0] * c[0] + a[0] * s[0], b[1] = b[1] * c[1] + a[1] * s[1];
    store_pair_tame(type, x, i, rotated);
    store_pair_tame(type, x, half + i, b);
}

static INLINE void rope_lanes(pt_dtype type, void *x, int64_t half, const rope_angles *r, int64_t i, int64_t lanes)
{
    vf a = load(type, x, i, lanes), b = load(type, x, half + i, lanes);
    vf c = f32_load(r->cosine + i, lanes), s = f32_load(r->sine + i, lanes);
    store(type, x, i, a * c - b * s, lanes);
    store(type, x, half + i, b * c + a * s, lanes);
}

/* Pairs of neighbours, VEC_LANES of them from pair i on. */
static INLINE void rope_neighbours(pt_dtype type, void *x, const float *table, bool inverse, int64_t i)
{
    vf angles[2], v[2], rotated[2];
    load_pair(PT_F32, table, 2 * i, angles);
    order_split(angles);
    load_pair(type, x, 2 * i, v);
    if (type == PT_F32)
        order_split(v);
    const vf c = angles[0], s = inverse ? -angles[1] : angles[1];
    rotated[0] = v[0] * c - v[1] * s, rotated[1] = v[1] * c + v[0] * s;
    if (type == PT_F32)
        order_join(rotated);
    store_pair(type, x, 2 * i, rotated);
}

static INLINE void rope_neighbour(pt_dtype type, void *x, const float *table, bool inverse, int64_t i)
{
    const vf a = load(type, x, 2 * i, 1), b = load(type, x, 2 * i + 1, 1);
    const vf c = vec_set(table[2 * i]), s = vec_set(inverse ? -table[2 * i + 1] : table[2 * i + 1]);
    store(type, x, 2 * i, a * c - b * s, 1);
    store(type, x, 2 * i + 1, b * c + a * s, 1);
}

static INLINE void rope_neighbour_rows_of(pt_dtype type, const op_rope *o, int64_t row0, int64_t row1)
{
    const int64_t pairs = rope_rotated(o) / 2;
    for (int64_t row = row0; row < row1; row++)
        for (int64_t head = 0; head < o->heads; head++) {
            const float *table = o->table + (int64_t)o->positions[row] * 2 * pairs;
            void *x = at_mutable(type, o->x, row * o->ld + head * o->dim);
            int64_t i = 0;
            for (; i + VEC_LANES <= pairs; i += VEC_LANES)
                rope_neighbours(type, x, table, o->inverse, i);
            for (; i < pairs; i++)
                rope_neighbour(type, x, table, o->inverse, i);
        }
}

static INLINE void rope_rows_of(pt_dtype type, const op_rope *o, int64_t row0, int64_t row1, float *scratch)
{
    int64_t rotated = rope_rotated(o), half = rotated / 2;
    rope_angles r = {scratch, scratch + half};
    for (int64_t row = row0; row < row1; row++) {
        rope_angles_of(type, &r, o->table + (int64_t)o->positions[row] * rotated, o->inverse, half);
        for (int64_t head = 0; head < o->heads; head++) {
            void *x = at_mutable(type, o->x, row * o->ld + head * o->dim);
            const void *next = at(type, x, row + 1 < row1 ? o->ld : 0);
            int64_t i = 0;
            for (; i < rope_paired(half); i += 2 * VEC_LANES)
                rope_pair(type, x, next, half, &r, i);
            for (; i < half; i += VEC_LANES)
                rope_lanes(type, x, half, &r, i, half - i < VEC_LANES ? half - i : VEC_LANES);
        }
    }
}

void KERNEL(rope_rows)(const op_rope *o, int64_t row0, int64_t row1, float *scratch)
{
    if (o->neighbours && o->type == PT_BF16)
        rope_neighbour_rows_of(PT_BF16, o, row0, row1);
    else if (o->neighbours)
        rope_neighbour_rows_of(PT_F32, o, row0, row1);
    else if (o->type == PT_BF16)
        rope_rows_of(PT_BF16, o, row0, row1, scratch);
    else
        rope_rows_of(PT_F32, o, row0, row1, scratch);
}
