#include "ritz/solver.h"

#include "base/clock.h"
#include "base/units.h"
#include "options/table.h"
#include "ritz/wellposed.h"
#include "run/budgets.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLE_VALUES = 4 + QUADRATIC_TERMS }; /* of a point in r->samples, beside x and two gradients */
enum { BOUNDARY_WEIGHT = 10 }; /* of a residual loss */
enum { UNIT_LEAST = 256, UNIT_JETS_LEAST = 32, UNIT_MOST = 2048, UNIT_VALUES = 65536, GPU_UNIT = 8192 };

void ritz_notice(const pt_ritz *r, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    text_format(text, sizeof text, format, ap);
    va_end(ap);
    if (r->o.notice)
        r->o.notice(r->o.arg, text);
}

int ritz_check_call(const pt_ritz *r, const char *function, bool training, pt_error *e)
{
    if (!r)
        return pt_fail_null(e, function, "run");
    if (!r->runner)
        return pt_fail(e, PT_USAGE, "%s: the run is only planned: open it without `plan_only`", function);
    if (training && !r->inside)
        return pt_fail(e, PT_USAGE, "%s: a network of pt_ritz_load can only be evaluated: open a run with pt_ritz_open", function);
    return 0;
}

double ritz_lr(const pt_ritz_options *o, int64_t step)
{
    if (step <= o->warmup_steps)
        return o->lr * (double)step / (double)o->warmup_steps;
    const double span = (double)(o->steps - o->warmup_steps), done = span > 1 ? (double)(step - 1 - o->warmup_steps) / span : 0,
        low = o->min_lr_ratio;
    switch (o->lr_schedule) {
    case PT_RITZ_LR_LINEAR: return o->lr * (1 - done * (1 - low));
    case PT_RITZ_LR_COSINE: return o->lr * (low + (1 - low) * 0.5 * (1 + cos(M_PI * done)));
    case PT_RITZ_LR_HALVING: return o->lr * exp2(-floor((double)(step - 1) / (double)o->halve_every));
    default: return o->lr;
    }
}

uint64_t ritz_draw_of(const pt_ritz_options *o, int64_t step)
{
    return o->redraw_every ? (uint64_t)((step - 1) / o->redraw_every) : 0;
}

/* ---- options ---- */

static int check(const pt_ritz_options *o, pt_error *e)
{
    int failed = options_check_size(&ritz_table, o, e);
    if (!failed)
        failed = options_check_values(&ritz_table, o, e);
    if (failed)
        return failed;
    failed = o->own ? pt_check_choice("own.equation", o->own->equation, PT_RITZ_EIGENVALUE, e) : 0;
    if (!failed && o->own)
        failed = pt_check_choice("own.boundary", o->own->boundary, PT_RITZ_HARD, e);
    if (failed)
        return failed;
    if (o->out && !o->out[0])
        return pt_fail(e, PT_USAGE, "`out` is empty: give the name of a folder");
    if (o->resume && !o->out)
        return pt_fail(e, PT_USAGE, "`resume` needs `out`, the folder of the run");
    if (o->boundary_weight > 0 && o->loss == PT_RITZ_LOSS_ENERGY)
        return pt_fail(e, PT_USAGE, "`boundary_weight` belongs to `loss` residual: leave it out, or minimise the residual");
    if (o->plan_file && o->micro_batch)
        return pt_fail(e, PT_USAGE, "with `plan_file` the `micro_batch` is the plan's: leave one of them out");
    return 0;
}

static int describe_network(pt_ritz *r, pt_error *e)
{
    const pt_ritz_options *o = &r->o;
    static const jet_kind kinds[] = {JET_TANH, JET_TANH3, JET_RELU3, JET_SOFTPLUS, JET_SIN, JET_SILU};
    r->net = (ritz_network){.dim = r->problem.is.dim, .width = o->width, .blocks = o->blocks, .plain = o->plain,
                            .direct = o->no_input_layer,
                            .activation = kinds[o->activation], .type = o->dtype == PT_RITZ_FP64 ? PT_F64 : PT_F32,
                            .jets = r->problem.residual ? r->problem.is.dim + 2 : 0};
    return ritz_network_describe(&r->net, e);
}

