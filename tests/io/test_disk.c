#include "base/rng.h"
#include "io/disk_rows.h"
#include "seed.h"

#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { FILE_BYTES = 8 << 20, BUFFER_BYTES = 3 << 20, ROUNDS = 300 };

static char folder[] = "/var/tmp/pt-disk-XXXXXX"; /* /tmp may be a tmpfs, without O_DIRECT */
static uint64_t seed;

static uint32_t draw(uint64_t i, int which, uint32_t below)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, (uint32_t)which, i, w);
    return w[0] % below;
}

/* Made once, and parts of it copied: under a sanitizer, loops over bytes are slow. */
static unsigned char row[BUFFER_BYTES + ROUNDS];
static void row_make(void)
{
    for (size_t k = 0; k < sizeof row; k++)
        row[k] = (unsigned char)(k * 2654435761u >> 13);
}

static void fill(unsigned char *p, size_t n, uint64_t i) { memcpy(p, row + i, n); }

/* The first of n bytes that is not `byte`; n: all are. */
static size_t other_than(const unsigned char *p, size_t n, unsigned char byte)
{
    if (!n || (p[0] == byte && !memcmp(p, p + 1, n - 1)))
        return n;
    size_t k = 0;
    while (p[k] == byte)
        k++;
    return k;
}

/* The first of n bytes that is known and differs; n: none. */
static size_t first_difference(const unsigned char *a, const unsigned char *b, const unsigned char *known, size_t n)
{
    for (size_t page = 0, end; page < n; page = end) {
        end = page + DISK_ALIGN < n ? page + DISK_ALIGN : n;
        if (other_than(known + page, end - page, 1) == end - page && !memcmp(a + page, b + page, end - page))
            continue;
        for (size_t k = page; k < end; k++)
            if (known[k] && a[k] != b[k])
                return k;
    }
    return n;
}

static disk_file *open_file(const char *where, uint64_t bytes, const disk_options *o)
{
    pt_error e = {0};
    disk_file *f;
    if (disk_open(where, bytes, o, &f, &e))
        fail_msg("%s", e.text);
    return f;
}

static disk_channel *open_channel(disk_file *f)
{
    pt_error e = {0};
    disk_channel *c;
    if (disk_channel_open(f, &c, &e))
        fail_msg("%s", e.text);
    return c;
}

/* Random writes and reads of any size against a copy in memory that is kept beside. */
static void mirror_run(const char *where, const disk_options *o, int rounds)
{
    pt_error e = {0};
    disk_file *f = open_file(where, FILE_BYTES, o);
    disk_channel *c = open_channel(f);
    unsigned char *buffer = aligned_alloc(DISK_ALIGN, BUFFER_BYTES), *mirror = malloc(FILE_BYTES);
    unsigned char *known = calloc(1, FILE_BYTES); /* bytes of the file that are defined */
    print_message("direct %d, io_uring %d, seed %llu\n", disk_is_direct(f), disk_channel_has_uring(c),
                  (unsigned long long)seed);
    for (int i = 0; i < rounds; i++) {
        uint64_t offset = (uint64_t)draw(i, 0, FILE_BYTES / DISK_ALIGN) * DISK_ALIGN;
        size_t n = draw(i, 1, 4) ? draw(i, 2, BUFFER_BYTES) : draw(i, 2, 20000), end;
        if (n > FILE_BYTES - offset)
            n = FILE_BYTES - offset;
        end = (n + DISK_ALIGN - 1) / DISK_ALIGN * DISK_ALIGN;
        if (draw(i, 3, 2)) {
            fill(buffer, n, (uint64_t)i);
            if (disk_write(c, offset, buffer, n, &e))
                fail_msg("%s", e.text);
            memcpy(mirror + offset, buffer, n);
            memset(known + offset, 1, n);
            memset(known + offset + n, 0, end - n);
        } else {
            memset(buffer, 0xA5, BUFFER_BYTES);
            if (disk_read(c, offset, buffer, n, &e))
                fail_msg("%s", e.text);
            size_t differs = first_difference(buffer, mirror + offset, known + offset, n);
            if (differs < n)
                fail_msg("round %d: byte %zu of a read of %zu at %llu differs", i, differs, n, (unsigned long long)offset);
            size_t beyond = n + other_than(buffer + n, BUFFER_BYTES - n, 0xA5);
            if (beyond < BUFFER_BYTES)
                fail_msg("round %d: a read of %zu bytes wrote byte %zu", i, n, beyond);
        }
    }
    free(buffer);
    free(mirror);
    free(known);
    disk_channel_close(c);
    disk_close(f);
}

