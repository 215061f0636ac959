/* A run that is killed at any moment, saving included, and resumed until it ends, ends in the same bits as one that was left
 * alone, also one that is killed at a rename, of a file or of a folder; SIGINT, SIGTERM and SIGHUP save and leave.
 *
 * PT_KILLS=n kills n times instead of the default. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/adapter.h"

#include "sanitized.h"
#include "task/task.h"
#include "text/buffer.h"
#include "train/experts_model.h"
#include "train/same_end.h"

#include "train/plan_file.h"

#include "chat/byte_model.h"
#include "program.h"

#include "faults/fault.h"

enum { DEFAULT_KILLS = THREADS_SANITIZED ? 3 : 4, STEPS = 16 };

static const char *model_folder(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/bf16/llama", PT_FIXTURES);
    return path;
}

static model *the_model, *scoring_model, *experts_model; /* the second with the head of --task reward */
/* What these runs train on, or which model; documents are apart. */
static enum { PLAIN, DOCUMENTS, CHATS, PAIRS, EXPERTS, DATA_KINDS } data_kind_now;
static const char *const data_names[] = {"", ", documents apart", ", chats", ", pairs", ", ranges of experts"};
static const char *const frozen_patterns[] = {"model.embed_tokens.weight", "model.layers.0.*"};
static bool frozen; /* those are */
static const char *base = "auto"; /* and how they are kept */
static const char *adapted; /* are trained: of these modules, with magnitudes or with dropout; NULL: none */
static bool drops;
static random_source the_random;

static const char *experts_folder(void)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/experts-model", scratch);
    return path;
}

enum { RECORDS = 39 }; /* an epoch ends within the runs, with a batch that is not full */

/* The same model with a tokenizer and a chat template, and some chats beside it. */
static void make_chats(void)
{
    char path[600], folder[300], line[300];
    text_buffer chats = {0};
    static const char *const files[] = {"config.json", "model.safetensors"};
    snprintf(folder, sizeof folder, "%s/chat-model", scratch);
    assert_int_equal(mkdir(folder, 0777), 0);
    for (int i = 0; i < 2; i++) {
        char from[600];
        snprintf(from, sizeof from, "%s/%s", model_folder(), files[i]);
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        assert_int_equal(symlink(from, path), 0);
    }
    put_byte_model(folder, 128, true);
    for (int i = 0; i < RECORDS; i++) { /* "<s><|im_start|>user" alone takes 6 places, so that a window of 32 has one or two */
        snprintf(line, sizeof line,
                 "{\"messages\": [{\"role\": \"u\", \"content\": \"%.*s\"}, {\"role\": \"assistant\", \"content\": \"%.*s\"}]}\n",
                 i % 3, "abc", i % 7, "uvwxyz");
        must(text_buffer_append(&chats, line, strlen(line), NULL), NULL);
    }
    must(text_buffer_append(&chats, "", 1, NULL), NULL);
    put(scratch, "chats.jsonl", chats.bytes);
    text_buffer_free(&chats);
}

static void make_pairs(void)
{
    char line[200];
    text_buffer pairs = {0};
    for (int i = 0; i < RECORDS; i++) {
        snprintf(line, sizeof line, "{\"prompt\": \"%.*s\", \"chosen\": \"%.*s\", \"rejected\": \"%.*s\", \"margin\": %g}\n", 1 + i % 3,
                 "abc", 1 + i % 5, "uvwxy", 1 + i % 7, "zyxwvut", 0.25 * (i % 5));
        must(text_buffer_append(&pairs, line, strlen(line), NULL), NULL);
    }
    must(text_buffer_append(&pairs, "", 1, NULL), NULL);
    put(scratch, "pairs.jsonl", pairs.bytes);
    text_buffer_free(&pairs);
}

