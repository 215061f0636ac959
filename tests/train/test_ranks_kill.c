/* `protrain train --ranks N`: the run ends in the bits of one rank with the same lanes, also where one of its processes is killed at any
 * moment, saving included, and it goes on on another number of ranks, under another plan. Whoever fails, all end, and it is said why.
 *
 * PT_RANK_KILLS=n kills n times instead of the default. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/same_end.h"

#include "train/plan_file.h"

#include "program.h"

enum { DEFAULT_KILLS = SANITIZED ? 2 : 8, STEPS = 12 };

static random_source the_random;
static model *the_model;

static int open_all(void **state)
{
    char path[600];
    pt_error e = {0};
    the_random = random_open();
    snprintf(path, sizeof path, "%s/bf16/llama", PT_FIXTURES);
    must(model_open(path, NULL, NULL, &the_model, &e), &e);
    return scratch_make(state);
}

static int close_all(void **state)
{
    model_close(the_model);
    return scratch_remove(state);
}

static const char *err_path(void) { return scratch_path("err"); }

/* Lanes are said, so that any number of ranks that shares them is the same task. By a plan that was searched for, or any, with chunks whole
 * or in shards. */
static pid_t start(const char *out, const char *ranks, const char *steps)
{
    static char model[512], tokens[600], plan[600];
    const bool given = random_one_in(&the_random, 2), much = given || random_one_in(&the_random, 2);
    arguments a = {0};
    snprintf(model, sizeof model, "%s/bf16/llama", PT_FIXTURES);
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model);
    add_arguments(&a, WORDS("train", "--model", model, "--data", tokens, "--out", out, "--seq-len", "32", "--batch-size", "4", "--lr",
                            "1e-3",
                            "--lr-schedule", "constant", "--weight-decay", "0.1", "--quiet", "--threads", "1", "--lanes", "4", "--steps",
                            steps,
                            "--save-every", "2", "--resume", "--ranks", ranks, "--device-memory",
                            much ? "64MiB" : "16MiB", "--disk-memory", "64MiB"));
    if (given) {
        const plan_case c = {.type = PT_BF16, .batch = 4, .seq_len = 32, .clipping = true, .lanes = 4, .ranks = atoi(ranks)};
        snprintf(plan, sizeof plan, "%s/plan.json", scratch);
        write_random_plan(&the_random, the_model, &c, plan);
        add_arguments(&a, WORDS("--plan", plan));
    }
    return program_start(&a, "/dev/null", err_path());
}

/* The process of a rank, 0: it is not there (any more). */
static pid_t rank_of(pid_t launcher, int rank)
{
    char path[80];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)launcher, (int)launcher);
    FILE *f = fopen(path, "r");
    for (int i = 0; f && i <= rank; i++)
        if (fscanf(f, "%d", &pid) != 1)
            pid = 0;
    if (f)
        fclose(f);
    return pid;
}

static const char *random_ranks(void)
{
    static const char *const numbers[] = {"1", "2", "4"};
    return numbers[random_below(&the_random, 3)];
}

/* Whether it came to its end. seconds 0: it is left alone. */
static bool run_and_kill(const char *out, double seconds, int *kills)
{
    const char *ranks = random_ranks();
    const pid_t launcher = start(out, ranks, "12");
    if (seconds > 0)
        sleep_seconds(seconds);
    const pid_t victim = seconds <= 0 ? 0 : ranks[0] == '1' ? launcher : rank_of(launcher, random_below(&the_random, atoi(ranks)));
    const bool killed = victim > 0 && !kill(victim, SIGKILL);
    const double at = seconds_now();
    const int status = program_wait(launcher);
    if (seconds_now() - at > 30)
        fail_msg("the others took %.1f s to end", seconds_now() - at);
    *kills += killed && status;
    if (status && !killed)
        fail_msg("exit status %d: %s", status, text_of(err_path()));
    if (killed && status == 1 && ranks[0] != '1' && !strstr(text_of(err_path()), "was ended by signal 9"))
        fail_msg("%s ranks: it is not said who was killed: %s", ranks, text_of(err_path()));
    return status == 0;
}

