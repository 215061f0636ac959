/* protrain_ritz.h - partial differential equations by the Deep Ritz method, from C: a network u(x) that minimises an energy, an integral
 * over a box, estimated from random or quasi-Monte Carlo points.
 *
 *     poisson         -div(a grad u) = f          E(u) = int (a |grad u|^2 / 2 - f u)  [+ (int u)^2 / 2]
 *     schroedinger    -div(a grad u) + V u = f    E(u) = int ((a |grad u|^2 + V u^2) / 2 - f u)
 *     eigenvalue      -div(a grad u) + V u = E u  E(u) = int (a |grad u|^2 + V u^2) / int u^2, whose least value is the smallest eigenvalue
 *     [ ]: with Neumann conditions alone, which determine u up to a constant
 *     With a nonlinear term G, which poisson and schroedinger may have, int G(x, u) is added, and dG/du to the equation's left side.
 *
 *     neumann         a du/dn = g: adds - int over the boundary of g u to the energy. Without g nothing is added, and no boundary
 *                     points are drawn.
 *     robin           a du/dn + r u = g: adds int over the boundary of (r u^2 / 2 - g u).
 *     dirichlet       u = g: adds penalty * int over the boundary of (u - g)^2.
 *     hard            u = g: the solution is g plus the network times a factor that is 0 there, and nothing is added.
 *
 *     pt_ritz_options o;
 *     pt_ritz_defaults(&o);
 *     o.problem = "poisson-cosine"; o.dim = 5;
 *     pt_ritz *r;
 *     if (pt_ritz_open(&o, &r, &e) < 0) ...
 *     while ((more = pt_ritz_step(r, &s, &e)) > 0)
 *         printf("%lld %.6f\n", (long long)s.step, s.energy);
 *     pt_ritz_evaluate(r, n, x, u, gradient, &e);
 *     pt_ritz_finish(r, &e);                 network.safetensors, config.json and report.html in o.out
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
enum { PT_RITZ_KINDS = 4 };            /* of points */
/* Default: owen; for halton: digits; for a lattice: shift. shift: one random point is added to all; lms: a random matrix for each
 * dimension, and a shift; owen: nested scrambling; digits, of halton: a random permutation for each digit; tent, of a lattice: a shift,
 * then x -> 1 - |2 x - 1|. none: each draw takes the next points of the sequence. */
typedef enum pt_ritz_randomize {
    PT_RITZ_RANDOMIZE_DEFAULT, PT_RITZ_RANDOMIZE_NONE, PT_RITZ_RANDOMIZE_SHIFT, PT_RITZ_RANDOMIZE_LMS, PT_RITZ_RANDOMIZE_OWEN,
    PT_RITZ_RANDOMIZE_DIGITS, PT_RITZ_RANDOMIZE_TENT
} pt_ritz_randomize;
/* tanh, its cube, max(x, 0)^3, log(1 + e^x), sin, x / (1 + e^-x) */
typedef enum pt_ritz_activation {
    PT_RITZ_TANH, PT_RITZ_TANH3, PT_RITZ_RELU3, PT_RITZ_SOFTPLUS, PT_RITZ_SIN, PT_RITZ_SILU
} pt_ritz_activation;
typedef enum pt_ritz_equation { PT_RITZ_POISSON, PT_RITZ_SCHROEDINGER, PT_RITZ_EIGENVALUE } pt_ritz_equation;
typedef enum pt_ritz_boundary { PT_RITZ_NEUMANN, PT_RITZ_DIRICHLET, PT_RITZ_ROBIN, PT_RITZ_HARD } pt_ritz_boundary;
/* What is minimised: the energy, or the residual loss: int r^2 of the equation's residual r, plus the penalty times int (u - g)^2 over a
 * dirichlet boundary, and `boundary_weight` times that of the other conditions' residuals; with (int u)^2 / 2 as above. Hard boundaries
 * add nothing. */
