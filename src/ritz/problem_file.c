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

static int check_keys(const json_source *s, pt_error *e)
{
    static const char *const known[] = {"equation", "dim", "lower", "upper", "f", "V", "g", "r", "a", "G", "dG", "exact", "boundary",
                                        "faces", "holes", "penalty", "energy", "about"};
    const char *key;
    json_t *value;
    json_object_foreach(s->object, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= !strcmp(key, known[i]);
        if (!found)
            return pt_fail(e, PT_FAILED,
                           "%s: the key \"%.40s\" is unknown; a problem has equation, dim, lower, upper, holes, a, f, V, G, dG, boundary, "
                           "faces, g, r, penalty, exact, energy and about", s->where, key);
    }
    return 0;
}

/* Finds the word among `n`, of which the first is the default. */
static int read_choice(const json_source *s, const char *key, const char *const *words, int n, int *out, pt_error *e)
{
    const char *word = words[0];
    char list[120] = "";
    int failed = json_get_string(s, key, JSON_OPTIONAL, &word, e);
    if (failed)
        return failed;
    for (*out = 0; *out < n; ++*out)
        if (!strcmp(word, words[*out]))
            return 0;
    for (int i = 0; i < n; i++)
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s\"%s\"", !i ? "" : i + 1 < n ? ", " : " or ", words[i]);
    return pt_fail(e, PT_FAILED, "%s: %s is \"%.40s\", but must be %s", s->where, key, word, list);
}

int problem_read_side(const json_source *s, const char *key, double **side, int64_t dim, pt_error *e)
{
    json_t *value = json_object_get(s->object, key);
    if (!value || json_is_null(value))
        return 0;
    const bool array = json_is_array(value);
    if (!array && !json_is_number(value))
        return pt_fail(e, PT_FAILED, "%s: %s is %s, but must be a number or an array of numbers", s->where, key, json_type_name(value));
    if (array && (int64_t)json_array_size(value) != dim)
        return pt_fail(e, PT_FAILED, "%s: %s has %zu numbers, but the problem has %lld dimensions", s->where, key, json_array_size(value),
                       (long long)dim);
    if (!(*side = calloc((size_t)dim, sizeof **side)))
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t j = 0; j < dim; j++) {
        const json_t *number = array ? json_array_get(value, (size_t)j) : value;
        if (!json_is_number(number))
            return pt_fail(e, PT_FAILED, "%s: %s, number %lld, is %s", s->where, key, (long long)j + 1, json_type_name(number));
        (*side)[j] = json_number_value(number);
    }
    return 0;
}

/* ---- holes and faces ---- */

/* sides: of all holes, lower and upper, (2, n, dim) */
static int read_hole(const json_source *s, json_t *value, int64_t hole, int64_t n, int64_t dim, double *sides, pt_error *e)
{
    static const char *const keys[] = {"lower", "upper"};
    json_source one = {.object = value};
    snprintf(one.where, sizeof one.where, "%.400s: hole %lld", s->where, (long long)hole + 1);
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

static int read_holes(const json_source *s, problem *p, double **sides, pt_error *e)
{
    json_t *all = json_object_get(s->object, "holes");
    const int64_t n = (int64_t)json_array_size(all);
    if (!all || json_is_null(all))
        return 0;
    if (!json_is_array(all) || n < 1 || n > HOLES_MOST)
        return pt_fail(e, PT_FAILED, "%s: holes must be an array of 1 to %d boxes", s->where, HOLES_MOST);
    *sides = calloc((size_t)(2 * n * p->is.dim), sizeof **sides);
    if (!*sides)
        return pt_fail(e, PT_FAILED, "out of memory");
    int failed = 0;
    for (int64_t h = 0; h < n && !failed; h++)
        failed = read_hole(s, json_array_get(all, (size_t)h), h, n, p->is.dim, *sides, e);
    p->is.holes = n;
    p->is.hole_lower = *sides;
    p->is.hole_upper = *sides + n * p->is.dim;
    return failed;
}

/* Index of the face with this number as text; -1: there is none. */
static int64_t face_of(const problem *p, const char *text)
{
    char *end;
    const long number = strtol(text, &end, 10), most = (long)(p->is.dim * (1 + p->is.holes));
    if (!number || *end || number > most || number < -most)
        return -1;
    const long j = labs(number) - 1, block = j / (long)p->is.dim;
    return (block * p->is.dim + j % p->is.dim) * 2 + (number > 0);
}

static int read_faces(const json_source *s, problem *p, pt_error *e)
{
    json_t *all = json_object_get(s->object, "faces"), *value;
    const int64_t n = domain_faces(&p->is);
    const char *key;
    if (!all || json_is_null(all))
        return 0;
    if (!json_is_object(all))
        return pt_fail(e, PT_FAILED, "%s: faces is %s, but must be an object, such as {\"-1\": \"dirichlet\"}", s->where,
                       json_type_name(all));
    p->faces = calloc((size_t)n, sizeof *p->faces);
    if (!p->faces)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t k = 0; k < n; k++)
        p->faces[k] = p->is.boundary;
    json_object_foreach(all, key, value) {
        const int64_t face = face_of(p, key);
        int kind = 0;
        json_source one = {.object = all};
        snprintf(one.where, sizeof one.where, "%s", s->where);
        if (face < 0)
            return pt_fail(e, PT_FAILED, "%s: faces has \"%.20s\", but faces are -1 and 1 for the sides of x1, up to %lld", s->where, key,
                           (long long)(n / 2));
        const int failed = read_choice(&one, key, problem_boundaries, 4, &kind, e);
        if (failed)
            return failed;
        p->faces[face] = (pt_ritz_boundary)kind;
    }
    p->is.faces = p->faces;
    return 0;
}

