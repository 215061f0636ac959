#include "run/executor.h"

#include "base/units.h"
#include "comm/comm.h"
#include "io/files.h"
#include "machine/machine.h"
#include "schedule/check.h"
#include "run/exchanges.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Losses and correct predictions (2, ranks, batch, seq_len), sums of all ranks, and each rank's own sums as sent (ranks, sumsq_count). */
typedef struct outcome { float *losses; double *sums, *of_rank; } outcome;

struct executor {
    executor_options o;
    schedule schedules[SCHEDULE_KINDS];
    bool built[SCHEDULE_KINDS];
    uint64_t bytes[TIERS], peak[TIERS], scratch_offset;
    bool ran[SCHEDULE_KINDS]; /* the peak can rise only in the first run of a schedule */
    char *arena[TIERS];
    disk_file *disk;
    disk_channel *reader, *writer;
    queue *queues[QUEUES];
    uint64_t *values;     /* timeline value after each task */
    task_time *times[SCHEDULE_KINDS];
    bool timing, timed[SCHEDULE_KINDS]; /* the next run is timed; the last run of the schedule was timed */
    char *mailbox;        /* the loader's copy of batch, losses and sums */
    size_t mailbox_bytes, loss_at, sumsq_at;
    task_runner runner;
    outcome all;          /* with several ranks: the outcome of all */
};

static int64_t tokens_of(const executor *x) { return x->o.input.shape->batch * x->o.input.shape->seq_len; }

/* ---- memory ---- */

/* In whole pages, the unit of allocation. */
static void raise_peak(executor *x, tier t, uint64_t end)
{
    end = align_up(end, DISK_ALIGN);
    x->peak[t] = end > x->peak[t] ? end : x->peak[t];
}

/* The schedules' needs are checked with them; loading and saving may need more. */
static int check_budgets(const executor *x, pt_error *e)
{
    char need[32], have[32], ask[32];
    for (int t = 0; t < TIERS; t++)
        if (x->bytes[t] > x->o.budget[t])
            return pt_fail(e, PT_DOES_NOT_FIT,
                           "the plan needs %s of %s memory, loading and saving included, but the budget is %s: give `%s_memory` %s, or "
                           "plan again",
                           size_format(need, x->bytes[t]), tier_names[t], size_format(have, x->o.budget[t]), tier_names[t],
                           size_option(ask, x->bytes[t] + (t == TIER_DEVICE ? x->o.device->info.threads_bytes : 0)));
    return 0;
}

static int build_schedules(executor *x, pt_error *e)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        if (!(x->o.schedules & 1u << kind))
            continue;
        int failed = schedule_build(&x->o.input, kind, &x->schedules[kind], e);
        if (failed)
            return failed;
        x->built[kind] = true;
        failed = schedule_check(&x->o.input, &x->schedules[kind], x->o.budget, e);
        if (failed)
            return failed;
        schedule_raise_bytes(&x->o.input, &x->schedules[kind], x->bytes);
        x->scratch_offset = x->schedules[kind].lasting_bytes[schedule_scratch_tier(&x->o.input)];
    }
    return check_budgets(x, e);
}

static memory_kind memory_of(int t) { return t == TIER_DEVICE ? MEMORY_DEVICE : MEMORY_HOST; }

/* The kernel kills a process that exceeds its container's limit without a message, so check before allocating. */
static int check_free(const executor *x, pt_error *e)
{
    const device *d = x->o.device;
    char need[32], have[32], give[32];
    machine m;
    uint64_t arenas = x->bytes[TIER_HOST] + x->mailbox_bytes + (device_is_gpu(d) ? 0 : x->bytes[TIER_DEVICE]);
    if (x->bytes[TIER_DISK] && disk_is_memory(x->o.disk_path))
        arenas += x->bytes[TIER_DISK];
    int failed = machine_probe(&m, e);
    if (failed || arenas <= m.memory_free_bytes)
        return failed;
    const tier named = device_is_gpu(d) ? TIER_HOST : TIER_DEVICE;
    const uint64_t most = m.memory_free_bytes - m.memory_free_bytes / 16, others = arenas - x->bytes[named];
    return pt_fail(e, PT_DOES_NOT_FIT,
                   "the plan takes %s of memory, but only %s are free on this machine or under its container's limit: end other programs, "
                   "raise the limit, or give `%s_memory` %s",
                   size_format(need, arenas), size_format(have, m.memory_free_bytes), tier_names[named],
                   size_option(give, size_round_down(most > others ? most - others : 0)));
}

