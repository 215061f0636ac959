/* nccl.c - exchanges between the GPUs of several ranks, with NCCL, which chooses NVLink, PCIe or the network.
 *
 * The library is loaded when ranks on GPUs start. The names and constants below are those of its interface (nccl.h since 2.14), so that
 * building needs no files of NCCL.
 *
 *     exchange    group of sends and receives  ->  one stream  ->  an event, which this thread polls
 *
 * Communicators are non-blocking (ncclConfig_t.blocking): all waiting is done here. While nothing arrives, this checks whether NCCL has an
 * error, and whether the run is over; if so, it aborts the communicator, which ends its kernels. Otherwise they would wait for a lost peer
 * for ever, and freeing memory on the GPU would wait for them.
 *
 * NCCL allocates device memory when two ranks first exchange. open() does that, so that the free memory is queried after it.
 */
#include "comm/comm.h"
#include "device/cuda/cuda.h"
#include "device/link.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct ncclComm *nccl_comm;
typedef struct nccl_id { char bytes[LINK_ID_BYTES]; } nccl_id;
typedef struct nccl_config { size_t size; unsigned magic, version; int blocking; } nccl_config; /* the fields of 2.14 */
typedef enum nccl_result { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 } nccl_result;
enum { NCCL_UINT8 = 1, NCCL_LEAST = 21400 };
#define NCCL_MAGIC 0xcafebeefu

#define NCCL_FUNCTIONS(F)                                                                                     \
    F(GetVersion, (int *version))                                                                             \
    F(GetUniqueId, (nccl_id *id))                                                                             \
    F(CommInitRankConfig, (nccl_comm *out, int ranks, nccl_id id, int rank, nccl_config *config))             \
    F(CommGetAsyncError, (nccl_comm c, nccl_result *out))                                                     \
    F(CommFinalize, (nccl_comm c))                                                                            \
    F(CommDestroy, (nccl_comm c))                                                                             \
    F(CommAbort, (nccl_comm c))                                                                               \
    F(GroupStart, (void))                                                                                     \
    F(GroupEnd, (void))                                                                                       \
    F(Send, (const void *from, size_t n, int type, int peer, nccl_comm c, cudaStream_t s))                    \
    F(Recv, (void *to, size_t n, int type, int peer, nccl_comm c, cudaStream_t s))

#define MEMBER(name, arguments) nccl_result (*name) arguments;
static struct { NCCL_FUNCTIONS(MEMBER) const char *(*GetErrorString)(nccl_result r); const char *(*GetLastError)(nccl_comm c); } nccl;
#undef MEMBER

struct device_link {
    cuda_device *device;
    nccl_comm comm; /* NULL: aborted */
    cudaStream_t stream;
    cudaEvent_t done;
    link_watch watch;
    int ranks;
};

/* ---- the library ---- */

static pthread_once_t looked = PTHREAD_ONCE_INIT;
static pt_error missing; /* code 0: loaded */
static int version;

static void look(void)
{
    const char *given = getenv("PROTRAIN_NCCL"), *name = given && *given ? given : "libnccl.so.2";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        pt_fail(&missing, PT_FAILED, "NCCL cannot be loaded (%.300s)", dlerror());
        return;
    }
#define FIND(name, arguments) && (*(void **)&nccl.name = dlsym(library, "nccl" #name))
    const bool whole = true NCCL_FUNCTIONS(FIND) && (*(void **)&nccl.GetErrorString = dlsym(library, "ncclGetErrorString")) &&
                       (*(void **)&nccl.GetLastError = dlsym(library, "ncclGetLastError"));
#undef FIND
    if (!whole || nccl.GetVersion(&version) || version < NCCL_LEAST)
        pt_fail(&missing, PT_FAILED, "%.200s is older than NCCL 2.14", name);
}

