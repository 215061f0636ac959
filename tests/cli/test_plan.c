/* protrain plan as a user meets it: what it prints, and what it says if nothing fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cli/plan_runs.h"
#include "sanitized.h"

/* ---- what is printed ---- */

static void the_object_has_what_its_page_says(void **state)
{
    (void)state;
    assert_int_equal(plan_with(small(), WORDS("--json")), 0);
    json_t *o = printed();
    assert_true(json_is_true(json_object_get(o, "fits")));
    assert_true(number(o, "predicted", "step_s") > 0);
    assert_true(number(o, "predicted", "tokens_per_s") > 0);
    assert_true(tier_number(o, "peak_bytes", "device") > 0);
    assert_true(tier_number(o, "budget_bytes", "device") == 64 << 20);
    assert_true(tier_number(o, "peak_bytes", "device") <= 64 << 20);
    assert_true(json_array_size(json_object_get(o, "why")) > 4);
    assert_non_null(json_object_get(json_object_get(o, "plan"), "chunk_bytes"));
    double step = number(o, "predicted", "step_s"), tokens = number(o, "predicted", "tokens_per_s");
    assert_true(tokens * step > 8 * 8 * 0.999 && tokens * step < 8 * 8 * 1.001);
    json_decref(o);
}

static double written_per_token(words more, double batch, json_t **o)
{
    assert_int_equal(plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "rtx4090", "--host-memory", "64GiB", "--seq-len",
                                     "1024", "--search-effort", "0.1", "--json"), more), 0);
    *o = printed();
    return number(*o, "disk", "written_bytes") / (batch * 1024);
}

/* What each way is said to write, its own plan writes too, or less; with twice the batch a few states more may be on the disk. */
static void what_lessens_wear_does_so(void **state)
{
    (void)state;
    json_t *o, *one, *way;
    size_t i;
    put_text("config.json", large);
    const double now = written_per_token(WORDS("--quiet"), 8, &o);
    const json_t *less = json_object_get(json_object_get(o, "disk"), "less");
    assert_true(now > 0 && json_array_size(less) == 4);
    json_array_foreach((json_t *)less, i, way) {
        char name[48], value[48];
        const char *options = json_string_value(json_object_get(way, "options"));
        const double said = json_number_value(json_object_get(way, "bytes_per_token"));
        assert_int_equal(sscanf(options, "%47s %47s", name, value), 2);
        const bool turns = !strcmp(name, "--train-blocks");
        const double batch = !strcmp(name, "--batch-size") ? atof(value) : 8;
        const double then = turns ? written_per_token(WORDS(name, value, "--switch-every", "10"), batch, &one)
                                  : written_per_token(WORDS(name, value), batch, &one);
        if (!(said < 0.95 * now + 1 && then <= 1.1 * said))
            fail_msg("%s: %g bytes per token, said %g, now %g", options, then, said, now);
        json_decref(one);
    }
    json_decref(o);
}

static void the_screen_fits_a_terminal(void **state)
{
    (void)state;
    put_text("config.json", large);
    assert_int_equal(plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "a100-80", "--host-memory", "2TiB"),
                               WORDS("--quiet")), 0);
    const char *text = text_of(scratch_path("out"));
    int lines = 0;
    for (const char *line = text; *line; lines++) {
        size_t n = strcspn(line, "\n");
        if (n > 100)
            fail_msg("a line of %zu columns: %.*s", n, (int)n, line);
        line += n + (line[n] == '\n');
    }
    assert_in_range(lines, 8, 36);
    assert_non_null(strstr(text, "llama"));
    assert_non_null(strstr(text, "device   ["));
    assert_non_null(strstr(text, "host     ["));
}

static void train_follows_the_plan_that_was_printed(void **state)
{
    (void)state;
    char data[700], out[200], path[260], *json;
    size_t n;
    pt_error e = {0};
    assert_int_equal(plan_with(small(), WORDS("--json", "--batch-size", "4")), 0);
    json_t *o = printed();
    assert_int_equal(file_write_json(scratch_path("planned.json"), json_object_get(o, "plan"), &e), 0);
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/run", scratch);
    assert_int_equal(run("train", small(), WORDS("--data", data, "--batch-size", "4", "--steps", "2", "--out", out, "--plan",
                                                 scratch_path("planned.json"))), 0);
    snprintf(path, sizeof path, "%s/plan.json", out);
    assert_int_equal(file_read_all(path, 1 << 20, &json, &n, &e), 0);
    json_t *followed = json_loads(json, 0, NULL);
    assert_true(json_equal(followed, json_object_get(o, "plan")));
    json_decref(followed);
    free(json);
    /* and takes all that was printed, as it is */
    assert_int_equal(file_write_json(scratch_path("printed.json"), o, &e), 0);
    json_decref(o);
    if (plan_with(small(), WORDS("--batch-size", "4", "--plan", scratch_path("printed.json"))))
        fail_msg("%s", text_of(scratch_path("err")));
}

