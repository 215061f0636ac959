/* Safetensors files and folders: what is written is read back, by one writer or several. */
#include "base/rng.h"
#include "io/safetensors.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "io/seeded.h"

static uint32_t draw(uint64_t i, int which, uint32_t below)
{
    uint32_t w[4];
    rng_words(seed, RNG_TEST, (uint32_t)which, i, w);
    return w[0] % below;
}

/* ---- round trips ---------------------------------------------------------------------------- */

enum { TENSORS = 40, BYTES_MAX = 20000 };

typedef struct sample {
    char name[32];
    pt_dtype dtype;
    int rank, number;
    int64_t shape[4];
    uint64_t bytes, given;
    unsigned char data[BYTES_MAX];
} sample;

static void sample_draw(sample *s, uint64_t i)
{
    static const pt_dtype dtypes[] = {PT_F32, PT_BF16, PT_F16, PT_F64, PT_U8, PT_U16, PT_I32, PT_U32, PT_I64};
    snprintf(s->name, sizeof s->name, "h.%u.\"\xC3\xA9%llu", draw(i, 1, 10), (unsigned long long)i);
    s->dtype = dtypes[draw(i, 2, 9)];
    s->rank = (int)draw(i, 3, 5);
    s->bytes = dtype_bytes(s->dtype);
    for (int k = 0; k < s->rank; k++) {
        s->shape[k] = draw(i, 4 + k, 7);
        s->bytes *= (uint64_t)s->shape[k];
    }
    s->given = 0;
    for (uint64_t k = 0; k < s->bytes; k++)
        s->data[k] = (unsigned char)draw(i * BYTES_MAX + k, 9, 256);
}

/* Writes the samples in random pieces, tensors interleaved. */
static void samples_write(sample *s, uint64_t max_shard, uint64_t trial)
{
    pt_error e = {0};
    safetensors_writer *w;
    assert_int_equal(safetensors_writer_open(scratch, "model", max_shard, &w, &e), 0);
    for (int i = 0; i < TENSORS; i++)
        s[i].number = safetensors_declare(w, s[i].name, s[i].dtype, s[i].rank, s[i].shape, &e);
    if (safetensors_begin(w, &e))
        fail_msg("%s", e.text);
    for (uint64_t k = 0, left = TENSORS; left; k++) {
        sample *t = &s[draw(k, 20 + (int)trial, TENSORS)];
        uint64_t n = draw(k, 60, 600) + 1;
        if (n > t->bytes - t->given)
            n = t->bytes - t->given;
        if (n && safetensors_append(w, t->number, t->data + t->given, n, &e))
            fail_msg("%s", e.text);
        t->given += n;
        left = 0;
        for (int i = 0; i < TENSORS; i++)
            left += s[i].given < s[i].bytes;
    }
    if (safetensors_finish(w, &e))
        fail_msg("%s", e.text);
    safetensors_writer_close(w);
}

static void samples_check(const sample *s)
{
    pt_error e = {0};
    safetensors *st;
    if (safetensors_open(scratch, &st, &e))
        fail_msg("%s", e.text);
    assert_int_equal(safetensors_count(st), TENSORS);
    assert_null(safetensors_find(st, "none"));
    for (int i = 0; i < TENSORS; i++) {
        const safetensors_tensor *t = safetensors_find(st, s[i].name);
        unsigned char back[BYTES_MAX];
        assert_non_null(t);
        assert_int_equal(t->dtype, s[i].dtype);
        assert_int_equal(t->rank, s[i].rank);
        assert_memory_equal(t->shape, s[i].shape, (size_t)s[i].rank * 8);
        assert_int_equal(t->bytes, s[i].bytes);
        assert_true(t->bytes % dtype_bytes(t->dtype) == 0);
        uint64_t from = t->bytes ? draw((uint64_t)i, 80, (uint32_t)t->bytes) : 0;
        if (safetensors_read(st, t, from, t->bytes - from, back, &e))
            fail_msg("%s", e.text);
        assert_memory_equal(back, s[i].data + from, t->bytes - from);
        assert_int_equal(safetensors_read(st, t, from, t->bytes - from + 1, back, &e), PT_USAGE);
    }
    safetensors_close(st);
}

