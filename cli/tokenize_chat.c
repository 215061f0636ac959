#include "tokenize_chat.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int print_json(const pt_example *x, pt_error *e)
{
    char *text = pt_example_json(x);
    if (!text)
        return pt_fail(e, PT_FAILED, "out of memory for %zu bytes of text", x->bytes);
    puts(text);
    free(text);
    return 0;
}

static void print_ids(const pt_example *x)
{
    for (size_t i = 0; i < x->n; i++)
        printf("%s%u", i ? " " : "", x->ids[i]);
    puts("");
    if (x->rejected)
        print_ids(x->rejected);
}

/* Conversations are untrusted: their control characters (U+0000 to U+001F, U+007F to U+009F) must not reach the terminal. */
static void print_visible(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)bytes[i], then = i + 1 < n ? (unsigned char)bytes[i + 1] : 0;
        const bool high = c == 0xc2 && then >= 0x80 && then < 0xa0;
        putchar(high || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? '?' : c);
        i += high;
    }
}

static void print_part(const char *bytes, size_t n, bool learned)
{
    const bool green = learned && n;
    fputs(green ? "\033[1;32m" : "", stdout);
    print_visible(bytes, n);
    fputs(green ? "\033[0m" : "", stdout);
}

/* The text of the ids, which also has the tokens that were added to x->text: the first *before bytes, and from *behind on. None if it does
 * not have x->text, because the tokenizer normalizes it. free() *whole. */
static int find_added(const pt_example *x, pt_tokenizer *t, char **whole, size_t *before, const char **behind, pt_error *e)
{
    size_t n;
    int failed = pt_tokenizer_decode(t, x->ids, x->n, false, whole, &n, e);
    const char *at = failed ? NULL : memmem(*whole, n, x->text, x->bytes);
    *before = at ? (size_t)(at - *whole) : 0;
    *behind = at ? at + x->bytes : "";
    return failed;
}

static int print_coloured(const pt_example *x, pt_tokenizer *t, pt_error *e)
{
    size_t at = 0, learned = 0, before;
    char *whole = NULL;
    const char *behind;
    int failed = find_added(x, t, &whole, &before, &behind, e);
    if (failed)
        return failed;
    if (x->rejected)
        puts("\033[2mchosen\033[0m");
    print_part(whole, before, x->n && x->learned[0]);
    for (size_t k = 0; k < x->spans_n; k++) {
        const pt_span span = x->spans[k];
        print_visible(x->text + at, span.first - at);
        print_part(x->text + span.first, span.end - span.first, true);
        at = span.end;
    }
    print_visible(x->text + at, x->bytes - at);
    print_part(behind, strlen(behind), x->n && x->learned[x->n - 1]);
    for (size_t i = 0; i < x->n; i++)
        learned += x->learned[i];
    const bool line_ends = x->bytes && x->text[x->bytes - 1] == '\n' && !*behind;
    printf("%s%zu of %zu tokens are trained on (green).\n", line_ends ? "" : "\n", learned, x->n);
    free(whole);
    if (!x->rejected)
        return 0;
    puts("\033[2mrejected\033[0m");
    return print_coloured(x->rejected, t, e);
}

static int show(const chat_request *r, const pt_example *x, pt_error *e)
{
    pt_tokenizer *t = NULL;
    int failed = pt_tokenizer_open(r->model, &t, e);
    if (!failed)
        failed = print_coloured(x, t, e);
    pt_tokenizer_close(t);
    return failed;
}

int tokenize_chat(const chat_request *r, const char *input, size_t bytes, pt_error *e)
{
    pt_example x;
    int failed = pt_example_make(r->model, r->template_file, r->train_on, r->plain_contents, "standard input", input, bytes, &x, e);
    if (!failed && x.notice)
        fprintf(stderr, "note: %s\n", x.notice);
    if (!failed && r->json)
        failed = print_json(&x, e);
    else if (!failed && isatty(STDOUT_FILENO))
        failed = show(r, &x, e);
    else if (!failed)
        print_ids(&x);
    pt_example_free(&x);
    return failed;
}
