#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    WHOLE = 16384,    /* several of the longest paths */
    WORD_MIN = 64,    /* shorter words are left alone; a longer one keeps at least this many bytes */
};

static int is_inside_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }

/* The longest run of non-blank characters: usually a path. */
static char *longest_word(char *text, size_t *n)
{
    char *best = text;
    *n = 0;
    for (char *at = text; *at;) {
        size_t length = strcspn(at, " ");
        if (length > *n) {
            best = at;
            *n = length;
        }
        at += length + strspn(at + length, " ");
    }
    return best;
}

/* Replaces up to `excess` bytes in the middle of a word of n bytes by "...". */
static void shorten(char *word, size_t n, size_t excess)
{
    size_t most = n - WORD_MIN + 3, out = excess + 3 < most ? excess + 3 : most, from = (n - out) / 2, to = from + out;
    while (from > 0 && is_inside_character(word[from]))
        from--;
    while (to < n && is_inside_character(word[to]))
        to++;
    memcpy(word + from, "...", 3);
    memmove(word + from + 3, word + to, strlen(word + to) + 1);
}

size_t control_character(const char *text)
{
    const unsigned char c = (unsigned char)text[0];
    if ((c && c < ' ') || c == 0x7f)
        return 1;
    return c == 0xc2 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0 ? 2 : 0;
}

/* Replaces control characters, which file names and values in files may contain: by '?', or by U+00BF where they have two bytes. */
static void tame(char *text)
{
    for (; *text; text++) {
        size_t n = *text == '\n' || *text == '\t' ? 0 : control_character(text);
        if (n == 1)
            *text = '?';
        if (n == 2)
            text[1] = (char)0xbf;
    }
}

static void fit(char *whole, char *out, size_t room)
{
    size_t n;
    tame(whole);
    for (size_t length; (length = strlen(whole)) >= room;) {
        char *word = longest_word(whole, &n);
        if (n <= WORD_MIN) { /* no long word, such as a path with blanks: shorten the whole text */
            word = whole;
            n = length;
        }
        shorten(word, n, length - room + 1);
    }
    snprintf(out, room, "%s", whole);
}

void text_format(char *out, size_t room, const char *fmt, va_list ap)
{
    char whole[WHOLE] = "";
    if (fmt)
        vsnprintf(whole, sizeof whole, fmt, ap);
    fit(whole, out, room);
}

int pt_fail(pt_error *e, int code, const char *fmt, ...)
{
    if (!e)
        return code;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    text_format(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
    return code;
}

/* Formats, and appends ": " and `end`. */
static void format_before(pt_error *e, const char *end, const char *fmt, va_list ap)
{
    char whole[WHOLE + sizeof e->text + 2];
    whole[0] = 0;
    if (fmt)
        vsnprintf(whole, WHOLE, fmt, ap);
    size_t used = strlen(whole);
    snprintf(whole + used, sizeof whole - used, ": %s", end);
    fit(whole, e->text, sizeof e->text);
}

int pt_fail_null(pt_error *e, const char *function, const char *what)
{
    return pt_fail(e, PT_USAGE, "%s: %s is NULL: pass the address of one", function, what);
}

int pt_check_list(const char *name, const char *const *list, int n, pt_error *e)
{
    if (n < 0 || (n && !list))
        return pt_fail(e, PT_USAGE, "`%s_n` is %d, but `%s` is not a list of that many", name, n, name);
    for (int i = 0; i < n; i++)
        if (!list[i])
            return pt_fail(e, PT_USAGE, "`%s`: entry %d of %d is NULL: give a string", name, i + 1, n);
    return 0;
}

int pt_check_choice(const char *name, unsigned value, unsigned last, pt_error *e)
{
    return value <= last ? 0 : pt_fail(e, PT_USAGE, "`%s` is %d: it must be a value of its type, 0 to %u", name, (int)value, last);
}

int pt_fail_errno(pt_error *e, int code, const char *fmt, ...)
{
    int saved = errno;
    if (!e)
        return code;
    va_list ap;
    va_start(ap, fmt);
    e->code = code;
    format_before(e, strerror(saved), fmt, ap);
    va_end(ap);
    return code;
}

int pt_error_prefix(pt_error *e, const char *fmt, ...)
{
    if (!e)
        return PT_FAILED;
    char old[sizeof e->text];
    memcpy(old, e->text, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    format_before(e, old, fmt, ap);
    va_end(ap);
    if (!e->code)
        e->code = PT_FAILED;
    return e->code;
}
