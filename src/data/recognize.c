/* recognize.c - recognizes the format of files by the first records of each. */
#include "data/dataset_parts.h"
#include "data/documents.h"
#include "data/formats.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* SEEN ends the reading. So many records are looked at for the keys that are to be renamed, and for conversations among texts; for these
 * no more than so many bytes. */
enum { SEEN = -100, LOOKED_AT = 1000, LOOKED_BYTES = 16 << 20 };

typedef struct look {
    const char *path;
    record_place at, first; /* of the record that is looked at, and of the first one */
    const column_names *columns;
    uint32_t missing;      /* a bit for each of its keys that has not been seen */
    uint64_t records, bytes;
    pt_data_format wanted; /* AUTO: any */
    pt_data_format found;
    bool chats;
} look;

static int look_begin(void *arg, record_place at, pt_error *e)
{
    look *l = arg;
    l->at = at;
    if (!l->records++)
        l->first = at;
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

/* Of a later record of a file that begins with texts, one without a text: whether it makes the file one of conversations. */
static void look_further(look *l, const json_t *record)
{
    const pt_data_format f = format_of(record);
    if (json_object_get(record, "text") || !format_converses(f))
        return;
    l->found = f;
    l->chats = format_chats(f, record);
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
    else if (rc == 0 && l->found == PT_DATA_TEXT)
        look_further(l, record);
    json_decref(record);
    l->bytes += n;
    const bool long_enough = l->found != PT_DATA_TEXT || l->bytes > LOOKED_BYTES;
    return rc == 0 && ((!l->missing && long_enough) || l->records == LOOKED_AT) ? SEEN : rc;
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
    *at = l.first;
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

/* Files of ids and text may be used together, and so may those of conversations, prompts and, in records, texts. */
static bool go_together(pt_data_format a, pt_data_format b, bool in_records)
{
    const bool a_stream = a == PT_DATA_TEXT || a == PT_DATA_TOKENS, b_stream = b == PT_DATA_TEXT || b == PT_DATA_TOKENS;
    const bool a_example = format_converses(a) || (in_records && a == PT_DATA_TEXT);
    const bool b_example = format_converses(b) || (in_records && b == PT_DATA_TEXT);
    return a == b || (a_stream && b_stream) || (a_example && b_example);
}

/* Of files that go together: text and ids count as text, conversations and texts as conversations. */
static pt_data_format joined(pt_data_format a, pt_data_format b)
{
    return format_converses(a) ? a : format_converses(b) || b == PT_DATA_TEXT ? b : a;
}

static int refuse_mixed(const data_file *file, record_place at, pt_data_format found, pt_data_format wanted, const char *because,
                        pt_error *e)
{
    char line[48] = "";
    if (at.line)
        snprintf(line, sizeof line, ": line %llu", (unsigned long long)at.line);
    return pt_fail(e, PT_FAILED, "%.400s%s: this record has the format %s, but %.400s is %s: all records of a run must have one format, "
                                 "or be conversations, prompts with their replies and texts, each in records", file->path, line,
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
    bool in_records = true; /* all files so far */
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
        in_records = in_records && data_kind_is_text(file->kind) && file->kind != DATA_TEXT;
        if (found == PT_DATA_AUTO)
            continue;
        if (because && (!go_together(found, *format, in_records) || (asked != PT_DATA_AUTO && found != asked)))
            return refuse_mixed(file, at, found, *format, because, e);
        *format = because ? joined(*format, found) : found;
        because = because ? because : file->path;
    }
    if (*format == PT_DATA_AUTO)
        *format = PT_DATA_TEXT; /* no file has records */
    return 0;
}
