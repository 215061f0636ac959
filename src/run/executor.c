#include "run/executor.h"

#include "base/units.h"
#include "comm/comm.h"
#include "io/files.h"
#include "machine/machine.h"
#include "schedule/check.h"
#include "run/exchanges.h"
#include "run/slots.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Losses and correct predictions (2, ranks, batch, seq_len), sums of all ranks, each rank's own sums as sent (ranks, sumsq_count), and the
 * choice of experts of all ranks' units. */
typedef struct outcome { float *losses; double *sums, *of_rank; int32_t *routing; } outcome;

struct executor {
    executor_options o;
    schedule schedules[SCHEDULE_KINDS];
    bool built[SCHEDULE_KINDS];
    uint64_t bytes[TIERS], scratch_offset;
    bool ran[SCHEDULE_KINDS];
    task_time *times[SCHEDULE_KINDS];
    bool timing, timed[SCHEDULE_KINDS]; /* the next run is timed; the last run of the schedule was timed */
    walker walker;        /* its mailbox is the loader's copy of the batch and of what a step ends with */
    size_t mailbox_bytes;
    outcome_place at;     /* in the mailbox */
    task_runner runner;
    outcome all;          /* with several ranks: the outcome of all */
};

static int64_t tokens_of(const executor *exec) { return exec->o.input.shape->batch * exec->o.input.shape->seq_len; }
static size_t routing_bytes_of(const executor *exec) { return routing_bytes(exec->o.input.model, exec->o.input.shape); }

/* ---- memory ---- */

static const schedule *any_schedule(const executor *exec)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        if (exec->built[kind])
            return &exec->schedules[kind];
    return NULL;
}

/* The schedules' needs are checked with them; loading and saving may need more. */
static int check_budgets(const executor *exec, pt_error *e)
{
    char need[32], have[32], ask[32];
    for (int t = 0; t < TIERS; t++)
        if (exec->bytes[t] > exec->o.budget[t])
            return pt_fail(e, PT_DOES_NOT_FIT,
                           "the plan needs %s of %s memory, loading and saving included, but the budget is %s: give `%s_memory` %s, or "
                           "plan again",
                           size_format(need, exec->bytes[t]), tier_names[t], size_format(have, exec->o.budget[t]), tier_names[t],
                           size_option(ask, exec->bytes[t] + (t == TIER_DEVICE ? exec->o.device->info.threads_bytes : 0)));
    return 0;
}

static int build_schedules(executor *exec, pt_error *e)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        if (!(exec->o.schedules & 1u << kind))
            continue;
        int failed = schedule_build(&exec->o.input, kind, &exec->schedules[kind], e);
        if (failed)
            return failed;
        exec->built[kind] = true;
        failed = schedule_check(&exec->o.input, &exec->schedules[kind], exec->o.budget, e);
        if (failed)
            return failed;
        schedule_raise_bytes(&exec->o.input, &exec->schedules[kind], exec->bytes);
        exec->scratch_offset = exec->schedules[kind].lasting_bytes[schedule_scratch_tier(&exec->o.input)];
    }
    return check_budgets(exec, e);
}

/* The kernel kills a process that exceeds its container's limit without a message, so check before allocating. */
static int check_free(const executor *exec, pt_error *e)
{
    const device *d = exec->o.device;
    char need[32], have[32], give[32];
    machine m;
    uint64_t arenas = exec->bytes[TIER_HOST] + exec->mailbox_bytes + (device_is_gpu(d) ? 0 : exec->bytes[TIER_DEVICE]);
    if (exec->bytes[TIER_DISK] && !exec->o.slots && disk_is_memory(exec->o.disk_path)) /* slots are there already */
        arenas += exec->bytes[TIER_DISK];
    int failed = machine_probe(&m, e);
    if (failed || arenas <= m.memory_free_bytes)
        return failed;
    const tier named = device_is_gpu(d) ? TIER_HOST : TIER_DEVICE;
    const uint64_t most = m.memory_free_bytes - m.memory_free_bytes / 16, others = arenas - exec->bytes[named];
    return pt_fail(e, PT_DOES_NOT_FIT,
                   "the plan takes %s of memory, but only %s are free on this machine or under its container's limit: end other programs, "
                   "raise the limit, or give `%s_memory` %s",
                   size_format(need, arenas), size_format(have, m.memory_free_bytes), tier_names[named],
                   size_option(give, size_round_down(most > others ? most - others : 0)));
}

