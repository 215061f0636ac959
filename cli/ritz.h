/* ritz.h - shared by the parts of `protrain ritz`. */
#ifndef CLI_RITZ_H
#define CLI_RITZ_H

#include "progress.h"
#include "protrain_ritz.h"

enum { RITZ_KINDS = 4, RITZ_PLAN_TEXT = 400, RITZ_SEEDS_MOST = 10000 };

typedef struct ritz_session {
    pt_ritz_options o;
    const char *compare, *points, *eval, *at;
    int randomize, activation, lr_schedule, dtype, network;
    int64_t seeds, blocks;
    bool gradient_variance, quiet, json;
    bool part;             /* of a comparison, which prints the result */
    progress bar;
} ritz_session;

/* stopped: an interrupt ended the run, and what there is was saved. */
int ritz_train(ritz_session *s, bool *stopped, pt_error *e);
int ritz_compare(ritz_session *s, pt_error *e);
/* Whether a folder holds the runs of --compare, and the page of those that are there. */
bool ritz_is_comparison(const char *folder);
const char *ritz_first_run(const char *folder); /* "mc-0"; NULL: it is none */
/* file NULL: JSON on stdout instead */
int ritz_comparison_report(const char *folder, const char *file, pt_error *e);
int ritz_variances(ritz_session *s, pt_error *e);
int ritz_plan(ritz_session *s, pt_error *e);
/* "12.0 MiB of device memory; 2 of 6 groups of layers computed again" */
int ritz_describe_plan(const pt_ritz_summary *m, char out[RITZ_PLAN_TEXT]);
int ritz_evaluate_file(ritz_session *s, pt_error *e);
/* Names of kinds of points in "mc,sobol" (NULL: `otherwise`); returns how many, or a negative code. */
int ritz_kinds(const char *list, const char *otherwise, pt_ritz_points kinds[RITZ_KINDS], pt_error *e);

#endif
