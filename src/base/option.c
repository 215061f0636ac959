#include "base/option.h"

#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

static void *at(const pt_option *o, const void *of) { return (char *)of + o->at; }
static void *also(const pt_option *o, const void *of) { return (char *)of + o->also; }
static const char *text_at(const pt_option *o, const void *of) { return *(const char **)at(o, of); }

/* The n-th of "a|b|c", and its length; NULL: there are fewer. */
static const char *choice(const pt_option *o, int n, size_t *length)
{
    const char *c = o->values;
    for (; n > 0 && c; n--) {
        c = strchr(c, '|');
        c = c ? c + 1 : NULL;
    }
    *length = c ? strcspn(c, "|") : 0;
    return n < 0 ? NULL : c;
}

static int choices(const pt_option *o)
{
    int n = 1;
    for (const char *c = o->values; (c = strchr(c, '|')); c++)
        n++;
    return n;
}

static int choice_of(const pt_option *o, const char *text)
{
    size_t length;
    for (int i = 0; choice(o, i, &length); i++)
        if (strlen(text) == length && !strncmp(choice(o, i, &length), text, length))
            return i;
    return -1;
}

static bool is_whole(const pt_option *o) { return o->kind == PT_OPTION_INT || o->kind == PT_OPTION_INT32 || o->kind == PT_OPTION_SEED; }

static double number_at(const pt_option *o, const void *from)
{
    switch (o->kind) {
    case PT_OPTION_INT: return (double)*(const int64_t *)at(o, from);
    case PT_OPTION_INT32: return *(const int *)at(o, from);
    case PT_OPTION_SEED: return (double)*(const uint64_t *)at(o, from);
    default: return *(const double *)at(o, from);
    }
}

/* ---- what a value must be ---- */

/* What a value must be instead: for a whole number the end of the range that it is beyond, else the whole range. */
static const char *range_text(const pt_option *o, double value, char out[OPTION_TEXT])
{
    const bool unlimited = o->high >= 1e15;
    if (is_whole(o))
        snprintf(out, OPTION_TEXT, value > o->high ? "at most %.0f" : "%.0f or more", value > o->high ? o->high : o->low);
    else if (o->low == ABOVE_0)
        snprintf(out, OPTION_TEXT, unlimited ? "above 0" : "above 0 and at most %.15g", o->high);
    else
        snprintf(out, OPTION_TEXT, unlimited ? "%.15g or more" : "from %.15g to %.15g", o->low, o->high);
    return out;
}

static int refuse(const pt_option *o, const char *text, pt_error *e)
{
    char range[OPTION_TEXT];
    if (o->kind == PT_OPTION_CHOICE || o->kind == PT_OPTION_EITHER)
        return pt_fail(e, PT_USAGE, "`%s` %.200s: it must be %s%s", o->field, text, strchr(o->values, '|') ? "one of " : "", o->values);
    if (!o->values)
        return pt_fail(e, PT_USAGE, "`%s` %.200s: it must be true or false", o->field, text);
    const double value = atof(text);
    return pt_fail(e, PT_USAGE, "`%s` %.200s: it must be %s%s", o->field, text,
                   !is_whole(o) ? "a number " : value > o->high ? "" : "a whole number, ",
                   range_text(o, value, range));
}

static bool is_in_range(const pt_option *o, double value) { return value >= o->low && value <= o->high; } /* false for NaN */

int option_check(const pt_option *o, const void *from, pt_error *e)
{
    char range[OPTION_TEXT];
    if (o->kind == PT_OPTION_CHOICE)
        return pt_check_choice(o->field, (unsigned)*(const int *)at(o, from), (unsigned)choices(o) - 1, e);
    if (o->kind == PT_OPTION_TEXTS)
        return pt_check_list(o->field, *(const char *const *const *)at(o, from), *(const int *)also(o, from), e);
    if (!is_whole(o) && o->kind != PT_OPTION_REAL)
        return 0;
    const double value = number_at(o, from);
    if (is_in_range(o, value) || option_is_default(o, from))
        return 0;
    return pt_fail(e, PT_USAGE, "`%s` is %.15g: it must be %s", o->field, value, range_text(o, value, range));
}

/* ---- from text ---- */

