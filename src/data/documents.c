#include "data/documents.h"

#include "data/bytes.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK = 65536 };

typedef struct input {
    int fd;
    const char *path;
    const document_sink *sink;
    uint64_t offset;       /* of the byte behind the block */
    uint64_t line, column; /* of the next byte, from 1; kept for .json */
    size_t at, n;          /* the next byte in the block, and the block's size */
    bytes record;
    char block[BLOCK];
} input;

/* Makes the next block available. 1, 0 at the end of the file, or an error. */
static int input_fill(input *in, pt_error *e)
{
    if (in->at < in->n)
        return 1;
    ssize_t got;
    do
        got = read(in->fd, in->block, BLOCK);
    while (got < 0 && errno == EINTR);
    if (got < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot read at byte %llu", in->path,
                             (unsigned long long)in->offset);
    in->offset += (uint64_t)got;
    in->at = 0;
    in->n = (size_t)got;
    return got > 0;
}

/* The next byte is there (after input_fill returned 1): takes it and counts lines and columns. */
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
    int rc = in->sink->begin(in->sink->arg, 0, e);
    while (rc >= 0 && (rc = input_fill(in, e)) > 0) {
        rc = in->sink->text(in->sink->arg, in->block, in->n, in->offset, e);
        in->at = in->n;
    }
    return rc < 0 ? rc : in->sink->end(in->sink->arg, e);
}

/* "a, b, c" for a message: the first keys of an object, without what would garble a terminal. */
static void list_keys(json_t *object, char *out, size_t size)
{
    const char *key;
    json_t *value;
    size_t used = 0;
    out[0] = 0;
    json_object_foreach(object, key, value) {
        if (used + 64 > size) {
            snprintf(out + used, size - used, ", ...");
            break;
        }
        used += (size_t)snprintf(out + used, size - used, "%s%.40s", used ? ", " : "", key);
    }
    for (char *c = out; *c; c++)
        if (iscntrl((unsigned char)*c))
            *c = '?';
}

static const char *json_kind(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_NULL: return "null";
    case JSON_TRUE: case JSON_FALSE: return "true or false";
    default: return "a number";
    }
}

static int check_record(const input *in, json_t *root, uint64_t line, pt_error *e)
{
    char keys[320];
    if (!json_is_object(root))
        return pt_fail(e, PT_FAILED, "%s: line %llu: %s where an object with \"text\" is expected", in->path,
                       (unsigned long long)line, json_kind(root));
    json_t *text = json_object_get(root, "text");
    if (text && !json_is_string(text))
        return pt_fail(e, PT_FAILED, "%s: line %llu: \"text\" is %s, but it must be a string", in->path,
                       (unsigned long long)line, json_kind(text));
    if (text)
        return 0;
    list_keys(root, keys, sizeof keys);
    return pt_fail(e, PT_FAILED, "%s: line %llu: the object has no \"text\" (its keys: %s): write each document "
                   "as {\"text\": \"...\"}", in->path, (unsigned long long)line, keys[0] ? keys : "none");
}

/* Parses in->record, which stands at line:column of the file, and hands its text on. */
static int give_record(input *in, uint64_t line, uint64_t column, pt_error *e)
{
    const document_sink *sink = in->sink;
    json_error_t je;
    json_t *root = json_loadb(in->record.p, in->record.n,
                              JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &je);
    if (!root) {
        uint64_t at_line = line + (uint64_t)(je.line > 0 ? je.line - 1 : 0);
        uint64_t at_column = (je.line <= 1 ? column - 1 : 0) + (uint64_t)(je.column > 0 ? je.column : 1);
        pt_fail(e, PT_FAILED, "%s: line %llu, column %llu: not JSON: %s", in->path,
                (unsigned long long)at_line, (unsigned long long)at_column, je.text);
        for (char *c = e ? e->text : ""; *c; c++)
            if (iscntrl((unsigned char)*c))
                *c = '?';
        return PT_FAILED;
    }
    int rc = check_record(in, root, line, e);
    if (rc == 0)
        rc = sink->begin(sink->arg, line, e);
    if (rc == 0) {
        json_t *text = json_object_get(root, "text");
        uint64_t read_bytes = in->offset - (in->n - in->at);
        rc = sink->text(sink->arg, json_string_value(text), json_string_length(text), read_bytes, e);
    }
    if (rc == 0)
        rc = sink->end(sink->arg, e);
    json_decref(root);
    return rc;
}

static int add_to_record(input *in, const char *p, size_t n, uint64_t line, pt_error *e)
{
    if (in->record.n + n > DOCUMENT_RECORD_MAX)
        return pt_fail(e, PT_FAILED, "%s: line %llu: a record of more than %d MiB: split it into several "
                       "documents, or put it into a .txt file", in->path, (unsigned long long)line,
                       DOCUMENT_RECORD_MAX >> 20);
    return bytes_append(&in->record, p, n, e);
}

static int give_line(input *in, pt_error *e)
{
    size_t i = 0;
    while (i < in->record.n && is_space(in->record.p[i]))
        i++;
    int rc = i < in->record.n ? give_record(in, in->line, 1, e) : 0;
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

/* Skips white space. 1: a byte stands at in->at; 0: end of file. */
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
        return pt_fail(e, PT_FAILED, "%s: ends at line %llu, column %llu where %s is expected: it was cut", in->path,
                       (unsigned long long)in->line, (unsigned long long)in->column, wanted);
    unsigned char c = (unsigned char)in->block[in->at];
    return pt_fail(e, PT_FAILED, "%s: line %llu, column %llu: '%c' (byte %d) where %s is expected", in->path,
                   (unsigned long long)in->line, (unsigned long long)in->column, isprint(c) ? c : '?', c, wanted);
}

/* Collects one element of the array in in->record: up to its closing bracket, or for a value
 * without brackets up to what ends it. Whether it is sound JSON is the parser's business. */
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
            return rc < 0 ? rc : unexpected(in, "an object with \"text\"", e);
        uint64_t line = in->line, column = in->column;
        if ((rc = cut_element(in, line, e)) < 0 || (rc = give_record(in, line, column, e)) < 0)
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

/* A byte order mark is no part of JSON, but Windows editors write it. */
static int skip_bom(input *in, pt_error *e)
{
    int rc = input_fill(in, e);
    if (rc > 0 && in->n >= 3 && memcmp(in->block, "\xEF\xBB\xBF", 3) == 0)
        in->at = 3;
    return rc < 0 ? rc : 0;
}

int documents_read(int fd, const char *path, data_kind kind, const document_sink *sink, pt_error *e)
{
    input *in = calloc(1, sizeof *in);
    if (!in)
        return pt_fail(e, PT_FAILED, "out of memory: a buffer to read %s", path);
    in->fd = fd;
    in->path = path;
    in->sink = sink;
    in->line = in->column = 1;
    int rc = kind == DATA_TEXT ? 0 : skip_bom(in, e);
    if (rc == 0)
        rc = kind == DATA_TEXT ? read_txt(in, e) : kind == DATA_JSONL ? read_jsonl(in, e) : read_json(in, e);
    free(in->record.p);
    free(in);
    return rc < 0 ? rc : 0;
}
