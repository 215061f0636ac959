#include "text/added_tokens.h"

#include "text/buffer.h"
#include "text/plain_mark.h"
#include "text/section.h"
#include "text/unicode.h"
#include "text/utf8.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- reading ---- */

/* The id of a token that the vocabulary contains must be the same there; another token needs an id that is free. */
static int check_id(const added_tokens *a, const string_table *vocab, size_t i, uint32_t id, const char *content,
                    size_t n, pt_error *e)
{
    uint32_t known = string_table_find(vocab, content, n), earlier = string_table_find(&a->names, content, n);
    size_t n_other;
    const char *other = string_table_get(&a->names, id, &n_other);
    if (!other)
        other = string_table_get(vocab, id, &n_other);
    if (known == NO_ID)
        known = earlier;
    if (known != NO_ID && known != id)
        return pt_fail(e, PT_FAILED, "added_tokens[%zu]: \"%.60s\" has id %u here and %u before; correct the file", i,
                       content, id, known);
    if (other && known == NO_ID)
        return pt_fail(e, PT_FAILED, "added_tokens[%zu]: \"%.60s\" has id %u, which is taken by \"%.*s\"; correct the file",
                       i, content, id, (int)(n_other < 60 ? n_other : 60), other);
    return 0;
}

static int read_token(added_tokens *a, const json_t *item, size_t i, const string_table *vocab, pt_error *e)
{
    const json_t *content = json_object_get(item, "content");
    if (!json_is_string(content))
        return pt_fail(e, PT_FAILED, "added_tokens[%zu] has no string \"content\"; correct the file", i);
    const char *text = json_string_value(content);
    size_t n = json_string_length(content);
    uint32_t id = (uint32_t)json_integer_value(json_object_get(item, "id"));
    int status = check_id(a, vocab, i, id, text, n, e);
    if (status || n == 0 || string_table_find(&a->names, text, n) != NO_ID)
        return status; /* a repeated token changes nothing */
    added_token *t = &a->tokens[a->n++];
    *t = (added_token){.id = id};
    char where[48];
    snprintf(where, sizeof where, "added_tokens[%zu]", i);
    if ((status = section_flag(item, where, "special", false, &t->special, e)) ||
        (status = section_flag(item, where, "normalized", !t->special, &t->normalized, e)) ||
        (status = section_flag(item, where, "lstrip", false, &t->lstrip, e)) ||
        (status = section_flag(item, where, "rstrip", false, &t->rstrip, e)) ||
        (status = section_flag(item, where, "single_word", false, &t->single_word, e)) ||
        (status = string_table_add(&a->names, id, text, n, e)))
        return status;
    return text_buffer_append(&t->content, text, n, e);
}

static int count_ids(const json_t *section, uint32_t *n_ids, pt_error *e)
{
    *n_ids = 0;
    for (size_t i = 0; i < json_array_size(section); i++) {
        const json_t *id = json_object_get(json_array_get(section, i), "id");
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > MAX_TOKEN_ID)
            return pt_fail(e, PT_FAILED, "added_tokens[%zu]: its id is not an integer from 0 to %d; correct the file", i,
                           MAX_TOKEN_ID);
        if (json_integer_value(id) >= *n_ids)
            *n_ids = (uint32_t)json_integer_value(id) + 1;
    }
    return 0;
}

/* Sets the text to search for: the content, normalized if the token is. */
static int find_search_text(added_token *t, const normalizer *normalizer, pattern_scratch *s, text_buffer buffers[2],
                            pt_error *e)
{
    const char *text = t->content.bytes;
    size_t n = t->content.n;
    int status = t->normalized ? normalizer_run(normalizer, s, buffers, text, n, true, &text, &n, e) : 0;
    return status ? status : text_buffer_append(&t->search, text, n, e);
}

