#include "text/bpe.h"

#include "text/buffer.h"
#include "text/utf8.h"

#include <stdlib.h>

enum { SHORT_WORD = 48 /* units; up to here a scan is faster than a heap */ };
enum { WHOLE_WORD = 0, PART_OF_WORD = 1 /* kinds of cache entries */ };

typedef struct bpe_symbol {
    uint32_t id; /* NO_ID: joined to its left neighbour */
    uint32_t previous, next;
} bpe_symbol;

typedef struct bpe_merge {
    uint64_t order; /* rank << 32 | position: the least is next */
    uint32_t id;
} bpe_merge;

int bpe_scratch_init(bpe_scratch *s, pt_error *e)
{
    memset(s, 0, sizeof *s);
    return word_cache_init(&s->cache, e);
}

static void free_symbols(bpe_scratch *s)
{
    free(s->symbols);
    free(s->heap);
    s->symbols = NULL;
    s->heap = NULL;
    s->capacity = 0;
}

void bpe_scratch_trim(bpe_scratch *s, size_t kept_bytes)
{
    if (s->units.capacity * sizeof *s->units.ids > kept_bytes)
        id_list_free(&s->units);
    if (s->capacity * sizeof *s->symbols > kept_bytes)
        free_symbols(s);
}

void bpe_scratch_free(bpe_scratch *s)
{
    word_cache_free(&s->cache);
    id_list_free(&s->units);
    free_symbols(s);
    memset(s, 0, sizeof *s);
}

/* ---- from text to units ---- */

/* The <0x..> tokens of a unit that has no token; returns their number, 0 if one is missing. */
static unsigned fall_back(const bpe *b, const char *s, unsigned n, uint32_t *ids)
{
    for (unsigned i = 0; i < n; i++) {
        ids[i] = b->fallback[(unsigned char)s[i]];
        if (ids[i] == NO_ID)
            return 0;
    }
    return n;
}

/* Fills ids with the initial ids of a word, at most 2 per byte; returns their number. */
static size_t first_units(const bpe *b, const char *word, size_t n, uint32_t *ids)
{
    size_t count = 0;
    bool unknown = false; /* an unknown token is pending, so that a run of them can be fused */
    for (size_t i = 0; i < n;) {
        unsigned length = 1;
        uint32_t c = b->byte_level ? (unsigned char)word[i] : utf8_read(word + i, &length);
        uint32_t id = bpe_character_unit(b, c);
        if (id != NO_ID) {
            if (unknown)
                ids[count++] = b->unk;
            unknown = false;
            ids[count++] = id;
        } else {
            char spelling[4];
            const char *s = b->byte_level ? spelling : word + i;
            unsigned n_bytes = b->byte_level ? utf8_write(byte_to_character((unsigned char)c), spelling) : length;
            unsigned n_ids = b->byte_fallback ? fall_back(b, s, n_bytes, ids + count) : 0;
            count += n_ids;
            if (n_ids == 0 && b->unk != NO_ID) {
                if (unknown && !b->fuse_unk)
                    ids[count++] = b->unk;
                unknown = true;
            }
        }
        i += length;
    }
    if (unknown)
        ids[count++] = b->unk;
    return count;
}

/* ---- merging ---- */

static size_t merge_short(const bpe *b, uint32_t *ids, size_t n)
{
    uint64_t merges[SHORT_WORD]; /* of ids[i] and ids[i + 1]; the rank is in the upper half, so the least is next */
    for (size_t i = 0; i + 1 < n; i++)
        merges[i] = merge_table_find(&b->merges, ids[i], ids[i + 1]);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (merges[i] < merges[best])
                best = i;
        if (merges[best] == NO_MERGE)
            break;
        ids[best] = (uint32_t)merges[best];
        n--;
        memmove(ids + best + 1, ids + best + 2, (n - best - 1) * sizeof *ids);
        if (best + 1 < n) {
            memmove(merges + best + 1, merges + best + 2, (n - best - 2) * sizeof *merges);
            merges[best] = merge_table_find(&b->merges, ids[best], ids[best + 1]);
        }
        if (best > 0)
            merges[best - 1] = merge_table_find(&b->merges, ids[best - 1], ids[best]);
    }
    return n;
}

