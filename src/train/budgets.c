#include "train/budgets.h"

#include "base/units.h"
#include "io/files.h"
#include "profile/machine.h"

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Device and host are both RAM here; their sum may pass 2^64. */
static int check_sum(const uint64_t budget[TIERS], uint64_t free_bytes, pt_error *e)
{
    char device[32], host[32], have[32];
    if (budget[TIER_HOST] <= free_bytes && budget[TIER_DEVICE] <= free_bytes - budget[TIER_HOST])
        return 0;
    return pt_fail(e, PT_DOES_NOT_FIT, "--device-memory is %s and --host-memory %s, and only %s are free: lower them, or end other programs",
                   size_format(device, budget[TIER_DEVICE]), size_format(host, budget[TIER_HOST]), size_format(have, free_bytes));
}

int budgets_choose(const budget_request *r, uint64_t budget[TIERS], bool *host_tier, pt_error *e)
{
    machine m;
    int failed = machine_probe(&m, e);
    if (failed)
        return failed;
    uint64_t room = less(m.memory_free_bytes, machine_memory_margin(&m)), disk;
    *host_tier = r->asked[TIER_HOST] != PT_AUTO && r->asked[TIER_HOST] > 0;
    budget[TIER_HOST] = *host_tier ? r->asked[TIER_HOST] : 0;
    budget[TIER_DEVICE] = r->asked[TIER_DEVICE] == PT_AUTO ? less(room, budget[TIER_HOST]) : r->asked[TIER_DEVICE];
    budget[TIER_DISK] = r->asked[TIER_DISK];
    if (r->asked[TIER_DISK] == PT_AUTO) {
        failed = disk_free_bytes(r->disk_path, &disk, e);
        budget[TIER_DISK] = failed ? 0 : less(disk, MACHINE_DISK_MARGIN);
    }
    return failed ? failed : check_sum(budget, m.memory_free_bytes, e);
}
