/* result.c - the result of a search: the best plan, improved by moving single chunks (placements.c), and for comparison the policies and
 * the fastest plans seen with chunks of another size, with another division of the step, and with updates at another time. These others
 * are given only as far as work remains to prove that they fit.
 */
#include "search/walk.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the best ---- */

/* Among the plans as fast as the fastest, and no slower than any policy, the one that writes least to the disk, then the one that needs
 * least memory. */
static priced *tasteful(walk *w)
{
    priced *best = &w->kept[0];
    double most = w->kept[0].step_ns * 1.005;
    for (policy p = 0; p < POLICIES; p++)
        if (w->policy_fits[p] && w->policies[p].step_ns < most)
            most = w->policies[p].step_ns;
    for (int i = 1; i < w->kept_n && w->kept[i].step_ns <= most; i++) {
        priced *x = &w->kept[i];
        if (x->written != best->written ? x->written < best->written : x->bytes[TIER_DEVICE] < best->bytes[TIER_DEVICE])
            best = x;
    }
    return best;
}

/* The fastest was proven when it was kept; the others are proven only here, which shows their needs, and some may not fit. */
static int prove_best(walk *w)
{
    for (priced *x = tasteful(w); !x->proven; x = tasteful(w)) {
        const candidate cand = x->candidate;
        int fits = candidate_price(&w->s, &cand, 0, 0, x, w->e);
        if (fits < 0)
            return fits;
        if (!fits)
            memmove(x, x + 1, (size_t)(&w->kept[w->kept_n--] - (x + 1)) * sizeof *x);
    }
    return 0;
}

/* Improves the placements of `from`, from which *best was made, and keeps the result if it is faster. */
typedef struct turned { walk *w; priced_plan *best; priced from; uint64_t written; } turned;

static int turn_placements_of(turned *t, const priced *x, effort how)
{
    uint64_t written = x->written;
    priced_plan c;
    int failed = space_priced_plan(&t->w->s, x, t->best->name, &c, t->w->e);
    if (failed)
        return failed;
    failed = walk_turn_placements(t->w, &c, how, &written);
    double enough = written > t->written ? WORTH_WRITING : 0.999;
    const bool proven = x->proven || c.step_ns < x->step_ns; /* the changed plan is proven */
    if (!failed && proven && c.step_ns < t->best->step_ns * enough) {
        priced_plan other = *t->best;
        *t->best = c;
        t->from = *x;
        t->written = written;
        c = other;
    }
    priced_plan_free(&c);
    return failed;
}

int walk_by_step(const void *a, const void *b)
{
    const priced *x = a, *y = b;
    if (x->step_ns != y->step_ns)
        return x->step_ns < y->step_ns ? -1 : 1;
    const uint64_t k = candidate_kind(&x->candidate), l = candidate_kind(&y->candidate); /* the same order with every sort */
    return k < l ? -1 : k > l;
}

static bool is_turned(const turned *t, const priced *x)
{
    return candidate_hash(&t->w->s, &x->candidate) == candidate_hash(&t->w->s, &t->from.candidate);
}

/* Improves the best plan, some of the best with chunks of each size and, for few layers, the fastest of each division and time of
 * update. */
static int turn_all_placements(turned *t, effort how)
{
    enum { OF_A_SIZE = 4 };
    walk *w = t->w;
    int seen[SPACE_CHUNKINGS] = {0};
    int failed = walk_turn_placements(w, t->best, how, &t->written);
    qsort(w->apart, (size_t)w->apart_n, sizeof *w->apart, walk_by_step);
    for (int i = 0; i < w->kept_n && !failed && !walk_is_over(w); i++) {
        const priced *x = &w->kept[i];
        if (!is_turned(t, x) && seen[x->candidate.chunking]++ < OF_A_SIZE && x->step_ns <= 2 * t->best->step_ns)
            failed = turn_placements_of(t, x, how);
    }
    const int kinds = space_has_few_layers(&w->s) ? w->apart_n : 0; /* with more layers each takes long, and a chunk matters less */
    for (int i = 0; i < kinds && !failed && !walk_is_over(w) && w->apart[i].step_ns <= 2 * t->best->step_ns; i++)
        failed = turn_placements_of(t, &w->apart[i], how);
    return failed;
}

#define ARRANGED_WITHIN 1.15 /* times the best; slower ones, before slots and layers are tuned, are not pursued */

/* Every arrangement with all layers alike, at every level and tier. For very few, large chunks: placements, save levels and slots depend on
 * each other then, and no single change leads far. */
static int arrange_uniform(walk *w, const candidate *from, void *arg)
{
    turned *t = arg;
    candidate cand = *from;
    int failed = 0;
    for (save_level level = 0; level < SAVE_LEVELS && walk_can_arrange(w, candidate_chunks(&w->s, from)); level++)
        for (tier place = TIER_DEVICE; place <= TIER_DISK && !failed; place++) {
            candidate_blocks(&w->s, &cand, 0, w->s.layers, level, place);
            const priced x = {.candidate = cand, .step_ns = t->best->step_ns * ARRANGED_WITHIN, .written = UINT64_MAX};
            if (space_has(&w->s, place) && !walk_is_over(w))
                failed = turn_placements_of(t, &x, EFFORT_ARRANGE);
        }
    return failed;
}

