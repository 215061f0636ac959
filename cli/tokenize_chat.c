#include "tokenize_chat.h"

#include <stdio.h>
#include <stdlib.h>
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

static void print_coloured(const pt_example *x)
{
    size_t at = 0, learned = 0;
    if (x->rejected)
        puts("\033[2mchosen\033[0m");
    for (size_t k = 0; k < x->spans_n; k++) {
        const pt_span span = x->spans[k];
        print_visible(x->text + at, span.first - at);
        fputs("\033[1;32m", stdout);
        print_visible(x->text + span.first, span.end - span.first);
        fputs("\033[0m", stdout);
        at = span.end;
    }
    print_visible(x->text + at, x->bytes - at);
    for (size_t i = 0; i < x->n; i++)
        learned += x->learned[i];
    printf("%s%zu of %zu tokens are trained on (green).\n", x->bytes && x->text[x->bytes - 1] == '\n' ? "" : "\n", learned, x->n);
    if (x->rejected) {
        puts("\033[2mrejected\033[0m");
        print_coloured(x->rejected);
    }
}

int tokenize_chat(const chat_request *r, const char *input, size_t bytes, pt_error *e)
{
    pt_example x;
    int failed = pt_example_make(r->model, r->template_file, r->train_on, "standard input", input, bytes, &x, e);
    if (!failed && r->json)
        failed = print_json(&x, e);
    else if (!failed && isatty(STDOUT_FILENO))
        print_coloured(&x);
    else if (!failed)
        print_ids(&x);
    pt_example_free(&x);
    return failed;
}
