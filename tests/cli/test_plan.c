/* protrain plan from outside: what it prints, what it refuses, and that train runs what it planned. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "cli/planned.h"


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

/* So slow that no other's noise hides it. A profile that said so would be refused: it has to agree with its checks. */
static const char *slow_machine(void)
{
    return put_text("slow.json",
                    "{\"name\": \"slow\", \"kind\": \"cpu\", \"device\": {\"memory_bytes\": 1073741824, \"memory_bandwidth\": 1e7, "
                                 "\"bf16_flops\": 1e7, \"fp32_flops\": 1e7, \"kernel_s\": 0.1}}");
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
                               WORDS("--lora", "16", "--base", base)), 0);
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

/* 3, and what is missing is more than nothing: the budget of the device that it says would do, "" where it names none. */
static const char *refused(words options, words more, json_int_t *missing)
{
    static char option[32];
    assert_int_equal(plan_with(options, more), 3);
    json_t *o = printed();
    option[0] = 0;
    sscanf(json_string_value(json_object_get(o, "smallest_change")), "--device-memory %31s", option);
    *missing = json_integer_value(json_object_get(o, "missing_bytes"));
    assert_true(*missing > 0);
    json_decref(o);
    return option;
}

/* No profile that is kept from before; cache_back undoes it. */
static char kept_cache[500];

static void cache_fresh(const char *name)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    snprintf(kept_cache, sizeof kept_cache, "%s", cache ? cache : "");
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch_path(name), 1), 0);
}

static void cache_back(void)
{
    assert_int_equal(kept_cache[0] ? setenv("XDG_CACHE_HOME", kept_cache, 1) : unsetenv("XDG_CACHE_HOME"), 0);
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

/* ---- machines that are not here ---- */

static void machines_are_known_by_name_and_a_model_of_70_billion_needs_no_weights(void **state)
{
    (void)state;
    static const char *const names[] = {"rtx3090", "rtx3090.json", "gh200"}; /* test_machine_file reads all of them */
    put_text("config.json", large);
    double before = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", names[i], "--host-memory", "2TiB",
                                     "--disk-memory", "2TiB"), WORDS("--json"));
        if (status)
            fail_msg("%s: %s", names[i], text_of(scratch_path("err")));
        json_t *o = printed();
        double step = number(o, "predicted", "step_s");
        assert_true(step > 0.01 && step < 1e4);
        if (i == 1)
            assert_true(step > 0.8 * before && step < 1.25 * before); /* the same machine; the search may stop elsewhere */
        before = step;
        json_decref(o);
    }
    int status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "abacus"), WORDS("--quiet"));
    check_refusal("unknown machine", status, 1, WORDS("abacus", "rtx3090"));
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

/* A build folder has a link to the source tree's files; it may be anywhere, and called anything. */
static void machines_are_found_beside_the_program(void **state)
{
    (void)state;
    pt_error e = {0};
    char program[300], command[1200];
    assert_int_equal(dir_make(scratch_path("far"), &e) || dir_make(scratch_path("far/elsewhere"), &e), 0);
    snprintf(program, sizeof program, "%s/far/elsewhere/protrain", scratch);
    assert_int_equal(file_copy_atomic(PT_PROGRAM, program, &e), 0);
    assert_int_equal(chmod(program, 0755), 0);
    snprintf(command, sizeof command, "cd / && %s plan --model %s --machine only-here --quiet > /dev/null 2>&1", program, fixture("llama"));
    assert_int_not_equal(system(command), 0);
    assert_int_equal(dir_make(scratch_path("far/elsewhere/machines"), &e), 0);
    assert_int_equal(file_copy_atomic(PT_FIXTURES "/../../machines/rtx4090.json", scratch_path("far/elsewhere/machines/only-here.json"),
                                      &e), 0);
    assert_int_equal(system(command), 0);
}

