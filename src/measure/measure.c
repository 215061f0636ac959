#include "measure/measure.h"

#include "base/clock.h"
#include "base/cores.h"
#include "base/processor.h"
#include "base/rng.h"
#include "base/units.h"
#include "model/storage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- times ---- */

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int kept(const samples *s) { return s->n < SAMPLES ? s->n : SAMPLES; }

/* Linear interpolation between the sorted samples. */
static double samples_quantile(const samples *s, double at)
{
    double sorted[SAMPLES];
    int n = kept(s);
    if (!n)
        return 0;
    memcpy(sorted, s->ns, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare_double);
    double x = at * (n - 1);
    int i = (int)x;
    return i + 1 < n ? sorted[i] + (sorted[i + 1] - sorted[i]) * (x - i) : sorted[i];
}

double samples_median(const samples *s) { return samples_quantile(s, 0.5); }
double samples_least(const samples *s) { return samples_quantile(s, 0); }

double samples_mean(const samples *s)
{
    double sum = 0;
    for (int i = 0; i < kept(s); i++)
        sum += s->ns[i];
    return kept(s) ? sum / kept(s) : 0;
}

double samples_spread(const samples *s)
{
    double median = samples_median(s);
    return median > 0 ? (samples_quantile(s, 0.75) - samples_quantile(s, 0.25)) / 2 / median : 0;
}

void samples_tell(const samples *s, double *spread)
{
    if (s->n >= TELLING)
        *spread = samples_spread(s);
}

void samples_add(samples *s, double ns) { s->ns[s->n++ % SAMPLES] = ns; }

double ns_at_rows(double few, double few_ns, double many, double many_ns, double rows)
{
    const double each = many_ns / many, slope = few < many ? (many_ns - few_ns) / (many - few) : each;
    return many_ns + fmin(fmax(slope, each / 2), each) * (rows - many);
}

/* ---- disturbance by other programs ---- */

int processor_time_of(queue *q, processor_time *out, pt_error *e)
{
    *out = (processor_time){0};
    if (q->crowded)
        return 0;
    queue_mark_work(q, &out->work_ns);
    queue_mark_waited(q, &out->waited_ns);
    return queue_sync(q, queue_signal(q), e);
}

double processor_share_of_others(const processor_time *from, const processor_time *to)
{
    const double work = (double)(to->work_ns - from->work_ns), waited = (double)(to->waited_ns - from->waited_ns);
    return waited > 0 ? waited / (fmax(work, 0) + waited) : 0;
}

/* Was the queue runnable for most of `ns`, and did other programs keep it from running? Not known under a quota, for which threads wait as
 * well. A queue that moves data is mostly asleep. */
static bool is_disturbed(const queue *q, double ns, const processor_time *from, const processor_time *to)
{
    const double wanted = (double)(to->work_ns - from->work_ns) + (double)(to->waited_ns - from->waited_ns);
    return q->device->info.quota <= 0 && wanted > ns * q->threads / 2 && processor_share_of_others(from, to) > PROFILE_DISTURBED;
}

/* ---- runs ---- */

/* by_work: time runs by processor time. idleness: the least of any run. */
typedef struct timing { bool by_work; double idleness; } timing;
typedef struct tape { timing *timing; int64_t at[TAPE][2], work[TAPE][2], waited[TAPE][2]; samples *to[TAPE]; int n; } tape;

/* More threads than the quota of processors allows stall at the end of each period. Short runs rarely meet a stall, long ones too often. On
 * average, work that is bound by the processors takes its processor time per thread, times threads / quota. */
static double long_run_ns(const queue *q, double ns, double work_ns)
{
    const double quota = q->device->info.quota, times = quota > 0 ? q->threads / quota : 1;
    return times > 1 && work_ns * times > ns / 2 ? work_ns * times : ns;
}

