#include "run/budgets.h"

#include "base/units.h"
#include "io/disk.h"
#include "io/files.h"

#include <stdio.h>
#include <string.h>

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

/* Of one pool of RAM, the part that is the host tier: loading, saving and the disk pass through it. It may hold as much as it likes. */
enum { POOL_HOST_SHARE = 16 };

enum { GPU_MARGIN_SHARE = 64, GPU_MARGIN_LEAST = 512 << 20 }; /* kernels are loaded at their first launch */

static uint64_t gpu_margin(uint64_t memory_bytes)
{
    uint64_t share = memory_bytes / GPU_MARGIN_SHARE;
    return share > GPU_MARGIN_LEAST ? share : GPU_MARGIN_LEAST;
}

static uint64_t ram_margin(uint64_t memory_bytes) { return machine_memory_margin(&(machine){.memory_bytes = memory_bytes}); }

/* ---- what is free ---- */

typedef struct findings {
    machine m;
    bool gpu, pool, disk_in_ram; /* pool: the GPU has no memory of its own */
    uint64_t disk_bytes; /* for a scratch file on the disk; not determined if the run does not use the disk */
} findings;

static int find(const budget_request *r, findings *f, pt_error *e)
{
    *f = (findings){.gpu = r->device && device_is_gpu(r->device)};
    f->pool = f->gpu && r->device->info.shares_ram;
    int failed = 0;
    if (r->machine)
        f->m = *r->machine;
    else
        failed = machine_probe(&f->m, e);
    if (failed || !r->asked[TIER_DISK])
        return failed;
    f->disk_in_ram = disk_is_memory(r->disk_path);
    failed = disk_room_bytes(r->disk_path, &f->disk_bytes, e);
    const uint64_t limit = disk_file_limit();
    if (!failed)
        f->disk_bytes += less(limit, f->disk_bytes) < r->disk_own ? less(limit, f->disk_bytes) : r->disk_own;
    return failed;
}

/* ---- choosing ---- */

/* A tier that lies in RAM takes memory from the others there, so there is none unless the user asks for it. */
static uint64_t choose_disk(const budget_request *r, const findings *f)
{
    if (r->asked[TIER_DISK] != PT_AUTO)
        return r->asked[TIER_DISK];
    return f->disk_in_ram ? 0 : less(f->disk_bytes, MACHINE_DISK_MARGIN + r->disk_reserve);
}

/* Device and host share `room`. CUDA's own figure of free memory does not count the page cache, which the system gives back. */
static void choose_of_pool(const budget_request *r, uint64_t room, uint64_t budget[TIERS])
{
    const uint64_t *asked = r->asked;
    const bool device = asked[TIER_DEVICE] != PT_AUTO, host = asked[TIER_HOST] != PT_AUTO;
    budget[TIER_HOST] = host ? asked[TIER_HOST] : device ? less(room, asked[TIER_DEVICE]) : room / POOL_HOST_SHARE;
    budget[TIER_DEVICE] = device ? asked[TIER_DEVICE] : less(room, budget[TIER_HOST]);
}

static void choose(const budget_request *r, const findings *f, bool host_tier, uint64_t budget[TIERS])
{
    const uint64_t *asked = r->asked;
    budget[TIER_DISK] = choose_disk(r, f);
    uint64_t room = less(less(f->m.memory_free_bytes, machine_memory_margin(&f->m) + r->memory_reserve),
                         f->disk_in_ram ? budget[TIER_DISK] : 0);
    if (f->pool) {
        choose_of_pool(r, room, budget);
        return;
    }
    budget[TIER_HOST] = !host_tier ? 0 : asked[TIER_HOST] == PT_AUTO ? room : asked[TIER_HOST];
    budget[TIER_DEVICE] = asked[TIER_DEVICE];
    if (asked[TIER_DEVICE] != PT_AUTO)
        return;
    const device_info *d = f->gpu ? &r->device->info : NULL;
    budget[TIER_DEVICE] = d ? less(d->memory_free_bytes, gpu_margin(d->memory_bytes)) : less(room, budget[TIER_HOST]);
}

