/* What an adapter and its base have in common: merging, the chat template, and the weights that it was trained on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/base_mark.h"
#include "train/fixture.h"
#include "train/adapted.h"

/* ---- evaluation and merging ---- */

static void a_merged_model_is_the_model_with_its_adapter(void **state)
{
    (void)state;
    static const char *const cases[] = {"llama", "llama_dora", "llama_patterns", "gpt2", "gpt_neox_dora", "phi3",
                                        "llama_whole"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        adapted a;
        pt_merge_options o;
        pt_error e = {0};
        char out[200];
        adapted_open(&a, cases[i]);
        snprintf(out, sizeof out, "%s/merged_%s", scratch, cases[i]);
        pt_merge_defaults(&o);
        o.model = a.f.folder;
        o.adapter = (const char *const[]){a.folder};
        o.adapter_n = 1;
        o.out = out;
        must(pt_merge(&o, &e), &e);
        const double merged = evaluated_loss(out, NULL, a.f.tokens), beside = evaluated_loss(a.f.folder, a.folder, a.f.tokens);
        const double plain = evaluated_loss(a.f.folder, NULL, a.f.tokens);
        if (!(fabs(merged - beside) <= 2e-6 * beside && fabs(plain - beside) > 1e-4 * beside))
            fail_msg("%s: loss %.8f merged, %.8f with the adapter, %.8f without", cases[i], merged, beside, plain);
        assert_int_equal(pt_merge(&o, &e), PT_FAILED);
        assert_non_null(strstr(e.text, "already exists"));
        fixture_close(&a.f);
    }
}

static safetensors *merged_of(const char *folder, const char *const *adapters, int n, const char *name)
{
    pt_merge_options o;
    safetensors *st;
    pt_error e = {0};
    static char out[200];
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    pt_merge_defaults(&o);
    o.model = folder;
    o.adapter = adapters;
    o.adapter_n = n;
    o.out = out;
    must(pt_merge(&o, &e), &e);
    must(safetensors_open(out, &st, &e), &e);
    return st;
}

/* W + 0.7 of A's change - 1.5 of B's. */
static void adapters_are_merged_by_their_weighted_sum(void **state)
{
    (void)state;
    adapted a, b, dora;
    char first[600], second[600], third[600];
    pt_error e = {0};
    adapted_open(&a, "llama");
    adapted_open(&b, "llama_patterns");
    adapted_open(&dora, "llama_dora");
    snprintf(first, sizeof first, "%s:0.7", a.folder);
    snprintf(second, sizeof second, "%s:-1.5", b.folder);
    snprintf(third, sizeof third, "%s:0.5", dora.folder);
    safetensors *sum = merged_of(a.f.folder, (const char *const[]){first, second}, 2, "sum"),
                *of_a = merged_of(a.f.folder, (const char *const[]){a.folder}, 1, "of_a"),
                *of_b = merged_of(a.f.folder, (const char *const[]){b.folder}, 1, "of_b");
    for (size_t i = 0; i < safetensors_count(sum); i++) {
        const safetensors_tensor *t = safetensors_at(sum, i);
        float *w = values_of(a.f.weights, safetensors_find(a.f.weights, t->name)), *got = values_of(sum, t),
              *x = values_of(of_a, safetensors_find(of_a, t->name)), *y = values_of(of_b, safetensors_find(of_b, t->name));
        for (uint64_t k = 0; k < t->elements; k++) {
            const double wanted = w[k] + 0.7 * ((double)x[k] - w[k]) - 1.5 * ((double)y[k] - w[k]);
            if (!(fabs(got[k] - wanted) <= 1e-6 * (1 + fabs(wanted))))
                fail_msg("%s: value %d is %g, not %g", t->name, (int)k, (double)got[k], wanted);
        }
        free(w), free(got), free(x), free(y);
    }
    pt_merge_options o;
    pt_merge_defaults(&o);
    o.model = a.f.folder;
    o.adapter = (const char *const[]){third};
    o.adapter_n = 1;
    o.out = scratch_path("none");
    assert_int_equal(pt_merge(&o, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "an adapter of DoRA"));
    safetensors_close(sum), safetensors_close(of_a), safetensors_close(of_b);
    fixture_close(&a.f), fixture_close(&b.f), fixture_close(&dora.f);
}

