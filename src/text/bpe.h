/* bpe.h - byte pair encoding: from a word to its ids.
 *
 * A word is split into *units*: bytes in a byte-level BPE, code points otherwise. Each unit starts as the id of its one-unit token. Then
 * the neighbouring pair whose merge has the lowest rank (the leftmost of equals) is merged, until no pair has a merge. Short words scan an
 * array of ranks; long ones use a linked list and a heap, O(n log n).
 *
 *   "hug"   h u g        ranks  (h,u) 7   (u,g) 2
 *           h ug                (h,ug) 5
 *           hug
 *
 * A tokenizer without a pre-tokenizer passes a whole text as one word. If no merge has `a` as the last unit of its left side and `b` as the
 * first unit of its right side, no token can cross a|b, and both sides can be merged separately with the same ids. near_joins and far_joins
 * hold the pairs that some merge can join. (In Llama-2 no merge joins a letter with a following U+2581, so texts are split at words.
 * TinyStories-656K has merges like "e U+2581", and is split elsewhere.)
 *
 * A unit without a token: with byte_fallback its bytes become <0x..> tokens if all of them exist; otherwise it becomes the unknown token
 * (runs are fused if fuse_unk) or, if there is none, nothing. Hugging Face tokenizers do the same, and give the same ids.
 */
#ifndef PT_BPE_H
#define PT_BPE_H

#include "text/merge_table.h"
#include "text/string_table.h"
#include "text/word_cache.h"

#include <jansson.h>

typedef struct bpe {
    bool byte_level, ignore_merges, byte_fallback, fuse_unk;
    uint32_t unk;              /* or NO_ID */
    string_table tokens;       /* as spelled in the file */
    string_table words;        /* byte-level only: the bytes of each token */
    merge_table merges;        /* value: rank << 32 | id of the result */
    uint32_t byte_unit[256];   /* byte-level: id of each byte's one-unit token, or NO_ID */
    uint32_t fallback[256];    /* id of <0x00> ... <0xFF>, or NO_ID */
    uint32_t *unit;            /* otherwise: ids of the one-character tokens U+0000 ... U+FFFF */
    bool cuts;                 /* splitting between units that no merge joins keeps the ids */
    uint64_t near_joins[1024]; /* a bit per pair of bytes, or of characters below 255 and U+2581 (as 255) */
    merge_table far_joins;     /* other pairs of code points */
} bpe;

typedef struct bpe_scratch { /* of one thread */
    word_cache cache;
    id_list units;
    struct bpe_symbol *symbols;
    struct bpe_merge *heap;
    size_t capacity;
} bpe_scratch;

/* Reads the `model` section. `byte_level`: words are raw bytes; utf8.h has their alphabet. */
int bpe_open(bpe *b, const json_t *model, bool byte_level, pt_error *e);
void bpe_close(bpe *b);

int bpe_scratch_init(bpe_scratch *s, pt_error *e);
void bpe_scratch_free(bpe_scratch *s);
void bpe_scratch_trim(bpe_scratch *s, size_t kept_bytes); /* frees buffers that exceed that */

/* Appends the ids of one word: raw bytes if byte-level, else well-formed UTF-8. */
int bpe_word(const bpe *b, bpe_scratch *s, const char *word, size_t n, id_list *out, pt_error *e);

/* Whether some merge could join the two code points; true if unknown. */
bool bpe_may_join(const bpe *b, uint32_t left, uint32_t right);

/* bpe_open's last step: fills cuts, near_joins, far_joins from the merges (left and right ids). */
int bpe_find_joins(bpe *b, const uint32_t *pairs, size_t n_merges, pt_error *e);

/* The initial id of a code point (byte-level: of a byte), or NO_ID. */
uint32_t bpe_character_unit(const bpe *b, uint32_t c);

#endif
