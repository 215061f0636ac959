/* search.c - how the space is walked.
 *
 *   1  the most economical plan: it says whether anything fits, and whether the disk is needed at all
 *   2  for each size of chunk and each way to cut the step, a descent over the moves by the estimate alone; the best
 *      of these, the same with updates elsewhere, and the policies are built and simulated: a good plan is there
 *   3  from the best: its neighbours in the order of what they are expected to take, simulated until one is faster; again
 *      from there, until no neighbour is; then from the next best start, which leads elsewhere. For models of many layers,
 *      expected is the estimate corrected by what its kind of recipe was seen to take, and steps that helped are repeated at
 *      twice the length; only large gains count at first, from the best and from what is nearly as fast with other chunks,
 *      another cut or stride; in the end all neighbours of the best are looked at without corrections
 *   4  for models of few layers the same from a start for each size of chunk, cut and time of update, then pairs of moves
 *
 * Nothing is drawn by chance and the clock is only looked at to stop, so that a search that comes to its end finds the same again.
 * What was priced once is remembered and not priced again.
 */
#include "search/space.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BRISK = 24 /* neighbours */, MOVES = 4096, STARTS = 24, KEPT = 64, KINDS = 2048 };

typedef struct ranked { recipe recipe; double ns; } ranked;

/* By how much an estimate was too low at least, for recipes of one kind. */
typedef struct bias { uint64_t kind; double factor; } bias; /* kind 0: none */

typedef struct walk {
    space s;
    double begun, limit_s;
    bool wide;              /* nothing more is found near by: believe the estimates, and what was learned, less */
    bool brisk;             /* look for large gains only, and not long: many layers, at first */
    ranked *order;
    ranked starts[STARTS];
    int starts_n;
    priced kept[KEPT];      /* the fastest, in order */
    int kept_n;
    struct { double at_s, ns; } better[256]; /* when the best became so good */
    int better_n;
    bias biases[KINDS];
    int biases_n;
    priced policies[POLICIES];
    bool policy_fits[POLICIES];
    pt_error *e;
} walk;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_over(const walk *w) { return now_s() - w->begun > w->limit_s; }

static double best_ns(const walk *w) { return w->kept_n ? w->kept[0].step_ns : 0; }

static void keep(walk *w, const priced *x)
{
    if (!w->kept_n || x->step_ns < w->kept[0].step_ns) {
        if (w->better_n == 256)
            memmove(w->better, w->better + 1, (size_t)--w->better_n * sizeof *w->better);
        w->better[w->better_n].at_s = now_s() - w->begun;
        w->better[w->better_n++].ns = x->step_ns;
    }
    for (int i = 0; i < w->kept_n; i++)
        if (recipe_hash(&w->s, &w->kept[i].recipe) == recipe_hash(&w->s, &x->recipe))
            return;
    if (w->kept_n == KEPT && x->step_ns >= w->kept[KEPT - 1].step_ns)
        return;
    int at = w->kept_n < KEPT ? w->kept_n++ : KEPT - 1;
    while (at > 0 && x->step_ns < w->kept[at - 1].step_ns) {
        w->kept[at] = w->kept[at - 1];
        at--;
    }
    w->kept[at] = *x;
}

/* ---- descents by the estimate ---- */

static bool within(const space *s, const estimate *x, double slack)
{
    for (int t = 0; t < TIERS; t++)
        if ((double)x->bytes[t] > slack * (double)s->fill[t])
            return false;
    return true;
}

typedef struct descent { const space *s; double ns; bool better, any; update_time update; } descent;

static bool is_better(void *arg, const recipe *r, const estimate *about)
{
    descent *d = arg;
    if (about->ns >= d->ns * 0.999 || !within(d->s, about, 1) || (!d->any && r->update != d->update))
        return false;
    d->ns = about->ns;
    return d->better = true;
}

