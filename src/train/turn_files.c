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

static int folder_of(const trainer *trainer, char folder[FILE_PATH_BYTES], int64_t step, pt_error *e)
{
    char name[32] = "turns";
    if (step >= 0)
        snprintf(name, sizeof name, "turns/%lld", (long long)step);
    return path_join(folder, trainer->out.path, name, e);
}

static int folder_of_always(const trainer *trainer, char folder[FILE_PATH_BYTES], int64_t step, pt_error *e)
{
    char turn[FILE_PATH_BYTES];
    const int failed = folder_of(trainer, turn, step, e);
    return failed ? failed : path_join(folder, turn, "always", e);
}

/* Also what a killed run has left. */
static void remove_folder(const trainer *trainer, const char *folder)
{
    pt_error e = {0};
    if (path_exists(folder) && tree_discard(folder, &e))
        options_notice(&trainer->job.o, "files that are no longer needed could not be removed: %.600s", e.text);
}

static void remove_files(const trainer *trainer, int64_t step)
{
    char folder[FILE_PATH_BYTES];
    if (!folder_of(trainer, folder, step, NULL))
        remove_folder(trainer, folder);
}

int turn_files_open(trainer *trainer, pt_error *e)
{
    trainer->turns = calloc(1, sizeof *trainer->turns);
    if (!trainer->turns)
        return pt_fail(e, PT_FAILED, "out of memory");
    remove_files(trainer, -1);
    if (trainer->out.from[0])
        return checkpoint_open_weights(trainer, trainer->out.from, &trainer->turns->base, e);
    return trainer->job.random_init ? 0 : safetensors_open(trainer->job.model_dir, &trainer->turns->base, e);
}

static int first_block(const trainer *trainer) { return 1 + trainer->group * (int)trainer->job.o.train_blocks; }

static int export_layers(trainer *trainer, const char *folder, pt_error *e)
{
    state state;
    state_open(&state, trainer->engine.x);
    int failed = dir_make(folder, e);
    if (!failed)
        failed = state_export_trained(&state, folder, "model", checkpoint_rounds(trainer) ? PT_BF16 : PT_F32, e);
    const int closed = state_close(&state, failed ? NULL : e);
    return failed ? failed : closed;
}

/* Masters are not rounded: what goes on is what it was. */
static int export_always(trainer *trainer, pt_error *e)
{
    char folder[FILE_PATH_BYTES], old[FILE_PATH_BYTES];
    state state;
    state_open(&state, trainer->engine.x);
    int failed = folder_of_always(trainer, folder, trainer->at.step, e);
    if (!failed && state_has_always(&state, STATE_MASTER))
        failed = dir_make(folder, e);
    for (int k = 0; k < state_kinds(state.in) && !failed; k++)
        failed = state_has_always(&state, k) ? state_export_always(&state, k, folder, e) : 0;
    const int closed = state_close(&state, failed ? NULL : e);
    if (!failed && !closed && trainer->turns->last && !folder_of_always(trainer, old, trainer->turns->last, NULL))
        remove_folder(trainer, old);
    trainer->turns->last = trainer->at.step;
    return failed ? failed : closed;
}

static int load_always(trainer *trainer, state *state, pt_error *e)
{
    char folder[FILE_PATH_BYTES], name[64], path[FILE_PATH_BYTES];
    int failed = folder_of_always(trainer, folder, trainer->turns->last, e);
    for (int k = 0; k < state_kinds(state->in) && !failed; k++) {
        safetensors *st;
        if (!state_has_always(state, k))
            continue;
        snprintf(name, sizeof name, "%s.safetensors", state_name(state->in, k));
        failed = path_join(path, folder, name, e);
        if (!failed)
            failed = safetensors_open(path, &st, e);
        if (failed)
            return failed;
        failed = state_load_always(state, k, st, e);
        safetensors_close(st);
    }
    return failed;
}

int turn_files_write(trainer *trainer, pt_error *e)
{
    struct turn_files *files = trainer->turns;
    const int first = first_block(trainer);
    char folder[FILE_PATH_BYTES];
    safetensors *written;
    int failed = trainer_drain(trainer, e);
    if (!failed)
        failed = folder_of(trainer, folder, trainer->at.step, e);
    if (!failed)
        failed = export_layers(trainer, folder, e);
    if (!failed)
        failed = export_always(trainer, e);
    if (!failed)
        failed = safetensors_open(folder, &written, e);
    if (failed)
        return failed;
    if (files->of_block[first])
        remove_files(trainer, files->step[first]);
    safetensors_close(files->of_block[first]);
    for (int i = first; i < first + trainer->job.o.train_blocks && i < trainer->job.model->blocks_n - 1; i++)
        files->of_block[i] = written;
    files->step[first] = trainer->at.step;
    return 0;
}

int turn_files_load(trainer *trainer, pt_error *e)
{
    const struct turn_files *files = trainer->turns;
    state state;
    state_open(&state, trainer->engine.x);
    int failed =
        state_load_blocks(&state, &(state_origin){files->base, trainer->job.o.seed}, (const safetensors *const *)files->of_block, e);
    if (!failed)
        failed = load_always(trainer, &state, e);
    const int closed = state_close(&state, failed ? NULL : e);
    if (!failed && !closed)
        engine_loaded(&trainer->engine);
    return failed ? failed : closed;
}

void turn_files_close(trainer *trainer)
{
    if (!trainer->turns)
        return;
    safetensors *last = NULL;
    for (int i = 0; i < trainer->job.model->blocks_n; i++) {
        if (trainer->turns->of_block[i] != last)
            safetensors_close(trainer->turns->of_block[i]);
        last = trainer->turns->of_block[i];
    }
    safetensors_close(trainer->turns->base);
    remove_files(trainer, -1);
    free(trainer->turns);
    trainer->turns = NULL;
}
