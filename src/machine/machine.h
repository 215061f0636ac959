/* machine.h - what this machine has: processors, and how much memory a process may still take.
 *
 * Memory is limited by the machine, by control groups (both versions, every group above the process's own; memory.high counts as a
 * limit), by the memory nodes that a cpuset or numactl leaves to the process, where nothing may be overcommitted
 * (vm.overcommit_memory=2) by what may still be mapped, and by the process's own limits (RLIMIT_AS, RLIMIT_DATA). What counts is what is
 * free under the tightest of them; page cache that the kernel would give back counts as free.
 *
 * RLIMIT_MEMLOCK (8 MiB by default) limits none of it: the disk tier locks no memory, and NVIDIA's driver pins the host tier without
 * asking it (os_lock_user_pages in kernel-open/nvidia/os-mlock.c of its open kernel modules).
 */
#ifndef PT_MACHINE_H
#define PT_MACHINE_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct machine {
    char processor[96];
    int cores;                     /* that this process may use: its affinity, and the groups' quotas rounded up */
    double quota;                  /* of how many processors it gets the time, by the groups; 0: of all that it may use */
    uint64_t memory_bytes;         /* the machine's, or the control group's limit if that is lower */
    uint64_t memory_used_bytes;    /* by all processes under that limit, this one too */
    uint64_t memory_free_bytes;    /* that this process may still take without swapping, under all limits */
    char memory_limit[96];         /* what limits it: "RAM", the control group's file, "memory nodes 0", "ulimit -v" ... */
    bool own_limit;                /* that is this process's alone */
} machine;

int machine_probe(machine *m, pt_error *e);
/* The same, with the files of /proc and /sys under another root: for tests. */
int machine_probe_at(const char *root, machine *m, pt_error *e);
int machine_threads(int asked); /* to compute with: asked, or where that is 0 the cores; 0: they are not known */
double machine_quota(void);     /* 0 where it is not known, too */

/* The most RAM that this process had at once, 0: not known. (getrusage's is as large as that of a program that became this one by exec.) */
uint64_t machine_process_peak(void);

/* Left to everything else: 5% of the memory, at least 512 MiB; of a limit that no other program shares at least 128 MiB; of a disk
 * 1 GiB. */
uint64_t machine_memory_margin(const machine *m);
enum { MACHINE_DISK_MARGIN = 1 << 30 };

#endif
