/* queues.h - a device with queues, and simple ops for them. Include after cmocka.h. */
#ifndef PT_TEST_QUEUES_H
#define PT_TEST_QUEUES_H

#include "base/clock.h"
#include "device/device.h"

static inline device *open_device(int threads)
{
    device *d;
    pt_error e = {0};
    device_options options = {.threads = threads};
    if (device_cpu_open(&options, &d, &e))
        fail_msg("%s", e.text);
    return d;
}

static inline queue *open_queue(device *d, const char *name, int threads)
{
    queue *q;
    pt_error e = {0};
    if (d->table->queue_open(d, name, threads, &q, &e))
        fail_msg("%s", e.text);
    return q;
}

static inline void *open_memory(device *d, size_t bytes)
{
    void *base;
    pt_error e = {0};
    if (d->table->memory_open(d, MEMORY_HOST, bytes, &base, &e))
        fail_msg("%s", e.text);
    return base;
}

static inline void submit_zero(queue *q, void *dst, size_t bytes)
{
    op o = {.kind = OP_ZERO, .copy = {dst, NULL, bytes}};
    queue_submit(q, &o);
}

#endif
