/* metrics.c - the lines of a run's metrics.jsonl (io/steps.h). */
#include "ritz/solver.h"

#include <math.h>

int ritz_metrics_open(pt_ritz *ritz, pt_error *e)
{
    bool there;
    return step_lines_open(&ritz->metrics, ritz->out, ritz->step, NULL, NULL, &there, e);
}

int ritz_metrics_write(pt_ritz *ritz, const pt_ritz_step_info *s, pt_error *e)
{
    FILE *f = ritz->metrics.file;
    if (!f)
        return 0;
    const off_t bytes = step_lines_length(&ritz->metrics);
    fprintf(f, "{\"step\":%lld,\"%s\":%.17g,\"lr\":%.9g,\"step_s\":%.6g", (long long)s->step,
            ritz->net.jets ? "residual" : "energy", s->energy, s->lr, s->step_s);
    if (ritz->forecast.step_ns > 0)
        fprintf(f, ",\"predicted_step_s\":%.6g", ritz->forecast.step_ns / 1e9);
    for (int t = 0; t < TIERS; t++)
        if (ritz->forecast.bytes[t])
            fprintf(f, ",\"%s_peak_bytes\":%llu,\"%s_predicted_bytes\":%llu", tier_names[t],
                    (unsigned long long)ritz_peak_bytes(ritz, (tier)t), tier_names[t], (unsigned long long)ritz->forecast.bytes[t]);
    if (s->evaluated && isfinite(s->l2_error) && isfinite(s->h1_error))
        fprintf(f, ",\"l2_error\":%.17g,\"h1_error\":%.17g,\"h1_seminorm_error\":%.17g,\"energy_norm_error\":%.17g%s", s->l2_error,
                s->h1_error, s->h1_seminorm_error, s->energy_norm_error, ritz->exact_is_zero ? ",\"absolute_errors\":1" : "");
    if (s->estimated && isfinite(s->estimate.energy))
        fprintf(f, ",\"estimated_energy\":%.17g,\"standard_error\":%.9g", s->estimate.energy, s->estimate.standard_error);
    fputs("}\n", f);
    return step_lines_flush(&ritz->metrics, bytes, e);
}