static void tape_stage(tape *t, queue *q, const stage *s, void *arg, int turn)
{
    const bool by_work = t->timing->by_work, work = by_work || q->device->info.quota > 0;
    if (!s->times) {
        s->submit(q, arg, s->index, turn);
        return;
    }
    for (int end = 0; end < 2; end++) {
        if (end)
            queue_mark(q, &t->at[t->n][1]);
        if (work)
            queue_mark_work(q, &t->work[t->n][end]);
        if (by_work)
            queue_mark_waited(q, &t->waited[t->n][end]);
        if (!end) {
            queue_mark(q, &t->at[t->n][0]);
            s->submit(q, arg, s->index, turn);
        }
    }
    t->to[t->n++] = s->times;
}

static int tape_sync(tape *t, queue *q, pt_error *e)
{
    int failed = queue_sync(q, queue_signal(q), e);
    for (int i = 0; i < t->n && !failed; i++) {
        const double ns = (double)(t->at[i][1] - t->at[i][0]), work_ns = (double)(t->work[i][1] - t->work[i][0]) / fmax(q->threads, 1);
        const double waited_ns = (double)(t->waited[i][1] - t->waited[i][0]) / fmax(q->threads, 1);
        samples_add(t->to[i], t->timing->by_work ? work_ns : long_run_ns(q, ns, work_ns));
        if (t->timing->by_work && work_ns > 0)
            t->timing->idleness = fmin(t->timing->idleness, ns / (work_ns + waited_ns));
    }
    return failed;
}

static bool settled(const stage *stages, int n)
{
    enum { LEAST = 5 };
    for (int i = 0; i < n; i++)
        if (stages[i].times && (stages[i].times->n < LEAST || samples_spread(stages[i].times) > 0.01))
            return false;
    return true;
}

/* Each batch begins with another stage: on a busy machine, the first work after a pause runs faster, until other programs are scheduled
 * again. */
static int run_rounds(queue *q, const stage *stages, int n, void *arg, int *turn, int least, double seconds, timing *how, pt_error *e)
{
    const double together = 10e-3; /* seconds of work submitted at a time */
    double start = clock_s();
    for (int rounds = 0, batch = 1, first = 0;; first = (first + 1) % n) {
        tape t = {.timing = how};
        for (int k = first; k < first + n && batch > 1; k++) /* a warm-up, because threads sleep between short runs */
            stages[k % n].submit(q, arg, stages[k % n].index, *turn);
        *turn += batch > 1;
        for (int i = 0; i < batch; i++, ++*turn)
            for (int k = first; k < first + n; k++)
                tape_stage(&t, q, &stages[k % n], arg, *turn);
        int failed = tape_sync(&t, q, e);
        if (failed)
            return failed;
        rounds += batch;
        double took = clock_s() - start, each = took / rounds;
        bool full = stages[n - 1].times && stages[n - 1].times->n >= SAMPLES;
        if (rounds >= least && (took + each > seconds || full || settled(stages, n)))
            return 0;
        batch = each * (TAPE / n) < together ? TAPE / n : (int)(together / each);
        batch = batch < 1 ? 1 : batch;
    }
}

/* Times the rounds by wall-clock or processor time. *disturbed: did other programs occupy the processors? */
static int run_timed(queue *q, const stage *stages, int n, void *arg, int *turn, int least, double seconds, bool by_work, bool *disturbed,
                     pt_error *e)
{
    timing how = {by_work, INFINITY};
    processor_time from, to;
    for (int i = 0; i < n; i++)
        if (stages[i].times)
            *stages[i].times = (samples){.by_work = by_work};
    int failed = processor_time_of(q, &from, e);
    const int64_t start = clock_ns();
    if (!failed)
        failed = run_rounds(q, stages, n, arg, turn, least, seconds, &how, e);
    const double ns = (double)(clock_ns() - start), idleness = isfinite(how.idleness) ? fmax(how.idleness, 1) : 1;
    if (!failed)
        failed = processor_time_of(q, &to, e);
    if (failed)
        return failed;
    *disturbed = is_disturbed(q, ns, &from, &to);
    for (int i = 0; i < n && by_work; i++)
        for (int k = 0; stages[i].times && k < kept(stages[i].times); k++)
            stages[i].times->ns[k] *= idleness;
    return 0;
}