/* Something to start from that fits, saving as near as possible: false where the estimate finds nothing. */
static bool first_fit(const space *s, recipe *r, estimate *about)
{
    for (int slots = 2; slots > 0; slots--)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++) {
            if (!space_has(s, place))
                continue;
            recipe_blocks(s, r, 0, s->layers, SAVE_INPUT, place);
            r->n_update = slots;
            r->n_swap = slots > 1 ? r->visit + 2 : 2;
            r->n_buffer = s->chunkings[r->chunking].at_once + (slots > 1);
            if (recipe_fill(s, r, s->fill, about))
                return true;
        }
    return false;
}

/* To where no move makes the estimate better; negative: nothing fits. */
static double descend(walk *w, recipe *r, bool any_update)
{
    estimate here;
    if (!first_fit(&w->s, r, &here))
        return -1;
    descent d = {&w->s, here.ns, true, any_update, r->update};
    while (d.better) {
        d.better = false;
        recipe_moves(&w->s, r, false, is_better, &d);
    }
    return d.ns;
}

static void add_start(walk *w, const recipe *r, double ns)
{
    if (w->starts_n == STARTS && ns >= w->starts[STARTS - 1].ns)
        return;
    int at = w->starts_n < STARTS ? w->starts_n++ : STARTS - 1;
    while (at > 0 && ns < w->starts[at - 1].ns) {
        w->starts[at] = w->starts[at - 1];
        at--;
    }
    w->starts[at] = (ranked){*r, ns};
}

/* Of two that are about equal the one of fewer tasks is liked better: estimates know little of what a task costs. */
static double with_tasks(const space *s, const recipe *r, double ns)
{
    return ns * (1 + 0.003 * (double)(s->in->shape->batch / r->micro_batch));
}

static void find_start(walk *w, int chunking, const split *cut)
{
    recipe r;
    recipe_init(&w->s, &r, chunking);
    r.micro_batch = cut->micro_batch;
    r.visit = cut->visit;
    double ns = descend(w, &r, true);
    if (ns >= 0)
        add_start(w, &r, with_tasks(&w->s, &r, ns));
}

/* ---- simulation ---- */

/* How far an estimate may be beyond the budgets, and how much slower than where we are. */
static double memory_slack(const walk *w) { return !space_has_few_layers(&w->s) ? 1.02 : w->wide ? 1.3 : 1.08; }
static double time_slack(const walk *w) { return !space_has_few_layers(&w->s) ? 1.05 : w->wide ? 2 : 1.3; }

static bias *find_bias(walk *w, uint64_t kind)
{
    uint64_t i = kind % KINDS;
    while (w->biases[i].kind && w->biases[i].kind != kind)
        i = (i + 1) % KINDS;
    return &w->biases[i];
}

static void learn(walk *w, const priced *x)
{
    estimate about;
    recipe_estimate(&w->s, &x->recipe, &about);
    bias *b = find_bias(w, recipe_kind(&x->recipe));
    double factor = x->step_ns / about.ns;
    if (x->step_ns <= 0 || (!b->kind && w->biases_n >= KINDS / 2))
        return;
    if (!b->kind || factor < b->factor) {
        w->biases_n += !b->kind;
        *b = (bias){recipe_kind(&x->recipe), factor};
    }
}

/* What it will take as far as is known. Of a kind that is not known the best is thought: so each is tried once, and early. */
static double expected_ns(walk *w, const recipe *r, double estimated_ns)
{
    const bias *b = find_bias(w, recipe_kind(r));
    return estimated_ns * (b->kind ? b->factor : 1);
}

/* 1: it takes less than `than` (0: whatever it takes), and is in *out; a little more is kept as well, for taste. */
static int try_recipe(walk *w, const recipe *r, double than, priced *out)
{
    recipe x = *r;
    priced p;
    int fits = recipe_price_filled(&w->s, &x, than * 1.005, than, &p, w->e);
    if (fits >= 0 && !space_has_few_layers(&w->s))
        learn(w, &p);
    if (fits <= 0)
        return fits;
    keep(w, &p);
    if (than > 0 && p.step_ns >= than * (w->brisk ? 0.997 : 0.9999))
        return 0;
    *out = p;
    return 1;
}

