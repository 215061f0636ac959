/* bpe.h - byte pair encoding: from a word to its ids.
 *
 * A word is cut into *units*: bytes in a byte-level BPE, code points otherwise. Each unit starts as the
 * id of its one-unit token; then, of all neighbours that some merge joins, the pair with the lowest rank
 * (the leftmost of equals) is joined, until none is left. Short words scan an array of ranks; long ones
 * use a linked list and a heap, O(n log n).
 *
 *   "hug"   h u g        ranks  (h,u) 7   (u,g) 2
 *           h ug                (h,ug) 5
 *           hug
 *
 * A tokenizer without a pre-tokenizer hands over whole texts as one word. They need not be merged as
 * one: if no merge has `a` as the last unit of its left side and `b` as the first of its right side, no
 * token can ever reach across a|b, and the two sides can be done apart, with the same ids. `joins` below
 * holds the pairs that can be joined. (Llama-2: nothing joins a letter and the U+2581 after it, so this
 * cuts at words. TinyStories-656K has merges like "e U+2581"; there it cuts elsewhere.)
 *
 * What can go wrong: a unit without a token. With byte_fallback its bytes become <0x..> tokens if all
 * of them exist; else it becomes the unknown token (runs of it are fused if fuse_unk) or, without one,
 * nothing - as in Hugging Face tokenizers, whose ids these are.
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
    string_table tokens;       /* as spelt in the file */
    string_table words;        /* byte-level only: the bytes that tokens stand for */
    merge_table merges;        /* value: rank << 32 | id of the result */
    uint32_t byte_unit[256];   /* byte-level: id of a byte's character, or NO_ID */
    uint32_t fallback[256];    /* id of <0x00> ... <0xFF>, or NO_ID */
    uint32_t *unit;            /* else: ids of the one-character tokens U+0000 ... U+FFFF */
    bool cuts;                 /* cutting between units that no merge joins is exact */
    uint64_t near_joins[1024]; /* one bit a pair of bytes, or of characters below 255 and U+2581 (as 255) */
    merge_table far_joins;     /* other pairs of code points */
} bpe;

typedef struct bpe_scratch { /* of one thread */
    word_cache cache;
    id_list units;
    struct bpe_symbol *symbols;
    struct bpe_merge *heap;
    size_t capacity;
} bpe_scratch;

/* Reads the `model` section. `byte_level`: words come as raw bytes, see utf8.h for their alphabet. */
int bpe_open(bpe *b, const json_t *model, bool byte_level, pt_error *e);
void bpe_close(bpe *b);

int bpe_scratch_init(bpe_scratch *s, pt_error *e);
void bpe_scratch_free(bpe_scratch *s);
void bpe_scratch_trim(bpe_scratch *s, size_t kept_bytes); /* frees what has grown past that */

/* Appends the ids of one word. Well-formed UTF-8 where not byte-level. */
int bpe_word(const bpe *b, bpe_scratch *s, const char *word, size_t n, id_list *out, pt_error *e);

/* Whether some merge could join the two characters (each 1 to 4 bytes); true where not known. */
bool bpe_may_join(const bpe *b, uint32_t left, uint32_t right);

/* bpe_open's last step: fills cuts, near_joins, far_joins from the merges (left and right ids). */
int bpe_find_joins(bpe *b, const uint32_t *pairs, size_t n_merges, pt_error *e);

/* The initial id of a code point (byte-level: of a byte), or NO_ID. */
uint32_t bpe_character_unit(const bpe *b, uint32_t c);

#endif
