/* Runs: exact energies, gradients beside differences, the same bits however they are computed, killed and resumed; what is refused. */
#include "base/rng.h"
#include "io/files.h"
#include "ritz/page.h"
#include "ritz/solver.h"
#include "ritz/variance.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "sanitized.h"

/* Figures take long under a sanitizer, and show nothing more there. */
enum { FIGURES = !SANITIZED };

static char scratch[64];

static pt_ritz *open_run(const pt_ritz_options *o)
{
    pt_error e = {0};
    pt_ritz *r;
    if (pt_ritz_open(o, &r, &e))
        fail_msg("%s", e.text);
    return r;
}

static pt_ritz_options small(const char *problem, int64_t dim)
{
    pt_ritz_options o;
    pt_ritz_defaults(&o);
    o.problem = problem;
    o.dim = dim;
    o.width = 16;
    o.blocks = 2;
    o.n = 600;
    o.steps = 12;
    o.device = "cpu";
    o.threads = 1;
    o.eval_every = 0;
    o.eval_n = 500;
    return o;
}

static void train(pt_ritz *r, int64_t steps)
{
    pt_error e = {0};
    pt_ritz_step_info s;
    while (steps-- > 0)
        if (pt_ritz_step(r, &s, &e) != 1)
            fail_msg("%s", e.text);
}

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
    enum { N = 1 << 15 };
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
        o.n = 1 << 15;
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
    for (int turn = 0; turn < 24; turn++) {
        const pt_ritz_problem own = {.dim = 1 + turn % 3, .lower = lower, .upper = upper, .equation = (pt_ritz_equation)(turn / 2 % 2),
                                     .boundary = (pt_ritz_boundary)(turn / 4 % 2), .penalty = 3, .f = turn & 1 ? neumann_g : NULL,
                                     .V = neumann_g,
                                     .g = turn % 5 ? neumann_g : NULL};
        pt_ritz_options o = small(NULL, 0);
        o.own = &own;
        o.points = (pt_ritz_points)(turn % 4);
        o.n = 300 + turn;
        o.n_boundary = 60;
        o.dtype = PT_RITZ_FP64;
        o.activation = (pt_ritz_activation)(turn % 6);
        o.plain = turn % 7 == 3;
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
        double d[2];
        for (int k = 0; k < 2; k++) {
            const double h = k ? 2e-3 : 1e-3;
            move_weights(r, at, along, h);
            d[k] = energy_of(r, 3);
            move_weights(r, at, along, -h);
            d[k] = (d[k] - energy_of(r, 3)) / (2 * h);
        }
        const double got = (4 * d[0] - d[1]) / 3;
        if (!(fabs(got - want) < 1e-7 * (1 + fabs(want))))
            fail_msg("turn %d: the energy changes by %.12g, the gradient says %.12g", turn, got, want);
        free(at), free(along), free(gradient);
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
    pt_ritz *r = open_run(&o);
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < 2; k++) {
            pt_error e = {0};
            n[i] = 64 << i;
            if (ritz_gradient_variance(r, k ? PT_RITZ_SOBOL : PT_RITZ_MC, 64 << i, SETS, &v[k][i], NULL, &e))
                fail_msg("%s", e.text);
        }
    const double mc = ritz_slope(n, v[0], SIZES), sobol = ritz_slope(n, v[1], SIZES);
    printf("slopes: mc %.2f, sobol %.2f; at %g points sobol's is 1 / %.0f\n", mc, sobol, n[SIZES - 1], v[0][SIZES - 1] / v[1][SIZES - 1]);
    assert_true(mc > -1.6 && mc < -0.5 && sobol < -1.5 && v[1][SIZES - 1] < v[0][SIZES - 1] / 10);
    pt_ritz_close(r);
}

/* ---- the same bits ---- */

static char *read_file(const char *folder, const char *name, size_t *n)
{
    char path[FILE_PATH_BYTES], *data;
    pt_error e = {0};
    assert_int_equal(path_join(path, folder, name, &e), 0);
    if (file_read_all(path, 1 << 28, &data, n, &e))
        fail_msg("%s", e.text);
    return data;
}

static void same_networks(const char *a, const char *b)
{
    size_t a_n, b_n;
    char *x = read_file(a, "network.safetensors", &a_n), *y = read_file(b, "network.safetensors", &b_n);
    assert_true(a_n == b_n);
    assert_memory_equal(x, y, a_n);
    free(x), free(y);
}

