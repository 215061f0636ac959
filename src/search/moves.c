/* moves.c - the neighbours of a candidate: one decision changed, and everything that depends on it filled again.
 *
 * Changes that take or free memory come in two forms: with as many persistent chunks as then fit, and with as many as before. Numbers
 * change by one, by doubling and by halving. Layers change one by one if there are few; if there are many, runs of them from either end,
 * a half or a quarter of them, change together.
 */
#include "search/space.h"

#include <string.h>

typedef struct neighbours {
    const space *s;
    candidate *from;
    move_fn fn;
    void *arg;
    int estimated, filled;
} neighbours;

static void offer(neighbours *x, const candidate *cand, const estimate *about)
{
    if (x->fn(x->arg, cand, about))
        *x->from = *cand;
}

static void add(neighbours *x, candidate *cand)
{
    estimate about;
    x->estimated++;
    candidate_normalise(x->s, cand);
    candidate_estimate(x->s, cand, &about);
    offer(x, cand, &about);
}

static void add_both(neighbours *x, candidate *cand)
{
    candidate filled = *cand;
    estimate about;
    x->filled++;
    candidate_normalise(x->s, &filled);
    bool fits = candidate_fill(x->s, &filled, x->s->fill, &about);
    if (fits)
        offer(x, &filled, &about);
    if (!fits || filled.persist != cand->persist || filled.on_host != cand->on_host)
        add(x, cand);
}

static void move_splits(neighbours *x)
{
    for (int i = 0; i < x->s->splits_n; i++) {
        candidate cand = *x->from;
        if (x->s->splits[i].micro_batch == cand.micro_batch && x->s->splits[i].visit == cand.visit)
            continue;
        cand.micro_batch = x->s->splits[i].micro_batch;
        cand.visit = x->s->splits[i].visit;
        add_both(x, &cand);
    }
}

static void move_updates(neighbours *x)
{
    const int model = x->s->stride, strides[] = {0, 1, 2, 3, 4, 6, 8, model};
    const size_t usual = sizeof strides / sizeof *strides - 1, strides_n = model <= 4 || model == 6 || model == 8 ? usual : usual + 1;
    /* Many slots hide the disk. On the device they hold states too, so that many slots seldom fit there. */
    const bool on_disk = x->from->persist + x->from->on_host < candidate_chunks(x->s, x->from);
    for (update_time u = search_first_update(x->s->in); x->s->in->training && u <= UPDATE_END; u++)
        for (size_t i = 0; search_may_update(x->s->in, u) && i < (x->s->in->host_tier ? strides_n : 1); i++) {
            candidate cand = *x->from;
            cand.update = u;
            cand.stride = strides[i];
            if (u != x->from->update || cand.stride != x->from->stride)
                add_both(x, &cand);
            for (int n = 1; n <= 2 && on_disk && cand.stride != x->from->stride; n++) {
                cand.n_update = x->from->n_update - n;
                if (cand.n_update > 0)
                    add_both(x, &cand);
            }
        }
}

static void move_slots(neighbours *x)
{
    const chunking *g = &x->s->chunkings[x->from->chunking];
    const int n = x->from->n_buffer, away = candidate_passing(x->s, x->from);
    const int buffers[] = {n - 1, n + 1, n / 2, n * 2, g->at_once, g->at_once + 1, g->at_once + 2, away, (n + away) / 2};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers && away; i++) {
        candidate cand = *x->from;
        cand.n_buffer = buffers[i];
        if (buffers[i] > 0 && buffers[i] != n)
            add_both(x, &cand);
        if (buffers[i] > 0 && cand.n_update > 1 && space_has_few_layers(x->s) && x->s->in->training) { /* both take the same memory */
            cand = *x->from;
            cand.n_buffer = buffers[i];
            cand.n_update = 1;
            add_both(x, &cand);
        }
    }
    for (int k = -2; k <= 2; k++) {
        candidate cand = *x->from;
        cand.n_update += k;
        if (k && away && cand.n_update > 0 && x->s->in->training)
            add_both(x, &cand);
        cand = *x->from;
        cand.n_swap += k;
        if (k && cand.n_swap > 1)
            add_both(x, &cand);
    }
    const int swaps[] = {3, x->from->visit / 2 + 2, x->from->visit + 2, x->from->visit + 3, x->from->n_swap * 2};
    for (size_t i = 0; i < sizeof swaps / sizeof *swaps; i++) {
        candidate cand = *x->from;
        cand.n_swap = swaps[i];
        if (swaps[i] != x->from->n_swap)
            add_both(x, &cand);
    }
}

static void move_placements(neighbours *x)
{
    int chunks = candidate_chunks(x->s, x->from);
    for (int step = 1; step <= chunks; step *= 2)
        for (int sign = -1; sign <= 1; sign += 2) {
            candidate cand = *x->from;
            cand.persist += sign * step;
            cand.on_host -= x->s->in->host_tier ? sign * step : 0;
            if (cand.persist >= 0 && cand.persist <= chunks)
                add(x, &cand);
            cand = *x->from;
            cand.on_host += sign * step;
            if (x->s->in->host_tier && cand.on_host >= 0 && cand.persist + cand.on_host <= chunks)
                add(x, &cand);
        }
}

