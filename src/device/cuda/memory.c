/* memory.c - arenas on the GPU, and pinned host memory.
 *
 * Device memory is one cudaMalloc per block, aligned to 4096. Host memory is mapped in its exact size on huge pages, on the GPU's NUMA
 * node, populated by several threads, and then registered with CUDA, which pins it: only then do copies overlap with compute and have the
 * full speed of the link. (cudaMallocHost rounds up, chooses its own pages, and fails late at the limits of the CUDA runtime.)
 *
 *     mmap  [ gap | 2 MiB page | 2 MiB page | ... | last part ]     MADV_HUGEPAGE, mbind, populate,
 *                 ^ base                                             cudaHostRegister
 *
 * Pinning may be refused, by WSL's limit of a part of RAM, or by RLIMIT_MEMLOCK (which NVIDIA's driver for Linux ignores). Then the memory
 * stays pageable: everything works, but more slowly, and a notice says so once. The profile also allocates its memory here, and measures
 * the slower copies if its own memory was refused.
 */
#include "base/units.h"
#include "device/cuda/cuda.h"
#include "device/populate.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static const size_t DRIVER_MOST = (size_t)511 << 30; /* from R580 on (github.com/vllm-project/vllm issue 51080) */
enum { PAGE_BYTES = 4096, HUGE_BYTES = 2 << 20, BLOCKS = 64, PREFERRED = 1 /* MPOL_PREFERRED of linux/mempolicy.h */ };

/* given: the result of cudaMalloc or mmap; mapped: its size. */
typedef struct block { char *base; void *given; size_t mapped; bool pinned; } block;

struct cuda_memory {
    device_options options;
    pthread_mutex_t lock;
    block blocks[BLOCKS]; /* base NULL: free */
    bool said;            /* the notice was given */
};

struct cuda_memory *cuda_memory_new(const device_options *o, pt_error *e)
{
    struct cuda_memory *m = calloc(1, sizeof *m);
    if (!m) {
        pt_fail(e, PT_FAILED, "no memory for the list of memory blocks");
        return NULL;
    }
    m->options = *o;
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

void cuda_memory_free(struct cuda_memory *m)
{
    if (m)
        pthread_mutex_destroy(&m->lock);
    free(m);
}

static bool remember(struct cuda_memory *m, const block *b)
{
    bool found = false;
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < BLOCKS && !found; i++)
        if ((found = !m->blocks[i].base))
            m->blocks[i] = *b;
    pthread_mutex_unlock(&m->lock);
    return found;
}

static block forget(struct cuda_memory *m, const void *base)
{
    block b = {0};
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < BLOCKS && !b.base; i++)
        if (m->blocks[i].base == base) {
            b = m->blocks[i];
            m->blocks[i].base = NULL;
        }
    pthread_mutex_unlock(&m->lock);
    return b;
}

/* ---- device memory ---- */

/* On failure, updates the free memory in the device's description, for planning again. */
static int device_block(cuda_device *d, size_t bytes, block *b, pt_error *e)
{
    *b = (block){.mapped = bytes + PAGE_BYTES};
    cudaError_t error = cudaMalloc(&b->given, b->mapped);
    if (error == cudaErrorMemoryAllocation) {
        size_t left = 0, all = 0;
        char need[32], have[32], whole[32];
        cudaGetLastError();
        cudaMemGetInfo(&left, &all);
        d->base.info.memory_free_bytes = left;
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "the GPU has no room for %s of device memory: %s of its %s are free: end other programs on it (nvidia-smi), or give "
                       "a smaller `device_memory`",
                       size_format(need, bytes), size_format(have, left), size_format(whole, all));
    }
    if (!error)
        error = cudaMemset(b->given, 0, b->mapped);
    if (!error)
        error = cudaDeviceSynchronize();
    if (error) {
        cudaFree(b->given);
        return cuda_fail(e, error, "taking its arena");
    }
    b->base = (char *)b->given + (PAGE_BYTES - (uintptr_t)b->given % PAGE_BYTES) % PAGE_BYTES;
    return 0;
}

/* ---- host memory ---- */

/* The NUMA node that the GPU is attached to, or -1. */
static int numa_node(int ordinal)
{
    char bus[32], path[96];
    int node = -1;
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, ordinal))
        return -1;
    for (char *c = bus; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
    FILE *f = fopen(path, "r");
    if (f && fscanf(f, "%d", &node) != 1)
        node = -1;
    if (f)
        fclose(f);
    return node;
}

