/* attention.h - the tasks of attention: what the ops hand to a thread.
 *
 * Every function works in a scratch of its thread (64-byte aligned, ATT_SCRATCH_FLOATS or as many `floats` as are said) and writes
 * rows that no other task writes. Shapes, strides and masks: op_attention in device/device.h.
 */
#ifndef PT_ATTENTION_KERNELS_H
#define PT_ATTENTION_KERNELS_H

#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#include "device/device.h"

enum {
    ATT_VECTOR_QUERIES = 96, /* queries of a tile; a multiple of three vectors of 16, 8 or 4 lanes */
    ATT_AMX_QUERIES = 192,   /* by AMX: packing keys takes longer than multiplying them, where they are not packed yet */
    ATT_KEYS = 64,    /* keys of a tile (forward by AMX takes two together); the grid starts at key 0 */
    ATT_SPAN = 256,   /* keys of a dk/dv task when a sequence is cut into several */
    ATT_FEW = 8,      /* fewer queries than this go row by row (attention_rows) */
    ATT_MAX_DIM = 512, /* the largest head dimension whose tiles fit the scratch; configs with more are refused */
    ATT_ROW_FLOATS = 128 << 10,
    ATT_SCRATCH_FLOATS = POOL_SCRATCH_BYTES / 4
};

/* attention_padded(dim) is dim where whole vectors fit it. */
_Static_assert(ATT_MAX_DIM * (5 * ATT_AMX_QUERIES + 2 * ATT_KEYS) + 2 * ATT_KEYS * ATT_AMX_QUERIES + 2 * ATT_SPAN * ATT_MAX_DIM <=
               ATT_SCRATCH_FLOATS, "the tiles of the largest head and a span's dk and dv fit the scratch");
_Static_assert((int)ATT_KEYS == (int)ATTENTION_ACCUMULATOR_GRID, "the sums that an op brings hold whole tiles of keys");

/* Floats of scratch that attention_backward_tiles takes at least, dk and dv not counted; `queries`: of a tile. */
static inline int64_t attention_backward_floats(int64_t dim, int64_t queries)
{
    return attention_padded(dim) * (5 * queries + 2 * ATT_KEYS) + 2 * ATT_KEYS * queries;
}

/* The kernels that sweep tiles also exist for pairs of bf16 (attention_operand.h): by AVX512-BF16, by AMX, and both on AVX2 with
 * the instructions spelled out, for tests alone. */
#define ATTENTION_KERNELS(type, name, parameters) \
    KERNELS(type, name, parameters)               \
    type name##_v4bf16 parameters;                \
    type name##_v4amx parameters;                 \
    type name##_v3pairs parameters;               \
    type name##_v3tiles parameters;

/* Whether AMX takes heads of this dimension: whole tiles of 16 pairs. */
static inline bool attention_by_amx(int64_t dim) { return cpu_has_amx() && dim % 32 == 0; }

/* Queries of a tile of o. */
static inline int64_t attention_queries(const op_attention *o)
{
    return o->type == PT_BF16 && attention_by_amx(o->dim) ? ATT_AMX_QUERIES : ATT_VECTOR_QUERIES;
}

/* The copy to call for o's tensors. */
#define ATTENTION_BEST(o, name)                                   \
    ((o)->type != PT_BF16           ? KERNEL_BEST(name)           \
     : attention_by_amx((o)->dim)   ? name##_v4amx                \
     : cpu_gains_by_bf16()          ? name##_v4bf16 : KERNEL_BEST(name))

/* The keys that query i (0 .. q_len) of sequence `seq` sees: *lo .. *hi, both included. */
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

/* Where row 0 of (seq, kv head) begins in k and v, in elements. */
static inline int64_t attention_kv_offset(const op_attention *o, int64_t seq, int64_t kv_head)
{
    int64_t stride = o->kv_seq_stride ? o->kv_seq_stride : o->kv_len * o->ldkv;
    return seq * stride + kv_head * o->dim;
}

/* Queries whose out and lse are computed together: tiles [from, end) of attention_queries() each, of the heads [head, head + heads) of
 * a sequence, which all read one kv head. */
typedef struct attention_task {
    int64_t seq, head, heads, from, end;
    int64_t next_seq, next_head; /* whose first rows to ask for towards the end; next_head < 0: nobody's */
} attention_task;

/* Whose packed keys nothing else would use. */
static inline bool task_has_one_tile(const attention_task *t) { return t->heads * (t->end - t->from) == 1; }

/* Floats of scratch that attention_tiles takes at least. With more, keys and values are packed once for several tiles. */
static inline int64_t attention_forward_floats(int64_t dim, int64_t queries)
{
    return attention_padded(dim) * (2 * queries + 3 * ATT_KEYS) + 64 * ATT_KEYS;
}

_Static_assert(ATT_MAX_DIM * (2 * ATT_AMX_QUERIES + 3 * ATT_KEYS) + 64 * ATT_KEYS <= ATT_SCRATCH_FLOATS,
               "a tile of the largest head fits the scratch");

/* out and lse of the task's queries. */
ATTENTION_KERNELS(void, attention_tiles, (const op_attention *o, const attention_task *task, float *scratch, int64_t floats))

/* Partial results of all queries of the heads that read the kv heads [kv_head, kv_head + kv_heads),
 * over the keys [from, to): row r = (head - first head) * q_len + i is partial[r * (dim + 2)] = the
 * maximum m of the scaled scores, [1] = sum of exp(score - m), [2 ..] = sum of exp(score - m) * v.
 * Nothing seen: m = -FLT_MAX, rest 0. Rows times attention_padded(dim), and rows times ATT_KEYS, are
 * at most ATT_ROW_FLOATS; half of the scratch is used. */
KERNELS(void, attention_rows,
        (const op_attention *o, int64_t seq, int64_t kv_head, int64_t kv_heads, int64_t from, int64_t to,
         float *partial, float *scratch))

/* Sums `parts` partials of a row (each `stride` floats after the one before), in ascending order,
 * and stores out and lse of query i of `head`. Overwrites the first partial. */
KERNELS(void, attention_combine,
        (const op_attention *o, int64_t seq, int64_t head, int64_t i, float *partial, int64_t parts,
         int64_t stride))

/* x[0 .. n) = exp(x - shift); n may be anything. */
KERNELS(void, attention_exp, (float *x, int64_t n, float shift))

/* What the queries of a task give to the keys [from, to), multiples of ATT_KEYS (or kv_len). dk and dv, rows from `from` on of
 * attention_padded(dim) floats, are added to (NULL: not wanted); dk comes without rounding and is complete (the scale is in it). want_dq
 * stores dq; from..to must then be the whole sequence. scratch: attention_backward_floats() at least; with more, keys are packed once. */
typedef struct attention_backward_task {
    attention_task queries;
    int64_t from, to;
    float *dk, *dv;
    bool want_dq;
} attention_backward_task;

ATTENTION_KERNELS(void, attention_backward_tiles,
        (const op_attention_backward *b, const attention_backward_task *task, float *scratch, int64_t floats))

/* Rounds and stores `rows` rows of fp32 sums (stride attention_padded(dim)) to dst (stride ld). */
ATTENTION_KERNELS(void, attention_store,
        (pt_dtype type, const float *sums, int64_t rows, int64_t dim, void *dst, int64_t ld))

#endif
