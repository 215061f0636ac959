/* price.c - the real price of a plan: builds its schedules, and simulates those that make up a step. */
#include "search/space.h"

#include <string.h>

/* Work: about what it takes on a core of 2025. */
enum { WORK_OF_SCHEDULE = 3000, WORK_OF_PLACING = 200, WORK_OF_TASK = 400 }; /* of each; of each of its tasks, only placed, or simulated */

bool search_may_update(const search_input *in, update_time update)
{
    return !(update == UPDATE_BACKWARD && in->clipping) && !(update == UPDATE_NEXT_FORWARD && in->drains);
}

update_time search_first_update(const search_input *in)
{
    return !in->clipping ? UPDATE_BACKWARD : in->drains ? UPDATE_END : UPDATE_NEXT_FORWARD;
}

unsigned search_kinds(const search_input *in, update_time update)
{
    if (!in->training)
        return 1u << SCHEDULE_EVAL;
    unsigned kinds = 1u << SCHEDULE_STEP;
    if (update != UPDATE_BACKWARD)
        kinds |= 1u << SCHEDULE_DRAIN;
    if (update == UPDATE_NEXT_FORWARD)
        kinds |= 1u << SCHEDULE_STEP_UPDATE;
    return kinds | (in->evaluates ? 1u << SCHEDULE_EVAL : 0);
}

/* The schedules of a steady step. */
static unsigned timed_kinds(const search_input *in, update_time update)
{
    if (!in->training)
        return 1u << SCHEDULE_EVAL;
    const unsigned before = shape_has_baseline(in->shape) ? 1u << SCHEDULE_EVAL : 0;
    if (update == UPDATE_NEXT_FORWARD)
        return before | 1u << SCHEDULE_STEP_UPDATE;
    return before | 1u << SCHEDULE_STEP | (update == UPDATE_END ? 1u << SCHEDULE_DRAIN : 0);
}

schedule_input search_schedules(const search_input *in, const packing *packing, const plan *plan)
{
    return (schedule_input){in->model, in->shape, packing, plan, in->training, in->host_tier, in->layouts};
}

static uint64_t bytes_written(const schedule *sched)
{
    uint64_t bytes = 0;
    for (int i = 0; i < sched->tasks_n; i++)
        if (sched->tasks[i].kind == TASK_WRITE)
            bytes += sched->buffers[sched->operands[sched->tasks[i].operand0].buffer].bytes;
    return bytes;
}

typedef struct pricing {
    const search_input *in;
    schedule_input schedule;
    const uint64_t *budget;
    double limit; /* of ns, if it is above 0 */
    double ns, work;
    uint64_t bytes[TIERS], written;
} pricing;

/* 1: it fits so far; 0: it does not. */
static int price_kind(pricing *x, schedule_kind kind, bool timed, pt_error *e)
{
    schedule sched;
    simulation one;
    int failed = schedule_place(&x->schedule, kind, &sched, e);
    x->work += WORK_OF_SCHEDULE;
    if (failed)
        return failed == PT_DOES_NOT_FIT ? 0 : failed;
    schedule_raise_bytes(&x->schedule, &sched, x->bytes);
    bool fits = true;
    for (int t = 0; t < TIERS; t++)
        fits = fits && x->bytes[t] <= x->budget[t];
    if (timed && fits) {
        failed = schedule_add_waits(&sched, e);
        if (!failed)
            failed = simulate(&x->schedule, &sched, x->in->costs, false, &one, e);
        x->ns += failed ? 0 : one.total_ns - (x->ns > 0 ? x->in->costs->step_ns : 0); /* the schedules are one step */
        x->written += bytes_written(&sched);
    }
    x->work += sched.tasks_n * (timed && fits ? WORK_OF_TASK : WORK_OF_PLACING);
    schedule_free(&sched);
    return failed ? failed : fits;
}

static int price_kinds(pricing *x, unsigned kinds, bool timed, pt_error *e)
{
    int fits = 1;
    for (int kind = 0; kind < SCHEDULE_KINDS && fits > 0; kind++)
        if (kinds & 1u << kind) {
            fits = price_kind(x, (schedule_kind)kind, timed, e);
            fits = fits > 0 && x->limit > 0 && x->ns >= x->limit ? 0 : fits;
        }
    return fits;
}

int price_plan(const search_input *in, const packing *packing, const plan *plan, const uint64_t budget[TIERS], double limit, priced *out,
               pt_error *e)
{
    const unsigned timed = timed_kinds(in, plan->update), others = search_kinds(in, plan->update) & ~timed;
    pricing x = {.in = in, .schedule = search_schedules(in, packing, plan), .budget = budget, .limit = limit};
    int fits = price_kinds(&x, timed, true, e);
    if (fits > 0)
        fits = price_kinds(&x, others, false, e);
    out->step_ns = x.ns;
    out->work = x.work;
    out->proven = fits > 0;
    out->written = x.written;
    memcpy(out->bytes, x.bytes, sizeof x.bytes);
    return fits;
}

/* ---- candidates, whose prices are remembered ---- */

