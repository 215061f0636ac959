/* integrate.c - an energy, and its gradient, over all points of a draw. */
#include "base/clock.h"
#include "base/median.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- points ---- */

static ritz_samples samples_of(const pt_ritz *ritz) { return (ritz_samples){ritz->x, ritz->f, ritz->v, ritz->a}; }

void ritz_put_x(const pt_ritz *ritz, const double *x, int64_t rows, char *to)
{
    const int64_t dim = ritz->net.dim, input = ritz->net.input;
    const bool wide = ritz->net.type == PT_F64;
    if (input > dim)
        memset(to, 0, (size_t)(rows * input) * dtype_bytes(ritz->net.type));
    for (int64_t i = 0; i < rows; i++, x += dim) {
        if (wide)
            memcpy((double *)to + i * input, x, (size_t)dim * sizeof *x);
        for (int64_t j = 0; !wide && j < dim; j++)
            ((float *)to)[i * input + j] = (float)x[j];
    }
}

static void find_points(const pt_ritz *ritz, int64_t first, int64_t rows, double *x)
{
    points_get(ritz->inside, first, rows, x);
    ritz_stretch(&ritz->problem.is, rows, x);
}

/* Terms of N / D, an eigenvalue's quotient, in place of those of N / 2: (dN - (N / D) dD) / D. */
static void divide(const pt_ritz *ritz, int64_t rows, double weight, double *terms)
{
    for (int64_t i = 0; i < rows; i++, terms += QUADRATIC_TERMS) {
        terms[0] *= ritz->quotient.scale;
        terms[1] = (terms[1] - (terms[0] > 0 ? weight * ritz->quotient.value : 0)) * ritz->quotient.scale;
    }
}

/* The points' OP_QUADRATIC terms. */
static void weigh(const pt_ritz *ritz, int64_t first, int64_t rows, const ritz_samples *at, double *terms)
{
    const int64_t half = ritz->o.n / 2;
    const double weight = domain_box_volume(&ritz->problem.is) / (double)ritz->o.n;
    ritz_inside_terms(&ritz->problem, weight, rows, at, terms);
    for (int64_t i = 0; i < rows; i++)
        if (terms[i * QUADRATIC_TERMS] > 0)
            terms[i * QUADRATIC_TERMS + 4] = ritz->mean[first + i >= half];
    if (ritz->problem.is.equation == PT_RITZ_EIGENVALUE)
        divide(ritz, rows, weight, terms);
}

/* A ritz_make_fn: as many rows at a time as scratch holds. */
static void make_inside(const ritz_slot *s, int64_t first, int64_t end, void *scratch)
{
    const pt_ritz *ritz = s->arg;
    const int64_t dim = ritz->net.dim, most = CALL_SCRATCH_BYTES / (int64_t)sizeof(double) / (dim + 3);
    const uint64_t row = (uint64_t)ritz->net.input * dtype_bytes(ritz->net.type);
    for (int64_t at = first, rows; at < end; at += rows) {
        rows = end - at < most ? end - at : most;
        double *const values = (double *)scratch + rows * dim;
        const ritz_samples in = {scratch, values, values + rows, values + 2 * rows};
        find_points(ritz, s->first + at, rows, in.x);
        ritz_put_x(ritz, in.x, rows, (char *)s->made_x + (uint64_t)at * row);
        if (s->made_terms)
            weigh(ritz, s->first + at, rows, &in, s->made_terms + at * QUADRATIC_TERMS);
    }
}

static int make_boundary(pt_ritz *ritz, int64_t first, int64_t rows, const ritz_samples *at, double *terms, pt_error *e)
{
    int failed = ritz_face_terms(&ritz->problem, &ritz->faces, ritz->penalty, first, rows, at, terms, e);
    if (ritz->problem.is.equation == PT_RITZ_EIGENVALUE)
        divide(ritz, rows, 0, terms);
    return failed;
}

/* ---- units ---- */

static int64_t rows_of(const pt_ritz *ritz, int64_t unit, int64_t *first)
{
    const bool inside = unit < ritz->inside_units;
    const int64_t all = inside ? ritz->o.n : ritz->boundary_n;
    *first = (inside ? unit : unit - ritz->inside_units) * ritz->unit_rows;
    return all - *first < ritz->unit_rows ? all - *first : ritz->unit_rows;
}

