/* Folders that are in few bits or in FP8 already (fixtures/make_prequantized.py): their values are bitsandbytes' and Transformers', codes
 * of few bits are taken as they are, adapters learn on them as PEFT's, evaluation, merging and resuming know them, and what is damaged is
 * refused. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "model/adapter.h"
#include "model/base_mark.h"
#include "model/prequantized.h"
#include "train/fixture.h"
#include "train/same_end.h"

#include "train/direct.h"

enum { STEPS = 20 };

typedef struct quantized { fixture f; char adapter[512], tokens[600], out[200]; const char *data[1]; } quantized;

static void quantized_open(quantized *q, const char *name)
{
    fixture_open(&q->f, "prequantized", name);
    snprintf(q->adapter, sizeof q->adapter, PT_FIXTURES "/adapters/%s", json_string_value(json_object_get(q->f.json, "adapter")));
    snprintf(q->tokens, sizeof q->tokens, PT_FIXTURES "/models/%s/tokens.npy", json_string_value(json_object_get(q->f.json, "model")));
    q->data[0] = q->tokens;
}

static void options_of(quantized *q, const char *name, pt_train_options *o)
{
    snprintf(q->out, sizeof q->out, "%s/%s", scratch, name);
    fixture_options(&q->f, q->data, q->out, o);
    o->adapter = q->adapter;
    o->save_type = PT_SAVE_AS_STORED;
}

#define UP "model.layers.1.mlp.up_proj.weight"

static const char *const cases[] = {"llama_nf4", "llama_dora_nf4", "gpt_neox_nf4", "gpt2_nf4", "gpt2_fp4", "llama_int8",
                                    "llama_fp8", "llama_fp8_static", "deepseek_v3_fp8", "qwen2_moe_fp8"};
enum { CASES = sizeof cases / sizeof *cases };

/* ---- values and codes ---- */

static void check_part(const quantized *q, const float *ours, int index, int k)
{
    const param *p = &q->f.model->params[index];
    char name[200];
    snprintf(name, sizeof name, "decoded.%s", p->part[k].name);
    const safetensors_tensor *t = safetensors_find(q->f.reference, name);
    if (!t)
        return;
    const int64_t n = part_values(p, k);
    float *want = read_reference(&q->f, "decoded", p->part[k].name, n);
    param stored = *p;
    stored.part[k].transposed = false; /* outputs are rows there */
    for (int64_t i = 0; i < n; i++)
        if (f32_bits(ours[element_of_part(&stored, k, i)]) != f32_bits(want[i]))
            fail_msg("%s: value %lld of %s is %.9g, not %.9g", q->f.name, (long long)i, p->part[k].name,
                     (double)ours[element_of_part(&stored, k, i)], (double)want[i]);
    free(want);
}

static void values_are_what_the_codes_stand_for(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        quantized q;
        pt_error e = {0};
        pt_dtype stored;
        quantized_open(&q, cases[c]);
        must(weights_check(q.f.model, q.f.weights, &stored, &e), &e);
        assert_int_equal(stored, strcmp(cases[c], "gpt_neox_nf4") ? PT_F32 : PT_BF16);
        for (int i = 0; i < q.f.model->params_n; i++) {
            float *ours = read_parameter(q.f.model, q.f.weights, i);
            for (int k = 0; k < q.f.model->params[i].parts; k++)
                check_part(&q, ours, i, k);
            free(ours);
        }
        fixture_close(&q.f);
    }
}

/* Bytes of a tensor of the file. */
static void same_as_tensor(const quantized *q, const char *name, const char *end, const void *bytes, uint64_t n)
{
    char whole[200];
    pt_error e = {0};
    const size_t stem = strlen(name) - (end[0] == '.' && end[1] == 'S' ? strlen(".weight") : 0);
    snprintf(whole, sizeof whole, "%.*s%s", (int)stem, name, end);
    const safetensors_tensor *t = safetensors_find(q->f.weights, whole);
    if (!t || t->bytes != n)
        fail_msg("%s: %s has not %llu bytes", q->f.name, whole, (unsigned long long)n);
    char *want = malloc(n);
    assert_non_null(want);
    must(safetensors_read_stored(q->f.weights, t, 0, n, want, &e), &e);
    if (memcmp(want, bytes, n))
        fail_msg("%s: %s was not taken as it is", q->f.name, whole);
    free(want);
}

