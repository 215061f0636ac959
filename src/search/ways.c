/* ways.c - budgets with which a step that does not fit would fit.
 *
 * The search itself decides whether a budget suffices, so all advice was planned before it is given. Advised budgets are sizes on a grid
 * (size_granule); for each, one granule less was tried and does not suffice. The memory that a search needs does not always grow with its
 * budgets, because other budgets are filled differently; so the last step walks downwards.
 */
#include "search/search.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const uint64_t UNLIMITED = (uint64_t)1 << 60;

/* ---- sizes as the options have them ---- */

static uint64_t beside(const search_input *in, tier t) { return t == TIER_DEVICE ? in->threads_bytes : 0; }

/* The budget of an option, and the option of a budget. */
static uint64_t budget_of(const search_input *in, tier t, uint64_t option)
{
    return option > beside(in, t) ? option - beside(in, t) : 0;
}

static uint64_t option_of(const search_input *in, tier t, uint64_t budget) { return budget + beside(in, t); }

/* The largest budget up to this one whose option is on the grid. */
static uint64_t on_grid(const search_input *in, tier t, uint64_t budget)
{
    return budget_of(in, t, size_round_down(option_of(in, t, budget)));
}

void search_write_options(const search_input *in, const uint64_t budget[TIERS], char *out, size_t n)
{
    size_t used = 0;
    char size[32];
    out[0] = 0;
    for (tier t = 0; t < TIERS; t++)
        if (budget[t] > in->budget[t] && used < n)
            used += (size_t)snprintf(out + used, n - used, "%s`%s_memory` %s", used ? " " : "", tier_names[t],
                                     size_option(size, option_of(in, t, budget[t])));
}

/* ---- one budget ---- */

int search_fits(const search_input *in, uint64_t needs[TIERS], pt_error *e)
{
    search_result r = {0};
    pt_error own = {0};
    search_input soon = *in;
    soon.only_fits = soon.unproven = true;
    soon.no_least = !needs;
    int failed = search_plan(&soon, &r, &own);
    if (needs)
        memcpy(needs, r.least, sizeof r.least);
    search_result_free(&r);
    if (failed && failed != PT_DOES_NOT_FIT && e)
        *e = own;
    return !failed ? 1 : failed == PT_DOES_NOT_FIT ? 0 : failed;
}

static int option_suffices(search_input *in, tier t, uint64_t option, pt_error *e)
{
    in->budget[t] = budget_of(in, t, option);
    return search_fits(in, NULL, e);
}

/* A size between them on the grid: the arithmetic mean, or the geometric mean if they are far apart. */
static uint64_t between(uint64_t no, uint64_t yes)
{
    const uint64_t half = yes / 4 > no ? (uint64_t)sqrt((double)(no + 1) * (double)yes) : no + (yes - no) / 2;
    return size_round_up(half);
}

/* in->budget[t] suffices: reduces it to the least that does, but not below `from`. */
static int lower(search_input *in, tier t, uint64_t from, pt_error *e)
{
    const uint64_t first = option_of(in, t, from);
    uint64_t no = first, yes = option_of(in, t, in->budget[t]);
    int found = option_suffices(in, t, first, e);
    if (found)
        return found;
    for (uint64_t half = between(no, yes); yes - no > size_granule(yes) && half < yes; half = between(no, yes)) {
        if ((found = option_suffices(in, t, half, e)) < 0)
            return found;
        *(found ? &yes : &no) = half;
    }
    for (found = 1; found > 0 && yes > first + size_granule(yes) && yes - size_granule(yes) != no;)
        if ((found = option_suffices(in, t, yes - size_granule(yes), e)) > 0)
            yes -= size_granule(yes);
    in->budget[t] = budget_of(in, t, yes);
    return found < 0 ? found : 1;
}

/* ---- several budgets ---- */

/* Raises the budgets of `tiers`, none beyond `most`, and makes each the least that suffices with the others as they are. `shared`: host
 * memory is taken from the device. 1: found; 0: even `most` does not suffice. */
