#include "report/samples_file.h"

#include "base/json.h"
#include "io/files.h"

#include <stdlib.h>
#include <string.h>

void said_free(said_samples *s)
{
    said_cut(s, INT64_MIN);
    free(s->list);
    *s = (said_samples){0};
}

void said_cut(said_samples *s, int64_t step)
{
    int kept = 0;
    for (int i = 0; i < s->n; i++) {
        if (s->list[i].step < step) {
            s->list[kept++] = s->list[i];
            continue;
        }
        free(s->list[i].prompt);
        free(s->list[i].text);
    }
    s->n = kept;
}

int said_add(said_samples *s, int64_t step, const char *prompt, const char *text, pt_error *e)
{
    said_sample *more = s->n < SAMPLES_MOST ? realloc(s->list, (size_t)(s->n + 1) * sizeof *more) : NULL;
    if (!more)
        return pt_fail(e, PT_FAILED, "more than %d samples, or no memory for them", SAMPLES_MOST);
    s->list = more;
    more[s->n] = (said_sample){step, strdup(prompt), strdup(text)};
    s->n++;
    return more[s->n - 1].prompt && more[s->n - 1].text ? 0 : pt_fail(e, PT_FAILED, "no memory for a sample");
}

static int read_line(said_samples *s, const char *path, int number, const char *line, size_t n, pt_error *e)
{
    char where[4200];
    json_source one;
    int64_t step = 0;
    const char *prompt = NULL, *text = NULL;
    snprintf(where, sizeof where, "%.4000s: line %d", path, number);
    int failed = json_source_text(&one, where, line, n, "a sample", e);
    if (failed)
        return failed;
    failed = json_get_int(&one, "step", JSON_REQUIRED, 0, INT64_MAX, &step, e);
    if (!failed)
        failed = json_get_string(&one, "prompt", JSON_REQUIRED, &prompt, e);
    if (!failed)
        failed = json_get_string(&one, "text", JSON_REQUIRED, &text, e);
    if (!failed)
        failed = said_add(s, step, prompt, text, e);
    json_source_close(&one);
    return failed;
}

int said_read(const char *path, said_samples *out, pt_error *e)
{
    char *bytes;
    size_t n;
    *out = (said_samples){0};
    if (!path_exists(path))
        return 0;
    int failed = file_read_all(path, SAMPLES_MOST_BYTES, &bytes, &n, e), number = 1;
    if (failed)
        return failed;
    for (size_t at = 0; at < n && !failed; number++) {
        const char *end = memchr(bytes + at, '\n', n - at);
        const size_t length = end ? (size_t)(end - bytes) - at : n - at;
        failed = read_line(out, path, number, bytes + at, length, e);
        at += length + 1;
    }
    free(bytes);
    if (failed)
        said_free(out);
    return failed;
}

static json_t *line_json(const said_sample *s)
{
    return json_pack("{s:I, s:s, s:s}", "step", (json_int_t)s->step, "prompt", s->prompt, "text", s->text);
}

json_t *said_json(const said_samples *s)
{
    json_t *list = json_array();
    for (int i = 0; i < s->n; i++)
        json_array_append_new(list, line_json(&s->list[i]));
    return list;
}

int said_write(const char *path, const said_samples *s, pt_error *e)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return pt_fail(e, PT_FAILED, "%.400s: no memory to write it", path);
    for (int i = 0; i < s->n; i++) {
        json_t *line = line_json(&s->list[i]);
        if (line && !json_dumpf(line, out, JSON_COMPACT))
            fputc('\n', out);
        json_decref(line);
    }
    const bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return pt_fail(e, PT_FAILED, "%.400s: no memory to write it", path);
    }
    const int status = file_write_atomic(path, text, n, e);
    free(text);
    return status;
}