static int set_bool(const pt_option *o, void *into, const char *text, pt_error *e)
{
    const bool yes = !strcmp(text, "true");
    if (!yes && strcmp(text, "false"))
        return refuse(o, text, e);
    *(bool *)at(o, into) = yes != (o->kind == PT_OPTION_NOT);
    return 0;
}

static int set_choice(const pt_option *o, void *into, const char *text, pt_error *e)
{
    const int chosen = choice_of(o, text);
    if (chosen < 0)
        return refuse(o, text, e);
    if (o->kind == PT_OPTION_EITHER)
        *(bool *)at(o, into) = chosen == 1;
    else
        *(int *)at(o, into) = chosen;
    return 0;
}

static int set_whole(const pt_option *o, void *into, const char *text, pt_error *e)
{
    char *end;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (end == text || *end || errno || strchr(text, '-') || !is_in_range(o, (double)value))
        return refuse(o, text, e);
    if (o->kind == PT_OPTION_INT32)
        *(int *)at(o, into) = (int)value;
    else
        *(uint64_t *)at(o, into) = value; /* for an int64_t, too */
    return 0;
}

static int set_real(const pt_option *o, void *into, const char *text, pt_error *e)
{
    char *end;
    const double value = strtod(text, &end);
    if (end == text || *end || !is_in_range(o, value))
        return refuse(o, text, e);
    *(double *)at(o, into) = value;
    return 0;
}

/* Refuses sizes so small that the unit must be missing. 0 means none. */
static int set_size(const pt_option *o, void *into, const char *text, pt_error *e)
{
    enum { LEAST = 1 << 20, GIBS = 256 };
    uint64_t bytes;
    if (size_parse(text, &bytes, e))
        return pt_error_prefix(e, "`%s`", o->field);
    if (bytes && bytes < LEAST && !text[strspn(text, "0123456789.")])
        return pt_fail(e, PT_USAGE, "`%s` %s: that is %llu byte%s; write the unit too, such as %llu%s", o->field, text,
                       (unsigned long long)bytes, plural(bytes), (unsigned long long)bytes, bytes < GIBS ? "GiB" : "MiB");
    *(uint64_t *)at(o, into) = bytes;
    return 0;
}

static int add_text(const pt_option *o, void *into, const char *text, pt_error *e)
{
    const char ***list = at(o, into);
    int *n = also(o, into);
    const char **more = realloc(*list, ((size_t)*n + 1) * sizeof *more);
    if (!more)
        return pt_fail(e, PT_FAILED, "out of memory");
    more[(*n)++] = text;
    *list = more;
    return 0;
}

int option_set(const pt_option *o, void *into, const char *text, pt_error *e)
{
    switch (o->kind) {
    case PT_OPTION_FLAG:
    case PT_OPTION_NOT: return set_bool(o, into, text, e);
    case PT_OPTION_EITHER:
    case PT_OPTION_CHOICE: return set_choice(o, into, text, e);
    case PT_OPTION_TEXT: *(const char **)at(o, into) = text; return 0;
    case PT_OPTION_RESUME:
        *(bool *)at(o, into) = true;
        *(const char **)also(o, into) = text[0] ? text : NULL;
        return 0;
    case PT_OPTION_TEXTS: return add_text(o, into, text, e);
    case PT_OPTION_REAL: return set_real(o, into, text, e);
    case PT_OPTION_SIZE: return set_size(o, into, text, e);
    default: return set_whole(o, into, text, e);
    }
}

void option_reset(const pt_option *o, void *into)
{
    switch (o->kind) {
    case PT_OPTION_FLAG:
    case PT_OPTION_EITHER: *(bool *)at(o, into) = false; break;
    case PT_OPTION_NOT: *(bool *)at(o, into) = true; break;
    case PT_OPTION_CHOICE: *(int *)at(o, into) = o->initial ? choice_of(o, o->initial) : 0; break;
    case PT_OPTION_TEXT: *(const char **)at(o, into) = o->initial; break;
    case PT_OPTION_RESUME: *(bool *)at(o, into) = false, *(const char **)also(o, into) = NULL; break;
    case PT_OPTION_TEXTS:
        free(*(const char ***)at(o, into));
        *(const char ***)at(o, into) = NULL, *(int *)also(o, into) = 0;
        break;
    case PT_OPTION_INT32: *(int *)at(o, into) = o->initial ? atoi(o->initial) : (int)o->unset; break;
    case PT_OPTION_REAL: *(double *)at(o, into) = o->initial ? atof(o->initial) : o->unset; break;
    case PT_OPTION_SIZE: *(uint64_t *)at(o, into) = PT_AUTO; break;
    default: *(int64_t *)at(o, into) = o->initial ? atoll(o->initial) : (int64_t)o->unset;
    }
}

