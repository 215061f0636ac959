/* problem_file.c - a problem as JSON:
 *
 *     {"equation": "schroedinger", "dim": 2, "lower": 0, "upper": [1, 2],
 *      "holes": [{"lower": 0, "upper": 0.5}], "faces": {"-1": "dirichlet", "2": "robin"},
 *      "f": "2*pi^2*cos(pi*x1)", "V": "pi^2", "boundary": "neumann", "g": "0", "exact": "cos(pi*x1)", "energy": -4.93}
 *
 * A face is named by its number, which is the variable `face` of g and r (domain.h).
 */
#include "base/json.h"
#include "io/files.h"
#include "ritz/problem.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOLES_MOST = 64 };

/* The functions' `arg` is problem.expressions. */
#define EXPRESSION_FUNCTION(name, which)                                                            \
    static void name(void *arg, int64_t n, int64_t dim, const double *x, double *out)               \
    {                                                                                               \
        expression_values(((expression *const *)arg)[which], n, dim, x, NULL, out);                 \
    }
EXPRESSION_FUNCTION(values_f, EXPRESSION_F)
EXPRESSION_FUNCTION(values_V, EXPRESSION_V)
EXPRESSION_FUNCTION(values_g, EXPRESSION_G)
EXPRESSION_FUNCTION(values_r, EXPRESSION_R)
EXPRESSION_FUNCTION(values_a, EXPRESSION_A)
EXPRESSION_FUNCTION(values_exact, EXPRESSION_EXACT)

static void nonlinear(void *arg, int64_t n, int64_t dim, const double *x, const double *u, double *value, double *slope)
{
    expression *const *all = arg;
    expression_values(all[EXPRESSION_ENERGY], n, dim, x, u, value);
    expression_values(all[EXPRESSION_SLOPE], n, dim, x, u, slope);
}

static int check_keys(const json_source *src, pt_error *e)
{
    static const char *const known[] = {"equation", "dim", "lower", "upper", "f", "V", "g", "r", "a", "G", "dG", "exact", "boundary",
                                        "faces", "holes", "penalty", "energy", "about"};
    const char *key;
    json_t *value;
    json_object_foreach(src->object, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= !strcmp(key, known[i]);
        if (!found)
            return pt_fail(e, PT_FAILED,
                           "%s: the key \"%.40s\" is unknown; a problem has equation, dim, lower, upper, holes, a, f, V, G, dG, boundary, "
                           "faces, g, r, penalty, exact, energy and about", src->where, key);
    }
    return 0;
}

/* Finds the word among `n`, of which the first is the default. */
static int read_choice(const json_source *src, const char *key, const char *const *words, int n, int *out, pt_error *e)
{
    const char *word = words[0];
    char list[120] = "";
    int failed = json_get_string(src, key, JSON_OPTIONAL, &word, e);
    if (failed)
        return failed;
    for (*out = 0; *out < n; ++*out)
        if (!strcmp(word, words[*out]))
            return 0;
    for (int i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s\"%s\"", !i ? "" : i + 1 < n ? ", " : " or ", words[i]);
    return pt_fail(e, PT_FAILED, "%s: %s is \"%.40s\", but must be %s", src->where, key, word, list);
}

int problem_read_side(const json_source *src, const char *key, double **side, int64_t dim, pt_error *e)
{
    json_t *value = json_object_get(src->object, key);
    if (!value || json_is_null(value))
        return 0;
    const bool array = json_is_array(value);
    if (!array && !json_is_number(value))
        return pt_fail(e, PT_FAILED, "%s: %s is %s, but must be a number or an array of numbers", src->where, key, json_type_name(value));
    if (array && (int64_t)json_array_size(value) != dim)
        return pt_fail(e, PT_FAILED, "%s: %s has %zu numbers, but the problem has %lld dimensions", src->where, key, json_array_size(value),
                       (long long)dim);
    if (!(*side = calloc((size_t)dim, sizeof **side)))
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t j = 0; j < dim; j++) {
        const json_t *number = array ? json_array_get(value, (size_t)j) : value;
        if (!json_is_number(number))
            return pt_fail(e, PT_FAILED, "%s: %s, number %lld, is %s", src->where, key, (long long)j + 1, json_type_name(number));
        (*side)[j] = json_number_value(number);
    }
    return 0;
}

/* ---- holes and faces ---- */

