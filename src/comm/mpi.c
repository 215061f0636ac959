#include "comm/mpi.h"

#include "base/module.h"
#include "comm/mpi/module.h"
#include "comm/net.h"
#include "comm/tcp.h"
#include "comm/turns.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef struct mpi_comm {
    comm base;    /* first */
    comm *life;   /* by TCP: beats and reasons of failure */
    const mpi_functions *mpi;
    ending *end;
} mpi_comm;

static bool is_over(void *end) { return ending_ask(end, NULL); }

static int mpi_exchange(comm *base, const comm_move *moves, int n, pt_error *e)
{
    mpi_comm *c = (mpi_comm *)base;
    char why[MPI_WHY_BYTES];
    turns_move_own(moves, n, base->rank);
    const int failed = c->mpi->exchange(moves, n, base->rank, base->ranks, is_over, c->end, why);
    pt_error over = {0};
    if (failed && ending_ask(c->end, &over))
        return pt_fail(e, over.code, "%s", over.text);
    return failed ? pt_fail(e, PT_FAILED, "MPI cannot exchange: %s", why) : 0;
}

static void mpi_abort(comm *base, const pt_error *why) { comm_abort(((mpi_comm *)base)->life, why); }

/* After a failure, MPI_Finalize would wait for ranks that are gone. */
static void mpi_close(comm *base)
{
    mpi_comm *c = (mpi_comm *)base;
    const bool whole = !ending_ask(c->end, NULL);
    comm_close(c->life);
    if (whole)
        c->mpi->end();
    free(c);
}

static bool mpi_over(comm *base, pt_error *why) { return ending_ask(((mpi_comm *)base)->end, why); }

static const comm_table mpi_table = {mpi_exchange, mpi_abort, mpi_over, mpi_close};

static int load(const char *kind, const mpi_functions **out, pt_error *e)
{
    char path[PATH_MAX], file[64];
    snprintf(file, sizeof file, "libprotrain_%s.so", kind);
    if (!module_find("PROTRAIN_MPI_MODULE", file, path))
        return pt_fail(e, PT_FAILED, "this build of protrain has no module for this MPI (%s is not beside it): build where its headers "
                       "are, or set MASTER_ADDR to the machine of rank 0 (mpirun -x MASTER_ADDR=NAME) for TCP", file);
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI's plug-ins need its symbols */
    if (!module)
        return pt_fail(e, PT_FAILED, "the MPI module cannot be loaded: %.600s", dlerror());
    mpi_module_open_fn *open = (mpi_module_open_fn *)dlsym(module, MPI_MODULE_OPEN);
    *out = open ? open() : NULL;
    if (*out && !strcmp((*out)->version, PT_VERSION))
        return 0;
    return pt_fail(e, PT_FAILED, "%.600s belongs to another build of protrain: build or install both together", path);
}

typedef struct whereabouts { uint64_t key; char addresses[400]; } whereabouts;

static int begin(const mpi_functions *mpi, const meeting *m, whereabouts *w, pt_error *e)
{
    char why[MPI_WHY_BYTES];
    int rank, ranks;
    int failed = mpi->begin(&rank, &ranks, why);
    if (!failed && (rank != m->rank || ranks != m->ranks))
        return pt_fail(e, PT_FAILED, "mpirun has started rank %d of %d, and the MPI module says %d of %d: it is for another MPI; set "
                       "PROTRAIN_TRANSPORT=tcp, or build for this one", m->rank, m->ranks, rank, ranks);
    if (!failed && !rank && getrandom(&w->key, sizeof w->key, 0) != sizeof w->key)
        return pt_fail_errno(e, PT_FAILED, "no random number");
    if (!failed && !rank)
        net_own_addresses(w->addresses, sizeof w->addresses);
    if (!failed)
        failed = mpi->broadcast(w, sizeof *w, why);
    return failed ? pt_fail(e, PT_FAILED, "MPI cannot begin: %s", why) : 0;
}

int comm_mpi_open(const char *kind, const meeting *m, ending *end, comm **out, pt_error *e)
{
    mpi_comm *c = calloc(1, sizeof *c);
    whereabouts w = {0};
    int failed = c ? load(kind, &c->mpi, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = begin(c->mpi, m, &w, e);
    meeting by_mpi = *m;
    by_mpi.address = m->address && m->address[0] ? m->address : w.addresses;
    by_mpi.key = w.key;
    by_mpi.sockets_only = true;
    if (!failed)
        failed = comm_tcp_open(&by_mpi, end, &c->life, e);
    if (failed) {
        free(c);
        return failed;
    }
    c->end = end;
    c->base = (comm){&mpi_table, m->rank, m->ranks, c->life->machine};
    *out = &c->base;
    return 0;
}
