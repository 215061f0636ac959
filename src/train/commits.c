#include "train/commits.h"

#include "base/json.h"
#include "base/units.h"
#include "machine/machine.h"
#include "run/commit.h"
#include "run/state.h"
#include "train/block_turns.h"
#include "train/checkpoint.h"
#include "train/checkpoints.h"
#include "train/commit_file.h"
#include "train/options.h"
#include "train/ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SUM_FORMAT "%016" PRIx64

/* ---- continuing ---- */

/* trainer.json from the text of the record. */
static int write_trainer(output *out, const slots_view *v, pt_error *e)
{
    char folder[FILE_PATH_BYTES], path[FILE_PATH_BYTES];
    size_t n;
    const char *text = slots_view_text(v, &n);
    int failed = path_join(out->from, out->path, COMMITS_FOLDER, e);
    if (!failed)
        failed = path_join(folder, out->from, "trainer", e);
    if (!failed)
        failed = dir_make(folder, e);
    if (!failed)
        failed = path_join(path, folder, "trainer.json", e);
    return failed ? failed : file_write_atomic(path, text, n, e);
}

int commits_find(output *out, int64_t after, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    slots_view *v = NULL;
    commit_file_find(out->path, path);
    int failed = path[0] ? slots_view_open(path, &v, e) : 0;
    if (failed || !v || slots_view_step(v) <= after) {
        slots_view_close(v);
        return failed;
    }
    out->committed = v;
    return write_trainer(out, v, e);
}

static bool is_committed(const output *out)
{
    char folder[FILE_PATH_BYTES];
    return out->from[0] && !path_join(folder, out->path, COMMITS_FOLDER, NULL) && !strcmp(folder, out->from);
}

int commits_find_too(output *out, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    if (!is_committed(out))
        return 0;
    commit_file_find(out->path, path);
    int failed = path[0] ? slots_view_open(path, &out->committed, e) : 0;
    if (!failed && !out->committed)
        failed = pt_fail(e, PT_FAILED,
                         "%.400s: this rank does not see the states that a step committed: all ranks must see `disk_path`, or continue "
                         "from a checkpoint with `resume_from` DIR", out->from);
    return failed;
}

static int sum_of_ranks(const trainer *trainer, uint64_t *sum, pt_error *e)
{
    uint64_t all[COMM_RANKS_MOST] = {*sum};
    int failed = trainer->comm ? comm_all_gather(trainer->comm, sum, sizeof *sum, all, e) : 0;
    *sum = all[0];
    for (int r = 1; trainer->comm && r < trainer->comm->ranks; r++)
        *sum += all[r];
    return failed;
}

/* Are the frozen weights those of the run that committed? */
static int compare_frozen(const trainer *trainer, state *state, pt_error *e)
{
    char file[FILE_PATH_BYTES], now[20];
    const char *before;
    json_source all;
    uint64_t sum;
    int failed = state_frozen_sum(state, &sum, e);
    if (!failed)
        failed = sum_of_ranks(trainer, &sum, e);
    if (!failed)
        failed = path_join(file, trainer->out.from, "trainer/trainer.json", e);
    if (!failed)
        failed = json_source_open(&all, file, e);
    if (failed)
        return failed;
    snprintf(now, sizeof now, SUM_FORMAT, sum);
    failed = json_get_string(&all, "frozen", JSON_REQUIRED, &before, e);
    if (!failed && strcmp(before, now))
        failed = pt_fail(e, PT_FAILED, "the weights of %.300s that are not trained have changed since step %lld of this run: give the "
                                       "`model` that the run began with", trainer->job.model_dir, (long long)trainer->at.step);
    json_source_close(&all);
    return failed;
}

int commits_load(trainer *trainer, pt_error *e)
{
    state state;
    checkpoint_compare_arithmetic(trainer, trainer->out.from);
    state_open(&state, trainer->engine.x);
    base_lend(&trainer->job.base, &state);
    state.base_sum = trainer->job.base_sum;
    state.origin_sum = trainer->job.base.sum;
    int failed = state_load_slots(&state, trainer->out.committed, e);
    if (!failed && trainer->job.model->adapters)
        failed = checkpoint_compare_base(trainer, &state, trainer->out.from, e);
    if (!failed)
        failed = base_compare(&trainer->job.base, &state, trainer->out.from, e);
    if (!failed && !model_trains_all(trainer->job.model) && !trainer->job.model->adapters)
        failed = compare_frozen(trainer, &state, e);
    const int closed = state_close(&state, failed ? NULL : e);
    if (!failed && !closed)
        engine_loaded(&trainer->engine);
    return failed ? failed : closed;
}

