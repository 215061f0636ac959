/* Runs in which parameters are frozen, beside PyTorch with requires_grad off: losses, norms, gradients and updates of what is trained;
 * what is frozen stays, bit for bit, through checkpoints too. And what --freeze and --train-only refuse. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/fixture.h"

#include "train/direct.h"

enum { PATTERNS = 8 };

typedef struct frozen { fixture f; const char *freeze[PATTERNS], *train_only[PATTERNS]; model_freezing patterns; } frozen;

static int read_patterns(const fixture *f, const char *key, const char *out[PATTERNS])
{
    json_t *list = json_object_get(f->json, key), *value;
    size_t i;
    assert_true(json_is_array(list) && json_array_size(list) <= PATTERNS);
    json_array_foreach(list, i, value)
        out[i] = json_string_value(value);
    return (int)json_array_size(list);
}

/* The model of models/, and what frozen/NAME says of it. */
static void frozen_open(frozen *z, const char *name)
{
    char path[600];
    json_t *json;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/frozen/%s/reference.json", PT_FIXTURES, name);
    must(json_file_load(path, 0, &json, &e), &e);
    memset(z, 0, sizeof *z);
    fixture_open(&z->f, "models", json_string_value(json_object_get(json, "model")));
    json_decref(z->f.json);
    safetensors_close(z->f.reference);
    z->f.json = json;
    snprintf(path, sizeof path, "%s/frozen/%s/reference.safetensors", PT_FIXTURES, name);
    must(safetensors_open(path, &z->f.reference, &e), &e);
    z->patterns.freeze_n = read_patterns(&z->f, "freeze", z->freeze);
    z->patterns.train_only_n = read_patterns(&z->f, "train_only", z->train_only);
    z->patterns.freeze = z->freeze;
    z->patterns.train_only = z->train_only;
    must(model_freeze(z->f.model, &z->patterns, &e), &e);
}

static void frozen_options(const frozen *z, const char *const *tokens, const char *out, pt_train_options *o)
{
    fixture_options(&z->f, tokens, out, o);
    o->freeze = z->freeze;
    o->freeze_n = z->patterns.freeze_n;
    o->train_only = z->train_only;
    o->train_only_n = z->patterns.train_only_n;
}

/* Parameter by parameter: frozen ones have the bits that the model's folder has. Returns how many are. */
static int check_frozen(const frozen *z, const char *folder)
{
    const model *m = z->f.model;
    safetensors *st;
    pt_error e = {0};
    int n = 0;
    must(safetensors_open(folder, &st, &e), &e);
    for (int i = 0; i < m->params_n; i++) {
        float *before = read_parameter(m, z->f.weights, i), *after = read_parameter(m, st, i);
        const bool same = memcmp(before, after, (size_t)(m->params[i].rows * m->params[i].cols) * sizeof *before) == 0;
        if (same == m->params[i].trainable)
            fail_msg("%s: %s is %s", z->f.name, m->params[i].part[0].name, same ? "trained, and stays" : "frozen, and has changed");
        n += !m->params[i].trainable;
        free(before);
        free(after);
    }
    safetensors_close(st);
    return n;
}

/* ---- beside PyTorch ---- */

static const char *const cases[] = {"gpt2_last", "gpt2_mixed", "gpt2_positions", "llama_attention", "llama_head", "llama_last_mlp"};
enum { CASES = sizeof cases / sizeof *cases };

static void compare_gradients(const char *name, save_level level)
{
    frozen z;
    direct d;
    frozen_open(&z, name);
    direct_open(&d, &z.f, PT_F32, level);
    step_result r = direct_step(&d, 0);
    const double loss = fixture_of_step(&z.f, "loss_fp64", 0), norm = fixture_of_step(&z.f, "grad_norm_fp64", 0);
    if (!(fabs(r.loss - loss) <= 1e-5 * loss && fabs(r.norm - norm) <= 1e-4 * norm))
        fail_msg("%s: loss %.9f and norm %.9f, in fp64 %.9f and %.9f", name, r.loss, r.norm, loss, norm);
    for (int i = 0; i < z.f.model->params_n; i++) {
        float *ours = z.f.model->params[i].trainable ? direct_gradient(&d, i) : NULL;
        for (int k = 0; ours && k < z.f.model->params[i].parts; k++) {
            const distance g = part_distance(&z.f, "grad", i, k, ours, NULL, false);
            if (!(g.error <= 1e-4 * fmax(g.size, 1e-6 * norm)))
                fail_msg("%s: gradient of %s is off by %.2e of its norm", name, z.f.model->params[i].part[k].name, g.error / g.size);
        }
        free(ours);
    }
    direct_close(&d);
    fixture_close(&z.f);
}

