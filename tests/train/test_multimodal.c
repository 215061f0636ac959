/* The text part of a multimodal checkpoint is trained; the rest of the folder comes out as it went in: in the model and in checkpoints,
 * through kills and resumes, whatever becomes of the model's folder meanwhile. */
#include "protrain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "train/run.h"
#include "train/same_end.h"

static const char *const models[] = {"gemma3_multimodal", "mistral3", "mistral3_ministral3", "gemma4_shared_multimodal"};
enum { MODELS = sizeof models / sizeof *models };

static bool is_vision(const char *name) { return strstr(name, "vision_") || strstr(name, "_vision") || strstr(name, "projector"); }

/* The same names with the same shapes as in the model's folder; of the vision part the same bytes, of the text part not all. */
static void check_saved(const fixture *f, const char *folder, pt_dtype text_type)
{
    safetensors *saved;
    pt_error e = {0};
    size_t vision = 0, changed = 0;
    must(safetensors_open(folder, &saved, &e), &e);
    assert_int_equal(safetensors_count(saved), safetensors_count(f->weights));
    for (size_t i = 0; i < safetensors_count(saved); i++) {
        const safetensors_tensor *a = safetensors_at(f->weights, i), *b = safetensors_at(saved, i);
        assert_string_equal(a->name, b->name);
        assert_true(a->rank == b->rank && !memcmp(a->shape, b->shape, sizeof a->shape[0] * (size_t)a->rank));
        assert_int_equal(b->dtype, is_vision(a->name) ? a->dtype : text_type);
        char *x = malloc(a->bytes), *y = malloc(b->bytes);
        must(safetensors_read(f->weights, a, 0, a->bytes, x, &e) || safetensors_read(saved, b, 0, b->bytes, y, &e), &e);
        bool same = a->bytes == b->bytes && !memcmp(x, y, a->bytes);
        if (is_vision(a->name) && !same)
            fail_msg("%s: %s changed", folder, a->name);
        vision += is_vision(a->name);
        changed += !same;
        free(x);
        free(y);
    }
    assert_true(vision > 0 && changed > 0);
    safetensors_close(saved);
}

static void finish(run *r)
{
    pt_trainer *t;
    pt_step s;
    pt_error e = {0};
    int more;
    must(pt_trainer_open(&r->o, &t, &e), &e);
    while ((more = pt_trainer_step(t, &s, &e)) > 0) {}
    must(more, &e);
    must(pt_trainer_finish(t, &e), &e);
    pt_trainer_close(t);
}

static void start(run *r, const char *model, const char *out, pt_save_type type)
{
    run_make(r, &(setting){model, PT_PRECISION_FP32, 1, true, PT_OPTIMIZER_ADAMW}, out);
    r->o.save_every = 4;
    r->o.save_type = type;
}

static void the_rest_of_the_checkpoint_is_saved_as_it_is(void **state)
{
    (void)state;
    static const struct { pt_save_type save; pt_dtype type; } types[] = {{PT_SAVE_F32, PT_F32}, {PT_SAVE_BF16, PT_BF16}};
    for (int i = 0; i < MODELS * 2; i++) {
        run r;
        char out[64], checkpoint[200];
        snprintf(out, sizeof out, "saved-%d", i);
        start(&r, models[i / 2], out, types[i % 2].save);
        finish(&r);
        check_saved(&r.f, r.out, types[i % 2].type);
        snprintf(checkpoint, sizeof checkpoint, "%s/checkpoint-4", r.out);
        check_saved(&r.f, checkpoint, types[i % 2].type);
        run_free(&r);
    }
}

static void remove_weights(const char *folder)
{
    static const char *const names[] = {"model.safetensors", "reference.safetensors"};
    char path[256];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(unlink(path), 0);
    }
}

/* Also where the folder of the model has lost its weights before. */
static void a_resumed_run_ends_in_the_same_bits(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        run straight, parts;
        char out[64], folder[200];
        pt_error e = {0};
        snprintf(out, sizeof out, "straight-%d", i);
        start(&straight, models[i], out, PT_SAVE_BF16);
        finish(&straight);
        snprintf(out, sizeof out, "parts-%d", i);
        start(&parts, models[i], out, PT_SAVE_BF16);
        snprintf(folder, sizeof folder, "%s/model-%d", scratch, i);
        fixture_copy(&parts.f, folder, NULL, NULL);
        parts.o.model = folder;
        parts.o.lr = straight.o.lr = 1e-3;
        must(run_until(&parts, 4, &e), &e);
        remove_weights(folder);
        parts.o.resume = true;
        finish(&parts);
        assert_same_end(straight.out, parts.out, STEPS);
        run_free(&straight);
        run_free(&parts);
    }
}

static char noted[4096];

