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

static bool holds_values(const problem *problem)
{
    return domain_has_boundary(&problem->is, PT_RITZ_DIRICHLET) || domain_has_boundary(&problem->is, PT_RITZ_HARD);
}

static void check_balance(const pt_ritz *ritz, const energy_sums *s)
{
    const ritz_mean load = MEAN(s, linear);
    if (problem_has_mean(&ritz->problem) && !is_nothing(load, s->size))
        ritz_notice(ritz,
                    "%s: with Neumann conditions alone the integral of f plus that of g over the boundary must be 0, but it is "
                    "%.4g +- %.1g: the network will solve the equation for f less a constant",
                    ritz->problem.name, load.mean, load.error);
}

/* A v with a negative int (a |grad v|^2 + V v^2), and int r v^2 over the boundary: its multiples have energies without end. */
static int check_form(const pt_ritz *ritz, const energy_sums *s, pt_error *e)
{
    const problem *problem = &ritz->problem;
    const bool wrong = !ritz->net.jets && !problem->is.G && problem->is.equation != PT_RITZ_EIGENVALUE && !ansatz_has_hard_holes(problem);
    for (int k = holds_values(problem) ? ritz_first_bump(ritz) : 1; wrong && k < ritz_tests(ritz); k++) {
        const ritz_mean form = MEAN(s, test_norm[k]);
        if (form.mean + sure * form.error < 0)
            return pt_fail(e, PT_FAILED, "%s: the energy has no minimum, for int (a |grad v|^2 + V v^2) is %.4g for a test function v: the "
                                         "energy of its multiples falls without end%s", problem->name, form.mean,
                           holds_values(problem) ? "; `loss` residual needs no minimum" : "");
    }
    return 0;
}

/* Whether the energy has a minimum. */
static int check_below(const pt_ritz *ritz, const energy_sums *s, pt_error *e)
{
    const problem *problem = &ritz->problem;
    const ritz_mean square = MEAN(s, by_square);
    const bool free = !holds_values(problem) && !problem_has_mean(problem) && !problem->is.G,
               eigen = problem->is.equation == PT_RITZ_EIGENVALUE;
    const bool robin = domain_has_boundary(&problem->is, PT_RITZ_ROBIN);
    if (free && !eigen && square.mean + sure * square.error < 0)
        return pt_fail(e, PT_FAILED, "%s: the energy has no minimum, for the integral of V%s is %.4g, so that large constants lower it "
                                     "without end",
                       problem->name, robin ? " plus that of r over the boundary" : "", square.mean);
    if (free && eigen && square.mean == 0)
        ritz_notice(ritz, "%s: without V, and without values on the boundary, the smallest eigenvalue is 0, that of constants",
                    problem->name);
    if (free && !eigen && square.mean == 0)
        return pt_fail(e, PT_FAILED, "%s: without V%s, and without values on the boundary, u is determined up to a constant at most: "
                                     "give %s", problem->name, robin ? " and r" : "",
                       robin ? "r, or a neumann boundary" : "V, or \"equation\": \"poisson\"");
    const int failed = check_form(ritz, s, e);
    if (failed)
        return failed;
    if (s->least_v < 0 && !eigen)
        ritz_notice(ritz, "%s: V falls to %.4g: the energy has a minimum only if int (a |grad v|^2 + V v^2) is positive for every v",
                    problem->name, s->least_v);
    return 0;
}

static double longest_side(const pt_ritz *ritz, double *shortest)
{
    double longest = 0;
    *shortest = INFINITY;
    for (int64_t j = 0; j < ritz->net.dim; j++) {
        const double side = ritz->problem.is.upper[j] - ritz->problem.is.lower[j];
        longest = fmax(longest, side);
        *shortest = fmin(*shortest, side);
    }
    return longest;
}

/* About what the energy is of a u of size 1. */
static double stiffness_of(const pt_ritz *ritz, const energy_sums *s)
{
    double shortest;
    const double longest = longest_side(ritz, &shortest);
    return s->stiffness * M_PI * M_PI / longest / longest + fmax(s->potential, 0);
}

static void check_scale(const pt_ritz *ritz, const energy_sums *s)
{
    double shortest;
    const double longest = longest_side(ritz, &shortest), stiff = stiffness_of(ritz, s);
    const double u = fmax(stiff > 0 ? s->load / stiff : 0, s->largest_g);
    if (longest > 20 || shortest < 0.05)
        ritz_notice(ritz, "%s: the box has sides from %.3g to %.3g, and a network begins with functions that change over about 1: make the "
                       "problem dimensionless, with sides of 1 to 10", ritz->problem.name, shortest, longest);
    if (u > 50 || (u > 0 && u < 1e-3))
        ritz_notice(ritz, "%s: u is expected to be about %.1g, and a network begins with values of about 1: make the problem "
                       "dimensionless, with f and g divided by that", ritz->problem.name, u);
}

