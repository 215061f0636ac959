#include "measure/profile_get.h"

#include "measure/measure_parts.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- checks ---- */

typedef struct checked {
    profile_part part;
    const char *what;
    size_t at;   /* offset of the profile_check in the result */
    double room; /* factor on the allowed difference: larger for disk writes, because disks have caches */
    bool (*there)(const profile_request *r); /* is the check possible? NULL: always */
    int (*run)(bench *b, int64_t amount, double *ns, pt_error *e);
} checked;

static bool has_host(const profile_request *r) { return r->host_tier; }
static bool has_copies(const profile_request *r) { return r->host_tier && r->transfers; }

static const checked checks[] = {
    {PROFILE_BLOCKS, "a layer's forward", offsetof(profile_result, layer), 1, NULL, check_layer},
    {PROFILE_MACHINE, "an update", offsetof(profile_result, update), 1, NULL, check_update},
    {PROFILE_MACHINE, "an update on the host", offsetof(profile_result, update_host), 1, has_host, check_update_host},
    {PROFILE_MACHINE, "a copy to the device", offsetof(profile_result, to_device), 1, has_copies, check_to_device},
    {PROFILE_MACHINE, "a copy from the device", offsetof(profile_result, from_device), 1, has_copies, check_from_device},
    {PROFILE_MACHINE, "a disk read", offsetof(profile_result, read), 1, links_have_disk, check_read},
    {PROFILE_MACHINE, "a disk write", offsetof(profile_result, write), 2, links_have_disk, check_write},
};
enum { CHECKS = sizeof checks / sizeof *checks, TRIES = 3 };
static const double same = 1.15; /* within the accuracy of a measurement */

static profile_check *check_of(profile_result *p, const checked *c) { return (profile_check *)((char *)p + c->at); }

/* The ratio of the longer to the shorter time. */
static double apart(double a, double b) { return a > 0 && b > 0 ? fmax(a / b, b / a) : INFINITY; }

/* Returns the run that is nearest to the recorded time, because other programs may disturb some runs. */
static int try_check(bench *b, const checked *c, const profile_check *was, double *ns, pt_error *e)
{
    double nearest = INFINITY, took;
    *ns = 0;
    for (int try = 0; try < TRIES && nearest > same; try++) {
        int failed = c->run(b, was->amount, &took, e);
        if (failed)
            return failed;
        if (apart(took, was->ns) > nearest)
            continue;
        nearest = apart(took, was->ns);
        *ns = took;
    }
    return 0;
}

static void tell_apart(const profile_request *r, const char *what, double now_ns, double then_ns)
{
    char sentence[640];
    if (!r->notice || !r->file)
        return;
    snprintf(sentence, sizeof sentence, "%.400s: %s takes %.3g ms now and took %.3g ms when it was measured: predictions from this "
                                        "profile may be off by as much",
             r->file, what, now_ns * 1e-6, then_ns * 1e-6);
    r->notice(r->arg, sentence);
}

/* Repeats the checks of a part. PT_FAILED if a time differs from the record by a factor of more than `most`. */
static int check_part(bench *b, profile_part part, profile_result *p, double most, pt_error *e)
{
    for (int i = 0; i < CHECKS; i++) {
        const checked *c = &checks[i];
        const profile_check *was = check_of(p, c);
        double ns;
        if (c->part != part || !was->amount || (c->there && !c->there(b->r)))
            continue;
        pt_error own = {0};
        int failed = try_check(b, c, was, &ns, &own);
        if (failed == PT_DOES_NOT_FIT) /* it was measured within larger budgets */
            continue;
        if (failed)
            return pt_fail(e, failed, "%s", own.text);
        if (!(apart(ns, was->ns) <= most * c->room)) {
            const char *file = b->r->file;
            return pt_fail(e, PT_FAILED,
                           "%.300s%s%s takes %.3g ms now and took %.3g ms when it was measured: this is another machine, or it is busy; "
                           "measure again",
                           file ? file : "", file ? ": " : "", c->what, ns * 1e-6, was->ns * 1e-6);
        }
        if (apart(ns, was->ns) > same)
            tell_apart(b->r, c->what, ns, was->ns);
    }
    return 0;
}

/* Records the times of the checks with the given amounts, each the least of several runs, because one may be disturbed. */
static int note_checks(bench *b, profile_part part, profile_result *p, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < CHECKS && !failed; i++) {
        profile_check *c = check_of(p, &checks[i]);
        double took = INFINITY, least = INFINITY;
        if (checks[i].part != part || !c->amount)
            continue;
        for (int try = 0; try < TRIES && !failed; try++) {
            failed = checks[i].run(b, c->amount, &took, e);
            least = fmin(least, took);
        }
        c->ns = least;
    }
    return failed;
}