/* Makes a unit's points and, unless they are only for int u (RITZ_MEAN), the terms of their energies. */
static int make_unit(pt_ritz *ritz, ritz_program what, bool face, int64_t first, ritz_slot *s, pt_error *e)
{
    const ritz_samples at = samples_of(ritz);
    int failed = 0;
    if (face)
        failed = make_boundary(ritz, first, s->rows, &at, (double *)s->terms, e);
    else
        find_points(ritz, first, s->rows, at.x);
    if (what == RITZ_TURN && !face) {
        weigh(ritz, first, s->rows, &at, (double *)s->terms);
        failed = ritz_check_inside(&ritz->problem, s->rows, &at, e);
    }
    ritz_put_x(ritz, ritz->x, s->rows, (char *)s->x);
    return failed;
}

/* Fills a slot, or lets the compute threads do so. */
static int load_unit(pt_ritz *ritz, ritz_program what, int64_t unit, ritz_slot *s, pt_error *e)
{
    int64_t first;
    const bool face = unit >= ritz->inside_units;
    const double weight = domain_box_volume(&ritz->problem.is) / (double)ritz->o.n;
    s->rows = rows_of(ritz, unit, &first);
    s->value = what == RITZ_MEAN ? NULL : ritz->values + (face ? ritz->o.n : 0) + first;
    s->u = what == RITZ_MEAN ? ritz->u + (uint64_t)first * dtype_bytes(ritz->net.type) : NULL;
    s->gradient = NULL;
    s->make = !face && ritz_makes_in_threads(ritz) ? make_inside : NULL;
    s->arg = ritz;
    s->first = first;
    s->composed = (ansatz_energy){.problem = problem_is_composed(&ritz->problem) ? &ritz->problem : NULL, .weight = weight};
    s->residual = (residual_loss){.problem = &ritz->problem, .weight = weight, .face = face};
    return s->make ? 0 : make_unit(ritz, what, face, first, s, e);
}

/* Names the first point that has made an energy infinite or NaN. */
static int check_points(pt_ritz *ritz, pt_error *e)
{
    const ritz_samples at = samples_of(ritz);
    int failed = 0;
    for (int64_t unit = 0; unit < ritz->inside_units && !failed; unit++) {
        int64_t first;
        const int64_t rows = rows_of(ritz, unit, &first);
        find_points(ritz, first, rows, at.x);
        weigh(ritz, first, rows, &at, (double *)ritz->slots[0].terms);
        failed = ritz_check_inside(&ritz->problem, rows, &at, e);
    }
    return failed;
}

double ritz_largest_value(pt_ritz *ritz)
{
    const ritz_samples at = samples_of(ritz);
    double largest = 0;
    for (int64_t unit = 0; unit < ritz->inside_units; unit++) {
        int64_t first;
        const int64_t rows = rows_of(ritz, unit, &first);
        find_points(ritz, first, rows, at.x);
        weigh(ritz, first, rows, &at, (double *)ritz->slots[0].terms);
        for (int64_t i = 0; i < rows; i++)
            largest = fmax(largest, fmax(fabs(at.f[i]), fabs(at.v[i])));
    }
    return largest;
}

/* Submits a program for the units first .. end, `visit` at a time. A set of slots is filled again once its inputs are on the device. */
static int run_units(pt_ritz *ritz, ritz_program what, int64_t first, int64_t end, pt_error *e)
{
    int failed = 0;
    for (int64_t unit = first; unit < end && !failed; unit += ritz->plan.visit) {
        const int n = end - unit < ritz->plan.visit ? (int)(end - unit) : ritz->plan.visit;
        ritz->turn = !ritz->turn;
        ritz_slot *slots = ritz->slots + ritz->turn * ritz->plan.visit;
        failed = ritz_runner_wait(ritz->runner, ritz->busy_until[ritz->turn], e);
        for (int i = 0; i < n && !failed; i++)
            failed = load_unit(ritz, what, unit + i, &slots[i], e);
        if (!failed)
            ritz_runner_run(ritz->runner, what, slots, n, unit == 0, &ritz->busy_until[ritz->turn]);
    }
    return failed;
}

bool ritz_makes_in_threads(const pt_ritz *ritz) { return ritz->problem.is.concurrent && !device_is_gpu(ritz->device); }

