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

int encoder_open(const tokenizer *t, encoder **out, pt_error *e)
{
    encoder *c = calloc(1, sizeof *c);
    if (!c || !(c->steps = calloc(t->pre.n + 1, sizeof *c->steps))) {
        free(c);
        return pt_fail(e, PT_FAILED, "no memory for an encoder; free some memory");
    }
    c->t = t;
    int status = bpe_scratch_init(&c->model, e);
    if (!status)
        status = pattern_scratch_init(&c->patterns, e);
    if (status)
        encoder_close(c);
    else
        *out = c;
    return status;
}

void encoder_close(encoder *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->t->pre.n; i++)
        text_buffer_free(&c->steps[i]);
    free(c->steps);
    text_buffer_free(&c->normalized[0]);
    text_buffer_free(&c->normalized[1]);
    text_buffer_free(&c->unmarked);
    pattern_scratch_free(&c->patterns);
    bpe_scratch_free(&c->model);
    free(c);
}

static int encode_word(void *context, const char *word, size_t n, pt_error *e)
{
    encoder *c = context;
    return bpe_word(&c->t->model, &c->model, word, n, c->out, e);
}

typedef int span_encoder(encoder *c, const char *text, size_t n, span_start start, pt_error *e);

/* Encodes a text: the tokens of `set` in it by their ids, the spans between them by `encode`. */
static int encode_around(encoder *c, const token_set *set, const char *text, size_t n, span_start start, span_encoder *encode, pt_error *e)
{
    token_search search = {0};
    int status = 0;
    for (size_t done = 0; !status; start = START_INSIDE) {
        const added_token *token = token_set_next(set, text, n, c->plain, &search);
        status = encode(c, text + done, (token ? search.start : n) - done, start, e);
        if (!token)
            break;
        if (!status)
            status = id_list_push(c->out, token->id, e);
        done = search.at;
    }
    return status;
}

static int encode_words(encoder *c, const char *text, size_t n, span_start start, pt_error *e)
{
    const pre_run run = {&c->t->pre, &c->patterns, c->steps, encode_word, c};
    if (c->plain == PLAIN_MARKED) {
        c->unmarked.n = 0;
        const int status = plain_mark_drop(text, n, &c->unmarked, e);
        return status ? status : pretokenizer_run(&run, c->unmarked.bytes ? c->unmarked.bytes : "", c->unmarked.n, start, e);
    }
    return pretokenizer_run(&run, text, n, start, e);
}

/* Encodes a piece between added tokens in raw text. */
static int encode_piece(encoder *c, const char *text, size_t n, span_start start, pt_error *e)
{
    if (n == 0)
        return 0;
    int status = normalizer_run(&c->t->normalizer, &c->patterns, c->normalized, text, n, start != START_CONTINUES, &text, &n, e);
    return status ? status : encode_around(c, &c->t->added.normalized, text, n, start, encode_words, e);
}

/* Encodes a run of well-formed UTF-8. */
static int encode_text(encoder *c, const char *text, size_t n, span_start start, pt_error *e)
{
    return encode_around(c, &c->t->added.raw, text, n, start, encode_piece, e);
}

/* Encodes a run of bytes that are not UTF-8, at `offset` in the caller's text. */
static int encode_bytes(encoder *c, const char *bytes, size_t n, size_t offset, pt_error *e)
{
    const bpe *model = &c->t->model;
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
            status = id_list_push(c->out, ids[byte], e);
    }
    return status || !model->byte_level ? status : bpe_word(model, &c->model, bytes, n, c->out, e);
}

static int encode_part(encoder *c, const char *text, size_t n, size_t offset, span_start start, pt_error *e)
{
    int status = 0;
    for (size_t i = 0; i < n && !status; start = START_CONTINUES) {
        size_t good = utf8_valid_prefix(text + i, n - i);
        if (good > 0)
            status = encode_text(c, text + i, good, start, e);
        i += good;
        size_t bad = i;
        while (bad < n && utf8_check(text + bad, n - bad) == 0)
            bad++;
        if (bad > i && !status)
            status = encode_bytes(c, text + i, bad - i, offset + i, e);
        i = bad;
    }
    return status;
}

/* Frees buffers that an unusually long part has enlarged. */
static void trim(encoder *c)
{
    for (int i = 0; i < 2; i++)
        if (c->normalized[i].capacity > KEPT_BYTES)
            text_buffer_free(&c->normalized[i]);
    if (c->unmarked.capacity > KEPT_BYTES)
        text_buffer_free(&c->unmarked);
    for (size_t i = 0; i < c->t->pre.n; i++)
        if (c->steps[i].capacity > KEPT_BYTES)
            text_buffer_free(&c->steps[i]);
    bpe_scratch_trim(&c->model, KEPT_BYTES);
}

int encoder_run(encoder *c, const char *text, size_t n, unsigned flags, id_list *out, pt_error *e)
{
    const post_processor *post = &c->t->post;
    span_start start = flags & ENCODE_CONTINUES ? START_CONTINUES : START_OF_TEXT;
    c->plain = flags & ENCODE_PLAIN ? PLAIN_ALL : flags & ENCODE_MARKED ? PLAIN_MARKED : PLAIN_NONE;
    c->out = out;
    int status = flags & ENCODE_TEMPLATE ? id_list_append(out, &post->before, e) : 0;
    for (size_t i = 0; i < n && !status; start = START_CONTINUES) {
        size_t end = n - i > PART_BYTES && c->plain != PLAIN_MARKED ? tokenizer_cut(c->t, text, n, i + PART_BYTES) : n;
        status = encode_part(c, text + i, end - i, i, start, e);
        i = end;
    }
    trim(c);
    if (!status && flags & ENCODE_TEMPLATE)
        status = id_list_append(out, &post->after, e);
    return status;
}
