#include "train/fetch.h"

#include "io/files.h"
#include "train/options.h"
#include "train/ranks.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 240, FILES_MOST = 4096, PIECE_BYTES = 4 << 20, COUNTERS_MOST = 16 << 20 };

typedef struct entry { char name[NAME_BYTES]; uint64_t bytes; } entry;
typedef struct listing { entry *of; int n; } listing;

/* ---- who needs the checkpoint ---- */

/* A hash that identifies a checkpoint; 0: none. */
static uint64_t mark_of(const char *folder)
{
    char path[FILE_PATH_BYTES], *data;
    size_t n;
    if (path_join(path, folder, "trainer/trainer.json", NULL) || file_read_all(path, COUNTERS_MOST, &data, &n, NULL))
        return 0;
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3u;
    free(data);
    return hash ? hash : 1;
}

typedef struct view { uint64_t machine, mark; char host[64]; } view;

/* The first rank of each machine that does not see rank 0's checkpoint. had: the ranks to which it was copied. */
static int find_needy(const trainer *trainer, bool had[COMM_RANKS_MOST], int needy[COMM_RANKS_MOST], int *n, pt_error *e)
{
    view own = {.machine = trainer->comm->machine, .mark = mark_of(trainer->out.from)}, all[COMM_RANKS_MOST];
    (void)!gethostname(own.host, sizeof own.host - 1);
    int failed = comm_all_gather(trainer->comm, &own, sizeof own, all, e);
    *n = 0;
    for (int r = 1; r < trainer->comm->ranks && !failed && all[0].mark; r++) {
        bool first = all[r].mark != all[0].mark;
        for (int i = 0; i < *n; i++)
            first = first && all[needy[i]].machine != all[r].machine;
        if (!first)
            continue;
        if (had[r])
            return pt_fail(e, PT_FAILED, "rank %d on %s does not see %.600s, which was copied there: another process may have removed it",
                           r, all[r].host, trainer->out.from);
        had[needy[(*n)++] = r] = true;
        options_notice(&trainer->job.o, "rank %d on %s does not see %.600s: it is copied there", r, all[r].host, trainer->out.from);
    }
    return failed;
}

/* ---- its files ---- */

bool fetch_name_is_safe(const char *name)
{
    const size_t n = strnlen(name, NAME_BYTES);
    if (!n || n == NAME_BYTES || name[0] == '/' || strstr(name, "..") || strstr(name, "//"))
        return false;
    for (const char *c = name; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("._-/", *c))
            return false;
    return true;
}

static int list_folder(listing *l, const char *folder, const char *below, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, below, e);
    DIR *d = failed ? NULL : opendir(path);
    if (!failed && !d)
        return pt_fail_errno(e, PT_FAILED, "%.600s cannot be read", path);
    for (struct dirent *x; !failed && (x = readdir(d));) {
        struct stat st;
        entry *at = &l->of[l->n];
        const int n = snprintf(at->name, NAME_BYTES, "%s%s%s", below, below[0] ? "/" : "", x->d_name);
        if (n >= NAME_BYTES || !fetch_name_is_safe(at->name) || x->d_name[0] == '.')
            continue;
        failed = path_join(path, folder, at->name, e);
        if (failed || stat(path, &st) || !S_ISREG(st.st_mode))
            continue;
        at->bytes = (uint64_t)st.st_size;
        if (++l->n == FILES_MOST)
            failed = pt_fail(e, PT_FAILED, "%.600s has too many files", folder);
    }
    if (d)
        closedir(d);
    return failed;
}

static int share_listing(const trainer *trainer, listing *l, pt_error *e)
{
    int failed = ranks_lead(trainer) ? list_folder(l, trainer->out.from, "", e) : 0;
    if (!failed && ranks_lead(trainer))
        failed = list_folder(l, trainer->out.from, "trainer", e);
    if (!failed)
        failed = ranks_share(trainer, &l->n, sizeof l->n, e);
    if (!failed && (l->n < 0 || l->n > FILES_MOST))
        failed = pt_fail(e, PT_FAILED, "rank 0 lists %d files of a checkpoint", l->n);
    if (!failed)
        failed = ranks_share(trainer, l->of, (size_t)l->n * sizeof *l->of, e);
    for (int i = 0; i < l->n && !failed; i++)
        if (!fetch_name_is_safe(l->of[i].name))
            failed = pt_fail(e, PT_FAILED, "rank 0 lists a file of a checkpoint that would lie elsewhere");
    return failed;
}

