/* search.c - how the space is walked.
 *
 *   1  the most economical plan: it says whether anything fits, and whether the disk is needed at all
 *   2  for each size of chunk and each way to cut the step, a descent over the moves by the estimate alone; the best
 *      of these, the same with updates elsewhere, and the policies are built and simulated: a good plan is there
 *   3  from the best: its neighbours in the order of what they are expected to take, simulated until one is faster; again
 *      from there, until no neighbour is; then from the next best start, which leads elsewhere. For models of many layers,
 *      expected is the estimate corrected by what its kind of candidate was seen to take, and steps that helped are repeated at
 *      twice the length; only large gains count at first, from the best and from what is nearly as fast with other chunks,
 *      another cut or stride; in the end all neighbours of the best are looked at without corrections
 *   4  for models of few layers the same from a start for each size of chunk, cut and time of update, then pairs of moves, then
 *      all layers alike with every few slots (uniform.c)
 *   5  in what is left of the time, single chunks of the best at other placements; for models of few layers in turn with walks from
 *      candidates like that, until nothing is faster, then very few chunks at all placements that they can have (result.c,
 *      placements.c, arrange.c)
 *
 * Nothing is drawn by chance and the clock is only looked at to stop, so that a search that comes to its end finds the same again.
 * What was priced once is remembered and not priced again. Other cores price what will be asked for next (ahead.c).
 */
