#include "train/aside.h"

#include "train/checkpoints.h"
#include "train/fetch.h"
#include "train/options.h"
#include "train/ranks.h"

#include <string.h>

/* Rank 0 removes its folder, then the others the copies. */
static int discard_checkpoint(const trainer *trainer, const char *path, pt_error *e)
{
    pt_error why = {0};
    if (ranks_lead(trainer) && tree_discard(path, &why)) /* the run continues */
        options_notice(&trainer->job.o, "the folder in which the state was saved for the change could not be removed: %.600s", why.text);
    const int failed = ranks_wait(trainer, e);
    if (!failed && !ranks_lead(trainer) && path_exists(path))
        tree_discard(path, NULL);
    return failed;
}

int aside_begin(aside *a, trainer *trainer, pt_error *e)
{
    int failed = step_folder_path(trainer->out.path, trainer->at.step, a->path, e);
    if (failed)
        return failed;
    a->saved = trainer->at.saved_step;
    a->wanted = a->saved == trainer->at.step || path_exists(a->path);
    return ranks_share(trainer, &a->wanted, sizeof a->wanted, e);
}

int aside_spread(const aside *a, trainer *trainer, pt_error *e)
{
    char from[FILE_PATH_BYTES];
    memcpy(from, trainer->out.from, sizeof from);
    snprintf(trainer->out.from, sizeof trainer->out.from, "%s", a->path);
    const int failed = fetch_checkpoint(trainer, e);
    memcpy(trainer->out.from, from, sizeof from);
    return failed;
}

int aside_end(const aside *a, trainer *trainer, pt_error *e)
{
    trainer->at.saved_step = a->wanted ? trainer->at.saved_step : a->saved;
    return a->wanted ? 0 : discard_checkpoint(trainer, a->path, e);
}
