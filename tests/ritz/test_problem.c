/* Problem files: what they say, and what is said of bad ones; random damage. */
#include "../../fuzz/fuzz_problem.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "io/mutate.h"
#include "seed.h"

static void open_text(problem *p, const char *text)
{
    pt_error e = {0};
    if (problem_text_open("p.json", text, strlen(text), p, &e))
        fail_msg("%s", e.text);
}

static void a_file_says_what_is_solved(void **state)
{
    problem p;
    const double x[6] = {0.5, 2, 0.25, 1, 1, 1};
    double u[2], g[4];
    open_text(&p, "{\"equation\": \"schroedinger\", \"dim\": 2, \"lower\": [0, -1], \"upper\": 3, \"f\": \"x1 + 10*x2 + d\", \"V\": \"x*y "
                  "> 0.5 ? 2 : 3\","
                  " \"exact\": \"sin(pi*x1) + x2^2\", \"energy\": -2.5, \"boundary\": \"dirichlet\", \"g\": \"e\", \"penalty\": 7}");
    assert_true(p.is.dim == 2 && p.is.lower[0] == 0 && p.is.lower[1] == -1 && p.is.upper[0] == 3 && p.is.upper[1] == 3 && p.energy == -2.5);
    assert_true(p.is.equation == PT_RITZ_SCHROEDINGER && p.is.boundary == PT_RITZ_DIRICHLET && p.is.penalty == 7 &&
                problem_samples_boundary(&p));
    p.is.f(p.is.arg, 2, 2, x, u);
    assert_true(u[0] == 22.5 && u[1] == 12.25);
    p.is.V(p.is.arg, 2, 2, x, u);
    assert_true(u[0] == 2 && u[1] == 3);
    p.is.g(p.is.arg, 1, 2, x, u);
    assert_true(fabs(u[0] - exp(1)) < 1e-15);
    problem_exact(&p, 2, x, u, g);
    assert_true(fabs(u[0] - 5) < 1e-14 && fabs(g[0]) < 1e-9 && fabs(g[1] - 4) < 1e-9 && fabs(g[2] - M_PI * cos(M_PI / 4)) < 1e-9);
    problem_close(&p);
    open_text(&p, "{\"dim\": 1, \"exact\": \"sqrt(x1) + sqrt(1 - x1)\"}"); /* differences may not leave the box */
    const double near[2] = {0.9999, 0.0001};
    problem_exact(&p, 2, near, u, g);
    assert_true(isfinite(g[0]) && isfinite(g[1]) && g[0] < -1 && g[1] > 1);
    problem_close(&p);
    open_text(&p, "{\"dim\": 1}");
    assert_true(p.is.equation == PT_RITZ_POISSON && !p.is.f && isnan(p.energy) && problem_has_mean(&p) && !problem_samples_boundary(&p));
    problem_close(&p);
}

