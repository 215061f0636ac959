#include "plan_run.h"

#include "base/clock.h"
#include "base/rng.h"
#include "schedule/simulate.h"
#include "train/state.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    uint64_t budgets[TIERS] = {m.memory_free_bytes / 2 - host, host, 64ull << 30};
    g->search = (search_input){.model = g->model, .shape = &g->shape, .costs = &g->profile.costs, .training = true, .host_tier = host > 0};
    g->request = (profile_request){.device = g->device, .host = g->device, .model = g->model, .shape = &g->shape, .host_tier = host > 0,
                                   .transfers = true, .disk_path = g->folder, .fresh = true};
    memcpy(g->search.budget, budgets, sizeof budgets);
    memcpy(g->request.budget, budgets, sizeof budgets);
    return 0;
}

/* ---- the machine's speed ---- */

double machine_speed(const setting *g, pt_error *e)
{
    enum { N = 512, AT_A_TIME = 8 };
    static float values[3][N * N];
    queue *q;
    int failed = g->device->table->queue_open(g->device, "speed", 0, &q, e);
    if (failed)
        return failed;
    const op product = {OP_MATMUL, .matmul = {.layout = MATMUL_NT, .type = PT_F32, .out_type = PT_F32, .m = N, .n = N, .k = N, .lda = N,
                                              .ldb = N, .ldc = N, .a = values[0], .b = values[1], .c = values[2]}};
    double start = clock_s(), took = 0, n = 0;
    for (; took < 0.33 && !failed; took = clock_s() - start, n += AT_A_TIME) {
        for (int i = 0; i < AT_A_TIME; i++)
            queue_submit(q, &product);
        failed = queue_sync(q, queue_signal(q), e);
    }
    g->device->table->queue_close(q);
    return failed ? failed : n / took;
}

static void slow_curve(cost_curve *c, double drift)
{
    for (int i = 0; i < c->n; i++)
        c->ns[i] /= drift;
}

/* What is computed takes as much longer as the machine is slower; transfers are left alone. */
static costs costs_at(const costs *from, double drift)
{
    costs c = *from;
    for (int k = 0; k < c.kinds_n; k++)
        for (int level = 0; level < SAVE_LEVELS; level++) {
            c.layer[k].forward_ns[level] /= drift;
            c.layer[k].backward_ns[level] /= drift;
        }
    c.embed_ns /= drift;
    c.head_ns /= drift;
    cost_curve *computed[] = {&c.finish, &c.embed_finish, &c.update_device, &c.update_host};
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
        slow_curve(computed[i], drift);
    return c;
}

enum { PROFILES = 3 };

/* Of each number at this place in all of them. */
static void take_median(const costs *all, size_t at, costs *out)
{
    double v[PROFILES];
    for (int i = 0; i < PROFILES; i++)
        v[i] = *(const double *)((const char *)&all[i] + at);
    *(double *)((char *)out + at) = quantile(v, PROFILES, 0.5);
}

static void take_medians(const costs *all, size_t at, size_t bytes, costs *out)
{
    for (size_t i = 0; i < bytes; i += sizeof(double))
        take_median(all, at + i, out);
}

/* A size that one of them left out is left out. */
static void take_curve(const costs *all, size_t at, costs *out)
{
    cost_curve *c = (cost_curve *)((char *)out + at);
    for (int i = 0; i < PROFILES; i++) {
        int n = ((const cost_curve *)((const char *)&all[i] + at))->n;
        c->n = n < c->n ? n : c->n;
    }
    take_medians(all, at + offsetof(cost_curve, ns), (size_t)c->n * sizeof(double), out);
}

static costs median_costs(const costs *all)
{
    static const size_t curves[] = {offsetof(costs, finish), offsetof(costs, embed_finish), offsetof(costs, update_device),
                                    offsetof(costs, update_host), offsetof(costs, to_device), offsetof(costs, from_device),
                                    offsetof(costs, read), offsetof(costs, write)};
    static const size_t numbers[] = {offsetof(costs, embed_ns), offsetof(costs, head_ns), offsetof(costs, head_eval_ns),
                                     offsetof(costs, task_ns), offsetof(costs, step_ns)};
    costs c = all[0];
    take_medians(all, offsetof(costs, layer), sizeof c.layer, &c);
    take_medians(all, offsetof(costs, slow), sizeof c.slow, &c);
    for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
        take_curve(all, curves[i], &c);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        take_median(all, numbers[i], &c);
    return c;
}

