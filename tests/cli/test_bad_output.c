/* What a run that cannot write, or whose numbers explode, says and leaves: one clear sentence on stderr, the right exit status, and
 * what was complete before. Everything goes through the program, as a user meets it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/refusal.h"

#include "base/units.h"

#include <math.h>

/* ---- output ---- */

static void an_unusable_output_folder_is_refused(void **state)
{
    (void)state;
    char data[600], below[300];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    put_text("file", "mine");
    snprintf(below, sizeof below, "%s/below", scratch_path("file"));
    const char *outs[] = {scratch_path("file"), below, "/proc/self/nowhere"};
    for (size_t i = 0; i < 3; i++) {
        int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", outs[i],
                                       "--quiet"));
        check_sentence("unusable --out", status, 1, WORDS(i < 2 ? "file" : "/proc/self/nowhere"));
    }
    assert_string_equal(text_of(scratch_path("file")), "mine");
}

static int train_read_only(const char *folder)
{
    char data[600];
    if (mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL))
        return 77;
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", folder, "--quiet",
                                   "--device-memory", "64MiB"));
    const char *text = text_of(scratch_path("err"));
    return status == 1 && strstr(text, "protrain: ") && strstr(text, folder) && !strchr(text, '\n')[1] ? 0 : 1;
}

static void a_read_only_output_folder_is_refused(void **state)
{
    (void)state;
    int status = on_small_disk(1 << 20, train_read_only);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
}

static int train_until_full(const char *folder)
{
    char data[600], out[300];
    snprintf(data, sizeof data, "%s/bf16/gpt2/tokens.npy", PT_FIXTURES);
    snprintf(out, sizeof out, "%s/bf16/gpt2", PT_FIXTURES);
    char model[600];
    snprintf(model, sizeof model, "%s", out);
    snprintf(out, sizeof out, "%s/run", folder);
    int status = run_program(WORDS("train", "--model", model, "--data", data, "--seq-len", "16", "--out", out, "--quiet", "--steps", "6",
                                   "--save-every", "2", "--device-memory", "64MiB"));
    const char *said = strstr(text_of(scratch_path("err")), "protrain: ");
    char checkpoint[400];
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2/trainer/trainer.json", out);
    bool good = status == 1 && said && strstr(said, "checkpoint-4") && strstr(said, "make room") && !strchr(said, '\n')[1];
    snprintf(data, sizeof data, "%s/checkpoint-4", out);
    return good && path_exists(checkpoint) && !path_exists(data) ? 0 : 1;
}

static void a_disk_that_fills_up_is_named_and_the_last_checkpoint_stands(void **state)
{
    (void)state;
    int status = on_small_disk(2300 << 10, train_until_full);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
}

/* Of the small disk, before any plan is made. */
static int ask_for_more_disk(const char *folder)
{
    char data[600], out[200];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/more-disk", scratch);
    words commands[] = {WORDS("plan"), WORDS("train", "--data", data, "--out", out)};
    for (size_t i = 0; i < 2; i++) {
        arguments a = {0};
        add_arguments(&a, commands[i]);
        add_arguments(&a, WORDS("--model", fixture("llama"), "--seq-len", "8", "--quiet", "--device-memory", "64MiB", "--disk-path", folder,
                                "--disk-memory", "1025KiB"));
        int status = program_wait(program_start(&a, "/dev/null", scratch_path("err")));
        const char *said = strstr(text_of(scratch_path("err")), "protrain: ");
        if (status != 3 || !said || !strstr(said, "--disk-memory is 1.00 MiB, but only 1.00 MiB are free in /mnt") ||
            !strstr(said, "--disk-path"))
            return 1;
    }
    return 0;
}

static void more_disk_than_is_free_does_not_fit(void **state)
{
    (void)state;
    int status = on_small_disk(1 << 20, ask_for_more_disk);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%s", text_of(scratch_path("err")));
}

/* The run's own checkpoints may have taken what was free when it began. */
static void a_resumed_run_takes_the_disk_that_is_left(void **state)
{
    (void)state;
    char data[600], out[300];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/resumed", scratch);
    for (int i = 0; i < 2; i++) {
        arguments a = {0};
        add_arguments(&a, WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", out, "--steps", "2",
                                "--save-every", "1", "--quiet", "--device-memory", "64MiB"));
        if (i)
            add_arguments(&a, WORDS("--resume", "--disk-memory", "900TiB"));
        int status = program_wait(program_start(&a, "/dev/null", scratch_path("err")));
        if (status && i && disk_is_memory(scratch)) /* there it has to fit with the rest */
            skip();
        if (status || (i && !strstr(text_of(scratch_path("err")), "--disk-memory is 900.00 TiB, but ")))
            fail_msg("%s", text_of(scratch_path("err")));
    }
}

