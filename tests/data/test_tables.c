/* Parquet and Arrow as pyarrow writes them (tests/fixtures/make_tables.py): the same records as from .jsonl; cut off or changed anywhere, a
 * file is read or refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"

#define LLVMFuzzerTestOneInput fuzz_table
#include "../../fuzz/fuzz_table.c"
#include "sanitized.h"
#include "seed.h"

#include "data/flat.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

enum { ROWS_MOST = 64 };
typedef struct rows { json_t *row[ROWS_MOST]; size_t n; } rows;

static int keep_begin(void *arg, record_place at, pt_error *e) { return 0; }
static int keep_end(void *arg, pt_error *e) { return 0; }
static int keep_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    rows *r = arg;
    assert_true(r->n < ROWS_MOST);
    return record_parse("a row", (record_place){r->n + 1, 0}, p, n, &r->row[r->n++], e);
}

static rows rows_of(const char *folder, const char *name)
{
    rows r = {0};
    char path[600];
    data_kind kind;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    const int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(data_kind_of(path, &kind), 0);
    if (documents_read(fd, path, kind, DOCUMENT_RECORD, &(document_sink){&r, keep_begin, keep_text, keep_end, NULL, 0, NULL}, &e))
        fail_msg("%s: %s", path, e.text);
    close(fd);
    return r;
}

static void free_rows(rows *r)
{
    for (size_t k = 0; k < r->n; k++)
        json_decref(r->row[k]);
}

/* PT_TABLES=DIR reads the folder that make_tables.py --all wrote. */
static void rows_are_those_of_jsonl(void **state)
{
    const char *folder = getenv("PT_TABLES") ? getenv("PT_TABLES") : PT_FIXTURES "/tables";
    rows want = rows_of(folder, "rows.jsonl");
    assert_int_equal(want.n, 23);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int files = 0;
    for (struct dirent *d; (d = readdir(dir));) {
        if ((!strstr(d->d_name, ".parquet") && !strstr(d->d_name, ".arrow")) || !strncmp(d->d_name, "refused", 7))
            continue;
        rows got = rows_of(folder, d->d_name);
        assert_int_equal(got.n, want.n);
        for (size_t k = 0; k < got.n; k++)
            if (!json_equal(got.row[k], want.row[k]))
                fail_msg("%s: row %zu: %s", d->d_name, k + 1, json_dumps(got.row[k], 0));
        free_rows(&got);
        files++;
    }
    closedir(dir);
    free_rows(&want);
    print_message("%d files\n", files);
    assert_true(files >= TABLE_FILES);
}

static void types_that_are_not_read_are_named(void **state)
{
    static uint8_t file[TABLE_BYTES];
    table_tally given;
    pt_error e = {0};
    const size_t n = table_load("refused_union.arrow", file);
    assert_int_equal(table_read(DATA_ARROW, file, n, &given, &e), PT_FAILED);
    assert_string_equal(e.text, "fuzz: column \"answer\" has a union, which is not supported: write it as text, numbers, lists or structs");
}

/* Of 9 KiB each, with one text of 272 MiB: in a batch, in a dictionary. */
static void small_files_do_not_unpack_to_any_size(void **state)
{
    static const char *const names[] = {"refused_packed.arrow", "refused_dictionary.arrow"};
    static uint8_t file[TABLE_BYTES];
    table_tally given;
    for (int i = 0; i < 2; i++) {
        pt_error e = {0};
        const size_t n = table_load(names[i], file);
        assert_int_equal(table_read(DATA_ARROW, file, n, &given, &e), PT_FAILED);
        if (!strstr(e.text, "near row 1, ") || !strstr(e.text, "unpacks to more than 256 MiB: write the file with fewer rows in a batch"))
            fail_msg("%s: %s", names[i], e.text);
    }
}

/* Sizes of buffers that their bytes cannot have, with no memory for them. */
static void sizes_that_cannot_be_are_refused_before_they_are_allocated(void **state)
{
    static const struct { const char *name; uint32_t mark; } all[] = {{"lz4.arrow", 0x184d2204}, {"zstd.arrow", 0xfd2fb528}};
    enum { CLAIM = 1 << 29 };
    static uint8_t file[TABLE_BYTES];
    table_tally given;
    struct rlimit was, less;
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    less = (struct rlimit){SANITIZED ? was.rlim_cur : 1ull << 28, was.rlim_max};
    for (int i = 0; i < 2; i++) {
        pt_error e = {0};
        const size_t n = table_load(all[i].name, file);
        size_t at = 8;
        while (at + 4 < n && memcmp(file + at, &all[i].mark, 4))
            at++;
        assert_true(at + 4 < n);
        memcpy(file + at - 8, &(int64_t){CLAIM}, 8); /* before a buffer's bytes is its size */
        assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
        const int failed = table_read(DATA_ARROW, file, n, &given, &e);
        assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
        assert_int_equal(failed, PT_FAILED);
        if (!strstr(e.text, "a buffer of this Arrow file is damaged"))
            fail_msg("%s: %s", all[i].name, e.text);
    }
}

