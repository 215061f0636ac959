/* Merging against the plainest way to do it, on random models and words. */
#include "text/support.h"

#include "text/bpe.h"
#include "seed.h"

static uint64_t seed;
enum { MAX_TOKENS = 400, MAX_WORD = 600 };

typedef struct random_model {
    char tokens[MAX_TOKENS][64];
    uint32_t merges[MAX_TOKENS][2];
    int n_tokens, n_merges, n_letters;
} random_model;

/* Letters a, b, ... and merges of any two tokens so far, in an order that is not that of their length. */
static json_t *make_model(random_model *m, uint64_t *counter, bool ignore_merges)
{
    json_t *vocab = json_object(), *merges = json_array();
    m->n_letters = m->n_tokens = 2 + (int)draw(seed, counter, 5);
    for (int i = 0; i < m->n_letters; i++)
        snprintf(m->tokens[i], 64, "%c", 'a' + i);
    m->n_merges = 0;
    for (int tries = 10 + (int)draw(seed, counter, 300); tries > 0 && m->n_tokens < MAX_TOKENS; tries--) {
        uint32_t left = draw(seed, counter, (uint32_t)m->n_tokens), right = draw(seed, counter, (uint32_t)m->n_tokens);
        char joined[128];
        if (snprintf(joined, sizeof joined, "%s%s", m->tokens[left], m->tokens[right]) > 40)
            continue;
        int known = 0;
        while (known < m->n_tokens && strcmp(m->tokens[known], joined) != 0)
            known++;
        if (known < m->n_tokens)
            continue;
        strcpy(m->tokens[m->n_tokens++], joined);
        m->merges[m->n_merges][0] = left;
        m->merges[m->n_merges++][1] = right;
    }
    for (int i = m->n_merges; i > 1; i--) { /* shuffle: ranks need not follow the order of making */
        uint32_t k = draw(seed, counter, (uint32_t)i), a = m->merges[k][0], b = m->merges[k][1];
        memcpy(m->merges[k], m->merges[i - 1], sizeof m->merges[k]);
        m->merges[i - 1][0] = a;
        m->merges[i - 1][1] = b;
    }
    for (int i = 0; i < m->n_tokens; i++)
        json_object_set_new(vocab, m->tokens[i], json_integer(i));
    for (int i = 0; i < m->n_merges; i++)
        json_array_append_new(merges, json_pack("[ss]", m->tokens[m->merges[i][0]], m->tokens[m->merges[i][1]]));
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "BPE", "vocab", vocab, "merges", merges, "ignore_merges", ignore_merges);
}

static int find_token(const random_model *m, const char *s, size_t n)
{
    for (int i = 0; i < m->n_tokens; i++)
        if (strlen(m->tokens[i]) == n && memcmp(m->tokens[i], s, n) == 0)
            return i;
    return -1;
}

/* Applies the first merge of the list that applies anywhere, at its leftmost place, until none does. */
static size_t merge_plainly(const random_model *m, const char *word, size_t n, uint32_t *ids)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint32_t)(word[i] - 'a');
    for (int k = 0; k < m->n_merges;) {
        size_t i = 0;
        while (i + 1 < n && !(ids[i] == m->merges[k][0] && ids[i + 1] == m->merges[k][1]))
            i++;
        if (i + 1 >= n) {
            k++;
            continue;
        }
        char joined[128];
        int length = snprintf(joined, sizeof joined, "%s%s", m->tokens[ids[i]], m->tokens[ids[i + 1]]);
        ids[i] = (uint32_t)find_token(m, joined, (size_t)length);
        memmove(ids + i + 1, ids + i + 2, (n - i - 2) * sizeof *ids);
        n--;
        k = 0;
    }
    return n;
}

static void check_model(uint64_t *counter, bool byte_level, bool ignore_merges)
{
    random_model *m = malloc(sizeof *m);
    json_t *json = make_model(m, counter, ignore_merges);
    bpe model;
    bpe_scratch scratch;
    pt_error e = {0};
    if (bpe_open(&model, json, byte_level, &e) || bpe_scratch_init(&scratch, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < 40; i++) {
        char word[MAX_WORD];
        uint32_t wanted[MAX_WORD];
        size_t n = 1 + draw(seed, counter, i % 4 ? 30 : MAX_WORD);
        for (size_t k = 0; k < n; k++)
            word[k] = (char)('a' + draw(seed, counter, (uint32_t)m->n_letters));
        int whole = ignore_merges ? find_token(m, word, n) : -1;
        size_t n_wanted = whole >= 0 ? 1 : merge_plainly(m, word, n, wanted);
        if (whole >= 0)
            wanted[0] = (uint32_t)whole;
        id_list got = {0};
        if (bpe_word(&model, &scratch, word, n, &got, &e))
            fail_msg("%s", e.text);
        assert_ids(&got, wanted, n_wanted, word, n);
        id_list_free(&got);
    }
    bpe_scratch_free(&scratch);
    bpe_close(&model);
    json_decref(json);
    free(m);
}

static void merges_are_those_of_the_plain_algorithm(void **state)
{
    uint64_t counter = 0;
    for (int i = 0; i < 200; i++)
        check_model(&counter, i & 1, i & 2);
}

/* A hundred thousand letters and as many units: nothing quadratic would end in reasonable time, and the
 * result is known: a^(2^k) merge in pairs. */
static void a_very_long_word_is_merged(void **state)
{
    enum { N = 1 << 17 };
    json_t *json = json_loads("{\"vocab\": {\"a\": 0, \"aa\": 1, \"aaaa\": 2, \"aaaaaaaa\": 3},"
                              " \"merges\": [\"a a\", \"aa aa\", \"aaaa aaaa\"]}", 0, NULL);
    bpe model;
    bpe_scratch scratch;
    pt_error e = {0};
    id_list got = {0};
    if (bpe_open(&model, json, false, &e) || bpe_scratch_init(&scratch, &e))
        fail_msg("%s", e.text);
    char *word = malloc(N + 7);
    memset(word, 'a', N + 7);
    if (bpe_word(&model, &scratch, word, N + 7, &got, &e))
        fail_msg("%s", e.text);
    assert_int_equal(got.n, N / 8 + 3);
    for (size_t i = 0; i < N / 8; i++)
        assert_int_equal(got.ids[i], 3);
    assert_int_equal(got.ids[N / 8], 2);
    assert_int_equal(got.ids[N / 8 + 1], 1);
    assert_int_equal(got.ids[N / 8 + 2], 0);
    id_list_free(&got);
    free(word);
    bpe_scratch_free(&scratch);
    bpe_close(&model);
    json_decref(json);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_those_of_the_plain_algorithm),
        cmocka_unit_test(a_very_long_word_is_merged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