static void a_tier_that_a_machine_file_lacks_is_not_free(void **state)
{
    (void)state;
    put_text("config.json", large);
    int status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "a100-40", "--host-memory", "256GiB",
                                 "--disk-memory", "2TiB"),
                           WORDS("--json"));
    assert_int_equal(status, 0);
    assert_non_null(strstr(text_of(scratch_path("err")), "describes no disk"));
    json_t *o = printed();
    double read = number(o, "disk", "read_bytes"), written = number(o, "disk", "written_bytes");
    assert_true(read > 100e9);
    assert_true(number(o, "predicted", "step_s") >= read / 3.5e9 && number(o, "predicted", "step_s") >= written / 0.6e9);
    json_decref(o);
    status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "laptop16", "--device-memory", "64GiB"),
                       WORDS("--host-memory", "2TiB", "--disk-memory", "0", "--json"));
    assert_int_equal(status, 0);
    o = printed();
    assert_true(number(json_object_get(o, "queues"), "to_device", "busy_s") > 1); /* some 140 GB at half of 67 GB/s */
    json_decref(o);
}

static void a_plan_for_a_gpu_is_refused_by_a_cpu(void **state)
{
    (void)state;
    char data[700];
    pt_error e = {0};
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    assert_int_equal(plan_with(WORDS("--model", fixture("llama"), "--seq-len", "8", "--machine", "rtx3090"), WORDS("--json")), 0);
    json_t *o = printed();
    assert_true(json_is_true(json_object_get(json_object_get(json_object_get(o, "plan"), "made_for"), "gpu")));
    assert_int_equal(file_write_json(scratch_path("gpu.json"), json_object_get(o, "plan"), &e), 0);
    json_decref(o);
    int status = run("train", small(), WORDS("--data", data, "--steps", "1", "--device", "cpu", "--out", scratch_path("gpu"), "--plan",
                                             scratch_path("gpu.json")));
    check_refusal("a GPU's plan", status, 1, WORDS("gpu.json", "made for a GPU"));
}

/* On this machine the disk has to be there. */
static void a_run_without_a_disk_is_told_of_one_only_where_there_is_one(void **state)
{
    (void)state;
    char least[32], bytes[32];
    json_int_t missing;
    const words of = WORDS("--model", fixture("gpt2"), "--seq-len", "8", "--disk-path", scratch, "--json");
    snprintf(least, sizeof least, "%s", refused(of, WORDS("--device-memory", "64KiB"), &missing));
    assert_int_equal(plan_with(of, WORDS("--device-memory", least, "--disk-memory", "0")), 3);
    const bool said = size_said(text_of(scratch_path("err")), ", or --disk-memory ", bytes);
    if (said == disk_is_memory(scratch) || (said && plan_with(of, WORDS("--device-memory", least, "--disk-memory", bytes))))
        fail_msg("%s", text_of(scratch_path("err")));
}

static void a_machine_file_that_lies_is_refused_by_its_key(void **state)
{
    (void)state;
    static const char *const bandwidths[] = {"0", "-1e9", "1e300", "\"fast\"", "null", "NaN"};
    for (size_t i = 0; i < sizeof bandwidths / sizeof *bandwidths; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "{\"name\": \"m\", \"kind\": \"cpu\", \"device\": {\"memory_bytes\": 17179869184, \"memory_bandwidth\": %s, "
                 "\"bf16_flops\": 1e12, \"fp32_flops\": 1e12}}", bandwidths[i]);
        int status = plan_with(WORDS("--model", fixture("llama"), "--machine", put_text("machine.json", text)), WORDS("--quiet"));
        check_refusal(bandwidths[i], status, 1, WORDS("machine.json"));
        if (strcmp(bandwidths[i], "NaN") != 0)
            check_refusal(bandwidths[i], status, 1, WORDS("memory_bandwidth"));
    }
}

/* ---- plans and profiles from files ---- */

