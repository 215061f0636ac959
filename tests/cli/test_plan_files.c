/* Plans and profiles from files, and runs whose prediction is far off. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>

#include "cli/plan_runs.h"

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
        cmocka_unit_test(a_plan_for_another_model_or_one_byte_too_big_is_refused),
        cmocka_unit_test(a_plan_for_other_heads_is_refused),
        cmocka_unit_test(profiles_of_runs_are_used_and_stale_or_lying_ones_refused),
        cmocka_unit_test(the_plan_and_the_profile_of_a_run_go_together),
        cmocka_unit_test(a_prediction_that_is_far_off_is_noticed_and_changes_no_bit),
        cmocka_unit_test(a_prediction_that_is_far_off_is_told_once_of_a_plan_that_was_given),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