static void what_was_written_is_read_back(void **state)
{
    (void)state;
    mirror_run(folder, NULL, ROUNDS);
}

static void every_fallback_gives_the_same_bytes(void **state)
{
    (void)state;
    for (int k = 1; k < 4; k++)
        mirror_run(folder, &(disk_options){.no_direct = k & 1, .no_uring = k & 2}, 100);
    mirror_run(folder, &(disk_options){.piece_bytes = 4096, .depth = 1}, 40);
    mirror_run(folder, &(disk_options){.piece_bytes = 5000, .depth = 64}, 40);
    mirror_run("/dev/shm", NULL, 100);
}

typedef struct fault_plan { uint64_t calls; int one_in, kind; } fault_plan;

/* Short transfers (down to odd byte counts), EINTR, EAGAIN; with `kind` the given error. */
static int fault(void *context, bool is_write, uint64_t offset, size_t bytes, int result)
{
    (void)is_write;
    (void)offset;
    fault_plan *plan = context;
    uint64_t i = plan->calls++;
    if (result < 0 || draw(i, 10, (uint32_t)plan->one_in))
        return result;
    if (plan->kind)
        return plan->kind > 0 ? 0 : plan->kind;
    switch (draw(i, 11, 4)) {
    case 0: return -EINTR;
    case 1: return -EAGAIN;
    default: return 1 + (int)draw(i, 12, (uint32_t)bytes);
    }
}

/* ---- rows of a table ---- */

typedef struct table { size_t row_bytes; int64_t rows, row0, n; uint64_t offset; int32_t ids[600]; } table;

/* Rows of 4 bytes and of many, numbers that come again, numbers of other rows. */
static table draw_table(uint64_t i)
{
    table t = {.row_bytes = 4 * (1 + draw(i, 20, draw(i, 21, 2) ? 4000 : 20)), .row0 = draw(i, 22, 50), .offset = 4 * draw(i, 23, 5000)};
    t.rows = 1 + draw(i, 24, 300);
    t.n = 1 + draw(i, 25, sizeof t.ids / sizeof *t.ids);
    for (int64_t k = 0; k < t.n; k++)
        t.ids[k] = (int32_t)draw(i * 1000 + (uint64_t)k, 26, (uint32_t)(t.row0 + t.rows + 20));
    return t;
}

static void check_rows(const table *t, const unsigned char *out)
{
    for (int64_t k = 0; k < t->n; k++) {
        const bool has = t->ids[k] >= t->row0 && t->ids[k] < t->row0 + t->rows;
        const unsigned char *is = out + (size_t)k * t->row_bytes;
        const size_t at = t->offset + (size_t)(t->ids[k] - t->row0) * t->row_bytes;
        if (has ? memcmp(is, row + at, t->row_bytes) : other_than(is, t->row_bytes, 0xA5) < t->row_bytes)
            fail_msg("row %lld of %lld, number %d of %zu bytes", (long long)k, (long long)t->n, t->ids[k], t->row_bytes);
    }
}

