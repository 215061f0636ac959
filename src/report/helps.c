/* helps.c - what would make the step faster that a plan cannot decide: the search runs again with more memory, a larger
 * batch or a faster disk. */
#include "base/units.h"
#include "report/explain.h"

#include <string.h>

#define SEARCH_SECONDS 0.1
#define WORTH_SAYING 0.03

/* A quarter more, as a round number. */
static uint64_t round_quarter(uint64_t bytes)
{
    uint64_t unit = 1 << 20;
    while (unit * 16 < bytes / 4)
        unit *= 2;
    return (bytes / 4 + unit - 1) / unit * unit;
}

static void scale_curve(cost_curve *c, double by)
{
    for (int i = 0; i < c->n; i++)
        c->ns[i] *= by;
}

/* The costs of a unit of `by` times as many rows. */
static void scale_unit(costs *c, double by)
{
    for (int k = 0; k < c->kinds_n; k++)
        for (int l = 0; l < SAVE_LEVELS; l++) {
            c->layer[k].forward_ns[l] *= by;
            c->layer[k].backward_ns[l] *= by;
        }
    c->embed_ns *= by;
    c->head_ns *= by;
    c->head_eval_ns *= by;
}

/* Tokens a second of the best plan for a changed input; 0: none fits. */
static int try_input(const search_input *in, double *tokens_per_s, pt_error *e)
{
    search_result r = {0};
    pt_error own = {0};
    search_input changed = *in;
    changed.seconds = SEARCH_SECONDS;
    *tokens_per_s = 0;
    int failed = search_plan(&changed, &r, &own);
    if (!failed && r.best.step_ns > 0)
        *tokens_per_s = (double)(in->shape->batch * in->shape->seq_len) * 1e9 / r.best.step_ns;
    search_result_free(&r);
    if (failed && failed != PT_DOES_NOT_FIT) {
        if (e)
            *e = own;
        return failed;
    }
    return 0;
}

/* One for each kind of change at most, so there is room. */
static void keep_help(help out[EXPLAIN_HELPS], int *n, double gain, const char *what)
{
    if (gain < WORTH_SAYING)
        return;
    int at = (*n)++;
    for (; at > 0 && out[at - 1].gain < gain; at--)
        out[at] = out[at - 1];
    out[at].gain = gain;
    snprintf(out[at].what, sizeof out[at].what, "%s", what);
}

static int more_memory(const explain_input *in, tier t, double now, help out[EXPLAIN_HELPS], int *n, pt_error *e)
{
    search_input more = *in->search;
    char what[96], add[32], all[32];
    double then;
    uint64_t extra = round_quarter(more.budget[t]);
    if (!more.budget[t] || t == TIER_DISK)
        return 0;
    more.budget[t] += extra;
    int failed = try_input(&more, &then, e);
    snprintf(what, sizeof what, "%s more %s memory (%s)", size_format(add, extra), tier_names[t], size_format(all, more.budget[t]));
    keep_help(out, n, then / now - 1, what);
    return failed;
}

static int larger_batch(const explain_input *in, double now, help out[EXPLAIN_HELPS], int *n, pt_error *e)
{
    search_input more = *in->search;
    const step_shape *s = more.shape;
    step_shape doubled;
    costs c = *more.costs;
    char what[96];
    double then;
    step_shape_init(&doubled, more.model, s->type, 2 * s->batch, s->seq_len);
    if (doubled.unit_rows != s->unit_rows)
        scale_unit(&c, (double)doubled.unit_rows / (double)s->unit_rows);
    scale_curve(&c.embed_finish, 2);
    more.shape = &doubled;
    more.costs = &c;
    if (more.micro_batch % doubled.unit_seqs)
        return 0;
    int failed = try_input(&more, &then, e);
    snprintf(what, sizeof what, "a batch of %lld instead of %lld (the result changes)", (long long)doubled.batch, (long long)s->batch);
    keep_help(out, n, then / now - 1, what);
    return failed;
}

static int faster_disk(const explain_input *in, double now, help out[EXPLAIN_HELPS], int *n, pt_error *e)
{
    search_input more = *in->search;
    costs c = *more.costs;
    double then;
    if (!in->best->bytes[TIER_DISK])
        return 0;
    scale_curve(&c.read, 0.5);
    scale_curve(&c.write, 0.5);
    more.costs = &c;
    int failed = try_input(&more, &then, e);
    keep_help(out, n, then / now - 1, "a disk twice as fast");
    return failed;
}

int explain_helps(const explain_input *in, double tokens_per_s, help out[EXPLAIN_HELPS], int *n, pt_error *e)
{
    *n = 0;
    if (!(tokens_per_s > 0))
        return 0;
    int failed = more_memory(in, TIER_DEVICE, tokens_per_s, out, n, e);
    if (!failed && in->search->host_tier)
        failed = more_memory(in, TIER_HOST, tokens_per_s, out, n, e);
    if (!failed)
        failed = larger_batch(in, tokens_per_s, out, n, e);
    if (!failed)
        failed = faster_disk(in, tokens_per_s, out, n, e);
    return failed;
}
