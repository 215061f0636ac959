/* pool.h - the threads that run one op together.
 *
 * An op is cut into tiles; threads take the next tile until none is left. Neither the cut nor the
 * thread that computes a tile changes what is computed.
 */
#ifndef PT_POOL_H
#define PT_POOL_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct pool pool;
typedef void (*pool_fn)(void *arg, int64_t tile, int thread);

enum {
    POOL_SCRATCH_BYTES = 4 << 20, /* per thread, 64-byte aligned, contents undefined when an op begins */
    POOL_STACK_BYTES = 1 << 20,   /* per worker; of which it touches some KiB */
    POOL_THREAD_BYTES = POOL_SCRATCH_BYTES + (256 << 10) /* what a thread takes of the RAM, with what libraries keep for it */
};

/* threads - 1 workers are started; the caller of pool_run is the last one. */
int pool_open(int threads, pool **out, pt_error *e);
void pool_close(pool *p);
int pool_threads(const pool *p);
void pool_run(pool *p, int64_t tiles, pool_fn fn, void *arg);
/* Where there are as many threads as processors that the caller may use, one to each; called by the thread that will call pool_run.
 * Fewer threads stay where the system puts them, beside whoever else is there. Changes speed only: a system that refuses is left alone. */
void pool_spread(pool *p);
/* Processor time that its threads have used, and the time for which they were ready to run while other threads had the processors (0 where
 * the system does not tell); called by the thread that calls pool_run. */
int64_t pool_work_ns(pool *p);
int64_t pool_waited_ns(pool *p);
void *pool_scratch(pool *p, int thread); /* POOL_SCRATCH_BYTES after that of the thread before */

#endif
