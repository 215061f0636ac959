#include "ritz/problem.h"

#include "ritz/cosines.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- built in ---- */

static void cosine_exact(void *arg, int64_t n, int64_t dim, const double *x, double *out) { cosine_sums(n, dim, x, out); }

static void cosine_gradient(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n * dim; i++)
        out[i] = -M_PI * sin(M_PI * x[i]);
}

static void poisson_cosine_f(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    cosine_sums(n, dim, x, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= M_PI * M_PI;
}

static void schroedinger_cosine_f(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    cosine_sums(n, dim, x, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= 2 * M_PI * M_PI;
}

static void constant_V(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = M_PI * M_PI;
}

/* pi^2, or 3 pi^2 on one side of the plane that crosses the cube's diagonal in the middle. */
static double jump(const double *x, int64_t dim)
{
    double sum = 0;
    for (int64_t j = 0; j < dim; j++)
        sum += x[j] - 0.5;
    return M_PI * M_PI * (sum < 0 ? 3 : 1);
}

static void jump_V(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = jump(x + i * dim, dim);
}

static void jump_f(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    cosine_sums(n, dim, x, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= M_PI * M_PI + jump(x + i * dim, dim);
}

/* x1 x2 + x3 x4 + ... */
static void harmonic_exact(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t j = 0; j + 1 < dim; j += 2)
            out[i] += x[i * dim + j] * x[i * dim + j + 1];
    }
}

static void harmonic_gradient(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < dim; j++)
            out[i * dim + j] = (j ^ 1) < dim ? x[i * dim + (j ^ 1)] : 0;
}

/* energy_a_dim: energy of the exact solution divided by the dimension. */
static const struct built_in { const char *name, *about; int64_t dim; double energy_a_dim; pt_ritz_problem is; } built_ins[] = {
    {"poisson-cosine", "Poisson, u = sum cos(pi x_k), Neumann", 5, -M_PI *M_PI / 4,
     {.equation = PT_RITZ_POISSON, .f = poisson_cosine_f, .exact = cosine_exact, .exact_gradient = cosine_gradient}},
    {"schroedinger-cosine", "V = pi^2, u = sum cos(pi x_k), Neumann", 5, -M_PI *M_PI / 2,
     {.equation = PT_RITZ_SCHROEDINGER, .f = schroedinger_cosine_f, .V = constant_V, .exact = cosine_exact,
      .exact_gradient = cosine_gradient}},
    {"schroedinger-jump", "V = 3 pi^2 and pi^2 on two sides of a plane, the same u", 5, -3 * M_PI *M_PI / 4,
     {.equation = PT_RITZ_SCHROEDINGER, .f = jump_f, .V = jump_V, .exact = cosine_exact, .exact_gradient = cosine_gradient}},
    {"harmonic", "Laplace, u = x1 x2 + x3 x4 + ... given on the boundary", 10, NAN,
     {.equation = PT_RITZ_POISSON, .boundary = PT_RITZ_DIRICHLET, .penalty = 1000, .g = harmonic_exact, .exact = harmonic_exact,
      .exact_gradient = harmonic_gradient}},
};
enum { BUILT_INS = sizeof built_ins / sizeof *built_ins };

const char *pt_ritz_problem_name(int i, const char **about)
{
    if (i < 0 || i >= BUILT_INS)
        return NULL;
    if (about)
        *about = built_ins[i].about;
    return built_ins[i].name;
}

/* ---- all problems ---- */

static bool overlap(const problem *problem, int64_t a, int64_t b)
{
    const int64_t dim = problem->is.dim;
    const double *lower = problem->is.hole_lower, *upper = problem->is.hole_upper;
    for (int64_t j = 0; j < dim; j++)
        if (lower[a * dim + j] >= upper[b * dim + j] || lower[b * dim + j] >= upper[a * dim + j])
            return false;
    return true;
}

