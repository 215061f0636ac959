/* queue.h - the queues of the CPU device; device.h has their interface. */
#ifndef PT_CPU_QUEUE_H
#define PT_CPU_QUEUE_H

#include "device/device.h"

int cpu_queue_open(device *d, const char *name, int threads, queue **out, pt_error *e);
/* Runs all submitted records, then ends the thread. Hangs if a wait is never satisfied: close a queue before those that wait for it only
 * after a sync. */
void cpu_queue_close(queue *q);
void cpu_queue_submit(queue *q, const op *o);
uint64_t cpu_queue_signal(queue *q);
void cpu_queue_wait(queue *q, queue *other, uint64_t value);
void cpu_queue_mark(queue *q, int64_t *ns);
void cpu_queue_mark_work(queue *q, int64_t *ns);
void cpu_queue_mark_waited(queue *q, int64_t *ns);
int cpu_queue_sync(queue *q, uint64_t value, pt_error *e);

#endif