int setting_profile(setting *g, pt_error *e)
{
    costs all[PROFILES];
    double speed[PROFILES + 1];
    int failed = 0;
    g->speed = 0;
    for (int i = 0; i <= PROFILES && !failed; i++) {
        speed[i] = machine_speed(g, e);
        failed = speed[i] < 0 ? (int)speed[i] : i < PROFILES ? profile_get(&g->request, &g->profile, e) : 0;
        if (i < PROFILES)
            all[i] = g->profile.costs;
        g->speed += speed[i] / (PROFILES + 1);
    }
    for (int i = 0; i < PROFILES && !failed; i++) /* as they would have been at the mean speed */
        all[i] = costs_at(&all[i], g->speed / ((speed[i] + speed[i + 1]) / 2));
    if (!failed)
        g->profile.costs = median_costs(all);
    return failed;
}

/* ---- plans ---- */

static schedule_input input_of(const setting *g, const candidate *c)
{
    return (schedule_input){.model = g->model, .shape = &g->shape, .packing = &c->packing, .plan = &c->plan, .training = true,
                            .host_tier = g->search.host_tier};
}

int plan_predict(const setting *g, const candidate *c, double drift, double *seconds, double busy[QUEUES], pt_error *e)
{
    const costs prices = costs_at(&g->profile.costs, drift);
    const schedule_input in = input_of(g, c);
    schedule s;
    simulation sim;
    double ns;
    int failed = simulate_plan(&in, &prices, &ns, e);
    *seconds = (ns - prices.step_ns) * 1e-9;
    if (!failed)
        failed = schedule_build(&in, c->plan.update == UPDATE_NEXT_FORWARD ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP, &s, e);
    if (failed)
        return failed;
    failed = simulate(&in, &s, &prices, false, &sim, e);
    for (int q = 0; q < QUEUES && !failed; q++)
        busy[q] = sim.busy_ns[q] * 1e-9;
    schedule_free(&s);
    return failed;
}

static int run_schedule(executor *x, schedule_kind kind, int64_t step, double *seconds, pt_error *e)
{
    const update_params u = {.lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .step = step, .grad_scale = 1};
    double start = clock_s();
    int failed = executor_run(x, kind, 1e-3f, &u, e);
    *seconds += clock_s() - start;
    return failed;
}

static int run_steps(const setting *g, executor *x, const plan *p, int steps_n, step_run *steps, double busy[QUEUES], pt_error *e)
{
    int failed = 0;
    double before = 0;
    for (int64_t step = 0; step <= steps_n && !failed; step++) {
        schedule_kind kind = step && p->update == UPDATE_NEXT_FORWARD ? SCHEDULE_STEP_UPDATE : SCHEDULE_STEP;
        double took = 0;
        executor_time_tasks(x, step == steps_n);
        failed = run_schedule(x, kind, step + 1, &took, e);
        const task_time *t = executor_times(x);
        const schedule *s = executor_schedule(x, kind);
        for (int i = 0; t && i < s->tasks_n; i++)
            busy[s->tasks[i].queue] += (double)(t[i].end_ns - t[i].start_ns) * 1e-9;
        if (!failed && p->update == UPDATE_END)
            failed = run_schedule(x, SCHEDULE_DRAIN, step + 1, &took, e);
        double after = failed ? 0 : machine_speed(g, e);
        failed = after < 0 ? (int)after : failed;
        if (step)
            steps[step - 1] = (step_run){took, (before + after) / 2 / g->speed};
        before = after;
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

int plan_execute(const setting *g, const candidate *c, int steps_n, step_run *steps, double busy[QUEUES], pt_error *e)
{
    executor *x;
    executor_options o = {.device = g->device, .host = g->device, .input = input_of(g, c), .schedules = search_kinds(&g->search, c->plan.update),
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
        failed = run_steps(g, x, &c->plan, steps_n, steps, busy, e);
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
