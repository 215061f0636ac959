/* decoder.h - from an id to its bytes.
 *
 * The `decoder` section says how Hugging Face tokenizers turn a list of tokens into text. Apart from a space that is dropped at the start,
 * a token's text does not depend on its neighbours; so all tokens are decoded once, when the tokenizer is opened, and decoding is a
 * look-up. Unlike in Hugging Face tokenizers, bytes that are not UTF-8 are kept, and added tokens decode to the text that they matched:
 * decoding is the exact inverse of encoding. */
#ifndef PT_DECODER_H
#define PT_DECODER_H

#include "text/added_tokens.h"
#include "text/bpe.h"

typedef struct decoded_token {
    size_t at;
    uint32_t n;            /* NO_ID: no token has this id */
    bool special;
    bool starts_anew;      /* encoding put a space before the text that follows */
    bool drops_space;      /* drops its leading space if it is the first token */
} decoded_token;

typedef struct decoder {
    text_buffer bytes;
    decoded_token *tokens;
    uint32_t n_ids;
} decoder;

/* `prepends`: the normalizer prepends U+2581 to each piece of text. */
int decoder_open(decoder *d, const json_t *section, const bpe *model, const added_tokens *added, bool prepends,
                 pt_error *e);
void decoder_close(decoder *d);

#endif
