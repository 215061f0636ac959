/* measure_beside.c - contention: how many times as long everything takes beside everything else.
 *
 * Computation is timed alone (the curves have the times of transfers alone). Then every pair of classes that can overlap in a plan runs
 * concurrently, both for the same time. The result is the ratio of paces while both ran, as the mean of two rounds. The mean is right
 * because a step is a sum, and includes the moments in which the disk's work disturbs everything (layers beside reads took 0.99 times as
 * long as alone in the median, 1.12 in the mean). Copies beside computation are timed one by one, each after a pause. Transfers of a second
 * length are timed as well, because their slowdown differs (other_bytes). If a virtual machine stalls beside its disk at the end of each
 * period (measure_quota.c), the stalls are left out here. Computation beside reads and writes was timed during that measurement; its result
 * is compared with computation alone in both rounds.
 *
 * A control group's quota is known. If concurrent work needs more processor time than the quota, all of it takes longer by their ratio.
 * Computation is then timed for one period.
 */
#include "measure/links.h"

#include <math.h>
#include <unistd.h>

enum { ROUNDS = 2 };
/* Limit on a disturbed machine, where the effect of other programs cannot be separated from that of the pair. Hardly any pair exceeds it.
 */
static const double DISTURBED_SLOW_MOST = 2;

typedef struct contention {
    links *of;
    const cost_quota *quota;
    watched paces[COST_CLASSES]; /* of reads and writes beside quota_class, from measure_quota */
    load loads[COST_CLASSES];
} contention;

static double processors(const pace *p)
{
    const double ns = (double)(p->at[p->n] - p->at[0]);
    return ns > 0 ? (double)(p->work[1] - p->work[0]) / ns : 0;
}

/* The slowdown if the quota is used up in every period: all threads then stall together. */
static double stretch(const contention *x, double wanted)
{
    const double quota = x->of->b->r->host->info.quota;
    return quota > 0 ? fmax(wanted / quota, 1) : 1;
}

/* Is the quota that both use up priced separately (measure_quota.c)? Then both stall at times. */
static bool stands(const contention *x, const load *computes, const load *moves)
{
    const double *busy = x->quota->busy;
    const bool disk = moves->class == COST_READ || moves->class == COST_WRITE;
    return computes->computes && disk && busy[computes->class] > 0 && busy[moves->class] > 0;
}

/* ns of one run of each while the other runs; b NULL: of `a` alone. */
static int run_beside(const contention *x, load *a, load *b, double ns, double *a_ns, double *b_ns, pt_error *e)
{
    pace pa, pb;
    int failed = paces_run(a, b, ns, &pa, &pb, e);
    if (failed)
        return failed;
    const double by = stretch(x, processors(&pa) + (b ? processors(&pb) : 0));
    double from, to;
    paces_meet(&pa, b ? &pb : NULL, &from, &to);
    const double stood = b && stands(x, a, b) ? pace_stood(&pa, from, to) : 0;
    *a_ns = by * pace_ns(&pa, from, to, stood);
    if (b)
        *b_ns = by * pace_ns(&pb, from, to, stood);
    return 0;
}

static bool meet(const contention *x, int a, int b)
{
    return x->loads[a].queue && x->loads[b].queue && x->loads[a].queue != x->loads[b].queue;
}

/* The largest size for which a read and a write are short; at least 4 MiB, like a chunk's transfers. */
static uint64_t beside_bytes(const costs *costs, uint64_t room)
{
    const double moment = 15e6;
    uint64_t bytes = 4 << 20;
    for (int i = 0; i < costs->read.n && i < costs->write.n; i++)
        if (costs->read.ns[i] <= moment && costs->write.ns[i] <= moment && (uint64_t)costs->read.amount[i] > bytes)
            bytes = (uint64_t)costs->read.amount[i];
    return room / 2 < bytes ? room / 2 : bytes;
}

/* The time of a transfer alone, from its curve, because tasks are priced by that. Three writes timed here took up to 1.4 times as long. */
static double alone_by_curve(const costs *costs, int class, int bytes)
{
    const cost_curve *const curves[COST_CLASSES] = {[COST_TO_DEVICE] = &costs->to_device, [COST_FROM_DEVICE] = &costs->from_device,
                                                    [COST_READ] = &costs->read, [COST_WRITE] = &costs->write};
    return curves[class] ? cost_at(curves[class], bytes) : 0;
}

