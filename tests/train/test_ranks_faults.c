/* Several ranks whose disks fail while they write a checkpoint together: the older checkpoint stands, nothing half-written is under a final
 * name, all ranks end and say which one failed, and the run goes on from there to the bits of one whose disks never failed.
 *
 * The faults come from faults/shim.c, which stands between one of the ranks and the system. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "device/cpu/isa.h"
#include "train/same_end.h"

#include <dirent.h>

#include "train/group.h"

enum { RANKS = 2 };

static int open_all(void **state) { return scratch_make(state); }

static arguments train_arguments(const char *out, const char *steps)
{
    static char model[512], tokens[600];
    arguments a = {0};
    snprintf(model, sizeof model, "%s/bf16/gpt2", PT_FIXTURES);
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model);
    add_arguments(&a, (const char *const[]){"train", "--model", model, "--data", tokens, "--out", out, "--seq-len", "32", "--batch-size",
                                            "4", "--lr", "1e-3", "--lr-schedule", "constant", "--quiet", "--threads", "1", "--lanes", "2",
                                            "--steps", steps, "--save-every", "2", "--resume", "--device", "cpu", "--device-memory",
                                            "64MiB", "--disk-memory", "0", NULL});
    return a;
}

/* fault: of rank `of`, which counts its calls. Each rank in a folder of its own, or NULL. The largest exit status. */
static int train(const char *out, const char *steps, int of, const char *fault, const char *const folders[RANKS])
{
    const arguments a = train_arguments(out, steps);
    pid_t ranks[RANKS];
    int worst = 0;
    group_begin(RANKS);
    (void)!symlink(PT_FAULT_SHIM, scratch_path("shim.so")); /* the loader cuts its list at spaces */
    for (int r = 0; r < RANKS; r++) {
        if (fault && r == of) {
            setenv("PT_FAULT", fault, 1);
            setenv("PT_FAULT_COUNT", scratch_path("count"), 1);
            unlink(scratch_path("count"));
            setenv("LD_PRELOAD", scratch_path("shim.so"), 1);
        }
        ranks[r] = group_start(&a, r, folders ? folders[r] : NULL);
        unsetenv("LD_PRELOAD");
    }
    group_end();
    for (int r = 0; r < RANKS; r++) {
        const int status = program_kill_after(ranks[r], 60);
        worst = status > worst ? status : worst;
        if (fault && fault[0] && status != 0 && status != 1)
            fail_msg("rank %d: exit status %d", r, status);
    }
    return worst;
}

static long counted(void)
{
    if (!path_exists(scratch_path("count")))
        fail_msg("%s was not loaded: %s", PT_FAULT_SHIM, text_of(err_of(1)));
    return atol(text_of(scratch_path("count")));
}

/* How many calls of a kind rank `of` makes in a run of two steps. */
static long count_calls(int of, const char *what, const char *const folders[RANKS])
{
    char out[128], fault[64];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/counted", scratch);
    snprintf(fault, sizeof fault, "checkpoint %s 1 none", what);
    if (train(out, "2", of, fault, folders))
        fail_msg("%s", text_of(err_of(0)));
    must(tree_remove(out, &e), &e);
    return counted();
}

/* Checkpoints of step 2 alone, and nothing unfinished. */
static void assert_stands(const char *out)
{
    DIR *d = opendir(out);
    int found = 0;
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));) {
        found += !strcmp(x->d_name, "checkpoint-2");
        if (strstr(x->d_name, ".tmp") || (!strncmp(x->d_name, "checkpoint-", 11) && strcmp(x->d_name, "checkpoint-2")))
            fail_msg("%s/%s is left", out, x->d_name);
    }
    closedir(d);
    assert_int_equal(found, 1);
}

static const char *straight(void)
{
    static char out[128];
    if (out[0])
        return out;
    snprintf(out, sizeof out, "%s/straight", scratch);
    if (train(out, "6", 0, NULL, NULL))
        fail_msg("%s", text_of(err_of(0)));
    return out;
}

