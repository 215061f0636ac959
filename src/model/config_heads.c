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
static int check_layer(config_reader *r, int i, const json_source *of)
{
    model_config *c = r->c;
    int64_t dim = c->head_dim, kv = c->kv_heads;
    int status = of->object ? json_get_int(of, "head_dim", JSON_OPTIONAL, 1, MAX_HEAD_DIM, &dim, r->e) : 0;
    if (!status && of->object)
        status = json_get_int(of, "num_key_value_heads", JSON_OPTIONAL, 1, MAX_HEADS, &kv, r->e);
    if (status)
        return status;
    if (!c->window[i] && !c->full_head_dim) {
        c->full_head_dim = dim;
        c->full_kv_heads = kv;
    }
    const attention_heads heads = model_heads(c, i);
    if (dim != heads.dim || kv != heads.kv_heads)
        return pt_fail(r->e, PT_FAILED, "%s: by \"per_layer_config\" the heads of layer %d are not those of all layers of its kind; this "
                       "is not supported", r->source.where, i);
    return 0;
}

/* Numbers of layers, as Transformers writes them, and what is read of each. */
static int check_names(const config_reader *r, const json_source *layers)
{
    const char *key, *name;
    json_t *value, *own;
    json_object_foreach(layers->object, key, value)
    {
        char *end, written[32];
        const long i = strtol(key, &end, 10);
        snprintf(written, sizeof written, "%ld", i);
        if (strcmp(written, key) || i < 0 || i >= r->c->layers)
            return pt_fail(r->e, PT_FAILED, "%s: \"per_layer_config\" has \"%.40s\", but layers are numbered 0 to %lld", r->source.where,
                           key, (long long)r->c->layers - 1);
        json_object_foreach(value, name, own)
        {
            if (strcmp(name, "head_dim") && strcmp(name, "num_key_value_heads"))
                return pt_fail(r->e, PT_FAILED, "%s: \"per_layer_config\" gives layer %ld its own \"%.60s\", but only \"head_dim\" and "
                               "\"num_key_value_heads\" are supported there", r->source.where, i, name);
        }
    }
    return 0;
}

static int read_by_layer(config_reader *r, const json_source *layers)
{
    int status = check_names(r, layers);
    for (int i = 0; i < r->c->layers && !status; i++) {
        char key[16];
        json_source of = {0};
        snprintf(key, sizeof key, "%d", i);
        if (json_object_get(layers->object, key))
            status = json_get_object(layers, key, JSON_REQUIRED, &of, r->e);
        if (!status)
            status = check_layer(r, i, &of);
    }
    return status;
}

static int read_of_full(config_reader *r)
{
    model_config *c = r->c;
    const config_key dim = {"global_head_dim", NULL, 512}, kv = {"num_global_key_value_heads", NULL, -1};
    int64_t full_dim, full_kv;
    int status = config_read_size(r, &dim, MAX_HEAD_DIM, &full_dim);
    if (!status)
        status = config_read_size(r, &kv, MAX_HEADS, &full_kv);
    if (status)
        return status;
    c->full_head_dim = full_dim;
    c->full_kv_heads = full_kv > 0 && c->keys_as_values ? full_kv : c->kv_heads;
    return 0;
}

/* The last layers may read the keys and values of an earlier layer with a window or without, as they are. */
static int read_shared(config_reader *r)
{
    model_config *c = r->c;
    int64_t shared = 0;
    int status = json_get_int(&r->source, "num_kv_shared_layers", JSON_OPTIONAL, 0, MODEL_MAX_LAYERS, &shared, r->e);
    if (!status)
        status = json_get_bool(&r->source, "use_double_wide_mlp", JSON_OPTIONAL, &c->double_wide, r->e);
    if (!status && shared >= c->layers)
        status = pt_fail(r->e, PT_FAILED, "%s: \"num_kv_shared_layers\" is %lld, but of %lld layers at most %lld can read the keys and "
                         "values of an earlier one", r->source.where, (long long)shared, (long long)c->layers, (long long)c->layers - 1);
    if (status)
        return status;
    c->kv_shared = shared;
    c->double_wide &= shared > 0;
    for (int i = (int)(c->layers - shared); i < c->layers; i++) {
        const int from = model_kv_layer(c, i);
        if (!c->window[from] != !c->window[i])
            return pt_fail(r->e, PT_FAILED, "%s: \"num_kv_shared_layers\" is %lld, but layer %d has no earlier layer %s a window whose "
                           "keys and values it could read", r->source.where, (long long)shared, i, c->window[i] ? "with" : "without");
    }
    return 0;
}

/* Inputs of layers beside the stream, looked up in a table with as many rows as the embedding. */
static int read_inputs(config_reader *r)
{
    model_config *c = r->c;
    int64_t width = r->a->input_width.value, vocab = r->a->vocab.value;
    int status = json_get_int(&r->source, r->a->input_width.name, JSON_OPTIONAL, 0, MAX_WIDTH, &width, r->e);
    if (!status)
        status = json_get_int(&r->source, "vocab_size_per_layer_input", JSON_OPTIONAL, 1, MAX_VOCAB, &vocab, r->e);
    c->input_width = width;
    if (!status && width * c->layers > MAX_WIDTH)
        status = pt_fail(r->e, PT_FAILED, "%s: \"%s\" %lld of %lld layers makes rows of %lld values, but at most %d are supported",
                         r->source.where, r->a->input_width.name, (long long)width, (long long)c->layers, (long long)(width * c->layers),
                         MAX_WIDTH);
    if (!status && width && vocab != c->vocab)
        status = pt_fail(r->e, PT_FAILED, "%s: \"vocab_size_per_layer_input\" is %lld, but only \"%s\" %lld is supported: every token "
                         "needs a row in both tables", r->source.where, (long long)vocab, r->a->vocab.name, (long long)c->vocab);
    return status;
}

int config_read_heads(config_reader *r)
{
    model_config *c = r->c;
    if (!r->a->full_heads)
        return 0;
    json_source layers = {0};
    c->value_norm = r->a->value_norm;
    c->scaled = r->a->scaled;
    c->window[c->layers - 1] = 0; /* as in Transformers, whatever layer_types says */
    c->layer_rope[c->layers - 1] = 0;
    int status = json_get_bool(&r->source, "attention_k_eq_v", JSON_OPTIONAL, &c->keys_as_values, r->e);
    if (!status)
        status = json_get_object(&r->source, "per_layer_config", JSON_OPTIONAL, &layers, r->e);
    if (!status)
        status = json_object_get(r->source.object, "per_layer_config") ? read_by_layer(r, &layers) : read_of_full(r);
    if (!status && c->heads % c->full_kv_heads)
        status = pt_fail(r->e, PT_FAILED, "%s: \"%s\" is %lld, which is not a multiple of the %lld key and value heads of layers without "
                         "a window (\"num_global_key_value_heads\" or \"per_layer_config\")",
                         r->source.where, r->a->heads.name, (long long)c->heads, (long long)c->full_kv_heads);
    if (!status)
        status = read_shared(r);
    return status ? status : read_inputs(r);
}
