/* inference_parts.h - the parts of an inference, inside infer/ only. */
#ifndef PT_INFER_INFERENCE_PARTS_H
#define PT_INFER_INFERENCE_PARTS_H

#include "infer/host_cache.h"
#include "infer/inference.h"
#include "infer/streamed.h"
#include "layer/block.h"

enum { INFERENCE_LINE = 64 };

/* Byte offsets in the cache. */
typedef struct cache_places { uint64_t rope, state, state_bytes, slots, bytes; } cache_places;

/* Byte offsets in the first arena. */
typedef struct inference_layout {
    uint64_t slots, x, stream, carried, rows, workspace, normed, logits, ids, gains, bytes;
} inference_layout;

struct inference {
    const model *model;
    device *device, *host;     /* host: where streamed weights are made */
    queue *queue;
    int threads;
    step_shape shape;          /* one unit: the rows that are computed together */
    int64_t rows;
    layer_set layers;          /* for so many rows */
    int streamed_n;            /* layers whose weights do not stay */
    streamed *streamed;        /* NULL: all stay */
    inference_layout layout;
    uint64_t *param_at;        /* offset of each parameter in the first arena */
    bool *stays;               /* of each parameter: its weights are there */
    block_weights *weights;    /* of each block */
    char *arena, *cache;
    char *mail;                /* host: ids, positions, logits */
    char *table;               /* host: the table of layers' inputs, then rows of it; NULL: none, or it is in the arena */
    cache_places at;           /* in the cache; states of all layers, and behind them as they were at `marked` */
    cache_shape of;            /* context 0: there is no cache */
    uint64_t *rows_at;         /* in the cache: the keys and values that each layer reads */
    host_cache *away;          /* NULL: all is in the cache */
    int64_t length, marked;
};

/* inference_layout.c */
step_shape inference_shape(const model *m, pt_dtype type, int64_t rows);
int64_t inference_rows_of(const model *m, const device *d, int streamed);
bool inference_is_streamed(const model *m, int streamed, int block);
/* Sets wanted[] of the parameters of a block. */
void inference_want_block(const model *m, int block, bool yes, bool *wanted);
/* Sets stays[] of all parameters. */
void inference_find_staying(const model *m, const device *d, int streamed, bool *stays);
/* The offset of each parameter that stays; returns their bytes. Without `stays` all stay; `param_at` may be NULL. */
uint64_t inference_place_params(const model *m, pt_dtype type, const bool *stays, uint64_t *param_at);
/* Offset of the gains of DoRA's adapters for `matrix`; a layer's matrices follow each other (MODEL_LINEAR_MATRICES: their end). */
uint64_t inference_gains_at(const model *m, int matrix);
void inference_layout_init(inference_layout *l, const model *m, const device *d, const step_shape *shape, int streamed,
                           const layer_set *layers);
uint64_t inference_mail_bytes(const model *m, int64_t rows);

cache_places inference_cache_places(const cache_shape *s);
/* Bytes of the caches of the first `n` layers on the device. A layer that reads another's keys and values has none. */
uint64_t inference_caches_bytes(const cache_shape *s, int n);

/* inference_load.c: the weights of a block where they are when infer->queue comes to what follows; inference_leave_block says that all of
 * it was given to the queue. */
block_weights inference_enter_block(inference *infer, int b);
void inference_leave_block(inference *infer, int b);

/* host_table.c: the table of layers' inputs, if it is kept in host memory, beside a GPU with its own: of each token one row is read. Or
 * NULL. */
const param *host_table(const model *m, const device *d);
uint64_t host_table_rows_bytes(const param *table, pt_dtype type, int64_t rows);
/* Copies the rows of the table that the ids have to the device; NULL: the table is there. */
const char *host_table_submit_rows(inference *infer, const int32_t *ids, int64_t n);

#endif