/* The size that a refusal names suffices, and what is printed then trains as it is. */
static void train_takes_the_options_that_select_prints(void **state)
{
    (void)state;
    char data[700], size[32], command[4000];
    const words of_run = WORDS("--model", fixture("llama"), "--data", data, "--seq-len", "8", "--batch-size", "2", "--quiet");
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    assert_int_equal(plan_with(of_run, WORDS("--select", "64KiB", "--select-steps", "2")), 3);
    const char *named = strstr(text_of(scratch_path("err")), "alone takes --device-memory ");
    assert_non_null(named);
    assert_int_equal(sscanf(named, "alone takes --device-memory %31[^, ]", size), 1);
    if (plan_with(of_run, WORDS("--select", size, "--select-steps", "2")))
        fail_msg("%s", text_of(scratch_path("err")));
    const char *options = strstr(text_of(scratch_path("out")), "\ntrain with: --device-memory ");
    assert_non_null(options);
    options += strlen("\ntrain with: ");
    snprintf(command, sizeof command,
             "%s train --model %s --data %s --seq-len 8 --batch-size 2 --steps 1 --out %s --device cpu --threads 2 --quiet %.*s 2> %s",
             PT_PROGRAM, fixture("llama"), data, scratch_path("selected"), (int)(strstr(options, "\n\n") - options), options,
             scratch_path("err"));
    if (system(command))
        fail_msg("%s: %s", command, text_of(scratch_path("err")));
}

static void others_goes_with_one_plan_alone(void **state)
{
    (void)state;
    char data[700];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    assert_int_equal(plan_with(small(), WORDS("--others", "--data", data, "--select", "64MiB", "--select-steps", "2")), 2);
    assert_non_null(strstr(text_of(scratch_path("err")), "--others does not go with --select"));
    assert_int_equal(plan_with(WORDS("--model", fixture("llama"), "--seq-len", "8"), WORDS("--others", "--machine", "laptop16,h100")), 2);
    assert_non_null(strstr(text_of(scratch_path("err")), "--others does not go with several machines"));
}

/* Of the machine of a file, which has less than this one, what is in the file. */
static void train_shows_the_margins_of_budgets_that_were_not_given(void **state)
{
    (void)state;
    char data[700], out[200];
    words of_run = WORDS("--model", fixture("llama"), "--seq-len", "8", "--steps", "1", "--threads", "2", "--disk-memory", "0",
                          "--data", data, "--out", out);
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    static const char *const shown[] = {NULL, " free (", " 1.00 GiB in the machine file (RAM) less "};
    for (int i = 0; i < 3; i++) {
        snprintf(out, sizeof out, "%s/margins-%d", scratch, i);
        const words budget[] = {WORDS("--device-memory", "64MiB"), WORDS(NULL), WORDS("--machine", slow_machine())};
        assert_int_equal(run("train", of_run, budget[i]), 0);
        const char *said = text_of(scratch_path("err")), *line = strstr(said, "\nfree     ");
        if (!line != !shown[i] || (line && (!strstr(line, shown[i]) || !strstr(line, " for other programs: "))))
            fail_msg("%s", said);
    }
}

static void what_does_not_fit_says_what_is_missing_and_that_makes_it_fit(void **state)
{
    (void)state;
    char option[64], less[32];
    assert_int_equal(plan_with(small(), WORDS("--device-memory", "1MiB", "--json")), 3);
    json_t *o = printed();
    assert_true(json_is_false(json_object_get(o, "fits")));
    json_int_t missing = json_integer_value(json_object_get(o, "missing_bytes"));
    const char *change = json_string_value(json_object_get(o, "smallest_change"));
    assert_non_null(change);
    assert_int_equal(sscanf(change, "--device-memory %60s", option), 1);
    assert_true(size_of(option) == missing + (1 << 20));
    assert_int_equal(plan_with(small(), WORDS("--device-memory", option)), 0);
    one_less(option, less);
    assert_int_equal(plan_with(small(), WORDS("--device-memory", less)), 3);
    check_refusal("a granule less", 3, 3, WORDS("give --device-memory ", option));
    json_decref(o);
}

