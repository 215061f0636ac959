/* Memory and queues of a device: what ops and waits do to memory, and where failures end. */
#include "base/rng.h"
#include "io/disk.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "device/arithmetic.h"
#include "device/cpu/isa.h"
#include "device/queues.h"
#include "sanitized.h"

static void submit_copy(queue *q, void *dst, const void *src, size_t bytes)
{
    op o = {.kind = OP_COPY, .copy = {dst, src, bytes}};
    queue_submit(q, &o);
}

static void submit_failure(queue *q) /* there is no such op */
{
    op o = {.kind = OP_KINDS};
    queue_submit(q, &o);
}

static void memory_is_aligned_and_zero(void **state)
{
    device *d = open_device(1);
    size_t sizes[] = {0, 1, 4096, 4097, (2 << 20) - 1, (5 << 20) + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *base = open_memory(d, sizes[i]);
        assert_int_equal((uintptr_t)base % 4096, 0);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(base[j], 0);
        memset(base, 1, sizes[i]);
        d->table->memory_close(d, MEMORY_HOST, base, sizes[i]);
    }
    pt_error e = {0};
    void *base;
    assert_int_equal(d->table->memory_open(d, MEMORY_DEVICE, SIZE_MAX / 2, &base, &e), PT_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "device memory"));
    assert_int_equal(d->table->memory_open(d, MEMORY_DEVICE, SIZE_MAX, &base, &e), PT_DOES_NOT_FIT);
    d->table->close(d);
}

static size_t pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page;
}

static size_t resident_pages(const char *base, size_t bytes)
{
    unsigned char *resident = malloc(pages(bytes));
    size_t n = 0;
    assert_int_equal(mincore((void *)base, bytes, resident), 0);
    for (size_t i = 0; i < pages(bytes); i++)
        n += resident[i] & 1;
    free(resident);
    return n;
}

static void memory_is_all_there_from_the_start(void **state)
{
    if (EMULATED)
        skip(); /* QEMU ignores MADV_POPULATE_WRITE */
    static const size_t sizes[] = {1, 4096, 5000, 2 << 20, (70 << 20) + 1};
    for (int threads = 1; threads <= 4; threads++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            device *d = open_device(threads);
            char *base = open_memory(d, sizes[i]);
            assert_int_equal(resident_pages(base, sizes[i]), pages(sizes[i]));
            for (size_t j = 0; j < sizes[i]; j++)
                if (base[j])
                    fail_msg("byte %zu is not zero", j);
            d->table->memory_close(d, MEMORY_HOST, base, sizes[i]);
            d->table->close(d);
        }
}

static void the_device_says_what_its_bits_depend_on(void **state)
{
    device *d = open_device(0);
    assert_true(d->info.threads >= 1);
    assert_true(d->info.memory_bytes > 1 << 20);
    assert_true(strlen(d->info.name) > 0);
    assert_non_null(strstr(d->info.arithmetic, cpu_isa_name()));
    assert_true(arithmetic_same("cpu arm64 neon, matmul own", "cpu x86-64-v3, matmul own"));
    assert_false(arithmetic_same("cpu arm64 neon bf16, matmul own", "cpu x86-64-v3, matmul own"));
    assert_false(arithmetic_same("cpu x86-64-v2, matmul own", "cpu x86-64-v3, matmul own"));
    d->table->close(d);
    pt_error e = {0};
    device_options bad = {.threads = -1};
    assert_int_equal(device_cpu_open(&bad, &d, &e), PT_USAGE);
}

static void copies_of_any_size_are_exact(void **state)
{
    device *d = open_device(3);
    queue *q = open_queue(d, "copy", 0);
    size_t size = (7 << 20) + 123;
    unsigned char *src = open_memory(d, size), *dst = open_memory(d, size);
    for (size_t i = 0; i < size; i++)
        src[i] = (unsigned char)(i * 2654435761u >> 13);
    size_t sizes[] = {0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, size};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        memset(dst, 0xee, size);
        submit_copy(q, dst, src, sizes[i]);
        assert_int_equal(queue_sync(q, queue_signal(q), NULL), 0);
        assert_memory_equal(dst, src, sizes[i]);
        for (size_t j = sizes[i]; j < size; j++)
            assert_int_equal(dst[j], 0xee);
        submit_zero(q, dst, sizes[i] / 2);
        assert_int_equal(queue_sync(q, queue_signal(q), NULL), 0);
        for (size_t j = 0; j < sizes[i]; j++)
            assert_int_equal(dst[j], j < sizes[i] / 2 ? 0 : src[j]);
    }
    d->table->queue_close(q);
    d->table->memory_close(d, MEMORY_HOST, src, size);
    d->table->memory_close(d, MEMORY_HOST, dst, size);
    d->table->close(d);
}

