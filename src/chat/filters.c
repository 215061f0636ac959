/* filters.c - the filters, "x | NAME(...)". filters_sequence.c has those of sequences. */
#include "chat/filters.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Converts a value to a string; markup stays markup. */
static value soft(run *r, value v)
{
    return v.kind == VALUE_STRING ? v : value_text(value_str(&r->arena, v));
}

static value filter_string(run *r, value in, const bound *b) { return soft(r, in); }
static value filter_upper(run *r, value in, const bound *b) { return text_upper(&r->arena, value_str(&r->arena, in)); }
static value filter_lower(run *r, value in, const bound *b) { return text_lower(&r->arena, value_str(&r->arena, in)); }
static value filter_capitalize(run *r, value in, const bound *b) { return text_capitalize(&r->arena, value_str(&r->arena, in)); }

static value filter_trim(run *r, value in, const bound *b)
{
    value v = soft(r, in);
    const text characters = bound_text(r, b, 0, NULL);
    v.text = text_strip(&r->arena, v.text, characters.s ? &characters : NULL, true, true);
    return v;
}

static value filter_safe(run *r, value in, const bound *b)
{
    value v = soft(r, in);
    v.markup = true;
    return v;
}

static value filter_escape(run *r, value in, const bound *b) { return escape_markup(r, in); }

static value filter_forceescape(run *r, value in, const bound *b)
{
    return escape_markup(r, value_text(value_str(&r->arena, in)));
}

/* Capitalizes each part between white space, hyphens and opening brackets. */
static value filter_title(run *r, value in, const bound *b)
{
    const text t = value_str(&r->arena, in);
    writer w = {.a = &r->arena};
    bool begins = true;
    for (size_t i = 0; i < t.n;) {
        unsigned n;
        const uint32_t c = utf8_read(t.s + i, &n);
        const bool splits = is_space(c) || (c < 0x80 && strchr("-({[<", (char)c));
        const text one = {t.s + i, n};
        write_text(&w, begins ? text_upper(&r->arena, one).text : text_lower(&r->arena, one).text);
        begins = splits;
        i += n;
    }
    return written(&w);
}

static value filter_default(run *r, value in, const bound *b)
{
    if (in.kind != VALUE_UNDEFINED && !(bound_true(b, 1, false) && !value_true(in)))
        return in;
    return b->given[0] ? b->v[0] : value_text((text){"", 0});
}

static value filter_replace(run *r, value in, const bound *b)
{
    const int64_t most = bound_int(r, b, 2, -1);
    return text_replace(r, value_str(&r->arena, in), value_str(&r->arena, b->v[0]), value_str(&r->arena, b->v[1]), most);
}

static value filter_center(run *r, value in, const bound *b)
{
    return text_center(r, value_str(&r->arena, in), bound_int(r, b, 0, 80), TEXT(" "), 0);
}

static text spaces(run *r, int64_t n)
{
    return text_center(r, TEXT(""), n, TEXT(" "), -1).text;
}

static value filter_indent(run *r, value in, const bound *b)
{
    value s = soft(r, in);
    const text by = b->given[0] && b->v[0].kind == VALUE_STRING ? b->v[0].text : spaces(r, bound_int(r, b, 0, 4));
    const value_list *lines = text_lines(r, text_concat(&r->arena, s, value_text(TEXT("\n"))).text, false).list;
    const bool blank = bound_true(b, 2, false);
    writer w = {.a = &r->arena};
    if (bound_true(b, 1, false))
        write_text(&w, by);
    for (size_t i = 0; i < lines->n; i++) {
        if (i)
            write_string(&w, "\n");
        if (i && (blank || lines->items[i].text.n))
            write_text(&w, by);
        write_text(&w, lines->items[i].text);
    }
    return written(&w);
}

static value filter_wordcount(run *r, value in, const bound *b)
{
    const text t = value_str(&r->arena, in);
    int64_t words = 0;
    run_step(r, t.n / STEP_SEARCHES);
    for (size_t i = 0, within = 0; i < t.n;) {
        unsigned n;
        const uint32_t c = utf8_read(t.s + i, &n);
        const bool word = c == '_' || unicode_is_word(c);
        words += word && !within;
        within = word;
        i += n;
    }
    return value_int(words);
}

static value filter_format(run *r, value in, const args *x)
{
    value all = value_sequence(&r->arena, VALUE_TUPLE);
    if (x->n_named)
        arena_fail(&r->arena, "format with names is not supported");
    for (size_t i = 0; i < x->n; i++)
        list_push(&r->arena, all.list, x->v[i]);
    return text_format_percent(r, value_str(&r->arena, in), all);
}

