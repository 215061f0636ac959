/* print.c - prints values as Python's str(), repr() and json.dumps do. */
#include "chat/value.h"
#include "text/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

void write_bytes(writer *w, const char *s, size_t n)
{
    if (n > w->capacity - w->n) {
        size_t capacity = 2 * (w->n + n) + 32;
        char *grown = arena_take(w->a, capacity);
        if (w->n)
            memcpy(grown, w->s, w->n);
        w->s = grown;
        w->capacity = capacity;
    }
    if (n)
        memcpy(w->s + w->n, s, n);
    w->n += n;
}

void write_text(writer *w, text t) { write_bytes(w, t.s, t.n); }
void write_string(writer *w, const char *s) { write_bytes(w, s, strlen(s)); }
value written(const writer *w) { return value_text((text){w->s ? w->s : "", w->n}); }

/* With the fewest digits that read back as the same number. */
static void write_float(writer *w, double d)
{
    char digits[40], out[64];
    if (isnan(d) || isinf(d)) {
        write_string(w, isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        return;
    }
    int precision = 0;
    arena_step(w->a, NUMBER_STEPS);
    do
        snprintf(digits, sizeof digits, "%.*e", precision, d);
    while (strtod(digits, NULL) != d && ++precision < 17);
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - exponent;
        snprintf(out, sizeof out, "%.*f", decimals > 1 ? decimals : 1, d);
        write_string(w, out);
        return;
    }
    *strchr(digits, 'e') = 0;
    snprintf(out, sizeof out, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    write_string(w, out);
}

static bool is_printable(uint32_t c)
{
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    case UTF8PROC_CATEGORY_ZS: return c == ' ';
    default: return true;
    }
}

static void write_quoted(writer *w, text t)
{
    const bool doubled = memchr(t.s, '\'', t.n) && !memchr(t.s, '"', t.n);
    const char quote = doubled ? '"' : '\'';
    write_bytes(w, &quote, 1);
    for (size_t i = 0; i < t.n;) {
        unsigned n;
        const uint32_t c = utf8_read(t.s + i, &n);
        char escaped[16];
        if (c == (uint32_t)quote || c == '\\')
            snprintf(escaped, sizeof escaped, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escaped, sizeof escaped, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (is_printable(c))
            memcpy(escaped, t.s + i, n), escaped[n] = 0;
        else
            snprintf(escaped, sizeof escaped, c < 0x100 ? "\\x%02" PRIx32 : c < 0x10000 ? "\\u%04" PRIx32 : "\\U%08" PRIx32, c);
        write_string(w, escaped);
        i += n;
    }
    write_bytes(w, &quote, 1);
}

static void write_repr(writer *w, value v);

static void write_items(writer *w, const value_list *list, const char *open, const char *close)
{
    write_string(w, open);
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            write_string(w, ", ");
        write_repr(w, list->items[i]);
    }
    write_string(w, close);
}

static void write_dict(writer *w, const value_dict *d)
{
    write_string(w, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            write_string(w, ", ");
        write_repr(w, d->pairs[i].key);
        write_string(w, ": ");
        write_repr(w, d->pairs[i].value);
    }
    write_string(w, "}");
}

static void write_range(writer *w, const int64_t range[3])
{
    char out[80];
    if (range[2] == 1)
        snprintf(out, sizeof out, "range(%" PRId64 ", %" PRId64 ")", range[0], range[1]);
    else
        snprintf(out, sizeof out, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", range[0], range[1], range[2]);
    write_string(w, out);
}

static void write_repr(writer *w, value v)
{
    char number[32];
    arena_enter(w->a);
    switch (v.kind) {
    case VALUE_UNDEFINED: write_string(w, "Undefined"); break;
    case VALUE_NONE: write_string(w, "None"); break;
    case VALUE_BOOL: write_string(w, v.truth ? "True" : "False"); break;
    case VALUE_INT:
        snprintf(number, sizeof number, "%" PRId64, v.integer);
        write_string(w, number);
        break;
    case VALUE_FLOAT: write_float(w, v.real); break;
    case VALUE_STRING:
        if (v.markup)
            write_string(w, "Markup(");
        write_quoted(w, v.text);
        if (v.markup)
            write_string(w, ")");
        break;
    case VALUE_LIST: write_items(w, v.list, "[", "]"); break;
    case VALUE_TUPLE: write_items(w, v.list, "(", v.list->n == 1 ? ",)" : ")"); break;
    case VALUE_RANGE: write_range(w, v.list->range); break;
    case VALUE_VIEW:
        write_string(w, v.list->label);
        write_items(w, v.list, "([", "])");
        break;
    case VALUE_DICT: write_dict(w, v.dict); break;
    case VALUE_NAMESPACE:
        write_string(w, "<Namespace ");
        write_dict(w, v.dict);
        write_string(w, ">");
        break;
    default: /* Python prints an address */
        write_string(w, "<");
        write_string(w, value_type_name(v));
        write_string(w, ">");
    }
    w->a->depth--;
}

value value_repr(arena *a, value v)
{
    writer w = {.a = a};
    write_repr(&w, v);
    return written(&w);
}

text value_str(arena *a, value v)
{
    if (v.kind == VALUE_STRING)
        return v.text;
    return v.kind == VALUE_UNDEFINED ? (text){"", 0} : value_repr(a, v).text;
}

/* ---- JSON ---- */

static void write_json_string(writer *w, text t, bool ascii)
{
    write_string(w, "\"");
    for (size_t i = 0; i < t.n;) {
        unsigned n;
        const uint32_t c = utf8_read(t.s + i, &n);
        const char *named = c && c < 0x80 ? strchr("\"\"\\\\\nn\rr\tt\ff\bb", (char)c) : NULL;
        char escaped[16];
        if (named && (c < 0x20 || c == '"' || c == '\\'))
            snprintf(escaped, sizeof escaped, "\\%c", named[1]);
        else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000 && c != 0x7f))
            snprintf(escaped, sizeof escaped, "\\u%04" PRIx32, c);
        else if (ascii && c >= 0x10000)
            snprintf(escaped, sizeof escaped, "\\u%04" PRIx32 "\\u%04" PRIx32,
                     0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
        else
            memcpy(escaped, t.s + i, n), escaped[n] = 0;
        if (c == 0 || escaped[0])
            write_string(w, escaped);
        i += n;
    }
    write_string(w, "\"");
}