/* Rows of any length, closer together in one place than in the other: between them nothing is touched. */
static void copies_of_rows_leave_what_is_between_them(void **state)
{
    enum { SIZE = 1 << 16 };
    static const struct { int64_t rows; size_t bytes, lddst, ldsrc; } cases[] = {
        {0, 8, 8, 8}, {1, 100, 100, 300}, {63, 96, 96, 160}, {64, 1, 7, 3}, {65, 200, 333, 200}, {200, 64, 80, 96}};
    device *d = open_device(3);
    queue *q = open_queue(d, "copy", 0);
    static unsigned char src[SIZE], dst[SIZE], expected[SIZE];
    for (size_t i = 0; i < SIZE; i++)
        src[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        memset(dst, 0xee, SIZE);
        memset(expected, 0xee, SIZE);
        for (int64_t r = 0; r < cases[i].rows; r++)
            for (size_t k = 0; k < cases[i].bytes; k++)
                expected[(size_t)r * cases[i].lddst + k] = src[(size_t)r * cases[i].ldsrc + k];
        queue_submit(q, &(op){OP_COPY_ROWS, .copy_rows = {dst, src, cases[i].rows, cases[i].bytes, cases[i].lddst, cases[i].ldsrc}});
        assert_int_equal(queue_sync(q, queue_signal(q), NULL), 0);
        assert_memory_equal(dst, expected, SIZE);
    }
    d->table->queue_close(q);
    d->table->close(d);
}

/* Two threads add far more than a queue holds while it waits for another one. */
enum { MANY = 3000 };

typedef struct adder { queue *q; uint32_t *to; const uint32_t *from; } adder;

static void *add_many(void *arg)
{
    adder *a = arg;
    for (int i = 0; i < MANY; i++)
        submit_copy(a->q, a->to + i, a->from + i, sizeof *a->to);
    return NULL;
}

static void a_full_queue_goes_on_for_all_who_add(void **state)
{
    enum { SLOW = 64 << 20 };
    static uint32_t from[MANY], to[2][MANY];
    device *d = open_device(1);
    queue *slow = open_queue(d, "slow", 1), *full = open_queue(d, "full", 1);
    char *block = open_memory(d, SLOW);
    pthread_t threads[2];
    adder adders[2] = {{full, to[0], from}, {full, to[1], from}};
    for (uint32_t i = 0; i < MANY; i++)
        from[i] = i + 1;
    for (int round = 0; round < 3; round++) {
        memset(to, 0, sizeof to);
        for (int i = 0; i < 4; i++)
            submit_zero(slow, block, SLOW);
        queue_wait(full, slow, queue_signal(slow));
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, add_many, &adders[i]), 0);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(queue_sync(full, queue_signal(full), NULL), 0);
        for (int i = 0; i < 2; i++)
            assert_memory_equal(to[i], from, sizeof from);
    }
    d->table->queue_close(full);
    d->table->queue_close(slow);
    d->table->memory_close(d, MEMORY_HOST, block, SLOW);
    d->table->close(d);
}

