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

static int sum_of_ranks(const trainer *t, uint64_t *sum, pt_error *e)
{
    uint64_t all[COMM_RANKS_MOST] = {*sum};
    int failed = t->comm ? comm_all_gather(t->comm, sum, sizeof *sum, all, e) : 0;
    *sum = all[0];
    for (int r = 1; t->comm && r < t->comm->ranks; r++)
        *sum += all[r];
    return failed;
}

/* Are the frozen weights those of the run that committed? */
static int compare_frozen(const trainer *t, state *s, pt_error *e)
{
    char file[FILE_PATH_BYTES], now[20];
    const char *before;
    json_source all;
    uint64_t sum;
    int failed = state_frozen_sum(s, &sum, e);
    if (!failed)
        failed = sum_of_ranks(t, &sum, e);
    if (!failed)
        failed = path_join(file, t->out.from, "trainer/trainer.json", e);
    if (!failed)
        failed = json_source_open(&all, file, e);
    if (failed)
        return failed;
    snprintf(now, sizeof now, SUM_FORMAT, sum);
    failed = json_get_string(&all, "frozen", JSON_REQUIRED, &before, e);
    if (!failed && strcmp(before, now))
        failed = pt_fail(e, PT_FAILED, "the weights of %.300s that are not trained have changed since step %lld of this run: give the "
                                       "`model` that the run began with", t->job.model_dir, (long long)t->at.step);
    json_source_close(&all);
    return failed;
}

int commits_load(trainer *t, pt_error *e)
{
    state s;
    checkpoint_compare_arithmetic(t, t->out.from);
    state_open(&s, t->engine.x);
    base_lend(&t->job.base, &s);
    s.base_sum = t->job.base_sum;
    s.origin_sum = t->job.base.sum;
    int failed = state_load_slots(&s, t->out.committed, e);
    if (!failed && t->job.model->adapters)
        failed = checkpoint_compare_base(t, &s, t->out.from, e);
    if (!failed)
        failed = base_compare(&t->job.base, &s, t->out.from, e);
    if (!failed && !model_trains_all(t->job.model) && !t->job.model->adapters)
        failed = compare_frozen(t, &s, e);
    const int closed = state_close(&s, failed ? NULL : e);
    if (!failed && !closed)
        engine_loaded(&t->engine);
    return failed ? failed : closed;
}

/* ---- opening ---- */

/* Why states cannot have two slots here, apart from room; NULL: they can. */
static const char *find_obstacle(const trainer *t, uint64_t on_disk)
{
    if (t->comm)
        return "several ranks share the states";
    if (block_turns_groups(&t->job.o, t->job.model) > 1)
        return "layers are trained by turns";
    return on_disk ? NULL : "the plan keeps no states on the disk";
}

/* The bytes that are free for the slots, beside the disk tier's other contents and what the run saves. */
static int find_room(const trainer *t, uint64_t on_disk, uint64_t *room, pt_error *e)
{
    const planning *p = &t->planning;
    const uint64_t asked = t->job.o.disk_memory, all = p->result.best.bytes[TIER_DISK], rest = all > on_disk ? all - on_disk : 0;
    uint64_t have, kept = rest + p->disk_reserve + MACHINE_DISK_MARGIN;
    int failed = disk_room_bytes(p->disk_path, &have, e);
    have += commits_found_bytes(t->out.path);
    if (!failed && asked != PT_AUTO && asked < have) {
        have = asked;
        kept = rest;
    }
    *room = have > kept ? have - kept : 0;
    return failed;
}

/* Adopts the file of the commit that the run continues from, or creates one. */
static int open_file(trainer *t, const schedule_input *in, pt_error *e)
{
    commits *c = &t->commits;
    char path[FILE_PATH_BYTES], found[FILE_PATH_BYTES];
    const slots_view *v = t->out.committed;
    commit_file_find(t->out.path, found);
    const bool same = v && slots_view_layout(v) == slots_layout(in->packing) && disk_is_same(found, t->planning.disk_path);
    int failed = commit_file_path(t, path, e);
    if (!failed)
        failed = dir_make(t->planning.disk_path, e);
    if (failed)
        return failed;
    commit_file_remove_others(t, found, path);
    c->created = !same;
    snprintf(c->old, sizeof c->old, "%s", found[0] && !same && strcmp(found, path) ? found : "");
    if (c->old[0] && !v) {
        unlink(c->old);
        c->old[0] = 0;
    }
    return slots_open(same ? found : path, in, same ? v : NULL, NULL, &c->slots, e);
}

static int refuse_room(const trainer *t, uint64_t need, uint64_t room, pt_error *e)
{
    char a[32], b[32];
    size_format(a, need);
    size_format(b, room);
    if (t->job.o.disk_slots == 2)
        return pt_fail(e, PT_DOES_NOT_FIT,
                       "%.400s: two slots of each state take %s, but only %s are free for them: make room, give another `disk_path`, or "
                       "`disk_slots` 1", t->planning.disk_path, a, b);
    options_notice(&t->job.o, "%.400s: two slots of each state would take %s, and %s are free for them: steps are not committed; only "
                              "`save_every` writes what a run can be resumed from", t->planning.disk_path, a, b);
    return 0;
}