/* Call number `n` of the second checkpoint fails on rank `of`. */
static void fail_once(int of, const char *what, long n, const char *kind, const char *said)
{
    char out[128], fault[64];
    pt_error e = {0};
    snprintf(out, sizeof out, "%s/failed", scratch);
    if (train(out, "2", 0, NULL, NULL))
        fail_msg("%s", text_of(err_of(0)));
    snprintf(fault, sizeof fault, "checkpoint %s %ld %s", what, n, kind);
    if (train(out, "6", of, fault, NULL) != 1)
        fail_msg("rank %d, %s: it did not fail, of %ld calls", of, fault, counted());
    if (!strstr(text_of(err_of(0)), said))
        fail_msg("rank %d, %s: \"%s\" is not said: %s", of, fault, said, text_of(err_of(0)));
    assert_stands(out);
    if (train(out, "6", 0, NULL, NULL))
        fail_msg("%s", text_of(err_of(0)));
    assert_same_end(straight(), out, 6);
    must(tree_remove(out, &e), &e);
}

static void a_full_disk_of_one_rank_is_named_and_the_old_checkpoint_stands(void **state)
{
    (void)state;
    const long writes = count_calls(1, "write", NULL);
    assert_true(writes > 3); /* it writes its share itself */
    fail_once(1, "write", 1, "enospc", "rank 1: ");
    fail_once(1, "write", 2, "enospc", "the disk is full");
    fail_once(1, "sync", 1, "eio", "rank 1: ");
}

static void the_same_of_rank_0(void **state)
{
    (void)state;
    static const struct { const char *what; long n; const char *said; } cases[] = {
        {"write", 12, "the disk is full"}, {"write", 20, "the disk is full"}, {"sync", 10, "cannot be synced to the disk"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        fail_once(0, cases[i].what, cases[i].n, "enospc", cases[i].said);
}

/* OUT of a rank that writes no file of the run: the tokens that it reads, and nothing else. */
static void assert_only_cache(const char *folder)
{
    DIR *d = opendir(folder);
    assert_non_null(d);
    for (struct dirent *x; (x = readdir(d));)
        if (x->d_name[0] != '.' && strcmp(x->d_name, "cache"))
            fail_msg("%s/%s was written", folder, x->d_name);
    closedir(d);
}

static void a_rank_that_does_not_see_the_folder_writes_nothing(void **state)
{
    (void)state;
    static char folder[RANKS][128];
    pt_error e = {0};
    char out[160];
    for (int r = 0; r < RANKS; r++) {
        snprintf(folder[r], sizeof folder[r], "%s/machine%d", scratch, r);
        must(dir_make(folder[r], &e), &e);
    }
    const char *const folders[RANKS] = {folder[0], folder[1]};
    if (train("out", "6", 0, NULL, folders))
        fail_msg("%s", text_of(err_of(0)));
    snprintf(out, sizeof out, "%s/out", folder[1]);
    assert_only_cache(out);
    snprintf(out, sizeof out, "%s/out", folder[0]);
    assert_same_end(straight(), out, 6);
}

#if defined(__x86_64__)

static void a_rank_with_other_bits_is_refused(void **state)
{
    static const char *const isa[RANKS] = {"v3", "v2"};
    (void)state;
    if (cpu_isa() < 3)
        skip();
    char out[128];
    snprintf(out, sizeof out, "%s/mixed", scratch);
    const arguments a = train_arguments(out, "2");
    pid_t ranks[RANKS];
    group_begin(RANKS);
    for (int r = 0; r < RANKS; r++) {
        setenv("PROTRAIN_ISA", isa[r], 1);
        ranks[r] = group_start(&a, r, NULL);
    }
    unsetenv("PROTRAIN_ISA");
    group_end();
    for (int r = 0; r < RANKS; r++)
        assert_true(program_kill_after(ranks[r], 60) > 0);
    if (!strstr(text_of(err_of(0)), "rank 1 computes by \"cpu x86-64-v2, matmul own\""))
        fail_msg("%s", text_of(err_of(0)));
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
                                       cmocka_unit_test(a_rank_with_other_bits_is_refused),
#endif
                                       cmocka_unit_test(a_full_disk_of_one_rank_is_named_and_the_old_checkpoint_stands),
                                       cmocka_unit_test(the_same_of_rank_0),
                                       cmocka_unit_test(a_rank_that_does_not_see_the_folder_writes_nothing)};
    if (SANITIZED)
        return 0; /* the shim is no part of it */
    return cmocka_run_group_tests(tests, open_all, scratch_remove);
}