/* Both arenas come from the device, which knows how to allocate host memory that it can copy fast. */
static int open_memory(executor *x, pt_error *e)
{
    device *d = x->o.device;
    int64_t tokens = tokens_of(x);
    if (device_is_gpu(d) && !x->o.input.host_tier)
        return pt_fail(e, PT_USAGE,
                       "%s has its own memory, which the disk reaches only through host memory: give a `host_memory`",
                       d->info.name);
    x->loss_at = align_up((uint64_t)tokens * BATCH_TOKEN_BYTES, 64);
    x->sumsq_at = align_up(x->loss_at + (uint64_t)tokens * LOSS_TOKEN_BYTES, 64);
    x->mailbox_bytes = x->sumsq_at + (uint64_t)sumsq_count(x->o.input.model) * sizeof(double);
    void *base;
    int failed = check_free(x, e);
    for (int t = TIER_DEVICE; t <= TIER_HOST && !failed; t++)
        if (x->bytes[t] && !(failed = d->table->memory_open(d, memory_of(t), x->bytes[t], &base, e)))
            x->arena[t] = base;
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, x->mailbox_bytes, &base, e)))
        x->mailbox = base;
    return failed;
}

static int open_disk(executor *x, pt_error *e)
{
    if (!x->bytes[TIER_DISK])
        return 0;
    int failed = disk_open(x->o.disk_path, x->bytes[TIER_DISK], x->o.disk, &x->disk, e);
    if (!failed)
        failed = disk_channel_open(x->disk, &x->reader, e);
    if (!failed)
        failed = disk_channel_open(x->disk, &x->writer, e);
    return failed;
}

static int open_queues(executor *x, pt_error *e)
{
    for (int q = 0; q < QUEUES; q++) {
        bool on_device = q <= QUEUE_FROM_DEVICE;
        device *d = on_device ? x->o.device : x->o.host;
        bool used = false;
        for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
            for (int i = 0; x->built[kind] && i < x->schedules[kind].tasks_n && !used; i++)
                used = x->schedules[kind].tasks[i].queue == (queue_kind)q;
        int threads = q == QUEUE_COMPUTE ? x->o.threads : q == QUEUE_HOST ? host_queue_threads(x->o.device, x->o.host, x->o.threads) : 1;
        int failed = used ? d->table->queue_open(d, queue_names[q], threads, &x->queues[q], e) : 0;
        if (failed)
            return failed;
    }
    return 0;
}

/* ---- life ---- */

static int put_rope(void *arg, size_t at, const float *part, size_t bytes, pt_error *e)
{
    executor *x = arg;
    uint64_t placement = 0;
    int failed = executor_move(x, executor_placement(x, OBJECT_ROPE, -1, &placement) + at, part, bytes, e);
    raise_peak(x, TIER_DEVICE, placement + at + bytes);
    return failed;
}

static int fill_rope(executor *x, pt_error *e)
{
    return model_rope_send(&x->o.input.model->config, x->o.input.shape->seq_len, put_rope, x, e);
}

static int open_outcome(executor *x, pt_error *e)
{
    const schedule_input *in = &x->o.input;
    const size_t ranks = (size_t)in->packing->ranks, sums = (size_t)sumsq_count(in->model);
    if (ranks < 2)
        return 0;
    if (!x->o.comm || x->o.comm->ranks != in->packing->ranks || x->o.comm->rank != in->packing->rank)
        return pt_fail(e, PT_FAILED, "the plan was made for %zu ranks, and this run has one: plan again", ranks);
    x->all = (outcome){malloc(2 * ranks * (size_t)tokens_of(x) * sizeof(float)), calloc(sums + 1, sizeof(double)),
                       malloc(ranks * sums * sizeof(double) + 1)};
    return x->all.losses && x->all.sums && x->all.of_rank ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

static bool take_times(executor *x)
{
    bool taken = true;
    for (int kind = 0; kind < SCHEDULE_KINDS && taken; kind++)
        taken = !x->built[kind] || (x->times[kind] = calloc((size_t)x->schedules[kind].tasks_n + 1, sizeof *x->times[kind]));
    return taken;
}

int executor_open(const executor_options *o, executor **out, pt_error *e)
{
    *out = NULL;
    executor *x = calloc(1, sizeof *x);
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    x->o = *o;
    int failed = build_schedules(x, e), most = 0;
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        most = x->schedules[kind].tasks_n > most ? x->schedules[kind].tasks_n : most;
    x->values = calloc((size_t)most + 1, sizeof *x->values);
    if (!failed && (!x->values || !take_times(x)))
        failed = pt_fail(e, PT_FAILED, "out of memory for a schedule of %d tasks", most);
    if (!failed)
        failed = open_memory(x, e);
    if (!failed)
        failed = open_disk(x, e);
    if (!failed)
        failed = open_queues(x, e);
    if (!failed)
        failed = open_outcome(x, e);
    if (!failed)
        failed = task_runner_open(&x->runner, &x->o.input, x->arena, x->mailbox, x->loss_at, x->sumsq_at, x->reader, x->writer, e);
    if (!failed)
        failed = exchanges_open(&x->runner, x->o.device_comm ? x->o.device_comm : x->o.comm, !x->o.device_comm, e);
    for (int kind = 0; kind < SCHEDULE_KINDS && !failed; kind++)
        if (x->built[kind])
            failed = exchanges_list(&x->runner, &x->schedules[kind], e);
    if (!failed) {
        memset(executor_input(x).first, 0, (size_t)tokens_of(x) * sizeof(int32_t));
        executor_place(x);
        failed = fill_rope(x, e);
    }
    if (failed) {
        executor_close(x);
        return failed;
    }
    *out = x;
    return 0;
}

void executor_close(executor *x)
{
    if (!x)
        return;
    for (int q = 0; q < QUEUES; q++)
        if (x->queues[q])
            x->queues[q]->device->table->queue_close(x->queues[q]);
    task_runner_close(&x->runner);
    disk_channel_close(x->reader);
    disk_channel_close(x->writer);
    disk_close(x->disk);
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
        if (x->arena[t])
            x->o.device->table->memory_close(x->o.device, memory_of(t), x->arena[t], x->bytes[t]);
    if (x->mailbox)
        x->o.device->table->memory_close(x->o.device, MEMORY_HOST, x->mailbox, x->mailbox_bytes);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        schedule_free(&x->schedules[kind]);
        free(x->times[kind]);
    }
    free(x->values);
    free(x->all.losses);
    free(x->all.sums);
    free(x->all.of_rank);
    free(x);
}

