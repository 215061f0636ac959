/* Errors keep what is wrong and what to do about it, however long the paths in them are. */
#include "base/error.h"

#include <setjmp.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "text/utf8.h"

/* "/aaaa...aaaa/name" of n bytes, without a NUL inside. */
static const char *path_of(char *out, size_t n, const char *unit, const char *name)
{
    strcpy(out, "/");
    while (strlen(out) + strlen(unit) + strlen(name) + 1 <= n)
        strcat(out, unit);
    strcat(out, "/");
    return strcat(out, name);
}

static void ends_with(const pt_error *e, const char *end)
{
    size_t n = strlen(e->text);
    assert_true(n < sizeof e->text);
    assert_int_equal(utf8_valid_prefix(e->text, n), n);
    if (n < strlen(end) || strcmp(e->text + n - strlen(end), end) != 0)
        fail_msg("\"%s\" does not end with \"%s\"", e->text, end);
}

static void the_end_of_a_message_survives_paths_of_any_length(void **state)
{
    (void)state;
    static char a[8192], b[8192];
    static const char *const units[] = {"folder/", "\u00e9", "\u20ac/", "a b/", "\U0001F600"};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        for (size_t n = 900; n < 4096; n += 61) {
            pt_error e = {0};
            path_of(a, n, units[u], "first.txt");
            path_of(b, 4090, units[u], "second.txt");
            assert_int_equal(pt_fail(&e, PT_FAILED, "%s: is damaged; get it again", a), PT_FAILED);
            ends_with(&e, "first.txt: is damaged; get it again");
            assert_true(n > sizeof e.text || strchr(e.text, '.') != NULL);
            pt_fail(&e, PT_FAILED, "%s: does not belong to %s; give another one", a, b);
            assert_true(u == 3 || strstr(e.text, "first.txt: does not belong to /"));
            if (u != 3) /* a path with blanks is many words */
                ends_with(&e, "second.txt; give another one");
            errno = ENOENT;
            pt_fail_errno(&e, PT_FAILED, "%s: cannot be opened", a);
            ends_with(&e, "first.txt: cannot be opened: No such file or directory");
            pt_fail(&e, PT_FAILED, "line 3 is no JSON; mend it");
            pt_error_prefix(&e, "%s", a);
            ends_with(&e, "first.txt: line 3 is no JSON; mend it");
        }
}

static void a_message_that_fits_is_left_as_it_is(void **state)
{
    (void)state;
    static char a[2048];
    pt_error e = {0};
    path_of(a, 990, "x", "y");
    pt_fail(&e, PT_FAILED, "%s: no", a);
    assert_int_equal(strlen(e.text), 990 + 4);
    assert_int_equal(strncmp(e.text, a, 990), 0);
}

static void what_moves_a_terminal_is_not_in_a_message(void **state)
{
    (void)state;
    pt_error e;
    pt_fail(&e, PT_FAILED, "%s: a\tb\nc", "\033[2Jcaf\xc3\xa9\x7f\r\xc2\x9b" "1m\xc2\xa0");
    assert_string_equal(e.text, "?[2Jcaf\xc3\xa9??\xc2\xbf" "1m\xc2\xa0: a\tb\nc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_of_a_message_survives_paths_of_any_length),
        cmocka_unit_test(a_message_that_fits_is_left_as_it_is),
        cmocka_unit_test(what_moves_a_terminal_is_not_in_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
