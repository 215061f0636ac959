/* test_device.h - the devices that tests of more than ops run on: the one that PROTRAIN_TEST_DEVICE names (cpu unless it is
 * set), a shielded one, a CPU that behaves as if it had memory of its own, as a GPU does, and the shim, which runs the
 * CUDA kernels on the CPU (cuda/shim.h), in programs that are linked with it.
 *
 * An address of shielded device memory lies where nobody may read or write; the ops of its queues are given the real one:
 *
 *     shielded   [ no access .......... ]      what code above the seam sees; touching it ends the program
 *     real       [ pages .............. ]      = shielded + distance
 *
 * Whoever forgets to move data by a queue is found at once.
 */
#ifndef PT_TEST_DEVICE_H
#define PT_TEST_DEVICE_H

#include "cuda/shim_device.h"
#include "device/cpu/queue.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { SHIELDED_BLOCKS = 8 };

typedef struct shielded_block { char *shield, *real; size_t bytes; } shielded_block;
typedef struct shielded { device base; device *cpu; shielded_block blocks[SHIELDED_BLOCKS]; } shielded;

static inline int shielded_memory_open(device *d, memory_kind kind, size_t bytes, void **base, pt_error *e)
{
    shielded *s = (shielded *)d;
    int failed = s->cpu->table->memory_open(s->cpu, kind, bytes, base, e);
    if (failed || kind == MEMORY_HOST)
        return failed;
    for (int i = 0; i < SHIELDED_BLOCKS; i++)
        if (!s->blocks[i].shield) {
            char *shield = mmap(NULL, bytes + 1, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (shield == MAP_FAILED)
                break;
            s->blocks[i] = (shielded_block){shield, *base, bytes};
            *base = shield;
            return 0;
        }
    return pt_fail(e, PT_FAILED, "no room for another shielded block");
}

static inline shielded_block *shielded_find(device *d, const void *base)
{
    shielded *s = (shielded *)d;
    for (int i = 0; i < SHIELDED_BLOCKS; i++)
        if (base && s->blocks[i].shield == base)
            return &s->blocks[i];
    return NULL;
}

static inline void shielded_memory_close(device *d, memory_kind kind, void *base, size_t bytes)
{
    shielded *s = (shielded *)d;
    shielded_block *b = kind == MEMORY_DEVICE ? shielded_find(d, base) : NULL;
    s->cpu->table->memory_close(s->cpu, kind, b ? b->real : base, bytes);
    if (b) {
        munmap(b->shield, b->bytes + 1);
        *b = (shielded_block){0};
    }
}

static inline int shielded_queue_open(device *d, const char *name, int threads, queue **out, pt_error *e)
{
    return cpu_queue_open(d, name, threads ? threads : d->info.threads, out, e);
}

/* Every word of an op that is an address behind a shield becomes the real one. */
static inline void shielded_submit(queue *q, const op *o)
{
    const shielded *s = (const shielded *)q->device;
    op real = *o;
    uintptr_t word;
    for (size_t at = 0; at + sizeof word <= sizeof real; at += sizeof word) {
        memcpy(&word, (char *)&real + at, sizeof word);
        for (int i = 0; i < SHIELDED_BLOCKS; i++) {
            const shielded_block *b = &s->blocks[i];
            if (b->shield && word >= (uintptr_t)b->shield && word <= (uintptr_t)b->shield + b->bytes) {
                word += (uintptr_t)b->real - (uintptr_t)b->shield;
                memcpy((char *)&real + at, &word, sizeof word);
                break;
            }
        }
    }
    cpu_queue_submit(q, &real);
}

/* Another function than the CPU's: its queues wait for these as for those of another device. */
static inline int shielded_sync(queue *q, uint64_t value, pt_error *e) { return cpu_queue_sync(q, value, e); }

static inline void shielded_close(device *d) { free(d); }

static const device_table SHIELDED_TABLE = {
    .close = shielded_close, .memory_open = shielded_memory_open, .memory_close = shielded_memory_close,
    .queue_open = shielded_queue_open, .queue_close = cpu_queue_close, .submit = shielded_submit,
    .signal = cpu_queue_signal, .wait = cpu_queue_wait, .mark = cpu_queue_mark, .sync = shielded_sync};

/* Over `cpu`, which outlives it. */
static inline int shielded_open(device *cpu, device **out, pt_error *e)
{
    shielded *s = calloc(1, sizeof *s);
    if (!s)
        return pt_fail(e, PT_FAILED, "out of memory");
    s->base.table = &SHIELDED_TABLE;
    s->base.info = cpu->info;
    s->base.info.host_addressable = false;
    s->cpu = cpu;
    *out = &s->base;
    return 0;
}

static bool test_device_noticed;

static inline void test_device_notice(void *arg, const char *sentence)
{
    (void)arg;
    test_device_noticed = true;
    fprintf(stderr, "the device says: %s\n", sentence);
}

/* "shielded" and "shim" are names too. */
static inline int test_device_named(const char *name, int threads, device **out, device **host, pt_error *e)
{
    const device_options o = {.threads = threads, .notice = test_device_notice};
#ifdef PT_TEST_SHIM
    if (!strcmp(name, "shim"))
        return device_shim_open(&o, out, host, e);
#endif
    if (strcmp(name, "shielded") != 0)
        return device_open(name, &o, out, host, e);
    int failed = device_cpu_open(&o, host, e);
    return failed ? failed : shielded_open(*host, out, e);
}

static inline const char *test_device_name(void)
{
    const char *name = getenv("PROTRAIN_TEST_DEVICE");
    return name ? name : "cpu";
}

/* Its kernels run on the CPU, thread by thread: the shim, or the CUDA backend on the stand-in for a GPU (cuda/runtime.c). */
static inline bool test_device_is_standin(void)
{
    const char *module = getenv("PROTRAIN_CUDA_MODULE");
    return strncmp(test_device_name(), "cuda", 4) == 0 && module && strstr(module, "/libcuda_standin.");
}
static inline bool test_device_is_emulated(void) { return strcmp(test_device_name(), "shim") == 0 || test_device_is_standin(); }

#endif
