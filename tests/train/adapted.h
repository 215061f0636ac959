/* adapted.h - a fixture of PEFT, and runs of its adapter. Include after cmocka.h. */
#ifndef PT_TEST_ADAPTED_H
#define PT_TEST_ADAPTED_H

#include "model/adapter.h"
#include "train/fixture.h"
#include "train/heard.h"

/* A fixture of models/ whose reference is that of adapters/NAME; its adapter's folder. */
typedef struct adapted { fixture f; char folder[512]; } adapted;

static inline void adapted_open(adapted *a, const char *name)
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

static inline void options_of(const adapted *a, const char *const *tokens, const char *out, pt_train_options *o)
{
    fixture_options(&a->f, tokens, out, o);
    o->adapter = a->folder;
    o->save_type = PT_SAVE_AS_STORED;
}

static inline float *values_of(const safetensors *st, const safetensors_tensor *t)
{
    pt_error e = {0};
    float *values = malloc(t->elements * sizeof *values);
    assert_non_null(values);
    must(safetensors_read_f32(st, t, 0, t->elements, values, &e), &e);
    return values;
}

/* A copy of llama's adapter whose config has another value, or whose tensor another name, shape or value. */
static inline void copy_adapter(const adapted *a, const char *to, const char *key, json_t *value)
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

#endif
