/* measure_parts.h - the measurements that make up a profile. Internal to measure/. */
#ifndef PT_MEASURE_PARTS_H
#define PT_MEASURE_PARTS_H

#include "measure/measure.h"
#include "profile/profile_parts.h"

/* ---- sizes ---- */

/* Ids, targets and so on of `units` units, and one unit's view of the first. */
typedef struct unit_data { block_unit unit; const int32_t *ids; } unit_data;
void unit_data_take(area *a, const step_shape *s, int64_t units, unit_data *out);
/* The unit's residual stream in fp32, where the run has one. */
void unit_stream_take(area *a, const model *m, const step_shape *s, block_unit *u);

/* ---- memory ---- */

/* Bytes of the device that each takes at most, with all the time that there could be. */
uint64_t rates_memory(bench *b);
uint64_t links_memory(bench *b);
uint64_t layer_memory(bench *b);
uint64_t head_memory(bench *b);
uint64_t embed_finish_memory(bench *b);

/* ---- blocks ---- */

typedef struct layer_result {
    layer_cost cost;
    double spread;
    int64_t cut_rows; /* so few rows that they are quickly run again */
} layer_result;
int measure_layer(bench *b, int block, double seconds, layer_result *out, pt_error *e);
bool layer_suffices(bench *b, bench *before); /* whether `before` had memory for as much of one as there is for now */

typedef struct attention_ns { double forward, backward; } attention_ns;
int measure_attention(bench *b, int block, const step_shape *s, double seconds, attention_ns *out, pt_error *e);

int measure_embedding(bench *b, double seconds, double *ns, pt_error *e);
/* of a unit, with its gradients and without */
typedef struct head_result { double ns, eval_ns, cold_accumulators_ns, spread; } head_result;
int measure_head(bench *b, double flops_per_ns, double seconds, head_result *out, pt_error *e);
int measure_embed_finish(bench *b, double seconds, cost_curve *out, pt_error *e);
bool head_suffices(bench *b, bench *before);
bool embed_finish_suffices(bench *b, bench *before);

/* ---- rates ---- */

int measure_rate(bench *b, double *flops_per_ns, pt_error *e); /* of a matmul */
int open_host_queue(bench *b, queue **q, pt_error *e); /* with as many threads as a run gives the host's updates */
/* Updates of parameters that are taken whole; none where the optimizer has no such rule. A run takes about so many seconds at most. */
int measure_whole(bench *b, double flops_per_ns, double seconds, costs *c, pt_error *e);
/* Updates, the rounding of gradients, tasks: of device and host. */
int measure_rates(bench *b, profile_result *p, pt_error *e);

/* Adds a point behind the last. More never takes less, and others only make a time longer: what is above a later point is lowered. */
void curve_add(cost_curve *c, double amount, double ns);

/* What updates and gradients run on: `elements`, a multiple of RATES_LEAST, of the states of a part of a model. */
typedef struct region {
    const step_shape *shape;
    int64_t elements;
    char *weights, *gradient;
    uint16_t *low;
    void *slab[OPTIMIZER_SLABS]; /* of the optimizer's first rule */
    float *sums;                 /* that gradients are rounded from; they may lie where a slab does */
    double *sumsq;
} region;
void region_layout(area *a, void *region_of);
void update_run(queue *q, void *region_of, int elements, int turn); /* the next so many by that rule */

/* (rows, k) . (k, k), each time with the next of `sets` right sides */
typedef struct timed_matmul { const step_shape *shape; int64_t rows, k, sets; char *a, *b, *c; } timed_matmul;
void timed_matmul_layout(area *a, void *timed_matmul_of);
void timed_matmul_run(queue *q, void *timed_matmul_of, int index, int turn);

/* Whether these curves go as far as they would if they were measured again. */
bool rates_suffice(bench *b, const costs *c);

/* ---- links ---- */

/* Transfers by size and everything beside everything else, of the tiers that there are. */
int measure_links(bench *b, costs *c, pt_error *e);
bool links_suffice(bench *b, const costs *c);
/* What arithmetic loses after a pause; of a model whose layers are done in a moment nothing. */
int measure_wake_latency(bench *b, cost_curve *out, pt_error *e);

/* ---- checks: the shortest of some runs ---- */

int check_layer(bench *b, int64_t rows, double *ns, pt_error *e);
int check_update(bench *b, int64_t elements, double *ns, pt_error *e);
int check_update_host(bench *b, int64_t elements, double *ns, pt_error *e);
int check_to_device(bench *b, int64_t bytes, double *ns, pt_error *e);
int check_from_device(bench *b, int64_t bytes, double *ns, pt_error *e);
int check_read(bench *b, int64_t bytes, double *ns, pt_error *e);
int check_write(bench *b, int64_t bytes, double *ns, pt_error *e);

/* ---- together ---- */

/* *cut_rows: of a layer, so few that they are quickly run again. */
int measure_blocks(bench *b, costs *c, int64_t *cut_rows, pt_error *e);
bool blocks_suffice(bench *b, uint64_t within_bytes); /* of the device, which they were measured within */

#endif
