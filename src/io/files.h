/* files.h - files and folders that are either there whole or not at all.
 *
 * Whatever gets a final name was written under another one, synced to the disk, and renamed; then
 * the folder that holds the name is synced too. After a crash or a full disk the old content
 * stands, and what was half-written carries ".tmp" in its name and is removed by the next writer.
 *
 *     PATH.tmp         a file that is being written; the writer holds flock() on it
 *     NAME.tmp-PID/    a folder that is being written (a checkpoint); the same
 *     .lock            in an output folder: the run that writes there holds flock() on it
 *
 * flock() tells the living from the dead: it ends with its process, in every PID namespace.
 * Where a filesystem has no flock (some network ones), writing goes on without that protection.
 *
 * All functions return 0 or PT_FAILED with a sentence in `e`. Nothing here is thread-safe for one
 * and the same path, everything is for different ones.
 */
#ifndef PT_FILES_H
#define PT_FILES_H

#include "base/error.h"

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { FILE_PATH_BYTES = 4096 };

/* out = folder/name ("" is the current folder). PT_FAILED if that is too long for FILE_PATH_BYTES. */
int path_join(char out[FILE_PATH_BYTES], const char *folder, const char *name, pt_error *e);
bool path_is_folder(const char *path);
bool path_exists(const char *path);

/* All of `n` bytes or an error; EINTR and short transfers are dealt with. `path` is for messages;
 * a full disk is reported with the bytes that were still to be written and those that are free. */
int fd_write_all(int fd, const void *data, size_t n, const char *path, pt_error *e);
int fd_pwrite_all(int fd, const void *data, size_t n, uint64_t offset, const char *path, pt_error *e);
int fd_pread_all(int fd, void *data, size_t n, uint64_t offset, const char *path, pt_error *e);

/* A descriptor for reading, and what stat says of it; -1 and the error where it is no file. A pipe without a writer is not waited for. */
int file_open_regular(const char *path, struct stat *st, pt_error *e);

/* The whole file, NUL-terminated behind its *n bytes; free() it. Larger than `limit`: an error. */
int file_read_all(const char *path, uint64_t limit, char **data, size_t *n, pt_error *e);

/* A file that is written from its start to its end, in pieces, and appears under its name whole or not at all: begin, write, commit;
 * abort always, which after commit does nothing. What is no file (a pipe, /dev/stdout) is written to. */
typedef struct file_stage {
    char path[FILE_PATH_BYTES], temporary[FILE_PATH_BYTES];
    int fd;
    bool stream;
} file_stage;
int file_stage_begin(file_stage *s, const char *path, pt_error *e);
int file_stage_write(file_stage *s, const void *data, size_t n, pt_error *e);
int file_stage_commit(file_stage *s, pt_error *e);
void file_stage_abort(file_stage *s);

/* Whether what a person names may be replaced: nothing is there, or a file that is empty or begins with `begin`, as such files do. What is
 * no file is not asked. */
int file_may_replace(const char *path, const char *begin, const char *what, pt_error *e);

/* Replaces the content of `path`, atomically and durably; what is no file (a pipe, /dev/stdout) is written to. */
int file_write_atomic(const char *path, const void *data, size_t n, pt_error *e);
int file_write_json(const char *path, const json_t *value, pt_error *e); /* indented, with a final newline */
int file_copy_atomic(const char *from, const char *to, pt_error *e);

/* A descriptor of a file that vanishes with it, in `folder` (NULL: where temporary files go), for what may be large; negative on error. */
int file_unnamed(const char *folder, pt_error *e);

const char *dir_temporary(void);                /* for large files: $TMPDIR, or /var/tmp, since /tmp is memory on many systems */
int dir_check_temporary(pt_error *e);           /* an error that names TMPDIR where it is no folder */
bool dir_find_existing(const char *path, char at[FILE_PATH_BYTES]); /* path, or its nearest parent that is there */
int dir_make(const char *path, pt_error *e);    /* with its parents; fine if it is there */
int dir_sync(const char *path, pt_error *e);    /* makes the names in it durable */
int tree_remove(const char *path, pt_error *e); /* links are removed, not followed; fine if absent */
int tree_discard(const char *path, pt_error *e); /* the same; a crash leaves a stage (below), never half of it under the name */
int disk_free_bytes(const char *path, uint64_t *bytes, pt_error *e); /* for this user, where path or its
                                                                        nearest existing parent lies */
bool disk_is_same(const char *a, const char *b); /* both lie in one file system, or would once they are made */
bool disk_is_memory(const char *path);          /* the same place is RAM: tmpfs, ramfs, hugetlbfs */
bool disk_is_full_error(int error_number);      /* ENOSPC, EDQUOT */

/* A folder that appears under its name complete or not at all:
 *     begin -> write files into stage.path -> commit or abort
 * begin removes what dead writers left beside it: NAME.tmp-PID, and where NAME ends in digits
 * (checkpoint-200) also those of other digits. commit syncs every file, renames, and replaces a
 * folder that already has the name in one atomic exchange, or in two renames where the file system has none.
 * abort (or a failed commit) removes the staged folder and leaves the old one as it was. */
typedef struct dir_stage {
    char path[FILE_PATH_BYTES];       /* write here */
    char final_path[FILE_PATH_BYTES];
    int lock;
} dir_stage;
/* Folders that a writer had put aside when it died, back under their names. */
void dir_stages_put_back(const char *parent, const char *base);
/* The same, and what begin removes of the family of `base` (checkpoint-0, model) in the folder `parent`. What cannot be removed does
 * no harm. */
void dir_stages_clean(const char *parent, const char *base);
int dir_stage_begin(dir_stage *s, const char *final_path, pt_error *e);
int dir_stage_commit(dir_stage *s, pt_error *e);
void dir_stage_abort(dir_stage *s);

/* At most one run writes into an output folder. PT_FAILED names the process that does. */
typedef struct dir_lock {
    char path[FILE_PATH_BYTES];
    int fd;
} dir_lock;
int dir_lock_take(dir_lock *l, const char *folder, pt_error *e);
void dir_lock_release(dir_lock *l); /* also removes the lock file */

#endif
