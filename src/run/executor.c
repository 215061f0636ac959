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

static int64_t tokens_of(const executor *x) { return x->o.input.shape->batch * x->o.input.shape->seq_len; }
static size_t routing_bytes_of(const executor *x) { return routing_bytes(x->o.input.model, x->o.input.shape); }

/* ---- memory ---- */

static const schedule *any_schedule(const executor *x)
{
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        if (x->built[kind])
            return &x->schedules[kind];
    return NULL;
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

/* The kernel kills a process that exceeds its container's limit without a message, so check before allocating. */
static int check_free(const executor *x, pt_error *e)
{
    const device *d = x->o.device;
    char need[32], have[32], give[32];
    machine m;
    uint64_t arenas = x->bytes[TIER_HOST] + x->mailbox_bytes + (device_is_gpu(d) ? 0 : x->bytes[TIER_DEVICE]);
    if (x->bytes[TIER_DISK] && !x->o.slots && disk_is_memory(x->o.disk_path)) /* slots are there already */
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

static void place_outcome(executor *x)
{
    const uint64_t tokens = (uint64_t)tokens_of(x);
    x->at.loss = align_up(tokens * batch_token_bytes(x->o.input.model, x->o.input.shape), 64);
    x->at.sumsq = align_up(x->at.loss + loss_bytes(x->o.input.shape), 64);
    x->at.routing = align_up(x->at.sumsq + (uint64_t)sumsq_count(x->o.input.model) * sizeof(double), 64);
    x->mailbox_bytes = x->at.routing + routing_bytes_of(x);
}

/* The parts of the disk tier's file for what lies in slots instead, in the order of placements. */
static disk_range *find_holes(const executor *x, int *n)
{
    const schedule *s = any_schedule(x);
    disk_range *holes = malloc((size_t)(s->placements_n + 1) * sizeof *holes);
    *n = 0;
    for (int i = 0; holes && i < s->placements_n; i++) {
        const buffer *b = &s->buffers[i];
        const bool slotted = is_of_chunk(b->kind) && b->kind != OBJECT_GRADIENT && x->o.input.packing->chunks[b->index].trained;
        if (b->tier == TIER_DISK && slotted && b->bytes)
            holes[(*n)++] = (disk_range){b->offset, align_up(b->bytes, DISK_ALIGN)};
    }
    return holes;
}

static int open_walker(executor *x, pt_error *e)
{
    const device *d = x->o.device;
    walker_options o = {.device = x->o.device, .host = x->o.host, .disk_path = x->o.disk_path, .disk = x->o.disk, .slots = x->o.slots,
                        .threads = x->o.threads};
    if (device_is_gpu(d) && !x->o.input.host_tier)
        return pt_fail(e, PT_USAGE,
                       "%s has its own memory, which the disk reaches only through host memory: give a `host_memory`",
                       d->info.name);
    place_outcome(x);
    o.mailbox_bytes = x->mailbox_bytes;
    memcpy(o.bytes, x->bytes, sizeof o.bytes);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        o.queues |= walker_queues_of(&x->schedules[kind]);
        o.tasks_n = x->schedules[kind].tasks_n > o.tasks_n ? x->schedules[kind].tasks_n : o.tasks_n;
    }
    int failed = check_free(x, e);
    disk_options disk = x->o.disk ? *x->o.disk : (disk_options){0};
    disk_range *holes = NULL;
    if (!failed && x->o.slots) {
        holes = find_holes(x, &disk.holes_n);
        disk.holes = holes;
        o.disk = &disk;
        failed = holes ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    }
    if (!failed)
        failed = walker_open(&x->walker, &o, e);
    x->walker.o.disk = x->o.disk;
    free(holes);
    return failed;
}

/* ---- life ---- */

static int put_rope(void *arg, size_t at, const float *part, size_t bytes, pt_error *e)
{
    executor *x = arg;
    uint64_t placement = 0;
    int failed = executor_move(x, executor_placement(x, OBJECT_ROPE, -1, &placement) + at, part, bytes, e);
    walker_raise_peak(&x->walker, TIER_DEVICE, placement + at + bytes);
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
                       malloc(ranks * sums * sizeof(double) + 1), malloc(ranks * routing_bytes_of(x) + 1)};
    return x->all.losses && x->all.sums && x->all.of_rank && x->all.routing ? 0 : pt_fail(e, PT_FAILED, "out of memory");
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
    int failed = build_schedules(x, e);
    if (!failed && !take_times(x))
        failed = pt_fail(e, PT_FAILED, "out of memory for the times of tasks");
    if (!failed)
        failed = open_walker(x, e);
    if (!failed)
        failed = open_outcome(x, e);
    if (!failed)
        failed = task_runner_open(&x->runner, &x->o.input, &x->walker, &x->at, e);
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
    walker_close(&x->walker); /* ends the queues, which run the runner's tasks */
    task_runner_close(&x->runner);
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++) {
        schedule_free(&x->schedules[kind]);
        free(x->times[kind]);
    }
    free(x->all.losses);
    free(x->all.sums);
    free(x->all.of_rank);
    free(x->all.routing);
    free(x);
}

