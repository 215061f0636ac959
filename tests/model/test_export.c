#include "model/support.h"

#include "base/rng.h"
#include "io/safetensors.h"
#include "io/scratch.h"
#include "model/weights.h"

#include <math.h>
#include <time.h>

static uint64_t seed;
static char room[1 << 20];

/* The getter of these tests: rows straight from another checkpoint. */
typedef struct source {
    const model *m;
    const safetensors *st;
    int calls, fail_at;
} source;

static int source_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    source *s = arg;
    if (s->calls++ == s->fail_at)
        return pt_fail(e, PT_FAILED, "the source is gone");
    return weights_read(s->m, s->st, index, row0, n_rows, out, room, sizeof room, e);
}

static safetensors *weights_open(const char *folder)
{
    safetensors *st;
    pt_error e = {0};
    if (safetensors_open(folder, &st, &e))
        fail_msg("%s", e.text);
    return st;
}

static int export_to(const char *name, const model *m, source *s, pt_dtype type, size_t scratch_bytes,
                     pt_error *e)
{
    safetensors_writer *w;
    void *area = malloc(scratch_bytes);
    assert_non_null(area);
    assert_int_equal(safetensors_writer_open(scratch, name, 0, &w, e), 0);
    int status = weights_export(m, w, type, weights_are_bare(m, s->st), source_rows, s, area, scratch_bytes,
                                e);
    safetensors_writer_close(w);
    free(area);
    return status;
}

/* Every tensor of `copy` has the name, shape and bytes that it has in `st`. */
static void check_same(const safetensors *st, const safetensors *copy, const char *fixture)
{
    for (size_t i = 0; i < safetensors_count(copy); i++) {
        const safetensors_tensor *b = safetensors_at(copy, i), *a = safetensors_find(st, b->name);
        if (!a) /* only lm_head.weight was stored */
            a = safetensors_find(st, "lm_head.weight");
        assert_non_null(a);
        if (a->rank != b->rank || memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->rank) ||
            a->dtype != b->dtype)
            fail_msg("%s: %s changed its shape or dtype", fixture, b->name);
        char *x = malloc(a->bytes), *y = malloc(b->bytes);
        assert_true(x && y);
        assert_int_equal(safetensors_read(st, a, 0, a->bytes, x, NULL), 0);
        assert_int_equal(safetensors_read(copy, b, 0, b->bytes, y, NULL), 0);
        if (memcmp(x, y, a->bytes))
            fail_msg("%s: %s changed its values", fixture, b->name);
        free(x);
        free(y);
    }
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);
    return n >= k && strcmp(text + n - k, end) == 0;
}

/* The header of the exported file: what Transformers asks of it, and the tensors in the order of the model, one behind another. */
static void check_header(const safetensors *copy, const model *m, const char *fixture)
{
    char *text;
    size_t n;
    uint64_t length, end = 0;
    pt_error e = {0};
    if (file_read_all(safetensors_path(copy, safetensors_at(copy, 0)), 1u << 30, &text, &n, &e))
        fail_msg("%s", e.text);
    memcpy(&length, text, sizeof length);
    json_t *header = json_loadb(text + 8, length, 0, NULL);
    void *at = json_object_iter(header);
    assert_string_equal(json_object_iter_key(at), "__metadata__");
    assert_string_equal(json_string_value(json_object_get(json_object_iter_value(at), "format")), "pt");
    for (int i = 0; i < m->params_n; i++)
        for (int k = 0; k < m->params[i].parts; k++) {
            at = json_object_iter_next(header, at);
            const json_t *offsets = json_object_get(json_object_iter_value(at), "data_offsets");
            if (!at || !ends_with(m->params[i].part[k].name, json_object_iter_key(at)))
                fail_msg("%s: %s is followed by %s", fixture, m->params[i].part[k].name, at ? json_object_iter_key(at) : "nothing");
            assert_int_equal(json_integer_value(json_array_get(offsets, 0)), end);
            end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
        }
    assert_null(json_object_iter_next(header, at));
    assert_int_equal(end, n - 8 - length);
    json_decref(header);
    free(text);
}

