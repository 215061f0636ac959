/* Energies and their gradients: beside exact ones, beside differences, and how much they vary. */
#include "base/rng.h"
#include "sanitized.h"

#include <math.h>

#include "ritz/runs.h"

/* Figures take long under a sanitizer, and show nothing more there. */
enum { FIGURES = !SANITIZED };

static double energy_of(pt_ritz *r, uint64_t draw)
{
    pt_error e = {0};
    double energy;
    if (ritz_integrate(r, draw, &energy, &e))
        fail_msg("%s", e.text);
    return energy;
}

/* ---- energies ---- */

/* int |grad v|^2, int V v^2 and int v of the difference v from the exact solution, at Sobol points of their own. */
static double half_error_in_energy_norm(pt_ritz *r)
{
    enum { N = 1 << 14 };
    const int64_t dim = r->net.dim;
    points *p;
    pt_error e = {0};
    assert_int_equal(points_open(POINTS_SOBOL, RANDOMIZE_OWEN, dim, N, 77, &p, &e), 0);
    double *x = malloc((size_t)(N * dim) * 8), *g = malloc((size_t)(N * dim) * 8), *want_g = malloc((size_t)(N * dim) * 8);
    double *u = malloc(N * 8), *want = malloc(N * 8), *v = calloc(N, 8), slope = 0, square = 0, mean = 0;
    points_get(p, 0, N, x);
    assert_int_equal(pt_ritz_evaluate(r, N, x, u, g, &e), 0);
    problem_exact(&r->problem, N, x, want, want_g);
    if (r->problem.is.V)
        r->problem.is.V(NULL, N, dim, x, v);
    for (int64_t i = 0; i < N * dim; i++)
        slope += (g[i] - want_g[i]) * (g[i] - want_g[i]) / N;
    for (int64_t i = 0; i < N; i++)
        square += v[i] * (u[i] - want[i]) * (u[i] - want[i]) / N, mean += (u[i] - want[i]) / N;
    points_close(p);
    free(x), free(g), free(want_g), free(u), free(want), free(v);
    return 0.5 * (slope + (r->problem.is.V ? square : mean * mean));
}

static void an_energy_exceeds_the_exact_one_by_half_the_squared_error(void **state)
{
    static const char *const names[] = {"poisson-cosine", "schroedinger-cosine", "schroedinger-jump"};
    for (int turn = 0; turn < (FIGURES ? 6 : 1); turn++) {
        pt_ritz_options o = small(names[turn % 3], 1 + turn);
        o.dtype = PT_RITZ_FP64;
        o.steps = 60;
        o.n = 1 << 14;
        o.lr = 3e-3;
        o.threads = 2;
        pt_ritz *r = open_run(&o);
        train(r, turn < 3 ? 0 : 25);
        const double above = energy_of(r, 1000) - r->problem.energy, want = half_error_in_energy_norm(r);
        printf("%s, %d dimensions: %.5f above, half the squared error is %.5f\n", names[turn % 3], 1 + turn, above, want);
        assert_true(fabs(above - want) < (turn % 3 == 2 ? 2e-2 : 1e-2) * want);
        pt_ritz_close(r);
    }
}

/* A long enough run: within half a percent of the exact energy, and above it but for the error of integration. */
static void a_run_reaches_the_exact_energy(void **state)
{
    if (!FIGURES)
        skip();
    pt_ritz_options o = small("poisson-cosine", 2);
    o.n = 1024;
    o.width = 32;
    o.steps = 1200;
    o.lr = 4e-3;
    o.threads = 2;
    pt_ritz *r = open_run(&o);
    train(r, o.steps);
    const double energy = energy_of(r, 5000), exact = r->problem.energy;
    double l2, h1;
    pt_error e = {0};
    assert_int_equal(pt_ritz_errors(r, &l2, &h1, &e), 0);
    printf("energy %.6f of %.6f, errors %.2g %.2g\n", energy, exact, l2, h1);
    assert_true(energy > exact - 2e-3 && energy < exact * 0.995 && l2 < 0.02 && h1 < 0.06);
    pt_ritz_close(r);
}

/* ---- the gradient, of everything that an energy has ---- */

static void neumann_g(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 1 + x[i * dim] * x[i * dim];
}

