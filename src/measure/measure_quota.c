/* measure_quota.c - the processor time that a virtual machine's host uses for the machine's disk, if it is charged to the machine.
 *
 *   |#########################------|#########################------|     two processors compute beside disk reads, and stall
 *   |#####  #####  #####  #####  ###|##  #####  #####  #####  #####  |     they compute half of the time, and never stall
 *   0                             100                             200 ms
 *
 * Some hosts grant a machine as much processor time per 100 ms as its processors can use, and charge their own work for the machine's disk
 * to it. Beside a busy disk, all processors then run at full speed until the period's quota is used up, and stall for the rest of the
 * period: 24 to 35 ms of 100 at 2 GB/s. If they compute for only 40 ms of 100, they never stall. So the slowdown of a step depends on how
 * much it computes meanwhile, and no constant factor describes it.
 *
 * Measurement: all processors compute for two periods, beside reads and then beside writes. The first period is affected by earlier work.
 * If there was a stall in the second, two more are observed, and the shorter stall is used. A stall of a third of the period means that 1.5
 * periods of processor time were used, half a period of it by the host. Stalls without a disk are subtracted (a host that reclaims memory
 * causes them for half a second; a processor limit that is not visible as a control group causes them always). The pace of both outside of
 * stalls is used as the contention of the pair (measure_beside.c), which need not be timed again.
 */
#include "measure/links.h"

#include <math.h>

static const double LEAST_NS = 5e6; /* shorter stalls cannot be told from disturbances of single runs */

int quota_class(const links *x) { return device_is_gpu(x->b->r->device) ? COST_HOST : COST_MATH; }

bool quota_shows(const links *x)
{
    return x->file && x->queues[COST_READ] && x->most >= 1 << 24 && x->b->r->host->info.quota <= 0 &&
           (quota_class(x) == COST_MATH || x->queues[COST_HOST]);
}

typedef struct standing {
    double of_period; /* ns of the stall; NaN: the loads ended before the period did */
    watched pace;
} standing;

/* Observes the second period in which both run. `moves` NULL: computation alone. */
static int watch_period(load *computes, load *moves, standing *out, pt_error *e)
{
    pace a, b;
    double from, to;
    int failed = paces_run(computes, moves, 2.15 * QUOTA_PERIOD_NS, &a, &b, e);
    if (failed)
        return failed;
    paces_meet(&a, moves ? &b : NULL, &from, &to);
    const double begin = from + QUOTA_PERIOD_NS, end = begin + QUOTA_PERIOD_NS, stood = pace_stood(&a, begin, end);
    const double all_stood = moves ? pace_stood(&a, from, to) : 0;
    *out = (standing){.of_period = end <= to && stood < QUOTA_PERIOD_NS ? stood : NAN,
                      .pace = {pace_ns(&a, from, to, all_stood), moves ? pace_ns(&b, from, to, all_stood) : 0, all_stood}};
    return 0;
}

static int watch(load *computes, load *moves, standing *out, pt_error *e)
{
    standing again;
    int failed = watch_period(computes, moves, out, e);
    if (failed)
        return failed;
    if (!(out->of_period >= LEAST_NS)) {
        out->of_period = 0;
        return 0;
    }
    failed = watch_period(computes, moves, &again, e);
    if (!failed)
        out->of_period = fmin(out->of_period, again.of_period); /* fmin ignores NaN */
    return failed;
}

/* The slowdown of transfers outside of stalls. */
static double slower(const load *moves, const standing *s)
{
    return moves->alone_ns > 0 ? fmax(s->pace.moves_ns / moves->alone_ns, 1) : 1;
}

/* The number of the host's processors that transfers keep busy at their undisturbed pace, by the stalls of `threads` threads. Limited to
 * what profile_agree.c accepts. */
static double host_busy(int threads, const load *moves, const standing *beside, const standing *alone)
{
    const double stood = beside->of_period - alone->of_period;
    return stood >= LEAST_NS ? fmin(threads * stood / (QUOTA_PERIOD_NS - stood) * slower(moves, beside),
                                    (double)SLOW_MOST * threads / 2) : 0;
}

int measure_quota(const links *x, load *loads, cost_quota *out, watched paces[COST_CLASSES], pt_error *e)
{
    const bool gpu = device_is_gpu(x->b->r->device);
    load *computes = &loads[quota_class(x)];
    *out = (cost_quota){.period_ns = QUOTA_PERIOD_NS, .processors = computes->queue->threads};
    for (int class = 0; class < COST_CLASSES; class++)
        if (loads[class].queue && class != COST_READ && class != COST_WRITE && (!gpu || class == COST_HOST))
            out->busy[class] = loads[class].queue->threads;
    bench_progress(x->b, "measuring the disk beside computation", 0, 1);
    standing read, write, alone;
    int failed = watch(computes, &loads[COST_READ], &read, e);
    if (!failed)
        failed = watch(computes, &loads[COST_WRITE], &write, e);
    if (!failed) {
        paces[COST_READ] = read.pace;
        paces[COST_WRITE] = write.pace;
    }
    if (failed || fmax(read.of_period, write.of_period) < LEAST_NS)
        return failed;
    failed = watch(computes, NULL, &alone, e);
    if (failed)
        return failed;
    out->busy[COST_READ] = host_busy(computes->queue->threads, &loads[COST_READ], &read, &alone);
    out->busy[COST_WRITE] = host_busy(computes->queue->threads, &loads[COST_WRITE], &write, &alone);
    return 0;
}
