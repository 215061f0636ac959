#include "ranks.h"

#include "exit.h"
#include "fields.h"
#include "interrupt.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int ranks_run(int ranks, int argc, char **argv, const char *out)
{
    pt_error e = {0};
    int n = 0, status = 1;
    char number[16], **arguments = calloc((size_t)argc + 6, sizeof *arguments);
    if (!arguments)
        return 1;
    arguments[n++] = "protrain";
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--ranks"))
            i++;
        else if (strncmp(argv[i], "--ranks=", 8) != 0)
            arguments[n++] = argv[i];
    }
    snprintf(number, sizeof number, "%d", ranks); /* the options may not have it, or another: 0 */
    arguments[n++] = "--ranks";
    arguments[n++] = number;
    if (out) {
        arguments[n++] = "--out";
        arguments[n++] = (char *)out;
    }
    signals_go_to(pt_ranks_signal);
    if (pt_ranks_run(ranks, arguments, &status, &e))
        status = exit_with(&e);
    free(arguments);
    return status;
}

/* ---- started by another launcher ---- */

enum { END_S = 10 }; /* time that this rank has to end by itself */
static int own_rank = -1, voice = STDERR_FILENO;

static void speak(int rank, const char *text)
{
    char line[2 * sizeof ((pt_error *)0)->text] = "";
    FILE *f = fmemopen(line, sizeof line, "w");
    if (f) {
        print_sentence(f, text);
        fclose(f);
    }
    dprintf(voice, "protrain: rank %d: %s\n", rank, f ? line : text);
}

int ranks_exit_with(int rank, const pt_error *e)
{
    if (rank <= 0)
        return exit_with(e);
    bool told;
    double ago_s;
    pt_ranks_ended(NULL, &ago_s, &told);
    if (!told)
        speak(rank, e->text);
    return exit_status(e);
}

static void be_silent(void)
{
    const int none = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (none >= 0) {
        dup2(none, STDOUT_FILENO);
        dup2(none, STDERR_FILENO);
    }
}

/* A thread, because a rank that computes or waits for a disk does not check the other ranks. */
static void *end_in_time(void *arg)
{
    const struct timespec moment = {.tv_nsec = 200 * 1000000};
    pt_error why = {0};
    double ago_s;
    bool told;
    while (!pt_ranks_ended(&why, &ago_s, &told) || ago_s < END_S)
        nanosleep(&moment, NULL);
    _exit(ranks_exit_with(own_rank, &why));
    return arg;
}

bool ranks_leave(const char *command)
{
    int rank, ranks;
    const char *by = pt_ranks_launcher(&rank, &ranks);
    if (!by || ranks < 2 || rank == 0)
        return false;
    if (rank == 1) /* one note for all */
        fprintf(stderr, "note: protrain %s runs on rank 0 only; the other ranks (of %s) exit\n", command, by);
    return true;
}

void ranks_join_in(int rank)
{
    pthread_t watcher;
    own_rank = rank;
    if (!pthread_create(&watcher, NULL, end_in_time, NULL))
        pthread_detach(watcher);
    if (!rank)
        return;
    voice = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    be_silent();
}