/* sides: of all holes, lower and upper, (2, n, dim) */
static int read_hole(const json_source *src, json_t *value, int64_t hole, int64_t n, int64_t dim, double *sides, pt_error *e)
{
    static const char *const keys[] = {"lower", "upper"};
    json_source one = {.object = value};
    snprintf(one.where, sizeof one.where, "%.400s: hole %lld", src->where, (long long)hole + 1);
    const char *where = one.where;
    int failed = json_is_object(value) ? 0 : pt_fail(e, PT_FAILED, "%s is %s, but must be {\"lower\": ..., \"upper\": ...}", where,
                                                     json_type_name(value));
    for (int k = 0; k < 2 && !failed; k++) {
        double *side = NULL;
        failed = problem_read_side(&one, keys[k], &side, dim, e);
        if (!failed && !side)
            failed = pt_fail(e, PT_FAILED, "%s has no %s", where, keys[k]);
        if (!failed)
            memcpy(sides + (k * n + hole) * dim, side, (size_t)dim * sizeof *side);
        free(side);
    }
    return failed;
}

static int read_holes(const json_source *src, problem *problem, double **sides, pt_error *e)
{
    json_t *all = json_object_get(src->object, "holes");
    const int64_t n = (int64_t)json_array_size(all);
    if (!all || json_is_null(all))
        return 0;
    if (!json_is_array(all) || n < 1 || n > HOLES_MOST)
        return pt_fail(e, PT_FAILED, "%s: holes must be an array of 1 to %d boxes", src->where, HOLES_MOST);
    *sides = calloc((size_t)(2 * n * problem->is.dim), sizeof **sides);
    if (!*sides)
        return pt_fail(e, PT_FAILED, "out of memory");
    int failed = 0;
    for (int64_t h = 0; h < n && !failed; h++)
        failed = read_hole(src, json_array_get(all, (size_t)h), h, n, problem->is.dim, *sides, e);
    problem->is.holes = n;
    problem->is.hole_lower = *sides;
    problem->is.hole_upper = *sides + n * problem->is.dim;
    return failed;
}

/* Index of the face with this number as text; -1: there is none. */
static int64_t face_of(const problem *problem, const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10), most = (long)(problem->is.dim * (1 + problem->is.holes));
    if (!number || *end || number > most || number < -most)
        return -1;
    const long j = labs(number) - 1, block = j / (long)problem->is.dim;
    return (block * problem->is.dim + j % problem->is.dim) * 2 + (number > 0);
}

static int read_faces(const json_source *src, problem *problem, pt_error *e)
{
    json_t *all = json_object_get(src->object, "faces"), *value;
    const int64_t n = domain_faces(&problem->is);
    const char *key;
    if (!all || json_is_null(all))
        return 0;
    if (!json_is_object(all))
        return pt_fail(e, PT_FAILED, "%s: faces is %s, but must be an object, such as {\"-1\": \"dirichlet\"}", src->where,
                       json_type_name(all));
    problem->faces = calloc((size_t)n, sizeof *problem->faces);
    if (!problem->faces)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t k = 0; k < n; k++)
        problem->faces[k] = problem->is.boundary;
    json_object_foreach(all, key, value) {
        const int64_t face = face_of(problem, key);
        int kind = 0;
        json_source one = {.object = all};
        snprintf(one.where, sizeof one.where, "%s", src->where);
        if (face < 0)
            return pt_fail(e, PT_FAILED, "%s: faces has \"%.20s\", but faces are -1 and 1 for the sides of x1, up to %lld", src->where, key,
                           (long long)(n / 2));
        const int failed = read_choice(&one, key, problem_boundaries, 4, &kind, e);
        if (failed)
            return failed;
        problem->faces[face] = (pt_ritz_boundary)kind;
    }
    problem->is.faces = problem->faces;
    return 0;
}

/* ---- expressions ---- */

static int read_expressions(const json_source *src, problem *problem, pt_error *e)
{
    pt_ritz_function *const into[PROBLEM_EXPRESSIONS] = {&problem->is.f, &problem->is.V, &problem->is.g, &problem->is.r,
                                                         &problem->is.a, NULL,           NULL,           &problem->is.exact};
    static const pt_ritz_function functions[PROBLEM_EXPRESSIONS] = {values_f, values_V, values_g, values_r, values_a, NULL, NULL,
                                                                    values_exact};
    static const char *const extra[PROBLEM_EXPRESSIONS] = {NULL, NULL, "face", "face", NULL, "u", "u", NULL};
    for (int i = 0; i < PROBLEM_EXPRESSIONS; i++) {
        const char *text = NULL;
        int failed = json_get_string(src, problem_keys[i], JSON_OPTIONAL, &text, e);
        if (!failed && text)
            failed = expression_open(src->where, problem_keys[i], text, problem->is.dim, extra[i], &problem->expressions[i], e);
        if (failed)
            return failed;
        if (text && into[i])
            *into[i] = functions[i];
    }
    const bool energy = problem->expressions[EXPRESSION_ENERGY], slope = problem->expressions[EXPRESSION_SLOPE];
    if (energy != slope)
        return pt_fail(e, PT_FAILED, "%s: %s: G and its derivative dG, by u, belong together", src->where,
                       energy ? "dG is missing" : "G is missing");
    problem->is.G = energy ? nonlinear : NULL;
    problem->is.arg = problem->expressions;
    problem->is.concurrent = true;
    return 0;
}

