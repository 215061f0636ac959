/* vocabulary.h - a tokenizer in llama.cpp's terms.
 *
 * llama.cpp has two kinds of tokenizers. SentencePiece: the text is one word, in which U+2581 stands for a space, and of all neighbours
 * that together are a token those with the highest score are merged. Byte-level BPE: a pre-tokenizer splits the text into words, then
 * merges apply by rank. llama.cpp's pre-tokenizers are built in and have names; the regular expressions and steps in tokenizer.json
 * determine the name. A tokenizer without one is refused. */
#ifndef PT_GGUF_VOCABULARY_H
#define PT_GGUF_VOCABULARY_H

#include "gguf/writer.h"
#include "text/tokenizer.h"

#include <jansson.h>

typedef struct vocabulary {
    const char *folder;      /* of the model: tokenizer.json and the other files that name tokens */
    const tokenizer *tokenizer;
    int64_t vocab, bos;      /* rows of the model's embedding; its BOS id, -1: none */
    const int32_t *stops;    /* ids of the ends of a text */
    int stops_n;
    bool gemma4;             /* the model is a Gemma 4, whose tokenizer llama.cpp has in a form of its own (gemma4_vocabulary.c) */
    const char *template;    /* a file with a chat template, instead of the folder's; NULL: none */
    void (*notice)(void *arg, const char *sentence); /* may be NULL */
    void *arg;
} vocabulary;

/* Writes the key-value pairs "tokenizer. ...". */
int gguf_put_vocabulary(gguf_writer *writer, const vocabulary *v, pt_error *e);

/* llama.cpp's name for the pre-tokenizer of a byte-level tokenizer.json. PT_FAILED: it has no such pre-tokenizer. */
int gguf_word_cut_name(const char *where, const json_t *tokenizer_json, const char **name, pt_error *e);

#endif
