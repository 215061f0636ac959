/* A disk that reads and writes in bits, is interrupted, fails or fills up: this program's own
 * read, pread and pwrite stand before the C library's and do that on demand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/rng.h"
#include "data/dataset.h"
#include "data/documents.h"
#include "text/buffer.h"

#include "scratch.h"
#include "seed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/syscall.h>

enum { N = 40000, T = 16, VOCAB = 65536 };

static struct {
    bool on, bits;  /* inject at all; serve only a part of what is asked, with interruptions */
    long until;     /* this many calls go well, then one fails */
    int error;      /* with this errno */
    long calls;
    uint64_t seed;
} fault;

/* What is to happen to the next transfer of n bytes: how many are served, or -1 with errno. */
static ssize_t admit(size_t n)
{
    if (!fault.on)
        return (ssize_t)n;
    long call = fault.calls++;
    if (fault.error && call == fault.until) {
        errno = fault.error;
        return -1;
    }
    if (!fault.bits || n == 0)
        return (ssize_t)n;
    double u = rng_uniform(fault.seed, RNG_TEST, 5, (uint64_t)call);
    if (u < 0.2) {
        errno = EINTR;
        return -1;
    }
    return 1 + (ssize_t)(u * (double)(n - 1));
}

ssize_t read(int fd, void *p, size_t n)
{
    ssize_t k = admit(n);
    return k < 0 ? k : syscall(SYS_read, fd, p, (size_t)k);
}

ssize_t pread(int fd, void *p, size_t n, off_t at)
{
    ssize_t k = admit(n);
    return k < 0 ? k : syscall(SYS_pread64, fd, p, (size_t)k, at);
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    ssize_t k = admit(n);
    return k < 0 ? k : syscall(SYS_pwrite64, fd, p, (size_t)k, at);
}

static uint16_t ids[N];

static int open_folder(dataset **d, pt_error *e)
{
    const char *paths[] = {scratch_path("ids")};
    dataset_options o = {.paths = paths, .paths_n = 1, .cache_dir = scratch_path("cache"), .seq_len = T, .vocab = VOCAB,
                         .documents = true, .eos = -1};
    fault.calls = 0;
    return dataset_open(&o, d, e);
}

static void check_and_close(dataset *d)
{
    int32_t in[T], out[T], first[T];
    assert_int_equal(dataset_tokens(d), 2 * N);
    for (uint64_t w = 0; w < dataset_windows(d); w += 97) {
        assert_int_equal(dataset_sample(d, w, dataset_windows(d), &(dataset_row){in, out, first, NULL}, NULL, NULL), 0);
        for (uint64_t t = 0; t < T; t++)
            assert_int_equal(in[t], ids[(w * T + t) % N]);
    }
    dataset_close(d);
}

/* Removes what is in the cache folder and says how many files there were. */
static int clear_cache(void)
{
    char path[600];
    int n = 0;
    DIR *dir = opendir(scratch_path("cache"));
    for (struct dirent *x; (x = readdir(dir));)
        if (x->d_name[0] != '.') {
            snprintf(path, sizeof path, "%.200s/%s", scratch_path("cache"), x->d_name);
            unlink(path);
            n++;
        }
    closedir(dir);
    return n;
}

static void transfers_in_bits_and_interruptions_change_nothing(void **state)
{
    for (int round = 0; round < 5; round++) {
        dataset *d;
        pt_error e = {0};
        clear_cache();
        fault.on = fault.bits = true;
        fault.error = 0;
        fault.seed = test_seed() + (uint64_t)round;
        if (open_folder(&d, &e) < 0)
            fail_msg("%s", e.text);
        check_and_close(d);
        fault.on = false;
    }
}

static bool says_why(const char *text, int error)
{
    return strstr(text, strerror(error)) || (error == ENOSPC && strstr(text, "the disk is full"));
}

