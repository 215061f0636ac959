/* optimizer.h - optimizers. Each is one file of this folder and one row of a table.
 *
 * An optimizer has a rule for each parameter. A rule says what a parameter keeps beside its weights (slabs), which ops update it, and what
 * they cost. Everything else is derived: the states of a chunk (plan/pack.h), their files in a checkpoint (train/checkpoint.c), the cost of
 * an update (predict/costs.h, profile/), the memory of a plan. A rule is the same on host and device, and does not know where a parameter
 * lives or how it was packed.
 *
 *     matrices of layers ---- rule: slabs, workspace, ops ---.
 *     embeddings, head ------ rule                           +--- states of a chunk: [low halves][slab 0][slab 1]...
 *     norms, biases --------- rule --------------------------'
 */
#ifndef PT_OPTIMIZER_H
#define PT_OPTIMIZER_H

#include "device/device.h"
#include "model/shape.h"

enum { OPTIMIZER_SLABS = 4, OPTIMIZER_RULES = 3, OPTIMIZER_STATES = 6, OPTIMIZERS_MOST = 12, OPTIMIZER_ARGS = 8 };

/* State that a rule keeps for each value of a parameter, for each block of values, or for each part. Initially zero. */
typedef struct slab {
    const char *name; /* name of its file in a checkpoint */
    pt_dtype type;    /* of an entry: F32, U8 */
    int values;       /* values per entry: 1, or a block, counted from the parameter's beginning */
    int64_t (*of_part)(const param *p, int k); /* entries of part k, of rules that update whole parameters; NULL: by `values` */
} slab;

#define MUON_MOMENTUM 0.95f /* default */

/* The factor of a matrix's learning rate: sqrt(rows / cols), at least 1; steps as large as AdamW's; sqrt(rows / cols). In the order of
 * pt_lr_adjust, without AUTO. */
typedef enum lr_adjust { LR_ADJUST_ORIGINAL, LR_ADJUST_RMS, LR_ADJUST_SPECTRAL } lr_adjust;

/* The values of --optimizer-args. */
typedef struct optimizer_args {
    double clip_threshold, decay_rate, scale_parameter, relative_step, warmup_init; /* adafactor */
    double rank, update_proj_gap, scale, scale_type;                                /* apollo, apollo_mini, galore, and in 8 bits */
} optimizer_args;

/* A key of them, of an optimizer. Older names: as LLaMA-Factory has them. */
typedef enum arg_kind { ARG_REAL, ARG_INT, ARG_BOOL, ARG_CHOICE } arg_kind;
typedef struct arg_row { const char *key; arg_kind kind; size_t at; double initial, low, high; const char *const *choices; } arg_row;
#define ARG(name, k, first, from, to) {#name, ARG_##k, offsetof(optimizer_args, name), first, from, to, NULL}

/* The parameters of one step's update. */
typedef struct update_params {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step;       /* 1, 2, ...: for bias correction */
    int64_t step_always; /* the same of parameters with param.always */
    float grad_scale;   /* clipping */
    float momentum;
    lr_adjust lr_adjust;
    optimizer_args args;
    uint64_t seed;
} update_params;

/* Adjacent values that one rule updates; pointers are for the queue's memory. */
typedef struct update {
    const update_params *params;
    const param *param;          /* its first parameter */
    pt_dtype type;
    int64_t n;
    int64_t before;              /* values of `param` before them: only of a rule with by_matrix, else 0 */
    void *hi; uint16_t *lo;      /* weights: base/dtype.h, master_split; fp32: only hi */
    const void *g;
    void *slab[OPTIMIZER_SLABS];
    void *workspace;             /* of the size that the rule asks for, 64-byte aligned */
} update;

typedef struct update_rule {
    const char *title;           /* for messages */
    slab slabs[OPTIMIZER_SLABS]; /* ended by one without a name */
    void (*submit)(queue *q, const update *u);
    /* For rules that update whole parameters: */
    bool whole;
    bool by_matrix;                              /* `whole`, but of experts any of their matrices may be updated without the others */
    bool by_device;                              /* uses matmuls, which on a GPU give other bits than on the host */
    uint64_t (*workspace)(const param *p);       /* bytes */
    double (*flops)(const param *p);             /* determines its time, instead of the number of values */
    int passes;                                  /* without flops: how often it reads the gradient after the first time */
} update_rule;

