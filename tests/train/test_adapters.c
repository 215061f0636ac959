/* Runs that train adapters, beside PEFT in float64 (fixtures/adapters): losses, norms and updates; gradients beside finite differences;
 * what a new adapter is; going on, evaluating and merging; and what is refused. */
#include "protrain.h"

#include <float.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/adapter.h"
#include "model/base_mark.h"
#include "train/fixture.h"

#include "train/direct.h"

/* A fixture of models/ whose reference is that of adapters/NAME; its adapter's folder. */
typedef struct adapted { fixture f; char folder[512]; } adapted;

static void adapted_open(adapted *a, const char *name)
{
    char path[600];
    json_t *json;
    pt_error e = {0};
    snprintf(a->folder, sizeof a->folder, "%s/adapters/%s", PT_FIXTURES, name);
    snprintf(path, sizeof path, "%s/reference.json", a->folder);
    must(json_file_load(path, 0, &json, &e), &e);
    fixture_open(&a->f, "models", json_string_value(json_object_get(json, "model")));
    json_decref(a->f.json);
    safetensors_close(a->f.reference);
    a->f.json = json;
    snprintf(path, sizeof path, "%s/reference.safetensors", a->folder);
    must(safetensors_open(path, &a->f.reference, &e), &e);
    snprintf(a->f.name, sizeof a->f.name, "%s", name);
    must(model_adapt_like(a->f.model, a->folder, NULL, NULL, &e), &e);
}

static void options_of(const adapted *a, const char *const *tokens, const char *out, pt_train_options *o)
{
    fixture_options(&a->f, tokens, out, o);
    o->adapter = a->folder;
    o->save_type = PT_SAVE_AS_STORED;
}

static safetensors *adapter_open(const char *folder)
{
    char path[600];
    safetensors *st;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, folder);
    must(safetensors_open(path, &st, &e), &e);
    return st;
}

static float *values_of(const safetensors *st, const safetensors_tensor *t)
{
    pt_error e = {0};
    float *values = malloc(t->elements * sizeof *values);
    assert_non_null(values);
    must(safetensors_read_f32(st, t, 0, t->elements, values, &e), &e);
    return values;
}

/* ---- beside PEFT ---- */

/* Tensor by tensor of PEFT's file, by its names. */
static void compare_updates(const adapted *a, const char *out)
{
    safetensors *before = adapter_open(a->folder), *after = adapter_open(out);
    assert_int_equal(safetensors_count(before), safetensors_count(after));
    for (size_t i = 0; i < safetensors_count(before); i++) {
        const safetensors_tensor *was = safetensors_at(before, i), *is = safetensors_find(after, was->name);
        char name[200];
        snprintf(name, sizeof name, "after.%s", was->name);
        const safetensors_tensor *wanted = safetensors_find(a->f.reference, name);
        assert_true(is && wanted && is->elements == wanted->elements && is->dtype == PT_F32);
        float *x = values_of(before, was), *y = values_of(after, is), *z = values_of(a->f.reference, wanted);
        double error = 0, size = 0;
        for (uint64_t k = 0; k < was->elements; k++) {
            error += ((double)y[k] - (double)z[k]) * ((double)y[k] - (double)z[k]);
            size += ((double)z[k] - (double)x[k]) * ((double)z[k] - (double)x[k]);
        }
        if (!(error <= 1e-6 * size))
            fail_msg("%s: update of %s is off by %.2e of itself", a->f.name, was->name, sqrt(error / size));
        free(x), free(y), free(z);
    }
    safetensors_close(before);
    safetensors_close(after);
}

