#include "plan_run.h"

#include "base/clock.h"
#include "base/rng.h"
#include "measure/profile_get.h"
#include "predict/adjust.h"
#include "predict/simulate.h"
#include "run/state.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* Blocks are kept for the next plan. What a virtual machine gives back is told to its host some seconds later, and the host's work on it
 * counts against the machine's quota of processor time: for 10 s after 5 GB had been freed, both processors stood still for a third of
 * every second half second. */
enum { KEPT = 8 };
typedef struct kept_block { void *base; size_t bytes; memory_kind kind; bool used; } kept_block;
static kept_block kept_blocks[KEPT];
static const device_table *real;

/* The smallest that is large enough, or (`any`) the largest. */
static kept_block *unused(memory_kind kind, size_t bytes, bool any)
{
    kept_block *best = NULL;
    for (int i = 0; i < KEPT; i++) {
        kept_block *k = &kept_blocks[i];
        if (k->base && !k->used && k->kind == kind && (any || k->bytes >= bytes) && (!best || (k->bytes > best->bytes) == any))
            best = k;
    }
    return best;
}

static int keep_open(device *d, memory_kind kind, size_t bytes, void **base, pt_error *e)
{
    kept_block *k = unused(kind, bytes, false);
    if (k) {
        memset(k->base, 0, bytes);
    } else {
        k = unused(kind, bytes, true); /* gives way to a larger one */
        for (int i = 0; i < KEPT && !k; i++)
            k = kept_blocks[i].base ? NULL : &kept_blocks[i];
        if (!k)
            return pt_fail(e, PT_FAILED, "more than %d blocks of memory at once", KEPT);
        if (k->base)
            real->memory_close(d, kind, k->base, k->bytes);
        *k = (kept_block){.kind = kind, .bytes = bytes};
        int failed = real->memory_open(d, kind, bytes, &k->base, e);
        if (failed)
            return failed;
    }
    k->used = true;
    *base = k->base;
    return 0;
}

static void keep_close(device *d, memory_kind kind, void *base, size_t bytes)
{
    for (int i = 0; i < KEPT; i++)
        if (kept_blocks[i].base == base)
            kept_blocks[i].used = false;
}

static void keep_memory(device *d)
{
    static device_table table;
    real = d->table;
    table = *real;
    table.memory_open = keep_open;
    table.memory_close = keep_close;
    d->table = &table;
}

/* ---- settings ---- */

int setting_open(setting *g, char **v, const char *folder, pt_error *e)
{
    static const device_options none = {.threads = 0};
    machine m;
    uint64_t host;
    *g = (setting){.folder = folder};
    int64_t batch = atoll(v[1]), seq_len = atoll(v[2]), unit = atoll(v[3]);
    int failed = model_open(v[0], NULL, NULL, &g->model, e);
    if (!failed)
        failed = device_cpu_open(&none, &g->device, e);
    if (!failed)
        keep_memory(g->device);
    if (!failed)
        failed = size_parse(v[4], &host, e);
    if (!failed)
        failed = machine_probe(&m, e);
    if (failed)
        return failed;
    step_shape_init(&g->shape, g->model, PT_BF16, batch, seq_len);
    if (unit) {
        g->shape.unit_seqs = unit;
        g->shape.units_n = batch / unit;
        g->shape.unit_rows = unit * seq_len;
        g->shape.head_rows = g->shape.head_rows < g->shape.unit_rows ? g->shape.head_rows : g->shape.unit_rows;
    }
    snprintf(g->name, sizeof g->name, "%s %lld parameters, %lld x %lld in units of %lld, bf16, %d tiers", g->model->config.model_type,
             (long long)g->model->parameters, (long long)batch, (long long)seq_len, (long long)g->shape.unit_seqs, host ? 3 : 2);
    uint64_t budgets[TIERS] = {m.memory_free_bytes / 5 * 2 - host, host, 64ull << 30};
    g->search = (search_input){.model = g->model, .shape = &g->shape, .costs = &g->profile.costs, .training = true, .host_tier = host > 0};
    g->request = (profile_request){.device = g->device, .host = g->device, .model = g->model, .shape = &g->shape, .host_tier = host > 0,
                                   .transfers = true, .disk_path = g->folder, .fresh = true};
    memcpy(g->search.budget, budgets, sizeof budgets);
    memcpy(g->request.budget, budgets, sizeof budgets);
    return 0;
}

/* ---- profiles ---- */

