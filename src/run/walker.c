#include "run/walker.h"

#include "base/units.h"
#include "run/slots.h"

#include <stdlib.h>

/* ---- life ---- */

unsigned walker_queues_of(const schedule *sched)
{
    unsigned queues = 0;
    for (int i = 0; i < sched->tasks_n; i++)
        queues |= 1u << sched->tasks[i].queue;
    return queues;
}

static memory_kind memory_of(int t) { return t == TIER_DEVICE ? MEMORY_DEVICE : MEMORY_HOST; }

/* Host memory comes from the device too, which knows how to allocate what it can copy fast. */
static int open_memory(walker *w, pt_error *e)
{
    device *d = w->o.device;
    void *base;
    int failed = 0;
    for (int t = TIER_DEVICE; t <= TIER_HOST && !failed; t++)
        if (w->o.bytes[t] && !(failed = d->table->memory_open(d, memory_of(t), w->o.bytes[t], &base, e)))
            w->arena[t] = base;
    if (!failed && !(failed = d->table->memory_open(d, MEMORY_HOST, w->o.mailbox_bytes, &base, e)))
        w->mailbox = base;
    return failed;
}

static int open_disk(walker *w, pt_error *e)
{
    if (!w->o.bytes[TIER_DISK])
        return 0;
    int failed = disk_open(w->o.disk_path, w->o.bytes[TIER_DISK], w->o.disk, &w->disk, e);
    if (!failed)
        failed = disk_channel_open(w->disk, &w->reader, e);
    if (!failed)
        failed = disk_channel_open(w->disk, &w->writer, e);
    if (!failed && w->o.slots)
        failed = disk_channel_open(slots_file(w->o.slots), &w->slot_reader, e);
    if (!failed && w->o.slots)
        failed = disk_channel_open(slots_file(w->o.slots), &w->slot_writer, e);
    return failed;
}

static int open_queues(walker *w, pt_error *e)
{
    int failed = 0;
    for (int q = 0; q < QUEUES && !failed; q++) {
        device *d = q <= QUEUE_FROM_DEVICE ? w->o.device : w->o.host;
        const int threads = q == QUEUE_COMPUTE ? w->o.threads
            : q == QUEUE_HOST ? host_queue_threads(w->o.device, w->o.host, w->o.threads) : 1;
        if (w->o.queues & 1u << q)
            failed = d->table->queue_open(d, queue_names[q], threads, &w->queues[q], e);
    }
    return failed;
}

int walker_open(walker *w, const walker_options *o, pt_error *e)
{
    *w = (walker){.o = *o, .values = calloc((size_t)o->tasks_n + 1, sizeof *w->values)};
    int failed = w->values ? 0 : pt_fail(e, PT_FAILED, "out of memory for a schedule of %d tasks", o->tasks_n);
    if (!failed)
        failed = open_memory(w, e);
    if (!failed)
        failed = open_disk(w, e);
    return failed ? failed : open_queues(w, e);
}

void walker_close(walker *w)
{
    for (int q = 0; q < QUEUES; q++)
        if (w->queues[q])
            w->queues[q]->device->table->queue_close(w->queues[q]);
    disk_channel_close(w->reader);
    disk_channel_close(w->writer);
    disk_channel_close(w->slot_reader);
    disk_channel_close(w->slot_writer);
    disk_close(w->disk);
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++)
        if (w->arena[t])
            w->o.device->table->memory_close(w->o.device, memory_of(t), w->arena[t], w->o.bytes[t]);
    if (w->mailbox)
        w->o.device->table->memory_close(w->o.device, MEMORY_HOST, w->mailbox, w->o.mailbox_bytes);
    free(w->values);
    *w = (walker){0};
}

/* ---- walking ---- */

void walker_raise_peak(walker *w, tier t, uint64_t end)
{
    end = align_up(end, DISK_ALIGN);
    w->peak[t] = end > w->peak[t] ? end : w->peak[t];
}

static void count_operands(walker *w, const schedule *sched, const task *t)
{
    for (int i = t->operand0; i < t->operand0 + t->operands_n; i++) {
        const buffer *b = &sched->buffers[sched->operands[i].buffer];
        walker_raise_peak(w, b->tier, b->offset + b->bytes);
    }
}

static void submit_task(walker *w, const walk *k, int index)
{
    const task *t = &k->schedule->tasks[index];
    queue *q = w->queues[t->queue];
    for (int other = 0; other < QUEUES; other++)
        if (t->wait[other] >= 0)
            queue_wait(q, w->queues[other], w->values[t->wait[other]]);
    if (k->times)
        queue_mark(q, &k->times[index].start_ns);
    k->run(k->arg, k->schedule, t, q);
    if (k->times)
        queue_mark(q, &k->times[index].end_ns);
    if (!k->awaited || k->awaited[index])
        w->values[index] = w->last[t->queue] = queue_signal(q);
}

void walker_submit(walker *w, const walk *k)
{
    for (int i = 0; i < k->schedule->tasks_n; i++) {
        if (k->first)
            count_operands(w, k->schedule, &k->schedule->tasks[i]);
        submit_task(w, k, i);
    }
}

int walker_sync(walker *w, pt_error *e)
{
    int failed = 0;
    for (int q = 0; q < QUEUES; q++) {
        pt_error one = {0};
        const int code = w->queues[q] && w->last[q] ? queue_sync(w->queues[q], w->last[q], &one) : 0;
        if (code && !failed) {
            failed = code;
            if (e)
                *e = one;
        }
    }
    return failed;
}

/* ---- tasks ---- */

char *walker_address(const walker *w, const schedule *sched, int buffer)
{
    const struct buffer *b = &sched->buffers[buffer];
    return w->arena[b->tier] ? w->arena[b->tier] + b->offset : NULL;
}

char *walker_operand(const walker *w, const schedule *sched, const task *t, object_kind kind, int index, int micro)
{
    const int found = task_find(sched, t, kind, index, micro);
    return found < 0 ? NULL : walker_address(w, sched, found);
}

op_disk walker_disk(const walker *w, bool write, const buffer *b, void *memory)
{
    op_disk o = {write ? w->writer : w->reader, memory, b->offset, b->bytes, NULL};
    if (slots_place(w->o.slots, write, b->kind, b->index, &o.offset, &o.sum))
        o.channel = write ? w->slot_writer : w->slot_reader;
    return o;
}

void walker_transfer(const walker *w, const schedule *sched, const task *t, queue *q)
{
    const int from = sched->operands[t->operand0].buffer, to = sched->operands[t->operand0 + 1].buffer;
    const size_t bytes = sched->buffers[to].bytes;
    if (t->kind == TASK_READ)
        queue_submit(q, &(op){OP_DISK_READ, .disk = walker_disk(w, false, &sched->buffers[from], walker_address(w, sched, to))});
    else if (t->kind == TASK_WRITE)
        queue_submit(q, &(op){OP_DISK_WRITE, .disk = walker_disk(w, true, &sched->buffers[to], walker_address(w, sched, from))});
    else
        queue_submit(q, &(op){OP_COPY, .copy = {walker_address(w, sched, to), walker_address(w, sched, from), bytes}});
}

const buffer *walker_placement(const schedule *sched, object_kind kind, int index)
{
    for (int i = 0; i < sched->placements_n; i++)
        if (sched->buffers[i].kind == kind && sched->buffers[i].index == index)
            return &sched->buffers[i];
    return NULL;
}
