/* lexer.c - splits a template's source into tokens, with Jinja's rules for white space around tags. */
#include "chat/syntax.h"
#include "text/utf8.h"
#include "text/unicode.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct lexer {
    arena *a;
    const char *s;
    size_t n, at;
    bool line_starts; /* the text before ended with a newline */
    token *tokens;
    size_t n_tokens, capacity;
} lexer;

static token *add(lexer *l, token_kind kind, text t)
{
    if (l->n_tokens == l->capacity) {
        size_t capacity = l->capacity ? 2 * l->capacity : 64;
        token *tokens = arena_take(l->a, capacity * sizeof *tokens);
        if (l->n_tokens)
            memcpy(tokens, l->tokens, l->n_tokens * sizeof *tokens);
        l->tokens = tokens;
        l->capacity = capacity;
    }
    l->tokens[l->n_tokens] = (token){.kind = kind, .line = l->a->line, .text = t};
    return &l->tokens[l->n_tokens++];
}

static bool here(const lexer *l, const char *s)
{
    size_t n = strlen(s);
    return l->n - l->at >= n && !memcmp(l->s + l->at, s, n);
}

static void advance(lexer *l, size_t n)
{
    for (size_t end = l->at + n; l->at < end; l->at++)
        l->a->line += l->s[l->at] == '\n';
    l->line_starts = l->at && l->s[l->at - 1] == '\n';
}

static size_t space_at(const lexer *l, size_t at)
{
    size_t start = at;
    while (at < l->n) {
        unsigned n;
        if (!is_space(utf8_read(l->s + at, &n)))
            break;
        at += n;
    }
    return at - start;
}

/* ---- texts between tags ---- */

/* Adds [start, end) without the white space that the following tag strips. */
static void add_data(lexer *l, size_t start, size_t end, char sign, bool is_print, bool line_starts)
{
    text t = {l->s + start, end - start};
    if (sign == '-')
        t = text_strip(l->a, t, NULL, false, true);
    else if (sign != '+' && !is_print) {
        size_t line = t.n;
        while (line && t.s[line - 1] != '\n')
            line--;
        if ((line > 0 || line_starts) && !text_strip(l->a, (text){t.s + line, t.n - line}, NULL, true, false).n)
            t.n = line;
    }
    if (t.n)
        add(l, TOKEN_DATA, t);
}

/* After a tag: "-" strips all white space, the end of a block without a sign strips one newline. */
static void end_tag(lexer *l, const char *end, bool trims)
{
    size_t n = strlen(end);
    if (l->s[l->at] == '-')
        advance(l, 1 + n + space_at(l, l->at + 1 + n));
    else if (l->s[l->at] == '+')
        advance(l, 1 + n);
    else
        advance(l, n + (trims && l->at + n < l->n && l->s[l->at + n] == '\n'));
}

static bool at_end_tag(const lexer *l, const char *end, bool plus)
{
    const size_t sign = l->s[l->at] == '-' || (plus && l->s[l->at] == '+');
    const size_t n = strlen(end);
    return l->at + sign + n <= l->n && !memcmp(l->s + l->at + sign, end, n);
}

static void skip_comment(lexer *l)
{
    while (l->at < l->n && !at_end_tag(l, "#}", true))
        advance(l, 1);
    if (l->at >= l->n)
        arena_fail(l->a, "a comment has no end: #} is missing");
    end_tag(l, "#}", true);
}

/* The length of "{% WORD %}" here, including signs; 0: there is something else. *sign: the sign before the word. */
static size_t word_tag(const lexer *l, const char *word, char *sign, size_t *end_at)
{
    if (!here(l, "{%"))
        return 0;
    size_t at = l->at + 2;
    *sign = at < l->n ? l->s[at] : 0;
    at += *sign == '-' || *sign == '+';
    at += space_at(l, at);
    if (l->n - at < strlen(word) || memcmp(l->s + at, word, strlen(word)))
        return 0;
    at += strlen(word);
    at += space_at(l, at);
    *end_at = at;
    at += at < l->n && (l->s[at] == '-' || l->s[at] == '+');
    return l->n - at >= 2 && !memcmp(l->s + at, "%}", 2) ? at + 2 - l->at : 0;
}

/* {% raw %} ... {% endraw %}; l->at is after the first tag. */
static void read_raw(lexer *l)
{
    const size_t start = l->at;
    const bool line_starts = l->line_starts;
    char sign;
    size_t end_at;
    while (l->at < l->n && !word_tag(l, "endraw", &sign, &end_at))
        advance(l, 1);
    if (l->at >= l->n)
        arena_fail(l->a, "{%% raw %%} has no {%% endraw %%}");
    add_data(l, start, l->at, sign, false, line_starts);
    advance(l, end_at - l->at);
    end_tag(l, "%}", true);
}

