#include "ritz/runner.h"

#include "schedule/check.h"

#include <stdlib.h>
#include <string.h>

struct ritz_runner {
    ritz_runner_options o;
    schedule schedules[RITZ_PROGRAMS];
    ritz_layout layouts[RITZ_PROGRAMS];
    bool ran[RITZ_PROGRAMS];
    unsigned queues[RITZ_PROGRAMS];   /* bit set of those that the program's tasks use */
    bool *awaited[RITZ_PROGRAMS];     /* tasks whose end is signaled */
    walker walker;
    adamw_rates update;
};

/* ---- signals ----
 *
 * A queue may take a few rows through the tasks of several groups before it starts the next rows (device.h, op_rows), until a signal comes.
 * This is correct while a row has the same place in all these tasks. In the workspace it has: groups use the same places there, and every
 * activated stage is as wide as the network (network.c). But buffers that overlap may hold different rows at the same address, so between
 * tasks with such buffers there must be a signal. All other tasks are signaled only if something waits for them. */

enum { BUFFERS_PUT_OFF = 1024 };
typedef struct put_off { int n, buffers[BUFFERS_PUT_OFF]; } put_off; /* buffers of the tasks since the last signal */

static bool lies_over(const schedule *sched, int a, int b)
{
    const buffer *x = &sched->buffers[a], *y = &sched->buffers[b];
    return a != b && x->tier == y->tier && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

static bool may_join(const schedule *sched, const task *t, const put_off *p)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++)
        for (int k = 0; k < p->n; k++)
            if (lies_over(sched, sched->operands[i].buffer, p->buffers[k]))
                return false;
    return p->n + t->operands_n <= BUFFERS_PUT_OFF;
}

static void join(const schedule *sched, const task *t, put_off *p)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n && p->n < BUFFERS_PUT_OFF; i++) {
        int k = 0;
        while (k < p->n && p->buffers[k] != sched->operands[i].buffer)
            k++;
        p->buffers[k] = sched->operands[i].buffer;
        p->n += k == p->n;
    }
}

/* Adds the signals between tasks with overlapping buffers. */
static void keep_apart(const schedule *sched, bool *awaited)
{
    put_off p = {0};
    for (int i = 0, last = -1; i < sched->tasks_n; i++) {
        const task *t = &sched->tasks[i];
        if (t->queue != QUEUE_COMPUTE)
            continue;
        if (last >= 0 && !may_join(sched, t, &p))
            awaited[last] = true;
        if (last >= 0 && awaited[last])
            p.n = 0;
        join(sched, t, &p);
        last = i;
    }
}

/* The tasks whose end is signaled: those that others wait for, and the last one of each queue. */
static bool find_awaited(const schedule *sched, bool **out)
{
    bool *awaited = *out = calloc((size_t)sched->tasks_n + 1, sizeof *awaited), there[QUEUES] = {false};
    for (int i = sched->tasks_n - 1; awaited && i >= 0; i--) {
        const task *t = &sched->tasks[i];
        awaited[i] |= !there[t->queue];
        there[t->queue] = true;
        for (int q = 0; q < QUEUES; q++)
            if (t->wait[q] >= 0)
                awaited[t->wait[q]] = true;
    }
    if (awaited)
        keep_apart(sched, awaited);
    return awaited;
}

/* ---- life ---- */

static int build(ritz_runner *x, walker_options *w, pt_error *e)
{
    const ritz_space *s = x->o.space;
    for (int k = 0; k < RITZ_PROGRAMS; k++) {
        schedule *one = &x->schedules[k];
        if (!ritz_has_program(s, (ritz_program)k))
            continue;
        int failed = ritz_schedule_build(s, x->o.plan, (ritz_program)k, one, e);
        if (failed)
            return failed;
        ritz_program_layout(s, x->o.plan, (ritz_program)k, &x->layouts[k]);
        failed = schedule_check_moves(one, SWEEPS * s->net->groups_n, s->chunks_n, x->o.budget, e);
        if (failed)
            return failed;
        if (!find_awaited(one, &x->awaited[k]))
            return pt_fail(e, PT_FAILED, "out of memory for a schedule");
        for (int t = 0; t < TIERS; t++)
            w->bytes[t] = one->bytes[t] > w->bytes[t] ? one->bytes[t] : w->bytes[t];
        w->tasks_n = one->tasks_n > w->tasks_n ? one->tasks_n : w->tasks_n;
        w->queues |= x->queues[k] = walker_queues_of(one);
    }
    return 0;
}

int ritz_runner_open(const ritz_runner_options *o, ritz_runner **out, pt_error *e)
{
    walker_options w = {.device = o->device, .host = o->host, .mailbox_bytes = o->mailbox_bytes, .disk_path = o->disk_path,
                        .threads = o->threads, .queues = 1u << QUEUE_COMPUTE};
    ritz_runner *x = calloc(1, sizeof *x);
    *out = NULL;
    if (!x)
        return pt_fail(e, PT_FAILED, "out of memory");
    x->o = *o;
    int failed = build(x, &w, e);
    if (!failed)
        failed = walker_open(&x->walker, &w, e);
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
    walker_close(&x->walker);
    for (int k = 0; k < RITZ_PROGRAMS; k++)
        schedule_free(&x->schedules[k]), free(x->awaited[k]);
    free(x);
}