static void run_beside_peft(const char *name)
{
    adapted a;
    pt_train_options o;
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    char out[200];
    int more, done = 0;
    adapted_open(&a, name);
    snprintf(out, sizeof out, "%s/%s", scratch, name);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    must(pt_trainer_open(&o, &t, &e), &e);
    for (; (more = pt_trainer_step(t, &s, &e)) > 0; done++) {
        const double loss = fixture_of_step(&a.f, "loss_fp64", done), norm = fixture_of_step(&a.f, "grad_norm_fp64", done);
        if (!(fabs(s.loss - loss) <= 1e-5 * loss && fabs(s.grad_norm - norm) <= 1e-4 * norm))
            fail_msg("%s step %d: loss %.9f and norm %.9f, in fp64 %.9f and %.9f", name, done + 1, s.loss, s.grad_norm, loss, norm);
    }
    must(more, &e);
    assert_int_equal(done, (int)fixture_setting(&a.f, "steps"));
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
    compare_updates(&a, out);
    fixture_close(&a.f);
}

static void losses_and_updates_are_pefts(void **state)
{
    (void)state;
    static const char *const cases[] = {"llama", "llama_dora", "llama_patterns", "gpt2", "gpt_neox_dora", "phi3"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_beside_peft(cases[i]);
}

/* ---- gradients ---- */

static double loss_at(direct *d, state *s, int index, const float *at, const float *way, double by)
{
    const param *p = &d->f->model->params[index];
    const int64_t n = p->rows * p->cols;
    pt_error e = {0};
    float *moved = malloc((size_t)n * sizeof *moved);
    assert_non_null(moved);
    for (int64_t i = 0; i < n; i++)
        moved[i] = (float)((double)at[i] + by * (double)way[i]);
    must(state_write(s, STATE_MASTER, index, 0, n, moved, &e), &e);
    free(moved);
    return direct_step(d, 0).loss;
}

/* Along its own gradient, in steps in which the loss is nearly straight. */
static void check_slope(direct *d, state *s, int index)
{
    const param *p = &d->f->model->params[index];
    const int64_t n = p->rows * p->cols;
    pt_error e = {0};
    float *at = malloc((size_t)n * sizeof *at);
    assert_non_null(at);
    must(state_read(s, STATE_MASTER, index, 0, n, at, &e), &e);
    direct_step(d, 0);
    float *way = direct_gradient(d, index);
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)way[i] * (double)way[i];
    const double by = 5e-3 / sqrt(squares);
    const double slope = (loss_at(d, s, index, at, way, by) - loss_at(d, s, index, at, way, -by)) / (2 * by);
    if (!(fabs(slope - squares) <= 0.01 * squares + 1e-4 * sqrt(squares)))
        fail_msg("%s: %s falls by %.6g, and its gradient says %.6g", d->f->name, p->part[0].name, slope, squares);
    must(state_write(s, STATE_MASTER, index, 0, n, at, &e), &e);
    free(at);
    free(way);
}

/* The norm in DoRA's gain is a constant in backward, and no finite difference shows that: of A and B LoRA's are looked at, of DoRA the
 * magnitudes'. */
static void check_slopes(const char *name, save_level level)
{
    adapted a;
    direct d;
    state s;
    pt_error e = {0};
    adapted_open(&a, name);
    direct_open_with(&d, &a.f, PT_F32, level, (int64_t)fixture_setting(&a.f, "batch_size"), (int64_t)fixture_setting(&a.f, "seq_len"));
    safetensors *st = adapter_open(a.folder);
    state_open(&s, d.x);
    must(state_load_adapted(&s, a.f.weights, st, 0, &e), &e);
    int checked = 0;
    for (int i = 0; i < a.f.model->params_n; i++)
        if (param_is_adapter(&a.f.model->params[i]) && (!a.f.model->config.dora || a.f.model->params[i].kind->use == USE_MAGNITUDE)) {
            check_slope(&d, &s, i);
            checked++;
        }
    assert_true(checked > 3);
    must(state_close(&s, &e), &e);
    safetensors_close(st);
    direct_close(&d);
    fixture_close(&a.f);
}

