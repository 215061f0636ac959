/* integrate.c - an energy, and its gradient, over all points of a draw. */
#include "base/clock.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double ritz_volume(const problem *p)
{
    double v = 1;
    for (int64_t j = 0; j < p->is.dim; j++)
        v *= p->is.upper[j] - p->is.lower[j];
    return v;
}

/* ---- points ---- */

void ritz_put_x(const pt_ritz *r, const double *x, int64_t rows, char *to)
{
    const int64_t dim = r->net.dim, input = r->net.input;
    const bool wide = r->net.type == PT_F64;
    if (input > dim)
        memset(to, 0, (size_t)(rows * input) * dtype_bytes(r->net.type));
    for (int64_t i = 0; i < rows; i++, x += dim) {
        if (wide)
            memcpy((double *)to + i * input, x, (size_t)dim * sizeof *x);
        for (int64_t j = 0; !wide && j < dim; j++)
            ((float *)to)[i * input + j] = (float)x[j];
    }
}

int ritz_check_values(const problem *p, const char *name, int64_t n, int64_t each, const double *values, const double *x, pt_error *e)
{
    const int64_t dim = p->is.dim;
    for (int64_t i = 0; i < n * each; i++)
        if (!isfinite(values[i])) {
            char at[120] = "";
            for (int64_t j = 0; j < dim && strlen(at) < 90; j++)
                snprintf(at + strlen(at), sizeof at - strlen(at), "%s%.17g", j ? ", " : "", x[i / each * dim + j]);
            return pt_fail(e, PT_FAILED, "%s: %s is %g at x = (%s)", p->name, name, isnan(values[i]) ? NAN : values[i], at);
        }
    return 0;
}

/* f, V or g at some points; NULL is 0. */
static void find_values(const pt_ritz *r, pt_ritz_function function, int64_t rows, const double *x, double *out)
{
    if (function)
        function(r->problem.is.arg, rows, r->net.dim, x, out);
    else
        memset(out, 0, (size_t)rows * sizeof *out);
}

void ritz_stretch(const pt_ritz_problem *p, int64_t n, double *x)
{
    for (int64_t i = 0; i < n; i++, x += p->dim)
        for (int64_t j = 0; j < p->dim; j++)
            x[j] = p->lower[j] + x[j] * (p->upper[j] - p->lower[j]);
}

/* Points inside, and f and V there. */
typedef struct samples { double *x, *f, *v; } samples;

static void find_points(const pt_ritz *r, int64_t first, int64_t rows, double *x)
{
    points_get(r->inside, first, rows, x);
    ritz_stretch(&r->problem.is, rows, x);
}

/* The points' OP_QUADRATIC terms. */
static void weigh(const pt_ritz *r, int64_t first, int64_t rows, const samples *at, double *terms)
{
    const pt_ritz_problem *p = &r->problem.is;
    const int64_t half = r->o.n / 2;
    const double weight = ritz_volume(&r->problem) / (double)r->o.n;
    find_values(r, p->f, rows, at->x, at->f);
    find_values(r, p->equation == PT_RITZ_SCHROEDINGER ? p->V : NULL, rows, at->x, at->v);
    for (int64_t i = 0; i < rows; i++) {
        const double t[QUADRATIC_TERMS] = {weight, weight * at->v[i], weight * at->f[i], 0, r->mean[first + i >= half]};
        memcpy(terms + i * QUADRATIC_TERMS, t, sizeof t);
    }
}

static int check_inside(const pt_ritz *r, int64_t rows, const samples *at, pt_error *e)
{
    int failed = ritz_check_values(&r->problem, "f", rows, 1, at->f, at->x, e);
    return failed ? failed : ritz_check_values(&r->problem, "V", rows, 1, at->v, at->x, e);
}

/* A ritz_make_fn: as many rows at a time as scratch holds. */
static void make_inside(const ritz_slot *s, int64_t first, int64_t end, void *scratch)
{
    const pt_ritz *r = s->arg;
    const int64_t dim = r->net.dim, most = CALL_SCRATCH_BYTES / (int64_t)sizeof(double) / (dim + 2);
    const uint64_t row = (uint64_t)r->net.input * dtype_bytes(r->net.type);
    for (int64_t at = first, rows; at < end; at += rows) {
        rows = end - at < most ? end - at : most;
        const samples in = {scratch, (double *)scratch + rows * dim, (double *)scratch + rows * (dim + 1)};
        find_points(r, s->first + at, rows, in.x);
        ritz_put_x(r, in.x, rows, (char *)s->made_x + (uint64_t)at * row);
        if (s->made_terms)
            weigh(r, s->first + at, rows, &in, s->made_terms + at * QUADRATIC_TERMS);
    }
}

/* Makes points first .. first + rows of all faces together, which lie on one face, and returns its area. Face 2j is x_j = lower[j], face
 * 2j + 1 is x_j = upper[j]. The other coordinates are spread in place, from the last one on. */