char *ritz_runner_mailbox(const ritz_runner *x) { return x->walker.mailbox; }
uint64_t ritz_runner_peak_bytes(const ritz_runner *x, tier t) { return x->walker.peak[t]; }

/* ---- tasks ---- */

static char *operand_of(const ritz_runner *x, const schedule *sched, const task *t, object_kind kind, int index, int micro)
{
    return walker_operand(&x->walker, sched, t, kind, index, micro);
}

/* The address of a stage in its chunk's weights or gradient sums. */
static char *stage_at(const ritz_runner *x, const schedule *sched, const task *t, object_kind kind, int stage)
{
    const ritz_space *p = x->o.space;
    const int c = p->chunk_of_stage[stage];
    char *base = operand_of(x, sched, t, kind, c, -1);
    return base ? base + (uint64_t)(p->net->stages[stage].weight_at - p->chunks[c].value0) * dtype_bytes(p->net->type) : NULL;
}

static ritz_unit unit_of(const ritz_runner *x, ritz_program what, const task *t, ritz_slot *slot, int group, bool first)
{
    const schedule *sched = &x->schedules[what];
    const ritz_network *n = x->o.space->net;
    ritz_unit u = {.net = n, .layout = &x->layouts[what], .queue = x->walker.queues[QUEUE_COMPUTE], .group = group, .rows = slot->rows,
                   .composed = slot->composed.problem ? &slot->composed : NULL, .residual = &slot->residual,
                   .calls = slot->calls, .flat = what == RITZ_FACES, .first = first && t->first};
    for (int k = 0; k < 2; k++)
        u.set[k] = operand_of(x, sched, t, OBJECT_SAVED, group + k, t->micro);
    u.own = operand_of(x, sched, t, OBJECT_BATCH, -1, t->micro);
    u.stream = operand_of(x, sched, t, OBJECT_STREAM_GRADIENT, -1, t->micro);
    u.work = operand_of(x, sched, t, OBJECT_WORKSPACE, -1, -1);
    for (int k = 0; k < n->group0[group + 1] - n->group0[group]; k++) {
        u.weights[k] = stage_at(x, sched, t, OBJECT_WEIGHTS, n->group0[group] + k);
        u.sums[k] = stage_at(x, sched, t, OBJECT_GRADIENT, n->group0[group] + k);
    }
    return u;
}

static void copy(queue *q, void *to, const void *from, uint64_t bytes)
{
    queue_submit(q, &(op){OP_COPY, .copy = {to, from, bytes}});
}

static void make_rows(void *arg, int64_t first, int64_t end, void *scratch)
{
    const ritz_slot *slot = arg;
    slot->make(slot, first, end, scratch);
}

