/* pattern_translate.c - Oniguruma (Ruby syntax, UTF-8) → PCRE2 (UTF, UCP, MULTILINE, newline = LF).
 *
 *   \p{L} and other general categories: Hugging Face tokenizers know Unicode 16, the PCRE2 of most systems
 *                Unicode 14                                     → a class with what was added since
 *   \s \S        White_Space; PCRE2's has U+180E besides         → a class
 *   \w \W \b \B  Alphabetic, marks, Nd, Pc; PCRE2's is L, N, _   → a class, lookarounds
 *   \h           a hexadecimal digit, not horizontal space       → a class
 *   \uHHHH       a code point                                    → \x{HHHH}
 *
 * Refused: set operations in classes ("[a[b]]", "&&"), (?m) (dot matches newline in Ruby), possessive
 * intervals ("{1,2}+", greedy twice in Ruby), verbs ("(*...)"), "{,n}". */
#include "text/pattern_translate.h"

#include "text/buffer.h"
#include "text/unicode.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SPACES "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define MORE_WORDS "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"

typedef struct translation {
    const char *regex, *where;
    size_t n, at;
    bool in_class;
    size_t class_start; /* of its first item */
    text_buffer *out;
    pt_error *e;
} translation;

static int put(translation *t, const char *text) { return text_buffer_append(t->out, text, strlen(text), t->e); }

static int refuse(const translation *t, const char *what)
{
    return pt_fail(t->e, PT_FAILED, "%s: %s at byte %zu of the regular expression \"%.*s\" is not supported; write it another way",
                   t->where, what, t->at, (int)(t->n < 200 ? t->n : 200), t->regex);
}

/* Appends class items for a general category ("L", "Lu") in the Unicode version of Hugging Face tokenizers. */
static int put_category(translation *t, const char *category, size_t n)
{
    char text[64];
    size_t n_ranges;
    const unicode_range *ranges = unicode_new_ranges(&n_ranges);
    snprintf(text, sizeof text, "\\p{%.*s}", (int)n, category);
    int status = put(t, text);
    for (size_t i = 0; i < n_ranges && !status; i++) {
        if (strncmp(ranges[i].category, category, n) != 0)
            continue;
        uint32_t last = ranges[i].last;
        snprintf(text, sizeof text, "\\x{%X}-", ranges[i].first);
        while (i + 1 < n_ranges && ranges[i + 1].first == last + 1 && strncmp(ranges[i + 1].category, category, n) == 0)
            last = ranges[++i].last;
        snprintf(text + strlen(text), 16, "\\x{%X}", last);
        status = put(t, text);
    }
    return status;
}

/* Appends class items for \w. */
static int put_words(translation *t)
{
    static const char *const categories[] = {"L", "M", "Nd", "Nl", "Pc"};
    int status = put(t, MORE_WORDS);
    for (int i = 0; i < 5 && !status; i++)
        status = put_category(t, categories[i], strlen(categories[i]));
    return status;
}

/* Appends text in which "W" stands for the class items of \w. */
static int put_with_words(translation *t, const char *text)
{
    int status = 0;
    for (; *text && !status; text++)
        status = *text == 'W' ? put_words(t) : text_buffer_append(t->out, text, 1, t->e);
    return status;
}

static bool next_is(const translation *t, size_t offset, char c)
{
    return t->at + offset < t->n && t->regex[t->at + offset] == c;
}

/* Copies n bytes of the source unchanged. */
static int copy(translation *t, size_t n)
{
    if (n > t->n - t->at)
        n = t->n - t->at;
    int status = text_buffer_append(t->out, t->regex + t->at, n, t->e);
    t->at += n;
    return status;
}

static int translate_code_point(translation *t)
{
    for (size_t i = 2; i < 6; i++)
        if (t->at + i >= t->n || !isxdigit((unsigned char)t->regex[t->at + i]))
            return refuse(t, "\\u without four hexadecimal digits");
    int status = put(t, "\\x{");
    t->at += 2;
    if (!status)
        status = copy(t, 4);
    return status ? status : put(t, "}");
}