/* ---- running ---- */

executor_batch executor_input(executor *x)
{
    int32_t *base = (int32_t *)x->walker.mailbox;
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

static void run_task(void *arg, const schedule *s, const task *t, queue *q)
{
    executor *x = arg;
    task_run(&x->runner, s, t, q);
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
    const size_t tokens = (size_t)tokens_of(x), sums = (size_t)sumsq_count(x->o.input.model);
    const char *losses = x->walker.mailbox + x->at.loss;
    comm *c = x->o.comm;
    pt_error own = {0};
    if (failed) {
        comm_abort(c, e ? e : &(pt_error){.code = failed, .text = "a step failed"});
        return failed;
    }
    if (kind == SCHEDULE_DRAIN)
        return 0;
    failed = comm_all_gather(c, losses, tokens * sizeof(float), x->all.losses, &own);
    if (!failed)
        failed = comm_all_gather(c, losses + tokens * sizeof(float), tokens * sizeof(float), x->all.losses + tokens * (size_t)c->ranks,
                                 &own);
    if (!failed && kind != SCHEDULE_EVAL)
        failed = comm_all_gather(c, x->walker.mailbox + x->at.sumsq, sums * sizeof(double), x->all.of_rank, &own);
    if (!failed && kind != SCHEDULE_EVAL && routing_bytes_of(x))
        failed = comm_all_gather(c, x->walker.mailbox + x->at.routing, routing_bytes_of(x), x->all.routing, &own);
    if (!failed && kind != SCHEDULE_EVAL)
        choose_sums(x);
    if (failed && e)
        *e = own;
    return failed;
}

int executor_run(executor *x, schedule_kind kind, float loss_scale, const update_params *u, pt_error *e)
{
    if (!x->built[kind])
        return pt_fail(e, PT_FAILED, "this schedule was not asked for when the executor was opened");
    const schedule *s = &x->schedules[kind];
    x->timed[kind] = x->timing;
    x->runner.loss_scale = loss_scale;
    if (u)
        x->runner.update = *u;
    const executor_batch b = executor_input(x);
    if (kind == SCHEDULE_STEP || kind == SCHEDULE_STEP_UPDATE)
        listed_rows_begin(&x->runner.listed, b.ids, tokens_of(x), (int32_t *)b.weights + tokens_of(x),
                            (int32_t *)b.weights + 2 * tokens_of(x));
    int failed = exchanges_of_step(&x->runner, s, x->o.comm, b.ids, tokens_of(x), e);
    if (failed)
        return share_outcome(x, kind, failed, e);
    walker_submit(&x->walker, &(walk){.schedule = s, .first = !x->ran[kind], .times = x->timing ? x->times[kind] : NULL, .run = run_task,
                                      .arg = x});
    x->ran[kind] = true;
    failed = walker_sync(&x->walker, e);
    return x->all.losses ? share_outcome(x, kind, failed, e) : failed;
}

void executor_set_baseline(executor *x, float baseline) { x->runner.baseline = baseline; }
void executor_set_dropout(executor *x, uint64_t key) { x->runner.dropout = key; }

const float *executor_losses(const executor *x) { return x->all.losses ? x->all.losses : (const float *)(x->walker.mailbox + x->at.loss); }
const float *executor_right(const executor *x) { return executor_losses(x) + tokens_of(x) * x->o.input.packing->ranks; }
const float *executor_scores(const executor *x) { return executor_right(x) + tokens_of(x); }
const double *executor_sumsq(const executor *x) { return x->all.sums ? x->all.sums : (const double *)(x->walker.mailbox + x->at.sumsq); }
const int32_t *executor_routing(const executor *x)
{
    return x->all.routing ? x->all.routing : (const int32_t *)(x->walker.mailbox + x->at.routing);
}
comm *executor_comm(const executor *x) { return x->all.losses ? x->o.comm : NULL; }
const schedule *executor_schedule(const executor *x, schedule_kind kind) { return x->built[kind] ? &x->schedules[kind] : NULL; }
const schedule_input *executor_input_of(const executor *x) { return &x->o.input; }
int executor_threads(const executor *x) { return x->o.threads ? x->o.threads : x->o.host->info.threads; }
void executor_time_tasks(executor *x, bool on) { x->timing = on; }
const task_time *executor_times(const executor *x, schedule_kind kind) { return x->timed[kind] ? x->times[kind] : NULL; }
uint64_t executor_bytes(const executor *x, tier t) { return x->bytes[t]; }
uint64_t executor_peak_bytes(const executor *x, tier t) { return x->walker.peak[t]; }

char *executor_placement(const executor *x, object_kind kind, int chunk, uint64_t *disk_offset)
{
    const schedule *s = any_schedule(x);
    const buffer *b = s ? walker_placement(s, kind, chunk) : NULL;
    if (!b)
        return NULL;
    *disk_offset = b->offset;
    return b->tier == TIER_DISK ? NULL : x->walker.arena[b->tier] + b->offset;
}

/* Loading and saving touch the placements of all chunks, and as the only ones the states of frozen chunks. */
static void count_placements(executor *x)
{
    const schedule *s = any_schedule(x);
    for (int i = 0; s && i < s->placements_n; i++)
        if (is_of_chunk(s->buffers[i].kind) && s->buffers[i].kind != OBJECT_GRADIENT)
            walker_raise_peak(&x->walker, s->buffers[i].tier, s->buffers[i].offset + s->buffers[i].bytes);
}

char *executor_scratch(executor *x, uint64_t *bytes)
{
    tier t = schedule_scratch_tier(&x->o.input);
    uint64_t room = x->bytes[t] - x->scratch_offset;
    *bytes = *bytes < room ? *bytes : room;
    walker_raise_peak(&x->walker, t, x->scratch_offset + *bytes);
    count_placements(x);
    return x->walker.arena[t] + x->scratch_offset;
}

int executor_move(executor *x, void *to, const void *from, size_t bytes, pt_error *e)
{
    queue *q = x->walker.queues[QUEUE_TO_DEVICE];
    queue_submit(q, &(op){from ? OP_COPY : OP_ZERO, .copy = {to, from, bytes}});
    return queue_sync(q, queue_signal(q), e);
}

int executor_disk(executor *x, bool write, object_kind kind, int chunk, void *memory, pt_error *e)
{
    const schedule *s = any_schedule(x);
    const op_disk o = walker_disk(&x->walker, write, walker_placement(s, kind, chunk), memory);
    return write ? disk_write_summed(o.channel, o.offset, memory, o.bytes, o.sum, e) : disk_read(o.channel, o.offset, memory, o.bytes, e);
}