/* Keys that the problem has no use for. */
static int check_used(const json_source *src, const problem *problem, pt_error *e)
{
    const expression *g = problem->expressions[EXPRESSION_G];
    bool hard = true;
    for (int64_t k = 0; k < domain_faces(&problem->is); k++)
        hard &= domain_boundary(&problem->is, k) == PT_RITZ_HARD;
    if (hard && g && strstr(expression_text(g), "face"))
        return pt_fail(e, PT_FAILED, "%s: with a hard boundary g is needed in the whole box, so it cannot depend on face", src->where);
    if (!domain_has_boundary(&problem->is, PT_RITZ_DIRICHLET) && json_object_get(src->object, "penalty"))
        return pt_fail(e, PT_FAILED, "%s: a %s boundary has no penalty: remove it, or write \"boundary\": \"dirichlet\"", src->where,
                       problem_boundaries[domain_boundary(&problem->is, 0)]);
    if (problem->is.r && !domain_has_boundary(&problem->is, PT_RITZ_ROBIN))
        return pt_fail(e, PT_FAILED, "%s: r belongs to a robin boundary: remove it, or write \"boundary\": \"robin\"", src->where);
    if (problem->is.V && problem->is.equation == PT_RITZ_POISSON)
        return pt_fail(e, PT_FAILED, "%s: Poisson's equation has no V: remove it, or write \"equation\": \"schroedinger\"", src->where);
    return 0;
}

static int read_box(const json_source *src, problem *problem, pt_error *e)
{
    double *lower = NULL, *upper = NULL, *holes = NULL;
    int failed = problem_read_side(src, "lower", &lower, problem->is.dim, e);
    if (!failed)
        failed = problem_read_side(src, "upper", &upper, problem->is.dim, e);
    if (!failed)
        failed = read_holes(src, problem, &holes, e);
    if (!failed)
        failed = read_faces(src, problem, e);
    if (!failed)
        failed = read_expressions(src, problem, e);
    if (!failed)
        failed = problem_finish(problem, lower, upper, e);
    free(lower);
    free(upper);
    free(holes);
    return failed;
}

static int read_problem(const json_source *src, problem *problem, pt_error *e)
{
    static const char *const equations[] = {"poisson", "schroedinger", "eigenvalue"};
    int equation = 0, boundary = 0;
    int failed = check_keys(src, e);
    problem->is.penalty = 1000;
    if (!failed)
        failed = read_choice(src, "equation", equations, 3, &equation, e);
    if (!failed)
        failed = read_choice(src, "boundary", problem_boundaries, 4, &boundary, e);
    if (!failed)
        failed = json_get_int(src, "dim", JSON_REQUIRED, 1, 65536, &problem->is.dim, e);
    if (!failed)
        failed = json_get_double(src, "penalty", JSON_OPTIONAL, DBL_MIN, 1e30, &problem->is.penalty, e);
    if (!failed)
        failed = json_get_double(src, "energy", JSON_OPTIONAL, -DBL_MAX, DBL_MAX, &problem->energy, e);
    problem->is.equation = (pt_ritz_equation)equation;
    problem->is.boundary = (pt_ritz_boundary)boundary;
    if (!failed)
        failed = read_box(src, problem, e);
    return failed ? failed : check_used(src, problem, e);
}

int problem_object_open(const json_source *src, problem *p, pt_error *e)
{
    *p = (problem){.energy = NAN};
    return read_problem(src, p, e);
}

int problem_text_open(const char *path, const char *text, size_t n, problem *p, pt_error *e)
{
    json_source src;
    *p = (problem){.energy = NAN};
    snprintf(p->name, sizeof p->name, "%.250s", path);
    int failed = json_source_text(&src, path, text, n, "a problem", e);
    if (failed)
        return failed;
    failed = read_problem(&src, p, e);
    json_source_close(&src);
    return failed;
}

int problem_file_open(const char *path, problem *problem, pt_error *e)
{
    char *text;
    size_t n;
    int failed = file_read_all(path, PROBLEM_FILE_BYTES, &text, &n, e);
    if (failed)
        return failed;
    failed = problem_text_open(path, text, n, problem, e);
    free(text);
    return failed;
}
