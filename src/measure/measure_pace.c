/* measure_pace.c - the pace of two concurrent queues. The end of each run is recorded, and only the interval in which both ran is used. */
#include "measure/links.h"

#include <math.h>

/* The least stall. Disks delay single runs by 1 to 3 ms; stalls at the end of a quota's period are longer, or negligible. */
static const double STANDS_NS = 4e6;

static void pace_begin(pace *p, const load *l)
{
    p->n = 0;
    p->work[0] = p->work[1] = 0;
    queue_mark_work(l->queue, &p->work[0]);
    queue_mark(l->queue, &p->at[0]);
}

static void pace_step(pace *p, load *l)
{
    l->submit(l->queue, l->arg, l->index, l->turn++);
    queue_mark(l->queue, &p->at[++p->n]);
}

int load_runs(const load *l, double ns)
{
    double n = l->alone_ns > 0 ? ns / l->alone_ns : 0;
    return n < 3 ? 3 : n > PACE_RUNS ? PACE_RUNS : (int)n;
}

static int sync_both(load *a, load *b, pt_error *e)
{
    pt_error second = {0};
    int failed = queue_sync(a->queue, queue_signal(a->queue), e);
    int failed_b = b ? queue_sync(b->queue, queue_signal(b->queue), &second) : 0;
    return failed || !failed_b ? failed : pt_fail(e, failed_b, "%s", second.text);
}

int paces_run(load *a, load *b, double ns, pace *pa, pace *pb, pt_error *e)
{
    int n = load_runs(a, ns), m = b ? load_runs(b, ns) : 0;
    pace_begin(pa, a);
    if (b)
        pace_begin(pb, b);
    for (int i = 0; i < n || i < m; i++) {
        if (i < n)
            pace_step(pa, a);
        if (i < m)
            pace_step(pb, b);
    }
    queue_mark_work(a->queue, &pa->work[1]);
    if (b)
        queue_mark_work(b->queue, &pb->work[1]);
    return sync_both(a, b, e);
}

void paces_meet(const pace *a, const pace *b, double *from, double *to)
{
    *from = (double)a->at[0];
    *to = (double)a->at[a->n];
    if (!b)
        return;
    *from = fmax(*from, (double)b->at[0]);
    *to = fmin(*to, (double)b->at[b->n]);
}

double pace_stood(const pace *p, double from, double to)
{
    samples runs = {0};
    double stood = 0;
    for (int i = 0; i < p->n; i++)
        samples_add(&runs, (double)(p->at[i + 1] - p->at[i]));
    const double usual = samples_median(&runs);
    for (int i = 0; i < p->n; i++) {
        const double begin = (double)p->at[i], end = (double)p->at[i + 1], within = fmin(end, to) - fmax(begin, from);
        if (within > 0 && end - begin > usual + STANDS_NS)
            stood += (end - begin - usual) * within / (end - begin);
    }
    return stood;
}

/* The number of runs finished by time t, fractions included. */
static double runs_until(const pace *p, double t)
{
    int i = 0;
    while (i < p->n && (double)p->at[i + 1] <= t)
        i++;
    double from = (double)p->at[i], length = i < p->n ? (double)p->at[i + 1] - from : 1;
    return i + (t > from && length > 0 ? (t - from) / length : 0);
}

double pace_ns(const pace *p, double from, double to, double stood)
{
    double runs = to > from ? runs_until(p, to) - runs_until(p, from) : 0;
    return runs > 0 ? (to - from - stood) / runs : 0;
}