/* Copies the messages of a stream, but those of one type. */
static size_t without_messages(const uint8_t *file, size_t n, uint64_t type, uint8_t *out)
{
    size_t at = 0, copied = 0;
    while (at + 8 <= n) {
        uint32_t metadata;
        memcpy(&metadata, file + at + 4, 4);
        flat f = {.p = file + at + 8, .n = metadata};
        const size_t message = metadata ? flat_follow(&f, 0) : 0;
        const size_t size = 8 + metadata + (message ? (size_t)flat_number(&f, message, 3, 8, 0) : 0);
        if (!message || flat_number(&f, message, 1, 1, 0) != type) {
            memcpy(out + copied, file + at, size);
            copied += size;
        }
        at += size;
    }
    return copied;
}

static void indices_without_a_dictionary_are_refused(void **state)
{
    enum { DICTIONARIES = 2, NO_TYPE = 99 };
    static uint8_t file[TABLE_BYTES], less[TABLE_BYTES];
    table_tally given;
    pt_error e = {0};
    const size_t n = table_load("replaced.arrow", file);
    assert_int_equal(table_read(DATA_ARROW, less, without_messages(file, n, NO_TYPE, less), &given, &e), 0);
    assert_int_equal(table_read(DATA_ARROW, less, without_messages(file, n, DICTIONARIES, less), &given, &e), PT_FAILED);
    if (!strstr(e.text, "row 1: column \"") || !strstr(e.text, "has an index that no dictionary before it has"))
        fail_msg("%s", e.text);
}

static void files_that_are_cut_off_are_refused(void **state)
{
    static uint8_t file[TABLE_BYTES];
    for (int i = 0; i < TABLE_FILES; i++) {
        const size_t n = table_load(table_files[i].name, file);
        for (size_t cut = 0; cut < n; cut += 1 + n / 400) {
            table_tally given;
            pt_error e = {0};
            assert_int_equal(table_read(table_files[i].kind, file, cut, &given, &e), PT_FAILED);
            if (strncmp(e.text, "fuzz: ", 6))
                fail_msg("the message should name the file: %s", e.text);
        }
    }
}

/* With checksums, a file whose pages were changed is refused, or the change means nothing: it lies in a page's header. */
static void changed_pages_are_refused_by_their_checksum(void **state)
{
    static uint8_t file[TABLE_BYTES], changed[TABLE_BYTES];
    const size_t n = table_load("snappy.parquet", file);
    table_tally whole, given;
    int refused = 0;
    uint32_t footer;
    memcpy(&footer, file + n - 8, 4);
    assert_int_equal(table_read(DATA_PARQUET, file, n, &whole, NULL), 0);
    for (size_t at = 4; at < n - 8 - footer; at += 3) {
        pt_error e = {0};
        memcpy(changed, file, n);
        changed[at] ^= 0x10;
        if (table_read(DATA_PARQUET, changed, n, &given, &e) == 0)
            assert_memory_equal(&given, &whole, sizeof whole);
        refused += e.text[0] != 0;
    }
    assert_true(refused > 500);
}

static void mutated_tables_are_read_or_refused(void **state)
{
    const uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 4000; i++) {
        uint8_t input[1 + 3 * 8];
        uint32_t words[8];
        for (uint32_t k = 0; k < 2; k++)
            rng_words(seed, RNG_TEST, k, i, words + 4 * k);
        for (size_t k = 0; k < sizeof input; k++)
            input[k] = (uint8_t)(words[k % 8] >> k / 8 * 8);
        input[0] = (uint8_t)(i % TABLE_FILES);
        fuzz_table(input, 1 + 3 * (1 + input[1] % 8));
    }
}

static void other_files_are_named_for_what_they_are(void **state)
{
    static const struct { const char *bytes, *because; } files[] = {
        {"", "not a Parquet file"}, {"text", "not a Parquet file"}, {"PAR1", "cut off"}, {"PAR1, and so on: cut", "cut off"},
        {"PAR1........\1\1\1\1PARE", "encrypted"}, {"PAR1\xff\xff\xff\x7fPAR1", "footer"}, {"PAR1\0\0\0\0PAR1", "footer"},
        {"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n", "Git LFS"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        table_tally given;
        pt_error e = {0};
        const size_t n = i == 6 ? 12 : strlen(files[i].bytes);
        assert_int_equal(table_read(DATA_PARQUET, files[i].bytes, n, &given, &e), PT_FAILED);
        if (!strstr(e.text, files[i].because))
            fail_msg("the message should say \"%s\": %s", files[i].because, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_jsonl),
        cmocka_unit_test(types_that_are_not_read_are_named),
        cmocka_unit_test(small_files_do_not_unpack_to_any_size),
        cmocka_unit_test(sizes_that_cannot_be_are_refused_before_they_are_allocated),
        cmocka_unit_test(indices_without_a_dictionary_are_refused),
        cmocka_unit_test(files_that_are_cut_off_are_refused),
        cmocka_unit_test(changed_pages_are_refused_by_their_checksum),
        cmocka_unit_test(mutated_tables_are_read_or_refused),
        cmocka_unit_test(other_files_are_named_for_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
