/* example_open.c - pt_example: a record to tokens, for the public interface. */
#include "base/json.h"
#include "data/examples.h"
#include "data/formats.h"
#include "data/unread.h"

#include <stdlib.h>
#include <string.h>

/* Everything that making an example needs. */
typedef struct maker {
    chat_source source;
    bool has_chat;
    pt_error no_chat; /* why there is no template; an error only for conversations */
    tokenizer *tokenizer;
    encoder *encoder;
    json_t *record;
} maker;

/* A bare list of messages is a conversation too. */
static int read_record(const char *name, const char *json, size_t bytes, json_t **out, pt_error *e)
{
    int failed = json_text_load(name, json, bytes, 0, out, e);
    if (!failed && json_is_array(*out))
        *out = json_pack("{s:o}", "messages", *out);
    return failed;
}

static int open_maker(maker *m, const char *model, const char *template_file, pt_error *e)
{
    if (!model || !model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with tokenizer.json");
    int failed = tokenizer_open(model, &m->tokenizer, e);
    if (!failed)
        failed = encoder_open(m->tokenizer, &m->encoder, e);
    if (!failed)
        m->has_chat = !chat_source_open(&m->source, model, template_file, &m->no_chat);
    return failed || m->has_chat || !template_file ? failed : pt_fail(e, m->no_chat.code, "%s", m->no_chat.text);
}

static void close_maker(maker *m)
{
    json_decref(m->record);
    chat_source_close(&m->source);
    encoder_close(m->encoder);
    tokenizer_close(m->tokenizer);
}

/* Tokenizes a text as a document of a stream. */
static int make_text(maker *m, const char *name, chat_tokens *x, pt_error *e)
{
    json_t *text = json_incref(json_object_get(m->record, "text"));
    const chat_pair whole = {name, "", json_string_value(text), 0, json_string_length(text), false};
    const int failed = json_is_string(text) ? chat_tokenize_pair(m->tokenizer, m->encoder, &whole, CHAT_ALL, x, e)
                                            : pt_fail(e, PT_FAILED, "%.400s: \"text\" is %s, but it must be a string", name,
                                                      json_type_name(text));
    json_object_del(m->record, "text");
    json_decref(text);
    return failed;
}

/* x[1]: the rejected reply of a pair. */
static int make(maker *m, pt_train_on train_on, bool plain, const char *name, chat_tokens x[2], bool *pair, pt_error *e)
{
    example_rules rules = {.format = format_of(m->record), .on = train_on, .plain = plain, .tokenizer = m->tokenizer,
                           .chat = m->has_chat ? &m->source : NULL, .no_chat = &m->no_chat, .now = EXAMPLES_TODAY};
    if (rules.format == PT_DATA_AUTO)
        return format_unknown(m->record, name, e);
    int failed = examples_learned(rules.format, &rules.on, e);
    if (failed)
        return failed;
    *pair = rules.format == PT_DATA_PREFERENCE;
    if (rules.format == PT_DATA_TEXT)
        return make_text(m, name, x, e);
    return *pair ? example_make_pair(&rules, m->encoder, m->record, name, x, e) : example_make(&rules, m->encoder, m->record, name, x, e);
}

_Static_assert(sizeof(pt_span) == sizeof(chat_span), "the one is the other");

static void show(chat_tokens *x, pt_example *out)
{
    const chat_rendering *r = &x->rendering;
    *out = (pt_example){.text = r->text.bytes ? r->text.bytes : "", .bytes = r->text.n, .spans = (const pt_span *)r->spans,
                        .spans_n = r->n_spans, .ids = x->ids.ids, .learned = x->learned, .n = x->ids.n};
}

/* The memory that an example owns. */
typedef struct owned { chat_tokens tokens[2]; pt_example rejected; char notice[600]; } owned;

static void note_unread(const json_t *rest, bool pair, owned *own)
{
    unread_tally tally = {0};
    char keys[480];
    unread_count(rest, (const text_buffer *const[]){&own->tokens[0].rendering.text, pair ? &own->tokens[1].rendering.text : NULL}, 1, 0,
                 &tally);
    if (!tally.keys[0].records)
        return;
    unread_name(&tally, false, keys, sizeof keys);
    snprintf(own->notice, sizeof own->notice,
             "keys that look like content are not read: %s: rename them (docs/chats.md has the keys of each format)", keys);
}

int pt_example_make(const char *model, const char *template_file, pt_train_on train_on, bool plain_contents, const char *name,
                    const char *json, size_t bytes, pt_example *out, pt_error *e)
{
    if (!out)
        return pt_fail_null(e, "pt_example_make", "the example");
    *out = (pt_example){0};
    if (!json || !name)
        return pt_fail_null(e, "pt_example_make", json ? "the name" : "the record");
    int failed = pt_check_choice("train_on", train_on, PT_TRAIN_ON_ALL, e);
    if (failed)
        return failed;
    maker m = {0};
    bool pair = false;
    owned *own = calloc(1, sizeof *own);
    failed = own ? open_maker(&m, model, template_file, e) : pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = read_record(name, json, bytes, &m.record, e);
    if (!failed)
        failed = make(&m, train_on, plain_contents, name, own->tokens, &pair, e);
    if (!failed)
        note_unread(m.record, pair, own);
    close_maker(&m);
    if (!own)
        return failed;
    show(&own->tokens[0], out);
    show(&own->tokens[1], &own->rejected);
    out->rejected = pair ? &own->rejected : NULL;
    out->notice = own->notice[0] ? own->notice : NULL;
    out->own = own;
    if (failed)
        pt_example_free(out);
    return failed;
}

static json_t *example_json(const pt_example *x)
{
    json_t *ids = json_array(), *learned = json_array();
    for (size_t i = 0; i < x->n; i++) {
        json_array_append_new(ids, json_integer(x->ids[i]));
        json_array_append_new(learned, json_integer(x->learned[i]));
    }
    return json_pack("{s:o, s:o, s:s%}", "ids", ids, "learned", learned, "text", x->text, x->bytes);
}

char *pt_example_json(const pt_example *x)
{
    if (!x || !x->own)
        return NULL;
    json_t *all = example_json(x);
    if (all && x->rejected)
        json_object_set_new(all, "rejected", example_json(x->rejected));
    char *text = all ? json_dumps(all, 0) : NULL;
    json_decref(all);
    return text;
}

void pt_example_free(pt_example *x)
{
    if (!x || !x->own)
        return;
    owned *own = x->own;
    chat_tokens_free(&own->tokens[0]);
    chat_tokens_free(&own->tokens[1]);
    free(own);
    *x = (pt_example){0};
}