typedef struct optimizer {
    const char *name;  /* --optimizer, plan.json, trainer.json */
    const update_rule *rules[OPTIMIZER_RULES]; /* NULL ends them. The first one is timed: it updates value by value */
    const update_rule *(*rule_of)(const param *p); /* the rule of a trained parameter */
    bool reads_momentum; /* uses momentum and the adjustment of the learning rate */
    bool of_matrices;    /* only the matrices of layers have another rule than AdamW */
    const arg_row *args; /* one without a key ends them; NULL: none */
} optimizer;

extern const optimizer optimizer_adamw, optimizer_adamw8bit, optimizer_muon, optimizer_adafactor, optimizer_apollo, optimizer_apollo_mini,
    optimizer_adam_mini, optimizer_galore, optimizer_apollo8bit, optimizer_galore8bit;
extern const optimizer *const optimizers[]; /* NULL ends them; in the order of pt_optimizer */

const optimizer *optimizer_find(const char *name); /* NULL: there is none */
/* The optimizer of a step; AdamW if it has none. */
static inline const optimizer *shape_optimizer(const step_shape *shape) { return shape->optimizer ? shape->optimizer : &optimizer_adamw; }

/* The rule of a parameter. That of a frozen one keeps nothing and does nothing. */
const update_rule *optimizer_rule(const optimizer *o, const param *p);

/* The names of all slabs of its rules, each once; returns their number. */
int optimizer_states(const optimizer *o, const char *names[OPTIMIZER_STATES]);

bool optimizer_is_by_device(const optimizer *o); /* one of its rules is */

int rule_slabs(const update_rule *r);
/* Index of its slab of this name, or -1. */
int rule_find(const update_rule *r, const char *name);
/* The matrices of a part (of experts: several) and of vectors, as rules with factored states see them. */
typedef struct part_matrix { int64_t n, rows, cols; } part_matrix;
part_matrix part_matrix_of(const param *p, int k);

/* Entries of part k, where they begin among the parameter's, and those of all parts. */
int64_t slab_of_part(const slab *slab, const param *p, int k);
int64_t slab_first(const slab *slab, const param *p, int k);
int64_t slab_of_param(const slab *slab, const param *p);
/* Has the slab one entry per value? */
static inline bool slab_is_of_values(const slab *slab) { return !slab->of_part && slab->values == 1; }
/* Entries of a slab without of_part for so many values from a block's beginning. */
static inline int64_t slab_entries(const slab *slab, int64_t values) { return (values + slab->values - 1) / slab->values; }
/* For rules that update one part after the other: the largest workspace of a part; takes n entries from a workspace. */
uint64_t workspace_of_parts(const param *p, uint64_t (*of_part)(const param *p, int k));
static inline uint64_t workspace_take(uint64_t *at, int64_t n, uint64_t each)
{
    const uint64_t begin = *at;
    *at = align_up(begin + (uint64_t)n * each, 64);
    return begin;
}
static inline uint64_t rule_workspace(const update_rule *r, const param *p) { return r->workspace ? r->workspace(p) : 0; }
/* Bytes moved per value of this type: weights and states, read and written, and the gradient, read. */
double rule_bytes(const update_rule *r, pt_dtype type);

/* The values of "rank=8,scale=1", NULL: the defaults. PT_USAGE: a key that the optimizer lacks, or a value that the key cannot have. */
int optimizer_args_parse(const optimizer *o, const char *text, optimizer_args *out, pt_error *e);

/* Sets what the states of a model's parameters depend on. */
void optimizer_prepare(model *m, const optimizer_args *a);

/* The learning rate of a step by relative_step. */
double optimizer_relative_lr(const optimizer_args *a, int64_t step);

/* For optimizers that use AdamW for some parameters: its rule, and its op without moments. */
extern const update_rule adamw_rule;
op_adamw adamw_op(const update *u);

#endif