static value filter_truncate(run *r, value in, const bound *b)
{
    const text t = value_str(&r->arena, in), end = bound_text(r, b, 2, "...");
    const int64_t length = bound_int(r, b, 0, 255), leeway = bound_int(r, b, 3, 5);
    const int64_t n = (int64_t)text_length(&r->arena, t);
    const int64_t kept = length - (int64_t)text_length(&r->arena, end);
    if (kept < 0 || leeway < 0)
        arena_fail(&r->arena, "truncate: the length is too small");
    if (n <= length + leeway)
        return value_text(t);
    text part = {t.s, text_offset(&r->arena, t, (size_t)kept)};
    if (!bound_true(b, 1, false)) { /* cut at the last blank */
        size_t at = part.n;
        while (at && part.s[at - 1] != ' ')
            at--;
        if (at)
            part.n = at - 1;
    }
    return text_concat(&r->arena, value_copy(&r->arena, part.s, part.n), value_text(end));
}

/* ---- numbers ---- */

/* Reads a number as Python does: underscores between digits and surrounding white space are allowed. */
static bool clean_number(run *r, text t, char *out, size_t room)
{
    size_t n = 0;
    t = text_strip(&r->arena, t, NULL, true, true);
    if (!t.n || t.n >= room)
        return false;
    run_step(r, t.n / STEP_SEARCHES);
    for (size_t i = 0; i < t.n; i++)
        if (t.s[i] == '_') {
            if (!i || i + 1 == t.n || !strchr("0123456789abcdefABCDEF", t.s[i - 1]) || !strchr("0123456789abcdefABCDEF", t.s[i + 1]))
                return false;
        } else if (t.s[i])
            out[n++] = t.s[i];
        else
            return false;
    out[n] = 0;
    return n > 0;
}

static bool read_float(run *r, text t, double *out)
{
    char s[512], *end;
    if (!clean_number(r, t, s, sizeof s) || strpbrk(s, "xXpP(") || s[0] == ' ')
        return false;
    *out = strtod(s, &end);
    return *end == 0;
}

static bool read_int(run *r, text t, int64_t base, int64_t *out)
{
    char s[128], *end, *digits = s;
    if (!clean_number(r, t, s, sizeof s) || base < 0 || base == 1 || base > 36)
        return false;
    const bool sign = *s == '-' || *s == '+';
    if (s[sign] == '0' && (s[sign + 1] == 'o' || s[sign + 1] == 'O' || s[sign + 1] == 'b' || s[sign + 1] == 'B')) {
        const int64_t own = s[sign + 1] == 'o' || s[sign + 1] == 'O' ? 8 : 2;
        if (base == own || base == 0) { /* strtoll accepts only 0x */
            base = own;
            memmove(s + sign, s + sign + 2, strlen(s + sign + 2) + 1);
        }
    } else if (base == 0 && s[sign] == '0' && strspn(s + sign, "0") < strlen(s + sign) && s[sign + 1] != 'x' && s[sign + 1] != 'X')
        return false;
    errno = 0;
    *out = strtoll(digits, &end, (int)base);
    if (errno == ERANGE)
        arena_fail(&r->arena, "int: %s is beyond 64 bits", s);
    return *end == 0 && end != s;
}

static bool float_to_int(run *r, double d, int64_t *out)
{
    if (isnan(d) || isinf(d))
        return false;
    if (fabs(d) >= 0x1p63)
        arena_fail(&r->arena, "int: %g is beyond 64 bits", d);
    *out = (int64_t)d;
    return true;
}

static value filter_int(run *r, value in, const bound *b)
{
    int64_t i;
    double d;
    if (value_as_int(in, &i) || (in.kind == VALUE_FLOAT && float_to_int(r, in.real, &i)))
        return value_int(i);
    if (in.kind == VALUE_STRING &&
        (read_int(r, in.text, bound_int(r, b, 1, 10), &i) || (read_float(r, in.text, &d) && float_to_int(r, d, &i))))
        return value_int(i);
    if (in.kind == VALUE_UNDEFINED)
        arena_fail(&r->arena, "int of an undefined value");
    return b->given[0] ? b->v[0] : value_int(0);
}

static value filter_float(run *r, value in, const bound *b)
{
    double d;
    if (value_is_number(in))
        return value_float(value_real(in));
    if (in.kind == VALUE_STRING && read_float(r, in.text, &d))
        return value_float(d);
    if (in.kind == VALUE_UNDEFINED)
        arena_fail(&r->arena, "float of an undefined value");
    return b->given[0] ? b->v[0] : value_float(0);
}

static value filter_abs(run *r, value in, const bound *b)
{
    int64_t i;
    if (in.kind == VALUE_FLOAT)
        return value_float(fabs(in.real));
    if (!value_as_int(in, &i) || i == INT64_MIN)
        arena_fail(&r->arena, "abs needs a number, not a %s", value_type_name(in));
    return value_int(i < 0 ? -i : i);
}

/* As Python's round: half to even, of the exact number. */
static double rounded(run *r, double d, int64_t digits)
{
    char s[512];
    run_step(r, NUMBER_STEPS);
    if (isnan(d) || isinf(d) || digits > 22)
        return d;
    if (digits < 0) {
        const double p = pow(10, (double)-digits);
        return digits < -308 ? 0 * d : nearbyint(d / p) * p;
    }
    snprintf(s, sizeof s, "%.*f", (int)digits, d);
    return strtod(s, NULL);
}

