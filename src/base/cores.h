/* cores.h - number of processors available to this process. */
#ifndef PT_CORES_H
#define PT_CORES_H

#include <sched.h>
#include <unistd.h>

/* By its affinity; all of them if that is unknown (more processors than a cpu_set_t has). machine.h applies control groups. */
static inline int cores_allowed(void)
{
    cpu_set_t allowed;
    int n = sched_getaffinity(0, sizeof allowed, &allowed) ? (int)sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&allowed);
    return n > 0 ? n : 1;
}

#endif
