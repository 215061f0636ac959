/* stream.h - turns bytes of tokens into valid UTF-8: holds back an incomplete character, and replaces bytes that cannot become one by
 * U+FFFD. */
#ifndef PT_STREAM_H
#define PT_STREAM_H

#include "text/tokenizer.h"

typedef struct utf8_stream {
    text_buffer text; /* [last output][held back] */
    size_t out;       /* bytes of the last output */
} utf8_stream;

/* Afterwards text.bytes[0 .. out) is the output; `last` also outputs what was held back. */
int utf8_stream_feed(utf8_stream *s, const char *bytes, size_t n, bool last, pt_error *e);
void utf8_stream_reset(utf8_stream *s); /* keeps its memory */
void utf8_stream_free(utf8_stream *s);

#endif
