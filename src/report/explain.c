#include "report/explain.h"

#include "base/units.h"

#include <string.h>

/* ---- where the time goes ---- */

int explain_shares(const forecast *f, share out[SHARES])
{
    static const char *const waits[QUEUES] = {"", "waiting for copies to the device", "waiting for copies from the device",
                                              "waiting for updates on the host", "waiting for disk reads", "waiting for disk writes",
                                              "waiting for other ranks"};
    double left = f->step_ns - f->busy_ns[QUEUE_COMPUTE], slowed = f->busy_ns[QUEUE_COMPUTE] - f->needed_ns - f->again_ns;
    share all[SHARES] = {{"computing", f->needed_ns}, {"recomputing activations that were not saved", f->again_ns},
                         {"slowed by contention, the processor quota or wake-up latency", slowed}};
    int n = 3, kept = 0;
    for (int q = QUEUE_COMPUTE + 1; q < QUEUES; q++) {
        all[n++] = (share){waits[q], f->wait_ns[QUEUE_COMPUTE][q]};
        left -= f->wait_ns[QUEUE_COMPUTE][q];
    }
    all[n++] = (share){"outside the schedule: reading the batch, sums, metrics", left};
    for (int i = 0; i < n; i++) {
        if (all[i].ns < 0.01 * f->step_ns)
            continue;
        int at = kept++;
        for (; at > 0 && out[at - 1].ns < all[i].ns; at--)
            out[at] = out[at - 1];
        out[at] = all[i];
    }
    return kept;
}

static double share_of(const share *s, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        if (strcmp(s[i].what, what) == 0)
            return s[i].ns;
    return 0;
}

/* Names the share of time that differs most from the best plan. */
static void why_slower(const forecast *best, const forecast *other, char *out, size_t n)
{
    share a[SHARES], b[SHARES];
    int an = explain_shares(best, a), bn = explain_shares(other, b), most = -1;
    double largest = 0;
    char time[32];
    for (int i = 0; i < bn; i++) {
        double more = b[i].ns - share_of(a, an, b[i].what);
        if (more > largest) {
            largest = more;
            most = i;
        }
    }
    if (most < 0)
        snprintf(out, n, "every part takes a little longer");
    else
        snprintf(out, n, "%s more %s", seconds_format(time, largest * 1e-9), b[most].what);
}

static int add_rival(explanation *x, const priced_plan *c, pt_error *e)
{
    const search_input *in = x->in->search;
    forecast f;
    schedule_kind first;
    int second;
    steady_schedules(c->plan.update, &first, &second); /* only their times are used */
    unsigned kinds = !in->training ? search_kinds(in, c->plan.update) : 1u << first | (second < 0 ? 0 : 1u << second);
    kinds |= shape_has_baseline(in->shape) ? 1u << SCHEDULE_EVAL : 0;
    int failed = search_forecast(in, c, kinds, &f, e);
    if (failed)
        return failed;
    rival *r = &x->rivals[x->rivals_n++];
    *r = (rival){.name = c->name, .slower = f.step_ns / x->forecast.step_ns - 1};
    why_slower(&x->forecast, &f, r->why, sizeof r->why);
    return 0;
}

int explain(const explain_input *in, explanation *out, pt_error *e)
{
    const search_input *s = in->search;
    *out = (explanation){.in = in, .budget = in->budget ? in->budget : s->budget};
    int failed = search_forecast(s, in->best, search_kinds(s, in->best->plan.update), &out->forecast, e);
    if (out->forecast.step_ns > 0)
        out->tokens_per_s = (double)(search_ranks(s) * s->shape->batch * s->shape->seq_len) * 1e9 / out->forecast.step_ns;
    for (int i = 0; i < in->others_n && out->rivals_n < EXPLAIN_RIVALS && !failed; i++)
        failed = add_rival(out, &in->others[i], e);
    if (!failed && in->helps)
        failed = search_bound(s, out->forecast.step_ns, &out->bound_ns, e);
    if (!failed && in->helps)
        failed = explain_helps(in, out->tokens_per_s, out->helps, &out->helps_n, e);
    return failed;
}

/* ---- layers ---- */

static void list_layers(const plan *plan, int first, const plan_block *like, char *out, size_t n)
{
    size_t used = 0;
    int count = 0;
    out[0] = 0;
    for (int i = first, k; i < plan->blocks_n; i = k) {
        for (k = i; k < plan->blocks_n && plan->blocks[k].level == like->level && plan->blocks[k].place == like->place;)
            k++;
        if (k == i) {
            k++;
            continue;
        }
        count += k - i;
        if (used + 15 < n)
            used += (size_t)snprintf(out + used, n - used, k - i > 1 ? "%s%d-%d" : "%s%d", used ? ", " : "", i, k - 1);
        else if (used + 4 < n && out[used - 1] != '.')
            used += (size_t)snprintf(out + used, n - used, " ...");
    }
    if (count == plan->blocks_n)
        snprintf(out, n, count == 1 ? "the only layer" : "all %d layers", count);
}

static void write_passing(int passing, char *out, size_t n)
{
    if (passing > 1)
        snprintf(out, n, "0-%d: nothing saved, backward does not reach them", passing - 1);
    else
        snprintf(out, n, "0: nothing saved, backward does not reach it");
}

int explain_layers(const plan *plan, int passing, int line, char *out, size_t n)
{
    static const char *const levels[SAVE_LEVELS] = {"input saved, the rest recomputed", "input and attention saved, MLP recomputed",
                                                    "all saved"};
    bool seen[SAVE_LEVELS][TIERS] = {{false}};
    char list[33];
    if (passing && line-- == 0) {
        write_passing(passing, out, n);
        return 1;
    }
    for (int i = passing; i < plan->blocks_n; i++) {
        const plan_block *b = &plan->blocks[i];
        if (seen[b->level][b->place])
            continue;
        seen[b->level][b->place] = true;
        if (line-- > 0)
            continue;
        list_layers(plan, passing, b, list, sizeof list);
        snprintf(out, n, "%s: %s, on the %s", list, levels[b->level], tier_names[b->place]);
        return 1;
    }
    return 0;
}

/* ---- what does not fit ---- */

uint64_t missing_bytes(const search_input *in, const uint64_t least[TIERS])
{
    uint64_t missing = 0;
    for (int t = 0; t < TIERS; t++)
        missing += least[t] > in->budget[t] ? least[t] - in->budget[t] : 0;
    return missing;
}
