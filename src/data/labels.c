#include "data/labels.h"

#include "base/json.h"
#include "data/documents.h"
#include "io/files.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- all labels of some files ---- */

typedef struct finder {
    const char *path;
    record_place at;
    const column_names *columns;
    json_t *names;    /* a set */
    int64_t highest;  /* of integers */
    int64_t lowest;
    bool numbers, strings;
} finder;

static int find_begin(void *arg, record_place at, pt_error *e)
{
    ((finder *)arg)->at = at;
    return 0;
}

static int find_end(void *arg, pt_error *e) { return 0; }

/* -1: no number. */
static int64_t number_of(const json_t *label)
{
    return json_is_boolean(label) ? json_is_true(label) : json_is_integer(label) ? (int64_t)json_integer_value(label) : -1;
}

static int add_label(finder *f, const json_t *label, pt_error *e)
{
    const unsigned long long line = f->at.line;
    const int64_t number = number_of(label);
    if (json_is_string(label) && json_string_length(label)) {
        f->strings = true;
        json_object_set_new(f->names, json_string_value(label), json_true());
    } else if (number >= 0 && number < LABELS_MOST) {
        f->highest = f->numbers && f->highest > number ? f->highest : number;
        f->lowest = f->numbers && f->lowest < number ? f->lowest : number;
        f->numbers = true;
    } else {
        return pt_fail(e, PT_FAILED, "%.400s: line %llu: \"label\" must be the name of a class, or its number from 0 to %d", f->path,
                       line, LABELS_MOST - 1);
    }
    if (f->strings && f->numbers)
        return pt_fail(e, PT_FAILED, "%.400s: line %llu: this \"label\" is %s, and earlier ones are not: give all classes names, or all "
                                     "numbers", f->path, line, json_type_name(label));
    if (json_object_size(f->names) > LABELS_MOST)
        return pt_fail(e, PT_FAILED, "%.400s: line %llu: the data have more than %d labels: a \"label\" is the name of a class", f->path,
                       line, LABELS_MOST);
    return 0;
}

static int find_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    finder *f = arg;
    json_t *record;
    int failed = record_parse(f->path, f->at, p, n, &record, e);
    columns_rename(f->columns, record);
    if (!failed)
        failed = add_label(f, json_object_get(record, "label"), e);
    json_decref(record);
    return failed;
}

static int find_in_file(finder *f, const data_file *file, pt_error *e)
{
    const document_sink sink = {f, find_begin, find_text, find_end, NULL, file->share, NULL};
    f->path = file->path;
    if (file->kind == DATA_NPY || file->kind == DATA_BIN || file->kind == DATA_TEXT)
        return pt_fail(e, PT_FAILED, "%.400s: classes need records with a \"label\", and this file has none: give .jsonl, .json, .csv, "
                                     ".parquet or .arrow files", file->path);
    const int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s: cannot open this file", file->path);
    const int failed = documents_read(fd, file->path, file->kind, DOCUMENT_RECORD, &sink, e);
    close(fd);
    return failed;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int take_names(label_names *l, const json_t *names, pt_error *e)
{
    const char *key;
    const json_t *value;
    l->name = calloc(json_object_size(names) + 1, sizeof *l->name);
    if (!l->name)
        return pt_fail(e, PT_FAILED, "out of memory");
    json_object_foreach((json_t *)names, key, value)
        if (!(l->name[l->n++] = strdup(key)))
            return pt_fail(e, PT_FAILED, "out of memory");
    qsort(l->name, (size_t)l->n, sizeof *l->name, compare_names);
    return 0;
}

static int take_found(label_names *l, const finder *f, pt_error *e)
{
    if (f->strings) {
        const int failed = take_names(l, f->names, e);
        if (failed || l->n > 1)
            return failed;
    } else if (f->numbers && f->lowest < f->highest) {
        l->n = f->highest + 1;
        return 0;
    }
    return pt_fail(e, PT_FAILED, "%.400s: %s: classes need records with different labels", f->path ? f->path : "the data",
                   f->strings || f->numbers ? "all records have the same \"label\"" : "there is no record");
}

int labels_find(label_names *l, const char *const *paths, int paths_n, data_use use, const column_names *columns, pt_error *e)
{
    finder f = {.columns = columns, .names = json_object()};
    data_files files;
    int failed = f.names ? data_files_list(paths, paths_n, use, &files, e) : pt_fail(e, PT_FAILED, "out of memory");
    for (size_t i = 0; !failed && i < files.n; i++)
        failed = find_in_file(&f, &files.files[i], e);
    if (!failed)
        failed = take_found(l, &f, e);
    if (f.names)
        data_files_free(&files);
    json_decref(f.names);
    return failed;
}

/* ---- labels of a model ---- */

static int take_listed(label_names *l, const json_source *src, const json_t *names, pt_error *e)
{
    const size_t n = json_object_size(names);
    if (n > LABELS_MOST)
        return pt_fail(e, PT_FAILED, "%s: \"id2label\" has %zu labels, but must have from 1 to %d", src->where, n, LABELS_MOST);
    l->name = calloc(n + 1, sizeof *l->name);
    for (size_t i = 0; l->name && i < n; i++) {
        char id[24];
        snprintf(id, sizeof id, "%zu", i);
        const char *name = json_string_value(json_object_get(names, id));
        if (!name)
            return pt_fail(e, PT_FAILED, "%s: \"id2label\" has no name for label %zu: correct the file", src->where, i);
        if (!(l->name[l->n++] = strdup(name)))
            break;
    }
    return l->name && l->n == (int64_t)n ? 0 : pt_fail(e, PT_FAILED, "out of memory");
}

int labels_read(label_names *l, const char *folder, const char *file, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    json_source src;
    int failed = path_join(path, folder, file, e);
    if (failed || !path_exists(path))
        return failed;
    failed = json_source_open(&src, path, e);
    if (failed)
        return failed;
    const json_t *names = json_object_get(src.object, "id2label");
    failed = json_is_object(names) && json_object_size(names) ? take_listed(l, &src, names, e) : 0;
    json_source_close(&src);
    return failed;
}

void labels_free(label_names *l)
{
    for (int64_t i = 0; l->name && i < l->n; i++)
        free(l->name[i]);
    free(l->name);
    *l = (label_names){0};
}

int64_t labels_number(const label_names *l, const json_t *label)
{
    const char *name = json_string_value(label);
    for (int64_t i = 0; name && l->name && i < l->n; i++)
        if (!strcmp(name, l->name[i]))
            return i;
    const int64_t number = name ? -1 : number_of(label);
    return number < l->n ? number : -1;
}
