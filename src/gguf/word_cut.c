/* word_cut.c - finds which of llama.cpp's built-in pre-tokenizers a tokenizer.json has. */
#include "gguf/vocabulary.h"

#include "text/section.h"

#include <string.h>

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS(letters, digits, others)                                                                                       \
    "[^\\r\\n\\p{L}\\p{N}]?" letters "|" digits "| ?" others "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(digits, ending)                                                                                                          \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" ending "|" digits               \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define PLAIN_OTHERS "[^\\s\\p{L}\\p{N}]+"

/* ByteLevel itself has GPT-2's expression. */
typedef enum digits_step { DIGITS_NO, DIGITS_EACH } digits_step;

static const struct {
    const char *name, *regex; /* NULL: ByteLevel's */
    digits_step digits;
    bool ignore_merges;       /* a word that is a token is not split and merged */
} cuts[] = {
    {"gpt-2", NULL, DIGITS_NO, false},
    {"smollm", NULL, DIGITS_EACH, false},
    {"llama-bpe", CONTRACTIONS "|" WORDS("\\p{L}+", "\\p{N}{1,3}", PLAIN_OTHERS), DIGITS_NO, true},
    {"dbrx", CONTRACTIONS "|" WORDS("\\p{L}+", "\\p{N}{1,3}", PLAIN_OTHERS), DIGITS_NO, false},
    {"qwen2", CONTRACTIONS "|" WORDS("\\p{L}+", "\\p{N}", PLAIN_OTHERS), DIGITS_NO, false},
    {"qwen35", CONTRACTIONS "|" WORDS("[\\p{L}\\p{M}]+", "\\p{N}", "[^\\s\\p{L}\\p{M}\\p{N}]+"), DIGITS_NO, false},
    {"tekken", CASED("\\p{N}", ""), DIGITS_NO, true},
    {"gpt-4o", CASED("\\p{N}{1,3}", CONTRACTIONS "?"), DIGITS_NO, false},
};

typedef struct steps {
    const char *where;
    const char *regex;
    bool own_regex, prefix_space, byte_level;
    digits_step digits;
    pt_error *e;
} steps;

static int unknown(const steps *s, const char *what)
{
    return pt_fail(s->e, PT_FAILED, "%.300s: llama.cpp has no such pre_tokenizer (%.100s) and would make other tokens: only models with a "
                                    "pre_tokenizer that it knows can be exported", s->where, what);
}

static int read_step(steps *s, const json_t *step)
{
    const char *type = json_string_value(json_object_get(step, "type"));
    if (!type || s->byte_level)
        return unknown(s, type ? type : "a step without a type");
    if (!strcmp(type, "ByteLevel")) {
        int status = section_flag(step, "pre_tokenizer", "add_prefix_space", true, &s->prefix_space, s->e);
        s->byte_level = true;
        return status ? status : section_flag(step, "pre_tokenizer", "use_regex", true, &s->own_regex, s->e);
    }
    if (!strcmp(type, "Digits") && !s->regex && s->digits == DIGITS_NO) {
        bool each = false;
        const int status = section_flag(step, "pre_tokenizer", "individual_digits", false, &each, s->e);
        s->digits = DIGITS_EACH;
        return status || each ? status : unknown(s, "Digits that stay together");
    }
    if (strcmp(type, "Split") || s->regex)
        return unknown(s, type);
    const char *behavior = json_string_value(json_object_get(step, "behavior"));
    bool invert = false;
    s->regex = json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    const int status = section_flag(step, "pre_tokenizer", "invert", false, &invert, s->e);
    const bool all_is_kept = behavior && (!strcmp(behavior, "Isolated") || (!strcmp(behavior, "Removed") && invert));
    return status || (s->regex && all_is_kept) ? status : unknown(s, "Split by a string, or with another behavior than Isolated");
}

static int read_steps(steps *s, const json_t *section)
{
    const char *type = json_string_value(json_object_get(section, "type"));
    if (!type || strcmp(type, "Sequence"))
        return read_step(s, section);
    const json_t *list = json_object_get(section, "pretokenizers");
    int status = 0;
    for (size_t i = 0; i < json_array_size(list) && !status; i++)
        status = read_step(s, json_array_get(list, i));
    return status;
}

static bool same_regex(const char *a, const char *b) { return a && b ? !strcmp(a, b) : a == b; }

int gguf_word_cut_name(const char *where, const json_t *root, const char **name, pt_error *e)
{
    steps s = {.where = where, .e = e};
    bool ignore_merges = false;
    int status = read_steps(&s, json_object_get(root, "pre_tokenizer"));
    if (!status)
        status = section_flag(json_object_get(root, "model"), "model", "ignore_merges", false, &ignore_merges, e);
    if (status)
        return status;
    if (s.prefix_space)
        return unknown(&s, "ByteLevel with add_prefix_space");
    if (s.regex && s.own_regex)
        return unknown(&s, "two expressions");
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (same_regex(cuts[i].regex, s.regex) && (s.regex || s.own_regex) && cuts[i].digits == s.digits &&
            cuts[i].ignore_merges == ignore_merges) {
            *name = cuts[i].name;
            return 0;
        }
    return unknown(&s, s.regex ? s.regex : ignore_merges ? "ignore_merges" : "no expression");
}