static int open_all(void **state)
{
    the_random = random_open();
    int failed = scratch_make(state);
    if (!failed) {
        make_chats();
        make_pairs();
    }
    return failed || put_experts_model(experts_folder(), NULL) || model_open(experts_folder(), NULL, NULL, &experts_model, NULL) ||
           model_open(model_folder(), NULL, NULL, &the_model, NULL) ||
           model_open_changed(model_folder(), &(model_changes){.labels = 1}, NULL, NULL, &scoring_model, NULL);
}

static int close_all(void **state)
{
    model_close(the_model);
    model_close(scoring_model);
    model_close(experts_model);
    return scratch_remove(state);
}

static const optimizer *the_optimizer = &optimizer_adamw;
static const char *lanes = "1", *activations = "exact";
static int pairs_task; /* of those of train_tasks that compare replies */

static void common_arguments(arguments *a, const char *out)
{
    static char data[600], chat_model[300];
    const bool pairs = data_kind_now == PAIRS, chats = data_kind_now == CHATS || pairs;
    snprintf(data, sizeof data, "%s/%s", chats ? scratch : model_folder(), pairs ? "pairs.jsonl" : chats ? "chats.jsonl" : "tokens.npy");
    snprintf(chat_model, sizeof chat_model, "%s/chat-model", scratch);
    add_arguments(a, (const char *const[]){"train", "--model",
                                           chats ? chat_model : data_kind_now == EXPERTS ? experts_folder() : model_folder(), "--data",
                                           data, "--out", out, "--seq-len", "32",
                                           "--batch-size", "4", "--lr", "1e-3", "--weight-decay", "0.1", "--device", run_device(),
                                           "--optimizer", the_optimizer->name, "--lanes", lanes, "--activations", activations,
                                           "--quiet", NULL});
    if (the_optimizer == &optimizer_apollo || the_optimizer == &optimizer_galore)
        add_arguments(a, (const char *const[]){"--optimizer-args", "rank=3,update_proj_gap=5", NULL});
    if (the_optimizer == &optimizer_apollo8bit || the_optimizer == &optimizer_galore8bit) /* of a smaller rank they would have no codes */
        add_arguments(a, (const char *const[]){"--optimizer-args", "update_proj_gap=5", NULL});
    if (data_kind_now == DOCUMENTS)
        add_argument(a, "--document-mask");
    if (chats)
        add_arguments(a, (const char *const[]){"--eval-split", "0.1", "--eval-every", "5", pairs ? "--task" : "--loss-per",
                                               pairs ? train_tasks[pairs_task]->name : "example", NULL});
    if (pairs && train_tasks[pairs_task] == &task_reward)
        add_arguments(a, (const char *const[]){"--center-rewards", "0.05", NULL});
    if (adapted)
        add_arguments(a, (const char *const[]){"--lora", "3", drops ? "--lora-dropout=0.2" : "--dora", "--lora-targets", adapted, "--base",
                                               base, NULL});
    if (frozen)
        add_arguments(a, (const char *const[]){"--freeze", frozen_patterns[0], "--freeze", frozen_patterns[1], "--base", base, NULL});
}

/* Memory, threads and plan of a start; none of them may change the result. */
static void add_circumstances(arguments *a, random_source *random)
{
    static char plan_path[200], threads[8];
    snprintf(threads, sizeof threads, "%d", random_from(random, 1, 4));
    add_arguments(a, (const char *const[]){"--device-memory", "64MiB", "--disk-memory", "64MiB", "--threads", threads, NULL});
    if (random_one_in(random, 3))
        return;
    plan_case c = {.type = PT_BF16, .batch = 4, .seq_len = 32, .clipping = true, .host_tier = random_one_in(random, 2),
                   .optimizer = the_optimizer, .lanes = atoi(lanes), .ranges = data_kind_now == EXPERTS};
    snprintf(plan_path, sizeof plan_path, "%s/plan.json", scratch);
    const bool scores = data_kind_now == PAIRS && train_tasks[pairs_task]->scores;
    write_random_plan(random, scores ? scoring_model : data_kind_now == EXPERTS ? experts_model : the_model, &c, plan_path);
    add_arguments(a, (const char *const[]){"--plan", plan_path, NULL});
    if (c.host_tier)
        add_arguments(a, (const char *const[]){"--host-memory", "64MiB", NULL});
}