/* ---- refusing ---- */

static void tell_missing(const budget_request *r, uint64_t bytes)
{
    if (r->missing_bytes)
        *r->missing_bytes = bytes;
}

/* Advice is what is free less the margin, because the process needs memory outside its arenas, and what is free changes. */
static void add_change(char change[BUDGETS_CHANGE_BYTES], tier t, uint64_t bytes)
{
    size_t used = strlen(change);
    char size[32];
    snprintf(change + used, BUDGETS_CHANGE_BYTES - used, "%s`%s_memory` %s", used ? " " : "", tier_names[t],
             size_option(size, size_round_down(bytes)));
}

static void tell_change(const budget_request *r, const char *change)
{
    if (r->change)
        snprintf(r->change, BUDGETS_CHANGE_BYTES, "%s", change);
}

/* "give `device_memory` 8GiB", or "lower it" if no size would fit */
static const char *mend(const char *change, int named, char out[BUDGETS_CHANGE_BYTES + 16])
{
    snprintf(out, BUDGETS_CHANGE_BYTES + 16, "%s%s", *change ? "give " : named > 1 ? "lower them" : "lower it", change);
    return out;
}

static bool is_in_ram(const findings *f, tier t) { return t == TIER_HOST || (t == TIER_DEVICE ? !f->gpu || f->pool : f->disk_in_ram); }

/* The largest size of a tier in RAM such that all of them fit into `bytes`, if the largest ones shrink. */
static uint64_t share_of_ram(const uint64_t wanted[TIERS], uint64_t bytes)
{
    uint64_t share = 0;
    for (int round = 0; round < TIERS; round++) { /* tiers that need less than an equal share leave more to the others */
        uint64_t left = bytes, n = 0;
        for (tier t = 0; t < TIERS; t++)
            if (wanted[t] > share)
                n++;
            else
                left = less(left, wanted[t]);
        share = n ? left / n : share;
    }
    return share;
}

/* Names only the budgets that the user gave; the others follow from them. */
static void change_ram(const budget_request *r, const findings *f, const uint64_t budget[TIERS], char change[BUDGETS_CHANGE_BYTES])
{
    const uint64_t bytes = less(f->m.memory_free_bytes, machine_memory_margin(&f->m) + r->memory_reserve);
    uint64_t wanted[TIERS];
    for (tier t = 0; t < TIERS; t++)
        wanted[t] = !is_in_ram(f, t) ? 0 : t == TIER_DEVICE ? r->asked[t] : budget[t];
    const uint64_t share = share_of_ram(wanted, bytes);
    for (tier t = 0; t < TIERS && share; t++)
        if (wanted[t] > share && r->asked[t] != PT_AUTO)
            add_change(change, t, share);
}

/* All tiers that lie in RAM must fit the free RAM together. The sum of budgets may exceed 2^64. */
static int check_ram(const budget_request *r, const findings *f, const uint64_t budget[TIERS], pt_error *e)
{
    char list[160] = "", where[320] = "", change[BUDGETS_CHANGE_BYTES] = "", advice[BUDGETS_CHANGE_BYTES + 16], size[32], lack[32];
    const uint64_t most = (uint64_t)1 << 61; /* per tier, so that the sum does not overflow */
    const uint64_t has = less(f->m.memory_free_bytes, MACHINE_PROGRAM_BYTES + r->memory_reserve);
    uint64_t left = has, missing = 0;
    int named = 0;
    for (int t = 0; t < TIERS; t++) {
        if (!is_in_ram(f, (tier)t) || !budget[t])
            continue;
        missing += less(budget[t], left) < most ? less(budget[t], left) : most;
        left = less(left, budget[t]);
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s`%s_memory`%s %s", named ? ", " : "", tier_names[t], named ? "" : " is",
                 size_format(size, budget[t]));
        named++;
    }
    if (f->disk_in_ram && budget[TIER_DISK])
        snprintf(where, sizeof where, "; %.200s is in RAM: give a `disk_path` on a real disk", r->disk_path);
    if (r->memory_reserve) {
        size_t used = strlen(where);
        snprintf(where + used, sizeof where - used, "; checkpoints and the model take %s of RAM, where `out` is: give one on a real disk",
                 size_format(size, r->memory_reserve));
    }
    tell_missing(r, missing);
    if (!missing)
        return 0;
    change_ram(r, f, budget, change);
    tell_change(r, change);
    return pt_fail(e, PT_DOES_NOT_FIT, "%s, but only %s are free beside what the program itself takes, %s too little: %s, or end other "
                                       "programs%s", list, size_format(size, has), size_option(lack, missing), mend(change, named, advice),
                   where);
}