/* ---- opening ---- */

/* Why states cannot have two slots here, apart from room; NULL: they can. */
static const char *find_obstacle(const trainer *trainer, uint64_t on_disk)
{
    if (trainer->comm)
        return "several ranks share the states";
    if (block_turns_groups(&trainer->job.o, trainer->job.model) > 1)
        return "layers are trained by turns";
    return on_disk ? NULL : "the plan keeps no states on the disk";
}

/* The bytes that are free for the slots, beside the disk tier's other contents and what the run saves. */
static int find_room(const trainer *trainer, uint64_t on_disk, uint64_t *room, pt_error *e)
{
    const planning *planning = &trainer->planning;
    const uint64_t asked = trainer->job.o.disk_memory, all = planning->result.best.bytes[TIER_DISK],
                   rest = all > on_disk ? all - on_disk : 0;
    uint64_t have, kept = rest + planning->disk_reserve + MACHINE_DISK_MARGIN;
    int failed = disk_room_bytes(planning->disk_path, &have, e);
    have += commits_found_bytes(trainer->out.path);
    if (!failed && asked != PT_AUTO && asked < have) {
        have = asked;
        kept = rest;
    }
    *room = have > kept ? have - kept : 0;
    return failed;
}

/* Adopts the file of the commit that the run continues from, or creates one. */
static int open_file(trainer *trainer, const schedule_input *in, pt_error *e)
{
    commits *c = &trainer->commits;
    char path[FILE_PATH_BYTES], found[FILE_PATH_BYTES];
    const slots_view *v = trainer->out.committed;
    commit_file_find(trainer->out.path, found);
    const bool same = v && slots_view_layout(v) == slots_layout(in->packing) && disk_is_same(found, trainer->planning.disk_path);
    int failed = commit_file_path(trainer, path, e);
    if (!failed)
        failed = dir_make(trainer->planning.disk_path, e);
    if (failed)
        return failed;
    c->created = !same;
    snprintf(c->old, sizeof c->old, "%s", found[0] && !same && strcmp(found, path) ? found : "");
    if (c->old[0] && !v) {
        unlink(c->old);
        c->old[0] = 0;
    }
    return slots_open(same ? found : path, in, same ? v : NULL, NULL, &c->slots, e);
}

static int refuse_room(const trainer *trainer, uint64_t need, uint64_t room, pt_error *e)
{
    char a[32], b[32];
    size_format(a, need);
    size_format(b, room);
    if (trainer->job.o.disk_slots == 2)
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "%.400s: two slots of each state take %s, but only %s are free for them: make room, give another `disk_path`, or "
                       "`disk_slots` 1", trainer->planning.disk_path, a, b);
    options_notice(&trainer->job.o,
                   "%.400s: two slots of each state would take %s, and %s are free for them: steps are not committed; only "
                   "`save_every` writes what a run can be resumed from",
                   trainer->planning.disk_path, a, b);
    return 0;
}

static void tell(const trainer *trainer, uint64_t bytes)
{
    char size[32], often[64];
    snprintf(often, sizeof often, trainer->commits.every == 1 ? "every step" : "every %lld steps", (long long)trainer->commits.every);
    options_notice(&trainer->job.o,
                   "states on the disk have two slots, %s in %.400s: they are committed %s, and `resume` continues from there",
                   size_format(size, bytes), trainer->planning.disk_path, often);
}

int commits_open(trainer *trainer, pt_error *e)
{
    commits *c = &trainer->commits;
    const schedule_input in = trainer_schedules(trainer);
    const uint64_t need = slots_bytes(in.packing);
    uint64_t on_disk, elsewhere, room;
    c->step = -1;
    if (trainer->job.o.disk_slots == 1)
        return 0;
    slots_count(&in, &on_disk, &elsewhere);
    const char *obstacle = find_obstacle(trainer, on_disk);
    if (obstacle) {
        if (trainer->job.o.disk_slots == 2)
            options_notice(&trainer->job.o, "`disk_slots` 2 has no effect: %s", obstacle);
        return 0;
    }
    int failed = find_room(trainer, on_disk, &room, e);
    if (failed || room < need || (!trainer->job.o.disk_slots && disk_is_memory(trainer->planning.disk_path)))
        return failed || room >= need ? failed : refuse_room(trainer, need, room, e);
    c->every = (int64_t)((20 * elsewhere + on_disk - 1) / on_disk);
    c->every = c->every > 1 ? c->every : 1;
    failed = open_file(trainer, &in, e);
    if (!failed && trainer->at.step == trainer->at.first_step)
        tell(trainer, need);
    return failed;
}

