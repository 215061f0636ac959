/* Documents out of .txt, .jsonl and .json files, and the errors of files that are not what their
 * name says. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "data/documents.h"
#include "text/buffer.h"

#include "scratch.h"
#include "seed.h"

#include <fcntl.h>
#include <zlib.h>
#include <zstd.h>

/* What was read, as "LINE:text|LINE:text|"; NUL bytes as they are. */
static int log_begin(void *arg, record_place at, pt_error *e)
{
    char head[32];
    return text_buffer_append(arg, head, (size_t)snprintf(head, sizeof head, "%llu:", (unsigned long long)at.line), e);
}

static int log_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    return text_buffer_append(arg, p, n, e);
}

static int log_end(void *arg, pt_error *e)
{
    return text_buffer_append(arg, "|", 1, e);
}

static int load(const char *path, data_kind kind, text_buffer *log, pt_error *e)
{
    const document_sink sink = {log, log_begin, log_text, log_end, NULL, 0, NULL};
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    int rc = documents_read(fd, path, kind, DOCUMENT_TEXT, &sink, e);
    close(fd);
    return rc;
}

static void reads_as(data_kind kind, const char *file, const char *want)
{
    text_buffer log = {0};
    pt_error e = {0};
    if (load(scratch_text("good", file), kind, &log, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(log.n, strlen(want));
    assert_memory_equal(log.bytes, want, log.n);
    text_buffer_free(&log);
}

static void refused(data_kind kind, const char *file, const char *because)
{
    text_buffer log = {0};
    pt_error e = {0};
    assert_int_equal(load(scratch_text("bad", file), kind, &log, &e), PT_FAILED);
    if (!strstr(e.text, because) || !strstr(e.text, "/bad: "))
        fail_msg("the message should name the file and say \"%s\": %s", because, e.text);
    text_buffer_free(&log);
}

static void a_txt_is_one_document_byte_for_byte(void **state)
{
    reads_as(DATA_TEXT, "one\r\ntwo\xff {\"text\"\n", "0:one\r\ntwo\xff {\"text\"\n|");
    reads_as(DATA_TEXT, "", "0:|");
}

static void a_jsonl_has_a_document_a_line(void **state)
{
    reads_as(DATA_JSONL, "{\"text\": \"one\"}\n\n  \r\n{\"id\": 12345678901234567890123, \"text\": \"t\\u00e9\\n\"}\r\n",
             "1:one|4:té\n|");
    reads_as(DATA_JSONL, "\xEF\xBB\xBF{\"text\": \"mark\"}", "1:mark|");
    reads_as(DATA_JSONL, "{\"text\": \"\"}", "1:|");
    reads_as(DATA_JSONL, "", "");
}

static void a_json_array_has_a_document_an_element(void **state)
{
    reads_as(DATA_JSON, "[]", "");
    reads_as(DATA_JSON, " [ ] \n", "");
    reads_as(DATA_JSON, "[{\"text\":\"a]},{\\\"[\\\\\"},\n {\"x\": [[1, {\"y\": \"}\"}]], \"text\": \"b\"}\n]\n",
             "1:a]},{\"[\\|2:b|");
}

/* Two streams one after the other; of gzip then zeros, as tapes have them. */
static size_t compress_halves(bool gzip, const char *text, size_t n, unsigned char *out, size_t room)
{
    size_t used = 0;
    for (int half = 0; half < 2; half++) {
        const char *p = text + (half ? n / 2 : 0);
        const size_t size = half ? n - n / 2 : n / 2;
        if (gzip) {
            z_stream z = {.next_in = (unsigned char *)p, .avail_in = (unsigned)size, .next_out = out + used,
                          .avail_out = (unsigned)(room - used)};
            assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
            assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
            used += z.total_out;
            deflateEnd(&z);
        } else {
            ZSTD_CCtx *c = ZSTD_createCCtx();
            ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
            used += ZSTD_compress2(c, out + used, room - used, p, size);
            ZSTD_freeCCtx(c);
        }
    }
    return used;
}

static int load_packed(bool gzip, const void *p, size_t n, text_buffer *log, pt_error *e)
{
    log->n = 0;
    return load(scratch_write(gzip ? "a.jsonl.gz" : "a.jsonl.ZST", p, n), DATA_JSONL, log, e);
}

/* Cut off anywhere, or with a byte changed, a compressed file is refused; but for bytes of gzip's header that mean nothing. */
static void compressed_files_read_as_what_they_hold(void **state)
{
    static unsigned char packed[4096], bad[4096];
    text_buffer text = {0}, log = {0}, plain = {0};
    pt_error e = {0};
    for (int i = 0; i < 3000; i++) {
        char line[64];
        text_buffer_append(&text, line, (size_t)snprintf(line, sizeof line, "{\"text\": \"text %d\"}\n", i % 50), NULL);
    }
    assert_int_equal(load(scratch_write("plain", text.bytes, text.n), DATA_JSONL, &plain, NULL), 0);
    for (int gzip = 0; gzip < 2; gzip++) {
        const size_t n = compress_halves(gzip, text.bytes, text.n, packed, sizeof packed - 512), tail = gzip ? 512 : 0;
        if (load_packed(gzip, packed, n + tail, &log, &e))
            fail_msg("%s", e.text);
        assert_int_equal(log.n, plain.n);
        assert_memory_equal(log.bytes, plain.bytes, plain.n);
        size_t whole = 0;
        for (size_t cut = 0; cut < n; cut += 1 + cut / 64) {
            if (load_packed(gzip, packed, cut, &log, &e) == 0)
                whole++; /* between the two streams */
            else if (!strstr(e.text, "too early") && !strstr(e.text, "line"))
                fail_msg("cut at byte %zu: %s", cut, e.text);
            memcpy(bad, packed, n);
            bad[cut] ^= 0x55;
            const int rc = load_packed(gzip, bad, n, &log, &e);
            assert_true(rc == PT_FAILED || log.n == plain.n);
            if (rc == 0)
                assert_memory_equal(log.bytes, plain.bytes, plain.n);
        }
        assert_true(whole <= 1);
        load_packed(gzip, "no such data", 12, &log, &e);
        assert_non_null(strstr(e.text, "damaged compressed data"));
        memset(packed, 0, sizeof packed);
    }
    text_buffer_free(&text);
    text_buffer_free(&log);
    text_buffer_free(&plain);
}

static void text_with_a_nul_is_kept_whole(void **state)
{
    text_buffer log = {0};
    assert_int_equal(load(scratch_text("nul", "{\"text\": \"a\\u0000b\"}"), DATA_JSONL, &log, NULL), 0);
    assert_int_equal(log.n, 6);
    assert_memory_equal(log.bytes, "1:a\0b|", 6);
    text_buffer_free(&log);
}

static void records_without_text_say_what_they_have(void **state)
{
    refused(DATA_JSONL, "{\"text\":\"a\"}\n{\"question\":\"q\",\"answer\":\"a\"}",
            "line 2: the object has no \"text\" (its keys: question, answer)");
    refused(DATA_JSONL, "{}", "its keys: none");
    refused(DATA_JSONL, "{\"a\\u001bb\":1}", "its keys: a?b");
    refused(DATA_JSONL, "\"only a string\"", "line 1: a string");
    refused(DATA_JSONL, "{\"text\": [\"a\"]}", "\"text\" is a list");
    refused(DATA_JSON, "[{\"text\":\"a\"},\n7]", "line 2: an integer");
}

static void bad_json_is_named_with_line_and_column(void **state)
{
    refused(DATA_JSONL, "{\"text\":\"a\"}\n{\"text\": oops}", "line 2, column 13");
    refused(DATA_JSONL, "{\"text\":\"a\"} {\"text\":\"b\"}", "line 1, column 14");
    refused(DATA_JSONL, "{\"text\":\"a", "line 1, column 10");
    refused(DATA_JSONL, "{\"text\":\"\xff\"}", "line 1, column 9: not valid JSON: unable to decode byte 0xff");
    refused(DATA_JSON, "[{\"text\":\"a\"}, {\"text\": oops}]", "line 1, column 28");
    refused(DATA_JSON, "[{\"text\":\"a\"},\n {\n\"text\": oops}]", "line 3, column 12");
}

static void an_array_that_is_none_is_named_with_line_and_column(void **state)
{
    refused(DATA_JSON, "", "ends at line 1, column 1");
    refused(DATA_JSON, "{\"text\":\"a\"}\n", "one object a line is .jsonl");
    refused(DATA_JSON, "[", "ends at line 1, column 2");
    refused(DATA_JSON, "[{\"text\":\"a\"}", "',' or ']'");
    refused(DATA_JSON, "[{\"text\":\"a\"},]", "line 1, column 15: ']'");
    refused(DATA_JSON, "[,]", "line 1, column 2: ','");
    refused(DATA_JSON, "[{\"text\":\"a\"} {\"text\":\"b\"}]", "line 1, column 15: '{'");
    refused(DATA_JSON, "[{\"text\":\"a\"}] x", "the end of the file");
    refused(DATA_JSON, "[{\"text\":\"a\n", "the end of a string");
    refused(DATA_JSON, "[}]", "line 1, column 2");
}

static void nesting_100000_deep_is_an_error(void **state)
{
    enum { DEEP = 100000 };
    static char file[2 * DEEP + 64];
    memcpy(file, "{\"text\":", 8);
    memset(file + 8, '[', DEEP);
    refused(DATA_JSONL, file, "depth");
    memset(file, '[', DEEP);
    memset(file + DEEP, ']', DEEP);
    refused(DATA_JSON, file, "depth");
}

/* The same records as lines and as an array, longer than any buffer, must read the same. */
static void random_records_read_the_same_both_ways(void **state)
{
    static const char *atoms[] = {"a", "\\\"", "\\\\", "{", "}", "[", "]", ",", " ", "\\n", "é", "日本", "\\ud83d\\ude00"};
    uint64_t seed = test_seed(), at = 0;
    text_buffer lines = {0}, array = {0}, want[2] = {{0}, {0}};
    text_buffer_append(&array, "[", 1, NULL);
    for (int r = 0; r < 300; r++) {
        text_buffer record = {0};
        text_buffer_append(&record, "{\"n\": {\"}\": [1]}, \"text\": \"", 27, NULL);
        for (int k = (int)(rng_uniform(seed, RNG_TEST, 0, at++) * 3000); k > 0; k--) {
            const char *atom = atoms[(int)(rng_uniform(seed, RNG_TEST, 0, at++) * 13)];
            text_buffer_append(&record, atom, strlen(atom), NULL);
        }
        text_buffer_append(&record, "\"}", 2, NULL);
        text_buffer_append(&lines, record.bytes, record.n, NULL);
        text_buffer_append(&lines, "\n", 1, NULL);
        text_buffer_append(&array, r ? ",\n" : "", r ? 2 : 0, NULL);
        text_buffer_append(&array, record.bytes, record.n, NULL);
        text_buffer_free(&record);
    }
    text_buffer_append(&array, "]", 1, NULL);
    pt_error e = {0};
    if (load(scratch_write("r.jsonl", lines.bytes, lines.n), DATA_JSONL, &want[0], &e) < 0 ||
        load(scratch_write("r.json", array.bytes, array.n), DATA_JSON, &want[1], &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(want[0].n, want[1].n);
    assert_memory_equal(want[0].bytes, want[1].bytes, want[0].n);
    text_buffer_free(&lines);
    text_buffer_free(&array);
    text_buffer_free(&want[0]);
    text_buffer_free(&want[1]);
}

int main(void)
{
    scratch_make();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_txt_is_one_document_byte_for_byte),
        cmocka_unit_test(a_jsonl_has_a_document_a_line),
        cmocka_unit_test(a_json_array_has_a_document_an_element),
        cmocka_unit_test(compressed_files_read_as_what_they_hold),
        cmocka_unit_test(text_with_a_nul_is_kept_whole),
        cmocka_unit_test(records_without_text_say_what_they_have),
        cmocka_unit_test(bad_json_is_named_with_line_and_column),
        cmocka_unit_test(an_array_that_is_none_is_named_with_line_and_column),
        cmocka_unit_test(nesting_100000_deep_is_an_error),
        cmocka_unit_test(random_records_read_the_same_both_ways),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
