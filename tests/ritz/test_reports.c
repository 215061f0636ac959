/* The calls of protrain_ritz.h for what runs leave: pages, comparisons, variances of the gradient. */
#include "ritz/page.h"

#include "ritz/runs.h"

#include <math.h>

static const char *path_in(const char *folder, const char *name)
{
    static char path[FILE_PATH_BYTES];
    pt_error e = {0};
    assert_int_equal(path_join(path, folder, name, &e), 0);
    return path;
}

static void make_run(const char *folder, pt_ritz_points points, uint64_t seed, bool finish)
{
    pt_error e = {0};
    pt_ritz_options o = small("poisson-cosine", 2);
    o.n = 64;
    o.eval_every = 4;
    o.points = points;
    o.seed = seed;
    o.out = folder;
    pt_ritz *r = open_run(&o);
    train(r, finish ? o.steps : o.steps / 2);
    if (finish && pt_ritz_finish(r, &e))
        fail_msg("%s", e.text);
    pt_ritz_close(r);
}

/* The last one of a run. */
static double l2_error_of(const char *folder)
{
    double *columns;
    pt_error e = {0};
    const int n = ritz_read_metrics(folder, "l2_error", &columns, &e);
    assert_true(n > 0);
    const double last = columns[2 * n - 1];
    free(columns);
    return last;
}

/* pt_ritz_report_json, until the next call. */
static const char *json_again(const char *folder)
{
    static char text[4096];
    pt_error e = {0};
    char *json;
    assert_int_equal(pt_ritz_report_json(folder, &json, &e), 1);
    snprintf(text, sizeof text, "%s", json);
    free(json);
    return text;
}

static void points_have_names(void **state)
{
    static const char *const names[PT_RITZ_KINDS] = {"mc", "sobol", "halton", "lattice"};
    for (int k = 0; k < PT_RITZ_KINDS; k++)
        assert_string_equal(pt_ritz_points_name((pt_ritz_points)k), names[k]);
    assert_null(pt_ritz_points_name((pt_ritz_points)PT_RITZ_KINDS));
    assert_null(pt_ritz_points_name((pt_ritz_points)-1));
}

/* Two runs with mc, one with sobol, and a third with mc that was not finished. */
static void a_comparison_is_read(void **state)
{
    pt_error e = {0};
    pt_ritz_comparison rows[PT_RITZ_SETS];
    char folder[128], run[160], *page;
    size_t n;
    double l2[2];
    snprintf(folder, sizeof folder, "%s", folder_of("compared"));
    assert_int_equal(dir_make(folder, &e), 0);
    assert_int_equal(pt_ritz_compared(folder, rows, &e), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(run, sizeof run, "%s/%s-%d", folder, i == 2 ? "sobol" : "mc", i == 3 ? 2 : i % 2);
        make_run(run, i == 2 ? PT_RITZ_SOBOL : PT_RITZ_MC, (uint64_t)i, i < 3);
        if (i < 2)
            l2[i] = l2_error_of(run);
    }
    assert_int_equal(pt_ritz_compared(folder, rows, &e), 2);
    assert_true(rows[0].points == PT_RITZ_MC && rows[0].seeds == 2 && rows[0].steps == 12);
    assert_true(rows[1].points == PT_RITZ_SOBOL && rows[1].seeds == 1 && rows[1].l2_least == rows[1].l2_largest);
    assert_true(rows[0].l2_least == fmin(l2[0], l2[1]) && rows[0].l2_largest == fmax(l2[0], l2[1]));
    assert_true(rows[0].l2_median == 0.5 * (l2[0] + l2[1]) && rows[0].h1_median > 0);

    assert_non_null(strstr(json_again(folder), "{\"kinds\": [{\"points\": \"mc\", \"seeds\": 2, \"steps\": 12, "));
    assert_int_equal(pt_ritz_report(folder, NULL, &e), 1);
    page = read_file(folder, "report.html", &n);
    assert_non_null(strstr(page, "<h1>poisson-cosine</h1>"));
    assert_non_null(strstr(page, "<p>64 points a step, 12 steps, 2 seeds</p>"));
    const char *figures[] = {"relative L2 error: median", "relative H1 error: median", "energy: median"}, *at = page;
    for (int i = 0; i < 3; i++)
        assert_non_null(at = strstr(at, figures[i]));
    free(page);
}

