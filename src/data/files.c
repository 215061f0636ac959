#include "data/files.h"

#include "base/path_share.h"
#include "data/foreign.h"
#include "data/saved.h"
#include "data/splits.h"
#include "data/unpack.h"
#include "io/files.h"
#include "io/hub.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define KNOWN_TYPES ".txt, .jsonl, .json, .csv (also with .gz or .zst), .parquet, .arrow, .npy or .bin"

int data_kind_of(const char *path, data_kind *kind)
{
    static const struct { const char *end; data_kind kind; } known[] = {
        {".txt", DATA_TEXT}, {".jsonl", DATA_JSONL}, {".json", DATA_JSON}, {".csv", DATA_CSV},
        {".parquet", DATA_PARQUET}, {".arrow", DATA_ARROW}, {".npy", DATA_NPY}, {".bin", DATA_BIN},
    };
    size_t length;
    const bool packed = packing_of_name(path, &length) != PACKING_NONE;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t n = strlen(known[i].end);
        if (length >= n && !strncasecmp(path + length - n, known[i].end, n) && !(packed && known[i].kind > DATA_CSV)) {
            *kind = known[i].kind;
            return 0;
        }
    }
    return -1;
}

static int add_file(data_files *f, const char *path, data_kind kind, const struct stat *st, pt_error *e)
{
    if (f->n == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 16;
        data_file *files = realloc(f->files, capacity * sizeof *files);
        if (!files)
            return pt_fail(e, PT_FAILED, "out of memory: a list of %zu data files", capacity);
        f->files = files;
        f->capacity = capacity;
    }
    char *absolute = realpath(path, NULL);
    if (!absolute)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot resolve the path", path);
    f->files[f->n++] = (data_file){
        .path = absolute,
        .kind = kind,
        .share = 1,
        .bytes = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
    };
    f->bytes += (uint64_t)st->st_size;
    return 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void skip(data_files *f, const char *name, const char *why)
{
    if (f->skipped++ == 0)
        snprintf(f->first_skipped, sizeof f->first_skipped, "%.200s%s", name, why);
}

static bool is_data(const char *name)
{
    data_kind kind;
    return data_kind_of(name, &kind) == 0 || data_is_foreign(name);
}

/* Adds a name to the list of files of other splits. */
static void leave(data_files *f, const char *name)
{
    const size_t used = strlen(f->other_splits), room = sizeof f->other_splits - used;
    if (used + strlen(name) + 8 < sizeof f->other_splits)
        snprintf(f->other_splits + used, room, "%s%s", used ? ", " : "", name);
    else if (!strstr(f->other_splits, "..."))
        snprintf(f->other_splits + used, room, ", ...");
}

/* True for an empty file that should have a header or an array; an empty text is valid. */
static bool lacks_all(data_kind kind, const struct stat *st)
{
    return !st->st_size && (kind == DATA_JSON || kind > DATA_CSV);
}

/* Adds an entry of a folder if it is a data file, else counts it as skipped. */
static int add_entry(data_files *f, const char *folder, const char *name, pt_error *e)
{
    char *path;
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return pt_fail(e, PT_FAILED, "out of memory: the path of %s", name);
    struct stat st;
    data_kind kind;
    int rc = 0;
    if (stat(path, &st) < 0 && (errno == ELOOP || errno == ENOENT))
        skip(f, name, " (a link without a target)");
    else if (stat(path, &st) < 0)
        rc = pt_fail_errno(e, PT_FAILED, "%s: cannot examine this file", path);
    else if (S_ISREG(st.st_mode) && data_kind_of(name, &kind) == 0 && lacks_all(kind, &st))
        skip(f, name, " (empty)");
    else if (S_ISREG(st.st_mode) && data_kind_of(name, &kind) == 0)
        rc = add_file(f, path, kind, &st, e);
    else if (data_is_foreign(name))
        rc = data_refuse_foreign(path, e);
    else
        skip(f, name, "");
    free(path);
    return rc;
}

/* Whether the names of a folder's data files tell splits apart. */
static bool has_splits(struct dirent *const *entries, int n)
{
    bool has[SPLITS] = {false};
    for (int i = 0; i < n; i++)
        if (is_data(entries[i]->d_name))
            has[data_split_of(entries[i]->d_name)] = true;
    return has[SPLIT_TRAIN] && (has[SPLIT_VALIDATION] || has[SPLIT_TEST]);
}

/* Adds an entry of a folder that has splits, if it is of the one that is wanted. */
static int add_of_split(data_files *f, const char *folder, const char *name, data_use use, pt_error *e)
{
    const data_split wanted = use == DATA_TRAINS ? SPLIT_TRAIN : SPLIT_VALIDATION;
    if (!is_data(name) || data_split_of(name) == wanted)
        return add_entry(f, folder, name, e);
    leave(f, name);
    return 0;
}

static int add_entries(data_files *f, const char *folder, struct dirent *const *entries, int n, data_use use, pt_error *e)
{
    const bool splits = has_splits(entries, n);
    const size_t before = f->n;
    int rc = 0;
    for (int i = 0; i < n && rc == 0 && (splits || use != DATA_BESIDE); i++)
        rc = splits ? add_of_split(f, folder, entries[i]->d_name, use, e) : add_entry(f, folder, entries[i]->d_name, e);
    if (rc < 0 || f->n > before || use == DATA_BESIDE)
        return rc;
    if (splits)
        return pt_fail(e, PT_FAILED, "%s: the folder has files of several splits, but none that %s: name a file", folder,
                       use == DATA_TRAINS ? "can be trained on" : "is named for validation");
    return pt_fail(e, PT_FAILED, "%s: no data in this folder: none of its %d files is " KNOWN_TYPES " (folders inside it are not searched)",
                   folder, n);
}

/* The files of a set that save_to_disk wrote. */
static int add_saved_set(data_files *f, const char *folder, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    struct stat st;
    json_t *names, *name;
    size_t i;
    int rc = saved_names(folder, SAVED_SET, &names, e);
    if (rc < 0)
        return rc;
    json_array_foreach(names, i, name) {
        rc = rc < 0 ? rc : path_join(path, folder, json_string_value(name), e);
        if (rc == 0 && (stat(path, &st) < 0 || !S_ISREG(st.st_mode)))
            rc = pt_fail_errno(e, PT_FAILED, "%s: this file of the saved data cannot be opened", path);
        if (rc == 0)
            rc = add_file(f, path, DATA_ARROW, &st, e);
    }
    json_decref(names);
    return rc;
}

/* Of several sets those of the wanted split; if there is one alone, that. */
static int add_saved_sets(data_files *f, const char *folder, data_use use, pt_error *e)
{
    const data_split wanted = use == DATA_TRAINS ? SPLIT_TRAIN : SPLIT_VALIDATION;
    const size_t before = f->n;
    char path[FILE_PATH_BYTES];
    json_t *names, *name;
    size_t i;
    int rc = saved_names(folder, SAVED_SETS, &names, e);
    if (rc < 0)
        return rc;
    const bool alone = json_array_size(names) == 1 && use != DATA_BESIDE;
    json_array_foreach(names, i, name)
        if (rc == 0 && !alone && data_split_of(json_string_value(name)) != wanted)
            leave(f, json_string_value(name));
        else if (rc == 0 && (rc = path_join(path, folder, json_string_value(name), e)) == 0)
            rc = add_saved_set(f, path, e);
    json_decref(names);
    if (rc < 0 || f->n > before || use == DATA_BESIDE)
        return rc;
    return pt_fail(e, PT_FAILED, "%s: none of the saved sets is named for %s: name the folder of one", folder,
                   use == DATA_TRAINS ? "training" : "validation");
}

static int add_folder(data_files *f, const char *folder, data_use use, pt_error *e)
{
    struct dirent **entries;
    const saved_kind saved = saved_kind_of(folder);
    if (saved == SAVED_SETS)
        return add_saved_sets(f, folder, use, e);
    if (saved == SAVED_SET)
        return use == DATA_BESIDE ? 0 : add_saved_set(f, folder, e);
    int n = scandir(folder, &entries, not_hidden, by_bytes);
    if (n < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot read this folder", folder);
    int rc = add_entries(f, folder, entries, n, use, e);
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    return rc;
}

/* "FILE:1.5" of a file that is there. */
static bool has_bad_share(const char *path)
{
    char file[FILE_PATH_BYTES];
    const char *colon = strrchr(path, ':');
    if (!colon || !colon[1] || strspn(colon + 1, "0123456789.") != strlen(colon + 1) || colon - path >= FILE_PATH_BYTES)
        return false;
    snprintf(file, sizeof file, "%.*s", (int)(colon - path), path);
    return path_exists(file);
}

static int fail_absent(const char *path, pt_error *e)
{
    const int error = errno;
    data_kind kind;
    if (error == ENOENT && has_bad_share(path))
        return pt_fail(e, PT_FAILED, "%.400s: the share of the file's records must be above 0 and at most 1", path);
    if (error == ENOENT && strchr(path, '/') && data_kind_of(path, &kind) < 0 && hub_is_name(path))
        return hub_fail_data(path, e);
    errno = error;
    return pt_fail_errno(e, PT_FAILED, "%s: cannot open this data", path);
}

static int add_path(data_files *out, const char *path, data_use use, pt_error *e)
{
    struct stat st;
    data_kind kind;
    if (!path[0])
        return pt_fail(e, PT_USAGE, "the name of the data is empty: give a file or a folder");
    if (stat(path, &st) < 0)
        return fail_absent(path, e);
    if (S_ISDIR(st.st_mode))
        return add_folder(out, path, use, e);
    if (use == DATA_BESIDE)
        return 0;
    const int foreign = data_refuse_foreign(path, e);
    if (foreign < 0)
        return foreign;
    if (data_kind_of(path, &kind) < 0)
        return pt_fail(e, PT_FAILED, "%s: unknown type of data: the name must end in " KNOWN_TYPES, path);
    if (!S_ISREG(st.st_mode))
        return pt_fail(e, PT_FAILED, "%s: this is not a regular file: write the data to a file first", path);
    if (lacks_all(kind, &st))
        return pt_fail(e, PT_FAILED, "%s is empty: get another copy, or leave it out", path);
    return add_file(out, path, kind, &st, e);
}

/* Gives the files from `first` on a share of their records; validation beside them is read whole. */
static int set_share(data_files *f, size_t first, double share, pt_error *e)
{
    for (size_t i = first; i < f->n && share < 1; i++) {
        if (f->files[i].kind == DATA_TEXT || !data_kind_is_text(f->files[i].kind))
            return pt_fail(e, PT_FAILED, "%.400s: a share is taken of records, but this file has none: leave the share out",
                           f->files[i].path);
        f->files[i].share = share;
    }
    return 0;
}

int data_files_list(const char *const *paths, int paths_n, data_use use, data_files *out, pt_error *e)
{
    *out = (data_files){0};
    if (paths_n <= 0)
        return pt_fail(e, PT_USAGE, "no data: give at least one file or folder");
    for (int i = 0; i < paths_n; i++) {
        char path[FILE_PATH_BYTES];
        double share;
        const size_t length = path_share(paths[i], &share), before = out->n;
        if (length >= sizeof path)
            return pt_fail(e, PT_FAILED, "%.400s...: the path is too long", paths[i]);
        snprintf(path, sizeof path, "%.*s", (int)length, paths[i]);
        int rc = add_path(out, path, use, e);
        if (rc == 0 && use != DATA_BESIDE)
            rc = set_share(out, before, share, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

bool data_files_beside(const char *const *paths, int paths_n)
{
    data_files files;
    const bool any = data_files_list(paths, paths_n, DATA_BESIDE, &files, NULL) == 0 && files.n > 0;
    data_files_free(&files);
    return any;
}

/* The length of a path's folder, with the slash. */
static size_t folder_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

void data_files_describe(const data_files *f, char *out, size_t n)
{
    enum { SHOWN = 6, MORE = 24 };
    size_t used = 0, i = 0;
    out[0] = 0;
    for (; i < f->n && i < SHOWN; i++) {
        const char *path = f->files[i].path;
        const size_t length = folder_length(path);
        const bool same = i && length == folder_length(f->files[i - 1].path) && !memcmp(path, f->files[i - 1].path, length);
        const char *shown = same ? path + length : path;
        char share[MORE] = "";
        if (f->files[i].share < 1)
            snprintf(share, sizeof share, " (share %.6g)", f->files[i].share);
        if (used + strlen(shown) + strlen(share) + MORE >= n)
            break;
        used += (size_t)snprintf(out + used, n - used, "%s%s%s", i ? ", " : "", shown, share);
    }
    if (i < f->n)
        snprintf(out + used, n - used, "%s%zu %s", i ? " and " : "", f->n - i, i ? "more" : "files");
}

/* True if the file begins like a JSON object or an array of objects or strings: probably records in a file named .txt. */
static bool is_json(const char *path)
{
    char begin[256];
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(begin, 1, sizeof begin - 1, f) : 0, at = 0;
    if (f)
        fclose(f);
    begin[n] = 0;
    const bool array = begin[at += strspn(begin, " \t\r\n")] == '[';
    at += array;
    at += strspn(begin + at, " \t\r\n");
    const bool object = begin[at] == '{' && begin[at + 1 + strspn(begin + at + 1, " \t\r\n")] == '"';
    return object || (array && begin[at] == '"');
}

void data_files_note(const data_files *f, char *out, size_t n)
{
    for (size_t i = 0; i < f->n; i++) {
        const size_t used = strlen(out);
        if (f->files[i].kind != DATA_TEXT || !is_json(f->files[i].path))
            continue;
        snprintf(out + used, n - used,
                 "%s%.300s looks like JSON, but is read as one plain text: rename it to .json (an array of records) or .jsonl (one record "
                 "per line)", used ? "\n" : "", f->files[i].path);
        return; /* one note at a time */
    }
}

void data_files_free(data_files *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->files[i].path);
    free(f->files);
    *f = (data_files){0};
}