/* Copies the holes behind the box, cut off at the box. */
static int copy_holes(problem *problem, pt_error *e)
{
    const int64_t dim = problem->is.dim, holes = problem->is.holes;
    double *lower = problem->box + 2 * dim, *upper = lower + holes * dim;
    for (int64_t i = 0; i < holes * dim; i++) {
        const int64_t j = i % dim;
        if (!(problem->is.hole_lower[i] < problem->is.hole_upper[i]))
            return pt_fail(e, PT_FAILED, "%s: hole %lld is empty: along x%lld it goes from %g to %g", problem->name,
                           (long long)(i / dim) + 1, (long long)j + 1, problem->is.hole_lower[i], problem->is.hole_upper[i]);
        lower[i] = fmax(problem->is.hole_lower[i], problem->is.lower[j]);
        upper[i] = fmin(problem->is.hole_upper[i], problem->is.upper[j]);
        if (!(lower[i] < upper[i]))
            return pt_fail(e, PT_FAILED, "%s: hole %lld lies outside the box along x%lld", problem->name, (long long)(i / dim) + 1,
                           (long long)j + 1);
    }
    problem->is.hole_lower = lower;
    problem->is.hole_upper = upper;
    for (int64_t a = 0; a < holes; a++)
        for (int64_t b = 0; b < a; b++)
            if (overlap(problem, a, b))
                return pt_fail(e, PT_FAILED, "%s: holes %lld and %lld overlap: divide one of them", problem->name, (long long)b + 1,
                               (long long)a + 1);
    if (holes && !(domain_volume(&problem->is) > 1e-12 * domain_box_volume(&problem->is)))
        return pt_fail(e, PT_FAILED, "%s: the holes leave nothing of the box", problem->name);
    return 0;
}

static int copy_faces(problem *problem, pt_error *e)
{
    const int64_t n = domain_faces(&problem->is);
    if (problem->is.boundary > PT_RITZ_HARD)
        return pt_check_choice("boundary", problem->is.boundary, PT_RITZ_HARD, e);
    for (int64_t k = 0; k < n && problem->is.faces; k++)
        if ((unsigned)problem->is.faces[k] > PT_RITZ_HARD)
            return pt_check_choice("faces", problem->is.faces[k], PT_RITZ_HARD, e);
    if (!problem->is.faces || problem->is.faces == problem->faces)
        return 0;
    problem->faces = calloc((size_t)n, sizeof *problem->faces);
    if (!problem->faces)
        return pt_fail(e, PT_FAILED, "out of memory");
    memcpy(problem->faces, problem->is.faces, (size_t)n * sizeof *problem->faces);
    problem->is.faces = problem->faces;
    return 0;
}

/* What does not go together. */
static int check_kind(const problem *problem, pt_error *e)
{
    const int64_t each = 2 * problem->is.dim;
    for (int64_t k = each; k < domain_faces(&problem->is); k++)
        if ((domain_boundary(&problem->is, k) == PT_RITZ_HARD) != (domain_boundary(&problem->is, k / each * each) == PT_RITZ_HARD))
            return pt_fail(e, PT_FAILED, "%s: hole %lld is hard in part: make all of its faces hard, or none", problem->name,
                           (long long)(k / each));
    if (problem->is.equation != PT_RITZ_EIGENVALUE)
        return 0;
    if (problem->is.f || problem->is.g || problem->is.G)
        return pt_fail(e, PT_FAILED, "%s: an eigenvalue problem has no %s: remove it", problem->name,
                       problem->is.f   ? "f"
                       : problem->is.g ? "g"
                                       : "G");
    return 0;
}