static int nccl_load(char name[LINK_NAME_BYTES], pt_error *e)
{
    pthread_once(&looked, look);
    if (missing.code)
        return pt_fail(e, missing.code, "%s", missing.text);
    snprintf(name, LINK_NAME_BYTES, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return 0;
}

/* ---- waiting ---- */

static int nccl_fail(const device_link *l, nccl_result r, const char *doing, pt_error *e)
{
    const char *more = nccl.GetLastError(l ? l->comm : NULL);
    return pt_fail(e, PT_FAILED, "NCCL reports \"%.100s\" while %s%s%.200s: NCCL_DEBUG=WARN says more, and PROTRAIN_GPU_TRANSPORT=host "
                   "does without it", nccl.GetErrorString(r), doing, more && *more ? ", " : "", more ? more : "");
}

static void pause_for(int idle)
{
    enum { LOOKS = 200, NAP_NS = 20000, LONG_NS = 200000 };
    if (idle >= LOOKS)
        nanosleep(&(struct timespec){.tv_nsec = idle < 50 * LOOKS ? NAP_NS : LONG_NS}, NULL);
}

static int give_up(const device_link *l, const char *doing, pt_error *e)
{
    return l->watch.over(l->watch.arg) ? pt_fail(e, PT_FAILED, "the run ended while %s", doing) : 0;
}

/* Waits until NCCL has finished an operation in progress. */
static int settle(device_link *l, nccl_result r, const char *doing, pt_error *e)
{
    enum { LOOKS = 50 };
    for (int idle = 0; r == NCCL_IN_PROGRESS; idle++) {
        nccl_result failed = nccl.CommGetAsyncError(l->comm, &r);
        if (failed)
            r = failed;
        int over = r == NCCL_IN_PROGRESS && idle % LOOKS == LOOKS - 1 ? give_up(l, doing, e) : 0;
        if (over)
            return over;
        pause_for(idle);
    }
    return r ? nccl_fail(l, r, doing, e) : 0;
}

static int await(device_link *l, const char *doing, pt_error *e)
{
    enum { LOOKS = 50 };
    for (int idle = 0;; idle++) {
        const cudaError_t error = cudaEventQuery(l->done);
        if (error != cudaErrorNotReady)
            return error ? cuda_fail(e, error, doing) : 0;
        cudaGetLastError();
        nccl_result r = NCCL_SUCCESS;
        if (idle % LOOKS == LOOKS - 1) {
            nccl_result failed = nccl.CommGetAsyncError(l->comm, &r);
            failed = failed ? failed : r;
            if (failed && failed != NCCL_IN_PROGRESS)
                return nccl_fail(l, failed, doing, e);
            int over = give_up(l, doing, e);
            if (over)
                return over;
        }
        pause_for(idle);
    }
}

/* ---- exchanges ---- */

static void end_now(device_link *l)
{
    if (l->comm)
        nccl.CommAbort(l->comm);
    l->comm = NULL;
}

static nccl_result put_move(device_link *l, const comm_move *m)
{
    nccl_result r = NCCL_SUCCESS;
    if (m->send_bytes)
        r = nccl.Send(m->send, m->send_bytes, NCCL_UINT8, m->peer, l->comm, l->stream);
    if ((!r || r == NCCL_IN_PROGRESS) && m->receive_bytes)
        r = nccl.Recv(m->receive, m->receive_bytes, NCCL_UINT8, m->peer, l->comm, l->stream);
    return r == NCCL_IN_PROGRESS ? NCCL_SUCCESS : r;
}

static int put_group(device_link *l, const comm_move *moves, int n, pt_error *e)
{
    static const char doing[] = "exchanging with other ranks";
    nccl_result r = nccl.GroupStart();
    for (int i = 0; i < n && !r; i++)
        r = put_move(l, &moves[i]);
    const nccl_result ended = nccl.GroupEnd(); /* always: the group belongs to this thread */
    int failed = r ? nccl_fail(l, r, doing, e) : settle(l, ended, doing, e);
    if (failed)
        return failed;
    cudaError_t error = cudaEventRecord(l->done, l->stream);
    return error ? cuda_fail(e, error, doing) : await(l, doing, e);
}

static int nccl_exchange(device_link *l, const comm_move *moves, int n, pt_error *e)
{
    if (!l->comm)
        return pt_fail(e, PT_FAILED, "an earlier exchange between GPUs failed");
    cudaSetDevice(l->device->ordinal);
    int failed = put_group(l, moves, n, e);
    if (failed)
        end_now(l);
    return failed;
}

/* ---- life ---- */

static int nccl_make_id(unsigned char id[LINK_ID_BYTES], pt_error *e)
{
    const nccl_result r = nccl.GetUniqueId((nccl_id *)id);
    return r ? nccl_fail(NULL, r, "making an id for the ranks", e) : 0;
}

/* Exchanges with every rank, in both directions. */
static int meet_all(device_link *l, pt_error *e)
{
    const size_t part = 4 << 20;
    comm_move moves[COMM_RANKS_MOST];
    char *memory;
    size_t left, all;
    cudaError_t error = cudaMalloc((void **)&memory, (size_t)(2 * l->ranks) * part);
    if (error)
        return cuda_fail(e, error, "meeting other GPUs");
    for (int r = 0; r < l->ranks; r++)
        moves[r] = (comm_move){r, memory + (size_t)r * part, part, memory + (size_t)(l->ranks + r) * part, part, true, true};
    int failed = nccl_exchange(l, moves, l->ranks, e);
    cudaFree(memory);
    if (!failed && !cudaMemGetInfo(&left, &all))
        l->device->base.info.memory_free_bytes = left;
    return failed;
}

static void nccl_close(device_link *l)
{
    static const char doing[] = "leaving other GPUs";
    cudaSetDevice(l->device->ordinal);
    if (l->comm && !settle(l, nccl.CommFinalize(l->comm), doing, NULL))
        nccl.CommDestroy(l->comm);
    else
        end_now(l);
    if (l->done)
        cudaEventDestroy(l->done);
    if (l->stream)
        cudaStreamDestroy(l->stream);
    free(l);
}

static int begin(device_link *l, const unsigned char id[LINK_ID_BYTES], int rank, pt_error *e)
{
    static const char doing[] = "finding the other ranks' GPUs";
    nccl_config config = {sizeof config, NCCL_MAGIC, NCCL_LEAST, 0};
    nccl_id of_all;
    memcpy(&of_all, id, sizeof of_all);
    cudaError_t error = cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking);
    if (!error)
        error = cudaEventCreateWithFlags(&l->done, cudaEventDisableTiming);
    if (error)
        return cuda_fail(e, error, doing);
    const nccl_result r = nccl.CommInitRankConfig(&l->comm, l->ranks, of_all, rank, &config);
    return settle(l, r, doing, e);
}

static int nccl_open(device *d, const unsigned char id[LINK_ID_BYTES], int rank, int ranks, link_watch w, device_link **out, pt_error *e)
{
    device_link *l = calloc(1, sizeof *l);
    if (!l)
        return pt_fail(e, PT_FAILED, "out of memory");
    l->device = (cuda_device *)d;
    l->ranks = ranks;
    l->watch = w;
    cudaSetDevice(l->device->ordinal);
    int failed = begin(l, id, rank, e);
    if (!failed)
        failed = meet_all(l, e);
    if (failed) {
        end_now(l);
        nccl_close(l);
        return failed;
    }
    *out = l;
    return 0;
}

extern const link_table protrain_module_links;
__attribute__((visibility("default"))) const link_table protrain_module_links = {nccl_load, nccl_make_id, nccl_open, nccl_exchange,
                                                                                 nccl_close};
