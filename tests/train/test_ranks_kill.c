/* Several ranks, which `protrain train --ranks N` starts, or somebody else: the run ends in the bits of one rank with the same lanes, also
 * where one of its processes is killed at any moment, saving included, and it goes on on another number of ranks, under another plan.
 * Whoever fails, all end, and it is said why.
 *
 * PT_RANK_KILLS=n kills n times instead of the default. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/experts_model.h"
#include "train/same_end.h"

#include "train/fetch.h"
#include "train/plan_file.h"

#include <errno.h>

#include "train/group.h"

#include "faults/fault.h"

enum { DEFAULT_KILLS = 2, STEPS = 12 };

static random_source the_random;
/* What runs train: also a model with ranges of experts, and one whose layers have inputs of their own from a table. */
static enum { DENSE, EXPERTS, TABLE, MODELS } trained;
static model *models[MODELS];

static const char *model_folder(void)
{
    static char path[600];
    if (trained == EXPERTS)
        snprintf(path, sizeof path, "%s/experts", scratch);
    else
        snprintf(path, sizeof path, "%s/%s", PT_FIXTURES, trained == TABLE ? "models/gemma4_shared" : "bf16/llama");
    return path;
}

static int open_all(void **state)
{
    pt_error e = {0};
    the_random = random_open();
    if (scratch_make(state))
        return 1;
    must(put_experts_model(scratch_path("experts"), &e), &e);
    for (trained = DENSE; trained < MODELS; trained++)
        must(model_open(model_folder(), NULL, NULL, &models[trained], &e), &e);
    trained = DENSE;
    return 0;
}

static int close_all(void **state)
{
    for (int i = 0; i < MODELS; i++)
        model_close(models[i]);
    return scratch_remove(state);
}

static const char *err_path(void) { return scratch_path("err"); }

/* Where not the program itself starts the ranks, but the test, by the environment that torchrun leaves. */
typedef enum start_kind { APART, APART_BY_SOCKETS } start_kind;

/* Of a step: four, or one that is divided among the ranks. */
static const char *sequences = "4";

/* Lanes are said, so that any number of ranks that shares them is the same task. */
static arguments command(const char *out, const char *steps)
{
    static char tokens[600];
    arguments a = {0};
    snprintf(tokens, sizeof tokens, "%s/%s/tokens.npy", PT_FIXTURES, trained == TABLE ? "models/gemma4_shared" : "bf16/llama");
    add_arguments(&a, WORDS("train", "--model", model_folder(), "--data", tokens, "--out", out, "--seq-len", "32", "--batch-size",
                            sequences,
                            "--lr", "1e-3", "--lr-schedule", "constant", "--weight-decay", "0.1", "--quiet", "--threads", "1", "--lanes",
                            "4", "--steps", steps, "--save-every", "2", "--resume", "--disk-memory", "64MiB", "--device", run_device()));
    if (on_gpu())
        add_arguments(&a, WORDS("--host-memory", "64MiB"));
    return a;
}

/* A plan that was searched for, or any, with chunks whole or in shards. */
static void add_plan(arguments *a, int ranks)
{
    static char plan[600];
    const bool given = random_one_in(&the_random, 2), much = given || random_one_in(&the_random, 2);
    add_arguments(a, WORDS("--device-memory", much ? "64MiB" : "16MiB"));
    if (!given)
        return;
    const plan_case c = {.type = PT_BF16, .batch = atoi(sequences), .seq_len = 32, .clipping = true, .lanes = 4, .ranks = ranks,
                         .host_tier = on_gpu(), .ranges = trained == EXPERTS && sequences[0] == '4'};
    snprintf(plan, sizeof plan, "%s/plan.json", scratch);
    write_random_plan(&the_random, models[trained], &c, plan);
    add_arguments(a, WORDS("--plan", plan));
}

static pid_t start(const char *out, const char *ranks, const char *steps)
{
    arguments a = command(out, steps);
    add_plan(&a, atoi(ranks));
    add_arguments(&a, WORDS("--ranks", ranks));
    return program_start(&a, "/dev/null", err_path());
}

/* ---- started apart ---- */

