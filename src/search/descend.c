/* descend.c - starts for a walk: descents over the moves, by the estimate alone. See search.c. */
#include "search/walk.h"

typedef struct descent { const space *s; double ns; bool better, any; update_time update; } descent;

static bool is_better(void *arg, const candidate *r, const estimate *about)
{
    descent *d = arg;
    if (about->ns >= d->ns * 0.999 || !walk_within(d->s, about, 1) || (!d->any && r->update != d->update))
        return false;
    d->ns = about->ns;
    return d->better = true;
}

/* A candidate that fits, saving on the nearest tier that it can: false if the estimate finds none. */
static bool first_fit(const space *s, candidate *r, estimate *about)
{
    const int chunks = candidate_chunks(s, r), ways = space_is_shared(s) ? 4 : 2; /* first with whole weights, then with shards */
    for (int way = 0, slots = 2; way < ways; way++, slots = 2 - way % 2)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++) {
            if (!space_has(s, place))
                continue;
            r->whole = way < 2 ? chunks : 0;
            candidate_blocks(s, r, 0, s->layers, SAVE_INPUT, place);
            r->n_update = slots;
            r->n_swap = slots > 1 ? r->visit + 2 : 2;
            r->n_buffer = s->chunkings[r->chunking].at_once + (slots > 1);
            if (candidate_fill(s, r, s->fill, about))
                return true;
        }
    return false;
}

double walk_descend(walk *w, candidate *r, bool any_update)
{
    estimate here;
    if (!first_fit(&w->s, r, &here))
        return -1;
    descent d = {&w->s, here.ns, true, any_update, r->update};
    while (d.better) {
        d.better = false;
        candidate_moves(&w->s, r, false, is_better, &d);
    }
    return d.ns;
}

static void add_start(walk *w, const candidate *r, double ns)
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

double walk_with_tasks(const space *s, const candidate *r, double ns)
{
    return ns * (1 + 0.003 * (double)(s->in->shape->batch / r->micro_batch));
}

typedef struct descents { walk *w; ranked *ends; } descents; /* ns < 0: none */

static void descend_one(void *arg, int i)
{
    descents *d = arg;
    candidate *r = &d->ends[i].candidate;
    double ns = walk_is_over(d->w) ? -1 : walk_descend(d->w, r, true);
    d->ends[i].ns = ns < 0 ? ns : walk_with_tasks(&d->w->s, r, ns);
}

void walk_find_starts(walk *w, const way *ways, int n)
{
    descents d = {w, w->order}; /* unused until there are starts */
    for (int i = 0; i < n; i++) {
        candidate_init(&w->s, &d.ends[i].candidate, ways[i].chunking);
        d.ends[i].candidate.micro_batch = ways[i].cut.micro_batch;
        d.ends[i].candidate.visit = ways[i].cut.visit;
    }
    ahead_all(w->ahead, n, descend_one, &d);
    for (int i = 0; i < n; i++)
        if (d.ends[i].ns >= 0)
            add_start(w, &d.ends[i].candidate, d.ends[i].ns);
}
