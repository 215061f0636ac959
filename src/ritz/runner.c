#include "ritz/runner.h"

#include "base/units.h"
#include "schedule/check.h"

#include <stdlib.h>
#include <string.h>

struct ritz_runner {
    ritz_runner_options o;
    schedule schedules[RITZ_PROGRAMS];
    ritz_layout layouts[RITZ_PROGRAMS];
    bool built[RITZ_PROGRAMS], ran[RITZ_PROGRAMS];
    bool uses[RITZ_PROGRAMS][QUEUES]; /* the program has tasks there */
    bool *awaited[RITZ_PROGRAMS];     /* tasks whose end somebody waits for */
    uint64_t bytes[TIERS], peak[TIERS];
    char *arena[TIERS], *mailbox;
    disk_file *disk;
    disk_channel *reader, *writer;
    queue *queues[QUEUES];
    uint64_t *values;          /* timeline value behind each task of the run that is submitted */
    uint64_t last[QUEUES];     /* of all that was submitted; 0: nothing */
    ritz_update update;
};

/* ---- memory ---- */

static void raise_bytes(const schedule *s, uint64_t bytes[TIERS])
{
    for (int t = 0; t < TIERS; t++)
        bytes[t] = s->bytes[t] > bytes[t] ? s->bytes[t] : bytes[t];
}

int ritz_plan_bytes(const ritz_space *s, const plan *p, uint64_t bytes[TIERS], pt_error *e)
{
    memset(bytes, 0, TIERS * sizeof *bytes);
    for (int k = 0; k < RITZ_PROGRAMS; k++) {
        schedule one;
        if (!ritz_has_program(s, (ritz_program)k))
            continue;
        int failed = ritz_schedule_place(s, p, (ritz_program)k, &one, e);
        if (failed)
            return failed;
        raise_bytes(&one, bytes);
        schedule_free(&one);
    }
    return 0;
}

/* ---- what may be put off ----
 *
 * A queue may take a few rows through the tasks of several groups before the next rows (device.h, op_rows). That is right as long as a
 * row lies where it does for all of them: in the workspace it does (network.c: every activated stage is as wide as the network, and groups
 * have the same places there). Where a buffer lies over another one, whose rows other tasks are still to read, a signal comes between. */

enum { BUFFERS_PUT_OFF = 1024 };
typedef struct put_off { int n, buffers[BUFFERS_PUT_OFF]; } put_off;

static bool lies_over(const schedule *s, int a, int b)
{
    const buffer *x = &s->buffers[a], *y = &s->buffers[b];
    return a != b && x->tier == y->tier && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static bool may_join(const schedule *s, const task *t, const put_off *p)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++)
        for (int k = 0; k < p->n; k++)
            if (lies_over(s, s->operands[i].buffer, p->buffers[k]))
                return false;
    return p->n + t->operands_n <= BUFFERS_PUT_OFF;
}

static void join(const schedule *s, const task *t, put_off *p)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n && p->n < BUFFERS_PUT_OFF; i++) {
        int k = 0;
        while (k < p->n && p->buffers[k] != s->operands[i].buffer)
            k++;
        p->buffers[k] = s->operands[i].buffer;
        p->n += k == p->n;
    }
}

/* Signals between tasks that must not be put off together. */
static void keep_apart(const schedule *s, bool *awaited)
{
    put_off p = {0};
    for (int i = 0, last = -1; i < s->tasks_n; i++) {
        const task *t = &s->tasks[i];
        if (t->queue != QUEUE_COMPUTE)
            continue;
        if (last >= 0 && !may_join(s, t, &p))
            awaited[last] = true;
        if (last >= 0 && awaited[last])
            p.n = 0;
        join(s, t, &p);
        last = i;
    }
}