static void compare_piece(const quantized *q, int index, const char *piece)
{
    static const char *const ends[][STORAGE_SLABS] = {[STORAGE_NF4] = {"", ".absmax", ".nested_absmax"}, [STORAGE_INT8] = {"", ".SCB"}};
    const param *p = &q->f.model->params[index];
    for (int k = 0; k < p->parts; k++)
        for (int s = 0; s < STORAGE_SLABS && ends[p->storage][s]; s++)
            same_as_tensor(q, p->part[k].name, ends[p->storage][s], piece + storage_slab_at(p, k, s), storage_slab_bytes(p, k, s));
}

static void codes_are_taken_as_they_are(void **state)
{
    (void)state;
    static const struct { const char *name; int kept; } rows[] = {{"llama_nf4", 8}, {"llama_dora_nf4", 6}, {"gpt_neox_nf4", 8},
                                                                  {"gpt2_nf4", 8}, {"gpt2_fp4", 0}, {"llama_int8", 8}};
    if (on_gpu())
        skip();
    for (size_t c = 0; c < sizeof rows / sizeof *rows; c++) {
        quantized q;
        direct d;
        pt_error e = {0};
        uint64_t at;
        int kept = 0;
        quantized_open(&q, rows[c].name);
        must(model_adapt_like(q.f.model, q.adapter, NULL, NULL, &e), &e);
        must(weights_store_like(q.f.model, q.f.weights, &e), &e);
        direct_open(&d, &q.f, PT_BF16, SAVE_INPUT);
        for (int i = 0; i < q.f.model->params_n; i++) {
            if (q.f.model->params[i].storage == STORAGE_PLAIN)
                continue;
            const piece *p = &d.packing.pieces[d.packing.piece_of_param[i]];
            const char *chunk = executor_placement(d.x, OBJECT_WEIGHTS, p->chunk, &at);
            compare_piece(&q, i, chunk + (size_t)p->offset * dtype_bytes(d.packing.type));
            kept++;
        }
        if (kept != rows[c].kept)
            fail_msg("%s: %d matrices are kept as they came, not %d", rows[c].name, kept, rows[c].kept);
        direct_close(&d);
        fixture_close(&q.f);
    }
}

/* ---- runs ---- */

typedef struct ran { double loss[STEPS + 1], norm[STEPS + 1]; } ran;

static int run_to(const pt_train_options *o, int64_t steps, ran *out, pt_error *e)
{
    pt_trainer *t;
    pt_step s = {0};
    int failed = pt_trainer_open(o, &t, e), more = 1;
    if (failed)
        return failed;
    while (s.step < steps && (more = pt_trainer_step(t, &s, e)) > 0)
        out->loss[s.step] = s.loss, out->norm[s.step] = s.grad_norm;
    failed = more < 0 ? more : s.step < o->steps ? pt_trainer_save(t, e) : pt_trainer_finish(t, e);
    pt_trainer_close(t);
    return failed;
}

static void check_losses(const quantized *q, const ran *r)
{
    const bool has_own = json_object_get(q->f.json, "loss_bitsandbytes");
    for (int i = 1; i <= STEPS; i++) {
        const double loss = fixture_of_step(&q->f, "loss_fp64", i - 1), norm = fixture_of_step(&q->f, "grad_norm_fp64", i - 1);
        if (!(fabs(r->loss[i] - loss) <= 1e-5 * loss && fabs(r->norm[i] - norm) <= 1e-4 * norm))
            fail_msg("%s step %d: loss %.9f and norm %.9f, in fp64 %.9f and %.9f", q->f.name, i, r->loss[i], r->norm[i], loss, norm);
        const double own = has_own ? fixture_of_step(&q->f, "loss_bitsandbytes", i - 1) : loss;
        if (!(fabs(r->loss[i] - own) <= 1e-5 * own))
            fail_msg("%s step %d: loss %.9f, by bitsandbytes' modules %.9f", q->f.name, i, r->loss[i], own);
    }
}