static void gradients_of_what_is_trained_are_as_in_pytorch(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++)
        for (save_level level = 0; level < SAVE_LEVELS; level++)
            compare_gradients(cases[i], level);
}

static void run_steps(const fixture *f, pt_trainer *t)
{
    pt_error e = {0};
    pt_step s;
    int more, done = 0;
    while ((more = pt_trainer_step(t, &s, &e)) > 0) {
        const double loss = fixture_of_step(f, "loss_fp64", done), norm = fixture_of_step(f, "grad_norm_fp64", done);
        done++;
        if (!(fabs(s.loss - loss) <= 1e-5 * loss && fabs(s.grad_norm - norm) <= 1e-4 * norm))
            fail_msg("%s step %d: loss %.9f and norm %.9f, in fp64 %.9f and %.9f", f->name, done, s.loss, s.grad_norm, loss, norm);
    }
    must(more, &e);
    assert_int_equal(done, (int)fixture_setting(f, "steps"));
}

/* worst_update looks at what is trained: the reference has nothing else. */
static void compare_updates(const frozen *z, const char *folder)
{
    safetensors *st;
    pt_error e = {0};
    must(safetensors_open(folder, &st, &e), &e);
    for (int i = 0; i < z->f.model->params_n; i++) {
        const param *p = &z->f.model->params[i];
        float *before = read_parameter(z->f.model, z->f.weights, i), *after = read_parameter(z->f.model, st, i);
        for (int k = 0; k < p->parts && p->trainable; k++) {
            const distance d = part_distance(&z->f, "after", i, k, after, before, true);
            if (!(d.error <= 1e-3 * d.size))
                fail_msg("%s: update of %s is off by %.2e of itself", z->f.name, p->part[k].name, d.error / d.size);
        }
        free(before);
        free(after);
    }
    safetensors_close(st);
}

static void whole_runs_are_as_in_pytorch(void **state)
{
    (void)state;
    for (int i = 0; i < CASES; i++) {
        frozen z;
        pt_train_options o;
        pt_trainer *t;
        pt_summary s;
        pt_error e = {0};
        char out[160];
        frozen_open(&z, cases[i]);
        snprintf(out, sizeof out, "%s/%s", scratch, cases[i]);
        frozen_options(&z, (const char *const[]){z.f.tokens}, out, &o);
        must(pt_trainer_open(&o, &t, &e), &e);
        pt_trainer_summary(t, &s);
        assert_int_equal(s.trained, model_trained_parameters(z.f.model));
        run_steps(&z.f, t);
        must(pt_trainer_finish(t, &e), &e);
        pt_trainer_close(t);
        assert_true(check_frozen(&z, out) > 0);
        compare_updates(&z, out);
        fixture_close(&z.f);
    }
}

/* ---- bits ---- */

static bool has_tensor(const char *folder, const char *file, const char *name)
{
    char path[300];
    safetensors *st;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, file);
    must(safetensors_open(path, &st, &e), &e);
    const bool has = safetensors_find(st, name);
    safetensors_close(st);
    return has;
}

/* In bf16, of weights that are stored as fp32 and as bf16: what goes out is what came in, to the last bit, after a resume as well. */
static void what_is_frozen_goes_out_as_it_came(const char *fixture_name, const char *pattern, const char *frozen_tensor,
                                               const char *trained_tensor)
{
    frozen z = {.freeze = {pattern}, .patterns = {.freeze_n = 1}};
    pt_train_options o;
    pt_error e = {0};
    char out[160], checkpoint[200];
    fixture_open(&z.f, "models", fixture_name);
    z.patterns.freeze = z.freeze;
    must(model_freeze(z.f.model, &z.patterns, &e), &e);
    snprintf(out, sizeof out, "%s/as_it_came_%s", scratch, fixture_name);
    frozen_options(&z, (const char *const[]){z.f.tokens}, out, &o);
    o.freeze = z.freeze;
    o.freeze_n = 1;
    o.precision = PT_PRECISION_BF16;
    o.save_type = PT_SAVE_AS_STORED;
    o.lr = 0.1; /* so that rounding to bf16 hides no update */
    must(train_to(&o, 2, &e), &e);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2", out);
    check_frozen(&z, checkpoint);
    assert_false(has_tensor(checkpoint, "trainer/exp_avg.safetensors", frozen_tensor));
    assert_true(has_tensor(checkpoint, "trainer/exp_avg.safetensors", trained_tensor));
    o.resume = true;
    must(train_to(&o, o.steps, &e), &e);
    assert_true(check_frozen(&z, out) > 0);
    fixture_close(&z.f);
}

