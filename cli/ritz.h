/* ritz.h - shared by the files of `protrain ritz`: its options, and one function per thing that it can do. */
#ifndef CLI_RITZ_H
#define CLI_RITZ_H

#include "progress.h"
#include "protrain_ritz.h"

#include <stdio.h>

enum { RITZ_PLAN_TEXT = 400 };

typedef struct ritz_session {
    pt_ritz_options o;
    const char *compare, *eval, *at;
    int64_t seeds, grid, print_points;
    const char *write, *sweep;
    bool swept; /* a comparison of a sweep: prints nothing */
    bool gradient_variance, quiet, json;
    bool part; /* a run of a comparison: prints no result of its own */
    progress bar;
} ritz_session;

/* Trains one network. *stopped: an interrupt ended the run, and its state was saved if there is --out. */
int ritz_train(ritz_session *s, bool *stopped, pt_error *e);
/* --compare: trains with each kind of points and several seeds, then prints the table and writes OUT/report.html. */
int ritz_compare(ritz_session *s, pt_error *e);
/* --sweep: does so for several numbers of points or widths, and prints how the errors fall. */
int ritz_sweep(ritz_session *s, pt_error *e);
/* --gradient-variance: measures the variance of the gradient before, half-way through and after training. */
int ritz_variances(ritz_session *s, pt_error *e);
/* protrain plan --problem: prints the plan. */
int ritz_plan(ritz_session *s, pt_error *e);
/* Writes "12.0 MiB of device memory; 2 of 6 groups of layers recomputed"; returns its length. */
int ritz_describe_plan(const pt_ritz_summary *m, char out[RITZ_PLAN_TEXT]);
/* --eval: prints the network's values and derivatives at the points of --at as CSV. */
int ritz_evaluate_file(ritz_session *s, pt_error *e);
/* --print-points: prints the points of a step, their faces and weights. */
int ritz_print_points(ritz_session *s, pt_error *e);
/* A table in --out as CSV. NULL: *e says why. */
FILE *ritz_open_table(const ritz_session *s, const char *name, pt_error *e);
int ritz_close_table(FILE *out, const char *name, pt_error *e);
/* A kind of points with its randomization. */
typedef struct ritz_set { pt_ritz_points points; pt_ritz_randomize randomize; char name[PT_RITZ_SET_BYTES]; } ritz_set;
/* Parses the sets in a list such as "mc,sobol,sobol:lms", or in `otherwise` if it is NULL. Returns their number, or a negative code. */
int ritz_sets(const char *list, const char *otherwise, ritz_set sets[PT_RITZ_SETS], pt_error *e);

#endif
