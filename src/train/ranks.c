#include "train/ranks.h"

#include "base/units.h"
#include "comm/join.h"
#include "comm/processors.h"
#include "device/arithmetic.h"
#include "model/lanes.h"
#include "train/options.h"
#include "train/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int ranks_open(trainer *trainer, pt_error *e)
{
    pt_train_options *o = &trainer->job.o;
    int failed = join_open(o->ranks, &trainer->comm, e);
    if (!failed)
        failed = ranks_choose_device(trainer, e);
    if (!failed && trainer->comm)
        failed = processors_share(trainer->comm, &trainer->ranks_here, e);
    if (failed || ranks_lead(trainer))
        return failed;
    o->notice = NULL;
    o->progress = NULL;
    return 0;
}

int ranks_agree(trainer *trainer, pt_error *e)
{
    if (!trainer->comm)
        return 0;
    char *own = settings_text(&trainer->job), *of_zero = NULL;
    size_t bytes = own ? strlen(own) + 1 : 0;
    int failed = own ? ranks_share(trainer, &bytes, sizeof bytes, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && !(of_zero = calloc(1, bytes)))
        failed = pt_fail(e, PT_FAILED, "out of memory");
    if (!failed && ranks_lead(trainer))
        memcpy(of_zero, own, bytes);
    if (!failed)
        failed = ranks_share(trainer, of_zero, bytes, e);
    if (!failed && !ranks_lead(trainer))
        failed = settings_agree(own, of_zero, e);
    free(own);
    free(of_zero);
    return failed ? failed : ranks_wait(trainer, e);
}

int ranks_agree_on_arithmetic(const trainer *trainer, pt_error *e)
{
    const device *d = trainer->planning.device;
    char of_zero[sizeof d->info.arithmetic] = "";
    if (!trainer->comm)
        return 0;
    if (ranks_lead(trainer))
        memcpy(of_zero, d->info.arithmetic, sizeof of_zero);
    int failed = ranks_share(trainer, of_zero, sizeof of_zero, e);
    of_zero[sizeof of_zero - 1] = 0;
    if (!failed && !device_is_gpu(d) && !arithmetic_same(d->info.arithmetic, of_zero))
        failed = pt_fail(e, PT_USAGE,
                         "rank %d computes by \"%s\" and rank 0 by \"%s\", which give different bits: set PROTRAIN_ISA for all ranks, to "
                         "v3 on x86-64 and to neon on ARM64",
                         trainer->comm->rank, d->info.arithmetic, of_zero);
    return failed ? failed : ranks_wait(trainer, e);
}

int ranks_cut(trainer *trainer, pt_error *e)
{
    const comm *c = trainer->comm;
    return step_shape_of_rank(&trainer->own_shape, &trainer->job.shape, c ? c->ranks : 1, c ? c->rank : 0, e);
}

int ranks_share(const trainer *trainer, void *data, size_t bytes, pt_error *e)
{
    return trainer->comm ? comm_broadcast(trainer->comm, 0, data, bytes, e) : 0;
}

int ranks_wait(const trainer *trainer, pt_error *e) { return trainer->comm ? comm_barrier(trainer->comm, e) : 0; }

int ranks_add(const trainer *trainer, int64_t *n, pt_error *e)
{
    int64_t all[COMM_RANKS_MOST];
    if (!trainer->comm)
        return 0;
    int failed = comm_all_gather(trainer->comm, n, sizeof *n, all, e);
    *n = 0;
    for (int r = 0; r < trainer->comm->ranks && !failed; r++)
        *n += all[r];
    return failed;
}

int ranks_tree(const trainer *trainer, double *sum, pt_error *e)
{
    double all[COMM_RANKS_MOST];
    if (!trainer->comm)
        return 0;
    int failed = comm_all_gather(trainer->comm, sum, sizeof *sum, all, e);
    *sum = failed ? 0 : lane_tree(trainer->comm->ranks, all);
    return failed;
}

int ranks_any(const trainer *trainer, bool *yes, pt_error *e)
{
    int64_t n = *yes;
    int failed = ranks_add(trainer, &n, e);
    *yes = n > 0;
    return failed;
}

