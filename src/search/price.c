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
    double limit; /* of ns, if it is above 0 */
    double ns, work;
    uint64_t bytes[TIERS], written;
} pricing;

/* 1: it fits so far; 0: it does not. */
static int price_kind(pricing *x, schedule_kind kind, bool timed, pt_error *e)
{
    schedule s;
    simulation one;
    int failed = schedule_place(&x->schedule, kind, &s, e);
    x->work += WORK_OF_SCHEDULE;
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
        x->ns += failed ? 0 : one.total_ns - (x->ns > 0 ? x->in->costs->step_ns : 0); /* the schedules are one step */
        x->written += bytes_written(&s);
    }
    x->work += s.tasks_n * (timed && fits ? WORK_OF_TASK : WORK_OF_PLACING);
    schedule_free(&s);
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

int price_plan(const search_input *in, const packing *k, const plan *p, const uint64_t budget[TIERS], double limit, priced *out,
               pt_error *e)
{
    const unsigned timed = timed_kinds(in, p->update), others = search_kinds(in, p->update) & ~timed;
    pricing x = {.in = in, .schedule = search_schedules(in, k, p), .budget = budget, .limit = limit};
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
static int price_part(const space *s, const candidate *r, int part, memory_entry *x, pt_error *e)
{
    plan p;
    int failed = candidate_plan(s, r, &p, e);
    if (failed)
        return failed;
    const unsigned timed = timed_kinds(s->in, p.update), others = search_kinds(s->in, p.update) & ~timed;
    pricing of = {.in = s->in, .schedule = search_schedules(s->in, &s->chunkings[r->chunking].packing, &p), .budget = s->budget};
    if (part == PRICE_OTHERS)
        memcpy(of.bytes, x->bytes[PRICE_TIMED], sizeof of.bytes);
    int fits = price_kinds(&of, part == PRICE_TIMED ? timed : others, part == PRICE_TIMED, e);
    plan_free(&p);
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
static int need_part(space *s, const candidate *r, int part, bool asks, memory_entry *x, pt_error *e)
{
    int failed = x->known[part] ? 0 : price_part(s, r, part, x, e);
    if (failed)
        return failed;
    memory_add(s->memory, x);
    if (asks && memory_is_first(s->memory, x->hash, part)) {
        s->work += x->work[part];
        s->tried += part == PRICE_TIMED;
    }
    return 0;
}

/* A price holds for the budgets for which it was found. */
static uint64_t hash_with_budgets(const space *s, const candidate *r)
{
    uint64_t h = candidate_hash(s, r);
    for (int t = 0; t < TIERS; t++)
        h = (h ^ s->budget[t]) * 0x9e3779b97f4a7c15u ^ h >> 31;
    return h ? h : 1;
}

static int price_it(space *s, const candidate *r, double limit, double prove_below, bool asks, priced *out, pt_error *e)
{
    memory_entry x;
    const uint64_t hash = hash_with_budgets(s, r);
    if (!memory_find(s->memory, hash, &x))
        x = (memory_entry){.hash = hash};
    int failed = need_part(s, r, PRICE_TIMED, asks, &x, e), part = PRICE_TIMED;
    bool fits = x.fits[PRICE_TIMED] && (limit <= 0 || x.step_ns < limit);
    if (!failed && fits && (prove_below <= 0 || x.step_ns < prove_below)) {
        part = PRICE_OTHERS;
        failed = need_part(s, r, PRICE_OTHERS, asks, &x, e);
        fits = x.fits[PRICE_OTHERS];
    }
    *out = (priced){.candidate = *r, .step_ns = x.step_ns, .proven = fits && part == PRICE_OTHERS, .written = x.written};
    memcpy(out->bytes, x.bytes[part], sizeof out->bytes);
    return failed ? failed : fits;
}

int candidate_price(space *s, const candidate *r, double limit, double prove_below, priced *out, pt_error *e)
{
    return price_it(s, r, limit, prove_below, true, out, e);
}

void candidate_price_ahead(space *s, const candidate *r, double limit, double prove_below)
{
    pt_error unsaid;
    priced p;
    price_it(s, r, limit, prove_below, false, &p, &unsaid);
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