static void quartic(void *arg, int64_t n, int64_t dim, const double *x, const double *u, double *value, double *slope)
{
    for (int64_t i = 0; i < n; i++) {
        value[i] = (1 + x[i * dim]) * pow(u[i], 4) / 4;
        slope[i] = (1 + x[i * dim]) * pow(u[i], 3);
    }
}

static void move_weights(pt_ritz *r, const double *at, const double *along, double by)
{
    pt_error e = {0};
    for (int64_t i = 0; i < r->net.params; i++)
        ((double *)r->staging)[i] = at[i] + by * along[i];
    assert_int_equal(ritz_slab(r, OBJECT_WEIGHTS, 0, 0, false, &e), 0); /* all of them are one chunk */
}

static void gradients_are_the_energys_differences(void **state)
{
    static const double lower[3] = {-1, 0, 0.5}, upper[3] = {2, 0.5, 1};
    static const double hole_lower[] = {-1, 0.1, 0.6, 1.5, 0.1, 0.6}, hole_upper[] = {0, 0.3, 3, 1.7, 0.2, 0.7};
    for (int turn = 0; turn < 64; turn++) {
        pt_ritz_boundary faces[18];
        pt_ritz_problem own = {.dim = 1 + turn % 3, .lower = lower, .upper = upper, .equation = (pt_ritz_equation)(turn / 2 % 2),
                               .boundary = (pt_ritz_boundary)(turn / 4 % 2), .penalty = 3, .f = turn & 1 ? neumann_g : NULL,
                               .V = neumann_g, .g = turn % 5 ? neumann_g : NULL, .concurrent = true};
        if (turn >= 24) { /* anything */
            own.equation = (pt_ritz_equation)(rand() % 3);
            own.holes = own.dim == 2 ? 0 : rand() % 3; /* the arrays' rows have 3 numbers */
            own.hole_lower = hole_lower, own.hole_upper = hole_upper;
            own.boundary = (pt_ritz_boundary)(rand() % 4);
            for (int k = 0; k < 18; k++)
                faces[k] = k % (2 * own.dim) && k >= 2 * own.dim && faces[k - 1] == PT_RITZ_HARD ? PT_RITZ_HARD
                    : (pt_ritz_boundary)(rand() % (k < 2 * own.dim || k % (2 * own.dim) == 0 ? 4 : 3));
            own.faces = rand() % 2 ? faces : NULL;
            own.a = rand() % 2 ? neumann_g : NULL;
            own.r = neumann_g;
            own.G = rand() % 2 && own.equation != PT_RITZ_EIGENVALUE ? quartic : NULL;
            if (own.equation == PT_RITZ_EIGENVALUE)
                own.f = own.g = NULL;
            if (own.dim == 1 && own.holes)
                own.holes = 1;
        }
        pt_ritz_options o = small(NULL, 0);
        o.own = &own;
        o.points = (pt_ritz_points)(turn % 4);
        o.n = 300 + turn;
        o.n_boundary = 60;
        o.dtype = PT_RITZ_FP64;
        o.activation = (pt_ritz_activation)(turn % 6);
        o.plain = turn % 7 == 3;
        if (turn >= 32 && own.equation != PT_RITZ_EIGENVALUE)
            o.loss = (pt_ritz_loss)(turn % 2);
        problem in = {.is = own}; /* for the faces */
        if (ansatz_has_hard_holes(&in))
            o.loss = PT_RITZ_LOSS_ENERGY;
        pt_ritz *r = open_run(&o);
        double *at = calloc((size_t)r->net.params, 8), *along = calloc((size_t)r->net.params, 8),
            *gradient = calloc((size_t)r->net.params, 8), want = 0;
        pt_error e = {0};
        assert_int_equal(ritz_slab(r, OBJECT_WEIGHTS, 0, 0, true, &e), 0);
        memcpy(at, r->staging, (size_t)r->net.params * 8);
        for (int64_t i = 0; i < r->net.params; i++)
            along[i] = rng_normal(1, RNG_TEST, (uint32_t)turn, (uint64_t)i) / 10;
        energy_of(r, 3);
        assert_int_equal(ritz_read_gradient(r, gradient, &e), 0);
        for (int64_t i = 0; i < r->net.params; i++)
            want += gradient[i] * along[i];
        /* derivatives of the slopes of relu^3 have jumps, so that differences are less exact */
        const bool jumps = o.activation == PT_RITZ_RELU3;
        const double least = jumps ? 1e-3 : 2.5e-4;
        double d[2];
        for (int k = 0; k < 2; k++) {
            const double h = least * (k ? 2 : 1);
            move_weights(r, at, along, h);
            d[k] = energy_of(r, 3);
            move_weights(r, at, along, -h);
            d[k] = (d[k] - energy_of(r, 3)) / (2 * h);
        }
        const double got = (4 * d[0] - d[1]) / 3, off = jumps ? (o.loss ? 1e-3 : 1e-5) : 1e-7;
        if (!(fabs(got - want) < off * (1 + fabs(want))))
            fail_msg("turn %d: the energy changes by %.12g, the gradient says %.12g", turn, got, want);
        free(at), free(along), free(gradient);
        pt_ritz_close(r);
    }
}