/* ---- expressions ---- */

static int read_expressions(const json_source *s, problem *p, pt_error *e)
{
    pt_ritz_function *const into[PROBLEM_EXPRESSIONS] = {&p->is.f, &p->is.V, &p->is.g, &p->is.r, &p->is.a, NULL, NULL, &p->is.exact};
    static const pt_ritz_function functions[PROBLEM_EXPRESSIONS] = {values_f, values_V, values_g, values_r, values_a, NULL, NULL,
                                                                    values_exact};
    static const char *const extra[PROBLEM_EXPRESSIONS] = {NULL, NULL, "face", "face", NULL, "u", "u", NULL};
    for (int i = 0; i < PROBLEM_EXPRESSIONS; i++) {
        const char *text = NULL;
        int failed = json_get_string(s, problem_keys[i], JSON_OPTIONAL, &text, e);
        if (!failed && text)
            failed = expression_open(s->where, problem_keys[i], text, p->is.dim, extra[i], &p->expressions[i], e);
        if (failed)
            return failed;
        if (text && into[i])
            *into[i] = functions[i];
    }
    const bool energy = p->expressions[EXPRESSION_ENERGY], slope = p->expressions[EXPRESSION_SLOPE];
    if (energy != slope)
        return pt_fail(e, PT_FAILED, "%s: %s: G and its derivative dG, by u, belong together", s->where,
                       energy ? "dG is missing" : "G is missing");
    p->is.G = energy ? nonlinear : NULL;
    p->is.arg = p->expressions;
    p->is.concurrent = true;
    return 0;
}

/* Keys that the problem has no use for. */
static int check_used(const json_source *s, const problem *p, pt_error *e)
{
    const expression *g = p->expressions[EXPRESSION_G];
    bool hard = true;
    for (int64_t k = 0; k < domain_faces(&p->is); k++)
        hard &= domain_boundary(&p->is, k) == PT_RITZ_HARD;
    if (hard && g && strstr(expression_text(g), "face"))
        return pt_fail(e, PT_FAILED, "%s: with a hard boundary g is needed in the whole box, so it cannot depend on face", s->where);
    if (!domain_has_boundary(&p->is, PT_RITZ_DIRICHLET) && json_object_get(s->object, "penalty"))
        return pt_fail(e, PT_FAILED, "%s: a %s boundary has no penalty: remove it, or write \"boundary\": \"dirichlet\"", s->where,
                       problem_boundaries[domain_boundary(&p->is, 0)]);
    if (p->is.r && !domain_has_boundary(&p->is, PT_RITZ_ROBIN))
        return pt_fail(e, PT_FAILED, "%s: r belongs to a robin boundary: remove it, or write \"boundary\": \"robin\"", s->where);
    if (p->is.V && p->is.equation == PT_RITZ_POISSON)
        return pt_fail(e, PT_FAILED, "%s: Poisson's equation has no V: remove it, or write \"equation\": \"schroedinger\"", s->where);
    return 0;
}

static int read_box(const json_source *s, problem *p, pt_error *e)
{
    double *lower = NULL, *upper = NULL, *holes = NULL;
    int failed = problem_read_side(s, "lower", &lower, p->is.dim, e);
    if (!failed)
        failed = problem_read_side(s, "upper", &upper, p->is.dim, e);
    if (!failed)
        failed = read_holes(s, p, &holes, e);
    if (!failed)
        failed = read_faces(s, p, e);
    if (!failed)
        failed = read_expressions(s, p, e);
    if (!failed)
        failed = problem_finish(p, lower, upper, e);
    free(lower);
    free(upper);
    free(holes);
    return failed;
}

static int read_problem(const json_source *s, problem *p, pt_error *e)
{
    static const char *const equations[] = {"poisson", "schroedinger", "eigenvalue"};
    int equation = 0, boundary = 0;
    int failed = check_keys(s, e);
    p->is.penalty = 1000;
    if (!failed)
        failed = read_choice(s, "equation", equations, 3, &equation, e);
    if (!failed)
        failed = read_choice(s, "boundary", problem_boundaries, 4, &boundary, e);
    if (!failed)
        failed = json_get_int(s, "dim", JSON_REQUIRED, 1, 65536, &p->is.dim, e);
    if (!failed)
        failed = json_get_double(s, "penalty", JSON_OPTIONAL, DBL_MIN, 1e30, &p->is.penalty, e);
    if (!failed)
        failed = json_get_double(s, "energy", JSON_OPTIONAL, -DBL_MAX, DBL_MAX, &p->energy, e);
    p->is.equation = (pt_ritz_equation)equation;
    p->is.boundary = (pt_ritz_boundary)boundary;
    if (!failed)
        failed = read_box(s, p, e);
    return failed ? failed : check_used(s, p, e);
}

int problem_object_open(const json_source *s, problem *p, pt_error *e)
{
    *p = (problem){.energy = NAN};
    return read_problem(s, p, e);
}

int problem_text_open(const char *path, const char *text, size_t n, problem *p, pt_error *e)
{
    json_source s;
    *p = (problem){.energy = NAN};
    snprintf(p->name, sizeof p->name, "%.250s", path);
    int failed = json_source_text(&s, path, text, n, "a problem", e);
    if (failed)
        return failed;
    failed = read_problem(&s, p, e);
    json_source_close(&s);
    return failed;
}

int problem_file_open(const char *path, problem *p, pt_error *e)
{
    char *text;
    size_t n;
    int failed = file_read_all(path, PROBLEM_FILE_BYTES, &text, &n, e);
    if (failed)
        return failed;
    failed = problem_text_open(path, text, n, p, e);
    free(text);
    return failed;
}
