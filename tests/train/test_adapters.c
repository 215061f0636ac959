/* Adapters beside PEFT's: losses and updates, gradients, a new one, and runs that are continued. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"

#include "train/direct.h"
#include "train/adapted.h"

static safetensors *adapter_open(const char *folder)
{
    char path[600];
    safetensors *st;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/" ADAPTER_WEIGHTS, folder);
    must(safetensors_open(path, &st, &e), &e);
    return st;
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
    static const char *const cases[] = {"llama", "llama_dora", "llama_patterns", "gpt2", "gpt_neox_dora", "phi3",
                                        "llama_dropout", "gpt2_dropout", "llama_whole", "qwen2_moe", "gpt_oss", "mixtral_up"};
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
static void check_slopes(const char *name, save_level level, bool groups)
{
    adapted a;
    direct d;
    state s;
    pt_error e = {0};
    adapted_open(&a, name);
    direct_open_with(&d, &a.f, PT_F32, level, (int64_t)fixture_setting(&a.f, "batch_size"), (int64_t)fixture_setting(&a.f, "seq_len"),
                     groups, SAVED_EXACT);
    safetensors *st = adapter_open(a.folder);
    state_open(&s, d.x);
    must(state_load_adapted(&s, a.f.weights, st, 0, &e), &e);
    executor_set_dropout(d.x, 1); /* the same in all steps */
    int checked = 0;
    for (int i = 0; i < a.f.model->params_n; i++)
        if (param_is_adapter(&a.f.model->params[i]) &&
            (!model_has_magnitudes(a.f.model) || a.f.model->params[i].kind->use == USE_MAGNITUDE)) {
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
    for (int groups = 0; groups < 2; groups++) {
        check_slopes("llama", SAVE_INPUT, groups);
        check_slopes("llama_patterns", SAVE_ALL, groups);
        check_slopes("gpt2", SAVE_ATTENTION, groups);
        check_slopes("llama_dropout", SAVE_INPUT, groups);
        check_slopes("gpt2_dropout", SAVE_ALL, groups);
    }
    check_slopes("gpt_neox_dora", SAVE_ALL, false); /* its gains keep all heads together */
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
        adapted_open(&a, i % 2 ? "llama_dora" : i ? "qwen2_moe" : "gpt2");
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

/* Modules in full beside a new adapter start from the model: its first step has the model's loss. */
static void modules_in_full_start_from_the_model(void **state)
{
    (void)state;
    static const char *const cases[][2] = {{"llama", "embed_tokens,lm_head"}, {"llama_tied_bias", "embed_tokens"}};
    for (int i = 0; i < 2; i++) {
        fixture f;
        pt_train_options o;
        pt_trainer *t;
        pt_step s;
        pt_error e = {0};
        char out[200];
        fixture_open(&f, "models", cases[i][0]);
        snprintf(out, sizeof out, "%s/whole_%s", scratch, cases[i][0]);
        fixture_options(&f, (const char *const[]){f.tokens}, out, &o);
        o.save_type = PT_SAVE_AS_STORED;
        o.lora_rank = 2;
        o.train_also = cases[i][1];
        must(pt_trainer_open(&o, &t, &e), &e);
        assert_int_equal(pt_trainer_step(t, &s, &e), 1);
        const double loss = fixture_of_step(&f, "loss_fp64", 0);
        if (!(fabs(s.loss - loss) <= 1e-5 * loss))
            fail_msg("%s: the first loss is %.9f, that of the model %.9f", f.name, s.loss, loss);
        pt_trainer_close(t);
        fixture_close(&f);
    }
}

static void names_of_modules_may_come_in_another_order(void **state)
{
    (void)state;
    fixture f;
    pt_train_options o;
    pt_error e = {0};
    fixture_open(&f, "models", "llama");
    fixture_options(&f, (const char *const[]){f.tokens}, scratch_path("order"), &o);
    o.save_type = PT_SAVE_AS_STORED;
    o.lora_rank = 2;
    o.lora_targets = "q_proj,v_proj";
    o.train_also = "embed_tokens,lm_head";
    o.steps = 3;
    must(train_to(&o, 1, &e), &e);
    o.resume = true;
    o.lora_targets = "v_proj,q_proj";
    o.train_also = "lm_head,embed_tokens";
    must(train_to(&o, 2, &e), &e);
    o.lora_targets = "q_proj,k_proj";
    assert_int_equal(train_to(&o, 3, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`lora_targets`"));
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_updates_are_pefts),
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(a_new_adapter_begins_as_pefts),
        cmocka_unit_test(modules_in_full_start_from_the_model),
        cmocka_unit_test(names_of_modules_may_come_in_another_order),
        cmocka_unit_test(a_run_goes_on_to_the_same_bits_beside_the_same_model),
        cmocka_unit_test(a_run_with_another_adapter_is_not_the_same),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
