#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/pt-json-XXXXXX";

static void file_put(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static void open_text(json_source *s, const char *text)
{
    pt_error e = {0};
    file_put(text, strlen(text));
    if (json_source_open(s, path, &e))
        fail_msg("%s", e.text);
}

static void values_are_read_and_absent_ones_keep_their_default(void **state)
{
    (void)state;
    json_source s, child = {0}, none = {0};
    pt_error e = {0};
    open_text(&s, "{\"n\": 12, \"whole\": 3.0, \"eps\": 1e-5, \"one\": 1, \"tied\": true, \"name\": \"gpt2\","
                  " \"nothing\": null, \"rope\": {\"factor\": 8}, \"list\": [1, 2]}");
    int64_t n = 0, kept = 7;
    double eps = 0, one = 0;
    bool tied = false, flag = true;
    const char *name = NULL;
    json_t *list = NULL;
    assert_int_equal(json_get_int(&s, "n", JSON_REQUIRED, 1, 100, &n, &e), 0);
    assert_int_equal(n, 12);
    assert_int_equal(json_get_int(&s, "whole", JSON_REQUIRED, 1, 100, &n, &e), 0);
    assert_int_equal(n, 3);
    assert_int_equal(json_get_int(&s, "absent", JSON_OPTIONAL, 1, 100, &kept, &e), 0);
    assert_int_equal(json_get_int(&s, "nothing", JSON_OPTIONAL, 1, 100, &kept, &e), 0);
    assert_int_equal(kept, 7);
    assert_int_equal(json_get_double(&s, "eps", JSON_REQUIRED, 0, 1, &eps, &e), 0);
    assert_true(eps == 1e-5);
    assert_int_equal(json_get_double(&s, "one", JSON_REQUIRED, 0, 1, &one, &e), 0);
    assert_true(one == 1);
    assert_int_equal(json_get_bool(&s, "tied", JSON_REQUIRED, &tied, &e), 0);
    assert_true(tied);
    assert_int_equal(json_get_bool(&s, "absent", JSON_OPTIONAL, &flag, &e), 0);
    assert_true(flag);
    assert_int_equal(json_get_string(&s, "name", JSON_REQUIRED, &name, &e), 0);
    assert_string_equal(name, "gpt2");
    assert_int_equal(json_get_array(&s, "list", JSON_REQUIRED, &list, &e), 0);
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_get_object(&s, "absent", JSON_OPTIONAL, &none, &e), 0);
    assert_null(none.object);
    assert_int_equal(json_get_object(&s, "rope", JSON_REQUIRED, &child, &e), 0);
    assert_int_equal(json_get_int(&child, "factor", JSON_REQUIRED, 1, 8, &n, &e), 0);
    assert_int_equal(n, 8);
    assert_int_equal(json_get_int(&child, "factor", JSON_REQUIRED, 1, 7, &n, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "rope: \"factor\" is 8, but it must be from 1 to 7"));
    json_source_close(&s);
}

static void wrong_types_and_ranges_are_refused_with_file_and_key(void **state)
{
    (void)state;
    json_source s, child;
    pt_error e = {0};
    open_text(&s, "{\"n\": 3.5, \"text\": \"3\", \"big\": 9007199254740993, \"huge\": 1e300, \"neg\": -1,"
                  " \"nul\": \"a\\u0000b\", \"none\": null, \"flag\": 1}");
    int64_t n = 42;
    double x = 42;
    bool b;
    const char *t;
    json_t *list;
    static const char *const ints[] = {"n", "text", "huge", "neg", "none", "absent", "big"};
    for (size_t i = 0; i < sizeof ints / sizeof ints[0]; i++) {
        assert_int_equal(json_get_int(&s, ints[i], JSON_REQUIRED, 0, 1000, &n, &e), PT_FAILED);
        assert_non_null(strstr(e.text, path));
        assert_non_null(strstr(e.text, ints[i]));
    }
    assert_int_equal(n, 42);
    assert_int_equal(json_get_int(&s, "text", JSON_OPTIONAL, 0, 1000, &n, &e), PT_FAILED);
    assert_int_equal(json_get_double(&s, "text", JSON_OPTIONAL, 0, 1, &x, &e), PT_FAILED);
    assert_int_equal(json_get_double(&s, "huge", JSON_OPTIONAL, 0, 1, &x, &e), PT_FAILED);
    assert_true(x == 42);
    assert_int_equal(json_get_bool(&s, "flag", JSON_OPTIONAL, &b, &e), PT_FAILED);
    assert_int_equal(json_get_string(&s, "n", JSON_OPTIONAL, &t, &e), PT_FAILED);
    assert_int_equal(json_get_string(&s, "nul", JSON_OPTIONAL, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "NUL"));
    assert_int_equal(json_get_object(&s, "n", JSON_OPTIONAL, &child, &e), PT_FAILED);
    assert_int_equal(json_get_array(&s, "n", JSON_OPTIONAL, &list, &e), PT_FAILED);
    json_source_close(&s);
}

