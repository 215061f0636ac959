/* module.c - moves by MPI. An exchange is one message per pair of ranks and direction. The pieces of a message are a datatype, which each
 * side makes for itself, so that the two sides may cut the bytes differently. */
#include "comm/mpi/module.h"

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PIECE_MOST = 1 << 30, TAG = 51 };

static int check(int code, char why[MPI_WHY_BYTES])
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n;
    if (code == MPI_SUCCESS)
        return 0;
    MPI_Error_string(code, text, &n);
    snprintf(why, MPI_WHY_BYTES, "%.*s", MPI_WHY_BYTES - 1, text);
    return -1;
}

static int begin(int *rank, int *ranks, char why[MPI_WHY_BYTES])
{
    int level;
    int failed = check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level), why);
    if (failed)
        return failed;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (level < MPI_THREAD_SERIALIZED) {
        snprintf(why, MPI_WHY_BYTES, "it was built without threads");
        return -1;
    }
    failed = check(MPI_Comm_rank(MPI_COMM_WORLD, rank), why);
    return failed ? failed : check(MPI_Comm_size(MPI_COMM_WORLD, ranks), why);
}

static int broadcast(void *data, int bytes, char why[MPI_WHY_BYTES])
{
    return check(MPI_Bcast(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD), why);
}

typedef struct pieces { MPI_Aint *at; int *bytes, n; } pieces;

/* Allocates room for the pieces of all moves. */
static int pieces_make(pieces *p, const comm_move *moves, int n, char why[MPI_WHY_BYTES])
{
    size_t most = 0;
    for (int i = 0; i < n; i++)
        most += 2 + (moves[i].send_bytes > moves[i].receive_bytes ? moves[i].send_bytes : moves[i].receive_bytes) / PIECE_MOST;
    *p = (pieces){malloc((most + 1) * sizeof *p->at), malloc((most + 1) * sizeof *p->bytes), 0};
    if (p->at && p->bytes)
        return 0;
    snprintf(why, MPI_WHY_BYTES, "out of memory");
    return -1;
}

static void pieces_take(pieces *p, const comm_move *moves, int n, int peer, bool sends)
{
    p->n = 0;
    for (int i = 0; i < n; i++) {
        const char *at = sends ? moves[i].send : moves[i].receive;
        for (size_t left = moves[i].peer == peer ? sends ? moves[i].send_bytes : moves[i].receive_bytes : 0; left;) {
            const size_t bytes = left < PIECE_MOST ? left : PIECE_MOST;
            MPI_Get_address(at, &p->at[p->n]);
            p->bytes[p->n++] = (int)bytes;
            at += bytes;
            left -= bytes;
        }
    }
}

static int start(const pieces *p, int peer, bool sends, MPI_Request *out, char why[MPI_WHY_BYTES])
{
    MPI_Datatype type;
    int failed = check(MPI_Type_create_hindexed(p->n, p->bytes, p->at, MPI_BYTE, &type), why);
    if (failed)
        return failed;
    failed = check(MPI_Type_commit(&type), why);
    if (!failed)
        failed = check(sends ? MPI_Isend(MPI_BOTTOM, 1, type, peer, TAG, MPI_COMM_WORLD, out)
                             : MPI_Irecv(MPI_BOTTOM, 1, type, peer, TAG, MPI_COMM_WORLD, out), why);
    MPI_Type_free(&type); /* the request keeps a reference */
    return failed;
}

/* Spins briefly, then sleeps between looks, because ranks may share a processor. */
static int finish(MPI_Request *all, int n, bool (*stop)(void *arg), void *arg, char why[MPI_WHY_BYTES])
{
    enum { LOOKS = 200 };
    const struct timespec moment = {.tv_nsec = 50000};
    MPI_Status of_each[2 * COMM_RANKS_MOST];
    int done = 0;
    for (int idle = 0;; idle++) {
        int failed = check(MPI_Testall(n, all, &done, of_each), why);
        if (failed || done)
            return failed;
        if (idle >= LOOKS && stop(arg))
            return 1;
        if (idle >= LOOKS)
            nanosleep(&moment, NULL);
    }
}

static int exchange(const comm_move *moves, int n, int rank, int ranks, bool (*stop)(void *arg), void *arg, char why[MPI_WHY_BYTES])
{
    MPI_Request all[2 * COMM_RANKS_MOST];
    pieces p;
    int started = 0, failed = pieces_make(&p, moves, n, why);
    for (int i = 1; i < ranks && !failed; i++)
        for (int sends = 0; sends < 2 && !failed; sends++) {
            const int peer = sends ? (rank + i) % ranks : (rank + ranks - i) % ranks;
            pieces_take(&p, moves, n, peer, sends);
            if (p.n)
                failed = start(&p, peer, sends, &all[started++], why);
        }
    free(p.at);
    free(p.bytes);
    return failed ? failed : finish(all, started, stop, arg, why);
}

static void end(void) { MPI_Finalize(); }

__attribute__((visibility("default"))) const mpi_functions *protrain_mpi_functions(void);
const mpi_functions *protrain_mpi_functions(void)
{
    static const mpi_functions all = {PT_VERSION, begin, broadcast, exchange, end};
    return &all;
}
