/* A command that is interrupted before there is anything to keep, and a run that goes on where its checkpoint lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "infer/model_folder.h"

#include "cli/refusal.h"

#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>

static char model_path[128];

static int set_up(void **state)
{
    if (scratch_make(state))
        return 1;
    snprintf(model_path, sizeof model_path, "%s", make_model_folder("model", 32, 2, 64, 5));
    return 0;
}

/* ---- signals ---- */

static void check_interrupted(int status, int number)
{
    const char *said = text_of(scratch_path("err")), *line = strstr(said, "protrain: interrupted");
    if (status != 128 + number || !line || strchr(line, '\n')[1])
        fail_msg("exit status %d, not %d: %s", status, 128 + number, said);
}

/* A pipe's worth and more is written, so that some of it has been read. */
static void fill(int fd)
{
    static const char text[4096] = "a text that goes on ";
    int room = fcntl(fd, F_GETPIPE_SZ);
    assert_true(room > 0);
    for (int n = 0; n <= room; n += (int)sizeof text)
        assert_int_equal(write(fd, text, sizeof text), sizeof text);
}

static void a_command_that_waits_for_its_input_leaves_with_a_word(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    const words commands[] = {WORDS("tokenize", "--model", model_path), WORDS("tokenize", "--model", model_path, "--decode"),
                                     WORDS("generate", "--model", model_path, "--prompt-file", "-")};
    for (size_t i = 0; i < 3 * sizeof commands / sizeof *commands; i++) {
        arguments a = {0};
        int ends[2], kept = dup(0);
        add_arguments(&a, commands[i / 3]);
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        assert_int_equal(dup2(ends[0], 0), 0);
        pid_t child = program_start(&a, scratch_path("out"), scratch_path("err"));
        assert_int_equal(dup2(kept, 0), 0);
        close(kept);
        close(ends[0]);
        fill(ends[1]);
        assert_int_equal(kill(child, numbers[i % 3]), 0);
        check_interrupted(program_kill_after(child, 60), numbers[i % 3]);
        assert_string_equal(text_of(scratch_path("out")), "");
        close(ends[1]);
    }
}

static arguments training(const char *out, words more)
{
    static char data[200];
    arguments a = {0};
    snprintf(data, sizeof data, "%s/data.txt", scratch);
    add_arguments(&a, WORDS("train", "--model", model_path, "--data", data, "--seq-len", "4", "--batch-size", "1", "--device-memory",
                            "64MiB", "--quiet"));
    if (out)
        add_arguments(&a, WORDS("--out", out));
    add_arguments(&a, more);
    return a;
}

static int train(const char *out, words more)
{
    arguments a = training(out, more);
    return program_wait(program_start(&a, scratch_path("out"), scratch_path("err")));
}

static void put_data(void)
{
    static const char text[] = "Some text to be learned, and a little more of it.";
    scratch_put("data.txt", text, sizeof text - 1);
}

/* The name of the token cache that a run leaves, which is the same for all runs with these data. */
static void find_cache(const char *out, char name[64])
{
    char folder[200];
    struct dirent **entries;
    snprintf(folder, sizeof folder, "%s/cache", out);
    int n = scandir(folder, &entries, NULL, alphasort), found = 0;
    for (int i = 0; i < n; i++) {
        if (strncmp(entries[i]->d_name, "tokens-", 7) == 0)
            found += snprintf(name, 64, "%.60s", entries[i]->d_name) > 0;
        free(entries[i]);
    }
    free(entries);
    assert_int_equal(found, 1);
}

/* Waits until the kernel says that the process waits for a lock on a file. */
static void wait_for_waiting(pid_t child)
{
    char line[256];
    for (int i = 0; i < 6000; i++) {
        FILE *f = fopen("/proc/locks", "r");
        while (f && fgets(line, sizeof line, f)) {
            int pid;
            if (sscanf(line, "%*d: -> %*s %*s %*s %d", &pid) == 1 && pid == (int)child) {
                fclose(f);
                return;
            }
        }
        if (f)
            fclose(f);
        sleep_seconds(0.01);
    }
    fail_msg("the lock is not waited for: %s", text_of(scratch_path("err")));
}