static void broken_files_are_refused_with_line_and_column(void **state)
{
    (void)state;
    static const struct { const char *text, *part; } bad[] = {
        {"", " is empty"}, {" ", ":1:1: not valid JSON"}, {"{\"a\": 1,\n \"b\" 2}", ":2:"}, {"{\"a\": 1", "cut off"},
        {"{} {}", "remove what follows the end"}, {"{\"a\": NaN}", ":1:"}, {"[1]", "a list, but an object"},
        {"{\"a\": \"\xff\"}", "UTF-8"}, {"{\"a\": 1e999}", "not valid JSON"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_source s;
        pt_error e = {0};
        file_put(bad[i].text, strlen(bad[i].text));
        assert_int_equal(json_source_open(&s, path, &e), PT_FAILED);
        assert_ptr_equal(strstr(e.text, path), e.text);
        if (!strstr(e.text, bad[i].part))
            fail_msg("'%s' gave: %s", bad[i].text, e.text);
    }
}

static void a_nesting_bomb_is_refused(void **state)
{
    (void)state;
    enum { LEVELS = 100000 };
    static const char *const openings[] = {"[", "{\"a\":"};
    for (int k = 0; k < 2; k++) {
        size_t piece = strlen(openings[k]);
        char *bomb = malloc(LEVELS * piece);
        for (size_t i = 0; i < LEVELS; i++)
            memcpy(bomb + i * piece, openings[k], piece);
        json_t *value;
        pt_error e = {0};
        assert_int_equal(json_text_load("bomb.json", bomb, LEVELS * piece, 0, &value, &e), PT_FAILED);
        assert_non_null(strstr(e.text, "2048 levels"));
        free(bomb);
    }
}

/* Repeats the unit in a list until the text has n bytes. The caller frees it. */
static char *list_of(const char *unit, size_t n)
{
    const size_t length = strlen(unit);
    char *text = malloc(n + length + 4);
    size_t at = 1;
    text[0] = '[';
    for (; at < n; at += length)
        memcpy(text + at, unit, length);
    memcpy(text + at, "0]", 3);
    return text;
}

static void values_that_would_take_much_memory_are_refused(void **state)
{
    (void)state;
    static const char *const dense[] = {"[],", "{},", "{\"\":0},", "[[]],", "\"\","};
    static const char *const usual[] = {
        "[\"Gto\",\"ken\"],", "{\"dtype\":\"BF16\",\"shape\":[7168,2048],\"data_offsets\":[123456,234567]},", "128,", "\"[{,]},{[\","};
    pt_error e = {0};
    json_t *value;
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) {
        char *large = list_of(dense[i], 2 << 20), *small = list_of(dense[i], 1 << 10);
        if (json_text_load("x.json", large, strlen(large), 0, &value, &e) != PT_FAILED || !strstr(e.text, "x.json") ||
            !strstr(e.text, "memory"))
            fail_msg("%s: %s", dense[i], e.text);
        assert_int_equal(json_text_load("x.json", small, strlen(small), 0, &value, &e), 0);
        json_decref(value);
        file_put(large, strlen(large));
        assert_int_equal(json_file_load(path, 0, &value, &e), PT_FAILED);
        free(large);
        free(small);
    }
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        char *large = list_of(usual[i], 2 << 20);
        if (json_text_load("x.json", large, strlen(large), 0, &value, &e))
            fail_msg("%s", e.text);
        json_decref(value);
        free(large);
    }
}