static int by_ns(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

typedef struct collection { walk *w; double limit, least, expected; int n; } collection;

/* What may be faster than where we are. */
static bool collect(void *arg, const recipe *r, const estimate *about)
{
    collection *c = arg;
    if (c->n == MOVES) {
        qsort(c->w->order, MOVES, sizeof *c->w->order, by_ns);
        c->n = MOVES / 2;
        c->limit = c->expected = c->w->order[c->n].ns;
    }
    double ns = space_has_few_layers(&c->w->s) ? about->ns : expected_ns(c->w, r, about->ns);
    if (about->ns < c->limit && about->least_ns < c->least && ns < c->expected && within(&c->w->s, about, memory_slack(c->w)))
        c->w->order[c->n++] = (ranked){*r, ns};
    return false;
}

/* A recipe in numbers that can be subtracted, without what follows from them by filling. */
enum { ASPECTS = SAVE_LEVELS + TIERS + 3 };

static void count_aspects(const space *s, const recipe *r, double out[ASPECTS])
{
    memset(out, 0, ASPECTS * sizeof *out);
    for (int i = 0; i < s->layers; i++) {
        out[r->level[i]]++;
        out[SAVE_LEVELS + r->place[i]]++;
    }
    out[ASPECTS - 3] = r->n_buffer;
    out[ASPECTS - 2] = r->n_update;
    out[ASPECTS - 1] = r->n_swap;
}

/* How many times the step from `before` to `here` leads from there to `next`; 0: another way. */
static double steps_on(const space *s, const recipe *before, const recipe *here, const recipe *next)
{
    double a[ASPECTS], b[ASPECTS], c[ASPECTS], aa = 0, ab = 0, bb = 0;
    count_aspects(s, before, a);
    count_aspects(s, here, b);
    count_aspects(s, next, c);
    for (int i = 0; i < ASPECTS; i++) {
        double step = b[i] - a[i], more = c[i] - b[i];
        aa += step * step;
        ab += step * more;
        bb += more * more;
    }
    return ab > 0 && ab * ab > 0.9 * aa * bb ? ab / aa : 0;
}

/* What was faster is tried again at about twice the length, before anything else: estimates that are wrong about a way prefer the
 * shortest steps on it. */
static void prefer_ahead(walk *w, int n, const recipe *before, const recipe *here)
{
    for (int i = 0; i < n; i++) {
        double steps = steps_on(&w->s, before, here, &w->order[i].recipe);
        if (steps > 1.2 && steps < 5)
            w->order[i].ns = fabs(steps - 2) - 5;
    }
    qsort(w->order, (size_t)n, sizeof *w->order, by_ns);
}

/* The neighbours in the order of what they are expected to take. */
static int rank_moves(walk *w, const priced *from)
{
    estimate here;
    recipe r = from->recipe;
    space_correct(&w->s, &r, from->bytes);
    recipe_estimate(&w->s, &r, &here);
    bool all = w->wide || space_has_few_layers(&w->s);
    collection c = {w, here.ns * time_slack(w), from->step_ns, all ? INFINITY : from->step_ns * time_slack(w), 0};
    recipe_moves(&w->s, &r, true, collect, &c);
    qsort(w->order, (size_t)c.n, sizeof *w->order, by_ns);
    return c.n;
}

/* Whether other neighbours are looked at although this one is faster. Walks over many layers by the first ones take thousands of
 * steps. */
static bool is_little(const walk *w, const priced *here, const priced *next)
{
    return w->wide || (!space_has_few_layers(&w->s) && next->step_ns > here->step_ns * 0.999);
}

/* To where no neighbour is faster: by the first that is, later by the fastest, because many walks by the first end in one place. */
static int improve(walk *w, priced here)
{
    recipe before;
    bool moved = false;
    for (int found = 1; found > 0 && !is_over(w);) {
        priced next;
        found = 0;
        int n = rank_moves(w, &here);
        if (moved && !space_has_few_layers(&w->s))
            prefer_ahead(w, n, &before, &here.recipe);
        int most = w->brisk && n > BRISK ? BRISK : n;
        for (int i = 0; i < most && (!found || is_little(w, &here, &next)) && !is_over(w); i++) {
            int one = try_recipe(w, &w->order[i].recipe, found ? next.step_ns : here.step_ns, &next);
            if (one < 0)
                return one;
            found = found || one;
        }
        moved = found;
        before = here.recipe;
        if (found)
            here = next;
    }
    return 0;
}

typedef struct crowd { recipe *all; int n, of; } crowd;

static bool gather(void *arg, const recipe *r, const estimate *about)
{
    (void)about;
    crowd *c = arg;
    if (c->n < c->of)
        c->all[c->n++] = *r;
    return false;
}

enum { SEEN = 1 << 16 };

typedef struct pairs { collection c; uint64_t *seen; int seen_n; } pairs;

/* Each only once: most pairs can be had in two orders, and many in more. */
static bool collect_new(void *arg, const recipe *r, const estimate *about)
{
    pairs *p = arg;
    if (about->ns >= p->c.limit || p->seen_n > SEEN / 2)
        return false;
    uint64_t hash = recipe_hash(&p->c.w->s, r), i = hash % SEEN;
    while (p->seen[i] && p->seen[i] != hash)
        i = (i + 1) % SEEN;
    if (p->seen[i])
        return false;
    p->seen[i] = hash;
    p->seen_n++;
    return collect(&p->c, r, about);
}

/* Two moves away, in the order of the estimates. */
static int rank_pairs(walk *w, const priced *from, crowd *near, uint64_t *seen)
{
    estimate here;
    recipe r = from->recipe;
    memset(seen, 0, SEEN * sizeof *seen);
    space_correct(&w->s, &r, from->bytes);
    recipe_estimate(&w->s, &r, &here);
    pairs p = {{w, here.ns * 1.1, from->step_ns, INFINITY, 0}, seen, 0};
    near->n = 0;
    recipe_moves(&w->s, &r, true, gather, near);
    for (int i = 0; i < near->n && !is_over(w); i++)
        recipe_moves(&w->s, &near->all[i], true, collect_new, &p);
    qsort(w->order, (size_t)p.c.n, sizeof *w->order, by_ns);
    return p.c.n;
}

/* What one walk over pairs needs. */
typedef struct pair_room { crowd near; uint64_t *seen; } pair_room;

/* 1: a pair of moves from here leads to something faster than the best. */
static int pairs_from(walk *w, const priced *here, pair_room *room)
{
    priced next;
    int n = rank_pairs(w, here, &room->near, room->seen), found = 0;
    for (int i = 0; i < n && !found && !is_over(w); i++)
        found = try_recipe(w, &w->order[i].recipe, best_ns(w), &next);
    int failed = found > 0 ? improve(w, next) : 0;
    return failed < 0 ? failed : found;
}

static bool is_same_kind(const walk *w, const recipe *a, const recipe *b)
{
    return a->chunking == b->chunking && a->micro_batch == b->micro_batch && a->visit == b->visit &&
           (space_has_few_layers(&w->s) || a->stride == b->stride);
}

/* The fastest of each size of chunk and cut, and of many layers of each stride. */
static int fastest_of_each(const walk *w, priced *out, int most)
{
    int n = 0;
    for (int i = 0; i < w->kept_n && n < most; i++) {
        const recipe *r = &w->kept[i].recipe;
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = is_same_kind(w, &out[k].recipe, r);
        if (!known)
            out[n++] = w->kept[i];
    }
    return n;
}

/* From what is nearly as fast with other chunks, another cut or stride: its neighbours may lead further. */
static int improve_others(walk *w)
{
    enum { OTHERS = 4 };
    priced kinds[OTHERS];
    int n = fastest_of_each(w, kinds, OTHERS), failed = 0;
    for (int i = 1; i < n && !failed && kinds[i].step_ns < best_ns(w) * 1.03; i++)
        failed = improve(w, kinds[i]);
    return failed;
}

/* A tenth of a percent at a time takes long: first the large gains, wherever they are. */
static int improve_briskly(walk *w)
{
    w->brisk = true;
    int failed = improve(w, w->kept[0]);
    if (!failed)
        failed = improve_others(w);
    w->brisk = false;
    return failed;
}

/* When no single move leads on: from the best and, where estimates are believed less, from the best of other kinds. Only for models
 * of few layers: others have too many pairs. */
static int improve_by_pairs(walk *w)
{
    enum { CROWD = 1024, KINDS = 4 };
    pair_room room = {{malloc(CROWD * sizeof(recipe)), 0, CROWD}, malloc(SEEN * sizeof(uint64_t))};
    priced *kinds = malloc(KINDS * sizeof *kinds);
    int found = room.near.all && room.seen && kinds ? 1 : pt_fail(w->e, PT_FAILED, "out of memory while searching for a plan");
    while (found > 0 && !is_over(w)) {
        priced here = w->kept[0];
        found = pairs_from(w, &here, &room);
    }
    int n = w->wide && !found ? fastest_of_each(w, kinds, KINDS) : 0;
    for (int i = 1; i < n && found >= 0 && !is_over(w); i++)
        found = pairs_from(w, &kinds[i], &room);
    free(room.near.all);
    free(room.seen);
    free(kinds);
    return found < 0 ? found : 0;
}

static int try_policies(walk *w)
{
    for (policy p = 0; p < POLICIES && !is_over(w); p++) {
        int fits = policy_price(&w->s, p, &w->policies[p], w->e);
        if (fits < 0)
            return fits;
        if (fits)
            keep(w, &w->policies[p]);
        w->policy_fits[p] = fits;
    }
    return 0;
}

/* The starts that promise more than what is there. */
static int try_starts(walk *w, int most)
{
    for (int i = 0; i < w->starts_n && i < most && w->starts[i].ns < best_ns(w) && !is_over(w); i++) {
        priced p;
        int found = try_recipe(w, &w->starts[i].recipe, best_ns(w), &p);
        if (found < 0)
            return found;
    }
    return 0;
}

/* Where the starts lead. A start may look better than it is and yet lead to something better. */
static int follow_starts(walk *w)
{
    for (int i = 0; i < w->starts_n && !is_over(w); i++) {
        double worth = best_ns(w) * (space_has_few_layers(&w->s) ? 1.2 : 1);
        priced p;
        if (w->starts[i].ns >= worth)
            break;
        int found = try_recipe(w, &w->starts[i].recipe, space_has_few_layers(&w->s) ? 0 : worth, &p);
        if (found > 0)
            found = improve(w, p);
        if (found < 0)
            return found;
    }
    return 0;
}

/* Forgets what estimates were wrong by elsewhere: of another kind of recipe that says nothing. Never less than the least plan showed. */
static void begin_afresh(walk *w, const priced *least)
{
    space_correct(&w->s, &least->recipe, least->bytes);
    for (int t = 0; t < TIERS; t++)
        w->s.fill[t] = (uint64_t)((double)(w->s.fill[t] > w->s.budget[t] ? w->s.fill[t] : w->s.budget[t]) * (w->wide ? memory_slack(w) : 1));
}

/* One start more, followed where it is not much slower than the best. What does not fit shows what the estimate is wrong by. */
static int follow(walk *w, const recipe *from, const priced *least)
{
    enum { TRIES = 3 };
    int found = 0;
    begin_afresh(w, least);
    for (int i = 0; i < TRIES && !found; i++) {
        const double limit = best_ns(w) * time_slack(w);
        recipe r = *from;
        priced p;
        if (descend(w, &r, false) < 0)
            return 0;
        found = try_recipe(w, &r, limit, &p);
        if (found > 0)
            return improve(w, p);
    }
    return found;
}

/* Where the best of each size of chunk, cut and time of update leads, for models of few layers. */
static int follow_all(walk *w, const priced *least)
{
    const update_time first = w->s.in->clipping ? UPDATE_NEXT_FORWARD : UPDATE_BACKWARD;
    int failed = 0;
    for (int g = 0; g < w->s.chunkings_n && !failed; g++)
        for (int i = 0; i < w->s.splits_n && !failed; i++)
            for (update_time u = first; u <= (w->s.in->training ? UPDATE_END : first) && !failed && !is_over(w); u++) {
                recipe r;
                recipe_init(&w->s, &r, g);
                r.micro_batch = w->s.splits[i].micro_batch;
                r.visit = w->s.splits[i].visit;
                r.update = u;
                failed = follow(w, &r, least);
            }
    return failed;
}

/* Cuts the step as the estimate likes best for what else the recipe says, and fills it. false: it does not fit however it is cut. */
static bool cut_and_fill(const space *s, recipe *r)
{
    const recipe from = *r;
    double least = INFINITY;
    for (int i = 0; i < s->splits_n; i++) {
        recipe x = from;
        estimate about;
        x.micro_batch = s->splits[i].micro_batch;
        x.visit = s->splits[i].visit;
        if (recipe_fill(s, &x, s->fill, &about) && with_tasks(s, &x, about.ns) < least) {
            least = with_tasks(s, &x, about.ns);
            *r = x;
        }
    }
    return least < INFINITY;
}

/* The best with updates elsewhere and other slots for them: estimates know little of how updates pass through slots, and single moves
 * from there seldom lead to these, for on the device a slot takes memory that a smaller micro-batch must give. */
static int try_strides(walk *w)
{
    static const int strides[] = {1, 0, 2, 4}, slots[] = {0, -1, 1};
    const recipe best = w->kept[0].recipe;
    int failed = 0;
    for (size_t i = 0; i < sizeof strides / sizeof *strides && w->s.in->host_tier && w->s.in->training; i++)
        for (size_t k = 0; k < (i < 2 ? 3 : 1) && failed >= 0 && !is_over(w); k++) {
            recipe r = best;
            priced p;
            r.stride = strides[i];
            r.n_update = best.n_update + slots[k];
            if (r.n_update > 0 && cut_and_fill(&w->s, &r))
                failed = try_recipe(w, &r, best_ns(w), &p);
        }
    return failed < 0 ? failed : 0;
}

/* Descents for all ways to cut the step, then for other chunks with the way that simulation likes best. */
static int look_around(walk *w)
{
    enum { FIRST = 3, LATER = 6 };
    for (int i = 0; i < w->s.splits_n && !is_over(w); i++)
        find_start(w, 0, &w->s.splits[i]);
    int failed = try_starts(w, FIRST);
    const recipe *best = w->starts_n ? &w->kept[0].recipe : NULL;
    split cut = best ? (split){best->micro_batch, best->visit} : w->s.splits[0];
    for (int g = 1; g < w->s.chunkings_n && !failed && !is_over(w); g++)
        find_start(w, g, &cut);
    if (!failed)
        failed = try_starts(w, LATER);
    return failed ? failed : try_strides(w);
}

static int walk_all(walk *w, const priced *least)
{
    enum { LITTLE = 1500 }; /* where so little was worth a try, there is time to look further */
    keep(w, least);
    space_correct(&w->s, &least->recipe, least->bytes);
    int failed = look_around(w);
    if (!failed)
        failed = try_policies(w);
    if (!failed && !space_has_few_layers(&w->s))
        failed = improve_briskly(w);
    if (!failed)
        failed = improve(w, w->kept[0]);
    if (!failed)
        failed = follow_starts(w);
    if (!failed && !space_has_few_layers(&w->s))
        failed = improve_others(w);
    if (!failed && !space_has_few_layers(&w->s)) {
        w->wide = true;
        failed = improve(w, w->kept[0]);
    }
    for (int round = 0; round < 2 && space_has_few_layers(&w->s) && !failed && (!round || w->s.tried < LITTLE); round++) {
        w->wide = round > 0;
        failed = follow_all(w, least);
        if (!failed)
            failed = improve_by_pairs(w);
    }
    return failed;
}

/* ---- result ---- */

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

static int make_candidate(const space *s, const priced *x, const char *name, candidate *out, pt_error *e)
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

static int finish(walk *w, search_result *out)
{
    int failed = prove_best(w);
    if (failed)
        return failed;
    const priced *best = tasteful(w);
    out->tried = w->s.tried;
    out->seconds = now_s() - w->begun;
    out->first_good_s = out->seconds;
    for (int i = w->better_n - 1; i >= 0 && w->better[i].ns <= best->step_ns * 1.05; i--)
        out->first_good_s = w->better[i].at_s;
    failed = make_candidate(&w->s, best, "search", &out->best, w->e);
    for (bool more = true; more && !failed && out->others_n < SEARCH_OTHERS;) { /* the fastest that is not there yet */
        policy next = POLICIES;
        for (policy p = 0; p < POLICIES; p++)
            if (w->policy_fits[p] && (next == POLICIES || w->policies[p].step_ns < w->policies[next].step_ns))
                next = p;
        more = next < POLICIES;
        if (more) {
            w->policy_fits[next] = false;
            failed = make_candidate(&w->s, &w->policies[next], policy_names[next], &out->others[out->others_n], w->e);
            out->others_n += !failed;
        }
    }
    if (failed)
        search_result_free(out);
    return failed;
}

/* Finds the most economical plan: without the disk if that is possible. 1: there is one. */
static int open_space(walk *w, priced *least)
{
    uint64_t disk = w->s.budget[TIER_DISK];
    w->s.budget[TIER_DISK] = 0;
    int fits = least_price(&w->s, disk > 0, least, w->e);
    if (fits || !disk)
        return fits;
    w->s.budget[TIER_DISK] = disk;
    return least_price(&w->s, false, least, w->e);
}

int search_plan(const search_input *in, search_result *out, pt_error *e)
{
    memset(out, 0, sizeof *out);
    walk *w = calloc(1, sizeof *w);
    if (!w)
        return pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    w->begun = now_s();
    w->limit_s = in->seconds > 0 ? in->seconds : 0.5;
    w->e = e;
    w->order = malloc(MOVES * sizeof *w->order);
    int failed = w->order ? space_open(&w->s, in, e) : pt_fail(e, PT_FAILED, "out of memory while searching for a plan");
    if (!failed) {
        priced least = {0};
        int fits = open_space(w, &least);
        memcpy(out->least, least.bytes, sizeof out->least);
        if (fits <= 0)
            failed = fits ? fits : least_refuse(&w->s, &least, e);
        if (!failed)
            failed = walk_all(w, &least);
        if (!failed)
            failed = finish(w, out);
    }
    space_close(&w->s);
    free(w->order);
    free(w);
    return failed;
}

int policy_plan(const search_input *in, policy p, candidate *out, pt_error *e)
{
    space s;
    priced x;
    memset(out, 0, sizeof *out);
    int failed = space_open(&s, in, e);
    if (failed)
        return failed;
    int fits = policy_price(&s, p, &x, e);
    if (fits > 0 && (failed = make_candidate(&s, &x, policy_names[p], out, e)))
        fits = failed;
    space_close(&s);
    return fits;
}

void search_result_free(search_result *r)
{
    candidate_free(&r->best);
    for (int i = 0; i < r->others_n; i++)
        candidate_free(&r->others[i]);
    memset(r, 0, sizeof *r);
}
