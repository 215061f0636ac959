/* attention_backward.c - divides the backward pass of attention into tasks for the pool.
 *
 * Two ways with the same bits (kernels/attention_backward.c says why):
 *
 *   whole  a task is (sequence, kv head). It goes over all queries of its heads, accumulates dk and dv of the whole sequence in its
 *          scratch, or in the op's sums if the scratch is too small, and stores dq. Five matmuls per tile.
 *   split  first tasks (sequence, kv head, span of keys) for dk and dv, then tasks (sequence, head, query tile) for dq. More tasks, but
 *          the scores are computed twice: seven matmuls per tile.
 *
 * `whole` needs room for dk and dv in fp32: a thread's scratch is enough for 7,400 tokens or more at dim 64. Pairs that cannot be divided
 * evenly among the threads are split, unless they keep enough threads busy.
 *
 * The op's own scratch is not used: delta is computed when a query tile is packed.
 */
#include "device/cpu/kernels/attention.h"
#include "device/cpu/ops.h"

#include <string.h>

typedef struct backward_job {
    const op_attention_backward *b;
    pool *pool;
    int64_t first;              /* (sequence, kv head) pair */
    int64_t tiles, spans, span; /* query tiles; spans of keys; keys per span */
    bool whole, in_sums; /* in_sums: dk and dv accumulate in the op's sums */
} backward_job;

/* Computes dk and dv of one kv head for the span from `from` on, and dq if the span has all keys. */
static void keys_run(void *arg, int64_t task, int thread)
{
    const backward_job *job = arg;
    const op_attention *o = &job->b->forward;
    int64_t unit = job->first + task / job->spans, from = task % job->spans * job->span;
    int64_t seq = unit / o->kv_heads, kv_head = unit % o->kv_heads, group = o->heads / o->kv_heads;
    int64_t keys = o->kv_len - from < job->span ? o->kv_len - from : job->span;
    int64_t floats = attention_accumulator_floats(keys, o->dim);
    float *scratch = pool_scratch(job->pool, thread), *sums = job->in_sums ? job->b->sums + unit * 2 * floats : scratch;
    int64_t taken = job->in_sums ? 0 : 2 * floats;
    memset(sums, 0, 2 * (size_t)floats * sizeof(float));
    attention_backward_task t = {.queries = {seq, kv_head * group, group, from / attention_queries(o), job->tiles, -1, -1},
                                 .from = from, .to = from + keys, .dk = sums, .dv = sums + floats, .want_dq = job->whole};
    int64_t next = unit + pool_threads(job->pool);
    if (job->whole && next < o->seqs * o->kv_heads)
        t.queries.next_seq = next / o->kv_heads, t.queries.next_head = next % o->kv_heads * group;
    ATTENTION_BEST(o, attention_backward_tiles)(job->b, &t, scratch + taken, ATT_SCRATCH_FLOATS - taken);
    int64_t at = (attention_kv_offset(o, seq, kv_head) + from * o->ldkv) * (int64_t)dtype_bytes(o->type);
    ATTENTION_BEST(o, attention_store)(o->type, t.dk, keys, o->dim, (char *)job->b->dk + at, o->ldkv);
    ATTENTION_BEST(o, attention_store)(o->type, t.dv, keys, o->dim, (char *)job->b->dv + at, o->ldkv);
}

static void queries_run(void *arg, int64_t task, int thread)
{
    const backward_job *job = arg;
    const op_attention *o = &job->b->forward;
    int64_t tile = job->tiles - 1 - task % job->tiles, head = job->first * (o->heads / o->kv_heads) + task / job->tiles;
    attention_backward_task t = {.queries = {head / o->heads, head % o->heads, 1, tile, tile + 1, -1, -1}, .to = o->kv_len,
                                 .want_dq = true};
    ATTENTION_BEST(o, attention_backward_tiles)(job->b, &t, pool_scratch(job->pool, thread), ATT_SCRATCH_FLOATS);
}

static bool fits_scratch(const op_attention *o)
{
    return attention_backward_floats(o->dim, attention_queries(o)) + 2 * attention_accumulator_floats(o->kv_len,
        o->dim) <= ATT_SCRATCH_FLOATS;
}

/* The number of (sequence, kv head) pairs that are not split. Short sequences are never split. */
static int64_t whole_units(const op_attention_backward *b, int64_t threads)
{
    const op_attention *o = &b->forward;
    int64_t units = o->seqs * o->kv_heads, left = units % threads;
    if (!fits_scratch(o) && !b->sums)
        return 0;
    return o->kv_len <= ATT_SPAN || threads * 5 <= left * 7 ? units : units - left;
}

void cpu_attention_backward(pool *pool, const op_attention_backward *b)
{
    const op_attention *o = &b->forward;
    const int64_t units = o->seqs * o->kv_heads, whole = whole_units(b, pool_threads(pool)), split = units - whole;
    const int64_t tiles = (o->q_len + attention_queries(o) - 1) / attention_queries(o), spans = (o->kv_len + ATT_SPAN - 1) / ATT_SPAN;
    backward_job job = {.b = b, .pool = pool, .tiles = tiles, .spans = 1, .span = o->kv_len, .whole = true, .in_sums = !fits_scratch(o)};
    backward_job rest = {.b = b, .pool = pool, .first = whole, .tiles = tiles, .spans = spans, .span = ATT_SPAN};
    if (whole > 0)
        pool_run(pool, whole, keys_run, &job);
    if (split == 0)
        return;
    pool_run(pool, split * spans, keys_run, &rest);
    pool_run(pool, split * (o->heads / o->kv_heads) * tiles, queries_run, &rest);
}
