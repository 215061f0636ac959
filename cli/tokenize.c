#include "args.h"
#include "commands.h"
#include "exit.h"
#include "input.h"
#include "tokenize_chat.h"

#include "base/json.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    const char *model, *template_file;
    bool special, json, decode, chat, plain_contents;
    int train_on;
} options;

static const char usage[] = "usage: protrain tokenize --model DIR [--special] [--json] < text\n"
                            "       protrain tokenize --model DIR --decode [--special] < ids\n"
                            "       protrain tokenize --model DIR --chat [--chat-template FILE] [--json] < conversation\n\n"
                            "Converts text to token ids, as Hugging Face's tokenizers do, and back. The text is read from standard\n"
                            "input byte for byte; special tokens in it are recognized.";

static int parse(options *o, int argc, char **argv, pt_error *e)
{
    const arg own[] = {
        ARG(TEXT, "model", &o->model, "DIR", NULL, "Hugging Face folder with tokenizer.json"),
        ARG(FLAG, "special", &o->special, NULL, NULL,
            "add the special tokens of the tokenizer's template (BOS ...);\nwith --decode, leave them out"),
        ARG(FLAG, "json", &o->json, NULL, NULL, "print {\"ids\": [...]} instead of ids on one line; --decode reads both"),
        ARG(FLAG, "decode", &o->decode, NULL, NULL, "convert ids to text; adds no newline at the end"),
        ARG(FLAG, "chat", &o->chat, NULL, NULL,
            "apply the model's chat template to one conversation in JSON:\n[{\"role\": ..., \"content\": ...}, ...], or any record "
            "that train reads;\n--json also prints the text and which tokens are trained on; on a\nterminal, colour shows them"),
        ARG(TEXT, "chat-template", &o->template_file, "FILE", NULL, "with --chat: use this Jinja template instead of the model's own"),
        ARG(FLAG, "plain-contents", &o->plain_contents, NULL, NULL, "with --chat: special tokens in messages are plain text"),
        ARG(CHOICE, "train-on", &o->train_on, "auto|assistant|completion|last|all", NULL, "with --chat: tokens to train on, as in train"),
    };
    pt_options *none;
    int failed = args_parse(COMMAND_LINE(NULL, usage, own), &none, e);
    if (!failed && o->chat && (o->decode || o->special))
        return pt_fail(e, PT_USAGE, "--chat cannot be used with --decode or --special: the chat template writes the special tokens");
    if (!failed && (o->template_file || o->train_on || o->plain_contents) && !o->chat)
        return pt_fail(e, PT_USAGE, "%s needs --chat",
                       o->template_file ? "--chat-template" : o->train_on ? "--train-on" : "--plain-contents");
    return failed;
}

static int print_ids(const uint32_t *ids, size_t n, bool json)
{
    if (json)
        fputs("{\"ids\": [", stdout);
    for (size_t i = 0; i < n; i++)
        printf("%s%u", !i ? "" : json ? ", " : " ", ids[i]);
    puts(json ? "]}" : "");
    return 0;
}

static int encode(pt_tokenizer *t, const options *o, const char *text, size_t bytes, pt_error *e)
{
    uint32_t *ids;
    size_t n;
    int failed = pt_tokenizer_encode(t, text, bytes, o->special, &ids, &n, e);
    if (!failed)
        failed = print_ids(ids, n, o->json);
    free(ids);
    return failed;
}

/* ---- the way back ---- */

static const char byte_order_mark[] = "\xEF\xBB\xBF";

typedef struct ids { uint32_t *v; size_t n; } ids;

