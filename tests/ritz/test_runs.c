/* Runs: killed and resumed, refused, and the pages of what they leave. */
#include "ritz/page.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ritz/runs.h"

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

static void not_a_number(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = i == 3 ? NAN : 0;
}

static void a_line(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i * dim];
}

static void too_large(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = 1e200;
}

static void what_cannot_be_done_is_said(void **state)
{
    pt_ritz_options o = small("poisson-cosine", 2);
    o.n = 0;
    refused(o, PT_USAGE, "`n` is 0");
    o = small("poisson-cosine", 2);
    o.activation = (pt_ritz_activation)6;
    refused(o, PT_USAGE, "`activation` is 6");
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
    own.f = NULL, own.exact = not_a_number;
    pt_ritz *r;
    pt_error e = {0};
    assert_int_equal(pt_ritz_open(&o, &r, &e), PT_FAILED); /* long before it is needed */
    assert_non_null(strstr(e.text, "own: exact is nan at x = ("));
    o.steps = 1;
    own.exact = a_line, own.exact_gradient = not_a_number;
    refused(o, PT_FAILED, "own: the gradient of exact is nan at x = (");
    own.exact = too_large, own.exact_gradient = NULL;
    refused(o, PT_FAILED, "own: exact or the network has values whose squares are not finite");
    o = small("poisson-cosine", 2);
    o.lr = 900;
    o.lr_schedule = PT_RITZ_LR_CONSTANT;
    o.activation = PT_RITZ_RELU3;
    r = open_run(&o);
    pt_ritz_step_info s;
    int more;
    while ((more = pt_ritz_step(r, &s, &e)) > 0)
        ;
    assert_true(more == PT_FAILED && strstr(e.text, "lower `lr`") && !strstr(e.text, "checkpoints"));
    pt_ritz_close(r);
    own = (pt_ritz_problem){.dim = 2, .f = too_large};
    o = small(NULL, 0);
    o.own = &own;
    r = open_run(&o);
    while ((more = pt_ritz_step(r, &s, &e)) > 0)
        ;
    assert_true(more == PT_FAILED && strstr(e.text, "for f or V reaches 1e+200: scale the problem, or give `dtype` fp64"));
    pt_ritz_close(r);
    o = small("poisson-cosine", 2);
    o.n = INT64_C(1) << 31;
    o.device_memory = 1 << 30;
    refused(o, PT_DOES_NOT_FIT, "or lower `n` or the dimension");
    o = small("poisson-cosine", 257);
    o.boundary_weight = 3;
    refused(o, PT_USAGE, "`boundary_weight` belongs to `loss` residual");
    o.loss = PT_RITZ_LOSS_RESIDUAL;
    refused(o, PT_USAGE, "with the residual loss there can be 256 dimensions");
    own = (pt_ritz_problem){.dim = 2, .equation = PT_RITZ_EIGENVALUE, .boundary = PT_RITZ_HARD, .concurrent = true};
    o.problem = NULL, o.own = &own, o.dim = 0;
    refused(o, PT_USAGE, "an eigenvalue problem has no residual loss");
}

/* Nothing that is there is lost. */
static void other_folders_are_left_alone(void **state)
{
    static const char *const names[] = {"metrics.jsonl", "config.json", "network.safetensors"};
    pt_error e = {0};
    char path[FILE_PATH_BYTES];
    pt_ritz_options o = small("poisson-cosine", 2);
    for (int i = 0; i < 3; i++)
        for (int resume = i ? 0 : 1; resume < 2; resume++) {
            o.out = folder_of("theirs");
            o.resume = resume;
            assert_int_equal(dir_make(o.out, &e), 0);
            assert_int_equal(path_join(path, o.out, names[i], &e), 0);
            assert_int_equal(file_write_atomic(path, "theirs", 6, &e), 0);
            if (i)
                refused(o, PT_FAILED, names[i]);
            else
                pt_ritz_close(open_run(&o)); /* as a run that was killed before its first checkpoint leaves it */
        }
    o.out = folder_of("checkpoint");
    o.resume = false;
    run_with_stops(o, NULL, 0, NULL);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(path_join(path, o.out, names[i], &e), 0);
        assert_int_equal(remove(path), 0);
    }
    refused(o, PT_FAILED, "already holds a run (checkpoints)");
}

/* ---- notices ---- */

static void keep_notice(void *arg, const char *sentence)
{
    char *said = arg;
    snprintf(said + strlen(said), 600 - strlen(said), "%s\n", sentence);
}

static void notices_of(pt_ritz_options o, const char *words)
{
    char said[600] = "";
    o.notice = keep_notice;
    o.arg = said;
    pt_ritz_close(open_run(&o));
    if (words ? !strstr(said, words) : said[0])
        fail_msg("\"%s\" is not \"%s\"", words ? words : "", said);
}