static int compare_text(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t n = n_a < n_b ? n_a : n_b;
    int order = n ? memcmp(a, b, n) : 0;
    return order ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_tokens(const void *a, const void *b)
{
    const token_text *x = a, *y = b;
    int order = compare_text(x->text->bytes, x->text->n, y->text->bytes, y->text->n);
    return order ? order : (x->token < y->token) - (x->token > y->token); /* of equal texts the first in the file
                                                                              sorts last, and wins */
}

static int start_set(token_set *set, size_t n, pt_error *e)
{
    set->sorted = malloc((n + 1) * sizeof *set->sorted);
    return set->sorted ? 0 : pt_fail(e, PT_FAILED, "added_tokens: no memory for %zu tokens; free some memory", n);
}

static void add_to_set(token_set *set, const added_token *token, const text_buffer *text)
{
    if (text->n == 0)
        return;
    set->sorted[set->n++] = (token_text){text, token};
    set->starts[(unsigned char)text->bytes[0]] = true;
    if (text->n > set->longest)
        set->longest = text->n;
}

static int build_sets(added_tokens *a, pt_error *e)
{
    token_set *sets[] = {&a->raw, &a->normalized, &a->contents};
    for (int i = 0; i < 3; i++) {
        int status = start_set(sets[i], a->n, e);
        if (status)
            return status;
    }
    for (size_t i = 0; i < a->n; i++) {
        const added_token *t = &a->tokens[i];
        add_to_set(t->normalized ? &a->normalized : &a->raw, t, &t->search);
        add_to_set(&a->contents, t, &t->content);
    }
    for (int i = 0; i < 3; i++)
        qsort(sets[i]->sorted, sets[i]->n, sizeof *sets[i]->sorted, compare_tokens);
    return 0;
}

int added_tokens_open(added_tokens *a, const json_t *section, const string_table *vocab, const normalizer *normalizer,
                      pt_error *e)
{
    memset(a, 0, sizeof *a);
    if (section && !json_is_null(section) && !json_is_array(section))
        return pt_fail(e, PT_FAILED, "added_tokens is no array; write one");
    size_t n = json_array_size(section);
    uint32_t n_ids;
    pattern_scratch scratch = {0};
    text_buffer buffers[2] = {0};
    int status = count_ids(section, &n_ids, e);
    if (!status)
        status = string_table_init(&a->names, n_ids, e);
    if (!status)
        status = pattern_scratch_init(&scratch, e);
    if (!status && !(a->tokens = calloc(n + 1, sizeof *a->tokens)))
        status = pt_fail(e, PT_FAILED, "added_tokens: no memory for %zu tokens; free some memory", n);
    for (size_t i = 0; i < n && !status; i++)
        status = read_token(a, json_array_get(section, i), i, vocab, e);
    for (size_t i = 0; i < a->n && !status; i++)
        status = find_search_text(&a->tokens[i], normalizer, &scratch, buffers, e);
    if (!status)
        status = build_sets(a, e);
    pattern_scratch_free(&scratch);
    text_buffer_free(&buffers[0]);
    text_buffer_free(&buffers[1]);
    return status;
}

void added_tokens_close(added_tokens *a)
{
    for (size_t i = 0; i < a->n; i++) {
        text_buffer_free(&a->tokens[i].content);
        text_buffer_free(&a->tokens[i].search);
    }
    string_table_free(&a->names);
    free(a->tokens);
    free(a->raw.sorted);
    free(a->normalized.sorted);
    free(a->contents.sorted);
    memset(a, 0, sizeof *a);
}

/* ---- searching ---- */

/* The first index in [low, high) whose byte at `depth` is at least `byte`; shorter tokens sort first. */
static size_t lower_bound(const token_set *set, size_t low, size_t high, size_t depth, unsigned byte)
{
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const text_buffer *s = set->sorted[middle].text;
        if (s->n <= depth || (unsigned char)s->bytes[depth] < byte)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The longest token that starts at text[0]. */
static const token_text *longest_at(const token_set *set, const char *text, size_t n)
{
    const token_text *best = NULL;
    size_t low = 0, high = set->n;
    for (size_t depth = 0; depth < n && low < high; depth++) {
        unsigned byte = (unsigned char)text[depth];
        low = lower_bound(set, low, high, depth, byte);
        high = lower_bound(set, low, high, depth, byte + 1);
        for (size_t i = low; i < high && set->sorted[i].text->n == depth + 1; i++)
            best = &set->sorted[i];
    }
    return best;
}

static const token_text *find_from(const token_set *set, const char *text, size_t n, size_t *at)
{
    for (size_t i = *at; i < n; i++) {
        if (!set->starts[(unsigned char)text[i]])
            continue;
        const token_text *t = longest_at(set, text + i, n - i);
        if (t) {
            *at = i;
            return t;
        }
    }
    return NULL;
}

static bool is_single_word(const char *text, size_t n, size_t start, size_t end)
{
    unsigned length;
    return (start == 0 || !unicode_is_word(unicode_last(text, start, &length))) &&
           (end == n || !unicode_is_word(utf8_read(text + end, &length)));
}

bool token_set_special_at(const token_set *set, const char *text, size_t n)
{
    size_t low = 0, high = n && set->starts[(unsigned char)text[0]] ? set->n : 0;
    for (size_t depth = 0; depth < n && low < high; depth++) {
        const unsigned byte = (unsigned char)text[depth];
        low = lower_bound(set, low, high, depth, byte);
        high = lower_bound(set, low, high, depth, byte + 1);
        for (size_t i = low; i < high && set->sorted[i].text->n == depth + 1; i++)
            if (set->sorted[i].token->special)
                return true;
    }
    return false;
}

static bool is_plain(plain_tokens plain, const char *text, size_t start)
{
    return plain == PLAIN_ALL || (plain == PLAIN_MARKED && plain_mark_before(text, start));
}

const added_token *token_set_next(const token_set *set, const char *text, size_t n, plain_tokens plain, token_search *search)
{
    while (set->n > 0) {
        size_t start = search->next;
        const token_text *found = find_from(set, text, n, &start);
        if (!found)
            return NULL;
        const added_token *t = found->token;
        size_t end = start + found->text->n;
        search->next = end;
        if ((t->special && is_plain(plain, text, start)) || (t->single_word && !is_single_word(text, n, start, end)))
            continue;
        if (t->lstrip)
            start -= unicode_spaces_at_end(text, start);
        if (t->rstrip)
            end += unicode_spaces_at_start(text + end, n - end);
        search->start = start < search->at ? search->at : start; /* the previous token may have stripped these spaces */
        search->at = end < search->at ? search->at : end;
        return t;
    }
    return NULL;
}

bool token_set_touches(const token_set *set, const char *text, size_t n, size_t p)
{
    for (size_t i = p > set->longest ? p - set->longest : 0; i <= p && i < n; i++) {
        if (!set->starts[(unsigned char)text[i]])
            continue;
        const token_text *t = longest_at(set, text + i, n - i);
        if (t && i + t->text->n >= p)
            return true;
    }
    return false;
}
