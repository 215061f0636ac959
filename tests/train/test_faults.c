/* Disks that fail under the whole program: a transfer of the disk tier, or a file that is read or written, fails with EIO or
 * ENOSPC at a random call. The run ends with one sentence and exit status 1, the last checkpoint stands, and --resume ends in
 * the same bits as a run on a good disk. Transfers that move a part only change nothing at all.
 *
 * The faults come from faults/shim.c, which stands between the program and the system. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/same_end.h"

#include "train/plan_file.h"

#include "program.h"

#include "faults/fault.h"

enum { STEPS = 6, TRIALS = 4 };

static random_source the_random;
static char model_folder[512], tokens[600], plan_path[128];

/* All weights and states live on the disk, and whatever else the dice say. */
static int open_all(void **state)
{
    the_random = random_open();
    if (scratch_make(state))
        return 1;
    pt_error e = {0};
    model *m;
    step_shape shape;
    packing k;
    plan p;
    snprintf(model_folder, sizeof model_folder, "%s/bf16/llama", fixtures_root());
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model_folder);
    snprintf(plan_path, sizeof plan_path, "%s/plan.json", scratch);
    must(model_open(model_folder, NULL, NULL, &m, &e), &e);
    step_shape_init(&shape, m, PT_BF16, 4, 32);
    if (on_gpu())
        step_shape_for_gpu(&shape, m);
    for (bool good = false; !good;) {
        must(pack(m, &shape, 64 << 10, &k, &e), &e);
        must(random_plan(&the_random, m, &shape, &k, true, on_gpu(), &p, &e), &e);
        for (int i = 0; i < p.chunks_n; i++)
            p.chunks[i] = (plan_chunk){.placement = TIER_DISK, .update = TIER_DEVICE};
        good = plan_can_be_built(m, &shape, &k, &p, on_gpu());
        char *json = plan_to_json(&p, m, &shape);
        must(file_write_atomic(plan_path, json, strlen(json), &e), &e);
        free(json);
        plan_free(&p);
        packing_free(&k);
    }
    model_close(m);
    return 0;
}

/* ---- runs ---- */

/* Of a machine like this one; with it nothing is measured. */
static const char *machine_file(void)
{
    return on_gpu() ? PT_FIXTURES "/../../machines/rtx3090.json" : PT_FIXTURES "/../../machines/laptop16.json";
}

/* Trains in `out`, from the newest checkpoint where there is one; `fault`: what the shim does, or NULL. */
static int train(const char *out, const char *fault)
{
    arguments a = {0};
    char steps[8];
    snprintf(steps, sizeof steps, "%d", STEPS);
    add_arguments(&a, (const char *const[]){"train", "--model", model_folder, "--data", tokens, "--out", out, "--seq-len", "32",
                                            "--batch-size", "4", "--lr", "1e-3", "--steps", steps, "--save-every", "2", "--plan", plan_path,
                                            "--device", run_device(), "--device-memory", "64MiB", "--disk-memory", "64MiB",
                                            "--machine", machine_file(), "--quiet", "--resume", NULL});
    if (fault)
        fault_set(fault, NULL);
    pid_t child = program_start(&a, "/dev/null", scratch_path("err"));
    fault_clear();
    return program_wait(child);
}

/* The run that all others must end like. */
static const char *straight(void)
{
    static char out[128];
    if (out[0])
        return out;
    snprintf(out, sizeof out, "%s/straight", scratch);
    if (train(out, NULL))
        fail_msg("%s", text_of(scratch_path("err")));
    return out;
}

/* How many calls of a kind a run makes. */
static int count_calls(const char *where, const char *what)
{
    char out[128], fault[64];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/counted", scratch);
    snprintf(fault, sizeof fault, "%s %s 1 none", where, what);
    if (train(out, fault))
        fail_msg("%s", text_of(scratch_path("err")));
    must(tree_remove(out, &e), &e);
    return fault_count();
}