static void a_killed_rank_ends_all_and_any_number_goes_on(void **state)
{
    (void)state;
    char straight[128], out[128];
    pt_error e = {0};
    const char *asked = getenv("PT_RANK_KILLS");
    const int wanted = asked ? atoi(asked) : DEFAULT_KILLS;
    int kills = 0, runs = 0;
    snprintf(straight, sizeof straight, "%s/straight", scratch);
    snprintf(out, sizeof out, "%s/killed", scratch);
    const double begin = seconds_now();
    assert_int_equal(program_wait(start(straight, "1", "12")), 0);
    const double seconds = seconds_now() - begin;
    for (bool ended = false; kills < wanted || !ended;) {
        const double share = (double)random_below(&the_random, 10000) / 10000;
        ended = run_and_kill(out, kills < wanted ? 0.05 + 2 * share * seconds : 0, &kills);
        if (!ended)
            continue;
        assert_same_end(straight, out, STEPS);
        must(tree_remove(out, &e), &e);
        runs++;
    }
    printf("%d ranks killed in %d runs: the same bits\n", kills, runs);
}

static void sigterm_saves_and_ends_all(void **state)
{
    (void)state;
    char out[128], metrics[160];
    snprintf(out, sizeof out, "%s/term", scratch);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    const pid_t launcher = start(out, "2", "1000000");
    for (int i = 0; i < 6000 && !text_of(metrics)[0]; i++)
        sleep_seconds(0.01);
    const pid_t rank = rank_of(launcher, 1);
    kill(random_one_in(&the_random, 2) ? launcher : rank, SIGTERM);
    const int status = program_wait(launcher);
    if (status != 143 || !strstr(text_of(err_path()), "a checkpoint is written"))
        fail_msg("exit status %d: %s", status, text_of(err_path()));
    assert_true(kill(rank, 0) < 0); /* none is left */
}

/* more: other words of the command, which NULL ends. */
static void refused_with(const char *ranks, const char *lanes, words more, const char *said, int expected)
{
    char out[128], model[512], tokens[600];
    arguments a = {0};
    snprintf(out, sizeof out, "%s/refused", scratch);
    snprintf(model, sizeof model, "%s/bf16/llama", PT_FIXTURES);
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model);
    add_arguments(&a, WORDS("train", "--model", model, "--data", tokens, "--out", out, "--seq-len", "32", "--batch-size", "4", "--quiet",
                            "--steps",
                            "1", "--ranks", ranks, "--lanes", lanes));
    add_arguments(&a, more);
    const int status = program_wait(program_start(&a, "/dev/null", err_path()));
    if (status != expected || !strstr(text_of(err_path()), said))
        fail_msg("--ranks %s --lanes %s: exit status %d: %s", ranks, lanes, status, text_of(err_path()));
}

static void refused(const char *ranks, const char *lanes, const char *said, int expected)
{
    refused_with(ranks, lanes, (const char *const[]){NULL}, said, expected);
}

static void what_cannot_be_shared_is_refused_in_one_sentence(void **state)
{
    (void)state;
    refused("8", "4", "--ranks 8 is more than the --batch-size of 4", 2);
    refused("3", "4", "--ranks 3 and 4 lanes", 2);
    refused("2", "3", "--lanes 3: it must divide the --batch-size of 4", 2);
    refused("2", "1", "--ranks 2 and 1 lanes", 2);
    refused("1000", "4", "--ranks", 2);
    refused_with("2", "2", WORDS("--sample", "Once"), "several ranks and --sample", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_rank_ends_all_and_any_number_goes_on),
                                       cmocka_unit_test(sigterm_saves_and_ends_all),
                                       cmocka_unit_test(what_cannot_be_shared_is_refused_in_one_sentence)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