/* A point of the unit cube outside the hole, and on its face if there is one. */
static void beside_hole(int64_t dim, const double *lower, const double *upper, int64_t axis, double *x)
{
    bool in = true;
    while (in) {
        in = axis < 0;
        for (int64_t j = 0; j < dim; j++) {
            const double s = (rand() + 0.5) / (RAND_MAX + 1.0);
            x[j] = axis < 0 ? s : lower[j] + s * (upper[j] - lower[j]);
            in &= x[j] > lower[j] && x[j] < upper[j];
        }
    }
    if (axis >= 0)
        x[axis] = rand() % 2 ? lower[axis] : upper[axis];
}

static void a_hard_hole_has_its_values(void **state)
{
    static const double lower[] = {0.3, 0.2, 0.6}, upper[] = {0.5, 0.7, 1};
    (void)state;
    for (int64_t dim = 1; dim <= 3; dim++) {
        const pt_ritz_problem own = {.dim = dim, .holes = 1, .hole_lower = lower, .hole_upper = upper, .boundary = PT_RITZ_HARD,
                                     .f = neumann_g, .g = neumann_g, .concurrent = true};
        pt_ritz_options o = small(NULL, 0);
        o.own = &own;
        o.dtype = PT_RITZ_FP64;
        pt_ritz *r = open_run(&o);
        for (int turn = 0; turn < 40; turn++) {
            double x[3], u, g[3], beside[2], unused[3];
            pt_error e = {0};
            beside_hole(dim, lower, upper, turn % 2 ? rand() % dim : -1, x);
            assert_int_equal(pt_ritz_evaluate(r, 1, x, &u, g, &e), 0);
            assert_true(turn % 2 == (fabs(u - 1 - x[0] * x[0]) < 1e-14)); /* g there, and not elsewhere */
            for (int64_t j = 0; j < dim && turn % 2 == 0; j++) {
                const double h = 1e-6, at = x[j];
                for (int k = 0; k < 2; k++) {
                    x[j] = at + (k ? h : -h);
                    assert_int_equal(pt_ritz_evaluate(r, 1, x, &beside[k], unused, &e), 0);
                }
                x[j] = at;
                assert_true(fabs((beside[1] - beside[0]) / (2 * h) - g[j]) < 1e-5 * (1 + fabs(g[j])));
            }
        }
        pt_ritz_close(r);
    }
}

/* w r^2 at a point, from differences of the network's gradient. of_a: the gradient of a = 1 + x1^2 along x1. */
static double residual_at(pt_ritz *r, const double *x, int64_t face, double weight)
{
    const pt_ritz_problem *p = &r->problem.is;
    const double h = 1e-4, a = 1 + x[0] * x[0], of_a = 2 * x[0], given = 1 + x[0] * x[0];
    double u, g[2], laplacian = 0, value, slope = 0, residual;
    pt_error e = {0};
    assert_int_equal(pt_ritz_evaluate(r, 1, x, &u, g, &e), 0);
    for (int j = 0; j < 2 && !face; j++)
        for (int side = -1; side <= 1; side += 2) {
            double moved[2] = {x[0], x[1]}, there, of_there[2];
            moved[j] += side * h;
            assert_int_equal(pt_ritz_evaluate(r, 1, moved, &there, of_there, &e), 0);
            laplacian += side * of_there[j] / (2 * h);
        }
    if (!face) {
        quartic(NULL, 1, 2, x, &u, &value, &slope);
        residual = -a * laplacian - of_a * g[0] + given * u + (p->G ? slope : 0) - given;
    } else {
        const int64_t axis = labs(face) - 1;
        const pt_ritz_boundary kind = p->faces[2 * axis + (face > 0)];
        const double normal = face > 0 ? g[axis] : -g[axis];
        residual = kind == PT_RITZ_DIRICHLET ? u - given : a * normal + (kind == PT_RITZ_ROBIN ? given * u : 0) - given;
        weight *= kind == PT_RITZ_HARD ? 0 : kind == PT_RITZ_DIRICHLET ? p->penalty : r->o.boundary_weight;
    }
    return weight * residual * residual;
}

