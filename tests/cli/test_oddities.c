/* Input that a run can do with, and that its owner should hear of: one sentence, and the run goes on. Everything goes through the
 * program. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/refusal.h"

#include "sanitized.h"

#include <sys/resource.h>
#include <sys/stat.h>

/* A tokenizer of letters, and of what JSON needs. */
static const char letters[] =
    "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, \"added_tokens\": [], \"normalizer\": null, "
    "\"pre_tokenizer\": null, \"post_processor\": null, \"decoder\": null, \"model\": {\"type\": \"BPE\", \"dropout\": null, "
    "\"unk_token\": null, \"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
    "\"byte_fallback\": false, \"vocab\": {\"_\": 0, \"<s>\": 1, \"</s>\": 2, \"a\": 3, \"b\": 4, \" \": 5, \"\\n\": 6, \"[\": 7, "
    "\"]\": 8, \"{\": 9, \"}\": 10, \"\\\"\": 11, \":\": 12, \",\": 13}, \"merges\": []}}";
static const char plain[] = "ab ab ba ab aab bab abab bbab ab ab ab a b ab ba ba ab ab ab ab ab ab ab\n";

static char model[128], data[160], out[160];

static void setup_model(void)
{
    copy_model("llama");
    put_text("model/tokenizer.json", letters);
    snprintf(model, sizeof model, "%s/model", scratch);
    snprintf(out, sizeof out, "%s/out", scratch);
}

/* One step with these data; stderr. */
static const char *run_on(const char *path, words more, int status)
{
    arguments a = {0};
    pt_error e = {0};
    snprintf(data, sizeof data, "%s", path);
    assert_int_equal(tree_remove(out, &e), 0);
    add_arguments(&a, WORDS("train", "--model", model, "--data", data, "--out", out, "--seq-len", "8", "--batch-size", "1", "--steps", "1",
                            "--quiet"));
    add_arguments(&a, more);
    assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), status);
    return text_of(scratch_path("err"));
}

static void says(const char *text, const char *word)
{
    if (!strstr(text, word))
        fail_msg("\"%s\" is not in: %s", word, text);
}

static void says_nothing_of(const char *text, const char *word)
{
    if (strstr(text, word))
        fail_msg("\"%s\" is in: %s", word, text);
}

/* ---- data ---- */

static void records_called_text_are_told_of(void **state)
{
    (void)state;
    static const char array[] = "[{\"a\": \"ab ab ab ab ab ab ab\"}, {\"a\": \"b\"}]", strings[] = " [\n\"ab ab ab ab ab ab\"]";
    static const char line[] = "{ \"a\": \"ab ab ab ab ab ab ab\"}\n", prose[] = "[ab] ab ab ab ab {ab ab} ab ab",
        brace[] = "{ab ab ab ab ab ab ab}";
    setup_model();
    says(run_on(put_text("array.txt", array), WORDS("--seed", "1"), 0), "array.txt looks like JSON");
    says(run_on(put_text("strings.txt", strings), WORDS("--seed", "1"), 0), "strings.txt looks like JSON");
    says(run_on(put_text("line.txt", line), WORDS("--seed", "1"), 0), ".jsonl");
    says_nothing_of(run_on(put_text("prose.txt", prose), WORDS("--seed", "1"), 0), "JSON");
    says_nothing_of(run_on(put_text("brace.txt", brace), WORDS("--seed", "1"), 0), "JSON");
}

static void links_that_lead_nowhere_are_left_out(void **state)
{
    (void)state;
    char folder[128], link[160];
    pt_error e = {0};
    setup_model();
    snprintf(folder, sizeof folder, "%s/folder", scratch);
    assert_int_equal(dir_make(folder, &e), 0);
    put_text("folder/a.txt", plain);
    snprintf(link, sizeof link, "%s/loop.txt", folder);
    assert_int_equal(symlink("loop.txt", link), 0);
    says(run_on(folder, WORDS("--seed", "1"), 0),
         "1 entry of the data folders is no data file and is left out: loop.txt (a link without a target)");
    snprintf(link, sizeof link, "%s/gone.txt", folder);
    assert_int_equal(symlink("nothing", link), 0);
    says(run_on(folder, WORDS("--seed", "1"), 0), "2 entries");
}

/* ---- the model ---- */

static void ids_of_no_type_are_left_out(void **state)
{
    (void)state;
    static const char *const values[] = {"\"two\"", "[\"a\"]", "1.5", "{\"a\": 1}", "true"};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        char config[2000], with[2200], said[64];
        setup_model();
        snprintf(config, sizeof config, "%.1990s", text_of(scratch_path("model/config.json")));
        char *brace = strchr(config, '{'), *known = strstr(config, "\"eos_token_id\"");
        assert_non_null(brace);
        if (known)
            memcpy(known, "\"xos_token_id\"", 14);
        snprintf(with, sizeof with, "{\"eos_token_id\": %s, %s", values[i], brace + 1);
        put_text("model/config.json", with);
        snprintf(said, sizeof said, "\"eos_token_id\" is %.3s", values[i] + (values[i][0] == '['));
        says(run_on(put_text("plain.txt", plain), WORDS("--seed", "1"), 0), said);
    }
}

