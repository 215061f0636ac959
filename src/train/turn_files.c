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
};

static int folder_of(const trainer *t, char folder[FILE_PATH_BYTES], int64_t step, pt_error *e)
{
    char name[32] = "turns";
    if (step >= 0)
        snprintf(name, sizeof name, "turns/%lld", (long long)step);
    return path_join(folder, t->out.path, name, e);
}

/* Also what a killed run has left. */
static void remove_files(const trainer *t, int64_t step)
{
    char folder[FILE_PATH_BYTES];
    pt_error e = {0};
    if (!folder_of(t, folder, step, NULL) && path_exists(folder) && tree_discard(folder, &e))
        options_notice(&t->job.o, "files that are no longer needed could not be removed: %.600s", e.text);
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
    const int failed = state_load_blocks(&s, &(state_origin){files->base, t->job.o.seed}, (const safetensors *const *)files->of_block, e);
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