static void a_residual_loss_is_the_equations_residual(void **state)
{
    static const pt_ritz_boundary kinds[][4] = {
        {PT_RITZ_NEUMANN, PT_RITZ_ROBIN, PT_RITZ_DIRICHLET, PT_RITZ_NEUMANN},
        {PT_RITZ_HARD, PT_RITZ_ROBIN, PT_RITZ_DIRICHLET, PT_RITZ_HARD},
        {PT_RITZ_HARD, PT_RITZ_HARD, PT_RITZ_HARD, PT_RITZ_HARD}};
    static const double lower[2] = {-1, 0}, upper[2] = {1, 0.5};
    for (int turn = 0; turn < 12; turn++) {
        enum { N = 64, FACES = 64 };
        const pt_ritz_problem own = {.dim = 2, .lower = lower, .upper = upper, .equation = PT_RITZ_SCHROEDINGER, .faces = kinds[turn % 3],
                                     .penalty = 3, .f = neumann_g, .V = neumann_g, .a = neumann_g, .g = neumann_g, .r = neumann_g,
                                     .G = turn % 2 ? quartic : NULL, .concurrent = true};
        pt_ritz_options o = small(NULL, 0);
        o.own = &own;
        o.loss = PT_RITZ_LOSS_RESIDUAL;
        o.boundary_weight = 7;
        o.n = N;
        o.n_boundary = FACES;
        o.dtype = PT_RITZ_FP64;
        o.activation = (pt_ritz_activation)(turn % 6);
        o.blocks = 1;
        o.plain = turn % 4 == 3;
        pt_ritz *r = open_run(&o);
        const int64_t n = N + r->boundary_n;
        double x[2 * (N + FACES)], weight[N + FACES], want = 0;
        int64_t face[N + FACES];
        pt_error e = {0};
        assert_int_equal(pt_ritz_points_of_step(r, 1, 0, n, x, face, weight, &e), 0);
        const double loss = energy_of(r, 0);
        for (int64_t i = 0; i < n; i++)
            want += residual_at(r, x + 2 * i, face[i], weight[i]);
        if (!(fabs(loss - want) < 1e-6 * want))
            fail_msg("turn %d: the loss is %.12g, not %.12g", turn, loss, want);
        pt_ritz_close(r);
    }
}

static void the_gradient_of_scrambled_nets_varies_less(void **state)
{
    enum { SIZES = 5, SETS = 30 };
    double n[SIZES], v[2][SIZES];
    if (!FIGURES)
        skip();
    pt_ritz_options o = small("schroedinger-cosine", 2);
    o.dtype = PT_RITZ_FP64;
    o.n = 64 << SIZES;
    pt_ritz *r = open_run(&o);
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < 2; k++) {
            pt_error e = {0};
            n[i] = 64 << i;
            if (pt_ritz_gradient_variance(r, k ? PT_RITZ_SOBOL : PT_RITZ_MC, 64 << i, SETS, &v[k][i], NULL, &e))
                fail_msg("%s", e.text);
        }
    const double mc = pt_ritz_slope(SIZES, n, v[0]), sobol = pt_ritz_slope(SIZES, n, v[1]);
    printf("slopes: mc %.2f, sobol %.2f; at %g points sobol's is 1 / %.0f\n", mc, sobol, n[SIZES - 1], v[0][SIZES - 1] / v[1][SIZES - 1]);
    assert_true(mc > -1.6 && mc < -0.5 && sobol < -1.5 && v[1][SIZES - 1] < v[0][SIZES - 1] / 10);
    pt_ritz_close(r);
}

/* ---- updates ---- */

