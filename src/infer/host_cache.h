/* host_cache.h - the KV caches of some layers in host memory, beside a GPU.
 *
 * A layer's keys and values lie there in blocks, each of some of its heads. Each block in turn is fetched into one of two slots of device
 * memory while the device computes; the rows that are fed are appended there, attention of the block's heads reads the slot, and the new
 * rows are put back.
 *
 *     store    | layer 0, block 0: k and v of position 0, of position 1 ... | layer 0, block 1 ... | ... | layer 3, block 0 ...
 *     fetch    | 0.0 | 0.1 | 3.0 | 3.1 ...
 *     compute        | 0.0 | 0.1 ........| 3.0 | 3.1
 *     put back             | 0.0 | 0.1 ........| 3.0 ...
 *
 * Heads do not depend on each other, so a block changes no bit. With a window only the rows that it reaches are fetched, and layers with
 * windows are the first whose caches leave the device. A layer that reads another's keys and values fetches the other's blocks.
 */
#ifndef PT_INFER_HOST_CACHE_H
#define PT_INFER_HOST_CACHE_H

#include "device/device.h"
#include "infer/inference.h"
#include "layer/block.h"

/* What the sizes of caches depend on. Of `shape` the type counts. */
typedef struct cache_shape {
    const model *model;
    const step_shape *shape;
    const layer_set *layers;
    int64_t rows, context; /* rows that are fed together at most */
    cache_plan plan;
} cache_shape;

uint64_t cache_row_bytes(const cache_shape *s, int layer); /* 0: the layer has no cache of its own */
/* Is the cache in host memory from which the layer reads, its own or another's? */
bool cache_is_away(const cache_shape *s, int layer);

/* Bytes of the two slots, of all blocks, and what is fetched for one token behind a full context. 0: all caches are on the device. */
uint64_t cache_slot_bytes(const cache_shape *s);
uint64_t cache_store_bytes(const cache_shape *s);
uint64_t cache_fetch_bytes(const cache_shape *s);

typedef struct host_cache host_cache;

/* s->plan.away is at least 1; `s` points to what outlives it. slots: cache_slot_bytes of device memory. */
int host_cache_open(const cache_shape *s, device *d, void *slots, host_cache **out, pt_error *e);
void host_cache_close(host_cache *c);

/* `rows` rows follow `past` ones, on the queue `compute`. Then the parts of all layers that read from here, in order. */
void host_cache_begin(host_cache *c, queue *compute, int64_t past, int64_t rows);
cache_parts host_cache_parts(host_cache *c, int layer);
/* After `compute` has ended: waits for what was put back. */
int host_cache_check(host_cache *c, pt_error *e);
/* Seconds in which the blocks of a full context pass, measured. Their rows are lost. */
int host_cache_measure(host_cache *c, queue *compute, double *seconds, pt_error *e);

#endif
