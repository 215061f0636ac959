#include "text/new_tokens.h"

#include "base/json.h"
#include "base/units.h"
#include "io/files.h"
#include "text/buffer.h"
#include "text/tokenizer_parts.h"
#include "text/utf8.h"

#include <stdlib.h>

enum { FILE_BYTES_MOST = 64 << 20, TOKEN_BYTES_MOST = 1000 };

/* Everything that reading the file needs. */
typedef struct reader {
    const char *file;
    tokenizer *t;
    encoder *encoder;
    string_table lines; /* the file's tokens, by their number */
    json_t *root;       /* of tokenizer.json */
    json_t *added;      /* its added_tokens */
    new_tokens *out;
} reader;

/* ---- the next id ---- */

static size_t count_ids(const string_table *t)
{
    size_t n = 0, bytes;
    for (uint32_t id = 0; id < t->n_ids; id++)
        n += string_table_get(t, id, &bytes) != NULL;
    return n;
}

/* The number of the model's tokens, or what follows the highest added one. */
static int find_first(const reader *r, const char *model_dir, pt_error *e)
{
    size_t first = count_ids(&r->t->model.tokens);
    for (size_t i = 0; i < r->t->added.n; i++)
        if (r->t->added.tokens[i].id >= first)
            first = r->t->added.tokens[i].id + 1;
    r->out->first = (uint32_t)first;
    if (first == tokenizer_vocab_size(r->t))
        return 0;
    return pt_fail(e, PT_FAILED, "%.400s/tokenizer.json has gaps between its ids: Transformers gives the next token the id %zu, and ids up "
                                 "to %u are taken; `add_tokens` needs a tokenizer without gaps", model_dir, first,
                   tokenizer_vocab_size(r->t) - 1);
}

/* ---- a line ---- */

static int check_line(const reader *r, const char *text, size_t n, size_t line, pt_error *e)
{
    const int shown = n < 60 ? (int)utf8_valid_prefix(text, n) : (int)utf8_valid_prefix(text, 60);
    if (!n)
        return pt_fail(e, PT_FAILED, "%.400s: line %zu is empty: write one token a line", r->file, line);
    if (utf8_valid_prefix(text, n) < n || memchr(text, 0, n))
        return pt_fail(e, PT_FAILED, "%.400s: line %zu is not text in UTF-8: write one token a line", r->file, line);
    if (n > TOKEN_BYTES_MOST)
        return pt_fail(e, PT_FAILED, "%.400s: line %zu has %zu bytes, and a token at most %d: write one token a line", r->file, line, n,
                       TOKEN_BYTES_MOST);
    if (string_table_find(&r->t->added.names, text, n) != NO_ID || string_table_find(&r->t->model.tokens, text, n) != NO_ID)
        return pt_fail(e, PT_FAILED, "%.400s: line %zu: \"%.*s\" is a token of the tokenizer already: remove the line", r->file, line,
                       shown, text);
    const uint32_t before = string_table_find(&r->lines, text, n);
    if (before != NO_ID)
        return pt_fail(e, PT_FAILED, "%.400s: line %zu is the same as line %u: remove one of them", r->file, line, before + 1);
    return 0;
}

