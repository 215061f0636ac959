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

static bool has_host(const profile_request *req) { return req->host_tier; }
static bool has_copies(const profile_request *req) { return req->host_tier && req->transfers; }

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

static profile_check *check_of(profile_result *result, const checked *c) { return (profile_check *)((char *)result + c->at); }

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

static void tell_apart(const profile_request *req, const char *what, double now_ns, double then_ns)
{
    char sentence[640];
    if (!req->notice || !req->file)
        return;
    snprintf(sentence, sizeof sentence, "%.400s: %s takes %.3g ms now and took %.3g ms when it was measured: predictions from this "
                                        "profile may be off by as much",
             req->file, what, now_ns * 1e-6, then_ns * 1e-6);
    req->notice(req->arg, sentence);
}

/* Repeats the checks of a part. PT_FAILED if a time differs from the record by a factor of more than `most`. */
static int check_part(bench *b, profile_part part, profile_result *result, double most, pt_error *e)
{
    for (int i = 0; i < CHECKS; i++) {
        const checked *c = &checks[i];
        const profile_check *was = check_of(result, c);
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
static int note_checks(bench *b, profile_part part, profile_result *result, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < CHECKS && !failed; i++) {
        profile_check *c = check_of(result, &checks[i]);
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
static int64_t amount_of(const cost_curve *curve, int64_t most)
{
    int at = 0;
    while (at + 1 < curve->n && curve->amount[at + 1] <= (double)most)
        at++;
    return curve->n ? (int64_t)curve->amount[at] : 0;
}

static void choose_amounts(profile_result *result)
{
    const costs *costs = &result->costs;
    result->update.amount = amount_of(&costs->update_device, CHECK_ELEMENTS);
    result->update_host.amount = amount_of(&costs->update_host, CHECK_ELEMENTS);
    result->to_device.amount = amount_of(&costs->to_device, CHECK_BYTES);
    result->from_device.amount = amount_of(&costs->from_device, CHECK_BYTES);
    result->read.amount = amount_of(&costs->read, CHECK_BYTES);
    result->write.amount = amount_of(&costs->write, CHECK_BYTES);
}

/* Rounds the costs as the file does, so that the file leads to the same plan. */
static int settle(profile_part part, const profile_request *req, profile_result *result, pt_error *e)
{
    char *text = profile_parts_to_json(1u << part, req, result);
    int failed = text ? profile_parts_from_json(1u << part, "what was measured", text, strlen(text), req, result, e)
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

static int measure_machine(bench *b, profile_result *result, pt_error *e)
{
    int failed = measure_rates(b, result, e);
    if (!failed && b->r->transfers)
        failed = measure_links(b, &result->costs, e);
    if (!failed && b->r->transfers)
        failed = measure_wake_latency(b, &result->costs.wake_latency, e);
    choose_amounts(result);
    return failed;
}

/* Adds the share of other programs to the uncertainty. */
static void note_others(profile_part part, double share, profile_result *result)
{
    double *spread = part == PROFILE_BLOCKS ? &result->costs.spread : &result->costs.curves_spread;
    result->others[part] = share;
    if (share > PROFILE_DISTURBED)
        *spread = hypot(*spread, share);
}

static int measure_part(bench *b, profile_part part, profile_result *result, pt_error *e)
{
    processor_time from, to;
    reserve_memory(b);
    int failed = processor_time_of(b->compute, &from, e);
    if (!failed && part == PROFILE_BLOCKS)
        failed = measure_blocks(b, &result->costs, &result->layer.amount, e);
    else if (!failed)
        failed = measure_machine(b, result, e);
    if (part == PROFILE_BLOCKS)
        result->within_bytes = (int64_t)b->r->budget[TIER_DEVICE];
    if (!failed)
        failed = note_checks(b, part, result, e);
    if (!failed)
        failed = processor_time_of(b->compute, &to, e);
    if (failed)
        return failed;
    note_others(part, processor_share_of_others(&from, &to), result);
    result->measured_at = (int64_t)time(NULL);
    return settle(part, b->r, result, e);
}

/* Would this request's budgets allow larger amounts to be measured? */
static bool suffices(bench *b, profile_part part, const profile_result *result)
{
    if (part == PROFILE_BLOCKS)
        return blocks_suffice(b, (uint64_t)result->within_bytes);
    return rates_suffice(b, &result->costs) && links_suffice(b, &result->costs);
}

/* Uncertain times expire after an hour: something disturbed them, which the checks with few rows do not show. They do not expire at once,
 * or such a machine would be measured at every run. */
static bool still_stands(profile_part part, const profile_result *result)
{
    const double unsure = 0.1;
    const int64_t age = (int64_t)time(NULL) - result->measured_at, hour = 3600;
    return part != PROFILE_BLOCKS || result->costs.spread <= unsure || (age >= 0 && age < hour);
}

/* why: how much memory the measurement needs, and which option gives it. */
static void tell_used(const profile_request *req, const char *why)
{
    char sentence[640];
    snprintf(sentence, sizeof sentence, "%.500s; the earlier profile is used, though it may be off", why);
    if (req->notice)
        req->notice(req->arg, sentence);
}

static void tell_others(const profile_request *req, const profile_result *result)
{
    const double then = fmax(result->others[PROFILE_BLOCKS], result->others[PROFILE_MACHINE]);
    char sentence[256];
    if (!req->notice || fmax(then, result->others_now) <= PROFILE_DISTURBED)
        return;
    if (then > PROFILE_DISTURBED)
        snprintf(sentence, sizeof sentence,
                 "other programs kept the processors busy for %.0f%% of the time while step times were measured: predictions are rough "
                 "and assume an idle machine; a later run measures again when the machine is idle", 100 * then);
    else
        snprintf(sentence, sizeof sentence,
                 "other programs keep the processors busy for %.0f%% of the time: steps take longer than predicted, because predictions "
                 "assume an idle machine", 100 * result->others_now);
    req->notice(req->arg, sentence);
}

static bool find_kept(bench *b, profile_part part, profile_result *kept)
{
    return !profile_cache_load(part, b->r, kept) && !profile_agrees(part, "kept", b->r, kept, NULL);
}

static bool is_disturbed(profile_part part, const profile_result *result) { return result->others[part] > PROFILE_DISTURBED; }

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

static void keep(bench *b, profile_part part, const profile_result *result)
{
    profile_result kept = *result;
    if (!is_disturbed(part, result) || !find_kept(b, part, &kept) || is_disturbed(part, &kept) || !suffices(b, part, &kept))
        profile_cache_store(part, b->r, result);
}

static int get_part(bench *b, profile_part part, profile_result *result, pt_error *e)
{
    profile_result kept = *result;
    const bool found = !b->r->fresh && find_kept(b, part, &kept);
    if (found && serves(b, part, &kept)) {
        *result = kept;
        return 0;
    }
    result->cached = false;
    pt_error own = {0};
    int failed = measure_part(b, part, result, &own);
    if (failed == PT_DOES_NOT_FIT && found) { /* the budgets were larger then, and the kept times are better than none */
        tell_used(b->r, own.text);
        *result = kept;
        return 0;
    }
    if (!failed)
        keep(b, part, result);
    return failed ? pt_fail(e, failed, "%s", own.text) : 0;
}

/* ---- whole profiles ---- */

/* Ranks that take turns on their processors hold each other up, now or when they measured. */
static int get_file(bench *b, profile_result *result, pt_error *e)
{
    const double most = 2 * bench_crowding(b);
    int failed = profile_read(b->r->file, b->r, result, e);
    for (int part = 0; part < PROFILE_PARTS && !failed; part++)
        failed = profile_agrees((profile_part)part, b->r->file, b->r, result, e);
    for (int part = 0; part < PROFILE_PARTS && !failed; part++)
        failed = check_part(b, (profile_part)part, result, most, e);
    return failed;
}

static int get_measured(bench *b, profile_result *result, pt_error *e)
{
    *result = (profile_result){.cached = true};
    costs_init(&result->costs);
    int failed = get_part(b, PROFILE_MACHINE, result, e);
    if (!failed)
        failed = get_part(b, PROFILE_BLOCKS, result, e);
    if (!failed)
        tell_others(b->r, result);
    return failed;
}

static void name_it(const profile_request *req, profile_result *result)
{
    json_t *made_for = profile_made_for(PROFILE_BLOCKS, req);
    profile_fingerprint(made_for, result->fingerprint);
    json_decref(made_for);
}

int profile_get(const profile_request *req, profile_result *out, pt_error *e)
{
    bench b;
    double start = clock_s();
    int failed = bench_open(&b, req, e);
    if (failed)
        return failed;
    failed = req->file ? get_file(&b, out, e) : get_measured(&b, out, e);
    memcpy(out->needs, b.needs, sizeof out->needs);
    bench_close(&b);
    name_it(req, out);
    out->seconds = clock_s() - start;
    return failed;
}