enum { TURNS = 5 };

double ritz_time_points(void *run, bool weighed)
{
    pt_ritz *ritz = run;
    const ritz_samples at = samples_of(ritz);
    double *terms = malloc((size_t)(ritz->unit_rows * QUADRATIC_TERMS) * sizeof *terms);
    const int64_t rows = ritz->o.n < ritz->unit_rows ? ritz->o.n : ritz->unit_rows;
    double all[TURNS];
    if (!terms)
        return 0;
    points_draw(ritz->inside, 0, 0);
    for (int i = -1; i < TURNS; i++) { /* the first one is not counted */
        const int64_t begin = clock_ns();
        find_points(ritz, 0, rows, ritz->x);
        if (weighed)
            weigh(ritz, 0, rows, &at, terms);
        all[i < 0 ? 0 : i] = (double)(clock_ns() - begin);
    }
    free(terms);
    median(all, TURNS); /* in order */
    return all[0];
}

/* int u over the box, estimated from the points first .. end. */
static double mean_of(const pt_ritz *ritz, int64_t first, int64_t end)
{
    double sum = 0;
    for (int64_t i = first; i < end; i++) {
        const bool holes = ritz->problem.is.holes;
        if (holes)
            find_points(ritz, i, 1, ritz->x);
        if (!holes || domain_holds(&ritz->problem.is, ritz->x))
            sum += ritz_value(ritz, ritz->u, i);
    }
    return sum * domain_box_volume(&ritz->problem.is) / (double)(end - first);
}

/* Sets ritz->mean, and *energy to (int u)^2 / 2. */
static int find_mean(pt_ritz *ritz, double *energy, pt_error *e)
{
    const int64_t n = ritz->o.n, half = n / 2;
    const double v = domain_box_volume(&ritz->problem.is);
    ritz->mean[0] = ritz->mean[1] = 0;
    int failed = run_units(ritz, RITZ_MEAN, 0, ritz->inside_units, e);
    if (!failed)
        failed = ritz_runner_sync(ritz->runner, e);
    if (failed)
        return failed;
    const bool halves = ritz->o.points == PT_RITZ_MC && n > 1;
    const double all = mean_of(ritz, 0, n), first = halves ? mean_of(ritz, 0, half) : all, second = halves ? mean_of(ritz, half, n) : all;
    *energy = 0.5 * first * second;
    ritz->mean[0] = halves ? 0.5 * v / (double)half * second : all * v / (double)n;
    ritz->mean[1] = halves ? 0.5 * v / (double)(n - half) * first : all * v / (double)n;
    return 0;
}

/* Adds N and D, of an eigenvalue's quotient, of a unit's points. */
static int add_quotient(pt_ritz *ritz, int64_t unit, double sums[2], pt_error *e)
{
    int64_t first;
    const int64_t rows = rows_of(ritz, unit, &first), dim = ritz->net.dim;
    const ritz_samples at = samples_of(ritz);
    const bool inside = unit < ritz->inside_units;
    double *terms = ritz->work, *u = terms + rows * QUADRATIC_TERMS, *g = u + rows;
    int failed = 0;
    if (inside) {
        find_points(ritz, first, rows, at.x);
        ritz_inside_terms(&ritz->problem, domain_box_volume(&ritz->problem.is) / (double)ritz->o.n, rows, &at, terms);
        failed = ritz_check_inside(&ritz->problem, rows, &at, e);
    } else
        failed = ritz_face_terms(&ritz->problem, &ritz->faces, ritz->penalty, first, rows, &at, terms, e);
    if (!failed)
        failed = pt_ritz_evaluate(ritz, rows, at.x, u, g, e);
    for (int64_t i = 0; i < rows && !failed; i++, terms += QUADRATIC_TERMS) {
        double square = 0;
        for (int64_t j = 0; j < dim; j++)
            square += g[i * dim + j] * g[i * dim + j];
        sums[0] += terms[0] * square + terms[1] * u[i] * u[i];
        sums[1] += terms[0] > 0 ? u[i] * u[i] : 0;
    }
    return failed;
}