/* Reads numbers separated by blanks or commas. */
static int read_plain(const char *text, size_t bytes, ids *out, pt_error *e)
{
    size_t at = 0;
    out->v = malloc((bytes / 2 + 1) * sizeof *out->v);
    if (!out->v)
        return pt_fail(e, PT_FAILED, "out of memory for the ids in %zu bytes", bytes);
    for (;;) {
        while (at < bytes && (isspace((unsigned char)text[at]) || text[at] == ','))
            at++;
        if (at == bytes)
            return 0;
        uint64_t id = 0;
        size_t start = at;
        for (; at < bytes && isdigit((unsigned char)text[at]) && id <= UINT32_MAX; at++)
            id = id * 10 + (uint64_t)(text[at] - '0');
        bool ends = at == bytes || isspace((unsigned char)text[at]) || text[at] == ',';
        if (at == start || !ends || id > UINT32_MAX)
            return pt_fail(e, PT_FAILED, "standard input, byte %zu: expected a token id, a number between blanks, or {\"ids\": [...]}",
                           start);
        out->v[out->n++] = (uint32_t)id;
    }
}

static int read_json(const char *text, size_t bytes, ids *out, pt_error *e)
{
    json_error_t bad;
    char reason[JSON_REASON_BYTES];
    const size_t mark = bytes >= 3 && !memcmp(text, byte_order_mark, 3) ? 3 : 0;
    if (json_text_check("standard input", text, bytes, e))
        return PT_FAILED;
    json_t *root = json_loadb(text + mark, bytes - mark, JSON_ALLOW_NUL, &bad);
    int failed = 0;
    if (!root)
        return pt_fail(e, PT_FAILED, "standard input:%d:%d: not valid JSON: %s", bad.line, bad.column, json_reason(&bad, reason));
    const json_t *list = json_is_object(root) ? json_object_get(root, "ids") : root;
    out->v = malloc((json_array_size(list) + 1) * sizeof *out->v);
    if (!json_is_array(list))
        failed = pt_fail(e, PT_FAILED, "standard input: expected {\"ids\": [...]}");
    else if (!out->v)
        failed = pt_fail(e, PT_FAILED, "out of memory for %zu ids", json_array_size(list));
    for (size_t i = 0; !failed && i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > UINT32_MAX)
            failed = pt_fail(e, PT_FAILED, "standard input: \"ids\"[%zu] is not a token id: ids are whole numbers from 0 on", i);
        else
            out->v[out->n++] = (uint32_t)json_integer_value(id);
    }
    json_decref(root);
    return failed;
}

/* JSON begins with a brace or a bracket, numbers do not. */
static bool is_json(const char *text, size_t n)
{
    size_t at = n >= 3 && !memcmp(text, byte_order_mark, 3) ? 3 : 0;
    while (at < n && isspace((unsigned char)text[at]))
        at++;
    return at < n && (text[at] == '{' || text[at] == '[');
}

static int decode(pt_tokenizer *t, const options *o, const char *input, size_t n, pt_error *e)
{
    ids list = {0};
    char *text = NULL;
    size_t bytes;
    int failed = is_json(input, n) ? read_json(input, n, &list, e) : read_plain(input, n, &list, e);
    if (!failed)
        failed = pt_tokenizer_decode(t, list.v, list.n, o->special, &text, &bytes, e);
    if (!failed)
        fwrite(text, 1, bytes, stdout);
    free(list.v);
    free(text);
    return failed;
}

int command_tokenize(int argc, char **argv)
{
    options o = {0};
    pt_error e = {0};
    pt_tokenizer *t = NULL;
    char *input = NULL;
    size_t bytes = 0;
    int failed = parse(&o, argc, argv, &e);
    if (failed == 1)
        return 0;
    if (!failed && !o.chat)
        failed = pt_tokenizer_open(o.model, &t, &e);
    if (!failed)
        failed = input_read("-", SIZE_MAX, &input, &bytes, &e);
    if (!failed && o.chat)
        failed = tokenize_chat(&(chat_request){o.model, o.template_file, (pt_train_on)o.train_on, o.plain_contents, o.json}, input, bytes,
                               &e);
    else if (!failed)
        failed = o.decode ? decode(t, &o, input, bytes, &e) : encode(t, &o, input, bytes, &e);
    pt_tokenizer_close(t);
    free(input);
    return failed ? exit_with(&e) : 0;
}