enum { APART_MOST = 4 };
typedef struct group { pid_t of[APART_MOST]; int n; } group;

static group start_apart(const char *out, int ranks, start_kind kind, const char *steps)
{
    arguments a = command(out, steps);
    group g = {.n = ranks};
    add_plan(&a, ranks);
    group_begin(ranks);
    set_number("PROTRAIN_JOIN_SECONDS", SANITIZED ? 60 : 8);
    if (kind == APART_BY_SOCKETS)
        setenv("PROTRAIN_TRANSPORT", "tcp", 1);
    for (int r = 0; r < ranks; r++)
        g.of[r] = group_start(&a, r, NULL);
    group_end();
    unsetenv("PROTRAIN_JOIN_SECONDS");
    unsetenv("PROTRAIN_TRANSPORT");
    return g;
}

/* The others' exit statuses are `status`, within some seconds. -1: no rank is left out. */
static void all_end(group *g, int but, int status, double seconds)
{
    const double at = seconds_now();
    for (int r = 0; r < g->n; r++) {
        const int got = program_kill_after(g->of[r], at + seconds - seconds_now() + 0.01);
        if (r != but && got != status)
            fail_msg("rank %d: exit status %d instead of %d: %s", r, got, status, text_of(err_of(r)));
    }
}

static const char *random_ranks(void)
{
    static const char *const numbers[] = {"1", "2", "4"};
    return numbers[random_below(&the_random, 3)];
}

/* Until it ends, at most. */
static void sleep_beside(pid_t child, double seconds)
{
    siginfo_t ended = {0};
    for (double left = seconds, end = seconds_now() + seconds; left > 0 && !ended.si_pid; left = end - seconds_now()) {
        sleep_seconds(left < 0.005 ? left : 0.005);
        assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    }
}

/* Whether it came to its end. seconds 0: it is left alone. */
static bool run_and_kill(const char *out, double seconds, int *kills)
{
    const char *ranks = random_ranks();
    const pid_t launcher = start(out, ranks, "12");
    sleep_beside(launcher, seconds);
    const pid_t victim = seconds <= 0 ? 0 : ranks[0] == '1' ? launcher : rank_of(launcher, random_below(&the_random, atoi(ranks)));
    const bool killed = victim > 0 && !kill(victim, SIGKILL);
    const double most = killed ? 30 : 120, at = seconds_now();
    const int status = program_kill_after(launcher, most);
    if (seconds_now() - at > most)
        fail_msg("%s ranks%s did not end within %.0f s: %s", ranks, killed ? ", one killed," : "", most, text_of(err_path()));
    *kills += killed && status;
    if (status && !killed)
        fail_msg("exit status %d: %s", status, text_of(err_path()));
    if (killed && status == 1 && ranks[0] != '1' && !strstr(text_of(err_path()), "was ended by signal 9"))
        fail_msg("%s ranks: it is not said who was killed: %s", ranks, text_of(err_path()));
    return status == 0;
}

/* Runs that are killed at random moments and resumed by `run` until enough were: they end as one that never was. */
static void kill_until(const char *name, bool (*run)(const char *out, double seconds, int *kills))
{
    char straight[128], out[128];
    pt_error e = {0};
    const char *asked = getenv("PT_RANK_KILLS");
    const int wanted = asked ? atoi(asked) : DEFAULT_KILLS;
    int kills = 0, runs = 0;
    sequences = random_one_in(&the_random, 2) ? "1" : "4";
    snprintf(straight, sizeof straight, "%s/%s_straight", scratch, name);
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    const double begin = seconds_now();
    assert_int_equal(program_wait(start(straight, "1", "12")), 0);
    double seconds = seconds_now() - begin;
    for (bool ended = false, fresh = true; kills < wanted || !ended; fresh = ended) {
        const double share = (double)random_below(&the_random, 10000) / 10000, from = seconds_now();
        ended = run(out, kills < wanted ? 0.05 + 2 * share * seconds : 0, &kills);
        if (!ended)
            continue;
        if (fresh)
            seconds = fmin(seconds, seconds_now() - from); /* a busy machine makes single runs long */
        assert_same_end(straight, out, STEPS);
        must(tree_remove(out, &e), &e);
        runs++;
    }
    printf("%d ranks killed in %d runs of %s sequence%s a step: the same bits\n", kills, runs, sequences, sequences[0] == '1' ? "" : "s");
    sequences = "4";
}

