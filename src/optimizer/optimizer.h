/* optimizer.h - how weights learn. An optimizer is one file of this folder and one row of a table.
 *
 * An optimizer has a rule for each parameter. A rule says what a parameter keeps beside its weights (slabs), which ops update it, and what
 * these take. All else follows from it: the states of a chunk (plan/pack.h), their files in a checkpoint (train/checkpoint.c), what an
 * update costs (predict/costs.h, profile/), the memory that a plan needs. A rule is the same on host and device, and does not know
 * where a parameter lies or how it was packed.
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

/* What a rule keeps of each value of a parameter, or of each block of values. Zeros to begin with. */
typedef struct slab {
    const char *name; /* a checkpoint's file */
    pt_dtype type;    /* of an entry: F32, U8 */
    int values;       /* that share an entry: 1, or a block of them, counted from the parameter's beginning */
} slab;

#define MUON_MOMENTUM 0.95f /* where none is given */

/* How the learning rate of a matrix follows from its sides: by the root of rows / cols where that is above 1; as large a step as AdamW's;
 * by that root. In the order of pt_lr_adjust. */
typedef enum lr_adjust { LR_ADJUST_ORIGINAL, LR_ADJUST_RMS, LR_ADJUST_SPECTRAL } lr_adjust;

/* Of one step. */
typedef struct update_params {
    float lr, beta1, beta2, eps, weight_decay;
    int64_t step;       /* 1, 2, ...: for the bias corrections */
    float grad_scale;   /* clipping */
    float momentum;
    lr_adjust lr_adjust;
} update_params;

/* Values side by side that one rule updates; pointers are the queue's. */
typedef struct update {
    const update_params *params;
    const param *param;          /* the first of its parameters */
    pt_dtype type;
    int64_t n;
    void *hi; uint16_t *lo;      /* weights: base/dtype.h, master_split; fp32: hi alone */
    const void *g;
    void *slab[OPTIMIZER_SLABS];
    void *workspace;             /* as large as the rule wants it, 64-byte aligned */
} update;

typedef struct update_rule {
    const char *title;           /* for people */
    slab slabs[OPTIMIZER_SLABS]; /* one without a name ends them */
    void (*submit)(queue *q, const update *u);
    /* Of a rule that takes parameters one by one and whole: */
    bool whole;
    bool by_device;                              /* matmuls: on a GPU host and device give other bits */
    uint64_t (*workspace)(const param *p);       /* bytes */
    double (*flops)(const param *p);             /* its time goes by these, and not by values */
} update_rule;

typedef struct optimizer {
    const char *name;  /* --optimizer, plan.json, trainer.json */
    const update_rule *rules[OPTIMIZER_RULES]; /* the first is the one that is timed: it updates values one by one. NULL ends them */
    const update_rule *(*rule_of)(const param *p); /* of one that is trained */
    bool reads_momentum; /* and how the learning rate is adjusted */
} optimizer;

extern const optimizer optimizer_adamw, optimizer_adamw8bit, optimizer_muon;
extern const optimizer *const optimizers[]; /* NULL ends them; in the order of pt_optimizer */

const optimizer *optimizer_find(const char *name); /* NULL: there is none */
/* Of a step; AdamW where it names none. */
static inline const optimizer *shape_optimizer(const step_shape *s) { return s->optimizer ? s->optimizer : &optimizer_adamw; }

/* The rule of a parameter. Of a frozen one it keeps nothing and does nothing. */
const update_rule *optimizer_rule(const optimizer *o, const param *p);

/* Names of all that its rules keep, each once; returns their number. */
int optimizer_states(const optimizer *o, const char *names[OPTIMIZER_STATES]);

bool optimizer_is_by_device(const optimizer *o); /* a rule of it is */

int rule_slabs(const update_rule *r);
/* Its slab of this name, or -1. */
int rule_find(const update_rule *r, const char *name);
/* Entries of a slab for so many values that begin where a block does. */
static inline int64_t slab_entries(const slab *s, int64_t values) { return (values + s->values - 1) / s->values; }
static inline uint64_t rule_workspace(const update_rule *r, const param *p) { return r->workspace ? r->workspace(p) : 0; }
/* Of one value of this type: read and written with its states, and the gradient that is read. */
double rule_bytes(const update_rule *r, pt_dtype type);

/* For those that have AdamW as a part: its rule, and its op without moments. */
extern const update_rule adamw_rule;
op_adamw adamw_op(const update *u);

#endif
