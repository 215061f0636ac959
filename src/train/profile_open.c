/* profile_open.c - pt_profile: a profile without a run. Measures all tiers, whether a plan needs them or not. */
#include "io/files.h"
#include "measure/profile_get.h"
#include "report/profile_text.h"
#include "run/budgets.h"
#include "train/base.h"
#include "train/model_options.h"
#include "train/options.h"
#include "train/planning.h"

#include <stdlib.h>
#include <string.h>

struct pt_profile {
    pt_train_options o;
    model *model;
    step_shape shape;
    planning planning; /* provides devices and folder */
    profile_request request;
    profile_result result;
};

static int measure(pt_profile *p, bool fresh, pt_error *e)
{
    const pt_train_options *o = &p->o;
    planning *g = &p->planning;
    profile_request *req = &p->request;
    snprintf(g->disk_path, sizeof g->disk_path, "%s", planning_disk_folder(o));
    const budget_request asked = {{o->device_memory, o->host_memory, o->disk_memory}, g->disk_path, g->device,
                                  .notice = o->notice, .arg = o->arg};
    *req = (profile_request){.device = g->device, .host = g->host, .threads = o->threads, .model = p->model, .shape = &p->shape,
                           .transfers = true, .disk_path = g->disk_path, .file = o->profile_file, .fresh = fresh, .progress = o->progress,
                           .notice = o->notice, .arg = o->arg};
    int failed = budgets_choose(&asked, req->budget, &req->host_tier, NULL, e);
    memcpy(g->budget, req->budget, sizeof g->budget);
    return failed ? failed : profile_get(req, &p->result, e);
}

static int make(pt_profile *p, bool fresh, pt_error *e)
{
    int failed = model_of_options(&p->o, 0, NULL, &p->model, e);
    if (!failed)
        failed = shape_of_options(&p->o, p->model, &p->shape, e);
    if (!failed) {
        step_shape_divide(&p->shape);
        failed = length_of_options(&p->o, p->model, true, e);
    }
    if (!failed)
        failed = planning_open_device(&p->planning, &p->o, e);
    p->planning.model = p->model;
    p->planning.shape = &p->shape;
    if (!failed && device_is_gpu(p->planning.device))
        step_shape_for_gpu(&p->shape, p->model);
    return failed ? failed : measure(p, fresh, e);
}

int pt_profile_open(const pt_train_options *o, bool fresh, pt_profile **out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_profile_open", "the options");
    if (!out)
        return pt_fail_null(e, "pt_profile_open", "the place for the profile");
    *out = NULL;
    int failed = options_check_plan(o, e);
    pt_profile *p = failed ? NULL : calloc(1, sizeof *p);
    if (!p)
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory");
    p->o = *o;
    p->o.base = base_of_adapter(o->base, o->model, o->adapter, o->notice, o->arg);
    failed = make(p, fresh, e);
    if (failed)
        pt_profile_close(p);
    else
        *out = p;
    return failed;
}

char *pt_profile_text(const pt_profile *p) { return !p ? NULL : profile_text(&p->request, &p->result); }
char *pt_profile_json(const pt_profile *p) { return !p ? NULL : profile_to_json(&p->request, &p->result); }

/* A folder that is there, or a new one: its name ends with a slash, or has no ending such as .json. */
static bool means_folder(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return path_is_folder(path) || (!path_exists(path) && !strchr(name, '.'));
}

/* A file that is no profile is not replaced. */
static int write_profile_file(const pt_profile *p, const char *file, pt_error *e)
{
    int refused = file_may_replace(file, "out", "{\n  \"blocks\"", "profile", e);
    return refused ? refused : profile_write(file, &p->request, &p->result, e);
}

int pt_profile_write(const pt_profile *p, const char *path, pt_error *e)
{
    if (!p)
        return pt_fail_null(e, "pt_profile_write", "the profile");
    if (!path)
        return pt_fail_null(e, "pt_profile_write", "the path");
    char file[FILE_PATH_BYTES];
    if (!means_folder(path))
        return write_profile_file(p, path, e);
    int failed = dir_make(path, e);
    if (!failed)
        failed = path_join(file, path, "profile.json", e);
    if (!failed)
        failed = write_profile_file(p, file, e);
    if (!failed)
        failed = path_join(file, path, "machine.json", e);
    return failed ? failed : planning_write_machine(&p->planning, &p->result.costs, file, e);
}

void pt_profile_close(pt_profile *p)
{
    if (!p)
        return;
    planning_close(&p->planning);
    model_close(p->model);
    free(p);
}