static void a_killed_rank_ends_all_and_any_number_goes_on(void **state)
{
    (void)state;
    trained = EXPERTS;
    kill_until("killed", run_and_kill);
    trained = DENSE;
}

/* Of rank 0, which alone renames. Whether the run came to its end. */
static bool run_with_fault(const char *out, const char *ranks, bool saves, const char *fault)
{
    arguments a = command(out, "4");
    add_arguments(&a, WORDS("--device-memory", "64MiB", "--ranks", ranks, "--save-every", saves ? "2" : "0", "--machine",
                            on_gpu() ? PT_FIXTURES "/../../machines/rtx3090.json" : PT_FIXTURES "/../../machines/laptop16.json"));
    if (fault)
        fault_set(fault, "0");
    const pid_t launcher = program_start(&a, "/dev/null", err_path());
    fault_clear();
    const int status = program_kill_after(launcher, 60);
    if (status && (!fault || !strstr(text_of(err_path()), "rank 0: was ended by signal 9")))
        fail_msg("%s ranks, %s: exit status %d: %s", ranks, fault ? fault : "no fault", status, text_of(err_path()));
    return !status;
}

static void a_rank_that_is_killed_at_a_rename_loses_nothing(void **state)
{
    (void)state;
    enum { TRIALS = 4, LAST = 12 }; /* the renames of a run's end are among the last ones */
    if (!SHIM_WORKS)
        skip();
    for (int i = 0, count = 0; i < TRIALS; i++) {
        char straight[128], out[128], fault[64];
        pt_error e = {0};
        const bool saves = i >= TRIALS / 2;
        snprintf(straight, sizeof straight, "%s/rename-straight%d", scratch, saves);
        snprintf(out, sizeof out, "%s/rename-killed", scratch);
        if (i % (TRIALS / 2) == 0) {
            assert_true(run_with_fault(straight, "2", saves, "files rename 1 none"));
            count = fault_count();
            assert_true(count > LAST);
        }
        snprintf(fault, sizeof fault, "files rename %d %s", random_from(&the_random, count - LAST, count),
                 random_one_in(&the_random, 2) ? "kill" : "killed");
        if (run_with_fault(out, "2", saves, fault))
            fail_msg("%s: nothing was killed", fault);
        assert_true(run_with_fault(out, random_ranks(), saves, NULL));
        assert_same_end(straight, out, 4);
        must(tree_remove(out, &e), &e);
    }
}

static void wait_for_steps(const char *out)
{
    char metrics[160];
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    for (int i = 0; i < 6000 && !text_of(metrics)[0]; i++)
        sleep_seconds(0.01);
}

/* Of some ranks, one at a random moment. Whether the run came to its end. */
static bool run_apart(const char *out, double seconds, int *kills)
{
    const int ranks = 1 << random_from(&the_random, 1, 2), victim = random_below(&the_random, ranks);
    group g = start_apart(out, ranks, random_one_in(&the_random, 2) ? APART : APART_BY_SOCKETS, "12");
    sleep_beside(g.of[victim], seconds);
    const bool killed = seconds > 0 && !kill(g.of[victim], SIGKILL); /* which may have ended */
    int worst = 0;
    for (int r = 0; r < ranks; r++) {
        const int status = program_kill_after(g.of[r], 90);
        if (status && !killed)
            fail_msg("%d ranks, rank %d: exit status %d: %s", ranks, r, status, text_of(err_of(r)));
        if (status && r != victim && status != 1)
            fail_msg("%d ranks, %d killed, rank %d: exit status %d: %s", ranks, victim, r, status, text_of(err_of(r)));
        if (status == 1 && !r && !strstr(text_of(err_of(0)), "rank"))
            fail_msg("%d ranks, %d killed: rank 0 does not say so: %s", ranks, victim, text_of(err_of(0)));
        worst = status ? status : worst;
    }
    *kills += killed && worst;
    return !worst;
}

