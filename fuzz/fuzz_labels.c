/* fuzz_labels.c - labels of classes and new tokens from files. The first byte says what the rest is:
 *
 *     0   labels.json, or the id2label of a config.json
 *     1   records with labels (.jsonl)
 *     2   a file of --add-tokens, for a tokenizer of single bytes
 *     3   a record whose label is one of three, or which needs none
 *
 * What holds: a file is refused with a sentence that names it, or its labels are whole, its tokens have ids of their own, and an example
 * ends with its label. */
#include "data/documents.h"
#include "data/examples.h"
#include "data/labels.h"
#include "text/new_tokens.h"

#include "chat/byte_model.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static char folder[64];
static tokenizer *the_tokenizer;
static encoder *the_encoder;

static void remove_folder(void)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "labels.json", "data.jsonl",
                                        "tokens.txt"};
    char path[128];
    encoder_close(the_encoder);
    tokenizer_close(the_tokenizer);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        unlink(path);
    }
    rmdir(folder);
}

static void open_once(void)
{
    pt_error e;
    if (folder[0])
        return;
    snprintf(folder, sizeof folder, "/tmp/fuzz-labels-XXXXXX");
    if (!mkdtemp(folder))
        abort();
    put_byte_model(folder, 256, true);
    if (tokenizer_open(folder, &the_tokenizer, &e) || encoder_open(the_tokenizer, &the_encoder, &e) || atexit(remove_folder))
        abort();
}

static const char *put_file(const char *name, const uint8_t *data, size_t n)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, n, f) != n || fclose(f))
        abort();
    return path;
}

static void refused(const pt_error *e) { assert(e->text[0] && strstr(e->text, folder)); }

static void check_names(const label_names *l)
{
    assert(l->n >= 0 && l->n <= LABELS_MOST);
    for (int64_t i = 0; l->name && i < l->n; i++)
        assert(l->name[i]);
}

static void read_listed(const uint8_t *data, size_t n)
{
    label_names l = {0};
    pt_error e = {0};
    put_file("labels.json", data, n);
    if (labels_read(&l, folder, "labels.json", &e))
        refused(&e);
    else
        check_names(&l);
    labels_free(&l);
}

static void find_in_records(const uint8_t *data, size_t n)
{
    label_names l = {0};
    pt_error e = {0};
    const char *const path = put_file("data.jsonl", data, n);
    if (labels_find(&l, &path, 1, DATA_TRAINS, NULL, &e)) {
        refused(&e);
    } else {
        check_names(&l);
        assert(l.n >= 2);
        for (int64_t i = 1; l.name && i < l.n; i++)
            assert(strcmp(l.name[i - 1], l.name[i]) < 0);
    }
    labels_free(&l);
}

static void add_tokens(const uint8_t *data, size_t n)
{
    new_tokens x = {0};
    tokenizer *t;
    pt_error e = {0};
    if (new_tokens_open(&x, folder, put_file("tokens.txt", data, n), &e)) {
        refused(&e);
    } else {
        assert(x.n > 0 && x.first == tokenizer_vocab_size(the_tokenizer) && x.end[x.n - 1] == x.pieces.n);
        for (size_t i = 0; i < x.n; i++)
            assert(x.end[i] > (i ? x.end[i - 1] : 0));
        if (tokenizer_open_text(folder, "new tokenizer.json", x.json, x.bytes, &t, &e))
            abort();
        assert(tokenizer_vocab_size(t) == x.first + x.n);
        tokenizer_close(t);
    }
    new_tokens_close(&x);
}

static void make_example(const uint8_t *data, size_t n)
{
    char *names[] = {"bad", "fair", "good"};
    const label_names labels = {3, names};
    json_t *record;
    pt_error e = {0};
    chat_tokens x = {0};
    if (n < 1 || record_parse("fuzz", (record_place){1, 1}, (const char *)data + 1, n - 1, &record, &e))
        return;
    const pt_error none = {.code = PT_FAILED, .text = "there is no template"};
    const example_rules rules = {.format = PT_DATA_TEXT, .on = PT_TRAIN_ON_ALL, .scored = true, .names = &labels, .predicts = data[0] & 1,
                                 .padding = data[0] & 2 ? 'a' : -1, .tokenizer = the_tokenizer, .no_chat = &none};
    if (example_make(&rules, the_encoder, record, "fuzz", &x, &e)) {
        assert(!strncmp(e.text, "fuzz", 4));
    } else {
        size_t learned = 0;
        for (size_t i = 0; i < x.ids.n; i++)
            learned += x.learned[i];
        assert(x.ids.n >= 2 && learned == 1 && x.learned[x.ids.n - 1] && x.ids.ids[x.ids.n - 1] < 3 + (unsigned)rules.predicts);
    }
    chat_tokens_free(&x);
    json_decref(record);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static void (*const kinds[])(const uint8_t *, size_t) = {read_listed, find_in_records, add_tokens, make_example};
    open_once();
    if (n)
        kinds[data[0] % 4](data + 1, n - 1);
    return 0;
}
