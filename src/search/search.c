/* search.c - how the space is searched.
 *
 *   1  The most economical plan. It shows whether anything fits, and whether the disk is needed.
 *   2  For each size of chunk and each division of the step, a descent over the moves by the estimate alone. The best of these, the same
 *      with updates elsewhere, and the policies are built and simulated: now there is a good plan.
 *   3  From the best plan, its neighbours are simulated in the order of their expected times until one is faster; then again from there,
 *      until no neighbour is faster; then from the next best start, which leads elsewhere. For models of many layers, the expected time is
 *      the estimate, corrected by the errors seen for this kind of candidate, and successful steps are repeated at twice the length. Only
 *      large gains count at first, from the best plan and from plans nearly as fast with other chunks, another division or stride. At the
 *      end, all neighbours of the best are tried without corrections.
 *   4  For models of few layers, the same from a start for each size of chunk, division and time of update; then pairs of moves; then all
 *      layers alike with every small number of slots (uniform.c).
 *   5  The same within 0.9 and 0.8 of the device's memory: the best plan there, given the rest of the memory, starts another walk.
 *   6  With the work that remains, single chunks of the best plan move to other tiers. For models of few layers this alternates with walks
 *      from similar candidates until nothing is faster; then very few chunks are tried in all arrangements (result.c, placements.c,
 *      arrange.c).
 *
 * The search uses no random numbers, and it ends after so much work, counted by simulated tasks and estimated candidates (walk_is_over):
 * the same inputs give the same plan on every machine, whatever else runs there. A priced candidate is stored and not priced again. Other
 * cores price what will be asked for next (ahead.c): that takes less time and counts as the same work.
 */
#include "search/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The result of a whole search is never slower than a policy: all are priced, however much work that is. A part of it leaves out what
 * comes after its work. */
static int try_policies(walk *w)
{
    const bool all = search_effort(w->s.in) >= 1 && !w->s.in->part;
    for (policy p = 0; p < POLICIES && (all || !walk_is_over(w)); p++) {
        int fits = policy_price(&w->s, p, &w->policies[p], w->e);
        if (fits < 0)
            return fits;
        if (fits)
            walk_keep(w, &w->policies[p]);
        w->policy_fits[p] = fits;
    }
    return 0;
}

/* The starts whose estimates are better than the best plan. */
static int try_starts(walk *w, int most)
{
    for (int i = 0; i < w->starts_n && i < most && w->starts[i].ns < walk_best_ns(w) && !walk_is_over(w); i++) {
        priced p;
        int found = walk_try(w, &w->starts[i].candidate, walk_best_ns(w), &p);
        if (found < 0)
            return found;
    }
    return 0;
}

/* Walks from the starts. A start may be estimated too well and still lead to something better. */
static int follow_starts(walk *w)
{
    for (int i = 0; i < w->starts_n && !walk_is_over(w); i++) {
        double worth = walk_best_ns(w) * (space_has_few_layers(&w->s) ? 1.2 : 1);
        priced p;
        if (w->starts[i].ns >= worth)
            break;
        int found = walk_try(w, &w->starts[i].candidate, space_has_few_layers(&w->s) ? 0 : worth, &p);
        if (found > 0)
            found = walk_improve(w, p);
        if (found < 0)
            return found;
    }
    return 0;
}

/* Forgets the errors of estimates seen elsewhere, which say nothing about other kinds of candidates. Keeps at least the error that the most
 * economical plan showed. */
static void begin_afresh(walk *w, const priced *least)
{
    space_correct(&w->s, &least->candidate, least->bytes);
    for (int t = 0; t < TIERS; t++)
        w->s.fill[t] = (uint64_t)((double)(w->s.fill[t] > w->s.budget[t] ? w->s.fill[t] : w->s.budget[t]) *
                                  (w->wide ? walk_memory_slack(w) : 1));
}

/* If nothing that the estimate proposes was found to fit: the most economical plan, divided in other ways. Full budgets leave no room for
 * the error of an estimate. More slots for updates may need less memory, because gradients leave sooner. */