/* ---- parts ---- */

/* The largest measured amount up to `most`, so that a check is quick. */
static int64_t amount_of(const cost_curve *c, int64_t most)
{
    int at = 0;
    while (at + 1 < c->n && c->amount[at + 1] <= (double)most)
        at++;
    return c->n ? (int64_t)c->amount[at] : 0;
}

static void choose_amounts(profile_result *p)
{
    const costs *c = &p->costs;
    p->update.amount = amount_of(&c->update_device, CHECK_ELEMENTS);
    p->update_host.amount = amount_of(&c->update_host, CHECK_ELEMENTS);
    p->to_device.amount = amount_of(&c->to_device, CHECK_BYTES);
    p->from_device.amount = amount_of(&c->from_device, CHECK_BYTES);
    p->read.amount = amount_of(&c->read, CHECK_BYTES);
    p->write.amount = amount_of(&c->write, CHECK_BYTES);
}

/* Rounds the costs as the file does, so that the file leads to the same plan. */
static int settle(profile_part part, const profile_request *r, profile_result *p, pt_error *e)
{
    char *text = profile_parts_to_json(1u << part, r, p);
    int failed = text ? profile_parts_from_json(1u << part, "what was measured", text, strlen(text), r, p, e)
                      : pt_fail(e, PT_FAILED, "out of memory");
    free(text);
    return failed;
}

/* Allocates once for all measurements: freeing and allocating for each took 10% of the time of a profile. Needs beyond 2 GiB are left out,
 * because those measurements take long anyway. If the allocation fails, each measurement allocates its own memory. */
static void reserve_memory(bench *b)
{
    pt_error e = {0};
    const uint64_t some = 2ull << 30, each[] = {rates_memory(b), links_memory(b), layer_memory(b), head_memory(b), embed_finish_memory(b)};
    uint64_t most = 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        if (each[i] > most && each[i] <= some)
            most = each[i];
    bench_reserve(b, TIER_DEVICE, most, &e);
}

static int measure_machine(bench *b, profile_result *p, pt_error *e)
{
    int failed = measure_rates(b, p, e);
    if (!failed && b->r->transfers)
        failed = measure_links(b, &p->costs, e);
    if (!failed && b->r->transfers)
        failed = measure_wake_latency(b, &p->costs.wake_latency, e);
    choose_amounts(p);
    return failed;
}

/* Adds the share of other programs to the uncertainty. */
static void note_others(profile_part part, double share, profile_result *p)
{
    double *spread = part == PROFILE_BLOCKS ? &p->costs.spread : &p->costs.curves_spread;
    p->others[part] = share;
    if (share > PROFILE_DISTURBED)
        *spread = hypot(*spread, share);
}

static int measure_part(bench *b, profile_part part, profile_result *p, pt_error *e)
{
    processor_time from, to;
    reserve_memory(b);
    int failed = processor_time_of(b->compute, &from, e);
    if (!failed && part == PROFILE_BLOCKS)
        failed = measure_blocks(b, &p->costs, &p->layer.amount, e);
    else if (!failed)
        failed = measure_machine(b, p, e);
    if (part == PROFILE_BLOCKS)
        p->within_bytes = (int64_t)b->r->budget[TIER_DEVICE];
    if (!failed)
        failed = note_checks(b, part, p, e);
    if (!failed)
        failed = processor_time_of(b->compute, &to, e);
    if (failed)
        return failed;
    note_others(part, processor_share_of_others(&from, &to), p);
    p->measured_at = (int64_t)time(NULL);
    return settle(part, b->r, p, e);
}

/* Would this request's budgets allow larger amounts to be measured? */
static bool suffices(bench *b, profile_part part, const profile_result *p)
{
    if (part == PROFILE_BLOCKS)
        return blocks_suffice(b, (uint64_t)p->within_bytes);
    return rates_suffice(b, &p->costs) && links_suffice(b, &p->costs);
}

/* Uncertain times expire after an hour: something disturbed them, which the checks with few rows do not show. They do not expire at once,
 * or such a machine would be measured at every run. */
static bool still_stands(profile_part part, const profile_result *p)
{
    const double unsure = 0.1;
    const int64_t age = (int64_t)time(NULL) - p->measured_at, hour = 3600;
    return part != PROFILE_BLOCKS || p->costs.spread <= unsure || (age >= 0 && age < hour);
}

/* why: how much memory the measurement needs, and which option gives it. */
static void tell_used(const profile_request *r, const char *why)
{
    char sentence[640];
    snprintf(sentence, sizeof sentence, "%.500s; the earlier profile is used, though it may be off", why);
    if (r->notice)
        r->notice(r->arg, sentence);
}