/* Those that other tasks wait for, and the last one of each queue. A signal ends what may be put off (device.h, op_rows). */
static bool find_awaited(const schedule *s, bool **out)
{
    bool *awaited = *out = calloc((size_t)s->tasks_n + 1, sizeof *awaited), there[QUEUES] = {false};
    for (int i = s->tasks_n - 1; awaited && i >= 0; i--) {
        const task *t = &s->tasks[i];
        awaited[i] |= !there[t->queue];
        there[t->queue] = true;
        for (int q = 0; q < QUEUES; q++)
            if (t->wait[q] >= 0)
                awaited[t->wait[q]] = true;
    }
    if (awaited)
        keep_apart(s, awaited);
    return awaited;
}

static int build(ritz_runner *x, pt_error *e)
{
    const ritz_space *s = x->o.space;
    for (int k = 0; k < RITZ_PROGRAMS; k++) {
        if (!ritz_has_program(s, (ritz_program)k))
            continue;
        int failed = ritz_schedule_build(s, x->o.plan, (ritz_program)k, &x->schedules[k], e);
        if (failed)
            return failed;
        x->built[k] = true;
        ritz_program_layout(s, x->o.plan, (ritz_program)k, &x->layouts[k]);
        failed = schedule_check_moves(&x->schedules[k], SWEEPS * s->net->groups_n, s->chunks_n, x->o.budget, e);
        if (failed)
            return failed;
        if (!find_awaited(&x->schedules[k], &x->awaited[k]))
            return pt_fail(e, PT_FAILED, "out of memory for a schedule");
        raise_bytes(&x->schedules[k], x->bytes);
        for (int i = 0; i < x->schedules[k].tasks_n; i++)
            x->uses[k][x->schedules[k].tasks[i].queue] = true;
    }
    return 0;
}

static memory_kind memory_of(int t) { return t == TIER_DEVICE ? MEMORY_DEVICE : MEMORY_HOST; }

static int open_memory(ritz_runner *x, pt_error *e)
{
    device *d = x->o.device;
    void *base;
    int failed = 0;
    for (int t = TIER_DEVICE; t <= TIER_HOST && !failed; t++)
        if (x->bytes[t] && !(failed = d->table->memory_open(d, memory_of(t), x->bytes[t], &base, e)))
            x->arena[t] = base;
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, x->o.mailbox_bytes, &base, e)))
        x->mailbox = base;
    if (failed || !x->bytes[TIER_DISK])
        return failed;
    failed = disk_open(x->o.disk_path, x->bytes[TIER_DISK], NULL, &x->disk, e);
    if (!failed)
        failed = disk_channel_open(x->disk, &x->reader, e);
    return failed ? failed : disk_channel_open(x->disk, &x->writer, e);
}

static bool is_used(const ritz_runner *x, int q)
{
    bool used = q == QUEUE_COMPUTE;
    for (int k = 0; k < RITZ_PROGRAMS; k++)
        used = used || x->uses[k][q];
    return used;
}

static int open_queues(ritz_runner *x, pt_error *e)
{
    int failed = 0;
    for (int q = 0; q < QUEUES && !failed; q++) {
        device *d = q <= QUEUE_FROM_DEVICE ? x->o.device : x->o.host;
        const int threads = q == QUEUE_COMPUTE ? x->o.threads
            : q == QUEUE_HOST ? host_queue_threads(x->o.device, x->o.host, x->o.threads) : 1;
        if (is_used(x, q))
            failed = d->table->queue_open(d, queue_names[q], threads, &x->queues[q], e);
    }
    return failed;
}

int ritz_runner_open(const ritz_runner_options *o, ritz_runner **out, pt_error *e)
{
    ritz_runner *x = calloc(1, sizeof *x);
    int most = 0;
    *out = NULL;
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    x->o = *o;
    int failed = build(x, e);
    for (int k = 0; k < RITZ_PROGRAMS; k++)
        most = x->schedules[k].tasks_n > most ? x->schedules[k].tasks_n : most;
    x->values = calloc((size_t)most + 1, sizeof *x->values);
    if (!failed && !x->values)
        failed = pt_fail(e, PT_FAILED, "out of memory for a schedule of %d tasks", most);
    if (!failed)
        failed = open_memory(x, e);
    if (!failed)
        failed = open_queues(x, e);
    if (failed)
        ritz_runner_close(x);
    else
        *out = x;
    return failed;
}

