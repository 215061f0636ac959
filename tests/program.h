/* program.h - running the protrain program from a test. PT_PROGRAM is its path. Include after cmocka.h. */
#ifndef PT_TEST_PROGRAM_H
#define PT_TEST_PROGRAM_H

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROGRAM_ARGS = 64 };

/* The last one is NULL. */
typedef const char *const *words;
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

typedef struct arguments {
    const char *v[PROGRAM_ARGS + 2];
    int n;
} arguments;

/* Commands that compute are given a device and threads first, so that they do the same on every machine: beside a GPU not even its driver
 * is loaded, and more than 8 threads would take their part of a budget. */
static inline bool command_computes(const char *command)
{
    static const char *const all[] = {"train", "plan", "profile", "eval", "generate", "serve"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(command, all[i]))
            return true;
    return false;
}

static inline void add_word(arguments *a, const char *text)
{
    assert_true(a->n < PROGRAM_ARGS);
    a->v[a->n++] = text;
    a->v[a->n] = NULL;
}

/* Takes away an option that comes again, so that a test can change what its helpers give. "--name=VALUE" stays, and what is repeatable. */
static inline void drop_earlier(arguments *a, const char *text)
{
    static const char *const lists[] = {"--data", "--eval-data", "--freeze", "--train-only", "--sample"};
    int at = 2, words = 1;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (!strcmp(text, lists[i]))
            return;
    while (at < a->n && strcmp(a->v[at], text))
        at++;
    if (strncmp(text, "--", 2) || at >= a->n)
        return;
    if (at + 1 < a->n && strncmp(a->v[at + 1], "--", 2))
        words = 2;
    a->n -= words;
    memmove(&a->v[at], &a->v[at + words], (size_t)(a->n + 1 - at) * sizeof *a->v);
}

static inline void add_argument(arguments *a, const char *text)
{
    const bool first = !a->n;
    if (first)
        add_word(a, PT_PROGRAM);
    if (a->n > 3 && !strcmp(a->v[1], "plan") && !strcmp(a->v[2], "--device") && !strcmp(text, "--machine"))
        a->v[3] = "auto"; /* the file's device, which need not be here */
    drop_earlier(a, text);
    add_word(a, text);
    for (const char *const *w = WORDS("--device", "cpu", "--threads", "2"); first && command_computes(text) && *w; w++)
        add_word(a, *w);
}

/* Several at once; the last one is NULL. */
static inline void add_arguments(arguments *a, const char *const *texts)
{
    for (; *texts; texts++)
        add_argument(a, *texts);
}

static inline void redirect(int to, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    if (fd < 0 || dup2(fd, to) < 0)
        _exit(99);
    close(fd);
}

/* Starts the program; what it writes goes into the two files. */
static inline pid_t program_start(const arguments *a, const char *out_path, const char *err_path)
{
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child)
        return child;
    redirect(1, out_path);
    redirect(2, err_path);
    signal(SIGINT, SIG_DFL); /* the tests may run in the background of a script, or under nohup */
    signal(SIGHUP, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    execv(a->v[0], (char *const *)a->v);
    _exit(99);
}

/* Its exit status; 256 + number where a signal ended it. */
static inline int program_wait(pid_t child)
{
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static inline void sleep_seconds(double s)
{
    struct timespec t = {(time_t)s, (long)((s - (double)(time_t)s) * 1e9)};
    nanosleep(&t, NULL);
}

static inline double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Like program_wait, but a child that has not ended after so many seconds is killed. */
static inline int program_kill_after(pid_t child, double seconds)
{
    const double end = seconds_now() + seconds;
    siginfo_t ended = {0};
    for (double left = seconds; left > 0 && !ended.si_pid; left = end - seconds_now()) {
        sleep_seconds(left < 0.005 ? left : 0.005);
        assert_int_equal(waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
    }
    if (!ended.si_pid)
        kill(child, SIGKILL);
    return program_wait(child);
}

/* The start of a text file; the caller's until the next call. */
static inline const char *text_of(const char *path)
{
    static char text[1 << 16];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    return text;
}

/* The process of rank `rank` that the program started; 0: it does not exist. */
static inline pid_t rank_of(pid_t launcher, int rank)
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

#endif