/* ---- inside tags ---- */

static void read_number(lexer *l)
{
    char digits[64];
    size_t n = 0, at = l->at;
    int base = 10;
    bool is_float = false;
    if (l->s[at] == '0' && at + 1 < l->n && strchr("xXoObB", l->s[at + 1])) {
        base = tolower(l->s[at + 1]) == 'x' ? 16 : tolower(l->s[at + 1]) == 'o' ? 8 : 2;
        at += 2;
    }
    for (; at < l->n && n < sizeof digits - 1; at++) {
        const char c = l->s[at], next = at + 1 < l->n ? l->s[at + 1] : 0;
        const char second = at + 2 < l->n ? l->s[at + 2] : 0;
        const bool exponent = base == 10 && (c == 'e' || c == 'E') &&
                              (isdigit((unsigned char)next) || ((next == '+' || next == '-') && isdigit((unsigned char)second)));
        const bool point = c == '.' && !is_float && base == 10 && isdigit((unsigned char)next);
        const bool sign = (c == '+' || c == '-') && n && (digits[n - 1] == 'e' || digits[n - 1] == 'E') && is_float;
        if (c == '_')
            continue;
        if (!exponent && !point && !sign && !(base == 16 ? isxdigit((unsigned char)c) : isdigit((unsigned char)c)))
            break;
        is_float |= exponent || point;
        digits[n++] = c;
    }
    digits[n] = 0;
    token *t = add(l, TOKEN_NUMBER, (text){l->s + l->at, at - l->at});
    errno = 0;
    t->number = is_float ? value_float(strtod(digits, NULL)) : value_int(strtoll(digits, NULL, base));
    if (!is_float && (errno || !n))
        arena_fail(l->a, "the number %.*s is not one of 64 bits", (int)t->text.n, t->text.s);
    advance(l, at - l->at);
}

