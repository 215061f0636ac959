/* price.c - the real price of a plan: builds its schedules, and simulates those that make up a step. */
#include "search/space.h"

#include <string.h>

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
    if (update == UPDATE_NEXT_FORWARD)
        return 1u << SCHEDULE_STEP_UPDATE;
    return 1u << SCHEDULE_STEP | (update == UPDATE_END ? 1u << SCHEDULE_DRAIN : 0);
}

schedule_input search_schedules(const search_input *in, const packing *k, const plan *p)
{
    return (schedule_input){in->model, in->shape, k, p, in->training, in->host_tier, in->layouts};
}

static uint64_t bytes_written(const schedule *s)
{
    uint64_t bytes = 0;
    for (int i = 0; i < s->tasks_n; i++)
        if (s->tasks[i].kind == TASK_WRITE)
            bytes += s->buffers[s->operands[s->tasks[i].operand0].buffer].bytes;
    return bytes;
}

typedef struct pricing {
    const search_input *in;
    schedule_input schedule;
    const uint64_t *budget;
    double ns;
    uint64_t bytes[TIERS], written;
} pricing;

/* 1: it fits so far; 0: it does not. */
static int price_kind(pricing *x, schedule_kind kind, bool timed, pt_error *e)
{
    schedule s;
    simulation one;
    int failed = schedule_place(&x->schedule, kind, &s, e);
    if (failed)
        return failed == PT_DOES_NOT_FIT ? 0 : failed;
    schedule_raise_bytes(&x->schedule, &s, x->bytes);
    bool fits = true;
    for (int t = 0; t < TIERS; t++)
        fits = fits && x->bytes[t] <= x->budget[t];
    if (timed && fits) {
        failed = schedule_add_waits(&s, e);
        if (!failed)
            failed = simulate(&x->schedule, &s, x->in->costs, false, &one, e);
        x->ns += failed ? 0 : one.total_ns - (x->ns > 0 ? x->in->costs->step_ns : 0); /* the two schedules are one step */
        x->written += bytes_written(&s);
    }
    schedule_free(&s);
    return failed ? failed : fits;
}

int price_plan(const search_input *in, const packing *k, const plan *p, const uint64_t budget[TIERS], double limit,
               double prove_below, priced *out, pt_error *e)
{
    unsigned timed = timed_kinds(in, p->update), others = search_kinds(in, p->update) & ~timed;
    pricing x = {.in = in, .schedule = search_schedules(in, k, p), .budget = budget};
    int fits = 1;
    bool prove = true;
    for (int pass = 0; pass < 2 && fits > 0 && prove; pass++) {
        for (int kind = 0; kind < SCHEDULE_KINDS && fits > 0; kind++) {
            if ((pass ? others : timed) & 1u << kind)
                fits = price_kind(&x, (schedule_kind)kind, !pass, e);
            if (fits > 0 && limit > 0 && x.ns >= limit)
                fits = 0;
        }
        prove = prove_below <= 0 || x.ns < prove_below;
    }
    out->step_ns = x.ns;
    out->proven = prove && fits > 0;
    out->written = x.written;
    memcpy(out->bytes, x.bytes, sizeof x.bytes);
    return fits;
}

static bool beyond(const space *s, const uint64_t bytes[TIERS])
{
    bool is = false;
    for (int t = 0; t < TIERS; t++)
        is = is || bytes[t] > s->budget[t];
    return is;
}

/* Would pricing give the same result again? */
static bool is_answer(const space *s, const memory_entry *known, double limit, double prove_below)
{
    if (beyond(s, known->bytes) || (limit > 0 && known->step_ns >= limit))
        return true;
    return known->fits && (known->proven || (prove_below > 0 && known->step_ns >= prove_below));
}

int candidate_price(space *s, const candidate *r, double limit, double prove_below, priced *out, pt_error *e)
{
    plan p;
    uint64_t hash = candidate_hash(s, r);
    memory_entry known;
    out->candidate = *r;
    if (memory_find(s->memory, hash, &known) && is_answer(s, &known, limit, prove_below)) {
        out->step_ns = known.step_ns;
        out->proven = known.proven;
        out->written = known.written;
        memcpy(out->bytes, known.bytes, sizeof out->bytes);
        return known.fits && !beyond(s, known.bytes) && (limit <= 0 || out->step_ns < limit);
    }
    int failed = candidate_plan(s, r, &p, e);
    if (failed)
        return failed;
    int fits = price_plan(s->in, &s->chunkings[r->chunking].packing, &p, s->budget, limit, prove_below, out, e);
    plan_free(&p);
    s->tried++;
    memory_entry entry = {.hash = hash, .fits = fits, .proven = out->proven, .step_ns = out->step_ns, .written = out->written};
    memcpy(entry.bytes, out->bytes, sizeof entry.bytes);
    if (fits >= 0)
        memory_add(s->memory, &entry);
    return fits;
}

/* Similar candidates share the error of the estimate: fills again with budgets changed by it, with one chunk less if that is still too
 * much. false: nothing can be reduced. */
static bool fill_again(space *s, candidate *r, const uint64_t needs[TIERS])
{
    estimate about;
    const candidate before = *r;
    space_correct(s, r, needs);
    candidate_fill(s, r, s->fill, &about);
    if (r->persist != before.persist || r->on_host != before.on_host)
        return true;
    *r = before;
    if (needs[TIER_DEVICE] > s->budget[TIER_DEVICE] && r->persist) {
        r->persist--;
        r->on_host += s->in->host_tier;
    } else if (needs[TIER_HOST] > s->budget[TIER_HOST] && r->on_host) {
        r->on_host--;
    } else {
        return false;
    }
    candidate_normalise(s, r);
    return true;
}

int candidate_price_filled(space *s, candidate *r, double limit, double prove_below, priced *out, pt_error *e)
{
    enum { TRIES = 6 };
    for (int i = 0; i < TRIES; i++) {
        int fits = candidate_price(s, r, limit, prove_below, out, e);
        if (fits || (limit > 0 && out->step_ns >= limit) || !fill_again(s, r, out->bytes))
            return fits;
    }
    return 0;
}

int search_price(const search_input *in, priced_plan *c, pt_error *e)
{
    priced p;
    int fits = price_plan(in, &c->packing, &c->plan, in->budget, 0, 0, &p, e);
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
