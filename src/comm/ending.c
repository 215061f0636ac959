#include "comm/ending.h"

#include "base/clock.h"

#include <stdio.h>

bool ending_say(ending *end, int rank, int code, const char *why)
{
    int none = 0;
    if (!atomic_compare_exchange_strong(&end->state, &none, 1))
        return false;
    end->code = code ? code : PT_FAILED;
    end->at_s = clock_s();
    if (rank < 0)
        snprintf(end->text, sizeof end->text, "%.430s", why);
    else
        snprintf(end->text, sizeof end->text, "rank %d: %.410s", rank, why);
    atomic_store(&end->state, 2);
    return true;
}

bool ending_ask(const ending *end, pt_error *why)
{
    if (!atomic_load(&end->state))
        return false;
    const struct timespec moment = {.tv_nsec = 1000000};
    for (int i = 0; i < 1000 && atomic_load(&end->state) == 1; i++) /* the writer may have been killed meanwhile */
        nanosleep(&moment, NULL);
    if (atomic_load(&end->state) == 2)
        pt_fail(why, end->code, "%s", end->text);
    else
        pt_fail(why, PT_FAILED, "another rank failed");
    return true;
}
