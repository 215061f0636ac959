/* bpe_joins.c - which neighbouring units a merge can join (see bpe.h). */
#include "text/bpe.h"

#include "text/utf8.h"

enum { WORD_START = 0x2581 };

uint32_t bpe_character_unit(const bpe *b, uint32_t c)
{
    if (b->byte_level)
        return c < 256 ? b->byte_unit[c] : NO_ID;
    if (c < 0x10000)
        return b->unit[c];
    char text[4];
    return string_table_find(&b->tokens, text, utf8_write(c, text));
}

/* Row or column of a unit in near_joins, or -1. */
static int near_code(const bpe *b, uint32_t unit)
{
    if (b->byte_level || unit < 255)
        return (int)unit;
    return unit == WORD_START ? 255 : -1;
}

/* The first or last unit of a token as a byte (byte-level) or a code point; -1: none. */
static int64_t edge_unit(const bpe *b, uint32_t id, bool last)
{
    size_t n, at = 0;
    const char *s = string_table_get(b->byte_level ? &b->words : &b->tokens, id, &n);
    if (!s || n == 0)
        return -1;
    if (b->byte_level)
        return (unsigned char)s[last ? n - 1 : 0];
    if (last)
        for (at = n - 1; at > 0 && ((unsigned char)s[at] & 0xc0) == 0x80;)
            at--;
    unsigned length;
    return utf8_read(s + at, &length);
}

/* Whether the id can replace a unit without being its token: then its string does not tell which units it joins. */
static bool is_stand_in(const bpe *b, uint32_t id)
{
    size_t n;
    if (id == b->unk)
        return true;
    if (!b->byte_fallback || !string_table_get(&b->tokens, id, &n) || n != 6 /* <0x..> */)
        return false;
    for (int byte = 0; byte < 256; byte++)
        if (b->fallback[byte] == id)
            return true;
    return false;
}

/* Whether a unit can vanish: its neighbours would then become adjacent. */
static bool units_can_vanish(const bpe *b)
{
    bool all_bytes = true, all_fallbacks = b->byte_fallback;
    for (int byte = 0; byte < 256; byte++) {
        all_bytes &= b->byte_level && b->byte_unit[byte] != NO_ID;
        all_fallbacks &= b->fallback[byte] != NO_ID;
    }
    return b->unk == NO_ID && !all_bytes && !all_fallbacks;
}

int bpe_find_joins(bpe *b, const uint32_t *pairs, size_t n_merges, pt_error *e)
{
    int status = merge_table_init(&b->far_joins, b->byte_level ? 0 : n_merges, e);
    b->cuts = !units_can_vanish(b);
    for (size_t i = 0; i < n_merges && !status; i++) {
        uint32_t left_id = pairs[2 * i], right_id = pairs[2 * i + 1];
        if (is_stand_in(b, left_id) || is_stand_in(b, right_id))
            b->cuts = false;
        int64_t left = edge_unit(b, left_id, true), right = edge_unit(b, right_id, false);
        if (left < 0 || right < 0)
            continue; /* outside the alphabet: cannot result from units */
        int row = near_code(b, (uint32_t)left), column = near_code(b, (uint32_t)right);
        if (row >= 0 && column >= 0)
            b->near_joins[row * 4 + column / 64] |= 1ull << (column % 64);
        else
            merge_table_put(&b->far_joins, (uint32_t)left, (uint32_t)right, 0);
    }
    return status;
}

bool bpe_may_join(const bpe *b, uint32_t left, uint32_t right)
{
    int row = near_code(b, left), column = near_code(b, right);
    if (!b->cuts)
        return true;
    if (row >= 0 && column >= 0)
        return b->near_joins[row * 4 + column / 64] >> (column % 64) & 1;
    return merge_table_find(&b->far_joins, left, right) != NO_MERGE;
}
