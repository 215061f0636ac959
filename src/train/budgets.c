#include "train/budgets.h"

#include "base/units.h"
#include "io/files.h"
#include "profile/machine.h"

#include <stdio.h>
#include <string.h>

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Device and host are both RAM here; their sum may pass 2^64. */
static int check_sum(const uint64_t budget[TIERS], uint64_t free_bytes, pt_error *e)
{
    char device[32], host[32], have[32];
    if (budget[TIER_HOST] <= free_bytes && budget[TIER_DEVICE] <= free_bytes - budget[TIER_HOST])
        return 0;
    if (!budget[TIER_HOST])
        return pt_fail(e, PT_DOES_NOT_FIT, "--device-memory is %s, and only %s are free: lower it, or end other programs",
                       size_format(device, budget[TIER_DEVICE]), size_format(have, free_bytes));
    return pt_fail(e, PT_DOES_NOT_FIT, "--device-memory is %s and --host-memory %s, and only %s are free: lower them, or end other programs",
                   size_format(device, budget[TIER_DEVICE]), size_format(host, budget[TIER_HOST]), size_format(have, free_bytes));
}

enum { GPU_MARGIN_SHARE = 64, GPU_MARGIN_LEAST = 512 << 20 }; /* kernels are loaded when they are first launched */

static uint64_t gpu_margin(const device_info *gpu)
{
    uint64_t share = gpu->memory_bytes / GPU_MARGIN_SHARE;
    return share > GPU_MARGIN_LEAST ? share : GPU_MARGIN_LEAST;
}

static int check_gpu(const device_info *gpu, uint64_t device_bytes, uint64_t host_bytes, uint64_t free_bytes, pt_error *e)
{
    char asked[32], have[32];
    if (device_bytes > gpu->memory_free_bytes)
        return pt_fail(e, PT_DOES_NOT_FIT, "--device-memory is %s, and only %s of the memory of %s are free: lower it, or end what else runs "
                       "there (nvidia-smi)", size_format(asked, device_bytes), size_format(have, gpu->memory_free_bytes), gpu->name);
    if (!host_bytes)
        return pt_fail(e, PT_USAGE, "--host-memory 0: with --device cuda what is loaded, saved and kept on the disk passes through host "
                       "memory; leave the option out");
    if (host_bytes > free_bytes)
        return pt_fail(e, PT_DOES_NOT_FIT, "--host-memory is %s, and only %s are free: lower it, or end other programs",
                       size_format(asked, host_bytes), size_format(have, free_bytes));
    return 0;
}

/* Device and host; `room`: what RAM has free, less the margin. */
static int choose_gpu(const budget_request *r, uint64_t free_bytes, uint64_t room, uint64_t budget[TIERS], pt_error *e)
{
    const device_info *gpu = &r->device->info;
    budget[TIER_DEVICE] = r->asked[TIER_DEVICE] == PT_AUTO ? less(gpu->memory_free_bytes, gpu_margin(gpu)) : r->asked[TIER_DEVICE];
    budget[TIER_HOST] = r->asked[TIER_HOST] == PT_AUTO ? room : r->asked[TIER_HOST];
    return check_gpu(gpu, budget[TIER_DEVICE], budget[TIER_HOST], free_bytes, e);
}

/* "22.4 GiB free (RAM), 1.2 GiB of them left to other programs" */
static void say_free(char *out, size_t size, uint64_t free_bytes, const char *limit, uint64_t margin)
{
    char have[32], left[32];
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s free (%s), %s of them left to other programs", used ? "; " : "", size_format(have, free_bytes), limit,
             size_format(left, margin < free_bytes ? margin : free_bytes));
}

static void say_why(const budget_request *r, const machine *m, bool gpu, uint64_t disk, char out[BUDGETS_WHY_BYTES])
{
    const size_t size = BUDGETS_WHY_BYTES;
    const device_info *d = gpu ? &r->device->info : NULL;
    *out = 0;
    if (gpu && r->asked[TIER_DEVICE] == PT_AUTO)
        say_free(out, size, d->memory_free_bytes, "GPU", gpu_margin(d));
    if (r->asked[gpu ? TIER_HOST : TIER_DEVICE] == PT_AUTO)
        say_free(out, size, m->memory_free_bytes, m->memory_limit, machine_memory_margin(m));
    if (r->asked[TIER_DISK] == PT_AUTO)
        say_free(out, size, disk, "disk", MACHINE_DISK_MARGIN);
}

int budgets_choose(const budget_request *r, uint64_t budget[TIERS], bool *host_tier, char why[BUDGETS_WHY_BYTES], pt_error *e)
{
    machine m;
    int failed = machine_probe(&m, e);
    if (failed)
        return failed;
    uint64_t room = less(m.memory_free_bytes, machine_memory_margin(&m)), disk = 0;
    bool gpu = r->device && !r->device->info.host_addressable;
    *host_tier = gpu || (r->asked[TIER_HOST] != PT_AUTO && r->asked[TIER_HOST] > 0);
    budget[TIER_HOST] = *host_tier ? r->asked[TIER_HOST] : 0;
    budget[TIER_DEVICE] = r->asked[TIER_DEVICE] == PT_AUTO ? less(room, budget[TIER_HOST]) : r->asked[TIER_DEVICE];
    budget[TIER_DISK] = r->asked[TIER_DISK];
    if (r->asked[TIER_DISK] == PT_AUTO) {
        failed = disk_free_bytes(r->disk_path, &disk, e);
        budget[TIER_DISK] = failed ? 0 : less(disk, MACHINE_DISK_MARGIN);
    }
    if (failed)
        return failed;
    if (why)
        say_why(r, &m, gpu, disk, why);
    return gpu ? choose_gpu(r, m.memory_free_bytes, room, budget, e) : check_sum(budget, m.memory_free_bytes, e);
}

void budgets_of_machine(const machine_spec *x, const budget_request *r, uint64_t budget[TIERS], bool *host_tier)
{
    for (int t = TIER_DEVICE; t <= TIER_HOST; t++) {
        machine m = {.memory_bytes = x->memory_bytes[t]};
        budget[t] = less(x->memory_bytes[t], machine_memory_margin(&m));
    }
    budget[TIER_DISK] = less(x->memory_bytes[TIER_DISK], MACHINE_DISK_MARGIN);
    *host_tier = x->cuda ? x->memory_bytes[TIER_HOST] && r->asked[TIER_HOST] : r->asked[TIER_HOST] != PT_AUTO && r->asked[TIER_HOST];
    for (int t = 0; t < TIERS; t++)
        if (r->asked[t] != PT_AUTO)
            budget[t] = r->asked[t];
    if (!*host_tier)
        budget[TIER_HOST] = 0;
    if (!x->cuda && r->asked[TIER_DEVICE] == PT_AUTO)
        budget[TIER_DEVICE] = less(budget[TIER_DEVICE], budget[TIER_HOST]); /* both are its RAM */
}
