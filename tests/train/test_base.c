/* --base: a frozen base that is kept in few bits is computed with what its codes stand for, goes out as it came in, and comes in again, the
 * same, after a resume. And what is refused. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "few_bits.h"
#include "infer/inference.h"
#include "infer/open.h"
#include "io/safetensors.h"
#include "model/base_mark.h"
#include "model/weights.h"
#include "train/base.h"
#include "sanitized.h"
#include "train/fixture.h"
#include "train/heard.h"
#include "train/same_end.h"

enum { STEPS = 3 };

/* Trained: norms, biases, and the layers' MLPs in part. Below them is what is kept in few bits. */
static const char *const frozen_patterns[] = {"*attn*weight", "*attention*weight", "*.1.*up_proj.weight", "*.1.*gate_proj.weight",
                                              "*.0.mlp.*"};
typedef struct base_run { fixture f; const char *patterns[8], *data[1]; int patterns_n; char folder[512], out[300]; pt_train_options o;
                         } base_run;

/* Only those that match something of this model. */
static void take_patterns(base_run *r)
{
    for (size_t i = 0; i < sizeof frozen_patterns / sizeof *frozen_patterns; i++) {
        const model_freezing f = {.freeze = &frozen_patterns[i], .freeze_n = 1};
        if (!model_freeze(r->f.model, &f, NULL))
            r->patterns[r->patterns_n++] = frozen_patterns[i];
    }
    const model_freezing all = {.freeze = r->patterns, .freeze_n = r->patterns_n};
    pt_error e = {0};
    must(model_freeze(r->f.model, &all, &e), &e);
}

static void base_run_open(base_run *r, const char *fixture_name, pt_base base, pt_precision precision, const char *name)
{
    static const param_storage storage[] = {[PT_BASE_NF4] = STORAGE_NF4, [PT_BASE_INT8] = STORAGE_INT8,
                                              [PT_BASE_MXFP4] = STORAGE_MXFP4};
    pt_error e = {0};
    memset(r, 0, sizeof *r);
    fixture_open(&r->f, "models", fixture_name);
    take_patterns(r);
    must(model_store(r->f.model, storage[base], &e), &e);
    snprintf(r->folder, sizeof r->folder, "%s", r->f.folder);
    snprintf(r->out, sizeof r->out, "%s/%s", scratch, name);
    r->data[0] = r->f.tokens;
    fixture_options(&r->f, r->data, r->out, &r->o);
    r->o.freeze = r->patterns;
    r->o.freeze_n = r->patterns_n;
    r->o.precision = precision;
    r->o.base = base;
    r->o.save_type = PT_SAVE_AS_STORED;
    r->o.steps = STEPS;
    r->o.lr = 0.01;
}

static void base_run_close(base_run *r) { fixture_close(&r->f); }

typedef struct ran { double loss[STEPS + 1], norm[STEPS + 1]; } ran;

static int run_to(const base_run *r, int64_t steps, ran *out, pt_error *e)
{
    pt_trainer *t;
    pt_step s = {0};
    int failed = pt_trainer_open(&r->o, &t, e), more = 1;
    if (failed)
        return failed;
    while (s.step < steps && (more = pt_trainer_step(t, &s, e)) > 0)
        if (out)
            out->loss[s.step] = s.loss, out->norm[s.step] = s.grad_norm;
    failed = more < 0 ? more : s.step < r->o.steps ? pt_trainer_save(t, e) : pt_trainer_finish(t, e);
    pt_trainer_close(t);
    return failed;
}

/* ---- what the codes stand for ---- */

typedef struct decoding { const base_run *r; } decoding;