int problem_finish(problem *problem, const double *lower, const double *upper, pt_error *e)
{
    const int64_t dim = problem->is.dim;
    if (dim < 1 || dim > 65536)
        return pt_fail(e, PT_USAGE, "%s: the dimension is %lld, but must be from 1 to 65536", problem->name, (long long)dim);
    problem->box = calloc((size_t)(2 * dim * (1 + problem->is.holes)), sizeof *problem->box);
    if (!problem->box)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t j = 0; j < dim; j++) {
        const double a = problem->box[j] = lower ? lower[j] : 0, b = problem->box[dim + j] = upper ? upper[j] : 1;
        if (!isfinite(a) || !isfinite(b) || !(a < b))
            return pt_fail(e, PT_FAILED, "%s: the box is empty: along x%lld it goes from %g to %g", problem->name, (long long)j + 1, a, b);
    }
    problem->is.lower = problem->box;
    problem->is.upper = problem->box + dim;
    const double volume = domain_box_volume(&problem->is);
    if (!isnormal(volume))
        return pt_fail(e, PT_FAILED, "%s: the box's volume is %g in double precision: choose other units of length", problem->name, volume);
    int failed = copy_holes(problem, e);
    if (!failed)
        failed = copy_faces(problem, e);
    if (!failed)
        failed = check_kind(problem, e);
    if (failed)
        return failed;
    if (domain_has_boundary(&problem->is, PT_RITZ_DIRICHLET) && !(problem->is.penalty > 0 && problem->is.penalty < 1e30))
        return pt_fail(e, PT_FAILED, "%s: the penalty of a dirichlet boundary is %g, but must be above 0 and below 1e30", problem->name,
                       problem->is.penalty);
    return 0;
}

static int built_in_open(const struct built_in *b, int64_t dim, problem *problem, pt_error *e)
{
    snprintf(problem->name, sizeof problem->name, "%s", b->name);
    problem->is = b->is;
    problem->is.concurrent = true;
    problem->is.dim = dim ? dim : b->dim;
    problem->energy = b->energy_a_dim * (double)problem->is.dim;
    return problem_finish(problem, NULL, NULL, e);
}