/* pt_ritz_finish writes the same page as pt_ritz_report, except for what it knows of the run besides. */
static void a_run_has_a_page(void **state)
{
    pt_error e = {0};
    char *page, folder[128];
    size_t n;
    snprintf(folder, sizeof folder, "%s", folder_of("run"));
    make_run(folder, PT_RITZ_SOBOL, 1, true);
    page = read_file(folder, "report.html", &n);
    assert_true(strstr(page, "64 sobol points a step") && strstr(page, "along the diagonal"));
    free(page);
    assert_int_equal(pt_ritz_report(folder, path_in(folder, "again.html"), &e), 1);
    page = read_file(folder, "again.html", &n);
    assert_non_null(strstr(page, "along the diagonal"));
    free(page);
    assert_true(strstr(json_again(folder), "\"steps\": 12") && strstr(json_again(folder), "\"notes\": []"));
    page = read_file(folder, "summary.json", &n);
    assert_string_equal(page, json_again(folder));
    free(page);
    assert_int_equal(file_write_atomic(path_in(folder, "network.safetensors"), "cut off", 7, &e), 0);
    assert_int_equal(pt_ritz_report(folder, path_in(folder, "again.html"), &e), 1);
    page = read_file(folder, "again.html", &n);
    assert_true(strstr(page, "The page lacks the solution: ") && strstr(page, "network.safetensors"));
    assert_null(strstr(page, "along the diagonal"));
    free(page);
    assert_non_null(strstr(json_again(folder), "network.safetensors"));
    assert_int_equal(pt_ritz_report(folder, path_in(folder, "no/page.html"), &e), PT_FAILED);
    assert_non_null(strstr(e.text, "no/page.html"));
}

static void variances_have_a_page(void **state)
{
    enum { SIZES = 3 };
    pt_error e = {0};
    pt_ritz_options o = small("schroedinger-cosine", 2);
    double n[SIZES], v[2][SIZES], square;
    size_t bytes;
    char folder[128];
    o.n = 128;
    pt_ritz *r = open_run(&o);
    for (int i = 0; i < SIZES; i++)
        for (int k = 0; k < 2; k++) {
            n[i] = 32 << i;
            if (pt_ritz_gradient_variance(r, k ? PT_RITZ_SOBOL : PT_RITZ_MC, 32 << i, 8, &v[k][i], &square, &e))
                fail_msg("%s", e.text);
            assert_true(v[k][i] > 0 && square > 0);
        }
    assert_int_equal(pt_ritz_gradient_variance(r, PT_RITZ_MC, 32, 1, &square, NULL, &e), PT_USAGE);
    assert_int_equal(pt_ritz_gradient_variance(r, PT_RITZ_MC, 129, 4, &square, NULL, &e), PT_USAGE);
    pt_ritz_close(r);
    assert_true(isnan(pt_ritz_slope(1, n, v[0])) && fabs(pt_ritz_slope(SIZES, n, (const double[]){8, 2, 0.5}) + 2) < 1e-12);

    pt_ritz_variances figure = {.title = "at the start", .sizes = SIZES, .n = n, .kinds = 2, .points = {PT_RITZ_MC, PT_RITZ_SOBOL},
                                .variance = {v[0], v[1]}};
    snprintf(folder, sizeof folder, "%s", folder_of("made/variances"));
    if (pt_ritz_variance_report(folder, "a & b", &figure, 1, &e))
        fail_msg("%s", e.text);
    char *page = read_file(folder, "report.html", &bytes), curve[64];
    snprintf(curve, sizeof curve, "sobol, slope %.2f", pt_ritz_slope(SIZES, n, v[1]));
    assert_true(strstr(page, "<h1>a &amp; b</h1>") && strstr(page, "at the start") && strstr(page, curve));
    free(page);
    figure.kinds = PT_RITZ_SETS + 1;
    assert_int_equal(pt_ritz_variance_report(folder, "x", &figure, 1, &e), PT_USAGE);
    figure.kinds = 2;
    figure.variance[1] = NULL;
    assert_int_equal(pt_ritz_variance_report(folder, "x", &figure, 1, &e), PT_USAGE);
    assert_int_equal(pt_ritz_variance_report(folder, "x", &figure, 0, &e), PT_USAGE);
    figure.variance[1] = v[1];
    snprintf(folder, sizeof folder, "%s", folder_of("has a run"));
    make_run(folder, PT_RITZ_SOBOL, 1, false);
    assert_int_equal(pt_ritz_variance_report(folder, "x", &figure, 1, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "holds a run"));
}

