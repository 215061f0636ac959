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

int planning_open_device(planning *planning, const pt_train_options *o, pt_error *e)
{
    /* Ranks that run have their share of the cores already. */
    const int cores = machine_threads(0), ranks = o->ranks > 1 && !planning->runs ? o->ranks : 1;
    const int share = cores > ranks ? cores / ranks : 1;
    const device_options d = {.threads = o->threads || ranks == 1 ? machine_threads(o->threads) : share,
                              .quota = machine_quota(), .notice = o->notice, .arg = o->arg};
    char first[16];
    gpu_list numbers;
    int failed = device_numbers(o->device, &numbers, e);
    snprintf(first, sizeof first, "cuda:%d", numbers.ordinal[0]);
    return failed ? failed
                  : device_open(numbers.n > 1 ? first : o->device, &d, &planning->device, &planning->host, e); /* ranks have one each */
}

/* ---- budgets ---- */

/* Parts that a machine file lacks would seem free. A common disk is assumed: Samsung's 980 with 1 TB reads 3500 MB/s (its data sheet) and
 * writes about 600 MB/s once its cache is full, as in machines/laptop16.json. */
static int complete_machine(planning *planning, pt_error *e)
{
    machine_spec *x = &planning->machine;
    const uint64_t host = planning->o->host_memory;
    if (planning->o->profile_file)
        return 0;
    if (x->cuda && !host)
        return pt_fail(e, PT_USAGE,
                       "`host_memory` is 0, but on a GPU everything that is loaded, saved or kept on the disk passes through host memory: "
                       "leave the option out");
    if (x->cuda && !x->memory_bytes[TIER_HOST] &&
        ((host != PT_AUTO && host) || (planning->o->disk_memory != PT_AUTO && planning->o->disk_memory)))
        return pt_fail(e, PT_USAGE,
                       "`%s_memory` is given, but %s describes no host: add \"host\" and \"link\" to the file, or leave the option out",
                       host != PT_AUTO && host ? "host" : "disk", planning->machine_path);
    if (x->cuda && !x->memory_bytes[TIER_HOST] && planning->runs)
        return pt_fail(e, PT_USAGE,
                       "%s describes no host, but a run loads and saves through host memory: add \"host\" and \"link\" to the file, or "
                       "leave `machine_file` out",
                       planning->machine_path);
    if (x->cuda && !x->memory_bytes[TIER_HOST])
        planning->budget[TIER_DISK] = 0; /* nothing could be transferred */
    if (!planning->budget[TIER_DISK] || x->read_bandwidth > 0)
        return 0;
    x->memory_bytes[TIER_DISK] = planning->budget[TIER_DISK];
    x->read_bandwidth = 3.5e9, x->write_bandwidth = 0.6e9;
    x->disk_latency_s = 100e-6, x->disk_both_ways = 0.5;
    options_notice(planning->o, "%s describes no disk: the plan assumes one that reads 3.5 GB/s and writes 0.6 GB/s",
                   planning->machine_path);
    return 0;
}

/* Ranks that a tier's memory is for. */
static int sharers_of(const planning *planning, tier t)
{
    const int n = t == TIER_DEVICE && device_is_gpu(planning->device) ? planning->on_device : planning->ranks;
    return n > 1 ? n : 1;
}

/* A run uses at most what this machine has, whatever the file says. */
int planning_budgets(planning *planning, pt_error *e)
{
    const pt_train_options *o = planning->o;
    const budget_request r = {.asked = {o->device_memory, o->host_memory, o->disk_memory},
                              .disk_path = planning->disk_path,
                              .device = planning->device,
                              .missing_bytes = &planning->missing_bytes,
                              .change = planning->change,
                              .disk_reserve = planning->disk_reserve,
                              .disk_own = planning->disk_own,
                              .memory_reserve = planning->memory_reserve,
                              .notice = o->notice,
                              .arg = o->arg};
    bool host_tier;
    uint64_t here[TIERS];
    char room[BUDGETS_WHY_BYTES] = "";
    if (planning->from_file)
        budgets_of_machine(&planning->machine, &r, planning->budget, &planning->host_tier, planning->room);
    int failed = planning->from_file ? complete_machine(planning, e) : 0;
    if (failed || (planning->from_file && !planning->runs))
        return failed;
    if (planning->from_file && planning->machine.ranks > 1)
        return pt_fail(e, PT_USAGE, "%s describes %d devices, but a run uses one: set \"ranks\" to 1, or leave `machine_file` out",
                       planning->machine_path, planning->machine.ranks);
    if (planning->from_file && planning->machine.cuda != (planning->device != planning->host))
        return pt_fail(e, PT_FAILED,
                       "%s describes a machine with%s a GPU, but this run computes on one with%s: leave `machine_file` out, or choose "
                       "another `device`",
                       planning->machine_path, planning->machine.cuda ? "" : "out", planning->machine.cuda ? "out" : "");
    failed = budgets_choose(&r, here, &host_tier, room, e);
    for (int t = 0; t < TIERS; t++)
        here[t] = r.asked[t] == PT_AUTO ? here[t] / (uint64_t)sharers_of(planning, (tier)t) : here[t];
    if (!planning->from_file || here[TIER_DEVICE] < planning->budget[TIER_DEVICE]) /* the tighter limit */
        snprintf(planning->room, sizeof planning->room, "%s", room);
    for (int t = 0; t < TIERS; t++)
        if (!planning->from_file || here[t] < planning->budget[t])
            planning->budget[t] = here[t];
    for (int t = 0; t < TIERS && planning->limited; t++)
        if (planning->limit[t] < planning->budget[t])
            planning->budget[t] = planning->limit[t];
    planning->host_tier = planning->from_file ? planning->host_tier && host_tier : host_tier;
    return failed;
}

