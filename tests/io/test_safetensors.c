#include "base/json.h"
#include "base/rng.h"
#include "io/safetensors.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "io/scratch.h"
#include "seed.h"

static uint64_t seed;

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

static int setup(void **state)
{
    seed = test_seed();
    return scratch_make(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_in_pieces_is_read_back), cmocka_unit_test(several_writers_write_the_same_files),
        cmocka_unit_test(every_tensor_is_aligned_to_its_elements),
        cmocka_unit_test(floats_are_converted_in_any_range),
        cmocka_unit_test(lying_headers_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(a_file_that_shrinks_after_opening_is_noticed),
        cmocka_unit_test(an_unknown_dtype_is_an_error_only_where_it_is_used),
        cmocka_unit_test(an_empty_model_has_no_tensors),
        cmocka_unit_test(indexes_that_do_not_hold_are_refused),
        cmocka_unit_test(what_an_index_promises_and_no_shard_has_is_told),
        cmocka_unit_test(a_git_lfs_pointer_is_called_that),
        cmocka_unit_test(a_folder_without_weights_is_told_apart),
        cmocka_unit_test(misuse_and_missing_data_are_refused_and_leave_nothing),
        cmocka_unit_test(a_full_disk_shows_before_the_first_tensor),
        cmocka_unit_test(a_model_from_hugging_face_opens),
    };
    return cmocka_run_group_tests(tests, setup, scratch_remove);
}
