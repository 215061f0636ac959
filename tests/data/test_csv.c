/* CSV as RFC 4180 has it: rows whatever the pieces that they come in, and what is none refused with its line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/csv.h"

#include <stdio.h>

/* All rows as "LINE:field|field\n", read in pieces of `piece` bytes; or the error. */
static int read_rows(const char *text, size_t n, size_t piece, text_buffer *out, pt_error *e)
{
    csv_reader c = {.line = 1};
    int rc = 0;
    for (size_t at = 0, used; at < n || rc > 0;) {
        const size_t now = n - at < piece ? n - at : piece;
        rc = at < n ? csv_take(&c, text + at, now, &used, e) : 0;
        at += at < n ? used : 0;
        if (rc < 0)
            break;
        if (rc == 0 && at < n)
            continue;
        if (rc == 0 && (rc = csv_end(&c, e)) <= 0)
            break;
        char line[24];
        text_buffer_append(out, line, (size_t)snprintf(line, sizeof line, "%d:", (int)c.row_line), NULL);
        for (size_t i = 0; i < c.fields_n; i++) {
            const csv_slice s = csv_field(&c, i);
            text_buffer_append(out, s.p, s.n, NULL);
            text_buffer_append(out, i + 1 < c.fields_n ? "|" : "\n", 1, NULL);
        }
        if (at == n && c.state == CSV_START && c.done && csv_end(&c, e) == 0)
            break;
    }
    csv_free(&c);
    return rc < 0 ? rc : 0;
}

static void reads_as(const char *text, const char *want)
{
    for (size_t piece = 1; piece < 9; piece++) {
        text_buffer out = {0};
        pt_error e = {0};
        if (read_rows(text, strlen(text), piece, &out, &e))
            fail_msg("%s", e.text);
        text_buffer_append(&out, "", 1, NULL);
        assert_string_equal(out.bytes, want);
        text_buffer_free(&out);
    }
}

static void refused(const char *text, const char *because)
{
    for (size_t piece = 1; piece < 9; piece++) {
        text_buffer out = {0};
        pt_error e = {0};
        assert_int_equal(read_rows(text, strlen(text), piece, &out, &e), PT_FAILED);
        if (!strstr(e.text, because))
            fail_msg("the message should say \"%s\": %s", because, e.text);
        text_buffer_free(&out);
    }
}

static void rows_and_fields_are_told_apart(void **state)
{
    (void)state;
    reads_as("a,b\n1,2\n", "1:a|b\n2:1|2\n");
    reads_as("a,b\r\n1,2", "1:a|b\n2:1|2\n");
    reads_as("a,,\n,,b\n", "1:a||\n2:||b\n");
    reads_as("", "");
    reads_as("\n\n\r\na\n\n", "4:a\n");
    reads_as("\"\"\n", "1:\n"); /* an empty field in quotes is one */
    reads_as("\xc3\xa9, x\n", "1:\xc3\xa9| x\n");
}

static void quotes_hold_anything(void **state)
{
    (void)state;
    reads_as("\"a,b\",\"c\"\n", "1:a,b|c\n");
    reads_as("\"one\ntwo\r\nthree\",x\ny,z\n", "1:one\ntwo\r\nthree|x\n4:y|z\n");
    reads_as("\"say \"\"hi\"\"\",\"\"\"\"", "1:say \"hi\"|\"\n");
}

static void what_is_no_csv_is_named_by_its_line(void **state)
{
    (void)state;
    refused("a\nx\"y\n", "line 2: a quote inside an unquoted field");
    refused("a\n\"x\"y\n", "line 2: text after a closing quote");
    refused("a\n\"x\n\nyz", "line 2: the quote that begins a field is never closed");
    refused("a\rb\n", "line 1: a carriage return without a newline");
    refused("a\r", "line 1: a carriage return without a newline");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_and_fields_are_told_apart), cmocka_unit_test(quotes_hold_anything),
                                       cmocka_unit_test(what_is_no_csv_is_named_by_its_line)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
