/* measure_rates.c - what does not depend on the model: finishing gradients, and updates on device and host, by the number of elements and
 * threads; and the fixed cost of a task.
 *
 * A step touches each chunk once, so its states are not in the cache unless the whole model is. Each run takes the next part of a region as
 * large as the model, up to 16 Mi elements. For larger models the region is twice that if it fits: a last-level cache of 260 MiB kept the
 * gradients of 16 Mi elements and a part of their states, and an update took 6% less than in a step. Accumulators are written before
 * their gradients are rounded, a layer at a time, as in backward, so they are in the cache if it is large enough.
 */
#include "measure/measure_parts.h"

enum { COLS = 1024, LAYER_ACCUMULATORS = 2 * RATES_LEAST << 10 };
_Static_assert(RATES_LARGEST <= (int64_t)RATES_LEAST << 2 * (COST_POINTS - 1), "a curve has room for all amounts");

void curve_add(cost_curve *curve, double amount, double ns)
{
    if (curve->n == COST_POINTS || (curve->n && amount <= curve->amount[curve->n - 1]))
        return;
    curve->amount[curve->n] = amount;
    curve->ns[curve->n++] = ns;
    for (int i = curve->n - 1; i > 0 && curve->ns[i - 1] > curve->ns[i]; i--)
        curve->ns[i - 1] = curve->ns[i];
}

/* The first of the `n` elements that run number `turn` uses. The region is a multiple of n. */
static int64_t part_of(const region *y, int64_t n, int turn) { return turn % (y->elements / n) * n; }

/* Measures the curve at 4 Ki, 16 Ki ... elements and the whole region. `before` runs before each run, untimed; it may be NULL. */
static int measure_amounts(queue *q, region *y, submit_fn before, submit_fn submit, double seconds, cost_curve *out, double *spread,
                           pt_error *e)
{
    double largest = 0;
    out->n = 0;
    for (int64_t n = RATES_LEAST, done = 0; done < y->elements; done = n, n = 4 * n < y->elements ? 4 * n : y->elements) {
        samples s = {0};
        const stage stages[] = {{before, (int)n, NULL}, {submit, (int)n, &s}};
        const double each = seconds / (n < y->elements ? 12 : 2);
        int failed = measure_stages(q, before ? stages : stages + 1, before ? 2 : 1, y, TELLING, each, e);
        if (failed)
            return failed;
        curve_add(out, (double)n, samples_median(&s));
        samples_tell(&s, &largest);
    }
    *spread = largest > *spread ? largest : *spread;
    return 0;
}

/* ---- memory ---- */

/* Slabs alternate between contents of first and second moments. Accumulators share a slab that has one fp32 per value, if there is one. */
static void take_slabs(area *a, region *y)
{
    const update_rule *r = shape_optimizer(y->shape)->rules[0];
    y->sums = NULL;
    for (int i = 0; i < rule_slabs(r); i++) {
        const slab *slab = &r->slabs[i];
        const uint64_t bytes = (uint64_t)slab_entries(slab, y->elements) * dtype_bytes(slab->type);
        y->slab[i] = area_take(a, bytes, slab->type != PT_F32 ? PATTERN_VALUES : i % 2 ? PATTERN_SQUARES : PATTERN_SMALL);
        if (!y->sums && slab->type == PT_F32 && slab->values == 1)
            y->sums = y->slab[i];
    }
    if (!y->sums)
        y->sums = area_take(a, (uint64_t)y->elements * sizeof(float), PATTERN_SMALL);
}

void region_layout(area *a, void *arg)
{
    region *y = arg;
    uint64_t n = (uint64_t)y->elements, e = dtype_bytes(y->shape->type);
    y->weights = area_take(a, n * e, PATTERN_WEIGHTS);
    y->low = y->shape->type == PT_BF16 ? area_take(a, n * sizeof(uint16_t), PATTERN_VALUES) : NULL;
    take_slabs(a, y);
    y->gradient = area_take(a, n * e, PATTERN_GRADIENTS);
    y->sumsq = area_take(a, (n / COLS / SUMSQ_ROWS + 1) * sizeof(double), PATTERN_NONE);
}

/* The largest region that fits the budget. */
static region region_that_fits(bench *b, tier t)
{
    region y = {.shape = b->r->shape, .elements = rates_elements(b->r->model)}, larger = y;
    larger.elements = RATES_LARGEST;
    if (y.elements == RATES_MOST && area_bytes(b, region_layout, &larger) <= b->r->budget[t])
        return larger;
    while (y.elements > RATES_LEAST && area_bytes(b, region_layout, &y) > b->r->budget[t])
        y.elements /= 4;
    return y;
}

uint64_t rates_memory(bench *b)
{
    region y = region_that_fits(b, TIER_DEVICE);
    return area_bytes(b, region_layout, &y);
}

static int region_open(bench *b, tier t, region *y, area *a, pt_error *e)
{
    *y = region_that_fits(b, t);
    return area_open(b, t, a, "the optimizer", region_layout, y, e);
}

/* ---- finish ---- */

