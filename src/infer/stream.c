#include "infer/stream.h"

#include "text/utf8.h"

#include <stdlib.h>
#include <string.h>

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

/* Length of an incomplete character at s; 0 if it cannot become a character. */
static unsigned begun(const char *s, size_t n)
{
    static const char second[] = {(char)0x80, (char)0xa0}; /* one of them can follow any first byte */
    for (unsigned k = n < 3 ? (unsigned)n : 3; k > 0; k--)
        for (int i = 0; i < 2; i++) {
            char trial[4] = {0, second[i], (char)0x80, (char)0x80};
            memcpy(trial, s, k);
            if (utf8_check(trial, 4) > k)
                return k;
        }
    return 0;
}

static int reserve(text_buffer *b, size_t capacity, pt_error *e)
{
    if (capacity <= b->capacity)
        return 0;
    capacity = 2 * capacity + 64;
    char *larger = realloc(b->bytes, capacity);
    if (!larger)
        return pt_fail(e, PT_FAILED, "out of memory for %zu bytes of text", capacity);
    b->bytes = larger;
    b->capacity = capacity;
    return 0;
}

/* New bytes go behind three times their length of free space, and from there, character by character, to the front. */
int utf8_stream_feed(utf8_stream *s, const char *bytes, size_t n, bool last, pt_error *e)
{
    text_buffer *b = &s->text;
    size_t held = b->n - s->out, total = held + n, front = sizeof replacement * total;
    if (!total) { /* a token may have no bytes, and there may be no buffer yet */
        utf8_stream_reset(s);
        return 0;
    }
    int failed = reserve(b, front + total, e);
    if (failed)
        return failed;
    memmove(b->bytes + front, b->bytes + s->out, held);
    if (n)
        memcpy(b->bytes + front + held, bytes, n);
    const char *from = b->bytes + front;
    size_t at = 0, out = 0;
    while (at < total) {
        unsigned length = utf8_check(from + at, total - at), start = length ? 0 : begun(from + at, total - at);
        if (!length && !last && start == total - at)
            break;
        if (length)
            memmove(b->bytes + out, from + at, length);
        else
            memcpy(b->bytes + out, replacement, sizeof replacement - 1);
        out += length ? length : sizeof replacement - 1;
        at += length ? length : start ? start : 1;
    }
    memmove(b->bytes + out, from + at, total - at);
    s->out = out;
    b->n = out + total - at;
    return 0;
}

void utf8_stream_reset(utf8_stream *s) { s->out = s->text.n = 0; }
void utf8_stream_free(utf8_stream *s) { free(s->text.bytes); }
