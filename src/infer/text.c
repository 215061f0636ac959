/* text.c - pt_tokenizer: a tokenizer and the encoder of one thread. */
#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

struct pt_tokenizer {
    tokenizer *tokenizer;
    encoder *encoder;
};

int pt_tokenizer_open(const char *model, pt_tokenizer **out, pt_error *e)
{
    if (!out)
        return pt_fail_null(e, "pt_tokenizer_open", "the place for the tokenizer");
    *out = NULL;
    if (!model || !model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with tokenizer.json");
    pt_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return pt_fail(e, PT_FAILED, "out of memory");
    int failed = tokenizer_open(model, &t->tokenizer, e);
    if (!failed)
        failed = encoder_open(t->tokenizer, &t->encoder, e);
    if (failed) {
        pt_tokenizer_close(t);
        return failed;
    }
    *out = t;
    return 0;
}

void pt_tokenizer_close(pt_tokenizer *t)
{
    if (!t)
        return;
    encoder_close(t->encoder);
    tokenizer_close(t->tokenizer);
    free(t);
}

int pt_tokenizer_encode(pt_tokenizer *t, const char *text, size_t bytes, bool add_special, uint32_t **ids, size_t *n, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_tokenizer_encode", "the tokenizer");
    if (!ids)
        return pt_fail_null(e, "pt_tokenizer_encode", "the place for the ids");
    if (!n)
        return pt_fail_null(e, "pt_tokenizer_encode", "the place for their number");
    if (!(text || !bytes))
        return pt_fail_null(e, "pt_tokenizer_encode", "the text");
    id_list list = {0};
    *ids = NULL;
    *n = 0;
    int failed = encoder_run(t->encoder, text, bytes, add_special ? ENCODE_TEMPLATE : 0, &list, e);
    if (failed) {
        id_list_free(&list);
        return failed;
    }
    *ids = list.ids;
    *n = list.n;
    return 0;
}

/* Drops the ids at both ends that the template puts around every text. */
static int drop_template(pt_tokenizer *t, const uint32_t **ids, size_t *n, pt_error *e)
{
    id_list around = {0};
    int failed = encoder_run(t->encoder, "", 0, ENCODE_TEMPLATE, &around, e);
    size_t before = 0;
    while (before < around.n && before < *n && around.ids[before] == (*ids)[before])
        before++;
    size_t behind = around.n - before;
    bool ends = behind == 0 || (before + behind <= *n && !memcmp(*ids + *n - behind, around.ids + before, behind * sizeof **ids));
    if (!failed && around.n && ends) {
        *ids += before;
        *n -= around.n;
    }
    id_list_free(&around);
    return failed;
}

int pt_tokenizer_decode(pt_tokenizer *t, const uint32_t *ids, size_t n, bool drop_special, char **text, size_t *bytes, pt_error *e)
{
    if (!t)
        return pt_fail_null(e, "pt_tokenizer_decode", "the tokenizer");
    if (!text)
        return pt_fail_null(e, "pt_tokenizer_decode", "the place for the text");
    if (!bytes)
        return pt_fail_null(e, "pt_tokenizer_decode", "the place for its length");
    if (!(ids || !n))
        return pt_fail_null(e, "pt_tokenizer_decode", "the list of ids");
    text_buffer out = {0};
    *text = NULL;
    *bytes = 0;
    int failed = drop_special ? drop_template(t, &ids, &n, e) : 0;
    if (!failed)
        failed = tokenizer_decode(t->tokenizer, ids, n, false, &out, e);
    char *whole = failed ? NULL : realloc(out.bytes, out.n + 1);
    if (!whole) {
        text_buffer_free(&out);
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory for %zu bytes of text", out.n);
    }
    whole[out.n] = 0;
    *text = whole;
    *bytes = out.n;
    return 0;
}