/* The largest budget that the disk can have. */
static uint64_t disk_gives(const findings *f)
{
    const uint64_t there = less(f->disk_bytes, MACHINE_DISK_MARGIN), in_ram = less(f->m.memory_free_bytes, machine_memory_margin(&f->m));
    return f->disk_in_ram && in_ram < there ? in_ram : there;
}

static int check_disk(const budget_request *r, const findings *f, pt_error *e)
{
    char asked[32], have[32], lack[32], change[BUDGETS_CHANGE_BYTES] = "";
    if (!r->asked[TIER_DISK] || r->asked[TIER_DISK] == PT_AUTO || r->asked[TIER_DISK] <= f->disk_bytes)
        return 0;
    const bool by_limit = f->disk_bytes == disk_file_limit(); /* which concerns one file: others need no room beside it */
    const uint64_t gives = by_limit ? f->disk_bytes : disk_gives(f);
    tell_missing(r, r->asked[TIER_DISK] - f->disk_bytes);
    if (size_round_down(gives))
        add_change(change, TIER_DISK, gives);
    tell_change(r, change);
    if (by_limit)
        return pt_fail(e, PT_DOES_NOT_FIT, "`disk_memory` is %s, but the limit for files is %s (ulimit -f), %s too little: %s%s%sraise the "
                       "limit in the shell with ulimit -f unlimited", size_format(asked, r->asked[TIER_DISK]),
                       size_format(have, f->disk_bytes), size_option(lack, r->asked[TIER_DISK] - f->disk_bytes), *change ? "give " : "",
                       change, *change ? ", or " : "");
    return pt_fail(e, PT_DOES_NOT_FIT, "`disk_memory` is %s, but only %s are free in %.300s, %s too little: %s%s%smake room, "
                   "or give another `disk_path`", size_format(asked, r->asked[TIER_DISK]), size_format(have, f->disk_bytes), r->disk_path,
                   size_option(lack, r->asked[TIER_DISK] - f->disk_bytes), *change ? "give " : "", change,
                   *change ? ", which leaves some room for other files, " : "");
}

static int check_gpu(const budget_request *r, uint64_t device_bytes, pt_error *e)
{
    const device_info *gpu = &r->device->info;
    const uint64_t gives = less(gpu->memory_free_bytes, gpu_margin(gpu->memory_bytes));
    char asked[32], have[32], lack[32], change[BUDGETS_CHANGE_BYTES] = "", advice[BUDGETS_CHANGE_BYTES + 16];
    const bool pool = gpu->shares_ram; /* check_ram knows what is free */
    tell_missing(r, pool ? 0 : less(device_bytes, gpu->memory_free_bytes));
    if (device_bytes > gpu->memory_free_bytes && !pool) {
        if (gives)
            add_change(change, TIER_DEVICE, gives);
        tell_change(r, change);
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "`device_memory` is %s, but only %s of the memory of %s are free, %s too little: %s, or end other programs on it "
                       "(nvidia-smi)",
                       size_format(asked, device_bytes), size_format(have, gpu->memory_free_bytes), gpu->name,
                       size_option(lack, device_bytes - gpu->memory_free_bytes), mend(change, 1, advice));
    }
    if (!r->asked[TIER_HOST])
        return pt_fail(e, PT_USAGE,
                       "`host_memory` is 0, but with `device` cuda everything that is loaded, saved or kept on the disk passes through "
                       "host memory: leave the option out");
    return 0;
}

