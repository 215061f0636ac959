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

enum { OPTIMIZER_SLABS = 4, OPTIMIZER_RULES = 2, OPTIMIZER_STATES = 6, OPTIMIZERS_MOST = 8 };

/* State that a rule keeps for each value of a parameter, or for each block of values. Initially zero. */
typedef struct slab {
    const char *name; /* name of its file in a checkpoint */
    pt_dtype type;    /* of an entry: F32, U8 */
    int values;       /* values per entry: 1, or a block, counted from the parameter's beginning */
} slab;

#define MUON_MOMENTUM 0.95f /* default */

/* The factor of a matrix's learning rate: sqrt(rows / cols), at least 1; steps as large as AdamW's; sqrt(rows / cols). In the order of
 * pt_lr_adjust, without AUTO. */
typedef enum lr_adjust { LR_ADJUST_ORIGINAL, LR_ADJUST_RMS, LR_ADJUST_SPECTRAL } lr_adjust;

/* The parameters of one step's update. */
typedef struct update_params {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step;       /* 1, 2, ...: for bias correction */
    float grad_scale;   /* clipping */
    float momentum;
    lr_adjust lr_adjust;
} update_params;

/* Adjacent values that one rule updates; pointers are for the queue's memory. */
typedef struct update {
    const update_params *params;
    const param *param;          /* its first parameter */
    pt_dtype type;
    int64_t n;
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
    bool by_device;                              /* uses matmuls, which on a GPU give other bits than on the host */
    uint64_t (*workspace)(const param *p);       /* bytes */
    double (*flops)(const param *p);             /* determines its time, instead of the number of values */
} update_rule;

typedef struct optimizer {
    const char *name;  /* --optimizer, plan.json, trainer.json */
    const update_rule *rules[OPTIMIZER_RULES]; /* NULL ends them. The first one is timed: it updates value by value */
    const update_rule *(*rule_of)(const param *p); /* the rule of a trained parameter */
    bool reads_momentum; /* uses momentum and the adjustment of the learning rate */
} optimizer;

extern const optimizer optimizer_adamw, optimizer_adamw8bit, optimizer_muon;
extern const optimizer *const optimizers[]; /* NULL ends them; in the order of pt_optimizer */

const optimizer *optimizer_find(const char *name); /* NULL: there is none */
/* The optimizer of a step; AdamW if it has none. */
static inline const optimizer *shape_optimizer(const step_shape *s) { return s->optimizer ? s->optimizer : &optimizer_adamw; }

/* The rule of a parameter. That of a frozen one keeps nothing and does nothing. */
const update_rule *optimizer_rule(const optimizer *o, const param *p);

/* The names of all slabs of its rules, each once; returns their number. */
int optimizer_states(const optimizer *o, const char *names[OPTIMIZER_STATES]);

bool optimizer_is_by_device(const optimizer *o); /* one of its rules is */

int rule_slabs(const update_rule *r);
/* Index of its slab of this name, or -1. */
int rule_find(const update_rule *r, const char *name);
/* Entries of a slab for so many values from a block's beginning. */
static inline int64_t slab_entries(const slab *s, int64_t values) { return (values + s->values - 1) / s->values; }
static inline uint64_t rule_workspace(const update_rule *r, const param *p) { return r->workspace ? r->workspace(p) : 0; }
/* Bytes moved per value of this type: weights and states, read and written, and the gradient, read. */
double rule_bytes(const update_rule *r, pt_dtype type);

/* For optimizers that use AdamW for some parameters: its rule, and its op without moments. */
extern const update_rule adamw_rule;
op_adamw adamw_op(const update *u);

#endif