static void what_is_written_in_pieces_is_read_back(void **state)
{
    (void)state;
    static sample s[TENSORS];
    for (uint64_t trial = 0; trial < 12; trial++) {
        uint64_t total = 0, max_shard = trial % 3 ? 100 + draw(trial, 90, 3000) : 0;
        for (uint64_t i = 0; i < TENSORS; i++) {
            sample_draw(&s[i], i + 1000 * trial);
            total += s[i].bytes;
        }
        samples_write(s, max_shard, trial);
        samples_check(s);
        bool sharded = path_exists(scratch_path("model.safetensors.index.json"));
        assert_int_equal(sharded, max_shard && total > max_shard);
        assert_int_equal(path_exists(scratch_path("model.safetensors")), !sharded);
        assert_false(path_exists(scratch_path("model.safetensors.tmp")));
    }
}

/* ---- several writers ---- */

enum { WRITERS = 3 };

typedef struct meeting_point { pthread_barrier_t barrier; int failed; pthread_mutex_t lock; } meeting_point;
typedef struct co_writer { meeting_point *at; sample *s; int number; uint64_t max_shard; bool sees; pt_error e; int status; } co_writer;

static int meet_writers(void *arg, int failed, pt_error *e)
{
    meeting_point *at = arg;
    pthread_mutex_lock(&at->lock);
    at->failed = at->failed ? at->failed : failed;
    pthread_mutex_unlock(&at->lock);
    pthread_barrier_wait(&at->barrier);
    if (at->failed && !failed)
        pt_fail(e, at->failed, "another one has failed");
    return at->failed;
}

/* Whoever has no turn gives other values, which nobody reads. */
static int append_in_turns(co_writer *c, safetensors_writer *w, const int numbers[TENSORS])
{
    static unsigned char none[BYTES_MAX];
    int status = 0;
    for (int i = 0; i < TENSORS && !status; i++)
        for (uint64_t at = 0, n, k = 0; at < c->s[i].bytes && !status; at += n, k++) {
            n = c->s[i].bytes - at < 300 ? c->s[i].bytes - at : 300;
            const int turn = c->sees ? (int)((k + (uint64_t)i) % WRITERS) : 0;
            safetensors_set_turn(w, turn == c->number);
            status = safetensors_append(w, numbers[i], turn == c->number ? c->s[i].data + at : none, n, &c->e);
        }
    return status;
}

static void *write_part(void *arg)
{
    co_writer *c = arg;
    safetensors_writer *w;
    int numbers[TENSORS], status = safetensors_writer_open(scratch, "model", c->max_shard, &w, &c->e);
    safetensors_share(w, &(safetensors_sharing){.leads = !c->number, .writes = !c->number || c->sees, .meet = meet_writers, .arg = c->at});
    for (int i = 0; i < TENSORS; i++)
        numbers[i] = safetensors_declare(w, c->s[i].name, c->s[i].dtype, c->s[i].rank, c->s[i].shape, &c->e);
    if (!status)
        status = safetensors_begin(w, &c->e);
    if (!status)
        status = append_in_turns(c, w, numbers);
    c->status = status ? status : safetensors_finish(w, &c->e);
    safetensors_writer_close(w);
    return NULL;
}

static void write_together(sample *s, uint64_t max_shard, bool see)
{
    static co_writer writers[WRITERS];
    meeting_point at = {.lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[WRITERS];
    pthread_barrier_init(&at.barrier, NULL, WRITERS);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (co_writer){.at = &at, .s = s, .number = i, .max_shard = max_shard, .sees = see};
        assert_int_equal(pthread_create(&threads[i], NULL, write_part, &writers[i]), 0);
    }
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < WRITERS; i++)
        if (writers[i].status)
            fail_msg("writer %d: %s", i, writers[i].e.text);
    pthread_barrier_destroy(&at.barrier);
}

static void several_writers_write_the_same_files(void **state)
{
    (void)state;
    static sample s[TENSORS];
    for (uint64_t trial = 0; trial < 8; trial++) {
        for (uint64_t i = 0; i < TENSORS; i++)
            sample_draw(&s[i], i + 9000 + 1000 * trial);
        write_together(s, trial % 3 ? 100 + draw(trial, 90, 3000) : 0, trial % 4 != 3);
        samples_check(s);
        assert_false(path_exists(scratch_path("model.safetensors.tmp")));
    }
}