static void place_outcome(executor *exec)
{
    const uint64_t tokens = (uint64_t)tokens_of(exec);
    exec->at.loss = align_up(tokens * batch_token_bytes(exec->o.input.model, exec->o.input.shape), 64);
    exec->at.sumsq = align_up(exec->at.loss + loss_bytes(exec->o.input.shape), 64);
    exec->at.routing = align_up(exec->at.sumsq + (uint64_t)sumsq_count(exec->o.input.model) * sizeof(double), 64);
    exec->mailbox_bytes = exec->at.routing + routing_bytes_of(exec);
}

/* The parts of the disk tier's file for what lies in slots instead, in the order of placements. */
static disk_range *find_holes(const executor *exec, int *n)
{
    const schedule *sched = any_schedule(exec);
    disk_range *holes = malloc((size_t)(sched->placements_n + 1) * sizeof *holes);
    *n = 0;
    for (int i = 0; holes && i < sched->placements_n; i++) {
        const buffer *b = &sched->buffers[i];
        const bool slotted = is_of_chunk(b->kind) && b->kind != OBJECT_GRADIENT && exec->o.input.packing->chunks[b->index].trained;
        if (b->tier == TIER_DISK && slotted && b->bytes)
            holes[(*n)++] = (disk_range){b->offset, align_up(b->bytes, DISK_ALIGN)};
    }
    return holes;
}

static int open_walker(executor *exec, pt_error *e)
{
    const device *d = exec->o.device;
    walker_options o = {.device = exec->o.device,
                        .host = exec->o.host,
                        .disk_path = exec->o.disk_path,
                        .disk = exec->o.disk,
                        .slots = exec->o.slots,
                        .threads = exec->o.threads};
    if (device_is_gpu(d) && !exec->o.input.host_tier)
        return pt_fail(e, PT_USAGE,
                       "%s has its own memory, which the disk reaches only through host memory: give a `host_memory`",
                       d->info.name);
    place_outcome(exec);
    o.mailbox_bytes = exec->mailbox_bytes;
    memcpy(o.bytes, exec->bytes, sizeof o.bytes);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        o.queues |= walker_queues_of(&exec->schedules[kind]);
        o.tasks_n = exec->schedules[kind].tasks_n > o.tasks_n ? exec->schedules[kind].tasks_n : o.tasks_n;
    }
    int failed = check_free(exec, e);
    disk_options disk = exec->o.disk ? *exec->o.disk : (disk_options){0};
    disk_range *holes = NULL;
    if (!failed && exec->o.slots) {
        holes = find_holes(exec, &disk.holes_n);
        disk.holes = holes;
        o.disk = &disk;
        failed = holes ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    }
    if (!failed)
        failed = walker_open(&exec->walker, &o, e);
    exec->walker.o.disk = exec->o.disk;
    free(holes);
    return failed;
}

/* ---- life ---- */

static int put_rope(void *arg, size_t at, const float *part, size_t bytes, pt_error *e)
{
    executor *exec = arg;
    uint64_t placement = 0;
    int failed = executor_move(exec, executor_placement(exec, OBJECT_ROPE, -1, &placement) + at, part, bytes, e);
    walker_raise_peak(&exec->walker, TIER_DEVICE, placement + at + bytes);
    return failed;
}