/* ---- copying ---- */

/* fd: the file that this rank sends or writes; else -1. */
static int copy_piece(const trainer *trainer, const int *needy, int n, int fd, const char *path, uint64_t at, size_t bytes, char *piece,
                      pt_error *e)
{
    comm_move moves[COMM_RANKS_MOST];
    int k = 0, failed = ranks_lead(trainer) ? fd_pread_all(fd, piece, bytes, at, path, e) : 0;
    for (int i = 0; i < n; i++)
        if (ranks_lead(trainer))
            moves[k++] = comm_send(needy[i], piece, bytes);
        else if (needy[i] == trainer->comm->rank)
            moves[k++] = comm_receive(0, piece, bytes);
    if (!failed)
        failed = comm_exchange(trainer->comm, moves, k, e);
    return failed || ranks_lead(trainer) ? failed : fd_pwrite_all(fd, piece, bytes, at, path, e);
}

static int copy_file(const trainer *trainer, const int *needy, int n, const char *folder, const entry *x, char *piece, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, folder, x->name, e);
    const int fd = failed ? -1 : open(path, ranks_lead(trainer) ? O_RDONLY | O_CLOEXEC : O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (!failed && fd < 0)
        failed = pt_fail_errno(e, PT_FAILED, "%.600s cannot be opened", path);
    for (uint64_t at = 0; at < x->bytes && !failed; at += PIECE_BYTES) {
        const size_t bytes = x->bytes - at < PIECE_BYTES ? (size_t)(x->bytes - at) : PIECE_BYTES;
        failed = copy_piece(trainer, needy, n, fd, path, at, bytes, piece, e);
    }
    if (fd >= 0 && close(fd) && !failed && !ranks_lead(trainer))
        failed = pt_fail_errno(e, PT_FAILED, "%.600s cannot be written", path);
    return failed;
}

static int copy_files(const trainer *trainer, const int *needy, int n, const listing *l, pt_error *e)
{
    char trainer_folder[FILE_PATH_BYTES], *piece = malloc(PIECE_BYTES);
    dir_stage stage;
    int failed = piece ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    const bool writes = !ranks_lead(trainer);
    if (!failed && writes)
        failed = dir_stage_begin(&stage, trainer->out.from, e);
    const bool begun = !failed && writes;
    if (begun)
        failed = path_join(trainer_folder, stage.path, "trainer", e);
    if (begun && !failed)
        failed = dir_make(trainer_folder, e);
    for (int i = 0; i < l->n && !failed; i++)
        failed = copy_file(trainer, needy, n, writes ? stage.path : trainer->out.from, &l->of[i], piece, e);
    if (begun && !failed)
        failed = dir_stage_commit(&stage, e);
    else if (begun)
        dir_stage_abort(&stage);
    free(piece);
    return failed;
}

static int copy_to(const trainer *trainer, const int *needy, int n, pt_error *e)
{
    listing l = {calloc(FILES_MOST + 1, sizeof *l.of), 0};
    int failed = l.of ? share_listing(trainer, &l, e) : pt_fail(e, PT_FAILED, "out of memory");
    bool copies = ranks_lead(trainer);
    for (int i = 0; i < n; i++)
        copies = copies || needy[i] == trainer->comm->rank;
    if (!failed && copies)
        failed = copy_files(trainer, needy, n, &l, e);
    free(l.of);
    return failed ? failed : ranks_wait(trainer, e);
}

/* Ranks of one machine may still have different folders, so all look again after each copy. */
int fetch_checkpoint(trainer *trainer, pt_error *e)
{
    bool had[COMM_RANKS_MOST] = {false};
    int needy[COMM_RANKS_MOST], n = 0;
    if (!trainer->comm || !trainer->out.from[0])
        return 0;
    int failed = find_needy(trainer, had, needy, &n, e);
    while (!failed && n) {
        failed = copy_to(trainer, needy, n, e);
        if (!failed)
            failed = find_needy(trainer, had, needy, &n, e);
    }
    return failed;
}