/* Whether G falls faster than u^2 at a point. */
static void check_growth(const pt_ritz *ritz)
{
    const problem *problem = &ritz->problem;
    for (int sign = -1; sign <= 1; sign += 2) {
        const double u[2] = {30 * sign, 300 * sign};
        double of[2], slope;
        for (int k = 0; k < 2; k++) {
            problem->is.G(problem->is.arg, 1, ritz->net.dim, ritz->x, &u[k], &of[k], &slope);
            of[k] /= u[k] * u[k];
        }
        if (of[1] < 0 && of[1] < 5 * of[0]) {
            ritz_notice(ritz,
                        "%s: G falls faster than u^2, to %.3g at u = %g: the energy falls without end, and at most a local minimum is "
                        "found",
                        problem->name, of[1] * u[1] * u[1], u[1]);
            return;
        }
    }
}

enum { STEEP = 100 };

/* A penalty that rules the gradient before the equation does. */
static void check_penalty(const pt_ritz *ritz, const energy_sums *s)
{
    const double at_once = ritz->o.penalty_ramp ? 0 : s->held, stiff = stiffness_of(ritz, s);
    if (at_once > STEEP * stiff && s->load > 0 && !ritz->net.jets)
        ritz_notice(ritz,
                    "%s: the penalty weighs values on the boundary %.3g times as much as the energy weighs those inside: training may "
                    "stay where u is nearly g at the boundary and wrong inside; give `penalty_ramp` %lld, or a hard boundary",
                    ritz->problem.name, at_once / stiff, (long long)(ritz->o.steps + 1) / 2);
}

/* dG beside the differences of G. */
static int check_nonlinear(const pt_ritz *ritz, pt_error *e)
{
    const problem *problem = &ritz->problem;
    static const double at[] = {-1.3, 0.4, 2.1};
    for (size_t i = 0; problem->is.G && i < sizeof at / sizeof *at; i++) {
        const double h = 1e-4, near[2] = {at[i] - h, at[i] + h};
        double value[2], slope, unused;
        points_draw(ritz->sets, i, 0);
        points_get(ritz->sets, 0, 1, ritz->x);
        ritz_stretch(&problem->is, 1, ritz->x);
        for (int k = 0; k < 2; k++)
            problem->is.G(problem->is.arg, 1, ritz->net.dim, ritz->x, &near[k], &value[k], &slope);
        problem->is.G(problem->is.arg, 1, ritz->net.dim, ritz->x, &at[i], &unused, &slope);
        const double difference = (value[1] - value[0]) / (2 * h);
        if (isfinite(difference) && fabs(difference - slope) > 1e-4 * (1 + fabs(slope)))
            return pt_fail(e, PT_FAILED, "%s: dG is not the derivative of G by u: at u = %g it is %.6g, and differences of G give "
                                         "%.6g", problem->name,
                           at[i], slope, difference);
        if (!i)
            check_growth(ritz);
    }
    return 0;
}

enum { HARD_POINTS = 16, HARD_FACES = 64 };

/* The exact solution beside the values of hard faces. size: the mean of its square inside. */
static void check_hard_values(const pt_ritz *ritz, double size)
{
    const problem *problem = &ritz->problem;
    const bool lift = ansatz_has_lift(problem);
    double misfit = 0, square = 0, u, g = 0;
    int n = 0;
    for (int64_t face = 0; face < domain_faces(&problem->is) && face < HARD_FACES; face++) {
        const domain_face f = domain_face_of(&problem->is, face);
        for (int i = 0; i < HARD_POINTS && domain_boundary(&problem->is, face) == PT_RITZ_HARD; i++) {
            points_get(ritz->sets, i % ritz->o.eval_n, 1, ritz->x);
            for (int64_t j = 0; j < problem->is.dim; j++)
                ritz->x[j] = j == f.axis ? f.at : f.lower[j] + ritz->x[j] * (f.upper[j] - f.lower[j]);
            if (!domain_face_holds(&problem->is, &f, ritz->x))
                continue;
            problem->is.exact(problem->is.arg, 1, problem->is.dim, ritz->x, &u);
            if (lift)
                problem_face_values(problem, problem->is.g, face, 1, ritz->x, &g);
            misfit += (u - g) * (u - g);
            square += u * u + g * g;
            n++;
        }
    }
    square += n * size;
    if (misfit > tolerance * tolerance * square)
        ritz_notice(ritz, "%s: exact differs from %s on the hard boundary, by %.3g of its size", problem->name, lift ? "g" : "0",
                    sqrt(misfit / square));
}

/* ---- the exact solution ---- */

