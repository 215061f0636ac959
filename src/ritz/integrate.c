/* integrate.c - an energy, and its gradient, over all points of a draw. */
#include "base/clock.h"
#include "base/median.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- points ---- */

static ritz_samples samples_of(const pt_ritz *r) { return (ritz_samples){r->x, r->f, r->v, r->a}; }

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

static void find_points(const pt_ritz *r, int64_t first, int64_t rows, double *x)
{
    points_get(r->inside, first, rows, x);
    ritz_stretch(&r->problem.is, rows, x);
}

/* Terms of N / D, an eigenvalue's quotient, in place of those of N / 2: (dN - (N / D) dD) / D. */
static void divide(const pt_ritz *r, int64_t rows, double weight, double *terms)
{
    for (int64_t i = 0; i < rows; i++, terms += QUADRATIC_TERMS) {
        terms[0] *= r->quotient.scale;
        terms[1] = (terms[1] - (terms[0] > 0 ? weight * r->quotient.value : 0)) * r->quotient.scale;
    }
}

/* The points' OP_QUADRATIC terms. */
static void weigh(const pt_ritz *r, int64_t first, int64_t rows, const ritz_samples *at, double *terms)
{
    const int64_t half = r->o.n / 2;
    const double weight = domain_box_volume(&r->problem.is) / (double)r->o.n;
    ritz_inside_terms(&r->problem, weight, rows, at, terms);
    for (int64_t i = 0; i < rows; i++)
        if (terms[i * QUADRATIC_TERMS] > 0)
            terms[i * QUADRATIC_TERMS + 4] = r->mean[first + i >= half];
    if (r->problem.is.equation == PT_RITZ_EIGENVALUE)
        divide(r, rows, weight, terms);
}

/* A ritz_make_fn: as many rows at a time as scratch holds. */
static void make_inside(const ritz_slot *s, int64_t first, int64_t end, void *scratch)
{
    const pt_ritz *r = s->arg;
    const int64_t dim = r->net.dim, most = CALL_SCRATCH_BYTES / (int64_t)sizeof(double) / (dim + 3);
    const uint64_t row = (uint64_t)r->net.input * dtype_bytes(r->net.type);
    for (int64_t at = first, rows; at < end; at += rows) {
        rows = end - at < most ? end - at : most;
        double *const values = (double *)scratch + rows * dim;
        const ritz_samples in = {scratch, values, values + rows, values + 2 * rows};
        find_points(r, s->first + at, rows, in.x);
        ritz_put_x(r, in.x, rows, (char *)s->made_x + (uint64_t)at * row);
        if (s->made_terms)
            weigh(r, s->first + at, rows, &in, s->made_terms + at * QUADRATIC_TERMS);
    }
}

