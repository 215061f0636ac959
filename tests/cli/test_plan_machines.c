/* Plans for machines that are not here, and their files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cli/plan_runs.h"

#include <math.h>
#include <signal.h>
#include <sys/wait.h>

/* ---- machines that are not here ---- */

static pid_t spin(void)
{
    const pid_t child = fork();
    for (volatile long i = 0; child == 0; i++)
        ;
    assert_true(child > 0);
    return child;
}

static void machines_are_known_by_name_and_a_model_of_70_billion_needs_no_weights(void **state)
{
    (void)state;
    static const char *const names[] = {"rtx3090", "rtx3090.json", "gh200"}; /* test_machine_file reads all of them */
    put_text("config.json", large);
    char *before = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const pid_t busy = i == 1 ? spin() : 0;
        int status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", names[i], "--host-memory", "2TiB",
                                     "--disk-memory", "2TiB", "--search-effort", "0.1"), WORDS("--json", "--threads", i ? "2" : "1"));
        if (busy)
            assert_true(!kill(busy, SIGKILL) && waitpid(busy, NULL, 0) == busy);
        if (status)
            fail_msg("%s: %s", names[i], text_of(scratch_path("err")));
        const char *text = text_of(scratch_path("out"));
        if (i == 1) /* with another number of threads, beside another process */
            assert_string_equal(text, before);
        free(before);
        before = strdup(text);
        json_t *o = printed();
        double step = number(o, "predicted", "step_s");
        assert_true(step > 0.01 && step < 1e4);
        json_decref(o);
    }
    free(before);
    int status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "abacus"), WORDS("--quiet"));
    check_refusal("unknown machine", status, 1, WORDS("abacus", "rtx3090"));
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
                           WORDS("--json", "--search-effort", "0.1"));
    assert_int_equal(status, 0);
    assert_non_null(strstr(text_of(scratch_path("err")), "describes no disk"));
    json_t *o = printed();
    double read = number(o, "disk", "read_bytes"), written = number(o, "disk", "written_bytes");
    assert_true(read > 100e9);
    assert_true(number(o, "predicted", "step_s") >= read / 3.5e9 && number(o, "predicted", "step_s") >= written / 0.6e9);
    json_decref(o);
    status = plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "laptop16", "--device-memory", "64GiB"),
                       WORDS("--host-memory", "2TiB", "--disk-memory", "0", "--json", "--search-effort", "0.1"));
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

/* Each machine is a row, in the order that was given; `all` has the fastest first. What a row says is what its own plan says. */
static void several_machines_are_compared_in_one_table(void **state)
{
    (void)state;
    static const char *const own = "{\"name\": \"mine\", \"kind\": \"cpu\", \"device\": {\"memory_bytes\": 17179869184, "
                                   "\"memory_bandwidth\": 5e10, \"bf16_flops\": 1e12, \"fp32_flops\": 1e12, \"watts\": 65}, "
                                   "\"price_per_hour\": 0.5}";
    char list[900];
    const words of = WORDS("--model", fixture("llama"), "--seq-len", "64", "--steps", "1000", "--search-effort", "0.1", "--quiet");
    snprintf(list, sizeof list, "rtx4090,%s,h100", put_text("mine.json", own));
    assert_int_equal(plan_with(of, WORDS("--machine", list)), 0);
    const char *text = text_of(scratch_path("out"));
    const char *a = strstr(text, "\nrtx4090 "), *b = strstr(text, "/mine.json "), *c = strstr(text, "\nh100 ");
    assert_true(a && b && c && a < b && b < c);
    assert_true(strstr(text, "all parameters*") && strstr(text, "kWh*"));
    assert_int_equal(plan_with(of, WORDS("--machine", list, "--json")), 0);
    pt_error e = {0};
    json_t *all;
    assert_int_equal(json_file_load(scratch_path("out"), 0, &all, &e), 0);
    assert_int_equal(json_array_size(all), 3);
    const json_t *mine = json_array_get(all, 1);
    const double run_s = json_number_value(json_object_get(mine, "total_s"));
    assert_true(run_s > 0 && fabs(json_number_value(json_object_get(mine, "total_kwh")) / (run_s * 65 / 3.6e6) - 1) < 1e-9);
    assert_true(fabs(json_number_value(json_object_get(mine, "total_price")) / (run_s / 3600 * 0.5) - 1) < 1e-9);
    assert_int_equal(plan_with(of, WORDS("--machine", scratch_path("mine.json"), "--json")), 0);
    json_t *alone = printed();
    assert_true(fabs(run_s / 1000 / number(alone, "predicted", "step_s") - 1) < 0.02);
    assert_true(fabs(json_number_value(json_object_get(alone, "total_s")) / number(alone, "predicted", "step_s") - 1000) < 1e-6);
    json_decref(alone);
    json_decref(all);
    assert_int_equal(plan_with(of, WORDS("--machine", "all", "--json")), 0);
    assert_int_equal(json_file_load(scratch_path("out"), 0, &all, &e), 0);
    assert_true(json_array_size(all) > 7);
    double before = 0;
    size_t i;
    json_t *one;
    json_array_foreach(all, i, one) {
        const double now = json_number_value(json_object_get(one, "total_s"));
        assert_true(now >= before);
        before = now;
    }
    json_decref(all);
    assert_int_equal(plan_with(of, WORDS("--machine", "rtx4090", "--host-memory", "64GiB", "--others")), 0);
    assert_non_null(strstr(text_of(scratch_path("err")), "--host-memory leaves too little of the machine's 64.00 GiB"));
    assert_non_null(strstr(text_of(scratch_path("out")), "\nothers   "));
    assert_int_equal(plan_with(of, WORDS("--machine", "rtx4090", "--host-memory", "60GiB")), 0);
    assert_int_equal(*text_of(scratch_path("err")), 0);
    assert_null(strstr(text_of(scratch_path("out")), "\nothers   "));
    check_refusal("an empty name", plan_with(of, WORDS("--machine", "h100,,h200")), 2, WORDS("--machine", "empty"));
    check_refusal("one machine's plan", plan_with(of, WORDS("--machine", "h100,h200", "--plan", list)), 2, WORDS("--plan"));
    check_refusal("a name that is none", plan_with(of, WORDS("--machine", "h100,abacus")), 1, WORDS("abacus", "rtx3090"));
}