/* The residual that is largest beside what it may be. */
static void check_weak_form(const pt_ritz *ritz, const energy_sums *s)
{
    const bool hole_values = ritz->problem.is.holes && holds_values(&ritz->problem);
    for (int k = holds_values(&ritz->problem) ? ritz_first_bump(ritz) : 0; k < ritz_tests(ritz) && !hole_values; k++) {
        const ritz_mean m = MEAN(s, residual[k]);
        if (is_nothing(m, s->scale[k]))
            continue;
        ritz_notice(ritz, "%s: exact does not solve the equation: against a test function the residual is %.4g +- %.1g, of terms that add "
                       "up to %.4g in magnitude", ritz->problem.name, m.mean, m.error, s->scale[k]);
        return;
    }
}

static void check_solution(const pt_ritz *ritz, const energy_sums *s)
{
    const problem *problem = &ritz->problem;
    const ritz_mean mean = MEAN(s, mean), energy = MEAN(s, energy), misfit = MEAN(s, misfit);
    const double size = sqrt(s->square * domain_volume(&problem->is));
    if (problem_has_mean(problem) && !is_nothing(mean, size))
        ritz_notice(ritz, "%s: exact has the integral %.4g +- %.1g, but with Neumann conditions alone the solution of mean 0 is found: "
                       "subtract its mean", problem->name, mean.mean, mean.error);
    else if (problem->is.equation != PT_RITZ_EIGENVALUE)
        check_weak_form(ritz, s);
    check_hard_values(ritz, s->square / domain_volume(&problem->is));
    if (misfit.mean > tolerance * tolerance * (s->boundary_square + s->square) + sure * misfit.error)
        ritz_notice(ritz, "%s: exact differs from g on the boundary, by %.3g in the mean square", problem->name, misfit.mean);
    if (isfinite(problem->energy) && !is_nothing((ritz_mean){energy.mean - problem->energy, energy.error}, fabs(problem->energy) + s->norm))
        ritz_notice(ritz, "%s: the energy of exact is %.6g +- %.1g, and not %.6g", problem->name, energy.mean, energy.error,
                    problem->energy);
}

static int find_sums(pt_ritz *ritz, bool exact, energy_sums *s, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < SETS && !failed; i++)
        failed = ritz_energy_sums(ritz, exact, ritz->o.eval_n < POINTS_MOST ? ritz->o.eval_n : POINTS_MOST, (uint64_t)i, &s[i], e);
    return failed;
}

int ritz_check_problem(pt_ritz *ritz, pt_error *e)
{
    energy_sums s[SETS];
    int failed = check_nonlinear(ritz, e);
    if (!failed)
        failed = find_sums(ritz, false, s, e);
    if (!failed)
        failed = check_below(ritz, s, e);
    if (failed)
        return failed;
    check_balance(ritz, s);
    check_scale(ritz, s);
    check_penalty(ritz, s);
    failed = ritz->problem.is.exact ? find_sums(ritz, true, s, e) : 0;
    if (!failed && ritz->problem.is.exact)
        check_solution(ritz, s);
    return failed;
}

/* ---- the network ---- */

/* The mean energy of the last steps. */
static ritz_mean training_energy(const pt_ritz *ritz)
{
    const int n = ritz->recent_n < RITZ_RECENT ? (int)ritz->recent_n : RITZ_RECENT;
    return n > 1 ? ritz_mean_of(ritz->recent, n) : (ritz_mean){n ? ritz->recent[0] : NAN, 0};
}

void ritz_judge(const pt_ritz *ritz, const pt_ritz_energy *s)
{
    const ritz_mean trained = training_energy(ritz);
    const double doubt = fmax(sure * s->standard_error, 0.05 * fabs(s->energy)) + 4 * trained.error;
    if (!ritz->net.jets && trained.mean < s->energy - doubt)
        ritz_notice(ritz, "the energy is %.6g +- %.2g on points of its own, far above the %.6g of the training points: the network has "
                       "fitted these instead of the integral; %s", s->energy, s->standard_error, trained.mean,
                    ritz->o.redraw_every == 1 ? "give a larger `n`" : "give `redraw_every` 1, or a larger `n`");
    if (s->low > s->constant_energy)
        ritz_notice(ritz, "the constant %.4g has the energy %.6g, less than the network's %.6g: the network has learned nothing; change "
                       "`lr` or `steps`", s->constant, s->constant_energy, s->energy);
    if (s->least_error > 0.3 * s->norm)
        ritz_notice(ritz, "the network is far from the solution: residuals show an error of at least %.3g in the energy norm, where the "
                       "network has %.3g; give more `steps` or another `lr`%s", s->least_error, s->norm,
                    domain_has_boundary(&ritz->problem.is, PT_RITZ_DIRICHLET) ? ", a smaller penalty, `penalty_ramp`, or a hard "
                                                                             "boundary" : "");
    if (isfinite(ritz->problem.energy) &&
        s->high < ritz->problem.energy - tolerance * fabs(ritz->problem.energy) - sure * s->standard_error)
        ritz_notice(ritz, "the energy %.6g +- %.2g lies below that of the exact solution, %.6g: the problem's `energy` is wrong, or that "
                       "of another problem", s->energy, s->standard_error, ritz->problem.energy);
}