static void ranks_started_apart_end_and_go_on_alike(void **state)
{
    (void)state;
    trained = TABLE;
    kill_until("apart", run_apart);
    trained = DENSE;
}

static void one_that_is_killed_or_hangs_is_named(void **state)
{
    (void)state;
    char out[128];
    for (int hangs = 0; hangs < 2; hangs++) {
        snprintf(out, sizeof out, "%s/named%d", scratch, hangs);
        group g = start_apart(out, hangs ? 2 : 4, hangs ? APART : APART_BY_SOCKETS, "1000000");
        wait_for_steps(out);
        kill(g.of[1], hangs ? SIGSTOP : SIGKILL);
        const pid_t stopped = g.of[1];
        if (hangs)
            g = (group){.of = {g.of[0]}, .n = 1};
        all_end(&g, hangs ? -1 : 1, 1, 40);
        if (!strstr(text_of(err_of(0)), hangs ? "rank 1 has not been heard of for 10 s" : "rank 1 was killed"))
            fail_msg("%s", text_of(err_of(0)));
        if (hangs) {
            kill(stopped, SIGCONT);
            assert_int_equal(program_kill_after(stopped, 30), 1);
        }
    }
}

/* Rank 0 stands still for a while when it listens already, and rank 1 asks again meanwhile. */
static void a_rank_0_that_was_stopped_joins(void **state)
{
    (void)state;
    char out[128];
    int fd;
    snprintf(out, sizeof out, "%s/stopped", scratch);
    arguments a = command(out, "1");
    add_arguments(&a, WORDS("--device-memory", "64MiB"));
    group_begin(2);
    group g = {.of = {group_start(&a, 0, NULL)}, .n = 2};
    const int port = atoi(getenv("MASTER_PORT"));
    for (const double until = seconds_now() + 60; net_connect("127.0.0.1", port, seconds_now() + 1, &fd) && seconds_now() < until;)
        sleep_seconds(0.01);
    close(fd);
    kill(g.of[0], SIGSTOP);
    g.of[1] = group_start(&a, 1, NULL);
    group_end();
    sleep_seconds(4.5);
    kill(g.of[0], SIGCONT);
    all_end(&g, -1, 0, 60);
}

/* Where rank 0 is lost, the others say it themselves. */
static void without_rank_0_all_end(void **state)
{
    (void)state;
    char out[128];
    snprintf(out, sizeof out, "%s/headless", scratch);
    group g = start_apart(out, 2, APART, "1000000");
    wait_for_steps(out);
    kill(g.of[0], SIGKILL);
    all_end(&g, 0, 1, 30);
    if (!strstr(text_of(err_of(1)), "rank 1: rank 0 was killed"))
        fail_msg("%s", text_of(err_of(1)));
}

static void sigterm_to_one_saves_and_ends_all_apart(void **state)
{
    (void)state;
    char out[128];
    snprintf(out, sizeof out, "%s/term_apart", scratch);
    group g = start_apart(out, 4, APART, "1000000");
    wait_for_steps(out);
    kill(g.of[random_below(&the_random, 4)], SIGTERM);
    all_end(&g, -1, 143, 60);
    if (!strstr(text_of(err_of(0)), "a checkpoint is written"))
        fail_msg("%s", text_of(err_of(0)));
}

/* Rank 1 has other options than rank 0. */
static group start_two(const arguments *a, const arguments *b)
{
    group g = {.n = 2};
    group_begin(2);
    g.of[0] = group_start(a, 0, NULL);
    g.of[1] = group_start(b, 1, NULL);
    group_end();
    return g;
}

static void the_plan_is_made_for_the_least(void **state)
{
    (void)state;
    char out[128];
    snprintf(out, sizeof out, "%s/least", scratch);
    arguments a = command(out, "1"), b = a;
    add_arguments(&a, WORDS("--device-memory", "64MiB"));
    add_arguments(&b, WORDS("--device-memory", "12MiB"));
    group g = start_two(&a, &b);
    all_end(&g, -1, 0, 60);
    if (!strstr(text_of(err_of(0)), "may use 12.00 MiB of device memory, and rank 0 64.00 MiB: the plan is made for the least") ||
        !strstr(text_of(err_of(0)), "of a budget of 12.00 MiB") || !strstr(text_of(err_of(0)), "of 4 sequences on 2 ranks, into"))
        fail_msg("%s", text_of(err_of(0)));
}