static void gradients_are_slopes(void **state)
{
    (void)state;
    check_slopes("llama", SAVE_INPUT);
    check_slopes("llama_patterns", SAVE_ALL);
    check_slopes("gpt2", SAVE_ATTENTION);
    check_slopes("gpt_neox_dora", SAVE_ALL);
}

/* ---- a new one ---- */

/* Nothing is learned with a rate that is too small for it: what was written is how the adapter began. */
static void a_new_adapter_begins_as_pefts(void **state)
{
    (void)state;
    adapted a;
    pt_train_options o;
    pt_error e = {0};
    char out[200], path[300];
    json_t *config;
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/new", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.adapter = NULL;
    o.lora_rank = 3;
    o.lora_targets = "q_proj,up_proj,down_proj";
    o.dora = true;
    o.lr = 1e-30;
    o.weight_decay = 0;
    must(train_to(&o, o.steps, &e), &e);
    snprintf(path, sizeof path, "%s/" ADAPTER_CONFIG, out);
    must(json_file_load(path, 0, &config, &e), &e);
    assert_int_equal(json_integer_value(json_object_get(config, "r")), 3);
    assert_int_equal(json_integer_value(json_object_get(config, "lora_alpha")), 6);
    assert_true(json_is_true(json_object_get(config, "use_dora")));
    assert_string_equal(json_string_value(json_object_get(config, "base_model_name_or_path")), a.f.folder);
    assert_int_equal(json_array_size(json_object_get(config, "target_modules")), 3);
    json_decref(config);
    safetensors *st = adapter_open(out);
    assert_int_equal(safetensors_count(st), 2 * 3 * 3);
    for (size_t i = 0; i < safetensors_count(st); i++) {
        const safetensors_tensor *x = safetensors_at(st, i);
        float *v = values_of(st, x), most = 0, sum = 0;
        for (uint64_t k = 0; k < x->elements; k++) {
            most = fmaxf(most, fabsf(v[k]));
            sum += v[k];
        }
        if (strstr(x->name, "lora_A")) {
            const double bound = 1 / sqrt((double)x->shape[1]);
            assert_true(x->shape[0] == 3 && most <= bound && most > 0.8 * bound && fabsf(sum) < 6 * sqrt((double)x->elements / 3) * bound);
        } else if (strstr(x->name, "lora_B")) {
            assert_true(x->shape[1] == 3 && most < 1e-20f);
        } else { /* the norm of the row of W */
            char base[200];
            snprintf(base, sizeof base, "%.*s.weight", (int)(strstr(x->name,
                                                                    ".lora_magnitude_vector") - x->name - (int)strlen(ADAPTER_PREFIX)),
                     x->name + strlen(ADAPTER_PREFIX));
            const safetensors_tensor *w = safetensors_find(a.f.weights, base);
            assert_non_null(w);
            float *rows = values_of(a.f.weights, w);
            double squares = 0;
            for (int64_t k = 0; k < w->shape[1]; k++)
                squares += (double)rows[k] * (double)rows[k];
            assert_true(x->rank == 1 && fabs(v[0] - sqrt(squares)) <= 1e-6 * sqrt(squares));
            free(rows);
        }
        free(v);
    }
    safetensors_close(st);
    fixture_close(&a.f);
}

/* ---- going on ---- */

static void assert_same_file(const char *a, const char *b)
{
    char path[600], *x, *y;
    size_t n, m;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, a);
    must(file_read_all(path, 1 << 28, &x, &n, &e), &e);
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, b);
    must(file_read_all(path, 1 << 28, &y, &m, &e), &e);
    assert_true(n == m && !memcmp(x, y, n));
    free(x), free(y);
}