static const char *folder_of(const char *name)
{
    static char path[2][128];
    static int turn;
    pt_error e = {0};
    snprintf(path[turn = !turn], sizeof *path, "%s/%s", scratch, name);
    assert_int_equal(tree_remove(path[turn], &e), 0);
    return path[turn];
}

/* To the end, by as many runs as there are stops; `planned`: each under another random plan. */
static void run_with_stops(pt_ritz_options o, const int64_t *stops, int n, bool planned);

static int random_tier(const ritz_planning *p)
{
    const int t = rand() % 4;
    return t == TIER_HOST && !p->space->host_tier ? TIER_DEVICE : t == TIER_DISK && !p->budget[TIER_DISK] ? TIER_DEVICE : t % 3;
}

static struct { int chunks[TIERS], saved[TIERS], again, visits; } seen;

static int random_plan(void *arg, const ritz_planning *p, plan *out, pt_error *e)
{
    int failed = ritz_plan_init(p->space, out, e);
    if (failed)
        return failed;
    for (int c = 0; c < out->chunks_n; c++) {
        out->chunks[c].placement = (tier)random_tier(p);
        out->chunks[c].update = rand() % 2 && p->space->host_tier && out->chunks[c].placement != TIER_DEVICE ? TIER_HOST : TIER_DEVICE;
        seen.chunks[out->chunks[c].placement]++;
    }
    for (int g = 0; g < out->blocks_n; g++) {
        out->blocks[g].level = rand() % 2 ? SAVE_ALL : SAVE_INPUT;
        out->blocks[g].place = (tier)random_tier(p);
        seen.saved[out->blocks[g].place]++;
        seen.again += out->blocks[g].level == SAVE_INPUT;
    }
    out->n_buffer = 2 + rand() % 3; /* a group lies in two chunks at most */
    out->n_update = 1 + rand() % 3;
    out->n_swap = 2 + rand() % 4;
    out->visit = 1 + rand() % 5;
    seen.visits += out->visit > 1;
    out->micro_batch = out->visit * p->space->unit_rows;
    return 0;
}

static void run_with_stops(pt_ritz_options o, const int64_t *stops, int n, bool planned)
{
    for (int i = 0; i <= n; i++) {
        pt_error e = {0};
        pt_ritz *r;
        o.resume = i > 0;
        if (planned) {
            o.threads = 1 + rand() % 4;
            o.host_memory = rand() % 2 ? 256 << 20 : PT_AUTO;
            o.disk_memory = 256 << 20;
        }
        if (ritz_open(&o, planned ? random_plan : NULL, NULL, &r, &e))
            fail_msg("%s", e.text);
        train(r, (i < n ? stops[i] : o.steps) - r->step);
        for (int t = 0; t < TIERS && o.steps > 0 && r->step > r->first_step; t++)
            if (ritz_peak_bytes(r, (tier)t) != r->forecast.bytes[t])
                fail_msg("tier %d: %llu bytes were planned, and it took %llu", t, (unsigned long long)r->forecast.bytes[t],
                         (unsigned long long)ritz_peak_bytes(r, (tier)t));
        if (i < n ? pt_ritz_save(r, &e) : pt_ritz_finish(r, &e))
            fail_msg("%s", e.text);
        pt_ritz_close(r);
    }
}

/* Steps and energies of every line. */
static void same_metrics(const char *x, const char *y)
{
    size_t n, m;
    char *a = read_file(x, "metrics.jsonl", &n), *b = read_file(y, "metrics.jsonl", &m);
    const char *p = a, *q = b;
    for (; *p && *q; p = strchr(p, '\n') + 1, q = strchr(q, '\n') + 1)
        assert_int_equal(strncmp(p, q, strcspn(p, "l") - 1), 0);
    assert_true(!*p && !*q);
    free(a), free(b);
}

static pt_ritz_options random_run(int turn)
{
    static const char *const names[] = {"poisson-cosine", "schroedinger-jump", "harmonic"};
    pt_ritz_options o = small(names[turn % 3], 2 + rand() % 4);
    o.n = 400 + rand() % 4000;
    o.width = rand() % 4 ? 8 + rand() % 60 : 380 + rand() % 20; /* wide ones have several chunks */
    o.blocks = 1 + rand() % 3;
    o.dtype = (pt_ritz_dtype)(rand() % 2);
    o.points = (pt_ritz_points)(rand() % 4);
    o.plain = rand() % 3 == 0;
    o.redraw_every = rand() % 3;
    o.seed = (uint64_t)rand();
    o.save_every = rand() % 4;
    if (o.width > 100) {
        o.n = 300 + rand() % 500;
        o.steps = 5;
    }
    return o;
}

