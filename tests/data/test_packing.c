/* Which examples share a window, and which are held out: everything once, nothing too long, the same again, and well filled. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/packing.h"

#include "random_plan.h"

#include <math.h>

enum { MANY = 70000 };

static random_source the_random;

/* Examples of random lengths, the last ids of each to be learned; some have nothing to learn but behind `seq_len`. */
static void make_examples(int n, int most, token_file *out)
{
    token_writer *w;
    pt_error e = {0};
    uint32_t ids[600];
    assert_int_equal(token_writer_open(NULL, 2, true, &w, &e), 0);
    for (int i = 0; i < n; i++) {
        const int length = random_from(&the_random, 2, most), learned = random_from(&the_random, 1, length - 1);
        for (int k = 0; k < length; k++)
            ids[k] = (uint32_t)random_below(&the_random, 30000) | (k >= length - learned ? ID_LEARNED : 0);
        const token_example x = {.line = (uint64_t)i + 1, .learned = (uint32_t)learned};
        assert_int_equal(token_writer_example(w, &x, ids, (size_t)length, &e), 0);
    }
    assert_int_equal(token_writer_finish(w, (data_hash){1, 2}, NULL, out, &e), 0);
    token_writer_close(w);
}

static void pack_with(const token_file *f, packing_options o, window_packing *p)
{
    pt_error e = {0};
    if (o.share.n == 0)
        o.share = share_of(SHARE_ALL, 0, 0, f->documents);
    if (packing_make(f, &o, p, &e))
        fail_msg("%s", e.text);
}

/* Counts each example by its start; returns the places that are used. */
static uint64_t count_examples(const window_packing *p, const token_file *f, int64_t seq_len, uint8_t *seen)
{
    uint64_t all = 0;
    for (uint64_t w = 0; w < p->windows; w++) {
        uint64_t first, n, places = 0;
        packed_example x;
        assert_int_equal(packing_window(p, w, &first, &n, NULL), 0);
        assert_true(n > 0);
        for (uint64_t i = 0; i < n; i++) {
            assert_int_equal(packing_examples(p, first + i, 1, &x, NULL), 0);
            assert_true(x.places > 0 && x.learned > 0 && x.learned <= x.places);
            places += x.places;
            seen[x.start]++;
        }
        assert_true(places <= (uint64_t)seq_len);
        all += places;
    }
    return all;
}

static void every_example_is_packed_once_and_whole(void **state)
{
    (void)state;
    token_file f;
    window_packing p, again, other;
    make_examples(3000, 60, &f);
    for (int64_t seq_len = 60; seq_len < 1000; seq_len *= 3) {
        uint8_t *seen = calloc(f.ids.n, 1);
        const packing_options o = {.seq_len = seq_len, .seed = 7, .shuffle = true};
        pack_with(&f, o, &p);
        assert_int_equal(count_examples(&p, &f, seq_len, seen), f.ids.n - f.documents);
        assert_int_equal(p.examples, f.documents);
        assert_int_equal(p.tokens, f.ids.n - f.documents);
        for (uint64_t i = 0, n; i < f.documents; i++) {
            token_example x;
            assert_int_equal(token_file_example(&f, i, &x, &n, NULL), 0);
            assert_int_equal(seen[x.start], 1);
        }
        assert_true((double)p.tokens >= 0.97 * (double)p.windows * (double)seq_len);
        pack_with(&f, o, &again);
        pack_with(&f, (packing_options){.seq_len = seq_len, .seed = 8, .shuffle = true}, &other);
        int same = 0, differ = 0;
        for (uint64_t i = 0; i < p.examples; i++) {
            packed_example a, b, c;
            packing_examples(&p, i, 1, &a, NULL);
            packing_examples(&again, i, 1, &b, NULL);
            packing_examples(&other, i, 1, &c, NULL);
            same += a.start == b.start;
            differ += a.start != c.start;
        }
        assert_int_equal(same, p.examples);
        assert_true(differ > (int)p.examples / 2);
        packing_close(&p);
        packing_close(&again);
        packing_close(&other);
        free(seen);
    }
    token_file_close(&f);
}

