#include "data/examples.h"

#include "base/json.h"
#include "data/formats.h"
#include "text/buffer.h"

#include <stdio.h>
#include <stdlib.h>

int examples_learned(pt_data_format f, pt_train_on *on, pt_error *e)
{
    const bool chat = f == PT_DATA_MESSAGES || f == PT_DATA_SHAREGPT || f == PT_DATA_ALPACA;
    if (*on == PT_TRAIN_ON_AUTO)
        *on = chat ? PT_TRAIN_ON_ASSISTANT : f == PT_DATA_PROMPT || f == PT_DATA_PREFERENCE ? PT_TRAIN_ON_COMPLETION : PT_TRAIN_ON_ALL;
    if (chat && *on == PT_TRAIN_ON_COMPLETION)
        *on = PT_TRAIN_ON_LAST;
    if (chat || f == PT_DATA_PROMPT || f == PT_DATA_PREFERENCE || *on == PT_TRAIN_ON_ALL)
        return 0;
    return pt_fail(e, PT_USAGE,
                   "`train_on` selects replies, but the data are plain %s, of which every token is trained on: leave the option out",
                   f == PT_DATA_TOKENS ? "token ids" : "text");
}

static int make_texts(const example_rules *r, encoder *encoder, const format_record *f, const char *where, chat_tokens *out, pt_error *e)
{
    const chat_pair pair = {where, json_string_value(f->prompt), json_string_value(f->completion), json_string_length(f->prompt),
                            json_string_length(f->completion), r->plain};
    return chat_tokenize_pair(r->tokenizer, encoder, &pair, r->on == PT_TRAIN_ON_ALL ? CHAT_ALL : CHAT_COMPLETION, out, e);
}

/* PT_FAILED for a message of weight 0 if the training target is not chosen reply by reply. */
static int check_weights(const example_rules *r, const format_record *f, const char *where, pt_error *e)
{
    const bool by_reply = r->on == PT_TRAIN_ON_ASSISTANT || r->on == PT_TRAIN_ON_LAST, all = r->on == PT_TRAIN_ON_ALL;
    const size_t n = f->skipped && !by_reply ? json_array_size(json_object_get(f->conversation, "messages")) : 0;
    for (size_t i = all ? 0 : f->prompt_messages; i < n; i++)
        if (f->skipped[i])
            return pt_fail(e, PT_FAILED, "%.400s: message %zu has weight 0, but %s", where, i + 1,
                           all ? "`train_on` all trains on every message: leave one of the two out"
                               : "a completion is trained on as a whole: remove the weight, or write the record as {\"messages\": ...}");
    return 0;
}

static int make_chat(const example_rules *r, encoder *encoder, const format_record *f, const char *where, chat_tokens *out, pt_error *e)
{
    static const chat_learned learned[] = {[PT_TRAIN_ON_ASSISTANT] = CHAT_REPLIES, [PT_TRAIN_ON_COMPLETION] = CHAT_COMPLETION,
                                           [PT_TRAIN_ON_LAST] = CHAT_LAST, [PT_TRAIN_ON_ALL] = CHAT_ALL};
    const chat_wish wish = {.learned = learned[r->on], .prompt_messages = f->prompt_messages, .where = where, .now = r->now,
                            .plain = r->plain, .skipped = f->skipped};
    const int refused = check_weights(r, f, where, e);
    if (refused)
        return refused;
    if (!r->chat) {
        *e = *r->no_chat;
        return PT_FAILED;
    }
    return chat_tokenize(r->chat, r->tokenizer, encoder, f->conversation, &wish, out, e);
}

/* Takes the record's label, as format_label. */
static int take_label(json_t *record)
{
    const int label = format_label(record);
    if (label >= 0) {
        json_object_del(record, "label");
        json_object_del(record, "kto_tag");
    }
    return label;
}

/* *text = a text record's text, a new reference, which is removed from the record. */
static int take_text(json_t *record, const char *where, json_t **text, pt_error *e)
{
    *text = json_incref(json_object_get(record, "text"));
    json_object_del(record, "text");
    if (json_string_length(*text))
        return 0;
    const int failed = json_is_string(*text) ? pt_fail(e, PT_FAILED, "%.400s: the text is empty: remove such records from the file", where)
                                             : pt_fail(e, PT_FAILED, "%.400s: \"text\" is %s, but it must be a string", where,
                                                       json_type_name(*text));
    json_decref(*text);
    return failed;
}

/* A text among conversations: all of it is learned, and the end-of-text token behind it. */
static int make_whole_text(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens *out, pt_error *e)
{
    json_t *text;
    int rc = take_text(record, where, &text, e);
    if (rc < 0)
        return rc;
    const chat_pair pair = {where, "", json_string_value(text), 0, json_string_length(text), r->plain};
    rc = chat_tokenize_pair(r->tokenizer, encoder, &pair, CHAT_ALL, out, e);
    json_decref(text);
    return rc;
}

static int make(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens *out, pt_error *e)
{
    format_record f;
    if (r->format == PT_DATA_TEXT)
        return make_whole_text(r, encoder, record, where, out, e);
    int rc = format_read(r->format, record, where, &f, e);
    if (rc == 0 && f.conversation)
        rc = make_chat(r, encoder, &f, where, out, e);
    else if (rc == 0)
        rc = make_texts(r, encoder, &f, where, out, e);
    format_record_free(&f);
    return rc;
}