static double number_of(const setting *g, int profile, size_t at) { return *(const double *)((const char *)&g->profiles[profile] + at); }

/* Of each number at this place in all of them. */
static void take_median(const setting *g, size_t at, costs *out)
{
    double v[PROFILES_MOST];
    for (int i = 0; i < g->profiles_n; i++)
        v[i] = number_of(g, i, at);
    *(double *)((char *)out + at) = quantile(v, g->profiles_n, 0.5);
}

/* Of contention: arithmetic beside writes took 1.00 to 1.36 of what it takes alone from one moment to the next, most often little, and a
 * step holds all of these moments, as a profile's own mean does. */
static void take_means(const setting *g, size_t at, size_t bytes, costs *out)
{
    for (size_t end = at + bytes; at < end; at += sizeof(double)) {
        double sum = 0;
        for (int i = 0; i < g->profiles_n; i++)
            sum += number_of(g, i, at);
        *(double *)((char *)out + at) = sum / g->profiles_n;
    }
}

static void take_medians(const setting *g, size_t at, size_t bytes, costs *out)
{
    for (size_t i = 0; i < bytes; i += sizeof(double))
        take_median(g, at + i, out);
}

/* A size that one of them left out is left out. */
static void take_curve(const setting *g, size_t at, costs *out)
{
    cost_curve *c = (cost_curve *)((char *)out + at);
    for (int i = 0; i < g->profiles_n; i++) {
        int n = ((const cost_curve *)((const char *)&g->profiles[i] + at))->n;
        c->n = n < c->n ? n : c->n;
    }
    take_medians(g, at + offsetof(cost_curve, ns), (size_t)c->n * sizeof(double), out);
}

static costs all_costs(const setting *g)
{
    static const size_t curves[] = {offsetof(costs, finish), offsetof(costs, embed_finish), offsetof(costs, update_device),
                                    offsetof(costs, update_host), offsetof(costs, to_device), offsetof(costs, from_device),
                                    offsetof(costs, read), offsetof(costs, write), offsetof(costs, wake_latency)};
    static const size_t numbers[] = {offsetof(costs, embed_ns), offsetof(costs, head_ns), offsetof(costs, head_eval_ns),
                                     offsetof(costs, head_cold_accumulators_ns), offsetof(costs, task_ns), offsetof(costs, step_ns)};
    costs c = g->profiles[0];
    take_medians(g, offsetof(costs, layer), sizeof c.layer, &c);
    take_means(g, offsetof(costs, slow), sizeof c.slow, &c);
    take_means(g, offsetof(costs, slow_more), sizeof c.slow_more, &c);
    take_medians(g, offsetof(costs, slow_ns), sizeof c.slow_ns, &c);
    take_means(g, offsetof(costs, quota), sizeof c.quota, &c);
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        take_curve(g, curves[i], &c);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        take_median(g, numbers[i], &c);
    return c;
}

int setting_profile(setting *g, int n, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < n && g->profiles_n < PROFILES_MOST && !failed; i++) {
        failed = profile_get(&g->request, &g->profile, e);
        if (!failed)
            g->profiles[g->profiles_n++] = g->profile.costs;
    }
    if (!failed)
        g->profile.costs = all_costs(g);
    return failed;
}

/* ---- plans ---- */

static schedule_input input_of(const setting *g, const priced_plan *c)
{
    return (schedule_input){.model = g->model, .shape = &g->shape, .packing = &c->packing, .plan = &c->plan, .training = true,
                            .host_tier = g->search.host_tier};
}

static int predict(const setting *g, const priced_plan *c, const costs *prices, double *seconds, pt_error *e)
{
    const schedule_input in = input_of(g, c);
    double ns;
    int failed = simulate_plan(&in, prices, &ns, e);
    *seconds = (ns - prices->step_ns) * 1e-9;
    return failed;
}

int plan_predict(const setting *g, const priced_plan *c, double *seconds, double busy[QUEUES], pt_error *e)
{
    const costs *prices = &g->profile.costs;
    const schedule_input in = input_of(g, c);
    schedule s;
    simulation sim;
    int failed = predict(g, c, prices, seconds, e);
    if (!failed)
        failed = schedule_build(&in, c->plan.update == UPDATE_NEXT_FORWARD ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP, &s, e);
    if (failed)
        return failed;
    failed = simulate(&in, &s, prices, false, &sim, e);
    for (int q = 0; q < QUEUES && !failed; q++)
        busy[q] = sim.busy_ns[q] * 1e-9;
    schedule_free(&s);
    return failed;
}

