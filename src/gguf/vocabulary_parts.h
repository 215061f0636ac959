/* vocabulary_parts.h - shared by the files of the vocabulary in gguf/. */
#ifndef PT_GGUF_VOCABULARY_PARTS_H
#define PT_GGUF_VOCABULARY_PARTS_H

#include "gguf/vocabulary.h"
#include "text/tokenizer_parts.h"

extern const char space_mark[]; /* U+2581, a space */
enum { MARK_BYTES = 3 };

void vocabulary_tell(const vocabulary *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int vocabulary_refuse(const vocabulary *v, const char *what, pt_error *e);

int gguf_put_sentencepiece(gguf_writer *w, const vocabulary *v, pt_error *e); /* sentencepiece.c */

#endif