/* Ranks that do not see rank 0's folder, nor each other's: --out is a name below where the rank is. */
static group start_in_folders(const arguments *a, int ranks)
{
    group g = {.n = ranks};
    char folder[128];
    group_begin(ranks);
    for (int r = 0; r < ranks; r++) {
        snprintf(folder, sizeof folder, "%s/machine%d", scratch, r);
        assert_true(!mkdir(folder, 0777) || errno == EEXIST);
        g.of[r] = group_start(a, r, folder);
    }
    group_end();
    return g;
}

static void a_folder_need_not_be_shared(void **state)
{
    (void)state;
    char alone[128], out[128], copied[4][128], said[80];
    snprintf(alone, sizeof alone, "%s/shared", scratch);
    snprintf(out, sizeof out, "%s/machine0/out", scratch);
    for (int r = 0; r < 4; r++)
        snprintf(copied[r], sizeof copied[r], "%s/machine%d/out/checkpoint-4", scratch, r);
    assert_int_equal(program_wait(start(alone, "1", "12")), 0);
    arguments a = command("out", "4");
    group g = start_in_folders(&a, 2);
    all_end(&g, -1, 0, 60);
    assert_int_not_equal(access(copied[1], F_OK), 0);
    a = command("out", "12");
    g = start_in_folders(&a, 4);
    all_end(&g, -1, 0, 60);
    for (int r = 1; r < 4; r++) {
        assert_int_equal(access(copied[r], F_OK), 0);
        snprintf(said, sizeof said, "note: rank %d on ", r);
        if (!strstr(text_of(err_of(0)), said) || !strstr(text_of(err_of(0)), "does not see out/checkpoint-4: it is copied there"))
            fail_msg("rank %d: %s", r, text_of(err_of(0)));
    }
    assert_same_end(alone, out, STEPS);
}

/* Rank 0 alone has the losses of the reference model; a resumed run needs those of more pairs. */
static arguments command_of_pairs(const char *out, const char *steps)
{
    arguments a = {0};
    add_arguments(&a, WORDS("train", "--model", PT_FIXTURES "/dpo", "--data", PT_FIXTURES "/dpo/pairs.jsonl", "--task", "dpo", "--out", out,
                            "--seq-len", "160", "--batch-size", "2", "--lanes", "2", "--lr", "2e-3", "--lr-schedule", "constant", "--quiet",
                            "--threads", "1", "--steps", steps, "--save-every", "2", "--eval-split", "0.3", "--eval-every", "2", "--resume",
                            "--device-memory", "64MiB", "--disk-memory", "0"));
    return a;
}

static void a_folder_of_pairs_need_not_be_shared(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    char alone[128], out[128];
    snprintf(alone, sizeof alone, "%s/alone", scratch);
    snprintf(out, sizeof out, "%s/machine0/pairs", scratch);
    arguments a = command_of_pairs(alone, "4");
    add_arguments(&a, WORDS("--ranks", "1"));
    assert_int_equal(program_wait(program_start(&a, "/dev/null", err_path())), 0);
    for (const char *const *steps = WORDS("2", "4"); *steps; steps++) {
        a = command_of_pairs("pairs", *steps);
        group g = start_in_folders(&a, 2);
        all_end(&g, -1, 0, 60);
    }
    assert_same_end(alone, out, 4);
}

