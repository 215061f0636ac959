/* options.c - a command's options by name (pt_options). */
#include "options/table.h"

#include "protrain_ritz.h"

#include <stdlib.h>
#include <string.h>

static const struct { const char *name; const option_table *table; unsigned by; } commands[] = {
    {"train", &train_table, BY_TRAIN}, {"plan", &train_table, BY_PLAN}, {"profile", &train_table, BY_PROFILE},
    {"eval", &evaluate_table, 0},      {"generate", &generate_table, 0}, {"serve", &generate_table, 0}, {"merge", &merge_table, 0},
    {"export", &export_table, 0},      {"ritz", &ritz_table, 0}};

_Static_assert(!offsetof(pt_train_options, size) && !offsetof(pt_evaluate_options, size) && !offsetof(pt_generate_options, size) &&
               !offsetof(pt_merge_options, size) && !offsetof(pt_export_options, size) && !offsetof(pt_ritz_options, size),
               "options_check_size reads the size at the beginning");

typedef struct entry { pt_option shown; bool given; } entry;

struct pt_options {
    const option_table *table;
    entry *entries;
    int n;
    char **texts; /* given values */
    size_t texts_n;
    char text[OPTION_TEXT];
    union { pt_train_options train; pt_evaluate_options evaluate; pt_generate_options generate; pt_merge_options merge;
            pt_export_options export; pt_ritz_options ritz; } values, idle; /* idle: of options without effect in the command */
};

static void *struct_of(pt_options *o, const entry *x) { return x->shown.idle ? (void *)&o->idle : (void *)&o->values; }

/* Plan takes all options of train, and profile those that measuring depends on. */
static void add_rows(pt_options *o, unsigned by)
{
    const char *group = NULL;
    for (int i = 0; i < o->table->n; i++) {
        const option_row *r = &o->table->rows[i];
        group = r->is.group ? r->is.group : group;
        if (by && by != BY_PLAN && !(r->taken_by & by))
            continue;
        entry *x = &o->entries[o->n++];
        x->shown = r->is;
        x->shown.group = group;
        x->shown.idle = by && !(r->taken_by & by);
        if (by > BY_TRAIN && r->plan_help)
            x->shown.help = r->plan_help;
    }
}

void pt_defaults(const char *command, void *options, size_t size)
{
    if (!command || !options || size < sizeof size)
        return;
    memset(options, 0, size);
    *(size_t *)options = size;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (!strcmp(command, commands[i].name) && commands[i].table->bytes == size)
            options_reset(commands[i].table, options);
}

int pt_options_open(const char *command, pt_options **out, pt_error *e)
{
    if (!command || !out)
        return pt_fail_null(e, "pt_options_open", command ? "the options" : "the command");
    *out = NULL;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(command, commands[i].name) != 0)
            continue;
        pt_options *o = calloc(1, sizeof *o);
        if (o)
            o->entries = calloc((size_t)commands[i].table->n, sizeof *o->entries);
        if (!o || !o->entries) {
            free(o);
            return pt_fail(e, PT_FAILED, "out of memory");
        }
        o->table = commands[i].table;
        add_rows(o, commands[i].by);
        options_reset(o->table, &o->values);
        options_reset(o->table, &o->idle);
        *out = o;
        return 0;
    }
    return pt_fail(e, PT_USAGE, "there are no options of a command \"%.100s\": it must be train, plan, profile, eval, generate, serve, "
                                "merge, export or ritz", command);
}

const pt_option *pt_options_list(const pt_options *o, int i) { return o && i >= 0 && i < o->n ? &o->entries[i].shown : NULL; }

static entry *find(const pt_options *o, const char *name)
{
    for (int i = 0; o && name && i < o->n; i++)
        if (!strcmp(o->entries[i].shown.name, name))
            return &o->entries[i];
    return NULL;
}

static const char *keep(pt_options *o, const char *value, pt_error *e)
{
    char **more = realloc(o->texts, (o->texts_n + 1) * sizeof *more), *copy = strdup(value);
    o->texts = more ? more : o->texts;
    if (!more || !copy) {
        free(copy);
        pt_fail(e, PT_FAILED, "out of memory");
        return NULL;
    }
    return o->texts[o->texts_n++] = copy;
}

int pt_options_set(pt_options *o, const char *name, const char *value, pt_error *e)
{
    if (!o || !name)
        return pt_fail_null(e, "pt_options_set", o ? "the name" : "the options");
    entry *x = find(o, name);
    if (!x)
        return pt_fail(e, PT_USAGE, "there is no option \"%.100s\"", name);
    x->given = false;
    if (!value) {
        option_reset(&x->shown, struct_of(o, x));
        return 0;
    }
    const char *copy = keep(o, value, e);
    const int failed = copy ? option_set(&x->shown, struct_of(o, x), copy, e) : PT_FAILED;
    x->given = !failed;
    return failed;
}

const char *pt_options_get(pt_options *o, const char *name, int i)
{
    const entry *x = find(o, name);
    return x ? option_text(&x->shown, struct_of(o, x), i, o->text) : NULL;
}

bool pt_options_given(const pt_options *o, const char *name)
{
    const entry *x = find(o, name);
    return x && x->given;
}

pt_train_options *pt_options_train(pt_options *o) { return o && o->table == &train_table ? &o->values.train : NULL; }
pt_evaluate_options *pt_options_evaluate(pt_options *o) { return o && o->table == &evaluate_table ? &o->values.evaluate : NULL; }
pt_generate_options *pt_options_generate(pt_options *o) { return o && o->table == &generate_table ? &o->values.generate : NULL; }
pt_merge_options *pt_options_merge(pt_options *o) { return o && o->table == &merge_table ? &o->values.merge : NULL; }
pt_export_options *pt_options_export(pt_options *o) { return o && o->table == &export_table ? &o->values.export : NULL; }

pt_ritz_options *pt_options_ritz(pt_options *o) { return o && o->table == &ritz_table ? &o->values.ritz : NULL; }

void pt_options_close(pt_options *o)
{
    if (!o)
        return;
    for (int i = 0; i < o->n; i++)
        option_reset(&o->entries[i].shown, struct_of(o, &o->entries[i]));
    for (size_t i = 0; i < o->texts_n; i++)
        free(o->texts[i]);
    free(o->texts);
    free(o->entries);
    free(o);
}