typedef enum pt_ritz_loss { PT_RITZ_LOSS_ENERGY, PT_RITZ_LOSS_RESIDUAL } pt_ritz_loss;
typedef enum pt_ritz_lr_schedule { PT_RITZ_LR_CONSTANT, PT_RITZ_LR_LINEAR, PT_RITZ_LR_COSINE, PT_RITZ_LR_HALVING } pt_ritz_lr_schedule;
typedef enum pt_ritz_dtype { PT_RITZ_FP32, PT_RITZ_FP64 } pt_ritz_dtype;

/* Writes the values out[i] (of a gradient: out[i dim + j]) at the points x[i dim + j], 0 <= i < n. */
typedef void (*pt_ritz_function)(void *arg, int64_t n, int64_t dim, const double *x, double *out);

/* The values G(x, u) and the slopes dG/du at n points. */
typedef void (*pt_ritz_nonlinear)(void *arg, int64_t n, int64_t dim, const double *x, const double *u, double *value, double *slope);

typedef struct pt_ritz_problem {
    int64_t dim;
    const double *lower, *upper;       /* the box, dim numbers each; NULL: the unit cube */
    int64_t holes;                     /* boxes that the domain lacks: holes in it, or corners; they do not overlap */
    const double *hole_lower, *hole_upper; /* (holes, dim) */
    pt_ritz_equation equation;
    pt_ritz_boundary boundary;
    /* Of each face, in place of `boundary`; NULL: `boundary` everywhere. Face 2 j is the box's lower side along x_(j+1), face 2 j + 1 the
     * upper one; then come those of the first hole, and so on: 2 dim (1 + holes) faces. Of a hole all are `hard`, or none. */
    const pt_ritz_boundary *faces;
    double penalty;                    /* for dirichlet */
    pt_ritz_function f, V, g, r;       /* NULL: 0 */
    pt_ritz_function a;                /* positive; NULL: 1 */
    pt_ritz_nonlinear G;               /* NULL: 0 */
    pt_ritz_function exact, exact_gradient; /* NULL: not known; without exact_gradient, finite differences of exact */
    void *arg;
    bool concurrent;                   /* several threads may call the functions at once; then they need not wait for the points */
} pt_ritz_problem;

/* If no plan fits: what is missing, and the options of the program that make it fit: "--device-memory 1.75GiB". */
typedef struct pt_ritz_misfit { uint64_t missing_bytes; char change[128]; } pt_ritz_misfit;

typedef struct pt_ritz_options {
    size_t size;                       /* of this struct; pt_ritz_defaults sets it */
    const char *problem;               /* name of a built-in problem (pt_ritz_problem_name), or a problem file; NULL: `own` */
    const pt_ritz_problem *own;
    int64_t dim;                       /* of a built-in problem; 0: its default */
    pt_ritz_loss loss; double boundary_weight; /* which only a residual loss has; 0: 10 */
    pt_ritz_points points; pt_ritz_randomize randomize;
    int64_t n, n_boundary;             /* points per step: inside, and on all faces together, if the problem needs any; n_boundary 0: */
                                       /* about n, a power of two on each face */
    int64_t redraw_every;              /* steps with the same points; 0: always the same */
    int64_t width; int blocks;
    bool plain;                        /* a multilayer perceptron with `blocks` layers instead of residual blocks of two */
    bool no_input_layer;               /* the first block's input is x padded with zeros, as in E and Yu's paper; width >= dim */
    pt_ritz_activation activation;
    const char *init_run;              /* folder of a run whose network, of the same shape, has the initial weights; NULL: random */
    int64_t steps;
    int64_t penalty_ramp;              /* steps over which the penalty rises from a thousandth of its value; 0: none */
    int64_t lbfgs_steps;               /* iterations of pt_ritz_polish; 0: it is not called */
    double lr; pt_ritz_lr_schedule lr_schedule; int64_t warmup_steps, halve_every; double min_lr_ratio;
    double weight_decay, beta1, beta2, eps;
    pt_ritz_dtype dtype;
    uint64_t seed;
    int threads;                       /* 0: all cores available to the process */
    const char *device;                /* "auto", "cpu", "cuda", "cuda:N" */
    /* Budgets in bytes, or PT_AUTO: what is free, less a margin. On a CPU the device tier is RAM, and there is a host tier only if
     * host_memory asks for one. The disk is used only if memory does not suffice; 0: never. Budgets do not change the result. */
    uint64_t device_memory, host_memory, disk_memory;
    const char *disk_path;             /* NULL: `out`, or without `out` $TMPDIR or /var/tmp */
    int64_t micro_batch;               /* points that pass through a layer before the next layer starts, rounded up to whole units; */
                                       /* 0: planned */
    const char *plan_file;             /* run exactly this plan, from pt_ritz_plan_json; NULL: planned */
    bool forecast;                     /* predict the time of a step, from times measured by pt_ritz_open */
    pt_ritz_misfit *misfit;            /* set if pt_ritz_open returns PT_DOES_NOT_FIT; may be NULL */
    bool plan_only;                    /* only plan, without allocating memory; then only pt_ritz_get_summary, pt_ritz_plan_json */
                                       /* and pt_ritz_close may be called */
    const char *out;                   /* output folder; NULL: nothing is written */
    int64_t eval_every, eval_n;        /* steps between evaluations of errors and energy, and the number of their points */
    int64_t energy_sets;               /* point sets of eval_n points for the energy and its standard error; 0: none */
    int64_t save_every; int keep;      /* checkpoints; keep 0: keep all */
    bool resume;
    void (*notice)(void *arg, const char *sentence); /* may be NULL */
    void *arg;
} pt_ritz_options;

