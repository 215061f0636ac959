/* Ranks on GPUs, by the stand-in for CUDA (cuda/runtime.c): which GPU each has, that those of all kinds of choosing end in the same bits,
 * in the memory that was planned, and what is refused. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/checkpoints.h"
#include "train/same_end.h"

#include "train/group.h"
#include "test_device.h"

enum { STEPS = 3 };

static const char *err_path(void) { return scratch_path("err"); }

/* more: other words of the command, which NULL ends. */
static pid_t start_with(const char *out, const char *device, words more)
{
    char model[512], tokens[600];
    arguments a = {0};
    snprintf(model, sizeof model, "%s/bf16/llama", PT_FIXTURES);
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model);
    add_arguments(&a, WORDS("train", "--model", model, "--data", tokens, "--out", out, "--seq-len", "8", "--batch-size", "4", "--lr",
                            "1e-3", "--weight-decay", "0.1", "--quiet", "--threads", "1", "--steps", "3", "--host-memory", "64MiB",
                            "--device-memory", "64MiB", "--disk-memory", "0", "--device", device));
    add_arguments(&a, more);
    return program_start(&a, "/dev/null", err_path());
}

static int run_with(const char *out, const char *device, words more) { return program_wait(start_with(out, device, more)); }

static const char *out_of(const char *name)
{
    static char path[2][160];
    static int turn;
    snprintf(path[turn = !turn], sizeof *path, "%s/%s", scratch, name);
    return path[turn];
}

static void runs(const char *name, const char *device, words more)
{
    const int status = run_with(out_of(name), device, more);
    if (status)
        fail_msg("%s: exit status %d: %s", name, status, text_of(err_path()));
}

static void ends_like(const char *name, const char *device, words more)
{
    runs(name, device, more);
    assert_same_end(out_of("one"), out_of(name), STEPS);
}

static void says(const char *what)
{
    if (!strstr(text_of(err_path()), what))
        fail_msg("\"%s\" is not said: %s", what, text_of(err_path()));
}

/* Where each rank was, as summary.json says; each in the memory that was planned. */
static void ranks_had(const char *name, words devices)
{
    char path[200];
    json_error_t why;
    snprintf(path, sizeof path, "%s/summary.json", out_of(name));
    json_t *all = json_load_file(path, 0, &why);
    const json_t *memory = json_object_get(all, "memory_bytes"), *peaks = json_object_get(all, "ranks_peak_bytes");
    const json_t *ranks = json_object_get(all, "ranks"), *tier;
    const char *key;
    size_t n = 0;
    for (; devices[n]; n++) {
        assert_string_equal(json_string_value(json_object_get(json_array_get(ranks, n), "device")), devices[n]);
        json_object_foreach((json_t *)memory, key, tier)
            assert_int_equal(json_integer_value(json_object_get(tier, "predicted")),
                             json_integer_value(json_object_get(json_array_get(peaks, n), key)));
    }
    assert_int_equal(json_array_size(ranks), n);
    json_decref(all);
}

static void every_choice_of_gpus_ends_in_the_same_bits(void **state)
{
    (void)state;
    setenv("PT_STANDIN_GPUS", "4", 1);
    runs("one", "cuda", WORDS("--ranks", "1", "--lanes", "4"));
    ends_like("two", "cuda", WORDS("--ranks", "2", "--lanes", "4"));
    says("the ranks' GPUs exchange by NCCL 2.30.0");
    ranks_had("two", WORDS("cuda:0", "cuda:1"));
    ends_like("chosen", "cuda:3,1", WORDS("--lanes", "4"));
    ranks_had("chosen", WORDS("cuda:3", "cuda:1"));
    ends_like("shared", "cuda:2", WORDS("--ranks", "2", "--lanes", "4"));
    says("the ranks' GPUs exchange through host memory: rank 1: it shares its GPU with another rank");
    ranks_had("shared", WORDS("cuda:2", "cuda:2"));
    setenv("PROTRAIN_GPU_TRANSPORT", "host", 1);
    ends_like("by_host", "cuda", WORDS("--ranks", "2", "--lanes", "4"));
    unsetenv("PROTRAIN_GPU_TRANSPORT");
    says("the ranks' GPUs exchange through host memory: rank 0: PROTRAIN_GPU_TRANSPORT=host");
    ends_like("all", "auto", WORDS("--quiet"));
    ranks_had("all", WORDS("cuda:0", "cuda:1", "cuda:2", "cuda:3"));
}