static void every_tensor_is_aligned_to_its_elements(void **state)
{
    (void)state;
    pt_error e = {0};
    safetensors_writer *w;
    safetensors *st;
    int64_t odd = 3;
    static const pt_dtype dtypes[] = {PT_U8, PT_F64, PT_BF16, PT_F32, PT_I64, PT_U8, PT_F16};
    char name[] = "a";
    double zero[3] = {0};
    assert_int_equal(safetensors_writer_open(scratch, "aligned", 0, &w, &e), 0);
    for (int i = 0; i < 7; i++, name[0]++)
        assert_int_equal(safetensors_declare(w, name, dtypes[i], 1, &odd, &e), i);
    assert_int_equal(safetensors_begin(w, &e), 0);
    for (int i = 0; i < 7; i++)
        assert_int_equal(safetensors_append(w, i, zero, 3 * dtype_bytes(dtypes[i]), &e), 0);
    assert_int_equal(safetensors_finish(w, &e), 0);
    safetensors_writer_close(w);
    assert_int_equal(safetensors_open(scratch_path("aligned.safetensors"), &st, &e), 0);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(safetensors_at(st, i)->offset % dtype_bytes(safetensors_at(st, i)->dtype), 0);
    safetensors_close(st);
}

static void floats_are_converted_in_any_range(void **state)
{
    (void)state;
    enum { N = 70001 };
    static const pt_dtype dtypes[] = {PT_F32, PT_BF16, PT_F16, PT_F64};
    float *values = malloc(N * sizeof *values), *back = malloc(N * sizeof *back);
    for (uint64_t i = 0; i < N; i++)
        values[i] = (float)rng_normal(seed, RNG_TEST, 5, i) * ldexpf(1, (int)draw(i, 6, 60) - 30);
    for (int k = 0; k < 4; k++) {
        pt_error e = {0};
        safetensors_writer *w;
        safetensors *st;
        int64_t n = N;
        assert_int_equal(safetensors_writer_open(scratch, "floats", 0, &w, &e), 0);
        assert_int_equal(safetensors_declare(w, "x", dtypes[k], 1, &n, &e), 0);
        assert_int_equal(safetensors_begin(w, &e), 0);
        assert_int_equal(safetensors_append_f32(w, 0, values, 1000, &e), 0);
        assert_int_equal(safetensors_append_f32(w, 0, values + 1000, N - 1000, &e), 0);
        assert_int_equal(safetensors_finish(w, &e), 0);
        safetensors_writer_close(w);
        assert_int_equal(safetensors_open(scratch_path("floats.safetensors"), &st, &e), 0);
        const safetensors_tensor *t = safetensors_at(st, 0);
        uint64_t from = draw((uint64_t)k, 7, 30000), count = N - from - draw((uint64_t)k, 8, 30000);
        assert_int_equal(safetensors_read_f32(st, t, from, count, back, &e), 0);
        for (uint64_t i = 0; i < count; i++) {
            float v = values[from + i], expected = v;
            if (dtypes[k] == PT_BF16)
                expected = bf16_to_f32(bf16_from_f32(v));
            if (dtypes[k] == PT_F16)
                expected = f16_to_f32(f16_from_f32(v));
            assert_true(back[i] == expected);
        }
        assert_int_equal(safetensors_read_f32(st, t, N - 5, 6, back, &e), PT_USAGE);
        safetensors_close(st);
    }
    free(values);
    free(back);
}

/* ---- writing that goes wrong ---------------------------------------------------------------- */

