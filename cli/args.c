#include "args.h"

#include "base/similar.h"

#include <stdio.h>
#include <string.h>

enum { OPTIONS_MOST = 160 };

typedef struct option {
    const pt_option *is;
    const arg *own;    /* NULL: of the library */
    const char *given; /* the value on this command line; NULL: none */
} option;

typedef struct parser {
    const command_line *line;
    pt_options *options;
    option all[OPTIONS_MOST];
    int n;
} parser;

static int open_parser(parser *p, const command_line *l, pt_error *e)
{
    const pt_option *o;
    *p = (parser){.line = l};
    int failed = l->command ? pt_options_open(l->command, &p->options, e) : 0;
    for (int i = 0; (o = pt_options_list(p->options, i)) && p->n < OPTIONS_MOST; i++)
        p->all[p->n++].is = o;
    for (size_t i = 0; i < l->own_n && p->n < OPTIONS_MOST; i++)
        p->all[p->n++] = (option){&l->own[i].is, &l->own[i], NULL};
    return failed;
}

static bool is_flag(const pt_option *o) { return o->kind == PT_OPTION_FLAG || o->kind == PT_OPTION_NOT; }
static bool is_operand(const option *o) { return o->own && o->own->operand; }

/* ---- help ---- */

enum { LEFT = 30, RIGHT = 78 }; /* columns: of the help's lines, and letters of a line before a default begins a new one */

static void print_option(const option *o)
{
    char left[160];
    const pt_option *is = o->is;
    const char *values = is_operand(o) || !is->values ? "" : is->values;
    snprintf(left, sizeof left, is->implied ? "%s%s [%s]" : *values ? "%s%s %s" : "%s%s%s", is_operand(o) ? "" : "--",
             is->name, values);
    if (strlen(left) > LEFT - 3)
        printf("  %s\n%*s", left, LEFT, "");
    else
        printf("  %-*s", LEFT - 2, left);
    size_t length = 0;
    for (const char *text = is->help; *text; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        printf("%.*s", (int)length, text);
        if (text[length])
            printf("\n%*s", LEFT, "");
    }
    if (is->initial && length + strlen(is->initial) + sizeof "; default " > RIGHT)
        printf(";\n%*sdefault %s\n", LEFT, "", is->initial);
    else
        printf(is->initial ? "; default %s\n" : "%s\n", is->initial ? is->initial : "");
}

static bool same_group(const pt_option *a, const pt_option *b)
{
    return a->group == b->group || (a->group && b->group && !strcmp(a->group, b->group));
}

static bool is_shown(const option *o) { return o->is->help && !o->is->idle; }

/* An option's group, if the option is the first of it. */
static void print_group(const parser *p, int first)
{
    const pt_option *is = p->all[first].is;
    for (int i = 0; i < first; i++)
        if (is_shown(&p->all[i]) && same_group(p->all[i].is, is))
            return;
    printf("\n%s%s", is->group ? is->group : "", is->group ? "\n" : "");
    for (int i = first; i < p->n; i++)
        if (is_shown(&p->all[i]) && same_group(p->all[i].is, is))
            print_option(&p->all[i]);
}

static void print_help(const parser *p)
{
    bool idle = false;
    printf("%s\n", p->line->usage);
    for (int i = 0; i < p->n; i++) {
        idle = idle || p->all[i].is->idle;
        if (is_shown(&p->all[i]))
            print_group(p, i);
    }
    if (idle)
        puts("\nOther options of train (--data, --lr ...) are accepted and have no effect here.");
    printf("\n  %-*sshow this help\n", LEFT - 2, "--help");
}

/* Lines of text, each as a comment. */
static void print_comment(const char *text)
{
    for (size_t length; *text; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        printf("# %.*s\n", (int)length, text);
    }
}

void args_print_config(const pt_options *o)
{
    const pt_option *x;
    const char *group = NULL;
    print_comment("A run as a file, for --config: the options of the command line, in YAML or JSON. Take away the # before those\n"
                  "that you set.");
    for (int i = 0; (x = pt_options_list(o, i)); i++) {
        if (x->group && (!group || strcmp(group, x->group)))
            printf("\n# ---- %s ----\n", x->group);
        group = x->group;
        putchar('\n');
        print_comment(x->help);
        if (x->kind == PT_OPTION_CHOICE || x->kind == PT_OPTION_EITHER)
            printf("# %s\n", x->values);
        const char *value = x->initial ? x->initial : x->values ? x->values : "true";
        printf("#%s:%s %.*s\n", x->name, x->kind == PT_OPTION_TEXTS ? "\n#  -" : "", (int)strcspn(value, "|"), value);
    }
}

/* ---- names ---- */

static option *find(parser *p, const char *typed, size_t length)
{
    for (int i = 0; i < p->n && length > 2 && !strncmp(typed, "--", 2); i++)
        if (!is_operand(&p->all[i]) && strlen(p->all[i].is->name) == length - 2 && !strncmp(p->all[i].is->name, typed + 2, length - 2))
            return &p->all[i];
    return NULL;
}