/* The lock of the token cache is held here: the run is in its opening phase, and stays there. */
static void a_run_that_has_not_begun_leaves_with_a_word_and_may_be_started_again(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    char name[64], out[128], path[300];
    put_data();
    snprintf(out, sizeof out, "%s/whole", scratch);
    assert_int_equal(train(out, WORDS("--steps", "1")), 0);
    find_cache(out, name);
    for (int i = 0; i < 3; i++) {
        pt_error e = {0};
        snprintf(out, sizeof out, "%s/early-%d", scratch, i);
        snprintf(path, sizeof path, "%s/cache", out);
        assert_int_equal(dir_make(path, &e), 0);
        snprintf(path, sizeof path, "%s/cache/%s.partial", out, name);
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        assert_true(fd >= 0 && flock(fd, LOCK_EX) == 0);
        arguments a = training(out, WORDS("--steps", "2"));
        pid_t child = program_start(&a, "/dev/null", scratch_path("err"));
        wait_for_waiting(child);
        assert_int_equal(kill(child, numbers[i]), 0);
        check_interrupted(program_kill_after(child, 60), numbers[i]);
        close(fd);
        if (train(out, WORDS("--steps", "2")))
            fail_msg("%s", text_of(scratch_path("err")));
        snprintf(path, sizeof path, "%s/model.safetensors", out);
        assert_true(path_exists(path));
    }
}

/* ---- going on ---- */

static int count_lines(const char *path)
{
    int n = 0;
    for (const char *at = text_of(path); (at = strchr(at, '\n')); at++)
        n++;
    return n;
}

static void resume_goes_on_in_the_folder_that_the_checkpoint_lies_in(void **state)
{
    (void)state;
    static const char *const ends[] = {"", "/"};
    put_data();
    for (int i = 0; i < 2; i++) {
        char out[128], metrics[200], from[200];
        snprintf(out, sizeof out, "%s/going-on-%d", scratch, i);
        snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
        snprintf(from, sizeof from, "%s/checkpoint-2%s", out, ends[i]);
        assert_int_equal(train(out, WORDS("--steps", "4", "--save-every", "2")), 0);
        assert_int_equal(count_lines(metrics), 4);
        if (train(NULL, WORDS("--steps", "6", "--resume", from)))
            fail_msg("%s", text_of(scratch_path("err")));
        assert_int_equal(count_lines(metrics), 6);
        const char *text = text_of(metrics), *third = strchr(strchr(text, '\n') + 1, '\n') + 1;
        assert_true(strncmp(text, "{\"step\":1,", 10) == 0 && strncmp(third, "{\"step\":3,", 10) == 0);
        assert_non_null(strstr(text_of(scratch_path("out")), out));
    }
}

/* A wrong name, perhaps. */
static void a_folder_that_is_not_there_resumes_nothing_and_says_so(void **state)
{
    (void)state;
    char out[128], said[200];
    put_data();
    snprintf(out, sizeof out, "%s/mistyped", scratch);
    snprintf(said, sizeof said, "there is no folder %s to resume from: training starts from the beginning", out);
    assert_int_equal(train(out, WORDS("--steps", "2", "--resume")), 0);
    assert_non_null(strstr(text_of(scratch_path("err")), said));
}

static void a_checkpoint_may_be_the_current_folder(void **state)
{
    (void)state;
    static const char *const names[] = {".", "./", "trainer/..", "../checkpoint-2/."};
    put_data();
    for (int i = 0; i < 4; i++) {
        char out[128], checkpoint[200], metrics[200], before[PATH_MAX];
        snprintf(out, sizeof out, "%s/within-%d", scratch, i);
        snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2", out);
        snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
        assert_int_equal(train(out, WORDS("--steps", "2", "--save-every", "2")), 0);
        assert_true(getcwd(before, sizeof before) && chdir(checkpoint) == 0);
        int status = train(NULL, WORDS("--steps", "4", "--resume", names[i]));
        assert_int_equal(chdir(before), 0);
        if (status || count_lines(metrics) != 4)
            fail_msg("--resume %s: %s", names[i], text_of(scratch_path("err")));
    }
}

static void a_link_elsewhere_leads_to_the_run(void **state)
{
    (void)state;
    char out[128], checkpoint[200], metrics[200], link[160];
    put_data();
    snprintf(out, sizeof out, "%s/linked-run", scratch);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2", out);
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", out);
    snprintf(link, sizeof link, "%s/checkpoint-9", scratch); /* in a folder that is no run */
    assert_int_equal(train(out, WORDS("--steps", "2", "--save-every", "2")), 0);
    assert_int_equal(symlink(checkpoint, link), 0);
    if (train(NULL, WORDS("--steps", "4", "--resume", link)) || count_lines(metrics) != 4)
        fail_msg("%s", text_of(scratch_path("err")));
    assert_int_equal(unlink(link), 0);
}

