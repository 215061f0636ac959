/* export_folder.h - folders of models, their GGUF files, and the values in both. Include after cmocka.h. */
#ifndef TEST_EXPORT_FOLDER_H
#define TEST_EXPORT_FOLDER_H

#include "gguf/blocks.h"
#include "gguf/writer.h"
#include "io/safetensors.h"
#include "model/model.h"
#include "protrain.h"

#include "gguf/gguf_file.h"
#include "infer/model_folder.h"
#include "io/scratch.h"

static inline void put_text(const char *folder, const char *name, const char *text)
{
    char path[300];
    pt_error e = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_write_atomic(path, text, strlen(text), &e))
        fail_msg("%s", e.text);
}

static inline void put_json(const char *folder, const char *name, json_t *value)
{
    char *text = json_dumps(value, 0);
    put_text(folder, name, text);
    free(text);
    json_decref(value);
}

/* scratch/NAME, with the files of a model fixture. */
static inline const char *fixture_folder(const char *name)
{
    static char folder[128];
    char command[600];
    pt_error e = {0};
    snprintf(folder, sizeof folder, "%s/%s", scratch, name);
    assert_int_equal(dir_make(folder, &e), 0);
    snprintf(command, sizeof command, "ln -sf '%s/models/%s/'*.json '%s/models/%s/'*.safetensors '%s'", PT_FIXTURES,
             name, PT_FIXTURES, name, folder);
    assert_int_equal(system(command), 0);
    return folder;
}

static inline int64_t vocab_of(const char *folder)
{
    model *m;
    pt_error e = {0};
    if (model_open(folder, NULL, NULL, &m, &e))
        fail_msg("%s", e.text);
    const int64_t vocab = m->config.vocab;
    model_close(m);
    return vocab;
}

/* The tokenizer of fixtures/check_gguf.py: U+4E00 + id, the last id ends a text. */
static inline void add_plain_tokenizer(const char *folder)
{
    const int64_t n = vocab_of(folder);
    json_t *vocab = json_object();
    for (int64_t i = 0; i < n; i++) {
        const int c = 0x4e00 + (int)i;
        const char text[4] = {(char)(0xe0 | c >> 12), (char)(0x80 | (c >> 6 & 63)), (char)(0x80 | (c & 63)), 0};
        json_object_set_new(vocab, text, json_integer(i));
    }
    put_json(folder, "tokenizer.json", json_pack("{s:[], s:{s:s, s:{s:s}, s:s}, s:{s:s, s:o, s:[], s:b}}", "added_tokens", "normalizer",
        "type", "Replace", "pattern", "String", " ", "content", "\xe2\x96\x81", "model", "type", "BPE", "vocab", vocab, "merges",
        "byte_fallback", 0));
    put_json(folder, "generation_config.json", json_pack("{s:I}", "eos_token_id", (json_int_t)(n - 1)));
}

static inline int export_to(const char *folder, const char *out, pt_export_type type, pt_error *e)
{
    pt_export_options o;
    pt_export_defaults(&o);
    o.model = folder;
    o.out = out;
    o.type = type;
    return pt_export(&o, e);
}

static inline gguf_file exported(const char *folder, pt_export_type type)
{
    char out[300];
    pt_error e = {0};
    snprintf(out, sizeof out, "%.280s.gguf", folder);
    if (export_to(folder, out, type, &e))
        fail_msg("%s", e.text);
    return gguf_load(out);
}

/* The file in f32, and the checkpoint. */
static inline gguf_file open_both(const char *folder, safetensors **st)
{
    pt_error e = {0};
    gguf_file f = exported(folder, PT_EXPORT_F32);
    assert_int_equal(safetensors_open(folder, st, &e), 0);
    return f;
}

