/* tokenizer.h - text <-> token ids, from a Hugging Face tokenizer.json.
 *
 * A `tokenizer` is immutable once open and may be shared by threads. An `encoder` holds the
 * scratch memory and the word cache of one thread; its memory is bounded for any input.
 */
#ifndef PT_TOKENIZER_H
#define PT_TOKENIZER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tokenizer tokenizer;
typedef struct encoder encoder;

typedef struct id_list { /* grows as needed; zero-initialise, free with id_list_free */
    uint32_t *ids;
    size_t n, capacity;
} id_list;
void id_list_free(id_list *list);

typedef struct text_buffer { /* same for bytes; not NUL-terminated */
    char *bytes;
    size_t n, capacity;
} text_buffer;
void text_buffer_free(text_buffer *buffer);

int tokenizer_open(const char *model_dir, tokenizer **out, pt_error *e); /* reads model_dir/tokenizer.json */
/* With the tokenizer.json of an adapter's folder instead, if it has one: it may have added tokens. adapter NULL: none. */
int tokenizer_open_beside(const char *model_dir, const char *adapter, tokenizer **out, pt_error *e);
/* With these bytes instead of tokenizer.json; errors call them `name`. */
int tokenizer_open_text(const char *model_dir, const char *name, const char *json, size_t n, tokenizer **out, pt_error *e);
int tokenizer_open_memory(const char *name, const char *json, size_t n, tokenizer **out, pt_error *e);
void tokenizer_close(tokenizer *tok);

uint32_t tokenizer_vocab_size(const tokenizer *tok);  /* highest id + 1, added tokens included */
int64_t tokenizer_bos(const tokenizer *tok);          /* the id that the template puts first, or -1 */
int64_t tokenizer_eos(const tokenizer *tok);          /* from tokenizer_config.json / special_tokens_map.json /
                                                       generation_config.json / config.json; -1: none known */
/* The id behind texts of a batch: of config.json, tokenizer_config.json, or else the end of a text, as in TRL; -1: none. */
int tokenizer_padding(const tokenizer *tok, const char *model_dir, int64_t *id, pt_error *e);
int64_t tokenizer_unknown(const tokenizer *tok);      /* the id for text without a token; -1: such text is dropped, or encoded as bytes */
bool tokenizer_template_adds_bos(const tokenizer *tok);
size_t tokenizer_template_after(const tokenizer *tok); /* the number of ids that it puts after a text */
bool tokenizer_has_id(const tokenizer *tok, uint32_t id); /* false for gaps in the vocabulary and past its end */
int64_t tokenizer_find(const tokenizer *tok, const char *token); /* the id of a token as spelled in the file, or -1 */

int encoder_open(const tokenizer *tok, encoder **out, pt_error *e);
void encoder_close(encoder *encoder);

enum { ENCODE_TEMPLATE = 1, /* add the ids of the post-processor (BOS ...) */
       ENCODE_PLAIN = 2,    /* do not recognise special tokens in the text */
       ENCODE_MARKED = 8,   /* nor those behind a mark (plain_mark.h); drops the marks */
       ENCODE_CONTINUES = 4 /* `text` follows a cut (tokenizer_cut): no leading space is added */ };
/* Appends the ids of text[0 .. n_bytes) to `out`. Invalid UTF-8 is encoded as bytes if the tokenizer can; otherwise PT_FAILED, with the
 * byte offset. */
int encoder_run(encoder *encoder, const char *text, size_t n_bytes, unsigned flags, id_list *out, pt_error *e);

/* The first position p in [from, n_bytes] where the text can be split without changing its ids:
 * ids(text) = ids(text[0 .. p)) + ids(text[p .. n_bytes), ENCODE_CONTINUES). n_bytes if there is none. A file can thus be tokenized in
 * pieces, and by several threads. Whether p is such a position depends on at most max(longest added token, 8) bytes after it; closer to the
 * end of the text no position is reported. */
size_t tokenizer_cut(const tokenizer *tok, const char *text, size_t n_bytes, size_t from);

/* The bytes of one id within a text, for streaming; *n_bytes = 0 for an id without text. `first`: no id came before, except skipped special
 * ones (SentencePiece drops the leading space of the first). skip_special: special tokens have no bytes. The pointer is valid as long as
 * the tokenizer. */
int tokenizer_id_bytes(const tokenizer *tok, uint32_t id, bool first, bool skip_special,
                       const char **bytes, size_t *n_bytes, pt_error *e);

/* Appends the text of a whole sequence: the exact inverse of encoder_run without ENCODE_TEMPLATE,
 * byte for byte, if the tokenizer loses nothing (no NFC, no stripped spaces, no unknown token). */
int tokenizer_decode(const tokenizer *tok, const uint32_t *ids, size_t n_ids, bool skip_special,
                     text_buffer *out, pt_error *e);

#endif
