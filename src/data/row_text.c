#include "data/row_text.h"

#include "text/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static size_t plain_bytes(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (unsigned char)p[i] >= 0x20 && p[i] != '"' && p[i] != '\\')
        i++;
    return i;
}

int row_string(text_buffer *out, const char *p, size_t n, pt_error *e)
{
    int rc = text_buffer_append(out, "\"", 1, e);
    for (size_t at = 0; at < n && rc == 0; at++) {
        const size_t plain = plain_bytes(p + at, n - at);
        char escape[8];
        rc = text_buffer_append(out, p + at, plain, e);
        at += plain;
        if (at == n || rc < 0)
            break;
        const int size = p[at] == '"' || p[at] == '\\' ? snprintf(escape, sizeof escape, "\\%c", p[at])
                                                       : snprintf(escape, sizeof escape, "\\u%04x", (unsigned char)p[at]);
        rc = text_buffer_append(out, escape, (size_t)size, e);
    }
    return rc < 0 ? rc : text_buffer_append(out, "\"", 1, e);
}

int row_bytes(text_buffer *out, const char *p, size_t n, pt_error *e)
{
    return utf8_valid_prefix(p, n) == n ? row_string(out, p, n, e) : ROW_NOTHING;
}

int row_word(text_buffer *out, const char *word, pt_error *e) { return text_buffer_append(out, word, strlen(word), e); }

int row_signed(text_buffer *out, int64_t value, pt_error *e)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return row_word(out, text, e);
}

int row_unsigned(text_buffer *out, uint64_t value, pt_error *e)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return row_word(out, text, e);
}

int row_real(text_buffer *out, double value, pt_error *e)
{
    char text[40];
    if (!isfinite(value))
        return ROW_NOTHING;
    snprintf(text, sizeof text, "%.17g", value);
    const int rc = row_word(out, text, e);
    return rc < 0 || strpbrk(text, ".e") ? rc : row_word(out, ".0", e);
}

int row_comma(text_buffer *out, pt_error *e)
{
    const char last = out->n ? out->bytes[out->n - 1] : '{';
    return last == '{' || last == '[' ? 0 : text_buffer_append(out, ",", 1, e);
}
