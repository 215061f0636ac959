#include "model/support.h"

#include "base/rng.h"
#include "io/safetensors.h"
#include "io/scratch.h"
#include "model/weights.h"
#include "seed.h"

#include <math.h>

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
    const weights_layout layout = {.naming = weights_naming_of(m, s->st), .source = s->st};
    int status = weights_export(m, w, type, layout, source_rows, s, area, scratch_bytes, e);
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

/* The name of a file's tensor is that of the part, but for a prefix. */
static bool is_name_of(const char *part, const char *name)
{
    static const char text[] = "language_model.";
    char plain[256];
    const char *at = strstr(name, text);
    snprintf(plain, sizeof plain, "%.*s%s", at ? (int)(at - name) : 0, name, at ? at + strlen(text) : name);
    size_t n = strlen(part), k = strlen(plain);
    return n >= k && strcmp(part + n - k, plain) == 0;
}

static bool is_vision(const char *name) { return strstr(name, "vision_tower") || strstr(name, "projector"); }

static size_t count_vision(const safetensors *st)
{
    size_t n = 0;
    for (size_t i = 0; i < safetensors_count(st); i++)
        n += is_vision(safetensors_at(st, i)->name);
    return n;
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
            if (!at || !is_name_of(m->params[i].part[k].name, json_object_iter_key(at)))
                fail_msg("%s: %s is followed by %s", fixture, m->params[i].part[k].name, at ? json_object_iter_key(at) : "nothing");
            assert_int_equal(json_integer_value(json_array_get(offsets, 0)), end);
            end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
        }
    while ((at = json_object_iter_next(header, at))) {
        assert_true(is_vision(json_object_iter_key(at)));
        end = (uint64_t)json_integer_value(json_array_get(json_object_get(json_object_iter_value(at), "data_offsets"), 1));
    }
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
            assert_int_equal(safetensors_count(copy), parts + count_vision(s.st));
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

/* Of whatever dtype and shape, through a scratch that holds no tensor whole. */
static void what_is_not_trained_is_copied_bit_for_bit(void **state)
{
    (void)state;
    static const struct { const char *name, *dtype; int rank; int64_t shape[3]; uint64_t elements, bytes; } other[] = {
        {"vision_tower.a", "F8_E4M3", 2, {3, 7}, 21, 21},       {"vision_tower.b", "I64", 0, {0}, 1, 8},
        {"vision_tower.c", "BOOL", 1, {5}, 5, 5},               {"vision_tower.d", "BF16", 3, {9, 2, 30}, 540, 1080},
        {"multi_modal_projector.e", "F64", 1, {3}, 3, 24},      {"multi_modal_projector.f", "F32", 2, {0, 4}, 0, 0},
        {"audio.g", "F32", 2, {50, 60}, 3000, 12000},
    };
    enum { OTHERS = sizeof other / sizeof *other };
    model *m = folder_open(fixture_path("mistral3"));
    source s = {m, weights_open(fixture_path("mistral3")), 0, -1};
    pt_error e = {0};
    safetensors_writer *w;
    char bytes[12000 + OTHERS], area[12000];
    int number[OTHERS];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 131 ^ i >> 7 ^ seed);
    assert_int_equal(safetensors_writer_open(scratch, "source", 0, &w, &e), 0);
    for (int i = 0; i < OTHERS; i++) {
        safetensors_tensor t = {.name = other[i].name, .rank = other[i].rank, .elements = other[i].elements, .bytes = other[i].bytes};
        snprintf(t.dtype_text, sizeof t.dtype_text, "%s", other[i].dtype);
        memcpy(t.shape, other[i].shape, sizeof other[i].shape);
        number[i] = safetensors_declare_as(w, &t, &e);
    }
    assert_int_equal(safetensors_begin(w, &e), 0);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(safetensors_append(w, number[i], bytes + i, other[i].bytes, &e), 0);
    if (safetensors_finish(w, &e))
        fail_msg("%s", e.text);
    safetensors_writer_close(w);
    safetensors *from = weights_open(scratch_path("source.safetensors"));
    const size_t least = weights_scratch_bytes(m);
    void *little = malloc(least);
    assert_non_null(little);
    assert_int_equal(safetensors_writer_open(scratch, "carried", 0, &w, &e), 0);
    if (weights_export(m, w, PT_F32, (weights_layout){.naming = NAMES_INNER, .source = from}, source_rows, &s, little, least, &e))
        fail_msg("%s", e.text);
    safetensors_writer_close(w);
    safetensors *copy = weights_open(scratch_path("carried.safetensors"));
    assert_int_equal(weights_naming_of(m, copy), NAMES_INNER);
    assert_int_equal(weights_find_beside(m, copy).tensors, OTHERS);
    if (weights_check(m, copy, NULL, &e))
        fail_msg("%s", e.text);
    for (int i = 0; i < OTHERS; i++) {
        const safetensors_tensor *t = safetensors_find(copy, other[i].name);
        assert_non_null(t);
        assert_string_equal(t->dtype_text, other[i].dtype);
        assert_true(t->rank == other[i].rank && !memcmp(t->shape, other[i].shape, sizeof t->shape[0] * (size_t)t->rank));
        assert_int_equal(t->bytes, other[i].bytes);
        assert_int_equal(safetensors_read_stored(copy, t, 0, t->bytes, area, &e), 0);
        assert_memory_equal(area, bytes + i, t->bytes);
    }
    safetensors_close(copy);
    safetensors_close(from);
    safetensors_close((safetensors *)s.st);
    free(little);
    model_close(m);
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

/* The choice of experts would change with the rounding of what corrects it. */
static void corrections_stay_fp32_in_a_file_of_bf16(void **state)
{
    (void)state;
    model *m = folder_open(fixture_path("ernie4_5_moe"));
    source s = {m, weights_open(fixture_path("ernie4_5_moe")), 0, -1};
    pt_error e = {0};
    if (export_to("model", m, &s, PT_BF16, 1 << 20, &e))
        fail_msg("%s", e.text);
    safetensors *copy = weights_open(scratch);
    const char *name = "model.layers.1.mlp.moe_statics.e_score_correction_bias";
    const safetensors_tensor *from = safetensors_find(s.st, name), *to = safetensors_find(copy, name);
    float a[5], b[5];
    assert_true(from && to && to->dtype == PT_F32 && to->rank == 2 && to->elements == 5);
    assert_int_equal(safetensors_read_f32(s.st, from, 0, 5, a, NULL), 0);
    assert_int_equal(safetensors_read_f32(copy, to, 0, 5, b, NULL), 0);
    assert_memory_equal(a, b, sizeof a);
    assert_int_equal(safetensors_find(copy, "model.layers.1.mlp.gate.weight")->dtype, PT_BF16);
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
    assert_int_equal(weights_export(m, w, PT_F16, (weights_layout){0}, huge_rows, m, room, sizeof room, &e), PT_FAILED);
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
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_read_is_written_back_bit_for_bit),
        cmocka_unit_test(what_is_not_trained_is_copied_bit_for_bit),
        cmocka_unit_test(other_dtypes_round_to_nearest),
                                       cmocka_unit_test(corrections_stay_fp32_in_a_file_of_bf16),
        cmocka_unit_test(a_value_that_f16_cannot_hold_is_refused_by_name),
        cmocka_unit_test(a_source_that_fails_leaves_no_file),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
