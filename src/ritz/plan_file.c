/* plan_file.c - plan files of Deep Ritz runs, in the engine's format. "layers" is the number of groups, "seq_len" the points of a unit,
 * "hidden" the width, and "micro_batch" the points of `visit` units. */
#include "ritz/planner.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char model_type[] = "deep_ritz";
static const char *type_name(const ritz_network *n) { return n->type == PT_F64 ? "fp64" : "fp32"; }

char *ritz_plan_to_json(const ritz_space *s, const plan *plan, bool gpu)
{
    const ritz_network *n = s->net;
    char made_for[512];
    snprintf(made_for, sizeof made_for,
             "\"model_type\": \"%s\", \"parameters\": %lld, \"layers\": %d, \"hidden\": %lld, \"seq_len\": %lld, \"batch\": %lld, "
             "\"dtype\": \"%s\", \"optimizer\": \"adamw\", \"gpu\": %s",
             model_type, (long long)n->params, n->groups_n, (long long)n->width, (long long)s->unit_rows, (long long)plan->micro_batch,
             type_name(n), gpu ? "true" : "false");
    return plan_write_json(plan, made_for);
}

/* ---- checks ---- */

static int check_number(const char *path, const char *key, int64_t is, int64_t here, pt_error *e)
{
    return is == here ? 0 : pt_fail(e, PT_FAILED, "%s: the plan was made for \"%s\" %lld, but here it is %lld: plan again", path, key,
                                    (long long)is, (long long)here);
}

static int check_target(const char *path, const plan *plan, const ritz_space *s, pt_error *e)
{
    const plan_target *t = &plan->made_for;
    const ritz_network *n = s->net;
    if (!t->model_type[0])
        return 0;
    if (strcmp(t->model_type, model_type))
        return pt_fail(e, PT_FAILED, "%s: the plan was made for a model of type %s, not for a Deep Ritz network: plan again", path,
                       t->model_type);
    if (t->type != n->type)
        return pt_fail(e, PT_FAILED, "%s: the plan was made for another `dtype` than %s: plan again", path, type_name(n));
    int failed = check_number(path, "parameters", t->parameters, n->params, e);
    if (!failed && t->hidden)
        failed = check_number(path, "hidden", t->hidden, n->width, e);
    return failed ? failed : check_number(path, "seq_len", t->seq_len, s->unit_rows, e);
}

static int check_counts(const char *path, const plan *plan, const ritz_space *s, pt_error *e)
{
    const int most = ritz_chunks_at_once(s);
    int failed = check_number(path, "chunks", plan->chunks_n, s->chunks_n, e);
    if (!failed)
        failed = check_number(path, "blocks", plan->blocks_n, s->net->groups_n, e);
    if (failed)
        return failed;
    if (plan->visit > RITZ_VISIT_MOST || plan->micro_batch != plan->visit * s->unit_rows)
        return pt_fail(e, PT_FAILED,
                       "%s: \"visit\" is %d and \"micro_batch\" %lld; micro_batch must be visit, which is from 1 to %d, times %lld points",
                       path, plan->visit, (long long)plan->micro_batch, RITZ_VISIT_MOST, (long long)s->unit_rows);
    if (plan->n_buffer < most || plan->n_update < 1 || plan->n_swap < 2)
        return pt_fail(e, PT_FAILED, "%s: \"n_buffer\" must be at least %d, \"n_update\" 1 and \"n_swap\" 2", path, most);
    if (plan->update != UPDATE_END)
        return pt_fail(e, PT_FAILED, "%s: \"update\" must be \"end\": a step's gradients are complete after its last unit", path);
    return 0;
}

static int check_places(const char *path, const plan *plan, const ritz_space *s, pt_error *e)
{
    bool host = false;
    for (int c = 0; c < plan->chunks_n; c++) {
        const plan_chunk *k = &plan->chunks[c];
        host |= k->placement == TIER_HOST || k->update == TIER_HOST;
        if (k->sharded || (k->update == TIER_HOST && k->placement == TIER_DEVICE))
            return pt_fail(e, PT_FAILED, "%s: chunk %d %s", path, c, k->sharded ? "is \"sharded\", but the run is one process"
                                                                               : "lives on the device and cannot be updated on the host");
    }
    for (int g = 0; g < plan->blocks_n; g++) {
        host |= plan->blocks[g].place == TIER_HOST;
        if (plan->blocks[g].level != SAVE_ALL && plan->blocks[g].level != SAVE_INPUT)
            return pt_fail(e, PT_FAILED, "%s: \"save\" of block %d must be \"input\" or \"all\"", path, g);
    }
    return !host || s->host_tier
               ? 0 : pt_fail(e, PT_FAILED, "%s: the plan uses the host's memory beside the device's: give `host_memory`", path);
}

static int check_budgets(const char *path, const ritz_planning *p, const ritz_step_forecast *f, pt_error *e)
{
    char needs[32], has[32];
    for (int t = 0; t < TIERS; t++)
        if (f->bytes[t] > p->budget[t])
            return pt_fail(e, PT_DOES_NOT_FIT,
                           "%s needs %s of %s memory, but the budget is %s: give `%s_memory` more, or leave `plan_file` out", path,
                           size_format(needs, f->bytes[t]), tier_names[t], size_format(has, p->budget[t]), tier_names[t]);
    return 0;
}

int ritz_plan_take(const ritz_planning *p, const char *path, plan *out, ritz_step_forecast *about, pt_error *e)
{
    ritz_prices prices;
    int failed = plan_read(path, out, e);
    if (failed)
        return failed;
    failed = check_target(path, out, p->space, e);
    if (!failed)
        failed = check_counts(path, out, p->space, e);
    if (!failed)
        failed = check_places(path, out, p->space, e);
    if (!failed && p->price)
        failed = ritz_prices_measure(p, &prices, e);
    if (!failed)
        failed = ritz_plan_forecast(p, out, p->price ? &prices : NULL, about, e);
    if (!failed)
        failed = check_budgets(path, p, about, e);
    if (failed)
        plan_free(out);
    return failed;
}
