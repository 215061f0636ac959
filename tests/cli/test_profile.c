/* protrain profile, from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "io/scratch.h"
#include "program.h"

static const char config[] =
    "{\"model_type\": \"llama\", \"vocab_size\": 300, \"hidden_size\": 32, \"num_attention_heads\": 4, \"num_hidden_layers\": 2, "
    "\"intermediate_size\": 48, \"max_position_embeddings\": 64, \"hidden_act\": \"silu\", \"bos_token_id\": 0, \"eos_token_id\": 0}";

static int run(const char *command, const char *const *options)
{
    arguments a = {.n = 0};
    add_argument(&a, command);
    add_argument(&a, "--model");
    add_argument(&a, scratch_path("config.json"));
    add_arguments(&a, options);
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

static int open_folder(void **state)
{
    if (scratch_make(state))
        return 1;
    scratch_put("config.json", config, strlen(config));
    return 0;
}

#define OPTIONS(...) (const char *const[]){"--device-memory", "64MiB", "--disk-path", scratch, "--disk-memory", "64MiB", __VA_ARGS__, NULL}

static void a_person_sees_a_table(void **state)
{
    (void)state;
    assert_int_equal(run("profile", OPTIONS("--seq-len", "16", "--batch-size", "2", "--host-memory", "64MiB", "--fresh")), 0);
    static const char *const words[] = {"llama", "layer, 2 of them", "GFLOP/s", "AdamW on the device", "AdamW on the host", "host to device",
                                        "disk, reading", "times as long", "by threads", "Blocks are sure to", "updates and transfers to"};
    const char *text = text_of(scratch_path("out"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i]))
            fail_msg("no \"%s\" in:\n%s", words[i], text);
}

static void json_is_what_is_written_and_what_plan_takes(void **state)
{
    (void)state;
    json_t *shown, *written;
    pt_error e = {0};
    int status = 1;
    for (int i = 0; i < 10 && status; i++) { /* a busy machine may seem another one between two commands */
        assert_int_equal(run("profile", OPTIONS("--seq-len", "16", "--batch-size", "2", "--json", "--out", scratch_path("p.json"))), 0);
        assert_int_equal(json_file_load(scratch_path("out"), 0, &shown, &e), 0);
        assert_int_equal(json_file_load(scratch_path("p.json"), 0, &written, &e), 0);
        assert_true(json_equal(shown, written));
        assert_true(json_is_object(json_object_get(shown, "blocks")) && json_is_object(json_object_get(shown, "machine")));
        json_decref(shown);
        json_decref(written);
        status = run("plan", OPTIONS("--seq-len", "16", "--batch-size", "2", "--profile", scratch_path("p.json")));
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
    assert_int_equal(run("plan", OPTIONS("--seq-len", "8", "--batch-size", "2", "--profile", scratch_path("p.json"))), 1);
    assert_non_null(strstr(text_of(scratch_path("err")), "seq_len"));
}

static void without_a_disk_none_is_touched(void **state)
{
    (void)state;
    const char *const options[] = {"--device-memory", "64MiB", "--disk-memory", "0", "--disk-path", "/proc/nothing", "--seq-len", "16", NULL};
    assert_int_equal(run("profile", options), 0);
    assert_null(strstr(text_of(scratch_path("out")), "disk"));
}

static void what_does_not_fit_has_its_own_status(void **state)
{
    (void)state;
    const char *const options[] = {"--device-memory", "40KiB", "--disk-memory", "0", NULL};
    assert_int_equal(run("profile", options), 3);
    assert_non_null(strstr(text_of(scratch_path("err")), "--device-memory"));
}

static void wrong_use_is_told(void **state)
{
    (void)state;
    const char *const unknown[] = {"--speed", "fast", NULL}, *const absent[] = {"--model", "/nothing/here", NULL};
    assert_int_equal(run("profile", unknown), 2);
    assert_int_equal(run("profile", absent), 1);
    assert_non_null(strstr(text_of(scratch_path("err")), "/nothing/here"));
    assert_int_equal(run("profile", OPTIONS("--seq-len", "16", "--out", "/nothing/here/p.json")), 1);
    assert_non_null(strstr(text_of(scratch_path("err")), "/nothing/here/p.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_person_sees_a_table, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(json_is_what_is_written_and_what_plan_takes, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(without_a_disk_none_is_touched, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(what_does_not_fit_has_its_own_status, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(wrong_use_is_told, open_folder, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