static int follow_least(walk *w, const candidate *from, const priced *least)
{
    const candidate *like = &least->candidate;
    const int of = candidate_chunks(&w->s, like), chunks = candidate_chunks(&w->s, from);
    int found = 0;
    for (int slots = 1; slots <= 3 && !found && !walk_is_over(w); slots++) {
        candidate cand = *from;
        priced p;
        candidate_blocks(&w->s, &cand, 0, w->s.layers, SAVE_INPUT, (tier)like->place[space_first_saving(&w->s)]);
        cand.persist = (like->persist * chunks + of - 1) / of;
        cand.whole = like->whole * chunks / of;
        cand.on_host = like->persist + like->on_host == of ? chunks - cand.persist : like->on_host * chunks / of;
        cand.stride = like->stride;
        cand.n_update = slots;
        cand.n_swap = like->n_swap;
        candidate_normalise(&w->s, &cand);
        found = walk_try(w, &cand, walk_best_ns(w) * walk_time_slack(w), &p);
        if (found > 0)
            return walk_improve(w, p);
    }
    return found;
}

/* Tries one more start, and walks from it if it is not much slower than the best. A start that does not fit shows the error of the
 * estimate; if nothing is found after that, the correction was too large. The most economical plan comes last. */
static int follow(walk *w, const candidate *from, const priced *least)
{
    enum { TRIES = 5 };
    uint64_t last[TIERS] = {0}; /* the budgets for estimates at the last success */
    begin_afresh(w, least);
    for (int i = 0; i < TRIES && !walk_is_over(w); i++) {
        const double limit = walk_best_ns(w) * walk_time_slack(w);
        candidate cand = *from;
        priced p;
        if (walk_descend(&w->s, &cand, false, &w->s.work) >= 0) {
            memcpy(last, w->s.fill, sizeof last);
            int found = walk_try(w, &cand, limit, &p);
            if (found)
                return found < 0 ? found : walk_improve(w, p);
            if (!memcmp(last, w->s.fill, sizeof last)) /* too slow, or the result would be the same */
                return 0;
        } else if (!i) {
            break;
        } else {
            for (int t = 0; t < TIERS; t++)
                w->s.fill[t] = last[t] / 2 + w->s.fill[t] / 2;
        }
    }
    return follow_least(w, from, least);
}

/* Walks from the best of each kind, for models of few layers. */
static int follow_one(walk *w, const candidate *from, void *least) { return follow(w, from, least); }
static int follow_all(walk *w, priced *least) { return walk_each_kind(w, follow_one, least); }

/* Divides the step in the way that the estimate likes best for the rest of the candidate, and fills it. false: it does not fit with any
 * division. */
static bool cut_and_fill(space *space, candidate *cand)
{
    const candidate from = *cand;
    double least = INFINITY;
    space->work += space_work_of(space, space->splits_n * ESTIMATES_OF_FILLING);
    for (int i = 0; i < space->splits_n; i++) {
        candidate x = from;
        estimate about;
        x.micro_batch = space->splits[i].micro_batch;
        x.visit = space->splits[i].visit;
        if (candidate_fill(space, &x, space->fill, &about) && walk_with_tasks(space, &x, about.ns) < least) {
            least = walk_with_tasks(space, &x, about.ns);
            *cand = x;
        }
    }
    return least < INFINITY;
}

/* The best with updates elsewhere and other slots for them. Estimates model slots of updates poorly, and single moves seldom lead there,
 * because a slot on the device takes memory that a smaller micro-batch has to free. */
static int try_strides(walk *w)
{
    const int strides[] = {1, 0, w->s.stride, 2, 4}, slots[] = {0, -1, 1};
    const candidate best = w->kept[0].candidate;
    int failed = 0;
    for (size_t i = 0; i < sizeof strides / sizeof *strides && w->s.in->host_tier && w->s.in->training; i++)
        for (size_t k = 0; k < (i < 2 ? 3 : 1) && failed >= 0 && !walk_is_over(w); k++) {
            candidate cand = best;
            priced p;
            cand.stride = strides[i];
            cand.n_update = best.n_update + slots[k];
            if (cand.n_update > 0 && cut_and_fill(&w->s, &cand))
                failed = walk_try(w, &cand, walk_best_ns(w), &p);
        }
    return failed < 0 ? failed : 0;
}

/* Descents for all divisions of the step, then for other chunks with the division that simulation likes best. */
static int look_around(walk *w)
{
    enum { FIRST = 3, LATER = 6 };
    way ways[SPACE_SPLITS > SPACE_CHUNKINGS ? SPACE_SPLITS : SPACE_CHUNKINGS];
    for (int i = 0; i < w->s.splits_n; i++)
        ways[i] = (way){0, w->s.splits[i]};
    walk_find_starts(w, ways, w->s.splits_n);
    int failed = try_starts(w, FIRST);
    if (failed)
        return failed;
    const candidate *best = w->starts_n ? &w->kept[0].candidate : NULL;
    for (int g = 1; g < w->s.chunkings_n; g++)
        ways[g - 1] = (way){g, best ? (split){best->micro_batch, best->visit} : w->s.splits[0]};
    walk_find_starts(w, ways, w->s.chunkings_n - 1);
    failed = try_starts(w, LATER);
    return failed ? failed : try_strides(w);
}