/* More chunks whole, or more sharded. */
static void move_shards(neighbours *x)
{
    const int chunks = candidate_chunks(x->s, x->from), whole = x->from->whole;
    const int to[] = {0, chunks, x->from->persist, whole / 2, (whole + chunks) / 2, whole - 1, whole + 1, whole - 4, whole + 4};
    for (size_t i = 0; i < sizeof to / sizeof *to && space_is_shared(x->s); i++) {
        candidate cand = *x->from;
        cand.whole = to[i];
        if (to[i] < 0 || to[i] > chunks || to[i] == whole)
            continue;
        add_both(x, &cand);
        if (cand.n_buffer < x->s->chunkings[cand.chunking].at_once + 2) { /* the first to be gathered needs a second buffer */
            cand.n_buffer = x->s->chunkings[cand.chunking].at_once + 2;
            add_both(x, &cand);
        }
    }
}

static void move_chunks(neighbours *x)
{
    double share = (double)x->from->n_buffer / candidate_chunks(x->s, x->from);
    for (int g = 0; g < x->s->chunkings_n; g++) {
        candidate cand = *x->from;
        cand.chunking = g;
        if (g == x->from->chunking)
            continue;
        cand.whole = (int)((double)x->from->whole / candidate_chunks(x->s, x->from) * candidate_chunks(x->s, &cand) + 0.5);
        cand.n_buffer = (int)(share * candidate_chunks(x->s, &cand) + 0.5);
        add_both(x, &cand);
        cand.n_buffer = x->s->chunkings[g].at_once + 1;
        add_both(x, &cand);
    }
}

/* One level and tier for every `every`-th of the layers first..end; kind -1: of any kind. */
static void set_kind(neighbours *x, int first, int end, int every, int kind, save_level level, tier place)
{
    candidate cand = *x->from;
    bool changed = false;
    for (int i = first < x->s->passing ? x->s->passing : first; i < end; i += every) {
        if (kind >= 0 && x->s->in->costs->kind_of_layer[i] != kind)
            continue;
        changed |= cand.level[i] != level || cand.place[i] != place;
        cand.level[i] = (unsigned char)level;
        cand.place[i] = (unsigned char)place;
    }
    if (!changed)
        return;
    if (place != TIER_DEVICE && cand.n_swap < 3) { /* the first to be swapped needs enough slots */
        candidate fewest = cand;
        if (space_has_few_layers(x->s))
            add_both(x, &fewest);
        cand.n_swap = cand.visit > 1 ? cand.visit + 2 : 3;
    }
    add_both(x, &cand);
}

static void set_blocks(neighbours *x, int first, int end, int every, save_level level, tier place)
{
    set_kind(x, first, end, every, -1, level, place);
}

/* The end of the equal layers at the front, and the start of those at the back. */
static int front_run(const space *space, const candidate *cand)
{
    int first = space_first_saving(space), n = first + 1;
    while (n < space->layers && cand->level[n] == cand->level[first] && cand->place[n] == cand->place[first])
        n++;
    return n;
}

static int back_run(const space *space, const candidate *cand)
{
    int n = space->layers - 1;
    while (n > space->passing && cand->level[n - 1] == cand->level[space->layers - 1] &&
           cand->place[n - 1] == cand->place[space->layers - 1])
        n--;
    return n;
}

static void move_blocks_to(neighbours *x, save_level level, tier place)
{
    int layers = x->s->layers, front = front_run(x->s, x->from), back = back_run(x->s, x->from);
    set_blocks(x, 0, layers, 1, level, place);
    for (int kind = 0; kind < x->s->in->costs->kinds_n && x->s->in->costs->kinds_n > 1; kind++)
        set_kind(x, 0, layers, 1, kind, level, place);
    if (space_has_few_layers(x->s))
        for (int i = x->s->passing; i < layers; i++)
            set_blocks(x, i, i + 1, 1, level, place);
    for (int n = 1; n < layers; n *= 2) {
        set_blocks(x, 0, n, 1, level, place);
        set_blocks(x, layers - n, layers, 1, level, place);
        if (front + n < layers)
            set_blocks(x, front, front + n, 1, level, place);
        if (front - n >= 0)
            set_blocks(x, front - n, front, 1, level, place);
        if (back + n < layers)
            set_blocks(x, back, back + n, 1, level, place);
        if (back - n >= 0)
            set_blocks(x, back - n, back, 1, level, place);
    }
    for (int quarter = 1; quarter < 4; quarter++) {
        set_blocks(x, 0, layers * quarter / 4, 1, level, place);
        set_blocks(x, layers * quarter / 4, layers, 1, level, place);
    }
    for (int every = 2; every <= 4 && every < layers; every++) {
        set_blocks(x, 0, layers, every, level, place);
        set_blocks(x, 0, layers / 2, every, level, place);
    }
}

static void move_blocks(neighbours *x)
{
    for (save_level level = 0; level < SAVE_LEVELS && x->s->in->training; level++)
        for (tier place = TIER_DEVICE; place <= TIER_DISK; place++)
            if (space_has(x->s, place))
                move_blocks_to(x, level, place);
}

double candidate_moves(const space *space, candidate *from, bool all, move_fn fn, void *arg)
{
    neighbours x = {space, from, fn, arg, 0, 0};
    move_slots(&x);
    move_placements(&x);
    move_shards(&x);
    move_updates(&x);
    move_blocks(&x);
    if (all) {
        move_splits(&x);
        move_chunks(&x);
    }
    return space_work_of(space, x.estimated + x.filled * ESTIMATES_OF_FILLING);
}
