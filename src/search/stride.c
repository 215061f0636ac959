#include "search/stride.h"

#include <limits.h>
#include <math.h>

int stride_choose(const stride_rates *r)
{
    double once = 3 / r->to_device + 1 / r->update_device;
    double gained = 1 / r->update_host + 1 / r->convert_host - 1 / (2 * r->to_device); /* saved by each chunk that stays on the host */
    double others = ceil(once / gained);
    if (!(gained > 0) || !(others < INT_MAX))
        return 0;
    return 1 + (others < 1 ? 1 : (int)others);
}

stride_rates stride_rates_of(const costs *costs, double elements)
{
    const double per_ns = 1e9 * elements;
    return (stride_rates){.to_device = per_ns / cost_at(&costs->to_device, elements * sizeof(float)),
                          .update_device = per_ns / cost_at(&costs->update_device, elements),
                          .update_host = per_ns / cost_at(&costs->update_host, elements), .convert_host = INFINITY};
}
