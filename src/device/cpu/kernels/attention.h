/* attention.h - the tasks of attention, each of which one thread runs.
 *
 * Every function uses its thread's scratch (64-byte aligned; ATT_SCRATCH_FLOATS, or `floats` where that is a parameter) and writes rows
 * that no other task writes. For shapes, strides and masks see op_attention in device/device.h.
 */
#ifndef PT_ATTENTION_KERNELS_H
#define PT_ATTENTION_KERNELS_H

#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#include "device/device.h"

enum {
    ATT_VECTOR_QUERIES = 96, /* queries of a tile; a multiple of three vectors of 16, 8 or 4 lanes */
    ATT_AMX_QUERIES = 192,   /* with AMX: packing keys takes longer than multiplying them, so more queries share the packed keys */
    ATT_KEYS = 64,    /* keys of a tile (forward with AMX takes two tiles together); the grid starts at key 0 */
    ATT_SPAN = 256,   /* keys of a dk/dv task when a sequence is split */
    ATT_FEW = 8,      /* fewer queries than this are computed by attention_rows */
    ATT_MAX_DIM = 512, /* the largest head dimension whose tiles fit the scratch; larger ones are refused with the config */
    ATT_ROW_FLOATS = 128 << 10,
    ATT_SCRATCH_FLOATS = POOL_SCRATCH_BYTES / 4
};

/* attention_padded(dim) is dim if that is a whole number of vectors. */
_Static_assert(ATT_MAX_DIM * (5 * ATT_AMX_QUERIES + 2 * ATT_KEYS) + 2 * ATT_KEYS * ATT_AMX_QUERIES + 2 * ATT_SPAN * ATT_MAX_DIM <=
               ATT_SCRATCH_FLOATS, "the tiles of the largest head and a span's dk and dv fit the scratch");
_Static_assert((int)ATT_KEYS == (int)ATTENTION_ACCUMULATOR_GRID, "the sums that an op brings hold whole tiles of keys");

/* The scratch that attention_backward_tiles needs at least, in floats, without dk and dv; `queries`: per tile. */
static inline int64_t attention_backward_floats(int64_t dim, int64_t queries)
{
    return attention_padded(dim) * (5 * queries + 2 * ATT_KEYS) + 2 * ATT_KEYS * queries;
}

/* The tile kernels also exist for pairs of bf16 (attention_operand.h): for AVX512-BF16 and ARM64's FEAT_BF16, for AMX, and, for tests
 * alone, with AVX2 in place of their instructions. */
#define ATTENTION_KERNELS(type, name, parameters) \
    KERNELS(type, name, parameters)               \
    type BF16_COPY(name) parameters;              \
    type name##_v4amx parameters;                 \
    type name##_v3pairs parameters;               \
    type name##_v3tiles parameters;

/* Whether AMX computes heads of this dimension: it must be whole tiles of 16 pairs. */
static inline bool attention_by_amx(int64_t dim) { return cpu_has_amx() && dim % 32 == 0; }

/* Queries of a tile of o. */
static inline int64_t attention_queries(const op_attention *o)
{
    return o->type == PT_BF16 && attention_by_amx(o->dim) ? ATT_AMX_QUERIES : ATT_VECTOR_QUERIES;
}

/* The copy to call for the types and shape of o. */
#if defined(__x86_64__)
#define ATTENTION_AMX(o, name, other) (attention_by_amx((o)->dim) ? name##_v4amx : (other))
#else
#define ATTENTION_AMX(o, name, other) (other)
#endif
#define ATTENTION_BEST(o, name)                 \
    ((o)->type != PT_BF16 ? KERNEL_BEST(name) : \
     ATTENTION_AMX(o, name, cpu_gains_by_bf16() ? BF16_COPY(name) : KERNEL_BEST(name)))

/* The keys that query i (0 .. q_len) of sequence `seq` sees: *lo .. *hi, both inclusive. */
static inline void attention_range(const op_attention *o, int64_t seq, int64_t i, int32_t *lo,
                                   int32_t *hi)
{
    int64_t p = o->kv_len - o->q_len + i;
    int64_t from = o->window > 0 && p - o->window + 1 > 0 ? p - o->window + 1 : 0;
    if (o->first && o->first[seq * o->q_len + i] > from)
        from = o->first[seq * o->q_len + i];
    *lo = (int32_t)from;
    *hi = (int32_t)p;
}