/* ---- running ---- */

executor_batch executor_input(executor *x)
{
    int32_t *base = (int32_t *)x->mailbox;
    int64_t n = tokens_of(x);
    return (executor_batch){base, base + n, base + 2 * n, base + 3 * n, (float *)base + 4 * n};
}

void executor_place(executor *x)
{
    const executor_batch b = executor_input(x);
    const int64_t len = x->o.input.shape->seq_len;
    for (int64_t i = 0; i < tokens_of(x); i++)
        b.positions[i] = (int32_t)(i % len) - b.first[i];
}

static void issue(executor *x, const schedule *s, int index, task_time *time)
{
    const task *t = &s->tasks[index];
    queue *q = x->queues[t->queue];
    for (int other = 0; other < QUEUES; other++)
        if (t->wait[other] >= 0)
            queue_wait(q, x->queues[other], x->values[t->wait[other]]);
    if (x->timing)
        queue_mark(q, &time->start_ns);
    task_run(&x->runner, s, t, q);
    if (x->timing)
        queue_mark(q, &time->end_ns);
    x->values[index] = queue_signal(q);
}

static void count_operands(executor *x, const schedule *s, const task *t)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &s->buffers[s->operands[i].buffer];
        raise_peak(x, b->tier, b->offset + b->bytes);
    }
}

