/* arrange.c - every arrangement of very few chunks.
 *
 * If there are few chunks, each is a large part of the memory. All candidates may then need the disk, although nothing would with the last
 * chunks on the device instead of the first. Placements, save levels and numbers of slots also depend on each other: a chunk on the
 * device may take one buffer less. So each arrangement is tried with every small number of buffers, whatever the candidates have (result.c
 * does that for all layers alike, at every level and place); other numbers of slots are tried afterwards (placements.c).
 */
#include "search/placements.h"

#include <string.h>

enum { ARRANGEMENTS_MOST = 640, ARRANGED_MOST = 8 }; /* 8 chunks at 2 places, 5 at 3, 4 at 5 */
#define FAR_TOO_SLOW 1.5 /* times the best; then it is too slow with other slots, too */

static int arrangements(int chunks, int places)
{
    int all = 1;
    for (int i = 0; i < chunks && all <= ARRANGEMENTS_MOST; i++)
        all *= places;
    return all;
}

bool walk_can_arrange(const walk *w, int chunks)
{
    plan_chunk places[PLACES];
    return chunks <= ARRANGED_MOST && arrangements(chunks, placements_places(&w->s, places)) <= ARRANGEMENTS_MOST;
}

static void set_arrangement(plan *plan, const plan_chunk *places, int places_n, int number)
{
    for (int i = 0; i < plan->chunks_n; i++, number /= places_n)
        plan->chunks[i] = places[number % places_n];
}

/* The numbers and placements of the fastest arrangement so far. */
typedef struct arranged { plan numbers; plan_chunk chunks[ARRANGED_MOST]; } arranged;

static void note_arranged(const plan *plan, arranged *out)
{
    out->numbers = *plan;
    memcpy(out->chunks, plan->chunks, (size_t)plan->chunks_n * sizeof *out->chunks);
}

static int chunks_away(const plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->chunks_n; i++)
        n += plan->chunks[i].placement != TIER_DEVICE || plan->chunks[i].sharded;
    return n;
}

/* The largest number of chunks that one block reads and that live elsewhere or in shards. Candidates also have a buffer for those on the
 * device. */
static int fewest_buffers(const turning *t)
{
    const model *m = t->w->s.in->model;
    unsigned char needed[ARRANGED_MOST];
    int most = 1;
    for (int block = 0; block < m->blocks_n; block++) {
        int n = 0;
        block_chunks(m, &t->c->packing, block, needed);
        for (int i = 0; i < t->c->plan.chunks_n; i++)
            n += needed[i] && (t->c->plan.chunks[i].placement != TIER_DEVICE || t->c->plan.chunks[i].sharded);
        most = n > most ? n : most;
    }
    return most;
}

/* Tries numbers of buffers from the smallest on: more usually take more memory, but not always. Two slots for updates let the second one
 * begin while the first is written back. If a plan is far too slow, no more are tried. 1: one is the fastest of all and recorded. */
static int try_buffers(turning *t, arranged *best)
{
    plan *plan = &t->c->plan;
    const int away = chunks_away(plan), fewest = fewest_buffers(t),
              buffers = away < fewest       ? fewest
                        : away < fewest + 2 ? away
                                            : fewest + 2;
    int found = 0;
    plan->n_swap = 1;
    for (plan->n_buffer = fewest; plan->n_buffer <= buffers; plan->n_buffer++)
        for (plan->n_update = 1; plan->n_update <= (away > 1 ? 2 : 1); plan->n_update++) {
            int faster = placements_are_faster(t);
            if (faster > 0)
                note_arranged(plan, best);
            found = faster ? faster : found;
            if (faster < 0 || t->ns > FAR_TOO_SLOW * t->c->step_ns)
                return found;
        }
    return found;
}

int placements_arrange(turning *t)
{
    plan_chunk places[PLACES];
    arranged best;
    plan *plan = &t->c->plan;
    const int places_n = placements_places(&t->w->s, places), all = arrangements(plan->chunks_n, places_n);
    int found = 0;
    note_arranged(plan, &best);
    for (int number = 0; number < all && found >= 0 && !walk_is_over(t->w); number++) {
        set_arrangement(plan, places, places_n, number);
        int faster = try_buffers(t, &best);
        found = faster ? faster : found;
    }
    *plan = best.numbers;
    memcpy(plan->chunks, best.chunks, (size_t)plan->chunks_n * sizeof *plan->chunks);
    return found;
}