static void every_plan_and_every_resumed_run_have_the_same_bits(void **state)
{
    const char *given = getenv("PT_SAME_BITS_PLANS");
    const int plans = given ? atoi(given) : SANITIZED ? 4 : 12;
    for (int turn = 0; turn < plans; turn++) {
        pt_ritz_options o = random_run(turn);
        o.out = folder_of("straight");
        run_with_stops(o, NULL, 0, false);
        const char *straight = o.out;
        o.out = folder_of("planned");
        const int64_t first = rand() % (o.steps / 2), stops[2] = {first, first + rand() % (o.steps / 2)};
        run_with_stops(o, stops, 2, true);
        same_networks(straight, o.out);
        same_metrics(straight, o.out);
    }
    printf("%d plans: chunks on the device %d, host %d, disk %d; sets %d, %d, %d; %d groups again, %d plans with several units a visit\n",
           plans, seen.chunks[0], seen.chunks[1], seen.chunks[2], seen.saved[0], seen.saved[1], seen.saved[2], seen.again, seen.visits);
    assert_true(plans < 8 || (seen.again && seen.visits && seen.saved[TIER_DISK] && seen.chunks[TIER_DISK]));
}

/* ---- budgets ---- */

static pt_ritz_summary summary_of(pt_ritz_options o, bool run)
{
    pt_ritz_summary s;
    pt_ritz *r = open_run(&o);
    if (run)
        train(r, 1);
    pt_ritz_get_summary(r, &s);
    for (int t = 0; t < 3 && run; t++)
        assert_true(s.peak_bytes[t] == s.planned_bytes[t]);
    pt_ritz_close(r);
    return s;
}

/* What is planned is what is taken, and it is not more than may be: first more is computed again, then things lie elsewhere. */
static void budgets_are_kept(void **state)
{
    enum { MIB = 1 << 20 };
    pt_ritz_options o = small("poisson-cosine", 3);
    o.width = 400;
    o.blocks = 6;
    o.disk_memory = 0;
    o.steps = 1;
    const pt_ritz_summary all = summary_of(o, true);
    assert_true(all.recomputed_groups == 0 && all.chunks_on[0] == all.chunks && all.chunks > 3);
    o.device_memory = all.planned_bytes[0] - 1;
    const pt_ritz_summary tight = summary_of(o, true);
    assert_true(tight.recomputed_groups > 1 && tight.planned_bytes[0] <= o.device_memory);
    o.device_memory = 10 * MIB;
    o.host_memory = 64 * MIB;
    const pt_ritz_summary host = summary_of(o, true);
    assert_true(host.chunks_on[1] > 0 && !host.chunks_on[2] && host.planned_bytes[0] <= o.device_memory);
    o.host_memory = PT_AUTO;
    o.disk_memory = 64 * MIB;
    o.disk_path = scratch;
    const pt_ritz_summary disk = summary_of(o, true);
    assert_true(disk.chunks_on[2] > 0 && disk.planned_bytes[0] <= o.device_memory && disk.planned_bytes[2] <= o.disk_memory);
    o.host_memory = 14 * MIB;
    const pt_ritz_summary both = summary_of(o, true);
    assert_true(both.chunks_on[2] > 0 && both.planned_bytes[0] <= o.device_memory && both.planned_bytes[1] <= o.host_memory);
}

/* The planner's own plans under random budgets, too. */
static void every_budget_has_the_same_bits(void **state)
{
    const char *given = getenv("PT_SAME_BITS_PLANS");
    int fits = 0;
    for (int turn = 0; turn < 5 + (given ? atoi(given) / 4 : 0); turn++) {
        pt_ritz_options o = random_run(turn);
        o.width = 380 + rand() % 20;
        o.n = 300 + rand() % 500;
        o.steps = 2;
        o.out = folder_of("straight");
        run_with_stops(o, NULL, 0, false);
        const char *straight = o.out;
        o.out = folder_of("planned");
        o.device_memory = (uint64_t)(8 + rand() % 20) << 20;
        o.host_memory = rand() % 2 ? (uint64_t)(8 + rand() % 30) << 20 : PT_AUTO;
        o.micro_batch = rand() % 2 ? rand() % 2000 : 0;
        pt_error e = {0};
        pt_ritz *r;
        const int code = pt_ritz_open(&o, &r, &e);
        assert_true(!code || code == PT_DOES_NOT_FIT);
        if (code)
            continue;
        train(r, o.steps);
        assert_int_equal(pt_ritz_finish(r, &e), 0);
        pt_ritz_close(r);
        same_networks(straight, o.out);
        fits++;
    }
    assert_true(fits > 0);
}

