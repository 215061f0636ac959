/* files.h - atomic, durable writes of files and folders.
 *
 * A file or folder is written under a temporary name, synced to the disk, and renamed; then its parent folder is synced. After a crash or a
 * full disk the old content is unchanged; the incomplete one has ".tmp" in its name, and the next writer removes it.
 *
 *     PATH.tmp         a file that is being written; the writer holds flock() on it
 *     NAME.tmp-N/      a folder that is being written (a checkpoint), N a random number; its writer holds flock() on it
 *     .lock            in an output folder: the run that writes there holds flock() on it
 *
 * A process releases its flock() when it ends, however it ends and in any PID namespace, so a lock that is free means that its writer is
 * gone. On file systems without flock (some network ones) there is no such protection.
 *
 * All functions return 0, or PT_FAILED with a sentence in `e`. They are thread-safe for different paths, not for the same one.
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

/* out = folder/name ("" is the current folder). PT_FAILED if longer than FILE_PATH_BYTES. */
int path_join(char out[FILE_PATH_BYTES], const char *folder, const char *name, pt_error *e);
bool path_is_folder(const char *path);
bool path_exists(const char *path);

/* Writes all `n` bytes or fails; handles EINTR and short writes. `path` is for messages. If the disk is full, the message has the bytes not
 * yet written and the bytes free. */
int fd_write_all(int fd, const void *data, size_t n, const char *path, pt_error *e);
int fd_pwrite_all(int fd, const void *data, size_t n, uint64_t offset, const char *path, pt_error *e);
int fd_pread_all(int fd, void *data, size_t n, uint64_t offset, const char *path, pt_error *e);

/* Opens a regular file for reading; returns the descriptor, with its stat, or -1 with an error. Does not wait for a pipe's writer. */
int file_open_regular(const char *path, struct stat *st, pt_error *e);

/* Reads the whole file, and appends a NUL that *n does not count. The caller frees *data. PT_FAILED if larger than `limit`. */
int file_read_all(const char *path, uint64_t limit, char **data, size_t *n, pt_error *e);

/* A file that is written sequentially and replaces `path` atomically: begin, write, commit; always abort, which does nothing after commit.
 * If the path is a stream (a pipe, /dev/stdout), the data is written to it directly. */
typedef struct file_stage {
    char path[FILE_PATH_BYTES], temporary[FILE_PATH_BYTES];
    int fd;
    bool stream;
} file_stage;
int file_stage_begin(file_stage *s, const char *path, pt_error *e);
int file_stage_write(file_stage *s, const void *data, size_t n, pt_error *e);
int file_stage_commit(file_stage *s, pt_error *e);
void file_stage_abort(file_stage *s);

/* 0 if an output that the user names by `option` may be written: the path does not exist, or its file is empty or begins with `begin`, as
 * files of this kind (`what`) do. Streams are not checked. */
int file_may_replace(const char *path, const char *option, const char *begin, const char *what, pt_error *e);

/* Replaces the content of `path`, atomically and durably. A stream (a pipe, /dev/stdout) is written to directly. */
int file_write_atomic(const char *path, const void *data, size_t n, pt_error *e);
int file_write_json(const char *path, const json_t *value, pt_error *e); /* indented, with a final newline */
int file_copy_atomic(const char *from, const char *to, pt_error *e);

/* Creates an unnamed file, which may become large, in `folder` (NULL: dir_temporary). Returns its descriptor, or a negative code. */
int file_unnamed(const char *folder, pt_error *e);

const char *dir_temporary(void);                /* for large files: $TMPDIR, else /var/tmp (/tmp is in RAM on many systems) */
int dir_check_temporary(pt_error *e);           /* fails, naming TMPDIR, if it is not a folder */
bool dir_find_existing(const char *path, char at[FILE_PATH_BYTES]); /* path, or its nearest existing parent */
int dir_make(const char *path, pt_error *e);    /* with its parents; succeeds if it exists */
int dir_sync(const char *path, pt_error *e);    /* makes its entries durable */
int tree_remove(const char *path, pt_error *e); /* removes links, does not follow them; succeeds if absent */
int tree_discard(const char *path, pt_error *e); /* the same, atomically: a crash leaves a staged folder, no half tree */
int disk_free_bytes(const char *path, uint64_t *bytes, pt_error *e); /* for this user, on the file system of path
                                                                        or its nearest existing parent */
bool disk_is_same(const char *a, const char *b); /* both are on one file system, or will be when created */
bool disk_is_memory(const char *path);          /* that file system is in RAM: tmpfs, ramfs, hugetlbfs */
bool disk_is_full_error(int error_number);      /* ENOSPC, EDQUOT */
/* A file of `bytes` cannot be made, as errno says: names what is in the way, and what to do. */
int file_no_room(const char *path, uint64_t bytes, pt_error *e);
/* For EFBIG, behind a file's size. */
#define FILE_LIMIT_TEXT "more than the limit for files (ulimit -f): raise the limit in the shell with ulimit -f unlimited"

/* A folder that is replaced atomically:
 *     begin -> write files into stage.path -> commit or abort
 * begin removes what dead writers left in the parent folder: NAME.tmp-N, and if NAME ends in digits (checkpoint-200), also those with
 * other digits. commit syncs every file and renames the folder; it replaces an existing folder by an atomic exchange, or by two renames
 * where the file system has no exchange. abort (or a failed commit) removes the staged folder and leaves the existing one unchanged. */
typedef struct dir_stage {
    char path[FILE_PATH_BYTES];       /* write here */
    char final_path[FILE_PATH_BYTES];
    int lock;
} dir_stage;
/* Restores the names of folders that a writer had moved aside when it died. */
void dir_stages_put_back(const char *parent, const char *base);
/* The same; then removes what begin would remove for `base` (checkpoint-0, model) in `parent`. Errors are ignored: the leftovers are
 * harmless. */
void dir_stages_clean(const char *parent, const char *base);
int dir_stage_begin(dir_stage *s, const char *final_path, pt_error *e);
int dir_stage_commit(dir_stage *s, pt_error *e);
void dir_stage_abort(dir_stage *s);

/* Lets only one run write to an output folder. PT_FAILED names the process that holds the lock. */
typedef struct dir_lock {
    char path[FILE_PATH_BYTES];
    int fd;
} dir_lock;
int dir_lock_take(dir_lock *l, const char *folder, pt_error *e);
void dir_lock_release(dir_lock *l); /* also removes the lock file */

#endif
