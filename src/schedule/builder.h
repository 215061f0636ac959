/* builder.h - the working state of schedule building, shared by build.c and cache.c.
 *
 * Tasks are made in program order but may belong earlier in the list: a fetch goes right behind the
 * last use of the buffer that it fills. So each task has a key; items of the program have ascending
 * keys, what precedes or follows them takes a key in between, and at the end the list is sorted by
 * (key, order of making). A task's key is never below that of what it depends on.
 *
 * A `cache` is a set of equal slots of one tier through which objects pass that live elsewhere. The
 * uses of every object are known (a first walk over the program records them), so the victim is the one
 * whose next use is furthest away. What is fetched into the slot which is free last would often wait for the item
 * before, and be waited for: another that is free earlier is taken, though its own object may have to come again. A
 * changed object is written back to its placement right behind its last change, and only if it will be needed again. Objects
 * that live on the tier itself are used in place.
 *
 * The weights of a sharded chunk have no placement (tier TIERS): they are fetched by a gather, which uses their shard as any task does.
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
    int placement_slot;         /* slot that it shares with others, -1: none */
    int partner;                /* of weights without a placement the shard they are gathered from; of a shard these; -1: none */
    uint64_t within;       /* its offset there: others at the same one are never there at the same time */
    uint64_t bytes;
    bool keep;             /* must be in its placement when the schedule ends */
    int64_t ready;         /* key at which the placement got its contents */
    int slot[TIERS];       /* index in the tier's cache, -1: not there */
    int use, last_use;     /* of builder.uses: the next one and, while recording, the last; -1: none */
} object;

typedef struct object_use { int serial, next; } object_use; /* when an object is used, and its next use; -1: none */

typedef struct slot {
    int object, buffer;    /* -1: empty */
    int id;                /* over all caches; -1: not used yet */
    bool changed;
    int64_t changed_key;   /* of the last task that changed it */
    int64_t free_key;      /* what comes next here has at least this key */
    int pinned;            /* serial number of the use that holds it */
} slot;

typedef struct cache { tier tier; int slots_n; slot *slots; int latest, before; } cache; /* serial numbers of its latest uses */

/* What a task uses: an object, by a cache of a tier, or a buffer that no cache manages. */
typedef struct need { int object; tier tier; unsigned use; int buffer; } need;
typedef struct item { need *needs, *plain; int needs_n, plain_n, needs_capacity, plain_capacity; int64_t key; } item;

typedef struct builder {
    const schedule_input *in;
    schedule *s;
    bool recording;        /* first walk: uses are written down, nothing is made */
    int serial;
    int64_t now;           /* key of the current item */
    int objects_n;
    object *objects;
    cache caches[TIERS][CACHES];
    object_use *uses;      /* of all objects */
    int uses_n, uses_capacity;
    item item;             /* the current one */
    int workspace_slot;    /* of the last workspace on the device, */
    uint64_t workspace_bytes; /* and its size */
    int64_t *keys;         /* of s->tasks */
    int tasks_capacity, operands_capacity, buffers_capacity;
    pt_error *e;
    int failed;            /* sticky */
} builder;

bool builder_room(builder *b, void **array, int n, int *capacity, size_t size); /* for one more; a failure is sticky */
int builder_buffer(builder *b, object_kind kind, int index, int micro, tier t, uint64_t bytes);
int builder_task(builder *b, task_kind kind, queue_kind q, int block, int micro, int chunk, int64_t key);
void builder_operand(builder *b, int buffer, unsigned use); /* of the last task made */
int builder_sort(builder *b);                               /* the tasks by key */
void builder_start(builder *b);                             /* no object is in a cache, and none was used */
void builder_close(builder *b);                             /* all but the schedule */

/* An item of the program: what its task needs, then the task. Keys are those of the caches. */
void item_begin(builder *b, int64_t key);
void item_needs(builder *b, tier t, int object, unsigned use); /* by cache_use */
void item_operand(builder *b, int buffer, unsigned use);       /* a buffer that no cache manages */
void item_workspace(builder *b, uint64_t bytes);               /* that only this item uses. Neighbours of equal size lie in one slot */
void item_end(builder *b, task_kind kind, queue_kind q, int block, int micro, int chunk, bool first);

/* A buffer on tier `t` that holds the object (USE_READ: its contents; USE_WRITE: it will be changed).
 * *key is raised to the earliest key of the task that uses it. */
int cache_use(builder *b, tier t, int object, unsigned use, int64_t *key);
/* Says that the task with `key` was the use: the slot is free behind it, changed contents are newest. */
void cache_used(builder *b, tier t, int object, unsigned use, int64_t key);
/* Writes what was changed and is to be kept back to its placement. */
void cache_flush(builder *b);
void cache_flush_object(builder *b, int object);

#endif