/* AdamW as PyTorch's in double precision, from the gradients of the run: not even the last digits of 1 - beta may be lost. */
static void updates_in_fp64_are_adamws(void **state)
{
    enum { STEPS = 40 };
    pt_ritz_options o = small("schroedinger-cosine", 2);
    o.dtype = PT_RITZ_FP64;
    o.n = 64;
    o.width = 8;
    o.steps = STEPS + 1; /* after the last one there is an evaluation, which takes the gradient's memory */
    o.weight_decay = 0.03;
    pt_ritz *r = open_run(&o);
    pt_error e = {0};
    const size_t n = (size_t)r->net.params;
    double *g = calloc(4 * n, 8), *w = g + n, *m = w + n, *v = m + n;
    assert_int_equal(ritz_slab(r, OBJECT_WEIGHTS, 0, 0, true, &e), 0);
    memcpy(w, r->staging, n * 8);
    for (int step = 1; step <= STEPS; step++) {
        train(r, 1);
        const double lr = ritz_lr(&o, step);
        assert_int_equal(ritz_read_gradient(r, g, &e), 0);
        for (size_t i = 0; i < n; i++) {
            w[i] *= 1 - lr * o.weight_decay;
            m[i] += (g[i] - m[i]) * (1 - o.beta1);
            v[i] = v[i] * o.beta2 + (1 - o.beta2) * g[i] * g[i];
            w[i] -= lr / (1 - pow(o.beta1, step)) * m[i] / (sqrt(v[i]) / sqrt(1 - pow(o.beta2, step)) + o.eps);
        }
    }
    assert_int_equal(ritz_slab(r, OBJECT_WEIGHTS, 0, 0, true, &e), 0);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(((double *)r->staging)[i] - w[i]) <= 1e-14 * (1 + fabs(w[i]))))
            fail_msg("weight %zu is %.17g, not %.17g", i, ((double *)r->staging)[i], w[i]);
    free(g);
    pt_ritz_close(r);
}

/* Over many networks and seeds, the interval of 95% holds the energy of a much larger set in about 95%; a trained network's energy exceeds
 * the exact one by half the square of the error in the energy norm, and that is at least what the residuals say. */
static void an_estimate_is_as_sure_as_it_says(void **state)
{
    enum { RUNS = 60, SETS = 8, N = 128, LARGE = 1 << 13 };
    static const char *const names[] = {"poisson-cosine", "schroedinger-jump", "harmonic"};
    int held = 0;
    if (!FIGURES)
        skip();
    for (int k = 0; k < RUNS; k++) {
        pt_ritz_options o = small(names[k % 3], 2 + k % 3);
        pt_ritz_energy few, large;
        pt_error e = {0};
        o.seed = (uint64_t)k;
        o.steps = 20;
        o.n = 64;
        o.lr = 1e-2;
        o.energy_sets = 0;
        o.eval_n = N;
        pt_ritz *r = open_run(&o);
        train(r, 15);
        if (pt_ritz_estimate_energy(r, SETS, N, &few, &e))
            fail_msg("%s", e.text);
        const double at_least = few.least_error;
        assert_int_equal(pt_ritz_estimate_energy(r, 2, N + 1, &large, &e), PT_USAGE);
        points_close(r->sets), points_close(r->set_faces.points);
        r->set_faces.points = NULL;
        assert_int_equal(points_open(POINTS_SOBOL, RANDOMIZE_OWEN, o.dim, LARGE, 999, &r->sets, &e), 0);
        if (r->faces.n)
            assert_int_equal(points_open(POINTS_SOBOL, RANDOMIZE_OWEN, o.dim - 1, r->set_faces.n = LARGE, 999, &r->set_faces.points, &e),
                             0);
        r->o.eval_n = LARGE;
        assert_int_equal(pt_ritz_estimate_energy(r, 2, LARGE, &large, &e), 0);
        held += few.low <= large.energy && large.energy <= few.high;
        if (k % 3 < 2)
            assert_true(at_least * at_least <= 2 * (large.energy - r->problem.energy) * 1.001 && at_least > 0);
        pt_ritz_close(r);
    }
    printf("%d of %d intervals hold the energy\n", held, RUNS);
    assert_in_range(held, 52, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_energy_exceeds_the_exact_one_by_half_the_squared_error),
        cmocka_unit_test(a_run_reaches_the_exact_energy),
        cmocka_unit_test(gradients_are_the_energys_differences),
        cmocka_unit_test(a_hard_hole_has_its_values),
        cmocka_unit_test(a_residual_loss_is_the_equations_residual),
        cmocka_unit_test(updates_in_fp64_are_adamws),
        cmocka_unit_test(an_estimate_is_as_sure_as_it_says),
        cmocka_unit_test(the_gradient_of_scrambled_nets_varies_less),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