/* Disturbed rounds run again, timed by processor time. So do later ones from the start, until a measurement is undisturbed. */
int measure_rounds(queue *q, const stage *stages, int n, void *arg, int turn, int least, double seconds, pt_error *e)
{
    int failed = 0;
    if (!q->disturbed)
        failed = run_timed(q, stages, n, arg, &turn, least, seconds, false, &q->disturbed, e);
    if (failed || !q->disturbed)
        return failed;
    return run_timed(q, stages, n, arg, &turn, least, seconds, true, &q->disturbed, e);
}

int measure_stages(queue *q, const stage *stages, int n, void *arg, int least, double seconds, pt_error *e)
{
    int failed = measure_rounds(q, stages, n, arg, 0, 1, 0, e);
    for (int i = 0; i < n; i++)
        if (stages[i].times)
            stages[i].times->n = 0;
    return failed ? failed : measure_rounds(q, stages, n, arg, 1, least, seconds, e);
}

int measure_stage(queue *q, submit_fn submit, void *arg, int index, double seconds, samples *out, pt_error *e)
{
    return measure_stages(q, &(stage){submit, index, out}, 1, arg, 1, seconds, e);
}

int measure_least(queue *q, submit_fn submit, void *arg, int index, double *ns, pt_error *e)
{
    samples s = {0};
    stage one = {submit, index, &s};
    int failed = measure_rounds(q, &one, 1, arg, 0, 4, 2e-3, e);
    *ns = samples_least(&s);
    return failed;
}

/* ---- contents ---- */

enum { PATTERN_PERIOD = 4093, PATTERN_REPEATS = 16, PATTERN_VALUES_N = PATTERN_PERIOD * PATTERN_REPEATS,
       PATTERN_BYTES = PATTERN_VALUES_N * 4 }; /* the period is prime, so that rows differ */

static bool is_compute_type(pattern p) { return p == PATTERN_WEIGHTS || p == PATTERN_VALUES || p == PATTERN_GRADIENTS; }

static double pattern_value(pattern p, double normal)
{
    switch (p) {
    case PATTERN_WEIGHTS: return 0.02 * normal;
    case PATTERN_VALUES: return normal;
    case PATTERN_NORM: return 1 + 0.02 * normal;
    case PATTERN_SQUARES: return 1e-6 * normal * normal;
    case PATTERN_EXPONENTS: return (double)f32_from_bits(0x79787776u);
    default: return 1e-3 * normal;
    }
}

static size_t pattern_size(const bench *b, pattern p) { return is_compute_type(p) ? dtype_bytes(b->r->shape->type) : sizeof(float); }

static void fill_staging(bench *b)
{
    for (int p = PATTERN_NONE + 1; p < PATTERNS; p++) {
        char *to = b->staging + (size_t)p * PATTERN_BYTES;
        size_t size = pattern_size(b, p), period = PATTERN_PERIOD * size;
        for (int i = 0; i < PATTERN_PERIOD; i++) {
            float x = (float)pattern_value(p, rng_normal(1, RNG_TEST, (uint32_t)p, (uint64_t)i));
            bf16 h = bf16_from_f32(x);
            memcpy(to + (size_t)i * size, size == sizeof h ? (void *)&h : (void *)&x, size);
        }
        for (int i = 1; i < PATTERN_REPEATS; i++)
            memcpy(to + (size_t)i * period, to, period);
    }
}