/* As the screen of a 70B model with adapters says it. */
static double frozen_bytes(const char *base)
{
    double bytes = 0;
    put_text("config.json", large);
    assert_int_equal(plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "h200", "--seq-len", "1024", "--batch-size", "1"),
                               WORDS("--lora", "16", "--base", base, "--search-effort", "0.1")), 0);
    const char *at = strstr(text_of(scratch_path("out")), "frozen parameters ");
    assert_true(at && sscanf(at, "frozen parameters %lf", &bytes) == 1);
    return bytes;
}

static void bytes_of_frozen_parameters_are_those_of_their_base(void **state)
{
    (void)state;
    const double whole = frozen_bytes("bf16"), eight = frozen_bytes("int8"), four = frozen_bytes("nf4");
    if (!(whole > 1.99 && whole < 2.01 && eight > 1 && eight < 1.1 && four > 0.5 && four < 0.6))
        fail_msg("%g, %g and %g bytes", whole, eight, four);
}

/* Measuring this model takes more of the device than the most economical plan, one part of it after another. */
static void what_measuring_lacks_is_missing_too(void **state)
{
    (void)state;
    cache_fresh("no-profile-yet");
    words step = WORDS("--model", fixture("llama"), "--seq-len", "8", "--batch-size", "1", "--quiet", "--host-memory", "64MiB", "--json");
    char least[32];
    json_int_t missing;
    snprintf(least, sizeof least, "%s", refused(step, WORDS("--device-memory", "1B"), &missing));
    assert_true(missing == size_of(least) - 1);
    int refusals = 0;
    for (; plan_with(step, WORDS("--device-memory", least)) && refusals < 5; refusals++) {
        const char *more = refused(step, WORDS("--device-memory", least), &missing);
        assert_non_null(strstr(text_of(scratch_path("err")), "measuring "));
        assert_in_range(size_of(more) - size_of(least) - missing, 0, size_granule((uint64_t)size_of(more)));
        snprintf(least, sizeof least, "%s", more);
    }
    assert_in_range(refusals, 1, 4);
    cache_back();
}

static void of_more_than_is_free_what_is_free_is_the_change(void **state)
{
    (void)state;
    json_int_t missing[2];
    char option[32];
    refused(small(), WORDS("--device-memory", "1000TiB", "--json"), &missing[0]);
    snprintf(option, sizeof option, "%s", refused(small(), WORDS("--device-memory", "1001TiB", "--json"), &missing[1]));
    assert_true(missing[1] - missing[0] > (json_int_t)1 << 39 && missing[1] - missing[0] < (json_int_t)1 << 41);
    assert_non_null(strstr(text_of(scratch_path("err")), "give --device-memory "));
    if (plan_with(small(), WORDS("--device-memory", option)))
        fail_msg("--device-memory %s: %s", option, text_of(scratch_path("err")));
}

/* What they need is taken from the device's budget, and what is advised has it. */
static void many_threads_have_their_part_of_the_device(void **state)
{
    (void)state;
    json_int_t missing;
    char option[32];
    assert_int_equal(plan_with(small(), WORDS("--threads", "8", "--json")), 0);
    json_t *few = printed();
    assert_true(number(few, "predicted", "threads_bytes") == 0);
    json_decref(few);
    snprintf(option, sizeof option, "%s", refused(small(), WORDS("--threads", "24", "--device-memory", "1MiB", "--json"), &missing));
    assert_true(missing + (1 << 20) == size_of(option));
    assert_int_equal(plan_with(small(), WORDS("--threads", "24", "--json", "--device-memory", option)), 0);
    json_t *many = printed();
    double threads = number(many, "predicted", "threads_bytes");
    assert_true(threads >= 16 << 22 && tier_number(many, "budget_bytes", "device") + threads == (double)size_of(option));
    assert_true(tier_number(many, "peak_bytes", "device") <= tier_number(many, "budget_bytes", "device"));
    snprintf(option, sizeof option, "%.0f", tier_number(many, "peak_bytes", "device") + threads - 1);
    pt_error e = {0};
    assert_int_equal(file_write_json(scratch_path("planned.json"), json_object_get(many, "plan"), &e), 0);
    json_decref(many);
    words given = WORDS("--plan", scratch_path("planned.json"), "--threads", "24", "--device-memory", option);
    check_refusal("one byte too few for a plan", plan_with(small(), given), 3, WORDS("planned.json", "--device-memory"));
}