static void assert_template(const char *folder, const char *wanted)
{
    char path[600], *text;
    size_t n;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    must(file_read_all(path, 1 << 20, &text, &n, &e), &e);
    assert_true(n == strlen(wanted) && !memcmp(text, wanted, n));
    free(text);
}

/* What was trained with a template needs it ever after. */
static void a_chat_template_stays_with_what_was_trained(void **state)
{
    (void)state;
    static const char text[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    adapted a;
    pt_train_options o;
    pt_merge_options merge;
    pt_error e = {0};
    char out[200], next[200], merged[200];
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/chats", scratch);
    snprintf(next, sizeof next, "%s/chats_next", scratch);
    snprintf(merged, sizeof merged, "%s/chats_merged", scratch);
    scratch_put("own.jinja", text, strlen(text));
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.steps = 1;
    o.chat_template = scratch_path("own.jinja");
    must(train_to(&o, 1, &e), &e);
    assert_template(out, text);
    o.chat_template = NULL;
    o.adapter = out;
    o.out = next;
    must(train_to(&o, 1, &e), &e);
    assert_template(next, text);
    pt_merge_defaults(&merge);
    merge.model = a.f.folder;
    merge.adapter = (const char *const[]){next};
    merge.adapter_n = 1;
    merge.out = merged;
    must(pt_merge(&merge, &e), &e);
    assert_template(merged, text);
    fixture_close(&a.f);
}

static const char *compared(const adapted *a, const char *base, const char *adapter)
{
    static heard s;
    s.text[0] = 0;
    base_mark_compare(a->f.model, base, adapter, hear, &s);
    return s.text;
}

/* The model's folder with other weights, or with the same in another dtype. */
static void copy_base(const adapted *a, const char *to, float change, pt_dtype dtype)
{
    char from[600], path[600];
    pt_error e = {0};
    safetensors_writer *w;
    must(dir_make(to, &e), &e);
    snprintf(from, sizeof from, "%s/config.json", a->f.folder);
    snprintf(path, sizeof path, "%s/config.json", to);
    must(file_copy_atomic(from, path, &e), &e);
    must(safetensors_writer_open(to, "model", SAFETENSORS_SHARD_DEFAULT, &w, &e), &e);
    for (size_t i = 0; i < safetensors_count(a->f.weights); i++) {
        const safetensors_tensor *t = safetensors_at(a->f.weights, i);
        assert_true(safetensors_declare(w, t->name, dtype, t->rank, t->shape, &e) == (int)i);
    }
    must(safetensors_begin(w, &e), &e);
    for (size_t i = 0; i < safetensors_count(a->f.weights); i++) {
        const safetensors_tensor *t = safetensors_at(a->f.weights, i);
        float *v = values_of(a->f.weights, t);
        for (uint64_t k = 0; k < t->elements; k++)
            v[k] *= change;
        must(safetensors_append_f32(w, (int)i, v, t->elements, &e), &e);
        free(v);
    }
    must(safetensors_finish(w, &e), &e);
    safetensors_writer_close(w);
}

static void an_adapter_knows_the_weights_that_it_was_trained_on(void **state)
{
    (void)state;
    adapted a;
    pt_train_options o;
    pt_error e = {0};
    char out[200], further[200], other[200], narrow[200], sentence[300], mark[BASE_MARK];
    heard heard = {""};
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/marked", scratch);
    snprintf(further, sizeof further, "%s/further", scratch);
    snprintf(other, sizeof other, "%s/other", scratch);
    snprintf(narrow, sizeof narrow, "%s/narrow", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.adapter = NULL;
    o.lora_rank = 2;
    must(train_to(&o, o.steps, &e), &e);
    copy_base(&a, other, 1.25f, PT_F32);
    copy_base(&a, narrow, 1, PT_BF16);
    snprintf(sentence, sizeof sentence, "%.200s: this adapter was trained on other weights (", out);
    base_mark_find(a.f.model, narrow, mark);
    assert_int_equal(strlen(mark), 16);
    assert_string_equal(compared(&a, a.f.folder, out), "");
    assert_string_equal(compared(&a, narrow, out), "");
    if (strncmp(compared(&a, other, out), sentence, strlen(sentence)))
        fail_msg("%s", compared(&a, other, out));
    o.model = other;
    o.out = further;
    o.lora_rank = 0;
    o.adapter = out;
    o.notice = hear;
    o.arg = &heard;
    must(train_to(&o, o.steps, &e), &e);
    assert_non_null(strstr(heard.text, sentence));
    assert_string_equal(compared(&a, other, further), ""); /* it goes on beside this one */
    fixture_close(&a.f);
}

/* PEFT says a name alone. */
static void an_adapter_of_another_name_is_told(void **state)
{
    (void)state;
    adapted a;
    char copy[200];
    adapted_open(&a, "llama");
    snprintf(copy, sizeof copy, "%s/named", scratch);
    copy_adapter(&a, copy, "base_model_name_or_path", json_string("meta/Another-7B"));
    assert_non_null(strstr(compared(&a, a.f.folder, copy), "says that it was trained on meta/Another-7B"));
    copy_adapter(&a, copy, "base_model_name_or_path", json_string("/elsewhere/LLAMA/"));
    assert_string_equal(compared(&a, a.f.folder, copy), "");
    copy_adapter(&a, copy, "base_model_name_or_path", json_null());
    assert_string_equal(compared(&a, a.f.folder, copy), "");
    fixture_close(&a.f);
}

static void a_damaged_mark_of_the_base_is_refused(void **state)
{
    (void)state;
    static const struct { const char *text, *told; } marks[] = {
        {"", BASE_MARK_FILE},
        {"{", BASE_MARK_FILE},
        {"[]", BASE_MARK_FILE},
        {"{}", "has neither weights nor base"},
        {"{\"base\":null}", "has neither weights nor base"},
        {"{\"base\":5}", "\"base\""},
        {"{\"base\":\"int4\"}", "base is \"int4\", but must be nf4, int8 or mxfp4"},
        {"{\"weights\":5,\"base\":\"nf4\"}", "\"weights\""},
        {"{\"weights\":\"zz\",\"base\":\"nf4\"}", "weights is \"zz\""},
        {"{\"weights\":\"5e2532e6e4c9c72\"}", "weights is"},
        {"{\"weights\":\"5e2532e6e4c9c725\"}", NULL},
        {"{\"base\":\"nf4\"}", NULL},
    };
    adapted a;
    char copy[200], path[300];
    adapted_open(&a, "llama");
    snprintf(copy, sizeof copy, "%s/damaged", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    snprintf(path, sizeof path, "%s/" BASE_MARK_FILE, copy);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        model *m;
        pt_error e = {0};
        must(file_write_atomic(path, marks[i].text, strlen(marks[i].text), &e), &e);
        must(model_open(a.f.folder, NULL, NULL, &m, &e), &e);
        const int failed = model_adapt_like(m, copy, NULL, NULL, &e);
        if (marks[i].told ? !failed || !strstr(e.text, marks[i].told) || !strstr(e.text, path) : failed)
            fail_msg("%s: %s", marks[i].text, e.text);
        model_close(m);
    }
    fixture_close(&a.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_template_stays_with_what_was_trained),
        cmocka_unit_test(a_merged_model_is_the_model_with_its_adapter), cmocka_unit_test(adapters_are_merged_by_their_weighted_sum),
        cmocka_unit_test(an_adapter_knows_the_weights_that_it_was_trained_on),
        cmocka_unit_test(an_adapter_of_another_name_is_told),
        cmocka_unit_test(a_damaged_mark_of_the_base_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
