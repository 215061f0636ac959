/* pool.h - a pool of threads that run one op together.
 *
 * An op is divided into tiles; each thread takes the next tile until none is left. Neither the division nor the thread that computes a tile
 * changes the result.
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
    POOL_STACK_BYTES = 1 << 20,   /* per worker, of which it uses some KiB */
    POOL_THREAD_BYTES = POOL_SCRATCH_BYTES + (256 << 10) /* the RAM of a thread, including what libraries allocate for it */
};

/* Starts threads - 1 workers; the caller of pool_run is the last thread. */
int pool_open(int threads, pool **out, pt_error *e);
void pool_close(pool *pool);
int pool_threads(const pool *pool);
void pool_run(pool *pool, int64_t tiles, pool_fn fn, void *arg);
/* Pins each thread to its own processor, if there are as many threads as processors that the caller may use; fewer threads are not pinned.
 * Call it from the thread that will call pool_run. Only affects speed; errors are ignored. */
void pool_spread(pool *pool);
/* Processor time that its threads have used, and the time for which they were ready to run while other threads had the processors (0 if the
 * system does not tell). Call them from the thread that calls pool_run. */
int64_t pool_work_ns(pool *pool);
int64_t pool_waited_ns(pool *pool);
void *pool_scratch(pool *pool, int thread); /* POOL_SCRATCH_BYTES per thread, contiguous */

#endif