static int fill_rope(executor *exec, pt_error *e)
{
    return model_rope_send(&exec->o.input.model->config, shape_length(exec->o.input.shape), put_rope, exec, e);
}

static int open_outcome(executor *exec, pt_error *e)
{
    const schedule_input *in = &exec->o.input;
    const size_t ranks = (size_t)in->packing->ranks, sums = (size_t)sumsq_count(in->model);
    if (ranks < 2)
        return 0;
    if (!exec->o.comm || exec->o.comm->ranks != in->packing->ranks || exec->o.comm->rank != in->packing->rank)
        return pt_fail(e, PT_FAILED, "the plan was made for %zu ranks, and this run has one: plan again", ranks);
    exec->all = (outcome){malloc(2 * ranks * (size_t)tokens_of(exec) * sizeof(float)), calloc(sums + 1, sizeof(double)),
                       malloc(ranks * sums * sizeof(double) + 1), malloc(ranks * routing_bytes_of(exec) + 1)};
    return exec->all.losses && exec->all.sums && exec->all.of_rank && exec->all.routing ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

static bool take_times(executor *exec)
{
    bool taken = true;
    for (int kind = 0; kind < SCHEDULE_KINDS && taken; kind++)
        taken = !exec->built[kind] || (exec->times[kind] = calloc((size_t)exec->schedules[kind].tasks_n + 1, sizeof *exec->times[kind]));
    return taken;
}

int executor_open(const executor_options *o, executor **out, pt_error *e)
{
    *out = NULL;
    executor *exec = calloc(1, sizeof *exec);
    if (!exec)
        return pt_fail(e, PT_FAILED, "out of memory");
    exec->o = *o;
    int failed = build_schedules(exec, e);
    if (!failed && !take_times(exec))
        failed = pt_fail(e, PT_FAILED, "out of memory for the times of tasks");
    if (!failed)
        failed = open_walker(exec, e);
    if (!failed)
        failed = open_outcome(exec, e);
    if (!failed)
        failed = task_runner_open(&exec->runner, &exec->o.input, &exec->walker, &exec->at, e);
    if (!failed)
        failed = exchanges_open(&exec->runner, exec->o.device_comm ? exec->o.device_comm : exec->o.comm, !exec->o.device_comm, e);
    for (int kind = 0; kind < SCHEDULE_KINDS && !failed; kind++)
        if (exec->built[kind])
            failed = exchanges_list(&exec->runner, &exec->schedules[kind], e);
    if (!failed) {
        memset(executor_input(exec).first, 0, (size_t)tokens_of(exec) * sizeof(int32_t));
        executor_place(exec);
        failed = fill_rope(exec, e);
    }
    if (failed) {
        executor_close(exec);
        return failed;
    }
    *out = exec;
    return 0;
}

void executor_close(executor *exec)
{
    if (!exec)
        return;
    walker_close(&exec->walker); /* ends the queues, which run the runner's tasks */
    task_runner_close(&exec->runner);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        schedule_free(&exec->schedules[kind]);
        free(exec->times[kind]);
    }
    free(exec->all.losses);
    free(exec->all.sums);
    free(exec->all.of_rank);
    free(exec->all.routing);
    free(exec);
}

/* ---- running ---- */

executor_batch executor_input(executor *exec)
{
    int32_t *base = (int32_t *)exec->walker.mailbox;
    int64_t n = tokens_of(exec);
    return (executor_batch){base, base + n, base + 2 * n, base + 3 * n, (float *)base + 4 * n};
}

void executor_place(executor *exec)
{
    const executor_batch b = executor_input(exec);
    for (int64_t i = 0; i < tokens_of(exec); i++)
        b.positions[i] = (int32_t)shape_position(exec->o.input.shape, i) - b.first[i];
}

static void run_task(void *arg, const schedule *sched, const task *t, queue *q)
{
    executor *exec = arg;
    task_run(&exec->runner, sched, t, q);
}

