/* cores.h - number of processors available to this process. */
#ifndef PT_CORES_H
#define PT_CORES_H

#include <sched.h>
#include <unistd.h>

/* The processors in its affinity mask, or all if the mask cannot be read (more processors than a cpu_set_t has). machine.h applies cgroup
 * quotas. */
static inline int cores_allowed(void)
{
    cpu_set_t allowed;
    int n = sched_getaffinity(0, sizeof allowed, &allowed) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&allowed);
    return n > 0 ? n : 1;
}

#endif