/* ---- committing ---- */

static int commit(trainer *trainer, pt_error *e)
{
    commits *c = &trainer->commits;
    json_t *all = checkpoint_counters(trainer);
    if (all && !model_trains_all(trainer->job.model))
        json_object_set_new(all, "frozen", json_sprintf(SUM_FORMAT, c->frozen));
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    int failed =
        text ? commit_states(trainer->engine.x, c->slots, trainer->at.step, text, strlen(text), e) : pt_fail(e, PT_FAILED, "out of memory");
    free(text);
    json_decref(all);
    if (failed)
        return failed;
    c->step = trainer->at.step;
    if (c->created && c->old[0])
        failed = commit_file_record(trainer, slots_path(c->slots), e);
    c->created = c->created && failed;
    if (!failed && c->old[0]) {
        unlink(c->old);
        c->old[0] = 0;
    }
    return failed;
}

static int sum_frozen(trainer *trainer, pt_error *e)
{
    state state;
    state_open(&state, trainer->engine.x);
    int failed = state_frozen_sum(&state, &trainer->commits.frozen, e), closed = state_close(&state, failed ? NULL : e);
    return failed ? failed : closed;
}

/* Of a run that has one slot from here on: the commit that it continues from goes when a checkpoint replaces it, another one now. */
static void end_commits(trainer *trainer, const slots_view *from)
{
    commits *c = &trainer->commits;
    commit_file_find(trainer->out.path, c->old);
    c->step = trainer->at.step;
    if (from || !c->old[0] || !ranks_lead(trainer))
        return;
    commit_file_remove(trainer, c->old);
    c->old[0] = 0;
}

int commits_begin(trainer *trainer, pt_error *e)
{
    commits *c = &trainer->commits;
    const bool continues = trainer->out.committed;
    if (!c->slots)
        end_commits(trainer, trainer->out.committed);
    else
        c->step = continues && !c->created ? trainer->at.step : -1;
    slots_view_close(trainer->out.committed);
    trainer->out.committed = NULL;
    if (!c->slots)
        return 0;
    int failed = model_trains_all(trainer->job.model) ? 0 : sum_frozen(trainer, e);
    if (!failed && c->created && !c->old[0])
        failed = commit_file_record(trainer, slots_path(c->slots), e);
    return failed || c->step >= 0 || !trainer->at.step ? failed : commit(trainer, e);
}

int commits_step(trainer *trainer, pt_error *e)
{
    const commits *c = &trainer->commits;
    const bool due = c->slots && trainer->at.step > c->step && (c->step < 0 || trainer->at.step - c->step >= c->every);
    return due ? commit(trainer, e) : 0;
}

/* ---- closing ---- */

void commits_leave(trainer *trainer)
{
    commits *c = &trainer->commits;
    if (!c->slots)
        return;
    unlink(slots_path(c->slots));
    slots_close(c->slots);
    c->slots = NULL;
    trainer->planning.disk_own = 0;
}

bool commits_add_advice(const trainer *trainer, pt_error *e)
{
    const commits *c = &trainer->commits;
    if (!e || !c->slots || c->step <= checkpoints_newest(trainer->out.path, trainer->at.step))
        return false;
    const size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, "; step %lld is committed: continue from it with `resume`", (long long)c->step);
    return true;
}

void commits_close(trainer *trainer, bool undo)
{
    commits *c = &trainer->commits;
    char path[FILE_PATH_BYTES];
    const bool replaced = !undo && (trainer->at.model_step || trainer->at.saved_step >= c->step);
    snprintf(path, sizeof path, "%s", c->slots ? slots_path(c->slots) : "");
    slots_close(c->slots);
    c->slots = NULL;
    slots_view_close(trainer->out.committed);
    trainer->out.committed = NULL;
    if (!ranks_lead(trainer))
        return;
    if (replaced && c->old[0])
        unlink(c->old);
    if (replaced && (path[0] || c->old[0]))
        commit_file_remove(trainer, path);
    else if (path[0] && c->step < 0) /* nothing can be continued from it */
        unlink(path);
}