static void a_plan_for_another_model_or_one_byte_too_big_is_refused(void **state)
{
    (void)state;
    pt_error e = {0};
    char budget[64];
    assert_int_equal(plan_with(small(), WORDS("--json")), 0);
    json_t *o = printed();
    assert_int_equal(file_write_json(scratch_path("planned.json"), json_object_get(o, "plan"), &e), 0);
    long long bytes = (long long)tier_number(o, "peak_bytes", "device");
    json_decref(o);
    snprintf(budget, sizeof budget, "%lld", bytes);
    assert_int_equal(plan_with(small(), WORDS("--plan", scratch_path("planned.json"), "--device-memory", budget, "--json")), 0);
    o = printed();
    assert_true(tier_number(o, "peak_bytes", "device") == (double)bytes);
    json_decref(o);
    snprintf(budget, sizeof budget, "%lld", bytes - 1);
    int status = plan_with(small(), WORDS("--plan", scratch_path("planned.json"), "--device-memory", budget));
    check_refusal("one byte too big", status, 3, WORDS("planned.json", "--device-memory"));
    status = plan_with(WORDS("--model", fixture("gpt2"), "--seq-len", "8", "--plan", scratch_path("planned.json")), WORDS("--quiet"));
    check_refusal("another model", status, 1, WORDS("planned.json", "llama"));
}

/* The same parameters, and half as many heads of twice the size. */
static void a_plan_for_other_heads_is_refused(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": 2,"
        " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"max_position_embeddings\": 64, \"rms_norm_eps\": 1e-05,"
        " \"hidden_act\": \"silu\", \"bos_token_id\": 1, \"eos_token_id\": 2}";
    char text[600], model[300], planned[300];
    snprintf(model, sizeof model, "%s/config.json", scratch);
    snprintf(planned, sizeof planned, "%s/planned.json", scratch);
    words step = WORDS("--model", model, "--machine", "rtx3090", "--quiet", "--json");
    snprintf(text, sizeof text, config, 4, 4);
    put_text("config.json", text);
    if (plan_with(step, WORDS("--dtype", "fp32")))
        fail_msg("%s", text_of(scratch_path("err")));
    json_t *o = printed();
    pt_error e = {0};
    assert_int_equal(file_write_json(planned, json_object_get(o, "plan"), &e), 0);
    json_decref(o);
    words given = WORDS("--dtype", "fp32", "--plan", planned);
    assert_int_equal(plan_with(step, given), 0);
    snprintf(text, sizeof text, config, 2, 2);
    put_text("config.json", text);
    check_refusal("other heads", plan_with(step, given), 1, WORDS("planned.json", "\"heads\" 4, but here it is 2"));
}

/* A run's profile.json with one number changed. */
static const char *changed_profile(const char *run_folder, const char *part, const char *key, double by)
{
    char path[300];
    pt_error e = {0};
    json_t *o;
    snprintf(path, sizeof path, "%s/profile.json", run_folder);
    assert_int_equal(json_file_load(path, 0, &o, &e), 0);
    json_t *holder = json_object_get(o, part), *value = json_object_get(holder, key);
    assert_true(json_is_number(value));
    json_object_set_new(holder, key, json_real(json_number_value(value) * by));
    assert_int_equal(file_write_json(scratch_path("changed.json"), o, &e), 0);
    json_decref(o);
    return scratch_path("changed.json");
}

