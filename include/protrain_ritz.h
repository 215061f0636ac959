/* protrain_ritz.h - partial differential equations by the Deep Ritz method, from C: a network u(x) that minimises an energy, an integral
 * over a box that is sampled with random or quasi-Monte Carlo points.
 *
 *     poisson         -div grad u = f          E(u) = int |grad u|^2 / 2 - f u  [+ (int u)^2 / 2]
 *     schroedinger    -div grad u + V u = f    E(u) = int (|grad u|^2 + V u^2) / 2 - f u
 *     [ ]: with pure Neumann conditions, which leave u known but for a constant
 *
 *     neumann         du/dn = g: the energy has - int over the boundary of g u. Without a g it is 0, and there is nothing to sample.
 *     dirichlet       u = g: the energy has penalty * int over the boundary of (u - g)^2.
 *
 *     pt_ritz_options o;
 *     pt_ritz_defaults(&o);
 *     o.problem = "poisson-cosine"; o.dim = 5;
 *     pt_ritz *r;
 *     if (pt_ritz_open(&o, &r, &e) < 0) ...
 *     while ((more = pt_ritz_step(r, &s, &e)) > 0)
 *         printf("%lld %.6f\n", (long long)s.step, s.energy);
 *     pt_ritz_evaluate(r, n, x, u, gradient, &e);
 *     pt_ritz_finish(r, &e);                 network.safetensors and config.json in o.out
 *     pt_ritz_close(r);
 *
 * Errors, threads and NULL are as in protrain.h.
 */
#ifndef PROTRAIN_RITZ_H
#define PROTRAIN_RITZ_H

#include "protrain.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pt_ritz_points { PT_RITZ_MC, PT_RITZ_SOBOL, PT_RITZ_HALTON, PT_RITZ_LATTICE } pt_ritz_points;
/* Default: owen; of a lattice: shift. shift: one random point is added to all; lms: a random matrix for each dimension, and the shift;
 * owen: nested scrambling, of halton: random permutations of the digits. What is not randomized goes on with the sequence's next points. */
typedef enum pt_ritz_randomize {
    PT_RITZ_RANDOMIZE_DEFAULT, PT_RITZ_RANDOMIZE_NONE, PT_RITZ_RANDOMIZE_SHIFT, PT_RITZ_RANDOMIZE_LMS, PT_RITZ_RANDOMIZE_OWEN
} pt_ritz_randomize;
/* tanh, its cube, max(x, 0)^3, log(1 + e^x), sin, x / (1 + e^-x) */
typedef enum pt_ritz_activation {
    PT_RITZ_TANH, PT_RITZ_TANH3, PT_RITZ_RELU3, PT_RITZ_SOFTPLUS, PT_RITZ_SIN, PT_RITZ_SILU
} pt_ritz_activation;
typedef enum pt_ritz_equation { PT_RITZ_POISSON, PT_RITZ_SCHROEDINGER } pt_ritz_equation;
typedef enum pt_ritz_boundary { PT_RITZ_NEUMANN, PT_RITZ_DIRICHLET } pt_ritz_boundary;
typedef enum pt_ritz_lr_schedule { PT_RITZ_LR_CONSTANT, PT_RITZ_LR_LINEAR, PT_RITZ_LR_COSINE, PT_RITZ_LR_HALVING } pt_ritz_lr_schedule;
typedef enum pt_ritz_dtype { PT_RITZ_FP32, PT_RITZ_FP64 } pt_ritz_dtype;

/* out[i] (a gradient: out[i dim + j]) at the points x[i dim + j], i below n. */
typedef void (*pt_ritz_function)(void *arg, int64_t n, int64_t dim, const double *x, double *out);

typedef struct pt_ritz_problem {
    int64_t dim;
    const double *lower, *upper;       /* the box, dim numbers each; NULL: the unit cube */
    pt_ritz_equation equation;
    pt_ritz_boundary boundary;
    double penalty;                    /* of dirichlet */
    pt_ritz_function f, V, g;          /* NULL: 0 (g of neumann: nothing is sampled there) */
    pt_ritz_function exact, exact_gradient; /* NULL: not known; without the gradient it is taken by differences */
    void *arg;
} pt_ritz_problem;

/* Where budgets do not suffice: what is missing, and options of the program with which they would: "--device-memory 1.75GiB". */
typedef struct pt_ritz_misfit { uint64_t missing_bytes; char change[128]; } pt_ritz_misfit;

