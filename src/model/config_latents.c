/* config_latents.c - the sizes of latent attention. Keys and values are made of a latent of kv_lora_rank elements, queries of one of
 * q_lora_rank, or of the layer's input if that is null. A head has qk_nope_head_dim elements of its own and qk_rope_head_dim that are
 * rotated; "head_dim" says nothing, or is another name of the latter, as in Transformers. */
#include "model/config_reader.h"

static int read_latent_sizes(config_reader *r)
{
    const architecture *a = r->a;
    model_config *c = r->c;
    int64_t own = 0;
    const struct { const config_key *key; int64_t max, *out; } sizes[] = {
        {&a->q_latent, MAX_WIDTH, &c->q_latent}, {&a->kv_latent, MAX_WIDTH, &c->kv_latent}, {&a->own_dim, MAX_HEAD_DIM, &own},
        {&a->shared_dim, MAX_HEAD_DIM, &c->shared_dim}, {&a->value_dim, MAX_HEAD_DIM, &c->value_dim}};
    int status = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && !status; i++)
        status = config_read_size(r, sizes[i].key, sizes[i].max, sizes[i].out);
    if (json_is_null(json_object_get(r->source.object, a->q_latent.name)))
        c->q_latent = 0;
    c->head_dim = own + c->shared_dim;
    return status;
}

int config_read_latents(config_reader *r)
{
    model_config *c = r->c;
    const char *where = r->source.where;
    bool bias = false;
    int status = read_latent_sizes(r);
    if (!status)
        status = json_get_bool(&r->source, "attention_bias", JSON_OPTIONAL, &bias, r->e);
    if (status)
        return status;
    if (c->shared_dim % 2)
        return pt_fail(r->e, PT_FAILED, "%s: \"qk_rope_head_dim\" is %lld, but pairs of elements are rotated: it must be even", where,
                       (long long)c->shared_dim);
    if (c->value_dim > c->head_dim)
        return pt_fail(r->e, PT_FAILED, "%s: \"v_head_dim\" is %lld, but values larger than the %lld elements of keys "
                       "(\"qk_nope_head_dim\" and \"qk_rope_head_dim\") are not supported", where,
                       (long long)c->value_dim, (long long)c->head_dim);
    if (c->kv_heads != c->heads)
        return pt_fail(r->e, PT_FAILED, "%s: \"num_key_value_heads\" is %lld, but with latent attention every one of the %lld heads has "
                       "its own keys: correct it", where, (long long)c->kv_heads, (long long)c->heads);
    if (bias && !c->q_latent)
        return pt_fail(r->e, PT_FAILED, "%s: \"attention_bias\" is true and \"q_lora_rank\" null, but queries that are not made of a "
                       "latent have no bias: both together are not supported", where);
    return 0;
}
