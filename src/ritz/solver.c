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

enum { SAMPLE_VALUES = 4 + QUADRATIC_TERMS }; /* of a point in ritz->samples, beside x and two gradients */
enum { BOUNDARY_WEIGHT = 10 }; /* of a residual loss */
enum { UNIT_LEAST = 256, UNIT_JETS_LEAST = 32, UNIT_MOST = 2048, UNIT_VALUES = 65536, GPU_UNIT = 8192 };

void ritz_notice(const pt_ritz *ritz, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    text_format(text, sizeof text, format, ap);
    va_end(ap);
    if (ritz->o.notice)
        ritz->o.notice(ritz->o.arg, text);
}

int ritz_check_call(const pt_ritz *ritz, const char *function, bool training, pt_error *e)
{
    if (!ritz)
        return pt_fail_null(e, function, "run");
    if (!ritz->runner)
        return pt_fail(e, PT_USAGE, "%s: the run is only planned: open it without `plan_only`", function);
    if (training && !ritz->inside)
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

static int describe_network(pt_ritz *ritz, pt_error *e)
{
    const pt_ritz_options *o = &ritz->o;
    static const jet_kind kinds[] = {JET_TANH, JET_TANH3, JET_RELU3, JET_SOFTPLUS, JET_SIN, JET_SILU};
    ritz->net = (ritz_network){.dim = ritz->problem.is.dim, .width = o->width, .blocks = o->blocks, .plain = o->plain,
                            .direct = o->no_input_layer,
                            .activation = kinds[o->activation], .type = o->dtype == PT_RITZ_FP64 ? PT_F64 : PT_F32,
                            .jets = ritz->problem.residual ? ritz->problem.is.dim + 2 : 0};
    return ritz_network_describe(&ritz->net, e);
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

int64_t ritz_points_a_face(const pt_ritz *ritz, int64_t n)
{
    return points_a_face(&(pt_ritz_options){.n = n}, ritz->net.dim, domain_faces(&ritz->problem.is));
}

/* A tensor of a unit has about UNIT_VALUES values, or twice as many in two blocks of rows. */
static void find_units(pt_ritz *ritz)
{
    const int64_t blocks = ritz->net.jets ? ritz->net.jets : 2, least = ritz->net.jets ? UNIT_JETS_LEAST : UNIT_LEAST;
    ritz->unit_rows = UNIT_MOST;
    while (ritz->unit_rows > least && ritz->unit_rows * ritz->net.width * blocks > 2 * UNIT_VALUES)
        ritz->unit_rows /= 2;
    if (device_is_gpu(ritz->device))
        ritz->unit_rows = GPU_UNIT;
    ritz->inside_units = (ritz->o.n + ritz->unit_rows - 1) / ritz->unit_rows;
    if (problem_samples_boundary(&ritz->problem)) {
        const int64_t faces = domain_faces(&ritz->problem.is);
        const double weight = ritz->o.boundary_weight > 0 ? ritz->o.boundary_weight : BOUNDARY_WEIGHT;
        ritz->faces.weight = ritz->problem.residual ? weight : 0;
        ritz->faces.n = points_a_face(&ritz->o, ritz->net.dim, faces);
        ritz->boundary_n = ritz->faces.n * faces;
        ritz->boundary_units = (ritz->boundary_n + ritz->unit_rows - 1) / ritz->unit_rows;
    }
}

/* Before the first step, since the last step may be the first that needs it. */
static int check_exact(pt_ritz *ritz, pt_error *e)
{
    int failed = 0;
    for (int64_t first = 0; first < ritz->o.eval_n && !failed; first += ritz->unit_rows) {
        const int64_t n = ritz->o.eval_n - first < ritz->unit_rows ? ritz->o.eval_n - first : ritz->unit_rows;
        points_get(ritz->eval, first, n, ritz->x);
        ritz_stretch(&ritz->problem.is, n, ritz->x);
        ritz->problem.is.exact(ritz->problem.is.arg, n, ritz->net.dim, ritz->x, ritz->f);
        for (int64_t i = 0; i < n; i++)
            if (!domain_holds(&ritz->problem.is, ritz->x + i * ritz->net.dim))
                ritz->f[i] = 0;
        failed = ritz_check_values(&ritz->problem, "exact", n, 1, ritz->f, ritz->x, e);
    }
    return failed;
}

/* What is not as the options say, or not as it should be. */
static void tell(const pt_ritz *ritz)
{
    const pt_ritz_options *o = &ritz->o;
    const points_kind kind = (points_kind)o->points;
    const long long faces = domain_faces(&ritz->problem.is), each = ritz->faces.n, better = nearest_power((double)each);
    if (!points_whole(kind, o->n))
        ritz_notice(ritz, "`n` is %lld, not a power of two: only sets of a power of two of %s points are evenly distributed, so that %lld "
                       "are worth about as much as %lld",
                    (long long)o->n, points_names[kind], (long long)o->n,
                    (long long)(INT64_C(1) << (63 - __builtin_clzll((uint64_t)o->n))));
    if (o->n_boundary && !each)
        ritz_notice(ritz, "`n_boundary` has no effect: the problem has no points on its boundary");
    else if (each && !points_whole(kind, each))
        ritz_notice(ritz, "each of the %lld faces has %lld points, not a power of two: give `n_boundary` %lld for %lld each", faces, each,
                    faces * better, better);
    else if (o->n_boundary && o->n_boundary != ritz->boundary_n)
        ritz_notice(ritz, "`n_boundary` is %lld, but each of the %lld faces has %lld point%s, %lld together", (long long)o->n_boundary,
                    faces, each, plural((uint64_t)each), (long long)ritz->boundary_n);
    if (o->boundary_weight > 0 && !domain_has_boundary(&ritz->problem.is, PT_RITZ_NEUMANN) &&
        !domain_has_boundary(&ritz->problem.is, PT_RITZ_ROBIN))
        ritz_notice(ritz, "`boundary_weight` has no effect: the problem has no neumann or robin boundary");
    if (o->penalty_ramp && !domain_has_boundary(&ritz->problem.is, PT_RITZ_DIRICHLET))
        ritz_notice(ritz, "`penalty_ramp` has no effect: the problem has no dirichlet boundary");
    if (o->save_every && !o->out)
        ritz_notice(ritz, "`save_every` has no effect without `out`");
}

static int take_samples(pt_ritz *ritz, pt_error *e)
{
    ritz->samples = malloc((size_t)(ritz_eval_rows(ritz) * (3 * ritz->net.dim + SAMPLE_VALUES)) * sizeof *ritz->samples);
    return ritz->samples ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

enum { SETS_KEY = 0x52495453, FACE_LEAST = 16 }; /* an exclusive or with the seed: sets of their own */

/* The point sets of pt_ritz_estimate_energy. */
static int open_sets(pt_ritz *ritz, points_kind kind, pt_error *e)
{
    const uint64_t seed = ritz->o.seed ^ (uint64_t)SETS_KEY << 32;
    const int64_t faces = domain_faces(&ritz->problem.is), each = nearest_power((double)ritz->o.eval_n / (double)faces);
    int failed = points_open(kind, RANDOMIZE_DEFAULT, ritz->net.dim, ritz->o.eval_n, seed, &ritz->sets, e);
    if (failed || !ritz->faces.n)
        return failed;
    ritz->set_faces.n = ritz->net.dim == 1 ? 1 : each < FACE_LEAST ? FACE_LEAST : each;
    return ritz->net.dim > 1 ? points_open(kind, RANDOMIZE_DEFAULT, ritz->net.dim - 1, ritz->set_faces.n, seed, &ritz->set_faces.points, e)
                             : 0;
}

static int open_points(pt_ritz *ritz, pt_error *e)
{
    const pt_ritz_options *o = &ritz->o;
    const points_kind kind = (points_kind)o->points,
                      errors = ritz->net.dim > points_most_dimensions(POINTS_SOBOL) ? POINTS_MC : POINTS_SOBOL;
    int failed = points_open(kind, (points_randomize)o->randomize, ritz->net.dim, o->n, o->seed, &ritz->inside, e);
    if (!failed && ritz->faces.n && ritz->net.dim > 1)
        failed = points_open(kind, (points_randomize)o->randomize, ritz->net.dim - 1, ritz->faces.n, o->seed, &ritz->faces.points, e);
    if (!failed && ritz->problem.is.exact)
        failed = points_open(errors, RANDOMIZE_DEFAULT, ritz->net.dim, o->eval_n, o->seed ^ 0x9e3779b97f4a7c15u, &ritz->eval, e);
    if (!failed)
        failed = open_sets(ritz, errors, e);
    if (!failed)
        failed = take_samples(ritz, e);
    if (!failed && ritz->eval)
        failed = check_exact(ritz, e);
    if (!failed)
        tell(ritz);
    return failed;
}

/* ---- memory ---- */

static uint64_t page(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }
static uint64_t x_bytes(const pt_ritz *ritz) { return page((uint64_t)(ritz->unit_rows * ritz->net.input) * dtype_bytes(ritz->net.type)); }
static uint64_t terms_bytes(const pt_ritz *ritz) { return page((uint64_t)ritz->unit_rows * QUADRATIC_TERMS * sizeof(double)); }
static uint64_t ones_bytes(const pt_ritz *ritz) { return page((uint64_t)ritz->unit_rows * dtype_bytes(ritz->net.type)); }

static uint64_t staging_bytes(const pt_ritz *ritz)
{
    uint64_t most = ones_bytes(ritz);
    for (int c = 0; c < ritz->space.chunks_n; c++)
        most = ritz_slab_bytes(&ritz->space, c) > most ? ritz_slab_bytes(&ritz->space, c) : most;
    return most;
}

/* Bytes of ritz->x, ritz->f, ritz->v, ritz->a and ritz->work. */
static uint64_t scratch_bytes(const pt_ritz *ritz)
{
    const int64_t work = ritz->problem.is.equation == PT_RITZ_EIGENVALUE ? QUADRATIC_TERMS + 1 + ritz->net.dim : 0;
    const int64_t ansatz = ansatz_is_hard(&ritz->problem) ? 3 * ritz->net.dim + 1 : 0;
    return page((uint64_t)(ritz->unit_rows * (ritz->net.dim + 3 + work) + ansatz) * sizeof(double));
}

/* Bytes of ritz->samples. */
static uint64_t samples_bytes(const pt_ritz *ritz)
{
    return ritz->sets ? page((uint64_t)(ritz_eval_rows(ritz) * (3 * ritz->net.dim + SAMPLE_VALUES)) * sizeof(double)) : 0;
}

static uint64_t mailbox_bytes(const pt_ritz *ritz, int visit)
{
    return 2 * (uint64_t)visit * (x_bytes(ritz) + terms_bytes(ritz)) + ones_bytes(ritz) + staging_bytes(ritz) +
           page((uint64_t)(ritz->o.n + ritz->boundary_n) * sizeof(double)) + page((uint64_t)ritz->o.n * dtype_bytes(ritz->net.type));
}

static uint64_t calls_bytes(const pt_ritz *ritz, int visit)
{
    return ritz->net.jets ? 2 * (uint64_t)visit * (uint64_t)jets_calls(&ritz->net) * sizeof(jets_call) : 0;
}

/* What is allocated before the mailbox counts with it: also the tables of the points. */
static uint64_t beside_bytes(const void *run, int visit)
{
    const pt_ritz *ritz = run;
    return mailbox_bytes(ritz, visit) + page(calls_bytes(ritz, visit)) + scratch_bytes(ritz) + page(ritz_polish_bytes(ritz)) +
           samples_bytes(ritz) + page(points_bytes(ritz->inside)) + page(points_bytes(ritz->faces.points)) +
           page(points_bytes(ritz->eval)) + page(points_bytes(ritz->sets)) + page(points_bytes(ritz->set_faces.points));
}

static char *carve(char **at, uint64_t bytes)
{
    char *base = *at;
    *at += page(bytes);
    return base;
}

static void divide_mailbox(pt_ritz *ritz)
{
    const uint64_t each = dtype_bytes(ritz->net.type);
    char *at = ritz_runner_mailbox(ritz->runner);
    ritz->ones = carve(&at, ones_bytes(ritz));
    for (int64_t i = 0; i < ritz->unit_rows; i++)
        if (ritz->net.type == PT_F64)
            ((double *)ritz->ones)[i] = 1;
        else
            ((float *)ritz->ones)[i] = 1;
    for (int i = 0; i < 2 * ritz->plan.visit; i++) {
        char *x = carve(&at, x_bytes(ritz));
        ritz->slots[i] = (ritz_slot){.x = x, .terms = (double *)carve(&at, terms_bytes(ritz)), .ones = ritz->ones,
                                  .calls = ritz->calls ? ritz->calls + i * jets_calls(&ritz->net) : NULL};
    }
    ritz->values = (double *)carve(&at, (uint64_t)(ritz->o.n + ritz->boundary_n) * sizeof(double));
    ritz->u = carve(&at, (uint64_t)ritz->o.n * each);
    ritz->staging = at;
}

static int take_scratch(pt_ritz *ritz, pt_error *e)
{
    ritz->x = malloc(scratch_bytes(ritz));
    if (!ritz->x)
        return pt_fail(e, PT_FAILED, "out of memory");
    ritz->f = ritz->x + ritz->unit_rows * ritz->net.dim;
    ritz->v = ritz->f + ritz->unit_rows;
    ritz->a = ritz->v + ritz->unit_rows;
    ritz->work = ritz->a + ritz->unit_rows;
    if (ansatz_is_hard(&ritz->problem))
        ritz->ansatz =
            ritz->work + (ritz->problem.is.equation == PT_RITZ_EIGENVALUE ? ritz->unit_rows * (QUADRATIC_TERMS + 1 + ritz->net.dim) : 0);
    return 0;
}

/* ---- the plan ---- */

static int choose_budgets(pt_ritz *ritz, ritz_planning *p, pt_error *e)
{
    const pt_ritz_options *o = &ritz->o;
    const char *folder = o->disk_path ? o->disk_path : o->out && !o->disk_path ? o->out : dir_temporary();
    snprintf(ritz->disk_path, sizeof ritz->disk_path, "%s", folder);
    const budget_request asked = {.asked = {o->device_memory, o->host_memory, o->disk_memory}, .disk_path = ritz->disk_path,
                                  .device = ritz->device, .notice = o->notice, .arg = o->arg,
                                  .missing_bytes = o->misfit ? &o->misfit->missing_bytes : NULL,
                                  .change = o->misfit ? o->misfit->change : NULL};
    int failed = budgets_choose(&asked, p->budget, &ritz->space.host_tier, NULL, e);
    ritz->mailbox_tier = p->mailbox_tier = ritz->space.host_tier ? TIER_HOST : TIER_DEVICE;
    return failed;
}

static int make_plan(pt_ritz *ritz, bool training, ritz_plan_fn given, void *arg, pt_error *e)
{
    const int64_t visit = (ritz->o.micro_batch + ritz->unit_rows - 1) / ritz->unit_rows;
    ritz_planning p = {.space = &ritz->space,
                       .device = ritz->device,
                       .threads = ritz->o.threads,
                       .disk_path = ritz->disk_path,
                       .mailbox_bytes = beside_bytes,
                       .arg = ritz,
                       .inside_n = ritz->o.n,
                       .face_n = ritz->boundary_n,
                       .inside_units = ritz->inside_units,
                       .face_units = ritz->boundary_units,
                       .evaluates = ritz->problem.is.equation == PT_RITZ_EIGENVALUE,
                       .visit = (int)(visit > RITZ_VISIT_MOST ? RITZ_VISIT_MOST : visit),
                       .price = ritz->o.forecast,
                       .misfit = ritz->o.misfit,
                       .make_points = training ? ritz_time_points : NULL,
                       .makes_in_threads = ritz_makes_in_threads(ritz)};
    ritz->space = (ritz_space){.net = &ritz->net,
                               .unit_rows = ritz->unit_rows,
                               .training = training,
                               .has_mean = problem_has_mean(&ritz->problem),
                               .has_faces = ritz->boundary_units > 0 && !ritz->net.jets};
    ritz_space_init(&ritz->space);
    int failed = choose_budgets(ritz, &p, e);
    memcpy(ritz->budget, p.budget, sizeof ritz->budget);
    if (!failed)
        failed = given ? given(arg, &p, &ritz->plan, e)
            : ritz->o.plan_file ? ritz_plan_take(&p, ritz->o.plan_file, &ritz->plan, &ritz->forecast, e)
                             : ritz_plan_choose(&p, &ritz->plan, &ritz->forecast, e);
    if (!failed && given)
        failed = ritz_plan_forecast(&p, &ritz->plan, NULL, &ritz->forecast, e);
    if (failed || ritz->o.plan_only)
        return failed;
    ritz->slots = calloc((size_t)(2 * ritz->plan.visit), sizeof *ritz->slots);
    ritz->calls = ritz->net.jets ? calloc(1, calls_bytes(ritz, ritz->plan.visit)) : NULL;
    if (!ritz->slots || (ritz->net.jets && !ritz->calls))
        return pt_fail(e, PT_FAILED, "out of memory");
    ritz_runner_options o = {.device = ritz->device,
                             .host = ritz->host,
                             .space = &ritz->space,
                             .plan = &ritz->plan,
                             .mailbox_bytes = mailbox_bytes(ritz, ritz->plan.visit),
                             .disk_path = ritz->disk_path,
                             .threads = ritz->o.threads};
    for (int t = 0; t < TIERS; t++)
        o.budget[t] = p.budget[t] - ((int)p.mailbox_tier == t ? beside_bytes(ritz, ritz->plan.visit) : 0);
    failed = ritz_runner_open(&o, &ritz->runner, e);
    if (!failed)
        divide_mailbox(ritz);
    return failed;
}

/* Its energy, or its residual loss, is computed by calls on the CPU's threads. */
static int check_composed(const pt_ritz *ritz, pt_error *e)
{
    const char *what = ritz->net.jets ? "the residual loss" : ritz->problem.is.G ? "G" : "a hard boundary";
    enum { COMPOSED_MOST = CALL_SCRATCH_BYTES / 8 / RESIDUAL_SCRATCH, JETS_MOST = 256 };
    const int most = ritz->net.jets ? JETS_MOST : COMPOSED_MOST;
    if (ritz->net.jets && ritz->problem.is.equation == PT_RITZ_EIGENVALUE)
        return pt_fail(e, PT_USAGE, "%s: an eigenvalue problem has no residual loss, for its eigenvalue is not known: give `loss` energy",
                       ritz->problem.name);
    if (ritz->net.jets && ansatz_has_hard_holes(&ritz->problem))
        return pt_fail(e, PT_USAGE, "%s: a hard hole has no residual loss, for its factor has no Laplacian at the corners: give `loss` "
                                    "energy", ritz->problem.name);
    if (device_is_gpu(ritz->device))
        return pt_fail(e, PT_USAGE, "%s: %s works only on a CPU: give `device` cpu", ritz->problem.name, what);
    if (!ritz->problem.is.concurrent)
        return pt_fail(e, PT_USAGE, "%s: %s needs functions that several threads may call: set `concurrent`", ritz->problem.name, what);
    if (ritz->net.dim > most)
        return pt_fail(e, PT_USAGE, "%s: with %s there can be %d dimensions, but there are %lld", ritz->problem.name, what, most,
                       (long long)ritz->net.dim);
    return 0;
}

static void on_device_notice(void *arg, const char *sentence) { ritz_notice(arg, "%s", sentence); }

int ritz_open_network(pt_ritz *ritz, bool training, ritz_plan_fn given, void *arg, pt_error *e)
{
    const device_options d = {.threads = ritz->o.threads, .notice = on_device_notice, .arg = ritz};
    int failed = describe_network(ritz, e);
    if (!failed)
        failed = device_open(ritz->o.device ? ritz->o.device : "auto", &d, &ritz->device, &ritz->host, e);
    if (!failed && device_is_gpu(ritz->device) && ritz->net.type == PT_F64)
        failed = pt_fail(e, PT_USAGE, "fp64 works only on a CPU: give `device` cpu or `dtype` fp32");
    if (!failed && (problem_is_composed(&ritz->problem) || ritz->net.jets))
        failed = check_composed(ritz, e);
    if (failed)
        return failed;
    ritz->penalty = ritz->problem.is.penalty;
    find_units(ritz);
    failed = take_scratch(ritz, e);
    if (!failed && ritz_makes_in_threads(ritz))
        failed = problem_share(&ritz->problem, ritz->device->info.threads, e);
    if (!failed && training)
        failed = open_points(ritz, e);
    return failed ? failed : make_plan(ritz, training, given, arg, e);
}

uint64_t ritz_peak_bytes(const pt_ritz *ritz, tier t)
{
    return ritz_runner_peak_bytes(ritz->runner, t) + (t == ritz->mailbox_tier ? beside_bytes(ritz, ritz->plan.visit) : 0);
}

/* ---- opening ---- */

static int begin(pt_ritz *ritz, pt_error *e)
{
    const uint64_t each = dtype_bytes(ritz->net.type);
    int failed = 0;
    for (int c = 0; c < ritz->space.chunks_n && !failed; c++) {
        const ritz_chunk *chunk = &ritz->space.chunks[c];
        for (int i = chunk->stage0; i < chunk->stage0 + chunk->stages_n; i++)
            ritz_network_init(&ritz->net, i, ritz->o.seed,
                              ritz->staging + (uint64_t)(ritz->net.stages[i].weight_at - chunk->value0) * each);
        failed = ritz_slab(ritz, OBJECT_WEIGHTS, 0, c, false, e);
        memset(ritz->staging, 0, ritz_slab_bytes(&ritz->space, c));
        for (int i = 0; i < 2 && !failed; i++)
            failed = ritz_slab(ritz, OBJECT_STATES, i, c, false, e);
    }
    return failed;
}

/* An existing run is never overwritten, nor a network or another model. A run that is resumed without a checkpoint has metrics at most. */
static int check_empty(const pt_ritz *ritz, pt_error *e)
{
    static const char *const kept[] = {"metrics.jsonl", "config.json", "network.safetensors"};
    const bool checkpoint = ritz_has_checkpoint(ritz);
    if (ritz->o.resume && checkpoint)
        return 0;
    if (checkpoint)
        return pt_fail(e, PT_FAILED, "%.300s already holds a run (checkpoints): give `resume` to continue it, or another `out`", ritz->out);
    for (size_t i = ritz->o.resume; i < sizeof kept / sizeof *kept; i++) {
        char path[FILE_PATH_BYTES];
        const int failed = path_join(path, ritz->out, kept[i], e);
        if (failed)
            return failed;
        if (path_exists(path) && i)
            return pt_fail(e, PT_FAILED, "%.300s holds a model (%s) without a checkpoint of a Deep Ritz run: give another `out`", ritz->out,
                           kept[i]);
        if (path_exists(path))
            return pt_fail(e, PT_FAILED, "%.300s already holds a run (metrics.jsonl): give `resume` to continue it, or another `out`",
                           ritz->out);
    }
    return 0;
}

static int open_out(pt_ritz *ritz, pt_error *e)
{
    dir_stages_put_back(ritz->out, "checkpoint-0");
    int failed = check_empty(ritz, e);
    if (!failed && ritz->o.resume)
        failed = ritz_resume(ritz, e);
    return failed ? failed : ritz_metrics_open(ritz, e);
}

static int lock_out(pt_ritz *ritz, bool *made, pt_error *e)
{
    snprintf(ritz->out, sizeof ritz->out, "%s", ritz->o.out);
    *made = !path_exists(ritz->out);
    int failed = dir_make(ritz->out, e);
    if (!failed && !(failed = dir_lock_take(&ritz->lock, ritz->out, e)))
        ritz->locked = true;
    return failed;
}

int ritz_open(const pt_ritz_options *o, ritz_plan_fn given, void *arg, pt_ritz **out, pt_error *e)
{
    *out = NULL;
    int failed = check(o, e);
    pt_ritz *ritz = failed ? NULL : calloc(1, sizeof *ritz);
    if (!ritz)
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory");
    bool made = false;
    ritz->o = *o;
    failed = problem_open(o, &ritz->problem, e);
    ritz->problem.residual = o->loss == PT_RITZ_LOSS_RESIDUAL;
    if (!failed && o->out && !o->plan_only)
        failed = lock_out(ritz, &made, e);
    if (!failed)
        failed = ritz_open_network(ritz, true, given, arg, e);
    if (!failed && !o->plan_only)
        failed = begin(ritz, e);
    if (!failed && !o->plan_only && o->init_run)
        failed = ritz_init(ritz, o->init_run, e);
    if (!failed && !o->plan_only)
        failed = ritz_check_problem(ritz, e);
    if (!failed && ritz->locked)
        failed = open_out(ritz, e);
    if (failed)
        pt_ritz_close(ritz);
    else
        *out = ritz;
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

void pt_ritz_close(pt_ritz *ritz)
{
    if (!ritz)
        return;
    ritz_runner_close(ritz->runner);
    plan_free(&ritz->plan);
    if (ritz->device)
        device_close(ritz->device, ritz->host);
    step_lines_close(&ritz->metrics);
    if (ritz->locked)
        dir_lock_release(&ritz->lock);
    points_close(ritz->inside);
    points_close(ritz->faces.points);
    points_close(ritz->eval);
    points_close(ritz->sets);
    points_close(ritz->set_faces.points);
    problem_close(&ritz->problem);
    free(ritz->slots);
    free(ritz->calls);
    free(ritz->x);
    free(ritz->samples);
    free(ritz);
}

void pt_ritz_get_summary(const pt_ritz *ritz, pt_ritz_summary *s)
{
    if (!ritz || !s)
        return;
    *s = (pt_ritz_summary){.problem = ritz->problem.name, .dim = ritz->net.dim, .parameters = ritz->net.params, .steps = ritz->o.steps,
                           .first_step = ritz->first_step,
                           .n = ritz->o.n, .n_boundary = ritz->boundary_n, .unit_points = ritz->unit_rows, .visit_units = ritz->plan.visit,
                           .lower = ritz->problem.is.lower, .upper = ritz->problem.is.upper, .has_exact = ritz->problem.is.exact,
                           .exact_is_zero = ritz->exact_is_zero,
                           .exact_energy = ritz->problem.energy, .groups = ritz->net.groups_n, .chunks = ritz->space.chunks_n,
                           .predicted_step_s = ritz->forecast.step_ns / 1e9, .again_s = ritz->forecast.again_ns / 1e9,
                           .written_bytes = ritz->forecast.written_bytes};
    for (int g = 0; g < ritz->net.groups_n; g++) {
        s->recomputed_groups += ritz->plan.blocks[g].level == SAVE_INPUT;
        s->swapped_groups += ritz->plan.blocks[g].place != TIER_DEVICE;
    }
    for (int c = 0; c < ritz->space.chunks_n; c++)
        s->chunks_on[ritz->plan.chunks[c].placement]++;
    for (int t = 0; t < TIERS; t++) {
        s->planned_bytes[t] = ritz->forecast.bytes[t];
        s->budget_bytes[t] = ritz->budget[t];
        s->peak_bytes[t] = ritz->runner ? ritz_peak_bytes(ritz, (tier)t) : 0;
    }
    snprintf(s->arithmetic, sizeof s->arithmetic, "%s", ritz->device->info.arithmetic);
}

char *pt_ritz_plan_json(const pt_ritz *ritz)
{
    return ritz ? ritz_plan_to_json(&ritz->space, &ritz->plan, device_is_gpu(ritz->device)) : NULL;
}

/* ---- steps ---- */

static void submit_update(pt_ritz *ritz, double lr)
{
    const pt_ritz_options *o = &ritz->o;
    const double step = (double)ritz->step;
    ritz_runner_update(ritz->runner, &(adamw_rates){.decay = 1 - lr * o->weight_decay, .beta1 = o->beta1, .beta2 = o->beta2, .eps = o->eps,
                                                 .step_size = lr / (1 - pow(o->beta1, step)),
                                                 .sqrt_correction2 = sqrt(1 - pow(o->beta2, step))});
}

static bool is_due(int64_t step, int64_t every, int64_t steps) { return step == steps || (every && step % every == 0); }

/* Products of values as large as f and V leave the range of the run's type; else the learning rate is the likely cause. */
static int say_not_finite(pt_ritz *ritz, const pt_ritz_step_info *s, pt_error *e)
{
    const bool wide = ritz->net.type == PT_F64;
    const double energy = isnan(s->energy) ? NAN : s->energy, largest = ritz_largest_value(ritz);
    const char *stay = ritz_has_checkpoint(ritz) ? "; checkpoints of earlier steps stay" : "";
    if (largest > (wide ? 1e100 : 1e15))
        return pt_fail(e, PT_FAILED, "the loss of step %lld is %g, for f or V reaches %.3g: scale the problem%s%s", (long long)s->step,
                       energy, largest, wide || device_is_gpu(ritz->device) ? "" : ", or give `dtype` fp64", stay);
    return pt_fail(e, PT_FAILED, "the loss of step %lld is %g: lower `lr`, which is %g%s", (long long)s->step, energy, s->lr, stay);
}

/* Over the first `penalty_ramp` steps it rises geometrically, from a thousandth. */
static double penalty_of(const pt_ritz *ritz, int64_t step)
{
    const double left = ritz->o.penalty_ramp ? 1 - (double)(step - 1) / (double)ritz->o.penalty_ramp : 0;
    return ritz->problem.is.penalty * (left > 0 ? pow(1e-3, left) : 1);
}

/* Keeps the energies of the last steps. */
static void follow_energy(pt_ritz *ritz, double energy)
{
    ritz->recent[ritz->recent_n++ % RITZ_RECENT] = energy;
}

enum { FEWER_POINTS = 8 }; /* before the end, sets are this many times smaller */

int ritz_evaluate(pt_ritz *ritz, pt_ritz_step_info *s, pt_error *e)
{
    const int64_t n = ritz->step == ritz->o.steps ? ritz->o.eval_n : (ritz->o.eval_n + FEWER_POINTS - 1) / FEWER_POINTS;
    pt_ritz_norms norms;
    int failed = 0;
    s->evaluated = ritz->problem.is.exact;
    if (s->evaluated)
        failed = pt_ritz_error_norms(ritz, &norms, e);
    if (!failed && s->evaluated) {
        s->l2_error = norms.l2;
        s->h1_error = norms.h1;
        s->h1_seminorm_error = norms.h1_seminorm;
        s->energy_norm_error = norms.energy;
    }
    if (failed || ritz->o.energy_sets < 2)
        return failed;
    s->estimated = true;
    failed = pt_ritz_estimate_energy(ritz, (int)ritz->o.energy_sets, n, &s->estimate, e);
    if (!failed && ritz->step == ritz->o.steps)
        ritz_judge(ritz, &s->estimate);
    return failed;
}

int pt_ritz_step(pt_ritz *ritz, pt_ritz_step_info *s, pt_error *e)
{
    int failed = ritz_check_call(ritz, "pt_ritz_step", true, e);
    if (failed || !s)
        return failed ? failed : pt_fail_null(e, "pt_ritz_step", "step");
    if (ritz->step >= ritz->o.steps)
        return 0;
    const double begin_s = clock_s();
    const uint64_t draw = ritz_draw_of(&ritz->o, ritz->step + 1);
    *s = (pt_ritz_step_info){.step = ritz->step + 1, .lr = ritz_lr(&ritz->o, ritz->step + 1)};
    ritz->penalty = penalty_of(ritz, ritz->step + 1);
    ritz->polished = 0;
    failed = ritz_integrate(ritz, draw, &s->energy, e);
    if (failed)
        return failed;
    if (!isfinite(s->energy))
        return say_not_finite(ritz, s, e);
    ritz->step++;
    submit_update(ritz, s->lr);
    failed = ritz_runner_sync(ritz->runner, e);
    s->step_s = clock_s() - begin_s;
    follow_energy(ritz, s->energy);
    if (!failed && is_due(ritz->step, ritz->o.eval_every, ritz->o.steps))
        failed = ritz_evaluate(ritz, s, e);
    if (!failed)
        failed = ritz_metrics_write(ritz, s, e);
    if (!failed && ritz->o.out && ritz->o.save_every && ritz->step % ritz->o.save_every == 0)
        failed = pt_ritz_save(ritz, e);
    return failed ? failed : 1;
}