/* Walks within less device memory, from the best plan as it fits there and from new starts; at the end kept[0] is the best there. 0:
 * nothing fits. */
static int walk_within_less(walk *w, const priced *best)
{
    candidate cand = best->candidate;
    priced p;
    w->kept_n = w->starts_n = 0;
    space_correct(&w->s, &cand, best->bytes);
    int fits = candidate_price_filled(&w->s, &cand, 0, 0, &p, w->e);
    if (fits <= 0)
        return fits;
    walk_keep(w, &p);
    int failed = look_around(w);
    if (!failed && !space_has_few_layers(&w->s))
        failed = walk_improve_briskly(w);
    if (!failed)
        failed = walk_improve(w, w->kept[0]);
    return failed ? failed : 1;
}

/* From a plan found within less memory, with as much as there is. */
static int walk_with_all(walk *w, const priced *from)
{
    candidate cand = from->candidate;
    priced p;
    space_correct(&w->s, &cand, from->bytes);
    candidate_fill(&w->s, &cand, w->s.fill, &(estimate){0});
    int fits = candidate_price_filled(&w->s, &cand, 0, 0, &p, w->e);
    if (fits <= 0)
        return fits;
    walk_keep(w, &p);
    return walk_improve(w, p);
}

/* A walk ends where every neighbour is slower, and a full device leaves few neighbours: the best plan within less memory, given the rest of
 * it, is often the start of a better walk. */
static int descend_from_less(walk *w, double share)
{
    const uint64_t budget = w->s.budget[TIER_DEVICE];
    priced *kept = malloc(sizeof w->kept);
    if (!kept)
        return pt_fail(w->e, PT_FAILED, "out of memory while searching for a plan");
    const int kept_n = w->kept_n;
    memcpy(kept, w->kept, sizeof w->kept);
    ahead_settle(w->ahead);
    w->s.budget[TIER_DEVICE] = (uint64_t)((double)budget * share);
    w->less = true;
    int found = walk_within_less(w, &kept[0]);
    const priced end = w->kept[0];
    w->less = false;
    ahead_settle(w->ahead);
    w->s.budget[TIER_DEVICE] = budget;
    memcpy(w->kept, kept, sizeof w->kept);
    w->kept_n = kept_n;
    free(kept);
    if (found > 0) {
        walk_keep(w, &end);
        found = walk_with_all(w, &end);
    }
    return found < 0 ? found : 0;
}

static int walk_all(walk *w, priced *least)
{
    enum { LITTLE = 4000 }; /* if so little was worth a try, there is time for more */
    walk_keep(w, least);
    space_correct(&w->s, &least->candidate, least->bytes);
    int failed = w->s.in->from ? 0 : look_around(w);
    if (!failed && !w->s.in->from)
        failed = try_policies(w);
    if (!failed && !space_has_few_layers(&w->s))
        failed = walk_improve_briskly(w);
    if (!failed)
        failed = walk_improve(w, w->kept[0]);
    if (!failed)
        failed = follow_starts(w);
    if (!failed && !space_has_few_layers(&w->s))
        failed = walk_improve_others(w);
    if (!failed && !space_has_few_layers(&w->s)) {
        w->wide = true;
        failed = walk_improve(w, w->kept[0]);
    }
    int walked = 0;
    for (int round = 0; round < 2 && space_has_few_layers(&w->s) && !failed && walked < LITTLE; round++) {
        w->wide = round > 0;
        failed = follow_all(w, least);
        if (!failed)
            failed = walk_improve_by_pairs(w);
        walked = w->s.tried;
        if (!failed && !round && w->s.in->training)
            failed = walk_try_uniform(w);
    }
    return failed;
}

/* Policies that need little memory: if memory is scarce, the few plans that looked most economical may not fit. 1: one fits. */
static int in_memory(walk *w, priced *least)
{
    static const policy each[] = {POLICY_RECOMPUTE, POLICY_FSDP};
    int fits = 0;
    for (size_t i = 0; i < sizeof each / sizeof *each && !fits; i++)
        fits = policy_price(&w->s, each[i], least, w->e);
    return fits;
}