static void frozen_weights_keep_all_their_bits_in_bf16(void **state)
{
    (void)state;
    what_is_frozen_goes_out_as_it_came("llama", "model.layers.0.*", "model.layers.0.mlp.up_proj.weight",
                                       "model.layers.1.mlp.up_proj.weight");
    what_is_frozen_goes_out_as_it_came("llama_bf16", "model.layers.0.*", "model.layers.0.mlp.up_proj.weight",
                                       "model.layers.1.mlp.up_proj.weight");
    what_is_frozen_goes_out_as_it_came("gpt2", "transformer.wte.weight", "transformer.wte.weight", "transformer.h.0.ln_1.weight");
}

/* ---- refusals ---- */

static void refuse(const char *model_name, const char *freeze, const char *train_only, const char *const *words)
{
    char path[512];
    model *m;
    pt_error e = {0};
    const model_freezing f = {.freeze = &freeze, .train_only = &train_only, .freeze_n = freeze != NULL, .train_only_n = train_only != NULL};
    snprintf(path, sizeof path, "%s/models/%s", PT_FIXTURES, model_name);
    must(model_open(path, NULL, NULL, &m, &e), &e);
    assert_int_equal(model_freeze(m, &f, &e), PT_USAGE);
    for (int i = 0; words[i]; i++)
        if (!strstr(e.text, words[i]))
            fail_msg("\"%s\" does not say \"%s\"", e.text, words[i]);
    model_close(m);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void patterns_that_cannot_be_are_refused(void **state)
{
    (void)state;
    refuse("llama", "model.layer.*", NULL, WORDS("`freeze`", "'model.layer.*'", "model.embed_tokens.weight"));
    refuse("gpt2", NULL, "h.1.*", WORDS("`train_only`", "'h.1.*'", "transformer.wte.weight"));
    refuse("llama", "*", NULL, WORDS("nothing to train"));
    refuse("llama", "model.layers.*", "*.mlp.*", WORDS("nothing to train"));
    refuse("llama", "*.1.self_attn.q_proj.weight", NULL,
           WORDS("model.layers.1.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight",
                 "model.layers.1.self_attn.v_proj.weight"));
    refuse("llama", NULL, "*.gate_proj.weight", WORDS("model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"));
}

static void a_run_is_not_resumed_with_other_patterns(void **state)
{
    (void)state;
    frozen z;
    pt_train_options o;
    pt_error e = {0};
    char out[160];
    frozen_open(&z, "gpt2_last");
    snprintf(out, sizeof out, "%s/other_patterns", scratch);
    frozen_options(&z, (const char *const[]){z.f.tokens}, out, &o);
    must(train_to(&o, 2, &e), &e);
    o.resume = true;
    o.freeze = (const char *const[]){"transformer.w?e.weight"};
    o.freeze_n = 1;
    assert_int_equal(train_to(&o, 3, &e), PT_FAILED);
    assert_true(strstr(e.text, "`freeze` [\"transformer.w?e.weight\",\"transformer.h.0.*\"]") &&
                strstr(e.text, "has [\"transformer.w?e.weight\"]"));
    o.freeze_n = 0;
    assert_int_equal(train_to(&o, 3, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "`freeze`"));
    fixture_close(&z.f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_what_is_trained_are_as_in_pytorch),
        cmocka_unit_test(whole_runs_are_as_in_pytorch),
        cmocka_unit_test(frozen_weights_keep_all_their_bits_in_bf16),
        cmocka_unit_test(patterns_that_cannot_be_are_refused),
        cmocka_unit_test(a_run_is_not_resumed_with_other_patterns),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
