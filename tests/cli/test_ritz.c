/* protrain ritz: options that do nothing are refused, a run that is done says so, and a comparison has its page again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/refusal.h"

static char out[128];

static pid_t ritz_start(words more)
{
    arguments a = {0};
    add_argument(&a, "ritz");
    add_arguments(&a, WORDS("--dim", "2", "--n", "64", "--width", "8", "--blocks", "1", "--eval-every", "2", "--eval-n", "64", "--device",
                            "cpu", "--threads", "1", "--quiet"));
    add_arguments(&a, more);
    return program_start(&a, scratch_path("out"), scratch_path("err"));
}

/* A small run. */
static int ritz(words more) { return program_wait(ritz_start(more)); }

/* What the program prints. */
static const char *output_of(words args)
{
    arguments a = {0};
    add_arguments(&a, args);
    assert_int_equal(program_wait(program_start(&a, scratch_path("out"), scratch_path("err"))), 0);
    return text_of(scratch_path("out"));
}

static void set_out(const char *name) { snprintf(out, sizeof out, "%s/%s", scratch, name); }

static void what_does_nothing_is_refused(void **state)
{
    (void)state;
    set_out("none");
    check_sentence("seeds", ritz(WORDS("--steps", "2", "--seeds", "3")), 2, WORDS("--seeds needs --compare or --gradient-variance"));
    check_sentence("no seeds", ritz(WORDS("--compare", "mc,sobol", "--out", out, "--seeds", "0")), 2, WORDS("--seeds 0", "1 or more"));
    check_sentence("no steps", ritz(WORDS("--steps", "0")), 2, WORDS("--steps 0", "1 or more"));
    check_sentence("no dimension", ritz(WORDS("--dim", "0")), 2, WORDS("--dim 0", "1 or more"));
    check_sentence("random", ritz(WORDS("--points", "mc", "--randomize", "owen", "--steps", "2")), 2, WORDS("no randomization owen"));
    check_sentence("resume", ritz(WORDS("--gradient-variance", "--steps", "2", "--resume", "--out", out)), 2, WORDS("leave out --resume"));
}

static void a_resumed_run_says_what_is_done(void **state)
{
    (void)state;
    set_out("run");
    assert_int_equal(ritz(WORDS("--steps", "4", "--out", out)), 0);
    check_sentence("fewer", ritz(WORDS("--steps", "3", "--out", out, "--resume")), 2, WORDS("--steps is 3", "has done 4 steps"));
    assert_int_equal(ritz(WORDS("--steps", "4", "--out", out, "--resume")), 0);
    assert_non_null(strstr(text_of(scratch_path("err")), "step 4 of 4 is done: give more --steps"));
    assert_int_equal(ritz(WORDS("--steps", "6", "--out", out, "--resume")), 0);
    assert_null(strstr(text_of(scratch_path("err")), "is done"));
    assert_non_null(strstr(text_of(scratch_path("err")), "the run now has 6 steps instead of 4"));
    assert_int_equal(ritz(WORDS("--steps", "8", "--out", out, "--resume")), 0);
    assert_non_null(strstr(text_of(scratch_path("err")), "the run now has 8 steps instead of 6"));
    set_out("constant");
    assert_int_equal(ritz(WORDS("--steps", "4", "--out", out, "--lr-schedule", "constant")), 0);
    assert_int_equal(ritz(WORDS("--steps", "6", "--out", out, "--lr-schedule", "constant", "--resume")), 0);
    assert_null(strstr(text_of(scratch_path("err")), "the run now has"));
}

/* No folder is left of a run that never began. */
static void a_run_that_is_refused_leaves_nothing(void **state)
{
    (void)state;
    char plan[128];
    snprintf(plan, sizeof plan, "%s", put_text("plan.json", "{}"));
    set_out("refused");
    check_sentence("plan", ritz(WORDS("--steps", "2", "--out", out, "--plan", plan)), 1, WORDS("plan.json"));
    assert_false(path_exists(out));
    check_sentence("no name", ritz(WORDS("--steps", "2", "--out", "")), 2, WORDS("--out is empty: give the name of a folder"));
}

static void without_a_solution_nothing_is_compared(void **state)
{
    (void)state;
    char problem[128];
    snprintf(problem, sizeof problem, "%s", put_text("unknown.json", "{\"equation\": \"schroedinger\", \"dim\": 2, \"V\": \"1\"}"));
    set_out("nothing to compare");
    check_sentence("compare", ritz(WORDS("--problem", problem, "--compare", "mc,sobol", "--steps", "2", "--out", out)), 2,
                   WORDS("--compare needs an exact solution to compute errors, and none is known"));
    assert_false(path_exists(out));
}

