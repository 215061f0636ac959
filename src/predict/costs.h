/* costs.h - what things cost: the profile of a machine and a model as plain numbers. They were measured (measure/measure.h),
 * or computed for a machine that is not here (profile/analytic.h); who reads them does not know which.
 *
 * Blocks are priced a unit at a time (model/shape.h: the unit is the atom of computation), transfers and updates by
 * their size. Every time is that of a task that runs alone; what it loses to others at its side is in `slow`.
 */
#ifndef PT_COSTS_H
#define PT_COSTS_H

#include "schedule/schedule.h"

enum { COST_POINTS = 8, COST_LAYER_KINDS = MODEL_LAYER_KINDS };

/* Time by amount (bytes, elements): straight lines between points of ascending amount, of which more never takes less.
 * Below the first its time, above the last at the slope of the last two (of one point: in proportion). n = 0: not known,
 * costs nothing. */
typedef struct cost_curve { int n; double amount[COST_POINTS], ns[COST_POINTS]; } cost_curve;
double cost_at(const cost_curve *c, double amount);

/* What a running task is to those beside it. */
typedef enum cost_class {
    COST_MATH,   /* layers and the head: bound by the device's arithmetic */
    COST_MEMORY, /* updates, rounding of gradients, embedding on the device: bound by its memory */
    COST_TO_DEVICE, COST_FROM_DEVICE, COST_HOST, COST_READ, COST_WRITE,
    COST_CLASSES
} cost_class;
extern const char *const cost_class_names[COST_CLASSES];
cost_class task_class(const task *t);

typedef struct layer_cost {
    double forward_ns[SAVE_LEVELS], backward_ns[SAVE_LEVELS]; /* one unit */
    double first_accumulators_ns, cold_accumulators_ns;
        /* more, of a backward whose accumulators of gradients lie elsewhere than those of the backward before it,
                                           in no cache: where it is the step's first for its layer and writes them; where it adds */
    double warm_forward_ns, warm_backward_ns[SAVE_LEVELS]; /* less, of a unit right behind another of its visit: weights are in the cache */
} layer_cost;

/* Processor time that a virtual machine may use in each period; when it has, all of it stands still until the next begins. What its host
 * does for its disk counts as well, though none of the machine's own processors does it. */
typedef struct cost_quota {
    double period_ns;          /* 0: not known, nothing stands still */
    double processors;         /* that may be busy all the time; as many as the machine has of its own */
    /* processors that a task keeps busy: its threads; of reads and writes the host's, at the pace they have alone */
    double busy[COST_CLASSES];
} cost_quota;

typedef struct costs {
    int kinds_n;                                    /* layers that differ in cost (model_layer_kinds) */
    unsigned char kind_of_layer[MODEL_MAX_LAYERS];  /* index into layer */
    layer_cost layer[COST_LAYER_KINDS];
    double embed_ns, head_ns, head_eval_ns;         /* one unit */
    double head_cold_accumulators_ns;
        /* more, of a visit that is not a step's first: other layers' lie between it and the
                                                       one before; what a step's first takes to write them is part of head_ns */
    cost_curve finish, embed_finish;                /* by elements of an op; embed_finish by all of a task, for the whole batch */
    cost_curve update_device, update_host;          /* by elements (update_span), by the optimizer's first rule */
    cost_curve whole_device, whole_host;            /* by FLOPs of a parameter that is updated whole (update_rule.flops) */
    cost_curve to_device, from_device, read, write; /* by bytes */
    cost_curve gather, scatter;                     /* several ranks: by bytes of a chunk's weights, and of the sums of all of them */
    double task_ns;                                 /* what any task costs its queue beside its work */
    double step_ns;                                 /* a step's work outside of its schedule: batch, sums, metrics */
    cost_curve wake_latency;                              /* what arithmetic loses that begins after so many ns without any, by these ns:
                                                       processors take a moment to come to speed (measure/measure_wake_latency.c) */
    double slow[COST_CLASSES][COST_CLASSES];        /* slow[a][b] >= 1: how many times longer `a` takes while `b` runs;
                                                       what several add to 1 adds up, of reads and writes at the pace
                                                       that they leave each other; of these what they lose to
                                                       each other multiplies the rest */
    double slow_more[COST_CLASSES][COST_CLASSES];   /* of another length of `a`, what comes to it; below 0: that one loses less */
    double slow_ns[COST_CLASSES][2];                /* what both lengths of `a` take alone; [1] 0: it is the same for any length */
    cost_quota quota;
    /* Of a network that is no model, all that its tasks take is known elsewhere; NULL: what stands here is a model's. */
    double (*network_ns)(const void *network, const schedule *s, const task *t);
    const void *network;
    double spread;                                  /* relative uncertainty of layers and head: half the quartile distance */
    double curves_spread;                           /* of updates, rounding and transfers, the same; 0: not known */
} costs;

/* One length is so many times the other at least: else what both lose says nothing of those between and beyond. */
#define COST_LENGTHS_LEAST 1.25
/* How much of slow_more[a] comes to slow[a] for a task that takes so long alone: none of it at the first length, all of it at the second,
 * and so much between, and of a second one that is longer beyond it, that the time beside others is a straight line through both. */
double costs_length_share(const costs *c, cost_class a, double alone_ns);
/* That of the length of which it is most. */
double costs_length_most(const costs *c, cost_class a);
/* How many times longer `a` takes beside `b` if it takes so long alone. */
double costs_slow(const costs *c, cost_class a, cost_class b, double alone_ns);
/* All curves empty, no slowing down. */
void costs_init(costs *c);
/* Time of a task of s->tasks that runs alone, in ns. */
double costs_task_ns(const costs *c, const schedule_input *in, const schedule *s, const task *t);
/* The same of a layer's forward or backward as if it saved `level`, without what any task costs. */
double layer_task_ns(const costs *c, const schedule_input *in, const schedule *s, const task *t, save_level level);
/* The gradients of a block's parameters, as far as they lie in the chunk. */
double block_finish_ns(const costs *c, const model *m, const packing *k, int chunk, int block);
/* The updates of a chunk's parameters, of the rank's shard. */
double chunk_update_ns(const costs *c, const model *m, const packing *k, int chunk, bool on_host);
/* Every number finite and not negative, kinds in range, curves ascending: else PT_FAILED names it (`name`: the file). */
int costs_validate(const costs *c, const model *m, const char *name, pt_error *e);

#endif