/* A token goes round the queues through plain memory, many more records than a ring holds. */
static void waits_order_what_queues_write(void **state)
{
    enum { QUEUES = 4, ROUNDS = 2000, CELL = 1024 };
    device *d = open_device(1);
    queue *q[QUEUES];
    for (int i = 0; i < QUEUES; i++)
        q[i] = open_queue(d, "ring", 1 + i % 2);
    static uint32_t cells[QUEUES][CELL], log[ROUNDS][CELL], next[ROUNDS][CELL];
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < CELL; i++)
            next[round][i] = (uint32_t)(round * CELL + i);
    memset(log, 0, sizeof log);
    uint64_t value = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int at = round % QUEUES, before = (round + QUEUES - 1) % QUEUES;
        if (round) {
            queue_wait(q[at], q[before], value);
            submit_copy(q[at], log[round], cells[before], sizeof *log); /* what the one before wrote */
        }
        submit_copy(q[at], cells[at], next[round], sizeof *cells);
        value = queue_signal(q[at]);
    }
    assert_int_equal(queue_sync(q[(ROUNDS - 1) % QUEUES], value, NULL), 0);
    for (int round = 1; round < ROUNDS; round++)
        assert_memory_equal(log[round], next[round - 1], sizeof *log);
    for (int i = 0; i < QUEUES; i++)
        d->table->queue_close(q[i]);
    d->table->close(d);
}

static void marks_are_in_the_order_of_the_queue(void **state)
{
    device *d = open_device(1);
    queue *q = open_queue(d, "marks", 1);
    static char buffer[1 << 20];
    int64_t ns[3] = {0}, start = clock_ns();
    for (int i = 0; i < 3; i++) {
        queue_mark(q, &ns[i]);
        submit_zero(q, buffer, sizeof buffer);
    }
    assert_int_equal(queue_sync(q, queue_signal(q), NULL), 0);
    assert_true(start <= ns[0] && ns[0] < ns[1] && ns[1] < ns[2] && ns[2] <= clock_ns());
    d->table->queue_close(q);
    d->table->close(d);
}

static void a_failure_reaches_those_that_depend_on_it_and_no_one_else(void **state)
{
    device *d = open_device(1);
    queue *bad = open_queue(d, "bad", 1), *near = open_queue(d, "near", 1), *far = open_queue(d, "far", 1);
    queue *early = open_queue(d, "early", 1);
    static uint32_t one = 1, cells[4];
    memset(cells, 0, sizeof cells);

    uint64_t before = queue_signal(bad);
    submit_failure(bad);
    submit_copy(bad, &cells[0], &one, sizeof one);
    uint64_t after = queue_signal(bad);
    queue_wait(near, bad, after);
    submit_copy(near, &cells[1], &one, sizeof one);
    queue_wait(far, near, queue_signal(near));
    submit_copy(far, &cells[2], &one, sizeof one);
    queue_wait(early, bad, before);
    submit_copy(early, &cells[3], &one, sizeof one);

    queue *failed[] = {bad, near, far};
    for (int i = 0; i < 3; i++) {
        pt_error e = {0};
        assert_int_equal(queue_sync(failed[i], queue_signal(failed[i]), &e), PT_FAILED);
        assert_int_equal(e.code, PT_FAILED);
        assert_non_null(strstr(e.text, "does not exist"));
        assert_int_equal(cells[i], 0);
    }
    assert_int_equal(queue_sync(early, queue_signal(early), NULL), 0);
    assert_int_equal(cells[3], 1);
    queue *all[] = {bad, near, far, early};
    for (int i = 0; i < 4; i++)
        d->table->queue_close(all[i]);
    d->table->close(d);
}

/* A disk in a folder of its own; reads fail once `broken` is set. */
typedef struct scratch_disk { char folder[64]; disk_file *file; disk_channel *channel; atomic_bool broken; } scratch_disk;

static int break_reads(void *context, bool is_write, uint64_t offset, size_t bytes, int result)
{
    scratch_disk *s = context;
    return !is_write && atomic_load(&s->broken) ? -EIO : result;
}