/* \p{L}, \p{Lu}, \pL, \P{L}: a category; other properties (scripts ...) are copied. */
static int translate_property(translation *t)
{
    const char *name = t->regex + t->at + 2;
    size_t left = t->n - t->at, n = 0, length;
    bool negated = t->regex[t->at + 1] == 'P', braces = left > 2 && name[0] == '{';
    name += braces;
    while (n + 2 + braces < left && isalpha((unsigned char)name[n]) && (braces || n == 0))
        n++;
    length = 2 + n + 2 * braces;
    bool category = n >= 1 && n <= 2 && strchr("LMNPSZ", name[0]) && (n == 1 || islower((unsigned char)name[1])) &&
                    length <= left && (!braces || name[n] == '}');
    if (!category || (negated && t->in_class))
        return copy(t, 2);
    int status = t->in_class ? 0 : put(t, negated ? "[^" : "[");
    if (!status)
        status = put_category(t, name, n);
    t->at += length;
    return status || t->in_class ? status : put(t, "]");
}

static int translate_escape(translation *t)
{
    char c = t->at + 1 < t->n ? t->regex[t->at + 1] : '\0';
    const char *text = NULL;
    switch (c) {
    case 's': text = t->in_class ? SPACES : "[" SPACES "]"; break;
    case 'S': text = t->in_class ? "\\S\\x{180E}" : "[^" SPACES "]"; break;
    case 'h': text = t->in_class ? "0-9a-fA-F" : "[0-9a-fA-F]"; break;
    case 'H': text = t->in_class ? NULL : "[^0-9a-fA-F]"; break;
    case 'w': text = t->in_class ? "W" : "[W]"; break;
    case 'W': text = t->in_class ? NULL : "[^W]"; break;
    case 'b': text = t->in_class ? "\\x08" : "(?:(?<=[W])(?![W])|(?<![W])(?=[W]))"; break;
    case 'B': text = t->in_class ? NULL : "(?:(?<=[W])(?=[W])|(?<![W])(?![W]))"; break;
    case 'p': case 'P': return translate_property(t);
    case 'u': return translate_code_point(t);
    case 'C': case 'E': case 'N': case 'O': case 'Q': case 'V': case 'v': case 'y': case 'Y': case 'c': case 'M':
        return refuse(t, "this escape");
    default: return copy(t, 2);
    }
    if (!text)
        return refuse(t, "this escape in a class");
    t->at += 2;
    return put_with_words(t, text);
}

static int translate_class_byte(translation *t)
{
    char c = t->regex[t->at];
    if (c == '[' && next_is(t, 1, ':')) {
        const char *end = memmem(t->regex + t->at, t->n - t->at, ":]", 2);
        return end ? copy(t, (size_t)(end + 2 - (t->regex + t->at))) : refuse(t, "an unclosed [:class:]");
    }
    if (c == '[')
        return refuse(t, "a class in a class");
    if (c == '&' && next_is(t, 1, '&'))
        return refuse(t, "&& in a class");
    if (c == ']' && t->at > t->class_start)
        t->in_class = false;
    return copy(t, 1);
}

static int open_class(translation *t)
{
    t->in_class = true;
    size_t n = next_is(t, 1, '^') ? 2 : 1;
    t->class_start = t->at + n;
    return copy(t, n);
}

/* An interval is {n}, {n,} or {n,m}; other braces are literal in both. */
static int translate_brace(translation *t)
{
    size_t i = t->at + 1;
    if (next_is(t, 1, ','))
        return refuse(t, "{,n}");
    while (i < t->n && (isdigit((unsigned char)t->regex[i]) || t->regex[i] == ','))
        i++;
    if (i > t->at + 1 && i + 1 < t->n && t->regex[i] == '}' && t->regex[i + 1] == '+')
        return refuse(t, "an interval followed by +");
    return copy(t, 1);
}

static int translate_group(translation *t)
{
    if (next_is(t, 1, '*'))
        return refuse(t, "(*");
    if (next_is(t, 1, '?'))
        for (size_t i = t->at + 2; i < t->n && (islower((unsigned char)t->regex[i]) || t->regex[i] == '-'); i++)
            if (t->regex[i] == 'm')
                return refuse(t, "(?m");
    return copy(t, 1);
}

int pattern_translate(const char *regex, size_t n, const char *where, text_buffer *out, pt_error *e)
{
    translation t = {.regex = regex, .where = where, .n = n, .out = out, .e = e};
    int status = text_buffer_reserve(out, n + 1, e);
    while (t.at < n && !status) {
        char c = regex[t.at];
        if (c == '\\')
            status = translate_escape(&t);
        else if (t.in_class)
            status = translate_class_byte(&t);
        else if (c == '[')
            status = open_class(&t);
        else if (c == '{')
            status = translate_brace(&t);
        else if (c == '(')
            status = translate_group(&t);
        else
            status = copy(&t, 1);
    }
    return status;
}
