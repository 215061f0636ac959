/* link.h - direct exchanges between the GPUs of several ranks. A device's module may implement it (device/cuda/nccl.c); comm/linked.h makes
 * a comm of it. */
#ifndef PT_LINK_H
#define PT_LINK_H

#include "device/device.h"

enum { LINK_ID_BYTES = 128, LINK_NAME_BYTES = 32 };

typedef struct device_link device_link;
/* Called by the waiting thread while nothing arrives: whether to give up. */
typedef struct link_watch { bool (*over)(void *arg); void *arg; } link_watch;

typedef struct link_table {
    /* Loads the library; name: its name and version. PT_FAILED if it cannot be used. */
    int (*load)(char name[LINK_NAME_BYTES], pt_error *e);
    /* One rank makes the id for all. */
    int (*make_id)(unsigned char id[LINK_ID_BYTES], pt_error *e);
    /* All ranks must call it at about the same time. Allocates device memory, which device_info then no longer counts as free. */
    int (*open)(device *d, const unsigned char id[LINK_ID_BYTES], int rank, int ranks, link_watch w, device_link **out, pt_error *e);
    /* Moves between device memories, including moves within a rank. Both sides of a pair must divide the data alike. After an error the
     * link cannot be used. */
    int (*exchange)(device_link *l, const struct comm_move *moves, int n, pt_error *e);
    void (*close)(device_link *l);
} link_table;

/* NULL: the device has no links. */
const link_table *device_links(const device *d);

#endif