void ritz_runner_close(ritz_runner *x)
{
    if (!x)
        return;
    ritz_runner_sync(x, NULL);
    for (int q = 0; q < QUEUES; q++)
        if (x->queues[q])
            x->queues[q]->device->table->queue_close(x->queues[q]);
    disk_channel_close(x->reader);
    disk_channel_close(x->writer);
    disk_close(x->disk);
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
        if (x->arena[t])
            x->o.device->table->memory_close(x->o.device, memory_of(t), x->arena[t], x->bytes[t]);
    if (x->mailbox)
        x->o.device->table->memory_close(x->o.device, MEMORY_HOST, x->mailbox, x->o.mailbox_bytes);
    for (int k = 0; k < RITZ_PROGRAMS; k++)
        schedule_free(&x->schedules[k]), free(x->awaited[k]);
    free(x->values);
    free(x);
}

char *ritz_runner_mailbox(const ritz_runner *x) { return x->mailbox; }
uint64_t ritz_runner_bytes(const ritz_runner *x, tier t) { return x->bytes[t]; }
uint64_t ritz_runner_peak_bytes(const ritz_runner *x, tier t) { return x->peak[t]; }
const schedule *ritz_runner_schedule(const ritz_runner *x, ritz_program what) { return x->built[what] ? &x->schedules[what] : NULL; }

/* ---- tasks ---- */

static char *address(const ritz_runner *x, const schedule *s, int buffer)
{
    const struct buffer *b = &s->buffers[buffer];
    return buffer < 0 || !x->arena[b->tier] ? NULL : x->arena[b->tier] + b->offset;
}

static char *operand_of(const ritz_runner *x, const schedule *s, const task *t, object_kind kind, int index, int micro)
{
    const int b = task_find(s, t, kind, index, micro);
    return b < 0 ? NULL : address(x, s, b);
}

/* Of a stage of a chunk. */
static char *stage_at(const ritz_runner *x, const schedule *s, const task *t, object_kind kind, int stage)
{
    const ritz_space *p = x->o.space;
    const int c = p->chunk_of_stage[stage];
    char *base = operand_of(x, s, t, kind, c, -1);
    return base ? base + (uint64_t)(p->net->stages[stage].weight_at - p->chunks[c].value0) * dtype_bytes(p->net->type) : NULL;
}

static ritz_unit unit_of(const ritz_runner *x, ritz_program what, const task *t, const ritz_slot *slot, int group, bool first)
{
    const schedule *s = &x->schedules[what];
    const ritz_network *n = x->o.space->net;
    ritz_unit u = {.net = n, .layout = &x->layouts[what], .queue = x->queues[QUEUE_COMPUTE], .group = group, .rows = slot->rows,
                   .flat = what == RITZ_FACES, .first = first && t->first};
    for (int k = 0; k < 2; k++)
        u.set[k] = operand_of(x, s, t, OBJECT_SAVED, group + k, t->micro);
    u.own = operand_of(x, s, t, OBJECT_BATCH, -1, t->micro);
    u.stream = operand_of(x, s, t, OBJECT_STREAM_GRADIENT, -1, t->micro);
    u.work = operand_of(x, s, t, OBJECT_WORKSPACE, -1, -1);
    for (int k = 0; k < n->group0[group + 1] - n->group0[group]; k++) {
        u.weights[k] = stage_at(x, s, t, OBJECT_WEIGHTS, n->group0[group] + k);
        u.sums[k] = stage_at(x, s, t, OBJECT_GRADIENT, n->group0[group] + k);
    }
    return u;
}

static void copy(queue *q, void *to, const void *from, uint64_t bytes)
{
    queue_submit(q, &(op){OP_COPY, .copy = {to, from, bytes}});
}

static void run_input(const ritz_unit *u, const ritz_slot *slot)
{
    const uint64_t each = dtype_bytes(u->net->type), rows = (uint64_t)slot->rows;
    ritz_rows_begin(u);
    copy(u->queue, ritz_at(u, u->layout->tensor[0]), slot->x, rows * (uint64_t)u->net->input * each);
    copy(u->queue, u->own + u->layout->ones_at, slot->ones, rows * each);
    if (slot->terms)
        copy(u->queue, u->own + u->layout->terms_at, slot->terms, rows * QUADRATIC_TERMS * sizeof(double));
    ritz_rows_end(u);
}

