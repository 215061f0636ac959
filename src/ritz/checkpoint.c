/* checkpoint.c - what a run leaves in its output folder (io/steps.h).
 *
 *     OUT/metrics.jsonl                      a line per step
 *     OUT/checkpoint-STEP/                   network.safetensors, config.json, states.safetensors (tensors.c), and state.json: the step,
 *                                            and what the bits depend on
 *     OUT/network.safetensors, config.json   the trained network, at the end; then report.html and summary.json (run_page.c)
 */
#include "io/steps.h"
#include "ritz/config.h"
#include "ritz/page.h"
#include "ritz/solver.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define STATE_FILE "state.json" /* the mark of a complete checkpoint */

static void set_optimizer(json_t *task, const pt_ritz_options *o)
{
    static const char *const schedules[] = {"constant", "linear", "cosine", "halving"};
    json_object_set_new(task, "lr", json_real(o->lr));
    json_object_set_new(task, "lr_schedule", json_string(schedules[o->lr_schedule]));
    json_object_set_new(task, "warmup_steps", json_integer(o->warmup_steps));
    json_object_set_new(task, "halve_every", json_integer(o->halve_every));
    json_object_set_new(task, "min_lr_ratio", json_real(o->min_lr_ratio));
    json_object_set_new(task, "weight_decay", json_real(o->weight_decay));
    json_object_set_new(task, "beta1", json_real(o->beta1));
    json_object_set_new(task, "beta2", json_real(o->beta2));
    json_object_set_new(task, "eps", json_real(o->eps));
}

/* The options that a resumed run must share with the run that it continues: the bits depend on them. */
static json_t *task_json(const pt_ritz *ritz)
{
    json_t *task = ritz_network_json(&ritz->net);
    set_optimizer(task, &ritz->o);
    json_t *problem = problem_json(&ritz->problem);
    json_object_update(task, problem);
    json_decref(problem);
    json_object_set_new(task, "loss", json_integer(ritz->o.loss));
    if (ritz->problem.residual)
        json_object_set_new(task, "boundary_weight", json_real(ritz->faces.weight));
    json_object_set_new(task, "points", json_string(points_names[ritz->o.points]));
    json_object_set_new(task, "randomize", json_string(randomize_names[ritz->o.randomize]));
    json_object_set_new(task, "n", json_integer(ritz->o.n));
    json_object_set_new(task, "n_boundary", json_integer(ritz->boundary_n));
    json_object_set_new(task, "penalty_ramp", json_integer(ritz->o.penalty_ramp));
    json_object_set_new(task, "redraw_every", json_integer(ritz->o.redraw_every));
    json_object_set_new(task, "seed", json_integer((json_int_t)ritz->o.seed));
    json_object_set_new(task, "unit", json_integer(ritz->unit_rows));
    return task;
}

static int write_state(const pt_ritz *ritz, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, STATE_FILE, e);
    if (failed)
        return failed;
    json_t *state = json_pack("{s:I,s:I,s:I,s:s,s:o}", "step", (json_int_t)ritz->step, "steps", (json_int_t)ritz->o.steps, "polished",
                              (json_int_t)ritz->polished, "arithmetic",
                              ritz->device->info.arithmetic, "task", task_json(ritz));
    failed = file_write_json(path, state, e);
    json_decref(state);
    return failed;
}

int pt_ritz_save(pt_ritz *ritz, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    dir_stage stage;
    int failed = ritz_check_call(ritz, "pt_ritz_save", true, e);
    if (!failed && !ritz->o.out)
        failed = pt_fail(e, PT_USAGE, "the run has no output folder");
    if (failed)
        return failed;
    failed = step_folder_path(ritz->out, ritz->step, path, e);
    if (!failed)
        failed = dir_stage_begin(&stage, path, e);
    if (failed)
        return failed;
    failed = ritz_write_network(ritz, stage.path, e);
    if (!failed)
        failed = ritz_write_states(ritz, stage.path, e);
    if (!failed)
        failed = ritz_config_write(stage.path, &ritz->net, &ritz->problem, e);
    if (!failed)
        failed = write_state(ritz, stage.path, e);
    if (!failed)
        failed = step_lines_sync(&ritz->metrics, e);
    if (failed) {
        dir_stage_abort(&stage);
        return failed;
    }
    failed = dir_stage_commit(&stage, e);
    return failed ? failed : step_folders_prune(ritz->out, STATE_FILE, ritz->step, ritz->o.keep, 0, e);
}

/* With another number of steps the learning rate of the next step differs from what it would have been. */
static void tell_new_rate(const pt_ritz *ritz, int64_t steps)
{
    const int64_t now = ritz->o.steps, next = ritz->step + 1, before = next <= steps ? next : ritz->step;
    const bool depends = ritz->o.lr_schedule == PT_RITZ_LR_COSINE || ritz->o.lr_schedule == PT_RITZ_LR_LINEAR;
    pt_ritz_options old = ritz->o;
    old.steps = steps;
    if (!steps || now == steps || !depends || !ritz->step || next > now || next <= ritz->o.warmup_steps)
        return;
    if (before == next)
        ritz_notice(ritz, "the run now has %lld steps instead of %lld: the learning rate of step %lld is %.3g and would have been %.3g",
                    (long long)now, (long long)steps, (long long)next, ritz_lr(&ritz->o, next), ritz_lr(&old, next));
    else
        ritz_notice(ritz, "the run now has %lld steps instead of %lld: the learning rate of step %lld is %.3g, after %.3g in step %lld",
                    (long long)now, (long long)steps, (long long)next, ritz_lr(&ritz->o, next), ritz_lr(&old, before), (long long)before);
}

