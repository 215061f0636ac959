/* ops_scan.c - divides a scan into tasks: sequences, and some value heads of one key head. In forward heads are independent, so that a
 * task may have any number of them. In backward a task has up to SCAN_HEADS. If a key head has more, the tasks leave their sums of dq and
 * dk in the op's scratch:
 *
 *     dskip of each sequence and head | dq (rows, tasks of a sequence, key_dim) | dk
 */
#include "device/cpu/kernels/scan.h"
#include "device/cpu/ops.h"
#include "device/cpu/tiles.h"

enum { FINISH_ROWS = 16, TASKS_PER_THREAD = 4 };

typedef struct scan_job {
    pool *pool;
    const op_scan *o;
    const op_scan_backward *b;
    int64_t each, tasks; /* most heads of a task; tasks of a sequence */
} scan_job;

static scan_job scan_job_of(pool *pool, const op_scan *o, const op_scan_backward *b, int64_t each)
{
    return (scan_job){pool, o, b, each, o->key_heads * tiles_of(o->heads / o->key_heads, each)};
}

static scan_part scan_part_of(const scan_job *job, int64_t task)
{
    const int64_t group = job->o->heads / job->o->key_heads, parts = tiles_of(group, job->each), part = task % job->tasks % parts;
    const int64_t begin = task % job->tasks / parts * group;
    return (scan_part){task / job->tasks, begin + part * job->each, tile_end(group, job->each, part) - part * job->each};
}

static void scan_task(void *arg, int64_t task, int thread)
{
    const scan_job *job = arg;
    KERNEL_BEST(scan_heads)(job->o, scan_part_of(job, task), pool_scratch(job->pool, thread));
}

void cpu_scan(pool *pool, const op_scan *o)
{
    int64_t each = SCAN_HEADS;
    while (each > 1 && o->seqs * scan_job_of(pool, o, NULL, each).tasks < pool_threads(pool) * TASKS_PER_THREAD)
        each /= 2;
    scan_job job = scan_job_of(pool, o, NULL, each);
    pool_run(pool, o->seqs * job.tasks, scan_task, &job);
}

/* ---- backward ---- */

static float *skip_sums(const scan_job *job) { return job->b->dskip ? job->b->scratch : NULL; }

/* Of the task with this number in its sequence. */
static scan_sums key_sums(const scan_job *job, int64_t task)
{
    const op_scan *o = job->o;
    float *q = (float *)job->b->scratch + o->seqs * o->heads + task * o->key_dim;
    if (job->tasks == o->key_heads)
        return (scan_sums){0};
    return (scan_sums){q, q + o->seqs * o->len * job->tasks * o->key_dim, job->tasks * o->key_dim};
}

static void scan_backward_task(void *arg, int64_t task, int thread)
{
    const scan_job *job = arg;
    const scan_part part = scan_part_of(job, task);
    float *dskip = skip_sums(job) ? skip_sums(job) + part.seq * job->o->heads + part.head : NULL;
    KERNEL_BEST(scan_backward_heads)(job->b, part, key_sums(job, task % job->tasks), dskip, pool_scratch(job->pool, thread));
}

static void scan_finish_task(void *arg, int64_t tile, int thread)
{
    const scan_job *job = arg;
    const op_scan *o = job->o;
    const int64_t parts = job->tasks / o->key_heads;
    for (int64_t row = tile * FINISH_ROWS; row < tile_end(o->seqs * o->len, FINISH_ROWS, tile); row++)
        for (int64_t key_head = 0; key_head < o->key_heads; key_head++) {
            scan_sums from = key_sums(job, key_head * parts);
            from = (scan_sums){from.q + row * from.step, from.k + row * from.step, o->key_dim};
            KERNEL_BEST(scan_finish_row)(job->b, row, key_head, from, parts, pool_scratch(job->pool, thread));
        }
}

void cpu_scan_backward(pool *pool, const op_scan_backward *b)
{
    const op_scan *o = &b->forward;
    scan_job job = scan_job_of(pool, o, b, SCAN_HEADS);
    pool_run(pool, o->seqs * job.tasks, scan_backward_task, &job);
    if (job.tasks > o->key_heads)
        pool_run(pool, tiles_of(o->seqs * o->len, FINISH_ROWS), scan_finish_task, &job);
    for (int64_t head = 0; head < o->heads && b->dskip; head++) {
        float sum = 0;
        for (int64_t seq = 0; seq < o->seqs; seq++)
            sum += skip_sums(&job)[seq * o->heads + head];
        b->dskip[head] = b->accumulate ? b->dskip[head] + sum : sum;
    }
}
