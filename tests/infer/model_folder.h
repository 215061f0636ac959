/* model_folder.h - a small model with random weights and a tokenizer, as a Hugging Face folder in the scratch folder.
 * Include after cmocka.h. */
#ifndef TEST_MODEL_FOLDER_H
#define TEST_MODEL_FOLDER_H

#include "base/json.h"
#include "io/safetensors.h"
#include "model/weights.h"

#include "io/scratch.h"

typedef struct random_weights { const model *model; uint64_t seed; } random_weights;

static inline int random_rows(void *arg, int index, int64_t row0, int64_t n_rows, float *out, pt_error *e)
{
    const random_weights *w = arg;
    weights_init(w->model, w->seed, index, row0, n_rows, out);
    return 0;
}

static inline void write_weights(const char *folder, uint64_t seed)
{
    pt_error e = {0};
    model *m;
    safetensors_writer *w;
    if (model_open(folder, NULL, NULL, &m, &e) || safetensors_writer_open(folder, "model", SAFETENSORS_SHARD_DEFAULT, &w, &e))
        fail_msg("%s", e.text);
    random_weights from = {m, seed};
    size_t room = weights_scratch_bytes(m) + (16 << 20);
    void *spare = malloc(room);
    if (weights_export(m, w, PT_F32, (weights_layout){0}, random_rows, &from, spare, room, &e))
        fail_msg("%s", e.text);
    free(spare);
    safetensors_writer_close(w);
    model_close(m);
}

/* The tokenizer is tests/fixtures/tokenizers/gpt2.json: byte-level, <|endoftext|> is 420. Weights are large, so that
 * the logits are far apart. */
static inline const char *make_folder_of(const char *name, const char *config, uint64_t seed)
{
    pt_error e = {0};
    json_t *fixture;
    const char *folder = scratch_path(name);
    if (dir_make(folder, &e) || json_file_load(PT_FIXTURES "/tokenizers/gpt2.json", 0, &fixture, &e))
        fail_msg("%s", e.text);
    char *tokenizer = json_dumps(json_object_get(fixture, "tokenizer"), 0), file[128];
    snprintf(file, sizeof file, "%s/tokenizer.json", name);
    scratch_put(file, tokenizer, strlen(tokenizer));
    snprintf(file, sizeof file, "%s/config.json", name);
    scratch_put(file, config, strlen(config));
    write_weights(folder, seed);
    free(tokenizer);
    json_decref(fixture);
    return scratch_path(name);
}

static inline const char *make_model_folder(const char *name, int hidden, int layers, int positions, uint64_t seed)
{
    char config[512];
    snprintf(config, sizeof config, "{\"model_type\": \"gpt2\", \"vocab_size\": 424, \"n_embd\": %d, \"n_layer\": %d, \"n_head\": 2, "
             "\"n_positions\": %d, \"initializer_range\": 0.3, \"bos_token_id\": 420, \"eos_token_id\": 420}", hidden, layers, positions);
    return make_folder_of(name, config, seed);
}

#endif