static void a_solution_that_is_not_finite_is_refused_before_the_first_step(void **state)
{
    (void)state;
    char problem[128];
    snprintf(problem, sizeof problem, "%s", put_text("infinite.json", "{\"dim\": 2, \"f\": \"1\", \"exact\": \"1/0\"}"));
    set_out("infinite");
    check_sentence("run", ritz(WORDS("--problem", problem, "--steps", "2", "--out", out)), 1, WORDS("exact is inf at x = ("));
    assert_false(path_exists(out));
    check_sentence("compare", ritz(WORDS("--problem", problem, "--compare", "mc,sobol", "--steps", "2", "--out", out)), 1,
                   WORDS("exact is inf at x = ("));
    assert_false(path_exists(out));
}

/* Relative errors would be infinite. */
static void of_a_solution_that_is_zero_errors_are_absolute(void **state)
{
    (void)state;
    char problem[128];
    snprintf(problem, sizeof problem, "%s",
             put_text("zero.json", "{\"equation\": \"schroedinger\", \"dim\": 2, \"V\": \"1\", \"exact\": \"0\"}"));
    set_out("zero");
    assert_int_equal(ritz(WORDS("--problem", problem, "--steps", "2", "--out", out)), 0);
    assert_non_null(strstr(text_of(scratch_path("out")), "absolute error L2 "));
    assert_null(strstr(text_of(scratch_path("out")), "inf"));
    assert_non_null(strstr(output_of(WORDS("report", out, "--json")), "\"absolute_errors\": true"));
}

static void points_that_are_none_are_named(void **state)
{
    (void)state;
    char points[128];
    static const struct { const char *text, *said; } each[] = {
        {"0.5,0.5\n0.5\n", "line 2: x2 is missing or not a number; a point has 2 coordinates"},
        {"\"0.1\",0.2\n0.5,0.5\n", "line 1: x1 is missing or not a number"},
        {"nan,0\n0.5,0.5\n", "line 1: x1 is missing or not a number"},
        {"inf;0\n", "line 1: x1 is missing or not a number"},
        {"x,0\n", "line 1: x1 is missing or not a number"},
        {"\xEF\xBB\xBF" "0.5\n", "line 1: x2 is missing or not a number"},
        {"\"x1\", \"x2\"\n0.5\n", "line 2: x2 is missing or not a number"},
        {"0.5,0.5\n0.5,0.5,0.5\n", "line 2: a point has 2 coordinates, and this line has more"}};
    set_out("trained");
    assert_int_equal(ritz(WORDS("--steps", "2", "--out", out)), 0);
    for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
        snprintf(points, sizeof points, "%s", put_text("points.csv", each[i].text));
        check_sentence("points", run_program(WORDS("ritz", "--eval", out, "--at", points)), 1, WORDS("points.csv, ", each[i].said));
    }
    check_sentence("a folder", run_program(WORDS("ritz", "--eval", out, "--at", scratch)), 1, WORDS(" cannot be read: Is a directory"));
    FILE *f = fopen(points, "wb");
    assert_true(f && fwrite("0,1\n\0\n", 1, 6, f) == 6 && !fclose(f));
    check_sentence("no text", run_program(WORDS("ritz", "--eval", out, "--at", points)), 1, WORDS("line 2: there is a NUL character"));
    snprintf(points, sizeof points, "%s", put_text("points.csv", "x1,x2\n0,1\n0.5,1.5\n-1,0.5\n"));
    assert_int_equal(run_program(WORDS("ritz", "--eval", out, "--at", points)), 0);
    assert_non_null(strstr(text_of(scratch_path("err")), "2 of 3 points, point 2 first, lie outside the box"));
    put_text("points.csv", "0,1\n");
    assert_int_equal(run_program(WORDS("ritz", "--eval", out, "--at", points)), 0);
    assert_null(strstr(text_of(scratch_path("err")), "outside"));
}