/* Best effort: without room on the node, pages come from others. */
static void prefer_node(int ordinal, void *base, size_t bytes)
{
    int node = numa_node(ordinal);
    unsigned long mask = 1ul << (node >= 0 && node < 63 ? node : 0);
    if (node >= 0 && node < 63)
        syscall(SYS_mbind, base, bytes, PREFERRED, &mask, 8 * sizeof mask, 0);
}

static void say_not_pinned(struct cuda_memory *m, size_t bytes, cudaError_t why)
{
    char sentence[400], size[32];
    if (m->said || !m->options.notice)
        return;
    m->said = true;
    snprintf(sentence, sizeof sentence, "%s of RAM cannot be pinned (%s): copies to and from the GPU will be slower; %s",
             size_format(size, bytes), cudaGetErrorString(why),
             bytes >= DRIVER_MOST ? "NVIDIA's driver pins less than 512 GiB at once: give a smaller `host_memory`"
                                  : "raise the limit (ulimit -l unlimited; on WSL, memory= in .wslconfig)");
    m->options.notice(m->options.arg, sentence);
}

static int host_block(struct cuda_memory *m, int ordinal, size_t bytes, block *b, pt_error *e)
{
    size_t whole = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    whole = whole ? whole : PAGE_BYTES;
    char size[32];
    *b = (block){.mapped = whole + HUGE_BYTES};
    b->given = mmap(NULL, b->mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->given == MAP_FAILED)
        return pt_fail_errno(e, PT_DOES_NOT_FIT, "the system refuses %s of host memory: give a smaller `host_memory`",
                             size_format(size, bytes));
    b->base = (char *)b->given + (HUGE_BYTES - (uintptr_t)b->given % HUGE_BYTES) % HUGE_BYTES;
    madvise(b->base, whole, MADV_HUGEPAGE); /* only affects speed */
    prefer_node(ordinal, b->base, whole);
    if (populate(b->base, whole, m->options.threads ? m->options.threads : (int)sysconf(_SC_NPROCESSORS_ONLN))) {
        pt_fail_errno(e, PT_DOES_NOT_FIT,
                      "the system no longer has the %s of host memory that it granted: give a smaller `host_memory`, end other programs, "
                      "or raise the container's limit",
                      size_format(size, bytes));
        munmap(b->given, b->mapped);
        return PT_DOES_NOT_FIT;
    }
    cudaError_t error = cudaHostRegister(b->base, whole, cudaHostRegisterPortable | cudaHostRegisterMapped);
    b->pinned = !error;
    if (error) {
        cudaGetLastError();
        say_not_pinned(m, bytes, error);
    }
    return 0;
}

/* ---- the seam ---- */

static void release(const block *b, memory_kind kind)
{
    if (kind == MEMORY_DEVICE)
        cudaFree(b->given);
    else {
        if (b->pinned)
            cudaHostUnregister(b->base);
        munmap(b->given, b->mapped);
    }
}

int cuda_memory_open(device *base, memory_kind kind, size_t bytes, void **out, pt_error *e)
{
    cuda_device *d = (cuda_device *)base;
    block b;
    char size[32];
    *out = NULL;
    if (bytes > SIZE_MAX / 2)
        return pt_fail(e, PT_DOES_NOT_FIT, "%s of %s memory are more than an address can reach", size_format(size, bytes),
                       kind == MEMORY_DEVICE ? "device" : "host");
    cudaSetDevice(d->ordinal);
    int failed = kind == MEMORY_DEVICE ? device_block(d, bytes, &b, e) : host_block(d->memory, d->ordinal, bytes, &b, e);
    if (failed)
        return failed;
    if (!remember(d->memory, &b)) {
        release(&b, kind);
        return pt_fail(e, PT_FAILED, "more than %d memory blocks are open; this is a bug in protrain", BLOCKS);
    }
    *out = b.base;
    return 0;
}

void cuda_memory_close(device *base, memory_kind kind, void *memory, size_t bytes)
{
    cuda_device *d = (cuda_device *)base;
    if (!memory)
        return;
    cudaSetDevice(d->ordinal);
    block b = forget(d->memory, memory);
    if (b.base)
        release(&b, kind);
}
