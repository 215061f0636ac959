#include "data/unknown.h"

#include <string.h>

static bool is_inside(const unknown_search *s, size_t at) { return at < s->bytes && (s->text[at] & 0xc0) == 0x80; }

/* Rounds `at` down to the start of a character. */
static size_t down(const unknown_search *s, size_t at)
{
    while (at && is_inside(s, at))
        at--;
    return at;
}

static size_t up(const unknown_search *s, size_t at)
{
    while (is_inside(s, at))
        at++;
    return at;
}

/* Whether the ids of the first n bytes contain the unknown token. */
static bool has_unknown(const unknown_search *s, size_t n, id_list *ids)
{
    const int64_t unknown = tokenizer_unknown(s->tokenizer);
    pt_error ignored;
    bool has = false;
    ids->n = 0;
    if (encoder_run(s->encoder, s->text, n, s->flags, ids, &ignored))
        return false;
    for (size_t i = 0; i < ids->n && !has; i++)
        has = ids->ids[i] == unknown;
    return has;
}

/* The end of the first character that has no token. */
static size_t find_end(const unknown_search *s)
{
    enum { FIRST = 64 };
    id_list ids = {0};
    size_t no = 0, yes = up(s, s->bytes < FIRST ? s->bytes : FIRST);
    while (yes < s->bytes && !has_unknown(s, yes, &ids)) {
        no = yes;
        yes = up(s, 2 * yes < s->bytes ? 2 * yes : s->bytes);
    }
    for (size_t half; up(s, no + 1) < yes;) {
        half = down(s, no + (yes - no) / 2);
        half = half > no ? half : up(s, no + 1);
        *(has_unknown(s, half, &ids) ? &yes : &no) = half;
    }
    id_list_free(&ids);
    return yes;
}

static bool is_blank(char c) { return (unsigned char)c <= ' '; }

/* Copies the word around the character, as much as fits, without control characters. */
static void take_word(const unknown_search *s, size_t end, char out[UNKNOWN_TEXT])
{
    enum { AROUND = (UNKNOWN_TEXT - 8) / 2 };
    const size_t at = down(s, end - 1);
    size_t first = at, behind = end, n = 0;
    while (first && at - first < AROUND && !is_blank(s->text[first - 1]))
        first--;
    first = up(s, first);
    while (behind < s->bytes && behind - end < AROUND && !is_blank(s->text[behind]))
        behind++;
    behind = down(s, behind);
    for (size_t i = first; i < behind && n + 1 < UNKNOWN_TEXT; i++) {
        const unsigned char c = (unsigned char)s->text[i];
        const bool control = c < ' ' || c == 0x7f || (c == 0xc2 && i + 1 < behind && (unsigned char)s->text[i + 1] < 0xa0);
        out[n++] = control ? '?' : s->text[i];
        i += control && c == 0xc2;
    }
    out[n] = 0;
}

void unknown_count(const unknown_search *s, const uint32_t *ids, size_t n, bool look, unknown_tally *tally)
{
    const int64_t unknown = tokenizer_unknown(s->tokenizer);
    uint64_t found = 0;
    for (size_t i = 0; unknown >= 0 && i < n; i++)
        found += ids[i] == unknown;
    if (look && found && !tally->unknown && s->bytes) {
        take_word(s, find_end(s), tally->text);
        tally->file = s->file;
        tally->line = s->line;
    }
    tally->ids += n;
    tally->unknown += found;
}

void unknown_add(unknown_tally *all, const unknown_tally *more)
{
    if (!all->unknown && more->unknown) {
        all->file = more->file;
        all->line = more->line;
        memcpy(all->text, more->text, sizeof all->text);
    }
    all->ids += more->ids;
    all->unknown += more->unknown;
}

bool unknown_matters(const unknown_tally *tally)
{
    enum { OF = 1000 };
    return tally->unknown && tally->unknown >= tally->ids / OF;
}