/* On a grid, into each kind of file; a checkpoint is evaluated like the run. */
static void networks_are_evaluated_on_grids(void **state)
{
    (void)state;
    char file[160], checkpoint[160], *text;
    size_t n;
    pt_error e = {0};
    set_out("gridded");
    assert_int_equal(ritz(WORDS("--steps", "2", "--out", out)), 0);
    const char *csv = output_of(WORDS("ritz", "--eval", out, "--grid", "3"));
    assert_true(!strncmp(csv, "x1,x2,u,du_dx1,du_dx2,exact,error\n0,0,", 38) && strstr(csv, "\n0,0.5,") && strstr(csv, "\n1,1,"));
    char *first = strdup(csv);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2", out);
    assert_string_equal(first, output_of(WORDS("ritz", "--eval", checkpoint, "--grid", "3")));
    free(first);
    static const struct { const char *name, *begin; size_t bytes; } files[] = {
        {"u.csv", "x1,x2,u", 0}, {"u.npz", "PK\x03\x04", 1626}, {"u.vtk", "# vtk DataFile Version 3.0\n", 0}};
    for (size_t i = 0; i < 3; i++) {
        snprintf(file, sizeof file, "%s/%s", out, files[i].name);
        assert_int_equal(run_program(WORDS("ritz", "--eval", out, "--grid", "3", "--write", file)), 0);
        assert_int_equal(file_read_all(file, 1 << 20, &text, &n, &e), 0);
        assert_true(!memcmp(text, files[i].begin, strlen(files[i].begin)));
        if (files[i].bytes && n != files[i].bytes)
            fail_msg("%s has %zu bytes", file, n);
        free(text);
    }
    snprintf(file, sizeof file, "%s/u.onnx", out);
    assert_int_equal(run_program(WORDS("ritz", "--eval", out, "--write", file)), 0);
    assert_int_equal(file_read_all(file, 1 << 20, &text, &n, &e), 0);
    assert_true(!memcmp(text, "\x08\x07\x12\x08ProTrain\x3a", 13) && memmem(text, n, "input.weight", 12) && memmem(text, n, "Tanh", 4));
    free(text);
    check_sentence("points for onnx", run_program(WORDS("ritz", "--eval", out, "--grid", "3", "--write", "u.onnx")), 2,
                   WORDS("an ONNX file holds the network, not points: leave out --grid"));
    check_sentence("ending", run_program(WORDS("ritz", "--eval", out, "--grid", "3", "--write", "u.png")), 2,
                   WORDS("must end in .csv, .npz, .vtk or .onnx"));
    check_sentence("both", run_program(WORDS("ritz", "--eval", out, "--grid", "3", "--at", "-")), 2, WORDS("or instead --grid"));
    check_sentence("large", run_program(WORDS("ritz", "--eval", out, "--grid", "100000")), 2,
                   WORDS("1e+10 points in 2 dimensions, but at most"));
    check_sentence("no run", run_program(WORDS("ritz", "--grid", "3")), 2, WORDS("--grid needs --eval"));
    const char *points = output_of(WORDS("ritz", "--problem", "harmonic", "--dim", "2", "--n", "2", "--n-boundary", "4",
                                         "--print-points", "1"));
    assert_true(!strncmp(points, "x1,x2,face,weight\n", 18) && strstr(points, ",0,0.5\n"));
    assert_true(strstr(points, ",-1,1\n1,") && strstr(points, ",2,1\n"));
}

static void sweeps_have_tables(void **state)
{
    (void)state;
    char path[160];
    set_out("swept");
    assert_int_equal(ritz(WORDS("--compare", "mc,sobol:lms,sobol", "--sweep", "n=16,32", "--steps", "2", "--seeds", "2", "--out", out)), 0);
    assert_non_null(strstr(text_of(scratch_path("out")), "    slope"));
    snprintf(path, sizeof path, "%s/sweep.csv", out);
    assert_true(strstr(text_of(path), "\n32,sobol,") && strstr(text_of(path), "\n16,sobol:lms,"));
    snprintf(path, sizeof path, "%s/n-16/comparison.csv", out);
    assert_non_null(strstr(text_of(path), "\nmc,2,2,"));
    snprintf(path, sizeof path, "%s/n-16/sobol-lms-1/report.html", out);
    assert_true(path_exists(path));
    check_sentence("set", ritz(WORDS("--compare", "mc,lattice:owen", "--steps", "2", "--out", path)), 2,
                   WORDS("lattice points have no randomization owen"));
    check_sentence("name", ritz(WORDS("--compare", "mc,sobol:", "--steps", "2", "--out", path)), 2, WORDS("unknown points \"sobol:\""));
    check_sentence("values", ritz(WORDS("--compare", "mc", "--sweep", "n=32,16", "--out", out)), 2, WORDS("whole numbers that rise"));
    check_sentence("kind", ritz(WORDS("--compare", "mc", "--sweep", "depth=2", "--out", out)), 2, WORDS("give n=256,1024,... or width="));
    check_sentence("alone", ritz(WORDS("--sweep", "n=16,32", "--out", out)), 2, WORDS("--sweep needs --compare"));
}