static void bad_files_get_a_sentence(void **state)
{
    static const char *const cases[][2] = {
        {"{\"dim\": 2, \"f\": \"cos(x1\"}", "p.json: f, column 7: Missing parenthesis"},
        {"{\"dim\": 2, \"f\": \"x1, x2\"}", "f has 2 results"},
        {"{\"dim\": 2, \"f\": \"1; 2\"}", "p.json: f, column 2: "},
        {"{\"dim\": 2, \"lower\": -1e308, \"upper\": 1e308}", "the box's volume is inf"},
        {"{\"dim\": 2000, \"upper\": 0.5}", "the box's volume is 0"},
        {"{\"dim\": 2, \"f\": \"x1 + x3\"}", "f, column 6: \"x3\" is unknown"},
        {"{\"dim\": 2, \"f\": \"x1 = 3\"}", "f, column 4: an assignment"},
        {"{\"dim\": 2, \"f\": \"1 + sin x1\"}", "f, column 5: \"sin\" is a function: put its arguments in parentheses, as in sin(x1)"},
        {"{\"dim\": 2, \"f\": \"min\"}", "\"min\" is a function"},
        {"{\"dim\": 2, \"boundary\": \"dirichlet\", \"penalty\": 1e30}", "must be above 0 and below 1e30"},
        {"{\"dim\": 2, \"f\": \"foo(x1)\"}", "column 1: \"foo\" is unknown"},
        {"{\"dim\": 2, \"f\": \"1 + min()\"}", "f, column 10: Too few parameters for function"},
        {"{\"dim\": 2, \"f\": \"sin(x1, x2)\"}", "Too many parameters"},
        {"{\"dim\": 2, \"f\": \"\"}", "p.json: f"},
        {"{\"dim\": 2, \"f\": 3}", "\"f\" is an integer, but a string is needed"},
        {"{\"dim\": 2, \"F\": \"1\"}", "the key \"F\" is unknown"},
        {"{\"f\": \"1\"}", "dim"},
        {"{\"dim\": 0}", "dim"},
        {"{\"dim\": 70000}", "dim"},
        {"{\"dim\": 2, \"equation\": \"heat\"}", "equation is \"heat\", but must be \"poisson\", \"schroedinger\" or \"eigenvalue\""},
        {"{\"dim\": 2, \"lower\": [0, 1], \"upper\": 1}", "the box is empty: along x2 it goes from 1 to 1"},
        {"{\"dim\": 2, \"lower\": [0]}", "lower has 1 numbers, but the problem has 2 dimensions"},
        {"{\"dim\": 2, \"upper\": \"1\"}", "upper is a string"},
        {"{\"dim\": 2, \"V\": \"1\"}", "Poisson's equation has no V"},
        {"{\"dim\": 2, \"g\": \"1\", \"penalty\": 5}", "a neumann boundary has no penalty"},
        {"{\"dim\": 2, \"boundary\": \"dirichlet\", \"penalty\": 0}", "penalty"},
        {"{\"dim\": 2, \"f\": \"face\"}", "\"face\" is unknown"},
        {"{\"dim\": 2, \"g\": \"u\"}", "\"u\" is unknown; use x1 to x2, face, pi"},
        {"{\"dim\": 2, \"r\": \"1\"}", "r belongs to a robin boundary"},
        {"{\"dim\": 2, \"G\": \"u^4\"}", "dG is missing: G and its derivative dG, by u, belong together"},
        {"{\"dim\": 2, \"faces\": {\"3\": \"robin\"}}", "faces has \"3\", but faces are -1 and 1 for the sides of x1, up to 2"},
        {"{\"dim\": 2, \"faces\": {\"0\": \"robin\"}}", "faces has \"0\""},
        {"{\"dim\": 2, \"faces\": {\"1\": \"wall\"}}", "1 is \"wall\", but must be \"neumann\", \"dirichlet\", \"robin\" or \"hard\""},
        {"{\"dim\": 2, \"faces\": []}", "faces is a list, but must be an object"},
        {"{\"dim\": 2, \"holes\": {}}", "holes must be an array of 1 to 64 boxes"},
        {"{\"dim\": 2, \"holes\": [{\"lower\": 0}]}", "hole 1 has no upper"},
        {"{\"dim\": 2, \"holes\": [{\"lower\": 0, \"upper\": 1}]}", "the holes leave nothing of the box"},
        {"{\"dim\": 2, \"holes\": [{\"lower\": 1, \"upper\": 2}]}", "hole 1 lies outside the box along x1"},
        {"{\"dim\": 1, \"holes\": [{\"lower\": 0, \"upper\": 0.5}, {\"lower\": 0.4, \"upper\": 0.6}]}", "holes 1 and 2 overlap"},
        {"{\"dim\": 2, \"faces\": {\"3\": \"hard\"}, \"holes\": [{\"lower\": 0, \"upper\": 0.5}]}", "hole 1 is hard in part"},
        {"{\"dim\": 2, \"boundary\": \"hard\", \"g\": \"face\"}", "g is needed in the whole box, so it cannot depend on face"},
        {"{\"dim\": 2, \"equation\": \"eigenvalue\", \"f\": \"1\"}", "an eigenvalue problem has no f"},
        {"[1]", "p.json"},
        {"{\"dim\": 2", "p.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        problem p;
        pt_error e = {0};
        assert_int_equal(problem_text_open("p.json", cases[i][0], strlen(cases[i][0]), &p, &e), PT_FAILED);
        problem_close(&p);
        if (!strstr(e.text, cases[i][1]))
            fail_msg("\"%s\" is not in \"%s\"", cases[i][1], e.text);
    }
    char deep[4096] = "{\"dim\": 1, \"f\": \"";
    memset(deep + strlen(deep), '(', 300);
    strcat(deep, "1\"}");
    problem p;
    pt_error e = {0};
    assert_int_equal(problem_text_open("p.json", deep, strlen(deep), &p, &e), PT_FAILED);
    problem_close(&p);
    assert_non_null(strstr(e.text, "nested deeper than 100"));
    static const char long_of[] = {'a', '9', '#', '!'}; /* muParser would copy them into a buffer of its own */
    for (size_t i = 0; i < sizeof long_of; i++) {
        strcpy(deep, "{\"dim\": 1, \"f\": \"");
        memset(deep + strlen(deep), long_of[i], 3000);
        memcpy(deep + strlen("{\"dim\": 1, \"f\": \"") + 3000, "\"}", 3);
        assert_int_equal(problem_text_open("p.json", deep, strlen(deep), &p, &e), PT_FAILED);
        problem_close(&p);
        assert_non_null(strstr(e.text, "more than 255 characters"));
    }
}

static void the_longest_expression_is_taken_and_a_longer_one_is_named(void **state)
{
    (void)state;
    static char text[40000];
    for (int terms = 6666; terms <= 6667; terms++) { /* of 3 characters, behind 1 */
        problem p;
        pt_error e = {0};
        strcpy(text, "{\"dim\": 1, \"f\": \"1");
        for (int i = 0; i < terms; i++)
            strcat(text, "+x1");
        strcat(text, "\"}");
        assert_int_equal(problem_text_open("p.json", text, strlen(text), &p, &e), terms == 6666 ? 0 : PT_FAILED);
        problem_close(&p);
        assert_true(terms == 6666 || strstr(e.text, "at most 19999"));
    }
}

static void damaged_files_are_refused_or_readable(void **state)
{
    static const char first[] = "{\"equation\": \"schroedinger\", \"dim\": 3, \"lower\": [0, -1, 2], \"upper\": 3, \"f\": "
                                "\"2*pi^2*cos(pi*x1)*exp(-x2)\","
                                " \"V\": \"(x1 < 0.3 && x2 > 0.1) ? abs(x3) : sqrt(x1)\", \"exact\": \"min(x1, max(x2, x3), -tanh(x1))\"}";
    static const char second[] = "{\"dim\": 1, \"boundary\": \"dirichlet\", \"g\": \"x^3 - -x\", \"penalty\": 1e3, \"energy\": null, "
                                 "\"about\": \"\"}";
    static const char third[] = "{\"dim\": 2, \"a\": \"1+x1\", \"G\": \"u^4/4\", \"dG\": \"u^3\", \"r\": \"face + 3\", "
                                "\"boundary\": \"robin\", "
                                ""
                                "\"faces\": {\"-1\": \"dirichlet\", \"4\": \"neumann\"}, \"g\": \"face\", \"holes\": [{\"lower\": [0, "
                                "0], \"upper\": 0.5}]}";
    static const char *const seeds[] = {first, second, third};
    static const size_t lengths[] = {sizeof first - 1, sizeof second - 1, sizeof third - 1};
    const uint64_t seed = test_seed();
    mutate_run(seeds, lengths, 3, seed, 40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_says_what_is_solved),
        cmocka_unit_test(bad_files_get_a_sentence),
        cmocka_unit_test(the_longest_expression_is_taken_and_a_longer_one_is_named),
        cmocka_unit_test(damaged_files_are_refused_or_readable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
