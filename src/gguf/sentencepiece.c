/* sentencepiece.c - vocabularies in which U+2581 stands for a space.
 *
 * tokenizer.json lists the pairs that merge, in order of rank. SentencePiece merges any two neighbours that together are a token, the
 * highest score first. Both give the same ids if every split of a token into two tokens is a merge, and the merges that make one token have
 * consecutive ranks. Tokenizers converted from SentencePiece are like that. A token's score is then the negated rank of its first merge. */
#include "gguf/vocabulary_parts.h"

#include "text/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char space_mark[] = "\xe2\x96\x81";

void vocabulary_tell(const vocabulary *v, const char *fmt, ...)
{
    char sentence[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (v->notice)
        v->notice(v->arg, sentence);
}

int vocabulary_refuse(const vocabulary *v, const char *what, pt_error *e)
{
    return pt_fail(e, PT_FAILED, "%.300s/tokenizer.json: %s, which llama.cpp does not know", v->folder, what);
}

static bool is_mark(const char *bytes, size_t n) { return n == MARK_BYTES && !memcmp(bytes, space_mark, MARK_BYTES); }

/* Reads whether U+2581 replaces spaces, and whether one is prepended. */
static int read_spaces(const vocabulary *v, bool *replaced, bool *prefixed, bool *splits, pt_error *e)
{
    const normalizer *n = &v->tokenizer->normalizer;
    const pretokenizer *p = &v->tokenizer->pre;
    *replaced = *prefixed = *splits = false;
    for (size_t i = 0; i < n->n; i++) {
        const normalizer_step *s = &n->steps[i];
        const bool of_space = s->kind == NORMALIZE_REPLACE && !s->search.code && s->search.literal.n == 1 &&
                              s->search.literal.bytes[0] == ' ';
        if (!is_mark(s->content.bytes, s->content.n) || !(of_space || s->kind == NORMALIZE_PREPEND))
            return vocabulary_refuse(v, "a normalizer that does more than replace spaces by U+2581", e);
        *(of_space ? replaced : prefixed) = true;
    }
    for (size_t i = 0; i < p->n; i++) {
        const pre_step *s = &p->steps[i];
        const bool at_space = s->kind == PRE_SPLIT && !s->search.code && s->search.literal.n == 1 && s->search.literal.bytes[0] == ' ';
        if (s->kind == PRE_METASPACE && is_mark(s->mark, s->n_mark)) {
            *replaced = true;
            *prefixed |= s->prepend != PREPEND_NEVER;
            if (s->prepend == PREPEND_FIRST)
                vocabulary_tell(v, "llama.cpp also adds a space after special tokens; this tokenizer adds one only at the beginning of a "
                                   "text");
        } else if (s->kind == PRE_SPLIT && !s->search.code && is_mark(s->search.literal.bytes, s->search.literal.n))
            *splits = true;
        else if (!at_space || !*replaced) /* without spaces it does nothing */
            return vocabulary_refuse(v, "a pre_tokenizer beside U+2581 for spaces", e);
    }
    return *replaced ? 0 : vocabulary_refuse(v, "neither byte-level BPE nor SentencePiece's U+2581 for spaces", e);
}

typedef struct joins {
    uint32_t *first;       /* per token, the rank of the first merge that makes it; NO_ID: none */
    uint64_t merges, other; /* other: pairs that only SentencePiece merges, or in another order */
} joins;

static bool is_added(const tokenizer *tok, uint32_t id)
{
    size_t n;
    return string_table_get(&tok->added.names, id, &n) != NULL;
}

/* Counts splits of tokens into two tokens that are not merges: SentencePiece would merge those pairs. */
static void count_other_pairs(const tokenizer *tok, joins *j)
{
    for (uint32_t id = 0; id < tok->model.tokens.n_ids; id++) {
        size_t n;
        const char *text = string_table_get(&tok->model.tokens, id, &n);
        unsigned length;
        for (size_t at = 0; text && !is_added(tok, id) && at < n; at += length) {
            utf8_read(text + at, &length);
            const uint32_t a = string_table_find(&tok->model.tokens, text, at + length),
                           b = string_table_find(&tok->model.tokens, text + at + length, n - at - length);
            if (at + length < n && a != NO_ID && b != NO_ID && merge_table_find(&tok->model.merges, a, b) == NO_MERGE)
                j->other++;
        }
    }
}

static int read_joins(const tokenizer *tok, joins *j, pt_error *e)
{
    const merge_table *m = &tok->model.merges;
    const uint32_t ids = tok->model.tokens.n_ids;
    for (size_t i = 0; i <= m->mask; i++)
        if (m->entries[i].value != NO_MERGE && m->entries[i].value >> 32 >= j->merges)
            j->merges = (m->entries[i].value >> 32) + 1;
    uint32_t *made = malloc((j->merges + 1) * sizeof *made); /* the token that each merge makes */
    j->first = malloc((ids + 1) * sizeof *j->first);
    if (!made || !j->first) {
        free(made);
        return pt_fail(e, PT_FAILED, "no memory for %llu merges", (unsigned long long)j->merges);
    }
    memset(made, 0xff, (j->merges + 1) * sizeof *made);
    memset(j->first, 0xff, (ids + 1) * sizeof *j->first);
    for (size_t i = 0; i <= m->mask; i++)
        if (m->entries[i].value != NO_MERGE)
            made[m->entries[i].value >> 32] = (uint32_t)m->entries[i].value;
    uint32_t before = NO_ID;
    for (uint64_t rank = 0; rank < j->merges; rank++) {
        const uint32_t id = made[rank];
        if (id == NO_ID)
            continue;
        if (j->first[id] == NO_ID)
            j->first[id] = (uint32_t)rank;
        else
            j->other += id != before;
        before = id;
    }
    free(made);
    count_other_pairs(tok, j);
    return 0;
}

static int check_marks(const vocabulary *v, pt_error *e)
{
    const string_table *tokens = &v->tokenizer->model.tokens;
    for (uint32_t id = 0; id < tokens->n_ids; id++) {
        size_t n;
        const char *text = string_table_get(tokens, id, &n);
        if (text && n > MARK_BYTES && !is_added(v->tokenizer, id) && memmem(text + 1, n - 1, space_mark, MARK_BYTES))
            return vocabulary_refuse(v, "a split at each space, although tokens contain spaces", e);
    }
    return 0;
}

static int put_scores(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    joins j = {0};
    const int status = read_joins(v->tokenizer, &j, e);
    gguf_begin_array(writer, "tokenizer.ggml.scores", GGUF_ARRAY_F32, (uint64_t)v->vocab);
    for (uint32_t id = 0; id < v->vocab && !status; id++) {
        const bool made = id < v->tokenizer->model.tokens.n_ids && j.first[id] != NO_ID;
        gguf_add_f32(writer, made ? -(float)j.first[id] : -(float)j.merges);
    }
    if (!status && j.other)
        vocabulary_tell(v,
                        "llama.cpp merges any two tokens that make a token, %llu pairs more than this tokenizer: it tokenizes some texts "
                        "differently",
                        (unsigned long long)j.other);
    free(j.first);
    return status;
}

int gguf_put_sentencepiece(gguf_writer *writer, const vocabulary *v, pt_error *e)
{
    bool replaced, prefixed, splits;
    int status = read_spaces(v, &replaced, &prefixed, &splits, e);
    if (!status && splits)
        status = check_marks(v, e);
    if (status)
        return status;
    for (int byte = 0; byte < 256; byte++)
        if (v->tokenizer->model.fallback[byte] == NO_ID) {
            vocabulary_tell(v, "the vocabulary has no tokens for single bytes: llama.cpp fails at characters outside the vocabulary");
            break;
        }
    if (v->gemma4)
        return gguf_put_gemma4(writer, v, e);
    gguf_put_string(writer, "tokenizer.ggml.model", "llama");
    gguf_put_string(writer, "tokenizer.ggml.pre", "default");
    gguf_put_bool(writer, "tokenizer.ggml.add_space_prefix", prefixed);
    return put_scores(writer, v, e);
}
