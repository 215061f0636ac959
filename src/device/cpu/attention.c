/* attention.c - divides attention into tasks for the pool.
 *
 * Many queries: a tile is (sequence, head, 96 or 192 queries). A task has all tiles of all heads that share a kv head, so that keys are
 * packed once. The kv heads that cannot be divided evenly among the threads are split by head, or by tile if the heads are few too; the
 * last tiles, which see the most keys, come first.
 *
 * Few queries (generation): a unit is a sequence with as many of its kv heads as fit a task's scratch (usually all), and a tile is a part
 * of the unit's keys. There are at most MOST_PARTS parts, and their bounds depend on the shape alone. They write partial results to the
 * second half of thread 0's scratch; the thread that finishes a unit's last part combines them in ascending order.
 *
 *     | counters: one per unit | unit 0: part 0 rows, part 1 rows ... | unit 1: ... |
 *
 * If the units do not fit there together, the pool runs several times.
 */
#include "device/cpu/kernels/attention.h"
#include "device/cpu/ops.h"

#include <stdatomic.h>

enum { PART_KEYS = ATT_KEYS, MOST_PARTS = 64, MOST_UNITS = 4096 };

/* Tasks of the heads from `first` on: each has `heads` heads and `at_once` of the `tiles` query tiles of each: all, or one. */
typedef struct forward_job {
    const op_attention *o;
    pool *pool;
    int64_t first, tiles, at_once, heads;
} forward_job;

/* If all units take equally long, threads idle for less than 3% of the time at the end. */
static bool units_keep_busy(int64_t units, int64_t threads)
{
    return (units + threads - 1) / threads * threads * 32 <= units * 33;
}

static attention_task forward_task(const forward_job *job, int64_t task)
{
    const op_attention *o = job->o;
    int64_t per_head = job->tiles / job->at_once, head = job->first + task / per_head * job->heads;
    int64_t from = job->tiles - (task % per_head + 1) * job->at_once;
    int64_t next = head + pool_threads(job->pool) * job->heads;
    if (job->at_once < job->tiles || next >= o->seqs * o->heads)
        next = -1;
    return (attention_task){.seq = head / o->heads, .head = head % o->heads, .heads = job->heads, .from = from, .end = from + job->at_once,
                            .next_seq = next / o->heads, .next_head = next < 0 ? -1 : next % o->heads};
}

static void forward_run(void *arg, int64_t index, int thread)
{
    const forward_job *job = arg;
    attention_task task = forward_task(job, index);
    ATTENTION_BEST(job->o, attention_tiles)(job->o, &task, pool_scratch(job->pool, thread), ATT_SCRATCH_FLOATS);
}

typedef struct rows_job {
    const op_attention *o;
    pool *pool;
    int64_t unit_heads, units_per_seq; /* kv heads of a unit; the last unit of a sequence may have fewer */
    int64_t first_unit, parts, rows;   /* rows: of a full unit */
    int64_t stride;                    /* floats of a partial row */
    float *partials;
    atomic_int *done;
} rows_job;

/* Key range of part `part` of the sequence's visible keys. */
static void rows_part(const rows_job *job, int64_t seq, int64_t part, int64_t *from, int64_t *to)
{
    const op_attention *o = job->o;
    int64_t start = o->kv_len;
    for (int64_t i = 0; i < o->q_len; i++) {
        int32_t lo, hi;
        attention_range(o, seq, i, &lo, &hi);
        start = lo < start ? lo : start;
    }
    start = start / ATT_KEYS * ATT_KEYS;
    int64_t each = (o->kv_len - start + job->parts - 1) / job->parts;
    each = (each + ATT_KEYS - 1) / ATT_KEYS * ATT_KEYS;
    *from = start + part * each;
    *to = *from + each < o->kv_len ? *from + each : o->kv_len;
}