static void names_of_files_stay_in_their_folder(void **state)
{
    (void)state;
    static const char *const good[] = {"config.json", "trainer/exp_avg.safetensors", "model-00001-of-00002.safetensors"},
                             *const bad[] = {"", "/etc/passwd", "../x", "trainer/../../x", "a//b", "a b", "a\n"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(fetch_name_is_safe(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(fetch_name_is_safe(bad[i]));
}

/* Said of rank 1, and on rank 0. */
static void other_options_are_named(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char *const cases[][3] = {{"--lr", "2e-3", "rank 1: its --lr is 0.002, and that of rank 0 0.001"},
                                           {"--steps", "7", "rank 1: its --steps is 7, and that of rank 0 1"},
                                           {"--save-every", "3", "rank 1: its --save-every is 3, and that of rank 0 2"},
                                           {"--dtype", "fp32", "rank 1: its --dtype is \"fp32\", and that of rank 0 \"bf16\""}};
    char out[128];
    snprintf(out, sizeof out, "%s/other", scratch);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arguments a = command(out, "1"), b = a;
        add_arguments(&b, WORDS(cases[i][0], cases[i][1]));
        group g = start_two(&a, &b);
        all_end(&g, -1, 1, 60);
        if (!strstr(text_of(err_of(0)), cases[i][2]))
            fail_msg("%s: %s", cases[i][0], text_of(err_of(0)));
    }
}

/* A copy of the model whose file `name` has a byte changed, near its end. */
static void changed_copy(const char *folder, const char *name)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokens.npy"};
    char from[600], to[300];
    pt_error e = {0};
    must(dir_make(folder, &e), &e);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *data;
        size_t n;
        snprintf(from, sizeof from, "%s/bf16/llama/%s", PT_FIXTURES, names[i]);
        snprintf(to, sizeof to, "%s/%s", folder, names[i]);
        must(file_read_all(from, 1 << 30, &data, &n, &e), &e);
        data[n - 8] ^= !strcmp(names[i], name);
        must(file_write_atomic(to, data, n, &e), &e);
        free(data);
    }
}

/* Each rank has a folder of its own: "model" below where it is. */
static void another_model_or_data_is_named(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char *const cases[][2] = {{"nothing", NULL},
                                           {"tokens.npy", "rank 1: its --data is other than that of rank 0"},
                                           {"model.safetensors", "rank 1: model has other weights than on rank 0"}};
    char folder[2][128], model[160], out[128];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(out, sizeof out, "%s/others%zu", scratch, i);
        arguments a = {0};
        add_arguments(&a, WORDS("train", "--model", "model", "--data", "model/tokens.npy", "--out", out, "--seq-len", "32", "--batch-size",
                                "4", "--quiet", "--threads", "1", "--steps", "1", "--device-memory", "64MiB", "--disk-memory", "0"));
        group_begin(2);
        group g = {.n = 2};
        for (int r = 0; r < 2; r++) {
            snprintf(folder[r], sizeof folder[r], "%s/place%d", scratch, r);
            snprintf(model, sizeof model, "%s/model", folder[r]);
            changed_copy(model, r ? cases[i][0] : "nothing");
            g.of[r] = group_start(&a, r, folder[r]);
        }
        group_end();
        all_end(&g, -1, cases[i][1] ? 1 : 0, 60);
        if (cases[i][1] && !strstr(text_of(err_of(0)), cases[i][1]))
            fail_msg("%s: %s", cases[i][0], text_of(err_of(0)));
    }
}

static void mpi_without_mpirun_is_refused(void **state)
{
    (void)state;
    char out[128];
    snprintf(out, sizeof out, "%s/no_mpi", scratch);
    const arguments a = command(out, "1");
    setenv("PROTRAIN_TRANSPORT", "mpi", 1);
    group g = start_two(&a, &a);
    const int together = program_wait(start(out, "2", "1"));
    unsetenv("PROTRAIN_TRANSPORT");
    all_end(&g, -1, 2, 30);
    if (!strstr(text_of(err_of(0)), "start it by mpirun"))
        fail_msg("%s", text_of(err_of(0)));
    if (together != 2 || !strstr(text_of(err_path()), "start them by mpirun without --ranks"))
        fail_msg("exit status %d: %s", together, text_of(err_path()));
}

static void sigterm_saves_and_ends_all(void **state)
{
    (void)state;
    char out[128];
    snprintf(out, sizeof out, "%s/term", scratch);
    const pid_t launcher = start(out, "2", "1000000");
    wait_for_steps(out);
    const pid_t rank = rank_of(launcher, 1);
    kill(random_one_in(&the_random, 2) ? launcher : rank, SIGTERM);
    const int status = program_wait(launcher);
    if (status != 143 || !strstr(text_of(err_path()), "a checkpoint is written"))
        fail_msg("exit status %d: %s", status, text_of(err_path()));
    assert_true(kill(rank, 0) < 0); /* none is left */
}

