/* planning_machine.c - the machine to plan for: devices, this machine or a machine file, budgets. */
#include "train/planning.h"

#include "base/units.h"
#include "machine/machine.h"
#include "predict/analytic.h"
#include "train/options.h"

#include <string.h>
#include <unistd.h>

const char *planning_disk_folder(const pt_train_options *o)
{
    return o->disk_path ? o->disk_path : !access(".", W_OK) ? "." : dir_temporary();
}

int planning_open_device(planning *p, const pt_train_options *o, pt_error *e)
{
    /* Ranks that run have their share of the cores already. */
    const int cores = machine_threads(0), ranks = o->ranks > 1 && !p->runs ? o->ranks : 1;
    const int share = cores > ranks ? cores / ranks : 1;
    const device_options d = {.threads = o->threads || ranks == 1 ? machine_threads(o->threads) : share,
                              .quota = machine_quota(), .notice = o->notice, .arg = o->arg};
    char first[16];
    gpu_list numbers;
    int failed = device_numbers(o->device, &numbers, e);
    snprintf(first, sizeof first, "cuda:%d", numbers.ordinal[0]);
    return failed ? failed : device_open(numbers.n > 1 ? first : o->device, &d, &p->device, &p->host, e); /* ranks have one each */
}

/* ---- budgets ---- */

/* Parts that a machine file lacks would seem free. A common disk is assumed: Samsung's 980 with 1 TB reads 3500 MB/s (its data sheet) and
 * writes about 600 MB/s once its cache is full, as in machines/laptop16.json. */
static int complete_machine(planning *p, pt_error *e)
{
    machine_spec *x = &p->machine;
    const uint64_t host = p->o->host_memory;
    if (p->o->profile_file)
        return 0;
    if (x->cuda && !host)
        return pt_fail(e, PT_USAGE,
                       "`host_memory` is 0, but on a GPU everything that is loaded, saved or kept on the disk passes through host memory: "
                       "leave the option out");
    if (x->cuda && !x->memory_bytes[TIER_HOST] && ((host != PT_AUTO && host) || (p->o->disk_memory != PT_AUTO && p->o->disk_memory)))
        return pt_fail(e, PT_USAGE,
                       "`%s_memory` is given, but %s describes no host: add \"host\" and \"link\" to the file, or leave the option out",
                       host != PT_AUTO && host ? "host" : "disk", p->machine_path);
    if (x->cuda && !x->memory_bytes[TIER_HOST] && p->runs)
        return pt_fail(e, PT_USAGE,
                       "%s describes no host, but a run loads and saves through host memory: add \"host\" and \"link\" to the file, or "
                       "leave `machine_file` out",
                       p->machine_path);
    if (x->cuda && !x->memory_bytes[TIER_HOST])
        p->budget[TIER_DISK] = 0; /* nothing could be transferred */
    if (!p->budget[TIER_DISK] || x->read_bandwidth > 0)
        return 0;
    x->memory_bytes[TIER_DISK] = p->budget[TIER_DISK];
    x->read_bandwidth = 3.5e9, x->write_bandwidth = 0.6e9;
    x->disk_latency_s = 100e-6, x->disk_both_ways = 0.5;
    options_notice(p->o, "%s describes no disk: the plan assumes one that reads 3.5 GB/s and writes 0.6 GB/s", p->machine_path);
    return 0;
}

/* Ranks that a tier's memory is for. */
static int sharers_of(const planning *p, tier t)
{
    const int n = t == TIER_DEVICE && device_is_gpu(p->device) ? p->on_device : p->ranks;
    return n > 1 ? n : 1;
}

/* A run uses at most what this machine has, whatever the file says. */
int planning_budgets(planning *p, pt_error *e)
{
    const pt_train_options *o = p->o;
    const budget_request r = {.asked = {o->device_memory, o->host_memory, o->disk_memory}, .disk_path = p->disk_path, .device = p->device,
                              .missing_bytes = &p->missing_bytes, .change = p->change, .disk_reserve = p->disk_reserve,
                              .disk_own = p->disk_own, .memory_reserve = p->memory_reserve, .notice = o->notice, .arg = o->arg};
    bool host_tier;
    uint64_t here[TIERS];
    char room[BUDGETS_WHY_BYTES] = "";
    if (p->from_file)
        budgets_of_machine(&p->machine, &r, p->budget, &p->host_tier, p->room);
    int failed = p->from_file ? complete_machine(p, e) : 0;
    if (failed || (p->from_file && !p->runs))
        return failed;
    if (p->from_file && p->machine.ranks > 1)
        return pt_fail(e, PT_USAGE, "%s describes %d devices, but a run uses one: set \"ranks\" to 1, or leave `machine_file` out",
                       p->machine_path, p->machine.ranks);
    if (p->from_file && p->machine.cuda != (p->device != p->host))
        return pt_fail(e, PT_FAILED,
                       "%s describes a machine with%s a GPU, but this run computes on one with%s: leave `machine_file` out, or choose "
                       "another `device`",
                       p->machine_path, p->machine.cuda ? "" : "out", p->machine.cuda ? "out" : "");
    failed = budgets_choose(&r, here, &host_tier, room, e);
    for (int t = 0; t < TIERS; t++)
        here[t] = r.asked[t] == PT_AUTO ? here[t] / (uint64_t)sharers_of(p, (tier)t) : here[t];
    if (!p->from_file || here[TIER_DEVICE] < p->budget[TIER_DEVICE]) /* the tighter limit */
        snprintf(p->room, sizeof p->room, "%s", room);
    for (int t = 0; t < TIERS; t++)
        if (!p->from_file || here[t] < p->budget[t])
            p->budget[t] = here[t];
    for (int t = 0; t < TIERS && p->limited; t++)
        if (p->limit[t] < p->budget[t])
            p->budget[t] = p->limit[t];
    p->host_tier = p->from_file ? p->host_tier && host_tier : host_tier;
    return failed;
}