static void write_json(writer *w, value v, const json_style *style, int level);

static void new_line(writer *w, const json_style *style, int level)
{
    if (!style->indented)
        return;
    write_string(w, "\n");
    for (int i = 0; i < level; i++)
        write_text(w, style->indent);
}

static void write_json_key(writer *w, value key, const json_style *style)
{
    if (key.kind == VALUE_STRING) {
        write_json_string(w, key.text, style->ascii);
        return;
    }
    if (!value_is_number(key) && key.kind != VALUE_NONE)
        arena_fail(w->a, "tojson: a key must be a string or a number, not a %s", value_type_name(key));
    write_string(w, "\"");
    write_json(w, key, style, 0);
    write_string(w, "\"");
}

static const value_pair *in_order(arena *a, const value_dict *d)
{
    value_pair *pairs = arena_take(a, (d->n + 1) * sizeof *pairs);
    for (size_t i = 0; i < d->n; i++) { /* insertion sort: a template's objects are small */
        size_t at = i;
        for (; at && value_compare(a, pairs[at - 1].key, d->pairs[i].key) > 0; at--)
            pairs[at] = pairs[at - 1];
        pairs[at] = d->pairs[i];
    }
    return pairs;
}

static void write_json_object(writer *w, const value_dict *d, const json_style *style, int level)
{
    const value_pair *pairs = style->sorted ? in_order(w->a, d) : d->pairs;
    write_string(w, "{");
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            write_text(w, style->item_separator);
        new_line(w, style, level + 1);
        write_json_key(w, pairs[i].key, style);
        write_text(w, style->key_separator);
        write_json(w, pairs[i].value, style, level + 1);
    }
    if (d->n)
        new_line(w, style, level);
    write_string(w, "}");
}

static void write_json_array(writer *w, const value_list *list, const json_style *style, int level)
{
    write_string(w, "[");
    for (size_t i = 0; i < list->n; i++) {
        if (i)
            write_text(w, style->item_separator);
        new_line(w, style, level + 1);
        write_json(w, list->items[i], style, level + 1);
    }
    if (list->n)
        new_line(w, style, level);
    write_string(w, "]");
}

static void write_json(writer *w, value v, const json_style *style, int level)
{
    arena_enter(w->a);
    switch (v.kind) {
    case VALUE_NONE: write_string(w, "null"); break;
    case VALUE_BOOL: write_string(w, v.truth ? "true" : "false"); break;
    case VALUE_INT: write_repr(w, v); break;
    case VALUE_FLOAT:
        if (isnan(v.real) || isinf(v.real))
            write_string(w, isnan(v.real) ? "NaN" : v.real > 0 ? "Infinity" : "-Infinity");
        else
            write_float(w, v.real);
        break;
    case VALUE_STRING: write_json_string(w, v.text, style->ascii); break;
    case VALUE_LIST:
    case VALUE_TUPLE: write_json_array(w, v.list, style, level); break;
    case VALUE_DICT: write_json_object(w, v.dict, style, level); break;
    default: arena_fail(w->a, "tojson: a %s has no form in JSON", value_type_name(v));
    }
    w->a->depth--;
}

value value_json(arena *a, value v, const json_style *style)
{
    writer w = {.a = a};
    write_json(&w, v, style, 0);
    return written(&w);
}