/* Finds the most economical plan, without the disk if possible. 1: there is one. */
static int open_space(walk *w, priced *least)
{
    uint64_t disk = w->s.budget[TIER_DISK];
    w->s.budget[TIER_DISK] = 0;
    int fits = least_price(&w->s, disk > 0 || w->s.in->from, least, w->e);
    if (!fits && disk)
        fits = in_memory(w, least);
    if (fits || !disk)
        return fits;
    w->s.budget[TIER_DISK] = disk;
    return least_price(&w->s, w->s.in->from != NULL, least, w->e); /* with a plan, skip what is unlikely to fit */
}

/* A candidate like the plan to start from, filled again, else the most economical plan. 1: there is one. */
static int begin(walk *w, priced *least)
{
    const priced_plan *from = w->s.in->from;
    const uint64_t disk = w->s.budget[TIER_DISK];
    candidate cand;
    int fits = 0;
    if (from && candidate_like(&w->s, from, &cand)) {
        w->s.budget[TIER_DISK] = from->bytes[TIER_DISK] ? disk : 0;
        fits = candidate_price_filled(&w->s, &cand, 0, 0, least, w->e);
        w->s.budget[TIER_DISK] = fits ? w->s.budget[TIER_DISK] : disk;
    }
    return fits ? fits : open_space(w, least);
}

/* The share of the work after each: all of the memory, 0.9 of the device's, 0.8 of it. The rest is for placements in any order. */
enum { LESS = 2 };
static const double ALLOWED[LESS + 1] = {0.55, 0.7, 0.85};

/* Among plans with or without ranges. */
static int search_some(const search_input *in, search_result *out, pt_error *e)
{
    memset(out, 0, sizeof *out);
    walk *w = calloc(1, sizeof *w);
    if (!w)
        return pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    w->begun_s = walk_now_s();
    w->e = e;
    w->order = malloc(MOVES * sizeof *w->order);
    int failed = w->order ? space_open(&w->s, in, e) : pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    if (!failed) {
        priced least = {0};
        int fits = begin(w, &least);
        memcpy(out->least, least.bytes, sizeof out->least);
        if (fits <= 0)
            failed = fits ? fits : pt_fail(e, PT_DOES_NOT_FIT, "it does not fit: no plan was found within these budgets");
        if (!failed && !in->only_fits && !space_has_few_layers(&w->s))
            w->ahead = ahead_open(&w->s);
        w->before = w->s.work;
        for (int i = 0; i <= LESS && !failed && !in->only_fits; i++) {
            walk_allow(w, ALLOWED[i]);
            failed = !i ? walk_all(w, &least) : in->from || walk_is_over(w) ? 0 : descend_from_less(w, 1 - 0.1 * i);
        }
        ahead_close(w->ahead);
        w->ahead = NULL;
        if (!failed && !in->only_fits)
            failed = walk_result(w, out);
    }
    space_close(&w->s);
    free(w->order);
    free(w);
    return failed;
}

/* Plans by ranges take less memory, but copy more, so they are tried last. */
int search_whole(const search_input *in, search_result *out, pt_error *e)
{
    pt_error own = {0};
    int failed = search_some(in, out, &own);
    if (failed == PT_DOES_NOT_FIT && !in->by_ranges && search_has_ranges(in)) {
        search_input ranges = *in;
        search_result other;
        ranges.by_ranges = true;
        failed = search_some(&ranges, &other, &own);
        if (failed && out->least[TIER_DEVICE] && out->least[TIER_DEVICE] <= other.least[TIER_DEVICE])
            memcpy(other.least, out->least, sizeof other.least);
        *out = other;
    }
    if (failed && e)
        *e = own;
    return failed;
}

int policy_plan(const search_input *in, policy p, priced_plan *out, pt_error *e)
{
    space space;
    priced x;
    memset(out, 0, sizeof *out);
    int failed = space_open(&space, in, e);
    if (failed)
        return failed;
    int fits = policy_price(&space, p, &x, e);
    if (fits > 0 && (failed = space_priced_plan(&space, &x, policy_names[p], out, e)))
        fits = failed;
    space_close(&space);
    return fits;
}

void search_result_free(search_result *r)
{
    priced_plan_free(&r->best);
    for (int i = 0; i < r->others_n; i++)
        priced_plan_free(&r->others[i]);
    memset(r, 0, sizeof *r);
}
