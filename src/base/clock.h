/* clock.h - monotonic time, and processor time. */
#ifndef PT_CLOCK_H
#define PT_CLOCK_H

#include <stdint.h>
#include <time.h>

/* 0 if there is no such clock. */
static inline int64_t clock_ns_of(clockid_t clock)
{
    struct timespec t;
    return clock_gettime(clock, &t) ? 0 : (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t clock_ns(void) { return clock_ns_of(CLOCK_MONOTONIC); }

static inline double clock_s(void) { return (double)clock_ns() * 1e-9; }

#endif
