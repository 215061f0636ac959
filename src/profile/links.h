/* links.h - the memory, the file and the queues that transfers are measured with (measure_links.c), alone and beside each other
 * (measure_beside.c). Internal to profile/. */
#ifndef PT_LINKS_H
#define PT_LINKS_H

#include "io/disk.h"
#include "profile/measure_parts.h"

/* room: bytes of memory; span: of the file, from offset on. */
typedef struct transfer { op_kind kind; disk_channel *channel; char *to; const char *from; uint64_t offset, room, span; } transfer;

/* The next `n` bytes of the room and of the span; what is left over at their ends is not used. */
void transfer_run(queue *q, void *transfer_of, int n, int turn);

typedef struct links {
    bench *b;
    uint64_t most;               /* bytes of the largest transfer */
    uint64_t room;               /* bytes of D, H and K each: four times that, as far as they fit */
    uint64_t span, written;      /* of the file: eight times, as far as there is room and time */
    product product;
    region update[2];            /* on the device, on the host */
    char *d, *h, *k;
    area device, host;
    disk_file *file;
    disk_channel *reader, *writer;
    queue *queues[COST_CLASSES];
    transfer transfers[COST_CLASSES];
} links;

/* Each way through all of D and H, for a cache would hold a part of them; or (apart) each through a half of its own, to run at once. */
void links_set_copies(links *x, bool apart);
/* Reads and writes of `span` bytes of the file, or (apart) of a half each. */
void links_set_disk(links *x, uint64_t span, bool apart);

/* How many times as long everything takes beside everything else; what transfers take alone is known. */
int measure_contention(links *x, costs *c, pt_error *e);

#endif
