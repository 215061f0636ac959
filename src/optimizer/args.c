/* args.c - the values of --optimizer-args, "rank=8,scale=1". */
#include "optimizer/optimizer.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_TEXT = 256, VALUE_TEXT = 32 };

static double *value_at(optimizer_args *a, const arg_row *r) { return (double *)((char *)a + r->at); }

static void list_keys(const optimizer *o, char out[KEYS_TEXT])
{
    size_t n = 0;
    out[0] = 0;
    for (const arg_row *r = o->args; r && r->key && n < KEYS_TEXT; r++)
        n += (size_t)snprintf(out + n, KEYS_TEXT - n, "%s%s", n ? ", " : "", r->key);
}

static bool is_key(const char *key, const char *text, size_t n) { return strlen(key) == n && !memcmp(key, text, n); }

static const arg_row *find(const optimizer *o, const char *text, size_t n)
{
    for (const arg_row *r = o->args; r && r->key; r++)
        if (is_key(r->key, text, n))
            return r;
    return NULL;
}

static bool is_among(const char *const *words, const char *text)
{
    for (; *words; words++)
        if (!strcmp(*words, text))
            return true;
    return false;
}

/* false: it is no such value. */
static bool read_value(const arg_row *r, const char *text, double *out)
{
    static const char *const yes[] = {"true", "True", "1", NULL}, *const no[] = {"false", "False", "0", NULL};
    char *end;
    for (int i = 0; r->kind == ARG_CHOICE; i++) {
        if (!r->choices[i])
            return false;
        *out = i;
        if (!strcmp(r->choices[i], text))
            return true;
    }
    if (r->kind == ARG_BOOL) {
        *out = is_among(yes, text);
        return *out != 0 || is_among(no, text);
    }
    if (isspace((unsigned char)*text) || strpbrk(text, "xX"))
        return false;
    *out = strtod(text, &end);
    return end != text && !*end && *out >= r->low && *out <= r->high && (r->kind != ARG_INT || *out == floor(*out));
}

static int refuse_value(const arg_row *r, const char *text, pt_error *e)
{
    if (r->kind == ARG_BOOL)
        return pt_fail(e, PT_USAGE, "`optimizer_args`: %s is \"%s\": it must be true or false", r->key, text);
    if (r->kind == ARG_CHOICE)
        return pt_fail(e, PT_USAGE, "`optimizer_args`: %s is \"%s\": it must be %s%s%s", r->key, text, r->choices[0],
                       r->choices[1] ? " or " : "", r->choices[1] ? r->choices[1] : "");
    return pt_fail(e, PT_USAGE, "`optimizer_args`: %s is \"%s\": it must be a%s number from %g to %g", r->key, text,
                   r->kind == ARG_INT ? " whole" : "", r->low, r->high);
}

static int refuse_key(const optimizer *o, const char *text, int n, pt_error *e)
{
    char keys[KEYS_TEXT];
    list_keys(o, keys);
    if (!keys[0])
        return pt_fail(e, PT_USAGE, "`optimizer_args` has no effect with `optimizer` %s: leave it out", o->name);
    return pt_fail(e, PT_USAGE, "`optimizer_args` has the key \"%.*s\", which `optimizer` %s lacks: it has %s", n < 64 ? n : 64, text,
                   o->name, keys);
}

/* "key=value" of n characters. */
static int take(const optimizer *o, const char *text, size_t n, optimizer_args *out, bool *given, pt_error *e)
{
    const char *equals = memchr(text, '=', n);
    const size_t key = equals ? (size_t)(equals - text) : n, rest = equals ? n - key - 1 : 0;
    char value[VALUE_TEXT];
    const arg_row *r = find(o, text, key);
    if (!r)
        return refuse_key(o, text, (int)(key < KEYS_TEXT ? key : KEYS_TEXT), e);
    if (!rest)
        return pt_fail(e, PT_USAGE, "`optimizer_args`: %s has no value: write %s=VALUE", r->key, r->key);
    snprintf(value, sizeof value, "%.*s", (int)(rest < VALUE_TEXT ? rest : VALUE_TEXT - 1), equals + 1);
    if (given[r - o->args])
        return pt_fail(e, PT_USAGE, "`optimizer_args`: %s is given twice: give it once", r->key);
    given[r - o->args] = true;
    return rest < VALUE_TEXT && read_value(r, value, value_at(out, r)) ? 0 : refuse_value(r, value, e);
}

static int check_together(const optimizer_args *a, pt_error *e)
{
    if (a->warmup_init != 0 && a->relative_step == 0)
        return pt_fail(e, PT_USAGE, "`optimizer_args`: warmup_init has no effect without relative_step=true: add that, or leave it out");
    return 0;
}

int optimizer_args_parse(const optimizer *o, const char *text, optimizer_args *out, pt_error *e)
{
    bool given[OPTIMIZER_ARGS] = {false};
    int failed = 0;
    *out = (optimizer_args){0};
    for (const arg_row *r = o->args; r && r->key; r++)
        *value_at(out, r) = r->initial;
    while (text && !failed) {
        const size_t n = strcspn(text, ",");
        failed = take(o, text, n, out, given, e);
        text = text[n] ? text + n + 1 : NULL;
    }
    return failed ? failed : check_together(out, e);
}

double optimizer_relative_lr(const optimizer_args *a, int64_t step)
{
    return fmin(a->warmup_init != 0 ? 1e-6 * (double)step : 1e-2, 1 / sqrt((double)step));
}
