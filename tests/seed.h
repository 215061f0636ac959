/* seed.h - the seed of a test's random inputs: PT_TEST_SEED, or the time. It is printed, so that a run can be repeated. */
#ifndef PT_TEST_SEED_H
#define PT_TEST_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline uint64_t test_seed(void)
{
    const char *given = getenv("PT_TEST_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    printf("PT_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

#endif