/* The energy of a network, estimated on independently scrambled Sobol point sets that no step has seen. */
typedef struct pt_ritz_energy {
    int sets; int64_t points;          /* of each set, inside */
    double energy, standard_error;     /* mean over the sets, and its standard error */
    double low, high;                  /* the interval with a confidence of 95% */
    double constant, constant_energy;  /* the constant of least energy, and its energy; NAN: none is meant */
    double norm;                       /* energy norm of u */
    double least_error;                /* the energy norm of u - u* is at least this, as residuals against ten functions show; NAN with G */
                                       /* or for an eigenvalue */
} pt_ritz_energy;

/* Errors relative to the exact solution: the roots of int e^2; of int (e^2 + |grad e|^2); of int |grad e|^2; and of int (a |grad e|^2 +
 * V e^2), with (int e)^2 where it belongs to the energy, without boundary terms. */
typedef struct pt_ritz_norms { double l2, h1, h1_seminorm, energy; } pt_ritz_norms;

typedef struct pt_ritz_step_info {
    int64_t step;                      /* 1, 2, ... */
    double energy;                     /* or the residual loss, before this step's update, estimated from its points */
    double lr, step_s;
    /* After the update, every `eval_every` steps and at the end. Errors: as by pt_ritz_error_norms, if the exact solution is known. */
    bool evaluated; double l2_error, h1_error, h1_seminorm_error, energy_norm_error;
    bool estimated; pt_ritz_energy estimate; /* before the end with an eighth of `eval_n` points a set */
} pt_ritz_step_info;

typedef struct pt_ritz_summary {
    const char *problem; int64_t dim, parameters, steps, first_step, n, n_boundary, unit_points;
    const double *lower, *upper;       /* the box, dim numbers each, until pt_ritz_close */
    bool has_exact; double exact_energy; /* NAN: not known */
    bool exact_is_zero;                /* at all points of the last evaluation: errors are absolute */
    uint64_t planned_bytes[3], peak_bytes[3], budget_bytes[3]; /* of device, host and disk; peak: so far */
    int64_t visit_units;               /* units that pass through a layer before the next layer starts */
    int groups, recomputed_groups, swapped_groups; /* groups of layers; recomputed: not saved between sweeps; swapped: saved on host or */
                                       /* disk */
    int chunks, chunks_on[3];          /* chunks of parameters; on device, host, disk */
    double predicted_step_s, again_s;  /* again_s: the part that recomputes; 0: not predicted */
    uint64_t written_bytes;            /* to the disk, per step */
    char arithmetic[128];
} pt_ritz_summary;

typedef struct pt_ritz pt_ritz;