static void run_input(const ritz_unit *u, ritz_program what, ritz_slot *slot)
{
    const uint64_t each = dtype_bytes(u->net->type), rows = (uint64_t)slot->rows;
    const bool jets = what == RITZ_TURN && u->net->jets;
    char *x = ritz_at(u, u->layout->tensor[0]), *terms = u->own + u->layout->terms_at;
    ritz_rows_begin(u);
    copy(u->queue, u->own + u->layout->ones_at, slot->ones, rows * each);
    if (slot->make) {
        slot->made_x = x;
        slot->made_terms = what == RITZ_MEAN ? NULL : (double *)terms;
        queue_submit(u->queue, &(op){OP_CALL, .call = {make_rows, slot, slot->rows}});
    } else {
        copy(u->queue, x, slot->x, rows * (uint64_t)u->net->input * each);
        if (slot->terms)
            copy(u->queue, terms, slot->terms, rows * QUADRATIC_TERMS * sizeof(double));
    }
    if (jets)
        jets_input(u);
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

static void run_update(const ritz_runner *x, const schedule *sched, const task *t, queue *q)
{
    const ritz_space *p = x->o.space;
    const adamw_rates *u = &x->update;
    char *states = operand_of(x, sched, t, OBJECT_STATES, t->chunk, -1);
    queue_submit(q, &(op){OP_ADAMW, .adamw = {
        .type = p->net->type, .n = p->chunks[t->chunk].values, .hi = operand_of(x, sched, t, OBJECT_WEIGHTS, t->chunk, -1),
        .m = (float *)states, .v = (float *)(states + ritz_slab_bytes(p, t->chunk)),
        .g = operand_of(x, sched, t, OBJECT_GRADIENT, t->chunk, -1), .grad_scale = 1, .decay = (float)u->decay, .beta1 = (float)u->beta1,
        .beta2 = (float)u->beta2, .eps = (float)u->eps, .step_size = (float)u->step_size, .sqrt_correction2 = (float)u->sqrt_correction2,
        .rates = *u}});
}

static void run_sweep(const ritz_unit *u, int sweep)
{
    switch (sweep) {
    case SWEEP_FORWARD: ritz_forward(u); break;
    case SWEEP_ADJOINT: ritz_adjoint(u); break;
    case SWEEP_JETS: jets_forward(u); break;
    default: ritz_tangent(u); break;
    }
}

/* A program that is submitted. */
typedef struct program_run { const ritz_runner *runner; ritz_program what; ritz_slot *slots; int n; bool first; } program_run;

static void run_unit(const program_run *p, const task *t)
{
    const int groups = p->runner->o.space->net->groups_n;
    const bool of_group = t->kind == TASK_LAYER || t->kind == TASK_LAYER_BACKWARD;
    const bool jets = p->what == RITZ_TURN && p->runner->o.space->net->jets;
    ritz_slot *slot = &p->slots[t->micro];
    const ritz_unit u = unit_of(p->runner, p->what, t, slot, of_group ? t->block % groups : 0, p->first);
    switch (t->kind) {
    case TASK_INPUT: run_input(&u, p->what, slot); break;
    case TASK_OUTPUT: run_output(&u, slot); break;
    case TASK_HEAD: (jets ? jets_loss : ritz_energy)(&u); break;
    case TASK_LAYER: run_sweep(&u, t->block / groups); break;
    default: (jets ? jets_reverse : ritz_reverse)(&u); break;
    }
}

static void run_task(void *arg, const schedule *sched, const task *t, queue *q)
{
    const program_run *p = arg;
    if (t->micro >= p->n) /* the last units of a step need not fill a visit */
        return;
    switch (t->kind) {
    case TASK_COPY: case TASK_READ: case TASK_WRITE: walker_transfer(&p->runner->walker, sched, t, q); break;
    case TASK_UPDATE: run_update(p->runner, sched, t, q); break;
    default: run_unit(p, t); break;
    }
}

/* ---- runs ---- */

/* Makes the queues that the program uses wait for everything submitted before. A queue that it does not use must not: it would get no
 * signal after that wait, and walker_sync would not see that it still waits for a queue that may be closed. */
static void follow(ritz_runner *x, ritz_program what)
{
    const walker *w = &x->walker;
    for (int q = 0; q < QUEUES; q++)
        for (int other = 0; x->queues[what] & 1u << q && other < QUEUES; other++)
            if (other != q && w->queues[other] && w->last[other])
                queue_wait(w->queues[q], w->queues[other], w->last[other]);
}

void ritz_runner_run(ritz_runner *x, ritz_program what, ritz_slot *slots, int n, bool first, uint64_t *inputs_done)
{
    program_run p = {x, what, slots, n, first};
    follow(x, what);
    walker_submit(&x->walker, &(walk){.schedule = &x->schedules[what], .awaited = x->awaited[what], .first = !x->ran[what],
                                      .run = run_task, .arg = &p});
    x->ran[what] = true;
    if (inputs_done)
        *inputs_done = x->walker.last[QUEUE_COMPUTE];
}

void ritz_runner_update(ritz_runner *x, const adamw_rates *u)
{
    x->update = *u;
    ritz_runner_run(x, RITZ_UPDATE, NULL, 0, false, NULL);
}

int ritz_runner_wait(ritz_runner *x, uint64_t value, pt_error *e)
{
    return value ? queue_sync(x->walker.queues[QUEUE_COMPUTE], value, e) : 0;
}

int ritz_runner_sync(ritz_runner *x, pt_error *e) { return walker_sync(&x->walker, e); }

int ritz_runner_move(ritz_runner *x, object_kind kind, int slab, int chunk, bool out, void *memory, pt_error *e)
{
    walker *w = &x->walker;
    const uint64_t bytes = ritz_slab_bytes(x->o.space, chunk);
    const buffer *b = walker_placement(&x->schedules[RITZ_POINTS], kind, chunk); /* the same in all programs */
    int failed = walker_sync(w, e);
    if (failed)
        return failed;
    const uint64_t at = b->offset + (uint64_t)slab * bytes;
    walker_raise_peak(w, b->tier, at + bytes);
    if (b->tier == TIER_DISK)
        return out ? disk_read(w->reader, at, memory, bytes, e) : disk_write(w->writer, at, memory, bytes, e);
    char *there = w->arena[b->tier] + at;
    if (b->tier == TIER_HOST) {
        memcpy(out ? memory : there, out ? there : memory, bytes);
        return 0;
    }
    queue *q = w->queues[QUEUE_COMPUTE];
    copy(q, out ? memory : there, out ? there : memory, bytes);
    w->last[QUEUE_COMPUTE] = queue_signal(q);
    return queue_sync(q, w->last[QUEUE_COMPUTE], e);
}