static void read_rows(const disk_options *o, int rounds)
{
    pt_error e = {0};
    disk_file *f = open_file(folder, FILE_BYTES, o);
    disk_channel *c = open_channel(f);
    unsigned char *out = malloc(600 * 16000), *all = aligned_alloc(DISK_ALIGN, BUFFER_BYTES);
    memcpy(all, row, BUFFER_BYTES);
    if (disk_write(c, 0, all, BUFFER_BYTES, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < rounds; i++) {
        table t = draw_table((uint64_t)i);
        disk_rows *r;
        while (t.offset + (uint64_t)t.rows * t.row_bytes > BUFFER_BYTES)
            t.rows = (t.rows + 1) / 2;
        memset(out, 0xA5, (size_t)t.n * t.row_bytes);
        assert_int_equal(disk_rows_open(c, t.row_bytes, t.n, &r, &e), 0);
        if (disk_rows_read(r, &(disk_table){t.offset, t.row0, t.rows}, t.ids, t.n, out, &e))
            fail_msg("%s", e.text);
        check_rows(&t, out);
        disk_rows_close(r);
    }
    free(out);
    free(all);
    disk_channel_close(c);
    disk_close(f);
}

static void rows_of_a_table_are_read_by_their_numbers(void **state)
{
    (void)state;
    fault_plan plan = {.one_in = 3};
    read_rows(NULL, 60);
    read_rows(&(disk_options){.no_direct = true, .no_uring = true}, 30);
    read_rows(&(disk_options){.piece_bytes = 4096, .depth = 3}, 20);
    read_rows(&(disk_options){.fault = fault, .context = &plan}, 20);
}

static void a_row_that_cannot_be_read_is_an_error(void **state)
{
    (void)state;
    fault_plan plan = {.one_in = 1, .kind = -EIO, .calls = 0};
    pt_error e = {0};
    disk_file *f = open_file(folder, FILE_BYTES, &(disk_options){.fault = fault, .context = &plan});
    disk_channel *c = open_channel(f);
    disk_rows *r;
    char out[64];
    assert_int_equal(disk_rows_open(c, 16, 3, &r, &e), 0);
    assert_int_equal(disk_rows_read(r, &(disk_table){8192, 0, 100}, (int32_t[]){5, 7, 5}, 3, out, &e), PT_FAILED);
    assert_non_null(strstr(e.text, folder));
    assert_int_equal(disk_rows_read(r, &(disk_table){8192, 0, 100}, (int32_t[]){5, 7, 5, 1}, 4, out, &e), PT_USAGE);
    plan.one_in = 1 << 30;
    plan.calls = 1000000; /* no more faults */
    memset(out, 0xA5, sizeof out);
    assert_int_equal(disk_rows_read(r, &(disk_table){8192, 0, 100}, (int32_t[]){500, 99, 100}, 3, out, &e), 0);
    assert_int_equal(other_than((unsigned char *)out, 16, 0xA5), 16);
    assert_int_equal(other_than((unsigned char *)out + 16, 16, 0), 16); /* the file's blocks are new */
    assert_int_equal(other_than((unsigned char *)out + 32, 16, 0xA5), 16);
    disk_rows_close(r);
    disk_channel_close(c);
    disk_close(f);
}

static void short_transfers_and_interruptions_are_resumed(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        fault_plan plan = {.one_in = 2};
        mirror_run(folder, &(disk_options){.fault = fault, .context = &plan, .no_uring = plain, .piece_bytes = 65536}, 60);
        assert_true(plan.calls > 100);
    }
}

static void an_error_is_reported_and_the_channel_goes_on(void **state)
{
    (void)state;
    static const struct { int kind; const char *text; } kinds[] = {
        {-EIO, "Input/output error"}, {-ENOSPC, "No space left"}, {1, "Input/output error"}};
    for (int k = 0; k < 6; k++) {
        fault_plan plan = {.one_in = 4, .kind = kinds[k / 2].kind};
        disk_file *f = open_file(folder, FILE_BYTES, &(disk_options){.fault = fault, .context = &plan,
                                 .no_uring = k & 1, .piece_bytes = 16384, .depth = 8});
        disk_channel *c = open_channel(f);
        unsigned char *buffer = aligned_alloc(DISK_ALIGN, BUFFER_BYTES);
        memset(buffer, 1, BUFFER_BYTES);
        int failures = 0;
        for (int i = 0; i < 20; i++) {
            pt_error e = {0};
            if (!(i & 1 ? disk_read(c, 4096, buffer, BUFFER_BYTES, &e) : disk_write(c, 4096, buffer, BUFFER_BYTES, &e)))
                continue;
            failures++;
            assert_int_equal(e.code, PT_FAILED);
            if (!strstr(e.text, kinds[k / 2].text) || !strstr(e.text, folder) || !strstr(e.text, "at byte"))
                fail_msg("%s", e.text);
        }
        assert_true(failures > 0);
        plan.one_in = 1 << 30;
        plan.calls = 1000000; /* no more faults */
        pt_error e = {0};
        fill(buffer, BUFFER_BYTES, 7);
        if (disk_write(c, 0, buffer, BUFFER_BYTES, &e))
            fail_msg("%s", e.text);
        unsigned char *back = aligned_alloc(DISK_ALIGN, BUFFER_BYTES);
        if (disk_read(c, 0, back, BUFFER_BYTES, &e))
            fail_msg("%s", e.text);
        assert_memory_equal(buffer, back, BUFFER_BYTES);
        free(back);
        free(buffer);
        disk_channel_close(c);
        disk_close(f);
    }
}