/* Nothing unfinished is left in a run's folder. */
static void assert_clean(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (strstr(entries[i]->d_name, ".tmp") || strcmp(entries[i]->d_name, ".lock") == 0)
            fail_msg("%s is left in %s", entries[i]->d_name, folder);
        free(entries[i]);
    }
    free(entries);
}

static const char *err_path(void) { return scratch_path("err"); }

/* Of n kinds of runs those that are killed: where PT_KILLS asks for many, all; else every second one, from a random one on; under
 * ThreadSanitizer, for which all have the same threads, one. */
typedef struct kinds { int first, end, step; } kinds;

static kinds kinds_to_kill(int n)
{
    const int one = random_below(&the_random, n);
    if (THREADS_SANITIZED)
        return (kinds){one, one + 1, 1};
    return getenv("PT_KILLS") ? (kinds){0, n, 1} : (kinds){one % 2, n, 2};
}

static bool saves = true; /* such runs write checkpoints before their last step */

/* Starts (or resumes) the run in `out` and kills it after `seconds`: true if it had come to its end. */
static bool start_and_kill(const char *out, double seconds, int *kills)
{
    arguments a = {0};
    common_arguments(&a, out);
    add_circumstances(&a, &the_random);
    add_arguments(&a, (const char *const[]){"--steps", "16", "--save-every", saves ? "2" : "0", "--resume", NULL});
    int status = program_kill_after(program_start(&a, "/dev/null", err_path()), seconds);
    if (status == 256 + SIGKILL)
        (*kills)++;
    else if (status != 0)
        fail_msg("%s: exit status %d: %s", out, status, text_of(err_path()));
    return status == 0;
}

static double straight_run(const char *out)
{
    arguments a = {0};
    common_arguments(&a, out);
    add_arguments(&a, (const char *const[]){"--device-memory", "64MiB", NULL});
    add_arguments(&a, (const char *const[]){"--steps", "16", "--save-every", "2", NULL});
    double start = seconds_now();
    int status = program_wait(program_start(&a, "/dev/null", err_path()));
    if (status)
        fail_msg("exit status %d: %s", status, text_of(err_path()));
    return seconds_now() - start;
}

static int wanted_kills(void)
{
    const char *asked = getenv("PT_KILLS");
    return asked ? atoi(asked) : DEFAULT_KILLS;
}

static int optimizers_n(void)
{
    int n = 0;
    while (optimizers[n])
        n++;
    return n;
}

static void kill_and_compare(int wanted)
{
    static const char *const numbers[] = {"1", "2", "4"}, *const forms[] = {"exact", "int8", "fp8"};
    int kills = 0, runs = 0, starts = 0;
    lanes = numbers[random_below(&the_random, 3)];
    activations = forms[random_below(&(random_source){the_random.seed + 1, the_random.n}, 3)];
    do {
        pairs_task = 1 + random_below(&the_random, train_tasks_n - 1);
    } while (!train_tasks[pairs_task]->pairs || (train_tasks[pairs_task]->scores && (adapted || frozen)));
    char straight[128], out[128];
    pt_error e = {0};
    snprintf(straight, sizeof straight, "%s/straight", scratch);
    snprintf(out, sizeof out, "%s/killed", scratch);
    double seconds = straight_run(straight);
    while (kills < wanted) {
        bool ended = false;
        while (!ended) {
            double share = (double)random_below(&the_random, 10000) / 10000;
            ended = start_and_kill(out, kills < wanted ? share * seconds : 60, &kills);
            starts++;
        }
        assert_same_end(straight, out, STEPS);
        assert_clean(out);
        must(tree_remove(out, &e), &e);
        runs++;
    }
    must(tree_remove(straight, &e), &e);
    printf("%s, %s lanes, activations %s: %d runs of %.2f s%s%s%s, killed %d times in %d starts: the same bits\n", the_optimizer->name,
           lanes, activations, runs, seconds, frozen ? ", some frozen" : adapted ? ", adapters" : "", data_names[data_kind_now],
           saves ? "" : ", no checkpoints", kills, starts);
}