/* Fills by copying from the start of the buffer itself, in pieces that are large enough for several threads. */
static void fill(bench *b, char *to, uint64_t bytes, pattern p)
{
    const uint64_t first = PATTERN_VALUES_N * pattern_size(b, p), most = 16 << 20;
    uint64_t done = bytes < first ? bytes : first;
    queue_submit(b->compute, &(op){OP_COPY, .copy = {to, b->staging + (size_t)p * PATTERN_BYTES, done}});
    while (done < bytes) {
        const uint64_t ready = done < most ? done : most, n = bytes - done < ready ? bytes - done : ready;
        queue_submit(b->compute, &(op){OP_COPY, .copy = {to + done, to, n}});
        done += n;
    }
}

uint64_t bench_beyond_cache(const bench *b)
{
    const uint64_t least = 256u << 20, most = 1u << 30;
    const uint64_t bytes = device_is_gpu(b->r->device) ? 0 : processor_cache_bytes("") / 2 * 3;
    return bytes < least ? least : bytes < most ? bytes : most;
}

/* ---- life ---- */

static memory_kind kind_of(int t) { return t == TIER_DEVICE ? MEMORY_DEVICE : MEMORY_HOST; }

static void release(bench *b, int t)
{
    if (b->kept[t].base)
        b->r->device->table->memory_close(b->r->device, kind_of(t), b->kept[t].base, b->kept[t].bytes);
    b->kept[t].base = NULL;
}

/* Memory is freed only at the end, or for a larger area. Allocating it again would take as long as measuring, and a virtual machine's host
 * reclaims freed memory, which disturbs later measurements. */
static int reserve(bench *b, int t, uint64_t bytes, pt_error *e)
{
    void *base;
    device *d = b->r->device;
    if (b->kept[t].base && b->kept[t].bytes >= bytes)
        return 0;
    release(b, t);
    int failed = d->table->memory_open(d, kind_of(t), bytes, &base, e);
    if (failed)
        return failed;
    b->kept[t].base = base;
    b->kept[t].bytes = bytes;
    return 0;
}

int bench_reserve(bench *b, tier t, uint64_t bytes, pt_error *e)
{
    const uint64_t budget = b->r->budget[t];
    return reserve(b, t, bytes < budget ? bytes : budget, e);
}

static const uint64_t staging_bytes = (uint64_t)PATTERNS * PATTERN_BYTES;

static double threads_of_a_processor(const bench *b, const queue *q)
{
    const int ranks = b->r->ranks > 1 ? b->r->ranks : 1, processors = ranks > 1 ? (int)sysconf(_SC_NPROCESSORS_ONLN) : cores_allowed();
    return (double)(q->threads * ranks) / processors;
}

int bench_queue(const bench *b, device *d, const char *name, int threads, queue **out, pt_error *e)
{
    int failed = d->table->queue_open(d, name, threads, out, e);
    if (!failed)
        (*out)->crowded = threads_of_a_processor(b, *out) > 1;
    return failed;
}

double bench_crowding(const bench *b) { return fmax(threads_of_a_processor(b, b->compute), 1); }

int bench_open(bench *b, const profile_request *req, pt_error *e)
{
    *b = (bench){.r = req};
    void *base;
    int failed = req->device->table->memory_open(req->device, MEMORY_HOST, staging_bytes, &base, e);
    if (failed)
        return failed;
    b->staging = base;
    fill_staging(b);
    failed = bench_queue(b, req->device, "compute", req->threads, &b->compute, e);
    if (failed)
        bench_close(b);
    return failed;
}

void bench_close(bench *b)
{
    if (b->compute)
        b->compute->device->table->queue_close(b->compute);
    for (int t = 0; t < TIERS; t++)
        release(b, t);
    if (b->staging)
        b->r->device->table->memory_close(b->r->device, MEMORY_HOST, b->staging, staging_bytes);
    *b = (bench){0};
}

void bench_progress(const bench *b, const char *what, int done, int total)
{
    if (b->r->progress)
        b->r->progress(b->r->arg, what, (uint64_t)done, (uint64_t)total);
}

/* ---- memory ---- */

enum { AREA_ALIGN = 4096 };

