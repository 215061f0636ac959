/* seeded.h - a seed that is printed, and a scratch folder. Include after cmocka.h. */
#ifndef PT_TEST_SEEDED_H
#define PT_TEST_SEEDED_H

#include "io/scratch.h"
#include "seed.h"

static uint64_t seed;

static inline int setup(void **state)
{
    seed = test_seed();
    return scratch_make(state);
}

#endif
