/* device.c - the CPU as a device: its description, its memory, its table of functions.
 *
 * Device and host memory are both anonymous pages here; the device's arena is just the one with the device's budget. Pages are huge if
 * the system grants it (MADV_HUGEPAGE). All are populated at once (populate.c), so that no step waits for the kernel to clear a page.
 */
#include "base/cores.h"
#include "base/pages.h"
#include "base/processor.h"
#include "base/units.h"
#include "device/cpu/isa.h"
#include "device/cpu/pool.h"
#include "device/cpu/queue.h"
#include "device/populate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static void cpu_close(device *d)
{
    free(d);
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static size_t whole_pages(size_t bytes)
{
    const size_t page = page_bytes();
    return (bytes + page - 1) / page * page;
}

/* Maps a huge page more than needed and unmaps both ends, so that the block starts on a huge page. */
static int cpu_memory_open(device *d, memory_kind kind, size_t bytes, void **base, pt_error *e)
{
    *base = NULL;
    char size[32];
    const char *name = kind == MEMORY_DEVICE ? "device" : "host";
    const size_t want = whole_pages(bytes ? bytes : 1), huge = huge_page_bytes(page_bytes());
    if (bytes > SIZE_MAX - page_bytes() - huge)
        return pt_fail(e, PT_DOES_NOT_FIT, "%s of memory are more than an address can reach", size_format(size, bytes));
    char *map = mmap(NULL, want + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return pt_fail_errno(e, PT_DOES_NOT_FIT, "the system refuses %s of %s memory: give a smaller budget",
                             size_format(size, bytes), name);
    size_t before = (huge - (uintptr_t)map % huge) % huge;
    if (before)
        munmap(map, before);
    map += before;
    munmap(map + want, huge - before);
    if (huge > page_bytes())
        madvise(map, want, MADV_HUGEPAGE); /* only affects speed */
    if (populate(map, want, d->info.threads)) {
        pt_fail_errno(e, PT_DOES_NOT_FIT, "the system no longer has the %s of %s memory that it granted: give a smaller budget, end "
                                          "other programs, or raise the container's limit", size_format(size, bytes), name);
        munmap(map, want);
        return PT_DOES_NOT_FIT;
    }
    *base = map;
    return 0;
}

static void cpu_memory_close(device *d, memory_kind kind, void *base, size_t bytes)
{
    if (base)
        munmap(base, whole_pages(bytes ? bytes : 1));
}

static int queue_open(device *d, const char *name, int threads, queue **out, pt_error *e)
{
    return cpu_queue_open(d, name, threads ? threads : d->info.threads, out, e);
}

static const device_table CPU_TABLE = {
    .close = cpu_close,
    .memory_open = cpu_memory_open,
    .memory_close = cpu_memory_close,
    .queue_open = queue_open,
    .queue_close = cpu_queue_close,
    .submit = cpu_queue_submit,
    .signal = cpu_queue_signal,
    .wait = cpu_queue_wait,
    .mark = cpu_queue_mark,
    .mark_work = cpu_queue_mark_work,
    .mark_waited = cpu_queue_mark_waited,
    .sync = cpu_queue_sync,
};

#if defined(__x86_64__)

/* The processor's brand string, trimmed. */
static void cpu_name(char *out, size_t size)
{
    unsigned words[12] = {0};
    char text[sizeof words + 1] = {0};
    if (__get_cpuid_max(0x80000000, NULL) >= 0x80000004)
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    memcpy(text, words, sizeof words);
    size_t start = strspn(text, " "), end = strlen(text);
    while (end > start && text[end - 1] == ' ')
        end--;
    if (end > start)
        snprintf(out, size, "%.*s", (int)(end - start), text + start);
    else
        snprintf(out, size, "x86-64 CPU");
}

#else

static void cpu_name(char *out, size_t size) { processor_name("", out, size); }

#endif

/* The memory that each process may use beside its arenas (run/budgets.h) includes this many threads and a large tokenizer. */
enum { FEW_THREADS = 8 };

static uint64_t beyond_few_threads(int threads)
{
    return threads > FEW_THREADS ? (uint64_t)(threads - FEW_THREADS) * POOL_THREAD_BYTES : 0;
}

int device_cpu_open(const device_options *o, device **out, pt_error *e)
{
    *out = NULL;
    if (o->threads < 0)
        return pt_fail(e, PT_USAGE, "%d threads were asked for: use 0 (all cores) or more", o->threads);
    int failed = cpu_isa_check(e);
    if (failed)
        return failed;
    device *d = calloc(1, sizeof *d);
    if (!d)
        return pt_fail(e, PT_FAILED, "no memory for the description of the CPU");
    d->table = &CPU_TABLE;
    device_info *info = &d->info;
    cpu_name(info->name, sizeof info->name);
    const char *products_by = cpu_has_amx() ? " amx, fp32 in parts" : cpu_gains_by_bf16() ? " bf16" : "";
    snprintf(info->arithmetic, sizeof info->arithmetic, "cpu %s%s, matmul own", cpu_isa_name(), products_by);
    info->threads = o->threads ? o->threads : cores_allowed();
    info->quota = o->quota;
    info->threads_bytes = beyond_few_threads(info->threads);
    info->host_addressable = true;
    info->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    info->memory_free_bytes = (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    *out = d;
    return 0;
}
