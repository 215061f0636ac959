#include "train/preview.h"

#include "base/target.h"
#include "protrain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 300 /* tokens */ };

typedef struct writing { const tokenizer *t; FILE *out; bool learned, first; } writing;

static void mark(writing *w, bool learned)
{
    if (learned != w->learned)
        fputc(learned ? PT_LEARNED_BEGINS : PT_LEARNED_ENDS, w->out);
    w->learned = learned;
}

/* A terminal must not obey what data contain. */
static void write_bytes(FILE *out, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i], next = i + 1 < n ? (unsigned char)text[i + 1] : 0;
        const bool second = c == 0xC2 && next >= 0x80 && next < 0xA0; /* U+0080 to U+009F */
        fputc((c < 0x20 && c != '\n') || c == 0x7F || second ? '.' : c, out);
        i += second;
    }
}

static int write_token(writing *w, int32_t id, bool learned, pt_error *e)
{
    const char *text = "";
    size_t n = 0;
    const bool known = tokenizer_has_id(w->t, (uint32_t)id);
    const int failed = known ? tokenizer_id_bytes(w->t, (uint32_t)id, w->first, false, &text, &n, e) : 0;
    mark(w, learned);
    write_bytes(w->out, text, n);
    w->first = w->first && !n;
    return failed;
}

/* Does a document begin at place i? That of a stream's first one may lie before the window. */
static bool begins(const dataset_row *row, int64_t i) { return i > 0 && row->first[i] == (int32_t)i; }

/* The end of the example that begins at place i: of a pair the end of its second reply. */
static int64_t end_of(const dataset *data, const dataset_row *row, int64_t seq_len, int64_t i, int replies)
{
    for (i++; i < seq_len && row->targets[i] != TARGET_PADDING; i++)
        if (dataset_packed(data) && begins(row, i) && --replies == 0)
            break;
    return i;
}

static int write_example(const tokenizer *tok, const dataset_row *row, int64_t begin, int64_t end, FILE *out, pt_error *e)
{
    writing w = {tok, out, false, true};
    int failed = 0;
    for (int64_t i = begin; i < end && i - begin < MOST && !failed; i++) {
        const bool next = i > begin && begins(row, i);
        if (next) {
            mark(&w, false);
            fputs("\n", out);
        }
        failed = write_token(&w, row->ids[i], i > begin && !next && row->targets[i - 1] == row->ids[i], e);
        if (!failed && row->targets[i] >= 0 && (i + 1 == end || begins(row, i + 1)))
            failed = write_token(&w, row->targets[i], true, e); /* it is the input of none */
    }
    mark(&w, false);
    fprintf(out, "%s\n%c", end - begin > MOST ? " ..." : "", PT_EXAMPLE_ENDS);
    return failed;
}

/* The examples of a window, at most *n of them. */
static int write_window(const dataset *data, const tokenizer *tok, const dataset_row *row, int64_t seq_len, int replies, int64_t *n,
                        FILE *out, pt_error *e)
{
    int failed = 0;
    for (int64_t i = 0, end; i < seq_len && *n > 0 && row->targets[i] != TARGET_PADDING && !failed; i = end, --*n) {
        end = end_of(data, row, seq_len, i, replies);
        failed = write_example(tok, row, i, end, out, e);
    }
    return failed;
}

int preview_make(dataset *data, const tokenizer *tok, int64_t seq_len, int64_t n, bool pairs, char **out, pt_error *e)
{
    size_t bytes;
    const size_t row_bytes = (size_t)seq_len * sizeof(int32_t);
    const dataset_row row = {.ids = malloc(row_bytes), .targets = malloc(row_bytes), .first = malloc(row_bytes)};
    FILE *text = row.ids && row.targets && row.first ? open_memstream(out, &bytes) : NULL;
    int failed = text ? 0 : pt_fail(e, PT_FAILED, "out of memory");
    const uint64_t windows = dataset_windows(data);
    for (uint64_t i = 0; i < windows && n > 0 && !failed; i++) {
        failed = dataset_sample(data, i, windows, &row, NULL, e);
        if (!failed)
            failed = write_window(data, tok, &row, seq_len, pairs ? 2 : 1, &n, text, e);
    }
    if (text)
        fclose(text);
    free(row.ids);
    free(row.targets);
    free(row.first);
    return failed;
}
