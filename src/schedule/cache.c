#include "schedule/builder.h"

#include <limits.h>

static int cache_of(const object *o)
{
    switch (o->kind) {
    case OBJECT_WEIGHTS: return CACHE_WEIGHTS;
    case OBJECT_STATES: return CACHE_STATES;
    case OBJECT_GRADIENT: return CACHE_GRADIENT;
    case OBJECT_SHARD: return CACHE_SHARD;
    default: return CACHE_SAVED;
    }
}

static cache *cache_for(builder *b, tier t, const object *o) { return &b->caches[t][cache_of(o)]; }

static int64_t max_key(int64_t a, int64_t b) { return a > b ? a : b; }

/* Serial number of the object's next use, INT_MAX if there is none. */
static int next_use(const builder *b, const object *o) { return o->use < 0 ? INT_MAX : b->uses[o->use].serial; }

static int record_use(builder *b, object *o)
{
    if (!builder_room(b, (void **)&b->uses, b->uses_n, &b->uses_capacity, sizeof *b->uses))
        return b->failed;
    b->uses[b->uses_n] = (object_use){b->serial, -1};
    *(o->use < 0 ? &o->use : &b->uses[o->last_use].next) = b->uses_n;
    o->last_use = b->uses_n++;
    return 0;
}

static void pass_use(const builder *b, object *o) { o->use = o->use < 0 ? -1 : b->uses[o->use].next; }

static queue_kind transfer_queue(tier from, tier to, task_kind *kind)
{
    *kind = from == TIER_DISK ? TASK_READ : to == TIER_DISK ? TASK_WRITE : TASK_COPY;
    if (from == TIER_DISK)
        return QUEUE_READ;
    if (to == TIER_DISK)
        return QUEUE_WRITE;
    return to == TIER_DEVICE ? QUEUE_TO_DEVICE : QUEUE_FROM_DEVICE;
}

static void transfer(builder *b, const object *o, int from, int to, int64_t key)
{
    task_kind kind;
    queue_kind q = transfer_queue(b->s->buffers[from].tier, b->s->buffers[to].tier, &kind);
    int chunk = o->kind == OBJECT_SAVED ? -1 : o->index, block = o->kind == OBJECT_SAVED ? o->index : -1;
    builder_task(b, kind, q, block, o->micro, chunk, key);
    builder_operand(b, from, USE_READ);
    builder_operand(b, to, USE_WRITE);
}

static int placement_buffer(builder *b, object *o)
{
    if (o->placement < 0) {
        o->placement = builder_buffer(b, o->kind, o->index, o->micro, o->placement_tier, o->bytes);
        if (o->placement >= 0) {
            b->s->buffers[o->placement].slot = o->placement_slot;
            b->s->buffers[o->placement].within = o->within;
        }
    }
    return o->placement;
}

static bool through_host(const builder *b, tier t, const object *o)
{
    return t == TIER_DEVICE && o->placement_tier == TIER_DISK && b->in->host_tier;
}

static int take_slot(builder *b, tier t, int object, int64_t *free_key);

/* Copies a changed slot towards its placement: into the host's cache if the placement is on the disk behind it, else to the placement. */
static void write_back(builder *b, tier t, slot *from)
{
    int index = from->object;
    object *o = &b->objects[index];
    int64_t key = from->changed_key;
    from->changed = false;
    if (through_host(b, t, o)) {
        if (o->slot[TIER_HOST] < 0) {
            int64_t free_key = 0;
            int at = take_slot(b, TIER_HOST, index, &free_key);
            if (at < 0)
                return;
            key = max_key(key, free_key);
        }
        slot *stage = &cache_for(b, TIER_HOST, o)->slots[o->slot[TIER_HOST]];
        key = max_key(key, stage->free_key);
        transfer(b, o, from->buffer, stage->buffer, key);
        stage->changed = true;
        stage->changed_key = stage->free_key = key;
        stage->pinned = -1;
        from->free_key = max_key(from->free_key, key);
        return;
    }
    transfer(b, o, from->buffer, placement_buffer(b, o), key);
    o->ready = max_key(o->ready, key);
}

static bool wanted_later(const object *o) { return o->keep || o->use >= 0; }

