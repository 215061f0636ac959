/* config_heads.c - heads of layers without a window, where these have their own.
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
    return status;
}