/* Rows of a parameter as the run computes with them. */
static int decoded_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const base_run *r = ((const decoding *)arg)->r;
    const model *m = r->f.model;
    const param *p = &m->params[index];
    float *values = read_parameter(m, r->f.weights, index);
    if (p->storage == STORAGE_PLAIN) {
        memcpy(out, values + row0 * p->cols, (size_t)(n_rows * p->cols) * sizeof *out);
    } else {
        char *piece = few_bits_piece(m, index, values, NF4_BLOCK, e);
        assert_non_null(piece);
        dequantize_rows(p, piece, row0, n_rows, out);
        for (int64_t i = 0; i < n_rows * p->cols && r->o.precision == PT_PRECISION_BF16; i++)
            out[i] = bf16_to_f32(bf16_from_f32(out[i]));
        free(piece);
    }
    free(values);
    return 0;
}

/* A folder with the model whose frozen matrices are those. */
static void write_decoded(base_run *r, const char *name)
{
    enum { ROOM = 4 << 20 };
    char *room = malloc(ROOM);
    safetensors_writer *w;
    decoding d = {r};
    pt_error e = {0};
    assert_non_null(room);
    snprintf(r->folder, sizeof r->folder, "%s/%s", scratch, name);
    must(dir_make(r->folder, &e), &e);
    fixture_copy(&r->f, r->folder, NULL, NULL);
    must(safetensors_writer_open(r->folder, "model", 0, &w, &e), &e);
    const weights_layout as_there = {.naming = weights_naming_of(r->f.model, r->f.weights)};
    must(weights_export(r->f.model, w, PT_F32, as_there, decoded_rows, &d, room, ROOM, &e), &e);
    safetensors_writer_close(w);
    free(room);
}

static void compare_trained(const base_run *a, const char *b_out)
{
    const model *m = a->f.model;
    safetensors *x, *y;
    pt_error e = {0};
    must(safetensors_open(a->out, &x, &e), &e);
    must(safetensors_open(b_out, &y, &e), &e);
    for (int i = 0; i < m->params_n; i++) {
        float *p = read_parameter(m, x, i), *q = read_parameter(m, y, i);
        if (m->params[i].trainable && memcmp(p, q, (size_t)(m->params[i].rows * m->params[i].cols) * sizeof *p))
            fail_msg("%s: %s has other bits", a->f.name, m->params[i].part[0].name);
        free(p);
        free(q);
    }
    safetensors_close(x);
    safetensors_close(y);
}

/* A matmul's columns do not know of each other on a CPU, so that stripes of them have the bits of the whole. */
static void compare_with_decoded(const char *fixture_name, pt_base base, pt_precision precision)
{
    base_run r;
    ran few, plain;
    char few_out[300], name[100];
    pt_error e = {0};
    snprintf(name, sizeof name, "few_%s_%d_%d", fixture_name, base, precision);
    base_run_open(&r, fixture_name, base, precision, name);
    must(run_to(&r, STEPS, &few, &e), &e);
    memcpy(few_out, r.out, sizeof few_out);
    snprintf(name, sizeof name, "decoded_%s_%d_%d", fixture_name, base, precision);
    write_decoded(&r, name);
    snprintf(r.out, sizeof r.out, "%s/plain_%s_%d_%d", scratch, fixture_name, base, precision);
    r.o.model = r.folder;
    r.o.base = PT_BASE_AS_COMPUTED;
    must(run_to(&r, STEPS, &plain, &e), &e);
    for (int i = 1; i <= STEPS; i++)
        if (few.loss[i] != plain.loss[i] || few.norm[i] != plain.norm[i])
            fail_msg("%s: step %d has loss %.9g and norm %.9g, with the decoded weights %.9g and %.9g", name, i, few.loss[i], few.norm[i],
                     plain.loss[i], plain.norm[i]);
    compare_trained(&r, few_out);
    base_run_close(&r);
}

static void few_bits_are_computed_with_what_they_stand_for(void **state)
{
    (void)state;
    NO_OTHER_THREADS();
    static const char *const names[] = {"llama", "llama_odd", "gpt2", "gpt_neox", "phi3", "qwen3"};
    if (on_gpu())
        skip();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (pt_base base = PT_BASE_NF4; base <= PT_BASE_MXFP4; base += i % 2 ? 1 : 2)
            compare_with_decoded(names[i], base, i % 2 == (base == PT_BASE_NF4) ? PT_PRECISION_BF16 : PT_PRECISION_FP32);
}

