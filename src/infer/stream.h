/* stream.h - bytes of tokens -> a stream that is always valid UTF-8: an unfinished character is held back until it
 * is whole, and bytes that can never become one come out as U+FFFD. */
#ifndef PT_STREAM_H
#define PT_STREAM_H

#include "text/tokenizer.h"

typedef struct utf8_stream {
    text_buffer text; /* [what has come out last][held] */
    size_t out;       /* bytes of it that have come out */
} utf8_stream;

/* text.bytes[0 .. out) is then what `bytes` has completed; `last` lets go of what is still held. */
int utf8_stream_feed(utf8_stream *s, const char *bytes, size_t n, bool last, pt_error *e);
void utf8_stream_reset(utf8_stream *s); /* keeps its memory */
void utf8_stream_free(utf8_stream *s);

#endif