/* The second length: for copies the longest, for disk transfers a short one. All requests of a short transfer are in flight at once, and
 * wait behind all requests of the other direction: in steps, transfers of less than 8 MiB took 1.3 times as long as those of 16 MiB
 * predict, and longer ones as long as predicted (bench/results). */
static int other_bytes(const contention *x, int class, int usual)
{
    const int some = 4 << 20;
    return class != COST_READ && class != COST_WRITE ? (int)x->of->most : usual < some ? usual : some;
}

static void set_loads(contention *x, const costs *costs)
{
    int elements = (int)(x->of->update[0].elements < 4 << 20 ? x->of->update[0].elements / 4 : 1 << 20);
    int bytes = (int)beside_bytes(costs, x->of->file && x->of->written < x->of->most ? x->of->written : x->of->most);
    links_set_copies(x->of, false);
    links_set_disk(x->of, x->of->written, true);
    for (int class = 0; class < COST_CLASSES; class++)
        x->loads[class] = (load){.queue = x->of->queues[class], .submit = transfer_run, .arg = &x->of->transfers[class], .index = bytes,
                                 .alone_ns = alone_by_curve(costs, class, bytes), .other = other_bytes(x, class, bytes),
                                 .other_ns = alone_by_curve(costs, class, other_bytes(x, class, bytes))};
    x->loads[COST_MATH] = (load){.queue = x->of->b->compute, .submit = timed_matmul_run, .arg = &x->of->timed_matmul};
    x->loads[COST_MEMORY] = (load){.queue = x->of->b->compute, .submit = update_run, .arg = &x->of->update[0], .index = elements};
    x->loads[COST_HOST] = (load){.queue = x->of->queues[COST_HOST], .submit = update_run, .arg = &x->of->update[1], .index = elements};
    for (int class = 0; class < COST_CLASSES; class++) {
        x->loads[class].class = (cost_class)class;
        x->loads[class].computes = class == COST_MATH || class == COST_MEMORY || class == COST_HOST;
    }
}

static int measure_alone(const contention *x, load *l, double ns, pt_error *e)
{
    int failed = l->alone_ns > 0 ? 0 : run_beside(x, l, NULL, 0, &l->alone_ns, NULL, e);
    return failed ? failed : run_beside(x, l, NULL, ns, &l->alone_ns, NULL, e);
}

/* First a warm-up of `ns`. */
static int measure_computing(contention *x, load *computes, double ns, double long_ns, pt_error *e)
{
    int failed = measure_alone(x, computes, ns, e);
    return failed ? failed : measure_alone(x, computes, long_ns, e);
}

/* Times computation alone for as long as it is timed in pairs, because a GPU may be faster in its first 20 ms than it can sustain. When
 * timed for less, an H100's matmuls seemed to take 1.1 times as long beside anything, even beside the host's updates, which do not use the
 * GPU. */
static int measure_all_computing(contention *x, double ns, double long_ns, pt_error *e)
{
    int failed = 0;
    for (int a = 0; a < COST_CLASSES && !failed; a++)
        if (x->loads[a].queue && x->loads[a].computes)
            failed = measure_computing(x, &x->loads[a], ns, long_ns, e);
    return failed;
}

static void note_slower(samples *slow, double beside_ns, double alone_ns)
{
    double x = beside_ns / alone_ns;
    if (!(beside_ns > 0) || !(alone_ns > 0)) /* the two did not overlap */
        return;
    samples_add(slow, x > SLOW_MOST ? SLOW_MOST : x);
}

static int measure_pair(contention *x, load *a, load *b, double ns, double beside_ns, samples *slow_a, samples *slow_b, pt_error *e)
{
    double a_ns, b_ns;
    int failed = a->computes ? run_beside(x, a, NULL, ns, &a_ns, NULL, e) : 0; /* a warm-up; if one of the pair computes, it is a */
    if (!failed)
        failed = run_beside(x, a, b, beside_ns, &a_ns, &b_ns, e);
    if (failed)
        return failed;
    note_slower(slow_a, a_ns, a->alone_ns);
    note_slower(slow_b, b_ns, b->alone_ns);
    return 0;
}

/* The scheduler of the system prefers a thread that slept: a copy after a pause, as in a step, runs at full speed for about 3 ms, then it
 * shares the processors with computation. In steps, copies of 1 to 2 ms took 1.2 to 1.8 times as long as alone in the mean, and copies of 4
 * ms and more 1.7 to 2.2 times; back-to-back copies take two to three times as long. So copies of the usual and of the longest length
 * alternate, each after a pause. Computation is timed beside back-to-back copies (measure_pair), where it loses half of the time of each;
 * layers of a step lost 0.4. */
