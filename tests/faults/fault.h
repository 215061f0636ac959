/* fault.h - gives the programs that a test starts the faults of faults/shim.c. Include io/scratch.h and program.h before. */
#ifndef PT_TEST_FAULT_H
#define PT_TEST_FAULT_H

#include "sanitized.h"

enum { SHIM_WORKS = !SANITIZED }; /* a sanitizer stands there itself */

static inline const char *fault_count_path(void) { return scratch_path("count"); }

/* For what is started until fault_clear. rank: of --ranks, the one that has the fault; NULL: without ranks. */
static inline void fault_set(const char *fault, const char *rank)
{
    setenv("PT_FAULT", fault, 1);
    setenv("PT_FAULT_COUNT", fault_count_path(), 1);
    if (rank)
        setenv("PT_FAULT_RANK", rank, 1);
    unlink(fault_count_path());
    (void)!symlink(PT_FAULT_SHIM, scratch_path("shim.so")); /* the loader cuts its list at spaces */
    setenv("LD_PRELOAD", scratch_path("shim.so"), 1);
}

/* For what is started until fault_clear: the power fails at this call that writes states with two slots, or makes them durable
 * (faults/shim.c). what: any, sync */
static inline void fault_lose_power(long call, long seed, const char *what)
{
    char text[64];
    snprintf(text, sizeof text, "%ld %ld %s", call, seed, what);
    fault_set("none none 0 none", NULL);
    setenv("PT_LOSE", text, 1);
}

static inline void fault_clear(void)
{
    static const char *const names[] = {"LD_PRELOAD", "PT_FAULT", "PT_FAULT_COUNT", "PT_FAULT_RANK", "PT_LOSE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

/* How many calls of the kind the last program made that came to its end. */
static inline int fault_count(void)
{
    if (access(fault_count_path(), F_OK))
        fail_msg("%s was not loaded", PT_FAULT_SHIM);
    return atoi(text_of(fault_count_path()));
}

#endif