/* What the run was for is written by then. */
static void an_account_that_cannot_be_written_is_told_and_no_more(void **state)
{
    (void)state;
    char data[600], out[300], path[600];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/account", scratch);
    snprintf(path, sizeof path, "%s/summary.json", out);
    assert_int_equal(mkdir(out, 0700) || mkdir(path, 0700), 0);
    int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", out, "--steps", "2",
                                   "--quiet", "--device-memory", "64MiB"));
    if (status || !strstr(text_of(scratch_path("err")), "summary.json"))
        fail_msg("%d: %s", status, text_of(scratch_path("err")));
    snprintf(path, sizeof path, "%s/model.safetensors", out);
    assert_true(path_exists(path));
}

static void a_profile_that_was_given_is_not_removed(void **state)
{
    (void)state;
    char out[300], path[400];
    snprintf(out, sizeof out, "%s/given", scratch);
    snprintf(path, sizeof path, "%s/profile.json", out);
    assert_int_equal(mkdir(out, 0700), 0);
    put_text("given/profile.json", "{}");
    int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", "/nothing/here.npy", "--seq-len", "8", "--out", out,
                                   "--quiet", "--profile", path));
    check_sentence("a profile in --out", status, 1, WORDS("/nothing/here.npy"));
    assert_true(path_exists(path));
}

/* Whoever's they are: only what this run has written goes with it. */
static void what_lies_in_the_folder_of_a_run_that_cannot_begin_stays(void **state)
{
    (void)state;
    static const char *const files[] = {"found/machine.json", "found/profile.json"};
    char data[600];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    const char *not_there[] = {"/nothing/here.npy", data};
    assert_int_equal(mkdir(scratch_path("found"), 0700), 0);
    for (int i = 0; i < 2; i++) {
        put_text(files[0], "mine");
        put_text(files[1], "mine");
        int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", not_there[i], "--seq-len", "8", "--out",
                                       scratch_path("found"), "--quiet", "--device-memory", "1KiB", "--disk-memory", "0"));
        check_sentence("files in --out", status, i ? 3 : 1, WORDS(i ? "--device-memory" : not_there[0]));
        assert_string_equal(text_of(scratch_path(files[0])), "mine");
        assert_string_equal(text_of(scratch_path(files[1])), "mine");
    }
}

static int plan_on(const char *folder, const char *memory, const char *disk)
{
    arguments a = {0};
    add_arguments(&a, WORDS("plan", "--model", fixture("llama"), "--seq-len", "8", "--quiet", "--device-memory", memory));
    add_arguments(&a, WORDS("--disk-path", folder));
    if (disk)
        add_arguments(&a, WORDS("--disk-memory", disk));
    return program_wait(program_start(&a, "/dev/null", scratch_path("err")));
}

/* With a little less than what does without a disk. */
static int plan_with_a_disk_in_ram(const char *folder)
{
    char memory[32];
    plan_on(folder, "1MiB", "0");
    const char *give = strstr(text_of(scratch_path("err")), "--device-memory ");
    uint64_t bytes;
    if (!give || sscanf(give, "--device-memory %30[0-9A-Za-z.]", memory) != 1 || size_parse(memory, &bytes, NULL))
        return 1;
    snprintf(memory, sizeof memory, "%llu", (unsigned long long)(bytes - size_granule(bytes)));
    if (plan_on(folder, memory, NULL) != 3 || !strstr(text_of(scratch_path("err")), "note: /mnt is in RAM"))
        return 2;
    if (plan_on(folder, "64MiB", NULL) || strstr(text_of(scratch_path("err")), "is in RAM")) /* nothing would go there */
        return 4;
    return plan_on(folder, memory, "16MiB") ? 3 : 0;
}

static void a_disk_in_ram_is_used_where_it_is_asked_for(void **state)
{
    (void)state;
    int status = on_small_disk(32 << 20, plan_with_a_disk_in_ram);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    if (status)
        fail_msg("%d: %s", status, text_of(scratch_path("err")));
}

static void a_second_run_into_the_same_folder_is_refused(void **state)
{
    (void)state;
    char data[600], out[128], metrics[200];
    arguments a = {0};
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/shared", scratch);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    add_arguments(&a, WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", out, "--quiet", "--steps",
                            "1000000", "--device-memory", "64MiB"));
    pid_t first = program_start(&a, "/dev/null", scratch_path("err-first"));
    for (int i = 0; i < 6000 && !*text_of(metrics); i++)
        sleep_seconds(0.01);
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)first);
    for (int resume = 0; resume < 2; resume++) {
        arguments b = a;
        if (resume)
            add_argument(&b, "--resume");
        check_sentence("second run", program_wait(program_start(&b, "/dev/null", scratch_path("err"))), 1, WORDS("shared", pid));
    }
    assert_int_equal(kill(first, SIGTERM), 0);
    assert_int_equal(program_wait(first), 143);
}

