#include "text/normalizer.h"

#include "text/buffer.h"
#include "text/section.h"
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static int add_string(const json_t *section, const char *key, text_buffer *out, pt_error *e)
{
    const json_t *value = json_object_get(section, key);
    if (!json_is_string(value))
        return pt_fail(e, PT_FAILED, "normalizer: %s is missing or not a string; correct the file", key);
    return text_buffer_append(out, json_string_value(value), json_string_length(value), e);
}

static int read_step(normalizer *n, const json_t *section, const char *type, pt_error *e)
{
    static const struct { const char *name; normalizer_kind kind; } kinds[] = {
        {"NFC", NORMALIZE_NFC}, {"NFD", NORMALIZE_NFD}, {"NFKC", NORMALIZE_NFKC}, {"NFKD", NORMALIZE_NFKD},
        {"Lowercase", NORMALIZE_LOWERCASE}, {"Strip", NORMALIZE_STRIP}, {"Prepend", NORMALIZE_PREPEND},
        {"Replace", NORMALIZE_REPLACE},
    };
    size_t i = 0;
    while (i < sizeof kinds / sizeof *kinds && strcmp(kinds[i].name, type) != 0)
        i++;
    if (i == sizeof kinds / sizeof *kinds)
        return pt_fail(e, PT_FAILED,
                       "normalizer: type \"%.60s\" is not supported (NFC, NFD, NFKC, NFKD, Lowercase, Strip, Prepend, "
                       "Replace and Sequence are); use a tokenizer without it",
                       type);
    if (n->n == SECTION_STEPS_MOST)
        return section_too_long("normalizer", e);
    normalizer_step *steps = realloc(n->steps, (n->n + 1) * sizeof *steps);
    if (!steps)
        return pt_fail(e, PT_FAILED, "normalizer: no memory for its steps; free some memory");
    n->steps = steps;
    normalizer_step *step = &steps[n->n++];
    *step = (normalizer_step){.kind = kinds[i].kind};
    int status = 0;
    if (step->kind == NORMALIZE_STRIP) {
        status = section_flag(section, "normalizer: Strip", "strip_left", true, &step->left, e);
        return status ? status : section_flag(section, "normalizer: Strip", "strip_right", true, &step->right, e);
    }
    if (step->kind == NORMALIZE_PREPEND)
        return add_string(section, "prepend", &step->content, e);
    if (step->kind == NORMALIZE_REPLACE) {
        status = pattern_open_json(&step->search, json_object_get(section, "pattern"), "normalizer: Replace", e);
        return status ? status : add_string(section, "content", &step->content, e);
    }
    return 0;
}

static int read_section(normalizer *n, const json_t *section, pt_error *e)
{
    if (!section || json_is_null(section))
        return 0;
    const json_t *type = json_object_get(section, "type");
    if (!json_is_string(type))
        return pt_fail(e, PT_FAILED, "normalizer: a step without a type; correct the file");
    if (strcmp(json_string_value(type), "Sequence") != 0)
        return read_step(n, section, json_string_value(type), e);
    const json_t *list = json_object_get(section, "normalizers");
    if (!json_is_array(list))
        return pt_fail(e, PT_FAILED, "normalizer: a Sequence without the array \"normalizers\"; correct the file");
    for (size_t i = 0; i < json_array_size(list); i++) {
        int status = read_section(n, json_array_get(list, i), e);
        if (status)
            return status;
    }
    return 0;
}

int normalizer_open(normalizer *n, const json_t *section, pt_error *e)
{
    *n = (normalizer){0};
    return read_section(n, section, e);
}

void normalizer_close(normalizer *n)
{
    for (size_t i = 0; i < n->n; i++) {
        pattern_close(&n->steps[i].search);
        text_buffer_free(&n->steps[i].content);
    }
    free(n->steps);
    *n = (normalizer){0};
}

bool normalizer_prepends(const normalizer *n)
{
    for (size_t i = 0; i < n->n; i++)
        if (n->steps[i].kind == NORMALIZE_PREPEND)
            return true;
    return false;
}

/* ---- running ---- */

static int replace(const normalizer_step *step, pattern_scratch *s, const char *text, size_t n, text_buffer *out,
                   pt_error *e)
{
    pattern_search search = {0};
    size_t done = 0;
    int found;
    while ((found = pattern_next(&step->search, s, text, n, &search, e)) > 0) {
        size_t kept = search.match - done;
        int status = text_buffer_reserve(out, kept + step->content.n, e);
        if (status)
            return status;
        memcpy(out->bytes + out->n, text + done, kept);
        if (step->content.n)
            memcpy(out->bytes + out->n + kept, step->content.bytes, step->content.n);
        out->n += kept + step->content.n;
        done = search.match_end;
    }
    return found < 0 ? found : text_buffer_append(out, text + done, n - done, e);
}

static int run_step(const normalizer_step *step, pattern_scratch *s, const char *text, size_t n, text_buffer *out,
                    pt_error *e)
{
    int status;
    switch (step->kind) {
    case NORMALIZE_REPLACE:
        return replace(step, s, text, n, out, e);
    case NORMALIZE_PREPEND:
        status = text_buffer_append(out, step->content.bytes, n ? step->content.n : 0, e);
        return status ? status : text_buffer_append(out, text, n, e);
    case NORMALIZE_LOWERCASE:
        return unicode_lowercase(text, n, out, e);
    case NORMALIZE_NFC: return unicode_normalize(UNICODE_NFC, text, n, out, e);
    case NORMALIZE_NFD: return unicode_normalize(UNICODE_NFD, text, n, out, e);
    case NORMALIZE_NFKC: return unicode_normalize(UNICODE_NFKC, text, n, out, e);
    case NORMALIZE_NFKD: return unicode_normalize(UNICODE_NFKD, text, n, out, e);
    case NORMALIZE_STRIP: break; /* done in place by the caller */
    }
    return 0;
}

int normalizer_run(const normalizer *n, pattern_scratch *s, text_buffer buffers[2], const char *text, size_t n_bytes,
                   bool prepend, const char **out, size_t *n_out, pt_error *e)
{
    int into = 0;
    for (size_t i = 0; i < n->n; i++) {
        const normalizer_step *step = &n->steps[i];
        if (step->kind == NORMALIZE_STRIP) {
            size_t start = step->left ? unicode_spaces_at_start(text, n_bytes) : 0;
            size_t end = step->right ? unicode_spaces_at_end(text + start, n_bytes - start) : 0;
            text += start;
            n_bytes -= start + end;
            continue;
        }
        if (step->kind == NORMALIZE_PREPEND && !prepend)
            continue;
        if (step->kind == NORMALIZE_NFC && unicode_surely_nfc(text, n_bytes))
            continue;
        buffers[into].n = 0;
        int status = run_step(step, s, text, n_bytes, &buffers[into], e);
        if (status)
            return status;
        text = buffers[into].n ? buffers[into].bytes : "";
        n_bytes = buffers[into].n;
        into = !into;
    }
    *out = text;
    *n_out = n_bytes;
    return 0;
}