/* With whole weights, and as the folder has them: on a CPU the same bits, where it says that the values are fp32. */
static void adapters_learn_as_pefts(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        quantized q;
        pt_train_options o;
        pt_error e = {0};
        ran whole, kept;
        char whole_out[200], name[100];
        quantized_open(&q, cases[c]);
        snprintf(name, sizeof name, "whole_%s", cases[c]);
        options_of(&q, name, &o);
        o.base = PT_BASE_FP32;
        must(run_to(&o, STEPS, &whole, &e), &e);
        check_losses(&q, &whole);
        memcpy(whole_out, q.out, sizeof whole_out);
        snprintf(name, sizeof name, "kept_%s", cases[c]);
        options_of(&q, name, &o);
        must(run_to(&o, STEPS, &kept, &e), &e);
        if (!on_gpu() && strcmp(cases[c], "gpt_neox_nf4")) {
            assert_memory_equal(whole.loss + 1, kept.loss + 1, STEPS * sizeof *whole.loss);
            assert_same_file(whole_out, q.out, "adapter_model.safetensors");
        }
        fixture_close(&q.f);
    }
}

/* In bf16 values that are bf16 already are computed with as they are. */
static void whole_or_in_few_bits_bf16_computes_the_same(void **state)
{
    (void)state;
    quantized q;
    pt_train_options o;
    pt_error e = {0};
    ran whole, kept;
    if (on_gpu())
        skip();
    quantized_open(&q, "gpt_neox_nf4");
    options_of(&q, "bf16_whole", &o);
    o.precision = PT_PRECISION_BF16;
    o.base = PT_BASE_BF16;
    must(run_to(&o, STEPS, &whole, &e), &e);
    options_of(&q, "bf16_kept", &o);
    o.precision = PT_PRECISION_BF16;
    must(run_to(&o, STEPS, &kept, &e), &e);
    assert_memory_equal(whole.loss + 1, kept.loss + 1, STEPS * sizeof *whole.loss);
    fixture_close(&q.f);
}

/* ---- what else reads such a folder ---- */

static void a_merged_folder_is_whole(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        quantized q;
        pt_merge_options o;
        pt_error e = {0};
        char path[300];
        json_t *config;
        quantized_open(&q, cases[c]);
        snprintf(q.out, sizeof q.out, "%s/merged_%s", scratch, cases[c]);
        pt_merge_defaults(&o);
        o.model = q.f.folder;
        o.adapter = (const char *const[]){q.adapter};
        o.adapter_n = 1;
        o.out = q.out;
        o.save_type = PT_SAVE_F32;
        must(pt_merge(&o, &e), &e);
        snprintf(path, sizeof path, "%s/config.json", q.out);
        must(json_file_load(path, 0, &config, &e), &e);
        assert_null(json_object_get(config, "quantization_config"));
        json_decref(config);
        const double merged = evaluated_loss(q.out, NULL, q.data[0]), beside = evaluated_loss(q.f.folder, q.adapter, q.data[0]);
        const double plain = evaluated_loss(q.f.folder, NULL, q.data[0]);
        if (!(fabs(merged - beside) <= 2e-6 * beside && fabs(plain - beside) > 1e-4 * beside))
            fail_msg("%s: loss %.8f merged, %.8f with the adapter, %.8f without", cases[c], merged, beside, plain);
        fixture_close(&q.f);
    }
}

/* Everything is trained: the values that the codes stand for, and what is written is whole. */
static void all_of_such_a_model_can_be_trained(void **state)
{
    (void)state;
    quantized q;
    pt_train_options o;
    pt_error e = {0};
    ran r;
    safetensors *st;
    quantized_open(&q, "llama_nf4");
    options_of(&q, "all", &o);
    o.adapter = NULL;
    o.steps = 2;
    must(run_to(&o, 2, &r, &e), &e);
    const double loss = json_number_value(json_object_get(q.f.json, "loss_of_base"));
    assert_true(fabs(r.loss[1] - loss) <= 1e-5 * loss);
    must(safetensors_open(q.out, &st, &e), &e);
    must(weights_check(q.f.model, st, NULL, &e), &e);
    assert_null(safetensors_find(st, "model.layers.0.mlp.up_proj.weight.absmax"));
    safetensors_close(st);
    fixture_close(&q.f);
}

/* Files in FP8 have no format that is kept, so that an adapter's base is the one that it was trained on. Its mark is that of a copy with
 * whole weights. */
