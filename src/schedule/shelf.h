/* shelf.h - placed memory regions, indexed by the time of their use.
 *
 * A region is a rectangle of bytes and time, from its first to its last task. The lowest free address for a new region is found among
 * the regions that are used at the same time, in order of address. A long list has very many regions that live for a few tasks at
 * few addresses. So time is divided into parts. For a new short region, only the regions of its parts are visited; for a new long one,
 * short regions with the same address and size, which follow each other in time, are visited together as one column.
 *
 *     shelf k;
 *     shelf_open(&k, tasks, regions, n, e);
 *     r.offset = shelf_find(&k, &r, base);  shelf_add(&k, &r, e);
 *     shelf_clear(&k);                           the next tier
 *     shelf_close(&k);
 */
#ifndef PT_SHELF_H
#define PT_SHELF_H

#include "schedule/schedule.h"

typedef struct region { uint64_t bytes, offset; int first, last; tier tier; } region;

typedef struct column {
    uint64_t bytes, offset;
    struct { int first, last; } *spans; /* in order of time */
    int n, room;
} column;

typedef struct shelf {
    int width;            /* tasks in a part of the time; 0: all regions are long */
    int *head;            /* [part]: head of its list, -1: empty */
    struct shelf_node { int region, next; } *nodes;
    region *brief;        /* short regions, in no order */
    region *lasting;      /* long regions, in order of address */
    region *near;         /* scratch for shelf_find */
    column *columns;      /* of the short regions, in order of address */
    int parts, nodes_n, brief_n, lasting_n, columns_n, columns_room;
} shelf;

/* For at most `most` regions of a list of so many tasks. regions[0 .. n-1] are regions to come; they decide the width of the parts. */
int shelf_open(shelf *k, int tasks, const region *regions, int n, int most, pt_error *e);
int shelf_add(shelf *k, const region *r, pt_error *e);
/* The lowest address, at least `base`, at which r overlaps no region that was added. */
uint64_t shelf_find(shelf *k, const region *r, uint64_t base);
void shelf_clear(shelf *k);
void shelf_close(shelf *k);

#endif