/* As many as can share the lanes; of a run that goes on those that it has. */
static void as_many_gpus_are_taken_as_can_share_the_step(void **state)
{
    (void)state;
    NOT_SANITIZED();
    setenv("PT_STANDIN_GPUS", "3", 1);
    runs("three", "auto", WORDS("--quiet"));
    ranks_had("three", WORDS("cuda:0", "cuda:1"));
    runs("lane", "cuda:0", WORDS("--save-every", "1", "--steps", "1"));
    runs("lane", "auto", WORDS("--resume"));
    ranks_had("lane", WORDS(NULL));
}

static void one_that_is_killed_ends_all_and_other_gpus_go_on(void **state)
{
    (void)state;
    NOT_SANITIZED();
    char checkpoint[200], number[16];
    setenv("PT_STANDIN_GPUS", "4", 1);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-1/trainer/trainer.json", out_of("killed"));
    const pid_t launcher = start_with(out_of("killed"), "cuda", WORDS("--save-every", "1", "--keep", "2", "--steps", "9999",
                                                                      "--lr-schedule", "constant"));
    for (int i = 0; i < 12000 && !path_exists(checkpoint); i++)
        sleep_seconds(0.01);
    kill(rank_of(launcher, 2), SIGKILL);
    const double at = seconds_now();
    const int status = program_wait(launcher);
    if (status != 1 || seconds_now() - at > 30)
        fail_msg("exit status %d after %.1f s: %s", status, seconds_now() - at, text_of(err_path()));
    says("rank 2: was ended by signal 9");
    const int64_t steps = checkpoints_newest(out_of("killed"), INT64_MAX) + 2;
    snprintf(number, sizeof number, "%d", (int)steps);
    runs("straight", "cuda:2", WORDS("--steps", number, "--lanes", "4", "--lr-schedule", "constant"));
    runs("killed", "cuda:3,0", WORDS("--steps", number, "--lr-schedule", "constant", "--resume"));
    assert_same_end(out_of("straight"), out_of("killed"), (int)steps);
}

/* Of NCCL, by its stand-in: one rank cannot begin, or meets an error in the middle. All end, and it is said once. */
static void an_error_of_nccl_ends_all(void **state)
{
    (void)state;
    static const char *const faults[] = {"init:0", "init:1", "group:1:9", "group:0:40"};
    setenv("PT_STANDIN_GPUS", "4", 1);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        setenv("PT_NCCL_FAULT", faults[i], 1);
        const double at = seconds_now();
        const int status = run_with(out_of("faulty"), "cuda", WORDS("--steps", "9999"));
        unsetenv("PT_NCCL_FAULT");
        const char *said = strstr(text_of(err_path()), "protrain: ");
        if (status != 1 || seconds_now() - at > 120 || !said || !strstr(said, "NCCL reports") || strstr(said + 1, "protrain: "))
            fail_msg("%s: exit status %d after %.1f s: %s", faults[i], status, seconds_now() - at, text_of(err_path()));
    }
}

static void refused(const char *device, words more, const char *said)
{
    const int status = run_with(out_of("refused"), device, more);
    if (status != 2)
        fail_msg("exit status %d: %s", status, text_of(err_path()));
    says(said);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    setenv("PT_STANDIN_GPUS", "2", 1);
    refused("cuda", WORDS("--ranks", "4"), "4 ranks of this machine see 2 usable GPUs: give --ranks 2, or --device cuda:0,1 to let them "
                                           "share GPUs, or --device cpu");
    refused("cuda:0,1", WORDS("--ranks", "1"), "--device cuda:0,1 names 2 GPUs, and this run has one rank: give --ranks 2, or one GPU");
    refused("cuda:0,7", WORDS("--quiet"), "GPU 7 does not exist or cannot be used: this machine has 2, counted from 0");
    refused("cuda:0,", WORDS("--quiet"), "it must be auto, cpu, cuda, cuda:N for GPU number N, or cuda:N,M,... for several ranks");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_choice_of_gpus_ends_in_the_same_bits),
                                       cmocka_unit_test(as_many_gpus_are_taken_as_can_share_the_step),
                                       cmocka_unit_test(one_that_is_killed_ends_all_and_other_gpus_go_on),
                                       cmocka_unit_test(an_error_of_nccl_ends_all),
                                       cmocka_unit_test(what_cannot_be_is_refused)};
    if (!test_device_is_standin())
        return 0; /* standin.ranks_gpus is where it runs */
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