/* The power of two whose ratio to x is nearest to 1. */
static int64_t nearest_power(double x)
{
    int64_t power = 1;
    while (x / (double)power > M_SQRT2)
        power *= 2;
    return power;
}

/* Points on each face: a point set of its own, so a power of two unless the user says otherwise. In one dimension a face is a point. */
static int64_t points_a_face(const pt_ritz_options *o, int64_t dim, int64_t faces)
{
    const int64_t given = o->n_boundary / faces;
    return dim == 1 ? 1 : !o->n_boundary ? nearest_power((double)o->n / (double)faces) : given ? given : 1;
}

int64_t ritz_points_a_face(const pt_ritz *r, int64_t n)
{
    return points_a_face(&(pt_ritz_options){.n = n}, r->net.dim, domain_faces(&r->problem.is));
}

/* A tensor of a unit has about UNIT_VALUES values, or twice as many in two blocks of rows. */
static void find_units(pt_ritz *r)
{
    const int64_t blocks = r->net.jets ? r->net.jets : 2, least = r->net.jets ? UNIT_JETS_LEAST : UNIT_LEAST;
    r->unit_rows = UNIT_MOST;
    while (r->unit_rows > least && r->unit_rows * r->net.width * blocks > 2 * UNIT_VALUES)
        r->unit_rows /= 2;
    if (device_is_gpu(r->device))
        r->unit_rows = GPU_UNIT;
    r->inside_units = (r->o.n + r->unit_rows - 1) / r->unit_rows;
    if (problem_samples_boundary(&r->problem)) {
        const int64_t faces = domain_faces(&r->problem.is);
        const double weight = r->o.boundary_weight > 0 ? r->o.boundary_weight : BOUNDARY_WEIGHT;
        r->faces.weight = r->problem.residual ? weight : 0;
        r->faces.n = points_a_face(&r->o, r->net.dim, faces);
        r->boundary_n = r->faces.n * faces;
        r->boundary_units = (r->boundary_n + r->unit_rows - 1) / r->unit_rows;
    }
}

/* Before the first step, since the last step may be the first that needs it. */
static int check_exact(pt_ritz *r, pt_error *e)
{
    int failed = 0;
    for (int64_t first = 0; first < r->o.eval_n && !failed; first += r->unit_rows) {
        const int64_t n = r->o.eval_n - first < r->unit_rows ? r->o.eval_n - first : r->unit_rows;
        points_get(r->eval, first, n, r->x);
        ritz_stretch(&r->problem.is, n, r->x);
        r->problem.is.exact(r->problem.is.arg, n, r->net.dim, r->x, r->f);
        for (int64_t i = 0; i < n; i++)
            if (!domain_holds(&r->problem.is, r->x + i * r->net.dim))
                r->f[i] = 0;
        failed = ritz_check_values(&r->problem, "exact", n, 1, r->f, r->x, e);
    }
    return failed;
}

/* What is not as the options say, or not as it should be. */
static void tell(const pt_ritz *r)
{
    const pt_ritz_options *o = &r->o;
    const points_kind kind = (points_kind)o->points;
    const long long faces = domain_faces(&r->problem.is), each = r->faces.n, better = nearest_power((double)each);
    if (!points_whole(kind, o->n))
        ritz_notice(r, "`n` is %lld, not a power of two: only sets of a power of two of %s points are evenly distributed, so that %lld "
                       "are worth about as much as %lld",
                    (long long)o->n, points_names[kind], (long long)o->n,
                    (long long)(INT64_C(1) << (63 - __builtin_clzll((uint64_t)o->n))));
    if (o->n_boundary && !each)
        ritz_notice(r, "`n_boundary` has no effect: the problem has no points on its boundary");
    else if (each && !points_whole(kind, each))
        ritz_notice(r, "each of the %lld faces has %lld points, not a power of two: give `n_boundary` %lld for %lld each", faces, each,
                    faces * better, better);
    else if (o->n_boundary && o->n_boundary != r->boundary_n)
        ritz_notice(r, "`n_boundary` is %lld, but each of the %lld faces has %lld point%s, %lld together", (long long)o->n_boundary, faces,
                    each, plural((uint64_t)each), (long long)r->boundary_n);
    if (o->boundary_weight > 0 && !domain_has_boundary(&r->problem.is, PT_RITZ_NEUMANN) &&
        !domain_has_boundary(&r->problem.is, PT_RITZ_ROBIN))
        ritz_notice(r, "`boundary_weight` has no effect: the problem has no neumann or robin boundary");
    if (o->penalty_ramp && !domain_has_boundary(&r->problem.is, PT_RITZ_DIRICHLET))
        ritz_notice(r, "`penalty_ramp` has no effect: the problem has no dirichlet boundary");
    if (o->save_every && !o->out)
        ritz_notice(r, "`save_every` has no effect without `out`");
}

