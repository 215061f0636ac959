/* energy.c - the network's energy on point sets of its own: independently scrambled Sobol points (random ones in very many dimensions),
 * which no step has seen. Their mean has a standard error, since the sets are independent. On the same points:
 *
 *     constants      the least energy of a constant: a network above it has learned nothing
 *     residuals      R(v) = a form of the equation that the solution makes 0 for every v. With the energy norm |v|, |R(v)| / |v| is at most
 *                    the energy norm of u - u*, whatever the solution u* is. v: 1, cos(pi s_j), b, and b cos(pi s_j), where s_j goes from 0
 *                    to 1 along axis j, and b is the product of all 4 s_j (1 - s_j)
 *
 * The same sums for the exact solution in place of the network check the problem (wellposed.c). All of it in fp64 on the host.
 */
#include "ritz/energy.h"

#include "ritz/ansatz.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double student[] = {0,     12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145,
                                 2.131, 2.12,   2.11,  2.101, 2.093, 2.086, 2.08,  2.074, 2.069, 2.064, 2.06,  2.056, 2.052, 2.048, 2.045,
                                 2.042};

double ritz_student(int sets)
{
    const int freedom = sets - 1, known = sizeof student / sizeof *student;
    return freedom < 1 ? INFINITY : freedom < known ? student[freedom] : 1.96 + 2.5 / freedom;
}

/* ---- test functions ---- */

static int axes_of(const pt_ritz *ritz) { return ritz->net.dim < TEST_AXES ? (int)ritz->net.dim : TEST_AXES; }
int ritz_tests(const pt_ritz *ritz) { return 2 * (1 + axes_of(ritz)); }
int ritz_first_bump(const pt_ritz *ritz) { return 1 + axes_of(ritz); }

/* v of all test functions at x, and v' = grad v . g and |grad v|^2; s: 2 dim numbers of scratch. */
static void test_functions(const pt_ritz *ritz, const double *x, const double *g, double *s, double *v, double *along, double *square)
{
    const int64_t dim = ritz->net.dim;
    const int axes = axes_of(ritz);
    double bump = 1, bump_along = 0, bump_square = 0, *slope = s + dim;
    for (int64_t j = 0; j < dim; j++) {
        s[j] = (x[j] - ritz->problem.is.lower[j]) / (ritz->problem.is.upper[j] - ritz->problem.is.lower[j]);
        bump *= 4 * s[j] * (1 - s[j]);
    }
    for (int64_t j = 0; j < dim; j++) {
        const double one = s[j] * (1 - s[j]);
        slope[j] = one > 0 ? bump * (1 - 2 * s[j]) / one / (ritz->problem.is.upper[j] - ritz->problem.is.lower[j]) : 0;
        bump_along += slope[j] * g[j];
        bump_square += slope[j] * slope[j];
    }
    for (int k = 0; k <= axes; k++) {
        const int64_t j = k - 1;
        const double length = k ? ritz->problem.is.upper[j] - ritz->problem.is.lower[j] : 1;
        const double c = k ? cos(M_PI * s[j]) : 1, d = k ? -M_PI / length * sin(M_PI * s[j]) : 0, by_j = k ? g[j] : 0;
        v[k] = c;
        along[k] = d * by_j;
        square[k] = d * d;
        v[axes + 1 + k] = bump * c;
        along[axes + 1 + k] = bump_along * c + bump * d * by_j;
        square[axes + 1 + k] = bump_square * c * c + bump * bump * d * d + (k ? 2 * slope[j] * c * bump * d : 0);
    }
}

/* ---- sums over a set ---- */

static void add_point(const pt_ritz *ritz, energy_sums *to, const double *t, const double *x, double weight, double u, const double *g,
                      double *scratch)
{
    const problem *problem = &ritz->problem;
    double v[TESTS], along[TESTS], square[TESTS], value = 0, slope = 0, length = 0;
    const double inside = t[0] > 0 ? weight : 0;
    for (int64_t j = 0; j < ritz->net.dim; j++)
        length += g[j] * g[j];
    if (problem->is.G && inside > 0)
        problem->is.G(problem->is.arg, 1, ritz->net.dim, x, &u, &value, &slope);
    to->energy += 0.5 * t[0] * length + 0.5 * t[1] * u * u - t[2] * u + t[3] + inside * value;
    to->norm += t[0] * length + t[1] * u * u;
    to->square += inside * u * u;
    to->mean += inside * u;
    to->by_square += t[1];
    to->linear += t[2];
    to->rest += t[3];
    to->size += fabs(t[2]);
    to->stiffness += t[0];
    if (inside > 0) {
        to->load += fabs(t[2]);
        to->potential += t[1];
        to->least_v = fmin(to->least_v, t[1] / weight);
    }
    test_functions(ritz, x, g, scratch, v, along, square);
    for (int k = 0; k < ritz_tests(ritz); k++) {
        to->residual[k] += t[0] * along[k] + (t[1] * u - t[2] + inside * slope) * v[k];
        to->scale[k] += fabs(t[0] * along[k]) + fabs((fabs(t[1] * u) + fabs(t[2]) + fabs(inside * slope)) * v[k]);
        to->test_norm[k] += t[0] * square[k] + t[1] * v[k] * v[k];
        to->test_mean[k] += inside * v[k];
    }
}

