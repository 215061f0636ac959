#include "args.h"

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
        if (!a->help)
            continue;
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
    printf("\n  %-28sshow this help\n", "--help");
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
    return pt_fail(e, PT_USAGE, "%s %s: it must be %s%s", a->name, text, index > 1 ? "one of " : "", a->meta);
}

static int parse_int(const arg *a, const char *text, pt_error *e)
{
    char *end;
    errno = 0;
    const unsigned long long most = a->kind == ARG_INT32 ? INT32_MAX : INT64_MAX;
    unsigned long long value = strtoull(text, &end, 10);
    const unsigned long long from = a->kind == ARG_COUNT;
    if (end == text || *end || strchr(text, '-') || value < from)
        return pt_fail(e, PT_USAGE, "%s %s: it must be a whole number, %llu or more", a->name, text, from);
    if (errno || value > most)
        return pt_fail(e, PT_USAGE, "%s %s: it must be at most %llu", a->name, text, most);
    if (a->kind == ARG_INT32)
        *(int *)a->value = (int)value;
    else if (a->kind == ARG_SEED)
        *(uint64_t *)a->value = value;
    else
        *(int64_t *)a->value = (int64_t)value;
    return 0;
}

/* Refuses sizes so small that the unit must be missing. 0 means none. */
static int parse_size(const arg *a, const char *text, pt_error *e)
{
    enum { LEAST = 1 << 20, GIBS = 256 };
    uint64_t bytes;
    if (pt_size_parse(text, &bytes, e))
        return pt_error_prefix(e, "%s", a->name);
    if (bytes && bytes < LEAST && !text[strspn(text, "0123456789.")])
        return pt_fail(e, PT_USAGE, "%s %s: that is %llu byte%s; write the unit too, such as %llu%s", a->name, text,
                       (unsigned long long)bytes, bytes == 1 ? "" : "s", (unsigned long long)bytes, bytes < GIBS ? "GiB" : "MiB");
    *(uint64_t *)a->value = bytes;
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
            return pt_fail(e, PT_USAGE, "%s is given more than %d times: give it a folder instead", a->name, ARG_MANY);
        many->v[many->n++] = text;
        return 0;
    case ARG_DOUBLE:
    case ARG_FROM_0:
    case ARG_ABOVE_0:
        number = strtod(text, &end);
        if (end == text || *end || !isfinite(number) || (a->kind == ARG_ABOVE_0 && number <= 0) || (a->kind == ARG_FROM_0 && number < 0))
            return pt_fail(e, PT_USAGE, "%s %s: it must be a number%s", a->name, text,
                           a->kind == ARG_ABOVE_0 ? " above 0" : a->kind == ARG_FROM_0 ? ", 0 or more" : "");
        *(double *)a->value = number;
        return 0;
    case ARG_SIZE: return parse_size(a, text, e);
    case ARG_CHOICE: return parse_choice(a, text, e);
    case ARG_STRING: *(const char **)a->value = text; return 0;
    case ARG_IGNORED: return 0;
    default: return parse_int(a, text, e);
    }
}

/* The next operand that has no value yet. */
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

enum { NAME_MOST = 32 }; /* compared letters of an option */

static int least(int a, int b) { return a < b ? a : b; }

