#include "train/contribution.h"

#include "io/files.h"
#include "run/state.h"
#include "train/options.h"
#include "train/planning.h"
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BETA (1 - 1.0 / 4096) /* of both moments; exact in fp32. So near 1 that they are nearly plain means */

/* ---- the steps ---- */

static double no_rate(void *arg, int64_t step, int64_t steps, double lr)
{
    (void)arg, (void)step, (void)steps, (void)lr;
    return 0;
}

/* A run that changes no weight. It never comes to its last step, after which it would evaluate a folder's validation files. */
static pt_train_options still_options(const pt_train_options *o, int64_t steps, const char *out)
{
    pt_train_options r = *o;
    r.out = out;
    r.optimizer = PT_OPTIMIZER_ADAMW;
    r.optimizer_args = NULL;
    r.lr_of_step = no_rate;
    r.weight_decay = 0;
    r.max_grad_norm = 0;
    r.beta1 = r.beta2 = BETA;
    r.steps = steps + 1;
    r.eval_data = NULL;
    r.eval_data_n = 0;
    r.eval_split = 0;
    r.warmup_steps = 0;
    r.warmup_ratio = 0;
    r.lr_schedule = PT_LR_CONSTANT;
    r.eval_every = options_evaluate(&r) ? r.steps : 0;
    r.save_every = r.patience = r.preview = 0;
    r.keep_best = PT_KEEP_BEST_NO;
    r.sample_n = 0;
    r.ranks = 1;
    r.disk_slots = 1;
    r.resume = r.trace = r.tensorboard = false;
    r.resume_from = r.plan_file = r.machine_file = NULL;
    return r;
}

static int run_steps(trainer *trainer, int64_t steps, pt_error *e)
{
    const pt_train_options *o = &trainer->job.o;
    pt_step step;
    int failed = 0;
    for (int64_t i = 0; i < steps && !failed; i++) {
        options_progress(o, "measuring contributions", (uint64_t)i, (uint64_t)steps);
        if (o->stop && o->stop(o->arg))
            return pt_fail(e, PT_FAILED, "the measuring of contributions was stopped");
        failed = pt_trainer_step(trainer, &step, e);
        failed = failed < 0 ? failed : 0;
    }
    return failed ? failed : trainer_drain(trainer, e);
}

/* ---- from moments to contributions ---- */

/* Moments are sums of gradients with weights that add up to `sum`; their squares, divided by its square, to `squares`. */
typedef struct weighting { double sum, squares, eps; } weighting;

static weighting weighting_of(int64_t steps, double eps)
{
    const double left = pow(BETA, (double)steps);
    return (weighting){1 - left, (1 - BETA) / (1 + BETA) * (1 + left) / (1 - left), eps};
}

/* With equal weights, squares = 1 / N. */
static double contribution_of(const weighting *w, double first, double second)
{
    const double m = first / w->sum, v = second / w->sum;
    return v > 0 ? (m * m - w->squares * v) / (1 - w->squares) / (sqrt(v) + w->eps) : 0;
}

static int find_kind(const state *state, const char *name)
{
    for (int k = 1; k < state_kinds(state->in); k++)
        if (!strcmp(state_name(state->in, k), name))
            return k;
    return -1;
}

enum { AT_ONCE = 1 << 16 };

static int read_moments(state *state, const weighting *w, double *out, pt_error *e)
{
    const model *m = state->in->model;
    const int first = find_kind(state, adamw_rule.slabs[0].name), second = find_kind(state, adamw_rule.slabs[1].name);
    float *a = malloc(2 * AT_ONCE * sizeof *a), *b = a ? a + AT_ONCE : NULL;
    int failed = a ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    for (int i = 0; i < m->params_n && !failed; i++) {
        const bool trained = m->params[i].trainable && m->params[i].kind->use != USE_CONSTANT;
        const int64_t n = trained ? state_entries(state->in, first, i) : 0;
        out[i] = 0;
        for (int64_t at = 0; at < n && !failed; at += AT_ONCE) {
            const int64_t some = n - at < AT_ONCE ? n - at : AT_ONCE;
            failed = state_read(state, first, i, at, some, a, e);
            if (!failed)
                failed = state_read(state, second, i, at, some, b, e);
            for (int64_t k = 0; k < some && !failed; k++)
                out[i] += contribution_of(w, (double)a[k], (double)b[k]);
        }
    }
    free(a);
    return failed;
}

static int read_contributions(trainer *trainer, int64_t steps, double *out, pt_error *e)
{
    const weighting w = weighting_of(steps, trainer->job.o.eps);
    state state;
    state_open(&state, trainer->engine.x);
    const int failed = read_moments(&state, &w, out, e), closed = state_close(&state, failed ? NULL : e);
    return failed ? failed : closed;
}

static int measure_in(const char *folder, const pt_train_options *o, const model *m, int64_t steps, double *out, pt_error *e)
{
    const pt_train_options still = still_options(o, steps, folder);
    pt_trainer *t;
    int failed = pt_trainer_open(&still, &t, e);
    if (failed)
        return failed;
    t->job.o.notice = NULL; /* that steps are slower than planned is not of interest */
    failed = t->job.model->params_n == m->params_n ? run_steps(t, steps, e) : pt_fail(e, PT_FAILED, "the model has changed meanwhile");
    if (!failed)
        failed = read_contributions(t, steps, out, e);
    pt_trainer_close(t);
    return failed;
}

int contributions_measure(const pt_train_options *o, const model *m, int64_t steps, double *out, pt_error *e)
{
    char name[FILE_PATH_BYTES];
    dir_stage folder; /* another process removes it if this one is killed */
    int failed = path_join(name, planning_disk_folder(o), "protrain-select", e);
    if (!failed)
        failed = dir_stage_begin(&folder, name, e);
    if (failed)
        return failed;
    failed = measure_in(folder.path, o, m, steps, out, e);
    dir_stage_abort(&folder);
    return failed;
}
