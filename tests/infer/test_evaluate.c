#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "infer/model_folder.h"
#include "train/fixture.h"
#include "sanitized.h"

static pt_evaluate_options options_for(const char *folder, const char *const *data, int64_t seq_len)
{
    pt_evaluate_options o;
    pt_evaluate_defaults(&o);
    o.device = run_device();
    o.model = folder;
    o.data = data;
    o.data_n = 1;
    o.seq_len = seq_len;
    o.precision = PT_PRECISION_FP32;
    o.threads = 2;
    return o;
}

/* The ids of the first step of a fixture, as a data file; returns their number. */
static size_t first_step(const fixture *f, const char *name)
{
    pt_error e = {0};
    size_t batch = (size_t)fixture_setting(f, "batch_size"), len = (size_t)fixture_setting(f, "seq_len"), n = batch * len;
    int32_t *inputs = malloc(n * sizeof *inputs), last;
    uint16_t *ids = malloc((n + 1) * sizeof *ids);
    must(safetensors_read(f->reference, safetensors_find(f->reference, "inputs"), 0, n * sizeof *inputs, inputs, &e), &e);
    must(safetensors_read(f->reference, safetensors_find(f->reference, "targets"), (n - 1) * sizeof last, sizeof last, &last, &e), &e);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint16_t)inputs[i];
    ids[n] = (uint16_t)last;
    write_npy(scratch_path(name), ids, n + 1);
    free(inputs);
    free(ids);
    return n;
}

static void compare_fixture(const char *name)
{
    fixture f;
    pt_error e = {0};
    pt_evaluation v;
    fixture_open(&f, "models", name);
    if (path_exists(f.tokens)) { /* where no targets are masked */
        size_t n = first_step(&f, "ids.npy");
        const char *data[] = {scratch_path("ids.npy")};
        pt_evaluate_options o = options_for(f.folder, data, (int64_t)fixture_setting(&f, "seq_len"));
        must(pt_evaluate(&o, &v, &e), &e);
        double expected = fixture_of_step(&f, "loss_fp64", 0);
        assert_int_equal(v.tokens, n);
        if (!(fabs(v.loss - expected) <= 1e-5 * expected) || fabs(v.perplexity - exp(v.loss)) > 1e-9 * v.perplexity)
            fail_msg("%s: loss %.9g, by PyTorch in float64 %.9g", name, v.loss, expected);
    }
    fixture_close(&f);
}

static void losses_are_pytorchs(void **state) { assert_true(each_model_fixture(compare_fixture) > 0); }

static void every_token_counts_and_windows_may_have_any_length(void **state)
{
    uint16_t ids[50];
    pt_error e = {0};
    for (int i = 0; i < 50; i++)
        ids[i] = (uint16_t)(i * 37 % 61);
    write_npy(scratch_path("any.npy"), ids, 50);
    const char *data[] = {scratch_path("any.npy")};
    for (int64_t len = 1; len <= 64; len += 7) {
        pt_evaluation v;
        pt_evaluate_options o = options_for(PT_FIXTURES "/models/llama", data, len);
        must(pt_evaluate(&o, &v, &e), &e);
        assert_int_equal(v.tokens, 49);
    }
}