static int measure_rested(contention *x, load *computes, load *copies, double ns, samples slow[2], pt_error *e)
{
    enum { MOST = SAMPLES / ROUNDS };
    int64_t from[MOST], to[MOST], end;
    const double alone[2] = {copies->alone_ns, copies->other_ns};
    const int bytes[2] = {copies->index, copies->other};
    const double pairs = ns / 3 / (alone[0] + alone[1]);
    int n = pairs < 2 ? 4 : pairs < MOST / 2 ? 2 * (int)pairs : MOST, failed = 0;
    for (int i = load_runs(computes, ns); i > 0; i--)
        computes->submit(computes->queue, computes->arg, computes->index, computes->turn++);
    queue_mark(computes->queue, &end);
    for (int i = 0; i < n && !failed; i++) {
        usleep((useconds_t)(alone[i % 2] * 1e-3));
        queue_mark(copies->queue, &from[i]);
        copies->submit(copies->queue, copies->arg, bytes[i % 2], copies->turn++);
        queue_mark(copies->queue, &to[i]);
        failed = queue_sync(copies->queue, queue_signal(copies->queue), e);
    }
    pt_error second = {0};
    int failed_too = queue_sync(computes->queue, queue_signal(computes->queue), &second);
    if (failed_too && !failed)
        failed = pt_fail(e, failed_too, "%s", second.text);
    for (int i = 0; i < n && !failed && to[i] <= end; i++)
        note_slower(&slow[i % 2], (double)(to[i] - from[i]), alone[i % 2]);
    return failed;
}

static void add_all(samples *to, const samples *from)
{
    for (int i = 0; i < from->n; i++)
        samples_add(to, from->ns[i]);
}

/* The slowdown of each class beside each other class. */
typedef samples beside[COST_CLASSES][COST_CLASSES];

/* Computation beside copies. With a quota of processor time, or if no copy ended in time, the result of back-to-back copies is used. */
static int measure_with_copies(contention *x, load *computes, load *copies, double ns, double beside_ns, samples *slow,
                               samples *slow_copies, samples *slow_long, pt_error *e)
{
    samples back_to_back = {0}, rested[2] = {0};
    int failed = measure_pair(x, computes, copies, ns, beside_ns, slow, &back_to_back, e);
    if (!failed && x->of->b->r->host->info.quota <= 0)
        failed = measure_rested(x, computes, copies, beside_ns, rested, e);
    add_all(slow_copies, rested[0].n ? &rested[0] : &back_to_back);
    if (rested[0].n)
        add_all(slow_long, &rested[1]);
    return failed;
}

/* Copies in both directions at once. Each uses half of the memory, where copies are faster alone as well, so they are timed alone again. */
static int measure_copies(contention *x, double ns, double beside_ns, samples *slow_to, samples *slow_from, pt_error *e)
{
    load to = x->loads[COST_TO_DEVICE], from = x->loads[COST_FROM_DEVICE];
    links_set_copies(x->of, true);
    int failed = measure_alone(x, &to, ns, e);
    if (!failed)
        failed = measure_alone(x, &from, ns, e);
    if (!failed)
        failed = measure_pair(x, &to, &from, ns, beside_ns, slow_to, slow_from, e);
    links_set_copies(x->of, false);
    return failed;
}

/* Reads beside writes, then short transfers of each beside the usual ones of the other. */
static int measure_disk(contention *x, double ns, double beside_ns, beside slow, beside other, pt_error *e)
{
    load *read = &x->loads[COST_READ], *write = &x->loads[COST_WRITE], short_read = *read, short_write = *write;
    samples rest = {0};
    short_read.index = read->other;
    short_read.alone_ns = read->other_ns;
    short_write.index = write->other;
    short_write.alone_ns = write->other_ns;
    int failed = measure_pair(x, read, write, ns, beside_ns, &slow[COST_READ][COST_WRITE], &slow[COST_WRITE][COST_READ], e);
    if (failed || read->other == read->index) /* the usual size is the short one */
        return failed;
    failed = measure_pair(x, &short_read, write, ns, fmax(beside_ns / 4, ns), &other[COST_READ][COST_WRITE], &rest, e);
    if (!failed)
        failed = measure_pair(x, read, &short_write, ns, fmax(beside_ns / 4, ns), &rest, &other[COST_WRITE][COST_READ], e);
    return failed;
}

static bool copies(int class) { return class == COST_TO_DEVICE || class == COST_FROM_DEVICE; }