static int find_quotient(pt_ritz *ritz, pt_error *e)
{
    double sums[2] = {0, 0};
    int failed = 0;
    for (int64_t unit = 0; unit < ritz->inside_units + ritz->boundary_units && !failed; unit++)
        failed = add_quotient(ritz, unit, sums, e);
    sums[1] *= domain_box_volume(&ritz->problem.is) / (double)ritz->o.n;
    ritz->quotient.value = sums[0] / sums[1];
    ritz->quotient.scale = 2 / sums[1];
    return failed;
}

int ritz_integrate(pt_ritz *ritz, uint64_t draw, double *energy, pt_error *e)
{
    double sum = 0;
    ritz->faces.draw = draw;
    ritz->faces.part = 0;
    ritz->mean[0] = ritz->mean[1] = 0;
    points_draw(ritz->inside, draw, 0);
    int failed = problem_has_mean(&ritz->problem) ? find_mean(ritz, &sum, e) : 0;
    if (!failed && ritz->problem.is.equation == PT_RITZ_EIGENVALUE) {
        failed = find_quotient(ritz, e);
        ritz->faces.part = 0;
        sum = ritz->quotient.value;
    }
    if (!failed)
        failed = run_units(ritz, RITZ_TURN, 0, ritz->inside_units, e);
    if (!failed)
        failed = run_units(ritz, ritz->net.jets ? RITZ_TURN : RITZ_FACES, ritz->inside_units, ritz->inside_units + ritz->boundary_units, e);
    const int late = ritz_runner_sync(ritz->runner, failed ? NULL : e);
    if (failed || late)
        return failed ? failed : late;
    for (int64_t i = 0; i < ritz->o.n + ritz->boundary_n; i++)
        sum += ritz->values[i];
    *energy = sum;
    return isfinite(sum) || !ritz_makes_in_threads(ritz) ? 0 : check_points(ritz, e);
}

int ritz_slab(pt_ritz *ritz, object_kind kind, int slab, int chunk, bool out, pt_error *e)
{
    return ritz_runner_move(ritz->runner, kind, slab, chunk, out, ritz->staging, e);
}

double ritz_value(const pt_ritz *ritz, const char *base, int64_t i)
{
    return ritz->net.type == PT_F64 ? ((const double *)base)[i] : ((const float *)base)[i];
}

int ritz_read_gradient(pt_ritz *ritz, double *gradient, pt_error *e)
{
    int failed = 0;
    for (int c = 0; c < ritz->space.chunks_n && !failed; c++) {
        failed = ritz_slab(ritz, OBJECT_GRADIENT, 0, c, true, e);
        for (int64_t i = 0; i < ritz->space.chunks[c].values && !failed; i++)
            gradient[ritz->space.chunks[c].value0 + i] = ritz_value(ritz, ritz->staging, i);
    }
    return failed;
}

int pt_ritz_points_of_step(pt_ritz *ritz, int64_t step, int64_t first, int64_t n, double *x, int64_t *face, double *weight, pt_error *e)
{
    int failed = ritz_check_call(ritz, "pt_ritz_points_of_step", true, e);
    if (!failed && (!x || !face || !weight))
        failed = pt_fail_null(e, "pt_ritz_points_of_step", !x ? "x" : !face ? "face" : "weight");
    if (!failed && (step < 1 || first < 0 || n < 0 || first + n > ritz->o.n + ritz->boundary_n))
        failed = pt_fail(e, PT_USAGE, "pt_ritz_points_of_step: steps begin with 1, and a step has %lld points",
                         (long long)(ritz->o.n + ritz->boundary_n));
    if (!failed)
        failed = ritz_runner_sync(ritz->runner, e);
    if (failed)
        return failed;
    const uint64_t draw = ritz_draw_of(&ritz->o, step);
    const int64_t dim = ritz->net.dim;
    points_draw(ritz->inside, draw, 0);
    ritz->faces.draw = draw;
    ritz->faces.part = 0;
    for (int64_t i = 0; i < n; i++, x += dim) {
        const int64_t at = first + i - ritz->o.n;
        face[i] = 0;
        if (at >= 0)
            weight[i] = ritz_face_point(&ritz->problem, &ritz->faces, at, x, &face[i]);
        else
            find_points(ritz, first + i, 1, x);
        if (at < 0)
            weight[i] = domain_holds(&ritz->problem.is, x) ? domain_box_volume(&ritz->problem.is) / (double)ritz->o.n : 0;
    }
    return 0;
}
