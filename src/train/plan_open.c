/* plan_open.c - pt_plan: a plan and its explanation, without a run. */
#include "train/planning.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <string.h>

struct pt_plan {
    pt_train_options o;
    model *model;
    step_shape shape;
    planning planning;
    explain_input input;
    explanation explanation;
    bool fits;
    char misfit[sizeof((pt_error *)0)->text];
};

static void pass_notice(void *arg, const char *sentence)
{
    const pt_train_options *o = arg;
    if (o->notice)
        o->notice(o->arg, sentence);
}

static int make(pt_plan *p, pt_error *e)
{
    planning *g = &p->planning;
    int failed = model_open(p->o.model, pass_notice, &p->o, &p->model, e);
    if (!failed)
        failed = planning_shape(&p->o, p->model, &p->shape, e);
    if (!failed && (!p->o.machine_file || p->o.profile_file))
        failed = planning_open_device(g, &p->o, e);
    if (failed)
        return failed;
    g->o = &p->o;
    g->model = p->model;
    g->shape = &p->shape;
    g->evaluates = p->o.eval_data_n > 0;
    snprintf(g->disk_path, sizeof g->disk_path, "%s", planning_disk_folder(&p->o));
    failed = planning_make(g, e);
    if (failed)
        return failed;
    p->fits = true;
    p->input = planning_explain(g, p->o.steps, !p->o.plan_file);
    return explain(&p->input, &p->explanation, e);
}

int pt_plan_open(const pt_train_options *o, pt_plan **out, pt_error *e)
{
    *out = NULL;
    pt_error own = {0};
    int failed = options_check_plan(o, e);
    pt_plan *p = failed ? NULL : calloc(1, sizeof *p);
    if (!p)
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory");
    p->o = *o;
    failed = make(p, &own);
    snprintf(p->misfit, sizeof p->misfit, "%s", own.text);
    if (failed && e)
        *e = own;
    if (failed && failed != PT_DOES_NOT_FIT) {
        pt_plan_close(p);
        return failed;
    }
    *out = p;
    return failed;
}

char *pt_plan_text(const pt_plan *p) { return p->fits ? explain_text(&p->explanation) : strdup(p->misfit); }

char *pt_plan_json(const pt_plan *p)
{
    const planning *g = &p->planning;
    const uint64_t missing = g->missing_bytes + missing_bytes(&g->search, g->result.least);
    json_t *object = p->fits ? explain_json(&p->explanation)
                             : explain_misfit(&g->search, g->result.least, missing, g->change, g->smaller, p->misfit);
    char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    return text;
}

void pt_plan_close(pt_plan *p)
{
    if (!p)
        return;
    planning_close(&p->planning);
    model_close(p->model);
    free(p);
}