static void tell(const trainer *t, uint64_t bytes)
{
    char size[32], often[64];
    snprintf(often, sizeof often, t->commits.every == 1 ? "every step" : "every %lld steps", (long long)t->commits.every);
    options_notice(&t->job.o, "states on the disk have two slots, %s in %.400s: they are committed %s, and `resume` continues from there",
                   size_format(size, bytes), t->planning.disk_path, often);
}

int commits_open(trainer *t, pt_error *e)
{
    commits *c = &t->commits;
    const schedule_input in = trainer_schedules(t);
    const uint64_t need = slots_bytes(in.packing);
    uint64_t on_disk, elsewhere, room;
    c->step = -1;
    if (t->job.o.disk_slots == 1)
        return 0;
    slots_count(&in, &on_disk, &elsewhere);
    const char *obstacle = find_obstacle(t, on_disk);
    if (obstacle) {
        if (t->job.o.disk_slots == 2)
            options_notice(&t->job.o, "`disk_slots` 2 has no effect: %s", obstacle);
        return 0;
    }
    int failed = find_room(t, on_disk, &room, e);
    if (failed || room < need || (!t->job.o.disk_slots && disk_is_memory(t->planning.disk_path)))
        return failed || room >= need ? failed : refuse_room(t, need, room, e);
    c->every = (int64_t)((20 * elsewhere + on_disk - 1) / on_disk);
    c->every = c->every > 1 ? c->every : 1;
    failed = open_file(t, &in, e);
    if (!failed && t->at.step == t->at.first_step)
        tell(t, need);
    return failed;
}

/* ---- committing ---- */

static int commit(trainer *t, pt_error *e)
{
    commits *c = &t->commits;
    json_t *all = checkpoint_counters(t);
    if (all && !model_trains_all(t->job.model))
        json_object_set_new(all, "frozen", json_sprintf(SUM_FORMAT, c->frozen));
    char *text = all ? json_dumps(all, JSON_INDENT(2)) : NULL;
    int failed = text ? commit_states(t->engine.x, c->slots, t->at.step, text, strlen(text), e) : pt_fail(e, PT_FAILED, "out of memory");
    free(text);
    json_decref(all);
    if (failed)
        return failed;
    c->step = t->at.step;
    if (c->created && c->old[0])
        failed = commit_file_record(t, slots_path(c->slots), e);
    c->created = c->created && failed;
    if (!failed && c->old[0]) {
        unlink(c->old);
        c->old[0] = 0;
    }
    return failed;
}

static int sum_frozen(trainer *t, pt_error *e)
{
    state s;
    state_open(&s, t->engine.x);
    int failed = state_frozen_sum(&s, &t->commits.frozen, e), closed = state_close(&s, failed ? NULL : e);
    return failed ? failed : closed;
}

/* Of a run that has one slot from here on: the commit that it continues from goes when a checkpoint replaces it, another one now. */
static void end_commits(trainer *t, const slots_view *from)
{
    commits *c = &t->commits;
    commit_file_find(t->out.path, c->old);
    c->step = t->at.step;
    if (from || !c->old[0] || !ranks_lead(t))
        return;
    commit_file_remove(t, c->old);
    c->old[0] = 0;
}

int commits_begin(trainer *t, pt_error *e)
{
    commits *c = &t->commits;
    const bool continues = t->out.committed;
    if (!c->slots)
        end_commits(t, t->out.committed);
    else
        c->step = continues && !c->created ? t->at.step : -1;
    slots_view_close(t->out.committed);
    t->out.committed = NULL;
    if (!c->slots)
        return 0;
    int failed = model_trains_all(t->job.model) ? 0 : sum_frozen(t, e);
    if (!failed && c->created && !c->old[0])
        failed = commit_file_record(t, slots_path(c->slots), e);
    return failed || c->step >= 0 || !t->at.step ? failed : commit(t, e);
}

int commits_step(trainer *t, pt_error *e)
{
    const commits *c = &t->commits;
    const bool due = c->slots && t->at.step > c->step && (c->step < 0 || t->at.step - c->step >= c->every);
    return due ? commit(t, e) : 0;
}

/* ---- closing ---- */

void commits_leave(trainer *t)
{
    commits *c = &t->commits;
    if (!c->slots)
        return;
    unlink(slots_path(c->slots));
    slots_close(c->slots);
    c->slots = NULL;
    t->planning.disk_own = 0;
}

bool commits_add_advice(const trainer *t, pt_error *e)
{
    const commits *c = &t->commits;
    if (!e || !c->slots || c->step <= checkpoints_newest(t->out.path, t->at.step))
        return false;
    const size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, "; step %lld is committed: continue from it with `resume`", (long long)c->step);
    return true;
}

void commits_close(trainer *t, bool undo)
{
    commits *c = &t->commits;
    char path[FILE_PATH_BYTES];
    const bool replaced = !undo && (t->at.model_step || t->at.saved_step >= c->step);
    snprintf(path, sizeof path, "%s", c->slots ? slots_path(c->slots) : "");
    slots_close(c->slots);
    c->slots = NULL;
    slots_view_close(t->out.committed);
    t->out.committed = NULL;
    if (!ranks_lead(t))
        return;
    if (replaced && c->old[0])
        unlink(c->old);
    if (replaced && (path[0] || c->old[0]))
        commit_file_remove(t, path);
    else if (path[0] && c->step < 0) /* nothing can be continued from it */
        unlink(path);
}
