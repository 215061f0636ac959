/* pretokenizer_open.c - the `pre_tokenizer` section of tokenizer.json → steps. */
#include "text/pretokenizer.h"

#include "text/buffer.h"
#include "text/section.h"
#include "text/utf8.h"

#include <stdlib.h>

/* Expressions known never to match across two places: between a visible character and the space after it, and between a line end after a
 * visible character and the letter that follows. */
#define GPT2_WORDS "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define DIGITS_WORDS(digits)                                                                                           \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"            \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char *const known_words[] = {GPT2_WORDS, DIGITS_WORDS("\\p{N}{1,3}"), DIGITS_WORDS("\\p{N}")};

#define ASCII_PUNCTUATION "!-/:-@\\[-`{-~"
#define WORD_CHARACTERS "\\w\\x{200C}\\x{200D}"

static pre_step *add_step(pretokenizer *p, pre_kind kind, pt_error *e)
{
    if (p->n == SECTION_STEPS_MOST) {
        section_too_long("pre_tokenizer", e);
        return NULL;
    }
    pre_step *steps = realloc(p->steps, (p->n + 1) * sizeof *steps);
    if (!steps) {
        pt_fail(e, PT_FAILED, "pre_tokenizer: no memory for its steps; free some memory");
        return NULL;
    }
    p->steps = steps;
    pre_step *step = &steps[p->n++];
    *step = (pre_step){.kind = kind};
    return step;
}

static int add_split(pretokenizer *p, const char *regex, split_behavior behavior, bool invert, pt_error *e)
{
    pre_step *step = add_step(p, PRE_SPLIT, e);
    if (!step)
        return PT_FAILED;
    step->behavior = behavior;
    step->invert = invert;
    return pattern_open_regex(&step->search, regex, strlen(regex), "pre_tokenizer", e);
}

static int read_behavior(const json_t *section, split_behavior absent, split_behavior *out, pt_error *e)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const json_t *value = json_object_get(section, "behavior");
    *out = absent;
    if (!value)
        return 0;
    for (int i = 0; i < 5; i++)
        if (json_is_string(value) && strcmp(json_string_value(value), names[i]) == 0) {
            *out = (split_behavior)i;
            return 0;
        }
    return pt_fail(e, PT_FAILED, "pre_tokenizer: behavior \"%.40s\" is not known (Isolated, Removed, MergedWithPrevious, "
                                 "MergedWithNext, Contiguous are); write one of them",
                   json_is_string(value) ? json_string_value(value) : "(no string)");
}

/* ---- the types ---- */

static int read_byte_level(pretokenizer *p, const json_t *section, pt_error *e)
{
    bool prefix = false, use_regex = false;
    int status = section_flag(section, "pre_tokenizer", "add_prefix_space", true, &prefix, e);
    if (!status)
        status = section_flag(section, "pre_tokenizer", "use_regex", true, &use_regex, e);
    if (!status && prefix && !add_step(p, PRE_PREFIX_SPACE, e))
        status = PT_FAILED;
    if (!status && use_regex && !(status = add_split(p, GPT2_WORDS, SPLIT_ISOLATED, false, e)))
        p->steps[p->n - 1].cuts = CUTS_WORDS;
    p->byte_level = true;
    return status;
}

static int read_split(pretokenizer *p, const json_t *section, pt_error *e)
{
    pre_step *step = add_step(p, PRE_SPLIT, e);
    if (!step)
        return PT_FAILED;
    const json_t *search = json_object_get(section, "pattern"), *regex = json_object_get(search, "Regex");
    int status = pattern_open_json(&step->search, search, "pre_tokenizer: Split", e);
    if (!status)
        status = read_behavior(section, SPLIT_ISOLATED, &step->behavior, e);
    if (!status)
        status = section_flag(section, "pre_tokenizer", "invert", false, &step->invert, e);
    bool all_in_words = step->behavior == SPLIT_ISOLATED || (step->behavior == SPLIT_REMOVED && step->invert);
    for (size_t i = 0; i < sizeof known_words / sizeof *known_words; i++)
        if (json_is_string(regex) && all_in_words && strcmp(json_string_value(regex), known_words[i]) == 0)
            step->cuts = CUTS_WORDS;
    return status;
}