static void a_run_goes_on_to_the_same_bits_beside_the_same_model(void **state)
{
    (void)state;
    static const pt_optimizer optimizers_of[] = {PT_OPTIMIZER_ADAMW, PT_OPTIMIZER_ADAMW8BIT};
    for (int i = 0; i < 4; i++) {
        adapted a;
        pt_train_options o;
        pt_error e = {0};
        char whole[200], parts[200], other[200];
        adapted_open(&a, i % 2 ? "llama_dora" : "gpt2");
        snprintf(whole, sizeof whole, "%s/whole%d", scratch, i);
        snprintf(parts, sizeof parts, "%s/parts%d", scratch, i);
        options_of(&a, (const char *const[]){a.f.tokens}, whole, &o);
        o.optimizer = optimizers_of[i / 2];
        o.precision = i % 2 ? PT_PRECISION_BF16 : PT_PRECISION_FP32;
        o.steps = 7;
        must(train_to(&o, 7, &e), &e);
        o.out = parts;
        must(train_to(&o, 3, &e), &e);
        o.resume = true;
        if (i == 0) { /* another base of the same shape */
            snprintf(other, sizeof other, "%s/other", scratch);
            fixture_copy(&a.f, other, NULL, NULL);
            char path[300];
            snprintf(path, sizeof path, "%s/model.safetensors", other);
            FILE *file = fopen(path, "r+b");
            assert_true(file && !fseek(file, -4, SEEK_END) && fwrite("\1\2\3\4", 1, 3, file) == 3 && !fclose(file));
            o.model = other;
            assert_int_equal(train_to(&o, 7, &e), PT_FAILED);
            assert_non_null(strstr(e.text, "with other weights"));
            o.model = a.f.folder;
        }
        must(train_to(&o, 7, &e), &e);
        assert_same_file(whole, parts);
        fixture_close(&a.f);
    }
}