static void what_was_read_is_written_back_bit_for_bit(void **state)
{
    (void)state;
    for (int i = 0; i < FIXTURES; i++) {
        model *m = folder_open(fixture_path(fixtures[i]));
        source s = {m, weights_open(fixture_path(fixtures[i])), 0, -1};
        size_t parts = 0, least = weights_scratch_bytes(m);
        for (int k = 0; k < m->params_n; k++)
            parts += (size_t)m->params[k].parts;
        for (int trial = 0; trial < 6; trial++) {
            pt_error e = {0};
            size_t extra = trial ? (size_t)(rng_uniform(seed, RNG_TEST, (uint32_t)i, (uint64_t)trial) * 30000)
                                 : 0;
            if (export_to("model", m, &s, m->config.stored_type, least + extra, &e))
                fail_msg("%s: %s", fixtures[i], e.text);
            safetensors *copy = weights_open(scratch);
            assert_int_equal(safetensors_count(copy), parts);
            check_header(copy, m, fixtures[i]);
            check_same(s.st, copy, fixtures[i]);
            if (weights_check(m, copy, NULL, &e))
                fail_msg("%s", e.text);
            safetensors_close(copy);
        }
        safetensors_close((safetensors *)s.st);
        model_close(m);
    }
}

static void other_dtypes_round_to_nearest(void **state)
{
    (void)state;
    model *m = folder_open(fixture_path("gpt2"));
    source s = {m, weights_open(fixture_path("gpt2")), 0, -1};
    pt_error e = {0};
    if (export_to("model", m, &s, PT_BF16, 1 << 20, &e))
        fail_msg("%s", e.text);
    safetensors *copy = weights_open(scratch);
    for (int k = 0; k < m->params_n; k++) {
        const param *p = &m->params[k];
        float a[24 * 96], b[24 * 96];
        assert_true(p->rows * p->cols <= 24 * 96);
        assert_int_equal(weights_read(m, s.st, k, 0, p->rows, a, room, sizeof room, NULL), 0);
        assert_int_equal(weights_read(m, copy, k, 0, p->rows, b, room, sizeof room, NULL), 0);
        for (int64_t i = 0; i < p->rows * p->cols; i++)
            assert_true(b[i] == bf16_to_f32(bf16_from_f32(a[i])));
    }
    safetensors_close(copy);
    safetensors_close((safetensors *)s.st);
    model_close(m);
}

static int huge_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const model *m = arg;
    for (int64_t i = 0; i < n_rows * m->params[index].cols; i++)
        out[i] = index == m->params_n - 1 ? 65520 : index ? INFINITY : 65519;
    return 0;
}

static void a_value_that_f16_cannot_hold_is_refused_by_name(void **state)
{
    (void)state;
    model *m = folder_open(fixture_path("llama"));
    safetensors_writer *w;
    pt_error e = {0};
    assert_int_equal(safetensors_writer_open(scratch, "half", 0, &w, &e), 0);
    assert_int_equal(weights_export(m, w, PT_F16, false, huge_rows, m, room, sizeof room, &e), PT_FAILED);
    assert_non_null(strstr(e.text, m->params[m->params_n - 1].part[0].name));
    assert_non_null(strstr(e.text, "65520"));
    safetensors_writer_close(w);
    assert_int_not_equal(access(scratch_path("half.safetensors"), F_OK), 0);
    model_close(m);
}

static void a_source_that_fails_leaves_no_file(void **state)
{
    (void)state;
    model *m = folder_open(fixture_path("gpt2"));
    safetensors *st = weights_open(fixture_path("gpt2"));
    source count = {m, st, 0, -1};
    pt_error e = {0};
    size_t least = weights_scratch_bytes(m);
    assert_int_equal(export_to("model", m, &count, PT_F32, least, &e), 0);
    for (int at = 0; at < count.calls; at += 1 + count.calls / 20) {
        source s = {m, st, 0, at};
        assert_int_equal(export_to("broken", m, &s, PT_F32, least, &e), PT_FAILED);
        assert_string_equal(e.text, "the source is gone");
        assert_int_not_equal(access(scratch_path("broken.safetensors"), F_OK), 0);
    }
    source s = {m, st, 0, -1};
    assert_int_equal(export_to("broken", m, &s, PT_F32, least - 4, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "scratch"));
    safetensors_close(st);
    model_close(m);
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_read_is_written_back_bit_for_bit),
        cmocka_unit_test(other_dtypes_round_to_nearest),
        cmocka_unit_test(a_value_that_f16_cannot_hold_is_refused_by_name),
        cmocka_unit_test(a_source_that_fails_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
