/* files.h - the files that a --data option names. */
#ifndef PT_DATA_FILES_H
#define PT_DATA_FILES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum data_kind { DATA_TEXT, DATA_JSONL, DATA_JSON, DATA_CSV, DATA_PARQUET, DATA_ARROW, DATA_NPY, DATA_BIN } data_kind;

typedef struct data_file {
    char *path; /* absolute */
    data_kind kind;
    uint64_t bytes;
    int64_t mtime_ns;
    double share; /* of its records; 1: all */
} data_file;

typedef struct data_files {
    data_file *files;
    size_t n, capacity;
    uint64_t bytes;         /* of all files */
    uint64_t skipped;       /* entries of folders that are not data files, and dangling links */
    char first_skipped[256];
    char other_splits[512]; /* the files of other splits (splits.h), for messages; "": none */
} data_files;

/* The kind by the end of the name, up to DATA_CSV also before .gz or .zst; negative: no data. */
int data_kind_of(const char *path, data_kind *kind);

/* Of a folder that has splits, only the files of one are taken. */
typedef enum data_use {
    DATA_TRAINS,    /* train */
    DATA_EVALUATES, /* validation */
    DATA_BESIDE     /* validation, and nothing but such folders: what goes with data to train on; there may be none */
} data_use;

/* Expands folders (one level, sorted by name byte by byte, without hidden files; or as saved.h has it) and classifies files by the end of
 * their names. A path may have a share of its records behind it (base/path_share.h). Errors: a path that does not exist, a named file of
 * another type, a folder without data files. Free with data_files_free, also after an error. */
int data_files_list(const char *const *paths, int paths_n, data_use use, data_files *out, pt_error *e);
void data_files_free(data_files *f);
bool data_files_beside(const char *const *paths, int paths_n); /* are there files for DATA_BESIDE? */
/* For people: the first path, names of others in the same folder, "and N more". */
void data_files_describe(const data_files *f, char *out, size_t n);
/* Adds notes about odd files to `out`: JSON records in a file named .txt. */
void data_files_note(const data_files *f, char *out, size_t n);

/* Text, which is tokenized; else ids. */
static inline bool data_kind_is_text(data_kind k) { return k != DATA_NPY && k != DATA_BIN; }

#endif