typedef struct refusals { pt_error said; uint64_t missing_bytes; char change[BUDGETS_CHANGE_BYTES]; } refusals;

static void append(char *out, size_t n, const char *between, const char *text)
{
    size_t used = strlen(out);
    if (*text)
        snprintf(out + used, n - used, "%s%.*s", used ? between : "", (int)(n - used), text);
}

static void join(refusals *all, const refusals *one)
{
    append(all->said.text, sizeof all->said.text, "; ", one->said.text);
    append(all->change, sizeof all->change, " ", one->change);
    all->said.code = one->said.code ? one->said.code : all->said.code;
    all->missing_bytes += one->missing_bytes;
}

/* Reports everything that is too large at once, so that following the advice leads to no other refusal. If the disk tier lies in RAM, its
 * budget counts there. */
static int check_all(const budget_request *r, const findings *f, uint64_t budget[TIERS], pt_error *e)
{
    enum { DISK, GPU, RAM, CHECKS };
    refusals all = {0};
    for (int i = 0; i < CHECKS; i++) {
        refusals one = {0};
        budget_request q = *r;
        q.missing_bytes = &one.missing_bytes;
        q.change = one.change;
        int failed = 0;
        if (i == DISK)
            failed = check_disk(&q, f, &one.said);
        else if (i == RAM)
            failed = check_ram(&q, f, budget, &one.said);
        else if (f->gpu)
            failed = check_gpu(&q, budget[TIER_DEVICE], &one.said);
        join(&all, &one);
        if (i == DISK && failed)
            budget[TIER_DISK] = disk_gives(f);
        if (failed && failed != PT_DOES_NOT_FIT)
            break;
    }
    tell_missing(r, all.missing_bytes);
    tell_change(r, all.change);
    if (all.said.code && e)
        *e = all.said;
    return all.said.code;
}

/* ---- saying ---- */

static const char OTHERS[] = "other programs", OWN[] = "the program itself", CHECKPOINTS[] = "checkpoints, the model and other programs";

/* "22.4 GiB free (RAM) less 1.2 GiB for other programs: 21.2 GiB" */
static void say_room(char *out, uint64_t bytes, const char *what, const char *limit, uint64_t margin, const char *whom)
{
    char have[32], left[32], rest[32];
    size_t used = strlen(out);
    margin = margin < bytes ? margin : bytes;
    snprintf(out + used, BUDGETS_WHY_BYTES - used, "%s%s %s (%s) less %s for %s: %s", used ? "; " : "", size_format(have, bytes), what,
             limit,
             size_format(left, margin), whom, size_format(rest, bytes - margin));
}

static void say_why(const budget_request *r, const findings *f, char out[BUDGETS_WHY_BYTES])
{
    const machine *m = &f->m;
    *out = 0;
    if (f->gpu && !f->pool && r->asked[TIER_DEVICE] == PT_AUTO)
        say_room(out, r->device->info.memory_free_bytes, "free", "GPU", gpu_margin(r->device->info.memory_bytes), OTHERS);
    if (r->asked[f->gpu ? TIER_HOST : TIER_DEVICE] == PT_AUTO || (f->pool && r->asked[TIER_DEVICE] == PT_AUTO))
        say_room(out, m->memory_free_bytes, "free", m->memory_limit, machine_memory_margin(m) + r->memory_reserve,
                 r->memory_reserve ? CHECKPOINTS : m->own_limit ? OWN : OTHERS);
    if (r->asked[TIER_DISK] == PT_AUTO && !f->disk_in_ram)
        say_room(out, f->disk_bytes, "free", "disk", MACHINE_DISK_MARGIN + r->disk_reserve, r->disk_reserve ? CHECKPOINTS : OTHERS);
}

void budgets_notice_disk(const budget_request *r)
{
    char sentence[512];
    if (!r->notice || r->asked[TIER_DISK] != PT_AUTO || !disk_is_memory(r->disk_path))
        return;
    snprintf(sentence, sizeof sentence,
             "%.300s is in RAM (such as tmpfs), so it is not used as disk tier: give a `disk_path` on a real disk",
             r->disk_path);
    r->notice(r->arg, sentence);
}

