/* machine.h - what this machine has free: memory (cgroup limits counted) and disk. */
#ifndef PT_MACHINE_H
#define PT_MACHINE_H

#include "base/error.h"

#include <stdint.h>

typedef struct machine {
    char processor[96];
    int cores;                     /* that this process may use */
    uint64_t memory_bytes;         /* the machine's, or the cgroup's limit if that is lower */
    uint64_t memory_free_bytes;    /* available without swapping, under that limit */
} machine;

int machine_probe(machine *m, pt_error *e);

/* Left to everything else: 5% of the memory, at least 512 MiB; of a disk 1 GiB. */
uint64_t machine_memory_margin(const machine *m);
enum { MACHINE_DISK_MARGIN = 1 << 30 };

#endif
