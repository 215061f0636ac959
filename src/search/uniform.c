/* uniform.c - all layers alike, at every level and tier, with every small number of slots: plans that no walk reaches.
 *
 * For one more chunk on the device, the inputs of several layers may have to leave it, with fewer buffers for weights and more slots for
 * updates, all at once. Each change alone makes the step longer, and estimates, which may be wrong by a fifth of the memory here, say
 * that the chunk does not fit. So all combinations are tried, with one more chunk than is estimated to fit, too, from the fastest
 * of each size of chunk, division and time of update. Only for models of few layers, with a few thousand such plans.
 */
#include "search/walk.h"

#include <stdlib.h>
#include <string.h>

enum { PLACEMENTS = 6 };            /* numbers of chunks on the device that are tried */
#define KINDS_WITHIN 1.15      /* times the best: slower ones are no starts */
#define ESTIMATES_WITHIN 1.1   /* times the best: candidates with a higher estimate are not priced */

/* Prices one candidate with as many chunks on the device as are estimated to fit, with one more, and with up to four fewer, because the
 * host's updates meanwhile may be worth more. 1: one takes less than *best, which it becomes. */
static int try_filled(walk *w, const candidate *from, priced *best)
{
    const int chunks = candidate_chunks(&w->s, from);
    candidate filled = *from;
    estimate about;
    priced p;
    int found = 0;
    candidate_normalise(&w->s, &filled);
    candidate_fill(&w->s, &filled, w->s.fill, &about);
    w->s.work += space_work_of(&w->s, ESTIMATES_OF_FILLING + PLACEMENTS);
    const int near = chunks - (w->s.in->host_tier ? chunks - filled.persist - filled.on_host : 0); /* not on the disk */
    const int most = filled.persist < near ? filled.persist + 1 : filled.persist;
    for (int n = most; n >= 0 && n > most - PLACEMENTS && !walk_is_over(w); n--) {
        candidate cand = *from;
        cand.persist = n;
        cand.on_host = w->s.in->host_tier ? near - n : 0;
        candidate_normalise(&w->s, &cand);
        candidate_estimate(&w->s, &cand, &about);
        if (about.least_ns >= best->step_ns || about.ns > best->step_ns * ESTIMATES_WITHIN)
            continue;
        int one = walk_try(w, &cand, best->step_ns, &p);
        if (one < 0)
            return one;
        if (one)
            *best = p;
        found = found || one;
    }
    return found;
}

static int try_slots(walk *w, const candidate *from, priced *best)
{
    const int at_once = w->s.chunkings[from->chunking].at_once;
    const int swaps[] = {2, 3, from->visit + 2},
        swaps_n = from->place[space_first_saving(&w->s)] == TIER_DEVICE ? 1 : from->visit > 1 ? 3 : 2;
    const int updates[] = {1, 2, 3, 6}; /* the last one: so gradients of chunks on the disk need not wait in memory */
    int found = 0;
    for (int buffers = at_once; buffers <= at_once + 2; buffers++)
        for (size_t u = 0; u < sizeof updates / sizeof *updates; u++)
            for (int i = 0; i < swaps_n && !walk_is_over(w); i++) {
                candidate cand = *from;
                cand.n_buffer = buffers;
                cand.n_update = updates[u];
                cand.n_swap = swaps[i];
                int one = try_filled(w, &cand, best);
                if (one < 0)
                    return one;
                found = found || one;
            }
    return found;
}

static int try_blocks(walk *w, const priced *from)
{
    for (save_level level = 0; level < SAVE_LEVELS; level++)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++) {
            priced best = {.step_ns = walk_best_ns(w)};
            candidate cand = from->candidate;
            if (!space_has(&w->s, place))
                continue;
            space_correct(&w->s, &from->candidate, from->bytes);
            candidate_blocks(&w->s, &cand, 0, w->s.layers, level, place);
            int found = try_slots(w, &cand, &best);
            if (found > 0)
                found = walk_improve(w, best);
            if (found < 0)
                return found;
        }
    return 0;
}

int walk_try_uniform(walk *w)
{
    const int n = w->apart_n;
    priced *kinds = malloc(sizeof w->apart);
    if (!kinds)
        return pt_fail(w->e, PT_FAILED, "out of memory while searching for a plan");
    memcpy(kinds, w->apart, (size_t)n * sizeof *kinds);
    qsort(kinds, (size_t)n, sizeof *kinds, walk_by_step);
    int failed = 0;
    for (int i = 0; i < n && !failed && kinds[i].step_ns < walk_best_ns(w) * KINDS_WITHIN && !walk_is_over(w); i++)
        failed = try_blocks(w, &kinds[i]);
    free(kinds);
    return failed;
}