static int budgets_that_fit(const search_input *in, unsigned tiers, const uint64_t most[TIERS], bool shared, uint64_t budget[TIERS],
                            pt_error *e)
{
    static const tier order[TIERS] = {TIER_HOST, TIER_DEVICE, TIER_DISK}; /* as little RAM as possible beside a whole GPU */
    search_input raised = *in;
    for (tier t = 0; t < TIERS; t++) {
        const uint64_t top = tiers & 1u << t ? on_grid(in, t, most[t]) : 0;
        raised.budget[t] = top > in->budget[t] ? top : in->budget[t];
    }
    int found = memcmp(raised.budget, in->budget, sizeof in->budget) ? search_fits(&raised, NULL, e) : 0;
    for (int i = 0; i < TIERS && found > 0; i++) {
        const uint64_t hosts = raised.budget[TIER_HOST] - in->budget[TIER_HOST];
        if (order[i] == TIER_DEVICE && shared && hosts && hosts <= raised.budget[TIER_DEVICE]) { /* the device gets what the host leaves */
            raised.budget[TIER_DEVICE] = on_grid(in, TIER_DEVICE, raised.budget[TIER_DEVICE] - hosts);
            found = raised.budget[TIER_DEVICE] < in->budget[TIER_DEVICE] ? 0 : search_fits(&raised, NULL, e);
        }
        if (found > 0 && raised.budget[order[i]] > in->budget[order[i]])
            found = lower(&raised, order[i], in->budget[order[i]], e);
    }
    memcpy(budget, raised.budget, sizeof raised.budget);
    return found;
}

/* ---- the ways, in order ---- */

enum { DEVICE = 1 << TIER_DEVICE, HOST = 1 << TIER_HOST, DISK = 1 << TIER_DISK };

/* Several tiers together only if no way of that kind was found. The tiers of `beyond` may exceed what is there. */
typedef struct attempt { search_way_kind kind; unsigned tiers, beyond; } attempt;
static const attempt attempts[] = {
    {WAY_MEMORY, DEVICE, 0}, {WAY_MEMORY, HOST, 0}, {WAY_MEMORY, DEVICE | HOST, 0},
    {WAY_DISK, DISK, 0}, {WAY_DISK, DEVICE | DISK, 0}, {WAY_DISK, DEVICE | HOST | DISK, 0},
    {WAY_RAM, DEVICE, DEVICE}, {WAY_RAM, HOST, HOST}, {WAY_RAM, DEVICE | HOST, HOST}, {WAY_RAM, DEVICE | HOST, DEVICE | HOST},
    {WAY_GPU, DEVICE | HOST, DEVICE | HOST},
};

static bool has_way(const search_ways *w, search_way_kind kind)
{
    bool has = false;
    for (int i = 0; i < w->n; i++)
        has = has || w->way[i].kind == kind;
    return has;
}

static bool has_way_without_disk(const search_ways *w)
{
    return has_way(w, WAY_MEMORY) || has_way(w, WAY_RAM) || has_way(w, WAY_GPU);
}

/* If the RAM that is there suffices, none is advised to buy; a larger GPU is advised only if nothing else helps. */
static bool is_of_use(const search_input *in, const search_room *room, const attempt *a, const search_ways *found)
{
    const bool several = a->tiers & (a->tiers - 1);
    if ((a->tiers == HOST || a->beyond & HOST) && !in->host_tier)
        return false;
    if (several && (has_way(found, a->kind) || has_way(found, WAY_MEMORY)))
        return false;
    switch (a->kind) {
    case WAY_RAM: return !has_way(found, WAY_MEMORY) && (room->gpu ? !(a->beyond & DEVICE) : !several || a->beyond & DEVICE);
    case WAY_GPU: return !found->n && room->gpu;
    default: return true;
    }
}

int search_find_ways(const search_input *in, const search_room *room, bool one, search_ways *out, pt_error *e)
{
    out->n = 0;
    for (size_t i = 0; i < sizeof attempts / sizeof *attempts && !(one && has_way_without_disk(out)); i++) {
        const attempt *a = &attempts[i];
        uint64_t most[TIERS];
        if (!is_of_use(in, room, a, out))
            continue;
        for (tier t = 0; t < TIERS; t++)
            most[t] = a->beyond & 1u << t ? UNLIMITED : room->has[t];
        int found = budgets_that_fit(in, a->tiers, most, !room->gpu && !a->beyond, out->way[out->n].budget, e);
        if (found < 0)
            return found;
        out->way[out->n].kind = a->kind;
        out->n += found;
    }
    return 0;
}
