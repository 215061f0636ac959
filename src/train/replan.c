/* replan.c - plans again if steps take longer or shorter than predicted: measured times correct the costs, the search runs again, and if
 * its plan is worth the change, the state moves to it between two steps.
 *
 *   steps ... a tenth off ... still a tenth off          (medians of some steps, whose tasks are timed meanwhile; patience.h:
 *        -> costs corrected -> search                     how long it has to last)
 *             the same plan, or one not worth the change:  only the prediction changes
 *             a faster one:    waiting updates run -> checkpoint -> memory freed, and allocated for the new plan ->
 *                              state loaded -> checkpoint removed, unless the run keeps it
 *
 * The state passes through a checkpoint because the planned memory of both plans does not fit at once. The bits stay the same, as for a run
 * that resumes with another plan. If the checkpoint cannot be written, the run keeps its plan. If the memory cannot be allocated again
 * (another program took it), the old plan is tried, then a plan for what is left, with a disk that is measured if it was not needed before.
 * If nothing fits, the run ends, and the checkpoint stays.
 *
 * A decision that keeps the plan doubles the wait for the next one, and is told only if it is the first or steps changed for good; a change
 * does not. Very short steps are left alone, because nothing can be gained. A plan from a file stays, too: a notice says that its steps are
 * off.
 *
 * With several ranks, rank 0 looks and decides, from the times of the slowest rank for each kind of work; all ranks take its decision and
 * its plan, and move together. If one of them lacks memory for the new plan, all go back to the old one; if that fails too, the run ends.
 */
#include "train/replan.h"

#include "base/units.h"
#include "train/aside.h"
#include "train/checkpoint.h"
#include "train/options.h"
#include "train/ranks.h"

#include <math.h>
#include <string.h>

#define WORTH 0.05         /* share of a step that another plan must save */
#define LEAST_SHARE 0.01   /* of all work: smaller kinds are not corrected */
#define STATE_BANDWIDTH 3e8 /* bytes per second, at least, of writing and reading a checkpoint */

/* ---- current costs ---- */

/* The costs from the times of timed tasks. If the median step took more than they explain, the rest is added as time outside the schedule;
 * if it took less, some of the timed steps were slow ones. */
static int correct_costs(const trainer *trainer, costs *costs, forecast *f, pt_error *e)
{
    const schedule_input in = trainer_schedules(trainer);
    const update_time update = trainer_plan(trainer)->update;
    const unsigned kinds = search_kinds(&trainer->planning.search, update);
    const double measured_ns = measured_median_s(&trainer->engine.measured, PATIENCE_WINDOW) * 1e9;
    schedule_kind first;
    int second;
    *costs = trainer->planning.profile.costs;
    steady_schedules(update, &first, &second);
    work_run runs[SCHEDULE_KINDS];
    int runs_n = 0;
    for (int kind = 0; kind < SCHEDULE_KINDS; kind++)
        if (kind == (int)first || kind == second || (kind == SCHEDULE_EVAL && shape_has_baseline(in.shape)))
            runs[runs_n++] = (work_run){executor_schedule(trainer->engine.x, (schedule_kind)kind), &trainer->engine.measured.work[kind]};
    int failed = costs_adjust(costs, &in, runs, runs_n, LEAST_SHARE, e);
    if (!failed)
        failed = forecast_make(&in, kinds, costs, f, e);
    if (failed)
        return failed;
    if (f->step_ns <= measured_ns)
        costs->step_ns += measured_ns - f->step_ns;
    else
        costs_scale(costs, measured_ns / f->step_ns);
    return forecast_make(&in, kinds, costs, f, e);
}

/* The queue whose tasks differ most from the prediction, as a phrase: "disk reads take 3.1 times as long". It must be at least a
 * twentieth. */
static void what_differs(const trainer *trainer, char *out, size_t n)
{
    static const char *const names[QUEUES] = {"computation takes", "copies to the device take", "copies from the device take",
                                              "updates on the host take", "disk reads take", "disk writes take",
                                              "exchanges with other ranks take"};
    step_times s = measured_times(&trainer->engine.measured, trainer_plan(trainer)->update);
    double most = 0;
    snprintf(out, n, "the tasks take as long as predicted, but more time passes between them");
    for (int q = 0; q < QUEUES; q++) {
        double before = trainer->predicted.now.busy_ns[q], by = fabs(s.busy_ns[q] - before);
        if (before > 0 && by > most && by > 0.05 * before) {
            most = by;
            snprintf(out, n, "%s %.2g times as long", names[q], s.busy_ns[q] / before);
        }
    }
}

static bool same_plan(const plan *a, const plan *b)
{
    if (a->chunk_bytes != b->chunk_bytes || a->n_buffer != b->n_buffer || a->n_update != b->n_update || a->n_swap != b->n_swap ||
        a->micro_batch != b->micro_batch || a->visit != b->visit || a->update != b->update || a->ranges != b->ranges ||
        a->chunks_n != b->chunks_n)
        return false;
    for (int i = 0; i < a->chunks_n; i++)
        if (a->chunks[i].placement != b->chunks[i].placement || a->chunks[i].update != b->chunks[i].update)
            return false;
    for (int i = 0; i < a->blocks_n; i++)
        if (a->blocks[i].level != b->blocks[i].level || a->blocks[i].place != b->blocks[i].place)
            return false;
    return true;
}