/* Makes the label the only learned id, behind the last token that counts. */
static int score(const example_rules *r, uint32_t label, chat_tokens *x, pt_error *e)
{
    while (x->ids.n > 1 && (int64_t)x->ids.ids[x->ids.n - 1] == r->padding)
        x->ids.n--;
    int failed = id_list_push(&x->ids, label, e);
    uint8_t *learned = failed ? NULL : realloc(x->learned, x->ids.n);
    if (!learned)
        return failed ? failed : pt_fail(e, PT_FAILED, "out of memory");
    memset(learned, 0, x->ids.n);
    learned[x->ids.n - 1] = 1;
    x->learned = learned;
    return 0;
}

/* As Transformers' tokenizers make ids of a text. */
static int make_text(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens *out, pt_error *e)
{
    json_t *text;
    int failed = take_text(record, where, &text, e);
    if (failed)
        return failed;
    out->rendering.text.n = out->ids.n = 0;
    const unsigned flags = ENCODE_TEMPLATE | (r->plain ? ENCODE_PLAIN : 0);
    failed = text_buffer_append(&out->rendering.text, json_string_value(text), json_string_length(text), e);
    if (!failed)
        failed = encoder_run(encoder, json_string_value(text), json_string_length(text), flags, &out->ids, e);
    if (!failed && !out->ids.n)
        failed = pt_fail(e, PT_FAILED, "the text has no tokens: remove such records from the file");
    json_decref(text);
    return failed ? pt_error_prefix(e, "%.400s", where) : 0;
}

static int make_labelled_text(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens *out, pt_error *e)
{
    const json_t *given = json_object_get(record, "label");
    const bool none = r->predicts && (r->names->n == 1 || !given || json_is_null(given));
    const int64_t label = none ? r->names->n : labels_number(r->names, given);
    if (label < 0)
        return pt_fail(e, PT_FAILED, "%.400s: \"label\" is missing, or not one of the %lld labels of the model", where,
                       (long long)r->names->n);
    json_object_del(record, "label");
    int failed = r->format == PT_DATA_TEXT ? make_text(r, encoder, record, where, out, e) : make(r, encoder, record, where, out, e);
    return failed ? failed : score(r, (uint32_t)label, out, e);
}

int example_make(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens *out, pt_error *e)
{
    if (r->names)
        return make_labelled_text(r, encoder, record, where, out, e);
    if (take_label(record) == 0)
        return pt_fail(e, PT_FAILED,
                       "%.400s: \"label\" (or \"kto_tag\") is false, which marks a bad reply, but every reply counts as a good one "
                       "here: train on labels with `task` kto, remove such records, or remove the key if it means something else", where);
    return make(r, encoder, record, where, out, e);
}

static size_t first_learned(const chat_tokens *x)
{
    size_t i = 0;
    while (i < x->ids.n && !x->learned[i])
        i++;
    return i;
}

/* Makes both replies begin at the same id, the earlier of the two: a token may extend from the prompt into only one of them. */
static void begin_together(chat_tokens x[2])
{
    const size_t a = first_learned(&x[0]), b = first_learned(&x[1]), begin = a < b ? a : b;
    for (int k = 0; k < 2; k++)
        for (size_t i = begin, end = k ? b : a; i < end; i++)
            x[k].learned[i] = 1;
}

/* The example of the label, and no example beside it. */
static int make_labelled(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens out[2], pt_error *e)
{
    const int label = take_label(record);
    if (label < 0)
        return pt_fail(e, PT_FAILED,
                       "%.400s: there is no label: \"label\" (or \"kto_tag\") must be true for a desirable reply, or false for an "
                       "undesirable one", where);
    out[label].ids.n = out[label].rendering.text.n = 0;
    return make(r, encoder, record, where, &out[!label], e);
}

int example_make_pair(const example_rules *r, encoder *encoder, json_t *record, const char *where, chat_tokens out[2], pt_error *e)
{
    if (r->format != PT_DATA_PREFERENCE)
        return make_labelled(r, encoder, record, where, out, e);
    example_rules each = *r;
    json_t *half[2] = {NULL, NULL}, *prompt = json_incref(json_object_get(record, "prompt"));
    char named[320];
    each.format = PT_DATA_PROMPT;
    int rc = format_split_pair(record, where, half, e);
    for (int i = 0; i < 2 && rc == 0; i++) {
        snprintf(named, sizeof named, "%.300s: %s", where, i ? "rejected" : "chosen");
        rc = make(&each, encoder, half[i], named, &out[i], e);
    }
    if (rc == 0 && r->on == PT_TRAIN_ON_COMPLETION && !r->labels && !r->scored)
        begin_together(out);
    for (int i = 0; i < 2 && rc == 0 && r->scored; i++)
        rc = score(r, 0, &out[i], e);
    json_object_clear(record);
    json_object_update(record, half[0]);
    if (json_is_string(prompt)) /* it is not read beside lists that have it */
        json_object_set(record, "prompt", prompt);
    json_decref(prompt);
    json_decref(half[0]);
    json_decref(half[1]);
    return rc;
}
