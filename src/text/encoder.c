/* encoder.c - text → ids, with the scratch memory of one thread.
 *
 *   text ─ parts of at most about 1 MiB (tokenizer_cut) ─ runs of valid and of invalid UTF-8
 *        ─ added tokens found in raw text | pieces between them
 *        ─ normalizer ─ added tokens found in normalized text | spans between them
 *        ─ pre-tokenizer ─ words ─ BPE ─ ids
 *
 * Invalid UTF-8 splits the text: its bytes become ids of their own, and the text after them is encoded as after a cut. Nothing is allocated
 * per word; buffers grow to the longest part. */
#include "text/buffer.h"
#include "text/plain_mark.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

#include <stdlib.h>

enum { PART_BYTES = 1 << 20, KEPT_BYTES = 16 << 20 };

struct encoder {
    const tokenizer *t;
    bpe_scratch model;
    pattern_scratch patterns;
    text_buffer normalized[2];
    text_buffer *steps; /* a buffer for each step of the pre-tokenizer */
    plain_tokens plain;
    text_buffer unmarked;
    id_list *out;
};

int encoder_open(const tokenizer *tok, encoder **out, pt_error *e)
{
    encoder *encoder = calloc(1, sizeof *encoder);
    if (!encoder || !(encoder->steps = calloc(tok->pre.n + 1, sizeof *encoder->steps))) {
        free(encoder);
        return pt_fail(e, PT_FAILED, "no memory for an encoder; free some memory");
    }
    encoder->t = tok;
    int status = bpe_scratch_init(&encoder->model, e);
    if (!status)
        status = pattern_scratch_init(&encoder->patterns, e);
    if (status)
        encoder_close(encoder);
    else
        *out = encoder;
    return status;
}

void encoder_close(encoder *encoder)
{
    if (!encoder)
        return;
    for (size_t i = 0; i < encoder->t->pre.n; i++)
        text_buffer_free(&encoder->steps[i]);
    free(encoder->steps);
    text_buffer_free(&encoder->normalized[0]);
    text_buffer_free(&encoder->normalized[1]);
    text_buffer_free(&encoder->unmarked);
    pattern_scratch_free(&encoder->patterns);
    bpe_scratch_free(&encoder->model);
    free(encoder);
}

static int encode_word(void *context, const char *word, size_t n, pt_error *e)
{
    encoder *encoder = context;
    return bpe_word(&encoder->t->model, &encoder->model, word, n, encoder->out, e);
}

typedef int span_encoder(encoder *c, const char *text, size_t n, span_start start, pt_error *e);

/* Encodes a text: the tokens of `set` in it by their ids, the spans between them by `encode`. */
static int encode_around(encoder *encoder, const token_set *set, const char *text, size_t n, span_start start, span_encoder *encode,
                         pt_error *e)
{
    token_search search = {0};
    int status = 0;
    for (size_t done = 0; !status; start = START_INSIDE) {
        const added_token *token = token_set_next(set, text, n, encoder->plain, &search);
        status = encode(encoder, text + done, (token ? search.start : n) - done, start, e);
        if (!token)
            break;
        if (!status)
            status = id_list_push(encoder->out, token->id, e);
        done = search.at;
    }
    return status;
}

static int encode_words(encoder *encoder, const char *text, size_t n, span_start start, pt_error *e)
{
    const pre_run run = {&encoder->t->pre, &encoder->patterns, encoder->steps, encode_word, encoder};
    if (encoder->plain == PLAIN_MARKED) {
        encoder->unmarked.n = 0;
        const int status = plain_mark_drop(text, n, &encoder->unmarked, e);
        return status ? status
                      : pretokenizer_run(&run, encoder->unmarked.bytes ? encoder->unmarked.bytes : "", encoder->unmarked.n, start, e);
    }
    return pretokenizer_run(&run, text, n, start, e);
}

