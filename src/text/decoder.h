/* decoder.h - from an id to its bytes.
 *
 * The `decoder` section says how, in Hugging Face tokenizers, a list of tokens becomes a text. What it
 * does to a token does not depend on its neighbours, but for a space dropped at the start; so all tokens
 * are decoded once, when the tokenizer is opened, and an id is a look-up. Unlike there, bytes that make
 * no UTF-8 stay what they are, and added tokens come back as they were matched: decoding undoes encoding
 * byte for byte. */
#ifndef PT_DECODER_H
#define PT_DECODER_H

#include "text/added_tokens.h"
#include "text/bpe.h"

typedef struct decoded_token {
    size_t at;
    uint32_t n;            /* NO_ID: no token has this id */
    bool special;
    bool starts_anew;      /* what follows had a space put in front when it was encoded */
    bool drops_space;      /* its leading space goes if it is the first */
} decoded_token;

typedef struct decoder {
    text_buffer bytes;
    decoded_token *tokens;
    uint32_t n_ids;
} decoder;

/* `prepends`: the normalizer puts U+2581 before each piece of text. */
int decoder_open(decoder *d, const json_t *section, const bpe *model, const added_tokens *added, bool prepends,
                 pt_error *e);
void decoder_close(decoder *d);

#endif
