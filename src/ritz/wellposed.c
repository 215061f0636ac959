/* wellposed.c - what is wrong with a problem, said before the first step; and with a network, after the last one. Integrals are estimated
 * on the point sets of energy.c, so that each has a standard error. */
#include "ritz/wellposed.h"

#include "ritz/ansatz.h"
#include "ritz/energy.h"

#include <math.h>
#include <stdlib.h>

enum { SETS = 4, POINTS_MOST = 1024 };
static const double tolerance = 2e-3, sure = 8; /* of the magnitude, and standard errors */

/* One value of each set. */
static ritz_mean mean_at(const energy_sums *s, const double *first)
{
    double of[SETS];
    for (int i = 0; i < SETS; i++)
        of[i] = *(const double *)((const char *)first + (size_t)i * sizeof *s);
    return ritz_mean_of(of, SETS);
}
#define MEAN(s, field) mean_at(s, &(s)->field)

static bool is_nothing(ritz_mean m, double scale) { return fabs(m.mean) <= tolerance * scale + sure * m.error; }

static bool holds_values(const problem *p)
{
    return domain_has_boundary(&p->is, PT_RITZ_DIRICHLET) || domain_has_boundary(&p->is, PT_RITZ_HARD);
}

static void check_balance(const pt_ritz *r, const energy_sums *s)
{
    const ritz_mean load = MEAN(s, linear);
    if (problem_has_mean(&r->problem) && !is_nothing(load, s->size))
        ritz_notice(r, "%s: with Neumann conditions alone the integral of f plus that of g over the boundary must be 0, but it is "
                       "%.4g +- %.1g: the network will solve the equation for f less a constant", r->problem.name, load.mean, load.error);
}

/* A v with a negative int (a |grad v|^2 + V v^2), and int r v^2 over the boundary: its multiples have energies without end. */
static int check_form(const pt_ritz *r, const energy_sums *s, pt_error *e)
{
    const problem *p = &r->problem;
    const bool wrong = !r->net.jets && !p->is.G && p->is.equation != PT_RITZ_EIGENVALUE && !ansatz_has_hard_holes(p);
    for (int k = holds_values(p) ? ritz_first_bump(r) : 1; wrong && k < ritz_tests(r); k++) {
        const ritz_mean form = MEAN(s, test_norm[k]);
        if (form.mean + sure * form.error < 0)
            return pt_fail(e, PT_FAILED, "%s: the energy has no minimum, for int (a |grad v|^2 + V v^2) is %.4g for a test function v: the "
                                         "energy of its multiples falls without end%s", p->name, form.mean,
                           holds_values(p) ? "; `loss` residual needs no minimum" : "");
    }
    return 0;
}

/* Whether the energy has a minimum. */
static int check_below(const pt_ritz *r, const energy_sums *s, pt_error *e)
{
    const problem *p = &r->problem;
    const ritz_mean square = MEAN(s, by_square);
    const bool free = !holds_values(p) && !problem_has_mean(p) && !p->is.G, eigen = p->is.equation == PT_RITZ_EIGENVALUE;
    const bool robin = domain_has_boundary(&p->is, PT_RITZ_ROBIN);
    if (free && !eigen && square.mean + sure * square.error < 0)
        return pt_fail(e, PT_FAILED, "%s: the energy has no minimum, for the integral of V%s is %.4g, so that large constants lower it "
                                     "without end",
                       p->name, robin ? " plus that of r over the boundary" : "", square.mean);
    if (free && eigen && square.mean == 0)
        ritz_notice(r, "%s: without V, and without values on the boundary, the smallest eigenvalue is 0, that of constants", p->name);
    if (free && !eigen && square.mean == 0)
        return pt_fail(e, PT_FAILED, "%s: without V%s, and without values on the boundary, u is determined up to a constant at most: "
                                     "give %s", p->name, robin ? " and r" : "",
                       robin ? "r, or a neumann boundary" : "V, or \"equation\": \"poisson\"");
    const int failed = check_form(r, s, e);
    if (failed)
        return failed;
    if (s->least_v < 0 && !eigen)
        ritz_notice(r, "%s: V falls to %.4g: the energy has a minimum only if int (a |grad v|^2 + V v^2) is positive for every v", p->name,
                    s->least_v);
    return 0;
}

static double longest_side(const pt_ritz *r, double *shortest)
{
    double longest = 0;
    *shortest = INFINITY;
    for (int64_t j = 0; j < r->net.dim; j++) {
        const double side = r->problem.is.upper[j] - r->problem.is.lower[j];
        longest = fmax(longest, side);
        *shortest = fmin(*shortest, side);
    }
    return longest;
}

/* About what the energy is of a u of size 1. */
static double stiffness_of(const pt_ritz *r, const energy_sums *s)
{
    double shortest;
    const double longest = longest_side(r, &shortest);
    return s->stiffness * M_PI * M_PI / longest / longest + fmax(s->potential, 0);
}