static int make_boundary(pt_ritz *r, int64_t first, int64_t rows, const ritz_samples *at, double *terms, pt_error *e)
{
    int failed = ritz_face_terms(&r->problem, &r->faces, r->penalty, first, rows, at, terms, e);
    if (r->problem.is.equation == PT_RITZ_EIGENVALUE)
        divide(r, rows, 0, terms);
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
static int make_unit(pt_ritz *r, ritz_program what, bool face, int64_t first, ritz_slot *s, pt_error *e)
{
    const ritz_samples at = samples_of(r);
    int failed = 0;
    if (face)
        failed = make_boundary(r, first, s->rows, &at, (double *)s->terms, e);
    else
        find_points(r, first, s->rows, at.x);
    if (what == RITZ_TURN && !face) {
        weigh(r, first, s->rows, &at, (double *)s->terms);
        failed = ritz_check_inside(&r->problem, s->rows, &at, e);
    }
    ritz_put_x(r, r->x, s->rows, (char *)s->x);
    return failed;
}

/* Fills a slot, or lets the compute threads do so. */
static int load_unit(pt_ritz *r, ritz_program what, int64_t unit, ritz_slot *s, pt_error *e)
{
    int64_t first;
    const bool face = unit >= r->inside_units;
    const double weight = domain_box_volume(&r->problem.is) / (double)r->o.n;
    s->rows = rows_of(r, unit, &first);
    s->value = what == RITZ_MEAN ? NULL : r->values + (face ? r->o.n : 0) + first;
    s->u = what == RITZ_MEAN ? r->u + (uint64_t)first * dtype_bytes(r->net.type) : NULL;
    s->gradient = NULL;
    s->make = !face && ritz_makes_in_threads(r) ? make_inside : NULL;
    s->arg = r;
    s->first = first;
    s->composed = (ansatz_energy){.problem = problem_is_composed(&r->problem) ? &r->problem : NULL, .weight = weight};
    s->residual = (residual_loss){.problem = &r->problem, .weight = weight, .face = face};
    return s->make ? 0 : make_unit(r, what, face, first, s, e);
}

/* Names the first point that has made an energy infinite or NaN. */
static int check_points(pt_ritz *r, pt_error *e)
{
    const ritz_samples at = samples_of(r);
    int failed = 0;
    for (int64_t unit = 0; unit < r->inside_units && !failed; unit++) {
        int64_t first;
        const int64_t rows = rows_of(r, unit, &first);
        find_points(r, first, rows, at.x);
        weigh(r, first, rows, &at, (double *)r->slots[0].terms);
        failed = ritz_check_inside(&r->problem, rows, &at, e);
    }
    return failed;
}

double ritz_largest_value(pt_ritz *r)
{
    const ritz_samples at = samples_of(r);
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

enum { TURNS = 5 };

double ritz_time_points(void *run, bool weighed)
{
    pt_ritz *r = run;
    const ritz_samples at = samples_of(r);
    double *terms = malloc((size_t)(r->unit_rows * QUADRATIC_TERMS) * sizeof *terms);
    const int64_t rows = r->o.n < r->unit_rows ? r->o.n : r->unit_rows;
    double all[TURNS];
    if (!terms)
        return 0;
    points_draw(r->inside, 0, 0);
    for (int i = -1; i < TURNS; i++) { /* the first one is not counted */
        const int64_t begin = clock_ns();
        find_points(r, 0, rows, r->x);
        if (weighed)
            weigh(r, 0, rows, &at, terms);
        all[i < 0 ? 0 : i] = (double)(clock_ns() - begin);
    }
    free(terms);
    median(all, TURNS); /* in order */
    return all[0];
}

/* int u over the box, estimated from the points first .. end. */
static double mean_of(const pt_ritz *r, int64_t first, int64_t end)
{
    double sum = 0;
    for (int64_t i = first; i < end; i++) {
        const bool holes = r->problem.is.holes;
        if (holes)
            find_points(r, i, 1, r->x);
        if (!holes || domain_holds(&r->problem.is, r->x))
            sum += ritz_value(r, r->u, i);
    }
    return sum * domain_box_volume(&r->problem.is) / (double)(end - first);
}

/* Sets r->mean, and *energy to (int u)^2 / 2. */
static int find_mean(pt_ritz *r, double *energy, pt_error *e)
{
    const int64_t n = r->o.n, half = n / 2;
    const double v = domain_box_volume(&r->problem.is);
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

/* Adds N and D, of an eigenvalue's quotient, of a unit's points. */
static int add_quotient(pt_ritz *r, int64_t unit, double sums[2], pt_error *e)
{
    int64_t first;
    const int64_t rows = rows_of(r, unit, &first), dim = r->net.dim;
    const ritz_samples at = samples_of(r);
    const bool inside = unit < r->inside_units;
    double *terms = r->work, *u = terms + rows * QUADRATIC_TERMS, *g = u + rows;
    int failed = 0;
    if (inside) {
        find_points(r, first, rows, at.x);
        ritz_inside_terms(&r->problem, domain_box_volume(&r->problem.is) / (double)r->o.n, rows, &at, terms);
        failed = ritz_check_inside(&r->problem, rows, &at, e);
    } else
        failed = ritz_face_terms(&r->problem, &r->faces, r->penalty, first, rows, &at, terms, e);
    if (!failed)
        failed = pt_ritz_evaluate(r, rows, at.x, u, g, e);
    for (int64_t i = 0; i < rows && !failed; i++, terms += QUADRATIC_TERMS) {
        double square = 0;
        for (int64_t j = 0; j < dim; j++)
            square += g[i * dim + j] * g[i * dim + j];
        sums[0] += terms[0] * square + terms[1] * u[i] * u[i];
        sums[1] += terms[0] > 0 ? u[i] * u[i] : 0;
    }
    return failed;
}

static int find_quotient(pt_ritz *r, pt_error *e)
{
    double sums[2] = {0, 0};
    int failed = 0;
    for (int64_t unit = 0; unit < r->inside_units + r->boundary_units && !failed; unit++)
        failed = add_quotient(r, unit, sums, e);
    sums[1] *= domain_box_volume(&r->problem.is) / (double)r->o.n;
    r->quotient.value = sums[0] / sums[1];
    r->quotient.scale = 2 / sums[1];
    return failed;
}

int ritz_integrate(pt_ritz *r, uint64_t draw, double *energy, pt_error *e)
{
    double sum = 0;
    r->faces.draw = draw;
    r->faces.part = 0;
    r->mean[0] = r->mean[1] = 0;
    points_draw(r->inside, draw, 0);
    int failed = problem_has_mean(&r->problem) ? find_mean(r, &sum, e) : 0;
    if (!failed && r->problem.is.equation == PT_RITZ_EIGENVALUE) {
        failed = find_quotient(r, e);
        r->faces.part = 0;
        sum = r->quotient.value;
    }
    if (!failed)
        failed = run_units(r, RITZ_TURN, 0, r->inside_units, e);
    if (!failed)
        failed = run_units(r, r->net.jets ? RITZ_TURN : RITZ_FACES, r->inside_units, r->inside_units + r->boundary_units, e);
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

int pt_ritz_points_of_step(pt_ritz *r, int64_t step, int64_t first, int64_t n, double *x, int64_t *face, double *weight, pt_error *e)
{
    int failed = ritz_check_call(r, "pt_ritz_points_of_step", true, e);
    if (!failed && (!x || !face || !weight))
        failed = pt_fail_null(e, "pt_ritz_points_of_step", !x ? "x" : !face ? "face" : "weight");
    if (!failed && (step < 1 || first < 0 || n < 0 || first + n > r->o.n + r->boundary_n))
        failed = pt_fail(e, PT_USAGE, "pt_ritz_points_of_step: steps begin with 1, and a step has %lld points",
                         (long long)(r->o.n + r->boundary_n));
    if (!failed)
        failed = ritz_runner_sync(r->runner, e);
    if (failed)
        return failed;
    const uint64_t draw = ritz_draw_of(&r->o, step);
    const int64_t dim = r->net.dim;
    points_draw(r->inside, draw, 0);
    r->faces.draw = draw;
    r->faces.part = 0;
    for (int64_t i = 0; i < n; i++, x += dim) {
        const int64_t at = first + i - r->o.n;
        face[i] = 0;
        if (at >= 0)
            weight[i] = ritz_face_point(&r->problem, &r->faces, at, x, &face[i]);
        else
            find_points(r, first + i, 1, x);
        if (at < 0)
            weight[i] = domain_holds(&r->problem.is, x) ? domain_box_volume(&r->problem.is) / (double)r->o.n : 0;
    }
    return 0;
}
