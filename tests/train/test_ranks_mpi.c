/* Ranks that mpirun starts, of Open MPI and of MPICH: under random plans, with any number of ranks and any transport, they end in the bits
 * of one rank with the same lanes.
 *
 * PT_MPI_PLANS=n runs n plans instead of the default. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "sanitized.h"
#include "train/same_end.h"

#include "train/plan_file.h"

#include "program.h"

enum { DEFAULT_PLANS = 6, STEPS = 4, LAUNCHERS = 2, TRANSPORTS = 3 };

static const char *const launchers[LAUNCHERS] = {"mpirun.openmpi", "mpirun.mpich"}, *const transports[TRANSPORTS] = {"", "tcp", "mpi"},
                  *const modules[LAUNCHERS] = {"libprotrain_openmpi.so", "libprotrain_mpich.so"};

/* Lanes and numbers of ranks that can share them. */
static const struct lot { const char *batch, *lanes; int ranks[3]; } lots[] = {{"4", "4", {1, 2, 4}}, {"6", "3", {1, 3, 3}},
                                                                               {"8", "8", {2, 4, 8}}};
enum { LOTS = sizeof lots / sizeof *lots };

static random_source the_random;
static model *the_model;

static int open_all(void **state)
{
    pt_error e = {0};
    the_random = random_open();
    must(model_open(PT_FIXTURES "/bf16/llama", NULL, NULL, &the_model, &e), &e);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    return scratch_make(state);
}

static int close_all(void **state)
{
    model_close(the_model);
    return scratch_remove(state);
}

/* Is there such a program? */
static bool is_installed(const char *program)
{
    char command[80];
    snprintf(command, sizeof command, "command -v %s >/dev/null", program);
    return !system(command);
}

/* Is there such a file beside ours? */
static bool is_built(const char *module)
{
    char path[600];
    snprintf(path, sizeof path, "%.*s/%s", (int)(strrchr(PT_PROGRAM, '/') - PT_PROGRAM), PT_PROGRAM, module);
    return path_exists(path);
}

static void train(const char *out, const struct lot *t, words launcher, const char *plan)
{
    static char model[512], tokens[600], steps[16];
    arguments a = {0};
    for (; *launcher; launcher++)
        add_word(&a, *launcher);
    snprintf(model, sizeof model, "%s/bf16/llama", PT_FIXTURES);
    snprintf(tokens, sizeof tokens, "%s/tokens.npy", model);
    snprintf(steps, sizeof steps, "%d", STEPS);
    for (const char *const *w = WORDS(PT_PROGRAM, "train", "--model", model, "--data", tokens, "--out", out, "--seq-len", "32",
                                      "--batch-size", t->batch, "--lanes", t->lanes, "--lr", "1e-3", "--lr-schedule", "constant",
                                      "--weight-decay", "0.1", "--quiet", "--steps", steps, "--save-every", "2", "--device", "cpu",
                                      "--threads", "1", "--device-memory", "64MiB", "--disk-memory", "64MiB", plan ? "--plan" : NULL, plan);
         *w; w++)
        add_word(&a, *w);
    const int status = program_kill_after(program_start(&a, "/dev/null", scratch_path("err")), 120);
    if (status)
        fail_msg("%s %s: exit status %d: %s", a.v[1], a.v[3], status, text_of(scratch_path("err")));
}

static void any_plan_under_mpirun_gives_the_same_bits(void **state)
{
    (void)state;
    NOT_SANITIZED(); /* the libraries of MPI leak */
    char alone[LOTS][128], out[128], plan[160], number[16];
    const char *asked = getenv("PT_MPI_PLANS");
    const int plans = asked ? atoi(asked) : DEFAULT_PLANS;
    int usable[LAUNCHERS], n = 0, of[LAUNCHERS][TRANSPORTS] = {0}, of_ranks[9] = {0};
    pt_error e = {0};
    for (int i = 0; i < LAUNCHERS; i++)
        if (is_installed(launchers[i]))
            usable[n++] = i;
    if (!n)
        skip();
    for (int i = 0; i < LOTS; i++) {
        snprintf(alone[i], sizeof alone[i], "%s/alone%d", scratch, i);
        train(alone[i], &lots[i], WORDS("/usr/bin/env"), NULL);
    }
    for (int done = 0; done < plans; done++) {
        const int i = random_below(&the_random, LOTS), ranks = lots[i].ranks[random_below(&the_random, 3)];
        const int by = usable[random_below(&the_random, n)], transport = random_below(&the_random, is_built(modules[by]) ? TRANSPORTS : 2);
        const plan_case c = {.type = PT_BF16, .batch = atoi(lots[i].batch), .seq_len = 32, .clipping = true, .lanes = atoi(lots[i].lanes),
                             .ranks = ranks};
        snprintf(out, sizeof out, "%s/many", scratch);
        snprintf(plan, sizeof plan, "%s/plan.json", scratch);
        snprintf(number, sizeof number, "%d", ranks);
        write_random_plan(&the_random, the_model, &c, plan);
        setenv("PROTRAIN_TRANSPORT", transports[transport], 1);
        train(out, &lots[i], WORDS("/usr/bin/env", launchers[by], "-n", number), plan);
        unsetenv("PROTRAIN_TRANSPORT");
        assert_same_end(alone[i], out, STEPS);
        must(tree_remove(out, &e), &e);
        of[by][transport]++;
        of_ranks[ranks]++;
    }
    printf("%d plans: the same bits.", plans);
    for (int i = 0; i < n; i++)
        printf(" %s: memory %d, tcp %d, mpi %d.", launchers[usable[i]], of[usable[i]][0], of[usable[i]][1], of[usable[i]][2]);
    printf(" Ranks: 1 %d, 2 %d, 3 %d, 4 %d, 8 %d\n", of_ranks[1], of_ranks[2], of_ranks[3], of_ranks[4], of_ranks[8]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_plan_under_mpirun_gives_the_same_bits)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
