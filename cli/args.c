#include "args.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void args_help(const char *usage, const arg *table, int n)
{
    printf("%s\n", usage);
    for (int i = 0; i < n; i++) {
        const arg *a = &table[i];
        char left[80];
        if (a->kind == ARG_HEADING) {
            printf("\n%s\n", a->help);
            continue;
        }
        snprintf(left, sizeof left, a->value_optional ? "%s [%s]" : a->meta ? "%s %s" : "%s", a->name, a->meta ? a->meta : "");
        printf(strlen(left) > 27 ? "  %s\n%30s" : "  %-28s", left, "");
        for (const char *line = a->help; *line;) {
            size_t length = strcspn(line, "\n");
            printf("%.*s\n", (int)length, line);
            line += length + (line[length] == '\n');
            if (*line)
                printf("%30s", "");
        }
    }
    printf("\n  %-28sthis page\n", "--help");
}

static int parse_choice(const arg *a, const char *text, pt_error *e)
{
    int index = 0;
    for (const char *at = a->meta; at; index++) {
        size_t n = strcspn(at, "|");
        if (strlen(text) == n && strncmp(at, text, n) == 0) {
            *(int *)a->value = index;
            return 0;
        }
        at = at[n] ? at + n + 1 : NULL;
    }
    return pt_fail(e, PT_USAGE, "%s %s: it must be one of %s", a->name, text, a->meta);
}

static int parse_int(const arg *a, const char *text, pt_error *e)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < 0 || (a->kind == ARG_INT32 && value > INT32_MAX))
        return pt_fail(e, PT_USAGE, "%s %s: it must be a whole number, 0 or more", a->name, text);
    if (a->kind == ARG_INT32)
        *(int *)a->value = (int)value;
    else if (a->kind == ARG_SEED)
        *(uint64_t *)a->value = (uint64_t)value;
    else
        *(int64_t *)a->value = value;
    return 0;
}

static int parse_value(const arg *a, const char *text, pt_error *e)
{
    char *end;
    double number;
    arg_strings *many;
    switch (a->kind) {
    case ARG_STRINGS:
        many = a->value;
        if (many->n == ARG_MANY)
            return pt_fail(e, PT_USAGE, "%s is given more than %d times: name a folder instead", a->name, ARG_MANY);
        many->v[many->n++] = text;
        return 0;
    case ARG_DOUBLE:
        number = strtod(text, &end);
        if (end == text || *end || !isfinite(number))
            return pt_fail(e, PT_USAGE, "%s %s: it must be a number", a->name, text);
        *(double *)a->value = number;
        return 0;
    case ARG_SIZE:
        return size_parse(text, a->value, e) ? pt_error_prefix(e, "%s", a->name) : 0;
    case ARG_CHOICE: return parse_choice(a, text, e);
    case ARG_STRING: *(const char **)a->value = text; return 0;
    default: return parse_int(a, text, e);
    }
}

/* The first operand that has no value yet. */
static const arg *next_operand(const arg *table, int n)
{
    for (int i = 0; i < n; i++)
        if (table[i].kind == ARG_OPERAND && !*(const char **)table[i].value)
            return &table[i];
    return NULL;
}

static const arg *find(const arg *table, int n, const char *name, size_t length)
{
    for (int i = 0; i < n; i++)
        if (table[i].name && table[i].kind != ARG_OPERAND && strlen(table[i].name) == length && strncmp(table[i].name, name, length) == 0)
            return &table[i];
    return NULL;
}

/* The option that shares the longest beginning with what was typed. */
static const char *nearest(const arg *table, int n, const char *typed)
{
    const char *best = "--help";
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        size_t same = 0;
        while (table[i].name && typed[same] && table[i].name[same] == typed[same])
            same++;
        if (same > most) {
            most = same;
            best = table[i].name;
        }
    }
    return best;
}

int args_parse(int argc, char **argv, const char *usage, const arg *table, int n, pt_error *e)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            args_help(usage, table, n);
            return 1;
        }
    for (int i = 1; i < argc; i++) {
        size_t length = strcspn(argv[i], "=");
        const char *value = argv[i][length] ? argv[i] + length + 1 : NULL;
        const arg *operand = next_operand(table, n);
        if (strncmp(argv[i], "--", 2) != 0 && operand) {
            *(const char **)operand->value = argv[i];
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0)
            return pt_fail(e, PT_USAGE, "\"%s\" is not an option: options start with --", argv[i]);
        const arg *a = find(table, n, argv[i], length);
        if (!a)
            return pt_fail(e, PT_USAGE, "there is no option %.*s; did you mean %s?", (int)length, argv[i], nearest(table, n, argv[i]));
        if (a->kind == ARG_FLAG) {
            if (value)
                return pt_fail(e, PT_USAGE, "%s takes no value", a->name);
            *(bool *)a->value = true;
            continue;
        }
        bool next_is_value = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
        if (!value && a->value_optional && !next_is_value)
            value = "";
        if (!value && i + 1 < argc)
            value = argv[++i];
        if (!value)
            return pt_fail(e, PT_USAGE, "%s wants a value: %s %s", a->name, a->name, a->meta ? a->meta : "VALUE");
        int failed = parse_value(a, value, e);
        if (failed)
            return failed;
    }
    return 0;
}