/* Writes the accumulators of a layer before the first part of them is rounded. */
static void fresh_accumulators(queue *q, void *arg, int n, int turn)
{
    region *y = arg;
    const int64_t layer = LAYER_ACCUMULATORS < y->elements ? LAYER_ACCUMULATORS : y->elements, span = n > layer ? n : layer,
        at = part_of(y, n, turn);
    if (at % span == 0)
        queue_submit(q, &(op){OP_ZERO, .copy = {.dst = y->sums + at, .bytes = (uint64_t)span * sizeof(float)}});
}

static void finish(queue *q, void *arg, int n, int turn)
{
    region *y = arg;
    int64_t at = part_of(y, n, turn);
    queue_submit(q, &(op){OP_GRADIENT_FINISH, .gradient_finish = {
        .type = y->shape->type, .rows = n / COLS, .cols = COLS, .acc = y->sums + at,
        .g = y->gradient + (uint64_t)at * dtype_bytes(y->shape->type), .sumsq = y->sumsq}});
}

/* ---- updates ---- */

void update_run(queue *q, void *arg, int n, int turn)
{
    static const update_params params = {.lr = 1e-10f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .step = 1, .grad_scale = 1};
    static const param plain = {.role = PARAM_OUT};
    region *y = arg;
    const update_rule *r = shape_optimizer(y->shape)->rules[0];
    const int64_t at = part_of(y, n, turn);
    const uint64_t bytes = (uint64_t)at * dtype_bytes(y->shape->type);
    update u = {.params = &params, .param = &plain, .type = y->shape->type, .n = n, .hi = y->weights + bytes,
                .lo = y->low ? y->low + at : NULL, .g = y->gradient + bytes};
    for (int i = 0; i < rule_slabs(r); i++)
        u.slab[i] = (char *)y->slab[i] + (uint64_t)slab_entries(&r->slabs[i], at) * dtype_bytes(r->slabs[i].type);
    r->submit(q, &u);
}

int open_host_queue(bench *b, queue **q, pt_error *e)
{
    device *host = b->r->host;
    return bench_queue(b, host, "host", host_queue_threads(b->r->device, host, b->r->threads), q, e);
}

static int measure_by(bench *b, int threads, region *y, double seconds, profile_threads *out, pt_error *e)
{
    device *host = b->r->host;
    queue *q;
    samples s = {0};
    int failed = bench_queue(b, host, "updates", threads, &q, e);
    if (failed)
        return failed;
    const int64_t n = y->elements < RATES_MOST ? y->elements : RATES_MOST;
    failed = measure_stage(q, update_run, y, (int)n, seconds, &s, e);
    host->table->queue_close(q);
    *out = (profile_threads){threads, n, samples_median(&s)};
    return failed;
}

/* Twice as many threads; the last measurement is with all. */
static int more_threads(int n, int all, int taken)
{
    if (n == all)
        return all + 1;
    return 2 * n > all || taken == PROFILE_THREADS - 1 ? all : 2 * n;
}

/* Measures updates with 1, 2, 4 ... and all threads, because memory bandwidth may not suffice for all. */
static int measure_threads(bench *b, region *y, double seconds, profile_result *result, pt_error *e)
{
    const profile_request *req = b->r;
    const int all = req->device == req->host && req->threads ? req->threads : req->host->info.threads;
    int failed = 0;
    result->threads_n = 0;
    for (int n = 1; n <= all && !failed; n = more_threads(n, all, result->threads_n)) {
        failed = measure_by(b, n, y, seconds, &result->threads[result->threads_n], e);
        result->threads_n++;
    }
    return failed;
}

static bool reaches(const cost_curve *curve, int64_t elements) { return curve->n && curve->amount[curve->n - 1] >= (double)elements; }

bool rates_suffice(bench *b, const costs *costs)
{
    const int64_t elements = region_that_fits(b, TIER_DEVICE).elements;
    return reaches(&costs->finish, elements) && reaches(&costs->update_device, elements) &&
           (!b->r->host_tier || reaches(&costs->update_host, region_that_fits(b, TIER_HOST).elements));
}

static int check_on(bench *b, tier t, queue *q, int64_t elements, double *ns, pt_error *e)
{
    region y = {.shape = b->r->shape, .elements = elements};
    area a;
    int failed = area_open(b, t, &a, "the optimizer", region_layout, &y, e);
    if (failed)
        return failed;
    failed = measure_least(q, update_run, &y, (int)elements, ns, e);
    area_close(&a);
    return failed;
}

int check_update(bench *b, int64_t elements, double *ns, pt_error *e) { return check_on(b, TIER_DEVICE, b->compute, elements, ns, e); }

int check_update_host(bench *b, int64_t elements, double *ns, pt_error *e)
{
    queue *q;
    int failed = open_host_queue(b, &q, e);
    if (failed)
        return failed;
    failed = check_on(b, TIER_HOST, q, elements, ns, e);
    b->r->host->table->queue_close(q);
    return failed;
}

/* ---- tasks ---- */

enum { TASKS = 100 };

typedef struct task_bench { queue *other; uint64_t reached; char *line; } task_bench;

static void task_layout(area *a, void *arg) { ((task_bench *)arg)->line = area_take(a, 64, PATTERN_NONE); }