int ranks_all(const trainer *trainer, int failed, pt_error *e) { return trainer->comm ? comm_agree(trainer->comm, failed, e) : failed; }

int ranks_compare_loaded(const trainer *trainer, const state *loaded, const char *path, pt_error *e)
{
    const uint64_t own = loaded->read_sum + loaded->origin_sum;
    uint64_t of_zero = own;
    int failed = ranks_share(trainer, &of_zero, sizeof of_zero, e);
    if (failed)
        return failed;
    if (own != of_zero)
        failed = pt_fail(e, PT_FAILED, "%.600s has other weights than on rank 0: give all ranks the same files", path);
    return ranks_all(trainer, failed, e);
}

int ranks_collect_accounts(trainer *trainer, pt_error *e)
{
    const step_times s = measured_times(&trainer->engine.measured, trainer_plan(trainer)->update);
    rank_account own = {.process_peak = machine_process_peak(), .compute_s = s.runs ? s.busy_ns[QUEUE_COMPUTE] * 1e-9 : NAN};
    for (int k = 0; k < TIERS; k++)
        own.peak[k] = executor_peak_bytes(trainer->engine.x, (tier)k);
    (void)!gethostname(own.host, sizeof own.host - 1);
    snprintf(own.device, sizeof own.device, "%s", trainer->job.o.device);
    return trainer->comm ? comm_all_gather(trainer->comm, &own, sizeof own, trainer->accounts, e) : 0;
}

int ranks_fail(const trainer *trainer, int failed, const pt_error *e)
{
    if (failed && trainer->comm)
        comm_abort(trainer->comm, e && e->code ? e : &(pt_error){.code = PT_FAILED, .text = "failed"});
    return failed;
}

/* ---- unequal memory ---- */

typedef struct room_of_rank { uint64_t budget[TIERS]; char host[64]; } room_of_rank;

/* Only rank 0 gives notices; errors of planning are rank 0's, too. */
static int own_room(const trainer *trainer, room_of_rank *out, pt_error *e)
{
    planning own = trainer->planning;
    pt_train_options silent = trainer->job.o;
    silent.notice = NULL;
    own.o = &silent;
    (void)!gethostname(out->host, sizeof out->host - 1);
    int failed = planning_budgets(&own, ranks_lead(trainer) ? NULL : e);
    for (int k = 0; k < TIERS; k++)
        out->budget[k] = failed ? UINT64_MAX : own.budget[k];
    return ranks_lead(trainer) ? 0 : failed;
}

/* Free memory varies, so small differences are not reported. */
static void tell_least(const trainer *trainer, const room_of_rank *all, int least, int tier)
{
    char a[32], b[32];
    if (!least || all[0].budget[tier] == UINT64_MAX || (double)all[least].budget[tier] > 0.9 * (double)all[0].budget[tier])
        return;
    options_notice(&trainer->job.o, "rank %d on %s may use %s of %s memory, and rank 0 %s: the plan is made for the least", least,
                   all[least].host,
                   size_format(a, all[least].budget[tier]), tier_names[tier], size_format(b, all[0].budget[tier]));
}

/* Rank 0 predicts a step of several ranks, which share the machine's caches, memory bandwidth and clock rate. So all of them measure at
 * the same time, and what the others find is not used. */
void ranks_measure_too(const trainer *trainer)
{
    planning own = trainer->planning;
    pt_train_options silent = trainer->job.o;
    silent.notice = NULL;
    silent.progress = NULL;
    own.o = &silent;
    (void)!planning_measure(&own, NULL);
    search_result_free(&own.result);
}

int ranks_limit(trainer *trainer, pt_error *e)
{
    room_of_rank own = {0}, all[COMM_RANKS_MOST];
    if (!trainer->comm)
        return 0;
    int failed = own_room(trainer, &own, e);
    if (!failed)
        failed = comm_all_gather(trainer->comm, &own, sizeof own, all, e);
    for (int k = 0; k < TIERS && !failed && ranks_lead(trainer); k++) {
        int least = 0;
        for (int r = 1; r < trainer->comm->ranks; r++)
            least = all[r].budget[k] < all[least].budget[k] ? r : least;
        trainer->planning.limit[k] = all[least].budget[k];
        tell_least(trainer, all, least, k);
    }
    trainer->planning.limited = !failed && ranks_lead(trainer);
    return failed;
}

