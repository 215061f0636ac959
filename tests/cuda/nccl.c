/* nccl.c - a stand-in for NCCL beside that for CUDA's runtime (runtime.c), in the names and meanings that NCCL documents, between processes
 * or threads, by memory that they share.
 *
 *     id       makes that memory (comm/shm.h); the others find its file by the process that has it open
 *     init     in progress until all have come
 *     group    one call in a stream, which puts and takes until all has moved (comm/turns.h)
 *
 * Like the real one it waits for a peer that is gone until it is aborted, and takes memory of the stream's GPU alone. What the real one
 * leaves undefined (sizes of a send and its receive that differ, calls outside of a group) stops the program with a message.
 *
 *     PT_NCCL_FAULT=init:R       rank R cannot begin
 *     PT_NCCL_FAULT=group:R:N    rank R meets an error in its group N, which moves nothing */
#include "standin.h"

#include "comm/shm.h"
#include "comm/turns.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MOST = 8, MOVES_MOST = 4096 };
typedef enum { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, IN_PROGRESS = 7 } ncclResult_t;
typedef struct id { pid_t pid; int fd; char unused[120]; } id;
typedef struct config { size_t size; unsigned magic, version; int blocking; } config;

typedef struct ncclComm {
    comm base; /* first */
    shm_segment *s;
    bool came[RANKS_MOST], begun, late;
    atomic_bool aborted;
    atomic_int running; /* groups that are in streams */
    int groups;
    ncclResult_t error;
} *ncclComm_t;

/* One send or receive is its size, then its bytes. */
typedef struct group {
    ncclComm_t c;
    cudaStream_t stream;
    comm_move moves[2 * MOVES_MOST];
    size_t sizes[MOVES_MOST], wanted[MOVES_MOST]; /* wanted 0: a send */
    int n;
} group;

static _Thread_local group *open_group;

#define EXPORT __attribute__((visibility("default")))

static void stop(const char *what)
{
    fprintf(stderr, "NCCL stand-in: %s\n", what);
    abort();
}

static void *of_runtime(const char *name)
{
    void *module = dlopen(getenv("PROTRAIN_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD), *found = module ? dlsym(module, name) : NULL;
    if (!found)
        stop("the stand-in for CUDA is not there");
    return found;
}

/* Whether the fault is for this rank, and which group of it. */
static bool has_fault(const char *kind, int rank, int number)
{
    const char *fault = getenv("PT_NCCL_FAULT");
    char wanted[40];
    snprintf(wanted, sizeof wanted, number < 0 ? "%s:%d" : "%s:%d:%d", kind, rank, number);
    return fault && !strcmp(fault, wanted);
}

/* ---- begin ---- */

EXPORT ncclResult_t ncclGetVersion(int *version);
ncclResult_t ncclGetVersion(int *version) { *version = 23000; return SUCCESS; }

EXPORT const char *ncclGetErrorString(ncclResult_t r);
const char *ncclGetErrorString(ncclResult_t r) { return r == SYSTEM_ERROR ? "unhandled system error" : "internal error"; }

EXPORT const char *ncclGetLastError(ncclComm_t c);
const char *ncclGetLastError(ncclComm_t c) { return "a test wants it"; }

EXPORT ncclResult_t ncclGetUniqueId(id *out);
ncclResult_t ncclGetUniqueId(id *out)
{
    shm_segment *s;
    *out = (id){.pid = getpid()};
    return shm_segment_make(RANKS_MOST, 0, &s, &out->fd, NULL) ? SYSTEM_ERROR : SUCCESS;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, id of_all, int rank, const config *g);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, id of_all, int rank, const config *g)
{
    char path[64];
    if (g->magic != 0xcafebeef || g->blocking || ranks > RANKS_MOST)
        stop("not the configuration that is meant");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)of_all.pid, of_all.fd);
    ncclComm_t c = calloc(1, sizeof *c);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    *out = c;
    if (!c || fd < 0 || shm_segment_map(fd, &c->s, NULL))
        return SYSTEM_ERROR;
    close(fd);
    c->base = (comm){.rank = rank, .ranks = ranks};
    if (has_fault("init", rank, -1))
        c->error = SYSTEM_ERROR;
    for (int r = 0; r < ranks && !c->error; r++)
        if (r != rank)
            shm_put(c->s, rank, r, "", 1);
    return IN_PROGRESS;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out);
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out)
{
    bool all = true;
    char one;
    for (int r = 0; r < c->base.ranks && !c->begun; r++) {
        c->came[r] = c->came[r] || r == c->base.rank || shm_take(c->s, r, c->base.rank, &one, 1);
        all = all && c->came[r];
    }
    c->begun = c->begun || all;
    *out = c->error ? c->error : c->begun ? SUCCESS : IN_PROGRESS;
    return SUCCESS;
}

