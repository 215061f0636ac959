/* costs.h - the costs of a model on a machine as plain numbers: measured (measure/measure.h), or computed for another machine (analytic.c).
 * Their users do not know which.
 *
 * Costs of blocks are per unit (model/shape.h), those of transfers and updates depend on their size. Every time is that of a task that
 * runs alone; `slow` has the contention.
 */
#ifndef PT_COSTS_H
#define PT_COSTS_H

#include "schedule/schedule.h"

enum { COST_POINTS = 8, COST_LAYER_KINDS = MODEL_LAYER_KINDS };

/* Time by amount (bytes, elements): straight lines between points of ascending amount, which never fall. Below the first point it is the
 * first time, above the last point the slope of the last two continues (one point: in proportion). n = 0: unknown, no cost. */
typedef struct cost_curve { int n; double amount[COST_POINTS], ns[COST_POINTS]; } cost_curve;
double cost_at(const cost_curve *curve, double amount);

/* Classes of running tasks, for contention. */
typedef enum cost_class {
    COST_MATH,   /* layers and the head: limited by the device's arithmetic */
    COST_MEMORY, /* updates, rounding of gradients, the embedding on the device: limited by its memory */
    COST_TO_DEVICE, COST_FROM_DEVICE, COST_HOST, COST_READ, COST_WRITE,
    COST_CLASSES
} cost_class;
extern const char *const cost_class_names[COST_CLASSES];
cost_class task_class(const task *t);

typedef struct layer_cost {
    double forward_ns[SAVE_LEVELS], backward_ns[SAVE_LEVELS]; /* per unit */
    double first_accumulators_ns, cold_accumulators_ns;
        /* added to a backward whose gradient accumulators are in no cache, because they are not those of the backward before: if it
         * writes them (the step's first for its layer); if it adds to them */
    double warm_forward_ns, warm_backward_ns[SAVE_LEVELS]; /* subtracted from a unit directly after another of its visit, as the */
                                                           /* weights are in the cache */
} layer_cost;

/* The processor time that a virtual machine may use per period. When it is used up, everything stands still until the next period. The
 * host's work for the machine's disk counts, too, although it runs on none of the machine's processors. */
typedef struct cost_quota {
    double period_ns;          /* 0: unknown, nothing stands still */
    double processors;         /* number of processors that may be busy all the time: as many as the machine has */
    /* processors that a task keeps busy: its threads; for reads and writes those of the host, at their pace alone */
    double busy[COST_CLASSES];
} cost_quota;

typedef struct costs {
    int kinds_n;                                    /* kinds of layers by cost (model_layer_kinds) */
    unsigned char kind_of_layer[MODEL_MAX_LAYERS];  /* index into layer */
    layer_cost layer[COST_LAYER_KINDS];
    double embed_ns, head_ns, head_eval_ns;         /* per unit */
    double head_cold_accumulators_ns;
        /* added to a visit that is not a step's first, because the accumulators of other layers came between; head_ns includes writing
         * them in a step's first */
    cost_curve finish, embed_finish;                /* by elements of an op; embed_finish by all elements of a task, for the whole batch */
    cost_curve update_device, update_host;          /* by elements (update_span), for the optimizer's first rule */
    cost_curve whole_device, whole_host;            /* by FLOPs of a parameter that is updated whole (update_rule.flops) */
    cost_curve to_device, from_device, read, write; /* by bytes */
    cost_curve gather, scatter;                     /* several ranks: by bytes of a chunk's weights, and of the sums of all ranks */
    double task_ns;                                 /* fixed cost of a task on its queue */
    double step_ns;                                 /* a step's work outside of its schedule: batch, sums, metrics */
    cost_curve wake_latency;                        /* ns lost by arithmetic that starts after so many ns without any, while processors */
                                                    /* reach their speed (measure/measure_wake_latency.c) */
    /* slow[a][b] >= 1: the factor by which `a` takes longer while `b` runs. What several add to 1 adds up, for reads and writes at the pace
     * that they leave each other; what these lose to each other multiplies the rest */
    double slow[COST_CLASSES][COST_CLASSES];
    double slow_more[COST_CLASSES][COST_CLASSES];   /* added to `slow` for another length of `a`; negative: that length loses less */
    double slow_ns[COST_CLASSES][2];                /* what both lengths of `a` take alone; [1] 0: contention is the same for any length */
    cost_quota quota;
    /* For a network that is not a model: its own times of tasks. NULL: the times above are a model's. */
    double (*network_ns)(const void *network, const schedule *s, const task *t);
    const void *network;
    double spread;                                  /* relative uncertainty of layers and head: half the quartile distance, and what */
                                                    /* other programs took of the processors' time */
    double curves_spread;                           /* the same for updates, rounding and transfers; 0: unknown */
} costs;

