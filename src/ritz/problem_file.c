/* problem_file.c - a problem as JSON:
 *
 *     {"equation": "schroedinger", "dim": 2, "lower": 0, "upper": [1, 2],
 *      "f": "2*pi^2*cos(pi*x1)", "V": "pi^2", "boundary": "neumann", "g": "0", "exact": "cos(pi*x1)", "energy": -4.93}
 */
#include "base/json.h"
#include "io/files.h"
#include "ritz/problem.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXPRESSION_F, EXPRESSION_V, EXPRESSION_G, EXPRESSION_EXACT };
static const char *const keys[PROBLEM_EXPRESSIONS] = {"f", "V", "g", "exact"};

/* The functions' `arg` is problem.expressions. */
#define EXPRESSION_FUNCTION(name, which)                                                            \
    static void name(void *arg, int64_t n, int64_t dim, const double *x, double *out)               \
    {                                                                                               \
        expression_values(((expression *const *)arg)[which], n, dim, x, out);                       \
    }
EXPRESSION_FUNCTION(values_f, EXPRESSION_F)
EXPRESSION_FUNCTION(values_V, EXPRESSION_V)
EXPRESSION_FUNCTION(values_g, EXPRESSION_G)
EXPRESSION_FUNCTION(values_exact, EXPRESSION_EXACT)

static int check_keys(const json_source *s, pt_error *e)
{
    static const char *const known[] = {"equation", "dim", "lower", "upper", "f", "V", "g", "exact", "boundary", "penalty", "energy",
                                        "about"};
    const char *key;
    json_t *value;
    json_object_foreach(s->object, key, value) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= !strcmp(key, known[i]);
        if (!found)
            return pt_fail(e, PT_FAILED,
                           "%s: the key \"%.40s\" is unknown; a problem has equation, dim, lower, upper, f, V, boundary, g, penalty, "
                           "exact, energy and about", s->where, key);
    }
    return 0;
}

/* Reads one of two words; *out: 0 or 1. */
static int read_choice(const json_source *s, const char *key, const char *first, const char *second, int *out, pt_error *e)
{
    const char *word = first;
    int failed = json_get_string(s, key, JSON_OPTIONAL, &word, e);
    if (failed)
        return failed;
    *out = !strcmp(word, second);
    if (!*out && strcmp(word, first))
        return pt_fail(e, PT_FAILED, "%s: %s is \"%.40s\", but must be \"%s\" or \"%s\"", s->where, key, word, first, second);
    return 0;
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

static int read_expressions(const json_source *s, problem *p, pt_error *e)
{
    pt_ritz_function *const into[PROBLEM_EXPRESSIONS] = {&p->is.f, &p->is.V, &p->is.g, &p->is.exact};
    static const pt_ritz_function functions[PROBLEM_EXPRESSIONS] = {values_f, values_V, values_g, values_exact};
    for (int i = 0; i < PROBLEM_EXPRESSIONS; i++) {
        const char *text = NULL;
        int failed = json_get_string(s, keys[i], JSON_OPTIONAL, &text, e);
        if (!failed && text)
            failed = expression_open(s->where, keys[i], text, p->is.dim, &p->expressions[i], e);
        if (failed)
            return failed;
        if (text)
            *into[i] = functions[i];
    }
    p->is.arg = p->expressions;
    p->is.concurrent = true;
    return 0;
}

static int read_problem(const json_source *s, problem *p, pt_error *e)
{
    int equation = 0, boundary = 0;
    int failed = check_keys(s, e);
    p->is.penalty = 1000;
    if (!failed)
        failed = read_choice(s, "equation", "poisson", "schroedinger", &equation, e);
    if (!failed)
        failed = read_choice(s, "boundary", "neumann", "dirichlet", &boundary, e);
    if (!failed)
        failed = json_get_int(s, "dim", JSON_REQUIRED, 1, 65536, &p->is.dim, e);
    if (!failed)
        failed = json_get_double(s, "penalty", JSON_OPTIONAL, DBL_MIN, 1e30, &p->is.penalty, e);
    if (!failed)
        failed = json_get_double(s, "energy", JSON_OPTIONAL, -DBL_MAX, DBL_MAX, &p->energy, e);
    p->is.equation = equation ? PT_RITZ_SCHROEDINGER : PT_RITZ_POISSON;
    p->is.boundary = boundary ? PT_RITZ_DIRICHLET : PT_RITZ_NEUMANN;
    double *lower = NULL, *upper = NULL;
    if (!failed)
        failed = problem_read_side(s, "lower", &lower, p->is.dim, e);
    if (!failed)
        failed = problem_read_side(s, "upper", &upper, p->is.dim, e);
    if (!failed)
        failed = problem_finish(p, lower, upper, e);
    free(lower);
    free(upper);
    if (!failed)
        failed = read_expressions(s, p, e);
    if (!failed && p->is.boundary == PT_RITZ_NEUMANN && json_object_get(s->object, "penalty"))
        failed = pt_fail(e, PT_FAILED, "%s: a neumann boundary has no penalty: remove it, or write \"boundary\": \"dirichlet\"", s->where);
    if (!failed && p->is.V && p->is.equation == PT_RITZ_POISSON)
        failed = pt_fail(e, PT_FAILED, "%s: Poisson's equation has no V: remove it, or write \"equation\": \"schroedinger\"", s->where);
    return failed;
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
