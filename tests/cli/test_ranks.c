/* Ranks from outside: which of them may resume a run, samples of a run of two, exchanges in a plan, and commands that one rank does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model_folder.h"

#include "cli/refusal.h"

static char model_path[128], data[128], out[128];

static int set_up(void **state)
{
    if (scratch_make(state))
        return 1;
    snprintf(model_path, sizeof model_path, "%s", make_model_folder("model", 32, 2, 64, 5));
    snprintf(data, sizeof data, "%s", put_text("data.txt", "Some text to be learned, and a little more of it. "
                                                                "And more, and more, and more."));
    return 0;
}

static int train(const char *name, words more)
{
    arguments a = {0};
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    add_arguments(&a, WORDS("train", "--model", model_path, "--data", data, "--seq-len", "4", "--batch-size", "4", "--threads", "1",
                            "--device-memory", "64MiB", "--disk-memory", "0", "--quiet", "--out", out));
    add_arguments(&a, more);
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

static void too_many_ranks_for_the_lanes_are_told_what_goes(void **state)
{
    (void)state;
    assert_int_equal(train("one-lane", WORDS("--steps", "1")), 0);
    check_sentence("one lane", train("one-lane", WORDS("--steps", "2", "--resume", "--ranks", "2")), 2,
                   WORDS("--ranks is 2 with 1 lane,", "give --ranks 1, or start a new run with --lanes 2"));
    assert_int_equal(train("two-lanes", WORDS("--steps", "1", "--lanes", "2")), 0);
    check_sentence("two lanes", train("two-lanes", WORDS("--steps", "2", "--resume", "--ranks", "4")), 2,
                   WORDS("--ranks is 4 with 2 lanes,", "give --ranks 2 or 1, or start a new run with --lanes 4"));
    assert_int_equal(train("two-lanes", WORDS("--steps", "2", "--resume", "--ranks", "2")), 0);
}

/* The same texts as of one rank: the weights are the same. */
static void ranks_take_samples(void **state)
{
    (void)state;
    char path[160], *texts[2];
    size_t n;
    pt_error e = {0};
    for (int i = 0; i < 2; i++) {
        const int status = train(i ? "of-two" : "of-one", WORDS("--steps", "2", "--lanes", "2", "--ranks", i ? "2" : "1", "--sample",
                                                                      "Some"));
        if (status)
            fail_msg("%s", text_of(scratch_path("err")));
        snprintf(path, sizeof path, "%s/samples.jsonl", out);
        assert_int_equal(file_read_all(path, 1 << 20, &texts[i], &n, &e), 0);
    }
    assert_true(strstr(texts[0], "\"step\":0") || strstr(texts[0], "\"step\": 0"));
    assert_string_equal(texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
}

static void a_plan_for_ranks_here_has_their_exchanges(void **state)
{
    (void)state;
    arguments a = {0};
    add_arguments(&a, WORDS("plan", "--model", model_path, "--seq-len", "32", "--batch-size", "4", "--ranks", "2", "--quiet"));
    assert_int_equal(program_wait(program_start(&a, scratch_path("out"), scratch_path("err"))), 0);
    const char *said = text_of(scratch_path("out"));
    assert_non_null(strstr(said, "2 ranks: each computes"));
    assert_null(strstr(said, "excludes"));
}

static void one_rank_does_what_ranks_do_not_share(void **state)
{
    (void)state;
    setenv("WORLD_SIZE", "3", 1);
    setenv("MASTER_ADDR", "localhost", 1);
    for (int rank = 0; rank < 3; rank++) {
        char number[16];
        snprintf(number, sizeof number, "%d", rank);
        setenv("RANK", number, 1);
        const words commands[] = {WORDS("eval", "--model", model_path, "--data", data, "--quiet"),
                                  WORDS("generate", "--model", model_path, "--prompt", "Some", "--max-new-tokens", "2", "--quiet"),
                                  WORDS("plan", "--model", model_path, "--machine", "laptop16", "--quiet")};
        for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
            arguments a = {0};
            add_arguments(&a, commands[i]);
            assert_int_equal(program_wait(program_start(&a, scratch_path("out"), scratch_path("err"))), 0);
            assert_true((text_of(scratch_path("out"))[0] != 0) == (rank == 0));
            assert_true((strstr(text_of(scratch_path("err")), "runs on rank 0 only") != NULL) == (rank == 1)); /* it speaks for all */
        }
    }
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("MASTER_ADDR");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(too_many_ranks_for_the_lanes_are_told_what_goes),
        cmocka_unit_test(ranks_take_samples),
        cmocka_unit_test(a_plan_for_ranks_here_has_their_exchanges),
        cmocka_unit_test(one_rank_does_what_ranks_do_not_share),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