static void a_failure_anywhere_leaves_no_cache_and_says_why(void **state)
{
    static const int errors[] = {EIO, ENOSPC};
    for (int k = 0; k < 2; k++) {
        int failures = 0;
        dataset *d;
        for (long until = 0;; until++) {
            pt_error e = {0};
            clear_cache();
            fault.on = true;
            fault.bits = false;
            fault.error = errors[k];
            fault.until = until;
            int rc = open_folder(&d, &e);
            fault.on = false;
            if (rc == 0 && fault.calls <= until)
                break; /* the fault came after the last transfer */
            if (rc == 0) {
                dataset_close(d); /* it hit a cache that was then built again */
                continue;
            }
            assert_true(says_why(e.text, errors[k]));
            assert_non_null(strstr(e.text, scratch_dir));
            assert_int_equal(clear_cache(), 0);
            failures++;
        }
        check_and_close(d);
        assert_true(failures > 10);
    }
}

static void a_failing_read_of_a_sample_is_reported(void **state)
{
    dataset *d;
    pt_error e = {0};
    int32_t in[T], out[T], first[T];
    assert_int_equal(open_folder(&d, &e), 0);
    for (fault.until = 0; fault.until < 4; fault.until++) {
        fault.on = true;
        fault.bits = false;
        fault.error = EIO;
        fault.calls = 0;
        assert_int_equal(dataset_sample(d, 7, dataset_windows(d), &(dataset_row){in, out, first, NULL}, NULL, &e), PT_FAILED);
        fault.on = false;
        assert_non_null(strstr(e.text, "cannot be read at byte"));
    }
    dataset_close(d);
}

static int ignore_begin(void *arg, record_place at, pt_error *e)
{
    return 0;
}
static int keep_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    return text_buffer_append(arg, p, n, e);
}
static int ignore_end(void *arg, pt_error *e)
{
    return 0;
}

static void documents_survive_short_reads(void **state)
{
    static const char record[] = "{\"text\": \"some text, \\\"quoted\\\"\"}";
    static const data_kind kinds[] = {DATA_JSONL, DATA_JSON};
    for (int k = 0; k < 2; k++) {
        text_buffer file = {0}, text = {0};
        text_buffer_append(&file, "[", (size_t)k, NULL);
        for (int i = 0; i < 500; i++) {
            text_buffer_append(&file, k && i ? "," : "", k && i, NULL);
            text_buffer_append(&file, record, sizeof record - 1, NULL);
            text_buffer_append(&file, "\n", 1, NULL);
        }
        text_buffer_append(&file, "]", (size_t)k, NULL);
        int fd = open(scratch_write("short", file.bytes, file.n), O_RDONLY);
        const document_sink sink = {&text, ignore_begin, keep_text, ignore_end, NULL, 0, NULL};
        fault.on = fault.bits = true;
        fault.error = 0;
        assert_int_equal(documents_read(fd, "short", kinds[k], DOCUMENT_TEXT, &sink, NULL), 0);
        fault.on = false;
        assert_int_equal(text.n, 500 * strlen("some text, \"quoted\""));
        close(fd);
        text_buffer_free(&file);
        text_buffer_free(&text);
    }
}

int main(void)
{
    for (int i = 0; i < N; i++)
        ids[i] = (uint16_t)(i * 7 + 1);
    scratch_make();
    scratch_folder("ids");
    scratch_folder("cache");
    scratch_npy("ids/1.npy", 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (40000,), }\n", ids, sizeof ids);
    scratch_npy("ids/2.npy", 1, "{'descr': '<u2', 'fortran_order': False, 'shape': (40000,), }\n", ids, sizeof ids);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_in_bits_and_interruptions_change_nothing),
        cmocka_unit_test(a_failure_anywhere_leaves_no_cache_and_says_why),
        cmocka_unit_test(a_failing_read_of_a_sample_is_reported),
        cmocka_unit_test(documents_survive_short_reads),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove();
    return failed;
}