static void check_scale(const pt_ritz *r, const energy_sums *s)
{
    double shortest;
    const double longest = longest_side(r, &shortest), stiff = stiffness_of(r, s);
    const double u = fmax(stiff > 0 ? s->load / stiff : 0, s->largest_g);
    if (longest > 20 || shortest < 0.05)
        ritz_notice(r, "%s: the box has sides from %.3g to %.3g, and a network begins with functions that change over about 1: make the "
                       "problem dimensionless, with sides of 1 to 10", r->problem.name, shortest, longest);
    if (u > 50 || (u > 0 && u < 1e-3))
        ritz_notice(r, "%s: u is expected to be about %.1g, and a network begins with values of about 1: make the problem "
                       "dimensionless, with f and g divided by that", r->problem.name, u);
}

/* Whether G falls faster than u^2 at a point. */
static void check_growth(const pt_ritz *r)
{
    const problem *p = &r->problem;
    for (int sign = -1; sign <= 1; sign += 2) {
        const double u[2] = {30 * sign, 300 * sign};
        double of[2], slope;
        for (int k = 0; k < 2; k++) {
            p->is.G(p->is.arg, 1, r->net.dim, r->x, &u[k], &of[k], &slope);
            of[k] /= u[k] * u[k];
        }
        if (of[1] < 0 && of[1] < 5 * of[0]) {
            ritz_notice(r, "%s: G falls faster than u^2, to %.3g at u = %g: the energy falls without end, and at most a local minimum is "
                           "found", p->name, of[1] * u[1] * u[1], u[1]);
            return;
        }
    }
}

enum { STEEP = 100 };

/* A penalty that rules the gradient before the equation does. */
static void check_penalty(const pt_ritz *r, const energy_sums *s)
{
    const double at_once = r->o.penalty_ramp ? 0 : s->held, stiff = stiffness_of(r, s);
    if (at_once > STEEP * stiff && s->load > 0 && !r->net.jets)
        ritz_notice(r, "%s: the penalty weighs values on the boundary %.3g times as much as the energy weighs those inside: training may "
                       "stay where u is nearly g at the boundary and wrong inside; give `penalty_ramp` %lld, or a hard boundary",
                    r->problem.name, at_once / stiff, (long long)(r->o.steps + 1) / 2);
}

/* dG beside the differences of G. */
static int check_nonlinear(const pt_ritz *r, pt_error *e)
{
    const problem *p = &r->problem;
    static const double at[] = {-1.3, 0.4, 2.1};
    for (size_t i = 0; p->is.G && i < sizeof at / sizeof *at; i++) {
        const double h = 1e-4, near[2] = {at[i] - h, at[i] + h};
        double value[2], slope, unused;
        points_draw(r->sets, i, 0);
        points_get(r->sets, 0, 1, r->x);
        ritz_stretch(&p->is, 1, r->x);
        for (int k = 0; k < 2; k++)
            p->is.G(p->is.arg, 1, r->net.dim, r->x, &near[k], &value[k], &slope);
        p->is.G(p->is.arg, 1, r->net.dim, r->x, &at[i], &unused, &slope);
        const double difference = (value[1] - value[0]) / (2 * h);
        if (isfinite(difference) && fabs(difference - slope) > 1e-4 * (1 + fabs(slope)))
            return pt_fail(e, PT_FAILED, "%s: dG is not the derivative of G by u: at u = %g it is %.6g, and differences of G give "
                                         "%.6g", p->name,
                           at[i], slope, difference);
        if (!i)
            check_growth(r);
    }
    return 0;
}

enum { HARD_POINTS = 16, HARD_FACES = 64 };

/* The exact solution beside the values of hard faces. size: the mean of its square inside. */
static void check_hard_values(const pt_ritz *r, double size)
{
    const problem *p = &r->problem;
    const bool lift = ansatz_has_lift(p);
    double misfit = 0, square = 0, u, g = 0;
    int n = 0;
    for (int64_t face = 0; face < domain_faces(&p->is) && face < HARD_FACES; face++) {
        const domain_face f = domain_face_of(&p->is, face);
        for (int i = 0; i < HARD_POINTS && domain_boundary(&p->is, face) == PT_RITZ_HARD; i++) {
            points_get(r->sets, i % r->o.eval_n, 1, r->x);
            for (int64_t j = 0; j < p->is.dim; j++)
                r->x[j] = j == f.axis ? f.at : f.lower[j] + r->x[j] * (f.upper[j] - f.lower[j]);
            if (!domain_face_holds(&p->is, &f, r->x))
                continue;
            p->is.exact(p->is.arg, 1, p->is.dim, r->x, &u);
            if (lift)
                problem_face_values(p, p->is.g, face, 1, r->x, &g);
            misfit += (u - g) * (u - g);
            square += u * u + g * g;
            n++;
        }
    }
    square += n * size;
    if (misfit > tolerance * tolerance * square)
        ritz_notice(r, "%s: exact differs from %s on the hard boundary, by %.3g of its size", p->name, lift ? "g" : "0",
                    sqrt(misfit / square));
}