/* What the last terms need of all points. */
static void finish(const pt_ritz *ritz, energy_sums *s)
{
    const bool eigen = ritz->problem.is.equation == PT_RITZ_EIGENVALUE;
    if (eigen)
        s->energy = s->norm / s->square;
    if (!problem_has_mean(&ritz->problem))
        return;
    const double volume = domain_volume(&ritz->problem.is);
    s->energy += 0.5 * s->mean * s->mean;
    s->norm += s->mean * s->mean;
    s->by_square += volume * volume;
    for (int k = 0; k < ritz_tests(ritz); k++) {
        s->residual[k] += s->mean * s->test_mean[k];
        s->test_norm[k] += s->test_mean[k] * s->test_mean[k];
    }
}

typedef struct room { double *x, *g, *u, *f, *v, *a, *terms, *scratch; } room;

static room room_of(const pt_ritz *ritz)
{
    const int64_t rows = ritz_eval_rows(ritz), dim = ritz->net.dim;
    double *x = ritz->samples, *g = x + rows * dim, *u = g + 2 * rows * dim;
    return (room){x, g, u, u + rows, u + 2 * rows, u + 3 * rows, u + 4 * rows, g + rows * dim};
}

/* u and its gradient: of the network, or of the exact solution. */
static int find_solution(pt_ritz *ritz, bool exact, int64_t rows, const room *at, pt_error *e)
{
    if (!exact)
        return pt_ritz_evaluate(ritz, rows, at->x, at->u, at->g, e);
    problem_exact(&ritz->problem, rows, at->x, at->u, at->g);
    return 0;
}

static int add_rows(pt_ritz *ritz, bool exact, int64_t rows, double weight, const room *at, energy_sums *to, pt_error *e)
{
    const int64_t dim = ritz->net.dim;
    int failed = find_solution(ritz, exact, rows, at, e);
    for (int64_t i = 0; i < rows && !failed; i++)
        if (at->terms[i * QUADRATIC_TERMS] > 0 || at->terms[i * QUADRATIC_TERMS + 1] != 0 || at->terms[i * QUADRATIC_TERMS + 2] != 0)
            add_point(ritz, to, at->terms + i * QUADRATIC_TERMS, at->x + i * dim, weight, at->u[i], at->g + i * dim, at->scratch);
    return failed;
}

/* Of a point where u = g is given by a penalty. */
static void add_values(const pt_ritz *ritz, energy_sums *to, const double *t, double u)
{
    const double weight = t[1] / (2 * ritz->problem.is.penalty), g = t[1] > 0 ? t[2] / t[1] : 0;
    to->held += t[1];
    to->misfit += weight * (u - g) * (u - g);
    to->boundary_square += weight * g * g;
    to->largest_g = fmax(to->largest_g, fabs(g));
}

int ritz_energy_sums(pt_ritz *ritz, bool exact, int64_t n, uint64_t set, energy_sums *out, pt_error *e)
{
    const int64_t most = ritz_eval_rows(ritz), boundary = ritz->set_faces.n * domain_faces(&ritz->problem.is);
    const double weight = domain_box_volume(&ritz->problem.is) / (double)n;
    const room at = room_of(ritz);
    const ritz_samples samples = {at.x, at.f, at.v, at.a};
    int failed = ritz_runner_sync(ritz->runner, e);
    *out = (energy_sums){.least_v = INFINITY};
    points_draw(ritz->sets, set, 0);
    ritz->set_faces.draw = set;
    ritz->set_faces.part = 0;
    for (int64_t first = 0; first < n && !failed; first += most) {
        const int64_t rows = n - first < most ? n - first : most;
        points_get(ritz->sets, first, rows, at.x);
        ritz_stretch(&ritz->problem.is, rows, at.x);
        ritz_inside_terms(&ritz->problem, weight, rows, &samples, at.terms);
        failed = ritz_check_inside(&ritz->problem, rows, &samples, e);
        if (!failed)
            failed = add_rows(ritz, exact, rows, weight, &at, out, e);
    }
    for (int64_t first = 0; first < boundary && !failed; first += most) {
        const int64_t rows = boundary - first < most ? boundary - first : most;
        failed = ritz_face_terms(&ritz->problem, &ritz->set_faces, ritz->problem.is.penalty, first, rows, &samples, at.terms, e);
        if (!failed)
            failed = add_rows(ritz, exact, rows, 0, &at, out, e);
        for (int64_t i = 0; i < rows && !failed; i++)
            if (domain_boundary(&ritz->problem.is, (first + i) / ritz->set_faces.n) == PT_RITZ_DIRICHLET)
                add_values(ritz, out, at.terms + i * QUADRATIC_TERMS, at.u[i]);
    }
    finish(ritz, out);
    return failed;
}

