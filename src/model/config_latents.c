/* config_latents.c - the sizes of latent attention. Keys and values are made of a latent of kv_lora_rank elements, queries of one of
 * q_lora_rank, or of the layer's input if that is null. A head has qk_nope_head_dim elements of its own and qk_rope_head_dim that are
 * rotated; "head_dim" says nothing, or is another name of the latter, as in Transformers. */
#include "model/config_reader.h"

static int read_latent_sizes(config_reader *reader)
{
    const architecture *arch = reader->a;
    model_config *config = reader->c;
    int64_t own = 0;
    const struct { const config_key *key; int64_t max, *out;
    } sizes[] = {{&arch->q_latent, MAX_WIDTH, &config->q_latent},
                 {&arch->kv_latent, MAX_WIDTH, &config->kv_latent},
                 {&arch->own_dim, MAX_HEAD_DIM, &own},
                 {&arch->shared_dim, MAX_HEAD_DIM, &config->shared_dim},
                 {&arch->value_dim, MAX_HEAD_DIM, &config->value_dim}};
    int status = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = config_read_size(reader, sizes[i].key, sizes[i].max, sizes[i].out);
    if (json_is_null(json_object_get(reader->source.object, arch->q_latent.name)))
        config->q_latent = 0;
    config->head_dim = own + config->shared_dim;
    return status;
}

int config_read_latents(config_reader *reader)
{
    model_config *config = reader->c;
    const char *where = reader->source.where;
    bool bias = false;
    int status = read_latent_sizes(reader);
    if (!status)
        status = json_get_bool(&reader->source, "attention_bias", JSON_OPTIONAL, &bias, reader->e);
    if (status)
        return status;
    if (config->shared_dim % 2)
        return pt_fail(reader->e, PT_FAILED, "%s: \"qk_rope_head_dim\" is %lld, but pairs of elements are rotated: it must be even", where,
                       (long long)config->shared_dim);
    if (config->value_dim > config->head_dim)
        return pt_fail(reader->e, PT_FAILED, "%s: \"v_head_dim\" is %lld, but values larger than the %lld elements of keys "
                       "(\"qk_nope_head_dim\" and \"qk_rope_head_dim\") are not supported", where,
                       (long long)config->value_dim, (long long)config->head_dim);
    if (config->kv_heads != config->heads)
        return pt_fail(reader->e, PT_FAILED,
                       "%s: \"num_key_value_heads\" is %lld, but with latent attention every one of the %lld heads has "
                       "its own keys: correct it",
                       where, (long long)config->kv_heads, (long long)config->heads);
    if (bias && !config->q_latent)
        return pt_fail(reader->e, PT_FAILED, "%s: \"attention_bias\" is true and \"q_lora_rank\" null, but queries that are not made of a "
                       "latent have no bias: both together are not supported", where);
    return 0;
}
