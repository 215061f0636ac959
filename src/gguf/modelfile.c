#include "gguf/modelfile.h"

#include "infer/recommended.h"
#include "io/files.h"
#include "text/buffer.h"

#include <libgen.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char first_line[] = "# Written by protrain: ollama create NAME -f THIS_FILE\n";

int modelfile_check(const char *path, pt_error *e)
{
    if (!file_may_replace(path, "out", first_line, "Modelfile", NULL))
        return 0;
    return pt_fail(e, PT_FAILED, "%.400s: this exists and is not a Modelfile that protrain wrote: give another `modelfile`", path);
}

static int add(text_buffer *b, pt_error *e, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int add(text_buffer *b, pt_error *e, const char *fmt, ...)
{
    char line[FILE_PATH_BYTES + 64];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    return text_buffer_append(b, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1, e);
}

/* Ollama reads a relative path as one from the Modelfile's folder. */
static int add_source(text_buffer *b, const modelfile *x, pt_error *e)
{
    char of_gguf[FILE_PATH_BYTES], of_file[FILE_PATH_BYTES], name[FILE_PATH_BYTES];
    char *whole = realpath(x->gguf, NULL);
    snprintf(of_gguf, sizeof of_gguf, "%s", x->gguf);
    snprintf(of_file, sizeof of_file, "%s", x->path);
    snprintf(name, sizeof name, "%s", x->gguf);
    const bool beside = !strcmp(dirname(of_gguf), dirname(of_file));
    const int failed = beside ? add(b, e, "FROM ./%s\n", basename(name)) : add(b, e, "FROM %s\n", whole ? whole : x->gguf);
    free(whole);
    return failed;
}

static int add_sampling(text_buffer *b, const modelfile *x, pt_error *e)
{
    pt_generate_options o;
    pt_generate_defaults(&o);
    o.model = x->folder;
    int failed = recommended_apply(&o, e);
    if (!failed)
        failed = add(b, e, "PARAMETER temperature %g\nPARAMETER top_k %lld\nPARAMETER top_p %g\nPARAMETER repeat_penalty %g\n",
                     o.temperature, (long long)o.top_k, o.top_p, o.repetition_penalty);
    return failed;
}

/* The texts of the ends that can be written on one line, in quotes. */
static int add_stops(text_buffer *b, const modelfile *x, pt_error *e)
{
    int failed = 0;
    for (int i = 0; i < x->stops->n && !failed; i++) {
        const char *text;
        size_t n;
        const uint32_t id = (uint32_t)x->stops->ids[i];
        if (!tokenizer_has_id(x->tokenizer, id) || tokenizer_id_bytes(x->tokenizer, id, false, false, &text, &n, NULL))
            continue;
        if (n && n < 256 && !memchr(text, '"', n) && !memchr(text, '\n', n) && !memchr(text, '\\', n))
            failed = add(b, e, "PARAMETER stop \"%.*s\"\n", (int)n, text);
    }
    return failed;
}

int modelfile_write(const modelfile *x, pt_error *e)
{
    text_buffer b = {0};
    int failed = add(&b, e, "%s", first_line);
    if (!failed)
        failed = add_source(&b, x, e);
    if (!failed)
        failed = add_sampling(&b, x, e);
    if (!failed)
        failed = add_stops(&b, x, e);
    if (!failed)
        failed = file_write_atomic(x->path, b.bytes, b.n, e);
    text_buffer_free(&b);
    return failed;
}