static int always_stalls(void *context, bool is_write, uint64_t offset, size_t bytes, int result)
{
    (void)context, (void)is_write, (void)offset, (void)bytes, (void)result;
    return 1;
}

static void a_disk_without_progress_is_given_up(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        disk_file *f = open_file(folder, 65536, &(disk_options){.fault = always_stalls, .no_uring = plain});
        disk_channel *c = open_channel(f);
        unsigned char *buffer = aligned_alloc(DISK_ALIGN, 65536);
        pt_error e = {0};
        assert_int_equal(disk_read(c, 0, buffer, 65536, &e), PT_FAILED);
        free(buffer);
        disk_channel_close(c);
        disk_close(f);
    }
}

typedef struct worker { disk_file *f; uint64_t base; int which, failed; } worker;

static void *worker_run(void *argument)
{
    worker *w = argument;
    pt_error e = {0};
    disk_channel *reads, *writes;
    if (disk_channel_open(w->f, &reads, &e) || disk_channel_open(w->f, &writes, &e))
        return w->failed = 1, NULL;
    size_t n = 1 << 20;
    unsigned char *out = aligned_alloc(DISK_ALIGN, n), *in = aligned_alloc(DISK_ALIGN, n);
    for (int i = 0; i < 30 && !w->failed; i++) {
        fill(out, n, (uint64_t)(i * 4 + w->which));
        w->failed = disk_write(writes, w->base, out, n - 100, &e) || disk_read(reads, w->base, in, n - 100, &e) ||
                    memcmp(in, out, n - 100);
    }
    free(out);
    free(in);
    disk_channel_close(reads);
    disk_channel_close(writes);
    return NULL;
}

