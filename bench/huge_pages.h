/* huge_pages.h - memory as the device's arenas lie in: pages of 2 MiB where the system grants them. */
#ifndef PT_BENCH_HUGE_PAGES_H
#define PT_BENCH_HUGE_PAGES_H

#include <stdlib.h>
#include <sys/mman.h>

/* For free(). */
static inline void *huge_pages(size_t bytes)
{
    const size_t huge = 2 << 20;
    bytes = (bytes + huge - 1) / huge * huge;
    void *p = aligned_alloc(huge, bytes);
    if (p)
        madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

#endif
