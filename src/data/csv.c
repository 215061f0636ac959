#include "data/csv.h"

#include <stdlib.h>
#include <string.h>

static void begin_row(csv_reader *c)
{
    c->text.n = c->fields_n = 0;
    c->done = c->quoted = false;
    c->row_line = c->line;
}

static int end_field(csv_reader *c, pt_error *e)
{
    if (c->fields_n == CSV_FIELDS_MAX)
        return pt_fail(e, PT_FAILED, "line %llu: more than %d fields", (unsigned long long)c->row_line, CSV_FIELDS_MAX);
    if (c->fields_n == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 16;
        size_t *ends = realloc(c->ends, capacity * sizeof *ends);
        if (!ends)
            return pt_fail(e, PT_FAILED, "out of memory: a row of %zu fields", capacity);
        c->ends = ends;
        c->capacity = capacity;
    }
    c->ends[c->fields_n++] = c->text.n;
    c->state = CSV_START;
    return 0;
}

/* 1: a row has ended; 0: the line is empty. */
static int end_row(csv_reader *c, pt_error *e)
{
    int rc = end_field(c, e);
    if (rc < 0)
        return rc;
    if (c->fields_n == 1 && c->text.n == 0 && !c->quoted) {
        begin_row(c);
        return 0;
    }
    c->done = true;
    return 1;
}

static int misplaced(const csv_reader *c, pt_error *e)
{
    const char *what = c->state == CSV_RETURN ? "a carriage return without a newline after it: put the field into quotes"
                       : c->state == CSV_QUOTE ? "text after a closing quote: write \"\" for a quote inside a quoted field"
                                               : "a quote inside an unquoted field: put the field into quotes, and write \"\" for each "
                                                 "quote inside it";
    return pt_fail(e, PT_FAILED, "line %llu: %s", (unsigned long long)c->line, what);
}

/* Takes one byte outside of quotes. 1: it ended a row. */
static int take_bare(csv_reader *c, char byte, pt_error *e)
{
    if (c->state == CSV_RETURN && byte != '\n')
        return misplaced(c, e);
    switch (byte) {
    case ',': return end_field(c, e);
    case '\n': c->line++; return end_row(c, e);
    case '\r': c->state = CSV_RETURN; return 0;
    case '"':
        if (c->state != CSV_START)
            return misplaced(c, e);
        c->state = CSV_QUOTED;
        c->quoted = true;
        c->quote_line = c->line;
        return 0;
    default:
        if (c->state == CSV_QUOTE)
            return misplaced(c, e);
        c->state = CSV_BARE;
        return text_buffer_append(&c->text, &byte, 1, e);
    }
}

/* Takes the bytes of p up to the next quote, which belong to the quoted field. */
static int take_quoted(csv_reader *c, const char *p, size_t n, size_t *at, pt_error *e)
{
    const char *quote = memchr(p + *at, '"', n - *at);
    const size_t end = quote ? (size_t)(quote - p) : n;
    for (size_t i = *at; i < end; i++)
        c->line += p[i] == '\n';
    int rc = text_buffer_append(&c->text, p + *at, end - *at, e);
    *at = end + (quote != NULL);
    if (quote)
        c->state = CSV_QUOTE;
    return rc;
}

int csv_take(csv_reader *c, const char *p, size_t n, size_t *used, pt_error *e)
{
    size_t at = 0;
    int rc = 0;
    if (c->done || !c->row_line)
        begin_row(c);
    while (at < n && rc == 0) {
        if (c->text.n > CSV_ROW_MAX)
            return pt_fail(e, PT_FAILED, "line %llu: a row of more than %d MiB: is a quote not closed?",
                           (unsigned long long)(c->quoted ? c->quote_line : c->row_line), CSV_ROW_MAX >> 20);
        if (c->state == CSV_QUOTED) {
            rc = take_quoted(c, p, n, &at, e);
        } else if (c->state == CSV_QUOTE && p[at] == '"') {
            rc = text_buffer_append(&c->text, "\"", 1, e);
            c->state = CSV_QUOTED;
            at++;
        } else {
            rc = take_bare(c, p[at++], e);
        }
    }
    *used = at;
    return rc;
}

int csv_end(csv_reader *c, pt_error *e)
{
    if (c->done || !c->row_line)
        begin_row(c);
    if (c->state == CSV_QUOTED)
        return pt_fail(e, PT_FAILED, "line %llu: the quote that begins a field is never closed", (unsigned long long)c->quote_line);
    if (c->state == CSV_RETURN)
        return misplaced(c, e);
    const bool nothing = c->state == CSV_START && c->fields_n == 0;
    return nothing ? 0 : end_row(c, e);
}

csv_slice csv_field(const csv_reader *c, size_t i)
{
    const size_t first = i ? c->ends[i - 1] : 0;
    return (csv_slice){c->text.bytes ? c->text.bytes + first : "", c->ends[i] - first};
}

void csv_free(csv_reader *c)
{
    text_buffer_free(&c->text);
    free(c->ends);
    *c = (csv_reader){0};
}