/* TASKS times: a wait that is already satisfied, a tiny op, and a signal. */
static void tasks(queue *q, void *arg, int index, int turn)
{
    task_bench *y = arg;
    for (int i = 0; i < TASKS; i++) {
        queue_wait(q, y->other, y->reached);
        queue_submit(q, &(op){OP_ZERO, .copy = {.dst = y->line, .bytes = 64}});
        queue_signal(q);
    }
}

static int measure_task(bench *b, double *ns, pt_error *e)
{
    task_bench y = {0};
    area a;
    samples s = {0};
    device *host = b->r->host;
    int failed = host->table->queue_open(host, "other", 1, &y.other, e);
    if (failed)
        return failed;
    y.reached = queue_signal(y.other);
    failed = queue_sync(y.other, y.reached, e);
    if (!failed)
        failed = area_open(b, TIER_DEVICE, &a, "a task", task_layout, &y, e);
    if (!failed) {
        failed = measure_stage(b->compute, tasks, &y, 0, 2e-3, &s, e);
        area_close(&a);
    }
    host->table->queue_close(y.other);
    *ns = samples_median(&s) / TASKS;
    return failed;
}

/* ---- together ---- */

/* Gradients come last, because accumulators may overwrite the first moments. */
static int measure_device_rates(bench *b, double seconds, profile_result *result, pt_error *e)
{
    costs *costs = &result->costs;
    region y;
    area a;
    int failed = region_open(b, TIER_DEVICE, &y, &a, e);
    if (failed)
        return failed;
    failed = measure_amounts(b->compute, &y, NULL, update_run, seconds * 3, &costs->update_device, &costs->curves_spread, e);
    if (!failed && b->r->device == b->r->host)
        failed = measure_threads(b, &y, seconds / 2, result, e);
    if (!failed)
        failed = measure_amounts(b->compute, &y, fresh_accumulators, finish, seconds * 2, &costs->finish, &costs->curves_spread, e);
    area_close(&a);
    return failed;
}

static int measure_host_rates(bench *b, double seconds, profile_result *result, pt_error *e)
{
    costs *costs = &result->costs;
    region y;
    area a;
    queue *q;
    int failed = open_host_queue(b, &q, e);
    if (failed)
        return failed;
    failed = region_open(b, TIER_HOST, &y, &a, e);
    if (!failed) {
        failed = measure_amounts(q, &y, NULL, update_run, seconds * 3, &costs->update_host, &costs->curves_spread, e);
        if (!failed && b->r->device != b->r->host)
            failed = measure_threads(b, &y, seconds / 2, result, e);
        area_close(&a);
    }
    b->r->host->table->queue_close(q);
    return failed;
}

int measure_rates(bench *b, profile_result *result, pt_error *e)
{
    const double seconds = 2e-9 * (double)rates_elements(b->r->model) + 2e-3;
    bench_progress(b, "measuring the optimizer", 0, 1);
    result->costs.curves_spread = 0;
    int failed = measure_device_rates(b, seconds, result, e);
    if (!failed && b->r->host_tier)
        failed = measure_host_rates(b, seconds, result, e);
    return failed ? failed : measure_task(b, &result->costs.task_ns, e);
}

/* ---- arithmetic ---- */

void timed_matmul_layout(area *a, void *arg)
{
    timed_matmul *y = arg;
    uint64_t e = dtype_bytes(y->shape->type);
    y->a = area_take(a, (uint64_t)(y->rows * y->k) * e, PATTERN_VALUES);
    y->b = area_take(a, (uint64_t)(y->sets * y->k * y->k) * e, PATTERN_WEIGHTS);
    y->c = area_take(a, (uint64_t)(y->rows * y->k) * e, PATTERN_NONE);
}

void timed_matmul_run(queue *q, void *arg, int index, int turn)
{
    timed_matmul *y = arg;
    const char *b = y->b + (uint64_t)(turn % y->sets * y->k * y->k) * dtype_bytes(y->shape->type);
    queue_submit(q, &(op){OP_MATMUL, .matmul = {
        .layout = MATMUL_NT, .type = y->shape->type, .out_type = y->shape->type, .m = y->rows, .n = y->k, .k = y->k, .lda = y->k,
        .ldb = y->k, .ldc = y->k, .a = y->a, .b = b, .c = y->c}});
}

int measure_rate(bench *b, double *flops_per_ns, pt_error *e)
{
    int64_t hidden = b->r->model->config.hidden;
    timed_matmul y = {.shape = b->r->shape, .rows = timed_matmul_rows(b->r), .k = hidden < 1024 ? hidden : 1024, .sets = 1};
    area a;
    samples s = {0};
    int failed = area_open(b, TIER_DEVICE, &a, "a matmul", timed_matmul_layout, &y, e);
    if (failed)
        return failed;
    failed = measure_stage(b->compute, timed_matmul_run, &y, 0, 5e-3, &s, e);
    area_close(&a);
    double ns = samples_median(&s);
    *flops_per_ns = 2 * (double)y.rows * (double)y.k * (double)y.k / (ns > 1 ? ns : 1);
    return failed;
}