static int read_metaspace(pretokenizer *p, const json_t *section, pt_error *e)
{
    pre_step *step = add_step(p, PRE_METASPACE, e);
    const json_t *scheme = json_object_get(section, "prepend_scheme");
    if (!step)
        return PT_FAILED;
    bool prefix = false, split = false;
    int status = section_mark(section, "pre_tokenizer", step->mark, &step->n_mark, e);
    if (!status)
        status = section_flag(section, "pre_tokenizer", "add_prefix_space", true, &prefix, e);
    if (!status)
        status = section_flag(section, "pre_tokenizer", "split", true, &split, e);
    if (status)
        return status;
    step->prepend = prefix ? PREPEND_ALWAYS : PREPEND_NEVER;
    if (scheme) {
        const char *name = json_is_string(scheme) ? json_string_value(scheme) : "(no string)";
        if (strcmp(name, "always") == 0)
            step->prepend = PREPEND_ALWAYS;
        else if (strcmp(name, "first") == 0)
            step->prepend = PREPEND_FIRST;
        else if (strcmp(name, "never") == 0)
            step->prepend = PREPEND_NEVER;
        else
            return pt_fail(e, PT_FAILED, "pre_tokenizer: Metaspace: prepend_scheme \"%.40s\" is not known (always, "
                                         "first, never are); write one of them",
                           name);
    }
    if (!split)
        return 0;
    char text[sizeof step->mark];
    const size_t length = step->n_mark;
    memcpy(text, step->mark, length); /* copied because add_step() may move the steps */
    pre_step *cut = add_step(p, PRE_SPLIT, e);
    if (!cut)
        return PT_FAILED;
    cut->behavior = SPLIT_WITH_NEXT;
    return pattern_open_literal(&cut->search, text, length, e);
}

static int read_digits(pretokenizer *p, const json_t *section, pt_error *e)
{
    bool individual = false;
    int status = section_flag(section, "pre_tokenizer", "individual_digits", false, &individual, e);
    if (!status)
        status = add_split(p, "\\p{N}", individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, false, e);
    if (!status)
        p->steps[p->n - 1].cuts = CUTS_NUMBERS;
    return status;
}

static int read_punctuation(pretokenizer *p, const json_t *section, pt_error *e)
{
    split_behavior behavior;
    int status = read_behavior(section, SPLIT_ISOLATED, &behavior, e);
    return status ? status : add_split(p, "[" ASCII_PUNCTUATION "\\p{P}]", behavior, false, e);
}

static int read_whitespace(pretokenizer *p, const json_t *section, pt_error *e)
{
    (void)section;
    return add_split(p, "[" WORD_CHARACTERS "]+|[^" WORD_CHARACTERS "\\s]+", SPLIT_REMOVED, true, e);
}

static int read_whitespace_split(pretokenizer *p, const json_t *section, pt_error *e)
{
    (void)section;
    return add_split(p, "\\s", SPLIT_REMOVED, false, e);
}

static int read_section(pretokenizer *p, const json_t *section, pt_error *e);

static int read_sequence(pretokenizer *p, const json_t *section, pt_error *e)
{
    const json_t *list = json_object_get(section, "pretokenizers");
    if (!json_is_array(list))
        return pt_fail(e, PT_FAILED, "pre_tokenizer: a Sequence without the array \"pretokenizers\"; write it");
    for (size_t i = 0; i < json_array_size(list); i++) {
        int status = read_section(p, json_array_get(list, i), e);
        if (status)
            return status;
    }
    return 0;
}

static int read_section(pretokenizer *p, const json_t *section, pt_error *e)
{
    static const struct {
        const char *name;
        int (*read)(pretokenizer *p, const json_t *section, pt_error *e);
    } types[] = {{"ByteLevel", read_byte_level}, {"Split", read_split}, {"Metaspace", read_metaspace},
                 {"Digits", read_digits}, {"Punctuation", read_punctuation}, {"Whitespace", read_whitespace},
                 {"WhitespaceSplit", read_whitespace_split}, {"Sequence", read_sequence}};
    const json_t *type = json_object_get(section, "type");
    if (!json_is_string(type))
        return pt_fail(e, PT_FAILED, "pre_tokenizer: a step without a type; correct the file");
    if (p->byte_level)
        return pt_fail(e, PT_FAILED, "pre_tokenizer: %.40s after ByteLevel is not supported; put ByteLevel last",
                       json_string_value(type));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(json_string_value(type), types[i].name) == 0)
            return types[i].read(p, section, e);
    return pt_fail(e, PT_FAILED, "pre_tokenizer: type \"%.60s\" is not supported (ByteLevel, Split, Metaspace, Digits, "
                                 "Punctuation, Whitespace, WhitespaceSplit and Sequence are); use a tokenizer without it",
                   json_string_value(type));
}

int pretokenizer_open(pretokenizer *p, const json_t *section, pt_error *e)
{
    *p = (pretokenizer){0};
    return !section || json_is_null(section) ? 0 : read_section(p, section, e);
}

void pretokenizer_close(pretokenizer *p)
{
    for (size_t i = 0; i < p->n; i++)
        pattern_close(&p->steps[i].search);
    free(p->steps);
    *p = (pretokenizer){0};
}