static bool worth_moving(const trainer *trainer, double now_ns, const priced_plan *c)
{
    double gain_s = (now_ns - c->step_ns) * 1e-9, moved = 2.0 * (double)checkpoint_room(trainer).checkpoint_bytes;
    return !same_plan(trainer_plan(trainer), &c->plan) && gain_s > WORTH * now_ns * 1e-9 &&
           gain_s * (double)(trainer->job.steps - trainer->at.step) > moved / STATE_BANDWIDTH;
}

/* ---- moving ---- */

/* Has the run ended on another rank? */
static bool is_over(const trainer *trainer) { return trainer->comm && comm_over(trainer->comm, NULL); }

static int open_with_state(trainer *trainer, const char *checkpoint, pt_error *e)
{
    int failed = commits_open(trainer, e);
    if (!failed)
        failed = trainer_open_engine(trainer, e);
    failed = ranks_all(trainer, failed, e);
    if (failed)
        return failed;
    failed = checkpoint_load_state(trainer, checkpoint, e);
    if (!failed)
        failed = commits_begin(trainer, e);
    return ranks_fail(trainer, failed, e);
}

/* Frees the memory, and allocates it for `next`, which is exchanged with the current plan. */
static void leave(trainer *trainer, search_result *next)
{
    search_result now = trainer->planning.result;
    engine_close(&trainer->engine);
    commits_leave(trainer);
    trainer->planning.result = *next;
    *next = now;
}

/* A smaller amount of free memory than the given budget is no reason to end the run here. */
static int plan_for_what_is_left(trainer *trainer, search_result *next, pt_error *e)
{
    planning *p = &trainer->planning;
    pt_train_options o = trainer->job.o;
    planning fresh = *p;
    if (o.disk_memory && !disk_is_memory(p->disk_path))
        o.disk_memory = PT_AUTO;
    fresh.o = &o;
    int failed = planning_budgets(&fresh, e);
    if (failed == PT_DOES_NOT_FIT) {
        o.device_memory = PT_AUTO;
        o.host_memory = device_is_gpu(p->device) ? PT_AUTO : o.host_memory; /* 0 would mean no host tier on a CPU */
        failed = planning_budgets(&fresh, e);
    }
    for (int k = 0; k < TIERS && !failed; k++)
        p->search.budget[k] = p->budget[k] = fresh.budget[k] < p->budget[k] ? fresh.budget[k] : p->budget[k];
    search_result_free(next);
    if (!failed)
        failed = planning_measure_disk(p, e);
    return failed ? failed : planning_search(p, next, e);
}

/* Opens the new plan with the state in `checkpoint`; if that fails, the old plan; if that fails, a plan for the memory that is left. `next`
 * receives the unused plan. */
static int take_plan(trainer *trainer, search_result *next, const char *checkpoint, pt_error *e)
{
    leave(trainer, next);
    int failed = open_with_state(trainer, checkpoint, e);
    if (!failed || is_over(trainer))
        return failed;
    leave(trainer, next);
    failed = open_with_state(trainer, checkpoint, e);
    if (!failed || trainer->comm)
        return failed;
    failed = plan_for_what_is_left(trainer, next, e);
    if (failed)
        return failed;
    leave(trainer, next);
    return open_with_state(trainer, checkpoint, e);
}

int replan_move(trainer *trainer, search_result *next, bool *moved, pt_error *e)
{
    aside a;
    pt_error why = {0};
    *moved = false;
    int failed = aside_begin(&a, trainer, e);
    if (failed)
        return failed;
    if (checkpoint_write(trainer, &why)) {
        if (is_over(trainer))
            return pt_fail(e, why.code, "%s", why.text);
        options_notice(&trainer->job.o, "the plan stays the same: the state could not be saved for the change (%.600s)", why.text);
        return trainer->engine.state == ENGINE_TORN ? pt_fail(e, PT_FAILED, "%s", why.text) : 0;
    }
    *moved = true;
    failed = aside_spread(&a, trainer, e);
    if (!failed)
        failed = take_plan(trainer, next, a.path, e);
    if (failed) {
        engine_tear(&trainer->engine);
        pt_error_prefix(e, "the run ends while its plan changes; the state is saved in %s, and `resume` continues from it", a.path);
        return failed;
    }
    if (ranks_lead(trainer) && trainer_write_plan(trainer, &why))
        options_notice(&trainer->job.o, "plan.json and memory.json may hold the earlier plan: %.600s", why.text);
    return aside_end(&a, trainer, e);
}

/* ---- deciding ---- */

/* A failure may mean only that the search lacks memory; the run is unaffected. */
static int stay(trainer *trainer, const pt_error *why)
{
    options_notice(&trainer->job.o, "the plan stays the same: the search for another one failed (%.600s)", why->text);
    patience_decided(&trainer->predicted.patience, false);
    return 0;
}

