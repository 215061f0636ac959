#include "data/cutter.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 32 }; /* places of one class whose context is encoded */

struct cutter {
    encoder *encoder;
    id_list left, both;
    uint8_t joined[256][32]; /* bit b of row a: some token has byte b behind byte a */
};

static bool is_joined(const cutter *c, unsigned char a, unsigned char b)
{
    return c->joined[a][b >> 3] >> (b & 7) & 1;
}

static int note_tokens(cutter *c, const tokenizer *t, pt_error *e)
{
    for (uint32_t id = 0, n = tokenizer_vocab_size(t); id < n; id++) {
        const char *p;
        size_t bytes;
        int rc = tokenizer_id_bytes(t, id, false, false, &p, &bytes, e);
        if (rc < 0)
            return rc;
        for (size_t i = 1; i < bytes; i++) {
            unsigned char a = (unsigned char)p[i - 1], b = (unsigned char)p[i];
            c->joined[a][b >> 3] |= (uint8_t)(1 << (b & 7));
        }
    }
    return 0;
}

int cutter_open(const tokenizer *t, cutter **out, pt_error *e)
{
    cutter *c = calloc(1, sizeof *c);
    if (!c)
        return pt_fail(e, PT_FAILED, "out of memory: %zu bytes to cut texts", sizeof *c);
    int rc = encoder_open(t, &c->encoder, e);
    if (rc == 0)
        rc = note_tokens(c, t, e);
    if (rc < 0) {
        cutter_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void cutter_close(cutter *c)
{
    if (!c)
        return;
    encoder_close(c->encoder);
    id_list_free(&c->left);
    id_list_free(&c->both);
    free(c);
}

static bool inside_character(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* How many bytes before p are context: whole characters. */
static size_t context_before(const char *text, size_t p)
{
    size_t from = p > CUT_CONTEXT ? p - CUT_CONTEXT : 0;
    for (int i = 0; i < 3 && from > 0 && from < p && inside_character(text[from]); i++)
        from++;
    return p - from;
}

/* Condition 2. A text that the tokenizer refuses is no place for a cut; whoever encodes it reports it. */
static bool agrees(cutter *c, const char *text, size_t p, size_t context)
{
    size_t end = p + CUT_CONTEXT;
    for (int i = 0; i < 3 && inside_character(text[end]); i++)
        end++;
    c->left.n = c->both.n = 0;
    if (encoder_run(c->encoder, text + p - context, context, 0, &c->left, NULL) < 0 ||
        encoder_run(c->encoder, text + p - context, context + end - p, 0, &c->both, NULL) < 0)
        return false;
    return c->both.n >= c->left.n && memcmp(c->both.ids, c->left.ids, c->left.n * sizeof *c->left.ids) == 0;
}

typedef bool (*place_class)(const char *text, size_t p);

static bool behind_newline(const char *text, size_t p)
{
    return text[p - 1] == '\n' && !is_space(text[p]) && (p < 2 || !is_space(text[p - 2]));
}

static bool before_space(const char *text, size_t p)
{
    return !is_space(text[p - 1]) && is_space(text[p]);
}

static bool anywhere(const char *text, size_t p)
{
    return true;
}

size_t cutter_find(cutter *c, const char *text, size_t low, size_t high, size_t *context)
{
    static const place_class classes[] = {behind_newline, before_space, anywhere};
    for (size_t k = 0; k < sizeof classes / sizeof *classes; k++) {
        int tries = 0;
        for (size_t p = high; p >= low && tries < TRIES; p--) {
            if (!classes[k](text, p) || inside_character(text[p]) ||
                is_joined(c, (unsigned char)text[p - 1], (unsigned char)text[p]))
                continue;
            *context = context_before(text, p);
            if (agrees(c, text, p, *context))
                return p;
            tries++;
        }
    }
    return 0;
}