/* Were they timed together by measure_quota, and are their stalls, if any, the quota's? */
static bool were_watched(const contention *x, int a, int b)
{
    const watched *w = &x->paces[b];
    return a == quota_class(x->of) && w->computes_ns > 0 && w->moves_ns > 0 && (x->quota->busy[b] > 0 || w->stood_ns <= 0);
}

static int measure_meeting(contention *x, int a, int b, double ns, double beside_ns, beside slow, beside other, pt_error *e)
{
    samples *slow_a = &slow[a][b], *slow_b = &slow[b][a];
    const bool a_copies = copies(a), b_copies = copies(b);
    if (!meet(x, a, b))
        return 0;
    if (a_copies && b_copies)
        return measure_copies(x, ns, beside_ns, slow_a, slow_b, e);
    if (were_watched(x, a, b)) {
        note_slower(slow_a, x->paces[b].computes_ns, x->loads[a].alone_ns);
        note_slower(slow_b, x->paces[b].moves_ns, x->loads[b].alone_ns);
        return 0;
    }
    if (a == COST_READ && b == COST_WRITE)
        return measure_disk(x, ns, beside_ns, slow, other, e);
    if (b_copies)
        return measure_with_copies(x, &x->loads[a], &x->loads[b], ns, beside_ns, slow_a, slow_b, &other[b][a], e);
    if (a_copies && b == COST_HOST)
        return measure_with_copies(x, &x->loads[b], &x->loads[a], ns, beside_ns, slow_b, slow_a, &other[a][b], e);
    const bool quota = x->of->b->r->host->info.quota > 0; /* without one, no whole period is needed */
    return measure_pair(x, &x->loads[a], &x->loads[b], ns, quota ? beside_ns : fmax(beside_ns / 2, ns), slow_a, slow_b, e);
}

/* Slowdowns below 1 are noise. Long copies may lose more (measure_rested) or less: if all cores are busy, the thread that starts a GPU's
 * copies waits for one at times, for a millisecond or more, which is a small part of a long copy. */
static void set_slow(const contention *x, costs *costs, beside slow, beside other)
{
    const double most = x->of->b->compute->disturbed ? DISTURBED_SLOW_MOST : SLOW_MOST;
    for (int a = 0; a < COST_CLASSES; a++) {
        const load *l = &x->loads[a];
        const bool two = l->other_ns > 0 && fmax(l->other_ns, l->alone_ns) >= COST_LENGTHS_LEAST * fmin(l->other_ns, l->alone_ns);
        costs->slow_ns[a][0] = two ? l->alone_ns : 0;
        costs->slow_ns[a][1] = two ? l->other_ns : 0;
        const double share = costs_length_most(costs, (cost_class)a);
        for (int b = 0; b < COST_CLASSES; b++) {
            costs->slow[a][b] = slow[a][b].n ? fmin(fmax(samples_mean(&slow[a][b]), 1), most) : 1;
            const double more = share > 0 && other[a][b].n ? share * (samples_mean(&other[a][b]) - costs->slow[a][b]) : 0;
            const double possible = fmin(fmax(more, 1 - costs->slow[a][b]), most - costs->slow[a][b]); /* every length in range */
            costs->slow_more[a][b] = share > 0 ? possible / share : 0;
        }
    }
}

int measure_contention(links *of, costs *costs, pt_error *e)
{
    contention all = {.of = of, .quota = &costs->quota}, *x = &all;
    const double ns = of->most >= 1 << 24 ? 20e6 : 3e6, beside_ns = of->most >= 1 << 24 ? QUOTA_PERIOD_NS : ns;
    beside slow = {0}, other = {0};
    const bool whole = device_is_gpu(of->b->r->device) || of->b->r->host->info.quota > 0;
    int failed = 0;
    set_loads(x, costs);
    if (quota_shows(of))
        failed = measure_computing(x, &x->loads[quota_class(of)], ns, ns, e);
    if (!failed && quota_shows(of))
        failed = measure_quota(of, x->loads, &costs->quota, x->paces, e);
    for (int round = 0; round < ROUNDS && !failed; round++) {
        bench_progress(of->b, "measuring all beside each other", round, ROUNDS);
        failed = measure_all_computing(x, ns, whole ? beside_ns : fmax(beside_ns / 2, ns), e);
        for (int a = 0; a < COST_CLASSES && !failed; a++)
            for (int b = a + 1; b < COST_CLASSES && !failed; b++)
                failed = measure_meeting(x, a, b, ns, beside_ns, slow, other, e);
    }
    set_slow(x, costs, slow, other);
    return failed;
}