static void note(void *arg, const char *sentence)
{
    (void)arg;
    size_t n = strlen(noted);
    snprintf(noted + n, sizeof noted - n, "%s\n", sentence);
}

static void random_weights_have_what_the_folder_has_beside_them(void **state)
{
    (void)state;
    run with, without;
    char folder[200];
    start(&with, "mistral3", "with", PT_SAVE_F32);
    with.o.init_random = true;
    with.o.notice = note;
    finish(&with);
    check_saved(&with.f, with.out, PT_F32);
    assert_non_null(strstr(noted, "15 other tensors"));
    noted[0] = 0;
    start(&without, "mistral3", "without", PT_SAVE_F32);
    snprintf(folder, sizeof folder, "%s/model", scratch);
    fixture_copy(&without.f, folder, NULL, NULL);
    remove_weights(folder);
    without.o.model = folder;
    without.o.notice = note;
    finish(&without);
    assert_non_null(strstr(noted, "no weights of the other parts"));
    safetensors *saved;
    pt_error e = {0};
    must(safetensors_open(without.out, &saved, &e), &e);
    for (size_t i = 0; i < safetensors_count(saved); i++)
        assert_true(!strncmp(safetensors_at(saved, i)->name, "language_model.", 15));
    assert_non_null(safetensors_find(saved, "language_model.lm_head.weight"));
    safetensors_close(saved);
    run_free(&with);
    run_free(&without);
}

/* Named as Transformers names the whole model's modules, of which those of the text part alone are told to PEFT; and gone on from. */
static void adapters_are_of_the_text_part(void **state)
{
    (void)state;
    for (int i = 0; i < MODELS; i++) {
        static const char prefix[] = "base_model.model.model.language_model.";
        const bool outside = strstr(models[i], "shared") != NULL; /* has a linear layer outside the layers */
        run first, second;
        char out[64], path[200];
        json_t *config;
        safetensors *st;
        pt_error e = {0};
        snprintf(out, sizeof out, "adapter-%d", i);
        start(&first, models[i], out, PT_SAVE_AS_STORED);
        first.o.save_every = 0;
        first.o.lora_rank = 2;
        first.o.lora_targets = outside ? "q_proj,per_layer_model_projection" : "q_proj,mlp.down_proj";
        finish(&first);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", first.out);
        must(safetensors_open(path, &st, &e), &e);
        for (size_t k = 0; k < safetensors_count(st); k++)
            assert_memory_equal(safetensors_at(st, k)->name, prefix, sizeof prefix - 1);
        assert_non_null(safetensors_find(st, "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight"));
        assert_true(!outside == !safetensors_find(st, "base_model.model.model.language_model.per_layer_model_projection.lora_A.weight"));
        safetensors_close(st);
        snprintf(path, sizeof path, "%s/adapter_config.json", first.out);
        must(json_file_load(path, 0, &config, &e), &e);
        assert_string_equal(json_string_value(json_object_get(config, "target_modules")),
                            outside ? ".*language_model\\.(?:.*\\.)?(q_proj|per_layer_model_projection)"
                                    : ".*language_model\\..*\\.(q_proj|mlp\\.down_proj)");
        json_decref(config);
        snprintf(out, sizeof out, "further-%d", i);
        start(&second, models[i], out, PT_SAVE_AS_STORED);
        second.o.save_every = 0;
        second.o.adapter = first.out;
        finish(&second);
        run_free(&first);
        run_free(&second);
    }
}

/* A tensor that is neither of the text part as config.json describes it, nor of another, is no more let pass than elsewhere. */
static void superfluous_tensors_of_the_text_part_are_refused(void **state)
{
    (void)state;
    run r;
    pt_error e = {0};
    pt_trainer *t;
    char folder[200], path[256];
    json_t *config;
    start(&r, "mistral3", "superfluous", PT_SAVE_F32);
    snprintf(folder, sizeof folder, "%s/one-layer", scratch);
    fixture_copy(&r.f, folder, NULL, NULL);
    snprintf(path, sizeof path, "%s/config.json", folder);
    must(json_file_load(path, 0, &config, &e), &e);
    json_object_set_new(json_object_get(config, "text_config"), "num_hidden_layers", json_integer(1));
    must(file_write_json(path, config, &e), &e);
    json_decref(config);
    r.o.model = folder;
    assert_int_equal(pt_trainer_open(&r.o, &t, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "language_model.model.layers.1."));
    run_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_of_the_checkpoint_is_saved_as_it_is),
        cmocka_unit_test(a_resumed_run_ends_in_the_same_bits),
        cmocka_unit_test(random_weights_have_what_the_folder_has_beside_them),
        cmocka_unit_test(adapters_are_of_the_text_part),
        cmocka_unit_test(superfluous_tensors_of_the_text_part_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
