/* config_heads.c - heads of layers without a window, where these have their own.
 *
 * Their size and number are two keys, global_head_dim and num_global_key_value_heads (which counts if attention_k_eq_v is true), or what
 * Transformers writes since version 5: per_layer_config {"5": {"head_dim": 512, "num_key_value_heads": 4}, ...}.
 */
#include "model/config_reader.h"

#include <stdlib.h>

static int check_layer(config_reader *r, const char *layer, const json_source *of)
{
    char *end;
    model_config *c = r->c;
    const long i = strtol(layer, &end, 10);
    int64_t dim = c->head_dim, kv = c->kv_heads;
    if (*end || end == layer || i < 0 || i >= c->layers)
        return pt_fail(r->e, PT_FAILED, "%s: \"per_layer_config\" has \"%.40s\", but layers are numbered 0 to %lld", r->source.where, layer,
                       (long long)c->layers - 1);
    int status = json_get_int(of, "head_dim", JSON_OPTIONAL, 1, MAX_HEAD_DIM, &dim, r->e);
    if (!status)
        status = json_get_int(of, "num_key_value_heads", JSON_OPTIONAL, 1, MAX_HEADS, &kv, r->e);
    if (status)
        return status;
    if (!c->window[i] && !c->full_head_dim) {
        c->full_head_dim = dim;
        c->full_kv_heads = kv;
    }
    const attention_heads heads = model_heads(c, (int)i);
    if (dim != heads.dim || kv != heads.kv_heads)
        return pt_fail(r->e, PT_FAILED, "%s: \"per_layer_config\" gives layer %ld heads that others of its kind do not have; this is not "
                       "supported", r->source.where, i);
    return 0;
}

static int read_by_layer(config_reader *r, const json_source *layers)
{
    const char *key;
    json_t *value;
    int status = 0;
    json_object_foreach(layers->object, key, value)
    {
        json_source of = {0};
        if (!status)
            status = json_get_object(layers, key, JSON_REQUIRED, &of, r->e);
        if (!status)
            status = check_layer(r, key, &of);
    }
    return status;
}

int config_read_heads(config_reader *r)
{
    model_config *c = r->c;
    if (!r->a->full_heads)
        return 0;
    json_source layers = {0};
    const config_key dim = {"global_head_dim", NULL, 512}, kv = {"num_global_key_value_heads", NULL, -1};
    int64_t full_dim, full_kv;
    c->value_norm = r->a->value_norm;
    c->scaled = r->a->scaled;
    c->window[c->layers - 1] = 0; /* as in Transformers, whatever layer_types says */
    c->layer_rope[c->layers - 1] = 0;
    int status = json_get_bool(&r->source, "attention_k_eq_v", JSON_OPTIONAL, &c->keys_as_values, r->e);
    if (!status)
        status = json_get_object(&r->source, "per_layer_config", JSON_OPTIONAL, &layers, r->e);
    if (!status && layers.object)
        status = read_by_layer(r, &layers);
    if (status || layers.object)
        return status;
    status = config_read_size(r, &dim, MAX_HEAD_DIM, &full_dim);
    if (!status)
        status = config_read_size(r, &kv, MAX_HEADS, &full_kv);
    c->full_head_dim = full_dim;
    c->full_kv_heads = full_kv > 0 && c->keys_as_values ? full_kv : c->kv_heads;
    if (!status && c->heads % c->full_kv_heads)
        status = pt_fail(r->e, PT_FAILED, "%s: \"%s\" is %lld, which is not a multiple of \"num_global_key_value_heads\" %lld",
                         r->source.where, r->a->heads.name, (long long)c->heads, (long long)c->full_kv_heads);
    return status;
}