static void disk_ops_move_blocks_and_their_errors_stop_the_queue(void **state)
{
    enum { BYTES = 3 << 20 };
    scratch_disk s = {.folder = "queue_test_XXXXXX"};
    assert_non_null(mkdtemp(s.folder));
    disk_options options = {.fault = break_reads, .context = &s};
    pt_error e = {0};
    if (disk_open(s.folder, BYTES, &options, &s.file, &e) || disk_channel_open(s.file, &s.channel, &e))
        fail_msg("%s", e.text);
    device *d = open_device(1);
    queue *q = open_queue(d, "disk", 1), *user = open_queue(d, "user", 1);
    unsigned char *out = open_memory(d, BYTES), *in = open_memory(d, BYTES), *copy = open_memory(d, BYTES);
    for (int i = 0; i < BYTES; i++)
        out[i] = (unsigned char)(i * 2654435761u >> 11);
    op write = {.kind = OP_DISK_WRITE, .disk = {s.channel, out, 0, BYTES}};
    op read = {.kind = OP_DISK_READ, .disk = {s.channel, in, 0, BYTES}};
    queue_submit(q, &write);
    queue_submit(q, &read);
    queue_wait(user, q, queue_signal(q));
    submit_copy(user, copy, in, BYTES);
    assert_int_equal(queue_sync(user, queue_signal(user), NULL), 0);
    assert_memory_equal(copy, out, BYTES);

    atomic_store(&s.broken, true);
    memset(copy, 7, BYTES);
    queue_submit(q, &read);
    queue_wait(user, q, queue_signal(q));
    submit_copy(user, copy, in, BYTES);
    assert_int_equal(queue_sync(user, queue_signal(user), &e), PT_FAILED);
    assert_true(strlen(e.text) > 0);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(copy[i], 7);
    d->table->queue_close(q);
    d->table->queue_close(user);
    void *memory[] = {out, in, copy};
    for (int i = 0; i < 3; i++)
        d->table->memory_close(d, MEMORY_HOST, memory[i], BYTES);
    d->table->close(d);
    disk_channel_close(s.channel);
    disk_close(s.file);
    assert_int_equal(rmdir(s.folder), 0);
}

/* Copies between cells on queues drawn at random: the memory must end as if one thread had made them. */
static void any_interleaving_gives_the_same_memory(void **state)
{
    enum { QUEUES = 3, CELLS = 6, STEPS = 600, CELL = 4096 };
    uint64_t seed = (uint64_t)clock_ns();
    print_message("seed %llu\n", (unsigned long long)seed);
    static unsigned char cells[CELLS][CELL], expected[CELLS][CELL];
    device *d = open_device(2);
    queue *q[QUEUES];
    for (int i = 0; i < QUEUES; i++)
        q[i] = open_queue(d, "random", i % 2);
    uint64_t wrote[CELLS] = {0}, read[CELLS][QUEUES] = {{0}};
    int writer[CELLS] = {0};
    for (int i = 0; i < CELLS; i++)
        memset(cells[i], i, CELL), memset(expected[i], i, CELL);
    for (int step = 0; step < STEPS; step++) {
        uint32_t w[4];
        rng_words(seed, RNG_TEST, 0, (uint64_t)step, w);
        int at = (int)(w[0] % QUEUES), src = (int)(w[1] % CELLS), dst = (int)(w[2] % CELLS);
        if (src == dst)
            continue;
        queue_wait(q[at], q[writer[src]], wrote[src]);
        queue_wait(q[at], q[writer[dst]], wrote[dst]);
        for (int r = 0; r < QUEUES; r++)
            queue_wait(q[at], q[r], read[dst][r]);
        size_t bytes = 1 + w[3] % CELL;
        submit_copy(q[at], cells[dst], cells[src], bytes);
        memcpy(expected[dst], expected[src], bytes);
        read[src][at] = wrote[dst] = queue_signal(q[at]);
        writer[dst] = at;
    }
    for (int i = 0; i < QUEUES; i++)
        assert_int_equal(queue_sync(q[i], queue_signal(q[i]), NULL), 0);
    assert_memory_equal(cells, expected, sizeof cells);
    for (int i = 0; i < QUEUES; i++)
        d->table->queue_close(q[i]);
    d->table->close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_aligned_and_zero),
        cmocka_unit_test(memory_is_all_there_from_the_start),
        cmocka_unit_test(the_device_says_what_its_bits_depend_on),
        cmocka_unit_test(copies_of_any_size_are_exact),
        cmocka_unit_test(copies_of_rows_leave_what_is_between_them),
        cmocka_unit_test(a_full_queue_goes_on_for_all_who_add),
        cmocka_unit_test(waits_order_what_queues_write),
        cmocka_unit_test(marks_are_in_the_order_of_the_queue),
        cmocka_unit_test(a_failure_reaches_those_that_depend_on_it_and_no_one_else),
        cmocka_unit_test(disk_ops_move_blocks_and_their_errors_stop_the_queue),
        cmocka_unit_test(any_interleaving_gives_the_same_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