static void tell_others(const profile_request *r, const profile_result *p)
{
    const double then = fmax(p->others[PROFILE_BLOCKS], p->others[PROFILE_MACHINE]);
    char sentence[256];
    if (!r->notice || fmax(then, p->others_now) <= PROFILE_DISTURBED)
        return;
    if (then > PROFILE_DISTURBED)
        snprintf(sentence, sizeof sentence,
                 "other programs kept the processors busy for %.0f%% of the time while step times were measured: predictions are rough "
                 "and assume an idle machine; a later run measures again when the machine is idle", 100 * then);
    else
        snprintf(sentence, sizeof sentence,
                 "other programs keep the processors busy for %.0f%% of the time: steps take longer than predicted, because predictions "
                 "assume an idle machine", 100 * p->others_now);
    r->notice(r->arg, sentence);
}

static bool find_kept(bench *b, profile_part part, profile_result *kept)
{
    return !profile_cache_load(part, b->r, kept) && !profile_agrees(part, "kept", b->r, kept, NULL);
}

static bool is_disturbed(profile_part part, const profile_result *p) { return p->others[part] > PROFILE_DISTURBED; }

/* Can the kept part be used? Checks say little while other programs occupy the processors. */
static bool serves(bench *b, profile_part part, profile_result *kept)
{
    const double disturbed_same = 3;
    processor_time from, to;
    if (!suffices(b, part, kept) || !still_stands(part, kept) || processor_time_of(b->compute, &from, NULL))
        return false;
    const bool same_times = !check_part(b, part, kept, is_disturbed(part, kept) ? disturbed_same : same, NULL);
    if (processor_time_of(b->compute, &to, NULL))
        return false;
    const double others = processor_share_of_others(&from, &to);
    if (is_disturbed(part, kept))
        return same_times && others > PROFILE_DISTURBED;
    kept->others_now = fmax(kept->others_now, same_times ? 0 : others);
    return same_times || others > PROFILE_DISTURBED;
}

static void keep(bench *b, profile_part part, const profile_result *p)
{
    profile_result kept = *p;
    if (!is_disturbed(part, p) || !find_kept(b, part, &kept) || is_disturbed(part, &kept) || !suffices(b, part, &kept))
        profile_cache_store(part, b->r, p);
}

static int get_part(bench *b, profile_part part, profile_result *p, pt_error *e)
{
    profile_result kept = *p;
    const bool found = !b->r->fresh && find_kept(b, part, &kept);
    if (found && serves(b, part, &kept)) {
        *p = kept;
        return 0;
    }
    p->cached = false;
    pt_error own = {0};
    int failed = measure_part(b, part, p, &own);
    if (failed == PT_DOES_NOT_FIT && found) { /* the budgets were larger then, and the kept times are better than none */
        tell_used(b->r, own.text);
        *p = kept;
        return 0;
    }
    if (!failed)
        keep(b, part, p);
    return failed ? pt_fail(e, failed, "%s", own.text) : 0;
}

/* ---- whole profiles ---- */

/* Ranks that take turns on their processors hold each other up, now or when they measured. */
static int get_file(bench *b, profile_result *p, pt_error *e)
{
    const double most = 2 * bench_crowding(b);
    int failed = profile_read(b->r->file, b->r, p, e);
    for (int part = 0; part < PROFILE_PARTS && !failed; part++)
        failed = profile_agrees((profile_part)part, b->r->file, b->r, p, e);
    for (int part = 0; part < PROFILE_PARTS && !failed; part++)
        failed = check_part(b, (profile_part)part, p, most, e);
    return failed;
}

static int get_measured(bench *b, profile_result *p, pt_error *e)
{
    *p = (profile_result){.cached = true};
    costs_init(&p->costs);
    int failed = get_part(b, PROFILE_MACHINE, p, e);
    if (!failed)
        failed = get_part(b, PROFILE_BLOCKS, p, e);
    if (!failed)
        tell_others(b->r, p);
    return failed;
}

static void name_it(const profile_request *r, profile_result *p)
{
    json_t *made_for = profile_made_for(PROFILE_BLOCKS, r);
    profile_fingerprint(made_for, p->fingerprint);
    json_decref(made_for);
}

int profile_get(const profile_request *r, profile_result *out, pt_error *e)
{
    bench b;
    double start = clock_s();
    int failed = bench_open(&b, r, e);
    if (failed)
        return failed;
    failed = r->file ? get_file(&b, out, e) : get_measured(&b, out, e);
    memcpy(out->needs, b.needs, sizeof out->needs);
    bench_close(&b);
    name_it(r, out);
    out->seconds = clock_s() - start;
    return failed;
}