/* Takes each partial sum from the rank that has its rows. */
static void choose_sums(executor *exec)
{
    const packing *packing = exec->o.input.packing;
    const model *m = exec->o.input.model;
    const int64_t n = sumsq_count(m);
    for (int i = 0; i < packing->pieces_n; i++) {
        const piece *piece = &packing->pieces[i];
        for (int r = 0; r < packing->ranks && m->params[piece->param].trainable; r++) {
            const piece_share s = packing_share(packing, m, piece, r);
            const int64_t first = sumsq_index(m, piece->param) + s.row0 / SUMSQ_ROWS, sums = (s.rows + SUMSQ_ROWS - 1) / SUMSQ_ROWS;
            memcpy(exec->all.sums + first, exec->all.of_rank + r * n + first, (size_t)sums * sizeof(double));
        }
    }
}

/* Exchanges the results of the ranks. A rank that failed tells the others here. */
static int share_outcome(executor *exec, schedule_kind kind, int failed, pt_error *e)
{
    const size_t tokens = (size_t)tokens_of(exec), sums = (size_t)sumsq_count(exec->o.input.model);
    const char *losses = exec->walker.mailbox + exec->at.loss;
    comm *c = exec->o.comm;
    pt_error own = {0};
    if (failed) {
        comm_abort(c, e ? e : &(pt_error){.code = failed, .text = "a step failed"});
        return failed;
    }
    if (kind == SCHEDULE_DRAIN)
        return 0;
    failed = comm_all_gather(c, losses, tokens * sizeof(float), exec->all.losses, &own);
    if (!failed)
        failed = comm_all_gather(c, losses + tokens * sizeof(float), tokens * sizeof(float), exec->all.losses + tokens * (size_t)c->ranks,
                                 &own);
    if (!failed && kind != SCHEDULE_EVAL)
        failed = comm_all_gather(c, exec->walker.mailbox + exec->at.sumsq, sums * sizeof(double), exec->all.of_rank, &own);
    if (!failed && kind != SCHEDULE_EVAL && routing_bytes_of(exec))
        failed = comm_all_gather(c, exec->walker.mailbox + exec->at.routing, routing_bytes_of(exec), exec->all.routing, &own);
    if (!failed && kind != SCHEDULE_EVAL)
        choose_sums(exec);
    if (failed && e)
        *e = own;
    return failed;
}

int executor_run(executor *exec, schedule_kind kind, float loss_scale, const update_params *u, pt_error *e)
{
    if (!exec->built[kind])
        return pt_fail(e, PT_FAILED, "this schedule was not asked for when the executor was opened");
    const schedule *sched = &exec->schedules[kind];
    exec->timed[kind] = exec->timing;
    exec->runner.loss_scale = loss_scale;
    if (u)
        exec->runner.update = *u;
    const executor_batch b = executor_input(exec);
    int failed = 0;
    if (kind == SCHEDULE_STEP || kind == SCHEDULE_STEP_UPDATE)
        failed = listed_rows_begin(&exec->runner.listed, exec->o.comm, b.ids, tokens_of(exec), (int32_t *)b.weights + tokens_of(exec),
                                   (int32_t *)b.weights + 2 * tokens_of(exec), e);
    if (!failed)
        failed = exchanges_of_step(&exec->runner, sched, exec->o.comm, b.ids, tokens_of(exec), e);
    if (failed)
        return share_outcome(exec, kind, failed, e);
    walker_submit(
        &exec->walker,
        &(walk){
            .schedule = sched, .first = !exec->ran[kind], .times = exec->timing ? exec->times[kind] : NULL, .run = run_task, .arg = exec});
    exec->ran[kind] = true;
    failed = walker_sync(&exec->walker, e);
    return exec->all.losses ? share_outcome(exec, kind, failed, e) : failed;
}

