/* ritz_evaluate.c - evaluates a trained network at the points of a file or of a grid: coordinates, u, its derivatives, and the exact
 * solution and the error if it is known. */
#include "ritz.h"
#include "ritz_write.h"

#include "base/error.h"
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GRID_MOST = 1 << 26 };

typedef struct table { double *x; int64_t n, room; } table;

static bool is_blank(const char *c)
{
    while (isspace((unsigned char)*c))
        c++;
    return *c == '\0' || *c == '#';
}

static int add_line(table *t, const char *path, int64_t number, char *line, int64_t dim, pt_error *e)
{
    if (t->n == t->room) {
        t->room = t->room ? 2 * t->room : 1024;
        double *more = realloc(t->x, (size_t)(t->room * dim) * sizeof *more);
        if (!more)
            return pt_fail(e, PT_FAILED, "out of memory");
        t->x = more;
    }
    char *at = line, *end;
    for (int64_t j = 0; j < dim; j++, at = end) {
        const double x = strtod(at, &end);
        if (end == at || !isfinite(x))
            return pt_fail(e, PT_FAILED, "%s, line %lld: x%lld is missing or not a number; a point has %lld coordinate%s", path,
                           (long long)number, (long long)j + 1, (long long)dim, plural((uint64_t)dim));
        t->x[t->n * dim + j] = x;
        while (isspace((unsigned char)*end) || *end == ',' || *end == ';')
            end++;
    }
    if (!is_blank(at))
        return pt_fail(e, PT_FAILED, "%s, line %lld: a point has %lld coordinate%s, and this line has more", path, (long long)number,
                       (long long)dim, plural((uint64_t)dim));
    t->n++;
    return 0;
}

/* Whether a value of the line, perhaps in quotes, is a number, "nan" and "inf" included. */
static bool has_number(const char *line)
{
    static const char between[] = ",; \t\r\n\"";
    while (*(line += strspn(line, between))) {
        char *end;
        const size_t n = strcspn(line, between);
        strtod(line, &end);
        if (end == line + n)
            return true;
        line += n;
    }
    return false;
}

/* Reads the points. A first line without a number has the names of the columns. */
static int read_table(const char *path, int64_t dim, table *t, pt_error *e)
{
    const bool standard = !strcmp(path, "-");
    const char *name = standard ? "standard input" : path;
    FILE *f = standard ? stdin : fopen(path, "re");
    if (!f)
        return pt_fail_errno(e, PT_FAILED, "%s cannot be read", path);
    char *line = NULL;
    size_t room = 0;
    int failed = 0;
    ssize_t length;
    for (int64_t number = 1; !failed && (length = getline(&line, &room, f)) > 0; number++) {
        char *text = number == 1 && !strncmp(line, "\xEF\xBB\xBF", 3) ? line + 3 : line; /* behind a byte order mark */
        if (strlen(line) < (size_t)length)
            failed = pt_fail(e, PT_FAILED, "%s, line %lld: there is a NUL character: it is no text", name, (long long)number);
        else if (!is_blank(text) && (number > 1 || has_number(text)))
            failed = add_line(t, name, number, text, dim, e);
    }
    if (!failed && ferror(f))
        failed = pt_fail_errno(e, PT_FAILED, "%s cannot be read", name);
    free(line);
    if (f != stdin)
        fclose(f);
    return failed;
}

static bool is_inside(const pt_ritz_summary *m, const double *x)
{
    bool inside = true;
    for (int64_t j = 0; j < m->dim; j++)
        inside &= x[j] >= m->lower[j] && x[j] <= m->upper[j];
    return inside;
}

static void tell_outside(ritz_session *s, const pt_ritz_summary *m, const table *t)
{
    char text[200];
    int64_t outside = 0, first = 0;
    for (int64_t i = t->n - 1; i >= 0; i--)
        if (!is_inside(m, t->x + i * m->dim))
            outside++, first = i;
    snprintf(text, sizeof text, "%lld of %lld points, point %lld first, lie outside the box, where the network was not trained",
             (long long)outside, (long long)t->n, (long long)first + 1);
    if (outside)
        progress_notice(&s->bar, text);
}

/* A grid of s->grid points along each axis, with the box's sides, in the order of a C array. */
static int make_grid(const ritz_session *s, const pt_ritz_summary *m, table *t, pt_error *e)
{
    const double n = pow((double)s->grid, (double)m->dim);
    if (n > GRID_MOST)
        return pt_fail(e, PT_USAGE, "--grid %lld has %.3g points in %lld dimensions, but at most %d are possible", (long long)s->grid, n,
                       (long long)m->dim, GRID_MOST);
    t->n = (int64_t)n;
    t->x = malloc((size_t)(t->n * m->dim) * sizeof *t->x);
    if (!t->x)
        return pt_fail(e, PT_FAILED, "out of memory");
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t j = m->dim - 1, left = i; j >= 0; j--, left /= s->grid) {
            const double part = (double)(left % s->grid) / (double)(s->grid - 1);
            t->x[i * m->dim + j] = m->lower[j] + part * (m->upper[j] - m->lower[j]);
        }
    return 0;
}

static int evaluate(ritz_session *s, pt_ritz *r, const pt_ritz_summary *m, const table *t, pt_error *e)
{
    double *u = malloc((size_t)(t->n * (m->dim + 2) + 1) * sizeof *u), *exact = u + t->n * (m->dim + 1);
    int failed = u ? pt_ritz_evaluate(r, t->n, t->x, u, u + t->n, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && m->has_exact)
        failed = pt_ritz_exact(r, t->n, t->x, exact, NULL, e);
    const ritz_values v = {t->n, m->dim, s->grid, m->lower, m->upper, t->x, u, u + t->n, m->has_exact ? exact : NULL};
    if (!failed && s->write)
        failed = ritz_write_file(s->write, &v, e);
    else if (!failed)
        ritz_write_csv(stdout, &v);
    free(u);
    return failed;
}

int ritz_evaluate_file(ritz_session *s, pt_error *e)
{
    pt_ritz *r;
    pt_ritz_summary m;
    table t = {0};
    pt_ritz_comparison compared[PT_RITZ_SETS];
    if (pt_ritz_compared(s->eval, compared, NULL) > 0)
        return pt_fail(e, PT_FAILED, "%.400s holds the runs of a comparison: give --eval the folder of one of them, such as %.400s/%s-0",
                       s->eval, s->eval, pt_ritz_points_name(compared[0].points));
    int failed = pt_ritz_load(s->eval, s->o.threads, &r, e);
    if (failed)
        return failed;
    pt_ritz_get_summary(r, &m);
    if (s->write && ritz_ends_in(s->write, ".onnx")) {
        failed = pt_ritz_write_onnx(r, s->write, e);
        pt_ritz_close(r);
        return failed;
    }
    failed = s->grid ? make_grid(s, &m, &t, e) : read_table(s->at, m.dim, &t, e);
    if (!failed) {
        tell_outside(s, &m, &t);
        failed = evaluate(s, r, &m, &t, e);
    }
    free(t.x);
    pt_ritz_close(r);
    return failed;
}