static int unknown(const char *name, pt_error *e)
{
    char names[256] = "";
    for (int i = 0; i < BUILT_INS; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", built_ins[i].name);
    return pt_fail(e, PT_USAGE, "there is no problem or file %.200s: give a problem file (.json), or one of %s", name, names);
}

int problem_open(const pt_ritz_options *o, problem *p, pt_error *e)
{
    *p = (problem){.energy = NAN};
    if (!o->problem && !o->own)
        return pt_fail(e, PT_USAGE, "no problem: give `problem`, or the functions of your own");
    if (!o->problem) {
        snprintf(p->name, sizeof p->name, "own");
        p->is = *o->own;
        return problem_finish(p, o->own->lower, o->own->upper, e);
    }
    for (int i = 0; i < BUILT_INS; i++)
        if (!strcmp(o->problem, built_ins[i].name))
            return built_in_open(&built_ins[i], o->dim, p, e);
    if (!strchr(o->problem, '.') && !strchr(o->problem, '/'))
        return unknown(o->problem, e);
    int failed = problem_file_open(o->problem, p, e);
    if (!failed && o->dim && o->dim != p->is.dim)
        failed = pt_fail(e, PT_USAGE, "%s has %lld dimensions, but %lld are asked for", o->problem, (long long)p->is.dim,
                         (long long)o->dim);
    return failed;
}

int problem_open_box(const char *name, int64_t dim, const double *lower, const double *upper, problem *p, pt_error *e)
{
    *p = (problem){.energy = NAN, .is = {.dim = dim}};
    for (int i = 0; i < BUILT_INS; i++)
        if (!strcmp(name, built_ins[i].name))
            return built_in_open(&built_ins[i], dim, p, e);
    snprintf(p->name, sizeof p->name, "%s", name);
    return problem_finish(p, lower, upper, e);
}

/* One number if all are the same, as in a problem file. */
static json_t *side_json(const double *side, int64_t dim)
{
    json_t *all = json_array();
    bool same = true;
    for (int64_t j = 0; j < dim; j++) {
        same &= side[j] == side[0];
        json_array_append_new(all, json_real(side[j]));
    }
    json_t *one = json_incref(json_array_get(all, 0));
    json_decref(same ? all : one);
    return same ? one : all;
}

const char *const problem_keys[PROBLEM_EXPRESSIONS] = {"f", "V", "g", "r", "a", "G", "dG", "exact"};
const char *const problem_boundaries[] = {"neumann", "dirichlet", "robin", "hard"};

static json_t *faces_json(const problem *problem)
{
    json_t *all = json_array();
    for (int64_t k = 0; k < domain_faces(&problem->is); k++)
        json_array_append_new(all, json_string(problem_boundaries[problem->is.faces[k]]));
    return all;
}

static json_t *holes_json(const problem *problem)
{
    json_t *all = json_array();
    for (int64_t h = 0; h < problem->is.holes; h++)
        json_array_append_new(all, json_pack("{s:o,s:o}", "lower", side_json(problem->is.hole_lower + h * problem->is.dim, problem->is.dim),
                                             "upper", side_json(problem->is.hole_upper + h * problem->is.dim, problem->is.dim)));
    return all;
}

json_t *problem_json(const problem *problem)
{
    static const char *const equations[] = {"poisson", "schroedinger", "eigenvalue"};
    json_t *o = json_object();
    const bool from_file = problem->is.arg == problem->expressions;
    if (!from_file)
        json_object_set_new(o, "problem", json_string(problem->name));
    for (int i = 0; i < BUILT_INS; i++)
        if (!from_file && !strcmp(problem->name, built_ins[i].name))
            return o;
    json_object_set_new(o, "equation", json_string(equations[problem->is.equation]));
    json_object_set_new(o, "boundary", json_string(problem_boundaries[problem->is.boundary]));
    json_object_set_new(o, "penalty", json_real(problem->is.penalty));
    json_object_set_new(o, "lower", side_json(problem->is.lower, problem->is.dim));
    json_object_set_new(o, "upper", side_json(problem->is.upper, problem->is.dim));
    for (int i = 0; from_file && i < EXPRESSION_EXACT; i++) /* no bit depends on exact */
        if (problem->expressions[i] || i <= EXPRESSION_G)
            json_object_set_new(o, problem_keys[i],
                                problem->expressions[i] ? json_string(expression_text(problem->expressions[i])) : json_null());
    if (problem->is.faces)
        json_object_set_new(o, "faces", faces_json(problem));
    if (problem->is.holes)
        json_object_set_new(o, "holes", holes_json(problem));
    return o;
}

json_t *problem_definition(const problem *problem)
{
    if (problem->is.arg != problem->expressions)
        return NULL;
    json_t *o = problem_json(problem), *faces = json_object();
    json_object_set_new(o, "dim", json_integer(problem->is.dim));
    for (int64_t k = 0; problem->is.faces && k < domain_faces(&problem->is); k++) {
        char number[24];
        snprintf(number, sizeof number, "%.0f", domain_face_of(&problem->is, k).number);
        json_object_set_new(faces, number, json_string(problem_boundaries[problem->is.faces[k]]));
    }
    json_object_set(o, "faces", faces);
    json_decref(faces);
    if (!domain_has_boundary(&problem->is, PT_RITZ_DIRICHLET))
        json_object_del(o, "penalty");
    if (problem->expressions[EXPRESSION_EXACT])
        json_object_set_new(o, "exact", json_string(expression_text(problem->expressions[EXPRESSION_EXACT])));
    if (isfinite(problem->energy))
        json_object_set_new(o, "energy", json_real(problem->energy));
    return o;
}

int problem_share(problem *problem, int threads, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < PROBLEM_EXPRESSIONS && !failed; i++)
        if (problem->expressions[i])
            failed = expression_share(problem->expressions[i], threads, e);
    return failed;
}

void problem_close(problem *p)
{
    free(p->box);
    free(p->faces);
    for (int i = 0; i < PROBLEM_EXPRESSIONS; i++)
        expression_close(p->expressions[i]);
    *p = (problem){0};
}