/* The option most similar to the `length` letters; NULL: none is similar. */
static const char *nearest(const parser *p, const char *typed, size_t length)
{
    const char *best = NULL;
    char flag[64];
    int fewest = word_fewest(length);
    for (int i = 0; i < p->n; i++) {
        snprintf(flag, sizeof flag, "--%s", p->all[i].is->name);
        if (!is_operand(&p->all[i]) && word_is_nearer(typed, length, flag, &fewest))
            best = p->all[i].is->name;
    }
    return best;
}

/* The option that other trainers give this name, written with "-" or "_". */
static const char *synonym(const parser *p, const char *typed, size_t length)
{
    static const char *const pairs[][2] = {
 {"learning-rate", "lr"},           {"lr-scheduler-type", "lr-schedule"}, {"num-train-epochs", "epochs"},
 {"max-steps", "steps"},            {"save-steps", "save-every"},         {"eval-steps", "eval-every"},
 {"save-total-limit", "keep"},      {"output-dir", "out"},                {"model-name-or-path", "model"},
 {"train-file", "data"},            {"dataset", "data"},                  {"validation-file", "eval-data"},
 {"max-seq-length", "seq-len"},     {"block-size", "seq-len"},            {"train-batch-size", "batch-size"},
 {"per-device-train-batch-size", "micro-batch"}, {"adam-beta1", "beta1"}, {"adam-beta2", "beta2"},
 {"adam-epsilon", "eps"},           {"resume-from-checkpoint", "resume"}, {"bf16", "dtype"},
 {"warmup", "warmup-steps"},        {"clip-grad", "max-grad-norm"},      {"lora-rank", "lora"},
 {"lora-r", "lora"},                {"lora-target", "lora-targets"},     {"lora-target-modules", "lora-targets"},
        {"load-in-4bit", "base"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        bool same = strlen(pairs[i][0]) == length;
        for (size_t k = 0; k < length && same; k++)
            same = pairs[i][0][k] == typed[k] || (pairs[i][0][k] == '-' && typed[k] == '_');
        for (int a = 0; a < p->n && same; a++)
            if (!strcmp(p->all[a].is->name, pairs[i][1]))
                return pairs[i][1];
    }
    return NULL;
}

static int refuse_unknown(const parser *p, const char *typed, size_t length, pt_error *e)
{
    const char *meant = synonym(p, typed + 2, length - 2);
    meant = meant ? meant : nearest(p, typed, length);
    if (!meant)
        return pt_fail(e, PT_USAGE, "unknown option %.*s; --help lists the options", (int)length, typed);
    return pt_fail(e, PT_USAGE, "unknown option %.*s; did you mean --%s?", (int)length, typed, meant);
}

/* ---- parsing ---- */

static int set(parser *p, option *o, const char *value, pt_error *e)
{
    const bool list = o->is->kind == PT_OPTION_TEXTS;
    if (o->given && !list && !is_flag(o->is))
        return pt_fail(e, PT_USAGE, "--%s is given twice, as %.200s and as %.200s: give it once", o->is->name, o->given, value);
    const bool first = !o->given;
    o->given = value;
    if (o->own)
        return option_set(o->is, o->own->value, value, e);
    int failed = first && list ? pt_options_set(p->options, o->is->name, NULL, e) : 0;
    return failed ? failed : pt_options_set(p->options, o->is->name, value, e);
}

static int set_operand(parser *p, const char *value, pt_error *e)
{
    for (int i = 0; i < p->n; i++)
        if (is_operand(&p->all[i]) && !p->all[i].given)
            return set(p, &p->all[i], value, e);
    return pt_fail(e, PT_USAGE, "unexpected argument \"%s\": options start with --", value);
}

/* The option at *at, and its value, which may be the next argument. */
static int take(parser *p, int *at, pt_error *e)
{
    const char *const typed = p->line->argv[*at], *const next = *at + 1 < p->line->argc ? p->line->argv[*at + 1] : NULL;
    const size_t length = strcspn(typed, "=");
    const char *value = typed[length] ? typed + length + 1 : NULL;
    option *o = find(p, typed, length);
    if (!o)
        return refuse_unknown(p, typed, length, e);
    if (is_flag(o->is))
        return value ? pt_fail(e, PT_USAGE, "--%s takes no value", o->is->name) : set(p, o, "true", e);
    if (!value && o->is->implied && (!next || !strncmp(next, "--", 2)))
        value = o->is->implied;
    if (!value && next && !find(p, next, strcspn(next, "="))) {
        value = next;
        ++*at;
    }
    if (!value)
        return pt_fail(e, PT_USAGE, "--%s needs a value: --%s %s", o->is->name, o->is->name, o->is->values);
    return set(p, o, value, e);
}

int args_parse(const command_line *l, pt_options **out, pt_error *e)
{
    parser p;
    int failed = open_parser(&p, l, e);
    *out = p.options;
    for (int i = 1; i < l->argc && !failed; i++) {
        if (strcmp(l->argv[i], "--help") == 0 || strcmp(l->argv[i], "-h") == 0) {
            print_help(&p);
            return 1;
        }
        failed = strncmp(l->argv[i], "--", 2) ? set_operand(&p, l->argv[i], e) : take(&p, &i, e);
    }
    return failed;
}
