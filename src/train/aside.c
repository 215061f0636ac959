#include "train/aside.h"

#include "train/checkpoints.h"
#include "train/fetch.h"
#include "train/options.h"
#include "train/ranks.h"

#include <string.h>

/* Rank 0 removes its folder, then the others the copies. */
static int discard_checkpoint(const trainer *t, const char *path, pt_error *e)
{
    pt_error why = {0};
    if (ranks_lead(t) && tree_discard(path, &why)) /* the run continues */
        options_notice(&t->job.o, "the folder in which the state was saved for the change could not be removed: %.600s", why.text);
    const int failed = ranks_wait(t, e);
    if (!failed && !ranks_lead(t) && path_exists(path))
        tree_discard(path, NULL);
    return failed;
}

int aside_begin(aside *a, trainer *t, pt_error *e)
{
    int failed = step_folder_path(t->out.path, t->at.step, a->path, e);
    if (failed)
        return failed;
    a->saved = t->at.saved_step;
    a->wanted = a->saved == t->at.step || path_exists(a->path);
    return ranks_share(t, &a->wanted, sizeof a->wanted, e);
}

int aside_spread(const aside *a, trainer *t, pt_error *e)
{
    char from[FILE_PATH_BYTES];
    memcpy(from, t->out.from, sizeof from);
    snprintf(t->out.from, sizeof t->out.from, "%s", a->path);
    const int failed = fetch_checkpoint(t, e);
    memcpy(t->out.from, from, sizeof from);
    return failed;
}

int aside_end(const aside *a, trainer *t, pt_error *e)
{
    t->at.saved_step = a->wanted ? t->at.saved_step : a->saved;
    return a->wanted ? 0 : discard_checkpoint(t, a->path, e);
}
