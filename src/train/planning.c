#include "train/planning.h"

#include "base/units.h"
#include "machine/machine.h"
#include "measure/profile_get.h"
#include "predict/analytic.h"
#include "train/misfit.h"
#include "train/options.h"

#include <string.h>

/* ---- costs ---- */

static bool uses_disk(const plan *p)
{
    bool uses = false;
    for (int i = 0; i < p->chunks_n; i++)
        uses = uses || p->chunks[i].placement == TIER_DISK;
    for (int i = 0; i < p->blocks_n; i++)
        uses = uses || p->blocks[i].place == TIER_DISK;
    return uses;
}

static bool moves_anything(const plan *p)
{
    for (int i = 0; i < p->chunks_n; i++)
        if (p->chunks[i].placement != TIER_DEVICE || p->chunks[i].update != TIER_DEVICE)
            return true;
    for (int i = 0; i < p->blocks_n; i++)
        if (p->blocks[i].place != TIER_DEVICE)
            return true;
    return false;
}

/* May something have to move, and to the disk? Only then are transfers measured. A plan from a file says so itself. Otherwise the disk is
 * used only if the most economical plan needs it. With a host tier something may always move, and transfers that were not measured would
 * seem free. */
static void needs_transfers(const planning *p, bool *needs, bool *disk)
{
    *disk = p->o->plan_file ? uses_disk(&p->result.best.plan) : p->result.least[TIER_DISK] > 0;
    *needs = p->o->plan_file ? moves_anything(&p->result.best.plan) : *disk || p->host_tier;
}

static int measure(planning *p, bool transfers, bool disk, pt_error *e)
{
    const pt_train_options *o = p->o;
    char time[32];
    p->request = (profile_request){.device = p->device, .host = p->host, .threads = o->threads, .ranks = p->runs ? p->ranks : 1,
                                   .model = p->model, .shape = p->shape, .host_tier = p->host_tier, .transfers = transfers,
                                   .disk_path = p->disk_path, .file = o->profile_file, .progress = o->progress, .notice = o->notice,
                                   .arg = o->arg};
    memcpy(p->request.budget, p->budget, sizeof p->request.budget);
    p->request.budget[TIER_DISK] = disk ? p->budget[TIER_DISK] : 0;
    int failed = profile_get(&p->request, &p->profile, e);
    for (int t = 0; t < TIERS && failed == PT_DOES_NOT_FIT; t++) /* measuring may need more than the most economical plan */
        if (p->profile.needs[t] > p->result.least[t])
            p->result.least[t] = p->profile.needs[t];
    if (failed == PT_DOES_NOT_FIT)
        search_write_options(&p->search, p->result.least, p->change, sizeof p->change);
    if (failed)
        return failed;
    p->profiled = true;
    if (o->profile_file)
        snprintf(p->source, sizeof p->source, "step times predicted from %s", o->profile_file);
    else
        snprintf(p->source, sizeof p->source, p->profile.cached ? "measured earlier, checked in %s" : "measured in %s",
                 seconds_format(time, p->profile.seconds));
    return 0;
}

/* Memory of the most economical plan: p->result.least. */
static int find_least(planning *p, pt_error *e)
{
    search_result r = {0};
    search_input in = p->search;
    in.only_fits = in.unproven = true;
    int failed = search_plan(&in, &r, e);
    memcpy(p->result.least, r.least, sizeof r.least);
    search_result_free(&r);
    return failed;
}

int planning_measure_disk(planning *p, pt_error *e)
{
    costs *c = &p->profile.costs;
    profile_request r = p->request;
    profile_result fresh;
    if (!p->profiled || c->read.n || !p->budget[TIER_DISK])
        return 0;
    p->search.budget[TIER_DISK] = p->budget[TIER_DISK];
    int failed = find_least(p, e);
    if (!failed && !p->result.least[TIER_DISK])
        p->search.budget[TIER_DISK] = 0;
    if (failed || !p->result.least[TIER_DISK])
        return failed;
    r.transfers = true;
    r.file = NULL; /* it has no disk */
    memcpy(r.budget, p->budget, sizeof r.budget);
    failed = profile_get(&r, &fresh, e);
    if (failed)
        return failed;
    c->read = fresh.costs.read;
    c->write = fresh.costs.write;
    c->wake_latency = fresh.costs.wake_latency;
    memcpy(c->slow, fresh.costs.slow, sizeof c->slow);
    memcpy(c->slow_more, fresh.costs.slow_more, sizeof c->slow_more);
    memcpy(c->slow_ns, fresh.costs.slow_ns, sizeof c->slow_ns);
    c->quota = fresh.costs.quota;
    return 0;
}

