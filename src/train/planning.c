#include "train/planning.h"

#include "base/units.h"
#include "machine/machine.h"
#include "measure/profile_get.h"
#include "predict/analytic.h"
#include "train/misfit.h"
#include "train/options.h"

#include <string.h>

/* ---- costs ---- */

static bool uses_disk(const plan *plan)
{
    bool uses = false;
    for (int i = 0; i < plan->chunks_n; i++)
        uses = uses || plan->chunks[i].placement == TIER_DISK;
    for (int i = 0; i < plan->blocks_n; i++)
        uses = uses || plan->blocks[i].place == TIER_DISK;
    return uses;
}

static bool moves_anything(const plan *plan)
{
    for (int i = 0; i < plan->chunks_n; i++)
        if (plan->chunks[i].placement != TIER_DEVICE || plan->chunks[i].update != TIER_DEVICE)
            return true;
    for (int i = 0; i < plan->blocks_n; i++)
        if (plan->blocks[i].place != TIER_DEVICE)
            return true;
    return false;
}

/* May something have to move, and to the disk? Only then are transfers measured. A plan from a file says so itself. Otherwise the disk is
 * used only if the most economical plan needs it. With a host tier something may always move, and transfers that were not measured would
 * seem free. */
static void needs_transfers(const planning *planning, bool *needs, bool *disk)
{
    *disk = planning->o->plan_file ? uses_disk(&planning->result.best.plan) : planning->result.least[TIER_DISK] > 0;
    *needs = planning->o->plan_file ? moves_anything(&planning->result.best.plan) : *disk || planning->host_tier;
}

static int measure(planning *planning, bool transfers, bool disk, pt_error *e)
{
    const pt_train_options *o = planning->o;
    char time[32];
    planning->request = (profile_request){.device = planning->device,
                                          .host = planning->host,
                                          .threads = o->threads,
                                          .ranks = planning->runs ? planning->ranks : 1,
                                          .model = planning->model,
                                          .shape = planning->shape,
                                          .host_tier = planning->host_tier,
                                          .transfers = transfers,
                                          .disk_path = planning->disk_path,
                                          .file = o->profile_file,
                                          .progress = o->progress,
                                          .notice = o->notice,
                                          .arg = o->arg};
    memcpy(planning->request.budget, planning->budget, sizeof planning->request.budget);
    planning->request.budget[TIER_DISK] = disk ? planning->budget[TIER_DISK] : 0;
    int failed = profile_get(&planning->request, &planning->profile, e);
    for (int t = 0; t < TIERS && failed == PT_DOES_NOT_FIT; t++) /* measuring may need more than the most economical plan */
        if (planning->profile.needs[t] > planning->result.least[t])
            planning->result.least[t] = planning->profile.needs[t];
    if (failed == PT_DOES_NOT_FIT)
        search_write_options(&planning->search, planning->result.least, planning->change, sizeof planning->change);
    if (failed)
        return failed;
    planning->profiled = true;
    if (o->profile_file)
        snprintf(planning->source, sizeof planning->source, "step times predicted from %s", o->profile_file);
    else
        snprintf(planning->source, sizeof planning->source, planning->profile.cached ? "measured earlier, checked in %s" : "measured in %s",
                 seconds_format(time, planning->profile.seconds));
    return 0;
}

/* Memory of the most economical plan: planning->result.least. */
static int find_least(planning *planning, pt_error *e)
{
    search_result r = {0};
    search_input in = planning->search;
    in.only_fits = in.unproven = true;
    int failed = search_plan(&in, &r, e);
    memcpy(planning->result.least, r.least, sizeof r.least);
    search_result_free(&r);
    return failed;
}

int planning_measure_disk(planning *planning, pt_error *e)
{
    costs *costs = &planning->profile.costs;
    profile_request req = planning->request;
    profile_result fresh;
    if (!planning->profiled || costs->read.n || !planning->budget[TIER_DISK])
        return 0;
    planning->search.budget[TIER_DISK] = planning->budget[TIER_DISK];
    int failed = find_least(planning, e);
    if (!failed && !planning->result.least[TIER_DISK])
        planning->search.budget[TIER_DISK] = 0;
    if (failed || !planning->result.least[TIER_DISK])
        return failed;
    req.transfers = true;
    req.file = NULL; /* it has no disk */
    memcpy(req.budget, planning->budget, sizeof req.budget);
    failed = profile_get(&req, &fresh, e);
    if (failed)
        return failed;
    costs->read = fresh.costs.read;
    costs->write = fresh.costs.write;
    costs->wake_latency = fresh.costs.wake_latency;
    memcpy(costs->slow, fresh.costs.slow, sizeof costs->slow);
    memcpy(costs->slow_more, fresh.costs.slow_more, sizeof costs->slow_more);
    memcpy(costs->slow_ns, fresh.costs.slow_ns, sizeof costs->slow_ns);
    costs->quota = fresh.costs.quota;
    return 0;
}