static int add_line(reader *r, const char *text, size_t n, pt_error *e)
{
    new_tokens *x = r->out;
    const size_t line = x->n + 1, begin = x->pieces.n;
    int failed = check_line(r, text, n, line, e);
    if (!failed)
        failed = string_table_add(&r->lines, (uint32_t)x->n, text, n, e);
    if (!failed)
        failed = encoder_run(r->encoder, text, n, 0, &x->pieces, e);
    if (!failed && x->pieces.n == begin)
        failed = pt_fail(e, PT_FAILED, "%.400s: line %zu: the tokenizer makes no ids of \"%.*s\", so its row has nothing to start from: "
                                       "remove the line", r->file, line, (int)utf8_valid_prefix(text, n < 60 ? n : 60), text);
    if (failed)
        return failed;
    x->end[x->n] = x->pieces.n;
    json_t *entry = json_pack("{s:I, s:s%, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)(x->first + x->n), "content", text, n,
                              "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 1, "special", 0);
    x->n++;
    return json_array_append_new(r->added, entry) ? pt_fail(e, PT_FAILED, "out of memory") : 0;
}

/* ---- the file ---- */

static size_t count_lines(const char *text, size_t n)
{
    size_t lines = n && text[n - 1] != '\n';
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

static int add_lines(reader *r, const char *text, size_t n, pt_error *e)
{
    const size_t lines = count_lines(text, n);
    if (!lines)
        return pt_fail(e, PT_FAILED, "%.400s has no tokens: write one a line", r->file);
    if (lines > MAX_TOKEN_ID - r->out->first)
        return pt_fail(e, PT_FAILED, "%.400s has %zu lines, more tokens than a tokenizer can have: remove some", r->file, lines);
    r->out->end = malloc(lines * sizeof *r->out->end);
    int failed = r->out->end ? string_table_init(&r->lines, (uint32_t)lines, e) : pt_fail(e, PT_FAILED, "out of memory");
    for (const char *at = text, *all = text + n; at < all && !failed;) {
        const char *stop = memchr(at, '\n', (size_t)(all - at)), *next = stop ? stop + 1 : all;
        stop = stop ? stop : all;
        const bool ends_in_cr = stop > at && stop[-1] == '\r';
        failed = add_line(r, at, (size_t)(stop - at) - ends_in_cr, e);
        at = next;
    }
    return failed;
}

static int read_file(reader *r, pt_error *e)
{
    static const char mark[] = "\xef\xbb\xbf";
    char *text = NULL;
    size_t n = 0;
    int failed = file_read_all(r->file, FILE_BYTES_MOST, &text, &n, e);
    if (!failed) {
        const size_t skip = n >= 3 && !memcmp(text, mark, 3) ? 3 : 0;
        failed = add_lines(r, text + skip, n - skip, e);
    }
    free(text);
    return failed;
}

static int open_list(reader *r, const char *path, pt_error *e)
{
    int failed = json_file_load_most(path, JSON_TOKENIZER_MAX_BYTES, 0, &r->root, e);
    if (failed)
        return failed;
    r->added = json_object_get(r->root, "added_tokens");
    if (json_is_array(r->added))
        return 0;
    r->added = json_array();
    return json_object_set_new(r->root, "added_tokens", r->added) ? pt_fail(e, PT_FAILED, "out of memory") : 0;
}

static int write_json(const reader *r, pt_error *e)
{
    r->out->json = json_dumps(r->root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    if (!r->out->json)
        return pt_fail(e, PT_FAILED, "out of memory");
    r->out->bytes = strlen(r->out->json);
    return 0;
}

int new_tokens_open(new_tokens *x, const char *model_dir, const char *file, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    *x = (new_tokens){0};
    reader r = {.file = file, .out = x};
    int failed = tokenizer_open(model_dir, &r.t, e);
    if (!failed)
        failed = encoder_open(r.t, &r.encoder, e);
    if (!failed)
        failed = find_first(&r, model_dir, e);
    if (!failed)
        failed = path_join(path, model_dir, "tokenizer.json", e);
    if (!failed)
        failed = open_list(&r, path, e);
    if (!failed)
        failed = read_file(&r, e);
    if (!failed)
        failed = write_json(&r, e);
    json_decref(r.root);
    string_table_free(&r.lines);
    encoder_close(r.encoder);
    tokenizer_close(r.t);
    if (failed)
        new_tokens_close(x);
    return failed;
}

void new_tokens_close(new_tokens *x)
{
    id_list_free(&x->pieces);
    free(x->end);
    free(x->json);
    *x = (new_tokens){0};
}
