/* protrain profile, from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/json.h"
#include "io/scratch.h"
#include "program.h"

#include <sys/stat.h>

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
    static const char *const words[] = {"llama", "layer, 2 of them", "GFLOP/s", "AdamW on the device", "AdamW on the host",
                                        "gradients rounded", "overhead of a task", "host to device", "disk, reading", "times as long",
                                        "by threads", "Times of blocks are certain to", "updates and transfers to"};
    const char *text = text_of(scratch_path("out"));
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strstr(text, words[i]))
            fail_msg("no \"%s\" in:\n%s", words[i], text);
}

/* An optimizer with several rules for whole matrices: their times are one curve. */
static void whole_matrices_are_shown_once(void **state)
{
    (void)state;
    static const struct { const char *optimizer, *title; } cases[] = {{"apollo", "APOLLO on the "}, {"apollo8bit", "APOLLO"},
                                                                      {"galore8bit", "GaLore"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(run("profile", OPTIONS("--seq-len", "16", "--batch-size", "2", "--optimizer", cases[i].optimizer)), 0);
        const char *text = text_of(scratch_path("out")), *line = strstr(text, cases[i].title);
        if (!line || strstr(strchr(line, '\n'), cases[i].title))
            fail_msg("not one line of %s in:\n%s", cases[i].title, text);
    }
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
    const char *const options[] = {"--device-memory", "64MiB", "--disk-memory", "0", "--disk-path", "/proc/nothing", "--seq-len", "16",
                                   NULL};
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

static void into_a_folder_go_a_profile_and_a_machine_that_plan_takes(void **state)
{
    (void)state;
    char folder[100], profile[120], machine[120];
    int status = 1;
    snprintf(folder, sizeof folder, "%s/here", scratch);
    snprintf(profile, sizeof profile, "%s/profile.json", folder);
    snprintf(machine, sizeof machine, "%s/machine.json", folder);
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < 10 && status; i++) { /* a busy machine may seem another one between two commands */
        assert_int_equal(run("profile", OPTIONS("--seq-len", "16", "--batch-size", "2", "--host-memory", "64MiB", "--out", folder)), 0);
        status = run("plan", OPTIONS("--seq-len", "16", "--batch-size", "2", "--host-memory", "64MiB", "--profile", profile));
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
    if (run("plan", OPTIONS("--seq-len", "16", "--batch-size", "2", "--host-memory", "64MiB", "--machine", machine)))
        fail_msg("%s", text_of(scratch_path("err")));
    assert_non_null(strstr(text_of(scratch_path("out")), "(computed from the machine file, not measured)"));
}

/* A new name with an ending is a file's. */
static void a_new_name_without_an_ending_is_a_folder(void **state)
{
    (void)state;
    static const struct { const char *out, *file; } cases[] = {
        {"new", "new/profile.json"}, {"a/b/", "a/b/machine.json"}, {"p.txt", "p.txt"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[120];
        snprintf(out, sizeof out, "%s/%s", scratch, cases[i].out);
        if (run("profile", OPTIONS("--seq-len", "16", "--batch-size", "2", "--disk-memory", "0", "--out", out)))
            fail_msg("%s", text_of(scratch_path("err")));
        struct stat st;
        if (stat(scratch_path(cases[i].file), &st) || !S_ISREG(st.st_mode))
            fail_msg("--out %s does not write %s", cases[i].out, cases[i].file);
    }
}

static void a_profile_replaces_a_profile_and_nothing_else(void **state)
{
    (void)state;
    static const char *const files[] = {"notes.txt", "profile.json"};
    for (int i = 0; i < 2; i++) {
        const char *const options[] = {"--device-memory", "64MiB", "--disk-memory", "0", "--seq-len", "16", "--out",
                                       i ? scratch : scratch_path("notes.txt"), NULL};
        scratch_put(files[i], "mine", 4);
        assert_int_equal(run("profile", options), 1);
        assert_non_null(strstr(text_of(scratch_path("err")), files[i]));
        assert_non_null(strstr(text_of(scratch_path("err")), ": this file exists and is not a profile: give a new --out"));
        assert_string_equal(text_of(scratch_path(files[i])), "mine");
    }
}

/* ---- a folder that cannot be written ---- */

enum { NOBODY = 65534, CANNOT = 98 };

/* In the folder `folder`, whose files are another's, with what is temporary in scratch/tmp. */
static int run_as_nobody(words args)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child)
        return program_wait(child);
    redirect(1, scratch_path("out"));
    redirect(2, scratch_path("err"));
    arguments a = {0};
    add_arguments(&a, args);
    if (chdir(scratch_path("closed")) || setenv("TMPDIR", scratch_path("tmp"), 1) || setenv("XDG_CACHE_HOME", scratch_path("tmp"), 1) ||
        (!geteuid() && (setgid(NOBODY) || setuid(NOBODY))))
        _exit(CANNOT);
    execv(a.v[0], (char *const *)a.v);
    _exit(CANNOT);
}

static void the_current_folder_need_not_be_writable(void **state)
{
    (void)state;
    static const char *const folders[] = {"closed", "tmp"};
    char model[120], in_the_way[120];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(mkdir(scratch_path(folders[i]), 0777), 0);
        assert_int_equal(chmod(scratch_path(folders[i]), i ? 0777 : 0555), 0);
    }
    assert_int_equal(chmod(scratch, 0755), 0);
    snprintf(model, sizeof model, "%s/config.json", scratch);
    snprintf(in_the_way, sizeof in_the_way, "%s/closed", scratch);
    if (run_as_nobody(WORDS("--version")) == CANNOT) {
        printf("skipped: nobody cannot run the program here\n");
        skip();
    }
    const words commands[] = {
        WORDS("profile", "--model", model, "--seq-len", "16", "--batch-size", "2", "--device-memory", "64MiB", "--disk-memory", "64MiB"),
        WORDS("plan", "--model", model, "--seq-len", "16", "--batch-size", "2", "--device-memory", "1MiB", "--host-memory", "64MiB",
              "--disk-memory", "64MiB")};
    for (int i = 0; i < 2; i++) {
        if (run_as_nobody(commands[i]))
            fail_msg("%s: %s", commands[i][0], text_of(scratch_path("err")));
    }
    /* what was asked for is not put elsewhere */
    assert_int_equal(run_as_nobody(WORDS("profile", "--model", model, "--disk-path", in_the_way, "--device-memory", "64MiB",
                                         "--disk-memory", "64MiB", "--fresh")), 1);
    assert_non_null(strstr(text_of(scratch_path("err")), in_the_way));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_person_sees_a_table, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(whole_matrices_are_shown_once, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(json_is_what_is_written_and_what_plan_takes, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(into_a_folder_go_a_profile_and_a_machine_that_plan_takes, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(the_current_folder_need_not_be_writable, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(a_new_name_without_an_ending_is_a_folder, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(a_profile_replaces_a_profile_and_nothing_else, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(without_a_disk_none_is_touched, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(what_does_not_fit_has_its_own_status, open_folder, scratch_remove),
        cmocka_unit_test_setup_teardown(wrong_use_is_told, open_folder, scratch_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
