#include "text/plain_mark.h"

#include "text/buffer.h"
#include "text/tokenizer_parts.h"

#include <string.h>

static bool is_char(const char *text, size_t n, size_t at)
{
    return at <= n && n - at >= PLAIN_MARK_BYTES && !memcmp(text + at, PLAIN_MARK, PLAIN_MARK_BYTES);
}

static bool is_place(const tokenizer *tok, const char *text, size_t n, size_t at)
{
    return is_char(text, n, at) || token_set_special_at(&tok->added.contents, text + at, n - at);
}

bool plain_mark_needed(const tokenizer *tok, const char *text, size_t n)
{
    bool needed = false;
    for (size_t i = 0; i < n && !needed; i++)
        needed = is_place(tok, text, n, i);
    return needed;
}

int plain_mark_put(const tokenizer *tok, const char *text, size_t n, text_buffer *out, pt_error *e)
{
    int failed = 0;
    for (size_t i = 0; i < n && !failed; i++) {
        if (is_place(tok, text, n, i))
            failed = text_buffer_append(out, PLAIN_MARK, PLAIN_MARK_BYTES, e);
        if (!failed)
            failed = text_buffer_append(out, text + i, 1, e);
    }
    return failed;
}

/* A pair is a mark and a character of the text. */
bool plain_mark_before(const char *text, size_t at)
{
    size_t run = 0;
    for (; at >= PLAIN_MARK_BYTES && is_char(text, at, at - PLAIN_MARK_BYTES); at -= PLAIN_MARK_BYTES)
        run++;
    return run % 2 == 1;
}

size_t plain_mark_at(const char *text, size_t n, size_t at)
{
    return is_char(text, n, at) && !plain_mark_before(text, at) ? PLAIN_MARK_BYTES : 0;
}

int plain_mark_drop(const char *text, size_t n, text_buffer *out, pt_error *e)
{
    int failed = 0;
    for (size_t i = 0; i < n && !failed;) {
        const bool marked = is_char(text, n, i);
        i += marked ? PLAIN_MARK_BYTES : 0;
        const char *next = memmem(text + i + marked, i + marked < n ? n - i - marked : 0, PLAIN_MARK, PLAIN_MARK_BYTES);
        const size_t end = next ? (size_t)(next - text) : n;
        if (i < end)
            failed = text_buffer_append(out, text + i, end - i, e);
        i = end;
    }
    return failed;
}
