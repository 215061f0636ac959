/* vocabulary.h - a tokenizer in llama.cpp's terms.
 *
 * It knows two kinds. SentencePiece's: the text is one word, in which spaces are U+2581, and of all neighbours that together are a token
 * those with the highest score are joined. And byte-level BPE with merges, after a cut into words that has a name and is built in: which
 * name a tokenizer has follows from the regular expressions and steps of its tokenizer.json. What has no name is refused. */
#ifndef PT_GGUF_VOCABULARY_H
#define PT_GGUF_VOCABULARY_H

#include "gguf/writer.h"
#include "text/tokenizer.h"

#include <jansson.h>

typedef struct vocabulary {
    const char *folder;      /* of the model: its tokenizer.json and what else names tokens */
    const tokenizer *tokenizer;
    int64_t vocab, bos;      /* the model's: rows of the embedding; -1: it names none */
    const int32_t *stops;    /* ids that end a text */
    int stops_n;
    void (*notice)(void *arg, const char *sentence); /* may be NULL */
    void *arg;
} vocabulary;

/* The pairs "tokenizer. ...". */
int gguf_put_vocabulary(gguf_writer *w, const vocabulary *v, pt_error *e);

/* The name of the cut into words of a byte-level tokenizer.json; PT_FAILED: llama.cpp has none like it. */
int gguf_word_cut_name(const char *where, const json_t *tokenizer_json, const char **name, pt_error *e);

#endif
