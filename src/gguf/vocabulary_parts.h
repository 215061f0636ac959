/* vocabulary_parts.h - shared by the files of the vocabulary in gguf/. */
#ifndef PT_GGUF_VOCABULARY_PARTS_H
#define PT_GGUF_VOCABULARY_PARTS_H

#include "gguf/vocabulary.h"
#include "text/tokenizer_parts.h"

extern const char space_mark[]; /* U+2581, a space */
enum { MARK_BYTES = 3 };

void vocabulary_tell(const vocabulary *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int vocabulary_refuse(const vocabulary *v, const char *what, pt_error *e);

int64_t vocabulary_bos(const vocabulary *v); /* -1: none */
/* Writes the merges. `where` names the file in errors. */
int vocabulary_put_merges(gguf_writer *writer, const char *where, const json_t *tokenizer_json, pt_error *e);

int gguf_put_sentencepiece(gguf_writer *writer, const vocabulary *v, pt_error *e); /* sentencepiece.c */
/* gemma4_vocabulary.c: is the tokenizer one that llama.cpp reads as Gemma 4's? */
bool vocabulary_is_gemma4(const vocabulary *v);
int gguf_put_gemma4(gguf_writer *writer, const vocabulary *v, pt_error *e);

#endif
