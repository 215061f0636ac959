#include "options/run_file.h"

#include "base/command.h"
#include "base/path_share.h"
#include "base/similar.h"
#include "io/files.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* ---- reading ---- */

enum { FILE_MOST = 1 << 20, OPTIONS_MOST = 256 };

typedef struct reader {
    pt_options *o;
    const char *name;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    bool held[OPTIONS_MOST], seen[OPTIONS_MOST]; /* set before; in the file */
} reader;

static int refuse(const reader *r, pt_error *e) { return pt_error_prefix(e, "%.400s: line %zu", r->name, r->event.start_mark.line + 1); }

static int next(reader *r, pt_error *e)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return 0;
    const yaml_parser_t *p = &r->parser;
    return pt_fail(e, PT_FAILED, "%.400s: line %zu: %s: write options as lines such as \"lr: 1e-4\"", r->name, p->problem_mark.line + 1,
                   p->problem ? p->problem : "this is no YAML");
}

static int expect(reader *r, yaml_event_type_t type, const char *what, pt_error *e)
{
    const int failed = next(r, e);
    if (failed || r->event.type == type)
        return failed;
    pt_fail(e, PT_FAILED, "%s", what);
    return refuse(r, e);
}

/* The text of a scalar; NULL if the event is none, or has a NUL. */
static const char *scalar(const reader *r)
{
    if (r->event.type != YAML_SCALAR_EVENT)
        return NULL;
    const char *text = (const char *)r->event.data.scalar.value;
    return strlen(text) == r->event.data.scalar.length ? text : NULL;
}

static int find(const reader *r, const char *name)
{
    const pt_option *x;
    for (int i = 0; (x = pt_options_list(r->o, i)) && i < OPTIONS_MOST; i++)
        if (!strcmp(x->name, name))
            return i;
    return -1;
}

static int refuse_name(const reader *r, const char *name, pt_error *e)
{
    const pt_option *x;
    const char *meant = NULL;
    int fewest = word_fewest(strlen(name));
    for (int i = 0; (x = pt_options_list(r->o, i)); i++)
        if (word_is_nearer(name, strlen(name), x->name, &fewest))
            meant = x->name;
    pt_fail(e, PT_FAILED, meant ? "there is no option \"%.100s\"; did you mean %s?" : "there is no option \"%.100s\"%s", name,
            meant ? meant : ": the names are those of the flags");
    return refuse(r, e);
}

static int take_value(reader *r, int option, pt_error *e)
{
    const pt_option *x = pt_options_list(r->o, option);
    const char *text = scalar(r);
    if (!text) {
        pt_fail(e, PT_FAILED, "%s has a value that is no text, number or true or false", x->name);
        return refuse(r, e);
    }
    if (!text[0] && r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE) {
        pt_fail(e, PT_FAILED, "%s has no value: give one, or leave the line out", x->name);
        return refuse(r, e);
    }
    return r->held[option] || !pt_options_set(r->o, x->name, text, e) ? 0 : refuse(r, e);
}

static int take_list(reader *r, int option, pt_error *e)
{
    const pt_option *x = pt_options_list(r->o, option);
    if (x->kind != PT_OPTION_TEXTS) {
        pt_fail(e, PT_FAILED, "%s takes one value, not a list", x->name);
        return refuse(r, e);
    }
    int failed = next(r, e);
    while (!failed && r->event.type != YAML_SEQUENCE_END_EVENT) {
        failed = take_value(r, option, e);
        if (!failed)
            failed = next(r, e);
    }
    return failed;
}

static int take_option(reader *r, pt_error *e)
{
    const char *name = scalar(r);
    const int option = name ? find(r, name) : -1;
    if (option < 0)
        return refuse_name(r, name ? name : "", e);
    if (r->seen[option]) {
        pt_fail(e, PT_FAILED, "%s is given twice: give it once", name);
        return refuse(r, e);
    }
    r->seen[option] = true;
    const int failed = next(r, e);
    if (failed)
        return failed;
    return r->event.type == YAML_SEQUENCE_START_EVENT ? take_list(r, option, e) : take_value(r, option, e);
}