static void drop(builder *b, tier t, slot *s)
{
    if (s->object < 0)
        return;
    b->objects[s->object].slot[t] = -1;
    s->object = s->buffer = -1;
    s->changed = false;
}

/* Chooses a slot to evict among those that are not in use and are free before `free_key`: the one whose object is needed last, to keep
 * refetches few, and not before `soon`. -1: none. */
static int furthest(const builder *b, const cache *c, int64_t free_key, int soon)
{
    int victim = -1, last = soon;
    int64_t oldest = free_key;
    for (int i = 0; i < c->slots_n; i++) {
        const slot *s = &c->slots[i];
        int next = s->object < 0 ? INT_MAX : next_use(b, &b->objects[s->object]);
        if ((s->object >= 0 && s->pinned == b->serial) || s->free_key >= free_key)
            continue;
        if (next > last || (next == last && victim >= 0 && s->free_key < oldest)) {
            last = next;
            oldest = s->free_key;
            victim = i;
        }
    }
    return victim;
}

static bool is_last_free(const builder *b, const cache *c, int slot)
{
    bool is = true;
    for (int i = 0; i < c->slots_n; i++)
        is = is && (c->slots[i].pinned == b->serial || c->slots[i].free_key <= c->slots[slot].free_key);
    return is;
}

/* A fetch into the slot that becomes free last waits for the use before, and the use after waits for it. So it goes into a slot that is
 * free earlier, unless that slot's object is needed about as soon as this use follows the last one, or within a visit. The inputs of the
 * layers in progress are such objects: they would have to be written twice. */
static int choose_victim(const builder *b, const cache *c)
{
    int victim = furthest(b, c, INT64_MAX, -1), soon = b->serial - c->before;
    if (victim < 0 || !is_last_free(b, c, victim))
        return victim;
    soon = b->serial + (soon > b->in->plan->visit ? soon : b->in->plan->visit);
    int other = furthest(b, c, c->slots[victim].free_key, soon);
    return other < 0 ? victim : other;
}

/* Makes room for the object. Returns the index of the slot, or -1 after an error. */
static int take_slot(builder *b, tier t, int index, int64_t *free_key)
{
    object *o = &b->objects[index];
    cache *c = cache_for(b, t, o);
    int victim = choose_victim(b, c);
    if (victim < 0) {
        b->failed = pt_fail(b->e, PT_DOES_NOT_FIT,
                            "the plan has %d %s buffers for %s, but more are needed at once: raise %s",
                            c->slots_n, tier_names[t], object_names[o->kind],
                            o->kind == OBJECT_WEIGHTS ? "n_buffer" : o->kind == OBJECT_SAVED ? "n_swap" : "n_update");
        return -1;
    }
    slot *s = &c->slots[victim];
    s->pinned = b->serial; /* a write-back below must not choose it */
    if (s->object >= 0 && s->changed && wanted_later(&b->objects[s->object]))
        write_back(b, t, s);
    drop(b, t, s);
    if (s->id < 0)
        s->id = b->s->slots_n++;
    s->object = index;
    s->buffer = builder_buffer(b, o->kind, o->index, o->micro, t, o->bytes);
    if (s->buffer >= 0)
        b->s->buffers[s->buffer].slot = s->id;
    o->slot[t] = victim;
    *free_key = s->free_key;
    return victim;
}

static void fetch_placement(builder *b, object *o, slot *to, int64_t free_key)
{
    int64_t key = max_key(free_key, o->ready);
    transfer(b, o, placement_buffer(b, o), to->buffer, key);
    to->free_key = key;
}

/* Gathers weights from the shards of all ranks. */
static void gather(builder *b, tier t, const object *o, slot *to, int64_t free_key)
{
    object *shard = &b->objects[o->partner];
    int64_t key = free_key;
    const int from = cache_use(b, t, o->partner, USE_READ, &key);
    if (b->failed)
        return;
    builder_task(b, TASK_GATHER, QUEUE_RANKS, -1, -1, o->index, key);
    builder_operand(b, from, USE_READ);
    builder_operand(b, to->buffer, USE_WRITE);
    cache_used(b, t, o->partner, USE_READ, key);
    to->free_key = key;
    if (shard->slot[t] >= 0)
        cache_for(b, t, shard)->slots[shard->slot[t]].pinned = -1;
}

