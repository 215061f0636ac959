#include "layer/work.h"

#include "model/adapter.h"

/* Latents, output gates, values from the columns of keys, norms over all heads and DoRA's gains do not divide by heads. */
static bool divides(const model *m, int layer)
{
    const model_config *config = &m->config;
    return config->mixer[layer] == MIXER_ATTENTION && !config->kv_latent && !config->output_gate && !config->value_norm &&
           config->qk_norm != QK_NORM_WIDE && !block_param(m, &m->blocks[layer + 1], adapter_magnitude(adapter_matrix(PARAM_QKV)));
}

int layer_groups(const model *m, int layer, const step_shape *shape)
{
    const int64_t heads = model_heads(&m->config, layer).kv_heads;
    int64_t groups = 1;
    if (shape_parts(shape) > 1 || !divides(m, layer))
        return 1;
    while (groups < heads && (heads % groups || groups * shape->whole_heads < shape->seq_len))
        groups++;
    return (int)groups;
}

int layer_first_of_group(const layer_program *program, int attention)
{
    int i = attention;
    while (program->stage[i].param[0] != PARAM_QKV || program->stage[i].kind != STAGE_LINEAR)
        i--;
    while (i > 0 && (program->stage[i - 1].kind == STAGE_LOW || program->stage[i - 1].kind == STAGE_NORM))
        i--;
    return i;
}

attention_heads group_heads(attention_heads all, int groups)
{
    return (attention_heads){all.heads / groups, all.kv_heads / groups, all.dim, all.q_wide / groups, all.kv_wide / groups,
                             all.made / groups};
}

qkv_columns group_columns(const model_config *config, int layer, int groups)
{
    const qkv_columns all = model_qkv_columns(config, layer);
    return (qkv_columns){all.q / groups, all.k / groups, all.v / groups, all.gate < 0 ? -1 : all.gate / groups, all.all / groups};
}

int linear_ranges(const layer_work *work, const layer_stage *stage, row_range out[LINEAR_RANGES])
{
    if (work->groups == 1) {
        out[0] = (row_range){0, matrix_of(work, stage)->rows, 0};
        return 1;
    }
    const qkv_columns all = model_qkv_columns(work->config, work->layer), at = qkv_of(work);
    const attention_heads h = heads_of(work);
    const int64_t begin[] = {all.q, all.k, all.v}, wide[] = {h.q_wide, h.kv_wide, h.kv_wide}, col[] = {at.q, at.k, at.v};
    for (int i = 0; i < LINEAR_RANGES; i++)
        out[i] = (row_range){begin[i] + work->group * wide[i], wide[i], col[i]};
    return LINEAR_RANGES;
}

int64_t linear_outputs(const layer_work *work, const layer_stage *stage)
{
    return work->groups == 1 ? matrix_of(work, stage)->rows : qkv_of(work).all;
}
