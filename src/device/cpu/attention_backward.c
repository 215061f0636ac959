/* attention_backward.c - cuts the backward pass of attention into tiles for the pool.
 *
 * Two ways that give the same bits (kernels/attention_backward.c says why):
 *
 *   whole  a task is (sequence, kv head): it sweeps all queries of its heads, adds to dk and dv of
 *          the whole sequence in its scratch, and stores dq on the way. Five products a tile.
 *   split  first (sequence, kv head, span of keys) for dk and dv, then (sequence, head, 96 queries)
 *          for dq: many tasks, at the price of computing the scores twice. Seven products a tile.
 *
 * `whole` needs dk and dv in fp32 to fit a thread's scratch (about 6,000 tokens at dim 64), and
 * enough (sequence, kv head) pairs to keep the threads busy.
 *
 * The scratch that the op brings is not used: delta is taken where a query tile is packed.
 */
#include "device/cpu/kernels/attention.h"
#include "device/cpu/ops.h"

#include <string.h>

typedef struct backward_job {
    const op_attention_backward *b;
    pool *pool;
    int64_t tiles, spans, span; /* of queries; of keys; keys of a span */
    bool whole;
} backward_job;

/* dk and dv of one kv head for the span that begins at `from`, and dq where the span is everything. */
static void keys_run(void *arg, int64_t task, int thread)
{
    const backward_job *job = arg;
    const op_attention *o = &job->b->forward;
    int64_t unit = task / job->spans, from = task % job->spans * job->span;
    int64_t seq = unit / o->kv_heads, kv_head = unit % o->kv_heads, group = o->heads / o->kv_heads;
    int64_t keys = o->kv_len - from < job->span ? o->kv_len - from : job->span;
    int64_t floats = (keys + ATT_KEYS - 1) / ATT_KEYS * ATT_KEYS * attention_padded(o->dim);
    float *scratch = pool_scratch(job->pool, thread);
    float *dk = scratch + attention_backward_floats(o->dim), *dv = dk + floats;
    memset(dk, 0, 2 * (size_t)floats * sizeof(float));
    for (int64_t head = kv_head * group; head < (kv_head + 1) * group; head++)
        for (int64_t tile = from / ATT_QUERIES; tile < job->tiles; tile++)
            KERNEL_BEST(attention_backward_sweep)
            (job->b, seq, head, tile, from, from + keys, dk, dv, job->whole, scratch);
    int64_t at = (attention_kv_offset(o, seq, kv_head) + from * o->ldkv) * (int64_t)dtype_bytes(o->type);
    KERNEL_BEST(attention_store)(o->type, dk, keys, o->dim, (char *)job->b->dk + at, o->ldkv);
    KERNEL_BEST(attention_store)(o->type, dv, keys, o->dim, (char *)job->b->dv + at, o->ldkv);
}

static void queries_run(void *arg, int64_t task, int thread)
{
    const backward_job *job = arg;
    const op_attention *o = &job->b->forward;
    int64_t tile = job->tiles - 1 - task % job->tiles, head = task / job->tiles;
    KERNEL_BEST(attention_backward_sweep)
    (job->b, head / o->heads, head % o->heads, tile, 0, o->kv_len, NULL, NULL, true,
     pool_scratch(job->pool, thread));
}

static bool backward_whole(pool *p, const op_attention *o)
{
    int64_t floats = (o->kv_len + ATT_KEYS - 1) / ATT_KEYS * ATT_KEYS * attention_padded(o->dim);
    if (attention_backward_floats(o->dim) + 2 * floats > ATT_SCRATCH_FLOATS)
        return false;
    int64_t units = o->seqs * o->kv_heads, threads = pool_threads(p);
    return (units + threads - 1) / threads * threads * 5 <= units * 7 || o->kv_len <= ATT_SPAN;
}

void cpu_attention_backward(pool *p, const op_attention_backward *b)
{
    const op_attention *o = &b->forward;
    backward_job job = {.b = b, .pool = p, .whole = backward_whole(p, o)};
    job.tiles = (o->q_len + ATT_QUERIES - 1) / ATT_QUERIES;
    job.span = job.whole ? o->kv_len : ATT_SPAN;
    job.spans = (o->kv_len + job.span - 1) / job.span;
    pool_run(p, o->seqs * o->kv_heads * job.spans, keys_run, &job);
    if (!job.whole)
        pool_run(p, o->seqs * o->heads * job.tiles, queries_run, &job);
}