/* Adapters beside a base of which every matrix is kept so. */
static void compare_adapters(const char *fixture_name, pt_base base, pt_precision precision, bool dora)
{
    base_run r;
    ran few, plain;
    char few_out[300], name[100];
    pt_error e = {0};
    snprintf(name, sizeof name, "adapters_%s_%d", fixture_name, base);
    base_run_open(&r, fixture_name, base, precision, name);
    for (int i = 0; i < r.f.model->params_n; i++)
        r.f.model->params[i].trainable = false;
    must(model_store(r.f.model, base == PT_BASE_NF4 ? STORAGE_NF4 : STORAGE_INT8, &e), &e);
    r.o.freeze_n = 0;
    r.o.lora_rank = 3;
    r.o.dora = dora;
    must(run_to(&r, STEPS, &few, &e), &e);
    memcpy(few_out, r.out, sizeof few_out);
    snprintf(name, sizeof name, "adapters_decoded_%s_%d", fixture_name, base);
    write_decoded(&r, name);
    snprintf(r.out, sizeof r.out, "%s/adapters_plain_%s_%d", scratch, fixture_name, base);
    r.o.model = r.folder;
    r.o.base = PT_BASE_AS_COMPUTED;
    must(run_to(&r, STEPS, &plain, &e), &e);
    for (int i = 1; i <= STEPS; i++)
        if (few.loss[i] != plain.loss[i] || few.norm[i] != plain.norm[i])
            fail_msg("%s: step %d has loss %.9g and norm %.9g, with the decoded weights %.9g and %.9g", name, i, few.loss[i], few.norm[i],
                     plain.loss[i], plain.norm[i]);
    assert_same_file(few_out, r.out, "adapter_model.safetensors");
    base_run_close(&r);
}

static void adapters_learn_beside_what_few_bits_stand_for(void **state)
{
    (void)state;
    if (on_gpu())
        skip();
    compare_adapters("llama", PT_BASE_NF4, PT_PRECISION_BF16, false);
    compare_adapters("gpt_neox", PT_BASE_NF4, PT_PRECISION_FP32, true);
    compare_adapters("gpt2", PT_BASE_NF4, PT_PRECISION_BF16, true);
    compare_adapters("qwen3", PT_BASE_INT8, PT_PRECISION_FP32, false);
}

/* ---- the base that an adapter was trained on ---- */

static double evaluated(const base_run *r, const char *model, const char *adapter, pt_base base, heard *h)
{
    pt_evaluate_options o;
    pt_evaluation v;
    pt_error e = {0};
    pt_evaluate_defaults(&o);
    o.model = model;
    o.adapter = adapter;
    o.base = base;
    o.data = r->data;
    o.data_n = 1;
    o.seq_len = r->o.seq_len;
    o.precision = r->o.precision;
    o.device = r->o.device;
    o.threads = 2;
    o.notice = hear;
    o.arg = h;
    h->text[0] = 0;
    must(pt_evaluate(&o, &v, &e), &e);
    return v.loss;
}

/* Of the token after some others. */
static float *logits_of(const char *folder, const char *adapter, pt_base base, pt_precision precision)
{
    enum { FED = 13 };
    int32_t ids[FED];
    const float *logits;
    model *m;
    device *d, *host;
    inference *x;
    safetensors *st, *low;
    pt_error e = {0};
    must(infer_open_adapted(folder, adapter, NULL, NULL, &m, &low, &e), &e);
    must(base_apply_whole(base, precision, m, &e), &e);
    must(safetensors_open(folder, &st, &e), &e);
    must(device_open("cpu", &(device_options){.threads = 2}, &d, &host, &e), &e);
    must(inference_open(m, d, precision == PT_PRECISION_BF16 ? PT_BF16 : PT_F32, 2, 0, NULL, &x, &e), &e);
    must(inference_load(x, st, low, 0, NULL, NULL, &e), &e);
    must(inference_begin(x, FED, (cache_plan){0}, NULL, &e), &e);
    for (int i = 0; i < FED; i++)
        ids[i] = i;
    must(inference_feed(x, ids, FED - 1, &logits, &e), &e);
    must(inference_feed(x, ids + FED - 1, 1, &logits, &e), &e);
    const size_t n = (size_t)m->config.vocab * sizeof *logits;
    float *out = malloc(n);
    assert_non_null(out);
    memcpy(out, logits, n);
    inference_close(x);
    device_close(d, host);
    safetensors_close(st);
    safetensors_close(low);
    model_close(m);
    return out;
}

