/* recognize.c - recognizes the format of files by the first record of each. */
#include "data/dataset_parts.h"
#include "data/documents.h"
#include "data/formats.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { SEEN = -100, LOOKED_AT = 1000 }; /* SEEN ends the reading. So many records are looked at for the keys that are to be renamed */

typedef struct look {
    const char *path;
    record_place at;
    const column_names *columns;
    uint32_t missing;      /* a bit for each of its keys that has not been seen */
    uint64_t records;
    pt_data_format wanted; /* AUTO: any */
    pt_data_format found;
    bool chats;
} look;

static int look_begin(void *arg, record_place at, pt_error *e)
{
    look *l = arg;
    if (!l->records++)
        l->at = at;
    return 0;
}

/* Of the first record: its format. */
static int look_at_first(look *l, json_t *record, pt_error *e)
{
    char where[600];
    snprintf(where, sizeof where, "%.500s: line %llu", l->path, (unsigned long long)l->at.line);
    l->found = l->wanted != PT_DATA_AUTO && format_fits(l->wanted, record) ? l->wanted : format_of(record);
    l->chats = format_chats(l->found, record);
    return l->found == PT_DATA_AUTO ? format_unknown(record, where, e) : 0;
}

static int look_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    look *l = arg;
    json_t *record;
    int rc = record_parse(l->path, l->at, p, n, &record, e);
    for (size_t i = 0; rc == 0 && l->columns && i < l->columns->n; i++)
        if (json_object_get(record, l->columns->of[i].key))
            l->missing &= ~(1u << i);
    columns_rename(l->columns, record);
    if (rc == 0 && l->records == 1)
        rc = look_at_first(l, record, e);
    json_decref(record);
    return rc == 0 && (!l->missing || l->records == LOOKED_AT) ? SEEN : rc;
}

static int look_end(void *arg, pt_error *e) { return 0; }

static int refuse_missing(const look *l, pt_error *e)
{
    size_t i = 0;
    while (!(l->missing >> i & 1))
        i++;
    return pt_fail(e, PT_FAILED, "%.400s: none of the first %llu records has the key \"%.80s\", which `columns` names \"%.80s\"", l->path,
                   (unsigned long long)l->records, l->columns->of[i].key, l->columns->of[i].name);
}

/* *found stays AUTO if the file has no records. */
static int look_at(const data_file *file, const column_names *columns, pt_data_format wanted, pt_data_format *found, bool *chats,
                   record_place *at, pt_error *e)
{
    look l = {.path = file->path, .wanted = wanted, .columns = columns, .missing = columns ? (1u << columns->n) - 1 : 0};
    const document_sink sink = {&l, look_begin, look_text, look_end, NULL, 0, NULL};
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot open this file", file->path);
    int rc = documents_read(fd, file->path, file->kind, DOCUMENT_RECORD, &sink, e);
    close(fd);
    *found = l.found;
    *chats = l.chats;
    *at = l.at;
    return rc < 0 && rc != SEEN ? rc : l.records && l.missing ? refuse_missing(&l, e) : 0;
}

static int format_of_file(const data_file *file, const column_names *columns, pt_data_format wanted, pt_data_format *found, bool *chats,
                          record_place *at, pt_error *e)
{
    *at = (record_place){0};
    if (file->kind == DATA_NPY || file->kind == DATA_BIN)
        *found = PT_DATA_TOKENS;
    else if (file->kind == DATA_TEXT)
        *found = PT_DATA_TEXT;
    else
        return look_at(file, columns, wanted, found, chats, at, e);
    return 0;
}

/* Files of ids and text may be used together, and so may those of conversations and prompts. */
static bool go_together(pt_data_format a, pt_data_format b)
{
    const bool a_stream = a == PT_DATA_TEXT || a == PT_DATA_TOKENS, b_stream = b == PT_DATA_TEXT || b == PT_DATA_TOKENS;
    return a == b || (a_stream && b_stream) || (format_converses(a) && format_converses(b));
}

static int refuse_mixed(const data_file *file, record_place at, pt_data_format found, pt_data_format wanted, const char *because,
                        pt_error *e)
{
    char line[48] = "";
    if (at.line)
        snprintf(line, sizeof line, ": line %llu", (unsigned long long)at.line);
    return pt_fail(e, PT_FAILED, "%.400s%s: this record has the format %s, but %.400s is %s: all records of a run must have one format, "
                                 "or be conversations and prompts with their replies", file->path, line,
                   format_name(found), because, format_name(wanted));
}

/* Whether a file has records. */
static bool has_records(const data_files *files)
{
    for (size_t i = 0; i < files->n; i++)
        if (data_kind_is_text(files->files[i].kind) && files->files[i].kind != DATA_TEXT)
            return true;
    return false;
}

int data_recognize(const data_files *files, const column_names *columns, pt_data_format asked, pt_data_format *format, bool *chats,
                   pt_error *e)
{
    const char *because = asked == PT_DATA_AUTO ? NULL : "`data_format`";
    *format = asked;
    *chats = false;
    if (columns && columns->n && !has_records(files))
        return pt_fail(e, PT_FAILED, "%.400s: `columns` names keys of records, but the data have none: leave the option out",
                       files->n ? files->files[0].path : "the data");
    for (size_t i = 0; i < files->n; i++) {
        const data_file *file = &files->files[i];
        pt_data_format found = PT_DATA_AUTO;
        record_place at;
        bool converses = false;
        int rc = format_of_file(file, columns, *format, &found, &converses, &at, e);
        if (rc < 0)
            return rc;
        *chats = *chats || converses;
        if (found == PT_DATA_AUTO)
            continue;
        if (because && (!go_together(found, *format) || (asked != PT_DATA_AUTO && found != asked)))
            return refuse_mixed(file, at, found, *format, because, e);
        if (!because || found == PT_DATA_TEXT) /* text and ids together count as text */
            *format = found;
        because = because ? because : file->path;
    }
    if (*format == PT_DATA_AUTO)
        *format = PT_DATA_TEXT; /* no file has records */
    return 0;
}