/* A network that was loaded has no points, and a run that is only planned has no weights. */
static void not_every_run_can_do_everything(void **state)
{
    pt_error e = {0};
    pt_ritz_step_info s;
    double v, w, x[2] = {0.5, 0.5};
    const char *folder = folder_of("loaded");
    make_run(folder, PT_RITZ_SOBOL, 1, true);
    for (int loaded = 0; loaded < 2; loaded++) {
        pt_ritz_options o = small("poisson-cosine", 2);
        pt_ritz *r;
        o.plan_only = true;
        assert_int_equal(loaded ? pt_ritz_load(folder, 1, &r, &e) : pt_ritz_open(&o, &r, &e), 0);
        assert_int_equal(pt_ritz_step(r, &s, &e), PT_USAGE);
        assert_non_null(strstr(e.text, loaded ? "pt_ritz_step: a network of pt_ritz_load" : "pt_ritz_step: the run is only planned"));
        assert_int_equal(pt_ritz_errors(r, &v, &w, &e), PT_USAGE);
        assert_int_equal(pt_ritz_save(r, &e), PT_USAGE);
        assert_int_equal(pt_ritz_finish(r, &e), PT_USAGE);
        assert_int_equal(pt_ritz_gradient_variance(r, PT_RITZ_MC, 32, 4, &v, NULL, &e), PT_USAGE);
        assert_int_equal(pt_ritz_evaluate(r, 1, x, &v, NULL, &e), loaded ? 0 : PT_USAGE);
        assert_int_equal(pt_ritz_evaluate(r, -1, x, &v, NULL, &e), PT_USAGE);
        pt_ritz_close(r);
    }
}

static void what_is_not_there_is_told(void **state)
{
    pt_error e = {0};
    pt_ritz_comparison rows[PT_RITZ_SETS];
    pt_ritz_variances figure = {0};
    char *json = (char *)1;
    double v;
    for (int i = 0; i < 2; i++) {
        const char *folder = i ? scratch : path_in(scratch, "missing");
        assert_int_equal(pt_ritz_report(folder, NULL, &e), 0);
        assert_int_equal(pt_ritz_report_json(folder, &json, &e), 0);
        assert_null(json);
        assert_int_equal(pt_ritz_compared(folder, rows, &e), 0);
    }
    assert_int_equal(e.code, 0);
    assert_int_equal(pt_ritz_report(NULL, NULL, &e), PT_USAGE);
    assert_int_equal(pt_ritz_report_json(NULL, &json, &e), PT_USAGE);
    assert_int_equal(pt_ritz_report_json(scratch, NULL, &e), PT_USAGE);
    assert_int_equal(pt_ritz_compared(NULL, rows, &e), PT_USAGE);
    assert_int_equal(pt_ritz_compared(scratch, NULL, &e), PT_USAGE);
    assert_int_equal(pt_ritz_gradient_variance(NULL, PT_RITZ_MC, 32, 4, &v, NULL, &e), PT_USAGE);
    assert_int_equal(pt_ritz_variance_report(NULL, "x", &figure, 1, &e), PT_USAGE);
    assert_int_equal(pt_ritz_variance_report(scratch, NULL, &figure, 1, &e), PT_USAGE);
    assert_int_equal(pt_ritz_variance_report(scratch, "x", NULL, 1, &e), PT_USAGE);
    assert_true(isnan(pt_ritz_slope(2, NULL, NULL)));
    assert_int_equal(pt_ritz_compared(scratch, rows, NULL), 0); /* e may be NULL */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_have_names),
        cmocka_unit_test(a_comparison_is_read),
        cmocka_unit_test(a_run_has_a_page),
        cmocka_unit_test(variances_have_a_page),
        cmocka_unit_test(not_every_run_can_do_everything),
        cmocka_unit_test(what_is_not_there_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