static void a_killed_run_resumes_to_the_same_bits(void **state)
{
    (void)state;
    static const optimizer *const cutting[] = {&optimizer_adamw, &optimizer_adamw8bit, &optimizer_muon};
    const int wanted = wanted_kills(), n = optimizers_n(), shift = random_below(&the_random, DATA_KINDS);
    const kinds some = kinds_to_kill(n + 1);
    for (int i = some.first; i < some.end; i += some.step) {
        data_kind_now = (i + shift) % DATA_KINDS;
        the_optimizer = data_kind_now == EXPERTS ? cutting[random_below(&the_random, 3)] : optimizers[i % n];
        saves = i % 2 == 0;
        kill_and_compare((wanted + n) / (n + 1));
    }
    saves = true;
    the_optimizer = &optimizer_adamw;
    data_kind_now = PLAIN;
}

static void a_killed_run_with_frozen_parameters_resumes_to_the_same_bits(void **state)
{
    (void)state;
    pt_error e = {0};
    frozen = true;
    must(model_freeze(the_model, &(model_freezing){.freeze = frozen_patterns, .freeze_n = 2}, &e), &e);
    const int n = optimizers_n();
    const kinds some = kinds_to_kill(n);
    for (int i = some.first; i < some.end; i += some.step) {
        the_optimizer = optimizers[i];
        base = (const char *const[]){"auto", "nf4", "int8"}[i % 3];
        must(model_store(the_model, (param_storage)(i % 3), &e), &e);
        kill_and_compare((wanted_kills() + 4 * n - 1) / (4 * n));
    }
    must(model_store(the_model, STORAGE_PLAIN, &e), &e);
    base = "auto";
    the_optimizer = &optimizer_adamw;
    frozen = false;
    must(model_freeze(the_model, &(model_freezing){0}, &e), &e);
}

static void a_killed_run_of_adapters_resumes_to_the_same_bits(void **state)
{
    (void)state;
    static const optimizer *const of[] = {&optimizer_adamw, &optimizer_adamw8bit};
    model *plain = the_model, *plain_experts = experts_model;
    pt_error e = {0};
    const kinds some = kinds_to_kill(2);
    for (int i = some.first; i < some.end; i += some.step) {
        model **of_run = i ? &experts_model : &the_model;
        drops = i;
        adapted = i ? "q_proj,v_proj" : "q_proj,v_proj,mlp.down_proj"; /* beside frozen experts */
        must(model_open(i ? experts_folder() : model_folder(), NULL, NULL, of_run, &e), &e);
        must(model_adapt(*of_run, &(adapter_options){.rank = 3, .targets = adapted, .dora = !drops}, &e), &e);
        adapter_set_dropout(*of_run, drops ? 0.2 : 0);
        the_optimizer = of[i];
        base = i ? "auto" : "nf4";
        data_kind_now = i ? EXPERTS : PAIRS;
        must(model_store(*of_run, i ? STORAGE_PLAIN : STORAGE_NF4, &e), &e);
        kill_and_compare((wanted_kills() + 7) / 8);
        model_close(*of_run);
    }
    the_model = plain;
    experts_model = plain_experts;
    the_optimizer = &optimizer_adamw;
    adapted = NULL;
    base = "auto";
    data_kind_now = PLAIN;
}

/* ---- renames ---- */

enum { SHORT = 4 }; /* steps of short_run */

