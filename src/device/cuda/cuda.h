/* cuda.h - shared by the files of the CUDA backend. */
#ifndef PT_CUDA_H
#define PT_CUDA_H

#include "device/device.h"

#include <cuda_runtime_api.h>

/* Sets the error of a failed call; `doing` completes "while ...". Returns PT_DOES_NOT_FIT if memory ran out, else PT_FAILED. */
int cuda_fail(pt_error *e, cudaError_t error, const char *doing);

/* ---- matmul.c ---- */

typedef struct cuda_matmul cuda_matmul;

/* Has its own workspace on the current GPU; one for all queues. gpu: its kind, for tables of algorithms (matmul_table.h). */
int cuda_matmul_open(const device_options *o, const char *gpu, cuda_matmul **out, pt_error *e);
/* A checksum of the table that it uses; 0: none. */
uint32_t cuda_matmul_table(const cuda_matmul *x);
void cuda_matmul_close(cuda_matmul *x);
int cuda_matmul_launch(cuda_matmul *x, const op_matmul *o, cudaStream_t s, pt_error *e);
void cuda_matmul_leave(cuda_matmul *x, cudaStream_t s); /* call when the stream is idle, before it is destroyed */

/* ---- device.c ---- */

typedef struct cuda_device {
    device base; /* first, so that a device * is a cuda_device * */
    int ordinal;
    cuda_matmul *matmul;
    struct cuda_memory *memory;
} cuda_device;

/* ---- memory.c ---- */

struct cuda_memory *cuda_memory_new(const device_options *o, pt_error *e);
void cuda_memory_free(struct cuda_memory *m);
int cuda_memory_open(device *d, memory_kind kind, size_t bytes, void **base, pt_error *e);
void cuda_memory_close(device *d, memory_kind kind, void *base, size_t bytes);

/* ---- queue.c ---- */

int cuda_queue_open(device *d, const char *name, int threads, queue **out, pt_error *e);
void cuda_queue_close(queue *q);
void cuda_queue_submit(queue *q, const op *o);
uint64_t cuda_queue_signal(queue *q);
void cuda_queue_wait(queue *q, queue *other, uint64_t value);
void cuda_queue_mark(queue *q, int64_t *ns);
int cuda_queue_sync(queue *q, uint64_t value, pt_error *e);

#endif
