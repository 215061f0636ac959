/* trainer_open.c - the public interface of a run: pt_trainer. */
#include "base/units.h"
#include "io/disk.h"
#include "train/card.h"
#include "train/checkpoint.h"
#include "train/checkpoints.h"
#include "train/commit_file.h"
#include "train/options.h"
#include "train/ranks.h"
#include "train/samples.h"
#include "train/setup.h"
#include "train/step.h"
#include "train/summary.h"
#include "train/turn_files.h"

#include <stdlib.h>

/* undo: the run could not start, so its output folder is removed again. */
static void trainer_free(trainer *trainer, bool undo)
{
    const bool leads = ranks_lead(trainer);
    if (undo && leads)
        output_undo(&trainer->out, &trainer->job.o);
    step_lines_close(&trainer->metrics);
    reference_close(&trainer->reference);
    reference_close(&trainer->held);
    events_close(&trainer->events);
    engine_close(&trainer->engine);
    commits_close(trainer, undo);
    turn_files_close(trainer);
    if (leads && trainer->planning.disk_path[0])
        commit_file_leave(trainer);
    if (trainer->device_comm != trainer->by_host)
        comm_close(trainer->device_comm);
    comm_close(trainer->by_host);
    planning_close(&trainer->planning);
    job_close(&trainer->job);
    output_close(&trainer->out, undo && leads);
    comm_close(trainer->comm);
    free(trainer);
}

int pt_trainer_open(const pt_train_options *o, pt_trainer **out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_trainer_open", "the options");
    if (!out)
        return pt_fail_null(e, "pt_trainer_open", "the place for the trainer");
    *out = NULL;
    int failed = options_check(o, e);
    if (failed)
        return failed;
    trainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer)
        return pt_fail(e, PT_FAILED, "out of memory");
    trainer->job.o = *o;
    command_time(trainer->started);
    trainer->at.saved_step = -1;
    trainer->reference.fd = trainer->held.fd = -1;
    trainer->events.fd = -1;
    failed = trainer_setup(trainer, e);
    if (!failed)
        *out = trainer;
    else
        trainer_free(trainer, true);
    return failed;
}

void pt_trainer_close(pt_trainer *t)
{
    if (t)
        trainer_free(t, false);
}

static void add_advice(const trainer *trainer, pt_error *e)
{
    if (!commits_add_advice(trainer, e))
        checkpoints_add_advice(trainer->out.path, trainer->at.step, e);
}

int pt_trainer_step(pt_trainer *t, pt_step *step, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_step", "the trainer");
    if (!step)
        return pt_fail_null(e, "pt_trainer_step", "the step");
    bool hopeless = false;
    int more = step_take(t, step, &hopeless, e);
    if (more < 0 && !hopeless)
        add_advice(t, e);
    return more;
}

int pt_trainer_evaluate(pt_trainer *t, double *loss, int64_t *tokens, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_evaluate", "the trainer");
    if (!loss)
        return pt_fail_null(e, "pt_trainer_evaluate", "the loss");
    if (!tokens)
        return pt_fail_null(e, "pt_trainer_evaluate", "the number of tokens");
    if (!t->job.eval)
        return pt_fail(e, PT_USAGE, "no evaluation data: give `eval_data`");
    pt_step step = {0};
    int failed = step_evaluate(t, &step, tokens, e);
    *loss = step.eval_loss;
    if (failed)
        add_advice(t, e);
    return failed ? failed : step.evaluated ? 0 : pt_fail(e, PT_FAILED, "the evaluation was stopped");
}

/* The results of the run are safe by now, so failures to write predictions and measurements do not fail it. */
static void write_account(trainer *trainer)
{
    pt_error e = {0};
    if (ranks_collect_accounts(trainer, &e) || !ranks_lead(trainer))
        return;
    if (summary_write(trainer, &e) || (trainer->job.o.trace && trace_write(trainer, &e)))
        options_notice(&trainer->job.o, "%s", e.text);
}

int pt_trainer_save(pt_trainer *t, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_save", "the trainer");
    int failed = checkpoint_save(t, e);
    if (failed)
        add_advice(t, e);
    else
        write_account(t);
    return failed;
}

/* What a run of more steps begins with, where the last step's checkpoint has no room. */
static void tell_no_end(const trainer *trainer, uint64_t bytes)
{
    const int64_t newest = checkpoints_newest(trainer->out.path, trainer->at.step);
    char size[32];
    size_format(size, bytes);
    if (newest < 0)
        options_notice(&trainer->job.o,
                       "%.600s has no room for a checkpoint of the last step, which takes %s: the run cannot be continued with "
                       "more steps",
                       trainer->out.path, size);
    else if (newest < trainer->at.step)
        options_notice(&trainer->job.o, "%.600s has no room for a checkpoint of the last step, which takes %s: with more steps, `resume` "
                                  "continues from checkpoint-%lld", trainer->out.path, size, (long long)newest);
}

/* A later run may continue from the end, and so may this one if it is killed before its model is complete. If no checkpoints were
 * requested, no disk space was reserved, so this one is left out if space is tight. */
static void save_end(trainer *trainer)
{
    const room_need need = checkpoint_room(trainer);
    const uint64_t bytes = need.checkpoint_bytes;
    uint64_t free_bytes;
    pt_error e = {0};
    bool asked = trainer->job.o.save_every || !disk_is_memory(trainer->out.path); /* as rank 0 sees it */
    bool tight = !disk_free_bytes(trainer->out.path, &free_bytes, NULL) && free_bytes < bytes + need.model_bytes + MACHINE_DISK_MARGIN;
    if (!trainer->at.step || ranks_share(trainer, &asked, sizeof asked, NULL) || !asked || ranks_share(trainer, &tight, sizeof tight, NULL))
        return;
    if (tight)
        tell_no_end(trainer, bytes);
    else if (checkpoint_save(trainer, &e))
        options_notice(&trainer->job.o, "no checkpoint of the last step could be written: %s", e.text);
}

/* The model card; no more than an account, too. */
static void tell_of_it(const trainer *trainer)
{
    pt_error e = {0};
    if (ranks_lead(trainer) && card_write(trainer, &e))
        options_notice(&trainer->job.o, "%s", e.text);
}

int pt_trainer_finish(pt_trainer *t, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_trainer_finish", "the trainer");
    if (!t->complete) {
        save_end(t);
        int failed = model_export(t, e);
        if (failed) {
            add_advice(t, e);
            return failed;
        }
        write_account(t);
        tell_of_it(t);
    }
    if (t->job.o.sample_n) {
        t->memory_n = trainer_memory(t, t->memory);
        engine_close(&t->engine);
        if (ranks_lead(t))
            samples_take(t, true);
        ranks_wait(t, NULL);
    }
    return 0;
}

const char *pt_version(void) { return PT_VERSION; }