static inline void pt_ritz_defaults(pt_ritz_options *o) { pt_defaults("ritz", o, sizeof *o); }
/* The struct of options by name (protrain.h) that were opened for "ritz"; NULL: they are of another command. */
PT_API pt_ritz_options *pt_options_ritz(pt_options *o);
/* The plan as JSON for plan_file, also after plan_only; free() it. NULL: out of memory. */
PT_API char *pt_ritz_plan_json(const pt_ritz *r);
/* Name of built-in problem i = 0, 1, ...; NULL after the last. *about (may be NULL): one line about it. */
PT_API const char *pt_ritz_problem_name(int i, const char **about);
PT_API const char *pt_ritz_points_name(pt_ritz_points kind); /* "mc", "sobol", "halton", "lattice"; NULL after the last */
PT_API int pt_ritz_open(const pt_ritz_options *o, pt_ritz **out, pt_error *e);
/* One step: 1 if there was one, 0 when all are done, negative on error. */
PT_API int pt_ritz_step(pt_ritz *r, pt_ritz_step_info *s, pt_error *e);
/* After the last step: L-BFGS on one more point set, which stays the same; at most `lbfgs_steps` iterations. *iterations: how many there
 * were, until nothing lowered the energy any more. *s: the energy on these points, and the evaluation. */
PT_API int pt_ritz_polish(pt_ritz *r, int64_t *iterations, pt_ritz_step_info *s, pt_error *e);
/* Points first .. first + n of a step (1, 2, ...), those inside and then those of the faces: x (n, dim), the numbers of their faces (0:
 * inside; j or -j: the upper or lower side along xj; of hole k: k dim + j), and the weights with which they enter the integrals. */
PT_API int pt_ritz_points_of_step(pt_ritz *r, int64_t step, int64_t first, int64_t n, double *x, int64_t *face, double *weight,
                                  pt_error *e);
/* Computes u (n) and, unless NULL, its gradient (n, dim) at the points x (n, dim), in the coordinates of the box. */
PT_API int pt_ritz_evaluate(pt_ritz *r, int64_t n, const double *x, double *u, double *gradient, pt_error *e);
/* The exact solution at the points x (n, dim), and its gradient unless NULL. PT_USAGE if it is not known (pt_ritz_summary.has_exact). */
PT_API int pt_ritz_exact(pt_ritz *r, int64_t n, const double *x, double *u, double *gradient, pt_error *e);
/* Errors relative to the exact solution, estimated from eval_n Sobol points; absolute if it is 0 at all of them. PT_USAGE if it is not
 * known. */
PT_API int pt_ritz_errors(pt_ritz *r, double *l2, double *h1, pt_error *e);
PT_API int pt_ritz_error_norms(pt_ritz *r, pt_ritz_norms *out, pt_error *e);
/* sets: at least 2; n: points of each, at most eval_n. */
PT_API int pt_ritz_estimate_energy(pt_ritz *r, int sets, int64_t n, pt_ritz_energy *out, pt_error *e);
PT_API int pt_ritz_save(pt_ritz *r, pt_error *e);   /* checkpoint-STEP in out */
PT_API int pt_ritz_finish(pt_ritz *r, pt_error *e); /* the network, a last checkpoint and report.html in out */
PT_API void pt_ritz_get_summary(const pt_ritz *r, pt_ritz_summary *s);
PT_API void pt_ritz_close(pt_ritz *r);
/* Loads the network that pt_ritz_finish wrote into `folder`, for pt_ritz_evaluate and pt_ritz_get_summary. */
PT_API int pt_ritz_load(const char *folder, int threads, pt_ritz **out, pt_error *e);
/* u(x) as an ONNX file: input x (points, dim), in the coordinates of the box; output u (points); both in the run's type. PT_USAGE if all
 * faces are hard with a g, which the file cannot hold. */
PT_API int pt_ritz_write_onnx(pt_ritz *r, const char *file, pt_error *e);

/* ---- pages of runs ---- */

/* Writes the page of a run, which may still be going on, or of a comparison: one HTML file, which needs no network and no scripts. file
 * NULL: report.html in the folder. Returns 1 if it was written, 0 if the folder holds neither. */
PT_API int pt_ritz_report(const char *folder, const char *file, pt_error *e);
/* The same as a JSON object; free() *json, which is NULL unless 1 is returned. */
PT_API int pt_ritz_report_json(const char *folder, char **json, pt_error *e);

/* ---- comparing kinds of points ---- */

