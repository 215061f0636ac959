#include "profile/measure_parts.h"

int profile_get(const profile_request *r, profile_result *out, pt_error *e)
{
    bench b;
    block_check check;
    double start = measure_now();
    *out = (profile_result){.cached = false};
    costs_init(&out->costs);
    int failed = bench_open(&b, r, e);
    if (failed)
        return failed;
    failed = measure_blocks(&b, &out->costs, &check, e);
    if (!failed)
        failed = measure_rates(&b, &out->costs, e);
    if (!failed && r->transfers)
        failed = measure_links(&b, &out->costs, e);
    bench_close(&b);
    out->seconds = measure_now() - start;
    return failed;
}