static void a_run_with_another_adapter_is_not_the_same(void **state)
{
    (void)state;
    adapted a;
    pt_train_options o;
    pt_error e = {0};
    char out[200];
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/rank", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.adapter = NULL;
    o.lora_rank = 2;
    must(train_to(&o, 1, &e), &e);
    o.resume = true;
    o.lora_rank = 3;
    assert_int_equal(train_to(&o, 2, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`lora_rank` 2"));
    o.lora_rank = 0;
    assert_int_equal(train_to(&o, 2, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`lora_rank`"));
    fixture_close(&a.f);
}

/* ---- evaluation and merging ---- */

static void a_merged_model_is_the_model_with_its_adapter(void **state)
{
    (void)state;
    static const char *const cases[] = {"llama", "llama_dora", "llama_patterns", "gpt2", "gpt_neox_dora", "phi3"};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        adapted a;
        pt_merge_options o;
        pt_error e = {0};
        char out[200];
        adapted_open(&a, cases[i]);
        snprintf(out, sizeof out, "%s/merged_%s", scratch, cases[i]);
        pt_merge_defaults(&o);
        o.model = a.f.folder;
        o.adapter = a.folder;
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
    merge.adapter = next;
    merge.out = merged;
    must(pt_merge(&merge, &e), &e);
    assert_template(merged, text);
    fixture_close(&a.f);
}

/* A copy of llama's adapter whose config has another value, or whose tensor another name, shape or value. */
static void copy_adapter(const adapted *a, const char *to, const char *key, json_t *value)
{
    char from[600], path[600];
    json_t *config;
    pt_error e = {0};
    must(dir_make(to, &e), &e);
    snprintf(from, sizeof from, "%s/" ADAPTER_CONFIG, a->folder);
    snprintf(path, sizeof path, "%s/" ADAPTER_CONFIG, to);
    must(json_file_load(from, 0, &config, &e), &e);
    if (key)
        json_object_set_new(config, key, value);
    must(file_write_json(path, config, &e), &e);
    json_decref(config);
    snprintf(from, sizeof from, "%s/" ADAPTER_WEIGHTS, a->folder);
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, to);
    must(file_copy_atomic(from, path, &e), &e);
}

/* ---- the base that it belongs to ---- */

typedef struct said { char text[4096]; } said;

static void hear(void *arg, const char *sentence)
{
    said *s = arg;
    snprintf(s->text + strlen(s->text), sizeof s->text - strlen(s->text), "%s\n", sentence);
}

static const char *compared(const adapted *a, const char *base, const char *adapter)
{
    static said s;
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
    said heard = {""};
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
        {"{\"base\":\"int4\"}", "base is \"int4\", but must be nf4 or int8"},
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

/* ---- refusals ---- */

static void expect(const pt_train_options *o, const char *word)
{
    pt_trainer *t;
    pt_error e = {0};
    assert_true(pt_trainer_open(o, &t, &e) < 0);
    if (!strstr(e.text, word))
        fail_msg("'%s' is not in: %s", word, e.text);
}

static void options_that_mean_nothing_are_refused(void **state)
{
    (void)state;
    adapted a;
    pt_train_options plain, o;
    char out[200];
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/refused", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &plain);
    plain.adapter = NULL;
    plain.lora_rank = 4;
#define REFUSED(change, word) o = plain, (change), expect(&o, word)
    REFUSED(o.lora_rank = -1, "`lora_rank` is -1");
    REFUSED(o.lora_targets = "q_proj,lm_head", "'lm_head' is not a linear layer");
    REFUSED(o.lora_targets = "", "`lora_targets`");
    REFUSED(o.lora_dropout = 0.1, "`lora_dropout` is 0.1");
    REFUSED(o.lora_alpha = -1, "`lora_alpha` is -1");
    REFUSED(o.adapter = a.folder, "leave out `lora_rank`");
    REFUSED(o.optimizer = PT_OPTIMIZER_MUON, "`optimizer` muon");
    REFUSED(o.save_type = PT_SAVE_BF16, "`save_type`");
    REFUSED((o.freeze = (const char *const[]){"*"}, o.freeze_n = 1), "`freeze`");
    REFUSED((o.lora_rank = 0, o.dora = true), "`dora`");
    fixture_close(&a.f);
}

/* Writes bytes over the first place of the file that reads `text`, or over its end. */
static void overwrite(const char *folder, const char *text, const void *bytes, size_t n)
{
    char path[600], *all;
    size_t size, at;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, folder);
    must(file_read_all(path, 1 << 28, &all, &size, &e), &e);
    for (at = 0; text && memcmp(all + at, text, strlen(text));)
        at++;
    memcpy(all + (text ? at : size - n), bytes, n);
    must(file_write_atomic(path, all, size, &e), &e);
    free(all);
}

static void set_key(const char *folder, const char *key, json_t *value)
{
    char path[600];
    json_t *config;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/" ADAPTER_CONFIG, folder);
    must(json_file_load(path, 0, &config, &e), &e);
    json_object_set_new(config, key, value);
    must(file_write_json(path, config, &e), &e);
    json_decref(config);
}

/* A copy whose config denies them. */
static const char *no_magnitudes(const adapted *dora, char *copy, size_t n)
{
    snprintf(copy, n, "%s/no_magnitudes", scratch);
    copy_adapter(dora, copy, "use_dora", json_false());
    return copy;
}

static void adapters_that_do_not_belong_are_refused(void **state)
{
    (void)state;
    adapted a, neox, dora;
    pt_train_options o;
    char out[200], copy[200];
    adapted_open(&a, "llama");
    adapted_open(&neox, "gpt_neox_dora");
    adapted_open(&dora, "llama_dora");
    snprintf(out, sizeof out, "%s/refused", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.adapter = neox.folder;
    expect(&o, "another model");
    o.adapter = a.f.folder;
    expect(&o, ADAPTER_CONFIG);
    int n = 0;
#define CONFIG(key, value, word)                                                                                                           \
    snprintf(copy, sizeof copy, "%s/copy%d", scratch, n++), copy_adapter(&a, copy, key, value), o.adapter = copy, expect(&o, word)
    CONFIG("modules_to_save", json_pack("[s]", "lm_head"), "modules_to_save");
    CONFIG("peft_type", json_string("IA3"), "IA3");
    CONFIG("bias", json_string("all"), "bias");
    CONFIG("init_lora_weights", json_string("pissa"), "pissa");
    CONFIG("layer_replication", json_pack("[[i, i]]", 0, 1), "layer_replication");
    CONFIG("something_new", json_integer(3), "something_new");
    CONFIG("r", json_integer(8), "rank");
    CONFIG("rank_pattern", json_pack("{s:i}", "q_proj", 9), "rank");
    CONFIG("rank_pattern", json_pack("{s:i}", "(q_proj", 4), "regular expression");
    CONFIG("use_dora", json_true(), "lora_magnitude_vector");
    CONFIG("lora_alpha", json_string("16"), "lora_alpha");
    CONFIG("target_modules", json_integer(3), "\"target_modules\" is an integer");
    CONFIG("target_modules", json_pack("[i]", 3), "\"target_modules\" is a list of something else");
    CONFIG("target_modules", json_pack("[s]", "nonsense"), "\"target_modules\" leaves model.layers.0.self_attn.q_proj out");
    CONFIG("target_modules", json_string("q_proj"), "\"target_modules\" leaves model.layers.0.self_attn.q_proj out");
    CONFIG("target_modules", json_string(".*[qk"), "regular expression");
    CONFIG("exclude_modules", json_pack("[s]", "layers.1.mlp.up_proj"), "\"exclude_modules\" leaves model.layers.1.mlp.up_proj out");
    CONFIG("layers_to_transform", json_pack("[i]", 0), "\"layers_to_transform\" leaves model.layers.1.self_attn.q_proj out");
    CONFIG("layers_to_transform", json_string("0"), "\"layers_to_transform\"");
    CONFIG("layers_pattern", json_string("layers"), "\"layers_pattern\" has no meaning");
    CONFIG("rank_pattern", json_pack("{s:f}", "nothing", 2.5), "rank_pattern");
    CONFIG("rank_pattern", json_pack("[i]", 2), "rank_pattern");
    CONFIG("alpha_pattern", json_pack("{s:s}", "nothing", "2"), "alpha_pattern");
    CONFIG("alpha_pattern", json_pack("{s:i}", "(nothing", 2), "regular expression");
    CONFIG("fan_in_fan_out", json_string("no"), "fan_in_fan_out");
    CONFIG("task_type", json_integer(1), "task_type");
    CONFIG("use_dora", json_integer(1), "use_dora");
    CONFIG("bias", json_false(), "bias");
    o.adapter = no_magnitudes(&dora, copy, sizeof copy);
    o.model = dora.f.folder;
    expect(&o, "\"use_dora\" is false");
    fixture_close(&a.f);
    fixture_close(&neox.f);
    fixture_close(&dora.f);
}

/* What the config adapts is read as PEFT reads it. */
static void targets_are_pefts(void **state)
{
    (void)state;
    adapted a;
    said s = {0};
    pt_error e = {0};
    char copy[200];
    int n = 0;
    adapted_open(&a, "llama");
#define TAKEN(key, value, also, other)                                                                                                     \
    do {                                                                                                                                   \
        model *m;                                                                                                                          \
        snprintf(copy, sizeof copy, "%s/taken%d", scratch, n++);                                                                           \
        copy_adapter(&a, copy, key, value);                                                                                                \
        if (also)                                                                                                                          \
            set_key(copy, also, other);                                                                                                    \
        must(model_open(a.f.folder, NULL, NULL, &m, &e), &e);                                                                              \
        must(model_adapt_like(m, copy, hear, &s, &e), &e);                                                                                 \
        model_close(m);                                                                                                                    \
    } while (0)
    const char *nothing = NULL;
    TAKEN("target_modules", json_string("all-linear"), nothing, NULL);
    TAKEN("target_modules", json_null(), nothing, NULL);
    TAKEN("target_modules", json_string(".*\\.(self_attn|mlp)\\.[a-z]+_proj"), nothing, NULL);
    TAKEN("target_modules",
          json_pack("[s, s, s, s, s, s, s, s]", "q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "mlp.up_proj", "down_proj", "c_attn"),
          nothing, NULL);
    TAKEN("layers_to_transform", json_pack("[i, i]", 1, 0), "layers_pattern", json_string("layers"));
    TAKEN("layers_to_transform", json_pack("[i, i]", 0, 1), "layers_pattern", json_pack("[s, s]", "h", "layers"));
    TAKEN("exclude_modules", json_string("model\\.layers\\.7.*"), nothing, NULL);
    assert_string_equal(s.text, "");
    TAKEN("alpha_pattern", json_pack("{s:i}", "nothing", 2), nothing, NULL);
    assert_non_null(strstr(s.text, "\"nothing\" of \"alpha_pattern\" matches no module"));
    fixture_close(&a.f);
}

/* Of finite values, which only together are too much. */
static void an_adapter_that_makes_weights_infinite_is_not_merged(void **state)
{
    (void)state;
    adapted a;
    pt_merge_options o;
    pt_error e = {0};
    char out[200], copy[200];
    const float large[] = {FLT_MAX, FLT_MAX, FLT_MAX, FLT_MAX};
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/infinite", scratch);
    snprintf(copy, sizeof copy, "%s/large", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, NULL, large, sizeof large);
    pt_merge_defaults(&o);
    o.model = a.f.folder;
    o.adapter = copy;
    o.out = out;
    assert_int_equal(pt_merge(&o, &e), PT_FAILED);
    if (!strstr(e.text, copy) || !strstr(e.text, "of model.layers.") || !strstr(e.text, "is not finite"))
        fail_msg("%s", e.text);
    assert_false(path_exists(out));
    fixture_close(&a.f);
}

static void damaged_adapters_are_refused(void **state)
{
    (void)state;
    adapted a;
    pt_train_options o;
    char out[200], copy[200];
    const float bad = NAN;
    adapted_open(&a, "llama");
    snprintf(out, sizeof out, "%s/refused", scratch);
    options_of(&a, (const char *const[]){a.f.tokens}, out, &o);
    o.adapter = copy;
    snprintf(copy, sizeof copy, "%s/nan", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, NULL, &bad, sizeof bad);
    expect(&o, "not finite");
    snprintf(copy, sizeof copy, "%s/name", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, "layers.1.self_attn.q_proj.lora_B", "layers.7", 8);
    expect(&o, "lora_B");
    snprintf(copy, sizeof copy, "%s/embedding", scratch);
    copy_adapter(&a, copy, NULL, NULL);
    overwrite(copy, "layers.1.self_attn.v_proj.lora_A.weight", "layers.9", 8);
    overwrite(copy, "layers.1.self_attn.v_proj.lora_B.weight", "layers.9", 8);
    expect(&o, "layers.9");
    fixture_close(&a.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_updates_are_pefts),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(a_new_adapter_begins_as_pefts),
        cmocka_unit_test(a_run_goes_on_to_the_same_bits_beside_the_same_model),
        cmocka_unit_test(a_run_with_another_adapter_is_not_the_same),
        cmocka_unit_test(a_chat_template_stays_with_what_was_trained),
        cmocka_unit_test(a_merged_model_is_the_model_with_its_adapter),
        cmocka_unit_test(an_adapter_knows_the_weights_that_it_was_trained_on),
        cmocka_unit_test(an_adapter_of_another_name_is_told),
        cmocka_unit_test(a_damaged_mark_of_the_base_is_refused),
        cmocka_unit_test(options_that_mean_nothing_are_refused),
        cmocka_unit_test(adapters_that_do_not_belong_are_refused),
        cmocka_unit_test(targets_are_pefts),
        cmocka_unit_test(damaged_adapters_are_refused),
        cmocka_unit_test(an_adapter_that_makes_weights_infinite_is_not_merged),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