static void compare_logits(const base_run *r, const char *decoded, const char *adapter, pt_base base)
{
    const pt_precision precision = r->o.precision;
    const size_t n = (size_t)r->f.model->config.vocab * sizeof(float);
    const pt_base plain = precision == PT_PRECISION_BF16 ? PT_BASE_BF16 : PT_BASE_FP32;
    float *few = logits_of(r->f.folder, adapter, base, precision), *want = logits_of(decoded, adapter, plain, precision),
          *other = logits_of(r->f.folder, adapter, plain, precision);
    if (memcmp(few, want, n))
        fail_msg("%s: the logits of a base in few bits are not those of its decoded weights", r->f.name);
    if (!memcmp(few, other, n))
        fail_msg("%s: the base is not in few bits", r->f.name);
    free(few);
    free(want);
    free(other);
}

static void compare_remembered(const char *fixture_name, pt_base base, pt_precision precision, bool dora)
{
    const pt_base plain = precision == PT_PRECISION_BF16 ? PT_BASE_BF16 : PT_BASE_FP32;
    const char *word = base == PT_BASE_NF4 ? "on a base in nf4" : "on a base in int8";
    base_run r;
    heard h;
    pt_trainer *t;
    pt_step s = {0};
    pt_error e = {0};
    char name[100], adapter[300];
    snprintf(name, sizeof name, "remembered_%s", fixture_name);
    base_run_open(&r, fixture_name, base, precision, name);
    for (int i = 0; i < r.f.model->params_n; i++)
        r.f.model->params[i].trainable = false;
    must(model_store(r.f.model, base == PT_BASE_NF4 ? STORAGE_NF4 : STORAGE_INT8, &e), &e);
    r.o.freeze_n = 0;
    r.o.lora_rank = 3;
    r.o.dora = dora;
    r.o.eval_data = r.data;
    r.o.eval_data_n = 1;
    must(pt_trainer_open(&r.o, &t, &e), &e);
    while (pt_trainer_step(t, &s, &e) > 0) {}
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
    memcpy(adapter, r.out, sizeof adapter);
    snprintf(name, sizeof name, "remembered_decoded_%s", fixture_name);
    write_decoded(&r, name);
    const double is = evaluated(&r, r.f.folder, adapter, PT_BASE_AS_COMPUTED, &h);
    assert_non_null(strstr(h.text, word));
    assert_true(s.evaluated && fabs(is - s.eval_loss) <= 1e-6 * s.eval_loss);
    assert_true(is == evaluated(&r, r.folder, adapter, plain, &h));
    assert_non_null(strstr(h.text, word));
    assert_true(is != evaluated(&r, r.f.folder, adapter, plain, &h));
    assert_true(is == evaluated(&r, r.f.folder, adapter, base, &h) && !strstr(h.text, word));
    assert_true(evaluated(&r, r.f.folder, NULL, base, &h) == evaluated(&r, r.folder, NULL, PT_BASE_AS_COMPUTED, &h) && !h.text[0]);
    compare_logits(&r, r.folder, adapter, base);
    compare_logits(&r, r.folder, NULL, base);
    base_run_close(&r);
}

static void an_adapter_is_used_on_the_base_that_it_was_trained_on(void **state)
{
    (void)state;
    if (on_gpu())
        skip();
    compare_remembered("llama", PT_BASE_NF4, PT_PRECISION_BF16, false);
    compare_remembered("gpt2", PT_BASE_NF4, PT_PRECISION_FP32, true);
    compare_remembered("qwen3", PT_BASE_INT8, PT_PRECISION_BF16, false);
    compare_remembered("llama_odd", PT_BASE_INT8, PT_PRECISION_FP32, true);
}