/* Fills a slot just taken: from the other tier's slot if the object is there or must pass through it, else from its placement. */
static void fetch(builder *b, tier t, int index, slot *to, int64_t free_key)
{
    object *o = &b->objects[index];
    tier other = t == TIER_DEVICE ? TIER_HOST : TIER_DEVICE;
    if (o->placement_tier == TIERS) {
        gather(b, t, o, to, free_key);
        return;
    }
    if (o->slot[other] < 0 && through_host(b, t, o)) {
        int64_t stage_key = 0;
        int at = take_slot(b, TIER_HOST, index, &stage_key);
        if (at < 0)
            return;
        fetch_placement(b, o, &cache_for(b, TIER_HOST, o)->slots[at], stage_key);
    }
    if (o->slot[other] < 0) {
        fetch_placement(b, o, to, free_key);
        return;
    }
    slot *stage = &cache_for(b, other, o)->slots[o->slot[other]];
    int64_t key = max_key(free_key, stage->free_key);
    transfer(b, o, stage->buffer, to->buffer, key);
    stage->free_key = to->free_key = key;
    stage->pinned = -1;
}

int cache_use(builder *b, tier t, int index, unsigned use, int64_t *key)
{
    object *o = &b->objects[index];
    if (b->failed)
        return -1;
    if (b->recording) {
        if (o->placement_tier == TIERS) /* the gather may need it */
            record_use(b, &b->objects[o->partner]);
        return record_use(b, o);
    }
    if (o->placement_tier == t) {
        pass_use(b, o);
        if (use & USE_READ)
            *key = max_key(*key, o->ready);
        return placement_buffer(b, o);
    }
    cache *c = cache_for(b, t, o);
    c->before = c->latest == b->serial ? c->before : c->latest;
    c->latest = b->serial;
    if (o->slot[t] < 0) {
        int64_t free_key = 0;
        int at = take_slot(b, t, index, &free_key);
        if (at < 0)
            return -1;
        if (use & USE_READ)
            fetch(b, t, index, &c->slots[at], free_key);
    } else if (o->placement_tier == TIERS) {
        pass_use(b, &b->objects[o->partner]); /* it was not used */
    }
    pass_use(b, o); /* only now, so that making room above could not evict it as unneeded */
    slot *s = &c->slots[o->slot[t]];
    s->pinned = b->serial;
    *key = max_key(*key, s->free_key);
    return s->buffer;
}

void cache_used(builder *b, tier t, int index, unsigned use, int64_t key)
{
    object *o = &b->objects[index];
    if (b->failed || b->recording)
        return;
    if (o->placement_tier == t) {
        if (!(use & USE_WRITE))
            return;
        o->ready = max_key(o->ready, key);
    } else {
        slot *s = &cache_for(b, t, o)->slots[o->slot[t]];
        s->free_key = max_key(s->free_key, key);
        if (!(use & USE_WRITE))
            return;
        s->changed = true;
        s->changed_key = s->free_key;
    }
    for (int other = 0; other < TIERS; other++) /* older copies */
        if (other != (int)t && o->slot[other] >= 0)
            drop(b, (tier)other, &cache_for(b, (tier)other, o)->slots[o->slot[other]]);
    const object *gathered = o->partner < 0 ? NULL : &b->objects[o->partner];
    if (gathered && gathered->slot[TIER_DEVICE] >= 0)
        drop(b, TIER_DEVICE, &cache_for(b, TIER_DEVICE, gathered)->slots[gathered->slot[TIER_DEVICE]]);
}

void cache_flush_object(builder *b, int index)
{
    object *o = &b->objects[index];
    for (int t = TIER_DEVICE; t <= TIER_HOST && !b->failed && !b->recording; t++) {
        if (o->slot[t] < 0)
            continue;
        slot *s = &cache_for(b, (tier)t, o)->slots[o->slot[t]];
        s->pinned = b->serial;
        if (s->changed)
            write_back(b, (tier)t, s);
    }
}

void cache_flush(builder *b)
{
    b->serial++;
    for (int i = 0; i < b->objects_n; i++)
        if (b->objects[i].keep) {
            b->serial++;
            cache_flush_object(b, i);
        }
}