static void misuse_and_missing_data_are_refused_and_leave_nothing(void **state)
{
    (void)state;
    pt_error e = {0};
    safetensors_writer *w;
    int64_t shape[2] = {4, -1};
    float data[8] = {0};
    assert_int_equal(safetensors_writer_open(scratch, "bad", 0, &w, &e), 0);
    assert_int_equal(safetensors_declare(w, "a", PT_F32, 2, shape, &e), PT_USAGE);
    assert_int_equal(safetensors_declare(w, "a", PT_F32, 9, shape, &e), PT_USAGE);
    assert_int_equal(safetensors_declare(w, "a", PT_F32, 1, shape, &e), 0);
    assert_int_equal(safetensors_append(w, 0, data, 4, &e), PT_USAGE);
    assert_int_equal(safetensors_finish(w, &e), PT_USAGE);
    assert_int_equal(safetensors_begin(w, &e), 0);
    assert_int_equal(safetensors_begin(w, &e), PT_USAGE);
    assert_int_equal(safetensors_declare(w, "b", PT_F32, 1, shape, &e), PT_USAGE);
    assert_int_equal(safetensors_append(w, 1, data, 4, &e), PT_USAGE);
    assert_int_equal(safetensors_append(w, -1, data, 4, &e), PT_USAGE);
    assert_int_equal(safetensors_append(w, 0, data, 12, &e), 0);
    assert_int_equal(safetensors_append(w, 0, data, 8, &e), PT_USAGE);
    assert_int_equal(safetensors_finish(w, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "\"a\" has 16 bytes, but only 12 were given"));
    safetensors_writer_close(w);
    assert_false(path_exists(scratch_path("bad.safetensors")));
    assert_false(path_exists(scratch_path("bad.safetensors.tmp")));

    for (uint64_t shard = 0; shard < 17; shard += 16) { /* a name twice: in one shard, in two */
        assert_int_equal(safetensors_writer_open(scratch, "bad", shard, &w, &e), 0);
        assert_int_equal(safetensors_declare(w, "a", PT_F32, 1, shape, &e), 0);
        assert_int_equal(safetensors_declare(w, "a", PT_F32, 1, shape, &e), 1);
        int status = safetensors_begin(w, &e);
        for (int i = 0; i < 2 && !status; i++)
            status = safetensors_append(w, i, data, 16, &e);
        if (!status)
            status = safetensors_finish(w, &e);
        assert_int_equal(status, PT_FAILED);
        assert_non_null(strstr(e.text, "used"));
        safetensors_writer_close(w);
    }
    assert_int_equal(safetensors_writer_open(scratch_path("nowhere"), "m", 0, &w, &e), 0);
    assert_int_equal(safetensors_begin(w, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "cannot be created: No such file"));
    safetensors_writer_close(w);
}

static int write_too_much(const char *folder)
{
    pt_error e = {0};
    safetensors_writer *w;
    int64_t n = 3 << 20;
    int status = safetensors_writer_open(folder, "model", 0, &w, &e) || safetensors_declare(w, "a", PT_U8, 1, &n, &e);
    status = status ? 2 : safetensors_begin(w, &e) != PT_FAILED;
    safetensors_writer_close(w);
    if (status || !strstr(e.text, "need 3.00 MiB, ") || !strstr(e.text, "are free"))
        return 1;
    n = (1 << 20) - 100; /* fits alone, but not with its header */
    status = safetensors_writer_open(folder, "model", 0, &w, &e) || safetensors_declare(w, "a", PT_U8, 1, &n, &e);
    status = status ? 2 : safetensors_begin(w, &e) != PT_FAILED;
    safetensors_writer_close(w);
    uint64_t free_bytes = 0;
    char path[FILE_PATH_BYTES];
    if (status || !strstr(e.text, "no room") || path_join(path, folder, "model.safetensors.tmp", &e))
        return 3;
    return disk_free_bytes(folder, &free_bytes, &e) || free_bytes != 1 << 20 || path_exists(path);
}

static void a_full_disk_shows_before_the_first_tensor(void **state)
{
    (void)state;
    int status = on_small_disk(1 << 20, write_too_much);
    if (status < 0)
        skip(); /* no small disk can be mounted here */
    assert_int_equal(status, 0);
}

/* ---- a real model --------------------------------------------------------------------------- */

static void a_model_from_hugging_face_opens(void **state)
{
    (void)state;
    static const char folder[] = PT_SHARED_DATA "/checkpoints/TinyStories-656K";
    if (!path_is_folder(folder))
        skip();
    pt_error e = {0};
    safetensors *st;
    if (safetensors_open(folder, &st, &e))
        fail_msg("%s", e.text);
    const safetensors_tensor *t = safetensors_find(st, "lm_head.weight");
    assert_non_null(t);
    assert_int_equal(t->dtype, PT_F32);
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], 2048);
    assert_int_equal(t->shape[1], 128);
    assert_null(safetensors_find(st, "model.embed_tokens.weight"));
    float *row = malloc((size_t)t->bytes);
    assert_int_equal(safetensors_read_f32(st, t, 0, t->elements, row, &e), 0);
    double sum = 0;
    for (uint64_t i = 0; i < t->elements; i++)
        sum += (double)row[i] * row[i];
    assert_true(sum > 1 && sum < 1e6); /* trained weights, not noise */
    free(row);
    safetensors_close(st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_in_pieces_is_read_back),
        cmocka_unit_test(several_writers_write_the_same_files),
        cmocka_unit_test(every_tensor_is_aligned_to_its_elements),
        cmocka_unit_test(floats_are_converted_in_any_range),
        cmocka_unit_test(misuse_and_missing_data_are_refused_and_leave_nothing),
        cmocka_unit_test(a_full_disk_shows_before_the_first_tensor),
        cmocka_unit_test(a_model_from_hugging_face_opens),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