/* ---- the estimate ---- */

ritz_mean ritz_mean_of(const double *x, int n)
{
    ritz_mean m = {0};
    if (n == 1)
        return (ritz_mean){x[0], NAN};
    for (int i = 0; i < n; i++)
        m.mean += x[i] / n;
    for (int i = 0; i < n; i++)
        m.error += (x[i] - m.mean) * (x[i] - m.mean) / (n - 1) / n;
    m.error = sqrt(m.error);
    return m;
}

/* The bound of the error from the residuals. */
static double least_error(const pt_ritz *ritz, const energy_sums *s, int sets)
{
    double least = 0, *of = malloc((size_t)sets * sizeof *of);
    const bool hard = ansatz_is_hard(&ritz->problem);
    for (int k = hard ? ritz_first_bump(ritz) : 0; of && k < ritz_tests(ritz); k++) {
        double norm = 0;
        for (int i = 0; i < sets; i++)
            of[i] = s[i].residual[k], norm += s[i].test_norm[k] / sets;
        const ritz_mean m = ritz_mean_of(of, sets);
        const double sure = fabs(m.mean) - ritz_student(sets) * m.error;
        if (norm > 0 && sure > 0)
            least = fmax(least, sure / sqrt(norm));
    }
    free(of);
    return ritz->problem.is.G || ritz->problem.is.equation == PT_RITZ_EIGENVALUE || ansatz_has_hard_holes(&ritz->problem) ? NAN : least;
}

static void summarize(const pt_ritz *ritz, const energy_sums *s, double *of, pt_ritz_energy *out)
{
    const int sets = out->sets;
    double by_square = 0, linear = 0, rest = 0, norm = 0;
    for (int i = 0; i < sets; i++) {
        of[i] = s[i].energy;
        by_square += s[i].by_square / sets;
        linear += s[i].linear / sets;
        rest += s[i].rest / sets;
        norm += s[i].norm / sets;
    }
    const ritz_mean m = ritz_mean_of(of, sets);
    out->energy = m.mean;
    out->standard_error = m.error;
    out->low = m.mean - ritz_student(sets) * m.error;
    out->high = m.mean + ritz_student(sets) * m.error;
    out->norm = sqrt(fmax(norm, 0));
    out->least_error = least_error(ritz, s, sets);
    out->constant = out->constant_energy = NAN;
    if (ritz->problem.is.G || ritz->problem.is.equation == PT_RITZ_EIGENVALUE || ansatz_is_hard(&ritz->problem))
        return;
    out->constant = by_square > 0 ? linear / by_square : 0;
    out->constant_energy = rest - 0.5 * linear * out->constant;
}

int pt_ritz_estimate_energy(pt_ritz *ritz, int sets, int64_t n, pt_ritz_energy *out, pt_error *e)
{
    int failed = ritz_check_call(ritz, "pt_ritz_estimate_energy", true, e);
    if (failed || !out)
        return failed ? failed : pt_fail_null(e, "pt_ritz_estimate_energy", "out");
    if (sets < 2 || n < 1 || n > ritz->o.eval_n)
        return pt_fail(e, PT_USAGE, "an energy with its standard error needs at least 2 sets of 1 to `eval_n` points, but %d of %lld were "
                                    "asked for", sets, (long long)n);
    energy_sums *all = calloc((size_t)sets, sizeof *all);
    double *of = calloc((size_t)sets, sizeof *of);
    if (!all || !of)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < sets && !failed; i++)
        failed = ritz_energy_sums(ritz, false, n, (uint64_t)i, &all[i], e);
    *out = (pt_ritz_energy){.sets = sets, .points = n};
    if (!failed)
        summarize(ritz, all, of, out);
    free(all);
    free(of);
    return failed;
}