/* ---- the exact solution ---- */

/* The residual that is largest beside what it may be. */
static void check_weak_form(const pt_ritz *r, const energy_sums *s)
{
    const bool hole_values = r->problem.is.holes && holds_values(&r->problem);
    for (int k = holds_values(&r->problem) ? ritz_first_bump(r) : 0; k < ritz_tests(r) && !hole_values; k++) {
        const ritz_mean m = MEAN(s, residual[k]);
        if (is_nothing(m, s->scale[k]))
            continue;
        ritz_notice(r, "%s: exact does not solve the equation: against a test function the residual is %.4g +- %.1g, of terms that add "
                       "up to %.4g in magnitude", r->problem.name, m.mean, m.error, s->scale[k]);
        return;
    }
}

static void check_solution(const pt_ritz *r, const energy_sums *s)
{
    const problem *p = &r->problem;
    const ritz_mean mean = MEAN(s, mean), energy = MEAN(s, energy), misfit = MEAN(s, misfit);
    const double size = sqrt(s->square * domain_volume(&p->is));
    if (problem_has_mean(p) && !is_nothing(mean, size))
        ritz_notice(r, "%s: exact has the integral %.4g +- %.1g, but with Neumann conditions alone the solution of mean 0 is found: "
                       "subtract its mean", p->name, mean.mean, mean.error);
    else if (p->is.equation != PT_RITZ_EIGENVALUE)
        check_weak_form(r, s);
    check_hard_values(r, s->square / domain_volume(&p->is));
    if (misfit.mean > tolerance * tolerance * (s->boundary_square + s->square) + sure * misfit.error)
        ritz_notice(r, "%s: exact differs from g on the boundary, by %.3g in the mean square", p->name, misfit.mean);
    if (isfinite(p->energy) && !is_nothing((ritz_mean){energy.mean - p->energy, energy.error}, fabs(p->energy) + s->norm))
        ritz_notice(r, "%s: the energy of exact is %.6g +- %.1g, and not %.6g", p->name, energy.mean, energy.error, p->energy);
}

static int find_sums(pt_ritz *r, bool exact, energy_sums *s, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < SETS && !failed; i++)
        failed = ritz_energy_sums(r, exact, r->o.eval_n < POINTS_MOST ? r->o.eval_n : POINTS_MOST, (uint64_t)i, &s[i], e);
    return failed;
}

int ritz_check_problem(pt_ritz *r, pt_error *e)
{
    energy_sums s[SETS];
    int failed = check_nonlinear(r, e);
    if (!failed)
        failed = find_sums(r, false, s, e);
    if (!failed)
        failed = check_below(r, s, e);
    if (failed)
        return failed;
    check_balance(r, s);
    check_scale(r, s);
    check_penalty(r, s);
    failed = r->problem.is.exact ? find_sums(r, true, s, e) : 0;
    if (!failed && r->problem.is.exact)
        check_solution(r, s);
    return failed;
}

/* ---- the network ---- */

/* The mean energy of the last steps. */
static ritz_mean training_energy(const pt_ritz *r)
{
    const int n = r->recent_n < RITZ_RECENT ? (int)r->recent_n : RITZ_RECENT;
    return n > 1 ? ritz_mean_of(r->recent, n) : (ritz_mean){n ? r->recent[0] : NAN, 0};
}

void ritz_judge(const pt_ritz *r, const pt_ritz_energy *s)
{
    const ritz_mean trained = training_energy(r);
    const double doubt = fmax(sure * s->standard_error, 0.05 * fabs(s->energy)) + 4 * trained.error;
    if (!r->net.jets && trained.mean < s->energy - doubt)
        ritz_notice(r, "the energy is %.6g +- %.2g on points of its own, far above the %.6g of the training points: the network has "
                       "fitted these instead of the integral; %s", s->energy, s->standard_error, trained.mean,
                    r->o.redraw_every == 1 ? "give a larger `n`" : "give `redraw_every` 1, or a larger `n`");
    if (s->low > s->constant_energy)
        ritz_notice(r, "the constant %.4g has the energy %.6g, less than the network's %.6g: the network has learned nothing; change "
                       "`lr` or `steps`", s->constant, s->constant_energy, s->energy);
    if (s->least_error > 0.3 * s->norm)
        ritz_notice(r, "the network is far from the solution: residuals show an error of at least %.3g in the energy norm, where the "
                       "network has %.3g; give more `steps` or another `lr`%s", s->least_error, s->norm,
                    domain_has_boundary(&r->problem.is, PT_RITZ_DIRICHLET) ? ", a smaller penalty, `penalty_ramp`, or a hard "
                                                                             "boundary" : "");
    if (isfinite(r->problem.energy) && s->high < r->problem.energy - tolerance * fabs(r->problem.energy) - sure * s->standard_error)
        ritz_notice(r, "the energy %.6g +- %.2g lies below that of the exact solution, %.6g: the problem's `energy` is wrong, or that "
                       "of another problem", s->energy, s->standard_error, r->problem.energy);
}
