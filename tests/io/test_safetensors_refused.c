/* Safetensors files that lie, are damaged or incomplete, and folders of shards. */
#include "base/json.h"
#include "io/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/seeded.h"

/* ---- lies ----------------------------------------------------------------------------------- */

/* A file of that header and `data` zero bytes; its claimed header length is off by `lie`. */
static void file_make(const char *name, const char *header, size_t data, long lie)
{
    size_t n = strlen(header);
    unsigned char *bytes = calloc(1, 8 + n + data + 1);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)(n + (unsigned long)lie) >> 8 * i);
    memcpy(bytes + 8, header, n);
    scratch_put(name, bytes, 8 + n + data);
    free(bytes);
}

static void refused(const char *path, const char *part)
{
    pt_error e = {0};
    safetensors *st;
    if (!safetensors_open(path, &st, &e))
        fail_msg("%s was taken, expected: %s", path, part);
    assert_null(st);
    if (!strstr(e.text, part) || !strstr(e.text, scratch))
        fail_msg("expected '%s', got: %s", part, e.text);
}

#define ENTRY(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void lying_headers_are_refused(void **state)
{
    (void)state;
    static const struct { const char *header; size_t data; long lie; const char *part; } lies[] = {
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "}", 12, 0, "cut off"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "}", 20, 0, "4 bytes after its last tensor"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "}", 16, 1000, "only "},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "}", 16, -1, "JSON"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "}", 16, 200000000, "at most 100000000"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "}", 16, -1000, "claims a header of 18446744073709"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 12) "}", 12, 0, "12 bytes by its data_offsets, but 16 by its shape"},
        {"{" ENTRY("a", "F32", "[2,2]", 16, 0) "}", 16, 0, "begin <= end"},
        {"{" ENTRY("a", "F32", "[2,2]", -16, 0) "}", 16, 0, "begin <= end"},
        {"{" ENTRY("a", "F32", "[2,2]", 0.0, 16.0) "}", 16, 0, "begin <= end"},
        {"{" ENTRY("a", "F32", "[2,2]", NaN, 16) "}", 16, 0, "not valid JSON"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 99999999999999999999) "}", 16, 0, "whole number"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "," ENTRY("b", "F32", "[1]", 12, 16) "}", 16, 0, "overlap"},
        {"{" ENTRY("a", "F32", "[2,2]", 0, 16) "," ENTRY("b", "F32", "[4]", 0, 16) "}", 16, 0, "overlap"},
        {"{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("b", "F32", "[1]", 8, 12) "}", 12, 0, "no tensor has the 4 bytes"},
        {"{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("a", "F32", "[1]", 4, 8) "}", 8, 0, "duplicate"},
        {"{" ENTRY("a", "F32", "[4294967296,4294967296,4]", 0, 16) "}", 16, 0, "too large"},
        {"{" ENTRY("a", "F32", "[-2,-2]", 0, 16) "}", 16, 0, "whole number"},
        {"{" ENTRY("a", "F32", "[2.5]", 0, 10) "}", 10, 0, "whole number"},
        {"{" ENTRY("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, 0, "at most 8 sizes"},
        {"{" ENTRY("a", "F32", "4", 0, 16) "}", 16, 0, "list"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", 16, 0, "lacks"},
        {"{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, 0, "lacks"},
        {"{\"a\":7}", 0, 0, "lacks"},
        {"[]", 0, 0, "a list, but an object"},
        {"", 0, 0, "claims a header of 0 bytes"},
    };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        file_make("lie.safetensors", lies[i].header, lies[i].data, lies[i].lie);
        refused(scratch_path("lie.safetensors"), lies[i].part);
    }
    scratch_put("lie.safetensors", "\1\0\0", 3);
    refused(scratch_path("lie.safetensors"), "has 3 bytes");
    refused(scratch_path("absent.safetensors"), "no such file");
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char header[] = "{" ENTRY("a", "BF16", "[3]", 0, 6) "," ENTRY("b", "F32", "[2]", 6, 14) "}";
    unsigned char bytes[8 + sizeof header + 14] = {sizeof header - 1};
    memcpy(bytes + 8, header, sizeof header - 1);
    size_t whole = 8 + sizeof header - 1 + 14;
    pt_error e = {0};
    safetensors *st;
    for (size_t n = 0; n < whole; n++) {
        scratch_put("cut.safetensors", bytes, n);
        refused(scratch_path("cut.safetensors"), "cut.safetensors");
    }
    scratch_put("cut.safetensors", bytes, whole);
    assert_int_equal(safetensors_open(scratch_path("cut.safetensors"), &st, &e), 0);
    safetensors_close(st);
}

static void a_file_that_shrinks_after_opening_is_noticed(void **state)
{
    (void)state;
    pt_error e = {0};
    safetensors *st;
    char data[16];
    file_make("shrink.safetensors", "{" ENTRY("a", "F32", "[4]", 0, 16) "}", 16, 0);
    assert_int_equal(safetensors_open(scratch_path("shrink.safetensors"), &st, &e), 0);
    assert_int_equal(truncate(scratch_path("shrink.safetensors"), 70), 0);
    assert_int_equal(safetensors_read(st, safetensors_at(st, 0), 0, 16, data, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "tensor \"a\""));
    assert_non_null(strstr(e.text, "cut off"));
    safetensors_close(st);
}

static void an_unknown_dtype_is_an_error_only_where_it_is_used(void **state)
{
    (void)state;
    pt_error e = {0};
    safetensors *st;
    float x[4];
    file_make("odd.safetensors", "{" ENTRY("a", "F6_STRANGE", "[4]", 0, 3) "," ENTRY("b", "F32", "[1]", 3, 7) ","
              ENTRY("c", "BOOL", "[2]", 7, 9) "," ENTRY("d", "I32", "[1]", 9, 13) "}", 13, 0);
    assert_int_equal(safetensors_open(scratch_path("odd.safetensors"), &st, &e), 0);
    assert_int_equal(safetensors_read_f32(st, safetensors_find(st, "b"), 0, 1, x, &e), 0);
    assert_int_equal(safetensors_read(st, safetensors_find(st, "a"), 0, 3, x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "F6_STRANGE"));
    assert_int_equal(safetensors_read_f32(st, safetensors_find(st, "a"), 0, 4, x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "F6_STRANGE"));
    assert_int_equal(safetensors_read_f32(st, safetensors_find(st, "c"), 0, 2, x, &e), PT_FAILED);
    assert_int_equal(safetensors_read_f32(st, safetensors_find(st, "d"), 0, 1, x, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "I32"));
    safetensors_close(st);
}

static void an_empty_model_has_no_tensors(void **state)
{
    (void)state;
    pt_error e = {0};
    safetensors *st;
    file_make("empty.safetensors", "{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0);
    assert_int_equal(safetensors_open(scratch_path("empty.safetensors"), &st, &e), 0);
    assert_int_equal(safetensors_count(st), 0);
    assert_null(safetensors_find(st, "a"));
    safetensors_close(st);
}

/* ---- shards --------------------------------------------------------------------------------- */

static void put_text(const char *name, const char *text) { scratch_put(name, text, strlen(text)); }

static void indexes_that_do_not_hold_are_refused(void **state)
{
    (void)state;
    const char *index = scratch_path("s.index.json");
    file_make("s1", "{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("extra", "F32", "[1]", 4, 8) "}", 8, 0);
    file_make("s2", "{" ENTRY("b", "F32", "[1]", 0, 4) "," ENTRY("a", "F32", "[2]", 4, 12) "}", 12, 0);
    static const struct { const char *text, *part; } bad[] = {
        {"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s3\"}}", "s3: this shard, which"},
        {"{\"weight_map\":{\"a\":\"../s1\"}}", "in the same folder, not ../s1"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "in the same folder"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "in the same folder"},
        {"{\"weight_map\":{\"a\":\"\"}}", "in the same folder"},
        {"{\"weight_map\":{\"a\":7}}", "an integer"},
        {"{\"weight_map\":{\"a\":\"s1\",\"a\":\"s2\"}}", "duplicate"},
        {"{\"weight_map\":{}}", "weight_map"}, {"{\"weight_map\":[]}", "weight_map"}, {"[]", "weight_map"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        put_text("s.index.json", bad[i].text);
        refused(index, bad[i].part);
    }
    pt_error e = {0};
    safetensors *st;
    put_text("s.index.json", "{\"weight_map\":{\"a\":\"s2\",\"b\":\"s2\",\"extra\":\"s1\"}}");
    assert_int_equal(safetensors_open(index, &st, &e), 0);
    assert_int_equal(safetensors_count(st), 3);
    assert_int_equal(safetensors_find(st, "a")->elements, 2); /* the one that the index means */
    assert_string_equal(safetensors_path(st, safetensors_find(st, "extra")), scratch_path("s1"));
    safetensors_close(st);
}

/* It opens, for a model may do without the tensor; who asks is told. */
static void what_an_index_promises_and_no_shard_has_is_told(void **state)
{
    (void)state;
    static const char *const maps[][2] = {{"{\"weight_map\":{\"a\":\"s1\",\"b\":\"s1\"}}", "b"},
                                          {"{\"weight_map\":{\"a\":\"s1\",\"c\":\"s2\"}}", "c"}};
    file_make("s1", "{" ENTRY("a", "F32", "[1]", 0, 4) "," ENTRY("extra", "F32", "[1]", 4, 8) "}", 8, 0);
    file_make("s2", "{" ENTRY("b", "F32", "[1]", 0, 4) "," ENTRY("a", "F32", "[2]", 4, 12) "}", 12, 0);
    for (int i = 0; i < 2; i++) {
        char wanted[64];
        pt_error e = {0};
        safetensors *st;
        put_text("s.index.json", maps[i][0]);
        assert_int_equal(safetensors_open(scratch_path("s.index.json"), &st, &e), 0);
        assert_null(safetensors_find(st, maps[i][1]));
        assert_int_equal(safetensors_check_index(st, maps[i][1], &e), 0);
        assert_int_equal(safetensors_check_index(st, "other", &e), PT_FAILED);
        snprintf(wanted, sizeof wanted, "s%d: the index says that \"%s\" is in this file", i + 1, maps[i][1]);
        assert_non_null(strstr(e.text, wanted));
        safetensors_close(st);
    }
}

static void a_git_lfs_pointer_is_called_that(void **state)
{
    (void)state;
    static const char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 12345\n";
    pt_error e = {0};
    json_t *o;
    put_text("pointer.safetensors", text);
    refused(scratch_path("pointer.safetensors"), "pointer.safetensors: is a Git LFS pointer");
    put_text("pointer.json", text);
    assert_int_equal(json_file_load(scratch_path("pointer.json"), 0, &o, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "pointer.json: is a Git LFS pointer"));
}

static void a_folder_without_weights_is_told_apart(void **state)
{
    (void)state;
    char folder[256];
    pt_error e = {0};
    safetensors *st;
    snprintf(folder, sizeof folder, "%s", scratch_path("bare"));
    assert_int_equal(dir_make(folder, &e), 0);
    assert_false(safetensors_present(folder));
    assert_int_equal(safetensors_open(folder, &st, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "neither model.safetensors nor"));
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "flax_model.msgpack",
                                         "consolidated.00.pth", "model-Q4_K_M.gguf"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        char path[64];
        snprintf(path, sizeof path, "bare/%s", others[i]);
        put_text(path, "x");
        assert_int_equal(safetensors_open(folder, &st, &e), PT_FAILED);
        assert_true(strstr(e.text, others[i]) && strstr(e.text, "save the model as safetensors"));
        assert_true(safetensors_present(folder)); /* what cannot be read is not taken for none */
        assert_int_equal(remove(scratch_path(path)), 0);
    }
    file_make("bare/model.safetensors", "{}", 0, 0);
    assert_true(safetensors_present(folder));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lying_headers_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(a_file_that_shrinks_after_opening_is_noticed),
        cmocka_unit_test(an_unknown_dtype_is_an_error_only_where_it_is_used),
        cmocka_unit_test(an_empty_model_has_no_tensors),
        cmocka_unit_test(indexes_that_do_not_hold_are_refused),
        cmocka_unit_test(what_an_index_promises_and_no_shard_has_is_told),
        cmocka_unit_test(a_git_lfs_pointer_is_called_that),
        cmocka_unit_test(a_folder_without_weights_is_told_apart),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