/* Corrects the costs and searches; `f`: the forecast of the current plan. */
static int find_next(trainer *trainer, search_result *next, forecast *f, pt_error *e)
{
    planning *planning = &trainer->planning;
    const costs before = planning->profile.costs;
    costs now;
    int failed = correct_costs(trainer, &now, f, e);
    if (failed)
        return failed;
    planning->profile.costs = now;
    failed = planning_search(planning, next, e);
    if (failed)
        planning->profile.costs = before;
    return failed;
}

/* Rank 0's, which the others wait for. */
typedef struct verdict { bool found, worth; } verdict;

static int decide(trainer *trainer, pt_error *e)
{
    char differs[96], was[32], is[32], then[32], written[FORECAST_WRITTEN_BYTES];
    const void *chunks = trainer_plan(trainer)->chunks;
    forecast f = trainer->predicted.now;
    search_result next = {0};
    bool aside = false;
    double measured_ns = measured_median_s(&trainer->engine.measured, PATIENCE_WINDOW) * 1e9;
    pt_error why = {0};
    verdict v = {0};
    int failed = ranks_slowest_work(trainer, e);
    what_differs(trainer, differs, sizeof differs);
    seconds_format(was, trainer->predicted.now.step_ns * 1e-9);
    seconds_format(is, measured_ns * 1e-9);
    if (!failed && ranks_lead(trainer)) {
        v.found = !find_next(trainer, &next, &f, &why);
        v.worth = v.found && worth_moving(trainer, f.step_ns, &next.best);
    }
    if (!failed)
        failed = ranks_share(trainer, &v, sizeof v, e);
    if (!failed && !v.found)
        return stay(trainer, &why);
    if (!failed && v.worth)
        failed = ranks_take_next(trainer, &next, e);
    if (!failed && v.worth)
        failed = replan_move(trainer, &next, &aside, e);
    if (!aside)
        trainer->predicted.now = f;
    bool moved = trainer_plan(trainer)->chunks != chunks; /* false if there was no memory for another plan */
    seconds_format(then, trainer->predicted.now.step_ns * 1e-9);
    if (!failed && moved)
        options_notice(&trainer->job.o, "steps take %s instead of %s (%s): a new plan is used, %s expected%s", is, was, differs, then,
                       forecast_written(&trainer->predicted.now, written));
    else if (!failed && telling_is_first(&trainer->predicted.telling, measured_ns * 1e-9))
        options_notice(&trainer->job.o, "steps take %s instead of %s (%s): the plan stays the same%s", is, was, differs,
                       v.worth ? "" : "; no faster one was found");
    patience_decided(&trainer->predicted.patience, moved);
    trainer->predicted.corrected_step = trainer->at.step;
    trainer->predicted.moved_step = moved ? trainer->at.step : trainer->predicted.moved_step;
    search_result_free(&next);
    return failed;
}

/* A given plan stays, and so does its prediction. */
static void tell_off(trainer *trainer)
{
    char differs[96], was[32], is[32];
    what_differs(trainer, differs, sizeof differs);
    seconds_format(was, trainer->predicted.now.step_ns * 1e-9);
    seconds_format(is, measured_median_s(&trainer->engine.measured, PATIENCE_WINDOW));
    options_notice(&trainer->job.o, "steps take %s instead of %s (%s): the plan stays the same because `plan_file` is given", is, was,
                   differs);
    trainer->predicted.told_off = true;
}

/* Rank 0's look. A look is due on all ranks in the same step. */
static int look(trainer *trainer, patience_answer *answer, pt_error *e)
{
    struct { patience of; patience_answer answer; } l = {trainer->predicted.patience, PATIENCE_NOTHING};
    const int64_t steady = trainer->engine.measured.steady.n;
    int failed = 0;
    if (patience_is_due(&l.of, steady)) {
        l.answer = patience_look(&l.of, steady, trainer->predicted.now.step_ns * 1e-9,
                                 measured_median_s(&trainer->engine.measured, PATIENCE_WINDOW));
        failed = ranks_share(trainer, &l, sizeof l, e);
    }
    trainer->predicted.patience = l.of;
    *answer = l.answer;
    return failed;
}

static void tell_lasting(trainer *trainer)
{
    char was[32], is[32];
    seconds_format(was, trainer->predicted.telling.told_s);
    const double now_s = measured_median_s(&trainer->engine.measured, PATIENCE_WINDOW);
    if (telling_is_due(&trainer->predicted.telling, now_s))
        options_notice(&trainer->job.o, "steps take %s now, no longer %s: the plan stays the same", seconds_format(is, now_s), was);
}

int replan_look(trainer *trainer, pt_error *e)
{
    patience_answer answer;
    if (trainer->predicted.told_off || trainer->at.step >= trainer->job.steps)
        return 0;
    tell_lasting(trainer);
    int failed = look(trainer, &answer, e);
    if (failed || answer == PATIENCE_NOTHING)
        return failed;
    if (answer == PATIENCE_DECIDE && trainer->job.o.plan_file)
        tell_off(trainer);
    else if (answer == PATIENCE_DECIDE)
        failed = decide(trainer, e);
    measured_again(&trainer->engine.measured);
    return failed;
}