static int find_costs(planning *planning, pt_error *e)
{
    bool transfers, disk;
    needs_transfers(planning, &transfers, &disk);
    if (planning->from_file && !planning->o->profile_file) {
        snprintf(planning->source, sizeof planning->source, "computed from the machine file, not measured");
        return costs_analytic(&planning->machine, planning->model, planning->shape, &planning->profile.costs, e);
    }
    int failed = measure(planning, transfers, disk, e);
    if (!failed && !planning->profile.costs.read.n) /* disk transfers that were not measured would seem free */
        planning->search.budget[TIER_DISK] = 0;
    return failed;
}

/* ---- the plan ---- */

static int read_plan(planning *planning, pt_error *e)
{
    const char *path = planning->o->plan_file;
    priced_plan *c = &planning->result.best;
    int failed = plan_read(path, &c->plan, e);
    if (!failed)
        failed = pack(planning->model, planning->shape, c->plan.chunk_bytes, &c->packing, e);
    if (!failed && (failed = plan_validate(&c->plan, planning->model, planning->shape, &c->packing, planning->o->max_grad_norm > 0, e)))
        pt_error_prefix(e, "%s", path);
    if (!failed && planning->search.micro_batch && planning->search.micro_batch != c->plan.micro_batch)
        failed = pt_fail(e, PT_USAGE, "`micro_batch` is %lld, but \"micro_batch\" is %lld in %s: leave the option out",
                         (long long)planning->o->micro_batch, (long long)c->plan.micro_batch, path);
    snprintf(c->name, sizeof c->name, "given");
    return failed;
}

/* Checks whether a plan from a file fits, which needs no measurement. */
static int check_plan(planning *planning, pt_error *e)
{
    const priced_plan *c = &planning->result.best;
    const schedule_input in = search_schedules(&planning->search, &c->packing, &c->plan);
    bool fits = true;
    int failed = schedule_plan_bytes(&in, search_kinds(&planning->search, c->plan.update), planning->result.least, e);
    if (failed) { /* not even with unlimited memory: too few buffers */
        pt_error_prefix(e, "%s", planning->o->plan_file);
        return failed;
    }
    for (int t = 0; t < TIERS; t++)
        fits = fits && planning->result.least[t] <= planning->search.budget[t];
    return fits ? 0 : misfit_of_plan(planning, planning->result.least, e);
}

static int price_plan(planning *planning, pt_error *e)
{
    int fits = search_price(&planning->search, &planning->result.best, e);
    if (fits < 0)
        pt_error_prefix(e, "%s", planning->o->plan_file);
    if (fits)
        return fits > 0 ? 0 : fits;
    int failed = check_plan(planning, e);
    return failed ? failed : pt_fail(e, PT_DOES_NOT_FIT, "%s does not fit", planning->o->plan_file);
}

#define PART_FOR_WAYS 0.25 /* training so may be planned faster than is said, never slower */

int planning_search(const planning *planning, search_result *out, pt_error *e) { return search_plan(&planning->search, out, e); }

/* ---- the steps of planning ---- */

/* Sets the inputs of the search first, so that they are valid even if a later step finds that nothing fits. */
int planning_begin_search(planning *planning, pt_error *e)
{
    const pt_train_options *o = planning->o;
    const bool drains =
        o->save_every == 1 || (planning->evaluates && o->eval_every == 1) || shape_has_baseline(planning->shape); /* the updates run
                                                                                                                   * before these */
    planning->search = (search_input){.model = planning->model,
                                      .shape = planning->shape,
                                      .costs = &planning->profile.costs,
                                      .training = true,
                                      .clipping = o->max_grad_norm > 0,
                                      .evaluates = planning->evaluates,
                                      .drains = drains,
                                      .effort = o->search_effort,
                                      .part = planning->of_way ? PART_FOR_WAYS : 0,
                                      .threads = machine_threads(o->threads),
                                      .threads_bytes = planning->device ? planning->device->info.threads_bytes : 0};
    costs_init(&planning->profile.costs); /* nothing is known yet */
    planning->profile.costs.kinds_n = 1;
    return 0;
}

static int find_budgets(planning *planning, pt_error *e)
{
    int failed = planning_budgets(planning, e);
    memcpy(planning->search.budget, planning->budget, sizeof planning->search.budget);
    planning->search.host_tier = planning->host_tier;
    return failed;
}

