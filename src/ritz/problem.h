/* problem.h - the problem to solve: a built-in one, one from a file, or the caller's functions. */
#ifndef PT_RITZ_PROBLEM_H
#define PT_RITZ_PROBLEM_H

#include "base/json.h"
#include "protrain_ritz.h"
#include "ritz/expression.h"

enum { PROBLEM_EXPRESSIONS = 4, PROBLEM_FILE_BYTES = 1 << 20 };

typedef struct problem {
    char name[256];
    pt_ritz_problem is;       /* lower and upper are not NULL */
    double energy;            /* of the exact solution; NAN: not known */
    double *box;              /* memory of lower and upper */
    expression *expressions[PROBLEM_EXPRESSIONS]; /* f, V, g and exact from a file */
} problem;

int problem_open(const pt_ritz_options *o, problem *p, pt_error *e);
int problem_file_open(const char *path, problem *p, pt_error *e);
/* The same from text in memory; messages name it `path`. */
int problem_text_open(const char *path, const char *text, size_t n, problem *p, pt_error *e);
/* Reads a corner of the box: one number for all dimensions, or an array of them. *side stays NULL if the key is absent; free() it. */
int problem_read_side(const json_source *s, const char *key, double **side, int64_t dim, pt_error *e);
/* The problem of a trained network: the built-in one of that name, else one with only the box (NULL: the unit cube). */
int problem_open_box(const char *name, int64_t dim, const double *lower, const double *upper, problem *p, pt_error *e);
/* Prepares expressions for so many threads at a time. */
int problem_share(problem *p, int threads, pt_error *e);
void problem_close(problem *p);
/* Checks dimension, box and penalty, and copies the box; lower, upper NULL: the unit cube. */
int problem_finish(problem *p, const double *lower, const double *upper, pt_error *e);

/* What a run's bits depend on: the name of a built-in problem; else equation, boundary, box and, from a file, its expressions, wherever the
 * file lies. The caller owns it. */
json_t *problem_json(const problem *p);

bool problem_samples_boundary(const problem *p);
/* Whether the energy has the term (int u)^2 / 2. */
bool problem_has_mean(const problem *p);
/* The exact solution and its gradient (n, dim), which is computed by differences if there is no function for it. */
void problem_exact(const problem *p, int64_t n, const double *x, double *u, double *gradient);

#endif