static int find_costs(planning *p, pt_error *e)
{
    bool transfers, disk;
    needs_transfers(p, &transfers, &disk);
    if (p->from_file && !p->o->profile_file) {
        snprintf(p->source, sizeof p->source, "computed from the machine file, not measured");
        return costs_analytic(&p->machine, p->model, p->shape, &p->profile.costs, e);
    }
    int failed = measure(p, transfers, disk, e);
    if (!failed && !p->profile.costs.read.n) /* disk transfers that were not measured would seem free */
        p->search.budget[TIER_DISK] = 0;
    return failed;
}

/* ---- the plan ---- */

static int read_plan(planning *p, pt_error *e)
{
    const char *path = p->o->plan_file;
    priced_plan *c = &p->result.best;
    int failed = plan_read(path, &c->plan, e);
    if (!failed)
        failed = pack(p->model, p->shape, c->plan.chunk_bytes, &c->packing, e);
    if (!failed && (failed = plan_validate(&c->plan, p->model, p->shape, &c->packing, p->o->max_grad_norm > 0, e)))
        pt_error_prefix(e, "%s", path);
    if (!failed && p->search.micro_batch && p->search.micro_batch != c->plan.micro_batch)
        failed = pt_fail(e, PT_USAGE, "`micro_batch` is %lld, but \"micro_batch\" is %lld in %s: leave the option out",
                         (long long)p->o->micro_batch, (long long)c->plan.micro_batch, path);
    snprintf(c->name, sizeof c->name, "given");
    return failed;
}

/* Checks whether a plan from a file fits, which needs no measurement. */
static int check_plan(planning *p, pt_error *e)
{
    const priced_plan *c = &p->result.best;
    const schedule_input in = search_schedules(&p->search, &c->packing, &c->plan);
    bool fits = true;
    int failed = schedule_plan_bytes(&in, search_kinds(&p->search, c->plan.update), p->result.least, e);
    if (failed) { /* not even with unlimited memory: too few buffers */
        pt_error_prefix(e, "%s", p->o->plan_file);
        return failed;
    }
    for (int t = 0; t < TIERS; t++)
        fits = fits && p->result.least[t] <= p->search.budget[t];
    return fits ? 0 : misfit_of_plan(p, p->result.least, e);
}

static int price_plan(planning *p, pt_error *e)
{
    int fits = search_price(&p->search, &p->result.best, e);
    if (fits < 0)
        pt_error_prefix(e, "%s", p->o->plan_file);
    if (fits)
        return fits > 0 ? 0 : fits;
    int failed = check_plan(p, e);
    return failed ? failed : pt_fail(e, PT_DOES_NOT_FIT, "%s does not fit", p->o->plan_file);
}

#define PART_FOR_WAYS 0.25 /* training so may be planned faster than is said, never slower */

int planning_search(const planning *p, search_result *out, pt_error *e) { return search_plan(&p->search, out, e); }

/* ---- the steps of planning ---- */

/* Sets the inputs of the search first, so that they are valid even if a later step finds that nothing fits. */
int planning_begin_search(planning *p, pt_error *e)
{
    const pt_train_options *o = p->o;
    const bool drains = o->save_every == 1 || (p->evaluates && o->eval_every == 1) || shape_has_baseline(p->shape); /* the updates run
                                                                                                                     * before these */
    p->search = (search_input){.model = p->model, .shape = p->shape, .costs = &p->profile.costs, .training = true,
                               .clipping = o->max_grad_norm > 0, .evaluates = p->evaluates, .drains = drains,
                               .effort = o->search_effort, .part = p->of_way ? PART_FOR_WAYS : 0,
                               .threads = machine_threads(o->threads),
                               .threads_bytes = p->device ? p->device->info.threads_bytes : 0};
    costs_init(&p->profile.costs); /* nothing is known yet */
    p->profile.costs.kinds_n = 1;
    return 0;
}

static int find_budgets(planning *p, pt_error *e)
{
    int failed = planning_budgets(p, e);
    memcpy(p->search.budget, p->budget, sizeof p->search.budget);
    p->search.host_tier = p->host_tier;
    return failed;
}