/* ---- to text ---- */

static const char *real_text(double value, char out[OPTION_TEXT])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, OPTION_TEXT, "%.*g", digits, value);
        if (atof(out) == value)
            break;
    }
    return out;
}

static const char *exact_size(uint64_t bytes, char out[OPTION_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int u = 0;
    for (; bytes && bytes % 1024 == 0 && u < 4; u++)
        bytes /= 1024;
    snprintf(out, OPTION_TEXT, "%llu%s", (unsigned long long)bytes, bytes ? units[u] : "");
    return out;
}

static const char *choice_text(const pt_option *o, int chosen, char out[OPTION_TEXT])
{
    size_t length;
    const char *name = choice(o, chosen, &length);
    snprintf(out, OPTION_TEXT, "%.*s", (int)length, name ? name : "");
    return name ? out : NULL;
}

const char *option_text(const pt_option *o, const void *from, int i, char out[OPTION_TEXT])
{
    if (o->kind == PT_OPTION_TEXTS)
        return i >= 0 && i < *(const int *)also(o, from) ? (*(const char *const *const *)at(o, from))[i] : NULL;
    if (i)
        return NULL;
    switch (o->kind) {
    case PT_OPTION_FLAG:
    case PT_OPTION_NOT: return *(const bool *)at(o, from) == (o->kind == PT_OPTION_FLAG) ? "true" : "false";
    case PT_OPTION_EITHER: return choice_text(o, *(const bool *)at(o, from), out);
    case PT_OPTION_CHOICE: return choice_text(o, *(const int *)at(o, from), out);
    case PT_OPTION_TEXT: return text_at(o, from);
    case PT_OPTION_RESUME: return !*(const bool *)at(o, from) ? NULL : *(const char **)also(o, from) ? *(const char **)also(o, from) : "";
    case PT_OPTION_REAL: return real_text(number_at(o, from), out);
    case PT_OPTION_SIZE: return *(const uint64_t *)at(o, from) == PT_AUTO ? NULL : exact_size(*(const uint64_t *)at(o, from), out);
    case PT_OPTION_INT32: snprintf(out, OPTION_TEXT, "%d", *(const int *)at(o, from)); return out;
    default: snprintf(out, OPTION_TEXT, "%lld", *(const long long *)at(o, from)); return out;
    }
}

bool option_is_default(const pt_option *o, const void *from)
{
    char a[OPTION_TEXT];
    const char *now = option_text(o, from, 0, a);
    if (is_whole(o) || o->kind == PT_OPTION_REAL)
        return number_at(o, from) == (o->initial ? atof(o->initial) : o->unset);
    if (o->kind == PT_OPTION_CHOICE || o->kind == PT_OPTION_EITHER)
        return now && choice_of(o, now) == (o->initial ? choice_of(o, o->initial) : 0);
    if (!o->values && now)
        return !strcmp(now, "false");
    return now == o->initial || (now && o->initial && !strcmp(now, o->initial));
}

json_t *option_json(const pt_option *o, const void *from)
{
    char text[OPTION_TEXT];
    const char *value = option_text(o, from, 0, text);
    switch (o->kind) {
    case PT_OPTION_FLAG:
    case PT_OPTION_NOT: return json_boolean(*(const bool *)at(o, from) == (o->kind == PT_OPTION_FLAG));
    case PT_OPTION_INT:
    case PT_OPTION_INT32:
    case PT_OPTION_SEED: return json_integer(atoll(value));
    case PT_OPTION_REAL: return json_real(number_at(o, from));
    case PT_OPTION_TEXTS: break;
    default: return value ? json_string(value) : NULL;
    }
    json_t *list = json_array();
    for (int i = 0; (value = option_text(o, from, i, text)); i++)
        json_array_append_new(list, json_string(value));
    return list;
}
