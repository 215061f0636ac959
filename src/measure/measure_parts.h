/* measure_parts.h - the measurements that make up a profile. Internal to measure/. */
#ifndef PT_MEASURE_PARTS_H
#define PT_MEASURE_PARTS_H

#include "measure/measure.h"
#include "profile/profile_parts.h"

/* ---- sizes ---- */

/* Token ids, targets and positions of `units` units; `unit` points to the first. */
typedef struct unit_data { block_unit unit; const int32_t *ids; } unit_data;
void unit_data_take(area *a, const step_shape *shape, int64_t units, unit_data *out);
/* Takes the unit's fp32 residual stream from the area, if the run has one, and what layers hand on beside it. */
void unit_stream_take(area *a, const model *m, const step_shape *shape, block_unit *u);

/* ---- memory ---- */

/* The most device memory that each measurement uses, if time is unlimited. */
uint64_t rates_memory(bench *b);
uint64_t links_memory(bench *b);
uint64_t layer_memory(bench *b);
uint64_t head_memory(bench *b);
uint64_t embed_finish_memory(bench *b);

/* ---- blocks ---- */

typedef struct layer_result {
    layer_cost cost;
    double spread;
    int64_t cut_rows; /* few rows, for quick checks later */
} layer_result;
int measure_layer(bench *b, int block, double seconds, layer_result *out, pt_error *e);
/* Did `before` have memory to measure a layer with as many rows and sets as `b`? */
bool layer_suffices(bench *b, bench *before);

typedef struct attention_ns { double forward, backward; } attention_ns;
int measure_attention(bench *b, int block, const step_shape *shape, double seconds, attention_ns *out, pt_error *e);
/* Pairs of a query and a key in a unit. */
double attention_pairs(const model *m, int block, const step_shape *shape);
/* The longest part of a sequence that takes no longer than `seconds`, if `part` took so many; at most one with all heads at once. */
step_shape attention_part(const model *m, int block, const step_shape *shape, step_shape part, double took, double seconds);

int measure_embedding(bench *b, double seconds, double *ns, pt_error *e);
/* ns of a unit with its gradients; eval_ns without; the additional time of cold accumulators */
typedef struct head_result { double ns, eval_ns, cold_accumulators_ns, spread; } head_result;
int measure_head(bench *b, double flops_per_ns, double seconds, head_result *out, pt_error *e);
int measure_embed_finish(bench *b, double seconds, cost_curve *out, pt_error *e);
bool head_suffices(bench *b, bench *before);
bool embed_finish_suffices(bench *b, bench *before);

/* ---- rates ---- */

int measure_rate(bench *b, double *flops_per_ns, pt_error *e); /* of a matmul */
int open_host_queue(bench *b, queue **q, pt_error *e); /* with as many threads as a run gives the host's updates */
/* Updates that need whole matrices; nothing if the optimizer has no such rule. `seconds`: the most that one run should take. */
int measure_whole(bench *b, double flops_per_ns, double seconds, costs *costs, pt_error *e);
/* Updates, finishing of gradients, and tasks, on the device and the host. */
int measure_rates(bench *b, profile_result *result, pt_error *e);

/* Appends a point. Curves are monotonic: earlier points above it are lowered to it, because disturbances only make times longer. */
void curve_add(cost_curve *curve, double amount, double ns);

/* Data of updates and gradients: the weights, states and gradients of `elements` parameters, a multiple of RATES_LEAST. */
typedef struct region {
    const step_shape *shape;
    int64_t elements;
    char *weights, *gradient;
    uint16_t *low;
    void *slab[OPTIMIZER_SLABS]; /* of the optimizer's first rule */
    float *sums;                 /* gradient accumulators; may share a slab's memory */
    double *sumsq;
} region;
void region_layout(area *a, void *region_of);
void update_run(queue *q, void *region_of, int elements, int turn); /* updates the next `elements` by the first rule */

/* (rows, k) x (k, k), each time with the next of `sets` right-hand matrices */
typedef struct timed_matmul { const step_shape *shape; int64_t rows, k, sets; char *a, *b, *c; } timed_matmul;
void timed_matmul_layout(area *a, void *timed_matmul_of);
void timed_matmul_run(queue *q, void *timed_matmul_of, int index, int turn);

/* Do these curves reach as far as they would if they were measured again? */
bool rates_suffice(bench *b, const costs *costs);

/* ---- links ---- */

/* Transfers between the available tiers by size, and the contention of each pair of classes. */
int measure_links(bench *b, costs *costs, pt_error *e);
bool links_suffice(bench *b, const costs *costs);
/* The wake-up latency: time lost by arithmetic after a pause, by the length of the pause. Empty for small models and on GPUs. */
int measure_wake_latency(bench *b, cost_curve *out, pt_error *e);

/* ---- checks: the shortest of several runs ---- */

int check_layer(bench *b, int64_t rows, double *ns, pt_error *e);
int check_update(bench *b, int64_t elements, double *ns, pt_error *e);
int check_update_host(bench *b, int64_t elements, double *ns, pt_error *e);
int check_to_device(bench *b, int64_t bytes, double *ns, pt_error *e);
int check_from_device(bench *b, int64_t bytes, double *ns, pt_error *e);
int check_read(bench *b, int64_t bytes, double *ns, pt_error *e);
int check_write(bench *b, int64_t bytes, double *ns, pt_error *e);

/* ---- together ---- */

/* *cut_rows: the number of rows for quick checks of a layer. */
int measure_blocks(bench *b, costs *costs, int64_t *cut_rows, pt_error *e);
/* Would blocks that were measured within so many bytes of device memory be measured the same way within the current budget? */
bool blocks_suffice(bench *b, uint64_t within_bytes);

#endif
