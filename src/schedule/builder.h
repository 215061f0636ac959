/* builder.h - the working state of schedule building, shared by build.c and cache.c.
 *
 * Tasks are created in program order but may belong earlier in the list: a fetch goes directly after the last use of the buffer
 * that it fills. So each task has a key. Items of the program have ascending keys, tasks before or after an item get keys in
 * between, and at the end the list is sorted by (key, order of creation). The key of a task is never below the keys of the tasks it
 * depends on.
 *
 * A `cache` is a set of equal slots of one tier, through which objects of other tiers pass. A first walk over the program records
 * all uses of every object, so the victim is the object whose next use is furthest away. There is one exception: a fetch into the
 * slot that becomes free last would often wait for the item before it and delay the item after it. Then the victim is in a slot that
 * is free earlier, even if its object has to be fetched again. A changed object is written back to its placement directly after its
 * last change, if it will be needed again. Objects that live on the tier itself are used in place.
 *
 * The weights of a sharded chunk have no placement (tier TIERS). A gather fetches them, and uses their shard as any task does.
 */
#ifndef PT_BUILDER_H
#define PT_BUILDER_H

#include "schedule/schedule.h"

enum { CACHE_WEIGHTS, CACHE_STATES, CACHE_GRADIENT, CACHE_SHARD, CACHE_SAVED, CACHES };
enum { USE_READ = 1, USE_WRITE = 2 };

typedef struct object {
    object_kind kind;
    int index, micro;
    tier placement_tier;
    int placement;              /* buffer, -1: none (yet) */
    int placement_slot;         /* slot that it shares with other objects, -1: none */
    int partner;                /* gathered weights: their shard; a shard: the weights gathered from it; -1: none */
    uint64_t within;       /* offset in that slot; objects with the same offset are used at different times */
    uint64_t bytes;
    bool keep;             /* must be in its placement when the schedule ends */
    int64_t ready;         /* key of the task that last wrote the placement */
    int slot[TIERS];       /* index in the tier's cache, -1: not in it */
    int use, last_use;     /* in builder.uses: the next use and, while recording, the last; -1: none */
} object;

typedef struct object_use { int serial, next; } object_use; /* when an object is used, and the index of its next use; -1: none */

typedef struct slot {
    int object, buffer;    /* -1: empty */
    int id;                /* unique over all caches; -1: not used yet */
    bool changed;
    int64_t changed_key;   /* of the last task that changed it */
    int64_t free_key;      /* lowest key of the next task that fills the slot */
    int pinned;            /* serial number of the use that holds it */
} slot;

typedef struct cache { tier tier; int slots_n; slot *slots; int latest, before; } cache; /* serial numbers of its latest two uses */

/* What a task uses: an object through the cache of a tier, or a buffer that no cache manages. */
typedef struct need { int object; tier tier; unsigned use; int buffer; } need;
typedef struct item { need *needs, *plain; int needs_n, plain_n, needs_capacity, plain_capacity; int64_t key; } item;

typedef struct builder {
    const schedule_input *in;
    schedule *s;
    bool recording;        /* first walk: record uses, create nothing */
    int serial;
    int64_t now;           /* key of the current item */
    int objects_n;
    object *objects;
    cache caches[TIERS][CACHES];
    object_use *uses;      /* the uses of all objects, linked per object */
    int uses_n, uses_capacity;
    item item;             /* the current one */
    int workspace_slot;    /* slot of the last workspace on the device */
    uint64_t workspace_bytes; /* size of that workspace */
    int64_t *keys;         /* of s->tasks */
    int tasks_capacity, operands_capacity, buffers_capacity;
    pt_error *e;
    int failed;            /* sticky */
} builder;

bool builder_room(builder *b, void **array, int n, int *capacity, size_t size); /* makes room for one more entry; failure is sticky */
int builder_buffer(builder *b, object_kind kind, int index, int micro, tier t, uint64_t bytes);
int builder_task(builder *b, task_kind kind, queue_kind q, int block, int micro, int chunk, int64_t key);
void builder_operand(builder *b, int buffer, unsigned use); /* adds an operand to the task created last */
int builder_sort(builder *b);                               /* sorts the tasks by key */
void builder_start(builder *b);                             /* empties the caches and forgets the uses */
void builder_close(builder *b);                             /* frees everything except the schedule */

/* An item of the program: what its task needs, then the task. */
void item_begin(builder *b, int64_t key);
void item_needs(builder *b, tier t, int object, unsigned use); /* through the cache of the tier */
void item_operand(builder *b, int buffer, unsigned use);       /* a buffer that no cache manages */
void item_workspace(builder *b, uint64_t bytes);               /* for this item alone; neighbours of equal size share a slot */
void item_end(builder *b, task_kind kind, queue_kind q, int block, int micro, int chunk, bool first);
/* The task that has just ended is this part of a layer, and takes this share of its time. */
void item_is_part(builder *b, int part, double share);
/* It exchanges so many bytes of a layer's forward or backward. */
void item_exchanges(builder *b, bool backward, uint64_t bytes);

/* Returns a buffer on tier `t` for the object (USE_READ: with its contents; USE_WRITE: to be changed), and raises *key to the lowest key
 * that the task which uses it may have. */
int cache_use(builder *b, tier t, int object, unsigned use, int64_t *key);
/* Records that the task with `key` was that use: the slot is free after it, and if it wrote, the slot has the newest contents. */
void cache_used(builder *b, tier t, int object, unsigned use, int64_t key);
/* Write changed objects that must be kept back to their placements. */
void cache_flush(builder *b);
void cache_flush_object(builder *b, int object);

#endif
