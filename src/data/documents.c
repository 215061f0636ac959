#include "data/documents.h"

#include "base/json.h"
#include "data/arrow.h"
#include "data/csv.h"
#include "data/parquet.h"
#include "data/unpack.h"
#include "text/buffer.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 65536 };

typedef struct input {
    unpack *from;
    uint64_t file_bytes;   /* read so far */
    uint64_t records;      /* of the file, taken or not */
    const char *path;
    document_form form;
    const document_sink *sink;
    uint64_t line, column; /* of the next byte, from 1; kept for .json */
    size_t at, n;          /* the next byte in the block; the block's size */
    text_buffer record;
    char block[BLOCK];
} input;

/* Reads the next block. 1; 0 at the end of the file; or an error. */
static int input_fill(input *in, pt_error *e)
{
    if (in->at < in->n)
        return 1;
    in->at = 0;
    const int rc = unpack_read(in->from, in->block, BLOCK, &in->n, e);
    in->file_bytes = unpack_file_bytes(in->from);
    return rc < 0 ? rc : in->n > 0;
}

/* Takes the next byte, after input_fill returned 1, and counts lines and columns. */
static char input_take(input *in)
{
    char c = in->block[in->at++];
    in->column++;
    if (c == '\n') {
        in->line++;
        in->column = 1;
    }
    return c;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static int read_txt(input *in, pt_error *e)
{
    int rc = in->sink->begin(in->sink->arg, (record_place){0}, e);
    while (rc >= 0 && (rc = input_fill(in, e)) > 0) {
        rc = in->sink->text(in->sink->arg, in->block + in->at, in->n - in->at, in->file_bytes, e);
        in->at = in->n;
    }
    return rc < 0 ? rc : in->sink->end(in->sink->arg, e);
}

/* ---- records ---- */

static void hide_controls(char *text)
{
    for (char *c = text; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
}

void record_keys(json_t *record, char *out, size_t size)
{
    const char *key;
    json_t *value;
    size_t used = 0;
    out[0] = 0;
    json_object_foreach(record, key, value) {
        if (used + 64 > size) {
            snprintf(out + used, size - used, ", ...");
            break;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%.40s", used ? ", " : "", key);
    }
    hide_controls(out);
}

/* A value that ends too early is often one of several lines, in a file of one record per line. */
static const char *mend(const json_error_t *je, const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && is_space(p[i]))
        i++;
    if (i == n || json_error_code(je) != json_error_premature_end_of_input)
        return "";
    return p[i] == '[' ? "; name a file that is one list of objects .json" : "; write each record as one line";
}

static int no_json(const char *path, record_place at, const json_error_t *je, const char *p, size_t n, pt_error *e)
{
    const uint64_t line = at.line + (uint64_t)(je->line > 0 ? je->line - 1 : 0);
    const uint64_t column = (je->line <= 1 && at.column ? at.column - 1 : 0) + (uint64_t)(je->column > 0 ? je->column : 1);
    char reason[JSON_REASON_BYTES];
    pt_fail(e, PT_FAILED, "%s: line %llu, column %llu: not valid JSON: %s%s", path, (unsigned long long)line, (unsigned long long)column,
            json_reason(je, reason), mend(je, p, n));
    if (e)
        hide_controls(e->text);
    return PT_FAILED;
}

int record_parse(const char *path, record_place at, const char *p, size_t n, json_t **out, pt_error *e)
{
    json_error_t je;
    char name[512];
    snprintf(name, sizeof name, "%.400s: line %llu", path, (unsigned long long)at.line);
    if (json_text_check(name, p, n, e))
        return PT_FAILED;
    json_t *root = json_loadb(p, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!root && json_error_code(&je) == json_error_numeric_overflow)
        root = json_loadb(p, n, JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &je);
    *out = NULL;
    if (!root)
        return no_json(path, at, &je, p, n, e);
    if (!json_is_object(root)) {
        pt_fail(e, PT_FAILED, "%s: line %llu: %s instead of an object such as {\"text\": \"...\"}%s", path,
                (unsigned long long)at.line, json_type_name(root),
                json_is_array(root) ? "; name a file that is one list of objects .json" : "");
        json_decref(root);
        return PT_FAILED;
    }
    *out = root;
    return 0;
}

static int check_text(const input *in, json_t *record, uint64_t line, pt_error *e)
{
    char keys[320];
    json_t *text = json_object_get(record, "text");
    if (text && !json_is_string(text))
        return pt_fail(e, PT_FAILED, "%s: line %llu: \"text\" is %s, but it must be a string", in->path,
                       (unsigned long long)line, json_type_name(text));
    if (text)
        return 0;
    record_keys(record, keys, sizeof keys);
    return pt_fail(e, PT_FAILED, "%s: line %llu: the object has no \"text\" (its keys: %s): write each document "
                   "as {\"text\": \"...\"}", in->path, (unsigned long long)line, keys[0] ? keys : "none");
}

static int give(input *in, record_place at, const char *p, size_t n, pt_error *e)
{
    const document_sink *sink = in->sink;
    int rc = sink->begin(sink->arg, at, e);
    if (rc == 0)
        rc = sink->text(sink->arg, p, n, in->file_bytes, e);
    return rc < 0 ? rc : sink->end(sink->arg, e);
}

static int give_text(input *in, record_place at, json_t *record, pt_error *e)
{
    const document_sink *sink = in->sink;
    columns_rename(sink->columns, record);
    int rc = check_text(in, record, at.line, e);
    if (rc < 0)
        return rc;
    json_t *text = json_incref(json_object_get(record, "text"));
    const text_buffer content = {(char *)json_string_value(text), json_string_length(text), 0};
    json_object_del(record, "text");
    if (sink->record)
        rc = sink->record(sink->arg, at, record, &content, e);
    if (rc == 0)
        rc = give(in, at, content.bytes, content.n, e);
    json_decref(text);
    return rc;
}

/* Whether the next record is of the share. */
static bool takes_record(input *in)
{
    const double share = in->sink->share, k = (double)in->records++;
    return share <= 0 || ceil((k + 1) * share) > ceil(k * share);
}

/* Passes a record, which is at `at` in the file, to the sink. */
static int give_record(input *in, record_place at, const text_buffer *json, pt_error *e)
{
    json_t *record;
    if (!takes_record(in))
        return 0;
    if (in->form == DOCUMENT_RECORD)
        return give(in, at, json->bytes, json->n, e);
    int rc = record_parse(in->path, at, json->bytes, json->n, &record, e);
    if (rc == 0)
        rc = give_text(in, at, record, e);
    json_decref(record);
    return rc;
}

static int add_to_record(input *in, const char *p, size_t n, uint64_t line, pt_error *e)
{
    if (in->record.n + n > DOCUMENT_RECORD_MAX)
        return pt_fail(e, PT_FAILED, "%s: line %llu: a record of more than %d MiB: split it into several documents, or put its text into "
                                     "a .txt file", in->path, (unsigned long long)line,
                       DOCUMENT_RECORD_MAX >> 20);
    return text_buffer_append(&in->record, p, n, e);
}

static int give_line(input *in, pt_error *e)
{
    size_t i = 0;
    while (i < in->record.n && is_space(in->record.bytes[i]))
        i++;
    int rc = i < in->record.n ? give_record(in, (record_place){in->line, 1}, &in->record, e) : 0;
    in->record.n = 0;
    in->line++;
    return rc;
}

static int read_jsonl(input *in, pt_error *e)
{
    int rc;
    while ((rc = input_fill(in, e)) > 0) {
        const char *p = in->block + in->at;
        size_t left = in->n - in->at;
        const char *newline = memchr(p, '\n', left);
        size_t n = newline ? (size_t)(newline - p) : left;
        in->at += newline ? n + 1 : n;
        if ((rc = add_to_record(in, p, n, in->line, e)) < 0)
            return rc;
        if (newline && (rc = give_line(in, e)) < 0)
            return rc;
    }
    return rc < 0 ? rc : give_line(in, e);
}

/* Skips white space. 1: a byte follows at in->at; 0: end of file. */
static int skip_space(input *in, pt_error *e)
{
    int rc;
    while ((rc = input_fill(in, e)) > 0 && is_space(in->block[in->at]))
        input_take(in);
    return rc;
}

static int unexpected(input *in, const char *wanted, pt_error *e)
{
    if (in->at == in->n)
        return pt_fail(e, PT_FAILED, "%s: the file ends at line %llu, column %llu, where %s is expected: it is cut off", in->path,
                       (unsigned long long)in->line, (unsigned long long)in->column, wanted);
    unsigned char c = (unsigned char)in->block[in->at];
    return pt_fail(e, PT_FAILED, "%s: line %llu, column %llu: '%c' (byte %d) instead of %s", in->path,
                   (unsigned long long)in->line, (unsigned long long)in->column, isprint(c) ? c : '?', c, wanted);
}

/* Collects one element of the array in in->record: up to its closing bracket, or without brackets up to a delimiter. The parser checks
 * whether it is valid JSON. */
static int cut_element(input *in, uint64_t line, pt_error *e)
{
    uint64_t depth = 0;
    bool quoted = false, escaped = false;
    int rc;
    in->record.n = 0;
    while ((rc = input_fill(in, e)) > 0) {
        char c = in->block[in->at];
        if (depth == 0 && !quoted && (c == ',' || c == ']' || is_space(c)))
            return 0;
        if ((rc = add_to_record(in, &c, 1, line, e)) < 0)
            return rc;
        input_take(in);
        if (quoted) {
            quoted = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if ((c == '}' || c == ']') && (depth == 0 || --depth == 0)) {
            return 0;
        }
    }
    return rc < 0 ? rc : unexpected(in, quoted ? "the end of a string" : "the end of a value", e);
}

static int read_elements(input *in, pt_error *e)
{
    for (bool first = true;; first = false) {
        int rc = skip_space(in, e);
        if (rc > 0 && first && in->block[in->at] == ']')
            break;
        if (rc <= 0 || in->block[in->at] == ',' || in->block[in->at] == ']')
            return rc < 0 ? rc : unexpected(in, "an object", e);
        const record_place at = {in->line, in->column};
        if ((rc = cut_element(in, at.line, e)) < 0 || (rc = give_record(in, at, &in->record, e)) < 0)
            return rc;
        if ((rc = skip_space(in, e)) < 0)
            return rc;
        if (rc == 0 || (in->block[in->at] != ',' && in->block[in->at] != ']'))
            return unexpected(in, "',' or ']'", e);
        if (in->block[in->at] == ']')
            break;
        input_take(in);
    }
    input_take(in);
    return 0;
}

static int read_json(input *in, pt_error *e)
{
    int rc = skip_space(in, e);
    if (rc < 0)
        return rc;
    if (rc == 0 || in->block[in->at] != '[')
        return unexpected(in, "'[' (a .json file is an array of objects; one object a line is .jsonl)", e);
    input_take(in);
    if ((rc = read_elements(in, e)) < 0 || (rc = skip_space(in, e)) < 0)
        return rc;
    return rc == 0 ? 0 : unexpected(in, "the end of the file", e);
}

/* ---- .csv ---- */

typedef struct csv_names {
    char **name; /* the first may be empty: a column of row numbers, as pandas writes it */
    size_t n;
} csv_names;

static void csv_names_free(csv_names *h)
{
    for (size_t i = 0; i < h->n; i++)
        free(h->name[i]);
    free(h->name);
}

static int bad_field(const input *in, const csv_reader *c, size_t i, const char *what, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%s: line %llu, field %zu: %s", in->path, (unsigned long long)c->row_line, i + 1, what);
}

#define NAMELESS "a column has no name: the first row must hold the names, such as prompt,completion"

static int take_names(const input *in, const csv_reader *c, csv_names *h, pt_error *e)
{
    const csv_slice first = csv_field(c, 0);
    if (c->fields_n == 1 && (memchr(first.p, ';', first.n) || memchr(first.p, '\t', first.n)))
        return bad_field(in, c, 0, "one name with semicolons or tabs in it: commas stand between fields, also in the first row", e);
    h->name = calloc(c->fields_n, sizeof *h->name);
    if (!h->name)
        return pt_fail(e, PT_FAILED, "out of memory: the names of %zu columns", c->fields_n);
    for (size_t i = 0; i < c->fields_n; i++) {
        const csv_slice s = csv_field(c, i);
        const bool index = !s.n && i == 0 && c->fields_n > 1;
        if ((!s.n && !index) || memchr(s.p, 0, s.n))
            return bad_field(in, c, i, NAMELESS, e);
        if (!(h->name[h->n++] = strndup(s.p, s.n)))
            return pt_fail(e, PT_FAILED, "out of memory: the names of %zu columns", c->fields_n);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(h->name[k], h->name[i]))
                return bad_field(in, c, i, "two columns have this name", e);
    }
    return 0;
}

static bool is_number(csv_slice s)
{
    size_t digits = 0;
    while (digits < s.n && isdigit((unsigned char)s.p[digits]))
        digits++;
    return s.n && digits == s.n;
}

static int row_object(const input *in, const csv_reader *c, const csv_names *h, json_t **out, pt_error *e)
{
    if (c->fields_n != h->n)
        return pt_fail(e, PT_FAILED,
                       "%s: line %llu: %zu fields, but the first row has %zu names: put a field with a comma or a newline into quotes",
                       in->path, (unsigned long long)c->row_line, c->fields_n, h->n);
    *out = json_object();
    for (size_t i = 0; i < h->n; i++) {
        const csv_slice s = csv_field(c, i);
        if (!h->name[i][0]) {
            if (!is_number(s))
                return bad_field(in, c, i, NAMELESS, e);
            continue;
        }
        json_t *value = json_stringn(s.p, s.n); /* NULL: not UTF-8 */
        if (!value || json_object_set_new(*out, h->name[i], value))
            return bad_field(in, c, i, "this is not UTF-8: convert the file to UTF-8", e);
    }
    return 0;
}

static int give_row(input *in, const csv_reader *c, csv_names *h, pt_error *e)
{
    const record_place at = {c->row_line, 0};
    json_t *row = NULL;
    if (!h->n)
        return take_names(in, c, h, e);
    if (!takes_record(in))
        return 0;
    int rc = row_object(in, c, h, &row, e);
    if (rc == 0 && in->form == DOCUMENT_TEXT)
        rc = give_text(in, at, row, e);
    else if (rc == 0) {
        char *json = json_dumps(row, JSON_COMPACT);
        rc = json ? give(in, at, json, strlen(json), e) : pt_fail(e, PT_FAILED, "out of memory: a row of CSV");
        free(json);
    }
    json_decref(row);
    return rc;
}

static int read_rows(input *in, csv_reader *c, csv_names *h, pt_error *e)
{
    int rc, row = 0;
    while ((rc = input_fill(in, e)) > 0) {
        size_t used;
        row = csv_take(c, in->block + in->at, in->n - in->at, &used, e);
        in->at += used;
        if (row < 0)
            return pt_error_prefix(e, "%s", in->path);
        if (row > 0 && (rc = give_row(in, c, h, e)) < 0)
            return rc;
    }
    if (rc == 0 && (row = csv_end(c, e)) < 0)
        return pt_error_prefix(e, "%s", in->path);
    return rc == 0 && row > 0 ? give_row(in, c, h, e) : rc;
}

static int read_csv(input *in, pt_error *e)
{
    csv_reader c = {.line = 1};
    csv_names names = {0};
    int rc = read_rows(in, &c, &names, e);
    csv_names_free(&names);
    csv_free(&c);
    return rc;
}

/* ---- tables ---- */

static int take_table_row(void *arg, uint64_t row, const text_buffer *json, uint64_t file_bytes, pt_error *e)
{
    input *in = arg;
    in->file_bytes = file_bytes;
    return give_record(in, (record_place){row, 0}, json, e);
}

static int read_table(input *in, int fd, data_kind kind, pt_error *e)
{
    const row_sink rows = {in, take_table_row};
    return (kind == DATA_ARROW ? arrow_read : parquet_read)(fd, in->path, &rows, e);
}

/* ---- files ---- */

/* Windows editors write a byte order mark, which is not JSON. */
static int skip_bom(input *in, data_kind kind, pt_error *e)
{
    int rc = input_fill(in, e);
    if (rc > 0 && in->n >= 2 && (!memcmp(in->block, "\xFF\xFE", 2) || !memcmp(in->block, "\xFE\xFF", 2)))
        return pt_fail(e, PT_FAILED, "%s: this is UTF-16: convert it to UTF-8: iconv -f UTF-16 -t UTF-8 '%s' > new file", in->path,
                       in->path);
    if (kind != DATA_TEXT && rc > 0 && in->n >= 3 && memcmp(in->block, "\xEF\xBB\xBF", 3) == 0)
        in->at = 3;
    return rc < 0 ? rc : 0;
}

static int read_kind(input *in, data_kind kind, pt_error *e)
{
    int rc = skip_bom(in, kind, e);
    if (rc < 0)
        return rc;
    switch (kind) {
    case DATA_JSONL: return read_jsonl(in, e);
    case DATA_JSON: return read_json(in, e);
    case DATA_CSV: return read_csv(in, e);
    default: return read_txt(in, e);
    }
}

int documents_read(int fd, const char *path, data_kind kind, document_form form, const document_sink *sink, pt_error *e)
{
    size_t length;
    input *in = calloc(1, sizeof *in);
    if (!in)
        return pt_fail(e, PT_FAILED, "out of memory: a buffer to read %s", path);
    *in = (input){.path = path, .form = form, .sink = sink, .line = 1, .column = 1};
    const bool table = kind == DATA_PARQUET || kind == DATA_ARROW;
    int rc = table ? 0 : unpack_open(fd, path, packing_of_name(path, &length), &in->from, e);
    if (rc == 0)
        rc = table ? read_table(in, fd, kind, e) : read_kind(in, kind, e);
    unpack_close(in->from);
    text_buffer_free(&in->record);
    free(in);
    return rc < 0 ? rc : 0;
}
