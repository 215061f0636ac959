/* misfit.c - what helps when no plan fits the budgets, in the order in which a user would try it. Each is planned before it is suggested.
 *
 *   more of the memory that is there     if a budget was too low
 *   a smaller step                       changes the result
 *   the disk                             makes the step slower
 *   layers by turns                      changes the result
 *   adapters, on a base in few bits      changes the result; with a smaller step if only both together fit
 *   states in 8 bits                     changes the result slightly
 *   more RAM, or a larger GPU            must be bought
 */
#include "train/misfit.h"

#include "base/units.h"
#include "io/disk.h"
#include "train/lighter.h"

#include <stdio.h>
#include <string.h>

/* ---- available memory ---- */

/* A machine file without a disk does not limit its size. */
static bool disk_is_unknown(const planning *planning)
{
    const machine_spec *x = &planning->machine;
    return planning->from_file && !planning->runs && !x->memory_bytes[TIER_DISK] && (!x->cuda || x->memory_bytes[TIER_HOST]);
}

/* The budgets if none were given; on a CPU the host tier is a part of the given RAM. */
static search_room find_room(const planning *p)
{
    enum { ANY_DISK = 50 }; /* 2^50 bytes */
    search_room r = {.gpu = p->from_file ? p->machine.cuda : device_is_gpu(p->device)};
    pt_train_options o = *p->o;
    planning all = *p;
    o.device_memory = o.disk_memory = PT_AUTO;
    o.host_memory = r.gpu ? PT_AUTO : o.host_memory;
    o.notice = NULL;
    all.o = &o;
    const bool known = !planning_budgets(&all, NULL);
    memcpy(r.has, known ? all.budget : p->budget, sizeof r.has);
    if (!r.gpu && p->host_tier)
        r.has[TIER_HOST] += r.has[TIER_DEVICE] > p->budget[TIER_DEVICE] ? r.has[TIER_DEVICE] - p->budget[TIER_DEVICE] : 0;
    if (disk_is_unknown(p))
        r.has[TIER_DISK] = (uint64_t)1 << ANY_DISK;
    for (tier t = 0; t < TIERS; t++)
        if (r.has[t] < p->search.budget[t])
            r.has[t] = p->search.budget[t];
    return r;
}

/* ---- sentences ---- */

static void add_change(planning *planning, const char *text)
{
    if (!planning->change[0])
        snprintf(planning->change, sizeof planning->change, "%s", text);
    else if (planning->others_n < MISFIT_OTHERS)
        snprintf(planning->other_changes[planning->others_n++], MISFIT_CHANGE_BYTES, "%s", text);
}

static void add_budgets(planning *planning, const search_room *room, const uint64_t budget[TIERS])
{
    char change[MISFIT_CHANGE_BYTES];
    misfit_say_change(&planning->search, room, budget, planning->from_file && !planning->runs ? "the machine has" : "is free here", change);
    add_change(planning, change);
}

static void add_ways(planning *planning, const search_room *room, const search_ways *w, search_way_kind kind)
{
    for (int i = 0; i < w->n; i++)
        if (w->way[i].kind == kind)
            add_budgets(planning, room, w->way[i].budget);
}

typedef int (*lighter_way)(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e);

/* 1: there is one. */
static int add_lighter(planning *planning, lighter_way find, pt_error *e)
{
    char change[MISFIT_CHANGE_BYTES];
    const int found = find(planning, change, e);
    if (found > 0)
        add_change(planning, change);
    return found;
}

static int add_smaller_step(planning *planning, pt_error *e)
{
    const int found = lighter_step(planning, planning->smaller, e);
    if (found > 0)
        add_change(planning, planning->smaller);
    return found;
}

/* `any`: a smaller step was found. */
static int add_all_lighter(planning *planning, bool any, pt_error *e)
{
    static const lighter_way ways[] = {lighter_layers, lighter_adapters, lighter_states};
    int found = 0;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && found >= 0; i++) {
        found = add_lighter(planning, ways[i], e);
        any = any || found;
    }
    return found < 0 ? found : any ? 0 : add_lighter(planning, lighter_both, e);
}

static int say_misfit(const planning *planning, pt_error *e)
{
    char budgets[256];
    misfit_say_budgets(&planning->search, budgets, sizeof budgets);
    pt_fail(e, PT_DOES_NOT_FIT, "it does not fit into %s", budgets);
    if (!planning->from_file && planning->room[0])
        misfit_append(e->text, sizeof e->text, " (%s)", planning->room);
    if (!planning->smaller[0])
        misfit_append(e->text, sizeof e->text, ", nor does a smaller step");
    if (planning->change[0])
        misfit_append(e->text, sizeof e->text, ": give %s", planning->change);
    for (int i = 0; i < planning->others_n; i++)
        misfit_append(e->text, sizeof e->text, ", or %s", planning->other_changes[i]);
    return PT_DOES_NOT_FIT;
}

/* ---- all ---- */

/* The missing bytes are those that the first way by memory alone adds, else another way. */
static void note_missing(planning *planning, const search_ways *w)
{
    int at = 0;
    for (int i = w->n - 1; i >= 0; i--)
        at = w->way[i].kind == WAY_DISK ? at : i;
    if (w->n)
        memcpy(planning->result.least, w->way[at].budget, sizeof planning->result.least);
}

int misfit_explain(planning *planning, pt_error *e)
{
    const search_room room = find_room(planning);
    search_ways w;
    budgets_notice_disk(&(budget_request){.asked = {[TIER_DISK] = planning->o->disk_memory},
                                          .disk_path = planning->disk_path,
                                          .notice = planning->from_file && !planning->runs ? NULL : planning->o->notice,
                                          .arg = planning->o->arg});
    int failed = search_find_ways(&planning->search, &room, planning->of_way, &w, e);
    if (failed)
        return failed;
    if (planning->of_way) {
        note_missing(planning, &w);
        return say_misfit(planning, e);
    }
    add_ways(planning, &room, &w, WAY_MEMORY);
    const int smaller = add_smaller_step(planning, e);
    if (smaller < 0)
        return smaller;
    add_ways(planning, &room, &w, WAY_DISK);
    if ((failed = add_all_lighter(planning, smaller, e)) < 0)
        return failed;
    add_ways(planning, &room, &w, WAY_RAM);
    add_ways(planning, &room, &w, WAY_GPU);
    note_missing(planning, &w);
    return say_misfit(planning, e);
}

int misfit_of_plan(planning *planning, const uint64_t needs[TIERS], pt_error *e)
{
    const search_room room = find_room(planning);
    char tiers[256] = "", need[32], have[32];
    for (tier t = 0; t < TIERS; t++)
        if (needs[t] > planning->search.budget[t])
            misfit_append(tiers, sizeof tiers, "%s%s of %s memory (the budget is %s)", *tiers ? " and " : "", size_format(need, needs[t]),
                   tier_names[t], size_format(have, planning->search.budget[t]));
    add_budgets(planning, &room, needs);
    return pt_fail(e, PT_DOES_NOT_FIT, "%.300s needs %s: give %s, or leave `plan_file` out", planning->o->plan_file, tiers,
                   planning->change);
}
