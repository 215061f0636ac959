/* link.h - how GPUs of several ranks exchange by themselves, from the memory of one to that of another. A device's module may have it
 * (device/cuda/nccl.c); comm/linked.h makes a comm of it. */
#ifndef PT_LINK_H
#define PT_LINK_H

#include "device/device.h"

enum { LINK_ID_BYTES = 128, LINK_NAME_BYTES = 32 };

typedef struct device_link device_link;
/* Asked while nothing moves, by the thread that waits: whether to give up. */
typedef struct link_watch { bool (*over)(void *arg); void *arg; } link_watch;

typedef struct link_table {
    /* Its library, whose name and version it says. PT_FAILED where it cannot be used. */
    int (*load)(char name[LINK_NAME_BYTES], pt_error *e);
    /* By one rank, for all. */
    int (*make_id)(unsigned char id[LINK_ID_BYTES], pt_error *e);
    /* All ranks at about the same time. What it takes of the device's memory is no longer free afterwards (device_info). */
    int (*open)(device *d, const unsigned char id[LINK_ID_BYTES], int rank, int ranks, link_watch w, device_link **out, pt_error *e);
    /* Moves of device memory, its own too. Both sides of a pair cut what goes from one to the other alike. An error ends it. */
    int (*exchange)(device_link *l, const struct comm_move *moves, int n, pt_error *e);
    void (*close)(device_link *l);
} link_table;

/* NULL: the device has none. */
const link_table *device_links(const device *d);

#endif
