/* measure_parts.h - what a profile is made of, part by part. Internal to profile/. */
#ifndef PT_MEASURE_PARTS_H
#define PT_MEASURE_PARTS_H

#include "profile/measure.h"

/* ---- sizes ---- */

/* A unit of about so many rows: fewer sequences, then shorter ones. */
step_shape shape_cut(const step_shape *s, int64_t rows);
/* Multiply-adds, counted twice, of a forward of a layer over `rows` rows in sequences of seq_len. */
double layer_flops(const model *m, int block, int64_t rows, int64_t seq_len);
/* Of the head, forward and backward, for `rows` rows. */
double head_flops(const model *m, int64_t rows);

/* Ids, targets and so on of `units` units, and one unit's view of the first. */
typedef struct unit_data { block_unit unit; const int32_t *ids; } unit_data;
void unit_data_take(area *a, const step_shape *s, int64_t units, unit_data *out);

/* ---- blocks ---- */

typedef struct layer_result {
    layer_cost cost;
    double spread;
    int64_t check_rows; /* a forward of so few rows that it is quickly run again, and what it took */
    double check_ns;
} layer_result;
int measure_layer(bench *b, int block, double seconds, layer_result *out, pt_error *e);

typedef struct attention_ns { double forward, backward; } attention_ns;
int measure_attention(bench *b, int block, const step_shape *s, double seconds, attention_ns *out, pt_error *e);

int measure_embedding(bench *b, double seconds, double *ns, pt_error *e);
int measure_head(bench *b, double seconds, double *ns, double *eval_ns, double *spread, pt_error *e);
int measure_embed_finish(bench *b, double seconds, cost_curve *out, pt_error *e);

/* ---- rates ---- */

/* Elements of the largest part that rates are measured for: 4^n * 16 Ki, with the size of the model. */
int64_t rates_elements(const model *m);
int measure_rate(bench *b, double *flops_per_ns, pt_error *e); /* of a matmul */
int measure_finish(bench *b, double seconds, cost_curve *out, pt_error *e);
int measure_update(bench *b, bool on_host, double seconds, cost_curve *out, pt_error *e);
int measure_task(bench *b, double *ns, pt_error *e);

/* ---- together ---- */

/* A forward of the first kind of layer over so few rows that it is quickly run again, and what it took. */
typedef struct block_check { int64_t rows; double ns; } block_check;
int measure_blocks(bench *b, costs *c, block_check *check, pt_error *e);
int measure_rates(bench *b, costs *c, pt_error *e);

/* Adds a point; more never takes less. */
void curve_add(cost_curve *c, double amount, double ns);

#endif