static void files_beyond_the_limit_are_refused(void **state)
{
    (void)state;
    pt_error e = {0};
    json_t *value;
    file_put("{}", 2);
    assert_int_equal(truncate(path, (off_t)JSON_FILE_MAX_BYTES + 1), 0);
    assert_int_equal(json_file_load(path, 0, &value, &e), PT_FAILED);
    assert_non_null(strstr(e.text, path));
    assert_non_null(strstr(e.text, "64 MiB"));
}

static void integers_beyond_64_bits_and_byte_order_marks_are_read(void **state)
{
    (void)state;
    json_source s;
    pt_error e = {0};
    open_text(&s, "\xEF\xBB\xBF{\"model_max_length\": 1000000000000000019884624838656, \"n\": 12}");
    int64_t n = 0;
    double length = 0;
    assert_int_equal(json_get_int(&s, "n", JSON_REQUIRED, 1, 100, &n, &e), 0);
    assert_int_equal(n, 12);
    assert_int_equal(json_get_int(&s, "model_max_length", JSON_REQUIRED, 1, 100, &n, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "1e+30"));
    assert_int_equal(json_get_double(&s, "model_max_length", JSON_REQUIRED, 0, INFINITY, &length, &e), 0);
    assert_true(length == 1e30);
    json_source_close(&s);
    open_text(&s, "{\"a\": -99999999999999999999, \"n\": [9223372036854775807, -9223372036854775808, 2.0, 7], \"s\": "
                  "\"\\\"99999999999999999999\"}");
    const json_t *list = json_object_get(s.object, "n");
    assert_true(json_real_value(json_object_get(s.object, "a")) == -1e20);
    assert_true(json_integer_value(json_array_get(list, 0)) == INT64_MAX && json_integer_value(json_array_get(list, 1)) == INT64_MIN);
    assert_true(json_is_real(json_array_get(list, 2)) && json_is_integer(json_array_get(list, 3)));
    assert_string_equal(json_string_value(json_object_get(s.object, "s")), "\"99999999999999999999");
    json_source_close(&s);
    open_text(&s, "{\"limit\": [0.0, Infinity], \"low\": -Infinity, \"s\": \"Infinity\", \"n\": 99999999999999999999}");
    assert_true(json_real_value(json_array_get(json_object_get(s.object, "limit"), 1)) == 1.79e308);
    assert_true(json_real_value(json_object_get(s.object, "low")) == -1.79e308);
    assert_true(json_real_value(json_object_get(s.object, "n")) == 1e20);
    assert_string_equal(json_string_value(json_object_get(s.object, "s")), "Infinity");
    json_source_close(&s);
    file_put("{\"a\": Infinity8}", 16);
    assert_int_equal(json_source_open(&s, path, &e), PT_FAILED);
    file_put("{\"a\": 99999999999999999999, \"b\": 1e999}", 40);
    assert_int_equal(json_source_open(&s, path, &e), PT_FAILED);
}

static void missing_files_and_folders_are_named(void **state)
{
    (void)state;
    json_source s;
    pt_error e = {0};
    assert_int_equal(json_source_open(&s, "/nonexistent/config.json", &e), PT_FAILED);
    assert_non_null(strstr(e.text, "/nonexistent/config.json: cannot be opened: No such file"));
    assert_int_equal(json_source_open(&s, "/", &e), PT_FAILED);
    assert_non_null(strstr(e.text, "is a folder"));
}

static int make_path(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_read_and_absent_ones_keep_their_default),
        cmocka_unit_test(wrong_types_and_ranges_are_refused_with_file_and_key),
        cmocka_unit_test(broken_files_are_refused_with_line_and_column),
        cmocka_unit_test(a_nesting_bomb_is_refused),
        cmocka_unit_test(values_that_would_take_much_memory_are_refused),
        cmocka_unit_test(files_beyond_the_limit_are_refused),
        cmocka_unit_test(integers_beyond_64_bits_and_byte_order_marks_are_read),
        cmocka_unit_test(missing_files_and_folders_are_named),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