/* A plan alone takes no memory and leaves nothing, and says what a run would. */
static void plans_say_what_a_run_does(void **state)
{
    pt_ritz_options o = small("schroedinger-cosine", 2);
    const pt_ritz_summary run = summary_of(o, true);
    o.plan_only = o.forecast = true;
    o.out = folder_of("nothing");
    const pt_ritz_summary said = summary_of(o, false);
    struct stat there;
    assert_true(said.predicted_step_s > 0 && said.planned_bytes[0] == run.planned_bytes[0] && !said.peak_bytes[0]);
    assert_int_equal(stat(o.out, &there), -1);
}

static void write_text(const char *path, const char *text)
{
    pt_error e = {0};
    assert_int_equal(file_write_atomic(path, text, strlen(text), &e), 0);
}

static void refused(pt_ritz_options o, int code, const char *words);

/* The plan of `text` with one part of it replaced. */
static void a_plan_is_refused(pt_ritz_options o, const char *text, const char *from, const char *to, int code, const char *words)
{
    const char *at = strstr(text, from);
    char *changed = calloc(1, strlen(text) + strlen(to) + 1);
    assert_non_null(at);
    sprintf(changed, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    write_text(o.plan_file, changed);
    free(changed);
    refused(o, code, words);
}

/* What is planned under small budgets is run as it is where there is plenty, to the byte; of other runs nothing is taken. */
static void a_plan_comes_from_a_file(void **state)
{
    pt_error e = {0};
    pt_ritz *r;
    pt_ritz_options o = small("poisson-cosine", 3);
    char path[128];
    o.width = 400;
    o.blocks = 6;
    o.steps = 2;
    o.device_memory = 10 << 20, o.host_memory = 64 << 20, o.disk_memory = 0;
    o.out = folder_of("planned");
    const char *planned = o.out;
    r = open_run(&o);
    char *text = pt_ritz_plan_json(r);
    train(r, o.steps);
    pt_ritz_summary is, taken;
    pt_ritz_get_summary(r, &is);
    assert_int_equal(pt_ritz_finish(r, &e), 0);
    pt_ritz_close(r);
    assert_true(is.chunks_on[1] > 0);

    o.device_memory = 1 << 30;
    snprintf(path, sizeof path, "%s/plan.json", scratch);
    write_text(path, text);
    o.plan_file = path;
    o.out = folder_of("from a file");
    r = open_run(&o);
    train(r, o.steps);
    pt_ritz_get_summary(r, &taken);
    for (int t = 0; t < 3; t++)
        assert_true(taken.planned_bytes[t] == is.planned_bytes[t] && taken.peak_bytes[t] == is.planned_bytes[t] &&
                    taken.chunks_on[t] == is.chunks_on[t]);
    assert_int_equal(pt_ritz_finish(r, &e), 0);
    pt_ritz_close(r);
    same_networks(planned, o.out);

    o.out = NULL;
    a_plan_is_refused(o, text, "deep_ritz", "llama", PT_FAILED, "not for a Deep Ritz network");
    a_plan_is_refused(o, text, "\"hidden\": 400", "\"hidden\": 401", PT_FAILED, "\"hidden\" 401, but here it is 400");
    a_plan_is_refused(o, text, "\"visit\": ", "\"visit\": 7", PT_FAILED, "\"visit\" is 7");
    a_plan_is_refused(o, text, "\"update\": \"end\"", "\"update\": \"backward\"", PT_FAILED, "must be \"end\"");
    a_plan_is_refused(o, text, "\"fp32\"", "\"fp64\"", PT_FAILED, "another `dtype` than fp32");
    a_plan_is_refused(o, text, "\"n_swap\": ", "\"n_swap\": 0, \"n_none\": ", PT_FAILED, "\"n_none\" is unknown");
    write_text(path, text);
    o.host_memory = PT_AUTO;
    refused(o, PT_FAILED, "give `host_memory`");
    o.host_memory = 1 << 20;
    refused(o, PT_DOES_NOT_FIT, "of host memory, but the budget is 1.00 MiB");
    o.micro_batch = 100;
    refused(o, PT_USAGE, "the `micro_batch` is the plan's");
    free(text);
}

/* ---- kills ---- */

static int run_program(const char *out, bool resume, int kill_after_us)
{
    const pid_t child = fork();
    if (child == 0) {
        const int null = open("/dev/null", O_WRONLY);
        dup2(null, 1), dup2(null, 2);
        execl(PT_PROGRAM, PT_PROGRAM, "ritz", "--dim", "2", "--n", "700", "--width", "24", "--blocks", "2", "--steps", "150",
              "--save-every", "7", "--quiet",
              "--device", "cpu", "--out", out, resume ? "--resume" : NULL, NULL);
        _exit(127);
    }
    int status;
    if (kill_after_us) {
        usleep((useconds_t)kill_after_us);
        kill(child, SIGKILL);
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* What `protrain plan --problem` says with these options; returns its exit status. */
static int plan_of(const char *options, char out[4096])
{
    char command[512];
    snprintf(command, sizeof command, "%s plan --problem schroedinger-cosine --dim 2 --device cpu %s 2>/dev/null", PT_PROGRAM, options);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    out[fread(out, 1, 4095, f)] = '\0';
    return WEXITSTATUS(pclose(f));
}

static void the_program_plans(void **state)
{
    char said[4096];
    assert_int_equal(plan_of("--n 512 --width 16", said), 0);
    assert_true(strstr(said, "512 points a step") && strstr(said, " of device memory") && strstr(said, "step    about "));
    assert_int_equal(plan_of("--n 512 --width 16 --json", said), 0);
    assert_true(strstr(said, "{\"fits\": true, \"predicted\": {\"step_s\": ") && strstr(said, "\"disk\": 0}}"));
    assert_non_null(strstr(said, "\"model_type\": \"deep_ritz\""));
    assert_int_equal(plan_of("--width 512 --device-memory 1MiB --disk-memory 0 --json", said), 3);
    assert_true(strstr(said, "{\"fits\": false, \"missing_bytes\": ") && strstr(said, "the budget is 1.00 MiB"));
    char options[160] = "--width 512 --disk-memory 0 --json ";
    const char *change = strstr(said, "--device-memory ");
    assert_non_null(change);
    snprintf(options + strlen(options), sizeof options - strlen(options), "%.*s", (int)strcspn(change, "\","), change);
    assert_int_equal(plan_of(options, said), 0);
}

static void a_killed_run_goes_on_as_if_nothing_had_been(void **state)
{
    const char *given = getenv("PT_KILLS");
    const int kills = given ? atoi(given) : 6;
    const char *straight = folder_of("whole"), *killed = folder_of("killed");
    assert_int_equal(run_program(straight, false, 0), 0);
    for (int i = 0; i < kills; i++)
        run_program(killed, i > 0, 20000 + rand() % 150000);
    assert_int_equal(run_program(killed, true, 0), 0);
    same_networks(straight, killed);
}

/* ---- what is refused ---- */

static void refused(pt_ritz_options o, int code, const char *words)
{
    pt_error e = {0};
    pt_ritz *r;
    pt_ritz_step_info s;
    int got = pt_ritz_open(&o, &r, &e);
    if (!got) {
        got = pt_ritz_step(r, &s, &e);
        pt_ritz_close(r);
    }
    if (got != code || !strstr(e.text, words))
        fail_msg("code %d, not %d; \"%s\" is not in \"%s\"", got, code, words, e.text);
}

static void not_a_number(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = i == 3 ? NAN : 0;
}

static void what_cannot_be_done_is_said(void **state)
{
    pt_ritz_options o = small("poisson-cosine", 2);
    o.n = 0;
    refused(o, PT_USAGE, "`n` is 0");
    o = small("poisson", 2);
    refused(o, PT_USAGE, "one of poisson-cosine, schroedinger-cosine");
    o = small("poisson-cosine", 2);
    o.lr = 0;
    refused(o, PT_USAGE, "`lr` is 0");
    o = small("poisson-cosine", 30000);
    o.points = PT_RITZ_SOBOL;
    refused(o, PT_USAGE, "1 to 21201 dimensions");
    o = small("poisson-cosine", 2);
    o.device_memory = 1000;
    refused(o, PT_DOES_NOT_FIT, "even with everything recomputed, but the budget is 1000 B");
    const double zero[] = {0, 0}, flat[] = {1, 0};
    pt_ritz_problem own = {.dim = 2, .lower = zero, .upper = flat, .f = not_a_number};
    o = small(NULL, 0);
    o.own = &own;
    refused(o, PT_FAILED, "the box is empty: along x2 it goes from 0 to 0");
    own.upper = NULL, own.lower = NULL;
    refused(o, PT_FAILED, "own: f is nan at x = (");
    o = small("poisson-cosine", 2);
    o.lr = 900;
    o.lr_schedule = PT_RITZ_LR_CONSTANT;
    o.activation = PT_RITZ_RELU3;
    pt_ritz *r = open_run(&o);
    pt_error e = {0};
    pt_ritz_step_info s;
    int more;
    while ((more = pt_ritz_step(r, &s, &e)) > 0)
        ;
    assert_true(more == PT_FAILED && strstr(e.text, "lower `lr`"));
    pt_ritz_close(r);
}

static void other_runs_are_not_resumed(void **state)
{
    pt_error e = {0};
    pt_ritz_options o = small("poisson-cosine", 2);
    o.out = folder_of("other");
    run_with_stops(o, NULL, 0, false);
    refused(o, PT_FAILED, "already holds a run");
    o.resume = true;
    o.n = 601;
    refused(o, PT_FAILED, "n was 600 and is now 601");
    o.n = 600;
    o.width = 17;
    refused(o, PT_FAILED, "width was 16 and is now 17");
    pt_ritz *r;
    if (pt_ritz_load(o.out, 1, &r, &e))
        fail_msg("%s", e.text);
    const double x[2] = {0.25, 0.5};
    double u, g[2];
    assert_int_equal(pt_ritz_evaluate(r, 1, x, &u, g, &e), 0);
    assert_true(isfinite(u) && isfinite(g[0]));
    pt_ritz_close(r);
    assert_int_equal(pt_ritz_load(scratch, 1, &r, &e), PT_FAILED);
}

/* Of a finished run, and of one that has no network yet. */
static void a_folder_has_a_page(void **state)
{
    pt_error e = {0};
    pt_ritz_options o = small("schroedinger-cosine", 2);
    o.out = folder_of("page");
    o.eval_every = 4;
    run_with_stops(o, NULL, 0, false);
    assert_true(ritz_is_run(o.out) && !ritz_is_run(scratch));
    for (int finished = 1; finished >= 0; finished--) {
        char path[FILE_PATH_BYTES];
        size_t n;
        assert_int_equal(path_join(path, o.out, "page.html", &e), 0);
        assert_int_equal(ritz_page_of_folder(o.out, path, &e), 0);
        char *page = read_file(o.out, "page.html", &n);
        assert_true(strstr(page, "relative errors") && strstr(page, "time of a step") && strstr(page, " of the device planned, "));
        assert_true(!strstr(page, "along the diagonal") == !finished && !strstr(page, ">exact<") == !finished);
        free(page);
        assert_int_equal(path_join(path, o.out, "config.json", &e), 0);
        remove(path);
    }
}

static int setup(void **state)
{
    const char *given = getenv("PT_TEST_SEED");
    const unsigned seed = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("PT_TEST_SEED=%u\n", seed);
    srand(seed);
    snprintf(scratch, sizeof scratch, "/tmp/test-ritz-XXXXXX");
    return mkdtemp(scratch) ? 0 : -1;
}

static int teardown(void **state)
{
    pt_error e;
    return tree_remove(scratch, &e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_energy_exceeds_the_exact_one_by_half_the_squared_error),
        cmocka_unit_test(a_run_reaches_the_exact_energy),
        cmocka_unit_test(gradients_are_the_energys_differences),
        cmocka_unit_test(the_gradient_of_scrambled_nets_varies_less),
        cmocka_unit_test(every_plan_and_every_resumed_run_have_the_same_bits),
        cmocka_unit_test(budgets_are_kept),
        cmocka_unit_test(every_budget_has_the_same_bits),
        cmocka_unit_test(plans_say_what_a_run_does),
        cmocka_unit_test(a_plan_comes_from_a_file),
        cmocka_unit_test(the_program_plans),
        cmocka_unit_test(a_killed_run_goes_on_as_if_nothing_had_been),
        cmocka_unit_test(what_cannot_be_done_is_said),
        cmocka_unit_test(other_runs_are_not_resumed),
        cmocka_unit_test(a_folder_has_a_page),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