static void rows_run(void *arg, int64_t tile, int thread)
{
    const rows_job *job = arg;
    const op_attention *o = job->o;
    int64_t slot = tile / job->parts, part = tile % job->parts, unit = job->first_unit + slot;
    int64_t seq = unit / job->units_per_seq, kv_head = unit % job->units_per_seq * job->unit_heads;
    int64_t left = o->kv_heads - kv_head, kv_heads = left < job->unit_heads ? left : job->unit_heads;
    int64_t group = o->heads / o->kv_heads, from, to;
    float *partials = job->partials + slot * job->parts * job->rows * job->stride;
    rows_part(job, seq, part, &from, &to);
    KERNEL_BEST(attention_rows)
    (o, seq, kv_head, kv_heads, from, to, partials + part * job->rows * job->stride,
     pool_scratch(job->pool, thread));
    if (atomic_fetch_add_explicit(&job->done[slot], 1, memory_order_acq_rel) != job->parts - 1)
        return;
    for (int64_t r = 0; r < kv_heads * group * o->q_len; r++)
        KERNEL_BEST(attention_combine)
        (o, seq, kv_head * group + r / o->q_len, r % o->q_len, partials + r * job->stride, job->parts,
         job->rows * job->stride);
}

/* The share of ATT_ROW_FLOATS that the rows of one kv head need. */
static int64_t row_floats(const op_attention *o)
{
    int64_t padded = attention_padded(o->dim);
    return o->heads / o->kv_heads * o->q_len * (padded > ATT_KEYS ? padded : ATT_KEYS);
}

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static void rows_all(pool *pool, const op_attention *o)
{
    rows_job job = {.o = o, .pool = pool};
    int64_t room = POOL_SCRATCH_BYTES / 2 - MOST_UNITS * (int64_t)sizeof(atomic_int);
    int64_t seen = o->window > 0 ? least(o->window + o->q_len, o->kv_len) : o->kv_len;
    job.done = (atomic_int *)((char *)pool_scratch(pool, 0) + POOL_SCRATCH_BYTES / 2);
    job.partials = (float *)(job.done + MOST_UNITS);
    job.unit_heads = least(o->kv_heads, ATT_ROW_FLOATS / row_floats(o));
    job.units_per_seq = (o->kv_heads + job.unit_heads - 1) / job.unit_heads;
    job.rows = job.unit_heads * (o->heads / o->kv_heads) * o->q_len;
    job.stride = o->dim + 2;
    int64_t part_room = room / ((int64_t)sizeof(float) * job.rows * job.stride); /* parts that fit */
    job.parts = least(least((seen + PART_KEYS - 1) / PART_KEYS, MOST_PARTS), part_room);
    int64_t at_once = least(part_room / job.parts, MOST_UNITS), units = o->seqs * job.units_per_seq;
    for (; job.first_unit < units; job.first_unit += at_once) {
        int64_t count = least(units - job.first_unit, at_once);
        for (int64_t i = 0; i < count; i++)
            atomic_init(&job.done[i], 0);
        pool_run(pool, count * job.parts, rows_run, &job);
    }
}

void cpu_attention(pool *pool, const op_attention *o)
{
    if (o->q_len < ATT_FEW && row_floats(o) <= ATT_ROW_FLOATS) {
        rows_all(pool, o);
        return;
    }
    const int64_t threads = pool_threads(pool), units = o->seqs * o->kv_heads, group = o->heads / o->kv_heads;
    const int64_t tiles = (o->q_len + attention_queries(o) - 1) / attention_queries(o);
    const int64_t whole = units_keep_busy(units, threads) ? units : units / threads * threads, heads = (units - whole) * group;
    const int64_t at_once = units_keep_busy(heads, threads) ? tiles : 1;
    forward_job by_unit = {o, pool, 0, tiles, tiles, group}, rest = {o, pool, whole * group, tiles, at_once, 1};
    if (whole > 0)
        pool_run(pool, whole, forward_run, &by_unit);
    if (heads > 0)
        pool_run(pool, heads * (tiles / at_once), forward_run, &rest);
}