/* A few steps of a run in `out`, on a machine that need not be measured. */
static int short_run(const char *out, bool resume, const char *fault)
{
    arguments a = {0};
    common_arguments(&a, out);
    add_arguments(&a, (const char *const[]){"--steps", "4", "--save-every", saves ? "2" : "0", "--keep", "1", "--device-memory", "64MiB",
                                            "--host-memory", on_gpu() ? "64MiB" : "0", "--machine",
                                            on_gpu() ? PT_FIXTURES "/../../machines/rtx3090.json"
                                                     : PT_FIXTURES "/../../machines/laptop16.json", NULL});
    if (resume)
        add_argument(&a, "--resume");
    if (fault)
        fault_set(fault, NULL);
    const pid_t child = program_start(&a, "/dev/null", err_path());
    fault_clear();
    return program_wait(child);
}

static void kill_at_renames(const char *what)
{
    char straight[128], out[128], fault[64];
    pt_error e = {0};
    snprintf(straight, sizeof straight, "%s/%s-straight", scratch, what);
    snprintf(out, sizeof out, "%s/%s-killed", scratch, what);
    assert_int_equal(short_run(straight, false, "files rename 1 none"), 0);
    const int renames = fault_count();
    assert_true(renames > 10);
    for (int i = 1; i <= renames; i++) {
        snprintf(fault, sizeof fault, "files rename %d %s", i, random_one_in(&the_random, 2) ? "kill" : "killed");
        if (short_run(out, false, fault) != 256 + SIGKILL || short_run(out, true, NULL))
            fail_msg("%s, %s: %s", what, fault, text_of(err_path()));
        assert_same_end(straight, out, SHORT);
        assert_clean(out);
        must(tree_remove(out, &e), &e);
    }
    printf("%s: killed at each of %d renames\n", what, renames);
}

static void a_run_that_is_killed_at_a_rename_resumes_to_the_same_bits(void **state)
{
    (void)state;
    if (!SHIM_WORKS)
        skip();
    lanes = "1";
    kill_at_renames("saving");
    saves = false;
    kill_at_renames("model");
    adapted = "q_proj";
    kill_at_renames("adapter");
    adapted = NULL;
    saves = true;
}

/* ---- signals ---- */

static int lines_of(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0;
    for (int c; f && (c = getc(f)) != EOF;)
        n += c == '\n';
    if (f)
        fclose(f);
    return n;
}