/* 90% of normally distributed values lie within this many times the uncertainty. */
#define COST_NINE_OF_TEN 2.4
/* Least ratio of the two lengths: closer ones say nothing about lengths between and beyond. */
#define COST_LENGTHS_LEAST 1.25
/* The share of slow_more[a] that is added to slow[a] for a task that takes so long alone: 0 at the first length, 1 at the second; between
 * them, and beyond a longer second one, such that the time under contention is a straight line through both. */
double costs_length_share(const costs *costs, cost_class a, double alone_ns);
/* The share at the length where it is largest. */
double costs_length_most(const costs *costs, cost_class a);
/* The factor by which `a` takes longer beside `b` if it takes so long alone. */
double costs_slow(const costs *costs, cost_class a, cost_class b, double alone_ns);
/* Saving more takes no longer in all, forward and backward together, than computing again. Where it seems to, by no more than times are
 * certain to (a share of them), the recomputation is taken to cost a little. */
void layer_cost_order(layer_cost *c, double certain_to);
/* All curves empty, no contention. */
void costs_init(costs *costs);
/* Time in ns of a task of sched->tasks that runs alone. */
double costs_task_ns(const costs *costs, const schedule_input *in, const schedule *sched, const task *t);
/* The same for a layer's forward or backward as if it saved `level`, without the fixed cost of a task. */
double layer_task_ns(const costs *costs, const schedule_input *in, const schedule *sched, const task *t, save_level level);
/* An exchange of heads among the ranks that share sequences, of which this rank sends `bytes`, its own part included: as long as a gather
 * among all ranks in which each receives as many. */
double heads_exchange_ns(const costs *costs, const step_shape *shape, double bytes);
/* Looking up the rows of units' tokens on the host, or reading the blocks around them from the disk. */
double rows_look_up_ns(const costs *costs, const model *m, const step_shape *shape, int64_t units, bool from_disk);
/* The share of the rows of a table of layers' inputs that is listed in a step: each token has another row. */
double listed_share(const model *m, const packing *packing);
/* Finishing the gradients of a block's parameters that lie in the chunk, from sums of one rank; of listed rows those alone. */
double block_finish_ns(const costs *costs, const model *m, const packing *packing, int chunk, int block);
/* With several ranks, adding their sums before: each addition moves twice the bytes of the rounding of such a sum, and the last one only
 * adds its second operand to the rounding's, two thirds of its bytes. */
double ranks_sums_ns(const costs *costs, const model *m, const packing *packing, int chunk, int block);
/* Several ranks: the bytes of the sums for a chunk of listed rows that are exchanged: on CPUs those of rows that tokens of a rank touch. */
double listed_bytes(const model *m, const step_shape *shape, const packing *packing, int chunk);
/* Several ranks on CPUs: the embedding's sums in the chunk that are not exchanged, because they are of rows that no token touches
 * (run/touched.h). Each token touches another row, evenly spread over the table. */
double untouched_bytes(const model *m, const step_shape *shape, const packing *packing, int chunk);
/* Summing the gradients of a step's rows of a table that is looked up. */
double rows_finish_ns(const costs *costs, const model *m, const step_shape *shape);
/* Updating this rank's shard of a chunk. A gradient that is written out of a list of rows moves as many bytes as its rounding on the
 * device, as a copy to the device on the host. */
double chunk_update_ns(const costs *costs, const model *m, const packing *packing, int chunk, bool on_host);
/* Checks that every number is finite and not negative, kinds are in range and curves ascend: else PT_FAILED names it (`name`: the file). */
int costs_validate(const costs *costs, const model *m, const char *name, pt_error *e);

#endif