/* Nothing unfinished, and every checkpoint complete. */
static void assert_clean(const char *out, const char *fault)
{
    struct dirent **entries;
    int n = scandir(out, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char path[700];
        const char *name = entries[i]->d_name;
        snprintf(path, sizeof path, "%s/%s/trainer/trainer.json", out, name);
        if (strstr(name, ".tmp") || strcmp(name, ".lock") == 0 || (strncmp(name, "checkpoint-", 11) == 0 && !path_exists(path)))
            fail_msg("%s: %s is left", fault, name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static bool has_checkpoint(const char *out)
{
    char path[200];
    snprintf(path, sizeof path, "%s/checkpoint-2", out);
    return path_exists(path);
}

/* One sentence on the last line, with this word, and --resume where a checkpoint is. */
static void assert_sentence(const char *out, const char *fault, const char *word)
{
    const char *text = text_of(scratch_path("err")), *line = strstr(text, "protrain: ");
    if (!line || !strstr(line, word) || strchr(line, '\n') != line + strlen(line) - 1 ||
        (has_checkpoint(out) && !strstr(line, "--resume")))
        fail_msg("%s: %s", fault, text);
}

/* ---- tests ---- */

/* A call of every run fails: returns how many of them did not bear it. */
static int fail_calls(const char *where, const char *what, const char *kind, const char *word)
{
    const int calls = count_calls(where, what);
    int ended = 0;
    assert_true(calls > 2);
    for (int i = 0; i < TRIALS; i++) {
        char fault[64], out[128];
        pt_error e = {0};
        snprintf(fault, sizeof fault, "%s %s %d %s", where, what, random_from(&the_random, 2, calls), kind);
        snprintf(out, sizeof out, "%s/failing", scratch);
        int status = train(out, fault);
        if (status == 1)
            assert_sentence(out, fault, word);
        else if (status != 0)
            fail_msg("%s: exit status %d: %s", fault, status, text_of(scratch_path("err")));
        ended += status == 1;
        assert_clean(out, fault);
        if (status == 1 && train(out, NULL))
            fail_msg("after %s: %s", fault, text_of(scratch_path("err")));
        assert_same_end(straight(), out, STEPS);
        must(tree_remove(out, &e), &e);
    }
    return ended;
}

static void a_disk_tier_that_fails_ends_the_run_and_not_its_state(void **state)
{
    (void)state;
    if (!SHIM_WORKS)
        skip();
    straight();
    assert_int_equal(fail_calls("tier", "read", "eio", "disk tier's file failed"), TRIALS);
    assert_int_equal(fail_calls("tier", "write", "eio", "disk tier's file failed"), TRIALS);
}

static void files_that_cannot_be_written_or_synced_end_the_run_and_not_its_state(void **state)
{
    (void)state;
    if (!SHIM_WORKS)
        skip();
    straight();
    assert_true(fail_calls("files", "write", "enospc", "disk is full") > 0);
    assert_true(fail_calls("files", "write", "eio", "Input/output error") > 0);
    assert_true(fail_calls("files", "sync", "eio", "Input/output error") > 0);
}

static void files_that_cannot_be_read_end_the_run(void **state)
{
    (void)state;
    if (!SHIM_WORKS)
        skip();
    straight();
    assert_true(fail_calls("files", "read", "eio", "Input/output error") > 0);
}

static void transfers_of_a_part_change_nothing(void **state)
{
    (void)state;
    if (!SHIM_WORKS)
        skip();
    static const char *const faults[] = {"tier read 3 short", "tier write 2 short", "files read 2 short", "files write 3 short"};
    straight();
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        char out[128];
        pt_error e = {0};
        snprintf(out, sizeof out, "%s/short", scratch);
        if (train(out, faults[i]))
            fail_msg("%s: %s", faults[i], text_of(scratch_path("err")));
        assert_true(fault_count() > 3);
        assert_same_end(straight(), out, STEPS);
        must(tree_remove(out, &e), &e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_tier_that_fails_ends_the_run_and_not_its_state),
        cmocka_unit_test(files_that_cannot_be_written_or_synced_end_the_run_and_not_its_state),
        cmocka_unit_test(files_that_cannot_be_read_end_the_run),
        cmocka_unit_test(transfers_of_a_part_change_nothing),
    };
    return cmocka_run_group_tests(tests, open_all, scratch_remove);
}
