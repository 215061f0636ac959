#include "infer/stream.h"

#include "base/rng.h"
#include "text/utf8.h"
#include "seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Feeds `bytes` in random parts and collects what comes out; each output is valid by itself. */
static void collect(const char *bytes, size_t n, uint64_t seed, text_buffer *out)
{
    utf8_stream s = {0};
    pt_error e = {0};
    out->bytes = malloc(3 * n + 8);
    out->n = 0;
    for (size_t at = 0; at < n || at == 0;) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 3, at, w);
        size_t part = w[0] % 4;
        part = part < n - at ? part : n - at;
        if (part == 0 && n == 0)
            break;
        part = part || at + 1 < n ? part : 1;
        part = part ? part : 1;
        assert_int_equal(utf8_stream_feed(&s, bytes + at, part, false, &e), 0);
        assert_int_equal(utf8_valid_prefix(s.text.bytes, s.out), s.out);
        memcpy(out->bytes + out->n, s.text.bytes, s.out);
        out->n += s.out;
        at += part;
    }
    assert_int_equal(utf8_stream_feed(&s, "", 0, true, &e), 0);
    memcpy(out->bytes + out->n, s.text.bytes, s.out);
    out->n += s.out;
    utf8_stream_free(&s);
}

static void text_cut_anywhere_comes_out_as_it_was(void **state)
{
    uint64_t seed = test_seed();
    for (uint64_t round = 0; round < 200; round++) {
        char text[400];
        size_t n = 0;
        for (int i = 0; i < 90; i++) {
            static const uint32_t below[] = {0x80, 0x800, 0xd800, 0x110000};
            uint32_t w[4];
            rng_words(seed + round, RNG_TEST, 1, (uint64_t)i, w);
            uint32_t c = w[1] % below[w[0] % 4];
            n += utf8_write(c >= 0xd800 && c < 0xe000 ? 0x10ffff : c, text + n);
        }
        text_buffer out;
        collect(text, n, seed + round, &out);
        assert_int_equal(out.n, n);
        assert_memory_equal(out.bytes, text, n);
        free(out.bytes);
    }
}

static void bytes_that_are_no_text_become_the_replacement_character(void **state)
{
#define R "\xef\xbf\xbd"
    static const struct { const char *in, *out; } cases[] = {
        {"a\xff" "b", "a" R "b"},
        {"\xe2\x28\xa1", R "(" R},
        {"\xf0\x9f\x98", R},               /* the end of the text in the middle of a character: one */
        {"\xf0\x9f\x98" "a", R "a"},
        {"\xc0\x80", R R},                 /* overlong */
        {"\xed\xa0\x80", R R R},           /* a surrogate */
        {"\xf4\x90\x80\x80", R R R R},     /* beyond U+10FFFF */
        {"\x80\xe2\x82\xac", R "\xe2\x82\xac"},
        {"\xe2\xe2\x82\xac", R "\xe2\x82\xac"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint64_t seed = 0; seed < 20; seed++) {
            text_buffer out;
            collect(cases[i].in, strlen(cases[i].in), seed, &out);
            if (out.n != strlen(cases[i].out) || memcmp(out.bytes, cases[i].out, out.n))
                fail_msg("case %zu: %.*s", i, (int)out.n, out.bytes);
            free(out.bytes);
        }
}

static void a_character_is_held_back_until_it_is_whole(void **state)
{
    utf8_stream s = {0};
    pt_error e = {0};
    assert_int_equal(utf8_stream_feed(&s, "x\xf0\x9f", 3, false, &e), 0);
    assert_int_equal(s.out, 1);
    assert_int_equal(utf8_stream_feed(&s, "\x98", 1, false, &e), 0);
    assert_int_equal(s.out, 0);
    assert_int_equal(utf8_stream_feed(&s, "\x80y", 2, false, &e), 0);
    assert_int_equal(s.out, 5);
    assert_memory_equal(s.text.bytes, "\xf0\x9f\x98\x80y", 5);
    utf8_stream_free(&s);
}

static void tokens_without_bytes_change_nothing(void **state)
{
    utf8_stream s = {0};
    pt_error e = {0};
    static const struct { const char *in; size_t n, out; } fed[] = {{NULL, 0, 0}, {"\xc3", 1, 0}, {NULL, 0, 0}, {"\xa9", 1, 2}, {"", 0, 0}};
    for (size_t i = 0; i < sizeof fed / sizeof *fed; i++) {
        assert_int_equal(utf8_stream_feed(&s, fed[i].in, fed[i].n, false, &e), 0);
        assert_int_equal(s.out, fed[i].out);
    }
    assert_int_equal(utf8_stream_feed(&s, NULL, 0, true, &e), 0);
    assert_int_equal(s.out, 0);
    utf8_stream_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_cut_anywhere_comes_out_as_it_was),
        cmocka_unit_test(bytes_that_are_no_text_become_the_replacement_character),
        cmocka_unit_test(a_character_is_held_back_until_it_is_whole),
        cmocka_unit_test(tokens_without_bytes_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