static int read_state(pt_ritz *ritz, const char *folder, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    json_source source;
    ritz_state state;
    int failed = path_join(file, folder, STATE_FILE, e);
    if (!failed)
        failed = json_source_file(&source, file, "a checkpoint's state", e);
    if (failed)
        return failed;
    json_t *task = task_json(ritz);
    failed = ritz_state_parse(&source, task, &state, e);
    json_decref(task);
    json_source_close(&source);
    if (failed)
        return failed;
    ritz->step = ritz->first_step = state.step;
    ritz->polished = state.polished;
    tell_new_rate(ritz, state.steps);
    if (strcmp(state.arithmetic, ritz->device->info.arithmetic))
        ritz_notice(ritz, "the run was computed by %.100s and continues on %.100s: its last bits will differ", state.arithmetic,
                    ritz->device->info.arithmetic);
    return 0;
}

bool ritz_has_checkpoint(const pt_ritz *ritz) { return ritz->locked && step_folders_newest(ritz->out, STATE_FILE, INT64_MAX) >= 0; }

int ritz_resume(pt_ritz *ritz, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    const int64_t step = step_folders_newest(ritz->out, STATE_FILE, INT64_MAX);
    if (step < 0) {
        ritz_notice(ritz, "%s has no checkpoint: the run starts with step 1", ritz->out);
        return 0;
    }
    int failed = step_folder_path(ritz->out, step, path, e);
    if (!failed)
        failed = read_state(ritz, path, e);
    if (!failed)
        failed = ritz_read_network(ritz, path, e);
    return failed ? failed : ritz_read_states(ritz, path, e);
}

int ritz_newest_size(const char *folder, int64_t *n, int64_t *steps)
{
    char path[FILE_PATH_BYTES], file[FILE_PATH_BYTES];
    json_source source, task;
    const int64_t step = step_folders_newest(folder, STATE_FILE, INT64_MAX);
    int failed = step < 0 ? PT_FAILED : step_folder_path(folder, step, path, NULL);
    if (!failed)
        failed = path_join(file, path, STATE_FILE, NULL);
    if (!failed)
        failed = json_source_file(&source, file, "a checkpoint's state", NULL);
    if (failed)
        return failed;
    failed = json_get_int(&source, "steps", JSON_REQUIRED, 1, INT64_MAX / 2, steps, NULL);
    if (!failed)
        failed = json_get_object(&source, "task", JSON_REQUIRED, &task, NULL);
    if (!failed)
        failed = json_get_int(&task, "n", JSON_REQUIRED, 1, INT64_MAX / 2, n, NULL);
    json_source_close(&source);
    return failed;
}

/* What `protrain report DIR --json` prints. */
static int write_summary(const pt_ritz *ritz, pt_error *e)
{
    char path[FILE_PATH_BYTES], *text = ritz_json_of_run(ritz, ritz->out, e);
    int failed = text ? path_join(path, ritz->out, "summary.json", e) : PT_FAILED;
    if (!failed)
        failed = file_write_atomic(path, text, strlen(text), e);
    free(text);
    return failed;
}

int pt_ritz_finish(pt_ritz *ritz, pt_error *e)
{
    int failed = ritz_check_call(ritz, "pt_ritz_finish", true, e);
    if (failed || !ritz->o.out)
        return failed;
    failed = pt_ritz_save(ritz, e);
    if (!failed)
        failed = ritz_write_network(ritz, ritz->out, e);
    if (!failed)
        failed = ritz_config_write(ritz->out, &ritz->net, &ritz->problem, e);
    if (!failed)
        failed = ritz_page_of_run(ritz, ritz->out, e);
    return failed ? failed : write_summary(ritz, e);
}

int pt_ritz_load(const char *folder, int threads, pt_ritz **out, pt_error *e)
{
    if (!folder || !out)
        return pt_fail_null(e, "pt_ritz_load", folder ? "out" : "folder");
    *out = NULL;
    pt_ritz *ritz = calloc(1, sizeof *ritz);
    if (!ritz)
        return pt_fail(e, PT_FAILED, "out of memory");
    pt_ritz_defaults(&ritz->o);
    ritz->o.n = 1;
    ritz->o.device = "cpu";
    ritz->o.threads = threads;
    ritz->problem.energy = NAN;
    int failed = ritz_config_read(folder, &ritz->o, &ritz->problem, e);
    if (!failed)
        failed = ritz_open_network(ritz, false, NULL, NULL, e);
    if (!failed)
        failed = ritz_read_network(ritz, folder, e);
    if (failed)
        pt_ritz_close(ritz);
    else
        *out = ritz;
    return failed;
}