/* A rank's share of so many devices of the file. */
static int take_devices(planning *p, pt_error *e)
{
    const machine_spec *x = &p->machine;
    const bool inside = x->collective_bandwidth > 0;
    const bool outside = machine_ranks_here(x, p->o->ranks) == p->o->ranks || x->network_bandwidth > 0;
    if (!inside || !outside)
        return pt_fail(e, PT_USAGE, "`ranks` is %d, but %s does not say how fast %s exchange data: add \"%s\" to it", p->o->ranks,
                       p->machine_path, inside ? "machines" : "devices", inside ? "network_bandwidth" : "collective_bandwidth");
    p->machine = machine_share(x, p->o->ranks);
    return 0;
}

/* A file describes how fast one kind of device computes. */
static int check_device(const planning *p, pt_error *e)
{
    const char *asked = p->o->device ? p->o->device : "auto";
    if (p->machine.cuda && !strcmp(asked, "cpu"))
        return pt_fail(e, PT_USAGE, "`device` is cpu, but %s describes a GPU (%s), not how fast the processor beside it computes: leave "
                                    "`device` out, or name the file of a machine without a GPU", p->machine_path, p->machine.name);
    if (!p->machine.cuda && !strncmp(asked, "cuda", 4))
        return pt_fail(e, PT_USAGE, "`device` is %s, but %s describes a machine without a GPU (%s): leave `device` out, or name the file "
                                    "of one with a GPU", asked, p->machine_path, p->machine.name);
    return 0;
}

int planning_find_machine(planning *p, pt_error *e)
{
    machine m;
    p->from_file = p->o->machine_file != NULL;
    if (!p->from_file) {
        int failed = machine_probe(&m, e);
        const device_info *d = &p->device->info;
        char quota[40] = "";
        if (d->quota > 0)
            snprintf(quota, sizeof quota, " with a quota of %.3g processors", d->quota);
        if (d->host_addressable)
            snprintf(p->name, sizeof p->name, "%s, %d thread%s%s", m.processor, d->threads, plural((uint64_t)d->threads), quota);
        else
            snprintf(p->name, sizeof p->name, "%.56s, %.80s, %d thread%s", d->name, m.processor, d->threads, plural((uint64_t)d->threads));
        return failed;
    }
    int failed = machine_file_find(p->o->machine_file, p->machine_path, e);
    if (!failed)
        failed = machine_file_read(p->machine_path, &p->machine, e);
    if (!failed && !p->runs)
        failed = check_device(p, e);
    if (!failed && !p->runs && p->o->ranks > 1)
        failed = take_devices(p, e);
    snprintf(p->name, sizeof p->name, "%s", p->machine.name);
    return failed;
}

int planning_write_machine(const planning *p, const costs *c, const char *path, pt_error *e)
{
    char name[300], source[80];
    machine_spec x;
    machine m;
    int failed = machine_probe(&m, e);
    const bool cuda = device_is_gpu(p->device);
    const device_info *d = &p->device->info;
    const uint64_t memory[TIERS] = {cuda ? d->memory_bytes : m.memory_bytes, cuda ? m.memory_bytes : 0, p->budget[TIER_DISK]};
    if (cuda)
        snprintf(name, sizeof name, "%s; %s, %d core%s", d->name, m.processor, m.cores, plural((uint64_t)m.cores));
    else
        snprintf(name, sizeof name, "%s, %d core%s, %s", m.processor, m.cores, plural((uint64_t)m.cores), d->arithmetic);
    if (!failed)
        failed = machine_measured(name, cuda, memory, c, p->model, p->shape, &x, e);
    if (failed)
        return failed;
    snprintf(source, sizeof source, "measured with %s in %s", p->model->config.model_type, p->shape->type == PT_BF16 ? "bf16" : "fp32");
    json_t *all = machine_to_json(&x, source);
    failed = all ? file_write_json(path, all, e) : pt_fail(e, PT_FAILED, "out of memory");
    json_decref(all);
    return failed;
}