static void run_output(const ritz_unit *u, const ritz_slot *slot)
{
    const uint64_t each = dtype_bytes(u->net->type), rows = (uint64_t)slot->rows;
    ritz_rows_begin(u);
    if (slot->value)
        copy(u->queue, slot->value, u->own + u->layout->value_at, rows * sizeof(double));
    if (slot->u)
        copy(u->queue, slot->u, ritz_u(u), rows * each);
    if (slot->gradient)
        copy(u->queue, slot->gradient, ritz_gradient(u), rows * (uint64_t)u->net->input * each);
    ritz_rows_end(u);
}

static void run_update(const ritz_runner *x, const schedule *s, const task *t, queue *q)
{
    const ritz_space *p = x->o.space;
    const ritz_update *u = &x->update;
    char *states = operand_of(x, s, t, OBJECT_STATES, t->chunk, -1);
    queue_submit(q, &(op){OP_ADAMW, .adamw = {
        .type = p->net->type, .n = p->chunks[t->chunk].values, .hi = operand_of(x, s, t, OBJECT_WEIGHTS, t->chunk, -1),
        .m = (float *)states, .v = (float *)(states + ritz_slab_bytes(p, t->chunk)),
        .g = operand_of(x, s, t, OBJECT_GRADIENT, t->chunk, -1), .grad_scale = 1, .decay = (float)u->decay, .beta1 = (float)u->beta1,
        .beta2 = (float)u->beta2, .eps = (float)u->eps, .step_size = (float)u->step_size, .sqrt_correction2 = (float)u->sqrt_correction2}});
}

static void run_transfer(const ritz_runner *x, const schedule *s, const task *t, queue *q)
{
    const int from = s->operands[t->operand0].buffer, to = s->operands[t->operand0 + 1].buffer;
    const size_t bytes = s->buffers[to].bytes;
    if (t->kind == TASK_READ)
        queue_submit(q, &(op){OP_DISK_READ, .disk = {x->reader, address(x, s, to), s->buffers[from].offset, bytes}});
    else if (t->kind == TASK_WRITE)
        queue_submit(q, &(op){OP_DISK_WRITE, .disk = {x->writer, address(x, s, from), s->buffers[to].offset, bytes}});
    else
        copy(q, address(x, s, to), address(x, s, from), bytes);
}

static void run_sweep(const ritz_unit *u, int sweep)
{
    switch (sweep) {
    case SWEEP_FORWARD: ritz_forward(u); break;
    case SWEEP_ADJOINT: ritz_adjoint(u); break;
    default: ritz_tangent(u); break;
    }
}

static void run_task(const ritz_runner *x, ritz_program what, const task *t, const ritz_slot *slots, bool first, queue *q)
{
    const schedule *s = &x->schedules[what];
    const int groups = x->o.space->net->groups_n;
    const bool of_group = t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD;
    if (t->kind == TASK_COPY || t->kind == TASK_READ || t->kind == TASK_WRITE) {
        run_transfer(x, s, t, q);
        return;
    }
    if (t->kind == TASK_UPDATE) {
        run_update(x, s, t, q);
        return;
    }
    const ritz_unit u = unit_of(x, what, t, &slots[t->micro], of_group ? t->block % groups : 0, first);
    switch (t->kind) {
    case TASK_INPUT: run_input(&u, &slots[t->micro]); break;
    case TASK_OUTPUT: run_output(&u, &slots[t->micro]); break;
    case TASK_HEAD: ritz_energy(&u); break;
    case TASK_LAYER: run_sweep(&u, t->block / groups); break;
    default: ritz_reverse(&u); break;
    }
}

/* ---- runs ---- */

static void count_operands(ritz_runner *x, const schedule *s, const task *t)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &s->buffers[s->operands[i].buffer];
        const uint64_t end = align_up(b->offset + b->bytes, DISK_ALIGN);
        x->peak[b->tier] = end > x->peak[b->tier] ? end : x->peak[b->tier];
    }
}