/* Before it joins the others. */
static void one_that_stops_as_it_starts_is_named(void **state)
{
    (void)state;
    char out[128];
    NOT_SANITIZED(); /* the shim is no part of it */
    snprintf(out, sizeof out, "%s/early", scratch);
    (void)!symlink(PT_FAULT_SHIM, scratch_path("shim.so")); /* the loader cuts its list at spaces */
    set_number("PROTRAIN_JOIN_SECONDS", 4);
    setenv("PT_STOP_RANK", "0", 1);
    setenv("LD_PRELOAD", scratch_path("shim.so"), 1);
    const pid_t launcher = start(out, "2", "1000000");
    unsetenv("LD_PRELOAD");
    unsetenv("PT_STOP_RANK");
    unsetenv("PROTRAIN_JOIN_SECONDS");
    const int status = program_kill_after(launcher, 60);
    if (status != 1 || !strstr(text_of(err_path()), "rank 0: was started and did not join the others within 4 s"))
        fail_msg("exit status %d: %s", status, text_of(err_path()));
}

static const char *micro_batch;

static void refused(const char *ranks, const char *lanes, const char *said, int expected)
{
    char out[128], model[512], tokens[600];
    arguments a = {0};
    snprintf(out, sizeof out, "%s/refused", scratch);
    snprintf(model, sizeof model, "%s/bf16/llama", PT_FIXTURES);
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model);
    add_arguments(&a, WORDS("train", "--model", model, "--data", tokens, "--out", out, "--seq-len", "32", "--batch-size", "4", "--quiet",
                            "--steps",
                            "1", "--ranks", ranks, "--lanes", lanes, micro_batch ? "--micro-batch" : NULL, micro_batch));
    const int status = program_wait(program_start(&a, "/dev/null", err_path()));
    if (status != expected || !strstr(text_of(err_path()), said))
        fail_msg("--ranks %s --lanes %s: exit status %d: %s", ranks, lanes, status, text_of(err_path()));
}

static void what_cannot_be_shared_is_refused_in_one_sentence(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    refused("8", "4", "--ranks is 8 with 4 lanes", 2);
    refused("12", "12", "--ranks 12 is more than --batch-size 4", 2);
    refused("3", "4", "--ranks is 3 with 4 lanes", 2);
    refused("2", "3", "--lanes 3 divides neither", 2);
    refused("2", "1", "--ranks is 2 with 1 lane,", 2);
    micro_batch = "3";
    refused("2", "4", "--micro-batch 3 does not divide 2, each rank's part of --batch-size 4", 2);
    micro_batch = NULL;
    refused("1000", "4", "--ranks", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_rank_ends_all_and_any_number_goes_on),
                                       cmocka_unit_test(a_rank_that_is_killed_at_a_rename_loses_nothing),
                                       cmocka_unit_test(sigterm_saves_and_ends_all),
                                       cmocka_unit_test(one_that_stops_as_it_starts_is_named),
                                       cmocka_unit_test(ranks_started_apart_end_and_go_on_alike),
                                       cmocka_unit_test(one_that_is_killed_or_hangs_is_named),
                                       cmocka_unit_test(a_rank_0_that_was_stopped_joins),
                                       cmocka_unit_test(without_rank_0_all_end),
                                       cmocka_unit_test(sigterm_to_one_saves_and_ends_all_apart),
                                       cmocka_unit_test(the_plan_is_made_for_the_least),
                                       cmocka_unit_test(a_folder_need_not_be_shared),
                                       cmocka_unit_test(a_folder_of_pairs_need_not_be_shared),
                                       cmocka_unit_test(names_of_files_stay_in_their_folder),
                                       cmocka_unit_test(other_options_are_named),
                                       cmocka_unit_test(another_model_or_data_is_named),
                                       cmocka_unit_test(mpi_without_mpirun_is_refused),
                                       cmocka_unit_test(what_cannot_be_shared_is_refused_in_one_sentence)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
