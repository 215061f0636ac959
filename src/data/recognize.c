/* recognize.c - recognizes the format of files by the first record of each. */
#include "data/dataset_parts.h"
#include "data/documents.h"
#include "data/formats.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { SEEN = -100 }; /* ends the reading after the first record */

typedef struct look {
    const char *path;
    record_place at;
    pt_data_format wanted; /* AUTO: any */
    pt_data_format found;
    bool chats;
} look;

static int look_begin(void *arg, record_place at, pt_error *e)
{
    look *l = arg;
    l->at = at;
    return 0;
}

static int look_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    look *l = arg;
    char where[600];
    json_t *record;
    int rc = record_parse(l->path, l->at, p, n, &record, e);
    if (rc < 0)
        return rc;
    snprintf(where, sizeof where, "%.500s: line %llu", l->path, (unsigned long long)l->at.line);
    l->found = l->wanted != PT_DATA_AUTO && format_fits(l->wanted, record) ? l->wanted : format_of(record);
    rc = l->found == PT_DATA_AUTO ? format_unknown(record, where, e) : SEEN;
    l->chats = format_chats(l->found, record);
    json_decref(record);
    return rc;
}

static int look_end(void *arg, pt_error *e) { return 0; }

/* *found stays AUTO if the file has no records. */
static int look_at(const data_file *file, pt_data_format wanted, pt_data_format *found, bool *chats, record_place *at, pt_error *e)
{
    look l = {.path = file->path, .wanted = wanted};
    const document_sink sink = {&l, look_begin, look_text, look_end, NULL};
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot open this file", file->path);
    int rc = documents_read(fd, file->path, file->kind, DOCUMENT_RECORD, &sink, e);
    close(fd);
    *found = l.found;
    *chats = l.chats;
    *at = l.at;
    return rc == SEEN ? 0 : rc;
}

static int format_of_file(const data_file *file, pt_data_format wanted, pt_data_format *found, bool *chats, record_place *at, pt_error *e)
{
    *at = (record_place){0};
    if (file->kind == DATA_NPY || file->kind == DATA_BIN)
        *found = PT_DATA_TOKENS;
    else if (file->kind == DATA_TEXT)
        *found = PT_DATA_TEXT;
    else
        return look_at(file, wanted, found, chats, at, e);
    return 0;
}

/* Files of ids and text may be used together. */
static bool go_together(pt_data_format a, pt_data_format b)
{
    const bool a_stream = a == PT_DATA_TEXT || a == PT_DATA_TOKENS, b_stream = b == PT_DATA_TEXT || b == PT_DATA_TOKENS;
    return a == b || (a_stream && b_stream);
}

static int refuse_mixed(const data_file *file, record_place at, pt_data_format found, pt_data_format wanted, const char *because,
                        pt_error *e)
{
    char line[48] = "";
    if (at.line)
        snprintf(line, sizeof line, ": line %llu", (unsigned long long)at.line);
    return pt_fail(e, PT_FAILED, "%.400s%s: this record has the format %s, but %.400s is %s: all records of a run must have one format",
                   file->path, line, format_name(found), because, format_name(wanted));
}

int data_recognize(const data_files *files, pt_data_format asked, pt_data_format *format, bool *chats, pt_error *e)
{
    const char *because = asked == PT_DATA_AUTO ? NULL : "`data_format`";
    *format = asked;
    *chats = false;
    for (size_t i = 0; i < files->n; i++) {
        const data_file *file = &files->files[i];
        pt_data_format found = PT_DATA_AUTO;
        record_place at;
        int rc = format_of_file(file, *format, &found, chats, &at, e);
        if (rc < 0)
            return rc;
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