/* The values of a tensor of the checkpoint, of which `n` from the first-th on must be those of a tensor of the file. */
static inline void check_values(gguf_file *f, const safetensors *st, const char *name, int64_t first, int64_t n, const char *there,
                                int64_t at)
{
    const char *bytes;
    const safetensors_tensor *t = safetensors_find(st, name);
    float *values = malloc((size_t)n * sizeof *values);
    assert_true(t && values);
    assert_int_equal(safetensors_read_f32(st, t, (uint64_t)first, (uint64_t)n, values, NULL), 0);
    assert_int_equal(gguf_tensor_of(f, there, &bytes), GGUF_F32);
    if (memcmp(bytes + at * 4, values, (size_t)n * 4))
        fail_msg("%s is not that of %s", there, name);
    free(values);
}

static inline void find(const safetensors *st, const char *name, float *out)
{
    const safetensors_tensor *t = safetensors_find(st, name);
    assert_non_null(t);
    assert_int_equal(safetensors_read_f32(st, t, 0, t->elements, out, NULL), 0);
}

/* FOLDER/NAME, an adapter of rank 1 with alpha 2 of the modules `model.` MODULE: one tensor A (1, inputs) and one B (outputs, 1) each. */
typedef struct adapted_module { const char *name; int64_t outputs, inputs; } adapted_module;
static inline const char *put_adapter(const char *name, const adapted_module *modules, int n)
{
    char path[300];
    const char *folder = scratch_path(name);
    pt_error e = {0};
    json_t *header = json_object(), *targets = json_array();
    int64_t floats = 0;
    assert_int_equal(dir_make(folder, &e), 0);
    for (int i = 0; i < n; i++) {
        for (int b = 0; b < 2; b++) {
            char key[200];
            const int64_t rows = b ? modules[i].outputs : 1, cols = b ? 1 : modules[i].inputs;
            snprintf(key, sizeof key, "base_model.model.model.%s.lora_%c.weight", modules[i].name, "AB"[b]);
            json_object_set_new(header, key, json_pack("{s:s, s:[I, I], s:[I, I]}", "dtype", "F32", "shape", (json_int_t)rows,
                                (json_int_t)cols, "data_offsets", (json_int_t)floats * 4, (json_int_t)(floats + rows * cols) * 4));
            floats += rows * cols;
        }
        json_array_append_new(targets, json_string(modules[i].name));
    }
    char *text = json_dumps(header, 0);
    const uint64_t bytes = strlen(text);
    char *file = malloc(8 + bytes + (size_t)floats * 4);
    memcpy(file, &bytes, 8);
    memcpy(file + 8, text, bytes);
    for (int64_t i = 0; i < floats; i++) {
        const float value = (float)(i * 37 % 23 - 11) / 64;
        memcpy(file + 8 + bytes + i * 4, &value, 4);
    }
    snprintf(path, sizeof path, "%.200s/adapter_model.safetensors", folder);
    if (file_write_atomic(path, file, 8 + bytes + (size_t)floats * 4, &e))
        fail_msg("%s", e.text);
    free(file);
    free(text);
    json_decref(header);
    put_json(folder, "adapter_config.json", json_pack("{s:s, s:s, s:i, s:i, s:o, s:s}", "peft_type", "LORA", "task_type", "CAUSAL_LM",
             "r", 1, "lora_alpha", 2, "target_modules", targets, "bias", "none"));
    return scratch_path(name);
}

static inline int export_adapted(const char *folder, const char *adapter, const char *out, bool alone, pt_error *e)
{
    pt_export_options o;
    pt_export_defaults(&o);
    o.model = folder;
    o.adapter = adapter;
    o.out = out;
    o.type = PT_EXPORT_F32;
    o.adapter_only = alone;
    return pt_export(&o, e);
}

static inline void refuses(const char *folder, const char *out, const char *sentence)
{
    pt_error e = {0};
    assert_true(export_to(folder, out, PT_EXPORT_F32, &e) < 0);
    if (!strstr(e.text, sentence))
        fail_msg("\"%s\" has no \"%s\"", e.text, sentence);
}

#endif