static void heap_sink(bpe_merge *heap, size_t n, size_t i)
{
    bpe_merge moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1].order < heap[child].order)
            child++;
        if (moving.order <= heap[child].order)
            break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static void heap_add(bpe_merge *heap, size_t *n, bpe_merge item)
{
    size_t i = (*n)++;
    for (; i > 0 && item.order < heap[(i - 1) / 2].order; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = item;
}

/* The merge of the symbol at `position` with the next one; false if there is none. */
static bool find_merge(const bpe *b, const bpe_symbol *symbols, uint32_t position, bpe_merge *out)
{
    uint32_t next = symbols[position].next;
    uint64_t merge = next == NO_ID ? NO_MERGE : merge_table_find(&b->merges, symbols[position].id, symbols[next].id);
    *out = (bpe_merge){(merge >> 32) << 32 | position, (uint32_t)merge};
    return merge != NO_MERGE;
}

static int reserve_symbols(bpe_scratch *s, size_t n, pt_error *e)
{
    if (n <= s->capacity)
        return 0;
    if (n >= NO_ID / 2)
        return pt_fail(e, PT_FAILED, "a word of %zu units is too long to be merged; split the text", n);
    free_symbols(s);
    s->symbols = malloc(n * sizeof *s->symbols);
    s->heap = malloc(2 * n * sizeof *s->heap); /* each merge removes one entry and adds at most two */
    if (!s->symbols || !s->heap)
        return pt_fail(e, PT_FAILED, "no memory to merge a word of %zu units; split the text", n);
    s->capacity = n;
    return 0;
}

static int merge_long(const bpe *b, bpe_scratch *s, uint32_t *ids, size_t *n_ids, pt_error *e)
{
    size_t n = *n_ids, n_heap = 0;
    int status = reserve_symbols(s, n, e);
    if (status)
        return status;
    bpe_symbol *symbols = s->symbols;
    bpe_merge merge;
    for (size_t i = 0; i < n; i++)
        symbols[i] = (bpe_symbol){ids[i], i ? (uint32_t)i - 1 : NO_ID, i + 1 < n ? (uint32_t)i + 1 : NO_ID};
    for (size_t i = 0; i < n; i++)
        if (find_merge(b, symbols, (uint32_t)i, &merge))
            s->heap[n_heap++] = merge;
    for (size_t i = n_heap / 2; i-- > 0;)
        heap_sink(s->heap, n_heap, i);
    while (n_heap > 0) {
        bpe_merge top = s->heap[0];
        s->heap[0] = s->heap[--n_heap];
        if (n_heap > 0)
            heap_sink(s->heap, n_heap, 0);
        uint32_t position = (uint32_t)top.order;
        bpe_symbol *left = &symbols[position];
        if (left->id == NO_ID || !find_merge(b, symbols, position, &merge) || merge.id != top.id)
            continue; /* a neighbour has changed since */
        bpe_symbol *right = &symbols[left->next];
        left->id = top.id;
        right->id = NO_ID;
        left->next = right->next;
        if (left->next != NO_ID)
            symbols[left->next].previous = position;
        if (left->previous != NO_ID && find_merge(b, symbols, left->previous, &merge))
            heap_add(s->heap, &n_heap, merge);
        if (find_merge(b, symbols, position, &merge))
            heap_add(s->heap, &n_heap, merge);
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (symbols[i].id != NO_ID)
            ids[kept++] = symbols[i].id;
    *n_ids = kept;
    return 0;
}

static int merge_units(const bpe *b, bpe_scratch *s, const char *word, size_t n, id_list *out, pt_error *e)
{
    id_list *units = &s->units;
    units->n = 0;
    int status = id_list_reserve(units, 2 * n, e);
    if (status)
        return status;
    size_t count = first_units(b, word, n, units->ids);
    if (count <= SHORT_WORD)
        count = merge_short(b, units->ids, count);
    else if ((status = merge_long(b, s, units->ids, &count, e)))
        return status;
    if (count == 0 || (status = id_list_reserve(out, count, e)))
        return status;
    memcpy(out->ids + out->n, units->ids, count * sizeof *units->ids);
    out->n += count;
    return 0;
}

/* ---- words ---- */

static int look_up_or_merge(const bpe *b, bpe_scratch *s, const char *word, size_t n, int kind, id_list *out,
                            pt_error *e);

/* Splits a long word where no merge can cross, and merges the parts one by one. */
static int merge_parts(const bpe *b, bpe_scratch *s, const char *word, size_t n, id_list *out, pt_error *e)
{
    size_t start = 0;
    uint32_t before = 0;
    bool known_before = false;
    for (size_t i = 0; i < n;) {
        unsigned length = 1;
        uint32_t c = b->byte_level ? (unsigned char)word[i] : utf8_read(word + i, &length);
        bool known = bpe_character_unit(b, c) != NO_ID;
        if (i > 0 && (known != known_before || (known && !bpe_may_join(b, before, c)))) {
            int status = look_up_or_merge(b, s, word + start, i - start, PART_OF_WORD, out, e);
            if (status)
                return status;
            start = i;
        }
        before = c;
        known_before = known;
        i += length;
    }
    return look_up_or_merge(b, s, word + start, n - start, PART_OF_WORD, out, e);
}

static int find_ids(const bpe *b, bpe_scratch *s, const char *word, size_t n, int kind, id_list *out, pt_error *e)
{
    if (b->ignore_merges && kind == WHOLE_WORD) {
        const string_table *table = b->byte_level ? &b->words : &b->tokens;
        uint32_t id = n <= table->longest ? string_table_find(table, word, n) : NO_ID;
        if (id != NO_ID)
            return id_list_push(out, id, e);
    }
    if (kind == WHOLE_WORD && b->cuts && n > WORD_CACHE_BYTES)
        return merge_parts(b, s, word, n, out, e);
    return merge_units(b, s, word, n, out, e);
}

static int look_up_or_merge(const bpe *b, bpe_scratch *s, const char *word, size_t n, int kind, id_list *out,
                            pt_error *e)
{
    if (n > WORD_CACHE_BYTES)
        return find_ids(b, s, word, n, kind, out, e);
    word_key key = word_cache_key(word, n, b->ignore_merges ? (uint16_t)kind : 0);
    const word_entry *entry = word_cache_find(&s->cache, &key);
    if (!entry) {
        size_t from = out->n;
        int status = find_ids(b, s, word, n, kind, out, e);
        if (!status && out->n > from)
            word_cache_put(&s->cache, &key, out->ids + from, out->n - from);
        return status;
    }
    if (out->capacity - out->n < WORD_CACHE_IDS) {
        int status = id_list_reserve(out, WORD_CACHE_IDS, e);
        if (status)
            return status;
    }
    for (unsigned i = 0; i < entry->n_ids; i++)
        out->ids[out->n + i] = entry->ids[i];
    out->n += entry->n_ids;
    return 0;
}

int bpe_word(const bpe *b, bpe_scratch *s, const char *word, size_t n, id_list *out, pt_error *e)
{
    return n == 0 ? 0 : look_up_or_merge(b, s, word, n, WHOLE_WORD, out, e);
}