/* Prices one part. Negative: an error. */
static int price_part(const space *space, const candidate *cand, int part, memory_entry *x, pt_error *e)
{
    plan plan;
    int failed = candidate_plan(space, cand, &plan, e);
    if (failed)
        return failed;
    const unsigned timed = timed_kinds(space->in, plan.update), others = search_kinds(space->in, plan.update) & ~timed;
    pricing of = {.in = space->in,
                  .schedule = search_schedules(space->in, &space->chunkings[cand->chunking].packing, &plan),
                  .budget = space->budget};
    if (part == PRICE_OTHERS)
        memcpy(of.bytes, x->bytes[PRICE_TIMED], sizeof of.bytes);
    int fits = price_kinds(&of, part == PRICE_TIMED ? timed : others, part == PRICE_TIMED, e);
    plan_free(&plan);
    x->known[part] = true;
    x->fits[part] = fits;
    x->work[part] = of.work;
    memcpy(x->bytes[part], of.bytes, sizeof of.bytes);
    if (part == PRICE_TIMED) {
        x->step_ns = of.ns;
        x->written = of.written;
    }
    return fits < 0 ? fits : 0;
}

/* Makes sure that a part is known. The asker's work is the same whether another thread has done it or not. */
static int need_part(space *space, const candidate *cand, int part, bool asks, memory_entry *x, pt_error *e)
{
    int failed = x->known[part] ? 0 : price_part(space, cand, part, x, e);
    if (failed)
        return failed;
    memory_add(space->memory, x);
    if (asks && memory_is_first(space->memory, x->hash, part)) {
        space->work += x->work[part];
        space->tried += part == PRICE_TIMED;
    }
    return 0;
}

/* A price holds for the budgets for which it was found. */
static uint64_t hash_with_budgets(const space *space, const candidate *cand)
{
    uint64_t h = candidate_hash(space, cand);
    for (int t = 0; t < TIERS; t++)
        h = (h ^ space->budget[t]) * 0x9e3779b97f4a7c15u ^ h >> 31;
    return h ? h : 1;
}

static int price_it(space *space, const candidate *cand, double limit, double prove_below, bool asks, priced *out, pt_error *e)
{
    memory_entry x;
    const uint64_t hash = hash_with_budgets(space, cand);
    if (!memory_find(space->memory, hash, &x))
        x = (memory_entry){.hash = hash};
    int failed = need_part(space, cand, PRICE_TIMED, asks, &x, e), part = PRICE_TIMED;
    bool fits = x.fits[PRICE_TIMED] && (limit <= 0 || x.step_ns < limit);
    if (!failed && fits && (prove_below <= 0 || x.step_ns < prove_below)) {
        part = PRICE_OTHERS;
        failed = need_part(space, cand, PRICE_OTHERS, asks, &x, e);
        fits = x.fits[PRICE_OTHERS];
    }
    *out = (priced){.candidate = *cand, .step_ns = x.step_ns, .proven = fits && part == PRICE_OTHERS, .written = x.written};
    memcpy(out->bytes, x.bytes[part], sizeof out->bytes);
    return failed ? failed : fits;
}

int candidate_price(space *space, const candidate *cand, double limit, double prove_below, priced *out, pt_error *e)
{
    return price_it(space, cand, limit, prove_below, true, out, e);
}

void candidate_price_ahead(space *space, const candidate *cand, double limit, double prove_below)
{
    pt_error unsaid;
    priced p;
    price_it(space, cand, limit, prove_below, false, &p, &unsaid);
}

/* Similar candidates share the error of the estimate: fills again with budgets changed by it, with one chunk less if that is still too
 * much. false: nothing can be reduced. */
static bool fill_again(space *space, candidate *cand, const uint64_t needs[TIERS])
{
    estimate about;
    const candidate before = *cand;
    space_correct(space, cand, needs);
    candidate_fill(space, cand, space->fill, &about);
    if (cand->persist != before.persist || cand->on_host != before.on_host)
        return true;
    *cand = before;
    if (needs[TIER_DEVICE] > space->budget[TIER_DEVICE] && cand->persist) {
        cand->persist--;
        cand->on_host += space->in->host_tier;
    } else if (needs[TIER_HOST] > space->budget[TIER_HOST] && cand->on_host) {
        cand->on_host--;
    } else {
        return false;
    }
    candidate_normalise(space, cand);
    return true;
}

int candidate_price_filled(space *space, candidate *cand, double limit, double prove_below, priced *out, pt_error *e)
{
    enum { TRIES = 6 };
    for (int i = 0; i < TRIES; i++) {
        int fits = candidate_price(space, cand, limit, prove_below, out, e);
        if (fits || (limit > 0 && out->step_ns >= limit) || !fill_again(space, cand, out->bytes))
            return fits;
    }
    return 0;
}

int search_price(const search_input *in, priced_plan *c, pt_error *e)
{
    priced p;
    int fits = price_plan(in, &c->packing, &c->plan, in->budget, 0, &p, e);
    c->step_ns = p.step_ns;
    memcpy(c->bytes, p.bytes, sizeof c->bytes);
    return fits;
}

void priced_plan_free(priced_plan *c)
{
    packing_free(&c->packing);
    plan_free(&c->plan);
    memset(c, 0, sizeof *c);
}