static double make_face(pt_ritz *r, int64_t first, int64_t rows, double *x)
{
    const pt_ritz_problem *p = &r->problem.is;
    const int64_t face = first / r->face_n, across = face / 2;
    double area = 1;
    if (r->faces && r->part != (uint32_t)face + 1) {
        r->part = (uint32_t)face + 1;
        points_draw(r->faces, r->draw, r->part);
    }
    if (r->faces)
        points_get(r->faces, first % r->face_n, rows, x);
    const double *from = x + rows * (p->dim - 1);
    for (int64_t i = rows - 1; i >= 0; i--)
        for (int64_t j = p->dim - 1; j >= 0; j--)
            x[i * p->dim + j] = j != across ? p->lower[j] + *--from * (p->upper[j] - p->lower[j]) : face % 2 ? p->upper[j] : p->lower[j];
    for (int64_t j = 0; j < p->dim; j++)
        area *= j == across ? 1 : p->upper[j] - p->lower[j];
    return area;
}

static int make_boundary(pt_ritz *r, int64_t first, int64_t rows, double *terms, pt_error *e)
{
    const pt_ritz_problem *p = &r->problem.is;
    for (int64_t i = 0, n; i < rows; i += n) {
        const int64_t left = r->face_n - (first + i) % r->face_n;
        n = left < rows - i ? left : rows - i;
        const double weight = make_face(r, first + i, n, r->x + i * p->dim) / (double)r->face_n;
        for (int64_t k = i; k < i + n; k++)
            terms[k * QUADRATIC_TERMS] = weight;
    }
    find_values(r, p->g, rows, r->x, r->f);
    int failed = ritz_check_values(&r->problem, "g", rows, 1, r->f, r->x, e);
    for (int64_t i = 0; i < rows && !failed; i++) {
        double *t = terms + i * QUADRATIC_TERMS;
        const double weight = t[0], g = r->f[i], b = p->penalty;
        const bool given = p->boundary == PT_RITZ_DIRICHLET;
        const double made[QUADRATIC_TERMS] = {0, given ? 2 * b * weight : 0, given ? 2 * b * weight * g : weight * g,
                                              given ? b * weight * g * g : 0, 0};
        memcpy(t, made, sizeof made);
    }
    return failed;
}

/* ---- units ---- */

static int64_t rows_of(const pt_ritz *r, int64_t unit, int64_t *first)
{
    const bool inside = unit < r->inside_units;
    const int64_t all = inside ? r->o.n : r->boundary_n;
    *first = (inside ? unit : unit - r->inside_units) * r->unit_rows;
    return all - *first < r->unit_rows ? all - *first : r->unit_rows;
}

/* Makes a unit's points and, unless they are only for int u (RITZ_MEAN), the terms of their energies. */
static int make_unit(pt_ritz *r, ritz_program what, int64_t first, ritz_slot *s, pt_error *e)
{
    const samples at = {r->x, r->f, r->v};
    int failed = 0;
    if (what == RITZ_FACES)
        failed = make_boundary(r, first, s->rows, (double *)s->terms, e);
    else
        find_points(r, first, s->rows, at.x);
    if (what == RITZ_TURN) {
        weigh(r, first, s->rows, &at, (double *)s->terms);
        failed = check_inside(r, s->rows, &at, e);
    }
    ritz_put_x(r, r->x, s->rows, (char *)s->x);
    return failed;
}

/* Fills a slot, or lets the compute threads do so. */
static int load_unit(pt_ritz *r, ritz_program what, int64_t unit, ritz_slot *s, pt_error *e)
{
    int64_t first;
    s->rows = rows_of(r, unit, &first);
    s->value = what == RITZ_MEAN ? NULL : r->values + (what == RITZ_FACES ? r->o.n : 0) + first;
    s->u = what == RITZ_MEAN ? r->u + (uint64_t)first * dtype_bytes(r->net.type) : NULL;
    s->gradient = NULL;
    s->make = what != RITZ_FACES && ritz_makes_in_threads(r) ? make_inside : NULL;
    s->arg = r;
    s->first = first;
    return s->make ? 0 : make_unit(r, what, first, s, e);
}

/* Names the first point that has made an energy infinite or NaN. */
static int check_points(pt_ritz *r, pt_error *e)
{
    const samples at = {r->x, r->f, r->v};
    int failed = 0;
    for (int64_t unit = 0; unit < r->inside_units && !failed; unit++) {
        int64_t first;
        const int64_t rows = rows_of(r, unit, &first);
        find_points(r, first, rows, at.x);
        weigh(r, first, rows, &at, (double *)r->slots[0].terms);
        failed = check_inside(r, rows, &at, e);
    }
    return failed;
}

double ritz_largest_value(pt_ritz *r)
{
    const samples at = {r->x, r->f, r->v};
    double largest = 0;
    for (int64_t unit = 0; unit < r->inside_units; unit++) {
        int64_t first;
        const int64_t rows = rows_of(r, unit, &first);
        find_points(r, first, rows, at.x);
        weigh(r, first, rows, &at, (double *)r->slots[0].terms);
        for (int64_t i = 0; i < rows; i++)
            largest = fmax(largest, fmax(fabs(at.f[i]), fabs(at.v[i])));
    }
    return largest;
}

