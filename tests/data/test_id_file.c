/* Files of token ids: what is read, and what is refused with file, place and mend. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "data/id_file.h"

#include "scratch.h"

#include <fcntl.h>

static const uint16_t ids2[] = {7, 0, 65535, 50256, 3};
static const uint32_t ids4[] = {7, 0, 128000, 50256, 3};
static const int64_t ids8[] = {7, 0, 128000, 50256, 3};

/* Opens, reads all ids if that works, closes. */
static int load(const char *path, data_kind kind, int64_t vocab, uint32_t *ids, uint64_t *n, pt_error *e)
{
    id_file f;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    int rc = id_file_open(fd, path, kind, &f, e);
    if (rc == 0) {
        *n = f.n;
        rc = id_file_read(&f, 0, (size_t)f.n, vocab, ids, e);
    }
    close(fd);
    return rc;
}

static void refused(const char *path, data_kind kind, int64_t vocab, const char *because)
{
    uint32_t ids[64];
    uint64_t n;
    pt_error e = {0};
    assert_int_equal(load(path, kind, vocab, ids, &n, &e), PT_FAILED);
    if (!strstr(e.text, because) || !strstr(e.text, path))
        fail_msg("the message should name %s and say \"%s\": %s", path, because, e.text);
}

static void read_as(const char *path, data_kind kind, const uint32_t *want, uint64_t want_n)
{
    uint32_t ids[64];
    uint64_t n;
    pt_error e = {0};
    if (load(path, kind, 200000, ids, &n, &e) < 0)
        fail_msg("%s", e.text);
    assert_int_equal(n, want_n);
    assert_memory_equal(ids, want, n * sizeof *ids);
}

static const uint32_t from2[] = {7, 0, 65535, 50256, 3};

static void npy_of_every_format_and_type_is_read(void **state)
{
    const char *u2 = "{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }     \n";
    const char *u4 = "{'descr': '<u4', 'fortran_order': False, 'shape': (5,), }\n";
    const char *i4 = "{\"shape\":(5,),\"fortran_order\":False,\"descr\":\"<i4\"}";
    const char *i8 = "{'descr': '<i8', 'fortran_order': False, 'shape': (5,)}";
    for (int major = 1; major <= 3; major++) {
        read_as(scratch_npy("a.npy", major, u2, ids2, sizeof ids2), DATA_NPY, from2, 5);
        read_as(scratch_npy("a.npy", major, u4, ids4, sizeof ids4), DATA_NPY, ids4, 5);
        read_as(scratch_npy("a.npy", major, i4, ids4, sizeof ids4), DATA_NPY, ids4, 5);
        read_as(scratch_npy("a.npy", major, i8, ids8, sizeof ids8), DATA_NPY, ids4, 5);
    }
}

static void llmc_token_files_are_read(void **state)
{
    read_as(scratch_bin("a.bin", 20240520, 1, 5, ids2, sizeof ids2), DATA_BIN, from2, 5);
    read_as(scratch_bin("a.bin", 20240801, 7, 5, ids4, sizeof ids4), DATA_BIN, ids4, 5);
}

