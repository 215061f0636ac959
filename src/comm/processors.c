#include "comm/processors.h"

#include <sched.h>
#include <stdbool.h>

typedef struct claim { uint64_t machine; cpu_set_t may; } claim;

static void keep_to(const cpu_set_t *all, int place, int places)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    const int n = CPU_COUNT(all);
    for (int cpu = 0, at = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET((size_t)cpu, all))
            continue;
        if (n >= places ? at >= n * place / places && at < n * (place + 1) / places : at == place % n)
            CPU_SET((size_t)cpu, &own);
        at++;
    }
    sched_setaffinity(0, sizeof own, &own);
}

int processors_share(comm *c, int *here, pt_error *e)
{
    claim own = {.machine = c->machine}, all[COMM_RANKS_MOST];
    CPU_ZERO(&own.may);
    bool same = !sched_getaffinity(0, sizeof own.may, &own.may);
    int failed = comm_all_gather(c, &own, sizeof own, all, e), place = 0;
    *here = 0;
    for (int r = 0; r < c->ranks && !failed; r++) {
        if (all[r].machine != own.machine)
            continue;
        same = same && CPU_EQUAL(&all[r].may, &own.may);
        place += r < c->rank;
        ++*here;
    }
    if (!failed && same && *here > 1)
        keep_to(&own.may, place, *here);
    return failed;
}