static void channels_of_several_threads_share_a_file(void **state)
{
    (void)state;
    disk_file *f = open_file(folder, 4 << 20, &(disk_options){.piece_bytes = 65536});
    worker w[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        w[i] = (worker){f, (uint64_t)i << 20, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &w[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_false(w[i].failed);
    disk_close(f);
}

static void wrong_alignment_and_bounds_are_refused(void **state)
{
    (void)state;
    pt_error e = {0};
    disk_file *f = open_file(folder, 10000, NULL);
    disk_channel *c = open_channel(f);
    unsigned char *b = aligned_alloc(DISK_ALIGN, 32768);
    memset(b, 0, 32768);
    assert_int_equal(disk_bytes(f), 12288);
    assert_int_equal(disk_read(c, 512, b, 100, &e), PT_USAGE);
    assert_int_equal(disk_read(c, 0, b + 64, 100, &e), PT_USAGE);
    assert_int_equal(disk_write(c, 8192, b, 4097, &e), PT_USAGE);
    assert_int_equal(disk_write(c, 1ull << 63, b, 1, &e), PT_USAGE);
    assert_int_equal(disk_write(c, 8192, b, SIZE_MAX, &e), PT_USAGE);
    assert_int_equal(disk_write(c, 8192, b, 4096, &e), 0);
    assert_int_equal(disk_write(c, 12288, b, 0, &e), 0);
    free(b);
    disk_channel_close(c);
    disk_close(f);
}

static void a_limit_of_a_file_s_size_is_named(void **state)
{
    (void)state;
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    struct rlimit before, little;
    disk_file *f;
    pt_error e = {0};
    uint64_t room;
    getrlimit(RLIMIT_FSIZE, &before);
    if (before.rlim_max != all.rlim_max)
        skip();
    setrlimit(RLIMIT_FSIZE, &all);
    assert_int_equal(disk_room_bytes(folder, &room, &e), 0);
    assert_true(disk_file_limit() == UINT64_MAX && room > 1 << 20);
    little = (struct rlimit){1 << 20, all.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &little);
    int failed = disk_room_bytes(folder, &room, &e), refused = disk_open(folder, 2 << 20, NULL, &f, &e);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(failed, 0);
    assert_int_equal(room, 1 << 20);
    assert_int_equal(refused, PT_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "ulimit -f"));
}

static void a_disk_without_room_is_refused_with_the_bytes(void **state)
{
    (void)state;
    pt_error e = {0};
    disk_file *f;
    assert_int_equal(disk_open(folder, 1ull << 60, NULL, &f, &e), PT_DOES_NOT_FIT);
    assert_null(f);
    assert_non_null(strstr(e.text, "needs 1.00 EiB, "));
    assert_non_null(strstr(e.text, "`disk_path`"));
    assert_int_equal(disk_open("/proc/nowhere", 4096, NULL, &f, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "/proc/nowhere"));
    assert_int_equal(disk_open(folder, UINT64_MAX, NULL, &f, &e), PT_USAGE);
}

static void the_scratch_file_holds_its_blocks_and_has_no_name(void **state)
{
    (void)state;
    disk_file *f = open_file(folder, FILE_BYTES, NULL);
    char command[128];
    snprintf(command, sizeof command, "test -z \"$(ls -A %s)\"", folder);
    assert_int_equal(system(command), 0);
    disk_close(f);
}

/* ulimit -l 0, and no privilege that would pass over it. */
static bool lock_nothing(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {0};
    static char page[2 * DISK_ALIGN];
    return !setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){0, 0}) && !syscall(SYS_capset, &header, none) &&
           syscall(SYS_mlock, page, sizeof page); /* mlock() does nothing under sanitizers */
}

static bool there_and_back(void)
{
    disk_file *f;
    disk_channel *c;
    char *out = aligned_alloc(DISK_ALIGN, 1 << 20), *in = aligned_alloc(DISK_ALIGN, 1 << 20);
    memset(out, 7, 1 << 20);
    return !disk_open(folder, 1 << 20, NULL, &f, NULL) && !disk_channel_open(f, &c, NULL) && !disk_write(c, 0, out, 1 << 20, NULL) &&
           !disk_read(c, 0, in, 1 << 20, NULL) && !memcmp(out, in, 1 << 20);
}

/* Older kernels count a ring against it; buffers are never registered. */
static void where_no_memory_may_be_locked_there_is_a_disk_all_the_same(void **state)
{
    (void)state;
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        _exit(!lock_nothing() ? 2 : !there_and_back());
    int status;
    assert_true(waitpid(child, &status, 0) == child);
    assert_int_equal(status, 0);
}

static int make_folder(void **state)
{
    (void)state;
    seed = test_seed();
    row_make();
    return !mkdtemp(folder);
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read_back),
        cmocka_unit_test(every_fallback_gives_the_same_bytes),
        cmocka_unit_test(short_transfers_and_interruptions_are_resumed),
        cmocka_unit_test(rows_of_a_table_are_read_by_their_numbers),
        cmocka_unit_test(a_row_that_cannot_be_read_is_an_error),
        cmocka_unit_test(an_error_is_reported_and_the_channel_goes_on),
        cmocka_unit_test(a_disk_without_progress_is_given_up),
        cmocka_unit_test(channels_of_several_threads_share_a_file),
        cmocka_unit_test(wrong_alignment_and_bounds_are_refused),
        cmocka_unit_test(a_disk_without_room_is_refused_with_the_bytes),
        cmocka_unit_test(a_limit_of_a_file_s_size_is_named),
        cmocka_unit_test(the_scratch_file_holds_its_blocks_and_has_no_name),
        cmocka_unit_test(where_no_memory_may_be_locked_there_is_a_disk_all_the_same),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