/* ---- the plan ---- */

typedef struct shared_plan { costs costs; uint64_t budget[TIERS]; bool host_tier; size_t bytes; } shared_plan;

static int read_plan(planning *planning, const shared_plan *s, const char *json, priced_plan *best, pt_error *e)
{
    int failed = plan_from_json("the plan of rank 0", json, s->bytes, &best->plan, e);
    if (!failed)
        failed = pack(planning->model, planning->shape, best->plan.chunk_bytes, &best->packing, e);
    if (!failed)
        failed = plan_validate(&best->plan, planning->model, planning->shape, &best->packing, planning->o->max_grad_norm > 0, e);
    memcpy(planning->budget, s->budget, sizeof planning->budget);
    planning->host_tier = s->host_tier;
    planning->profile.costs = s->costs;
    return failed;
}

static int share_plan(trainer *trainer, priced_plan *best, pt_error *e)
{
    planning *planning = &trainer->planning;
    shared_plan s = {0};
    char *json = NULL;
    if (ranks_lead(trainer)) {
        s.costs = planning->profile.costs;
        s.host_tier = planning->host_tier;
        memcpy(s.budget, planning->budget, sizeof s.budget);
        json = plan_to_json(&best->plan, trainer->job.model, planning->shape);
        s.bytes = json ? strlen(json) : 0;
    }
    int failed = ranks_share(trainer, &s, sizeof s, e);
    if (!failed && !ranks_lead(trainer))
        json = malloc(s.bytes + 1);
    if (!failed && !json)
        failed = pt_fail(e, PT_FAILED, "out of memory for a plan");
    if (!failed)
        failed = ranks_share(trainer, json, s.bytes, e);
    if (!failed && !ranks_lead(trainer))
        failed = read_plan(planning, &s, json, best, e);
    free(json);
    return failed;
}

/* Only rank 0 searches, but all ranks need to know which schedules the plan has. */
int ranks_take_plan(trainer *trainer, pt_error *e)
{
    planning *planning = &trainer->planning;
    if (!trainer->comm)
        return 0;
    const int failed = ranks_lead(trainer) ? 0 : planning_begin_search(planning, e);
    return failed ? failed : share_plan(trainer, &planning->result.best, e);
}

int ranks_take_next(trainer *trainer, search_result *next, pt_error *e) { return trainer->comm ? share_plan(trainer, &next->best, e) : 0; }

/* ---- measured times ---- */

/* The rank that comes last to an exchange does not wait for others, so that its time is that of the exchange. */
static double slowest(const work_times *all, int ranks, int kind)
{
    const bool exchange = kind == WORK_GATHER || kind == WORK_SCATTER;
    double found = NAN;
    for (int r = 0; r < ranks; r++) {
        const double ns = all[r].runs ? all[r].ns[kind] / all[r].runs : NAN;
        found = exchange ? fmin(found, ns) : fmax(found, ns);
    }
    return isnan(found) ? 0 : found;
}

int ranks_slowest_work(trainer *trainer, pt_error *e)
{
    work_times *all = trainer->comm ? malloc((size_t)trainer->comm->ranks * sizeof *all) : NULL;
    int failed = trainer->comm && !all ? pt_fail(e, PT_FAILED, "out of memory") : 0;
    for (int kind = 0; all && kind < SCHEDULE_KINDS && !failed; kind++) {
        work_times *own = &trainer->engine.measured.work[kind];
        failed = comm_all_gather(trainer->comm, own, sizeof *own, all, e);
        for (int i = 0; i < WORK_KINDS && !failed; i++)
            own->ns[i] = slowest(all, trainer->comm->ranks, i) * own->runs;
    }
    free(all);
    return failed;
}
