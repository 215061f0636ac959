#include "train/turn_files.h"

#include "io/safetensors.h"
#include "run/state.h"
#include "train/checkpoint.h"
#include "train/options.h"

#include <stdlib.h>

struct turn_files {
    safetensors *base;                              /* NULL: random weights */
    safetensors *of_block[MODEL_MAX_LAYERS + 2];    /* NULL: the base has them; blocks of one group share the file of their first */
    int64_t step[MODEL_MAX_LAYERS + 2];             /* after which the file was written */
    int64_t last;                                   /* after which what every turn trains was written */
};

static int folder_of(const trainer *t, char folder[FILE_PATH_BYTES], int64_t step, pt_error *e)
{
    char name[32] = "turns";
    if (step >= 0)
        snprintf(name, sizeof name, "turns/%lld", (long long)step);
    return path_join(folder, t->out.path, name, e);
}

static int folder_of_always(const trainer *t, char folder[FILE_PATH_BYTES], int64_t step, pt_error *e)
{
    char turn[FILE_PATH_BYTES];
    const int failed = folder_of(t, turn, step, e);
    return failed ? failed : path_join(folder, turn, "always", e);
}

/* Also what a killed run has left. */
static void remove_folder(const trainer *t, const char *folder)
{
    pt_error e = {0};
    if (path_exists(folder) && tree_discard(folder, &e))
        options_notice(&t->job.o, "files that are no longer needed could not be removed: %.600s", e.text);
}

static void remove_files(const trainer *t, int64_t step)
{
    char folder[FILE_PATH_BYTES];
    if (!folder_of(t, folder, step, NULL))
        remove_folder(t, folder);
}

int turn_files_open(trainer *t, pt_error *e)
{
    t->turns = calloc(1, sizeof *t->turns);
    if (!t->turns)
        return pt_fail(e, PT_FAILED, "out of memory");
    remove_files(t, -1);
    if (t->out.from[0])
        return checkpoint_open_weights(t, t->out.from, &t->turns->base, e);
    return t->job.random_init ? 0 : safetensors_open(t->job.model_dir, &t->turns->base, e);
}

static int first_block(const trainer *t) { return 1 + t->group * (int)t->job.o.train_blocks; }

static int export_layers(trainer *t, const char *folder, pt_error *e)
{
    state s;
    state_open(&s, t->engine.x);
    int failed = dir_make(folder, e);
    if (!failed)
        failed = state_export_trained(&s, folder, "model", checkpoint_rounds(t) ? PT_BF16 : PT_F32, e);
    const int closed = state_close(&s, failed ? NULL : e);
    return failed ? failed : closed;
}

/* Masters are not rounded: what goes on is what it was. */
static int export_always(trainer *t, pt_error *e)
{
    char folder[FILE_PATH_BYTES], old[FILE_PATH_BYTES];
    state s;
    state_open(&s, t->engine.x);
    int failed = folder_of_always(t, folder, t->at.step, e);
    if (!failed && state_has_always(&s, STATE_MASTER))
        failed = dir_make(folder, e);
    for (int k = 0; k < state_kinds(s.in) && !failed; k++)
        failed = state_has_always(&s, k) ? state_export_always(&s, k, folder, e) : 0;
    const int closed = state_close(&s, failed ? NULL : e);
    if (!failed && !closed && t->turns->last && !folder_of_always(t, old, t->turns->last, NULL))
        remove_folder(t, old);
    t->turns->last = t->at.step;
    return failed ? failed : closed;
}

static int load_always(trainer *t, state *s, pt_error *e)
{
    char folder[FILE_PATH_BYTES], name[64], path[FILE_PATH_BYTES];
    int failed = folder_of_always(t, folder, t->turns->last, e);
    for (int k = 0; k < state_kinds(s->in) && !failed; k++) {
        safetensors *st;
        if (!state_has_always(s, k))
            continue;
        snprintf(name, sizeof name, "%s.safetensors", state_name(s->in, k));
        failed = path_join(path, folder, name, e);
        if (!failed)
            failed = safetensors_open(path, &st, e);
        if (failed)
            return failed;
        failed = state_load_always(s, k, st, e);
        safetensors_close(st);
    }
    return failed;
}

int turn_files_write(trainer *t, pt_error *e)
{
    struct turn_files *files = t->turns;
    const int first = first_block(t);
    char folder[FILE_PATH_BYTES];
    safetensors *written;
    int failed = trainer_drain(t, e);
    if (!failed)
        failed = folder_of(t, folder, t->at.step, e);
    if (!failed)
        failed = export_layers(t, folder, e);
    if (!failed)
        failed = export_always(t, e);
    if (!failed)
        failed = safetensors_open(folder, &written, e);
    if (failed)
        return failed;
    if (files->of_block[first])
        remove_files(t, files->step[first]);
    safetensors_close(files->of_block[first]);
    for (int i = first; i < first + t->job.o.train_blocks && i < t->job.model->blocks_n - 1; i++)
        files->of_block[i] = written;
    files->step[first] = t->at.step;
    return 0;
}

int turn_files_load(trainer *t, pt_error *e)
{
    const struct turn_files *files = t->turns;
    state s;
    state_open(&s, t->engine.x);
    int failed = state_load_blocks(&s, &(state_origin){files->base, t->job.o.seed}, (const safetensors *const *)files->of_block, e);
    if (!failed)
        failed = load_always(t, &s, e);
    const int closed = state_close(&s, failed ? NULL : e);
    if (!failed && !closed)
        engine_loaded(&t->engine);
    return failed ? failed : closed;
}

void turn_files_close(trainer *t)
{
    if (!t->turns)
        return;
    safetensors *last = NULL;
    for (int i = 0; i < t->job.model->blocks_n; i++) {
        if (t->turns->of_block[i] != last)
            safetensors_close(t->turns->of_block[i]);
        last = t->turns->of_block[i];
    }
    safetensors_close(t->turns->base);
    remove_files(t, -1);
    free(t->turns);
    t->turns = NULL;
}
