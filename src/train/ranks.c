#include "train/ranks.h"

#include "base/clock.h"
#include "comm/join.h"
#include "model/lanes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What ranks do not share yet. */
static int refuse_options(const pt_train_options *o, pt_error *e)
{
    return o->sample_n ? pt_fail(e, PT_USAGE, "several ranks and --sample do not go together yet: leave one of them out") : 0;
}

int ranks_open(trainer *t, pt_error *e)
{
    pt_train_options *o = &t->job.o;
    int failed = join_open(o->ranks, &t->comm, e);
    if (!failed && t->comm)
        failed = refuse_options(o, e);
    if (!failed && t->comm && strcmp(o->device, "auto") && strcmp(o->device, "cpu"))
        failed = pt_fail(e, PT_USAGE, "--ranks %d and --device %s: several ranks compute on the CPU so far; leave one of the options out",
                         o->ranks,
                         o->device);
    if (!failed && t->comm)
        o->device = "cpu";
    if (failed || ranks_lead(t))
        return failed;
    o->notice = NULL;
    o->progress = NULL;
    return 0;
}

int ranks_cut(trainer *t, pt_error *e)
{
    return t->comm ? step_shape_of_rank(&t->own_shape, &t->job.shape, t->comm->ranks, t->comm->rank, e) : 0;
}

int ranks_share(const trainer *t, void *data, size_t bytes, pt_error *e) { return t->comm ? comm_broadcast(t->comm, 0, data, bytes,
    e) : 0; }

int ranks_wait(const trainer *t, pt_error *e) { return t->comm ? comm_barrier(t->comm, e) : 0; }

int ranks_add(const trainer *t, int64_t *n, pt_error *e)
{
    int64_t all[COMM_RANKS_MOST];
    if (!t->comm)
        return 0;
    int failed = comm_all_gather(t->comm, n, sizeof *n, all, e);
    *n = 0;
    for (int r = 0; r < t->comm->ranks && !failed; r++)
        *n += all[r];
    return failed;
}

int ranks_tree(const trainer *t, double *sum, pt_error *e)
{
    double all[COMM_RANKS_MOST];
    if (!t->comm)
        return 0;
    int failed = comm_all_gather(t->comm, sum, sizeof *sum, all, e);
    *sum = failed ? 0 : lane_tree(t->comm->ranks, all);
    return failed;
}

int ranks_any(const trainer *t, bool *yes, pt_error *e)
{
    int64_t n = *yes;
    int failed = ranks_add(t, &n, e);
    *yes = n > 0;
    return failed;
}

int ranks_collect_peaks(trainer *t, pt_error *e)
{
    uint64_t own[TIERS];
    for (int k = 0; k < TIERS; k++)
        own[k] = executor_peak_bytes(t->engine.x, (tier)k);
    return t->comm ? comm_all_gather(t->comm, own, sizeof own, t->peaks, e) : 0;
}

int ranks_fail(const trainer *t, int failed, const pt_error *e)
{
    if (failed && t->comm)
        comm_abort(t->comm, e && e->code ? e : &(pt_error){.code = PT_FAILED, .text = "failed"});
    return failed;
}

/* ---- time ---- */

/* A whole of `bytes`, of which each rank sends each other one its part: the fastest of some. */
static int time_exchange(comm *c, char *memory, size_t bytes, double *ns, pt_error *e)
{
    enum { TIMES = 5 };
    comm_move moves[COMM_RANKS_MOST];
    const size_t part = bytes / (size_t)c->ranks;
    int n = 0, failed = 0;
    for (int r = 0; r < c->ranks; r++)
        if (r != c->rank)
            moves[n++] = (comm_move){r, memory + bytes + (size_t)r * part, part, memory + (size_t)r * part, part};
    *ns = INFINITY;
    for (int i = 0; i < TIMES && !failed; i++) {
        failed = comm_barrier(c, e);
        const int64_t begin = clock_ns();
        if (!failed)
            failed = comm_exchange(c, moves, n, e);
        *ns = fmin(*ns, (double)(clock_ns() - begin));
    }
    return failed;
}

int ranks_time(const trainer *t, cost_curve *out, pt_error *e)
{
    static const size_t sizes[] = {64 << 10, 1 << 20, 8 << 20};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    *out = (cost_curve){0};
    if (!t->comm)
        return 0;
    char *memory = calloc(2, sizes[SIZES - 1]);
    int failed = memory ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < SIZES && !failed; i++) {
        double ns;
        failed = time_exchange(t->comm, memory, sizes[i], &ns, e);
        out->amount[i] = (double)sizes[i];
        out->ns[i] = i && ns < out->ns[i - 1] ? out->ns[i - 1] : ns;
        out->n = i + 1;
    }
    free(memory);
    return failed;
}

/* ---- the plan ---- */

typedef struct shared_plan { costs costs; uint64_t budget[TIERS]; bool host_tier; size_t bytes; } shared_plan;

/* What is searched for only rank 0 asks, but which schedules a plan has all want to know. */
static int read_plan(planning *p, const shared_plan *s, const char *json, pt_error *e)
{
    priced_plan *best = &p->result.best;
    int failed = planning_begin_search(p, e);
    if (!failed)
        failed = plan_from_json("the plan of rank 0", json, s->bytes, &best->plan, e);
    if (!failed)
        failed = pack(p->model, p->shape, best->plan.chunk_bytes, &best->packing, e);
    if (!failed)
        failed = plan_validate(&best->plan, p->model, p->shape, &best->packing, p->o->max_grad_norm > 0, e);
    memcpy(p->budget, s->budget, sizeof p->budget);
    p->host_tier = s->host_tier;
    p->profile.costs = s->costs;
    return failed;
}

int ranks_take_plan(trainer *t, pt_error *e)
{
    planning *p = &t->planning;
    shared_plan s = {0};
    char *json = NULL;
    if (!t->comm)
        return 0;
    if (ranks_lead(t)) {
        s.costs = p->profile.costs;
        s.host_tier = p->host_tier;
        memcpy(s.budget, p->budget, sizeof s.budget);
        json = plan_to_json(trainer_plan(t), t->job.model, p->shape);
        s.bytes = json ? strlen(json) : 0;
    }
    int failed = ranks_share(t, &s, sizeof s, e);
    if (!failed && !ranks_lead(t))
        json = malloc(s.bytes + 1);
    if (!failed && !json)
        failed = pt_fail(e, PT_FAILED, "out of memory for a plan");
    if (!failed)
        failed = ranks_share(t, json, s.bytes, e);
    if (!failed && !ranks_lead(t))
        failed = read_plan(p, &s, json, e);
    free(json);
    return failed;
}
