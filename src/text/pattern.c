#include "text/pattern.h"

#include "text/buffer.h"
#include "text/pattern_translate.h"
#include "text/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { MAX_REGEX_BYTES = 1 << 16, JIT_STACK_BYTES = 1 << 20 };

int pattern_open_literal(pattern *p, const char *text, size_t n, pt_error *e)
{
    *p = (pattern){0};
    return text_buffer_append(&p->literal, text, n, e);
}

int pattern_open_regex(pattern *p, const char *regex, size_t n, const char *where, pt_error *e)
{
    *p = (pattern){0};
    if (n > MAX_REGEX_BYTES)
        return pt_fail(e, PT_FAILED, "%s: a regular expression of %zu bytes is too long (at most %d)", where, n,
                       MAX_REGEX_BYTES);
    text_buffer translated = {0};
    int status = pattern_translate(regex, n, where, &translated, e);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!status && !context)
        status = pt_fail(e, PT_FAILED, "%s: no memory to compile a regular expression; free some memory", where);
    if (!status) {
        int error;
        PCRE2_SIZE offset;
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        p->code = pcre2_compile((PCRE2_SPTR)translated.bytes, translated.n,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                context);
        if (!p->code) {
            char message[128] = "unknown error";
            pcre2_get_error_message(error, (PCRE2_UCHAR *)message, sizeof message);
            status = pt_fail(e, PT_FAILED, "%s: cannot use the regular expression \"%.*s\": %s; correct it", where,
                             (int)(n < 200 ? n : 200), regex, message);
        } else {
            p->compiled = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
        }
    }
    pcre2_compile_context_free(context);
    text_buffer_free(&translated);
    return status;
}

int pattern_open_json(pattern *p, const json_t *value, const char *where, pt_error *e)
{
    const json_t *literal = json_object_get(value, "String"), *regex = json_object_get(value, "Regex");
    *p = (pattern){0};
    if (json_is_string(literal) && json_string_length(literal) > 0)
        return pattern_open_literal(p, json_string_value(literal), json_string_length(literal), e);
    if (json_is_string(regex))
        return pattern_open_regex(p, json_string_value(regex), json_string_length(regex), where, e);
    return pt_fail(e, PT_FAILED, "%s: the pattern is neither {\"String\": text} nor {\"Regex\": text}; write one",
                   where);
}

void pattern_close(pattern *p)
{
    pcre2_code_free(p->code);
    text_buffer_free(&p->literal);
    *p = (pattern){0};
}

int pattern_scratch_init(pattern_scratch *s, pt_error *e)
{
    s->match = pcre2_match_data_create(1, NULL);
    s->context = pcre2_match_context_create(NULL);
    s->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, NULL);
    if (!s->match || !s->context) {
        pattern_scratch_free(s);
        return pt_fail(e, PT_FAILED, "no memory for regular expression matching; free some memory");
    }
    if (s->stack)
        pcre2_jit_stack_assign(s->context, NULL, s->stack);
    return 0;
}

void pattern_scratch_free(pattern_scratch *s)
{
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    pcre2_jit_stack_free(s->stack);
    *s = (pattern_scratch){0};
}

static int search_regex(const pattern *p, pattern_scratch *s, const char *text, size_t n, size_t at,
                        pattern_search *search, pt_error *e)
{
    int found = p->compiled ? pcre2_jit_match(p->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, s->match, s->context)
                            : pcre2_match(p->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, s->match, s->context);
    if (found == PCRE2_ERROR_NOMATCH)
        return 0;
    if (found < 0) {
        char message[128] = "unknown error";
        pcre2_get_error_message(found, (PCRE2_UCHAR *)message, sizeof message);
        return pt_fail(e, PT_FAILED, "a regular expression of the tokenizer failed on the text: %s; shorten the text",
                       message);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(s->match);
    search->match = ends[0];
    search->match_end = ends[1];
    if (ends[0] > ends[1]) /* \K in a lookahead */
        return pt_fail(e, PT_FAILED, "a regular expression of the tokenizer matched backwards; correct it");
    return 1;
}

static int search_literal(const pattern *p, const char *text, size_t n, size_t at, pattern_search *search)
{
    size_t length = p->literal.n;
    const char *hit = length == 1 ? memchr(text + at, p->literal.bytes[0], n - at)
                                  : memmem(text + at, n - at, p->literal.bytes, length);
    if (!hit)
        return 0;
    search->match = (size_t)(hit - text);
    search->match_end = search->match + length;
    return 1;
}

int pattern_next(const pattern *p, pattern_scratch *s, const char *text, size_t n, pattern_search *search, pt_error *e)
{
    while (search->at <= n) {
        int found = p->code ? search_regex(p, s, text, n, search->at, search, e)
                            : search_literal(p, text, n, search->at, search);
        if (found <= 0)
            return found;
        bool empty = search->match == search->match_end;
        if (empty && search->started && search->match == search->previous_end) {
            unsigned length = 1;
            if (search->at < n)
                utf8_read(text + search->at, &length);
            search->at += length;
            continue;
        }
        search->at = search->previous_end = search->match_end;
        search->started = true;
        return 1;
    }
    return 0;
}