void *area_take(area *a, uint64_t bytes, pattern p)
{
    char *at = a->base ? a->base + a->bytes : NULL;
    a->bytes = align_up(a->bytes + bytes, AREA_ALIGN);
    if (at && p != PATTERN_NONE)
        fill(a->b, at, bytes, p);
    else if (at)
        queue_submit(a->b->compute, &(op){OP_ZERO, .copy = {.dst = at, .bytes = bytes}}); /* faults its pages in */
    return at;
}

uint64_t area_bytes(bench *b, layout_fn layout, void *arg)
{
    area a = {.b = b};
    layout(&a, arg);
    return a.bytes;
}

int area_open(bench *b, tier t, area *a, const char *what, layout_fn layout, void *arg, pt_error *e)
{
    *a = (area){.b = b, .tier = t, .bytes = area_bytes(b, layout, arg)};
    char need[32], have[32], give[32];
    device *d = b->r->device;
    const uint64_t budget = b->r->budget[t], ask = a->bytes + (t == TIER_DEVICE ? d->info.threads_bytes : 0);
    if (a->bytes > budget) {
        b->needs[t] = a->bytes;
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "measuring %s takes %s of %s memory, but the budget is %s: give `%s_memory` %s or more",
                       what, size_format(need, a->bytes), tier_names[t], size_format(have, budget), tier_names[t], size_option(give, ask));
    }
    int failed = b->kept[t].used ? pt_fail(e, PT_FAILED, "%s is measured while another measurement runs; this is a bug in protrain", what)
                                 : reserve(b, t, a->bytes, e);
    if (failed)
        return failed;
    area filled = {.b = b, .tier = t, .base = b->kept[t].base};
    a->base = filled.base;
    b->kept[t].used = true;
    layout(&filled, arg);
    failed = queue_sync(b->compute, queue_signal(b->compute), e);
    if (failed)
        area_close(a);
    return failed;
}

void area_close(area *a)
{
    if (a->base)
        a->b->kept[a->tier].used = false;
    a->base = NULL;
}

/* ---- weights ---- */

/* Few-bit weights use it too: any bits are valid codes, and the scales are small numbers. */
static pattern pattern_of(const param *p)
{
    if (p->storage == STORAGE_MXFP4)
        return PATTERN_EXPONENTS;
    switch (p->kind->use) {
    case USE_NORM: case USE_MAGNITUDE: return PATTERN_NORM;
    case USE_NORM_BIAS: return PATTERN_SMALL;
    default: return PATTERN_WEIGHTS;
    }
}

static int64_t slices_of(const param *p, const step_shape *shape) { return (p->rows + shape->slice_rows - 1) / shape->slice_rows; }

void area_weights(area *a, const step_shape *shape, int block, block_weights *w, const void **slices)
{
    const model *m = a->b->r->model;
    *w = (block_weights){0};
    for (int role = 0; role < PARAM_ROLES; role++) {
        const param *p = block_param(m, &m->blocks[block], role);
        if (!p || (role == PARAM_LAYER_TOKENS && (!p->trainable || shape_ranks(shape) == 1))) /* its rows come by block_unit.rows */
            continue;
        uint64_t row = (uint64_t)p->cols * dtype_bytes(param_type(p, shape->type));
        char *at = area_take(a, p->storage != STORAGE_PLAIN ? storage_bytes(p) : (uint64_t)p->rows * row, pattern_of(p));
        w->param[role] = at;
        if (p->kind->use != USE_VOCABULARY)
            continue;
        const void **to = role == PARAM_LAYER_TOKENS ? slices + slices_of(p, shape) : slices; /* after those of the first table */
        int n = 0;
        for (int64_t first = 0; at && first < p->rows; first += shape->slice_rows)
            to[n++] = at + (uint64_t)first * row;
        if (role == PARAM_LAYER_TOKENS)
            w->input_slices = to, w->input_slices_n = n;
        else
            w->slices = to, w->slices_n = n;
    }
}