/* More than one block of examples. */
static void many_examples_are_packed_block_by_block(void **state)
{
    (void)state;
    token_file f;
    window_packing p;
    make_examples(MANY, 20, &f);
    uint8_t *seen = calloc(f.ids.n, 1);
    pack_with(&f, (packing_options){.seq_len = 64, .seed = 1, .shuffle = true}, &p);
    assert_int_equal(count_examples(&p, &f, 64, seen), f.ids.n - f.documents);
    assert_int_equal(p.examples, MANY);
    free(seen);
    packing_close(&p);
    token_file_close(&f);
}

static void alone_each_example_has_its_window_in_file_order(void **state)
{
    (void)state;
    token_file f;
    window_packing p;
    make_examples(500, 60, &f);
    pack_with(&f, (packing_options){.seq_len = 60, .alone = true}, &p);
    assert_int_equal(p.windows, 500);
    for (uint64_t i = 0, n; i < 500; i++) {
        token_example x;
        packed_example y;
        token_file_example(&f, i, &x, &n, NULL);
        packing_examples(&p, i, 1, &y, NULL);
        assert_true(x.start == y.start && y.places == n - 1 && y.learned == x.learned);
    }
    packing_close(&p);
    token_file_close(&f);
}

static void long_examples_are_cut_dropped_or_refused(void **state)
{
    (void)state;
    enum { LEN = 20, N = 800 };
    token_file f;
    window_packing cut, dropped, refused;
    pt_error e = {0};
    uint64_t longer = 0, unlearned = 0, learned = 0;
    make_examples(N, 60, &f);
    for (uint64_t i = 0, n; i < N; i++) {
        token_example x;
        token_file_example(&f, i, &x, &n, NULL);
        longer += n > LEN + 1;
        const uint64_t first = n - x.learned, within = n > LEN + 1 ? LEN + 1 : n;
        unlearned += first >= within;
        learned += first < within ? within - first : 0;
    }
    pack_with(&f, (packing_options){.seq_len = LEN, .longer = PT_LONG_CUT}, &cut);
    assert_true(cut.cut == longer && cut.unlearned == unlearned && cut.learned == learned && cut.examples == N - unlearned);
    pack_with(&f, (packing_options){.seq_len = LEN, .longer = PT_LONG_DROP}, &dropped);
    assert_true(dropped.dropped == longer && dropped.examples == N - longer && !dropped.cut);
    const packing_options o = {.seq_len = LEN, .longer = PT_LONG_ERROR, .share = share_of(SHARE_ALL, 0, 0, N)};
    assert_int_equal(packing_make(&f, &o, &refused, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "line "));
    assert_non_null(strstr(e.text, "`seq_len`"));
    packing_close(&cut);
    packing_close(&dropped);
    packing_close(&refused);
    token_file_close(&f);
}

/* Both parts together are the whole, in order, and each run of neighbours loses one. */
static void a_share_is_held_out_evenly(void **state)
{
    (void)state;
    for (int turn = 0; turn < 300; turn++) {
        const uint64_t n = (uint64_t)random_from(&the_random, 2, 400), seed = random_bits(&the_random);
        const double fraction = (double)random_from(&the_random, 1, 990) / 1000;
        const data_share held = share_of(SHARE_HELD, seed, fraction, n), kept = share_of(SHARE_KEPT, seed, fraction, n);
        uint8_t seen[400] = {0};
        assert_true(share_count(&held) > 0 && share_count(&kept) > 0);
        assert_int_equal(share_count(&held) + share_count(&kept), n);
        assert_true(fabs((double)share_count(&held) - fraction * (double)n) <= 1);
        for (uint64_t i = 0, before = 0; i < share_count(&kept); before = share_item(&kept, i++)) {
            assert_true(i == 0 || share_item(&kept, i) > before);
            seen[share_item(&kept, i)]++;
        }
        for (uint64_t i = 0; i < share_count(&held); i++) {
            const uint64_t at = share_item(&held, i);
            assert_true(at * share_count(&held) / n <= i && (at + 1) * share_count(&held) / n >= i);
            seen[at]++;
        }
        for (uint64_t i = 0; i < n; i++)
            assert_int_equal(seen[i], 1);
    }
}

static int open_random(void **state)
{
    (void)state;
    the_random = random_open();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_example_is_packed_once_and_whole), cmocka_unit_test(many_examples_are_packed_block_by_block),
        cmocka_unit_test(alone_each_example_has_its_window_in_file_order), cmocka_unit_test(long_examples_are_cut_dropped_or_refused),
        cmocka_unit_test(a_share_is_held_out_evenly)};
    return cmocka_run_group_tests(tests, open_random, NULL);
}
