/* queue.h - the queues of the CPU device; what they promise is in device.h. */
#ifndef PT_CPU_QUEUE_H
#define PT_CPU_QUEUE_H

#include "device/device.h"

int cpu_queue_open(device *d, const char *name, int threads, queue **out, pt_error *e);
/* Runs what was submitted, then ends the thread. A wait that nothing will ever satisfy hangs here:
 * close a queue before those that wait on it only after a sync. */
void cpu_queue_close(queue *q);
void cpu_queue_submit(queue *q, const op *o);
uint64_t cpu_queue_signal(queue *q);
void cpu_queue_wait(queue *q, queue *other, uint64_t value);
void cpu_queue_mark(queue *q, int64_t *ns);
void cpu_queue_mark_work(queue *q, int64_t *ns);
void cpu_queue_mark_waited(queue *q, int64_t *ns);
int cpu_queue_sync(queue *q, uint64_t value, pt_error *e);

#endif