typedef struct pt_ritz_options {
    const char *problem;               /* a built-in one's name (pt_ritz_problem_name) or a problem file; NULL: `own` */
    const pt_ritz_problem *own;
    int64_t dim;                       /* of a built-in problem; 0: what it usually has */
    pt_ritz_points points; pt_ritz_randomize randomize;
    int64_t n, n_boundary;             /* points a step inside, and on all faces together, where these are sampled; n_boundary 0: n */
    int64_t redraw_every;              /* steps with the same points, 0: always the same */
    int64_t width; int blocks;
    bool plain;                        /* a multilayer perceptron with `blocks` layers instead of residual blocks of two */
    bool no_input_layer;               /* x and zeros are the first block's input, as Deep Ritz began; width >= dim */
    pt_ritz_activation activation;
    int64_t steps;
    double lr; pt_ritz_lr_schedule lr_schedule; int64_t warmup_steps, halve_every; double min_lr_ratio;
    double weight_decay, beta1, beta2, eps;
    pt_ritz_dtype dtype;
    uint64_t seed;
    int threads;                       /* 0: all cores that the process may use */
    const char *device;                /* "auto", "cpu", "cuda", "cuda:N" */
    /* Budgets in bytes, or PT_AUTO: what is free, less a margin. On a CPU the device is RAM, and the host is a tier only where it is asked
     * for. The disk is used where memory does not suffice; 0: never. None of it changes a bit. */
    uint64_t device_memory, host_memory, disk_memory;
    const char *disk_path;             /* NULL: `out`, else $TMPDIR or /var/tmp */
    int64_t micro_batch;               /* points taken through a layer before the next one is, rounded up to whole units; 0: planned */
    const char *plan_file;             /* exactly this plan, of pt_ritz_plan_json; NULL: planned */
    bool forecast;                     /* the time of a step is predicted, with times that are measured when the run is opened */
    pt_ritz_misfit *misfit;            /* filled where pt_ritz_open returns PT_DOES_NOT_FIT; may be NULL */
    bool plan_only;                    /* pt_ritz_open plans, and takes no memory: pt_ritz_get_summary and pt_ritz_close are all */
    const char *out;                   /* NULL: nothing is written */
    int64_t eval_every, eval_n;        /* steps between errors against the exact solution, and their points */
    int64_t save_every; int keep;      /* checkpoints; keep 0: all */
    bool resume;
    void (*notice)(void *arg, const char *sentence); /* may be NULL */
    void *arg;
} pt_ritz_options;

typedef struct pt_ritz_step_info {
    int64_t step;                      /* 1, 2, ... */
    double energy;                     /* before this step's update, on its points */
    double lr, step_s;
    bool evaluated; double l2_error, h1_error; /* relative, after the update; where an exact solution is known */
} pt_ritz_step_info;

typedef struct pt_ritz_summary {
    const char *problem; int64_t dim, parameters, steps, first_step, n, n_boundary, unit_points;
    bool has_exact; double exact_energy; /* NAN: not known */
    uint64_t planned_bytes[3], peak_bytes[3], budget_bytes[3]; /* of device, host, disk: planned, come to by what ran so far, allowed */
    int64_t visit_units;               /* units taken through a layer before the next one is */
    int groups, recomputed_groups, swapped_groups; /* of the network's stages; not kept between sweeps; kept elsewhere than on the device */
    int chunks, chunks_on[3];          /* of parameters; on device, host, disk */
    double predicted_step_s, again_s;  /* 0: not predicted; of it what computes again */
    uint64_t written_bytes;            /* to the disk, in a step */
    char arithmetic[128];
} pt_ritz_summary;

typedef struct pt_ritz pt_ritz;

PT_API void pt_ritz_defaults(pt_ritz_options *o);
/* The plan as plan_file reads it, also of plan_only. free() it. */
PT_API char *pt_ritz_plan_json(const pt_ritz *r);
/* Names of the built-in problems, NULL behind the last; *about: a line on it. */
PT_API const char *pt_ritz_problem_name(int i, const char **about);
PT_API int pt_ritz_open(const pt_ritz_options *o, pt_ritz **out, pt_error *e);
/* 1 if there was one, 0 when all are done, negative on error. */
PT_API int pt_ritz_step(pt_ritz *r, pt_ritz_step_info *s, pt_error *e);
/* u, and where that is not NULL its gradient (n, dim), at n points x (n, dim) of the box's coordinates. */
PT_API int pt_ritz_evaluate(pt_ritz *r, int64_t n, const double *x, double *u, double *gradient, pt_error *e);
/* Relative errors on eval_n Sobol points of their own; PT_USAGE where no exact solution is known. */
PT_API int pt_ritz_errors(pt_ritz *r, double *l2, double *h1, pt_error *e);
PT_API int pt_ritz_save(pt_ritz *r, pt_error *e);   /* checkpoint-STEP in out */
PT_API int pt_ritz_finish(pt_ritz *r, pt_error *e); /* the network, and a last checkpoint, in out */
PT_API void pt_ritz_get_summary(const pt_ritz *r, pt_ritz_summary *s);
PT_API void pt_ritz_close(pt_ritz *r);
/* A trained network alone, for pt_ritz_evaluate: from what pt_ritz_finish has written. */
PT_API int pt_ritz_load(const char *folder, int threads, pt_ritz **out, pt_error *e);

#ifdef __cplusplus
}
#endif
#endif
