#include "comm/join.h"

#include "comm/shm.h"

#include <stdlib.h>

/* A small number, -1: none. */
static int number_of(const char *name)
{
    const char *text = getenv(name);
    char *end;
    const long n = text && *text ? strtol(text, &end, 10) : -1;
    return n < 0 || n > 1 << 20 || *end ? -1 : (int)n;
}

int join_rank(void) { return number_of(JOIN_RANK); }

int join_open(int ranks, comm **out, pt_error *e)
{
    shm_segment *s;
    *out = NULL;
    if (ranks <= 1)
        return 0;
    if (join_rank() < 0 || number_of(JOIN_MEMORY) < 0)
        return pt_fail(e, PT_USAGE, "`ranks` is %d, but this process was started alone: start it with protrain train --ranks %d", ranks,
                       ranks);
    int failed = shm_segment_map(number_of(JOIN_MEMORY), &s, e); /* until the process ends */
    if (!failed && shm_segment_ranks(s) != ranks)
        failed = pt_fail(e, PT_USAGE, "`ranks` is %d, but %d ranks were started", ranks, shm_segment_ranks(s));
    return failed ? failed : comm_shm_open(s, join_rank(), out, e);
}
