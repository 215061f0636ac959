#include "tokenize_chat.h"

#include "base/json.h"
#include "data/examples.h"
#include "data/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int print_json(const chat_tokens *x, pt_error *e)
{
    json_t *text = json_stringn(x->rendering.text.bytes ? x->rendering.text.bytes : "", x->rendering.text.n);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    json_decref(text);
    if (!quoted)
        return pt_fail(e, PT_FAILED, "out of memory for %zu bytes of text", x->rendering.text.n);
    fputs("{\"ids\": [", stdout);
    for (size_t i = 0; i < x->ids.n; i++)
        printf("%s%u", i ? ", " : "", x->ids.ids[i]);
    fputs("], \"learned\": [", stdout);
    for (size_t i = 0; i < x->ids.n; i++)
        printf("%s%d", i ? ", " : "", x->learned[i]);
    printf("], \"text\": %s}\n", quoted);
    free(quoted);
    return 0;
}

static void print_ids(const chat_tokens *x)
{
    for (size_t i = 0; i < x->ids.n; i++)
        printf("%s%u", i ? " " : "", x->ids.ids[i]);
    puts("");
}

/* A conversation comes from anywhere: control characters in it are not for the terminal. */
static void print_visible(const char *bytes, size_t n)
{
    char one[4] = {0};
    for (size_t i = 0; i < n; i++) {
        one[0] = bytes[i];
        one[1] = i + 1 < n ? bytes[i + 1] : 0;
        const size_t control = one[0] == '\n' || one[0] == '\t' ? 0 : one[0] ? control_character(one) : 1;
        if (control)
            fputs("?", stdout);
        else
            putchar(bytes[i]);
        i += control ? control - 1 : 0;
    }
}

static void print_coloured(const chat_tokens *x)
{
    const text_buffer *text = &x->rendering.text;
    size_t at = 0, learned = 0;
    for (size_t k = 0; k < x->rendering.n_spans; k++) {
        const chat_span span = x->rendering.spans[k];
        print_visible(text->bytes + at, span.first - at);
        fputs("\033[1;32m", stdout);
        print_visible(text->bytes + span.first, span.end - span.first);
        fputs("\033[0m", stdout);
        at = span.end;
    }
    print_visible(text->bytes + at, text->n - at);
    for (size_t i = 0; i < x->ids.n; i++)
        learned += x->learned[i];
    printf("%s%zu of %zu tokens are learned (green).\n", text->n && text->bytes[text->n - 1] == '\n' ? "" : "\n", learned, x->ids.n);
}

/* A list of messages alone is a conversation too. */
static int read_record(const char *input, size_t bytes, json_t **out, pt_error *e)
{
    int failed = json_text_load("standard input", input, bytes, 0, out, e);
    if (!failed && json_is_array(*out))
        *out = json_pack("{s:o}", "messages", *out);
    return failed;
}

static int make_example(const chat_request *r, const chat_source *source, const tokenizer *t, encoder *c, json_t *record, chat_tokens *x,
                        pt_error *e)
{
    example_rules rules = {.format = format_of(record), .on = r->train_on, .tokenizer = t, .chat = source, .now = time(NULL)};
    if (rules.format == PT_DATA_AUTO || rules.format == PT_DATA_TEXT)
        return format_unknown(record, "standard input", e);
    int failed = examples_learned(rules.format, &rules.on, e);
    return failed ? failed : example_make(&rules, c, record, "standard input", x, e);
}

int tokenize_chat(const chat_request *r, const char *input, size_t bytes, pt_error *e)
{
    chat_source source = {0};
    tokenizer *t = NULL;
    encoder *c = NULL;
    json_t *record = NULL;
    chat_tokens x = {0};
    if (!r->model || !r->model[0])
        return pt_fail(e, PT_USAGE, "no model: --model DIR names a Hugging Face folder with tokenizer.json");
    int failed = tokenizer_open(r->model, &t, e);
    if (!failed)
        failed = encoder_open(t, &c, e);
    if (!failed)
        failed = chat_source_open(&source, r->model, r->template_file, e);
    if (!failed)
        failed = read_record(input, bytes, &record, e);
    if (!failed)
        failed = make_example(r, &source, t, c, record, &x, e);
    if (!failed && r->json)
        failed = print_json(&x, e);
    else if (!failed && isatty(STDOUT_FILENO))
        print_coloured(&x);
    else if (!failed)
        print_ids(&x);
    chat_tokens_free(&x);
    json_decref(record);
    chat_source_close(&source);
    encoder_close(c);
    tokenizer_close(t);
    return failed;
}
