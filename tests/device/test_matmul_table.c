/* Tables of matmul algorithms: what is read and refused; and on the stand-in for a GPU (cuda/blas.c) that they are used, recorded and
 * made. */
#include "device/cuda/matmul_table.h"
#include "random_plan.h"
#include "test_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <unistd.h>

#include <cmocka.h>

static const char GPU[] = "sm_90, 2 multiprocessors, cuBLASLt 0"; /* the stand-in's */
static const char OTHER[] = "sm_80, 108 multiprocessors, cuBLASLt 0";

/* ---- text ---- */

static matmul_line random_line(random_source *r)
{
    matmul_line line = {0};
    matmul_key *k = &line.key;
    k->layout = random_below(r, 3);
    k->type = random_below(r, 2);
    k->out_type = random_below(r, 2);
    k->bias = random_one_in(r, 3);
    k->accumulate = !k->bias && random_one_in(r, 3);
    k->few = random_one_in(r, 2);
    k->m = k->layout == MATMUL_TN ? random_from(r, 1, 100000) : 0;
    k->n = random_from(r, 1, 1 << 30);
    k->k = random_from(r, 1, 100000);
    int64_t *const aligned[] = {&k->align_a, &k->align_b, &k->align_c};
    for (int i = 0; i < 3; i++)
        *aligned[i] = (int64_t)1 << random_below(r, 5);
    for (int i = 0; i < MATMUL_WORDS; i++)
        line.words[i] = random_one_in(r, 3) ? 0 : (uint64_t)random_bits(r) << 32 | random_bits(r);
    return line;
}

static int add(matmul_table *t, const char *text, pt_error *e) { return matmul_table_add(t, text, strlen(text), "a table", GPU, e); }

static void lines_are_read_as_they_were_written(void **state)
{
    (void)state;
    enum { LINES = 50 };
    static char text[2][(LINES + 2) * (MATMUL_LINE_BYTES + 1)];
    random_source r = random_open();
    matmul_line lines[LINES];
    matmul_table t[2] = {{0}};
    pt_error e = {0};
    for (int turn = 0; turn < 2; turn++) { /* the other way round, for another GPU in between */
        int used = snprintf(text[turn], sizeof text[turn], "# a table\n\ngpu %s\n", turn ? OTHER : GPU);
        for (int i = 0; i < LINES; i++) {
            if (!turn)
                lines[i] = random_line(&r);
            if (turn && i == LINES / 2)
                used += snprintf(text[turn] + used, sizeof text[turn] - (size_t)used, "gpu %s  # this one\n", GPU);
            const matmul_line *line = &lines[turn ? (i + LINES / 2) % LINES : i];
            matmul_line_write(&line->key, line->words, text[turn] + used);
            used += (int)strlen(text[turn] + used);
            text[turn][used++] = '\n';
            text[turn][used] = 0;
        }
        assert_int_equal(add(&t[turn], text[turn], &e), 0);
    }
    assert_int_equal(t[0].n, LINES);
    assert_int_equal(t[1].n, LINES - LINES / 2);
    for (int i = 0; i < LINES; i++) {
        const matmul_line *found = matmul_table_find(&t[0], &lines[i].key);
        assert_non_null(found);
        assert_memory_equal(found->words, lines[i].words, sizeof found->words);
        assert_int_equal(found->line, 4 + i);
        assert_true((matmul_table_find(&t[1], &lines[i].key) != NULL) == (i < LINES - LINES / 2));
    }
    matmul_key absent = lines[0].key;
    absent.k += 1 << 20;
    assert_null(matmul_table_find(&t[0], &absent));
    assert_int_not_equal(matmul_table_checksum(&t[0]), matmul_table_checksum(&t[1]));
    for (int turn = 0; turn < 2; turn++)
        matmul_table_close(&t[turn]);
    assert_int_equal(matmul_table_checksum(&t[0]), 0);
}

static uint32_t checksum_of(const char *text)
{
    matmul_table t = {0};
    pt_error e = {0};
    assert_int_equal(add(&t, text, &e), 0);
    const uint32_t sum = matmul_table_checksum(&t);
    matmul_table_close(&t);
    return sum;
}

