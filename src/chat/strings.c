/* strings.c - operations of Python's str and Jinja's filters on whole strings. */
#include "chat/run.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

static void write_character(writer *w, uint32_t c)
{
    char bytes[4];
    write_bytes(w, bytes, utf8_write(c, bytes));
}

static void write_upper(writer *w, uint32_t c)
{
    if (c == 0xdf)
        write_string(w, "SS");
    else
        write_character(w, (uint32_t)utf8proc_toupper((utf8proc_int32_t)c));
}

static void write_lower(writer *w, uint32_t c)
{
    if (c == 0x130)
        write_string(w, "i\xcc\x87");
    else
        write_character(w, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

static value mapped(arena *a, text t, void (*write)(writer *w, uint32_t c))
{
    writer w = {.a = a};
    for (size_t i = 0; i < t.n;) {
        unsigned n;
        write(&w, utf8_read(t.s + i, &n));
        i += n;
    }
    return written(&w);
}

value text_upper(arena *a, text t) { return mapped(a, t, write_upper); }
value text_lower(arena *a, text t) { return mapped(a, t, write_lower); }

value text_capitalize(arena *a, text t)
{
    unsigned n;
    if (!t.n)
        return value_text(t);
    writer w = {.a = a};
    const uint32_t first = utf8_read(t.s, &n);
    if (first == 0xdf)
        write_string(&w, "Ss");
    else
        write_character(&w, (uint32_t)utf8proc_totitle((utf8proc_int32_t)first));
    write_text(&w, text_lower(a, (text){t.s + n, t.n - n}).text);
    return written(&w);
}

value text_center(run *r, text t, int64_t width, text fill, int where)
{
    const int64_t n = (int64_t)text_length(&r->arena, t), room = width - n;
    if (room <= 0)
        return value_text(t);
    if (room > RUN_MOST_OUTPUT)
        arena_fail(&r->arena, "a width of %" PRId64 " is too large", width);
    run_step(r, (size_t)room);
    /* Python pads the left side more if the width is odd. */
    const int64_t left = where < 0 ? 0 : where > 0 ? room : room / 2 + (room & width & 1);
    writer w = {.a = &r->arena};
    for (int64_t i = 0; i < left; i++)
        write_text(&w, fill);
    write_text(&w, t);
    for (int64_t i = left; i < room; i++)
        write_text(&w, fill);
    return written(&w);
}

value text_replace(run *r, text t, text old, text with, int64_t most)
{
    writer w = {.a = &r->arena};
    size_t at = 0;
    for (; most != 0; most--) {
        const char *found = text_find(&r->arena, (text){t.s + at, t.n - at}, old);
        if (!found)
            break;
        write_bytes(&w, t.s + at, (size_t)(found - t.s) - at);
        write_text(&w, with);
        at = (size_t)(found - t.s) + old.n;
        if (!old.n) { /* an empty string is found before each character and at the end */
            if (at == t.n)
                break;
            unsigned n;
            utf8_read(t.s + at, &n);
            write_bytes(&w, t.s + at, n);
            at += n;
        }
    }
    write_bytes(&w, t.s + at, t.n - at);
    return written(&w);
}

static bool ends_line(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

value text_lines(run *r, text t, bool keep)
{
    value out = value_sequence(&r->arena, VALUE_LIST);
    size_t start = 0;
    run_step(r, 1 + t.n / STEP_SEARCHES);
    for (size_t i = 0; i < t.n;) {
        unsigned n;
        const uint32_t c = utf8_read(t.s + i, &n);
        if (ends_line(c)) {
            const size_t end = i;
            i += n + (c == '\r' && i + 1 < t.n && t.s[i + 1] == '\n');
            list_push(&r->arena, out.list, value_text((text){t.s + start, (keep ? i : end) - start}));
            start = i;
        } else
            i += n;
    }
    if (start < t.n)
        list_push(&r->arena, out.list, value_text((text){t.s + start, t.n - start}));
    return out;
}

/* One conversion of "%5.2f" and the like; `spec` is its flags, width and precision. */
static void write_conversion(run *r, writer *w, const char *spec, char kind, value v)
{
    enum { WIDEST = 150 }; /* the longest double has 310 characters before its point */
    char format[48], out[512];
    int64_t i;
    if (kind == 's' || kind == 'r') {
        const text t = kind == 's' ? value_str(&r->arena, v) : value_repr(&r->arena, v).text;
        if (*spec)
            arena_fail(&r->arena, "the format %%%s%c is not supported", spec, kind);
        write_text(w, t);
        return;
    }
    for (const char *s = spec; *s; s++)
        if (strtol(s, NULL, 10) > WIDEST)
            arena_fail(&r->arena, "the format %%%s%c is wider than %d", spec, kind, WIDEST);
    run_step(r, 4 * NUMBER_STEPS);
    if (!value_is_number(v))
        arena_fail(&r->arena, "the format %%%c needs a number, not a %s", kind, value_type_name(v));
    if (strchr("dixXo", kind)) {
        if (!value_as_int(v, &i))
            i = (int64_t)value_real(v);
        snprintf(format, sizeof format, "%%%sll%c", spec, kind == 'i' ? 'd' : kind);
        snprintf(out, sizeof out, format, (long long)i);
    } else {
        snprintf(format, sizeof format, "%%%s%c", spec, kind);
        snprintf(out, sizeof out, format, value_real(v));
    }
    write_string(w, out);
}

value text_format_percent(run *r, text format, value arguments)
{
    const value one[] = {arguments};
    const value *v = arguments.kind == VALUE_TUPLE ? arguments.list->items : one;
    const size_t n = arguments.kind == VALUE_TUPLE ? arguments.list->n : 1;
    size_t used = 0;
    writer w = {.a = &r->arena};
    for (size_t i = 0; i < format.n; i++) {
        char spec[16];
        size_t length = 0;
        if (format.s[i] != '%') {
            write_bytes(&w, format.s + i, 1);
            continue;
        }
        for (i++; i < format.n && strchr("-+ #0123456789.", format.s[i]) && format.s[i] && length < 6; i++)
            spec[length++] = format.s[i];
        spec[length] = 0;
        if (i == format.n || !strchr("sdixXorfFeEgG%", format.s[i]) || !format.s[i])
            arena_fail(&r->arena, "a format is not supported: %.*s", (int)(format.n > 80 ? 80 : format.n), format.s);
        if (format.s[i] == '%') {
            write_string(&w, "%");
            continue;
        }
        if (used == n)
            arena_fail(&r->arena, "a format has more conversions than values");
        write_conversion(r, &w, spec, format.s[i], v[used++]);
    }
    if (used < n && arguments.kind != VALUE_DICT && arguments.kind != VALUE_LIST)
        arena_fail(&r->arena, "a format has fewer conversions than values");
    return written(&w);
}