static int take_samples(pt_ritz *r, pt_error *e)
{
    r->samples = malloc((size_t)(ritz_eval_rows(r) * (3 * r->net.dim + SAMPLE_VALUES)) * sizeof *r->samples);
    return r->samples ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

enum { SETS_KEY = 0x52495453, FACE_LEAST = 16 }; /* an exclusive or with the seed: sets of their own */

/* The point sets of pt_ritz_estimate_energy. */
static int open_sets(pt_ritz *r, points_kind kind, pt_error *e)
{
    const uint64_t seed = r->o.seed ^ (uint64_t)SETS_KEY << 32;
    const int64_t faces = domain_faces(&r->problem.is), each = nearest_power((double)r->o.eval_n / (double)faces);
    int failed = points_open(kind, RANDOMIZE_DEFAULT, r->net.dim, r->o.eval_n, seed, &r->sets, e);
    if (failed || !r->faces.n)
        return failed;
    r->set_faces.n = r->net.dim == 1 ? 1 : each < FACE_LEAST ? FACE_LEAST : each;
    return r->net.dim > 1 ? points_open(kind, RANDOMIZE_DEFAULT, r->net.dim - 1, r->set_faces.n, seed, &r->set_faces.points, e) : 0;
}

static int open_points(pt_ritz *r, pt_error *e)
{
    const pt_ritz_options *o = &r->o;
    const points_kind kind = (points_kind)o->points, errors = r->net.dim > points_most_dimensions(POINTS_SOBOL) ? POINTS_MC : POINTS_SOBOL;
    int failed = points_open(kind, (points_randomize)o->randomize, r->net.dim, o->n, o->seed, &r->inside, e);
    if (!failed && r->faces.n && r->net.dim > 1)
        failed = points_open(kind, (points_randomize)o->randomize, r->net.dim - 1, r->faces.n, o->seed, &r->faces.points, e);
    if (!failed && r->problem.is.exact)
        failed = points_open(errors, RANDOMIZE_DEFAULT, r->net.dim, o->eval_n, o->seed ^ 0x9e3779b97f4a7c15u, &r->eval, e);
    if (!failed)
        failed = open_sets(r, errors, e);
    if (!failed)
        failed = take_samples(r, e);
    if (!failed && r->eval)
        failed = check_exact(r, e);
    if (!failed)
        tell(r);
    return failed;
}

/* ---- memory ---- */

static uint64_t page(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
static uint64_t x_bytes(const pt_ritz *r) { return page((uint64_t)(r->unit_rows * r->net.input) * dtype_bytes(r->net.type)); }
static uint64_t terms_bytes(const pt_ritz *r) { return page((uint64_t)r->unit_rows * QUADRATIC_TERMS * sizeof(double)); }
static uint64_t ones_bytes(const pt_ritz *r) { return page((uint64_t)r->unit_rows * dtype_bytes(r->net.type)); }

static uint64_t staging_bytes(const pt_ritz *r)
{
    uint64_t most = ones_bytes(r);
    for (int c = 0; c < r->space.chunks_n; c++)
        most = ritz_slab_bytes(&r->space, c) > most ? ritz_slab_bytes(&r->space, c) : most;
    return most;
}

/* Bytes of r->x, r->f, r->v, r->a and r->work. */
static uint64_t scratch_bytes(const pt_ritz *r)
{
    const int64_t work = r->problem.is.equation == PT_RITZ_EIGENVALUE ? QUADRATIC_TERMS + 1 + r->net.dim : 0;
    const int64_t ansatz = ansatz_is_hard(&r->problem) ? 3 * r->net.dim + 1 : 0;
    return page((uint64_t)(r->unit_rows * (r->net.dim + 3 + work) + ansatz) * sizeof(double));
}

/* Bytes of r->samples. */
static uint64_t samples_bytes(const pt_ritz *r)
{
    return r->sets ? page((uint64_t)(ritz_eval_rows(r) * (3 * r->net.dim + SAMPLE_VALUES)) * sizeof(double)) : 0;
}

static uint64_t mailbox_bytes(const pt_ritz *r, int visit)
{
    return 2 * (uint64_t)visit * (x_bytes(r) + terms_bytes(r)) + ones_bytes(r) + staging_bytes(r) +
           page((uint64_t)(r->o.n + r->boundary_n) * sizeof(double)) + page((uint64_t)r->o.n * dtype_bytes(r->net.type));
}

static uint64_t calls_bytes(const pt_ritz *r, int visit)
{
    return r->net.jets ? 2 * (uint64_t)visit * (uint64_t)jets_calls(&r->net) * sizeof(jets_call) : 0;
}

/* What is allocated before the mailbox counts with it: also the tables of the points. */
static uint64_t beside_bytes(const void *run, int visit)
{
    const pt_ritz *r = run;
    return mailbox_bytes(r, visit) + page(calls_bytes(r, visit)) + scratch_bytes(r) + page(ritz_polish_bytes(r)) + samples_bytes(r) +
           page(points_bytes(r->inside)) + page(points_bytes(r->faces.points)) + page(points_bytes(r->eval)) + page(points_bytes(r->sets)) +
           page(points_bytes(r->set_faces.points));
}

static char *carve(char **at, uint64_t bytes)
{
    char *base = *at;
    *at += page(bytes);
    return base;
}

static void divide_mailbox(pt_ritz *r)
{
    const uint64_t each = dtype_bytes(r->net.type);
    char *at = ritz_runner_mailbox(r->runner);
    r->ones = carve(&at, ones_bytes(r));
    for (int64_t i = 0; i < r->unit_rows; i++)
        if (r->net.type == PT_F64)
            ((double *)r->ones)[i] = 1;
        else
            ((float *)r->ones)[i] = 1;
    for (int i = 0; i < 2 * r->plan.visit; i++) {
        char *x = carve(&at, x_bytes(r));
        r->slots[i] = (ritz_slot){.x = x, .terms = (double *)carve(&at, terms_bytes(r)), .ones = r->ones,
                                  .calls = r->calls ? r->calls + i * jets_calls(&r->net) : NULL};
    }
    r->values = (double *)carve(&at, (uint64_t)(r->o.n + r->boundary_n) * sizeof(double));
    r->u = carve(&at, (uint64_t)r->o.n * each);
    r->staging = at;
}

static int take_scratch(pt_ritz *r, pt_error *e)
{
    r->x = malloc(scratch_bytes(r));
    if (!r->x)
        return pt_fail(e, PT_FAILED, "out of memory");
    r->f = r->x + r->unit_rows * r->net.dim;
    r->v = r->f + r->unit_rows;
    r->a = r->v + r->unit_rows;
    r->work = r->a + r->unit_rows;
    if (ansatz_is_hard(&r->problem))
        r->ansatz = r->work + (r->problem.is.equation == PT_RITZ_EIGENVALUE ? r->unit_rows * (QUADRATIC_TERMS + 1 + r->net.dim) : 0);
    return 0;
}

/* ---- the plan ---- */

static int choose_budgets(pt_ritz *r, ritz_planning *p, pt_error *e)
{
    const pt_ritz_options *o = &r->o;
    const char *folder = o->disk_path ? o->disk_path : o->out && !o->disk_path ? o->out : dir_temporary();
    snprintf(r->disk_path, sizeof r->disk_path, "%s", folder);
    const budget_request asked = {.asked = {o->device_memory, o->host_memory, o->disk_memory}, .disk_path = r->disk_path,
                                  .device = r->device, .notice = o->notice, .arg = o->arg,
                                  .missing_bytes = o->misfit ? &o->misfit->missing_bytes : NULL,
                                  .change = o->misfit ? o->misfit->change : NULL};
    int failed = budgets_choose(&asked, p->budget, &r->space.host_tier, NULL, e);
    r->mailbox_tier = p->mailbox_tier = r->space.host_tier ? TIER_HOST : TIER_DEVICE;
    return failed;
}

static int make_plan(pt_ritz *r, bool training, ritz_plan_fn given, void *arg, pt_error *e)
{
    const int64_t visit = (r->o.micro_batch + r->unit_rows - 1) / r->unit_rows;
    ritz_planning p = {.space = &r->space, .device = r->device, .threads = r->o.threads, .disk_path = r->disk_path,
                       .mailbox_bytes = beside_bytes, .arg = r, .inside_n = r->o.n, .face_n = r->boundary_n,
                       .inside_units = r->inside_units, .face_units = r->boundary_units,
                       .evaluates = r->problem.is.equation == PT_RITZ_EIGENVALUE,
                       .visit = (int)(visit > RITZ_VISIT_MOST ? RITZ_VISIT_MOST : visit), .price = r->o.forecast, .misfit = r->o.misfit,
                       .make_points = training ? ritz_time_points : NULL, .makes_in_threads = ritz_makes_in_threads(r)};
    r->space = (ritz_space){.net = &r->net, .unit_rows = r->unit_rows, .training = training, .has_mean = problem_has_mean(&r->problem),
                            .has_faces = r->boundary_units > 0 && !r->net.jets};
    ritz_space_init(&r->space);
    int failed = choose_budgets(r, &p, e);
    memcpy(r->budget, p.budget, sizeof r->budget);
    if (!failed)
        failed = given ? given(arg, &p, &r->plan, e)
            : r->o.plan_file ? ritz_plan_take(&p, r->o.plan_file, &r->plan, &r->forecast, e)
                             : ritz_plan_choose(&p, &r->plan, &r->forecast, e);
    if (!failed && given)
        failed = ritz_plan_forecast(&p, &r->plan, NULL, &r->forecast, e);
    if (failed || r->o.plan_only)
        return failed;
    r->slots = calloc((size_t)(2 * r->plan.visit), sizeof *r->slots);
    r->calls = r->net.jets ? calloc(1, calls_bytes(r, r->plan.visit)) : NULL;
    if (!r->slots || (r->net.jets && !r->calls))
        return pt_fail(e, PT_FAILED, "out of memory");
    ritz_runner_options o = {.device = r->device, .host = r->host, .space = &r->space, .plan = &r->plan,
                             .mailbox_bytes = mailbox_bytes(r, r->plan.visit), .disk_path = r->disk_path, .threads = r->o.threads};
    for (int t = 0; t < TIERS; t++)
        o.budget[t] = p.budget[t] - ((int)p.mailbox_tier == t ? beside_bytes(r, r->plan.visit) : 0);
    failed = ritz_runner_open(&o, &r->runner, e);
    if (!failed)
        divide_mailbox(r);
    return failed;
}

/* Its energy, or its residual loss, is computed by calls on the CPU's threads. */
static int check_composed(const pt_ritz *r, pt_error *e)
{
    const char *what = r->net.jets ? "the residual loss" : r->problem.is.G ? "G" : "a hard boundary";
    enum { COMPOSED_MOST = CALL_SCRATCH_BYTES / 8 / RESIDUAL_SCRATCH, JETS_MOST = 256 };
    const int most = r->net.jets ? JETS_MOST : COMPOSED_MOST;
    if (r->net.jets && r->problem.is.equation == PT_RITZ_EIGENVALUE)
        return pt_fail(e, PT_USAGE, "%s: an eigenvalue problem has no residual loss, for its eigenvalue is not known: give `loss` energy",
                       r->problem.name);
    if (r->net.jets && ansatz_has_hard_holes(&r->problem))
        return pt_fail(e, PT_USAGE, "%s: a hard hole has no residual loss, for its factor has no Laplacian at the corners: give `loss` "
                                    "energy", r->problem.name);
    if (device_is_gpu(r->device))
        return pt_fail(e, PT_USAGE, "%s: %s works only on a CPU: give `device` cpu", r->problem.name, what);
    if (!r->problem.is.concurrent)
        return pt_fail(e, PT_USAGE, "%s: %s needs functions that several threads may call: set `concurrent`", r->problem.name, what);
    if (r->net.dim > most)
        return pt_fail(e, PT_USAGE, "%s: with %s there can be %d dimensions, but there are %lld", r->problem.name, what, most,
                       (long long)r->net.dim);
    return 0;
}

static void on_device_notice(void *arg, const char *sentence) { ritz_notice(arg, "%s", sentence); }

int ritz_open_network(pt_ritz *r, bool training, ritz_plan_fn given, void *arg, pt_error *e)
{
    const device_options d = {.threads = r->o.threads, .notice = on_device_notice, .arg = r};
    int failed = describe_network(r, e);
    if (!failed)
        failed = device_open(r->o.device ? r->o.device : "auto", &d, &r->device, &r->host, e);
    if (!failed && device_is_gpu(r->device) && r->net.type == PT_F64)
        failed = pt_fail(e, PT_USAGE, "fp64 works only on a CPU: give `device` cpu or `dtype` fp32");
    if (!failed && (problem_is_composed(&r->problem) || r->net.jets))
        failed = check_composed(r, e);
    if (failed)
        return failed;
    r->penalty = r->problem.is.penalty;
    find_units(r);
    failed = take_scratch(r, e);
    if (!failed && ritz_makes_in_threads(r))
        failed = problem_share(&r->problem, r->device->info.threads, e);
    if (!failed && training)
        failed = open_points(r, e);
    return failed ? failed : make_plan(r, training, given, arg, e);
}

uint64_t ritz_peak_bytes(const pt_ritz *r, tier t)
{
    return ritz_runner_peak_bytes(r->runner, t) + (t == r->mailbox_tier ? beside_bytes(r, r->plan.visit) : 0);
}

/* ---- opening ---- */

static int begin(pt_ritz *r, pt_error *e)
{
    const uint64_t each = dtype_bytes(r->net.type);
    int failed = 0;
    for (int c = 0; c < r->space.chunks_n && !failed; c++) {
        const ritz_chunk *chunk = &r->space.chunks[c];
        for (int i = chunk->stage0; i < chunk->stage0 + chunk->stages_n; i++)
            ritz_network_init(&r->net, i, r->o.seed, r->staging + (uint64_t)(r->net.stages[i].weight_at - chunk->value0) * each);
        failed = ritz_slab(r, OBJECT_WEIGHTS, 0, c, false, e);
        memset(r->staging, 0, ritz_slab_bytes(&r->space, c));
        for (int i = 0; i < 2 && !failed; i++)
            failed = ritz_slab(r, OBJECT_STATES, i, c, false, e);
    }
    return failed;
}

/* An existing run is never overwritten, nor a network or another model. A run that is resumed without a checkpoint has metrics at most. */
static int check_empty(const pt_ritz *r, pt_error *e)
{
    static const char *const kept[] = {"metrics.jsonl", "config.json", "network.safetensors"};
    const bool checkpoint = ritz_has_checkpoint(r);
    if (r->o.resume && checkpoint)
        return 0;
    if (checkpoint)
        return pt_fail(e, PT_FAILED, "%.300s already holds a run (checkpoints): give `resume` to continue it, or another `out`", r->out);
    for (size_t i = r->o.resume; i < sizeof kept / sizeof *kept; i++) {
        char path[FILE_PATH_BYTES];
        const int failed = path_join(path, r->out, kept[i], e);
        if (failed)
            return failed;
        if (path_exists(path) && i)
            return pt_fail(e, PT_FAILED, "%.300s holds a model (%s) without a checkpoint of a Deep Ritz run: give another `out`", r->out,
                           kept[i]);
        if (path_exists(path))
            return pt_fail(e, PT_FAILED, "%.300s already holds a run (metrics.jsonl): give `resume` to continue it, or another `out`",
                           r->out);
    }
    return 0;
}

static int open_out(pt_ritz *r, pt_error *e)
{
    dir_stages_put_back(r->out, "checkpoint-0");
    int failed = check_empty(r, e);
    if (!failed && r->o.resume)
        failed = ritz_resume(r, e);
    return failed ? failed : ritz_metrics_open(r, e);
}

static int lock_out(pt_ritz *r, bool *made, pt_error *e)
{
    snprintf(r->out, sizeof r->out, "%s", r->o.out);
    *made = !path_exists(r->out);
    int failed = dir_make(r->out, e);
    if (!failed && !(failed = dir_lock_take(&r->lock, r->out, e)))
        r->locked = true;
    return failed;
}

int ritz_open(const pt_ritz_options *o, ritz_plan_fn given, void *arg, pt_ritz **out, pt_error *e)
{
    *out = NULL;
    int failed = check(o, e);
    pt_ritz *r = failed ? NULL : calloc(1, sizeof *r);
    if (!r)
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory");
    bool made = false;
    r->o = *o;
    failed = problem_open(o, &r->problem, e);
    r->problem.residual = o->loss == PT_RITZ_LOSS_RESIDUAL;
    if (!failed && o->out && !o->plan_only)
        failed = lock_out(r, &made, e);
    if (!failed)
        failed = ritz_open_network(r, true, given, arg, e);
    if (!failed && !o->plan_only)
        failed = begin(r, e);
    if (!failed && !o->plan_only && o->init_run)
        failed = ritz_init(r, o->init_run, e);
    if (!failed && !o->plan_only)
        failed = ritz_check_problem(r, e);
    if (!failed && r->locked)
        failed = open_out(r, e);
    if (failed)
        pt_ritz_close(r);
    else
        *out = r;
    if (failed && made) /* where there is nothing in it */
        rmdir(o->out);
    return failed;
}

/* $TMPDIR is where the disk tier lies if nothing else names a folder. */
static void tell_missing_folder(const pt_ritz_options *o)
{
    pt_error e = {0};
    if (o->notice && !o->out && !o->disk_path && dir_check_temporary(&e))
        o->notice(o->arg, e.text);
}

int pt_ritz_open(const pt_ritz_options *o, pt_ritz **out, pt_error *e)
{
    if (!o || !out)
        return pt_fail_null(e, "pt_ritz_open", o ? "out" : "options");
    tell_missing_folder(o);
    return ritz_open(o, NULL, NULL, out, e);
}

void pt_ritz_close(pt_ritz *r)
{
    if (!r)
        return;
    ritz_runner_close(r->runner);
    plan_free(&r->plan);
    if (r->device)
        device_close(r->device, r->host);
    step_lines_close(&r->metrics);
    if (r->locked)
        dir_lock_release(&r->lock);
    points_close(r->inside);
    points_close(r->faces.points);
    points_close(r->eval);
    points_close(r->sets);
    points_close(r->set_faces.points);
    problem_close(&r->problem);
    free(r->slots);
    free(r->calls);
    free(r->x);
    free(r->samples);
    free(r);
}

void pt_ritz_get_summary(const pt_ritz *r, pt_ritz_summary *s)
{
    if (!r || !s)
        return;
    *s = (pt_ritz_summary){.problem = r->problem.name, .dim = r->net.dim, .parameters = r->net.params, .steps = r->o.steps,
                           .first_step = r->first_step,
                           .n = r->o.n, .n_boundary = r->boundary_n, .unit_points = r->unit_rows, .visit_units = r->plan.visit,
                           .lower = r->problem.is.lower, .upper = r->problem.is.upper, .has_exact = r->problem.is.exact,
                           .exact_is_zero = r->exact_is_zero,
                           .exact_energy = r->problem.energy, .groups = r->net.groups_n, .chunks = r->space.chunks_n,
                           .predicted_step_s = r->forecast.step_ns / 1e9, .again_s = r->forecast.again_ns / 1e9,
                           .written_bytes = r->forecast.written_bytes};
    for (int g = 0; g < r->net.groups_n; g++) {
        s->recomputed_groups += r->plan.blocks[g].level == SAVE_INPUT;
        s->swapped_groups += r->plan.blocks[g].place != TIER_DEVICE;
    }
    for (int c = 0; c < r->space.chunks_n; c++)
        s->chunks_on[r->plan.chunks[c].placement]++;
    for (int t = 0; t < TIERS; t++) {
        s->planned_bytes[t] = r->forecast.bytes[t];
        s->budget_bytes[t] = r->budget[t];
        s->peak_bytes[t] = r->runner ? ritz_peak_bytes(r, (tier)t) : 0;
    }
    snprintf(s->arithmetic, sizeof s->arithmetic, "%s", r->device->info.arithmetic);
}

char *pt_ritz_plan_json(const pt_ritz *r) { return r ? ritz_plan_to_json(&r->space, &r->plan, device_is_gpu(r->device)) : NULL; }

/* ---- steps ---- */

static void submit_update(pt_ritz *r, double lr)
{
    const pt_ritz_options *o = &r->o;
    const double step = (double)r->step;
    ritz_runner_update(r->runner, &(adamw_rates){.decay = 1 - lr * o->weight_decay, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                                                 .step_size = lr / (1 - pow(o->beta1, step)),
                                                 .sqrt_correction2 = sqrt(1 - pow(o->beta2, step))});
}

static bool is_due(int64_t step, int64_t every, int64_t steps) { return step == steps || (every && step % every == 0); }

/* Products of values as large as f and V leave the range of the run's type; else the learning rate is the likely cause. */
static int say_not_finite(pt_ritz *r, const pt_ritz_step_info *s, pt_error *e)
{
    const bool wide = r->net.type == PT_F64;
    const double energy = isnan(s->energy) ? NAN : s->energy, largest = ritz_largest_value(r);
    const char *stay = ritz_has_checkpoint(r) ? "; checkpoints of earlier steps stay" : "";
    if (largest > (wide ? 1e100 : 1e15))
        return pt_fail(e, PT_FAILED, "the loss of step %lld is %g, for f or V reaches %.3g: scale the problem%s%s", (long long)s->step,
                       energy, largest, wide || device_is_gpu(r->device) ? "" : ", or give `dtype` fp64", stay);
    return pt_fail(e, PT_FAILED, "the loss of step %lld is %g: lower `lr`, which is %g%s", (long long)s->step, energy, s->lr, stay);
}

/* Over the first `penalty_ramp` steps it rises geometrically, from a thousandth. */
static double penalty_of(const pt_ritz *r, int64_t step)
{
    const double left = r->o.penalty_ramp ? 1 - (double)(step - 1) / (double)r->o.penalty_ramp : 0;
    return r->problem.is.penalty * (left > 0 ? pow(1e-3, left) : 1);
}

/* Keeps the energies of the last steps. */
static void follow_energy(pt_ritz *r, double energy)
{
    r->recent[r->recent_n++ % RITZ_RECENT] = energy;
}

enum { FEWER_POINTS = 8 }; /* before the end, sets are this many times smaller */

int ritz_evaluate(pt_ritz *r, pt_ritz_step_info *s, pt_error *e)
{
    const int64_t n = r->step == r->o.steps ? r->o.eval_n : (r->o.eval_n + FEWER_POINTS - 1) / FEWER_POINTS;
    pt_ritz_norms norms;
    int failed = 0;
    s->evaluated = r->problem.is.exact;
    if (s->evaluated)
        failed = pt_ritz_error_norms(r, &norms, e);
    if (!failed && s->evaluated) {
        s->l2_error = norms.l2;
        s->h1_error = norms.h1;
        s->h1_seminorm_error = norms.h1_seminorm;
        s->energy_norm_error = norms.energy;
    }
    if (failed || r->o.energy_sets < 2)
        return failed;
    s->estimated = true;
    failed = pt_ritz_estimate_energy(r, (int)r->o.energy_sets, n, &s->estimate, e);
    if (!failed && r->step == r->o.steps)
        ritz_judge(r, &s->estimate);
    return failed;
}

int pt_ritz_step(pt_ritz *r, pt_ritz_step_info *s, pt_error *e)
{
    int failed = ritz_check_call(r, "pt_ritz_step", true, e);
    if (failed || !s)
        return failed ? failed : pt_fail_null(e, "pt_ritz_step", "step");
    if (r->step >= r->o.steps)
        return 0;
    const double begin_s = clock_s();
    const uint64_t draw = ritz_draw_of(&r->o, r->step + 1);
    *s = (pt_ritz_step_info){.step = r->step + 1, .lr = ritz_lr(&r->o, r->step + 1)};
    r->penalty = penalty_of(r, r->step + 1);
    r->polished = 0;
    failed = ritz_integrate(r, draw, &s->energy, e);
    if (failed)
        return failed;
    if (!isfinite(s->energy))
        return say_not_finite(r, s, e);
    r->step++;
    submit_update(r, s->lr);
    failed = ritz_runner_sync(r->runner, e);
    s->step_s = clock_s() - begin_s;
    follow_energy(r, s->energy);
    if (!failed && is_due(r->step, r->o.eval_every, r->o.steps))
        failed = ritz_evaluate(r, s, e);
    if (!failed)
        failed = ritz_metrics_write(r, s, e);
    if (!failed && r->o.out && r->o.save_every && r->step % r->o.save_every == 0)
        failed = pt_ritz_save(r, e);
    return failed ? failed : 1;
}
