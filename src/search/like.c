/* like.c - the candidate most similar to a plan: a start for a search with other inputs. */
#include "search/space.h"

static int count_placements(const plan *p, tier placement)
{
    int n = 0;
    for (int i = 0; i < p->chunks_n; i++)
        n += p->chunks[i].placement == placement;
    return n;
}

/* The number of first chunks that are not sharded. */
static int count_whole(const plan *p)
{
    int n = 0;
    while (n < p->chunks_n && !p->chunks[n].sharded)
        n++;
    return n;
}

/* The stride at which chunks away from the device are updated there. */
static int stride_of(const plan *p)
{
    int away = p->chunks_n - count_placements(p, TIER_DEVICE), there = 0;
    for (int i = 0; i < p->chunks_n; i++)
        there += p->chunks[i].placement != TIER_DEVICE && p->chunks[i].update == TIER_DEVICE;
    return there ? (away + there / 2) / there : UPDATE_STRIDE_NONE;
}

static bool has_split(const space *s, const plan *p)
{
    for (int i = 0; i < s->splits_n; i++)
        if (s->splits[i].micro_batch == p->micro_batch && s->splits[i].visit == p->visit)
            return true;
    return false;
}

bool candidate_like(const space *s, const priced_plan *c, candidate *r)
{
    const plan *p = &c->plan;
    int chunking = 0;
    while (chunking < s->chunkings_n &&
           (s->chunkings[chunking].ranges != p->ranges || !space_same_chunks(&s->chunkings[chunking].packing, &c->packing)))
        chunking++;
    if (chunking == s->chunkings_n || !has_split(s, p))
        return false;
    candidate_init(s, r, chunking);
    r->persist = count_placements(p, TIER_DEVICE);
    r->on_host = count_placements(p, TIER_HOST);
    r->whole = count_whole(p);
    r->stride = stride_of(p);
    r->n_buffer = p->n_buffer;
    r->n_update = p->n_update;
    r->n_swap = p->n_swap;
    r->micro_batch = p->micro_batch;
    r->visit = p->visit;
    r->update = search_may_update(s->in, p->update) ? p->update : search_first_update(s->in);
    for (int i = 0; i < s->layers; i++) {
        r->level[i] = (unsigned char)p->blocks[i].level;
        r->place[i] = (unsigned char)p->blocks[i].place;
    }
    candidate_normalise(s, r);
    return true;
}