/* A comparison is a folder with runs of one problem in folders SET-SEED: mc-0, mc-1, ..., sobol-0, sobol-lms-0, ... A set is a kind of
 * points, or a kind with its randomization. Of each set it has the finished runs 0, 1, ... up to the first that is missing, at most
 * PT_RITZ_SEEDS. */
enum { PT_RITZ_SEEDS = 10000, PT_RITZ_SETS = 8, PT_RITZ_SET_BYTES = 24 };
typedef struct pt_ritz_comparison {
    pt_ritz_points points; pt_ritz_randomize randomize; /* default: the folder's name has none */
    int seeds;                         /* number of runs */
    int64_t steps;                     /* of the shortest of them */
    double l2_median, l2_least, l2_largest, h1_median; /* over the runs: errors at their ends (pt_ritz_errors) */
    double l2_mean, l2_low, l2_high;   /* geometric mean, and its interval of 95%, as if logarithms were normal; NAN with one run */
} pt_ritz_comparison;
/* Writes one row per set with a finished run, in the order of pt_ritz_points and pt_ritz_randomize, and returns their number; 0: it is no
 * comparison. PT_FAILED if there are more than PT_RITZ_SETS. */
PT_API int pt_ritz_compared(const char *folder, pt_ritz_comparison out[PT_RITZ_SETS], pt_error *e);
/* The name of a set: "sobol", or "sobol:lms"; out: PT_RITZ_SET_BYTES. */
PT_API const char *pt_ritz_set_name(pt_ritz_points points, pt_ritz_randomize randomize, char *out);
/* Finds the set that the first `length` characters name. PT_USAGE: they name none. */
PT_API int pt_ritz_find_set(const char *name, size_t length, pt_ritz_points *points, pt_ritz_randomize *randomize, pt_error *e);

/* With the weights of `at`, and n points of a kind, at most as many as the run has: *variance is the sum over all parameters of the
 * variance of the energy's gradient over `sets` point sets (at least 2); *mean_square (may be NULL) is the squared length of the mean
 * gradient. */
PT_API int pt_ritz_gradient_variance(pt_ritz *at, pt_ritz_points points, int64_t n, int sets, double *variance, double *mean_square,
                                     pt_error *e);
/* The same with its standard error, from pairs of sets; NAN with fewer than 4 sets. Where that is more than a fifth of the variance, there
 * are up to four times as many sets. The sets are independent of those of the steps, and of those for another n or after another step. */
typedef struct pt_ritz_spread { int sets; double variance, standard_error, mean_square; } pt_ritz_spread;
PT_API int pt_ritz_gradient_spread(pt_ritz *at, pt_ritz_points points, pt_ritz_randomize randomize, int64_t n, int sets,
                                   pt_ritz_spread *out, pt_error *e);
/* The standard error of pt_ritz_slope, from those of the y, which are independent. */
PT_API double pt_ritz_slope_error(int n, const double *x, const double *y, const double *y_error);
/* Slope of log y against log x, by least squares: -1 if y is proportional to 1 / x. NAN with fewer than 2 numbers. */
PT_API double pt_ritz_slope(int n, const double *x, const double *y);

/* A figure of variances, one curve per set of points. */
typedef struct pt_ritz_variances {
    const char *title;                 /* "before training" */
    const char *about, *x_title;       /* a sentence above the figures (of the first), and what n is; NULL: of variances, "points" */
    int sizes; const double *n;        /* (sizes): numbers of points */
    int kinds; pt_ritz_points points[PT_RITZ_SETS]; pt_ritz_randomize randomize[PT_RITZ_SETS];
    const double *variance[PT_RITZ_SETS]; /* (sizes) */
    const double *error[PT_RITZ_SETS];    /* their standard errors (sizes); NULL: not known */
} pt_ritz_variances;
/* Writes report.html with these figures, log-log with their slopes, into the folder, which is created if missing. PT_FAILED: it holds a run
 * or a comparison, which has a page of its own. */
PT_API int pt_ritz_variance_report(const char *folder, const char *title, const pt_ritz_variances *figures, int n, pt_error *e);

#ifdef __cplusplus
}
#endif
#endif