/* A rank's share of so many devices of the file. */
static int take_devices(planning *planning, pt_error *e)
{
    const machine_spec *x = &planning->machine;
    const bool inside = x->collective_bandwidth > 0;
    const bool outside = machine_ranks_here(x, planning->o->ranks) == planning->o->ranks || x->network_bandwidth > 0;
    if (!inside || !outside)
        return pt_fail(e, PT_USAGE, "`ranks` is %d, but %s does not say how fast %s exchange data: add \"%s\" to it", planning->o->ranks,
                       planning->machine_path, inside ? "machines" : "devices", inside ? "network_bandwidth" : "collective_bandwidth");
    planning->machine = machine_share(x, planning->o->ranks);
    return 0;
}

/* A file describes how fast one kind of device computes. */
static int check_device(const planning *planning, pt_error *e)
{
    const char *asked = planning->o->device ? planning->o->device : "auto";
    if (planning->machine.cuda && !strcmp(asked, "cpu"))
        return pt_fail(e, PT_USAGE,
                       "`device` is cpu, but %s describes a GPU (%s), not how fast the processor beside it computes: leave "
                       "`device` out, or name the file of a machine without a GPU",
                       planning->machine_path, planning->machine.name);
    if (!planning->machine.cuda && !strncmp(asked, "cuda", 4))
        return pt_fail(e, PT_USAGE, "`device` is %s, but %s describes a machine without a GPU (%s): leave `device` out, or name the file "
                                    "of one with a GPU", asked, planning->machine_path, planning->machine.name);
    return 0;
}

int planning_find_machine(planning *planning, pt_error *e)
{
    machine m;
    planning->from_file = planning->o->machine_file != NULL;
    if (!planning->from_file) {
        int failed = machine_probe(&m, e);
        const device_info *d = &planning->device->info;
        char quota[40] = "";
        if (d->quota > 0)
            snprintf(quota, sizeof quota, " with a quota of %.3g processors", d->quota);
        if (d->host_addressable)
            snprintf(planning->name, sizeof planning->name, "%s, %d thread%s%s", m.processor, d->threads, plural((uint64_t)d->threads),
                     quota);
        else
            snprintf(planning->name, sizeof planning->name, "%.56s, %.80s, %d thread%s", d->name, m.processor, d->threads,
                     plural((uint64_t)d->threads));
        return failed;
    }
    int failed = machine_file_find(planning->o->machine_file, planning->machine_path, e);
    if (!failed)
        failed = machine_file_read(planning->machine_path, &planning->machine, e);
    if (!failed && !planning->runs)
        failed = check_device(planning, e);
    if (!failed && !planning->runs && planning->o->ranks > 1)
        failed = take_devices(planning, e);
    snprintf(planning->name, sizeof planning->name, "%s", planning->machine.name);
    return failed;
}

int planning_write_machine(const planning *planning, const costs *costs, const char *path, pt_error *e)
{
    char name[300], source[80];
    machine_spec x;
    machine m;
    int failed = machine_probe(&m, e);
    const bool cuda = device_is_gpu(planning->device);
    const device_info *d = &planning->device->info;
    const uint64_t memory[TIERS] = {cuda ? d->memory_bytes : m.memory_bytes, cuda ? m.memory_bytes : 0, planning->budget[TIER_DISK]};
    if (cuda)
        snprintf(name, sizeof name, "%s; %s, %d core%s", d->name, m.processor, m.cores, plural((uint64_t)m.cores));
    else
        snprintf(name, sizeof name, "%s, %d core%s, %s", m.processor, m.cores, plural((uint64_t)m.cores), d->arithmetic);
    if (!failed)
        failed = machine_measured(name, cuda, memory, costs, planning->model, planning->shape, &x, e);
    if (failed)
        return failed;
    snprintf(source, sizeof source, "measured with %s in %s", planning->model->config.model_type,
             planning->shape->type == PT_BF16 ? "bf16" : "fp32");
    json_t *all = machine_to_json(&x, source);
    failed = all ? file_write_json(path, all, e) : pt_fail(e, PT_FAILED, "out of memory");
    json_decref(all);
    return failed;
}