/* Alternates with walks from the candidates that this leads to, as long as the plan becomes faster. */
static int turn_placements(walk *w, priced *from, priced_plan *best)
{
    turned t = {w, best, *from, from->written};
    int failed = turn_all_placements(&t, EFFORT_TURN);
    for (double before = INFINITY; !failed && space_has_few_layers(&w->s) && best->step_ns < before * 0.999 && !walk_is_over(w);) {
        before = best->step_ns;
        failed = turn_all_placements(&t, EFFORT_TUNE);
    }
    if (!failed && space_has_few_layers(&w->s))
        failed = walk_each_kind(w, arrange_uniform, &t);
    *from = t.from;
    return failed;
}

/* ---- the others ---- */

typedef enum aspect { BY_CHUNKS, BY_CUT, BY_UPDATE, BY_ALL } aspect;
_Static_assert(POLICIES + BY_ALL <= SEARCH_OTHERS, "each policy and each aspect has its place");

static bool differs(aspect a, const candidate *x, const candidate *y)
{
    switch (a) {
    case BY_CHUNKS: return x->chunking != y->chunking;
    case BY_CUT: return x->micro_batch != y->micro_batch || x->visit != y->visit;
    default: return x->update != y->update;
    }
}

static int say(const space *space, const candidate *cand, aspect a, char *out, size_t n)
{
    char size[32];
    if (a == BY_CHUNKS)
        return snprintf(out, n, "chunks of %s", size_format(size, (uint64_t)space->chunkings[cand->chunking].packing.chunk_bytes));
    if (a == BY_CUT)
        return snprintf(out, n, "micro-batches of %lld, %d in a row", (long long)cand->micro_batch, cand->visit);
    return snprintf(out, n, "updates %s", update_time_words[cand->update]);
}

/* All differences from the best plan: "chunks of 32.00 MiB, updates at the end of the step". */
static void name_other(const space *space, const candidate *cand, const candidate *best, char *out, size_t n)
{
    size_t used = 0;
    out[0] = 0;
    for (aspect a = 0; a < BY_ALL; a++) {
        if (!differs(a, cand, best) || used + 2 >= n)
            continue;
        used += used ? (size_t)snprintf(out + used, n - used, ", ") : 0;
        used += (size_t)say(space, cand, a, out + used, n - used);
    }
}

static int add_other(walk *w, const priced *x, const char *name, search_result *out)
{
    int failed = space_priced_plan(&w->s, x, name, &out->others[out->others_n], w->e);
    int at = failed ? 0 : out->others_n++;
    for (; at > 0 && out->others[at].step_ns < out->others[at - 1].step_ns; at--) {
        priced_plan y = out->others[at];
        out->others[at] = out->others[at - 1];
        out->others[at - 1] = y;
    }
    return failed;
}

static bool is_policy(const walk *w, const candidate *cand)
{
    bool is = false;
    for (policy p = 0; p < POLICIES; p++)
        is = is || (w->policy_fits[p] && candidate_hash(&w->s, &w->policies[p].candidate) == candidate_hash(&w->s, cand));
    return is;
}

/* It differs in this aspect and in none before, which an earlier entry covers. */
static bool is_other(const walk *w, aspect a, const priced *x, const candidate *best)
{
    bool known = is_policy(w, &x->candidate);
    for (aspect b = 0; b < a; b++)
        known = known || differs(b, &x->candidate, best);
    return !known && differs(a, &x->candidate, best);
}

static priced *next_other(walk *w, aspect a, const candidate *best)
{
    priced *next = NULL;
    for (int i = 0; i < w->apart_n; i++)
        if (is_other(w, a, &w->apart[i], best) && (!next || w->apart[i].step_ns < next->step_ns))
            next = &w->apart[i];
    return next;
}

/* Only the fastest was proven; some of these do not fit with all schedules that a run needs. */
static int add_aspect(walk *w, aspect a, const candidate *best, search_result *out)
{
    int fits = 0;
    for (priced *x = next_other(w, a, best); x && !fits && !walk_is_over(w); x = next_other(w, a, best)) {
        char name[sizeof out->others->name];
        priced proven;
        fits = candidate_price(&w->s, &x->candidate, 0, 0, &proven, w->e);
        name_other(&w->s, &x->candidate, best, name, sizeof name);
        if (fits > 0)
            return add_other(w, &proven, name, out);
        *x = w->apart[--w->apart_n];
    }
    return fits;
}

static int add_others(walk *w, const candidate *best, search_result *out)
{
    int failed = 0;
    for (policy p = 0; p < POLICIES && !failed; p++)
        if (w->policy_fits[p])
            failed = add_other(w, &w->policies[p], policy_names[p], out);
    for (aspect a = 0; a < BY_ALL && !failed; a++)
        failed = add_aspect(w, a, best, out);
    return failed;
}

int walk_result(walk *w, search_result *out)
{
    int failed = prove_best(w);
    if (failed)
        return failed;
    priced best = *tasteful(w);
    failed = space_priced_plan(&w->s, &best, "search", &out->best, w->e);
    walk_allow(w, 0.97); /* the rest is for the others */
    if (!failed && w->s.in->training)
        failed = turn_placements(w, &best, &out->best);
    walk_allow(w, 1);
    if (!failed)
        failed = add_others(w, &best.candidate, out);
    out->seconds = walk_now_s() - w->begun_s;
    out->first_good_s = out->seconds;
    for (int i = w->better_n - 1; i >= 0 && w->better[i].ns <= out->best.step_ns * 1.05; i--)
        out->first_good_s = w->better[i].at_s;
    out->tried = w->s.tried;
    if (failed)
        search_result_free(out);
    return failed;
}