static void a_comparison_has_its_page_again(void **state)
{
    (void)state;
    char page[160], again[160], *first, *second;
    size_t n;
    pt_error e = {0};
    set_out("compared");
    assert_int_equal(ritz(WORDS("--steps", "4", "--compare", "mc,sobol", "--seeds", "2", "--out", out)), 0);
    snprintf(page, sizeof page, "%s/report.html", out);
    snprintf(again, sizeof again, "%s/again.html", out);
    assert_int_equal(run_program(WORDS("report", out, "--out", again)), 0);
    assert_int_equal(file_read_all(page, 1 << 20, &first, &n, &e), 0);
    assert_int_equal(file_read_all(again, 1 << 20, &second, &n, &e), 0);
    const char *table = strstr(first, "<table>"), *end = strstr(first, "</html>");
    assert_true(table && end && strstr(table, "<td>mc</td>") && strstr(table, "<td>sobol</td>"));
    assert_non_null(strstr(first, "64 points a step, 4 steps, 2 seeds"));
    assert_string_equal(first, second);
    check_sentence("again", ritz(WORDS("--steps", "4", "--compare", "mc,sobol", "--out", out)), 1,
                   WORDS("already holds runs of a comparison: give --resume to continue it, or another --out"));
    check_sentence("eval", run_program(WORDS("ritz", "--eval", out, "--at", "-")), 1,
                   WORDS("holds the runs of a comparison: give --eval the folder of one of them, such as ", "compared/mc-0"));
    const char *json = output_of(WORDS("report", out, "--json"));
    assert_true(strstr(json, "{\"kinds\": [{\"points\": \"mc\", \"seeds\": 2, \"steps\": 4, ") && strstr(json, "\"points\": \"sobol\""));
    check_sentence("twice", ritz(WORDS("--steps", "4", "--compare", "mc,mc", "--out", out)), 2, WORDS("mc are named twice"));
    free(first);
    free(second);
}

/* It ends with the table that it would have had, whenever it was killed. */
static void a_killed_comparison_goes_on(void **state)
{
    (void)state;
    static char straight[1 << 16];
    set_out("straight");
    assert_int_equal(ritz(WORDS("--compare", "mc,sobol", "--seeds", "2", "--steps", "400", "--out", out)), 0);
    snprintf(straight, sizeof straight, "%s", text_of(scratch_path("out")));
    assert_non_null(strstr(straight, "sobol"));
    set_out("killed");
    const words again = WORDS("--compare", "mc,sobol", "--seeds", "2", "--steps", "400", "--save-every", "20", "--out", out, "--resume");
    for (int i = 0; i < 4; i++)
        program_kill_after(ritz_start(again), 0.02 + 0.05 * i);
    for (int i = 0; i < 2; i++) { /* to the end, and once more */
        assert_int_equal(ritz(again), 0);
        assert_string_equal(text_of(scratch_path("out")), straight);
        assert_null(strstr(text_of(scratch_path("err")), "is done"));
    }
    strcat(out, "/mc-0");
    check_sentence("in a run", ritz(WORDS("--steps", "4", "--compare", "mc,sobol", "--out", out)), 1, WORDS("mc-0 holds a run"));
    check_sentence("a run's page", ritz(WORDS("--steps", "4", "--gradient-variance", "--seeds", "2", "--out", out)), 1,
                   WORDS("holds a run or a comparison, which has a page of its own"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_nothing_is_refused),
        cmocka_unit_test(a_solution_that_is_not_finite_is_refused_before_the_first_step),
        cmocka_unit_test(a_resumed_run_says_what_is_done),
        cmocka_unit_test(a_run_that_is_refused_leaves_nothing),
        cmocka_unit_test(of_a_solution_that_is_zero_errors_are_absolute),
        cmocka_unit_test(without_a_solution_nothing_is_compared),
        cmocka_unit_test(points_that_are_none_are_named),
        cmocka_unit_test(networks_are_evaluated_on_grids),
        cmocka_unit_test(sweeps_have_tables),
        cmocka_unit_test(a_comparison_has_its_page_again),
        cmocka_unit_test(a_killed_comparison_goes_on),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