#define HEAD "gpu sm_90, 2 multiprocessors, cuBLASLt 0\n"
#define LINE_A "NT bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 8\n"
#define LINE_B "TN bf16 f32 sums many 64 72 40 16 16 16 1 2 3 4 5 6 7 8\n"

static void a_checksum_is_that_of_the_lines(void **state)
{
    (void)state;
    const uint32_t sum = checksum_of(HEAD LINE_A LINE_B);
    assert_int_equal(sum, checksum_of("# said otherwise\n" HEAD "  " LINE_B "\n" LINE_A));
    assert_int_equal(sum, checksum_of("gpu another\n" LINE_A HEAD LINE_A LINE_B));
    assert_int_not_equal(sum, checksum_of(HEAD LINE_A));
    assert_int_not_equal(sum, checksum_of(HEAD LINE_A "TN bf16 f32 sums many 64 72 40 16 16 16 1 2 3 4 5 6 7 9\n"));
    assert_int_not_equal(sum, checksum_of(HEAD LINE_A "TN bf16 f32 sums many 64 72 41 16 16 16 1 2 3 4 5 6 7 8\n"));
}

static void what_is_wrong_is_refused_with_its_place(void **state)
{
    (void)state;
    static const struct { const char *text, *said; } wrong[] = {
        {LINE_A, "a table:1: a line comes before"},
        {HEAD LINE_A "\n" LINE_A, "a table:4: this matmul already has"},
        {HEAD "NT bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7\n", "a table:2: a line ends too early"},
        {HEAD "NT bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 8 9\n", "a table:2: a line has too many"},
        {HEAD "TT bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"TT\""},
        {HEAD "NT f16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"f16\""},
        {HEAD "NT bf16 f64 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"f64\""},
        {HEAD "NT bf16 bf16 both many 0 72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"both\""},
        {HEAD "NT bf16 bf16 none all 0 72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"all\""},
        {HEAD "NT bf16 bf16 none many 64 72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"64\""},
        {HEAD "TN bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"0\""},
        {HEAD "NT bf16 bf16 none many 0 -72 40 16 16 16 1 2 3 4 5 6 7 8\n", "\"-72\""},
        {HEAD "NT bf16 bf16 none many 0 72 9999999999999 16 16 16 1 2 3 4 5 6 7 8\n", "\"9999999999999\""},
        {HEAD "NT bf16 bf16 none many 0 72 40 12 16 16 1 2 3 4 5 6 7 8\n", "\"12\""},
        {HEAD "NT bf16 bf16 none many 0 72 40 16 16 32 1 2 3 4 5 6 7 8\n", "\"32\""},
        {HEAD "NT bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 0x8\n", "\"0x8\""},
        {HEAD "NT bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 12345678123456781\n", "\"12345678123456781\""},
        {"gpu another\nNT bf16 bf16 none many 0 72 40 16 16 16 1 2 3 4 5 6 7 g\n", "a table:2: a field is \"g\""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        matmul_table t = {0};
        pt_error e = {0};
        assert_int_equal(add(&t, wrong[i].text, &e), PT_FAILED);
        if (!strstr(e.text, wrong[i].said) || !strstr(e.text, "a table:"))
            fail_msg("\"%s\" is refused with \"%s\"", wrong[i].text, e.text);
        matmul_table_close(&t);
    }
}

/* ---- on the stand-in ---- */

enum { ROWS = 24, N = 72, K = 40, OTHER_N = 80, ALL_BYTES = 64 << 10 };
enum { ASCENDING = 2, DESCENDING = 3 };
#define NAMED "NT bf16 bf16 none many 0 80 40 16 16 16 1 1000000010 1000000010 50 2000 28 3 5eed\n"

typedef struct gpu { device *d, *host; queue *q; char *memory; } gpu;

static int gpu_open(gpu *g, pt_error *e)
{
    void *memory;
    int failed = test_device_named(test_device_name(), 2, &g->d, &g->host, e);
    if (!failed)
        failed = g->d->table->queue_open(g->d, "test", 0, &g->q, e);
    if (!failed)
        failed = g->d->table->memory_open(g->d, MEMORY_HOST, ALL_BYTES, &memory, e);
    if (!failed)
        g->memory = memory;
    return failed;
}

static void must_open(gpu *g)
{
    pt_error e = {0};
    if (gpu_open(g, &e))
        fail_msg("%s", e.text);
}

static void gpu_close(gpu *g)
{
    g->d->table->queue_close(g->q);
    g->d->table->memory_close(g->d, MEMORY_HOST, g->memory, ALL_BYTES);
    device_close(g->d, g->host);
}

static void set(const char *name, const char *value) { value ? setenv(name, value, 1) : unsetenv(name); }

/* A file of this text, by name. */
static const char *written(const char *name, const char *text)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/matmul-%d-%s.txt", P_tmpdir, (int)getpid(), name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static op_matmul matmul_in(const gpu *g, matmul_layout layout, int64_t m, int64_t n, int64_t k)
{
    const bool sums = layout == MATMUL_TN;
    return (op_matmul){.layout = layout, .type = PT_BF16, .out_type = sums ? PT_F32 : PT_BF16, .accumulate = sums, .m = m, .n = n, .k = k,
                       .lda = sums ? m : k, .ldb = layout == MATMUL_NT ? k : n, .ldc = n, .a = g->memory, .b = g->memory + ALL_BYTES / 4,
                       .c = g->memory + ALL_BYTES / 2};
}

static void multiply(const gpu *g, const op_matmul *o)
{
    pt_error e = {0};
    queue_submit(g->q, &(op){OP_MATMUL, .matmul = *o});
    if (queue_sync(g->q, queue_signal(g->q), &e))
        fail_msg("%s", e.text);
}

/* Whether the sums of a (rows, N) matmul were made by this algorithm. */
static bool sums_by(const gpu *g, int64_t n, int algorithm)
{
    const op_matmul o = matmul_in(g, MATMUL_NT, ROWS, n, K);
    bf16 *a = (bf16 *)g->memory, *b = (bf16 *)(g->memory + ALL_BYTES / 4);
    const bf16 *c = o.c;
    random_source r = random_open();
    for (int64_t i = 0; i < ROWS * K; i++)
        a[i] = bf16_from_f32((float)random_from(&r, -1000, 1000) * 1e-3f);
    for (int64_t i = 0; i < n * K; i++)
        b[i] = bf16_from_f32((float)random_from(&r, -1000, 1000));
    a[0] = bf16_from_f32(1e10f), a[1] = bf16_from_f32(-1e10f); /* what was added before these is rounded to 1024 */
    for (int64_t i = 0; i < n; i++)
        b[i * K] = b[i * K + 1] = bf16_from_f32(1);
    multiply(g, &o);
    bool same = true;
    for (int64_t i = 0; i < ROWS * n; i++) {
        float sum = 0;
        for (int64_t j = 0; j < K; j++) {
            const int64_t k = algorithm == DESCENDING ? K - 1 - j : j;
            sum += bf16_to_f32(a[i / n * K + k]) * bf16_to_f32(b[i % n * K + k]);
        }
        same = same && c[i] == bf16_from_f32(sum);
    }
    return same;
}

static void skip_unless_standin(void)
{
    if (!test_device_is_standin())
        skip();
    set("PROTRAIN_MATMUL_TABLE", NULL);
    set("PROTRAIN_MATMUL_TUNE", NULL);
}

static void the_built_in_table_is_used(void **state)
{
    (void)state;
    gpu g = {0};
    skip_unless_standin();
    must_open(&g);
    assert_true(sums_by(&g, N, DESCENDING) && !sums_by(&g, N, ASCENDING));
    assert_true(sums_by(&g, OTHER_N, ASCENDING) && !sums_by(&g, OTHER_N, DESCENDING));
    assert_non_null(strstr(g.d->info.arithmetic, ", matmul table "));
    gpu_close(&g);
}

static void a_named_table_is_used_in_its_stead(void **state)
{
    (void)state;
    gpu g = {0};
    char recorded[32];
    skip_unless_standin();
    set("PROTRAIN_MATMUL_TABLE", written("named", HEAD NAMED));
    must_open(&g);
    assert_true(sums_by(&g, OTHER_N, DESCENDING) && sums_by(&g, N, ASCENDING));
    snprintf(recorded, sizeof recorded, ", matmul table %08x", checksum_of(HEAD NAMED));
    assert_non_null(strstr(g.d->info.arithmetic, recorded));
    gpu_close(&g);
    set("PROTRAIN_MATMUL_TABLE", written("named", "# for another\ngpu sm_80\n" NAMED));
    must_open(&g);
    assert_true(sums_by(&g, OTHER_N, ASCENDING));
    assert_null(strstr(g.d->info.arithmetic, "matmul table"));
    gpu_close(&g);
    remove(written("named", ""));
}

static void a_table_that_cannot_be_used_is_refused(void **state)
{
    (void)state;
    static const struct { const char *text, *said; } wrong[] = {
        {HEAD LINE_A, ":2: cuBLASLt cannot multiply"}, /* not an algorithm of the library */
        {HEAD "\nNT bf16 bf16 none many 0 72 40 16 16 16 200000004 1000000010 1000000010 48 2000 28 1 5eed\n", ":3: "}, /* splits K */
        {HEAD "TN bf16 f32 sums many 64 72 40 16 16 16 100000004 1000000010 1000000010 48 40 28 0 5eed\n", ":2: "},     /* atomics */
        {HEAD "NT bf16\n", ":2: a line ends too early"}};
    skip_unless_standin();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        gpu g = {0};
        pt_error e = {0};
        const char *path = written("wrong", wrong[i].text);
        set("PROTRAIN_MATMUL_TABLE", path);
        assert_int_equal(gpu_open(&g, &e), PT_FAILED);
        if (!strstr(e.text, path) || !strstr(e.text, wrong[i].said) || !strstr(e.text, "gpu-check tune"))
            fail_msg("refused with \"%s\"", e.text);
        remove(path);
    }
    gpu g = {0};
    pt_error e = {0};
    set("PROTRAIN_MATMUL_TABLE", "/nowhere/table.txt");
    assert_int_equal(gpu_open(&g, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "/nowhere/table.txt"));
    set("PROTRAIN_MATMUL_TABLE", NULL);
}