/* Half of the states are updated on the host, once the norm is known: a bound that left that out would be 5% below this plan. */
static void the_bound_knows_that_updates_wait_for_the_norm(void **state)
{
    (void)state;
    put_text("config.json",
             "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 11008, \"num_hidden_layers\": 32, "
             "\"num_attention_heads\": 32, \"vocab_size\": 32000, \"max_position_embeddings\": 4096, \"bos_token_id\": 1, "
             "\"eos_token_id\": 2}");
    assert_int_equal(plan_with(WORDS("--model", scratch_path("config.json"), "--machine", "gh200", "--seq-len", "1024"),
                               WORDS("--batch-size", "8", "--json")), 0);
    json_t *o = printed();
    const double step_s = number(o, "predicted", "step_s"), bound_s = json_number_value(json_object_get(o, "bound_s"));
    if (!(bound_s <= step_s && bound_s > 0.98 * step_s))
        fail_msg("a step takes %.4f s, and no plan less than %.4f s", step_s, bound_s);
    json_decref(o);
}

/* With what a way needs at least, it fits and takes as long as was said; with much less it does not. */
static void the_least_memory_is_enough_and_little_less_is_not(void **state)
{
    (void)state;
    char model[600];
    snprintf(model, sizeof model, "%s", put_text("config.json", large));
    const words of = WORDS("--model", model, "--machine", "h100", "--search-effort", "0.1", "--json");
    assert_int_equal(plan_with(of, WORDS("--disk-memory", "0")), 0);
    json_t *o = printed(), *way;
    size_t i;
    json_array_foreach(json_object_get(o, "ways"), i, way) {
        char bytes[32], less[32], more[64];
        const char *options = json_string_value(json_object_get(way, "options"));
        const double least = json_number_value(json_object_get(json_object_get(way, "least_bytes"), "device"));
        const double step_s = json_number_value(json_object_get(way, "least_step_s"));
        if (strchr(options, ' ') != strrchr(options, ' ')) /* two options: one is enough to show it */
            continue;
        snprintf(more, sizeof more, "%s", *options ? options : "--optimizer adamw");
        char *value = strchr(more, ' ');
        *value++ = 0;
        snprintf(bytes, sizeof bytes, "%.0f", least);
        snprintf(less, sizeof less, "%.0f", 0.8 * least);
        assert_true(least > 1e9 && step_s > 1);
        assert_int_equal(plan_with(of, WORDS("--disk-memory", "0", "--device-memory", bytes, more, value)), 0);
        json_t *again = printed();
        assert_true(number(again, "predicted", "step_s") <= 1.01 * step_s && number(again, "predicted", "step_s") > 0.9 * step_s);
        json_decref(again);
        assert_int_equal(plan_with(of, WORDS("--disk-memory", "0", "--device-memory", less, more, value)), 3);
    }
    assert_int_equal(i, 4);
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(machines_are_known_by_name_and_a_model_of_70_billion_needs_no_weights),
        cmocka_unit_test(machines_are_found_beside_the_program),
        cmocka_unit_test(a_tier_that_a_machine_file_lacks_is_not_free),
        cmocka_unit_test(a_plan_for_a_gpu_is_refused_by_a_cpu),
        cmocka_unit_test(a_run_without_a_disk_is_told_of_one_only_where_there_is_one),
        cmocka_unit_test(a_machine_file_that_lies_is_refused_by_its_key),
        cmocka_unit_test(several_machines_are_compared_in_one_table),
        cmocka_unit_test(the_bound_knows_that_updates_wait_for_the_norm),
        cmocka_unit_test(the_least_memory_is_enough_and_little_less_is_not),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