static void npy_of_another_shape_or_type_is_refused(void **state)
{
    static const struct { const char *dict, *because; } bad[] = {
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (5,1), }", "2 dimensions"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (), }", "0 dimensions"},
        {"{'descr': '<u2', 'fortran_order': True, 'shape': (5,), }", "Fortran order"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (5,), }", "'<f4'"},
        {"{'descr': '>u2', 'fortran_order': False, 'shape': (5,), }", "'>u2'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (5,), }", "'|O'"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }", "not the file's size"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }", "not the file's size"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775813,), }", "not the file's size"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999999,), }", "damaged"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (-5,), }", "damaged"},
        {"{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (5,), }", "damaged"},
        {"{'descr': '<u2', 'shape': (5,), }", "damaged"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (5,), ", "damaged"},
        {"{'descr': '<u2", "damaged"},
        {"", "damaged"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(scratch_npy("b.npy", 1, bad[i].dict, ids2, sizeof ids2), DATA_NPY, 70000, bad[i].because);
    refused(scratch_npy("b.npy", 4, "{}", ids2, sizeof ids2), DATA_NPY, 70000, "format 4.0");
    refused(scratch_text("b.npy", "\x93NUMPY\x01"), DATA_NPY, 70000, "not an .npy file");
    refused(scratch_text("b.npy", "PK\x03\x04 something else"), DATA_NPY, 70000, "not an .npy file");
    refused(scratch_write("b.npy", "\x93NUMPY\x02\x00\xff\xff\xff\x7f", 12), DATA_NPY, 70000, "damaged");
    refused(scratch_write("b.npy", "\x93NUMPY\x02\x00\xff", 9), DATA_NPY, 70000, "not an .npy file");
}

static void damaged_llmc_files_are_refused(void **state)
{
    refused(scratch_bin("b.bin", 20240520, 1, 6, ids2, sizeof ids2), DATA_BIN, 70000, "cut or damaged");
    refused(scratch_bin("b.bin", 20240520, 1, 4, ids2, sizeof ids2), DATA_BIN, 70000, "cut or damaged");
    refused(scratch_bin("b.bin", 20240520, 1, -1, ids2, sizeof ids2), DATA_BIN, 70000, "-1 ids");
    refused(scratch_bin("b.bin", 20240520, 7, 5, ids2, sizeof ids2), DATA_BIN, 70000, "version 7");
    refused(scratch_bin("b.bin", 1, 1, 5, ids2, sizeof ids2), DATA_BIN, 70000, "magic 1 ");
    refused(scratch_text("b.bin", "short"), DATA_BIN, 70000, "5 bytes");
}

static void an_id_outside_of_the_vocabulary_is_named_with_its_index(void **state)
{
    const int64_t negative[] = {1, 2, -3};
    const int32_t negative4[] = {1, -2, 3};
    refused(scratch_bin("c.bin", 20240520, 1, 5, ids2, sizeof ids2), DATA_BIN, 50257, "id 65535 at index 2");
    refused(scratch_npy("c.npy", 1, "{'descr': '<u4', 'fortran_order': False, 'shape': (5,), }", ids4, sizeof ids4),
            DATA_NPY, 50257, "id 128000 at index 2");
    refused(scratch_npy("c.npy", 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (3,), }", negative,
                        sizeof negative), DATA_NPY, 50257, "id -3 at index 2");
    refused(scratch_npy("c.npy", 1, "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }", negative4,
                        sizeof negative4), DATA_NPY, 50257, "id -2 at index 1");
}

static void any_range_of_a_large_file_is_read(void **state)
{
    enum { N = 30000 };
    static uint16_t all[N];
    static uint32_t got[N];
    for (int i = 0; i < N; i++)
        all[i] = (uint16_t)(i * 7);
    const char *path = scratch_bin("d.bin", 20240520, 1, N, all, sizeof all);
    int fd = open(path, O_RDONLY);
    id_file f;
    assert_int_equal(id_file_open(fd, path, DATA_BIN, &f, NULL), 0);
    for (uint64_t start = 0; start < N; start += 997) {
        assert_int_equal(id_file_read(&f, start, (size_t)(N - start), 65536, got, NULL), 0);
        for (uint64_t i = start; i < N; i++)
            assert_int_equal(got[i - start], all[i]);
    }
    close(fd);
}

int main(void)
{
    scratch_make();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_of_every_format_and_type_is_read),
        cmocka_unit_test(llmc_token_files_are_read),
        cmocka_unit_test(npy_of_another_shape_or_type_is_refused),
        cmocka_unit_test(damaged_llmc_files_are_refused),
        cmocka_unit_test(an_id_outside_of_the_vocabulary_is_named_with_its_index),
        cmocka_unit_test(any_range_of_a_large_file_is_read),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