static void profiles_of_runs_are_used_and_stale_or_lying_ones_refused(void **state)
{
    (void)state;
    char data[700], out[200], again[200], path[300];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(again, sizeof again, "%s/profiled-again", scratch);
    int status = 1;
    for (int i = 0; i < 10 && status; i++) { /* a busy machine may seem another one between two commands */
        snprintf(out, sizeof out, "%s/profiled-%d", scratch, i);
        assert_int_equal(run("train", small(), WORDS("--data", data, "--steps", "1", "--out", out)), 0);
        status = plan_with(small(), WORDS("--profile", changed_profile(out, "blocks", "head_ns", 1)));
        if (!status)
            status = run("train", small(), WORDS("--data", data, "--steps", "1", "--out", again, "--profile",
                                                 scratch_path("changed.json")));
        if (status && !strstr(text_of(scratch_path("err")), "measure again"))
            break;
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
    snprintf(path, sizeof path, "%s/profile.json", out);
    status = plan_with(small(), WORDS("--profile", changed_profile(out, "blocks", "head_ns", -1)));
    check_refusal("negative time", status, 1, WORDS("changed.json", "head_ns"));
    status = plan_with(small(), WORDS("--profile", changed_profile(out, "blocks", "head_ns", 0)));
    check_refusal("no time", status, 1, WORDS("changed.json", "head_ns", "measure again"));
    status = plan_with(small(), WORDS("--profile", path, "--dtype", "fp32"));
    check_refusal("another dtype", status, 1, WORDS("profile.json", "dtype"));
    status = plan_with(WORDS("--model", fixture("gpt2"), "--seq-len", "8", "--device-memory", "64MiB", "--profile", path),
                       WORDS("--quiet"));
    check_refusal("another model", status, 1, WORDS("profile.json", "model_type"));
    status = plan_with(small(), WORDS("--profile", scratch_path("nowhere.json")));
    check_refusal("no profile", status, 1, WORDS("nowhere.json"));
    snprintf(path, sizeof path, "%s/machine.json", out);
    assert_int_equal(plan_with(small(), WORDS("--machine", path)), 0);
}

/* A run in memory measures no transfers, and its plan needs none. */
static void the_plan_and_the_profile_of_a_run_go_together(void **state)
{
    (void)state;
    char data[700], out[200], plan[300], profile[300];
    int status = 1;
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    cache_fresh("no-transfers-yet");
    for (int i = 0; i < 10 && status; i++) { /* a busy machine may seem another one between two commands */
        snprintf(out, sizeof out, "%s/in-memory-%d", scratch, i);
        snprintf(plan, sizeof plan, "%s/plan.json", out);
        snprintf(profile, sizeof profile, "%s/profile.json", out);
        assert_int_equal(run("train", small(), WORDS("--data", data, "--steps", "1", "--out", out)), 0);
        status = plan_with(small(), WORDS("--plan", plan, "--profile", profile));
    }
    cache_back();
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
}

/* ---- planned again ---- */

/* summary.json of a run; json_decref it. */
static json_t *summary_of(const char *folder)
{
    char path[300];
    pt_error e = {0};
    json_t *o;
    snprintf(path, sizeof path, "%s/summary.json", folder);
    if (json_file_load(path, JSON_REJECT_DUPLICATES, &o, &e))
        fail_msg("%s", e.text);
    return o;
}

static double first_prediction(const char *folder)
{
    char path[300];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    const char *at = strstr(text_of(path), "\"predicted_step_s\":");
    assert_non_null(at);
    return atof(at + 19);
}

static void check_memory(const json_t *memory, bool corrected)
{
    const char *tier;
    json_t *o;
    assert_true(json_object_size(memory) > 0);
    json_object_foreach((json_t *)memory, tier, o) {
        const json_t *now = json_object_get(o, "corrected");
        assert_true(json_is_null(now) == !corrected);
        assert_true(json_integer_value(json_object_get(o, "predicted")) > 0);
        assert_true(json_equal(json_object_get(o, "measured"), corrected ? now : json_object_get(o, "predicted")));
    }
}

static void check_summary(const char *folder, bool corrected)
{
    json_t *o = summary_of(folder);
    double predicted = number(o, "step_s", "predicted"), measured = number(o, "step_s", "measured");
    assert_int_equal(json_integer_value(json_object_get(o, "last_step")), 40);
    assert_true(fabs(predicted / first_prediction(folder) - 1) < 1e-6);
    assert_true(measured > 0);
    assert_true(json_integer_value(json_object_get(o, "process_peak_bytes")) > 1 << 20);
    assert_true((json_integer_value(json_object_get(o, "corrected_after_step")) > 0) == corrected);
    assert_true(json_is_null(json_object_get(json_object_get(o, "step_s"), "corrected")) == !corrected);
    if (corrected)
        assert_true(predicted > 100 * measured && number(o, "step_s", "corrected") < predicted / 10);
    assert_true(number(json_object_get(o, "phases_s"), "forward", "measured") > 0);
    assert_true(number(json_object_get(o, "queues_s"), "compute", "measured") > 0);
    assert_true(number(o, "waiting_s", "measured") >= 0);
    assert_int_equal(json_object_size(json_object_get(o, "queues_s")), 7);
    check_memory(json_object_get(o, "memory_bytes"), corrected);
    json_decref(o);
}

static void a_prediction_that_is_far_off_is_noticed_and_changes_no_bit(void **state)
{
    (void)state;
    char data[700], outs[2][200], path[600], *bytes[2];
    size_t n[2];
    pt_error e = {0};
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    for (int i = 0; i < 2; i++) {
        snprintf(outs[i], sizeof outs[i], "%s/off-%d", scratch, i);
        int status = run("train", small(), i ? WORDS("--data", data, "--steps", "40", "--out", outs[i], "--machine", slow_machine(),
                                                     "--disk-memory", "0")
                                             : WORDS("--data", data, "--steps", "40", "--out", outs[i]));
        if (status)
            fail_msg("%s", text_of(scratch_path("err")));
        snprintf(path, sizeof path, "%s/model.safetensors", outs[i]);
        assert_int_equal(file_read_all(path, 1 << 24, &bytes[i], &n[i], &e), 0);
    }
    assert_non_null(strstr(text_of(scratch_path("err")), "note: steps take"));
    assert_non_null(strstr(text_of(scratch_path("err")), ", corrected "));
    check_summary(outs[0], false);
    check_summary(outs[1], true);
    assert_true(n[0] == n[1] && memcmp(bytes[0], bytes[1], n[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
}

/* One line says so: the plan was asked for. */
static void a_prediction_that_is_far_off_is_told_once_of_a_plan_that_was_given(void **state)
{
    (void)state;
    char data[700], first[200], out[200], plan[300];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(first, sizeof first, "%s/given", scratch);
    snprintf(out, sizeof out, "%s/given-off", scratch);
    snprintf(plan, sizeof plan, "%s/plan.json", first);
    assert_int_equal(run("train", small(), WORDS("--data", data, "--steps", "1", "--out", first)), 0);
    if (run("train", small(), WORDS("--data", data, "--steps", "60", "--out", out, "--plan", plan, "--machine", slow_machine())))
        fail_msg("%s", text_of(scratch_path("err")));
    const char *said = text_of(scratch_path("err")), *line = strstr(said, "note: steps take");
    if (!line || !strstr(line, "because --plan is given") || strstr(line + 1, "note: steps take"))
        fail_msg("%s", said);
    json_t *o = summary_of(out);
    assert_int_equal(json_integer_value(json_object_get(o, "corrected_after_step")), 0);
    assert_int_equal(json_integer_value(json_object_get(o, "moved_after_step")), 0);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_object_has_what_its_page_says),
        cmocka_unit_test(the_screen_fits_a_terminal),
        cmocka_unit_test(train_follows_the_plan_that_was_printed),
        cmocka_unit_test(train_shows_the_margins_of_budgets_that_were_not_given),
        cmocka_unit_test(what_does_not_fit_says_what_is_missing_and_that_makes_it_fit),
        cmocka_unit_test(what_measuring_lacks_is_missing_too),
        cmocka_unit_test(bytes_of_frozen_parameters_are_those_of_their_base),
        cmocka_unit_test(of_more_than_is_free_what_is_free_is_the_change),
        cmocka_unit_test(many_threads_have_their_part_of_the_device),
        cmocka_unit_test(what_does_not_fit_names_the_largest_step_that_does),
        cmocka_unit_test(machines_are_known_by_name_and_a_model_of_70_billion_needs_no_weights),
        cmocka_unit_test(a_plan_comes_through_a_pipe),
        cmocka_unit_test(machines_are_found_beside_the_program),
        cmocka_unit_test(a_tier_that_a_machine_file_lacks_is_not_free),
        cmocka_unit_test(a_plan_for_a_gpu_is_refused_by_a_cpu),
        cmocka_unit_test(a_run_without_a_disk_is_told_of_one_only_where_there_is_one),
        cmocka_unit_test(a_machine_file_that_lies_is_refused_by_its_key),
        cmocka_unit_test(a_plan_for_another_model_or_one_byte_too_big_is_refused),
        cmocka_unit_test(a_plan_for_other_heads_is_refused),
        cmocka_unit_test(profiles_of_runs_are_used_and_stale_or_lying_ones_refused),
        cmocka_unit_test(the_plan_and_the_profile_of_a_run_go_together),
        cmocka_unit_test(a_prediction_that_is_far_off_is_noticed_and_changes_no_bit),
        cmocka_unit_test(a_prediction_that_is_far_off_is_told_once_of_a_plan_that_was_given),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