/* Encodes a piece between added tokens in raw text. */
static int encode_piece(encoder *encoder, const char *text, size_t n, span_start start, pt_error *e)
{
    if (n == 0)
        return 0;
    int status =
        normalizer_run(&encoder->t->normalizer, &encoder->patterns, encoder->normalized, text, n, start != START_CONTINUES, &text, &n, e);
    return status ? status : encode_around(encoder, &encoder->t->added.normalized, text, n, start, encode_words, e);
}

/* Encodes a run of well-formed UTF-8. */
static int encode_text(encoder *encoder, const char *text, size_t n, span_start start, pt_error *e)
{
    return encode_around(encoder, &encoder->t->added.raw, text, n, start, encode_piece, e);
}

/* Encodes a run of bytes that are not UTF-8, at `offset` in the caller's text. */
static int encode_bytes(encoder *encoder, const char *bytes, size_t n, size_t offset, pt_error *e)
{
    const bpe *model = &encoder->t->model;
    const uint32_t *ids = model->byte_level ? model->byte_unit : model->fallback;
    bool can = model->byte_level || model->byte_fallback;
    int status = 0;
    for (size_t i = 0; i < n && !status; i++) {
        unsigned byte = (unsigned char)bytes[i];
        if (!can || ids[byte] == NO_ID)
            return pt_fail(e, PT_FAILED,
                           "byte 0x%02X at offset %zu is not UTF-8 and the tokenizer has no token for it; convert the "
                           "text to UTF-8",
                           byte, offset + i);
        if (!model->byte_level)
            status = id_list_push(encoder->out, ids[byte], e);
    }
    return status || !model->byte_level ? status : bpe_word(model, &encoder->model, bytes, n, encoder->out, e);
}

static int encode_part(encoder *encoder, const char *text, size_t n, size_t offset, span_start start, pt_error *e)
{
    int status = 0;
    for (size_t i = 0; i < n && !status; start = START_CONTINUES) {
        size_t good = utf8_valid_prefix(text + i, n - i);
        if (good > 0)
            status = encode_text(encoder, text + i, good, start, e);
        i += good;
        size_t bad = i;
        while (bad < n && utf8_check(text + bad, n - bad) == 0)
            bad++;
        if (bad > i && !status)
            status = encode_bytes(encoder, text + i, bad - i, offset + i, e);
        i = bad;
    }
    return status;
}

/* Frees buffers that an unusually long part has enlarged. */
static void trim(encoder *encoder)
{
    for (int i = 0; i < 2; i++)
        if (encoder->normalized[i].capacity > KEPT_BYTES)
            text_buffer_free(&encoder->normalized[i]);
    if (encoder->unmarked.capacity > KEPT_BYTES)
        text_buffer_free(&encoder->unmarked);
    for (size_t i = 0; i < encoder->t->pre.n; i++)
        if (encoder->steps[i].capacity > KEPT_BYTES)
            text_buffer_free(&encoder->steps[i]);
    bpe_scratch_trim(&encoder->model, KEPT_BYTES);
}

int encoder_run(encoder *encoder, const char *text, size_t n, unsigned flags, id_list *out, pt_error *e)
{
    const post_processor *post = &encoder->t->post;
    span_start start = flags & ENCODE_CONTINUES ? START_CONTINUES : START_OF_TEXT;
    encoder->plain = flags & ENCODE_PLAIN ? PLAIN_ALL : flags & ENCODE_MARKED ? PLAIN_MARKED : PLAIN_NONE;
    encoder->out = out;
    int status = flags & ENCODE_TEMPLATE ? id_list_append(out, &post->before, e) : 0;
    for (size_t i = 0; i < n && !status; start = START_CONTINUES) {
        size_t end = n - i > PART_BYTES && encoder->plain != PLAIN_MARKED ? tokenizer_cut(encoder->t, text, n, i + PART_BYTES) : n;
        status = encode_part(encoder, text + i, end - i, i, start, e);
        i = end;
    }
    trim(encoder);
    if (!status && flags & ENCODE_TEMPLATE)
        status = id_list_append(out, &post->after, e);
    return status;
}
