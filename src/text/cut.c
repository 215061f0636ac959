/* cut.c - finds where a long text can be split without changing its ids.
 *
 * Two kinds of tokenizers have such places. First, those whose words come from a regular expression of the GPT-2 family. No match of such
 * an expression contains a space after a visible character, white space after a letter or number, or a letter after "visible character,
 * line end". Matching only looks forward, so the words on either side of such a place do not depend on the text on the other side:
 *
 *     ... the| quick brown|...          ... end.\n|Next ...          1,2|\n3,4|\n
 *
 * Second, those without a pre-tokenizer: they can be split between neighbours that no merge can join (bpe.h). In both, no added token may
 * touch the place. For other tokenizers there is no such place. */
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

/* At least one split of the pre-tokenizer is of the GPT-2 family, and the others cannot join words across a cut. */
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

/* The text reaches the model as one word, with each space at most replaced by another character. */
static bool leaves_text_whole(const tokenizer *tok, uint32_t *space)
{
    *space = ' ';
    for (size_t i = 0; i < tok->normalizer.n; i++) {
        const normalizer_step *step = &tok->normalizer.steps[i];
        if (step->kind == NORMALIZE_PREPEND)
            continue;
        if (step->kind != NORMALIZE_REPLACE || step->search.code || step->search.literal.n != 1 ||
            step->search.literal.bytes[0] != ' ' || *space != ' ' ||
            !is_one_character(step->content.bytes, step->content.n, space))
            return false;
    }
    if (tok->pre.n == 0)
        return true;
    return tok->pre.n == 1 && tok->pre.steps[0].kind == PRE_METASPACE && *space == ' ' &&
           is_one_character(tok->pre.steps[0].mark, tok->pre.steps[0].n_mark, space);
}

static bool is_ascii(const text_buffer *text)
{
    for (size_t i = 0; i < text->n; i++)
        if ((unsigned char)text->bytes[i] >= 0x80)
            return false;
    return true;
}

void tokenizer_find_cut_rule(tokenizer *tok)
{
    const normalizer *n = &tok->normalizer;
    tok->cut = CUT_NOWHERE;
    for (size_t i = 0; i < tok->added.n; i++)
        if (tok->added.tokens[i].normalized && n->n > 0 && !is_ascii(&tok->added.tokens[i].content))
            return; /* where it matches in raw text is unknown */
    bool nfc_at_most = n->n == 0 || (n->n == 1 && n->steps[0].kind == NORMALIZE_NFC);
    if (nfc_at_most && splits_into_words(&tok->pre))
        tok->cut = CUT_WORDS;
    else if (!tok->model.byte_level && tok->model.cuts && leaves_text_whole(tok, &tok->space))
        tok->cut = CUT_JOINS;
}

/* ---- places ---- */

/* The well-formed character that ends before text[p]; false if there is none. */
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

static bool can_cut_joins(const tokenizer *tok, uint32_t before, uint32_t after)
{
    if (!unicode_is_visible(before) || (after != ' ' && !unicode_is_visible(after)))
        return false;
    if (after == ' ')
        after = tok->space;
    return bpe_character_unit(&tok->model, before) != NO_ID && bpe_character_unit(&tok->model, after) != NO_ID &&
           !bpe_may_join(&tok->model, before, after);
}

size_t tokenizer_cut(const tokenizer *tok, const char *text, size_t n, size_t from)
{
    const token_set *tokens = &tok->added.contents;
    size_t lookahead = tokens->longest > MIN_LOOKAHEAD ? tokens->longest : MIN_LOOKAHEAD;
    if (tok->cut == CUT_NOWHERE || from > n)
        return n;
    for (size_t p = from ? from : 1; p < n && n - p >= lookahead; p++) {
        uint32_t before, after;
        unsigned length;
        if (tok->cut == CUT_WORDS && text[p - 1] != '\n' && (unsigned char)text[p] > ' ' && (unsigned char)text[p] < 0x80)
            continue; /* neither a space nor after a line end */
        if (!utf8_check(text + p, n - p) || !character_before(text, p, &before))
            continue;
        after = utf8_read(text + p, &length);
        if ((tok->cut == CUT_WORDS ? can_cut_words(text, before, after, p) : can_cut_joins(tok, before, after)) &&
            !token_set_touches(tokens, text, n, p))
            return p;
    }
    return n;
}
