#include "base/rng.h"
#include "base/units.h"
#include "seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check_size(const char *text, uint64_t expected)
{
    pt_error e = {0};
    uint64_t bytes = 42;
    if (size_parse(text, &bytes, &e))
        fail_msg("'%s' was refused: %s", text, e.text);
    if (bytes != expected)
        fail_msg("'%s' gave %llu, not %llu", text, (unsigned long long)bytes, (unsigned long long)expected);
}

static void sizes_are_read_in_every_unit(void **state)
{
    (void)state;
    check_size("0", 0);
    check_size("1048576", 1048576);
    check_size("512B", 512);
    check_size("512MiB", 512ull << 20);
    check_size("6GiB", 6ull << 30);
    check_size("1.5GiB", 3ull << 29);
    check_size("1.5 gib", 3ull << 29);
    check_size(".25KiB", 256);
    check_size("0.1GB", 100000000);
    check_size("6GB", 6000000000ull);
    check_size("3kB", 3000);
    check_size("7MB", 7000000);
    check_size("2TB", 2000000000000ull);
    check_size("2T", 2ull << 40);
    check_size("16M", 16ull << 20);
    check_size("1.0001KiB", 1024); /* what falls below a byte is cut off */
    check_size("9223372036854775807", INT64_MAX);
    check_size("8388607.9999999999995TiB", INT64_MAX);
}

static void what_is_not_a_size_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const junk[] = {"", " ", "-1", "-1GiB", "+1", "GiB", ".", "1..5GiB", "1,5GiB", "1e9", "0x10",
        "5GiBs", "5 ", "5  GiB", " 5GiB", "nan", "inf", "1.5", "1.5B", "12Q", "18446744073709551616",
        "99999999999999999999999", "8388608TiB", "9223372036854775808", "18446744073709551615", "1.5.5"};
    for (size_t i = 0; i < sizeof junk / sizeof junk[0]; i++) {
        pt_error e = {0};
        uint64_t bytes = 42;
        if (size_parse(junk[i], &bytes, &e) != PT_USAGE)
            fail_msg("'%s' was taken as %llu", junk[i], (unsigned long long)bytes);
        assert_int_equal(bytes, 42);
        assert_non_null(strstr(e.text, junk[i]));
    }
}

static void a_printed_size_reads_back_within_its_last_digit(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 0, i, w);
        uint64_t bytes = ((uint64_t)w[0] << 32 | w[1]) >> (w[2] % 56 + 4), back; /* below 2^60 */
        char buf[32];
        pt_error e = {0};
        if (strstr(size_format(buf, bytes), "PiB"))
            continue; /* is printed but not read */
        if (size_parse(buf, &back, &e))
            fail_msg("%llu was printed as '%s'", (unsigned long long)bytes, buf);
        double difference = fabs((double)back - (double)bytes);
        if (bytes < 1024 ? back != bytes : difference > 0.0051 * (double)bytes + 1)
            fail_msg("%llu was printed as '%s'", (unsigned long long)bytes, buf);
    }
}

/* It is no less, at most a granule more, and short. */
static void a_size_that_is_advised_reads_back_without_loss(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 20000; i++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 1, i, w);
        uint64_t bytes = ((uint64_t)w[0] << 32 | w[1]) >> (w[2] % 56 + 4), back;
        char buf[32];
        pt_error e = {0};
        if (size_parse(size_option(buf, bytes), &back, &e))
            fail_msg("%llu was printed as '%s'", (unsigned long long)bytes, buf);
        if (back != size_round_up(bytes) || back < bytes || back - bytes > bytes / 64 || back % size_granule(bytes) ||
            strlen(buf) > 10 || (bytes > 8u << 20 && strchr(buf, 'K')))
            fail_msg("%llu was printed as '%s'", (unsigned long long)bytes, buf);
        if (size_round_up(back) != back || size_round_down(back) != back || size_round_down(bytes) > bytes)
            fail_msg("%llu is not on the grid", (unsigned long long)back);
    }
}

static void check_text(const char *got, const char *expected) { assert_string_equal(got, expected); }

static void numbers_are_printed_as_people_write_them(void **state)
{
    (void)state;
    char b[32];
    check_text(size_format(b, 0), "0 B");
    check_text(size_format(b, 1023), "1023 B");
    check_text(size_format(b, 3ull << 29), "1.50 GiB");
    check_text(size_format(b, (1ull << 20) - 1), "1.00 MiB");
    check_text(size_format(b, UINT64_MAX), "16.00 EiB");
    check_text(size_option(b, 0), "0B");
    check_text(size_option(b, 127), "127B");
    check_text(size_option(b, 308 << 10), "308KiB");
    check_text(size_option(b, 10368 << 10), "10.125MiB");
    check_text(size_option(b, (49ull << 29) - 1), "24.5GiB");
    check_text(size_option(b, (85ull << 30) + 1), "86GiB");
    check_text(size_option(b, 1ull << 42), "4TiB");
    check_text(seconds_format(b, 0), "0 us");
    check_text(seconds_format(b, 850e-6), "850 us");
    check_text(seconds_format(b, 0.0123), "12.3 ms");
    check_text(seconds_format(b, 4.213), "4.21 s");
    check_text(seconds_format(b, 59.999), "1m00s");
    check_text(seconds_format(b, 185), "3m05s");
    check_text(seconds_format(b, 3599.7), "1h00m");
    check_text(seconds_format(b, 7380), "2h03m");
    check_text(seconds_format(b, 86399), "1d00h");
    check_text(seconds_format(b, 4 * 86400 + 7200), "4d02h");
    check_text(seconds_format(b, NAN), "?");
    check_text(seconds_format(b, -1), "?");
    check_text(seconds_format(b, INFINITY), "?");
    check_text(count_format(b, 950), "950");
    check_text(count_format(b, 32000), "32.0K");
    check_text(count_format(b, 124439808), "124.4M");
    check_text(count_format(b, 999999), "1.0M");
    check_text(count_format(b, 7241732096), "7.2B");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_in_every_unit),
        cmocka_unit_test(what_is_not_a_size_is_refused_by_name),
        cmocka_unit_test(a_printed_size_reads_back_within_its_last_digit),
        cmocka_unit_test(a_size_that_is_advised_reads_back_without_loss),
        cmocka_unit_test(numbers_are_printed_as_people_write_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