/* It is continued and planned on the same, and merged into the plain weights; each says so. */
static void an_adapter_of_few_bits_is_continued_on_them(void **state)
{
    (void)state;
    base_run r;
    heard h = {0};
    pt_trainer *t;
    pt_plan *p;
    pt_summary m;
    pt_error e = {0};
    pt_merge_options o;
    char adapter[300], merged[400];
    base_run_open(&r, "llama", PT_BASE_INT8, PT_PRECISION_BF16, "first");
    r.o.freeze_n = 0;
    r.o.lora_rank = 2;
    must(run_to(&r, STEPS, NULL, &e), &e);
    memcpy(adapter, r.out, sizeof adapter);
    assert_int_equal(base_mark_storage(adapter), STORAGE_INT8);
    r.o.lora_rank = 0;
    r.o.adapter = adapter;
    r.o.base = PT_BASE_AS_COMPUTED;
    r.o.notice = hear;
    r.o.arg = &h;
    snprintf(r.out, sizeof r.out, "%s/second", scratch);
    must(pt_trainer_open(&r.o, &t, &e), &e);
    pt_trainer_summary(t, &m);
    if (!strstr(m.trains, "int8") || !strstr(h.text, "on a base in int8"))
        fail_msg("%s\n%s", m.trains, h.text);
    pt_trainer_close(t);
    h.text[0] = 0;
    must(pt_plan_open(&r.o, &p, &e), &e);
    assert_non_null(strstr(h.text, "on a base in int8"));
    pt_plan_close(p);
    r.o.base = PT_BASE_BF16;
    snprintf(r.out, sizeof r.out, "%s/plain", scratch);
    must(run_to(&r, STEPS, NULL, &e), &e);
    assert_int_equal(base_mark_storage(r.out), STORAGE_PLAIN);
    pt_merge_defaults(&o);
    snprintf(merged, sizeof merged, "%s/merged", scratch);
    o.model = r.f.folder;
    o.adapter = (const char *const[]){adapter};
    o.adapter_n = 1;
    o.out = merged;
    o.notice = hear;
    o.arg = &h;
    h.text[0] = 0;
    must(pt_merge(&o, &e), &e);
    assert_true(strstr(h.text, "on a base in int8") && strstr(h.text, "merged"));
    base_run_close(&r);
}

/* ---- files ---- */

/* Every tensor that is frozen has the bits of the model's folder. */
static void check_frozen(const base_run *r, const char *folder)
{
    const model *m = r->f.model;
    safetensors *st;
    pt_error e = {0};
    must(safetensors_open(folder, &st, &e), &e);
    for (int i = 0; i < m->params_n; i++) {
        float *before = read_parameter(m, r->f.weights, i), *after = read_parameter(m, st, i);
        if (!m->params[i].trainable && memcmp(before, after, (size_t)(m->params[i].rows * m->params[i].cols) * sizeof *before))
            fail_msg("%s: %s is frozen, and has changed", r->f.name, m->params[i].part[0].name);
        free(before);
        free(after);
    }
    safetensors_close(st);
}

static bool has_master(const char *checkpoint, const char *tensor)
{
    char path[500];
    safetensors *st;
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/trainer/master.safetensors", checkpoint);
    must(safetensors_open(path, &st, &e), &e);
    const bool has = safetensors_find(st, tensor);
    safetensors_close(st);
    return has;
}