bool problem_samples_boundary(const problem *problem)
{
    for (int64_t k = 0; k < domain_faces(&problem->is) && problem->residual; k++)
        if (domain_boundary(&problem->is, k) != PT_RITZ_HARD)
            return true;
    return domain_has_boundary(&problem->is, PT_RITZ_DIRICHLET) || domain_has_boundary(&problem->is, PT_RITZ_ROBIN) ||
           (problem->is.g && domain_has_boundary(&problem->is, PT_RITZ_NEUMANN));
}

bool problem_has_mean(const problem *problem)
{
    bool free = problem->is.equation == PT_RITZ_POISSON && !problem->is.G;
    for (int64_t k = 0; k < domain_faces(&problem->is) && free; k++)
        free = domain_boundary(&problem->is, k) == PT_RITZ_NEUMANN;
    return free;
}

bool problem_is_composed(const problem *problem) { return problem->is.G || domain_has_boundary(&problem->is, PT_RITZ_HARD); }

void problem_face_values(const problem *problem, pt_ritz_function function, int64_t face, int64_t n, const double *x, double *out)
{
    expression *const from = !function || problem->is.arg != problem->expressions ? NULL
        : problem->expressions[function == problem->is.g ? EXPRESSION_G : EXPRESSION_R];
    if (!function)
        memset(out, 0, (size_t)n * sizeof *out);
    else if (!from)
        function(problem->is.arg, n, problem->is.dim, x, out);
    for (int64_t i = 0; from && i < n; i++) {
        const double number = domain_face_of(&problem->is, face).number;
        expression_values(from, 1, problem->is.dim, x + i * problem->is.dim, &number, out + i);
    }
}

/* One-sided, of order 4, towards the middle of the box: near a face the solution may exist on one side alone, as sqrt(x1) does.
 * moved (dim) is scratch. */
static double inward_difference(const problem *problem, pt_ritz_function f, const double *x, int64_t j, double h, double *moved)
{
    static const double weights[] = {-25, 48, -36, 16, -3};
    const double side = x[j] - problem->is.lower[j] < problem->is.upper[j] - x[j] ? h : -h;
    double sum = 0, at;
    memcpy(moved, x, (size_t)problem->is.dim * sizeof *x);
    for (int k = 0; k < 5; k++) {
        moved[j] = x[j] + k * side;
        f(problem->is.arg, 1, problem->is.dim, moved, &at);
        sum += weights[k] * at;
    }
    return sum / (12 * side);
}

void problem_differences(const problem *problem, pt_ritz_function f, const double *x, double *gradient, double *moved)
{
    static const double steps[] = {-2, -1, 1, 2};
    const int64_t dim = problem->is.dim;
    double at[4];
    for (int64_t j = 0; j < dim; j++) {
        const double h = 1e-3 * (problem->is.upper[j] - problem->is.lower[j]);
        for (int k = 0; k < 4; k++) {
            memcpy(moved + k * dim, x, (size_t)dim * sizeof *x);
            moved[k * dim + j] += steps[k] * h;
        }
        f(problem->is.arg, 4, dim, moved, at);
        gradient[j] = (8 * (at[2] - at[1]) - (at[3] - at[0])) / (12 * h);
        if (!isfinite(gradient[j]))
            gradient[j] = inward_difference(problem, f, x, j, h, moved);
    }
}

static void exact_differences(const problem *problem, int64_t n, const double *x, double *gradient)
{
    const int64_t dim = problem->is.dim;
    double *moved = malloc((size_t)(4 * dim) * sizeof *moved);
    for (int64_t i = 0; moved && i < n; i++)
        problem_differences(problem, problem->is.exact, x + i * dim, gradient + i * dim, moved);
    free(moved);
}

void problem_exact(const problem *problem, int64_t n, const double *x, double *u, double *gradient)
{
    problem->is.exact(problem->is.arg, n, problem->is.dim, x, u);
    if (problem->is.exact_gradient)
        problem->is.exact_gradient(problem->is.arg, n, problem->is.dim, x, gradient);
    else
        exact_differences(problem, n, x, gradient);
}