static void an_adapter_on_fp8_remembers_its_base(void **state)
{
    (void)state;
    quantized q;
    pt_train_options o;
    pt_error e = {0};
    ran r;
    char whole[200], mark[2][BASE_MARK];
    quantized_open(&q, "llama_fp8");
    options_of(&q, "on_nf4", &o);
    o.base = PT_BASE_NF4;
    o.steps = 1;
    must(run_to(&o, 1, &r, &e), &e);
    assert_int_equal(base_mark_storage(q.out), STORAGE_NF4);
    const double remembered = evaluated_loss(q.f.folder, q.out, q.data[0]);
    snprintf(whole, sizeof whole, "%s", q.out);
    options_of(&q, "all_of_fp8", &o);
    o.adapter = NULL;
    o.steps = 1;
    o.lr = 1e-30;
    must(run_to(&o, 1, &r, &e), &e);
    if (!(fabs(remembered - evaluated_loss(q.out, whole, q.data[0])) <= 1e-6 * remembered))
        fail_msg("loss %.9f, on whole weights in nf4 %.9f", remembered, evaluated_loss(q.out, whole, q.data[0]));
    base_mark_find(q.f.model, q.f.folder, mark[0]);
    base_mark_find(q.f.model, q.out, mark[1]);
    assert_true(*mark[0]);
    assert_string_equal(mark[0], mark[1]);
    fixture_close(&q.f);
}

/* ---- damaged folders ---- */

/* The folder once more, without the tensor, or with the text in its bytes replaced, or with its first 4 bytes as a NaN. */
typedef struct damage { const char *tensor, *from, *to; bool not_a_number; } damage;

static void write_damaged(const quantized *q, const damage *d, const char *folder)
{
    pt_error e = {0};
    safetensors_writer *w;
    const size_t n = safetensors_count(q->f.weights);
    int number[256];
    fixture_copy(&q->f, folder, NULL, NULL);
    must(safetensors_writer_open(folder, "model", 0, &w, &e), &e);
    assert_true(n < 256);
    for (size_t i = 0; i < n; i++) {
        const safetensors_tensor *t = safetensors_at(q->f.weights, i);
        const bool gone = !strcmp(t->name, d->tensor) && !d->from && !d->not_a_number;
        number[i] = gone ? -1 : safetensors_declare_as(w, t, &e);
    }
    must(safetensors_begin(w, &e), &e);
    for (size_t i = 0; i < n; i++) {
        const safetensors_tensor *t = safetensors_at(q->f.weights, i);
        char *bytes = malloc(t->bytes);
        assert_non_null(bytes);
        must(safetensors_read_stored(q->f.weights, t, 0, t->bytes, bytes, &e), &e);
        if (!strcmp(t->name, d->tensor) && d->from) {
            char *at = memmem(bytes, t->bytes, d->from, strlen(d->from));
            assert_true(at && strlen(d->from) == strlen(d->to));
            memcpy(at, d->to, strlen(d->to));
        } else if (!strcmp(t->name, d->tensor) && d->not_a_number) {
            memset(bytes, 0xff, t->bytes < sizeof(float) ? t->bytes : sizeof(float));
        }
        if (number[i] >= 0)
            must(safetensors_append(w, number[i], bytes, t->bytes, &e), &e);
        free(bytes);
    }
    must(safetensors_finish(w, &e), &e);
    safetensors_writer_close(w);
}

static void a_run_goes_on_to_the_same_bits_on_the_same_codes(void **state)
{
    (void)state;
    const damage other_codes = {UP, NULL, NULL, true};
    quantized q;
    pt_train_options o;
    pt_error e = {0};
    ran straight, parts;
    char straight_out[200], other[200];
    quantized_open(&q, "llama_nf4");
    snprintf(other, sizeof other, "%s/other_codes", scratch);
    write_damaged(&q, &other_codes, other);
    options_of(&q, "straight", &o);
    must(run_to(&o, STEPS, &straight, &e), &e);
    memcpy(straight_out, q.out, sizeof straight_out);
    options_of(&q, "parts", &o);
    must(run_to(&o, 7, &parts, &e), &e);
    o.resume = true;
    o.model = other;
    assert_int_equal(run_to(&o, STEPS, &parts, &e), PT_FAILED);
    if (!strstr(e.text, "not those that the run began with"))
        fail_msg("%s", e.text);
    o.model = q.f.folder;
    must(run_to(&o, STEPS, &parts, &e), &e);
    assert_same_file(straight_out, q.out, "adapter_model.safetensors");
    fixture_close(&q.f);
}

