#include "comm/join.h"

#include "base/clock.h"
#include "comm/launcher.h"
#include "comm/mpi.h"
#include "comm/shm.h"
#include "comm/tcp.h"

#include <stdlib.h>
#include <string.h>

static ending the_end; /* of this process's run */

/* A small number; -1: the variable has none. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    const long n = text && *text ? strtol(text, &end, 10) : -1;
    return n < 0 || n > 1 << 20 || *end ? -1 : (int)n;
}

int join_seconds(int otherwise)
{
    const int seconds = number_of("PROTRAIN_JOIN_SECONDS");
    return seconds > 0 ? seconds : otherwise;
}

int join_find(int *ranks, int *rank, pt_error *e)
{
    launcher l;
    *rank = number_of(JOIN_RANK);
    if (*rank >= 0 || *ranks == 1)
        return 0;
    int failed = launcher_find(&l, e);
    if (failed || l.ranks == 1)
        return failed;
    if (*ranks && *ranks != l.ranks)
        return pt_fail(e, PT_USAGE, "--ranks %d, and %s has started %d: leave --ranks out", *ranks, l.by, l.ranks);
    *ranks = l.ranks;
    *rank = l.rank;
    return 0;
}

/* MPI if it is asked for, or if nothing else says where rank 0 is. */
static int choose_transport(const launcher *l, meeting *m, bool *by_mpi, pt_error *e)
{
    const char *name = getenv("PROTRAIN_TRANSPORT");
    const bool given = name && *name;
    m->sockets_only = given && !strcmp(name, "tcp");
    *by_mpi = given ? !strcmp(name, "mpi") : !l->address[0] && l->pmi < 0;
    if (given && !m->sockets_only && !*by_mpi)
        return pt_fail(e, PT_USAGE, "PROTRAIN_TRANSPORT=%.40s: there are tcp and mpi", name);
    if (*by_mpi && !l->mpi)
        return pt_fail(e, PT_USAGE, given ? "PROTRAIN_TRANSPORT=mpi, and %s has started this process: start it by mpirun"
                                          : "%s does not say where rank 0 is: set MASTER_ADDR to the name of its machine", l->by);
    return 0;
}

static int meet_others(int ranks, comm **out, pt_error *e)
{
    enum { SECONDS = 120 };
    launcher l;
    int failed = launcher_find(&l, e);
    if (failed)
        return failed;
    if (!l.by || l.ranks != ranks)
        return pt_fail(e, PT_USAGE, "--ranks %d, and this process is alone: protrain train --ranks %d starts them, and so do torchrun, "
                       "mpirun and srun", ranks, ranks);
    meeting m = {.rank = l.rank, .ranks = l.ranks, .address = l.address, .port = l.port, .ports = l.ports, .key = l.key,
                 .seconds = join_seconds(SECONDS)};
    bool by_mpi;
    failed = choose_transport(&l, &m, &by_mpi, e);
    if (!failed && by_mpi)
        return comm_mpi_open(l.mpi, &m, &the_end, out, e);
    if (!failed)
        failed = launcher_ask(&l, e);
    m.port = l.port;
    m.key = l.key;
    return failed ? failed : comm_tcp_open(&m, &the_end, out, e);
}

static int take_memory(int ranks, int rank, comm **out, pt_error *e)
{
    shm_segment *s;
    const char *name = getenv("PROTRAIN_TRANSPORT");
    if (name && *name && strcmp(name, "tcp"))
        return pt_fail(e, PT_USAGE, "PROTRAIN_TRANSPORT=%.40s, and protrain train --ranks %d has started the ranks, which share memory: "
                       "unset it, or start them by mpirun without --ranks", name, ranks);
    if (number_of(JOIN_MEMORY) < 0)
        return pt_fail(e, PT_USAGE, "%s is set but %s is not: unset it", JOIN_RANK, JOIN_MEMORY);
    int failed = shm_segment_map(number_of(JOIN_MEMORY), &s, e); /* mapped until the process ends */
    if (!failed && shm_segment_ranks(s) != ranks)
        failed = pt_fail(e, PT_USAGE, "`ranks` is %d, but %d ranks were started", ranks, shm_segment_ranks(s));
    return failed ? failed : comm_shm_open(s, rank, out, e);
}

int join_open(int ranks, comm **out, pt_error *e)
{
    const int rank = number_of(JOIN_RANK);
    *out = NULL;
    if (ranks <= 1)
        return 0;
    return rank < 0 ? meet_others(ranks, out, e) : take_memory(ranks, rank, out, e);
}

bool pt_ranks_ended(pt_error *why, double *ago_s, bool *told)
{
    const bool ended = ending_ask(&the_end, why);
    if (ago_s)
        *ago_s = ended ? clock_s() - the_end.at_s : 0;
    if (told)
        *told = atomic_load(&the_end.heard);
    return ended;
}

const char *pt_ranks_launcher(int *rank, int *ranks)
{
    launcher l;
    if (launcher_find(&l, NULL) || !l.by)
        return NULL;
    if (rank)
        *rank = l.rank;
    if (ranks)
        *ranks = l.ranks;
    return l.by;
}