/* Each queue waits for what the others were given before: of runs that are submitted one behind the other nothing overlaps. Not those that
 * have nothing to do: their last signal would not stand behind that wait, and who syncs with it could close a queue that is waited for. */
static void begin_run(ritz_runner *x, ritz_program what)
{
    for (int q = 0; q < QUEUES; q++)
        for (int other = 0; x->uses[what][q] && other < QUEUES; other++)
            if (other != q && x->queues[other] && x->last[other])
                queue_wait(x->queues[q], x->queues[other], x->last[other]);
}


static void submit(ritz_runner *x, ritz_program what, const ritz_slot *slots, int n, bool first, uint64_t *inputs_done)
{
    const schedule *s = &x->schedules[what];
    begin_run(x, what);
    for (int i = 0; i < s->tasks_n; i++) {
        const task *t = &s->tasks[i];
        queue *q = x->queues[t->queue];
        if (!x->ran[what])
            count_operands(x, s, t);
        for (int other = 0; other < QUEUES; other++)
            if (t->wait[other] >= 0)
                queue_wait(q, x->queues[other], x->values[t->wait[other]]);
        if (t->micro < n) /* -1: a chunk's */
            run_task(x, what, t, slots, first, q);
        if (x->awaited[what][i])
            x->values[i] = x->last[t->queue] = queue_signal(q);
    }
    if (inputs_done)
        *inputs_done = x->last[QUEUE_COMPUTE];
    x->ran[what] = true;
}

void ritz_runner_run(ritz_runner *x, ritz_program what, const ritz_slot *slots, int n, bool first, uint64_t *inputs_done)
{
    submit(x, what, slots, n, first, inputs_done);
}

void ritz_runner_update(ritz_runner *x, const ritz_update *u)
{
    x->update = *u;
    submit(x, RITZ_UPDATE, NULL, 0, false, NULL);
}

int ritz_runner_wait(ritz_runner *x, uint64_t value, pt_error *e)
{
    return value ? queue_sync(x->queues[QUEUE_COMPUTE], value, e) : 0;
}

int ritz_runner_sync(ritz_runner *x, pt_error *e)
{
    int failed = 0;
    for (int q = 0; q < QUEUES; q++) {
        pt_error one = {0};
        const int code = x->queues[q] && x->last[q] ? queue_sync(x->queues[q], x->last[q], &one) : 0;
        if (code && !failed) {
            failed = code;
            if (e)
                *e = one;
        }
    }
    return failed;
}

int ritz_runner_move(ritz_runner *x, object_kind kind, int slab, int chunk, bool out, void *memory, pt_error *e)
{
    const schedule *s = &x->schedules[RITZ_POINTS]; /* placements are the same in all */
    const uint64_t bytes = ritz_slab_bytes(x->o.space, chunk);
    const buffer *b = NULL;
    for (int i = 0; i < s->placements_n && !b; i++)
        if (s->buffers[i].kind == kind && s->buffers[i].index == chunk)
            b = &s->buffers[i];
    int failed = ritz_runner_sync(x, e);
    if (failed)
        return failed;
    const uint64_t at = b->offset + (uint64_t)slab * bytes, end = align_up(at + bytes, DISK_ALIGN);
    x->peak[b->tier] = end > x->peak[b->tier] ? end : x->peak[b->tier];
    if (b->tier == TIER_DISK)
        return out ? disk_read(x->reader, at, memory, bytes, e) : disk_write(x->writer, at, memory, bytes, e);
    char *there = x->arena[b->tier] + at;
    if (b->tier == TIER_HOST) {
        memcpy(out ? memory : there, out ? there : memory, bytes);
        return 0;
    }
    queue *q = x->queues[QUEUE_COMPUTE];
    copy(q, out ? memory : there, out ? there : memory, bytes);
    x->last[QUEUE_COMPUTE] = queue_signal(q);
    return queue_sync(q, x->last[QUEUE_COMPUTE], e);
}
