/* result.c - what a search hands out: the best plan with single chunks of it elsewhere (homes.c), and beside it the policies and the
 * fastest that were seen with chunks of another size, with the step cut in another way, and with updates at another time.
 */
#include "search/walk.h"

#include "base/units.h"

#include <stdio.h>
#include <string.h>

/* ---- the best ---- */

/* Of those as fast as the fastest, the one that writes least to the disk, then the one that needs least. */
static priced *tasteful(walk *w)
{
    priced *best = &w->kept[0];
    for (int i = 1; i < w->kept_n && w->kept[i].step_ns <= w->kept[0].step_ns * 1.005; i++) {
        priced *x = &w->kept[i];
        if (x->written != best->written ? x->written < best->written : x->bytes[TIER_DEVICE] < best->bytes[TIER_DEVICE])
            best = x;
    }
    return best;
}

/* The fastest was proven before it was kept, others only are here: that shows what they need, and some may not fit. */
static int prove_best(walk *w)
{
    for (priced *x = tasteful(w); !x->proven; x = tasteful(w)) {
        const recipe r = x->recipe;
        int fits = recipe_price(&w->s, &r, 0, 0, x, w->e);
        if (fits < 0)
            return fits;
        if (!fits)
            memmove(x, x + 1, (size_t)(&w->kept[w->kept_n--] - (x + 1)) * sizeof *x);
    }
    return 0;
}

int space_candidate(const space *s, const priced *x, const char *name, candidate *out, pt_error *e)
{
    const packing *k = &s->chunkings[x->recipe.chunking].packing;
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%s", name);
    int failed = pack(s->in->model, s->in->shape, k->chunk_bytes, &out->packing, e);
    if (!failed)
        failed = recipe_plan(s, &x->recipe, &out->plan, e);
    out->step_ns = x->step_ns;
    memcpy(out->bytes, x->bytes, sizeof out->bytes);
    if (failed)
        candidate_free(out);
    return failed;
}

double search_seconds(const search_input *in) { return in->seconds > 0 ? in->seconds : 0.5; }

/* Of *from, which *best was made of, and of the best with chunks of other sizes. *from becomes what *best is made of then. */
static int turn_homes(walk *w, const priced **from, candidate *best)
{
    enum { OF_A_SIZE = 4 };
    int seen[SPACE_CHUNKINGS] = {0};
    const priced *first = *from;
    uint64_t best_written = first->written;
    int failed = walk_turn_homes(w, best, &best_written);
    for (int i = 0; i < w->kept_n && !failed && !walk_is_over(w); i++) {
        const priced *x = &w->kept[i];
        uint64_t written = x->written;
        candidate c;
        if (x == first || seen[x->recipe.chunking] == OF_A_SIZE || x->step_ns > 2 * best->step_ns)
            continue;
        seen[x->recipe.chunking]++;
        failed = space_candidate(&w->s, x, best->name, &c, w->e);
        if (failed)
            return failed;
        failed = walk_turn_homes(w, &c, &written);
        double enough = written > best_written ? WORTH_WRITING : 0.999;
        if (!failed && c.step_ns < x->step_ns && c.step_ns < best->step_ns * enough) { /* then it is proven too */
            candidate other = *best;
            *best = c;
            *from = x;
            c = other;
            best_written = written;
        }
        candidate_free(&c);
    }
    return failed;
}

/* ---- the others ---- */

_Static_assert(POLICIES + 3 <= SEARCH_OTHERS, "each policy and each aspect has its place");

typedef enum aspect { ASPECT_CHUNKS, ASPECT_CUT, ASPECT_UPDATE, ASPECTS } aspect;

static bool differs(aspect a, const recipe *x, const recipe *y)
{
    switch (a) {
    case ASPECT_CHUNKS: return x->chunking != y->chunking;
    case ASPECT_CUT: return x->micro_batch != y->micro_batch || x->visit != y->visit;
    default: return x->update != y->update;
    }
}

