#include "layer/work.h"

#include "model/adapter.h"

/* Latents, output gates, values from the columns of keys, norms over all heads and DoRA's gains do not divide by heads. */
static bool divides(const model *m, int layer)
{
    const model_config *c = &m->config;
    return c->mixer[layer] == MIXER_ATTENTION && !c->kv_latent && !c->output_gate && !c->value_norm && c->qk_norm != QK_NORM_WIDE &&
           !block_param(m, &m->blocks[layer + 1], adapter_magnitude(adapter_matrix(PARAM_QKV)));
}

int layer_groups(const model *m, int layer, const step_shape *s)
{
    const int64_t heads = model_heads(&m->config, layer).kv_heads;
    int64_t groups = 1;
    if (!divides(m, layer))
        return 1;
    while (groups < heads && (heads % groups || groups * s->whole_heads < s->seq_len))
        groups++;
    return (int)groups;
}

int layer_first_of_group(const layer_program *p, int attention)
{
    int i = attention;
    while (p->stage[i].param[0] != PARAM_QKV || p->stage[i].kind != STAGE_LINEAR)
        i--;
    while (i > 0 && (p->stage[i - 1].kind == STAGE_LOW || p->stage[i - 1].kind == STAGE_NORM))
        i--;
    return i;
}

attention_heads group_heads(attention_heads all, int groups)
{
    return (attention_heads){all.heads / groups, all.kv_heads / groups, all.dim, all.q_wide / groups, all.kv_wide / groups,
                             all.made / groups};
}

qkv_columns group_columns(const model_config *c, int layer, int groups)
{
    const qkv_columns all = model_qkv_columns(c, layer);
    return (qkv_columns){all.q / groups, all.k / groups, all.v / groups, all.gate < 0 ? -1 : all.gate / groups, all.all / groups};
}

int linear_ranges(const layer_work *work, const layer_stage *s, row_range out[LINEAR_RANGES])
{
    if (work->groups == 1) {
        out[0] = (row_range){0, matrix_of(work, s)->rows, 0};
        return 1;
    }
    const qkv_columns all = model_qkv_columns(work->config, work->layer), at = qkv_of(work);
    const attention_heads h = heads_of(work);
    const int64_t begin[] = {all.q, all.k, all.v}, wide[] = {h.q_wide, h.kv_wide, h.kv_wide}, col[] = {at.q, at.k, at.v};
    for (int i = 0; i < LINEAR_RANGES; i++)
        out[i] = (row_range){begin[i] + work->group * wide[i], wide[i], col[i]};
    return LINEAR_RANGES;
}

int64_t linear_outputs(const layer_work *work, const layer_stage *s)
{
    return work->groups == 1 ? matrix_of(work, s)->rows : qkv_of(work).all;
}