/* ---- options and the system ---- */

static void a_warm_up_that_does_not_end_is_told_of(void **state)
{
    (void)state;
    setup_model();
    says(run_on(put_text("plain.txt", plain), WORDS("--warmup-steps", "5"), 0), "the warm-up takes 5 steps and the run has 1");
    says_nothing_of(run_on(put_text("plain.txt", plain), WORDS("--warmup-steps", "0"), 0), "warm-up");
}

static void folders_of_the_environment_that_are_not_there_are_named(void **state)
{
    (void)state;
    char *cache = strdup(getenv("XDG_CACHE_HOME") ? getenv("XDG_CACHE_HOME") : ""),
        *placement = strdup(getenv("HOME") ? getenv("HOME") : "");
    const char *text;
    setup_model();
    text = put_text("plain.txt", plain);
    char path[160];
    snprintf(path, sizeof path, "%s", text);
    setenv("TMPDIR", "/proc/none", 1);
    assert_int_equal(run_program(WORDS("eval", "--model", model, "--data", path, "--quiet")), 1);
    says(text_of(scratch_path("err")), "TMPDIR is /proc/none, but there is no such folder");
    says(run_on(path, WORDS("--seed", "1"), 0), "TMPDIR is /proc/none, but there is no such folder"); /* though nothing goes there */
    assert_int_equal(run_program(WORDS("plan", "--model", model, "--seq-len", "8", "--machine", "laptop16", "--quiet")), 0);
    says(text_of(scratch_path("err")), "TMPDIR is /proc/none, but there is no such folder");
    unsetenv("TMPDIR");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "/proc/none", 1);
    says(run_on(path, WORDS("--seed", "1"), 0), "HOME is /proc/none, but there is no such folder");
    assert_int_equal(run_program(WORDS("plan", "--model", model, "--seq-len", "8", "--machine", "laptop16", "--quiet")), 0);
    says_nothing_of(text_of(scratch_path("err")), "HOME"); /* nothing is measured */
    setenv("HOME", placement, 1);
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
    free(placement);
}

static void a_stack_that_is_too_small_is_told_of(void **state)
{
    (void)state;
    NOT_SANITIZED();
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_STACK, &before), 0);
    for (rlim_t kib = 64; kib <= 256; kib *= 2) {
        assert_int_equal(setrlimit(RLIMIT_STACK, &(struct rlimit){kib << 10, before.rlim_max}), 0);
        const int status = run_program(WORDS("plan", "--model", fixture("llama"), "--machine", "laptop16"));
        assert_int_equal(setrlimit(RLIMIT_STACK, &before), 0);
        assert_int_equal(status, kib < 256);
        if (status)
            says(text_of(scratch_path("err")), "and must have at least 256 KiB: raise the limit with ulimit -s 8192");
    }
}

/* Where it made the folder: nothing stays, and what was there before does. */
static void a_run_that_is_refused_leaves_nothing(void **state)
{
    (void)state;
    char kept[200];
    setup_model();
    snprintf(kept, sizeof kept, "%s/cache/kept", out);
    run_on(put_text("plain.txt", plain), WORDS("--device-memory", "1KiB"), 3);
    assert_false(path_exists(out));
    assert_int_equal(dir_make(out, NULL), 0);
    put_text("out/note", "mine");
    arguments a = {0};
    add_arguments(&a, WORDS("train", "--model", model, "--data", data, "--out", out, "--seq-len", "8", "--batch-size", "1", "--steps", "1",
                            "--quiet", "--device-memory", "1KiB"));
    assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 3);
    assert_true(path_exists(scratch_path("out/note")) && !path_exists(scratch_path("out/cache")));
    assert_int_equal(dir_make(scratch_path("out/cache"), NULL), 0);
    put_text("out/cache/kept", "mine");
    assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 3);
    assert_true(path_exists(kept));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_called_text_are_told_of),
        cmocka_unit_test(links_that_lead_nowhere_are_left_out),
        cmocka_unit_test(ids_of_no_type_are_left_out),
        cmocka_unit_test(a_warm_up_that_does_not_end_is_told_of),
        cmocka_unit_test(folders_of_the_environment_that_are_not_there_are_named),
        cmocka_unit_test(a_stack_that_is_too_small_is_told_of),
        cmocka_unit_test(a_run_that_is_refused_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