/* ---- runs ---- */

/* What a step's tasks took corrects the costs, all of its schedules together. */
typedef struct timed_step {
    const setting *g;
    const priced_plan *c;
    executor *x;
    costs own;
    double seconds, *busy;
    work_times work[2]; /* of its schedules */
    work_run runs[2];
    int runs_n;
} timed_step;

static int run_schedule(timed_step *t, schedule_kind kind, int64_t step, pt_error *e)
{
    update_params u = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .step = step, .grad_scale = 1};
    const schedule_input in = input_of(t->g, t->c);
    const schedule *s = executor_schedule(t->x, kind);
    work_times *w = &t->work[t->runs_n];
    double start = clock_s();
    executor_time_tasks(t->x, true);
    int failed = optimizer_args_parse(shape_optimizer(in.shape), NULL, &u.args, e);
    if (!failed)
        failed = executor_run(t->x, kind, 1e-3f, &u, e);
    t->seconds += clock_s() - start;
    const task_time *times = executor_times(t->x, kind);
    if (failed || !times)
        return failed;
    for (int i = 0; i < s->tasks_n && kind != SCHEDULE_DRAIN; i++)
        t->busy[s->tasks[i].queue] += (double)(times[i].end_ns - times[i].start_ns) * 1e-9;
    *w = (work_times){0};
    work_times_add(w, &in, s, &t->own, times);
    t->runs[t->runs_n++] = (work_run){s, w};
    return 0;
}

static int run_step(timed_step *t, int64_t step, pt_error *e)
{
    update_time update = t->c->plan.update;
    t->own = t->g->profile.costs;
    t->seconds = 0;
    t->runs_n = 0;
    memset(t->busy, 0, QUEUES * sizeof *t->busy);
    int failed = run_schedule(t, step && update == UPDATE_NEXT_FORWARD ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP, step + 1, e);
    if (!failed && update == UPDATE_END)
        failed = run_schedule(t, SCHEDULE_DRAIN, step + 1, e);
    const schedule_input in = input_of(t->g, t->c);
    return failed ? failed : costs_adjust(&t->own, &in, t->runs, t->runs_n, 0, e);
}

static int run_steps(timed_step *t, int steps_n, step_run *steps, pt_error *e)
{
    int failed = 0;
    for (int64_t step = 0; step <= steps_n && !failed; step++) {
        failed = run_step(t, step, e);
        if (step)
            steps[step - 1] = (step_run){.seconds = t->seconds};
        if (step && !failed)
            failed = predict(t->g, t->c, &t->own, &steps[step - 1].with_own_times, e);
    }
    return failed;
}

static void fill_batch(const setting *g, executor *x)
{
    executor_batch b = executor_input(x);
    for (int64_t i = 0; i < g->shape.batch * g->shape.seq_len; i++) {
        uint32_t w[4];
        rng_words(2, RNG_TEST, 0, (uint64_t)i, w);
        b.ids[i] = (int32_t)(w[0] % (uint32_t)g->model->config.vocab);
        b.targets[i] = (int32_t)(w[1] % (uint32_t)g->model->config.vocab);
    }
}

int plan_execute(const setting *g, const priced_plan *c, int steps_n, step_run *steps, double busy[QUEUES], pt_error *e)
{
    executor *x;
    executor_options o = {.device = g->device, .host = g->device, .input = input_of(g, c),
                          .schedules = search_kinds(&g->search, c->plan.update),
                          .disk_path = g->folder, .budget = {c->bytes[0], c->bytes[1], c->bytes[2]}};
    int failed = executor_open(&o, &x, e);
    if (failed)
        return failed;
    state s;
    state_open(&s, x);
    failed = state_init(&s, 1, e);
    int closed = state_close(&s, e);
    fill_batch(g, x);
    if (!failed && !closed)
        failed = run_steps(&(timed_step){.g = g, .c = c, .x = x, .busy = busy}, steps_n, steps, e);
    executor_close(x);
    return failed ? failed : closed;
}

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile(const double *v, int n, double at)
{
    if (!n)
        return NAN;
    double *s = malloc((size_t)n * sizeof *s);
    memcpy(s, v, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, compare_double);
    double x = at * (n - 1), value = s[(int)x] + (x > (int)x ? (s[(int)x + 1] - s[(int)x]) * (x - (int)x) : 0);
    free(s);
    return value;
}