static void the_loss_is_the_same_from_the_disk(void **state)
{
    enum { TOKENS = 200 };
    pt_error e = {0};
    pt_evaluation whole, streamed;
    uint16_t ids[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (uint16_t)(i * 37 % 424);
    write_npy(scratch_path("streamed.npy"), ids, TOKENS);
    const char *data[] = {scratch_path("streamed.npy")};
    pt_evaluate_options o = options_for(make_model_folder("deep", 256, 6, 64, 3), data, 32);
    must(pt_evaluate(&o, &whole, &e), &e);
    o.disk_path = scratch;
    o.disk_memory = 64u << 20; /* asked for: scratch may lie in RAM */
    uint64_t low = 0, high = 1u << 28;
    while (high - low > (THREADS_SANITIZED ? 1 << 20 : 64 << 10)) { /* the least that is accepted */
        uint64_t middle = (low + high) / 2;
        o.device_memory = middle;
        int failed = pt_evaluate(&o, &streamed, &e);
        assert_true(!failed || failed == PT_DOES_NOT_FIT);
        if (failed)
            low = middle;
        else
            high = middle;
    }
    o.device_memory = high;
    must(pt_evaluate(&o, &streamed, &e), &e);
    assert_true(streamed.loss == whole.loss && streamed.tokens == whole.tokens);
    o.disk_memory = 0;
    if (on_gpu()) /* there the host has room */
        return;
    assert_int_equal(pt_evaluate(&o, &streamed, &e), PT_DOES_NOT_FIT);
    assert_non_null(strstr(e.text, "`seq_len`"));
    assert_null(strstr(e.text, "`batch_size`")); /* there is no such option here */
    o.device_memory = advised(&e, "give `device_memory`", 0);
    must(pt_evaluate(&o, &streamed, &e), &e);
    assert_true(streamed.loss == whole.loss);
}

enum { ENDS = 0 }; /* eos_token_id of models/gpt2 */

/* Each piece of a document that lies in one window, as data of its own: the sum of the losses. */
static double sum_of_pieces(pt_evaluate_options o, const uint16_t *ids, int n, int64_t *tokens)
{
    const char *data[] = {scratch_path("piece.npy")};
    const int len = (int)o.seq_len;
    double sum = 0;
    o.data = data;
    o.document_mask = false;
    for (int from = 0, end; from + 1 < n; from = end) {
        for (end = from + 1; end % len && end + 1 < n && ids[end - 1] != ENDS; end++)
            ;
        const int seen = end - from + (ids[end - 1] != ENDS); /* what comes after, where it is a target */
        pt_error e = {0};
        pt_evaluation v;
        if (seen < 2)
            continue;
        write_npy(data[0], ids + from, (size_t)seen);
        must(pt_evaluate(&o, &v, &e), &e);
        sum += v.loss * (double)v.tokens;
        *tokens += v.tokens;
    }
    return sum;
}

/* With learned positions: rotary ones tell only how far tokens are apart. */
static void documents_have_the_losses_that_they_have_alone(void **state)
{
    enum { TOKENS = 200, LEN = 16 };
    uint16_t ids[TOKENS];
    pt_error e = {0};
    pt_evaluation v, plain;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = (uint16_t)(3 + i * 37 % 50);
    static const int ends[] = {0, 7, 8, LEN - 1, 2 * LEN, 100, 180}; /* one longer than a window, one that ends with its window */
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        ids[ends[i]] = ENDS;
    write_npy(scratch_path("documents.npy"), ids, TOKENS);
    const char *data[] = {scratch_path("documents.npy")};
    pt_evaluate_options o = options_for(PT_FIXTURES "/models/gpt2", data, LEN);
    must(pt_evaluate(&o, &plain, &e), &e);
    o.document_mask = true;
    must(pt_evaluate(&o, &v, &e), &e);
    int64_t tokens = 0;
    double sum = sum_of_pieces(o, ids, TOKENS, &tokens);
    assert_int_equal(v.tokens, TOKENS - 1 - 7);
    assert_int_equal(tokens, v.tokens);
    assert_true(fabs(v.loss - sum / (double)tokens) <= 1e-6 * v.loss);
    assert_true(fabs(v.loss - plain.loss) > 1e-3);
}

static void data_without_a_target_have_no_loss(void **state)
{
    static const uint16_t ids[] = {2, 2, 2, 2, 2};
    pt_error e = {0};
    pt_evaluation v;
    write_npy(scratch_path("ends.npy"), ids, 5);
    const char *data[] = {scratch_path("ends.npy")};
    pt_evaluate_options o = options_for(PT_FIXTURES "/models/llama", data, 4);
    o.document_mask = true;
    assert_int_equal(pt_evaluate(&o, &v, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`document_mask`"));
}

static void tinystories_has_its_loss(void **state)
{
    pt_error e = {0};
    json_t *vector;
    if (!path_exists(PT_SHARED_DATA "/vectors/tinystories656k_nll.json")) {
        print_message("skipped: the shared data are not there\n");
        skip();
    }
    must(json_file_load(PT_SHARED_DATA "/vectors/tinystories656k_nll.json", 0, &vector, &e), &e);
    const json_t *list = json_object_get(vector, "ids");
    size_t n = json_array_size(list);
    uint16_t ids[256];
    assert_true(n == 117);
    for (size_t i = 0; i < n; i++)
        ids[i] = (uint16_t)json_integer_value(json_array_get(list, i));
    write_npy(scratch_path("tinystories.npy"), ids, n);
    const char *data[] = {scratch_path("tinystories.npy")};
    pt_evaluation v;
    pt_evaluate_options o = options_for(PT_SHARED_DATA "/checkpoints/TinyStories-656K", data, 0);
    must(pt_evaluate(&o, &v, &e), &e);
    assert_int_equal(v.tokens, 116);
    assert_true(fabs(v.loss - 2.87532) < 1e-5);
    o.precision = PT_PRECISION_BF16;
    must(pt_evaluate(&o, &v, &e), &e);
    assert_true(fabs(v.loss - 2.87532) < 2e-2);
    json_decref(vector);
}

static void a_folder_without_weights_is_refused(void **state)
{
    pt_error e = {0};
    pt_evaluation v;
    const char *data[] = {PT_FIXTURES "/models/llama/tokens.npy"};
    pt_evaluate_options o = options_for(scratch, data, 0);
    char *config;
    size_t n;
    must(file_read_all(PT_FIXTURES "/models/llama/config.json", 1 << 20, &config, &n, &e), &e);
    scratch_put("config.json", config, n);
    free(config);
    assert_int_equal(pt_evaluate(&o, &v, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "has no weights"));
    o.model = PT_FIXTURES "/models/gpt2";
    o.seq_len = 1000;
    assert_int_equal(pt_evaluate(&o, &v, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`seq_len` is 1000"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_pytorchs),
        cmocka_unit_test(every_token_counts_and_windows_may_have_any_length),
        cmocka_unit_test(the_loss_is_the_same_from_the_disk),
        cmocka_unit_test(documents_have_the_losses_that_they_have_alone),
        cmocka_unit_test(data_without_a_target_have_no_loss),
        cmocka_unit_test(tinystories_has_its_loss),
        cmocka_unit_test(a_folder_without_weights_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