static void points_that_are_not_as_asked_are_told(void **state)
{
    pt_ritz_options o = small("harmonic", 4);
    o.n = 512;
    notices_of(o, NULL);
    o.n = 513;
    notices_of(o, "`n` is 513, not a power of two");
    o.n = 512;
    o.n_boundary = 512;
    notices_of(o, NULL);
    o.n_boundary = 3;
    notices_of(o, "`n_boundary` is 3, but each of the 8 faces has 1 point, 8 together");
    o.n_boundary = 50;
    notices_of(o, "each of the 8 faces has 6 points, not a power of two: give `n_boundary` 64 for 8 each");
    o.points = PT_RITZ_MC;
    notices_of(o, "each of the 8 faces has 6 points, 48 together");
    o = small("poisson-cosine", 4);
    o.n = 512;
    o.n_boundary = 512;
    notices_of(o, "`n_boundary` has no effect");
    o.n_boundary = 0;
    o.save_every = 3;
    notices_of(o, "`save_every` has no effect without `out`");
}

/* ---- points that the compute threads make ---- */

static void with_a_hole(void *arg, int64_t n, int64_t dim, const double *x, double *out)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = x[i * dim] < *(const double *)arg ? NAN : cos(3 * x[i * dim]) + x[i * dim + 1];
}

/* The hole is there from the first step on. */
static void ends_with(const pt_ritz_options *o, double *hole, char *message, size_t bytes)
{
    pt_error e = {0};
    pt_ritz_step_info s;
    *hole = 0;
    pt_ritz *r = open_run(o);
    *hole = 0.02;
    assert_int_equal(pt_ritz_step(r, &s, &e), PT_FAILED);
    snprintf(message, bytes, "%s", e.text);
    pt_ritz_close(r);
}

static void it_does_not_matter_which_threads_make_points(void **state)
{
    static const char text[] = "{\"equation\": \"schroedinger\", \"dim\": 2, \"V\": \"x1 < 0.4 ? 3 : exp(x2)\", "
                               "\"f\": \"sin(5 * x1) + x2^2\"}";
    char file[128], messages[2][sizeof ((pt_error *)0)->text];
    double hole = 0;
    pt_error e = {0};
    pt_ritz_problem own = {.dim = 2, .equation = PT_RITZ_SCHROEDINGER, .f = with_a_hole, .V = with_a_hole, .arg = &hole};
    snprintf(file, sizeof file, "%s/points.json", scratch);
    assert_int_equal(file_write_atomic(file, text, sizeof text - 1, &e), 0);
    for (int k = 0; k < 2; k++) {
        const char *folders[2] = {folder_of("caller"), folder_of("threads")};
        pt_ritz_options o = small(k ? file : NULL, 0);
        o.own = &own;
        for (int i = 0; i < 2; i++) {
            own.concurrent = i;
            o.threads = i ? 4 : 1;
            o.out = folders[i];
            run_with_stops(o, NULL, 0, NULL);
        }
        same_networks(folders[0], folders[1]);
    }
    for (int i = 0; i < 2; i++) {
        pt_ritz_options o = small(NULL, 0);
        o.own = &own;
        o.threads = 4;
        own.concurrent = i;
        ends_with(&o, &hole, messages[i], sizeof messages[i]);
    }
    assert_non_null(strstr(messages[0], "own: f is nan at x = ("));
    assert_string_equal(messages[0], messages[1]);
}