static int cut_units(planning *p, pt_error *e)
{
    if (p->from_file ? p->machine.cuda : device_is_gpu(p->device))
        step_shape_for_gpu(p->shape, p->model);
    return 0;
}

/* The value of --micro-batch, raised to a multiple of the unit. */
static int choose_micro_batch(planning *p, pt_error *e)
{
    const pt_train_options *o = p->o;
    const int64_t batch = p->shape->batch;
    int64_t n = o->micro_batch;
    if (n && batch % n)
        return shape_ranks(p->shape) > 1
                   ? pt_fail(e, PT_USAGE, "`micro_batch` %lld does not divide %lld, each rank's part of `batch_size` %lld: give a divisor, "
                             "or leave it out", (long long)n, (long long)batch, (long long)batch * shape_ranks(p->shape))
                   : pt_fail(e, PT_USAGE, "`micro_batch` %lld does not divide `batch_size` %lld: give a divisor, or leave it out",
                             (long long)n, (long long)batch);
    while (n < batch && !search_can_cut(p->shape, n))
        n++;
    if (n != o->micro_batch)
        options_notice(o, "`micro_batch` is raised from %lld to %lld: at least %lld sequences are computed together",
                       (long long)o->micro_batch, (long long)n, (long long)p->shape->unit_seqs);
    p->search.micro_batch = n;
    return 0;
}

/* Before measuring: does any plan fit at all, or does the given one? */
static int check_fit(planning *p, pt_error *e)
{
    if (!p->o->plan_file) {
        int failed = find_least(p, e);
        return failed == PT_DOES_NOT_FIT && e ? misfit_explain(p, e) : failed;
    }
    int failed = read_plan(p, e);
    return failed ? failed : check_plan(p, e);
}

/* For contention, gathers and scatters count as copies; if those were not measured, there are none. */
static int add_exchange(planning *p, pt_error *e)
{
    costs *c = &p->profile.costs;
    if (!p->exchange.curve.n)
        return 0;
    c->gather = c->scatter = p->exchange.curve;
    for (cost_class copy = COST_TO_DEVICE; copy <= COST_FROM_DEVICE && !c->to_device.n; copy++)
        for (cost_class work = COST_MATH; work <= COST_MEMORY; work++) {
            c->slow[copy][work] = p->exchange.slowed;
            c->slow[work][copy] = p->exchange.slows;
        }
    return 0;
}

static int find_plan(planning *p, pt_error *e) { return p->o->plan_file ? price_plan(p, e) : planning_search(p, &p->result, e); }

typedef int (*planning_step)(planning *p, pt_error *e);

static int take_steps(planning *p, const planning_step *steps, size_t n, pt_error *e)
{
    int failed = 0;
    for (size_t i = 0; i < n && !failed; i++)
        failed = steps[i](p, e);
    return failed;
}

int planning_prepare(planning *p, pt_error *e)
{
    static const planning_step steps[] = {planning_find_machine, planning_begin_search, find_budgets, cut_units, choose_micro_batch};
    return take_steps(p, steps, sizeof steps / sizeof *steps, e);
}

int planning_measure(planning *p, pt_error *e)
{
    static const planning_step steps[] = {planning_prepare, check_fit, find_costs, add_exchange};
    return take_steps(p, steps, sizeof steps / sizeof *steps, e);
}

int planning_make(planning *p, pt_error *e)
{
    int failed = planning_measure(p, e);
    return failed ? failed : find_plan(p, e);
}

int planning_fits(planning *p, pt_error *e)
{
    uint64_t least[TIERS];
    memcpy(least, p->result.least, sizeof least);
    int failed = find_least(p, e);
    if (failed == PT_DOES_NOT_FIT && e)
        return misfit_explain(p, e);
    memcpy(p->result.least, least, sizeof least);
    return failed;
}

void planning_close(planning *p)
{
    search_result_free(&p->result);
    device_close(p->device, p->host);
}

explain_input planning_explain(const planning *p, int64_t steps, bool helps)
{
    const double devices = search_ranks(&p->search);
    return (explain_input){.search = &p->search, .budget = p->budget, .best = &p->result.best, .others = p->result.others,
                           .watts = p->machine.watts * devices, .price_per_hour = p->machine.price_per_hour * devices,
                           .others_n = p->result.others_n, .tried = p->result.tried,
                           .machine = p->name, .source = p->source, .room = p->room, .steps = steps, .helps = helps};
}
