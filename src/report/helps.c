/* helps.c - finds changes beyond the plan that would make the step faster: more memory, a larger batch, a faster disk. A brief search from
 * the plan that was found shows which of them help. A part of the search that planning with such a change runs then says by how much, so
 * that the change brings what is said, or more. Several searches run in parallel. */
#include "base/units.h"
#include "report/explain.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define EFFORT 0.05 /* of each brief search, of that of the plan */
#define PART 0.15   /* of the search with a change that helps */
#define WORTH_SAYING 0.03

/* A quarter of the bytes, as a round number. */
static uint64_t round_quarter(uint64_t bytes)
{
    uint64_t unit = 1 << 20;
    while (unit * 16 < bytes / 4)
        unit *= 2;
    return (bytes / 4 + unit - 1) / unit * unit;
}

static void scale_curve(cost_curve *curve, double by)
{
    for (int i = 0; i < curve->n; i++)
        curve->ns[i] *= by;
}

/* Scales the costs of a unit to `by` times as many rows. */
static void scale_unit(costs *costs, double by)
{
    for (int k = 0; k < costs->kinds_n; k++)
        for (int l = 0; l < SAVE_LEVELS; l++) {
            costs->layer[k].forward_ns[l] *= by;
            costs->layer[k].backward_ns[l] *= by;
        }
    costs->embed_ns *= by;
    costs->head_ns *= by;
    costs->head_eval_ns *= by;
}

/* A change and its effect. */
typedef struct trial {
    search_input in;
    step_shape shape;
    costs costs;
    const priced_plan *from;
    char what[96];
    double before, tokens_per_s; /* without the change and with it; 0: nothing fits */
    int failed;
    pt_error e;
} trial;

static void try_search(trial *t, const search_input *in)
{
    search_result r = {0};
    int failed = search_plan(in, &r, &t->e);
    const double ns = failed ? 0 : r.best.step_ns;
    search_result_free(&r);
    t->failed = failed == PT_DOES_NOT_FIT ? 0 : failed;
    t->tokens_per_s = ns > 0 ? (double)(search_ranks(in) * in->shape->batch * in->shape->seq_len) * 1e9 / ns : 0;
}

static double gain(const trial *t) { return t->tokens_per_s / t->before - 1; }

static void try_change(trial *t)
{
    search_input brief = t->in, whole = t->in;
    brief.from = t->from;
    brief.effort = EFFORT * search_effort(&t->in);
    whole.part = PART;
    try_search(t, &brief);
    if (!t->failed && gain(t) >= WORTH_SAYING)
        try_search(t, &whole);
}

/* The trials of one thread. At most as many run in parallel as there are cores. */
typedef struct part { trial *all; int first, n, step; pthread_t thread; } part;

static void *try_part(void *arg)
{
    const part *s = arg;
    for (int i = s->first; i < s->n; i += s->step)
        try_change(&s->all[i]);
    return NULL;
}

static void try_all(trial *all, int n, int threads)
{
    part parts[EXPLAIN_HELPS];
    bool own[EXPLAIN_HELPS] = {false}; /* thread */
    const int step = threads < n ? threads : n;
    for (int i = step - 1; i >= 0; i--) {
        parts[i] = (part){.all = all, .first = i, .n = n, .step = step};
        own[i] = i && !pthread_create(&parts[i].thread, NULL, try_part, &parts[i]);
        if (!own[i])
            try_part(&parts[i]);
    }
    for (int i = 1; i < step; i++)
        if (own[i])
            pthread_join(parts[i].thread, NULL);
}

/* ---- the changes; each adds a trial if it is possible ---- */

static trial *add_trial(const explain_input *in, trial *all, int *n)
{
    trial *t = &all[(*n)++];
    *t = (trial){.in = *in->search, .costs = *in->search->costs, .from = in->best};
    t->in.threads = 1;
    t->in.unproven = true;
    t->in.costs = &t->costs;
    return t;
}

static void more_memory(const explain_input *in, tier placement, trial *all, int *n)
{
    char add[32], size[32];
    uint64_t extra = round_quarter(in->search->budget[placement]);
    if (!in->search->budget[placement])
        return;
    trial *t = add_trial(in, all, n);
    t->in.budget[placement] += extra;
    snprintf(t->what, sizeof t->what, "%s more %s memory (%s)", size_format(add, extra), tier_names[placement],
             size_format(size, t->in.budget[placement]));
}

static void larger_batch(const explain_input *in, trial *all, int *n)
{
    const step_shape *shape = in->search->shape;
    step_shape doubled;
    step_shape_like(&doubled, shape, in->search->model, 2 * shape->batch, shape->seq_len);
    if (in->search->micro_batch % shape_least_micro(&doubled))
        return;
    trial *t = add_trial(in, all, n);
    t->shape = doubled;
    t->in.shape = &t->shape;
    if (doubled.unit_rows != shape->unit_rows)
        scale_unit(&t->costs, (double)doubled.unit_rows / (double)shape->unit_rows);
    scale_curve(&t->costs.embed_finish, 2);
    snprintf(t->what, sizeof t->what, "a batch size of %lld instead of %lld (the result changes)",
             (long long)shape_sequences(&doubled), (long long)shape_sequences(shape));
}

static void faster_disk(const explain_input *in, trial *all, int *n)
{
    if (!in->best->bytes[TIER_DISK])
        return;
    trial *t = add_trial(in, all, n);
    scale_curve(&t->costs.read, 0.5);
    scale_curve(&t->costs.write, 0.5);
    t->costs.quota.busy[COST_READ] *= 2; /* the processor time per byte stays the same */
    t->costs.quota.busy[COST_WRITE] *= 2;
    snprintf(t->what, sizeof t->what, "a disk twice as fast");
}

/* ---- the results ---- */

/* There is room: at most one per kind of change. */
static void keep_help(help out[EXPLAIN_HELPS], int *n, const trial *t)
{
    if (gain(t) < WORTH_SAYING)
        return;
    int at = (*n)++;
    for (; at > 0 && out[at - 1].gain < gain(t); at--)
        out[at] = out[at - 1];
    out[at].gain = gain(t);
    snprintf(out[at].what, sizeof out[at].what, "%s", t->what);
}

int explain_helps(const explain_input *in, double tokens_per_s, help out[EXPLAIN_HELPS], int *n, pt_error *e)
{
    int trials_n = 0, failed = 0;
    *n = 0;
    if (!(tokens_per_s > 0))
        return 0;
    trial *all = malloc(EXPLAIN_HELPS * sizeof *all);
    if (!all)
        return pt_fail(e, PT_FAILED, "out of memory while looking for what would help");
    more_memory(in, TIER_DEVICE, all, &trials_n);
    if (in->search->host_tier)
        more_memory(in, TIER_HOST, all, &trials_n);
    larger_batch(in, all, &trials_n);
    faster_disk(in, all, &trials_n);
    for (int i = 0; i < trials_n; i++)
        all[i].before = tokens_per_s;
    try_all(all, trials_n, search_threads(in->search));
    for (int i = 0; i < trials_n && !failed; i++) {
        keep_help(out, n, &all[i]);
        failed = all[i].failed;
        if (failed && e)
            *e = all[i].e;
    }
    free(all);
    return failed;
}
