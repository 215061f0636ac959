#include "run/misfit_text.h"

#include "base/units.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void misfit_append(char *out, size_t n, const char *fmt, ...)
{
    const size_t used = strlen(out);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(out + used, n - used, fmt, ap);
    va_end(ap);
}

void misfit_say_change(const search_input *in, const search_room *room, const uint64_t budget[TIERS], const char *whose,
                       char out[MISFIT_CHANGE_BYTES])
{
    static const char *const of_gpu[TIERS] = {"GPU memory", "RAM", "disk"}, *const of_cpu[TIERS] = {"RAM", "RAM", "disk"};
    bool beyond = false;
    search_write_options(in, budget, out, MISFIT_CHANGE_BYTES);
    for (tier t = 0; t < TIERS; t++) {
        char size[32];
        if (budget[t] > room->has[t])
            misfit_append(out, MISFIT_CHANGE_BYTES, "%s%s more %s", beyond ? " and " : " (", size_option(size, budget[t] - room->has[t]),
                   (room->gpu ? of_gpu : of_cpu)[t]);
        beyond = beyond || budget[t] > room->has[t];
    }
    if (beyond)
        misfit_append(out, MISFIT_CHANGE_BYTES, " than %s)", whose);
}

void misfit_say_budgets(const search_input *in, char *out, size_t n)
{
    char size[32];
    out[0] = 0;
    for (tier t = 0; t < TIERS; t++)
        if (t == TIER_DEVICE || in->budget[t])
            misfit_append(out, n, "%s%s of %s", *out ? " and " : "", size_format(size, in->budget[t]),
                   t == TIER_DISK ? "the disk" : t == TIER_HOST ? "host memory" : "device memory");
    if (in->threads_bytes)
        misfit_append(out, n, ", besides %s for the threads", size_format(size, in->threads_bytes));
}