/* How many lines of the file are of this algorithm; *all: how many there are. */
static int lines_of(const char *path, uint64_t algorithm, int *all)
{
    matmul_table t = {0};
    pt_error e = {0};
    int n = 0;
    assert_int_equal(matmul_table_read(&t, path, GPU, &e), 0);
    for (int i = 0; i < t.n; i++)
        n += t.lines[i].words[6] == algorithm;
    *all = t.n;
    matmul_table_close(&t);
    return n;
}

/* The fastest proposal does not repeat its bits, so the second fastest one gets a line. */
static void a_table_is_made_of_what_is_faster_and_repeats_its_bits(void **state)
{
    (void)state;
    enum { SMALL_N = 8, SMALL_K = 16, SMALL_M = 32 };
    gpu g = {0};
    int all;
    skip_unless_standin();
    const char *path = written("made", "");
    set("PT_STANDIN_MATMUL_US", "60000");
    set("PROTRAIN_MATMUL_TUNE", path);
    for (int turn = 0; turn < 2; turn++) { /* the second time there is nothing left to do */
        must_open(&g);
        const op_matmul forward = matmul_in(&g, MATMUL_NT, SMALL_M, SMALL_N, SMALL_K);
        const op_matmul weight = matmul_in(&g, MATMUL_TN, SMALL_M, SMALL_N, SMALL_K);
        multiply(&g, &forward);
        multiply(&g, &weight);
        gpu_close(&g);
        assert_int_equal(lines_of(path, DESCENDING, &all), 2);
        assert_int_equal(all, 2);
    }
    set("PROTRAIN_MATMUL_TUNE", NULL);
    set("PT_STANDIN_MATMUL_US", NULL);
    set("PROTRAIN_MATMUL_TABLE", path);
    must_open(&g);
    assert_non_null(strstr(g.d->info.arithmetic, "matmul table"));
    gpu_close(&g);
    set("PROTRAIN_MATMUL_TABLE", NULL);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_read_as_they_were_written),
        cmocka_unit_test(a_checksum_is_that_of_the_lines),
        cmocka_unit_test(what_is_wrong_is_refused_with_its_place),
        cmocka_unit_test(the_built_in_table_is_used),
        cmocka_unit_test(a_named_table_is_used_in_its_stead),
        cmocka_unit_test(a_table_that_cannot_be_used_is_refused),
        cmocka_unit_test(a_table_is_made_of_what_is_faster_and_repeats_its_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
