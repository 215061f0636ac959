/* like.c - the candidate most similar to a plan: a start for a search with other inputs. */
#include "search/space.h"

static int count_placements(const plan *plan, tier placement)
{
    int n = 0;
    for (int i = 0; i < plan->chunks_n; i++)
        n += plan->chunks[i].placement == placement;
    return n;
}

/* The number of first chunks that are not sharded. */
static int count_whole(const plan *plan)
{
    int n = 0;
    while (n < plan->chunks_n && !plan->chunks[n].sharded)
        n++;
    return n;
}

/* The stride at which chunks away from the device are updated there. */
static int stride_of(const plan *plan)
{
    int away = plan->chunks_n - count_placements(plan, TIER_DEVICE), there = 0;
    for (int i = 0; i < plan->chunks_n; i++)
        there += plan->chunks[i].placement != TIER_DEVICE && plan->chunks[i].update == TIER_DEVICE;
    return there ? (away + there / 2) / there : UPDATE_STRIDE_NONE;
}

static bool has_split(const space *space, const plan *plan)
{
    for (int i = 0; i < space->splits_n; i++)
        if (space->splits[i].micro_batch == plan->micro_batch && space->splits[i].visit == plan->visit)
            return true;
    return false;
}

bool candidate_like(const space *space, const priced_plan *c, candidate *cand)
{
    const plan *plan = &c->plan;
    int chunking = 0;
    while (chunking < space->chunkings_n &&
           (space->chunkings[chunking].ranges != plan->ranges || !space_same_chunks(&space->chunkings[chunking].packing, &c->packing)))
        chunking++;
    if (chunking == space->chunkings_n || !has_split(space, plan))
        return false;
    candidate_init(space, cand, chunking);
    cand->persist = count_placements(plan, TIER_DEVICE);
    cand->on_host = count_placements(plan, TIER_HOST);
    cand->whole = count_whole(plan);
    cand->stride = stride_of(plan);
    cand->n_buffer = plan->n_buffer;
    cand->n_update = plan->n_update;
    cand->n_swap = plan->n_swap;
    cand->micro_batch = plan->micro_batch;
    cand->visit = plan->visit;
    cand->update = search_may_update(space->in, plan->update) ? plan->update : search_first_update(space->in);
    for (int i = 0; i < space->layers; i++) {
        cand->level[i] = (unsigned char)plan->blocks[i].level;
        cand->place[i] = (unsigned char)plan->blocks[i].place;
    }
    candidate_normalise(space, cand);
    return true;
}
