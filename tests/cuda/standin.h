/* standin.h - between the parts of the stand-in for CUDA (runtime.c, blas.c, shim.cpp). */
#ifndef PT_STANDIN_H
#define PT_STANDIN_H

#include "cuda_runtime_api.h"

#include <stdbool.h>
#include <stdint.h>

/* Puts run(arg) into the stream, whose turn it is later; run frees arg. */
__attribute__((visibility("default"))) void standin_run(cudaStream_t s, void (*run)(void *arg), void *arg);
/* Whether that is all memory of the stream's GPU. */
__attribute__((visibility("default"))) bool standin_is_of_gpu(cudaStream_t s, const void *p, size_t bytes);

/* Who puts the shim's kernels into streams; NULL: they run at once. */
extern void (*shim_enqueue)(cudaStream_t s, void (*run)(void *arg), void *arg);

/* For tests, which find it in the module: after so many calls more the GPU is lost; -1: never, and it is there again. */
__attribute__((visibility("default"))) void standin_lose(int64_t calls);
/* From now on a wait for an event returns so late, as if other programs had the processor. */
__attribute__((visibility("default"))) void standin_delay(int64_t ns);

#endif