static void check_files(const char *fixture_name, pt_precision precision, pt_save_type save)
{
    base_run r, straight;
    char checkpoint[400], name[100];
    ran a, b;
    pt_error e = {0};
    snprintf(name, sizeof name, "files_%s_%d", fixture_name, save);
    base_run_open(&r, fixture_name, PT_BASE_NF4, precision, name);
    snprintf(name, sizeof name, "straight_%s_%d", fixture_name, save);
    base_run_open(&straight, fixture_name, PT_BASE_NF4, precision, name);
    r.o.save_type = straight.o.save_type = save;
    must(run_to(&straight, STEPS, &a, &e), &e);
    must(run_to(&r, 2, &b, &e), &e);
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-2", r.out);
    if (save == PT_SAVE_AS_STORED)
        check_frozen(&r, checkpoint);
    else if (has_master(checkpoint, "model.layers.0.mlp.up_proj.weight") || !has_master(checkpoint, "model.norm.weight"))
        fail_msg("%s: the masters of what is kept in few bits are saved", checkpoint);
    r.o.resume = true;
    must(run_to(&r, STEPS, &b, &e), &e);
    assert_true(a.loss[STEPS] == b.loss[STEPS] && a.norm[STEPS] == b.norm[STEPS]);
    compare_trained(&r, straight.out);
    if (save == PT_SAVE_AS_STORED)
        check_frozen(&r, r.out);
    base_run_close(&r);
    base_run_close(&straight);
}

static void what_is_kept_in_few_bits_goes_out_as_it_came(void **state)
{
    (void)state;
    check_files("llama", PT_PRECISION_FP32, PT_SAVE_AS_STORED);
    check_files("llama", PT_PRECISION_BF16, PT_SAVE_BF16);
    check_files("llama_bf16", PT_PRECISION_BF16, PT_SAVE_AS_STORED);
    check_files("gpt2", PT_PRECISION_BF16, PT_SAVE_AS_STORED);
}

/* ---- refusals ---- */

static void another_base_is_not_gone_on_with(void **state)
{
    (void)state;
    base_run r;
    pt_error e = {0};
    base_run_open(&r, "llama", PT_BASE_NF4, PT_PRECISION_BF16, "another");
    must(run_to(&r, 2, NULL, &e), &e);
    write_decoded(&r, "another_model");
    r.o.resume = true;
    r.o.model = r.folder;
    assert_int_equal(run_to(&r, STEPS, NULL, &e), PT_FAILED);
    assert_true(strstr(e.text, "another_model") && strstr(e.text, "not those that the run began with"));
    r.o.model = r.f.folder;
    r.o.base = PT_BASE_INT8;
    assert_int_equal(run_to(&r, STEPS, NULL, &e), PT_FAILED);
    assert_true(strstr(e.text, "`base` \"nf4\"") && strstr(e.text, "\"int8\""));
    base_run_close(&r);
}

static void refuse(base_run *r, const char *word, const char *more)
{
    pt_error e = {0};
    assert_int_equal(run_to(r, STEPS, NULL, &e), PT_USAGE);
    if (!strstr(e.text, word) || !strstr(e.text, more))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", e.text, word, more);
}

static void a_base_that_cannot_be_is_refused(void **state)
{
    (void)state;
    base_run r;
    base_run_open(&r, "llama", PT_BASE_NF4, PT_PRECISION_BF16, "refused");
    r.o.freeze = (const char *const[]){"model.embed_tokens.weight", "model.norm.weight"};
    r.o.freeze_n = 2;
    refuse(&r, "`base` nf4", "`freeze`");
    r.o.freeze_n = 0;
    r.o.base = PT_BASE_BF16;
    refuse(&r, "`base` bf16", "`freeze`");
    r.o.base = PT_BASE_FP32;
    refuse(&r, "`base` fp32", "`precision` fp32");
    r.o.base = (pt_base)7;
    refuse(&r, "`base`", "5");
    base_run_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_bits_are_computed_with_what_they_stand_for),
        cmocka_unit_test(adapters_learn_beside_what_few_bits_stand_for),
        cmocka_unit_test(an_adapter_is_used_on_the_base_that_it_was_trained_on),
        cmocka_unit_test(an_adapter_of_few_bits_is_continued_on_them),
        cmocka_unit_test(what_is_kept_in_few_bits_goes_out_as_it_came),
        cmocka_unit_test(another_base_is_not_gone_on_with), cmocka_unit_test(a_base_that_cannot_be_is_refused)};
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