void executor_set_baseline(executor *exec, float baseline) { exec->runner.baseline = baseline; }
void executor_set_dropout(executor *exec, uint64_t key) { exec->runner.dropout = key; }

const float *executor_losses(const executor *exec)
{
    return exec->all.losses ? exec->all.losses : (const float *)(exec->walker.mailbox + exec->at.loss);
}
const float *executor_right(const executor *exec) { return executor_losses(exec) + tokens_of(exec) * exec->o.input.packing->ranks; }
const float *executor_scores(const executor *exec) { return executor_right(exec) + tokens_of(exec); }
const double *executor_sumsq(const executor *exec)
{
    return exec->all.sums ? exec->all.sums : (const double *)(exec->walker.mailbox + exec->at.sumsq);
}
const int32_t *executor_routing(const executor *exec)
{
    return exec->all.routing ? exec->all.routing : (const int32_t *)(exec->walker.mailbox + exec->at.routing);
}
comm *executor_comm(const executor *exec) { return exec->all.losses ? exec->o.comm : NULL; }
const schedule *executor_schedule(const executor *exec, schedule_kind kind) { return exec->built[kind] ? &exec->schedules[kind] : NULL; }
const schedule_input *executor_input_of(const executor *exec) { return &exec->o.input; }
int executor_threads(const executor *exec) { return exec->o.threads ? exec->o.threads : exec->o.host->info.threads; }
void executor_time_tasks(executor *exec, bool on) { exec->timing = on; }
const task_time *executor_times(const executor *exec, schedule_kind kind) { return exec->timed[kind] ? exec->times[kind] : NULL; }
uint64_t executor_bytes(const executor *exec, tier t) { return exec->bytes[t]; }
uint64_t executor_peak_bytes(const executor *exec, tier t) { return exec->walker.peak[t]; }

char *executor_placement(const executor *exec, object_kind kind, int chunk, uint64_t *disk_offset)
{
    const schedule *sched = any_schedule(exec);
    const buffer *b = sched ? walker_placement(sched, kind, chunk) : NULL;
    if (!b)
        return NULL;
    *disk_offset = b->offset;
    return b->tier == TIER_DISK ? NULL : exec->walker.arena[b->tier] + b->offset;
}

/* Loading and saving touch the placements of all chunks, and as the only ones the states of frozen chunks. */
static void count_placements(executor *exec)
{
    const schedule *sched = any_schedule(exec);
    for (int i = 0; sched && i < sched->placements_n; i++)
        if (is_of_chunk(sched->buffers[i].kind) && sched->buffers[i].kind != OBJECT_GRADIENT)
            walker_raise_peak(&exec->walker, sched->buffers[i].tier, sched->buffers[i].offset + sched->buffers[i].bytes);
}

char *executor_scratch(executor *exec, uint64_t *bytes)
{
    tier t = schedule_scratch_tier(&exec->o.input);
    uint64_t room = exec->bytes[t] - exec->scratch_offset;
    *bytes = *bytes < room ? *bytes : room;
    walker_raise_peak(&exec->walker, t, exec->scratch_offset + *bytes);
    count_placements(exec);
    return exec->walker.arena[t] + exec->scratch_offset;
}

int executor_move(executor *exec, void *to, const void *from, size_t bytes, pt_error *e)
{
    queue *q = exec->walker.queues[QUEUE_TO_DEVICE];
    queue_submit(q, &(op){from ? OP_COPY : OP_ZERO, .copy = {to, from, bytes}});
    return queue_sync(q, queue_signal(q), e);
}

int executor_disk(executor *exec, bool write, object_kind kind, int chunk, void *memory, pt_error *e)
{
    const schedule *sched = any_schedule(exec);
    const op_disk o = walker_disk(&exec->walker, write, walker_placement(sched, kind, chunk), memory);
    return write ? disk_write_summed(o.channel, o.offset, memory, o.bytes, o.sum, e) : disk_read(o.channel, o.offset, memory, o.bytes, e);
}
