/* processes.c - the ranks of a run on this machine as processes: pt_ranks_run starts them and watches them. A rank tells the segment
 * (shm.h) that its process runs; this process tells the ranks if one of them has ended or stands still, and then all end. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/join.h"
#include "comm/launcher.h"
#include "comm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOK_MS = 20, /* polling interval */
    END_S = 10,   /* time that the other ranks have to end */
    STILL_S = 10, /* without a heartbeat for so long, a rank hangs */
    JOIN_S = 30   /* the same before its first one, from its start */
};

typedef struct child { pid_t pid; bool ended; int status; uint64_t beat; double beat_s; } child;

typedef struct launch {
    int ranks, join_s;
    shm_segment *segment;
    child of[COMM_RANKS_MOST];
    double end_s; /* when the remaining ranks are killed; 0: never */
} launch;

static atomic_int to_forward;

/* ---- starting ---- */

/* Only rank 0 prints. The others send their errors to all ranks. */
static void be_silent(void)
{
    const int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (none >= 0) {
        dup2(none, STDOUT_FILENO);
        dup2(none, STDERR_FILENO);
    }
}

static void become_rank(int rank, int fd, char *const *arguments, pid_t parent)
{
    char text[2][16];
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* ranks end with the process that watches them */
    if (getppid() != parent)
        _exit(1);
    snprintf(text[0], sizeof text[0], "%d", rank);
    snprintf(text[1], sizeof text[1], "%d", fd);
    setenv(JOIN_RANK, text[0], 1);
    setenv(JOIN_MEMORY, text[1], 1);
    if (rank)
        be_silent();
    execv("/proc/self/exe", arguments);
    _exit(127);
}

static int start(launch *l, int fd, char *const *arguments, pt_error *e)
{
    const pid_t parent = getpid();
    for (int r = 0; r < l->ranks; r++) {
        const pid_t pid = fork();
        if (pid < 0)
            return pt_fail_errno(e, PT_FAILED, "rank %d cannot be started", r);
        if (!pid)
            become_rank(r, fd, arguments, parent);
        l->of[r].pid = pid;
        l->of[r].beat_s = clock_s();
    }
    return 0;
}

/* ---- watching ---- */

static void signal_all(const launch *l, int number)
{
    for (int r = 0; r < l->ranks; r++)
        if (l->of[r].pid > 0 && !l->of[r].ended)
            kill(l->of[r].pid, number);
}

static void tell_failure(launch *l, int rank, const char *why)
{
    shm_segment_abort(l->segment, rank, PT_FAILED, why);
    if (l->end_s <= 0)
        l->end_s = clock_s() + END_S;
}

/* A rank that ended by a signal which all ranks get has not failed, but the others cannot continue without it. */
static void note_end(launch *l, int rank, int status)
{
    char why[120] = "was told to end";
    l->of[rank].ended = true;
    l->of[rank].status = status;
    if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) && WEXITSTATUS(status) < 128)
        snprintf(why, sizeof why, "ended with exit status %d", WEXITSTATUS(status));
    if (WIFSIGNALED(status) || WEXITSTATUS(status))
        tell_failure(l, rank, why);
}

static int note_ends(launch *l)
{
    int left = 0;
    for (int r = 0; r < l->ranks; r++) {
        int status;
        if (!l->of[r].ended && waitpid(l->of[r].pid, &status, WNOHANG) == l->of[r].pid)
            note_end(l, r, status);
        left += !l->of[r].ended;
    }
    return left;
}

/* It could not end by itself. */
static void end_still(launch *l, int rank, const char *verb, int seconds)
{
    char why[80];
    snprintf(why, sizeof why, "%s %d s", verb, seconds);
    tell_failure(l, rank, why);
    kill(l->of[rank].pid, SIGKILL);
}

/* Ends ranks without a heartbeat. */
static void note_beats(launch *l, double now)
{
    for (int r = 0; r < l->ranks; r++) {
        child *c = &l->of[r];
        const uint64_t beat = shm_segment_beat(l->segment, r);
        if (beat != c->beat) {
            c->beat = beat;
            c->beat_s = now;
        }
        if (!c->ended && now - c->beat_s > (beat ? STILL_S : l->join_s))
            end_still(l, r, beat ? "has stood still for" : "was started and did not join the others within", beat ? STILL_S : l->join_s);
    }
}

static void watch(launch *l)
{
    const struct timespec moment = {.tv_nsec = LOOK_MS * 1000000};
    double last = clock_s();
    while (note_ends(l)) {
        const int number = atomic_exchange(&to_forward, 0);
        const double now = clock_s();
        if (now - last > STILL_S / 4.0) /* this process itself was stopped */
            for (int r = 0; r < l->ranks; r++)
                l->of[r].beat_s = now;
        last = now;
        if (number)
            signal_all(l, number);
        note_beats(l, now);
        if (l->end_s > 0 && now > l->end_s)
            signal_all(l, SIGKILL);
        nanosleep(&moment, NULL);
    }
}

/* Rank 0 prints the reason of a failure, unless it was killed or had ended before. */
static int result_of(const launch *l, int *status, pt_error *e)
{
    pt_error why = {0};
    const int end = l->of[0].status, own = WIFEXITED(end) ? WEXITSTATUS(end) : -1;
    *status = own < 0 ? 1 : own;
    if (shm_segment_aborted(l->segment, &why) && own <= 0)
        return pt_fail(e, why.code, "%s", why.text);
    return 0;
}

void pt_ranks_signal(int number) { atomic_store(&to_forward, number); }

int pt_ranks_run(int ranks, char *const arguments[], int *status, pt_error *e)
{
    launch l = {.ranks = ranks, .join_s = join_seconds(JOIN_S)};
    int fd;
    if (!arguments || !status)
        return pt_fail_null(e, "pt_ranks_run", arguments ? "status" : "arguments");
    *status = 1;
    if (ranks < 1 || ranks > COMM_RANKS_MOST)
        return pt_fail(e, PT_USAGE, "`ranks` is %d: one machine runs 1 to %d ranks", ranks, COMM_RANKS_MOST);
    int failed = shm_segment_make(ranks, 0, &l.segment, &fd, e);
    if (failed)
        return failed;
    failed = start(&l, fd, arguments, e);
    if (failed) {
        signal_all(&l, SIGKILL);
        for (int r = 0; r < ranks; r++)
            l.of[r].ended = l.of[r].pid <= 0;
    }
    watch(&l);
    if (!failed)
        failed = result_of(&l, status, e);
    shm_segment_unmap(l.segment);
    close(fd);
    return failed;
}
