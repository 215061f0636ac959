#include "train/shared_stage.h"

#include "train/ranks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A name in the folder that none had before: whoever sees it sees this very folder, and not another of its name. */
typedef struct mark { char name[32], path[FILE_PATH_BYTES]; } mark;

static int make_mark(const shared_stage *s, mark *m, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    uint64_t nonce;
    int failed = 0;
    const int random = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (random < 0 || read(random, &nonce, sizeof nonce) != sizeof nonce)
        failed = pt_fail_errno(e, PT_FAILED, "/dev/urandom cannot be read");
    if (random >= 0)
        close(random);
    snprintf(m->name, sizeof m->name, ".seen-%016llx", (unsigned long long)(failed ? 0 : nonce));
    if (!failed)
        failed = path_join(file, s->path, m->name, e);
    const int fd = failed ? -1 : open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (!failed && fd < 0)
        failed = pt_fail_errno(e, PT_FAILED, "%.600s cannot be written", file);
    if (fd >= 0)
        close(fd);
    return failed;
}

static int look(shared_stage *s, const trainer *trainer, const mark *m, pt_error *e)
{
    char file[FILE_PATH_BYTES];
    int failed = path_join(file, m->path, m->name, e);
    int64_t see = !failed && path_exists(file) && !access(m->path, W_OK);
    if (!failed)
        failed = ranks_add(trainer, &see, e);
    s->seen = see == trainer->comm->ranks;
    if (ranks_lead(trainer))
        unlink(file);
    return failed;
}

/* Sends rank 0's mark and path to all ranks. */
static int share_mark(shared_stage *s, const trainer *trainer, mark *m, pt_error *e)
{
    memcpy(m->path, s->path, sizeof m->path);
    int failed = ranks_share(trainer, m, sizeof *m, e);
    if (!failed && (!memchr(m->name, 0, sizeof m->name) || !memchr(m->path, 0, sizeof m->path)))
        failed = pt_fail(e, PT_FAILED, "rank 0 names a folder without an end");
    if (!failed)
        memcpy(s->path, m->path, sizeof s->path);
    return failed ? failed : look(s, trainer, m, e);
}

static int begin_own(shared_stage *s, const trainer *trainer, const char *final_path, mark *m, pt_error *e)
{
    if (!ranks_lead(trainer))
        return 0;
    int failed = dir_stage_begin(&s->own, final_path, e);
    if (!failed)
        memcpy(s->path, s->own.path, sizeof s->path);
    return failed || !trainer->comm ? failed : make_mark(s, m, e);
}

int shared_stage_begin(shared_stage *s, const trainer *trainer, const char *final_path, pt_error *e)
{
    *s = (shared_stage){.own.lock = -1};
    mark *m = calloc(1, sizeof *m);
    int failed = m ? begin_own(s, trainer, final_path, m, e) : pt_fail(e, PT_FAILED, "out of memory");
    failed = ranks_all(trainer, failed, e);
    if (!failed && trainer->comm)
        failed = share_mark(s, trainer, m, e);
    free(m);
    if (failed)
        dir_stage_abort(&s->own);
    return failed;
}

int shared_stage_end(shared_stage *s, const trainer *trainer, int failed, bool agreed, shared_stage_commit commit, pt_error *e)
{
    if (failed && !agreed)
        ranks_fail(trainer, failed, e); /* they may wait for something else of this rank */
    if (!failed)
        failed = ranks_all(trainer, ranks_lead(trainer) ? commit(trainer, &s->own, e) : 0, e);
    dir_stage_abort(&s->own);
    return failed;
}