/* Takes each partial sum from the rank that has its rows. */
static void choose_sums(executor *x)
{
    const packing *k = x->o.input.packing;
    const model *m = x->o.input.model;
    const int64_t n = sumsq_count(m);
    for (int i = 0; i < k->pieces_n; i++) {
        const piece *p = &k->pieces[i];
        for (int r = 0; r < k->ranks && m->params[p->param].trainable; r++) {
            const piece_share s = packing_share(k, m, p, r);
            const int64_t first = sumsq_index(m, p->param) + s.row0 / SUMSQ_ROWS, sums = (s.rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS;
            memcpy(x->all.sums + first, x->all.of_rank + r * n + first, (size_t)sums * sizeof(double));
        }
    }
}

/* Exchanges the results of the ranks. A rank that failed tells the others here. */
static int share_outcome(executor *x, schedule_kind kind, int failed, pt_error *e)
{
    comm *c = x->o.comm;
    pt_error own = {0};
    if (failed) {
        comm_abort(c, e ? e : &(pt_error){.code = failed, .text = "a step failed"});
        return failed;
    }
    if (kind == SCHEDULE_DRAIN)
        return 0;
    failed = comm_all_gather(c, x->mailbox + x->loss_at, (size_t)tokens_of(x) * sizeof(float), x->all.losses, &own);
    if (!failed)
        failed = comm_all_gather(c, x->mailbox + x->loss_at + (size_t)tokens_of(x) * sizeof(float), (size_t)tokens_of(x) * sizeof(float),
                                 x->all.losses + (size_t)tokens_of(x) * (size_t)c->ranks, &own);
    if (!failed && kind != SCHEDULE_EVAL)
        failed = comm_all_gather(c, x->mailbox + x->sumsq_at, (size_t)sumsq_count(x->o.input.model) * sizeof(double), x->all.of_rank, &own);
    if (!failed && kind != SCHEDULE_EVAL)
        choose_sums(x);
    if (failed && e)
        *e = own;
    return failed;
}

int executor_run(executor *x, schedule_kind kind, float loss_scale, const update_params *u, pt_error *e)
{
    const schedule *s = &x->schedules[kind];
    int last[QUEUES], failed = 0;
    memset(last, -1, sizeof last);
    if (!x->built[kind])
        return pt_fail(e, PT_FAILED, "this schedule was not asked for when the executor was opened");
    x->timed[kind] = x->timing;
    x->runner.loss_scale = loss_scale;
    if (u)
        x->runner.update = *u;
    failed = exchanges_of_step(&x->runner, s, x->o.comm, executor_input(x).ids, tokens_of(x), e);
    if (failed)
        return share_outcome(x, kind, failed, e);
    for (int i = 0; i < s->tasks_n; i++) {
        if (!x->ran[kind])
            count_operands(x, s, &s->tasks[i]);
        issue(x, s, i, &x->times[kind][i]);
        last[s->tasks[i].queue] = i;
    }
    x->ran[kind] = true;
    for (int q = 0; q < QUEUES; q++)
        if (last[q] >= 0) {
            pt_error one = {0};
            int code = queue_sync(x->queues[q], x->values[last[q]], &one);
            if (code && !failed) {
                failed = code;
                if (e)
                    *e = one;
            }
        }
    return x->all.losses ? share_outcome(x, kind, failed, e) : failed;
}

const float *executor_losses(const executor *x) { return x->all.losses ? x->all.losses : (const float *)(x->mailbox + x->loss_at); }
const float *executor_right(const executor *x) { return executor_losses(x) + tokens_of(x) * x->o.input.packing->ranks; }
const double *executor_sumsq(const executor *x) { return x->all.sums ? x->all.sums : (const double *)(x->mailbox + x->sumsq_at); }
comm *executor_comm(const executor *x) { return x->all.losses ? x->o.comm : NULL; }
const schedule *executor_schedule(const executor *x, schedule_kind kind) { return x->built[kind] ? &x->schedules[kind] : NULL; }
const schedule_input *executor_input_of(const executor *x) { return &x->o.input; }
int executor_threads(const executor *x) { return x->o.threads ? x->o.threads : x->o.host->info.threads; }
void executor_time_tasks(executor *x, bool on) { x->timing = on; }
const task_time *executor_times(const executor *x, schedule_kind kind) { return x->timed[kind] ? x->times[kind] : NULL; }
uint64_t executor_bytes(const executor *x, tier t) { return x->bytes[t]; }
uint64_t executor_peak_bytes(const executor *x, tier t) { return x->peak[t]; }

static const schedule *any_schedule(const executor *x)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        if (x->built[kind])
            return &x->schedules[kind];
    return NULL;
}

char *executor_placement(const executor *x, object_kind kind, int chunk, uint64_t *disk_offset)
{
    const schedule *s = any_schedule(x);
    for (int i = 0; s && i < s->placements_n; i++) {
        const buffer *b = &s->buffers[i];
        if (b->kind == kind && b->index == chunk) {
            *disk_offset = b->offset;
            return b->tier == TIER_DISK ? NULL : x->arena[b->tier] + b->offset;
        }
    }
    return NULL;
}

/* Loading and saving touch the placements of all chunks, and as the only ones the states of frozen chunks. */
static void count_placements(executor *x)
{
    const schedule *s = any_schedule(x);
    for (int i = 0; s && i < s->placements_n; i++)
        if (is_of_chunk(s->buffers[i].kind) && s->buffers[i].kind != OBJECT_GRADIENT)
            raise_peak(x, s->buffers[i].tier, s->buffers[i].offset + s->buffers[i].bytes);
}

char *executor_scratch(executor *x, uint64_t *bytes)
{
    tier t = schedule_scratch_tier(&x->o.input);
    uint64_t room = x->bytes[t] - x->scratch_offset;
    *bytes = *bytes < room ? *bytes : room;
    raise_peak(x, t, x->scratch_offset + *bytes);
    count_placements(x);
    return x->arena[t] + x->scratch_offset;
}

int executor_move(executor *x, void *to, const void *from, size_t bytes, pt_error *e)
{
    queue *q = x->queues[QUEUE_TO_DEVICE];
    queue_submit(q, &(op){from ? OP_COPY : OP_ZERO, .copy = {to, from, bytes}});
    return queue_sync(q, queue_signal(q), e);
}

int executor_disk(executor *x, bool write, uint64_t offset, void *memory, size_t bytes, pt_error *e)
{
    return write ? disk_write(x->writer, offset, memory, bytes, e) : disk_read(x->reader, offset, memory, bytes, e);
}