/* ---- groups ---- */

static int put(comm *c, int peer, const void *from, size_t bytes, size_t *moved, pt_error *e)
{
    *moved = shm_put(((ncclComm_t)c)->s, c->rank, peer, from, bytes);
    return 0;
}

static int take(comm *c, int peer, void *to, size_t bytes, size_t *moved, pt_error *e)
{
    *moved = shm_take(((ncclComm_t)c)->s, peer, c->rank, to, bytes);
    return 0;
}

static int look(comm *c, const unsigned char *wants, int idle, pt_error *e)
{
    turns_pause(idle);
    return ((ncclComm_t)c)->aborted ? PT_FAILED : 0;
}

static void run_group(void *arg)
{
    static const turn_channels rings = {put, take, look};
    group *g = arg;
    const int failed = g->c->aborted ? PT_FAILED : turns_exchange(&rings, &g->c->base, g->moves, 2 * g->n, NULL);
    for (int i = 0; i < g->n && !failed; i++)
        if (g->wanted[i] && g->sizes[i] != g->wanted[i])
            stop("a send and its receive have other sizes");
    g->c->running--;
    free(g);
}

EXPORT ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupStart(void)
{
    if (open_group || !(open_group = calloc(1, sizeof *open_group)))
        stop("a group in a group");
    return SUCCESS;
}

static void add(comm_move data, size_t bytes, bool sends, ncclComm_t c, cudaStream_t s)
{
    group *g = open_group;
    int (*check)(cudaStream_t s, const void *p, size_t bytes);
    *(void **)&check = of_runtime("standin_is_of_gpu");
    if (!g || !c->begun || g->n == MOVES_MOST)
        stop("a send or receive outside of a group, before the begin, or one too many");
    if (!check(s, sends ? data.send : data.receive, bytes))
        stop("memory that is not this GPU's");
    g->c = c;
    g->stream = s;
    g->sizes[g->n] = sends ? bytes : 0;
    g->wanted[g->n] = sends ? 0 : bytes;
    g->moves[2 * g->n] = sends ? comm_send(data.peer, &g->sizes[g->n], sizeof *g->sizes)
                               : comm_receive(data.peer, &g->sizes[g->n], sizeof *g->sizes);
    g->moves[2 * g->n++ + 1] = data;
}

EXPORT ncclResult_t ncclSend(const void *from, size_t n, int type, int peer, ncclComm_t c, cudaStream_t s);
ncclResult_t ncclSend(const void *from, size_t n, int type, int peer, ncclComm_t c, cudaStream_t s)
{
    add(comm_send(peer, from, n), n, true, c, s);
    return SUCCESS;
}

EXPORT ncclResult_t ncclRecv(void *to, size_t n, int type, int peer, ncclComm_t c, cudaStream_t s);
ncclResult_t ncclRecv(void *to, size_t n, int type, int peer, ncclComm_t c, cudaStream_t s)
{
    add(comm_receive(peer, to, n), n, false, c, s);
    return SUCCESS;
}

EXPORT ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupEnd(void)
{
    void (*put_call)(cudaStream_t s, void (*run)(void *arg), void *arg);
    *(void **)&put_call = of_runtime("standin_run");
    group *g = open_group;
    open_group = NULL;
    if (!g->n) {
        free(g);
        return SUCCESS;
    }
    ncclComm_t c = g->c;
    if (has_fault("group", c->base.rank, ++c->groups)) {
        c->error = INTERNAL_ERROR;
        free(g);
        return IN_PROGRESS;
    }
    c->running++;
    put_call(g->stream, run_group, g);
    return c->groups % 2 ? IN_PROGRESS : SUCCESS;
}

/* ---- end ---- */

static void leave(ncclComm_t c)
{
    while (c->running)
        usleep(100);
    shm_segment_unmap(c->s);
    free(c);
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t c);
ncclResult_t ncclCommFinalize(ncclComm_t c) { return SUCCESS; }

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t c);
ncclResult_t ncclCommDestroy(ncclComm_t c)
{
    leave(c);
    return SUCCESS;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t c);
ncclResult_t ncclCommAbort(ncclComm_t c)
{
    c->aborted = true;
    leave(c);
    return SUCCESS;
}
