/* config_heads.c - heads of layers without a window, where these have their own.
 *
 * Such models may also share keys and values among layers, and have inputs of layers.
 *
 * Their size and number are two keys, global_head_dim and num_global_key_value_heads (which counts if attention_k_eq_v is true), or what
 * Transformers writes since version 5: per_layer_config {"5": {"head_dim": 512, "num_key_value_heads": 4}, ...}.
 */
#include "model/config_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The heads of layer i are those of the model but for what is said of the layer. */
static int check_layer(config_reader *reader, int i, const json_source *of)
{
    model_config *config = reader->c;
    int64_t dim = config->head_dim, kv = config->kv_heads;
    int status = of->object ? json_get_int(of, "head_dim", JSON_OPTIONAL, 1, MAX_HEAD_DIM, &dim, reader->e) : 0;
    if (!status && of->object)
        status = json_get_int(of, "num_key_value_heads", JSON_OPTIONAL, 1, MAX_HEADS, &kv, reader->e);
    if (status)
        return status;
    if (!config->window[i] && !config->full_head_dim) {
        config->full_head_dim = dim;
        config->full_kv_heads = kv;
    }
    const attention_heads heads = model_heads(config, i);
    if (dim != heads.dim || kv != heads.kv_heads)
        return pt_fail(reader->e, PT_FAILED,
                       "%s: by \"per_layer_config\" the heads of layer %d are not those of all layers of its kind; this "
                       "is not supported",
                       reader->source.where, i);
    return 0;
}

/* Numbers of layers, as Transformers writes them, and what is read of each. */
static int check_names(const config_reader *reader, const json_source *layers)
{
    const char *key, *name;
    json_t *value, *own;
    json_object_foreach(layers->object, key, value)
    {
        char *end, written[32];
        const long i = strtol(key, &end, 10);
        snprintf(written, sizeof written, "%ld", i);
        if (strcmp(written, key) || i < 0 || i >= reader->c->layers)
            return pt_fail(reader->e, PT_FAILED, "%s: \"per_layer_config\" has \"%.40s\", but layers are numbered 0 to %lld",
                           reader->source.where, key, (long long)reader->c->layers - 1);
        json_object_foreach(value, name, own)
        {
            if (strcmp(name, "head_dim") && strcmp(name, "num_key_value_heads"))
                return pt_fail(reader->e, PT_FAILED,
                               "%s: \"per_layer_config\" gives layer %ld its own \"%.60s\", but only \"head_dim\" and "
                               "\"num_key_value_heads\" are supported there",
                               reader->source.where, i, name);
        }
    }
    return 0;
}

static int read_by_layer(config_reader *reader, const json_source *layers)
{
    int status = check_names(reader, layers);
    for (int i = 0; i < reader->c->layers && !status; i++) {
        char key[16];
        json_source of = {0};
        snprintf(key, sizeof key, "%d", i);
        if (json_object_get(layers->object, key))
            status = json_get_object(layers, key, JSON_REQUIRED, &of, reader->e);
        if (!status)
            status = check_layer(reader, i, &of);
    }
    return status;
}

static int read_of_full(config_reader *reader)
{
    model_config *config = reader->c;
    const config_key dim = {"global_head_dim", NULL, 512}, kv = {"num_global_key_value_heads", NULL, -1};
    int64_t full_dim, full_kv;
    int status = config_read_size(reader, &dim, MAX_HEAD_DIM, &full_dim);
    if (!status)
        status = config_read_size(reader, &kv, MAX_HEADS, &full_kv);
    if (status)
        return status;
    config->full_head_dim = full_dim;
    config->full_kv_heads = full_kv > 0 && config->keys_as_values ? full_kv : config->kv_heads;
    return 0;
}

/* The last layers may read the keys and values of an earlier layer with a window or without, as they are. */
static int read_shared(config_reader *reader)
{
    model_config *config = reader->c;
    int64_t shared = 0;
    int status = json_get_int(&reader->source, "num_kv_shared_layers", JSON_OPTIONAL, 0, MODEL_MAX_LAYERS, &shared, reader->e);
    if (!status)
        status = json_get_bool(&reader->source, "use_double_wide_mlp", JSON_OPTIONAL, &config->double_wide, reader->e);
    if (!status && shared >= config->layers)
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: \"num_kv_shared_layers\" is %lld, but of %lld layers at most %lld can read the keys and "
                         "values of an earlier one",
                         reader->source.where, (long long)shared, (long long)config->layers, (long long)config->layers - 1);
    if (status)
        return status;
    config->kv_shared = shared;
    config->double_wide &= shared > 0;
    for (int i = (int)(config->layers - shared); i < config->layers; i++) {
        const int from = model_kv_layer(config, i);
        if (!config->window[from] != !config->window[i])
            return pt_fail(reader->e, PT_FAILED,
                           "%s: \"num_kv_shared_layers\" is %lld, but layer %d has no earlier layer %s a window whose "
                           "keys and values it could read",
                           reader->source.where, (long long)shared, i, config->window[i] ? "with" : "without");
    }
    return 0;
}

/* Inputs of layers beside the stream, looked up in a table with as many rows as the embedding. */
static int read_inputs(config_reader *reader)
{
    model_config *config = reader->c;
    int64_t width = reader->a->input_width.value, vocab = reader->a->vocab.value;
    int status = json_get_int(&reader->source, reader->a->input_width.name, JSON_OPTIONAL, 0, MAX_WIDTH, &width, reader->e);
    if (!status)
        status = json_get_int(&reader->source, "vocab_size_per_layer_input", JSON_OPTIONAL, 1, MAX_VOCAB, &vocab, reader->e);
    config->input_width = width;
    if (!status && width * config->layers > MAX_WIDTH)
        status = pt_fail(reader->e, PT_FAILED, "%s: \"%s\" %lld of %lld layers makes rows of %lld values, but at most %d are supported",
                         reader->source.where, reader->a->input_width.name, (long long)width, (long long)config->layers,
                         (long long)(width * config->layers), MAX_WIDTH);
    if (!status && width && vocab != config->vocab)
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: \"vocab_size_per_layer_input\" is %lld, but only \"%s\" %lld is supported: every token "
                         "needs a row in both tables",
                         reader->source.where, (long long)vocab, reader->a->vocab.name, (long long)config->vocab);
    return status;
}

int config_read_heads(config_reader *reader)
{
    model_config *config = reader->c;
    if (!reader->a->full_heads)
        return 0;
    json_source layers = {0};
    config->value_norm = reader->a->value_norm;
    config->scaled = reader->a->scaled;
    config->window[config->layers - 1] = 0; /* as in Transformers, whatever layer_types says */
    config->layer_rope[config->layers - 1] = 0;
    int status = json_get_bool(&reader->source, "attention_k_eq_v", JSON_OPTIONAL, &config->keys_as_values, reader->e);
    if (!status)
        status = json_get_object(&reader->source, "per_layer_config", JSON_OPTIONAL, &layers, reader->e);
    if (!status)
        status = json_object_get(reader->source.object, "per_layer_config") ? read_by_layer(reader, &layers) : read_of_full(reader);
    if (!status && config->heads % config->full_kv_heads)
        status = pt_fail(reader->e, PT_FAILED,
                         "%s: \"%s\" is %lld, which is not a multiple of the %lld key and value heads of layers without "
                         "a window (\"num_global_key_value_heads\" or \"per_layer_config\")",
                         reader->source.where, reader->a->heads.name, (long long)config->heads, (long long)config->full_kv_heads);
    if (!status)
        status = read_shared(reader);
    return status ? status : read_inputs(reader);
}
