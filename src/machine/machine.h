/* machine.h - the processors of this machine, and how much memory a process may still take.
 *
 * Memory is limited by the machine; by control groups (both versions, every ancestor of the process's group; memory.high is a limit, too);
 * by the memory nodes that a cpuset or numactl leaves to the process; without overcommitment (vm.overcommit_memory=2) by what may still be
 * mapped; and by the process's own limits (RLIMIT_AS, RLIMIT_DATA). Free memory is the least under all of these. Page cache that the
 * kernel would reclaim counts as free.
 *
 * RLIMIT_MEMLOCK (8 MiB by default) does not matter: the disk tier locks no memory, and NVIDIA's driver pins the host tier without checking
 * it (os_lock_user_pages in kernel-open/nvidia/os-mlock.c of its open kernel modules).
 */
#ifndef PT_MACHINE_H
#define PT_MACHINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct machine {
    char processor[96];
    int cores;                     /* that this process may use: by its affinity and the groups' quotas, rounded up */
    double quota;                  /* number of processors whose time the groups give it; 0: unlimited */
    uint64_t memory_bytes;         /* of the machine, or the control group's limit if that is lower */
    uint64_t memory_used_bytes;    /* by all processes under that limit, including this one */
    uint64_t memory_free_bytes;    /* that this process may still take without swapping, under all limits */
    char memory_limit[96];         /* what limits it: "RAM", the control group's file, "memory nodes 0", "ulimit -v" ... */
    bool own_limit;                /* the limit applies to this process alone */
} machine;

int machine_probe(machine *m, pt_error *e);
/* The same, with the files of /proc and /sys under another root: for tests. */
int machine_probe_at(const char *root, machine *m, pt_error *e);
int machine_threads(int asked); /* compute threads: `asked`, or if that is 0 the number of cores; 0: unknown */
double machine_quota(void);     /* 0 also if unknown */

/* The peak resident memory of this process; 0: unknown. (getrusage's value includes the program that started this one by exec.) */
uint64_t machine_process_peak(void);

/* Memory left to everything else: 5%, at least 512 MiB or a quarter, and what the program takes beside its arenas; under a limit of this
 * process alone 5%, at least 128 MiB; on a disk 1 GiB. */
enum { MACHINE_PROGRAM_BYTES = 96 << 20 };
uint64_t machine_memory_margin(const machine *m);
enum { MACHINE_DISK_MARGIN = 1 << 30 };

#endif