static size_t say(const space *s, const recipe *r, aspect a, char *out, size_t n)
{
    static const char *const times[] = {"updates during backward", "updates before the next forward", "updates at the end"};
    char size[32];
    int used = 0;
    if (a == ASPECT_CHUNKS)
        used = snprintf(out, n, "chunks of %s", size_format(size, (uint64_t)s->chunkings[r->chunking].packing.chunk_bytes));
    else if (a == ASPECT_CUT)
        used = snprintf(out, n, "%d x %lld sequences at a time", r->visit, (long long)r->micro_batch);
    else
        used = snprintf(out, n, "%s", times[r->update]);
    return (size_t)used < n ? (size_t)used : n;
}

/* Every way in which it is another plan than the best: "chunks of 32.00 MiB, updates at the end". */
static void name_other(const space *s, const recipe *r, const recipe *best, candidate *out)
{
    size_t used = 0, n = sizeof out->name;
    for (aspect a = 0; a < ASPECTS; a++) {
        if (!differs(a, r, best))
            continue;
        if (used && used + 2 < n)
            used += (size_t)snprintf(out->name + used, n - used, ", ");
        used += say(s, r, a, out->name + used, n - used);
    }
}

static int add_other(walk *w, const priced *x, const char *name, search_result *out)
{
    int failed = space_candidate(&w->s, x, name, &out->others[out->others_n], w->e);
    int at = failed ? 0 : out->others_n++;
    for (; at > 0 && out->others[at].step_ns < out->others[at - 1].step_ns; at--) {
        candidate y = out->others[at];
        out->others[at] = out->others[at - 1];
        out->others[at - 1] = y;
    }
    return failed;
}

static bool is_policy(const walk *w, const recipe *r)
{
    bool is = false;
    for (policy p = 0; p < POLICIES; p++)
        is = is || (w->policy_fits[p] && recipe_hash(&w->s, &w->policies[p].recipe) == recipe_hash(&w->s, r));
    return is;
}

static bool is_other(const walk *w, aspect a, const priced *x, const recipe *best)
{
    bool known = is_policy(w, &x->recipe);
    for (aspect b = 0; b < a; b++) /* what an earlier one found is there already */
        known = known || differs(b, &x->recipe, best);
    return !known && differs(a, &x->recipe, best);
}

/* The fastest that differs from the best in this, and not in an earlier aspect. What is not the fastest of all was not proven. */
static int add_aspect(walk *w, aspect a, const recipe *best, search_result *out)
{
    const priced *next = NULL;
    for (int i = 0; i < w->apart_n; i++)
        if (is_other(w, a, &w->apart[i], best) && (!next || w->apart[i].step_ns < next->step_ns))
            next = &w->apart[i];
    priced x;
    candidate name;
    int fits = next ? recipe_price(&w->s, &next->recipe, 0, 0, &x, w->e) : 0;
    if (fits > 0)
        name_other(&w->s, &next->recipe, best, &name);
    return fits > 0 ? add_other(w, &x, name.name, out) : fits;
}

static int add_others(walk *w, const recipe *best, search_result *out)
{
    int failed = 0;
    for (policy p = 0; p < POLICIES && !failed; p++)
        if (w->policy_fits[p])
            failed = add_other(w, &w->policies[p], policy_names[p], out);
    for (aspect a = 0; a < ASPECTS && !failed; a++)
        failed = add_aspect(w, a, best, out);
    return failed;
}

int walk_result(walk *w, search_result *out)
{
    int failed = prove_best(w);
    if (failed)
        return failed;
    const priced *best = tasteful(w);
    failed = space_candidate(&w->s, best, "search", &out->best, w->e);
    w->limit_s = search_seconds(w->s.in);
    if (!failed && w->s.in->training)
        failed = turn_homes(w, &best, &out->best);
    out->seconds = walk_now_s() - w->begun;
    out->first_good_s = out->seconds;
    for (int i = w->better_n - 1; i >= 0 && w->better[i].ns <= out->best.step_ns * 1.05; i--)
        out->first_good_s = w->better[i].at_s;
    if (!failed)
        failed = add_others(w, &best->recipe, out);
    out->tried = w->s.tried;
    if (failed)
        search_result_free(out);
    return failed;
}