/* ---- threads ---- */

/* Many threads need more memory than an arena accounts for. */
static void leave_to_threads(const budget_request *r, uint64_t budget[TIERS], char why[BUDGETS_WHY_BYTES])
{
    const uint64_t bytes = r->device ? r->device->info.threads_bytes : 0;
    char size[32];
    if (!bytes)
        return;
    tell_missing(r, less(bytes, budget[TIER_DEVICE]));
    budget[TIER_DEVICE] = less(budget[TIER_DEVICE], bytes);
    size_t used = why ? strlen(why) : 0;
    if (why)
        snprintf(why + used, BUDGETS_WHY_BYTES - used, "%sless %s of device memory for %d thread%s", used ? "; " : "",
                 size_format(size, bytes),
                 r->device->info.threads, plural((uint64_t)r->device->info.threads));
}

/* ---- all ---- */

int budgets_choose(const budget_request *r, uint64_t budget[TIERS], bool *host_tier, char why[BUDGETS_WHY_BYTES], pt_error *e)
{
    findings f;
    int failed = find(r, &f, e);
    if (failed)
        return failed;
    tell_change(r, "");
    *host_tier = f.gpu || (r->asked[TIER_HOST] != PT_AUTO && r->asked[TIER_HOST] > 0);
    choose(r, &f, *host_tier, budget);
    if (why)
        say_why(r, &f, why);
    failed = check_all(r, &f, budget, e);
    if (!failed)
        leave_to_threads(r, budget, why);
    return failed;
}

static uint64_t margin_of_machine(const machine_spec *x, tier t)
{
    uint64_t bytes = x->memory_bytes[t];
    return t == TIER_DISK ? MACHINE_DISK_MARGIN : t == TIER_DEVICE && x->cuda ? gpu_margin(bytes) : ram_margin(bytes);
}

/* A budget of all that a tier has leaves the system and other programs nothing. */
static void tell_full(const machine_spec *x, const budget_request *r, tier t)
{
    char sentence[300], all[32], margin[32], rest[32], flag[32];
    const uint64_t bytes = x->memory_bytes[t], kept = margin_of_machine(x, t);
    if (!r->notice || r->asked[t] == PT_AUTO || r->asked[t] > bytes || r->asked[t] <= less(bytes, kept))
        return;
    snprintf(flag, sizeof flag, "`%s_memory`", tier_names[t]);
    snprintf(sentence, sizeof sentence,
             "%s leaves too little of the machine's %s: the system and other programs need about %s; give %s, or leave the option out",
             flag, size_format(all, bytes), size_format(margin, kept), size_option(rest, less(bytes, kept)));
    r->notice(r->arg, sentence);
}

void budgets_of_machine(const machine_spec *x, const budget_request *r, uint64_t budget[TIERS], bool *host_tier,
                        char why[BUDGETS_WHY_BYTES])
{
    const uint64_t *asked = r->asked;
    *why = 0;
    *host_tier = x->cuda ? x->memory_bytes[TIER_HOST] && asked[TIER_HOST] : asked[TIER_HOST] != PT_AUTO && asked[TIER_HOST];
    for (tier t = 0; t < TIERS; t++) {
        tell_full(x, r, t);
        budget[t] = asked[t] != PT_AUTO ? asked[t] : less(x->memory_bytes[t], margin_of_machine(x, t));
        if (asked[t] == PT_AUTO && x->memory_bytes[t] && (t != TIER_HOST || *host_tier))
            say_room(why, x->memory_bytes[t], "in the machine file", x->cuda || t ? tier_names[t] : "RAM", margin_of_machine(x, t), OTHERS);
    }
    if (!*host_tier)
        budget[TIER_HOST] = 0;
    if (!x->cuda && asked[TIER_DEVICE] == PT_AUTO)
        budget[TIER_DEVICE] = less(budget[TIER_DEVICE], budget[TIER_HOST]); /* both are in its RAM */
}