static void other_runs_are_not_resumed(void **state)
{
    pt_error e = {0};
    pt_ritz_options o = small("poisson-cosine", 2);
    o.out = folder_of("other");
    run_with_stops(o, NULL, 0, NULL);
    refused(o, PT_FAILED, "already holds a run");
    o.resume = true;
    o.n = 601;
    refused(o, PT_FAILED, "n was 600 and is now 601");
    o.n = 600;
    o.width = 17;
    refused(o, PT_FAILED, "width was 16 and is now 17");
    o.width = 16;
    o.lr *= 2;
    refused(o, PT_FAILED, "lr was ");
    o.lr /= 2;
    o.beta1 = 0.5;
    refused(o, PT_FAILED, "beta1 was ");
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

static void put_problem(const char *path, const char *f, const char *box)
{
    pt_error e = {0};
    char text[200];
    const int n = snprintf(text, sizeof text, "{\"equation\": \"schroedinger\", \"dim\": 2, \"V\": \"1\", \"f\": \"%s\"%s}", f, box);
    assert_int_equal(file_write_atomic(path, text, (size_t)n, &e), 0);
}

/* What is in the problem's file counts, not where it lies. */
static void other_problems_are_not_resumed(void **state)
{
    char file[128], moved[128];
    pt_ritz_options o = small(file, 0);
    snprintf(file, sizeof file, "%s/problem.json", scratch);
    snprintf(moved, sizeof moved, "%s/moved.json", scratch);
    put_problem(file, "x1", "");
    o.out = folder_of("problem");
    run_with_stops(o, NULL, 0, NULL);
    o.resume = true;
    put_problem(file, "x2", "");
    refused(o, PT_FAILED, "f was \"x1\" and is now \"x2\"");
    put_problem(file, "x1", ", \"upper\": [1, 2]");
    refused(o, PT_FAILED, "upper was 1.0 and is now [1.0, 2.0]");
    put_problem(file, "x1", ", \"boundary\": \"dirichlet\"");
    refused(o, PT_FAILED, "boundary was \"neumann\" and is now \"dirichlet\"");
    put_problem(moved, "x1", "");
    o.problem = moved;
    o.steps += 2;
    pt_ritz *r = open_run(&o);
    train(r, 2);
    pt_ritz_close(r);
}

/* Of a finished run, and of one that has no network yet. */
/* ---- what is wrong is said ---- */

static void ill_posed_problems_are_named(void **state)
{
    static const struct { const char *text, *says; bool refused; } all[] = {
        {"\"f\": \"1 + cos(pi*x1)\"", "the integral of f plus that of g over the boundary must be 0, but it is ", false},
        {"\"equation\": \"schroedinger\", \"f\": \"cos(pi*x1)\"", "without V, and without values on the boundary", true},
        {"\"equation\": \"schroedinger\", \"V\": \"-1\"", "the energy has no minimum, for the integral of V is -1", true},
        {"\"equation\": \"schroedinger\", \"V\": \"x1 < 0.3 ? -2 : 5\"", "V falls to -2", false},
        {"\"f\": \"pi^2*cos(pi*x1)\", \"exact\": \"1.1*cos(pi*x1)\"", "exact does not solve the equation", false},
        {"\"f\": \"pi^2*cos(pi*x1)\", \"exact\": \"1+cos(pi*x1)\"", "exact has the integral ", false},
        {"\"f\": \"pi^2*cos(pi*x1)\", \"exact\": \"cos(pi*x1)\", \"energy\": -2.6", "the energy of exact is -2.46", false},
        {"\"f\": \"pi^2*cos(pi*x1)\", \"exact\": \"cos(pi*x1)\", \"energy\": -2.4674", NULL, false},
        {"\"boundary\": \"dirichlet\", \"g\": \"x1\", \"exact\": \"x1+0.1\"", "exact differs from g on the boundary", false},
        {"\"boundary\": \"dirichlet\", \"f\": \"1\", \"g\": \"0\", \"exact\": \"sin(pi*x1)*sin(pi*x2)\"", "exact does not solve", false},
        {"\"f\": \"1e4*cos(pi*x1)\"", "u is expected to be about ", false},
        {"\"upper\": 1000, \"equation\": \"schroedinger\", \"V\": \"1\", \"f\": \"1\"", "the box has sides from 1e+03", false},
        {"\"a\": \"x1 - 0.1\"", "but must be positive everywhere", true},
        {"\"boundary\": \"robin\", \"r\": \"-1\"", "the integral of V plus that of r over the boundary is -4", true},
        {"\"boundary\": \"robin\", \"r\": \"0\"", "give r, or a neumann boundary", true},
        {"\"equation\": \"schroedinger\", \"V\": \"-100\", \"boundary\": \"hard\"",
         "for a test function v: the energy of its multiples falls", true},
        {"\"equation\": \"schroedinger\", \"V\": \"-15\", \"boundary\": \"hard\"", "V falls to -15", false},
        {"\"equation\": \"eigenvalue\"", "the smallest eigenvalue is 0, that of constants", false},
        {"\"G\": \"-u^4/4\", \"dG\": \"-u^3\"", "G falls faster than u^2", false},
        {"\"G\": \"u^4/4\", \"dG\": \"u^3\"", NULL, false},
        {"\"boundary\": \"hard\", \"g\": \"x1\", \"exact\": \"x2\"", "exact differs from g on the hard boundary", false},
        {"\"boundary\": \"hard\", \"g\": \"x1\", \"exact\": \"x1\"", NULL, false},
        {"\"boundary\": \"hard\", \"f\": \"2*pi^2*sin(pi*x1)*sin(pi*x2)\", \"exact\": \"sin(pi*x1)*sin(pi*x2)\"", NULL, false},
        {"\"boundary\": \"dirichlet\", \"f\": \"1\"", "give `penalty_ramp` 6, or a hard boundary", false},
        {"\"boundary\": \"dirichlet\", \"f\": \"1\", \"penalty\": 50", NULL, false},
        {"\"equation\": \"schroedinger\", \"V\": \"1\", \"G\": \"u^4/4\", \"dG\": \"u^2\"", "dG is not the derivative of G", true}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[128], text[300];
        pt_error e = {0};
        snprintf(path, sizeof path, "%s/ill.json", scratch);
        const int n = snprintf(text, sizeof text, "{\"dim\": 2, %s}", all[i].text);
        assert_int_equal(file_write_atomic(path, text, (size_t)n, &e), 0);
        pt_ritz_options o = small(path, 0);
        o.n = 64;
        if (all[i].refused)
            refused(o, PT_FAILED, all[i].says);
        else
            notices_of(o, all[i].says);
    }
}

/* ---- L-BFGS, and another run's network ---- */

/* It goes far below AdamW, and repeats itself after a kill; a run that begins with the network has its energy. */
static void a_run_can_end_with_lbfgs_and_begin_with_another(void **state)
{
    const char *folders[2] = {folder_of("polished"), folder_of("again")};
    pt_ritz_options o = small("schroedinger-cosine", 2);
    pt_ritz_step_info s[2], more;
    pt_error e = {0};
    int64_t iterations;
    o.dtype = PT_RITZ_FP64;
    o.n = 1024;
    o.steps = 30;
    o.lr = 1e-2;
    o.lbfgs_steps = 60;
    for (int i = 0; i < 2; i++) {
        o.out = folders[i];
        pt_ritz *r = open_run(&o);
        train(r, 30);
        if (i) { /* as if killed */
            assert_int_equal(pt_ritz_save(r, &e), 0);
            pt_ritz_close(r);
            o.resume = true;
            r = open_run(&o);
        }
        if (pt_ritz_polish(r, &iterations, &s[i], &e) || pt_ritz_finish(r, &e))
            fail_msg("%s", e.text);
        assert_true(iterations > 20 && s[i].evaluated && s[i].l2_error < 0.05);
        pt_ritz_close(r);
    }
    same_networks(folders[0], folders[1]);
    pt_ritz *r = open_run(&o);
    assert_true(!pt_ritz_polish(r, &iterations, &more, &e) && !iterations); /* it is done */
    pt_ritz_close(r);
    o.resume = false;
    o.out = NULL;
    o.init_run = folders[0];
    o.lbfgs_steps = 0;
    r = open_run(&o);
    pt_ritz_energy energy;
    assert_int_equal(pt_ritz_estimate_energy(r, (int)o.energy_sets, o.eval_n, &energy, &e), 0);
    assert_true(energy.energy == s[0].estimate.energy);
    pt_ritz_close(r);
    o.width = 17;
    assert_int_equal(pt_ritz_open(&o, &r, &e), PT_FAILED);
    o.init_run = scratch;
    refused(o, PT_USAGE, "has no network.safetensors");
}

static void a_folder_has_a_page(void **state)
{
    pt_error e = {0};
    pt_ritz_options o = small("schroedinger-cosine", 2);
    o.out = folder_of("page");
    o.eval_every = 4;
    o.loss = (pt_ritz_loss)(rand() % 2);
    run_with_stops(o, NULL, 0, NULL);
    assert_true(ritz_is_run(o.out) && !ritz_is_run(scratch));
    for (int finished = 1; finished >= 0; finished--) {
        char path[FILE_PATH_BYTES];
        size_t n;
        assert_int_equal(path_join(path, o.out, "page.html", &e), 0);
        assert_int_equal(ritz_page_of_folder(o.out, path, &e), 0);
        char *page = read_file(o.out, "page.html", &n);
        assert_true(strstr(page, "relative errors") && strstr(page, "time of a step") && strstr(page, " of the device planned, "));
        assert_true(!strstr(page, "residual loss") == (o.loss == PT_RITZ_LOSS_ENERGY));
        assert_true(!strstr(page, "along the diagonal") == !finished && !strstr(page, ">exact<") == !finished);
        free(page);
        assert_int_equal(path_join(path, o.out, "config.json", &e), 0);
        remove(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_goes_on_as_if_nothing_had_been),
        cmocka_unit_test(what_cannot_be_done_is_said),
        cmocka_unit_test(other_folders_are_left_alone),
        cmocka_unit_test(points_that_are_not_as_asked_are_told),
        cmocka_unit_test(it_does_not_matter_which_threads_make_points),
        cmocka_unit_test(other_runs_are_not_resumed),
        cmocka_unit_test(other_problems_are_not_resumed),
        cmocka_unit_test(ill_posed_problems_are_named),
        cmocka_unit_test(a_run_can_end_with_lbfgs_and_begin_with_another),
        cmocka_unit_test(a_folder_has_a_page),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
