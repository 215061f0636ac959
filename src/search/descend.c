/* descend.c - starts for a walk: descents over the moves, by the estimate alone. See search.c. */
#include "search/walk.h"

typedef struct descent { const space *s; double ns; bool better, any; update_time update; } descent;

static bool is_better(void *arg, const candidate *cand, const estimate *about)
{
    descent *d = arg;
    if (about->ns >= d->ns * 0.999 || !walk_within(d->s, about, 1) || (!d->any && cand->update != d->update))
        return false;
    d->ns = about->ns;
    return d->better = true;
}

/* A candidate that fits, saving on the nearest tier that it can: false if the estimate finds none. */
static bool first_fit(const space *space, candidate *cand, estimate *about)
{
    const int chunks = candidate_chunks(space, cand),
              ways = space_is_shared(space) ? 4 : 2; /* first with whole weights, then with shards */
    for (int way = 0, slots = 2; way < ways; way++, slots = 2 - way % 2)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++) {
            if (!space_has(space, place))
                continue;
            cand->whole = way < 2 ? chunks : 0;
            candidate_blocks(space, cand, 0, space->layers, SAVE_INPUT, place);
            cand->n_update = slots;
            cand->n_swap = slots > 1 ? cand->visit + 2 : 2;
            cand->n_buffer = space->chunkings[cand->chunking].at_once + (slots > 1);
            if (candidate_fill(space, cand, space->fill, about))
                return true;
        }
    return false;
}

double walk_descend(const space *space, candidate *cand, bool any_update, double *work)
{
    estimate here;
    if (!first_fit(space, cand, &here))
        return -1;
    descent d = {space, here.ns, true, any_update, cand->update};
    while (d.better) {
        d.better = false;
        *work += candidate_moves(space, cand, false, is_better, &d);
    }
    return d.ns;
}

static void add_start(walk *w, const candidate *cand, double ns)
{
    if (w->starts_n == STARTS && ns >= w->starts[STARTS - 1].ns)
        return;
    int at = w->starts_n < STARTS ? w->starts_n++ : STARTS - 1;
    while (at > 0 && ns < w->starts[at - 1].ns) {
        w->starts[at] = w->starts[at - 1];
        at--;
    }
    w->starts[at] = (ranked){*cand, ns, 0};
}

double walk_with_tasks(const space *space, const candidate *cand, double ns)
{
    return ns * (1 + 0.003 * (double)(space->in->shape->batch / cand->micro_batch));
}

enum { AT_ONCE = 8 }; /* descents between looks at the work */
typedef struct descents { const space *s; ranked *ends; double work[AT_ONCE]; } descents; /* ns < 0: none */

static void descend_one(void *arg, int i)
{
    descents *d = arg;
    candidate *cand = &d->ends[i].candidate;
    const double ns = walk_descend(d->s, cand, true, &d->work[i]);
    d->ends[i].ns = ns < 0 ? ns : walk_with_tasks(d->s, cand, ns);
}

void walk_find_starts(walk *w, const way *ways, int n)
{
    for (int at = 0; at < n && !walk_is_over(w); at += AT_ONCE) {
        descents d = {.s = &w->s, .ends = w->order}; /* unused until there are starts */
        const int now = n - at < AT_ONCE ? n - at : AT_ONCE;
        for (int i = 0; i < now; i++) {
            candidate_init(&w->s, &d.ends[i].candidate, ways[at + i].chunking);
            d.ends[i].candidate.micro_batch = ways[at + i].cut.micro_batch;
            d.ends[i].candidate.visit = ways[at + i].cut.visit;
        }
        ahead_all(w->ahead, now, descend_one, &d);
        for (int i = 0; i < now; i++) {
            w->s.work += d.work[i];
            if (d.ends[i].ns >= 0)
                add_start(w, &d.ends[i].candidate, d.ends[i].ns);
        }
    }
}
