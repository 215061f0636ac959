/* problem.h - what is to be solved: a built-in problem, a file, or the caller's own functions. */
#ifndef PT_RITZ_PROBLEM_H
#define PT_RITZ_PROBLEM_H

#include "base/json.h"
#include "protrain_ritz.h"
#include "ritz/expression.h"

enum { PROBLEM_EXPRESSIONS = 4, PROBLEM_FILE_BYTES = 1 << 20 };

typedef struct problem {
    char name[256];
    pt_ritz_problem is;       /* lower and upper are there */
    double energy;            /* of the exact solution; NAN: not known */
    double *box;              /* lower and upper */
    expression *expressions[PROBLEM_EXPRESSIONS]; /* f, V, g, exact of a file */
} problem;

int problem_open(const pt_ritz_options *o, problem *p, pt_error *e);
int problem_file_open(const char *path, problem *p, pt_error *e);
/* The same of text in memory; messages call it `path`. */
int problem_text_open(const char *path, const char *text, size_t n, problem *p, pt_error *e);
/* A side of the box: a number for all dimensions, or an array with one for each; NULL stays where the key is absent. free() it. */
int problem_read_side(const json_source *s, const char *key, double **side, int64_t dim, pt_error *e);
/* Of a trained network: the built-in one of that name, else no more than its box (NULL: the unit cube). */
int problem_open_box(const char *name, int64_t dim, const double *lower, const double *upper, problem *p, pt_error *e);
void problem_close(problem *p);
/* Checks dimension and box, and fills in the unit cube. */
int problem_finish(problem *p, const double *lower, const double *upper, pt_error *e);

bool problem_samples_boundary(const problem *p);
/* The energy has (int u)^2 / 2. */
bool problem_has_mean(const problem *p);
/* u* and its gradient (n, dim), by differences where only u* is known. */
void problem_exact(const problem *p, int64_t n, const double *x, double *u, double *gradient);

#endif