/* ---- interrupted, then extended ---- */

/* The step of the last whole line of OUT/metrics.jsonl; 0: there is none. */
static int last_step(const char *out)
{
    char path[200], *text;
    size_t n;
    int step = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", out);
    if (file_read_all(path, 1 << 24, &text, &n, NULL))
        return 0;
    for (const char *line = text; strchr(line, '\n'); line = strchr(line, '\n') + 1)
        sscanf(line, "{\"step\":%d", &step);
    free(text);
    return step;
}

/* Ends it with SIGTERM some steps after it began; how many it had done. */
static int interrupt(const char *out, words more)
{
    arguments a = training(out, more);
    const pid_t child = program_start(&a, "/dev/null", scratch_path("err"));
    for (int i = 0; i < 6000 && last_step(out) < 3; i++)
        sleep_seconds(0.01);
    assert_int_equal(kill(child, SIGTERM), 0);
    const int status = program_kill_after(child, 120);
    if (status != 128 + SIGTERM || !strstr(text_of(scratch_path("err")), "protrain train --resume"))
        fail_msg("exit status %d: %s", status, text_of(scratch_path("err")));
    return last_step(out);
}

static bool same_files(const char *a, const char *b, const char *name)
{
    char path[2][200], *text[2];
    size_t n[2];
    pt_error e = {0};
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/%s", i ? b : a, name);
        if (file_read_all(path[i], 1 << 24, &text[i], &n[i], &e))
            fail_msg("%s", e.text);
    }
    const bool same = n[0] == n[1] && !memcmp(text[0], text[1], n[0]);
    free(text[0]);
    free(text[1]);
    return same;
}

enum { PLANNED = 4000, EXTENDED = 4100 };

static void a_run_that_was_interrupted_is_extended(void **state)
{
    (void)state;
    char straight[128], out[128], rates[200];
    const words constant = WORDS("--lr-schedule", "constant", "--steps", "4100");
    put_data();
    snprintf(straight, sizeof straight, "%s/straight", scratch);
    snprintf(out, sizeof out, "%s/constant", scratch);
    assert_int_equal(train(straight, constant), 0);
    const int done = interrupt(out, WORDS("--lr-schedule", "constant", "--steps", "4000"));
    assert_true(done >= 3 && done < PLANNED);
    arguments a = training(out, constant);
    add_argument(&a, "--resume");
    assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 0);
    assert_null(strstr(text_of(scratch_path("err")), "the run now has"));
    assert_true(same_files(straight, out, "model.safetensors")); /* the result of the run that was never interrupted */

    snprintf(out, sizeof out, "%s/linear", scratch);
    const int next = interrupt(out, WORDS("--lr", "0.01", "--steps", "4000")) + 1;
    a = training(out, WORDS("--lr", "0.01", "--steps", "4100", "--resume"));
    assert_int_equal(program_wait(program_start(&a, "/dev/null", scratch_path("err"))), 0);
    snprintf(rates, sizeof rates,
             "the run now has 4100 steps instead of 4000: the learning rate of step %d is %.3g and would have been %.3g", next,
             0.01 * (1 - (next - 1) / (double)EXTENDED), 0.01 * (1 - (next - 1) / (double)PLANNED));
    if (!strstr(text_of(scratch_path("err")), rates))
        fail_msg("\"%s\" is not in: %s", rates, text_of(scratch_path("err")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_that_waits_for_its_input_leaves_with_a_word),
        cmocka_unit_test(a_run_that_has_not_begun_leaves_with_a_word_and_may_be_started_again),
        cmocka_unit_test(resume_goes_on_in_the_folder_that_the_checkpoint_lies_in),
        cmocka_unit_test(a_folder_that_is_not_there_resumes_nothing_and_says_so),
        cmocka_unit_test(a_checkpoint_may_be_the_current_folder),
        cmocka_unit_test(a_link_elsewhere_leads_to_the_run),
        cmocka_unit_test(a_run_that_was_interrupted_is_extended),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_remove);
}
