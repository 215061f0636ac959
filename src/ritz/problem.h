/* problem.h - the problem to solve: a built-in one, one from a file, or the caller's functions. */
#ifndef PT_RITZ_PROBLEM_H
#define PT_RITZ_PROBLEM_H

#include "base/json.h"
#include "protrain_ritz.h"
#include "ritz/domain.h"
#include "ritz/expression.h"

/* Of a problem file. */
enum { EXPRESSION_F, EXPRESSION_V, EXPRESSION_G, EXPRESSION_R, EXPRESSION_A, EXPRESSION_ENERGY, EXPRESSION_SLOPE, EXPRESSION_EXACT,
       PROBLEM_EXPRESSIONS };
enum { PROBLEM_FILE_BYTES = 1 << 20 };

typedef struct problem {
    char name[256];
    pt_ritz_problem is;       /* lower and upper are not NULL */
    double energy;            /* of the exact solution; NAN: not known */
    bool residual;            /* the loss is the residual, so that each face needs points unless it is hard */
    double *box;              /* memory of lower and upper, and of those of the holes */
    pt_ritz_boundary *faces;  /* memory of is.faces */
    expression *expressions[PROBLEM_EXPRESSIONS]; /* of a file */
} problem;

int problem_open(const pt_ritz_options *o, problem *problem, pt_error *e);
int problem_file_open(const char *path, problem *problem, pt_error *e);
/* The same from text in memory; messages name it `path`. */
int problem_text_open(const char *path, const char *text, size_t n, problem *problem, pt_error *e);
/* Reads a corner of the box: one number for all dimensions, or an array of them. *side stays NULL if the key is absent; free() it. */
int problem_read_side(const json_source *src, const char *key, double **side, int64_t dim, pt_error *e);
/* The problem of a trained network: the built-in one of that name, else one with only the box (NULL: the unit cube). */
int problem_open_box(const char *name, int64_t dim, const double *lower, const double *upper, problem *problem, pt_error *e);
/* Prepares expressions for so many threads at a time. */
int problem_share(problem *problem, int threads, pt_error *e);
void problem_close(problem *problem);
/* Checks dimension, box and penalty, and copies the box; lower, upper NULL: the unit cube. */
int problem_finish(problem *problem, const double *lower, const double *upper, pt_error *e);

/* What a run's bits depend on: the name of a built-in problem; else equation, boundary, box and, from a file, its expressions, wherever the
 * file lies. The caller owns it. */
json_t *problem_json(const problem *problem);

extern const char *const problem_keys[PROBLEM_EXPRESSIONS], *const problem_boundaries[];

/* What a problem file has to say to be this problem; NULL: it is not from a file. The caller owns it. */
json_t *problem_definition(const problem *problem);
/* A problem from such an object. */
int problem_object_open(const json_source *src, problem *problem, pt_error *e);

bool problem_samples_boundary(const problem *problem);
/* Whether the energy is not quadratic in the network's values and gradients at a point: u is not the network itself, or there is a G. */
bool problem_is_composed(const problem *problem);
/* g, or r, at points of a face; 0 without the function. */
void problem_face_values(const problem *problem, pt_ritz_function function, int64_t face, int64_t n, const double *x, double *out);
/* The gradient (dim) of f at x by central differences of order 4, with steps of a thousandth of the box: for sin(k x) on the unit cube the
 * error is about 3e-14 k^5. Where f is not defined beside x, one-sided. moved: 4 dim numbers of scratch. */
void problem_differences(const problem *problem, pt_ritz_function f, const double *x, double *gradient, double *moved);
/* Whether the energy has the term (int u)^2 / 2. */
bool problem_has_mean(const problem *problem);
/* The exact solution and its gradient (n, dim), which is computed by differences if there is no function for it. */
void problem_exact(const problem *problem, int64_t n, const double *x, double *u, double *gradient);

#endif