static int newest_checkpoint(const char *out)
{
    struct dirent **entries;
    int n = scandir(out, &entries, NULL, alphasort), newest = -1;
    for (int i = 0; i < n; i++) {
        int step, used = 0;
        if (sscanf(entries[i]->d_name, "checkpoint-%d%n", &step, &used) == 1 && !entries[i]->d_name[used] && step > newest)
            newest = step;
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return newest;
}

static void run_to(const char *out, const char *steps, bool resume)
{
    arguments a = {0};
    common_arguments(&a, out);
    add_arguments(&a, (const char *const[]){"--device-memory", "64MiB", NULL});
    add_arguments(&a, (const char *const[]){"--lr-schedule", "constant", "--steps", steps, "--save-every", steps, NULL});
    if (resume)
        add_argument(&a, "--resume");
    int status = program_wait(program_start(&a, "/dev/null", err_path()));
    if (status)
        fail_msg("exit status %d: %s", status, text_of(err_path()));
}

/* The files that say how the run went are there, and whole. */
static void assert_account(const char *out, int step)
{
    char path[200];
    json_t *summary, *trace;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/summary.json", out);
    must(json_file_load(path, 0, &summary, &e), &e);
    assert_int_equal(json_integer_value(json_object_get(summary, "last_step")), step);
    json_decref(summary);
    snprintf(path, sizeof path, "%s/trace.json", out);
    must(json_file_load(path, 0, &trace, &e), &e);
    assert_true(json_array_size(json_object_get(trace, "traceEvents")) > 20);
    json_decref(trace);
}

static void interrupt(int number, int expected, const char *name)
{
    char out[128], straight[140], metrics[200], steps[16];
    arguments a = {0};
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    snprintf(straight, sizeof straight, "%s-straight", out);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    common_arguments(&a, out);
    add_circumstances(&a, &the_random);
    add_arguments(&a, (const char *const[]){"--lr-schedule", "constant", "--steps", "1000000", "--trace", NULL});
    pid_t child = program_start(&a, "/dev/null", err_path());
    for (int i = 0; i < 6000 && lines_of(metrics) < 3; i++)
        sleep_seconds(0.01);
    kill(child, number);
    /* from the shell, and from the system; timeout(1) tells its child and then its group */
    const double first = seconds_now();
    for (int i = 0; i < (number == SIGHUP ? 10 : number == SIGTERM); i++) {
        sleep_seconds(0.002);
        kill(child, number);
    }
    const bool late = seconds_now() - first > 0.2; /* on a busy machine: then it is a second wish */
    int status = program_wait(child);
    if (late && number == SIGTERM) {
        snprintf(metrics, sizeof metrics, "%s-again", name);
        interrupt(number, expected, metrics);
        return;
    }
    const char *said = text_of(err_path());
    if (status != expected || !strstr(said, "interrupted after step ") || !strstr(said, "--resume") || !strstr(said, "at its peak"))
        fail_msg("exit status %d: %s", status, text_of(err_path()));
    int step = newest_checkpoint(out);
    assert_true(step >= 3);
    assert_account(out, step);
    assert_clean(out);
    snprintf(steps, sizeof steps, "%d", step + 3);
    run_to(out, steps, true);
    run_to(straight, steps, false);
    assert_same_end(straight, out, step + 3);
}

static void sigint_saves_and_leaves_with_130(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    interrupt(SIGINT, 130, "int");
}

static void sigterm_saves_and_leaves_with_143(void **state)
{
    (void)state;
    interrupt(SIGTERM, 143, "term");
}

static void a_closed_terminal_saves_and_leaves_with_129(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    interrupt(SIGHUP, 129, "hup");
}

/* While it stands still, so that it cannot come to its end by itself. It is tried again where the first signal had not arrived
 * before the second, so that both count as one, and where the run had saved before it stood still. */
static void a_second_signal_leaves_at_once(void **state)
{
    (void)state;
    enum { TRIES = 20 };
    bool left = false;
    for (int i = 0; i < TRIES && !left; i++) {
        char out[128], metrics[200];
        arguments a = {0};
        snprintf(out, sizeof out, "%s/twice-%d", scratch, i);
        snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
        common_arguments(&a, out);
        add_arguments(&a, (const char *const[]){"--device-memory", "64MiB", "--steps", "1000000", NULL});
        pid_t child = program_start(&a, "/dev/null", err_path());
        for (int k = 0; k < 6000 && lines_of(metrics) < 3; k++)
            sleep_seconds(0.01);
        kill(child, SIGINT);
        sleep_seconds(0.0005 * (i + 1));
        kill(child, SIGSTOP);
        sleep_seconds(0.4);
        kill(child, SIGTERM);
        kill(child, SIGCONT);
        int status = program_wait(child);
        if (status != 143 && status != 130)
            fail_msg("exit status %d: %s", status, text_of(err_path()));
        left = status == 143 && newest_checkpoint(out) <= 0;
    }
    assert_true(left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_killed_run_resumes_to_the_same_bits),
                                       cmocka_unit_test(a_killed_run_of_adapters_resumes_to_the_same_bits),
        cmocka_unit_test(a_killed_run_with_frozen_parameters_resumes_to_the_same_bits),
                                       cmocka_unit_test(a_run_that_is_killed_at_a_rename_resumes_to_the_same_bits),
                                       cmocka_unit_test(sigint_saves_and_leaves_with_130),
                                       cmocka_unit_test(sigterm_saves_and_leaves_with_143),
                                       cmocka_unit_test(a_closed_terminal_saves_and_leaves_with_129),
                                       cmocka_unit_test(a_second_signal_leaves_at_once)};
    return cmocka_run_group_tests(tests, open_all, close_all);
}