static value filter_round(run *r, value in, const bound *b)
{
    const int64_t digits = bound_int(r, b, 0, 0);
    const text method = bound_text(r, b, 1, "common");
    if (!value_is_number(in))
        arena_fail(&r->arena, "round needs a number, not a %s", value_type_name(in));
    if (text_is(method, "common")) {
        int64_t i;
        if (value_as_int(in, &i))
            return value_int(digits >= 0 ? i : (int64_t)rounded(r, (double)i, digits));
        return value_float(rounded(r, in.real, digits));
    }
    const bool up = text_is(method, "ceil");
    if (!up && !text_is(method, "floor"))
        arena_fail(&r->arena, "round: the method must be common, ceil or floor");
    const double p = pow(10, (double)digits), d = value_real(in) * p;
    return value_float((up ? ceil(d) : floor(d)) / p);
}

/* ---- JSON ---- */

static void separators(run *r, value v, json_style *style)
{
    const value_list *pair = value_items(&r->arena, v);
    if (pair->n != 2 || pair->items[0].kind != VALUE_STRING || pair->items[1].kind != VALUE_STRING)
        arena_fail(&r->arena, "tojson: separators must be two strings");
    style->item_separator = pair->items[0].text;
    style->key_separator = pair->items[1].text;
}

static value filter_tojson(run *r, value in, const bound *b)
{
    json_style style = {.ascii = bound_true(b, 0, false), .sorted = bound_true(b, 3, false), .key_separator = TEXT(": ")};
    if (b->given[1] && b->v[1].kind != VALUE_NONE) {
        style.indented = true;
        style.indent = b->v[1].kind == VALUE_STRING ? b->v[1].text : spaces(r, bound_int(r, b, 1, 0));
    }
    style.item_separator = style.indented ? TEXT(",") : TEXT(", ");
    if (b->given[2] && b->v[2].kind != VALUE_NONE)
        separators(r, b->v[2], &style);
    run_step(r, 1);
    return value_json(&r->arena, in, &style);
}

static value filter_attr(run *r, value in, const bound *b)
{
    const text name = bound_text(r, b, 0, "");
    /* Only attributes, no items. */
    return in.kind == VALUE_DICT && !method_exists(in, name) ? value_undefined(name) : get_attribute(r, in, name);
}

static value filter_items(run *r, value in, const bound *b)
{
    value out = value_sequence(&r->arena, VALUE_ITERATOR);
    if (in.kind == VALUE_UNDEFINED)
        return out;
    if (in.kind != VALUE_DICT)
        arena_fail(&r->arena, "items needs a mapping, not a %s", value_type_name(in));
    for (size_t i = 0; i < in.dict->n; i++) {
        value pair = value_sequence(&r->arena, VALUE_TUPLE);
        list_push(&r->arena, pair.list, in.dict->pairs[i].key);
        list_push(&r->arena, pair.list, in.dict->pairs[i].value);
        list_push(&r->arena, out.list, pair);
    }
    return out;
}

/* ---- by name ---- */

static const filter_row filters[] = {
    {"string", filter_string, NULL, ""}, {"upper", filter_upper, NULL, ""}, {"lower", filter_lower, NULL, ""},
    {"capitalize", filter_capitalize, NULL, ""}, {"title", filter_title, NULL, ""}, {"trim", filter_trim, NULL, "chars"},
    {"safe", filter_safe, NULL, ""}, {"escape", filter_escape, NULL, ""}, {"e", filter_escape, NULL, ""},
    {"forceescape", filter_forceescape, NULL, ""}, {"default", filter_default, NULL, "default_value boolean"},
    {"d", filter_default, NULL, "default_value boolean"}, {"replace", filter_replace, NULL, "old! new! count"},
    {"center", filter_center, NULL, "width"}, {"indent", filter_indent, NULL, "width first blank"},
    {"wordcount", filter_wordcount, NULL, ""}, {"format", NULL, filter_format, NULL},
    {"truncate", filter_truncate, NULL, "length killwords end leeway"}, {"int", filter_int, NULL, "default base"},
    {"float", filter_float, NULL, "default"}, {"abs", filter_abs, NULL, ""}, {"round", filter_round, NULL, "precision method"},
    {"tojson", filter_tojson, NULL, "ensure_ascii indent separators sort_keys"}, {"attr", filter_attr, NULL, "name!"},
    {"items", filter_items, NULL, ""}, {NULL, NULL, NULL, NULL}};

static const filter_row *find(const filter_row *row, text name)
{
    while (row->name && !text_is(name, row->name))
        row++;
    return row->name ? row : NULL;
}

static const filter_row *find_any(text name)
{
    const filter_row *row = find(filters, name);
    return row ? row : find(sequence_filters, name);
}

bool filter_exists(text name) { return find_any(name) != NULL; }

value filter_apply(run *r, text name, value in, const args *x)
{
    const filter_row *row = find_any(name);
    bound b;
    if (!row)
        arena_fail(&r->arena, "there is no filter named %.*s", (int)name.n, name.s);
    if (row->whole)
        return row->whole(r, in, x);
    args_bind(r, row->name, x, row->parameters, &b);
    return row->apply(r, in, &b);
}