static int cut_units(planning *planning, pt_error *e)
{
    if (planning->from_file ? planning->machine.cuda : device_is_gpu(planning->device))
        step_shape_for_gpu(planning->shape, planning->model);
    return 0;
}

/* The value of --micro-batch, raised to a multiple of the unit. */
static int choose_micro_batch(planning *planning, pt_error *e)
{
    const pt_train_options *o = planning->o;
    const int64_t together = shape_together(planning->shape), batch = planning->shape->batch / together;
    int64_t n = o->micro_batch;
    if (n && batch % n)
        return shape_ranks(planning->shape) > 1
                   ? pt_fail(e, PT_USAGE, "`micro_batch` %lld does not divide %lld, each rank's part of `batch_size` %lld: give a divisor, "
                             "or leave it out", (long long)n, (long long)batch, (long long)shape_sequences(planning->shape))
                   : pt_fail(e, PT_USAGE, "`micro_batch` %lld does not divide `batch_size` %lld: give a divisor, or leave it out",
                             (long long)n, (long long)batch);
    while (n < batch && !search_can_cut(planning->shape, n * together))
        n++;
    if (n != o->micro_batch)
        options_notice(o, "`micro_batch` is raised from %lld to %lld: at least %lld sequences are computed together",
                       (long long)o->micro_batch, (long long)n, (long long)planning->shape->unit_seqs);
    planning->search.micro_batch = n * together;
    return 0;
}

/* Before measuring: does any plan fit at all, or does the given one? */
static int check_fit(planning *planning, pt_error *e)
{
    if (!planning->o->plan_file) {
        int failed = find_least(planning, e);
        return failed == PT_DOES_NOT_FIT && e ? misfit_explain(planning, e) : failed;
    }
    int failed = read_plan(planning, e);
    return failed ? failed : check_plan(planning, e);
}

/* For contention, gathers and scatters count as copies; if those were not measured, there are none. */
static int add_exchange(planning *planning, pt_error *e)
{
    costs *costs = &planning->profile.costs;
    if (!planning->exchange.curve.n)
        return 0;
    costs->gather = costs->scatter = planning->exchange.curve;
    for (cost_class copy = COST_TO_DEVICE; copy <= COST_FROM_DEVICE && !costs->to_device.n; copy++)
        for (cost_class work = COST_MATH; work <= COST_MEMORY; work++) {
            costs->slow[copy][work] = planning->exchange.slowed;
            costs->slow[work][copy] = planning->exchange.slows;
        }
    return 0;
}

static int find_plan(planning *planning, pt_error *e)
{
    return planning->o->plan_file ? price_plan(planning, e) : planning_search(planning, &planning->result, e);
}

typedef int (*planning_step)(planning *p, pt_error *e);

static int take_steps(planning *planning, const planning_step *steps, size_t n, pt_error *e)
{
    int failed = 0;
    for (size_t i = 0; i < n && !failed; i++)
        failed = steps[i](planning, e);
    return failed;
}

int planning_prepare(planning *planning, pt_error *e)
{
    static const planning_step steps[] = {planning_find_machine, planning_begin_search, find_budgets, cut_units, choose_micro_batch};
    return take_steps(planning, steps, sizeof steps / sizeof *steps, e);
}

int planning_measure(planning *planning, pt_error *e)
{
    static const planning_step steps[] = {planning_prepare, check_fit, find_costs, add_exchange};
    return take_steps(planning, steps, sizeof steps / sizeof *steps, e);
}

int planning_make(planning *planning, pt_error *e)
{
    int failed = planning_measure(planning, e);
    return failed ? failed : find_plan(planning, e);
}

int planning_fits(planning *planning, pt_error *e)
{
    uint64_t least[TIERS];
    memcpy(least, planning->result.least, sizeof least);
    int failed = find_least(planning, e);
    if (failed == PT_DOES_NOT_FIT && e)
        return misfit_explain(planning, e);
    memcpy(planning->result.least, least, sizeof least);
    return failed;
}

void planning_close(planning *planning)
{
    search_result_free(&planning->result);
    device_close(planning->device, planning->host);
}

explain_input planning_explain(const planning *planning, int64_t steps, bool helps)
{
    const double devices = search_ranks(&planning->search);
    return (explain_input){.search = &planning->search,
                           .budget = planning->budget,
                           .best = &planning->result.best,
                           .others = planning->result.others,
                           .watts = planning->machine.watts * devices,
                           .price_per_hour = planning->machine.price_per_hour * devices,
                           .others_n = planning->result.others_n,
                           .tried = planning->result.tried,
                           .machine = planning->name,
                           .source = planning->source,
                           .room = planning->room,
                           .steps = steps,
                           .helps = helps};
}