#include "search/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The result is never worse than one of them, on the busiest machine: where no time was set, all are priced whatever the clock says. */
static int try_policies(walk *w)
{
    const bool all = w->s.in->seconds <= 0;
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

/* The starts that promise more than what is there. */
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

/* Where the starts lead. A start may look better than it is and yet lead to something better. */
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

/* Forgets what estimates were wrong by elsewhere: of another kind of candidate that says nothing. Never less than the least plan showed. */
static void begin_afresh(walk *w, const priced *least)
{
    space_correct(&w->s, &least->candidate, least->bytes);
    for (int t = 0; t < TIERS; t++)
        w->s.fill[t] = (uint64_t)((double)(w->s.fill[t] > w->s.budget[t] ? w->s.fill[t] : w->s.budget[t]) *
                                  (w->wide ? walk_memory_slack(w) : 1));
}

/* Where nothing that the estimate says was found to fit: what the most economical plan is made of, cut in another way. Budgets that are
 * full to the brim leave no room for what an estimate is wrong by. More slots for updates may take less: gradients leave sooner. */
static int follow_least(walk *w, const candidate *from, const priced *least)
{
    const candidate *like = &least->candidate;
    const int of = candidate_chunks(&w->s, like), chunks = candidate_chunks(&w->s, from);
    int found = 0;
    for (int slots = 1; slots <= 3 && !found && !walk_is_over(w); slots++) {
        candidate r = *from;
        priced p;
        candidate_blocks(&w->s, &r, 0, w->s.layers, SAVE_INPUT, (tier)like->place[space_first_saving(&w->s)]);
        r.persist = (like->persist * chunks + of - 1) / of;
        r.whole = like->whole * chunks / of;
        r.on_host = like->persist + like->on_host == of ? chunks - r.persist : like->on_host * chunks / of;
        r.stride = like->stride;
        r.n_update = slots;
        r.n_swap = like->n_swap;
        candidate_normalise(&w->s, &r);
        found = walk_try(w, &r, walk_best_ns(w) * walk_time_slack(w), &p);
        if (found > 0)
            return walk_improve(w, p);
    }
    return found;
}

/* One start more, followed where it is not much slower than the best. What does not fit shows what the estimate is wrong by; where
 * nothing is found after that, it was corrected by too much. What the most economical plan is made of comes last. */
static int follow(walk *w, const candidate *from, const priced *least)
{
    enum { TRIES = 5 };
    uint64_t last[TIERS] = {0}; /* what was filled when something was found */
    begin_afresh(w, least);
    for (int i = 0; i < TRIES && !walk_is_over(w); i++) {
        const double limit = walk_best_ns(w) * walk_time_slack(w);
        candidate r = *from;
        priced p;
        if (walk_descend(w, &r, false) >= 0) {
            memcpy(last, w->s.fill, sizeof last);
            int found = walk_try(w, &r, limit, &p);
            if (found)
                return found < 0 ? found : walk_improve(w, p);
            if (!memcmp(last, w->s.fill, sizeof last)) /* too slow, or it would be the same again */
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

/* Where the best of each kind leads, for models of few layers. */
static int follow_one(walk *w, const candidate *from, void *least) { return follow(w, from, least); }
static int follow_all(walk *w, priced *least) { return walk_each_kind(w, follow_one, least); }

/* Cuts the step as the estimate likes best for what else the candidate says, and fills it. false: it does not fit however it is cut. */
static bool cut_and_fill(const space *s, candidate *r)
{
    const candidate from = *r;
    double least = INFINITY;
    for (int i = 0; i < s->splits_n; i++) {
        candidate x = from;
        estimate about;
        x.micro_batch = s->splits[i].micro_batch;
        x.visit = s->splits[i].visit;
        if (candidate_fill(s, &x, s->fill, &about) && walk_with_tasks(s, &x, about.ns) < least) {
            least = walk_with_tasks(s, &x, about.ns);
            *r = x;
        }
    }
    return least < INFINITY;
}

/* The best with updates elsewhere and other slots for them: estimates know little of how updates pass through slots, and single moves
 * from there seldom lead to these, for on the device a slot takes memory that a smaller micro-batch must give. */
static int try_strides(walk *w)
{
    const int strides[] = {1, 0, w->s.stride, 2, 4}, slots[] = {0, -1, 1};
    const candidate best = w->kept[0].candidate;
    int failed = 0;
    for (size_t i = 0; i < sizeof strides / sizeof *strides && w->s.in->host_tier && w->s.in->training; i++)
        for (size_t k = 0; k < (i < 2 ? 3 : 1) && failed >= 0 && !walk_is_over(w); k++) {
            candidate r = best;
            priced p;
            r.stride = strides[i];
            r.n_update = best.n_update + slots[k];
            if (r.n_update > 0 && cut_and_fill(&w->s, &r))
                failed = walk_try(w, &r, walk_best_ns(w), &p);
        }
    return failed < 0 ? failed : 0;
}

/* Descents for all ways to cut the step, then for other chunks with the way that simulation likes best. */
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

static int walk_all(walk *w, priced *least)
{
    enum { LITTLE = 4000 }; /* where so little was worth a try, there is time to look further */
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

/* Policies that are content with memory, for where it just suffices the few that looked most economical may not fit. 1: one fits. */
static int in_memory(walk *w, priced *least)
{
    static const policy each[] = {POLICY_RECOMPUTE, POLICY_FSDP};
    int fits = 0;
    for (size_t i = 0; i < sizeof each / sizeof *each && !fits; i++)
        fits = policy_price(&w->s, each[i], least, w->e);
    return fits;
}

/* Finds the most economical plan: without the disk if that is possible. 1: there is one. */
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
    return least_price(&w->s, w->s.in->from != NULL, least, w->e); /* beside a plan: what is not likely to fit is not worth its time */
}

/* What is like the plan to begin with, filled again, else the most economical plan. 1: there is one. */
static int begin(walk *w, priced *least)
{
    const priced_plan *from = w->s.in->from;
    const uint64_t disk = w->s.budget[TIER_DISK];
    candidate r;
    int fits = 0;
    if (from && candidate_like(&w->s, from, &r)) {
        w->s.budget[TIER_DISK] = from->bytes[TIER_DISK] ? disk : 0;
        fits = candidate_price_filled(&w->s, &r, 0, 0, least, w->e);
        w->s.budget[TIER_DISK] = fits ? w->s.budget[TIER_DISK] : disk;
    }
    return fits ? fits : open_space(w, least);
}

int search_whole(const search_input *in, search_result *out, pt_error *e)
{
    memset(out, 0, sizeof *out);
    walk *w = calloc(1, sizeof *w);
    if (!w)
        return pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    w->begun = walk_now_s();
    w->limit_s = 0.85 * search_seconds(in); /* the rest is for placements out of order */
    w->e = e;
    w->order = malloc(MOVES * sizeof *w->order);
    int failed = w->order ? space_open(&w->s, in, e) : pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    if (!failed) {
        priced least = {0};
        int fits = begin(w, &least);
        memcpy(out->least, least.bytes, sizeof out->least);
        if (fits <= 0)
            failed = fits ? fits : pt_fail(e, PT_DOES_NOT_FIT, "it does not fit: no plan was found within these budgets");
        if (!failed && !space_has_few_layers(&w->s))
            w->ahead = ahead_open(&w->s);
        if (!failed)
            failed = walk_all(w, &least);
        ahead_close(w->ahead);
        w->ahead = NULL;
        if (!failed)
            failed = walk_result(w, out);
    }
    space_close(&w->s);
    free(w->order);
    free(w);
    return failed;
}

int policy_plan(const search_input *in, policy p, priced_plan *out, pt_error *e)
{
    space s;
    priced x;
    memset(out, 0, sizeof *out);
    int failed = space_open(&s, in, e);
    if (failed)
        return failed;
    int fits = policy_price(&s, p, &x, e);
    if (fits > 0 && (failed = space_priced_plan(&s, &x, policy_names[p], out, e)))
        fits = failed;
    space_close(&s);
    return fits;
}

void search_result_free(search_result *r)
{
    priced_plan_free(&r->best);
    for (int i = 0; i < r->others_n; i++)
        priced_plan_free(&r->others[i]);
    memset(r, 0, sizeof *r);
}