/* The offset of row 0 of (seq, kv head) in k and v, in elements. */
static inline int64_t attention_kv_offset(const op_attention *o, int64_t seq, int64_t kv_head)
{
    int64_t stride = o->kv_seq_stride ? o->kv_seq_stride : o->kv_len * o->ldkv;
    return seq * stride + kv_head * o->dim;
}

/* Queries whose out and lse one task computes: tiles [from, end) of attention_queries() each, of the heads [head, head + heads) of a
 * sequence, which share one kv head. */
typedef struct attention_task {
    int64_t seq, head, heads, from, end;
    int64_t next_seq, next_head; /* whose first rows to prefetch at the end; next_head < 0: none */
} attention_task;

/* True if no other tile would use its packed keys. */
static inline bool task_has_one_tile(const attention_task *t) { return t->heads * (t->end - t->from) == 1; }

/* The scratch that attention_tiles needs at least, in floats. With more, keys and values are packed once for several tiles. */
static inline int64_t attention_forward_floats(int64_t dim, int64_t queries)
{
    return attention_padded(dim) * (2 * queries + 3 * ATT_KEYS) + 64 * ATT_KEYS;
}

_Static_assert(ATT_MAX_DIM * (2 * ATT_AMX_QUERIES + 3 * ATT_KEYS) + 64 * ATT_KEYS <= ATT_SCRATCH_FLOATS,
               "a tile of the largest head fits the scratch");

/* Computes out and lse of the task's queries. */
ATTENTION_KERNELS(void, attention_tiles, (const op_attention *o, const attention_task *task, float *scratch, int64_t floats))

/* Computes partial results over the keys [from, to), of all queries of the heads that use the kv heads [kv_head, kv_head + kv_heads). Row
 * r = (head - first head) * q_len + i begins at partial[r * (dim + 2)]: [0] is the maximum m of the scaled scores, [1] the sum of exp(score
 * - m), [2 ..] the sum of exp(score - m) * v. If no key is seen, m = -FLT_MAX and the rest is 0. rows * attention_padded(dim) and rows *
 * ATT_KEYS are at most ATT_ROW_FLOATS. Uses half of the scratch. */
KERNELS(void, attention_rows,
        (const op_attention *o, int64_t seq, int64_t kv_head, int64_t kv_heads, int64_t from, int64_t to,
         float *partial, float *scratch))

/* Combines `parts` partial results of a row, `stride` floats apart, in ascending order, and stores out and lse of query i of `head`.
 * Overwrites the first partial result. */
KERNELS(void, attention_combine,
        (const op_attention *o, int64_t seq, int64_t head, int64_t i, float *partial, int64_t parts,
         int64_t stride))

/* x[0 .. n) = exp(x - shift), for any n. */
KERNELS(void, attention_exp, (float *x, int64_t n, float shift))

/* The gradients from a task's queries for the keys [from, to), multiples of ATT_KEYS (or kv_len). Adds to dk and dv (NULL: not wanted),
 * whose rows, from key `from` on, have attention_padded(dim) floats; dk includes the scale and is not rounded. want_dq: also stores dq;
 * from .. to must then be the whole sequence. scratch: at least attention_backward_floats(); with more, keys are packed once for several
 * tiles. */
typedef struct attention_backward_task {
    attention_task queries;
    int64_t from, to;
    float *dk, *dv;
    bool want_dq;
} attention_backward_task;

ATTENTION_KERNELS(void, attention_backward_tiles,
        (const op_attention_backward *b, const attention_backward_task *task, float *scratch, int64_t floats))

/* Rounds `rows` rows of fp32 sums (stride attention_padded(dim)) and stores them to dst (stride ld). */
ATTENTION_KERNELS(void, attention_store,
        (pt_dtype type, const float *sums, int64_t rows, int64_t dim, void *dst, int64_t ld))

#endif