/* Submits a program for the units first .. end, `visit` at a time. A set of slots is filled again once its inputs are on the device. */
static int run_units(pt_ritz *r, ritz_program what, int64_t first, int64_t end, pt_error *e)
{
    int failed = 0;
    for (int64_t unit = first; unit < end && !failed; unit += r->plan.visit) {
        const int n = end - unit < r->plan.visit ? (int)(end - unit) : r->plan.visit;
        r->turn = !r->turn;
        ritz_slot *slots = r->slots + r->turn * r->plan.visit;
        failed = ritz_runner_wait(r->runner, r->busy_until[r->turn], e);
        for (int i = 0; i < n && !failed; i++)
            failed = load_unit(r, what, unit + i, &slots[i], e);
        if (!failed)
            ritz_runner_run(r->runner, what, slots, n, unit == 0, &r->busy_until[r->turn]);
    }
    return failed;
}

bool ritz_makes_in_threads(const pt_ritz *r) { return r->problem.is.concurrent && !device_is_gpu(r->device); }

double ritz_time_points(void *run, bool weighed)
{
    pt_ritz *r = run;
    const samples at = {r->x, r->f, r->v};
    double *terms = malloc((size_t)(r->unit_rows * QUADRATIC_TERMS) * sizeof *terms);
    const int64_t rows = r->o.n < r->unit_rows ? r->o.n : r->unit_rows;
    if (!terms)
        return 0;
    points_draw(r->inside, 0, 0);
    const int64_t begin = clock_ns();
    find_points(r, 0, rows, r->x);
    if (weighed)
        weigh(r, 0, rows, &at, terms);
    free(terms);
    return (double)(clock_ns() - begin);
}

/* int u over the box, estimated from the points first .. end. */
static double mean_of(const pt_ritz *r, int64_t first, int64_t end)
{
    double sum = 0;
    for (int64_t i = first; i < end; i++)
        sum += ritz_value(r, r->u, i);
    return sum * ritz_volume(&r->problem) / (double)(end - first);
}

/* Sets r->mean, and *energy to (int u)^2 / 2. */
static int find_mean(pt_ritz *r, double *energy, pt_error *e)
{
    const int64_t n = r->o.n, half = n / 2;
    const double v = ritz_volume(&r->problem);
    r->mean[0] = r->mean[1] = 0;
    int failed = run_units(r, RITZ_MEAN, 0, r->inside_units, e);
    if (!failed)
        failed = ritz_runner_sync(r->runner, e);
    if (failed)
        return failed;
    const bool halves = r->o.points == PT_RITZ_MC && n > 1;
    const double all = mean_of(r, 0, n), first = halves ? mean_of(r, 0, half) : all, second = halves ? mean_of(r, half, n) : all;
    *energy = 0.5 * first * second;
    r->mean[0] = halves ? 0.5 * v / (double)half * second : all * v / (double)n;
    r->mean[1] = halves ? 0.5 * v / (double)(n - half) * first : all * v / (double)n;
    return 0;
}

int ritz_integrate(pt_ritz *r, uint64_t draw, double *energy, pt_error *e)
{
    double sum = 0;
    r->draw = draw;
    r->part = 0;
    r->mean[0] = r->mean[1] = 0;
    points_draw(r->inside, draw, 0);
    int failed = problem_has_mean(&r->problem) ? find_mean(r, &sum, e) : 0;
    if (!failed)
        failed = run_units(r, RITZ_TURN, 0, r->inside_units, e);
    if (!failed)
        failed = run_units(r, RITZ_FACES, r->inside_units, r->inside_units + r->boundary_units, e);
    const int late = ritz_runner_sync(r->runner, failed ? NULL : e);
    if (failed || late)
        return failed ? failed : late;
    for (int64_t i = 0; i < r->o.n + r->boundary_n; i++)
        sum += r->values[i];
    *energy = sum;
    return isfinite(sum) || !ritz_makes_in_threads(r) ? 0 : check_points(r, e);
}

int ritz_slab(pt_ritz *r, object_kind kind, int slab, int chunk, bool out, pt_error *e)
{
    return ritz_runner_move(r->runner, kind, slab, chunk, out, r->staging, e);
}

double ritz_value(const pt_ritz *r, const char *base, int64_t i)
{
    return r->net.type == PT_F64 ? ((const double *)base)[i] : ((const float *)base)[i];
}

int ritz_read_gradient(pt_ritz *r, double *gradient, pt_error *e)
{
    int failed = 0;
    for (int c = 0; c < r->space.chunks_n && !failed; c++) {
        failed = ritz_slab(r, OBJECT_GRADIENT, 0, c, true, e);
        for (int64_t i = 0; i < r->space.chunks[c].values && !failed; i++)
            gradient[r->space.chunks[c].value0 + i] = ritz_value(r, r->staging, i);
    }
    return failed;
}