/* ---- numbers ---- */

static void weights_that_are_not_finite_are_named_before_the_first_step(void **state)
{
    (void)state;
    char data[600], out[128];
    const float nan = NAN;
    copy_model("llama");
    blob b = read_blob("model/model.safetensors");
    memcpy(b.bytes + b.n - sizeof nan, &nan, sizeof nan);
    scratch_put("model/model.safetensors", b.bytes, b.n);
    free(b.bytes);
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/not-finite", scratch);
    int status = run_program(WORDS("train", "--model", scratch_path("model"), "--data", data, "--seq-len", "8", "--out", out, "--quiet",
                                   "--device-memory", "64MiB"));
    check_sentence("not finite", status, 1, WORDS("model.safetensors", "\"model.norm.weight\"", "not finite"));
    assert_false(path_exists(scratch_path("not-finite/checkpoint-0")));
    assert_false(path_exists(scratch_path("not-finite/model.safetensors")));
}

static void a_rate_that_explodes_stops_the_run_with_a_checkpoint_from_before(void **state)
{
    (void)state;
    char data[600], out[128];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("gpt2"));
    snprintf(out, sizeof out, "%s/explodes", scratch);
    int status = run_program(WORDS("train", "--model", fixture("gpt2"), "--data", data, "--seq-len", "8", "--out", out, "--quiet",
                                   "--device-memory", "64MiB", "--lr", "1000", "--weight-decay", "1000", "--steps", "200"));
    check_sentence("explodes", status, 1, WORDS("step ", "block", "checkpoint-", "--lr"));
    assert_false(path_exists(scratch_path("explodes/model.safetensors")));
}

static void adapters_that_explode_are_saved_as_adapters(void **state)
{
    (void)state;
    char data[600], out[128], file[300];
    snprintf(data, sizeof data, "%s/tokens.npy", fixture("llama"));
    snprintf(out, sizeof out, "%s/explodes-too", scratch);
    int status = run_program(WORDS("train", "--model", fixture("llama"), "--data", data, "--seq-len", "8", "--out", out, "--quiet",
                                   "--device-memory", "64MiB", "--lora", "2", "--lr", "1000", "--weight-decay", "1000", "--steps", "200"));
    check_sentence("explodes", status, 1, WORDS("step ", "saved adapter (--adapter ", "checkpoint-"));
    const char *named = strstr(text_of(scratch_path("err")), "(--adapter ") + strlen("(--adapter ");
    snprintf(file, sizeof file, "%.*s/adapter_config.json", (int)strcspn(named, ")"), named);
    assert_true(path_exists(file));
}

static void an_export_replaces_no_file_of_another_kind(void **state)
{
    (void)state;
    const char *notes = put_text("notes.txt", "mine");
    check_sentence("export", run_program(WORDS("export", "--model", fixture("llama"), "--to", "gguf", "--out", notes)), 1,
                   WORDS("notes.txt: this file exists and is not a GGUF file", "--out"));
    assert_string_equal(text_of(notes), "mine");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unusable_output_folder_is_refused),
        cmocka_unit_test(a_read_only_output_folder_is_refused),
        cmocka_unit_test(a_disk_that_fills_up_is_named_and_the_last_checkpoint_stands),
        cmocka_unit_test(more_disk_than_is_free_does_not_fit),
        cmocka_unit_test(a_resumed_run_takes_the_disk_that_is_left),
        cmocka_unit_test(an_account_that_cannot_be_written_is_told_and_no_more),
        cmocka_unit_test(a_profile_that_was_given_is_not_removed),
        cmocka_unit_test(what_lies_in_the_folder_of_a_run_that_cannot_begin_stays),
        cmocka_unit_test(a_disk_in_ram_is_used_where_it_is_asked_for),
        cmocka_unit_test(a_second_run_into_the_same_folder_is_refused),
        cmocka_unit_test(weights_that_are_not_finite_are_named_before_the_first_step),
        cmocka_unit_test(a_rate_that_explodes_stops_the_run_with_a_checkpoint_from_before),
        cmocka_unit_test(adapters_that_explode_are_saved_as_adapters),
        cmocka_unit_test(an_export_replaces_no_file_of_another_kind),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