static int take_all(reader *r, pt_error *e)
{
    static const char what[] = "the file has no options: write lines such as \"lr: 1e-4\"";
    int failed = expect(r, YAML_STREAM_START_EVENT, what, e);
    if (!failed)
        failed = expect(r, YAML_DOCUMENT_START_EVENT, what, e);
    if (!failed)
        failed = expect(r, YAML_MAPPING_START_EVENT, what, e);
    if (!failed)
        failed = next(r, e);
    while (!failed && r->event.type != YAML_MAPPING_END_EVENT) {
        failed = take_option(r, e);
        if (!failed)
            failed = next(r, e);
    }
    if (!failed)
        failed = expect(r, YAML_DOCUMENT_END_EVENT, "the options end before the file does", e);
    return failed ? failed : expect(r, YAML_STREAM_END_EVENT, "there is a second document: give each run a file", e);
}

int run_file_read(pt_options *o, const char *name, const char *text, size_t n, pt_error *e)
{
    reader r = {.o = o, .name = name};
    const pt_option *x;
    for (int i = 0; (x = pt_options_list(o, i)) && i < OPTIONS_MOST; i++)
        r.held[i] = pt_options_given(o, x->name);
    if (!yaml_parser_initialize(&r.parser))
        return pt_fail(e, PT_FAILED, "out of memory");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    const int failed = take_all(&r, e);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return failed;
}

int pt_options_read(pt_options *o, const char *path, pt_error *e)
{
    char *text;
    size_t n;
    if (!o || !path)
        return pt_fail_null(e, "pt_options_read", o ? "the path" : "the options");
    static const char *const lengths[] = {"steps", "epochs"};
    const bool given[] = {pt_options_given(o, lengths[0]), pt_options_given(o, lengths[1])};
    int failed = file_read_all(path, FILE_MOST, &text, &n, e);
    if (failed)
        return failed;
    failed = run_file_read(o, path, text, n, e);
    free(text);
    for (int i = 0; i < 2 && !failed; i++)
        if (given[1 - i] && pt_options_given(o, lengths[i]) && !given[i])
            failed = pt_options_set(o, lengths[i], NULL, e);
    return failed;
}

/* ---- writing ---- */

/* A path that is there, from the root; else the text. Quoted as in JSON, which is YAML. */
static void put_text(FILE *f, const pt_option *o, const char *text)
{
    char path[PATH_MAX], whole[2 * PATH_MAX];
    double share;
    const bool is_data = !strcmp(o->values, "PATH"), names_file = is_data || !strcmp(o->values, "DIR") || !strcmp(o->values, "FILE");
    const size_t n = is_data ? path_share(text, &share) : strlen(text);
    snprintf(path, sizeof path, "%.*s", (int)n, text);
    const bool found = names_file && n < sizeof path && realpath(path, whole);
    if (found)
        snprintf(whole + strlen(whole), PATH_MAX, "%s", text + n);
    json_t *s = json_string(found ? whole : text);
    char *quoted = s ? json_dumps(s, JSON_ENCODE_ANY) : NULL;
    fputs(quoted ? quoted : "", f); /* what is not UTF-8 is refused when it is read */
    free(quoted);
    json_decref(s);
}

static void put_option(FILE *f, const pt_option *o, const void *from)
{
    char number[OPTION_TEXT];
    const char *value = option_text(o, from, 0, number);
    const bool text = o->kind == PT_OPTION_TEXT || o->kind == PT_OPTION_TEXTS;
    fprintf(f, "%s:", o->name);
    for (int i = 0; value && (!i || o->kind == PT_OPTION_TEXTS); value = option_text(o, from, ++i, number)) {
        fputs(o->kind == PT_OPTION_TEXTS ? "\n  - " : " ", f);
        if (text)
            put_text(f, o, value);
        else
            fputs(value, f);
    }
    fputc('\n', f);
}

static bool is_written(const pt_option *o, const void *from)
{
    return !option_is_default(o, from) && o->kind != PT_OPTION_RESUME && strcmp(o->name, "out") != 0;
}

static char *compose(const option_table *t, const void *from, size_t *n)
{
    char *text = NULL, now[COMMAND_TIME], *command = command_text();
    FILE *f = open_memstream(&text, n);
    if (!f) {
        free(command);
        return NULL;
    }
    fprintf(f, "# %s, protrain %s\n", command_time(now), PT_VERSION);
    if (command)
        fprintf(f, "# %s\n", command);
    free(command);
    for (int i = 0; i < t->n; i++)
        if (is_written(&t->rows[i].is, from))
            put_option(f, &t->rows[i].is, from);
    const bool failed = ferror(f);
    if (fclose(f) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

int run_file_write(const option_table *t, const void *from, const char *path, pt_error *e)
{
    size_t n;
    char *text = compose(t, from, &n);
    const int failed = text ? file_write_atomic(path, text, n, e) : pt_fail(e, PT_FAILED, "out of memory");
    free(text);
    return failed;
}
