/* tokenizer_parts.h - the parts of a tokenizer; each is a module. */
#ifndef PT_TOKENIZER_PARTS_H
#define PT_TOKENIZER_PARTS_H

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pretokenizer.h"

typedef enum cut_rule {
    CUT_NOWHERE,
    CUT_WORDS, /* at words of a known regular expression */
    CUT_JOINS  /* where no merge can join */
} cut_rule;

struct tokenizer {
    normalizer normalizer;
    pretokenizer pre;
    bpe model;
    added_tokens added;
    post_processor post;
    decoder decoder;
    int64_t eos;
    cut_rule cut;
    uint32_t space; /* CUT_JOINS: the character that replaces a space */
};

/* cut.c: finds tok->cut and tok->space. */
void tokenizer_find_cut_rule(tokenizer *tok);

/* special_tokens.c: fills tok->eos from the files of a model folder. */
int tokenizer_read_eos(tokenizer *tok, const char *model_dir, pt_error *e);

#endif