static size_t hex_escape(lexer *l, const char *s, size_t left, size_t digits, writer *w)
{
    char number[9] = {0}, out[4];
    if (left < digits)
        arena_fail(l->a, "a string ends within an escape");
    memcpy(number, s, digits);
    char *end;
    unsigned long c = strtoul(number, &end, 16);
    if (end != number + digits || !isxdigit((unsigned char)number[0]) || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        arena_fail(l->a, "a string has the escape \\%c%s, which is no character", s[-1], number);
    write_bytes(w, out, utf8_write((uint32_t)c, out));
    return digits;
}

/* Reads one escape, s[0] after the backslash, and returns its length. Unknown escapes are kept, as in Python. */
static size_t write_escape(lexer *l, const char *s, size_t left, writer *w)
{
    static const char plain[] = "\\\\''\"\"n\nt\tr\ra\ab\bf\fv\v";
    for (const char *p = plain; *p; p += 2)
        if (*s == *p) {
            write_bytes(w, p + 1, 1);
            return 1;
        }
    switch (*s) {
    case '\n': return 1;
    case 'x': return 1 + hex_escape(l, s + 1, left - 1, 2, w);
    case 'u': return 1 + hex_escape(l, s + 1, left - 1, 4, w);
    case 'U': return 1 + hex_escape(l, s + 1, left - 1, 8, w);
    case 'N': arena_fail(l->a, "a string has an escape \\N{...}, which is not supported; write \\uXXXX");
    }
    if (*s >= '0' && *s <= '7') {
        char out[4];
        uint32_t c = 0;
        size_t n = 0;
        while (n < 3 && n < left && s[n] >= '0' && s[n] <= '7')
            c = c * 8 + (uint32_t)(s[n++] - '0');
        write_bytes(w, out, utf8_write(c, out));
        return n;
    }
    write_string(w, "\\");
    return 0;
}

static void read_string(lexer *l)
{
    const char quote = l->s[l->at];
    size_t end = l->at + 1;
    bool escapes = false;
    while (end < l->n && l->s[end] != quote) {
        escapes |= l->s[end] == '\\';
        end += l->s[end] == '\\' ? 2 : 1;
    }
    if (end >= l->n)
        arena_fail(l->a, "a string has no end: %c is missing", quote);
    text t = {l->s + l->at + 1, end - l->at - 1};
    if (escapes) {
        writer w = {.a = l->a};
        for (size_t i = 0; i < t.n;)
            if (t.s[i] == '\\')
                i += 1 + write_escape(l, t.s + i + 1, t.n - i - 1, &w);
            else
                write_bytes(&w, t.s + i++, 1);
        add(l, TOKEN_STRING, written(&w).text);
    } else
        add(l, TOKEN_STRING, t);
    advance(l, end + 1 - l->at);
}

static size_t name_length(const lexer *l)
{
    size_t at = l->at;
    while (at < l->n) {
        unsigned n;
        uint32_t c = utf8_read(l->s + at, &n);
        if (!(c < 0x80 ? isalnum((int)c) || c == '_' : unicode_is_word(c)))
            break;
        at += n;
    }
    return at - l->at;
}

static void read_operator(lexer *l, char *brackets, size_t *open)
{
    static const char *const doubled[] = {"//", "**", "==", "!=", ">=", "<="};
    size_t n = 1;
    for (size_t i = 0; i < sizeof doubled / sizeof *doubled; i++)
        if (here(l, doubled[i]))
            n = 2;
    const char c = l->s[l->at];
    if (n == 1 && !strchr("+-/*%~[](){}><=.:|,;", c))
        arena_fail(l->a, "an unexpected character: %.*s", (int)utf8_check(l->s + l->at, l->n - l->at), l->s + l->at);
    if (n == 1 && strchr("([{", c)) {
        if (*open == ARENA_MOST_DEPTH)
            arena_fail(l->a, "brackets nest deeper than %d levels", ARENA_MOST_DEPTH);
        brackets[(*open)++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (n == 1 && strchr(")]}", c) && (!*open || brackets[--*open] != c))
        arena_fail(l->a, "an unexpected %c", c);
    add(l, TOKEN_OPERATOR, (text){l->s + l->at, n});
    advance(l, n);
}

/* Reads from after {{ or {% to after its end. */
static void read_tag(lexer *l, bool is_print)
{
    char brackets[ARENA_MOST_DEPTH];
    size_t open = 0;
    const char *end = is_print ? "}}" : "%}";
    while (l->at < l->n) {
        size_t n;
        const char c = l->s[l->at];
        if (!open && at_end_tag(l, end, !is_print)) {
            add(l, is_print ? TOKEN_PRINT_END : TOKEN_BLOCK_END, (text){end, 2});
            end_tag(l, end, !is_print);
            return;
        }
        if ((n = space_at(l, l->at)))
            advance(l, n);
        else if (isdigit((unsigned char)c))
            read_number(l);
        else if (c == '"' || c == '\'')
            read_string(l);
        else if ((n = name_length(l))) {
            add(l, TOKEN_NAME, (text){l->s + l->at, n});
            advance(l, n);
        } else
            read_operator(l, brackets, &open);
    }
    arena_fail(l->a, "a tag has no end: %s is missing", end);
}

/* Reads the tag at l->at, and the text before it from `start`. */
static void read_any_tag(lexer *l, size_t start, bool line_starts)
{
    char sign;
    size_t end_at;
    size_t raw = word_tag(l, "raw", &sign, &end_at);
    const bool is_print = here(l, "{{");
    if (!raw)
        sign = l->at + 2 < l->n ? l->s[l->at + 2] : 0;
    add_data(l, start, l->at, sign, is_print, line_starts);
    if (raw) {
        const bool strips = l->s[end_at] == '-';
        advance(l, raw);
        if (strips)
            advance(l, space_at(l, l->at));
        read_raw(l);
        return;
    }
    const bool comment = here(l, "{#");
    advance(l, sign == '-' || sign == '+' ? 3 : 2);
    if (comment) {
        skip_comment(l);
        return;
    }
    add(l, is_print ? TOKEN_PRINT_BEGIN : TOKEN_BLOCK_BEGIN, (text){is_print ? "{{" : "{%", 2});
    read_tag(l, is_print);
}

/* All newlines become \n, and the last one is removed. */
static text normalized(arena *a, text source)
{
    char *s = arena_take(a, source.n);
    size_t n = 0;
    for (size_t i = 0; i < source.n; i++)
        if (source.s[i] != '\r')
            s[n++] = source.s[i];
        else if (i + 1 == source.n || source.s[i + 1] != '\n')
            s[n++] = '\n';
    return (text){s, n && s[n - 1] == '\n' ? n - 1 : n};
}

const token *template_tokens(arena *a, text source)
{
    source = normalized(a, source);
    lexer l = {.a = a, .s = source.s, .n = source.n, .line_starts = true};
    a->line = 1;
    while (l.at < l.n) {
        const size_t start = l.at;
        const bool line_starts = l.line_starts;
        while (l.at < l.n && !here(&l, "{{") && !here(&l, "{%") && !here(&l, "{#"))
            advance(&l, 1);
        if (l.at == l.n) {
            add(&l, TOKEN_DATA, (text){l.s + start, l.n - start});
            break;
        }
        read_any_tag(&l, start, line_starts);
    }
    add(&l, TOKEN_END, TEXT("the end"));
    return l.tokens;
}
