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
    progress bar;
} ritz_session;

/* 0, or the exit status of what went wrong, said. stopped: an interrupt has ended it, and what there is has been kept. */
int ritz_train(ritz_session *s, bool *stopped, pt_error *e);
int ritz_compare(ritz_session *s, pt_error *e);
/* Whether a folder is one of --compare, and its page again, of the runs that are there. */
bool ritz_is_comparison(const char *folder);
int ritz_comparison_page(const char *folder, const char *file, pt_error *e);
int ritz_variances(ritz_session *s, pt_error *e);
int ritz_plan(ritz_session *s, pt_error *e);
/* "12.0 MiB of device memory; 2 of 6 groups of layers computed again" */
int ritz_describe_plan(const pt_ritz_summary *m, char out[RITZ_PLAN_TEXT]);
int ritz_evaluate_file(ritz_session *s, pt_error *e);
/* Names of kinds of points in "mc,sobol" (NULL: `otherwise`); returns how many, or a negative code. */
int ritz_kinds(const char *list, const char *otherwise, pt_ritz_points kinds[RITZ_KINDS], pt_error *e);
bool ritz_interrupted(void);

#endif