/* The optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`. */
static int distance(const char *a, int a_n, const char *b, int b_n)
{
    int d[NAME_MOST + 1][NAME_MOST + 1];
    for (int i = 0; i <= a_n; i++)
        for (int k = 0; k <= b_n; k++) {
            if (!i || !k) {
                d[i][k] = i + k;
                continue;
            }
            d[i][k] = least(d[i - 1][k - 1] + (a[i - 1] != b[k - 1]), least(d[i - 1][k], d[i][k - 1]) + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                d[i][k] = least(d[i][k], d[i - 2][k - 2] + 1);
        }
    return d[a_n][b_n];
}

int word_fewest(size_t length) { return (int)(length < NAME_MOST ? length : NAME_MOST) / 3 + 1; }

bool word_is_nearer(const char *typed, size_t length, const char *name, int *fewest)
{
    const int typed_n = length < NAME_MOST ? (int)length : NAME_MOST, name_n = (int)strnlen(name, NAME_MOST);
    const bool begins = typed_n > 3 && strncmp(name, typed, (size_t)typed_n) == 0;
    const int apart = begins ? 0 : distance(typed, typed_n, name, name_n);
    if (apart >= *fewest)
        return false;
    *fewest = apart;
    return true;
}

/* The option most similar to the `length` letters; NULL: none is similar. */
static const char *nearest(const arg *table, int n, const char *typed, size_t length)
{
    const char *best = NULL;
    int fewest = word_fewest(length);
    for (int i = 0; i < n; i++)
        if (table[i].name && table[i].kind != ARG_OPERAND && word_is_nearer(typed, length, table[i].name, &fewest))
            best = table[i].name;
    return best;
}

/* The option that other trainers give this name, written with "-" or "_". */
static const char *synonym(const arg *table, int n, const char *typed, size_t length)
{
    static const char *const pairs[][2] = {
        {"--learning-rate", "--lr"},           {"--lr-scheduler-type", "--lr-schedule"}, {"--num-train-epochs", "--epochs"},
        {"--max-steps", "--steps"},            {"--save-steps", "--save-every"},         {"--eval-steps", "--eval-every"},
        {"--save-total-limit", "--keep"},      {"--output-dir", "--out"},                {"--model-name-or-path", "--model"},
        {"--train-file", "--data"},            {"--dataset", "--data"},                  {"--validation-file", "--eval-data"},
        {"--max-seq-length", "--seq-len"},     {"--block-size", "--seq-len"},            {"--train-batch-size", "--batch-size"},
        {"--per-device-train-batch-size", "--micro-batch"}, {"--adam-beta1", "--beta1"}, {"--adam-beta2", "--beta2"},
        {"--adam-epsilon", "--eps"},           {"--resume-from-checkpoint", "--resume"}, {"--bf16", "--dtype"},
        {"--warmup", "--warmup-steps"},        {"--clip-grad", "--max-grad-norm"},      {"--lora-rank", "--lora"},
        {"--lora-r", "--lora"},                {"--lora-target", "--lora-targets"},     {"--lora-target-modules", "--lora-targets"},
        {"--load-in-4bit", "--base"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        bool same = strlen(pairs[i][0]) == length;
        for (size_t k = 0; k < length && same; k++)
            same = pairs[i][0][k] == typed[k] || (pairs[i][0][k] == '-' && typed[k] == '_');
        for (int a = 0; a < n && same; a++)
            if (table[a].name && !strcmp(table[a].name, pairs[i][1]))
                return table[a].name;
    }
    return NULL;
}

static int refuse_unknown(const arg *table, int n, const char *typed, size_t length, pt_error *e)
{
    const char *meant = synonym(table, n, typed, length);
    meant = meant ? meant : nearest(table, n, typed, length);
    if (!meant)
        return pt_fail(e, PT_USAGE, "unknown option %.*s; --help lists the options", (int)length, typed);
    return pt_fail(e, PT_USAGE, "unknown option %.*s; did you mean %s?", (int)length, typed, meant);
}

int args_parse(int argc, char **argv, const char *usage, const arg *table, int n, pt_error *e)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            args_help(usage, table, n);
            return 1;
        }
        size_t length = strcspn(argv[i], "=");
        const char *value = argv[i][length] ? argv[i] + length + 1 : NULL;
        const arg *operand = next_operand(table, n);
        if (strncmp(argv[i], "--", 2) != 0 && operand) {
            *(const char **)operand->value = argv[i];
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0)
            return pt_fail(e, PT_USAGE, "unexpected argument \"%s\": options start with --", argv[i]);
        const arg *a = find(table, n, argv[i], length);
        if (!a)
            return refuse_unknown(table, n, argv[i], length, e);
        if (a->kind == ARG_FLAG || a->kind == ARG_IGNORED_FLAG) {
            if (value)
                return pt_fail(e, PT_USAGE, "%s takes no value", a->name);
            if (a->value)
                *(bool *)a->value = true;
            continue;
        }
        bool next_is_value = i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0;
        if (!value && a->value_optional && !next_is_value)
            value = "";
        const bool next_is_option = i + 1 < argc && find(table, n, argv[i + 1], strcspn(argv[i + 1], "="));
        if (!value && i + 1 < argc && !next_is_option)
            value = argv[++i];
        if (!value)
            return pt_fail(e, PT_USAGE, "%s needs a value: %s %s", a->name, a->name, a->meta ? a->meta : "VALUE");
        int failed = parse_value(a, value, e);
        if (failed)
            return failed;
    }
    return 0;
}