static void damaged_folders_are_refused(void **state)
{
    (void)state;
    static const char description[] = UP ".quant_state.bitsandbytes__nf4", scales[] = "model.layers.1.mlp.up_proj.SCB";
    static const struct { const char *name; damage d; const char *says; } rows[] = {
        {"llama_nf4", {UP ".absmax", NULL, NULL, false}, UP ".absmax"},
        {"llama_nf4", {description, NULL, NULL, false}, "quant_state.bitsandbytes__nf4"},
        {"llama_nf4", {UP ".quant_map", NULL, NULL, false}, "without which its codes say nothing"},
        {"llama_nf4", {description, "[40, 24]", "[40, 23]", false}, "half a byte"},
        {"llama_nf4", {description, "[40, 24]", "[24, 40]", false}, "must be (40, 24)"},
        {"llama_nf4", {description, "[40, 24]", "[ 40024]", false}, "two sizes of a matrix"},
        {"llama_nf4", {description, "\"blocksize\": 64", "\"blocksize\": 32", false}, "another dtype or size"},
        {"llama_nf4", {description, "float32\", \"shape", "float99\", \"shape", false}, "float99"},
        {"llama_nf4", {description, "{\"quant_type", "[\"quant_type", false}, "not valid JSON"},
        {"llama_nf4", {UP ".nested_absmax", NULL, NULL, true}, "not finite"},
        {"llama_nf4", {UP ".quant_map", NULL, NULL, true}, "not finite"},
        {"gpt2_fp4", {"transformer.h.0.mlp.c_fc.weight.absmax", NULL, NULL, true}, "not finite"},
        {"llama_int8", {scales, NULL, NULL, true}, "not finite"},
        {"llama_int8", {scales, NULL, NULL, false}, "I8"},
        {"llama_int8", {"model.layers.1.mlp.up_proj.weight_format", NULL, NULL, true}, "weight_format\" is 255"},
        {"llama_fp8", {UP, NULL, NULL, true}, "not finite"},
        {"llama_fp8", {UP "_scale_inv", NULL, NULL, true}, "not finite"},
        {"llama_fp8", {UP "_scale_inv", NULL, NULL, false}, "F8_E4M3"},
        {"qwen2_moe_fp8", {"model.layers.1.mlp.experts.down_proj_scale_inv", NULL, NULL, true}, "no number"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        quantized q;
        pt_train_options o;
        pt_error e = {0};
        ran r;
        char folder[200];
        quantized_open(&q, rows[i].name);
        snprintf(folder, sizeof folder, "%s/damaged%zu", scratch, i);
        write_damaged(&q, &rows[i].d, folder);
        options_of(&q, "refused", &o);
        o.model = folder;
        if (run_to(&o, STEPS, &r, &e) != PT_FAILED || !strstr(e.text, rows[i].says))
            fail_msg("row %zu: '%s' is not in: %s", i, rows[i].says, e.text);
        fixture_close(&q.f);
    }
}

/* ---- plans of a config.json alone ---- */

static void a_plan_knows_what_config_says(void **state)
{
    (void)state;
    for (int c = 0; c < CASES; c++) {
        quantized q;
        pt_train_options o;
        pt_error e = {0};
        pt_plan *with, *without;
        char config[600];
        quantized_open(&q, cases[c]);
        options_of(&q, "planned", &o);
        o.adapter = NULL;
        o.lora_rank = 2;
        must(pt_plan_open(&o, &with, &e), &e);
        snprintf(config, sizeof config, "%s/config.json", q.f.folder);
        o.model = config;
        must(pt_plan_open(&o, &without, &e), &e);
        char *a = pt_plan_json(with), *b = pt_plan_json(without);
        json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
        const json_t *p = json_object_get(json_object_get(x, "predicted"), "peak_bytes");
        const json_t *s = json_object_get(json_object_get(y, "predicted"), "peak_bytes");
        if (!p || !json_equal(p, s))
            fail_msg("%s: the plan of the folder takes other bytes than that of its config.json", cases[c]);
        json_decref(x), json_decref(y);
        free(a), free(b);
        pt_plan_close(with);
        pt_plan_close(without);
        fixture_close(&q.f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_what_the_codes_stand_for),
        cmocka_unit_test(codes_are_taken_as_they_are),
        cmocka_unit_test(adapters_learn_as_pefts),
        cmocka_unit_test(whole_or_in_few_bits_bf16_computes_the_same),
        cmocka_unit_test(a_run_goes_on_to_the_same_bits_on_the_same_codes),
        cmocka_unit_test(a_merged_folder_is_whole),
        cmocka_unit_test(all_of_such_a_model_can_be_trained),
        cmocka_unit_test(an_adapter_on_fp8_remembers_its_base),
        cmocka_unit_test(damaged_folders_are_refused),
        cmocka_unit_test(a_plan_knows_what_config_says),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
