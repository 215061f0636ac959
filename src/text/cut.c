/* cut.c - where a long text can be cut without changing its ids.
 *
 * Two kinds of tokenizers are understood. Those whose words come from an expression of the GPT-2 family:
 * none of its alternatives has a space after a visible character within one match, or any white space after
 * a letter or a number, and none goes on after "visible character, line end" with a letter; matching only looks
 * forward, so the words right of such a place are what they are without the text left of it, and the other way
 * round:
 *
 *     ... the| quick brown|...          ... end.\n|Next ...          1,2|\n3,4|\n
 *
 * And those without words, where any two neighbours that no merge can join can be parted (bpe.h). In both
 * the place must be out of the reach of added tokens. For any other tokenizer there is no such place. */
#include "text/tokenizer_parts.h"

#include "text/unicode.h"
#include "text/utf8.h"

enum { MIN_LOOKAHEAD = 8 };

/* ---- the rule of a tokenizer ---- */

static bool is_one_character(const char *s, size_t n, uint32_t *c)
{
    unsigned length;
    if (n == 0)
        return false;
    *c = utf8_read(s, &length);
    return length == n;
}

/* A pre-tokenizer of which at least one split is of the GPT-2 family and the others do no harm. */
static bool splits_into_words(const pretokenizer *p)
{
    bool words = false;
    for (size_t i = 0; i < p->n; i++) {
        const pre_step *step = &p->steps[i];
        if (step->kind == PRE_METASPACE || (step->kind == PRE_PREFIX_SPACE && i > 0) ||
            (step->kind == PRE_SPLIT && step->cuts == CUTS_UNKNOWN))
            return false;
        words |= step->kind == PRE_SPLIT && step->cuts == CUTS_WORDS;
    }
    return words;
}

/* Texts go to the model whole, changed only by one character put in for each space. */
static bool leaves_text_whole(const tokenizer *t, uint32_t *space)
{
    *space = ' ';
    for (size_t i = 0; i < t->normalizer.n; i++) {
        const normalizer_step *step = &t->normalizer.steps[i];
        if (step->kind == NORMALIZE_PREPEND)
            continue;
        if (step->kind != NORMALIZE_REPLACE || step->search.code || step->search.literal.n != 1 ||
            step->search.literal.bytes[0] != ' ' || *space != ' ' ||
            !is_one_character(step->content.bytes, step->content.n, space))
            return false;
    }
    if (t->pre.n == 0)
        return true;
    return t->pre.n == 1 && t->pre.steps[0].kind == PRE_METASPACE && *space == ' ' &&
           is_one_character(t->pre.steps[0].mark, t->pre.steps[0].n_mark, space);
}

static bool is_ascii(const text_buffer *text)
{
    for (size_t i = 0; i < text->n; i++)
        if ((unsigned char)text->bytes[i] >= 0x80)
            return false;
    return true;
}

void tokenizer_find_cut_rule(tokenizer *t)
{
    const normalizer *n = &t->normalizer;
    t->cut = CUT_NOWHERE;
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.tokens[i].normalized && n->n > 0 && !is_ascii(&t->added.tokens[i].content))
            return; /* its matches in raw text are not known */
    bool nfc_at_most = n->n == 0 || (n->n == 1 && n->steps[0].kind == NORMALIZE_NFC);
    if (nfc_at_most && splits_into_words(&t->pre))
        t->cut = CUT_WORDS;
    else if (!t->model.byte_level && t->model.cuts && leaves_text_whole(t, &t->space))
        t->cut = CUT_JOINS;
}

/* ---- places ---- */

/* The well-formed character that ends at text[p), if there is one. */
static bool character_before(const char *text, size_t p, uint32_t *c)
{
    unsigned length;
    for (size_t n = 1; n <= 4 && n <= p; n++)
        if (utf8_check(text + p - n, n) == n) {
            *c = utf8_read(text + p - n, &length);
            return true;
        }
    return false;
}

static bool can_cut_words(const char *text, uint32_t before, uint32_t after, size_t p)
{
    uint32_t earlier;
    if (after == ' ')
        return unicode_is_visible(before);
    if (unicode_is_space(after))
        return unicode_is_letter(before) || unicode_is_number(before);
    return before == '\n' && unicode_is_letter(after) && character_before(text, p - 1, &earlier) &&
           unicode_is_visible(earlier);
}

static bool can_cut_joins(const tokenizer *t, uint32_t before, uint32_t after)
{
    if (!unicode_is_visible(before) || (after != ' ' && !unicode_is_visible(after)))
        return false;
    if (after == ' ')
        after = t->space;
    return bpe_character_unit(&t->model, before) != NO_ID && bpe_character_unit(&t->model, after) != NO_ID &&
           !bpe_may_join(&t->model, before, after);
}

size_t tokenizer_cut(const tokenizer *t, const char *text, size_t n, size_t from)
{
    const token_set *tokens = &t->added.contents;
    size_t lookahead = tokens->longest > MIN_LOOKAHEAD ? tokens->longest : MIN_LOOKAHEAD;
    if (t->cut == CUT_NOWHERE || from > n)
        return n;
    for (size_t p = from ? from : 1; p < n && n - p >= lookahead; p++) {
        uint32_t before, after;
        unsigned length;
        if (t->cut == CUT_WORDS && text[p - 1] != '\n' && (unsigned char)text[p] > ' ' && (unsigned char)text[p] < 0x80)
            continue; /* no space, and not after a line end */
        if (!utf8_check(text + p, n - p) || !character_before(text, p, &before))
            continue;
        after = utf8_read(text + p, &length);
        if ((t->cut == CUT_WORDS ? can_cut_words(text, before, after, p) : can_cut_joins(t, before, after)) &&
            !token_set_touches(tokens, text, n, p))
            return p;
    }
    return n;
}