static void what_does_not_fit_names_the_largest_step_that_does(void **state)
{
    (void)state;
    NOT_SANITIZED();
    words step = WORDS("--model", fixture("llama"), "--quiet", "--disk-memory", "0", "--json", "--batch-size", "512", "--seq-len", "64");
    char least[32], value[2][32];
    assert_int_equal(plan_with(step, WORDS("--device-memory", "64KiB")), 3);
    json_t *o = printed();
    assert_string_equal(json_string_value(json_object_get(o, "smaller_step")), ""); /* the states alone are more */
    assert_int_equal(sscanf(json_string_value(json_object_get(o, "smallest_change")), "--device-memory %30s", least), 1);
    json_decref(o);
    one_less(least, least);
    assert_int_equal(plan_with(step, WORDS("--device-memory", least)), 3);
    o = printed();
    const char *smaller = json_string_value(json_object_get(o, "smaller_step"));
    int n = sscanf(smaller, "--batch-size %30s --seq-len %30s", value[0], value[1]);
    assert_true(n >= 1);
    assert_non_null(strstr(json_string_value(json_array_get(json_object_get(o, "why"), 0)), smaller));
    assert_int_equal(plan_with(step, WORDS("--device-memory", least, "--batch-size", value[0], "--seq-len", n > 1 ? value[1] : "64")), 0);
    json_decref(o);
    /* the step that is named cannot be cut into this micro-batch */
    assert_int_equal(plan_with(step, WORDS("--device-memory", least, "--micro-batch", "512")), 3);
    o = printed();
    smaller = json_string_value(json_object_get(o, "smaller_step"));
    assert_non_null(strstr(smaller, " --micro-batch 0"));
    json_decref(o);
}

/* plan --json | train --plan - */
static void a_plan_comes_through_a_pipe(void **state)
{
    (void)state;
    static const char *const names[] = {"-", "/dev/stdin", "/dev/fd/0"};
    char command[2400];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(command, sizeof command,
                 "%s plan --model %s --machine laptop16 --seq-len 8 --device-memory 64MiB --json 2> /dev/null | "
                 "%s plan --model %s --machine laptop16 --seq-len 8 --device-memory 64MiB --plan %s --quiet > %s 2>&1",
                 PT_PROGRAM, fixture("llama"), PT_PROGRAM, fixture("llama"), names[i], scratch_path("out"));
        if (system(command))
            fail_msg("%s: %s", names[i], text_of(scratch_path("out")));
    }
    snprintf(command, sizeof command, "echo '{}' | %s plan --model %s --machine laptop16 --plan - > %s 2>&1", PT_PROGRAM, fixture("llama"),
             scratch_path("err"));
    assert_int_not_equal(system(command), 0);
    assert_non_null(strstr(text_of(scratch_path("err")), "standard input"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_object_has_what_its_page_says),
        cmocka_unit_test(what_lessens_wear_does_so),
        cmocka_unit_test(the_screen_fits_a_terminal),
        cmocka_unit_test(train_follows_the_plan_that_was_printed),
        cmocka_unit_test(train_takes_the_options_that_select_prints),
        cmocka_unit_test(others_goes_with_one_plan_alone),
        cmocka_unit_test(train_shows_the_margins_of_budgets_that_were_not_given),
        cmocka_unit_test(what_does_not_fit_says_what_is_missing_and_that_makes_it_fit),
        cmocka_unit_test(what_measuring_lacks_is_missing_too),
        cmocka_unit_test(bytes_of_frozen_parameters_are_those_of_their_base),
        cmocka_unit_test(of_more_than_is_free_what_is_free_is_the_change),
        cmocka_unit_test(many_threads_have_their_part_of_the_device),
        cmocka_unit_test(what_does_not_fit_names_the_largest_step_that_does),
        cmocka_unit_test(a_plan_comes_through_a_pipe),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
