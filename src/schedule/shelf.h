/* shelf.h - regions that have an address, found again by the time in which they are used.
 *
 * A region is a rectangle: bytes high, and as wide as the list of tasks from its first to its last. The lowest place for another one is
 * found by looking at those that are used at the same time, in order of address. A list of very many tasks has very many regions that
 * live for a few tasks each, at few addresses: for another such one only those are looked at that live in the same part of the time,
 * and for one that lasts a column of them is looked at as one: those of an address and a size, which follow each other.
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
    int width;            /* tasks of a part of the time; 0: all regions are lasting */
    int *head;            /* of each part's list, -1: empty */
    struct shelf_node { int region, next; } *nodes;
    region *brief;        /* live in a few parts each, in no order */
    region *lasting;      /* in order of address */
    region *near;         /* room for what shelf_find looks at */
    column *columns;      /* of the brief ones, in order of address */
    int parts, nodes_n, brief_n, lasting_n, columns_n, columns_room;
} shelf;

/* For `most` regions of a list of so many tasks; regions[0 .. n-1] are those that will come, to choose the parts by. */
int shelf_open(shelf *k, int tasks, const region *regions, int n, int most, pt_error *e);
int shelf_add(shelf *k, const region *r, pt_error *e);
/* The lowest address from `base` on at which r overlaps none that is there. */
uint64_t shelf_find(shelf *k, const region *r, uint64_t base);
void shelf_clear(shelf *k);
void shelf_close(shelf *k);

#endif
